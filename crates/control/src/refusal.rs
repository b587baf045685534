//! Refusals of requests, in the terms of the HTTP surfaces.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use weir_relations::manager::{Reason, VerbRefusal};

/// gRPC's canonical codes, as far as they are used here; clients' retry logic depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// The request is invalid in any state.
    InvalidArgument,
    /// There is no such resource.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The caller's role does not allow it.
    PermissionDenied,
    /// No token, or an invalid one.
    Unauthenticated,
    /// A quota is exceeded, or there is no space.
    ResourceExhausted,
    /// The state forbids it; another change has to come first.
    FailedPrecondition,
    /// Beyond the valid range.
    OutOfRange,
    /// It conflicts with another change; may be retried.
    Aborted,
    /// Not offered by this server.
    Unimplemented,
    /// A defect of this server.
    Internal,
    /// Temporarily impossible; may be retried.
    Unavailable,
    /// It took longer than the caller waits.
    DeadlineExceeded,
}

impl Status {
    /// Returns the status of a canonical name.
    pub fn from_name(name: &str) -> Option<Status> {
        serde_json::from_value(serde_json::Value::from(name)).ok()
    }

    /// Returns the number in `google.rpc.Status.code`.
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

    /// Returns the HTTP status documented for google.rpc.Code.
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

    /// Returns the canonical name, such as `FAILED_PRECONDITION`.
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
    /// Code for the client's retry logic.
    pub status: Status,
    /// The rule, in UPPER_SNAKE: `ErrorInfo.reason`.
    pub reason: Cow<'static, str>,
    /// Message with the rule, the numbers, and a valid value.
    pub message: String,
    /// The numbers for programs: `ErrorInfo.metadata`.
    pub metadata: Vec<(Cow<'static, str>, String)>,
}

impl Refusal {
    /// Creates a refusal without numbers.
    pub fn new(status: Status, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            metadata: Vec::new(),
        }
    }

    /// Adds the invalid field, by its JSON name.
    #[must_use]
    pub fn field(self, field: &'static str) -> Refusal {
        self.with("field", field)
    }

    /// Adds a number.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Refusal {
        self.metadata.push((Cow::Borrowed(key), value.to_string()));
        self
    }
}

impl Refusal {
    /// Returns the reason that ONTAP's interface gives for it.
    pub fn relation_reason(&self) -> Reason {
        match self.status {
            Status::NotFound => Reason::NotFound,
            Status::AlreadyExists => Reason::Duplicate,
            Status::InvalidArgument | Status::OutOfRange => Reason::Invalid,
            Status::FailedPrecondition => Reason::State,
            Status::Aborted | Status::Unavailable => Reason::Busy,
            Status::Unimplemented => Reason::Unsupported,
            Status::PermissionDenied => Reason::Denied,
            _ => Reason::Failed,
        }
    }
}

impl From<VerbRefusal> for Refusal {
    fn from(refused: VerbRefusal) -> Refusal {
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
