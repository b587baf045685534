//! Accepts connections of paired nodes, through a [`Door`].

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;
use weir_base::limits::replica::{PEER_CONNECTIONS as MOST, PEER_PAIRING};

use super::peers::Peer;
use super::state::Replication;
use super::{pairing, serve};
use weir_peer_link::door::{Door, Guest};
use weir_peer_link::pairing::PROTOCOL;
use weir_peer_link::stream::prepare;

/// TLS settings for peers, and for nodes that want to become peers.
#[derive(Clone)]
struct Configs {
    paired: Arc<ServerConfig>,
    joins: Arc<ServerConfig>,
}

/// Accepts connections until the service stops.
pub fn start(service: &Arc<Replication>, listener: TcpListener) -> Result<()> {
    let config = Configs {
        paired: service.peers.server().context("TLS for replication")?,
        joins: service.peers.offering().context("TLS for pairing")?,
    };
    listener.set_nonblocking(true)?;
    service.spawn("weir-peers", move |service| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(accept(service, listener, config)),
            Err(error) => tracing::error!(%error, "no peer can connect"),
        }
    })?;
    Ok(())
}

async fn accept(service: &Arc<Replication>, listener: TcpListener, config: Configs) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "no peer can connect");
            return;
        }
    };
    let mut stop = service.stop.subscribe();
    let open = Arc::new(AtomicUsize::new(0));
    let door = Arc::new(Door::default());
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let accepted = accepted.and_then(|(stream, from)| Ok((stream.into_std()?, from)));
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a peer's connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if open.load(Ordering::Acquire) >= MOST {
            tracing::warn!("more than {MOST} replication connections; one was turned away");
            continue;
        }
        let guest = door.enter(from.ip());
        let (open, config) = (Arc::clone(&open), config.clone());
        let begun = service.spawn("weir-sender", move |service| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    if let Some((tls, peer)) = welcome(service, stream, config, guest).await {
                        let _open = Open::new(open);
                        serve::converse(service, Box::new(tls), Some(&peer)).await;
                    }
                });
            }
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "cannot accept a peer's connection");
        }
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: Arc<AtomicUsize>) -> Open {
        count.fetch_add(1, Ordering::AcqRel);
        Open(count)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the connection once the peer has shown its certificate. The connection of a node that
/// wants to become a peer is handled and ended here.
async fn welcome(
    service: &Arc<Replication>,
    stream: TcpStream,
    config: Configs,
    guest: Guest,
) -> Option<(TlsStream<tokio::net::TcpStream>, Arc<Peer>)> {
    let from = stream.peer_addr();
    let prepared = prepare(&stream).and_then(|()| tokio::net::TcpStream::from_std(stream));
    let stream = prepared.ok()?;
    let mut stop = service.stop.subscribe();
    let greeted = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return None,
        greeted = guest.greet(greet(service, stream, config)) => greeted,
    };
    let tls = match greeted {
        Some(Ok(TlsConnection::Peer(tls))) => tls,
        Some(Ok(TlsConnection::Joins(tls))) => {
            let pairing = guest.within(PEER_PAIRING, pairing::receive(service, *tls));
            let outcome = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return None,
                outcome = pairing => outcome,
            };
            match outcome {
                Some(Ok(joined)) => tracing::info!(?from, "{joined}"),
                Some(Err(why)) => tracing::warn!(?from, %why, "cannot pair a node"),
                None => tracing::warn!(?from, "cannot pair a node: it was too slow"),
            }
            return None;
        }
        _ => {
            tracing::info!(?from, "refused a connection without a known certificate");
            return None;
        }
    };
    let shown = tls.get_ref().1.peer_certificates();
    // The peer may have been deleted since its certificate was checked.
    let peer = shown.and_then(|chain| service.peers.find_by_certificate(chain.first()?))?;
    guest.admitted();
    service.peers.note(&peer.name, Ok(()));
    Some((*tls, peer))
}

/// A connection after the TLS handshake.
enum TlsConnection {
    Peer(Box<TlsStream<tokio::net::TcpStream>>),
    /// From a node that wants to become a peer.
    Joins(Box<TlsStream<tokio::net::TcpStream>>),
}

async fn greet(
    service: &Arc<Replication>,
    stream: tokio::net::TcpStream,
    config: Configs,
) -> io::Result<TlsConnection> {
    let started = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let wants = started.client_hello().alpn();
    let joins = wants.is_some_and(|mut all| all.any(|name| name == PROTOCOL))
        && !service
            .offers
            .list_offers(service.current_time())
            .is_empty();
    Ok(match joins {
        true => TlsConnection::Joins(Box::new(started.into_stream(config.joins).await?)),
        false => TlsConnection::Peer(Box::new(started.into_stream(config.paired).await?)),
    })
}
