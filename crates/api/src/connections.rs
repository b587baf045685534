//! Which clients may hold a connection, and for how long.
//!
//! A connection costs a slot, and slots are few. What a stranger can do with it must not keep a
//! holder of a token out. So a connection is **unknown** until a request over it was admitted
//! ([`crate::gate`]), and:
//!
//! - unknown connections of one address (IPv6: of one /64, which is what one host is given) are
//!   capped;
//! - when all slots are taken, the new connection gets the slot of the unknown one that has been
//!   idle for longest, and where all are known, of the known one that has been idle for longest: a
//!   newcomer always has the time for its request;
//! - an unknown connection has [`HEAD_TIME`] for the head of its request, and is closed behind the
//!   refusal; a known one may be idle for [`IDLE_TIME`] between requests, and has [`HEAD_TIME`]
//!   from a head's first byte to its last.
//!
//! "Idle" is every state but a request being worked on. Where no token is asked for (loopback), all
//! are known.
//!
//! A connection of HTTP/2 is shared by its calls. It has no head that could be slow, and frames
//! that belong to no call (pings, settings) gain it no time: an unknown one ends [`HEAD_TIME`]
//! after its handshake, a known one [`IDLE_TIME`] after its last call.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_base::limits::api::{MAX_API_CONNECTIONS, MAX_UNKNOWN_PER_ADDRESS};

/// From the first byte of a request's head to its last, and from the handshake to the end of the
/// first head.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// From the end of a reply to the next request. Clients that poll do so every ten seconds.
pub const IDLE_TIME: Duration = Duration::from_secs(60);

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing of a request has arrived since then.
    Quiet(Instant),
    /// A part of a head has arrived, the first byte of it then.
    Head(Instant),
    /// A request is being worked on.
    Busy,
}

struct Entry {
    /// Address of the peer; see [`source`].
    source: IpAddr,
    known: bool,
    /// For a connection of HTTP/2, the time of its handshake.
    shared: Option<Instant>,
    /// Number of requests that are being worked on.
    working: usize,
    phase: Phase,
    evicted: Arc<Notify>,
}

impl Entry {
    /// Returns the time since which it has been idle.
    fn idle_since(&self) -> Option<Instant> {
        match self.phase {
            Phase::Quiet(since) | Phase::Head(since) => Some(since),
            Phase::Busy => None,
        }
    }
}

#[derive(Default)]
struct Table {
    made: u64,
    entries: BTreeMap<u64, Entry>,
}

impl Table {
    /// Frees the slot of the connection that has been idle for longest among those that `fits`
    /// accepts.
    fn evict(&mut self, fits: impl Fn(&Entry) -> bool) -> bool {
        let idle = self.entries.iter().filter(|(_, e)| fits(e));
        let idle = idle.filter_map(|(id, e)| Some((e.idle_since()?, *id)));
        let Some((_, id)) = idle.min() else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&id) {
            entry.evicted.notify_one();
        }
        true
    }
}

/// All connections of a listener.
#[derive(Default)]
pub struct Connections(Mutex<Table>);

impl Connections {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot for a connection from `peer`; `None`: it is to be closed at once. `known`:
    /// the listener trusts every client.
    pub fn admit(self: &Arc<Self>, peer: IpAddr, known: bool) -> Option<Arc<Slot>> {
        let source = source(peer);
        let evicted = Arc::new(Notify::new());
        let mut table = self.table();
        let same = |e: &Entry| !e.known && e.source == source;
        if !known
            && table.entries.values().filter(|e| same(e)).count() >= MAX_UNKNOWN_PER_ADDRESS
            && !table.evict(same)
        {
            return None;
        }
        if table.entries.len() >= MAX_API_CONNECTIONS
            && !table.evict(|e| !e.known)
            && !table.evict(|_| true)
        {
            return None;
        }
        let id = table.made;
        table.made += 1;
        let entry = Entry {
            source,
            known,
            shared: None,
            working: 0,
            phase: Phase::Quiet(Instant::now()),
            evicted: Arc::clone(&evicted),
        };
        table.entries.insert(id, entry);
        Some(Arc::new(Slot {
            id,
            connections: Arc::clone(self),
            evicted,
        }))
    }
}

/// A connection's place in the table, for as long as the connection lives.
pub struct Slot {
    id: u64,
    connections: Arc<Connections>,
    evicted: Arc<Notify>,
}

impl Slot {
    /// Returns when another connection has got the slot: this one is to be closed.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn with<T>(&self, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        // An evicted connection is no longer in the table, and about to be closed.
        self.connections.table().entries.get_mut(&self.id).map(work)
    }

    /// Makes the connection known: a request over it was admitted.
    pub fn passed(&self) {
        self.with(|e| e.known = true);
    }

    /// Returns true if a request over the connection was admitted.
    pub fn is_known(&self) -> bool {
        self.with(|e| e.known).unwrap_or(false)
    }

    /// Notes that the handshake is over: the time for the first head begins.
    pub fn ready(&self) {
        self.with(|e| e.phase = Phase::Quiet(Instant::now()));
    }

    /// Notes that the connection is one of HTTP/2.
    pub fn share(&self) {
        self.with(|e| e.shared = Some(e.idle_since().unwrap_or_else(Instant::now)));
    }

    /// Notes that bytes of a head, or behind it, have arrived.
    pub fn received(&self) {
        self.with(|e| {
            if let (Phase::Quiet(_), None) = (e.phase, e.shared) {
                e.phase = Phase::Head(Instant::now());
            }
        });
    }

    /// Notes that a request is worked on until the result is dropped.
    pub fn work(self: &Arc<Self>) -> RequestGuard {
        self.with(|e| {
            e.working += 1;
            e.phase = Phase::Busy;
        });
        RequestGuard(Arc::clone(self))
    }

    /// Returns the time at which the connection is to be closed if nothing more arrives; `None`
    /// while a request is worked on.
    pub fn deadline(&self) -> Option<Instant> {
        let limits = |e: &mut Entry| match e.phase {
            Phase::Busy => None,
            Phase::Quiet(since) if e.known => Some(since + IDLE_TIME),
            Phase::Quiet(since) | Phase::Head(since) => Some(since + HEAD_TIME),
        };
        // Evicted: now.
        self.with(limits).unwrap_or_else(|| Some(Instant::now()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.table().entries.remove(&self.id);
    }
}

/// A request that is being worked on.
pub struct RequestGuard(Arc<Slot>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.with(|e| {
            e.working -= 1;
            e.phase = match e.shared {
                _ if e.working > 0 => Phase::Busy,
                // Refused calls gain a stranger no time.
                Some(since) if !e.known => Phase::Quiet(since),
                _ => Phase::Quiet(Instant::now()),
            };
        });
    }
}

/// Returns the address that connections are counted by: an IPv4 address, or the /64 of an IPv6 one.
pub(crate) fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: usize) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(n).unwrap()).into()
    }

    fn lives(slot: &Arc<Slot>) -> bool {
        slot.with(|_| ()).is_some()
    }

    #[tokio::test]
    async fn one_address_displaces_its_own_oldest_and_nobody_elses() {
        let all = Arc::new(Connections::default());
        let other = all.admit(address(1), false).unwrap();
        let mut own = Vec::new();
        for _ in 0..MAX_UNKNOWN_PER_ADDRESS {
            own.push(all.admit(address(2), false).unwrap());
        }
        // The second oldest is known by now, and counts no more.
        own[1].passed();
        let one_more = all.admit(address(2), false).unwrap();
        assert!(lives(&own[0]));
        let another = all.admit(address(2), false).unwrap();
        assert!(!lives(&own[0]) && lives(&own[1]) && lives(&own[2]));
        own[0].evicted().await;
        assert!(lives(&other) && lives(&one_more) && lives(&another));
        // Addresses of one /64 count as one, too.
        let six = |n: u128| IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) + n));
        let mut of_the_prefix = Vec::new();
        for n in 0..=MAX_UNKNOWN_PER_ADDRESS as u128 {
            of_the_prefix.push(all.admit(six(n), false).unwrap());
        }
        assert!(!lives(&of_the_prefix[0]) && lives(&of_the_prefix[1]));
    }

    #[test]
    fn a_full_table_gives_up_the_unknown_idle_ones_first() {
        let all = Arc::new(Connections::default());
        let mut slots: Vec<Arc<Slot>> = Vec::new();
        for n in 0..MAX_API_CONNECTIONS {
            slots.push(all.admit(address(n), false).unwrap());
        }
        slots[0].passed();
        let working = slots[1].work();
        let next = all.admit(address(9999), false).unwrap();
        assert!(lives(&slots[0]) && lives(&slots[1]) && !lives(&slots[2]));
        next.passed();
        for slot in &slots[3..] {
            slot.passed();
        }
        drop(working);
        slots[1].passed();
        // All are known: the one that has been idle for longest, which is not the one that has just
        // been at work.
        let last = all.admit(address(9998), false).unwrap();
        assert!(!lives(&slots[0]) && lives(&slots[1]) && lives(&last));
        // All are at work: there is no place.
        let working: Vec<RequestGuard> =
            slots.iter().chain([&next, &last]).map(Slot::work).collect();
        assert!(all.admit(address(9997), true).is_none());
        drop(working);
        drop(slots);
        drop((next, last));
        assert!(all.table().entries.is_empty());
    }

    #[test]
    fn a_shared_connection_gains_time_by_admitted_calls_only() {
        let all = Arc::new(Connections::default());
        let slot = all.admit(address(1), false).unwrap();
        slot.share();
        let first = slot.deadline();
        std::thread::sleep(Duration::from_millis(2));
        let (one, other) = (slot.work(), slot.work());
        slot.received();
        drop(one);
        assert_eq!(slot.deadline(), None, "another call is worked on");
        drop(other);
        assert!(slot.deadline() <= first, "a refused call gained time");
        slot.received();
        assert!(slot.deadline() <= first);
        let working = slot.work();
        slot.passed();
        drop(working);
        let idle = slot.deadline();
        assert!(idle > first.map(|at| at + IDLE_TIME - HEAD_TIME));
        slot.received();
        assert_eq!(slot.deadline(), idle, "a ping is no call");
    }

    #[test]
    fn times_depend_on_what_is_known() {
        let all = Arc::new(Connections::default());
        let before = Instant::now();
        let slot = all.admit(address(1), false).unwrap();
        let left = || slot.deadline().map(|at| at - before);
        let about = |time: Duration| {
            let took = before.elapsed();
            left().is_some_and(|left| (time..=time + took).contains(&left))
        };
        assert!(about(HEAD_TIME));
        slot.received();
        let first_byte = slot.deadline();
        assert!(about(HEAD_TIME));
        std::thread::sleep(Duration::from_millis(2));
        slot.received();
        assert_eq!(
            slot.deadline(),
            first_byte,
            "a byte now and then gains nothing"
        );
        let working = slot.work();
        slot.passed();
        slot.received();
        assert_eq!(slot.deadline(), None);
        drop(working);
        assert!(about(IDLE_TIME));
        slot.received();
        assert!(about(HEAD_TIME));
    }
}
