//! The network lock manager, version 4, and the status monitor beside it.
//!
//! NLM keeps state on both sides, so each side must learn of the other's restart. A client that
//! takes a lock becomes a *monitored host*: it is recorded durably before the lock is granted
//! (`weir_vfs::grace`; the call is parked meanwhile). When the server starts and finds hosts in the
//! record, it notifies them (SM_NOTIFY) and for a grace period only grants locks that are claimed
//! again. When a client restarts it notifies us, and all that it held is released. A server that
//! finds no hosts has no grace period.
//!
//! **Authority of a host.** NLM has no authentication. A request concerns the claims of its source
//! address only; the name in it chooses among several hosts at that address. A request from another
//! address of a host counts if the host's name resolves to both addresses. A result of GRANTED
//! counts if it comes from the address that was called.
//!
//! A blocked request is answered BLOCKED and queued. When its turn comes the lock is taken for the
//! client, and the client is called (GRANTED) until it answers. If it answers that it does not want
//! the lock any more, the lock is released. If it does not answer, it keeps the lock: it may have
//! received the call, and otherwise it asks again by itself (clients poll blocked locks, Linux
//! every 30 s).

mod hosts;
mod record_encoding;
mod serve;
pub mod wire;

pub(crate) use hosts::claimant;
pub(crate) use record_encoding::Monitor;
pub(crate) use serve::{Op, takes_identity};

use crate::rpc;
use crate::rpc::call_queue::{Outbox, OutgoingCall};
use crate::rpc::message::{Message, NLM_PROGRAM};
use hosts::Hosts;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_base::limits::protocol::{
    GRANT_RETRY as RETRY, GRANT_TRIES, MAX_GRANTS, NOTIFY_TRIES, PRUNE,
};
use weir_base::{Clock, Reservation, Rng};
use weir_vfs::claims::{Client, Full, Grant, Notice, Owner, Range, ServiceId, Sink};
use weir_vfs::grace::Records;
use weir_vfs::names::Wait;
use weir_vfs::{Clients, FileId, Vfs};

/// Time between two calls of [`LockService::tick`].
const TICK: Duration = Duration::from_secs(1);
/// Memory of a pending call besides its message, in bytes.
const PENDING: usize = 512;
/// NLM procedure number of GRANTED.
const GRANTED: u32 = 5;
/// Number of the lock manager among the services in the table of claims.
pub(crate) const SERVICE: ServiceId = ServiceId(0);

/// A call to a client that has not been answered.
struct PendingCall {
    call: OutgoingCall,
    /// The granted lock, with the memory of this entry; `None` for a notice, which only recorded
    /// hosts get.
    grant: Option<(Grant, Reservation)>,
    tries_left: u32,
    next: Duration,
}

struct State {
    hosts: Hosts,
    pending: HashMap<u64, PendingCall>,
    /// Entries of `pending` that carry a grant.
    grants: usize,
    next_prune: Duration,
}

/// The lock service of NLM, with the hosts to notify and the calls under way.
pub(crate) struct LockService {
    vfs: Arc<Vfs>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Name by which clients know this server.
    name: String,
    grace: Duration,
    records: Arc<Records>,
    state: Mutex<State>,
    outbox: Arc<Outbox>,
}

/// Dependencies of a lock service.
pub(crate) struct Parts {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) records: Arc<Records>,
    pub(crate) grace: Duration,
    pub(crate) name: String,
    pub(crate) outbox: Arc<Outbox>,
}

impl LockService {
    /// Starts the service: reads which hosts held locks before, notifies them, and opens the grace
    /// period if there are any.
    pub(crate) fn start(p: Parts) -> Arc<LockService> {
        let hosts = Hosts::load(Arc::clone(&p.records), p.vfs.claims.budget());
        let now = p.clock.monotonic();
        let service = Arc::new(LockService {
            vfs: p.vfs,
            clock: p.clock,
            rng: p.rng,
            name: p.name,
            grace: p.grace,
            records: p.records,
            state: Mutex::new(State {
                hosts,
                pending: HashMap::new(),
                grants: 0,
                next_prune: now,
            }),
            outbox: p.outbox,
        });
        let sink: Weak<dyn Sink> = Arc::downgrade(&(Arc::clone(&service) as Arc<dyn Sink>));
        service.vfs.claims.attach(SERVICE, sink);
        service.begin_grace(now);
        service.announce(now);
        service
    }

    /// Opens the grace period, if there are hosts that held locks: only they may claim locks
    /// meanwhile.
    fn begin_grace(&self, now: Duration) {
        let state = self.state.lock();
        let grace = &self.vfs.grace;
        grace.begin_bound(state.hosts.expected(), now, self.grace);
    }

    /// Records for the next start in which files hosts have claims. Call it when no client is
    /// served any more.
    pub(crate) fn list_claims(&self) {
        // Not during the grace period: a host cannot report that it has reclaimed everything.
        if !self.vfs.grace.runs(self.clock.monotonic()) {
            let mut state = self.state.lock();
            state.hosts.list(|client| self.vfs.claims.files(client));
        }
    }

    /// Notifies every host that held locks, and the registered lock managers of this machine, that
    /// the server has started.
    fn announce(&self, now: Duration) {
        let mut state = self.state.lock();
        let mut calls = Vec::new();
        let mut seen = HashSet::new();
        for (addr, locals) in state.hosts.recovering() {
            for &local in locals {
                // Several names at an address share one status monitor.
                if !seen.insert((addr, local)) {
                    continue;
                }
                // Clients know a server by the name or by the address they mounted.
                for name in [self.name.clone(), local.to_string()] {
                    let call = hosts::notify_call(self.xid(), &name, state.hosts.state());
                    calls.push((addr, local, call));
                }
            }
        }
        for (to, call) in state.hosts.monitor_calls(None, || self.xid()) {
            calls.push((to, to, call));
        }
        self.notify(&mut state, calls, NOTIFY_TRIES, now);
    }

    /// Sends notices, each given as the host to call, the server's address to call from, and the
    /// call.
    fn notify(
        &self,
        state: &mut State,
        calls: Vec<(IpAddr, IpAddr, hosts::ReadyCall)>,
        tries_left: u32,
        now: Duration,
    ) {
        for (to, from, (program, version, message)) in calls {
            let call = OutgoingCall {
                token: self.rng.next_u64(),
                to,
                from,
                program,
                version,
                message: message.into(),
            };
            let pending = PendingCall {
                call,
                grant: None,
                tries_left,
                next: now,
            };
            self.send(state, pending);
        }
    }

    fn xid(&self) -> u32 {
        self.rng.next_u64() as u32
    }

    /// Sends a call, and keeps it to be repeated. If the outbox has no room, the call is retried at
    /// the next tick; for a notice that does not count as a try.
    fn send(&self, state: &mut State, mut pending: PendingCall) {
        let sent = self.outbox.push(pending.call.clone());
        pending.next = self.clock.monotonic().saturating_add(match sent {
            true => RETRY,
            false => TICK,
        });
        if !sent && pending.grant.is_none() {
            pending.tries_left += 1;
        }
        if state
            .pending
            .insert(pending.call.token, pending)
            .is_some_and(|old| old.grant.is_some())
        {
            state.grants -= 1;
        }
    }

    /// Removes a call that needs no repetition.
    fn take_pending(state: &mut State, token: u64) -> Option<PendingCall> {
        let pending = state.pending.remove(&token)?;
        if pending.grant.is_some() {
            state.grants -= 1;
        }
        Some(pending)
    }

    /// Sends a call that is not repeated and whose reply does not matter.
    fn send_once(&self, to: IpAddr, from: IpAddr, procedure: u32, results: &[u8]) {
        let mut message = Vec::with_capacity(64 + results.len());
        rpc::put_call(&mut message, self.xid(), NLM_PROGRAM, 4, procedure);
        message.extend_from_slice(results);
        let token = self.rng.next_u64();
        self.outbox.push(OutgoingCall {
            token,
            to,
            from,
            program: NLM_PROGRAM,
            version: 4,
            message: message.into(),
        });
    }

    /// Notifies a client of a lock that it now holds.
    fn grant(&self, grant: Grant) {
        let mut state = self.state.lock();
        let client = &grant.lock.owner.client;
        let Some(from) = state.hosts.local(client) else {
            return;
        };
        let token = self.rng.next_u64();
        let mut message = Vec::with_capacity(256);
        rpc::put_call(&mut message, self.xid(), NLM_PROGRAM, 4, GRANTED);
        let handle = self.vfs.handle_of(grant.file);
        let cookie = token.to_be_bytes();
        wire::put_granted(&mut message, &cookie, &client.name, &handle, &grant.lock);
        let call = OutgoingCall {
            token,
            to: client.address,
            from,
            program: NLM_PROGRAM,
            version: 4,
            message: message.into(),
        };
        let bytes = PENDING + call.message.len();
        let memory = self.vfs.claims.budget().try_reserve(bytes);
        let Some(memory) = memory.filter(|_| state.grants < MAX_GRANTS) else {
            // Called once; if that fails the client asks again by itself.
            self.outbox.push(call);
            return;
        };
        let pending = PendingCall {
            call,
            grant: Some((grant, memory)),
            tries_left: GRANT_TRIES,
            next: Duration::ZERO,
        };
        state.grants += 1;
        self.send(&mut state, pending);
    }

    /// Processes the result of a call: `reply` is the RPC reply message, `None` if there was none.
    pub(crate) fn outgoing_done(&self, token: u64, reply: Option<&[u8]>) {
        let Some(Message::Reply(_, body)) = reply.map(rpc::message) else {
            return;
        };
        let stat = rpc::accepted_results(body)
            .and_then(wire::result)
            .map(|(_, stat)| stat);
        self.answered(token, None, stat);
    }

    /// Processes a client's answer to the call with this token. `from` is the source of an answer
    /// that came as a call of its own.
    fn answered(&self, token: u64, from: Option<IpAddr>, stat: Option<u32>) {
        let mut state = self.state.lock();
        let called = state.pending.get(&token).map(|p| p.call.to);
        if called.is_none() || from.is_some_and(|from| Some(from) != called) {
            return;
        }
        let pending = LockService::take_pending(&mut state, token);
        drop(state);
        tracing::debug!(to = ?called, ?stat, "a client has answered");
        let unwanted = stat.is_some_and(|s| s != wire::Stat::Granted as u32);
        if let (Some((grant, _)), true) = (pending.and_then(|p| p.grant), unwanted) {
            self.unlock(grant.file, &grant.lock.owner, grant.lock.range);
        }
    }

    /// Unlocks, and notifies the waiting clients; returns false if there is no memory for splitting
    /// the lock.
    fn unlock(&self, file: FileId, owner: &Owner, range: Range) -> bool {
        match self.vfs.claims.unlock(file, owner, range) {
            Ok(()) => true,
            Err(Full) => {
                tracing::warn!(client = %owner.client.address, "no memory to split a lock");
                false
            }
        }
    }

    /// Repeats calls without an answer, and forgets hosts that hold nothing any more. Call it about
    /// once a second.
    pub(crate) fn tick(&self) {
        let now = self.clock.monotonic();
        self.vfs.claims.tick(now);
        let mut state = self.state.lock();
        let due: Vec<u64> = state
            .pending
            .iter()
            .filter(|(_, p)| p.next <= now)
            .map(|(t, _)| *t)
            .collect();
        for token in due {
            if let Some(mut p) = LockService::take_pending(&mut state, token) {
                if p.tries_left > 1 {
                    p.tries_left -= 1;
                    state.grants += usize::from(p.grant.is_some());
                    self.send(&mut state, p);
                }
            }
        }
        if self.vfs.grace.end_if_over(now) && now >= state.next_prune {
            state.next_prune = now.saturating_add(PRUNE);
            // A host that was recorded just now may not have its lock yet.
            let since = now.saturating_sub(PRUNE);
            state
                .hosts
                .prune(|client| self.vfs.claims.has_client(client), since);
        }
    }

    /// Returns true if `name` is a host name that resolves to all of these addresses.
    fn resolves(&self, name: &[u8], addresses: &[IpAddr]) -> Result<bool, Wait> {
        let Some(Clients::Host(name)) = std::str::from_utf8(name)
            .ok()
            .and_then(|n| Clients::parse(n).ok())
        else {
            return Ok(false);
        };
        for address in addresses {
            if !self.vfs.names.is_host(&name, *address)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the clients that a host speaks for if it calls from `addr` and calls itself `name`;
    /// see the module's head. Further clients may follow once the returned look-up is done.
    fn spoken_for(&self, addr: IpAddr, name: &[u8]) -> (Vec<Client>, Option<Wait>) {
        let state = self.state.lock();
        let mut here = state.hosts.names_at(addr);
        let elsewhere: Vec<IpAddr> = state
            .hosts
            .addresses_of(name)
            .iter()
            .copied()
            .filter(|a| *a != addr)
            .collect();
        drop(state);
        // Clients with locks may be unmonitored (NM_LOCK).
        let locking = self.vfs.claims.clients_at(SERVICE, addr);
        here.extend(locking.into_iter().map(|c| c.name));
        here.sort_unstable();
        here.dedup();
        let named: Vec<_> = here
            .iter()
            .filter(|own| same_host(own, name))
            .cloned()
            .collect();
        let chosen = match (named.is_empty(), here.len()) {
            (false, _) => named,
            // The status monitor may know the host by another name than the lock manager does.
            (true, 0 | 1) => here,
            (true, several) => {
                tracing::warn!(%addr, several, "cannot release the locks of a host: several hosts are at its address, none of them with its name");
                Vec::new()
            }
        };
        let client = |address, name: &[u8]| Client {
            service: SERVICE,
            address,
            name: Arc::from(name),
        };
        let mut out: Vec<Client> = chosen.iter().map(|name| client(addr, name)).collect();
        let mut unknown = None;
        for other in elsewhere {
            match self.resolves(name, &[addr, other]) {
                Ok(true) => out.push(client(other, name)),
                Ok(false) => {}
                Err(wait) => unknown = Some(wait),
            }
        }
        (out, unknown)
    }

    /// Releases everything that a host held. Returns the look-up to wait for before the rest can be
    /// released.
    pub(crate) fn host_gone(&self, addr: IpAddr, name: &[u8]) -> Option<Wait> {
        let (clients, unknown) = self.spoken_for(addr, name);
        self.release(&clients);
        unknown
    }

    fn release(&self, clients: &[Client]) {
        if clients.is_empty() {
            return;
        }
        self.vfs.claims.release(clients);
        let mut state = self.state.lock();
        let theirs = |p: &PendingCall| {
            p.grant
                .as_ref()
                .is_some_and(|(g, _)| clients.contains(&g.lock.owner.client))
        };
        state.pending.retain(|_, p| !theirs(p));
        state.grants = state.pending.values().filter(|p| p.grant.is_some()).count();
        state.hosts.remove(clients);
    }

    /// Handles the notice of a host (SM_NOTIFY) that it has restarted and reached a state. Releases
    /// its earlier locks, and notifies the registered lock managers of this machine. Returns the
    /// look-up to wait for before the rest can be done.
    pub(crate) fn host_restarted(&self, addr: IpAddr, name: &[u8], reached: u32) -> Option<Wait> {
        let (mut clients, mut unknown) = self.spoken_for(addr, name);
        let state = self.state.lock();
        // Notices are repeated and may be late, so locks that were taken in the new state stay.
        clients.retain(|c| state.hosts.state_of(c) != reached || reached == 0);
        let monitored = state.hosts.monitored(name);
        drop(state);
        self.release(&clients);
        if monitored {
            let literal = std::str::from_utf8(name)
                .ok()
                .and_then(|n| n.parse::<IpAddr>().ok());
            let itself = match addr.is_loopback() || literal == Some(addr) {
                true => Ok(true),
                false => self.resolves(name, &[addr]),
            };
            match itself {
                Ok(false) => {}
                Ok(true) => {
                    let mut state = self.state.lock();
                    let calls = state
                        .hosts
                        .monitor_calls(Some((name, reached)), || self.xid());
                    let calls = calls.into_iter().map(|(to, call)| (to, to, call)).collect();
                    self.notify(&mut state, calls, GRANT_TRIES, Duration::ZERO);
                }
                Err(wait) => unknown = Some(wait),
            }
        }
        unknown
    }

    /// SM_SIMU_CRASH: forgets all locks as a restart does, and notifies every host that held one.
    /// The new grace period lets them reclaim their locks.
    pub(crate) fn simulate_crash(&self) {
        self.vfs.claims.release_all(SERVICE);
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.pending.clear();
        state.grants = 0;
        state.hosts.restart();
        drop(state);
        self.begin_grace(now);
        self.announce(now);
    }

    /// Returns the status monitor's state number of this start.
    pub(crate) fn nsm_state(&self) -> u32 {
        self.state.lock().hosts.state()
    }

    /// SM_MON: records a lock manager to notify; returns false if it cannot be recorded.
    pub(crate) fn monitor(&self, m: Monitor) -> bool {
        self.state.lock().hosts.monitor(m)
    }

    /// SM_UNMON and SM_UNMON_ALL (without `host`): ends the monitoring for a program.
    pub(crate) fn unmonitor(&self, host: Option<&[u8]>, program: u32) {
        self.state.lock().hosts.unmonitor(host, program);
    }
}

impl Sink for LockService {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::Granted(grant) => self.grant(grant),
            // Hosts have no caches in the table of claims, and are never parked. They notice the
            // loss of a volume by themselves: its handles are stale.
            Notice::Break { .. }
            | Notice::Asked { .. }
            | Notice::Revoked { .. }
            | Notice::Dropped { .. }
            | Notice::Lost { .. }
            | Notice::Delete { .. }
            | Notice::Recall => {}
        }
    }
}

/// Returns true if two names mean one host: they are equal but for case, or one is the other with a
/// domain.
fn same_host(a: &[u8], b: &[u8]) -> bool {
    let (short, long) = match a.len() <= b.len() {
        true => (a, b),
        false => (b, a),
    };
    let (first, rest) = long.split_at(short.len());
    first.eq_ignore_ascii_case(short)
        && (rest.is_empty() || (rest.first() == Some(&b'.') && !short.contains(&b'.')))
}
