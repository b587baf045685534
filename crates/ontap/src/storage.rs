//! Storage that commands read and change besides volumes themselves: machines, aggregates, and
//! policies by name.

use std::net::IpAddr;

use weir_relations::model::Path;
use weir_relations::policy;
pub use weir_relations::policy::{Ceiling, NamedKind};

/// A storage virtual machine: a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Svm {
    /// The project's id.
    pub name: String,
    /// Free text; empty is none.
    pub comment: String,
    /// The names of its aggregates.
    pub aggregates: Vec<String>,
}

/// Physical space of the node, in bytes; a size of 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Physical {
    /// The device, and what the host's file system can still give to it.
    pub size: u64,
    /// Bytes that writes may still use.
    pub free: u64,
    /// Capacity of all storage pools and instances.
    pub provisioned: u64,
}

impl Physical {
    /// Returns the bytes that data, metadata and reservations hold.
    pub fn used(&self) -> u64 {
        self.size.saturating_sub(self.free)
    }

    /// Returns `bytes`, or what is free if that is less.
    pub fn bound(&self, bytes: u64) -> u64 {
        match self.size {
            0 => bytes,
            _ => bytes.min(self.free),
        }
    }

    /// Returns true if more was promised than there is.
    pub fn overcommitted(&self) -> bool {
        self.size > 0 && self.provisioned > self.size
    }
}

/// An aggregate: a storage pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// The pool's id; pools of other machines or locations may have the same.
    pub name: String,
    /// The machine whose volumes it holds.
    pub svm: String,
    /// Its location in the NetApp Volumes API.
    pub location: String,
    /// Bytes that it has.
    pub size: u64,
    /// Bytes that its volumes hold.
    pub used: u64,
    /// Number of its volumes.
    pub volumes: u64,
}

impl Aggregate {
    /// Returns the bytes that its volumes may still use: of its capacity, and of the node's space.
    pub fn available(&self, physical: &Physical) -> u64 {
        physical.bound(self.size.saturating_sub(self.used))
    }
}

/// A policy's name, unique among those of its kind at its machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyKey {
    /// Kind of the policy.
    pub kind: NamedKind,
    /// The machine; empty: it is the cluster's, for all machines.
    pub svm: String,
    /// Its name.
    pub name: String,
}

/// A policy that volumes refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoragePolicy {
    /// Its machine and name.
    pub key: PolicyKey,
    /// Never changes; no other policy has had it.
    pub id: u64,
    /// Counts up with each change.
    pub revision: u64,
    /// Free text; empty is none.
    pub comment: String,
    /// Its content.
    pub body: PolicyBody,
    /// Number of volumes that refer to it.
    pub users: usize,
    /// Ours, as against the user's: cannot be changed.
    pub system: bool,
}

/// Content of a policy, in ONTAP's words.
pub type PolicyBody = policy::PolicyBody<ExportRule, Copies>;

/// Change of a policy, in ONTAP's words.
pub type PolicyChange = policy::PolicyChange<PolicyBody>;

/// A rule of an export policy, in ONTAP's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRule {
    /// Its place among the others, from 1.
    pub index: u32,
    /// Addresses, networks, host names.
    pub clients: Vec<String>,
    /// `any`, `nfs`, `nfs3`, `nfs4`.
    pub protocols: Vec<String>,
    /// Means by which readers are to be known: `any`, `sys`, `none` (as the anonymous user),
    /// `never`.
    pub ro: Vec<String>,
    /// Means by which writers are to be known, with the values of `ro`.
    pub rw: Vec<String>,
    /// Means by which root is to be known to stay root, with the values of `ro`.
    pub superuser: Vec<String>,
    /// The anonymous user: a number, `nobody` or `root`.
    pub anonymous: String,
}

/// Means by which a client of NFS establishes who its users are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationMethod {
    /// None: AUTH_NONE.
    None,
    /// The client's word: AUTH_SYS.
    Sys,
    /// Kerberos.
    Krb5,
    /// Kerberos that protects messages against change.
    Krb5i,
    /// Kerberos that encrypts messages.
    Krb5p,
}

/// Access that `vserver export-policy check-access` asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessQuery {
    /// The volume.
    pub volume: Path,
    /// The qtree in it; `None`: the volume's root.
    pub qtree: Option<String>,
    /// Address of the client.
    pub client: IpAddr,
    /// Means by which it establishes who its users are.
    pub method: AuthenticationMethod,
    /// True for NFSv4, false for NFSv3.
    pub nfs4: bool,
    /// True for access that changes something.
    pub writes: bool,
}

/// Decision of the export policy of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessCheck {
    /// The path that clients mount, or a qtree below it.
    pub path: String,
    /// The policy that decides.
    pub policy: String,
    /// The volume or qtree that has the policy.
    pub owner: String,
    /// True if the owner is a qtree.
    pub by_qtree: bool,
    /// Index of the deciding rule; 0: no rule admits the client.
    pub index: u32,
    /// `read`, `read-write` or `denied`.
    pub access: &'static str,
}

/// A schedule of a snapshot policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The name of the schedule.
    pub schedule: String,
    /// Number of snapshots that are kept.
    pub count: u32,
    /// Prefix of the snapshots' names, and their label. `None` where a policy is made: it follows
    /// from the schedule.
    pub label: Option<String>,
}

/// Settings of a volume that is made or changed; `None` stays, or is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Capacity in bytes.
    pub size: Option<u64>,
    /// Its pool.
    pub aggregate: Option<String>,
    /// Free text; empty is none.
    pub comment: Option<String>,
    /// True if it is served.
    pub online: Option<bool>,
    /// Junction path at which clients mount it, `/path`; `Some(None)` is nowhere.
    pub junction: Option<Option<String>>,
    /// An export policy's name; `default` is the server's own.
    pub export_policy: Option<String>,
    /// A snapshot policy's name; `none` is none.
    pub snapshot_policy: Option<String>,
    /// A QoS policy's name; `none` or nothing is none.
    pub qos_policy: Option<String>,
    /// Permission bits of the root, 0 ..= 0o7777.
    pub permissions: Option<u32>,
    /// True if clients see `.snapshot`.
    pub snapshot_directory: Option<bool>,
    /// Percent of the capacity kept for snapshots, 0 to 90.
    pub snapshot_reserve: Option<u32>,
}

/// A volume's settings, as commands show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// Capacity in bytes, as it was asked for.
    pub provisioned: u64,
    /// Free text; empty is none.
    pub comment: String,
    /// True if it is served.
    pub online: bool,
    /// The name of its export policy.
    pub export_policy: String,
    /// The name of its snapshot policy.
    pub snapshot_policy: String,
    /// The name of its QoS policy, if it has one.
    pub qos_policy: Option<String>,
    /// Permission bits of the root, as they were asked for.
    pub permissions: u32,
    /// Its permissions are those of Windows.
    pub ntfs: bool,
    /// True if clients see `.snapshot`.
    pub snapshot_directory: bool,
    /// Percent of the capacity kept for snapshots.
    pub snapshot_reserve: u32,
    /// True if what it shares with its parent is being copied.
    pub splitting: bool,
    /// Its move to another aggregate, while that lasts.
    pub movement: Option<Movement>,
}

/// Move of a volume to another aggregate of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    /// The storage pool or the aggregate that gets it.
    pub destination: String,
    /// ONTAP's word for its state.
    pub state: &'static str,
    /// Its phase, in words.
    pub phase: &'static str,
    /// Percentage of the current copy that was sent.
    pub percent: u32,
    /// Reason why the last attempt failed; empty if none has.
    pub why: String,
}

impl Details {
    /// Returns ONTAP's name for the security style.
    pub fn security_style(&self) -> &'static str {
        match self.ntfs {
            true => "ntfs",
            false => "unix",
        }
    }
}

impl Default for Details {
    fn default() -> Details {
        Details {
            provisioned: 0,
            comment: String::new(),
            online: true,
            export_policy: "default".to_owned(),
            snapshot_policy: "none".to_owned(),
            qos_policy: None,
            permissions: 0o755,
            ntfs: false,
            snapshot_directory: true,
            snapshot_reserve: 0,
            splitting: false,
            movement: None,
        }
    }
}

/// Those whom a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaTarget {
    /// Each user without a rule of its own.
    DefaultUser,
    /// Each group without a rule of its own.
    DefaultGroup,
    /// The user with this number.
    User(u32),
    /// The group with this number.
    Group(u32),
    /// Each qtree without a rule of its own.
    DefaultTree,
    /// The qtree with this number.
    Tree(u32),
}

impl QuotaTarget {
    /// Returns the target's type, in ONTAP's words.
    pub fn kind(self) -> &'static str {
        match self {
            QuotaTarget::DefaultUser | QuotaTarget::User(_) => "user",
            QuotaTarget::DefaultGroup | QuotaTarget::Group(_) => "group",
            QuotaTarget::DefaultTree | QuotaTarget::Tree(_) => "tree",
        }
    }

    /// Returns the target as text: a number, empty for a default.
    pub fn name(self) -> String {
        match self {
            QuotaTarget::DefaultUser | QuotaTarget::DefaultGroup | QuotaTarget::DefaultTree => {
                String::new()
            }
            QuotaTarget::User(id) | QuotaTarget::Group(id) | QuotaTarget::Tree(id) => {
                id.to_string()
            }
        }
    }

    /// Returns true for a rule of those without one of their own.
    pub fn is_default(self) -> bool {
        self.name().is_empty()
    }
}

/// A qtree: a folder of a volume that is counted and limited by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qtree {
    /// The volume.
    pub volume: Path,
    /// Its number, unique in the volume; 0 is the volume outside of all others.
    pub number: u32,
    /// Name of the folder; empty for number 0.
    pub name: String,
    /// Permission bits of the folder.
    pub permissions: u32,
    /// Number of the folder's owner.
    pub owner: u32,
    /// Number of the folder's group.
    pub group: u32,
    /// Name of its own export policy; `None`: that of the volume.
    pub export_policy: Option<String>,
}

/// Limits of a quota; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Bytes that usage cannot exceed.
    pub bytes: u64,
    /// Bytes above which usage is reported.
    pub soft_bytes: u64,
    /// Files that usage cannot exceed.
    pub files: u64,
    /// Files above which usage is reported.
    pub soft_files: u64,
}

/// A quota rule of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRule {
    /// The volume.
    pub volume: Path,
    /// Those whom it limits.
    pub target: QuotaTarget,
    /// The limits.
    pub limits: QuotaLimits,
}

/// Usage of one user, group or qtree of a volume with quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// The volume, the user, group or qtree, and its limits.
    pub rule: QuotaRule,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// Files that it has.
    pub used_files: u64,
}

/// State of a volume's quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaState {
    /// They do not hold, or there are none.
    Off,
    /// Usage is being counted.
    Initializing,
    /// They hold.
    On,
}

impl QuotaState {
    /// Returns ONTAP's word for it.
    pub fn word(self) -> &'static str {
        match self {
            QuotaState::Off => "off",
            QuotaState::Initializing => "initializing",
            QuotaState::On => "on",
        }
    }
}
