//! Invariants: what cannot happen, said where it would be seen.
//!
//! **Problem.** A simulator finds what something asserts. A counter that saturates and an `else { return }` for an arm that
//! cannot be taken hide a defect until the data shows it. A plain assertion that ends the process in production is no
//! better for a file server: reads go with it, and whatever made it fail is likely to do so again after the restart.
//!
//! **Two kinds**, by what would be damaged:
//!
//! - `invariant!(guard => condition, "…")` guards what becomes durable: accounting on the disk, the order of durability,
//!   identity. `guard` is the [`Poison`] of the aggregate.
//! - `invariant!(condition, "…")` guards what dies with the process: budgets, queues, gauges.
//!
//! What a violation does depends on the build:
//!
//! - With debug assertions (tests, debug builds, the simulators, which refuse to run without) it panics. The aggregate is
//!   poisoned first, so that nothing that was half changed becomes durable even if a caller catches the panic.
//! - In a release build one of the first kind poisons the aggregate: no record of the log and no checkpoint is written any
//!   more, changes are refused, reads go on, the log and the health report say why. One of the second kind is logged and
//!   counted ([`violations`]).
//!
//! The macro is an expression, the condition's value, for the place that cannot go on without it:
//! `if !invariant!(…) { return Err(…) }`. A condition is a comparison of what is at hand; what costs more than that
//! belongs in a `debug_assert!`.
//!
//! **Before the record.** A poisoned aggregate writes no record that is not written yet. So what a record says has to be
//! checked before it is appended: [`Poison::less`] or a condition over what goes into it, then the append, which fails.
//!
//! **Why not** `assert!` alone: see above. `debug_assert!` alone: what guards data on a disk has to be on where the data is.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Whether an aggregate takes changes, and if not, why. Set once; what is set stays until the next start.
///
/// Setting it takes no lock and wakes no thread: it can be done anywhere. The log's thread notices before the next batch
/// and wakes the waiters.
pub struct Poison {
    why: OnceLock<Arc<str>>,
    /// A violation panics as well.
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
    /// Ends all changes; the reason is for people. Only the first one counts: whether this is it.
    pub fn set(&self, why: impl Into<Arc<str>>) -> bool {
        self.why.set(why.into()).is_ok()
    }

    /// Why there are no changes any more, if so.
    pub fn why(&self) -> Option<&Arc<str>> {
        self.why.get()
    }

    /// Whether there are no changes any more.
    pub fn is_set(&self) -> bool {
        self.why.get().is_some()
    }

    /// Has a violation do what it does in a release build: for tests of just that.
    pub fn as_in_release(&self) {
        self.panics.store(false, Ordering::Relaxed);
    }

    /// An invariant of the aggregate does not hold. Use [`invariant!`](crate::invariant!).
    ///
    /// # Panics
    /// With debug assertions.
    #[cold]
    #[track_caller]
    pub fn violated(&self, what: fmt::Arguments<'_>) {
        let at = Location::caller();
        let why = format!("an invariant does not hold: {what} ({at})");
        if self.set(why.as_str()) {
            tracing::error!("{why}; nothing is changed any more");
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

/// Violations that are written to the log; all are counted.
const LOGGED: u64 = 100;

static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

/// Invariants of the process that were found violated since it was started. Not 0: a defect.
pub fn violations() -> u64 {
    VIOLATIONS.load(Ordering::Relaxed)
}

/// An invariant of the process does not hold. Use [`invariant!`](crate::invariant!).
///
/// # Panics
/// With debug assertions.
#[cold]
#[track_caller]
pub fn violated(what: fmt::Arguments<'_>) {
    let why = format!(
        "an invariant does not hold: {what} ({})",
        Location::caller()
    );
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

/// Asserts what cannot be otherwise, and is `true` if it is so. See the module's head.
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

/// A count of things that is in memory alone: see [`less`].
pub trait Count: Copy + Default + fmt::Display {
    /// `self - by`; `None` if that is below 0.
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

/// A count of things from which some are taken: `of - by`. If there are not so many, something was taken twice;
/// it is 0 then.
#[track_caller]
pub fn less<N: Count>(of: N, by: N, things: &str) -> N {
    match of.checked_less(by) {
        Some(left) => left,
        None => {
            violated(format_args!("{of} {things}, and {by} are taken"));
            N::default()
        }
    }
}

impl Poison {
    /// As [`less`], of a count that is stored: taking twice poisons the aggregate.
    #[track_caller]
    pub fn less<N: Count>(&self, of: N, by: N, things: &str) -> N {
        match of.checked_less(by) {
            Some(left) => left,
            None => {
                self.violated(format_args!("{of} {things}, and {by} are taken"));
                N::default()
            }
        }
    }

    /// A stored count of things after a change by more or fewer of them; a count below 0 poisons the aggregate.
    #[track_caller]
    pub fn changed(&self, of: u64, by: i64, things: &str) -> u64 {
        match of.checked_add_signed(by) {
            Some(now) => now,
            None => {
                self.violated(format_args!("{of} {things}, and they change by {by}"));
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

    /// As it is in a release build.
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

    /// As it is everywhere else: a caller that catches the panic finds the aggregate poisoned.
    #[test]
    fn a_violation_panics_where_assertions_are_on() {
        let guard = Poison::default();
        let broken = catch_unwind(AssertUnwindSafe(|| guard.less(0u32, 1, "links")));
        let text = *broken.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("0 links, and 1 are taken"), "{text}");
        assert!(guard.is_set());
        let broken = catch_unwind(|| invariant!(false, "{} of {}", "none", "them"));
        let text = *broken.unwrap_err().downcast::<String>().unwrap();
        assert!(
            text.contains("none of them") && text.contains("invariant.rs:"),
            "{text}"
        );
    }
}
