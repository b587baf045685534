//! Free space that was not needed of late, which alone is worth giving back to the host.
//!
//! Between two checkpoints a busy server frees as much as it takes. What it has free after one is
//! gone before the next, so space that is discarded then is provisioned again at once.

use std::time::Duration;

/// Length of a window. Space is spare once it has been free for one to two of them.
const WINDOW: Duration = Duration::from_secs(10);

/// The least number of free blocks in this window and in the one before.
#[derive(Debug, Default)]
pub struct Lull {
    began: Option<Duration>,
    least: u64,
    before: u64,
}

impl Lull {
    /// Notes how many blocks are free. Returns how many have been for the last two windows; none
    /// before the first has passed.
    pub fn note(&mut self, now: Duration, free: u64) -> u64 {
        match self.began {
            // Saturates: two callers may have read the clock in the other order.
            Some(began) if now.saturating_sub(began) < WINDOW => self.least = self.least.min(free),
            began => {
                self.before = began.map_or(0, |_| self.least.min(free));
                (self.began, self.least) = (Some(now), free);
            }
        }
        self.least.min(self.before)
    }

    /// Notes that some of them are no longer there.
    pub fn took(&mut self, blocks: u64) {
        // Saturates: requests take blocks meanwhile.
        self.least = self.least.saturating_sub(blocks);
        self.before = self.before.saturating_sub(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_that_comes_and_goes_is_not_spare() {
        let mut lull = Lull::default();
        let at = Duration::from_secs;
        // Freed and taken again within a window.
        for round in 0..20 {
            assert!(lull.note(at(round * 5), 1000) <= 100);
            assert!(lull.note(at(round * 5 + 2), 100) <= 100);
        }
        // Freed for good: spare once no window has the low any more.
        assert_eq!(lull.note(at(100), 1000), 100);
        assert_eq!(lull.note(at(109), 1000), 100);
        assert_eq!(lull.note(at(121), 1000), 1000);
        lull.took(300);
        assert_eq!(lull.note(at(122), 700), 700);
        assert_eq!(lull.note(at(122), 50), 50);
    }
}
