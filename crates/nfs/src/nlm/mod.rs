//! The network lock manager, version 4, and the status monitor beside it.
//!
//! NLM keeps state on both sides, so each side must learn of the other's
//! restart. A client that takes a lock becomes a *monitored host*: it is written
//! down before the lock is granted. When the server starts and finds hosts
//! written down, it tells them (SM_NOTIFY) and for a grace period only grants
//! locks that are claimed again. When a client restarts it tells us, and all
//! that it held is released. A server that finds no hosts has no grace period.
//!
//! A blocked request is answered BLOCKED and queued; when its turn comes the
//! lock is taken for the client, and the client is called (GRANTED) until it
//! answers. A client that answers that it does not want the lock any more loses
//! it. One that does not answer keeps it: it may have heard us, and it asks
//! again by itself if it has not (clients poll blocked locks, Linux every 30 s).

mod hosts;
mod serve;
pub mod wire;

pub use hosts::HostStore;
pub(crate) use hosts::{Host, Monitor};
pub(crate) use serve::Op;
pub(crate) use wire::PROCEDURES;

use crate::outgoing::{Outbox, Outgoing};
use crate::rpc::{self, Message};
use crate::service::NLM_PROGRAM;
use hosts::Hosts;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_base::{Clock, Rng};
use weir_vfs::Vfs;
use weir_vfs::locks::Grant;

/// Time between two tries of a call to a client.
const RETRY: Duration = Duration::from_secs(10);
/// Tries of GRANTED: two minutes, four times the interval at which clients ask
/// by themselves.
const GRANT_TRIES: u32 = 12;
/// Tries of SM_NOTIFY: 15 minutes, as sm-notify(8) does.
const NOTIFY_TRIES: u32 = 90;
/// Time between two looks for hosts that hold nothing any more; also how long
/// such a host is remembered at least.
const PRUNE: Duration = Duration::from_secs(60);
/// Procedure GRANTED.
const GRANTED: u32 = 5;

/// A call to a client that has not been answered.
#[derive(Clone, Debug)]
struct Pending {
    call: Outgoing,
    /// The lock it grants; `None` for a notice.
    grant: Option<Grant>,
    tries_left: u32,
    next: Duration,
}

struct State {
    hosts: Hosts,
    pending: HashMap<u64, Pending>,
    grace_until: Duration,
    next_prune: Duration,
}

/// The lock service.
pub(crate) struct LockService {
    vfs: Arc<Vfs>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// What clients know this server as.
    name: String,
    grace: Duration,
    state: Mutex<State>,
    outbox: Arc<Outbox>,
}

/// What a lock service is made of.
pub(crate) struct Parts {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) store: Arc<dyn HostStore>,
    pub(crate) grace: Duration,
    pub(crate) name: String,
    pub(crate) outbox: Arc<Outbox>,
}

impl LockService {
    /// Starts the service: reads who held locks before, tells them, and opens
    /// the grace period if there are any.
    pub(crate) fn start(p: Parts) -> LockService {
        let hosts = Hosts::load(p.store);
        let now = p.clock.monotonic();
        let grace_until = if hosts.recovering().is_empty() {
            Duration::ZERO
        } else {
            now.saturating_add(p.grace)
        };
        let service = LockService {
            vfs: p.vfs,
            clock: p.clock,
            rng: p.rng,
            name: p.name,
            grace: p.grace,
            state: Mutex::new(State {
                hosts,
                pending: HashMap::new(),
                grace_until,
                next_prune: now,
            }),
            outbox: p.outbox,
        };
        service.announce(now);
        service
    }

    fn in_grace(&self, state: &State) -> bool {
        self.clock.monotonic() < state.grace_until
    }

    /// Tells everyone who held locks, and the lock managers of this machine
    /// that asked to be told, that the server has started.
    fn announce(&self, now: Duration) {
        let mut state = self.state.lock();
        let mut calls = Vec::new();
        for host in state.hosts.recovering() {
            // Clients know a server by the name or by the address they mounted.
            for name in [self.name.clone(), host.local.to_string()] {
                calls.push((
                    host.addr,
                    host.local,
                    hosts::notify_call(self.xid(), &name, state.hosts.state()),
                ));
            }
        }
        for (to, call) in state.hosts.monitor_calls(None, || self.xid()) {
            calls.push((to, to, call));
        }
        for (to, from, (program, version, message)) in calls {
            let call = Outgoing {
                token: self.rng.next_u64(),
                to,
                from,
                program,
                version,
                message,
            };
            self.send(
                &mut state,
                Pending {
                    call,
                    grant: None,
                    tries_left: NOTIFY_TRIES,
                    next: now,
                },
            );
        }
    }

    fn xid(&self) -> u32 {
        self.rng.next_u64() as u32
    }

    fn send(&self, state: &mut State, mut pending: Pending) {
        pending.next = self.clock.monotonic().saturating_add(RETRY);
        self.outbox.push(pending.call.clone());
        state.pending.insert(pending.call.token, pending);
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
            message,
        });
    }

    /// Tells clients of the locks that they now hold.
    fn grant(&self, grants: Vec<Grant>) {
        if grants.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for grant in grants {
            let Some(host) = state.hosts.get(&grant.lock.owner.client).cloned() else {
                continue;
            };
            let token = self.rng.next_u64();
            let mut message = Vec::with_capacity(256);
            rpc::put_call(&mut message, self.xid(), NLM_PROGRAM, 4, GRANTED);
            let handle = self.vfs.handle_of(grant.file);
            wire::put_granted(
                &mut message,
                &token.to_be_bytes(),
                &host.name,
                &handle,
                &grant.lock,
            );
            let call = Outgoing {
                token,
                to: host.addr,
                from: host.local,
                program: NLM_PROGRAM,
                version: 4,
                message,
            };
            let pending = Pending {
                call,
                grant: Some(grant),
                tries_left: GRANT_TRIES,
                next: Duration::ZERO,
            };
            self.send(&mut state, pending);
        }
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
        self.answered(token, stat);
    }

    /// Takes the answer of a client to the call with this token.
    fn answered(&self, token: u64, stat: Option<u32>) {
        let Some(pending) = self.state.lock().pending.remove(&token) else {
            return;
        };
        tracing::debug!(to = %pending.call.to, program = pending.call.program, ?stat, "a client has answered");
        let unwanted = stat.is_some_and(|s| s != wire::Stat::Granted as u32);
        if let (Some(grant), true) = (pending.grant, unwanted) {
            let more = self
                .vfs
                .locks
                .unlock(grant.file, &grant.lock.owner, grant.lock.range);
            self.grant(more);
        }
    }

    /// Repeats calls that nobody answered, and forgets hosts that hold nothing
    /// any more. To be called about once a second.
    pub(crate) fn tick(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let due: Vec<u64> = state
            .pending
            .iter()
            .filter(|(_, p)| p.next <= now)
            .map(|(t, _)| *t)
            .collect();
        for token in due {
            if let Some(mut p) = state.pending.remove(&token) {
                if p.tries_left > 1 {
                    p.tries_left -= 1;
                    self.send(&mut state, p);
                }
            }
        }
        if now >= state.grace_until && now >= state.next_prune {
            state.next_prune = now.saturating_add(PRUNE);
            // A host that was just written down may not have its lock yet.
            let since = now.saturating_sub(PRUNE);
            let holders = self.vfs.locks.clients();
            state.hosts.prune(&holders, since);
        }
    }

    /// A host has restarted or gives up: everything it held is released.
    pub(crate) fn host_gone(&self, addr: IpAddr, name: &[u8]) {
        let clients = self.state.lock().hosts.matching(addr, name);
        if clients.is_empty() {
            return;
        }
        let grants = self.vfs.locks.release(|c| clients.contains(c));
        let mut state = self.state.lock();
        state.pending.retain(|_, p| {
            !p.grant
                .as_ref()
                .is_some_and(|g| clients.contains(&g.lock.owner.client))
        });
        state.hosts.remove(&clients);
        drop(state);
        self.grant(grants);
    }

    /// A host told that it has restarted (SM_NOTIFY): its locks are gone, and
    /// whoever here asked to be told is.
    pub(crate) fn host_restarted(&self, addr: IpAddr, name: &[u8], reached: u32) {
        self.host_gone(addr, name);
        let mut state = self.state.lock();
        let calls = state
            .hosts
            .monitor_calls(Some((name, reached)), || self.xid());
        for (to, (program, version, message)) in calls {
            let call = Outgoing {
                token: self.rng.next_u64(),
                to,
                from: to,
                program,
                version,
                message,
            };
            self.send(
                &mut state,
                Pending {
                    call,
                    grant: None,
                    tries_left: GRANT_TRIES,
                    next: Duration::ZERO,
                },
            );
        }
    }

    /// SM_SIMU_CRASH: all locks are lost as by a restart, and everyone who held
    /// one is told; the new grace period lets them claim their locks again.
    pub(crate) fn simulate_crash(&self) {
        self.vfs.locks.release(|_| true);
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.pending.clear();
        state.hosts.restart();
        state.grace_until = if state.hosts.recovering().is_empty() {
            Duration::ZERO
        } else {
            now.saturating_add(self.grace)
        };
        drop(state);
        self.announce(now);
    }

    /// The status monitor's number of this start.
    pub(crate) fn nsm_state(&self) -> u32 {
        self.state.lock().hosts.state()
    }

    /// SM_MON.
    pub(crate) fn monitor(&self, m: Monitor) -> bool {
        self.state.lock().hosts.monitor(m)
    }

    /// SM_UNMON, SM_UNMON_ALL.
    pub(crate) fn unmonitor(&self, host: Option<&[u8]>, program: u32) {
        self.state.lock().hosts.unmonitor(host, program);
    }
}
