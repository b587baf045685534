//! The entrance: from a handle and a caller to a [`Subject`] on an inode.

use crate::admission::{self, Admitted, Client};
use crate::exports::{Export, ExportTable, Protocol, Verdict};
use crate::handle::{BadHandle, FileId, HANDLE_BYTES, HandleKey, Place};
use crate::identity::Creds;
use crate::locks::LockTable;
use crate::names::{Names, Wait};
use crate::ops::Subject;
use crate::snapdir::Spot;
use crate::throttle::{CreditLimits, Throttle};
use arc_swap::{ArcSwap, Guard};
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::{Budget, Ino, ManualClock, SipKey};

/// Bytes of locks where the owner of the waist sets no budget.
const LOCK_BYTES: usize = 64 << 20;

/// Why a handle leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSubject {
    /// Not a handle of this server.
    BadHandle,
    /// Of a volume that is not exported any more.
    Stale,
    /// The export is not for this client.
    Denied,
    /// Whether it is takes a name that is not known.
    Unknown(Wait),
}

impl From<BadHandle> for NoSubject {
    fn from(_: BadHandle) -> Self {
        NoSubject::BadHandle
    }
}

/// Everything that protocols share: exports, handles, locks.
pub struct Vfs {
    exports: ArcSwap<ExportTable>,
    key: HandleKey,
    /// Byte-range locks and share reservations of all protocols.
    pub locks: LockTable,
    /// Names of clients, for export rules.
    pub names: Names,
    /// Limits on throughput.
    pub throttle: Arc<Throttle>,
}

impl Vfs {
    /// A waist without exports, in which nothing is ever limited; `key` makes its file handles.
    pub fn new(key: HandleKey) -> Arc<Vfs> {
        let no_limits = Throttle::new(
            Arc::new(ManualClock::default()),
            1,
            CreditLimits::of_budget(0),
        );
        Vfs::with_throttle(key, no_limits, Budget::new(LOCK_BYTES))
    }

    /// A waist without exports, with the limits of `throttle`, whose locks take at most what `locks` has.
    pub fn with_throttle(key: HandleKey, throttle: Arc<Throttle>, locks: Arc<Budget>) -> Arc<Vfs> {
        Arc::new(Vfs {
            exports: ArcSwap::default(),
            key,
            locks: LockTable::new(locks),
            names: Names::default(),
            throttle,
        })
    }

    /// Replaces all exports at once. Requests that run keep what they started
    /// with.
    pub fn publish(&self, exports: Vec<Export>) {
        self.publish_table(ExportTable::new(exports));
    }

    /// As [`Vfs::publish`], for a table made from the one before.
    pub fn publish_table(&self, table: ExportTable) {
        self.exports.store(Arc::new(table));
    }

    /// What the rules of `export` say of `client`.
    pub fn verdict<'t>(
        &self,
        export: &'t Export,
        client: IpAddr,
        protocol: Protocol,
    ) -> Verdict<'t> {
        export.verdict(client, protocol, &self.names)
    }

    /// The exports as they are now.
    pub fn exports(&self) -> Guard<Arc<ExportTable>> {
        self.exports.load()
    }

    /// A secret for another purpose, which outlives the server as that of handles does.
    pub fn derive_secret(&self, purpose: &[u8]) -> SipKey {
        self.key.derive(purpose)
    }

    /// The handle of something of `export`.
    pub fn handle(&self, export: &Export, spot: Spot) -> [u8; HANDLE_BYTES] {
        self.key.encode(FileId {
            volume: export.volume.id(),
            ino: spot.ino,
            place: spot.place,
        })
    }

    /// The handle of a file.
    pub fn handle_of(&self, file: FileId) -> [u8; HANDLE_BYTES] {
        self.key.encode(file)
    }

    /// What `handle` names, whether or not it is exported.
    pub fn file_id(&self, handle: &[u8]) -> Result<FileId, BadHandle> {
        self.key.decode(handle)
    }

    /// Verifies `handle` and admits `client` as `caller` (`None`: no identity
    /// given) to its export in `table`.
    pub fn admit<'t>(
        &self,
        table: &'t ExportTable,
        handle: &[u8],
        client: &Client<'_>,
        caller: Option<&Creds>,
    ) -> Result<(Subject<'t>, Ino), NoSubject> {
        let id = self.key.decode(handle)?;
        let (export, rule) = match admission::admit(table, id.volume, client, &self.names) {
            Admitted::Yes(export, rule) => (export, rule),
            Admitted::Denied => return Err(NoSubject::Denied),
            Admitted::Unknown(wait) => return Err(NoSubject::Unknown(wait)),
            Admitted::NoExport => return Err(NoSubject::Stale),
        };
        // A directory of snapshots that is not shown any more is not there.
        if id.place != Place::Live && !export.snapshot_directory {
            return Err(NoSubject::Stale);
        }
        let subject = Subject {
            export,
            rule,
            who: rule.identity(caller.cloned()),
            place: id.place,
        };
        Ok((subject, id.ino))
    }
}
