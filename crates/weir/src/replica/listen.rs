//! Where paired nodes come in.
//!
//! Any client can connect and say nothing. So connections that have not shown a known certificate are few, and the
//! oldest of the address that has most of them gives way to a new one: an address that holds many keeps out only
//! itself.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_base::limits::replica::{
    PEER_CONNECTIONS as MOST, PEER_HANDSHAKE as HANDSHAKE, PEER_STRANGERS as STRANGERS,
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

use super::peers::{self, Peer};
use super::{Replication, pairing, serve};

/// Connections without a known certificate so far, the oldest first.
#[derive(Default)]
struct Strangers(Mutex<VecDeque<Stranger>>);

struct Stranger {
    from: IpAddr,
    /// Notified when it is to give way.
    leave: Arc<Notify>,
}

impl Strangers {
    /// One more, for which another gives way if there are too many.
    fn enter(&self, from: IpAddr) -> Arc<Notify> {
        let mut list = self.0.lock();
        if list.len() >= STRANGERS {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            for stranger in &*list {
                *counts.entry(stranger.from).or_default() += 1;
            }
            let most = list.iter().map(|stranger| counts[&stranger.from]).max();
            let oldest = list.iter().position(|s| Some(counts[&s.from]) == most);
            if let Some(stranger) = oldest.and_then(|oldest| list.remove(oldest)) {
                stranger.leave.notify_one();
            }
        }
        let leave = Arc::new(Notify::new());
        list.push_back(Stranger {
            from,
            leave: Arc::clone(&leave),
        });
        leave
    }

    /// It has shown a known certificate, or left.
    fn leave(&self, who: &Arc<Notify>) {
        self.0.lock().retain(|s| !Arc::ptr_eq(&s.leave, who));
    }
}

/// TLS of peers, and of nodes that want to become peers.
#[derive(Clone)]
struct Configs {
    paired: Arc<ServerConfig>,
    joins: Arc<ServerConfig>,
}

/// Accepts for as long as the service runs.
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
    let strangers = Arc::new(Strangers::default());
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
                tracing::warn!(%error, "a peer could not be let in");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if open.load(Ordering::Acquire) >= MOST {
            tracing::warn!("more than {MOST} replication connections; one was turned away");
            continue;
        }
        let leave = strangers.enter(from.ip().to_canonical());
        let (open, config) = (Arc::clone(&open), config.clone());
        let known = Arc::clone(&strangers);
        let begun = service.spawn("weir-sender", move |service| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    let greeted = welcome(service, stream, config, &leave).await;
                    known.leave(&leave);
                    if let Some((tls, peer)) = greeted {
                        let _open = Open::new(open);
                        serve::converse(service, Box::new(tls), Some(&peer)).await;
                    }
                });
            }
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "a peer could not be let in");
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

/// The connection, once the peer has shown its certificate. One that wants to become a peer ends here.
async fn welcome(
    service: &Arc<Replication>,
    stream: TcpStream,
    config: Configs,
    leave: &Notify,
) -> Option<(TlsStream<tokio::net::TcpStream>, Arc<Peer>)> {
    let from = stream.peer_addr();
    let prepared = peers::prepare(&stream).and_then(|()| tokio::net::TcpStream::from_std(stream));
    let stream = prepared.ok()?;
    let mut stop = service.stop.subscribe();
    let greeted = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return None,
        () = leave.notified() => return None,
        greeted = tokio::time::timeout(HANDSHAKE, greet(service, stream, config)) => greeted,
    };
    let Ok(Ok(greeted)) = greeted else {
        tracing::info!(
            ?from,
            "a connection without a known certificate was refused"
        );
        return None;
    };
    let tls = greeted?;
    let shown = tls.get_ref().1.peer_certificates();
    // It may have been deleted since its certificate was checked.
    let peer = shown.and_then(|chain| service.peers.of(chain.first()?))?;
    service.peers.note(&peer.name, Ok(()));
    Some((tls, peer))
}

/// `None`: it was a node that joins, and how that went is in the log.
async fn greet(
    service: &Arc<Replication>,
    stream: tokio::net::TcpStream,
    config: Configs,
) -> std::io::Result<Option<TlsStream<tokio::net::TcpStream>>> {
    let started = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let wants = started.client_hello().alpn();
    let joins = wants.is_some_and(|mut all| all.any(|name| name == pairing::PROTOCOL))
        && !service.offers.all(service.now()).is_empty();
    if !joins {
        return started.into_stream(config.paired).await.map(Some);
    }
    let tls = started.into_stream(config.joins).await?;
    let from = tls.get_ref().0.peer_addr();
    match pairing::receive(service, tls).await {
        Ok(joined) => tracing::info!(?from, "{joined}"),
        Err(why) => tracing::warn!(?from, %why, "a node was not paired"),
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn who_holds_many_connections_keeps_out_only_himself() {
        let strangers = Strangers::default();
        let enter = |n: u8| strangers.enter([10, 0, 0, n].into());
        let left = |who: &Arc<Notify>| who.notified().now_or_never().is_some();
        let peer = enter(1);
        let many: Vec<_> = (0..STRANGERS * 3).map(|_| enter(2)).collect();
        assert!(!left(&peer), "its address has only this one");
        let stayed = many.iter().filter(|who| !left(who)).count();
        assert_eq!(stayed, STRANGERS - 1);
        assert!(!left(&many[many.len() - 1]));
        strangers.leave(&peer);
        many.iter().for_each(|who| strangers.leave(who));
        assert!(strangers.0.lock().is_empty());
    }
}
