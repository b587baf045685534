//! Record of the clients that had claims when the server stopped, and the period in which only they
//! may reclaim them.
//!
//! Claims live in memory; a restart loses them. A client that had some learns of the restart
//! (SM_NOTIFY, an unknown session) and claims them again. Until it has had the time, nobody else
//! may be granted what could conflict, or a lock that a client believes to have would be given to
//! another. So:
//!
//! - Before a client gets its first claim it is *recorded* durably; its reply waits for that
//!   ([`Records`]).
//! - At a start, the recorded clients are *expected*. Without any there is no grace period.
//! - A record says what kinds of claims the client may have, in which files and, of a client that
//!   has claims in more files than are listed, in which volumes ([`Had`]).
//!   During the period, what could conflict with one of a client that has not finished is refused
//!   ([`GraceRefusal::Grace`]) or waits; everything else goes on (RFC 8881 §8.4.2.1). Claims of
//!   before are granted to expected clients, of the kinds that are recorded. Afterwards nothing can
//!   be claimed again ([`GraceRefusal::NoGrace`]): others may have had it meanwhile.
//! - The period ends after [`GRACE`], or as soon as every expected client has reported that it has
//!   finished ([`Grace::finished`]; NFSv4's RECLAIM_COMPLETE, RFC 8881 §18.51). A host of NLM
//!   cannot report that, so with one of them expected the period runs to its end.
//! - A client that lost claims to a conflict is removed from the records at that moment: after a
//!   restart its reclaims would overrule the client that has them now (RFC 8881 §8.4.3).
//!
//! - When it is over ([`Grace::end_if_over`]), and not before, the engine may delete files that
//!   were open without a name ([`Records::end_grace`]).
//!
//! One period holds for all protocols, since their claims conflict with each other.

mod had;
mod records;

pub use had::{FILE_BYTES, FileKey, Had, Kinds, PossibleClaims, files_of, put_files};
pub use records::{RecordId, Records};

use crate::claims::{ServiceId, Ticket};
use crate::handle::FileId;
use crate::signal::Signal;
use parking_lot::{Mutex, RwLock};
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

/// Refusal of a claim for a reason of the grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraceRefusal {
    /// New claims are not granted yet.
    Grace,
    /// Old claims can no longer be reclaimed.
    NoGrace,
    /// The client had no claims, or has reported that it has finished.
    NotExpected,
}

struct ExpectedClient {
    had: Had,
    finished: bool,
}

/// Numbers of unfinished clients' claims of each kind, by the bit of the volume.
type Counts = [[usize; 64]; Kinds::COUNT];

struct State {
    /// Clients that had claims.
    expected: HashMap<Claimant, ExpectedClient>,
    /// Number of expected clients that have not finished.
    unfinished: usize,
    /// Clients that may have had something anywhere in volumes.
    whole: Counts,
    /// Files in which clients had something.
    listed: Counts,
    /// Set when less is bound than was when it was made.
    fewer: Arc<Signal<()>>,
}

impl Default for State {
    fn default() -> State {
        State {
            expected: HashMap::new(),
            unfinished: 0,
            whole: [[0; 64]; Kinds::COUNT],
            listed: [[0; 64]; Kinds::COUNT],
            fewer: Arc::default(),
        }
    }
}

/// Adds a set to counts, or takes it away.
fn tally(counts: &mut Counts, bound: PossibleClaims, away: bool) {
    for (counts, bits) in counts.iter_mut().zip(bound.0) {
        let set = counts.iter_mut().enumerate();
        for (_, count) in set.filter(|(bit, _)| bits >> bit & 1 != 0) {
            match away {
                true => *count -= 1,
                false => *count += 1,
            }
        }
    }
}

/// Returns the volumes in which there is something of each kind.
fn bits_of(counts: &Counts) -> PossibleClaims {
    PossibleClaims(counts.map(|counts| {
        let bits = counts.iter().enumerate();
        bits.fold(0, |all, (bit, count)| all | u64::from(*count > 0) << bit)
    }))
}

impl State {
    fn count(&mut self, had: &Had, finished: bool) {
        match finished {
            true => self.unfinished -= 1,
            false => self.unfinished += 1,
        }
        tally(&mut self.whole, had.whole, finished);
        for (file, kinds) in &had.files {
            tally(
                &mut self.listed,
                PossibleClaims::in_volume(*kinds, file.volume),
                finished,
            );
        }
    }
}

/// Sets of volumes that operations read, a word for each kind.
#[derive(Default)]
struct Words([AtomicU64; Kinds::COUNT]);

impl Words {
    fn store(&self, bound: PossibleClaims) {
        let words = self.0.iter().zip(bound.0);
        words.for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
    }

    fn have(&self, kinds: Kinds, volume: VolumeId) -> bool {
        let all = self.0.iter().enumerate();
        let mut words = all.filter(|(kind, _)| kinds.contains(*kind));
        words.any(|(_, word)| word.load(Ordering::Relaxed) >> (volume.0 % 64) & 1 != 0)
    }
}

/// Grace period after a start (see the module's head).
#[derive(Default)]
pub struct Grace {
    /// The period's end on the monotonic clock in nanoseconds; 0: none.
    until: AtomicU64,
    /// While the period runs, volumes in which clients that have not finished may have had
    /// something, in whatever files.
    any: Words,
    /// The part of `any` in which such a client may have had something in any file.
    whole: Words,
    /// Numbers of clients that have not finished, by the single files in which they had something,
    /// and by its kind.
    files: RwLock<HashMap<FileKey, [u16; Kinds::COUNT]>>,
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
        let anything = |claimant| (claimant, PossibleClaims::ANYWHERE.into());
        self.begin_bound(expected.into_iter().map(anything), now, period);
    }

    /// Begins a period like [`Grace::begin`], for clients of which it is known what they may have
    /// had.
    pub fn begin_bound(
        &self,
        expected: impl IntoIterator<Item = (Claimant, Had)>,
        now: Duration,
        period: Duration,
    ) {
        let mut state = self.state.lock();
        for (claimant, had) in expected {
            let mut had = had;
            let old = state.expected.remove(&claimant);
            if let Some(old) = old.filter(|old| !old.finished) {
                // Hosts of NLM at one address are one claimant.
                self.count(&mut state, &old.had, true);
                had.merge(old.had);
            }
            self.count(&mut state, &had, false);
            let finished = false;
            state
                .expected
                .insert(claimant, ExpectedClient { had, finished });
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

    /// Returns true if a claim of these kinds may be made again in some file of a volume: a relaxed
    /// load for each. Ends with the first [`Grace::end_if_over`] after the period, within a second.
    pub fn binds_in(&self, kinds: Kinds, volume: VolumeId) -> bool {
        self.any.have(kinds, volume)
    }

    /// Returns true if a claim of these kinds may be made again in a file. Costs as much as
    /// [`Grace::binds_in`] where that returns false.
    pub fn binds(&self, kinds: Kinds, file: FileId) -> bool {
        if !self.any.have(kinds, file.volume) {
            return false;
        }
        self.whole.have(kinds, file.volume) || {
            let files = self.files.read();
            let counts = files.get(&file.into()).into_iter().flatten().enumerate();
            let mut had = counts.filter(|(_, count)| **count > 0);
            had.any(|(kind, _)| kinds.contains(kind))
        }
    }

    /// Resolves when that may be another, if it is so now.
    pub fn ticket(&self, kinds: Kinds, file: FileId) -> Option<Ticket> {
        let state = self.state.lock();
        self.binds(kinds, file)
            .then(|| Ticket(Arc::clone(&state.fewer)))
    }

    /// Counts a client, or one that has finished no more.
    fn count(&self, state: &mut State, had: &Had, finished: bool) {
        state.count(had, finished);
        let mut files = self.files.write();
        for (file, kinds) in &had.files {
            let counts = files.entry(*file).or_default();
            let counts = counts.iter_mut().enumerate();
            for (_, count) in counts.filter(|(kind, _)| kinds.contains(*kind)) {
                match finished {
                    true => *count -= 1,
                    false => *count += 1,
                }
            }
        }
    }

    /// Publishes what `state` comes to for operations, and has those that wait ask again.
    fn bind(&self, state: &mut State) {
        let whole = bits_of(&state.whole);
        self.whole.store(whole);
        self.any.store(whole.or(bits_of(&state.listed)));
        std::mem::take(&mut state.fewer).set(());
    }

    /// Checks that a new claim in a file may be granted, which conflicts with these kinds.
    ///
    /// # Errors
    /// `Grace` while a client may claim something of them again (RFC 8881 §8.4.2.1).
    pub fn admit_new(
        &self,
        conflicts: Kinds,
        file: FileId,
        now: Duration,
    ) -> Result<(), GraceRefusal> {
        match self.binds(conflicts, file) && self.runs(now) {
            true => Err(GraceRefusal::Grace),
            false => Ok(()),
        }
    }

    /// Checks that a client may claim again something of these kinds in a file.
    ///
    /// # Errors
    /// `NoGrace` after the period; `NotExpected` for a claim that the client is not recorded to
    /// have had, since another may have been granted a conflicting one.
    pub fn admit_again(
        &self,
        claimant: &Claimant,
        kinds: Kinds,
        file: FileId,
        now: Duration,
    ) -> Result<(), GraceRefusal> {
        if !self.runs(now) {
            return Err(GraceRefusal::NoGrace);
        }
        let state = self.state.lock();
        let expected = state.expected.get(claimant).filter(|e| !e.finished);
        let missing = expected.map(|e| kinds.without(e.had.kinds(file.into())));
        let known = missing == Some(Kinds::NONE);
        known.then_some(()).ok_or(GraceRefusal::NotExpected)
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
            let had = std::mem::take(&mut expected.had);
            self.count(state, &had, true);
            self.bind(state);
        }
        if state.unfinished == 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets the expected clients once the period is over; returns whether it is.
    pub fn end_if_over(&self, now: Duration) -> bool {
        if self.runs(now) {
            return false;
        }
        let mut state = self.state.lock();
        if !state.expected.is_empty() {
            let fewer = std::mem::take(&mut state.fewer);
            *state = State {
                fewer,
                ..State::default()
            };
            *self.files.write() = HashMap::new();
            self.bind(&mut state);
        }
        self.until.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Namespace;
    use weir_base::Ino;

    fn claimant(n: u8) -> Claimant {
        Claimant {
            service: ServiceId(n % 2),
            name: Arc::from([n]),
        }
    }

    const START: Duration = Duration::from_secs(1000);
    const FILE: FileId = file(1, 1);

    const fn file(volume: u64, ino: u64) -> FileId {
        FileId {
            volume: VolumeId(volume),
            ino: Ino(ino),
            namespace: Namespace::Live,
        }
    }

    fn again(g: &Grace, claimant: Claimant, now: Duration) -> Result<(), GraceRefusal> {
        g.admit_again(&claimant, Kinds::OPENS, FILE, now)
    }

    fn new(g: &Grace, now: Duration) -> Result<(), GraceRefusal> {
        g.admit_new(Kinds::ALL, FILE, now)
    }

    #[test]
    fn without_records_there_is_no_period() {
        let g = Grace::default();
        g.begin([], START, GRACE);
        assert!(!g.runs(START));
        assert_eq!(new(&g, START), Ok(()));
        assert_eq!(again(&g, claimant(1), START), Err(GraceRefusal::NoGrace));
    }

    #[test]
    fn only_who_was_recorded_claims_and_the_period_ends_by_itself() {
        let g = Grace::default();
        g.begin([claimant(1)], START, GRACE);
        let last = START + GRACE - Duration::from_nanos(1);
        for now in [START, last] {
            assert_eq!(again(&g, claimant(1), now), Ok(()));
            assert_eq!(new(&g, now), Err(GraceRefusal::Grace));
            assert_eq!(again(&g, claimant(2), now), Err(GraceRefusal::NotExpected));
            assert!(!g.end_if_over(now));
        }
        let over = START + GRACE;
        assert_eq!(again(&g, claimant(1), over), Err(GraceRefusal::NoGrace));
        assert_eq!(new(&g, over), Ok(()));
        assert!(g.end_if_over(over));
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
            again(&g, claimant(1), START),
            Err(GraceRefusal::NotExpected)
        );
        assert_eq!(again(&g, claimant(3), START), Ok(()));
        g.finished(&claimant(3));
        assert!(!g.runs(START));
        assert_eq!(new(&g, START), Ok(()));
        // A service that begins anew afterwards (a simulated crash) has a period of its own.
        assert!(g.end_if_over(START));
        g.begin([claimant(1)], START, GRACE);
        assert!(g.runs(START) && again(&g, claimant(1), START).is_ok());
    }

    #[test]
    fn a_volume_is_bound_until_those_have_finished_who_may_have_had_something_there() {
        let g = Grace::default();
        let (one, two) = (file(1, 1), file(2, 1));
        let bound = |g: &Grace| [one, two].map(|file| g.binds(Kinds::ALL, file));
        let anything = |file: FileId| PossibleClaims::in_volume(Kinds::ALL, file.volume);
        let nothing = (claimant(1), PossibleClaims::NOWHERE.into());
        g.begin_bound([nothing], START, GRACE);
        assert_eq!(bound(&g), [false; 2]);
        let three = [
            (claimant(2), anything(one).into()),
            (claimant(3), anything(one).or(anything(two)).into()),
            (claimant(4), PossibleClaims::NOWHERE.into()),
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
        assert!(!g.end_if_over(START) && bound(&g) == [true; 2]);
        g.finished(&claimant(5));
        assert_eq!(bound(&g), [false; 2]);
        g.begin([claimant(5)], START, GRACE);
        assert!(g.end_if_over(START + GRACE) && bound(&g) == [false; 2]);
    }

    #[test]
    fn a_file_is_bound_until_those_have_finished_who_had_something_in_it() {
        let g = Grace::default();
        let files = [file(1, 1), file(1, 2), file(65, 1)];
        let bound = |kinds| files.map(|file| g.binds(kinds, file));
        let had = |listed: &[(FileId, Kinds)]| {
            let mut had = Had::default();
            listed
                .iter()
                .for_each(|(file, kinds)| had.add(*kinds, (*file).into(), 9));
            had
        };
        let one = had(&[(files[0], Kinds::WRITES), (files[1], Kinds::RANGES)]);
        let two = had(&[(files[0], Kinds::RANGES)]);
        g.begin_bound([(claimant(1), one), (claimant(2), two)], START, GRACE);
        // The third is in a volume of the same bit.
        assert!(g.binds_in(Kinds::WRITES, files[2].volume));
        assert_eq!(bound(Kinds::WRITES), [true, false, false]);
        assert_eq!(bound(Kinds::RANGES), [true, true, false]);
        assert_eq!(bound(Kinds::READS), [false; 3]);
        assert_eq!(g.admit_new(Kinds::WRITES, files[1], START), Ok(()));
        let again = |n, kinds, file| g.admit_again(&claimant(n), kinds, file, START);
        assert_eq!(again(1, Kinds::WRITES, files[0]), Ok(()));
        assert_eq!(
            again(2, Kinds::WRITES, files[0]),
            Err(GraceRefusal::NotExpected)
        );
        assert_eq!(
            again(1, Kinds::WRITES, files[1]),
            Err(GraceRefusal::NotExpected)
        );
        let waits = g.ticket(Kinds::RANGES, files[0]).unwrap();
        g.finished(&claimant(1));
        assert!(waits.is_over(), "it asks again");
        assert_eq!(bound(Kinds::ALL), [true, false, false]);
        assert!(!g.binds_in(Kinds::WRITES, files[0].volume));
        g.finished(&claimant(2));
        assert!(bound(Kinds::ALL) == [false; 3] && !g.runs(START));
    }

    #[test]
    fn claims_that_conflict_with_no_recorded_kind_go_on() {
        let g = Grace::default();
        let (here, there) = (file(1, 1), file(2, 1));
        let each = Kinds::EACH;
        for had in each {
            let bound = PossibleClaims::in_volume(had, here.volume).into();
            g.begin_bound([(claimant(1), bound)], START, GRACE);
            for kind in each {
                let same = kind == had;
                let refused = if same {
                    Err(GraceRefusal::Grace)
                } else {
                    Ok(())
                };
                assert_eq!(g.admit_new(kind, here, START), refused, "{had:?} {kind:?}");
                assert_eq!(g.admit_new(kind, there, START), Ok(()));
                assert_eq!(g.ticket(kind, here).is_some(), same);
                let again = |file| g.admit_again(&claimant(1), kind, file, START);
                assert_eq!(again(here).is_ok(), same, "{had:?} {kind:?}");
                assert_eq!(again(there), Err(GraceRefusal::NotExpected));
                let both = g.admit_again(&claimant(1), kind.or(had), here, START);
                assert_eq!(both.is_ok(), same, "{had:?} {kind:?}");
            }
            g.finished(&claimant(1));
            assert!(g.end_if_over(START) && !g.binds(Kinds::ALL, here));
        }
    }
}
