//! Queue of kept replies, oldest first.
//!
//! Hundreds of thousands of replies are kept under load, each written once and most never read
//! again. Their cost is the memory fetched to insert and to remove one. As entries of a hash table
//! with an allocation for each reply, that was a tenth of the processor time of a REMOVE. So calls
//! and the bytes of their replies are appended to two queues and leave from their fronts, an access
//! pattern that the processor prefetches. A table maps a call's hash to its position in the queue.
//! It has 16 bytes per entry, so that it stays in the processor's caches.
//!
//! The hash is half of the key's. If two calls have the same hash, the later replaces the earlier,
//! which then counts as never seen.

use super::{MAX_AGE, hash};
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use weir_base::{Ino, Lsn, VolumeId};
use weir_conn::Line;
use weir_vfs::volume::CallKey;

/// Bytes of an entry besides its reply: its place in the queue and in the table, with the room that
/// both reserve for growth.
const OVERHEAD: usize = 192;

/// Bytes of replies that are allocated together.
const CHUNK: usize = 8 << 10;

/// Origin of a call.
pub(super) enum Origin {
    /// It was received over this connection.
    Connection(Line),
    /// It was recovered from the log: the inode that it changed.
    Recovered(VolumeId, Ino),
}

/// An answered call, and the position of its reply.
struct ReplyEntry {
    key: CallKey,
    /// Time from which its age counts, in seconds.
    at: i64,
    lsn: Option<Lsn>,
    origin: Origin,
    /// Position of its reply: the number of the chunk, and the range of bytes in it.
    chunk: u64,
    begin: u32,
    end: u32,
}

/// A kept reply that was found.
pub(super) struct ReplyRef<'a> {
    pub(super) reply: &'a [u8],
    pub(super) lsn: Option<Lsn>,
    pub(super) origin: &'a Origin,
}

/// The kept replies of one shard.
#[derive(Default)]
pub(super) struct Replies {
    /// Maps hashes to numbers in `order`.
    index: HashMap<u64, u64, RandomState>,
    /// The calls, oldest first.
    order: VecDeque<ReplyEntry>,
    /// Number of the oldest call.
    first: u64,
    /// Replies, in the same order.
    chunks: VecDeque<Vec<u8>>,
    /// Number of the first chunk.
    first_chunk: u64,
    /// An empty chunk for reuse.
    spare: Option<Vec<u8>>,
    bytes: usize,
}

impl Replies {
    /// Returns the reply to the call with this key.
    pub(super) fn get(&self, key: &CallKey) -> Option<ReplyRef<'_>> {
        let number = *self.index.get(&hash(key))?;
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let kept = self.order.get(at).filter(|kept| kept.key == *key)?;
        let chunk = usize::try_from(kept.chunk.checked_sub(self.first_chunk)?).ok()?;
        let reply = self.chunks.get(chunk)?;
        Some(ReplyRef {
            reply: reply.get(kept.begin as usize..kept.end as usize)?,
            lsn: kept.lsn,
            origin: &kept.origin,
        })
    }

    /// Adds a reply whose age counts from `at`, in seconds.
    pub(super) fn push(
        &mut self,
        key: CallKey,
        at: i64,
        reply: &[u8],
        (lsn, origin): (Option<Lsn>, Origin),
    ) {
        let room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len();
        if self.chunks.back().is_none_or(|c| room(c) < reply.len()) {
            let spare = self.spare.take().filter(|s| s.capacity() >= reply.len());
            let fresh = || Vec::with_capacity(CHUNK.max(reply.len()));
            self.chunks.push_back(spare.unwrap_or_else(fresh));
        }
        let Some(chunk) = self.chunks.back_mut() else {
            return;
        };
        // A reply is at most as long as a record, which is far below 4 GiB.
        let begin = chunk.len() as u32;
        chunk.extend_from_slice(reply);
        self.order.push_back(ReplyEntry {
            key,
            at,
            lsn,
            origin,
            chunk: self.first_chunk + (self.chunks.len() - 1) as u64,
            begin,
            end: begin + reply.len() as u32,
        });
        let number = self.first + (self.order.len() - 1) as u64;
        self.index.insert(hash(&key), number);
        self.bytes += OVERHEAD + reply.len();
    }

    fn evict_one(&mut self) {
        let Some(kept) = self.order.pop_front() else {
            return;
        };
        self.bytes -= OVERHEAD + (kept.end - kept.begin) as usize;
        // A later call with the same hash has taken the place.
        let hash = hash(&kept.key);
        if self.index.get(&hash) == Some(&self.first) {
            self.index.remove(&hash);
        }
        self.first += 1;
        let oldest = self.order.front().map(|next| next.chunk);
        while oldest.is_some_and(|chunk| chunk > self.first_chunk) {
            self.first_chunk += 1;
            self.spare = self.chunks.pop_front().map(|mut chunk| {
                chunk.clear();
                chunk
            });
        }
    }

    /// Drops replies beyond the maximum age, and the oldest beyond `limit` bytes.
    pub(super) fn trim(&mut self, limit: usize, now: i64) {
        while let Some(oldest) = self.order.front() {
            if now.saturating_sub(oldest.at) <= MAX_AGE && self.bytes <= limit {
                return;
            }
            self.evict_one();
        }
    }

    /// Bytes kept in all.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call's key with this hash.
    fn key(xid: u32, hash: u64) -> CallKey {
        let mut key = [0; CallKey::LEN];
        key[..4].copy_from_slice(&xid.to_le_bytes());
        key[CallKey::LEN - 8..].copy_from_slice(&hash.to_le_bytes());
        CallKey(key)
    }

    const LOG: Origin = Origin::Recovered(VolumeId(1), Ino(2));

    /// Replies of all lengths, some longer than a chunk: each is found unchanged until it is
    /// evicted, and the memory behind them does not grow.
    #[test]
    fn a_queue_of_replies() {
        let mut r = Replies::default();
        let text =
            |n: u32| vec![n as u8; (n as usize * 7919) % 300 + usize::from(n % 97 == 0) * CHUNK];
        let limit = 64 << 10;
        for n in 0..20_000 {
            r.push(key(n, n.into()), 0, &text(n), (None, LOG));
            r.trim(limit, 0);
            assert!(r.bytes <= limit && r.index.len() == r.order.len());
        }
        let kept = r.order.len() as u32;
        assert!(kept > 50);
        for n in 0..20_000 {
            let found = r.get(&key(n, n.into())).map(|f| f.reply.to_vec());
            assert_eq!(found, (n >= 20_000 - kept).then(|| text(n)), "{n}");
        }
        assert!(r.chunks.len() <= 2 * limit / CHUNK);
    }

    #[test]
    fn of_two_with_one_hash_the_later_is_known() {
        let mut r = Replies::default();
        r.push(key(1, 7), 0, b"one", (None, LOG));
        r.push(key(2, 7), 1, b"two", (Some(Lsn(3)), LOG));
        assert!(r.get(&key(1, 7)).is_none());
        r.trim(usize::MAX, MAX_AGE + 1);
        let found = r.get(&key(2, 7)).unwrap();
        assert_eq!((found.reply, found.lsn), (&b"two"[..], Some(Lsn(3))));
        r.trim(usize::MAX, MAX_AGE + 2);
        assert!(r.get(&key(2, 7)).is_none() && r.index.is_empty() && r.bytes == 0);
    }
}
