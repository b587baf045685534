//! The model against the NFSv3 surface: with clean restarts, and with power failures.

use super::server::Server;
use crate::generate::{Generator, Profile};
use crate::machine::{Machine, RunningEngine, Sizes};
use crate::model::Rules;
use crate::rand::Choices;
use crate::runner::Runner;
use crate::subject::Subject;

type CheckResult<T = ()> = Result<T, String>;

fn sizes() -> Sizes {
    Sizes {
        background: true,
        ..Sizes::small()
    }
}

fn operate(
    server: &mut Server,
    runner: &mut Runner,
    generator: &mut Generator,
    tail: &mut Vec<String>,
) -> CheckResult {
    let op = generator.next(&runner.model);
    let id = runner.next_id();
    tail.push(format!("{id:?} {op:?}"));
    runner
        .step(server, id, &op)
        .map_err(|e| format!("{id:?} {op:?}: {e}"))
}

/// Random calls with checkpoints and clean restarts.
///
/// # Errors
/// The first difference.
pub fn restarts(seed: u64) -> CheckResult {
    let mut tail = Vec::new();
    tell_restarts(seed, &mut tail).map_err(|what| explain(&what, &tail))
}

fn explain(what: &str, tail: &[String]) -> String {
    format!(
        "{what}\nlast operations:\n{}",
        tail[tail.len().saturating_sub(25)..].join("\n")
    )
}

fn tell_restarts(seed: u64, tail: &mut Vec<String>) -> CheckResult {
    let choices = Choices::new(seed);
    let profile = choices
        .pick(&[Profile::mixed(), Profile::names(), Profile::data()])
        .over_nfs3();
    let mut generator = Generator::new(choices.fork(), profile);
    let machine = Machine::new(sizes(), &choices)?;
    let mut runner: Option<Runner> = None;
    for _ in 0..choices.between(1, 4) {
        let running = machine.boot()?;
        let mut server = Server::new(&machine, &running)?;
        let runner = match &mut runner {
            Some(runner) => {
                runner
                    .verify(&mut server, &choices)
                    .map_err(|e| format!("after a restart: {e}"))?;
                runner
            }
            none => none.insert(
                Runner::new(&mut server, machine.current_time(), Rules::VFS).map_err(|m| m.0)?,
            ),
        };
        for _ in 0..choices.between(20, 250) {
            operate(&mut server, runner, &mut generator, tail)?;
            if choices.chance(1, 50) {
                running
                    .engine
                    .cp_now()
                    .map_err(|e| format!("checkpoint: {e}"))?;
            }
        }
        runner
            .verify(&mut server, &choices)
            .map_err(|e| format!("at the end: {e}"))?;
        running
            .engine
            .shutdown()
            .map_err(|e| format!("shutdown: {e}"))?;
        runner.stopped_cleanly();
        drop(server);
        drop(running);
        machine.check()?;
    }
    Ok(())
}

/// Random calls, with the power failing at some write. What a reply waits for is durable before it
/// counts.
///
/// # Errors
/// What was wrong.
pub fn crashes(seed: u64) -> CheckResult {
    let mut tail = Vec::new();
    tell_crashes(seed, &mut tail).map_err(|what| explain(&what, &tail))
}

fn tell_crashes(seed: u64, tail: &mut Vec<String>) -> CheckResult {
    let choices = Choices::new(seed);
    let profile = choices
        .pick(&[Profile::mixed(), Profile::mutations()])
        .over_nfs3();
    let mut generator = Generator::new(choices.fork(), profile);
    let mut machine = Machine::new(sizes(), &choices)?;
    let mut runner: Option<Runner> = None;
    for life in 0..choices.between(2, 4) {
        let running = machine.boot()?;
        let mut server = Server::new(&machine, &running)?;
        let runner = match &mut runner {
            Some(runner) => {
                runner
                    .recovered(&mut server, &choices)
                    .map_err(|e| format!("life {life}: {e}"))?;
                runner
                    .verify(&mut server, &choices)
                    .map_err(|e| format!("life {life}: {e}"))?;
                runner
            }
            none => none.insert(
                Runner::new(&mut server, machine.current_time(), Rules::VFS).map_err(|m| m.0)?,
            ),
        };
        let at = machine.world.counts().events + choices.between(1, 300);
        machine.world.crash_at(at);
        for _ in 0..choices.between(5, 200) {
            let op = generator.next(&runner.model);
            let id = runner.next_id();
            tail.push(format!("{id:?} {op:?}"));
            let result = runner.step(&mut server, id, &op);
            if machine.world.crashed() {
                if result.is_err() {
                    runner.in_doubt(id, &op);
                }
                break;
            }
            result.map_err(|e| format!("{id:?} {op:?}: {e}"))?;
            // Sometimes a client waits for its reply, sometimes more calls are in flight.
            if choices.chance(1, 3) {
                wait(&running, runner.last_lsn());
            }
            runner.acknowledge(server.durable());
        }
        runner.acknowledge(server.durable());
        drop(server);
        machine.world.crash();
        drop(running);
        machine.reboot(&choices);
        machine
            .check()
            .map_err(|e| format!("after life {life}: {e}"))?;
    }
    Ok(())
}

fn wait(running: &RunningEngine, lsn: u64) {
    // The error is the power failure.
    let _ = running.engine.wait_durable(Some(weir_base::Lsn(lsn)));
}
