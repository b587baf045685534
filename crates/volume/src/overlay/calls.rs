//! The calls carried out last, so that a client that retransmits one after a crash gets its reply
//! and not the result of a second execution.
//!
//! The protocol above identifies a call by a key. A call that changes something passes its key with
//! its context ([`EngineContext::call`]), and the key becomes part of the operation's log record.
//! So the call is known to have been carried out exactly if it was. Recovery finds the keys of the
//! replayed records. But the log is cut at every checkpoint, perhaps a moment before the crash, so
//! each checkpoint writes the newest keys into the aggregate's tree. Keys before the cut come from
//! the tree and those after it from the log, none twice and none missing.
//!
//! **Bound.** [`KEPT`](crate::format::calls::KEPT) calls are kept, oldest out first, in 1 MiB of
//! memory and on disk. Clients cannot have more calls waiting for replies (a Linux client has at
//! most 128 on a connection), and a crash loses only the replies in transit. Further calls in the
//! log are found as long as memory for replies allows.
//!
//! **Cost.** A push under one of [`SHARDS`] locks for each call that changes something. At a
//! checkpoint, a copy of the calls pushed since the last one, and their tree records.
//!
//! [`EngineContext::call`]: crate::EngineContext::call

use parking_lot::Mutex;
use weir_base::{Ino, VolumeId};
use weir_store::node::Key;

use crate::format::calls::{CallKey, DoneCall, PER_RECORD, PER_SHARD, RECORDS, SHARDS, encode};
use crate::format::catalog::kind;

/// Placeholder of a forgotten call.
const NONE: DoneCall = DoneCall {
    key: CallKey([0; CallKey::LEN]),
    volume: VolumeId(0),
    ino: Ino(u64::MAX),
    secs: i64::MIN,
};

/// The newest calls of one shard: number n is at place n modulo [`PER_SHARD`].
#[derive(Clone, Default)]
struct Shard {
    ring: Vec<DoneCall>,
    /// Number of the next call.
    next: u64,
    /// Number of the first call that is in no checkpoint.
    fresh: u64,
}

impl Shard {
    fn push(&mut self, call: DoneCall) {
        let place = (self.next % PER_SHARD as u64) as usize;
        match self.ring.get_mut(place) {
            Some(slot) => *slot = call,
            None => {
                debug_assert_eq!(place, self.ring.len(), "the ring fills up in order");
                self.ring.push(call);
            }
        }
        self.next += 1;
    }

    /// Returns the records with calls that are in no checkpoint.
    fn changed(&self) -> impl Iterator<Item = usize> + use<> {
        let count = (self.next - self.fresh).min(PER_SHARD as u64);
        let first = (self.next - count) / PER_RECORD as u64;
        let records = self.next.div_ceil(PER_RECORD as u64) - first;
        (first..first + records.min(RECORDS as u64)).map(|n| (n % RECORDS as u64) as usize)
    }

    fn encode(&self, record: usize) -> Vec<u8> {
        let first = record * PER_RECORD;
        let end = self.ring.len().min(first + PER_RECORD);
        encode(self.next, self.ring.get(first..end).unwrap_or_default())
    }
}

/// The calls carried out last: see the module's head.
#[derive(Default)]
pub(crate) struct Calls {
    shards: [Mutex<Shard>; SHARDS],
}

/// Calls to be written by a checkpoint.
pub(crate) struct FreshCalls(Vec<(usize, Shard)>);

impl Calls {
    fn shard(&self, key: &CallKey) -> &Mutex<Shard> {
        let [.., last] = key.0;
        // Below SHARDS.
        &self.shards[usize::from(last) % SHARDS]
    }

    /// Adds a call that was carried out: its log record has been appended, and no checkpoint has
    /// begun since.
    pub(crate) fn push(&self, call: DoneCall) {
        self.shard(&call.key).lock().push(call);
    }

    /// Forgets all calls. Their places stay taken, and are rewritten.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.ring.fill(NONE);
            shard.fresh = 0;
        }
    }

    /// Takes the calls since the last checkpoint. No call may be pushed meanwhile.
    pub(crate) fn take_fresh(&self) -> FreshCalls {
        let mut fresh = Vec::new();
        for (index, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.lock();
            if shard.fresh < shard.next {
                fresh.push((index, shard.clone()));
                shard.fresh = shard.next;
            }
        }
        FreshCalls(fresh)
    }

    /// Restores the calls stored in the tree, whose records are `read` in order.
    pub(crate) fn restore(&self, read: Vec<(u64, u64, Vec<DoneCall>)>) {
        for (sub, next, calls) in read {
            let sub = sub as usize;
            let mut shard = self.shards[sub / RECORDS].lock();
            debug_assert_eq!(shard.ring.len(), sub % RECORDS * PER_RECORD);
            shard.ring.extend(calls);
            shard.next = shard.next.max(next);
            shard.fresh = shard.next;
        }
    }

    /// Returns all remembered calls, in no order.
    pub(crate) fn list(&self) -> Vec<DoneCall> {
        let shards = self.shards.iter();
        let all = shards.flat_map(|shard| shard.lock().ring.clone());
        all.filter(|call| *call != NONE).collect()
    }
}

impl FreshCalls {
    /// Returns the changed records of the tree.
    pub(crate) fn records(&self) -> impl Iterator<Item = (Key, Vec<u8>)> {
        self.0.iter().flat_map(|(index, shard)| {
            shard.changed().map(move |record| {
                let sub = (index * RECORDS + record) as u64;
                (Key::new(0, kind::CALLS, sub), shard.encode(record))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use weir_base::{Ino, VolumeId};

    use crate::format::calls::decode;

    fn call(n: u64) -> DoneCall {
        let mut key = [0; CallKey::LEN];
        key[..8].copy_from_slice(&n.to_le_bytes());
        key[CallKey::LEN - 1] = (n % 3) as u8;
        DoneCall {
            key: CallKey(key),
            volume: VolumeId(n),
            ino: Ino(n),
            secs: n as i64,
        }
    }

    fn read(tree: &BTreeMap<u64, Vec<u8>>) -> Calls {
        let calls = Calls::default();
        let read = tree.iter().map(|(sub, value)| {
            assert!(value.len() <= weir_base::limits::MAX_VALUE);
            let (next, list) = decode(*sub, value).unwrap();
            (*sub, next, list)
        });
        calls.restore(read.collect());
        calls
    }

    fn sorted(calls: &Calls) -> Vec<u64> {
        let mut list: Vec<u64> = calls.list().iter().map(|c| c.ino.0).collect();
        list.sort_unstable();
        list
    }

    /// After any sequence of checkpoints, the tree has the newest calls before the last one, also
    /// when the ring has wrapped around, and after restarts in between.
    #[test]
    fn the_tree_has_the_newest_calls_of_each_checkpoint() {
        let (mut calls, mut tree) = (Calls::default(), BTreeMap::new());
        let mut made = 0;
        for (round, count) in [1u64, 15, 17, 0, 500, 3 * PER_SHARD as u64, 1, 40_000, 7, 2]
            .into_iter()
            .enumerate()
        {
            for n in made..made + count {
                calls.push(call(n));
            }
            made += count;
            let fresh = calls.take_fresh();
            // A call for the next checkpoint.
            calls.push(call(u64::MAX));
            let mut written = 0;
            for (key, value) in fresh.records() {
                tree.insert(key.sub, value);
                written += 1;
            }
            assert!(written <= 3 * (count.div_ceil(3 * PER_RECORD as u64) + 2));
            calls = read(&tree);
            // Three shards are in use.
            let kept = |n: &u64| made - *n <= 3 * PER_SHARD as u64;
            let newest: Vec<u64> = (0..made).filter(kept).collect();
            assert_eq!(sorted(&calls), newest, "round {round}");
            assert!(calls.take_fresh().records().next().is_none());
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        let calls = Calls::default();
        (0..40).for_each(|n| calls.push(call(3 * n)));
        let fresh = calls.take_fresh();
        let records: Vec<_> = fresh.records().collect();
        assert_eq!(records.len(), 3);
        for (key, value) in records {
            assert!(decode(key.sub, &value).is_some());
            for cut in 0..value.len() {
                assert!(decode(key.sub, &value[..cut]).is_none());
            }
            assert!(decode((SHARDS * RECORDS) as u64, &value).is_none());
            assert!(decode(key.sub + RECORDS as u64 / 2, &value).is_none());
        }
    }
}
