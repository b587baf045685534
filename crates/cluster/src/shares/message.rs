//! Messages between a node's daemon and its servers about shared limits.
//!
//! A server names the time of each reply. The daemon passes its reports on to the tables, reads
//! the rows, and names that time in its next request. So a server knows a time after which the
//! rows were read, however late they come, and that they are not of the time before its start.

use serde::{Deserialize, Serialize};

use super::{Report, Share};

/// A server's report about its part in a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitReport {
    /// Identity of the limit.
    pub limit: u64,
    /// Number of the part.
    pub part: u8,
    /// Number of parts.
    pub parts: u8,
    /// Bytes a second that were provisioned here: an equal part of the limit.
    pub provisioned: u64,
    /// The report.
    #[serde(flatten)]
    pub report: Report,
}

/// Row of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// Identity of the limit.
    pub limit: u64,
    /// Number of the part.
    pub part: u8,
    /// The share.
    #[serde(flatten)]
    pub share: Share,
}

/// Maximum number of rows in a request.
pub const GRANTS_MAX: usize = 40;

/// Request of a daemon: the rows of the parts that the server has reported.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Name of the reply after which the rows were read; empty if none were.
    pub as_of: String,
    /// Term of the present leader.
    pub term: i64,
    /// The rows, or some of them: a request is a line of bounded length.
    pub grants: Vec<Grant>,
}

/// Reply of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// Name of this reply.
    pub as_of: String,
    /// The parts that the server has.
    pub reports: Vec<LimitReport>,
}
