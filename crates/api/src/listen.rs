//! The listener: connections, their limits, their end.
//!
//! A connection may be slow, silent or one of thousands; none of these may keep others from being answered. So each
//! has a time for its handshake and for each request's head, the number of connections is bounded (those beyond it
//! wait in the kernel's queue), and what a head may hold is bounded as well. Bodies are bounded where they are read.

use crate::app::{AppState, Ends, Gate, router};
use crate::tls::Tls;
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt as _;

/// Connections at once.
const MAX_CONNECTIONS: usize = 512;
/// A request's head has to arrive within this, from the end of the request before: also how long a connection may be
/// idle. Clients that poll do so every ten seconds.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// A handshake has to be over within this.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// How long connections may go on when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Who may use the listener, and how it is protected.
#[derive(Clone, Debug)]
pub enum Access {
    /// Whoever can connect: only for loopback addresses.
    Loopback,
    /// Holders of a token, over TLS.
    Tokens(Tls),
}

/// Why [`serve`] would not begin.
#[derive(Debug)]
pub enum Refused {
    /// Without tokens, on an address that others can reach.
    Open(SocketAddr),
    /// The socket failed.
    Io(io::Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Open(a) => write!(
                f,
                "{a} can be reached from other machines: the API is served there only over TLS (--api-tls-cert and --api-tls-key, or --api-tls generate) and with tokens (weir tokens create)"
            ),
            Refused::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Refused {
        Refused::Io(e)
    }
}

/// Serves until `shutdown` is ready, and then as long as requests are under way, but not much longer.
///
/// # Errors
/// See [`Refused`].
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    access: Access,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Refused> {
    let address = listener.local_addr()?;
    let (gate, tls) = match &access {
        Access::Loopback if !address.ip().to_canonical().is_loopback() => {
            return Err(Refused::Open(address));
        }
        Access::Loopback => (Gate::Loopback, None),
        Access::Tokens(tls) => (Gate::Tokens, Some(tls.acceptor())),
    };
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = router(state, gate);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (ending, ended) = watch::channel(false);
    tokio::pin!(shutdown);
    loop {
        // The permit comes first: without one, nothing is accepted.
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            a = accepted => a,
        };
        let (stream, remote) = match accepted {
            Ok(a) => a,
            Err(e) => {
                // Out of descriptors, or a connection that was gone at once: neither ends the listener.
                tracing::warn!("accepting an API connection: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connection = Connection {
            router: router.clone(),
            tls: tls.clone(),
            ended: ended.clone(),
            remote,
        };
        tokio::spawn(async move {
            connection.run(stream).await;
            drop(permit);
        });
    }
    drop(listener);
    drop(ended);
    ending.send_replace(true);
    // `closed` is ready when every connection has dropped its receiver.
    drop(tokio::time::timeout(FAREWELL, ending.closed()).await);
    Ok(())
}

struct Connection {
    router: Router,
    tls: Option<tokio_rustls::TlsAcceptor>,
    ended: watch::Receiver<bool>,
    remote: SocketAddr,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        let Ok(local) = stream.local_addr() else {
            return;
        };
        // Answers are one small write each; waiting for more to send would only delay them.
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {e}");
        }
        let ends = Ends {
            remote: self.remote,
            local,
        };
        match self.tls.clone() {
            None => self.speak(stream, ends).await,
            Some(tls) => match tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.speak(stream, ends).await,
                Ok(Err(e)) => tracing::debug!("TLS with {}: {e}", ends.remote),
                Err(_) => tracing::debug!("TLS with {}: too slow", ends.remote),
            },
        }
    }

    async fn speak<S>(mut self, stream: S, ends: Ends)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let router = self.router.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ends);
            router.clone().oneshot(request.map(axum::body::Body::new))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        loop {
            tokio::select! {
                done = connection.as_mut() => {
                    if let Err(e) = done {
                        tracing::debug!("an API connection from {}: {e}", ends.remote);
                    }
                    return;
                }
                changed = self.ended.changed(), if !*self.ended.borrow() => {
                    drop(changed);
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
