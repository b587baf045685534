//! CHANGE_NOTIFY (MS-SMB2 §3.3.5.19, MS-FSA §2.1.5.11): clients that watch directories.
//!
//! A watch is of an open, begins with its first CHANGE_NOTIFY, which says what is watched for ever, and ends with the open.
//! What the waist reports ([`weir_vfs::watch`]), over whatever protocol it was done, is compared with the watches of the
//! directory, and with those of whole trees on the way up to the volume's root: with one [`Feed`] each, whatever the number of its
//! watches. The request of a watch that has waited longest is answered at once; if none waits, the change is kept for the next.
//!
//! **Bounds.** Those of [`crate::feed`]. What a client has not fetched in time is dropped, and the client is asked to list the directory
//! (STATUS_NOTIFY_ENUM_DIR), as it is if the path of a change in a tree cannot be found at once.
//!
//! **What is reported when.** Names at once. Sizes, times and attributes that are set at once; what is written, with CLOSE, as
//! Windows does. Of NFS only names are reported: by what name a file handle was found nobody knows.

use crate::chain::{CommandResult, Run, Step};
use crate::feed::{Feed, Got, Waiter};
use crate::names;
use crate::negotiate::MAX_TRANSFER;
use crate::session::{Access, File, Open, Session, mask};
use crate::status::Status;
use crate::wire::{Put, Reader};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use weir_base::{Budget, Ino, VolumeId};
use weir_vfs::claims::{Event as Claimed, Style};
use weir_vfs::watch::{Event, Report, Watcher, Way};
use weir_vfs::{AccessModel, Exempt, FileId, Looks, Namespace, Stop, Suspend, Vfs};

/// Bits of CompletionFilter (§2.2.35).
pub(crate) mod filter {
    pub const FILE_NAME: u32 = 0x1;
    pub const DIR_NAME: u32 = 0x2;
    pub const ATTRIBUTES: u32 = 0x4;
    pub const SIZE: u32 = 0x8;
    pub const LAST_WRITE: u32 = 0x10;
    pub const LAST_ACCESS: u32 = 0x20;
    pub const CREATION: u32 = 0x40;
    pub const EA: u32 = 0x80;
    pub const SECURITY: u32 = 0x100;
}

/// Action (MS-FSCC §2.7.1).
mod action {
    pub const ADDED: u32 = 1;
    pub const REMOVED: u32 = 2;
    pub const MODIFIED: u32 = crate::feed::MODIFIED;
    pub const RENAMED_OLD_NAME: u32 = 4;
    pub const RENAMED_NEW_NAME: u32 = 5;
}

/// SMB2_WATCH_TREE (§2.2.35).
const TREE: u16 = 1;
/// Directories whose names are remembered.
const NAMES: usize = 4096;
/// Directories above a change that are gone through at most.
const DEPTH: usize = 1024;

#[derive(Default)]
struct Table {
    /// Feeds of a directory (false), and of the tree under it (true).
    feeds: HashMap<(FileId, bool), Arc<Feed>>,
    /// Watches of trees, by volume.
    trees: HashMap<VolumeId, usize>,
    /// The names that directories had when they were last looked for.
    names: HashMap<FileId, Box<[u8]>>,
}

/// All watches.
pub struct Watches {
    vfs: Weak<Vfs>,
    budget: Arc<Budget>,
    table: Mutex<Table>,
}

/// Whether an open watches something.
#[derive(Default)]
pub enum Watching {
    /// Not yet.
    #[default]
    Nothing,
    /// By this.
    By(Arc<Watch>),
    /// Not any more: it was closed.
    Over,
}

/// What an open watches.
pub struct Watch {
    all: Weak<Watches>,
    dir: FileId,
    tree: bool,
    feed: Arc<Feed>,
    /// Its number in the feed.
    number: u64,
}

/// A request that waits, of its chain. What it got and did not take goes back when it is dropped.
pub(crate) struct Asked {
    watch: Arc<Watch>,
    waiter: Arc<Waiter>,
}

impl Watches {
    /// None yet, of what `vfs` reports.
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

    /// A watch that reads at once what a response of `len` bytes takes; `None` if there is no memory for it.
    fn begin(
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
    fn end(&self, watch: &Watch) {
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

    fn tell(&self, table: &Table) {
        if let Some(vfs) = self.vfs.upgrade() {
            vfs.watchers.set_active(!table.feeds.is_empty());
        }
    }

    /// A directory goes, or is to go with its last close: who waits for changes of it waits no more.
    pub fn goes(&self, dir: FileId) {
        for feed in self.at(dir, true).0 {
            feed.answer_all(Status::DELETE_PENDING);
        }
    }

    /// Feeds of a directory, that of its tree alone unless it is the change's own; and whether the volume has any of trees.
    fn at(&self, dir: FileId, own: bool) -> (Vec<Arc<Feed>>, bool) {
        let table = self.table.lock();
        let kinds = [false, true].into_iter().filter(|tree| own || *tree);
        let here = kinds.filter_map(|tree| table.feeds.get(&(dir, tree)));
        (
            here.cloned().collect(),
            table.trees.contains_key(&dir.volume),
        )
    }

    /// The name of a directory in the one that it is in.
    fn name(&self, way: &mut Way<'_>, parent: Ino, dir: FileId) -> Option<Box<[u8]>> {
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
    fn deliver(&self, way: &mut Way<'_>, dir: FileId, bits: u32, changes: &[(u32, &[u8])]) {
        let mut reached: Vec<Arc<Feed>> = Vec::new();
        let (mut at, mut prefix) = (dir, String::new());
        for _ in 0..DEPTH {
            let (here, trees) = self.at(at, at == dir);
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
            prefix.insert_str(0, &names::shown(&name));
            at = FileId { ino: parent, ..at };
        }
        // Where it is, is not known: it may be in any tree.
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
    /// What is kept, or a place among those that wait.
    fn ask(self: &Arc<Self>, most: usize) -> Result<Got, Asked> {
        self.feed.ask(self.number, most).map_err(|waiter| Asked {
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

impl Drop for Asked {
    fn drop(&mut self) {
        self.watch.feed.cancel(self.watch.number, &self.waiter);
    }
}

impl Run<'_> {
    /// CHANGE_NOTIFY.
    pub(crate) fn change_notify(&mut self) -> CommandResult {
        let mut r = Reader::new(self.body());
        if r.u16()? != 32 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        let (flags, len) = (r.u16()?, r.u32()?);
        let halves = (r.u64()?, r.u64()?);
        let bits = r.u32()?;
        let asked = match std::mem::take(&mut self.c.step) {
            Step::Watches(asked) => *asked,
            _ => {
                if len > MAX_TRANSFER {
                    return Err(Status::INVALID_PARAMETER.into());
                }
                self.charged(len as usize)?;
                let (session, open) = (self.session()?, self.open(halves)?);
                let file = open.file().filter(|file| file.directory());
                let file = file.ok_or(Status::INVALID_PARAMETER)?;
                if !open.may(mask::READ_DATA) {
                    return Err(Status::ACCESS_DENIED.into());
                }
                // It costs nothing, but it is of a directory that the session may use.
                let _ = self.enter(&session, file.id, Access::Open(&open), Exempt)?;
                let what = (bits, flags & TREE != 0);
                let asked = match self.watch(file, what, len as usize)?.ask(len as usize) {
                    Ok(got) => return self.put_changes(got),
                    Err(asked) => asked,
                };
                if self.s.vfs.claims.delete_pending(file.id) {
                    return Err(Status::DELETE_PENDING.into());
                }
                asked
            }
        };
        let got = asked.waiter.got.lock().take();
        match got {
            Some(got) => self.put_changes(got),
            None => {
                let came = Arc::clone(&asked.waiter.came);
                self.c.step = Step::Watches(Box::new(asked));
                Err(Stop::Suspended(Suspend::Client(Box::pin(async move {
                    came.settled().await;
                }))))
            }
        }
    }

    /// The watch of an open directory, which begins now if it has none.
    fn watch(&self, file: &File, what: (u32, bool), len: usize) -> Result<Arc<Watch>, Status> {
        let mut watching = file.watch.lock();
        match &*watching {
            Watching::By(watch) => return Ok(Arc::clone(watch)),
            Watching::Over => return Err(Status::FILE_CLOSED),
            Watching::Nothing => {}
        }
        let begin = || self.s.watches.begin(file.id, what, len);
        let new = self.s.with_room(self.conn.peer, begin, Option::is_none);
        let new = new.ok_or(Status::INSUFFICIENT_RESOURCES)?;
        *watching = Watching::By(Arc::clone(&new));
        Ok(new)
    }

    fn put_changes(&mut self, got: Got) -> CommandResult {
        let (data, status) = match got {
            Ok(data) => (data, Status::SUCCESS),
            Err(Status::NOTIFY_ENUM_DIR) => (Vec::new(), Status::NOTIFY_ENUM_DIR),
            Err(status) => return Err(status.into()),
        };
        let out = &mut self.c.out;
        out.put_u16(9);
        out.put_u16((crate::header::HEADER + 8) as u16);
        out.put_u32(data.len() as u32);
        out.put(&data);
        Ok(status)
    }

    /// Reports that something of an open file was changed, by the name that it was opened by.
    pub(crate) fn modified(&mut self, session: &Session, open: &Open, bits: u32) {
        let Some(file) = open.file().filter(|file| file.base.is_none()) else {
            return;
        };
        let vfs = &self.s.vfs;
        let (watched, claimed) = (
            vfs.watchers.is_active(),
            !vfs.claims.heard_in(file.id.volume).none(),
        );
        if !watched && !claimed {
            return;
        }
        let named = file.named.lock().clone();
        let Some(dir) = named.dir else {
            return;
        };
        if claimed {
            // Listings that clients cache show sizes, times and attributes. The change is made: whatever this says.
            let listing = FileId {
                ino: dir,
                ..file.id
            };
            let by = Access::Open(open);
            let entries = Claimed::Entries;
            let _ = vfs.claims.names(listing, by.actor(), entries, Style::Unix);
        }
        if !watched {
            return;
        }
        let entered = self.enter(session, file.id, Access::Open(open), Looks);
        if let Ok((operand, _)) = entered {
            let what = (file.id.ino, file.directory());
            operand.report(dir, &named.name, what, Event::Modified(bits));
        }
    }
}
