//! SnapMirror on a node: the threads that move bytes for relationships.
//!
//! Relationships are rows of the catalog, and [`weir_relations::manager`] decides what is to be
//! done for them; this carries it out. One thread (`weir-mirror`) lets time pass for the manager,
//! writes into the rows what has happened, and takes the manager's commands. Each transfer has a
//! thread of its own, which is its destination's side ([`job`]): it asks the source for its
//! snapshots, plans, receives, and deletes what is no longer kept. The source's side ([`serve`]) is
//! a thread, too, on whichever node the source is: over TLS ([`peers`], [`listen`]) or over a pipe
//! within this node, with the same frames ([`link`]) and under the same throttles ([`limiter`]).
//! Threads, because both sides wait for disks.
//!
//! No lock is held while the catalog, a volume or a peer is waited for.

mod files;
mod job;
mod limiter;
mod link;
mod listen;
mod metrics;
mod offers;
mod pairing;
mod peers;
mod serve;
mod state;
#[cfg(feature = "testing")]
mod testing;

use std::net::TcpListener;
use std::path::{Path as Folder, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use weir_base::small_file;

use anyhow::{Context, Result, anyhow};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::watch;
use weir_base::{Clock, Rng};
use weir_control::Control;
use weir_relations::manager::{
    Command, Entry, Event, Job, Preconditions, Reason, Refused, Relations, Side, Step, Take,
};
use weir_relations::model::{Copied, MirrorState, Path};
use weir_relations::plan;
use weir_relations::retention::Held;
use weir_volume::{Engine, FsError};

use limiter::Limiter;
use offers::Offers;
pub use offers::PairingError;
use peers::Peers;
pub use state::Replication;
use state::{AGAIN, Written};
use weir_node::counters::Counters;

/// Files of the data folder in which versions before the first release kept relationships and
/// peers.
pub const EARLIER: [&str; 2] = ["replication.json", "peers.json"];
/// This node's identity among nodes.
const NODE: &str = "node-id";
/// The manager reads the clock so often.
const TICK: Duration = Duration::from_millis(500);
/// How long a stop waits for transfers to end their sentence.
const STOP: Duration = Duration::from_secs(20);

/// What [`Replication::start`] is given.
pub struct Parts {
    /// The data folder, with this node's key and certificate.
    pub data: PathBuf,
    /// The engine that holds the volumes.
    pub engine: Arc<Engine>,
    /// What they are called.
    pub control: Arc<Control>,
    /// The runtime that the control plane runs on.
    pub runtime: Handle,
    /// The clock of transfers and throttles.
    pub clock: Arc<dyn Clock>,
    /// Source of random numbers.
    pub rng: Arc<dyn Rng>,
    /// What users call this node.
    pub name: String,
    /// The socket on which peers connect, if peers are served.
    pub listener: Option<TcpListener>,
    /// What the data path counts.
    pub counters: Counters,
}

impl Replication {
    /// Goes on with what the rows say.
    ///
    /// # Errors
    /// Files that cannot be read or made, or that are of an earlier form.
    pub fn start(parts: Parts) -> Result<Arc<Replication>> {
        let earlier = EARLIER.map(|name| parts.data.join(name));
        if let Some(file) = earlier.iter().find(|file| file.exists()) {
            return Err(anyhow!(
                "{}: relationships and peers of a version before the first release. They are rows of the catalog now and \
                 are not taken over. Move the file away, pair the nodes again (`cluster peer create`), and make each \
                 relationship again with `snapmirror resync -source-path … -destination-path …`, which goes on from the \
                 newest common snapshot",
                file.display()
            ));
        }
        let node = node(&parts.data, &*parts.rng)?;
        let listening = match &parts.listener {
            Some(listener) => Some(listener.local_addr()?),
            None => None,
        };
        let peers = Peers::open(&parts.data, Arc::clone(&parts.control))?;
        let service = Arc::new(Replication {
            manager: Mutex::default(),
            changed: Condvar::new(),
            inbox: Mutex::default(),
            wakeup: Condvar::new(),
            incoming: Limiter::new(Arc::clone(&parts.clock)),
            outgoing: Limiter::new(Arc::clone(&parts.clock)),
            engine: parts.engine,
            control: parts.control,
            runtime: parts.runtime,
            clock: parts.clock,
            rng: parts.rng,
            jobs: Mutex::default(),
            peers,
            offers: Offers::default(),
            name: parts.name,
            node,
            listening,
            counters: parts.counters,
            moved: Mutex::default(),
            stop: watch::Sender::new(false),
            stopping: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            #[cfg(feature = "testing")]
            forger: Mutex::default(),
        });
        service.catch_up()?;
        if let Some(listener) = parts.listener {
            listen::start(&service, listener)?;
        }
        service.spawn("weir-mirror", Replication::drive)?;
        Ok(service)
    }

    /// Ends transfers where they are; they go on with the next start. Nothing reads or writes
    /// volumes for replication when this returns.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.send_replace(true);
        for job in self.jobs.lock().values() {
            job.send_replace(true);
        }
        self.wake();
        let until = self.clock.monotonic() + STOP;
        while self.threads.load(Ordering::Acquire) > 0 && self.clock.monotonic() < until {
            let mut manager = self.manager.lock();
            self.changed.notify_all();
            self.changed
                .wait_for(&mut manager, Duration::from_millis(20));
        }
    }

    fn drive(self: &Arc<Self>) {
        let mut ticked = None;
        while !self.stopping() {
            let now = self.now();
            let posted = std::mem::take(&mut self.inbox.lock().steps);
            let (mut steps, waiting): (Vec<Step>, Vec<Written>) = posted.into_iter().unzip();
            let tick = u64::try_from(TICK.as_millis()).unwrap_or(u64::MAX);
            if ticked.is_none_or(|at| now.ms >= at + tick) {
                ticked = Some(now.ms);
                let view = self.control.view();
                steps.extend(self.manager.lock().due(&view.relations, now));
            }
            if !steps.is_empty() && !self.settle(&steps) {
                return;
            }
            drop(waiting);
            let view = self.control.view();
            let commands = self.manager.lock().reconcile(&view.relations, now);
            for command in commands {
                self.carry_out(command);
            }
            // Under the lock: a thread that has checked before waits by now.
            drop(self.manager.lock());
            self.changed.notify_all();
            let mut inbox = self.inbox.lock();
            if inbox.steps.is_empty() && !inbox.woken {
                self.wakeup.wait_for(&mut inbox, TICK);
            }
            inbox.woken = false;
        }
    }

    /// Writes into the rows what has happened, however often the catalog fails meanwhile; `false`:
    /// the server stops.
    fn settle(&self, steps: &[Step]) -> bool {
        loop {
            let written = self.runtime.block_on(self.control.settle(steps));
            let Err(why) = written else { return true };
            if self.stopping() {
                return false;
            }
            tracing::warn!("cannot commit transfer state to the catalog: {why}; retrying");
            let mut inbox = self.inbox.lock();
            self.wakeup.wait_for(&mut inbox, AGAIN);
        }
    }

    fn carry_out(self: &Arc<Self>, command: Command) {
        match command {
            Command::Start(job) => self.begin(*job),
            Command::Abort { id } => {
                if let Some(job) = self.jobs.lock().get(&id) {
                    job.send_replace(true);
                }
            }
            Command::Throttle { incoming, outgoing } => {
                self.incoming.set_global(incoming);
                self.outgoing.set_global(outgoing);
            }
            Command::Take(take) => {
                let taken = self.spawn("weir-rule", move |service| service.take(&take));
                if let Err(error) = taken {
                    tracing::warn!(%error, "a scheduled snapshot of a copy waits");
                }
            }
            Command::Forget {
                relationship,
                source,
            } => {
                let forgotten = self.spawn("weir-release", move |service| {
                    service.forget(&relationship, &source);
                    service.happened(Step::Forgotten(relationship));
                });
                if let Err(error) = forgotten {
                    tracing::warn!(%error, "snapshots of a released relationship stay");
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, job: Job) {
        let id = job.id;
        let (abort, aborted) = watch::channel(false);
        self.jobs.lock().insert(id, abort);
        let begun = self.spawn("weir-transfer", move |service| {
            let outcome = job::run(service, &job, aborted);
            if outcome.is_err() && !service.stopping() {
                let rows = service.rows();
                let entry = rows.named(&job.relationship);
                let steps = entry.map_or_else(Vec::new, |entry| service.unsaid(&rows, entry));
                steps.into_iter().for_each(|step| service.happened(step));
            }
            service.jobs.lock().remove(&id);
            service.event(id, Event::Ended(outcome));
        });
        if let Err(error) = begun {
            self.jobs.lock().remove(&id);
            let failure = weir_relations::manager::Failure::Retry(error.to_string());
            let ended = Event::Ended(Err(failure));
            if let Some(step) = self.manager.lock().event(id, ended, self.now()) {
                // This is the thread that writes it down.
                drop(self.post(step));
            }
        }
    }

    /// What a destination's readers see, where its row says something else: a crash, or an abort,
    /// came between a snapshot and what was to be written down of it.
    fn unsaid(&self, rows: &Relations, entry: &Entry) -> Vec<Step> {
        let (source, to) = (&entry.source, &entry.destination);
        let there = |path: &Path| {
            let named = self.local(&path.vserver, &path.volume).ok()?;
            self.engine_volume(&named.key).ok()
        };
        let seen = there(to).and_then(|volume| {
            let exported = volume.mirror()?.exported?;
            volume.snapshots().into_iter().find(|s| s.id == exported)
        });
        let Some(seen) = seen else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        let newest = entry.newest.as_ref().map(|newest| newest.id);
        let said = entry.restore || entry.state == MirrorState::Snapmirrored;
        if newest != Some(seen.identity) || !said {
            let copied = Copied {
                name: seen.name,
                taken: seen.created.secs,
                id: seen.identity,
            };
            steps.push(Step::Snapshot(entry.uuid.clone(), copied));
        }
        // The source keeps what the next transfer begins with.
        let known = rows.destination(&entry.uuid).filter(|k| !k.released);
        let other = known.is_some_and(|known| known.newest != Some(seen.identity));
        let has = || there(source).is_some_and(|v| v.snapshot_with(seen.identity).is_some());
        if source.cluster.is_empty() && !entry.restore && other && has() {
            steps.push(Step::Served {
                relationship: entry.uuid.clone(),
                source: source.clone(),
                destination: to.clone(),
                newest: seen.identity,
            });
        }
        steps
    }

    /// Writes into the rows, before anyone is served, what a crash has kept from them, and takes
    /// away what it has left of restored files.
    fn catch_up(&self) -> Result<()> {
        let rows = self.rows();
        for entry in rows.entries(0).filter(|entry| !entry.files.is_empty()) {
            // Those that have come in full are renamed yet.
            let pending = entry.pending.as_ref();
            if pending.is_some_and(|p| p.arrived && !p.aborting) {
                continue;
            }
            let to = &entry.destination;
            if let Ok(volume) = self.local(&to.vserver, &to.volume) {
                files::drop_arriving(self, &volume.key, &entry.uuid, &entry.files);
            }
        }
        let all = rows.entries(0);
        let steps: Vec<Step> = all.flat_map(|entry| self.unsaid(&rows, entry)).collect();
        match steps.is_empty() {
            true => Ok(()),
            false => Ok(self.runtime.block_on(self.control.settle(&steps))?),
        }
    }

    /// Makes the snapshot that a rule's schedule wants of a destination, and deletes those that the
    /// rule does not keep. While a transfer has brought part of a snapshot it waits for another
    /// minute.
    fn take(&self, take: &Take) {
        let (rule, to) = (&take.rule, &take.destination);
        let Ok(named) = self.local(&to.vserver, &to.volume) else {
            return;
        };
        let Ok(volume) = self.engine_volume(&named.key) else {
            return;
        };
        if named.assigned.offline {
            return;
        }
        let of_rule = |volume: &weir_volume::Volume| {
            let mut all = volume.snapshots();
            all.retain(|s| s.label == rule.label);
            all
        };
        if rule.preserve && of_rule(&volume).len() >= rule.keep as usize {
            tracing::warn!(destination = %to, label = %rule.label, "no snapshot is made: the rule preserves as many as it keeps");
        } else {
            match volume.snapshot_take_of_copy(&take.name, &rule.label, self.clock.now()) {
                Ok(_) | Err(FsError::Exists) => {}
                Err(FsError::Busy) => return,
                Err(error) => {
                    tracing::warn!(destination = %to, label = %rule.label, %error, "a scheduled snapshot was not made");
                }
            }
        }
        let needed = self.rows().needed(to);
        let all = of_rule(&volume);
        // Saturates: there may be fewer than are to be kept.
        let surplus = match rule.preserve {
            true => 0,
            false => all.len().saturating_sub(rule.keep as usize),
        };
        let oldest = all.iter().take(surplus);
        for snapshot in oldest.filter(|s| !needed.contains(&s.identity)) {
            if let Err(error) = volume.snapshot_delete(&snapshot.name) {
                tracing::debug!(%error, snapshot = %snapshot.name, "it stays for now");
            }
        }
        self.runtime
            .block_on(self.control.adopt_snapshots(&named.key));
        if !self.stopping() {
            self.happened(Step::Ruled {
                relationship: take.relationship.clone(),
                label: rule.label.clone(),
                at: take.at,
            });
        }
    }

    /// Deletes what a released relationship kept of its source.
    fn forget(&self, relationship: &str, source: &Path) {
        let Ok(named) = self.local(&source.vserver, &source.volume) else {
            return;
        };
        let Ok(volume) = self.engine_volume(&named.key) else {
            return;
        };
        let prefix = plan::prefix(relationship);
        let needed = self.rows().needed(source);
        for snapshot in volume.snapshots() {
            if snapshot.name.starts_with(&prefix) && !needed.contains(&snapshot.identity) {
                if let Err(error) = volume.snapshot_delete(&snapshot.name) {
                    tracing::warn!(%error, snapshot = %snapshot.name, "a released snapshot stays");
                }
            }
        }
        self.runtime
            .block_on(self.control.adopt_snapshots(&named.key));
    }

    /// Returns the facts about both ends that a verb may need. May ask a peer, which takes up to
    /// seconds.
    pub fn preconditions(
        self: &Arc<Self>,
        source: Option<&Path>,
        destination: &Path,
    ) -> Preconditions {
        let side = |told: Result<plan::Volume, Refused>| told.map(side).map_err(|r| r.text);
        Preconditions {
            unique: u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64()),
            found: None,
            source: match source {
                None => Err("it was not asked for".to_owned()),
                Some(path) => side(self.look(path)),
            },
            destination: side(self.describe(&destination.vserver, &destination.volume)),
            synchronous: false,
            running: false,
            fingerprint: String::new(),
        }
    }

    /// The description of a volume, of this node or of a peer.
    fn look(self: &Arc<Self>, path: &Path) -> Result<plan::Volume, Refused> {
        match path.cluster.is_empty() {
            true => self.describe(&path.vserver, &path.volume),
            false => job::ask_peer(self, path),
        }
    }

    /// Finds the source that a user means: at the peer that is named, here, or else at the one peer
    /// that has it.
    ///
    /// # Errors
    /// No node has it, or several have.
    pub fn resolve(self: &Arc<Self>, shown: &Path) -> Result<Path, Refused> {
        if !shown.cluster.is_empty() {
            return match self.peers.get(&shown.cluster) {
                Some(_) => Ok(shown.clone()),
                None => Err(Refused::new(
                    Reason::NotFound,
                    format!("Cluster \"{}\" is not peered with this one.", shown.cluster),
                )),
            };
        }
        let here = match self.local(&shown.vserver, &shown.volume) {
            Ok(_) => return Ok(shown.clone()),
            Err(why) if why.reason != Reason::NotFound => return Err(why),
            Err(why) => why,
        };
        let mut found = Vec::new();
        let mut silent = Vec::new();
        for peer in self.control.view().relations.peers() {
            if peer.address.is_none() {
                continue;
            }
            let path = Path {
                cluster: peer.name.clone(),
                ..shown.clone()
            };
            match self.look(&path) {
                Ok(_) => found.push(path),
                Err(why) if why.reason == Reason::NotFound => {}
                Err(why) => silent.push(format!("peer \"{}\": {}", peer.name, why.text)),
            }
        }
        match (found.pop(), found.is_empty(), silent.is_empty()) {
            (Some(path), true, _) => Ok(path),
            (Some(_), false, _) => Err(Refused::new(
                Reason::Invalid,
                format!("More than one peer has {shown}; name one: cluster://svm/volume."),
            )),
            (None, _, true) => Err(Refused::new(
                Reason::NotFound,
                format!("Failed to find source volume \"{shown}\": {here}"),
            )),
            (None, _, false) => Err(Refused::new(
                Reason::Failed,
                format!(
                    "Failed to find source volume \"{shown}\" on this cluster, and not all peers answer: {}",
                    silent.join("; ")
                ),
            )),
        }
    }
}

fn side(volume: plan::Volume) -> Side {
    let held = |s: plan::Snapshot| Held {
        id: s.id,
        label: Some(s.label).filter(|label| !label.is_empty()),
        name: s.name,
    };
    Side {
        size: volume.size,
        data_protection: volume.data_protection,
        snapshots: volume.snapshots.into_iter().map(held).collect(),
        uuid: volume.uuid,
        above: volume.above,
    }
}

/// This node's identity; made at the first start.
fn node(folder: &Folder, rng: &dyn Rng) -> Result<[u8; 16]> {
    let path = folder.join(NODE);
    let stored = small_file::read(&path).with_context(|| path.display().to_string())?;
    if let Some(bytes) = stored {
        let id = <[u8; 16]>::try_from(bytes.as_slice());
        return id.map_err(|_| anyhow!("{} is damaged", path.display()));
    }
    let mut id = [0; 16];
    let (high, low) = id.split_at_mut(8);
    high.copy_from_slice(&rng.next_u64().to_le_bytes());
    low.copy_from_slice(&rng.next_u64().to_le_bytes());
    small_file::replace(folder, NODE, &id).with_context(|| path.display().to_string())?;
    Ok(id)
}
