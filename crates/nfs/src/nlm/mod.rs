//! The network lock manager, version 4, and the status monitor beside it.
//!
//! NLM keeps state on both sides, so each side must learn of the other's
//! restart. A client that takes a lock becomes a *monitored host*: it is recorded
//! durably before the lock is granted (`weir_vfs::grace`; the call is parked meanwhile). When the server starts and finds hosts
//! in the record, it notifies them (SM_NOTIFY) and for a grace period only grants
//! locks that are claimed again. When a client restarts it notifies us, and all
//! that it held is released. A server that finds no hosts has no grace period.
//!
//! **Which calls count for a host.** NLM has no authentication. What a request concerns is what its source address has; the
//! name in it only chooses among several hosts at that address. A host that calls from another of its addresses counts if
//! its name resolves to both. A result of GRANTED counts from the address that was called.
//!
//! A blocked request is answered BLOCKED and queued; when its turn comes the
//! lock is taken for the client, and the client is called (GRANTED) until it
//! answers. A client that replies that it does not want the lock any more loses it. One that does
//! not answer keeps it: it may have heard us, and it asks again by itself if it has not (clients
//! poll blocked locks, Linux every 30 s).

mod hosts;
mod recorded;
mod serve;
pub mod wire;

pub(crate) use hosts::claimant;
pub(crate) use recorded::Monitor;
pub(crate) use serve::{Op, takes_identity};

use crate::rpc;
use crate::rpc::message::{Message, NLM_PROGRAM};
use crate::rpc::outgoing::{Outbox, Outgoing};
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
/// Memory of one besides its message.
const PENDING: usize = 512;
/// NLM procedure number of GRANTED.
const GRANTED: u32 = 5;
/// The hosts' number among the services in the table of claims.
pub(crate) const SERVICE: ServiceId = ServiceId(0);

/// A call to a client that has not been answered.
struct Pending {
    call: Outgoing,
    /// The lock it grants, with the memory of this entry; `None` for a notice, which hosts in the record are due.
    grant: Option<(Grant, Reservation)>,
    tries_left: u32,
    next: Duration,
}

struct State {
    hosts: Hosts,
    pending: HashMap<u64, Pending>,
    /// Entries of `pending` that carry a grant.
    grants: usize,
    next_prune: Duration,
}

/// The lock service of NLM, with the hosts to notify and the calls under way.
pub(crate) struct LockService {
    vfs: Arc<Vfs>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// What clients know this server as.
    name: String,
    grace: Duration,
    records: Arc<Records>,
    state: Mutex<State>,
    outbox: Arc<Outbox>,
}

/// What a lock service is made of.
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

    /// Only hosts at addresses that had some may claim locks for a while, if there are any.
    fn begin_grace(&self, now: Duration) {
        let state = self.state.lock();
        let grace = &self.vfs.grace;
        grace.begin_bound(state.hosts.expected(), now, self.grace);
    }

    /// Makes the records say in which files hosts have something, for the next start. To be called
    /// when no client is served any more.
    pub(crate) fn list_claims(&self) {
        // A host cannot report that it has claimed again all that it had.
        if !self.vfs.grace.runs(self.clock.monotonic()) {
            let mut state = self.state.lock();
            state.hosts.list(|client| self.vfs.claims.files(client));
        }
    }

    /// Notifies every host that held locks, and the lock managers of this machine that asked for
    /// it, that the server has started.
    fn announce(&self, now: Duration) {
        let mut state = self.state.lock();
        let mut calls = Vec::new();
        let mut seen = HashSet::new();
        for (addr, locals) in state.hosts.recovering() {
            for &local in locals {
                // Several names at an address are one status monitor.
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

    /// Sends notices, each given as the host to call, our address to call from, and the call.
    fn notify(
        &self,
        state: &mut State,
        calls: Vec<(IpAddr, IpAddr, hosts::ReadyCall)>,
        tries_left: u32,
        now: Duration,
    ) {
        for (to, from, (program, version, message)) in calls {
            let call = Outgoing {
                token: self.rng.next_u64(),
                to,
                from,
                program,
                version,
                message: message.into(),
            };
            let pending = Pending {
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

    /// Sends a call, and keeps it to be repeated. What the outbox has no room for is tried again at the next tick; a
    /// notice loses none of its tries by that.
    fn send(&self, state: &mut State, mut pending: Pending) {
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

    /// Takes out a call that needs no repetition.
    fn settle(state: &mut State, token: u64) -> Option<Pending> {
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
        self.outbox.push(Outgoing {
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
        let call = Outgoing {
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
            // Called once; if that fails the client asks by itself.
            self.outbox.push(call);
            return;
        };
        let pending = Pending {
            call,
            grant: Some((grant, memory)),
            tries_left: GRANT_TRIES,
            next: Duration::ZERO,
        };
        state.grants += 1;
        self.send(&mut state, pending);
    }

    /// Takes the outcome of a call: `reply` is the RPC reply message, `None` if
    /// there was none.
    pub(crate) fn outgoing_done(&self, token: u64, reply: Option<&[u8]>) {
        let Some(Message::Reply(_, body)) = reply.map(rpc::message) else {
            return;
        };
        let stat = rpc::accepted_results(body)
            .and_then(wire::result)
            .map(|(_, stat)| stat);
        self.answered(token, None, stat);
    }

    /// Takes the answer of a client to the call with this token; `from`: it came as a call of its own from there.
    fn answered(&self, token: u64, from: Option<IpAddr>, stat: Option<u32>) {
        let mut state = self.state.lock();
        let called = state.pending.get(&token).map(|p| p.call.to);
        if called.is_none() || from.is_some_and(|from| Some(from) != called) {
            return;
        }
        let pending = LockService::settle(&mut state, token);
        drop(state);
        tracing::debug!(to = ?called, ?stat, "a client has answered");
        let unwanted = stat.is_some_and(|s| s != wire::Stat::Granted as u32);
        if let (Some((grant, _)), true) = (pending.and_then(|p| p.grant), unwanted) {
            self.unlock(grant.file, &grant.lock.owner, grant.lock.range);
        }
    }

    /// Unlocks, and notifies the waiting clients; false if that takes memory that is not there.
    fn unlock(&self, file: FileId, owner: &Owner, range: Range) -> bool {
        match self.vfs.claims.unlock(file, owner, range) {
            Ok(()) => true,
            Err(Full) => {
                tracing::warn!(client = %owner.client.address, "no memory to split a lock");
                false
            }
        }
    }

    /// Repeats calls that nobody answered, and forgets hosts that hold nothing
    /// any more. To be called about once a second.
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
            if let Some(mut p) = LockService::settle(&mut state, token) {
                if p.tries_left > 1 {
                    p.tries_left -= 1;
                    state.grants += usize::from(p.grant.is_some());
                    self.send(&mut state, p);
                }
            }
        }
        if self.vfs.grace.settle(now) && now >= state.next_prune {
            state.next_prune = now.saturating_add(PRUNE);
            // A host that was just recorded may not have its lock yet.
            let since = now.saturating_sub(PRUNE);
            state
                .hosts
                .prune(|client| self.vfs.claims.has(client), since);
        }
    }

    /// Whether `name` is a host name that resolves to all of these addresses; an error while that is not known.
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

    /// The clients for which a host counts that calls from `addr` and calls itself `name`: see the module's head.
    /// With the name that must be known to decide about further ones.
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
        // Not all that have locks are monitored (NM_LOCK).
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
                tracing::warn!(%addr, several, "a host restarted whose name is that of none of the hosts at its address; no lock is released");
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

    /// A host gives up: everything it held is released. Returns what has to be known to release the rest.
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
        let theirs = |p: &Pending| {
            p.grant
                .as_ref()
                .is_some_and(|(g, _)| clients.contains(&g.lock.owner.client))
        };
        state.pending.retain(|_, p| !theirs(p));
        state.grants = state.pending.values().filter(|p| p.grant.is_some()).count();
        state.hosts.remove(clients);
    }

    /// A host notifies us that it has restarted (SM_NOTIFY) and reached a state: its locks of before are released, and
    /// the lock managers here that asked for it are notified. Returns what has to be known to do the rest.
    pub(crate) fn host_restarted(&self, addr: IpAddr, name: &[u8], reached: u32) -> Option<Wait> {
        let (mut clients, mut unknown) = self.spoken_for(addr, name);
        let state = self.state.lock();
        // Notices are repeated and may be late: locks that were taken in the new state stay.
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

    /// SM_SIMU_CRASH: all locks are lost as by a restart, and every host that held one is notified;
    /// the new grace period lets them claim their locks again.
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

    /// The status monitor's number of this start.
    pub(crate) fn nsm_state(&self) -> u32 {
        self.state.lock().hosts.state()
    }

    /// SM_MON: records a lock manager to notify; false if it cannot be recorded.
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
            // Hosts cache nothing that the table knows of, and are never parked. What they lose with a volume they notice by
            // themselves: its handles are stale.
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

/// Whether two names are those of one host: the same but for case, or one is the other with a domain.
fn same_host(a: &[u8], b: &[u8]) -> bool {
    let (short, long) = match a.len() <= b.len() {
        true => (a, b),
        false => (b, a),
    };
    let (first, rest) = long.split_at(short.len());
    first.eq_ignore_ascii_case(short)
        && (rest.is_empty() || (rest.first() == Some(&b'.') && !short.contains(&b'.')))
}
