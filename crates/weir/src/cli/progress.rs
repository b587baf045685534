//! Progress of a command that may take longer than two seconds: a line on a terminal that follows
//! it, or a line now and then in a log.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_base::{BLOCK_SIZE, Clock, SystemClock};
use weir_node::size::Size;

use crate::process::interrupt;

/// Time for which a task runs without a word.
const SILENT: Duration = Duration::from_secs(2);
/// Interval at which a terminal's line is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// Interval of the lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Returns the bytes of a task's work so far, for people; `None` if they are unknown.
type Amount = Box<dyn Fn() -> Option<String> + Send>;

/// A task that is being reported. Dropping it ends the report.
pub struct Task {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Task {
    /// Begins to report a task, `what` being its name such as "checking the data folder". Ctrl-C
    /// prints `left`: what is left behind, or goes on.
    pub fn begin(what: &str, left: &str) -> io::Result<Task> {
        interrupt::explain(left);
        Task::report(what, Box::new(|| None))
    }

    /// Begins to report a task that mostly reads from the disk: how much this process has read.
    pub fn reading(what: &str, left: &str) -> io::Result<Task> {
        interrupt::explain(left);
        let before = bytes_read().unwrap_or(0);
        let amount = move || {
            let read = bytes_read()?.saturating_sub(before);
            (read > 0).then(|| format!("{} read", Size(read)))
        };
        Task::report(what, Box::new(amount))
    }

    /// Begins to report a task that goes through blocks: the share that `blocks` gives of them, as
    /// the blocks done and all blocks, once these are known.
    pub fn of_blocks(
        what: &str,
        left: &str,
        blocks: impl Fn() -> Option<(u64, u64)> + Send + 'static,
    ) -> io::Result<Task> {
        interrupt::explain(left);
        Task::report(what, Box::new(move || blocks().map(share)))
    }

    /// Begins to report a task that fetches `bytes` from elsewhere.
    pub fn of_bytes(
        what: &str,
        left: &str,
        bytes: impl Fn() -> u64 + Send + 'static,
    ) -> io::Result<Task> {
        interrupt::explain(left);
        let amount = move || Some(format!("{} fetched", Size(bytes())));
        Task::report(what, Box::new(amount))
    }

    fn report(what: &str, amount: Amount) -> io::Result<Task> {
        let (stop, stopped) = mpsc::channel();
        let terminal = io::stderr().is_terminal();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let what = what.to_owned();
        let thread = std::thread::Builder::new()
            .name("weir-progress".to_owned())
            .spawn(move || run(&what, &amount, terminal, &*clock, &stopped))?;
        Ok(Task {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It writes lines and nothing else.
            let _ = thread.join();
        }
    }
}

fn run(
    what: &str,
    amount: &Amount,
    terminal: bool,
    clock: &dyn Clock,
    stopped: &mpsc::Receiver<()>,
) {
    let begun = clock.monotonic();
    let every = match terminal {
        true => DRAW_EVERY,
        false => LINE_EVERY,
    };
    let mut pause = SILENT;
    let mut shown = 0;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        pause = every;
        let line = line(what, clock.monotonic().saturating_sub(begun), amount());
        let mut out = io::stderr().lock();
        // A stream that is gone needs no line.
        let _ = match terminal {
            true => write!(out, "{line:<shown$}\r").and_then(|()| out.flush()),
            false => writeln!(out, "{line}"),
        };
        shown = line.chars().count();
    }
    if terminal && shown > 0 {
        let mut out = io::stderr().lock();
        let _ = write!(out, "{:<shown$}\r", "").and_then(|()| out.flush());
    }
}

fn line(what: &str, passed: Duration, amount: Option<String>) -> String {
    let passed = match passed.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    };
    match amount {
        Some(amount) => format!("{what}: {amount}, {passed}"),
        None => format!("{what}: {passed}"),
    }
}

/// Returns the share of blocks that are done, for people.
fn share((done, all): (u64, u64)) -> String {
    let percent = u128::from(done) * 100 / u128::from(all.max(1));
    format!("{percent} % of {}", Size(all * BLOCK_SIZE as u64))
}

/// Returns the bytes that this process has read from disks.
fn bytes_read() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_task_what_was_done_and_the_time() {
        let line = |seconds, amount: Option<&str>| {
            super::line(
                "checking d",
                Duration::from_secs(seconds),
                amount.map(str::to_owned),
            )
        };
        assert_eq!(line(2, None), "checking d: 2 s");
        assert_eq!(line(75, None), "checking d: 1 min 15 s");
        assert_eq!(line(9, Some("3G read")), "checking d: 3G read, 9 s");
        assert_eq!(share((262_144, 786_432)), "33 % of 3 GiB");
        assert_eq!(share((0, 0)), "0 % of 0 B");
        assert!(bytes_read().is_some());
    }
}
