//! gRPC at REST's port: the connections of HTTP/2, which carries nothing else here.
//!
//! A call is a request to REST in another form. It is admitted by the same gate, carried out by the
//! same handlers ([`call`]), and between the two turned by the public APIs' own descriptors
//! ([`transcode`]). So there is one set of rules, rights, messages and lines of the audit log.
//!
//! A peer may send frames that are cheap for it: resets, settings, pings, continuations. The
//! library bounds what one of them makes the server keep. What a peer may cost in time is bounded
//! here: a connection over which no call was admitted ends ten seconds after its handshake, and one
//! that is idle after a minute, whatever frames it sends meanwhile.

mod call;
mod transcode;

use crate::connections::{HEAD_TIME, Slot};
use crate::service::Service;
use crate::state::Ends;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use weir_base::limits::api::{CALL_WINDOW, MAX_CALL_HEAD, MAX_CALLS_PER_CONNECTION};

pub use transcode::Request as RestRequest;

/// First bytes of a client of HTTP/2 (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Name of HTTP/2 in TLS's handshake (RFC 7301).
pub(crate) const ALPN: &[u8] = b"h2";

/// Time that a peer has for going once it was asked to.
const FAREWELL: Duration = Duration::from_secs(5);
/// Maximum number of streams that the peer has reset before they were accepted, or the server has
/// for the peer's errors. Behind it the connection ends. A library that has not yet read how many
/// calls it may have under way begins a hundred.
const MAX_RESETS: usize = 128;

/// Decodes the body of a call to this path into the request to REST that it is: the part of a call
/// that reads what anyone may send.
///
/// # Errors
/// The refusal that the caller gets.
pub fn decode(path: &str, body: &[u8]) -> crate::error::ApiResult<RestRequest> {
    let method = transcode::services().method(path)?;
    method.request(call::message(body)?)
}

/// Server of a connection's calls.
pub(crate) struct Server {
    /// The service that carries out the calls.
    pub service: Arc<dyn Service>,
    /// Both ends of the connection.
    pub ends: Ends,
    /// The connection's place among all of the listener.
    pub slot: Arc<Slot>,
    /// True once the listener ends.
    pub ended: watch::Receiver<bool>,
}

impl Server {
    /// Serves a connection, from its preface to its end.
    pub async fn serve(mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        self.slot.share();
        let (service, ends) = (Arc::clone(&self.service), self.ends);
        let slot = Arc::clone(&self.slot);
        let calls = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let working = slot.work();
            request.extensions_mut().insert(ends);
            request.extensions_mut().insert(Arc::clone(&slot));
            let service = Arc::clone(&service);
            async move {
                let reply = call::answer(&*service, request.map(Body::new)).await;
                drop(working);
                Ok::<_, Infallible>(reply)
            }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(MAX_CALLS_PER_CONNECTION)
            .max_header_list_size(MAX_CALL_HEAD)
            .initial_stream_window_size(CALL_WINDOW)
            .initial_connection_window_size(CALL_WINDOW)
            .max_send_buf_size(CALL_WINDOW as usize)
            .max_pending_accept_reset_streams(MAX_RESETS)
            .max_local_error_reset_streams(MAX_RESETS)
            .serve_connection(TokioIo::new(stream), calls);
        tokio::pin!(connection);
        let mut leaving = false;
        loop {
            tokio::select! {
                done = connection.as_mut() => {
                    if let Err(e) = done {
                        tracing::debug!("a gRPC connection from {}: {e}", ends.remote);
                    }
                    return;
                }
                changed = self.ended.changed(), if !leaving => {
                    drop(changed);
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = idle(&self.slot, leaving) => {
                    if leaving {
                        return;
                    }
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Returns when the connection has been idle for as long as it may; once the peer was asked to go,
/// that is [`FAREWELL`].
async fn idle(slot: &Slot, leaving: bool) {
    let begun = Instant::now();
    loop {
        let at = match slot.deadline() {
            // Calls are worked on; the next look is soon enough.
            None => Instant::now() + HEAD_TIME,
            Some(_) if leaving => begun + FAREWELL,
            Some(at) => at,
        };
        if at <= Instant::now() {
            return;
        }
        sleep_until(at).await;
    }
}
