//! The basic data types of NFSv3 (RFC 1813 §2.5, §2.6) on the wire.

use crate::rpc::xdr::{self, Put, Reader, XdrError};
use weir_base::Time;
use weir_vfs::volume::{Attr, Change, FileKind, SetAttr, SetTime};

/// Longest file handle (`NFS3_FHSIZE`, RFC 1813 §2.4).
pub const MAX_HANDLE: usize = 64;
/// Encoded size of `fattr3`.
pub const FATTR_BYTES: usize = 84;
/// Encoded size of a `post_op_attr` that is present.
pub const POST_OP_BYTES: usize = 4 + FATTR_BYTES;

/// Decodes an `nfs_fh3`: a handle from the client, not verified yet.
pub fn handle<'a>(r: &mut Reader<'a>) -> xdr::Result<&'a [u8]> {
    r.opaque(MAX_HANDLE)
}

/// `diropargs3`: a directory and a name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOp<'a> {
    /// Handle of the directory.
    pub dir: &'a [u8],
    /// The name; any length, any bytes.
    pub name: &'a [u8],
}

impl<'a> DirOp<'a> {
    /// Decodes directory and name.
    pub fn decode(r: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(DirOp {
            dir: handle(r)?,
            name: r.string()?,
        })
    }
}

/// Decodes an `nfstime3`. The operation checks that the nanoseconds are below a second, since its
/// answer is INVAL otherwise.
pub fn time(r: &mut Reader<'_>) -> xdr::Result<Time> {
    Ok(Time {
        secs: i64::from(r.u32()?),
        nanos: r.u32()?,
    })
}

/// Decodes an `sattr3`: the attributes to set.
pub fn sattr(r: &mut Reader<'_>) -> xdr::Result<SetAttr> {
    fn optional<'a, T>(
        r: &mut Reader<'a>,
        value: impl Fn(&mut Reader<'a>) -> xdr::Result<T>,
    ) -> xdr::Result<Option<T>> {
        if r.bool()? {
            value(r).map(Some)
        } else {
            Ok(None)
        }
    }
    fn set_time(r: &mut Reader<'_>) -> xdr::Result<SetTime> {
        match r.u32()? {
            0 => Ok(SetTime::Keep),
            1 => Ok(SetTime::Server),
            2 => time(r).map(SetTime::Client),
            _ => Err(XdrError::BadValue),
        }
    }
    Ok(SetAttr {
        mode: optional(r, Reader::u32)?,
        uid: optional(r, Reader::u32)?,
        gid: optional(r, Reader::u32)?,
        size: optional(r, Reader::u64)?,
        atime: set_time(r)?,
        mtime: set_time(r)?,
        ..SetAttr::default()
    })
}

/// Encodes a time as `nfstime3`: 32 bits of unsigned seconds. A time out of that range becomes the
/// nearest one in it.
fn wire_time(t: Time) -> [u8; 8] {
    let (secs, nanos) = match u32::try_from(t.secs) {
        Ok(s) => (s, t.nanos),
        Err(_) if t.secs < 0 => (0, 0),
        Err(_) => (u32::MAX, 999_999_999),
    };
    let mut b = [0; 8];
    b[..4].copy_from_slice(&secs.to_be_bytes());
    b[4..].copy_from_slice(&nanos.to_be_bytes());
    b
}

/// Appends a `fattr3`: all attributes of an object.
pub fn put_fattr(out: &mut Vec<u8>, a: &Attr) {
    let mut b = [0u8; FATTR_BYTES];
    let words = [a.kind as u32, a.mode & 0o7777, a.nlink, a.uid, a.gid];
    for (to, w) in b.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&w.to_be_bytes());
    }
    b[20..28].copy_from_slice(&a.size.to_be_bytes());
    b[28..36].copy_from_slice(&a.used.to_be_bytes());
    b[36..40].copy_from_slice(&a.rdev.0.to_be_bytes());
    b[40..44].copy_from_slice(&a.rdev.1.to_be_bytes());
    b[44..52].copy_from_slice(&a.fsid.to_be_bytes());
    b[52..60].copy_from_slice(&a.number().to_be_bytes());
    b[60..68].copy_from_slice(&wire_time(a.atime));
    b[68..76].copy_from_slice(&wire_time(a.mtime));
    b[76..84].copy_from_slice(&wire_time(a.ctime));
    out.extend_from_slice(&b);
}

/// Appends a `post_op_attr`: attributes after the operation, if they are known.
pub fn put_post_op(out: &mut Vec<u8>, attr: Option<&Attr>) {
    out.put_bool(attr.is_some());
    if let Some(a) = attr {
        put_fattr(out, a);
    }
}

/// Appends a `pre_op_attr`: size, mtime and ctime (`wcc_attr`).
fn put_pre_op(out: &mut Vec<u8>, attr: &Attr) {
    out.put_bool(true);
    out.put_u64(attr.size);
    out.extend_from_slice(&wire_time(attr.mtime));
    out.extend_from_slice(&wire_time(attr.ctime));
}

/// Appends the `wcc_data` of an operation that was done.
pub fn put_wcc(out: &mut Vec<u8>, change: &Change) {
    put_pre_op(out, &change.before);
    put_post_op(out, Some(&change.after));
}

/// Appends the `wcc_data` of a failed operation: the current attributes, and none from before,
/// since they were not read atomically with it.
pub fn put_wcc_failed(out: &mut Vec<u8>, now: Option<&Attr>) {
    out.put_bool(false);
    put_post_op(out, now);
}

/// Appends a `post_op_fh3` that is present.
pub fn put_post_op_handle(out: &mut Vec<u8>, handle: &[u8]) {
    out.put_bool(true);
    out.put_opaque(handle);
}

/// Decodes the guard of a SETATTR, `sattrguard3`.
pub fn guard(r: &mut Reader<'_>) -> xdr::Result<Option<Time>> {
    if r.bool()? {
        time(r).map(Some)
    } else {
        Ok(None)
    }
}

/// Decodes an `ftype3`: the kind of an object.
pub fn kind(r: &mut Reader<'_>) -> xdr::Result<FileKind> {
    let n = u8::try_from(r.u32()?).map_err(|_| XdrError::BadValue)?;
    FileKind::from_number(n).ok_or(XdrError::BadValue)
}
