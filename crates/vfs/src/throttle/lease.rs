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
//! A thread has one lease ([`last`](super::last)). A reader of sums first counts what came of
//! leases ([`State::count_leases`]).

use super::charge::Charge;
use super::domain::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_base::less;
use weir_qos::{Direction, Nanos, NodeId};

/// Requests of a lease: more than a busy event loop lets through in its life, or where there is no
/// room for them fewer, down to as many as many clients have under way on a connection. To end a
/// lease and begin the next means moving the pool's lines of memory from the last processor that
/// did so. That costs as much as some tens of requests from a lease.
const LENGTHS: [u64; 3] = [256, 64, 16];
/// Life of a lease, in nanoseconds: a twentieth of the burst of a limit, and the time in which a
/// busy event loop lets some hundred requests through.
pub(super) const LIFE: Nanos = 500_000;

/// Bits of a lease's word for the bytes that are left; its upper bits are the requests.
const BYTES_BITS: u32 = 48;

/// The word of a lease, which its thread counts down and any thread may set to zero.
#[derive(Default)]
pub(super) struct Word(AtomicU64);

impl Word {
    /// Takes a request out, if there is one.
    pub(super) fn take(&self, bytes: u64) -> bool {
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
    pub(super) fn lease(&mut self, charge: &Charge, word: &Arc<Word>, now: Nanos) -> bool {
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

    fn settle_lease(&mut self, mut lease: Lease, now: Nanos) {
        let left = split(lease.word.0.swap(0, Ordering::Relaxed));
        let came = lease.came(left);
        let (node, direction) = (lease.node, lease.direction);
        let by = now.min(lease.until);
        self.shaper
            .settle_reservation(node, direction, came, left, by);
    }

    /// Ends a lease, unless it has ended.
    pub(super) fn end_lease(&mut self, word: &Arc<Word>, now: Nanos) {
        let found = |lease: &Lease| Arc::ptr_eq(&lease.word, word);
        if let Some(at) = self.leases.iter().position(found) {
            let lease = self.leases.swap_remove(at);
            self.settle_lease(lease, now);
        }
    }

    /// Ends all leases; whether there were any. To be done before anything comes to wait, and
    /// before limits change.
    pub(super) fn end_leases(&mut self, now: Nanos) -> bool {
        let any = !self.leases.is_empty();
        while let Some(lease) = self.leases.pop() {
            self.settle_lease(lease, now);
        }
        any
    }

    /// Ends the leases whose time is over. To be done before anything is charged.
    pub(super) fn end_expired(&mut self, now: Nanos) {
        let over = |lease: &Lease| lease.until < now;
        while let Some(at) = self.leases.iter().position(over) {
            let lease = self.leases.swap_remove(at);
            self.settle_lease(lease, now);
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
