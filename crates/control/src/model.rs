//! The resources as they are intended to be.
//!
//! Fields that only the client understands (`network`, `psaRange`, `kmsConfig`, …) are kept in `extra` and returned as
//! they were sent. What follows from other fields (a pool's available throughput, a volume's service level) is not
//! stored but computed: see [`crate::rules`] and [`crate::View`].

use crate::assigned::Assigned;
use crate::job::Job;
use crate::name::{Collection, Name, SnapshotName, Surface, Target, VolumeName};
use crate::refusal::{Refusal, Status};
use crate::stamp::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_base::SnapshotIdentity;

/// Labels of a resource.
pub type Labels = BTreeMap<String, String>;
/// A client's own fields, by their JSON names.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// An enumeration whose values are spelled as the API spells them and have its numbers.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }
        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The name that the API uses.
            pub fn as_str(self) -> &'static str { match self { $($name::$variant => $text),+ } }
            /// The number that the API uses.
            pub fn number(self) -> i64 { match self { $($name::$variant => $number),+ } }
            /// From the API's name.
            pub fn from_name(name: &str) -> Option<$name> { match name { $($text => Some($name::$variant),)+ _ => None } }
            /// From the API's number.
            pub fn from_number(number: i64) -> Option<$name> { match number { $($number => Some($name::$variant),)+ _ => None } }
        }
    };
}

wire_enum! {
    /// What a resource is doing. Numbers are those of NetApp's `Volume.State`; other resources' differ and are the
    /// surface's business.
    State {
        /// Made, and not being changed.
        Ready = 1 "READY",
        /// Being made on the node.
        Creating = 2 "CREATING",
        /// Being deleted on the node.
        Deleting = 3 "DELETING",
        /// Being changed on the node.
        Updating = 4 "UPDATING",
        /// Being reverted to a snapshot.
        Restoring = 5 "RESTORING",
        /// Not as intended, and tried again from time to time; `state_details` says why.
        Error = 7 "ERROR",
    }
}

wire_enum! {
    /// How throughput comes to a pool's volumes.
    QosType {
        /// In proportion to their capacity.
        Auto = 1 "AUTO",
        /// As their owner says.
        Manual = 2 "MANUAL",
    }
}

wire_enum! {
    /// How often a schedule of a snapshot policy takes a snapshot. The names are what the snapshots' names begin with, and
    /// their labels.
    Period {
        /// Once in an hour.
        Hourly = 1 "hourly",
        /// Once in a day.
        Daily = 2 "daily",
        /// On days of the week.
        Weekly = 3 "weekly",
        /// On days of the month.
        Monthly = 4 "monthly",
    }
}

/// What a schedule has done, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Since when it counts, as it is now: slots before are not made up for.
    pub since: i64,
    /// When it last took a snapshot.
    pub last: Option<i64>,
}

/// The schedules in force, with what they have done.
pub type Runs = BTreeMap<Period, Run>;

wire_enum! {
    /// Protocols of a volume.
    Protocol {
        /// NFS version 3 (RFC 1813).
        Nfsv3 = 1 "NFSV3",
        /// NFS version 4.1 (RFC 8881).
        Nfsv4 = 2 "NFSV4",
        /// SMB 2.1 to 3.1.1 (MS-SMB2).
        Smb = 3 "SMB",
    }
}

wire_enum! {
    /// Settings of a volume's share over SMB, by NetApp's names.
    SmbSetting {
        /// Only clients that encrypt may use it.
        EncryptData = 1 "ENCRYPT_DATA",
        /// It is listed. So is every share that is not `NonBrowsable`.
        Browsable = 2 "BROWSABLE",
        /// Clients may have changes of directories reported. Every share's may.
        ChangeNotify = 3 "CHANGE_NOTIFY",
        /// It is not listed, but found by its name.
        NonBrowsable = 4 "NON_BROWSABLE",
        /// Clients may cache. Every share's may.
        Oplocks = 5 "OPLOCKS",
        /// The directory of snapshots is listed in its root.
        ShowSnapshot = 6 "SHOW_SNAPSHOT",
        /// Snapshots are shown as previous versions of files. Every share's are.
        ShowPreviousVersions = 7 "SHOW_PREVIOUS_VERSIONS",
        /// Listings leave out what the user may not read.
        AccessBasedEnumeration = 8 "ACCESS_BASED_ENUMERATION",
        /// What clients have open outlives the server.
        ContinuouslyAvailable = 9 "CONTINUOUSLY_AVAILABLE",
    }
}

wire_enum! {
    /// Whose permissions a volume has.
    SecurityStyle {
        /// Those of Windows: only clients of SMB set them.
        Ntfs = 1 "NTFS",
        /// Those of UNIX: modes and the lists of NFSv4.
        Unix = 2 "UNIX",
    }
}

/// What a volume is to clients of SMB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Its name, where that is another one than the volume's `share_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Settings, as sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SmbSetting>,
    /// Whose permissions it has, as sent. Not given: those of UNIX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<SecurityStyle>,
}

impl Share {
    pub(crate) fn is_default(&self) -> bool {
        *self == Share::default()
    }
}

wire_enum! {
    /// What a rule of an export policy admits to.
    AccessType {
        /// Reading alone; changes are refused.
        ReadOnly = 1 "READ_ONLY",
        /// Reading, and making changes.
        ReadWrite = 2 "READ_WRITE",
        /// Nothing: the client is refused.
        ReadNone = 3 "READ_NONE",
    }
}

wire_enum! {
    /// Squash modes by NetApp's names.
    SquashMode {
        /// No caller's identity is taken away.
        NoRootSquash = 1 "NO_ROOT_SQUASH",
        /// Root's identity is taken away.
        RootSquash = 2 "ROOT_SQUASH",
        /// Every caller's identity is taken away.
        AllSquash = 3 "ALL_SQUASH",
    }
}

/// A storage pool: capacity of a service level, which volumes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Never reused; the id in [`weir_qos::PoolPlan`].
    pub id: u64,
    /// Its place and bare id.
    pub name: Name,
    /// Counts changes: what an etag can be made of.
    pub revision: u64,
    /// Whether it is usable, changing, or in error.
    pub state: State,
    /// Why the state is as it is, in words for users.
    pub state_details: String,
    /// When it was made.
    pub created: Stamp,
    /// The service level's name, in the levels file: `PREMIUM`.
    pub service_level: Arc<str>,
    /// Capacity, in GiB of 2^30 bytes.
    pub capacity_gib: u64,
    /// How throughput comes to its volumes.
    pub qos_type: QosType,
    /// Set apart from capacity (Flex): the client's switch as sent.
    pub custom_performance: bool,
    /// With custom performance: MiB/s of the pool.
    pub total_throughput_mibps: Option<f64>,
    /// With custom performance: operations a second of the pool.
    pub total_iops: Option<u64>,
    /// The bare id of the Active Directory of its volumes with SMB, in the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_directory: Option<Arc<str>>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// Fields that are the client's own.
    pub extra: Extra,
}

/// A domain of Active Directory that this server is a member of, or is to be. Whose password it joined with is stored nowhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActiveDirectory {
    /// Never reused.
    pub id: u64,
    /// Its place and bare id.
    pub name: Name,
    /// Counts up with each change.
    pub revision: u64,
    /// READY: the server is a member. ERROR: joining failed, for the reason that follows.
    pub state: State,
    /// Why the state is as it is, in words for users.
    pub state_details: String,
    /// When it was made.
    pub created: Stamp,
    /// The domain's name in the DNS, as sent.
    pub domain: Arc<str>,
    /// What the computer account's name begins with, as sent.
    pub net_bios_prefix: Arc<str>,
    /// The organizational unit of the account, as sent; empty: the domain's choice.
    pub organizational_unit: Arc<str>,
    /// The domain controller that is asked; empty: one that the DNS names.
    pub kdc_hostname: Arc<str>,
    /// The user of the domain who last joined the server, or was to.
    pub username: Arc<str>,
    /// The name by which the domain's users reach the server, once it is a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// Fields that are the client's own.
    pub extra: Extra,
}

impl ActiveDirectory {
    /// The computer account's name: the prefix, and four digits by which servers with the same prefix differ.
    pub fn computer(&self) -> String {
        let prefix = self.net_bios_prefix.to_uppercase();
        format!("{prefix}-{:04X}", self.id & 0xffff)
    }
}

/// What a rule says of one kind of Kerberos, as the client wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KerberosRule {
    /// It admits to reading.
    pub read_only: Option<bool>,
    /// It admits to reading and to making changes, whatever `read_only` says.
    pub read_write: Option<bool>,
}

/// What a rule says of the kinds of Kerberos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KerberosRules {
    /// That proves the caller's identity.
    pub krb5: KerberosRule,
    /// That protects messages against change.
    pub krb5i: KerberosRule,
    /// That encrypts messages.
    pub krb5p: KerberosRule,
}

/// A rule of an export policy, as the client wrote it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportRule {
    /// Comma-separated addresses, networks, host names, wildcards.
    pub allowed_clients: String,
    /// Access by AUTH_SYS. Not given: read and write, but none where a kind of Kerberos is admitted.
    pub access: Option<AccessType>,
    /// Access by Kerberos.
    #[serde(default)]
    pub kerberos: KerberosRules,
    /// Root keeps its identity. Not given: as `squash` says, and if neither is given, yes.
    pub root_access: Option<bool>,
    /// For NFSv3. Not given: if the volume speaks it.
    pub nfsv3: Option<bool>,
    /// For NFSv4.1. Not given: if the volume speaks it.
    pub nfsv4: Option<bool>,
    /// Callers whose identity is taken away.
    pub squash: Option<SquashMode>,
    /// User id of callers whose identity is taken away; 65,534 if not given.
    pub anon_uid: Option<u32>,
    /// Group id of such callers; 65,534 if not given.
    pub anon_gid: Option<u32>,
    /// The originals of the fields above where their form matters.
    pub extra: Extra,
}

/// Where a volume's capacity and throughput come from, and by that how it is presented: what the surfaces do not have in
/// common. It agrees with the volume's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Presentation {
    /// A volume of NetApp Volumes, and of ONTAP's words.
    Netapp(Pooled),
    /// An instance of Filestore.
    Filestore(Tiered),
}

impl Default for Presentation {
    fn default() -> Presentation {
        Presentation::Netapp(Pooled::default())
    }
}

impl Presentation {
    /// In this pool, as the pool has it.
    pub fn in_pool(pool: &str) -> Presentation {
        Presentation::Netapp(Pooled {
            pool: pool.into(),
            ..Pooled::default()
        })
    }

    /// Of this tier, as the tier has it.
    pub fn of_tier(tier: &str) -> Presentation {
        Presentation::Filestore(Tiered {
            tier: tier.into(),
            performance: None,
        })
    }

    /// The surface that has it.
    pub fn surface(&self) -> Surface {
        match self {
            Presentation::Netapp(_) => Surface::Netapp,
            Presentation::Filestore(_) => Surface::Filestore,
        }
    }
}

/// A part of a storage pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pooled {
    /// The pool's bare id, in the same place.
    pub pool: Arc<str>,
    /// MiB/s with manual QoS; `None` with automatic.
    pub throughput_mibps: Option<f64>,
    /// Whether it may exceed the usual size and speed ([`crate::levels::LargeVolumes`]): up to 30 GiB/s and 1 PiB.
    pub large: bool,
}

/// A capacity of a tier of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tiered {
    /// The tier's name, in the levels file: `BASIC_HDD`.
    pub tier: Arc<str>,
    /// Custom performance; `None`: the tier's own.
    pub performance: Option<Performance>,
}

/// A volume, as the catalog has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Never reused after the volume is deleted.
    pub id: u64,
    /// The engine's key; `v-` and the id in 16 hexadecimal digits, except where an older volume was adopted.
    pub key: Arc<str>,
    /// The engine's number, once it exists there.
    pub number: Option<u64>,
    /// The surface that it was made through, its place and bare id.
    pub name: VolumeName,
    /// Counts up with each change.
    pub revision: u64,
    /// Whether it is usable, changing, or in error.
    pub state: State,
    /// Why the state is as it is, in words for users.
    pub state_details: String,
    /// When it was made.
    pub created: Stamp,
    /// What it has of its surface alone.
    pub presentation: Presentation,
    /// The share's name, as it was asked for.
    pub share_name: Arc<str>,
    /// The export paths without their leading slash, the canonical one first; at least one ([`crate::rules::paths`]).
    pub paths: Vec<Arc<str>>,
    /// Capacity, in GiB of 2^30 bytes, which Filestore calls GB.
    pub capacity_gib: u64,
    /// Protocols that clients may use, as sent. None were, of a Filestore instance: NFSv3.
    pub protocols: Vec<Protocol>,
    /// Export policy; `None` where the client sent none: then the server's default counts (`--export-options`).
    pub export_rules: Option<Vec<ExportRule>>,
    /// What it is to clients of SMB, if it has that protocol.
    #[serde(default, skip_serializing_if = "Share::is_default")]
    pub smb: Share,
    /// Permission bits of the root, 0 ..= 0o7777.
    pub unix_permissions: u32,
    /// Whether clients see `.snapshot`.
    pub snapshot_directory: bool,
    /// Percent of the capacity kept for snapshots; as sent.
    pub snap_reserve: Option<f64>,
    /// Snapshot policy, as sent.
    pub snapshot_policy: Option<serde_json::Value>,
    /// What its schedules have done.
    pub snapshot_runs: Runs,
    /// Deletion is refused: `restrictedActions` holds DELETE, or `deletionProtectionEnabled`.
    pub deletion_restricted: bool,
    /// Made as a copy of a snapshot, with which it still shares blocks.
    pub clone_of: Option<SnapshotName>,
    /// What it shares is being copied, so that it will depend on no other volume.
    pub splitting: bool,
    /// It was made as a destination. Whether it still is one, the engine knows.
    pub protection: bool,
    /// Policies that it refers to by name, and whether it is served.
    #[serde(default, skip_serializing_if = "Assigned::is_default")]
    pub assigned: Assigned,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// Fields that are the client's own.
    pub extra: Extra,
}

impl Volume {
    /// The canonical export path, without its leading slash.
    pub fn path(&self) -> &Arc<str> {
        self.paths.first().unwrap_or(&self.share_name)
    }

    /// The name of its share over SMB; `None`: it has not that protocol.
    pub fn smb_share(&self) -> Option<&Arc<str>> {
        let smb = self.protocols.contains(&Protocol::Smb);
        smb.then(|| self.smb.name.as_ref().unwrap_or(&self.share_name))
    }

    /// Its part of a pool, if it has one.
    pub fn pooled(&self) -> Option<&Pooled> {
        match &self.presentation {
            Presentation::Netapp(pooled) => Some(pooled),
            Presentation::Filestore(_) => None,
        }
    }

    /// Its tier, if it has one.
    pub fn tiered(&self) -> Option<&Tiered> {
        match &self.presentation {
            Presentation::Netapp(_) => None,
            Presentation::Filestore(tiered) => Some(tiered),
        }
    }

    /// The pool that it is in, if it is in one.
    pub fn pool(&self) -> Option<Name> {
        Some(self.name.place.name(&self.pooled()?.pool))
    }

    /// MiB/s that were given to it of its pool.
    pub fn throughput_mibps(&self) -> Option<f64> {
        self.pooled()?.throughput_mibps
    }

    /// Whether it may exceed the usual size and speed of its pool's level.
    pub fn large(&self) -> bool {
        self.pooled().is_some_and(|pooled| pooled.large)
    }

    /// Refuses changes while it is being made, deleted or reverted.
    pub(crate) fn idle(&self) -> Result<(), Refusal> {
        match self.state {
            State::Ready | State::Updating | State::Error => Ok(()),
            State::Creating | State::Restoring | State::Deleting => Err(Refusal::new(
                Status::Aborted,
                "RESOURCE_BUSY",
                format!(
                    "{} {} is {}; try again when it is READY",
                    self.name.surface.noun(),
                    self.name.id,
                    self.state.as_str()
                ),
            )),
        }
    }
}

/// The label of a snapshot that replication policies choose by; the engine keeps it too.
pub const SNAPMIRROR_LABEL: &str = "snapmirror-label";

/// A snapshot of a volume or an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Never reused after the snapshot is deleted.
    pub id: u64,
    /// Its parent's name and its bare id.
    pub name: SnapshotName,
    /// Counts up with each change.
    pub revision: u64,
    /// Whether it is usable, changing, or in error.
    pub state: State,
    /// Why the state is as it is, in words for users.
    pub state_details: String,
    /// When it was taken.
    pub created: Stamp,
    /// Which it is in the engine; `None` until it is there.
    #[serde(default)]
    pub engine: Option<EngineSnapshot>,
    /// The schedule that took it; its oldest are deleted when there are too many. `None`: a user took it, or renamed
    /// it.
    #[serde(default)]
    pub schedule: Option<Period>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// Fields that are the client's own.
    pub extra: Extra,
}

/// A snapshot as the engine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSnapshot {
    /// Its number in the volume: those of later ones are greater.
    pub number: u32,
    /// Which it is, on whatever volume and under whatever name.
    pub identity: SnapshotIdentity,
}

impl Snapshot {
    /// What replication policies know it by; empty: nothing.
    pub fn snapmirror_label(&self) -> &str {
        self.labels.get(SNAPMIRROR_LABEL).map_or("", String::as_str)
    }
}

/// Custom performance of a Filestore instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Performance {
    /// Operations a second for each TB.
    IopsPerTb(u64),
    /// Operations a second of the whole instance.
    FixedIops(u64),
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// As asked; the target is there ([`crate::View::resource`]).
    Done,
    /// As asked; the target is gone.
    Deleted,
    /// Not as asked, for this reason.
    Failed(Refusal),
}

/// A mutation on its way, or at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its place and bare id.
    pub name: Name,
    /// What the node is to do.
    pub job: Job,
    /// A schedule's: once it has succeeded it is forgotten, so that the users' own stay to be seen.
    #[serde(default)]
    pub quiet: bool,
    /// The number of its line in the audit log.
    pub audit: Option<i64>,
    /// When it was accepted.
    pub created: Stamp,
    /// When it ended; `None` while it runs.
    pub ended: Option<Stamp>,
    /// How it ended; `None` while it runs.
    pub outcome: Option<Outcome>,
    /// Warnings for the user who asked for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The target as it was when the operation had been done, as [`crate::Render`] made it.
    #[serde(default)]
    pub response: Option<Arc<str>>,
}

impl Operation {
    /// The resource that it changes.
    pub fn target(&self) -> Target {
        self.job.target()
    }

    /// What it does to that.
    pub fn verb(&self) -> &str {
        self.job.verb()
    }

    /// Which surface it belongs to.
    pub fn surface(&self) -> Surface {
        match self.target() {
            Target::Volume(name) => name.surface,
            Target::Snapshot(name) => name.parent.surface,
            Target::Pool(_)
            | Target::Replication(_)
            | Target::ActiveDirectory(_)
            | Target::Relation(_) => Surface::Netapp,
        }
    }

    /// Whether it has ended.
    pub fn done(&self) -> bool {
        self.outcome.is_some()
    }

    /// The full name: `projects/p/locations/l/operations/id`.
    pub fn full_name(&self) -> String {
        self.name.full(Collection::Operations)
    }
}

/// Any of the resources.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    /// A NetApp storage pool.
    Pool(Arc<Pool>),
    /// A volume, of whichever surface.
    Volume(Arc<Volume>),
    /// A snapshot of a volume.
    Snapshot(Arc<Snapshot>),
    /// A domain of Active Directory.
    ActiveDirectory(Arc<ActiveDirectory>),
}

impl Resource {
    /// Whether the other one is this very value, so that nothing has changed between the two.
    pub(crate) fn is(&self, other: &Resource) -> bool {
        match (self, other) {
            (Resource::Pool(a), Resource::Pool(b)) => Arc::ptr_eq(a, b),
            (Resource::Volume(a), Resource::Volume(b)) => Arc::ptr_eq(a, b),
            (Resource::Snapshot(a), Resource::Snapshot(b)) => Arc::ptr_eq(a, b),
            (Resource::ActiveDirectory(a), Resource::ActiveDirectory(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

wire_enum! {
    /// What a token entitles to; each includes those before it.
    Role {
        /// Reading resources and operations.
        Viewer = 1 "viewer",
        /// Changing resources as well.
        Editor = 2 "editor",
        /// Tokens and the audit log as well.
        Admin = 3 "admin",
    }
}

/// The user or process that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// A token's name, or `local`.
    pub name: Arc<str>,
    /// What the token entitles to.
    pub role: Role,
    /// Where from, for the audit log.
    pub address: Option<std::net::IpAddr>,
}

impl Actor {
    /// A client of the loopback listener, or the server itself.
    pub fn local() -> Actor {
        Actor {
            name: "local".into(),
            role: Role::Admin,
            address: None,
        }
    }
}
