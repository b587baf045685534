//! Errors of commands, and their texts as gcloud writes them.

use serde_json::Value;

use crate::format::yaml_document;

/// Failure of a command.
#[derive(Debug)]
pub enum Error {
    /// The server refused the request, or an operation failed
    Api {
        /// The canonical code, such as `FAILED_PRECONDITION`
        status: String,
        /// Message for the user; one line or more
        message: String,
        /// `google.rpc` error details, as the server sent them
        details: Vec<Value>,
    },
    /// The server could not be reached, or did not reply as it should
    Unreachable(String),
    /// A line of ONTAP's command language was refused: in its own words
    Refused(String),
    /// The output's reader has closed it
    Closed,
    /// A flag or an argument is wrong, whatever the server says
    Usage(String),
    /// Something on this machine is wrong
    Other(String),
}

/// Exit code of a command that failed.
pub const FAILED: u8 = 1;
/// Exit code of a command line that is wrong, as clap's.
pub const USAGE: u8 = 2;

impl Error {
    /// Returns the lines to print for a command such as `volumes.create`.
    pub fn lines(&self, command: &str) -> String {
        match self {
            Self::Api {
                status,
                message,
                details,
            } => {
                let mut out = format!("ERROR: (weir.{command}) {status}: {message}\n");
                if !details.is_empty() {
                    out.push_str(&yaml_document(&Value::Array(details.clone())));
                }
                out
            }
            Self::Unreachable(message) => {
                format!("ERROR: (weir.{command}) UNAVAILABLE: {message}\n")
            }
            Self::Usage(message) | Self::Other(message) => {
                format!("ERROR: (weir.{command}) {message}\n")
            }
            Self::Refused(text) => text.clone(),
            Self::Closed => String::new(),
        }
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            _ => FAILED,
        }
    }

    /// Returns the error in a response of ONTAP's interface.
    pub fn from_ontap(error: &Value, http: u16) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        let code = text("code").map_or_else(String::new, |code| format!(" (ONTAP code {code})"));
        let status = match http {
            400 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            405 | 501 => "UNIMPLEMENTED",
            409 => "FAILED_PRECONDITION",
            503 => "UNAVAILABLE",
            _ => "INTERNAL",
        };
        Self::Api {
            status: status.to_owned(),
            message: format!("{}{code}", text("message").unwrap_or("no message")),
            details: Vec::new(),
        }
    }

    /// Returns the error in a response's body or in an operation. Codes of operations are the
    /// canonical ones; those of responses are HTTP's, with the canonical one's name beside them.
    pub fn from_body(error: &Value, http: Option<u16>) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        let code = error.get("code").and_then(Value::as_i64);
        let status = text("status").unwrap_or_else(|| match (http, code) {
            (Some(http), _) => format!("HTTP {http}"),
            (None, Some(code)) => canonical(code).to_owned(),
            (None, None) => canonical(2).to_owned(),
        });
        let details = error.get("details").and_then(Value::as_array).cloned();
        Self::Api {
            status,
            message: text("message").unwrap_or_else(|| "no message".to_owned()),
            details: details.unwrap_or_default(),
        }
    }
}

/// Returns the names of the canonical codes (`google.rpc.Code`).
fn canonical(code: i64) -> &'static str {
    match code {
        1 => "CANCELLED",
        3 => "INVALID_ARGUMENT",
        4 => "DEADLINE_EXCEEDED",
        5 => "NOT_FOUND",
        6 => "ALREADY_EXISTS",
        7 => "PERMISSION_DENIED",
        8 => "RESOURCE_EXHAUSTED",
        9 => "FAILED_PRECONDITION",
        10 => "ABORTED",
        11 => "OUT_OF_RANGE",
        12 => "UNIMPLEMENTED",
        13 => "INTERNAL",
        14 => "UNAVAILABLE",
        15 => "DATA_LOSS",
        16 => "UNAUTHENTICATED",
        _ => "UNKNOWN",
    }
}

/// Parsers of flags return text.
impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::Usage(message)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Other(error.to_string()),
        }
    }
}
