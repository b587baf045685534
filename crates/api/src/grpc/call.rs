//! One call: admitted as a request to REST is, carried out as one, and answered in gRPC's terms.

use super::transcode::{Method, services};
use crate::app::BothApis;
use crate::body::{self, Unread};
use crate::error::{ApiError, ApiResult};
use crate::service::Service;
use crate::state::Ends;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http_body_util::{BodyExt as _, Full};
use std::time::Duration;
use weir_control::{Actor, LocationName, Status};
use weir_grpc as frame;

/// Media type of calls; an encoding of the messages may follow it (`+proto`).
const MEDIA_TYPE: &str = "application/grpc";
/// The method that REST does not have: it waits for an operation.
const WAIT: &str = "/google.longrunning.Operations/WaitOperation";
/// Longest wait for an operation, if the call names no time.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Maximum length of `grpc-message`, and of the details in base64, in bytes. Python's and Go's
/// libraries take 8 KiB of trailers.
const MAX_TEXT: usize = 1024;
const MAX_DETAILS: usize = 6 << 10;

/// Answers a call.
pub async fn answer(service: &dyn Service, request: Request) -> Response {
    let begun = tokio::time::Instant::now();
    let (head, body) = request.into_parts();
    if !is_call(&head) {
        let text = "HTTP/2 is served here to calls over gRPC only; REST is served over HTTP/1.1\n";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response();
    }
    let outcome = match timeout(&head.headers) {
        Err(e) => Err(e),
        Ok(None) => call(service, &head, body).await,
        Ok(Some(time)) => {
            let called = tokio::time::timeout(time, call(service, &head, body));
            called.await.unwrap_or_else(|_| Err(late()))
        }
    };
    let code = outcome.as_ref().map_or_else(|e| e.code(), |_| 200);
    service.record(code, begun.elapsed());
    match outcome {
        Ok(message) => reply(&message),
        Err(e) => refusal(e),
    }
}

fn is_call(head: &Parts) -> bool {
    let declared = head.headers.get(header::CONTENT_TYPE);
    let rest = declared.and_then(|t| t.to_str().ok()?.strip_prefix(MEDIA_TYPE));
    let kind =
        rest.is_some_and(|rest| rest.is_empty() || rest == "+proto" || rest.starts_with(';'));
    kind && head.method == axum::http::Method::POST
}

/// Returns the time that the caller waits for the reply.
fn timeout(headers: &HeaderMap) -> ApiResult<Option<Duration>> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let time = value.to_str().ok().and_then(frame::timeout);
    match time {
        Some(_) => Ok(time),
        None => Err(ApiError::new(
            Status::InvalidArgument,
            "INVALID_HEADER",
            "Malformed grpc-timeout: expected at most eight digits and one of H, M, S, m, u, n",
        )),
    }
}

fn late() -> Box<ApiError> {
    ApiError::new(
        Status::DeadlineExceeded,
        "DEADLINE_EXCEEDED",
        "The call's deadline passed before its reply was made",
    )
    .over_http(408)
}

/// Refuses compressed messages.
fn uncompressed(headers: &HeaderMap) -> ApiResult<()> {
    match headers.get("grpc-encoding") {
        Some(encoding) if encoding != "identity" => Err(ApiError::new(
            Status::Unimplemented,
            "UNSUPPORTED_ENCODING",
            "Compressed messages are not read by this server; grpc-accept-encoding is identity",
        )
        .over_http(415)),
        _ => Ok(()),
    }
}

/// Returns the message of a unary call's body.
///
/// # Errors
/// INTERNAL, as the protocol's own libraries have it: the body is not one message.
pub fn message(body: &[u8]) -> ApiResult<&[u8]> {
    frame::message(body)
        .map_err(|why| ApiError::new(Status::Internal, "BROKEN_MESSAGE", why).over_http(400))
}

/// Carries out a call, and returns the encoded reply.
async fn call(service: &dyn Service, head: &Parts, body: Body) -> ApiResult<Vec<u8>> {
    let actor = service.admit(head).await?;
    uncompressed(&head.headers)?;
    let path = head.uri.path();
    let method = services().method(path)?;
    let body = Unread::of_stream(body);
    let (bytes, _held) = body::read_whole(service.bodies(), &head.headers, body).await?;
    let message = message(&bytes)?;
    if path == WAIT {
        return wait(service, &actor, method, message, head).await;
    }
    carry_out(service, actor, method, message, head).await
}

/// Carries out a call as the request to REST that it is.
async fn carry_out(
    service: &dyn Service,
    actor: Actor,
    method: &Method,
    message: &[u8],
    called: &Parts,
) -> ApiResult<Vec<u8>> {
    let request = method.request(message)?;
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.verb;
    head.uri = request.target.parse().map_err(|_| {
        ApiError::new(
            Status::InvalidArgument,
            "INVALID_MESSAGE",
            "The message is too large for a method that reads",
        )
    })?;
    if let Some(ends) = called.extensions.get::<Ends>() {
        head.extensions.insert(*ends);
    }
    // A cluster passes them on to the server that has the resource.
    if let Some(credentials) = called.headers.get(header::AUTHORIZATION) {
        head.headers
            .insert(header::AUTHORIZATION, credentials.clone());
    }
    // Nothing in a call says which API it is about.
    head.extensions.insert(BothApis);
    let body = match request.body {
        None => Body::empty(),
        Some(json) => {
            let json_type = HeaderValue::from_static("application/json");
            head.headers.insert(header::CONTENT_TYPE, json_type);
            Body::from(json)
        }
    };
    let body = Unread::new(&head.headers, body);
    let reply = service.answer(actor, &head, body).await?;
    let reply = reply.into_body().collect().await;
    let reply: Bytes = reply
        .map_err(|e| ApiError::new(Status::Internal, "BROKEN_REPLY", e.to_string()))?
        .to_bytes();
    method.reply(&reply)
}

/// Waits for an operation: returns it as soon as it has ended, or as it is after the time that the
/// caller names.
async fn wait(
    service: &dyn Service,
    actor: &Actor,
    method: &Method,
    message: &[u8],
    called: &Parts,
) -> ApiResult<Vec<u8>> {
    // The first look is REST's own: it checks rights, the name, and whether it exists.
    let get = services().method("/google.longrunning.Operations/GetOperation")?;
    let asked = method.decode(message)?;
    let (name, time) = super::transcode::wait_request(&asked);
    let message = get.encode_name(&name);
    let first = carry_out(service, actor.clone(), get, &message, called).await?;
    let parts: Vec<&str> = name.split('/').collect();
    let [_, project, _, location, _, id] = parts.as_slice() else {
        return Ok(first);
    };
    let name = LocationName::new(project, location).name(id);
    let time = time.map_or(LONGEST_WAIT, |time| time.min(LONGEST_WAIT));
    service.wait(&name, time).await?;
    carry_out(service, actor.clone(), get, &message, called).await
}

fn respond(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    response
}

fn reply(message: &[u8]) -> Response {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(0));
    let body = Full::new(Bytes::from(frame::framed(message)));
    respond(Body::new(
        body.with_trailers(std::future::ready(Some(Ok(trailers)))),
    ))
}

/// Returns an error as a response of trailers only.
fn refusal(mut e: Box<ApiError>) -> Response {
    // In REST's terms these are about paths and sizes.
    if matches!(&*e.reason, "NO_SUCH_PATH" | "NO_SUCH_METHOD") {
        e.status = Status::Unimplemented;
        if e.reason == "NO_SUCH_PATH" {
            "This method is not implemented by this server".clone_into(&mut e.message);
        }
    }
    if e.code() == 413 {
        e.status = Status::ResourceExhausted;
    }
    if e.code() >= 500 {
        tracing::warn!(reason = %e.reason, "{}", e.message);
    }
    let mut response = respond(Body::empty());
    let headers = response.headers_mut();
    e.add_retry_after(headers);
    headers.insert("grpc-status", HeaderValue::from(e.status.grpc()));
    let text = frame::status_text(&e.message, MAX_TEXT);
    if let Ok(text) = HeaderValue::from_str(&text) {
        headers.insert("grpc-message", text);
    }
    let details = services().status(&e).map(|s| STANDARD_NO_PAD.encode(s));
    let details = details.filter(|d| d.len() <= MAX_DETAILS);
    if let Some(Ok(details)) = details.map(HeaderValue::try_from) {
        headers.insert("grpc-status-details-bin", details);
    }
    response
}
