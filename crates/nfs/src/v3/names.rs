//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
//! RENAME, LINK.

use super::args::{CreateArgs, How, MknodArgs, SymlinkArgs};
use super::status::Status;
use super::types::{DirOp, put_post_op, put_post_op_handle, put_wcc, put_wcc_failed};
use super::{Op, Release, failed, split};
use crate::xdr::Put;
use weir_base::Ino;
use weir_vfs::volume::{CreateHow, Created, Done, FileKind, FsError, Removed, SetAttr, Stop};
use weir_vfs::{Outcome, Subject};

/// LOOKUP (RFC 1813 §3.3.3).
pub(super) fn lookup(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (subject, dir) = match op.admit(at.dir) {
        Ok(s) => s,
        Err(status) => return op.refuse(status),
    };
    match subject.lookup(op.cx, dir, at.name) {
        Ok((found, spot)) => {
            let handle = op.vfs.handle(subject.export, spot);
            op.status(Status::Ok);
            op.out.put_opaque(&handle);
            put_post_op(op.out, Some(&found.attr));
            put_post_op(op.out, Some(&found.dir));
            Ok(None)
        }
        Err(stop) => op.fail_attr(stop, &subject, dir),
    }
}

/// Results of CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8 to §3.3.11).
fn made(
    op: &mut Op<'_>,
    subject: &Subject<'_>,
    dir: Ino,
    outcome: Outcome<Done<Created>>,
) -> Release {
    match outcome {
        Ok(done) => {
            let (created, lsn) = split(done);
            let handle = op.handle(subject, created.ino);
            op.status(Status::Ok);
            put_post_op_handle(op.out, &handle);
            put_post_op(op.out, Some(&created.attr));
            put_wcc(op.out, &created.dir);
            Ok(lsn)
        }
        Err(stop) => op.fail_wcc(stop, subject, dir),
    }
}

/// CREATE (RFC 1813 §3.3.8).
pub(super) fn create(op: &mut Op<'_>, a: &CreateArgs<'_>) -> Release {
    let (subject, dir) = match op.admit(a.at.dir) {
        Ok(s) => s,
        Err(status) => return op.refuse(status),
    };
    let (how, attrs) = match a.how {
        How::Unchecked(attrs) => (CreateHow::Unchecked, attrs),
        How::Guarded(attrs) => (CreateHow::Guarded, attrs),
        How::Exclusive(verifier) => (CreateHow::Exclusive(verifier), SetAttr::default()),
    };
    let outcome = subject.create(op.cx, dir, a.at.name, how, &attrs);
    made(op, &subject, dir, outcome)
}

/// MKDIR (RFC 1813 §3.3.9).
pub(super) fn mkdir(op: &mut Op<'_>, at: &DirOp<'_>, attrs: &SetAttr) -> Release {
    let (subject, dir) = match op.admit(at.dir) {
        Ok(s) => s,
        Err(status) => return op.refuse(status),
    };
    let outcome = subject.mkdir(op.cx, dir, at.name, attrs);
    made(op, &subject, dir, outcome)
}

/// SYMLINK (RFC 1813 §3.3.10).
pub(super) fn symlink(op: &mut Op<'_>, a: &SymlinkArgs<'_>) -> Release {
    let (subject, dir) = match op.admit(a.at.dir) {
        Ok(s) => s,
        Err(status) => return op.refuse(status),
    };
    let outcome = subject.symlink(op.cx, dir, a.at.name, a.target, &a.attrs);
    made(op, &subject, dir, outcome)
}

/// MKNOD (RFC 1813 §3.3.11). Kinds with procedures of their own: BADTYPE.
pub(super) fn mknod(op: &mut Op<'_>, a: &MknodArgs<'_>) -> Release {
    let (subject, dir) = match op.admit(a.at.dir) {
        Ok(s) => s,
        Err(status) => return op.refuse(status),
    };
    if matches!(
        a.kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    ) {
        op.status(Status::BadType);
        let attr = op.attrs_if_at_hand(&subject, dir);
        put_wcc_failed(op.out, attr.as_ref());
        return Ok(None);
    }
    let outcome = subject.mknod(op.cx, dir, a.at.name, a.kind, a.rdev, &a.attrs);
    made(op, &subject, dir, outcome)
}

fn removed(
    op: &mut Op<'_>,
    subject: &Subject<'_>,
    dir: Ino,
    outcome: Outcome<Done<Removed>>,
) -> Release {
    match outcome {
        Ok(done) => {
            let (removed, lsn) = split(done);
            op.status(Status::Ok);
            put_wcc(op.out, &removed.dir);
            Ok(lsn)
        }
        Err(stop) => op.fail_wcc(stop, subject, dir),
    }
}

/// REMOVE (RFC 1813 §3.3.12).
pub(super) fn remove(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (subject, dir) = match op.admit(at.dir) {
        Ok(s) => s,
        Err(status) => return op.refuse(status),
    };
    let outcome = subject.remove(op.cx, dir, at.name);
    removed(op, &subject, dir, outcome)
}

/// RMDIR (RFC 1813 §3.3.13).
pub(super) fn rmdir(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (subject, dir) = match op.admit(at.dir) {
        Ok(s) => s,
        Err(status) => return op.refuse(status),
    };
    let outcome = subject.rmdir(op.cx, dir, at.name);
    removed(op, &subject, dir, outcome)
}

/// RENAME (RFC 1813 §3.3.14).
pub(super) fn rename(op: &mut Op<'_>, from: &DirOp<'_>, to: &DirOp<'_>) -> Release {
    let ((subject, from_dir), (target, to_dir)) = match (op.admit(from.dir), op.admit(to.dir)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(status), _) | (_, Err(status)) => return op.refuse(status),
    };
    let outcome = if target.place != subject.place {
        // Out of a snapshot, or into one.
        Err(Stop::Fail(FsError::ReadOnly))
    } else if subject.export.volume.id() == target.export.volume.id() {
        subject.rename(op.cx, from_dir, from.name, to_dir, to.name)
    } else {
        Err(Stop::Fail(FsError::CrossDevice))
    };
    match outcome {
        Ok(done) => {
            let (renamed, lsn) = split(done);
            op.status(Status::Ok);
            put_wcc(op.out, &renamed.from);
            put_wcc(op.out, &renamed.to);
            Ok(lsn)
        }
        Err(stop) => {
            let status = failed(stop)?;
            op.status(status);
            for (s, dir) in [(&subject, from_dir), (&target, to_dir)] {
                let attr = op.attrs_if_at_hand(s, dir);
                put_wcc_failed(op.out, attr.as_ref());
            }
            Ok(None)
        }
    }
}

/// LINK (RFC 1813 §3.3.15).
pub(super) fn link(op: &mut Op<'_>, file: &[u8], at: &DirOp<'_>) -> Release {
    let ((subject, ino), (target, dir)) = match (op.admit(file), op.admit(at.dir)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(status), _) | (_, Err(status)) => return op.refuse(status),
    };
    let outcome = if target.place != subject.place {
        // Out of a snapshot, or into one.
        Err(Stop::Fail(match target.read_only() {
            true => FsError::ReadOnly,
            false => FsError::CrossDevice,
        }))
    } else if subject.export.volume.id() == target.export.volume.id() {
        subject.link(op.cx, ino, dir, at.name)
    } else {
        Err(Stop::Fail(FsError::CrossDevice))
    };
    match outcome {
        Ok(done) => {
            let (linked, lsn) = split(done);
            op.status(Status::Ok);
            put_post_op(op.out, Some(&linked.attr));
            put_wcc(op.out, &linked.dir);
            Ok(lsn)
        }
        Err(stop) => {
            let status = failed(stop)?;
            op.status(status);
            let attr = op.attrs_if_at_hand(&subject, ino);
            put_post_op(op.out, attr.as_ref());
            let attr = op.attrs_if_at_hand(&target, dir);
            put_wcc_failed(op.out, attr.as_ref());
            Ok(None)
        }
    }
}
