//! One stretch of load in which something comes and goes: the two states in short, alternating
//! turns.
//!
//! **Problem.** On a machine that serves, generates the load and has whatever else to do with the
//! same processors, two seconds in succession differ by several in a hundred. Few long turns
//! distinguish such a difference from nothing no better than a coin.
//!
//! **Method.** Many short turns in place of few long ones, since a disturbance lasts for seconds
//! and then affects both turns of a pair. Which comes first changes from pair to pair by the
//! sequence of Thue and Morse: what drifts cancels, and what comes back every second, as work of
//! servers and kernels does, falls in with no rhythm of ours, as it does with an order that repeats
//! itself every second. The beginning of each turn, in which the change is carried out, does not
//! count.
//!
//! **The resolution** is measured in each run: turns of the same kind follow each other too, from
//! one pair to the next ([`alike`]). Held against each other by the same arithmetic they have to
//! come out as 1; how far their interval reaches is what cannot be resolved.

use weir_bench::clock::{self, sleep};
use weir_bench::error::BenchError;

/// Number and length of the turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Pairs of turns.
    pub(super) pairs: usize,
    /// Seconds before those that count, for the change.
    pub(super) settle: f64,
    /// Seconds of a turn that count.
    pub(super) counts: f64,
}

/// A turn: a stretch in one of the two states.
#[derive(Clone, Debug)]
pub(super) struct Turn<T> {
    /// With what comes and goes, or without.
    pub(super) on: bool,
    /// From when and to when it counts, in nanoseconds on the monotonic clock.
    pub(super) span: (u64, u64),
    /// Value that was measured in it.
    pub(super) of: T,
}

impl<T> Turn<T> {
    /// Returns this turn with another value, made of the measured one.
    pub(super) fn map<U>(self, what: impl FnOnce((u64, u64), T) -> U) -> Turn<U> {
        Turn {
            on: self.on,
            span: self.span,
            of: what(self.span, self.of),
        }
    }
}

/// Returns true if a turn is one with it: the first or the second of its pair, by the sequence of
/// Thue and Morse.
fn is_on(turn: usize) -> bool {
    ((turn / 2).count_ones() as usize + turn) % 2 == 1
}

/// Takes the turns: `switch` brings what comes and goes, and `read` reads a counter, whose increase
/// is the turn's.
///
/// # Errors
/// Those of `switch`.
pub(super) fn take(
    plan: Plan,
    mut switch: impl FnMut(bool) -> Result<(), BenchError>,
    read: impl Fn() -> u64,
) -> Result<Vec<Turn<u64>>, BenchError> {
    let one = |turn| {
        let on = is_on(turn);
        switch(on)?;
        sleep(plan.settle);
        let before = read();
        let from = clock::now_ns();
        sleep(plan.counts);
        Ok(Turn {
            on,
            span: (from, clock::now_ns()),
            of: read() - before,
        })
    };
    (0..2 * plan.pairs).map(one).collect()
}

/// The pairs of unlike turns: with it, and without.
pub(super) fn unlike<T>(turns: &[Turn<T>]) -> Vec<(&T, &T)> {
    let pairs = turns.as_chunks::<2>().0.iter();
    pairs
        .map(|[a, b]| if a.on { (&a.of, &b.of) } else { (&b.of, &a.of) })
        .collect()
}

/// The last turn of a pair and the first of the next, where they are alike; the order within these
/// pairs alternates.
pub(super) fn alike<T>(turns: &[Turn<T>]) -> Vec<(&T, &T)> {
    let borders = turns.get(1..).unwrap_or_default().as_chunks::<2>().0.iter();
    let same = borders.filter(|[a, b]| a.on == b.on);
    same.enumerate()
        .map(|(n, [a, b])| match n % 2 {
            0 => (&a.of, &b.of),
            _ => (&b.of, &a.of),
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Turns of which `what` says by number and state what was measured.
    pub(in super::super) fn made<T>(pairs: usize, what: impl Fn(usize, bool) -> T) -> Vec<Turn<T>> {
        (0..2 * pairs)
            .map(|turn| Turn {
                on: is_on(turn),
                span: (0, 0),
                of: what(turn, is_on(turn)),
            })
            .collect()
    }

    #[test]
    fn each_pair_has_both_and_what_is_alike_is_alike() {
        let turns = made(64, |turn, on| (turn, on));
        let pairs = unlike(&turns);
        assert_eq!(pairs.len(), 64);
        for (n, ((a, on), (b, off))) in pairs.into_iter().enumerate() {
            assert!(*on && !*off && a / 2 == n && b / 2 == n);
        }
        let same = alike(&turns);
        assert!(same.len() >= 20, "{}", same.len());
        for ((a, one), (b, two)) in same {
            assert!(one == two && a.abs_diff(*b) == 1 && a.max(b) % 2 == 0);
        }
    }

    #[test]
    fn turns_are_taken_in_their_order() {
        let plan = Plan {
            pairs: 4,
            settle: 0.0,
            counts: 0.0,
        };
        let mut order = String::new();
        let counter = std::cell::Cell::new(0);
        let taken = take(
            plan,
            |on| {
                order.push(if on { '1' } else { '0' });
                Ok(())
            },
            || counter.replace(counter.get() + 1),
        );
        assert_eq!(order, "01101001");
        assert!(taken.unwrap().iter().all(|turn| turn.of == 1));
    }
}
