//! Trees (qtrees): folders of the root directory that are counted and limited by themselves.
//!
//! Each inode has the number of its tree, which it gets from its directory when it is made. The
//! number of a tree is that of its folder's inode, cut to 32 bits: no other record leads from one
//! to the other. Volumes' trees have the usage of each tree, and a folder counts for its own. So
//! the numbers of these records and the inodes in memory are all that can be trees' folders.

use std::collections::BTreeSet;

use weir_base::limits::engine::{MAX_DEPTH, READDIR_ENTRIES};
use weir_base::{Ino, Lsn, Time};

use crate::format::usage;
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::volume::Volume;
use crate::types::{Attr, FileKind, FsError, QuotaId, ReadDirLimit, StatFs, Stop, Tree};

/// An entry of a directory that is being removed.
type Entry = (FileKind, Ino, Box<[u8]>);

/// Entries of one reading of a directory.
const PORTION: ReadDirLimit = ReadDirLimit {
    entries: READDIR_ENTRIES,
    bytes: 64 << 10,
    attrs: false,
};

/// Returns the number of the tree whose folder is this inode.
fn number_of(ino: Ino) -> u32 {
    ino.0 as u32
}

impl Volume {
    /// Returns the inode of a new tree's folder, and the tree's number, which no other tree has.
    pub(crate) fn take_tree(&self, cx: &mut EngineContext) -> Result<(Ino, u32), Stop> {
        loop {
            let ino = Ino(self.counters.take_ino());
            let number = number_of(ino);
            // Only numbers beyond 32 bits can be cut to one that is in use.
            let key = usage::key(QuotaId::tree(number));
            let unique = ino.0 <= u64::from(u32::MAX) || self.tree_get(cx, &key)?.is_none();
            if number != 0 && unique {
                return Ok((ino, number));
            }
        }
    }

    /// Returns the numbers of the trees of the last checkpoint.
    fn stored_trees(&self, cx: &mut EngineContext) -> Result<BTreeSet<u32>, Stop> {
        let root = self.root.load();
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        let found = usage::trees(&src, &root.root).map_err(|stop| self.stop(cx, &root, stop))?;
        Ok(found.into_iter().collect())
    }

    /// Returns all trees, by name. Blocks while it reads.
    ///
    /// # Errors
    /// `Stale` if the volume was deleted, `Io`.
    pub fn trees(&self, now: Time) -> Result<Vec<Tree>, FsError> {
        if !self.core.has_trees() {
            return Ok(Vec::new());
        }
        let mut cx = EngineContext::new(now);
        let stored = self.drive_blocking(&mut cx, |cx| self.stored_trees(cx))?;
        let (mut trees, mut after, mut eof) = (Vec::new(), 0, false);
        while !eof {
            let mut found: Vec<(Ino, Box<[u8]>)> = Vec::new();
            let mut last = after;
            let out = self.drive_blocking(&mut EngineContext::new(now), |cx| {
                (found, last) = (Vec::new(), after);
                self.readdir(cx, self.root(), after, PORTION, &mut |entry| {
                    last = entry.cookie;
                    let dots = matches!(entry.name, b"." | b"..");
                    let maybe = stored.contains(&number_of(entry.ino))
                        || self.table.get(entry.ino).is_some();
                    if entry.kind == FileKind::Directory && maybe && !dots {
                        found.push((entry.ino, entry.name.into()));
                    }
                    true
                })
            })?;
            for (ino, name) in found {
                trees.extend(self.tree_of(now, ino, name)?);
            }
            (after, eof) = (last, out.eof);
        }
        trees.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(trees)
    }

    /// Returns the tree whose folder is this directory of the root directory, if it is one.
    fn tree_of(&self, now: Time, ino: Ino, name: Box<[u8]>) -> Result<Option<Tree>, FsError> {
        let mut cx = EngineContext::new(now);
        match self.drive_blocking(&mut cx, |cx| self.getattr(cx, ino)) {
            Ok(attr) if attr.tree != 0 => Ok(Some(Tree {
                number: attr.tree,
                ino,
                name,
                attr,
            })),
            // It was removed meanwhile.
            Ok(_) | Err(FsError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the tree whose folder has this name in the root directory. Blocks while it reads.
    ///
    /// # Errors
    /// `NotFound` also if the name is no tree's; `NameTooLong`, `Invalid`, `Stale`, `Io`.
    pub fn tree_named(&self, now: Time, name: &[u8]) -> Result<Tree, FsError> {
        let mut cx = EngineContext::new(now);
        let found = self.drive_blocking(&mut cx, |cx| self.lookup(cx, self.root(), name))?;
        let is_folder = found.attr.kind == FileKind::Directory && found.ino != self.root();
        match is_folder && found.attr.tree != 0 {
            true => Ok(Tree {
                number: found.attr.tree,
                ino: found.ino,
                name: name.into(),
                attr: found.attr,
            }),
            false => Err(FsError::NotFound),
        }
    }

    /// Removes a directory of the root directory with all that is below it. Blocks until it is
    /// gone, and does without what others remove meanwhile. The removal is durable once the log
    /// has reached the result. `before` is called with a directory and some of its entries, before
    /// these are removed; `stopped` between two removals.
    ///
    /// # Errors
    /// `NotFound`, `NotDir`, `ReadOnly`, `Io`; `Delay` if it was stopped; `Invalid` if the
    /// directories are nested too deeply.
    pub fn remove_all(
        &self,
        now: Time,
        name: &[u8],
        before: &dyn Fn(Ino, &[Ino]),
        stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Lsn>, FsError> {
        let run = |op: &mut dyn FnMut(&mut EngineContext) -> Result<Option<Lsn>, Stop>| {
            let mut cx = EngineContext::new(now);
            self.drive_blocking(&mut cx, op)
        };
        let mut cx = EngineContext::new(now);
        let top = self.drive_blocking(&mut cx, |cx| self.lookup(cx, self.root(), name))?;
        if top.attr.kind != FileKind::Directory {
            return Err(FsError::NotDir);
        }
        let mut path: Vec<(Ino, Box<[u8]>, Ino)> = vec![(self.root(), name.into(), top.ino)];
        let mut lsn = None;
        while let Some((parent, name, dir)) = path.last().cloned() {
            if stopped() {
                return Err(FsError::Delay);
            }
            let entries = self.some_entries(now, dir)?;
            let files: Vec<Ino> = entries.iter().map(|(_, ino, _)| *ino).collect();
            before(dir, &files);
            if entries.is_empty() {
                before(parent, &[dir]);
                let gone = run(&mut |cx| Ok(self.rmdir(cx, parent, &name)?.lsn));
                match gone {
                    // Others have made something in it.
                    Err(FsError::NotEmpty) => continue,
                    Ok(_) | Err(FsError::NotFound | FsError::Stale) => {}
                    Err(error) => return Err(error),
                }
                lsn = gone.ok().flatten().or(lsn);
                path.pop();
                continue;
            }
            for (kind, ino, name) in entries {
                if kind == FileKind::Directory {
                    path.push((dir, name, ino));
                    break;
                }
                match run(&mut |cx| Ok(self.remove(cx, dir, &name)?.lsn)) {
                    Ok(_) | Err(FsError::NotFound | FsError::Stale | FsError::IsDir) => {}
                    Err(error) => return Err(error),
                }
            }
            if path.len() > MAX_DEPTH {
                return Err(FsError::Invalid);
            }
        }
        Ok(lsn)
    }

    /// Returns entries of a directory: the first of them; none if it is empty, or gone.
    fn some_entries(&self, now: Time, dir: Ino) -> Result<Vec<Entry>, FsError> {
        let mut found = Vec::new();
        let mut cx = EngineContext::new(now);
        let read = self.drive_blocking(&mut cx, |cx| {
            found.clear();
            self.readdir(cx, dir, 0, PORTION, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    found.push((entry.kind, entry.ino, entry.name.into()));
                }
                true
            })
        });
        match read {
            Ok(_) => Ok(found),
            Err(FsError::Stale) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Returns the space and inodes that clients get for an inode: those of its tree, if that is
    /// limited, and never more than the volume has.
    pub fn statfs_at(&self, attr: &Attr) -> StatFs {
        let whole = self.statfs();
        let Some(entry) = (match attr.tree {
            0 => None,
            number => self.quota_of(QuotaId::tree(number)),
        }) else {
            return whole;
        };
        let limit = &entry.limit;
        let left = entry.left().unwrap_or(u64::MAX);
        let used_files = u64::try_from(entry.usage.files).unwrap_or(0);
        let most = |limit: u64, whole: u64| if limit == 0 { whole } else { limit.min(whole) };
        // Saturates: a limit may be below the usage.
        let files_left = match limit.files {
            0 => u64::MAX,
            files => files.saturating_sub(used_files),
        };
        StatFs {
            total: most(limit.bytes, whole.total),
            free: left.min(whole.free),
            available: left.min(whole.available),
            files: most(limit.files, whole.files),
            files_free: files_left.min(whole.files_free),
        }
    }
}
