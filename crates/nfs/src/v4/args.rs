//! Arguments of COMPOUND and of each operation (RFC 8881 §16.2, §18; RFC 7862 §15; RFC 8276 §8.4),
//! decoded in place.
//!
//! Each operation is decoded when the cursor reaches it: one that cannot be decoded is answered
//! BADXDR after those before it have been carried out (RFC 8881 §16.2.3). Everything borrows from
//! the call; nothing is allocated.

use super::protect::{MachineOps, Protect};
use super::types::{self, Bitmap, MAX_HANDLE, MAX_OPAQUE, SessionId, StateId};
use crate::rpc::xdr::{self, Reader, XdrError};
use weir_vfs::volume::Stability;

/// Longest tag that is echoed.
const MAX_TAG: usize = 1024;
/// Maximum number of elements in a list that no client needs longer.
const MAX_LIST: u32 = 64;

/// The head of a COMPOUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Text chosen by the client, which the reply repeats.
    pub tag: &'a [u8],
    /// The minor version; 1 and 2 are served.
    pub minor: u32,
    /// Number of operations that follow.
    pub count: u32,
}

impl<'a> Head<'a> {
    /// Decodes the head; the operations follow.
    pub fn decode(r: &mut Reader<'a>) -> xdr::Result<Head<'a>> {
        Ok(Head {
            tag: r.opaque(MAX_TAG)?,
            minor: r.u32()?,
            count: r.u32()?,
        })
    }
}

/// `fattr4`: attributes to set or to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs<'a> {
    /// The numbers of the attributes.
    pub mask: Bitmap,
    /// Their values, in the order of their numbers.
    pub values: &'a [u8],
}

fn attrs<'a>(r: &mut Reader<'a>) -> xdr::Result<Attrs<'a>> {
    Ok(Attrs {
        mask: Bitmap::decode(r)?,
        values: r.string()?,
    })
}

/// `createtype4`: type of object that CREATE makes (§18.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make<'a> {
    /// A symbolic link to this.
    Link(&'a [u8]),
    /// A block device: major and minor number.
    Block(u32, u32),
    /// A character device: major and minor number.
    Char(u32, u32),
    /// A socket of the file system (`NF4SOCK`).
    Socket,
    /// A named pipe (`NF4FIFO`).
    Fifo,
    /// A directory, empty at first (`NF4DIR`).
    Directory,
    /// A type that CREATE does not make.
    Other(u32),
}

/// `openflag4`: the way in which OPEN creates the file, if at all (§18.16.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFlag<'a> {
    /// The file must exist.
    NoCreate,
    /// UNCHECKED4: an existing file is opened.
    Unchecked(Attrs<'a>),
    /// GUARDED4: fails if the name exists.
    Guarded(Attrs<'a>),
    /// EXCLUSIVE4: a verifier, without attributes.
    Exclusive([u8; 8]),
    /// EXCLUSIVE4_1: a verifier, and attributes.
    ExclusiveWith([u8; 8], Attrs<'a>),
}

/// `open_claim4`: the file that OPEN opens, and the claim to it (§18.16.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<'a> {
    /// A name in the current directory.
    Null(&'a [u8]),
    /// CLAIM_PREVIOUS: the current file, reclaimed after a restart of the server; with the type of
    /// a delegation.
    Previous(u32),
    /// CLAIM_DELEGATE_CUR: a name, under a delegation.
    DelegateCur(StateId, &'a [u8]),
    /// CLAIM_DELEGATE_PREV: a name, under a delegation from before a restart of the client.
    DelegatePrev(&'a [u8]),
    /// CLAIM_FH: the current file.
    Fh,
    /// CLAIM_DELEG_CUR_FH: the current file, under a delegation.
    DelegCurFh(StateId),
    /// CLAIM_DELEG_PREV_FH: the current file, under a delegation from before a restart of the
    /// client.
    DelegPrevFh,
}

/// Arguments of OPEN (§18.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// `share_access`, with the wishes for a delegation.
    pub access: u32,
    /// `share_deny`: access denied to others.
    pub deny: u32,
    /// The open owner. Its client id is the session's.
    pub owner: &'a [u8],
    /// The way in which the file is created, if at all.
    pub how: OpenFlag<'a>,
    /// The file, and the claim to it.
    pub claim: Claim<'a>,
}

/// `locker4` (§18.10.1): the stateid under which LOCK locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locker<'a> {
    /// The open's stateid, for the owner's first lock of the file.
    New {
        /// Stateid of the open.
        open: StateId,
        /// The lock owner's bytes.
        owner: &'a [u8],
    },
    /// The lock's own stateid.
    Known(StateId),
}

/// The range and the kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// `nfs_lock_type4`: READ_LT, WRITE_LT, READW_LT, WRITEW_LT.
    pub kind: u32,
    /// First byte of the range.
    pub offset: u64,
    /// Length in bytes; all ones means to the end of the file.
    pub length: u64,
}

/// `channel_attrs4` (§18.36.1): limits of one direction of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// Number of padding bytes before the data of a WRITE.
    pub header_pad: u32,
    /// Maximum size of a request in bytes.
    pub max_request: u32,
    /// Maximum size of a reply in bytes.
    pub max_response: u32,
    /// Maximum size of a kept reply in bytes.
    pub max_cached: u32,
    /// Maximum number of operations of a COMPOUND.
    pub max_operations: u32,
    /// Maximum number of concurrent requests: the number of slots.
    pub max_requests: u32,
}

fn channel(r: &mut Reader<'_>) -> xdr::Result<Channel> {
    let channel = Channel {
        header_pad: r.u32()?,
        max_request: r.u32()?,
        max_response: r.u32()?,
        max_cached: r.u32()?,
        max_operations: r.u32()?,
        max_requests: r.u32()?,
    };
    match r.u32()? {
        0 => {}
        1 => {
            r.u32()?;
        }
        _ => return Err(XdrError::TooLong),
    }
    Ok(channel)
}

/// Arguments of EXCHANGE_ID (§18.35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeId<'a> {
    /// Identifies this run of the client.
    pub verifier: [u8; 8],
    /// `co_ownerid`: the client's name for itself, the same over its restarts.
    pub owner: &'a [u8],
    /// `eia_flags`: bits of `EXCHGID4_FLAG_*`.
    pub flags: u32,
    /// Requested protection of the client's state.
    pub protect: Protect,
}

/// `callback_sec_parms4`: the credential used for callbacks, among those that the client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security<'a> {
    /// AUTH_NONE; also used for a client that names none.
    None,
    /// AUTH_SYS, with the body of the credential. Linux accepts nothing else.
    Sys(&'a [u8]),
    /// Only RPCSEC_GSS, which is not implemented for callbacks.
    Unusable,
}

/// Arguments of CREATE_SESSION (§18.36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateSession<'a> {
    /// The client id that the session is for.
    pub client: u64,
    /// The client's count of sessions.
    pub sequence: u32,
    /// `csa_flags`: bits of `CREATE_SESSION4_FLAG_*`.
    pub flags: u32,
    /// The requested fore channel.
    pub fore: Channel,
    /// The requested back channel.
    pub back: Channel,
    /// Program number of callbacks.
    pub program: u32,
    /// Credential of callbacks.
    pub security: Security<'a>,
}

/// Arguments of SEQUENCE (§18.46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Id of the session.
    pub session: SessionId,
    /// Sequence number of the request in its slot.
    pub sequence: u32,
    /// Number of the slot, from 0.
    pub slot: u32,
    /// The highest slot that the client uses.
    pub highest: u32,
    /// True if the reply is to be kept.
    pub cache: bool,
}

/// Arguments of WRITE (§18.32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Stateid of an open, of locks, or a special one.
    pub state: StateId,
    /// Position of the first byte.
    pub offset: u64,
    /// Required durability of the data before the reply.
    pub stable: Stability,
    /// The bytes to write.
    pub data: &'a [u8],
}

/// A range of bytes under a stateid: READ, READ_PLUS, ALLOCATE, DEALLOCATE, IO_ADVISE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Stateid of an open, of locks, or a special one.
    pub state: StateId,
    /// First byte of the range.
    pub offset: u64,
    /// Number of bytes in the range.
    pub count: u64,
}

/// Arguments of READDIR (§18.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDir {
    /// Cookie of the entry after which to continue; 0 at the start.
    pub cookie: u64,
    /// The verifier that came with the cookie.
    pub verifier: [u8; 8],
    /// Maximum size of names and cookies in bytes; a hint.
    pub dircount: u32,
    /// Maximum size of the result in bytes.
    pub maxcount: u32,
    /// Attributes of each entry.
    pub mask: Bitmap,
}

/// Arguments of COPY within the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The open of the source, the saved file.
    pub from: StateId,
    /// The open of the destination, the current file.
    pub to: StateId,
    /// First byte in the source.
    pub from_offset: u64,
    /// First byte in the destination.
    pub to_offset: u64,
    /// Number of bytes; 0 means to the end.
    pub count: u64,
    /// True if the bytes must be copied in order.
    pub consecutive: bool,
    /// True if the copy must be complete before the reply.
    pub synchronous: bool,
    /// True if source servers are named.
    pub between_servers: bool,
}

/// Arguments of CLONE (RFC 7862 §15.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneArgs {
    /// The open of the source, the saved file.
    pub from: StateId,
    /// The open of the destination, the current file.
    pub to: StateId,
    /// First byte in the source.
    pub from_offset: u64,
    /// First byte in the destination.
    pub to_offset: u64,
    /// Number of bytes; 0 means to the end of the source.
    pub count: u64,
}

/// A list of stateids, still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateIds<'a>(&'a [u8]);

impl<'a> StateIds<'a> {
    fn decode(r: &mut Reader<'a>) -> xdr::Result<StateIds<'a>> {
        let count = r.u32()? as usize;
        let bytes = count.checked_mul(16).ok_or(XdrError::TooLong)?;
        let list = r.rest().get(..bytes).ok_or(XdrError::Truncated)?;
        for _ in 0..count {
            StateId::decode(r)?;
        }
        Ok(StateIds(list))
    }

    /// Returns the stateids, in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = StateId> + use<'a> {
        let mut r = Reader::new(self.0);
        std::iter::from_fn(move || StateId::decode(&mut r).ok())
    }

    /// Returns the number of stateids in the list.
    pub fn len(&self) -> usize {
        self.0.len() / 16
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An operation with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the protocol's.
pub enum Args<'a> {
    Access(u32),
    Close(StateId),
    Commit(u64, u32),
    Create {
        make: Make<'a>,
        name: &'a [u8],
        attrs: Attrs<'a>,
    },
    DelegPurge,
    DelegReturn(StateId),
    GetAttr(Bitmap),
    GetFh,
    Link(&'a [u8]),
    Lock {
        range: Range,
        reclaim: bool,
        locker: Locker<'a>,
    },
    LockT {
        range: Range,
        owner: &'a [u8],
    },
    LockU {
        range: Range,
        state: StateId,
    },
    Lookup(&'a [u8]),
    LookupP,
    NVerify(Attrs<'a>),
    Open(Open<'a>),
    OpenDowngrade {
        state: StateId,
        access: u32,
        deny: u32,
    },
    PutFh(&'a [u8]),
    PutPubFh,
    PutRootFh,
    Read(Bytes),
    ReadDir(ReadDir),
    ReadLink,
    Remove(&'a [u8]),
    Rename(&'a [u8], &'a [u8]),
    RestoreFh,
    SaveFh,
    SecInfo(&'a [u8]),
    SetAttr(StateId, Attrs<'a>),
    Verify(Attrs<'a>),
    Write(Write<'a>),
    BackChannelCtl(u32, Security<'a>),
    BindConn {
        session: SessionId,
        direction: u32,
    },
    ExchangeId(ExchangeId<'a>),
    CreateSession(CreateSession<'a>),
    DestroySession(SessionId),
    FreeStateId(StateId),
    SecInfoNoName(u32),
    Sequence(Sequence),
    TestStateId(StateIds<'a>),
    /// `wda_want`, and the claim to the file: [`Claim::Fh`], [`Claim::Previous`] or
    /// [`Claim::DelegPrevFh`].
    WantDelegation(u32, Claim<'a>),
    DestroyClientId(u64),
    ReclaimComplete(bool),
    Allocate(Bytes),
    Copy(Copy),
    Deallocate(Bytes),
    Clone(CloneArgs),
    IoAdvise(Bytes, Bitmap),
    ReadPlus(Bytes),
    Seek {
        state: StateId,
        offset: u64,
        what: u32,
    },
    GetXattr(&'a [u8]),
    SetXattr {
        how: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    ListXattrs {
        cookie: u64,
        maxcount: u32,
    },
    RemoveXattr(&'a [u8]),
    OffloadCancel(StateId),
    OffloadStatus(StateId),
    /// An operation of the protocol that is not served.
    NotServed,
    /// Not an operation of the minor version.
    Illegal,
}

/// Operation numbers of operations on clients and sessions.
pub const BIND_CONN_TO_SESSION: u32 = 41;
/// See [`BIND_CONN_TO_SESSION`].
pub const EXCHANGE_ID: u32 = 42;
/// See [`BIND_CONN_TO_SESSION`].
pub const CREATE_SESSION: u32 = 43;
/// See [`BIND_CONN_TO_SESSION`].
pub const DESTROY_SESSION: u32 = 44;
/// See [`BIND_CONN_TO_SESSION`].
pub const DESTROY_CLIENTID: u32 = 57;
/// Operation number of SEQUENCE, which begins a COMPOUND.
pub const SEQUENCE: u32 = 53;
/// Operation number of PUTFH.
const PUTFH: u32 = 22;
/// Operation number of WRITE.
const WRITE: u32 = 38;
/// Operation number of SETXATTR (RFC 8276 §8.4.2).
const SETXATTR: u32 = 73;
/// Operation number in the reply to an unknown operation (§16.2.3).
pub const OP_ILLEGAL: u32 = 10044;

/// Returns the number of the last operation of a minor version.
const fn last(minor: u32) -> u32 {
    match minor {
        1 => 58,
        _ => 75,
    }
}

/// Decodes the arguments of `operation`, from `r` positioned behind its number.
///
/// # Errors
/// BADXDR.
pub fn decode<'a>(minor: u32, operation: u32, r: &mut Reader<'a>) -> xdr::Result<Args<'a>> {
    if operation < 3 || operation > last(minor) {
        return Ok(Args::Illegal);
    }
    Ok(match operation {
        3 => Args::Access(r.u32()?),
        4 => {
            r.u32()?;
            Args::Close(StateId::decode(r)?)
        }
        5 => Args::Commit(r.u64()?, r.u32()?),
        6 => Args::Create {
            make: make(r)?,
            name: r.string()?,
            attrs: attrs(r)?,
        },
        7 => {
            r.u64()?;
            Args::DelegPurge
        }
        8 => Args::DelegReturn(StateId::decode(r)?),
        9 => Args::GetAttr(Bitmap::decode(r)?),
        10 => Args::GetFh,
        11 => Args::Link(r.string()?),
        12 => lock(r)?,
        13 => {
            let range = range(r)?;
            r.u64()?;
            Args::LockT {
                range,
                owner: r.opaque(MAX_OPAQUE)?,
            }
        }
        14 => locku(r)?,
        15 => Args::Lookup(r.string()?),
        16 => Args::LookupP,
        17 => Args::NVerify(attrs(r)?),
        18 => Args::Open(open(r)?),
        21 => {
            let state = StateId::decode(r)?;
            r.u32()?;
            Args::OpenDowngrade {
                state,
                access: r.u32()?,
                deny: r.u32()?,
            }
        }
        PUTFH => Args::PutFh(r.opaque(MAX_HANDLE)?),
        23 => Args::PutPubFh,
        24 => Args::PutRootFh,
        25 => Args::Read(Bytes {
            state: StateId::decode(r)?,
            offset: r.u64()?,
            count: r.u32()?.into(),
        }),
        26 => Args::ReadDir(ReadDir {
            cookie: r.u64()?,
            verifier: r.fixed()?,
            dircount: r.u32()?,
            maxcount: r.u32()?,
            mask: Bitmap::decode(r)?,
        }),
        27 => Args::ReadLink,
        28 => Args::Remove(r.string()?),
        29 => Args::Rename(r.string()?, r.string()?),
        31 => Args::RestoreFh,
        32 => Args::SaveFh,
        33 => Args::SecInfo(r.string()?),
        34 => Args::SetAttr(StateId::decode(r)?, attrs(r)?),
        37 => Args::Verify(attrs(r)?),
        WRITE => {
            let (state, offset, stable) = write_head(r)?;
            Args::Write(Write {
                state,
                offset,
                stable,
                data: r.string()?,
            })
        }
        40 => Args::BackChannelCtl(r.u32()?, security(r)?),
        BIND_CONN_TO_SESSION => {
            let (session, direction) = (r.fixed()?, r.u32()?);
            r.bool()?;
            Args::BindConn { session, direction }
        }
        EXCHANGE_ID => Args::ExchangeId(exchange_id(r)?),
        CREATE_SESSION => Args::CreateSession(CreateSession {
            client: r.u64()?,
            sequence: r.u32()?,
            flags: r.u32()?,
            fore: channel(r)?,
            back: channel(r)?,
            program: r.u32()?,
            security: security(r)?,
        }),
        DESTROY_SESSION => Args::DestroySession(r.fixed()?),
        45 => Args::FreeStateId(StateId::decode(r)?),
        52 => Args::SecInfoNoName(r.u32()?),
        SEQUENCE => Args::Sequence(Sequence {
            session: r.fixed()?,
            sequence: r.u32()?,
            slot: r.u32()?,
            highest: r.u32()?,
            cache: r.bool()?,
        }),
        55 => Args::TestStateId(StateIds::decode(r)?),
        56 => {
            let want = r.u32()?;
            let claim = match r.u32()? {
                1 => Claim::Previous(r.u32()?),
                4 => Claim::Fh,
                6 => Claim::DelegPrevFh,
                _ => return Err(XdrError::BadValue),
            };
            Args::WantDelegation(want, claim)
        }
        DESTROY_CLIENTID => Args::DestroyClientId(r.u64()?),
        58 => Args::ReclaimComplete(r.bool()?),
        59 => Args::Allocate(bytes(r)?),
        60 => Args::Copy(copy(r)?),
        62 => Args::Deallocate(bytes(r)?),
        63 => Args::IoAdvise(bytes(r)?, Bitmap::decode(r)?),
        66 => Args::OffloadCancel(StateId::decode(r)?),
        67 => Args::OffloadStatus(StateId::decode(r)?),
        68 => Args::ReadPlus(Bytes {
            state: StateId::decode(r)?,
            offset: r.u64()?,
            count: r.u32()?.into(),
        }),
        69 => Args::Seek {
            state: StateId::decode(r)?,
            offset: r.u64()?,
            what: r.u32()?,
        },
        71 => Args::Clone(CloneArgs {
            from: StateId::decode(r)?,
            to: StateId::decode(r)?,
            from_offset: r.u64()?,
            to_offset: r.u64()?,
            count: r.u64()?,
        }),
        72 => Args::GetXattr(r.string()?),
        SETXATTR => Args::SetXattr {
            how: r.u32()?,
            name: r.string()?,
            value: r.string()?,
        },
        74 => Args::ListXattrs {
            cookie: r.u64()?,
            maxcount: r.u32()?,
        },
        75 => Args::RemoveXattr(r.string()?),
        _ => Args::NotServed,
    })
}

fn bytes(r: &mut Reader<'_>) -> xdr::Result<Bytes> {
    Ok(Bytes {
        state: StateId::decode(r)?,
        offset: r.u64()?,
        count: r.u64()?,
    })
}

fn write_head(r: &mut Reader<'_>) -> xdr::Result<(StateId, u64, Stability)> {
    let (state, offset) = (StateId::decode(r)?, r.u64()?);
    let stable = match r.u32()? {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        _ => return Err(XdrError::BadValue),
    };
    Ok((state, offset, stable))
}

fn make<'a>(r: &mut Reader<'a>) -> xdr::Result<Make<'a>> {
    Ok(match r.u32()? {
        2 => Make::Directory,
        3 => Make::Block(r.u32()?, r.u32()?),
        4 => Make::Char(r.u32()?, r.u32()?),
        5 => Make::Link(r.string()?),
        6 => Make::Socket,
        7 => Make::Fifo,
        other @ (1 | 8 | 9) => Make::Other(other),
        _ => return Err(XdrError::BadValue),
    })
}

fn range(r: &mut Reader<'_>) -> xdr::Result<Range> {
    let kind = kind(r)?;
    Ok(Range {
        kind,
        offset: r.u64()?,
        length: r.u64()?,
    })
}

fn kind(r: &mut Reader<'_>) -> xdr::Result<u32> {
    match r.u32()? {
        kind @ 1..=4 => Ok(kind),
        _ => Err(XdrError::BadValue),
    }
}

fn lock<'a>(r: &mut Reader<'a>) -> xdr::Result<Args<'a>> {
    let kind = kind(r)?;
    let reclaim = r.bool()?;
    let range = Range {
        kind,
        offset: r.u64()?,
        length: r.u64()?,
    };
    let locker = match r.bool()? {
        true => {
            r.u32()?;
            let open = StateId::decode(r)?;
            r.u32()?;
            r.u64()?;
            Locker::New {
                open,
                owner: r.opaque(MAX_OPAQUE)?,
            }
        }
        false => {
            let state = StateId::decode(r)?;
            r.u32()?;
            Locker::Known(state)
        }
    };
    Ok(Args::Lock {
        range,
        reclaim,
        locker,
    })
}

fn locku<'a>(r: &mut Reader<'a>) -> xdr::Result<Args<'a>> {
    let kind = kind(r)?;
    r.u32()?;
    let state = StateId::decode(r)?;
    let range = Range {
        kind,
        offset: r.u64()?,
        length: r.u64()?,
    };
    Ok(Args::LockU { range, state })
}

fn open<'a>(r: &mut Reader<'a>) -> xdr::Result<Open<'a>> {
    r.u32()?;
    let (access, deny) = (r.u32()?, r.u32()?);
    r.u64()?;
    let owner = r.opaque(MAX_OPAQUE)?;
    let how = match r.u32()? {
        0 => OpenFlag::NoCreate,
        1 => match r.u32()? {
            0 => OpenFlag::Unchecked(attrs(r)?),
            1 => OpenFlag::Guarded(attrs(r)?),
            2 => OpenFlag::Exclusive(r.fixed()?),
            3 => OpenFlag::ExclusiveWith(r.fixed()?, attrs(r)?),
            _ => return Err(XdrError::BadValue),
        },
        _ => return Err(XdrError::BadValue),
    };
    let claim = match r.u32()? {
        0 => Claim::Null(r.string()?),
        1 => Claim::Previous(r.u32()?),
        2 => Claim::DelegateCur(StateId::decode(r)?, r.string()?),
        3 => Claim::DelegatePrev(r.string()?),
        4 => Claim::Fh,
        5 => Claim::DelegCurFh(StateId::decode(r)?),
        6 => Claim::DelegPrevFh,
        _ => return Err(XdrError::BadValue),
    };
    Ok(Open {
        access,
        deny,
        owner,
        how,
        claim,
    })
}

/// Decodes a list of `callback_sec_parms4` of any length.
fn security<'a>(r: &mut Reader<'a>) -> xdr::Result<Security<'a>> {
    let count = r.u32()?;
    if count > MAX_LIST {
        return Err(XdrError::TooLong);
    }
    let mut found = match count {
        0 => Security::None,
        _ => Security::Unusable,
    };
    for _ in 0..count {
        match r.u32()? {
            0 if found == Security::Unusable => found = Security::None,
            0 => {}
            1 => {
                let body = r.rest();
                r.u32()?;
                r.opaque(255)?;
                r.u32()?;
                r.u32()?;
                let groups = r.u32()?;
                if groups > 16 {
                    return Err(XdrError::TooLong);
                }
                for _ in 0..groups {
                    r.u32()?;
                }
                let len = body.len() - r.rest().len();
                found = Security::Sys(body.get(..len).unwrap_or_default());
            }
            6 => {
                r.u32()?;
                r.string()?;
                r.string()?;
            }
            _ => return Err(XdrError::BadValue),
        }
    }
    Ok(found)
}

fn exchange_id<'a>(r: &mut Reader<'a>) -> xdr::Result<ExchangeId<'a>> {
    let verifier = r.fixed()?;
    let owner = r.opaque(MAX_OPAQUE)?;
    let flags = r.u32()?;
    let protect = match r.u32()? {
        0 => Protect::None,
        1 => Protect::Machine(MachineOps {
            must: Bitmap::decode(r)?,
            may: Bitmap::decode(r)?,
        }),
        2 => {
            Bitmap::decode(r)?;
            Bitmap::decode(r)?;
            for _ in 0..2 {
                let count = r.u32()?;
                if count > MAX_LIST {
                    return Err(XdrError::TooLong);
                }
                for _ in 0..count {
                    r.string()?;
                }
            }
            r.u32()?;
            r.u32()?;
            Protect::Ssv
        }
        _ => return Err(XdrError::BadValue),
    };
    match r.u32()? {
        0 => {}
        1 => {
            r.string()?;
            r.string()?;
            types::time(r)?;
        }
        _ => return Err(XdrError::TooLong),
    }
    Ok(ExchangeId {
        verifier,
        owner,
        flags,
        protect,
    })
}

fn copy(r: &mut Reader<'_>) -> xdr::Result<Copy> {
    let (from, to) = (StateId::decode(r)?, StateId::decode(r)?);
    let (from_offset, to_offset, count) = (r.u64()?, r.u64()?, r.u64()?);
    let (consecutive, synchronous) = (r.bool()?, r.bool()?);
    let between_servers = r.u32()? > 0;
    Ok(Copy {
        from,
        to,
        from_offset,
        to_offset,
        count,
        consecutive,
        synchronous,
        between_servers,
    })
}

/// Returns true for operations with data that make a request long.
pub fn is_long(operation: u32) -> bool {
    matches!(operation, WRITE | SETXATTR)
}

/// Returns the session of a long COMPOUND, and the handle of the file that it is to write, read
/// from its head. Returns `None` unless it is one that may be long: WRITE or SETXATTR on a file,
/// after SEQUENCE.
pub fn long(args: &[u8]) -> Option<(SessionId, &[u8])> {
    let mut r = Reader::new(args);
    let head = Head::decode(&mut r).ok()?;
    let (mut session, mut file) = (None, None);
    for _ in 0..head.count {
        let operation = r.u32().ok()?;
        if is_long(operation) {
            return Some((session?, file?));
        }
        match decode(head.minor, operation, &mut r).ok()? {
            Args::Sequence(sequence) => session = Some(sequence.session),
            Args::PutFh(handle) => file = Some(handle),
            Args::Illegal | Args::NotServed => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
