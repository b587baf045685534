//! Stories of replication: a source and a destination, transfers between them, and power failures
//! on either side.
//!
//! Steps change the source, take and delete snapshots on both sides, transfer, break off, change
//! both sides on their own, and make either the other's copy again. A transfer is cut short after
//! any number of frames, by a crash of either machine at any write to its disks, or by damage to
//! the stream; and a stream may be sound and say something else than the source has, which must not
//! be taken for a success. What the planner finds common is what the model says. After each step
//! clients of the destination see its newest complete snapshot and nothing else; every snapshot on
//! either side holds what the model says; offline verification is clean after each crash. A
//! transfer that was cut short goes on no further back than what was known to be durable. At the
//! end everything is deleted, and the space must be what it was.

use std::sync::Arc;

use weir_base::{Ino, SeededRng};
use weir_relations::manager::{Job, Task};
use weir_relations::model::{Path, TransferKind, system_policies};
use weir_relations::plan;
use weir_transfer::batch::Forgery;
use weir_transfer::pipe::{Pipe, Ran};
use weir_transfer::progress::TransferError;
use weir_transfer::send::SendOptions;
use weir_volume::{
    CreateHow, Engine, EngineContext, FsError, SetAttr, SetHow, SetIds, Stability, Stop, Volume,
};

use crate::histories::{BLOCK, CheckResult, Files, contents, find, finish_background_jobs, run};
use crate::machine::{Machine, RunningEngine, Sizes, VOLUME};
use crate::rand::Choices;

/// Name of the destination's volume.
const COPY: &str = "copy";

/// One side: a machine and what its volume should be.
struct Side {
    machine: Machine,
    running: Option<RunningEngine>,
    volume: &'static str,
    files: Files,
    /// Snapshots, oldest first: name and contents.
    snapshots: Vec<(String, Files)>,
    free: u64,
}

/// An attribute of every file: what its blocks hold.
const ATTRIBUTE: &[u8] = b"user.blocks";

fn vol_xattr(vol: &Volume, cx: &mut EngineContext, ino: Ino) -> Result<Vec<u8>, Stop> {
    vol.xattr(cx, ino, ATTRIBUTE)
}

/// A stream of every file, with the same in it.
const STREAM: &[u8] = b"Blocks";

fn vol_stream(vol: &Volume, cx: &mut EngineContext, ino: Ino) -> Result<Vec<u8>, Stop> {
    let attr = vol.stream(cx, ino, STREAM)?.attr;
    let len = usize::try_from(attr.size).unwrap_or(usize::MAX);
    Ok(vol.read(cx, attr.ino, 0, len)?.to_vec())
}

fn set_vol_stream(
    vol: &Volume,
    cx: &mut EngineContext,
    ino: Ino,
    bytes: &[u8],
) -> Result<(), Stop> {
    let stream = match vol.stream(cx, ino, STREAM) {
        Err(Stop::Fail(FsError::NotFound)) => vol.make_stream(cx, ino, STREAM)?.value,
        stream => stream?,
    };
    let cut = SetAttr {
        size: Some(bytes.len() as u64),
        ..SetAttr::default()
    };
    vol.setattr(cx, stream.attr.ino, &cut, None)?;
    vol.write(cx, stream.attr.ino, 0, bytes, Stability::Unstable)?;
    Ok(())
}

impl Side {
    fn new(choices: &Choices, volume: &'static str) -> CheckResult<Side> {
        let machine = Machine::new(Sizes::varied(choices), choices)?;
        let running = machine.boot()?;
        if volume != VOLUME {
            let rng = SeededRng::new(choices.bits());
            let engine = &running.engine;
            let now = machine.current_time();
            let made = engine.create_volume(volume, (0, 0), 0o755, now, &rng);
            made.map_err(|e| e.to_string())?;
            engine.protect(volume).map_err(|e| e.to_string())?;
        }
        finish_background_jobs(&running.engine)?;
        let free = running.engine.aggregate().space().stats().free;
        Ok(Side {
            machine,
            running: Some(running),
            volume,
            files: Files::new(),
            snapshots: Vec::new(),
            free,
        })
    }

    fn engine(&self) -> CheckResult<&Engine> {
        let running = self.running.as_ref();
        running.map(|r| &r.engine).ok_or("it is off".into())
    }

    fn vol(&self) -> CheckResult<Arc<Volume>> {
        let vol = self.engine()?.volume(self.volume);
        vol.ok_or_else(|| format!("{} is gone", self.volume))
    }

    fn crashed(&self) -> bool {
        self.machine.world.crashed()
    }

    /// The power fails, if it has not, and comes back.
    fn restart(&mut self, choices: &Choices) -> CheckResult {
        self.machine.world.crash();
        self.running = None;
        self.machine.reboot(choices);
        let checked = self.machine.check();
        checked.map_err(|e| format!("{} after a crash: {e}", self.volume))?;
        self.running = Some(self.machine.boot()?);
        Ok(())
    }

    fn content(&self, snapshot: &str) -> Option<&Files> {
        let found = self.snapshots.iter().find(|(name, _)| name == snapshot);
        found.map(|(_, files)| files)
    }

    /// Compares all snapshots with the model.
    fn verify(&self) -> CheckResult {
        let vol = self.vol()?;
        let have: Vec<String> = vol.snapshots().into_iter().map(|s| s.name).collect();
        let want: Vec<&String> = self.snapshots.iter().map(|(name, _)| name).collect();
        if have.iter().ne(want.iter().copied()) {
            return Err(format!("{} has {have:?} instead of {want:?}", self.volume));
        }
        for (name, files) in &self.snapshots {
            let view = vol.open_snapshot(name).map_err(|e| e.to_string())?;
            let got = contents(&view).map_err(|e| format!("{}@{name}: {e}", self.volume))?;
            for (file, blocks) in &got {
                let of = find(&view, file);
                let value = of.and_then(|ino| run(&view, |cx| vol_xattr(&view, cx, ino)));
                let beside = of.and_then(|ino| run(&view, |cx| vol_stream(&view, cx, ino)));
                if value.as_ref() != Ok(blocks) || beside.as_ref() != Ok(blocks) {
                    return Err(format!("{}@{name}/{file} has {value:?}", self.volume));
                }
            }
            if got != *files {
                return Err(format!("{}@{name} is {got:?}, not {files:?}", self.volume));
            }
        }
        Ok(())
    }

    /// Returns a side as the planner sees it.
    fn described(&self) -> CheckResult<plan::Volume> {
        let vol = self.vol()?;
        let snapshots = vol.snapshots();
        let mirror = vol.mirror();
        let exported = mirror.as_ref().and_then(|m| m.exported);
        let exported = snapshots.iter().find(|s| Some(s.id) == exported);
        Ok(plan::Volume {
            size: None,
            data_protection: mirror.is_some(),
            exported: exported.map(|s| s.identity),
            snapshots: snapshots
                .iter()
                .map(|s| plan::Snapshot {
                    name: s.name.clone(),
                    label: s.label.clone(),
                    id: s.identity,
                    created: s.created.secs,
                })
                .collect(),
            ..plan::Volume::default()
        })
    }

    /// Goes back to a snapshot and becomes a copy.
    fn go_back(&mut self, name: &str) -> CheckResult {
        let there = self.vol()?.snapshot(name);
        let there = there.ok_or_else(|| format!("{name} is gone"))?.identity;
        let result = self.engine()?.resync(self.volume, there);
        result.map_err(|e| format!("resync of {} to {name}: {e}", self.volume))?;
        let at = self.snapshots.iter().position(|(n, _)| n == name);
        self.snapshots.truncate(at.map_or(0, |at| at + 1));
        Ok(())
    }

    /// Deletes all that was made; the space must be what it was.
    fn end(mut self) -> CheckResult {
        let engine = self.engine()?;
        if self.volume == VOLUME && !self.vol()?.protected() {
            let vol = self.vol()?;
            for s in vol.snapshots() {
                vol.snapshot_delete(&s.name).map_err(|e| e.to_string())?;
            }
            for name in contents(&vol)?.into_keys() {
                let gone = run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes()));
                gone.map_err(|e| e.to_string())?;
            }
        } else {
            engine
                .delete_volume(self.volume)
                .map_err(|e| e.to_string())?;
        }
        finish_background_jobs(engine)?;
        let free = engine.aggregate().space().stats().free;
        if free + 8 < self.free {
            let (volume, before) = (self.volume, self.free);
            return Err(format!("{volume}: {free} blocks are free of {before}"));
        }
        self.running = None;
        self.machine.check()
    }
}

struct Story<'a> {
    choices: &'a Choices,
    src: Side,
    dst: Side,
    /// True if the destination can be written to.
    broken: bool,
    /// Name of the snapshot that clients of the destination see.
    exported: Option<String>,
    /// Snapshot that a transfer brings, and the number of its bytes that are durable.
    durable: (String, u64),
    /// True if data that the transfer has brought may differ from the source's.
    tainted: bool,
    serial: u32,
    diary: &'a mut Vec<String>,
}

/// Runs the story that `seed` determines.
///
/// # Errors
/// What was wrong, with the last things that happened.
pub fn story(seed: u64) -> CheckResult {
    let mut diary = Vec::new();
    let choices = Choices::new(seed);
    tell(&choices, &mut diary).map_err(|what| {
        let last = diary.len().saturating_sub(30);
        format!("{what}\nlast events:\n{}", diary[last..].join("\n"))
    })
}

fn tell(choices: &Choices, diary: &mut Vec<String>) -> CheckResult {
    let mut story = Story {
        src: Side::new(choices, VOLUME)?,
        dst: Side::new(choices, COPY)?,
        choices,
        broken: false,
        exported: None,
        durable: (String::new(), 0),
        tainted: false,
        serial: 0,
        diary,
    };
    for _ in 0..choices.between(20, 90) {
        story.step()?;
        story.observe()?;
    }
    let Story { src, dst, .. } = story;
    src.end()?;
    dst.end()
}

fn refused(e: FsError) -> bool {
    matches!(e, FsError::ReadOnly | FsError::Io | FsError::Delay)
}

impl Story<'_> {
    fn note(&mut self, what: String) {
        self.diary.push(what);
    }

    /// Checks the state that clients see, and now and then everything.
    fn observe(&mut self) -> CheckResult {
        let dst = self.dst.vol()?;
        let want = match (&self.exported, self.broken) {
            (_, true) => Some(&self.dst.files),
            (Some(name), false) => self.dst.content(name),
            (None, false) => None,
        };
        let got = match dst.serving() {
            Ok(Some(view)) => Some(contents(&view)?),
            Ok(None) if self.broken => Some(contents(&dst)?),
            Err(Stop::Fail(FsError::Access)) => None,
            other => return Err(format!("clients see {:?}", other.map(|_| ()))),
        };
        if got.as_ref() != want {
            return Err(format!("clients see {got:?} instead of {want:?}"));
        }
        if self.choices.chance(1, 6) {
            self.src.verify()?;
            self.dst.verify()?;
            let source = self.src.vol()?;
            let live = contents(&source)?;
            if live != self.src.files {
                return Err(format!("the source is {live:?}, not {:?}", self.src.files));
            }
        }
        Ok(())
    }

    fn step(&mut self) -> CheckResult {
        match self
            .choices
            .weighted(&[14, 6, 10, 3, 3, 2, 2, 3, 2, 3, 2, 3])
        {
            0 => self.write(false),
            1 => self.snapshot(false),
            2 => self.transfer(),
            3 => self.delete(false),
            4 => self.delete(true),
            5 if !self.broken => self.break_off(),
            5 | 6 if self.broken => self.resync(),
            7 if self.broken => self.write(true),
            9 if self.broken => self.snapshot(true),
            10 if self.broken => self.reverse(),
            11 if !self.broken => self.snapshot_of_copy(),
            8 => {
                let crash_source = self.choices.chance(1, 2);
                self.note(format!("crash, source: {crash_source}"));
                match crash_source {
                    true => self.src.restart(self.choices),
                    false => self.dst.restart(self.choices),
                }
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, at_copy: bool) -> CheckResult {
        let choices = self.choices;
        let side = match at_copy {
            true => &mut self.dst,
            false => &mut self.src,
        };
        let vol = side.vol()?;
        let name = format!("f{}", choices.below(8));
        let failed = |e: FsError| format!("write {name}: {e}");
        if choices.chance(1, 8) && side.files.contains_key(&name) {
            run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).map_err(failed)?;
            side.files.remove(&name);
        } else {
            let set = SetAttr::default();
            run(&vol, |cx| {
                vol.create(cx, vol.root(), name.as_bytes(), CreateHow::Unchecked, &set)
            })
            .map_err(failed)?;
            let blocks = side.files.entry(name.clone()).or_default();
            if choices.chance(1, 5) {
                let size = choices.index(blocks.len() + 1);
                let set = SetAttr {
                    size: Some((size * BLOCK) as u64),
                    ..SetAttr::default()
                };
                let ino = find(&vol, &name).map_err(failed)?;
                run(&vol, |cx| vol.setattr(cx, ino, &set, None)).map_err(failed)?;
                blocks.truncate(size);
            }
            let at = choices.index(blocks.len() + 20);
            let len = choices.between(1, 40) as usize;
            let byte = choices.between(1, 255) as u8;
            blocks.resize(blocks.len().max(at + len), 0);
            blocks[at..at + len].fill(byte);
            let ino = find(&vol, &name).map_err(failed)?;
            let data = vec![byte; len * BLOCK];
            let off = (at * BLOCK) as u64;
            run(&vol, |cx| {
                vol.write(cx, ino, off, &data, Stability::FileSync)
            })
            .map_err(failed)?;
            if choices.chance(1, 3) {
                let (at, len) = (choices.index(blocks.len()), choices.between(1, 40) as usize);
                let end = blocks.len().min(at + len);
                blocks[at..end].fill(0);
                let (off, len) = ((at * BLOCK) as u64, (len * BLOCK) as u64);
                run(&vol, |cx| vol.punch(cx, ino, off, len)).map_err(failed)?;
            }
            if choices.chance(1, 2) {
                // Within the file, so that its attribute stays all that says what is in it.
                let first = choices.index(blocks.len());
                let len = choices.between(1, 40) as usize;
                let len = len.min(blocks.len() - first);
                let at = choices.index(blocks.len() + 20);
                if first.abs_diff(at) >= len {
                    let piece = blocks[first..first + len].to_vec();
                    blocks.resize(blocks.len().max(at + len), 0);
                    blocks[at..at + len].copy_from_slice(&piece);
                    let from = (ino, (first * BLOCK) as u64);
                    let (to, len) = ((ino, (at * BLOCK) as u64), (len * BLOCK) as u64);
                    let clone =
                        |cx: &mut EngineContext| vol.clone_range(SetIds::Keep, cx, from, to, len);
                    run(&vol, clone).map_err(failed)?;
                }
            }
            run(&vol, |cx| {
                vol.set_xattr(cx, ino, ATTRIBUTE, Some(&**blocks), SetHow::Either)
            })
            .map_err(failed)?;
            run(&vol, |cx| set_vol_stream(&vol, cx, ino, blocks)).map_err(failed)?;
        }
        // So that a crash does not take it back.
        side.engine()?.cp_now().map_err(failed)?;
        self.note(format!("write {name}, copy: {at_copy}"));
        Ok(())
    }

    fn snapshot(&mut self, at_copy: bool) -> CheckResult {
        self.serial += 1;
        let name = format!("s{}", self.serial);
        let side = match at_copy {
            true => &mut self.dst,
            false => &mut self.src,
        };
        let made = side
            .vol()?
            .snapshot_take(&name, "", side.machine.current_time());
        made.map_err(|e| format!("snapshot: {e}"))?;
        let files = side.files.clone();
        side.snapshots.push((name.clone(), files));
        self.note(format!("snapshot {name}, copy: {at_copy}"));
        Ok(())
    }

    /// Takes a snapshot of the state that clients of the destination see. This fails while a
    /// transfer has arrived in part, and if clients see nothing.
    fn snapshot_of_copy(&mut self) -> CheckResult {
        self.serial += 1;
        let name = format!("c{}", self.serial);
        let (vol, now) = (self.dst.vol()?, self.dst.machine.current_time());
        let partial = vol.mirror().and_then(|mirror| mirror.partial).is_some();
        let made = vol.snapshot_take_of_copy(&name, "", now);
        match (made, &self.exported) {
            (Err(FsError::Busy), _) if partial => return Ok(()),
            (Err(FsError::Invalid), None) => return Ok(()),
            (Ok(_), Some(seen)) if !partial => {
                let files = self.dst.content(seen).cloned().unwrap_or_default();
                self.dst.snapshots.push((name.clone(), files));
            }
            (made, seen) => return Err(format!("snapshot of a copy at {seen:?}: {made:?}")),
        }
        self.note(format!("snapshot {name} of what is seen"));
        Ok(())
    }

    fn delete(&mut self, at_copy: bool) -> CheckResult {
        let side = match at_copy {
            true => &mut self.dst,
            false => &mut self.src,
        };
        if side.snapshots.is_empty() {
            return Ok(());
        }
        let at = self.choices.index(side.snapshots.len());
        let name = side.snapshots[at].0.clone();
        let pinned = at_copy && !self.broken && self.exported.as_ref() == Some(&name);
        let result = side.vol()?.snapshot_delete(&name);
        match (result, pinned) {
            (Ok(()), false) => drop(side.snapshots.remove(at)),
            (Err(FsError::Busy), true) => {}
            (result, _) => return Err(format!("delete {name}: {result:?}")),
        }
        self.note(format!("delete {name}, copy: {at_copy}"));
        Ok(())
    }

    fn break_off(&mut self) -> CheckResult {
        let result = self.dst.engine()?.break_off(self.dst.volume);
        match (&self.exported, result) {
            (None, Err(FsError::Invalid)) => Ok(()),
            (Some(name), Ok(())) => {
                let files = self.dst.content(name).cloned().unwrap_or_default();
                self.dst.files = files;
                self.broken = true;
                self.begin_anew();
                self.note("break".into());
                Ok(())
            }
            (exported, result) => Err(format!("break at {exported:?}: {result:?}")),
        }
    }

    /// Forgets the data that a transfer may have brought.
    fn begin_anew(&mut self) {
        self.durable = (String::new(), 0);
        self.tainted = false;
    }

    /// Names of the snapshots that both have, in the source's order.
    fn common(&self) -> Vec<String> {
        let names = self.src.snapshots.iter().map(|(name, _)| name);
        names
            .filter(|name| self.dst.content(name).is_some())
            .cloned()
            .collect()
    }

    /// Checks that the planner would make the destination a copy again as the model says.
    fn planned(&self) -> CheckResult {
        let mut policies = system_policies().into_iter();
        let policy = policies.rfind(|p| p.name == "MirrorAllSnapshots");
        let job = Job {
            id: 1,
            relationship: "r".to_owned(),
            task: Task::Transfer(TransferKind::Resync),
            source: Path::local("s", "from"),
            destination: Path::local("s", "to"),
            policy: policy.ok_or("there is no such policy")?,
            source_snapshot: None,
            throttle: None,
            files: Vec::new(),
            arrived: false,
            anew: false,
            serial: 1,
        };
        let (from, to) = (self.src.described()?, self.dst.described()?);
        let planned = plan::plan(&job, &from, &to, None);
        let common = self.common().pop();
        let base = match &planned {
            Ok(planned) => planned.base.as_ref().map(|held| held.name.clone()),
            Err(_) => None,
        };
        if base != common {
            return Err(format!("{planned:?} is planned, {common:?} is common"));
        }
        let Ok(planned) = planned else {
            return Ok(());
        };
        let names = self.src.snapshots.iter().map(|(name, _)| name);
        let newer = names
            .skip_while(|name| Some(*name) != common.as_ref())
            .skip(1);
        match planned.copies.iter().map(|held| &held.name).eq(newer) {
            true => Ok(()),
            false => Err(format!("{planned:?} leaves something out")),
        }
    }

    fn resync(&mut self) -> CheckResult {
        self.planned()?;
        let both = self.common();
        if both.is_empty() {
            return Ok(());
        }
        let name = self.choices.pick(&both).clone();
        self.dst.go_back(&name)?;
        self.note(format!("resync to {name}"));
        self.exported = Some(name);
        self.broken = false;
        self.begin_anew();
        Ok(())
    }

    /// The source becomes the copy of what was its copy.
    fn reverse(&mut self) -> CheckResult {
        self.planned()?;
        let both = self.common();
        if both.is_empty() {
            return Ok(());
        }
        let name = self.choices.pick(&both).clone();
        self.src.go_back(&name)?;
        std::mem::swap(&mut self.src, &mut self.dst);
        self.note(format!("the other way round, from {name}"));
        self.exported = Some(name);
        self.broken = false;
        self.begin_anew();
        Ok(())
    }

    fn transfer(&mut self) -> CheckResult {
        let choices = self.choices;
        let begin = match &self.exported {
            None => 0,
            Some(name) => match self.src.snapshots.iter().position(|(n, _)| n == name) {
                Some(at) => at + 1,
                // There is nothing in common any more.
                None => return Ok(()),
            },
        };
        let newer = &self.src.snapshots[begin.min(self.src.snapshots.len())..];
        if self.broken || newer.is_empty() {
            return Ok(());
        }
        // Mostly the one that was begun with.
        let begun = newer.iter().find(|(name, _)| *name == self.durable.0);
        let (target, files) = match begun {
            Some(begun) if choices.chance(4, 5) => begun.clone(),
            _ => choices.pick(newer).clone(),
        };
        if target != self.durable.0 {
            self.begin_anew();
            self.durable = (target.clone(), 0);
        }
        self.note(format!("transfer {target} onto {:?}", self.exported));
        let fate = choices.below(6);
        match fate {
            0 => {
                let at = self.src.machine.world.counts().events + choices.between(1, 40);
                self.src.machine.world.crash_at(at);
            }
            1 => {
                let at = self.dst.machine.world.counts().events + choices.between(1, 80);
                self.dst.machine.world.crash_at(at);
            }
            _ => {}
        }
        let damaged = (fate == 2).then(|| choices.below(12));
        let forgeries = [Forgery::Attributes, Forgery::Contents, Forgery::Omission];
        let forged = (fate == 3).then(|| *choices.pick(&forgeries));
        let ran = self.attempt(&target, damaged, forged);
        let arrived = |story: &mut Self| {
            story.dst.snapshots.push((target.clone(), files.clone()));
            story.exported = Some(target.clone());
            story.begin_anew();
        };
        match ran? {
            Ok(true) => arrived(self),
            Ok(false) => self.note("cut short".into()),
            Err(TransferError::Different(found)) if self.tainted => {
                self.note(format!("not proven: {found}"));
                self.begin_anew();
            }
            Err(e) if damaged.is_some() => self.note(format!("damaged: {e}")),
            Err(e) if self.src.crashed() || self.dst.crashed() => {
                // What was found to differ may have been discarded before the power failed.
                if self.tainted {
                    self.durable.1 = 0;
                }
                self.note(format!("the power failed: {e}"));
            }
            Err(e) => return Err(format!("transfer {target}: {e}")),
        }
        if self.src.crashed() {
            self.src.restart(choices)?;
        }
        self.src.machine.world.crash_at(u64::MAX);
        if self.dst.crashed() {
            self.dst.restart(choices)?;
            // It may have arrived all the same.
            let there = self.dst.vol()?.snapshot(&target).is_some();
            if there && self.exported.as_ref() != Some(&target) {
                arrived(self);
            }
        }
        self.dst.machine.world.crash_at(u64::MAX);
        Ok(())
    }

    /// Transfers for a while; returns whether all has arrived.
    fn attempt(
        &mut self,
        target: &str,
        damaged: Option<u64>,
        forged: Option<Forgery>,
    ) -> CheckResult<Result<bool, TransferError>> {
        let choices = self.choices;
        let (src, dst) = (self.src.vol()?, self.dst.vol()?);
        let base = self.exported.as_deref();
        let options = SendOptions {
            compress: choices.chance(1, 3).then_some(1),
            count: choices.chance(1, 4),
        };
        let mut pipe = match Pipe::new(&src, base, target, &dst, options, 0) {
            Ok(pipe) => pipe,
            Err(e) => return Ok(Err(e)),
        };
        pipe.forger.how = forged;
        let known = self.durable.1;
        let mut frame = 0;
        for _ in 0..choices.between(1, 6) {
            for _ in 0..choices.between(1, 8) {
                let ran = pipe.step(0, &mut |bytes| {
                    if damaged == Some(frame) && !bytes.is_empty() {
                        let at = choices.index(bytes.len());
                        bytes[at] ^= 1 << choices.below(8);
                    }
                    frame += 1;
                });
                self.tainted |= pipe.forger.forged;
                let progress = pipe.receiver.progress();
                if frame > 1 && progress.resumed < known && ran.is_ok() {
                    return Err(format!("went on at {} of {known}", progress.resumed));
                }
                match ran {
                    // Leaving out what is the same but for its place on the device leaves out
                    // nothing.
                    Ok(Ran::Done { .. })
                        if pipe.forger.forged && forged != Some(Forgery::Omission) =>
                    {
                        return Err(format!("{forged:?} was taken for {target}"));
                    }
                    Ok(Ran::Done { .. }) => return Ok(Ok(true)),
                    Ok(Ran::More) => {}
                    Err(e) => return Ok(Err(e)),
                }
            }
            if choices.chance(1, 2) {
                let durable = pipe.receiver.progress().logical;
                match self.dst.engine()?.cp_now() {
                    Ok(()) => self.durable.1 = durable,
                    Err(e) if refused(e) => return Ok(Err(e.into())),
                    Err(e) => return Err(format!("checkpoint: {e}")),
                }
            }
        }
        Ok(Ok(false))
    }
}
