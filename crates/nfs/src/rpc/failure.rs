//! Turns a finished reply into that of a failed call: the shape of each NFSv3 procedure's failure
//! results, and the place where the results of an NFSv4 COMPOUND are cut.

use crate::rpc::xdr::{Put, padding};

/// NFS3ERR_IO (RFC 1813 §2.6).
const IO: u32 = 5;

/// Method of turning a finished reply into that of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// An NFSv3 reply, which is replaced by the procedure's failure.
    Shape(Failure),
    /// An NFSv4 reply, which is cut at an operation.
    Cut(Cut),
}

/// The first operation of a COMPOUND whose change may turn out not to be durable. The operations
/// before it keep their results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of results, from the COMPOUND's status on, that precede the operation's.
    pub bytes: u32,
    /// Number of the COMPOUND's operations before it.
    pub before: u32,
    /// Its operation number (`nfs_opnum4`).
    pub operation: u32,
}

impl Cut {
    /// Operation number of SETATTR, whose failure has a bitmap (RFC 8881 §18.30.2).
    const SETATTR: u32 = 34;

    /// Cuts `results`, from the COMPOUND's status on, and makes them end with an I/O error.
    pub fn apply(self, results: &mut Vec<u8>) {
        results.truncate(self.bytes as usize);
        results.put_u32(self.operation);
        results.put_u32(IO);
        if self.operation == Cut::SETATTR {
            results.put_u32(0);
        }
        let tag = results.get(4..8).and_then(|b| b.try_into().ok());
        let tag = tag.map_or(0, u32::from_be_bytes) as usize;
        let count = 8 + tag + padding(tag);
        for (at, value) in [(0, IO), (count, self.before + 1)] {
            if let Some(place) = results.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_be_bytes());
            }
        }
    }
}

/// Form of the results behind the status in a failed reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Words of zero, each saying "not present": one for a `post_op_attr`, two
    /// for a `wcc_data` (RFC 1813 §2.6).
    words: u8,
}

impl Failure {
    /// Returns the failure shape of procedure `procedure` of NFS version 3 (RFC 1813 §3.3, each
    /// procedure's `resfail`).
    pub const fn from_procedure(procedure: u32) -> Failure {
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

    /// Appends the results behind a failure's status, without any attributes.
    pub fn put_absent(self, out: &mut Vec<u8>) {
        for _ in 0..self.words {
            out.put_bool(false);
        }
    }
}
