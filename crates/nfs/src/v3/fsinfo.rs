//! FSSTAT, FSINFO, PATHCONF (RFC 1813 §3.3.18 to §3.3.20).

use super::dir::MAX_LISTING;
use super::op::{Op, Release};
use super::status::Status;
use super::types::put_post_op;
use crate::rpc::xdr::Put;
use weir_base::BLOCK_SIZE;
use weir_base::limits::{MAX_FILE_SIZE, MAX_IO, MAX_LINKS, MAX_NAME};
use weir_vfs::{Exempt, MetadataRead};

/// Maximum number of bytes of one READ (rtmax).
pub const MAX_READ: usize = MAX_IO;
/// Maximum number of bytes of one WRITE (wtmax).
pub const MAX_WRITE: usize = MAX_IO;

/// FSF_LINK, FSF_SYMLINK, FSF_HOMOGENEOUS, FSF_CANSETTIME (RFC 1813 §3.3.19).
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

/// FSSTAT (RFC 1813 §3.3.18): space and inodes.
pub(super) fn fsstat(op: &mut Op<'_>, root: &[u8]) -> Release {
    let (root, _charged) = op.enter(root, MetadataRead)?;
    let attr = root.getattr(op.cx);
    let attr = attr.map_err(|why| op.fail_attr(why, &root))?;
    let s = root.statfs(&attr);
    op.status(Status::Ok);
    put_post_op(op.out, Some(&attr));
    for v in [
        s.total,
        s.free,
        s.available,
        s.files,
        s.files_free,
        s.files_free,
    ] {
        op.out.put_u64(v);
    }
    // invarsec: these values may change at any moment.
    op.out.put_u32(0);
    Ok(None)
}

/// FSINFO (RFC 1813 §3.3.19): sizes and properties of the file system.
pub(super) fn fsinfo(op: &mut Op<'_>, root: &[u8]) -> Release {
    let (root, _charged) = op.enter(root, Exempt)?;
    let attr = root.getattr(op.cx);
    let attr = attr.map_err(|why| op.fail_attr(why, &root))?;
    op.status(Status::Ok);
    put_post_op(op.out, Some(&attr));
    let (rt, wt, block) = (MAX_READ as u32, MAX_WRITE as u32, BLOCK_SIZE as u32);
    // rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref.
    for v in [rt, rt, block, wt, wt, block, MAX_LISTING as u32] {
        op.out.put_u32(v);
    }
    op.out.put_u64(MAX_FILE_SIZE);
    // time_delta: times have nanoseconds.
    op.out.put_u32(0);
    op.out.put_u32(1);
    op.out.put_u32(PROPERTIES);
    Ok(None)
}

/// PATHCONF (RFC 1813 §3.3.20): limits on names and links.
pub(super) fn pathconf(op: &mut Op<'_>, object: &[u8]) -> Release {
    let (object, _charged) = op.enter(object, Exempt)?;
    let attr = object.getattr(op.cx);
    let attr = attr.map_err(|why| op.fail_attr(why, &object))?;
    op.status(Status::Ok);
    put_post_op(op.out, Some(&attr));
    op.out.put_u32(MAX_LINKS);
    op.out.put_u32(MAX_NAME as u32);
    // no_trunc, chown_restricted, case_insensitive, case_preserving.
    for v in [true, true, false, true] {
        op.out.put_bool(v);
    }
    Ok(None)
}
