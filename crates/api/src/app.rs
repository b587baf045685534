//! From an HTTP request to its response: authentication, routing, the body; and back.
//!
//! The order of the checks is the order of their cost to us and of what they reveal. The request's
//! address comes first, then its token, then the path, then the role. Only then is a body read, and
//! never more of it than [`body::MAX_BODY`]. If the gate refuses a request, nothing is read behind
//! its head.

use crate::body::{self, Unread};
use crate::connections::Slot;
use crate::console;
use crate::error::{ApiError, ApiResult};
use crate::gate;
use crate::handlers;
use crate::live::{self, Live};
use crate::logins::{self, Credential};
use crate::metrics::{self};
use crate::mount::Mounts;
use crate::ontap::{Refusal, Reply};
use crate::query::Query;
use crate::route::{self, Action, Api, NoRoute, Route, VALIDATE_ONLY, Verb};
use crate::state::{AppState, Ends, Gate, Problem, ontap, ontap_call};
use crate::words::Language;
use crate::work;
use crate::{lro, openapi};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use weir_control::{Actor, Role, Status};

/// Mark of a request whose protocol does not say which of the two APIs it is about: lists of
/// operations show both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BothApis;

/// Returns the service: everything that the listener serves.
pub fn router(state: AppState, gate: Gate) -> Router {
    Router::new().fallback(routed).with_state((state, gate))
}

async fn routed(State((app, gate)): State<(AppState, Gate)>, request: Request) -> Response {
    serve(app, gate, request).await
}

/// Answers a request, from its head on.
pub(crate) async fn serve(app: AppState, gate: Gate, request: Request) -> Response {
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
    let (mut head, body) = request.into_parts();
    if gate == Gate::Daemon && head.headers.contains_key(gate::BOTH) {
        head.extensions.insert(BothApis);
    }
    if head.uri.path() == logins::PATH && matches!(head.method, Method::POST | Method::DELETE) {
        return sign(&app, gate, &head, body).await;
    }
    if head.uri.path() == logins::GRANT_PATH && head.method == Method::POST {
        let body = Unread::new(&head.headers, body);
        return logins::grant(&app, gate != Gate::Tokens, &head, body).await;
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
    match logins::answer(app, gate != Gate::Tokens, head, from, body).await {
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
pub(crate) fn error_response(e: Box<ApiError>, ontap: bool) -> Response {
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
        Gate::Daemon => gate::on_behalf(head)?,
        Gate::Tokens => {
            let credential = Credential::from_head(head)?;
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
    let verb = Verb::from_method(&head.method);
    let agent = head.headers.get(header::USER_AGENT);
    let agent = agent.and_then(|a| a.to_str().ok()).unwrap_or_default();
    let (surface, prefixed, path) = route::surface(head.uri.path(), agent);
    if verb == Some(Verb::Get) {
        if let ("/metrics", Some(source)) = (path, &app.0.metrics) {
            return metrics::response(page(app, source()), &app.0.scrapes, head);
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
        gate::require_role(&actor, asked_role(matched.route, &query)?)?;
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
        let request = handlers::RequestContext {
            app,
            actor,
            route: matched.route,
            surface,
            parts: matched.parts,
            language: query.language(&head.headers)?,
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
        e.language = Language::accepted(&head.headers);
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
    gate::require_role(&actor, wanted)?;
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
        Gate::Loopback | Gate::Daemon => None,
        Gate::Tokens => {
            let from = head.extensions.get::<Ends>().map(|e| e.remote.ip());
            Some((Credential::from_head(head)?, from))
        }
    };
    let last = head.headers.get("last-event-id");
    let last = last.and_then(|id| id.to_str().ok());
    let slot = head.extensions.get::<Arc<Slot>>().cloned();
    let wanted = (live::wanted(query)?, query.language(&head.headers)?);
    live::response(app, live, wanted, token, last, slot)
}

/// Returns a response in JSON.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    let mut r = (status, value.to_string()).into_response();
    r.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=UTF-8"),
    );
    r
}

/// Returns a page of metrics with those of requests and of the control plane at its end.
fn page(app: &AppState, source: metrics::Pieces) -> metrics::Pieces {
    let work = work::render(&app.control().work());
    Box::new(app.0.requests.behind(source).chain(std::iter::once(work)))
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
    documents(path)
}

/// Returns a description of the APIs.
pub(crate) fn documents(path: &str) -> Option<Response> {
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
pub(crate) fn health(problems: &[Problem]) -> Response {
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

pub(crate) fn no_route(why: NoRoute, method: &axum::http::Method, path: &str) -> Box<ApiError> {
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

pub(crate) fn domain(route: &Route, surface: Option<weir_control::Surface>) -> &'static str {
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

pub(crate) fn ontap_response(reply: &Reply) -> Response {
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
pub(crate) fn asked_role(route: &Route, query: &Query) -> ApiResult<Role> {
    let asks = route.parameters().contains(&VALIDATE_ONLY) && query.flag(VALIDATE_ONLY)?;
    // The answer to a restore tells of a file, so that its dry run takes the role of a search.
    let tells = matches!(route.action, Action::RestoreFile(_));
    Ok(if asks && !tells {
        Role::Viewer
    } else {
        role(route)
    })
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
