//! The state of the service: its clients, what is recorded of them, and what they wait for.

use super::blocked::Blocked;
use super::calls::Callbacks;
use super::client::{Caller, Client, IN_USE, Record, Registry, SERVICE};
use super::offload::Offloads;
use super::persistent::Before;
use super::protect::Principal;
use super::pseudo::Pseudo;
use super::recalled::Recalled;
use super::recorded::{self, MAX_ADDRESSES};
use super::referral::Referral;
use crate::idmap::IdMap;
use crate::rpc::outcome::PATIENCE_NFS4;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use weir_base::{Clock, Lsn, Rng, SipKey, Time};
use weir_conn::Patience;
use weir_vfs::claims::{Notice, Sink};
use weir_vfs::grace::{Bound, Claimant, RecordId, Records};
use weir_vfs::volume::DoneCall;
use weir_vfs::{Error, ExportTable, OpResult, Stop, Vfs};

/// What the service is made of.
pub(crate) struct Parts {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) records: Arc<Records>,
    pub(crate) grace: Duration,
    pub(crate) name: String,
    /// The calls and operations that were carried out before the start.
    pub(crate) done: Vec<DoneCall>,
}

/// Seconds between two times at which records are trimmed.
pub(super) const TRIM: u64 = 60;

/// A record of before the start, of a client that has not come back.
pub(super) struct Expected {
    pub(super) id: RecordId,
    pub(super) bound: Bound,
    pub(super) addresses: Vec<IpAddr>,
    /// A caller elsewhere was refused, and that was logged.
    pub(super) reported: bool,
}

/// The service. See the parent module.
pub(crate) struct Nfs4 {
    pub(super) vfs: Arc<Vfs>,
    pub(super) clock: Arc<dyn Clock>,
    pub(crate) registry: Registry,
    pub(super) records: Arc<Records>,
    /// Records of before the start, of clients that have not come back.
    pub(super) before: Mutex<HashMap<Box<[u8]>, Expected>>,
    /// When records are trimmed next, in seconds on the monotonic clock.
    pub(super) next_trim: AtomicU64,
    /// What was carried out before the start.
    pub(super) before_start: Before,
    /// Distinguishes owners of opens and locks in the table of claims.
    pub(super) owners: SipKey,
    /// `so_major_id` and the server's scope: the same over restarts, another for another server.
    pub(super) identity: Box<[u8]>,
    /// The pseudo file system of the newest table of exports, with the table's generation.
    pub(super) pseudo: RwLock<(u64, Arc<Pseudo>)>,
    pub(crate) callbacks: Callbacks,
    pub(super) recalled: Recalled,
    pub(super) blocked: Blocked,
    pub(crate) offloads: Offloads,
    /// Names of users and groups, if clients may use them.
    pub(crate) idmap: OnceLock<IdMap>,
    /// Paths for which clients are to go to other servers.
    pub(crate) referrals: OnceLock<Vec<Arc<Referral>>>,
    /// Itself, for work in the background.
    pub(super) me: Weak<Nfs4>,
    /// When memory was short last, in seconds on the monotonic clock, from 1; 0: all may use all of their slots.
    pub(super) pressed: AtomicU64,
    pub(super) patience: Patience,
    pub(super) notices: Mutex<Vec<Notice>>,
    pub(super) any_notice: AtomicBool,
    /// Whether callers can be established by Kerberos.
    pub(crate) kerberos: AtomicBool,
}

impl Nfs4 {
    /// Starts the service: clients that had state before the start are expected.
    pub(crate) fn start(p: Parts) -> Arc<Nfs4> {
        let owners = p.vfs.derive_secret(b"nfs4 owners");
        let sessions = p.vfs.derive_secret(b"nfs4 sessions");
        let server = p.vfs.derive_secret(b"nfs4 server").hash128(&[]);
        let identity = format!("{}/{server:032x}", p.name);
        let budget = Arc::clone(p.vfs.claims.budget());
        let mut before = HashMap::new();
        for (id, record) in p.records.all(SERVICE) {
            match recorded::decode(&record, owners) {
                Some(known) => {
                    let expected = Expected {
                        id,
                        bound: known.bound,
                        addresses: known.addresses,
                        reported: false,
                    };
                    before.insert(known.name, expected);
                }
                None => tracing::warn!(?record, "cannot decode the record of an NFSv4 client"),
            }
        }
        let expected = before.iter().map(|(name, expected)| {
            let (service, name) = (SERVICE, name.as_ref().into());
            (Claimant { service, name }, expected.bound)
        });
        let now = p.clock.monotonic();
        p.vfs.grace.begin_bound(expected, now, p.grace);
        Arc::new_cyclic(|this: &Weak<Nfs4>| {
            let sink: Weak<dyn Sink> = this.clone();
            p.vfs.claims.attach(SERVICE, sink);
            Nfs4 {
                registry: Registry::new(budget, p.rng, move |owner| recorded::name(owners, owner)),
                vfs: p.vfs,
                clock: p.clock,
                records: p.records,
                before: Mutex::new(before),
                next_trim: AtomicU64::new(0),
                before_start: Before::new(sessions, &p.done, now),
                owners,
                identity: identity.into_bytes().into(),
                pseudo: RwLock::new((0, Arc::new(Pseudo::new(&ExportTable::default(), &[], 0)))),
                callbacks: Callbacks::default(),
                recalled: Recalled::default(),
                blocked: Blocked::default(),
                offloads: Offloads::default(),
                idmap: OnceLock::new(),
                referrals: OnceLock::new(),
                me: this.clone(),
                pressed: AtomicU64::new(0),
                patience: Patience::of(PATIENCE_NFS4),
                notices: Mutex::default(),
                any_notice: AtomicBool::new(false),
                kerberos: AtomicBool::new(false),
            }
        })
    }

    /// The client has nothing any more.
    pub(super) fn end(&self, client: &Client) {
        // A thread that enters a claim for it holds its states and has seen that it has not expired: what is released
        // behind them is all there will be.
        client.expire();
        // Pins are dropped where nothing is locked.
        let states = {
            let mut states = client.states.write();
            std::mem::replace(&mut *states, super::state::States::new(0, 0))
        };
        states.end();
        drop(states);
        self.forget_waiting(client);
        client.offloads.lock().clear();
        self.vfs
            .claims
            .release(std::slice::from_ref(&client.claims));
        if let Some(record) = client.record.lock().take() {
            self.records.change_some_time(record.id, None);
        }
        self.vfs.grace.finished(&client.claimant());
    }

    /// The client is gone; what it had in the table of claims is released with it.
    pub(super) fn forget_waiting(&self, client: &Client) {
        self.blocked.take(|w| w.client.id == client.id);
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The pseudo file system of a table of exports.
    pub(super) fn pseudo(&self, table: &ExportTable) -> Arc<Pseudo> {
        let generation = table.generation();
        {
            let cached = self.pseudo.read();
            if cached.0 == generation {
                return Arc::clone(&cached.1);
            }
        }
        // The time distinguishes it from those of before the start.
        let now = self.clock.now();
        let change = (now.secs as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.nanos.into());
        let referrals = self.referrals.get().map_or(&[][..], Vec::as_slice);
        let made = Arc::new(Pseudo::new(table, referrals, change));
        let mut cached = self.pseudo.write();
        if cached.0 < generation {
            *cached = (generation, Arc::clone(&made));
        }
        made
    }

    /// Removes from the records, once in a while, what clients have given up: after a restart nobody waits for it.
    pub(super) fn trim_records(&self) {
        let now = self.monotonic().as_secs();
        if now < self.next_trim.load(Ordering::Relaxed) {
            return;
        }
        self.next_trim.store(now + TRIM, Ordering::Relaxed);
        for client in self.registry.clients() {
            let states = client.states.read();
            let bound = states.bound();
            let mut record = client.record.lock();
            match record.as_mut() {
                Some(gone) if bound == Bound::NOWHERE => {
                    self.records.change_some_time(gone.id, None);
                    *record = None;
                }
                Some(trimmed) if trimmed.bound != bound => {
                    trimmed.bound = bound;
                    let encoded = recorded::encode(&client.recorded, &bound, &trimmed.addresses);
                    self.records.change_some_time(trimmed.id, Some(&encoded));
                }
                _ => {}
            }
        }
    }

    /// Records that a client may have such claims. A claim must not be acknowledged before the LSN is durable.
    pub(super) fn record(&self, client: &Client, bound: Bound) -> OpResult<Lsn> {
        let mut record = client.record.lock();
        if let Some(record) = record.as_ref().filter(|record| record.bound.covers(bound)) {
            return Ok(record.lsn);
        }
        if client.is_expired() {
            return Err(Error::Delay.into());
        }
        let name = client.recorded.as_ref();
        let mut before = self.before.lock();
        let known = record.as_ref();
        let known = known.map(|record| (record.id, record.bound, &record.addresses));
        let old = before
            .get(name)
            .map(|old| (old.id, old.bound, &old.addresses));
        let known = known.or(old);
        let bound = known.map_or(bound, |(_, had, _)| had.or(bound));
        let addresses = addresses(client, known.map_or(&[], |(_, _, had)| had));
        let encoded = || recorded::encode(name, &bound, &addresses);
        let made = match known {
            // It is durable since before the start.
            Some((id, had, at)) if had == bound && *at == addresses => Ok((id, Lsn(0))),
            Some((id, ..)) => self.records.replace(id, &encoded()).map(|lsn| (id, lsn)),
            None => self.records.add(SERVICE, &encoded()),
        };
        let (id, lsn) = made.map_err(|stop| Stop::of_record(&self.records, stop))?;
        before.remove(name);
        *record = Some(Record {
            id,
            lsn,
            bound,
            addresses,
        });
        Ok(lsn)
    }

    /// Records that a client has another address, if it is recorded.
    pub(super) fn record_addresses(&self, client: &Client) {
        if let Some(record) = client.record.lock().as_mut() {
            record.addresses = addresses(client, &record.addresses);
            let encoded = recorded::encode(&client.recorded, &record.bound, &record.addresses);
            self.records.change_some_time(record.id, Some(&encoded));
        }
    }

    /// Returns true if a name is that of a client that may claim again what it had, which is not at the caller's address. The
    /// first such caller is logged.
    pub(super) fn is_recorded_elsewhere(&self, owner: &[u8], caller: &Caller<'_>) -> bool {
        if !self.vfs.grace.runs(caller.now) || Principal::of(caller.credential).is_proven() {
            return false;
        }
        let mut before = self.before.lock();
        let Some(expected) = before.get_mut(&recorded::name(self.owners, owner)) else {
            return false;
        };
        let from = caller.conn.address();
        let elsewhere = !expected.addresses.is_empty() && !expected.addresses.contains(&from);
        if elsewhere && !std::mem::replace(&mut expected.reported, true) {
            let (name, at) = (String::from_utf8_lossy(owner), &expected.addresses);
            tracing::warn!(%from, ?name, ?at, "{}", IN_USE);
        }
        elsewhere
    }
}

/// The addresses to record of a client: its own, then those that were recorded.
pub(super) fn addresses(client: &Client, had: &[IpAddr]) -> Vec<IpAddr> {
    let mut all = client.reach.lock().addresses().to_vec();
    for address in had {
        if all.len() < MAX_ADDRESSES && !all.contains(address) {
            all.push(*address);
        }
    }
    all
}

impl Sink for Nfs4 {
    fn notify(&self, notice: Notice) {
        self.notices.lock().push(notice);
        self.any_notice.store(true, Ordering::Release);
    }
}
