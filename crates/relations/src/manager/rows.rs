//! Rows of relationships and their settings: their form in the catalog, and the view of them that
//! rules are checked against.
//!
//! [`Relations`] is cheap to copy (persistent trees) and is changed only by [`Edit`]s, each of
//! which puts or deletes one row. Each edit also updates the indices for frequent queries:
//! relationships in the order of their creation, by UUID, by source, and those with pending work.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync as Map;
use serde::{Deserialize, Serialize};

use super::{Global, Use, uuid};
use crate::model::{
    ABORTED, CopiedSnapshot, FileRestore, LastTransfer, MirrorState, Note, Path, Policy,
    Relationship, SnapshotIdentity, TransferKind, VolumeUuid, lag, system_policies,
};
use crate::schedule::{self, Schedule};

/// Prime of the hash FNV-1a with 128 bits (draft-eastlake-fnv).
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A relationship whose destination is on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// UUID, chosen at creation; never changes.
    pub uuid: String,
    /// Ascends in the order of creation; unique among relationships.
    pub number: u64,
    /// Location of the source.
    pub source: Path,
    /// Source as users wrote it.
    pub shown: Path,
    /// The volume that is the copy; unique among relationships.
    pub destination: Path,
    /// The source, and the volumes that it is a copy of on any node, as of the last transfer.
    #[serde(default)]
    pub above: Vec<VolumeUuid>,
    /// Name of the policy that selects snapshots.
    pub policy: String,
    /// Name of the schedule; `None` if transfers run on request only.
    pub schedule: Option<String>,
    /// KB/s for the next transfers; `None` is unlimited.
    pub throttle: Option<u64>,
    /// Number of attempts for a transfer.
    pub tries: u32,
    /// State of the destination.
    pub state: MirrorState,
    /// True if no transfer may begin until the relationship is resumed.
    pub quiesced: bool,
    /// Slots of the schedule up to this second count as run.
    pub scheduled: i64,
    /// Time up to which the slots of a rule's schedule count as run, by the rule's label. A rule
    /// that is missing here ran when the newest snapshot was taken.
    #[serde(default)]
    pub ruled: BTreeMap<String, i64>,
    /// Pending or running work.
    pub pending: Option<PendingWork>,
    /// The last transfer.
    pub last: Option<LastTransfer>,
    /// The newest snapshot that the destination has.
    pub newest: Option<CopiedSnapshot>,
    /// Cause for which the relationship is unhealthy.
    pub trouble: Option<String>,
    /// True if created for a restore only, and deleted when that has ended.
    pub restore: bool,
    /// Files that a restore copies; empty is the whole volume.
    #[serde(default)]
    pub files: Vec<FileRestore>,
    /// True if the next transfer discards its checkpoint.
    pub anew: bool,
    /// True if a break follows when the transfer that is being aborted has ended; an uninitialized
    /// relationship is quiesced instead.
    pub stopping: bool,
    /// True if the relationship is deleted after that.
    #[serde(default)]
    pub ending: bool,
    /// Number of transfers requested so far.
    pub transfers: u64,
    /// Stored and shown as [`Relationship::note`].
    pub note: Option<Note>,
}

/// Work on a relationship's destination. It stays in the row until it has ended, so that it is
/// begun again after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingWork {
    /// UUID of the transfer, the same for all its attempts.
    pub uuid: String,
    /// Kind of work.
    pub work: Work,
    /// Name of the snapshot of the source to copy; `None` is the newest state.
    pub source_snapshot: Option<String>,
    /// Throttle of this transfer only.
    pub throttle: OwnThrottle,
    /// Time of the request, seconds since 1970.
    pub begun: i64,
    /// Number of failed attempts.
    pub failures: u32,
    /// True if it is to be aborted.
    pub aborting: bool,
    /// True if all files of a restore have arrived. Only their renames are left, which must not be
    /// repeated after a crash.
    #[serde(default)]
    pub arrived: bool,
}

/// The throttle of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnThrottle {
    /// The relationship's throttle.
    Relationships,
    /// No limit for this transfer.
    Unlimited,
    /// KB/s for this transfer.
    Max(u64),
}

impl OwnThrottle {
    pub(super) fn from_kbs(throttle: Option<Option<u64>>) -> OwnThrottle {
        match throttle {
            None => OwnThrottle::Relationships,
            Some(None) => OwnThrottle::Unlimited,
            Some(Some(kbs)) => OwnThrottle::Max(kbs),
        }
    }

    pub(super) fn under(self, relationships: Option<u64>) -> Option<u64> {
        match self {
            OwnThrottle::Relationships => relationships,
            OwnThrottle::Unlimited => None,
            OwnThrottle::Max(kbs) => Some(kbs),
        }
    }
}

/// The kind of a [`PendingWork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Moves data for this purpose.
    Transfer(TransferKind),
    /// Makes the destination writable at its last complete snapshot.
    Break,
}

/// A destination of a volume of this node, as the source knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDestination {
    /// UUID of the relationship.
    pub uuid: String,
    /// Ascends in the order in which destinations became known.
    pub number: u64,
    /// The source volume, on this node.
    pub source: Path,
    /// The destination, with the peer's name if it is on another node.
    pub destination: Path,
    /// Time of its last transfer, seconds since 1970.
    pub seen: Option<i64>,
    /// The snapshot that it copied last.
    pub newest: Option<SnapshotIdentity>,
    /// True while its own snapshots at the source are being deleted; the row is deleted after them.
    pub released: bool,
}

impl KnownDestination {
    /// Returns the relationship with the few attributes that the source knows.
    pub(super) fn to_relationship(&self) -> Relationship {
        let (source, destination) = (self.source.clone(), self.destination.clone());
        Relationship {
            state: MirrorState::Snapmirrored,
            ..Relationship::new(self.uuid.clone(), source, destination, "")
        }
    }
}

/// Another node that may copy from this one, and this one from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the peer on this node.
    pub name: String,
    /// Address `host:port`; `None` if only the peer connects.
    pub address: Option<String>,
    /// SHA-256 of its certificate, lower-case hexadecimal; unique among peers.
    pub fingerprint: String,
}

impl Entry {
    /// Returns true if its schedule may begin a transfer.
    pub fn may_run(&self) -> bool {
        self.state == MirrorState::Snapmirrored && !self.quiesced && self.pending.is_none()
    }

    /// As [`Relationship::lag`].
    pub fn lag(&self, now: i64) -> Option<u64> {
        lag(self.state, self.newest.as_ref(), now)
    }

    /// Returns true if the destination is a copy of the source, or is becoming one.
    pub fn copies(&self) -> bool {
        let moves = |p: &PendingWork| matches!(p.work, Work::Transfer(_));
        let moving = self.files.is_empty() && self.pending.as_ref().is_some_and(moves);
        self.state != MirrorState::BrokenOff || moving
    }

    /// Removes a transfer that does not run. It counts as aborted and becomes `last`, where clients
    /// can query it.
    pub(super) fn withdraw(&mut self, now: i64) {
        let Some((pending, kind)) = self.pending.take().and_then(|p| match p.work {
            Work::Transfer(kind) => Some((p, kind)),
            Work::Break => None,
        }) else {
            // A break leaves no transfer to query.
            return;
        };
        let tried = self.last.take().filter(|last| last.uuid == pending.uuid);
        let last = tried.unwrap_or(LastTransfer {
            uuid: pending.uuid,
            snapshot: pending.source_snapshot,
            kind,
            bytes: 0,
            wire_bytes: 0,
            duration_ms: 0,
            setup_ms: 0,
            data_ms: 0,
            finalize_ms: 0,
            rate: 0,
            end: now,
            error: None,
        });
        self.last = Some(LastTransfer {
            end: now,
            error: Some(ABORTED.to_owned()),
            ..last
        });
        self.trouble = Some(ABORTED.to_owned());
        self.stop(now);
    }

    /// Continues [`Verb::Stop`](super::Verb::Stop), if one was requested, once no transfer is left.
    pub(super) fn stop(&mut self, now: i64) {
        if self.pending.is_some() || !std::mem::take(&mut self.stopping) {
            return;
        }
        match self.state {
            MirrorState::Snapmirrored => self.begin(Work::Break, None, None, now),
            MirrorState::Uninitialized if self.restore => self.begin(Work::Break, None, None, now),
            MirrorState::Uninitialized => self.quiesced = true,
            MirrorState::BrokenOff => self.quiesced = false,
        }
    }

    /// Sets `pending`, with a new UUID for its transfer.
    pub(super) fn begin(
        &mut self,
        work: Work,
        source_snapshot: Option<String>,
        throttle: Option<Option<u64>>,
        now: i64,
    ) {
        self.transfers += 1;
        // Only the relationship's UUID is random. A transfer's UUID follows from it and from the
        // transfer's number.
        let of = self
            .uuid
            .bytes()
            .fold(u128::from(self.transfers), |hash, byte| {
                (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME)
            });
        self.pending = Some(PendingWork {
            uuid: uuid(of),
            work,
            source_snapshot,
            throttle: OwnThrottle::from_kbs(throttle),
            begun: now,
            failures: 0,
            aborting: false,
            arrived: false,
        });
    }
}

/// A row put or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Puts a relationship; its destination is the key.
    Relationship(Arc<Entry>),
    /// Deletes the relationship with this destination.
    NoRelationship(Path),
    /// Puts a known destination; the UUID of its relationship is the key.
    Destination(Arc<KnownDestination>),
    /// Deletes the known destination of the relationship with this UUID.
    NoDestination(String),
    /// Puts a user's policy; its name is the key.
    Policy(Arc<Policy>),
    /// Deletes the policy of this name.
    NoPolicy(String),
    /// Puts a user's schedule; its name is the key.
    Schedule(String, Schedule),
    /// Deletes the schedule of this name.
    NoSchedule(String),
    /// Puts a peer; its name is the key.
    Peer(Arc<Peer>),
    /// Deletes the peer of this name.
    NoPeer(String),
    /// Sets the global throttle of one direction.
    Throttle {
        /// True for incoming transfers, false for outgoing ones.
        incoming: bool,
        /// KB/s; `None` is set to unlimited.
        max: Option<u64>,
    },
}

/// Table of rows in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Rows of [`Edit::Relationship`], by destination.
    Relationships,
    /// Rows of [`Edit::Destination`], by UUID.
    Destinations,
    /// Rows of [`Edit::Policy`], by name.
    Policies,
    /// Rows of [`Edit::Schedule`], by name.
    Schedules,
    /// Rows of [`Edit::Peer`], by name.
    Peers,
    /// Rows of [`Edit::Throttle`], by direction.
    Throttles,
}

impl Table {
    /// All tables, in the order in which they are loaded.
    pub const ALL: [Table; 6] = [
        Table::Relationships,
        Table::Destinations,
        Table::Policies,
        Table::Schedules,
        Table::Peers,
        Table::Throttles,
    ];
}

const INCOMING: &str = "incoming";
const OUTGOING: &str = "outgoing";

impl Edit {
    /// Returns the row's table and key.
    pub fn place(&self) -> (Table, String) {
        match self {
            Edit::Relationship(entry) => (Table::Relationships, entry.destination.to_string()),
            Edit::NoRelationship(to) => (Table::Relationships, to.to_string()),
            Edit::Destination(known) => (Table::Destinations, known.uuid.clone()),
            Edit::NoDestination(uuid) => (Table::Destinations, uuid.clone()),
            Edit::Policy(policy) => (Table::Policies, policy.name.clone()),
            Edit::NoPolicy(name) => (Table::Policies, name.clone()),
            Edit::Schedule(name, _) | Edit::NoSchedule(name) => (Table::Schedules, name.clone()),
            Edit::Peer(peer) => (Table::Peers, peer.name.clone()),
            Edit::NoPeer(name) => (Table::Peers, name.clone()),
            Edit::Throttle { incoming, .. } => {
                let name = if *incoming { INCOMING } else { OUTGOING };
                (Table::Throttles, name.to_owned())
            }
        }
    }

    /// Returns the row as JSON; `None` if the edit deletes it.
    ///
    /// # Errors
    /// None are known: all these values have a JSON form.
    pub fn body(&self) -> Result<Option<String>, serde_json::Error> {
        match self {
            Edit::Relationship(entry) => serde_json::to_string(&**entry),
            Edit::Destination(known) => serde_json::to_string(&**known),
            Edit::Policy(policy) => serde_json::to_string(&**policy),
            Edit::Schedule(_, schedule) => serde_json::to_string(schedule),
            Edit::Peer(peer) => serde_json::to_string(&**peer),
            Edit::Throttle { max, .. } => serde_json::to_string(max),
            Edit::NoRelationship(_)
            | Edit::NoDestination(_)
            | Edit::NoPolicy(_)
            | Edit::NoSchedule(_)
            | Edit::NoPeer(_) => return Ok(None),
        }
        .map(Some)
    }

    /// Parses a stored row.
    ///
    /// # Errors
    /// The row is malformed.
    pub fn read(table: Table, key: &str, body: &str) -> Result<Edit, serde_json::Error> {
        Ok(match table {
            Table::Relationships => Edit::Relationship(Arc::new(serde_json::from_str(body)?)),
            Table::Destinations => Edit::Destination(Arc::new(serde_json::from_str(body)?)),
            Table::Policies => Edit::Policy(Arc::new(serde_json::from_str(body)?)),
            Table::Schedules => Edit::Schedule(key.to_owned(), serde_json::from_str(body)?),
            Table::Peers => Edit::Peer(Arc::new(serde_json::from_str(body)?)),
            Table::Throttles => Edit::Throttle {
                incoming: key == INCOMING,
                max: serde_json::from_str(body)?,
            },
        })
    }
}

/// All rows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relations {
    entries: Map<Path, Arc<Entry>>,
    /// By number: in the order of creation.
    made: Map<u64, Arc<Entry>>,
    /// By UUID.
    named: Map<String, Arc<Entry>>,
    /// By source.
    sources: Map<(Path, u64), Arc<Entry>>,
    /// Relationships with pending work, by number.
    busy: Map<u64, Arc<Entry>>,
    /// Relationships whose schedule may begin a transfer, by the first slot after their last run,
    /// and by number.
    slots: Map<(i64, u64), Arc<Entry>>,
    known: Map<String, Arc<KnownDestination>>,
    /// By number: in the order in which they became known.
    heard: Map<u64, Arc<KnownDestination>>,
    /// Known destinations by source.
    copies: Map<(Path, u64), Arc<KnownDestination>>,
    /// Known destinations that were released.
    released: Map<u64, Arc<KnownDestination>>,
    policies: Map<String, Arc<Policy>>,
    schedules: Map<String, Schedule>,
    peers: Map<String, Arc<Peer>>,
    incoming: Option<Option<u64>>,
    outgoing: Option<Option<u64>>,
}

impl Relations {
    /// Puts or deletes a row.
    pub fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::Relationship(entry) => {
                self.forget_entry(&entry.destination);
                let (number, row) = (entry.number, || Arc::clone(entry));
                self.named.insert_mut(entry.uuid.clone(), row());
                self.sources
                    .insert_mut((entry.source.clone(), number), row());
                if entry.pending.is_some() {
                    self.busy.insert_mut(number, row());
                }
                if let Some(at) = self.slot(entry) {
                    self.slots.insert_mut((at, number), row());
                }
                self.made.insert_mut(number, row());
                self.entries.insert_mut(entry.destination.clone(), row());
            }
            Edit::NoRelationship(to) => self.forget_entry(to),
            Edit::Destination(known) => {
                self.forget_known(&known.uuid);
                let (number, row) = (known.number, || Arc::clone(known));
                self.copies
                    .insert_mut((known.source.clone(), number), row());
                if known.released {
                    self.released.insert_mut(number, row());
                }
                self.heard.insert_mut(number, row());
                self.known.insert_mut(known.uuid.clone(), row());
            }
            Edit::NoDestination(uuid) => self.forget_known(uuid),
            Edit::Policy(policy) => self
                .policies
                .insert_mut(policy.name.clone(), Arc::clone(policy)),
            Edit::NoPolicy(name) => {
                self.policies.remove_mut(name);
            }
            Edit::Schedule(name, schedule) => self.reschedule(name, Some(*schedule)),
            Edit::NoSchedule(name) => self.reschedule(name, None),
            Edit::Peer(peer) => self.peers.insert_mut(peer.name.clone(), Arc::clone(peer)),
            Edit::NoPeer(name) => {
                self.peers.remove_mut(name);
            }
            Edit::Throttle { incoming, max } => match incoming {
                true => self.incoming = Some(*max),
                false => self.outgoing = Some(*max),
            },
        }
    }

    /// Changes a user's schedule, and the slots of relationships that have it.
    fn reschedule(&mut self, name: &str, to: Option<Schedule>) {
        let has = |e: &&Arc<Entry>| e.schedule.as_deref() == Some(name);
        let with: Vec<Arc<Entry>> = self.entries.values().filter(has).cloned().collect();
        for entry in &with {
            self.forget_entry(&entry.destination);
        }
        match to {
            Some(schedule) => self.schedules.insert_mut(name.to_owned(), schedule),
            None => drop(self.schedules.remove_mut(name)),
        }
        for entry in with {
            self.apply(&Edit::Relationship(entry));
        }
    }

    /// Returns the first slot of its schedule after its last run, if it may run then.
    fn slot(&self, entry: &Entry) -> Option<i64> {
        let schedule = entry.schedule.as_deref().filter(|_| entry.may_run());
        self.schedule(schedule?)?.next(entry.scheduled)
    }

    /// Returns the relationships for which a slot has passed since the last run.
    pub(super) fn due(&self, now: i64) -> impl Iterator<Item = &Arc<Entry>> {
        let due = self.slots.range(..=(now, u64::MAX));
        due.map(|(_, entry)| entry)
    }

    fn forget_entry(&mut self, destination: &Path) {
        if let Some(before) = self.entries.get(destination).cloned() {
            self.named.remove_mut(&before.uuid);
            self.sources
                .remove_mut(&(before.source.clone(), before.number));
            self.busy.remove_mut(&before.number);
            if let Some(at) = self.slot(&before) {
                self.slots.remove_mut(&(at, before.number));
            }
            self.made.remove_mut(&before.number);
            self.entries.remove_mut(destination);
        }
    }

    fn forget_known(&mut self, uuid: &str) {
        if let Some(before) = self.known.get(uuid).cloned() {
            self.copies
                .remove_mut(&(before.source.clone(), before.number));
            self.released.remove_mut(&before.number);
            self.heard.remove_mut(&before.number);
            self.known.remove_mut(uuid);
        }
    }

    /// Returns the relationship with this destination.
    pub fn entry(&self, destination: &Path) -> Option<&Arc<Entry>> {
        self.entries.get(destination)
    }

    /// Returns the relationship with this UUID.
    pub fn find_by_uuid(&self, uuid: &str) -> Option<&Arc<Entry>> {
        self.named.get(uuid)
    }

    /// Returns the relationships with a number above `after`, in the order of creation.
    pub fn entries(&self, after: u64) -> impl Iterator<Item = &Arc<Entry>> {
        self.made
            .range((Bound::Excluded(after), Bound::Unbounded))
            .map(|(_, entry)| entry)
    }

    /// Returns the relationships with pending work, and that work.
    pub fn busy(&self) -> impl Iterator<Item = (&Arc<Entry>, &PendingWork)> {
        let busy = self.busy.values();
        busy.filter_map(|entry| Some((entry, entry.pending.as_ref()?)))
    }

    /// Returns the relationships that copy from this volume.
    pub fn copying(&self, source: &Path) -> impl Iterator<Item = &Arc<Entry>> {
        self.sources
            .range((source.clone(), 0)..=(source.clone(), u64::MAX))
            .map(|(_, entry)| entry)
    }

    /// Returns the destinations of volumes of this node, in the order in which they became known.
    pub fn known(&self) -> impl Iterator<Item = &Arc<KnownDestination>> {
        self.heard.values()
    }

    /// Returns a known destination by its relationship's UUID.
    pub fn destination(&self, uuid: &str) -> Option<&Arc<KnownDestination>> {
        self.known.get(uuid)
    }

    /// Returns the known destinations that were released and are still being cleaned up.
    pub(super) fn released(&self) -> impl Iterator<Item = &Arc<KnownDestination>> {
        self.released.values()
    }

    /// Returns the known destinations of a volume of this node, without released ones.
    pub(super) fn copies(&self, source: &Path) -> impl Iterator<Item = &Arc<KnownDestination>> {
        self.copies
            .range((source.clone(), 0)..=(source.clone(), u64::MAX))
            .map(|(_, known)| known)
            .filter(|known| !known.released)
    }

    /// Returns the snapshots of a volume that relationships need for their next transfers.
    pub fn needed(&self, path: &Path) -> Vec<SnapshotIdentity> {
        let copies = self.copies(path).filter_map(|known| known.newest);
        let own = self.entry(path).and_then(|e| e.newest.as_ref());
        copies.chain(own.map(|newest| newest.id)).collect()
    }

    /// Returns the snapshots of `path` that copies other than `but` need for their next transfers.
    pub(super) fn needed_but(&self, path: &Path, but: &Path) -> Vec<SnapshotIdentity> {
        let others = self.copies(path).filter(|known| known.destination != *but);
        others.filter_map(|known| known.newest).collect()
    }

    /// Returns the role of a volume in a relationship, and that relationship's destination. A
    /// destination on another node counts until it is released.
    pub fn volume_in_use(&self, path: &Path) -> Option<(Use, Path)> {
        if let Some(entry) = self.entry(path) {
            return Some((Use::Destination, entry.destination.clone()));
        }
        let own = self.copying(path).map(|e| &e.destination);
        let known = self.copies(path).map(|k| &k.destination);
        let destination = own.chain(known).next()?;
        Some((Use::Source, destination.clone()))
    }

    /// Returns true if its source is on a node that is not paired with this one yet, so that no
    /// transfer can begin.
    pub fn awaits_peer(&self, entry: &Entry) -> bool {
        !entry.source.cluster.is_empty() && self.peer(&entry.source.cluster).is_none()
    }

    /// Returns true if some relationship copies from this peer.
    pub fn uses_peer(&self, name: &str) -> bool {
        self.entries.values().any(|e| e.source.cluster == name)
    }

    /// Returns the number for the next relationship or known destination.
    pub(super) fn next_number(&self) -> u64 {
        let last = self.made.last().map_or(0, |(number, _)| *number);
        let known = self.heard.last().map_or(0, |(number, _)| *number);
        last.max(known) + 1
    }

    /// Returns all policies, built-in ones and the users', by name.
    pub fn policies(&self) -> Vec<Policy> {
        let mut all = system_policies();
        all.extend(self.policies.values().map(|policy| Policy::clone(policy)));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Returns the users' policies by name.
    pub(super) fn own_policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// Returns the policy of this name: a user's, or else a built-in one.
    pub fn policy(&self, name: &str) -> Option<Policy> {
        match self.policies.get(name) {
            Some(own) => Some(Policy::clone(own)),
            None => system_policies().into_iter().find(|p| p.name == name),
        }
    }

    /// Returns the users' schedules by name. [`schedule::built_in_schedules`] has the built-in
    /// ones.
    pub fn own_schedules(&self) -> impl Iterator<Item = (&String, &Schedule)> {
        self.schedules.iter()
    }

    /// Returns the schedule of this name: a built-in one, or else a user's.
    pub fn schedule(&self, name: &str) -> Option<Schedule> {
        let built_in = schedule::built_in_schedules()
            .into_iter()
            .find(|(n, ..)| *n == name);
        match built_in {
            Some((_, schedule, _)) => Some(schedule),
            None => self.schedules.get(name).copied(),
        }
    }

    /// Returns all peers by name.
    pub fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.peers.values()
    }

    /// Returns the peer of this name.
    pub fn peer(&self, name: &str) -> Option<&Arc<Peer>> {
        self.peers.get(name)
    }

    /// Returns the global throttle of incoming or of outgoing transfers.
    pub fn global_throttle(&self, incoming: bool) -> Global {
        match if incoming {
            self.incoming
        } else {
            self.outgoing
        } {
            None => Global::Unset,
            Some(None) => Global::Unlimited,
            Some(Some(kbs)) => Global::Max(kbs),
        }
    }
}

/// A change in progress: the rows after it, and the edits that lead there.
#[derive(Debug)]
pub struct ChangeSet {
    pub(super) rows: Relations,
    edits: Vec<Edit>,
}

impl ChangeSet {
    /// Begins a change of these rows.
    pub fn to(rows: &Relations) -> ChangeSet {
        ChangeSet {
            rows: rows.clone(),
            edits: Vec::new(),
        }
    }

    /// Returns the edits, in order.
    pub fn into_edits(self) -> Vec<Edit> {
        self.edits
    }

    pub(super) fn make(&mut self, edit: Edit) {
        self.rows.apply(&edit);
        self.edits.push(edit);
    }

    pub(super) fn put(&mut self, entry: Entry) {
        self.make(Edit::Relationship(Arc::new(entry)));
    }

    /// Puts the row, or deletes the relationship if that was requested and no work is pending.
    pub(super) fn put_or_end(&mut self, entry: Entry) {
        if !entry.ending || entry.pending.is_some() {
            return self.put(entry);
        }
        let (source, to) = (&entry.source, &entry.destination);
        self.make(Edit::NoRelationship(to.clone()));
        // The relationship may have been reversed.
        let copies = self.rows.copies(source).chain(self.rows.copies(to));
        let between = |k: &&Arc<KnownDestination>| {
            let ends = (&k.source, &k.destination);
            ends == (source, to) || ends == (to, source)
        };
        // A relationship whose destination is on another node may still exist there.
        let gone: Vec<Arc<KnownDestination>> = copies
            .filter(between)
            .filter(|known| known.destination.cluster.is_empty())
            .filter(|known| self.rows.find_by_uuid(&known.uuid).is_none())
            .cloned()
            .collect();
        for known in gone {
            let released = true;
            self.make(Edit::Destination(Arc::new(KnownDestination {
                released,
                ..KnownDestination::clone(&known)
            })));
        }
    }

    /// Records that a destination of a volume of this node has transferred.
    pub(super) fn know(
        &mut self,
        uuid: &str,
        source: &Path,
        to: &Path,
        seen: i64,
        newest: Option<SnapshotIdentity>,
    ) {
        let mut known = match self.rows.destination(uuid) {
            Some(known) => KnownDestination::clone(known),
            None => KnownDestination {
                uuid: uuid.to_owned(),
                number: self.rows.next_number(),
                source: source.clone(),
                destination: to.clone(),
                seen: None,
                newest: None,
                released: false,
            },
        };
        known.released = false;
        known.seen = Some(seen);
        known.newest = newest.or(known.newest);
        self.make(Edit::Destination(Arc::new(known)));
    }
}
