//! Clones of ranges of files: the contents that both sides read afterwards, their space, and the
//! data that remains when files, snapshots, clones of volumes and whole histories are deleted.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Machine, crash, create, fixed_time, lookup, read, run};
use weir_base::{Ino, Rng, SeededRng};
use weir_volume::{Change, Engine, FsError, SetAttr, SetIds, Stability, Volume};

const BLOCK: u64 = 4096;

fn clone(vol: &Volume, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<Change, FsError> {
    run(vol, |cx| vol.clone_range(SetIds::Keep, cx, from, to, len)).map(|done| done.value)
}

/// Returns different bytes for each block.
fn pattern(seed: u64, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; (blocks * BLOCK) as usize];
    SeededRng::new(seed).fill(&mut bytes);
    bytes
}

fn write(vol: &Volume, file: Ino, off: u64, data: &[u8], how: Stability) {
    for (i, part) in (0..).zip(data.chunks(1 << 18)) {
        common::write(vol, file, off + (i << 18), part, how);
    }
}

/// Makes the log take the unstable writes.
fn commit(engine: &Engine, vol: &Volume, files: &Files) {
    for name in files.keys() {
        let file = lookup(vol, vol.root(), name).unwrap();
        let done = run(vol, |cx| vol.commit(cx, file, 0, 0)).unwrap();
        engine.wait_durable(done.lsn).unwrap();
    }
}

fn cut(vol: &Volume, file: Ino, size: u64) {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    run(vol, |cx| vol.setattr(cx, file, &set, None)).unwrap();
}

fn used(vol: &Volume) -> u64 {
    vol.used() / BLOCK
}

fn read_all(vol: &Volume, file: Ino) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let more = read(vol, file, all.len() as u64, 1 << 20);
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

fn finish_background_jobs(engine: &Engine) {
    loop {
        engine.cp_now().unwrap();
        if !engine.reclaiming() && !engine.volumes().iter().any(|v| v.splitting()) {
            break;
        }
    }
    for _ in 0..3 {
        engine.cp_now().unwrap();
    }
}

#[test]
fn a_clone_takes_no_space_and_each_side_is_its_own() {
    let m = Machine::new(1);
    let (engine, vol) = m.format();
    engine.set_limit(&vol, 64 << 20);
    let a = create(&vol, vol.root(), "a");
    let b = create(&vol, vol.root(), "b");
    let data = pattern(1, 1000);
    write(&vol, a, 0, &data, Stability::Unstable);
    engine.cp_now().unwrap();
    let before = used(&vol);
    let change = clone(&vol, (a, 0), (b, 0), 0).unwrap();
    assert_eq!((change.before.size, change.after.size), (0, 1000 * BLOCK));
    assert!(change.after.change > change.before.change);
    assert!(change.after.ctime > change.before.ctime);
    assert!(read_all(&vol, b) == data, "before the checkpoint");
    engine.cp_now().unwrap();
    assert_eq!(used(&vol), before);
    assert!(read_all(&vol, b) == data);
    let attr = |ino| run(&vol, |cx| vol.getattr(cx, ino)).unwrap();
    assert_eq!(attr(b).used, 1000 * BLOCK, "each file counts them");

    // A write on one side is not seen on the other.
    write(&vol, b, 10 * BLOCK, &pattern(2, 5), Stability::FileSync);
    write(&vol, a, 500 * BLOCK, &pattern(3, 5), Stability::Unstable);
    engine.cp_now().unwrap();
    assert_eq!(used(&vol), before + 10);
    let mut at_a = data.clone();
    at_a[500 * 4096..505 * 4096].copy_from_slice(&pattern(3, 5));
    let mut at_b = data.clone();
    at_b[10 * 4096..15 * 4096].copy_from_slice(&pattern(2, 5));
    assert!(read_all(&vol, a) == at_a);
    assert!(read_all(&vol, b) == at_b);

    // The first is deleted, the second keeps everything.
    run(&vol, |cx| vol.remove(cx, vol.root(), b"a")).unwrap();
    finish_background_jobs(&engine);
    assert_eq!(used(&vol), before);
    assert!(read_all(&vol, b) == at_b);
    cut(&vol, b, 7 * BLOCK);
    finish_background_jobs(&engine);
    assert_eq!(used(&vol), 7);
    engine.shutdown().unwrap();
    drop((vol, engine));
    let report = m.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn what_cannot_be_cloned_is_refused() {
    let m = Machine::new(2);
    let (engine, vol) = m.format();
    let a = create(&vol, vol.root(), "a");
    let b = create(&vol, vol.root(), "b");
    write(&vol, a, 0, &pattern(1, 3)[..10_000], Stability::FileSync);
    write(&vol, b, 0, &pattern(2, 5), Stability::FileSync);
    let invalid = Err(FsError::Invalid);
    let attr = run(&vol, |cx| vol.getattr(cx, b)).unwrap();
    for (from, to, len) in [
        ((a, 1), (b, 0), 4096),
        ((a, 0), (b, 1), 4096),
        ((a, 0), (b, 0), 4095),
        // Up to the source's end, and within the target.
        ((a, 0), (b, 0), 10_000),
        ((a, 0), (b, 0), 0),
        ((a, 0), (b, 0), 10_001),
        ((a, 12_288), (b, 0), 0),
        ((a, 0), (a, 4096), 8192),
        ((a, 4096), (a, 0), 5904),
        ((vol.root(), 0), (b, 0), 4096),
        ((a, u64::MAX - 4095), (b, 0), 4096),
    ] {
        let result = clone(&vol, from, to, len).map(|_| ());
        let want = match from.0 == vol.root() {
            true => Err(FsError::IsDir),
            false => invalid,
        };
        assert_eq!(result, want, "{from:?} to {to:?}, {len}");
    }
    let far = weir_base::limits::MAX_FILE_SIZE;
    let far = clone(&vol, (a, 0), (b, far), 4096).map(|_| ());
    assert_eq!(far, Err(FsError::FileTooBig));
    assert_eq!(run(&vol, |cx| vol.getattr(cx, b)).unwrap(), attr);
    // A length of 0 at the end changes nothing; the last block goes to the target's end.
    let nothing = clone(&vol, (b, 5 * BLOCK), (a, 0), 0).unwrap();
    assert_eq!(nothing.before, nothing.after);
    clone(&vol, (a, 0), (b, 3 * BLOCK), 0).unwrap();
    assert_eq!(read(&vol, b, 5 * BLOCK, 4096), pattern(1, 3)[8192..10_000]);
    write(&vol, b, 6 * BLOCK, b"behind", Stability::FileSync);
    assert_eq!(read(&vol, b, 3 * BLOCK + 10_000, 2000), vec![0; 2000]);
    drop((vol, engine));
}

/// Source and target change in every way between the clone and its checkpoint, and after it; then
/// once more with a crash in between.
#[test]
fn a_clone_outlives_what_happens_to_its_source() {
    for crashes in [false, true] {
        let m = Machine::new(3);
        let (engine, vol) = m.format();
        let root = vol.root();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| create(&vol, root, name));
        let data = pattern(7, 200);
        write(&vol, a, 0, &data, Stability::FileSync);
        write(&vol, b, 0, &pattern(8, 300), Stability::FileSync);
        engine.cp_now().unwrap();
        // A page that the tree does not have, and that the log may not have.
        write(&vol, a, 50 * BLOCK, &pattern(9, 2), Stability::Unstable);
        let mut at_b = pattern(8, 300);
        at_b[100 * 4096..].copy_from_slice(&data);
        at_b[150 * 4096..152 * 4096].copy_from_slice(&pattern(9, 2));
        clone(&vol, (a, 0), (b, 100 * BLOCK), 0).unwrap();
        // A clone of a clone, and of data that only overlays have.
        clone(&vol, (b, 90 * BLOCK), (c, 0), 100 * BLOCK).unwrap();
        clone(&vol, (c, 0), (d, 30 * BLOCK), 0).unwrap();
        write(&vol, b, 120 * BLOCK, &pattern(10, 10), Stability::FileSync);
        let at_c = at_b[90 * 4096..190 * 4096].to_vec();
        at_b[120 * 4096..130 * 4096].copy_from_slice(&pattern(10, 10));
        run(&vol, |cx| vol.punch(cx, c, 20 * BLOCK, 5 * BLOCK)).unwrap();
        let at_d = [vec![0; 30 * 4096], at_c.clone()].concat();
        let mut at_c = at_c;
        at_c[20 * 4096..25 * 4096].fill(0);
        run(&vol, |cx| vol.remove(cx, root, b"a")).unwrap();
        cut(&vol, b, 250 * BLOCK + 100);
        at_b.truncate(250 * 4096 + 100);
        let verify = |vol: &Volume| {
            let file = |name| lookup(vol, root, name).unwrap();
            for (name, want) in [("b", &at_b), ("c", &at_c), ("d", &at_d)] {
                assert!(read_all(vol, file(name)) == *want, "{name}");
            }
        };
        verify(&vol);
        let (engine, vol) = match crashes {
            false => (engine, vol),
            true => {
                crash(engine, vol);
                m.open()
            }
        };
        verify(&vol);
        finish_background_jobs(&engine);
        verify(&vol);
        engine.shutdown().unwrap();
        drop((vol, engine));
        let report = m.check();
        assert!(report.clean(), "{report}");
        let (engine, vol) = m.open();
        verify(&vol);
        for name in ["b", "c", "d"] {
            run(&vol, |cx| vol.remove(cx, root, name.as_bytes())).unwrap();
        }
        finish_background_jobs(&engine);
        assert_eq!(vol.used(), 0);
        engine.shutdown().unwrap();
        drop((vol, engine));
        assert!(m.check().clean());
    }
}

type Files = BTreeMap<String, Vec<u8>>;

/// Expected state of a volume.
#[derive(Default, Clone)]
struct Branch {
    files: Files,
    snapshots: Vec<(String, Files)>,
    /// Volume and snapshot that it was cloned from.
    origin: Option<(String, String)>,
}

struct Story {
    machine: Machine,
    rng: SeededRng,
    engine: Option<Engine>,
    state: BTreeMap<String, Branch>,
    names: u64,
}

impl Story {
    fn below(&self, n: u64) -> u64 {
        self.rng.below(n)
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn vol(&self, name: &str) -> Arc<Volume> {
        self.engine().volume(name).unwrap()
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    /// Returns a range of blocks that begins in a file of this size, or a little behind it.
    fn range(&self, size: usize) -> (u64, u64) {
        let blocks = size as u64 / BLOCK;
        (self.below(blocks + 3), 1 + self.below(70))
    }

    fn step(&mut self) {
        let volumes: Vec<String> = self.state.keys().cloned().collect();
        let volume = volumes[self.below(volumes.len() as u64) as usize].clone();
        let vol = self.vol(&volume);
        let name = format!("f{}", self.below(5));
        let file = lookup(&vol, vol.root(), &name);
        let mut branch = self.state.remove(&volume).unwrap();
        let content = branch.files.get(&name).cloned();
        assert_eq!(file.is_ok(), content.is_some());
        match (file, content, self.below(40)) {
            (Err(_), ..) => {
                create(&vol, vol.root(), &name);
                branch.files.insert(name, Vec::new());
            }
            (Ok(file), Some(mut content), 0..=8) => {
                let (at, blocks) = self.range(content.len());
                let mut data = pattern(self.rng.next_u64(), blocks);
                let mut off = at * BLOCK;
                if self.below(3) == 0 {
                    off += self.below(BLOCK);
                    data.truncate(self.below(9000) as usize + 1);
                }
                let how = [Stability::Unstable, Stability::FileSync][self.below(2) as usize];
                write(&vol, file, off, &data, how);
                let end = off as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[off as usize..end].copy_from_slice(&data);
                branch.files.insert(name, content);
            }
            (Ok(file), Some(mut content), 9..=10) => {
                let (at, blocks) = self.range(content.len());
                run(&vol, |cx| vol.punch(cx, file, at * BLOCK, blocks * BLOCK)).unwrap();
                let end = ((at + blocks) * BLOCK).min(content.len() as u64);
                if at * BLOCK < end {
                    content[(at * BLOCK) as usize..end as usize].fill(0);
                }
                branch.files.insert(name, content);
            }
            (Ok(file), Some(mut content), 11..=12) => {
                let size = self.below(200 * BLOCK);
                cut(&vol, file, size);
                content.resize(size as usize, 0);
                branch.files.insert(name, content);
            }
            (Ok(_), _, 13) => {
                run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).unwrap();
                branch.files.remove(&name);
            }
            (Ok(file), Some(content), 14..=23) => {
                self.clone(&vol, &mut branch, (&name, file), content);
            }
            (Ok(_), _, 24..=27) => self.engine().cp_now().unwrap(),
            (Ok(file), Some(content), 28..=29) => {
                assert!(read_all(&vol, file) == content, "{volume}/{name}");
            }
            (Ok(_), _, 30..=32) => {
                let name = self.name("s");
                commit(self.engine(), &vol, &branch.files);
                let made = vol.snapshot_create(&name, fixed_time());
                if !vol.splitting() {
                    made.unwrap();
                    branch.snapshots.push((name, branch.files.clone()));
                }
            }
            (Ok(_), _, 33) if !branch.snapshots.is_empty() => {
                let at = self.below(branch.snapshots.len() as u64) as usize;
                if vol.snapshot_delete(&branch.snapshots[at].0).is_ok() {
                    branch.snapshots.remove(at);
                }
            }
            (Ok(_), _, 34) if !branch.snapshots.is_empty() => {
                let at = self.below(branch.snapshots.len() as u64) as usize;
                let name = branch.snapshots[at].0.clone();
                match self.engine().revert(&volume, &name) {
                    Ok(()) => {
                        branch.snapshots.truncate(at + 1);
                        branch.files = branch.snapshots[at].1.clone();
                    }
                    Err(e) => assert_eq!(e, FsError::Busy),
                }
            }
            (Ok(_), _, 35) if !branch.snapshots.is_empty() && self.state.len() < 3 => {
                let at = self.below(branch.snapshots.len() as u64) as usize;
                let (snapshot, files) = branch.snapshots[at].clone();
                let copy = self.name("v");
                self.engine()
                    .clone_volume(&volume, &snapshot, &copy)
                    .unwrap();
                let new = Branch {
                    files,
                    snapshots: Vec::new(),
                    origin: Some((volume.clone(), snapshot)),
                };
                self.state.insert(copy, new);
            }
            (Ok(_), _, 36) if branch.origin.is_some() => {
                // Refused with snapshots, or if a split is in progress already.
                let _ = self.engine().split_clone(&volume);
            }
            (Ok(_), _, 37) if volume != "vol1" && self.engine().delete_volume(&volume).is_ok() => {
                return;
            }
            (Ok(_), _, 38) => {
                drop(vol);
                self.state.insert(volume, branch);
                return self.restart();
            }
            _ => {}
        }
        self.state.insert(volume, branch);
    }

    fn clone(
        &mut self,
        vol: &Volume,
        branch: &mut Branch,
        (name, file): (&str, Ino),
        content: Vec<u8>,
    ) {
        let other = format!("f{}", self.below(5));
        let Ok(to) = lookup(vol, vol.root(), &other) else {
            return;
        };
        let ((from, blocks), target) = (self.range(content.len()), branch.files[&other].clone());
        let (at, _) = self.range(target.len());
        let (from, at) = (from * BLOCK, at * BLOCK);
        let len = [0, blocks * BLOCK][self.below(2) as usize];
        let end = if len == 0 {
            content.len() as u64
        } else {
            from + len
        };
        let fits = from <= end && end <= content.len() as u64;
        let whole = fits && {
            let len = end - from;
            len % BLOCK == 0 || end == content.len() as u64 && at + len >= target.len() as u64
        };
        let overlap =
            to == file && at.abs_diff(from) < (end.max(from) - from).next_multiple_of(BLOCK);
        let result = clone(vol, (file, from), (to, at), len);
        if !whole || overlap {
            assert_eq!(
                result.map(|_| ()),
                Err(FsError::Invalid),
                "{name} to {other}"
            );
            return;
        }
        result.unwrap();
        if from == end {
            return;
        }
        let mut target = target;
        let to_end = (at + end - from) as usize;
        target.resize(target.len().max(to_end), 0);
        target[at as usize..to_end].copy_from_slice(&content[from as usize..end as usize]);
        branch.files.insert(other, target);
    }

    fn restart(&mut self) {
        for volume in self.state.keys() {
            let vol = self.vol(volume);
            commit(self.engine(), &vol, &self.state[volume].files);
            let root = |cx: &mut _| vol.setattr(cx, vol.root(), &SetAttr::default(), None);
            let last = run(&vol, root).unwrap();
            self.engine().wait_durable(last.lsn).unwrap();
        }
        let engine = self.engine.take().unwrap();
        if self.below(3) == 0 {
            engine.shutdown().unwrap();
        }
        drop(engine);
        let report = self.machine.check();
        assert!(report.clean(), "{report}");
        self.engine = Some(self.machine.open().0);
        self.verify();
    }

    fn verify(&self) {
        for (volume, branch) in &self.state {
            let vol = self.vol(volume);
            let views = branch.snapshots.iter();
            let views = views.map(|(name, files)| (vol.open_snapshot(name).unwrap(), files));
            for (vol, files) in views.chain([(Arc::clone(&vol), &branch.files)]) {
                for (name, content) in files {
                    let file = lookup(&vol, vol.root(), name).unwrap();
                    assert!(read_all(&vol, file) == *content, "{volume}/{name}");
                }
            }
        }
    }
}

fn play(seed: u64) {
    let mut machine = Machine::new(seed);
    machine.background = seed.is_multiple_of(2);
    machine.inodes = if seed % 4 == 0 { 1 } else { 1000 };
    let (engine, vol) = machine.format();
    drop(vol);
    finish_background_jobs(&engine);
    let free = |engine: &Engine| engine.aggregate().space().stats().free;
    let empty = free(&engine);
    let mut story = Story {
        rng: SeededRng::new(seed ^ 0xC10),
        machine,
        engine: Some(engine),
        state: BTreeMap::from([("vol1".to_owned(), Branch::default())]),
        names: 0,
    };
    for _ in 0..300 {
        story.step();
    }
    story.verify();
    story.restart();
    // Everything is deleted, in some order, and all of the space is freed.
    finish_background_jobs(story.engine());
    let mut volumes: Vec<String> = story.state.keys().rev().cloned().collect();
    volumes.retain(|name| name != "vol1");
    let mut tries = 0;
    while let Some(name) = volumes.pop() {
        if story.engine().delete_volume(&name).is_err() {
            // A volume that was cloned from it is deleted first.
            volumes.insert(0, name);
            tries += 1;
            assert!(tries < 100);
        }
    }
    let vol = story.vol("vol1");
    for (name, _) in &story.state["vol1"].snapshots {
        vol.snapshot_delete(name).unwrap();
    }
    for name in story.state["vol1"].files.keys() {
        run(&vol, |cx| vol.remove(cx, vol.root(), name.as_bytes())).unwrap();
    }
    finish_background_jobs(story.engine());
    assert_eq!((vol.used(), vol.snapshot_used()), (0, 0));
    let left = free(story.engine());
    assert!(left + 4 >= empty, "{left} blocks are free of {empty}");
    drop(vol);
    let engine = story.engine.take().unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let report = story.machine.check();
    assert!(report.clean(), "{report}");
}

#[test]
fn clones_of_ranges_in_histories() {
    if let Some(seed) = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()) {
        return play(seed);
    }
    let seeds = std::env::var("WEIR_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok());
    for seed in 0..seeds.unwrap_or(12) {
        let result = std::panic::catch_unwind(|| play(seed));
        if let Err(panic) = result {
            eprintln!("failed with WEIR_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
