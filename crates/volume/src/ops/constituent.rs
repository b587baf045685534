//! Changes of a volume that is a constituent of a large volume.
//!
//! A constituent's entries may name inodes of other constituents: their numbers have the top byte
//! set ([`is_elsewhere`]), which no number of this volume has. Operations on such an entry are
//! refused as not supported here; the layer that knows the other constituents carries
//! them out, each constituent's part by one [`Volume::change_constituent`].
//!
//! What the protocol has to keep, the *tokens*, are records beside the root directory. They are
//! changed in the log record of the change that they belong to, and so are a part of every
//! checkpoint, snapshot and copy. The engine does not interpret them.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::limits::{MAX_LINKS, MAX_VALUE};
use weir_base::{Ino, Lsn};

use crate::format::edit::Edits;
use crate::format::record::{Dirent, DirentRef, InodeRec, is_elsewhere, kind};
use crate::ops::admission::SMALL_OP;
use crate::ops::attr::with_attrs;
use crate::ops::directory::{Free, Search, check_name, is_dots};
use crate::ops::stream::DoomedStreams;
use crate::ops::unlink::{NAME_BLOCKS, log_unlinked, removable, unlinked};
use crate::overlay::context::EngineContext;
use crate::overlay::delta::ENTRY_BYTES;
use crate::overlay::inode::{Inode, LockedInodes, alive, alive_dir, stamped};
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, Volume};
use crate::types::{Attr, Done, FileKind, FsError, SetAttr, Stop};

/// A change of a constituent's names and inodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConstituentChange<'a> {
    /// Makes a directory or a regular file with one link, whose entry is another change or will be
    /// in another constituent.
    Make {
        /// Number of the inode, from [`Volume::new_inode_number`].
        ino: Ino,
        /// Kind of the inode.
        kind: FileKind,
        /// Directory that has the entry.
        parent: Ino,
        /// Attributes.
        attrs: SetAttr,
    },
    /// Removes a directory without a name, which has to be empty.
    RemoveDirectory {
        /// The directory.
        ino: Ino,
    },
    /// Adds a link, whose name is in another constituent, to a file.
    AddLink {
        /// The file.
        ino: Ino,
    },
    /// Removes such a link, and the file with the last one.
    DropLink {
        /// The file.
        ino: Ino,
    },
    /// Gives a directory another parent.
    SetParent {
        /// The directory.
        ino: Ino,
        /// Its new parent.
        parent: Ino,
    },
    /// Adds an entry. The inode that it names does not change.
    Insert {
        /// Directory that gets the entry.
        dir: Ino,
        /// Name of the entry.
        name: &'a [u8],
        /// Inode that it names, here or elsewhere.
        ino: Ino,
        /// Kind of the inode.
        kind: FileKind,
    },
    /// Removes an entry. The inode that it names does not change.
    Remove {
        /// Directory that has the entry.
        dir: Ino,
        /// Name of the entry.
        name: &'a [u8],
    },
}

/// A token: its number, and its value or `None` to remove it.
pub type TokenChange<'a> = (u64, Option<&'a [u8]>);

/// State of an inode that the rules of large volumes need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConstituentInode {
    /// Attributes.
    pub attr: Attr,
    /// Number of entries of a directory.
    pub entries: u64,
    /// Parent of a directory, here or elsewhere.
    pub parent: Ino,
}

impl ConstituentChange<'_> {
    /// Returns the inode that exists before the change, and is changed.
    fn subject(&self) -> Option<Ino> {
        match self {
            ConstituentChange::Make { .. } => None,
            ConstituentChange::RemoveDirectory { ino }
            | ConstituentChange::AddLink { ino }
            | ConstituentChange::DropLink { ino }
            | ConstituentChange::SetParent { ino, .. } => Some(*ino),
            ConstituentChange::Insert { dir, .. } | ConstituentChange::Remove { dir, .. } => {
                Some(*dir)
            }
        }
    }
}

/// An entry as a change leaves it.
struct Name {
    dir: Ino,
    cookie: u64,
    bare: bool,
    /// `None`: the entry is removed.
    entry: Option<Dirent>,
    name: Box<[u8]>,
}

/// The state after the changes.
#[derive(Default)]
struct Plan {
    recs: BTreeMap<Ino, InodeRec>,
    made: Option<(Ino, InodeRec)>,
    /// The inode that loses a link or its only name.
    lost: Option<Ino>,
    names: Vec<Name>,
}

impl Plan {
    /// Returns the record of an inode so far.
    fn rec(&self, locked: &LockedInodes<'_>, ino: Ino) -> Result<InodeRec, Stop> {
        let st = locked.get(ino)?;
        alive(st)?;
        Ok(self.recs.get(&ino).copied().unwrap_or(st.rec))
    }
}

impl Volume {
    /// Returns the number of a new inode. A number that is not used is never given again.
    pub fn new_inode_number(&self) -> Ino {
        Ino(self.counters.take_ino())
    }

    /// Returns the inode that an entry names, and its kind.
    ///
    /// # Errors
    /// `NotFound`, `NotDir`, `NameTooLong`, `Invalid`, `Stale`, `Io`.
    pub fn entry(
        &self,
        cx: &mut EngineContext,
        dir: Ino,
        name: &[u8],
    ) -> Result<(Ino, FileKind), Stop> {
        check_name(name)?;
        let inode = self.inode(cx, dir)?;
        let st = inode.state.read();
        alive_dir(&st)?;
        let hit = self.need(cx, dir, &st, name)?;
        Ok((hit.ino, hit.kind))
    }

    /// Returns the state of an inode that the rules of large volumes need.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn constituent_inode(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
    ) -> Result<ConstituentInode, Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        alive(&st)?;
        Ok(ConstituentInode {
            attr: self.attr_of(ino, &st),
            entries: st.rec.entries,
            parent: self.parent_of(ino, &st),
        })
    }

    /// Returns all tokens by number.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn tokens(&self, cx: &mut EngineContext) -> Result<BTreeMap<u64, Vec<u8>>, Stop> {
        let inode = self.inode(cx, self.root())?;
        let st = inode.state.read();
        alive(&st)?;
        self.side(cx, self.root(), &st, kind::TOKEN, (0, u64::MAX))
    }

    /// Carries out changes and sets tokens, all by one record of the log. Durable once the log has
    /// reached `Done::lsn`.
    ///
    /// # Errors
    /// `NotSupported` if the format has no constituents; `Exists`, `NotFound`, `NotEmpty`,
    /// `NotDir`, `IsDir`, `TooManyLinks`, `NameTooLong`, `Invalid`, also for a token of more than
    /// 1,024 bytes; `NoSpace`, `Quota`, `ReadOnly`, `Stale`, `Io`. Nothing is changed then.
    pub fn change_constituent(
        &self,
        cx: &mut EngineContext,
        changes: &[ConstituentChange<'_>],
        tokens: &[TokenChange<'_>],
    ) -> Result<Done<()>, Stop> {
        if !self.core.has_constituents() {
            return Err(FsError::NotSupported.into());
        }
        self.writable()?;
        let fits = |value: &[u8]| (1..=MAX_VALUE).contains(&value.len());
        if !tokens.iter().all(|(_, value)| value.is_none_or(fits)) {
            return Err(FsError::Invalid.into());
        }
        let root = self.root();
        let subjects = changes.iter().filter_map(ConstituentChange::subject);
        let mut inodes = BTreeMap::new();
        let of_tokens = (!tokens.is_empty()).then_some(root);
        for ino in subjects.chain(of_tokens) {
            inodes.insert(ino, self.inode(cx, ino)?);
        }
        loop {
            let doomed = self.doomed_by(cx, changes, &inodes)?;
            let count = (changes.len() + tokens.len() + 2 * doomed.len()) as u64;
            let blocks = NAME_BLOCKS + 2 * count;
            // The end of a change has to be possible without free space.
            let grows = |change: &ConstituentChange<'_>| {
                matches!(change, ConstituentChange::Make { .. })
                    || matches!(change, ConstituentChange::Insert { .. })
            };
            let mut reservation = match changes.iter().any(grows) {
                true => self.reserve(cx, blocks)?,
                false => self.reserve_for_delete(cx, blocks)?,
            };
            self.core.schedule.admit(SMALL_OP * (1 + count))?;
            let pass = self.enter()?;
            let all: Vec<&Arc<Inode>> = inodes.values().chain(doomed.inodes()).collect();
            let mut locked = LockedInodes::new(&all);
            let mut plan = Plan::default();
            for change in changes {
                self.plan(cx, &locked, &mut plan, change)?;
            }
            if let Some(lost) = plan.lost
                && !self.still_doomed(cx, lost, locked.get(lost)?, &doomed)?
            {
                continue;
            }
            let parts = (&pass, &mut locked, &mut reservation);
            let lsn = self.carry_out(cx, parts, plan, &doomed, tokens)?;
            return Ok(Done {
                value: (),
                lsn: Some(lsn),
            });
        }
    }

    /// Returns the streams of the file that may go with a link.
    fn doomed_by(
        &self,
        cx: &mut EngineContext,
        changes: &[ConstituentChange<'_>],
        inodes: &BTreeMap<Ino, Arc<Inode>>,
    ) -> Result<DoomedStreams, Stop> {
        for change in changes {
            if let ConstituentChange::DropLink { ino } | ConstituentChange::RemoveDirectory { ino } =
                change
                && let Some(inode) = inodes.get(ino)
            {
                return self.doomed(cx, inode);
            }
        }
        Ok(DoomedStreams::default())
    }

    /// Adds a change to the state after all changes, or refuses it.
    fn plan(
        &self,
        cx: &mut EngineContext,
        locked: &LockedInodes<'_>,
        plan: &mut Plan,
        change: &ConstituentChange<'_>,
    ) -> Result<(), Stop> {
        match change {
            ConstituentChange::Make {
                ino,
                kind,
                parent,
                attrs,
            } => {
                let rec = InodeRec::new(*kind, attrs.mode.unwrap_or(0), cx.now);
                let mut rec = with_attrs(rec, attrs, cx.now);
                match kind {
                    FileKind::Directory => rec.parent = *parent,
                    FileKind::Regular => {}
                    _ => return Err(FsError::NotSupported.into()),
                }
                plan.made = Some((*ino, rec));
            }
            ConstituentChange::RemoveDirectory { ino } | ConstituentChange::DropLink { ino } => {
                let rec = plan.rec(locked, *ino)?;
                let directory = matches!(change, ConstituentChange::RemoveDirectory { .. });
                removable(locked.get(*ino)?, directory)?;
                let rec = unlinked(self.core.agg.guard(), rec, cx.now);
                plan.recs.insert(*ino, rec);
                plan.lost = Some(*ino);
            }
            ConstituentChange::AddLink { ino } => {
                let rec = plan.rec(locked, *ino)?;
                if rec.kind == FileKind::Directory {
                    return Err(FsError::IsDir.into());
                }
                if rec.nlink == 0 {
                    return Err(FsError::Stale.into());
                }
                if rec.nlink >= MAX_LINKS {
                    return Err(FsError::TooManyLinks.into());
                }
                let mut rec = stamped(rec, cx.now, false);
                rec.nlink += 1;
                plan.recs.insert(*ino, rec);
            }
            ConstituentChange::SetParent { ino, parent } => {
                let rec = plan.rec(locked, *ino)?;
                if rec.kind != FileKind::Directory {
                    return Err(FsError::NotDir.into());
                }
                let mut rec = stamped(rec, cx.now, false);
                rec.parent = *parent;
                plan.recs.insert(*ino, rec);
            }
            ConstituentChange::Insert {
                dir,
                name,
                ino,
                kind,
            } => {
                self.plan_name(cx, locked, plan, (*dir, name), Some((*ino, *kind)))?;
            }
            ConstituentChange::Remove { dir, name } => {
                self.plan_name(cx, locked, plan, (*dir, name), None)?;
            }
        }
        Ok(())
    }

    /// Adds or removes an entry in the state after all changes.
    fn plan_name(
        &self,
        cx: &mut EngineContext,
        locked: &LockedInodes<'_>,
        plan: &mut Plan,
        (dir, name): (Ino, &[u8]),
        entry: Option<(Ino, FileKind)>,
    ) -> Result<(), Stop> {
        if is_dots(name) {
            return Err(FsError::Exists.into());
        }
        check_name(name)?;
        let st = locked.get(dir)?;
        alive_dir(st)?;
        let mut rec = stamped(plan.rec(locked, dir)?, cx.now, true);
        // An entry of this name that was removed before leaves its place.
        let same = |other: &&mut Name| other.dir == dir && *other.name == *name;
        let entry = entry.map(|(ino, kind)| DirentRef { ino, kind, name }.to_owned());
        let guard = self.core.agg.guard();
        let counts = |kind: FileKind| u32::from(kind == FileKind::Directory);
        match (plan.names.iter_mut().find(same), entry) {
            (Some(_), None) => return Err(FsError::Invalid.into()),
            (Some(removed), Some(entry)) => {
                rec.entries += 1;
                rec.nlink += counts(entry.kind);
                removed.entry = Some(entry);
            }
            (None, None) => {
                let hit = self.need(cx, dir, st, name)?;
                rec.entries = guard.less(rec.entries, 1, "entries of a directory");
                let less = counts(hit.kind);
                rec.nlink = guard.less(rec.nlink, less, "links of a directory");
                plan.names.push(Name {
                    dir,
                    cookie: hit.cookie,
                    bare: false,
                    entry: None,
                    name: name.into(),
                });
            }
            (None, Some(entry)) => {
                let free: Free = match self.find(cx, dir, st, name)? {
                    Search::Hit(_) => return Err(FsError::Exists.into()),
                    Search::Miss(free) => free.ok_or(FsError::NoSpace)?,
                };
                rec.entries += 1;
                rec.nlink += counts(entry.kind);
                plan.names.push(Name {
                    dir,
                    cookie: free.cookie,
                    bare: free.bare,
                    entry: Some(entry),
                    name: name.into(),
                });
            }
        }
        if rec.nlink > MAX_LINKS {
            return Err(FsError::TooManyLinks.into());
        }
        plan.recs.insert(dir, rec);
        Ok(())
    }

    /// Logs the state after all changes, and makes it the current one.
    fn carry_out(
        &self,
        cx: &mut EngineContext,
        (pass, locked, reservation): (
            &ChangePermit<'_>,
            &mut LockedInodes<'_>,
            &mut Reservation<'_>,
        ),
        mut plan: Plan,
        doomed: &DoomedStreams,
        tokens: &[TokenChange<'_>],
    ) -> Result<Lsn, Stop> {
        let held = match &plan.made {
            Some((_, rec)) => Some(self.hold_new(cx, pass, rec)?),
            None => None,
        };
        let mut edits = Edits::new(self.id, 512);
        let mut ended = Vec::new();
        if let Some((ino, rec)) = &plan.made {
            edits.inode(*ino, rec);
        }
        for name in &plan.names {
            match &name.entry {
                Some(entry) => edits.put_entry(name.dir, name.cookie, entry.borrowed()),
                None => edits.del_entry(name.dir, name.cookie),
            }
        }
        for (ino, rec) in &mut plan.recs {
            if plan.lost == Some(*ino) {
                let streams = (*ino, &mut *rec);
                ended = self.log_doomed((pass, locked), &mut edits, streams, doomed, cx.now)?;
                log_unlinked(pass, &mut edits, *ino, rec);
            } else {
                edits.inode(*ino, rec);
            }
        }
        for (number, value) in tokens {
            edits.side(self.root(), kind::TOKEN, *number, *value);
        }
        let mut entries = plan.names.iter().filter_map(|name| name.entry.as_ref());
        let named = entries.next_back().map_or(Ino(0), |entry| entry.ino);
        let lsn = self.core.log.append_call(cx, self.id, edits, named)?;

        if let Some((ino, rec)) = plan.made {
            let inode = Arc::new(Inode::new(ino, rec));
            let mut child = inode.state.write();
            self.touch(pass, &inode, &mut child, reservation).new = true;
            if let Some(held) = held {
                held.settle_reservation(&child);
            }
            drop(child);
            self.table.insert_new(&inode);
        }
        if let Some(lost) = plan.lost {
            self.apply_doomed(pass, locked, (lost, doomed), ended, reservation);
        }
        self.apply_records(pass, locked, (plan.recs, plan.lost), reservation);
        self.apply_names(pass, locked, plan.names, reservation);
        self.apply_tokens(pass, locked, tokens, reservation);
        Ok(lsn)
    }

    fn apply_records(
        &self,
        pass: &ChangePermit<'_>,
        locked: &mut LockedInodes<'_>,
        (recs, lost): (BTreeMap<Ino, InodeRec>, Option<Ino>),
        reservation: &mut Reservation<'_>,
    ) {
        for (ino, rec) in recs {
            let Some((inode, st)) = locked.get_mut(ino) else {
                // Reported as a violated invariant: all subjects are locked.
                continue;
            };
            if lost == Some(ino) {
                self.apply_unlinked(pass, inode, st, rec, reservation);
            } else {
                self.touch(pass, inode, st, reservation);
                st.rec = rec;
                st.unlogged = false;
            }
        }
    }

    fn apply_names(
        &self,
        pass: &ChangePermit<'_>,
        locked: &mut LockedInodes<'_>,
        names: Vec<Name>,
        reservation: &mut Reservation<'_>,
    ) {
        for name in names {
            let Some((inode, st)) = locked.get_mut(name.dir) else {
                // As above.
                continue;
            };
            let delta = self.touch(pass, inode, st, reservation);
            let charged = match name.entry {
                Some(entry) => {
                    delta.put_name(name.cookie, entry, name.bare);
                    true
                }
                None => !delta.remove_name(name.cookie),
            };
            if charged {
                let charge = reservation.take(1);
                self.charge(delta, charge, ENTRY_BYTES + name.name.len() as u64);
            }
        }
    }

    fn apply_tokens(
        &self,
        pass: &ChangePermit<'_>,
        locked: &mut LockedInodes<'_>,
        tokens: &[TokenChange<'_>],
        reservation: &mut Reservation<'_>,
    ) {
        if tokens.is_empty() {
            return;
        }
        if let Some((inode, st)) = locked.get_mut(self.root()) {
            let delta = self.touch(pass, inode, st, reservation);
            for (number, value) in tokens {
                let heap = ENTRY_BYTES + value.map_or(0, <[u8]>::len) as u64;
                delta.put_side(kind::TOKEN, *number, value.map(Box::from));
                let charge = reservation.take(1);
                self.charge(delta, charge, heap);
            }
        }
    }
}

/// Refuses an inode of another constituent.
pub(crate) fn check_here(ino: Ino) -> Result<(), Stop> {
    match is_elsewhere(ino) {
        true => Err(FsError::NotSupported.into()),
        false => Ok(()),
    }
}
