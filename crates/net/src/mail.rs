//! Messages that clients did not ask for, on their own connections: callbacks, breaks of what was granted, notices.
//!
//! Whatever runs anywhere may send one. A connection belongs to one core, and its number says which; so each core has a
//! mailbox, into which any thread puts messages, and the core's wakeup is rung. The core hands them to its connections, which
//! send them between replies: behind all that was ready before, and never within a reply.
//!
//! **Bounds.** What a mailbox holds is bounded; a sender that finds it full gets an error at once. What has been handed
//! to a connection counts with its replies; a peer that takes none of either is dropped when that is more than a
//! connection may have under way. A message to a connection that is over is dropped: its protocol knows from the
//! connection's end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use weir_base::limits::net as limits;

/// A message without its framing.
pub type Message = Box<[u8]>;

/// The mailbox of the connection's core has no room: nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a message takes up besides its bytes.
const OVERHEAD: usize = 64;

#[derive(Default)]
struct Letters {
    queue: VecDeque<(u64, Message)>,
    bytes: usize,
}

/// Messages from any thread for the connections of one core.
#[derive(Default)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    any: AtomicBool,
}

impl Mailbox {
    /// Puts in a message to a connection of the core. The core is to be woken after that.
    pub(super) fn put(&self, connection: u64, message: Message) -> Result<(), Full> {
        let mut letters = self.letters.lock();
        let bytes = letters.bytes + message.len() + OVERHEAD;
        if bytes > limits::MAILBOX {
            return Err(Full);
        }
        letters.bytes = bytes;
        letters.queue.push_back((connection, message));
        // Under the lock: a thread that takes the message has seen the mark.
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes all messages out, in order. Costs one load if there are none.
    pub(super) fn take(&self) -> VecDeque<(u64, Message)> {
        if !self.any.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut letters = self.letters.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *letters).queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_keeps_order_and_its_bound() {
        let mailbox = Mailbox::default();
        assert!(mailbox.take().is_empty());
        let large = || vec![1; limits::MAILBOX / 2 - OVERHEAD].into_boxed_slice();
        assert_eq!(mailbox.put(7, large()), Ok(()));
        assert_eq!(mailbox.put(8, large()), Ok(()));
        assert_eq!(mailbox.put(9, Box::default()), Err(Full));
        let to: Vec<u64> = mailbox.take().into_iter().map(|(to, _)| to).collect();
        assert_eq!(to, [7, 8]);
        assert_eq!(mailbox.put(9, Box::default()), Ok(()));
        assert_eq!(mailbox.take().len(), 1);
    }
}
