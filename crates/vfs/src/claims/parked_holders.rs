//! Parked holders, and room that is made at their cost.

use super::file::holder::Holder;
use super::map::HashMap;
use super::types::{Client, Notice, Owner, Range};
use super::{Claims, Effects, Shard};
use crate::handle::FileId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_base::limits::protocol::GRANT_ATTEMPTS as TRIES;

/// Entries beyond which those of clients that have nothing any more are removed.
const UNSEARCHED: usize = 1024;

/// Clients that have parked holders, in the order in which they were parked; also some that had.
#[derive(Default)]
pub(super) struct ParkedClients {
    since: HashMap<Client, u64>,
    order: BTreeMap<u64, Client>,
    next: u64,
    /// Entries that were left by the last search.
    searched: usize,
}

impl ParkedClients {
    fn add(&mut self, client: &Client) {
        if !self.since.contains_key(client) {
            self.since.insert(client.clone(), self.next);
            self.order.insert(self.next, client.clone());
            self.next += 1;
        }
    }

    pub(super) fn remove(&mut self, client: &Client) {
        if let Some(at) = self.since.remove(client) {
            self.order.remove(&at);
            super::ledger::shrink(&mut self.since);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.since.len(), self.order.len());
        self.order.len()
    }

    /// Returns all of them, if it is time to search for those that have nothing.
    fn to_search(&self) -> Vec<Client> {
        match self.order.len() > 2 * self.searched + UNSEARCHED {
            true => self.order.values().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// Returns the one parked longest; with `address`, at that address.
    fn oldest(&self, address: Option<IpAddr>) -> Option<Client> {
        let mut all = self.order.values();
        let found = all.find(|c| address.is_none_or(|a| c.address == a));
        found.cloned()
    }
}

impl Claims {
    /// Parks a client that is not active at the moment: what it has is dropped when it conflicts
    /// with a request, and its queued requests are removed. Costs what it has.
    pub fn park(&self, client: &Client) {
        for file in self.ledger.files(client) {
            self.park_in(file, client, |o| o.client == *client);
        }
    }

    /// Ends the parking of a client that is back.
    pub fn unpark(&self, client: &Client) {
        self.parked.lock().remove(client);
        for file in self.ledger.files(client) {
            self.unpark_in(file, |o| o.client == *client);
        }
    }

    /// Parks one owner in one file (a durable handle), like [`Claims::park`].
    pub fn park_owner(&self, file: FileId, owner: &Owner) {
        self.park_in(file, &owner.client, |o| o == owner);
    }

    /// Ends the parking of one owner in one file, like [`Claims::unpark`].
    pub fn unpark_owner(&self, file: FileId, owner: &Owner) {
        self.unpark_in(file, |o| o == owner);
    }

    fn park_in(&self, file: FileId, client: &Client, select: impl Fn(&Owner) -> bool) {
        let mut effects = Effects::default();
        let mut shard = self.shard(file);
        let holders = shard
            .get(&file)
            .map_or_else(Vec::new, |f| f.holders_of(select));
        // First nothing of the client waits, so that none of its holders is in the way of another.
        for holder in &holders {
            if let Some(f) = shard.get_mut(&file) {
                for number in f.queued_by(holder, |_| true) {
                    self.unqueue(f, number, &mut effects);
                }
            }
        }
        for holder in &holders {
            if let Some(f) = shard.get_mut(&file) {
                if !holder.idle() {
                    let more = f.more_mut();
                    more.parked.insert(holder.id, Arc::clone(holder));
                    more.opens.park(holder.id, true);
                }
            }
            let in_the_way = shard.get(&file).is_some_and(|f| {
                let breaking = f.more().and_then(|m| m.grants.get(holder.id));
                let breaking = breaking.is_some_and(|held| held.breaking.is_some());
                f.parked(holder.id) && (breaking || f.keeps_waiting(holder))
            });
            match in_the_way {
                true => self.drop_parked(&mut shard, file, holder, &mut effects),
                false => self.leave(&mut shard, file, holder),
            }
        }
        // Once all are gone that were in the way, so that requests are served in their order.
        self.wake(&mut shard, file, Range::ALL, &mut effects);
        for holder in &holders {
            self.leave(&mut shard, file, holder);
        }
        let any = shard
            .get(&file)
            .is_some_and(|f| holders.iter().any(|h| f.parked(h.id)));
        drop(shard);
        if any {
            self.enter_parked(client);
        }
        self.deliver(effects);
    }

    /// Enters a client among the parked, and now and then removes those that have nothing, which
    /// nobody is charged for.
    fn enter_parked(&self, client: &Client) {
        let all = {
            let mut parked = self.parked.lock();
            parked.add(client);
            parked.to_search()
        };
        if all.is_empty() {
            return;
        }
        let idle: Vec<_> = all.iter().filter(|c| !self.ledger.has_client(c)).collect();
        let mut parked = self.parked.lock();
        idle.into_iter().for_each(|c| parked.remove(c));
        parked.searched = parked.order.len();
    }

    fn unpark_in(&self, file: FileId, select: impl Fn(&Owner) -> bool) {
        let mut shard = self.shard(file);
        let holders = shard
            .get(&file)
            .map_or_else(Vec::new, |f| f.holders_of(select));
        for holder in &holders {
            if let Some(f) = shard.get_mut(&file)
                && f.parked(holder.id)
            {
                let more = f.more_mut();
                more.parked.remove(&holder.id);
                more.opens.park(holder.id, false);
            }
            self.leave(&mut shard, file, holder);
        }
    }

    /// Removes what a parked holder has in a file. No request waits for that, see the module's
    /// head.
    pub(super) fn drop_parked(
        &self,
        shard: &mut Shard,
        file: FileId,
        holder: &Arc<Holder>,
        effects: &mut Effects,
    ) {
        self.strip(shard, file, holder, effects);
        effects.notices.push(Notice::Dropped {
            file,
            owner: holder.owner.clone(),
        });
        self.leave(shard, file, holder);
    }

    /// Does `attempt`, and again after room was made, as long as it reports that it found no
    /// memory.
    pub(super) fn with_room<T>(
        &self,
        address: IpAddr,
        mut attempt: impl FnMut(&mut Effects) -> (T, bool),
    ) -> T {
        let mut tries = TRIES;
        loop {
            let mut effects = Effects::default();
            let (outcome, full) = attempt(&mut effects);
            self.deliver(effects);
            if !full || tries == 0 || !self.make_room(address) {
                return outcome;
            }
            tries -= 1;
        }
    }

    /// Returns true if an address has so much that its share of the budget may be why it gets no
    /// more.
    pub fn share_used_up(&self, address: IpAddr) -> bool {
        self.ledger.share_used_up(address)
    }

    /// Asks for what is not needed, and drops what the client has that was parked longest. It is
    /// one at the address, whose part may be used up, or, if that is not the cause, any. False if
    /// there is none.
    fn make_room(&self, address: IpAddr) -> bool {
        if !self.recalled.swap(true, Ordering::Relaxed) {
            self.deliver(Effects {
                notices: vec![Notice::Recall],
                ..Effects::default()
            });
        }
        let client = {
            let mut parked = self.parked.lock();
            let any = match self.ledger.share_used_up(address) {
                true => None,
                false => parked.oldest(None),
            };
            let Some(client) = parked.oldest(Some(address)).or(any) else {
                return false;
            };
            parked.remove(&client);
            client
        };
        for file in self.ledger.files(&client) {
            self.in_shard(file, |shard, effects| {
                let holders = shard.get(&file).map_or_else(Vec::new, |f| {
                    let mut of = f.holders_of(|o| o.client == client);
                    of.retain(|h| f.parked(h.id));
                    of
                });
                for holder in &holders {
                    self.drop_parked(shard, file, holder, effects);
                }
            });
        }
        true
    }
}
