//! Renames.
//!
//! Up to four inodes change: both directories, the renamed inode, and the inode that had the target
//! name. They are found with the directories locked for reading only, then locked for writing in
//! the order of their numbers, and looked up again. If the names lead elsewhere by then, everything
//! starts over.
//!
//! A directory that moves to another parent could become its own ancestor. The check walks from the
//! target to the root, and the path must not change until the rename is done. Only another such
//! rename could change it, so these exclude one another by a lock of the volume, as in Linux.
//!
//! **Trees.** An inode belongs to the tree of its directory for its whole life, so nothing is
//! renamed out of one. The folder of a tree can be renamed within the root directory.

use weir_base::Ino;
use weir_base::limits::MAX_LINKS;
use weir_base::limits::engine::MAX_DEPTH;

use crate::format::edit::Edits;
use crate::format::record::{DirentRef, InodeRec};
use crate::ops::admission::SMALL_OP;
use crate::ops::directory::{Free, Search, check_name, is_dots};
use crate::ops::stream::Doomed;
use crate::ops::unlink::{NAME_BLOCKS, log_unlinked, removable, unlinked};
use crate::overlay::context::EngineContext;
use crate::overlay::delta::ENTRY_BYTES;
use crate::overlay::inode::{Locked, State, alive, alive_dir, stamped};
use crate::overlay::volume::Volume;
use crate::types::{Change, Done, FileKind, FsError, Renamed, Stop};

impl Volume {
    /// Renames `from` in `from_dir` to `to` in `to_dir`, replacing an existing target (RFC 1813
    /// section 3.3.14). Does nothing if both are names of the same inode. Durable once the log has
    /// reached `Done::lsn`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`/`IsDir`/`NotDir` (target of the other kind), `NotEmpty`, `Invalid`
    /// (into itself, or "." and ".."), `CrossDevice` (out of its tree), `TooManyLinks`,
    /// `NameTooLong`, `NoSpace`, `ReadOnly`, `Stale`, `Io`.
    pub fn rename(
        &self,
        cx: &mut EngineContext,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
    ) -> Result<Done<Renamed>, Stop> {
        let live = self.writable()?;
        if is_dots(from) || is_dots(to) {
            return Err(FsError::Invalid.into());
        }
        check_name(from)?;
        check_name(to)?;
        let source_dir = self.inode(cx, from_dir)?;
        let target_dir = self.inode(cx, to_dir)?;
        loop {
            let (hit, from_change) = {
                let st = source_dir.state.read();
                alive_dir(&st)?;
                (self.need(cx, from_dir, &st, from)?, st.rec.change)
            };
            let (found, to_change) = {
                let st = target_dir.state.read();
                alive_dir(&st)?;
                (self.find(cx, to_dir, &st, to)?, st.rec.change)
            };
            let over = match found {
                Search::Hit(hit) => Some(hit),
                Search::Miss(_) => None,
            };
            let Some(moved) = self.child(cx, &source_dir, from, hit)? else {
                // Another call has removed name and inode: look them up again.
                continue;
            };
            let replaced = match over {
                None => None,
                Some(over) => match self.child(cx, &target_dir, to, over)? {
                    None => continue,
                    some => some,
                },
            };
            let moves_dir = hit.kind == FileKind::Directory && from_dir != to_dir;
            let _exclusive = moves_dir.then(|| live.renames.lock());
            if moves_dir {
                self.check_not_below(cx, hit.ino, to_dir)?;
            }
            let doomed = match &replaced {
                None => Doomed::default(),
                Some(replaced) => self.doomed(cx, replaced)?,
            };
            let mut reservation = self.reserve(cx, NAME_BLOCKS + 2 * doomed.len() as u64)?;
            self.core
                .schedule
                .admit(SMALL_OP * (1 + doomed.len() as u64))?;

            let pass = self.enter()?;
            let mut inodes = vec![&source_dir, &target_dir, &moved];
            inodes.extend(replaced.as_ref());
            inodes.extend(doomed.inodes());
            let mut locked = Locked::new(&inodes);
            let source = locked.get(from_dir)?;
            let target = locked.get(to_dir)?;
            alive_dir(source)?;
            alive_dir(target)?;
            if source.rec.change != from_change && self.need(cx, from_dir, source, from)? != hit {
                continue;
            }
            let found = match found.still(to_change, target) {
                Some(found) => found,
                None => self.find(cx, to_dir, target, to)?,
            };
            let (over_now, free) = match found {
                Search::Hit(hit) => (Some(hit), None),
                Search::Miss(free) => (None, free),
            };
            if over_now != over {
                continue;
            }
            let before = (self.attr_of(from_dir, source), self.attr_of(to_dir, target));
            if over.is_some_and(|o| o.ino == hit.ino) {
                let same = |a| Change {
                    before: a,
                    after: a,
                };
                // A retransmission after a crash may find other names, so the call is logged
                // although it changes nothing.
                let lsn = match cx.call {
                    Some(_) => {
                        let edits = Edits::new(self.id, 64);
                        Some(self.core.log.append_call(cx, self.id, edits, Ino(0))?)
                    }
                    None => self.core.log.last_appended(),
                };
                return Ok(Done {
                    value: Renamed {
                        from: same(before.0),
                        to: same(before.1),
                        moved: hit.ino,
                        replaced: None,
                    },
                    lsn,
                });
            }
            let subject = locked.get(hit.ino)?;
            alive(subject)?;
            let is_dir = subject.rec.kind == FileKind::Directory;
            check_tree((&source.rec, &target.rec), &subject.rec, from_dir == to_dir)?;
            if let Some(over) = over {
                let victim = locked.get(over.ino)?;
                check_replaceable(victim, &subject.rec)?;
                if !self.still_doomed(cx, over.ino, victim, &doomed)? {
                    continue;
                }
            }
            let place = match over {
                Some(over) => Free {
                    cookie: over.cookie,
                    bare: false,
                },
                None => free.ok_or(FsError::NoSpace)?,
            };

            // The records after the rename. Both directories may be the same one.
            let mut from_rec = stamped(source.rec, cx.now, true);
            let mut to_rec = stamped(target.rec, cx.now, true);
            let same_dir = from_dir == to_dir;
            let adds_link = is_dir && !same_dir && over.is_none();
            if adds_link && target.rec.nlink >= MAX_LINKS {
                return Err(FsError::TooManyLinks.into());
            }
            let guard = self.core.agg.guard();
            from_rec.entries = guard.less(from_rec.entries, 1, "entries of a directory");
            if is_dir && (!same_dir || over.is_some()) {
                from_rec.nlink = guard.less(from_rec.nlink, 1, "links of a directory");
            }
            if !same_dir {
                to_rec.entries += u64::from(over.is_none());
                to_rec.nlink += u32::from(adds_link);
            } else {
                from_rec.entries += u64::from(over.is_none());
            }
            let mut rec = stamped(subject.rec, cx.now, false);
            if is_dir {
                rec.parent = to_dir;
            }
            let mut victim_rec = match over {
                Some(over) => {
                    let victim = locked.get(over.ino)?.rec;
                    Some((over.ino, unlinked(guard, victim, cx.now)))
                }
                None => None,
            };
            let entry = DirentRef {
                ino: hit.ino,
                kind: rec.kind,
                name: to,
            };
            let mut edits = Edits::new(self.id, 4 * InodeRec::LEN + 128 + to.len());
            edits.del_entry(from_dir, hit.cookie);
            edits.put_entry(to_dir, place.cookie, entry);
            edits.inode(hit.ino, &rec);
            let mut ended = Vec::new();
            if let Some((ino, rec)) = &mut victim_rec {
                let streams = (*ino, &mut *rec);
                ended = self.log_doomed((&pass, &locked), &mut edits, streams, &doomed, cx.now)?;
                log_unlinked(&pass, &mut edits, *ino, rec);
            }
            edits.inode(from_dir, &from_rec);
            if !same_dir {
                edits.inode(to_dir, &to_rec);
            }
            let lsn = self.core.log.append_call(cx, self.id, edits, Ino(0))?;

            if let Some((inode, st)) = locked.get_mut(hit.ino) {
                self.touch(&pass, inode, st, &mut reservation);
                st.rec = rec;
                st.unlogged = false;
            }
            if let Some((ino, _)) = victim_rec {
                let streams = (ino, &doomed);
                self.apply_doomed(&pass, &mut locked, streams, ended, &mut reservation);
            }
            if let Some((ino, rec)) = victim_rec
                && let Some((inode, st)) = locked.get_mut(ino)
            {
                self.apply_unlinked(&pass, inode, st, rec, &mut reservation);
            }
            let bytes = ENTRY_BYTES + to.len() as u64;
            if let Some((inode, st)) = locked.get_mut(from_dir) {
                let delta = self.touch(&pass, inode, st, &mut reservation);
                let vanished = delta.remove_name(hit.cookie);
                if same_dir {
                    delta.put_name(place.cookie, entry.to_owned(), place.bare);
                }
                // A new name that replaces one that vanished without a trace adds nothing: the old
                // one was charged.
                if !vanished {
                    let charge = reservation.take(2);
                    self.charge(delta, charge, bytes);
                }
                st.rec = from_rec;
            }
            if !same_dir && let Some((inode, st)) = locked.get_mut(to_dir) {
                let delta = self.touch(&pass, inode, st, &mut reservation);
                delta.put_name(place.cookie, entry.to_owned(), place.bare);
                let charge = reservation.take(1);
                self.charge(delta, charge, bytes);
                st.rec = to_rec;
            }
            return Ok(Done {
                value: Renamed {
                    from: Change {
                        before: before.0,
                        after: self.attr_of(from_dir, locked.get(from_dir)?),
                    },
                    to: Change {
                        before: before.1,
                        after: self.attr_of(to_dir, locked.get(to_dir)?),
                    },
                    moved: hit.ino,
                    replaced: over.map(|over| over.ino),
                },
                lsn: Some(lsn),
            });
        }
    }

    /// Refuses if `dir` is `ancestor` or below it.
    fn check_not_below(&self, cx: &mut EngineContext, ancestor: Ino, dir: Ino) -> Result<(), Stop> {
        let mut at = dir;
        for _ in 0..MAX_DEPTH {
            if at == ancestor {
                return Err(FsError::Invalid.into());
            }
            if at == self.root() {
                return Ok(());
            }
            let inode = self.inode(cx, at)?;
            let st = inode.state.read();
            alive(&st)?;
            at = st.rec.parent;
        }
        Err(crate::overlay::inode::malformed(
            self.id,
            dir,
            "directories form a cycle",
        ))
    }
}

/// Refuses a rename between these directories that takes the inode out of its tree.
fn check_tree(
    (from, to): (&InodeRec, &InodeRec),
    rec: &InodeRec,
    same_dir: bool,
) -> Result<(), Stop> {
    let stays = match rec.tree == from.tree {
        true => rec.tree == to.tree,
        // The folder of a tree.
        false => same_dir,
    };
    match stays {
        true => Ok(()),
        false => Err(FsError::CrossDevice.into()),
    }
}

/// Refuses to replace an inode that cannot be removed, or belongs to another tree.
fn check_replaceable(victim: &State, by: &InodeRec) -> Result<(), Stop> {
    alive(victim)?;
    match victim.rec.tree == by.tree {
        true => removable(victim, by.kind == FileKind::Directory),
        false => Err(FsError::CrossDevice.into()),
    }
}
