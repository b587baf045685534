//! Files and directories that become symbolic links, and links that become files and directories again.
//!
//! A protocol that first makes a file and then makes a link of it (SMB: FSCTL_SET_REPARSE_POINT) expects the same inode afterwards, under
//! the number by which clients have it open. What has no content, no streams and one name can be one or the other. It keeps its owner, mode, list and
//! extended attributes.
//!
//! **One record.** The log has the inode of its new kind, its target, the entry, in which the kind is stored as well, and the directory: after-images
//! as those of a new link. There is no edit that takes a target away. An inode that is no link has none, and that follows from the
//! inode's edit where records are applied; in an overlay an empty target says it ([`crate::overlay::delta::Delta::symlink`]).
//!
//! **What a link was.** Clients of SMB distinguish links to directories from links to files, by what they were made of. A bit of the
//! DOS attributes remembers it ([`DIRECTORY_LINK`]).

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
use crate::overlay::inode::{Inode, Locked, State, alive, alive_dir, stamped};
use crate::overlay::volume::Volume;
use crate::types::{Change, Done, FileKind, FsError, Stop};

/// Blocks of a tree that a link's target may take, as it is stored in pieces.
const TARGET_BLOCKS: u64 = MAX_SYMLINK.div_ceil(weir_base::limits::MAX_VALUE) as u64;

/// What an inode is to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conversion<'a> {
    /// A symbolic link to this target, of an empty file or directory; a link gets it in place of its own.
    Link(&'a [u8]),
    /// The empty file or directory that a link was made of, a file if it was made as a link; with this mode, if there is one.
    Plain(Option<u32>),
}

impl Volume {
    /// Makes what has this name in the directory a link, or no link any more, if it is the inode `ino`. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// `NotFound` if another inode has the name, or none; `Invalid` for a target that is empty or has a NUL, for what has content, streams or several
    /// names, for a stream, and for what cannot become that; `NotEmpty` for a directory with entries; `NameTooLong` for a
    /// target above `MAX_SYMLINK` bytes; `TooManyLinks`, `NotDir`, `NoSpace`, `ReadOnly`, `Stale`, `Io`.
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
                // Another call has taken the name away: looked up again.
                continue;
            };
            let mut reservation = self.reserve(cx, NAME_BLOCKS + TARGET_BLOCKS)?;
            self.core.schedule.admit(SMALL_OP + target.len() as u64)?;

            let pass = self.enter()?;
            let mut locked = Locked::new(&[&parent, &inode]);
            let st = locked.get(dir)?;
            alive_dir(st)?;
            if st.rec.change != change && self.need(cx, dir, st, name)? != hit {
                continue;
            }
            let child = locked.get(ino)?;
            alive(child)?;
            let rec = self.converted(cx, (dir, &inode), child, to)?;
            let before = self.attr_of(ino, child);
            // What has another target is another entry to nobody.
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

    /// The record of an inode, whose lock the caller holds, when it has become that.
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
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => {}
            _ => return Err(FsError::Invalid.into()),
        }
        // All entries of an inode say its kind; a directory has one entry, and a link more.
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

/// `old` as a link to the target, or as what it was, in the directory `dir`.
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
