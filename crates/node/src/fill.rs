//! Fill level of the aggregate, for the log and `/health`: warnings before it is full, and a
//! problem while writes are refused.

use weir_store::Physical;

use crate::health::{Health, Subject};
use crate::size::Size;

/// Percent of the physical space in use at which a warning is logged, each time that it is passed.
const LEVELS: [u64; 3] = [80, 90, 95];
/// Percent of the physical space in use, below which a lack of space that refused writes is over.
const ENOUGH: u64 = 95;
/// Number of free bytes below which writes of 1 MiB are refused, or soon will be.
const FULL: u64 = 1 << 20;

/// The levels that were passed.
#[derive(Default)]
pub struct Fill {
    /// The highest level that is passed, in percent; 0: none.
    level: u64,
    /// Writes were refused, or nearly, and there has not been enough space since.
    full: bool,
}

/// The state of the space after a poll.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// Writes are served.
    Enough,
    /// Writes are refused, or will be with the next one.
    Full,
}

fn percent(space: Physical) -> u64 {
    let percent = u128::from(space.used()) * 100 / u128::from(space.size.max(1));
    u64::try_from(percent).unwrap_or(100)
}

impl Fill {
    /// Logs levels that are passed, and updates the warning of `/health`. `refusing`: a write was
    /// refused lately.
    pub fn poll(&mut self, space: Physical, refusing: bool, health: &Health) -> State {
        let used = percent(space);
        let level = LEVELS.into_iter().rfind(|level| used >= *level);
        let level = level.unwrap_or(0);
        let words = || {
            format!(
                "aggregate is {used}% full: {} of {} are free (delete files or snapshots, or give the host's file system more space)",
                Size(space.free),
                Size(space.size),
            )
        };
        match level {
            0 => health.calm(Subject::Space),
            _ => health.warn(Subject::Space, words()),
        }
        if level > self.level {
            tracing::warn!("{}", words());
        } else if level == 0 && self.level > 0 {
            tracing::info!("aggregate is {used}% full");
        }
        self.level = level;
        let short = refusing || space.free < FULL;
        self.full = used >= ENOUGH && (self.full || short);
        match self.full {
            true => State::Full,
            false => State::Enough,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_until_there_is_enough() {
        let health = Health::without_engine();
        let mut fill = Fill::default();
        let at = |free: u64| Physical {
            size: 100 << 30,
            free,
        };
        for (free, refusing, level, state) in [
            (21 << 30, false, 0, State::Enough),
            (20 << 30, false, 80, State::Enough),
            (5 << 30, false, 95, State::Enough),
            (5 << 30, true, 95, State::Full),
            (1000, false, 95, State::Full),
            (4 << 30, false, 95, State::Full),
            (6 << 30, true, 90, State::Enough),
            (90 << 30, false, 0, State::Enough),
        ] {
            assert_eq!(fill.poll(at(free), refusing, &health), state, "{free}");
            assert_eq!(fill.level, level, "{free}");
            let warned = health.problems().iter().any(|p| !p.fatal);
            assert_eq!(warned, level > 0, "{free}");
        }
    }
}
