//! A cluster without data: for tests of the layers above [`Cluster`].
//!
//! Relationships follow the product's own rules ([`weir_replica::manager`]), over rows in memory;
//! what is a script are transfers, and lists of volumes and snapshots. Transfers move on only when
//! [`Script::step`] says so, or, in one made by [`Script::running`], by one step whenever
//! relationships are listed, which is what pollers do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_relations::manager::{
    self, ChangeSet, Command, Done, Edit, Entry, Event, Manager, Now, Preconditions, Progress,
    Relations, Side, Step, Task, Verb,
};
use weir_relations::model::{CopiedSnapshot, MirrorState, Path, SnapshotIdentity};
use weir_relations::retention::LabelledSnapshot;

use crate::cluster::{
    self as own, Change, Cluster, Failure, Job, Peer, Performance, Rate, Reason, Snapshot, Volume,
};
use crate::storage::{
    Aggregate, Details, Movement, NamedKind, PolicyChange, PolicyKey, Qtree, QuotaLimits,
    QuotaRule, QuotaState, QuotaTarget, QuotaUse, Settings, StoragePolicy, Svm,
};

/// State of the cluster; tests reach in as they like.
#[derive(Default)]
pub struct State {
    /// Relationships and what belongs to them.
    pub rows: Relations,
    /// The snapshots of all volumes.
    pub snapshots: Vec<Snapshot>,
    /// All volumes, destinations included.
    pub volumes: Vec<Volume>,
    /// Volumes as shares of SMB.
    pub shares: Vec<crate::cluster::Share>,
    /// The pair that the node is one of.
    pub pair: Option<own::Failover>,
    /// The machines of the cluster that the node is one of.
    pub machines: Option<own::Machines>,
    /// Changes that were asked of them.
    pub machine_changes: Vec<own::MachineChange>,
    /// Qtrees of all volumes.
    pub qtrees: Vec<Qtree>,
    /// Quota rules of all volumes.
    pub quota_rules: Vec<QuotaRule>,
    /// Usage of users and groups, which no rule changes.
    pub quota_uses: Vec<QuotaUse>,
    /// The quotas of all volumes are off.
    pub quotas_off: bool,
    /// Policies of volumes, and machines that were made by name.
    pub policies: Vec<StoragePolicy>,
    /// Number of times that its partner was to serve.
    pub handed_over: usize,
    /// All that was asked for, in order, refused or not.
    pub changes: Vec<Change>,
    /// Transfers move on whenever relationships are listed.
    pub moves: bool,
    manager: Manager,
    /// The jobs of transfers that run.
    jobs: Vec<u64>,
    next: u64,
    /// The script's clock, in milliseconds.
    ms: u64,
}

/// A cluster that keeps rows in memory.
#[derive(Default)]
pub struct Script(Mutex<State>);

/// The bytes of every transfer.
pub const BYTES: u64 = 550_397_542;
/// The milliseconds that one takes, and those of its data.
const TOOK: u64 = 41_000;
const DATA: u64 = 40_000;

/// The time of all that happens.
const NOW: i64 = 1_683_200_000;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap_or_else(|| Path::local(text, ""))
}

impl Script {
    /// Creates a cluster with nothing in it.
    pub fn empty() -> Script {
        Script::default()
    }

    /// Creates a cluster whose transfers move on whenever its relationships are listed. The first
    /// volume has data, the others are protected.
    pub fn running(volumes: &[&str]) -> Script {
        let script = Script::default();
        script.state().moves = true;
        for (n, volume) in volumes.iter().enumerate() {
            script.state().volume(path(volume), 16 << 30, n > 0);
        }
        script
    }

    /// Returns the cluster that the walk through SnapMirror's throttles begins with: a volume with
    /// two copies, both quiesced.
    pub fn session() -> Script {
        let script = Script::default();
        {
            let mut s = script.state();
            s.volume(path("SVM:vol_test"), 16 << 30, false);
            s.volume(path("SVM:vol_test_dst"), 16 << 30, true);
            s.volume(path("SVM:vol_test_1_dst"), 16 << 30, true);
        }
        for (destination, policy) in [
            ("SVM:vol_test_dst", "MirrorAllSnapshots"),
            ("SVM:vol_test_1_dst", "XDPDefault"),
        ] {
            let create = Verb::Create {
                source: path("SVM:vol_test"),
                destination: path(destination),
                policy: Some(policy.to_owned()),
                schedule: Some("5min".to_owned()),
                throttle: None,
                tries: None,
                note: None,
                initialize: None,
            };
            // Nothing speaks against it.
            let _ = script.state().relate(&create);
            script.set(destination, |entry| {
                entry.state = MirrorState::Snapmirrored;
                entry.quiesced = true;
            });
        }
        script
    }

    /// Locks the rows; no method of the cluster may be called meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes one relationship's row directly, bypassing the rules.
    pub fn set(&self, destination: &str, change: impl FnOnce(&mut Entry)) {
        let mut s = self.state();
        if let Some(mut entry) = s.rows.entry(&path(destination)).map(|e| Entry::clone(e)) {
            change(&mut entry);
            s.rows.apply(&Edit::Relationship(Arc::new(entry)));
        }
    }

    /// Sets the bytes that an update of this relationship has brought, as of this second.
    pub fn moving(&self, destination: &str, bytes: u64, updated: i64) {
        let mut s = self.state();
        let update = Verb::Update {
            destination: path(destination),
            source_snapshot: None,
            throttle: None,
        };
        // It may be under way already.
        let _ = s.relate(&update);
        s.start();
        let now = Now {
            wall: updated,
            ms: s.ms,
        };
        if let Some(id) = s.jobs.last().copied() {
            s.event(id, Event::Progress(progress(bytes)), now);
        }
    }

    /// Moves every transfer on by a step: queued, transferring, done.
    pub fn step(&self) {
        self.state().step();
    }
}

fn progress(bytes: u64) -> Progress {
    Progress {
        bytes,
        wire_bytes: bytes,
        moved: bytes,
        checkpoint: 0,
        rate: 13_000_000,
        bound_by: None,
        total: Some(BYTES),
    }
}

/// Returns the snapshot that all volumes have.
fn common() -> Option<LabelledSnapshot> {
    let id = SnapshotIdentity::decode(&[0; SnapshotIdentity::LEN])?;
    let name = "snapmirror.1".to_owned();
    let label = None;
    Some(LabelledSnapshot { id, label, name })
}

impl State {
    fn uuid(&mut self) -> String {
        self.next += 1;
        format!("00000000-0000-4000-8000-{:012}", self.next)
    }

    /// Adds a volume.
    pub fn volume(&mut self, path: Path, size: u64, protection: bool) {
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
            node_free: u64::MAX,
            protection,
            details: Details {
                provisioned: size,
                ..Details::default()
            },
        });
    }

    fn side(&self, path: &Path) -> Result<Side, String> {
        let here = self.volumes.iter().find(|v| v.path == *path);
        let snapshots = common().into_iter().collect();
        match here {
            Some(v) => Ok(Side {
                size: v.size,
                data_protection: v.protection,
                snapshots,
                ..Side::default()
            }),
            None if path.cluster.is_empty() => Err("entry doesn't exist".to_owned()),
            None => Ok(Side {
                size: Some(0),
                snapshots,
                ..Side::default()
            }),
        }
    }

    fn preconditions(&mut self, verb: &Verb) -> Preconditions {
        self.next += 1;
        let of = |to: &Path| self.rows.entry(to).map(|entry| entry.source.clone());
        let (source, destination) = match verb {
            Verb::Create {
                source,
                destination,
                ..
            }
            | Verb::Restore {
                source,
                destination,
                ..
            } => (Some(source.clone()), Some(destination.clone())),
            Verb::Resync {
                destination,
                source,
            } => (
                of(destination).or(source.clone()),
                Some(destination.clone()),
            ),
            Verb::Initialize { destination, .. } | Verb::Update { destination, .. } => {
                (of(destination), Some(destination.clone()))
            }
            Verb::Reverse(destination) => (Some(destination.clone()), of(destination)),
            _ => (None, None),
        };
        let side = |path: Option<Path>| match path {
            Some(path) => self.side(&path),
            None => Err("it was not asked for".to_owned()),
        };
        let running = match verb {
            Verb::Abort { destination, .. } | Verb::Stop(destination) | Verb::End(destination) => {
                let entry = self.rows.entry(destination);
                entry.is_some_and(|entry| self.manager.runs(&entry.uuid))
            }
            _ => false,
        };
        Preconditions {
            unique: u128::from(self.next),
            source: side(source),
            destination: side(destination),
            running,
            fingerprint: "00".repeat(32),
            ..Preconditions::none()
        }
    }

    fn relate(&mut self, verb: &Verb) -> Result<(), Failure> {
        let preconditions = self.preconditions(verb);
        let mut next = ChangeSet::to(&self.rows);
        let refused = |why: manager::VerbRefusal| Failure::new(why.reason, why.text);
        manager::change(&mut next, verb, &preconditions, NOW).map_err(refused)?;
        self.apply(next);
        // The effect of transfers waits for a step.
        if matches!(
            verb,
            Verb::Break(_) | Verb::Stop(_) | Verb::End(_) | Verb::Abort { .. }
        ) {
            self.start();
        }
        Ok(())
    }

    fn apply(&mut self, next: ChangeSet) {
        for edit in next.into_edits() {
            self.rows.apply(&edit);
        }
    }

    fn current_time(&self) -> Now {
        Now {
            wall: NOW,
            ms: self.ms,
        }
    }

    fn event(&mut self, id: u64, event: Event, now: Now) {
        if let Some(step) = self.manager.event(id, event, now) {
            self.apply_step(&step);
        }
    }

    fn apply_step(&mut self, step: &Step) {
        let mut next = ChangeSet::to(&self.rows);
        manager::apply_step(&mut next, step, NOW);
        self.apply(next);
    }

    /// Does what the manager commands, up to the middle of transfers.
    fn start(&mut self) {
        loop {
            let commands = self.manager.reconcile(&self.rows, self.current_time());
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Start(job) if job.task == Task::Break => {
                        self.event(
                            job.id,
                            Event::Ended(Ok(Done::default())),
                            self.current_time(),
                        );
                    }
                    Command::Start(job) => {
                        self.jobs.push(job.id);
                        self.event(job.id, Event::Moving, self.current_time());
                        let half = Event::Progress(progress(BYTES / 2));
                        self.event(job.id, half, self.current_time());
                    }
                    Command::Abort { id } => {
                        self.jobs.retain(|job| *job != id);
                        let ended = Event::Ended(Err(manager::Failure::Aborted));
                        self.event(id, ended, self.current_time());
                    }
                    Command::Forget { relationship, .. } => {
                        self.apply_step(&Step::Forgotten(relationship));
                    }
                    Command::Take(_) | Command::Throttle { .. } => {}
                }
            }
        }
    }

    fn step(&mut self) {
        let began = self.ms;
        let at = |ms| Now {
            wall: NOW,
            ms: began + ms,
        };
        for id in std::mem::take(&mut self.jobs) {
            self.event(id, Event::Progress(progress(BYTES)), at(DATA));
            self.event(id, Event::Finalizing, at(DATA));
            let newest = common().map(|held| CopiedSnapshot {
                name: held.name,
                taken: NOW - 60,
                id: held.id,
            });
            self.event(
                id,
                Event::Ended(Ok(Done {
                    newest,
                    above: Vec::new(),
                })),
                at(TOOK),
            );
        }
        self.ms += TOOK;
        self.start();
    }

    fn change(&mut self, change: Change) -> Result<(), Failure> {
        match change {
            Change::Relation(verb) => self.relate(&verb)?,
            // Tests of it have a node.
            Change::SnapshotRestore { .. } => {}
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
                let stands = Some((path.clone(), name.clone()));
                if self.volumes.iter().any(|v| v.parent == stands) {
                    let why = format!("snapshot {name} has clones");
                    return Err(Failure::new(Reason::State, why).by("ENGINE_PRECONDITION"));
                }
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
                settings,
            } => {
                if self.volumes.iter().any(|v| v.path == path) {
                    return Err(Failure::new(
                        Reason::Duplicate,
                        format!("Volume \"{}\" already exists.", path.volume),
                    ));
                }
                self.volume(path.clone(), size, protection);
                self.adjust(&path, settings);
            }
            Change::VolumeModify { path, settings } => self.adjust(&path, settings),
            Change::VolumeRename { path, to } => {
                if let Some(v) = self.volumes.iter_mut().find(|v| v.path == path) {
                    v.path.volume = to;
                }
            }
            Change::Policy { key, change } => self.change_policy(key, change),
            Change::VolumeDelete(path) => self.volumes.retain(|v| v.path != path),
            Change::VolumeClone {
                path,
                parent,
                snapshot,
                settings,
            } => {
                self.volume(path.clone(), 16 << 30, false);
                self.adjust(&path, settings);
                if let Some(v) = self.volumes.last_mut() {
                    v.parent = Some((parent, snapshot.unwrap_or_else(|| "clone".to_owned())));
                }
            }
            Change::Share { volume, name } => self.share(volume, name),
            Change::VolumeMove { path, to } => self.set_movement(&path, Some(to)),
            Change::VolumeMoveAbort(path) => self.set_movement(&path, None),
            Change::VolumeSplit(path) => self.split(&path),
            change => self.change_quotas(change),
        }
        Ok(())
    }

    fn split(&mut self, path: &Path) {
        if let Some(v) = self.volumes.iter_mut().find(|v| v.path == *path) {
            v.parent = None;
        }
    }

    fn set_movement(&mut self, path: &Path, to: Option<String>) {
        if let Some(v) = self.volumes.iter_mut().find(|v| v.path == *path) {
            v.details.movement = to.map(|destination| Movement {
                destination,
                state: "healthy",
                phase: "replicating",
                percent: 40,
                why: String::new(),
            });
        }
    }

    fn change_policy(&mut self, key: PolicyKey, change: PolicyChange) {
        let is_it = |p: &&mut StoragePolicy| p.key == key;
        match (change, self.policies.iter_mut().find(is_it)) {
            (PolicyChange::Create { comment, body }, None) => self.policies.push(StoragePolicy {
                id: 1 + self.policies.len() as u64,
                key,
                revision: 1,
                comment,
                body,
                users: 0,
                system: false,
            }),
            (PolicyChange::Set { comment, body, .. }, Some(policy)) => {
                policy.comment = comment.unwrap_or_else(|| policy.comment.clone());
                policy.body = body.unwrap_or_else(|| policy.body.clone());
                policy.revision += 1;
            }
            (PolicyChange::Rename(to), Some(policy)) => policy.key.name = to,
            (PolicyChange::Delete, Some(_)) => self.policies.retain(|p| p.key != key),
            _ => {}
        }
    }

    fn change_quotas(&mut self, change: Change) {
        match change {
            Change::QuotaSet {
                volume,
                target,
                limits,
                ..
            } => self.quota_rule((volume, target), Some(limits)),
            Change::QuotaRemove { volume, target } => self.quota_rule((volume, target), None),
            Change::QuotasOn { on, .. } => self.quotas_off = !on,
            Change::QtreeCreate {
                volume,
                name,
                permissions,
                export_policy,
            } => {
                let qtree = Qtree {
                    volume,
                    number: 100 + self.qtrees.len() as u32,
                    name,
                    permissions: permissions.unwrap_or(0o755),
                    owner: 0,
                    group: 0,
                    export_policy: export_policy.filter(|policy| !policy.is_empty()),
                };
                self.qtrees.push(qtree);
            }
            Change::QtreeModify {
                volume,
                name,
                to,
                permissions,
                export_policy,
            } => {
                let is_it = |q: &&mut Qtree| q.volume == volume && q.name == name;
                if let Some(qtree) = self.qtrees.iter_mut().find(is_it) {
                    qtree.name = to.unwrap_or(name);
                    qtree.permissions = permissions.unwrap_or(qtree.permissions);
                    if let Some(policy) = export_policy {
                        qtree.export_policy = Some(policy).filter(|policy| !policy.is_empty());
                    }
                }
            }
            Change::QtreeDelete { volume, name } => {
                let other = |q: &Qtree| q.volume != volume || q.name != name;
                self.qtrees.retain(other);
            }
            _ => {}
        }
    }

    /// Replaces the quota rule of a target; `None` removes it.
    fn quota_rule(&mut self, (volume, target): (Path, QuotaTarget), limits: Option<QuotaLimits>) {
        let other = |r: &QuotaRule| r.volume != volume || r.target != target;
        self.quota_rules.retain(other);
        self.quota_rules.extend(limits.map(|limits| QuotaRule {
            volume,
            target,
            limits,
        }));
        self.quota_rules
            .sort_by(|a, b| (&a.volume, a.target).cmp(&(&b.volume, b.target)));
    }

    fn share(&mut self, volume: Path, name: Option<String>) {
        self.shares.retain(|share| share.volume != volume);
        let found = self.volumes.iter().find(|v| v.path == volume);
        if let (Some(name), Some(found)) = (name, found) {
            self.shares.push(crate::cluster::Share {
                volume,
                name,
                path: found.junction.clone().unwrap_or_default(),
                properties: vec!["oplocks", "browsable"],
                acl: "UNIX permissions",
            });
        }
    }

    fn adjust(&mut self, path: &Path, settings: Settings) {
        let Some(v) = self.volumes.iter_mut().find(|v| v.path == *path) else {
            return;
        };
        v.size = settings.size.or(v.size);
        v.junction = settings.junction.unwrap_or_else(|| v.junction.clone());
        v.pool = settings.aggregate.unwrap_or_else(|| v.pool.clone());
        let details = &mut v.details;
        let text = |given: Option<String>, to: &mut String| *to = given.unwrap_or(to.clone());
        text(settings.comment, &mut details.comment);
        text(settings.export_policy, &mut details.export_policy);
        text(settings.snapshot_policy, &mut details.snapshot_policy);
        details.qos_policy = settings.qos_policy.or(details.qos_policy.take());
        details.online = settings.online.unwrap_or(details.online);
        details.permissions = settings.permissions.unwrap_or(details.permissions);
        let visible = &mut details.snapshot_directory;
        *visible = settings.snapshot_directory.unwrap_or(*visible);
        let reserve = &mut details.snapshot_reserve;
        *reserve = settings.snapshot_reserve.unwrap_or(*reserve);
    }

    fn snapshot(&mut self, path: &Path, name: &str) -> Option<&mut Snapshot> {
        self.snapshots
            .iter_mut()
            .find(|s| s.path == *path && s.name == name)
    }
}

impl Cluster for Script {
    fn name(&self) -> String {
        "FsxId05f72eb8f8d03c709".to_owned()
    }

    fn uuid(&self) -> String {
        "00000000-0000-4000-8000-000000000000".to_owned()
    }

    fn current_time(&self) -> i64 {
        NOW
    }

    /// Returns the same activity for every volume, whatever the interval.
    fn performance(&self, _: Duration) -> Vec<Performance> {
        let rate = |ops, bytes, nanos| Rate { ops, bytes, nanos };
        let volumes = self.volumes();
        let each = volumes
            .into_iter()
            .zip(1..)
            .map(|(volume, id)| Performance {
                path: volume.path,
                aggregate: volume.pool,
                id,
                reads: rate(300, 1_228_800, 608_000),
                writes: rate(100, 409_600, 1_200_000),
                others: rate(0, 0, 0),
                waited: 256_000,
            });
        each.collect()
    }

    fn read(&self, read: &mut dyn FnMut(&Relations, &Manager)) {
        let mut s = self.state();
        read(&s.rows, &s.manager);
        if s.moves {
            s.step();
        }
    }

    fn volumes(&self) -> Vec<Volume> {
        self.state().volumes.clone()
    }

    fn svms(&self) -> Vec<Svm> {
        let mut names: Vec<String> = self.volumes().into_iter().map(|v| v.path.vserver).collect();
        let made = self.storage_policies(NamedKind::Project);
        names.extend(made.iter().map(|p| p.key.name.clone()));
        names.sort();
        names.dedup();
        let svm = |name: String| Svm {
            comment: made
                .iter()
                .find(|p| p.key.name == name)
                .map_or_else(String::new, |p| p.comment.clone()),
            name,
            aggregates: vec!["default".to_owned()],
        };
        names.into_iter().map(svm).collect()
    }

    fn aggregates(&self) -> Vec<Aggregate> {
        let aggregate = |svm: Svm| Aggregate {
            name: "default".to_owned(),
            svm: svm.name,
            location: "local".to_owned(),
            size: 1 << 40,
            used: 0,
            volumes: 1,
        };
        self.svms().into_iter().map(aggregate).collect()
    }

    fn jobs(&self) -> Vec<Job> {
        Vec::new()
    }

    fn machines(&self) -> Option<own::Machines> {
        self.state().machines.clone()
    }

    fn change_machines(&self, change: &own::MachineChange) -> Result<(), Failure> {
        self.state().machine_changes.push(change.clone());
        Ok(())
    }

    fn failover(&self) -> Option<own::Failover> {
        self.state().pair.clone()
    }

    fn hand_over(&self) -> Result<(), Failure> {
        self.state().handed_over += 1;
        Ok(())
    }

    fn qtrees(&self, of: Option<&Path>) -> Vec<Qtree> {
        let mut all = self.state().qtrees.clone();
        all.retain(|qtree| of.is_none_or(|of| qtree.volume == *of));
        all
    }

    fn quota_rules(&self) -> Vec<QuotaRule> {
        self.state().quota_rules.clone()
    }

    fn quota_report(&self) -> Vec<QuotaUse> {
        let s = self.state();
        match s.quotas_off {
            true => Vec::new(),
            false => s.quota_uses.clone(),
        }
    }

    fn quota_states(&self) -> BTreeMap<Path, QuotaState> {
        let s = self.state();
        let state = match s.quotas_off {
            true => QuotaState::Off,
            false => QuotaState::On,
        };
        let rules = s.quota_rules.iter();
        rules.map(|rule| (rule.volume.clone(), state)).collect()
    }

    fn shares(&self) -> Vec<crate::cluster::Share> {
        self.state().shares.clone()
    }

    fn smb_sessions(&self) -> Vec<crate::cluster::SmbSession> {
        Vec::new()
    }

    fn events(&self, _: u32) -> Result<Vec<own::Event>, Failure> {
        Ok(Vec::new())
    }

    fn storage_policies(&self, kind: NamedKind) -> Vec<StoragePolicy> {
        let mut all = self.state().policies.clone();
        all.retain(|policy| policy.key.kind == kind);
        all
    }

    fn snapshots(&self, of: Option<&Path>) -> Vec<Snapshot> {
        let all = self.state();
        let meant = all
            .snapshots
            .iter()
            .filter(|s| of.is_none_or(|of| s.path == *of));
        meant.cloned().collect()
    }

    fn peers(&self) -> Vec<Peer> {
        let rows = self.state().rows.clone();
        let all = rows.peers().map(|peer| Peer {
            name: peer.name.clone(),
            address: peer.address.clone(),
            fingerprint: peer.fingerprint.clone(),
            available: None,
            reason: None,
        });
        all.collect()
    }

    /// Offers nothing.
    fn invite(&self, _: &str, _: Option<String>, _: bool) -> Result<own::Offer, Failure> {
        Err(Failure::new(Reason::Unsupported, "It has no peers."))
    }

    fn offers(&self) -> Vec<own::Offer> {
        Vec::new()
    }

    fn join(&self, _: Option<String>, _: &str, _: &str) -> Result<String, Failure> {
        Err(Failure::new(Reason::Unsupported, "It has no peers."))
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
