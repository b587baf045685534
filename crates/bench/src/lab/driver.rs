//! Interface of the runner to a load generator.

use super::outcome::{Point, Repetition, Settings, TargetFacts};
use super::plan::Set;
use super::progress::Display;
use super::spec::{Cache, Definition, Table};
use crate::clock;
use crate::error::BenchError;
use crate::interrupt;
use std::process::Command;
use std::time::Duration;

/// Longest wait for a server to come back after its caches were made cold.
const COME_BACK_S: u64 = 120;

/// Context of the measurement of a point.
pub struct Context<'a> {
    /// The definition that is measured.
    pub definition: &'a Definition,
    /// The settings of the run.
    pub settings: &'a Settings,
    /// Cores of this machine.
    pub cores: u32,
}

impl Context<'_> {
    /// Threads of the own generator.
    pub fn threads(&self) -> u32 {
        let given = self.settings.threads;
        given.unwrap_or((self.cores / 2).max(1))
    }

    /// Seconds of load before a measurement: what is cold must not be warmed up.
    pub fn warmup(&self, table: &Table) -> f64 {
        match self.definition.cache(table) {
            Cache::Cold => 0.0,
            Cache::Warm | Cache::AsIs => self.definition.time.warmup,
        }
    }
}

/// Name and version of the own generator, in the facts of a target.
pub const OWN_GENERATOR: &str = concat!("weir bench ", env!("CARGO_PKG_VERSION"));

/// A load generator and its target.
pub trait Driver {
    /// Adds what it knows about the target.
    fn describe(&self, facts: &mut TargetFacts);

    /// Measures a point once, making its working set before if need be.
    fn measure(
        &mut self,
        context: &Context<'_>,
        point: &Point,
        display: &Display,
    ) -> Result<Repetition, BenchError>;

    /// Fails if the target does not reply any more.
    fn alive(&self) -> Result<(), BenchError>;

    /// Removes the working sets.
    fn clean(&mut self) -> Result<(), BenchError>;
}

/// The table and the working set of a point.
pub fn table_and_set<'a>(
    context: &Context<'a>,
    point: &Point,
) -> Result<(&'a Table, Set), BenchError> {
    let table = context.definition.tables.get(point.table);
    let set = Set::from_point(context.definition, point);
    table
        .zip(set)
        .ok_or_else(|| BenchError::Usage("a point without a table".into()))
}

/// Makes a server's caches cold by the user's command, once `make` has made the working set, which
/// would warm them; and waits until the server `answers` again.
pub fn make_cold(
    context: &Context<'_>,
    make: impl FnOnce() -> Result<(), BenchError>,
    answers: impl Fn() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    // That there is a command was checked before the run.
    let Some(command) = &context.settings.cold_command else {
        return Ok(());
    };
    make()?;
    run_shell(command)?;
    wait_until("the server answers again", answers)
}

/// Runs a command of the user's, in a shell.
pub fn run_shell(command: &str) -> Result<(), BenchError> {
    let status = Command::new("sh")
        .arg("-c")
        .arg(command)
        .status()
        .map_err(BenchError::io(format!("run {command:?}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(BenchError::Usage(format!("{command:?} failed: {status}")))
    }
}

/// Waits until the check succeeds, for at most two minutes.
pub fn wait_until(
    what: &str,
    check: impl Fn() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let deadline = clock::now_ns() + COME_BACK_S * 1_000_000_000;
    loop {
        match check() {
            Ok(()) => return Ok(()),
            Err(_) if interrupt::requested() => return Err(BenchError::Interrupted),
            Err(e) if clock::now_ns() > deadline => {
                return Err(BenchError::Usage(format!(
                    "waited {COME_BACK_S} s until {what}: {e}"
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
