//! Why something was not done, in the terms of the HTTP surfaces.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use weir_relations::manager::{Reason, Refused};

/// gRPC's canonical codes, as far as they are used here; what clients' retry logic decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// The request can never be right, whatever the state.
    InvalidArgument,
    /// There is no such resource.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The caller's role does not allow it.
    PermissionDenied,
    /// No token, or none that counts.
    Unauthenticated,
    /// A quota, or no room.
    ResourceExhausted,
    /// The state forbids it; something else has to be changed first.
    FailedPrecondition,
    /// Beyond what is valid.
    OutOfRange,
    /// It collided with something else; may be tried again.
    Aborted,
    /// Not offered by this server.
    Unimplemented,
    /// A fault of ours.
    Internal,
    /// Not now; may be tried again.
    Unavailable,
    /// It took longer than the caller would wait.
    DeadlineExceeded,
}

impl Status {
    /// The number in `google.rpc.Status.code`.
    pub fn grpc(self) -> i32 {
        match self {
            Status::InvalidArgument => 3,
            Status::DeadlineExceeded => 4,
            Status::NotFound => 5,
            Status::AlreadyExists => 6,
            Status::PermissionDenied => 7,
            Status::ResourceExhausted => 8,
            Status::FailedPrecondition => 9,
            Status::Aborted => 10,
            Status::OutOfRange => 11,
            Status::Unimplemented => 12,
            Status::Internal => 13,
            Status::Unavailable => 14,
            Status::Unauthenticated => 16,
        }
    }

    /// The HTTP status that google.rpc.Code documents for it.
    pub fn http(self) -> u16 {
        match self {
            Status::InvalidArgument | Status::FailedPrecondition | Status::OutOfRange => 400,
            Status::Unauthenticated => 401,
            Status::PermissionDenied => 403,
            Status::NotFound => 404,
            Status::AlreadyExists | Status::Aborted => 409,
            Status::ResourceExhausted => 429,
            Status::Internal => 500,
            Status::Unimplemented => 501,
            Status::Unavailable => 503,
            Status::DeadlineExceeded => 504,
        }
    }

    /// The canonical name, such as `FAILED_PRECONDITION`.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::InvalidArgument => "INVALID_ARGUMENT",
            Status::NotFound => "NOT_FOUND",
            Status::AlreadyExists => "ALREADY_EXISTS",
            Status::PermissionDenied => "PERMISSION_DENIED",
            Status::Unauthenticated => "UNAUTHENTICATED",
            Status::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Status::FailedPrecondition => "FAILED_PRECONDITION",
            Status::OutOfRange => "OUT_OF_RANGE",
            Status::Aborted => "ABORTED",
            Status::Unimplemented => "UNIMPLEMENTED",
            Status::Internal => "INTERNAL",
            Status::Unavailable => "UNAVAILABLE",
            Status::DeadlineExceeded => "DEADLINE_EXCEEDED",
        }
    }
}

/// A request that was not carried out, and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For the client's retry logic.
    pub status: Status,
    /// The rule, in UPPER_SNAKE: `ErrorInfo.reason`.
    pub reason: Cow<'static, str>,
    /// The rule, the numbers, and what would fit.
    pub message: String,
    /// The numbers once more, for programs: `ErrorInfo.metadata`.
    pub metadata: Vec<(Cow<'static, str>, String)>,
}

impl Refusal {
    /// A refusal without numbers.
    pub fn new(status: Status, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            metadata: Vec::new(),
        }
    }

    /// The same with the field that is to blame, by its JSON name.
    #[must_use]
    pub fn field(self, field: &'static str) -> Refusal {
        self.with("field", field)
    }

    /// The same with one more number.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Refusal {
        self.metadata.push((Cow::Borrowed(key), value.to_string()));
        self
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        let (status, reason) = match refused.reason {
            Reason::NotFound => (Status::NotFound, "NOT_FOUND"),
            Reason::Duplicate => (Status::AlreadyExists, "ALREADY_EXISTS"),
            Reason::Invalid => (Status::InvalidArgument, "INVALID_FIELD"),
            Reason::State => (Status::FailedPrecondition, "REPLICATION_STATE"),
            Reason::Busy => (Status::Aborted, "TRANSFER_IN_PROGRESS"),
            Reason::Unsupported => (Status::Unimplemented, "NOT_IMPLEMENTED"),
            Reason::Denied => (Status::PermissionDenied, "ROLE_INSUFFICIENT"),
            Reason::Failed => (Status::Internal, "REPLICATION_FAILED"),
        };
        Refusal::new(status, reason, refused.text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for Refusal {}
