//! SnapMirror on a node: the threads that move bytes for relationships.
//!
//! Relationships are rows of the catalog. [`weir_relations::manager`] decides on actions for them,
//! and this crate carries these out. One thread (`weir-mirror`) reports the time to the manager,
//! writes events into the rows, and executes the manager's commands. Each transfer has its own
//! thread, which is its destination's side ([`job`]): it asks the source for its snapshots, plans,
//! receives, and deletes snapshots that are no longer kept. The source's side ([`serve`]) is a
//! thread too, on the node of the source. The two communicate over TLS ([`peers`], [`listen`]) or
//! over a pipe within this node, with the same frames ([`link`]) and under the same throttles
//! ([`limiter`]). Threads are used because both sides wait for disks.
//!
//! Moves of volumes between the aggregates of a cluster ([`moves`]) use the same connections and
//! frames: [`depart`] is their source, [`arrive`] their destination.
//!
//! No lock is held during a wait for the catalog, a volume or a peer.

mod arrive;
mod depart;
mod files;
mod job;
mod limiter;
mod link;
mod listen;
mod metrics;
mod moves;
mod offers;
mod pairing;
mod peers;
mod relocate;
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
    Command, Entry, Event, Job, Preconditions, Reason, Relations, Side, Step, Take, VerbRefusal,
};
use weir_relations::model::{CopiedSnapshot, MirrorState, Path};
use weir_relations::plan;
use weir_relations::retention::LabelledSnapshot;
use weir_volume::{Engine, FsError};

use limiter::Limiter;
use moves::Moves;
pub use moves::{MoveParts, MovePhase, MoveStatus};
use offers::Offers;
pub use offers::PairingError;
use peers::Peers;
pub use state::Replication;
use state::{AGAIN, CommitNotifier};
use weir_node::counters::Counters;

/// Files of the data folder in which versions before the first release stored relationships and
/// peers.
pub const EARLIER: [&str; 2] = ["replication.json", "peers.json"];
/// File with this node's identity among nodes.
const NODE: &str = "node-id";
/// Interval in which the manager reads the clock.
const TICK: Duration = Duration::from_millis(500);
/// Maximum wait of a stop for transfers to end.
const STOP: Duration = Duration::from_secs(20);

/// Parameters of [`Replication::start`].
pub struct Parts {
    /// The data folder, with this node's key and certificate.
    pub data: PathBuf,
    /// The engine that holds the volumes.
    pub engine: Arc<Engine>,
    /// The control plane, which knows the volumes' names.
    pub control: Arc<Control>,
    /// The runtime that the control plane runs on.
    pub runtime: Handle,
    /// The clock of transfers and throttles.
    pub clock: Arc<dyn Clock>,
    /// Source of random numbers.
    pub rng: Arc<dyn Rng>,
    /// Name of this node for its peers.
    pub name: String,
    /// Socket on which peers connect; `None` if peers are not served.
    pub listener: Option<TcpListener>,
    /// Counters of the data path.
    pub counters: Counters,
    /// Parts for moves of volumes between aggregates; `None` where none move.
    pub moves: Option<MoveParts>,
}

impl Replication {
    /// Starts the service, and resumes the work that is pending in the rows.
    ///
    /// # Errors
    /// Files cannot be read or created, or have the form of an earlier version.
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
        let cluster = parts.moves.as_ref().map(|moves| Arc::clone(&moves.vfs));
        let peers = Peers::open(&parts.data, Arc::clone(&parts.control), cluster)?;
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
            moves: parts.moves.map(Moves::new),
            moved: Mutex::default(),
            stop: watch::Sender::new(false),
            stopping: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            #[cfg(feature = "testing")]
            forger: Mutex::default(),
        });
        service.catch_up()?;
        service.hold_handed_over();
        if let Some(listener) = parts.listener {
            listen::start(&service, listener)?;
        }
        service.spawn("weir-mirror", Replication::drive)?;
        if service.moves.is_some() {
            service.spawn("weir-moves", Replication::drive_moves)?;
        }
        Ok(service)
    }

    /// Interrupts transfers; they resume at the next start. When this returns, nothing reads or
    /// writes volumes for replication.
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
            let now = self.current_time();
            let posted = std::mem::take(&mut self.inbox.lock().steps);
            let (mut steps, waiting): (Vec<Step>, Vec<CommitNotifier>) = posted.into_iter().unzip();
            let tick = u64::try_from(TICK.as_millis()).unwrap_or(u64::MAX);
            if ticked.is_none_or(|at| now.ms >= at + tick) {
                ticked = Some(now.ms);
                let view = self.control.view();
                steps.extend(self.manager.lock().due(&view.relations, now));
            }
            if !steps.is_empty() && !self.commit_steps(&steps) {
                return;
            }
            drop(waiting);
            let view = self.control.view();
            let commands = self.manager.lock().reconcile(&view.relations, now);
            for command in commands {
                self.carry_out(command);
            }
            // Under the lock, so that a thread that has checked before is waiting by now.
            drop(self.manager.lock());
            self.changed.notify_all();
            let mut inbox = self.inbox.lock();
            if inbox.steps.is_empty() && !inbox.woken {
                self.wakeup.wait_for(&mut inbox, TICK);
            }
            inbox.woken = false;
        }
    }

    /// Writes events into the rows; retries while the catalog fails. Returns false if the server
    /// stops.
    fn commit_steps(&self, steps: &[Step]) -> bool {
        loop {
            let written = self.runtime.block_on(self.control.record_steps(steps));
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
                    tracing::warn!(%error, "cannot take a scheduled snapshot of a copy now");
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
                    tracing::warn!(%error, "cannot delete snapshots of a released relationship");
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
                let entry = rows.find_by_uuid(&job.relationship);
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
            if let Some(step) = self.manager.lock().event(id, ended, self.current_time()) {
                // This is the thread that writes steps into the rows.
                drop(self.post(step));
            }
        }
    }

    /// Returns the steps that update a destination's row to the snapshot that its readers see. They
    /// differ if a crash or an abort came between the snapshot and its record.
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
            let copied = CopiedSnapshot {
                name: seen.name,
                taken: seen.created.secs,
                id: seen.identity,
            };
            steps.push(Step::Snapshot(entry.uuid.clone(), copied));
        }
        // The source keeps the snapshot that the next transfer begins with.
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

    /// Writes into the rows, before anyone is served, the events that a crash has kept from them.
    /// Also deletes leftover temporary files of restores.
    fn catch_up(&self) -> Result<()> {
        let rows = self.rows();
        for entry in rows.entries(0).filter(|entry| !entry.files.is_empty()) {
            // Files that have arrived completely are still to be renamed.
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
            false => Ok(self.runtime.block_on(self.control.record_steps(&steps))?),
        }
    }

    /// Takes the snapshot for a rule's schedule, and deletes those that the rule no longer keeps.
    /// While part of a snapshot has been transferred, it waits for another minute.
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
            tracing::warn!(destination = %to, label = %rule.label, "cannot take a scheduled snapshot of a copy: the rule preserves as many as it keeps");
        } else {
            match volume.snapshot_take_of_copy(&take.name, &rule.label, self.clock.current_time()) {
                Ok(_) | Err(FsError::Exists) => {}
                Err(FsError::Busy) => return,
                Err(error) => {
                    tracing::warn!(destination = %to, label = %rule.label, %error, "cannot take a scheduled snapshot of a copy");
                }
            }
        }
        let needed = self.rows().needed(to);
        let all = of_rule(&volume);
        // Saturates: the rule may keep more than there are.
        let surplus = match rule.preserve {
            true => 0,
            false => all.len().saturating_sub(rule.keep as usize),
        };
        let oldest = all.iter().take(surplus);
        for snapshot in oldest.filter(|s| !needed.contains(&s.identity)) {
            if let Err(error) = volume.snapshot_delete(&snapshot.name) {
                tracing::debug!(%error, snapshot = %snapshot.name, "cannot delete a snapshot of a copy now");
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

    /// Deletes the own snapshots of a released relationship at its source.
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
                    tracing::warn!(%error, snapshot = %snapshot.name, "cannot delete a released snapshot");
                }
            }
        }
        self.runtime
            .block_on(self.control.adopt_snapshots(&named.key));
    }

    /// Returns the facts about both ends that a verb may need. May query a peer, which takes up to
    /// seconds.
    pub fn preconditions(
        self: &Arc<Self>,
        source: Option<&Path>,
        destination: &Path,
    ) -> Preconditions {
        let side = |told: Result<plan::Volume, VerbRefusal>| told.map(side).map_err(|r| r.text);
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

    /// Returns the description of a volume of this node or of a peer.
    fn look(self: &Arc<Self>, path: &Path) -> Result<plan::Volume, VerbRefusal> {
        match path.cluster.is_empty() {
            true => self.describe(&path.vserver, &path.volume),
            false => job::ask_peer(self, path),
        }
    }

    /// Finds the source that a user means: at the named peer, here, or else at the one peer that
    /// has it.
    ///
    /// # Errors
    /// No node has it, or several have.
    pub fn resolve(self: &Arc<Self>, shown: &Path) -> Result<Path, VerbRefusal> {
        if !shown.cluster.is_empty() {
            return match self.peers.get(&shown.cluster) {
                Some(_) => Ok(shown.clone()),
                None => Err(VerbRefusal::new(
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
            (Some(_), false, _) => Err(VerbRefusal::new(
                Reason::Invalid,
                format!("More than one peer has {shown}; name one: cluster://svm/volume."),
            )),
            (None, _, true) => Err(VerbRefusal::new(
                Reason::NotFound,
                format!("Failed to find source volume \"{shown}\": {here}"),
            )),
            (None, _, false) => Err(VerbRefusal::new(
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
    let held = |s: plan::Snapshot| LabelledSnapshot {
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

/// Returns this node's identity; chooses one at the first start.
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
