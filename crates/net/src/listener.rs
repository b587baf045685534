//! Accepting connections and dealing them to the cores.
//!
//! Round robin, one listener: a client's `nconnect` connections arrive one after the other and
//! so spread evenly, which a listener per core (SO_REUSEPORT, dealt by hash) does not give for
//! a handful of connections.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::event_loop::Accepted;

/// Connections that may wait to be accepted (the kernel caps it at `net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// Pause after an accept failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accept failures are logged once per this many.
const LOG_EVERY: u64 = 600;

/// An address that is taken and refuses connections until [`Reserved::listen`].
///
/// What clients send before a server serves must not be carried out once it does: they have given it up by then, and
/// their later requests may have been served by another node. So nothing is taken from them, not even a connection.
pub struct Reserved {
    socket: Socket,
    address: SocketAddr,
}

/// Takes an address; `early`: one that this machine need not have yet.
///
/// # Errors
/// The address is not to be had.
pub fn reserve(address: SocketAddr, early: bool) -> io::Result<Reserved> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Connections of the process before may linger (TIME_WAIT).
    socket.set_reuse_address(true)?;
    bind_early(&socket, address, early)?;
    socket.bind(&address.into())?;
    if address.port() != 0 {
        // Only listening finds out that another socket is bound here that listens later. A port that the kernel has
        // chosen is nobody else's, and would be lost.
        socket.listen(1)?;
        socket.shutdown(Shutdown::Read)?;
    }
    // From now on no other may bind here.
    socket.set_reuse_address(false)?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?.as_socket();
    let address = address.ok_or(io::ErrorKind::Unsupported)?;
    Ok(Reserved { socket, address })
}

impl Reserved {
    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has clients connect from now on.
    ///
    /// # Errors
    /// Another socket listens at the address.
    pub fn listen(self) -> io::Result<StdListener> {
        // Connections inherit it, and must not keep the next process from the address.
        self.socket.set_reuse_address(true)?;
        self.socket.listen(BACKLOG)?;
        Ok(self.socket.into())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_address_is_taken_and_refuses_connections_until_it_is_listened_at() {
        // The second has a port that is not of the kernel's choice.
        let chosen = reserve(([127, 0, 0, 1], 0).into(), false).unwrap();
        let free = chosen.address();
        drop(chosen);
        for wanted in [SocketAddr::from(([127, 0, 0, 1], 0)), free] {
            let reserved = reserve(wanted, false).unwrap();
            let at = reserved.address();
            let refused = StdStream::connect(at).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let taken = reserve(at, false).err().map(|error| error.kind());
            assert_eq!(taken, Some(io::ErrorKind::AddrInUse));
            assert!(StdListener::bind(at).is_err());
            let listener = reserved.listen().unwrap();
            let client = StdStream::connect(at).unwrap();
            listener.set_nonblocking(false).unwrap();
            let (server, _) = listener.accept().unwrap();
            assert!(reserve(at, false).is_err());
            // Its connections do not keep the next one from the address.
            drop(listener);
            let next = reserve(at, false).unwrap();
            drop((server, client));
            next.listen().unwrap();
        }
    }
}
