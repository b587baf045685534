//! Errors in the shape that clients of the public APIs parse: an HTTP status and
//! `{"error": {code, message, status, details: [ErrorInfo, BadRequest, LocalizedMessage]}}`
//! (<https://cloud.google.com/apis/design/errors>, google/rpc/error_details.proto).
//!
//! The pairing of status names and HTTP codes is google/rpc/code.proto's. Clients decide from the
//! code whether to try again (429, 499, 503, 504 they do; 400, 403, 404, 409 they do not).

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weir_control::Refusal;
pub use weir_control::Status;

use crate::verdict;
use crate::words::{Language, Words};

/// A field of the request that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field, such as `exportPolicy.rules[0].anonUid`.
    pub field: String,
    /// Text for people that says what is wrong with it.
    pub description: String,
}

/// The response to a request that is refused or fails.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The canonical status (`google.rpc.Code`).
    pub status: Status,
    /// An HTTP code other than the status's own (405, 413), for clients that read that.
    pub http: Option<u16>,
    /// The code in the body, where it is not HTTP's: ONTAP's, of a refusal that is passed through.
    pub shown_code: Option<u32>,
    /// Message for people, in English.
    pub message: String,
    /// Reason for programs: the rule's name, UPPER_SNAKE.
    pub reason: String,
    /// Values that the rule is about.
    pub metadata: Vec<(String, String)>,
    /// Fields that are wrong.
    pub violations: Vec<Violation>,
    /// Sentence on what would fit instead.
    pub sentence: Option<Words>,
    /// Seconds after which the request may be tried again, where that is known.
    pub retry_after: Option<i64>,
    /// `netapp.googleapis.com` or `file.googleapis.com`; the dispatcher fills it in.
    pub domain: &'static str,
    /// Language of the sentence; the dispatcher fills it in.
    pub language: Language,
}

/// With what a client without credentials is challenged.
pub(crate) const CHALLENGE: &str = "Bearer realm=\"weir\"";

/// The domain of errors that belong to no API in particular.
pub const OWN_DOMAIN: &str = "weir";

impl ApiError {
    /// Creates an error without particulars.
    pub fn new(
        status: Status,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Box<ApiError> {
        Box::new(ApiError {
            status,
            http: None,
            shown_code: None,
            message: message.into(),
            reason: reason.into(),
            metadata: Vec::new(),
            violations: Vec::new(),
            sentence: None,
            retry_after: None,
            domain: OWN_DOMAIN,
            language: Language::default(),
        })
    }

    /// Returns the error with another HTTP code than its status has.
    pub fn over_http(mut self: Box<ApiError>, code: u16) -> Box<ApiError> {
        self.http = Some(code);
        self
    }

    /// Creates the error of a request whose fields are wrong. The message is the first violation's
    /// description.
    pub fn fields(violations: Vec<Violation>) -> Box<ApiError> {
        let message = match violations.as_slice() {
            [] => "Request contains an invalid argument.".to_owned(),
            [one] => one.description.clone(),
            [first, rest @ ..] => {
                format!("{} ({} more in the details)", first.description, rest.len())
            }
        };
        let mut e = ApiError::new(Status::InvalidArgument, "INVALID_FIELD", message);
        e.violations = violations;
        e
    }

    /// Creates the error of a request with one wrong field.
    pub fn field(field: impl Into<String>, description: impl Into<String>) -> Box<ApiError> {
        ApiError::fields(vec![Violation {
            field: field.into(),
            description: description.into(),
        }])
    }

    /// Creates the error of a resource that does not exist.
    pub fn not_found(name: &str) -> Box<ApiError> {
        let mut e = ApiError::new(
            Status::NotFound,
            "RESOURCE_NOT_FOUND",
            format!("Resource '{name}' was not found"),
        );
        e.metadata.push(("resource".to_owned(), name.to_owned()));
        e
    }

    /// Creates the error of a feature that the API has and this server does not. `instead` is what
    /// to do, as a sentence; empty: there is nothing.
    ///
    /// Not UNIMPLEMENTED, which is 501: gcloud takes every 5xx for a passing failure, tries five
    /// times in half a minute, and then blames the network. A 400 it shows at once, with its
    /// message.
    pub fn unimplemented(what: &str, instead: &str) -> Box<ApiError> {
        let space = if instead.is_empty() { "" } else { ". " };
        ApiError::new(
            Status::FailedPrecondition,
            "NOT_IMPLEMENTED",
            format!("{what} is not implemented by this server{space}{instead}"),
        )
    }

    /// Returns a refusal of the control plane. Where one field is to blame, its metadata names it.
    pub fn refused(refusal: Refusal) -> Box<ApiError> {
        let status = match refusal.status {
            // As in `unimplemented`.
            Status::Unimplemented => Status::FailedPrecondition,
            status => status,
        };
        let sentence = verdict::of_refusal(&refusal);
        let mut e = ApiError::new(status, refusal.reason, refusal.message);
        e.sentence = sentence;
        for (k, v) in refusal.metadata {
            if k == "field" {
                e.violations.push(Violation {
                    field: v.clone(),
                    description: e.message.clone(),
                });
            }
            e.metadata.push((k.into_owned(), v));
        }
        e
    }

    /// Reads the body of an error that a server of this program has sent.
    pub(crate) fn of_body(body: &[u8]) -> Box<ApiError> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = body.get("error").cloned().unwrap_or_default();
        let text = |value: &Value, name: &str| {
            let text = value.get(name).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let status = Status::from_name(&text(&error, "status")).unwrap_or(Status::Internal);
        let mut out = ApiError::new(status, "", text(&error, "message"));
        let code = error.get("code").and_then(Value::as_u64);
        out.http = code.and_then(|code| u16::try_from(code).ok());
        for detail in error
            .get("details")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            match text(detail, "@type").rsplit('.').next() {
                Some("ErrorInfo") => {
                    out.reason = text(detail, "reason");
                    out.domain = match text(detail, "domain").as_str() {
                        "netapp.googleapis.com" => "netapp.googleapis.com",
                        "file.googleapis.com" => "file.googleapis.com",
                        _ => OWN_DOMAIN,
                    };
                    let all = detail.get("metadata").and_then(Value::as_object);
                    let all = all.into_iter().flatten();
                    let pair = |(name, value): (&String, &Value)| {
                        Some((name.clone(), value.as_str()?.to_owned()))
                    };
                    out.metadata = all.filter_map(pair).collect();
                }
                Some("BadRequest") => {
                    let all = detail.get("fieldViolations").and_then(Value::as_array);
                    let violation = |one: &Value| Violation {
                        field: text(one, "field"),
                        description: text(one, "description"),
                    };
                    out.violations = all.into_iter().flatten().map(violation).collect();
                }
                _ => {}
            }
        }
        out
    }

    /// Returns the HTTP status line's code.
    pub fn code(&self) -> u16 {
        self.http.unwrap_or(self.status.http())
    }

    /// Returns the details: ErrorInfo always, BadRequest where fields are wrong, LocalizedMessage
    /// where there is a sentence.
    pub fn details(&self) -> Value {
        let metadata: Map<String, Value> = self
            .metadata
            .iter()
            .map(|(k, v)| (k.clone(), json!(v)))
            .collect();
        let mut info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": self.domain,
        });
        if let (false, Some(info)) = (metadata.is_empty(), info.as_object_mut()) {
            info.insert("metadata".to_owned(), Value::Object(metadata));
        }
        let mut details = vec![info];
        if !self.violations.is_empty() {
            let violations: Vec<Value> = self
                .violations
                .iter()
                .map(|v| json!({"field": v.field, "description": v.description}))
                .collect();
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": violations,
            }));
        }
        if let Some(sentence) = &self.sentence {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.LocalizedMessage",
                "locale": self.language.tag(),
                "message": sentence.text(self.language),
            }));
        }
        Value::Array(details)
    }

    /// Returns the reason in the words of Google's older interfaces (`global` errors of
    /// googleapis' JSON-C style).
    fn legacy_reason(&self) -> &'static str {
        match self.code() {
            401 => "authError",
            403 => "forbidden",
            404 => "notFound",
            405 => "httpMethodNotAllowed",
            409 if self.status == Status::AlreadyExists => "alreadyExists",
            409 => "aborted",
            412 => "conditionNotMet",
            413 => "uploadTooLarge",
            429 => "rateLimitExceeded",
            501 => "notImplemented",
            500 => "internalError",
            502.. => "backendError",
            _ if self.status == Status::FailedPrecondition => "failedPrecondition",
            _ => "badRequest",
        }
    }

    /// Returns the body, as AIP-193 defines it.
    pub fn body(&self) -> Value {
        json!({"error": {
            "code": self.shown_code.unwrap_or_else(|| self.code().into()),
            "message": self.message,
            "status": self.status.as_str(),
            // The form of Google's older interfaces, which clients made from them still read.
            "errors": [{
                "domain": "global",
                "reason": self.legacy_reason(),
                "message": self.message,
            }],
            "details": self.details(),
        }})
    }
}

impl ApiError {
    /// Adds the time after which the client may try again, if it is known.
    pub(crate) fn add_retry_after(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

impl From<Refusal> for Box<ApiError> {
    fn from(refusal: Refusal) -> Box<ApiError> {
        ApiError::refused(refusal)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = axum::http::StatusCode::from_u16(self.code())
            .unwrap_or(axum::http::StatusCode::INTERNAL_SERVER_ERROR);
        let mut r = (status, axum::Json(self.body())).into_response();
        self.add_retry_after(r.headers_mut());
        if self.status == Status::Unauthenticated {
            r.headers_mut().insert(
                axum::http::header::WWW_AUTHENTICATE,
                axum::http::HeaderValue::from_static(CHALLENGE),
            );
        }
        r
    }
}

/// Result of a handler. Boxed: an error is large and rare.
pub type ApiResult<T> = Result<T, Box<ApiError>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_the_one_that_clients_parse() {
        let mut e = ApiError::field("capacityGib", "must be positive");
        e.domain = "netapp.googleapis.com";
        e.metadata.push(("rule".to_owned(), "x".to_owned()));
        assert_eq!(
            e.body(),
            json!({"error": {
                "code": 400,
                "message": "must be positive",
                "status": "INVALID_ARGUMENT",
                "errors": [{
                    "domain": "global",
                    "reason": "badRequest",
                    "message": "must be positive",
                }],
                "details": [
                    {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_FIELD",
                     "domain": "netapp.googleapis.com", "metadata": {"rule": "x"}},
                    {"@type": "type.googleapis.com/google.rpc.BadRequest",
                     "fieldViolations": [{"field": "capacityGib", "description": "must be positive"}]},
                ],
            }})
        );
    }

    #[test]
    fn an_error_is_read_back() {
        let mut e = ApiError::field("capacityGib", "must be positive");
        e.domain = "file.googleapis.com";
        e.metadata.push(("rule".to_owned(), "x".to_owned()));
        let read = ApiError::of_body(e.body().to_string().as_bytes());
        assert_eq!(read.body(), e.body());
        assert_eq!(ApiError::of_body(b"?").code(), 500);
    }

    #[test]
    fn every_status_has_a_code_that_clients_expect() {
        // google/rpc/code.proto, the comments "HTTP Mapping".
        for (s, code) in [
            (Status::FailedPrecondition, 400),
            (Status::Unauthenticated, 401),
            (Status::PermissionDenied, 403),
            (Status::Aborted, 409),
            (Status::ResourceExhausted, 429),
            (Status::Unimplemented, 501),
            (Status::Unavailable, 503),
        ] {
            assert_eq!(ApiError::new(s, "X", "").code(), code);
        }
        // Errors that gcloud would otherwise try again for half a minute.
        let refused = Refusal::new(Status::Unimplemented, "X", "x");
        for e in [
            ApiError::unimplemented("Backup", "Take snapshots"),
            ApiError::refused(refused),
        ] {
            assert_eq!((e.code(), e.status), (400, Status::FailedPrecondition));
        }
    }
}
