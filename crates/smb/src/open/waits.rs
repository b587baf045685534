//! Byte-range locks that wait for others (MS-SMB2 §3.3.5.14.2).
//!
//! The table of claims keeps the queue and grants the locks. A waiting request is found here by its
//! open and its range. It ends with the lock, with CANCEL, or with its open.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use weir_vfs::claims::{Lock, OwnerId};
use weir_vfs::signal::Signal;

/// The number of an open, and a range of it.
pub(crate) type Key = (u64, u64, u64);

/// Requests for locks that wait.
#[derive(Default)]
pub struct Waits {
    /// A signal for each request that waits: true if the lock was granted, false if its open ended.
    pub(crate) waiting: Mutex<HashMap<Key, Arc<Signal<bool>>>>,
}

pub(crate) fn key(lock: &Lock) -> Key {
    let number = match lock.owner.who {
        OwnerId::Key(0, number) => number,
        _ => 0,
    };
    (number, lock.range.start, lock.range.last)
}

impl Waits {
    /// A queued request has its lock.
    pub fn granted(&self, lock: &Lock) {
        let found = self.waiting.lock().remove(&key(lock));
        if let Some(signal) = found {
            signal.set(true);
        }
    }

    /// An open is over: nothing of it waits any more.
    pub fn end(&self, open: u64) {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return;
        }
        let mut over = Vec::new();
        waiting.retain(|(number, ..), signal| {
            let stays = *number != open;
            if !stays {
                over.push(Arc::clone(signal));
            }
            stays
        });
        drop(waiting);
        over.iter().for_each(|signal| signal.set(false));
    }
}
