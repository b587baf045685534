//! Window of the sequence numbers seen in a context (RFC 2203 §5.3.3.1).
//!
//! **Problem.** A client numbers the calls of a context in the order in which it encodes them. Each
//! number is accepted once, and one that is too far below the highest is refused. Over many
//! connections calls overtake each other. With too narrow a window, calls that are merely late are
//! dropped, and their client waits, or reconnects.
//!
//! **Width.** The distance between two numbers that arrive in the wrong order is at most the number
//! of calls that are encoded and not yet received. Over NFSv4.1 those are the slots of the session,
//! at most 1,024. Over NFSv3 a server reads from a connection while fewer than 256 of its calls are
//! pending. Sixteen connections have 16 × 256 = 4,096 calls under way, and as many again are unread
//! in the sockets. Hence 8,192, which is a kilobyte per context. The reply tells the client the
//! size. Linux stores it, and encodes a call anew whose number would fall below the window.
//!
//! **Form.** A ring of bits by number: any [`SIZE`] consecutive numbers have a bit each, and
//! raising the highest clears those between.

/// Numbers in the window, a power of two.
pub const SIZE: u32 = 8192;
/// From this number on, a context is used up (RFC 2203 §5.3.3.1, `MAXSEQ`).
pub const MAX_SEQUENCE: u32 = 0x8000_0000;

const WORDS: usize = SIZE as usize / 64;

/// Result of checking a number against the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowOutcome {
    /// New; marked as seen.
    New,
    /// Seen before.
    Again,
    /// Below the window: it may have been seen before.
    Below,
}

/// See the module's head.
pub struct Window {
    highest: u32,
    bits: Box<[u64; WORDS]>,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            highest: 0,
            bits: Box::new([0; WORDS]),
        }
    }
}

impl Window {
    /// Registers the sequence number of a call.
    pub fn see(&mut self, number: u32) -> WindowOutcome {
        if number > self.highest {
            let steps = number - self.highest;
            if steps >= SIZE {
                self.bits.fill(0);
            } else {
                // From `highest + 1` to `number`, a word at a time where that is possible.
                let mut at = self.highest.wrapping_add(1);
                while at <= number {
                    if at % 64 == 0 && number - at >= 63 {
                        self.bits[word(at)] = 0;
                        at += 64;
                    } else {
                        self.bits[word(at)] &= !bit(at);
                        at += 1;
                    }
                }
            }
            self.highest = number;
        } else if self.highest - number >= SIZE {
            return WindowOutcome::Below;
        } else if self.bits[word(number)] & bit(number) != 0 {
            return WindowOutcome::Again;
        }
        self.bits[word(number)] |= bit(number);
        WindowOutcome::New
    }
}

const fn word(number: u32) -> usize {
    (number / 64) as usize % WORDS
}

const fn bit(number: u32) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn calls_of_sixteen_connections_may_overtake_each_other() {
        let mut window = Window::default();
        // Each connection's calls in order, the connections one after the other.
        let (connections, each) = (16, 512);
        for connection in 0..connections {
            for call in 0..each {
                let number = 1 + call * connections + connection;
                assert_eq!(window.see(number), WindowOutcome::New, "{number}");
            }
        }
        for number in 1..=connections * each {
            assert_eq!(window.see(number), WindowOutcome::Again, "{number}");
        }
        assert_eq!(window.see(SIZE + 1), WindowOutcome::New);
        assert_eq!(window.see(1), WindowOutcome::Below);
    }

    proptest! {
        /// Compares the window with a set of all numbers seen.
        #[test]
        fn it_is_a_set(numbers in proptest::collection::vec((0u32..40_000, 0u32..9000), 1..400)) {
            let (mut window, mut seen, mut highest) = (Window::default(), HashSet::new(), 0);
            for (base, back) in numbers {
                let number = base.saturating_sub(back);
                let expected = if number + SIZE <= highest {
                    WindowOutcome::Below
                } else if seen.insert(number) {
                    WindowOutcome::New
                } else {
                    WindowOutcome::Again
                };
                highest = highest.max(number);
                prop_assert_eq!(window.see(number), expected);
            }
        }
    }
}
