//! Many threads on one volume at once.
//!
//! Each thread owns some names in directories that all share, and some blocks of files that all
//! share, and knows exactly what those must hold; so every result can be verified although nothing
//! is serialised. Names move between shared directories, files get links there, checkpoints run all
//! the time, and at the end the volume is compared with what the threads say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_base::{Ino, Time};
use weir_volume::{
    CreateHow, EngineContext, FsError, ReadDirLimit, SetAttr, Stability, Stop, Volume,
};

use crate::machine::{DATA, LOG, Machine, Sizes};
use crate::rand::Choices;

const BLOCK: u64 = 4096;

/// Volume and files that the threads work on.
#[derive(Clone)]
pub struct Ground {
    /// The volume that all threads share.
    pub volume: Arc<Volume>,
    /// Directories that all threads share.
    pub dirs: Vec<Ino>,
    /// Shared files; their blocks belong to the threads in rotation.
    pub files: Vec<Ino>,
    /// Number of threads to run.
    pub threads: u64,
    /// Number of operations of each thread.
    pub operations: u64,
    /// Time of the next operation, in microseconds: every operation takes the next.
    pub ticks: Arc<AtomicU64>,
}

/// A file that one thread owns.
#[derive(Clone, Debug)]
struct Own {
    ino: Ino,
    data: Vec<u8>,
}

/// State that a thread expects to find.
#[derive(Default)]
pub struct ExpectedState {
    /// Names of its files: (directory, name) to a key of `own`.
    names: BTreeMap<(usize, Vec<u8>), u64>,
    own: BTreeMap<u64, Own>,
    /// Stamps of its blocks in the shared files.
    blocks: BTreeMap<(usize, u64), u64>,
}

type CheckResult<T = ()> = Result<T, String>;

impl Ground {
    /// Makes `dirs` directories and `files` shared files.
    ///
    /// # Errors
    /// What failed.
    pub fn prepare(
        volume: Arc<Volume>,
        dirs: usize,
        files: usize,
        threads: u64,
        operations: u64,
    ) -> CheckResult<Ground> {
        let mut ground = Ground {
            volume,
            dirs: Vec::new(),
            files: Vec::new(),
            threads,
            operations,
            ticks: Arc::new(AtomicU64::new(1)),
        };
        let root = ground.volume.root();
        for n in 0..dirs {
            let name = format!("dir{n}").into_bytes();
            let made = ground.run(|v, cx| v.mkdir(cx, root, &name, &SetAttr::default()))?;
            ground.dirs.push(made.value.ino);
        }
        for n in 0..files {
            let name = format!("shared{n}").into_bytes();
            let made = ground
                .run(|v, cx| v.create(cx, root, &name, CreateHow::Guarded, &SetAttr::default()))?;
            ground.files.push(made.value.ino);
        }
        Ok(ground)
    }

    /// The ground of an earlier [`Ground::prepare`], found again.
    ///
    /// # Errors
    /// What failed.
    pub fn find(
        volume: Arc<Volume>,
        dirs: usize,
        files: usize,
        threads: u64,
    ) -> CheckResult<Ground> {
        let mut ground = Ground {
            volume,
            dirs: Vec::new(),
            files: Vec::new(),
            threads,
            operations: 0,
            ticks: Arc::new(AtomicU64::new(1)),
        };
        let root = ground.volume.root();
        for n in 0..dirs {
            let name = format!("dir{n}").into_bytes();
            let found = ground.run(|v, cx| v.lookup(cx, root, &name))?;
            ground.dirs.push(found.ino);
        }
        for n in 0..files {
            let name = format!("shared{n}").into_bytes();
            let found = ground.run(|v, cx| v.lookup(cx, root, &name))?;
            ground.files.push(found.ino);
        }
        Ok(ground)
    }

    fn cx(&self) -> EngineContext {
        let tick = self.ticks.fetch_add(1, Ordering::Relaxed);
        EngineContext::new(Time {
            secs: 1_700_000_000 + (tick / 1_000_000) as i64,
            nanos: (tick % 1_000_000) as u32 * 1000,
        })
    }

    fn try_run<T>(
        &self,
        mut op: impl FnMut(&Volume, &mut EngineContext) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        let mut cx = self.cx();
        self.volume
            .drive_blocking(&mut cx, |cx| op(&self.volume, cx))
    }

    fn run<T>(
        &self,
        op: impl FnMut(&Volume, &mut EngineContext) -> Result<T, Stop>,
    ) -> CheckResult<T> {
        self.try_run(op).map_err(|error| format!("failed: {error}"))
    }

    /// Runs all threads, and `beside` over and over until they are done.
    ///
    /// # Errors
    /// The first thing that a thread found wrong.
    pub fn run_threads(
        &self,
        choices: &Choices,
        beside: &(dyn Fn() + Sync),
    ) -> CheckResult<Vec<ExpectedState>> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let choices = choices.fork();
                    scope.spawn(move || {
                        let mut known = ExpectedState::default();
                        for _ in 0..self.operations {
                            self.step(thread, &choices, &mut known)
                                .map_err(|what| format!("thread {thread}: {what}"))?;
                        }
                        Ok(known)
                    })
                })
                .collect();
            let helper = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    beside();
                }
            });
            let results: Vec<CheckResult<ExpectedState>> = workers
                .into_iter()
                .map(|worker| {
                    worker
                        .join()
                        .unwrap_or_else(|panic| Err(crate::suite::panic_text(&*panic)))
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            let helped = helper.join();
            let known = results.into_iter().collect();
            helped.map_err(|panic| crate::suite::panic_text(&*panic))?;
            known
        })
    }

    fn step(&self, thread: u64, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        match choices.below(14) {
            0 | 1 => self.create(thread, choices, known),
            2..=4 => self.write_own(choices, known),
            5 => self.read_own(choices, known),
            6 => self.rename(thread, choices, known),
            7 => self.link(thread, choices, known),
            8 => self.remove(choices, known),
            9 | 10 => self.write_shared(thread, choices, known),
            11 => self.read_shared(choices, known),
            12 => self.list(thread, choices, known),
            _ => self.cut_own(choices, known),
        }
    }

    fn fresh_name(&self, thread: u64, choices: &Choices) -> (usize, Vec<u8>) {
        let name = format!("t{thread}-{}", choices.below(40)).into_bytes();
        (choices.index(self.dirs.len()), name)
    }

    fn pick(choices: &Choices, known: &ExpectedState) -> Option<((usize, Vec<u8>), u64)> {
        let names: Vec<_> = known.names.iter().collect();
        (!names.is_empty()).then(|| {
            let (name, file) = *choices.pick(&names);
            (name.clone(), *file)
        })
    }

    fn create(&self, thread: u64, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let (dir, name) = self.fresh_name(thread, choices);
        let parent = self.dirs[dir];
        let result = self
            .try_run(|v, cx| v.create(cx, parent, &name, CreateHow::Guarded, &SetAttr::default()));
        match (result, known.names.contains_key(&(dir, name.clone()))) {
            (Ok(made), false) => {
                let ino = made.value.ino;
                if known.own.contains_key(&ino.0) {
                    return Err(format!("inode {ino} was given out twice"));
                }
                known.names.insert((dir, name), ino.0);
                known.own.insert(
                    ino.0,
                    Own {
                        ino,
                        data: Vec::new(),
                    },
                );
                Ok(())
            }
            (Err(FsError::Exists), true) => Ok(()),
            (result, existed) => Err(format!("create answered {result:?}; existed: {existed}")),
        }
    }

    fn write_own(&self, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let Some((_, file)) = Self::pick(choices, known) else {
            return Ok(());
        };
        let Some(own) = known.own.get_mut(&file) else {
            return Err("a name without a file".into());
        };
        let offset = choices.below(30_000) as usize;
        let data = vec![choices.bits() as u8 | 1; choices.between(1, 9000) as usize];
        let stability = *choices.pick(&[Stability::Unstable, Stability::FileSync]);
        let done = self.run(|v, cx| v.write(cx, own.ino, offset as u64, &data, stability))?;
        if own.data.len() < offset + data.len() {
            own.data.resize(offset + data.len(), 0);
        }
        own.data[offset..offset + data.len()].copy_from_slice(&data);
        let after = done.value.change.after;
        if after.size != own.data.len() as u64 {
            return Err(format!(
                "size {} after a write, expected {}",
                after.size,
                own.data.len()
            ));
        }
        if choices.chance(1, 5) {
            self.run(|v, cx| v.commit(cx, own.ino, 0, 0))?;
        }
        Ok(())
    }

    fn cut_own(&self, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let Some((_, file)) = Self::pick(choices, known) else {
            return Ok(());
        };
        let Some(own) = known.own.get_mut(&file) else {
            return Err("a name without a file".into());
        };
        let size = choices.below(30_000);
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.run(|v, cx| v.setattr(cx, own.ino, &set, None))?;
        own.data.resize(size as usize, 0);
        Ok(())
    }

    fn verify_own(&self, own: &Own) -> CheckResult {
        let out = self.run(|v, cx| v.read(cx, own.ino, 0, 1 << 20))?;
        let got = out.to_vec();
        if got != own.data {
            let at = got.iter().zip(&own.data).position(|(a, b)| a != b);
            return Err(format!(
                "inode {} reads {} bytes, expected {}; first difference at {at:?}",
                own.ino,
                got.len(),
                own.data.len()
            ));
        }
        Ok(())
    }

    fn read_own(&self, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let Some(((dir, name), file)) = Self::pick(choices, known) else {
            return Ok(());
        };
        let parent = self.dirs[dir];
        let found = self.run(|v, cx| v.lookup(cx, parent, &name))?;
        if found.ino.0 != file {
            return Err(format!("lookup found {} instead of {file}", found.ino));
        }
        let links = known.names.values().filter(|f| **f == file).count() as u32;
        if found.attr.nlink != links {
            return Err(format!(
                "inode {file} has {} links, expected {links}",
                found.attr.nlink
            ));
        }
        known
            .own
            .get(&file)
            .map_or(Ok(()), |own| self.verify_own(own))
    }

    fn rename(&self, thread: u64, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let Some(((dir, name), file)) = Self::pick(choices, known) else {
            return Ok(());
        };
        let (to, new) = self.fresh_name(thread, choices);
        let (from_dir, to_dir) = (self.dirs[dir], self.dirs[to]);
        self.run(|v, cx| v.rename(cx, from_dir, &name, to_dir, &new))?;
        let replaced = known.names.get(&(to, new.clone())).copied();
        if replaced == Some(file) {
            // The same file or the very same name: nothing happens.
            return Ok(());
        }
        known.names.remove(&(dir, name));
        known.names.insert((to, new), file);
        if let Some(gone) = replaced {
            Self::forget_if_unnamed(known, gone);
        }
        Ok(())
    }

    fn forget_if_unnamed(known: &mut ExpectedState, file: u64) {
        if !known.names.values().any(|f| *f == file) {
            known.own.remove(&file);
        }
    }

    fn link(&self, thread: u64, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let Some((_, file)) = Self::pick(choices, known) else {
            return Ok(());
        };
        let (dir, name) = self.fresh_name(thread, choices);
        let parent = self.dirs[dir];
        let result = self.try_run(|v, cx| v.link(cx, Ino(file), parent, &name));
        match (result, known.names.contains_key(&(dir, name.clone()))) {
            (Ok(_), false) => {
                known.names.insert((dir, name), file);
                Ok(())
            }
            (Err(FsError::Exists), true) => Ok(()),
            (result, existed) => Err(format!("link answered {result:?}; existed: {existed}")),
        }
    }

    fn remove(&self, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let Some(((dir, name), file)) = Self::pick(choices, known) else {
            return Ok(());
        };
        let parent = self.dirs[dir];
        self.run(|v, cx| v.remove(cx, parent, &name))?;
        known.names.remove(&(dir, name));
        Self::forget_if_unnamed(known, file);
        if !known.own.contains_key(&file) {
            match self.try_run(|v, cx| v.getattr(cx, Ino(file))) {
                Err(FsError::Stale) => {}
                other => return Err(format!("a removed file answered {other:?}")),
            }
        }
        Ok(())
    }

    fn write_shared(
        &self,
        thread: u64,
        choices: &Choices,
        known: &mut ExpectedState,
    ) -> CheckResult {
        let file = choices.index(self.files.len());
        // Interleaved, so that neighbours in one extent belong to different threads.
        let block = choices.below(64) * self.threads + thread;
        let stamp = choices.bits();
        let data: Vec<u8> = stamp
            .to_le_bytes()
            .iter()
            .copied()
            .cycle()
            .take(BLOCK as usize)
            .collect();
        let stability = *choices.pick(&[Stability::Unstable, Stability::FileSync]);
        let ino = self.files[file];
        self.run(|v, cx| v.write(cx, ino, block * BLOCK, &data, stability))?;
        known.blocks.insert((file, block), stamp);
        Ok(())
    }

    fn verify_shared(&self, file: usize, block: u64, stamp: u64) -> CheckResult {
        let ino = self.files[file];
        let out = self.run(|v, cx| v.read(cx, ino, block * BLOCK, BLOCK as usize))?;
        let got = out.to_vec();
        if got.len() != BLOCK as usize || got.chunks(8).any(|chunk| chunk != stamp.to_le_bytes()) {
            return Err(format!(
                "block {block} of shared file {file} is not what was written last"
            ));
        }
        Ok(())
    }

    fn read_shared(&self, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let blocks: Vec<_> = known.blocks.iter().collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let ((file, block), stamp) = *choices.pick(&blocks);
        self.verify_shared(*file, *block, *stamp)
    }

    /// Every own name must be in the listing exactly once, whatever the others do meanwhile.
    fn list(&self, thread: u64, choices: &Choices, known: &mut ExpectedState) -> CheckResult {
        let dir = choices.index(self.dirs.len());
        let listed = self.listing(dir, choices.between(3, 20) as usize)?;
        let prefix = format!("t{thread}-").into_bytes();
        let mine: Vec<(Vec<u8>, u64)> = listed
            .into_iter()
            .filter(|(name, _)| name.starts_with(&prefix))
            .collect();
        let got: BTreeMap<Vec<u8>, u64> = mine.iter().cloned().collect();
        if got.len() != mine.len() {
            return Err(format!("a listing of directory {dir} repeats names"));
        }
        let expected: BTreeMap<Vec<u8>, u64> = known
            .names
            .iter()
            .filter(|((d, _), _)| *d == dir)
            .map(|((_, name), file)| (name.clone(), *file))
            .collect();
        if got != expected {
            return Err(format!(
                "directory {dir} lists {got:?}, expected {expected:?}"
            ));
        }
        Ok(())
    }

    fn listing(&self, dir: usize, entries: usize) -> CheckResult<Vec<(Vec<u8>, u64)>> {
        let ino = self.dirs[dir];
        let limit = ReadDirLimit {
            entries,
            bytes: 1 << 16,
            attrs: false,
        };
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let mut page: Vec<(u64, Vec<u8>, u64)> = Vec::new();
            let out = self.run(|v, cx| {
                page.clear();
                v.readdir(cx, ino, cookie, limit, &mut |entry| {
                    page.push((entry.cookie, entry.name.to_vec(), entry.ino.0));
                    true
                })
            })?;
            cookie = page.last().map_or(cookie, |(cookie, _, _)| *cookie);
            all.extend(page.into_iter().map(|(_, name, ino)| (name, ino)));
            if out.eof {
                return Ok(all);
            }
        }
    }

    /// Compares the volume with what the threads know.
    ///
    /// # Errors
    /// The first difference.
    pub fn verify(&self, known: &[ExpectedState]) -> CheckResult {
        for known in known {
            for own in known.own.values() {
                self.verify_own(own)?;
            }
            for ((file, block), stamp) in &known.blocks {
                self.verify_shared(*file, *block, *stamp)?;
            }
        }
        for dir in 0..self.dirs.len() {
            let listed: BTreeMap<Vec<u8>, u64> = self
                .listing(dir, 100)?
                .into_iter()
                .filter(|(name, _)| name != b"." && name != b"..")
                .collect();
            let expected: BTreeMap<Vec<u8>, u64> = known
                .iter()
                .flat_map(|known| &known.names)
                .filter(|((d, _), _)| *d == dir)
                .map(|((_, name), file)| (name.clone(), *file))
                .collect();
            if listed != expected {
                return Err(format!(
                    "directory {dir} holds {listed:?}, expected {expected:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Threads on a small machine with disks that complete in random order, with checkpoints all the
/// time; afterwards the volume is as the threads say, nothing is held any more, and `check` is
/// clean.
///
/// # Errors
/// What was wrong.
pub fn story(seed: u64) -> CheckResult {
    let choices = Choices::new(seed);
    let background = choices.chance(1, 2);
    let machine = Machine::new(
        Sizes {
            background,
            frames: 6000,
            ..Sizes::small()
        },
        &choices,
    )?;
    let running = machine.boot()?;
    let ground = Ground::prepare(Arc::clone(&running.volume), 3, 2, 4, 250)?;
    machine.world.hold(DATA, true);
    machine.world.hold_reads(DATA, true);
    machine.world.hold(LOG, true);
    let scrambler = machine.world.scramble(choices.fork());
    let engine = &running.engine;
    let known = ground.run_threads(&choices, &|| {
        if background {
            std::thread::yield_now();
        } else {
            // A failure shows as a poisoned engine below.
            let _ = engine.cp_now();
        }
    });
    let checked = known.and_then(|known| {
        ground.verify(&known)?;
        Ok(known)
    });
    drop(scrambler);
    let known = checked?;
    if let Some(why) = running.engine.poisoned() {
        return Err(format!("poisoned: {why}"));
    }
    running
        .engine
        .shutdown()
        .map_err(|e| format!("shutdown: {e}"))?;
    let space = running.engine.aggregate().space().stats();
    if space.reserved != 0 {
        return Err(format!(
            "{} blocks are still reserved after a clean stop",
            space.reserved
        ));
    }
    drop(ground);
    drop(running);
    machine.check()?;
    let running = machine.boot()?;
    let ground = Ground::find(Arc::clone(&running.volume), 3, 2, 4)?;
    ground.verify(&known)
}
