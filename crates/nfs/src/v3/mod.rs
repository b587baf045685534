//! NFS version 3 (RFC 1813): one call from its arguments to its encoded results.
//!
//! A procedure is a function over an [`Op`]: it has the vfs admit and charge the session for each handle, acts, and
//! appends its results. What it returns says when the
//! reply may be released. `Err(Suspend)` means that nothing
//! was changed and the call is to be run again from the start; then what was
//! appended is thrown away.
//!
//! Failures carry the attributes that the procedure's `resfail` has room for,
//! read after the failure; "before" attributes only come with success, where
//! they are taken atomically with the operation.

pub mod access;
pub mod args;
mod dir;
mod file;
mod fsinfo;
mod names;
pub mod status;
pub mod types;

use crate::failure::Failure;
use crate::reply::Payload;
use crate::xdr::Put;
use access::EachCall;
use args::Args;
use status::Status;
use types::{put_post_op, put_wcc_failed};
use weir_base::{Lsn, VolumeId};
use weir_vfs::volume::{Attr, Done};
use weir_vfs::{
    Admitted, Charged, Cost, Error, ExportTable, OpContext, Outcome, Suspend, Unfinished, Vfs,
};

/// A session of this protocol.
pub type Session<'s> = weir_vfs::Session<'s, EachCall>;

/// A file that a procedure works on.
pub(crate) type Operand<'s> = weir_vfs::Operand<'s, EachCall>;

pub use fsinfo::{MAX_READ, MAX_WRITE};

/// The procedures' names, by number (RFC 1813 §3.3).
pub const PROCEDURES: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

/// When the reply may be released: at once, or when the log has come so far.
pub type Release = Result<Option<Lsn>, Suspend>;

/// One call being served.
pub struct Op<'a> {
    /// Exports, claims and limits: the way to volumes.
    pub vfs: &'a Vfs,
    /// The exports as they were when the call came.
    pub table: &'a ExportTable,
    /// The session on whose behalf it is served.
    pub session: Session<'a>,
    /// Number of the procedure (RFC 1813 §3.3).
    pub procedure: u32,
    /// What the operation remembers when it is suspended and run again.
    pub cx: &'a mut OpContext,
    /// The results so far.
    pub out: &'a mut Vec<u8>,
    /// Data that follows `out` by reference.
    pub payload: &'a mut Option<Box<Payload>>,
    /// The volume of the first handle, once it is known.
    pub volume: Option<VolumeId>,
}

impl<'a> Op<'a> {
    /// Serves a call whose arguments are decoded; appends its results.
    pub fn run(&mut self, args: &Args<'_>) -> Release {
        match args {
            Args::Null => Ok(None),
            Args::GetAttr(object) => file::getattr(self, object),
            Args::SetAttr(a) => file::setattr(self, a),
            Args::Lookup(at) => names::lookup(self, at),
            Args::Access(object, bits) => file::access(self, object, *bits),
            Args::ReadLink(link) => file::readlink(self, link),
            Args::Read(a) => file::read(self, a),
            Args::Write(a) => file::write(self, a),
            Args::Create(a) => names::create(self, a),
            Args::Mkdir(at, attrs) => names::mkdir(self, at, attrs),
            Args::Symlink(a) => names::symlink(self, a),
            Args::Mknod(a) => names::mknod(self, a),
            Args::Remove(at) => names::remove(self, at),
            Args::Rmdir(at) => names::rmdir(self, at),
            Args::Rename(from, to) => names::rename(self, from, to),
            Args::Link(file, at) => names::link(self, file, at),
            Args::ReadDir(a) => dir::readdir(self, a),
            Args::ReadDirPlus(a) => dir::readdirplus(self, a),
            Args::FsStat(root) => fsinfo::fsstat(self, root),
            Args::FsInfo(root) => fsinfo::fsinfo(self, root),
            Args::PathConf(object) => fsinfo::pathconf(self, object),
            Args::Commit(a) => file::commit(self, a),
        }
    }

    /// Verifies a handle and admits the session.
    fn admit(&mut self, handle: &[u8]) -> Outcome<Admitted<'a, EachCall>> {
        let admitted = self.vfs.admit(self.table, handle, &self.session)?;
        self.volume.get_or_insert(admitted.volume());
        Ok(admitted)
    }

    /// Verifies a handle, admits the session and charges it.
    fn enter<C: Cost>(&mut self, handle: &[u8], cost: C) -> Outcome<(Operand<'a>, Charged<C>)> {
        let admitted = self.admit(handle)?;
        Ok(admitted.charge(self.vfs, self.cx, cost)?)
    }

    fn status(&mut self, status: Status) {
        self.out.put_u32(status as u32);
    }

    /// A failure before there is an object whose attributes could be sent.
    fn refuse(&mut self, why: Unfinished) -> Release {
        let error = failed(why)?;
        self.status(Status::of(self.procedure, error));
        Failure::of(self.procedure).put_absent(self.out);
        Ok(None)
    }

    /// A failure whose `resfail` is a `post_op_attr`.
    fn fail_attr(&mut self, why: Unfinished, object: &Operand<'_>) -> Release {
        let error = failed(why)?;
        self.status(Status::of(self.procedure, error));
        let attr = self.at_hand(object);
        put_post_op(self.out, attr.as_ref());
        Ok(None)
    }

    /// A failure whose `resfail` is a `wcc_data` of each of `objects`.
    fn fail_wcc(&mut self, why: Unfinished, objects: &[&Operand<'_>]) -> Release {
        let error = failed(why)?;
        self.status(Status::of(self.procedure, error));
        for object in objects {
            let attr = self.at_hand(object);
            put_wcc_failed(self.out, attr.as_ref());
        }
        Ok(None)
    }

    /// Attributes for a failed reply; they are optional there, so whatever
    /// keeps them from being read at once leaves them out.
    fn at_hand(&mut self, object: &Operand<'_>) -> Option<Attr> {
        object.attr_at_hand(self.cx)
    }
}

/// The error of a failure; what is suspended goes up as it is.
fn failed(why: Unfinished) -> Result<Error, Suspend> {
    match why {
        Unfinished::Failed(e) => Ok(e),
        // Clients come back by themselves, and a call that waits for another client would wait for up to 35 s.
        Unfinished::Suspended(Suspend::Recall(_)) => Ok(Error::Delay),
        Unfinished::Suspended(suspend) => Err(suspend),
    }
}

/// Splits what an operation gave from when it is durable.
fn split<T>(done: Done<T>) -> (T, Option<Lsn>) {
    (done.value, done.lsn)
}
