//! The live display: which point, its figure so far, and the time left.
//!
//! On a terminal it is one line that rewrites itself, on the standard error; elsewhere
//! only finished points are printed, a line each.

use super::units::duration;
use crate::clock;
use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};

/// Columns of the live line at the most, and where the terminal does not say its own.
const WIDTH: usize = 118;
/// Time between two drawings, in nanoseconds.
const REDRAW_NS: u64 = 100_000_000;

/// The display of a run.
pub struct Display {
    terminal: bool,
    quiet: bool,
    total: usize,
    done: Cell<usize>,
    /// Seconds that a measurement takes by the plan.
    each_s: f64,
    started_ns: u64,
    /// Time at which a measurement last completed, and the number completed by then, for the
    /// estimate.
    drawn_ns: Cell<u64>,
    what: RefCell<String>,
}

impl Display {
    /// For `total` measurements that take `each_s` seconds by the plan.
    pub fn new(total: usize, each_s: f64, quiet: bool) -> Self {
        Self {
            terminal: std::io::stderr().is_terminal() && !quiet,
            quiet,
            total,
            done: Cell::new(0),
            each_s,
            started_ns: clock::now_ns(),
            drawn_ns: Cell::new(0),
            what: RefCell::new(String::new()),
        }
    }

    /// Notes that the measurement `what` begins.
    pub fn begin(&self, what: &str) {
        what.clone_into(&mut self.what.borrow_mut());
        self.drawn_ns.set(0);
        self.draw("", 0.0);
    }

    /// Updates the display: `figure` is a phase or figure in words, and `share` the part that is
    /// done.
    pub fn draw(&self, figure: &str, share: f64) {
        let now = clock::now_ns();
        if !self.terminal || now < self.drawn_ns.get() + REDRAW_NS {
            return;
        }
        self.drawn_ns.set(now);
        // The time left is printed where a narrow terminal cuts nothing off.
        let mut line = format!(
            "[{}/{}] about {} left · {} · {figure}",
            self.done.get() + 1,
            self.total,
            duration(self.left_s(share)),
            self.what.borrow(),
        );
        // A line that wraps would not be rewritten.
        let width = columns().map_or(WIDTH, |c| c.saturating_sub(1).min(WIDTH));
        if line.chars().count() > width {
            line = line.chars().take(width).collect();
        }
        // A display that cannot be written is no reason to end a measurement.
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }

    /// A measurement is complete; `line` is its result.
    pub fn end(&self, line: &str) {
        self.done.set(self.done.get() + 1);
        self.say(&format!("[{}/{}] {line}", self.done.get(), self.total));
    }

    /// A measurement need not be made.
    pub fn skip(&self) {
        self.done.set(self.done.get() + 1);
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        if self.quiet {
            return;
        }
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{clear}{line}");
    }

    /// Seconds left: as the measurements so far took, or as planned before there are
    /// any.
    fn left_s(&self, share: f64) -> f64 {
        let done = self.done.get() as f64;
        let left = (self.total as f64 - done - share.clamp(0.0, 1.0)).max(0.0);
        let elapsed = (clock::now_ns() - self.started_ns) as f64 / 1e9;
        let each = if done >= 1.0 {
            elapsed / (done + share.clamp(0.0, 1.0))
        } else {
            self.each_s
        };
        left * each
    }
}

/// Columns of the terminal that the standard error is; `None` when it is none.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}
