//! Memory of connections, in all and by address, and limits on it.
//!
//! Two kinds of bytes are counted. *Used* is memory: records that have arrived in part, requests
//! that wait, replies that the peer has not taken. *Promised* is the reservation of records under
//! assembly: the bytes that they may still need. Small calls are read as long as used memory leaves
//! room, regardless of reservations. A large record is begun only if used and reserved bytes leave
//! room for all of it, so that it can complete and free its memory.
//!
//! Both are counted for the whole server and for each address, with relaxed atomics. A connection
//! settles once a turn, so the sums lag behind by as much as each event loop's current connection
//! took in one read.
//!
//! The number of connections is bounded too, in all and by address. At the limit, the oldest
//! connection that has not been admitted to an export is closed for a new one, so that strangers
//! cannot keep clients out.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_base::limits::net as limits;

const RELAXED: Ordering = Ordering::Relaxed;

use weir_base::network::{Address, address_of};

/// Bytes of all connections of an address.
#[derive(Default)]
pub struct Account {
    used: AtomicUsize,
    announced: AtomicUsize,
    /// Bytes that its connections wait for because of the limit by address.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Entry {
    account: Arc<Account>,
    /// Number of connections without those being closed.
    connections: usize,
    /// Connections that have not been admitted to an export, by age.
    strangers: BTreeMap<u64, Arc<AtomicBool>>,
}

#[derive(Default)]
struct Connections {
    by_address: HashMap<Address, Entry>,
    /// Number of connections without those being closed.
    count: usize,
    closing: usize,
    /// Number of the next connection.
    next: u64,
}

/// Amount that a connection may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLevel {
    /// No restriction: memory is not short.
    Ample,
    /// A few small calls at a time, from peers that have taken their replies.
    Short,
    /// One such call at a time: the budget is used up.
    Scant,
    /// Nothing until memory is freed.
    None,
}

/// Counts of all connections, and their limits.
pub struct Ledger {
    total: usize,
    most_connections: usize,
    used: AtomicUsize,
    announced: AtomicUsize,
    /// Bytes that connections wait for because of the whole budget.
    waiting: AtomicUsize,
    /// Number of addresses that have connections.
    addresses: AtomicUsize,
    connections: Mutex<Connections>,
}

fn parts(of: usize, count: usize) -> usize {
    of / limits::PARTS * count
}

impl Ledger {
    /// Creates the ledger of connections that may hold `total` bytes, in a process that may open
    /// `descriptors` files.
    pub fn new(total: usize, descriptors: usize) -> Arc<Ledger> {
        assert!(
            parts(total, limits::PER_ADDRESS) >= limits::MAX_RECORD,
            "a WRITE of the largest size fits in an address's part of {total} bytes"
        );
        let most_connections = descriptors
            .saturating_sub(limits::OWN_DESCRIPTORS)
            // An eighth more may be about to close.
            .saturating_mul(8)
            .div_euclid(9)
            .min(total / limits::BUDGET_PER_CONNECTION)
            .max(1);
        Arc::new(Ledger {
            total,
            most_connections,
            used: AtomicUsize::new(0),
            announced: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            addresses: AtomicUsize::new(0),
            connections: Mutex::default(),
        })
    }

    /// Returns the bytes of memory that connections hold.
    pub fn used(&self) -> usize {
        self.used.load(RELAXED)
    }

    fn reserve(&self) -> usize {
        parts(self.total, limits::RESERVE)
    }

    fn per_address(&self) -> usize {
        parts(self.total, limits::PER_ADDRESS)
    }

    /// Counts a new connection. `None` if there are too many, and none that may be closed for it.
    pub fn connect(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionMemory> {
        let address = address_of(peer);
        let mut connections = self.connections.lock();
        let most = self.most_connections;
        if connections.closing > most / 8 {
            return None;
        }
        if connections.count >= most {
            // From the address that has the most strangers.
            let by_address = connections.by_address.iter();
            let (crowd, _) = by_address.max_by_key(|(_, entry)| entry.strangers.len())?;
            let crowd = *crowd;
            connections.close_oldest(crowd)?;
        }
        let entry = connections.by_address.get(&address);
        let part = (most * limits::CONNECTIONS_PER_ADDRESS).div_ceil(limits::PARTS);
        if entry.is_some_and(|entry| entry.connections >= part) {
            connections.close_oldest(address)?;
        }
        let Connections {
            by_address,
            count,
            next,
            ..
        } = &mut *connections;
        let entry = by_address.entry(address).or_default();
        let (number, closed) = (*next, Arc::new(AtomicBool::new(false)));
        entry.strangers.insert(number, Arc::clone(&closed));
        entry.connections += 1;
        *next += 1;
        *count += 1;
        let account = Arc::clone(&entry.account);
        self.addresses.store(by_address.len(), RELAXED);
        Some(ConnectionMemory {
            ledger: Arc::clone(self),
            account,
            address,
            number,
            closed,
            stranger: true,
            used: 0,
            announced: 0,
            waiting: AwaitedBytes::default(),
        })
    }

    /// Returns true if connections wait for memory, or large requests would have to.
    pub fn is_short(&self) -> bool {
        self.waiting.load(RELAXED) > 0 || self.used() > self.total - self.reserve()
    }

    /// Returns the bytes that have to be freed for waiting requests.
    pub fn wanted(&self) -> usize {
        let reserve = self.used().saturating_sub(self.total - self.reserve());
        self.waiting.load(RELAXED).max(reserve)
    }

    /// Returns the number of bytes up to which an address counts as holding little.
    fn little(&self) -> usize {
        parts(self.reserve(), limits::RESERVE_PER_ADDRESS).max(limits::MAX_RECORD)
    }

    /// Returns the bytes of the budget that large requests and replies may use for an address that
    /// would then hold `own`. Half of the reserve is for addresses that hold little.
    fn open_to(&self, own: usize) -> usize {
        match own <= self.little() {
            true => self.total - self.reserve() / 2,
            false => self.total - self.reserve(),
        }
    }

    /// Returns the bytes for each address if all held the same.
    fn equal_part(&self) -> usize {
        (self.total - self.reserve()) / self.addresses.load(RELAXED).max(1)
    }
}

impl Connections {
    /// Closes the oldest connection of an address that has not been admitted to an export. `None`
    /// if there is none.
    fn close_oldest(&mut self, address: Address) -> Option<()> {
        let entry = self.by_address.get_mut(&address)?;
        let (_, closed) = entry.strangers.pop_first()?;
        closed.store(true, RELAXED);
        entry.connections -= 1;
        self.count -= 1;
        self.closing += 1;
        Some(())
    }

    /// Counts the end of a connection.
    fn end(&mut self, address: Address, number: u64, closed: bool) {
        if closed {
            self.closing -= 1;
            return;
        }
        self.count -= 1;
        let entry = self.by_address.get_mut(&address);
        debug_assert!(entry.is_some(), "an address has its connections");
        if let Some(entry) = entry {
            entry.connections -= 1;
            entry.strangers.remove(&number);
            if entry.connections == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Account {
    /// Returns the bytes that its connections wait for and that others of them have to free.
    pub fn wanted(&self) -> usize {
        self.waiting.load(RELAXED)
    }

    /// Returns the bytes of memory that it holds.
    pub fn used(&self) -> usize {
        self.used.load(RELAXED)
    }

    /// Returns true if it holds more than it could if all addresses held the same.
    pub fn is_greedy(&self, ledger: &Ledger) -> bool {
        self.used.load(RELAXED) + self.announced.load(RELAXED) > ledger.equal_part()
    }
}

/// Bytes that a connection waits for.
#[derive(Clone, Copy, Default)]
struct AwaitedBytes {
    /// Because of the whole budget.
    all: usize,
    /// Because of the limit by address.
    own: usize,
}

/// Bytes of one connection.
pub struct ConnectionMemory {
    ledger: Arc<Ledger>,
    account: Arc<Account>,
    address: Address,
    number: u64,
    closed: Arc<AtomicBool>,
    stranger: bool,
    used: usize,
    announced: usize,
    waiting: AwaitedBytes,
}

/// Adds the change from `from` to `to` to the counts `all` and `own`. Returns true if they fell.
fn shift(all: &AtomicUsize, own: &AtomicUsize, from: &mut usize, to: usize) -> bool {
    let before = std::mem::replace(from, to);
    match to.checked_sub(before) {
        Some(0) => false,
        Some(more) => {
            all.fetch_add(more, RELAXED);
            own.fetch_add(more, RELAXED);
            false
        }
        None => {
            all.fetch_sub(before - to, RELAXED);
            own.fetch_sub(before - to, RELAXED);
            true
        }
    }
}

impl ConnectionMemory {
    /// Returns the account of the client's address, shared with its other connections.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Returns the flag that is set when the connection has to close for another one.
    pub fn closed(&self) -> &Arc<AtomicBool> {
        &self.closed
    }

    /// Returns the bytes of memory used and reserved.
    pub fn bytes(&self) -> usize {
        self.used + self.announced
    }

    /// Sets the bytes that are held. Returns true if either became less.
    pub fn set(&mut self, used: usize, announced: usize) -> bool {
        let ConnectionMemory {
            ledger, account, ..
        } = self;
        let less = shift(&ledger.used, &account.used, &mut self.used, used);
        let kept = shift(
            &ledger.announced,
            &account.announced,
            &mut self.announced,
            announced,
        );
        less | kept
    }

    /// Adds `bytes` to the reservation if there is room for them. If not, the connection counts as
    /// waiting for them until [`ConnectionMemory::waits_no_more`].
    pub fn promise(&mut self, bytes: usize) -> bool {
        let announced = self.announced;
        self.set(self.used, announced + bytes);
        let sum = |used: &AtomicUsize, announced: &AtomicUsize| {
            used.load(RELAXED) + announced.load(RELAXED)
        };
        let (ledger, account) = (&*self.ledger, &*self.account);
        let own = sum(&account.used, &account.announced);
        let all = sum(&ledger.used, &ledger.announced) <= ledger.open_to(own);
        let own = own <= ledger.per_address();
        if all && own {
            return true;
        }
        self.set(self.used, announced);
        self.wait(bytes, !own);
        false
    }

    /// Returns the amount that may be read. At [`MemoryLevel::None`] the connection counts as
    /// waiting.
    pub fn room(&mut self) -> MemoryLevel {
        let (ledger, account) = (&*self.ledger, &*self.account);
        let (all, own) = (ledger.used(), account.used.load(RELAXED));
        let (reserve, part) = (ledger.reserve(), ledger.per_address());
        if all + reserve <= ledger.total && own < part {
            return MemoryLevel::Ample;
        }
        let few = own < part + ledger.little();
        if all + limits::MAX_RECORD.min(reserve / 2) <= ledger.total && few {
            return MemoryLevel::Short;
        }
        // A small reply for each connection may come on top if peers do not take theirs.
        if all < 2 * ledger.total && own < 2 * part {
            return MemoryLevel::Scant;
        }
        self.wait(limits::CONNECTION_IN_FLIGHT, own >= 2 * part);
        MemoryLevel::None
    }

    /// Returns true if a request may run, while memory is short, whose reply has up to `bytes`.
    /// `unsettled` are bytes that the connection holds already. If false, it counts as waiting
    /// until [`ConnectionMemory::waits_no_more`].
    pub fn lends(&mut self, unsettled: usize, bytes: usize) -> bool {
        if bytes <= limits::SMALL_REPLY {
            return true;
        }
        let (ledger, account) = (&*self.ledger, &*self.account);
        let own = account.used.load(RELAXED) + unsettled + bytes;
        let all = ledger.used() + unsettled + bytes <= ledger.open_to(own);
        let own = own <= ledger.per_address();
        if all && own {
            return true;
        }
        self.wait(bytes, !own);
        false
    }

    fn wait(&mut self, bytes: usize, own: bool) {
        self.waits_no_more();
        self.waiting = match own {
            true => AwaitedBytes { own: bytes, all: 0 },
            false => AwaitedBytes { all: bytes, own: 0 },
        };
        self.ledger.waiting.fetch_add(self.waiting.all, RELAXED);
        self.account.waiting.fetch_add(self.waiting.own, RELAXED);
    }

    /// Returns the bytes that the connection waits for.
    pub fn waits_for(&self) -> usize {
        self.waiting.all + self.waiting.own
    }

    /// Ends the connection's wait for memory.
    pub fn waits_no_more(&mut self) {
        let AwaitedBytes { all, own } = std::mem::take(&mut self.waiting);
        if all + own > 0 {
            self.ledger.waiting.fetch_sub(all, RELAXED);
            self.account.waiting.fetch_sub(own, RELAXED);
        }
    }

    /// Returns true until the peer has been admitted to an export.
    pub fn is_stranger(&self) -> bool {
        self.stranger
    }

    /// Records that the peer has been admitted to an export.
    pub fn admitted(&mut self) {
        self.stranger = false;
        if let Some(entry) = self
            .ledger
            .connections
            .lock()
            .by_address
            .get_mut(&self.address)
        {
            entry.strangers.remove(&self.number);
        }
    }
}

impl Drop for ConnectionMemory {
    fn drop(&mut self) {
        self.set(0, 0);
        self.waits_no_more();
        let mut connections = self.ledger.connections.lock();
        connections.end(self.address, self.number, self.closed.load(RELAXED));
        let addresses = connections.by_address.len();
        self.ledger.addresses.store(addresses, RELAXED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn one_address_has_its_part_and_others_theirs() {
        let ledger = Ledger::new(64 * MIB, 1 << 20);
        let mut a = ledger.connect(ip(1)).unwrap();
        let mut again = ledger.connect(ip(1)).unwrap();
        let mut b = ledger.connect(ip(2)).unwrap();
        assert!(a.promise(30 * MIB) && again.promise(2 * MIB));
        assert!(!again.promise(MIB), "half of the budget is its part");
        assert_eq!((again.account().wanted(), ledger.wanted()), (MIB, 0));
        assert!(b.promise(16 * MIB));
        assert!(!b.promise(MIB), "a quarter is for small calls");
        assert_eq!((b.account().wanted(), ledger.wanted()), (0, MIB));
        assert!(ledger.is_short());
        // Reservations take no memory, so small calls are read as before.
        assert_eq!(
            (again.room(), b.room()),
            (MemoryLevel::Ample, MemoryLevel::Ample)
        );
        drop(a);
        assert!(b.promise(MIB));
        b.waits_no_more();
        assert!(!ledger.is_short());
        drop((again, b));
        let left = (&ledger.used, &ledger.announced, &ledger.waiting);
        assert_eq!(
            (
                left.0.load(RELAXED),
                left.1.load(RELAXED),
                left.2.load(RELAXED)
            ),
            (0, 0, 0)
        );
        assert!(ledger.connections.lock().by_address.is_empty());
    }

    #[test]
    fn memory_in_use_makes_reading_careful_and_then_stops_it() {
        let ledger = Ledger::new(64 * MIB, 1 << 20);
        let mut greedy = ledger.connect(ip(1)).unwrap();
        let mut neighbour = ledger.connect(ip(1)).unwrap();
        let mut other = ledger.connect(ip(2)).unwrap();
        greedy.set(32 * MIB, 0);
        assert_eq!(
            (neighbour.room(), other.room()),
            (MemoryLevel::Short, MemoryLevel::Ample)
        );
        greedy.set(36 * MIB, 0);
        assert_eq!(
            (neighbour.room(), other.room()),
            (MemoryLevel::Scant, MemoryLevel::Ample)
        );
        assert!(!neighbour.lends(0, MIB), "its address has its part");
        assert!(neighbour.account().wanted() > 0 && !ledger.is_short());
        assert!(neighbour.lends(0, limits::SMALL_REPLY));
        greedy.set(49 * MIB, 0);
        assert_eq!(other.room(), MemoryLevel::Short);
        assert!(
            other.lends(0, 4 * MIB) && !other.lends(0, 8 * MIB),
            "half of the reserve"
        );
        assert!(other.lends(4 * MIB, limits::SMALL_REPLY) && !other.lends(4 * MIB, MIB));
        other.waits_no_more();
        greedy.set(64 * MIB, 0);
        assert_eq!(
            (neighbour.room(), other.room()),
            (MemoryLevel::None, MemoryLevel::Scant)
        );
        assert!(ledger.is_short() && greedy.account().is_greedy(&ledger));
        assert!(other.lends(0, limits::SMALL_REPLY) && !other.lends(0, MIB));
        greedy.set(128 * MIB, 0);
        assert_eq!(other.room(), MemoryLevel::None);
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let ledger = Ledger::new(64 * MIB, 1 << 20);
        let connect = |text: &str| ledger.connect(text.parse().unwrap()).unwrap();
        let (mut a, mut b) = (connect("2001:db8::1"), connect("2001:db8::2"));
        let (mut c, mut d) = (connect("2001:db8:0:1::1"), connect("::ffff:10.0.0.1"));
        let mut e = connect("10.0.0.1");
        a.set(33 * MIB, 0);
        assert_eq!(b.room(), MemoryLevel::Short);
        a.set(0, 0);
        d.set(33 * MIB, 0);
        assert_eq!(
            (c.room(), e.room()),
            (MemoryLevel::Ample, MemoryLevel::Short)
        );
    }

    #[test]
    fn strangers_make_room_for_new_connections_and_clients_do_not() {
        let ledger = Ledger::new(64 * MIB, limits::OWN_DESCRIPTORS + 18);
        assert_eq!(ledger.most_connections, 16);
        let mut client = ledger.connect(ip(1)).unwrap();
        client.admitted();
        let closed = |h: &ConnectionMemory| h.closed().load(RELAXED);
        let connect = |n| ledger.connect(ip(n)).unwrap();
        let mut strangers: Vec<_> = (0..11).map(|_| connect(1)).collect();
        assert!(!strangers.iter().any(closed));
        // Three quarters are for one address.
        let more = connect(1);
        assert!(closed(&strangers[0]) && !closed(&strangers[1]));
        drop(strangers.remove(0));
        let others: Vec<_> = (0..4).map(|_| connect(2)).collect();
        assert!(!others.iter().any(closed) && !strangers.iter().any(closed));
        // All are taken: the address with the most strangers closes one.
        let mut last = connect(3);
        assert!(closed(&strangers[0]) && !closed(&client) && !closed(&last));
        let again = [connect(4), connect(5)];
        assert!(
            ledger.connect(ip(6)).is_none(),
            "what is to close has to close"
        );
        last.admitted();
        drop((strangers, others, more, again));
        let clients = |from: u8| (0..7).map(move |n| ip(from + n));
        let mut held: Vec<_> = [10, 20]
            .into_iter()
            .flat_map(clients)
            .map(|ip| ledger.connect(ip).unwrap())
            .collect();
        held.iter_mut().for_each(ConnectionMemory::admitted);
        assert!(ledger.connect(ip(9)).is_none(), "all are clients'");
        drop((held, last, client));
        let left = ledger.connections.lock();
        assert!(left.by_address.is_empty() && left.count == 0 && left.closing == 0);
    }
}
