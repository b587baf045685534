//! Connections of clients to the addresses that move: the primary reports them, so that the standby
//! can end them when it takes over ([`super::address`]).
//!
//! They travel beside the stream, as differences to what was reported over the same link, at once
//! when one begins, and nothing waits for them: a client that connected a moment before its server
//! was lost notices by itself.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::Pin;

use parking_lot::Mutex;
use weir_base::limits::mirror::MAX_KNOWN_CONNECTIONS;
use weir_mirror::wire::{CONNECTIONS, Message};

use super::address::Connection;

/// The server's end of a connection and the client's.
pub type Ends = (SocketAddr, SocketAddr);

/// Connections of clients to the node that serves.
pub trait Connections: Send + Sync {
    /// Waits until a connection has begun since the last call.
    fn begun(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Makes the next [`Connections::begun`] return at once.
    fn wake(&self);

    /// Returns the connections that `wanted` picks and their version, if any has begun or ended
    /// since `version`.
    fn since(&self, version: u64, wanted: &dyn Fn(&Ends) -> bool) -> Option<(u64, Vec<Ends>)>;
}

/// Connections of the node that serves, as reported to its standby. At most
/// [`MAX_KNOWN_CONNECTIONS`] are kept.
#[derive(Default)]
pub struct KnownConnections(Mutex<HashSet<Connection>>);

impl KnownConnections {
    /// Returns all connections.
    pub fn list_connections(&self) -> Vec<Connection> {
        self.0.lock().iter().copied().collect()
    }

    /// Applies a report. With `whole` it replaces everything known before.
    pub fn take(&self, whole: bool, opened: &[Ends], closed: &[Ends]) {
        let mut known = self.0.lock();
        if whole {
            known.clear();
        }
        for (local, peer) in closed {
            known.remove(&Connection {
                local: *local,
                peer: *peer,
            });
        }
        for (local, peer) in opened {
            if known.len() < MAX_KNOWN_CONNECTIONS {
                known.insert(Connection {
                    local: *local,
                    peer: *peer,
                });
            }
        }
    }
}

/// Connections that were reported over one link.
#[derive(Default)]
pub struct ConnectionReport {
    /// Number of the link.
    pub link: u64,
    /// Version of the connections.
    pub version: u64,
    ends: HashSet<Ends>,
}

impl ConnectionReport {
    /// Creates an empty report for the link with this number.
    pub fn new(link: u64) -> ConnectionReport {
        ConnectionReport {
            link,
            ..ConnectionReport::default()
        }
    }

    /// Returns the messages that report the difference to `now`. With `whole` they begin with one
    /// that replaces everything reported before.
    pub fn messages(&mut self, whole: bool, now: &HashSet<Ends>) -> Vec<Message> {
        let closed: Vec<Ends> = self.ends.difference(now).copied().collect();
        self.ends.retain(|ends| now.contains(ends));
        let room = MAX_KNOWN_CONNECTIONS.saturating_sub(self.ends.len());
        let opened: Vec<Ends> = now.difference(&self.ends).take(room).copied().collect();
        self.ends.extend(&opened);
        let message = |whole, opened: &[Ends], closed: &[Ends]| Message::Connections {
            whole,
            opened: opened.to_vec(),
            closed: closed.to_vec(),
        };
        let first = whole.then(|| message(true, &[], &[]));
        let closed = closed
            .chunks(CONNECTIONS)
            .map(|some| message(false, &[], some));
        let opened = opened
            .chunks(CONNECTIONS)
            .map(|some| message(false, some, &[]));
        first.into_iter().chain(closed).chain(opened).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_is_what_the_standby_knows() {
        let ends = |n: u16| -> Ends {
            let at = |host: u8, port| SocketAddr::from(([10, 0, 0, host], port));
            (at(1, 2049), at(9, n))
        };
        let known = KnownConnections::default();
        let mut reported = ConnectionReport::default();
        let mut says = |whole, now: &[u16]| {
            let now: HashSet<Ends> = now.iter().map(|n| ends(*n)).collect();
            let messages = reported.messages(whole, &now);
            for message in &messages {
                let Message::Connections {
                    whole,
                    opened,
                    closed,
                } = message
                else {
                    panic!("{message:?}");
                };
                assert!(opened.len() + closed.len() <= CONNECTIONS);
                known.take(*whole, opened, closed);
            }
            let mut ports: Vec<u16> = known
                .list_connections()
                .iter()
                .map(|one| one.peer.port())
                .collect();
            ports.sort_unstable();
            (messages.len(), ports)
        };
        assert_eq!(says(true, &[3, 1]), (2, vec![1, 3]));
        assert_eq!(says(false, &[1, 3]), (0, vec![1, 3]));
        assert_eq!(says(false, &[2, 3]), (2, vec![2, 3]));
        let many: Vec<u16> = (1..=20_000).collect();
        let (messages, ports) = says(false, &many);
        assert_eq!(ports.len(), MAX_KNOWN_CONNECTIONS);
        assert!(messages >= MAX_KNOWN_CONNECTIONS / CONNECTIONS);
        // A new link, over which nothing was reported.
        reported = ConnectionReport::default();
        let now = HashSet::from([ends(7)]);
        for message in reported.messages(true, &now) {
            if let Message::Connections {
                whole,
                opened,
                closed,
            } = message
            {
                known.take(whole, &opened, &closed);
            }
        }
        assert_eq!(known.list_connections().len(), 1);
    }
}
