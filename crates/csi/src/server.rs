//! The socket: connections of HTTP/2, and calls over them.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use weir_base::limits::csi::{MAX_CALL, MAX_CALLS};

use crate::Driver;
use crate::messages;
use crate::status::{Code, Outcome, Status};

/// Maximum length of a status' text in bytes: peers take 8 KiB of trailers.
const MAX_TEXT: usize = 4096;

/// Time that calls have to end when the process is asked to.
const FAREWELL: Duration = Duration::from_secs(20);

/// A body with its trailers.
type Reply = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// Returns the path of a socket's URL: `unix:///PATH`, `unix:PATH` or `PATH`.
///
/// # Errors
/// It is another kind of address, or none.
pub fn socket(endpoint: &str) -> Result<PathBuf> {
    let path = endpoint
        .strip_prefix("unix://")
        .or_else(|| endpoint.strip_prefix("unix:"))
        .unwrap_or(endpoint);
    if path.is_empty() || path.contains("://") {
        bail!("--endpoint is unix:///PATH, a socket of this machine; received: {endpoint}");
    }
    Ok(path.into())
}

/// Serves calls at a socket until `ended`.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve(
    driver: Arc<Driver>,
    path: &Path,
    mut ended: watch::Receiver<bool>,
) -> Result<()> {
    // One that a killed process has left behind.
    if std::fs::symlink_metadata(path).is_ok_and(|of| {
        use std::os::unix::fs::FileTypeExt as _;
        of.file_type().is_socket()
    }) {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    tracing::info!("serving CSI at {}", path.display());
    let calls = Arc::new(Semaphore::new(MAX_CALLS));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (driver, calls) = (Arc::clone(&driver), Arc::clone(&calls));
                    tokio::spawn(connection(driver, calls, stream, ended.clone()));
                }
                Err(e) => {
                    tracing::warn!("cannot accept a connection: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            changed = ended.changed() => {
                drop(changed);
                break;
            }
        }
    }
    let all = u32::try_from(MAX_CALLS).unwrap_or(u32::MAX);
    let left = tokio::time::timeout(FAREWELL, calls.acquire_many(all)).await;
    if left.is_err() {
        tracing::warn!("calls are still under way; their callers will call again");
    }
    let _ = std::fs::remove_file(path);
    Ok(())
}

async fn connection(
    driver: Arc<Driver>,
    calls: Arc<Semaphore>,
    stream: UnixStream,
    mut ended: watch::Receiver<bool>,
) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (driver, calls) = (Arc::clone(&driver), Arc::clone(&calls));
        async move { Ok::<_, Infallible>(answer(driver, calls, request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MAX_CALLS as u32)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    loop {
        tokio::select! {
            done = connection.as_mut() => {
                if let Err(e) = done {
                    tracing::debug!("a connection has ended: {e}");
                }
                return;
            }
            changed = ended.changed() => {
                drop(changed);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn answer(
    driver: Arc<Driver>,
    calls: Arc<Semaphore>,
    request: Request<Incoming>,
) -> Response<Reply> {
    let method = request.uri().path().to_owned();
    let outcome = match request.headers().get("grpc-timeout") {
        None => call(driver, calls, request).await,
        Some(text) => match text.to_str().ok().and_then(weir_grpc::timeout) {
            None => Err(Status::invalid("malformed grpc-timeout")),
            Some(time) => {
                let called = tokio::time::timeout(time, call(driver, calls, request)).await;
                called.unwrap_or_else(|_| {
                    let why = "the call's deadline passed; it goes on, call again";
                    Err(Status::new(Code::DeadlineExceeded, why))
                })
            }
        },
    };
    if let Err(e) = &outcome {
        tracing::info!("{method}: {:?}: {}", e.code, e.message);
    }
    reply(outcome)
}

async fn call(
    driver: Arc<Driver>,
    calls: Arc<Semaphore>,
    request: Request<Incoming>,
) -> Outcome<Vec<u8>> {
    let (head, body) = request.into_parts();
    let kind = head.headers.get(CONTENT_TYPE).and_then(|t| t.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("application/grpc")) {
        return Err(Status::invalid("only calls over gRPC are served here"));
    }
    let path = head.uri.path().to_owned();
    let method = messages::method(&path)?;
    let body = Limited::new(body, MAX_CALL).collect().await;
    let body = body.map_err(|e| {
        let why = format!("the call's message is broken off or longer than {MAX_CALL} bytes: {e}");
        Status::new(Code::ResourceExhausted, why)
    })?;
    let body = body.to_bytes();
    let broken = |why: String| Status::new(Code::Internal, why);
    let message = weir_grpc::message(&body).map_err(broken)?;
    let request = method.request(message)?;
    let slot = calls.acquire_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        driver.call(&path, request)
    });
    let done = done
        .await
        .map_err(|e| broken(format!("the call failed: {e}")))?;
    method.reply(done?)
}

fn reply(outcome: Outcome<Vec<u8>>) -> Response<Reply> {
    let mut trailers = HeaderMap::new();
    let (message, status) = match outcome {
        Ok(message) => (weir_grpc::framed(&message), 0),
        Err(e) => {
            let text = weir_grpc::status_text(&e.message, MAX_TEXT);
            if let Ok(text) = HeaderValue::from_str(&text) {
                trailers.insert("grpc-message", text);
            }
            (Vec::new(), e.code as u16)
        }
    };
    trailers.insert("grpc-status", HeaderValue::from(status));
    let body = Full::new(Bytes::from(message));
    let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body.boxed());
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_sockets() {
        for text in [
            "unix:///csi/csi.sock",
            "unix:/csi/csi.sock",
            "/csi/csi.sock",
        ] {
            assert_eq!(socket(text).unwrap(), Path::new("/csi/csi.sock"));
        }
        for text in ["", "unix://", "tcp://127.0.0.1:1"] {
            socket(text).unwrap_err();
        }
    }
}
