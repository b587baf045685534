//! Stories of crashes.
//!
//! One thread drives everything, and the log's disk is held, so that the seed decides which
//! operations are durable when the power fails. A story is a few lives of the machine; each ends
//! with a power failure (between operations, at some write, in the middle of a checkpoint), the
//! next begins with verification, sometimes with further failures during recovery, and with the
//! comparison of what was recovered.

use std::sync::Arc;

use crate::disk::World;
use crate::engine::EngineSubject;
use crate::generate::{Generator, Profile};
use crate::machine::{CHUNK, DATA, LOG, Machine, RunningEngine, Sizes};
use crate::model::{Op, Rules, Slot};
use crate::rand::Choices;
use crate::runner::Runner;

type CheckResult<T = ()> = Result<T, String>;

/// Events of a story for reports, the newest last.
#[derive(Default)]
pub struct Diary(Vec<String>);

impl Diary {
    fn note(&mut self, what: String) {
        self.0.push(what);
    }

    /// Returns the last `count` events, one per line.
    #[must_use]
    pub fn tail(&self, count: usize) -> String {
        self.0[self.0.len().saturating_sub(count)..].join("\n")
    }
}

/// Turns the power off when a story ends early, so that no thread waits for held disks.
struct OffAtEnd(Arc<World>);

impl Drop for OffAtEnd {
    fn drop(&mut self) {
        self.0.crash();
    }
}

/// One life of the machine, driven by one thread.
struct Life<'a> {
    world: Arc<World>,
    running: &'a RunningEngine,
    runner: &'a mut Runner,
    generator: &'a mut Generator,
    choices: &'a Choices,
    diary: &'a mut Diary,
}

/// Runs the story that `seed` determines.
///
/// # Errors
/// What was wrong, with the last things that happened.
pub fn story(seed: u64) -> CheckResult {
    let mut diary = Diary::default();
    tell(seed, &mut diary).map_err(|what| format!("{what}\nlast events:\n{}", diary.tail(40)))
}

fn tell(seed: u64, diary: &mut Diary) -> CheckResult {
    let choices = Choices::new(seed);
    let profile = *choices.pick(&[
        Profile::mutations(),
        Profile::names(),
        Profile::data(),
        Profile::mixed(),
    ]);
    let mut machine = Machine::new(Sizes::varied(&choices), &choices)?;
    let mut generator = Generator::new(choices.fork(), profile);
    let mut runner: Option<Runner> = None;
    let lives = choices.between(1, 4);
    for life in 0..=lives {
        diary.note(format!("--- life {life}"));
        let running = machine.boot()?;
        let _off = OffAtEnd(Arc::clone(&machine.world));
        let durable = || running.engine.durable().0;
        let quiet = |_: bool| {};
        let mut subject = EngineSubject {
            volume: Arc::clone(&running.volume),
            durable: &durable,
            on_wait: &quiet,
            pins: &running.pins,
        };
        let runner = match &mut runner {
            Some(runner) => {
                runner.recovered(&mut subject, &choices).map_err(|m| m.0)?;
                runner
            }
            none => none.insert(
                Runner::new(&mut subject, machine.current_time(), Rules::ENGINE)
                    .map_err(|m| m.0)?,
            ),
        };
        if life == lives {
            runner
                .verify(&mut subject, &choices)
                .map_err(|m| format!("after recovery: {m}"))?;
            running
                .engine
                .shutdown()
                .map_err(|e| format!("shutdown: {e}"))?;
            runner.stopped_cleanly();
            drop(running);
            machine.check()?;
            let running = machine.boot()?;
            if running.engine.recovered().records != 0 {
                return Err("there is a log to replay after a clean stop".into());
            }
            let durable = || 0;
            let mut subject = EngineSubject {
                volume: Arc::clone(&running.volume),
                durable: &durable,
                on_wait: &quiet,
                pins: &running.pins,
            };
            return runner
                .verify(&mut subject, &choices)
                .map_err(|m| format!("after a clean stop: {m}"));
        }
        Life {
            world: Arc::clone(&machine.world),
            running: &running,
            runner,
            generator: &mut generator,
            choices: &choices,
            diary,
        }
        .live()?;
        runner.acknowledge(running.engine.durable().0);
        machine.world.crash();
        drop(running);
        machine.reboot(&choices);
        machine
            .check()
            .map_err(|e| format!("after the crash of life {life}: {e}"))?;
        // Some recoveries have to do with so little memory that they go in parts.
        let frames = machine.frames();
        for again in 0..choices.below(3) {
            machine.set_frames(*choices.pick(&[frames, 1024]));
            machine.world.crash_at(choices.between(1, 25));
            let started = machine.boot();
            if let (Err(error), false) = (&started, machine.world.crashed()) {
                return Err(format!("recovery failed: {error}"));
            }
            drop(started);
            diary.note(format!(
                "recovery {again} interrupted: {}",
                machine.world.crashed()
            ));
            machine.reboot(&choices);
            machine
                .check()
                .map_err(|e| format!("after a crash during recovery: {e}"))?;
        }
        machine.set_frames(frames);
    }
    Ok(())
}

impl Life<'_> {
    fn live(&mut self) -> CheckResult {
        let choices = self.choices;
        self.world.hold(LOG, true);
        if choices.chance(2, 3) {
            let at = self.world.counts().events + choices.between(1, 400);
            self.world.crash_at(at);
            self.diary.note(format!("power will fail at event {at}"));
        }
        let length = choices.between(5, 250);
        for _ in 0..length {
            if self.world.crashed() {
                self.diary.note("the power is off".into());
                break;
            }
            match choices.below(40) {
                0 => self.checkpoint(),
                1 => self.checkpoint_beside_operations()?,
                2..=9 => self.release_log(),
                10 => self.release_all_log(),
                11 => self.discard(),
                _ => self.operate()?,
            }
            self.runner.acknowledge(self.running.engine.durable().0);
        }
        Ok(())
    }

    /// The log's thread has submitted what it can, so that what is held depends on the seed alone.
    fn wait_for_log(&self) {
        let last = self.runner.last_lsn();
        let engine = &self.running.engine;
        let world = &self.world;
        world.wait_until(|held| {
            held.iter().any(|h| h.disk == LOG)
                || engine.durable().0 >= last
                || engine.poisoned().is_some()
                || world.crashed()
        });
    }

    fn release_log(&mut self) {
        if let Some(held) = self.world.held().into_iter().find(|h| h.disk == LOG) {
            let before = self.running.engine.durable();
            self.world.release(held.id);
            let engine = &self.running.engine;
            let world = &self.world;
            world.wait_until(|_| {
                engine.durable() > before || engine.poisoned().is_some() || world.crashed()
            });
            self.diary
                .note(format!("log durable up to {}", engine.durable()));
        }
        self.wait_for_log();
    }

    fn release_all_log(&mut self) {
        let last = self.runner.last_lsn();
        while self.running.engine.durable().0 < last
            && !self.world.crashed()
            && self.running.engine.poisoned().is_none()
        {
            self.release_log();
        }
    }

    fn operate(&mut self) -> CheckResult {
        let op = self.generator.next(&self.runner.model);
        let id = self.runner.next_id();
        self.perform(id, &op)
    }

    fn perform(&mut self, id: Slot, op: &Op) -> CheckResult {
        self.diary.note(format!("{id:?} {op:?}"));
        let running = self.running;
        let durable = || running.engine.durable().0;
        let world = &self.world;
        let on_wait = |begins: bool| {
            if begins {
                world.release_all(DATA);
                world.release_all(LOG);
            } else {
                world.hold(LOG, true);
            }
        };
        let mut subject = EngineSubject {
            volume: Arc::clone(&running.volume),
            durable: &durable,
            on_wait: &on_wait,
            pins: &self.running.pins,
        };
        let result = self.runner.step(&mut subject, id, op);
        match result {
            // No operation was acknowledged after the power had failed.
            Err(mismatch) if self.world.crashed() => {
                self.diary.note(format!("(power off: {mismatch})"));
                self.runner.in_doubt(id, op);
                Ok(())
            }
            Err(mismatch) => Err(format!("{op:?}: {mismatch}")),
            Ok(()) => {
                self.wait_for_log();
                Ok(())
            }
        }
    }

    /// Gives free space back to the host, until checkpoints have next to none.
    fn discard(&mut self) {
        let space = self.running.engine.aggregate().space();
        let times = self.choices.between(1, 8);
        for _ in 0..times {
            space.discard(self.choices.below(CHUNK));
        }
        let holes = self.world.holes(DATA);
        self.diary
            .note(format!("discarded: {holes} blocks have no space"));
    }

    fn checkpoint(&mut self) {
        self.world.release_all(LOG);
        let result = self.running.engine.cp_now();
        self.diary.note(format!("checkpoint: {result:?}"));
        self.world.hold(LOG, true);
    }

    /// A checkpoint stands still at some of its writes while operations go on, and the power may
    /// fail there.
    fn checkpoint_beside_operations(&mut self) -> CheckResult {
        let world = Arc::clone(&self.world);
        let engine = &self.running.engine;
        world.release_all(LOG);
        let last = self.runner.last_lsn();
        world.wait_until(|_| {
            engine.durable().0 >= last || engine.poisoned().is_some() || world.crashed()
        });
        world.hold(DATA, true);
        self.diary.note("a checkpoint begins".into());
        let mut outcome = Ok(());
        std::thread::scope(|scope| {
            let cp = scope.spawn(|| engine.cp_now());
            let stops = self.choices.between(1, 6);
            for _ in 0..stops {
                world.wait_until(|held| {
                    held.iter().any(|h| h.disk == DATA) || cp.is_finished() || world.crashed()
                });
                for _ in 0..self.choices.below(6) {
                    if world.crashed() || outcome.is_err() {
                        break;
                    }
                    outcome = self.operate();
                }
                if self.choices.chance(1, 8) {
                    self.diary
                        .note("the power fails during the checkpoint".into());
                    world.crash();
                }
                let held: Vec<_> = world
                    .held()
                    .into_iter()
                    .filter(|h| h.disk == DATA)
                    .collect();
                for _ in 0..self.choices.between(1, 4) {
                    if !held.is_empty() {
                        world.release(self.choices.pick(&held).id);
                    }
                }
            }
            world.release_all(DATA);
            world.release_all(LOG);
            let result = cp.join();
            self.diary.note(format!("the checkpoint ended: {result:?}"));
        });
        world.hold(DATA, false);
        world.hold(LOG, true);
        outcome
    }
}
