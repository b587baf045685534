//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
//! RENAME, LINK.

use super::args::{CreateArgs, How, MknodArgs, SymlinkArgs};
use super::op::{Op, Operand, Release, split};
use super::status::Status;
use super::types::{DirOp, put_post_op, put_post_op_handle, put_wcc};
use crate::rpc::xdr::Put;
use weir_vfs::volume::{CreateHow, Created, Done, FileKind, Removed, SetAttr};
use weir_vfs::{Changes, Looks, OpResult, Stop};

/// LOOKUP (RFC 1813 §3.3.3).
pub(super) fn lookup(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (dir, charged) = op.enter(at.dir, Looks)?;
    let found = dir.lookup(op.cx, charged, at.name);
    let (found, file) = found.map_err(|why| op.fail_attr(why, &dir))?;
    let handle = op.vfs.handle(dir.file_id().volume, file);
    op.status(Status::Ok);
    op.out.put_opaque(&handle);
    put_post_op(op.out, Some(&found.attr));
    put_post_op(op.out, Some(&found.dir));
    Ok(None)
}

/// Results of CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8 to §3.3.11).
fn made(op: &mut Op<'_>, dir: &Operand<'_>, outcome: OpResult<Done<Created>>) -> Release {
    let (created, lsn) = split(outcome.map_err(|why| op.fail_wcc(why, &[dir]))?);
    let file = dir.near(created.ino);
    let handle = op.vfs.handle(dir.file_id().volume, file);
    op.status(Status::Ok);
    put_post_op_handle(op.out, &handle);
    put_post_op(op.out, Some(&created.attr));
    put_wcc(op.out, &created.dir);
    Ok(lsn)
}

/// CREATE (RFC 1813 §3.3.8).
pub(super) fn create(op: &mut Op<'_>, a: &CreateArgs<'_>) -> Release {
    let (dir, charged) = op.enter(a.at.dir, Changes)?;
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
    let (dir, charged) = op.enter(at.dir, Changes)?;
    let outcome = dir.mkdir(op.cx, charged, at.name, attrs);
    made(op, &dir, outcome)
}

/// SYMLINK (RFC 1813 §3.3.10).
pub(super) fn symlink(op: &mut Op<'_>, a: &SymlinkArgs<'_>) -> Release {
    let (dir, charged) = op.enter(a.at.dir, Changes)?;
    let outcome = dir.symlink(op.cx, charged, a.at.name, a.target, &a.attrs);
    made(op, &dir, outcome)
}

/// MKNOD (RFC 1813 §3.3.11). Replies BADTYPE for kinds that have procedures of their own.
pub(super) fn mknod(op: &mut Op<'_>, a: &MknodArgs<'_>) -> Release {
    let (dir, charged) = op.enter(a.at.dir, Changes)?;
    if matches!(
        a.kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    ) {
        op.status(Status::BadType);
        op.put_wcc(&dir);
        return Err(Stop::Failed(Status::BadType));
    }
    let outcome = dir.mknod(op.cx, charged, a.at.name, a.kind, a.rdev, &a.attrs);
    made(op, &dir, outcome)
}

fn removed(op: &mut Op<'_>, dir: &Operand<'_>, outcome: OpResult<Done<Removed>>) -> Release {
    let (removed, lsn) = split(outcome.map_err(|why| op.fail_wcc(why, &[dir]))?);
    op.status(Status::Ok);
    put_wcc(op.out, &removed.dir);
    Ok(lsn)
}

/// REMOVE (RFC 1813 §3.3.12).
pub(super) fn remove(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (dir, charged) = op.enter(at.dir, Changes)?;
    let outcome = dir.remove(op.cx, charged, at.name);
    removed(op, &dir, outcome)
}

/// RMDIR (RFC 1813 §3.3.13).
pub(super) fn rmdir(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (dir, charged) = op.enter(at.dir, Changes)?;
    let outcome = dir.rmdir(op.cx, charged, at.name);
    removed(op, &dir, outcome)
}

/// RENAME (RFC 1813 §3.3.14).
pub(super) fn rename(op: &mut Op<'_>, from: &DirOp<'_>, to: &DirOp<'_>) -> Release {
    let (source, charged) = op.enter(from.dir, Changes)?;
    let admitted = op.admit(to.dir)?;
    let target = source.beside(op.cx, admitted);
    let target = target.map_err(|why| op.refuse(why))?;
    let done = source.rename(op.cx, charged, from.name, &target, to.name);
    let (renamed, lsn) = split(done.map_err(|why| op.fail_wcc(why, &[&source, &target]))?);
    op.status(Status::Ok);
    put_wcc(op.out, &renamed.from);
    put_wcc(op.out, &renamed.to);
    Ok(lsn)
}

/// LINK (RFC 1813 §3.3.15).
pub(super) fn link(op: &mut Op<'_>, file: &[u8], at: &DirOp<'_>) -> Release {
    let (file, charged) = op.enter(file, Changes)?;
    let admitted = op.admit(at.dir)?;
    let dir = file.beside(op.cx, admitted);
    let dir = dir.map_err(|why| op.refuse(why))?;
    let done = file.link(op.cx, charged, &dir, at.name);
    let failed = |why| {
        op.failed(why, |op| {
            op.put_attr(&file);
            op.put_wcc(&dir);
        })
    };
    let (linked, lsn) = split(done.map_err(failed)?);
    op.status(Status::Ok);
    put_post_op(op.out, Some(&linked.attr));
    put_wcc(op.out, &linked.dir);
    Ok(lsn)
}
