//! Operations of the model as NFSv3 calls, and replies as answers.

use weir_base::Time;
use weir_testclient::DecodeError;
use weir_testclient::nfs3::{
    self, BLK, CHR, Call, DIR, FIFO, Fattr, LNK, REG, Reply, SOCK, Sattr, SetTime, Verifier, Wcc,
};

use crate::model::{CreateMode, Errno, Kind, Name, Op, Set, SetTo, Slot, Stable};
use crate::subject::{Answer, Around, Before, Entry, Handle, ReportedAttr};

/// Kinds and their `ftype3`.
const KINDS: [(Kind, u32); 7] = [
    (Kind::File, REG),
    (Kind::Dir, DIR),
    (Kind::Block, BLK),
    (Kind::Char, CHR),
    (Kind::Symlink, LNK),
    (Kind::Socket, SOCK),
    (Kind::Fifo, FIFO),
];

/// Stabilities in the order of `stable_how`.
const STABILITIES: [Stable; 3] = [Stable::Unstable, Stable::Data, Stable::File];

fn get_time((secs, nanos): nfs3::Time) -> Time {
    Time {
        secs: i64::from(secs),
        nanos,
    }
}

fn put_time(time: Time) -> nfs3::Time {
    (time.secs as u32, time.nanos)
}

fn put_set(set: &Set) -> Sattr {
    let time = |set: SetTo| match set {
        SetTo::Keep => SetTime::Keep,
        SetTo::Server => SetTime::Server,
        SetTo::Client(time) => SetTime::Client(put_time(time)),
    };
    Sattr {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: time(set.atime),
        mtime: time(set.mtime),
    }
}

fn seen(attr: Fattr) -> Result<ReportedAttr, DecodeError> {
    let kind = KINDS.iter().find(|(_, number)| *number == attr.kind);
    Ok(ReportedAttr {
        kind: kind.ok_or(DecodeError("unknown file type"))?.0,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        rdev: attr.rdev,
        fileid: attr.fileid,
        atime: get_time(attr.atime),
        mtime: get_time(attr.mtime),
        ctime: get_time(attr.ctime),
        change: None,
    })
}

fn around(wcc: Wcc) -> Result<Around, DecodeError> {
    Ok(Around {
        before: wcc.before.map(|before| Before {
            size: before.size,
            mtime: get_time(before.mtime),
            ctime: get_time(before.ctime),
            change: None,
        }),
        after: wcc.after.map(seen).transpose()?,
    })
}

/// READDIR or READDIRPLUS from `cookie` on.
pub fn readdir(dir: Handle, cookie: u64, verifier: Verifier, entries: u32, plus: bool) -> Call {
    // Sizes that make room for at least one entry with the longest name.
    let count = 600 + entries.saturating_mul(60).min(30_000);
    match plus {
        false => Call::Readdir {
            dir,
            cookie,
            verifier,
            count,
        },
        true => Call::Readdirplus {
            dir,
            cookie,
            verifier,
            dircount: count,
            maxcount: count + 600,
        },
    }
}

/// The call that performs `op`; of a directory, the first page.
pub fn call_of(op: &Op, handle: &dyn Fn(Slot) -> Handle, guard: Option<Time>) -> Call {
    match op {
        Op::Punch { .. }
        | Op::Clone { .. }
        | Op::Convert { .. }
        | Op::SetXattr { .. }
        | Op::Xattrs { .. }
        | Op::Open { .. } => {
            unreachable!("NFSv3 has no such operation: {op:?}")
        }
        Op::Getattr { object } => Call::Getattr(handle(*object)),
        Op::Setattr { object, set, .. } => {
            Call::Setattr(handle(*object), put_set(set), guard.map(put_time))
        }
        Op::Lookup { dir, name } => Call::Lookup(handle(*dir), name.to_vec()),
        Op::Readlink { object } => Call::Readlink(handle(*object)),
        Op::Read {
            object,
            offset,
            len,
        } => Call::Read {
            fh: handle(*object),
            offset: *offset,
            count: *len,
        },
        Op::Write {
            object,
            offset,
            data,
            stable,
        } => Call::Write {
            fh: handle(*object),
            offset: *offset,
            stable: *stable as u32,
            data: data.bytes(),
        },
        Op::Commit {
            object,
            offset,
            len,
        } => Call::Commit {
            fh: handle(*object),
            offset: *offset,
            count: *len,
        },
        Op::Create {
            dir,
            name,
            how,
            set,
        } => {
            let how = match how {
                CreateMode::Unchecked => nfs3::CreateHow3::Unchecked(put_set(set)),
                CreateMode::Guarded => nfs3::CreateHow3::Guarded(put_set(set)),
                CreateMode::Exclusive(verifier) => nfs3::CreateHow3::Exclusive(*verifier),
            };
            Call::Create(handle(*dir), name.to_vec(), how)
        }
        Op::Mkdir { dir, name, set } => Call::Mkdir(handle(*dir), name.to_vec(), put_set(set)),
        Op::Symlink {
            dir,
            name,
            target,
            set,
        } => Call::Symlink(handle(*dir), name.to_vec(), put_set(set), target.to_vec()),
        Op::Mknod {
            dir,
            name,
            kind,
            rdev,
            set,
        } => Call::Mknod {
            dir: handle(*dir),
            name: name.to_vec(),
            kind: KINDS
                .iter()
                .find(|(one, _)| one == kind)
                .map_or(0, |(_, number)| *number),
            attr: put_set(set),
            rdev: *rdev,
        },
        Op::Remove { dir, name } => Call::Remove(handle(*dir), name.to_vec()),
        Op::Rmdir { dir, name } => Call::Rmdir(handle(*dir), name.to_vec()),
        Op::Rename {
            from_dir,
            from,
            to_dir,
            to,
        } => Call::Rename {
            from: (handle(*from_dir), from.to_vec()),
            to: (handle(*to_dir), to.to_vec()),
        },
        Op::Link { object, dir, name } => Call::Link {
            fh: handle(*object),
            to: (handle(*dir), name.to_vec()),
        },
        Op::Readdir { dir, entries } => readdir(handle(*dir), 0, [0; 8], *entries, false),
    }
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

/// Translates a reply into the model's terms. Of a directory the answer has the entries of one
/// page.
///
/// # Errors
/// The outer error is for a malformed reply, the inner one is the status of the reply.
pub fn answer(reply: Reply) -> Result<Result<Answer, Errno>, DecodeError> {
    let mut answer = Answer::default();
    let mut changed = Vec::new();
    match reply {
        Reply::Error(status) => return Ok(Err(errno(status))),
        Reply::Root(root) => answer.object = Some(root),
        Reply::Attr(attr) => answer.attr = Some(seen(attr)?),
        Reply::Found(object, attr) => {
            answer.object = Some(object);
            answer.attr = attr.map(seen).transpose()?;
        }
        Reply::Target(target) => answer.data = Some(target),
        Reply::Data { data, eof } => (answer.data, answer.eof) = (Some(data), Some(eof)),
        Reply::Written {
            count,
            committed,
            around,
            ..
        } => {
            changed.push(around);
            let granted = STABILITIES.get(committed as usize);
            answer.written = Some((*granted.ok_or(DecodeError("unknown stability"))?, count));
        }
        Reply::Made(object, attr, dir) => {
            if object.is_none() {
                return Err(DecodeError("a created object without a handle"));
            }
            answer.object = object;
            answer.attr = attr.map(seen).transpose()?;
            changed.push(dir);
        }
        Reply::Linked(attr, dir) => {
            answer.attr = attr.map(seen).transpose()?;
            changed.push(dir);
        }
        Reply::Committed(_, around) => changed.push(around),
        Reply::Done(all) => changed = all,
        Reply::Entries { entries, eof, .. } => {
            let entry = |entry: nfs3::Entry| {
                Ok(Entry {
                    name: Name(entry.name),
                    fileid: entry.fileid,
                    cookie: entry.cookie,
                    attr: entry.attr.map(seen).transpose()?,
                })
            };
            let entries: Result<Vec<Entry>, DecodeError> = entries.into_iter().map(entry).collect();
            (answer.entries, answer.eof) = (Some(entries?), Some(eof));
        }
    }
    let changed: Result<Vec<Around>, DecodeError> = changed.into_iter().map(around).collect();
    answer.changed = changed?;
    Ok(Ok(answer))
}
