//! What each client address has in the lock table, in bytes and in files.
//!
//! Everything that a client's locks take is charged to the table's budget and to the client's address before it is
//! allocated. An address may have [`SHARE`] of the budget, so that no single host can leave nothing for the others. The
//! charges are upper bounds of what the collections allocate (a test compares them with the allocator's own figures).
//!
//! The ledger is also the index from an address to its files, so that releasing a host costs what the host had.

use super::Client;
use super::file::{File, Holder};
use super::tree::Node;
use crate::handle::FileId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::mem::size_of;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::{Budget, Reservation};

/// One address may have this part of the budget.
pub(super) const SHARE: usize = 4;
/// Parts of the ledger, each with its own lock.
const PARTS: usize = 16;

/// What an allocation takes besides its bytes: the allocator's rounding.
const SLACK: usize = 32;
/// A lock: a node of the tree, and an entry of the B-tree beside it, whose nodes are at least five elevenths full.
pub(super) const PIECE: usize = size_of::<Node>() + SLACK + 40 * 11 / 5 + SLACK;
/// A file that an address has something in: the file's own memory (a hash table is at least three eighths full), and
/// its entry in the ledger.
pub(super) const FILE: usize = 3 * 40 + size_of::<File>() + 2 * 11 * 40 + 3 * 48 + 4 * SLACK;
/// An owner in a file, besides what is shown of it; also its entry in the graph of waiting owners.
pub(super) const OWNER: usize = size_of::<Holder>() + 4 * 16 + 3 * SLACK;
/// A queued request, besides what is shown of it: in the file, in the graph, and the locks that it may become.
pub(super) const WAITER: usize = 2 * 72 + 300 + 2 * PIECE + 2 * SLACK;
/// A reservation.
pub(super) const RESERVATION: usize = 2 * 48 + 160 + SLACK;
/// A client's name, besides its bytes; also the address's own entry.
const NAME: usize = 600;

/// What one address has.
struct Account {
    bytes: usize,
    /// Queued requests.
    waiting: usize,
    /// Files, with the number of the address's owners in each.
    files: HashMap<FileId, u32>,
    /// Names of the clients at the address, with the number of their owners.
    names: HashMap<Arc<[u8]>, u32>,
}

struct Part {
    accounts: HashMap<IpAddr, Account>,
    reserved: Reservation,
}

/// See the module's head.
pub(super) struct Ledger {
    parts: Vec<Mutex<Part>>,
    budget: Arc<Budget>,
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
                    accounts: HashMap::new(),
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

    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Charges `bytes` to `address`; false, and no change, if that is too much.
    #[must_use]
    pub(super) fn take(&self, address: IpAddr, bytes: usize) -> bool {
        let mut part = self.part(address).lock();
        let part = &mut *part;
        let Some(account) = part.accounts.get_mut(&address) else {
            debug_assert!(false, "a charge to an address that has nothing");
            return false;
        };
        let fits =
            account.bytes + bytes <= self.budget.total() / SHARE && part.reserved.grow(bytes);
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

    /// Charges an owner of `client` in `file`, and returns the client with the name that the ledger keeps of it: all
    /// owners share its bytes. `None` if that is too much.
    pub(super) fn enter(&self, client: &Client, file: FileId, shown: usize) -> Option<Client> {
        let mut part = self.part(client.address).lock();
        let part = &mut *part;
        let old = part.accounts.get(&client.address);
        let mut bytes = OWNER + shown;
        if old.is_none_or(|a| !a.files.contains_key(&file)) {
            bytes += FILE;
        }
        if old.is_none_or(|a| !a.names.contains_key(&client.name)) {
            bytes += NAME + client.name.len();
        }
        if old.map_or(0, |a| a.bytes) + bytes > self.budget.total() / SHARE
            || !part.reserved.grow(bytes)
        {
            return None;
        }
        let account = part
            .accounts
            .entry(client.address)
            .or_insert_with(|| Account {
                bytes: 0,
                waiting: 0,
                files: HashMap::new(),
                names: HashMap::new(),
            });
        account.bytes += bytes;
        *account.files.entry(file).or_insert(0) += 1;
        let name = match account.names.get_key_value(&client.name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::clone(&client.name),
        };
        *account.names.entry(Arc::clone(&name)).or_insert(0) += 1;
        Some(Client {
            address: client.address,
            name,
        })
    }

    /// Undoes [`Ledger::enter`].
    pub(super) fn leave(&self, client: &Client, file: FileId, shown: usize) {
        let mut part = self.part(client.address).lock();
        let Some(account) = part.accounts.get_mut(&client.address) else {
            debug_assert!(false, "an owner of an address that has nothing");
            return;
        };
        let mut bytes = OWNER + shown;
        let less = |count: Option<&mut u32>| {
            count.is_some_and(|n| {
                *n -= 1;
                *n == 0
            })
        };
        if less(account.files.get_mut(&file)) {
            account.files.remove(&file);
            shrink(&mut account.files);
            bytes += FILE;
        }
        if less(account.names.get_mut(&client.name)) {
            account.names.remove(&client.name);
            shrink(&mut account.names);
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

    /// Undoes [`Ledger::wait`].
    pub(super) fn waited(&self, address: IpAddr) {
        let mut part = self.part(address).lock();
        if let Some(account) = part.accounts.get_mut(&address) {
            account.waiting -= 1;
        }
    }

    /// The files that an address has anything in.
    pub(super) fn files(&self, address: IpAddr) -> Vec<FileId> {
        let part = self.part(address).lock();
        let account = part.accounts.get(&address);
        account.map_or_else(Vec::new, |a| a.files.keys().copied().collect())
    }

    /// Names of the clients at an address that have anything.
    pub(super) fn names(&self, address: IpAddr) -> Vec<Arc<[u8]>> {
        let part = self.part(address).lock();
        let account = part.accounts.get(&address);
        account.map_or_else(Vec::new, |a| a.names.keys().cloned().collect())
    }

    /// Whether a client has anything.
    pub(super) fn has(&self, client: &Client) -> bool {
        let part = self.part(client.address).lock();
        let account = part.accounts.get(&client.address);
        account.is_some_and(|a| a.names.contains_key(&client.name))
    }

    /// All addresses that have anything.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let of = |part: &Mutex<Part>| part.lock().accounts.keys().copied().collect::<Vec<_>>();
        self.parts.iter().flat_map(of).collect()
    }

    /// Bytes charged to an address.
    #[cfg(test)]
    pub(super) fn bytes(&self, address: IpAddr) -> usize {
        let part = self.part(address).lock();
        part.accounts.get(&address).map_or(0, |a| a.bytes)
    }
}

impl Part {
    fn release(&mut self, address: IpAddr, bytes: usize) {
        let Some(account) = self.accounts.get_mut(&address) else {
            debug_assert!(false, "a release for an address that has nothing");
            return;
        };
        debug_assert!(account.bytes >= bytes, "more released than charged");
        account.bytes -= bytes;
        let idle = account.names.is_empty();
        debug_assert!(!idle || account.bytes == 0, "charges without an owner");
        self.reserved.shrink_to(self.reserved.bytes() - bytes);
        if idle {
            self.accounts.remove(&address);
            shrink(&mut self.accounts);
        }
    }
}
