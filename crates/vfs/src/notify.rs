//! Reports of changed names, for services whose clients watch directories.
//!
//! Every operation that makes, removes or renames a name, over any protocol, reports it when it is
//! done. A service reports other changes of a file itself, since only it knows under what name the
//! file was opened ([`Operand::report`]). A report is given to one [`Watcher`], and to none, at the
//! price of a relaxed load, while that watches nothing.
//!
//! A report says the directory by its number. A watcher of a whole tree needs its path ([`Way`]).
//! Directories know the directory that they are in, so a way up is found without a search. The name
//! of each step is looked for among the entries of the one above, up to a bound.

use crate::handle::Namespace;
use crate::pipeline::Operand;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use weir_base::{Ino, Time, VolumeId};
use weir_volume::{self as volume, Attr, DirEntry, EngineContext, FileKind, ReadDirLimit, Volume};

/// Entries of a directory among which the name of one of them is looked for.
const SEARCHED: usize = 16_384;
/// Entries that are asked for at a time.
const PORTION: usize = 1024;

/// Event of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Something got it.
    Added,
    /// The name is gone.
    Removed,
    /// The object of that number got another name, in this directory.
    Renamed(Ino, &'a [u8]),
    /// The object was changed: bits that the reporting service defines say which part of it.
    Modified(u32),
}

/// A change of a name.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The volume.
    pub volume: VolumeId,
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: &'a [u8],
    /// The object that has it, or had it.
    pub ino: Ino,
    /// True if that is a directory.
    pub directory: bool,
    /// The event.
    pub event: Event<'a>,
}

/// Receiver of the reports.
pub trait Watcher: Send + Sync {
    /// Takes a report, on the thread of the operation, which is done: it must not block.
    fn changed(&self, report: &Report<'_>, way: &mut Way<'_>);
}

/// Watchers of changes of names.
#[derive(Default)]
pub struct Watchers {
    /// Something is watched.
    active: AtomicBool,
    watcher: OnceLock<Weak<dyn Watcher>>,
}

impl Watchers {
    /// Gives all reports to `watcher`, once it is active. There is one.
    pub fn attach(&self, watcher: Weak<dyn Watcher>) {
        let first = self.watcher.set(watcher).is_ok();
        weir_base::invariant!(first, "two services watch one waist");
    }

    /// Says whether something is watched; called by the watcher, one call after the other.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Relaxed);
    }

    /// Returns true if something is watched.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    fn watcher(&self) -> Option<Arc<dyn Watcher>> {
        self.watcher.get().and_then(Weak::upgrade)
    }
}

/// The way from a directory up to the root of its volume, as far as it is in memory.
pub struct Way<'a> {
    volume: &'a Volume,
    cx: EngineContext,
}

impl Way<'_> {
    /// Returns the directory that a directory is in; `None` if it is the volume's root.
    ///
    /// # Errors
    /// It is gone, or what says it is not in memory.
    pub fn parent(&mut self, dir: Ino) -> Result<Option<Ino>, volume::Stop> {
        if dir == self.volume.root() {
            return Ok(None);
        }
        let found = self.volume.lookup(&mut self.cx, dir, b"..")?;
        Ok(Some(found.ino))
    }

    /// Returns the name of a directory in the one that it is in, which is `hint` if that is still
    /// true; `None` if it cannot be found now.
    pub fn name(&mut self, parent: Ino, dir: Ino, hint: Option<&[u8]>) -> Option<Box<[u8]>> {
        if let Some(hint) = hint
            && let Ok(found) = self.volume.lookup(&mut self.cx, parent, hint)
            && found.ino == dir
        {
            return Some(hint.into());
        }
        let limit = ReadDirLimit {
            entries: PORTION,
            bytes: usize::MAX,
            attrs: false,
        };
        let (mut cookie, mut found) = (0, None);
        for _ in 0..SEARCHED / PORTION {
            let from = cookie;
            let each = &mut |entry: &DirEntry<'_>| {
                cookie = entry.cookie;
                if entry.ino == dir && !matches!(entry.name, b"." | b"..") {
                    found = Some(entry.name.into());
                }
                found.is_none()
            };
            let listed = self.volume.readdir(&mut self.cx, parent, from, limit, each);
            if found.is_some() || listed.map_or(true, |out| out.eof) {
                break;
            }
        }
        found
    }
}

impl<A> Operand<'_, A> {
    /// Returns true if anything is watched: one relaxed load.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watchers.is_active()
    }

    /// Reports a change of `name` in the directory `dir` of this file's volume, whatever file this
    /// is.
    pub fn report(&self, dir: Ino, name: &[u8], (ino, directory): (Ino, bool), event: Event<'_>) {
        if !self.is_watched() || self.file().namespace != Namespace::Live {
            return;
        }
        if let Some(watcher) = self.watchers.watcher() {
            let volume = &self.export.volume;
            let report = Report {
                volume: volume.id(),
                dir,
                name,
                ino,
                directory,
                event,
            };
            // A context of its own: it fetches nothing, and its findings are not the operation's.
            let mut way = Way {
                volume,
                cx: EngineContext::new(Time::default()),
            };
            watcher.changed(&report, &mut way);
        }
    }

    /// Reports a change like [`Operand::report`], for the object of `attr`.
    #[inline]
    pub(crate) fn report_of(&self, dir: Ino, name: &[u8], attr: &Attr, event: Event<'_>) {
        if self.is_watched() {
            self.report(
                dir,
                name,
                (attr.ino, attr.kind == FileKind::Directory),
                event,
            );
        }
    }

    /// Reports a rename that was done, and what it has replaced.
    pub(crate) fn report_rename(
        &self,
        (from_dir, from): (Ino, &[u8]),
        (to_dir, to): (Ino, &[u8]),
        (moved, replaced): (Ino, Option<Ino>),
    ) {
        if !self.is_watched() || (from_dir, from) == (to_dir, to) {
            return;
        }
        let mut cx = EngineContext::new(Time::default());
        let attr = self.export.volume.getattr(&mut cx, moved);
        let directory = attr.is_ok_and(|attr| attr.kind == FileKind::Directory);
        if let Some(replaced) = replaced {
            self.report(to_dir, to, (replaced, directory), Event::Removed);
        }
        let event = Event::Renamed(to_dir, to);
        self.report(from_dir, from, (moved, directory), event);
    }
}
