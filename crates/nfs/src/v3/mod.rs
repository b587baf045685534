//! NFS version 3 (RFC 1813): one call from its arguments to its encoded results.
//!
//! A procedure is a function over an [`Op`]: it has the vfs admit and charge the session for each
//! handle, acts, and appends its results. It returns the log record that the reply waits for. A
//! suspended call has changed nothing; its results are discarded, and it is run again from the
//! start.
//!
//! Failures have the attributes that the procedure's `resfail` has room for, read after the
//! failure. Attributes from before come only with success, where they are taken atomically with the
//! operation.

pub mod access;
pub mod args;
mod dir;
mod fsinfo;
mod names;
mod op;
pub mod procedure;
mod read_write;
pub mod status;
pub mod types;

use args::Args;

pub use fsinfo::{MAX_READ, MAX_WRITE};
pub(crate) use op::session;
pub use op::{Op, Release, Session};

impl Op<'_> {
    /// Serves a call whose arguments are decoded; appends its results.
    ///
    /// # Errors
    /// The call has failed and its results contain the status, or it is suspended.
    pub fn run(&mut self, args: &Args<'_>) -> Release {
        match args {
            Args::Null => Ok(None),
            Args::GetAttr(object) => read_write::getattr(self, object),
            Args::SetAttr(a) => read_write::setattr(self, a),
            Args::Lookup(at) => names::lookup(self, at),
            Args::Access(object, bits) => read_write::access(self, object, *bits),
            Args::ReadLink(link) => read_write::readlink(self, link),
            Args::Read(a) => read_write::read(self, a),
            Args::Write(a) => read_write::write(self, a),
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
            Args::Commit(a) => read_write::commit(self, a),
        }
    }
}
