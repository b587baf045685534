//! Which clients had claims when the server stopped, and the time in which only they may claim them again.
//!
//! Claims live in memory; a restart loses them. A client that had some learns of the restart (SM_NOTIFY, an unknown
//! session) and claims them again. Until it has had the time, nobody else may be granted what could conflict, or a lock
//! that a client believes to have would be given to another. So:
//!
//! - Before a client gets its first claim it is *recorded* durably; its reply waits for that ([`Records`]).
//! - At a start, the recorded clients are *expected*. Without any there is no grace period.
//! - During the period new claims are refused ([`Refused::Grace`]) and those of before granted, to expected clients only.
//!   Afterwards nothing can be claimed again ([`Refused::NoGrace`]): others may have had it meanwhile.
//! - The period ends after [`GRACE`], or as soon as every expected client has reported that it has finished
//!   ([`Grace::finished`]; NFSv4's RECLAIM_COMPLETE, RFC 8881 §18.51). A host of NLM cannot report that, so with one of them
//!   expected the period runs to its end.
//! - A client that lost claims to a conflict is removed from the records at that moment: after a restart its reclaims
//!   would overrule the client that has them now (RFC 8881 §8.4.3).
//!
//! - When it is over ([`Grace::settle`]), and not before, the engine may delete files that were open without a name
//!   ([`Records::end_grace`]).
//!
//! One period holds for all protocols, since their claims conflict with each other.

mod records;

pub use records::{RecordId, Records};

use crate::claims::{ServiceId, Ticket};
use crate::signal::Signal;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_base::VolumeId;
pub use weir_base::limits::protocol::{GRACE, LEASE};

const _: () = assert!(
    GRACE.as_secs() >= LEASE.as_secs(),
    "a client may use all of its lease"
);

/// On whose behalf claims of before the restart are made again, as far as a protocol can identify it: a client id's owner,
/// the address of NLM hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claimant {
    /// The service that knows it.
    pub service: ServiceId,
    /// What distinguishes it there.
    pub name: Arc<[u8]>,
}

/// Why a claim does not fit the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// New ones are not made yet.
    Grace,
    /// Old ones are not made again any more.
    NoGrace,
    /// The client had none, or has reported that it had no more.
    NotExpected,
}

/// In which volumes a client may have had something that binds others' reads, writes and changes of names: denials,
/// mandatory ranges, caches. A set by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound(u64);

impl Bound {
    /// In none: advisory locks bind nobody.
    pub const NOWHERE: Bound = Bound(0);
    /// In any volume: conflicts are possible everywhere.
    pub const ANYWHERE: Bound = Bound(u64::MAX);

    /// In these volumes, or in others with the same hash (the id modulo 64).
    pub fn within(volumes: impl IntoIterator<Item = VolumeId>) -> Bound {
        let bits = volumes.into_iter().map(|volume| 1 << (volume.0 % 64));
        Bound(bits.fold(0, |all, bit: u64| all | bit))
    }
}

struct Expected {
    bound: Bound,
    finished: bool,
}

struct State {
    /// Clients that had claims.
    expected: HashMap<Claimant, Expected>,
    /// Those that have not finished.
    unfinished: usize,
    /// Of them, those that may have had something binding, by the bit of the volume.
    binding: [usize; 64],
    /// Set when fewer volumes are bound than were when it was made.
    fewer: Arc<Signal<()>>,
}

impl Default for State {
    fn default() -> State {
        State {
            expected: HashMap::new(),
            unfinished: 0,
            binding: [0; 64],
            fewer: Arc::default(),
        }
    }
}

impl State {
    fn count(&mut self, bound: Bound, finished: bool) {
        let by = |count: &mut usize| match finished {
            true => *count -= 1,
            false => *count += 1,
        };
        by(&mut self.unfinished);
        for (bit, count) in self.binding.iter_mut().enumerate() {
            if bound.0 >> bit & 1 != 0 {
                by(count);
            }
        }
    }

    fn bound(&self) -> u64 {
        let bits = self.binding.iter().enumerate();
        bits.fold(0, |all, (bit, count)| all | u64::from(*count > 0) << bit)
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Grace {
    /// The period's end on the monotonic clock in nanoseconds; 0: none.
    until: AtomicU64,
    /// While the period runs, the volumes in which clients that have not finished may have had something binding ([`Bound`]).
    bound: AtomicU64,
    state: Mutex<State>,
}

impl Grace {
    /// Begins a period for these clients, beside those that are expected already, all of which may have had anything. To be
    /// called before anyone is served.
    pub fn begin(
        &self,
        expected: impl IntoIterator<Item = Claimant>,
        now: Duration,
        period: Duration,
    ) {
        let expected = expected.into_iter().map(|c| (c, Bound::ANYWHERE));
        self.begin_bound(expected, now, period);
    }

    /// As [`Grace::begin`], of clients of which it is known where they may have had something binding.
    pub fn begin_bound(
        &self,
        expected: impl IntoIterator<Item = (Claimant, Bound)>,
        now: Duration,
        period: Duration,
    ) {
        let mut state = self.state.lock();
        for (claimant, bound) in expected {
            let finished = false;
            let new = Expected { bound, finished };
            let old = state.expected.insert(claimant, new);
            if let Some(old) = old.filter(|old| !old.finished) {
                state.count(old.bound, true);
            }
            state.count(bound, false);
        }
        self.bind(&mut state);
        if state.unfinished > 0 {
            // Saturates: a period from a test may be for ever.
            let until = now.saturating_add(period).as_nanos();
            let until = u64::try_from(until).unwrap_or(u64::MAX);
            self.until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// Whether the period runs.
    pub fn runs(&self, now: Duration) -> bool {
        now.as_nanos() < u128::from(self.until.load(Ordering::Relaxed))
    }

    /// Whether the time counts: a period was begun, and nobody has found it over. One relaxed load.
    pub fn is_begun(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Whether reads, writes and changes of names in a volume could conflict with something that a client may claim again: one
    /// relaxed load. Ends with the first [`Grace::settle`] after the period, within a second.
    pub fn binds(&self, volume: VolumeId) -> bool {
        self.bound.load(Ordering::Relaxed) >> (volume.0 % 64) & 1 != 0
    }

    /// Resolves when that may be another, if it is so now.
    pub fn ticket(&self, volume: VolumeId) -> Option<Ticket> {
        let state = self.state.lock();
        self.binds(volume).then(|| Ticket(Arc::clone(&state.fewer)))
    }

    /// Has what `state` says be so.
    fn bind(&self, state: &mut State) {
        let (bound, before) = (state.bound(), self.bound.load(Ordering::Relaxed));
        self.bound.store(bound, Ordering::Relaxed);
        if before & !bound != 0 {
            std::mem::take(&mut state.fewer).set(());
        }
    }

    /// Whether a claim fits the time.
    ///
    /// # Errors
    /// Why it does not.
    pub fn admit(&self, claimant: &Claimant, reclaim: bool, now: Duration) -> Result<(), Refused> {
        match (self.runs(now), reclaim) {
            (true, false) => Err(Refused::Grace),
            (false, true) => Err(Refused::NoGrace),
            (false, false) => Ok(()),
            (true, true) => match self.state.lock().expected.get(claimant) {
                Some(expected) if !expected.finished => Ok(()),
                Some(_) | None => Err(Refused::NotExpected),
            },
        }
    }

    /// A client has claimed all that it had. If it was the last one, the period is over.
    pub fn finished(&self, claimant: &Claimant) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(expected) = state.expected.get_mut(claimant) else {
            // It is not one that the period waits for.
            return;
        };
        if !std::mem::replace(&mut expected.finished, true) {
            let bound = expected.bound;
            state.count(bound, true);
            self.bind(state);
        }
        if state.unfinished == 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets the expected clients once the period is over; returns whether it is.
    pub fn settle(&self, now: Duration) -> bool {
        if self.runs(now) {
            return false;
        }
        let mut state = self.state.lock();
        let fewer = std::mem::take(&mut state.fewer);
        *state = State {
            fewer,
            ..State::default()
        };
        self.bind(&mut state);
        self.until.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(n: u8) -> Claimant {
        Claimant {
            service: ServiceId(n % 2),
            name: Arc::from([n]),
        }
    }

    const START: Duration = Duration::from_secs(1000);

    #[test]
    fn without_records_there_is_no_period() {
        let g = Grace::default();
        g.begin([], START, GRACE);
        assert!(!g.runs(START));
        assert_eq!(g.admit(&claimant(1), false, START), Ok(()));
        assert_eq!(g.admit(&claimant(1), true, START), Err(Refused::NoGrace));
    }

    #[test]
    fn only_who_was_recorded_claims_and_the_period_ends_by_itself() {
        let g = Grace::default();
        g.begin([claimant(1)], START, GRACE);
        let last = START + GRACE - Duration::from_nanos(1);
        for now in [START, last] {
            assert_eq!(g.admit(&claimant(1), true, now), Ok(()));
            assert_eq!(g.admit(&claimant(1), false, now), Err(Refused::Grace));
            assert_eq!(g.admit(&claimant(2), true, now), Err(Refused::NotExpected));
            assert!(!g.settle(now));
        }
        let over = START + GRACE;
        assert_eq!(g.admit(&claimant(1), true, over), Err(Refused::NoGrace));
        assert_eq!(g.admit(&claimant(2), false, over), Ok(()));
        assert!(g.settle(over));
    }

    #[test]
    fn the_period_ends_when_all_services_clients_have_finished() {
        let g = Grace::default();
        g.begin([claimant(1), claimant(3)], START, GRACE);
        g.begin([claimant(2)], START, GRACE);
        g.finished(&claimant(9));
        g.finished(&claimant(1));
        g.finished(&claimant(1));
        g.finished(&claimant(2));
        assert!(g.runs(START));
        assert_eq!(
            g.admit(&claimant(1), true, START),
            Err(Refused::NotExpected)
        );
        assert_eq!(g.admit(&claimant(3), true, START), Ok(()));
        g.finished(&claimant(3));
        assert!(!g.runs(START));
        assert_eq!(g.admit(&claimant(1), false, START), Ok(()));
        // A service that begins anew afterwards (a simulated crash) has a period of its own.
        assert!(g.settle(START));
        g.begin([claimant(1)], START, GRACE);
        assert!(g.runs(START) && g.admit(&claimant(1), true, START).is_ok());
    }

    #[test]
    fn a_volume_is_bound_until_those_have_finished_who_may_have_had_something_there() {
        let g = Grace::default();
        let (one, two) = (VolumeId(1), VolumeId(2));
        let bound = |g: &Grace| [one, two].map(|volume| g.binds(volume));
        g.begin_bound([(claimant(1), Bound::NOWHERE)], START, GRACE);
        assert_eq!(bound(&g), [false; 2]);
        let three = [
            (claimant(2), Bound::within([one])),
            (claimant(3), Bound::within([one, two])),
            (claimant(4), Bound::within([])),
        ];
        g.begin_bound(three, START, GRACE);
        assert_eq!(bound(&g), [true; 2]);
        g.finished(&claimant(3));
        g.finished(&claimant(3));
        assert_eq!(bound(&g), [true, false]);
        g.finished(&claimant(2));
        assert!(bound(&g) == [false; 2] && g.runs(START), "for the locks");
        // A client of which nothing is known, and which is expected twice.
        g.begin([claimant(5)], START, GRACE);
        g.begin([claimant(5)], START, GRACE);
        assert!(!g.settle(START) && bound(&g) == [true; 2]);
        g.finished(&claimant(5));
        assert_eq!(bound(&g), [false; 2]);
        g.begin([claimant(5)], START, GRACE);
        assert!(g.settle(START + GRACE) && bound(&g) == [false; 2]);
    }
}
