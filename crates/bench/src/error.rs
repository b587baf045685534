//! Errors that end a run before it is complete.

use crate::nfs3::status_name;
use crate::rpc::RpcError;
use crate::xdr::XdrError;
use std::fmt;
use std::io;

/// A failure that leaves no result worth printing.
#[derive(Debug)]
pub enum BenchError {
    /// The operating system refused something.
    Io(String, io::Error),
    /// The server sent what the protocol does not allow, or nothing in time.
    Protocol(String),
    /// A call of the preparation failed with this status.
    Status(&'static str, u32),
    /// A request of the preparation failed over SMB, with this status and its name.
    Refused(&'static str, String, u32),
    /// The user asked for the end.
    Interrupted,
    /// The arguments ask for what cannot be done.
    Usage(String),
}

impl BenchError {
    /// An [`io::Error`] with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |e| Self::Io(what, e)
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what, e) => write!(f, "{what}: {e}"),
            Self::Protocol(what) => write!(f, "protocol error: {what}"),
            Self::Status(what, s) => write!(f, "{what} failed with {} ({s})", status_name(*s)),
            Self::Refused(what, name, s) => write!(f, "{what} failed with {name} ({s:#010x})"),
            Self::Interrupted => write!(f, "interrupted"),
            Self::Usage(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<XdrError> for BenchError {
    fn from(e: XdrError) -> Self {
        Self::Protocol(format!("malformed results: {e}"))
    }
}

impl From<RpcError> for BenchError {
    fn from(e: RpcError) -> Self {
        Self::Protocol(e.to_string())
    }
}
