//! Cluster that commands read and change: itself, its volumes, snapshots and relationships.

use crate::storage::{
    AccessCheck, AccessQuery, Aggregate, Details, NamedKind, Physical, PolicyChange, PolicyKey,
    Qtree, QuotaLimits, QuotaRule, QuotaState, QuotaTarget, QuotaUse, Settings, StoragePolicy, Svm,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
pub use weir_relations::manager::{Global, Reason};
use weir_relations::manager::{Manager, Preconditions, Relations, Verb};
pub use weir_relations::model::Offer;
use weir_relations::model::{Path, Policy, Relationship};
use weir_relations::schedule::{self, Schedule};

/// Refusal or failure of a command, in ONTAP's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Kind of the refusal, for programs.
    pub reason: Reason,
    /// Message for people, one sentence.
    pub message: String,
    /// The rule that speaks against it, as the control plane names it: `POOL_CAPACITY_EXCEEDED`.
    /// Empty where none does.
    pub rule: Cow<'static, str>,
}

impl Failure {
    /// Creates a refusal, with its message for people.
    pub fn new(reason: Reason, message: impl Into<String>) -> Failure {
        Failure {
            reason,
            message: message.into(),
            rule: Cow::Borrowed(""),
        }
    }

    /// Returns the failure as one by a rule of the control plane's.
    #[must_use]
    pub fn by(self, rule: impl Into<Cow<'static, str>>) -> Failure {
        Failure {
            rule: rule.into(),
            ..self
        }
    }
}

/// A snapshot, as commands list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The volume that it belongs to.
    pub path: Path,
    /// Its name, unique in the volume.
    pub name: String,
    /// Seconds since 1970, UTC.
    pub created: i64,
    /// Bytes that only it holds.
    pub size: u64,
    /// Its `snapmirror-label`, by which policies select it.
    pub label: Option<String>,
    /// Free text; empty is none.
    pub comment: String,
    /// Never changes; no other snapshot has had it.
    pub uuid: String,
}

/// A volume, as commands list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its machine (vserver) and its name.
    pub path: Path,
    /// Never changes; no other volume has had it.
    pub uuid: String,
    /// Its location in the NetApp Volumes API.
    pub location: String,
    /// Its storage pool, which is ONTAP's aggregate: the pool's id.
    pub pool: String,
    /// Junction path at which clients mount it, `/share`; `None` is nowhere.
    pub junction: Option<String>,
    /// Seconds since 1970, UTC.
    pub created: i64,
    /// The volume and the snapshot that it is a clone of, until it is split.
    pub parent: Option<(Path, String)>,
    /// Bytes that it may hold; `None`: as many as the node has.
    pub size: Option<u64>,
    /// Bytes that it holds.
    pub used: u64,
    /// Bytes that the node has left for all volumes; `u64::MAX`: unknown.
    pub node_free: u64,
    /// `DP` for the destination of a relationship, else `RW`.
    pub protection: bool,
    /// Its settings.
    pub details: Details,
}

impl Volume {
    /// Returns the bytes that it may hold: its own bound, or else what it was made with.
    pub fn capacity(&self) -> u64 {
        self.size.unwrap_or(self.details.provisioned)
    }

    /// Returns ONTAP's word for whether it is served.
    pub fn state(&self) -> &'static str {
        match self.details.online {
            true => "online",
            false => "offline",
        }
    }

    /// Returns the bytes of a capacity that may still be used: of the volume's own, and of the
    /// node's.
    pub fn available(&self, capacity: u64) -> u64 {
        capacity.saturating_sub(self.used).min(self.node_free)
    }
}

/// Change that a command makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Change of relationships, their policies, schedules, peers and throttles.
    Relation(Verb),
    /// `snapshot create`, of a volume on this node.
    SnapshotCreate {
        /// The volume, on this node.
        path: Path,
        /// The snapshot's name, new in the volume.
        name: String,
        /// Its `snapmirror-label`, if it has one.
        label: Option<String>,
        /// Free text; empty is none.
        comment: String,
    },
    /// `snapshot delete`, of one by its name.
    SnapshotDelete {
        /// The volume, on this node.
        path: Path,
        /// The name of the snapshot.
        name: String,
    },
    /// `snapshot rename`: its identity stays.
    SnapshotRename {
        /// The volume, on this node.
        path: Path,
        /// The name of the snapshot.
        name: String,
        /// Its new name, new in the volume.
        new_name: String,
    },
    /// `snapshot modify`: what is `None` stays.
    SnapshotModify {
        /// The volume, on this node.
        path: Path,
        /// The name of the snapshot.
        name: String,
        /// The new `snapmirror-label`; `Some(None)` removes it.
        label: Option<Option<String>>,
        /// The new text; empty is none.
        comment: Option<String>,
    },
    /// `volume snapshot restore`: the volume reverts to it.
    SnapshotRestore {
        /// The volume, on this node.
        path: Path,
        /// The name of the snapshot.
        name: String,
    },
    /// `volume create`: an empty volume.
    VolumeCreate {
        /// The volume's path, new on this node.
        path: Path,
        /// Its capacity in bytes.
        size: u64,
        /// `-type DP`: a destination, which clients do not mount for writing.
        protection: bool,
        /// The rest. Without an aggregate it is the only one that there is; without a junction a
        /// share of its name.
        settings: Settings,
    },
    /// `volume modify`, `size`, `mount`, `offline`, …
    VolumeModify {
        /// The volume, on this node.
        path: Path,
        /// Settings that are to change.
        settings: Settings,
    },
    /// `volume rename`
    VolumeRename {
        /// The volume, on this node.
        path: Path,
        /// Its new name.
        to: String,
    },
    /// Change of a policy by its name, or of a machine.
    Policy {
        /// Its machine and name.
        key: PolicyKey,
        /// The change.
        change: PolicyChange,
    },
    /// `volume delete`, of one by its path.
    VolumeDelete(Path),
    /// `volume clone create`: shares the parent's blocks.
    VolumeClone {
        /// The clone's path, new on this node.
        path: Path,
        /// The volume that it is a clone of.
        parent: Path,
        /// Snapshot that it is made of; `None` is the volume as it is now, by a snapshot that is
        /// taken for it.
        snapshot: Option<String>,
        /// Settings that are to be otherwise than with the parent.
        settings: Settings,
    },
    /// `volume clone split start`
    VolumeSplit(Path),
    /// `volume move start`: to a storage pool or an aggregate of the cluster of this name.
    VolumeMove {
        /// The volume, on this node.
        path: Path,
        /// The storage pool or the aggregate.
        to: String,
    },
    /// `volume move abort`
    VolumeMoveAbort(Path),
    /// `vserver cifs share create` and `delete`
    Share {
        /// The volume, on this node.
        volume: Path,
        /// The name of its share from now on; `None`: it is none any more.
        name: Option<String>,
    },
    /// `volume qtree create`
    QtreeCreate {
        /// The volume, on this node.
        volume: Path,
        /// The qtree's name, new in the volume's root directory.
        name: String,
        /// Permission bits of its folder; `None`: 755.
        permissions: Option<u32>,
        /// Name of its own export policy; empty or `None`: that of the volume.
        export_policy: Option<String>,
    },
    /// `volume qtree modify` and `rename`: what is `None` stays.
    QtreeModify {
        /// The volume, on this node.
        volume: Path,
        /// The qtree's name.
        name: String,
        /// Its new name.
        to: Option<String>,
        /// Permission bits of its folder.
        permissions: Option<u32>,
        /// Name of its own export policy; empty: that of the volume.
        export_policy: Option<String>,
    },
    /// `volume qtree delete`, with all that is in it and its quota rule.
    QtreeDelete {
        /// The volume, on this node.
        volume: Path,
        /// The qtree's name.
        name: String,
    },
    /// `volume quota policy rule create` and `modify`: limits replace those of the target.
    QuotaSet {
        /// The volume, on this node.
        volume: Path,
        /// Those whom the limits are for.
        target: QuotaTarget,
        /// True if there is no rule of theirs yet; false: there is one.
        new: bool,
        /// The limits.
        limits: QuotaLimits,
    },
    /// `volume quota policy rule delete`.
    QuotaRemove {
        /// The volume, on this node.
        volume: Path,
        /// Those whom the rule limits.
        target: QuotaTarget,
    },
    /// `volume quota on` and `off`.
    QuotasOn {
        /// The volume, on this node.
        volume: Path,
        /// True if its rules hold.
        on: bool,
    },
}

impl From<Verb> for Change {
    fn from(verb: Verb) -> Change {
        Change::Relation(verb)
    }
}

/// A schedule for transfers, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSchedule {
    /// Unique among ours and the user's.
    pub name: String,
    /// The times at which transfers begin.
    pub schedule: Schedule,
    /// Text for people.
    pub about: String,
    /// Ours, as against the user's: cannot be deleted.
    pub system: bool,
}

/// Another node that relationships may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name at this node.
    pub name: String,
    /// `host:port`; `None` where only it connects to us.
    pub address: Option<String>,
    /// SHA-256 of its certificate, hexadecimal.
    pub fingerprint: String,
    /// True if it replied when last asked, and with the certificate that it should have; `None`
    /// where it was not asked yet.
    pub available: Option<bool>,
    /// Reason why it is not available.
    pub reason: Option<String>,
}

/// A volume as a share of SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its volume.
    pub volume: Path,
    /// Its name, found in any case.
    pub name: String,
    /// Path that it leads to: the volume's junction.
    pub path: String,
    /// ONTAP's names of what it has: `browsable`, `oplocks`, …
    pub properties: Vec<&'static str>,
    /// Access that the share gives: it restricts nobody itself, and the volume's permissions
    /// decide.
    pub acl: &'static str,
}

/// A user's session over SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmbSession {
    /// Its number.
    pub id: u64,
    /// The user.
    pub user: String,
    /// The client's address.
    pub client: String,
    /// The dialect: `SMB3_1`.
    pub dialect: &'static str,
    /// All its messages are signed or encrypted.
    pub signed: bool,
    /// Files, directories and pipes that it has open.
    pub opens: usize,
    /// Shares that it is connected to.
    pub shares: Vec<String>,
}

/// This node and its partner, which keep one aggregate together.
#[derive(Clone, Debug, PartialEq)]
pub struct Failover {
    /// This node, as the pair calls it: `a` or `b`.
    pub node: String,
    /// The other one.
    pub partner: String,
    /// True if the partner has everything and may serve.
    pub possible: bool,
    /// The partner is connected.
    pub connected: bool,
    /// Bytes that the partner has not acknowledged.
    pub lag: u64,
    /// Number of the last change in its term.
    pub position: u64,
    /// Cost of the mirror.
    pub cost: MirrorCost,
    /// Obstacle to a failover, if there is one.
    pub trouble: Option<String>,
    /// True for a machine of a cluster, whose partners stand by for its aggregates; false for one
    /// of a pair.
    pub in_cluster: bool,
}

/// Machines that serve aggregates together, as this node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    /// All of them, by name.
    pub nodes: Vec<Machine>,
    /// Aggregates that they serve, by name.
    pub served: Vec<ServedAggregate>,
}

/// A machine of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The address at which its servers listen.
    pub address: Option<std::net::IpAddr>,
    /// True if it sends heartbeats.
    pub up: bool,
    /// True if it may be given aggregates.
    pub eligible: bool,
}

/// An aggregate of a cluster: all pools of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedAggregate {
    /// Its name.
    pub name: String,
    /// The machine that serves it.
    pub owner: Option<String>,
    /// The machine that stands by for it.
    pub standby: Option<String>,
}

/// A change of which machine serves what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineChange {
    /// Others serve in place of this one, which gets nothing more.
    Takeover(String),
    /// This one may serve again.
    Giveback(String),
    /// An aggregate goes to a machine.
    Relocate {
        /// The aggregate.
        aggregate: String,
        /// The machine.
        to: String,
    },
}

impl Machines {
    /// Returns the machines as partners of each other: those that stand by for a machine's
    /// aggregates are its partners.
    pub fn failovers(&self) -> Vec<Failover> {
        let one = |machine: &Machine| {
            let owned = self.served.iter();
            let owned = owned.filter(|one| one.owner.as_ref() == Some(&machine.name));
            let mut partners: Vec<&str> = Vec::new();
            for standby in owned.clone().filter_map(|one| one.standby.as_deref()) {
                if !partners.contains(&standby) {
                    partners.push(standby);
                }
            }
            Failover {
                node: machine.name.clone(),
                partner: partners.join(", "),
                possible: machine.up && owned.clone().all(|one| one.standby.is_some()),
                connected: machine.up,
                lag: 0,
                position: 0,
                cost: MirrorCost::default(),
                trouble: None,
                in_cluster: true,
            }
        };
        self.nodes.iter().map(one).collect()
    }
}

/// Cost of a mirror in the last minute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MirrorCost {
    /// Changes whose replies waited for both logs.
    pub changes: u64,
    /// Average time for which they waited for the partner longer than for this node's log.
    pub mean: Duration,
    /// Time of all but one in a hundred of them.
    pub p99: Duration,
    /// Bytes sent for each byte that clients wrote; `None`: they wrote none.
    pub sent_per_written: Option<f64>,
}

/// An operation of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Stays, as long as it is listed.
    pub id: u64,
    /// Operation in two words: `volume create`.
    pub name: String,
    /// The machine that it is for.
    pub vserver: String,
    /// `Running`, `Success`, `Failure`
    pub state: &'static str,
    /// Object of the operation; and why it failed.
    pub description: String,
    /// Start, seconds since 1970, UTC.
    pub at: i64,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Ascends in the order in which entries were made; unique.
    pub number: u64,
    /// Seconds since 1970, UTC.
    pub at: i64,
    /// Node on which it happened.
    pub node: String,
    /// `NOTICE`, or `ERROR` for what was refused or failed.
    pub severity: &'static str,
    /// Text for people.
    pub text: String,
}

/// Requests of one kind, over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second.
    pub ops: u64,
    /// Bytes of data a second.
    pub bytes: u64,
    /// Mean latency in nanoseconds; 0 where there was no request.
    pub nanos: u64,
}

/// Activity of a volume in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Performance {
    /// The volume.
    pub path: Path,
    /// The storage pool that it is in.
    pub aggregate: String,
    /// The engine's number of it.
    pub id: u64,
    /// Reads of data.
    pub reads: Rate,
    /// Writes of data.
    pub writes: Rate,
    /// All other requests.
    pub others: Rate,
    /// Nanoseconds that a request has waited for limits, in the mean over all.
    pub waited: u64,
}

impl Default for Performance {
    fn default() -> Performance {
        Performance {
            path: Path::local("", ""),
            aggregate: String::new(),
            id: 0,
            reads: Rate::default(),
            writes: Rate::default(),
            others: Rate::default(),
            waited: 0,
        }
    }
}

/// Cluster of one node: what is replicated, and what can be done about it.
///
/// All of it may block on a disk or on a lock held for a short while, none of it on a transfer. A
/// change that takes time is queued, and its progress is read from [`Cluster::relationships`].
pub trait Cluster: Send + Sync {
    /// Returns the cluster's name, the first part of a full path.
    fn name(&self) -> String;
    /// Returns its identity, a UUID, for as long as its data folder lives.
    fn uuid(&self) -> String;
    /// Returns the seconds since 1970, UTC, by the node's clock.
    fn current_time(&self) -> i64;
    /// Calls `read` with the rows of relationships, and what is being done to them, as of one
    /// moment. `read` must not wait.
    fn read(&self, read: &mut dyn FnMut(&Relations, &Manager));
    /// Relationships whose destination is here, in the order of their making; and those that are
    /// [synchronous](Cluster::synchronous).
    fn relationships(&self) -> Vec<Relationship> {
        let mut all = Vec::new();
        self.read(&mut |rows, manager| all = manager.relationships(rows));
        all.extend(self.synchronous());
        all
    }
    /// Returns the volumes that two nodes keep and that a policy says so of, as relationships with
    /// the same volume at the partner.
    fn synchronous(&self) -> Vec<Relationship> {
        Vec::new()
    }
    /// Relationships whose source is here: source, destination, whether it still transfers.
    fn destinations(&self) -> Vec<Relationship> {
        let mut all = Vec::new();
        self.read(&mut |rows, manager| all = manager.destinations(rows));
        all
    }
    /// Returns the relationship of this destination, which is here or synchronous.
    fn relationship(&self, destination: &Path) -> Option<Relationship> {
        let mut found = None;
        self.read(&mut |rows, manager| {
            found = rows.entry(destination).map(|e| manager.describe_entry(e))
        });
        found.or_else(|| {
            let mut all = self.synchronous().into_iter();
            all.find(|r| r.destination == *destination)
        })
    }
    /// Returns the relationship of this UUID, whose destination is here, or which is synchronous.
    fn relationship_named(&self, uuid: &str) -> Option<Relationship> {
        let mut found = None;
        self.read(&mut |rows, manager| {
            found = rows.find_by_uuid(uuid).map(|e| manager.describe_entry(e))
        });
        found.or_else(|| self.synchronous().into_iter().find(|r| r.uuid == uuid))
    }
    /// Relationships that a volume of this node is an end of; those whose destination is here come
    /// first.
    fn replications(&self, volume: &Path) -> Vec<Relationship> {
        let mut all = Vec::new();
        self.read(&mut |rows, manager| all = manager.replications(rows, volume));
        all
    }
    /// Returns the policies, by name, ours and the user's.
    fn policies(&self) -> Vec<Policy> {
        let mut all = Vec::new();
        self.read(&mut |rows, _| all = rows.policies());
        all
    }
    /// Returns the schedules, ours and the user's.
    fn schedules(&self) -> Vec<NamedSchedule> {
        let system = schedule::built_in_schedules().into_iter();
        let system = system.map(|(name, schedule, about)| NamedSchedule {
            name: name.to_owned(),
            schedule,
            about: about.to_owned(),
            system: true,
        });
        let mut all: Vec<NamedSchedule> = system.collect();
        self.read(&mut |rows, _| {
            all.extend(rows.own_schedules().map(|(name, schedule)| NamedSchedule {
                name: name.clone(),
                schedule: *schedule,
                about: String::new(),
                system: false,
            }));
        });
        all
    }
    /// Returns the volumes of this node that commands may name.
    fn volumes(&self) -> Vec<Volume>;
    /// Returns the machines, by name: those that have something, and those that were made by name.
    fn svms(&self) -> Vec<Svm>;
    /// Returns the aggregates, by machine and name.
    fn aggregates(&self) -> Vec<Aggregate>;
    /// Returns the node's physical space.
    fn physical(&self) -> Physical {
        Physical::default()
    }
    /// Takes the warnings of the changes that were made through this object.
    fn take_warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// Policies of a kind, ours and the users', by machine and name.
    fn storage_policies(&self, kind: NamedKind) -> Vec<StoragePolicy>;
    /// Measures the performance of volumes. Blocks for the time `over`.
    fn performance(&self, over: Duration) -> Vec<Performance>;
    /// Returns operations, newest first.
    fn jobs(&self) -> Vec<Job>;
    /// Returns the newest entries of the audit log, so many at most.
    ///
    /// # Errors
    /// It is not for this user, or cannot be read.
    fn events(&self, most: u32) -> Result<Vec<Event>, Failure>;
    /// Snapshots of all volumes, or of one; oldest first within each.
    fn snapshots(&self, of: Option<&Path>) -> Vec<Snapshot>;
    /// Returns the throttle of all transfers in one direction.
    fn global_throttle(&self, incoming: bool) -> Global {
        let mut set = Global::Unset;
        self.read(&mut |rows, _| set = rows.global_throttle(incoming));
        set
    }
    /// Nodes that were paired with this one, by name.
    fn peers(&self) -> Vec<Peer>;
    /// Returns the SHA-256 of this node's own certificate, hexadecimal: what peers check.
    fn fingerprint(&self) -> String;
    /// Returns the address at which this node listens for peers, `host:port`; `None` where it does
    /// not.
    fn peer_address(&self) -> Option<String>;
    /// Offers pairing to another node, once and for a while. `for_relationships`: as long as there
    /// are some that wait for it.
    ///
    /// # Errors
    /// This node has no peers, or has such a one already; the user is no administrator.
    fn invite(
        &self,
        name: &str,
        address: Option<String>,
        for_relationships: bool,
    ) -> Result<Offer, Failure>;
    /// Offers that have not expired; none, for users who are no administrators.
    fn offers(&self) -> Vec<Offer>;
    /// Pairs with the node at `address`, which offers it; returns what it is called here.
    ///
    /// # Errors
    /// It offers nothing, or not for this passphrase.
    fn join(
        &self,
        name: Option<String>,
        address: &str,
        passphrase: &str,
    ) -> Result<String, Failure>;
    /// Returns the pair that this node, which serves, is one of; `None`: it is one of none.
    fn failover(&self) -> Option<Failover> {
        None
    }
    /// Returns the machines that serve aggregates together; `None`: this node is alone, or one of a
    /// pair.
    fn machines(&self) -> Option<Machines> {
        None
    }
    /// Begins a change of which machine serves what.
    ///
    /// # Errors
    /// It cannot be made; the user is no administrator.
    fn change_machines(&self, change: &MachineChange) -> Result<(), Failure> {
        let _ = change;
        Err(Failure::new(
            Reason::State,
            "This node is not one of a cluster.",
        ))
    }
    /// Makes the partner serve from now on.
    ///
    /// # Errors
    /// There is none, or it cannot; the user is no administrator.
    fn hand_over(&self) -> Result<(), Failure> {
        Err(Failure::new(
            Reason::State,
            "This node is not one of a pair.",
        ))
    }
    /// Returns the qtrees of all volumes or of one, by volume and name; number 0 is none of them.
    fn qtrees(&self, of: Option<&Path>) -> Vec<Qtree> {
        let _ = of;
        Vec::new()
    }
    /// Quota rules of all volumes, by volume and target.
    fn quota_rules(&self) -> Vec<QuotaRule> {
        Vec::new()
    }
    /// Usage of all users, groups and qtrees of volumes whose quotas hold, by volume and number.
    fn quota_report(&self) -> Vec<QuotaUse> {
        Vec::new()
    }
    /// Returns the state of the quotas of volumes that have rules.
    fn quota_states(&self) -> BTreeMap<Path, QuotaState> {
        BTreeMap::new()
    }
    /// Checks a client's access by the export policies in force: a row for the volume, and one for
    /// the qtree. Blocks for some seconds while a rule needs a name that is not known yet.
    ///
    /// # Errors
    /// The volume or qtree does not exist or is not exported; a name that decides is not known.
    fn check_access(&self, query: &AccessQuery) -> Result<Vec<AccessCheck>, Failure> {
        let _ = query;
        Err(Failure::new(Reason::Unsupported, "Nothing is exported."))
    }
    /// Shares of SMB, by machine and name.
    fn shares(&self) -> Vec<Share>;
    /// Returns the sessions over SMB, by number.
    fn smb_sessions(&self) -> Vec<SmbSession>;
    /// Returns the facts that a verb is checked against, before [`Cluster::change`] or a dry run.
    /// May ask a peer, which takes up to seconds.
    ///
    /// # Errors
    /// The refusal of [`Cluster::change`], if it needs facts that are not to be had.
    fn preconditions(&self, verb: &Verb) -> Result<Preconditions, Failure> {
        let _ = verb;
        Ok(Preconditions::none())
    }
    /// Carries a change out, or queues what takes time. A transfer that was queued shows at once as
    /// the relationship's [`weir_relations::model::Transfer`] (or, when it has ended already, as
    /// its last one).
    fn change(&self, change: Change) -> Result<(), Failure>;
}

/// The cluster as one user sees it: changes made through it are recorded in the audit log under
/// that user's name.
pub type Clusters<User> =
    std::sync::Arc<dyn Fn(&User) -> std::sync::Arc<dyn Cluster> + Send + Sync>;
