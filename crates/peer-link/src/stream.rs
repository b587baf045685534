//! Outgoing connections to other nodes.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use weir_base::limits::replica::PEER_CONNECT as CONNECT;

/// Time after which a dead peer is detected.
const GONE: Duration = Duration::from_secs(30);

/// Name that clients send in TLS. Certificates are identified by fingerprint, so it has no meaning.
const NAME: &str = "weir";

/// Connects to `address` and prepares the socket for a transfer. Blocks.
///
/// # Errors
/// Nothing listens at `address`, or it cannot be reached.
pub fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = None;
    let found = address
        .to_socket_addrs()
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => error,
            // The resolver's own words name calls of its library.
            _ => io::Error::new(
                io::ErrorKind::NotFound,
                "host not found (check the name, or give an IP address)",
            ),
        });
    let all: Vec<SocketAddr> = found?.collect();
    for one in all {
        match TcpStream::connect_timeout(&one, CONNECT) {
            Ok(stream) => {
                prepare(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other(format!("{address} has no address"))))
}

/// Prepares a socket for a transfer: no delay of small segments, and keepalive probes that end
/// connections to a dead peer. A transfer under a tight throttle may be silent for long, so silence
/// alone proves nothing.
///
/// # Errors
/// The kernel refuses a setting.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let probes = socket2::TcpKeepalive::new()
        .with_time(GONE / 3)
        .with_interval(GONE / 6)
        .with_retries(4);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(GONE))?;
    stream.set_nonblocking(true)
}

/// Begins TLS over a connection, as the client.
///
/// # Errors
/// The other end shows another certificate than `config` admits, does not accept this node's, or is
/// gone.
pub async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    config: Arc<ClientConfig>,
    stream: S,
) -> io::Result<TlsStream<S>> {
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}
