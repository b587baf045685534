//! Limits in force: the one place where requests of every protocol are held back.
//!
//! **Where.** After a request is decoded and its caller admitted, and before the volume acts. READ
//! and WRITE are charged. Operations on names, attributes and locks and COMMIT are a class of their
//! own, which no limit delays. It takes a bounded part of limits on operations
//! ([`Throttle::charge_metadata`]).
//!
//! **Clients.** A client is what its protocol knows it by ([`ClientKey`]); for NFSv3 that is its
//! address. How many connections it opens changes nothing: they take turns within what the client
//! gets. Memory for what waits is counted by address ([`CreditLimits`]), since it is taken before
//! anything is known of a request.
//!
//! **How cores share.** All limits of a pool live in one tree behind one short lock; pools share
//! nothing. A core that has a request for a limited volume locks its pool, charges and goes on.
//! Splitting a limit into shares for each core would need no lock. But if a share is too large,
//! tokens lie idle on a core that has no use for them while requests wait on another. If it is
//! small, cores meet as often as at the lock. And the order among clients and volumes, which is
//! what fairness is, would have to be agreed on in any case. A pool's own limit caps how often the
//! lock is taken while it binds; while none does, requests are charged many at a time ([`lease`]).
//! A tree without limits is never asked. A volume without limits costs one relaxed load when
//! nothing at all is limited, and a look-up in an immutable table otherwise.
//!
//! **Waiting.** A request that cannot start becomes a [`LimitWait`]: its connection serves other
//! requests, and polls it when it was released. What is held in memory meanwhile is bounded by the
//! byte credit ([`CreditLimits`]). Releases take place whenever a request enters the pool or is
//! refunded, and by the timing wheel of some event loop ([`Throttle::expire`]). It is that of the
//! connection whose turn is likely to be next, as far as is known when it is set. A timer that
//! comes late costs no throughput, since meters make good what is late by less than their burst.
//!
//! **Change.** [`Throttle::change`] puts in force what is different from what is. What did not
//! change keeps its meters; what did acts at once: raised limits release what they allow before
//! `change` returns.

mod charge;
mod client;
mod credit;
mod domain;
mod entry;
mod last;
mod lease;
mod loop_shard;
mod next;
mod shared_limits;
mod slot;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod throttled_request;

pub use charge::{Charge, Request};
pub use client::ClientKey;
pub use credit::{CreditLimits, HeldBytes, LentBytes};
pub use loop_shard::Alarm;
pub use shared_limits::SharedStatus;
pub use status::{Binding, ClientStatus, Level, PoolStatus, VolumeStatus};
pub use throttled_request::LimitWait;

use arc_swap::ArcSwap;
use credit::Credit;
use domain::{Domain, State, WakeList};
use entry::Entry;
use last::Last;
use loop_shard::LoopShard;
use next::Next;
use parking_lot::Mutex;
use shared_limits::Provisioned;
use slot::Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use table::Table;
use weir_base::{Clock, VolumeId, invariant, less};
use weir_qos::{Change, Metadata, Nanos, Plan, SubmitOutcome};

/// The least time, in nanoseconds, between two polls of one pool by a shard. A poll costs some
/// microseconds and is worth more the more it releases; a quarter of a millisecond is a fortieth of
/// the burst that makes lateness good.
const PACE: Nanos = 250_000;

/// Counts throttles, from 1.
static COUNT: AtomicU64 = AtomicU64::new(1);

/// The limits in force, and the requests that wait for them.
pub struct Throttle {
    clock: Arc<dyn Clock>,
    /// True if any volume is limited at all.
    active: AtomicBool,
    table: ArcSwap<Table>,
    /// Counts tables: changed after the table, so that a thread that knows a number has seen its
    /// table.
    version: AtomicU64,
    /// Number that no other throttle of the process has.
    number: u64,
    /// Plans with shared limits; held while a plan is applied.
    applying: Mutex<Provisioned>,
    shards: Box<[LoopShard]>,
    credit: Arc<Credit>,
}

impl Throttle {
    /// Creates a throttle in which nothing is limited yet. `shards` is the number of event loops.
    pub fn new(clock: Arc<dyn Clock>, shards: usize, credit: CreditLimits) -> Arc<Throttle> {
        let now = nanos(&*clock);
        Arc::new(Throttle {
            clock,
            active: AtomicBool::new(false),
            table: ArcSwap::default(),
            version: AtomicU64::new(0),
            number: COUNT.fetch_add(1, Ordering::Relaxed),
            applying: Mutex::default(),
            shards: (0..shards.max(1)).map(|_| LoopShard::new(now)).collect(),
            credit: Credit::new(credit),
        })
    }

    /// Returns the time by which limits go.
    pub fn current_time(&self) -> Nanos {
        nanos(&*self.clock)
    }

    /// Returns true if any volume is limited at all.
    fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns the number of the table in force.
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Lets a request through, with what it was charged put into `charge` if anything limits it.
    /// `now` may be a little old, and spares reading the clock.
    ///
    /// # Errors
    /// The request has to wait.
    #[inline]
    pub fn gate(
        self: &Arc<Self>,
        request: &Request,
        now: Option<Nanos>,
        charge: &mut Option<Charge>,
    ) -> Result<(), Box<LimitWait>> {
        if !self.is_active() || now.is_some_and(|now| self.take(request, now, charge)) {
            return Ok(());
        }
        *charge = self.gate_alone(request, now)?;
        Ok(())
    }

    /// Returns the entry of a volume that something limits.
    fn limited(&self, volume: VolumeId) -> Option<Arc<Entry>> {
        let table = self.table.load();
        table.volume(volume).filter(|entry| entry.limited).cloned()
    }

    /// Charges a request, and if others are `likely` to follow, them with it; or enters it among
    /// those that wait.
    fn pass(
        self: &Arc<Self>,
        last: &mut Last,
        request: &Request,
        now: Nanos,
        likely: bool,
    ) -> Result<Option<Charge>, Box<LimitWait>> {
        let entry = Arc::clone(&last.entry);
        let client = request.client;
        let mut woken = WakeList::new();
        let mut state = entry.domain.lock();
        state.drain(now, &mut woken);
        last.end(&mut state, now);
        state.end_expired(now);
        // A volume that was removed just now has no place any more.
        let Some(leaf) = state.leaf(entry.slot, request.volume, client, now) else {
            return Ok(None);
        };
        let charge = Charge {
            volume: request.volume,
            domain: entry.domain.id,
            node: leaf,
            direction: request.direction,
            bytes: request.bytes,
        };
        let mut gate = Ok(Some(charge));
        let mut look = None;
        let start = |state: &mut State| {
            let (direction, bytes) = (request.direction, request.bytes);
            state.shaper.try_start(leaf, direction, bytes, now)
        };
        let passes = likely && last.begin(&mut state, charge, now)
            || start(&mut state)
            || state.end_leases(now) && start(&mut state);
        if !passes {
            let slot = Slot::new();
            match state.enqueue(leaf, request.flow, &slot, charge, now) {
                SubmitOutcome::Start(()) => {}
                SubmitOutcome::Refused(()) => gate = Ok(None),
                SubmitOutcome::Queued => {
                    let domain = Arc::clone(&entry.domain);
                    let held = LimitWait::new(Arc::clone(self), domain, slot, *request, leaf);
                    gate = Err(Box::new(held));
                }
            }
            look = state.earlier(now, 0);
        }
        drop(state);
        self.schedule(look, &entry.domain);
        woken.into_iter().for_each(Waker::wake);
        gate
    }

    /// Charges an operation on metadata, which does not wait, with what it takes from data. `now`
    /// as for [`Throttle::gate`].
    pub fn charge_metadata(
        &self,
        volume: VolumeId,
        client: ClientKey,
        kind: Metadata,
        now: Option<Nanos>,
    ) {
        if kind == Metadata::Protocol || !self.is_active() {
            return;
        }
        let table = self.table.load();
        let Some(entry) = table.volume(volume).filter(|entry| entry.counts_metadata) else {
            // It takes nothing from data there.
            return;
        };
        let now = now.unwrap_or_else(|| self.current_time());
        let mut state = entry.domain.lock();
        state.end_expired(now);
        if let Some(leaf) = state.leaf(entry.slot, volume, client, now) {
            state.shaper.charge_metadata(leaf, kind, now);
        }
    }

    fn shard(&self, flow: u64) -> Option<&LoopShard> {
        self.shards
            .get(usize::try_from(flow).unwrap_or(0) % self.shards.len().max(1))
    }

    /// Refunds the part of a charge that was not moved: a READ that came out short, a request that
    /// failed.
    #[inline]
    pub fn refund(&self, charge: &Charge, moved: u64) {
        let unused = less(charge.bytes, moved, "bytes that were charged");
        if unused > 0 {
            self.undo(charge, Some(unused));
        }
    }

    /// Refunds a whole charge: the request did not take place.
    fn give_back(&self, charge: Charge) {
        self.undo(&charge, None);
    }

    #[inline(never)]
    fn undo(&self, charge: &Charge, bytes: Option<u64>) {
        let table = self.table.load();
        let Some(entry) = table.volume(charge.volume) else {
            // A charge to a volume that is gone is gone with it.
            return;
        };
        if entry.domain.id != charge.domain {
            return;
        }
        let now = self.current_time();
        let mut state = entry.domain.lock();
        // Only what was counted can be refunded.
        state.count_leases(now);
        state.give_back(charge, bytes, now);
        self.release(&entry.domain, state, now);
    }

    /// Schedules a poll of a domain, at a time, on the shard of a connection.
    fn schedule(&self, look: Option<(Nanos, u64)>, domain: &Arc<Domain>) {
        if let Some((at, flow)) = look
            && let Some(shard) = self.shard(flow)
        {
            shard.schedule(at, Arc::clone(domain));
        }
    }

    /// Releases what may start in a domain and schedules its next poll on some shard.
    fn release(
        &self,
        domain: &Arc<Domain>,
        mut state: parking_lot::MutexGuard<'_, State>,
        now: Nanos,
    ) {
        let mut woken = WakeList::new();
        state.drain(now, &mut woken);
        let look = state.earlier(now, PACE);
        drop(state);
        self.schedule(look, domain);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives a shard what has [`Throttle::expire`] called in time.
    pub fn on_alarm(&self, shard: usize, alarm: Arc<dyn Alarm>) {
        if let Some(shard) = self.shards.get(shard) {
            shard.on_alarm(alarm);
        }
    }

    /// Releases what is due by now on a shard.
    pub fn expire(&self, shard: usize) {
        let Some(own) = self.shards.get(shard) else {
            invariant!(
                false,
                "there are {} shards, and none at {shard}",
                self.shards.len()
            );
            return;
        };
        let now = self.current_time();
        let mut due = Vec::new();
        own.take_due(now, &mut due);
        for domain in due {
            let state = domain.lock();
            self.release(&domain, state, now);
        }
        own.rearm();
    }

    /// Returns the time at which [`Throttle::expire`] will next have something to do on a shard.
    pub fn next_expiry(&self, shard: usize) -> Option<Nanos> {
        self.shards.get(shard)?.next_expiry()
    }

    /// Does what is due by time: to be called every few seconds.
    pub fn tidy(&self) {
        let table = self.table.load();
        let now = self.current_time();
        for (_, pool) in table.pools.iter() {
            pool.domain.lock().tidy(now);
        }
    }

    /// Accounts `bytes` of memory to a request of `client` that waits.
    pub fn hold(&self, client: IpAddr, bytes: usize) -> HeldBytes {
        self.credit.hold(client.to_canonical(), bytes)
    }

    /// Returns true if more may be read from `client`. If not, the task of `cx` will be woken when
    /// it is worth asking again.
    pub fn poll_credit(&self, client: IpAddr, cx: &Context<'_>) -> bool {
        self.credit.poll(client.to_canonical(), cx)
    }

    /// Accounts `bytes` of memory to a request for `volume` that is about to be read, if there is
    /// credit for it and the volume is limited. If there is not, the task of `cx` will be woken
    /// when it is worth asking again.
    pub fn poll_begin(
        &self,
        volume: VolumeId,
        client: IpAddr,
        bytes: usize,
        cx: &Context<'_>,
    ) -> std::task::Poll<Option<HeldBytes>> {
        let limited = self.is_active()
            && self
                .table
                .load()
                .volume(volume)
                .is_some_and(|entry| entry.limited);
        if !limited {
            return std::task::Poll::Ready(None);
        }
        match self.credit.poll_hold(client.to_canonical(), bytes, cx) {
            Some(held) => std::task::Poll::Ready(Some(held)),
            None => std::task::Poll::Pending,
        }
    }

    /// Returns the bytes held for requests that wait, and the limits of them.
    pub fn held(&self) -> (usize, CreditLimits) {
        (self.credit.held(), self.credit.limits())
    }

    /// Puts a plan in force. `false` if it is older than the one that is.
    pub fn apply(&self, plan: &Plan) -> bool {
        self.change(&Change::from(plan))
    }

    /// Puts in force what is different from what is. `false` if it leads to something older.
    ///
    /// Costs what the change does, however many volumes there are. A pool that begins or ceases to
    /// be limited is a change of its volumes.
    pub fn change(&self, change: &Change) -> bool {
        let mut provisioned = self.applying.lock();
        if change.generation < self.table.load().generation {
            return false;
        }
        self.put_in_force(&provisioned.effective(change));
        true
    }

    /// Puts a share of a limit in force, in bytes a second. One of a limit without a part here is
    /// ignored.
    pub fn set_share(&self, limit: u64, rate: u64) {
        let mut provisioned = self.applying.lock();
        let generation = self.table.load().generation;
        if let Some(change) = provisioned.set(limit, rate, generation) {
            self.put_in_force(&change);
        }
    }

    /// Puts a change in force. The caller holds `applying`.
    fn put_in_force(&self, change: &Change) {
        let old = self.table.load_full();
        let now = self.current_time();
        let mut next = Next {
            old: &old,
            now,
            pools: BTreeMap::new(),
            volumes: BTreeMap::new(),
            touched: BTreeSet::new(),
        };
        if change.whole {
            next.pools
                .extend(old.pools.iter().map(|(id, _)| (id, None)));
            next.volumes
                .extend(old.volumes.iter().map(|(id, _)| (id, None)));
        }
        next.pools
            .extend(change.pools_gone.iter().map(|id| (*id, None)));
        next.volumes
            .extend(change.volumes_gone.iter().map(|id| (*id, None)));
        for plan in &change.pools {
            next.put_pool(plan);
        }
        for plan in &change.volumes {
            next.put_volume(plan);
        }
        let Next {
            pools,
            volumes,
            mut touched,
            ..
        } = next;
        let count = |entry: Option<&Arc<Entry>>| usize::from(entry.is_some_and(|e| e.limited));
        let mut limited = old.limited;
        for (id, entry) in &volumes {
            limited += count(entry.as_ref());
            limited = less(
                limited,
                count(old.volumes.get(*id)),
                "volumes that are limited",
            );
        }
        let table = Arc::new(Table {
            generation: change.generation,
            pools: old.pools.with(&pools),
            volumes: old.volumes.with(&volumes),
            limited,
        });
        self.table.store(Arc::clone(&table));
        self.version.fetch_add(1, Ordering::Release);
        self.active.store(limited > 0, Ordering::Relaxed);
        // A request that waits in a place that is no more finds its new one by being admitted
        // again, by now under the new table.
        let mut woken = WakeList::new();
        for (id, is) in &volumes {
            let Some(was) = old.volumes.get(*id) else {
                // It is new.
                continue;
            };
            let stays = is
                .as_ref()
                .is_some_and(|is| Arc::ptr_eq(&is.domain, &was.domain) && is.slot == was.slot);
            if !stays {
                was.domain.lock().remove_volume(was.slot, now, &mut woken);
                touched.insert(was.domain.id);
            }
        }
        for pool in touched.iter().filter_map(|id| table.pools.get(*id)) {
            self.release(&pool.domain, pool.domain.lock(), now);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

fn nanos(clock: &dyn Clock) -> Nanos {
    u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
}
