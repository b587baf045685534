//! Requests that come in one read of a socket are charged together while no limit binds.
//!
//! **Problem.** A request that nothing holds back still takes its pool's lock and moves the meters of its path, which costs
//! some tenths of a microsecond and makes event loops meet: an eighth of the operations a second that a machine serves from
//! memory. Shares of a limit for each event loop would spare that and strand what they do not use.
//!
//! **Algorithm.** What one read of a socket brought is run to its end at once ([`super::Throttle::together`]), and is mostly of
//! one kind. When two requests in succession go the same way, [`AHEAD`] more are charged with the second, under the
//! same lock; those that come are let through by counting down, and at the end of the batch, some tens of microseconds later,
//! what did not come is given back. So nothing is stranded. It is done only while nothing waits in the pool and all limits
//! of the path would still not bind with all of it charged ([`weir_qos::Shaper::charge_ahead`]): what is charged ahead
//! holds nobody back, and a limit that binds is held as exactly as ever.
//!
//! A batch belongs to the thread that runs it.

use super::domain::Domain;
use super::{Charge, Request, Throttle};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::VolumeId;
use weir_qos::{Direction, Nanos};

/// Requests that are charged ahead: with the two before them, as many as many clients have under way on a connection.
const AHEAD: u64 = 14;

/// Where requests go that can be charged together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    /// Of the table by which they go there.
    version: u64,
    volume: VolumeId,
    client: IpAddr,
    direction: Direction,
}

/// What is charged and has not come yet, and what has.
struct Ahead {
    domain: Arc<Domain>,
    /// Of any of them.
    charge: Charge,
    left: (u64, u64),
    came: (u64, u64),
}

#[derive(Default)]
struct Batch {
    /// Whose it is; 0 while there is none.
    of: usize,
    /// Where the last request went.
    last: Option<Way>,
    ahead: Option<Ahead>,
}

thread_local! {
    static BATCH: RefCell<Batch> = RefCell::default();
}

/// Ends the batch, however it ends.
struct Open<'t>(&'t Throttle);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let ahead = BATCH.take().ahead;
        self.0.settle(ahead);
    }
}

fn number_of(throttle: &Throttle) -> usize {
    std::ptr::from_ref(throttle).addr()
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
                batch.of = number_of(self);
            }
            fresh
        });
        let _open = opened.then(|| Open(self));
        calls()
    }

    fn way(&self, request: &Request) -> Way {
        Way {
            version: self.version(),
            volume: request.volume,
            client: request.client,
            direction: request.direction,
        }
    }

    /// A charge for the request out of what was charged ahead, if it can be.
    pub(super) fn take_ahead(&self, request: &Request) -> Option<Charge> {
        BATCH.with_borrow_mut(|batch| {
            let ahead = batch.ahead.as_mut()?;
            let (ops, bytes) = &mut ahead.left;
            let rest = bytes.checked_sub(request.bytes)?;
            if *ops == 0 || batch.last != Some(self.way(request)) || batch.of != number_of(self) {
                return None;
            }
            (*ops, *bytes) = (*ops - 1, rest);
            ahead.came = (ahead.came.0 + 1, ahead.came.1 + request.bytes);
            Some(Charge {
                bytes: request.bytes,
                ..ahead.charge
            })
        })
    }

    /// Takes note of a request that comes to the gate; whether it is worth charging more with it.
    pub(super) fn repeats(&self, request: &Request) -> bool {
        let way = self.way(request);
        BATCH.with_borrow_mut(|batch| {
            batch.of == number_of(self) && batch.last.replace(way) == Some(way)
        })
    }

    /// Charges ahead of a request that was let through and charged just so.
    pub(super) fn charge_ahead(
        &self,
        domain: &Arc<Domain>,
        state: &mut super::domain::State,
        charge: Charge,
        now: Nanos,
    ) {
        let (ops, bytes) = (AHEAD, charge.bytes.saturating_mul(AHEAD));
        if !state
            .shaper
            .charge_ahead(charge.node, charge.direction, bytes, ops, now)
        {
            return;
        }
        let ahead = Ahead {
            domain: Arc::clone(domain),
            charge,
            left: (ops, bytes),
            came: (0, 0),
        };
        BATCH.with_borrow_mut(|batch| batch.ahead = Some(ahead));
    }

    /// Accounts for what was charged ahead on this thread, if anything was.
    pub(super) fn settle_ahead(&self) {
        let ahead = BATCH.with_borrow_mut(|batch| batch.ahead.take());
        self.settle(ahead);
    }

    fn settle(&self, ahead: Option<Ahead>) {
        let Some(Ahead {
            domain,
            charge,
            left,
            came,
        }) = ahead
        else {
            return;
        };
        let now = self.now();
        let mut state = domain.lock();
        state
            .shaper
            .settle_ahead(charge.node, charge.direction, came, left, now);
        self.release(&domain, state, now, 0);
    }
}
