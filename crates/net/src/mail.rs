//! Messages that clients did not ask for, sent on their own connections: callbacks, breaks of
//! delegations and leases, notifications.
//!
//! Any thread may send one. A connection belongs to one core, which follows from its number. Each
//! core has a mailbox: the sender puts the message in and rings the core's wakeup. The core passes
//! it to the connection, which sends it after the replies that were ready before, and never within
//! a reply.
//!
//! **Bounds.** The size of a mailbox is bounded; a sender that finds it full gets an error at once.
//! A message at its connection counts with the replies; a peer that takes neither is dropped when
//! they exceed the connection's limit in flight. A message for a closed connection is dropped: its
//! protocol learns from the connection's end.

use std::collections::VecDeque;

use weir_base::limits::net as limits;
use weir_base::sync::Mutex;
use weir_base::sync::atomic::{AtomicBool, Ordering};

/// A message without its framing.
pub type Message = Box<[u8]>;

/// The mailbox of the connection's core has no room; the message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Bytes charged for a message besides its content.
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
    /// Adds a message for a connection of the core. The caller has to wake the core after it.
    pub(super) fn put(&self, connection: u64, message: Message) -> Result<(), Full> {
        let mut letters = self.letters.lock();
        let bytes = letters.bytes + message.len() + OVERHEAD;
        if bytes > limits::MAILBOX {
            return Err(Full);
        }
        letters.bytes = bytes;
        letters.queue.push_back((connection, message));
        // Set under the lock, so that a thread that takes the message has seen it.
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes and returns all messages, in order. Costs one load if there are none.
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

    #[cfg(model)]
    mod orders {
        use weir_base::sync::{Arc, model, thread};

        use super::*;

        /// A core takes what is there when it is woken. After the last message it is woken once
        /// more.
        #[test]
        fn no_message_stays_behind_the_wakeup_that_follows_it() {
            model(|| {
                let mailbox = Arc::new(Mailbox::default());
                // The kernel orders the rings of a wakeup, as a lock does.
                let rung = Arc::new(Mutex::new(false));
                let senders = [1, 2].map(|connection| {
                    let (mailbox, rung) = (Arc::clone(&mailbox), Arc::clone(&rung));
                    thread::spawn(move || {
                        mailbox.put(connection, Box::default()).unwrap();
                        *rung.lock() = true;
                    })
                });
                let woken = || {
                    let rang = std::mem::take(&mut *rung.lock());
                    if rang { mailbox.take().len() } else { 0 }
                };
                let early = woken();
                for sender in senders {
                    sender.join().unwrap();
                }
                assert_eq!(early + woken(), 2);
                assert_eq!(mailbox.take().len(), 0);
            });
        }
    }
}
