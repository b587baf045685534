//! Seeded tests by name, run alike by the test suite and by the `weir-sim` command.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

/// A test that follows from a seed.
#[derive(Clone, Copy)]
pub struct Suite {
    /// Name on the command line.
    pub name: &'static str,
    /// Property that the suite checks, in a sentence.
    pub about: &'static str,
    /// Runs one seed; the error describes the failure.
    pub run: fn(u64) -> Result<(), String>,
}

/// Maximum time of one seed before it counts as hung. Generous: the machine may be busy, and a hang
/// lasts for ever.
const HUNG: Duration = Duration::from_secs(60);

/// The text of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panic".to_owned())
}

impl Suite {
    /// Runs one seed; a panic and a hang are errors too. (The thread of a hung run is left behind.)
    ///
    /// # Errors
    /// What went wrong, with the seed.
    pub fn run_seed(&self, seed: u64) -> Result<(), String> {
        let (send, receive) = mpsc::channel();
        let run = self.run;
        std::thread::spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| run(seed)))
                .unwrap_or_else(|panic| Err(panic_text(&*panic)));
            // The receiver is gone if the run took too long.
            let _ = send.send(result);
        });
        receive
            .recv_timeout(HUNG)
            .unwrap_or_else(|_| Err(format!("hung: nothing for {HUNG:?}")))
            .map_err(|what| format!("suite {} seed {seed}: {what}", self.name))
    }

    /// Runs these seeds and panics at the first that fails.
    ///
    /// # Panics
    /// If a seed fails.
    pub fn run_all(&self, seeds: std::ops::Range<u64>) {
        for seed in seeds {
            if let Err(what) = self.run_seed(seed) {
                panic!(
                    "{what}\n(cargo run -p weir-sim -- {} --start {seed} --seeds 1)",
                    self.name
                );
            }
        }
    }
}
