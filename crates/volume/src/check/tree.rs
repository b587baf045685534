//! Checks one tree: its nodes, its records, and their consistency.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_base::{BlockAddr, Generation, Ino, VolumeId, invariant};
use weir_store::cache::Cache;
use weir_store::node::Key;
use weir_store::space::Usage;
use weir_store::tree::{self, NodeSource, Stop, TreeRoot, Visitor};
use weir_store::verify::{Sweep, Verifier};
use weir_store::{BlockPtr, Frame, StoreError};

use super::progress::Progress;
use super::report::{Fault, Report};
use super::shared_blocks::References;
use super::usage::Counts;
use crate::format::catalog::{self, AggregateRec, Job, SnapshotRec, VolumeRec};
use crate::format::hash::{HashKey, VARIANTS, first_cookie, hash_of};
use crate::format::mark::MarkId;
use crate::format::record::{
    DirentRef, InodeRec, ROOT_INO, SYMLINK_PIECE, StoredBlock, Window, blocks_of, flag,
    is_elsewhere, kind,
};
use crate::format::shared_runs::{self, Group};
use crate::format::side::{self, AttributeCollector};
use crate::types::FileKind;

/// A volume and its snapshots in the aggregate's tree.
#[derive(Default)]
pub(super) struct VolumeEntry {
    pub(super) rec: Option<VolumeRec>,
    pub(super) annotation_pieces: u64,
    pub(super) snapshots: Vec<SnapshotRec>,
    pub(super) jobs: Vec<Job>,
}

/// The volumes by their numbers.
pub(super) type Volumes = BTreeMap<VolumeId, VolumeEntry>;

/// Returns the volume whose number a key of the aggregate's tree contains.
fn volume_of(ino: u64) -> Option<VolumeId> {
    Some(VolumeId(ino)).filter(|id| *id != catalog::AGGREGATE_TREE)
}

/// Contents of the aggregate's own tree that a check of a volume needs.
#[derive(Default)]
pub(super) struct Catalog {
    pub(super) volumes: Volumes,
    /// True if the aggregate is a copy that is being brought up to a mark: live trees may be
    /// inconsistent.
    pub(super) partial: bool,
    /// The newest mark in the aggregate's record; the highest number if the record cannot be read.
    pub(super) last_mark: MarkId,
}

/// A source that reads nodes as they are needed.
pub(super) struct Reader<'a>(pub(super) &'a Cache);

impl NodeSource for Reader<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        let mut frames = self.0.fetch_blocking(&[*ptr])?;
        frames.pop().ok_or(Stop::Fail(StoreError::NoMemory))
    }

    fn prefetch(&self, ptrs: &[BlockPtr]) {
        // The failure is reported when the node itself is read.
        let _ = self.0.fetch_blocking(ptrs);
    }
}

/// The part that the checks of all roots share.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    /// Verifies data blocks; `None` if they are not read.
    pub(super) verifier: Option<&'a Verifier>,
    /// Counts the blocks seen.
    pub(super) progress: &'a Progress,
}

/// The check of one root.
pub(super) struct TreeCheck<'a> {
    tree: VolumeId,
    cache: &'a Arc<Cache>,
    report: &'a mut Report,
    of_root: &'a mut Usage,
    of_volume: &'a mut Usage,
    total: &'a mut Usage,
    progress: &'a Progress,
    /// Verifies data blocks, identified by file and block; `None` if they are not read.
    sweep: Option<Sweep<'a, (Ino, u64)>>,
    /// Blocks born at or before this generation belong to the volume that this one was cloned from.
    origin_generation: Generation,
    /// References to blocks that files share.
    references: References,
}

impl<'a> TreeCheck<'a> {
    /// Creates a check. `usage`: blocks seen in this root, in this volume's roots, and in all.
    pub(super) fn new(
        tree: VolumeId,
        cache: &'a Arc<Cache>,
        report: &'a mut Report,
        usage: [&'a mut Usage; 3],
        pass: Pass<'a>,
    ) -> TreeCheck<'a> {
        let [of_root, of_volume, total] = usage;
        TreeCheck {
            tree,
            cache,
            report,
            of_root,
            of_volume,
            total,
            progress: pass.progress,
            sweep: pass.verifier.map(Verifier::sweep),
            origin_generation: Generation(0),
            references: References::default(),
        }
    }

    pub(super) fn walk_catalog(&mut self, root: &TreeRoot, out: &mut Catalog) {
        let src = Reader(self.cache);
        tree::walk(&src, root, &mut CatalogVisitor { check: self, out });
    }

    /// Walks the tree. Returns the number of data blocks, if all could be read.
    pub(super) fn walk_volume(
        &mut self,
        root: &TreeRoot,
        rec: &VolumeRec,
        live: bool,
        partial: bool,
    ) -> Option<u64> {
        let src = Reader(self.cache);
        self.origin_generation = rec.origin_generation();
        self.references = References::read(&src, root);
        let mut visitor = VolumeVisitor {
            check: self,
            key: rec.key,
            next_ino: rec.next_ino,
            live,
            current: None,
            inodes: HashMap::new(),
            names: HashMap::new(),
            orphans: Vec::new(),
            is_constituent: false,
            tokens: 0,
            // Half of a transfer is as inconsistent as an unreadable tree, and before the first
            // transfer the tree may be empty.
            blind: live
                && (partial
                    || (rec.mirror).is_some_and(|m| m.transfer.is_some() || m.exported == 0)),
            lost: false,
            used: 0,
            usage: Counts::default(),
        };
        tree::walk(&src, root, &mut visitor);
        visitor.finish_inode();
        visitor.finish();
        let used = (!visitor.lost).then_some(visitor.used);
        let references = std::mem::take(&mut self.references);
        if used.is_some() {
            let faults = references.faults(self.tree, live);
            self.report.faults.extend(faults);
        }
        if let Some(sweep) = self.sweep.take() {
            sweep.finish(&mut data_fault(self.tree, &mut self.report.faults));
        }
        used
    }

    /// Notes a reference; a block shared with other roots of the same volume is no fault. Returns
    /// true for the first reference of this volume to it.
    fn claim(&mut self, addr: BlockAddr, birth: Generation) -> bool {
        if birth <= self.origin_generation {
            // Checked with the origin, which must have the block.
            if self.total.count(addr, 1) == 0 {
                self.inode_fault(0, format!("block {addr} is not in the origin"));
            }
            return false;
        }
        let twice = self.of_root.claim(addr, 1) > 0;
        let new = self.of_volume.claim(addr, 1) == 0;
        if twice || (new && self.total.claim(addr, 1) > 0) {
            let last = self.report.faults.last_mut();
            if let Some(Fault::TwoOwners {
                addr: first, count, ..
            }) = last
                && first.0 + u64::from(*count) == addr.0
            {
                *count += 1;
            } else {
                self.report.faults.push(Fault::TwoOwners {
                    tree: self.tree,
                    addr,
                    count: 1,
                });
            }
        }
        if new {
            self.progress.see(1);
        }
        new
    }

    fn node(&mut self, ptr: &BlockPtr) -> bool {
        let new = self.claim(ptr.addr, ptr.birth);
        self.report.nodes += u64::from(new);
        true
    }

    fn node_fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError) {
        self.report.faults.push(Fault::Node {
            tree: self.tree,
            addr: ptr.addr,
            from: Ino(first.ino),
            what: error.to_string(),
        });
    }

    fn inode_fault(&mut self, ino: u64, what: impl Into<String>) {
        self.report.faults.push(Fault::Inode {
            volume: self.tree,
            ino: Ino(ino),
            what: what.into(),
        });
    }

    /// Notes a data block. Returns true if another place of this tree's files shares it and came
    /// first.
    fn data_block(&mut self, ino: u64, block: u64, stored: StoredBlock) -> bool {
        if self.references.note(&stored) {
            return true;
        }
        let new = self.claim(stored.addr, stored.birth);
        self.report.blocks += u64::from(new);
        if let (true, Some(sweep)) = (new, &mut self.sweep) {
            let mut fault = data_fault(self.tree, &mut self.report.faults);
            sweep.push(stored.ptr(), (Ino(ino), block), &mut fault);
        }
        false
    }
}

/// Reports a data block that is damaged or cannot be read.
fn data_fault(
    volume: VolumeId,
    faults: &mut Vec<Fault>,
) -> impl FnMut(&BlockPtr, (Ino, u64), StoreError) {
    move |ptr, (ino, block), error| {
        faults.push(Fault::Data {
            volume,
            ino,
            block,
            addr: ptr.addr,
            what: error.to_string(),
        });
    }
}

struct CatalogVisitor<'c, 'a> {
    check: &'c mut TreeCheck<'a>,
    out: &'c mut Catalog,
}

impl Visitor for CatalogVisitor<'_, '_> {
    fn node(&mut self, ptr: &BlockPtr, _level: u8) -> bool {
        self.check.node(ptr)
    }

    fn record(&mut self, key: Key, value: &[u8]) {
        if key == AggregateRec::KEY {
            match AggregateRec::decode(value) {
                Some(rec) => {
                    self.out.partial = !rec.position.is_whole();
                    self.out.last_mark = rec.last_mark;
                }
                None => {
                    self.out.last_mark = MarkId(u64::MAX);
                    self.check
                        .inode_fault(0, "malformed record of the aggregate");
                }
            }
            return;
        }
        if key.ino == 0 && key.kind == catalog::kind::CLIENT {
            if crate::format::clients::decode(value).is_none() {
                self.check.inode_fault(0, "malformed record of a client");
            }
            return;
        }
        if key.ino == 0 && key.kind == catalog::kind::CALLS {
            if crate::format::calls::decode(key.sub, value).is_none() {
                self.check.inode_fault(0, "malformed record of calls");
            }
            return;
        }
        let Some(id) = volume_of(key.ino) else {
            return self.check.inode_fault(key.ino, "impossible volume number");
        };
        let entry: &mut VolumeEntry = self.out.volumes.entry(id).or_default();
        let ok = match key.kind {
            catalog::kind::VOLUME => {
                entry.rec = VolumeRec::decode(value);
                entry.rec.is_some()
            }
            catalog::kind::SNAPSHOT => match SnapshotRec::decode(key.sub, value) {
                Some(rec) => {
                    entry.snapshots.push(rec);
                    true
                }
                None => false,
            },
            catalog::kind::ANNOTATION => {
                entry.annotation_pieces += 1;
                key.sub + 1 == entry.annotation_pieces
                    && catalog::decode_annotation(value).is_some()
            }
            catalog::kind::JOB => match Job::decode(value) {
                Some(job) => {
                    entry.jobs.push(job);
                    true
                }
                None => false,
            },
            _ => false,
        };
        if !ok {
            let what = "malformed record of a volume or snapshot";
            self.check.inode_fault(key.ino, what);
        }
    }

    fn fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError) {
        self.check.node_fault(ptr, first, error);
    }
}

/// Data kept of each inode until all names are known.
struct InodeSummary {
    kind: FileKind,
    nlink: u32,
    stream: bool,
    parent: u64,
    subdirs: u32,
    tree: u32,
}

impl InodeSummary {
    fn from_record(rec: &InodeRec, subdirs: u32) -> InodeSummary {
        InodeSummary {
            kind: rec.kind,
            nlink: rec.nlink,
            stream: rec.flags & flag::STREAM != 0,
            parent: rec.parent.0,
            subdirs,
            tree: rec.tree,
        }
    }
}

/// The names that lead to an inode.
#[derive(Default, Clone, Copy)]
struct InodeNames {
    count: u32,
    /// The directory of the last name.
    dir: u64,
    /// The kind in the directory entries.
    kind: Option<FileKind>,
}

/// The inode whose records are being visited.
struct Current {
    ino: u64,
    rec: Option<InodeRec>,
    entries: u64,
    subdirs: u32,
    blocks: u64,
    link_bytes: u64,
    side: AttributeCollector,
    streams: u64,
    /// Names with the hash of the last entry, to find names that occur twice.
    last: Vec<Box<[u8]>>,
    last_hash: u64,
}

struct VolumeVisitor<'c, 'a> {
    check: &'c mut TreeCheck<'a>,
    key: HashKey,
    next_ino: u64,
    live: bool,
    current: Option<Current>,
    inodes: HashMap<u64, InodeSummary>,
    names: HashMap<u64, InodeNames>,
    orphans: Vec<u64>,
    /// True if the volume has tokens or entries of a large volume: other constituents may name its
    /// inodes.
    is_constituent: bool,
    /// Tokens of a constituent. It has one for its starts and one for each change that is prepared
    /// or decided and not finished.
    tokens: u64,
    /// True if a node could not be read: missing records may be in it.
    blind: bool,
    /// True if a node really could not be read.
    lost: bool,
    /// Data blocks of the tree seen so far; a shared one counts once.
    used: u64,
    usage: Counts,
}

impl Visitor for VolumeVisitor<'_, '_> {
    fn node(&mut self, ptr: &BlockPtr, _level: u8) -> bool {
        self.check.node(ptr)
    }

    fn record(&mut self, key: Key, value: &[u8]) {
        if key.ino == shared_runs::INO && kind::OWN.contains(&key.kind) {
            return self.own_record(&key, value);
        }
        if self.current.as_ref().is_none_or(|c| c.ino != key.ino) {
            self.finish_inode();
            self.current = Some(Current {
                ino: key.ino,
                rec: None,
                entries: 0,
                subdirs: 0,
                blocks: 0,
                link_bytes: 0,
                side: AttributeCollector::default(),
                streams: 0,
                last: Vec::new(),
                last_hash: 0,
            });
        }
        let Some(current) = &mut self.current else {
            invariant!(false, "a record of no inode");
            return;
        };
        let problem = match key.kind {
            kind::INODE => {
                current.rec = self.usage.inode(InodeRec::decode(value));
                current.rec.is_none().then_some("malformed inode record")
            }
            kind::SYMLINK => {
                let expected = key.sub * SYMLINK_PIECE as u64;
                let wrong = current.link_bytes != expected;
                current.link_bytes += value.len() as u64;
                (wrong && !self.blind).then_some("link target with a gap")
            }
            kind::DIRENT => self.entry(key, value),
            kind::EXTENT => match Window::decode(value) {
                Some(window)
                    if key.sub % crate::format::record::WINDOW == 0 && !window.is_empty() =>
                {
                    current.blocks += window.stored();
                    for (block, slot) in (key.sub..).zip(&window.blocks) {
                        if let Some(stored) = slot {
                            let again = self.check.data_block(key.ino, block, *stored);
                            self.used += u64::from(!again);
                        }
                    }
                    None
                }
                _ => Some("malformed extent"),
            },
            kind::XATTR | kind::ACL | kind::TOKEN => match side::well_formed(key, value) {
                true => {
                    current.side.push(key, value);
                    None
                }
                false => Some("malformed attribute"),
            },
            kind::STREAM => match DirentRef::decode(value) {
                Some(entry) if entry.kind == FileKind::Regular => {
                    current.streams += 1;
                    let named = self.names.entry(entry.ino.0).or_default();
                    named.count += 1;
                    named.dir = key.ino;
                    named.kind = Some(entry.kind);
                    let wrong = hash_of(key.sub) != first_cookie(self.key, entry.name);
                    wrong.then_some("stream at the wrong place")
                }
                _ => Some("malformed stream"),
            },
            kind::ORPHAN if key.ino == 0 => {
                self.orphans.push(key.sub);
                None
            }
            _ => Some("record of unknown kind"),
        };
        if let Some(problem) = problem {
            self.check.inode_fault(key.ino, problem);
        }
    }

    fn fault(&mut self, ptr: &BlockPtr, first: Key, error: &StoreError) {
        self.blind = true;
        self.lost = true;
        self.check.node_fault(ptr, first, error);
    }
}

impl VolumeVisitor<'_, '_> {
    /// Notes a record behind all inodes.
    fn own_record(&mut self, key: &Key, value: &[u8]) {
        let fault = match key.kind {
            kind::USAGE => (!self.usage.record(key, value)).then_some("malformed record of usage"),
            _ => {
                let malformed = Group::decode(value).is_none();
                malformed.then_some("malformed record of shared blocks")
            }
        };
        if let Some(fault) = fault {
            self.check.inode_fault(0, fault);
        }
    }

    fn entry(&mut self, key: Key, value: &[u8]) -> Option<&'static str> {
        let current = self.current.as_mut()?;
        let Some(entry) = DirentRef::decode(value) else {
            return Some("malformed directory entry");
        };
        current.entries += 1;
        current.subdirs += u32::from(entry.kind == FileKind::Directory);
        let mut kinds_agree = true;
        if is_elsewhere(entry.ino) {
            self.is_constituent = true;
        } else {
            let named = self.names.entry(entry.ino.0).or_default();
            named.count += 1;
            named.dir = key.ino;
            kinds_agree = named.kind.is_none_or(|k| k == entry.kind);
            named.kind = Some(entry.kind);
        }
        let hash = hash_of(key.sub);
        if hash != first_cookie(self.key, entry.name) || key.sub - hash >= VARIANTS {
            return Some("directory entry at the wrong place");
        }
        if hash != current.last_hash {
            current.last.clear();
            current.last_hash = hash;
        }
        let twice = current.last.iter().any(|n| **n == *entry.name);
        current.last.push(entry.name.into());
        if twice {
            return Some("name that stands twice in a directory");
        }
        (!kinds_agree).then_some("directory entries that disagree about an inode's kind")
    }

    fn finish_inode(&mut self) {
        let Some(current) = self.current.take() else {
            // No inode precedes the first one.
            return;
        };
        if current.ino == 0 {
            return;
        }
        let ino = current.ino;
        let Some(rec) = current.rec else {
            if !self.orphans.contains(&ino) && !self.blind {
                self.check.inode_fault(ino, "records without an inode");
            }
            return;
        };
        if self.live {
            self.check.report.inodes += 1;
            self.check.report.entries += current.entries;
        }
        if !self.blind {
            if rec.kind == FileKind::Directory && rec.entries != current.entries {
                self.check.inode_fault(
                    ino,
                    format!(
                        "{} entries, but {} are counted",
                        current.entries, rec.entries
                    ),
                );
            }
            if rec.blocks != current.blocks {
                self.check.inode_fault(
                    ino,
                    format!("{} blocks, but {} were found", current.blocks, rec.blocks),
                );
            }
            if rec.kind == FileKind::Symlink && rec.size != current.link_bytes {
                self.check
                    .inode_fault(ino, "link target of the wrong length");
            }
        }
        self.is_constituent |= current.side.tokens > 0;
        self.tokens += current.side.tokens;
        let fault = current
            .side
            .fault(&rec, |name| first_cookie(self.key, name));
        if let Some(fault) = fault.filter(|_| !self.blind) {
            self.check.inode_fault(ino, fault);
        }
        if current.streams > 0 && rec.flags & flag::STREAMS == 0 && !self.blind {
            let what = "streams that the inode does not mention";
            self.check.inode_fault(ino, what);
        }
        let misfit = rec.kind != FileKind::Directory && current.entries > 0
            || rec.kind != FileKind::Regular && current.blocks > 0
            || rec.kind != FileKind::Symlink && current.link_bytes > 0
            || current.blocks > blocks_of(rec.size);
        if misfit && !self.blind {
            self.check
                .inode_fault(ino, "records that do not fit the inode's kind or size");
        }
        if self.live && ino >= self.next_ino {
            self.check
                .inode_fault(ino, "number that has not been given out yet");
        }
        self.inodes
            .insert(ino, InodeSummary::from_record(&rec, current.subdirs));
    }

    /// Compares inodes and names, once all are known.
    fn finish(&mut self) {
        if self.blind {
            return;
        }
        if !self.inodes.contains_key(&ROOT_INO.0) {
            self.check.inode_fault(ROOT_INO.0, "no root directory");
        }
        let half_done = self.may_be_half_done();
        for (ino, named) in &self.names {
            match self.inodes.get(ino) {
                None if half_done => {}
                None => self.check.inode_fault(
                    named.dir,
                    format!("entry for inode {ino}, which does not exist"),
                ),
                Some(seen) if Some(seen.kind) != named.kind => {
                    self.check
                        .inode_fault(*ino, "another kind than its directory entry says");
                }
                Some(_) => {}
            }
        }
        let mut all: Vec<(&u64, &InodeSummary)> = self.inodes.iter().collect();
        all.sort_unstable_by_key(|(ino, _)| **ino);
        for (ino, seen) in all {
            let named = self.names.get(ino).copied().unwrap_or_default();
            let is_root = *ino == ROOT_INO.0;
            let expected = match seen.kind {
                FileKind::Directory => 2 + seen.subdirs,
                _ if half_done => seen.nlink.max(1),
                // Other constituents may have names, too.
                _ if self.is_constituent => named.count.max(seen.nlink).max(1),
                _ => named.count,
            };
            let open = seen.nlink == 0 && named.count == 0 && self.orphans.contains(ino);
            if open && seen.kind != FileKind::Directory {
                // The inode was open when it lost its last name.
            } else if !is_root && named.count == 0 && !self.is_constituent {
                self.check.inode_fault(*ino, "no name refers to it");
            } else if seen.nlink != expected {
                self.check.inode_fault(
                    *ino,
                    format!("link count {}, but it should be {expected}", seen.nlink),
                );
            }
            if seen.stream && named.count > 0 && seen.parent != named.dir {
                self.check
                    .inode_fault(*ino, "a stream of another file than the one that names it");
            }
            if named.count > 0 && !self.is_in_its_tree(*ino, seen, named.dir) {
                let what = format!("tree {}, which is not that of its directory", seen.tree);
                self.check.inode_fault(*ino, what);
            }
            if seen.kind == FileKind::Directory {
                if is_root && named.count > 0 || named.count > 1 && !half_done {
                    self.check.inode_fault(*ino, "directory with several names");
                }
                if !is_root && named.count == 1 && seen.parent != named.dir && !half_done {
                    self.check.inode_fault(
                        *ino,
                        format!("its parent is {}, not {}", named.dir, seen.parent),
                    );
                }
            }
        }
        let wrong = self.usage.wrong(self.check.tree, self.live);
        let faults = wrong.into_iter().map(Fault::Usage);
        self.check.report.faults.extend(faults);
        // Each directory has one parent, which names it. So one that is not connected to the root
        // is on a cycle or below one.
        self.check_connected();
    }

    /// Returns true if changes of a large volume may be carried out in part here: the name that an
    /// inode loses by one may still be there, and its parent may be the former one. The rest
    /// follows when the constituents are served again.
    fn may_be_half_done(&self) -> bool {
        self.is_constituent && self.tokens > 1
    }

    /// Returns true if an inode belongs to the tree of its directory or file, or founds one.
    fn is_in_its_tree(&self, ino: u64, seen: &InodeSummary, dir: u64) -> bool {
        let founds = dir == ROOT_INO.0 && seen.kind == FileKind::Directory;
        match self.inodes.get(&dir) {
            Some(of) if of.tree != seen.tree => founds && seen.tree == ino as u32,
            // A missing directory is reported already.
            _ => true,
        }
    }

    fn check_connected(&mut self) {
        let mut good: HashMap<u64, bool> = HashMap::from([(ROOT_INO.0, true)]);
        let mut cycles = Vec::new();
        for (ino, seen) in &self.inodes {
            if seen.kind != FileKind::Directory {
                continue;
            }
            let mut path = Vec::new();
            let mut at = *ino;
            let verdict = loop {
                if let Some(known) = good.get(&at) {
                    break *known;
                }
                let Some(seen) = self.inodes.get(&at) else {
                    break true; // reported as dangling already
                };
                if path.len() > self.inodes.len() {
                    break false;
                }
                path.push(at);
                good.insert(at, false);
                at = seen.parent;
            };
            if !verdict {
                cycles.push(*ino);
            }
            for p in path {
                good.insert(p, verdict);
            }
        }
        for ino in cycles {
            self.check
                .inode_fault(ino, "directory that the root does not lead to");
        }
    }
}
