//! Outcome of a call that is not carried out, in gRPC's terms.

/// A status code of gRPC (google/rpc/code.proto).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are gRPC's.
pub enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    /// Returns the code of a name, such as `NOT_FOUND`.
    pub fn from_name(name: &str) -> Option<Code> {
        use Code::*;
        Some(match name {
            "INVALID_ARGUMENT" => InvalidArgument,
            "DEADLINE_EXCEEDED" => DeadlineExceeded,
            "NOT_FOUND" => NotFound,
            "ALREADY_EXISTS" => AlreadyExists,
            "PERMISSION_DENIED" => PermissionDenied,
            "RESOURCE_EXHAUSTED" => ResourceExhausted,
            "FAILED_PRECONDITION" => FailedPrecondition,
            "ABORTED" => Aborted,
            "OUT_OF_RANGE" => OutOfRange,
            "UNIMPLEMENTED" => Unimplemented,
            "INTERNAL" | "UNKNOWN" | "DATA_LOSS" => Internal,
            "UNAVAILABLE" | "CANCELLED" => Unavailable,
            "UNAUTHENTICATED" => Unauthenticated,
            _ => return None,
        })
    }

    /// Returns the code of a number, as an operation's error has it.
    pub fn numbered(number: u64) -> Code {
        use Code::*;
        let all = [
            InvalidArgument,
            DeadlineExceeded,
            NotFound,
            AlreadyExists,
            PermissionDenied,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            OutOfRange,
            Unimplemented,
            Internal,
            Unavailable,
            Unauthenticated,
        ];
        let found = all.into_iter().find(|code| *code as u64 == number);
        found.unwrap_or(Internal)
    }
}

/// Reason for which a call is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The kind, by which callers decide whether to call again.
    pub code: Code,
    /// Message for people, which Kubernetes shows as an event.
    pub message: String,
    /// The server's own reason, such as `POOL_CAPACITY_EXCEEDED`; empty: it is the driver's.
    pub reason: String,
}

impl Status {
    /// Creates a status of the driver's own.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status {
            code,
            message: message.into(),
            reason: String::new(),
        }
    }

    /// Creates the status of a call whose field is missing or wrong.
    pub fn invalid(message: impl Into<String>) -> Status {
        Status::new(Code::InvalidArgument, message)
    }

    /// Creates the status of a call about something that does not exist.
    pub fn not_found(kind: &str, id: &str) -> Status {
        Status::new(Code::NotFound, format!("there is no {kind} {id:?}"))
    }

    /// Returns the status with another code.
    #[must_use]
    pub fn with(self, code: Code) -> Status {
        Status { code, ..self }
    }
}

/// Result of a call.
pub type Outcome<T> = Result<T, Status>;
