//! Checks dead blocks, pending frees, and the sums kept of both.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{Generation, Ino, VolumeId};
use weir_store::cache::Cache;
use weir_store::checkpoint::Run;
use weir_store::node::Key;
use weir_store::space::Usage;
use weir_store::tree::{self, TreeRoot, Visitor};
use weir_store::{BlockPtr, StoreError};

use super::progress::Progress;
use super::report::{Fault, Report};
use super::tree::Reader;
use crate::checkpoint::dead::{self, Sum, born_of};
use crate::format::catalog::{Job, Places, SnapshotRec};
use crate::format::record::{Window, kind};
use crate::format::shared_runs::{Group, SharedRuns};

/// A volume's dead blocks, read from its dead tree.
#[derive(Default)]
pub(super) struct Dead {
    /// By D and B: the sum, and the number of recorded blocks.
    groups: BTreeMap<(u32, u32), (Option<Sum>, u64)>,
    runs: Vec<(u32, u32, Run)>,
    bad: bool,
}

/// Walks trees to claim the blocks that they occupy, without interpreting their records.
pub(super) struct Claims<'a> {
    volume: VolumeId,
    cache: &'a Arc<Cache>,
    report: &'a mut Report,
    total: &'a mut Usage,
    progress: &'a Progress,
}

impl<'a> Claims<'a> {
    pub(super) fn new(
        volume: VolumeId,
        cache: &'a Arc<Cache>,
        report: &'a mut Report,
        total: &'a mut Usage,
        progress: &'a Progress,
    ) -> Claims<'a> {
        Claims {
            volume,
            cache,
            report,
            total,
            progress,
        }
    }

    fn fault(&mut self, what: impl Into<String>) {
        self.report.faults.push(Fault::Inode {
            volume: self.volume,
            ino: Ino(0),
            what: what.into(),
        });
    }

    fn claim(&mut self, run: Run) {
        self.progress.see(run.count);
        if self.total.claim(run.addr, run.count) > 0 {
            self.report.faults.push(Fault::TwoOwners {
                tree: self.volume,
                addr: run.addr,
                count: run.count,
            });
        }
    }

    /// Reads the dead tree of a volume and claims its nodes.
    pub(super) fn read_dead(&mut self, root: &TreeRoot, from: Key) -> Dead {
        let mut dead = Dead::default();
        let src = Reader(self.cache);
        let mut visitor = DeadVisitor {
            claims: self,
            dead: &mut dead,
        };
        tree::walk_from(&src, root, from, &mut visitor);
        if dead.bad {
            self.fault("malformed record of dead blocks");
        }
        dead
    }

    /// Checks dead blocks against the references of the snapshots (`of_snapshots`) and of the
    /// volume itself (`of_live`), and against the sums. Claims the unreferenced blocks that are to
    /// be freed.
    pub(super) fn compare(
        &mut self,
        dead: Dead,
        jobs: &[Job],
        snapshots: &[SnapshotRec],
        dead_blocks: u64,
        [of_snapshots, of_live]: [&Usage; 2],
    ) {
        let within = |places: &Places, d: u32, b: u32| places.contains(u64::from(d), b);
        let freed = |d, b| {
            jobs.iter()
                .any(|j| matches!(j, Job::Free(p) if within(p, d, b)))
        };
        let again = |d, b| {
            jobs.iter()
                .any(|j| matches!(j, Job::Forget(p) if within(p, d, b)))
        };
        for (d, b, run) in &dead.runs {
            if freed(*d, *b) {
                self.claim(*run);
                continue;
            }
            let live = of_live.count(run.addr, run.count);
            if again(*d, *b) {
                if live != run.count {
                    self.fault(format!("block {} is not in the volume again", run.addr));
                }
                continue;
            }
            if live != 0 {
                self.fault(format!("block {} is recorded as dead and is not", run.addr));
            }
            if of_snapshots.count(run.addr, run.count) != run.count {
                self.fault(format!("dead block {} is in no snapshot", run.addr));
            }
        }
        let mut sum_of_all = 0;
        let mut unique: BTreeMap<u32, u64> = BTreeMap::new();
        for ((d, b), (sum, blocks)) in &dead.groups {
            if freed(*d, *b) || again(*d, *b) {
                if sum.is_some() {
                    self.fault("a sum of dead blocks that are no snapshot's");
                }
                continue;
            }
            if sum.is_none_or(|s| s.blocks != *blocks) {
                self.fault(format!("a sum of dead blocks is not {blocks}"));
            }
            sum_of_all += blocks;
            let mut holders = snapshots.iter().filter(|s| (*b..=*d).contains(&s.number));
            match (holders.next(), holders.next()) {
                (Some(one), None) => *unique.entry(one.number).or_default() += blocks,
                (Some(_), Some(_)) => {}
                (None, _) => self.fault("dead blocks without a snapshot"),
            }
        }
        if sum_of_all != dead_blocks {
            self.fault(format!(
                "{sum_of_all} dead blocks, but {dead_blocks} are counted"
            ));
        }
        for s in snapshots {
            let own = unique.get(&s.number).copied().unwrap_or(0);
            if own != s.unique {
                self.fault(format!(
                    "snapshot {}: {own} blocks of its own, but {} are counted",
                    s.name, s.unique
                ));
            }
        }
    }

    /// Claims the blocks that a job still has to free.
    pub(super) fn job(&mut self, job: &Job) {
        match job {
            Job::Reap { root, since, from } => {
                let src = Reader(self.cache);
                let mut visitor = ReapVisitor {
                    claims: self,
                    since: *since,
                    tree: (&src, root),
                    shared: SharedRuns::default(),
                };
                tree::walk_from(&src, root, *from, &mut visitor);
            }
            Job::ReapDead { root, from, spared } => {
                let dead = self.read_dead(root, *from);
                let kept = |d: u32, b| spared.iter().any(|p| p.contains(u64::from(d), b));
                for (d, b, run) in dead.runs {
                    if !kept(d, b) {
                        self.claim(run);
                    }
                }
            }
            Job::Free(_) | Job::Forget(_) | Job::Split { .. } => {}
        }
    }

    fn node_fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError) {
        self.report.faults.push(Fault::Node {
            tree: self.volume,
            addr: ptr.addr,
            from: Ino(first.ino),
            what: error.to_string(),
        });
    }
}

fn node_run(ptr: &BlockPtr) -> Run {
    Run {
        addr: ptr.addr,
        count: 1,
        birth: ptr.birth,
    }
}

struct DeadVisitor<'v, 'a> {
    claims: &'v mut Claims<'a>,
    dead: &'v mut Dead,
}

impl Visitor for DeadVisitor<'_, '_> {
    fn node(&mut self, ptr: &BlockPtr, _level: u8) -> bool {
        self.claims.claim(node_run(ptr));
        self.claims.report.nodes += 1;
        true
    }

    fn record(&mut self, key: Key, value: &[u8]) {
        let (Ok(died), born) = (u32::try_from(key.ino), born_of(&key)) else {
            self.dead.bad = true;
            return;
        };
        let group = self.dead.groups.entry((died, born)).or_default();
        match key.kind {
            dead::kind::SUM => match Sum::decode(value) {
                Some(sum) => group.0 = Some(sum),
                None => self.dead.bad = true,
            },
            dead::kind::PIECE => match dead::decode(value) {
                Some(runs) => {
                    for run in runs {
                        group.1 += u64::from(run.count);
                        self.dead.runs.push((died, born, run));
                    }
                }
                None => self.dead.bad = true,
            },
            _ => self.dead.bad = true,
        }
    }

    fn fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError) {
        self.claims.node_fault(ptr, first, error);
    }
}

struct ReapVisitor<'v, 'a> {
    claims: &'v mut Claims<'a>,
    since: Generation,
    tree: (&'v Reader<'v>, &'v TreeRoot),
    shared: SharedRuns,
}

impl ReapVisitor<'_, '_> {
    fn claim(&mut self, run: Run) {
        if run.birth > self.since {
            self.claims.claim(run);
        }
    }
}

impl Visitor for ReapVisitor<'_, '_> {
    fn node(&mut self, ptr: &BlockPtr, _level: u8) -> bool {
        if ptr.birth <= self.since {
            return false;
        }
        self.claims.claim(node_run(ptr));
        true
    }

    fn record(&mut self, key: Key, value: &[u8]) {
        // Blocks of malformed records stay unclaimed, and are reported as leaked.
        if key.kind == kind::SHARED {
            let group = Group::decode(value);
            let runs = group.iter().flat_map(|group| group.runs(key.sub));
            runs.for_each(|run| self.claim(run));
            return;
        }
        let window = match key.kind {
            kind::EXTENT => Window::decode(value),
            _ => None,
        };
        let (src, root) = self.tree;
        for stored in window.iter().flat_map(|window| window.blocks).flatten() {
            // A shared block is claimed once, by its count.
            if let Ok(false) = self.shared.is_shared(src, root, stored) {
                self.claim(Run {
                    addr: stored.addr,
                    count: 1,
                    birth: stored.birth,
                });
            }
        }
    }

    fn fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError) {
        self.claims.node_fault(ptr, first, error);
    }
}
