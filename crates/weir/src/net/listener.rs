//! Accepting connections and dealing them to the cores.
//!
//! Round robin, one listener: a client's `nconnect` connections arrive one after the other and
//! so spread evenly, which a listener per core (SO_REUSEPORT, dealt by hash) does not give for
//! a handful of connections.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::core::Accepted;

/// Connections that may wait to be accepted (the kernel caps it at `net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// Pause after an accept failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accept failures are logged once per this many.
const LOG_EVERY: u64 = 600;

/// Opens the listening socket; `early`: at an address that this machine need not have yet.
pub fn listen(address: SocketAddr, early: bool) -> io::Result<StdListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    bind_early(&socket, address, early)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Lets a socket be bound to an address that this machine does not have yet.
pub(super) fn bind_early(socket: &Socket, address: SocketAddr, early: bool) -> io::Result<()> {
    match (early, address) {
        (false, _) => Ok(()),
        (true, SocketAddr::V4(_)) => socket.set_freebind_v4(true),
        (true, SocketAddr::V6(_)) => socket.set_freebind_v6(true),
    }
}

/// Accepts connections, which speak `wire`, for ever and deals them round robin to `queues`. Runs within a runtime.
pub async fn accept<W: Copy>(
    listener: StdListener,
    queues: Vec<mpsc::UnboundedSender<Accepted<W>>>,
    wire: W,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the listening socket cannot be watched");
            return;
        }
    };
    let mut failures: u64 = 0;
    for queue in queues.iter().cycle() {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    if failures % LOG_EVERY == 0 {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    failures += 1;
                    // Errors of the one connection (it is gone already) need no pause; lack of
                    // descriptors or memory does, or this loop would take a whole core.
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        let stream = stream.into_std().and_then(|stream| {
            prepare(&stream)?;
            Ok(stream)
        });
        match stream {
            Ok(stream) => {
                if queue.send((stream, wire)).is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "connection lost while it was accepted"),
        }
    }
}

/// Socket options of a client's connection: no delay for small answers, and keep-alive probes so
/// that a client machine that vanished does not hold its connection for ever.
fn prepare(stream: &StdStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(Duration::from_secs(60))
            .with_interval(Duration::from_secs(15))
            .with_retries(4),
    )
}
