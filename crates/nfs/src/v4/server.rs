//! State of the service: its clients, their records, and its queues.

use super::calls::Callbacks;
use super::client::{Client, Registry, SERVICE};
use super::client_records::Before;
use super::lock_waiters::BlockedLockQueue;
use super::offload::Offloads;
use super::persistent;
use super::pseudo::Pseudo;
use super::recall_history::RecallTimes;
use super::record_encoding;
use super::referral::{self, Referral};
use crate::idmap::IdMap;
use crate::rpc::outcome::PATIENCE_NFS4;
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use weir_base::{Clock, Rng, SipKey, Time};
use weir_conn::Patience;
use weir_vfs::claims::{Notice, Sink};
use weir_vfs::grace::{Claimant, FileKey, Records};
use weir_vfs::volume::DoneCall;
use weir_vfs::{ExportTable, Vfs};

/// Dependencies of the service.
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

/// The service. See the parent module.
pub(crate) struct Nfs4 {
    pub(super) vfs: Arc<Vfs>,
    pub(super) clock: Arc<dyn Clock>,
    pub(crate) registry: Registry,
    pub(super) records: Arc<Records>,
    /// Records from before the start, of clients that have not come back.
    pub(super) before: Mutex<Before>,
    /// Number of records of files, besides those of clients.
    pub(super) file_records: AtomicUsize,
    /// Time at which records are trimmed next, in seconds on the monotonic clock.
    pub(super) next_trim: AtomicU64,
    /// Operations that were carried out before the start.
    pub(super) before_start: persistent::Before,
    /// Key of the hashes that identify owners of opens and locks in the table of claims.
    pub(super) owners: SipKey,
    /// `so_major_id` and the server's scope: constant over restarts, and unique to the server.
    pub(super) identity: Box<[u8]>,
    /// The pseudo file system of the newest table of exports and directory of the cluster, with
    /// their generations.
    pub(super) pseudo: RwLock<([u64; 2], Arc<Pseudo>)>,
    pub(crate) callbacks: Callbacks,
    pub(super) recalled: RecallTimes,
    pub(super) blocked: BlockedLockQueue,
    pub(crate) offloads: Offloads,
    /// Maps names of users and groups, if clients may use names.
    pub(crate) idmap: OnceLock<IdMap>,
    /// Paths for which clients are referred to other servers.
    pub(crate) referrals: OnceLock<Vec<Arc<Referral>>>,
    /// The service itself, for work in the background.
    pub(super) me: Weak<Nfs4>,
    /// Time of the last shortage of memory, in seconds on the monotonic clock, at least 1. It is 0
    /// while clients may use all of their slots.
    pub(super) pressed: AtomicU64,
    pub(super) patience: Patience,
    pub(super) notices: Mutex<Vec<Notice>>,
    pub(super) any_notice: AtomicBool,
    /// True if callers can be established by Kerberos.
    pub(crate) kerberos: AtomicBool,
}

impl Nfs4 {
    /// Starts the service, which expects the clients that had state before the start.
    pub(crate) fn start(p: Parts) -> Arc<Nfs4> {
        let owners = p.vfs.derive_secret(b"nfs4 owners");
        let sessions = p.vfs.derive_secret(b"nfs4 sessions");
        let server = p.vfs.derive_secret(b"nfs4 server").hash128(&[]);
        let identity = format!("{}/{server:032x}", p.name);
        let budget = Arc::clone(p.vfs.claims.budget());
        let (recorded, gone) = Before::load(p.records.list_records(SERVICE), owners);
        // Their clients were removed, and they were not yet.
        gone.iter()
            .for_each(|id| p.records.change_some_time(*id, None));
        let expected = recorded.had().map(|(name, had)| {
            let (service, name) = (SERVICE, name.into());
            (Claimant { service, name }, had)
        });
        let now = p.clock.monotonic();
        p.vfs.grace.begin_bound(expected, now, p.grace);
        let listed: HashSet<FileKey> = recorded
            .had()
            .flat_map(|(_, had)| had.files.into_keys())
            .collect();
        let is_listed = |file| listed.contains(&file);
        let before_start = persistent::Before::new(sessions, &p.done, now, is_listed);
        Arc::new_cyclic(|this: &Weak<Nfs4>| {
            let sink: Weak<dyn Sink> = this.clone();
            p.vfs.claims.attach(SERVICE, sink);
            Nfs4 {
                registry: Registry::new(budget, p.rng, move |owner| {
                    record_encoding::name(owners, owner)
                }),
                vfs: p.vfs,
                clock: p.clock,
                records: p.records,
                file_records: AtomicUsize::new(recorded.file_records()),
                before: Mutex::new(recorded),
                next_trim: AtomicU64::new(0),
                before_start,
                owners,
                identity: identity.into_bytes().into(),
                pseudo: RwLock::new((
                    [0; 2],
                    Arc::new(Pseudo::new(&ExportTable::default(), &[], 0)),
                )),
                callbacks: Callbacks::default(),
                recalled: RecallTimes::default(),
                blocked: BlockedLockQueue::default(),
                offloads: Offloads::default(),
                idmap: OnceLock::new(),
                referrals: OnceLock::new(),
                me: this.clone(),
                pressed: AtomicU64::new(0),
                patience: Patience::new(PATIENCE_NFS4),
                notices: Mutex::default(),
                any_notice: AtomicBool::new(false),
                kerberos: AtomicBool::new(false),
            }
        })
    }

    /// Ends a client: releases all its state, claims and records.
    pub(super) fn end(&self, client: &Client) {
        // A thread that adds a claim holds the lock on the states and has seen that the client has
        // not expired. So nothing is added after the states have been taken.
        client.expire();
        // Pins are dropped without any lock.
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
            self.forget(&record.kept);
        }
        self.vfs.grace.finished(&client.claimant());
    }

    /// Removes the client's blocked lock requests.
    pub(super) fn forget_waiting(&self, client: &Client) {
        self.blocked.take(|w| w.client.id == client.id);
    }

    pub(super) fn current_time(&self) -> Time {
        self.clock.current_time()
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Returns the pseudo file system of a table of exports.
    pub(super) fn pseudo(&self, table: &ExportTable) -> Arc<Pseudo> {
        let directory = self.vfs.directory();
        let generation = [table.generation(), directory.generation()];
        {
            let cached = self.pseudo.read();
            if cached.0 == generation {
                return Arc::clone(&cached.1);
            }
        }
        // The time distinguishes the change attribute from those before the start.
        let now = self.clock.current_time();
        let change = (now.secs as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.nanos.into());
        let mut referrals = self.referrals.get().cloned().unwrap_or_default();
        referrals.extend(referral::of_directory(&directory).map(Arc::new));
        let made = Arc::new(Pseudo::new(table, &referrals, change));
        let mut cached = self.pseudo.write();
        if cached.0[0] <= generation[0] && cached.0[1] <= generation[1] {
            *cached = (generation, Arc::clone(&made));
        }
        made
    }
}

impl Sink for Nfs4 {
    fn notify(&self, notice: Notice) {
        self.notices.lock().push(notice);
        self.any_notice.store(true, Ordering::Release);
    }
}
