//! Calls that are deferred by the limits of their volumes, by connection and transaction id.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of locks over which the deferred calls are spread.
const SHARDS: usize = 16;

/// A connection and a transaction id on it.
type CallKey = (u64, u32);

/// The calls that are deferred by limits. A client that gets no answer in time sends its call
/// again, and a second copy would take up a second slot, credit and charge. So a call that is
/// already deferred on its connection is dropped. A copy over another connection is not dropped:
/// the first connection is then gone, and its deferred calls with it.
#[derive(Default)]
pub(crate) struct HeldCalls {
    count: AtomicUsize,
    shards: [Mutex<HashSet<CallKey>>; SHARDS],
}

impl HeldCalls {
    fn shard(&self, flow: u64) -> &Mutex<HashSet<CallKey>> {
        &self.shards[(flow % SHARDS as u64) as usize]
    }

    /// Returns true if a call is deferred.
    pub(crate) fn contains(&self, flow: u64, xid: u32) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.shard(flow).lock().contains(&(flow, xid))
    }

    /// Adds a call that is not deferred yet.
    pub(crate) fn enter(self: &Arc<Self>, flow: u64, xid: u32) -> HeldCall {
        self.shard(flow).lock().insert((flow, xid));
        self.count.fetch_add(1, Ordering::Relaxed);
        HeldCall {
            calls: Arc::clone(self),
            key: (flow, xid),
        }
    }
}

/// Entry of a deferred call; removed on drop.
pub(crate) struct HeldCall {
    calls: Arc<HeldCalls>,
    key: CallKey,
}

impl Drop for HeldCall {
    fn drop(&mut self) {
        self.calls.shard(self.key.0).lock().remove(&self.key);
        self.calls.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_once_on_its_connection() {
        let calls = Arc::new(HeldCalls::default());
        assert!(!calls.contains(7, 1));
        let first = calls.enter(7, 1);
        assert!(calls.contains(7, 1));
        assert!(
            !calls.contains(23, 1),
            "another connection, in the same shard"
        );
        drop(first);
        assert!(!calls.contains(7, 1));
        assert!(calls.shards.iter().all(|s| s.lock().is_empty()));
    }
}
