//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
//! RENAME, LINK.

use super::args::{CreateArgs, CreateHow3, MknodArgs, SymlinkArgs};
use super::op::{Op, Operand, Release, split};
use super::status::Status;
use super::types::{DirOp, put_post_op, put_post_op_handle, put_wcc, put_wcc_failed};
use crate::rpc::xdr::Put;
use weir_vfs::volume::{CreateHow, Done, FileKind, SetAttr};
use weir_vfs::{CreateReply, Elsewhere, MetadataRead, MetadataWrite, OpResult, Stop};

/// LOOKUP (RFC 1813 §3.3.3).
pub(super) fn lookup(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    let (dir, charged) = op.enter(at.dir, MetadataRead)?;
    let found = dir.look(op.cx, charged, at.name);
    let found = found.map_err(|why| op.fail_attr(why, &dir))?;
    let handle = op.vfs.handle(dir.file_id().volume, found.file);
    op.status(Status::Ok);
    op.out.put_opaque(&handle);
    put_post_op(op.out, found.attr.as_ref());
    put_post_op(op.out, Some(&found.dir));
    Ok(None)
}

/// Results of CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8 to §3.3.11).
fn made(op: &mut Op<'_>, dir: &Operand<'_>, outcome: OpResult<Done<CreateReply>>) -> Release {
    let (made, lsn) = split(outcome.map_err(|why| op.fail_wcc(why, &[dir]))?);
    let handle = op.vfs.handle(dir.file_id().volume, made.file);
    op.status(Status::Ok);
    put_post_op_handle(op.out, &handle);
    put_post_op(op.out, made.attr.as_ref());
    op.put_change(dir, made.dir.as_ref());
    Ok(lsn)
}

/// CREATE (RFC 1813 §3.3.8).
pub(super) fn create(op: &mut Op<'_>, a: &CreateArgs<'_>) -> Release {
    let (dir, charged) = op.enter(a.at.dir, MetadataWrite)?;
    let (how, attrs) = match a.how {
        CreateHow3::Unchecked(attrs) => (CreateHow::Unchecked, attrs),
        CreateHow3::Guarded(attrs) => (CreateHow::Guarded, attrs),
        CreateHow3::Exclusive(verifier) => (CreateHow::Exclusive(verifier), SetAttr::default()),
    };
    let outcome = dir.make_file(op.cx, charged, a.at.name, how, &attrs);
    made(op, &dir, outcome)
}

/// MKDIR (RFC 1813 §3.3.9).
pub(super) fn mkdir(op: &mut Op<'_>, at: &DirOp<'_>, attrs: &SetAttr) -> Release {
    let (dir, charged) = op.enter(at.dir, MetadataWrite)?;
    let outcome = dir.make_directory(op.cx, charged, at.name, attrs);
    made(op, &dir, outcome)
}

/// SYMLINK (RFC 1813 §3.3.10).
pub(super) fn symlink(op: &mut Op<'_>, a: &SymlinkArgs<'_>) -> Release {
    let (dir, charged) = op.enter(a.at.dir, MetadataWrite)?;
    let outcome = dir.symlink(op.cx, charged, a.at.name, a.target, &a.attrs);
    made(
        op,
        &dir,
        outcome.map(|created| dir.report_created_here(created)),
    )
}

/// MKNOD (RFC 1813 §3.3.11). Replies BADTYPE for kinds that have procedures of their own.
pub(super) fn mknod(op: &mut Op<'_>, a: &MknodArgs<'_>) -> Release {
    let (dir, charged) = op.enter(a.at.dir, MetadataWrite)?;
    if matches!(
        a.kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    ) {
        op.status(Status::BadType);
        op.put_wcc(&dir);
        return Err(Stop::Failed(Status::BadType));
    }
    let outcome = dir.mknod(op.cx, charged, a.at.name, a.kind, a.rdev, &a.attrs);
    made(
        op,
        &dir,
        outcome.map(|created| dir.report_created_here(created)),
    )
}

fn unlink(op: &mut Op<'_>, at: &DirOp<'_>, directory: bool) -> Release {
    let (dir, charged) = op.enter(at.dir, MetadataWrite)?;
    let outcome = dir.unlink(op.cx, charged, at.name, directory);
    let (change, lsn) = split(outcome.map_err(|why| op.fail_wcc(why, &[&dir]))?);
    op.status(Status::Ok);
    op.put_change(&dir, change.as_ref());
    Ok(lsn)
}

/// REMOVE (RFC 1813 §3.3.12).
pub(super) fn remove(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    unlink(op, at, false)
}

/// RMDIR (RFC 1813 §3.3.13).
pub(super) fn rmdir(op: &mut Op<'_>, at: &DirOp<'_>) -> Release {
    unlink(op, at, true)
}

/// RENAME (RFC 1813 §3.3.14).
pub(super) fn rename(op: &mut Op<'_>, from: &DirOp<'_>, to: &DirOp<'_>) -> Release {
    if let Some(source) = op.vfs.constituents.elsewhere(from.dir) {
        return rename_from(op, source, from.name, to);
    }
    let (source, charged) = op.enter(from.dir, MetadataWrite)?;
    let admitted = op.admit(to.dir)?;
    let target = source.beside(op.cx, admitted);
    let target = target.map_err(|why| op.refuse(why))?;
    let done = source.rename_any(op.cx, charged, from.name, &target, to.name);
    let (renamed, lsn) = split(done.map_err(|why| op.fail_wcc(why, &[&source, &target]))?);
    op.status(Status::Ok);
    op.put_change(&source, renamed.as_ref().map(|renamed| &renamed.from));
    op.put_change(&target, renamed.as_ref().map(|renamed| &renamed.to));
    Ok(lsn)
}

/// Serves RENAME from a directory that another server has.
fn rename_from(op: &mut Op<'_>, source: Elsewhere, from: &[u8], to: &DirOp<'_>) -> Release {
    let (target, charged) = op.enter(to.dir, MetadataWrite)?;
    let done = target.rename_from(op.cx, charged, source, from, to.name);
    let failed = |why| {
        op.failed(why, |op| {
            put_wcc_failed(op.out, None);
            op.put_wcc(&target);
        })
    };
    let ((), lsn) = split(done.map_err(failed)?);
    op.status(Status::Ok);
    put_wcc_failed(op.out, None);
    op.put_wcc(&target);
    Ok(lsn)
}

/// LINK (RFC 1813 §3.3.15).
pub(super) fn link(op: &mut Op<'_>, file: &[u8], at: &DirOp<'_>) -> Release {
    if let Some(file) = op.vfs.constituents.elsewhere(file) {
        return link_from(op, file, at);
    }
    let (file, charged) = op.enter(file, MetadataWrite)?;
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

/// Serves LINK to a file that another server has.
fn link_from(op: &mut Op<'_>, file: Elsewhere, at: &DirOp<'_>) -> Release {
    let (dir, charged) = op.enter(at.dir, MetadataWrite)?;
    let done = dir.link_from(op.cx, charged, file, at.name);
    let failed = |why| {
        op.failed(why, |op| {
            put_post_op(op.out, None);
            op.put_wcc(&dir);
        })
    };
    let ((), lsn) = split(done.map_err(failed)?);
    op.status(Status::Ok);
    put_post_op(op.out, None);
    op.put_wcc(&dir);
    Ok(lsn)
}
