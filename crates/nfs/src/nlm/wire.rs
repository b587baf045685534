//! The messages of NLM version 4 (RFC 1813 Appendix II; X/Open "Protocols for
//! Interworking: XNFS", chapter 10).

use crate::rpc::xdr::{self, Put, Reader};
use weir_vfs::claims::Lock;

/// Longest caller name and opaque object (`LM_MAXSTRLEN`, `MAXNETOBJ_SZ`).
const MAX_STRING: usize = 1024;

/// `nlm4_stats` (RFC 1813 §6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the protocol's.
pub enum Stat {
    Granted = 0,
    Denied = 1,
    DeniedNoLocks = 2,
    Blocked = 3,
    DeniedGracePeriod = 4,
    Deadlock = 5,
    ReadOnly = 6,
    StaleHandle = 7,
    TooBig = 8,
    Failed = 9,
}

impl Stat {
    /// Returns the number under which a failed call is counted; `None` if it did not fail.
    pub fn failed(self) -> Option<u32> {
        let succeeded = matches!(self, Stat::Granted | Stat::Blocked);
        (!succeeded).then_some(self as u32)
    }
}

/// Returns the name of a status by its number, for metrics: that of `nlm4_stats` without its
/// prefix.
pub fn status_name(number: u32) -> Option<&'static str> {
    const NAMES: [&str; 10] = [
        "GRANTED",
        "DENIED",
        "DENIED_NOLOCKS",
        "BLOCKED",
        "DENIED_GRACE_PERIOD",
        "DEADLCK",
        "ROFS",
        "STALE_FH",
        "FBIG",
        "FAILED",
    ];
    NAMES.get(usize::try_from(number).ok()?).copied()
}

/// `nlm4_lock`: a range of a file and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alock<'a> {
    /// Name of the client host.
    pub caller: &'a [u8],
    /// Handle of the file, made by `weir_vfs::handle`.
    pub file: &'a [u8],
    /// The owner's identification, which other clients are shown.
    pub owner: &'a [u8],
    /// The process on the client.
    pub svid: u32,
    /// First byte of the range.
    pub offset: u64,
    /// Length in bytes; 0 means to the end of the file.
    pub length: u64,
}

/// Arguments of TEST, LOCK, CANCEL, UNLOCK, GRANTED and their MSG forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockArgs<'a> {
    /// Opaque bytes, returned in the result.
    pub cookie: &'a [u8],
    /// True if the request is to be queued when it conflicts.
    pub block: bool,
    /// True for a write lock, false for a read lock.
    pub exclusive: bool,
    /// The range to lock, with its owner.
    pub lock: Alock<'a>,
    /// True if the lock was held before the server restarted.
    pub reclaim: bool,
    /// The client's NSM state; 0 if it is unknown.
    pub state: u32,
}

/// Arguments of SHARE and UNSHARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareArgs<'a> {
    /// Opaque bytes, returned in the result.
    pub cookie: &'a [u8],
    /// Name of the client host.
    pub caller: &'a [u8],
    /// Handle of the file, made by `weir_vfs::handle`.
    pub file: &'a [u8],
    /// The owner, as the client distinguishes it.
    pub owner: &'a [u8],
    /// Access denied to others (`fsh4_mode`).
    pub deny: u32,
    /// Access used (`fsh4_access`).
    pub access: u32,
    /// True if the reservation was held before the server restarted.
    pub reclaim: bool,
}

/// Operation of a lock call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Checks for a conflict.
    Test,
    /// Takes the lock, or queues the request.
    Lock,
    /// Cancels a queued request.
    Cancel,
    /// Frees a range, or the part of it that is locked.
    Unlock,
    /// Notifies a client that its request was granted. This server is no client.
    Granted,
}

/// The decoded arguments of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL: no arguments, no results.
    Null,
    /// A verb, answered in the reply.
    Sync(Verb, LockArgs<'a>),
    /// A verb, answered by a call of its own.
    Async(Verb, LockArgs<'a>),
    /// The result of an asynchronous call by this server: cookie and status.
    Result(Verb, &'a [u8], u32),
    /// The local status monitor reports that a host restarted (a private procedure
    /// of lock managers that use one).
    Notify,
    /// SHARE: takes a share reservation.
    Share(ShareArgs<'a>),
    /// UNSHARE: releases a share reservation.
    Unshare(ShareArgs<'a>),
    /// NM_LOCK: a lock of a client without monitoring.
    Unmonitored(LockArgs<'a>),
    /// FREE_ALL: the named host releases everything it has.
    FreeAll(&'a [u8]),
}

/// Decodes the arguments of `procedure`; `None` if there is no such procedure.
pub fn decode(procedure: u32, args: &[u8]) -> Option<xdr::Result<Args<'_>>> {
    let mut r = Reader::new(args);
    let known = matches!(procedure, 0..=16 | 20..=23);
    known.then(|| decode_known(procedure, &mut r))
}

fn decode_known<'a>(procedure: u32, r: &mut Reader<'a>) -> xdr::Result<Args<'a>> {
    Ok(match procedure {
        0 => Args::Null,
        1 => Args::Sync(Verb::Test, test(r)?),
        2 => Args::Sync(Verb::Lock, lock(r)?),
        3 => Args::Sync(Verb::Cancel, cancel(r)?),
        4 => Args::Sync(Verb::Unlock, unlock(r)?),
        5 => Args::Sync(Verb::Granted, test(r)?),
        6 => Args::Async(Verb::Test, test(r)?),
        7 => Args::Async(Verb::Lock, lock(r)?),
        8 => Args::Async(Verb::Cancel, cancel(r)?),
        9 => Args::Async(Verb::Unlock, unlock(r)?),
        10 => Args::Async(Verb::Granted, test(r)?),
        11 => Args::Result(Verb::Test, r.opaque(MAX_STRING)?, r.u32()?),
        12 => Args::Result(Verb::Lock, r.opaque(MAX_STRING)?, r.u32()?),
        13 => Args::Result(Verb::Cancel, r.opaque(MAX_STRING)?, r.u32()?),
        14 => Args::Result(Verb::Unlock, r.opaque(MAX_STRING)?, r.u32()?),
        15 => Args::Result(Verb::Granted, r.opaque(MAX_STRING)?, r.u32()?),
        16 => Args::Notify,
        20 => Args::Share(share(r)?),
        21 => Args::Unshare(share(r)?),
        22 => Args::Unmonitored(lock(r)?),
        _ => {
            let name = r.opaque(MAX_STRING)?;
            r.u32()?;
            Args::FreeAll(name)
        }
    })
}

fn alock<'a>(r: &mut Reader<'a>) -> xdr::Result<Alock<'a>> {
    Ok(Alock {
        caller: r.opaque(MAX_STRING)?,
        file: r.opaque(MAX_STRING)?,
        owner: r.opaque(MAX_STRING)?,
        svid: r.u32()?,
        offset: r.u64()?,
        length: r.u64()?,
    })
}

/// Decodes `nlm4_testargs`.
fn test<'a>(r: &mut Reader<'a>) -> xdr::Result<LockArgs<'a>> {
    let (cookie, exclusive) = (r.opaque(MAX_STRING)?, r.bool()?);
    Ok(LockArgs {
        cookie,
        block: false,
        exclusive,
        lock: alock(r)?,
        reclaim: false,
        state: 0,
    })
}

/// Decodes `nlm4_lockargs`.
fn lock<'a>(r: &mut Reader<'a>) -> xdr::Result<LockArgs<'a>> {
    let mut args = cancel(r)?;
    args.reclaim = r.bool()?;
    args.state = r.u32()?;
    Ok(args)
}

/// Decodes `nlm4_cancargs`.
fn cancel<'a>(r: &mut Reader<'a>) -> xdr::Result<LockArgs<'a>> {
    let (cookie, block, exclusive) = (r.opaque(MAX_STRING)?, r.bool()?, r.bool()?);
    Ok(LockArgs {
        cookie,
        block,
        exclusive,
        lock: alock(r)?,
        reclaim: false,
        state: 0,
    })
}

/// Decodes `nlm4_unlockargs`.
fn unlock<'a>(r: &mut Reader<'a>) -> xdr::Result<LockArgs<'a>> {
    let cookie = r.opaque(MAX_STRING)?;
    Ok(LockArgs {
        cookie,
        block: false,
        exclusive: false,
        lock: alock(r)?,
        reclaim: false,
        state: 0,
    })
}

/// Decodes `nlm4_shareargs`.
fn share<'a>(r: &mut Reader<'a>) -> xdr::Result<ShareArgs<'a>> {
    Ok(ShareArgs {
        cookie: r.opaque(MAX_STRING)?,
        caller: r.opaque(MAX_STRING)?,
        file: r.opaque(MAX_STRING)?,
        owner: r.opaque(MAX_STRING)?,
        deny: r.u32()?,
        access: r.u32()?,
        reclaim: r.bool()?,
    })
}

/// Appends the result of a lock call: `nlm4_res`, or `nlm4_testres` with a holder.
pub(super) fn put_result(out: &mut Vec<u8>, cookie: &[u8], stat: Stat, holder: Option<&Lock>) {
    out.put_opaque(cookie);
    out.put_u32(stat as u32);
    if let Some(h) = holder {
        out.put_bool(h.exclusive);
        out.put_u32(h.owner.process());
        out.put_opaque(&h.owner.shown);
        out.put_u64(h.range.start);
        out.put_u64(h.range.length());
    }
}

/// Appends `nlm4_shareres`; the sequence number has no use in version 4.
pub(super) fn put_share_result(out: &mut Vec<u8>, cookie: &[u8], stat: Stat) {
    out.put_opaque(cookie);
    out.put_u32(stat as u32);
    out.put_u32(0);
}

/// Appends the `nlm4_testargs` of a GRANTED call.
pub(super) fn put_granted(
    out: &mut Vec<u8>,
    cookie: &[u8],
    caller: &[u8],
    file: &[u8],
    lock: &Lock,
) {
    let Lock {
        owner,
        range,
        exclusive,
        ..
    } = lock;
    out.put_opaque(cookie);
    out.put_bool(*exclusive);
    out.put_opaque(caller);
    out.put_opaque(file);
    out.put_opaque(&owner.shown);
    out.put_u32(owner.process());
    out.put_u64(range.start);
    out.put_u64(range.length());
}

/// Reads an `nlm4_res`: cookie and status.
pub(super) fn result(results: &[u8]) -> Option<(&[u8], u32)> {
    let mut r = Reader::new(results);
    Some((r.opaque(MAX_STRING).ok()?, r.u32().ok()?))
}
