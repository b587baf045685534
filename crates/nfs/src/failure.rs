//! The shape of each NFSv3 procedure's failure results: all that must be known
//! of a call to answer it as failed without running it.

use crate::xdr::Put;

/// NFS3ERR_IO (RFC 1813 §2.6).
const IO: u32 = 5;

/// What follows the status in a failed reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Words of zero, each saying "not present": one for a `post_op_attr`, two
    /// for a `wcc_data` (RFC 1813 §2.6).
    words: u8,
}

impl Failure {
    /// The failure shape of procedure `procedure` of NFS version 3
    /// (RFC 1813 §3.3, each procedure's `resfail`).
    pub const fn of(procedure: u32) -> Failure {
        let words = match procedure {
            // LOOKUP, ACCESS, READLINK, READ, READDIR, READDIRPLUS, FSSTAT,
            // FSINFO, PATHCONF: post_op_attr.
            3..=6 | 16..=20 => 1,
            // SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
            // COMMIT: wcc_data.
            2 | 7..=13 | 21 => 2,
            // LINK: post_op_attr and wcc_data.
            15 => 3,
            // RENAME: wcc_data of both directories.
            14 => 4,
            // GETATTR has no attributes to give; NULL does not fail.
            _ => 0,
        };
        Failure { words }
    }

    /// Appends the results of a call that failed for an I/O error.
    pub fn put_io_error(self, out: &mut Vec<u8>) {
        out.put_u32(IO);
        self.put_absent(out);
    }

    /// Appends what follows a failure's status, without any attributes.
    pub fn put_absent(self, out: &mut Vec<u8>) {
        for _ in 0..self.words {
            out.put_bool(false);
        }
    }
}
