//! An engine on devices in memory, and a volume with calls that block: for tests of single modules.

use std::sync::Arc;

use weir_base::{Ino, ManualClock, Rng, SeededRng, Time};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::{Device, FramePool, MemDevice};

use crate::check::{CheckOptions, Report, check_on, repair_on};
use crate::lifecycle::engine::{Engine, EngineOptions};
use crate::overlay::context::EngineContext;
use crate::overlay::volume::Volume;
use crate::types::{CreateHow, SetAttr, Stability, Stop};

/// Devices that survive the engine on them.
pub(crate) struct Machine {
    device: Arc<dyn Device>,
    log: Arc<dyn Device>,
    env: Env,
}

/// Creates an aggregate with the empty volume `vol`, without background threads.
pub(crate) fn machine(seed: u64) -> (Machine, Engine, Arc<Volume>) {
    let rng = Arc::new(SeededRng::new(seed));
    let machine = Machine {
        device: Arc::new(MemDevice::new(64 << 8)),
        log: Arc::new(MemDevice::new(4 << 8)),
        env: Env {
            pool: FramePool::new(4096).unwrap(),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::clone(&rng) as Arc<dyn Rng>,
        },
    };
    let (device, log) = (Arc::clone(&machine.device), Arc::clone(&machine.log));
    let (agg, replay) = Aggregate::create_on(device, log, machine.env.clone()).unwrap();
    let options = EngineOptions {
        background: false,
        ..EngineOptions::default()
    };
    let engine = Engine::open(agg, replay, &*rng, options).unwrap();
    let vol = engine.create_volume("vol", (0, 0), 0o755, Time::EPOCH, &*rng);
    (machine, engine, vol.unwrap())
}

impl Machine {
    /// Verifies the devices, which nothing else uses any more.
    pub(crate) fn check(&self) -> Report {
        let (device, log) = (Arc::clone(&self.device), Arc::clone(&self.log));
        check_on(device, log, &self.env.pool, &CheckOptions::default()).unwrap()
    }

    /// Verifies the devices, and repairs them.
    pub(crate) fn repair(&self) -> Report {
        let (device, log) = (Arc::clone(&self.device), Arc::clone(&self.log));
        repair_on(device, log, &self.env, &CheckOptions::default()).unwrap()
    }
}

pub(crate) fn run<T>(vol: &Volume, op: impl FnMut(&mut EngineContext) -> Result<T, Stop>) -> T {
    vol.drive_blocking(&mut EngineContext::new(Time::EPOCH), op)
        .unwrap()
}

/// Creates a file in the root.
pub(crate) fn create(vol: &Volume, name: &[u8]) -> Ino {
    let (how, set) = (CreateHow::Guarded, SetAttr::default());
    let made = run(vol, |cx| vol.create(cx, vol.root(), name, how, &set));
    made.value.ino
}

/// Writes a number of blocks, unstable.
pub(crate) fn write(vol: &Volume, file: Ino, block: u64, data: &[u8]) {
    let put = |cx: &mut EngineContext| vol.write(cx, file, block * 4096, data, Stability::Unstable);
    run(vol, put);
}
