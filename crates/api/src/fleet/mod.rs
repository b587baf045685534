//! The API of a cluster, at any of its nodes.
//!
//! A node has no resources of its own. It passes each request on to the server of the aggregate
//! that has the resource: over a socket on this machine, or through the daemon of the node that
//! serves the aggregate. So there is one set of rules, messages and lines of the audit log, that of
//! the servers. What a node adds:
//!
//! - [`plan`]: which aggregates a request is about;
//! - [`owners`]: which aggregate has a resource, by its name; all are asked for one not seen yet;
//! - [`merge`]: lists of all aggregates as one, in pages that need no state;
//! - [`creation`]: the aggregate of a new resource, whose name no other aggregate has;
//! - [`large`]: volumes that have parts in several aggregates;
//! - [`ontap`]: the same for ONTAP's REST;
//! - [`send`]: a request to one aggregate.

mod creation;
mod large;
mod merge;
mod ontap;
mod owners;
mod parts;
mod plan;
mod send;
mod spanning;
mod tokens;

use crate::app::{self, BothApis};
use crate::body::{self, MAX_BODIES, Unread};
use crate::connections::{Slot, source};
use crate::console;
use crate::error::{ApiError, ApiResult};
use crate::gate;
use crate::listen::{self, Access, ListenError};
use crate::live::Condition;
use crate::logins::Logins;
use crate::query::Query;
use crate::requests::Requests;
use crate::route::{self, RouteMatch, Verb};
use crate::service::Service;
use crate::state::Ends;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use large::OfAll;
use owners::Owners;
use plan::Plan;
use send::ForwardedRequest;
use serde_json::{Value, json};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use weir_base::Clock;
use weir_base::limits::api::CLUSTER_ANSWERS;
use weir_control::{Actor, Name, Role, Status, TokenHash, TokenRecord};

/// Polling interval of an operation that a caller waits for.
const WAIT_STEP: Duration = Duration::from_millis(500);
/// First part of paths that name an aggregate: the rest is a path of its server.
const AGGREGATES: &str = "/aggregates/";

/// A connection to a server or to a node.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A place where the server of an aggregate may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// This machine.
    Here,
    /// The node of this name, through its daemon.
    Node(String),
}

/// Space of an aggregate, for the placement of new pools.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AggregateSpace {
    /// The aggregate.
    pub aggregate: String,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that are in use.
    pub used: u64,
    /// Bytes that its pools and instances have been promised.
    pub provisioned: u64,
    /// True if it takes no changes.
    pub read_only: bool,
}

/// A name that no other node gives away until this is dropped.
pub type Reservation = Box<dyn std::any::Any + Send>;

/// The cluster, as a node knows it.
pub trait Members: Send + Sync {
    /// Returns the names of all aggregates, in order.
    fn aggregates(&self) -> Vec<String>;

    /// Returns the places where the server of an aggregate may be, the most likely first. With
    /// `here`, only this machine.
    fn ways(&self, aggregate: &str, here: bool) -> Vec<Way>;

    /// Connects to the server of an aggregate, or to the node that is to pass requests on to it.
    fn connect<'a>(
        &'a self,
        aggregate: &'a str,
        way: &'a Way,
    ) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;

    /// Returns the aggregate that gets a new pool.
    ///
    /// # Errors
    /// The reason why none does.
    fn place(&self, rooms: &[AggregateSpace]) -> Result<String, String>;

    /// Reserves the name of a new resource; `None` while another request has it.
    ///
    /// # Errors
    /// The reason.
    fn reserve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Reservation>, String>>;

    /// Returns the name and the role of a token's holder; `None` if the token is not valid.
    fn holder(&self, token: &TokenHash) -> Option<(Arc<str>, Role)>;

    /// Returns the tokens of the cluster.
    ///
    /// # Errors
    /// The reason.
    fn tokens(&self) -> BoxFuture<'_, Result<Vec<TokenRecord>, String>>;

    /// Creates a token, and returns its secret with it; `None` if the name is taken.
    ///
    /// # Errors
    /// The reason.
    fn create_token<'a>(
        &'a self,
        name: &'a str,
        role: Role,
        lifetime: Option<Duration>,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Option<(TokenRecord, String)>, String>>;

    /// Deletes a token. Returns false if there is none of this name.
    ///
    /// # Errors
    /// The reason.
    fn delete_token<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, String>>;

    /// Returns the cluster's metrics.
    fn metrics(&self) -> String;

    /// Returns the conditions of the cluster itself.
    fn conditions(&self) -> Vec<Condition>;

    /// Describes the cluster: its nodes and aggregates.
    fn describe(&self) -> Value;
}

/// The API of a cluster.
pub struct Fleet {
    members: Arc<dyn Members>,
    clock: Arc<dyn Clock>,
    /// True if callers need no token.
    open: bool,
    logins: Logins,
    owners: Owners,
    bodies: Semaphore,
    answers: Semaphore,
    requests: Arc<Requests>,
}

/// Serves the API of a cluster, as [`crate::serve`] serves that of a server.
///
/// # Errors
/// See [`ListenError`].
pub async fn serve(
    listener: TcpListener,
    members: Arc<dyn Members>,
    clock: Arc<dyn Clock>,
    access: Access,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ListenError> {
    let open = matches!(access, Access::Loopback);
    let fleet = Arc::new(Fleet::new(members, clock, open));
    listen::serve_by(listener, fleet, &access, shutdown).await
}

/// Returns the service of a node; `open`: callers need no token.
pub fn router(members: Arc<dyn Members>, clock: Arc<dyn Clock>, open: bool) -> Router {
    let fleet = Arc::new(Fleet::new(members, clock, open));
    Router::new().fallback(move |request: Request| {
        let fleet = Arc::clone(&fleet);
        async move { fleet.serve(request).await }
    })
}

/// A request of an admitted caller, with its body.
struct FleetRequest<'a> {
    actor: Actor,
    head: &'a Parts,
    body: Bytes,
}

impl Fleet {
    fn new(members: Arc<dyn Members>, clock: Arc<dyn Clock>, open: bool) -> Fleet {
        Fleet {
            members,
            clock,
            open,
            logins: Logins::default(),
            owners: Owners::default(),
            bodies: Semaphore::new(MAX_BODIES),
            answers: Semaphore::new(CLUSTER_ANSWERS),
            requests: Arc::default(),
        }
    }

    async fn dispatch(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if path == "/livez" || path == "/readyz" {
            return (StatusCode::OK, "ok\n").into_response();
        }
        let ontap = path == "/api" || path.starts_with("/api/");
        let body = Unread::new(&head.headers, body);
        let actor = match self.admitted(&head) {
            Ok(actor) => actor,
            Err(e) => {
                let mut refusal = app::error_response(e, ontap);
                let close = HeaderValue::from_static("close");
                refusal.headers_mut().insert(header::CONNECTION, close);
                return refusal;
            }
        };
        let outcome = self.answered(actor, &head, body).await;
        outcome.unwrap_or_else(|e| app::error_response(e, ontap))
    }

    /// Authenticates the caller of a request.
    fn admitted(&self, head: &Parts) -> ApiResult<Actor> {
        let from = head.extensions.get::<Ends>().map(|e| e.remote.ip());
        gate::same_origin(&head.headers)?;
        let actor = if self.open {
            gate::same_machine(head)?;
            Actor {
                address: from,
                ..Actor::local()
            }
        } else {
            self.holder(&gate::token(head)?, from)?
        };
        if let Some(slot) = head.extensions.get::<Arc<Slot>>() {
            slot.passed();
        }
        Ok(actor)
    }

    /// Returns the holder of a token, and counts a wrong one.
    fn holder(&self, token: &str, from: Option<IpAddr>) -> ApiResult<Actor> {
        let hash = TokenHash::from_secret(token);
        let now = self.clock.current_time().secs;
        let address = source(from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        self.logins.may_try(address, &hash, now)?;
        match self.members.holder(&hash) {
            Some((name, role)) => {
                self.logins.was_right(hash);
                Ok(Actor {
                    name,
                    role,
                    address: from,
                })
            }
            None => {
                self.logins.was_wrong(address, &hash, now);
                Err(ApiError::new(
                    Status::Unauthenticated,
                    "TOKEN_INVALID",
                    "The token is none of the cluster's, or has expired",
                ))
            }
        }
    }

    async fn answered(&self, actor: Actor, head: &Parts, body: Unread) -> ApiResult<Response> {
        let (body, _held) = match head.method.as_str() {
            "GET" | "HEAD" => (Bytes::new(), None),
            _ => body::read_whole(&self.bodies, &head.headers, body).await?,
        };
        let asked = FleetRequest { actor, head, body };
        let path = head.uri.path();
        let here = head.headers.contains_key(send::HOP);
        if let Some(rest) = path.strip_prefix(AGGREGATES) {
            return self.of_aggregate(&asked, rest, here).await;
        }
        if here {
            return Err(ApiError::new(
                Status::InvalidArgument,
                "INVALID_HEADER",
                "A request that a node passes on has to name its aggregate",
            ));
        }
        if let Some(rest) = path.strip_prefix("/api/") {
            return self.answer_ontap(&asked, rest).await;
        }
        let verb = Verb::from_method(&head.method);
        if verb == Some(Verb::Get) {
            if path == "/metrics" {
                let text = self.members.metrics() + &self.requests.render();
                let kind = "text/plain; version=0.0.4";
                return Ok(([(header::CONTENT_TYPE, kind)], text).into_response());
            }
            if let Some(page) = app::documents(path) {
                return Ok(page);
            }
        }
        let agent = head.headers.get(header::USER_AGENT);
        let agent = agent.and_then(|a| a.to_str().ok()).unwrap_or_default();
        let (surface, _, path) = route::surface(path, agent);
        let matched = route::find(verb, path);
        let matched = matched.map_err(|why| app::no_route(why, &head.method, path))?;
        let outcome = self.routed(&asked, &matched).await;
        outcome.map_err(|mut e| {
            e.domain = app::domain(matched.route, surface);
            e
        })
    }

    /// Passes a request on to the server of the aggregate that its path names.
    async fn of_aggregate(
        &self,
        asked: &FleetRequest<'_>,
        rest: &str,
        here: bool,
    ) -> ApiResult<Response> {
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        let known = self.members.aggregates().iter().any(|one| one == name);
        // A node that passes a request on may know an aggregate that this one has not read yet.
        if !known && !here {
            return Err(ApiError::not_found(&format!("aggregates/{name}")));
        }
        let query = asked.head.uri.query();
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        let target = format!("/{path}{query}");
        let sent = self.send_by(name, here, &asked.passed(&target)).await;
        match sent {
            Err(e) if here && !e.metadata.iter().any(|(name, _)| name == send::SENT) => {
                let mut reply = app::error_response(e, false);
                send::mark_not_served(reply.headers_mut());
                Ok(reply)
            }
            sent => sent,
        }
    }

    async fn routed(&self, asked: &FleetRequest<'_>, matched: &RouteMatch) -> ApiResult<Response> {
        let query = Query::parse(asked.head.uri.query().unwrap_or_default())?;
        let wanted = app::asked_role(matched.route, &query)?;
        gate::require_role(&asked.actor, wanted)?;
        let target = asked.target();
        let passed = asked.passed(&target);
        match plan::plan_request(matched, &query, &asked.body)? {
            Plan::List(message, collection) => {
                self.list(asked, matched, &query, (message, collection))
                    .await
            }
            Plan::Locations => self.locations(&passed).await,
            Plan::Named(name) => match OfAll::from_match(matched) {
                Some(what) => self.to_volume(what, &name, asked, &query).await,
                None => self.to_owner(&name, &passed).await,
            },
            Plan::Create(creation) => self.create(&creation, &passed).await,
            Plan::Any => self.any(&passed).await,
            Plan::Tokens => self.tokens(asked, matched, &query).await,
            Plan::Conditions => self.conditions(&passed).await,
            Plan::Server => Ok(ok(&self.described(&asked.actor))),
            Plan::PerAggregate => match self.members.aggregates().as_slice() {
                [only] => self.send(only, &passed).await,
                _ => Err(per_aggregate()),
            },
        }
    }

    /// Passes a request on to the aggregate that has a resource.
    async fn to_owner(&self, name: &str, passed: &ForwardedRequest<'_>) -> ApiResult<Response> {
        if let Some(aggregate) = self.owners.get(name) {
            let reply = self.send(&aggregate, passed).await?;
            if reply.status() != StatusCode::NOT_FOUND {
                return Ok(reply);
            }
            self.owners.forget(name);
        }
        match self.find(name, passed).await? {
            Some(aggregate) => self.send(&aggregate, passed).await,
            // Any server says that it is not there.
            None => self.any(passed).await,
        }
    }

    /// Passes a request on to any aggregate that answers.
    async fn any(&self, passed: &ForwardedRequest<'_>) -> ApiResult<Response> {
        let mut last = ApiError::new(
            Status::FailedPrecondition,
            "NO_AGGREGATE",
            "The cluster has no aggregate yet (`weir aggregate create` makes one)",
        );
        for aggregate in self.members.aggregates() {
            match self.send(&aggregate, passed).await {
                Ok(reply) => return Ok(reply),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Describes this cluster to its caller.
    fn described(&self, actor: &Actor) -> Value {
        let role = actor.role;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cluster": self.members.describe(),
            "caller": {
                "name": actor.name,
                "role": role.as_str().to_ascii_uppercase(),
                "mayChange": role >= Role::Editor,
            },
        })
    }

    /// Waits until an operation has ended.
    async fn ended(&self, name: &Name, time: Duration) -> ApiResult<()> {
        let actor = Actor::local();
        let full = format!("{}/operations/{}", name.place, name.id);
        let target = format!("/v1/{full}");
        let passed = ForwardedRequest::read(&target, &actor);
        let waiting = async {
            loop {
                let reply = self.to_owner(&full, &passed).await?;
                let (status, bytes, _held) = self.read(reply).await?;
                let operation: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let done = operation.get("done").and_then(Value::as_bool) == Some(true);
                if done || status != StatusCode::OK {
                    return Ok(());
                }
                tokio::time::sleep(WAIT_STEP).await;
            }
        };
        match tokio::time::timeout(time, waiting).await {
            Ok(ended) => ended,
            Err(_) => Ok(()),
        }
    }
}

impl FleetRequest<'_> {
    /// Returns the path and the query of the request. One over gRPC says nothing of the API.
    fn target(&self) -> String {
        let target = self.head.uri.path_and_query();
        target.map_or_else(|| "/".to_owned(), ToString::to_string)
    }

    fn passed<'a>(&'a self, target: &'a str) -> ForwardedRequest<'a> {
        ForwardedRequest {
            method: self.head.method.clone(),
            target,
            headers: Some(&self.head.headers),
            both: self.head.extensions.get::<BothApis>().is_some()
                || self.head.headers.contains_key(gate::BOTH),
            body: self.body.clone(),
            actor: &self.actor,
        }
    }
}

/// Returns a response in JSON.
fn ok(value: &Value) -> Response {
    app::json(StatusCode::OK, value)
}

fn per_aggregate() -> Box<ApiError> {
    ApiError::new(
        Status::FailedPrecondition,
        "AGGREGATE_NOT_NAMED",
        "Each aggregate's server has this of its own: ask /aggregates/NAME/v1/… for the one that you mean",
    )
}

impl Service for Fleet {
    fn serve(&self, request: Request) -> BoxFuture<'_, Response> {
        Box::pin(async move {
            let begun = tokio::time::Instant::now();
            let mut reply = self.dispatch(request).await;
            self.record(reply.status().as_u16(), begun.elapsed());
            console::protect(&mut reply);
            reply
        })
    }

    fn admit<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, ApiResult<Actor>> {
        Box::pin(std::future::ready(self.admitted(head)))
    }

    fn answer<'a>(
        &'a self,
        actor: Actor,
        head: &'a Parts,
        body: Unread,
    ) -> BoxFuture<'a, ApiResult<Response>> {
        Box::pin(async move {
            let reply = self.answered(actor, head, body).await?;
            let (status, bytes, _held) = self.read(reply).await?;
            match status.is_success() {
                true => Ok(Response::new(Body::from(bytes))),
                // A refusal of the server, which a call has in another form than REST.
                false => Err(ApiError::of_body(&bytes)),
            }
        })
    }

    fn wait<'a>(&'a self, name: &'a Name, time: Duration) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(self.ended(name, time))
    }

    fn bodies(&self) -> &Semaphore {
        &self.bodies
    }

    fn record(&self, code: u16, time: Duration) {
        self.requests.record(code, time);
    }

    fn end_streams(&self) {}
}
