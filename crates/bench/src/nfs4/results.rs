//! Results of COMPOUNDs (RFC 8881 §16.2, §18), taken apart.

use super::op;
use crate::nfs3::{Fsinfo, Handle, ListingReply, ReadHead, Stable, WriteReply};
use crate::wire::{Head, Turn};
use crate::xdr::{Reader, XdrError, put_words};

/// Greatest file handle (`NFS4_FHSIZE`), tag and other opaque item (`NFS4_OPAQUE_LIMIT`), in bytes.
const MAX_HANDLE: u32 = 128;
pub(super) const MAX_OPAQUE: u32 = 1024;
const MAX_NAME: u32 = 255;
/// Greatest value of an fattr4 with the attributes that are asked for.
const MAX_VALUES: u32 = 4096;

const SIZE: u32 = 4;
const FILEID: u32 = 20;
const MAXREAD: u32 = 30;
const MAXWRITE: u32 = 31;
const SPACE_AVAIL: u32 = 42;

/// bitmap4 of attribute numbers below 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask([u32; 2]);

impl Mask {
    /// Attributes that Linux asks of every object (`nfs4_fattr_bitmap`): type, change, size, fsid,
    /// fileid, mode, numlinks, owner, owner_group, rawdev, space_used, time_access, time_metadata,
    /// time_modify, mounted_on_fileid.
    pub const ALL: Self =
        Self::from_numbers(&[1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);
    /// Attributes that it asks after a change (`nfs4_cache_consistency_bitmap`).
    pub const CONSISTENCY: Self = Self::from_numbers(&[3, 4, 52, 53]);
    /// Attributes of the entries of a directory, with attributes: rdattr_error and filehandle
    /// besides.
    pub const ENTRIES: Self = Self([Self::ALL.0[0] | 1 << 11 | 1 << 19, Self::ALL.0[1]]);
    /// Attributes of the entries of a directory, without attributes.
    pub const NAMES: Self = Self::from_numbers(&[11, 20, 55]);
    /// Attributes that correspond to version 3's FSINFO.
    pub const LIMITS: Self = Self::from_numbers(&[MAXREAD, MAXWRITE]);
    /// Attributes that correspond to version 3's FSSTAT.
    pub const SPACE: Self = Self::from_numbers(&[SPACE_AVAIL]);
    /// The mode.
    pub const MODE: Self = Self::from_numbers(&[33]);

    const fn from_numbers(numbers: &[u32]) -> Self {
        let mut words = [0; 2];
        let mut i = 0;
        while i < numbers.len() {
            words[(numbers[i] / 32) as usize] |= 1 << (numbers[i] % 32);
            i += 1;
        }
        Self(words)
    }

    /// Length on the wire, in bytes.
    pub const BYTES: usize = 12;

    /// Appends it.
    pub fn put(self, out: &mut Vec<u8>) {
        let [first, second] = self.0;
        put_words(out, [2, first, second]);
    }

    /// Its words.
    pub const fn words(self) -> [u32; 2] {
        self.0
    }

    /// Takes one; words beyond the second must be zero.
    pub fn take(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let mut words = [0; 2];
        let count = r.u32()?;
        if count == 2 {
            return Ok(Self([r.u32()?, r.u32()?]));
        }
        if count > 8 {
            return Err(XdrError::TooLong {
                found: count,
                limit: 8,
            });
        }
        for i in 0..count as usize {
            let word = r.u32()?;
            match words.get_mut(i) {
                Some(place) => *place = word,
                None if word == 0 => {}
                None => return Err(unexpected("attributes beyond 63", word)),
            }
        }
        Ok(Self(words))
    }

    const fn within(self, other: Self) -> bool {
        self.0[0] & !other.0[0] == 0 && self.0[1] & !other.0[1] == 0
    }

    const fn has_attribute(self, number: u32) -> bool {
        self.0[(number / 32) as usize] & 1 << (number % 32) != 0
    }
}

const fn unexpected(what: &'static str, found: u32) -> XdrError {
    XdrError::Unexpected { what, found }
}

/// Takes an operation's number and status, which must be this one and NFS4_OK.
pub(super) fn ok(r: &mut Reader<'_>, operation: u32) -> Result<(), XdrError> {
    match (r.u32()?, r.u32()?) {
        (found, 0) if found == operation => Ok(()),
        (found, 0) => Err(unexpected("result of another operation", found)),
        (_, status) => Err(unexpected("failed operation in a good COMPOUND", status)),
    }
}

/// Bytes of a good COMPOUND's results up to those of what follows SEQUENCE.
const SEQUENCED: usize = 56;

/// The status, if the results begin as those of a call with this turn must; `None` if that is to be
/// looked into.
fn sequenced(bytes: &[u8; SEQUENCED], session: &[u8; 16], turn: Turn) -> Option<u32> {
    let word = |at: usize| {
        let [a, b, c, d] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        u32::from_be_bytes([a, b, c, d])
    };
    // No tag, some results, SEQUENCE and its status, the turn. Then the highest slot, the target,
    // flags.
    let good = word(4) == 0
        && word(8) > 0
        && word(12) == op::SEQUENCE
        && word(16) == 0
        && bytes[20..36] == *session
        && word(36) == turn.sequence
        && word(40) == turn.slot;
    good.then(|| word(0))
}

/// Takes a COMPOUND's results up to those of the operation itself: SEQUENCE, and what sets the
/// current file handle.
pub(super) fn head(r: &mut Reader<'_>, session: &[u8; 16], turn: Turn) -> Result<Head, XdrError> {
    if let Some((bytes, rest)) = r.rest().split_first_chunk()
        && let Some(status) = sequenced(bytes, session, turn)
    {
        *r = Reader::new(rest);
        if status == 0 {
            skip_handles(r)?;
        }
        return Ok(Head {
            status,
            sequenced: true,
        });
    }
    head_in_steps(r, session, turn)
}

/// Decodes the beginning word by word, to say what is wrong.
fn head_in_steps(r: &mut Reader<'_>, session: &[u8; 16], turn: Turn) -> Result<Head, XdrError> {
    let status = r.u32()?;
    if !r.opaque(MAX_OPAQUE)?.is_empty() {
        return Err(unexpected("tag that was not sent", 0));
    }
    let count = r.u32()?;
    if count == 0 {
        return Ok(Head {
            status,
            sequenced: false,
        });
    }
    match (r.u32()?, r.u32()?) {
        (op::SEQUENCE, 0) => {}
        (op::SEQUENCE, failed) => {
            return Ok(Head {
                status: failed,
                sequenced: false,
            });
        }
        (found, _) => return Err(unexpected("first operation other than SEQUENCE", found)),
    }
    if r.fixed(16)? != session {
        return Err(unexpected("result of another session", turn.slot));
    }
    for (what, expected) in [
        ("sequence number", turn.sequence),
        ("number of the slot", turn.slot),
    ] {
        let found = r.u32()?;
        if found != expected {
            return Err(unexpected(what, found));
        }
    }
    // Highest slot, target, status flags.
    r.fixed(12)?;
    if status == 0 {
        skip_handles(r)?;
    }
    Ok(Head {
        status,
        sequenced: true,
    })
}

/// Takes the results of what sets the current file handle.
fn skip_handles(r: &mut Reader<'_>) -> Result<(), XdrError> {
    loop {
        let mut ahead = *r;
        let found = ahead.u32()?;
        if !matches!(found, op::PUTFH | op::PUTROOTFH | op::SAVEFH) {
            return Ok(());
        }
        ok(r, found)?;
    }
}

/// Takes GETATTR's results: the values, of attributes that were asked for.
pub(super) fn attributes<'a>(
    r: &mut Reader<'a>,
    asked: Mask,
) -> Result<(Mask, Reader<'a>), XdrError> {
    ok(r, op::GETATTR)?;
    fattr(r, asked)
}

fn fattr<'a>(r: &mut Reader<'a>, asked: Mask) -> Result<(Mask, Reader<'a>), XdrError> {
    let mask = Mask::take(r)?;
    if !mask.within(asked) {
        return Err(unexpected("attributes that were not asked for", mask.0[0]));
    }
    Ok((mask, Reader::new(r.opaque(MAX_VALUES)?)))
}

/// The attributes of which the values are of use. Those of lower numbers have to be there.
fn demand(mask: Mask, number: u32) -> Result<(), XdrError> {
    match mask.has_attribute(number) {
        true => Ok(()),
        false => Err(unexpected("missing attribute", number)),
    }
}

pub(super) fn size_and_fileid(r: &mut Reader<'_>) -> Result<(u64, u64), XdrError> {
    let (mask, mut values) = attributes(r, Mask::ALL)?;
    // type, change; fsid.
    for number in [1, 3, SIZE, 8, FILEID] {
        demand(mask, number)?;
    }
    values.fixed(4 + 8)?;
    let size = values.u64()?;
    values.fixed(16)?;
    Ok((size, values.u64()?))
}

pub(super) fn limits(r: &mut Reader<'_>) -> Result<Fsinfo, XdrError> {
    let (mask, mut values) = attributes(r, Mask::LIMITS)?;
    demand(mask, MAXREAD)?;
    demand(mask, MAXWRITE)?;
    let mut limit = || Ok(u32::try_from(values.u64()?).unwrap_or(u32::MAX));
    Ok(Fsinfo {
        rtmax: limit()?,
        wtmax: limit()?,
        dtpref: 0,
    })
}

pub(super) fn space(r: &mut Reader<'_>) -> Result<u64, XdrError> {
    let (mask, mut values) = attributes(r, Mask::SPACE)?;
    demand(mask, SPACE_AVAIL)?;
    values.u64()
}

pub(super) fn read_head(r: &mut Reader<'_>) -> Result<ReadHead, XdrError> {
    ok(r, op::READ)?;
    let eof = r.bool()?;
    let data_len = r.u32()?;
    Ok(ReadHead {
        count: data_len,
        eof,
        data_len,
    })
}

pub(super) fn written(r: &mut Reader<'_>) -> Result<WriteReply, XdrError> {
    ok(r, op::WRITE)?;
    Ok(WriteReply {
        count: r.u32()?,
        committed: Stable::from_wire(r.u32()?),
        verifier: r.verifier()?,
    })
}

pub(super) fn got_handle(r: &mut Reader<'_>) -> Result<Handle, XdrError> {
    ok(r, op::GETFH)?;
    let bytes = r.opaque(MAX_HANDLE)?;
    Handle::new(bytes).ok_or(XdrError::Truncated)
}

/// OPEN's results: the stateid.
pub(super) fn opened(r: &mut Reader<'_>) -> Result<[u8; 16], XdrError> {
    // open_delegation_type4, why_no_delegation4.
    const NONE: u32 = 0;
    const NONE_EXT: u32 = 3;
    const CONTENTION: u32 = 1;
    const RESOURCE: u32 = 2;
    ok(r, op::OPEN)?;
    let state = state(r)?;
    change(r)?;
    r.u32()?;
    Mask::take(r)?;
    match r.u32()? {
        NONE => {}
        NONE_EXT => {
            if matches!(r.u32()?, CONTENTION | RESOURCE) {
                r.bool()?;
            }
        }
        kind => return Err(unexpected("delegation that was not wanted", kind)),
    }
    Ok(state)
}

fn state(r: &mut Reader<'_>) -> Result<[u8; 16], XdrError> {
    let mut state = [0; 16];
    state.copy_from_slice(r.fixed(16)?);
    Ok(state)
}

pub(super) fn closed(r: &mut Reader<'_>) -> Result<(), XdrError> {
    ok(r, op::CLOSE)?;
    state(r)?;
    Ok(())
}

/// ACCESS's results: the bits granted, which must be among those that the server checked.
pub(super) fn accessed(r: &mut Reader<'_>) -> Result<u32, XdrError> {
    ok(r, op::ACCESS)?;
    let supported = r.u32()?;
    let granted = r.u32()?;
    match granted & !supported {
        0 => Ok(granted),
        more => Err(unexpected("access that was not checked", more)),
    }
}

/// Skips a change_info4.
pub(super) fn change(r: &mut Reader<'_>) -> Result<(), XdrError> {
    r.bool()?;
    r.fixed(16)?;
    Ok(())
}

pub(super) fn listed(r: &mut Reader<'_>, asked: Mask) -> Result<ListingReply, XdrError> {
    ok(r, op::READDIR)?;
    let verifier = r.verifier()?;
    let mut entries = 0;
    let mut cookie = 0;
    while r.bool()? {
        cookie = r.u64()?;
        r.opaque(MAX_NAME)?;
        fattr(r, asked)?;
        entries += 1;
    }
    Ok(ListingReply {
        entries,
        position: (cookie, verifier),
        eof: r.bool()?,
    })
}

/// The name RFC 8881 §15.1 gives to a status that version 3 has not.
pub fn status_name(status: u32) -> &'static str {
    match status {
        10_008 => "NFS4ERR_DELAY",
        10_011 => "NFS4ERR_EXPIRED",
        10_012 => "NFS4ERR_LOCKED",
        10_013 => "NFS4ERR_GRACE",
        10_015 => "NFS4ERR_SHARE_DENIED",
        10_016 => "NFS4ERR_WRONGSEC",
        10_017 => "NFS4ERR_CLID_INUSE",
        10_018 => "NFS4ERR_RESOURCE",
        10_019 => "NFS4ERR_MOVED",
        10_020 => "NFS4ERR_NOFILEHANDLE",
        10_021 => "NFS4ERR_MINOR_VERS_MISMATCH",
        10_022 => "NFS4ERR_STALE_CLIENTID",
        10_023 => "NFS4ERR_STALE_STATEID",
        10_024 => "NFS4ERR_OLD_STATEID",
        10_025 => "NFS4ERR_BAD_STATEID",
        10_036 => "NFS4ERR_BADXDR",
        10_038 => "NFS4ERR_OPENMODE",
        10_044 => "NFS4ERR_OP_ILLEGAL",
        10_052 => "NFS4ERR_BADSESSION",
        10_053 => "NFS4ERR_BADSLOT",
        10_054 => "NFS4ERR_COMPLETE_ALREADY",
        10_055 => "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
        10_063 => "NFS4ERR_SEQ_MISORDERED",
        10_064 => "NFS4ERR_SEQUENCE_POS",
        10_065 => "NFS4ERR_REQ_TOO_BIG",
        10_066 => "NFS4ERR_REP_TOO_BIG",
        10_067 => "NFS4ERR_REP_TOO_BIG_TO_CACHE",
        10_070 => "NFS4ERR_TOO_MANY_OPS",
        10_074 => "NFS4ERR_CLIENTID_BUSY",
        10_076 => "NFS4ERR_SEQ_FALSE_RETRY",
        10_078 => "NFS4ERR_DEADSESSION",
        _ => "unknown status",
    }
}

#[cfg(test)]
mod tests;
