//! Hosts to notify when the server restarts: client hosts that hold locks, and the lock managers of
//! this machine that registered with the status monitor. Every change is recorded durably, since
//! the record is needed when the server stops without warning. Each host is a record of the
//! aggregate (`weir_vfs::grace`, `recorded`).

use super::SERVICE;
use super::record_encoding::{self, Entry, MAX_NAME, Monitor};
use crate::rpc;
use crate::rpc::message::NSM_PROGRAM;
use crate::rpc::xdr::Put;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use weir_base::limits::protocol::{
    MAX_FILE_RECORDS, MAX_HOST_NAMES as MAX_NAMES, MAX_HOSTS, MAX_LOCALS, MAX_MONITORS,
};
use weir_base::{Budget, Lsn, Reservation};
use weir_vfs::claims::Client;
use weir_vfs::grace::{Claimant, FileKey, Had, Kinds, PossibleClaims, RecordId, Records};
use weir_vfs::volume::{self, FsError};
use weir_vfs::{FileId, OpResult, Stop};

/// SM_NOTIFY of the status monitor.
const SM_NOTIFY: u32 = 6;
/// Memory of one host besides its names, which are in its record as well, in bytes.
const ENTRY: usize = 640;

/// Addresses of this server that a host has called.
type Locals = SmallVec<[IpAddr; 1]>;

/// A client host that may hold locks.
struct Host {
    name: Arc<[u8]>,
    /// The server's addresses that it uses, the latest last.
    locals: Locals,
    /// Time of its last request for a lock, on the monotonic clock.
    asked: Duration,
    /// NSM state shown by its requests.
    state: u32,
    /// True if it may hold share reservations, too.
    shares: bool,
    record: RecordId,
    /// Once this LSN is durable, the record is that of this entry.
    lsn: Lsn,
}

/// A host that held locks when the server stopped.
struct RecoveringHost {
    locals: Locals,
    shares: bool,
    /// True if it held claims in listed files only.
    listed: bool,
    record: RecordId,
    /// The log record that makes `record` durable.
    lsn: Lsn,
}

/// A call ready to be sent: program, version, message.
pub(crate) type ReadyCall = (u32, u32, Vec<u8>);

pub(crate) struct Hosts {
    records: Arc<Records>,
    /// Odd; goes up by two at every start (X/Open XNFS, status monitor).
    state: u32,
    /// Record of `state`; `None` if it could not be written.
    state_record: Option<RecordId>,
    hosts: HashMap<IpAddr, Vec<Host>>,
    /// Addresses of the hosts of each name.
    addresses: HashMap<Arc<[u8]>, Vec<IpAddr>>,
    count: usize,
    memory: Option<Reservation>,
    monitors: Vec<(Monitor, RecordId)>,
    /// Hosts that have not come back since the restart, by address and name.
    recovering: BTreeMap<(IpAddr, Arc<[u8]>), RecoveringHost>,
    /// Claims of hosts in listed files when the server stopped, by address.
    files: BTreeMap<IpAddr, Had>,
    /// Records of `files`.
    file_records: Vec<RecordId>,
}

/// Returns the claimant that reclaims the claims of the hosts at an address. They need not call
/// from the same port, or under the same name.
pub(crate) fn claimant(addr: IpAddr) -> Claimant {
    Claimant {
        service: SERVICE,
        name: addr.to_string().into_bytes().into(),
    }
}

/// Returns the kinds of claims that a host may have.
fn kinds(shares: bool) -> Kinds {
    Kinds::RANGES.or(Kinds::OPENS.or(Kinds::SHARES).when(shares))
}

/// Returns the call that notifies a host that `name` has reached `state` (`stat_chge`, SM_NOTIFY).
pub(crate) fn notify_call(xid: u32, name: &str, state: u32) -> ReadyCall {
    let mut message = Vec::with_capacity(96);
    rpc::put_call(&mut message, xid, NSM_PROGRAM, 1, SM_NOTIFY);
    message.put_opaque(name.as_bytes());
    message.put_u32(state);
    (NSM_PROGRAM, 1, message)
}

/// Makes an address of the server the latest; returns false if it was known.
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
    pub(crate) fn load(records: Arc<Records>, budget: &Arc<Budget>) -> Hosts {
        let mut h = Hosts {
            records: Arc::clone(&records),
            state: 0,
            state_record: None,
            hosts: HashMap::new(),
            addresses: HashMap::new(),
            count: 0,
            memory: budget.try_reserve(0),
            monitors: Vec::new(),
            recovering: BTreeMap::new(),
            files: BTreeMap::new(),
            file_records: Vec::new(),
        };
        for (id, record) in records.list_records(SERVICE) {
            match record_encoding::decode(&record) {
                Some(entry) => h.take(id, entry),
                None => tracing::warn!(?record, "record of a lock holder not understood"),
            }
        }
        h.state = match h.state {
            0 => 1,
            old => (old | 1).wrapping_add(2),
        };
        match records.set_at_start(SERVICE, h.state_record, &record_encoding::state(h.state)) {
            Ok(id) => h.state_record = Some(id),
            Err(error) => {
                tracing::error!(%error, "cannot record this start; clients may miss a later one");
            }
        }
        h
    }

    /// Adds a record from before the start.
    fn take(&mut self, record: RecordId, entry: Entry) {
        match entry {
            Entry::State(state) => (self.state, self.state_record) = (state, Some(record)),
            Entry::Host {
                address,
                name,
                locals,
                shares,
                listed,
            } => {
                let recovering = RecoveringHost {
                    locals: locals.into(),
                    shares,
                    listed,
                    record,
                    lsn: Lsn(0),
                };
                self.recovering.insert((address, name.into()), recovering);
            }
            Entry::Files(address, files) => {
                let whole = PossibleClaims::NOWHERE;
                self.files
                    .entry(address)
                    .or_default()
                    .merge(Had { whole, files });
                self.file_records.push(record);
            }
            Entry::Monitor(monitor) => self.monitors.push((monitor, record)),
        }
    }

    /// Forgets the holders of locks as a restart would, and keeps the hosts that must be notified.
    pub(crate) fn restart(&mut self) {
        self.state = self.state.wrapping_add(2);
        let old = self
            .hosts
            .drain()
            .flat_map(|(addr, at)| at.into_iter().map(move |h| (addr, h)));
        self.recovering.extend(old.map(|(addr, h)| {
            let recovering = RecoveringHost {
                locals: h.locals,
                shares: h.shares,
                listed: false,
                record: h.record,
                lsn: h.lsn,
            };
            ((addr, h.name), recovering)
        }));
        self.addresses.clear();
        self.count = 0;
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(0);
        }
        if let Some(id) = self.state_record {
            let record = record_encoding::state(self.state);
            self.records.change_some_time(id, Some(&record));
        }
    }

    /// Returns NSM's state number of this start.
    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// Returns the addresses of the hosts that held locks when the server stopped, each with the
    /// server's addresses that it used.
    pub(crate) fn recovering(&self) -> impl Iterator<Item = (IpAddr, &[IpAddr])> {
        let all = self.recovering.iter();
        all.map(|((addr, _), r)| (*addr, &*r.locals))
    }

    /// Returns the claimants for the hosts that held something when the server stopped, each with
    /// its possible claims.
    pub(crate) fn expected(&self) -> impl Iterator<Item = (Claimant, Had)> {
        let all = self.recovering.iter();
        all.map(|((addr, _), r)| {
            let had = match r.listed {
                true => self.files.get(addr).cloned().unwrap_or_default(),
                false => PossibleClaims::anywhere(kinds(r.shares)).into(),
            };
            (claimant(*addr), had)
        })
    }

    /// Records the files in which each host has claims, as reported by `files`, so that the grace
    /// period after the next start waits for nothing else. On an error the remaining hosts stay
    /// recorded as they are. Call it once no client is served, and none may still reclaim what it
    /// had before this start.
    pub(crate) fn list(&mut self, files: impl Fn(&Client) -> Vec<FileId>) {
        let mut records = 0;
        for (&address, at) in &mut self.hosts {
            let mut had = BTreeMap::new();
            for host in &*at {
                let client = Client {
                    service: SERVICE,
                    address,
                    name: Arc::clone(&host.name),
                };
                for file in files(&client) {
                    let all: &mut Kinds = had.entry(FileKey::from(file)).or_default();
                    *all = all.or(kinds(host.shares));
                }
            }
            let had: Vec<_> = had.into_iter().collect();
            let had = had.chunks(record_encoding::MAX_FILES);
            records += had.len();
            if records > MAX_FILE_RECORDS {
                return;
            }
            for files in had {
                let record = record_encoding::files(address, files);
                match self.records.add(SERVICE, &record) {
                    Ok((id, _)) => self.file_records.push(id),
                    Err(_) => return,
                }
            }
            for host in at {
                let record =
                    record_encoding::listed(address, &host.name, &host.locals, host.shares);
                if self.records.replace(host.record, &record).is_err() {
                    return;
                }
            }
        }
    }

    fn get(&self, addr: IpAddr, name: &[u8]) -> Option<&Host> {
        self.hosts.get(&addr)?.iter().find(|h| *h.name == *name)
    }

    /// Returns the server's address that a client used last.
    pub(crate) fn local(&self, client: &Client) -> Option<IpAddr> {
        self.get(client.address, &client.name)?
            .locals
            .last()
            .copied()
    }

    /// Records a host, unless it is recorded with this address of the server, and with share
    /// reservations if `shares`. Once the returned LSN is durable, the host may be granted locks.
    ///
    /// # Errors
    /// There are too many hosts, or the aggregate takes no changes; suspends while the log has no
    /// room.
    pub(crate) fn add(
        &mut self,
        client: &Client,
        local: IpAddr,
        state: u32,
        now: Duration,
        shares: bool,
    ) -> OpResult<Lsn> {
        let added = self.try_add(client, local, state, now, shares);
        added.map_err(|stop| Stop::of_record(&self.records, stop))
    }

    fn try_add(
        &mut self,
        client: &Client,
        local: IpAddr,
        state: u32,
        now: Duration,
        shares: bool,
    ) -> Result<Lsn, volume::Stop> {
        let (addr, name) = (client.address, &client.name);
        let at = self.hosts.get_mut(&addr);
        if let Some(host) = at.and_then(|at| at.iter_mut().find(|h| h.name == *name)) {
            let mut locals = host.locals.clone();
            let shares = shares || host.shares;
            if remember(&mut locals, local) || shares != host.shares {
                let record = record_encoding::host(addr, name, &locals, shares);
                host.lsn = self.records.replace(host.record, &record)?;
            }
            (host.locals, host.asked, host.state) = (locals, now, state);
            host.shares = shares;
            return Ok(host.lsn);
        }
        let bytes = ENTRY + 3 * name.len();
        let here = self.hosts.get(&addr).map_or(0, Vec::len);
        let fits = self.count < MAX_HOSTS
            && here < MAX_NAMES
            && self.memory.as_mut().is_some_and(|m| m.grow(bytes));
        if !fits {
            return Err(FsError::NoSpace.into());
        }
        let recorded = match self.record_new(addr, name, local, shares) {
            Ok(recorded) => recorded,
            Err(stop) => {
                self.release_memory(bytes);
                return Err(stop);
            }
        };
        self.hosts.entry(addr).or_default().push(Host {
            name: Arc::clone(name),
            locals: recorded.locals,
            asked: now,
            state,
            shares: recorded.shares,
            record: recorded.record,
            lsn: recorded.lsn,
        });
        self.addresses
            .entry(Arc::clone(name))
            .or_default()
            .push(addr);
        self.count += 1;
        Ok(recorded.lsn)
    }

    /// Records a host that is not known since the start. Continues the record from before the start
    /// if there is one.
    fn record_new(
        &mut self,
        addr: IpAddr,
        name: &Arc<[u8]>,
        local: IpAddr,
        shares: bool,
    ) -> Result<RecoveringHost, volume::Stop> {
        let key = (addr, Arc::clone(name));
        let Some(old) = self.recovering.get(&key) else {
            let record = record_encoding::host(addr, name, &[local], shares);
            let (record, lsn) = self.records.add(SERVICE, &record)?;
            return Ok(RecoveringHost {
                locals: SmallVec::from_slice(&[local]),
                shares,
                listed: false,
                record,
                lsn,
            });
        };
        let mut new = RecoveringHost {
            locals: old.locals.clone(),
            shares: shares || old.shares,
            listed: false,
            ..*old
        };
        if remember(&mut new.locals, local) || new.shares != old.shares || old.listed {
            let changed = record_encoding::host(addr, name, &new.locals, new.shares);
            new.lsn = self.records.replace(new.record, &changed)?;
        }
        self.recovering.remove(&key);
        Ok(new)
    }

    fn release_memory(&mut self, bytes: usize) {
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(memory.bytes() - bytes);
        }
    }

    /// Removes a host and its record.
    fn forget(&mut self, addr: IpAddr, name: &[u8]) {
        let Some(at) = self.hosts.get_mut(&addr) else {
            // The host is not monitored (NM_LOCK).
            return;
        };
        let Some(index) = at.iter().position(|h| *h.name == *name) else {
            return;
        };
        let host = at.swap_remove(index);
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
        self.release_memory(ENTRY + 3 * name.len());
        self.records.change_some_time(host.record, None);
    }

    /// Forgets these hosts, which have restarted, and their records.
    pub(crate) fn remove(&mut self, gone: &[Client]) {
        for client in gone {
            self.forget(client.address, &client.name);
        }
    }

    /// Forgets the hosts that have no claims according to `has` and have requested none since
    /// `since`. Also forgets the hosts from before the restart that have not come back.
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
        self.remove(&idle);
        for gone in std::mem::take(&mut self.recovering).into_values() {
            self.records.change_some_time(gone.record, None);
        }
        // No host relies on the listed files any more.
        self.files.clear();
        for record in std::mem::take(&mut self.file_records) {
            self.records.change_some_time(record, None);
        }
    }

    /// Returns the names of the hosts at an address.
    pub(crate) fn names_at(&self, addr: IpAddr) -> Vec<Arc<[u8]>> {
        let at = self.hosts.get(&addr).into_iter().flatten();
        at.map(|h| Arc::clone(&h.name)).collect()
    }

    /// Returns the addresses of the hosts of a name.
    pub(crate) fn addresses_of(&self, name: &[u8]) -> &[IpAddr] {
        self.addresses.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the NSM state shown by a host's requests; 0 if it is unknown.
    pub(crate) fn state_of(&self, client: &Client) -> u32 {
        self.get(client.address, &client.name)
            .map_or(0, |h| h.state)
    }

    /// SM_MON: registers a lock manager of this machine to be notified of the restart of a host.
    /// Returns false if that cannot be recorded now.
    pub(crate) fn monitor(&mut self, m: Monitor) -> bool {
        let old = self.monitors.iter().position(|(old, _)| same(old, &m));
        if m.host.len() > MAX_NAME || (old.is_none() && self.monitors.len() >= MAX_MONITORS) {
            return false;
        }
        let record = record_encoding::monitor(&m);
        match old.and_then(|at| self.monitors.get_mut(at)) {
            Some(old) => {
                let done = self.records.replace(old.1, &record).is_ok();
                if done {
                    old.0 = m;
                }
                done
            }
            None => match self.records.add(SERVICE, &record) {
                Ok((id, _)) => {
                    self.monitors.push((m, id));
                    true
                }
                Err(_) => false,
            },
        }
    }

    /// SM_UNMON of one host, or SM_UNMON_ALL.
    pub(crate) fn unmonitor(&mut self, host: Option<&[u8]>, program: u32) {
        let records = &self.records;
        self.monitors.retain(|(m, record)| {
            let gone = m.program == program && host.is_none_or(|h| h == m.host);
            if gone {
                records.change_some_time(*record, None);
            }
            !gone
        });
    }

    /// Returns true if a lock manager of this machine monitors a host.
    pub(crate) fn monitored(&self, host: &[u8]) -> bool {
        self.monitors.iter().any(|(m, _)| m.host == host)
    }

    /// Returns the calls that notify the lock managers of this machine of the restart of a host
    /// (`None`: of this server). Their argument is that of the status monitor's callback: name,
    /// state, and the private bytes of SM_MON.
    pub(crate) fn monitor_calls(
        &self,
        restarted: Option<(&[u8], u32)>,
        xid: impl Fn() -> u32,
    ) -> Vec<(IpAddr, ReadyCall)> {
        let concerned = self
            .monitors
            .iter()
            .map(|(m, _)| m)
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

/// Returns true if two monitors are the same request; their private bytes may differ.
fn same(a: &Monitor, b: &Monitor) -> bool {
    a.host == b.host && a.program == b.program && a.procedure == b.procedure
}
