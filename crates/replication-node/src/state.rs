//! State that the threads of the service share, and its operations.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::watch;
use weir_base::{Clock, Rng};
use weir_control::Control;
use weir_control::rules::replication::local_volume;
use weir_node::counters::Counters;
use weir_relations::manager::{Event, Manager, Now, Reason, Relations, Step, VerbRefusal};
use weir_relations::model::{Path, VolumeUuid};
use weir_relations::plan::{self, TreePolicies};
use weir_volume::Engine;

use super::limiter::Limiter;
use super::moves::Moves;
use super::offers::Offers;
use super::peers::Peers;

/// Time between two attempts to write a step into the catalog.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);

/// Replication service of a node.
pub struct Replication {
    pub(crate) manager: Mutex<Manager>,
    /// Notified, with `manager`, when any state of transfers has changed.
    pub(crate) changed: Condvar,
    pub(crate) inbox: Mutex<Inbox>,
    /// Notified, with `inbox`, when it is no longer empty or rows have changed.
    pub(crate) wakeup: Condvar,
    pub(crate) engine: Arc<Engine>,
    pub(crate) control: Arc<Control>,
    pub(crate) runtime: Handle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) incoming: Arc<Limiter>,
    pub(crate) outgoing: Arc<Limiter>,
    pub(crate) jobs: Mutex<HashMap<u64, watch::Sender<bool>>>,
    pub(crate) peers: Peers,
    /// Offers of pairing with this node.
    pub(crate) offers: Offers,
    pub(crate) name: String,
    pub(crate) node: [u8; 16],
    pub(crate) listening: Option<SocketAddr>,
    pub(crate) counters: Counters,
    /// State of moves between aggregates; `None` where none move.
    pub(crate) moves: Option<Moves>,
    /// Bytes moved for each relationship since the start.
    pub(crate) moved: Mutex<HashMap<String, Arc<TransferCounters>>>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) stopping: AtomicBool,
    pub(crate) threads: AtomicUsize,
    /// Changes incoming frames.
    #[cfg(feature = "testing")]
    pub(crate) forger: Mutex<weir_transfer::pipe::Forger>,
}

/// Counters of a relationship, updated by the receiving side with each frame.
#[derive(Default)]
pub(crate) struct TransferCounters {
    /// Bytes before compression; `wire` counts those transferred.
    pub(crate) logical: AtomicU64,
    pub(crate) wire: AtomicU64,
}

/// Sender that is dropped when a step is in the rows, or will not get there because the server
/// stops.
pub(crate) type CommitNotifier = mpsc::Sender<()>;

/// Work for the thread `weir-mirror`.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Events that are not in the rows yet, in order. The sender wakes the thread that waits for
    /// the event. Bounded by the number of threads, because each waits for its own.
    pub(crate) steps: Vec<(Step, CommitNotifier)>,
    /// True if rows of the catalog have changed.
    pub(crate) woken: bool,
}

/// Registration of a running thread; dropping it ends the registration.
pub(crate) struct Thread(Arc<Replication>);

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Replication {
    /// Returns true once [`Replication::stop`] was called.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Starts a thread that [`Replication::stop`] waits for.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Replication>) + Send + 'static,
    ) -> std::io::Result<()> {
        self.threads.fetch_add(1, Ordering::AcqRel);
        let counted = Thread(Arc::clone(self));
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&counted.0))
            .map(|_| ())
    }

    /// Returns the state of transfers, locked.
    pub fn manager(&self) -> MutexGuard<'_, Manager> {
        self.manager.lock()
    }

    /// Waits until something about transfers has changed, at most for `limit`.
    pub fn wait_for_change(&self, manager: &mut MutexGuard<'_, Manager>, limit: Duration) {
        self.changed.wait_for(manager, limit);
    }

    /// Returns this node's identity among nodes.
    pub fn node(&self) -> [u8; 16] {
        self.node
    }

    /// Returns the fingerprint of this node's certificate.
    pub fn fingerprint(&self) -> &str {
        &self.peers.fingerprint
    }

    /// Returns the address on which peers connect.
    pub fn listening(&self) -> Option<SocketAddr> {
        self.listening
    }

    /// Returns the result of the last request to a peer, with the cause of a failure.
    pub fn peer_available(&self, name: &str) -> Option<Result<(), String>> {
        self.peers.available(name)
    }

    /// Ends the connections of peers that were deleted, with the transfers on them.
    pub fn peers_deleted(&self) {
        self.peers.deleted();
    }

    pub(crate) fn current_time(&self) -> Now {
        Now {
            wall: self.clock.current_time().secs,
            ms: u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn nanos(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Wakes `weir-mirror`, which compares the running transfers with the rows.
    pub fn wake(&self) {
        self.inbox.lock().woken = true;
        self.wakeup.notify_one();
    }

    /// Queues an event for the rows. The receiver is disconnected once the rows have it.
    pub(crate) fn post(&self, step: Step) -> mpsc::Receiver<()> {
        let (written, waits) = mpsc::channel();
        self.inbox.lock().steps.push((step, written));
        self.wakeup.notify_one();
        waits
    }

    /// Writes an event into the rows, and returns when they have it, so that snapshots that the
    /// event needs are not deleted. Must not be called by `weir-mirror`, which writes it.
    pub(crate) fn happened(&self, step: Step) {
        let waits = self.post(step);
        while waits.recv_timeout(AGAIN) == Err(mpsc::RecvTimeoutError::Timeout) && !self.stopping()
        {
        }
    }

    pub(crate) fn event(&self, id: u64, event: Event) {
        self.event_at(id, event, self.current_time());
    }

    /// Handles an event of a job. When the server stops, no more events are recorded: work that has
    /// not ended by then begins again.
    pub(crate) fn event_at(&self, id: u64, event: Event, now: Now) {
        if !self.stopping() {
            let step = self.manager.lock().event(id, event, now);
            if let Some(step) = step {
                self.happened(step);
            }
        }
        self.changed.notify_all();
    }

    /// Returns the current rows.
    pub(crate) fn rows(&self) -> Relations {
        self.control.view().relations.clone()
    }

    /// Returns the volume of this node at this path.
    pub(crate) fn local(
        &self,
        vserver: &str,
        volume: &str,
    ) -> Result<Arc<weir_control::Volume>, VerbRefusal> {
        local_volume(&self.control.view(), vserver, volume)
    }

    /// Returns true if a volume of this node is offline. A peer reports that of its own volumes
    /// itself.
    pub(crate) fn is_offline(&self, path: &Path) -> bool {
        let volume = self.local(&path.vserver, &path.volume);
        path.cluster.is_empty() && volume.is_ok_and(|volume| volume.assigned.offline)
    }

    pub(crate) fn engine_volume(&self, key: &str) -> Result<Arc<weir_volume::Volume>, VerbRefusal> {
        let found = self.engine.volume(key);
        found.ok_or_else(|| VerbRefusal::new(Reason::NotFound, "entry doesn't exist"))
    }

    /// Returns the description of a volume of this node.
    pub(crate) fn describe(
        &self,
        vserver: &str,
        volume: &str,
    ) -> Result<plan::Volume, VerbRefusal> {
        let named = self.local(vserver, volume)?;
        let found = self.engine_volume(&named.key)?;
        let path = Path::local(vserver, volume);
        let rows = self.rows();
        let all = found.snapshots();
        let mirror = found.mirror();
        let exported = mirror.as_ref().and_then(|m| m.exported);
        let exported = all.iter().find(|s| Some(s.id) == exported);
        Ok(plan::Volume {
            size: Some(found.limit()).filter(|limit| *limit > 0),
            data_protection: mirror.is_some(),
            exported: exported.map(|s| s.identity),
            snapshots: all
                .iter()
                .map(|s| plan::Snapshot {
                    name: s.name.clone(),
                    label: s.label.clone(),
                    id: s.identity,
                    created: s.created.secs,
                })
                .collect(),
            needed: rows.needed(&path),
            uuid: found.uuid(),
            above: self.above(&rows, path),
            trees: weir_control::tree_policies(&self.control.view(), &named),
        })
    }

    /// Returns the volumes that this one is a copy of, the nearest first. Those on this node are
    /// current; those beyond are as a peer reported at the last transfer.
    pub(crate) fn above(&self, rows: &Relations, mut at: Path) -> Vec<VolumeUuid> {
        let mut above = Vec::new();
        while let Some(entry) = rows.entry(&at).filter(|e| e.copies() && !e.restore) {
            if !entry.source.cluster.is_empty() {
                above.extend(&entry.above);
                break;
            }
            let source = self.local(&entry.source.vserver, &entry.source.volume);
            let source = source.and_then(|source| self.engine_volume(&source.key));
            let Ok(uuid) = source.map(|source| source.uuid()) else {
                // The source is being deleted.
                break;
            };
            if above.contains(&uuid) {
                break;
            }
            above.push(uuid);
            at = entry.source.clone();
        }
        above
    }

    /// Updates the catalog's list of a volume's snapshots to the engine's. To be called before any
    /// result of the change is visible: a client that reads that a transfer has ended finds its
    /// snapshots listed, and those that it deleted gone. When the server stops, the next start does
    /// it.
    pub(crate) async fn adopt(&self, key: &str) {
        let (control, key) = (Arc::clone(&self.control), key.to_owned());
        let adopted = self
            .runtime
            .spawn(async move { control.adopt_snapshots(&key).await });
        if let Err(error) = adopted.await {
            tracing::debug!(%error, "the next start lists the snapshots");
        }
    }

    /// Gives the qtrees of a destination the export policies that they have in its source. To be
    /// called before clients see what was copied.
    pub(crate) async fn follow_trees(
        &self,
        key: &str,
        source: &TreePolicies,
    ) -> Result<(), String> {
        let (control, key) = (Arc::clone(&self.control), key.to_owned());
        let source = source.clone();
        let spawned = self
            .runtime
            .spawn(async move { control.follow_trees(&key, &source).await });
        let followed = spawned.await.map_err(|error| error.to_string())?;
        followed.map_err(|refusal| {
            format!(
                "cannot store the export policies of the source's qtrees: {}",
                refusal.message
            )
        })
    }

    /// Returns the counters of a relationship.
    pub(crate) fn moved(&self, relationship: &str) -> Arc<TransferCounters> {
        let mut moved = self.moved.lock();
        Arc::clone(moved.entry(relationship.to_owned()).or_default())
    }
}
