//! State of a volume as a whole, and the operations on it.
//!
//! A volume of the aggregate is always in one [`State`]. That is one word of memory, so an
//! operation that changes something knows with one load that it may, and no two states can be mixed
//! up in between. No volume is deleted and being reverted; none has its root exchanged without
//! operations waiting for that; none that was closed opens again. All transitions are here, and
//! each names its start.
//!
//! ```text
//!              protect                 begin_turn               begin_swap
//! Serving(Clients) ─→ Serving(Transfers)   Serving ─→ Turning ─→ Turning { swapping }
//!                                             ↑──────────┴─ turned ──┘
//! Serving ─ close ─→ Closed                any ─ delete ─→ Deleted
//! Serving(Clients) ─ hold ─→ Held ─ release ─→ Serving(Clients)
//! ```
//!
//! A snapshot's view has no state: it is only read. When the snapshot is deleted the view ends.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::catalog::Origin;
use crate::types::{Backpressure, FsError, Stop};

/// The source of changes of a volume's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// Clients, through the protocols.
    Clients,
    /// Transfers: the volume is the destination of a replication. Clients change nothing, and see
    /// the last snapshot that arrived.
    Transfers,
}

/// State of a volume as a whole.
///
/// The type has no other state. A deleted volume waits for no checkpoint, and has no writers:
///
/// ```compile_fail,E0559
/// let wrong = weir_volume::State::Deleted { until: 7 };
/// ```
///
/// A turning volume has a known checkpoint:
///
/// ```compile_fail,E0063
/// use weir_volume::{State, Writers};
/// let wrong = State::Turning { writers: Writers::Clients, swapping: true };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its writers can change it.
    Serving(Writers),
    /// Changes of clients are held back from above, for a move to another aggregate. One that comes
    /// here all the same waits for this checkpoint, and then meets those that hold it back.
    Held {
        /// The epoch of the checkpoint.
        until: u64,
    },
    /// The volume is being reverted to a snapshot, or emptied. Changes wait for the end.
    Turning {
        /// The writers after that checkpoint.
        writers: Writers,
        /// The epoch of the checkpoint that does it.
        until: u64,
        /// True while the new root is being published: nothing may be loaded.
        swapping: bool,
    },
    /// The engine has been shut down.
    Closed(Writers),
    /// The volume is deleted, or will be by the next checkpoint.
    Deleted,
}

const TURNING: u64 = 1;
const CLOSED: u64 = 2;
const DELETED: u64 = 3;
const TAG: u64 = 3;
const TRANSFERS: u64 = 4;
/// Flag of a turning volume.
const SWAPPING: u64 = 8;
/// Flag of a volume without a tag.
const HELD: u64 = 8;
const EPOCH_SHIFT: u32 = 4;

impl Writers {
    fn bit(self) -> u64 {
        match self {
            Writers::Clients => 0,
            Writers::Transfers => TRANSFERS,
        }
    }
}

impl State {
    fn pack(self) -> u64 {
        match self {
            State::Serving(writers) => writers.bit(),
            State::Held { until } => HELD | until << EPOCH_SHIFT,
            State::Turning {
                writers,
                until,
                swapping,
            } => {
                let swapping = if swapping { SWAPPING } else { 0 };
                TURNING | writers.bit() | swapping | until << EPOCH_SHIFT
            }
            State::Closed(writers) => CLOSED | writers.bit(),
            State::Deleted => DELETED,
        }
    }

    fn unpack(word: u64) -> State {
        let writers = match word & TRANSFERS {
            0 => Writers::Clients,
            _ => Writers::Transfers,
        };
        match word & TAG {
            TURNING => State::Turning {
                writers,
                until: word >> EPOCH_SHIFT,
                swapping: word & SWAPPING != 0,
            },
            CLOSED => State::Closed(writers),
            DELETED => State::Deleted,
            _ if word & HELD != 0 => State::Held {
                until: word >> EPOCH_SHIFT,
            },
            _ => State::Serving(writers),
        }
    }

    /// Returns its writers; `None` if it is deleted.
    pub fn writers(self) -> Option<Writers> {
        match self {
            State::Serving(writers) | State::Turning { writers, .. } | State::Closed(writers) => {
                Some(writers)
            }
            State::Held { .. } => Some(Writers::Clients),
            State::Deleted => None,
        }
    }

    /// Returns the writers of a volume that can be changed in this state now, or the reason why
    /// not.
    fn admits(self) -> Result<Writers, Stop> {
        match self {
            State::Serving(writers) => Ok(writers),
            State::Turning { until, .. } | State::Held { until } => {
                Err(Stop::Wait(Backpressure::Epoch(until)))
            }
            State::Closed(_) => Err(FsError::Delay.into()),
            State::Deleted => Err(FsError::Stale.into()),
        }
    }

    /// Like [`State::admits`], for operations that do not wait.
    fn free(self) -> Result<Writers, FsError> {
        match self.admits() {
            Err(Stop::Wait(_)) => Err(FsError::Busy),
            admits => admits.map_err(Stop::refusal),
        }
    }
}

/// The state of a volume.
pub(crate) struct AtomicState(AtomicU64);

impl AtomicState {
    pub(crate) fn new(writers: Writers) -> AtomicState {
        AtomicState(AtomicU64::new(State::Serving(writers).pack()))
    }

    pub(crate) fn state(&self) -> State {
        State::unpack(self.0.load(Ordering::SeqCst))
    }

    /// Checks that clients may change the volume now.
    pub(crate) fn admits_clients(&self) -> Result<(), Stop> {
        // A change of the state needs the epoch lock exclusively, which orders this load.
        let word = self.0.load(Ordering::Relaxed);
        if word == 0 {
            return Ok(());
        }
        match State::unpack(word).admits()? {
            Writers::Clients => Ok(()),
            Writers::Transfers => Err(FsError::ReadOnly.into()),
        }
    }

    /// Checks that anything may be changed now, be it only the list of snapshots.
    pub(crate) fn admits_admin(&self) -> Result<(), Stop> {
        match State::unpack(self.0.load(Ordering::Relaxed)) {
            State::Held { .. } => Ok(()),
            state => state.admits().map(drop),
        }
    }

    /// Holds back changes of clients. Of a volume that is held already the checkpoint stays.
    ///
    /// # Errors
    /// As [`AtomicState::free`]; `ReadOnly` for a destination.
    pub(crate) fn hold(&self, until: u64) -> Result<(), FsError> {
        let held = |state| match state {
            State::Held { .. } => Ok(state),
            state => match state.free()? {
                Writers::Clients => Ok(State::Held { until }),
                Writers::Transfers => Err(FsError::ReadOnly),
            },
        };
        self.change(held).map(drop)
    }

    /// Lets clients change a held volume again.
    pub(crate) fn unhold(&self) {
        let _ = self.change(|state| match state {
            State::Held { .. } => Ok(State::Serving(Writers::Clients)),
            _ => Err(()),
        });
    }

    /// Checks that a turn, or becoming a destination, can begin now.
    ///
    /// # Errors
    /// `Stale` if it is deleted; `Delay` if the engine is shut down; `Busy` if it is turning
    /// already.
    pub(crate) fn free(&self) -> Result<(), FsError> {
        self.state().free().map(drop)
    }

    fn change<E>(&self, to: impl Fn(State) -> Result<State, E>) -> Result<State, E> {
        let mut word = self.0.load(Ordering::SeqCst);
        loop {
            let next = to(State::unpack(word))?.pack();
            let swapped = self
                .0
                .compare_exchange(word, next, Ordering::SeqCst, Ordering::SeqCst);
            match swapped {
                Ok(before) => return Ok(State::unpack(before)),
                Err(now) => word = now,
            }
        }
    }

    /// Makes it a destination.
    ///
    /// # Errors
    /// As [`AtomicState::free`].
    pub(crate) fn protect(&self) -> Result<(), FsError> {
        let protected = |_| State::Serving(Writers::Transfers);
        self.change(|state| state.free().map(protected)).map(drop)
    }

    /// Begins a turn: the checkpoint `until` reverts or empties the volume, whose writers are then
    /// `writers` (`None`: as now).
    ///
    /// # Errors
    /// As [`AtomicState::free`].
    pub(crate) fn begin_turn(&self, until: u64, writers: Option<Writers>) -> Result<(), FsError> {
        let turning = |now: Writers| State::Turning {
            writers: writers.unwrap_or(now),
            until,
            swapping: false,
        };
        self.change(|state| state.free().map(turning)).map(drop)
    }

    /// Notes that the new root of a turning volume is about to be published.
    pub(crate) fn begin_swap(&self) {
        self.turning(|writers, until| State::Turning {
            writers,
            until,
            swapping: true,
        });
    }

    /// Ends a turn.
    pub(crate) fn turned(&self) {
        self.turning(|writers, _| State::Serving(writers));
    }

    /// Makes clients the writers of a turning destination after the turn.
    pub(crate) fn release(&self) {
        // A swap in progress stays so until the turn ends.
        let release = |state| match state {
            State::Turning {
                until, swapping, ..
            } => Ok(State::Turning {
                writers: Writers::Clients,
                until,
                swapping,
            }),
            _ => Err(()),
        };
        // The volume was deleted meanwhile.
        let _ = self.change(release);
    }

    fn turning(&self, to: impl Fn(Writers, u64) -> State) {
        let next = |state| match state {
            State::Turning { writers, until, .. } => Ok(to(writers, until)),
            // The volume was deleted meanwhile.
            State::Deleted => Err(()),
            State::Serving(_) | State::Closed(_) | State::Held { .. } => {
                unreachable!("a volume is turned that nobody has asked for it: {state:?}")
            }
        };
        let _ = self.change(next);
    }

    /// Notes the engine's shutdown; a turn in progress continues.
    pub(crate) fn close(&self) {
        let _ = self.change(|state| match state {
            State::Serving(writers) => Ok(State::Closed(writers)),
            State::Held { .. } => Ok(State::Closed(Writers::Clients)),
            _ => Err(()),
        });
    }

    /// Deletes it. Returns true if it was not deleted before.
    pub(crate) fn delete(&self) -> bool {
        let deleted: Result<State, ()> = self.change(|_| Ok(State::Deleted));
        deleted != Ok(State::Deleted)
    }
}

/// Origin of a volume's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ancestry {
    /// All blocks are its own.
    Own,
    /// The volume is a clone.
    Clone(Origin),
    /// The volume is a clone that is being split from its origin.
    Splitting(Origin),
}

impl Ancestry {
    pub(crate) fn new(origin: Option<Origin>) -> Ancestry {
        origin.map_or(Ancestry::Own, Ancestry::Clone)
    }

    pub(crate) fn origin(self) -> Option<Origin> {
        match self {
            Ancestry::Own => None,
            Ancestry::Clone(origin) | Ancestry::Splitting(origin) => Some(origin),
        }
    }

    /// Begins to split a clone.
    pub(crate) fn begin_split(&mut self) {
        if let Ancestry::Clone(origin) = *self {
            *self = Ancestry::Splitting(origin);
        }
    }

    /// Notes that splitting has failed: the volume is a clone again.
    pub(crate) fn stay(&mut self) {
        if let Ancestry::Splitting(origin) = *self {
            *self = Ancestry::Clone(origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_states() -> Vec<State> {
        let mut all = vec![State::Deleted, State::Held { until: 1 << 59 }];
        for writers in [Writers::Clients, Writers::Transfers] {
            all.extend([State::Serving(writers), State::Closed(writers)]);
            all.extend([false, true].map(|swapping| State::Turning {
                writers,
                until: 1 << 59,
                swapping,
            }));
        }
        all
    }

    #[test]
    fn states_are_told_apart() {
        let words: Vec<u64> = list_states().into_iter().map(State::pack).collect();
        for (state, word) in list_states().into_iter().zip(&words) {
            assert_eq!(State::unpack(*word), state);
            assert_eq!(words.iter().filter(|w| *w == word).count(), 1);
        }
        assert_eq!(State::Serving(Writers::Clients).pack(), 0);
    }

    #[test]
    fn nothing_leads_out_of_the_last_states() {
        for last in [State::Deleted, State::Closed(Writers::Clients)] {
            let at = || AtomicState(AtomicU64::new(last.pack()));
            let refused = match last {
                State::Deleted => FsError::Stale,
                _ => FsError::Delay,
            };
            assert_eq!(at().protect(), Err(refused));
            assert_eq!(at().begin_turn(3, None), Err(refused));
            assert_eq!(at().admits_clients(), Err(refused.into()));
            let standing = at();
            standing.release();
            standing.close();
            assert_eq!(standing.state(), last);
            assert_eq!(standing.delete(), last != State::Deleted);
        }
    }

    #[test]
    fn a_turn_keeps_everybody_out_until_it_is_over() {
        let standing = AtomicState::new(Writers::Clients);
        standing.begin_turn(7, Some(Writers::Transfers)).unwrap();
        let waits = Err(Stop::Wait(Backpressure::Epoch(7)));
        assert_eq!(standing.admits_admin(), waits);
        assert_eq!(standing.begin_turn(8, None), Err(FsError::Busy));
        standing.close();
        standing.begin_swap();
        assert_eq!(standing.admits_clients(), waits);
        standing.turned();
        assert_eq!(standing.admits_admin(), Ok(()));
        assert_eq!(standing.admits_clients(), Err(FsError::ReadOnly.into()));
        standing.begin_turn(9, None).unwrap();
        standing.release();
        standing.turned();
        assert_eq!(standing.state(), State::Serving(Writers::Clients));
    }

    #[test]
    fn a_held_volume_takes_snapshots_and_no_changes() {
        let standing = AtomicState::new(Writers::Clients);
        standing.hold(7).unwrap();
        standing.hold(8).unwrap();
        let waits = Err(Stop::Wait(Backpressure::Epoch(7)));
        assert_eq!(standing.admits_clients(), waits);
        assert_eq!(standing.admits_admin(), Ok(()));
        assert_eq!(standing.begin_turn(9, None), Err(FsError::Busy));
        assert_eq!(standing.protect(), Err(FsError::Busy));
        standing.unhold();
        standing.unhold();
        assert_eq!(standing.admits_clients(), Ok(()));
        standing.hold(8).unwrap();
        standing.close();
        standing.unhold();
        assert_eq!(standing.state(), State::Closed(Writers::Clients));
        let copy = AtomicState::new(Writers::Transfers);
        assert_eq!(copy.hold(1), Err(FsError::ReadOnly));
    }

    #[test]
    #[should_panic(expected = "nobody has asked")]
    fn a_volume_that_serves_is_not_swapped() {
        AtomicState::new(Writers::Clients).begin_swap();
    }
}
