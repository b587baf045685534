//! The hosts to notify when the server restarts: client hosts that hold locks, and
//! the lock managers of this machine that asked the status monitor. Recorded
//! durably at every change, since the record is needed exactly when no host could sign off: each is a record of the
//! aggregate (`weir_vfs::grace`, `recorded`).

use super::SERVICE;
use super::recorded::{self, Entry, MAX_NAME, Monitor};
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
use weir_vfs::grace::{Bound, Claimant, FileKey, Had, Kinds, RecordId, Records};
use weir_vfs::volume::{self, FsError};
use weir_vfs::{FileId, OpResult, Stop};

/// SM_NOTIFY of the status monitor.
const SM_NOTIFY: u32 = 6;
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
    /// It may hold share reservations, too.
    shares: bool,
    record: RecordId,
    /// When that is durable, the host is recorded as it is here.
    lsn: Lsn,
}

/// A host that held locks when the server stopped.
struct Recovering {
    locals: Locals,
    shares: bool,
    /// It held something in listed files alone.
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
    /// The record of it; `None` if it could not be made.
    state_record: Option<RecordId>,
    hosts: HashMap<IpAddr, Vec<Host>>,
    /// Addresses at which there is a host of this name.
    addresses: HashMap<Arc<[u8]>, Vec<IpAddr>>,
    count: usize,
    memory: Option<Reservation>,
    monitors: Vec<(Monitor, RecordId)>,
    /// By address and name.
    recovering: BTreeMap<(IpAddr, Arc<[u8]>), Recovering>,
    /// Claims of hosts in listed files when the server stopped, by address.
    files: BTreeMap<IpAddr, Had>,
    /// The records of that.
    file_records: Vec<RecordId>,
}

/// The claimant that reclaims what hosts at an address had: they need not call from the same port, or under the
/// same name.
pub(crate) fn claimant(addr: IpAddr) -> Claimant {
    Claimant {
        service: SERVICE,
        name: addr.to_string().into_bytes().into(),
    }
}

/// Kinds of claims that a host may have.
fn kinds(shares: bool) -> Kinds {
    Kinds::RANGES.or(Kinds::OPENS.or(Kinds::SHARES).when(shares))
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
        for (id, record) in records.all(SERVICE) {
            match recorded::decode(&record) {
                Some(entry) => h.take(id, entry),
                None => tracing::warn!(?record, "record of a lock holder not understood"),
            }
        }
        h.state = match h.state {
            0 => 1,
            old => (old | 1).wrapping_add(2),
        };
        match records.set_at_start(SERVICE, h.state_record, &recorded::state(h.state)) {
            Ok(id) => h.state_record = Some(id),
            Err(error) => {
                tracing::error!(%error, "cannot record this start; clients may miss a later one");
            }
        }
        h
    }

    /// Takes a record of before the start.
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
                let recovering = Recovering {
                    locals: locals.into(),
                    shares,
                    listed,
                    record,
                    lsn: Lsn(0),
                };
                self.recovering.insert((address, name.into()), recovering);
            }
            Entry::Files(address, files) => {
                let whole = Bound::NOWHERE;
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
            let recovering = Recovering {
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
            let record = recorded::state(self.state);
            self.records.change_some_time(id, Some(&record));
        }
    }

    /// NSM's state number of this start.
    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// The addresses of the hosts that held locks when the server stopped, each with the addresses of ours that it used.
    pub(crate) fn recovering(&self) -> impl Iterator<Item = (IpAddr, &[IpAddr])> {
        let all = self.recovering.iter();
        all.map(|((addr, _), r)| (*addr, &*r.locals))
    }

    /// Returns the claimants of what hosts held when the server stopped, each with what that may be.
    pub(crate) fn expected(&self) -> impl Iterator<Item = (Claimant, Had)> {
        let all = self.recovering.iter();
        all.map(|((addr, _), r)| {
            let had = match r.listed {
                true => self.files.get(addr).cloned().unwrap_or_default(),
                false => Bound::anywhere(kinds(r.shares)).into(),
            };
            (claimant(*addr), had)
        })
    }

    /// Lists the files in which hosts have something, as `files` knows, so that after the next
    /// start nothing else is waited for. What cannot be written now stays as it is recorded. To be
    /// called when no client is served any more, and none may claim again what it had before this
    /// start.
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
            let had = had.chunks(recorded::MAX_FILES);
            records += had.len();
            if records > MAX_FILE_RECORDS {
                return;
            }
            for files in had {
                let record = recorded::files(address, files);
                match self.records.add(SERVICE, &record) {
                    Ok((id, _)) => self.file_records.push(id),
                    Err(_) => return,
                }
            }
            for host in at {
                let record = recorded::listed(address, &host.name, &host.locals, host.shares);
                if self.records.replace(host.record, &record).is_err() {
                    return;
                }
            }
        }
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

    /// Records a host, if it is not recorded with this address of ours, or not with share reservations, which
    /// it wants if `shares`. It may be given locks when the LSN is durable.
    ///
    /// # Errors
    /// There are too many, or the aggregate takes no changes; it waits for room in the log.
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
                let record = recorded::host(addr, name, &locals, shares);
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

    /// Records a host that is not known since the start; the record of before is continued if there is one.
    fn record_new(
        &mut self,
        addr: IpAddr,
        name: &Arc<[u8]>,
        local: IpAddr,
        shares: bool,
    ) -> Result<Recovering, volume::Stop> {
        let key = (addr, Arc::clone(name));
        let Some(old) = self.recovering.get(&key) else {
            let record = recorded::host(addr, name, &[local], shares);
            let (record, lsn) = self.records.add(SERVICE, &record)?;
            return Ok(Recovering {
                locals: SmallVec::from_slice(&[local]),
                shares,
                listed: false,
                record,
                lsn,
            });
        };
        let mut new = Recovering {
            locals: old.locals.clone(),
            shares: shares || old.shares,
            listed: false,
            ..*old
        };
        if remember(&mut new.locals, local) || new.shares != old.shares || old.listed {
            let changed = recorded::host(addr, name, &new.locals, new.shares);
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
            // It is not monitored (NM_LOCK).
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

    /// Forgets the hosts that have nothing, as `has` knows, and have asked for nothing since
    /// `since`, and those of before the restart that have not come back.
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
        // No host that has not come back relies on them.
        self.files.clear();
        for record in std::mem::take(&mut self.file_records) {
            self.records.change_some_time(record, None);
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

    /// SM_MON: a lock manager of this machine wants to be notified of the restart of a host. False if that cannot be recorded
    /// now.
    pub(crate) fn monitor(&mut self, m: Monitor) -> bool {
        let old = self.monitors.iter().position(|(old, _)| same(old, &m));
        if m.host.len() > MAX_NAME || (old.is_none() && self.monitors.len() >= MAX_MONITORS) {
            return false;
        }
        let record = recorded::monitor(&m);
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

    /// Whether a lock manager of this machine asked for a host.
    pub(crate) fn monitored(&self, host: &[u8]) -> bool {
        self.monitors.iter().any(|(m, _)| m.host == host)
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

/// Whether two monitors are the same request, with private bytes of its own.
fn same(a: &Monitor, b: &Monitor) -> bool {
    a.host == b.host && a.program == b.program && a.procedure == b.procedure
}
