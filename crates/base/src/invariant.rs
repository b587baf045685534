//! Invariants: conditions that cannot be false, asserted where a violation would show.
//!
//! **Problem.** A simulator finds only violations that the code asserts. A counter that saturates,
//! or an `else { return }` for an impossible arm, hides a defect until the data shows it. An
//! assertion that ends the process in production is no better for a file server: reads stop with
//! it, and the cause is likely to recur after the restart.
//!
//! **Two kinds**, by the state that would be damaged:
//!
//! - `invariant!(guard => condition, "…")` guards durable state: accounting on the disk, the order
//!   of durability, identity. `guard` is the [`Poison`] of the aggregate.
//! - `invariant!(condition, "…")` guards state that ends with the process: budgets, queues, gauges.
//!
//! The effect of a violation depends on the build:
//!
//! - With debug assertions (tests, debug builds, the simulators, which refuse to run without) it
//!   panics. The aggregate is poisoned first, so that no half-finished change becomes durable even
//!   if a caller catches the panic.
//! - In a release build a violation of the first kind poisons the aggregate. No further log record
//!   or checkpoint is written, changes are refused, reads continue, and the log and the health
//!   report give the reason. A violation of the second kind is logged and counted ([`violations`]).
//!
//! The macro is an expression with the condition's value, for code that cannot continue without it:
//! `if !invariant!(…) { return Err(…) }`. A condition compares values that are at hand; a more
//! expensive check belongs in a `debug_assert!`.
//!
//! **Before the record.** A poisoned aggregate writes no further records. So the content of a
//! record has to be checked before it is appended: [`Poison::less`] or a condition over its
//! content, then the append, which fails.
//!
//! **Why not** `assert!` alone: see above. `debug_assert!` alone: a guard of data on a disk has to
//! be active where the data is.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The state of an aggregate that refuses changes, with the reason. Once set, it stays until the
/// next start.
///
/// Setting it takes no lock and wakes no thread, so any code may do it. The log's thread notices
/// before the next batch and wakes the waiters.
pub struct Poison {
    why: OnceLock<Arc<str>>,
    /// True if a violation panics as well.
    panics: AtomicBool,
}

impl Default for Poison {
    fn default() -> Poison {
        Poison {
            why: OnceLock::new(),
            panics: AtomicBool::new(cfg!(debug_assertions)),
        }
    }
}

impl Poison {
    /// Refuses all further changes, for the reason `why`, a text for people. Returns true for the
    /// first call; later ones have no effect.
    pub fn set(&self, why: impl Into<Arc<str>>) -> bool {
        self.why.set(why.into()).is_ok()
    }

    /// Returns the reason why changes are refused, or `None` if they are accepted.
    pub fn why(&self) -> Option<&Arc<str>> {
        self.why.get()
    }

    /// Returns true if changes are refused.
    pub fn is_set(&self) -> bool {
        self.why.get().is_some()
    }

    /// Makes a violation act as in a release build: for tests of that behaviour.
    pub fn as_in_release(&self) {
        self.panics.store(false, Ordering::Relaxed);
    }

    /// Reports a violated invariant of the aggregate. Use [`invariant!`](crate::invariant!).
    ///
    /// # Panics
    /// With debug assertions.
    #[cold]
    #[track_caller]
    pub fn violated(&self, what: fmt::Arguments<'_>) {
        let at = Location::caller();
        let why = format!("invariant violated: {what} ({at})");
        if self.set(why.as_str()) {
            tracing::error!("{why}; changes are refused until a restart");
        }
        if self.panics.load(Ordering::Relaxed) {
            fail(&why);
        }
    }
}

impl fmt::Debug for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poison({:?})", self.why.get())
    }
}

/// Maximum number of violations written to the log; all are counted.
const LOGGED: u64 = 100;

static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of violated process invariants since the start. Any value but 0 is a defect.
pub fn violations() -> u64 {
    VIOLATIONS.load(Ordering::Relaxed)
}

/// Reports a violated invariant of the process. Use [`invariant!`](crate::invariant!).
///
/// # Panics
/// With debug assertions.
#[cold]
#[track_caller]
pub fn violated(what: fmt::Arguments<'_>) {
    let why = format!("invariant violated: {what} ({})", Location::caller());
    if cfg!(debug_assertions) {
        fail(&why);
    }
    if VIOLATIONS.fetch_add(1, Ordering::Relaxed) < LOGGED {
        tracing::error!("{why}");
    }
}

#[expect(clippy::panic, reason = "this is what an assertion is")]
fn fail(why: &str) -> ! {
    panic!("{why}");
}

/// Asserts an invariant and evaluates to its condition. See the head of the module.
///
/// ```
/// use weir_base::{Poison, invariant};
/// let aggregate = Poison::default();
/// let (links, reserved) = (1, 8);
/// invariant!(aggregate => links > 0, "inode {} has no link left", 7);
/// if !invariant!(reserved >= 8, "{reserved} blocks reserved, 8 taken") {
///     return;
/// }
/// ```
#[macro_export]
macro_rules! invariant {
    ($guard:expr => $holds:expr, $($what:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            $guard.violated(::std::format_args!($($what)+));
        }
        holds
    }};
    ($holds:expr, $($what:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            $crate::violated(::std::format_args!($($what)+));
        }
        holds
    }};
}

/// An unsigned count kept in memory only: see [`less`].
pub trait Count: Copy + Default + fmt::Display {
    /// Returns `self - by`; `None` if that is below 0.
    fn checked_less(self, by: Self) -> Option<Self>;
}

macro_rules! count {
    ($($number:ty)*) => {
        $(impl Count for $number {
            fn checked_less(self, by: $number) -> Option<$number> {
                self.checked_sub(by)
            }
        })*
    };
}
count!(u32 u64 usize);

/// Returns `of - by`, the count of things that remain. If `by` is larger, something was taken
/// twice: reports a violation and returns 0.
#[track_caller]
pub fn less<N: Count>(of: N, by: N, things: &str) -> N {
    match of.checked_less(by) {
        Some(left) => left,
        None => {
            violated(format_args!("cannot take {by} from {of} {things}"));
            N::default()
        }
    }
}

impl Poison {
    /// Like [`less`], for a stored count: a violation poisons the aggregate.
    #[track_caller]
    pub fn less<N: Count>(&self, of: N, by: N, things: &str) -> N {
        match of.checked_less(by) {
            Some(left) => left,
            None => {
                self.violated(format_args!("cannot take {by} from {of} {things}"));
                N::default()
            }
        }
    }

    /// Returns the stored count `of` changed by `by`. A result below 0 poisons the aggregate and
    /// returns 0.
    #[track_caller]
    pub fn changed(&self, of: u64, by: i64, things: &str) -> u64 {
        match of.checked_add_signed(by) {
            Some(now) => now,
            None => {
                self.violated(format_args!("cannot change {of} {things} by {by}"));
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn what_holds_costs_nothing_and_says_so() {
        let guard = Poison::default();
        assert!(invariant!(guard => 1 < 2, "never"));
        assert!(invariant!(1 < 2, "never"));
        assert_eq!(
            (guard.less(3u32, 2, "links"), less(3u64, 3, "holds")),
            (1, 0)
        );
        assert_eq!(
            (
                guard.changed(3, -3, "blocks"),
                guard.changed(3, 2, "blocks")
            ),
            (0, 5)
        );
        assert!(!guard.is_set());
    }

    /// Behaviour of a release build.
    #[test]
    fn a_violation_poisons_once_and_goes_on() {
        let guard = Poison::default();
        guard.as_in_release();
        let (used, of) = (3, 2);
        assert!(!invariant!(guard => used <= of, "{used} used of {of}"));
        let why = guard.why().unwrap().to_string();
        assert!(
            why.contains("3 used of 2 (") && why.contains("invariant.rs:"),
            "{why}"
        );
        assert_eq!(
            (guard.less(1u64, 2, "links"), guard.changed(1, -2, "blocks")),
            (0, 0)
        );
        assert!(!guard.set("later"), "the first reason counts");
        assert_eq!(**guard.why().unwrap(), *why);
    }

    /// Behaviour with debug assertions: a caller that catches the panic finds the aggregate
    /// poisoned.
    #[test]
    fn a_violation_panics_where_assertions_are_on() {
        let guard = Poison::default();
        let broken = catch_unwind(AssertUnwindSafe(|| guard.less(0u32, 1, "links")));
        let text = *broken.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("cannot take 1 from 0 links"), "{text}");
        assert!(guard.is_set());
        let broken = catch_unwind(|| invariant!(false, "{} of {}", "none", "them"));
        let text = *broken.unwrap_err().downcast::<String>().unwrap();
        assert!(
            text.contains("none of them") && text.contains("invariant.rs:"),
            "{text}"
        );
    }
}
