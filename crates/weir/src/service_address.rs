//! Addresses that move with an aggregate on RADOS: the server that owns it has them on its
//! interfaces, for as long as its lease holds ([`weir_pair_node::address`]).
//!
//! The owner keeps a list of its clients' connections with the aggregate. The next owner makes each
//! of these clients notice at once that its connection is gone.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use weir_base::Clock;
use weir_base::limits::mirror::MAX_KNOWN_CONNECTIONS;
use weir_pair_node::address::{self, Addresses, Connection, LEASED, POLL};
use weir_pair_node::{Address, Connections, Ends, Lease};
use weir_rados_store::Session;

/// Name of the list of connections among the files of the aggregate.
pub const CLIENTS: &str = "clients";
/// Minimum time between two writes of the list.
const LIST_PERIOD: Duration = Duration::from_secs(1);

/// The service addresses of this server.
pub struct ServiceAddresses {
    addresses: Addresses,
    clock: Arc<dyn Clock>,
    /// Ends the thread that keeps the addresses when dropped.
    keeping: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

/// Parts of the server that the addresses depend on while it owns the aggregate.
pub struct OwnerParts {
    /// The right to the aggregate.
    pub session: Arc<Session>,
    /// The lease within which replies leave.
    pub lease: Arc<Lease>,
    /// Connections of clients.
    pub connections: Arc<dyn Connections>,
}

impl ServiceAddresses {
    /// Removes addresses that an older process has left, and checks that this one may have them.
    ///
    /// # Errors
    /// As [`address::admissible`] and [`Addresses::open`].
    pub fn open(all: &[Address], clock: &Arc<dyn Clock>) -> Result<Arc<ServiceAddresses>> {
        address::admissible(all)?;
        Ok(Arc::new(ServiceAddresses {
            addresses: Addresses::open(all.to_vec())?,
            clock: Arc::clone(clock),
            keeping: Mutex::default(),
        }))
    }

    /// Describes the addresses and whether this server has them; `None` if there are none.
    pub fn describe(&self) -> Option<String> {
        self.addresses.describe()
    }

    /// Adds the addresses, and keeps them for as long as the lease holds, until
    /// [`ServiceAddresses::end`].
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn serve(self: &Arc<Self>, owned: OwnerParts) -> Result<()> {
        if self.addresses.is_empty() {
            return Ok(());
        }
        let before = match owned.session.read_file(CLIENTS) {
            Ok(list) => parse(&list.unwrap_or_default(), |ip| {
                self.addresses.has_address(ip)
            }),
            Err(error) => {
                tracing::warn!("clients of the owner before notice by themselves: {error}");
                Vec::new()
            }
        };
        self.keep(&owned.lease, &before);
        let (stop, stopped) = channel();
        let all = Arc::clone(self);
        let keep = move || {
            let mut list = List::default();
            while stopped.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                all.keep(&owned.lease, &before);
                all.list(&owned, &mut list);
            }
        };
        let thread = std::thread::Builder::new().name("weir-address".to_owned());
        let thread = thread.spawn(keep).context("starting a thread")?;
        *self.keeping.lock() = Some((stop, thread));
        Ok(())
    }

    fn keep(&self, lease: &Lease, before: &[Connection]) {
        let lifetime = lease.holds().then_some(LEASED);
        let kept = (self.addresses).keep(self.clock.monotonic(), lifetime, || before.to_vec());
        if let Err(why) = kept {
            tracing::error!("{why}");
        }
    }

    /// Puts the list of connections with the aggregate, if it has changed.
    fn list(&self, owned: &OwnerParts, list: &mut List) {
        let now = self.clock.monotonic();
        if now < list.next {
            return;
        }
        let moving = |(local, _): &Ends| self.addresses.has_address(local.ip());
        let Some((version, mut ends)) = owned.connections.since(list.version, &moving) else {
            return;
        };
        list.next = now + LIST_PERIOD;
        ends.truncate(MAX_KNOWN_CONNECTIONS);
        let text = serde_json::to_vec(&ends).unwrap_or_default();
        match owned.session.write_file(CLIENTS, &text) {
            Ok(()) => list.version = version,
            Err(error) => tracing::warn!("cannot list the clients' connections: {error}"),
        }
    }

    /// Removes the addresses for the rest of this process.
    pub fn end(&self) {
        if let Some((stop, thread)) = self.keeping.lock().take() {
            drop(stop);
            // It has reported its panic.
            let _ = thread.join();
        }
        self.addresses.end();
    }
}

/// The list of connections as it was written last.
#[derive(Default)]
struct List {
    version: u64,
    /// Time of the next write at the earliest.
    next: Duration,
}

/// Parses a list of connections. Those at other addresses than `has` selects are left alone.
fn parse(list: &[u8], has: impl Fn(IpAddr) -> bool) -> Vec<Connection> {
    let ends: Vec<Ends> = serde_json::from_slice(list).unwrap_or_default();
    let moving = ends.into_iter().filter(|(local, _)| has(local.ip()));
    let all = moving.map(|(local, peer)| Connection { local, peer });
    all.take(MAX_KNOWN_CONNECTIONS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_to_the_addresses_that_move_are_ended() {
        let at = |text: &str| text.parse().unwrap();
        let ends: Vec<Ends> = vec![
            (at("10.0.0.100:2049"), at("10.0.0.9:700")),
            (at("10.0.0.1:2049"), at("10.0.0.9:701")),
        ];
        let list = serde_json::to_vec(&ends).unwrap();
        let moving = |ip: IpAddr| ip == IpAddr::from([10, 0, 0, 100]);
        let (local, peer) = ends[0];
        assert_eq!(parse(&list, moving), [Connection { local, peer }]);
        assert_eq!(parse(b"", moving), []);
        assert_eq!(parse(&list[1..], moving), []);
        let many = serde_json::to_vec(&vec![ends[0]; MAX_KNOWN_CONNECTIONS + 1]).unwrap();
        assert_eq!(parse(&many, moving).len(), MAX_KNOWN_CONNECTIONS);
    }
}
