//! Persistent sessions: a request is carried out once even if the server crashes before its reply
//! has come (RFC 8881 §2.10.6.5).
//!
//! **Stored data.** An operation that must not run twice has a key in its own log record: its place
//! in the COMPOUND, and a keyed hash of session, slot, sequence number and request ([`Request`]).
//! So the log has the key exactly if the operation was carried out, without an additional write.
//! The engine keeps the newest keys over checkpoints, with the inode that each operation created
//! ([`DoneCall`]). Sessions themselves are not stored: they end with the server.
//!
//! **After a restart** a client sends the requests without a reply again, over the old session. A
//! request that has left a key is a retransmission. It is run from its start in the name of the old
//! session. The operations with keys are not carried out, but answered with their recorded results
//! (`ops::repeat`). The operations around them, which change nothing, are run. The reply has the
//! present change counters, which do not match one moment (`atomic` is false), so the client drops
//! its cache of the directory. A request that has left no key changed nothing, and is answered
//! BADSESSION as any other: its client creates a new session, reclaims its opens, and sends the
//! request there.
//!
//! **OPEN** of a file that it created is answered with an invalid stateid, like any from before the
//! restart. The client reclaims the open with the others. That the client is recorded at all was
//! durable before the open's record, and that record tells which file it opened
//! ([`Before::has_unrecorded`]). An OPEN may fail after it has created the file, since another
//! client denied the open. Then the log has the failure under the same key.
//!
//! **Bound.** As for NFSv3 ([`crate::rpc::drc`]), with which it shares the engine's table of 16,384
//! calls.

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

/// First byte of a key, combined with the operation's place in the COMPOUND. The keys of NFSv3
/// begin with a procedure's number, below 22.
pub(super) const FIRST: u8 = 0x80;
const _: () = assert!(MAX_OPERATIONS <= 64, "a place has six bits");

/// Returns true if a key is that of an NFSv4 operation.
pub(crate) fn is_operation(key: &CallKey) -> bool {
    let [first, ..] = key.0;
    first & 0xc0 == FIRST
}

/// Returns true if a second run of an operation would reply differently or do harm: CREATE, LINK,
/// OPEN, REMOVE, RENAME, SETATTR, SETXATTR, REMOVEXATTR. As in version 3, WRITE is not among them,
/// nor are other operations that only write a range (COPY, CLONE, DEALLOCATE).
pub(super) fn must_run_once(operation: u32) -> bool {
    matches!(operation, 6 | 11 | 18 | 28 | 29 | 34 | 73 | 75)
}

/// Identifies a request of a session in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub slot: u32,
    pub sequence: u32,
    /// Checksum of the request's first bytes and its length.
    pub checksum: u32,
}

impl Request {
    /// Returns the key of the operation at `place`.
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

/// Results of a request's operations from before the restart: place, volume and inode.
pub(super) struct RecoveredResults(pub(super) Vec<(u32, VolumeId, Ino)>);

impl RecoveredResults {
    pub(super) fn find_at(&self, place: u32) -> Option<(VolumeId, Ino)> {
        let found = self.0.iter().find(|(at, ..)| *at == place);
        found.map(|(_, volume, ino)| (*volume, *ino))
    }
}

/// Bit in place of an inode for an operation that failed after its new object was in the log. The
/// low bits are the status.
pub(super) const FAILED: u64 = 1 << 63;

/// Returns the recorded status of an operation that failed.
pub(super) fn failed_with(ino: Ino) -> Option<Status> {
    let all = [Status::ShareDenied, Status::Expired];
    let status = |number: u64| all.into_iter().find(|status| *status as u64 == number);
    // For any other status the client tries again.
    let of = |number| status(number).unwrap_or(Status::Delay);
    (ino.0 & FAILED != 0).then(|| of(ino.0 & !FAILED))
}

/// Operations that were carried out before the start.
pub(crate) struct Before {
    pub(super) secret: SipKey,
    pub(super) done: Mutex<HashMap<CallKey, (VolumeId, Ino)>>,
    /// Files of these operations that no client is recorded to have opened.
    unrecorded: Mutex<HashSet<FileKey>>,
    /// Time until which clients may ask for them, on the monotonic clock.
    pub(super) until: Duration,
}

impl Before {
    /// Collects the operations at `now`, the start. `recorded` returns true if a client is recorded
    /// to have had a file open.
    pub(crate) fn new(
        secret: SipKey,
        done: &[DoneCall],
        now: Duration,
        recorded: impl Fn(FileKey) -> bool,
    ) -> Before {
        let mut known = HashMap::with_capacity(done.len());
        for call in done {
            let of = known.entry(call.key).or_insert((call.volume, call.ino));
            // A failure is the later result, whatever the order of the two.
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

    /// Returns the recorded results of a request with `count` operations; `None` if it changed
    /// nothing.
    pub(super) fn find(
        &self,
        session: &SessionId,
        request: &Request,
        count: u32,
    ) -> Option<RecoveredResults> {
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
        (!found.is_empty()).then_some(RecoveredResults(found))
    }

    /// Returns true if an operation created a file that no client is recorded to have opened: the
    /// server may have stopped between the two.
    pub(super) fn has_unrecorded(&self, file: FileId) -> bool {
        self.unrecorded.lock().contains(&file.into())
    }

    /// Forgets everything once the time for questions is over.
    pub(super) fn tick(&self, now: Duration) {
        if now >= self.until {
            *self.done.lock() = HashMap::new();
            *self.unrecorded.lock() = HashSet::new();
        }
    }
}
