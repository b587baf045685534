//! Accepts connections and deals them to the cores.
//!
//! There is one listener, which deals round robin: a client's `nconnect` connections arrive one
//! after the other and so spread evenly. A listener per core (SO_REUSEPORT, dealt by hash) would
//! not spread a handful of connections evenly.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::event_loop::AcceptedConnection;

/// Maximum number of connections that wait to be accepted; the kernel limits it to
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Pause after an accept failed for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accept failures are logged once per this many.
const LOG_EVERY: u64 = 600;

/// An address that is bound and refuses connections until [`ReservedAddress::listen`].
///
/// Requests that clients send before the server serves must not be executed later: clients have
/// given them up by then, and another node may have served later ones. So not even a connection is
/// accepted.
pub struct ReservedAddress {
    socket: Socket,
    address: SocketAddr,
}

/// Binds an address. With `early`, this machine need not have it yet.
///
/// # Errors
/// The address cannot be bound.
pub fn reserve(address: SocketAddr, early: bool) -> io::Result<ReservedAddress> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Connections of the previous process may linger (TIME_WAIT).
    socket.set_reuse_address(true)?;
    bind_early(&socket, address, early)?;
    socket.bind(&address.into())?;
    if address.port() != 0 {
        // Only listening detects another socket that is bound here and listens later. A port that
        // the kernel has chosen has no other user, and shutdown would lose it.
        socket.listen(1)?;
        socket.shutdown(Shutdown::Read)?;
    }
    // From now on no other socket may bind here.
    socket.set_reuse_address(false)?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?.as_socket();
    let address = address.ok_or(io::ErrorKind::Unsupported)?;
    Ok(ReservedAddress { socket, address })
}

impl ReservedAddress {
    /// Returns the address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections from now on.
    ///
    /// # Errors
    /// Another socket listens at the address.
    pub fn listen(self) -> io::Result<StdListener> {
        // Connections inherit the option, and must not keep the next process from the address.
        self.socket.set_reuse_address(true)?;
        self.socket.listen(BACKLOG)?;
        Ok(self.socket.into())
    }
}

/// Allows a socket to be bound to an address that this machine does not have yet.
pub(super) fn bind_early(socket: &Socket, address: SocketAddr, early: bool) -> io::Result<()> {
    match (early, address) {
        (false, _) => Ok(()),
        (true, SocketAddr::V4(_)) => socket.set_freebind_v4(true),
        (true, SocketAddr::V6(_)) => socket.set_freebind_v6(true),
    }
}

/// Accepts connections of protocol `wire` and deals them round robin to `queues`, until the queues
/// close. Runs within a runtime.
pub async fn accept<W: Copy>(
    listener: StdListener,
    queues: Vec<mpsc::UnboundedSender<AcceptedConnection<W>>>,
    wire: W,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot watch the listening socket");
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
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    failures += 1;
                    // An error of one connection, which is gone already, needs no pause. Lack of
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

/// Sets the socket options of a client's connection: no delay for small replies, and keep-alive
/// probes that end the connections of vanished clients.
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
        // The second has a port that the kernel did not choose.
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
            // Its connections do not keep the next socket from the address.
            drop(listener);
            let next = reserve(at, false).unwrap();
            drop((server, client));
            next.listen().unwrap();
        }
    }
}
