//! Requests that come in one read of a socket are charged together while no limit binds.
//!
//! **Problem.** A request that nothing holds back still takes its pool's lock and moves the meters of its path, which costs
//! some tenths of a microsecond and makes event loops meet: an eighth of the operations a second that a machine serves from
//! memory. Shares of a limit for each event loop would spare that and strand what they do not use.
//!
//! **Algorithm.** What one read of a socket brought is run to its end at once ([`super::Throttle::together`]), and is mostly of
//! one kind, that of the batch before. With the second request in succession that goes the same way, or the first if the
//! batch before had several, [`TOGETHER`] are charged as one; those that follow are let through by counting
//! down, and at the end of the batch, some tens of microseconds later, what did not come is given back. So nothing is
//! stranded, and a batch meets the lock twice. It is done only while nothing waits in the pool and all limits
//! of the path would still not bind with all of it charged ([`weir_qos::Shaper::charge_ahead`]): what is charged ahead
//! holds nobody back, and a limit that binds is held as exactly as ever.
//!
//! What is known of a way, its entry in the table, is kept from batch to batch; a new table has another number.
//! A batch belongs to the thread that runs it.

use super::{Charge, Entry, Request, Throttle};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::VolumeId;
use weir_qos::{Direction, Nanos};

/// Requests that are charged at once: as many as many clients have under way on a connection.
const TOGETHER: u64 = 16;

/// Where requests go that can be charged together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    /// The throttle's number, and that of its table.
    by: (u64, u64),
    volume: VolumeId,
    client: IpAddr,
    direction: Direction,
}

/// A way, and the entry that it led to.
pub(super) struct Place {
    way: Way,
    pub(super) entry: Arc<Entry>,
}

/// What is charged and has not come yet, and what has.
struct Ahead {
    /// Of any of them.
    charge: Charge,
    left: (u64, u64),
    came: (u64, u64),
}

struct Batch {
    /// The number of the throttle whose it is; 0 while there is none.
    of: u64,
    /// Where the last request went. Outlasts the batch: the next one mostly goes the same way.
    last: Option<Place>,
    /// Requests that went there in succession: in this batch, and to the end of the one before.
    run: (u64, u64),
    /// Charged for `last`.
    ahead: Option<Ahead>,
}

thread_local! {
    static BATCH: RefCell<Batch> = const {
        RefCell::new(Batch { of: 0, last: None, run: (0, 0), ahead: None })
    };
}

/// Ends the batch, however it ends.
struct Open<'t>(&'t Throttle);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.settle_ahead();
        BATCH.with_borrow_mut(|batch| {
            batch.of = 0;
            batch.run = (0, batch.run.0);
        });
    }
}

impl Throttle {
    /// Runs `calls`, which lets through what one read of a socket brought.
    pub fn together<T>(&self, calls: impl FnOnce() -> T) -> T {
        if !self.is_active() {
            return calls();
        }
        let opened = BATCH.with_borrow_mut(|batch| {
            let fresh = batch.of == 0;
            if fresh {
                batch.of = self.number;
            }
            fresh
        });
        let _open = opened.then(|| Open(self));
        calls()
    }

    fn way(&self, request: &Request) -> Way {
        Way {
            by: (self.number, self.version()),
            volume: request.volume,
            client: request.client,
            direction: request.direction,
        }
    }

    /// A charge for the request out of what was charged ahead, if it can be.
    pub(super) fn take_ahead(&self, request: &Request) -> Option<Charge> {
        BATCH.with_borrow_mut(|batch| {
            let (Some(ahead), Some(last)) = (&mut batch.ahead, &batch.last) else {
                return None;
            };
            let rest = ahead.left.1.checked_sub(request.bytes)?;
            if ahead.left.0 == 0 || last.way != self.way(request) {
                return None;
            }
            ahead.left = (ahead.left.0 - 1, rest);
            ahead.came = (ahead.came.0 + 1, ahead.came.1 + request.bytes);
            Some(Charge {
                bytes: request.bytes,
                ..ahead.charge
            })
        })
    }

    /// Where a request that comes to the gate goes, if anything is limited there, and whether it is worth charging more
    /// with it. To be [put back](Throttle::put_back).
    pub(super) fn place(&self, request: &Request) -> Option<(Place, bool)> {
        let way = self.way(request);
        // Dropped when nothing is borrowed any more.
        let (last, likely) = BATCH.with_borrow_mut(|batch| {
            if batch.of != self.number {
                return (None, false);
            }
            let last = batch.last.take();
            if last.as_ref().is_none_or(|last| last.way != way) {
                batch.run = (0, 0);
            }
            let likely = batch.run.0 > 0 || batch.run.1 > 1;
            batch.run.0 += 1;
            (last, likely)
        });
        let place = match last.filter(|last| last.way == way) {
            Some(known) => known,
            None => Place {
                way,
                entry: self.limited(request.volume)?,
            },
        };
        Some((place, likely))
    }

    /// Takes note of where a request went.
    pub(super) fn put_back(&self, place: Place) {
        BATCH.with_borrow_mut(|batch| {
            if batch.of == self.number {
                batch.last = Some(place);
            }
        });
    }

    /// Charges a request and others that are likely to follow, if it can be.
    pub(super) fn charge_ahead(
        &self,
        state: &mut super::domain::State,
        charge: Charge,
        now: Nanos,
    ) -> bool {
        let all = charge.bytes.saturating_mul(TOGETHER);
        let charged = state
            .shaper
            .charge_ahead(charge.node, charge.direction, all, TOGETHER, now);
        if charged {
            let ahead = Ahead {
                charge,
                left: (TOGETHER - 1, all - charge.bytes),
                came: (1, charge.bytes),
            };
            BATCH.with_borrow_mut(|batch| batch.ahead = Some(ahead));
        }
        charged
    }

    /// Accounts for what was charged ahead on this thread, if anything was.
    pub(super) fn settle_ahead(&self) {
        let taken = BATCH.with_borrow_mut(|batch| {
            let ahead = batch.ahead.take()?;
            batch.run.0 += ahead.came.0.saturating_sub(1);
            Some((ahead, batch.last.take()?))
        });
        let Some((ahead, place)) = taken else {
            return;
        };
        let Ahead { charge, left, came } = ahead;
        let domain = &place.entry.domain;
        let mut state = domain.lock();
        let shaper = &mut state.shaper;
        let (node, direction) = (charge.node, charge.direction);
        match shaper.settle_ahead(node, direction, came, left, || self.now()) {
            Some(now) => self.release(domain, state, now),
            None => drop(state),
        }
        BATCH.with_borrow_mut(|batch| batch.last = Some(place));
    }
}
