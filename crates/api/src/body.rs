//! Bodies of requests: which are read, how much of them, for how long.
//!
//! A body is JSON and says so. That is a rule of safety: a page may send some types to another site
//! without asking that site first (CORS' "simple" requests). JSON is none of them, and no type at
//! all is one.

use crate::error::{ApiError, ApiResult};
use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt as _;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use weir_base::limits::api::MAX_DISCARD;
pub use weir_base::limits::api::{MAX_BODIES, MAX_BODY};
use weir_control::Status;

/// A body has to arrive within this.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The body of a request that was admitted. If it is not read, what the client still sends is
/// thrown away, so that the client gets to read the reply.
pub struct Unread {
    body: Option<Body>,
    discard: bool,
}

impl Unread {
    /// Creates the body of a request with these headers.
    pub fn new(headers: &HeaderMap, body: Body) -> Unread {
        Unread {
            body: Some(body),
            // A client that waits for leave to send (Expect) has sent nothing, and does not get it.
            discard: !headers.contains_key(header::EXPECT),
        }
    }

    /// Creates the body of a stream of HTTP/2: what is not read of it is reset.
    pub fn of_stream(body: Body) -> Unread {
        Unread {
            body: Some(body),
            discard: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let empty = self.is_empty();
        let Some(body) = self.body.take() else {
            return;
        };
        if self.discard && !empty && tokio::runtime::Handle::try_current().is_ok() {
            tokio::spawn(discard(body));
        }
    }
}

async fn discard(body: Body) {
    let mut stream = body.into_data_stream();
    let drained = async {
        let mut seen = 0u64;
        while let Some(Ok(chunk)) = stream.next().await {
            seen = seen.saturating_add(chunk.len() as u64);
            if seen > MAX_DISCARD {
                break;
            }
        }
    };
    // Whatever the client does, the drain ends after this time.
    drop(tokio::time::timeout(BODY_TIME, drained).await);
}

fn refused(status: Status, http: StatusCode, reason: &str, message: String) -> Box<ApiError> {
    let mut e = ApiError::new(status, reason, message);
    e.http = Some(http.as_u16());
    e
}

fn too_large() -> Box<ApiError> {
    refused(
        Status::InvalidArgument,
        StatusCode::PAYLOAD_TOO_LARGE,
        "PAYLOAD_TOO_LARGE",
        format!("Request payload size exceeds the limit: {MAX_BODY} bytes."),
    )
}

/// Returns true if a media type is JSON (RFC 8259 §11, RFC 6839 §3.1): `application/json`,
/// `application/hal+json`, ….
fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.split_once('/').is_some_and(|(kind, subtype)| {
        kind.eq_ignore_ascii_case("application")
            && subtype
                .rsplit('+')
                .next()
                .is_some_and(|s| s.eq_ignore_ascii_case("json"))
    })
}

/// Checks the content type: a declared one has to be JSON, and a body has to declare one.
fn check_type(headers: &HeaderMap, body: &Unread) -> ApiResult<()> {
    let mut declared = headers.get_all(header::CONTENT_TYPE).iter();
    let problem = match (declared.next(), declared.next()) {
        (None, _) if body.is_empty() => return Ok(()),
        (None, _) => "this one came without a Content-Type".to_owned(),
        (Some(one), None) => match one.to_str() {
            Ok(text) if is_json(text) => return Ok(()),
            Ok(text) => format!("this one came as '{}'", crate::json::abbreviate(text)),
            Err(_) => "this one came as something else".to_owned(),
        },
        (Some(_), Some(_)) => "this one came with several".to_owned(),
    };
    Err(refused(
        Status::InvalidArgument,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        format!(
            "The body of a request has to be JSON, with 'Content-Type: application/json'; {problem}"
        ),
    ))
}

/// Reads a body in JSON, and holds its share of what all bodies may have.
///
/// # Errors
/// It is not declared to be JSON (415), or as [`read_whole`].
pub async fn read<'a>(
    bodies: &'a Semaphore,
    headers: &HeaderMap,
    body: Unread,
) -> ApiResult<(Bytes, Option<SemaphorePermit<'a>>)> {
    check_type(headers, &body)?;
    read_whole(bodies, headers, body).await
}

/// Reads a body of any type, and holds its share of what all bodies may have.
///
/// # Errors
/// It is too large (413), too slow (408), or there are too many at once (UNAVAILABLE).
pub async fn read_whole<'a>(
    bodies: &'a Semaphore,
    headers: &HeaderMap,
    mut body: Unread,
) -> ApiResult<(Bytes, Option<SemaphorePermit<'a>>)> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|n| n > MAX_BODY as u64) {
        return Err(too_large());
    }
    let Some(inner) = body.body.take() else {
        return Ok((Bytes::new(), None));
    };
    let mut stream = inner.into_data_stream();
    let mut held: Option<SemaphorePermit<'a>> = None;
    let mut out: Vec<u8> = Vec::new();
    let reading = async {
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|e| {
                ApiError::new(
                    Status::InvalidArgument,
                    "BROKEN_BODY",
                    format!("The body of the request broke off: {e}"),
                )
            })?;
            if out.len().saturating_add(chunk.len()) > MAX_BODY {
                return Err(too_large());
            }
            let permits = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            let more = bodies.try_acquire_many(permits).map_err(|_| {
                ApiError::new(
                    Status::Unavailable,
                    "TOO_BUSY",
                    "Too many requests are being read; try again",
                )
            })?;
            match &mut held {
                Some(h) => h.merge(more),
                None => held = Some(more),
            }
            out.extend_from_slice(&chunk);
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_TIME, reading).await {
        Ok(Ok(())) => Ok((Bytes::from(out), held)),
        Ok(Err(e)) => {
            drop(Unread {
                body: Some(Body::from_stream(stream)),
                discard: body.discard,
            });
            Err(e)
        }
        Err(_) => Err(refused(
            Status::DeadlineExceeded,
            StatusCode::REQUEST_TIMEOUT,
            "SLOW_BODY",
            "The body of the request did not arrive in time".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn bodies_are_declared_to_be_json() {
        let sent = |types: &[&'static str], text: &'static str| {
            let mut headers = HeaderMap::new();
            for t in types {
                headers.append(header::CONTENT_TYPE, HeaderValue::from_static(t));
            }
            let body = Unread {
                body: Some(Body::from(text)),
                discard: false,
            };
            check_type(&headers, &body).map_err(|e| e.code())
        };
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/hal+json",
            "application/json;charset=UTF-8",
        ] {
            assert_eq!(sent(&[json], "{}"), Ok(()), "{json}");
            assert_eq!(sent(&[json], ""), Ok(()), "{json}");
        }
        assert_eq!(sent(&[], ""), Ok(()));
        for other in [
            "text/plain",
            "text/plain; application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/json",
            "application/jsonp",
            "application/json+xml",
            "json",
            "",
        ] {
            assert_eq!(sent(&[other], "{}"), Err(415), "{other}");
            // No client declares it that way by accident.
            assert_eq!(sent(&[other], ""), Err(415), "{other}");
        }
        assert_eq!(sent(&[], "{}"), Err(415));
        assert_eq!(sent(&["application/json", "text/plain"], "{}"), Err(415));
    }
}
