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

use std::sync::Arc;

use weir_base::limits::MAX_LINKS;
use weir_base::limits::engine::MAX_DEPTH;
use weir_base::{Ino, Lsn, Time};

use crate::format::edit::Edits;
use crate::format::record::{DirentRef, InodeRec};
use crate::ops::admission::SMALL_OP;
use crate::ops::directory::{Free, Hit, Search, check_name, is_dots};
use crate::ops::stream::DoomedStreams;
use crate::ops::unlink::{NAME_BLOCKS, log_unlinked, removable, unlinked};
use crate::overlay::context::EngineContext;
use crate::overlay::delta::ENTRY_BYTES;
use crate::overlay::inode::{Inode, LockedInodes, State, alive, alive_dir, stamped};
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, Volume};
use crate::types::{Attr, Change, Done, FileKind, FsError, RenameOut, Stop};

/// Both names, as they were before anything was locked for writing.
struct Names {
    /// Entry of the name that goes.
    hit: Hit,
    /// Change number of the source directory.
    from_change: u64,
    /// Entry of the target name, or a free place for one.
    found: Search,
    /// Change number of the target directory.
    to_change: u64,
}

/// A rename as the locked inodes decide it.
struct Step<'a> {
    from_dir: Ino,
    to_dir: Ino,
    to: &'a [u8],
    /// Entry that goes.
    hit: Hit,
    /// Entry that is replaced.
    over: Option<Hit>,
    /// Place of the new entry.
    place: Free,
}

/// Records of the inodes after a rename. If both directories are the same one, `from` is its
/// record.
struct Records {
    from: InodeRec,
    to: InodeRec,
    moved: InodeRec,
    replaced: Option<(Ino, InodeRec)>,
}

impl Step<'_> {
    fn same_dir(&self) -> bool {
        self.from_dir == self.to_dir
    }

    fn entry(&self, moved: &InodeRec) -> DirentRef<'_> {
        DirentRef {
            ino: self.hit.ino,
            kind: moved.kind,
            name: self.to,
        }
    }
}

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
    ) -> Result<Done<RenameOut>, Stop> {
        self.writable()?;
        if is_dots(from) || is_dots(to) {
            return Err(FsError::Invalid.into());
        }
        check_name(from)?;
        check_name(to)?;
        let dirs = [self.inode(cx, from_dir)?, self.inode(cx, to_dir)?];
        loop {
            if let Some(done) = self.rename_once(cx, &dirs, from, to)? {
                return Ok(done);
            }
        }
    }

    /// Renames once; `None` if another call has changed the names meanwhile.
    fn rename_once(
        &self,
        cx: &mut EngineContext,
        [source_dir, target_dir]: &[Arc<Inode>; 2],
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<Done<RenameOut>>, Stop> {
        let live = self.writable()?;
        let (from_dir, to_dir) = (source_dir.ino, target_dir.ino);
        let names = self.both_names(cx, (source_dir, from), (target_dir, to))?;
        let (hit, over) = (names.hit, names.found.hit());
        let Some(moved) = self.child(cx, source_dir, from, hit)? else {
            return Ok(None);
        };
        let replaced = match over {
            None => None,
            Some(over) => self.child(cx, target_dir, to, over)?,
        };
        if replaced.is_some() != over.is_some() {
            return Ok(None);
        }
        let moves_dir = hit.kind == FileKind::Directory && from_dir != to_dir;
        let _exclusive = moves_dir.then(|| live.renames.lock());
        if moves_dir {
            self.check_not_below(cx, hit.ino, to_dir)?;
        }
        let doomed = match &replaced {
            None => DoomedStreams::default(),
            Some(replaced) => self.doomed(cx, replaced)?,
        };
        let streams = doomed.len() as u64;
        let mut reservation = self.reserve(cx, NAME_BLOCKS + 2 * streams)?;
        self.core.schedule.admit(SMALL_OP * (1 + streams))?;

        let pass = self.enter()?;
        let mut inodes = vec![source_dir, target_dir, &moved];
        inodes.extend(replaced.as_ref());
        inodes.extend(doomed.inodes());
        let mut locked = LockedInodes::new(&inodes);
        let Some(found) = self.names_now(cx, &locked, &names, (from_dir, from), (to_dir, to))?
        else {
            return Ok(None);
        };
        let before = self.both_attrs(&locked, from_dir, to_dir)?;
        if over.is_some_and(|over| over.ino == hit.ino) {
            return self.rename_to_itself(cx, before, hit.ino).map(Some);
        }
        self.check_rename(&locked, (from_dir, to_dir), (hit, over))?;
        if let Some(over) = over
            && !self.still_doomed(cx, over.ino, locked.get(over.ino)?, &doomed)?
        {
            return Ok(None);
        }
        let step = Step {
            from_dir,
            to_dir,
            to,
            hit,
            over,
            place: place_of(found)?,
        };
        let mut records = self.records_after(&locked, &step, cx.now)?;
        let (edits, ended) =
            self.rename_edits((&pass, &locked), &step, &mut records, &doomed, cx.now)?;
        let lsn = self.core.log.append_call(cx, self.id, edits, Ino(0))?;
        let (held, streams) = ((&pass, &mut locked), (&doomed, ended));
        self.apply_rename(held, &step, &records, streams, &mut reservation);
        let after = self.both_attrs(&locked, from_dir, to_dir)?;
        Ok(Some(renamed(before, after, &step, lsn)))
    }

    /// Looks both names up, with the directories locked for reading.
    fn both_names(
        &self,
        cx: &mut EngineContext,
        (source, from): (&Inode, &[u8]),
        (target, to): (&Inode, &[u8]),
    ) -> Result<Names, Stop> {
        let (hit, from_change) = {
            let st = source.state.read();
            alive_dir(&st)?;
            (self.need(cx, source.ino, &st, from)?, st.rec.change)
        };
        let st = target.state.read();
        alive_dir(&st)?;
        Ok(Names {
            hit,
            from_change,
            found: self.find(cx, target.ino, &st, to)?,
            to_change: st.rec.change,
        })
    }

    /// Looks both names up again in the locked directories, where these have changed. Returns what
    /// the target's name leads to; `None` if a name leads elsewhere now.
    fn names_now(
        &self,
        cx: &mut EngineContext,
        locked: &LockedInodes<'_>,
        names: &Names,
        (from_dir, from): (Ino, &[u8]),
        (to_dir, to): (Ino, &[u8]),
    ) -> Result<Option<Search>, Stop> {
        let (source, target) = (locked.get(from_dir)?, locked.get(to_dir)?);
        alive_dir(source)?;
        alive_dir(target)?;
        let same = source.rec.change == names.from_change;
        if !same && self.need(cx, from_dir, source, from)? != names.hit {
            return Ok(None);
        }
        let found = match names.found.still(names.to_change, target) {
            Some(found) => found,
            None => self.find(cx, to_dir, target, to)?,
        };
        Ok((found.hit() == names.found.hit()).then_some(found))
    }

    fn both_attrs(
        &self,
        locked: &LockedInodes<'_>,
        from: Ino,
        to: Ino,
    ) -> Result<(Attr, Attr), Stop> {
        let (source, target) = (locked.get(from)?, locked.get(to)?);
        Ok((self.attr_of(from, source), self.attr_of(to, target)))
    }

    /// Ends a rename between two names of one inode. A retransmission after a crash may find other
    /// names, so the call is logged although it changes nothing.
    fn rename_to_itself(
        &self,
        cx: &mut EngineContext,
        attrs: (Attr, Attr),
        moved: Ino,
    ) -> Result<Done<RenameOut>, Stop> {
        let lsn = match cx.call {
            Some(_) => {
                let edits = Edits::new(self.id, 64);
                Some(self.core.log.append_call(cx, self.id, edits, Ino(0))?)
            }
            None => self.core.log.last_appended(),
        };
        let same = |attr| Change {
            before: attr,
            after: attr,
        };
        Ok(Done {
            value: RenameOut {
                from: same(attrs.0),
                to: same(attrs.1),
                moved,
                replaced: None,
            },
            lsn,
        })
    }

    /// Refuses a rename out of a tree, or over what cannot be removed.
    fn check_rename(
        &self,
        locked: &LockedInodes<'_>,
        (from_dir, to_dir): (Ino, Ino),
        (hit, over): (Hit, Option<Hit>),
    ) -> Result<(), Stop> {
        let subject = locked.get(hit.ino)?;
        alive(subject)?;
        let dirs = (&locked.get(from_dir)?.rec, &locked.get(to_dir)?.rec);
        check_tree(dirs, &subject.rec, from_dir == to_dir)?;
        match over {
            None => Ok(()),
            Some(over) => check_replaceable(locked.get(over.ino)?, &subject.rec),
        }
    }

    /// Returns the records of the inodes after the rename.
    fn records_after(
        &self,
        locked: &LockedInodes<'_>,
        step: &Step<'_>,
        now: Time,
    ) -> Result<Records, Stop> {
        let target = locked.get(step.to_dir)?;
        let mut from = stamped(locked.get(step.from_dir)?.rec, now, true);
        let mut to = stamped(target.rec, now, true);
        let mut moved = stamped(locked.get(step.hit.ino)?.rec, now, false);
        let is_dir = moved.kind == FileKind::Directory;
        let (same_dir, replaces) = (step.same_dir(), step.over.is_some());
        let adds_link = is_dir && !same_dir && !replaces;
        if adds_link && target.rec.nlink >= MAX_LINKS {
            return Err(FsError::TooManyLinks.into());
        }
        let guard = self.core.agg.guard();
        from.entries = guard.less(from.entries, 1, "entries of a directory");
        if is_dir && (!same_dir || replaces) {
            from.nlink = guard.less(from.nlink, 1, "links of a directory");
        }
        if same_dir {
            from.entries += u64::from(!replaces);
        } else {
            to.entries += u64::from(!replaces);
            to.nlink += u32::from(adds_link);
        }
        if is_dir {
            moved.parent = step.to_dir;
        }
        let replaced = match step.over {
            Some(over) => {
                let rec = locked.get(over.ino)?.rec;
                Some((over.ino, unlinked(guard, rec, now)))
            }
            None => None,
        };
        Ok(Records {
            from,
            to,
            moved,
            replaced,
        })
    }

    /// Returns the edits of the rename, and the records of the streams that end with the inode that
    /// is replaced.
    fn rename_edits(
        &self,
        (pass, locked): (&ChangePermit<'_>, &LockedInodes<'_>),
        step: &Step<'_>,
        records: &mut Records,
        doomed: &DoomedStreams,
        now: Time,
    ) -> Result<(Edits, Vec<(Ino, InodeRec)>), Stop> {
        let mut edits = Edits::new(self.id, 4 * InodeRec::LEN + 128 + step.to.len());
        edits.del_entry(step.from_dir, step.hit.cookie);
        edits.put_entry(step.to_dir, step.place.cookie, step.entry(&records.moved));
        edits.inode(step.hit.ino, &records.moved);
        let mut ended = Vec::new();
        if let Some((ino, rec)) = &mut records.replaced {
            let streams = (*ino, &mut *rec);
            ended = self.log_doomed((pass, locked), &mut edits, streams, doomed, now)?;
            log_unlinked(pass, &mut edits, *ino, rec);
        }
        edits.inode(step.from_dir, &records.from);
        if !step.same_dir() {
            edits.inode(step.to_dir, &records.to);
        }
        Ok((edits, ended))
    }

    /// Applies the changes that [`Volume::rename_edits`] logged.
    fn apply_rename(
        &self,
        (pass, locked): (&ChangePermit<'_>, &mut LockedInodes<'_>),
        step: &Step<'_>,
        records: &Records,
        (doomed, ended): (&DoomedStreams, Vec<(Ino, InodeRec)>),
        reservation: &mut Reservation<'_>,
    ) {
        if let Some((inode, st)) = locked.get_mut(step.hit.ino) {
            self.touch(pass, inode, st, reservation);
            st.rec = records.moved;
            st.unlogged = false;
        }
        if let Some((ino, rec)) = records.replaced {
            self.apply_doomed(pass, locked, (ino, doomed), ended, reservation);
            if let Some((inode, st)) = locked.get_mut(ino) {
                self.apply_unlinked(pass, inode, st, rec, reservation);
            }
        }
        let bytes = ENTRY_BYTES + step.to.len() as u64;
        let (entry, place) = (step.entry(&records.moved), step.place);
        if let Some((inode, st)) = locked.get_mut(step.from_dir) {
            let delta = self.touch(pass, inode, st, reservation);
            let vanished = delta.remove_name(step.hit.cookie);
            if step.same_dir() {
                delta.put_name(place.cookie, entry.to_owned(), place.bare);
            }
            // A new name that replaces one that vanished without a trace adds nothing: the old one
            // was charged.
            if !vanished {
                let charge = reservation.take(2);
                self.charge(delta, charge, bytes);
            }
            st.rec = records.from;
        }
        if !step.same_dir()
            && let Some((inode, st)) = locked.get_mut(step.to_dir)
        {
            let delta = self.touch(pass, inode, st, reservation);
            delta.put_name(place.cookie, entry.to_owned(), place.bare);
            let charge = reservation.take(1);
            self.charge(delta, charge, bytes);
            st.rec = records.to;
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

/// Returns the place of the new entry, by the search for its name.
fn place_of(found: Search) -> Result<Free, FsError> {
    match found {
        Search::Hit(Hit { cookie, .. }) => Ok(Free {
            cookie,
            bare: false,
        }),
        Search::Miss(free) => free.ok_or(FsError::NoSpace),
    }
}

/// Returns the result of a rename: both directories' attributes before and after it.
fn renamed(
    before: (Attr, Attr),
    after: (Attr, Attr),
    step: &Step<'_>,
    lsn: Lsn,
) -> Done<RenameOut> {
    let change = |before, after| Change { before, after };
    Done {
        value: RenameOut {
            from: change(before.0, after.0),
            to: change(before.1, after.1),
            moved: step.hit.ino,
            replaced: step.over.map(|over| over.ino),
        },
        lsn: Some(lsn),
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
