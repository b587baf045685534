//! The entrance: from a handle and a session to a file that it may use.

use crate::admission::{self, Admission};
use crate::claims::Claims;
use crate::directory::{Directory, Remote};
use crate::error::{Error, OpResult, Suspend};
use crate::exports::{self, Export, ExportTable, Flavours, Protocol, Rule, Transport, Verdict};
use crate::grace::Grace;
use crate::handle::{BadHandle, FileId, HANDLE_BYTES, HandleKey, LargeFile, Namespace};
use crate::large::Constituents;
use crate::names::{Names, Wait};
use crate::notify::Watchers;
use crate::pipeline::{AdmittedFile, Operand};
use crate::relocation::Relocations;
use crate::session::Session;
use crate::snapshot_dir::FileRef;
use crate::stats::Stats;
use crate::throttle::{CreditLimits, Throttle};
use crate::trees::Caller;
use arc_swap::{ArcSwap, Guard};
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::limits::protocol::CLAIM_BYTES;
use weir_base::{Budget, ManualClock, SipKey, VolumeId, invariant};
use weir_volume::{Engine, ReplacementKind};

/// Server that has what a handle names.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// The server.
    pub server: Arc<Remote>,
    /// True if this server had the volume before: it knows better than one that still asks here.
    pub left: bool,
}

/// Everything that protocols share: exports, handles, claims.
pub struct Vfs {
    exports: ArcSwap<ExportTable>,
    directory: ArcSwap<Directory>,
    key: HandleKey,
    /// The constituents of large volumes that this server has.
    pub constituents: Constituents,
    /// Volumes that move to other aggregates, or came from there.
    pub relocations: Relocations,
    /// Table of what clients of all protocols have open, locked and cached.
    pub claims: Claims,
    /// The clients that may claim again what they had before the start.
    pub grace: Grace,
    /// Watchers to which changes of names are reported.
    pub watchers: Watchers,
    /// Names of clients, for export rules.
    pub names: Names,
    /// Limits on throughput, of all pools.
    pub throttle: Arc<Throttle>,
    /// Counters of waits and failures; `None` where nobody reads them.
    pub stats: Option<Arc<Stats>>,
}

impl Vfs {
    /// Creates a waist without exports, in which nothing is ever limited; `key` makes its file
    /// handles.
    pub fn new(key: HandleKey) -> Arc<Vfs> {
        let no_limits = Throttle::new(
            Arc::new(ManualClock::default()),
            1,
            CreditLimits::of_budget(0),
        );
        Vfs::with_throttle(key, no_limits, Budget::new(CLAIM_BYTES))
    }

    /// Returns a waist without exports, with the limits of `throttle`, whose clients' claims take
    /// at most what `claims` has.
    pub fn with_throttle(key: HandleKey, throttle: Arc<Throttle>, claims: Arc<Budget>) -> Arc<Vfs> {
        Vfs::counting(key, throttle, claims, None)
    }

    /// Returns a waist like [`Vfs::with_throttle`] whose requests count their waits and failures in
    /// `stats`.
    pub fn counting(
        key: HandleKey,
        throttle: Arc<Throttle>,
        claims: Arc<Budget>,
        stats: Option<Arc<Stats>>,
    ) -> Arc<Vfs> {
        Arc::new(Vfs {
            exports: ArcSwap::default(),
            directory: ArcSwap::default(),
            key,
            constituents: Constituents::default(),
            relocations: Relocations::default(),
            claims: Claims::new(claims),
            grace: Grace::default(),
            watchers: Watchers::default(),
            names: Names::default(),
            throttle,
            stats,
        })
    }

    /// Counts an operation that failed, if it is one that is counted: by its number among all
    /// protocols' operations and by its protocol's number of the status. `flow` is the connection's
    /// number.
    pub fn count_failure(&self, flow: u64, operation: Option<u8>, status: u32) {
        if let (Some(stats), Some(operation)) = (&self.stats, operation) {
            stats.fail(flow, operation, status);
        }
    }

    /// Arranges that claims in the engine's volumes end with what they were made of.
    pub fn follow(self: &Arc<Vfs>, engine: &Engine) {
        let vfs = Arc::downgrade(self);
        let first = engine.on_replaced(move |volume, how| {
            let Some(vfs) = vfs.upgrade() else {
                // Nobody is served any more.
                return;
            };
            match how {
                ReplacementKind::Whole => vfs.claims.revoke(volume),
                ReplacementKind::Content => vfs.claims.revoke_caches(volume),
            }
        });
        invariant!(first, "two follow one engine");
    }

    /// Replaces all exports at once. Requests that run keep what they started
    /// with.
    pub fn publish(&self, exports: Vec<Export>) {
        self.publish_table(ExportTable::new(exports));
    }

    /// Replaces all exports at once, like [`Vfs::publish`], by a table made from the one before.
    pub fn publish_table(&self, table: ExportTable) {
        self.exports.store(Arc::new(table));
    }

    /// Returns the verdict of the rules of `export` on `client`.
    pub fn verdict<'t>(
        &self,
        export: &'t Export,
        client: IpAddr,
        protocol: Protocol,
    ) -> Verdict<'t> {
        export.verdict(client, protocol, &self.names)
    }

    /// Returns the rule that admits `client` to `export`, or to a tree of it that has rules of its
    /// own, with its place among these rules; `None`: no rule admits the client.
    ///
    /// # Errors
    /// A name decides, and is not known yet.
    pub fn find_rule<'t>(
        &self,
        export: &'t Export,
        tree: Option<u32>,
        client: IpAddr,
        protocol: Protocol,
    ) -> Result<Option<(usize, &'t Rule)>, Wait> {
        let of_tree = tree.map(|tree| export.rules_of_tree(tree).unwrap_or_default());
        let rules = of_tree.unwrap_or(&export.rules);
        exports::first(rules, client, protocol, &self.names)
    }

    /// Returns the exports as they are now.
    pub fn exports(&self) -> Guard<Arc<ExportTable>> {
        self.exports.load()
    }

    /// Replaces the directory of the cluster.
    pub fn publish_directory(&self, directory: Directory) {
        self.directory.store(Arc::new(directory));
    }

    /// Returns the directory of the cluster as it is now.
    pub fn directory(&self) -> Guard<Arc<Directory>> {
        self.directory.load()
    }

    /// Returns the server that is to be asked about `handle` in place of this one.
    pub fn remote_of(&self, handle: &[u8]) -> Option<Redirect> {
        let directory = self.directory.load();
        if directory.generation() == 0 {
            return None;
        }
        if let Some(file) = LargeFile::of_handle(handle) {
            let server = self.constituents.remote_of(&directory, file)?;
            return Some(Redirect {
                server,
                left: false,
            });
        }
        let (moved, other) = (directory.of_moved(handle), directory.of_handle(handle));
        if moved.is_none() && other.is_none() && !self.relocations.is_used() {
            return None;
        }
        let here = self.file_id(handle);
        let departed = here.ok().and_then(|f| self.relocations.departed(f.volume));
        if let Some(to) = departed {
            let server = Arc::clone(directory.of_aggregate(&to)?);
            return Some(Redirect { server, left: true });
        }
        if let Some(server) = moved {
            // The directory may be older than what this server does.
            let serves = |f: FileId| self.exports().of_volume(f.volume).is_some();
            let left = here.is_ok();
            return (!here.is_ok_and(serves)).then(|| Redirect {
                server: Arc::clone(server),
                left,
            });
        }
        let server = other.filter(|_| here.is_err())?;
        Some(Redirect {
            server: Arc::clone(server),
            left: false,
        })
    }

    /// Returns true if requests about the file of `handle` are held, because its volume is about to
    /// move to another server.
    pub fn is_moving(&self, handle: &[u8]) -> bool {
        let file = || self.file_id(handle);
        self.relocations.is_used()
            && file().is_ok_and(|file| self.relocations.held(file.volume).is_some())
    }

    /// Returns the server to which the volume at `path` has departed.
    pub fn departed_path(&self, path: &str) -> Option<Arc<Remote>> {
        let to = self.relocations.departed_path(path)?;
        self.directory.load().of_aggregate(&to).map(Arc::clone)
    }

    /// Returns true if `handle` says that it is of a large volume.
    pub fn is_of_large_volume(handle: &[u8]) -> bool {
        LargeFile::of_handle(handle).is_some()
    }

    /// Returns true if changes of a volume are held: it is strict, and the partner of its mirror is
    /// lost.
    pub fn holds(&self, volume: VolumeId) -> bool {
        let exports = self.exports.load();
        exports
            .find(volume)
            .is_some_and(|(_, export)| export.volume.is_held())
    }

    /// Returns a secret for another purpose, which outlives the server as that of handles does.
    pub fn derive_secret(&self, purpose: &[u8]) -> SipKey {
        self.key.derive(purpose)
    }

    /// Returns the handle of something in `volume`.
    pub fn handle(&self, volume: VolumeId, file: FileRef) -> [u8; HANDLE_BYTES] {
        let FileRef { ino, namespace } = file;
        self.handle_of(FileId {
            volume,
            ino,
            namespace,
        })
    }

    /// Returns the handle of a file.
    #[inline]
    pub fn handle_of(&self, file: FileId) -> [u8; HANDLE_BYTES] {
        let handle = self.constituents.handle_of(file);
        handle.unwrap_or_else(|| self.relocations.encode(&self.key, file))
    }

    /// Returns the file that `handle` names, whether or not it is exported.
    #[inline]
    pub fn file_id(&self, handle: &[u8]) -> Result<FileId, BadHandle> {
        let own = self.relocations.decode(&self.key, handle);
        own.or_else(|bad| self.constituents.file_id(handle).ok_or(bad))
    }

    /// Returns the file that `handle` names, of which this server can do something.
    #[inline]
    fn file_here(&self, handle: &[u8]) -> Result<FileId, Error> {
        self.file_id(handle)
            .map_err(|BadHandle| self.explain_bad_handle(handle))
    }

    /// Returns the error for a handle of no file here.
    #[cold]
    fn explain_bad_handle(&self, handle: &[u8]) -> Error {
        match self.constituents.elsewhere(handle) {
            // Its server is not known now.
            Some(_) => Error::Delay,
            None => Error::BadHandle,
        }
    }

    /// Returns the flavours by which `session`'s client may use a volume, whatever the session's
    /// own. Over a connection that is not protected as the rule wants it there are none.
    ///
    /// # Errors
    /// `Stale`, `Denied`; suspended while the client's name decides and is not known.
    pub fn flavours<A: Copy>(
        &self,
        table: &ExportTable,
        volume: VolumeId,
        session: &Session<'_, A>,
    ) -> OpResult<Flavours> {
        let (_, rule) = self.rule(table, volume, session)?;
        Ok(match session.transport >= rule.transport {
            true => rule.flavours,
            false => Flavours::NONE,
        })
    }

    /// Checks that a volume is not about to move and has not moved.
    ///
    /// # Errors
    /// `Stale` if it has; suspended while it is about to.
    #[cold]
    fn check_relocation(&self, volume: VolumeId) -> OpResult<()> {
        if let Some(held) = self.relocations.held(volume) {
            return Err(Suspend::Thread(Box::pin(held.settled())).into());
        }
        match self.relocations.departed(volume) {
            Some(_) => Err(Error::Stale.into()),
            None => Ok(()),
        }
    }

    #[inline]
    fn rule<'t, A: Copy>(
        &self,
        table: &'t ExportTable,
        volume: VolumeId,
        session: &Session<'_, A>,
    ) -> OpResult<(&'t Export, &'t Rule)> {
        if self.relocations.is_used() {
            self.check_relocation(volume)?;
        }
        match admission::find(table, volume, session, &self.names) {
            Admission::Yes(export, rule) => Ok((export, rule)),
            Admission::Denied => Err(Error::Denied.into()),
            Admission::Unknown(wait) => Err(Suspend::NameService(wait).into()),
            Admission::NoExport => Err(Error::Stale.into()),
        }
    }

    /// Verifies `handle` and admits `session` to its export in `table`.
    ///
    /// # Errors
    /// `BadHandle`, `Stale`, `Denied`, `WrongFlavour`, `Unprotected`; suspended while the client's
    /// name decides and is not known.
    pub fn admit<'t, A: Copy>(
        &'t self,
        table: &'t ExportTable,
        handle: &[u8],
        session: &Session<'t, A>,
    ) -> OpResult<AdmittedFile<'t, A>> {
        let id = self.file_here(handle)?;
        self.admit_file(table, id, session)
    }

    /// Admits a caller like [`Vfs::admit`], for locks of a protocol without security of its own.
    /// Clients of NLM ask by AUTH_SYS whatever flavour the mount has, and in the clear whatever
    /// protects the mount; knfsd lets them too. So any flavour of the rule will do, and changes
    /// count as allowed if any may make them.
    ///
    /// # Errors
    /// `BadHandle`, `Stale`, `Denied`; suspended likewise.
    pub fn admit_locker<'t, A: Copy>(
        &'t self,
        table: &'t ExportTable,
        handle: &[u8],
        session: &Session<'t, A>,
    ) -> OpResult<AdmittedFile<'t, A>> {
        let id = self.file_here(handle)?;
        let mut session = *session;
        session.transport = Transport::MutualTls;
        self.admit_any_flavour(table, id, &session)
    }

    /// Admits a caller like [`Vfs::admit_file`], for what it does on behalf of others, whose
    /// flavour the rule is for. Any of the rule's flavours will do, and changes count as allowed if
    /// any may make them.
    ///
    /// # Errors
    /// `Stale`, `Denied`, `Unprotected`; suspended likewise.
    pub fn admit_any_flavour<'t, A: Copy>(
        &'t self,
        table: &'t ExportTable,
        id: FileId,
        session: &Session<'t, A>,
    ) -> OpResult<AdmittedFile<'t, A>> {
        let (_, rule) = self.rule(table, id.volume, session)?;
        let by = match rule.writers {
            Flavours::NONE => rule.flavours,
            writers => writers,
        };
        let mut session = *session;
        if !by.contains(session.flavour) {
            session.flavour = by.first().unwrap_or(session.flavour);
        }
        let admitted = self.admit_file(table, id, &session)?;
        Ok(admitted.by_any_flavour())
    }

    /// Admits a caller like [`Vfs::admit`], to a file whose handle was verified before.
    ///
    /// # Errors
    /// `Stale`, `Denied`, `WrongFlavour`, `Unprotected`; suspended likewise.
    pub fn admit_file<'t, A: Copy>(
        &'t self,
        table: &'t ExportTable,
        id: FileId,
        session: &Session<'t, A>,
    ) -> OpResult<AdmittedFile<'t, A>> {
        let (export, rule) = self.rule(table, id.volume, session)?;
        if session.transport < rule.transport {
            return Err(Error::Unprotected.into());
        }
        if !rule.flavours.contains(session.flavour) {
            return Err(Error::WrongFlavour.into());
        }
        // A directory of snapshots that is not shown any more is not there.
        if id.namespace != Namespace::Live && !export.snapshot_directory {
            return Err(Error::Stale.into());
        }
        Ok(AdmittedFile::new(Operand {
            export,
            who: rule.identity(session.identity),
            file: FileRef {
                ino: id.ino,
                namespace: id.namespace,
            },
            access: session.access,
            writes: rule.writers.contains(session.flavour),
            client: session.client,
            claims: &self.claims,
            grace: &self.grace,
            watchers: &self.watchers,
            list: None,
            caller: match export.trees.is_empty() {
                true => None,
                false => Caller::from_session(session, &self.names),
            },
        }))
    }
}
