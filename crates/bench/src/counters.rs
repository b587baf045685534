//! Counters of a generator thread.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Greatest latency that is recorded, in nanoseconds; longer ones count as this.
const MAX_LATENCY_NS: u64 = 600_000_000_000;

/// Class of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A READ of file data.
    Read,
    /// A WRITE of file data.
    Write,
    /// A COMMIT that goes with WRITEs; not an operation of its own in rates.
    Commit,
    /// An operation of a metadata load.
    Op,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Commit, Self::Op];

    /// The class's name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Commit => "commit",
            Self::Op => "op",
        }
    }
}

/// Counts and latencies of one class.
pub struct ClassTally {
    /// Latencies in nanoseconds, from sending to the reply's last byte; repeats after
    /// NFS3ERR_JUKEBOX count from the first sending.
    pub latency: Histogram<u64>,
    /// Bytes of file data moved.
    pub bytes: u64,
}

/// Everything that a thread, or a run, counts.
pub struct Tally {
    /// By class, in the order of [`Class::ALL`].
    pub classes: [ClassTally; 4],
    /// Number of directory entries listed.
    pub entries: u64,
    /// Number of replies with NFS3ERR_JUKEBOX.
    pub jukebox: u64,
    /// READs with less data than asked for, inside a file.
    pub short_reads: u64,
    /// WRITEs that wrote less than they were given.
    pub short_writes: u64,
    /// WRITEs that got less durability than they asked for.
    pub weak_stability: u64,
    /// READs that returned data of another place, or damaged data.
    pub mismatches: u64,
    /// Changes of the write verifier.
    pub verifier_changes: u64,
    /// Replies with an error status, by status.
    pub statuses: BTreeMap<u32, u64>,
    /// A few faults in words.
    pub notes: Vec<String>,
    /// Wake-ups of the event loop.
    pub wakeups: u64,
    /// Number of receive calls.
    pub receives: u64,
}

fn histogram() -> Histogram<u64> {
    // The bounds are constants that the constructor accepts; were they not, an
    // auto-resizing histogram of the same precision serves too.
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
        .or_else(|_| Histogram::new(3))
        .unwrap_or_else(|_| unreachable!("constant bounds"))
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            classes: std::array::from_fn(|_| ClassTally {
                latency: histogram(),
                bytes: 0,
            }),
            entries: 0,
            jukebox: 0,
            short_reads: 0,
            short_writes: 0,
            weak_stability: 0,
            mismatches: 0,
            verifier_changes: 0,
            statuses: BTreeMap::new(),
            notes: Vec::new(),
            wakeups: 0,
            receives: 0,
        }
    }
}

impl Tally {
    /// The tally of one class.
    pub fn class(&self, class: Class) -> &ClassTally {
        // Class numbers are 0..4, the array's indexes.
        &self.classes[class as usize]
    }

    /// Counts one completed operation.
    pub fn done(&mut self, class: Class, latency_ns: u64, bytes: u64) {
        let c = &mut self.classes[class as usize];
        c.latency.saturating_record(latency_ns.max(1));
        c.bytes += bytes;
    }

    /// Counts a reply with an error status.
    pub fn bad_status(&mut self, status: u32) {
        *self.statuses.entry(status).or_insert(0) += 1;
    }

    /// Replies that failed, whatever their status.
    pub fn failures(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// READs, WRITEs and metadata operations: all but the COMMITs.
    pub fn ops(&self) -> u64 {
        Class::ALL
            .into_iter()
            .filter(|c| *c != Class::Commit)
            .map(|c| self.class(c).latency.len())
            .sum()
    }

    /// Bytes of file data moved, of all classes.
    pub fn bytes(&self) -> u64 {
        self.classes.iter().map(|c| c.bytes).sum()
    }

    /// Adds another thread's tally.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            // Both have the same bounds, so nothing can be out of them.
            let _ = mine.latency.add(&theirs.latency);
            mine.bytes += theirs.bytes;
        }
        self.entries += other.entries;
        self.jukebox += other.jukebox;
        self.short_reads += other.short_reads;
        self.short_writes += other.short_writes;
        self.weak_stability += other.weak_stability;
        self.mismatches += other.mismatches;
        self.verifier_changes += other.verifier_changes;
        self.wakeups += other.wakeups;
        self.receives += other.receives;
        for (status, n) in &other.statuses {
            *self.statuses.entry(*status).or_insert(0) += n;
        }
        self.notes.extend(other.notes.iter().cloned());
    }

    /// Forgets what was counted during warm-up, but not what went wrong.
    pub fn restart(&mut self) {
        let fresh = Self::default();
        let old = std::mem::replace(self, fresh);
        self.short_reads = old.short_reads;
        self.short_writes = old.short_writes;
        self.weak_stability = old.weak_stability;
        self.mismatches = old.mismatches;
        self.verifier_changes = old.verifier_changes;
        self.statuses = old.statuses;
        self.notes = old.notes;
    }

    /// Returns what makes the run a failed one, in words; empty when it is sound.
    pub fn faults(&self) -> Vec<String> {
        self.faults_named(|status| crate::nfs3::status_name(status).into())
    }

    /// As [`Self::faults`], for statuses of another protocol than NFS.
    pub fn faults_named(&self, name: impl Fn(u32) -> String) -> Vec<String> {
        let mut out = Vec::new();
        let mut say = |n: u64, what: &str| {
            if n > 0 {
                out.push(format!("{n} {what}"));
            }
        };
        say(self.short_reads, "reads shorter than asked, inside a file");
        say(self.short_writes, "writes shorter than asked");
        say(
            self.weak_stability,
            "writes answered with less stability than asked for",
        );
        say(self.mismatches, "reads with wrong data");
        say(
            self.verifier_changes,
            "changes of the write verifier (unstable data may be lost)",
        );
        for (status, n) in &self.statuses {
            out.push(format!("{n} replies with {} ({status})", name(*status)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up_and_keep_faults_over_the_warm_up() {
        let mut a = Tally::default();
        for i in 1..=1000u64 {
            a.done(Class::Read, i * 1000, 4096);
        }
        a.done(Class::Commit, 5, 0);
        let mut b = Tally::default();
        b.done(Class::Write, 7, 10);
        b.weak_stability = 2;
        b.bad_status(70);
        a.add(&b);
        assert_eq!(a.ops(), 1001, "COMMITs are not operations");
        assert_eq!(a.class(Class::Read).bytes, 4096 * 1000);
        let p50 = a.class(Class::Read).latency.value_at_quantile(0.5);
        assert!((499_000..=501_000).contains(&p50), "{p50}");
        assert_eq!(a.failures(), 1);
        assert_eq!(a.faults().len(), 2);
        a.restart();
        assert_eq!(a.ops(), 0);
        assert_eq!(a.faults().len(), 2);
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_kept_at_the_bound() {
        let mut t = Tally::default();
        t.done(Class::Op, u64::MAX, 0);
        assert!(t.class(Class::Op).latency.max() >= MAX_LATENCY_NS);
    }
}
