//! The resources in their intended state.
//!
//! Fields that only the client interprets (`network`, `psaRange`, `kmsConfig`, …) are kept in
//! `extra` and returned as they were sent. Values that follow from other fields (a pool's available
//! throughput, a volume's service level) are computed, not stored: see [`crate::rules`] and
//! [`crate::View`].

use crate::constituent::{Constituent, Span};
use crate::job::Job;
use crate::name::{
    BackupName, Collection, Name, QuotaRuleName, SnapshotName, Surface, Target, VolumeName,
};
use crate::policy_assignment::PolicyAssignment;
use crate::quota::{QuotaRule, Quotas};
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::SnapshotIdentity;
use weir_relations::plan::TreePolicies;

/// Labels of a resource.
pub type Labels = BTreeMap<String, String>;
/// A client's own fields, by their JSON names.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// Defines an enumeration with the API's spellings and numbers.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }
        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// Returns the API's name.
            pub fn as_str(self) -> &'static str { match self { $($name::$variant => $text),+ } }
            /// Returns the API's number.
            pub fn number(self) -> i64 { match self { $($name::$variant => $number),+ } }
            /// Returns the value with the API's name.
            pub fn from_name(name: &str) -> Option<$name> { match name { $($text => Some($name::$variant),)+ _ => None } }
            /// Returns the value with the API's number.
            pub fn from_number(number: i64) -> Option<$name> { match number { $($number => Some($name::$variant),)+ _ => None } }
        }
    };
}

wire_enum! {
    /// State of a resource. The numbers are those of NetApp's `Volume.State`; the surfaces convert
    /// them for other resources.
    State {
        /// Created, and not being changed.
        Ready = 1 "READY",
        /// Being created on the node.
        Creating = 2 "CREATING",
        /// Being deleted on the node.
        Deleting = 3 "DELETING",
        /// Being changed on the node.
        Updating = 4 "UPDATING",
        /// Being reverted to a snapshot.
        Restoring = 5 "RESTORING",
        /// Different from the intended state, and retried from time to time; `state_details` gives
        /// the reason.
        Error = 7 "ERROR",
    }
}

wire_enum! {
    /// Assignment of throughput to a pool's volumes.
    QosType {
        /// In proportion to their capacity.
        Auto = 1 "AUTO",
        /// Chosen by their owner.
        Manual = 2 "MANUAL",
    }
}

wire_enum! {
    /// Period of a schedule in a snapshot policy. The names are the prefixes of the snapshots'
    /// names, and their labels.
    Period {
        /// Once an hour.
        Hourly = 1 "hourly",
        /// Once a day.
        Daily = 2 "daily",
        /// On days of the week.
        Weekly = 3 "weekly",
        /// On days of the month.
        Monthly = 4 "monthly",
    }
}

/// Past runs of a schedule, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Time from which the schedule in its present form applies: earlier slots are not made up for.
    pub since: i64,
    /// Time of its last snapshot.
    pub last: Option<i64>,
}

/// Runs of the schedules in force.
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
        /// Only encrypted access.
        EncryptData = 1 "ENCRYPT_DATA",
        /// Listed. So is every share that is not `NonBrowsable`.
        Browsable = 2 "BROWSABLE",
        /// Directory change notifications. Every share has them.
        ChangeNotify = 3 "CHANGE_NOTIFY",
        /// Not listed, but accessible by name.
        NonBrowsable = 4 "NON_BROWSABLE",
        /// Client caching. Every share has it.
        Oplocks = 5 "OPLOCKS",
        /// The directory of snapshots is listed in its root.
        ShowSnapshot = 6 "SHOW_SNAPSHOT",
        /// Snapshots are shown as previous versions of files. Every share does that.
        ShowPreviousVersions = 7 "SHOW_PREVIOUS_VERSIONS",
        /// Listings omit entries that the user may not read.
        AccessBasedEnumeration = 8 "ACCESS_BASED_ENUMERATION",
        /// Opens of clients survive a restart of the server.
        ContinuouslyAvailable = 9 "CONTINUOUSLY_AVAILABLE",
    }
}

wire_enum! {
    /// Kind of permissions of a volume.
    SecurityStyle {
        /// Those of Windows: only clients of SMB set them.
        Ntfs = 1 "NTFS",
        /// Those of UNIX: modes and NFSv4 access control lists.
        Unix = 2 "UNIX",
    }
}

/// Share of a volume for clients of SMB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Name of the share, if different from the volume's `share_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Settings, as sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SmbSetting>,
    /// Security style, as sent. `None`: UNIX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<SecurityStyle>,
}

impl Share {
    pub(crate) fn is_default(&self) -> bool {
        *self == Share::default()
    }
}

wire_enum! {
    /// Access that an export rule grants.
    AccessType {
        /// Read only; changes are refused.
        ReadOnly = 1 "READ_ONLY",
        /// Read and write.
        ReadWrite = 2 "READ_WRITE",
        /// No access: the client is refused.
        ReadNone = 3 "READ_NONE",
    }
}

wire_enum! {
    /// Squash modes by NetApp's names.
    SquashMode {
        /// No caller becomes anonymous.
        NoRootSquash = 1 "NO_ROOT_SQUASH",
        /// Root becomes anonymous.
        RootSquash = 2 "ROOT_SQUASH",
        /// Every caller becomes anonymous.
        AllSquash = 3 "ALL_SQUASH",
    }
}

/// A storage pool: capacity of a service level, which volumes share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Identifier, never reused; the id in [`weir_qos::PoolPlan`].
    pub id: u64,
    /// Name: place and bare id.
    pub name: Name,
    /// Number of changes, from which an etag can be made.
    pub revision: u64,
    /// State: usable, changing, or in error.
    pub state: State,
    /// Reason for the state, in words for users.
    pub state_details: String,
    /// Time of creation.
    pub created: Stamp,
    /// Name of the service level in the levels file: `PREMIUM`.
    pub service_level: Arc<str>,
    /// Capacity, in GiB of 2^30 bytes.
    pub capacity_gib: u64,
    /// Assignment of throughput to its volumes.
    pub qos_type: QosType,
    /// Custom performance, independent of capacity (Flex): the client's switch as sent.
    pub custom_performance: bool,
    /// With custom performance: MiB/s of the pool.
    pub total_throughput_mibps: Option<f64>,
    /// With custom performance: operations a second of the pool.
    pub total_iops: Option<u64>,
    /// Bare id of the Active Directory of its SMB volumes, in the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_directory: Option<Arc<str>>,
    /// Its place among pools of the same name in other aggregates, if it is a part of one pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// An Active Directory domain that this server is, or will be, a member of. The password of the
/// join is not stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActiveDirectory {
    /// Identifier, never reused.
    pub id: u64,
    /// Name: place and bare id.
    pub name: Name,
    /// Number of changes.
    pub revision: u64,
    /// State. READY: the server is a member. ERROR: joining failed, for the reason in
    /// `state_details`.
    pub state: State,
    /// Reason for the state, in words for users.
    pub state_details: String,
    /// Time of creation.
    pub created: Stamp,
    /// DNS name of the domain, as sent.
    pub domain: Arc<str>,
    /// Prefix of the computer account's name, as sent.
    pub net_bios_prefix: Arc<str>,
    /// The organizational unit of the account, as sent; empty: the domain's choice.
    pub organizational_unit: Arc<str>,
    /// Domain controller to use; empty: one found through DNS.
    pub kdc_hostname: Arc<str>,
    /// User of the domain for the last join.
    pub username: Arc<str>,
    /// Name by which the domain's users reach the server, once it is a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

impl ActiveDirectory {
    /// Returns the computer account's name: the prefix, and four digits that distinguish servers
    /// with the same prefix.
    pub fn computer(&self) -> String {
        let prefix = self.net_bios_prefix.to_uppercase();
        format!("{prefix}-{:04X}", self.id & 0xffff)
    }
}

/// A vault of backups in the server's bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackupVault {
    /// Identifier, never reused.
    pub id: u64,
    /// Name: place and bare id.
    pub name: Name,
    /// Number of changes.
    pub revision: u64,
    /// State.
    pub state: State,
    /// Reason for the state, in words for users.
    pub state_details: String,
    /// Time of creation.
    pub created: Stamp,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

impl BackupVault {
    /// Returns its name in the bucket, by which the node keeps its key.
    pub fn key(&self) -> String {
        format!("b-{:016x}", self.id)
    }
}

/// A backup of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backup {
    /// Identifier, never reused.
    pub id: u64,
    /// Name: vault and bare id.
    pub name: BackupName,
    /// Number of changes.
    pub revision: u64,
    /// State. ERROR: it was not made, for the reason in `state_details`.
    pub state: State,
    /// Reason for the state, in words for users.
    pub state_details: String,
    /// Time of creation.
    pub created: Stamp,
    /// The volume that it is of, by its name at that time.
    pub source: VolumeName,
    /// Identifier of that volume.
    pub source_id: u64,
    /// Bare id of the snapshot that it is of, as sent; `None`: one was taken for it.
    pub snapshot: Option<Arc<str>>,
    /// Bytes of file data in it.
    pub bytes: u64,
    /// Bytes that were uploaded for it.
    pub uploaded: u64,
    /// Export policies of its qtrees that had their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trees: TreePolicies,
    /// Schedule that made it; its oldest backups are deleted when there are too many. `None`: a
    /// user made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Period>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

impl Backup {
    /// Returns the name of the snapshot in the engine.
    pub fn engine_snapshot(&self) -> String {
        match &self.snapshot {
            Some(id) => id.to_string(),
            None => format!("backup-{:016x}", self.id),
        }
    }
}

/// A policy of backups: how many of each schedule are kept. Schedules run at midnight (UTC): every
/// day, on Mondays, and on the first day of a month.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackupPolicy {
    /// Identifier, never reused.
    pub id: u64,
    /// Name: place and bare id.
    pub name: Name,
    /// Number of changes.
    pub revision: u64,
    /// Time of creation.
    pub created: Stamp,
    /// Daily backups to keep; 0: none are made.
    pub daily: u32,
    /// Weekly backups to keep; 0: none are made.
    pub weekly: u32,
    /// Monthly backups to keep; 0: none are made.
    pub monthly: u32,
    /// False if it makes no backups.
    pub enabled: bool,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Scheduled backups of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupConfig {
    /// Bare ids of its backup policies, in the same place; one at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Arc<str>>,
    /// Bare id of the vault for its scheduled backups, in the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<Arc<str>>,
    /// False if the policy does not apply now, as sent. `None`: it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Access by one kind of Kerberos in a rule, as the client wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KerberosRule {
    /// Grants reading.
    pub read_only: Option<bool>,
    /// Grants reading and writing, whatever `read_only` says.
    pub read_write: Option<bool>,
}

/// Access by the kinds of Kerberos in a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KerberosRules {
    /// Kerberos that authenticates the caller.
    pub krb5: KerberosRule,
    /// Kerberos that also protects the integrity of messages.
    pub krb5i: KerberosRule,
    /// Kerberos that also encrypts messages.
    pub krb5p: KerberosRule,
}

/// Export policy of a qtree that has its own. Clients need the volume's as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeExport {
    /// [`crate::NamedPolicy::id`]; `None`: the server's default, or an unknown policy.
    pub policy: Option<u64>,
    /// The policy's rules; `None`: the server's default.
    pub rules: Option<Vec<ExportRule>>,
    /// Name of the policy that the qtree had where it comes from, if there is none of that name;
    /// empty if the name is not known either. Nobody is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Arc<str>>,
    /// True if it was taken over from the volume that this one is a copy of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copied: bool,
}

/// A rule of an export policy, as the client wrote it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportRule {
    /// Comma-separated addresses, networks, host names, wildcards.
    pub allowed_clients: String,
    /// Access by AUTH_SYS. `None`: read and write, but no access if a kind of Kerberos is admitted.
    pub access: Option<AccessType>,
    /// Access by Kerberos.
    #[serde(default)]
    pub kerberos: KerberosRules,
    /// True if root keeps its identity. `None`: as `squash` says, and if that is `None`, true.
    pub root_access: Option<bool>,
    /// Applies to NFSv3. `None`: if the volume has that protocol.
    pub nfsv3: Option<bool>,
    /// Applies to NFSv4.1. `None`: if the volume has that protocol.
    pub nfsv4: Option<bool>,
    /// Callers that become anonymous.
    pub squash: Option<SquashMode>,
    /// User id of anonymous callers; 65,534 if `None`.
    pub anon_uid: Option<u32>,
    /// Group id of anonymous callers; 65,534 if `None`.
    pub anon_gid: Option<u32>,
    /// Originals of the fields above if their form matters.
    pub extra: Extra,
}

/// Source of a volume's capacity and throughput, which determines its presentation: the fields that
/// differ between surfaces. It agrees with the volume's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Presentation {
    /// A volume of NetApp Volumes, and of ONTAP's words.
    Netapp(PooledSettings),
    /// An instance of Filestore.
    Filestore(TieredSettings),
}

impl Default for Presentation {
    fn default() -> Presentation {
        Presentation::Netapp(PooledSettings::default())
    }
}

impl Presentation {
    /// Returns a presentation in this pool with the pool's defaults.
    pub fn in_pool(pool: &str) -> Presentation {
        Presentation::Netapp(PooledSettings {
            pool: pool.into(),
            ..PooledSettings::default()
        })
    }

    /// Returns a presentation of this tier with the tier's defaults.
    pub fn of_tier(tier: &str) -> Presentation {
        Presentation::Filestore(TieredSettings {
            tier: tier.into(),
            performance: None,
            address: None,
        })
    }

    /// Returns its surface.
    pub fn surface(&self) -> Surface {
        match self {
            Presentation::Netapp(_) => Surface::Netapp,
            Presentation::Filestore(_) => Surface::Filestore,
        }
    }
}

/// The part of a volume in a storage pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PooledSettings {
    /// Bare id of the pool, in the same place.
    pub pool: Arc<str>,
    /// MiB/s with manual QoS; `None` with automatic.
    pub throughput_mibps: Option<f64>,
    /// True if it may exceed the usual size and throughput ([`crate::levels::LargeVolumes`]): up to
    /// 30 GiB/s and 1 PiB.
    pub large: bool,
    /// Its place in a large volume of a cluster, if it is a constituent of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constituent: Option<Constituent>,
}

/// The part of a volume with a tier of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TieredSettings {
    /// Name of the tier in the levels file: `BASIC_HDD`.
    pub tier: Arc<str>,
    /// Custom performance; `None`: the tier's own.
    pub performance: Option<Performance>,
    /// Address of the server that is the instance's own; `None`: it is at the server's address,
    /// like all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// Move of a volume to another aggregate ([`weir_relations::cutover`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMove {
    /// Number of the move.
    pub id: u64,
    /// Bare id of the storage pool that gets it, in the same place; `None`: the only one there.
    pub pool: Option<Arc<str>>,
    /// Name of the aggregate that gets it; `None`: that of the pool.
    pub aggregate: Option<Arc<str>>,
    /// Time at which the move was requested.
    pub began: Stamp,
    /// The attempt whose destination decides who serves the volume.
    #[serde(default)]
    pub handed_over: Option<HandedOver>,
}

/// An attempt to end a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// Number of the attempt.
    pub attempt: u64,
    /// Identity of the aggregate that decides.
    pub to: [u8; 16],
}

/// Identity under which clients know a volume: that of the aggregate in which it was created.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Identity of the aggregate.
    pub aggregate: [u8; 16],
    /// The secret of its file handles.
    pub secret: [u8; 16],
    /// Number of the volume there.
    pub number: u64,
    /// Identity of the volume's file system for clients.
    pub fsid: u64,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        let aggregate = u128::from_be_bytes(self.aggregate);
        write!(f, "Origin({aggregate:032x}, {})", self.number)
    }
}

/// A volume in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Identifier, never reused.
    pub id: u64,
    /// The engine's key; `v-` and the id in 16 hexadecimal digits, except where an older volume was
    /// adopted.
    pub key: Arc<str>,
    /// The engine's number, once it exists there.
    pub number: Option<u64>,
    /// Name: surface that it was created through, place and bare id.
    pub name: VolumeName,
    /// Number of changes.
    pub revision: u64,
    /// State: usable, changing, or in error.
    pub state: State,
    /// Reason for the state, in words for users.
    pub state_details: String,
    /// Time of creation.
    pub created: Stamp,
    /// Fields of its surface.
    pub presentation: Presentation,
    /// Requested share name.
    pub share_name: Arc<str>,
    /// Export paths without their leading slash, the canonical one first; at least one
    /// ([`crate::rules::paths`]).
    pub paths: Vec<Arc<str>>,
    /// Capacity, in GiB of 2^30 bytes, which Filestore calls GB.
    pub capacity_gib: u64,
    /// Protocols that clients may use, as sent. Empty for a Filestore instance: NFSv3.
    pub protocols: Vec<Protocol>,
    /// Export policy; `None` if the client sent none: then the server's default applies
    /// (`--export-options`).
    pub export_rules: Option<Vec<ExportRule>>,
    /// Share for clients of SMB, if it has that protocol.
    #[serde(default, skip_serializing_if = "Share::is_default")]
    pub smb: Share,
    /// Permission bits of the root, 0 ..= 0o7777.
    pub unix_permissions: u32,
    /// True if clients see `.snapshot`.
    pub snapshot_directory: bool,
    /// Percentage of the capacity reserved for snapshots, as sent.
    pub snap_reserve: Option<f64>,
    /// Snapshot policy, as sent.
    pub snapshot_policy: Option<serde_json::Value>,
    /// Past runs of its schedules.
    pub snapshot_runs: Runs,
    /// Scheduled backups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupConfig>,
    /// Past runs of the schedules of its backup policy.
    #[serde(default, skip_serializing_if = "Runs::is_empty")]
    pub backup_runs: Runs,
    /// True if deletion is refused: `restrictedActions` contains DELETE, or
    /// `deletionProtectionEnabled`.
    pub deletion_restricted: bool,
    /// Snapshot that it is a clone of, while it still shares blocks with it.
    pub clone_of: Option<SnapshotName>,
    /// The backup that it was restored from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_of: Option<BackupName>,
    /// True while its shared blocks are being copied.
    pub splitting: bool,
    /// True if it was created as a destination. The engine knows whether it still is one.
    pub protection: bool,
    /// Policies assigned by name, and availability.
    #[serde(default, skip_serializing_if = "PolicyAssignment::is_default")]
    pub assigned: PolicyAssignment,
    /// Export policies of its qtrees that have their own, by the qtree's number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trees: BTreeMap<u32, TreeExport>,
    /// Limits of what its users and groups hold.
    #[serde(default, skip_serializing_if = "Quotas::is_default")]
    pub quotas: Quotas,
    /// Its move to another aggregate, while that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<VolumeMove>,
    /// Identity under which clients know it, if it came from another aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

impl Volume {
    /// Returns the canonical export path, without its leading slash.
    pub fn path(&self) -> &Arc<str> {
        self.paths.first().unwrap_or(&self.share_name)
    }

    /// Returns the address of the server that is its own, if it has one.
    pub fn own_address(&self) -> Option<IpAddr> {
        self.tiered()?.address
    }

    /// Returns the name of its share over SMB; `None` if it does not have that protocol.
    pub fn smb_share(&self) -> Option<&Arc<str>> {
        let smb = self.protocols.contains(&Protocol::Smb);
        smb.then(|| self.smb.name.as_ref().unwrap_or(&self.share_name))
    }

    /// Returns its part of a pool, if it has one.
    pub fn pooled(&self) -> Option<&PooledSettings> {
        match &self.presentation {
            Presentation::Netapp(pooled) => Some(pooled),
            Presentation::Filestore(_) => None,
        }
    }

    /// Returns its tier, if it has one.
    pub fn tiered(&self) -> Option<&TieredSettings> {
        match &self.presentation {
            Presentation::Netapp(_) => None,
            Presentation::Filestore(tiered) => Some(tiered),
        }
    }

    /// Returns its pool, if it is in one.
    pub fn pool(&self) -> Option<Name> {
        Some(self.name.place.name(&self.pooled()?.pool))
    }

    /// Returns the MiB/s assigned to it from its pool.
    pub fn throughput_mibps(&self) -> Option<f64> {
        self.pooled()?.throughput_mibps
    }

    /// Returns true if it may exceed the usual size and throughput of its pool's level.
    pub fn large(&self) -> bool {
        self.pooled().is_some_and(|pooled| pooled.large)
    }

    /// Returns its place in a large volume of a cluster, if it is a constituent of one.
    pub fn constituent(&self) -> Option<Constituent> {
        self.pooled()?.constituent
    }

    /// Refuses changes while it is being created, deleted or reverted, or is handed over to another
    /// aggregate.
    pub(crate) fn idle(&self) -> Result<(), Refusal> {
        let moving = self.moving.as_ref();
        if moving.is_some_and(|moving| moving.handed_over.is_some()) {
            return Err(Refusal::new(
                Status::Aborted,
                "RESOURCE_BUSY",
                format!(
                    "volume {} is being moved to another aggregate; try again in a moment",
                    self.name.id
                ),
            ));
        }
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

/// Label of a snapshot for replication policies; the engine stores it too.
pub const SNAPMIRROR_LABEL: &str = "snapmirror-label";

/// A snapshot of a volume or an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Identifier, never reused.
    pub id: u64,
    /// Name: its parent's name and its bare id.
    pub name: SnapshotName,
    /// Number of changes.
    pub revision: u64,
    /// State: usable, changing, or in error.
    pub state: State,
    /// Reason for the state, in words for users.
    pub state_details: String,
    /// Time of creation.
    pub created: Stamp,
    /// Identification in the engine; `None` until it exists there.
    #[serde(default)]
    pub engine: Option<EngineSnapshot>,
    /// Schedule that took it; its oldest snapshots are deleted when there are too many. `None`: a
    /// user took it, or renamed it.
    #[serde(default)]
    pub schedule: Option<Period>,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Identification of a snapshot in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSnapshot {
    /// Number in the volume: later snapshots have greater numbers.
    pub number: u32,
    /// Identity, equal in all copies and under all names.
    pub identity: SnapshotIdentity,
}

impl Snapshot {
    /// Returns the label for replication policies; may be empty.
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

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Done; the target exists ([`crate::View::resource`]).
    Done,
    /// Done; the target is deleted.
    Deleted,
    /// Failed, for this reason.
    Failed(Refusal),
}

/// A mutation in progress, or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Name: place and bare id.
    pub name: Name,
    /// Job for the node.
    pub job: Job,
    /// True for a schedule's operation: it is forgotten once it has succeeded, so that the users'
    /// own stay listed.
    #[serde(default)]
    pub quiet: bool,
    /// Number of its line in the audit log.
    pub audit: Option<i64>,
    /// Time of acceptance.
    pub created: Stamp,
    /// Time of the end; `None` while it runs.
    pub ended: Option<Stamp>,
    /// Outcome; `None` while it runs.
    pub outcome: Option<Outcome>,
    /// Warnings for the user who requested it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// State of the target at the end of the operation, as made by [`crate::Render`].
    #[serde(default)]
    pub response: Option<Arc<str>>,
}

impl Operation {
    /// Returns the resource that it changes.
    pub fn target(&self) -> Target {
        self.job.target()
    }

    /// Returns its action.
    pub fn verb(&self) -> &str {
        self.job.verb()
    }

    /// Returns its surface.
    pub fn surface(&self) -> Surface {
        match self.target() {
            Target::Volume(name) => name.surface,
            Target::Snapshot(name) => name.parent.surface,
            Target::QuotaRule(name) => name.volume.surface,
            Target::Backup(name) => name.surface(),
            Target::Pool(_)
            | Target::Replication(_)
            | Target::ActiveDirectory(_)
            | Target::BackupVault(_)
            | Target::BackupPolicy(_)
            | Target::Relation(_) => Surface::Netapp,
        }
    }

    /// Returns true if it has ended.
    pub fn done(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns the full name: `projects/p/locations/l/operations/id`.
    pub fn full_name(&self) -> String {
        self.name.full(Collection::Operations)
    }
}

/// Any of the resources.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    /// A NetApp storage pool.
    Pool(Arc<Pool>),
    /// A volume of either surface.
    Volume(Arc<Volume>),
    /// A snapshot of a volume.
    Snapshot(Arc<Snapshot>),
    /// A domain of Active Directory.
    ActiveDirectory(Arc<ActiveDirectory>),
    /// A quota rule of a volume.
    QuotaRule(QuotaRuleName, QuotaRule),
    /// A vault of backups.
    BackupVault(Arc<BackupVault>),
    /// A backup of a volume.
    Backup(Arc<Backup>),
    /// A policy of backups.
    BackupPolicy(Arc<BackupPolicy>),
}

impl Resource {
    /// Returns true if the other one is the same value, so that nothing has changed between the
    /// two.
    pub(crate) fn is(&self, other: &Resource) -> bool {
        match (self, other) {
            (Resource::Pool(a), Resource::Pool(b)) => Arc::ptr_eq(a, b),
            (Resource::Volume(a), Resource::Volume(b)) => Arc::ptr_eq(a, b),
            (Resource::Snapshot(a), Resource::Snapshot(b)) => Arc::ptr_eq(a, b),
            (Resource::ActiveDirectory(a), Resource::ActiveDirectory(b)) => Arc::ptr_eq(a, b),
            (Resource::QuotaRule(a, rule), Resource::QuotaRule(b, other)) => {
                a == b && rule == other
            }
            (Resource::BackupVault(a), Resource::BackupVault(b)) => Arc::ptr_eq(a, b),
            (Resource::Backup(a), Resource::Backup(b)) => Arc::ptr_eq(a, b),
            (Resource::BackupPolicy(a), Resource::BackupPolicy(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

wire_enum! {
    /// Rights of a token; each role includes those before it.
    Role {
        /// Read resources and operations.
        Viewer = 1 "viewer",
        /// Change resources as well.
        Editor = 2 "editor",
        /// Manage tokens and the audit log as well.
        Admin = 3 "admin",
    }
}

/// The user or process that makes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// A token's name, or `local`.
    pub name: Arc<str>,
    /// Role of the token.
    pub role: Role,
    /// Address of the caller, for the audit log.
    pub address: Option<std::net::IpAddr>,
}

impl Actor {
    /// Returns the actor for a client of the loopback listener, or the server itself.
    pub fn local() -> Actor {
        Actor {
            name: "local".into(),
            role: Role::Admin,
            address: None,
        }
    }
}
