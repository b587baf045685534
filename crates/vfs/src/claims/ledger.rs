//! Accounts of each client address in the table, in bytes, and of each client, in files.
//!
//! Everything that a client's claims take is charged to the table's budget and to the client's
//! address before it is allocated. An address may have [`SHARE`] of the budget, so that no single
//! host can leave nothing for the others. Several leave a [`RESERVE`] of it to addresses that have
//! little. The charges are upper bounds of what the collections allocate (a test compares them with
//! the allocator's own figures).
//!
//! The ledger is also the index from a client to its files, so that releasing a client costs what
//! the client had.

use super::file::grants::Held;
use super::file::holder::Holder;
use super::file::opens::Open;
use super::file::tree::Node;
use super::file::{DeleteMark, File, More};
use super::map::HashMap;
use super::types::{Client, ServiceId};
use crate::handle::FileId;
use parking_lot::Mutex;
use std::mem::size_of;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::{Budget, Reservation, invariant};

/// One address may have this part of the budget.
pub(super) const SHARE: usize = 4;
/// This part of the budget is left to addresses that have no more than [`LITTLE`].
pub const RESERVE: usize = 16;
/// Bytes that are little for an address.
pub const LITTLE: usize = 16 << 10;
/// Parts of the ledger, each with its own lock.
const PARTS: usize = 16;

/// Bytes that an allocation takes besides its own: the allocator's rounding.
const SLACK: usize = 32;
/// A lock: a node of the tree, and an entry of the B-tree beside it, whose nodes are at least five
/// elevenths full.
pub(super) const PIECE: usize = size_of::<Node>() + SLACK + 40 * 11 / 5 + SLACK;
/// A mandatory range: the same, with a longer key.
pub(super) const STACKED: usize = PIECE + 8 * 11 / 5;
/// A file that an address has something in: the file's own memory (a hash table is at least three
/// eighths full), and its entry in the ledger.
pub(super) const FILE: usize =
    3 * 40 + size_of::<File>() + size_of::<More>() + 2 * 11 * 40 + 3 * 48 + 5 * SLACK;
/// A file's entry for one of the clients at an address.
const CLIENT_FILE: usize = 3 * 48 + 2 * SLACK;
/// An owner in a file, besides what is shown of it; also its entry in the graph of waiting owners,
/// or among the parked.
pub(super) const OWNER: usize = size_of::<Holder>() + 4 * 16 + 3 * SLACK;
/// A queued request, besides what is shown of it: in the file, in the graph, and the locks that it
/// may become.
pub(super) const WAITER: usize = 2 * 72 + 300 + 2 * PIECE + 2 * SLACK;
/// An open: an entry of a B-tree.
pub(super) const OPEN: usize = (8 + size_of::<Open>()) * 11 / 5 + 2 * SLACK;
/// A caching grant: entries of two B-trees, and its break.
pub(super) const GRANT: usize = (16 + size_of::<Held>()) * 11 / 5 + 16 * 11 / 5 + 4 * SLACK + 512;
/// A file that is to be deleted, besides the name, and beside an owner: with what waits for its
/// removal.
pub(super) const DOOMED: usize = size_of::<DeleteMark>() + 3 * SLACK;
/// A client's name, besides its bytes; also the address's own entry, and that among the parked.
const NAME: usize = 900;

/// Account of one address.
struct Account {
    bytes: usize,
    /// Requests for byte ranges that are queued.
    waiting: usize,
    /// Files, with the number of the address's clients in each.
    files: HashMap<FileId, u32>,
    /// The clients at the address.
    clients: HashMap<(ServiceId, Arc<[u8]>), Entry>,
}

/// Account of one client.
#[derive(Default)]
struct Entry {
    owners: u32,
    /// Files, with the number of the client's owners in each.
    files: HashMap<FileId, u32>,
}

fn key(client: &Client) -> (ServiceId, Arc<[u8]>) {
    (client.service, Arc::clone(&client.name))
}

/// Takes one from a count; whether it was the last.
fn last(count: &mut u32) -> bool {
    if !invariant!(*count > 0, "fewer owners than none") {
        return false;
    }
    *count -= 1;
    *count == 0
}

struct Part {
    accounts: HashMap<IpAddr, Account>,
    reserved: Reservation,
}

/// Ledger of the memory that claims take (see the module's head).
pub(super) struct Ledger {
    parts: Vec<Mutex<Part>>,
    budget: Arc<Budget>,
}

/// Nothing takes more at once: a file, an owner that shows much, a client.
const LARGEST: usize = 8192;

fn of_service(
    account: &Account,
    address: IpAddr,
    service: ServiceId,
) -> impl Iterator<Item = Client> {
    let of = account.clients.keys().filter(move |key| key.0 == service);
    of.map(move |(service, name)| Client {
        service: *service,
        address,
        name: Arc::clone(name),
    })
}

/// Halves a map's memory when it has become mostly empty.
pub(super) fn shrink<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 64 && map.len() < map.capacity() / 4 {
        map.shrink_to(map.len() * 2);
    }
}

impl Ledger {
    pub(super) fn new(budget: Arc<Budget>) -> Ledger {
        let part = || {
            budget.try_reserve(0).map(|reserved| {
                Mutex::new(Part {
                    accounts: HashMap::default(),
                    reserved,
                })
            })
        };
        Ledger {
            parts: (0..PARTS).filter_map(|_| part()).collect(),
            budget,
        }
    }

    fn part(&self, address: IpAddr) -> &Mutex<Part> {
        // Neighbouring addresses differ in the last bits.
        let low = match address {
            IpAddr::V4(a) => a.octets()[3],
            IpAddr::V6(a) => a.octets()[15] ^ a.octets()[7],
        };
        &self.parts[usize::from(low) % self.parts.len()]
    }

    /// Reserves `bytes` for an address that has `had`.
    fn reserve(&self, reserved: &mut Reservation, had: usize, bytes: usize) -> bool {
        let total = self.budget.total();
        let (most, all) = (total / SHARE, had + bytes);
        let leave = if all <= LITTLE { 0 } else { total / RESERVE };
        all <= most && reserved.grow_leaving(bytes, leave)
    }

    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Charges `bytes` to `address`; false, and no change, if that is too much.
    #[must_use]
    pub(super) fn take(&self, address: IpAddr, bytes: usize) -> bool {
        let mut part = self.part(address).lock();
        let part = &mut *part;
        let Some(account) = part.accounts.get_mut(&address) else {
            unreachable!("a charge to an address that has nothing");
        };
        let fits = self.reserve(&mut part.reserved, account.bytes, bytes);
        if fits {
            account.bytes += bytes;
        }
        fits
    }

    /// Releases `bytes` of `address`.
    pub(super) fn give(&self, address: IpAddr, bytes: usize) {
        let mut part = self.part(address).lock();
        part.release(address, bytes);
    }

    /// Charges an owner of `client` in `file`, and returns the client with the name that the ledger
    /// keeps of it: all owners share its bytes. `None` if that is too much.
    pub(super) fn enter(&self, client: &Client, file: FileId, shown: usize) -> Option<Client> {
        let mut part = self.part(client.address).lock();
        let part = &mut *part;
        let old = part.accounts.get(&client.address);
        let entry = old.and_then(|a| a.clients.get_key_value(&key(client)));
        let mut bytes = OWNER + shown;
        if old.is_none_or(|a| !a.files.contains_key(&file)) {
            bytes += FILE;
        }
        let first = entry.is_none_or(|(_, e)| !e.files.contains_key(&file));
        if first {
            bytes += CLIENT_FILE;
        }
        let name = match entry {
            Some(((_, name), _)) => Arc::clone(name),
            None => {
                bytes += NAME + client.name.len();
                Arc::clone(&client.name)
            }
        };
        let had = old.map_or(0, |a| a.bytes);
        if !self.reserve(&mut part.reserved, had, bytes) {
            return None;
        }
        let account = part
            .accounts
            .entry(client.address)
            .or_insert_with(|| Account {
                bytes: 0,
                waiting: 0,
                files: HashMap::default(),
                clients: HashMap::default(),
            });
        account.bytes += bytes;
        if first {
            *account.files.entry(file).or_insert(0) += 1;
        }
        let client = Client {
            name,
            ..client.clone()
        };
        let entry = account.clients.entry(key(&client)).or_default();
        entry.owners += 1;
        *entry.files.entry(file).or_insert(0) += 1;
        Some(client)
    }

    /// Undoes [`Ledger::enter`]; refunds the bytes to the address.
    pub(super) fn leave(&self, client: &Client, file: FileId, shown: usize) {
        let mut part = self.part(client.address).lock();
        let Some(account) = part.accounts.get_mut(&client.address) else {
            unreachable!("an owner of an address that has nothing");
        };
        let mut bytes = OWNER + shown;
        let key = key(client);
        let Some(entry) = account.clients.get_mut(&key) else {
            unreachable!("an owner of a client that has nothing");
        };
        let gone = entry.files.get_mut(&file).map(last);
        invariant!(
            gone.is_some(),
            "an owner in a file that its client has nothing in"
        );
        if gone == Some(true) {
            entry.files.remove(&file);
            shrink(&mut entry.files);
            bytes += CLIENT_FILE;
            let gone = account.files.get_mut(&file).map(last);
            invariant!(
                gone.is_some(),
                "a client in a file that its address has nothing in"
            );
            if gone == Some(true) {
                account.files.remove(&file);
                shrink(&mut account.files);
                bytes += FILE;
            }
        }
        if last(&mut entry.owners) {
            account.clients.remove(&key);
            shrink(&mut account.clients);
            bytes += NAME + client.name.len();
        }
        part.release(client.address, bytes);
    }

    /// Counts a queued request; false, and no change, if the address has `most` already.
    #[must_use]
    pub(super) fn wait(&self, address: IpAddr, most: usize) -> bool {
        let mut part = self.part(address).lock();
        let account = part.accounts.get_mut(&address).filter(|a| a.waiting < most);
        account.map(|a| a.waiting += 1).is_some()
    }

    /// Undoes [`Ledger::wait`]: one queued request fewer.
    pub(super) fn waited(&self, address: IpAddr) {
        let mut part = self.part(address).lock();
        let account = part.accounts.get_mut(&address);
        let waiting = account.map(|a| &mut a.waiting).filter(|n| **n > 0);
        invariant!(waiting.is_some(), "fewer requests wait than none");
        waiting.into_iter().for_each(|n| *n -= 1);
    }

    /// Returns true if an address has so much that its part may be why it gets no more.
    pub(super) fn share_used_up(&self, address: IpAddr) -> bool {
        let part = self.part(address).lock();
        let bytes = part.accounts.get(&address).map_or(0, |a| a.bytes);
        bytes + LARGEST > self.budget.total() / SHARE
    }

    /// Returns the files that a client has anything in.
    pub(super) fn files(&self, client: &Client) -> Vec<FileId> {
        let part = self.part(client.address).lock();
        let account = part.accounts.get(&client.address);
        let entry = account.and_then(|a| a.clients.get(&key(client)));
        entry.map_or_else(Vec::new, |e| e.files.keys().copied().collect())
    }

    /// Returns the clients of a service at an address that have anything.
    pub(super) fn clients_at(&self, service: ServiceId, address: IpAddr) -> Vec<Client> {
        let part = self.part(address).lock();
        let account = part.accounts.get(&address).into_iter();
        account
            .flat_map(|a| of_service(a, address, service))
            .collect()
    }

    /// Returns true if a client has anything.
    pub(super) fn has_client(&self, client: &Client) -> bool {
        let part = self.part(client.address).lock();
        let account = part.accounts.get(&client.address);
        account.is_some_and(|a| a.clients.contains_key(&key(client)))
    }

    /// Returns all clients of a service that have anything.
    pub(super) fn clients(&self, service: ServiceId) -> Vec<Client> {
        let mut out = Vec::new();
        for part in &self.parts {
            let part = part.lock();
            let accounts = part.accounts.iter();
            out.extend(accounts.flat_map(|(address, a)| of_service(a, *address, service)));
        }
        out
    }

    /// Returns the bytes charged to an address.
    #[cfg(test)]
    pub(super) fn bytes(&self, address: IpAddr) -> usize {
        let part = self.part(address).lock();
        part.accounts.get(&address).map_or(0, |a| a.bytes)
    }
}

impl Part {
    fn release(&mut self, address: IpAddr, bytes: usize) {
        let Some(account) = self.accounts.get_mut(&address) else {
            unreachable!("a release for an address that has nothing");
        };
        if !invariant!(account.bytes >= bytes, "more released than charged") {
            return;
        }
        account.bytes -= bytes;
        let idle = account.clients.is_empty();
        invariant!(!idle || account.bytes == 0, "charges without an owner");
        self.reserved.shrink_to(self.reserved.bytes() - bytes);
        if idle {
            self.accounts.remove(&address);
            shrink(&mut self.accounts);
        }
    }
}
