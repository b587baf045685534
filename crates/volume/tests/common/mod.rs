//! An engine on devices in memory, and a volume with blocking calls.
#![allow(dead_code)]

use std::sync::Arc;

use weir_base::{Ino, ManualClock, Rng, SeededRng, Time};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{Device, FramePool, MemDevice};
use weir_volume::check::{CheckOptions, Report, check_on, repair_on};
use weir_volume::{
    DirEntry, Engine, EngineContext, EngineOptions, FsError, ReadDirLimit, SetAttr, Stability,
    Stop, Volume,
};

/// Devices that survive the engine on them.
pub struct Machine {
    pub device: Arc<MemDevice>,
    pub log: Arc<MemDevice>,
    pub rng: Arc<SeededRng>,
    pub frames: usize,
    pub background: bool,
    pub inodes: usize,
    pub behind: u64,
    pub usage: bool,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine {
            device: Arc::new(MemDevice::new(64 << 8)),
            log: Arc::new(MemDevice::new(4 << 8)),
            rng: Arc::new(SeededRng::new(seed)),
            frames: 8192,
            background: true,
            inodes: 100_000,
            behind: EngineOptions::default().behind,
            usage: true,
        }
    }

    fn env(&self) -> Env {
        Env {
            pool: FramePool::new(self.frames).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::clone(&self.rng) as Arc<dyn Rng>,
        }
    }

    /// Creates an aggregate with an empty volume.
    pub fn format(&self) -> (Engine, Arc<Volume>) {
        let (agg, replay) =
            Aggregate::create_on(self.dev(), Arc::clone(&self.log) as _, self.env()).unwrap();
        let engine = Engine::open(agg, replay, &*self.rng, self.options()).unwrap();
        let vol = engine
            .create_volume("vol1", (0, 0), 0o755, fixed_time(), &*self.rng)
            .unwrap();
        (engine, vol)
    }

    fn dev(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device) as _
    }

    fn options(&self) -> EngineOptions {
        EngineOptions {
            background: self.background,
            inodes: self.inodes,
            behind: self.behind,
            usage: self.usage,
            ..EngineOptions::default()
        }
    }

    /// Verifies the devices; nothing else may use them. A check without a fault has seen all
    /// blocks in use.
    pub fn check(&self) -> Report {
        let pool = FramePool::new(4096).unwrap();
        let options = CheckOptions::default();
        let report = check_on(self.dev(), Arc::clone(&self.log) as _, &pool, &options).unwrap();
        let (seen, in_use) = options.progress.blocks().unwrap_or_default();
        assert!(!report.clean() || seen == in_use, "{seen} of {in_use}");
        report
    }

    pub fn repair(&self) -> Report {
        let log = Arc::clone(&self.log) as _;
        repair_on(self.dev(), log, &self.env(), &CheckOptions::default()).unwrap()
    }

    pub fn open(&self) -> (Engine, Arc<Volume>) {
        let (agg, replay) =
            Aggregate::open_on(self.dev(), Arc::clone(&self.log) as _, self.env()).unwrap();
        let engine = Engine::open(agg, replay, &*self.rng, self.options()).unwrap();
        let vol = engine.volume("vol1").unwrap();
        (engine, vol)
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

/// Ends without a checkpoint, once every acknowledged change is durable.
pub fn crash(engine: Engine, vol: Arc<Volume>) {
    let last = run(&vol, |cx| {
        vol.setattr(cx, vol.root(), &SetAttr::default(), None)
    });
    engine.wait_durable(last.unwrap().lsn).unwrap();
}

pub fn create(vol: &Volume, dir: Ino, name: &str) -> Ino {
    run(vol, |cx| {
        vol.create(
            cx,
            dir,
            name.as_bytes(),
            weir_volume::CreateHow::Guarded,
            &SetAttr::default(),
        )
    })
    .unwrap()
    .value
    .ino
}

pub fn mkdir(vol: &Volume, dir: Ino, name: &str) -> Ino {
    run(vol, |cx| {
        vol.mkdir(cx, dir, name.as_bytes(), &SetAttr::default())
    })
    .unwrap()
    .value
    .ino
}

pub fn write(vol: &Volume, ino: Ino, off: u64, data: &[u8], how: Stability) {
    // Data that exceeds one log record is written in parts.
    let mut at = 0;
    while at < data.len() {
        let (off, rest) = (off + at as u64, &data[at..]);
        let done = run(vol, |cx| vol.write(cx, ino, off, rest, how)).unwrap();
        at += done.value.len;
    }
}

pub fn read(vol: &Volume, ino: Ino, off: u64, len: usize) -> Vec<u8> {
    run(vol, |cx| vol.read(cx, ino, off, len)).unwrap().to_vec()
}

pub fn lookup(vol: &Volume, dir: Ino, name: &str) -> Result<Ino, FsError> {
    run(vol, |cx| vol.lookup(cx, dir, name.as_bytes())).map(|f| f.ino)
}

/// Returns all names of a directory in cookie order, read in small portions.
pub fn names(vol: &Volume, dir: Ino) -> Vec<(u64, String)> {
    let mut out: Vec<(u64, String)> = Vec::new();
    loop {
        let cookie = out.last().map_or(0, |(c, _)| *c);
        let limit = ReadDirLimit {
            entries: 7,
            bytes: 4096,
            attrs: true,
        };
        let mut portion = Vec::new();
        let end = run(vol, |cx| {
            portion.clear();
            vol.readdir(cx, dir, cookie, limit, &mut |e: &DirEntry<'_>| {
                portion.push((e.cookie, String::from_utf8_lossy(e.name).into_owned()));
                true
            })
        })
        .unwrap();
        assert!(end.eof || !portion.is_empty(), "no progress");
        out.extend(portion);
        if end.eof {
            return out.into_iter().filter(|(c, _)| *c > 2).collect();
        }
    }
}
