//! The state that handlers share.

use crate::benchmarks::Benchmarks;
use crate::blocking::waiting;
use crate::body::MAX_BODIES;
use crate::error::{ApiError, ApiResult};
use crate::files::{Files, Shelf};
use crate::live::Live;
use crate::logins::Logins;
use crate::lro;
use crate::metrics::Metrics;
use crate::mount::Mounts;
use crate::ontap::{Call, Reply, Surface};
use crate::query::Query;
use crate::requests::Requests;
use crate::route::Verb;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use weir_base::limits::api::METRICS_READERS;
use weir_base::percent;
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
pub struct AppState(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) control: Arc<Control>,
    pub(crate) at: Mounts,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) problems: Option<Problems>,
    pub(crate) ontap: Option<Arc<Surface>>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) live: Option<Arc<Live>>,
    pub(crate) files: Option<Arc<Shelf>>,
    pub(crate) benchmarks: Option<Arc<Benchmarks>>,
    pub(crate) bodies: Semaphore,
    pub(crate) scrapes: Arc<Semaphore>,
    pub(crate) requests: Arc<Requests>,
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
    pub fn end_streams(&self) {
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
    /// The node's daemon, over a socket that only the server's user reaches. It has admitted the
    /// caller, whom a header names ([`ACTOR`](crate::gate::ACTOR)).
    Daemon,
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
    let path: Option<Vec<String>> = parts.map(percent::unescape).collect();
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
