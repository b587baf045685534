//! Scrubs of a running server, as the control socket requests them.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use parking_lot::Mutex;
use weir_base::Clock;
use weir_volume::{Engine, ScrubFault, ScrubWatch};

use crate::control_socket::Commands;
use crate::scrub_counters::ScrubCounters;
use crate::size::Size;

/// Time between two reports of progress.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// The server's side: scrubs when asked to, one at a time.
pub struct Scrubber {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    /// Held by the one that runs.
    alone: Mutex<()>,
    /// Results of all of them.
    counters: Arc<ScrubCounters>,
}

impl Scrubber {
    /// Creates one that has not run; `counters` get its results.
    pub fn new(
        engine: &Arc<Engine>,
        clock: &Arc<dyn Clock>,
        counters: Arc<ScrubCounters>,
    ) -> Scrubber {
        Scrubber {
            engine: Arc::clone(engine),
            clock: Arc::clone(clock),
            alone: Mutex::default(),
            counters,
        }
    }
}

impl Commands for Scrubber {
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String> {
        let rate = request
            .strip_prefix("scrub ")
            .with_context(|| format!("'{request}' is not known"))?;
        let rate = Size(rate.parse().context("reading the rate")?);
        ensure!(rate.0 > 0, "cannot scrub: rate must be greater than 0");
        let Some(_alone) = self.alone.try_lock() else {
            bail!("cannot scrub: already running");
        };
        let start = self.clock.monotonic();
        let met = self.engine.aggregate().cache().stats().damaged;
        self.counters.begin();
        let mut watch = Pace {
            clock: &*self.clock,
            counters: &self.counters,
            start,
            noted: start,
            rate: rate.0,
            expected: 0,
            read: 0,
            faults: 0,
            say,
        };
        let seen = self.engine.scrub(&mut watch);
        let complete = seen.as_ref().ok().filter(|seen| seen.complete);
        let now = self.clock.current_time().secs;
        self.counters
            .end(complete.map(|seen| (seen.faults, met, now)));
        let seen = seen.map_err(|error| anyhow!("{error}"))?;
        let summary = format!(
            "{} tree nodes and {} data blocks read and verified, {} damaged{}",
            seen.nodes,
            seen.blocks,
            seen.faults,
            if seen.complete { "" } else { "; ended early" }
        );
        tracing::info!("scrub: {summary}");
        Ok(summary)
    }
}

/// Keeps a scrub at its rate and reports its progress.
struct Pace<'a> {
    clock: &'a dyn Clock,
    counters: &'a ScrubCounters,
    start: Duration,
    noted: Duration,
    rate: u64,
    /// Bytes that are to be read, about.
    expected: u64,
    read: u64,
    faults: u64,
    say: &'a mut dyn FnMut(&str) -> io::Result<()>,
}

impl Pace<'_> {
    /// Returns how far the scrub has come, for people.
    fn note(&self) -> String {
        // Tree nodes, and data that clients write meanwhile, come on top of what was expected.
        let percent = match self.expected {
            0 => 0,
            expected => u128::from(self.read) * 100 / u128::from(expected),
        };
        format!(
            "note {} read, {} % of about {}, {} damaged blocks so far",
            Size(self.read),
            percent.min(99),
            Size(self.expected),
            self.faults
        )
    }
}

impl ScrubWatch for Pace<'_> {
    fn expects(&mut self, bytes: u64) {
        self.expected = bytes;
    }

    fn rate(&self) -> u64 {
        self.rate
    }

    fn pace(&mut self, bytes: u64) -> ControlFlow<()> {
        self.read = self.read.saturating_add(bytes);
        self.counters.read(bytes);
        let due = Duration::from_secs_f64(self.read as f64 / self.rate as f64);
        let now = self.clock.monotonic();
        if let Some(early) = (self.start + due).checked_sub(now) {
            std::thread::sleep(early);
        }
        if now.saturating_sub(self.noted) >= NOTE_EVERY {
            self.noted = now;
            let note = self.note();
            // The client has gone, and wants no more notes.
            if (self.say)(&note).is_err() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn fault(&mut self, fault: ScrubFault) {
        self.faults += 1;
        self.counters.fault(self.faults);
        tracing::error!("scrub: {fault}");
        // The log has it, if no client listens.
        let _ = (self.say)(&format!("fault {fault}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::SystemClock;

    #[test]
    fn a_note_has_the_share_that_was_read() {
        let clock = SystemClock::new();
        let counters = ScrubCounters::default();
        let note = |expected, read| {
            let mut say = |_: &str| Ok(());
            let pace = Pace {
                clock: &clock,
                counters: &counters,
                start: Duration::ZERO,
                noted: Duration::ZERO,
                rate: 1,
                expected,
                read,
                faults: 2,
                say: &mut say,
            };
            pace.note()
        };
        assert_eq!(
            note(12 << 30, 3 << 30),
            "note 3 GiB read, 25 % of about 12 GiB, 2 damaged blocks so far"
        );
        // Clients wrote meanwhile.
        assert_eq!(
            note(1 << 30, 2 << 30),
            "note 2 GiB read, 99 % of about 1 GiB, 2 damaged blocks so far"
        );
        assert_eq!(
            note(0, 4096),
            "note 4 KiB read, 0 % of about 0 B, 2 damaged blocks so far"
        );
    }
}
