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
//!   would overrule the one who has them now (RFC 8881 §8.4.3).
//!
//! - When it is over ([`Grace::settle`]), and not before, the engine may delete files that were open without a name
//!   ([`Records::end_grace`]).
//!
//! One period holds for all protocols, since their claims conflict with each other.

mod records;

pub use records::{RecordId, Records};

use crate::claims::ServiceId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long after its last sign of life a client keeps its claims against all others (lease, RFC 8881 §8.3).
pub const LEASE: Duration = Duration::from_secs(30);
/// The grace period: a lease, and the time in which clients notice the restart. NLM clients need it as well.
pub const GRACE: Duration = Duration::from_secs(45);

const _: () = assert!(
    GRACE.as_secs() >= LEASE.as_secs(),
    "a client may use all of its lease"
);

/// On whose behalf claims of before the restart are made again, as far as a protocol can tell it: a client id's owner, the
/// address of NLM hosts.
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

#[derive(Default)]
struct State {
    /// Clients that had claims, and whether they have finished.
    expected: HashMap<Claimant, bool>,
    unfinished: usize,
}

/// See the module's head.
#[derive(Default)]
pub struct Grace {
    /// The period's end on the monotonic clock in nanoseconds; 0: none.
    until: AtomicU64,
    state: Mutex<State>,
}

impl Grace {
    /// Begins a period for these clients, beside those that are expected already. To be called before anyone is served.
    pub fn begin(
        &self,
        expected: impl IntoIterator<Item = Claimant>,
        now: Duration,
        period: Duration,
    ) {
        let mut state = self.state.lock();
        for claimant in expected {
            state.expected.insert(claimant, false);
        }
        state.unfinished = state.expected.values().filter(|done| !**done).count();
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
                Some(false) => Ok(()),
                Some(true) | None => Err(Refused::NotExpected),
            },
        }
    }

    /// A client has claimed all that it had. If it was the last one, the period is over.
    pub fn finished(&self, claimant: &Claimant) {
        let mut state = self.state.lock();
        let Some(done) = state.expected.get_mut(claimant) else {
            // It is not one that the period waits for.
            return;
        };
        if !std::mem::replace(done, true) {
            state.unfinished -= 1;
        }
        if state.unfinished == 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets who was expected once the period is over; whether it is.
    pub fn settle(&self, now: Duration) -> bool {
        if self.runs(now) {
            return false;
        }
        let mut state = self.state.lock();
        state.expected = HashMap::new();
        state.unfinished = 0;
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
}
