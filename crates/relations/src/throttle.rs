//! Throttles of transfers: a global limit on their sum, and a limit for each.
//!
//! One [`Throttle`] is one direction of one node. It is a tree of the shaper: the root has the
//! global limit, and each transfer is a leaf with its relationship's limit. This gives what
//! SnapMirror's throttles guarantee: the sum stays below the global limit, each transfer stays
//! below its own, and transfers that the global limit binds share it evenly. A change of the global
//! limit applies to running transfers; a relationship's limit is fixed when its transfer begins.
//!
//! A transfer begins without credit, and so does the sum when the first transfer begins. Its
//! average rate is judged against the limit, and credit from before would exceed it. Credit
//! accumulates only while a transfer asks late, for two seconds at most. Over its whole length a
//! transfer therefore never exceeds its limit, and short delays of the machine are made up for. A
//! transfer that has to wait has used up its credit: the limit binds, and nothing else.
//!
//! Sans-I/O: a transfer asks for bytes before it moves them ([`Throttle::request_bytes`]). It then
//! proceeds, or waits until [`Throttle::release`] names it.

pub use weir_base::limits::replica::THROTTLE_PIECE as PIECE;
use weir_qos::{Direction, Limits, Nanos, NodeId, Rate, Shaper, SubmitOutcome};

/// Longest delay of a request that a transfer can make up for, and so its largest burst. On a
/// machine of two cores that also compiles, runnable threads wait for some hundred milliseconds:
/// with 50 ms, a limit of 8,192 KB/s came out as 4.6 MB/s.
const BURST: Nanos = 2_000_000_000;

/// A transfer's leaf in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferLeaf(NodeId);

/// Result of a request for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleOutcome {
    /// The bytes may be moved now.
    Go,
    /// Wait until [`Throttle::release`] names this place.
    Wait,
    /// The transfer has left.
    Gone,
}

/// The throttle of one direction of one node.
pub struct Throttle {
    shaper: Shaper<()>,
    /// Transfers that have not asked for bytes yet.
    fresh: Vec<NodeId>,
    /// Transfers that have asked for bytes.
    active: Vec<NodeId>,
}

fn limits(kbs: Option<u64>) -> Limits {
    Limits {
        total: Rate {
            // Saturates: users choose the number.
            bytes: kbs.map(|kbs| kbs.saturating_mul(1024)),
            ops: None,
        },
        burst: BURST,
        ..Limits::default()
    }
}

impl Throttle {
    /// Creates a throttle with a global limit in KB/s; `None` is no limit.
    pub fn new(global: Option<u64>) -> Throttle {
        Throttle {
            shaper: Shaper::new(limits(global)),
            fresh: Vec::new(),
            active: Vec::new(),
        }
    }

    /// Changes the global limit, for running transfers too.
    pub fn set_global(&mut self, kbs: Option<u64>, now: Nanos) {
        let root = self.shaper.root();
        self.shaper.configure(root, limits(kbs), now);
        // A debt in time shrinks when the limit grows; that must not become credit.
        self.shaper.drain_credit(root, now);
    }

    /// Adds a transfer with its own limit in KB/s. `None` as in [`Shaper::add`].
    pub fn join(&mut self, kbs: Option<u64>) -> Option<TransferLeaf> {
        let place = self.shaper.add(self.shaper.root(), limits(kbs))?;
        self.fresh.push(place);
        Some(TransferLeaf(place))
    }

    /// Removes a transfer that has ended.
    pub fn leave(&mut self, place: TransferLeaf, now: Nanos) {
        self.fresh.retain(|fresh| *fresh != place.0);
        self.active.retain(|active| *active != place.0);
        self.shaper.remove(place.0, now);
    }

    /// Asks to move `bytes`, [`PIECE`] at most. A place has at most one request at a time.
    pub fn request_bytes(
        &mut self,
        place: TransferLeaf,
        bytes: u64,
        now: Nanos,
    ) -> ThrottleOutcome {
        if let Some(at) = self.fresh.iter().position(|fresh| *fresh == place.0) {
            self.fresh.swap_remove(at);
            self.shaper.drain_credit(place.0, now);
            if self.active.is_empty() {
                self.shaper.drain_credit(self.shaper.root(), now);
            }
            self.active.push(place.0);
        }
        match self
            .shaper
            .submit(place.0, 0, Direction::Write, bytes, now, ())
        {
            SubmitOutcome::Start(()) => ThrottleOutcome::Go,
            SubmitOutcome::Queued => ThrottleOutcome::Wait,
            SubmitOutcome::Refused(()) => ThrottleOutcome::Gone,
        }
    }

    /// Returns the next transfer that may proceed. Call it until it returns `None`.
    pub fn release(&mut self, now: Nanos) -> Option<TransferLeaf> {
        self.shaper
            .release(now)
            .map(|(node, ())| TransferLeaf(node))
    }

    /// Returns the time at which to call [`Throttle::release`] next; `None` if no transfer waits.
    pub fn next_release(&self) -> Option<Nanos> {
        self.shaper.next_release()
    }

    /// Returns true if the transfer waits for the global limit, false if for its own, and `None` if
    /// it does not wait.
    pub fn bound_by_global(&self, place: TransferLeaf) -> Option<bool> {
        let usage = self.shaper.usage(place.0)?;
        let holds = || self.shaper.waits_for(place.0, Direction::Write);
        (usage.waiting() > 0).then(|| holds().is_none_or(|(level, _)| level == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SECOND: Nanos = 1_000_000_000;

    /// Runs all places at their full rate until `until`, and returns the bytes that each moved.
    fn run(
        throttle: &mut Throttle,
        places: &[TransferLeaf],
        from: Nanos,
        until: Nanos,
    ) -> BTreeMap<TransferLeaf, u64> {
        let mut moved = BTreeMap::new();
        let mut waiting: Vec<TransferLeaf> = Vec::new();
        let mut now = from;
        for place in places {
            waiting.push(*place);
        }
        loop {
            for place in std::mem::take(&mut waiting) {
                // Counts the requests admitted, however many are admitted at once.
                while throttle.request_bytes(place, PIECE, now) == ThrottleOutcome::Go {
                    *moved.entry(place).or_insert(0) += PIECE;
                }
            }
            let Some(next) = throttle.next_release().filter(|next| *next < until) else {
                break;
            };
            now = now.max(next);
            while let Some(place) = throttle.release(now) {
                *moved.entry(place).or_insert(0) += PIECE;
                waiting.push(place);
            }
        }
        moved
    }

    fn near(bytes: u64, kbs: u64, seconds: u64) {
        let expected = kbs * 1024 * seconds;
        let off = (bytes as f64 / expected as f64 - 1.0).abs();
        assert!(off < 0.01, "{bytes} instead of {expected}");
    }

    #[test]
    fn a_transfer_keeps_to_its_own_limit() {
        let mut throttle = Throttle::new(None);
        let a = throttle.join(Some(8192)).unwrap();
        near(run(&mut throttle, &[a], 0, 60 * SECOND)[&a], 8192, 60);
    }

    #[test]
    fn a_short_transfer_is_as_exact_as_a_long_one() {
        // An idle period of the node or the transfer before makes no difference.
        for (global, own) in [(None, Some(8192)), (Some(8192), None)] {
            let mut throttle = Throttle::new(global);
            for begin in [0, 7 * SECOND] {
                let a = throttle.join(own).unwrap();
                near(
                    run(&mut throttle, &[a], begin + SECOND, begin + 2 * SECOND)[&a],
                    8192,
                    1,
                );
                throttle.leave(a, begin + 3 * SECOND);
            }
        }
    }

    /// As `run`, but the transfer gets no processor during the last `stall` of each period, so that
    /// its requests are late.
    fn run_with_stalls(
        throttle: &mut Throttle,
        place: TransferLeaf,
        until: Nanos,
        stall: Nanos,
    ) -> (u64, usize) {
        const PERIOD: Nanos = 1_700_000_000;
        let (mut moved, mut waits, mut now) = (0, 0, 0);
        while now < until {
            if now % PERIOD >= PERIOD - stall {
                now += PERIOD - now % PERIOD;
            }
            match throttle.request_bytes(place, PIECE, now) {
                // Moving the bytes takes a moment.
                ThrottleOutcome::Go => now += 1_000_000,
                _ => {
                    waits += 1;
                    now = now.max(throttle.next_release().unwrap());
                    if now % PERIOD >= PERIOD - stall {
                        now += PERIOD - now % PERIOD;
                    }
                    assert_eq!(throttle.release(now), Some(place));
                }
            }
            moved += PIECE;
            let most = 8192 * 1024 * (now + SECOND / 50) / SECOND + 2 * PIECE;
            assert!(
                moved <= most,
                "{moved} by {now}: never more than the limit since it began"
            );
        }
        (moved, waits)
    }

    #[test]
    fn what_contention_delays_is_made_good() {
        // No processor for 0.8 s of each 1.7 s, as beside builds.
        let mut throttle = Throttle::new(None);
        let a = throttle.join(Some(8192)).unwrap();
        let (moved, waits) = run_with_stalls(&mut throttle, a, 60 * SECOND, 800_000_000);
        near(moved, 8192, 60);
        assert!(waits > 0, "it is the limit that binds");
    }

    #[test]
    fn a_limit_that_is_not_reached_keeps_nobody_waiting() {
        // Moving a piece takes 12 ms, and the limit allows one each 7.8 ms.
        let mut throttle = Throttle::new(None);
        let a = throttle.join(Some(8192)).unwrap();
        for at in 0..1000 {
            assert_eq!(
                throttle.request_bytes(a, PIECE, at * 12_000_000),
                ThrottleOutcome::Go,
                "{at}"
            );
        }
    }

    #[test]
    fn transfers_that_follow_one_another_inherit_no_credit() {
        let mut throttle = Throttle::new(Some(8192));
        for begin in [0, 1, 2] {
            let a = throttle.join(None).unwrap();
            let from = begin * 2 * SECOND;
            near(run(&mut throttle, &[a], from, from + SECOND)[&a], 8192, 1);
            throttle.leave(a, from + SECOND);
        }
    }

    #[test]
    fn the_least_throttle_is_exact_over_hours() {
        let mut throttle = Throttle::new(None);
        let a = throttle.join(Some(4)).unwrap();
        near(
            run(&mut throttle, &[a], 0, 4 * 3600 * SECOND)[&a],
            4,
            4 * 3600,
        );
    }

    #[test]
    fn the_global_limit_is_on_the_sum_and_shared_evenly() {
        let mut throttle = Throttle::new(Some(4096));
        let places = [
            throttle.join(None).unwrap(),
            throttle.join(Some(100_000)).unwrap(),
        ];
        let moved = run(&mut throttle, &places, 0, 120 * SECOND);
        for place in places {
            near(moved[&place], 2048, 120);
        }
    }

    #[test]
    fn a_slow_relationship_leaves_the_rest_to_the_others() {
        let mut throttle = Throttle::new(Some(4096));
        let (slow, fast) = (
            throttle.join(Some(1024)).unwrap(),
            throttle.join(None).unwrap(),
        );
        let moved = run(&mut throttle, &[slow, fast], 0, 120 * SECOND);
        near(moved[&slow], 1024, 120);
        near(moved[&fast], 3072, 120);
    }

    #[test]
    fn a_global_limit_changes_at_once() {
        let mut throttle = Throttle::new(Some(4096));
        let a = throttle.join(None).unwrap();
        near(run(&mut throttle, &[a], 0, 30 * SECOND)[&a], 4096, 30);
        throttle.set_global(Some(16_384), 30 * SECOND);
        while throttle.release(30 * SECOND).is_some() {}
        near(
            run(&mut throttle, &[a], 30 * SECOND, 60 * SECOND)[&a],
            16_384,
            30,
        );
        throttle.set_global(None, 60 * SECOND);
        while throttle.release(60 * SECOND).is_some() {}
        assert_eq!(
            throttle.request_bytes(a, 1 << 20, 60 * SECOND),
            ThrottleOutcome::Go
        );
        assert_eq!(
            throttle.request_bytes(a, 1 << 20, 60 * SECOND),
            ThrottleOutcome::Go
        );
    }

    #[test]
    fn whoever_leaves_holds_nobody_up() {
        let mut throttle = Throttle::new(Some(4));
        let (a, b) = (throttle.join(None).unwrap(), throttle.join(None).unwrap());
        assert_eq!(throttle.request_bytes(a, PIECE, 0), ThrottleOutcome::Go);
        assert_eq!(throttle.request_bytes(a, PIECE, 0), ThrottleOutcome::Wait);
        assert_eq!(throttle.bound_by_global(a), Some(true));
        throttle.leave(a, 0);
        assert_eq!(throttle.next_release(), None);
        assert_eq!(throttle.request_bytes(a, PIECE, 0), ThrottleOutcome::Gone);
        assert_eq!(throttle.request_bytes(b, PIECE, 0), ThrottleOutcome::Wait);
        assert_eq!(throttle.release(17 * SECOND), Some(TransferLeaf(b.0)));
    }
}
