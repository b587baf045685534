//! Stories of failing and filling disks.

use std::sync::Arc;

use weir_store::IoKind;
use weir_store::layout;
use weir_store::superblock::Superblock;

use crate::disk::Fault;
use crate::engine::with;
use crate::generate::{Generator, Profile};
use crate::machine::{CHUNK, DATA, LOG, Machine, RunningEngine, Sizes};
use crate::model::{
    Body, CreateMode, Data, Errno, Errors, Kind, Model, Name, Op, ROOT, Rules, Set, Slot, Stable,
};
use crate::rand::Choices;
use crate::runner::Runner;

type CheckResult<T = ()> = Result<T, String>;

/// A machine, its model, and operations for it.
struct Scene {
    choices: Choices,
    machine: Machine,
    runner: Runner,
    generator: Generator,
}

impl Scene {
    fn new(seed: u64, sizes: Sizes, profile: Profile) -> CheckResult<(Scene, RunningEngine)> {
        let choices = Choices::new(seed);
        let machine = Machine::new(sizes, &choices)?;
        let running = machine.boot()?;
        let runner = with(&running, |subject| {
            Runner::new(subject, machine.current_time(), Rules::ENGINE)
        })?;
        let generator = Generator::new(choices.fork(), profile);
        Ok((
            Scene {
                choices,
                machine,
                runner,
                generator,
            },
            running,
        ))
    }

    fn perform(&mut self, running: &RunningEngine, op: &Op) -> CheckResult {
        let id = self.runner.next_id();
        with(running, |subject| self.runner.step(subject, id, op))
            .map_err(|e| format!("{id:?} {op:?}: {e}"))
    }

    fn operate(&mut self, running: &RunningEngine, count: u64) -> CheckResult {
        for _ in 0..count {
            let op = self.generator.next(&self.runner.model);
            self.perform(running, &op)?;
        }
        Ok(())
    }

    fn verify(&mut self, running: &RunningEngine) -> CheckResult {
        with(running, |subject| {
            self.runner.verify(subject, &self.choices)
        })
    }

    fn stop(&mut self, running: RunningEngine) -> CheckResult {
        running
            .engine
            .shutdown()
            .map_err(|e| format!("shutdown: {e}"))?;
        self.runner.stopped_cleanly();
        drop(running);
        self.machine.check()
    }

    /// Power failure, check, recovery, comparison.
    fn crash(&mut self, running: RunningEngine) -> CheckResult<RunningEngine> {
        self.machine.world.crash();
        drop(running);
        self.machine.reboot(&self.choices);
        self.machine.check()?;
        let running = self.machine.boot()?;
        with(&running, |subject| {
            self.runner.recovered(subject, &self.choices)
        })?;
        Ok(running)
    }
}

/// A write or flush fails: the aggregate is poisoned, refuses changes, has another verifier, can be
/// read; after a restart everything acknowledged is there.
///
/// # Errors
/// What was wrong.
pub fn failed_write(seed: u64) -> CheckResult {
    let (mut scene, running) = Scene::new(seed, Sizes::small(), Profile::mutations())?;
    let count = scene.choices.between(5, 120);
    scene.operate(&running, count)?;
    if scene.choices.chance(1, 2) {
        running
            .engine
            .cp_now()
            .map_err(|e| format!("checkpoint: {e}"))?;
        scene.operate(&running, count / 2)?;
    }
    let verifier = running.volume.write_verifier();
    let (disk, on) = *scene.choices.pick(&[
        (DATA, IoKind::Write),
        (DATA, IoKind::Flush),
        (LOG, IoKind::Write),
    ]);
    scene.machine.world.inject(Fault {
        disk,
        on,
        blocks: None,
        skip: scene.choices.below(4),
        times: if scene.choices.chance(1, 2) {
            Some(1)
        } else {
            None
        },
    });
    scene.runner.acknowledge(running.engine.durable().0);
    scene.runner.tolerate = Errors::from_list(&[Errno::ReadOnly]);
    for _ in 0..8 {
        scene.operate(&running, 3)?;
        let last = scene.runner.last_lsn();
        if running
            .engine
            .wait_durable(Some(weir_base::Lsn(last)))
            .is_ok()
        {
            scene.runner.acknowledge(last);
        }
        if running.engine.poisoned().is_some() {
            break;
        }
        if running.engine.cp_now().is_ok() {
            scene.runner.acknowledge_all();
        }
    }
    if running.engine.poisoned().is_none() {
        return Err(format!("no poison after a failed {on} on {disk:?}"));
    }
    if running.volume.write_verifier() == verifier {
        return Err("the write verifier did not change with the poisoning".into());
    }
    let refused = scene.runner.tolerated;
    let id = scene.runner.next_id();
    let op = Op::Mkdir {
        dir: ROOT,
        name: "refused".into(),
        set: Set::default(),
    };
    with(&running, |subject| scene.runner.step(subject, id, &op))?;
    if scene.runner.tolerated == refused {
        return Err("a poisoned aggregate accepted a change".into());
    }
    scene.runner.tolerate = Errors::NONE;
    scene
        .verify(&running)
        .map_err(|e| format!("poisoned: {e}"))?;
    drop(scene.crash(running)?);
    Ok(())
}

/// Reads fail now and then: an operation may return an I/O error, but changes nothing then and is
/// right otherwise.
///
/// # Errors
/// What was wrong.
pub fn failed_reads(seed: u64) -> CheckResult {
    let (mut scene, running) = Scene::new(seed, Sizes::small(), Profile::mixed())?;
    scene.operate(&running, 200)?;
    scene.stop(running)?;
    let running = scene.machine.boot()?;
    scene.runner.tolerate = Errors::from_list(&[Errno::Io]);
    for _ in 0..10 {
        scene.machine.world.inject(Fault {
            disk: DATA,
            on: IoKind::Read,
            blocks: None,
            skip: scene.choices.below(5),
            times: Some(scene.choices.between(1, 3)),
        });
        scene.operate(&running, 5)?;
    }
    scene.machine.world.heal();
    if running.engine.poisoned().is_some() {
        // A checkpoint that was needed in between could not read a node: allowed.
        return Ok(());
    }
    scene.runner.tolerate = Errors::NONE;
    scene.verify(&running)?;
    if let Err(what) = scene.stop(running) {
        // A part of the allocation map that could not be read when something in it became free:
        // nothing is lost but the space, and repair finds that.
        let faults: Vec<&str> = what
            .lines()
            .filter(|line| line.starts_with("fault:"))
            .collect();
        if faults.is_empty()
            || !faults
                .iter()
                .all(|fault| fault.contains("allocated but unused"))
        {
            return Err(what);
        }
        scene.machine.repair()?;
    }
    let running = scene.machine.boot()?;
    scene.verify(&running)
}

/// One block rots: every result is right or an I/O error, and `check` reports the damage.
///
/// # Errors
/// What was wrong.
pub fn rot(seed: u64) -> CheckResult {
    let (mut scene, running) = Scene::new(seed, Sizes::small(), Profile::mixed())?;
    scene.operate(&running, 250)?;
    scene.stop(running)?;
    let written = scene.machine.world.written(DATA);
    let block = *scene.choices.pick(&written);
    let at = scene.choices.index(4096);
    scene
        .machine
        .world
        .damage(DATA, block, |content| content[at] ^= 1 << (at % 8));
    let noticed = scene.machine.check().is_err();
    let running = match scene.machine.boot() {
        Ok(running) => running,
        Err(error) if noticed => {
            // Damage where everything begins (the catalog, the map): refused with a reason.
            let _ = error;
            return Ok(());
        }
        Err(error) => {
            return Err(format!(
                "cannot start after damage that check does not see: {error}"
            ));
        }
    };
    scene.runner.tolerate = Errors::from_list(&[Errno::Io]);
    let before = scene.runner.tolerated;
    scene
        .verify(&running)
        .map_err(|e| format!("block {block} damaged: {e}"))?;
    let failed = scene.runner.tolerated - before;
    if failed > 0 && !noticed {
        return Err(format!(
            "block {block} is damaged, {failed} reads failed, and check saw nothing"
        ));
    }
    Ok(())
}

/// The newest superblock is damaged: losing one copy of it costs nothing; losing both costs what no
/// client had committed, and the damage is reported.
///
/// # Errors
/// What was wrong.
pub fn superblock(seed: u64) -> CheckResult {
    let (mut scene, running) = Scene::new(seed, Sizes::small(), Profile::mutations())?;
    let count = scene.choices.between(1, 60);
    scene.operate(&running, count)?;
    if scene.choices.chance(1, 2) {
        running
            .engine
            .cp_now()
            .map_err(|e| format!("checkpoint: {e}"))?;
        scene.operate(&running, count)?;
    }
    running
        .engine
        .cp_now()
        .map_err(|e| format!("checkpoint: {e}"))?;
    let generation = running.engine.aggregate().generation();
    let last = scene.runner.last_lsn();
    running
        .engine
        .wait_durable(Some(weir_base::Lsn(last)))
        .map_err(|e| format!("log: {e}"))?;
    scene.runner.acknowledge_all();
    scene.machine.world.crash();
    drop(running);
    scene.machine.reboot(&scene.choices);
    let [slot, mirror] = layout::superblock(Superblock::slot(generation));
    let both = scene.choices.chance(1, 2);
    let first = if scene.choices.chance(1, 2) {
        slot
    } else {
        mirror
    };
    for at in [slot, mirror] {
        if both || at == first {
            let byte = scene.choices.index(120);
            scene
                .machine
                .world
                .damage(DATA, at.0, |content| content[byte] ^= 0x10);
        }
    }
    let running = scene.machine.boot()?;
    with(&running, |subject| {
        scene.runner.recovered(subject, &scene.choices)
    })
    .map_err(|e| format!("both {both}: {e}"))?;
    scene.verify(&running)?;
    scene.stop(running)?;
    Ok(())
}

/// The disk fills up: errors are "no space", checkpoints never fail, deletion works, and space
/// comes back.
///
/// # Errors
/// What was wrong.
pub fn full(seed: u64) -> CheckResult {
    let choices = Choices::new(seed);
    let by_host = choices.chance(1, 3);
    let sizes = Sizes {
        chunks: if by_host { 8 } else { 1 },
        ..Sizes::small()
    };
    let (mut scene, mut running) = Scene::new(seed, sizes, Profile::mixed().without_opens())?;
    if by_host {
        scene.machine.world.set_host_free(choices.below(CHUNK / 8));
    }
    scene.runner.tolerate = Errors::from_list(&[Errno::NoSpace]);
    for round in 0..3 {
        fill(&mut scene, &running)?;
        if choices.chance(1, 3) {
            running = scene
                .crash(running)
                .map_err(|e| format!("round {round}: {e}"))?;
            scene.runner.tolerate = Errors::from_list(&[Errno::NoSpace]);
        }
        scene.operate(&running, 30)?;
        drain(&mut scene, &running)?;
        point(&running)?;
        point(&running)?;
        // What was freed can be used again.
        let tolerated = scene.runner.tolerated;
        let id = scene.runner.next_id();
        let name = Name::from(&*format!("again{round}"));
        let create = Op::Create {
            dir: ROOT,
            name,
            how: CreateMode::Unchecked,
            set: Set::default(),
        };
        with(&running, |subject| scene.runner.step(subject, id, &create))?;
        let write = Op::Write {
            object: id,
            offset: 0,
            data: Data {
                pattern: 7,
                len: 500_000,
            },
            stable: Stable::File,
        };
        scene.perform(&running, &write)?;
        if scene.runner.tolerated != tolerated {
            return Err(format!("round {round}: no space although much was removed"));
        }
    }
    scene.runner.tolerate = Errors::NONE;
    scene.verify(&running)?;
    scene.stop(running)
}

/// Free space goes back to the host, which gives it to others: errors are "no space", checkpoints
/// never fail, deletion works, and when the host has space again, so has the aggregate. A discard
/// that fails costs nothing.
///
/// # Errors
/// What was wrong.
pub fn discarded(seed: u64) -> CheckResult {
    let (mut scene, mut running) =
        Scene::new(seed, Sizes::small(), Profile::mixed().without_opens())?;
    let choices = Choices::new(seed);
    let world = |scene: &Scene| Arc::clone(&scene.machine.world);
    world(&scene).set_host_free(choices.between(CHUNK, 3 * CHUNK));
    for round in 0..3 {
        scene.operate(&running, choices.between(20, 100))?;
        point(&running)?;
        point(&running)?;
        if choices.chance(1, 4) {
            world(&scene).inject(Fault {
                disk: DATA,
                on: IoKind::Discard,
                blocks: None,
                skip: choices.below(3),
                times: Some(1),
            });
        }
        let space = running.engine.aggregate().space();
        let before = space.stats();
        while space.discard(choices.below(200)) {}
        let after = space.stats();
        if after.holes != world(&scene).holes(DATA) && scene.machine.world.counts().failed == 0 {
            return Err(format!("{after:?}: other holes than the disk has"));
        }
        if after.total - after.holes > before.total - before.holes {
            return Err(format!("a discard took space: {before:?}, then {after:?}"));
        }
        scene.runner.tolerate = Errors::from_list(&[Errno::NoSpace]);
        world(&scene).set_host_free(0);
        scene.operate(&running, choices.between(20, 100))?;
        point(&running)?;
        if choices.chance(1, 2) {
            running = scene
                .crash(running)
                .map_err(|e| format!("round {round}: {e}"))?;
            scene.runner.tolerate = Errors::from_list(&[Errno::NoSpace]);
        }
        drain(&mut scene, &running)?;
        point(&running)?;
        world(&scene).set_host_free(3 * CHUNK);
        point(&running)?;
        point(&running)?;
        scene.runner.tolerate = Errors::NONE;
        scene.operate(&running, 20)?;
    }
    scene.verify(&running)?;
    scene.stop(running)
}

fn point(running: &RunningEngine) -> CheckResult {
    running.engine.cp_now().map_err(|e| {
        format!(
            "a checkpoint failed on a full disk: {e}; {:?}",
            running.engine.poisoned()
        )
    })
}

/// Writes large files until there is no space, then small ones until there is none for these
/// either.
fn fill(scene: &mut Scene, running: &RunningEngine) -> CheckResult {
    let start = scene.runner.tolerated;
    for n in 0.. {
        if scene.runner.tolerated > start + 6 {
            break;
        }
        if n > 3000 {
            return Err("the disk does not fill up".into());
        }
        let small = scene.runner.tolerated > start + 2;
        let id = scene.runner.next_id();
        let name = Name::from(&*format!("fill{}", id.0));
        let create = Op::Create {
            dir: ROOT,
            name,
            how: CreateMode::Unchecked,
            set: Set::default(),
        };
        with(running, |subject| scene.runner.step(subject, id, &create))
            .map_err(|e| format!("fill: {e}"))?;
        if scene.runner.model.node(id).is_none() {
            continue;
        }
        let write = Op::Write {
            object: id,
            offset: 0,
            data: Data {
                pattern: id.0,
                len: if small { 5000 } else { 1_000_000 },
            },
            stable: *scene.choices.pick(&[Stable::Unstable, Stable::File]),
        };
        scene.perform(running, &write)?;
        if scene.choices.chance(1, 25) {
            point(running)?;
        }
    }
    point(running)
}

/// Removes every second file. Removal must not fail for want of space.
fn drain(scene: &mut Scene, running: &RunningEngine) -> CheckResult {
    let tolerated = scene.runner.tolerated;
    let mut remove: Vec<(Slot, Name)> = Vec::new();
    for (slot, node) in scene.runner.model.nodes() {
        if let Body::Dir { entries, .. } = &node.body {
            remove.extend(
                entries
                    .iter()
                    .filter(|(_, child)| kind(&scene.runner.model, **child) == Some(Kind::File))
                    .map(|(name, _)| (slot, name.clone())),
            );
        }
    }
    for (dir, name) in remove.into_iter().step_by(2) {
        let op = Op::Remove { dir, name };
        scene.perform(running, &op)?;
    }
    if scene.runner.tolerated != tolerated {
        return Err("a file could not be removed from a full disk".into());
    }
    Ok(())
}

fn kind(model: &Model, slot: Slot) -> Option<Kind> {
    model.node(slot).map(crate::model::Node::kind)
}
