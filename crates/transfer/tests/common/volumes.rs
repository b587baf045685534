//! Engines on devices in memory, random changes, and the contents of a volume as a value.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{Ino, ManualClock, Rng, SeededRng, Time};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{FramePool, MemDevice};
use weir_volume::check::{CheckOptions, Report, check_on};
use weir_volume::{
    Attr, CreateHow, DirEntry, Engine, EngineContext, EngineOptions, FileKind, FsError,
    ReadDirLimit, SetAttr, Stability, Stop, Volume,
};

/// Devices that survive the engine on them.
pub struct Machine {
    pub device: Arc<MemDevice>,
    pub log: Arc<MemDevice>,
    pub rng: Arc<SeededRng>,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine {
            device: Arc::new(MemDevice::new(128 << 8)),
            log: Arc::new(MemDevice::new(8 << 8)),
            rng: Arc::new(SeededRng::new(seed)),
        }
    }

    fn env(&self) -> Env {
        Env {
            pool: FramePool::new(16_384).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::clone(&self.rng) as Arc<dyn Rng>,
        }
    }

    pub fn format(&self) -> Engine {
        let (agg, replay) = Aggregate::create_on(
            Arc::clone(&self.device) as _,
            Arc::clone(&self.log) as _,
            self.env(),
        )
        .unwrap();
        Engine::open(agg, replay, &*self.rng, EngineOptions::default()).unwrap()
    }

    pub fn open(&self) -> Engine {
        let (agg, replay) = Aggregate::open_on(
            Arc::clone(&self.device) as _,
            Arc::clone(&self.log) as _,
            self.env(),
        )
        .unwrap();
        Engine::open(agg, replay, &*self.rng, EngineOptions::default()).unwrap()
    }

    pub fn volume(&self, engine: &Engine, name: &str) -> Arc<Volume> {
        engine
            .create_volume(name, (0, 0), 0o755, fixed_time(), &*self.rng)
            .unwrap()
    }

    /// An empty volume that is protected as a destination.
    pub fn destination(&self, engine: &Engine, name: &str) -> Arc<Volume> {
        let vol = self.volume(engine, name);
        engine.protect(name).unwrap();
        vol
    }

    /// Verifies what is on the devices; nothing else may use them.
    pub fn check(&self) -> Report {
        let pool = FramePool::new(4096).unwrap();
        check_on(
            Arc::clone(&self.device) as _,
            Arc::clone(&self.log) as _,
            &pool,
            &CheckOptions::default(),
        )
        .unwrap()
    }
}

pub fn fixed_time() -> Time {
    Time {
        secs: 1_700_000_000,
        nanos: 0,
    }
}

pub fn run<T>(
    vol: &Volume,
    op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
) -> Result<T, FsError> {
    vol.drive_blocking(&mut EngineContext::new(fixed_time()), op)
}

pub fn create(vol: &Volume, dir: Ino, name: &str) -> Ino {
    let set = SetAttr::default();
    run(vol, |cx| {
        vol.create(cx, dir, name.as_bytes(), CreateHow::Unchecked, &set)
    })
    .unwrap()
    .value
    .ino
}

pub fn write(vol: &Volume, ino: Ino, off: u64, data: &[u8]) {
    // Writes that one record of the log cannot hold are split.
    let mut at = 0;
    while at < data.len() {
        let (off, rest) = (off + at as u64, &data[at..]);
        let done = run(vol, |cx| vol.write(cx, ino, off, rest, Stability::FileSync)).unwrap();
        at += done.value.len;
    }
}

/// A file or directory: attributes that a copy keeps, cookie, and contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub attr: Attr,
    pub cookie: u64,
    pub content: Vec<u8>,
}

/// Everything in a volume or a view of one, by path.
pub fn dump(vol: &Volume) -> BTreeMap<String, Entry> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(vol.root(), String::new(), 0)];
    while let Some((ino, path, cookie)) = todo.pop() {
        let mut attr = run(vol, |cx| vol.getattr(cx, ino)).unwrap();
        // Differs from copy to copy.
        attr.fsid = 0;
        attr.change = 0;
        attr.atime = Time::EPOCH;
        let mut content = Vec::new();
        match attr.kind {
            FileKind::Directory => {
                let mut at = 2;
                loop {
                    let limit = ReadDirLimit {
                        entries: 50,
                        bytes: 4096,
                        attrs: false,
                    };
                    let mut some = Vec::new();
                    let out = run(vol, |cx| {
                        some.clear();
                        vol.readdir(cx, ino, at, limit, &mut |e: &DirEntry<'_>| {
                            some.push((
                                e.ino,
                                format!("{path}/{}", String::from_utf8_lossy(e.name)),
                                e.cookie,
                            ));
                            true
                        })
                    })
                    .unwrap();
                    at = some.last().map_or(at, |(_, _, cookie)| *cookie);
                    todo.extend(some);
                    if out.eof {
                        break;
                    }
                }
            }
            FileKind::Symlink => content = run(vol, |cx| vol.readlink(cx, ino)).unwrap().0,
            FileKind::Regular => {
                while (content.len() as u64) < attr.size {
                    let off = content.len() as u64;
                    let out = run(vol, |cx| vol.read(cx, ino, off, 1 << 20)).unwrap();
                    assert!(out.len > 0);
                    content.extend(out.to_vec());
                }
            }
            _ => {}
        }
        all.insert(
            path,
            Entry {
                attr,
                cookie,
                content,
            },
        );
    }
    all
}

/// Random changes to a volume.
pub fn change(vol: &Volume, rng: &SeededRng, times: u64) {
    let root = vol.root();
    for _ in 0..times {
        let name = format!("f{}", rng.below(40));
        let found = run(vol, |cx| vol.lookup(cx, root, name.as_bytes())).ok();
        match (rng.below(12), found) {
            (0..=3, _) => {
                let ino = create(vol, root, &name);
                let (off, len) = (rng.below(400_000), 1 + rng.below(150_000));
                let mut data = vec![0; len as usize];
                rng.fill(&mut data);
                let kind = run(vol, |cx| vol.getattr(cx, ino)).unwrap().kind;
                if kind == FileKind::Regular {
                    write(vol, ino, off, &data);
                }
            }
            (4, Some(found)) => {
                let set = SetAttr {
                    size: Some(rng.below(500_000)),
                    ..SetAttr::default()
                };
                if found.attr.kind == FileKind::Regular {
                    run(vol, |cx| vol.setattr(cx, found.ino, &set, None)).unwrap();
                }
            }
            (5, Some(found)) => {
                let set = SetAttr {
                    mode: Some(rng.below(0o777) as u32),
                    ..SetAttr::default()
                };
                run(vol, |cx| vol.setattr(cx, found.ino, &set, None)).unwrap();
            }
            (6, Some(_)) => {
                let _ = run(vol, |cx| vol.remove(cx, root, name.as_bytes()));
            }
            (7, Some(_)) => {
                let to = format!("f{}", rng.below(40));
                let _ = run(vol, |cx| {
                    vol.rename(cx, root, name.as_bytes(), root, to.as_bytes())
                });
            }
            (8, Some(found)) => {
                let to = format!("l{}", rng.below(40));
                let _ = run(vol, |cx| vol.link(cx, found.ino, root, to.as_bytes()));
            }
            (9, _) => {
                let name = format!("s{}", rng.below(40));
                let target = vec![b'x'; 1 + rng.below(3000) as usize];
                let set = SetAttr::default();
                let _ = run(vol, |cx| {
                    vol.symlink(cx, root, name.as_bytes(), &target, &set)
                });
            }
            (10, _) => {
                let name = format!("d{}", rng.below(10));
                let set = SetAttr::default();
                let _ = run(vol, |cx| vol.mkdir(cx, root, name.as_bytes(), &set));
                if let Ok(dir) = run(vol, |cx| vol.lookup(cx, root, name.as_bytes())) {
                    create(vol, dir.ino, &format!("in{}", rng.below(20)));
                }
            }
            _ => {
                let name = format!("l{}", rng.below(40));
                let _ = run(vol, |cx| vol.remove(cx, root, name.as_bytes()));
            }
        }
    }
}
