//! Persistent sessions: a request is carried out once even if the server crashes before its reply
//! has come (RFC 8881 §2.10.6.5).
//!
//! **What is stored.** An operation that must not be carried out twice has a key in its own log
//! record: its place in the COMPOUND, and a keyed hash of session, slot, sequence number and
//! request ([`Request`]). So the log says that it was carried out exactly if it was, at no write of
//! its own; the engine keeps the newest keys over checkpoints, with the inode that each operation
//! made ([`DoneCall`]). Sessions themselves are not stored: they end with the server.
//!
//! **After a restart** a client sends the requests again that it has no reply to, over the session
//! that it had. One that has left a key is a retransmission. It is run from its start in the name
//! of the session that was; the operations with keys are not carried out but answered with what
//! they came to ([`Run::repeat`]), those around them, which change nothing, are run. Of change
//! counters the reply has the present ones, not of one moment (`atomic` is false), so the client
//! drops what it has cached of the directory. A request that has left no key changed nothing, and
//! is answered BADSESSION as any other: its client makes a new session, claims what it had open,
//! and sends it there.
//!
//! **OPEN** of a file that it made is answered with a stateid that means nothing, as any of before
//! the restart. The client claims the open with the others: that it is recorded at all was durable
//! before the open's record, and which file it opened became known with that
//! ([`Before::has_unrecorded`]). One that failed after it had made the file, since another client
//! denied it the open, leaves that in the log under the same key.
//!
//! **Bound.** As for NFSv3 ([`crate::rpc::drc`]), with which it shares the engine's places for
//! 16,384 calls.

use super::session::MAX_OPERATIONS;
use super::status::Status;
use super::types::SessionId;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use weir_base::limits::protocol::REPLY_AGE_RECOVERED;
use weir_base::{Ino, SipKey, VolumeId};
use weir_vfs::FileId;
use weir_vfs::grace::FileKey;
use weir_vfs::volume::{CallKey, DoneCall};

/// The first byte of a key is this and the operation's place in the COMPOUND. The keys of NFSv3 begin with a procedure's number,
/// below 22.
pub(super) const FIRST: u8 = 0x80;
const _: () = assert!(MAX_OPERATIONS <= 64, "a place has six bits");

/// Whether a key is that of an operation of NFSv4.
pub(crate) fn is_operation(key: &CallKey) -> bool {
    let [first, ..] = key.0;
    first & 0xc0 == FIRST
}

/// Whether running an operation twice would reply differently or do harm: CREATE, LINK, OPEN, REMOVE, RENAME, SETATTR, SETXATTR,
/// REMOVEXATTR. As in version 3, WRITE is not among them, nor what else only writes a range (COPY, CLONE, DEALLOCATE).
pub(super) fn must_run_once(operation: u32) -> bool {
    matches!(operation, 6 | 11 | 18 | 28 | 29 | 34 | 73 | 75)
}

/// A request of a session, as the log knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub slot: u32,
    pub sequence: u32,
    /// Of the request's first bytes and its length.
    pub checksum: u32,
}

impl Request {
    /// The key of the operation at `place`.
    pub(super) fn key(&self, secret: SipKey, session: &SessionId, place: u32) -> CallKey {
        CallKey(at_place(self.hash(secret, session), place))
    }

    pub(super) fn hash(&self, secret: SipKey, session: &SessionId) -> [u8; CallKey::LEN] {
        let mut numbers = [0; 12];
        let words = [self.slot, self.sequence, self.checksum];
        for (to, word) in numbers.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_be_bytes();
        }
        secret.hash128(&[session, &numbers]).to_le_bytes()
    }
}

pub(super) fn at_place(mut hash: [u8; CallKey::LEN], place: u32) -> [u8; CallKey::LEN] {
    hash[0] = FIRST | place as u8;
    hash
}

/// What the operations of a request that was carried out before the restart came to.
pub(super) struct Repeated(pub(super) Vec<(u32, VolumeId, Ino)>);

impl Repeated {
    pub(super) fn at(&self, place: u32) -> Option<(VolumeId, Ino)> {
        let found = self.0.iter().find(|(at, ..)| *at == place);
        found.map(|(_, volume, ino)| (*volume, *ino))
    }
}

/// Stands for the inode of an operation that failed after what it had made was in the log, with the status in its last bits.
pub(super) const FAILED: u64 = 1 << 63;

/// What such an operation is known by in the log: the status, of those that such an operation may fail with.
pub(super) fn failed_with(ino: Ino) -> Option<Status> {
    let all = [Status::ShareDenied, Status::Expired];
    let status = |number: u64| all.into_iter().find(|status| *status as u64 == number);
    // Whatever else, the client asks again.
    let of = |number| status(number).unwrap_or(Status::Delay);
    (ino.0 & FAILED != 0).then(|| of(ino.0 & !FAILED))
}

/// The operations that were carried out before the start.
pub(crate) struct Before {
    pub(super) secret: SipKey,
    pub(super) done: Mutex<HashMap<CallKey, (VolumeId, Ino)>>,
    /// Files that they made and that no client is recorded to have opened.
    unrecorded: Mutex<HashSet<FileKey>>,
    /// Until when clients may ask, on the monotonic clock.
    pub(super) until: Duration,
}

impl Before {
    /// Takes what is known at `now`, the start; `recorded` tells whether a client is recorded to
    /// have had a file open.
    pub(crate) fn new(
        secret: SipKey,
        done: &[DoneCall],
        now: Duration,
        recorded: impl Fn(FileKey) -> bool,
    ) -> Before {
        let mut known = HashMap::with_capacity(done.len());
        for call in done {
            let of = known.entry(call.key).or_insert((call.volume, call.ino));
            // The last word on an operation, in whatever order the two come.
            if failed_with(call.ino).is_some() {
                *of = (call.volume, call.ino);
            }
        }
        let files = known.values().map(|(volume, ino)| FileKey {
            volume: *volume,
            ino: *ino,
        });
        let unrecorded = files.filter(|file| !recorded(*file)).collect();
        Before {
            secret,
            unrecorded: Mutex::new(unrecorded),
            done: Mutex::new(known),
            until: now + Duration::from_secs(REPLY_AGE_RECOVERED.unsigned_abs()),
        }
    }

    /// What a request came to that has `count` operations; `None` if it changed nothing.
    pub(super) fn find(
        &self,
        session: &SessionId,
        request: &Request,
        count: u32,
    ) -> Option<Repeated> {
        let done = self.done.lock();
        if done.is_empty() {
            return None;
        }
        let hash = request.hash(self.secret, session);
        let found = (0..count.min(MAX_OPERATIONS)).filter_map(|place| {
            let (volume, ino) = done.get(&CallKey(at_place(hash, place)))?;
            Some((place, *volume, *ino))
        });
        let found: Vec<_> = found.collect();
        (!found.is_empty()).then_some(Repeated(found))
    }

    /// Returns true if an operation has made a file of which no client is recorded to have had it
    /// open: the server may have stopped between the two.
    pub(super) fn has_unrecorded(&self, file: FileId) -> bool {
        self.unrecorded.lock().contains(&file.into())
    }

    /// Forgets all when the time for questions is over.
    pub(super) fn tick(&self, now: Duration) {
        if now >= self.until {
            *self.done.lock() = HashMap::new();
            *self.unrecorded.lock() = HashSet::new();
        }
    }
}
