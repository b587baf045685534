//! Interface of the reconciler to the node that serves the data.
//!
//! The catalog holds the intended state; a [`Backend`] makes it actual. Every call is idempotent:
//! an interrupted job is run again from its start, and state that is already as intended is left
//! alone. Calls may wait for the disk and are made off the threads that serve requests.

use crate::constituent::Constituent;
use crate::model::{EngineSnapshot, Origin};
use crate::secret::Secret;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
pub use weir_base::SnapshotIdentity;
use weir_vfs::Flavours;
use weir_volume::QuotaRules;

/// Reason why a call to the node failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No object has this key or name.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The current state of the volume forbids the call.
    #[error("{0}")]
    Precondition(String),
    /// The node has no room for it.
    #[error("{0}")]
    NoSpace(String),
    /// A failure of the device or another cause outside the request; a retry may help.
    #[error("{0}")]
    Failed(String),
}

/// Capacity of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of data and of blocks that only snapshots hold; `None` is the device's own limit.
    pub bytes: Option<u64>,
    /// Bytes of it reserved for snapshots.
    pub reserve: u64,
}

/// Intended state of a volume in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Opaque, never reused: `v-` and 16 hexadecimal digits.
    pub key: String,
    /// Capacity of the volume.
    pub capacity: Capacity,
    /// Permission bits of the root, 0 ..= 0o7777, when the volume is made.
    pub root_mode: u32,
    /// Origin of a clone: the key of another volume and the name of its snapshot.
    pub clone_of: Option<(String, String)>,
    /// True for a destination, which only transfers write to.
    pub protection: bool,
    /// Its place in a large volume, if it is a constituent of one.
    pub constituent: Option<Constituent>,
}

/// State of a volume in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// The volume's key in the engine.
    pub key: String,
    /// The engine's number, which [`weir_qos::VolumePlan`] and file handles contain.
    pub number: u64,
    /// Bytes held by data.
    pub used: u64,
    /// True if it shares blocks with the volume that it is a clone of.
    pub shared: bool,
    /// True while shared blocks are being copied.
    pub splitting: bool,
    /// True if only transfers write to it.
    pub protection: bool,
    /// Capacity in bytes, as stored last by the node; 0: no limit.
    pub limit: u64,
    /// Annotation stored by [`Publication::annotations`]; may be empty.
    pub annotation: Arc<str>,
}

/// Physical space of the aggregate: its device, and the space that the host's file system still
/// gives to a device in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Total bytes; 0: unknown.
    pub size: u64,
    /// Bytes that writes may still use.
    pub free: u64,
}

impl Space {
    /// Returns the bytes that data, metadata and reservations hold.
    pub fn used(&self) -> u64 {
        self.size.saturating_sub(self.free)
    }
}

/// State and settings of the node that rules and warnings depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Facts {
    /// Physical space.
    pub space: Space,
    /// Maximum provisioned capacity, as a multiple of the physical space; `None`: unlimited.
    pub overcommit: Option<f64>,
    /// True if the node does not serve SMB.
    pub smb_off: bool,
    /// True if the engine does not count what users and groups hold: no quota can hold.
    pub usage_off: bool,
    /// True if the node has a bucket for backups.
    pub backups: bool,
}

/// Level of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingLevel {
    /// The pool's, which its volumes share.
    Pool,
    /// The volume's own limit.
    Volume,
    /// The limit of each client.
    Client,
}

/// Throttling of a volume's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThrottleState {
    /// The limit that delayed requests in the last second.
    pub binding: Option<(BindingLevel, weir_qos::Limit)>,
    /// Number of throttled requests.
    pub waiting: u64,
    /// Origin of the volume's own limits, in words.
    pub source: String,
}

/// State of a snapshot in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotState {
    /// Its name, unique in the volume.
    pub name: String,
    /// Time of creation, in nanoseconds since 1970.
    pub created: i128,
    /// Bytes that only this snapshot holds.
    pub used: u64,
    /// Label for the selection by replication policies; may be empty.
    pub label: String,
    /// True if it cannot be deleted now because a clone or a transfer depends on it.
    pub busy: bool,
    /// Number in the volume: later snapshots have greater numbers.
    pub number: u32,
    /// Identity, equal in all copies and under all names.
    pub identity: SnapshotIdentity,
}

impl SnapshotState {
    /// Returns its identification for the catalog's row.
    pub(crate) fn engine(&self) -> EngineSnapshot {
        EngineSnapshot {
            number: self.number,
            identity: self.identity,
        }
    }
}

/// Result of taking a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenSnapshot {
    /// State of the snapshot in the engine.
    pub state: SnapshotState,
    /// True if the snapshot existed already.
    pub found: bool,
}

/// Protocols that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// NFS version 3 (RFC 1813).
    pub nfsv3: bool,
    /// NFS version 4.1 (RFC 8881).
    pub nfsv4: bool,
}

/// Callers that a rule makes anonymous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// No caller.
    None,
    /// Root.
    Root,
    /// Every caller.
    All,
}

/// One rule of an export policy; the first that matches a client decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRule {
    /// Addresses, networks `ADDR/BITS`, host names, names with `*` or `?`, or `*` for everyone.
    pub clients: Vec<String>,
    /// Security flavours that its clients may use. None: they are refused even if later rules would
    /// admit them.
    pub flavours: Flavours,
    /// Those of the flavours that permit changes.
    pub writers: Flavours,
    /// Protocols that the rule applies to.
    pub protocols: Protocols,
    /// Callers that the rule makes anonymous.
    pub squash: Squash,
    /// User id of anonymous callers.
    pub anon_uid: u32,
    /// Group id of anonymous callers.
    pub anon_gid: u32,
}

/// Share of a volume for clients of SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSpec {
    /// The share's name; no other volume has it in any case.
    pub name: String,
    /// True if it is listed.
    pub browsable: bool,
    /// True if listings omit entries that the user may not read.
    pub access_based: bool,
    /// True if only encrypted requests are accepted.
    pub encrypted: bool,
    /// True if opens of it may survive a restart of the server.
    pub continuous: bool,
}

/// Export of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSpec {
    /// The volume's key in the engine.
    pub key: String,
    /// Absolute paths that clients mount, the canonical one first; at least one. No other volume
    /// has any of them.
    pub paths: Vec<String>,
    /// Address of the server that is the export's own, with its path there: clients of that address
    /// see nothing else.
    pub home: Option<(IpAddr, String)>,
    /// Export rules in order. Empty: no client may use it. `None`: the volume has no policy of its
    /// own, and the node's default applies (`weir serve --export-options`), for these protocols.
    pub rules: Option<Vec<ExportRule>>,
    /// Export rules of qtrees that have their own, as `rules`, by the qtree's number in ascending
    /// order. Clients need to be admitted by both.
    pub trees: Vec<(u32, Option<Vec<ExportRule>>)>,
    /// Versions of NFS that it is served over.
    pub protocols: Protocols,
    /// Share for clients of SMB, who are admitted by the node's default whatever `rules` say;
    /// `None`: it has no share.
    pub share: Option<ShareSpec>,
    /// True if its permissions are those of Windows, over every protocol and even without a share.
    pub ntfs: bool,
    /// True if clients see `.snapshot`.
    pub snapshot_directory: bool,
    /// True if its changes are held while the node is without the partner of its pair.
    pub strict: bool,
    /// Limits of what its users and groups hold.
    pub quotas: QuotaRules,
    /// Its place in a large volume, if it is a constituent of one.
    pub constituent: Option<Constituent>,
    /// Identity under which clients know it, if it came from another aggregate.
    pub origin: Option<Origin>,
}

/// The difference between two states of the data path. It is made from the change alone, so that
/// among very many volumes it costs only the change's size.
#[derive(Clone, Debug, Default)]
pub struct Publication {
    /// True if everything that is not named here is no longer served: in the first publication, and
    /// in those after a failed one. Otherwise it stays as it is.
    pub whole: bool,
    /// Volumes that are new or served differently, sorted by key.
    pub exports: Vec<Arc<ExportSpec>>,
    /// Keys of volumes that are not served any more.
    pub withdrawn: Vec<Arc<str>>,
    /// Annotations that the node stores with volumes in place of the earlier ones, by key. They
    /// need not be durable at once.
    pub annotations: Vec<(Arc<str>, Arc<str>)>,
    /// Limits of pools and volumes that are new, changed or removed.
    pub limits: weir_qos::Change,
}

impl Publication {
    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        !self.whole
            && self.exports.is_empty()
            && self.withdrawn.is_empty()
            && self.annotations.is_empty()
            && self.limits.is_empty()
    }
}

/// A domain that the node has to be a member of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSpec {
    /// DNS name of the domain.
    pub domain: String,
    /// Name of the computer account, of up to 15 characters.
    pub computer: String,
    /// The organizational unit of a new account; empty: the domain's choice.
    pub unit: String,
    /// A domain controller; empty: one found through DNS.
    pub controller: String,
    /// A user of the domain who may join computers.
    pub user: String,
    /// That user's password.
    pub password: Secret,
}

/// A backup that the node has to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSpec {
    /// The vault's name in the bucket.
    pub vault: String,
    /// The backup's name in the vault.
    pub name: String,
    /// The volume's key in the engine.
    pub volume: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// True to take the snapshot if there is none of that name.
    pub take: bool,
    /// The backup of the same volume that it builds on, if the volume still has the snapshot of
    /// that one.
    pub base: Option<String>,
    /// The volume's name, for those who read the vault without this server.
    pub source: String,
}

/// Files of a backup that the node has to copy into a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesSpec {
    /// The vault's name in the bucket.
    pub vault: String,
    /// The backup's name in the vault.
    pub backup: String,
    /// The volume's key in the engine.
    pub volume: String,
    /// Paths of the files in the backup's volume.
    pub files: Vec<String>,
    /// Path of the directory of the volume that gets them.
    pub directory: String,
}

/// A backup that the node has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupState {
    /// Bytes of file data in it.
    pub bytes: u64,
    /// Bytes that were uploaded for it.
    pub uploaded: u64,
}

/// Returns the refusal of a node without a bucket.
pub fn no_bucket() -> BackendError {
    BackendError::Precondition(
        "cannot use backups: the server has no bucket (start it with --backup-bucket)".to_owned(),
    )
}

/// A point in the node's history, for [`Backend::reached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point(pub u64);

/// Beginning of the name of a qtree's folder while what is in it is being deleted.
pub const DELETED_TREE: &str = ".weir-deleted-";

/// The node below the control plane.
pub trait Backend: Send + Sync + 'static {
    /// Returns true if calls that concern memory alone never block: [`Backend::volume`],
    /// [`Backend::throttled`], [`Backend::set_capacity`] and [`Backend::publish`]. Such calls are
    /// made on the calling thread, which saves two thread switches each, and otherwise on threads
    /// that may block.
    fn is_prompt(&self) -> bool {
        false
    }
    /// Returns every volume of the engine.
    fn volumes(&self) -> Result<Vec<VolumeState>, BackendError>;
    /// Returns the volume with this key.
    fn volume(&self, key: &str) -> Result<VolumeState, BackendError>;
    /// Returns its current throttling; nothing if it is not served.
    fn throttled(&self, key: &str) -> Result<ThrottleState, BackendError>;
    /// Returns the node's state and settings. Never blocks.
    fn facts(&self) -> Facts {
        Facts::default()
    }
    /// Returns the identity of the aggregate that holds the volumes: a catalog belongs to one of
    /// them. Never blocks.
    fn aggregate(&self) -> String;
    /// Returns the key of the volume and the name of the snapshot that a volume is a clone of, as
    /// long as it shares blocks with them.
    fn origin(&self, key: &str) -> Result<Option<(String, String)>, BackendError>;
    /// Returns the qtrees of a volume: their numbers and names.
    fn trees(&self, key: &str) -> Result<Vec<(u32, String)>, BackendError>;
    /// Deletes a qtree with all that is in it, or finds it deleted. Its name is free at once; the
    /// call lasts until nothing of the qtree is left.
    fn delete_tree(&self, key: &str, number: u32) -> Result<(), BackendError>;
    /// Creates a volume, or finds it created. A capacity or mode that differs from an existing
    /// volume's is left to the calls below.
    fn create_volume(&self, spec: &VolumeSpec) -> Result<VolumeState, BackendError>;
    /// Deletes a volume with its snapshots, or finds it deleted. Clients get stale handles at once.
    /// Not durable by itself on return: after a crash the volume may exist again, until the node
    /// has reached the [`Backend::point`] after the deletion.
    fn delete_volume(&self, key: &str) -> Result<(), BackendError>;
    /// Sets a volume's capacity. A capacity below its usage is allowed: it then refuses to grow.
    /// Not durable by itself on return: a start sets it again for every volume, which costs nothing
    /// if it is unchanged.
    fn set_capacity(&self, key: &str, capacity: Capacity) -> Result<(), BackendError>;
    /// Sets the permission bits of a volume's root.
    fn set_root_mode(&self, key: &str, mode: u32) -> Result<(), BackendError>;
    /// Returns a volume's snapshots, oldest first.
    fn snapshots(&self, key: &str) -> Result<Vec<SnapshotState>, BackendError>;
    /// Takes a snapshot, or finds it taken. An existing one gets the label.
    fn snapshot_create(
        &self,
        key: &str,
        name: &str,
        label: &str,
    ) -> Result<TakenSnapshot, BackendError>;
    /// Renames a snapshot, or finds it renamed.
    fn snapshot_rename(&self, key: &str, from: &str, to: &str) -> Result<(), BackendError>;
    /// Gives a snapshot another label.
    fn snapshot_label(&self, key: &str, name: &str, label: &str) -> Result<(), BackendError>;
    /// Deletes a snapshot, or finds it deleted.
    fn snapshot_delete(&self, key: &str, name: &str) -> Result<(), BackendError>;
    /// Reverts the volume to a snapshot. Later snapshots are deleted with their data.
    fn revert(&self, key: &str, snapshot: &str) -> Result<(), BackendError>;
    /// Begins to copy the shared blocks of a clone, or finds that begun or done
    /// ([`VolumeState::shared`]).
    fn split(&self, key: &str) -> Result<(), BackendError>;
    /// Makes the node a member of a domain, or gives its account there another password. From then
    /// on users with tickets of the domain may log on. Returns the name by which they have to reach
    /// the node.
    fn join_domain(&self, spec: &DomainSpec) -> Result<String, BackendError>;
    /// Ends the membership of the domain, or finds it ended. The account stays in the domain.
    fn leave_domain(&self, domain: &str) -> Result<(), BackendError>;
    /// Makes a vault, or finds it made, with a key that the node keeps.
    fn vault_create(&self, _vault: &str) -> Result<(), BackendError> {
        Err(no_bucket())
    }
    /// Deletes a vault with all in it, or finds it deleted.
    fn vault_delete(&self, _vault: &str) -> Result<(), BackendError> {
        Err(no_bucket())
    }
    /// Makes a backup, or finds it made. One call at a time for a vault.
    fn backup_take(&self, _spec: &BackupSpec) -> Result<BackupState, BackendError> {
        Err(no_bucket())
    }
    /// Deletes a backup, or finds it deleted, and what no other backup of the vault needs. One call
    /// at a time for a vault.
    fn backup_delete(&self, _vault: &str, _backup: &str) -> Result<(), BackendError> {
        Err(no_bucket())
    }
    /// Creates a volume out of a backup, or finds it created.
    fn restore_volume(
        &self,
        _spec: &VolumeSpec,
        _vault: &str,
        _backup: &str,
    ) -> Result<VolumeState, BackendError> {
        Err(no_bucket())
    }
    /// Copies files of a backup into a directory of a volume, or finds them copied. Nothing that
    /// has the name of one is replaced. One call at a time for a vault.
    fn restore_files(&self, _spec: &FilesSpec) -> Result<(), BackendError> {
        Err(no_bucket())
    }
    /// Returns the current point of the node's history. Never blocks.
    fn point(&self) -> Point;
    /// Returns true if every change made by calls before `point` is durable. Never blocks; the node
    /// itself ensures that this becomes true at some time.
    fn reached(&self, point: Point) -> bool;
    /// Changes the exports and limits in force, at once and without interrupting anyone.
    fn publish(&self, publication: Arc<Publication>) -> Result<(), BackendError>;
}

/// Calls the node on the calling thread or on a thread that may block. A panic is a failure of the
/// call.
pub(crate) async fn call<T: Send + 'static>(
    backend: &Arc<dyn Backend>,
    on_the_spot: bool,
    f: impl FnOnce(&dyn Backend) -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    if on_the_spot {
        return catch_unwind(AssertUnwindSafe(|| f(&**backend)))
            .unwrap_or_else(|_| Err(BackendError::Failed("the call panicked".to_owned())));
    }
    let backend = Arc::clone(backend);
    tokio::task::spawn_blocking(move || f(&*backend))
        .await
        .unwrap_or_else(|panic| Err(BackendError::Failed(panic.to_string())))
}

/// Returns true if an engine volume's key has the form of those made by the catalog.
pub(crate) fn is_keyed(key: &str) -> bool {
    key.strip_prefix("v-").is_some_and(|hex| {
        hex.len() == 16
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}
