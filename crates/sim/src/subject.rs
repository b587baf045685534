//! Subjects that are compared with the model: the engine, or a protocol on top of it.

use weir_base::Time;

use crate::model::{Errno, Kind, Name, Op, Slot, Stable};

/// A subject's name for an object: an inode number or a file handle.
pub type Handle = Vec<u8>;

/// Attributes as the subject reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ReportedAttr {
    pub kind: Kind,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub rdev: (u32, u32),
    pub fileid: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// Change counter, where the subject has one.
    pub change: Option<u64>,
}

/// Size, mtime and ctime before an operation (`pre_op_attr` of RFC 1813).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Before {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
    pub change: Option<u64>,
}

/// Attributes around an operation, as far as the subject gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The attributes before the operation.
    pub before: Option<Before>,
    /// The attributes after the operation.
    pub after: Option<ReportedAttr>,
}

/// A directory entry as the subject lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Entry {
    pub name: Name,
    pub fileid: u64,
    pub cookie: u64,
    pub attr: Option<ReportedAttr>,
}

/// A successful result; fields that do not belong to the operation are empty.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The object created or found.
    pub object: Option<Handle>,
    /// Its attributes, or those of the object asked about.
    pub attr: Option<ReportedAttr>,
    /// Attributes around the operation, in the order of [`crate::model::Expect::changed`].
    pub changed: Vec<Around>,
    /// Bytes read, or a link's target.
    pub data: Option<Vec<u8>>,
    /// True if a READ reached the end of the file.
    pub eof: Option<bool>,
    /// The whole directory, collected in pieces of the size that the operation says.
    pub entries: Option<Vec<Entry>>,
    /// Stability granted to a write, and bytes taken.
    pub written: Option<(Stable, u32)>,
    /// The reply may be sent when the log is durable up to this LSN; 0: at once.
    pub lsn: u64,
}

/// Something that performs operations.
pub trait Subject {
    /// Handle of the root directory.
    fn root(&mut self) -> Handle;

    /// Performs `op` at time `now`; `handle` translates its slots, and `ctime` is the guard to use
    /// where one is asked for.
    ///
    /// # Errors
    /// The error that the subject returned.
    fn call(
        &mut self,
        op: &Op,
        now: Time,
        handle: &dyn Fn(Slot) -> Handle,
        guard: Option<Time>,
    ) -> Result<Answer, Errno>;

    /// The log is durable up to here.
    fn durable(&self) -> u64;
}
