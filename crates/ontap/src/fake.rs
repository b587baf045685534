//! A cluster that stores nothing and remembers everything: for tests of what stands above [`Cluster`].
//!
//! It keeps the rules of the states (what can be broken, what has to be broken first), so that a client's sequence of
//! calls runs as it would against data. Transfers move on only when [`Fake::step`] says so, or, in one made by
//! [`Fake::running`], by one step whenever somebody looks, which is what pollers do.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_replica::model::{
    ABORTED, Copied, LastTransfer, MirrorState, Path, Policy, Relationship, Rule, SnapshotIdentity,
    Status, Transfer, TransferKind, system_policies,
};
use weir_replica::schedule::named;

use crate::cluster::{
    Change, Cluster, Failure, NamedSchedule, Peer, Reason, Snapshot, Throttle, Volume,
};

/// What the fake holds; tests reach in as they like.
#[derive(Debug, Default)]
pub struct State {
    /// Relationships.
    pub relationships: Vec<Relationship>,
    /// Snapshots.
    pub snapshots: Vec<Snapshot>,
    /// Volumes.
    pub volumes: Vec<Volume>,
    /// Policies of the user.
    pub policies: Vec<Policy>,
    /// Schedules of the user.
    pub schedules: Vec<NamedSchedule>,
    /// Peers.
    pub peers: Vec<Peer>,
    /// Global throttles: incoming, outgoing.
    pub global: [Option<Option<u64>>; 2],
    /// All that was asked for, in order, refused or not.
    pub changes: Vec<Change>,
    next: u64,
    /// Transfers move on whenever relationships are listed.
    pub moves: bool,
}

/// The cluster.
#[derive(Debug, Default)]
pub struct Fake(Mutex<State>);

/// The bytes of every transfer.
pub const BYTES: u64 = 550_397_542;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap_or_else(|| Path::local(text, ""))
}

fn missing() -> Failure {
    Failure::new(
        Reason::NotFound,
        "There are no entries matching your query.",
    )
}

fn state(message: impl Into<String>) -> Failure {
    Failure::new(Reason::State, message)
}

impl Fake {
    /// With nothing in it.
    pub fn empty() -> Fake {
        Fake::default()
    }

    /// One whose transfers move on whenever its relationships are looked at, with the volumes given.
    pub fn running(volumes: &[&str]) -> Fake {
        let fake = Fake::default();
        fake.state().moves = true;
        for volume in volumes {
            fake.state().volume(path(volume), 16 << 30, false);
        }
        fake
    }

    /// What the walk through SnapMirror's throttles begins with: a volume with two copies, both quiesced.
    pub fn session() -> Fake {
        let fake = Fake::default();
        {
            let mut s = fake.state();
            s.volume(path("SVM:vol_test"), 16 << 30, false);
            s.volume(path("SVM:vol_test_dst"), 16 << 30, true);
            s.volume(path("SVM:vol_test_1_dst"), 16 << 30, true);
            for (destination, policy) in [
                ("SVM:vol_test_dst", "MirrorAllSnapshots"),
                ("SVM:vol_test_1_dst", "XDPDefault"),
            ] {
                let uuid = s.uuid();
                let mut r = relationship(uuid, path("SVM:vol_test"), path(destination), policy);
                r.schedule = Some("5min".to_owned());
                r.state = MirrorState::Snapmirrored;
                r.status = Status::Quiesced;
                r.healthy = false;
                s.relationships.push(r);
            }
        }
        fake
    }

    /// What it holds.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes one relationship behind everybody's back.
    pub fn set(&self, destination: &str, change: impl FnOnce(&mut Relationship)) {
        let mut s = self.state();
        if let Ok(r) = s.relationship(&path(destination)) {
            change(r);
        }
    }

    /// Moves every transfer on by a step: queued, transferring, done.
    pub fn step(&self) {
        self.state().step();
    }
}

fn relationship(uuid: String, source: Path, destination: Path, policy: &str) -> Relationship {
    Relationship {
        tries: 8,
        ..Relationship::new(uuid, source, destination, policy)
    }
}

const NOW: i64 = 1_683_200_000;

impl State {
    fn uuid(&mut self) -> String {
        self.next += 1;
        format!("00000000-0000-4000-8000-{:012}", self.next)
    }

    fn volume(&mut self, path: Path, size: u64, protection: bool) {
        let uuid = self.uuid();
        self.volumes.push(Volume {
            junction: Some(format!("/{}", path.volume)),
            path,
            uuid,
            location: "local".to_owned(),
            pool: "default".to_owned(),
            created: NOW,
            parent: None,
            size: Some(size),
            used: 10_093_173_145.min(size),
            protection,
        });
    }

    fn relationship(&mut self, destination: &Path) -> Result<&mut Relationship, Failure> {
        self.relationships
            .iter_mut()
            .find(|r| r.destination == *destination)
            .ok_or_else(missing)
    }

    fn step(&mut self) {
        for r in &mut self.relationships {
            let Some(transfer) = &mut r.transfer else {
                continue;
            };
            if r.status == Status::Queued {
                r.status = Status::Transferring;
                transfer.bytes = BYTES / 2;
                transfer.wire_bytes = BYTES / 2;
                continue;
            }
            let kind = transfer.kind;
            let name = format!("snapmirror.{}", r.uuid);
            r.last = Some(LastTransfer {
                uuid: transfer.uuid.clone(),
                snapshot: Some(name.clone()),
                kind,
                bytes: BYTES,
                wire_bytes: BYTES,
                duration_ms: 41_000,
                setup_ms: 500,
                data_ms: 40_000,
                finalize_ms: 500,
                rate: BYTES / 40,
                end: NOW,
                error: None,
            });
            let any = SnapshotIdentity::decode(&[0; SnapshotIdentity::LEN]);
            r.newest = any.map(|id| Copied {
                name: name.clone(),
                taken: NOW - 60,
                id,
            });
            r.exported = r.newest.clone();
            r.state = MirrorState::Snapmirrored;
            r.status = match r.status {
                Status::Quiescing => Status::Quiesced,
                _ => Status::Idle,
            };
            r.transfer = None;
        }
    }

    fn transfer(
        &mut self,
        destination: &Path,
        kind: TransferKind,
        snapshot: Option<String>,
        throttle: Option<Option<u64>>,
    ) -> Result<(), Failure> {
        let uuid = self.uuid();
        let r = self.relationship(destination)?;
        if r.transfer.is_some() {
            return Err(Failure::new(
                Reason::Busy,
                "Another transfer is in progress.",
            ));
        }
        r.status = Status::Queued;
        r.transfer = Some(Transfer {
            uuid,
            kind,
            snapshot,
            started: NOW,
            bytes: 0,
            wire_bytes: 0,
            checkpoint: 0,
            updated: NOW,
            rate: 13_000_000,
            bound_by: None,
            total: Some(BYTES),
            throttle: throttle.unwrap_or(r.throttle),
        });
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), Failure> {
        match change {
            Change::Create {
                source,
                destination,
                policy,
                schedule,
                throttle,
                tries,
                annotation,
            } => {
                if self.relationship(&destination).is_ok() {
                    return Err(Failure::new(
                        Reason::Duplicate,
                        format!("Relationship with destination \"{destination}\" already exists."),
                    ));
                }
                for volume in [&source, &destination] {
                    let there = self.volumes.iter().any(|v| v.path == *volume);
                    if volume.cluster.is_empty() && !there {
                        return Err(Failure::new(
                            Reason::NotFound,
                            format!("Volume \"{volume}\" does not exist."),
                        ));
                    }
                }
                let uuid = self.uuid();
                let policy = policy.unwrap_or_else(|| "MirrorAllSnapshots".to_owned());
                let mut r = relationship(uuid, source, destination, &policy);
                (r.schedule, r.throttle) = (schedule, throttle);
                r.tries = tries.unwrap_or(8);
                r.annotation = annotation;
                self.relationships.push(r);
            }
            Change::Modify {
                destination,
                policy,
                schedule,
                throttle,
                tries,
                annotation,
            } => {
                let r = self.relationship(&destination)?;
                r.policy = policy.unwrap_or_else(|| r.policy.clone());
                r.schedule = schedule.unwrap_or_else(|| r.schedule.clone());
                r.throttle = throttle.unwrap_or(r.throttle);
                r.tries = tries.unwrap_or(r.tries);
                r.annotation = annotation.unwrap_or_else(|| r.annotation.clone());
            }
            Change::Initialize {
                destination,
                source_snapshot,
                throttle,
            } => {
                if self.relationship(&destination)?.state != MirrorState::Uninitialized {
                    return Err(state("Relationship is already initialized."));
                }
                self.transfer(
                    &destination,
                    TransferKind::Initialize,
                    source_snapshot,
                    throttle,
                )?;
            }
            Change::Update {
                destination,
                source_snapshot,
                throttle,
            } => {
                let r = self.relationship(&destination)?;
                match (r.state, r.status) {
                    (MirrorState::Snapmirrored, Status::Quiesced) => {
                        return Err(state("Relationship is quiesced."));
                    }
                    (MirrorState::Snapmirrored, _) => {}
                    _ => return Err(state("Volume is not initialized.")),
                }
                self.transfer(
                    &destination,
                    TransferKind::Update,
                    source_snapshot,
                    throttle,
                )?;
            }
            Change::Quiesce(destination) => {
                let r = self.relationship(&destination)?;
                r.status = match r.transfer {
                    Some(_) => Status::Quiescing,
                    None => Status::Quiesced,
                };
            }
            Change::Resume(destination) => {
                let r = self.relationship(&destination)?;
                r.status = match r.transfer {
                    Some(_) => Status::Transferring,
                    None => Status::Idle,
                };
                r.healthy = true;
            }
            Change::Abort { destination, .. } => {
                let r = self.relationship(&destination)?;
                let Some(t) = r.transfer.take() else {
                    return Err(state("No transfer to abort."));
                };
                r.status = match r.status {
                    Status::Quiescing => Status::Quiesced,
                    _ => Status::Idle,
                };
                r.last = Some(LastTransfer {
                    uuid: t.uuid,
                    snapshot: t.snapshot,
                    kind: t.kind,
                    bytes: t.bytes,
                    wire_bytes: t.wire_bytes,
                    duration_ms: 1000,
                    setup_ms: 0,
                    data_ms: 1000,
                    finalize_ms: 0,
                    rate: t.wire_bytes,
                    end: NOW,
                    error: Some(ABORTED.to_owned()),
                });
            }
            Change::Break(destination) => {
                let r = self.relationship(&destination)?;
                if r.transfer.is_some() {
                    return Err(Failure::new(
                        Reason::Busy,
                        "Another transfer is in progress.",
                    ));
                }
                if r.state == MirrorState::Uninitialized {
                    return Err(state("Volume is not initialized."));
                }
                r.state = MirrorState::BrokenOff;
                r.status = Status::Idle;
            }
            Change::Resync {
                destination,
                source,
                ..
            } => {
                if let Some(source) = source {
                    let uuid = self.uuid();
                    let mut r =
                        relationship(uuid, source, destination.clone(), "MirrorAllSnapshots");
                    r.state = MirrorState::BrokenOff;
                    self.relationships.push(r);
                }
                if self.relationship(&destination)?.state != MirrorState::BrokenOff {
                    return Err(state("Relationship is not in a broken-off state."));
                }
                self.transfer(&destination, TransferKind::Resync, None, None)?;
            }
            Change::Restore {
                source,
                destination,
                source_snapshot,
                throttle,
                ..
            } => {
                let uuid = self.uuid();
                let r = relationship(uuid, source, destination.clone(), "MirrorAllSnapshots");
                self.relationships.push(r);
                self.transfer(
                    &destination,
                    TransferKind::Restore,
                    source_snapshot,
                    Some(throttle),
                )?;
            }
            Change::Release(destination) => {
                self.relationship(&destination)?;
            }
            Change::Delete(destination) => {
                self.relationship(&destination)?;
                self.relationships.retain(|r| r.destination != destination);
            }
            other => self.administer(other)?,
        }
        Ok(())
    }

    fn administer(&mut self, change: Change) -> Result<(), Failure> {
        match change {
            Change::PolicyCreate {
                name,
                kind,
                comment,
                compression,
            } => {
                let taken = system_policies().iter().any(|p| p.name == name);
                if taken || self.policies.iter().any(|p| p.name == name) {
                    return Err(Failure::new(Reason::Duplicate, "duplicate entry"));
                }
                self.policies.push(Policy {
                    name,
                    kind,
                    rules: Vec::new(),
                    comment,
                    compression,
                    system: false,
                });
            }
            Change::PolicyModify {
                name,
                comment,
                compression,
            } => {
                let p = self.policy(&name)?;
                p.comment = comment.unwrap_or_else(|| p.comment.clone());
                p.compression = compression.unwrap_or(p.compression);
            }
            Change::PolicyDelete(name) => {
                self.policy(&name)?;
                self.policies.retain(|p| p.name != name);
            }
            Change::PolicyRule { name, label, keep } => {
                let p = self.policy(&name)?;
                p.rules.retain(|r| r.label != label);
                p.rules.extend(keep.map(|keep| Rule { label, keep }));
            }
            Change::SnapshotCreate {
                path,
                name,
                label,
                comment,
            } => {
                let taken = |s: &Snapshot| s.path == path && s.name == name;
                if self.snapshots.iter().any(taken) {
                    return Err(Failure::new(
                        Reason::Duplicate,
                        format!("Snapshot \"{name}\" already exists."),
                    ));
                }
                let uuid = self.uuid();
                self.snapshots.push(Snapshot {
                    path,
                    name,
                    created: 1_683_194_220,
                    size: 0,
                    label,
                    comment,
                    uuid,
                });
            }
            Change::SnapshotDelete { path, name } => {
                self.snapshots.retain(|s| s.path != path || s.name != name);
            }
            Change::SnapshotRename {
                path,
                name,
                new_name,
            } => {
                if let Some(s) = self.snapshot(&path, &name) {
                    s.name = new_name;
                }
            }
            Change::SnapshotModify {
                path,
                name,
                label,
                comment,
            } => {
                if let Some(s) = self.snapshot(&path, &name) {
                    s.label = label.unwrap_or_else(|| s.label.clone());
                    s.comment = comment.unwrap_or_else(|| s.comment.clone());
                }
            }
            Change::VolumeCreate {
                path,
                size,
                protection,
                ..
            } => {
                if self.volumes.iter().any(|v| v.path == path) {
                    return Err(Failure::new(
                        Reason::Duplicate,
                        format!("Volume \"{}\" already exists.", path.volume),
                    ));
                }
                self.volume(path, size, protection);
            }
            Change::VolumeProtect(path) => {
                if let Some(v) = self.volumes.iter_mut().find(|v| v.path == path) {
                    v.protection = true;
                }
            }
            Change::VolumeDelete(path) => self.volumes.retain(|v| v.path != path),
            Change::VolumeClone {
                path,
                parent,
                snapshot,
            } => {
                self.volume(path, 16 << 30, false);
                if let Some(v) = self.volumes.last_mut() {
                    v.parent = Some((parent, snapshot.unwrap_or_else(|| "clone".to_owned())));
                }
            }
            Change::VolumeSplit(path) => {
                if let Some(v) = self.volumes.iter_mut().find(|v| v.path == path) {
                    v.parent = None;
                }
            }
            Change::ScheduleCreate { name, schedule } => self.schedules.push(NamedSchedule {
                about: name.clone(),
                name,
                schedule,
                system: false,
            }),
            Change::ScheduleDelete(name) => self.schedules.retain(|s| s.name != name),
            Change::PeerCreate {
                name,
                address,
                fingerprint,
            } => self.peers.push(Peer {
                name,
                address,
                fingerprint,
                available: None,
                reason: None,
            }),
            Change::PeerDelete(name) => self.peers.retain(|p| p.name != name),
            Change::GlobalThrottle { incoming, max } => {
                let [first, second] = &mut self.global;
                *(if incoming { first } else { second }) = Some(max);
            }
            _ => {}
        }
        Ok(())
    }

    fn policy(&mut self, name: &str) -> Result<&mut Policy, Failure> {
        if system_policies().iter().any(|p| p.name == name) {
            return Err(state(format!(
                "Policy \"{name}\" is a system policy and cannot be modified."
            )));
        }
        self.policies
            .iter_mut()
            .find(|p| p.name == name)
            .ok_or_else(missing)
    }

    fn snapshot(&mut self, path: &Path, name: &str) -> Option<&mut Snapshot> {
        self.snapshots
            .iter_mut()
            .find(|s| s.path == *path && s.name == name)
    }
}

impl Cluster for Fake {
    fn name(&self) -> String {
        "FsxId05f72eb8f8d03c709".to_owned()
    }

    fn uuid(&self) -> String {
        "00000000-0000-4000-8000-000000000000".to_owned()
    }

    fn now(&self) -> i64 {
        NOW
    }

    fn relationships(&self) -> Vec<Relationship> {
        let mut s = self.state();
        let seen = s.relationships.clone();
        if s.moves {
            s.step();
        }
        seen
    }

    fn destinations(&self) -> Vec<Relationship> {
        self.state().relationships.clone()
    }

    fn policies(&self) -> Vec<Policy> {
        let mut all = system_policies();
        all.extend(self.state().policies.iter().cloned());
        all
    }

    fn schedules(&self) -> Vec<NamedSchedule> {
        let ours = named()
            .into_iter()
            .map(|(name, schedule, about)| NamedSchedule {
                name: name.to_owned(),
                schedule,
                about: about.to_owned(),
                system: true,
            });
        ours.chain(self.state().schedules.iter().cloned()).collect()
    }

    fn volumes(&self) -> Vec<Volume> {
        self.state().volumes.clone()
    }

    fn snapshots(&self, of: Option<&Path>) -> Vec<Snapshot> {
        let all = self.state();
        let meant = all
            .snapshots
            .iter()
            .filter(|s| of.is_none_or(|of| s.path == *of));
        meant.cloned().collect()
    }

    fn global_throttle(&self, incoming: bool) -> Throttle {
        let [first, second] = self.state().global;
        match if incoming { first } else { second } {
            Some(Some(kbs)) => Throttle::Max(kbs),
            Some(None) => Throttle::Unlimited,
            None => Throttle::Unset,
        }
    }

    fn peers(&self) -> Vec<Peer> {
        self.state().peers.clone()
    }

    fn fingerprint(&self) -> String {
        "00".repeat(32)
    }

    fn peer_address(&self) -> Option<String> {
        None
    }

    fn change(&self, change: Change) -> Result<(), Failure> {
        let mut s = self.state();
        s.changes.push(change.clone());
        s.change(change)
    }
}
