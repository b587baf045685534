//! Random stories of three volumes that are copied among each other as the planner decides: writes
//! and snapshots on all sides, updates, cascades, fan-out, breaks, and resyncs in every direction,
//! in one aggregate and in two. The content of every snapshot is remembered when it is taken; after
//! each successful transfer, the destination's content is compared with it, entry by entry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Entry, Machine, create, dump, fixed_time, run, write};
use weir_base::{Rng as _, SeededRng};
use weir_relations::manager::{Job, Task};
use weir_relations::model::{Path, SnapshotIdentity, TransferKind, system_policies};
use weir_relations::plan::{self, plan};
use weir_relations::retention::SM_CREATED;
use weir_transfer::pipe::{Pipe, Ran};
use weir_transfer::send::SendOptions;
use weir_volume::{Engine, FsError, Volume};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Some changes to small files and their names.
fn change(volume: &Volume, rng: &SeededRng) {
    let root = volume.root();
    for _ in 0..1 + rng.below(4) {
        let name = format!("f{}", rng.below(6));
        match rng.below(5) {
            0 => drop(run(volume, |cx| volume.remove(cx, root, name.as_bytes()))),
            1 => {
                let to = format!("f{}", rng.below(6));
                let _ = run(volume, |cx| {
                    volume.rename(cx, root, name.as_bytes(), root, to.as_bytes())
                });
            }
            _ => {
                let ino = create(volume, root, &name);
                let data = vec![rng.below(256) as u8; 1 + rng.below(9000) as usize];
                write(volume, ino, rng.below(4) * 4096, &data);
            }
        }
    }
}

struct Story {
    rng: SeededRng,
    engines: Vec<Engine>,
    volumes: Vec<Arc<Volume>>,
    /// Content of snapshots when they were taken.
    taken: BTreeMap<SnapshotIdentity, BTreeMap<String, Entry>>,
    serial: u64,
    diary: Vec<String>,
    succeeded: usize,
}

impl Story {
    fn new(seed: u64) -> Story {
        let machines = match seed % 2 {
            0 => vec![Machine::new(seed)],
            _ => vec![Machine::new(seed), Machine::new(seed + 1000)],
        };
        let engines: Vec<Engine> = machines.iter().map(Machine::format).collect();
        let of = |at: usize| at % engines.len();
        let volumes = NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let (machine, engine) = (&machines[of(at)], &engines[of(at)]);
                match at {
                    0 => machine.volume(engine, name),
                    _ => machine.destination(engine, name),
                }
            })
            .collect();
        Story {
            rng: SeededRng::new(seed),
            engines,
            volumes,
            taken: BTreeMap::new(),
            serial: 0,
            diary: Vec::new(),
            succeeded: 0,
        }
    }

    fn engine(&self, at: usize) -> &Engine {
        &self.engines[at % self.engines.len()]
    }

    fn take(&mut self, at: usize, name: &str, label: &str) {
        let volume = &self.volumes[at];
        volume.snapshot_take(name, label, fixed_time()).unwrap();
        let identity = volume.snapshot(name).unwrap().identity;
        let held = dump(&volume.open_snapshot(name).unwrap());
        let other = self.taken.insert(identity, held);
        assert!(other.is_none(), "two snapshots are {identity}");
    }

    fn describe(&self, at: usize) -> plan::Volume {
        let volume = &self.volumes[at];
        let all = volume.snapshots();
        let mirror = volume.mirror();
        let exported = mirror.as_ref().and_then(|m| m.exported);
        plan::Volume {
            size: None,
            data_protection: mirror.is_some(),
            exported: all
                .iter()
                .find(|s| Some(s.id) == exported)
                .map(|s| s.identity),
            snapshots: all
                .iter()
                .map(|s| plan::Snapshot {
                    name: s.name.clone(),
                    label: s.label.clone(),
                    id: s.identity,
                    created: s.created.secs,
                })
                .collect(),
            ..plan::Volume::default()
        }
    }

    fn transfer(&mut self, from: usize, to: usize, kind: TransferKind) {
        self.serial += 1;
        let mut job = Job {
            id: self.serial,
            relationship: format!("{from}{to}"),
            task: Task::Transfer(kind),
            source: Path::local("s", NAMES[from]),
            destination: Path::local("s", NAMES[to]),
            policy: system_policies()
                .into_iter()
                .find(|p| p.name == "MirrorAllSnapshots")
                .unwrap(),
            source_snapshot: None,
            throttle: None,
            files: Vec::new(),
            arrived: false,
            anew: false,
            serial: self.serial,
        };
        if self.rng.below(3) == 0 {
            job.policy = system_policies()
                .into_iter()
                .find(|p| p.name == "MirrorLatest")
                .unwrap();
        }
        let mut source = self.describe(from);
        if plan::must_take(&job, &source) {
            self.take(from, &plan::own_name(&job, fixed_time().secs), SM_CREATED);
            source = self.describe(from);
        }
        let destination = self.describe(to);
        let partial = self.volumes[to]
            .mirror()
            .and_then(|m| m.partial)
            .map(|p| p.target);
        let planned = match plan(&job, &source, &destination, partial) {
            Ok(planned) => planned,
            Err(why) => return self.diary.push(format!("{from}->{to} {kind:?}: {why}")),
        };
        self.diary
            .push(format!("{from}->{to} {kind:?}: {planned:?}"));
        if let Some(base) = &planned.base {
            let content = |at: usize| {
                let walk = self.volumes[at].content_walk(base.id);
                walk.unwrap().finish().unwrap()
            };
            assert_eq!(content(from), content(to), "{base:?}");
        }
        if planned.back {
            let base = planned.base.as_ref().unwrap().id;
            self.engine(to).resync(NAMES[to], base).unwrap();
        }
        let mut base = planned.base.map(|held| held.name);
        for copy in planned.copies {
            let (src, dst) = (&self.volumes[from], &self.volumes[to]);
            let options = SendOptions::default();
            let mut pipe = Pipe::new(src, base.as_deref(), &copy.name, dst, options, 0).unwrap();
            let frames = match self.rng.below(6) {
                0 => 2,
                _ => usize::MAX,
            };
            if pipe.run(frames, 0).unwrap() == Ran::More {
                self.diary.push(format!("cut short before {}", copy.name));
                return;
            }
            base = Some(copy.name);
        }
        self.succeeded += 1;
        self.verify(to);
        // A transfer that reports success has copied the source's content.
        let own = source
            .snapshots
            .iter()
            .rev()
            .find(|s| s.name.contains(&format!("_{}.", self.serial)));
        if let Some(own) = own {
            assert_eq!(
                self.describe(to).exported,
                Some(own.id),
                "the newest state has arrived"
            );
        }
        let (here, there) = plan::let_go(&job, &self.describe(from), &self.describe(to));
        for (at, names) in [(to, here), (from, there)] {
            for name in names {
                match self.volumes[at].snapshot_delete(&name) {
                    Ok(()) | Err(FsError::Busy) => {}
                    Err(e) => panic!("{name}: {e}"),
                }
            }
        }
    }

    /// Checks that all snapshots of a volume have the content of when they were taken.
    fn verify(&self, at: usize) {
        let volume = &self.volumes[at];
        for snapshot in volume.snapshots() {
            let held = dump(&volume.open_snapshot(&snapshot.name).unwrap());
            assert!(
                held == self.taken[&snapshot.identity],
                "{} of {} is not what it was",
                snapshot.name,
                NAMES[at]
            );
        }
        if let Some(exported) = self.describe(at).exported {
            let seen = dump(&volume.serving().unwrap().unwrap());
            assert!(
                seen == self.taken[&exported],
                "clients of {} see something else",
                NAMES[at]
            );
        }
    }

    fn step(&mut self) {
        let at = self.rng.below(3) as usize;
        let other = (at + 1 + self.rng.below(2) as usize) % 3;
        let there = self.describe(at);
        match self.rng.below(10) {
            0..=2 if !there.data_protection => {
                change(&self.volumes[at], &self.rng);
                self.diary.push(format!("write {at}"));
            }
            0..=4 if !there.data_protection => {
                self.serial += 1;
                // Equal names on several sides are normal.
                let name = format!("hourly.{}", self.rng.below(6));
                if self.volumes[at].snapshot(&name).is_none() {
                    self.take(at, &name, "");
                    self.diary.push(format!("snapshot {at} {name}"));
                }
            }
            5 if !there.snapshots.is_empty() => {
                let gone = &there.snapshots[self.rng.below(there.snapshots.len() as u64) as usize];
                let _ = self.volumes[at].snapshot_delete(&gone.name);
                self.diary.push(format!("delete {at} {}", gone.name));
            }
            6 if there.exported.is_some() => {
                self.engine(at).break_off(NAMES[at]).unwrap();
                self.diary.push(format!("break {at}"));
            }
            7 if !there.data_protection => self.transfer(other, at, TransferKind::Resync),
            _ if there.data_protection && there.snapshots.is_empty() => {
                // A source that is itself a copy needs something to show.
                let source = self.describe(other);
                if !source.data_protection || source.exported.is_some() {
                    self.transfer(other, at, TransferKind::Initialize);
                }
            }
            _ if there.data_protection => self.transfer(other, at, TransferKind::Update),
            _ => {}
        }
    }
}

#[test]
fn copies_are_what_their_sources_are_whatever_happened_before() {
    let mut succeeded = 0;
    for seed in 0..60 {
        let mut story = Story::new(seed);
        let run = std::panic::AssertUnwindSafe(|| {
            for _ in 0..60 {
                story.step();
            }
            (0..3).for_each(|at| story.verify(at));
        });
        if std::panic::catch_unwind(run).is_err() {
            panic!("seed {seed}:\n{}", story.diary.join("\n"));
        }
        succeeded += story.succeeded;
    }
    assert!(succeeded > 400, "only {succeeded} transfers went through");
}
