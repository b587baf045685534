//! Random operations against the engine with checkpoints and clean restarts between them, compared
//! with the model after every operation, and in whole after every restart. A failing sequence is
//! made short before it is reported.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::with;
use crate::generate::{Generator, Profile};
use crate::machine::{Machine, Sizes};
use crate::minimise::minimise;
use crate::model::{Op, Rules, Slot};
use crate::rand::Choices;
use crate::runner::Runner;
use crate::suite::panic_text;

type CheckResult<T = ()> = Result<T, String>;

/// One step of a sequence.
#[derive(Clone, Debug)]
pub enum Step {
    /// An operation, with its slot.
    Operate(Slot, Op),
    /// A checkpoint, made and awaited.
    Point,
    /// A clean stop, offline verification, a start, and a comparison of the whole state.
    Restart,
    /// A comparison of the whole state.
    Verify,
}

/// Performs steps that come from `next`, which is shown the model.
fn perform(
    seed: u64,
    sizes: Sizes,
    mut next: impl FnMut(&mut Runner) -> Option<Step>,
) -> CheckResult {
    let choices = Choices::new(seed);
    let machine = Machine::new(sizes, &choices)?;
    let mut running = machine.boot()?;
    let mut runner = with(&running, |subject| {
        Runner::new(subject, machine.current_time(), Rules::ENGINE)
    })?;
    while let Some(step) = next(&mut runner) {
        match &step {
            Step::Operate(id, op) => {
                with(&running, |subject| runner.step(subject, *id, op))
                    .map_err(|e| format!("{id:?} {op:?}: {e}"))?;
            }
            Step::Point => running
                .engine
                .cp_now()
                .map_err(|e| format!("checkpoint: {e}"))?,
            Step::Verify => with(&running, |subject| runner.verify(subject, &choices))?,
            Step::Restart => {
                running
                    .engine
                    .shutdown()
                    .map_err(|e| format!("shutdown: {e}"))?;
                runner.stopped_cleanly();
                drop(running);
                machine.check()?;
                running = machine.boot()?;
                with(&running, |subject| runner.verify(subject, &choices))
                    .map_err(|e| format!("after a restart: {e}"))?;
            }
        }
    }
    Ok(())
}

fn replay(seed: u64, steps: &[Step]) -> CheckResult {
    let mut rest = steps.iter();
    catch_unwind(AssertUnwindSafe(|| {
        perform(seed, Sizes::small(), |_| rest.next().cloned())
    }))
    .unwrap_or_else(|panic| Err(panic_text(&*panic)))
}

/// Generates and performs a sequence.
///
/// # Errors
/// The first difference, with a short sequence that shows it.
pub fn story(seed: u64) -> CheckResult {
    let choices = Choices::new(seed);
    let profile = *choices.pick(&[Profile::mixed(), Profile::names(), Profile::data()]);
    let mut generator = Generator::new(choices.fork(), profile);
    let mut steps: Vec<Step> = Vec::new();
    let mut left = choices.between(100, 600);
    let result = catch_unwind(AssertUnwindSafe(|| {
        perform(seed, Sizes::small(), |runner| {
            left = left.checked_sub(1)?;
            let step = match choices.below(80) {
                _ if left == 1 => Step::Verify,
                _ if left == 0 => Step::Restart,
                0 | 1 => Step::Point,
                2 => Step::Restart,
                3 => Step::Verify,
                _ => Step::Operate(runner.next_id(), generator.next(&runner.model)),
            };
            steps.push(step.clone());
            Some(step)
        })
    }))
    .unwrap_or_else(|panic| Err(panic_text(&*panic)));
    let Err(what) = result else {
        return Ok(());
    };
    let short = if replay(seed, &steps).is_err() {
        minimise(&steps, 300, |steps| replay(seed, steps).is_err())
    } else {
        steps
    };
    let shown = replay(seed, &short).err().unwrap_or_default();
    let list: Vec<String> = short.iter().map(|step| format!("  {step:?}")).collect();
    Err(format!(
        "{what}\nminimal sequence ({shown}):\n{}",
        list.join("\n")
    ))
}
