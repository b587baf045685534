//! Export policy: which client may use which volume, how, and under which identity.
//!
//! Rules are evaluated in order and the first that counts for the client and the protocol decides,
//! as administrators expect of access lists. A client that no rule matches is refused. If a rule
//! depends on a name that is not known yet, the search ends there (see `names`).
//!
//! **The table** is immutable and is replaced as a whole, so the data path reads it without a lock
//! and every request sees one state of everything. It is two levels deep, so that a change among
//! ten thousand exports copies some hundred pointers. The exports are dealt to [`PARTS`] sorted
//! parts by the volume's number, and once more by the path, and a new table shares the parts that
//! did not change.

use crate::Volume;
use crate::claims::Style;
use crate::clients::{Clients, Match};
use crate::handle::{FileId, Namespace};
use crate::identity::{Groups, Identity};
use crate::names::{Names, Wait};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};
use weir_base::VolumeId;
use weir_base::network::AddressBlock;
use weir_large::Member;
use weir_volume::{QuotaEntry, QuotaId};

/// `nobody`: the identity of squashed and anonymous callers unless an export
/// says otherwise.
pub const NOBODY: u32 = 65_534;

/// Callers that lose their identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// None: root is root.
    None,
    /// Callers with user id 0 or group id 0 lose those ids.
    Root,
    /// All callers are anonymous.
    All,
}

/// The protocols that volumes are served over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NFSv3, with MOUNT and NLM.
    Nfsv3,
    /// NFSv4, minor versions 1 and 2 (RFC 8881, RFC 7862).
    Nfsv4,
    /// SMB 2.1 and later (MS-SMB2).
    Smb,
}

/// A set of protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// NFSv3, with MOUNT and NLM.
    pub nfsv3: bool,
    /// NFSv4, minor versions 1 and 2.
    pub nfsv4: bool,
    /// SMB 2.1 and later.
    pub smb: bool,
}

impl Protocols {
    /// Every protocol that the server speaks.
    pub const ALL: Protocols = Protocols {
        nfsv3: true,
        nfsv4: true,
        smb: true,
    };

    /// Returns true if `protocol` is one of them.
    pub fn contains(self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Nfsv3 => self.nfsv3,
            Protocol::Nfsv4 => self.nfsv4,
            Protocol::Smb => self.smb,
        }
    }
}

/// Protection of a call on its way, the weakest first: by its connection (RFC 9289), or by itself
/// as SMB has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// No protection.
    #[default]
    Clear,
    /// TLS: the server has shown a certificate. Or SMB's encryption, under keys that only server
    /// and user have.
    Tls,
    /// TLS, and the client has shown a certificate too.
    MutualTls,
}

/// A set of security flavours: a bit for each [`Flavour`](crate::Flavour).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flavours(pub(crate) u8);

impl Flavours {
    /// None: who has only these to show is refused.
    pub const NONE: Flavours = Flavours(0);
    /// The client's word, or nobody's: AUTH_SYS and AUTH_NONE.
    pub const SYS: Flavours = Flavours(0b11);
    /// Kerberos, in all its kinds.
    pub const KRB5: Flavours = Flavours(0b1_1100);
    /// Kerberos that protects messages against change, or encrypts them.
    pub const KRB5_INTEGRITY: Flavours = Flavours(0b1_1000);
    /// Kerberos that encrypts messages.
    pub const KRB5_PRIVACY: Flavours = Flavours(0b1_0000);
    /// NTLM, of SMB.
    pub const NTLM: Flavours = Flavours(0b10_0000);

    /// Returns the flavours of both sets.
    #[must_use]
    pub const fn or(self, other: Flavours) -> Flavours {
        Flavours(self.0 | other.0)
    }

    /// Returns the flavours that both sets have.
    #[must_use]
    pub const fn and(self, other: Flavours) -> Flavours {
        Flavours(self.0 & other.0)
    }
}

/// Rights of one set of clients in an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The clients that the rule matches.
    pub clients: Clients,
    /// The protocols that it counts for; for others the search continues with the next rule.
    pub protocols: Protocols,
    /// Flavours by which their identity may be established; otherwise they are refused, whatever
    /// later rules say. Without any they always are.
    pub flavours: Flavours,
    /// The part of `flavours` by which clients may make changes.
    pub writers: Flavours,
    /// The least protection of their connections; with less they are refused, as with a flavour
    /// that is not admitted.
    pub transport: Transport,
    /// The identities that are mapped to the anonymous one.
    pub squash: Squash,
    /// User id of anonymous callers.
    pub anon_uid: u32,
    /// Group id of anonymous callers.
    pub anon_gid: u32,
}

impl Rule {
    /// Creates a rule for everyone, to read and write, with `squash`.
    pub fn open(squash: Squash) -> Rule {
        Rule {
            clients: Clients::Any,
            protocols: Protocols::ALL,
            flavours: Flavours::SYS,
            writers: Flavours::SYS,
            transport: Transport::Clear,
            squash,
            anon_uid: NOBODY,
            anon_gid: NOBODY,
        }
    }

    /// Returns the identity that the caller acts under; `None` is a caller that gave no identity.
    pub fn identity<'i>(&self, caller: Option<&'i Identity>) -> Cow<'i, Identity> {
        let anonymous = || {
            Cow::Owned(Identity::unix(
                self.anon_uid,
                self.anon_gid,
                Groups::default(),
            ))
        };
        let Some(caller) = caller else {
            return anonymous();
        };
        match self.squash {
            Squash::None => Cow::Borrowed(caller),
            Squash::All => anonymous(),
            Squash::Root if caller.unix.is_root() => anonymous(),
            Squash::Root => caller
                .without_root_group(self.anon_gid)
                .map_or(Cow::Borrowed(caller), Cow::Owned),
        }
    }
}

/// Verdict of an export's rules on a client.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'t> {
    /// The client may use the export under this rule.
    Rule(&'t Rule),
    /// The client may not use the volume.
    Denied,
    /// Its name decides and is not known: neither yes nor no.
    Unknown(Wait),
}

/// Share of SMB by which clients reach a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name, found in any case; no other export has it.
    pub name: String,
    /// True if it is listed.
    pub browsable: bool,
    /// True if listings leave out what the user may not read.
    pub access_based: bool,
    /// True if only encrypted requests reach it.
    pub encrypted: bool,
    /// True if opens of it may outlive the server (CONTINUOUSLY_AVAILABLE).
    pub continuous: bool,
}

impl Share {
    /// Creates a share that is listed, with all that it has.
    pub fn new(name: impl Into<String>) -> Share {
        Share {
            name: name.into(),
            browsable: true,
            access_based: false,
            encrypted: false,
            continuous: false,
        }
    }
}

/// Returns the first rule that counts for `client`, with its place, if it admits anybody.
pub(crate) fn first<'r>(
    rules: &'r [Rule],
    client: IpAddr,
    protocol: Protocol,
    names: &Names,
) -> Result<Option<(usize, &'r Rule)>, Wait> {
    let counting = rules.iter().enumerate();
    for (at, rule) in counting.filter(|(_, r)| r.protocols.contains(protocol)) {
        match rule.clients.matches(client, names) {
            Match::Yes => {
                let some = rule.flavours != Flavours::NONE;
                return Ok(some.then_some((at, rule)));
            }
            Match::No => {}
            Match::Unknown(wait) => {
                // Names that further rules need are looked up at the same time.
                let rest = rules.get(at + 1..).unwrap_or_default();
                rest.iter().for_each(|r| r.clients.prefetch(client, names));
                return Err(wait);
            }
        }
    }
    Ok(None)
}

/// A volume under a path.
pub struct Export {
    /// Absolute path that clients mount, such as `/vol1`.
    pub path: String,
    /// Further paths that lead to it.
    pub aliases: Vec<String>,
    /// An address of this server that is the export's own, with its path there. Clients of that
    /// address see this export and no other.
    pub home: Option<(IpAddr, String)>,
    /// The volume. Requests reach it by the pipeline alone.
    pub(crate) volume: Arc<Volume>,
    /// The rules that admit clients; the first match decides. Without rules no client is admitted.
    pub rules: Vec<Rule>,
    /// Rules of trees that have their own, by the tree's number in ascending order. Clients of NFS
    /// need both: to be admitted by `rules`, and what is in the tree by those of the tree.
    pub trees: Vec<(u32, Vec<Rule>)>,
    /// Changes are refused from everyone.
    pub read_only: bool,
    /// True if clients see the directory of snapshots.
    pub snapshot_directory: bool,
    /// Security style: in NTFS style only SMB sets permissions, and NFS respects that an open of
    /// SMB denies deletion.
    pub style: Style,
    /// Share by which clients of SMB reach it; `None`: it is no share, whatever the rules say.
    pub share: Option<Share>,
    /// Constituent of a large volume that the volume is.
    pub constituent: Option<Arc<Member>>,
}

impl Export {
    /// Creates an export that can be changed and shows no snapshots.
    pub fn new(path: impl Into<String>, volume: Arc<Volume>, rules: Vec<Rule>) -> Export {
        Export {
            path: path.into(),
            aliases: Vec::new(),
            home: None,
            volume,
            rules,
            trees: Vec::new(),
            read_only: false,
            snapshot_directory: false,
            style: Style::Unix,
            share: None,
            constituent: None,
        }
    }

    /// Returns the number of its volume.
    pub fn volume(&self) -> VolumeId {
        self.volume.id()
    }

    /// Returns the usage and limits of a user or group; `None` unless its volume has quotas.
    pub fn quota_of(&self, id: QuotaId) -> Option<QuotaEntry> {
        self.volume.quota_of(id)
    }

    /// Returns the root of its volume.
    pub fn root(&self) -> FileId {
        FileId {
            volume: self.volume.id(),
            ino: self.volume.root(),
            namespace: Namespace::Live,
        }
    }

    /// Returns all paths that lead to it.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        [&self.path]
            .into_iter()
            .chain(&self.aliases)
            .map(String::as_str)
    }

    /// Returns the verdict of the rules on `client`.
    pub fn verdict(&self, client: IpAddr, protocol: Protocol, names: &Names) -> Verdict<'_> {
        match self.search(client, protocol, names) {
            Ok(found) => found.map_or(Verdict::Denied, |(_, rule)| Verdict::Rule(rule)),
            Err(wait) => Verdict::Unknown(wait),
        }
    }

    /// Returns the rule that admits `client`, with its place.
    pub(crate) fn search(
        &self,
        client: IpAddr,
        protocol: Protocol,
        names: &Names,
    ) -> Result<Option<(usize, &Rule)>, Wait> {
        first(&self.rules, client, protocol, names)
    }

    /// Returns the rules of a tree; `None` if it has none of its own.
    pub(crate) fn rules_of_tree(&self, tree: u32) -> Option<&[Rule]> {
        let at = self.trees.binary_search_by_key(&tree, |(tree, _)| *tree);
        let (_, rules) = self.trees.get(at.ok()?)?;
        Some(rules)
    }

    /// Returns true if names play a part in the rules.
    pub(crate) fn by_name(&self) -> bool {
        self.rules.iter().any(|r| r.clients.by_name())
    }
}

/// Parts of a table: the square root of ten thousand, roughly.
const PARTS: usize = 128;

type Part = Arc<[Arc<Export>]>;

/// A path, as an index into [`Export::paths`].
#[derive(Clone)]
struct ExportPath {
    export: Arc<Export>,
    path: usize,
}

impl ExportPath {
    fn path(&self) -> &str {
        match self.path.checked_sub(1) {
            None => &self.export.path,
            Some(alias) => self.export.aliases.get(alias).map_or("", String::as_str),
        }
    }
}

type NamedPart = Arc<[ExportPath]>;

/// Exports that clients of one address of the server see.
#[derive(Clone, Copy)]
pub enum Scope<'t> {
    /// All exports, at their paths.
    All,
    /// The one export that has the address, with its path there; `None`: no export has it, and
    /// clients see nothing.
    Own(Option<(&'t Export, &'t str)>),
}

/// All exports at one moment; immutable, replaced as a whole.
pub struct ExportTable {
    /// Unique among all tables of the process.
    generation: u64,
    /// Addresses of the server that are for single exports.
    addresses: Option<AddressBlock>,
    /// Exports with such an address, sorted by it.
    by_address: Arc<[(IpAddr, Arc<Export>)]>,
    /// Exports by the volume's number modulo [`PARTS`], sorted by it.
    by_volume: Vec<Part>,
    /// Exports by the path's hash modulo [`PARTS`], sorted by path.
    by_path: Vec<NamedPart>,
}

impl Default for ExportTable {
    fn default() -> ExportTable {
        ExportTable {
            generation: next_generation(),
            addresses: None,
            by_address: Arc::default(),
            by_volume: vec![Part::default(); PARTS],
            by_path: vec![NamedPart::default(); PARTS],
        }
    }
}

fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, atomic::Ordering::Relaxed)
}

/// Returns the part of a volume.
fn volume_part(id: VolumeId) -> usize {
    id.0 as usize % PARTS
}

/// Returns the part of a path: FNV-1a. Paths come from administrators; nobody gains by making them
/// collide.
fn path_part(path: &str) -> usize {
    let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 32) as usize % PARTS
}

/// Returns a part without what `gone` says and with `new`, in `order`; of two that stand equal in
/// it the later.
fn rebuilt<T: Clone>(
    part: &[T],
    gone: impl Fn(&T) -> bool,
    new: &[T],
    order: impl Fn(&T, &T) -> Ordering,
) -> Arc<[T]> {
    let mut all: Vec<T> = new.iter().rev().cloned().collect();
    all.extend(part.iter().filter(|e| !gone(e)).cloned());
    all.sort_by(|a, b| order(a, b));
    all.dedup_by(|b, a| order(a, b).is_eq());
    all.into()
}

impl ExportTable {
    /// Creates a table of `exports`. A volume has one export, and a path leads to one: of several,
    /// the last counts.
    pub fn new(exports: Vec<Export>) -> ExportTable {
        ExportTable::default().with(&[], exports.into_iter().map(Arc::new).collect())
    }

    /// Creates a table without exports, for a server where each of `addresses` is for a single
    /// export.
    pub fn with_addresses(addresses: Option<AddressBlock>) -> ExportTable {
        ExportTable {
            addresses,
            ..ExportTable::default()
        }
    }

    /// This table without the exports of the volumes `gone`, and with `new` in place of what it has
    /// of their volumes.
    #[must_use]
    pub fn with(&self, gone: &[VolumeId], mut new: Vec<Arc<Export>>) -> ExportTable {
        // The last of several exports of a volume counts.
        new.reverse();
        new.sort_by_key(|e| e.volume.id());
        new.dedup_by_key(|e| e.volume.id());
        let mut leave: Vec<VolumeId> = gone.to_vec();
        leave.extend(new.iter().map(|e| e.volume.id()));
        leave.sort_unstable();
        leave.dedup();
        let leaves = |e: &Export| leave.binary_search(&e.volume.id()).is_ok();

        let moves = |e: &Export| e.home.is_some();
        let left = leave.iter().filter_map(|id| self.of_volume(*id));
        let by_address = match left.into_iter().any(moves) || new.iter().any(|e| moves(e)) {
            false => Arc::clone(&self.by_address),
            true => {
                let homes = |e: &Arc<Export>| Some((e.home.as_ref()?.0, Arc::clone(e)));
                let new: Vec<_> = new.iter().filter_map(homes).collect();
                rebuilt(
                    &self.by_address,
                    |(_, e)| leaves(e),
                    &new,
                    |a, b| a.0.cmp(&b.0),
                )
            }
        };

        // New content of each part; `None`: the part stays as it is.
        let mut volumes: Vec<Option<Vec<Arc<Export>>>> = vec![None; PARTS];
        let mut paths: Vec<Option<Vec<ExportPath>>> = vec![None; PARTS];
        for id in &leave {
            if let Some(old) = self.of_volume(*id) {
                volumes[volume_part(*id)].get_or_insert_default();
                for path in old.paths() {
                    paths[path_part(path)].get_or_insert_default();
                }
            }
        }
        for export in new {
            for (path, text) in export.paths().enumerate() {
                let export = Arc::clone(&export);
                let part = paths[path_part(text)].get_or_insert_default();
                part.push(ExportPath { export, path });
            }
            let part = volumes[volume_part(export.volume.id())].get_or_insert_default();
            part.push(export);
        }
        let by_volume = self.by_volume.iter().zip(&volumes);
        let by_path = self.by_path.iter().zip(&paths);
        ExportTable {
            generation: next_generation(),
            addresses: self.addresses,
            by_address,
            by_volume: by_volume
                .map(|(part, new)| match new {
                    Some(new) => rebuilt(
                        part,
                        |e| leaves(e),
                        new,
                        |a, b| a.volume.id().cmp(&b.volume.id()),
                    ),
                    None => Arc::clone(part),
                })
                .collect(),
            by_path: by_path
                .map(|(part, new)| match new {
                    Some(new) => rebuilt(
                        part,
                        |e| leaves(&e.export),
                        new,
                        |a, b| a.path().cmp(b.path()),
                    ),
                    None => Arc::clone(part),
                })
                .collect(),
        }
    }

    /// Returns a number that distinguishes this table from every other.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the export of a volume.
    pub fn of_volume(&self, id: VolumeId) -> Option<&Export> {
        self.find(id).map(|(_, export)| export)
    }

    /// Returns the export of a volume, and its place in its part.
    pub(crate) fn find(&self, id: VolumeId) -> Option<(usize, &Export)> {
        let part = self.by_volume.get(volume_part(id))?;
        let at = part.binary_search_by_key(&id, |e| e.volume.id()).ok()?;
        part.get(at).map(|e| (at, &**e))
    }

    /// Returns the export at a place that [`ExportTable::find`] returned for this table.
    pub(crate) fn export_at(&self, id: VolumeId, place: usize) -> Option<&Export> {
        let part = self.by_volume.get(volume_part(id))?;
        part.get(place).map(|e| &**e)
    }

    /// Returns the export that `path` is, or is below; with the rest of the path. The longest wins.
    pub fn of_path<'p>(&self, path: &'p str) -> Option<(&Export, &'p str)> {
        let path = path.trim_end_matches('/');
        let mut end = path.len();
        loop {
            let (prefix, rest) = path.split_at_checked(end)?;
            let part = self.by_path.get(path_part(prefix))?;
            if let Ok(at) = part.binary_search_by(|e| e.path().cmp(prefix)) {
                return part.get(at).map(|e| (&*e.export, rest));
            }
            end = prefix.rfind('/')?;
        }
    }

    /// Returns the exports that clients of the address `local` of the server see.
    pub fn scope(&self, local: IpAddr) -> Scope<'_> {
        if self.addresses.is_none() && self.by_address.is_empty() {
            return Scope::All;
        }
        let local = local.to_canonical();
        let found = self.by_address.binary_search_by_key(&local, |(at, _)| *at);
        let found = found.ok().and_then(|at| self.by_address.get(at));
        let own = found.and_then(|(_, e)| Some((&**e, e.home.as_ref()?.1.as_str())));
        // An export keeps its address when the server has others for single exports by now.
        match own.is_some() || self.addresses.is_some_and(|all| all.contains(local)) {
            true => Scope::Own(own),
            false => Scope::All,
        }
    }

    /// Returns the export that `path` is, or is below, for clients of the address `local`; with the
    /// rest of the path.
    pub fn of_path_at<'p>(&self, local: IpAddr, path: &'p str) -> Option<(&Export, &'p str)> {
        let (export, home) = match self.scope(local) {
            Scope::All => return self.of_path(path),
            Scope::Own(own) => own?,
        };
        let rest = path.trim_end_matches('/').strip_prefix(home)?;
        (rest.is_empty() || rest.starts_with('/')).then_some((export, rest))
    }

    /// Returns the exports that clients of the address `local` see, in no order.
    pub fn seen_at(&self, local: IpAddr) -> impl Iterator<Item = &Export> {
        let (all, own) = match self.scope(local) {
            Scope::All => (Some(self.iter()), None),
            Scope::Own(own) => (None, own.map(|(export, _)| export)),
        };
        all.into_iter().flatten().chain(own)
    }

    /// Returns the exports that have an address of the server, in the order of these.
    pub fn homes(&self) -> impl Iterator<Item = (IpAddr, &Export)> {
        self.by_address.iter().map(|(at, e)| (*at, &**e))
    }

    /// Returns all exports, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.by_volume
            .iter()
            .flat_map(|part| part.iter().map(|e| &**e))
    }
}

#[cfg(test)]
mod tests;
