//! A request to one aggregate, and its reply.

use super::{AGGREGATES, Fleet, Way};
use crate::error::{ApiError, ApiResult};
use crate::gate;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;
use weir_base::limits::api::MAX_CLUSTER_ANSWER;
use weir_control::{Actor, Status};

/// Mark of a request that a node passes on: the one that gets it asks its own server only.
pub const HOP: HeaderName = HeaderName::from_static("weir-hop");
/// Mark of a reply that no server of the aggregate is here.
const NOT_SERVED: HeaderName = HeaderName::from_static("weir-not-served");

/// Metadata of an error: the request was sent to a server, and its reply was lost.
pub(super) const SENT: &str = "sent";

/// Time for a connection to a server or a node.
const CONNECT: Duration = Duration::from_secs(2);
/// Time for the reply to a question that a node asks of its own: a server that stands still must
/// not hold up those that answer.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// Headers that are passed on.
const PASSED: [HeaderName; 12] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::RANGE,
    header::REFERER,
    header::USER_AGENT,
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("prefer"),
];
/// Headers of a reply that are about the connection.
const DROPPED: [HeaderName; 3] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A request that is passed on.
#[derive(Clone)]
pub(super) struct ForwardedRequest<'a> {
    pub method: Method,
    /// Path and query.
    pub target: &'a str,
    /// Headers of the client; `None`: the node asks of its own.
    pub headers: Option<&'a HeaderMap>,
    /// Lists of operations show those of both APIs.
    pub both: bool,
    pub body: Bytes,
    pub actor: &'a Actor,
}

impl<'a> ForwardedRequest<'a> {
    /// Creates a question of the node's own.
    pub fn read(target: &'a str, actor: &'a Actor) -> ForwardedRequest<'a> {
        ForwardedRequest {
            method: Method::GET,
            target,
            headers: None,
            both: false,
            body: Bytes::new(),
            actor,
        }
    }

    /// Returns a question like this request, of another target.
    pub fn question<'b>(&self, target: &'b str) -> ForwardedRequest<'b>
    where
        'a: 'b,
    {
        ForwardedRequest {
            method: Method::GET,
            target,
            body: Bytes::new(),
            ..self.clone()
        }
    }

    fn request(&self, aggregate: &str, way: &Way) -> Result<Request<Full<Bytes>>, String> {
        let target = match way {
            Way::Here => self.target.to_owned(),
            Way::Node(_) => format!("{AGGREGATES}{aggregate}{}", self.target),
        };
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(target)
            .header(header::HOST, "localhost")
            .body(Full::new(self.body.clone()))
            .map_err(|e| e.to_string())?;
        let headers = request.headers_mut();
        for name in &PASSED {
            let given = self.headers.and_then(|headers| headers.get(name));
            if let Some(value) = given {
                headers.insert(name, value.clone());
            }
        }
        if self.both {
            headers.insert(gate::BOTH, HeaderValue::from_static("1"));
        }
        match way {
            Way::Here => {
                let line = gate::actor_line(self.actor);
                let line = HeaderValue::try_from(line).map_err(|e| e.to_string())?;
                headers.insert(gate::ACTOR, line);
            }
            Way::Node(_) => {
                headers.insert(HOP, HeaderValue::from_static("1"));
                let proof = self.headers.and_then(|all| all.get(header::AUTHORIZATION));
                if let Some(proof) = proof {
                    headers.insert(header::AUTHORIZATION, proof.clone());
                }
            }
        }
        Ok(request)
    }
}

/// Reason why a way did not lead to a reply.
enum ForwardFailure {
    /// The request was not sent.
    Unsent(String),
    /// The request may have been carried out.
    Unknown(String),
}

impl Fleet {
    /// Passes a request on to the server of an aggregate, wherever it is.
    ///
    /// # Errors
    /// UNAVAILABLE: no server answers.
    pub(super) async fn send(
        &self,
        aggregate: &str,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Response> {
        self.send_by(aggregate, false, passed).await
    }

    /// As [`Fleet::send`]; with `here`, to a server on this machine only.
    pub(super) async fn send_by(
        &self,
        aggregate: &str,
        here: bool,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<Response> {
        let mut why = "no node serves it now".to_owned();
        for way in self.members.ways(aggregate, here) {
            match self.send_on(aggregate, &way, passed).await {
                Ok(reply) if reply.headers().contains_key(&NOT_SERVED) => {}
                Ok(reply) => return Ok(reply),
                // A question may be asked twice; a change may not be made twice.
                Err(ForwardFailure::Unknown(cause)) if passed.method != Method::GET => {
                    let mut e = unavailable(
                        aggregate,
                        &format!("{cause}; whether the change was made is not known"),
                    );
                    e.metadata.push((SENT.to_owned(), "true".to_owned()));
                    return Err(e);
                }
                Err(ForwardFailure::Unsent(cause) | ForwardFailure::Unknown(cause)) => {
                    why = match &way {
                        Way::Here => cause,
                        Way::Node(node) => format!("{node}: {cause}"),
                    };
                }
            }
        }
        Err(unavailable(aggregate, &why))
    }

    async fn send_on(
        &self,
        aggregate: &str,
        way: &Way,
        passed: &ForwardedRequest<'_>,
    ) -> Result<Response, ForwardFailure> {
        let unsent = |why: &dyn std::fmt::Display| ForwardFailure::Unsent(why.to_string());
        let request = passed.request(aggregate, way).map_err(|e| unsent(&e))?;
        let connected = timeout(CONNECT, self.members.connect(aggregate, way)).await;
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let stream = connected.map_err(late).and_then(|stream| stream);
        let stream = stream.map_err(|e| unsent(&e))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| unsent(&e))?;
        tokio::spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!("a connection to a server of the cluster: {e}");
            }
        });
        let reply = sender.send_request(request).await;
        let reply = reply.map_err(|e| ForwardFailure::Unknown(e.to_string()))?;
        let (mut head, body) = reply.into_parts();
        for name in &DROPPED {
            head.headers.remove(name);
        }
        Ok(Response::from_parts(head, Body::new(body)))
    }

    /// Asks an aggregate a question of the node's own, and reads the reply.
    ///
    /// # Errors
    /// As [`Fleet::send`] and [`Fleet::read`]; UNAVAILABLE: the reply takes too long.
    pub(super) async fn query_aggregate(
        &self,
        aggregate: &str,
        passed: &ForwardedRequest<'_>,
    ) -> ApiResult<(StatusCode, Bytes, SemaphorePermit<'_>)> {
        let asked = async {
            let reply = self.send(aggregate, passed).await?;
            self.read(reply).await
        };
        let late = |_| Err(unavailable(aggregate, "its server does not answer in time"));
        timeout(ANSWER, asked).await.unwrap_or_else(late)
    }

    /// Reads a reply whole, and holds its share of what all replies may have.
    ///
    /// # Errors
    /// UNAVAILABLE: it breaks off, is too large, or there are too many at once.
    pub(super) async fn read(
        &self,
        reply: Response,
    ) -> ApiResult<(StatusCode, Bytes, SemaphorePermit<'_>)> {
        let status = reply.status();
        let mut body = reply.into_body().into_data_stream();
        let busy = || {
            ApiError::new(
                Status::Unavailable,
                "TOO_BUSY",
                "Too many replies of servers are being read; try again",
            )
        };
        let mut held = self.answers.try_acquire_many(0).map_err(|_| busy())?;
        let mut out = Vec::new();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|e| {
                let why = format!("The reply of a server broke off: {e}");
                ApiError::new(Status::Unavailable, "BROKEN_REPLY", why)
            })?;
            if out.len().saturating_add(chunk.len()) > MAX_CLUSTER_ANSWER {
                return Err(ApiError::new(
                    Status::Unavailable,
                    "REPLY_TOO_LARGE",
                    "The reply of a server is too large to be read: ask for smaller pages",
                ));
            }
            let permits = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            let more = self.answers.try_acquire_many(permits);
            held.merge(more.map_err(|_| busy())?);
            out.extend_from_slice(&chunk);
        }
        Ok((status, Bytes::from(out), held))
    }
}

/// Creates the error of an aggregate that does not answer.
pub(super) fn unavailable(aggregate: &str, why: &str) -> Box<ApiError> {
    let mut e = ApiError::new(
        Status::Unavailable,
        "AGGREGATE_UNAVAILABLE",
        format!(
            "Aggregate {aggregate} does not answer: {why} (try again; `weir cluster show` says how it stands)"
        ),
    );
    e.metadata
        .push(("aggregate".to_owned(), aggregate.to_owned()));
    e
}

/// Marks a reply of this node: no server of the aggregate is here.
pub(super) fn mark_not_served(headers: &mut HeaderMap) {
    headers.insert(NOT_SERVED, HeaderValue::from_static("1"));
}
