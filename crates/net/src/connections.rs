//! Registry of the open connections, for a node of a pair that reports them to its partner. It
//! takes one lock at the start of a connection and one at its end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The server's address of a connection, and the client's.
pub type Ends = (SocketAddr, SocketAddr);

/// See the module's head.
#[derive(Default)]
pub struct ConnectionRegistry {
    now: Mutex<Now>,
    /// Signalled when a connection has begun.
    pub begun: Notify,
}

#[derive(Default)]
struct Now {
    /// Number of connections for each pair of addresses. It can exceed 1: a client that connects
    /// again from the same port may be accepted before the end of the old connection is seen.
    ends: HashMap<Ends, usize>,
    /// Counts changes.
    version: u64,
}

/// Registration of a connection; dropping it ends the registration.
pub struct Present {
    all: Arc<ConnectionRegistry>,
    ends: Ends,
}

impl ConnectionRegistry {
    /// Registers a connection. IPv4 addresses are stored as such, also if the socket is an IPv6
    /// one.
    pub fn enter(self: &Arc<Self>, local: SocketAddr, peer: SocketAddr) -> Present {
        let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let ends = (plain(local), plain(peer));
        let mut now = self.now.lock();
        *now.ends.entry(ends).or_default() += 1;
        now.version += 1;
        drop(now);
        self.begun.notify_one();
        Present {
            all: Arc::clone(self),
            ends,
        }
    }

    /// Returns the number of connections at each of this server's ports.
    pub fn by_port(&self) -> HashMap<u16, usize> {
        let mut counts = HashMap::new();
        for ((local, _), count) in &self.now.lock().ends {
            *counts.entry(local.port()).or_default() += count;
        }
        counts
    }

    /// Returns the current version and the connections that `wanted` selects; `None` if no
    /// connection has begun or ended since `version`.
    pub fn since(&self, version: u64, wanted: impl Fn(&Ends) -> bool) -> Option<(u64, Vec<Ends>)> {
        let now = self.now.lock();
        let all = now.ends.keys().filter(|ends| wanted(ends));
        (now.version != version).then(|| (now.version, all.copied().collect()))
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut now = self.all.now.lock();
        if let Entry::Occupied(mut count) = now.ends.entry(self.ends) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        now.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_there_for_as_long_as_they_are_and_changes_are_noticed() {
        let all = Arc::new(ConnectionRegistry::default());
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let one = all.enter(at("[::ffff:10.0.0.1]:2049"), at("[::ffff:10.0.0.9]:700"));
        let two = all.enter(at("10.0.0.2:2049"), at("10.0.0.9:700"));
        let (version, now) = all
            .since(0, |(local, _)| local.ip() == at("10.0.0.1:0").ip())
            .unwrap();
        assert_eq!(now, [(at("10.0.0.1:2049"), at("10.0.0.9:700"))]);
        assert_eq!(all.since(version, |_| true), None);
        drop(one);
        let (version, now) = all.since(version, |_| true).unwrap();
        assert_eq!(now, [(at("10.0.0.2:2049"), at("10.0.0.9:700"))]);
        // The same client again, before the end of its old connection is seen.
        let again = all.enter(at("10.0.0.2:2049"), at("10.0.0.9:700"));
        drop(two);
        let (version, now) = all.since(version, |_| true).unwrap();
        assert_eq!(now, [(at("10.0.0.2:2049"), at("10.0.0.9:700"))]);
        assert_eq!(all.by_port(), HashMap::from([(2049, 1)]));
        drop(again);
        assert_eq!(all.by_port(), HashMap::new());
        assert_eq!(all.since(version, |_| true).unwrap().1, []);
    }
}
