//! The listener: connections, what they speak, their end.
//!
//! A connection may be slow, silent or one of thousands; none of these may keep others from getting
//! replies. [`crate::connections`] decides which client holds one for how long, and
//! [`crate::stream`] keeps to it. What a head may hold is bounded here, bodies where they are read.
//! A connection that begins as HTTP/2 is one of gRPC ([`crate::grpc`]).

use crate::connections::{Connections, HEAD_TIME, Slot};
use crate::grpc;
use crate::service::{Service, Single};
use crate::state::{AppState, Ends, Gate};
use crate::stream::DeadlineStream;
use crate::tls::Tls;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use weir_base::limits::api::{MAX_API_CONNECTIONS, MAX_HEAD};

/// A handshake has to be over within this.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Maximum time for which connections may go on when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Clients that may use the listener, and its protection.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every client that can connect: only for loopback addresses.
    Loopback,
    /// Holders of a token, over TLS.
    Tokens(Tls),
}

impl Access {
    fn gate(&self) -> Gate {
        match self {
            Access::Loopback => Gate::Loopback,
            Access::Tokens(_) => Gate::Tokens,
        }
    }
}

/// Reason why [`serve`] would not begin.
#[derive(Debug)]
pub enum ListenError {
    /// Without tokens, on an address that others can reach.
    Open(SocketAddr),
    /// The socket could not be bound or listened on.
    Io(io::Error),
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenError::Open(a) => write!(
                f,
                "{a} can be reached from other machines: the API is served there only over TLS (--api-tls-cert and --api-tls-key, or --api-tls generate) and with tokens (weir tokens create)"
            ),
            ListenError::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ListenError {}

impl From<io::Error> for ListenError {
    fn from(e: io::Error) -> ListenError {
        ListenError::Io(e)
    }
}

/// Serves until `shutdown` is ready, and then as long as requests are under way, but not much
/// longer.
///
/// # Errors
/// See [`ListenError`].
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    access: Access,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ListenError> {
    let gate = access.gate();
    let service = Arc::new(Single { app: state, gate });
    serve_by(listener, service, &access, shutdown).await
}

/// Serves a node's daemon at a socket that only the server's user reaches: requests on behalf of
/// callers that the daemon has admitted.
pub async fn serve_daemon(
    listener: UnixListener,
    state: AppState,
    shutdown: impl Future<Output = ()>,
) {
    let gate = Gate::Daemon;
    let service = Arc::new(Single { app: state, gate });
    let places = Arc::new(Semaphore::new(MAX_API_CONNECTIONS));
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ends = Ends {
        remote: here,
        local: here,
    };
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => return,
            accepted = accept_one(&listener, &places) => accepted,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::warn!("cannot accept a connection of the daemon: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let service = Arc::clone(&service);
        let answers = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ends);
            let service = Arc::clone(&service);
            async move {
                let reply = service.serve(request.map(axum::body::Body::new)).await;
                Ok::<_, Infallible>(reply)
            }
        });
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .max_buf_size(MAX_HEAD)
                .serve_connection(TokioIo::new(stream), answers);
            if let Err(e) = connection.await {
                tracing::debug!("a connection of the daemon: {e}");
            }
            drop(place);
        });
    }
}

async fn accept_one(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, place))
}

/// Serves by a service, as [`serve`] does.
///
/// # Errors
/// See [`ListenError`].
pub(crate) async fn serve_by(
    listener: TcpListener,
    service: Arc<dyn Service>,
    access: &Access,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ListenError> {
    let address = listener.local_addr()?;
    let tls = match access {
        Access::Loopback if !address.ip().to_canonical().is_loopback() => {
            return Err(ListenError::Open(address));
        }
        Access::Loopback => None,
        Access::Tokens(tls) => Some(tls.clone()),
    };
    let open = tls.is_none();
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Arc::new(Connections::default());
    let (ending, ended) = watch::channel(false);
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            a = listener.accept() => a,
        };
        let (stream, remote) = match accepted {
            Ok(a) => a,
            Err(e) => {
                // Out of descriptors, or a connection that was gone at once: neither ends the
                // listener.
                tracing::warn!(
                    "cannot accept an API connection: {e}; the next one is accepted after 50 ms"
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(slot) = connections.admit(remote.ip(), open) else {
            tracing::debug!("closed an API connection from {remote}: too many connections");
            continue;
        };
        let connection = Connection {
            service: Arc::clone(&service),
            tls: tls.clone(),
            ended: ended.clone(),
            remote,
            slot: Arc::clone(&slot),
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = slot.evicted() => tracing::debug!("the API connection from {remote} gives way to another"),
                () = connection.run(stream) => {}
            }
        });
    }
    drop(listener);
    service.end_streams();
    drop(ended);
    ending.send_replace(true);
    // `closed` is ready when every connection has dropped its receiver.
    drop(tokio::time::timeout(FAREWELL, ending.closed()).await);
    Ok(())
}

struct Connection {
    service: Arc<dyn Service>,
    tls: Option<Tls>,
    ended: watch::Receiver<bool>,
    remote: SocketAddr,
    slot: Arc<Slot>,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        let Ok(local) = stream.local_addr() else {
            return;
        };
        // Responses are one small write each; waiting for more to send would only delay them.
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {e}");
        }
        let ends = Ends {
            remote: self.remote,
            local,
        };
        match self.tls.clone() {
            None => self.speak(stream, ends).await,
            Some(tls) => match timeout(HANDSHAKE_TIME, tls.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => self.speak(stream, ends).await,
                Ok(Err(e)) => tracing::debug!("TLS with {}: {e}", ends.remote),
                Err(_) => tracing::debug!("TLS with {}: too slow", ends.remote),
            },
        }
    }

    async fn speak<S>(mut self, mut stream: S, ends: Ends)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.slot.ready();
        let ahead = tokio::select! {
            ahead = timeout(HEAD_TIME, opening(&mut stream)) => ahead,
            // Nothing was asked for yet.
            _ = self.ended.changed() => return,
        };
        let Ok(Ok(ahead)) = ahead else {
            return;
        };
        if ahead == grpc::PREFACE {
            let stream = DeadlineStream::new(stream, ahead, Arc::clone(&self.slot)).unhurried();
            let server = grpc::Server {
                service: self.service,
                ends,
                slot: self.slot,
                ended: self.ended,
            };
            return server.serve(stream).await;
        }
        let (service, slot) = (Arc::clone(&self.service), Arc::clone(&self.slot));
        let answers = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let working = slot.work();
            request.extensions_mut().insert(ends);
            request.extensions_mut().insert(Arc::clone(&slot));
            let service = Arc::clone(&service);
            async move {
                let reply = service.serve(request.map(axum::body::Body::new)).await;
                drop(working);
                Ok::<_, Infallible>(reply)
            }
        });
        let stream = DeadlineStream::new(stream, ahead, Arc::clone(&self.slot));
        let connection = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), answers);
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

/// Returns the bytes that the peer sends first, as far as it takes to distinguish HTTP/2 from
/// HTTP/1.
async fn opening(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut read = Vec::with_capacity(grpc::PREFACE.len());
    while grpc::PREFACE.starts_with(&read) && read.len() < grpc::PREFACE.len() {
        let left = grpc::PREFACE.len() - read.len();
        if stream.take(left as u64).read_buf(&mut read).await? == 0 {
            break;
        }
    }
    Ok(read)
}
