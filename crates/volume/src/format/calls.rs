//! Stored form of the calls that were carried out last ([`crate::overlay::calls`] has them in
//! memory).

pub(crate) use weir_base::limits::engine::CALLS_PER_SHARD as PER_SHARD;
use weir_base::{Ino, VolumeId};

use crate::format::codec::{Put, Reader};

/// Key of a call, as the protocol encodes it; the last byte is as good as random.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallKey(pub [u8; CallKey::LEN]);

impl CallKey {
    /// Length of a key in bytes.
    pub const LEN: usize = 16;
}

/// A call that was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoneCall {
    /// Key of the call.
    pub key: CallKey,
    /// The volume on which it was carried out.
    pub volume: VolumeId,
    /// The inode that it created or changed; 0 if the reply names none.
    pub ino: Ino,
    /// Time of the call, in seconds of civil time.
    pub secs: i64,
}

/// Number of locks that calls are spread over.
pub(crate) const SHARDS: usize = 8;

/// Maximum number of remembered calls.
pub const KEPT: usize = SHARDS * PER_SHARD;

/// Calls in one record of the tree.
pub(crate) const PER_RECORD: usize = 16;

/// Number of records of a shard.
pub(crate) const RECORDS: usize = PER_SHARD / PER_RECORD;

pub(crate) const VERSION: u8 = 2;
const ENTRY: usize = CallKey::LEN + 8 + 8 + 8;

const _: () = {
    assert!(1 + 8 + PER_RECORD * ENTRY <= weir_base::limits::MAX_VALUE);
    assert!(PER_SHARD.is_multiple_of(PER_RECORD));
};

/// Encodes a record of the tree. `next` is the number of the call after the newest of its shard.
pub(crate) fn encode(next: u64, calls: &[DoneCall]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + 8 + PER_RECORD * ENTRY);
    out.put_u8(VERSION);
    out.put_u64(next);
    for call in calls {
        out.put(&call.key.0);
        out.put_u64(call.volume.0);
        out.put_u64(call.ino.0);
        out.put_i64(call.secs);
    }
    out
}

/// Decodes a record of the tree: the number of the call after the newest one in it, and the calls
/// from the first place of the record on.
pub(crate) fn decode(sub: u64, value: &[u8]) -> Option<(u64, Vec<DoneCall>)> {
    let mut r = Reader::new(value);
    let sub = usize::try_from(sub)
        .ok()
        .filter(|sub| *sub < SHARDS * RECORDS)?;
    if r.u8()? != VERSION {
        return None;
    }
    let next = r.u64()?;
    let mut calls = Vec::new();
    while !r.is_empty() {
        calls.push(DoneCall {
            key: CallKey(r.array()?),
            volume: VolumeId(r.u64()?),
            ino: Ino(r.u64()?),
            secs: r.i64()?,
        });
    }
    // The record has as many calls as had been made by then.
    let first = (sub % RECORDS * PER_RECORD) as u64;
    let made = next.checked_sub(first)?.min(PER_RECORD as u64);
    (made > 0 && calls.len() as u64 == made).then_some((next, calls))
}
