//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).
//!
//! The client bounds the results in bytes and sizes its buffers by that bound, so it is kept
//! exactly: an entry is appended only if it, the end of the list and the eof flag still fit. If not
//! even one entry fits, the answer is TOOSMALL. At the end of the directory the answer is an empty
//! list with eof.

use super::args::ReadDirArgs;
use super::op::{Op, Release};
use super::status::Status;
use super::types::{POST_OP_BYTES, put_post_op, put_post_op_handle};
use crate::rpc::xdr::{Put, padding};
pub(super) use weir_base::limits::net::MAX_LISTING;
use weir_vfs::volume::{DirEntry, ReadDirLimit};
use weir_vfs::{Error, FileRef, HANDLE_BYTES, MetadataRead, Stop};

/// Directory attributes, verifier, end of list, eof.
const FIXED: usize = POST_OP_BYTES + 8 + 4 + 4;
/// Follows-flag, file id, name length, cookie.
const ENTRY: usize = 4 + 8 + 4 + 8;
/// Attributes and handle of an entry of READDIRPLUS.
const PLUS: usize = POST_OP_BYTES + 4 + 4 + HANDLE_BYTES;

/// READDIR: `maxcount` is the size of READDIR3resok (RFC 1813 §3.3.16).
pub(super) fn readdir(op: &mut Op<'_>, a: &ReadDirArgs<'_>) -> Release {
    list(op, a, false)
}

/// READDIRPLUS: `maxcount` is the size of READDIRPLUS3resok, and `dircount` that
/// of the part which READDIR would return (RFC 1813 §3.3.17).
pub(super) fn readdirplus(op: &mut Op<'_>, a: &ReadDirArgs<'_>) -> Release {
    list(op, a, true)
}

fn list(op: &mut Op<'_>, a: &ReadDirArgs<'_>, plus: bool) -> Release {
    let (dir, charged) = op.enter(a.dir, MetadataRead)?;
    let room = (a.maxcount as usize).min(MAX_LISTING).saturating_sub(FIXED);
    let names_room = a.dircount.map_or(usize::MAX, |n| n as usize);
    let entry_min = ENTRY + 4 + if plus { PLUS } else { 0 };
    let limit = ReadDirLimit {
        entries: room / entry_min + 1,
        bytes: room.min(names_room),
        attrs: plus,
    };

    // The entries are encoded as they come, behind room for the part in front of them, which is
    // known only afterwards.
    let start = op.out.len();
    op.out.resize(start + 4 + POST_OP_BYTES + 8, 0);
    let (mut used, mut names, mut full) = (0, 0, false);
    let (vfs, volume) = (op.vfs, dir.file_id().volume);
    let out = &mut *op.out;
    let outcome = dir.readdir(op.cx, charged, a.cookie, limit, &mut |e: &DirEntry<'_>,
                                                                     file: Option<
        FileRef,
    >| {
        let bare = ENTRY + e.name.len() + padding(e.name.len());
        let size = bare + if plus { PLUS } else { 0 };
        if full || used + size > room || names + bare > names_room {
            full = true;
            return false;
        }
        used += size;
        names += bare;
        out.put_bool(true);
        out.put_u64(dir.shown_number(e.ino));
        out.put_opaque(e.name);
        out.put_u64(e.cookie);
        if plus {
            put_post_op(out, e.attr.as_ref());
            match file {
                Some(file) => put_post_op_handle(out, &vfs.handle(volume, file)),
                None => out.put_bool(false),
            }
        }
        true
    });
    let checked = outcome.and_then(|o| {
        // Position 0 is the start whatever the verifier (RFC 1813 §3.3.16).
        if a.cookie != 0 && a.verifier != o.verifier {
            Err(Stop::from(Error::BadCookie))
        } else {
            Ok(o)
        }
    });
    match checked {
        Ok(o) if names > 0 || (o.eof && !full) => {
            let mut head = Vec::with_capacity(4 + POST_OP_BYTES + 8);
            head.put_u32(Status::Ok as u32);
            put_post_op(&mut head, Some(&o.dir));
            head.put_fixed(&o.verifier);
            if let Some(place) = op.out.get_mut(start..start + head.len()) {
                place.copy_from_slice(&head);
            }
            op.out.put_bool(false);
            op.out.put_bool(o.eof && !full);
            Ok(None)
        }
        Ok(o) => {
            op.out.truncate(start);
            op.status(Status::TooSmall);
            put_post_op(op.out, Some(&o.dir));
            Err(Stop::Failed(Status::TooSmall))
        }
        Err(stop) => {
            op.out.truncate(start);
            Err(op.fail_attr(stop, &dir))
        }
    }
}
