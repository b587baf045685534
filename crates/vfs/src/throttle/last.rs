//! A thread's last request, and the [lease](super::lease) for those that follow it the same way.
//!
//! A way keeps its entry in the table; a new table has another number. A thread has one way and one
//! lease.

use super::charge::{Charge, Request};
use super::client::ClientKey;
use super::domain::State;
use super::entry::Entry;
use super::lease::{LIFE, Word};
use super::{LimitWait, Throttle};
use std::cell::RefCell;
use std::sync::Arc;
use weir_base::VolumeId;
use weir_qos::{Direction, Nanos};

/// Destination of requests that can be charged together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    /// The throttle's number, and that of its table.
    by: (u64, u64),
    volume: VolumeId,
    client: ClientKey,
    direction: Direction,
}

/// Destination of a thread's last request.
pub(super) struct Last {
    way: Way,
    pub(super) entry: Arc<Entry>,
    /// Time of that request.
    at: Nanos,
    /// Made with the first lease.
    word: Option<Arc<Word>>,
    leased: Option<ThreadLease>,
}

/// A lease as its thread knows it. It may have been ended meanwhile; then nothing is left.
struct ThreadLease {
    word: Arc<Word>,
    /// The charge of each request under the lease.
    charge: Charge,
    until: Nanos,
}

impl Last {
    /// Ends the lease, if there is one, in the state of its pool.
    pub(super) fn end(&mut self, state: &mut State, now: Nanos) {
        if let Some(leased) = self.leased.take() {
            state.end_lease(&leased.word, now);
        }
    }

    /// Takes a lease that begins with a request, if it can be.
    pub(super) fn begin(&mut self, state: &mut State, charge: Charge, now: Nanos) -> bool {
        let word = self.word.get_or_insert_default();
        let leased = state.lease(&charge, word, now);
        if leased {
            self.leased = Some(ThreadLease {
                word: Arc::clone(word),
                charge,
                until: now + LIFE,
            });
        }
        leased
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Throttle {
    /// Takes a charge for a request out of the thread's lease, if it can be.
    #[inline]
    pub(super) fn take(&self, request: &Request, now: Nanos, charge: &mut Option<Charge>) -> bool {
        LAST.with_borrow(|last| {
            let Some(Last { way, leased, .. }) = last else {
                return false;
            };
            let Some(leased) = leased else {
                return false;
            };
            let same = way.volume == request.volume
                && way.direction == request.direction
                && way.by == (self.number, self.version())
                && way.client == request.client;
            let passes = same && now <= leased.until && leased.word.take(request.bytes);
            if passes {
                charge.insert(leased.charge).bytes = request.bytes;
            }
            passes
        })
    }

    /// Lets a request through, or holds it, that no lease lets through. What it was charged, if
    /// anything limits it.
    #[inline(never)]
    pub(super) fn gate_alone(
        self: &Arc<Self>,
        request: &Request,
        now: Option<Nanos>,
    ) -> Result<Option<Charge>, Box<LimitWait>> {
        let way = Way {
            by: (self.number, self.version()),
            volume: request.volume,
            client: request.client,
            direction: request.direction,
        };
        // Taken out while no more is known of it: what it leads to may go with it.
        let known = LAST.take();
        let same = known.as_ref().is_some_and(|last| last.way == way);
        let entry = match same {
            true => None,
            false => match self.limited(request.volume) {
                Some(entry) => Some(entry),
                None => {
                    LAST.set(known);
                    return Ok(None);
                }
            },
        };
        let now = now.unwrap_or_else(|| self.current_time());
        let mut last = match (known, entry) {
            (Some(last), None) => last,
            (other, Some(entry)) => {
                if let Some(mut other) = other.filter(|other| other.leased.is_some()) {
                    let domain = Arc::clone(&other.entry.domain);
                    other.end(&mut domain.lock(), now);
                }
                Last {
                    way,
                    entry,
                    at: 0,
                    word: None,
                    leased: None,
                }
            }
            (None, None) => return Ok(None),
        };
        // Saturates: times.
        let likely = now.saturating_sub(last.at) <= LIFE;
        last.at = now;
        let gate = self.pass(&mut last, request, now, likely);
        LAST.set(Some(last));
        gate
    }
}
