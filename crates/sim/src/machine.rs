//! A simulated machine that runs the engine: disks, memory, clock, and a power switch.

use std::sync::{Arc, Mutex};

use weir_base::{Clock, ManualClock, Rng, SeededRng, Time};
use weir_store::aggregate::{Aggregate, Env};
use weir_store::layout::{self, Slot};
use weir_store::{Device, FramePool};
use weir_volume::check::{CheckOptions, check_on, repair_on};
use weir_volume::{Engine, EngineOptions, Pin, Volume};

use crate::disk::{DiskId, DiskOptions, World};
use crate::rand::Choices;

/// The disk of the aggregate's device.
pub const DATA: DiskId = DiskId(0);
/// The disk of the intent log.
pub const LOG: DiskId = DiskId(1);
/// The volume under test.
pub const VOLUME: &str = "vol1";

/// Blocks of an allocation chunk: the unit in which the data device grows.
pub const CHUNK: u64 = 32_768;

/// Page frames that checks of checkpoints take.
const WATCH_FRAMES: usize = 4096;

/// Sizes of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Page frames of 4 KiB.
    pub frames: usize,
    /// Chunks that the data device may grow to.
    pub chunks: u64,
    /// Blocks of the intent log.
    pub log_blocks: u64,
    /// Inodes kept in memory.
    pub inodes: usize,
    /// The engine has its own thread for checkpoints.
    pub background: bool,
    /// Bytes that the log may be behind before large data goes to its place.
    pub behind: u64,
}

impl Sizes {
    /// Returns sizes like [`Sizes::small`], now and then with much less memory or a smaller log.
    #[must_use]
    pub fn varied(choices: &Choices) -> Sizes {
        Sizes {
            frames: *choices.pick(&[1024, 2048, 4096, 4096]),
            log_blocks: *choices.pick(&[1025, 2049, 2049, 4097]),
            inodes: *choices.pick(&[1, 16, 1000]),
            behind: *choices.pick(&[0, 0, 0, u64::MAX]),
            ..Sizes::small()
        }
    }

    /// Small enough that everything runs out now and then, large enough for the largest operation.
    #[must_use]
    pub fn small() -> Sizes {
        Sizes {
            frames: 4096,
            chunks: 8,
            log_blocks: 2049,
            inodes: 16,
            background: false,
            behind: 0,
        }
    }
}

/// A machine: its disks, clock, randomness and sizes, kept over restarts.
pub struct Machine {
    /// The disks, which share the power.
    pub world: Arc<World>,
    /// The clock, which moves only when a test advances it.
    pub clock: Arc<ManualClock>,
    rng: Arc<SeededRng>,
    sizes: Sizes,
    /// True if the engine applies another machine's changes.
    standby: bool,
}

/// A started engine and its volume.
pub struct RunningEngine {
    /// The engine on the machine's disks.
    pub engine: Engine,
    /// The volume under test.
    pub volume: Arc<Volume>,
    /// Pins of the objects that are open in the volume.
    pub pins: Mutex<Vec<Pin>>,
}

fn world_of(sizes: &Sizes) -> Arc<World> {
    World::new(&[
        DiskOptions {
            length: CHUNK,
            max: sizes.chunks * CHUNK,
            durable: false,
        },
        DiskOptions {
            length: sizes.log_blocks,
            max: sizes.log_blocks,
            durable: true,
        },
    ])
}

impl Machine {
    /// Creates a machine with an empty volume, cleanly stopped.
    ///
    /// # Errors
    /// What failed.
    pub fn new(sizes: Sizes, choices: &Choices) -> Result<Machine, String> {
        let machine = Machine {
            world: world_of(&sizes),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(SeededRng::new(choices.bits())),
            sizes,
            standby: false,
        };
        let (device, log) = machine.devices();
        let (aggregate, replay) = Aggregate::create_on(device, log, machine.env()?)
            .map_err(|e| format!("create: {e}"))?;
        machine.watch()?;
        let engine = machine.engine(aggregate, replay)?;
        engine
            .create_volume(
                VOLUME,
                (0, 0),
                0o755,
                machine.clock.current_time(),
                &*machine.rng,
            )
            .map_err(|e| format!("create volume: {e}"))?;
        // So that what is open stays over restarts: no grace period ends in these stories.
        let noted = engine.client_records().set(1, Some(b"a client"));
        noted.map_err(|stop| format!("record a client: {stop:?}"))?;
        engine.shutdown().map_err(|e| format!("shutdown: {e}"))?;
        Ok(machine)
    }

    /// A machine with a copy of this one's disks, as they would be after an orderly power-off, and
    /// the same clock.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn twin(&self, sizes: Sizes, choices: &Choices) -> Result<Machine, String> {
        let twin = Machine {
            world: self.world.copy(),
            clock: Arc::clone(&self.clock),
            rng: Arc::new(SeededRng::new(choices.bits())),
            sizes,
            standby: false,
        };
        twin.watch()?;
        Ok(twin)
    }

    /// A machine with an empty aggregate that is going to be a copy of this one's, and the same
    /// clock.
    ///
    /// # Errors
    /// What failed.
    pub fn blank_copy(&self, sizes: Sizes, choices: &Choices) -> Result<Machine, String> {
        let ours = Aggregate::inspect_on(self.world.device(DATA), &self.env()?.pool);
        let id = ours.map_err(|e| format!("aggregate: {e}"))?.superblock.id;
        let machine = Machine {
            world: world_of(&sizes),
            clock: Arc::clone(&self.clock),
            rng: Arc::new(SeededRng::new(choices.bits())),
            sizes,
            standby: true,
        };
        let (device, log) = machine.devices();
        let made = Aggregate::create_copy_on(device, log, machine.env()?, id);
        let (aggregate, replay) = made.map_err(|e| format!("create a copy: {e}"))?;
        machine.watch()?;
        let engine = machine.engine(aggregate, replay)?;
        engine.shutdown().map_err(|e| format!("shutdown: {e}"))?;
        Ok(machine)
    }

    /// Starts the engine, whatever volumes it has: recovery, if the power had failed.
    ///
    /// # Errors
    /// What failed.
    pub fn start(&self) -> Result<Engine, String> {
        let (device, log) = self.devices();
        let opened = Aggregate::open_on(device, log, self.env()?);
        let (aggregate, replay) = opened.map_err(|e| format!("aggregate: {e}"))?;
        self.engine(aggregate, replay)
    }

    /// Sets whether the engine applies another machine's changes from the next start on.
    pub fn set_standby(&mut self, standby: bool) {
        self.standby = standby;
    }

    fn devices(&self) -> (Arc<dyn Device>, Arc<dyn Device>) {
        (self.world.device(DATA), self.world.device(LOG))
    }

    fn env(&self) -> Result<Env, String> {
        let pool = FramePool::new(self.sizes.frames).map_err(|e| format!("frames: {e}"))?;
        Ok(Env {
            pool,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            rng: Arc::clone(&self.rng) as Arc<dyn Rng>,
        })
    }

    fn engine(
        &self,
        aggregate: Arc<Aggregate>,
        replay: weir_store::aggregate::Replay,
    ) -> Result<Engine, String> {
        let options = EngineOptions {
            background: self.sizes.background,
            inodes: self.sizes.inodes,
            behind: self.sizes.behind,
            standby: self.standby,
            ..EngineOptions::default()
        };
        Engine::open(aggregate, replay, &*self.rng, options).map_err(|e| format!("open: {e}"))
    }

    /// Starts the engine: recovery, if the power had failed.
    ///
    /// # Errors
    /// What failed.
    pub fn boot(&self) -> Result<RunningEngine, String> {
        let engine = self.start()?;
        let volume = engine.volume(VOLUME).ok_or("the volume is gone")?;
        Ok(RunningEngine {
            engine,
            volume,
            pins: Mutex::default(),
        })
    }

    /// Page frames of 4 KiB.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.sizes.frames
    }

    /// The memory is another one from the next start on.
    pub fn set_frames(&mut self, frames: usize) {
        self.sizes.frames = frames;
    }

    /// Cuts the power, if it is not off already, and starts the machine again with what its disks
    /// kept.
    pub fn reboot(&mut self, choices: &Choices) {
        let watched = self.world.watched();
        self.world = self.world.reboot(choices);
        if let Some((blocks, look)) = watched {
            self.world.watch(DATA, blocks, look);
        }
    }

    /// Checks every checkpoint when it becomes durable: trees, allocation map, sums, link counts.
    ///
    /// # Errors
    /// If there is no memory for it.
    fn watch(&self) -> Result<(), String> {
        let pool = FramePool::new(WATCH_FRAMES).map_err(|e| format!("frames: {e}"))?;
        let slots = Slot::BOTH.map(|slot| layout::superblock(slot)[0].0);
        let look = move |copy: &Arc<World>| {
            let report = check_on(
                copy.device(DATA),
                copy.device(LOG),
                &pool,
                &CheckOptions {
                    data: false,
                    ..CheckOptions::default()
                },
            );
            match report {
                Ok(report) if report.clean() => {}
                Ok(report) => panic!("a checkpoint is not sound:\n{report}"),
                Err(error) => panic!("a checkpoint cannot be checked: {error}"),
            }
        };
        self.world.watch(DATA, slots.into(), Arc::new(look));
        Ok(())
    }

    /// Offline verification of a copy of the disks.
    ///
    /// # Errors
    /// The faults.
    pub fn check(&self) -> Result<(), String> {
        let copy = self.world.copy();
        let env = self.env()?;
        let options = CheckOptions::default();
        let report = check_on(copy.device(DATA), copy.device(LOG), &env.pool, &options)
            .map_err(|e| format!("check: {e}"))?;
        if report.clean() {
            Ok(())
        } else {
            Err(format!("check found faults:\n{report}"))
        }
    }

    /// Repairs the disks, which must leave nothing to complain about.
    ///
    /// # Errors
    /// What is left.
    pub fn repair(&self) -> Result<(), String> {
        let (device, log) = self.devices();
        let report = repair_on(device, log, &self.env()?, &CheckOptions::default())
            .map_err(|e| format!("repair: {e}"))?;
        if report.clean() {
            self.check()
        } else {
            Err(format!("repair left faults:\n{report}"))
        }
    }

    /// The present time of the machine's clock.
    #[must_use]
    pub fn current_time(&self) -> Time {
        self.clock.current_time()
    }
}
