//! Requests of one kind are charged many at a time while no limit binds.
//!
//! **Problem.** A request that nothing holds back still takes its pool's lock and moves the meters
//! of its path, which costs some tenths of a microsecond and makes event loops meet. It costs an
//! eighth of the operations a second that a machine serves from memory. Shares of a limit for each
//! event loop would spare that and strand what they do not use.
//!
//! **Algorithm.** With the second request in succession that goes the same way, a thread takes a
//! *lease* of as many requests as [`LENGTHS`] says. Those that follow are let through by counting
//! down, from batch to batch, each by one atomic operation on a word that other threads rarely
//! access. It is done only while nothing waits in the pool and all limits of the path would still
//! not bind if all of it came at once ([`weir_qos::Shaper::reserve`]). What came of it is charged
//! as one.
//!
//! A lease holds nobody back and is never stranded. A thread that finds a limit that binds first
//! takes back what is left of all leases of the pool ([`State::end_leases`]), by setting their
//! words to zero. A change of a limit does so too. A limit that binds is held as exactly as ever.
//!
//! Nor does it let more through in any stretch of time. Until a lease is accounted for, all that is
//! left of it counts for everybody else as though it came in that moment. A lease ends after
//! [`LIFE`], and what came of it is charged as though it came at its end, before anything else is
//! charged ([`State::end_expired`]).
//!
//! A way keeps its entry in the table; a new table has another number.
//! A thread has one way and one lease. A reader of sums first counts what came of leases
//! ([`State::count_leases`]).

use super::domain::State;
use super::{Charge, Entry, Request, Throttle, Throttled};
use crate::session::ClientKey;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_base::{VolumeId, less};
use weir_qos::{Direction, Nanos, NodeId};

/// Requests of a lease: more than a busy event loop lets through in its life, or where there is no
/// room for them fewer, down to as many as many clients have under way on a connection. To end a
/// lease and begin the next means moving the pool's lines of memory from the last processor that
/// did so. That costs as much as some tens of requests from a lease.
const LENGTHS: [u64; 3] = [256, 64, 16];
/// Life of a lease, in nanoseconds: a twentieth of the burst of a limit, and the time in which a
/// busy event loop lets some hundred requests through.
const LIFE: Nanos = 500_000;

/// Bits of a lease's word for the bytes that are left; its upper bits are the requests.
const BYTES_BITS: u32 = 48;

/// The word of a lease, which its thread counts down and any thread may set to zero.
#[derive(Default)]
struct Word(AtomicU64);

impl Word {
    /// Takes a request out, if there is one.
    fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| {
            let (requests, rest) = split(left);
            (requests > 0 && rest >= bytes).then(|| left - (1 << BYTES_BITS) - bytes)
        };
        // The word is all there is; what it stands for is seen with the pool locked.
        let order = Ordering::Relaxed;
        self.0.fetch_update(order, order, less).is_ok()
    }
}

fn split(left: u64) -> (u64, u64) {
    (left >> BYTES_BITS, left & ((1 << BYTES_BITS) - 1))
}

/// A lease as its pool knows it.
pub(super) struct Lease {
    word: Arc<Word>,
    node: NodeId,
    direction: Direction,
    /// Requests and bytes that are not accounted for yet.
    open: (u64, u64),
    until: Nanos,
}

impl Lease {
    /// Returns the requests and bytes that have come since it was counted last, if `left` is left.
    fn came(&mut self, left: (u64, u64)) -> (u64, u64) {
        let came = (
            less(self.open.0, left.0, "requests of a lease"),
            less(self.open.1, left.1, "bytes of a lease"),
        );
        self.open = left;
        came
    }
}

impl State {
    /// Lets a request through and others that are likely to follow, if it can be. `word` has no
    /// other lease.
    fn lease(&mut self, charge: &Charge, word: &Arc<Word>, now: Nanos) -> bool {
        let (node, direction) = (charge.node, charge.direction);
        let all = LENGTHS.into_iter().find_map(|requests| {
            let bytes = charge.bytes.checked_mul(requests)?;
            let fits = bytes < 1 << BYTES_BITS
                && self.shaper.reserve(node, direction, bytes, requests, now);
            fits.then_some((requests, bytes))
        });
        let Some((requests, bytes)) = all else {
            return false;
        };
        let left = (requests - 1) << BYTES_BITS | (bytes - charge.bytes);
        word.0.store(left, Ordering::Relaxed);
        self.leases.push(Lease {
            word: Arc::clone(word),
            node,
            direction,
            open: (requests, bytes),
            until: now + LIFE,
        });
        true
    }

    fn settle(&mut self, mut lease: Lease, now: Nanos) {
        let left = split(lease.word.0.swap(0, Ordering::Relaxed));
        let came = lease.came(left);
        let (node, direction) = (lease.node, lease.direction);
        let by = now.min(lease.until);
        self.shaper
            .settle_reservation(node, direction, came, left, by);
    }

    /// Ends a lease, unless it has ended.
    fn end_lease(&mut self, word: &Arc<Word>, now: Nanos) {
        let found = |lease: &Lease| Arc::ptr_eq(&lease.word, word);
        if let Some(at) = self.leases.iter().position(found) {
            let lease = self.leases.swap_remove(at);
            self.settle(lease, now);
        }
    }

    /// Ends all leases; whether there were any. To be done before anything comes to wait, and
    /// before limits change.
    pub(super) fn end_leases(&mut self, now: Nanos) -> bool {
        let any = !self.leases.is_empty();
        while let Some(lease) = self.leases.pop() {
            self.settle(lease, now);
        }
        any
    }

    /// Ends the leases whose time is over. To be done before anything is charged.
    pub(super) fn end_expired(&mut self, now: Nanos) {
        let over = |lease: &Lease| lease.until < now;
        while let Some(at) = self.leases.iter().position(over) {
            let lease = self.leases.swap_remove(at);
            self.settle(lease, now);
        }
    }

    /// Counts what has come of leases. To be done before sums are read or changed.
    pub(super) fn count_leases(&mut self, now: Nanos) {
        for lease in &mut self.leases {
            let left = split(lease.word.0.load(Ordering::Relaxed));
            let came = lease.came(left);
            let by = now.min(lease.until);
            self.shaper
                .settle_reservation(lease.node, lease.direction, came, (0, 0), by);
        }
    }
}

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
    leased: Option<Leased>,
}

/// A lease as its thread knows it. It may have been ended meanwhile; then nothing is left.
struct Leased {
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
            self.leased = Some(Leased {
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
    ) -> Result<Option<Charge>, Box<Throttled>> {
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
        let now = now.unwrap_or_else(|| self.now());
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
