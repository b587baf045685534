//! The node as the control plane sees it: volumes of the engine, exports and limits in force.
//!
//! Most of these functions may wait for the disk, and run on threads of the control plane that may.
//! The data path sees only the export table, which is replaced in one step
//! ([`weir_vfs::ExportTable`]), and the limits in force. A publication contains the differences
//! from the one before, and only these are rebuilt.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use weir_base::limits::memory::{VOLUME_BYTES, VOLUME_SHARE};
use weir_base::{Clock, Rng, VolumeId};
use weir_control::backend::{
    Backend, BackendError, BackupSpec, BackupState, BindingLevel, Capacity, DomainSpec, ExportRule,
    ExportSpec, Facts, FilesSpec, Point, Publication, SnapshotState, Space, Squash, TakenSnapshot,
    ThrottleState, VolumeSpec, VolumeState, no_bucket,
};
use weir_control::{Constituent, Status};
use weir_large::{Member, Membership, Parts as MemberParts};
use weir_store::features::CONSTITUENTS;
use weir_vfs::claims::Style;
use weir_vfs::volume::{FsError, SetAttr};
use weir_vfs::{
    Clients, EngineContext, Export, Flavour, Flavours, HandleKey, Protocols, Rule, Share,
    Transport, Vfs, Volume, relocation,
};
use weir_volume::{Engine, Snapshot};

use crate::backups::Backups;
use crate::size::Size;
use crate::snapshot_files::SnapshotFiles;

/// Owner of a new volume's root directory: as of the root of a new ext4 file system.
const ROOT_OWNER: (u32, u32) = (0, 0);

/// Result of a request to the node.
pub type Outcome<T> = Result<T, BackendError>;

/// See the module's head.
pub struct Node {
    engine: Arc<Engine>,
    vfs: Arc<Vfs>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Rules of volumes that have no policy of their own.
    default_rules: Vec<Rule>,
    /// Least protection of connections, from the default rules; policies have no field for it.
    transport: Transport,
    /// The engine's volumes by name, which is what the control plane calls their key.
    volumes: Mutex<HashMap<String, Arc<Volume>>>,
    /// Held while a publication is made: they follow each other.
    served: Mutex<PublishedExports>,
    domains: Option<Arc<dyn DomainMembership>>,
    memory: Option<Size>,
    overcommit: Option<f64>,
    smb_off: bool,
    backups: Option<Arc<Backups>>,
    /// The server stops.
    stopping: AtomicBool,
}

/// Membership of Active Directory domains.
pub trait DomainMembership: Send + Sync {
    /// Joins a domain; returns the name of the computer account.
    ///
    /// # Errors
    /// The domain refuses, or cannot be reached.
    fn join(&self, spec: &DomainSpec) -> Outcome<String>;

    /// Leaves the domain.
    ///
    /// # Errors
    /// The domain refuses, or cannot be reached.
    fn leave(&self, domain: &str) -> Outcome<()>;
}

/// Parts and settings of a [`Node`].
pub struct Parts {
    /// The open engine.
    pub engine: Arc<Engine>,
    /// Access of clients to its volumes.
    pub vfs: Arc<Vfs>,
    /// The server's clock.
    pub clock: Arc<dyn Clock>,
    /// Source of random numbers.
    pub rng: Arc<dyn Rng>,
    /// Rules of volumes that have no policy of their own.
    pub default_rules: Vec<Rule>,
    /// Joins domains; `None` where no domain's users log on.
    pub domains: Option<Arc<dyn DomainMembership>>,
    /// Memory of the server, of which volumes may take a part; `None` is no bound.
    pub memory: Option<Size>,
    /// Bound of provisioned capacity.
    pub overcommit: Option<f64>,
    /// True if SMB is not served.
    pub smb_off: bool,
    /// Backups; `None` without a bucket.
    pub backups: Option<Arc<Backups>>,
}

impl Parts {
    /// A node without domains and bounds, which serves SMB.
    pub fn new(
        engine: Arc<Engine>,
        vfs: Arc<Vfs>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        default_rules: Vec<Rule>,
    ) -> Parts {
        Parts {
            engine,
            vfs,
            clock,
            rng,
            default_rules,
            domains: None,
            memory: None,
            overcommit: None,
            smb_off: false,
            backups: None,
        }
    }
}

/// Published exports by key.
#[derive(Default)]
struct PublishedExports {
    exports: HashMap<String, (Arc<ExportSpec>, VolumeId)>,
    /// Exports that could not be served; the next publication retries them.
    missing: BTreeMap<String, Arc<ExportSpec>>,
}

/// Returns the number of volumes that fit into their share of the memory.
fn most_volumes(memory: Size) -> usize {
    usize::try_from(memory.0 / VOLUME_SHARE / VOLUME_BYTES).unwrap_or(usize::MAX)
}

/// An export, as clients mount it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportSummary {
    /// Absolute path.
    pub path: String,
    /// True if a rule lets clients of NFSv3 mount it.
    pub nfsv3: bool,
    /// True if a rule lets clients of NFSv4 mount it.
    pub nfsv4: bool,
    /// Name of its share, if it is one.
    pub share: Option<String>,
}

impl ExportSummary {
    fn from_export(export: &Export) -> ExportSummary {
        let granted = |protocol: fn(&Protocols) -> bool| {
            let mut rules = export.rules.iter();
            rules.any(|rule| protocol(&rule.protocols))
        };
        ExportSummary {
            path: export.path.clone(),
            nfsv3: granted(|p| p.nfsv3),
            nfsv4: granted(|p| p.nfsv4),
            share: export.share.as_ref().map(|share| share.name.clone()),
        }
    }
}

impl Node {
    /// Through which clients reach volumes.
    pub fn vfs(&self) -> Arc<Vfs> {
        Arc::clone(&self.vfs)
    }

    /// Creates the node over an open engine; nothing is exported yet.
    pub fn new(parts: Parts) -> Node {
        let volumes = parts.engine.volumes().into_iter();
        let volumes: HashMap<String, Arc<Volume>> =
            volumes.map(|v| (v.name().to_owned(), v)).collect();
        if let Some(memory) = parts.memory {
            let (most, now) = (most_volumes(memory), volumes.len());
            if now > most {
                tracing::warn!(
                    "{now} volumes take more than their part of --memory {memory}, which is for {most}; {} would do",
                    Size(now as u64 * VOLUME_BYTES * VOLUME_SHARE)
                );
            }
        }
        let transports = parts.default_rules.iter().map(|rule| rule.transport);
        Node {
            volumes: Mutex::new(volumes),
            served: Mutex::default(),
            transport: transports.max().unwrap_or_default(),
            engine: parts.engine,
            vfs: parts.vfs,
            clock: parts.clock,
            rng: parts.rng,
            default_rules: parts.default_rules,
            domains: parts.domains,
            memory: parts.memory,
            overcommit: parts.overcommit,
            smb_off: parts.smb_off,
            backups: parts.backups,
            stopping: AtomicBool::new(false),
        }
    }

    /// Ends running backups, restorations and deletions of qtrees soon; the next start resumes
    /// them.
    pub fn stop_jobs(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(backups) = &self.backups {
            backups.stop();
        }
    }

    fn backups(&self) -> Outcome<&Backups> {
        self.backups.as_deref().ok_or_else(no_bucket)
    }

    /// Deletes a volume that only a restoration of files has used.
    fn drop_scratch(&self, key: &str) -> Outcome<()> {
        self.volumes.lock().remove(key);
        match self.engine.delete_volume(key) {
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(failed("volume", key)(error)),
        }
    }

    fn has_room(&self) -> Outcome<()> {
        let Some(memory) = self.memory else {
            return Ok(());
        };
        let most = most_volumes(memory);
        match self.volumes.lock().len() < most {
            true => Ok(()),
            false => Err(BackendError::NoSpace(format!(
                "no memory for another volume: --memory {memory} is for {most} volumes of {} each (delete volumes, or start with more memory)",
                Size(VOLUME_BYTES)
            ))),
        }
    }

    fn domains(&self) -> Outcome<&dyn DomainMembership> {
        let none =
            || BackendError::Failed("no server runs that a domain could be joined for".to_owned());
        self.domains.as_deref().ok_or_else(none)
    }

    /// Returns the exports, by path.
    pub fn exports(&self) -> Vec<ExportSummary> {
        let table = self.vfs.exports();
        let mut all: Vec<ExportSummary> = table.iter().map(ExportSummary::from_export).collect();
        all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        all
    }

    fn find(&self, key: &str) -> Outcome<Arc<Volume>> {
        let found = self.volumes.lock().get(key).cloned();
        found.ok_or_else(|| BackendError::NotFound(format!("volume {key}")))
    }

    fn export(&self, spec: &ExportSpec) -> Outcome<Export> {
        let volume = self.find(&spec.key)?;
        // Before a client is admitted by it.
        self.engine.set_strict(&volume, spec.strict);
        if let Err(error) = volume.set_quotas(spec.quotas.clone()) {
            // Rules are accepted only where they can hold, but a catalog may be from elsewhere.
            tracing::error!(key = spec.key, "cannot set quotas of the volume: {error}");
        }
        if let Some(origin) = &spec.origin {
            volume.present_as(origin.fsid);
            let key = HandleKey::new(origin.secret, origin.aggregate);
            let origin = relocation::Origin {
                key,
                volume: VolumeId(origin.number),
            };
            self.vfs.relocations.arrive(volume.id(), origin);
        }
        let default = self.default_rules.iter();
        let enforced = |rules: &Option<Vec<ExportRule>>| -> Vec<Rule> {
            match rules {
                None => default.clone().map(|rule| within(rule, spec)).collect(),
                Some(rules) => {
                    let rules = rules.iter();
                    rules
                        .flat_map(|rule| rules_of(spec, rule, self.transport))
                        .collect()
                }
            }
        };
        let mut rules = enforced(&spec.rules);
        let trees = spec.trees.iter().map(|(tree, own)| (*tree, enforced(own)));
        let trees = trees.collect();
        if spec.share.is_some() {
            rules.extend(default.clone().map(for_smb));
        }
        let mut paths = spec.paths.iter().cloned();
        let path = paths.next().unwrap_or_else(|| format!("/{}", spec.key));
        let constituent = spec.constituent.map(|of| self.member(&spec.key, of));
        let mut export = Export::new(path, volume, rules);
        export.constituent = constituent.transpose()?;
        export.aliases = paths.collect();
        export.trees = trees;
        export.home.clone_from(&spec.home);
        // Handles of a large volume name no snapshots.
        export.snapshot_directory = spec.snapshot_directory && spec.constituent.is_none();
        if spec.ntfs {
            export.style = Style::Ntfs;
        }
        export.share = spec.share.as_ref().map(|share| Share {
            name: share.name.clone(),
            browsable: share.browsable,
            access_based: share.access_based,
            encrypted: share.encrypted,
            continuous: share.continuous,
        });
        Ok(export)
    }

    /// Returns the constituent of a large volume that a volume is. It starts with the first call.
    fn member(&self, key: &str, of: Constituent) -> Outcome<Arc<Member>> {
        let volume = self.find(key)?;
        let constituents = &self.vfs.constituents;
        if let Some(member) = constituents.find(volume.id()) {
            return Ok(member);
        }
        let engine = Arc::downgrade(&self.engine);
        let member = Member::start(MemberParts {
            membership: Membership {
                large: of.large,
                secret: of.secret,
                own: weir_large::Constituent(of.number),
                members: of.members,
            },
            volume,
            clock: Arc::clone(&self.clock),
            link: constituents.link(),
            durable: Arc::new(move |lsn| engine.upgrade().ok_or(FsError::Delay)?.wait_durable(lsn)),
        });
        let member = member.map_err(failed("constituent", key))?;
        constituents.add(&member);
        Ok(member)
    }

    /// Removes a volume from the exports.
    fn withdraw(&self, key: &str) {
        let mut served = self.served.lock();
        served.missing.remove(key);
        if let Some((_, id)) = served.exports.remove(key) {
            let table = self.vfs.exports().with(&[id], Vec::new());
            self.vfs.publish_table(table);
        }
    }
}

/// Returns a default rule, reduced to the volume's protocols.
fn within(rule: &Rule, spec: &ExportSpec) -> Rule {
    let Protocols { nfsv3, nfsv4, .. } = rule.protocols;
    Rule {
        protocols: Protocols {
            nfsv3: nfsv3 && spec.protocols.nfsv3,
            nfsv4: nfsv4 && spec.protocols.nfsv4,
            smb: false,
        },
        ..rule.clone()
    }
}

/// Returns a default rule for users of SMB. A volume's own policy is for NFS only, as with NetApp.
fn for_smb(rule: &Rule) -> Rule {
    Rule {
        protocols: Protocols {
            nfsv3: false,
            nfsv4: false,
            smb: rule.protocols.smb,
        },
        flavours: flavours_for_smb(rule.flavours),
        writers: flavours_for_smb(rule.writers),
        ..rule.clone()
    }
}

/// Returns the flavours of SMB that authenticate and protect at least as well as those of NFS.
/// AUTH_SYS permits NTLM; Kerberos permits only Kerberos. Encryption includes integrity.
fn flavours_for_smb(flavours: Flavours) -> Flavours {
    let all = [
        (Flavour::Sys, Flavours::NTLM.or(Flavours::KRB5)),
        (Flavour::Krb5, Flavours::KRB5),
        (Flavour::Krb5Integrity, Flavours::KRB5_INTEGRITY),
        (Flavour::Krb5Privacy, Flavours::KRB5_PRIVACY),
    ];
    let named = all.into_iter().filter(|(of, _)| flavours.contains(*of));
    named.fold(Flavours::NONE, |all, (_, by)| all.or(by))
}

/// Converts a rule of a policy for the data path: one rule for each entry of its clients.
fn rules_of(spec: &ExportSpec, rule: &ExportRule, transport: Transport) -> Vec<Rule> {
    let parsed = rule.clients.iter().map(|text| Clients::parse(text));
    let clients: Result<Vec<Clients>, String> = parsed.collect();
    let (clients, flavours) = match clients {
        Ok(clients) => (clients, rule.flavours),
        // The catalog's rules were checked, so this happens only after an edit by hand. If the rule
        // were left out, a later one might admit clients that this one refuses; so it refuses every
        // client.
        Err(why) => {
            tracing::error!(path = ?spec.paths, %why, "cannot read an export rule; from there on the policy refuses all clients");
            (vec![Clients::Any], Flavours::NONE)
        }
    };
    let make = |clients| Rule {
        clients,
        protocols: Protocols {
            nfsv3: rule.protocols.nfsv3,
            nfsv4: rule.protocols.nfsv4,
            smb: false,
        },
        flavours,
        writers: rule.writers,
        transport,
        squash: match rule.squash {
            Squash::None => weir_vfs::Squash::None,
            Squash::Root => weir_vfs::Squash::Root,
            Squash::All => weir_vfs::Squash::All,
        },
        anon_uid: rule.anon_uid,
        anon_gid: rule.anon_gid,
    };
    clients.into_iter().map(make).collect()
}

pub(crate) fn failed(what: &str, key: &str) -> impl FnOnce(FsError) -> BackendError {
    let place = format!("{what} {key}");
    move |error| match error {
        FsError::NotFound | FsError::Stale => BackendError::NotFound(place),
        FsError::NoSpace | FsError::Quota => BackendError::NoSpace(format!("{place}: no room")),
        FsError::ReadOnly => BackendError::Failed(format!(
            "{place}: the aggregate is read-only after a failed write"
        )),
        error => BackendError::Failed(format!("{place}: {error}")),
    }
}

fn state(volume: &Volume) -> VolumeState {
    VolumeState {
        key: volume.name().to_owned(),
        number: volume.id().0,
        used: volume.used(),
        shared: volume.origin().is_some(),
        splitting: volume.splitting(),
        protection: volume.mirror().is_some(),
        limit: volume.limit(),
        annotation: volume.annotation(),
    }
}

fn snapshot_state(snapshot: &Snapshot) -> SnapshotState {
    let created = snapshot.created;
    SnapshotState {
        name: snapshot.name.clone(),
        created: i128::from(created.secs) * 1_000_000_000 + i128::from(created.nanos),
        used: snapshot.used,
        label: snapshot.label.clone(),
        busy: snapshot.clones > 0 || snapshot.held,
        number: snapshot.id,
        identity: snapshot.identity,
    }
}

impl Backend for Node {
    /// Locks are held for as long as it takes to copy some pointers.
    fn is_prompt(&self) -> bool {
        true
    }

    fn facts(&self) -> Facts {
        let space = self.engine.aggregate().physical();
        Facts {
            space: Space {
                size: space.size,
                free: space.free,
            },
            overcommit: self.overcommit,
            smb_off: self.smb_off,
            usage_off: !self.engine.counts_usage(),
            backups: self.backups.is_some(),
        }
    }

    fn volumes(&self) -> Outcome<Vec<VolumeState>> {
        Ok(self.volumes.lock().values().map(|v| state(v)).collect())
    }

    fn volume(&self, key: &str) -> Outcome<VolumeState> {
        self.find(key).map(|volume| state(&volume))
    }

    fn throttled(&self, key: &str) -> Outcome<ThrottleState> {
        let status = self.vfs.throttle.status(self.find(key)?.id());
        Ok(
            status.map_or_else(ThrottleState::default, |status| ThrottleState {
                binding: status.binding.map(|binding| {
                    let level = match binding.level {
                        weir_vfs::throttle::Level::Pool => BindingLevel::Pool,
                        weir_vfs::throttle::Level::Volume => BindingLevel::Volume,
                        weir_vfs::throttle::Level::Client => BindingLevel::Client,
                    };
                    (level, binding.limit)
                }),
                waiting: status.usage.waiting() as u64,
                source: status.source.to_string(),
            }),
        )
    }

    fn aggregate(&self) -> String {
        self.engine.aggregate().id().to_string()
    }

    fn origin(&self, key: &str) -> Outcome<Option<(String, String)>> {
        let Some((number, id)) = self.find(key)?.origin() else {
            return Ok(None);
        };
        let volumes = self.volumes.lock();
        let parent = volumes.values().find(|volume| volume.id() == number);
        Ok(parent.and_then(|parent| {
            let snapshot = parent.snapshots().into_iter().find(|s| s.id == id)?;
            Some((parent.name().to_owned(), snapshot.name))
        }))
    }

    fn trees(&self, key: &str) -> Outcome<Vec<(u32, String)>> {
        let trees = self.find(key)?.trees(self.clock.current_time());
        let trees = trees.map_err(failed("volume", key))?.into_iter();
        let named = trees.map(|tree| (tree.number, String::from_utf8_lossy(&tree.name).into()));
        Ok(named.collect())
    }

    fn delete_tree(&self, key: &str, number: u32) -> Outcome<()> {
        let volume = self.find(key)?;
        let deletion = crate::qtrees::Deletion {
            volume: &volume,
            claims: &self.vfs.claims,
            now: self.clock.current_time(),
            stopping: &self.stopping,
        };
        let lsn = deletion.run(number).map_err(failed("volume", key))?;
        self.engine.wait_durable(lsn).map_err(failed("volume", key))
    }

    fn create_volume(&self, spec: &VolumeSpec) -> Outcome<VolumeState> {
        let key = spec.key.as_str();
        let protect = || match spec.protection {
            true => self.engine.protect(key).map_err(failed("volume", key)),
            false => Ok(()),
        };
        if let Ok(volume) = self.find(key) {
            protect()?;
            return Ok(state(&volume));
        }
        self.has_room()?;
        if spec.constituent.is_some() && !self.engine.aggregate().has_feature(&CONSTITUENTS) {
            return Err(BackendError::Precondition(format!(
                "the aggregate lacks the format feature {}: `weir upgrade` switches it on",
                CONSTITUENTS.name
            )));
        }
        let made = match &spec.clone_of {
            Some((parent, snapshot)) => self.engine.clone_volume(parent, snapshot, key),
            None => {
                let (now, mode) = (self.clock.current_time(), spec.root_mode);
                self.engine
                    .create_volume(key, ROOT_OWNER, mode, now, &*self.rng)
            }
        };
        let volume = match made {
            // Another thread made it between the two.
            Err(FsError::Exists) => self.engine.volume(key).ok_or(FsError::NotFound),
            made => made,
        };
        let volume = volume.map_err(failed("volume", key))?;
        self.volumes
            .lock()
            .insert(key.to_owned(), Arc::clone(&volume));
        self.set_capacity(key, spec.capacity)?;
        protect()?;
        Ok(state(&volume))
    }

    fn delete_volume(&self, key: &str) -> Outcome<()> {
        if let Ok(volume) = self.find(key) {
            self.vfs.constituents.remove(volume.id());
        }
        // Locks on what is gone go with their clients.
        match self.engine.retire_volume(key) {
            Ok(_) => {
                self.withdraw(key);
                self.volumes.lock().remove(key);
                Ok(())
            }
            Err(FsError::Busy) => Err(BackendError::Precondition(
                "other volumes are copies of its snapshots and depend on them".to_owned(),
            )),
            Err(error) => Err(failed("volume", key)(error)),
        }
    }

    fn set_capacity(&self, key: &str, capacity: Capacity) -> Outcome<()> {
        let volume = self.find(key)?;
        self.engine.set_snapshot_reserve(&volume, capacity.reserve);
        // 0 is no limit to the engine; a capacity of nothing is not among what can be asked for.
        let limit = capacity.bytes.map_or(0, |bytes| bytes.max(1));
        if volume.limit() == limit {
            return Ok(());
        }
        self.engine.set_limit(&volume, limit);
        Ok(())
    }

    fn set_root_mode(&self, key: &str, mode: u32) -> Outcome<()> {
        let volume = self.find(key)?;
        let mut cx = EngineContext::new(self.clock.current_time());
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        let root = volume.root();
        volume
            .drive_blocking(&mut cx, |cx| match volume.getattr(cx, root)?.mode == mode {
                true => Ok(None),
                false => volume.setattr(cx, root, &set, None).map(|done| done.lsn),
            })
            .and_then(|lsn| self.engine.wait_durable(lsn))
            .map_err(failed("volume", key))
    }

    fn snapshots(&self, key: &str) -> Outcome<Vec<SnapshotState>> {
        let volume = self.find(key)?;
        Ok(volume.snapshots().iter().map(snapshot_state).collect())
    }

    fn snapshot_create(&self, key: &str, name: &str, label: &str) -> Outcome<TakenSnapshot> {
        let volume = self.find(key)?;
        let found = match volume.snapshot_take(name, label, self.clock.current_time()) {
            Ok(_) => false,
            Err(FsError::Exists) => {
                self.snapshot_label(key, name, label)?;
                true
            }
            Err(FsError::ReadOnly) if volume.protected() => {
                return Err(BackendError::Precondition(
                    "the volume is the destination of a replication: only transfers change it"
                        .to_owned(),
                ));
            }
            Err(FsError::Busy) => {
                return Err(BackendError::Precondition(
                    "the volume is being split from the one that it is a clone of".to_owned(),
                ));
            }
            Err(error) => return Err(failed("snapshot", name)(error)),
        };
        volume
            .snapshot(name)
            .as_ref()
            .map(snapshot_state)
            .map(|state| TakenSnapshot { state, found })
            .ok_or_else(|| BackendError::NotFound(format!("snapshot {name}")))
    }

    fn snapshot_rename(&self, key: &str, from: &str, to: &str) -> Outcome<()> {
        let volume = self.find(key)?;
        match volume.snapshot_rename(from, to) {
            Ok(()) => Ok(()),
            Err(FsError::NotFound) if volume.snapshot(to).is_some() => Ok(()),
            Err(FsError::Exists) => Err(BackendError::Precondition(format!(
                "there is another snapshot {to}"
            ))),
            Err(error) => Err(failed("snapshot", from)(error)),
        }
    }

    fn snapshot_label(&self, key: &str, name: &str, label: &str) -> Outcome<()> {
        let volume = self.find(key)?;
        if volume.snapshot(name).is_some_and(|s| s.label == label) {
            return Ok(());
        }
        volume
            .snapshot_label(name, label)
            .map_err(failed("snapshot", name))
    }

    fn split(&self, key: &str) -> Outcome<()> {
        match self.engine.split_clone(key) {
            Ok(()) => Ok(()),
            Err(FsError::Busy) => Err(BackendError::Precondition(
                "snapshots of the clone share its blocks; delete them first".to_owned(),
            )),
            Err(error) => Err(failed("volume", key)(error)),
        }
    }

    fn snapshot_delete(&self, key: &str, name: &str) -> Outcome<()> {
        match self.find(key)?.snapshot_delete(name) {
            Ok(()) | Err(FsError::NotFound) => Ok(()),
            Err(FsError::Busy) => Err(BackendError::Precondition(format!(
                "cannot delete snapshot {name}: it has clones"
            ))),
            Err(error) => Err(failed("snapshot", name)(error)),
        }
    }

    fn revert(&self, key: &str, snapshot: &str) -> Outcome<()> {
        self.find(key)?;
        match self.engine.revert(key, snapshot) {
            Ok(()) => Ok(()),
            Err(FsError::Busy) => Err(BackendError::Precondition(format!(
                "volumes depend on snapshots later than {snapshot}"
            ))),
            Err(error) => Err(failed("snapshot", snapshot)(error)),
        }
    }

    fn join_domain(&self, spec: &DomainSpec) -> Outcome<String> {
        self.domains()?.join(spec)
    }

    fn leave_domain(&self, domain: &str) -> Outcome<()> {
        self.domains()?.leave(domain)
    }

    fn vault_create(&self, vault: &str) -> Outcome<()> {
        self.backups()?.create(vault)
    }

    fn vault_delete(&self, vault: &str) -> Outcome<()> {
        self.backups()?.delete(vault)
    }

    fn backup_take(&self, spec: &BackupSpec) -> Outcome<BackupState> {
        self.backups()?.take(&self.find(&spec.volume)?, spec)
    }

    fn backup_delete(&self, vault: &str, backup: &str) -> Outcome<()> {
        self.backups()?.delete_backup(vault, backup)
    }

    fn restore_files(&self, spec: &FilesSpec) -> Outcome<()> {
        let backups = self.backups()?;
        let volume = self.find(&spec.volume)?;
        // One at a time for a vault: what an interrupted one has left is the same one's.
        let key = format!("restore-{}-{}", spec.vault, spec.volume);
        self.drop_scratch(&key)?;
        let scratch = VolumeSpec {
            key: key.clone(),
            capacity: Capacity::default(),
            root_mode: 0o700,
            clone_of: None,
            protection: true,
            constituent: None,
        };
        self.create_volume(&scratch)?;
        let done = self.find(&key).and_then(|from| {
            let name = backups.restore_files(&from, spec)?;
            let view = from.open_snapshot(&name);
            let files = SnapshotFiles::new(
                Arc::clone(&self.engine),
                Arc::clone(&self.vfs),
                Arc::clone(&self.clock),
                Arc::clone(&self.rng),
                Handle::current(),
            );
            let files = files.stopped_by(backups.stops());
            let view = view.map_err(failed("snapshot", &name))?;
            let copied = files.copy_into(&view, &volume, &spec.files, &spec.directory);
            copied.map_err(|refusal| match refusal.status {
                Status::Unavailable => BackendError::Failed(refusal.message),
                Status::NotFound => BackendError::NotFound(refusal.message),
                _ => BackendError::Precondition(refusal.message),
            })
        });
        let dropped = self.drop_scratch(&key);
        done.and(dropped)
    }

    fn restore_volume(&self, spec: &VolumeSpec, vault: &str, backup: &str) -> Outcome<VolumeState> {
        let backups = self.backups()?;
        let key = &spec.key;
        let there = self.find(key).ok();
        let done = there.is_some_and(|volume| volume.mirror().is_none() && volume.used() > 0);
        if !done {
            let protected = VolumeSpec {
                protection: true,
                ..spec.clone()
            };
            self.create_volume(&protected)?;
            backups.restore(&self.engine, &self.find(key)?, (vault, backup))?;
        }
        self.volume(key)
    }

    fn point(&self) -> Point {
        Point(self.engine.epoch())
    }

    fn reached(&self, point: Point) -> bool {
        self.engine.is_durable(point.0)
    }

    fn publish(&self, next: Arc<Publication>) -> Outcome<()> {
        let mut served = self.served.lock();
        let PublishedExports { exports, missing } = &mut *served;
        let mut gone = Vec::new();
        if next.whole {
            let named: HashSet<&str> = next.exports.iter().map(|e| e.key.as_str()).collect();
            exports.retain(|key, (_, id)| {
                let stays = named.contains(key.as_str());
                if !stays {
                    gone.push(*id);
                }
                stays
            });
            missing.clear();
        }
        for key in &next.withdrawn {
            missing.remove(&**key);
            gone.extend(exports.remove(&**key).map(|(_, id)| id));
        }
        let again = std::mem::take(missing);
        let mut new = Vec::new();
        for spec in again.values().chain(&next.exports) {
            let old = exports.get(&spec.key);
            if old.is_some_and(|(old, _)| Arc::ptr_eq(old, spec) || old == spec) {
                continue;
            }
            match self.export(spec) {
                Ok(export) => {
                    exports.insert(spec.key.clone(), (Arc::clone(spec), export.volume()));
                    missing.remove(&spec.key);
                    new.push(Arc::new(export));
                }
                // All others are served all the same; the next publication retries this one.
                Err(error) => {
                    if !again.contains_key(&spec.key) {
                        tracing::error!(path = ?spec.paths, %error, "cannot serve a volume");
                    }
                    gone.extend(exports.remove(&spec.key).map(|(_, id)| id));
                    missing.insert(spec.key.clone(), Arc::clone(spec));
                }
            }
        }
        for (key, text) in &next.annotations {
            // One that is not there is not served either, and was logged above.
            if let Ok(volume) = self.find(key) {
                self.engine
                    .annotate(&volume, text)
                    .map_err(failed("volume", key))?;
            }
        }
        // First the limits: no volume is served without its own.
        self.vfs.throttle.change(&next.limits);
        if !(gone.is_empty() && new.is_empty()) {
            let table = self.vfs.exports().with(&gone, new);
            self.vfs.publish_table(table);
        }
        for volume in gone {
            self.vfs.relocations.forget(volume);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
