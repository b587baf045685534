//! Encodes operations as NFSv3 calls and decodes the replies (RFC 1813).

use weir_base::Time;

use super::xdr::{In, Malformed, Out};
use crate::model::{Errno, How, Kind, Op, Set, SetTo, Slot, Stable};
use crate::subject::{Answer, Around, Before, Entry, Handle, Seen};

/// Procedure numbers (RFC 1813 §3.3).
#[allow(missing_docs)]
pub mod proc3 {
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

/// The identity of the caller (AUTH_SYS).
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Numeric id of the user.
    pub uid: u32,
    /// Numeric id of the primary group.
    pub gid: u32,
    /// Numeric ids of the supplementary groups.
    pub gids: Vec<u32>,
}

/// The head of a call with AUTH_SYS; arguments follow.
#[must_use]
pub fn call(xid: u32, program: u32, version: u32, procedure: u32, caller: &Caller) -> Out {
    let mut cred = Out::default();
    cred.u32(xid).opaque(b"sim").u32(caller.uid).u32(caller.gid);
    cred.u32(caller.gids.len() as u32);
    for gid in &caller.gids {
        cred.u32(*gid);
    }
    let mut out = Out::default();
    out.u32(xid)
        .u32(0)
        .u32(2)
        .u32(program)
        .u32(version)
        .u32(procedure);
    out.u32(1).opaque(&cred.0).u32(0).u32(0);
    out
}

/// The results of an accepted reply.
///
/// # Errors
/// If it is not a successful reply to `xid`.
pub fn results(reply: &[u8], xid: u32) -> Result<In<'_>, Malformed> {
    let mut reader = In(reply);
    if reader.u32()? != xid {
        return Err(Malformed("reply to another transaction"));
    }
    if reader.u32()? != 1 || reader.u32()? != 0 {
        return Err(Malformed("call denied"));
    }
    let _flavour = reader.u32()?;
    let _verifier = reader.opaque()?;
    match reader.u32()? {
        0 => Ok(reader),
        _ => Err(Malformed("call accepted but not served")),
    }
}

fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::File => 1,
        Kind::Dir => 2,
        Kind::Block => 3,
        Kind::Char => 4,
        Kind::Symlink => 5,
        Kind::Socket => 6,
        Kind::Fifo => 7,
    }
}

fn kind_of(number: u32) -> Result<Kind, Malformed> {
    Ok(match number {
        1 => Kind::File,
        2 => Kind::Dir,
        3 => Kind::Block,
        4 => Kind::Char,
        5 => Kind::Symlink,
        6 => Kind::Socket,
        7 => Kind::Fifo,
        _ => return Err(Malformed("unknown file type")),
    })
}

fn put_time(out: &mut Out, time: Time) {
    out.u32(time.secs as u32).u32(time.nanos);
}

fn get_time(reader: &mut In<'_>) -> Result<Time, Malformed> {
    let (secs, nanos) = (reader.u32()?, reader.u32()?);
    if nanos >= 1_000_000_000 {
        return Err(Malformed("nanoseconds of a second or more"));
    }
    Ok(Time {
        secs: i64::from(secs),
        nanos,
    })
}

fn put_set_time(out: &mut Out, set: SetTo) {
    match set {
        SetTo::Keep => {
            out.u32(0);
        }
        SetTo::Server => {
            out.u32(1);
        }
        SetTo::Client(time) => {
            out.u32(2);
            put_time(out, time);
        }
    }
}

/// Encodes a `sattr3` (RFC 1813 §2.6).
pub fn put_set(out: &mut Out, set: &Set) {
    let put = |out: &mut Out, value: u32| {
        out.u32(value);
    };
    out.optional(set.mode, put)
        .optional(set.uid, put)
        .optional(set.gid, put)
        .optional(set.size, |out, size| {
            out.u64(size);
        });
    put_set_time(out, set.atime);
    put_set_time(out, set.mtime);
}

/// Decodes a `fattr3` (RFC 1813 §2.6).
#[allow(clippy::missing_errors_doc)]
pub fn get_attr(reader: &mut In<'_>) -> Result<Seen, Malformed> {
    let kind = kind_of(reader.u32()?)?;
    let (mode, nlink, uid, gid) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
    let (size, used) = (reader.u64()?, reader.u64()?);
    let rdev = (reader.u32()?, reader.u32()?);
    let _fsid = reader.u64()?;
    Ok(Seen {
        kind,
        mode,
        nlink,
        uid,
        gid,
        size,
        used,
        rdev,
        fileid: reader.u64()?,
        atime: get_time(reader)?,
        mtime: get_time(reader)?,
        ctime: get_time(reader)?,
        change: None,
    })
}

fn get_post_op(reader: &mut In<'_>) -> Result<Option<Seen>, Malformed> {
    reader.bool()?.then(|| get_attr(reader)).transpose()
}

fn get_wcc(reader: &mut In<'_>) -> Result<Around, Malformed> {
    let before = if reader.bool()? {
        Some(Before {
            size: reader.u64()?,
            mtime: get_time(reader)?,
            ctime: get_time(reader)?,
            change: None,
        })
    } else {
        None
    };
    Ok(Around {
        before,
        after: get_post_op(reader)?,
    })
}

/// Encodes the arguments of `op`; directories are read by [`put_readdir`].
///
/// Returns the procedure number.
pub fn put_args(
    out: &mut Out,
    op: &Op,
    handle: &dyn Fn(Slot) -> Handle,
    guard: Option<Time>,
) -> u32 {
    match op {
        Op::Punch { .. }
        | Op::Clone { .. }
        | Op::SetXattr { .. }
        | Op::Xattrs { .. }
        | Op::Open { .. } => {
            unreachable!("NFSv3 has no such operation: {op:?}")
        }
        Op::Getattr { object } => {
            out.opaque(&handle(*object));
            proc3::GETATTR
        }
        Op::Setattr { object, set, .. } => {
            out.opaque(&handle(*object));
            put_set(out, set);
            out.optional(guard, put_time);
            proc3::SETATTR
        }
        Op::Lookup { dir, name } => {
            out.opaque(&handle(*dir)).opaque(name);
            proc3::LOOKUP
        }
        Op::Readlink { object } => {
            out.opaque(&handle(*object));
            proc3::READLINK
        }
        Op::Read {
            object,
            offset,
            len,
        } => {
            out.opaque(&handle(*object)).u64(*offset).u32(*len);
            proc3::READ
        }
        Op::Write {
            object,
            offset,
            data,
            stable,
        } => {
            let stable = match stable {
                Stable::Unstable => 0,
                Stable::Data => 1,
                Stable::File => 2,
            };
            out.opaque(&handle(*object))
                .u64(*offset)
                .u32(data.len)
                .u32(stable);
            out.opaque(&data.bytes());
            proc3::WRITE
        }
        Op::Commit {
            object,
            offset,
            len,
        } => {
            out.opaque(&handle(*object)).u64(*offset).u32(*len);
            proc3::COMMIT
        }
        Op::Create {
            dir,
            name,
            how,
            set,
        } => {
            out.opaque(&handle(*dir)).opaque(name);
            match how {
                How::Unchecked => {
                    out.u32(0);
                    put_set(out, set);
                }
                How::Guarded => {
                    out.u32(1);
                    put_set(out, set);
                }
                How::Exclusive(verifier) => {
                    out.u32(2).fixed(verifier);
                }
            }
            proc3::CREATE
        }
        Op::Mkdir { dir, name, set } => {
            out.opaque(&handle(*dir)).opaque(name);
            put_set(out, set);
            proc3::MKDIR
        }
        Op::Symlink {
            dir,
            name,
            target,
            set,
        } => {
            out.opaque(&handle(*dir)).opaque(name);
            put_set(out, set);
            out.opaque(target);
            proc3::SYMLINK
        }
        Op::Mknod {
            dir,
            name,
            kind,
            rdev,
            set,
        } => {
            out.opaque(&handle(*dir))
                .opaque(name)
                .u32(kind_number(*kind));
            match kind {
                Kind::Block | Kind::Char => {
                    put_set(out, set);
                    out.u32(rdev.0).u32(rdev.1);
                }
                Kind::Fifo | Kind::Socket => put_set(out, set),
                _ => {}
            }
            proc3::MKNOD
        }
        Op::Remove { dir, name } => {
            out.opaque(&handle(*dir)).opaque(name);
            proc3::REMOVE
        }
        Op::Rmdir { dir, name } => {
            out.opaque(&handle(*dir)).opaque(name);
            proc3::RMDIR
        }
        Op::Rename {
            from_dir,
            from,
            to_dir,
            to,
        } => {
            out.opaque(&handle(*from_dir)).opaque(from);
            out.opaque(&handle(*to_dir)).opaque(to);
            proc3::RENAME
        }
        Op::Link { object, dir, name } => {
            out.opaque(&handle(*object))
                .opaque(&handle(*dir))
                .opaque(name);
            proc3::LINK
        }
        Op::Readdir { dir, entries } => {
            put_readdir(out, &handle(*dir), 0, [0; 8], *entries, false);
            proc3::READDIR
        }
    }
}

/// Arguments of READDIR or READDIRPLUS.
pub fn put_readdir(
    out: &mut Out,
    dir: &[u8],
    cookie: u64,
    verifier: [u8; 8],
    entries: u32,
    plus: bool,
) {
    // Sizes that make room for at least one entry with the longest name.
    let count = 600 + entries.saturating_mul(60).min(30_000);
    out.opaque(dir).u64(cookie).fixed(&verifier);
    if plus {
        out.u32(count).u32(count + 600);
    } else {
        out.u32(count);
    }
}

/// One page of a directory.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Page {
    pub verifier: [u8; 8],
    pub entries: Vec<Entry>,
    pub eof: bool,
    pub bytes: usize,
}

/// Status codes (RFC 1813 §2.6).
#[must_use]
pub fn errno(status: u32) -> Errno {
    match status {
        1 => Errno::Perm,
        2 => Errno::NotFound,
        5 => Errno::Io,
        13 => Errno::Access,
        17 => Errno::Exists,
        18 => Errno::CrossDevice,
        20 => Errno::NotDir,
        21 => Errno::IsDir,
        22 => Errno::Invalid,
        27 => Errno::FileTooBig,
        28 => Errno::NoSpace,
        30 => Errno::ReadOnly,
        31 => Errno::TooManyLinks,
        63 => Errno::NameTooLong,
        66 => Errno::NotEmpty,
        69 => Errno::Quota,
        70 | 10001 => Errno::Stale,
        10002 => Errno::NotSync,
        10003 => Errno::BadCookie,
        10004 => Errno::NotSupported,
        10005 => Errno::TooSmall,
        10007 => Errno::BadType,
        10008 => Errno::Delay,
        _ => Errno::ServerFault,
    }
}

/// Decodes the results of `op` (other than a directory's).
///
/// # Errors
/// Outer: the reply is malformed. Inner: the status, after the failure's own results were decoded.
pub fn get_results(op: &Op, mut reader: In<'_>) -> Result<Result<Answer, Errno>, Malformed> {
    let status = reader.u32()?;
    let mut answer = Answer::default();
    let reader = &mut reader;
    if status != 0 {
        skip_failure(op, reader)?;
        reader.end()?;
        return Ok(Err(errno(status)));
    }
    match op {
        Op::Punch { .. }
        | Op::Clone { .. }
        | Op::SetXattr { .. }
        | Op::Xattrs { .. }
        | Op::Open { .. } => {
            return Err(Malformed("NFSv3 has no such operation"));
        }
        Op::Getattr { .. } => answer.attr = Some(get_attr(reader)?),
        Op::Setattr { .. } | Op::Remove { .. } | Op::Rmdir { .. } => {
            answer.changed.push(get_wcc(reader)?);
        }
        Op::Lookup { .. } => {
            answer.object = Some(reader.opaque()?.to_vec());
            answer.attr = get_post_op(reader)?;
            let _dir = get_post_op(reader)?;
        }
        Op::Readlink { .. } => {
            let _attr = get_post_op(reader)?;
            answer.data = Some(reader.opaque()?.to_vec());
        }
        Op::Read { .. } => {
            let _attr = get_post_op(reader)?;
            let count = reader.u32()?;
            answer.eof = Some(reader.bool()?);
            let data = reader.opaque()?;
            if data.len() != count as usize {
                return Err(Malformed("READ count and data length differ"));
            }
            answer.data = Some(data.to_vec());
        }
        Op::Write { .. } => {
            answer.changed.push(get_wcc(reader)?);
            let count = reader.u32()?;
            let granted = match reader.u32()? {
                0 => Stable::Unstable,
                1 => Stable::Data,
                2 => Stable::File,
                _ => return Err(Malformed("unknown stability")),
            };
            let _verifier: [u8; 8] = reader.fixed()?;
            answer.written = Some((granted, count));
        }
        Op::Commit { .. } => {
            answer.changed.push(get_wcc(reader)?);
            let _verifier: [u8; 8] = reader.fixed()?;
        }
        Op::Create { .. } | Op::Mkdir { .. } | Op::Symlink { .. } | Op::Mknod { .. } => {
            if !reader.bool()? {
                return Err(Malformed("a created object without a handle"));
            }
            answer.object = Some(reader.opaque()?.to_vec());
            answer.attr = get_post_op(reader)?;
            answer.changed.push(get_wcc(reader)?);
        }
        Op::Rename { .. } => {
            answer.changed.push(get_wcc(reader)?);
            answer.changed.push(get_wcc(reader)?);
        }
        Op::Link { .. } => {
            answer.attr = get_post_op(reader)?;
            answer.changed.push(get_wcc(reader)?);
        }
        Op::Readdir { .. } => return Err(Malformed("directories are decoded in pages")),
    }
    reader.end()?;
    Ok(Ok(answer))
}

fn skip_failure(op: &Op, reader: &mut In<'_>) -> Result<(), Malformed> {
    match op {
        Op::Getattr { .. } => {}
        Op::Lookup { .. } | Op::Readlink { .. } | Op::Read { .. } | Op::Readdir { .. } => {
            get_post_op(reader)?;
        }
        Op::Rename { .. } => {
            get_wcc(reader)?;
            get_wcc(reader)?;
        }
        Op::Link { .. } => {
            get_post_op(reader)?;
            get_wcc(reader)?;
        }
        _ => {
            get_wcc(reader)?;
        }
    }
    Ok(())
}

/// Decodes a page of a directory.
///
/// # Errors
/// As [`get_results`].
pub fn get_page(mut reader: In<'_>, plus: bool) -> Result<Result<Page, Errno>, Malformed> {
    let status = reader.u32()?;
    let _attr = get_post_op(&mut reader)?;
    if status != 0 {
        reader.end()?;
        return Ok(Err(errno(status)));
    }
    let bytes = reader.0.len();
    let mut page = Page {
        verifier: reader.fixed()?,
        bytes,
        ..Page::default()
    };
    while reader.bool()? {
        let fileid = reader.u64()?;
        let name = reader.opaque()?.into();
        let cookie = reader.u64()?;
        let mut attr = None;
        if plus {
            attr = get_post_op(&mut reader)?;
            if reader.bool()? {
                reader.opaque()?;
            }
        }
        page.entries.push(Entry {
            name,
            fileid,
            cookie,
            attr,
        });
    }
    page.eof = reader.bool()?;
    reader.end()?;
    Ok(Ok(page))
}
