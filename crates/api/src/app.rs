//! From an HTTP request to its response: authentication, routing, the body; and back.
//!
//! The order of the checks is the order of their cost to us and of what they reveal. The request's
//! address comes first, then its token, then the path, then the role. Only then is a body read, and
//! never more of it than [`body::MAX_BODY`]. If the gate refuses a request, nothing is read behind
//! its head.

use crate::benchmarks::Benchmarks;
use crate::blocking::waiting;
use crate::body::{self, MAX_BODIES, Unread};
use crate::connections::Slot;
use crate::console;
use crate::error::{ApiError, ApiResult};
use crate::files::{Files, Shelf};
use crate::gate;
use crate::handlers;
use crate::live::{self, Live};
use crate::logins::{self, Credential, Logins};
use crate::metrics::{self, Metrics};
use crate::mount::Mounts;
use crate::ontap::{Call, Refusal, Reply, Surface};
use crate::query::{Query, unescape};
use crate::requests::Requests;
use crate::route::{self, Action, Api, NoRoute, Route, VALIDATE_ONLY, Verb};
use crate::words::{LANGUAGE, Language};
use crate::{lro, openapi};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use weir_base::limits::api::METRICS_READERS;
use weir_control::{Actor, Control, Role, Status};
use weir_ontap::{Cluster, Clusters};

/// Something that is wrong with the server as a whole, or soon will be.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The part that it concerns, such as `space`.
    pub about: &'static str,
    /// Requests fail for it; otherwise it is a warning.
    pub fatal: bool,
    /// The cause, and what to do.
    pub message: String,
}

/// Returns the problems of the server as a whole.
pub type Problems = Arc<dyn Fn() -> Vec<Problem> + Send + Sync>;

/// The state that handlers share. Cheap to clone.
#[derive(Clone)]
pub struct AppState(Arc<Inner>);

struct Inner {
    control: Arc<Control>,
    at: Mounts,
    metrics: Option<Metrics>,
    problems: Option<Problems>,
    ontap: Option<Arc<Surface>>,
    logins: Arc<Logins>,
    live: Option<Arc<Live>>,
    files: Option<Arc<Shelf>>,
    benchmarks: Option<Arc<Benchmarks>>,
    bodies: Semaphore,
    scrapes: Arc<Semaphore>,
    requests: Arc<Requests>,
}

impl AppState {
    /// Creates the state over a control plane. `at` is where clients mount from; if its address is
    /// unspecified (`0.0.0.0`), clients get the address at which they reached this listener.
    pub fn new(control: Arc<Control>, at: Mounts) -> AppState {
        control.set_render(lro::render());
        AppState(Arc::new(Inner {
            control,
            at,
            metrics: None,
            problems: None,
            ontap: None,
            logins: Arc::default(),
            live: None,
            files: None,
            benchmarks: None,
            bodies: Semaphore::new(MAX_BODIES),
            scrapes: Arc::new(Semaphore::new(METRICS_READERS)),
            requests: Arc::default(),
        }))
    }

    /// Adds a source for `/metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> AppState {
        self.changed(|i| i.metrics = Some(metrics))
    }

    /// Adds a source for `/health`.
    #[must_use]
    pub fn with_problems(self, problems: Problems) -> AppState {
        self.changed(|i| i.problems = Some(problems))
    }

    /// Adds ONTAP's interface, below `/api` and behind the pools, and with replications: over the
    /// cluster as each user sees it. It is asked on threads where it may wait.
    #[must_use]
    pub fn with_ontap(self, clusters: Clusters<Actor>) -> AppState {
        self.changed(|i| i.ontap = Some(Surface::new(clusters)))
    }

    /// Adds live data: `/v1/live` and what belongs to it.
    #[must_use]
    pub fn with_live(self, live: Arc<Live>) -> AppState {
        self.changed(|i| i.live = Some(live))
    }

    /// Adds files of snapshots: `:findFile` and what belongs to it.
    #[must_use]
    pub fn with_files(self, files: Arc<dyn Files>) -> AppState {
        self.changed(|i| i.files = Some(Arc::new(Shelf::new(files))))
    }

    /// Adds reports of benchmarks: `/v1/benchmarks`.
    #[must_use]
    pub fn with_benchmarks(self, benchmarks: Benchmarks) -> AppState {
        self.changed(|i| i.benchmarks = Some(Arc::new(benchmarks)))
    }

    fn changed(self, change: impl FnOnce(&mut Inner)) -> AppState {
        let old = &self.0;
        let mut inner = Inner {
            control: Arc::clone(&old.control),
            at: old.at,
            metrics: old.metrics.clone(),
            problems: old.problems.clone(),
            ontap: old.ontap.clone(),
            logins: Arc::clone(&old.logins),
            live: old.live.clone(),
            files: old.files.clone(),
            benchmarks: old.benchmarks.clone(),
            bodies: Semaphore::new(MAX_BODIES),
            scrapes: Arc::new(Semaphore::new(METRICS_READERS)),
            requests: Arc::clone(&old.requests),
        };
        change(&mut inner);
        AppState(Arc::new(inner))
    }

    /// Returns the control plane that all handlers share.
    pub(crate) fn control(&self) -> &Control {
        &self.0.control
    }

    /// Returns the sign-ins of browsers.
    pub(crate) fn logins(&self) -> &Logins {
        &self.0.logins
    }

    /// Returns the room that bodies of requests share.
    pub(crate) fn bodies(&self) -> &Semaphore {
        &self.0.bodies
    }

    /// Counts a request that was answered with `code` after `time`.
    pub(crate) fn record(&self, code: u16, time: Duration) {
        self.0.requests.record(code, time);
    }

    /// Returns live data, if there is any.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        self.0.live.as_ref()
    }

    /// Files of snapshots, if they can be had.
    pub(crate) fn files(&self) -> Option<&Shelf> {
        self.0.files.as_deref()
    }

    /// Reports of benchmarks, if they can be had.
    pub(crate) fn benchmarks(&self) -> Option<&Benchmarks> {
        self.0.benchmarks.as_deref()
    }

    /// Ends streams of live data: the server stops.
    pub(crate) fn end_streams(&self) {
        if let Some(live) = &self.0.live {
            live.book.close();
        }
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState")
            .field("at", &self.0.at)
            .finish_non_exhaustive()
    }
}

/// Means by which callers are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// No means: every client that reaches the listener is trusted, so it is to be on a loopback
    /// address.
    Loopback,
    /// Holders of a token.
    Tokens,
}

/// Both ends of the connection that a request came over.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The client's address and port.
    pub remote: SocketAddr,
    /// This listener's address and port.
    pub local: SocketAddr,
}

/// Mark of a request whose protocol does not say which of the two APIs it is about: lists of
/// operations show both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BothApis;

/// Returns the service: everything that the listener serves.
pub fn router(state: AppState, gate: Gate) -> Router {
    Router::new().fallback(serve).with_state((state, gate))
}

async fn serve(State((app, gate)): State<(AppState, Gate)>, request: Request) -> Response {
    let begun = tokio::time::Instant::now();
    let mut reply = dispatch(app.clone(), gate, request).await;
    app.record(reply.status().as_u16(), begun.elapsed());
    console::protect(&mut reply);
    reply
}

async fn dispatch(app: AppState, gate: Gate, request: Request) -> Response {
    let path = request.uri().path();
    let ontap = path == "/api" || path.starts_with("/api/");
    if let Some(probed) = probe(&app, request.method(), path) {
        return probed;
    }
    if let Some(file) = console::answer(request.method(), path, request.headers()) {
        return file;
    }
    let (head, body) = request.into_parts();
    if head.uri.path() == logins::PATH && matches!(head.method, Method::POST | Method::DELETE) {
        return sign(&app, gate, &head, body).await;
    }
    if head.uri.path() == logins::GRANT_PATH && head.method == Method::POST {
        let body = Unread::new(&head.headers, body);
        return logins::grant(&app, gate == Gate::Loopback, &head, body).await;
    }
    let actor = match admit(&app, gate, &head).await {
        Ok(actor) => actor,
        Err(e) => {
            let mut refusal = error_response(e, ontap);
            let close = HeaderValue::from_static("close");
            refusal.headers_mut().insert(header::CONNECTION, close);
            return refusal;
        }
    };
    let body = Unread::new(&head.headers, body);
    match answer(&app, gate, actor, &head, body).await {
        Ok(response) => response,
        Err(e) => error_response(e, ontap),
    }
}

/// Answers a browser that signs in or out.
async fn sign(app: &AppState, gate: Gate, head: &Parts, body: axum::body::Body) -> Response {
    let from = head.extensions.get::<Ends>().map(|e| e.remote.ip());
    let body = Unread::new(&head.headers, body);
    match logins::answer(app, gate == Gate::Loopback, head, from, body).await {
        Ok(reply) => {
            if let Some(slot) = head.extensions.get::<Arc<Slot>>() {
                slot.passed();
            }
            reply
        }
        Err(e) => error_response(e, false),
    }
}

/// Answers a probe, which needs no token and learns nothing but a status. `/livez` says that the
/// process answers; `/readyz` says that it serves and has no problem that `/health` would name.
fn probe(app: &AppState, method: &axum::http::Method, path: &str) -> Option<Response> {
    let ready = match path {
        "/livez" => true,
        "/readyz" => app
            .0
            .problems
            .as_ref()
            .is_none_or(|problems| !problems().iter().any(|p| p.fatal)),
        _ => return None,
    };
    if method != axum::http::Method::GET && method != axum::http::Method::HEAD {
        return None;
    }
    let (status, word) = match ready {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    };
    Some((status, word).into_response())
}

/// Returns an error in the form of the API that was asked.
fn error_response(e: Box<ApiError>, ontap: bool) -> Response {
    if ontap {
        let mut refusal = ontap_response(&Reply::refused(&Refusal::general(&e)));
        e.add_retry_after(refusal.headers_mut());
        return refusal;
    }
    if e.code() >= 500 {
        tracing::warn!(reason = %e.reason, "{}", e.message);
    }
    e.into_response()
}

/// Authenticates the caller of a request, whose connection is a known one from then on.
///
/// # Errors
/// INVALID_ARGUMENT: a malformed Host; PERMISSION_DENIED: a browser, for another site's page;
/// UNAUTHENTICATED.
pub(crate) async fn admit(app: &AppState, gate: Gate, head: &Parts) -> ApiResult<Actor> {
    let from = head.extensions.get::<Ends>().map(|e| e.remote.ip());
    gate::same_origin(&head.headers)?;
    let actor = match gate {
        Gate::Loopback => {
            gate::same_machine(head)?;
            Actor {
                address: from,
                ..Actor::local()
            }
        }
        Gate::Tokens => {
            let credential = Credential::of(head)?;
            logins::admit(app, &credential, from).await?
        }
    };
    if let Some(slot) = head.extensions.get::<Arc<Slot>>() {
        slot.passed();
    }
    Ok(actor)
}

/// Answers a request of an admitted caller.
///
/// # Errors
/// The refusal or failure that the client gets.
pub(crate) async fn answer(
    app: &AppState,
    gate: Gate,
    actor: Actor,
    head: &Parts,
    body: Unread,
) -> ApiResult<Response> {
    let at = mount_address(app.0.at, head.extensions.get::<Ends>().copied());
    let verb = Verb::of(&head.method);
    let agent = head.headers.get(header::USER_AGENT);
    let agent = agent.and_then(|a| a.to_str().ok()).unwrap_or_default();
    let (surface, prefixed, path) = route::surface(head.uri.path(), agent);
    if verb == Some(Verb::Get) {
        if let ("/metrics", Some(source)) = (path, &app.0.metrics) {
            let pieces = app.0.requests.behind(source());
            return metrics::response(pieces, &app.0.scrapes, head);
        }
        if let Some(page) = plain(app, path) {
            return Ok(page);
        }
    }
    if let Some(rest) = path.strip_prefix("/api/") {
        return answer_ontap(app, actor, (verb, rest), head, body, at.nfs.ip()).await;
    }
    let matched = route::find(verb, path).map_err(|why| no_route(why, &head.method, path))?;
    let other = match matched.route.api {
        Api::Netapp => surface == Some(weir_control::Surface::Filestore),
        Api::Filestore => surface == Some(weir_control::Surface::Netapp),
        Api::Both | Api::Own => false,
    };
    if prefixed && other {
        return Err(no_route(NoRoute::NoPath, &head.method, path));
    }
    let domain = domain(matched.route, surface);
    let outcome = async {
        let query = Query::parse(head.uri.query().unwrap_or_default())?;
        gate::has(&actor, asked_role(matched.route, &query)?)?;
        let any = matches!(
            matched.route.action,
            Action::Ontap | Action::Missing | Action::Unimplemented(..)
        );
        if !any {
            query.only(matched.route.parameters())?;
        }
        let enums = query.enums()?;
        if let (Action::Live, Some(live)) = (matched.route.action, app.live()) {
            return stream(app, live, gate, head, &query);
        }
        let (bytes, _held) = if matched.route.has_body() {
            body::read(&app.0.bodies, &head.headers, body).await?
        } else {
            (Bytes::new(), None)
        };
        let request = handlers::Asked {
            app,
            actor,
            route: matched.route,
            surface,
            parts: matched.parts,
            language: language(matched.route, &query, &head.headers)?,
            query,
            enums,
            body: bytes,
            at,
            both: head.extensions.get::<BothApis>().is_some(),
        };
        if let Some(file) = request.file(head).await {
            return file;
        }
        let value = handlers::handle(request).await?;
        Ok(json(StatusCode::OK, &value))
    };
    outcome.await.map_err(|mut e| {
        e.domain = domain;
        e
    })
}

/// Answers a request to ONTAP's interface, whose verb and path behind `api/` are given.
async fn answer_ontap(
    app: &AppState,
    actor: Actor,
    (verb, path): (Option<Verb>, &str),
    head: &Parts,
    body: Unread,
    node: IpAddr,
) -> ApiResult<Response> {
    let wanted = match verb {
        Some(Verb::Get) => Role::Viewer,
        _ => Role::Editor,
    };
    gate::has(&actor, wanted)?;
    let (bytes, _held) = match verb {
        None | Some(Verb::Get) => (Bytes::new(), None),
        // Clients send bodies with DELETE as well.
        Some(_) => body::read(&app.0.bodies, &head.headers, body).await?,
    };
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    let asked = ontap_call(verb, path, query, &bytes, node)?;
    ontap(app, actor, asked, |reply| ontap_response(&reply)).await
}

/// Returns a stream of live data, which goes on for as long as its token holds.
fn stream(
    app: &AppState,
    live: &Arc<Live>,
    gate: Gate,
    head: &Parts,
    query: &Query,
) -> ApiResult<Response> {
    let token = match gate {
        Gate::Loopback => None,
        Gate::Tokens => {
            let from = head.extensions.get::<Ends>().map(|e| e.remote.ip());
            Some((Credential::of(head)?, from))
        }
    };
    let last = head.headers.get("last-event-id");
    let last = last.and_then(|id| id.to_str().ok());
    let slot = head.extensions.get::<Arc<Slot>>().cloned();
    let wanted = (live::wanted(query)?, Language::of(query, &head.headers)?);
    live::response(app, live, wanted, token, last, slot)
}

/// Returns a response in JSON.
fn json(status: StatusCode, value: &Value) -> Response {
    let mut r = (status, value.to_string()).into_response();
    r.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=UTF-8"),
    );
    r
}

/// The page that links the OpenAPI documents.
const INDEX: &str = "<!doctype html>\n<title>Weir: OpenAPI documents</title>\n<ul>\n\
    <li><a href=\"/openapi/weir-v1.json\">Weir, v1</a>\n\
    <li><a href=\"/openapi/netapp-v1.json\">NetApp Volumes, v1</a>\n\
    <li><a href=\"/openapi/filestore-v1.json\">Filestore, v1</a>\n</ul>\n";

/// Routes apart from the APIs: health, and the APIs' own description.
fn plain(app: &AppState, path: &str) -> Option<Response> {
    if path == "/health" {
        return Some(health(&app.0.problems.as_ref()?()));
    }
    let (kind, text) = match path {
        "/openapi" | "/openapi/" => ("text/html; charset=utf-8", INDEX.to_owned()),
        "/openapi/weir-v1.json" => ("application/json", openapi::document(Api::Own)),
        "/openapi/netapp-v1.json" => ("application/json", openapi::document(Api::Netapp)),
        "/openapi/filestore-v1.json" => ("application/json", openapi::document(Api::Filestore)),
        _ => return None,
    };
    let mut r = text.into_response();
    r.headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Some(r)
}

/// Returns 200 if requests are served, with the warnings that there are; else 503, so that a probe
/// need not read the body.
fn health(problems: &[Problem]) -> Response {
    let (status, word) = if problems.iter().any(|p| p.fatal) {
        (StatusCode::SERVICE_UNAVAILABLE, "FAILED")
    } else if problems.is_empty() {
        (StatusCode::OK, "OK")
    } else {
        (StatusCode::OK, "WARNING")
    };
    let problems = problems.iter().map(|p| {
        let severity = if p.fatal { "ERROR" } else { "WARNING" };
        let mut problem = serde_json::Map::new();
        problem.insert("about".to_owned(), Value::from(p.about));
        problem.insert("severity".to_owned(), Value::from(severity));
        problem.insert("message".to_owned(), Value::from(p.message.as_str()));
        Value::Object(problem)
    });
    let problems: Vec<Value> = problems.collect();
    json(
        status,
        &serde_json::json!({
            "status": word,
            "version": env!("CARGO_PKG_VERSION"),
            "problems": problems,
        }),
    )
}

fn no_route(why: NoRoute, method: &axum::http::Method, path: &str) -> Box<ApiError> {
    let path = crate::json::abbreviate(path);
    let (status, http, reason) = match why {
        NoRoute::NoPath => (Status::NotFound, None, "NO_SUCH_PATH"),
        NoRoute::NoMethod => (Status::Unimplemented, Some(405), "NO_SUCH_METHOD"),
        NoRoute::Broken => (Status::InvalidArgument, None, "INVALID_PATH"),
    };
    let mut e = ApiError::new(status, reason, format!("No such endpoint: {method} {path}"));
    e.http = http;
    e
}

fn domain(route: &Route, surface: Option<weir_control::Surface>) -> &'static str {
    match route.api {
        Api::Netapp => lro::domain(weir_control::Surface::Netapp),
        Api::Filestore => lro::domain(weir_control::Surface::Filestore),
        Api::Both => lro::domain(surface.unwrap_or(weir_control::Surface::Netapp)),
        Api::Own => crate::error::OWN_DOMAIN,
    }
}

/// Returns the address that clients are to mount from.
fn mount_address(at: Mounts, ends: Option<Ends>) -> Mounts {
    if !at.ip().is_unspecified() {
        return at;
    }
    let ip = ends.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |e| e.local.ip());
    Mounts {
        nfs: SocketAddr::new(ip.to_canonical(), at.nfs.port()),
        ..at
    }
}

/// Creates a request to ONTAP's interface; `path` is the part behind `api/`, `node` this node's
/// address.
///
/// # Errors
/// INVALID_ARGUMENT: the path is broken, the body is no JSON.
pub(crate) fn ontap_call(
    verb: Option<Verb>,
    path: &str,
    query: Query,
    body: &[u8],
    node: IpAddr,
) -> ApiResult<Call> {
    let broken = || {
        ApiError::new(
            Status::InvalidArgument,
            "INVALID_PATH",
            "Invalid escape in the path of the request",
        )
    };
    let parts = path.split('/').filter(|part| !part.is_empty());
    let path: Option<Vec<String>> = parts.map(|part| unescape(part, false)).collect();
    let body = if body.trim_ascii().is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).map_err(|e| {
            ApiError::new(
                Status::InvalidArgument,
                "INVALID_JSON",
                format!("Invalid JSON payload received. {e}"),
            )
        })?
    };
    Ok(Call {
        verb,
        path: path.ok_or_else(broken)?,
        query: query.pairs().to_vec(),
        body,
        node,
    })
}

/// Runs a request to ONTAP's interface, and `then` with its response, on a thread that may block.
/// So a page of records is text, and gone, before the loop that serves all others sees it.
///
/// # Errors
/// FAILED_PRECONDITION: this server has no such interface.
pub(crate) async fn ontap<T: Send + 'static>(
    app: &AppState,
    mut actor: Actor,
    call: Call,
    then: impl FnOnce(Reply) -> T + Send + 'static,
) -> ApiResult<T> {
    if call.verb == Some(Verb::Get) {
        // Whatever command a path turns out to be, GET only reads.
        actor.role = Role::Viewer;
    }
    let Some(surface) = app.0.ontap.clone() else {
        return Err(ApiError::unimplemented("ONTAP's own interface", ""));
    };
    waiting(move || then(surface.answer(&actor, &call))).await
}

/// Returns the cluster as a user sees it, if the server has one.
///
/// # Errors
/// FAILED_PRECONDITION: it has none.
pub(crate) fn cluster(app: &AppState, actor: &Actor) -> ApiResult<Arc<dyn Cluster>> {
    match &app.0.ontap {
        Some(surface) => Ok(surface.cluster(actor)),
        None => Err(ApiError::unimplemented("Replication", "")),
    }
}

fn ontap_response(reply: &Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut r = (status, reply.body.to_string()).into_response();
    r.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/hal+json"),
    );
    let location = reply.location.as_deref();
    if let Some(location) = location.and_then(|l| HeaderValue::from_str(l).ok()) {
        r.headers_mut().insert(header::LOCATION, location);
    }
    if status == StatusCode::UNAUTHORIZED {
        // Not Basic, though it is taken: ONTAP's clients send it unasked. A browser that is asked
        // for it keeps it, and sends it along with what other sites' pages want from here.
        r.headers_mut().insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static(crate::error::CHALLENGE),
        );
    }
    r
}

/// Returns the role that a request takes: viewers may have any change checked.
fn asked_role(route: &Route, query: &Query) -> ApiResult<Role> {
    let asks = route.parameters().contains(&VALIDATE_ONLY) && query.flag(VALIDATE_ONLY)?;
    // The answer to a restore tells of a file, so that its dry run takes the role of a search.
    let tells = matches!(route.action, Action::RestoreFile(_));
    Ok(if asks && !tells {
        Role::Viewer
    } else {
        role(route)
    })
}

/// Returns the language of sentences in the response.
fn language(route: &Route, query: &Query, headers: &HeaderMap) -> ApiResult<Language> {
    if route.parameters().contains(&LANGUAGE) {
        Language::of(query, headers)
    } else {
        Ok(Language::default())
    }
}

/// Returns the role that an action takes.
pub(crate) fn role(route: &Route) -> Role {
    match route.action {
        Action::ListTokens
        | Action::CreateToken
        | Action::DeleteToken
        | Action::ListAudit
        | Action::SwitchPair => Role::Admin,
        // The content of files is more than a viewer of the configuration may see.
        Action::FindFile(_) | Action::Download(_) => Role::Editor,
        _ if route.verb == Verb::Get => Role::Viewer,
        _ => Role::Editor,
    }
}
