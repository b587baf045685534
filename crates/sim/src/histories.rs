//! Stories of volumes as a whole: snapshots, clones, reverts, splits and deletions, with power
//! failures.
//!
//! Each life of the machine performs random steps on random volumes until the power fails, at any
//! write to a disk or between steps. What was acknowledged is certain; the step in which the power
//! failed has happened wholly or not at all. After each start all volumes and all snapshots hold
//! what the model says, and offline verification agrees with every sum that is kept. At the end
//! everything is deleted, and the space must be what it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::Ino;
use weir_volume::{
    CreateHow, DirEntry, Engine, EngineContext, FsError, ReadDirLimit, SetAttr, SetIds, Stability,
    Stop, Volume,
};

use crate::machine::{Machine, Sizes, VOLUME};
use crate::rand::Choices;

/// The error says what is wrong.
pub type CheckResult<T = ()> = Result<T, String>;

/// First bytes of a file's blocks; a block has one byte throughout.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A volume, as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Branch {
    files: Files,
    /// Name, label, contents, oldest first.
    snapshots: Vec<(String, String, Files)>,
    origin: Option<(String, String)>,
}

/// All volumes by name.
type State = BTreeMap<String, Branch>;

/// Bytes of a block, all of which are the same.
pub const BLOCK: usize = 4096;

/// Runs an operation to its end.
///
/// # Errors
/// What the volume returns.
pub fn run<T>(
    vol: &Volume,
    op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
) -> Result<T, FsError> {
    let now = weir_base::Time { secs: 1, nanos: 0 };
    vol.drive_blocking(&mut EngineContext::new(now), op)
}

pub(crate) fn find(vol: &Volume, name: &str) -> Result<Ino, FsError> {
    run(vol, |cx| vol.lookup(cx, vol.root(), name.as_bytes())).map(|found| found.ino)
}

/// Returns the files of a volume without folders.
///
/// # Errors
/// It cannot be read, or a block is torn.
pub fn contents(vol: &Volume) -> CheckResult<Files> {
    let failed = |e: FsError| format!("cannot be read: {e}");
    let limit = ReadDirLimit {
        entries: 1000,
        bytes: 1 << 20,
        attrs: false,
    };
    let mut names: Vec<String> = Vec::new();
    run(vol, |cx| {
        names.clear();
        vol.readdir(cx, vol.root(), 2, limit, &mut |e: &DirEntry<'_>| {
            names.push(String::from_utf8_lossy(e.name).into_owned());
            true
        })
    })
    .map_err(failed)?;
    let mut files = Files::new();
    for name in names {
        let ino = find(vol, &name).map_err(failed)?;
        let bytes = run(vol, |cx| vol.read(cx, ino, 0, 1 << 20)).map_err(failed)?;
        let bytes = bytes.to_vec();
        let mut blocks = Vec::new();
        for block in bytes.chunks(BLOCK) {
            if block.iter().any(|b| *b != block[0]) {
                return Err(format!("a torn block in {name}"));
            }
            blocks.push(block[0]);
        }
        files.insert(name, blocks);
    }
    Ok(files)
}

/// Returns the state of all volumes of the engine.
fn observe(engine: &Engine) -> CheckResult<State> {
    let mut state = State::new();
    let names: BTreeMap<_, String> = engine
        .volumes()
        .iter()
        .map(|v| (v.id(), v.name().to_owned()))
        .collect();
    for vol in engine.volumes() {
        let mut branch = Branch {
            files: contents(&vol).map_err(|e| format!("{}: {e}", vol.name()))?,
            ..Branch::default()
        };
        for s in vol.snapshots() {
            let view = vol.open_snapshot(&s.name).map_err(|e| e.to_string())?;
            let files = contents(&view).map_err(|e| format!("{}@{}: {e}", vol.name(), s.name))?;
            branch.snapshots.push((s.name, s.label, files));
        }
        if let Some((volume, snapshot)) = vol.origin() {
            let parent = names.get(&volume).cloned().unwrap_or_default();
            let all = engine
                .volume(&parent)
                .map(|p| p.snapshots())
                .unwrap_or_default();
            let name = all.into_iter().find(|s| s.id == snapshot).map(|s| s.name);
            branch.origin = Some((parent, name.unwrap_or_default()));
        }
        state.insert(vol.name().to_owned(), branch);
    }
    Ok(state)
}

fn differences(got: &State, want: &State) -> String {
    let mut out = String::new();
    for name in got.keys().chain(want.keys()) {
        if got.get(name) != want.get(name) {
            out += &format!(
                "{name}:\n  is     {:?}\n  should {:?}\n",
                got.get(name),
                want.get(name)
            );
        }
    }
    out
}

/// Outcome of an operation.
enum Outcome {
    /// The operation succeeded; this is the state now.
    Done(State),
    /// The engine refused the operation rightly, or there was nothing to do.
    Nothing,
    /// The operation failed with the power; this may be the state now.
    Doubt(State, FsError),
    /// The operation returned a wrong result.
    Wrong(String),
}

struct Steps<'a> {
    engine: &'a Engine,
    state: &'a State,
    choices: &'a Choices,
    serial: &'a mut u32,
}

impl Steps<'_> {
    fn name(&mut self, kind: &str) -> String {
        *self.serial += 1;
        format!("{kind}{}", self.serial)
    }

    /// A clone depends on this snapshot.
    fn pinned(&self, volume: &str, snapshot: &str) -> bool {
        let origin = Some((volume.to_owned(), snapshot.to_owned()));
        self.state.values().any(|b| b.origin == origin)
    }

    /// Compares a result with what it should be: `refused`, or this state.
    fn judge(
        &self,
        result: Result<(), FsError>,
        refused: Option<FsError>,
        after: State,
    ) -> Outcome {
        match (result, refused) {
            (Ok(()), None) => Outcome::Done(after),
            (Err(e), Some(r)) if e == r => Outcome::Nothing,
            (Err(e @ (FsError::ReadOnly | FsError::Io)), None) => Outcome::Doubt(after, e),
            (Err(FsError::ReadOnly | FsError::Io), Some(_)) => Outcome::Nothing,
            (result, refused) => Outcome::Wrong(format!("{result:?} instead of {refused:?}")),
        }
    }

    fn step(&mut self) -> (String, Outcome) {
        let choices = self.choices;
        let all: Vec<&String> = self.state.keys().collect();
        let volume = (*choices.pick(&all)).clone();
        let Some(vol) = self.engine.volume(&volume) else {
            return (volume.clone(), Outcome::Wrong("the volume is gone".into()));
        };
        let mut after = self.state.clone();
        let Some(branch) = after.get_mut(&volume) else {
            return (volume, Outcome::Nothing);
        };
        let snapshots = branch.snapshots.len();
        let at = choices.index(snapshots);
        let snapshot = branch.snapshots.get(at).map(|s| s.0.clone());
        match choices.weighted(&[12, 6, 2, 8, 5, 2, 2, 3, 2, 2, 6]) {
            0 => self.write(&vol, after),
            1 => {
                let name = format!("f{}", choices.below(6));
                let what = format!("create {volume}/{name}");
                if branch.files.contains_key(&name) {
                    return (what, Outcome::Nothing);
                }
                branch.files.insert(name.clone(), Vec::new());
                let set = SetAttr::default();
                let result = run(&vol, |cx| {
                    vol.create(cx, vol.root(), name.as_bytes(), CreateHow::Guarded, &set)
                });
                let result = result.and_then(|done| self.engine.wait_durable(done.lsn));
                (what, self.judge(result, None, after))
            }
            2 => {
                let Some(name) = branch.files.keys().next().cloned() else {
                    return ("remove".into(), Outcome::Nothing);
                };
                branch.files.remove(&name);
                let result = run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes()));
                let result = result.and_then(|done| self.engine.wait_durable(done.lsn));
                (
                    format!("remove {volume}/{name}"),
                    self.judge(result, None, after),
                )
            }
            3 => {
                let (name, label) = (self.name("s"), format!("l{}", choices.below(3)));
                let files = branch.files.clone();
                branch.snapshots.push((name.clone(), label.clone(), files));
                let busy = vol.splitting().then_some(FsError::Busy);
                let now = weir_base::Time { secs: 2, nanos: 0 };
                let result = vol.snapshot_take(&name, &label, now).map(|_| ());
                (
                    format!("snapshot {volume}@{name}"),
                    self.judge(result, busy, after),
                )
            }
            4 => {
                let Some(name) = snapshot else {
                    return ("delete snapshot".into(), Outcome::Nothing);
                };
                branch.snapshots.remove(at);
                let busy = self.pinned(&volume, &name).then_some(FsError::Busy);
                let result = vol.snapshot_delete(&name);
                (
                    format!("delete {volume}@{name}"),
                    self.judge(result, busy, after),
                )
            }
            5 => {
                let Some(name) = snapshot else {
                    return ("rename snapshot".into(), Outcome::Nothing);
                };
                let to = self.name("r");
                let what = format!("rename {volume}@{name} to {to}");
                let old = Some((volume.clone(), name.clone()));
                for other in after.values_mut().filter(|b| b.origin == old) {
                    other.origin = Some((volume.clone(), to.clone()));
                }
                if let Some(s) = after.get_mut(&volume).and_then(|b| b.snapshots.get_mut(at)) {
                    s.0.clone_from(&to);
                }
                let result = vol.snapshot_rename(&name, &to);
                (what, self.judge(result, None, after))
            }
            6 => {
                let Some(name) = snapshot else {
                    return ("revert".into(), Outcome::Nothing);
                };
                let later = branch.snapshots.split_off(at + 1);
                branch.files = branch.snapshots[at].2.clone();
                let pinned = later.iter().any(|s| self.pinned(&volume, &s.0));
                let busy = (pinned || vol.splitting()).then_some(FsError::Busy);
                let result = self.engine.revert(&volume, &name);
                (
                    format!("revert {volume} to {name}"),
                    self.judge(result, busy, after),
                )
            }
            7 => {
                let Some(name) = snapshot.filter(|_| self.state.len() < 6) else {
                    return ("clone".into(), Outcome::Nothing);
                };
                let copy = self.name("c");
                let new = Branch {
                    files: branch.snapshots[at].2.clone(),
                    snapshots: Vec::new(),
                    origin: Some((volume.clone(), name.clone())),
                };
                after.insert(copy.clone(), new);
                let result = self.engine.clone_volume(&volume, &name, &copy);
                let what = format!("clone {volume}@{name} as {copy}");
                (what, self.judge(result.map(|_| ()), None, after))
            }
            8 => {
                let split = branch.origin.is_some() && !vol.splitting();
                let busy = (split && snapshots > 0).then_some(FsError::Busy);
                // When it is over is noticed later.
                let result = self.engine.split_clone(&volume);
                (format!("split {volume}"), self.judge(result, busy, after))
            }
            9 if volume != VOLUME => {
                after.remove(&volume);
                let names = &self.state[&volume].snapshots;
                let pinned = names.iter().any(|s| self.pinned(&volume, &s.0));
                let busy = pinned.then_some(FsError::Busy);
                let result = self.engine.delete_volume(&volume);
                (format!("delete {volume}"), self.judge(result, busy, after))
            }
            _ => {
                let result = self.engine.cp_now();
                ("checkpoint".into(), self.judge(result, None, after))
            }
        }
    }

    fn write(&self, vol: &Arc<Volume>, mut after: State) -> (String, Outcome) {
        let choices = self.choices;
        let volume = vol.name();
        let Some(branch) = after.get_mut(volume) else {
            return ("write".into(), Outcome::Nothing);
        };
        let names: Vec<String> = branch.files.keys().cloned().collect();
        if names.is_empty() {
            return ("write".into(), Outcome::Nothing);
        }
        let name = choices.pick(&names);
        let blocks = branch.files.entry(name.clone()).or_default();
        let at = choices.index(blocks.len() + 1);
        let len = choices.between(1, 14) as usize;
        if at < blocks.len() && choices.chance(1, 4) {
            let end = blocks.len().min(at + len);
            blocks[at..end].fill(0);
            let result = find(vol, name).and_then(|ino| {
                let (off, len) = ((at * BLOCK) as u64, (len * BLOCK) as u64);
                let done = run(vol, |cx| vol.punch(cx, ino, off, len))?;
                self.engine.wait_durable(done.lsn)
            });
            let what = format!("punch {volume}/{name} {at}+{len}");
            return (what, self.judge(result, None, after));
        }
        if choices.chance(1, 3) {
            return self.clone_range(vol, name, after);
        }
        let byte = choices.between(1, 255) as u8;
        blocks.resize(blocks.len().max(at + len), 0);
        blocks[at..at + len].fill(byte);
        let data = vec![byte; len * BLOCK];
        let result = find(vol, name).and_then(|ino| {
            let off = (at * BLOCK) as u64;
            let done = run(vol, |cx| {
                vol.write(cx, ino, off, &data, Stability::FileSync)
            })?;
            self.engine.wait_durable(done.lsn)
        });
        (
            format!("write {volume}/{name} {at}+{len}"),
            self.judge(result, None, after),
        )
    }
}

impl Steps<'_> {
    /// Clones blocks of a file to another, or elsewhere in itself.
    fn clone_range(&self, vol: &Arc<Volume>, from: &str, mut after: State) -> (String, Outcome) {
        let choices = self.choices;
        let volume = vol.name();
        let files = after.get_mut(volume).map(|branch| &mut branch.files);
        let Some((source, files)) = files.and_then(|f| Some((f.get(from)?.clone(), f))) else {
            return ("clone range".into(), Outcome::Nothing);
        };
        let names: Vec<String> = files.keys().cloned().collect();
        let to = choices.pick(&names).clone();
        let blocks = files.entry(to.clone()).or_default();
        let first = choices.index(source.len() + 1);
        let len = choices.index(source.len() - first + 1);
        let at = choices.index(blocks.len() + 3);
        if len == 0 || to == from && first.abs_diff(at) < len {
            return ("clone range".into(), Outcome::Nothing);
        }
        blocks.resize(blocks.len().max(at + len), 0);
        blocks[at..at + len].copy_from_slice(&source[first..first + len]);
        let result = find(vol, from).and_then(|source| {
            let from = (source, (first * BLOCK) as u64);
            let to = (find(vol, &to)?, (at * BLOCK) as u64);
            let done = run(vol, |cx| {
                vol.clone_range(SetIds::Keep, cx, from, to, (len * BLOCK) as u64)
            })?;
            self.engine.wait_durable(done.lsn)
        });
        let what = format!("clone {volume}/{from} {first}+{len} to {to} {at}");
        (what, self.judge(result, None, after))
    }
}

/// Notes the volumes that have been split off: they depend on nothing any more.
fn note_splits(engine: &Engine, state: &mut State) {
    for (name, branch) in state {
        if engine.volume(name).is_some_and(|v| v.origin().is_none()) {
            branch.origin = None;
        }
    }
}

/// Runs the story that `seed` determines.
///
/// # Errors
/// What was wrong, with the last things that happened.
pub fn story(seed: u64) -> CheckResult {
    let mut diary = Vec::new();
    tell(seed, &mut diary).map_err(|what| {
        let last = diary.len().saturating_sub(30);
        format!("{what}\nlast events:\n{}", diary[last..].join("\n"))
    })
}

pub(crate) fn finish_background_jobs(engine: &Engine) -> CheckResult {
    loop {
        engine.cp_now().map_err(|e| e.to_string())?;
        let splitting = engine.volumes().iter().any(|v| v.splitting());
        if !engine.reclaiming() && !splitting {
            break;
        }
    }
    // What was freed last becomes available with the next ones.
    for _ in 0..3 {
        engine.cp_now().map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn tell(seed: u64, diary: &mut Vec<String>) -> CheckResult {
    let choices = Choices::new(seed);
    let mut machine = Machine::new(Sizes::varied(&choices), &choices)?;
    let mut state = State::from([(VOLUME.to_owned(), Branch::default())]);
    let mut serial = 0;
    let empty = {
        let running = machine.boot()?;
        finish_background_jobs(&running.engine)?;
        running.engine.aggregate().space().stats().free
    };
    let lives = choices.between(2, 5);
    let mut doubt: Option<State> = None;
    for life in 0..=lives {
        diary.push(format!("--- life {life}"));
        let running = machine.boot()?;
        let engine = &running.engine;
        let got = observe(engine)?;
        note_splits(engine, &mut state);
        if got != state {
            match doubt.take().map(|mut other| {
                note_splits(engine, &mut other);
                other
            }) {
                Some(other) if got == other => state = other,
                _ => return Err(format!("after a start:\n{}", differences(&got, &state))),
            }
        }
        doubt = None;
        if life == lives {
            end(engine, &mut state)?;
            let free = engine.aggregate().space().stats().free;
            if free + 8 < empty {
                return Err(format!("{free} blocks are free of {empty}"));
            }
            drop(running);
            return machine.check();
        }
        if choices.chance(3, 4) {
            let at = machine.world.counts().events + choices.between(1, 600);
            machine.world.crash_at(at);
        }
        for _ in 0..choices.between(10, 120) {
            let mut steps = Steps {
                engine,
                state: &state,
                choices: &choices,
                serial: &mut serial,
            };
            let (what, outcome) = steps.step();
            diary.push(what.clone());
            match outcome {
                Outcome::Done(after) => state = after,
                Outcome::Nothing => {}
                Outcome::Doubt(after, e) if machine.world.crashed() => {
                    diary.push(format!("the power is off: {e}"));
                    doubt = Some(after);
                }
                Outcome::Doubt(_, e) => return Err(format!("{what}: {e}")),
                Outcome::Wrong(e) => return Err(format!("{what}: {e}")),
            }
            if machine.world.crashed() {
                break;
            }
            note_splits(engine, &mut state);
            if choices.chance(1, 12) {
                let got = observe(engine);
                if machine.world.crashed() {
                    break;
                }
                note_splits(engine, &mut state);
                let got = got?;
                if got != state {
                    return Err(format!("after {what}:\n{}", differences(&got, &state)));
                }
            }
        }
        machine.world.crash();
        drop(running);
        machine.reboot(&choices);
        machine
            .check()
            .map_err(|e| format!("after the crash of life {life}: {e}"))?;
        for _ in 0..choices.below(3) {
            machine.world.crash_at(choices.between(1, 60));
            if let Ok(running) = machine.boot() {
                let _ = running.engine.cp_now();
                machine.world.crash();
            }
            machine.reboot(&choices);
            machine
                .check()
                .map_err(|e| format!("after a crash during recovery: {e}"))?;
        }
    }
    Ok(())
}

/// Deletes everything, clones before what they depend on.
fn end(engine: &Engine, state: &mut State) -> CheckResult {
    finish_background_jobs(engine)?;
    while state.len() > 1 {
        let names: Vec<String> = state.keys().filter(|n| *n != VOLUME).cloned().collect();
        let before = state.len();
        for name in names {
            match engine.delete_volume(&name) {
                Ok(()) => drop(state.remove(&name)),
                Err(FsError::Busy) => {}
                Err(e) => return Err(format!("deleting {name}: {e}")),
            }
        }
        if state.len() == before {
            return Err("nothing can be deleted".into());
        }
    }
    let vol = engine.volume(VOLUME).ok_or("the volume is gone")?;
    for s in vol.snapshots() {
        vol.snapshot_delete(&s.name).map_err(|e| e.to_string())?;
    }
    for name in contents(&vol)?.into_keys() {
        run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).map_err(|e| e.to_string())?;
    }
    finish_background_jobs(engine)?;
    match vol.snapshot_used() {
        0 => Ok(()),
        bytes => Err(format!("{bytes} bytes are held by no snapshot")),
    }
}
