//! Inodes in memory: the object that operations lock, and the table of them.
//!
//! There is one table for all volumes, so that memory is bounded by one number whatever the number
//! of volumes, and goes to the busy ones. It is sharded by inode number. An inode without
//! references and overlay can be dropped at any time, since the tree has it. Eviction is CLOCK a
//! shard (a second chance for inodes used since the hand last passed). It needs one flag an inode
//! and no list to keep in order on a hit.
//!
//! **Loading races.** A record read from the tree may be outdated when it is put into the table.
//! Meanwhile another thread may have loaded the inode, changed it, and a checkpoint published and
//! evicted it. An inode with an overlay is always in the table, and roots are published before
//! overlays are dropped. So the record is current if, under the shard's lock, the table does not
//! have the inode and the root is still the one that was read. Otherwise the load is repeated.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use smallvec::SmallVec;
use weir_base::limits::engine::EVICTION_TRIES as TRIES;
use weir_base::{BLOCK_SIZE, Ino, Time, VolumeId, invariant};

use crate::format::record::{InodeRec, blocks_of, flag};
use crate::overlay::delta::Delta;
use crate::overlay::file_delta::FileDelta;
use crate::overlay::readahead::FileId;
use crate::types::{Attr, Backpressure, FileKind, FsError, Guard, Stop};

/// State protected by an inode's lock.
pub(crate) struct State {
    /// Current attributes, with all changes in memory.
    pub(crate) rec: InodeRec,
    /// True if removed: every operation returns "stale".
    pub(crate) dead: bool,
    /// True if `rec` has changes that the log does not have.
    pub(crate) unlogged: bool,
    /// Changes of the current epoch, or of an older one that a checkpoint has not frozen yet.
    pub(crate) active: Option<Box<Delta>>,
    /// Changes of ended segments that are not in the tree yet, oldest first: the one that a
    /// checkpoint merges, and one for each snapshot since.
    pub(crate) frozen: SmallVec<[Arc<Delta>; 1]>,
    /// True after a revert of the volume: this object does not represent the inode any more.
    pub(crate) superseded: bool,
}

impl State {
    /// Returns the attributes as callers see them.
    pub(crate) fn attr(&self, ino: Ino, fsid: u64, change_base: u64) -> Attr {
        let rec = &self.rec;
        let (size, used) = match rec.kind {
            FileKind::Directory => {
                let size = directory_size(rec.entries);
                (size, size)
            }
            FileKind::Regular => (rec.size, self.used()),
            _ => (rec.size, 0),
        };
        Attr {
            kind: rec.kind,
            mode: u32::from(rec.mode),
            nlink: rec.nlink,
            uid: rec.uid,
            gid: rec.gid,
            size,
            used,
            rdev: rec.rdev,
            fsid,
            ino,
            atime: rec.atime,
            mtime: rec.mtime,
            ctime: rec.ctime,
            btime: rec.btime,
            dos: rec.dos,
            change: change_base.wrapping_add(rec.change),
            guard: match rec.flags & flag::ACL {
                0 => Guard::Mode,
                _ => Guard::Acl,
            },
            tree: rec.tree,
            constituent: 0,
        }
    }

    /// Returns the bytes of storage: the tree's blocks plus those to be added, some of which
    /// replace others; so never more than the file's length.
    pub(crate) fn used(&self) -> u64 {
        let of = |f: &FileDelta| f.pages().len() as u64 + f.shares().stored();
        let pages = |d: &Delta| d.data.as_deref().map_or(0, of);
        let dirty: u64 = self.layers().map(pages).sum();
        let blocks = (self.rec.blocks + dirty).min(blocks_of(self.rec.size));
        blocks * BLOCK_SIZE as u64
    }

    /// Returns the layers over the tree, newest first.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Delta> {
        let frozen = self.frozen.iter().rev().map(|delta| &**delta);
        self.active.as_deref().into_iter().chain(frozen)
    }

    /// Makes the changes of an ended segment the newest frozen ones.
    pub(crate) fn freeze(&mut self) {
        if let Some(mut delta) = self.active.take() {
            delta.rec = Some(self.rec);
            self.frozen.push(Arc::from(delta));
        }
    }
}

/// Returns the size that a directory shows. Directories have no bytes of their own, but some
/// programs expect a size that grows with the entries.
fn directory_size(entries: u64) -> u64 {
    // Saturates: the number comes from the disk.
    (entries.saturating_mul(64))
        .max(1)
        .next_multiple_of(BLOCK_SIZE as u64)
}

/// An inode in memory.
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) state: RwLock<State>,
    /// True if used since the eviction hand last passed.
    used: AtomicBool,
}

impl Inode {
    pub(crate) fn new(ino: Ino, rec: InodeRec) -> Inode {
        Inode {
            ino,
            state: RwLock::new(State {
                rec,
                dead: false,
                unlogged: false,
                active: None,
                frozen: SmallVec::new(),
                superseded: false,
            }),
            used: AtomicBool::new(false),
        }
    }
}

/// Hasher of inode numbers, which are dense; one multiplication spreads them.
#[derive(Default)]
pub(crate) struct InoHasher(u64);

impl Hasher for InoHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32);
    }
}

/// Key of an inode among those of all volumes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    ino: Ino,
    instance: u32,
}

type InoMap<V> = HashMap<Name, V, BuildHasherDefault<InoHasher>>;

const SHARDS: usize = 64;

#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<ShardInner>);

#[derive(Default)]
struct ShardInner {
    map: InoMap<Arc<Inode>>,
    /// The CLOCK: inodes in the order of insertion; the hand is its front.
    clock: VecDeque<Name>,
}

/// The inodes in memory.
pub(crate) struct Table {
    shards: [Shard; SHARDS],
    /// Number of inodes in a shard above which it evicts.
    room: usize,
    /// Number of the next [`Inodes`].
    next: AtomicU32,
}

impl Table {
    /// Creates a table that evicts above `inodes` (those with an overlay stay anyway).
    pub(crate) fn new(inodes: usize) -> Arc<Table> {
        Arc::new(Table {
            shards: std::array::from_fn(|_| Shard::default()),
            room: (inodes / SHARDS).max(4),
            next: AtomicU32::new(0),
        })
    }

    /// Creates the part of the table for one view of a volume: a snapshot has other inodes under
    /// the same numbers. Inodes left in it when the view is gone are evicted in time.
    pub(crate) fn inodes(self: &Arc<Table>) -> Inodes {
        Inodes {
            table: Arc::clone(self),
            instance: self.next.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn shard(&self, name: Name) -> &Mutex<ShardInner> {
        let [first, ..] = &self.shards;
        // Consecutive numbers go to different shards, and so do the roots of different volumes.
        let at = name.ino.0.wrapping_add(u64::from(name.instance));
        &self.shards.get(at as usize % SHARDS).unwrap_or(first).0
    }
}

/// The inodes of one view of a volume.
pub(crate) struct Inodes {
    table: Arc<Table>,
    instance: u32,
}

impl Inodes {
    fn name(&self, ino: Ino) -> Name {
        let instance = self.instance;
        Name { ino, instance }
    }

    /// Returns an id that distinguishes the file from those of all other views.
    pub(crate) fn file_id(&self, ino: Ino) -> FileId {
        let view = self.instance;
        FileId { view, ino }
    }

    /// Returns the inode, if it is in memory.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        let name = self.name(ino);
        let shard = self.table.shard(name).lock();
        let inode = shard.map.get(&name)?;
        if !inode.used.load(Ordering::Relaxed) {
            inode.used.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(inode))
    }

    /// Inserts a loaded inode, if `current` (evaluated under the shard's lock) confirms it. Returns
    /// the inode in the table, which may be one loaded by another thread.
    pub(crate) fn insert_loaded(
        &self,
        ino: Ino,
        rec: InodeRec,
        current: impl FnOnce() -> bool,
    ) -> Option<Arc<Inode>> {
        let name = self.name(ino);
        let mut shard = self.table.shard(name).lock();
        if let Some(inode) = shard.map.get(&name) {
            return Some(Arc::clone(inode));
        }
        if !current() {
            return None;
        }
        let inode = Arc::new(Inode::new(ino, rec));
        shard.insert(name, &inode, self.table.room);
        Some(inode)
    }

    /// Inserts a new inode.
    pub(crate) fn insert_new(&self, inode: &Arc<Inode>) {
        let name = self.name(inode.ino);
        let mut shard = self.table.shard(name).lock();
        shard.insert(name, inode, self.table.room);
    }

    /// Removes all inodes of the view. A caller that still holds one learns that it is gone
    /// (`dead`), or that it has to look it up again. Nothing may be inserted meanwhile.
    pub(crate) fn retire(&self, dead: bool) {
        for shard in &self.table.shards {
            let mut gone = Vec::new();
            shard.0.lock().map.retain(|name, inode| {
                if name.instance == self.instance {
                    gone.push(Arc::clone(inode));
                }
                name.instance != self.instance
            });
            for inode in gone {
                let mut st = inode.state.write();
                st.dead |= dead;
                st.superseded |= !dead;
            }
        }
    }

    /// Returns the number of inodes in memory, of all views.
    pub(crate) fn len(&self) -> usize {
        let shards = self.table.shards.iter();
        shards.map(|s| s.0.lock().map.len()).sum()
    }
}

impl ShardInner {
    fn insert(&mut self, name: Name, inode: &Arc<Inode>, room: usize) {
        for _ in 0..TRIES {
            if self.map.len() < room {
                break;
            }
            let Some(oldest) = self.clock.pop_front() else {
                // All inodes are in use.
                break;
            };
            // Under the shard's lock no reference can be gained. So an inode whose only holder is
            // the table is not in use, and has no overlay: the list of dirty inodes would hold it.
            let keep = self
                .map
                .get(&oldest)
                .is_some_and(|i| Arc::strong_count(i) > 1 || i.used.swap(false, Ordering::Relaxed));
            if keep {
                self.clock.push_back(oldest);
            } else {
                self.map.remove(&oldest);
            }
        }
        if self.map.insert(name, Arc::clone(inode)).is_none() {
            self.clock.push_back(name);
        }
    }
}

/// Reports a record that is malformed although its checksum is right.
pub(crate) fn malformed(volume: VolumeId, ino: Ino, what: &'static str) -> Stop {
    tracing::error!(%volume, inode = %ino, what, "malformed record");
    Stop::Fail(FsError::Io)
}

/// Checks that an inode still exists.
pub(crate) fn alive(st: &State) -> Result<(), Stop> {
    if st.superseded {
        // No wait is needed: the retry finds the inode that replaced it.
        return Err(Stop::Wait(Backpressure::Epoch(0)));
    }
    if st.dead {
        return Err(Stop::Fail(FsError::Stale));
    }
    Ok(())
}

/// Checks that it is a directory that still exists.
pub(crate) fn alive_dir(st: &State) -> Result<(), Stop> {
    alive(st)?;
    if st.rec.kind != FileKind::Directory {
        return Err(Stop::Fail(FsError::NotDir));
    }
    Ok(())
}

/// Returns the record after a change at `now`: with a change time strictly later than before
/// (clients compare it to notice changes), and a new change number.
pub(crate) fn stamped(mut rec: InodeRec, now: Time, content: bool) -> InodeRec {
    let after = rec.ctime.plus(std::time::Duration::from_nanos(1));
    rec.ctime = now.max(after);
    if content {
        rec.mtime = rec.ctime;
    }
    rec.change = rec.change.wrapping_add(1);
    rec
}

/// Several inodes, locked for writing in the order of their numbers.
pub(crate) struct LockedInodes<'a> {
    held: SmallVec<[(&'a Arc<Inode>, RwLockWriteGuard<'a, State>); 4]>,
}

impl<'a> LockedInodes<'a> {
    /// Locks these inodes, each once.
    pub(crate) fn new(inodes: &[&'a Arc<Inode>]) -> LockedInodes<'a> {
        let mut order: SmallVec<[&'a Arc<Inode>; 4]> = SmallVec::from_slice(inodes);
        order.sort_unstable_by_key(|i| i.ino);
        order.dedup_by_key(|i| i.ino);
        LockedInodes {
            held: order.into_iter().map(|i| (i, i.state.write())).collect(),
        }
    }

    pub(crate) fn get(&self, ino: Ino) -> Result<&State, Stop> {
        self.held
            .iter()
            .find(|(i, _)| i.ino == ino)
            .map(|(_, s)| &**s)
            .ok_or(Stop::Fail(FsError::Invalid))
    }

    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<(&'a Arc<Inode>, &mut State)> {
        let found = self.held.iter_mut().find(|(i, _)| i.ino == ino);
        // The change is already logged, so it must be possible to apply it.
        invariant!(
            found.is_some(),
            "inode {ino} is to be changed, and is not locked"
        );
        found.map(|(i, s)| (*i, &mut **s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rec() -> InodeRec {
        InodeRec::new(FileKind::Regular, 0o644, Time::EPOCH)
    }

    #[test]
    fn unused_inodes_are_evicted_and_used_ones_stay() {
        let t = Table::new(SHARDS * 4).inodes();
        let held = t.insert_loaded(Ino(1), rec(), || true).unwrap();
        for i in 2..10_000 {
            t.insert_loaded(Ino(i), rec(), || true).unwrap();
        }
        assert!(t.len() <= SHARDS * 5, "{}", t.len());
        assert!(Arc::ptr_eq(&held, &t.get(Ino(1)).unwrap()));
    }

    #[test]
    fn an_outdated_record_is_not_inserted() {
        let t = Table::new(100).inodes();
        assert!(t.insert_loaded(Ino(1), rec(), || false).is_none());
        assert!(t.get(Ino(1)).is_none());
        let a = t.insert_loaded(Ino(1), rec(), || true).unwrap();
        let b = t.insert_loaded(Ino(1), rec(), || false).unwrap();
        assert!(Arc::ptr_eq(&a, &b), "the one in the table is right");
    }

    #[test]
    fn views_share_the_room_and_nothing_else() {
        let t = Table::new(SHARDS * 8);
        let views: Vec<Inodes> = (0..100).map(|_| t.inodes()).collect();
        let held: Vec<_> = views
            .iter()
            .map(|v| v.insert_loaded(Ino(2), rec(), || true).unwrap())
            .collect();
        for (view, inode) in views.iter().zip(&held) {
            assert!(Arc::ptr_eq(inode, &view.get(Ino(2)).unwrap()));
            for i in 3..1000 {
                view.insert_loaded(Ino(i), rec(), || true).unwrap();
            }
        }
        let len = views.iter().map(Inodes::len).max().unwrap();
        assert!(len <= SHARDS * 9 + held.len(), "{len}");
    }

    #[test]
    fn directory_sizes() {
        assert_eq!(directory_size(0), 4096);
        assert_eq!(directory_size(64), 4096);
        assert_eq!(directory_size(65), 8192);
    }

    #[test]
    fn change_times_strictly_increase() {
        let now = Time { secs: 10, nanos: 5 };
        let rec = InodeRec::new(FileKind::Regular, 0, now);
        let a = stamped(rec, now, true);
        let b = stamped(a, Time { secs: 1, nanos: 0 }, false);
        assert!(rec.ctime < a.ctime && a.ctime < b.ctime);
        assert_eq!(a.mtime, a.ctime);
        assert_eq!(b.mtime, a.mtime);
        assert_eq!(b.change, rec.change + 2);
    }
}
