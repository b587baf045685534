//! NFS version 3 (RFC 1813): one call from its arguments to its encoded results.
//!
//! A procedure is a function over an [`Op`]: it resolves the handles, acts
//! through the vfs, and appends its results. What it returns says when the
//! reply may be released. `Err(Stop)` other than a failure means that nothing
//! was changed and the call is to be run again from the start; then what was
//! appended is thrown away.
//!
//! Failures carry the attributes that the procedure's `resfail` has room for,
//! read after the failure; "before" attributes only come with success, where
//! they are taken atomically with the operation.

pub mod args;
mod dir;
mod file;
mod fsinfo;
mod names;
pub mod status;
pub mod types;

use crate::failure::Failure;
use crate::limit::{Halt, Limited};
use crate::reply::Payload;
use crate::xdr::Put;
use args::Args;
use status::Status;
use types::{put_post_op, put_wcc_failed};
use weir_base::{Ino, Lsn};
use weir_vfs::names::Wait;
use weir_vfs::volume::{Attr, Done, FsError, Stop};
use weir_vfs::{
    Client, Creds, Cx, Export, ExportTable, HANDLE_BYTES, NoSubject, Subject, Upkeep, Vfs,
};

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

/// What limits take a procedure for, if it is no READ or WRITE.
pub fn upkeep(procedure: u32) -> Option<Upkeep> {
    Some(match procedure {
        6 | 7 => return None,
        // SETATTR; CREATE to LINK.
        2 | 8..=15 => Upkeep::Change,
        // GETATTR, LOOKUP, ACCESS, READLINK; READDIR, READDIRPLUS, FSSTAT.
        1 | 3..=5 | 16..=18 => Upkeep::Look,
        // NULL, FSINFO, PATHCONF, COMMIT.
        _ => Upkeep::Protocol,
    })
}

/// When the reply may be released: at once, or when the log has come so far.
pub type Release = Result<Option<Lsn>, Halt>;

/// One call being served.
pub struct Op<'a> {
    /// The waist.
    pub vfs: &'a Vfs,
    /// The exports as they were when the call came.
    pub table: &'a ExportTable,
    /// The client.
    pub client: Client<'a>,
    /// The caller; `None` without identity.
    pub caller: Option<&'a Creds>,
    /// The procedure.
    pub procedure: u32,
    /// The request's context in the engine.
    pub cx: &'a mut Cx,
    /// The results so far.
    pub out: &'a mut Vec<u8>,
    /// Data that follows `out` by reference.
    pub payload: &'a mut Option<Box<Payload>>,
    /// The export of the first handle, once it is known.
    pub export: Option<&'a Export>,
    /// Set when it takes a name that is not known to tell whether the client is admitted.
    pub unknown: Option<Wait>,
    /// How the call stands with its volume's limits.
    pub limited: &'a mut Limited,
}

impl<'a> Op<'a> {
    /// Serves decoded arguments.
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

    /// Verifies a handle and admits the caller.
    fn admit(&mut self, handle: &[u8]) -> Result<(Subject<'a>, Ino), Status> {
        match self
            .vfs
            .admit(self.table, handle, &self.client, self.caller)
        {
            Ok((subject, ino)) => {
                self.export.get_or_insert(subject.export);
                Ok((subject, ino))
            }
            Err(why) => {
                let status = Status::from(why);
                if let NoSubject::Unknown(wait) = why {
                    self.unknown = Some(wait);
                }
                Err(status)
            }
        }
    }

    /// The handle of an inode of the subject's export.
    fn handle(&self, subject: &Subject<'_>, ino: Ino) -> [u8; HANDLE_BYTES] {
        self.vfs.handle(subject.export, subject.spot(ino))
    }

    fn status(&mut self, status: Status) {
        self.out.put_u32(status as u32);
    }

    /// A failure before there is an object whose attributes could be told.
    fn refuse(&mut self, status: Status) -> Release {
        self.status(status);
        Failure::of(self.procedure).put_absent(self.out);
        Ok(None)
    }

    /// Attributes for a failed reply; they are optional there, so whatever
    /// keeps them from being read at once leaves them out.
    fn attrs_if_at_hand(&mut self, subject: &Subject<'_>, ino: Ino) -> Option<Attr> {
        subject.getattr(self.cx, ino).ok()
    }

    /// A failure whose `resfail` is a `post_op_attr`.
    fn fail_attr(&mut self, stop: Stop, subject: &Subject<'_>, ino: Ino) -> Release {
        let status = failed(stop)?;
        self.status(status);
        let attr = self.attrs_if_at_hand(subject, ino);
        put_post_op(self.out, attr.as_ref());
        Ok(None)
    }

    /// A failure whose `resfail` is one `wcc_data`.
    fn fail_wcc(&mut self, stop: Stop, subject: &Subject<'_>, ino: Ino) -> Release {
        let status = failed(stop)?;
        self.status(status);
        let attr = self.attrs_if_at_hand(subject, ino);
        put_wcc_failed(self.out, attr.as_ref());
        Ok(None)
    }
}

/// The status of a failure; anything else goes up as it is.
fn failed(stop: Stop) -> Result<Status, Stop> {
    match stop {
        Stop::Fail(e) => Ok(e.into()),
        other => Err(other),
    }
}

/// Reading and writing what is no regular file is INVAL in NFSv3, also for
/// directories (RFC 1813 §3.3.6, §3.3.7, §3.3.21 have no ISDIR).
fn is_dir_as_invalid(stop: Stop) -> Stop {
    match stop {
        Stop::Fail(FsError::IsDir) => Stop::Fail(FsError::Invalid),
        other => other,
    }
}

/// Splits what an operation gave from when it is durable.
fn split<T>(done: Done<T>) -> (T, Option<Lsn>) {
    (done.value, done.lsn)
}
