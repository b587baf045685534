//! One pool: its tree of limits behind one lock, and the clients' places in it.

use super::charge::Charge;
use super::client::ClientKey;
use super::lease::Lease;
use super::slot::Slot;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::task::Waker;
use weir_base::limits::net::MAX_LIMITED_CLIENTS;
use weir_base::{VolumeId, invariant};
use weir_qos::{Direction, Limits, Nanos, NodeId, Shaper, SubmitOutcome, Usage};

/// Time for which a client keeps its place without sending anything, in nanoseconds: a minute.
const CLIENT_REST: Nanos = 60_000_000_000;

/// A volume's clients, sorted.
pub(super) struct VolumeState {
    pub(super) id: VolumeId,
    pub(super) node: NodeId,
    pub(super) client_limits: Limits,
    clients: Vec<(ClientKey, Leaf)>,
}

#[derive(Clone, Copy)]
struct Leaf {
    node: NodeId,
    seen: Nanos,
}

pub(super) struct State {
    pub(super) shaper: Shaper<(Arc<Slot>, Charge)>,
    /// Indexed by [`super::entry::Entry::slot`]; `None` is free.
    pub(super) volumes: Vec<Option<VolumeState>>,
    free: Vec<usize>,
    /// The time at which some shard will poll this pool; [`Nanos::MAX`] for never.
    pub(super) armed: Nanos,
    /// Leases: requests that are charged ahead. None while anything waits.
    pub(super) leases: Vec<Lease>,
}

/// A pool with its limits; the unit of locking.
pub(super) struct Domain {
    pub(super) id: u64,
    state: Mutex<State>,
}

/// Wakers of the tasks that may go on: to be woken when no lock is held.
pub(super) type WakeList = smallvec::SmallVec<[Waker; 16]>;

impl Domain {
    pub(super) fn new(id: u64, limits: Limits) -> Arc<Domain> {
        Arc::new(Domain {
            id,
            state: Mutex::new(State {
                shaper: Shaper::new(limits),
                volumes: Vec::new(),
                free: Vec::new(),
                armed: Nanos::MAX,
                leases: Vec::new(),
            }),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Takes out what a connection has waiting at a leaf.
    pub(super) fn forget(&self, leaf: NodeId, flow: u64, now: Nanos) -> Vec<Waker> {
        let mut state = self.state.lock();
        let gone = state.shaper.remove_flow(leaf, flow, now);
        gone.iter()
            .filter_map(|gone| gone.payload.0.evict())
            .collect()
    }
}

impl State {
    /// Releases what may start at `now`.
    pub(super) fn drain(&mut self, now: Nanos, woken: &mut WakeList) {
        while let Some((_, (slot, charge))) = self.shaper.release(now) {
            woken.extend(slot.grant(charge));
        }
    }

    /// Returns the time at which some shard has to poll this pool, and for which connection, if it
    /// is earlier than scheduled. Released on another event loop than its own, the connection would
    /// wake that one too.
    pub(super) fn earlier(&mut self, now: Nanos, gap: Nanos) -> Option<(Nanos, u64)> {
        // Saturates: times.
        let next = self.shaper.next_release()?.max(now.saturating_add(gap));
        // A poll that is armed for a time that is over has been or is being handled.
        let sooner = next < self.armed || self.armed <= now;
        if sooner {
            self.armed = next;
        }
        sooner.then(|| (next, self.shaper.next_flow().unwrap_or(0)))
    }

    /// Adds a volume; its place in `volumes`.
    pub(super) fn add_volume(
        &mut self,
        id: VolumeId,
        limits: Limits,
        client_limits: Limits,
    ) -> Option<usize> {
        let root = self.shaper.root();
        let node = self.shaper.add(root, limits)?;
        let state = Some(VolumeState {
            id,
            node,
            client_limits,
            clients: Vec::new(),
        });
        let at = self.free.pop().unwrap_or(self.volumes.len());
        match self.volumes.get_mut(at) {
            Some(slot) => *slot = state,
            None => self.volumes.push(state),
        }
        Some(at)
    }

    /// Removes a volume; its waiting requests are admitted again.
    pub(super) fn remove_volume(&mut self, at: usize, now: Nanos, woken: &mut WakeList) {
        let Some(volume) = self.volumes.get_mut(at).and_then(Option::take) else {
            invariant!(false, "the volume at {at} is removed twice");
            return;
        };
        self.free.push(at);
        self.end_leases(now);
        for gone in self.shaper.remove(volume.node, now) {
            woken.extend(gone.payload.0.evict());
        }
    }

    /// Changes a volume's limits and its clients'.
    pub(super) fn configure(
        &mut self,
        at: usize,
        limits: Limits,
        client_limits: Limits,
        now: Nanos,
    ) {
        self.end_leases(now);
        let Some(Some(volume)) = self.volumes.get_mut(at) else {
            invariant!(false, "the volume at {at} has limits, and is not there");
            return;
        };
        if self.shaper.limits(volume.node) != Some(&limits) {
            self.shaper.configure(volume.node, limits, now);
        }
        if volume.client_limits != client_limits {
            volume.client_limits = client_limits;
            for (_, leaf) in &volume.clients {
                self.shaper.configure(leaf.node, client_limits, now);
            }
        }
    }

    /// Returns the leaf of a client of a volume, made if need be. `None` if the volume is not at
    /// that place any more.
    pub(super) fn leaf(
        &mut self,
        at: usize,
        id: VolumeId,
        client: ClientKey,
        now: Nanos,
    ) -> Option<NodeId> {
        let volume = self.volumes.get_mut(at)?.as_mut()?;
        if volume.id != id {
            return None;
        }
        let mut client = client;
        let mut place = volume
            .clients
            .binary_search_by_key(&client, |(key, _)| *key);
        if place.is_err() && volume.clients.len() >= MAX_LIMITED_CLIENTS {
            client = ClientKey::OTHERS;
            place = volume
                .clients
                .binary_search_by_key(&client, |(key, _)| *key);
        }
        match place {
            Ok(found) => {
                let (_, leaf) = volume.clients.get_mut(found)?;
                leaf.seen = now;
                Some(leaf.node)
            }
            Err(place) => {
                let node = self.shaper.add(volume.node, volume.client_limits)?;
                volume
                    .clients
                    .insert(place, (client, Leaf { node, seen: now }));
                Some(node)
            }
        }
    }

    /// Enters a request that cannot start at once.
    pub(super) fn enqueue(
        &mut self,
        leaf: NodeId,
        flow: u64,
        slot: &Arc<Slot>,
        charge: Charge,
        now: Nanos,
    ) -> SubmitOutcome<()> {
        let Charge {
            direction, bytes, ..
        } = charge;
        match self.shaper.submit(
            leaf,
            flow,
            direction,
            bytes,
            now,
            (Arc::clone(slot), charge),
        ) {
            SubmitOutcome::Start(_) => SubmitOutcome::Start(()),
            SubmitOutcome::Queued => SubmitOutcome::Queued,
            SubmitOutcome::Refused(_) => SubmitOutcome::Refused(()),
        }
    }

    /// Forgets clients that have rested long enough for it to make no difference, and what their
    /// threads leased.
    pub(super) fn tidy(&mut self, now: Nanos) {
        self.end_leases(now);
        for volume in self.volumes.iter_mut().flatten() {
            let shaper = &mut self.shaper;
            volume.clients.retain(|(_, leaf)| {
                // Saturates: times of several threads.
                let rested = now.saturating_sub(leaf.seen) > CLIENT_REST;
                let forget = rested && shaper.is_settled(leaf.node, now);
                if forget {
                    shaper.remove(leaf.node, now);
                }
                !forget
            });
        }
    }

    /// Returns the usage of a volume's clients.
    pub(super) fn clients(&self, at: usize) -> Vec<(ClientKey, Usage)> {
        let Some(Some(volume)) = self.volumes.get(at) else {
            return Vec::new();
        };
        let of = |(key, leaf): &(ClientKey, Leaf)| Some((*key, self.shaper.usage(leaf.node)?));
        volume.clients.iter().filter_map(of).collect()
    }

    /// Refunds what a charge took; all of it (`None`), or so many bytes.
    pub(super) fn give_back(&mut self, charge: &Charge, bytes: Option<u64>, now: Nanos) {
        let (node, direction): (NodeId, Direction) = (charge.node, charge.direction);
        match bytes {
            Some(bytes) => self.shaper.refund(node, direction, bytes, now),
            None => self.shaper.uncharge(node, direction, charge.bytes, now),
        }
    }
}
