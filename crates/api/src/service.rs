//! A service behind a listener: one server, or a cluster's node that passes requests on.

use crate::app;
use crate::body::Unread;
use crate::error::{ApiError, ApiResult};
use crate::state::{AppState, Gate};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::BoxFuture;
use std::time::Duration;
use tokio::sync::Semaphore;
use weir_control::{Actor, Name};

/// A service that answers requests to REST, and calls over gRPC as requests to REST.
pub(crate) trait Service: Send + Sync {
    /// Answers a request to REST, from its head on.
    fn serve(&self, request: Request) -> BoxFuture<'_, Response>;

    /// Authenticates the caller of a request.
    ///
    /// # Errors
    /// As [`app::admit`].
    fn admit<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, ApiResult<Actor>>;

    /// Answers a request of an admitted caller.
    ///
    /// # Errors
    /// The refusal or failure that the client gets. A reply that is passed on may be one, too.
    fn answer<'a>(
        &'a self,
        actor: Actor,
        head: &'a Parts,
        body: Unread,
    ) -> BoxFuture<'a, ApiResult<Response>>;

    /// Waits for the end of an operation, for no longer than `time`.
    ///
    /// # Errors
    /// There is none of this name.
    fn wait<'a>(&'a self, name: &'a Name, time: Duration) -> BoxFuture<'a, ApiResult<()>>;

    /// Returns the room that bodies of requests share.
    fn bodies(&self) -> &Semaphore;

    /// Counts a request that was answered with `code` after `time`.
    fn record(&self, code: u16, time: Duration);

    /// Ends streams, which would go on for ever: the listener ends.
    fn end_streams(&self);
}

/// One server.
pub(crate) struct Single {
    /// The state that all requests share.
    pub app: AppState,
    /// Means by which callers are authenticated.
    pub gate: Gate,
}

impl Service for Single {
    fn serve(&self, request: Request) -> BoxFuture<'_, Response> {
        Box::pin(app::serve(self.app.clone(), self.gate, request))
    }

    fn admit<'a>(&'a self, head: &'a Parts) -> BoxFuture<'a, ApiResult<Actor>> {
        Box::pin(app::admit(&self.app, self.gate, head))
    }

    fn answer<'a>(
        &'a self,
        actor: Actor,
        head: &'a Parts,
        body: Unread,
    ) -> BoxFuture<'a, ApiResult<Response>> {
        Box::pin(app::answer(&self.app, self.gate, actor, head, body))
    }

    fn wait<'a>(&'a self, name: &'a Name, time: Duration) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            let waited = self.app.control().wait(name, time).await;
            waited.map(drop).map_err(ApiError::refused)
        })
    }

    fn bodies(&self) -> &Semaphore {
        self.app.bodies()
    }

    fn record(&self, code: u16, time: Duration) {
        self.app.record(code, time);
    }

    fn end_streams(&self) {
        self.app.end_streams();
    }
}
