//! The node for ONTAP's commands and REST interface ([`weir_ontap::Cluster`]).
//!
//! A storage virtual machine is a project. A volume is one of the project's volumes in any
//! location; an ambiguous name is refused where it is used. Changes of relationships go to the
//! manager. All others are mutations of the control plane, in the name of the user who sends them.

mod export_access;
mod moves;
mod performance;
mod qtrees;
mod quotas;
mod shares;
mod storage;
mod synchronous;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use uuid::Uuid;
use weir_base::Clock;
use weir_control::rules::replication::{hold, local_volume};
use weir_control::{
    Actor, Control, Mutation, Name, NewSnapshot, NewVolume, NotCarriedOut, PooledSettings,
    Presentation, Protocol, Refusal, Role, SnapshotChange, Surface, Within,
};
use weir_node::counters::Counters;
use weir_ontap::cluster::{
    Change, Cluster, Event, Failover, Failure, Job, MachineChange, Machines, MirrorCost, Offer,
    Peer, Performance, Reason, Share, SmbSession, Snapshot, Volume,
};
use weir_ontap::storage::{
    AccessCheck, AccessQuery, Aggregate, NamedKind, Physical, Qtree, QuotaRule, QuotaState,
    QuotaUse, Settings, StoragePolicy, Svm,
};
use weir_pair_node::{Pair, PairStatus};
use weir_relations::manager::{Manager, NO_ENTRIES, Preconditions, Relations, Verb, VerbRefusal};
use weir_relations::model::{MirrorState, Path, Relationship, Status};
use weir_replication_node::{PairingError, Replication};
use weir_volume::Engine;

/// The label by which replication policies choose snapshots.
const LABEL: &str = "snapmirror-label";
/// Operations of the control plane that take longer are answered as they are then.
const LONGEST: Duration = Duration::from_secs(60);
/// Breaking off waits for a checkpoint at worst.
const BREAK: Duration = Duration::from_secs(60);
pub(crate) const GIB: u64 = 1 << 30;

/// Parts of the server that commands read and change.
pub struct Server {
    /// The control plane.
    pub control: Arc<Control>,
    /// Runtime that the control plane runs on.
    pub runtime: Handle,
    /// The engine, for the sizes of volumes and snapshots.
    pub engine: Arc<Engine>,
    /// The server's clock.
    pub clock: Arc<dyn Clock>,
    /// Name that users call this node.
    pub name: String,
    /// Counters of the data path.
    pub counters: Counters,
    /// The SMB service, for its sessions.
    pub smb: Option<Arc<weir_smb::Service>>,
    /// The pair that this node is one of.
    pub pair: Option<Arc<Pair>>,
    /// Transfers and peers.
    pub replication: Arc<Replication>,
    /// The cluster of machines that this one is of.
    pub machines: Option<Arc<dyn MachineSource>>,
}

/// The cluster of machines, as the daemon of this one knows it.
pub trait MachineSource: Send + Sync {
    /// Returns the machines; `None` if the daemon does not answer.
    fn read(&self) -> Option<Machines>;

    /// Begins a change.
    ///
    /// # Errors
    /// The daemon's reason.
    fn change(&self, change: &MachineChange) -> Result<(), String>;
}

/// The server as a user sees it in ONTAP's terms.
pub struct AsUser {
    server: Arc<Server>,
    /// The user in whose name commands run.
    actor: Actor,
    warnings: parking_lot::Mutex<Vec<String>>,
}

impl AsUser {
    /// Creates the view of `actor`.
    pub fn new(server: Arc<Server>, actor: Actor) -> AsUser {
        AsUser {
            server,
            actor,
            warnings: parking_lot::Mutex::default(),
        }
    }
}

pub(crate) type Answer<T> = Result<T, Failure>;

fn refused(refused: VerbRefusal) -> Failure {
    Failure::new(refused.reason, refused.text)
}

pub(crate) fn refusal(refusal: &Refusal) -> Failure {
    let reason = refusal.relation_reason();
    Failure::new(reason, refusal.message.clone()).by(refusal.reason.clone())
}

pub(crate) fn missing() -> Failure {
    Failure::new(Reason::NotFound, NO_ENTRIES)
}

fn not_carried_out(why: &NotCarriedOut) -> Failure {
    match why {
        NotCarriedOut::Refused(why) => refusal(why),
        NotCarriedOut::Unfinished(_) => Failure::new(Reason::Busy, why.to_string()),
    }
}

fn not_paired(why: &PairingError) -> Failure {
    match why {
        PairingError::State(text) => Failure::new(Reason::State, text.clone()),
        PairingError::Failed(text) => Failure::new(Reason::Failed, text.clone()),
        PairingError::Change(why) => not_carried_out(why),
    }
}

impl AsUser {
    pub(crate) fn volume(&self, path: &Path) -> Answer<Arc<weir_control::Volume>> {
        match path.cluster.is_empty() {
            true => local_volume(&self.server.control.view(), &path.vserver, &path.volume).map_err(
                |why| match why.reason {
                    Reason::NotFound => missing(),
                    _ => refused(why),
                },
            ),
            false => Err(missing()),
        }
    }

    /// Submits a mutation to the control plane, and waits until it is carried out.
    pub(crate) fn submit(&self, mutation: Mutation) -> Answer<()> {
        let server = &self.server;
        let done = server.control.carry_out(mutation, &self.actor, LONGEST);
        let warnings = server.runtime.block_on(done);
        let warnings = warnings.map_err(|why| not_carried_out(&why))?;
        self.warnings.lock().extend(warnings);
        Ok(())
    }

    /// Returns the source of the relationship to `destination`, if there is one.
    fn source_of(&self, destination: &Path) -> Option<Path> {
        let view = self.server.control.view();
        Some(view.relations.entry(destination)?.source.clone())
    }

    /// Waits until a relationship is broken off or quiesced, or, with `ends`, until its row is
    /// gone.
    ///
    /// # Errors
    /// The relationship failed to break, or did not within the time limit.
    fn stopped(&self, destination: &Path, ends: bool) -> Answer<()> {
        let Server {
            control,
            clock,
            replication,
            ..
        } = &*self.server;
        let until = clock.monotonic() + BREAK;
        let mut manager = replication.manager();
        loop {
            let view = control.view();
            let Some(entry) = view.relations.entry(destination) else {
                return if ends { Ok(()) } else { Err(missing()) };
            };
            let now = manager.describe_entry(entry);
            let over = now.state == MirrorState::BrokenOff || now.status == Status::Quiesced;
            if over && !ends {
                return Ok(());
            }
            if !matches!(now.status, Status::Breaking | Status::Aborting) && !entry.ending {
                let why = now.unhealthy_reason.unwrap_or_default();
                return Err(Failure::new(Reason::Failed, why));
            }
            if clock.monotonic() >= until || replication.stopping() {
                return Err(Failure::new(
                    Reason::Busy,
                    "The relationship is still breaking.",
                ));
            }
            replication.wait_for_change(&mut manager, Duration::from_secs(1));
        }
    }

    fn create_volume(
        &self,
        path: &Path,
        size: u64,
        protection: bool,
        settings: &Settings,
    ) -> Answer<()> {
        let view = self.server.control.view();
        if self.volume(path).is_ok() {
            return Err(Failure::new(
                Reason::Duplicate,
                format!("Volume name \"{}\" is already in use.", path.volume),
            ));
        }
        let within = Within::project(&path.vserver);
        let pool = &settings.aggregate;
        let fits = |id: &str| pool.as_deref().is_none_or(|pool| pool == id);
        let pools: Vec<Name> = view
            .pools(&within)
            .filter(|p| fits(&p.name.id))
            .map(|p| p.name.clone())
            .collect();
        let pool = match pools.as_slice() {
            [one] => one,
            [] => {
                return Err(Failure::new(
                    Reason::NotFound,
                    match pool {
                        Some(pool) => format!("Aggregate \"{pool}\" does not exist."),
                        None => {
                            format!("SVM \"{}\" has no aggregate (storage pool).", path.vserver)
                        }
                    },
                ));
            }
            many => {
                let names: Vec<String> = many
                    .iter()
                    .map(|n| format!("{}/{}", n.place.location, n.id))
                    .collect();
                return Err(Failure::new(
                    Reason::Invalid,
                    format!(
                        "Name an aggregate (storage pool), one of {}.",
                        names.join(", ")
                    ),
                ));
            }
        };
        let new = NewVolume {
            presentation: Presentation::in_pool(&pool.id),
            share_name: path.volume.clone(),
            capacity_gib: size.div_ceil(GIB),
            protocols: vec![Protocol::Nfsv3, Protocol::Nfsv4],
            protection,
            unix_permissions: settings.permissions,
            snapshot_directory: settings.snapshot_directory,
            snap_reserve: settings.snapshot_reserve.map(f64::from),
            description: settings.comment.clone().unwrap_or_default(),
            assign: AsUser::assigned(settings)?,
            ..NewVolume::default()
        };
        let name = pool.place.volume(&path.volume);
        self.unless_needed("create", Mutation::CreateVolume(name, new))
    }

    fn clone_volume(
        &self,
        path: &Path,
        parent: &Path,
        snapshot: Option<String>,
        settings: &Settings,
    ) -> Answer<()> {
        let of = self.volume(parent)?;
        if self.volume(path).is_ok() {
            return Err(Failure::new(
                Reason::Duplicate,
                format!("Volume name \"{}\" is already in use.", path.volume),
            ));
        }
        let snapshot = match snapshot {
            Some(name) => name,
            None => {
                let name = format!("clone_{}", path.volume);
                let named = of.name.snapshot(&name);
                self.submit(Mutation::CreateSnapshot(named, NewSnapshot::default()))?;
                name
            }
        };
        if path.vserver != parent.vserver {
            return Err(Failure::new(
                Reason::Unsupported,
                "A clone belongs to the SVM of its parent.",
            ));
        }
        let mut smb = of.smb.clone();
        smb.name = None;
        let mut assign = AsUser::assigned(settings)?;
        if assign.export.is_none() {
            let view = self.server.control.view();
            let named = view.policies().find(|p| Some(p.id) == of.assigned.export);
            assign.export = named.map(|p| Some(p.name.id.to_string()));
        }
        let new = NewVolume {
            presentation: Presentation::Netapp(PooledSettings {
                large: false,
                constituent: None,
                ..of.pooled().cloned().unwrap_or_default()
            }),
            share_name: path.volume.clone(),
            capacity_gib: of.capacity_gib,
            // Served as its parent is, above all with the permissions of the same world.
            protocols: of.protocols.clone(),
            smb,
            export_rules: of.export_rules.clone(),
            clone_of: Some(of.name.snapshot(&snapshot)),
            unix_permissions: settings.permissions.or(Some(of.unix_permissions)),
            snapshot_directory: settings.snapshot_directory,
            snap_reserve: settings.snapshot_reserve.map(f64::from),
            description: settings.comment.clone().unwrap_or_default(),
            assign,
            ..NewVolume::default()
        };
        self.submit(Mutation::CreateVolume(
            of.name.place.volume(&path.volume),
            new,
        ))
    }

    /// Submits a mutation that may remove a snapshot or volume that a relationship needs. Refuses
    /// it in ONTAP's words if it does.
    pub(crate) fn unless_needed(&self, doing: &str, mutation: Mutation) -> Answer<()> {
        self.submit(mutation.clone()).map_err(|failure| {
            let view = self.server.control.view();
            match hold(&view, &mutation) {
                Some(why) => Failure::new(Reason::State, why.in_ontaps_words(doing)),
                None => failure,
            }
        })
    }

    fn snapshot_change(&self, change: Change) -> Answer<()> {
        match change {
            Change::SnapshotCreate {
                path,
                name,
                label,
                comment,
            } => {
                let of = self.volume(&path)?;
                let labels = label.into_iter().map(|label| (LABEL.to_owned(), label));
                let new = NewSnapshot {
                    description: comment,
                    labels: labels.collect(),
                    ..NewSnapshot::default()
                };
                let name = of.name.snapshot(&name);
                self.submit(Mutation::CreateSnapshot(name, new))
            }
            Change::SnapshotDelete { path, name } => {
                let name = self.volume(&path)?.name.snapshot(&name);
                self.unless_needed("delete", Mutation::DeleteSnapshot(name))
            }
            Change::SnapshotRename {
                path,
                name,
                new_name,
            } => {
                let name = self.volume(&path)?.name.snapshot(&name);
                self.unless_needed("rename", Mutation::RenameSnapshot { name, to: new_name })
            }
            Change::SnapshotModify {
                path,
                name,
                label,
                comment,
            } => {
                let of = self.volume(&path)?;
                let name = of.name.snapshot(&name);
                let view = self.server.control.view();
                let known = view.snapshot(&name).ok_or_else(missing)?;
                let labels = label.map(|label| {
                    let mut labels: BTreeMap<String, String> = known.labels.clone();
                    match label {
                        Some(label) => labels.insert(LABEL.to_owned(), label),
                        None => labels.remove(LABEL),
                    };
                    labels
                });
                let change = SnapshotChange {
                    description: comment,
                    labels,
                    ..SnapshotChange::default()
                };
                self.submit(Mutation::UpdateSnapshot(name, change))
            }
            Change::SnapshotRestore { path, name } => {
                let of = self.volume(&path)?;
                let snapshot = name;
                let name = of.name.clone();
                self.unless_needed("restore", Mutation::RevertVolume { name, snapshot })
            }
            _ => Err(missing()),
        }
    }

    /// Carries out a verb on a relationship or a peer.
    fn relate(&self, verb: Verb) -> Answer<()> {
        if let Some(done) = self.relate_synchronous(&verb) {
            return done;
        }
        let preconditions = self.preconditions(&verb)?;
        let forgets = matches!(verb, Verb::End(_) | Verb::Delete(_));
        let ends = match &verb {
            Verb::End(_) => true,
            // The row of a restore is removed together with its remains.
            Verb::Break(to) | Verb::Stop(to) => {
                let view = self.server.control.view();
                view.relations.entry(to).is_some_and(|entry| entry.restore)
            }
            _ => false,
        };
        let (breaks, unpairs) = match &verb {
            Verb::Break(to) | Verb::Stop(to) | Verb::End(to) => (Some(to.clone()), false),
            Verb::PeerDelete(_) => (None, true),
            _ => (None, false),
        };
        self.submit(Mutation::Replicate {
            verb,
            preconditions,
        })?;
        let replication = &self.server.replication;
        replication.wake();
        if unpairs {
            replication.peers_deleted();
        }
        if forgets {
            replication.drop_unused_offers();
        }
        breaks.map_or(Ok(()), |destination| self.stopped(&destination, ends))
    }

    /// Returns the facts that the rules of a verb need, such as the resolved source and the peer's
    /// state.
    fn preconditions(&self, verb: &Verb) -> Answer<Preconditions> {
        let replication = &self.server.replication;
        let resolved = |shown: &Path| replication.resolve(shown).map_err(refused);
        let (source, destination) = match verb {
            Verb::Create {
                source,
                destination,
                initialize: Some(first),
                ..
            } if first.once_paired => {
                return Ok(Preconditions {
                    found: Some(source.clone()),
                    ..replication.preconditions(None, destination)
                });
            }
            Verb::Create {
                source,
                destination,
                ..
            }
            | Verb::Restore {
                source,
                destination,
                ..
            } => (resolved(source)?, destination),
            Verb::Resync {
                destination,
                source,
            } => match (self.source_of(destination), source) {
                (Some(found), _) => (found, destination),
                (None, Some(shown)) => (resolved(shown)?, destination),
                (None, None) => return Err(missing()),
            },
            Verb::Initialize { destination, .. } | Verb::Update { destination, .. } => {
                let source = self.source_of(destination).ok_or_else(missing)?;
                // A peer that cannot be reached now is tried again.
                let ask = source.cluster.is_empty().then_some(&source);
                return Ok(replication.preconditions(ask, destination));
            }
            Verb::Reverse(destination) => {
                let to = self.source_of(destination).ok_or_else(missing)?;
                return Ok(replication.preconditions(Some(destination), &to));
            }
            Verb::Abort { destination, .. } | Verb::Stop(destination) | Verb::End(destination) => {
                let view = self.server.control.view();
                let entry = view.relations.entry(destination);
                let running = entry.is_some_and(|e| replication.manager().runs(&e.uuid));
                return Ok(Preconditions {
                    running,
                    ..Preconditions::none()
                });
            }
            Verb::PeerInvite { .. } if replication.listening().is_none() => {
                let why =
                    "This node does not listen for peers: start it with --replication ADDR:PORT.";
                return Err(Failure::new(Reason::State, why));
            }
            Verb::PeerCreate { .. } | Verb::PeerInvite { .. } => {
                let fingerprint = replication.fingerprint().to_owned();
                return Ok(Preconditions {
                    fingerprint,
                    ..Preconditions::none()
                });
            }
            _ => return Ok(Preconditions::none()),
        };
        Ok(Preconditions {
            found: Some(source.clone()),
            ..replication.preconditions(Some(&source), destination)
        })
    }

    fn listed(&self, of: &weir_control::Volume, out: &mut Vec<Snapshot>) {
        let Some(volume) = self.server.engine.volume(&of.key) else {
            return;
        };
        let view = self.server.control.view();
        for snapshot in volume.snapshots() {
            let known = view.snapshot(&of.name.snapshot(&snapshot.name));
            out.push(Snapshot {
                path: Path::local(&of.name.place.project, &of.name.id),
                name: snapshot.name,
                created: snapshot.created.secs,
                size: snapshot.used,
                label: Some(snapshot.label).filter(|label| !label.is_empty()),
                comment: known.map(|k| k.description.clone()).unwrap_or_default(),
                uuid: uuid(snapshot.identity.uuid()),
            });
        }
    }

    fn describe_volume(&self, volume: &weir_control::Volume) -> Option<Volume> {
        let engine = self.server.engine.volume(&volume.key)?;
        let project = &volume.name.place.project;
        let parent = volume
            .clone_of
            .as_ref()
            .filter(|_| engine.origin().is_some());
        Some(Volume {
            path: Path::local(project, &volume.name.id),
            uuid: uuid(moves::identity(volume).unwrap_or_else(|| engine.uuid())),
            location: volume.name.place.location.to_string(),
            pool: volume.pooled()?.pool.to_string(),
            junction: (!volume.assigned.unmounted).then(|| format!("/{}", volume.path())),
            created: volume.created.0.div_euclid(1_000_000_000),
            parent: parent.map(|s| {
                let name = &s.parent;
                (Path::local(&name.place.project, &name.id), s.id.to_string())
            }),
            size: Some(engine.limit()).filter(|limit| *limit > 0),
            node_free: self.server.engine.aggregate().physical().free,
            used: engine.used(),
            protection: engine.mirror().is_some(),
            details: self.details(volume),
        })
    }
}

/// Describes a pair in ONTAP's terms.
fn failover(shown: &PairStatus) -> Failover {
    let (node, partner) = shown.nodes.clone();
    Failover {
        node,
        partner,
        possible: shown.in_sync && shown.connected,
        connected: shown.connected,
        lag: shown.lag,
        position: shown.position,
        cost: MirrorCost {
            changes: shown.cost.records,
            mean: shown.cost.mean,
            p99: shown.cost.p99,
            sent_per_written: shown.amplification,
        },
        trouble: shown.fault.clone(),
        in_cluster: false,
    }
}

impl Cluster for AsUser {
    fn name(&self) -> String {
        self.server.name.clone()
    }

    fn uuid(&self) -> String {
        uuid(self.server.replication.node())
    }

    fn current_time(&self) -> i64 {
        self.server.clock.current_time().secs
    }

    fn read(&self, read: &mut dyn FnMut(&Relations, &Manager)) {
        let view = self.server.control.view();
        read(&view.relations, &self.server.replication.manager());
    }

    fn synchronous(&self) -> Vec<Relationship> {
        self.synchronous_volumes()
    }

    fn machines(&self) -> Option<Machines> {
        self.server.machines.as_ref()?.read()
    }

    fn change_machines(&self, change: &MachineChange) -> Answer<()> {
        if self.actor.role != Role::Admin {
            let why = "Only an administrator decides which node serves an aggregate.";
            return Err(Failure::new(Reason::Denied, why));
        }
        let machines = self.server.machines.as_ref().ok_or_else(missing)?;
        let refused = |why| Failure::new(Reason::State, why);
        machines.change(change).map_err(refused)
    }

    fn failover(&self) -> Option<Failover> {
        self.server.pair.as_ref().map(|pair| failover(&pair.show()))
    }

    fn hand_over(&self) -> Answer<()> {
        if self.actor.role != Role::Admin {
            let why = "Only an administrator has the partner serve.";
            return Err(Failure::new(Reason::Denied, why));
        }
        let Some(pair) = &self.server.pair else {
            return Err(missing());
        };
        let refused = |why: anyhow::Error| Failure::new(Reason::State, format!("{why:#}"));
        pair.hand_over().map_err(refused)
    }

    fn qtrees(&self, of: Option<&Path>) -> Vec<Qtree> {
        self.all_qtrees(of)
    }

    fn check_access(&self, query: &AccessQuery) -> Answer<Vec<AccessCheck>> {
        self.decide_access(query)
    }

    fn quota_rules(&self) -> Vec<QuotaRule> {
        self.all_quota_rules()
    }

    fn quota_report(&self) -> Vec<QuotaUse> {
        self.all_quota_uses()
    }

    fn quota_states(&self) -> BTreeMap<Path, QuotaState> {
        self.all_quota_states()
    }

    fn shares(&self) -> Vec<Share> {
        self.all_shares()
    }

    fn smb_sessions(&self) -> Vec<SmbSession> {
        self.all_smb_sessions()
    }

    fn volumes(&self) -> Vec<Volume> {
        let view = self.server.control.view();
        view.every_volume(Surface::Netapp)
            .filter_map(|v| self.describe_volume(v))
            .collect()
    }

    fn svms(&self) -> Vec<Svm> {
        self.machines()
    }

    fn performance(&self, over: Duration) -> Vec<Performance> {
        self.measured(over)
    }

    fn aggregates(&self) -> Vec<Aggregate> {
        self.pools()
    }

    fn physical(&self) -> Physical {
        let control = &self.server.control;
        let space = control.facts().space;
        Physical {
            size: space.size,
            free: space.free,
            provisioned: control.view().provisioned_gib().saturating_mul(GIB),
        }
    }

    fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }

    fn jobs(&self) -> Vec<Job> {
        self.operations()
    }

    fn events(&self, most: u32) -> Result<Vec<Event>, Failure> {
        self.audited(most)
    }

    fn storage_policies(&self, kind: NamedKind) -> Vec<StoragePolicy> {
        self.named_policies(kind)
    }

    fn snapshots(&self, of: Option<&Path>) -> Vec<Snapshot> {
        let mut out = Vec::new();
        match of {
            Some(path) => {
                if let Ok(volume) = self.volume(path) {
                    self.listed(&volume, &mut out);
                }
            }
            None => {
                for volume in self.server.control.view().every_volume(Surface::Netapp) {
                    self.listed(volume, &mut out);
                }
            }
        }
        out
    }

    fn peers(&self) -> Vec<Peer> {
        let view = self.server.control.view();
        let shown = view.relations.peers().map(|peer| {
            let available = self.server.replication.peer_available(&peer.name);
            Peer {
                name: peer.name.clone(),
                address: peer.address.clone(),
                fingerprint: peer.fingerprint.clone(),
                available: available.as_ref().map(Result::is_ok),
                reason: available.and_then(Result::err),
            }
        });
        shown.collect()
    }

    fn fingerprint(&self) -> String {
        self.server.replication.fingerprint().to_owned()
    }

    fn peer_address(&self) -> Option<String> {
        self.server
            .replication
            .listening()
            .map(|address| address.to_string())
    }

    fn invite(
        &self,
        name: &str,
        address: Option<String>,
        for_relationships: bool,
    ) -> Answer<Offer> {
        let replication = &self.server.replication;
        self.relate(Verb::PeerInvite {
            name: name.to_owned(),
            address: address.clone(),
        })?;
        let made_for = (&self.actor, for_relationships);
        let offer = replication.offer((name, address), made_for);
        offer.map_err(|why| not_paired(&why))
    }

    fn offers(&self) -> Vec<Offer> {
        match self.actor.role {
            Role::Admin => self.server.replication.offers(),
            _ => Vec::new(),
        }
    }

    fn join(&self, name: Option<String>, address: &str, passphrase: &str) -> Answer<String> {
        if self.actor.role != Role::Admin {
            let why = "Pairing takes an administrator's token.";
            return Err(Failure::new(Reason::Denied, why));
        }
        let replication = &self.server.replication;
        let joined = replication.join(&self.actor, name, address, passphrase);
        joined.map_err(|why| not_paired(&why))
    }

    fn preconditions(&self, verb: &Verb) -> Result<Preconditions, Failure> {
        AsUser::preconditions(self, verb)
    }

    fn change(&self, change: Change) -> Result<(), Failure> {
        match change {
            Change::SnapshotCreate { .. }
            | Change::SnapshotDelete { .. }
            | Change::SnapshotRename { .. }
            | Change::SnapshotModify { .. }
            | Change::SnapshotRestore { .. } => self.snapshot_change(change),
            Change::VolumeCreate {
                path,
                size,
                protection,
                settings,
            } => self.create_volume(&path, size, protection, &settings),
            Change::VolumeModify { path, settings } => self.modify_volume(&path, &settings),
            Change::VolumeRename { path, to } => self.rename_volume(&path, &to),
            Change::Policy { key, change } => self.change_policy(&key, &change),
            Change::VolumeDelete(path) => {
                let (name, force) = (self.volume(&path)?.name.clone(), true);
                self.unless_needed("delete", Mutation::DeleteVolume { name, force })
            }
            Change::VolumeClone {
                path,
                parent,
                snapshot,
                settings,
            } => self.clone_volume(&path, &parent, snapshot, &settings),
            Change::VolumeMove { path, to } => self.move_volume(&path, &to),
            Change::VolumeMoveAbort(path) => self.abort_move(&path),
            Change::VolumeSplit(path) => {
                let name = self.volume(&path)?.name.clone();
                self.submit(Mutation::SplitVolume(name))
            }
            Change::Share { volume, name } => self.change_share(&volume, name),
            Change::QtreeCreate {
                volume,
                name,
                permissions,
                export_policy,
            } => self.create_qtree(&volume, &name, permissions, export_policy.as_deref()),
            Change::QtreeModify {
                volume,
                name,
                to,
                permissions,
                export_policy,
            } => {
                let qtree = (&volume, name.as_str());
                self.modify_qtree(qtree, to.as_deref(), permissions, export_policy.as_deref())
            }
            Change::QtreeDelete { volume, name } => self.delete_qtree(&volume, &name),
            Change::QuotaSet {
                volume,
                target,
                new,
                limits,
            } => self.set_quota(&volume, target, new, limits),
            Change::QuotaRemove { volume, target } => self.remove_quota(&volume, target),
            Change::QuotasOn { volume, on } => self.switch_quotas(&volume, on),
            Change::Relation(verb) => self.relate(verb),
        }
    }
}

/// Formats sixteen bytes as a UUID.
fn uuid(bytes: [u8; 16]) -> String {
    Uuid::from_bytes(bytes).to_string()
}
