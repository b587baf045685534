//! What the reconciler asks of the node that serves the data.
//!
//! The catalog says what is intended; a [`Backend`] makes it so. Every call is idempotent: a job that was cut short is
//! run again from its start, and what is already as wanted is left alone. Calls may wait for the disk and are made off
//! the threads that serve requests.

use crate::model::EngineSnapshot;
use crate::secret::Secret;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
pub use weir_base::SnapshotIdentity;
use weir_vfs::Flavours;

/// Why the node could not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// There is nothing of that key or name.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The state of the volume forbids it, now.
    #[error("{0}")]
    Precondition(String),
    /// The node has no room for it.
    #[error("{0}")]
    NoSpace(String),
    /// The device, or another cause that no request is at fault for; trying again may help.
    #[error("{0}")]
    Failed(String),
}

/// How much a volume may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of data and of what only snapshots hold; `None` is the device's own limit.
    pub bytes: Option<u64>,
    /// Bytes of these that are kept for snapshots.
    pub reserve: u64,
}

/// A volume as the engine is to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Opaque, never reused: `v-` and 16 hexadecimal digits.
    pub key: String,
    /// What it may hold.
    pub capacity: Capacity,
    /// Permission bits of the root, 0 ..= 0o7777, when the volume is made.
    pub root_mode: u32,
    /// Make it as a writable copy of another volume's snapshot: the other's key and the snapshot's name.
    pub clone_of: Option<(String, String)>,
    /// Make it as a destination, to which only transfers write.
    pub protection: bool,
}

/// What the engine says of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// The volume's key in the engine.
    pub key: String,
    /// The engine's number: what [`weir_qos::VolumePlan`] and file handles carry.
    pub number: u64,
    /// Bytes held by data.
    pub used: u64,
    /// It shares blocks with the volume that it is a clone of.
    pub shared: bool,
    /// What it shares is being copied.
    pub splitting: bool,
    /// Only transfers write to it.
    pub protection: bool,
    /// Bytes that it may hold, as the node stored them last; 0: no limit.
    pub limit: u64,
    /// What [`Publication::annotations`] stored with it; empty: nothing.
    pub annotation: Arc<str>,
}

/// Physical space of the aggregate: its device, and what the host's file system still gives to a device in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all; 0: unknown.
    pub size: u64,
    /// Bytes that writes may still use.
    pub free: u64,
}

impl Space {
    /// Bytes that data, metadata and reservations hold.
    pub fn used(&self) -> u64 {
        self.size.saturating_sub(self.free)
    }
}

/// The node's own state and settings that rules and warnings depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Facts {
    /// Physical space.
    pub space: Space,
    /// Provisioned capacity at most, as a multiple of the physical space; `None`: no bound.
    pub overcommit: Option<f64>,
    /// The node does not serve SMB.
    pub smb_off: bool,
}

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingLevel {
    /// The pool's, which its volumes share.
    Pool,
    /// The volume's own limit.
    Volume,
    /// That of each client.
    Client,
}

/// What holds a volume's requests back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// The limit that held requests back in the last second.
    pub binding: Option<(BindingLevel, weir_qos::Limit)>,
    /// How many requests wait for limits.
    pub waiting: u64,
    /// Where the volume's own limits come from, in words.
    pub source: String,
}

/// What the engine says of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotState {
    /// Its name, unique in the volume.
    pub name: String,
    /// When it was taken, in nanoseconds since 1970.
    pub created: i128,
    /// Bytes that only this snapshot holds.
    pub used: u64,
    /// What replication policies choose by; empty: nothing.
    pub label: String,
    /// Something depends on it, so that it cannot be deleted now: a clone, or a transfer.
    pub busy: bool,
    /// Its number in the volume: those of later ones are greater.
    pub number: u32,
    /// Which it is, on whatever volume and under whatever name.
    pub identity: SnapshotIdentity,
}

impl SnapshotState {
    /// What its row says of it.
    pub(crate) fn engine(&self) -> EngineSnapshot {
        EngineSnapshot {
            number: self.number,
            identity: self.identity,
        }
    }
}

/// A snapshot that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenSnapshot {
    /// The snapshot as the engine has it now.
    pub state: SnapshotState,
    /// It was there already.
    pub found: bool,
}

/// Which protocols a rule admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// NFS version 3 (RFC 1813).
    pub nfsv3: bool,
    /// NFS version 4.1 (RFC 8881).
    pub nfsv4: bool,
}

/// Callers whose identity a rule takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// No caller's identity is taken away.
    None,
    /// Root's identity is taken away.
    Root,
    /// Every caller's identity is taken away.
    All,
}

/// One rule of an export policy; the first that matches a client decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRule {
    /// Addresses, networks `ADDR/BITS`, host names, names with `*` or `?`, or `*` for everyone.
    pub clients: Vec<String>,
    /// The flavours that its clients may use. None: they are refused although later rules might admit them.
    pub flavours: Flavours,
    /// Those of them by which they may make changes.
    pub writers: Flavours,
    /// For which protocols the rule counts.
    pub protocols: Protocols,
    /// Callers that the rule makes anonymous.
    pub squash: Squash,
    /// User id of anonymous callers.
    pub anon_uid: u32,
    /// Group id of anonymous callers.
    pub anon_gid: u32,
}

/// What a volume is to clients of SMB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSpec {
    /// The share's name; no other volume has it in any case.
    pub name: String,
    /// Whether it is listed.
    pub browsable: bool,
    /// Whether listings leave out what the user may not read.
    pub access_based: bool,
    /// Whether only what is encrypted reaches it.
    pub encrypted: bool,
    /// Whether opens of it may outlive the server.
    pub continuous: bool,
}

/// How a volume is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSpec {
    /// The volume's key in the engine.
    pub key: String,
    /// Absolute paths that clients mount, the canonical one first; at least one. No other volume has any of them.
    pub paths: Vec<String>,
    /// In order. Empty: no client may use it. `None`: the volume has no policy of its own, and the node's default
    /// counts (`weir serve --export-options`), for these protocols.
    pub rules: Option<Vec<ExportRule>>,
    /// The versions of NFS that it is served over.
    pub protocols: Protocols,
    /// What it is to clients of SMB, whom the node's default admits whatever `rules` say; `None`: it is no share.
    pub share: Option<ShareSpec>,
    /// Whether its permissions are those of Windows, over every protocol and also while it is no share.
    pub ntfs: bool,
    /// Whether clients see `.snapshot`.
    pub snapshot_directory: bool,
    /// Whether its changes are held while the node is without the partner of its mirror.
    pub strict: bool,
}

/// What the data path is to serve from now on, as what is different from the publication before. It is made of the change
/// alone, so that among very many volumes it costs what the change does.
#[derive(Clone, Debug, Default)]
pub struct Publication {
    /// Whatever is not named here is not served any more: the first publication, and those after one that failed.
    /// Otherwise it stays as it is.
    pub whole: bool,
    /// Volumes that are new or served differently, sorted by key.
    pub exports: Vec<Arc<ExportSpec>>,
    /// Keys of volumes that are not served any more.
    pub withdrawn: Vec<Arc<str>>,
    /// By key, what the node is to store with volumes in place of what it has stored: it need not be durable at once.
    pub annotations: Vec<(Arc<str>, Arc<str>)>,
    /// Limits of pools and volumes that are new, changed or gone.
    pub limits: weir_qos::Change,
}

impl Publication {
    /// Whether everything is served as before.
    pub fn is_empty(&self) -> bool {
        !self.whole
            && self.exports.is_empty()
            && self.withdrawn.is_empty()
            && self.annotations.is_empty()
            && self.limits.is_empty()
    }
}

/// A domain that the node is to be a member of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSpec {
    /// Its name in the DNS.
    pub domain: String,
    /// The computer account's name, of up to 15 characters.
    pub computer: String,
    /// The organizational unit of a new account; empty: the domain's choice.
    pub unit: String,
    /// A domain controller; empty: one that the DNS names.
    pub controller: String,
    /// A user of the domain who may join computers.
    pub user: String,
    /// That user's password.
    pub password: Secret,
}

/// A point in the node's history, for [`Backend::reached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point(pub u64);

/// The node below the control plane.
pub trait Backend: Send + Sync + 'static {
    /// Whether what concerns memory alone never waits: [`Backend::volume`], [`Backend::throttled`],
    /// [`Backend::set_capacity`] and [`Backend::publish`]. Then these are called where they are wanted, which spares two
    /// switches of threads each, and otherwise on threads that may wait.
    fn is_prompt(&self) -> bool {
        false
    }
    /// Every volume the engine has.
    fn volumes(&self) -> Result<Vec<VolumeState>, BackendError>;
    /// The volume of this key.
    fn volume(&self, key: &str) -> Result<VolumeState, BackendError>;
    /// What limits it now. Nothing, if it is not served.
    fn throttled(&self, key: &str) -> Result<Throttled, BackendError>;
    /// The node's state and settings. Never waits.
    fn facts(&self) -> Facts {
        Facts::default()
    }
    /// The identity of what holds the volumes: a catalog belongs to one of them. Never waits.
    fn aggregate(&self) -> String;
    /// The key of the volume and the name of the snapshot that a volume is a clone of, for as long as it shares blocks
    /// with them.
    fn origin(&self, key: &str) -> Result<Option<(String, String)>, BackendError>;
    /// Makes it, or finds it made. A capacity or mode that differs from an existing volume's is left to the calls below.
    fn create_volume(&self, spec: &VolumeSpec) -> Result<VolumeState, BackendError>;
    /// Deletes it with its snapshots, or finds it gone. Clients get stale handles at once. Not durable by itself when it
    /// returns: after a crash the volume may be there again, until the node has reached the [`Backend::point`] after it.
    fn delete_volume(&self, key: &str) -> Result<(), BackendError>;
    /// Sets what it may hold. A capacity below what it holds is allowed: it then refuses to grow. Not durable by itself
    /// when it returns: at a start it is to be set again for every volume, which costs nothing where it is the same.
    fn set_capacity(&self, key: &str, capacity: Capacity) -> Result<(), BackendError>;
    /// Sets the permission bits of its root.
    fn set_root_mode(&self, key: &str, mode: u32) -> Result<(), BackendError>;
    /// Its snapshots, oldest first.
    fn snapshots(&self, key: &str) -> Result<Vec<SnapshotState>, BackendError>;
    /// Takes one, or finds it taken. One that is found gets the label.
    fn snapshot_create(
        &self,
        key: &str,
        name: &str,
        label: &str,
    ) -> Result<TakenSnapshot, BackendError>;
    /// Renames one, or finds it renamed.
    fn snapshot_rename(&self, key: &str, from: &str, to: &str) -> Result<(), BackendError>;
    /// Gives one another label.
    fn snapshot_label(&self, key: &str, name: &str, label: &str) -> Result<(), BackendError>;
    /// Deletes one, or finds it gone.
    fn snapshot_delete(&self, key: &str, name: &str) -> Result<(), BackendError>;
    /// Makes the volume what it was then. Later snapshots are deleted with what they held.
    fn revert(&self, key: &str, snapshot: &str) -> Result<(), BackendError>;
    /// Begins to copy what a clone shares, or finds it begun or done ([`VolumeState::shared`]).
    fn split(&self, key: &str) -> Result<(), BackendError>;
    /// Makes the node a member of a domain, or gives its account there another password. Users with tickets of the domain may log on from
    /// then on. Returns the name by which they are to reach the node.
    fn join_domain(&self, spec: &DomainSpec) -> Result<String, BackendError>;
    /// Ends the membership of the domain, or finds it ended. The account stays in the domain.
    fn leave_domain(&self, domain: &str) -> Result<(), BackendError>;
    /// Where the node's history stands now. Never waits.
    fn point(&self) -> Point;
    /// Whether everything that calls had changed before `point` is durable by now. Never waits; that it will be some
    /// time is the node's own affair.
    fn reached(&self, point: Point) -> bool;
    /// Changes what is served and what is in force, at once and without interrupting anyone.
    fn publish(&self, publication: Arc<Publication>) -> Result<(), BackendError>;
}

/// Calls the node, on the spot or on a thread that may wait. A panic is a failure of the call.
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

/// Whether an engine volume's key has the form of those made from the catalog.
pub(crate) fn is_keyed(key: &str) -> bool {
    key.strip_prefix("v-").is_some_and(|hex| {
        hex.len() == 16
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}
