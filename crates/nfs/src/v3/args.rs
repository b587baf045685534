//! Arguments of each procedure (RFC 1813 §3.3). They borrow from the request, so decoding allocates
//! nothing.

use super::types::{DirOp, guard, handle, kind, sattr};
use crate::rpc::xdr::{self, Reader, XdrError};
use std::sync::LazyLock;
use weir_base::Time;
use weir_base::limits::MAX_IO;
use weir_vfs::volume::{FileKind, SetAttr, Stability};

/// Arguments of SETATTR (§3.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAttrArgs<'a> {
    /// Handle of the object.
    pub object: &'a [u8],
    /// The attributes to set.
    pub new: SetAttr,
    /// The ctime that the object must have, if it is to be checked.
    pub guard: Option<Time>,
}

/// READ (§3.3.6) and COMMIT (§3.3.21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeArgs<'a> {
    /// Handle of the file.
    pub file: &'a [u8],
    /// Position of the first byte.
    pub offset: u64,
    /// Number of bytes; COMMIT: 0 is to the end of the file.
    pub count: u32,
}

/// Arguments of WRITE (§3.3.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteArgs<'a> {
    /// Handle of the file.
    pub file: &'a [u8],
    /// Position of the first byte.
    pub offset: u64,
    /// Number of bytes, stated a second time.
    pub count: u32,
    /// Required durability of the data before the reply (`stable_how`).
    pub stable: Stability,
    /// The bytes to write.
    pub data: &'a [u8],
}

/// Treatment of an existing name by CREATE (`createhow3`, §3.3.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateHow3 {
    /// UNCHECKED: an existing file is used. A new one gets these attributes.
    Unchecked(SetAttr),
    /// GUARDED: fails if the name exists.
    Guarded(SetAttr),
    /// EXCLUSIVE with its verifier.
    Exclusive([u8; 8]),
}

/// Arguments of CREATE (§3.3.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateArgs<'a> {
    /// Directory and name of the new file.
    pub at: DirOp<'a>,
    /// Treatment of an existing name.
    pub how: CreateHow3,
}

/// Arguments of SYMLINK (§3.3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkArgs<'a> {
    /// Directory and name of the link.
    pub at: DirOp<'a>,
    /// Attributes of the link.
    pub attrs: SetAttr,
    /// Content of the link.
    pub target: &'a [u8],
}

/// Arguments of MKNOD (§3.3.11). Kinds that have procedures of their own have only a kind here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MknodArgs<'a> {
    /// Directory and name of the new object.
    pub at: DirOp<'a>,
    /// The kind of object to make.
    pub kind: FileKind,
    /// Attributes of the new object.
    pub attrs: SetAttr,
    /// Device numbers of a device.
    pub rdev: (u32, u32),
}

/// READDIR (§3.3.16) and READDIRPLUS (§3.3.17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDirArgs<'a> {
    /// Handle of the directory.
    pub dir: &'a [u8],
    /// Position from which to continue; 0 at the start.
    pub cookie: u64,
    /// The verifier that came with the cookie.
    pub verifier: [u8; 8],
    /// READDIRPLUS: maximum size of names, ids and cookies in bytes.
    pub dircount: Option<u32>,
    /// Maximum size of the whole result in bytes.
    pub maxcount: u32,
}

/// Decoded arguments of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// NULL (§3.3.0): no arguments, no results.
    Null,
    /// GETATTR (§3.3.1): the object.
    GetAttr(&'a [u8]),
    /// SETATTR (§3.3.2), see [`SetAttrArgs`].
    SetAttr(SetAttrArgs<'a>),
    /// LOOKUP (§3.3.3): directory and name.
    Lookup(DirOp<'a>),
    /// ACCESS (§3.3.4): object and the bits asked for.
    Access(&'a [u8], u32),
    /// READLINK (§3.3.5): the link.
    ReadLink(&'a [u8]),
    /// READ (§3.3.6): the file and the range to read.
    Read(RangeArgs<'a>),
    /// WRITE (§3.3.7), see [`WriteArgs`].
    Write(WriteArgs<'a>),
    /// CREATE (§3.3.8), see [`CreateArgs`].
    Create(CreateArgs<'a>),
    /// MKDIR (§3.3.9): directory and name, and the new directory's attributes.
    Mkdir(DirOp<'a>, SetAttr),
    /// SYMLINK (§3.3.10), see [`SymlinkArgs`].
    Symlink(SymlinkArgs<'a>),
    /// MKNOD (§3.3.11), see [`MknodArgs`].
    Mknod(MknodArgs<'a>),
    /// REMOVE (§3.3.12): directory and name.
    Remove(DirOp<'a>),
    /// RMDIR (§3.3.13): directory above, and name.
    Rmdir(DirOp<'a>),
    /// RENAME (§3.3.14): from, to.
    Rename(DirOp<'a>, DirOp<'a>),
    /// LINK (§3.3.15): file, new name.
    Link(&'a [u8], DirOp<'a>),
    /// READDIR (§3.3.16), see [`ReadDirArgs`].
    ReadDir(ReadDirArgs<'a>),
    /// READDIRPLUS (§3.3.17), see [`ReadDirArgs`].
    ReadDirPlus(ReadDirArgs<'a>),
    /// FSSTAT (§3.3.18): an object of the file system.
    FsStat(&'a [u8]),
    /// FSINFO (§3.3.19): the root of the file system.
    FsInfo(&'a [u8]),
    /// PATHCONF (§3.3.20): the object.
    PathConf(&'a [u8]),
    /// COMMIT (§3.3.21): the file and the range to make durable.
    Commit(RangeArgs<'a>),
}

/// The highest procedure number.
pub const LAST_PROCEDURE: u32 = 21;

/// Decodes the arguments of `procedure`; `None` if there is no such procedure.
/// Bytes after the arguments are ignored, as other servers do.
pub fn decode(procedure: u32, args: &[u8]) -> Option<xdr::Result<Args<'_>>> {
    let mut r = Reader::new(args);
    (procedure <= LAST_PROCEDURE).then(|| known(procedure, &mut r))
}

/// Returns the length of a WRITE's arguments up to its data; `None` if they are malformed.
pub fn before_data(args: &[u8]) -> Option<usize> {
    let mut r = Reader::new(args);
    write_head(&mut r).ok()?;
    Some(args.len() - r.rest().len())
}

/// Decodes a WRITE whose data is already in the engine. The returned data has only the right
/// length.
pub fn decode_without_data(args: &[u8]) -> xdr::Result<Args<'_>> {
    let taken = write_head(&mut Reader::new(args))?;
    let data = PLACEHOLDER.get(..taken.count as usize);
    Ok(Args::Write(WriteArgs {
        data: data.ok_or(XdrError::BadValue)?,
        ..taken
    }))
}

/// At least as long as the data of any record that is read. Its content is never read, so it takes
/// no memory.
static PLACEHOLDER: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; 2 * MAX_IO].into());

fn known<'a>(procedure: u32, r: &mut Reader<'a>) -> xdr::Result<Args<'a>> {
    Ok(match procedure {
        0 => Args::Null,
        1 => Args::GetAttr(handle(r)?),
        2 => Args::SetAttr(SetAttrArgs {
            object: handle(r)?,
            new: sattr(r)?,
            guard: guard(r)?,
        }),
        3 => Args::Lookup(DirOp::decode(r)?),
        4 => Args::Access(handle(r)?, r.u32()?),
        5 => Args::ReadLink(handle(r)?),
        6 => Args::Read(range(r)?),
        7 => Args::Write(write(r)?),
        8 => Args::Create(CreateArgs {
            at: DirOp::decode(r)?,
            how: how(r)?,
        }),
        9 => Args::Mkdir(DirOp::decode(r)?, sattr(r)?),
        10 => Args::Symlink(SymlinkArgs {
            at: DirOp::decode(r)?,
            attrs: sattr(r)?,
            target: r.string()?,
        }),
        11 => Args::Mknod(mknod(r)?),
        12 => Args::Remove(DirOp::decode(r)?),
        13 => Args::Rmdir(DirOp::decode(r)?),
        14 => Args::Rename(DirOp::decode(r)?, DirOp::decode(r)?),
        15 => Args::Link(handle(r)?, DirOp::decode(r)?),
        16 => Args::ReadDir(readdir(r, false)?),
        17 => Args::ReadDirPlus(readdir(r, true)?),
        18 => Args::FsStat(handle(r)?),
        19 => Args::FsInfo(handle(r)?),
        20 => Args::PathConf(handle(r)?),
        21 => Args::Commit(range(r)?),
        _ => return Err(XdrError::BadValue),
    })
}

fn range<'a>(r: &mut Reader<'a>) -> xdr::Result<RangeArgs<'a>> {
    Ok(RangeArgs {
        file: handle(r)?,
        offset: r.u64()?,
        count: r.u32()?,
    })
}

fn write<'a>(r: &mut Reader<'a>) -> xdr::Result<WriteArgs<'a>> {
    let head = write_head(r)?;
    Ok(WriteArgs {
        data: r.opaque(usize::MAX)?,
        ..head
    })
}

/// Decodes everything but the data.
fn write_head<'a>(r: &mut Reader<'a>) -> xdr::Result<WriteArgs<'a>> {
    let (file, offset, count) = (handle(r)?, r.u64()?, r.u32()?);
    let stable = match r.u32()? {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        _ => return Err(XdrError::BadValue),
    };
    Ok(WriteArgs {
        file,
        offset,
        count,
        stable,
        data: &[],
    })
}

fn how(r: &mut Reader<'_>) -> xdr::Result<CreateHow3> {
    match r.u32()? {
        0 => sattr(r).map(CreateHow3::Unchecked),
        1 => sattr(r).map(CreateHow3::Guarded),
        2 => r.fixed().map(CreateHow3::Exclusive),
        _ => Err(XdrError::BadValue),
    }
}

fn mknod<'a>(r: &mut Reader<'a>) -> xdr::Result<MknodArgs<'a>> {
    let (at, kind) = (DirOp::decode(r)?, kind(r)?);
    let (attrs, rdev) = match kind {
        FileKind::Char | FileKind::Block => (sattr(r)?, (r.u32()?, r.u32()?)),
        FileKind::Socket | FileKind::Fifo => (sattr(r)?, (0, 0)),
        _ => (SetAttr::default(), (0, 0)),
    };
    Ok(MknodArgs {
        at,
        kind,
        attrs,
        rdev,
    })
}

fn readdir<'a>(r: &mut Reader<'a>, plus: bool) -> xdr::Result<ReadDirArgs<'a>> {
    Ok(ReadDirArgs {
        dir: handle(r)?,
        cookie: r.u64()?,
        verifier: r.fixed()?,
        dircount: if plus { Some(r.u32()?) } else { None },
        maxcount: r.u32()?,
    })
}

#[cfg(test)]
mod tests;
