//! CHANGE_NOTIFY (MS-SMB2 §3.3.5.19, MS-FSA §2.1.5.11): clients that watch directories.
//!
//! A watch belongs to an open. It begins with the first CHANGE_NOTIFY, which fixes what is watched,
//! and ends with the open. Every change that the VFS reports ([`weir_vfs::notify`]), over any
//! protocol, is compared with the watches of its directory, and with those of whole trees on the
//! way up to the volume's root. Each directory has one [`Feed`], whatever the number of its
//! watches. The request of a watch that has waited longest is answered at once. If none waits, the
//! change is kept for the next.
//!
//! **Bounds.** See [`crate::open::feed`]. Changes that a client has not fetched in time are
//! dropped, and the client is asked to list the directory (STATUS_NOTIFY_ENUM_DIR). The same
//! happens if the path of a change in a tree cannot be found at once.
//!
//! **Time of reports.** Names are reported at once, and so are sizes, times and attributes that are
//! set. Writes are reported with CLOSE, as in Windows. Of changes over NFS only names are reported:
//! a file handle does not say by which name it was found.

use crate::open::feed::{Feed, Got, Waiter};
use crate::proto::status::Status;
use crate::proto::{filter, names};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use weir_base::{Budget, Ino, VolumeId};
use weir_vfs::notify::{Event, Report, Watcher, Way};
use weir_vfs::{FileId, Namespace, Vfs};

/// Action (MS-FSCC §2.7.1).
pub(crate) mod action {
    pub const ADDED: u32 = 1;
    pub const REMOVED: u32 = 2;
    pub const MODIFIED: u32 = crate::open::feed::MODIFIED;
    pub const RENAMED_OLD_NAME: u32 = 4;
    pub const RENAMED_NEW_NAME: u32 = 5;
}

/// SMB2_WATCH_TREE (§2.2.35).
pub(crate) const TREE: u16 = 1;
/// Directories whose names are remembered.
pub(crate) const NAMES: usize = 4096;
/// Directories above a change that are gone through at most.
pub(crate) const DEPTH: usize = 1024;

#[derive(Default)]
pub(crate) struct Table {
    /// Feeds of a directory (false), and of the tree under it (true).
    pub(crate) feeds: HashMap<(FileId, bool), Arc<Feed>>,
    /// Watches of trees, by volume.
    pub(crate) trees: HashMap<VolumeId, usize>,
    /// The names that directories had when they were last looked for.
    pub(crate) names: HashMap<FileId, Box<[u8]>>,
}

/// All watches.
pub struct Watches {
    pub(crate) vfs: Weak<Vfs>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) table: Mutex<Table>,
}

/// State of an open's watch.
#[derive(Default)]
pub enum OpenWatch {
    /// No CHANGE_NOTIFY was sent yet.
    #[default]
    Nothing,
    /// The watch of the open.
    By(Arc<Watch>),
    /// The open was closed.
    Over,
}

/// An open's watch for changes of a directory.
pub struct Watch {
    pub(crate) all: Weak<Watches>,
    pub(crate) dir: FileId,
    pub(crate) tree: bool,
    pub(crate) feed: Arc<Feed>,
    /// Its number in the feed.
    pub(crate) number: u64,
}

/// A request that waits for changes. Changes that it got and did not take go back when it is
/// dropped.
pub(crate) struct NotifyWait {
    pub(crate) watch: Arc<Watch>,
    pub(crate) waiter: Arc<Waiter>,
}

impl Watches {
    /// Starts watching the changes that `vfs` reports.
    pub fn new(vfs: &Arc<Vfs>) -> Arc<Watches> {
        let watches = Arc::new(Watches {
            vfs: Arc::downgrade(vfs),
            budget: Arc::clone(vfs.claims.budget()),
            table: Mutex::default(),
        });
        let watcher: Weak<Watches> = Arc::downgrade(&watches);
        vfs.watchers.attach(watcher);
        watches
    }

    /// A watch that reads at once what a response of `len` bytes takes; `None` if there is no
    /// memory for it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        dir: FileId,
        (filter, tree): (u32, bool),
        len: usize,
    ) -> Option<Arc<Watch>> {
        let mut table = self.table.lock();
        let feed = match table.feeds.get(&(dir, tree)) {
            Some(feed) => Arc::clone(feed),
            None => Arc::new(Feed::new(&self.budget)?),
        };
        let number = feed.add(&self.budget, filter, len)?;
        table.feeds.insert((dir, tree), Arc::clone(&feed));
        if tree {
            *table.trees.entry(dir.volume).or_default() += 1;
        }
        self.tell(&table);
        Some(Arc::new(Watch {
            all: Arc::downgrade(self),
            dir,
            tree,
            feed,
            number,
        }))
    }

    /// Ends a watch, once.
    pub(crate) fn end(&self, watch: &Watch) {
        let mut table = self.table.lock();
        if watch.feed.remove(watch.number, Status::NOTIFY_CLEANUP) {
            table.feeds.remove(&(watch.dir, watch.tree));
        }
        if watch.tree
            && let Some(trees) = table.trees.get_mut(&watch.dir.volume)
        {
            *trees -= 1;
            if *trees == 0 {
                table.trees.remove(&watch.dir.volume);
            }
        }
        if table.feeds.is_empty() {
            table.names = HashMap::new();
        }
        self.tell(&table);
    }

    pub(crate) fn tell(&self, table: &Table) {
        if let Some(vfs) = self.vfs.upgrade() {
            vfs.watchers.set_active(!table.feeds.is_empty());
        }
    }

    /// A directory goes, or is to go with its last close: who waits for changes of it waits no
    /// more.
    pub fn goes(&self, dir: FileId) {
        for feed in self.find_feeds(dir, true).0 {
            feed.answer_all(Status::DELETE_PENDING);
        }
    }

    /// Feeds of a directory, that of its tree alone unless it is the change's own; and whether the
    /// volume has any of trees.
    pub(crate) fn find_feeds(&self, dir: FileId, own: bool) -> (Vec<Arc<Feed>>, bool) {
        let table = self.table.lock();
        let kinds = [false, true].into_iter().filter(|tree| own || *tree);
        let here = kinds.filter_map(|tree| table.feeds.get(&(dir, tree)));
        (
            here.cloned().collect(),
            table.trees.contains_key(&dir.volume),
        )
    }

    /// The name of a directory in the one that it is in.
    pub(crate) fn name(&self, way: &mut Way<'_>, parent: Ino, dir: FileId) -> Option<Box<[u8]>> {
        let known = self.table.lock().names.get(&dir).cloned();
        let name = way.name(parent, dir.ino, known.as_deref())?;
        if known.as_deref() != Some(&*name) {
            let mut table = self.table.lock();
            if table.names.len() >= NAMES {
                table.names.clear();
            }
            table.names.insert(dir, name.clone());
        }
        Some(name)
    }

    /// Gives changes of entries of `dir` to the watches.
    pub(crate) fn deliver(
        &self,
        way: &mut Way<'_>,
        dir: FileId,
        bits: u32,
        changes: &[(u32, &[u8])],
    ) {
        let mut reached: Vec<Arc<Feed>> = Vec::new();
        let (mut at, mut prefix) = (dir, String::new());
        for _ in 0..DEPTH {
            let (here, trees) = self.find_feeds(at, at == dir);
            let free = self.budget.used() < self.budget.total() / 2;
            for feed in &here {
                feed.push(free, bits, &prefix, changes);
            }
            reached.extend(here);
            if !trees {
                return;
            }
            let parent = match way.parent(at.ino) {
                Ok(Some(parent)) => parent,
                // The root: all were reached.
                Ok(None) => return,
                Err(_) => break,
            };
            let Some(name) = self.name(way, parent, at) else {
                break;
            };
            prefix.insert(0, '\\');
            prefix.insert_str(0, &names::to_client_name(&name));
            at = FileId { ino: parent, ..at };
        }
        // The path of the change is not known, so it may be in any tree.
        let table = self.table.lock();
        let trees = table.feeds.iter();
        let trees = trees.filter(|((at, tree), _)| *tree && at.volume == dir.volume);
        let all: Vec<_> = trees.map(|(_, feed)| Arc::clone(feed)).collect();
        drop(table);
        for feed in all {
            if !reached.iter().any(|r| Arc::ptr_eq(r, &feed)) {
                feed.lose(bits);
            }
        }
    }
}

impl Watcher for Watches {
    fn changed(&self, report: &Report<'_>, way: &mut Way<'_>) {
        let live = |ino| FileId {
            volume: report.volume,
            ino,
            namespace: Namespace::Live,
        };
        let (dir, name) = (live(report.dir), report.name);
        let bits = match report.directory {
            true => filter::DIR_NAME,
            false => filter::FILE_NAME,
        };
        match report.event {
            Event::Added => self.deliver(way, dir, bits, &[(action::ADDED, name)]),
            Event::Removed => {
                self.deliver(way, dir, bits, &[(action::REMOVED, name)]);
                if report.directory {
                    self.goes(live(report.ino));
                }
            }
            Event::Renamed(to, new) if to == report.dir => {
                let both = [
                    (action::RENAMED_OLD_NAME, name),
                    (action::RENAMED_NEW_NAME, new),
                ];
                self.deliver(way, dir, bits, &both);
            }
            Event::Renamed(to, new) => {
                self.deliver(way, dir, bits, &[(action::REMOVED, name)]);
                self.deliver(way, live(to), bits, &[(action::ADDED, new)]);
            }
            Event::Modified(bits) => self.deliver(way, dir, bits, &[(action::MODIFIED, name)]),
        }
    }
}

impl Watch {
    /// Returns the changes that are kept, up to `most`, or queues the request as a waiter.
    pub(crate) fn request_changes(self: &Arc<Self>, most: usize) -> Result<Got, NotifyWait> {
        self.feed
            .request_changes(self.number, most)
            .map_err(|waiter| NotifyWait {
                watch: Arc::clone(self),
                waiter,
            })
    }

    /// Its open is closed.
    pub fn end(&self) {
        if let Some(all) = self.all.upgrade() {
            all.end(self);
        }
    }
}

impl Drop for NotifyWait {
    fn drop(&mut self) {
        self.watch.feed.cancel(self.watch.number, &self.waiter);
    }
}
