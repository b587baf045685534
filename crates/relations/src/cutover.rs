//! Cutover of a volume that moves from one aggregate to another.
//!
//! The destination copies the volume while clients change it. In the end the source holds all
//! requests and takes a last snapshot, the *cut*. The destination copies it, and the volume is
//! handed over. Each server has a catalog of its own, so two rows have to change. The order makes
//! exactly one of the two serve, whatever crashes:
//!
//! 1. The source writes into its row that the volume is handed over. From then on it serves the
//!    volume only if the destination says that it has not arrived.
//! 2. The destination writes its row. That is the decision: the volume has arrived.
//! 3. The source learns of it, forwards the requests that it holds, and later deletes its volume.
//!
//! A source that was handed over and lost its destination asks for the decision until it gets one.
//! A destination that is asked before it has decided, decides against the arrival, and never writes
//! its row for that move. It need not remember this over a restart: everything that could still
//! write the row ends with its process.
//!
//! Before step 1 the source goes on by itself when the hold has lasted too long. The cut is then
//! worthless, because clients may have changed the volume since.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// State of a move in the row of the source's volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MoveState {
    /// The volume is copied, and the source serves it.
    #[default]
    Copying,
    /// The destination decides who serves it.
    HandedOver,
}

/// The source of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Departure {
    /// It serves the volume.
    Serving,
    /// It holds requests for the cut with this number.
    Held {
        /// Number of the cut.
        cut: u32,
        /// Monotonic time in milliseconds at which it serves again by itself.
        until_ms: u64,
    },
    /// It is writing [`MoveState::HandedOver`] for this cut: the row may say either.
    Writing {
        /// Number of the cut.
        cut: u32,
    },
    /// [`MoveState::HandedOver`] is in the row.
    HandedOver,
    /// The destination serves the volume.
    Left,
}

/// Answer to a destination that asks for the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// Write the row, then call [`Departure::written`].
    Write,
    /// The cut is not held any more. A volume that is handed over is not handed over again: a
    /// destination that did not hear of it asks for the next cut, once the source has its decision.
    Late,
}

impl Departure {
    /// Returns the state after a start of the source.
    pub fn restarted(written: MoveState) -> Departure {
        match written {
            MoveState::Copying => Departure::Serving,
            MoveState::HandedOver => Departure::HandedOver,
        }
    }

    /// Returns true if the source answers requests about the volume.
    pub fn serves(self) -> bool {
        self == Departure::Serving
    }

    /// Holds requests for a cut. Returns false if the volume is handed over.
    pub fn hold(&mut self, cut: u32, until_ms: u64) -> bool {
        let may = matches!(self, Departure::Serving | Departure::Held { .. });
        if may {
            *self = Departure::Held { cut, until_ms };
        }
        may
    }

    /// Serves again if the hold is over. Returns true if it was.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let over = matches!(self, Departure::Held { until_ms, .. } if *until_ms <= now_ms);
        if over {
            *self = Departure::Serving;
        }
        over
    }

    /// Gives up a cut whose destination is gone or has failed. Returns true if requests were held.
    pub fn release(&mut self) -> bool {
        let held = matches!(self, Departure::Held { .. });
        if held {
            *self = Departure::Serving;
        }
        held
    }

    /// Answers a destination that has the contents of a cut.
    pub fn hand_over(&mut self, wanted: u32) -> HandOver {
        match *self {
            Departure::Held { cut, .. } if cut == wanted => {
                *self = Departure::Writing { cut };
                HandOver::Write
            }
            _ => HandOver::Late,
        }
    }

    /// Takes note that the row says [`MoveState::HandedOver`].
    pub fn written(&mut self) {
        if matches!(self, Departure::Writing { .. }) {
            *self = Departure::HandedOver;
        }
    }

    /// Takes note that the row could not be written and says [`MoveState::Copying`].
    pub fn not_written(&mut self) {
        if matches!(self, Departure::Writing { .. }) {
            *self = Departure::Serving;
        }
    }

    /// Takes the decision of the destination. Returns true if it is news. Before the source serves
    /// again, its row has to say [`MoveState::Copying`].
    pub fn decided(&mut self, arrived: bool) -> bool {
        let news = *self == Departure::HandedOver;
        if news {
            *self = match arrived {
                true => Departure::Left,
                false => Departure::Serving,
            };
        }
        news
    }
}

/// The destination's part in one move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Arrival {
    /// The row is being written.
    Writing,
    /// The volume does not arrive by this move.
    Refused,
}

/// Decision of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// The destination serves the volume.
    Arrived,
    /// It never will by this move.
    Refused,
    /// The row is being written: ask again.
    Pending,
}

/// Decisions of a destination on the moves of which its rows say nothing. They end with its
/// process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals(HashMap<u64, Arrival>);

impl Arrivals {
    /// Returns true if the row of a move may be written now. To be followed by
    /// [`Arrivals::written`].
    pub fn begin(&mut self, id: u64) -> bool {
        let may = !self.0.contains_key(&id);
        if may {
            self.0.insert(id, Arrival::Writing);
        }
        may
    }

    /// Takes note of what became of the row.
    pub fn written(&mut self, id: u64, arrived: bool) {
        match arrived {
            // The row says it from now on.
            true => self.0.remove(&id),
            false => self.0.insert(id, Arrival::Refused),
        };
    }

    /// Answers a source. `arrived`: the rows have the volume of this move.
    pub fn decide(&mut self, id: u64, arrived: bool) -> Decision {
        match self.0.get(&id) {
            _ if arrived => Decision::Arrived,
            Some(Arrival::Writing) => Decision::Pending,
            Some(Arrival::Refused) => Decision::Refused,
            None => {
                self.0.insert(id, Arrival::Refused);
                Decision::Refused
            }
        }
    }
}

#[cfg(test)]
mod tests;
