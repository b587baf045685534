//! Credits: the message numbers that a client may use (MS-SMB2 §3.3.1.1, §3.3.5.2.3).
//!
//! Each number may be used once, in any order, within a window that grows with each grant. A
//! request uses as many numbers as its charge. The window begins at the lowest unused number. If a
//! client leaves that unused until the window has its maximum length, nothing more is granted, so
//! that the bitmap is bounded.

use std::collections::VecDeque;

/// Credits that a client may have at once: as many as Windows grants.
pub const MOST: u64 = 8192;
/// Numbers that the window may span.
const SPAN: u64 = 2 * MOST;

/// The window of a connection.
pub struct Window {
    /// The lowest number that was not used; of the first word of `used`, the lowest bits are below
    /// it.
    base: u64,
    /// One more than the highest number that may be used.
    end: u64,
    /// Numbers that may be used and were not.
    free: u64,
    /// A bit for each number from `base` rounded down to a word.
    used: VecDeque<u64>,
}

impl Default for Window {
    /// Number 0 alone: NEGOTIATE.
    fn default() -> Window {
        Window {
            base: 0,
            end: 1,
            free: 1,
            used: VecDeque::new(),
        }
    }
}

impl Window {
    fn place(&self, number: u64) -> (usize, u64) {
        let word = number / 64 - self.base / 64;
        (word as usize, 1 << (number % 64))
    }

    fn is_used(&self, number: u64) -> bool {
        if number < self.base {
            return true;
        }
        let (word, bit) = self.place(number);
        self.used.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Uses `charge` numbers from `number` on; false if one of them may not be used.
    pub fn take(&mut self, number: u64, charge: u16) -> bool {
        let charge = u64::from(charge.max(1));
        let Some(end) = number.checked_add(charge) else {
            return false;
        };
        if end > self.end || (number..end).any(|n| self.is_used(n)) {
            return false;
        }
        for n in number..end {
            let (word, bit) = self.place(n);
            if word >= self.used.len() {
                self.used.resize(word + 1, 0);
            }
            self.used[word] |= bit;
        }
        self.free -= charge;
        while self.base < self.end && self.is_used(self.base) {
            self.base += 1;
            if self.base % 64 == 0 {
                self.used.pop_front();
            }
        }
        true
    }

    /// Grants up to `wanted` more; how many. A client with none left gets one, whatever it asks
    /// for.
    pub fn grant(&mut self, wanted: u16) -> u16 {
        let wanted = u64::from(wanted).max(u64::from(self.free == 0));
        let room =
            (MOST.saturating_sub(self.free)).min((self.base + SPAN).saturating_sub(self.end));
        let granted = wanted.min(room);
        self.end += granted;
        self.free += granted;
        // At most `MOST`.
        granted as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_number_counts_once_and_in_any_order() {
        let mut window = Window::default();
        assert!(!window.take(1, 1));
        assert!(window.take(0, 1));
        assert!(!window.take(0, 1));
        assert_eq!(window.grant(10), 10);
        assert!(window.take(3, 2));
        assert!(!window.take(4, 1) && !window.take(2, 2));
        assert!(window.take(1, 2));
        assert!(!window.take(10, 2) && window.take(10, 1));
        assert!(!window.take(u64::MAX, 2));
    }

    #[test]
    fn an_unused_number_bounds_the_window() {
        let mut window = Window::default();
        assert_eq!(window.grant(u16::MAX), MOST as u16 - 1);
        let mut next = 1;
        // Number 0 stays unused.
        loop {
            let taken = (next..).take_while(|n| window.take(*n, 1)).count() as u64;
            next += taken;
            if window.grant(u16::MAX) == 0 {
                break;
            }
        }
        assert!(window.end <= SPAN && window.used.len() as u64 <= SPAN / 64);
        assert!(window.take(0, 1));
        assert!(window.grant(100) == 100);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set(steps in prop::collection::vec((0u64..400, 0u16..70, any::<bool>()), 1..100)) {
            let mut window = Window::default();
            let (mut end, mut used) = (1, HashSet::new());
            for (number, count, grant) in steps {
                if grant {
                    let granted = u64::from(window.grant(count));
                    prop_assert!(granted >= u64::from(count));
                    end += granted;
                } else {
                    let range = number..number + u64::from(count.max(1));
                    let may = range.end <= end && range.clone().all(|n| !used.contains(&n));
                    prop_assert_eq!(window.take(number, count), may);
                    if may {
                        used.extend(range);
                    }
                }
            }
        }
    }
}
