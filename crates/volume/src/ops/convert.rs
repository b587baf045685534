//! Converts files and directories to symbolic links, and links back to files and directories.
//!
//! A protocol that first makes a file and then converts it to a link (SMB: FSCTL_SET_REPARSE_POINT)
//! expects the same inode afterwards, under the number by which clients have it open. An inode
//! without content and streams and with one name can be converted. It keeps its owner, mode, list
//! and extended attributes.
//!
//! **One record.** The log has the inode of its new kind, its target, the entry, which stores the
//! kind as well, and the directory. They are after-images like those of a new link. There is no
//! edit that removes a target. An inode that is not a link has none, which follows from the inode's
//! edit when records are applied. In an overlay an empty target says so
//! ([`crate::overlay::delta::Delta::symlink`]).
//!
//! **The former kind.** Clients of SMB distinguish links to directories from links to files, by the
//! kind that they were made from. A bit of the DOS attributes remembers it ([`DIRECTORY_LINK`]).

use std::sync::Arc;

use weir_base::limits::{MAX_LINKS, MAX_SYMLINK};
use weir_base::{Ino, Time};

use crate::format::edit::Edits;
use crate::format::record::{DIRECTORY_LINK, DirentRef, InodeRec, flag};
use crate::ops::admission::SMALL_OP;
use crate::ops::directory::check_name;
use crate::ops::unlink::NAME_BLOCKS;
use crate::overlay::context::EngineContext;
use crate::overlay::delta::ENTRY_BYTES;
use crate::overlay::inode::{Inode, LockedInodes, State, alive, alive_dir, stamped};
use crate::overlay::volume::Volume;
use crate::types::{Change, Done, FileKind, FsError, Stop};

/// Maximum number of tree blocks for a link's target, as it is stored in pieces.
const TARGET_BLOCKS: u64 = MAX_SYMLINK.div_ceil(weir_base::limits::MAX_VALUE) as u64;

/// The new kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conversion<'a> {
    /// A symbolic link with this target, made from an empty file or directory; an existing link
    /// gets the target in place of its own.
    Link(&'a [u8]),
    /// The empty file or directory that a link was made from, a file if it was created as a link;
    /// with this mode, if there is one.
    Plain(Option<u32>),
}

impl Volume {
    /// Converts the inode `ino`, if it has this name in the directory, to a link, or back. Durable
    /// once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// `NotFound` if another inode has the name, or none; `Invalid` for a target that is empty or
    /// has a NUL, for an inode with content, streams or several names, for a stream, and for one
    /// that cannot be converted; `NotEmpty` for a directory with entries; `NameTooLong` for a
    /// target above `MAX_SYMLINK` bytes; `TooManyLinks`, `NotDir`, `NoSpace`, `ReadOnly`, `Stale`,
    /// `Io`.
    pub fn convert(
        &self,
        cx: &mut EngineContext,
        (dir, name): (Ino, &[u8]),
        ino: Ino,
        to: Conversion<'_>,
    ) -> Result<Done<Change>, Stop> {
        self.writable()?;
        check_name(name)?;
        let target = match to {
            Conversion::Link(target) if target.len() > MAX_SYMLINK => {
                return Err(FsError::NameTooLong.into());
            }
            Conversion::Link(target) if target.is_empty() || target.contains(&0) => {
                return Err(FsError::Invalid.into());
            }
            Conversion::Link(target) => target,
            Conversion::Plain(_) => &[],
        };
        let parent = self.inode(cx, dir)?;
        loop {
            let (hit, change) = {
                let st = parent.state.read();
                alive_dir(&st)?;
                (self.need(cx, dir, &st, name)?, st.rec.change)
            };
            if hit.ino != ino || ino == dir {
                return Err(FsError::NotFound.into());
            }
            let Some(inode) = self.child(cx, &parent, name, hit)? else {
                // Another call has removed the name: look it up again.
                continue;
            };
            let mut reservation = self.reserve(cx, NAME_BLOCKS + TARGET_BLOCKS)?;
            self.core.schedule.admit(SMALL_OP + target.len() as u64)?;

            let pass = self.enter()?;
            let mut locked = LockedInodes::new(&[&parent, &inode]);
            let st = locked.get(dir)?;
            alive_dir(st)?;
            if st.rec.change != change && self.need(cx, dir, st, name)? != hit {
                continue;
            }
            let child = locked.get(ino)?;
            alive(child)?;
            let rec = self.converted(cx, (dir, &inode), child, to)?;
            let before = self.attr_of(ino, child);
            // A new target alone does not change the entry.
            let other_kind = rec.kind != child.rec.kind;
            let mut dir_rec = stamped(st.rec, cx.now, true);
            match (child.rec.kind, rec.kind) {
                (FileKind::Directory, _) => {
                    let guard = self.core.agg.guard();
                    dir_rec.nlink = guard.less(dir_rec.nlink, 1, "links of a directory");
                }
                (_, FileKind::Directory) if dir_rec.nlink >= MAX_LINKS => {
                    return Err(FsError::TooManyLinks.into());
                }
                (_, FileKind::Directory) => dir_rec.nlink += 1,
                _ => {}
            }
            let entry = DirentRef {
                ino,
                kind: rec.kind,
                name,
            };
            let room = 2 * InodeRec::LEN + 96 + name.len() + target.len();
            let mut edits = Edits::new(self.id, room);
            edits.inode(ino, &rec);
            if !target.is_empty() {
                edits.symlink(ino, target);
            }
            if other_kind {
                edits.put_entry(dir, hit.cookie, entry);
                edits.inode(dir, &dir_rec);
            }
            let lsn = self.core.log.append_call(cx, self.id, edits, ino)?;

            let mut after = before;
            if let Some((inode, st)) = locked.get_mut(ino) {
                let delta = self.touch(&pass, inode, st, &mut reservation);
                delta.symlink = Some(target.into());
                let charge = reservation.take(TARGET_BLOCKS);
                self.charge(delta, charge, target.len() as u64);
                st.rec = rec;
                st.unlogged = false;
                after = self.attr_of(ino, st);
            }
            if other_kind && let Some((inode, st)) = locked.get_mut(dir) {
                let delta = self.touch(&pass, inode, st, &mut reservation);
                delta.put_name(hit.cookie, entry.to_owned(), false);
                let charge = reservation.take(1);
                self.charge(delta, charge, ENTRY_BYTES + name.len() as u64);
                st.rec = dir_rec;
            }
            return Ok(Done {
                value: Change { before, after },
                lsn: Some(lsn),
            });
        }
    }

    /// Returns the converted record of an inode, whose lock the caller holds.
    fn converted(
        &self,
        cx: &mut EngineContext,
        (dir, inode): (Ino, &Arc<Inode>),
        st: &State,
        to: Conversion<'_>,
    ) -> Result<InodeRec, Stop> {
        let old = &st.rec;
        let is_link = old.kind == FileKind::Symlink;
        let target = match to {
            Conversion::Link(target) => Some(target),
            Conversion::Plain(_) => None,
        };
        match old.kind {
            FileKind::Regular | FileKind::Directory if target.is_none() => {
                return Err(FsError::Invalid.into());
            }
            FileKind::Regular if old.size > 0 || old.flags & flag::STREAM != 0 => {
                return Err(FsError::Invalid.into());
            }
            FileKind::Directory if old.entries > 0 => return Err(FsError::NotEmpty.into()),
            // The folder of a tree stays one.
            FileKind::Directory if dir == self.root() && old.tree != 0 => {
                return Err(FsError::NotSupported.into());
            }
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => {}
            _ => return Err(FsError::Invalid.into()),
        }
        // All entries of an inode store its kind; a directory has one entry, and a link may have
        // more.
        let other_kind = !is_link || target.is_none();
        let names = match old.kind {
            FileKind::Directory => 1,
            _ => old.nlink,
        };
        if other_kind && (names != 1 || self.has_streams(cx, inode.ino, st)?) {
            return Err(FsError::Invalid.into());
        }
        let was_directory = match is_link {
            true => old.dos & DIRECTORY_LINK != 0,
            false => old.kind == FileKind::Directory,
        };
        Ok(reshaped(*old, cx.now, (target, was_directory, dir), to))
    }
}

/// Returns `old` as a link to the target, or as its former kind, in the directory `dir`.
fn reshaped(
    old: InodeRec,
    now: Time,
    (target, directory, dir): (Option<&[u8]>, bool, Ino),
    to: Conversion<'_>,
) -> InodeRec {
    let mut rec = stamped(old, now, true);
    rec.verifier = None;
    rec.dos &= !DIRECTORY_LINK;
    rec.parent = Ino(0);
    match target {
        Some(target) => {
            // A link that gets another target may have several names.
            let was_link = old.kind == FileKind::Symlink;
            rec.nlink = if was_link { old.nlink } else { 1 };
            rec.kind = FileKind::Symlink;
            rec.size = target.len() as u64;
            rec.dos |= if directory { DIRECTORY_LINK } else { 0 };
        }
        None => {
            rec.size = 0;
            rec.kind = match directory {
                true => FileKind::Directory,
                false => FileKind::Regular,
            };
            if directory {
                (rec.nlink, rec.parent) = (2, dir);
            }
        }
    }
    if let Conversion::Plain(Some(mode)) = to {
        rec.mode = (mode & 0o7777) as u16;
    }
    rec
}
