//! Where paired nodes come in.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::{Replication, peers, serve};

/// Connections at once. A node needs one for each transfer, so this is several busy nodes.
const MOST: usize = 512;
/// Whoever connects has to have shown who it is within this.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Accepts for as long as the service runs.
pub fn start(service: &Arc<Replication>, listener: TcpListener) -> Result<()> {
    let config = service.peers.server().context("TLS for replication")?;
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

async fn accept(service: &Arc<Replication>, listener: TcpListener, config: Arc<ServerConfig>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "no peer can connect");
            return;
        }
    };
    let mut stop = service.stop.subscribe();
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a peer could not be let in");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if open.load(Ordering::Acquire) >= MOST {
            tracing::warn!("more than {MOST} replication connections; one was turned away");
            continue;
        }
        open.fetch_add(1, Ordering::AcqRel);
        let (left, config) = (Open(Arc::clone(&open)), Arc::clone(&config));
        let begun = service.spawn("weir-sender", move |service| {
            let _left = left;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(welcome(service, stream, config));
            }
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "a peer could not be let in");
        }
    }
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn welcome(service: &Arc<Replication>, stream: TcpStream, config: Arc<ServerConfig>) {
    let from = stream.peer_addr();
    let prepared = peers::prepare(&stream).and_then(|()| tokio::net::TcpStream::from_std(stream));
    let Ok(stream) = prepared else {
        return;
    };
    let mut stop = service.stop.subscribe();
    let greeted = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return,
        greeted = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)) => greeted,
    };
    let Ok(Ok(tls)) = greeted else {
        tracing::info!(
            ?from,
            "a connection without a known certificate was refused"
        );
        return;
    };
    let shown = tls.get_ref().1.peer_certificates();
    let peer = shown.and_then(|chain| service.peers.of(chain.first()?));
    // It may have been deleted since its certificate was looked at.
    if let Some(peer) = peer {
        service.peers.seen(&peer.name, Ok(()));
        serve::converse(service, Box::new(tls), Some(&peer)).await;
    }
}
