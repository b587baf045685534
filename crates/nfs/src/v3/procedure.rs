//! Properties of a call by its procedure's number (RFC 1813 §3.3), known before or without running
//! it.

use super::status::Status;
use super::types::{put_post_op, put_post_op_handle};
use crate::rpc::failure::Failure;
use crate::rpc::xdr::Put;
use weir_vfs::{Error, HANDLE_BYTES};

/// WRITE, which brings data.
pub const WRITE: u32 = 7;

/// RENAME and LINK, which concern two directories or a file and a directory.
pub const RENAME: u32 = 14;
/// See [`RENAME`].
pub const LINK: u32 = 15;

/// Returns true if a second run would reply differently or do harm: SETATTR, CREATE to LINK. WRITE
/// is not among them: a client does not send another write of a range before the first was
/// answered.
pub fn must_run_once(procedure: u32) -> bool {
    matches!(procedure, 2 | 8..=15)
}

/// Returns true if limits may defer the call: READ and WRITE.
pub fn may_be_held(procedure: u32) -> bool {
    matches!(procedure, 6 | WRITE)
}

/// Returns true if the reply has the handle of a new object: CREATE, MKDIR, SYMLINK, MKNOD.
fn makes(procedure: u32) -> bool {
    matches!(procedure, 8..=11)
}

/// Appends the results of a call that failed before it reached any object.
pub fn put_failure(out: &mut Vec<u8>, procedure: u32, error: Error) {
    out.put_u32(Status::from_error(procedure, error) as u32);
    Failure::from_procedure(procedure).put_absent(out);
}

/// Appends the results of a call that was done before the start: its success and, if it made an
/// object, that object's `handle`. Nothing else is known of it.
pub fn put_done(out: &mut Vec<u8>, procedure: u32, handle: impl FnOnce() -> [u8; HANDLE_BYTES]) {
    out.put_u32(Status::Ok as u32);
    if makes(procedure) {
        // `post_op_fh3` and `post_op_attr` precede the `wcc_data`.
        put_post_op_handle(out, &handle());
        put_post_op(out, None);
    }
    Failure::from_procedure(procedure).put_absent(out);
}
