//! Who must be notified when the server restarts: client hosts that hold locks, and
//! the lock managers of this machine that asked the status monitor. Recorded
//! durably at every change, since the record is needed exactly when nobody could say goodbye.
//!
//! The records (`weir_vfs::grace`); names may be any bytes and are in hexadecimal:
//!
//! | Key | Value | Means |
//! |---|---|---|
//! | `host ADDRESS NAME` | `LOCAL …` | the host may hold locks, over these addresses of ours, the latest last |
//! | `monitor PROGRAM PROCEDURE HOST` | `VERSION PRIVATE` | SM_MON |
//! | `nsm-state` | number | of the last start (NSM's state) |

use super::SERVICE;
use crate::rpc;
use crate::service::NSM_PROGRAM;
use crate::xdr::Put;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use weir_base::{Budget, Reservation};
use weir_vfs::claims::Client;
use weir_vfs::grace::{Claimant, Records, Slip};

/// SM_NOTIFY of the status monitor.
const SM_NOTIFY: u32 = 6;
/// Key of the number of the last start.
const STATE: &str = "nsm-state";
/// Most hosts in the record.
const MAX_HOSTS: usize = 16_384;
/// Most of them at one address: behind address translation several hosts share one.
const MAX_NAMES: usize = 256;
/// Longest name of a host that may hold locks. DNS has 253 at most (RFC 1035 §2.3.4), Linux 64.
pub(crate) const MAX_NAME: usize = 255;
/// Most monitors.
const MAX_MONITORS: usize = 1024;
/// Own addresses remembered of each host.
const MAX_LOCALS: usize = 4;
/// Memory of one host besides its names, which are in its record as well.
const ENTRY: usize = 640;

/// Addresses of this server by which a host has called it.
type Locals = SmallVec<[IpAddr; 1]>;

/// A client host that may hold locks.
struct Host {
    name: Arc<[u8]>,
    /// The addresses of ours that it uses, the latest last.
    locals: Locals,
    /// When it last asked for a lock, on the monotonic clock.
    asked: Duration,
    /// Its NSM state as its requests show it.
    state: u32,
    /// What becomes of its latest record, until that is known to be durable.
    batch: Option<Arc<Slip>>,
}

/// A host that held locks when the server stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recovering {
    pub(crate) addr: IpAddr,
    pub(crate) name: Arc<[u8]>,
    pub(crate) locals: Locals,
}

/// A lock manager on this machine that wants to be notified of a host's restart
/// (SM_MON).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Monitor {
    pub(crate) host: Vec<u8>,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) private: [u8; 16],
}

/// A call ready to be sent: program, version, message.
pub(crate) type ReadyCall = (u32, u32, Vec<u8>);

/// Whether a host may be given its lock.
pub(crate) enum Recorded {
    /// It is in the record.
    Yes,
    /// It will be, or not, with this.
    With(Arc<Slip>),
    /// There are too many.
    Full,
}

pub(crate) struct Hosts {
    records: Arc<dyn Records>,
    /// Odd; goes up by two at every start (X/Open XNFS, status monitor).
    state: u32,
    hosts: HashMap<IpAddr, Vec<Host>>,
    /// Addresses at which there is a host of this name.
    addresses: HashMap<Arc<[u8]>, Vec<IpAddr>>,
    count: usize,
    memory: Option<Reservation>,
    monitors: Vec<Monitor>,
    recovering: Vec<Recovering>,
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2 + 1), |mut s, b| {
            // Writing to a String does not fail.
            let _ = write!(s, "{b:02x}");
            s
        })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() % 2 != 0 {
        return None;
    }
    let nibble = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    digits
        .chunks(2)
        .map(|p| Some(nibble(*p.first()?)? << 4 | nibble(*p.get(1)?)?))
        .collect()
}

fn host_key(addr: IpAddr, name: &[u8]) -> String {
    format!("host {addr} {}", hex(name))
}

fn host_value(locals: &[IpAddr]) -> String {
    let locals: Vec<String> = locals.iter().map(IpAddr::to_string).collect();
    locals.join(" ")
}

fn monitor_key(m: &Monitor) -> String {
    format!("monitor {} {} {}", m.program, m.procedure, hex(&m.host))
}

/// Who claims again what hosts at an address had: they need not call from the same port, or under the same name.
pub(crate) fn claimant(addr: IpAddr) -> Claimant {
    Claimant {
        service: SERVICE,
        name: addr.to_string().into_bytes().into(),
    }
}

/// The call that notifies a host that `name` has reached `state`
/// (`stat_chge`, SM_NOTIFY).
pub(crate) fn notify_call(xid: u32, name: &str, state: u32) -> ReadyCall {
    let mut message = Vec::with_capacity(96);
    rpc::put_call(&mut message, xid, NSM_PROGRAM, 1, SM_NOTIFY);
    message.put_opaque(name.as_bytes());
    message.put_u32(state);
    (NSM_PROGRAM, 1, message)
}

/// Remembers an address of ours as the latest; false if it was known.
fn remember(locals: &mut Locals, local: IpAddr) -> bool {
    let old = locals.iter().position(|l| *l == local);
    if let Some(at) = old {
        locals.remove(at);
    } else if locals.len() == MAX_LOCALS {
        locals.remove(0);
    }
    locals.push(local);
    old.is_none()
}

impl Hosts {
    /// Reads the records and starts a new state. Memory is charged to `budget`.
    pub(crate) fn load(records: Arc<dyn Records>, budget: &Arc<Budget>) -> Hosts {
        let mut h = Hosts {
            records: Arc::clone(&records),
            state: 0,
            hosts: HashMap::new(),
            addresses: HashMap::new(),
            count: 0,
            memory: budget.try_reserve(0),
            monitors: Vec::new(),
            recovering: Vec::new(),
        };
        let all = records.load().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read who held locks; they will not be notified of the restart");
            Vec::new()
        });
        for (key, value) in all {
            if h.take(&key, &value).is_none() {
                tracing::warn!(key, value, "record of a lock holder not understood");
            }
        }
        h.state = match h.state {
            0 => 1,
            old => (old | 1).wrapping_add(2),
        };
        records.set(STATE, &h.state.to_string());
        records.write();
        h
    }

    /// Takes a record of before the start; `None` if it is not understood. Those of other services are passed over.
    fn take(&mut self, key: &str, value: &str) -> Option<()> {
        let mut words = key.split(' ');
        let mut values = value.split(' ');
        match words.next()? {
            STATE => self.state = value.parse::<u32>().ok()?,
            "host" => {
                let addr = words.next()?.parse().ok()?;
                let name = Arc::from(unhex(words.next()?)?);
                let locals = values.map(|local| local.parse().ok());
                let locals = locals.collect::<Option<Locals>>()?;
                self.recovering.push(Recovering { addr, name, locals });
            }
            "monitor" => {
                let mut number = || words.next()?.parse::<u32>().ok();
                let (program, procedure) = (number()?, number()?);
                let host = unhex(words.next()?)?;
                let version = values.next()?.parse::<u32>().ok()?;
                let private = unhex(values.next()?)?.try_into().ok()?;
                self.monitors.push(Monitor {
                    host,
                    program,
                    version,
                    procedure,
                    private,
                });
            }
            _ => {}
        }
        Some(())
    }

    /// Forgets who holds locks as a restart would, keeping who must be notified.
    pub(crate) fn restart(&mut self) {
        self.state = self.state.wrapping_add(2);
        let old = self
            .hosts
            .drain()
            .flat_map(|(addr, at)| at.into_iter().map(move |h| (addr, h)));
        self.recovering.extend(old.map(|(addr, h)| Recovering {
            addr,
            name: h.name,
            locals: h.locals,
        }));
        self.addresses.clear();
        self.count = 0;
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(0);
        }
        self.records.set(STATE, &self.state.to_string());
    }

    /// This start's number.
    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// Who held locks when the server stopped.
    pub(crate) fn recovering(&self) -> &[Recovering] {
        &self.recovering
    }

    fn get(&self, addr: IpAddr, name: &[u8]) -> Option<&Host> {
        self.hosts.get(&addr)?.iter().find(|h| *h.name == *name)
    }

    /// The address of ours that a client last used.
    pub(crate) fn local(&self, client: &Client) -> Option<IpAddr> {
        self.get(client.address, &client.name)?
            .locals
            .last()
            .copied()
    }

    /// Puts a host into the record, if it is not there.
    pub(crate) fn add(
        &mut self,
        client: &Client,
        local: IpAddr,
        state: u32,
        now: Duration,
    ) -> Recorded {
        let (addr, count, records) = (client.address, self.count, Arc::clone(&self.records));
        let at = self.hosts.entry(addr).or_default();
        if let Some(host) = at.iter_mut().find(|h| h.name == client.name) {
            (host.asked, host.state) = (now, state);
            let new = remember(&mut host.locals, local);
            match host.batch.as_ref().map(|slip| slip.get()) {
                Some(None) if !new => {}
                Some(Some(true)) | None if !new => host.batch = None,
                // Not written yet, or that failed.
                _ => {
                    let key = host_key(addr, &host.name);
                    host.batch = Some(records.set(&key, &host_value(&host.locals)));
                }
            }
            return host.batch.clone().map_or(Recorded::Yes, Recorded::With);
        }
        let bytes = ENTRY + 3 * client.name.len();
        let fits = count < MAX_HOSTS
            && at.len() < MAX_NAMES
            && self.memory.as_mut().is_some_and(|m| m.grow(bytes));
        if !fits {
            if at.is_empty() {
                self.hosts.remove(&addr);
            }
            return Recorded::Full;
        }
        let batch = records.set(&host_key(addr, &client.name), &host_value(&[local]));
        at.push(Host {
            name: Arc::clone(&client.name),
            locals: SmallVec::from_slice(&[local]),
            asked: now,
            state,
            batch: Some(Arc::clone(&batch)),
        });
        self.addresses
            .entry(Arc::clone(&client.name))
            .or_default()
            .push(addr);
        self.count += 1;
        Recorded::With(batch)
    }

    /// Removes a host from memory; the caller takes it out of the record.
    fn forget(&mut self, addr: IpAddr, name: &[u8]) -> bool {
        let Some(at) = self.hosts.get_mut(&addr) else {
            return false;
        };
        let before = at.len();
        at.retain(|h| *h.name != *name);
        if at.len() == before {
            return false;
        }
        if at.is_empty() {
            self.hosts.remove(&addr);
        }
        if let Some(addresses) = self.addresses.get_mut(name) {
            addresses.retain(|a| *a != addr);
            if addresses.is_empty() {
                self.addresses.remove(name);
            }
        }
        self.count -= 1;
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(memory.bytes() - (ENTRY + 3 * name.len()));
        }
        true
    }

    /// Forgets restarted hosts.
    pub(crate) fn remove(&mut self, gone: &[Client]) {
        for client in gone {
            if self.forget(client.address, &client.name) {
                self.records.remove(&host_key(client.address, &client.name));
            }
        }
    }

    /// Forgets the hosts that have nothing, as `has` knows, and have asked for nothing since
    /// `since`, and those of before the restart.
    pub(crate) fn prune(&mut self, has: impl Fn(&Client) -> bool, since: Duration) {
        let mut idle = Vec::new();
        for (&address, at) in &self.hosts {
            for host in at.iter().filter(|h| h.asked < since) {
                let client = Client {
                    service: SERVICE,
                    address,
                    name: Arc::clone(&host.name),
                };
                if !has(&client) {
                    idle.push(client);
                }
            }
        }
        for client in idle {
            self.forget(client.address, &client.name);
            self.records.remove(&host_key(client.address, &client.name));
        }
        for r in std::mem::take(&mut self.recovering) {
            if self.get(r.addr, &r.name).is_none() {
                self.records.remove(&host_key(r.addr, &r.name));
            }
        }
    }

    /// Names of the hosts at an address.
    pub(crate) fn names_at(&self, addr: IpAddr) -> Vec<Arc<[u8]>> {
        let at = self.hosts.get(&addr).into_iter().flatten();
        at.map(|h| Arc::clone(&h.name)).collect()
    }

    /// Addresses of the hosts of a name.
    pub(crate) fn addresses_of(&self, name: &[u8]) -> &[IpAddr] {
        self.addresses.get(name).map_or(&[], Vec::as_slice)
    }

    /// The NSM state that a host's requests show; 0 if it is not known.
    pub(crate) fn state_of(&self, client: &Client) -> u32 {
        self.get(client.address, &client.name)
            .map_or(0, |h| h.state)
    }

    /// SM_MON: a lock manager of this machine wants to be notified of the restart of a host.
    pub(crate) fn monitor(&mut self, m: Monitor) -> bool {
        self.monitors.retain(|old| !same(old, &m));
        if self.monitors.len() >= MAX_MONITORS {
            return false;
        }
        let value = format!("{} {}", m.version, hex(&m.private));
        self.records.set(&monitor_key(&m), &value);
        self.monitors.push(m);
        true
    }

    /// SM_UNMON of one host, or SM_UNMON_ALL.
    pub(crate) fn unmonitor(&mut self, host: Option<&[u8]>, program: u32) {
        let records = &self.records;
        self.monitors.retain(|m| {
            let gone = m.program == program && host.is_none_or(|h| h == m.host);
            if gone {
                records.remove(&monitor_key(m));
            }
            !gone
        });
    }

    /// Whether a lock manager of this machine asked for a host.
    pub(crate) fn monitored(&self, host: &[u8]) -> bool {
        self.monitors.iter().any(|m| m.host == host)
    }

    /// The calls that notify the lock managers of this machine of the restart of
    /// a host (`None`: of this server). Their argument is that of the status
    /// monitor's callback: name, state, and the private bytes of SM_MON.
    pub(crate) fn monitor_calls(
        &self,
        restarted: Option<(&[u8], u32)>,
        xid: impl Fn() -> u32,
    ) -> Vec<(IpAddr, ReadyCall)> {
        let concerned = self
            .monitors
            .iter()
            .filter(|m| restarted.is_none_or(|(name, _)| m.host == name));
        let call = |m: &Monitor| {
            let mut message = Vec::with_capacity(128);
            rpc::put_call(&mut message, xid(), m.program, m.version, m.procedure);
            message.put_opaque(&m.host);
            message.put_u32(restarted.map_or(self.state, |(_, state)| state));
            message.put_fixed(&m.private);
            (
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                (m.program, m.version, message),
            )
        };
        concerned.map(call).collect()
    }
}

/// Whether two monitors are the same request, with private bytes of its own.
fn same(a: &Monitor, b: &Monitor) -> bool {
    a.host == b.host && a.program == b.program && a.procedure == b.procedure
}
