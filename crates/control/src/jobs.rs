//! Jobs: carry out operations on the node.
//!
//! Every step requests a state of the node, not a change, so a job interrupted anywhere is run
//! again from its start. Between its steps the catalog records how far the node may have come. A
//! volume is CREATING until the engine has it, and DELETING from before the data path stops serving
//! it. Order:
//!
//! | verb | steps |
//! |---|---|
//! | create | engine has it · catalog: number, READY · in force · done |
//! | update | engine's capacity and mode · in force · READY, done |
//! | delete | in force without it · engine deletes · catalog: row deleted, tombstone kept, done |
//! | rename | engine renames · catalog: READY, done (it has the new name from the beginning) |
//! | move | transfers change the row ([`crate::moves`]) · it has ended · done |
//! | split | engine begins · engine has ended · catalog: no clone any more, done |
//! | revert | engine reverts · catalog drops what the engine dropped, READY · in force · done |
//!
//! | join | node joins · catalog: READY, done; or ERROR, failed ([`crate::domains`]) |
//! | leave | node leaves · catalog forgets it, done |
//! | backup | node makes it · catalog: READY, done · snapshot of the one before goes |
//! | qtree | node deletes it · catalog forgets its policy, done |
//! | snapshot | engine has it · catalog: READY, done |
//!
//! So the data path never serves a volume that the catalog does not know, and no volume is deleted
//! while it is served. Jobs on one resource run in the order in which they were accepted; others
//! run concurrently.
//!
//! A write that the job would repeat if it were lost waits for the next transaction (see `store`).
//!
//! A snapshot captures the moment of its request, and the caller waits. So the engine takes it
//! while the catalog's transaction is still in progress, unless other jobs of its volume come
//! first. The caller waits for the longer of the two and not for their sum. If only the snapshot
//! survives a crash, the next start adopts it (see `adopt_snapshots`), as one whose request was
//! done and not acknowledged. If the transaction fails, the snapshot is deleted again.
//!
//! The engine's deletions are durable only with its next checkpoint, which no job waits for:
//! forcing one for each deletion would slow down writers. A volume with a tombstone in the catalog
//! is deleted again after a crash. The tombstone is removed when the node has reached the point
//! after the deletion ([`JobContext::delete_deferred`], [`JobContext::purge_tombstones`]).

use crate::accept::{self, Render, move_lane, split_lane, tree_lane, vault_lane};
use crate::backend::{Backend, BackendError, Point, TakenSnapshot, call};
use crate::job::Job;
use crate::model::{Operation, Outcome, Snapshot, State, Volume};
use crate::name::{Name, SnapshotName, Target, VolumeName};
use crate::publish::{self, Effective};
use crate::refusal::{Refusal, Status};
use crate::rules;
use crate::secret::Secret;
use crate::store::{Store, Transaction};
use crate::timestamp::Stamp;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// Maximum number of concurrent calls to the node: it has one log and one device.
const CALLS: usize = 8;
/// Delays before retrying a failure that is not the request's fault.
const RETRIES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
];

/// Interval for polling the progress of a split.
const LOOK: Duration = Duration::from_millis(200);

/// Running jobs, and the order of jobs in each lane.
#[derive(Default)]
pub(crate) struct Lanes {
    tails: Mutex<HashMap<u64, watch::Receiver<()>>>,
    running: Mutex<HashSet<Name>>,
}

/// A job's place in its lane. Dropping it lets the next one begin.
pub(crate) struct LaneTicket {
    lanes: Arc<Lanes>,
    lane: u64,
    operation: Name,
    before: Option<watch::Receiver<()>>,
    done: watch::Sender<()>,
}

impl Lanes {
    /// Takes a place behind the jobs of the same lane; `None` if this operation has one already.
    /// Called under the head's lock, so that the lane's order is the order of acceptance.
    pub fn enter(self: &Arc<Self>, lane: u64, operation: &Name) -> Option<LaneTicket> {
        if !self.running.lock().insert(operation.clone()) {
            return None;
        }
        let done = watch::Sender::new(());
        let before = self.tails.lock().insert(lane, done.subscribe());
        Some(LaneTicket {
            lanes: Arc::clone(self),
            lane,
            operation: operation.clone(),
            before,
            done,
        })
    }

    /// Returns the number of jobs that have not ended.
    pub fn running(&self) -> usize {
        self.running.lock().len()
    }
}

impl LaneTicket {
    /// Waits for the earlier jobs of the lane.
    pub async fn begin(&mut self) {
        if let Some(mut before) = self.before.take() {
            while before.changed().await.is_ok() {}
        }
    }

    /// Returns true if no earlier job is left.
    pub fn is_first(&self) -> bool {
        let before = self.before.as_ref();
        before.is_none_or(|before| before.has_changed().is_err())
    }
}

impl Drop for LaneTicket {
    fn drop(&mut self) {
        let mut tails = self.lanes.tails.lock();
        if let Some(tail) = tails.get(&self.lane) {
            if tail.same_channel(&self.done.subscribe()) {
                tails.remove(&self.lane);
            }
        }
        drop(tails);
        self.lanes.running.lock().remove(&self.operation);
    }
}

/// A snapshot that is being taken before its operation is in the catalog.
pub(crate) type Early = JoinHandle<Result<TakenSnapshot, BackendError>>;

/// Shared state of all jobs.
pub(crate) struct JobContext {
    pub store: Arc<Store>,
    pub backend: Arc<dyn Backend>,
    pub published: watch::Receiver<Effective>,
    pub lanes: Arc<Lanes>,
    pub render: OnceLock<Render>,
    /// Passwords for jobs, by their operations.
    pub secrets: Mutex<HashMap<Name, Secret>>,
    calls: Semaphore,
    /// Deleted engine volumes, and the points of their deletion: they have tombstones until that is
    /// durable.
    pending_delete: Mutex<HashMap<Arc<str>, Point>>,
}

/// Converts a failure of a step into the operation's error.
pub(crate) fn failure(error: &BackendError) -> Refusal {
    let (status, reason) = match error {
        BackendError::NotFound(_) => (Status::NotFound, "ENGINE_NOT_FOUND"),
        BackendError::Precondition(_) => (Status::FailedPrecondition, "ENGINE_PRECONDITION"),
        BackendError::NoSpace(_) => (Status::ResourceExhausted, "NO_SPACE"),
        BackendError::Failed(_) => (Status::Internal, "ENGINE_FAILED"),
    };
    Refusal::new(status, reason, error.to_string())
}

pub(crate) fn gone(what: &Target) -> Refusal {
    Refusal::new(
        Status::Aborted,
        "TARGET_GONE",
        format!("{what} went away meanwhile"),
    )
}

impl JobContext {
    pub fn new(
        store: Arc<Store>,
        backend: Arc<dyn Backend>,
        published: watch::Receiver<Effective>,
    ) -> JobContext {
        JobContext {
            store,
            backend,
            published,
            lanes: Arc::default(),
            render: OnceLock::new(),
            secrets: Mutex::default(),
            calls: Semaphore::new(CALLS),
            pending_delete: Mutex::default(),
        }
    }

    /// Calls the node, off the threads that serve.
    pub async fn call_node<T: Send + 'static>(
        &self,
        f: impl FnOnce(&dyn Backend) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let _call = self.calls.acquire().await;
        call(&self.backend, false, f).await
    }

    /// Calls the node for an action in memory, on the calling thread if it is prompt.
    pub async fn ask_promptly<T: Send + 'static>(
        &self,
        f: impl FnOnce(&dyn Backend) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        match self.backend.is_prompt() {
            true => call(&self.backend, true, f).await,
            false => self.call_node(f).await,
        }
    }

    /// Calls the node, off the threads that serve, and retries where that may help.
    pub(crate) async fn ask_with_retries<T: Send + 'static>(
        &self,
        f: impl Fn(&dyn Backend) -> Result<T, BackendError> + Clone + Send + 'static,
    ) -> Result<T, BackendError> {
        self.with_retries(|| self.call_node(f.clone())).await
    }

    /// Runs an action, and retries it where that may help.
    pub(crate) async fn with_retries<T, A: Future<Output = Result<T, BackendError>>>(
        &self,
        mut attempt: impl FnMut() -> A,
    ) -> Result<T, BackendError> {
        for wait in RETRIES {
            match attempt().await {
                Err(BackendError::Failed(why)) => {
                    tracing::warn!(why, "call to the node failed; retrying");
                    tokio::time::sleep(wait).await;
                }
                other => return other,
            }
        }
        attempt().await
    }

    /// Begins to take the snapshot of an operation, if no earlier job has to be waited for. `label`
    /// is its replication label.
    pub fn take_early(
        self: &Arc<Self>,
        operation: &Operation,
        label: String,
        place: &LaneTicket,
    ) -> Option<Early> {
        let Job::TakeSnapshot(name) = &operation.job else {
            return None;
        };
        let parent = place.is_first().then(|| self.volume(&name.parent));
        let (key, id) = (parent?.ok()?.key.to_string(), name.id.to_string());
        let context = Arc::clone(self);
        Some(tokio::spawn(async move {
            context
                .call_node(move |node| node.snapshot_create(&key, &id, &label))
                .await
        }))
    }

    /// Deletes a snapshot that was taken early, because the catalog refuses it. One that existed
    /// before stays.
    pub async fn rollback_snapshot(&self, operation: &Operation, early: Early) {
        let Job::TakeSnapshot(name) = &operation.job else {
            return;
        };
        let made = matches!(early.await, Ok(Ok(taken)) if !taken.found);
        let Some(Ok(parent)) = made.then(|| self.volume(&name.parent)) else {
            return;
        };
        let (key, id) = (parent.key.to_string(), name.id.to_string());
        if let Err(error) = self
            .call_node(move |node| node.snapshot_delete(&key, &id))
            .await
        {
            tracing::warn!(snapshot = %name, %error, "cannot delete a snapshot that the catalog refused; the engine keeps it");
        }
    }

    /// Carries an operation out, and ends it. Returns early only when the server stops. Its
    /// snapshot may already be in progress.
    pub async fn run(&self, operation: Operation, mut place: LaneTicket, early: Option<Early>) {
        place.begin().await;
        let job = &operation.job;
        let result = match job {
            Job::CreatePool(_)
            | Job::UpdatePool(_)
            | Job::DeletePool(_)
            | Job::SwitchPool(_)
            | Job::Policy { .. }
            | Job::QuotaRule { .. }
            | Job::BackupPolicy { .. }
            | Job::UpdateBackupVault(_)
            | Job::UpdateBackup(_)
            | Job::UpdateDomain(_) => self.effective(self.store.view().generation).await,
            Job::Create(of) => self.make(of).await,
            Job::Update { of, capacity, mode } => self.adjust(job, of, *capacity, *mode).await,
            Job::Delete(of) => self.delete(of).await,
            Job::Revert { of, snapshot } => self.revert(of, snapshot).await,
            Job::Split(name) => self.split(name).await,
            Job::Move(name) => self.wait_for_move(name).await,
            Job::TakeSnapshot(name) => self.take(name, early).await,
            Job::UpdateSnapshot { name, label } => match label {
                true => self.label(name).await,
                false => Ok(()),
            },
            Job::RenameSnapshot { name, from } => self.rename(name, from).await,
            Job::DeleteSnapshot(name) => self.drop_snapshot(name).await,
            Job::JoinDomain { name, .. } => self.join_domain(name, &operation.name).await,
            Job::LeaveDomain(name) => self.leave_domain(name).await,
            Job::CreateBackupVault(name) => self.create_vault(name).await,
            Job::DeleteBackupVault(name) => self.delete_vault(name).await,
            Job::TakeBackup(name) => self.take_backup(name).await,
            Job::DeleteBackup(name) => self.delete_backup(name).await,
            Job::RestoreFiles { .. } => self.restore_files(job).await,
            Job::DeleteTree { key, number, .. } => self.delete_tree(key, *number).await,
            _ => Err(never_pending(job)),
        };
        let outcome = match result {
            Ok(()) if job.deletes() => Outcome::Deleted,
            Ok(()) => Outcome::Done,
            Err(refusal) => {
                tracing::warn!(target = %job.target(), verb = job.verb(), %refusal, "operation failed");
                Outcome::Failed(refusal)
            }
        };
        let failed = matches!(outcome, Outcome::Failed(_));
        let ended = self.store.commit_with_retry(|tx| {
            if job.lazily_durable() {
                tx.lazily_durable();
            }
            let gone = match outcome == Outcome::Deleted {
                true => forget(tx, &job.target()),
                false => None,
            };
            let response = accept::response(self.render.get(), tx, &operation, &outcome);
            tx.end(&operation, outcome.clone(), response);
            gone
        });
        let ended = ended.await;
        if ended.is_ok() {
            self.store.counters.ended(failed);
        }
        match ended {
            // The volume was deleted before, so this point is after the deletion.
            Ok((Some(key), _)) => self.note_pending_delete(key),
            Ok((None, _)) => {}
            Err(why) => {
                tracing::info!(%why, operation = %operation.full_name(), "catalog unavailable; left for the next start");
            }
        }
    }

    fn note_pending_delete(&self, key: Arc<str>) {
        self.pending_delete.lock().insert(key, self.backend.point());
    }

    pub(crate) async fn effective(&self, generation: u64) -> Result<(), Refusal> {
        publish::wait_for(self.published.clone(), generation).await
    }

    fn volume(&self, name: &VolumeName) -> Result<Arc<Volume>, Refusal> {
        let found = self.store.view().volume(name).cloned();
        found.ok_or_else(|| gone(&Target::Volume(name.clone())))
    }

    async fn make(&self, name: &VolumeName) -> Result<(), Refusal> {
        let wanted = self.volume(name)?;
        let spec = rules::volume::spec(&self.store.view(), &wanted);
        let made = self.made(&wanted, spec).await;
        match made {
            Ok(state) => {
                let ready = self.store.commit_with_retry(|tx| {
                    tx.lazily_durable();
                    if let Some(now) = tx.view.volume(name).cloned() {
                        tx.set_state(&now, State::Ready, "", Some(state.number));
                    }
                });
                let ((), generation) = ready.await?;
                self.effective(generation).await
            }
            Err(error) => {
                // It may have been created in part.
                let key = Arc::clone(&wanted.key);
                let undone = self.store.commit_with_retry(|tx| {
                    if let Some(now) = tx.view.volume(name).cloned() {
                        tx.tombstone(&key);
                        tx.remove_volume(&now);
                    }
                });
                undone.await?;
                self.delete_deferred(&key).await;
                Err(failure(&error))
            }
        }
    }

    /// Deletes an engine volume that has a tombstone; a failed deletion is retried later.
    pub async fn delete_deferred(&self, key: &Arc<str>) {
        let text = key.to_string();
        match self.call_node(move |node| node.delete_volume(&text)).await {
            Ok(()) | Err(BackendError::NotFound(_)) => self.note_pending_delete(Arc::clone(key)),
            Err(error) => {
                tracing::warn!(%key, %error, "cannot delete an engine volume; retrying later");
            }
        }
    }

    /// Removes the tombstones of engine volumes whose deletion is durable, and deletes those that
    /// still exist.
    pub async fn purge_tombstones(&self) {
        self.store.drained().await;
        let tombstones = self.store.catalog.tombstones().await.unwrap_or_default();
        let mut durable: Vec<Arc<str>> = Vec::new();
        for key in tombstones {
            let key: Arc<str> = key.into();
            let point = self.pending_delete.lock().get(&key).copied();
            match point {
                Some(point) if self.backend.reached(point) => durable.push(key),
                Some(_) => {}
                None => self.delete_deferred(&key).await,
            }
        }
        if durable.is_empty() {
            return;
        }
        let done = self.store.commit_with_retry(|tx| {
            tx.lazily_durable();
            for key in &durable {
                tx.remove_tombstone(key);
            }
        });
        if done.await.is_ok() {
            let mut pending_delete = self.pending_delete.lock();
            for key in &durable {
                pending_delete.remove(key);
            }
        }
    }

    async fn adjust(
        &self,
        job: &Job,
        name: &VolumeName,
        capacity: bool,
        mode: bool,
    ) -> Result<(), Refusal> {
        if capacity || mode {
            if let Err(error) = self.fit(name, capacity, mode).await {
                let words = error.to_string();
                let marked = self.store.commit_with_retry(|tx| {
                    if let Some(now) = tx.view.volume(name).cloned() {
                        if matches!(now.state, State::Updating | State::Error) {
                            tx.set_state(&now, State::Error, &words, None);
                        }
                    }
                });
                marked.await?;
                return Err(failure(&error));
            }
            let ready = self.store.commit_with_retry(|tx| {
                if job.lazily_durable() {
                    tx.lazily_durable();
                }
                if let Some(now) = tx.view.volume(name).cloned() {
                    if matches!(now.state, State::Updating | State::Error) {
                        tx.set_state(&now, State::Ready, "", None);
                    }
                }
            });
            ready.await?;
        }
        self.effective(self.store.view().generation).await
    }

    /// Applies the intended capacity to the engine, and the root's mode if requested.
    pub async fn fit(
        &self,
        name: &VolumeName,
        capacity: bool,
        mode: bool,
    ) -> Result<(), BackendError> {
        let view = self.store.view();
        let Some(wanted) = view.volume(name) else {
            return Err(BackendError::NotFound(name.to_string()));
        };
        let key = wanted.key.to_string();
        let bytes = rules::volume::capacity(&view, wanted);
        let bits = wanted.unix_permissions;
        if !mode {
            let set = move |node: &dyn Backend| node.set_capacity(&key, bytes);
            return self.with_retries(|| self.ask_promptly(set.clone())).await;
        }
        self.ask_with_retries(move |node| {
            if capacity {
                node.set_capacity(&key, bytes)?;
            }
            if mode {
                node.set_root_mode(&key, bits)?;
            }
            Ok(())
        })
        .await
    }

    async fn delete(&self, name: &VolumeName) -> Result<(), Refusal> {
        let going = self.volume(name)?;
        let out = self.effective(self.store.view().generation).await;
        let key = going.key.to_string();
        let deleted = match out {
            Ok(()) => self
                .ask_with_retries(move |node| match node.delete_volume(&key) {
                    Err(BackendError::NotFound(_)) => Ok(()),
                    other => other,
                })
                .await
                .map_err(|error| failure(&self.name_clones(error, |of| of.parent == *name))),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = deleted {
            // The volume stays, and is served again.
            let words = format!("deletion failed: {}", refusal.message);
            let back = self.store.commit_with_retry(|tx| {
                if let Some(now) = tx.view.volume(name).cloned() {
                    let state = match now.number {
                        Some(_) => State::Ready,
                        None => State::Error,
                    };
                    tx.set_state(&now, state, &words, None);
                }
            });
            let ((), generation) = back.await?;
            // Either way the deletion has failed.
            let _ = self.effective(generation).await;
            return Err(refusal);
        }
        Ok(())
    }

    async fn delete_tree(&self, key: &Arc<str>, number: u32) -> Result<(), Refusal> {
        let of = key.to_string();
        let deleted = self.ask_for_long(move |node| match node.delete_tree(&of, number) {
            // The volume was deleted meanwhile.
            Err(BackendError::NotFound(_)) => Ok(()),
            other => other,
        });
        deleted.await.map_err(|error| failure(&error))?;
        let written = self.store.commit_with_retry(|tx| {
            let volume = tx
                .view
                .volumes
                .values()
                .find(|volume| volume.key == *key)
                .cloned();
            let next = volume.and_then(|volume| rules::trees::forget(&tx.view, &volume, number));
            if let Some(next) = next {
                tx.put_volume(next);
            }
        });
        written.await.map(drop)
    }

    async fn take(&self, name: &SnapshotName, early: Option<Early>) -> Result<(), Refusal> {
        let early = match early {
            Some(early) => early.await.ok().and_then(Result::ok),
            None => None,
        };
        let taken = match (early, self.volume(&name.parent)) {
            (Some(taken), _) => Ok(taken),
            (None, Ok(parent)) => {
                let (key, id) = (parent.key.to_string(), name.id.to_string());
                let view = self.store.view();
                let label = view.snapshot(name).map_or("", |s| s.snapmirror_label());
                let label = label.to_owned();
                self.ask_with_retries(move |node| node.snapshot_create(&key, &id, &label))
                    .await
                    .map_err(|error| failure(&error))
            }
            (None, Err(refusal)) => Err(refusal),
        };
        let written = self.store.commit_with_retry(|tx| {
            if taken.is_ok() {
                tx.lazily_durable();
            }
            let Some(snapshot) = tx.view.snapshot(name).cloned() else {
                return;
            };
            match &taken {
                Ok(taken) => {
                    let mut snapshot = Snapshot::clone(&snapshot);
                    snapshot.state = State::Ready;
                    snapshot.created = Stamp::from_nanos(taken.state.created);
                    snapshot.engine = Some(taken.state.engine());
                    tx.put_snapshot(snapshot);
                }
                Err(_) => tx.remove_snapshot(&snapshot),
            }
        });
        written.await?;
        taken.map(|_| ())
    }

    async fn label(&self, name: &SnapshotName) -> Result<(), Refusal> {
        let parent = self.volume(&name.parent)?;
        let view = self.store.view();
        let Some(snapshot) = view.snapshot(name) else {
            return Err(gone(&Target::Snapshot(name.clone())));
        };
        let (key, id) = (parent.key.to_string(), name.id.to_string());
        let label = snapshot.snapmirror_label().to_owned();
        self.ask_with_retries(move |node| node.snapshot_label(&key, &id, &label))
            .await
            .map_err(|error| failure(&error))
    }

    async fn rename(&self, name: &SnapshotName, from: &str) -> Result<(), Refusal> {
        let parent = self.volume(&name.parent)?;
        let (key, old, new) = (parent.key.to_string(), from.to_owned(), name.id.to_string());
        let renamed = self
            .ask_with_retries(move |node| node.snapshot_rename(&key, &old, &new))
            .await;
        let before = name.parent.snapshot(from);
        let written = self.store.commit_with_retry(|tx| {
            let Some(snapshot) = tx.view.snapshot(name).cloned() else {
                return;
            };
            let mut snapshot = Snapshot::clone(&snapshot);
            snapshot.state = State::Ready;
            if let Err(error) = &renamed {
                snapshot.state_details = format!("renaming failed: {error}");
                if tx.view.snapshot(&before).is_none() {
                    snapshot.name = before.clone();
                    return accept::rename(tx, name, snapshot);
                }
            }
            tx.put_snapshot(snapshot);
        });
        written.await?;
        renamed.map_err(|error| failure(&error))
    }

    async fn split(&self, name: &VolumeName) -> Result<(), Refusal> {
        let result = self.split_until_done(name).await;
        let written = self.store.commit_with_retry(|tx| {
            if let Some(volume) = tx.view.volume(name).cloned() {
                let mut volume = Volume::clone(&volume);
                volume.splitting = false;
                match &result {
                    Ok(()) => volume.clone_of = None,
                    Err(why) => volume.state_details = format!("splitting failed: {}", why.message),
                }
                tx.put_volume(volume);
            }
        });
        written.await?;
        result
    }

    async fn split_until_done(&self, name: &VolumeName) -> Result<(), Refusal> {
        let key = self.volume(name)?.key.to_string();
        let of = key.clone();
        self.ask_with_retries(move |node| node.split(&of))
            .await
            .map_err(|error| failure(&error))?;
        loop {
            let of = key.clone();
            let state = self.ask_with_retries(move |node| node.volume(&of)).await;
            match state.map_err(|error| failure(&error))? {
                state if !state.shared => return Ok(()),
                state if !state.splitting => {
                    return Err(Refusal::new(
                        Status::Internal,
                        "ENGINE_FAILED",
                        "a block that the clone shares cannot be read; it stays a clone",
                    ));
                }
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Adds the clones selected by `of`, and the remedy, to the node's refusal to delete.
    fn name_clones(&self, error: BackendError, of: impl Fn(&SnapshotName) -> bool) -> BackendError {
        let view = self.store.view();
        let clones = view.volumes.values();
        let clones = clones.filter(|volume| volume.clone_of.as_ref().is_some_and(&of));
        let mut clones: Vec<&str> = clones.map(|volume| &*volume.name.id).collect();
        clones.sort_unstable();
        match (error, clones.first()) {
            (BackendError::Precondition(words), Some(first)) => {
                BackendError::Precondition(format!(
                    "{words}: {} (split each clone, such as with `weir volumes split {first}`, or delete it)",
                    clones.join(", ")
                ))
            }
            (error, _) => error,
        }
    }

    async fn drop_snapshot(&self, name: &SnapshotName) -> Result<(), Refusal> {
        let parent = self.volume(&name.parent)?;
        let (key, id) = (parent.key.to_string(), name.id.to_string());
        let dropped = self
            .ask_with_retries(move |node| match node.snapshot_delete(&key, &id) {
                Err(BackendError::NotFound(_)) => Ok(()),
                other => other,
            })
            .await;
        if let Err(error) = dropped {
            let error = self.name_clones(error, |of| of == name);
            let words = error.to_string();
            let back = self.store.commit_with_retry(|tx| {
                if let Some(snapshot) = tx.view.snapshot(name).cloned() {
                    let mut snapshot = Snapshot::clone(&snapshot);
                    snapshot.state = State::Ready;
                    snapshot.state_details.clone_from(&words);
                    tx.put_snapshot(snapshot);
                }
            });
            back.await?;
            return Err(failure(&error));
        }
        Ok(())
    }

    async fn revert(&self, name: &VolumeName, to: &Arc<str>) -> Result<(), Refusal> {
        let back = self.volume(name)?;
        let to = Arc::clone(to);
        let key = back.key.to_string();
        let reverted = self
            .ask_with_retries(move |node| {
                node.revert(&key, &to)?;
                Ok((node.volume(&key)?, node.snapshots(&key)?))
            })
            .await;
        let written = self.store.commit_with_retry(|tx| {
            let Some(now) = tx.view.volume(name).cloned() else {
                return;
            };
            match &reverted {
                Ok((state, left)) => {
                    let left: HashSet<&str> = left.iter().map(|s| s.name.as_str()).collect();
                    for snapshot in tx.view.snapshots_to_go(&now.name) {
                        if !left.contains(&*snapshot.name.id) {
                            tx.remove_snapshot(&snapshot);
                        }
                    }
                    tx.set_state(&now, State::Ready, "", Some(state.number));
                }
                Err(error) => {
                    let words = format!("revert failed: {error}");
                    tx.set_state(&now, State::Ready, &words, None);
                }
            }
        });
        let ((), generation) = written.await?;
        match reverted {
            Ok(_) => self.effective(generation).await,
            Err(error) => Err(failure(&error)),
        }
    }
}

/// Returns the error for a job that is never pending in a valid catalog: such jobs end when they
/// are accepted.
fn never_pending(job: &Job) -> Refusal {
    let text = format!(
        "{} {}: there is nothing to go on with",
        job.verb(),
        job.target()
    );
    Refusal::new(Status::Internal, "JOB_IMPOSSIBLE", text)
}

/// Removes a deleted target from the catalog. Returns the key of the engine volume that has a
/// tombstone now.
fn forget(tx: &mut Transaction<'_>, target: &Target) -> Option<Arc<str>> {
    match target {
        Target::Snapshot(name) => {
            let snapshot = tx.view.snapshot(name).cloned()?;
            tx.remove_snapshot(&snapshot);
            None
        }
        Target::ActiveDirectory(name) => {
            let directory = tx.view.active_directory(name).cloned()?;
            tx.remove_directory(&directory);
            None
        }
        Target::BackupVault(name) => {
            let vault = tx.view.backup_vault(name).cloned()?;
            tx.remove_vault(&vault);
            None
        }
        Target::Backup(name) => {
            let backup = tx.view.backup(name).cloned()?;
            tx.remove_backup(&backup);
            None
        }
        // It has been gone since the deletion was accepted.
        Target::QuotaRule(_) | Target::BackupPolicy(_) => None,
        Target::Volume(_) | Target::Pool(_) | Target::Replication(_) | Target::Relation(_) => {
            let volume = tx.view.volume_of(target).cloned()?;
            tx.remove_volume(&volume);
            tx.tombstone(&volume.key);
            Some(Arc::clone(&volume.key))
        }
    }
}

/// Returns the lane of a restarted operation.
pub(crate) fn lane_of(view: &crate::view::View, operation: &Operation) -> u64 {
    match operation.target() {
        Target::Pool(name) => view.pool(&name).map_or(0, |pool| pool.id),
        Target::ActiveDirectory(name) => view.active_directory(&name).map_or(0, |found| found.id),
        Target::BackupVault(name) => vault_lane(view, &name),
        Target::Backup(name) => vault_lane(view, &name.vault),
        Target::BackupPolicy(name) => view.backup_policy(&name).map_or(0, |policy| policy.id),
        target => {
            let id = view.volume_of(&target).map_or(0, |volume| volume.id);
            match operation.job {
                Job::Split(_) => split_lane(id),
                Job::Move(_) => move_lane(id),
                Job::RestoreFiles { ref backup, .. } => vault_lane(view, &backup.vault),
                Job::DeleteTree { number, .. } => tree_lane(id, number),
                _ => id,
            }
        }
    }
}
