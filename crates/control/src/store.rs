//! The intended state in memory, and its way into the catalog.
//!
//! There are two views. `head` has every accepted change, and rules are checked against it. `view`
//! has the changes that are in the catalog, for readers and the data path. A change is made under
//! the head's lock, which is held for microseconds and never across a wait, and goes to one writer
//! task. The writer takes all queued changes as one transaction: a hundred mutations at once cost
//! one flush of the disk, not a hundred.
//!
//! A *lazily durable* change records a job's progress. If it were lost, the job would be run again
//! from its start before anyone is served, and no client could notice. It is in the view at once
//! and waits to be written with the next transaction, or for at most [`LINGER`]. So a mutation
//! costs one transaction, not one for each of its job's steps. Changes are written in the order in
//! which they were made, so the catalog is always an earlier state of the view.
//!
//! If a transaction fails, the head has run ahead of the catalog. Then every change that is not in
//! the view is refused (each change knows the epoch that it was made in). The head is reloaded from
//! the catalog, with the lazily durable changes that still wait to be written.

use crate::catalog::{AuditEntry, Catalog, CatalogContents, CatalogError, KNOWN, Write, refused};
use crate::levels::Levels;
use crate::model::{
    ActiveDirectory, Actor, Backup, BackupPolicy, BackupVault, Operation, Outcome, Pool, Snapshot,
    State, Volume,
};
use crate::name::{Name, VolumeName};
use crate::policies::NamedPolicy;
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;
use crate::work::Counters;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use weir_base::network::AddressBlock;
use weir_relations::manager::Edit;

/// Number of ended operations kept before a batch of the oldest is forgotten.
const OPERATIONS_KEPT: usize = 10_000;
/// Number of operations forgotten at once: each time costs pages of the catalog that no other
/// change touches.
const FORGOTTEN: usize = 64;
/// Maximum number of changes in one transaction.
const BATCH: usize = 256;
/// Time that lazily durable changes wait for a transaction.
const LINGER: Duration = Duration::from_millis(100);
/// Time that they wait for another one after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// Number of audit entries between two checks for pruning.
const PRUNE_EVERY: i64 = 1_000;

struct Head {
    view: View,
    epoch: u64,
    /// Reason why nothing can be changed now.
    broken: Option<Refusal>,
    /// Reason why nothing will be changed until a restart.
    halted: Option<Refusal>,
    /// Ended operations, oldest first.
    ended: VecDeque<Name>,
    /// Number of the last audit entry.
    seq: i64,
    audited: i64,
}

/// Changed resources that the data path sees: only their names, the view has their state.
#[derive(Debug, Default)]
pub(crate) struct ChangedResources {
    /// True if anything may have changed: the sets are not complete.
    pub all: bool,
    pub pools: BTreeSet<Name>,
    pub volumes: BTreeSet<VolumeName>,
}

impl ChangedResources {
    /// Returns a value that covers any change.
    pub fn everything() -> ChangedResources {
        ChangedResources {
            all: true,
            ..ChangedResources::default()
        }
    }

    /// Returns true if at most `most` volumes and no pools have changed.
    pub fn is_few(&self, most: usize) -> bool {
        !self.all && self.pools.is_empty() && self.volumes.len() <= most
    }

    fn extend(&mut self, more: ChangedResources) {
        self.all |= more.all;
        self.pools.extend(more.pools);
        self.volumes.extend(more.volumes);
    }
}

/// An accepted change that is being written to the catalog.
struct StagedChange {
    epoch: u64,
    writes: Vec<Write>,
    lazily_durable: bool,
    view: Box<View>,
    changed: ChangedResources,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

enum Message {
    Change(StagedChange),
    /// Replies when all waiting changes have been written.
    Drain(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// A change in progress, applied to the view and to the catalog alike.
pub(crate) struct Transaction<'h> {
    pub view: View,
    pub now: Stamp,
    writes: Vec<Write>,
    changed: ChangedResources,
    lazily_durable: bool,
    head: HeadMut<'h>,
}

struct HeadMut<'h> {
    ended: &'h mut VecDeque<Name>,
    seq: &'h mut i64,
    audited: &'h mut i64,
}

impl Transaction<'_> {
    /// Marks the change as lazily durable: if it is lost, with every later one, it will be made
    /// again and no client can notice.
    pub fn lazily_durable(&mut self) {
        self.lazily_durable = true;
    }

    pub fn put_pool(&mut self, pool: Pool) {
        let pool = Arc::new(pool);
        self.changed.pools.insert(pool.name.clone());
        self.writes.push(Write::Pool(Arc::clone(&pool)));
        self.view.put_pool(pool);
    }

    pub fn remove_pool(&mut self, pool: &Pool) {
        self.changed.pools.insert(pool.name.clone());
        self.writes
            .push(Write::RemovePool(pool.id, pool.name.clone()));
        self.view.remove_pool(&pool.name);
    }

    pub fn put_volume(&mut self, volume: Volume) {
        let volume = Arc::new(volume);
        self.changed.volumes.insert(volume.name.clone());
        let before = self.view.volume(&volume.name).cloned();
        self.writes.push(Write::Volume(Arc::clone(&volume)));
        let had = before.as_ref().map_or(&[][..], |before| &before.paths);
        let gone = had.iter().filter(|path| !volume.paths.contains(path));
        self.writes.extend(gone.cloned().map(Write::RemoveShare));
        let new = volume.paths.iter().filter(|path| !had.contains(path));
        let id = volume.id;
        self.writes
            .extend(new.map(|path| Write::Share(path.clone(), id)));
        self.view.put_volume(volume);
    }

    /// Stores a change of a volume that the data path does not see.
    pub fn note_volume(&mut self, volume: Volume) {
        let volume = Arc::new(volume);
        self.writes.push(Write::Volume(Arc::clone(&volume)));
        self.view.note_volume(volume);
    }

    /// Stores a volume with another state, and with the engine's number if given.
    pub fn set_state(&mut self, of: &Volume, state: State, details: &str, number: Option<u64>) {
        let mut volume = Volume::clone(of);
        volume.state = state;
        details.clone_into(&mut volume.state_details);
        volume.number = number.or(volume.number);
        self.put_volume(volume);
    }

    /// Removes a volume from the catalog, with its snapshots.
    pub fn remove_volume(&mut self, volume: &Volume) {
        for snapshot in self.view.snapshots_to_go(&volume.name) {
            self.remove_snapshot(&snapshot);
        }
        self.changed.volumes.insert(volume.name.clone());
        self.writes
            .push(Write::RemoveVolume(volume.id, volume.name.clone()));
        let paths = volume.paths.iter().cloned();
        self.writes.extend(paths.map(Write::RemoveShare));
        self.view.remove_volume(&volume.name);
    }

    pub fn put_policy(&mut self, policy: NamedPolicy) {
        let policy = Arc::new(policy);
        self.writes.push(Write::Policy(Arc::clone(&policy)));
        self.view.put_policy(policy);
    }

    pub fn remove_policy(&mut self, policy: &NamedPolicy) {
        self.writes
            .push(Write::RemovePolicy(policy.id, policy.name.clone()));
        self.view.remove_policy(&policy.name);
    }

    pub fn put_directory(&mut self, directory: ActiveDirectory) {
        let directory = Arc::new(directory);
        self.writes.push(Write::Directory(Arc::clone(&directory)));
        self.view.put_directory(directory);
    }

    pub fn remove_directory(&mut self, directory: &ActiveDirectory) {
        let gone = Write::RemoveDirectory(directory.id, directory.name.clone());
        self.writes.push(gone);
        self.view.remove_directory(&directory.name);
    }

    pub fn put_vault(&mut self, vault: BackupVault) {
        let vault = Arc::new(vault);
        self.writes.push(Write::Vault(Arc::clone(&vault)));
        self.view.put_vault(vault);
    }

    pub fn remove_vault(&mut self, vault: &BackupVault) {
        let gone = Write::RemoveVault(vault.id, vault.name.clone());
        self.writes.push(gone);
        self.view.remove_vault(&vault.name);
    }

    pub fn put_backup(&mut self, backup: Backup) {
        let backup = Arc::new(backup);
        self.writes.push(Write::Backup(Arc::clone(&backup)));
        self.view.put_backup(backup);
    }

    pub fn remove_backup(&mut self, backup: &Backup) {
        let gone = Write::RemoveBackup(backup.id, backup.name.clone());
        self.writes.push(gone);
        self.view.remove_backup(&backup.name);
    }

    pub fn put_backup_policy(&mut self, policy: BackupPolicy) {
        let policy = Arc::new(policy);
        self.writes.push(Write::BackupPolicy(Arc::clone(&policy)));
        self.view.put_backup_policy(policy);
    }

    pub fn remove_backup_policy(&mut self, policy: &BackupPolicy) {
        let gone = Write::RemoveBackupPolicy(policy.id, policy.name.clone());
        self.writes.push(gone);
        self.view.remove_backup_policy(&policy.name);
    }

    pub fn put_snapshot(&mut self, snapshot: Snapshot) {
        let snapshot = Arc::new(snapshot);
        self.writes.push(Write::Snapshot(Arc::clone(&snapshot)));
        self.view.put_snapshot(snapshot);
    }

    pub fn remove_snapshot(&mut self, snapshot: &Snapshot) {
        self.writes
            .push(Write::RemoveSnapshot(snapshot.id, snapshot.name.clone()));
        self.view.remove_snapshot(&snapshot.name);
    }

    /// Stores an operation; the oldest ended ones make room when there are too many.
    pub fn put_operation(&mut self, operation: Operation) {
        let operation = Arc::new(operation);
        if operation.done() {
            self.head.ended.push_back(operation.name.clone());
            if self.head.ended.len() >= OPERATIONS_KEPT + FORGOTTEN {
                let oldest = self.head.ended.drain(..FORGOTTEN).collect();
                self.remove_operations(oldest);
            }
        }
        self.writes.push(Write::Operation(Arc::clone(&operation)));
        self.view.put_operation(operation);
    }

    pub fn remove_operation(&mut self, name: &Name) {
        self.remove_operations(vec![name.clone()]);
    }

    fn remove_operations(&mut self, names: Vec<Name>) {
        for name in &names {
            self.view.remove_operation(name);
        }
        self.writes.push(Write::RemoveOperations(names));
    }

    /// Changes replication rows, in the given order.
    pub fn replicate(&mut self, edits: Vec<Edit>) {
        for edit in edits {
            self.view.relations.apply(&edit);
            self.writes.push(Write::Relation(edit));
        }
    }

    pub fn tombstone(&mut self, key: &Arc<str>) {
        self.writes.push(Write::Tombstone(Arc::clone(key)));
    }

    pub fn remove_tombstone(&mut self, key: &Arc<str>) {
        self.writes.push(Write::RemoveTombstone(Arc::clone(key)));
    }

    /// Records that the first start has created its resources, and that the catalog belongs to this
    /// aggregate.
    pub fn settled(&mut self, aggregate: Arc<str>) {
        self.writes.push(Write::Settled(aggregate));
    }

    /// Adds a line to the audit log. Returns its number.
    pub fn audit(&mut self, actor: &Actor, verb: &str, target: String, outcome: &str) -> i64 {
        let seq = self.now.0.max(self.head.seq.saturating_add(1));
        *self.head.seq = seq;
        *self.head.audited += 1;
        let entry = AuditEntry::new(seq, actor, verb, target, outcome);
        self.writes.push(Write::Audit(entry));
        if *self.head.audited % PRUNE_EVERY == 1 {
            self.writes.push(Write::PruneAudit);
        }
        seq
    }

    /// Writes an outcome to a line of the audit log.
    pub fn outcome(&mut self, seq: i64, words: String) {
        self.writes.push(Write::Outcome(seq, words));
    }

    /// Ends an operation, in the audit log as well.
    pub fn end(&mut self, operation: &Operation, outcome: Outcome, response: Option<Arc<str>>) {
        let mut operation = operation.clone();
        let words = match &outcome {
            Outcome::Failed(refusal) => format!("failed: {refusal}"),
            _ => "done".to_owned(),
        };
        if let Some(seq) = operation.audit {
            self.outcome(seq, words);
        }
        if operation.quiet && !matches!(outcome, Outcome::Failed(_)) {
            return self.remove_operation(&operation.name);
        }
        operation.ended = Some(self.now);
        operation.outcome = Some(outcome);
        operation.response = response;
        self.put_operation(operation);
    }
}

/// An accepted change that is being written to the catalog.
pub(crate) struct Ticket {
    /// Generation from which on the data path sees it.
    pub generation: u64,
    reply: oneshot::Receiver<Result<(), Refusal>>,
}

impl Ticket {
    /// Waits until it is in the view, and in the catalog unless it is lazily durable.
    pub async fn committed(self) -> Result<u64, Refusal> {
        match self.reply.await {
            Ok(result) => result.map(|()| self.generation),
            Err(_) => Err(closing()),
        }
    }
}

fn closing() -> Refusal {
    Refusal::new(
        Status::Unavailable,
        "CLOSING",
        "the server is being stopped",
    )
}

/// Copy of the catalog, and of the files that belong to it, in a second place: a pair's partner, a
/// cluster.
pub trait CatalogCopy: Send + Sync {
    /// Returns once the copy is the catalog and the files as they are now, or none is needed.
    fn bring_up_to_date(self: Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

pub(crate) struct Store {
    pub catalog: Catalog,
    /// Counts of commits and of jobs.
    pub counters: Counters,
    copy: Option<Arc<dyn CatalogCopy>>,
    levels: Arc<Levels>,
    instance_addresses: Option<AddressBlock>,
    owner: String,
    clock: Arc<dyn weir_base::Clock>,
    head: Mutex<Head>,
    view: ArcSwap<View>,
    /// Changes of the view since the last publication took them.
    changed: Mutex<ChangedResources>,
    revision: watch::Sender<u64>,
    queue: mpsc::UnboundedSender<Message>,
}

impl Store {
    /// Takes the catalog over, loads it, and starts the writer.
    pub async fn open(
        catalog: Catalog,
        levels: Levels,
        instance_addresses: Option<AddressBlock>,
        owner: String,
        clock: Arc<dyn weir_base::Clock>,
        copy: Option<Arc<dyn CatalogCopy>>,
    ) -> Result<(Arc<Store>, CatalogContents), CatalogError> {
        catalog.own(&owner).await?;
        let loaded = catalog.load(KNOWN).await?;
        let levels = Arc::new(levels);
        let (view, ended) = assemble(&levels, instance_addresses, &loaded);
        let (queue, messages) = mpsc::unbounded_channel();
        let store = Arc::new(Store {
            catalog,
            counters: Counters::default(),
            copy,
            levels,
            instance_addresses,
            owner,
            clock,
            view: ArcSwap::from_pointee(view.clone()),
            changed: Mutex::new(ChangedResources::everything()),
            revision: watch::Sender::new(view.revision),
            head: Mutex::new(Head {
                view,
                epoch: 0,
                broken: None,
                halted: None,
                ended,
                seq: loaded.last_audit,
                audited: 0,
            }),
            queue,
        });
        tokio::spawn(write_all(Arc::downgrade(&store), messages));
        Ok((store, loaded))
    }

    /// Returns the state that is in the catalog, or lazily durable.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Returns the view, and its changes since the last call.
    pub fn take_changed(&self) -> (Arc<View>, ChangedResources) {
        let mut changed = self.changed.lock();
        (self.view(), std::mem::take(&mut *changed))
    }

    /// Makes the next [`Store::take_changed`] report that everything has changed.
    pub fn all_changed(&self) {
        self.changed.lock().all = true;
    }

    /// Returns a receiver that is notified each time [`Store::view`] changes.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Continues the numbering after the audit log's last entry, which another process may have
    /// written.
    pub async fn follow_audit(&self) {
        if let Ok(last) = self.catalog.last_audit().await {
            let mut head = self.head.lock();
            head.seq = head.seq.max(last);
        }
    }

    /// Runs `f` on a transaction that is discarded, under the same conditions as [`Store::change`].
    pub fn validate<T>(
        &self,
        f: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let view = {
            let head = self.head.lock();
            match head.halted.as_ref().or(head.broken.as_ref()) {
                Some(why) => return Err(why.clone()),
                None => head.view.clone(),
            }
        };
        let (mut ended, mut seq, mut audited) = (VecDeque::new(), 0, 0);
        f(&mut Transaction {
            view,
            now: self.clock.current_time().into(),
            writes: Vec::new(),
            changed: ChangedResources::default(),
            lazily_durable: false,
            head: HeadMut {
                ended: &mut ended,
                seq: &mut seq,
                audited: &mut audited,
            },
        })
    }

    /// Makes a change: `f` edits the transaction, or refuses and has changed nothing.
    pub fn change<T>(
        &self,
        f: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<(T, Ticket), Refusal> {
        self.change_or(f)
    }

    /// Like [`Store::change`], with refusals of the caller's own type.
    pub fn change_or<T, E: From<Refusal>>(
        &self,
        f: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        let mut head = self.head.lock();
        if let Some(why) = head.halted.as_ref().or(head.broken.as_ref()) {
            return Err(why.clone().into());
        }
        let Head {
            view,
            epoch,
            ended,
            seq,
            audited,
            ..
        } = &mut *head;
        let mut tx = Transaction {
            view: view.clone(),
            now: self.clock.current_time().into(),
            writes: Vec::new(),
            changed: ChangedResources::default(),
            lazily_durable: false,
            head: HeadMut {
                ended,
                seq,
                audited,
            },
        };
        let value = f(&mut tx)?;
        let Transaction {
            view: mut next,
            writes,
            changed,
            lazily_durable,
            ..
        } = tx;
        next.revision += 1;
        *view = next.clone();
        let (reply, receive) = oneshot::channel();
        let generation = next.generation;
        let message = Message::Change(StagedChange {
            epoch: *epoch,
            writes,
            lazily_durable,
            view: Box::new(next),
            changed,
            reply,
        });
        // Sent under the lock: the writer gets changes in the order in which they were made.
        self.queue.send(message).map_err(|_| closing())?;
        let ticket = Ticket {
            generation,
            reply: receive,
        };
        Ok((value, ticket))
    }

    /// Makes a change that must not be lost, however often the catalog fails meanwhile. `f` gets
    /// the newest view each time. Gives up only when the server stops or another one took over.
    pub async fn commit_with_retry<T>(
        &self,
        mut f: impl FnMut(&mut Transaction<'_>) -> T,
    ) -> Result<(T, u64), Refusal> {
        loop {
            let staged = self.change(|tx| Ok(f(tx)));
            let result = match staged {
                Ok((value, ticket)) => ticket.committed().await.map(|at| (value, at)),
                Err(refusal) => Err(refusal),
            };
            match result {
                Err(why) if why.reason == "CATALOG_UNAVAILABLE" => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                other => return other,
            }
        }
    }

    /// Waits until the whole view is in the catalog, or the catalog cannot be written now.
    pub async fn drained(&self) {
        if self.head.lock().broken.is_some() {
            return;
        }
        let (reply, receive) = oneshot::channel();
        if self.queue.send(Message::Drain(reply)).is_ok() {
            // An error means that the writer has ended.
            let _ = receive.await;
        }
    }

    /// Refuses every change from now on; see [`crate::Control::halt`].
    pub fn halt(&self, why: &str) {
        // Clients would retry an unavailable server for a long time, but this state is permanent.
        let refusal = Refusal::new(Status::FailedPrecondition, "CATALOG_GONE", why);
        self.head.lock().halted = Some(refusal);
    }

    /// Refuses if changes have been halted.
    pub fn running(&self) -> Result<(), Refusal> {
        self.head.lock().halted.clone().map_or(Ok(()), Err)
    }

    /// Ends the writer once every accepted change is written, and closes the catalog.
    pub async fn close(&self) {
        let (reply, receive) = oneshot::channel();
        self.head.lock().broken = Some(closing());
        if self.queue.send(Message::Close(reply)).is_ok() {
            // An error means that the writer has ended already.
            let _ = receive.await;
        }
        self.catalog.close().await;
    }

    /// Handles a failed transaction: refuses changes that are not in the catalog until
    /// [`Store::reload`] is complete.
    fn fail(&self, error: &CatalogError) -> Refusal {
        tracing::error!(%error, "cannot write the catalog; refusing changes until it can be reloaded");
        let refusal = match error {
            CatalogError::Superseded => {
                Refusal::new(Status::Unavailable, "SUPERSEDED", error.to_string())
            }
            other => refused(other),
        };
        let mut head = self.head.lock();
        head.epoch += 1;
        head.broken = Some(refusal.clone());
        refusal
    }

    /// Reloads the catalog, however long that takes; `waiting` is in the view as well.
    async fn reload(&self, waiting: &[Write]) {
        loop {
            match self.catalog.load(KNOWN).await {
                Ok(loaded) => {
                    let (mut view, mut ended) =
                        assemble(&self.levels, self.instance_addresses, &loaded);
                    for write in waiting {
                        redo(&mut view, &mut ended, write);
                    }
                    let mut head = self.head.lock();
                    view.revision = head.view.revision + 1;
                    view.generation = head.view.generation + 1;
                    head.view = view.clone();
                    head.ended = ended;
                    head.seq = head.seq.max(loaded.last_audit);
                    head.broken = None;
                    drop(head);
                    self.show(view, ChangedResources::everything());
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot reload the catalog; retrying");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn show(&self, view: View, more: ChangedResources) {
        let revision = view.revision;
        {
            // Under one lock with the view: a caller that takes the changes gets the view that has
            // them.
            let mut changed = self.changed.lock();
            changed.extend(more);
            self.view.store(Arc::new(view));
        }
        self.revision.send_replace(revision);
    }
}

async fn write_all(store: std::sync::Weak<Store>, mut messages: mpsc::UnboundedReceiver<Message>) {
    let mut writer = Writer::default();
    while let Some(message) = writer.next(&mut messages).await {
        let Some(store) = store.upgrade() else { return };
        let mut batch = Vec::new();
        let mut ends = None;
        let mut one = message;
        while let Some(message) = one.take() {
            match message {
                Message::Drain(reply) => ends = Some((reply, false)),
                Message::Close(reply) => ends = Some((reply, true)),
                Message::Change(staged) => batch.push(staged),
            }
            if ends.is_none() && batch.len() < BATCH {
                one = messages.try_recv().ok();
            }
        }
        let due = ends.is_some() || writer.due.is_some_and(|due| due <= Instant::now());
        let written = writer.commit(&store, batch, due).await;
        let closes = matches!(ends, Some((_, true)));
        if !written && !closes {
            store.reload(&writer.waiting).await;
        }
        if let Some((reply, close)) = ends {
            // The caller may have stopped waiting.
            let _ = reply.send(());
            if close {
                return;
            }
        }
    }
}

/// State of the writer task between two transactions.
#[derive(Default)]
struct Writer {
    /// Changes in the view that are not yet in the catalog.
    waiting: Vec<Write>,
    /// Time by which they have to be written; `None` if there are none.
    due: Option<Instant>,
}

impl Writer {
    /// Returns the next message; `Some(None)` if waiting changes are due first, `None` if no
    /// message will come.
    async fn next(
        &self,
        messages: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Option<Option<Message>> {
        let next = messages.recv();
        match self.due {
            None => next.await.map(Some),
            Some(due) => match tokio::time::timeout_at(due, next).await {
                Ok(message) => message.map(Some),
                Err(_) => Some(None),
            },
        }
    }

    /// Applies a batch to the view, and writes it to the catalog if a part of it has to be durable
    /// or waiting changes are `due`. Returns `false` if the head has to be reloaded.
    async fn commit(&mut self, store: &Store, batch: Vec<StagedChange>, due: bool) -> bool {
        let epoch = store.head.lock().epoch;
        let (mut current, stale): (Vec<StagedChange>, Vec<StagedChange>) =
            batch.into_iter().partition(|staged| staged.epoch == epoch);
        for staged in stale {
            // The caller may have stopped waiting.
            let _ = staged.reply.send(Err(overtaken()));
        }
        if current.is_empty() && (!due || self.waiting.is_empty()) {
            return true;
        }
        let writes = current.iter().flat_map(|staged| &staged.writes);
        let now = due || current.iter().any(|staged| !staged.lazily_durable);
        let began = store.clock.monotonic();
        #[cfg(test)]
        crate::tests::crash::at_commit(store.catalog.url(), false).await;
        let result = match now {
            true => {
                let writes = self.waiting.iter().chain(writes);
                store.catalog.write(&store.owner, writes).await
            }
            false => Ok(()),
        };
        #[cfg(test)]
        crate::tests::crash::at_commit(store.catalog.url(), true).await;
        if let Some(copy) = store.copy.as_ref().filter(|_| now && result.is_ok()) {
            Arc::clone(copy).bring_up_to_date().await;
        }
        if now {
            // Saturates: the numbers are times.
            let took = store.clock.monotonic().saturating_sub(began);
            store
                .counters
                .committed(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        let refusal = match result {
            Ok(()) => {
                let mut changed = ChangedResources::default();
                for staged in &mut current {
                    changed.extend(std::mem::take(&mut staged.changed));
                }
                match now {
                    true => self.waiting.clear(),
                    false => {
                        let more = current.iter_mut();
                        self.waiting
                            .extend(more.flat_map(|staged| std::mem::take(&mut staged.writes)));
                    }
                }
                if let Some(last) = current.last() {
                    store.show(View::clone(&last.view), changed);
                }
                None
            }
            Err(error) => Some(store.fail(&error)),
        };
        self.due = match (&refusal, self.due) {
            _ if self.waiting.is_empty() => None,
            (Some(_), _) => Some(Instant::now() + AGAIN),
            (None, None) => Some(Instant::now() + LINGER),
            (None, due) => due,
        };
        for staged in current {
            let result = refusal.clone().map_or(Ok(()), Err);
            // The caller may have stopped waiting.
            let _ = staged.reply.send(result);
        }
        refusal.is_none_or(|refusal| refusal.reason == "SUPERSEDED")
    }
}

fn overtaken() -> Refusal {
    Refusal::new(
        Status::Unavailable,
        "CATALOG_UNAVAILABLE",
        "a change before this one could not be written to the catalog; try again",
    )
}

/// Returns the view of the loaded state, and the ended operations, oldest first.
fn assemble(
    levels: &Arc<Levels>,
    instance_addresses: Option<AddressBlock>,
    loaded: &CatalogContents,
) -> (View, VecDeque<Name>) {
    let mut view = View {
        instance_addresses,
        ..View::empty(Arc::clone(levels))
    };
    for pool in &loaded.pools {
        view.put_pool(Arc::new(pool.clone()));
    }
    for volume in &loaded.volumes {
        view.put_volume(Arc::new(volume.clone()));
    }
    for snapshot in &loaded.snapshots {
        view.put_snapshot(Arc::new(snapshot.clone()));
    }
    let mut ended: Vec<&Operation> = Vec::new();
    for operation in &loaded.operations {
        view.put_operation(Arc::new(operation.clone()));
        if operation.done() {
            ended.push(operation);
        }
    }
    ended.sort_by_key(|operation| operation.ended);
    let ended = ended.into_iter().map(|o| o.name.clone()).collect();
    for policy in &loaded.policies {
        view.put_policy(Arc::new(policy.clone()));
    }
    for directory in &loaded.directories {
        view.put_directory(Arc::new(directory.clone()));
    }
    for vault in &loaded.vaults {
        view.put_vault(Arc::new(vault.clone()));
    }
    for backup in &loaded.backups {
        view.put_backup(Arc::new(backup.clone()));
    }
    for policy in &loaded.backup_policies {
        view.put_backup_policy(Arc::new(policy.clone()));
    }
    for edit in &loaded.relations {
        view.relations.apply(edit);
    }
    view.revision = 1;
    view.generation = 1;
    (view, ended)
}

/// Applies a change to a view that was assembled without it.
fn redo(view: &mut View, ended: &mut VecDeque<Name>, write: &Write) {
    match write {
        Write::Pool(pool) => view.put_pool(Arc::clone(pool)),
        Write::Volume(volume) => view.put_volume(Arc::clone(volume)),
        Write::Snapshot(snapshot) => view.put_snapshot(Arc::clone(snapshot)),
        Write::Operation(operation) => {
            let was_done = view.operation(&operation.name).is_some_and(|o| o.done());
            if operation.done() && !was_done {
                ended.push_back(operation.name.clone());
            }
            view.put_operation(Arc::clone(operation));
        }
        Write::RemovePool(_, name) => view.remove_pool(name),
        Write::RemoveVolume(_, name) => view.remove_volume(name),
        Write::RemoveSnapshot(_, name) => view.remove_snapshot(name),
        Write::RemoveOperations(names) => {
            ended.retain(|kept| !names.contains(kept));
            for name in names {
                view.remove_operation(name);
            }
        }
        Write::Relation(edit) => view.relations.apply(edit),
        Write::Policy(policy) => view.put_policy(Arc::clone(policy)),
        Write::RemovePolicy(_, name) => view.remove_policy(name),
        Write::Directory(directory) => view.put_directory(Arc::clone(directory)),
        Write::RemoveDirectory(_, name) => view.remove_directory(name),
        Write::Vault(vault) => view.put_vault(Arc::clone(vault)),
        Write::RemoveVault(_, name) => view.remove_vault(name),
        Write::Backup(backup) => view.put_backup(Arc::clone(backup)),
        Write::RemoveBackup(_, name) => view.remove_backup(name),
        Write::BackupPolicy(policy) => view.put_backup_policy(Arc::clone(policy)),
        Write::RemoveBackupPolicy(_, name) => view.remove_backup_policy(name),
        // The view has nothing of these.
        Write::Share(..)
        | Write::RemoveShare(_)
        | Write::Tombstone(_)
        | Write::RemoveTombstone(_)
        | Write::Settled(_)
        | Write::Audit(_)
        | Write::Outcome(..)
        | Write::PruneAudit => {}
    }
}
