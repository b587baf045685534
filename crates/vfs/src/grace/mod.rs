//! Which clients had claims when the server stopped, and the time in which only they may claim them
//! again.
//!
//! Claims live in memory; a restart loses them. A client that had some learns of the restart
//! (SM_NOTIFY, an unknown session) and claims them again. Until it has had the time, nobody else
//! may be granted what could conflict, or a lock that a client believes to have would be given to
//! another. So:
//!
//! - Before a client gets its first claim it is *recorded* durably; its reply waits for that
//!   ([`Records`]).
//! - At a start, the recorded clients are *expected*. Without any there is no grace period.
//! - A record says what kinds of claims the client may have, and in which volumes ([`Bound`]).
//!   During the period, what could conflict with one of a client that has not finished is refused
//!   ([`Refused::Grace`]) or waits; everything else goes on (RFC 8881 §8.4.2.1). Claims of before
//!   are granted to expected clients, of the kinds that are recorded. Afterwards nothing can be
//!   claimed again ([`Refused::NoGrace`]): others may have had it meanwhile.
//! - The period ends after [`GRACE`], or as soon as every expected client has reported that it has
//!   finished ([`Grace::finished`]; NFSv4's RECLAIM_COMPLETE, RFC 8881 §18.51). A host of NLM
//!   cannot report that, so with one of them expected the period runs to its end.
//! - A client that lost claims to a conflict is removed from the records at that moment: after a
//!   restart its reclaims would overrule the client that has them now (RFC 8881 §8.4.3).
//!
//! - When it is over ([`Grace::settle`]), and not before, the engine may delete files that were
//!   open without a name ([`Records::end_grace`]).
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

/// On whose behalf claims of before the restart are made again, as far as a protocol can identify
/// it: a client id's owner, the address of NLM hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claimant {
    /// The service that knows it.
    pub service: ServiceId,
    /// Name that distinguishes it there.
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

/// Kinds of claims, by what they conflict with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// No claim.
    pub const NONE: Kinds = Kinds(0);
    /// Binds others' reads: denials of reading, exclusive mandatory ranges, caches of unsent
    /// writes.
    pub const READS: Kinds = Kinds(1);
    /// Binds others' writes and changes of names: denials of writing, mandatory ranges, any cache.
    pub const WRITES: Kinds = Kinds(2);
    /// Byte-range locks, which conflict with each other.
    pub const RANGES: Kinds = Kinds(4);
    /// Opens, which conflict with others' denials.
    pub const OPENS: Kinds = Kinds(8);
    /// Denials that bind others' opens alone (NLM's SHARE).
    pub const SHARES: Kinds = Kinds(16);
    /// All kinds.
    pub const ALL: Kinds = Kinds(31);
    /// A read delegation: its holder opens the file for reading without asking.
    pub const READ_DELEGATION: Kinds = Kinds::WRITES.or(Kinds::OPENS);
    /// A write delegation: its holder opens and locks the file without asking.
    pub const WRITE_DELEGATION: Kinds = Kinds::READ_DELEGATION.or(Kinds::READS).or(Kinds::RANGES);
    /// Number of kinds.
    const COUNT: usize = 5;

    /// Returns the kinds of both.
    pub const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Returns these kinds if `is`, or none.
    pub const fn when(self, is: bool) -> Kinds {
        if is { self } else { Kinds::NONE }
    }

    /// Returns the kinds that an open conflicts with.
    pub const fn against_open(reads: bool, writes: bool, denies: bool) -> Kinds {
        let used = Kinds::READS.when(reads).or(Kinds::WRITES.when(writes));
        used.or(Kinds::SHARES).or(Kinds::OPENS.when(denies))
    }

    /// Returns the kinds that an advisory byte-range lock conflicts with.
    pub const fn against_lock(exclusive: bool) -> Kinds {
        let caches = Kinds::READS.or(Kinds::WRITES.when(exclusive));
        Kinds::RANGES.or(caches)
    }

    fn has(self, kind: usize) -> bool {
        self.0 >> kind & 1 != 0
    }
}

/// Kinds of claims that a client may have had, each with the volumes in which it may have had
/// them: a set by hash (the volume's id modulo 64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound([u64; Kinds::COUNT]);

impl Bound {
    /// Nothing in any volume.
    pub const NOWHERE: Bound = Bound([0; Kinds::COUNT]);
    /// Anything in any volume.
    pub const ANYWHERE: Bound = Bound([u64::MAX; Kinds::COUNT]);

    /// Returns these kinds in a volume.
    pub fn of(kinds: Kinds, volume: VolumeId) -> Bound {
        Bound::in_bits(kinds, 1 << (volume.0 % 64))
    }

    /// Returns these kinds in any volume.
    pub fn anywhere(kinds: Kinds) -> Bound {
        Bound::in_bits(kinds, u64::MAX)
    }

    fn in_bits(kinds: Kinds, bits: u64) -> Bound {
        Bound(std::array::from_fn(|kind| match kinds.has(kind) {
            true => bits,
            false => 0,
        }))
    }

    /// Both.
    #[must_use]
    pub fn or(self, other: Bound) -> Bound {
        Bound(std::array::from_fn(|kind| self.0[kind] | other.0[kind]))
    }

    /// Returns true if all of another is part of it.
    pub fn covers(self, other: Bound) -> bool {
        self.or(other) == self
    }

    /// Returns the sets as numbers, to be recorded; kinds that are added later come behind them.
    pub fn words(self) -> [u64; Kinds::COUNT] {
        self.0
    }

    /// Returns the sets that a record has. A kind that it does not have may be anywhere.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> Bound {
        let mut words = words.into_iter();
        Bound(std::array::from_fn(|_| words.next().unwrap_or(u64::MAX)))
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
    /// Numbers of unfinished clients that may have had something of a kind in a volume, by the bit
    /// of the volume.
    binding: [[usize; 64]; Kinds::COUNT],
    /// Set when less is bound than was when it was made.
    fewer: Arc<Signal<()>>,
}

impl Default for State {
    fn default() -> State {
        State {
            expected: HashMap::new(),
            unfinished: 0,
            binding: [[0; 64]; Kinds::COUNT],
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
        for (counts, bits) in self.binding.iter_mut().zip(bound.0) {
            for (bit, count) in counts.iter_mut().enumerate() {
                if bits >> bit & 1 != 0 {
                    by(count);
                }
            }
        }
    }

    fn bound(&self) -> Bound {
        Bound(self.binding.map(|counts| {
            let bits = counts.iter().enumerate();
            bits.fold(0, |all, (bit, count)| all | u64::from(*count > 0) << bit)
        }))
    }
}

/// Grace period after a start (see the module's head).
#[derive(Default)]
pub struct Grace {
    /// The period's end on the monotonic clock in nanoseconds; 0: none.
    until: AtomicU64,
    /// While the period runs, what clients that have not finished may have had ([`Bound`]).
    bound: [AtomicU64; Kinds::COUNT],
    state: Mutex<State>,
}

impl Grace {
    /// Begins a period for these clients, beside those that are expected already, all of which may
    /// have had anything. To be called before anyone is served.
    pub fn begin(
        &self,
        expected: impl IntoIterator<Item = Claimant>,
        now: Duration,
        period: Duration,
    ) {
        let expected = expected.into_iter().map(|c| (c, Bound::ANYWHERE));
        self.begin_bound(expected, now, period);
    }

    /// Begins a period like [`Grace::begin`], for clients of which it is known what they may have
    /// had.
    pub fn begin_bound(
        &self,
        expected: impl IntoIterator<Item = (Claimant, Bound)>,
        now: Duration,
        period: Duration,
    ) {
        let mut state = self.state.lock();
        for (claimant, bound) in expected {
            let mut bound = bound;
            let old = state.expected.get(&claimant).filter(|old| !old.finished);
            if let Some(old) = old.map(|old| old.bound) {
                // Hosts of NLM at one address are one claimant.
                bound = bound.or(old);
                state.count(old, true);
            }
            state.count(bound, false);
            let finished = false;
            state
                .expected
                .insert(claimant, Expected { bound, finished });
        }
        self.bind(&mut state);
        if state.unfinished > 0 {
            // Saturates: a period from a test may be for ever.
            let until = now.saturating_add(period).as_nanos();
            let until = u64::try_from(until).unwrap_or(u64::MAX);
            self.until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// Returns true if the period runs.
    pub fn runs(&self, now: Duration) -> bool {
        now.as_nanos() < u128::from(self.until.load(Ordering::Relaxed))
    }

    /// Returns true if a claim of these kinds may be made again in a volume: a relaxed load for
    /// each. Ends with the first [`Grace::settle`] after the period, within a second.
    pub fn binds(&self, kinds: Kinds, volume: VolumeId) -> bool {
        let all = self.bound.iter().enumerate();
        let mut words = all.filter(|(kind, _)| kinds.has(*kind));
        words.any(|(_, word)| word.load(Ordering::Relaxed) >> (volume.0 % 64) & 1 != 0)
    }

    /// Resolves when that may be another, if it is so now.
    pub fn ticket(&self, kinds: Kinds, volume: VolumeId) -> Option<Ticket> {
        let state = self.state.lock();
        self.binds(kinds, volume)
            .then(|| Ticket(Arc::clone(&state.fewer)))
    }

    /// Puts the bits that `state` comes to into the words that operations read.
    fn bind(&self, state: &mut State) {
        let bound = state.bound();
        let words = self.bound.iter().zip(bound.0);
        let before = Bound(std::array::from_fn(|kind| {
            self.bound[kind].load(Ordering::Relaxed)
        }));
        words.for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
        if !bound.covers(before) {
            std::mem::take(&mut state.fewer).set(());
        }
    }

    /// Checks that a new claim in a volume may be granted, which conflicts with these kinds.
    ///
    /// # Errors
    /// `Grace` while a client may claim something of them again (RFC 8881 §8.4.2.1).
    pub fn admit_new(
        &self,
        conflicts: Kinds,
        volume: VolumeId,
        now: Duration,
    ) -> Result<(), Refused> {
        match self.binds(conflicts, volume) && self.runs(now) {
            true => Err(Refused::Grace),
            false => Ok(()),
        }
    }

    /// Checks that a client may claim again something of these kinds in a volume.
    ///
    /// # Errors
    /// `NoGrace` after the period; `NotExpected` for a claim that the client is not recorded to
    /// have had, since another may have been granted a conflicting one.
    pub fn admit_again(
        &self,
        claimant: &Claimant,
        kinds: Kinds,
        volume: VolumeId,
        now: Duration,
    ) -> Result<(), Refused> {
        if !self.runs(now) {
            return Err(Refused::NoGrace);
        }
        let state = self.state.lock();
        let expected = state.expected.get(claimant).filter(|e| !e.finished);
        let known = expected.is_some_and(|e| e.bound.covers(Bound::of(kinds, volume)));
        known.then_some(()).ok_or(Refused::NotExpected)
    }

    /// Notes that a client has claimed all that it had. If it was the last one, the period is over.
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
    const VOLUME: VolumeId = VolumeId(1);

    fn again(g: &Grace, claimant: Claimant, now: Duration) -> Result<(), Refused> {
        g.admit_again(&claimant, Kinds::OPENS, VOLUME, now)
    }

    fn new(g: &Grace, now: Duration) -> Result<(), Refused> {
        g.admit_new(Kinds::ALL, VOLUME, now)
    }

    #[test]
    fn without_records_there_is_no_period() {
        let g = Grace::default();
        g.begin([], START, GRACE);
        assert!(!g.runs(START));
        assert_eq!(new(&g, START), Ok(()));
        assert_eq!(again(&g, claimant(1), START), Err(Refused::NoGrace));
    }

    #[test]
    fn only_who_was_recorded_claims_and_the_period_ends_by_itself() {
        let g = Grace::default();
        g.begin([claimant(1)], START, GRACE);
        let last = START + GRACE - Duration::from_nanos(1);
        for now in [START, last] {
            assert_eq!(again(&g, claimant(1), now), Ok(()));
            assert_eq!(new(&g, now), Err(Refused::Grace));
            assert_eq!(again(&g, claimant(2), now), Err(Refused::NotExpected));
            assert!(!g.settle(now));
        }
        let over = START + GRACE;
        assert_eq!(again(&g, claimant(1), over), Err(Refused::NoGrace));
        assert_eq!(new(&g, over), Ok(()));
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
        assert_eq!(again(&g, claimant(1), START), Err(Refused::NotExpected));
        assert_eq!(again(&g, claimant(3), START), Ok(()));
        g.finished(&claimant(3));
        assert!(!g.runs(START));
        assert_eq!(new(&g, START), Ok(()));
        // A service that begins anew afterwards (a simulated crash) has a period of its own.
        assert!(g.settle(START));
        g.begin([claimant(1)], START, GRACE);
        assert!(g.runs(START) && again(&g, claimant(1), START).is_ok());
    }

    #[test]
    fn a_volume_is_bound_until_those_have_finished_who_may_have_had_something_there() {
        let g = Grace::default();
        let (one, two) = (VolumeId(1), VolumeId(2));
        let bound = |g: &Grace| [one, two].map(|volume| g.binds(Kinds::ALL, volume));
        g.begin_bound([(claimant(1), Bound::NOWHERE)], START, GRACE);
        assert_eq!(bound(&g), [false; 2]);
        let three = [
            (claimant(2), Bound::of(Kinds::ALL, one)),
            (
                claimant(3),
                Bound::of(Kinds::ALL, one).or(Bound::of(Kinds::ALL, two)),
            ),
            (claimant(4), Bound::NOWHERE),
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

    #[test]
    fn claims_that_conflict_with_no_recorded_kind_go_on() {
        let g = Grace::default();
        let (here, there) = (VolumeId(1), VolumeId(2));
        let each = [
            Kinds::READS,
            Kinds::WRITES,
            Kinds::RANGES,
            Kinds::OPENS,
            Kinds::SHARES,
        ];
        for had in each {
            g.begin_bound([(claimant(1), Bound::of(had, here))], START, GRACE);
            for kind in each {
                let same = kind == had;
                let refused = if same { Err(Refused::Grace) } else { Ok(()) };
                assert_eq!(g.admit_new(kind, here, START), refused, "{had:?} {kind:?}");
                assert_eq!(g.admit_new(kind, there, START), Ok(()));
                assert_eq!(g.ticket(kind, here).is_some(), same);
                let again = |volume| g.admit_again(&claimant(1), kind, volume, START);
                assert_eq!(again(here).is_ok(), same, "{had:?} {kind:?}");
                assert_eq!(again(there), Err(Refused::NotExpected));
                let both = g.admit_again(&claimant(1), kind.or(had), here, START);
                assert_eq!(both.is_ok(), same, "{had:?} {kind:?}");
            }
            g.finished(&claimant(1));
            assert!(g.settle(START) && !g.binds(Kinds::ALL, here));
        }
    }

    #[test]
    fn a_record_may_be_of_any_claim_of_a_kind_that_it_does_not_have() {
        let bound = Bound::of(Kinds::RANGES, VOLUME);
        assert_eq!(Bound::from_words(bound.words()), bound);
        assert_eq!(Bound::from_words([]), Bound::ANYWHERE);
        let shorter = Bound::from_words([0, 0]);
        let kept = Kinds::RANGES.or(Kinds::OPENS).or(Kinds::SHARES);
        assert_eq!(shorter, Bound::anywhere(kept));
        let longer = bound.words().into_iter().chain([7]);
        assert_eq!(Bound::from_words(longer), bound);
    }
}
