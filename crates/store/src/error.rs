//! Errors of the store: the failed operation, the place and the cause.

use std::fmt;
use std::io;
use std::sync::Arc;

use weir_base::BlockAddr;

/// A kind of call to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoKind {
    /// A read: [`crate::Device::read`].
    Read,
    /// A write: [`crate::Device::write`].
    Write,
    /// A flush: [`crate::Device::flush`].
    Flush,
    /// A discard: [`crate::Device::discard`].
    Discard,
}

impl fmt::Display for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoKind::Read => "read",
            IoKind::Write => "write",
            IoKind::Flush => "flush",
            IoKind::Discard => "discard",
        })
    }
}

/// A failed call to a device. It can be cloned, because one failed read may have several waiters.
#[derive(Clone, Debug)]
pub struct IoError {
    /// The call that failed.
    pub kind: IoKind,
    /// First block of the range; 0 for a flush.
    pub addr: BlockAddr,
    /// Blocks in the range; 0 for a flush.
    pub count: u64,
    /// The operating system's reason.
    pub source: Arc<io::Error>,
}

impl IoError {
    /// Creates an error of `kind` on `count` blocks from `addr`.
    pub fn new(kind: IoKind, addr: BlockAddr, count: u64, source: io::Error) -> IoError {
        IoError {
            kind,
            addr,
            count,
            source: Arc::new(source),
        }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            IoKind::Flush => write!(f, "flush failed: {}", self.source),
            kind => {
                write!(
                    f,
                    "{kind} of {} blocks at {} failed: {}",
                    self.count, self.addr, self.source
                )
            }
        }
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// An error of the store.
#[derive(Clone, Debug)]
pub enum StoreError {
    /// A device call failed, for the host's reason.
    Io(IoError),
    /// The contents of a block do not match its pointer.
    Corrupt {
        /// Address of the block on the device.
        addr: BlockAddr,
        /// Description of the mismatch.
        what: &'static str,
    },
    /// No space is left on the device, including the host's disk.
    NoSpace,
    /// No page frame could be freed: all are dirty or in use.
    NoMemory,
    /// An earlier write failed; the aggregate is read-only until a restart.
    Poisoned(Arc<str>),
    /// The aggregate's files are invalid.
    Format(Arc<str>),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io(e) => e.fmt(f),
            StoreError::Corrupt { addr, what } => write!(f, "block {addr} is damaged: {what}"),
            StoreError::NoSpace => f.write_str("no space left on the device"),
            StoreError::NoMemory => f.write_str("no page frame is free"),
            StoreError::Poisoned(why) => write!(f, "the aggregate is read-only: {why}"),
            StoreError::Format(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<IoError> for StoreError {
    fn from(e: IoError) -> StoreError {
        StoreError::Io(e)
    }
}
