//! Procedures on one object: GETATTR, SETATTR, ACCESS, READLINK, READ, WRITE,
//! COMMIT.

use super::args::{RangeArgs, SetAttrArgs, WriteArgs};
use super::fsinfo::{MAX_READ, MAX_WRITE};
use super::op::{Op, Release, split};
use super::status::Status;
use super::types::{put_fattr, put_post_op, put_wcc};
use crate::rpc::reply::Payload;
use crate::rpc::xdr::Put;
use weir_vfs::volume::{Attr, FileKind, Stability};
use weir_vfs::{
    AccessRights, DataRead, DataWrite, Error, Exempt, MetadataRead, MetadataWrite, Stop,
};

/// ACCESS3 bits (RFC 1813 §3.3.4).
pub mod bits {
    /// Read data or a directory.
    pub const READ: u32 = 0x01;
    /// Look a name up.
    pub const LOOKUP: u32 = 0x02;
    /// Rewrite data or change entries.
    pub const MODIFY: u32 = 0x04;
    /// Append data or add entries.
    pub const EXTEND: u32 = 0x08;
    /// Delete an entry of a directory.
    pub const DELETE: u32 = 0x10;
    /// Execute a file; the bit to search a directory is LOOKUP.
    pub const EXECUTE: u32 = 0x20;
}

/// GETATTR (RFC 1813 §3.3.1).
pub(super) fn getattr(op: &mut Op<'_>, object: &[u8]) -> Release {
    let (object, _charged) = op.enter(object, MetadataRead)?;
    let attr = object.getattr(op.cx).map_err(|why| op.refuse(why))?;
    op.status(Status::Ok);
    put_fattr(op.out, &attr);
    Ok(None)
}

/// SETATTR (RFC 1813 §3.3.2).
pub(super) fn setattr(op: &mut Op<'_>, a: &SetAttrArgs<'_>) -> Release {
    let (object, charged) = op.enter(a.object, MetadataWrite)?;
    let done = object.setattr(op.cx, charged, &a.new, a.guard);
    let (change, lsn) = split(done.map_err(|why| op.fail_wcc(why, &[&object]))?);
    op.status(Status::Ok);
    put_wcc(op.out, &change);
    Ok(lsn)
}

/// Returns the ACCESS bits that apply to the object and are granted.
fn granted(attr: &Attr, may: AccessRights) -> u32 {
    let bit = |on: bool, bits: u32| if on { bits } else { 0 };
    let read = bit(may.read, bits::READ);
    match attr.kind {
        FileKind::Directory => {
            let write = bit(may.write, bits::MODIFY | bits::EXTEND | bits::DELETE);
            read | write | bit(may.execute, bits::LOOKUP)
        }
        FileKind::Regular => {
            read | bit(may.write, bits::MODIFY | bits::EXTEND) | bit(may.execute, bits::EXECUTE)
        }
        _ => read | bit(may.write, bits::MODIFY | bits::EXTEND),
    }
}

/// ACCESS (RFC 1813 §3.3.4): replies the granted bits among those asked for.
pub(super) fn access(op: &mut Op<'_>, object: &[u8], asked: u32) -> Release {
    let (object, _charged) = op.enter(object, MetadataRead)?;
    let attr = object.getattr(op.cx);
    let attr = attr.map_err(|why| op.fail_attr(why, &object))?;
    op.status(Status::Ok);
    put_post_op(op.out, Some(&attr));
    let granted = granted(&attr, object.permitted(&attr));
    op.out.put_u32(asked & granted);
    Ok(None)
}

/// READLINK (RFC 1813 §3.3.5). Replies INVAL if the object is no link.
pub(super) fn readlink(op: &mut Op<'_>, link: &[u8]) -> Release {
    let (link, charged) = op.enter(link, MetadataRead)?;
    let read = link.readlink(op.cx, charged);
    let (target, attr) = read.map_err(|why| op.fail_attr(why, &link))?;
    op.status(Status::Ok);
    put_post_op(op.out, Some(&attr));
    op.out.put_opaque(&target);
    Ok(None)
}

/// READ (RFC 1813 §3.3.6). At or beyond the end: no bytes, and eof.
pub(super) fn read(op: &mut Op<'_>, a: &RangeArgs<'_>) -> Release {
    let len = (a.count as usize).min(MAX_READ).min(op.cx.reads());
    let (file, charged) = op.enter(a.file, DataRead(len))?;
    let read = file.read(op.cx, charged, a.offset);
    let out = read.map_err(|why| op.fail_attr(why, &file))?;
    op.status(Status::Ok);
    put_post_op(op.out, Some(&out.attr));
    op.out.put_u32(out.len as u32);
    op.out.put_bool(out.eof);
    op.out.put_u32(out.len as u32);
    *op.payload = Some(Box::new(Payload::new(out)));
    Ok(None)
}

/// WRITE (RFC 1813 §3.3.7). Data beyond wtmax is not written, nor stable data beyond a record of
/// the log: the client sends the rest. A count that differs from the data's length is refused.
pub(super) fn write(op: &mut Op<'_>, a: &WriteArgs<'_>) -> Release {
    let malformed = a.count as usize != a.data.len();
    let data = a.data.get(..MAX_WRITE).unwrap_or(a.data);
    let bytes = if malformed { 0 } else { data.len() };
    let (file, charged) = op.enter(a.file, DataWrite(bytes))?;
    if malformed {
        return Err(op.fail_wcc(Stop::Failed(Error::Invalid), &[&file]));
    }
    let done = file.write(op.cx, charged, a.offset, data, a.stable);
    let (written, lsn) = split(done.map_err(|why| op.fail_wcc(why, &[&file]))?);
    op.status(Status::Ok);
    put_wcc(op.out, &written.change);
    op.out.put_u32(written.len as u32);
    op.out.put_u32(stable_how(written.granted));
    op.out.put_fixed(&file.write_verifier());
    Ok(lsn)
}

/// Encodes a `stable_how` (RFC 1813 §3.3.7).
fn stable_how(s: Stability) -> u32 {
    match s {
        Stability::Unstable => 0,
        Stability::DataSync => 1,
        Stability::FileSync => 2,
    }
}

/// COMMIT (RFC 1813 §3.3.21). Count 0 means to the end of the file.
pub(super) fn commit(op: &mut Op<'_>, a: &RangeArgs<'_>) -> Release {
    let (file, charged) = op.enter(a.file, Exempt)?;
    let len = match a.count {
        0 => u64::MAX - a.offset,
        n => u64::from(n).min(u64::MAX - a.offset),
    };
    let done = file.commit(op.cx, charged, a.offset, len);
    let (change, lsn) = split(done.map_err(|why| op.fail_wcc(why, &[&file]))?);
    op.status(Status::Ok);
    put_wcc(op.out, &change);
    op.out.put_fixed(&file.write_verifier());
    Ok(lsn)
}
