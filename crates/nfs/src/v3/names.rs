//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
//! RENAME, LINK.

use super::args::{CreateArgs, How, MknodArgs, SymlinkArgs};
use super::status::Status;
use super::types::{DirOp, put_post_op, put_post_op_handle, put_wcc, put_wcc_failed};
use super::{Op, Operand, Release, failed, split};
use crate::xdr::Put;
use weir_vfs::volume::{CreateHow, Created, Done, FileKind, Removed, SetAttr};
use weir_vfs::{Changes, Looks, Outcome};

/// LOOKUP (RFC 1813 §3.3.3).
pub(super) fn lookup(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (dir, charged) = match op.enter(at.dir, Looks) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    match dir.lookup(op.cx, charged, at.name) {
        Ok((found, file)) => {
            let handle = op.vfs.handle(dir.file_id().volume, file);
            op.status(Status::Ok);
            op.out.put_opaque(&handle);
            put_post_op(op.out, Some(&found.attr));
            put_post_op(op.out, Some(&found.dir));
            Ok(None)
        }
        Err(why) => op.fail_attr(why, &dir),
    }
}

/// Results of CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8 to §3.3.11).
fn made(op: &mut Op<'_>, dir: &Operand<'_>, outcome: Outcome<Done<Created>>) -> Release {
    match outcome {
        Ok(done) => {
            let (created, lsn) = split(done);
            let file = dir.near(created.ino);
            let handle = op.vfs.handle(dir.file_id().volume, file);
            op.status(Status::Ok);
            put_post_op_handle(op.out, &handle);
            put_post_op(op.out, Some(&created.attr));
            put_wcc(op.out, &created.dir);
            Ok(lsn)
        }
        Err(why) => op.fail_wcc(why, &[dir]),
    }
}

/// CREATE (RFC 1813 §3.3.8).
pub(super) fn create(op: &mut Op<'_>, a: &CreateArgs<'_>) -> Release {
    let (dir, charged) = match op.enter(a.at.dir, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    let (how, attrs) = match a.how {
        How::Unchecked(attrs) => (CreateHow::Unchecked, attrs),
        How::Guarded(attrs) => (CreateHow::Guarded, attrs),
        How::Exclusive(verifier) => (CreateHow::Exclusive(verifier), SetAttr::default()),
    };
    let outcome = dir.create(op.cx, charged, a.at.name, how, &attrs);
    made(op, &dir, outcome)
}

/// MKDIR (RFC 1813 §3.3.9).
pub(super) fn mkdir(op: &mut Op<'_>, at: &DirOp<'_>, attrs: &SetAttr) -> Release {
    let (dir, charged) = match op.enter(at.dir, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    let outcome = dir.mkdir(op.cx, charged, at.name, attrs);
    made(op, &dir, outcome)
}

/// SYMLINK (RFC 1813 §3.3.10).
pub(super) fn symlink(op: &mut Op<'_>, a: &SymlinkArgs<'_>) -> Release {
    let (dir, charged) = match op.enter(a.at.dir, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    let outcome = dir.symlink(op.cx, charged, a.at.name, a.target, &a.attrs);
    made(op, &dir, outcome)
}

/// MKNOD (RFC 1813 §3.3.11). Kinds with procedures of their own: BADTYPE.
pub(super) fn mknod(op: &mut Op<'_>, a: &MknodArgs<'_>) -> Release {
    let (dir, charged) = match op.enter(a.at.dir, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    if matches!(
        a.kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    ) {
        op.status(Status::BadType);
        let attr = op.at_hand(&dir);
        put_wcc_failed(op.out, attr.as_ref());
        return Ok(None);
    }
    let outcome = dir.mknod(op.cx, charged, a.at.name, a.kind, a.rdev, &a.attrs);
    made(op, &dir, outcome)
}

fn removed(op: &mut Op<'_>, dir: &Operand<'_>, outcome: Outcome<Done<Removed>>) -> Release {
    match outcome {
        Ok(done) => {
            let (removed, lsn) = split(done);
            op.status(Status::Ok);
            put_wcc(op.out, &removed.dir);
            Ok(lsn)
        }
        Err(why) => op.fail_wcc(why, &[dir]),
    }
}

/// REMOVE (RFC 1813 §3.3.12).
pub(super) fn remove(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (dir, charged) = match op.enter(at.dir, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    let outcome = dir.remove(op.cx, charged, at.name);
    removed(op, &dir, outcome)
}

/// RMDIR (RFC 1813 §3.3.13).
pub(super) fn rmdir(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (dir, charged) = match op.enter(at.dir, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    let outcome = dir.rmdir(op.cx, charged, at.name);
    removed(op, &dir, outcome)
}

/// RENAME (RFC 1813 §3.3.14).
pub(super) fn rename(op: &mut Op<'_>, from: &DirOp<'_>, to: &DirOp<'_>) -> Release {
    let (source, charged) = match op.enter(from.dir, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    let target = match op.admit(to.dir) {
        Ok(admitted) => source.beside(admitted),
        Err(why) => return op.refuse(why),
    };
    match source.rename(op.cx, charged, from.name, &target, to.name) {
        Ok(done) => {
            let (renamed, lsn) = split(done);
            op.status(Status::Ok);
            put_wcc(op.out, &renamed.from);
            put_wcc(op.out, &renamed.to);
            Ok(lsn)
        }
        Err(why) => op.fail_wcc(why, &[&source, &target]),
    }
}

/// LINK (RFC 1813 §3.3.15).
pub(super) fn link(op: &mut Op<'_>, file: &[u8], at: &DirOp<'_>) -> Release {
    let (file, charged) = match op.enter(file, Changes) {
        Ok(entered) => entered,
        Err(why) => return op.refuse(why),
    };
    let dir = match op.admit(at.dir) {
        Ok(admitted) => file.beside(admitted),
        Err(why) => return op.refuse(why),
    };
    match file.link(op.cx, charged, &dir, at.name) {
        Ok(done) => {
            let (linked, lsn) = split(done);
            op.status(Status::Ok);
            put_post_op(op.out, Some(&linked.attr));
            put_wcc(op.out, &linked.dir);
            Ok(lsn)
        }
        Err(why) => {
            let error = failed(why)?;
            op.status(Status::of(op.procedure, error));
            let attr = op.at_hand(&file);
            put_post_op(op.out, attr.as_ref());
            let attr = op.at_hand(&dir);
            put_wcc_failed(op.out, attr.as_ref());
            Ok(None)
        }
    }
}
