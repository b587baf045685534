//! Admission of connections from other nodes: at a witness, at a node of a pair, at the replication
//! port.
//!
//! Any client can connect and send nothing. Connections that have not shown a known certificate are
//! therefore few, and have one second to show one. A new one replaces the oldest of the address
//! that has most of them, so an address that has many keeps out only itself. Addresses from which a
//! node has shown its certificate have their own slots, so that clients of many addresses do not
//! keep out the nodes.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_base::limits::replica::{KNOWN_ADDRESSES, NODE_HANDSHAKE, NODE_STRANGERS};
use weir_base::network::{Address, address_of};

/// Connections of one port that have not shown a known certificate so far.
#[derive(Default)]
pub struct Door(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    /// From addresses without a known node, the oldest first.
    strangers: VecDeque<GuestEntry>,
    /// From addresses in `known`, the oldest first.
    expected: VecDeque<GuestEntry>,
    /// Addresses from which a node has shown its certificate, the latest last.
    known: VecDeque<Address>,
}

struct GuestEntry {
    from: Address,
    /// Notified when the connection has to close for another one.
    leave: Arc<Notify>,
}

/// Registration of one of these connections; dropping it ends the registration.
pub struct Guest {
    door: Arc<Door>,
    from: Address,
    leave: Arc<Notify>,
}

impl Door {
    /// Registers a connection. Another one has to close if there are too many.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Guest {
        let (from, leave) = (address_of(from), Arc::new(Notify::new()));
        let mut inside = self.0.lock();
        let list = match inside.known.contains(&from) {
            true => &mut inside.expected,
            false => &mut inside.strangers,
        };
        if list.len() >= NODE_STRANGERS {
            give_way(list);
        }
        list.push_back(GuestEntry {
            from,
            leave: Arc::clone(&leave),
        });
        drop(inside);
        let door = Arc::clone(self);
        Guest { door, from, leave }
    }
}

/// Closes the oldest connection of the address that has most.
fn give_way(list: &mut VecDeque<GuestEntry>) {
    let mut counts: HashMap<Address, usize> = HashMap::new();
    for waiting in &*list {
        *counts.entry(waiting.from).or_default() += 1;
    }
    let most = counts.values().copied().max();
    let oldest = list
        .iter()
        .position(|waiting| counts.get(&waiting.from).copied() == most);
    if let Some(waiting) = oldest.and_then(|oldest| list.remove(oldest)) {
        waiting.leave.notify_one();
    }
}

impl Guest {
    /// Runs a handshake; `None` if the connection has to close for another one, or the handshake
    /// takes too long.
    pub async fn greet<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        self.within(NODE_HANDSHAKE, handshake).await
    }

    /// As [`Guest::greet`], for an exchange that may take longer.
    pub async fn within<T>(&self, limit: Duration, talk: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.leave.notified() => None,
            done = tokio::time::timeout(limit, talk) => done.ok(),
        }
    }

    /// Ends the registration of a connection that has shown a known certificate. Its address has
    /// its own slots from now on.
    pub fn admitted(self) {
        let known = &mut self.door.0.lock().known;
        known.retain(|address| *address != self.from);
        if known.len() >= KNOWN_ADDRESSES {
            known.pop_front();
        }
        known.push_back(self.from);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let inside = &mut *self.door.0.lock();
        for list in [&mut inside.strangers, &mut inside.expected] {
            list.retain(|waiting| !Arc::ptr_eq(&waiting.leave, &self.leave));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn left(guest: &Guest) -> bool {
        let waits = guest.greet(std::future::pending::<()>());
        waits.now_or_never().is_some()
    }

    #[tokio::test]
    async fn who_holds_many_connections_keeps_out_only_himself() {
        let door = Arc::new(Door::default());
        let enter = |n: u8| door.enter([10, 0, 0, n].into());
        let peer = enter(1);
        let many: Vec<_> = (0..NODE_STRANGERS * 3).map(|_| enter(2)).collect();
        assert!(!left(&peer), "its address has only this one");
        // An IPv6 network counts as one address, and an IPv4 address is the same in either
        // notation.
        let mapped = door.enter("::ffff:10.0.0.1".parse().unwrap());
        assert_eq!(mapped.from, peer.from);
        drop(mapped);
        let stayed = many.iter().filter(|guest| !left(guest)).count();
        assert!((NODE_STRANGERS - 2..NODE_STRANGERS).contains(&stayed));
        assert!(many.last().is_some_and(|last| !left(last)));
        drop((peer, many));
        assert!(door.0.lock().strangers.is_empty());
    }

    #[tokio::test]
    async fn clients_of_many_addresses_do_not_keep_out_a_node_that_has_been_there() {
        let door = Arc::new(Door::default());
        let enter = |n: u32| door.enter(std::net::Ipv4Addr::from_bits(n).into());
        enter(1).admitted();
        let node = enter(1);
        let new = enter(2);
        let strangers: Vec<_> = (3..1000).map(enter).collect();
        assert!(left(&new) && !left(&node));
        drop((node, new, strangers));
        for n in 0..2 * KNOWN_ADDRESSES as u32 {
            enter(n).admitted();
        }
        assert_eq!(door.0.lock().known.len(), KNOWN_ADDRESSES);
    }
}
