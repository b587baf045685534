//! Named streams of files and directories (MS-FSCC section 2.1.5): data beside a file's own, each
//! an inode like a file's.
//!
//! A stream's inode is found by an entry beside the file ([`kind::STREAM`]), at the hash of its
//! folded name like a directory's entries, and contains its file's number. It has no other name,
//! and no name of a directory leads to it: protocols without streams do not see it.
//!
//! **The end.** A file that loses its last name loses its streams in the same record. A stream that
//! is open then lives on without a name as a file would ([`crate::ops::pin`]). So a deleted file
//! never has streams.

use std::sync::Arc;

use weir_base::{Ino, Time};

use crate::format::edit::Edits;
use crate::format::fold::fold;
use crate::format::hash::{DISAMBIGUATOR_BITS, VARIANTS, first_cookie};
use crate::format::record::{DirentRef, InodeRec, flag, kind};
use crate::ops::admission::SMALL_OP;
use crate::ops::directory::{check_name, is_dots};
use crate::ops::unlink::{NAME_BLOCKS, log_unlinked, unlinked};
use crate::overlay::context::EngineContext;
use crate::overlay::delta::ENTRY_BYTES;
use crate::overlay::inode::{Inode, LockedInodes, State, alive, malformed, stamped};
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::{ChangePermit, Volume};
use crate::types::{Attr, Change, Done, FileKind, FsError, Stop};

/// A stream of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Name of the stream, 1 to 255 bytes.
    pub name: Box<[u8]>,
    /// Attributes of the stream, of which size and blocks are meaningful; the other attributes are
    /// its file's.
    pub attr: Attr,
}

/// An entry that leads to a stream.
#[derive(Clone, PartialEq, Eq)]
struct Entry {
    cookie: u64,
    ino: Ino,
    name: Box<[u8]>,
}

/// The streams of a file that is about to lose its last name.
#[derive(Default)]
pub(crate) struct DoomedStreams {
    entries: Vec<Entry>,
    inodes: Vec<Arc<Inode>>,
}

impl DoomedStreams {
    /// Returns the inodes to be locked with the file.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = &Arc<Inode>> {
        self.inodes.iter()
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> usize {
        self.inodes.len()
    }
}

impl Volume {
    /// Returns the stream entries of an inode, whose lock the caller holds: all, or those with the
    /// hash of a name.
    fn stream_entries(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        name: Option<&[u8]>,
    ) -> Result<Vec<Entry>, Stop> {
        if st.rec.flags & flag::STREAMS == 0 {
            return Ok(Vec::new());
        }
        let range = match name {
            None => (0, u64::MAX),
            Some(name) => {
                let first = first_cookie(self.key.get(), name);
                (first, first | ((1 << DISAMBIGUATOR_BITS) - 1))
            }
        };
        let found = self.side(cx, ino, st, kind::STREAM, range)?;
        let entries = found.iter().map(|(cookie, value)| {
            let entry = DirentRef::decode(value)?;
            Some(Entry {
                cookie: *cookie,
                ino: entry.ino,
                name: entry.name.into(),
            })
        });
        let entries = entries.collect::<Option<_>>();
        entries.ok_or_else(|| malformed(self.id, ino, "stream"))
    }

    /// Returns true if an inode, whose lock the caller holds, has any stream.
    pub(crate) fn has_streams(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
    ) -> Result<bool, Stop> {
        Ok(!self.stream_entries(cx, ino, st, None)?.is_empty())
    }

    /// Returns the entry of a name in any case, the exact one first.
    fn stream_entry(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        name: &[u8],
    ) -> Result<Option<Entry>, Stop> {
        let all = self.stream_entries(cx, ino, st, Some(name))?;
        if let Some(exact) = all.iter().find(|entry| *entry.name == *name) {
            return Ok(Some(exact.clone()));
        }
        let folded = fold(name);
        Ok(all.into_iter().find(|entry| fold(&entry.name) == folded))
    }

    /// Returns all streams of a file or directory, in a stable order.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn streams(&self, cx: &mut EngineContext, ino: Ino) -> Result<Vec<Stream>, Stop> {
        let inode = self.inode(cx, ino)?;
        let entries = {
            let st = inode.state.read();
            alive(&st)?;
            self.stream_entries(cx, ino, &st, None)?
        };
        let mut all = Vec::with_capacity(entries.len());
        for Entry { ino, name, .. } in entries {
            match self.inode(cx, ino) {
                Ok(stream) => {
                    let st = stream.state.read();
                    let attr = self.attr_of(ino, &st);
                    all.push(Stream { name, attr });
                }
                // The stream was removed meanwhile.
                Err(Stop::Fail(FsError::Stale)) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(all)
    }

    /// Returns the stream with this name in any case.
    ///
    /// # Errors
    /// `NotFound`, `NameTooLong`, `Invalid`, `Stale`, `Io`.
    pub fn stream(&self, cx: &mut EngineContext, ino: Ino, name: &[u8]) -> Result<Stream, Stop> {
        check_name(name)?;
        let inode = self.inode(cx, ino)?;
        let found = {
            let st = inode.state.read();
            alive(&st)?;
            self.stream_entry(cx, ino, &st, name)?
        };
        let Entry { ino, name, .. } = found.ok_or(FsError::NotFound)?;
        match self.inode(cx, ino) {
            Err(Stop::Fail(FsError::Stale)) => Err(FsError::NotFound.into()),
            stream => {
                let stream = stream?;
                let st = stream.state.read();
                let attr = self.attr_of(ino, &st);
                Ok(Stream { name, attr })
            }
        }
    }

    /// Creates an empty stream of a file or directory. Durable once the log has reached
    /// `Done::lsn`.
    ///
    /// # Errors
    /// `Exists` if there is a stream with this name in any case, `NameTooLong`, `Invalid` (also for
    /// a file that cannot have streams), `NoSpace`, `ReadOnly`, `Stale`, `Io`.
    pub fn make_stream(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        name: &[u8],
    ) -> Result<Done<Stream>, Stop> {
        self.writable()?;
        check_name(name)?;
        let inode = self.inode(cx, ino)?;
        let mut reservation = self.reserve(cx, NAME_BLOCKS)?;
        self.core.schedule.admit(SMALL_OP)?;
        let pass = self.enter()?;
        let mut st = inode.state.write();
        let st = &mut *st;
        alive(st)?;
        let takes = matches!(st.rec.kind, FileKind::Regular | FileKind::Directory);
        if is_dots(name) || !takes || st.rec.flags & flag::STREAM != 0 {
            return Err(FsError::Invalid.into());
        }
        if st.rec.nlink == 0 {
            return Err(FsError::Stale.into());
        }
        if self.stream_entry(cx, ino, st, name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        let taken = self.stream_entries(cx, ino, st, Some(name))?;
        let first = first_cookie(self.key.get(), name);
        let free = |cookie: &u64| taken.iter().all(|entry| entry.cookie != *cookie);
        let cookie = (first..first + VARIANTS).find(free);
        let cookie = cookie.ok_or(FsError::NoSpace)?;

        let mut rec = InodeRec::new(FileKind::Regular, u32::from(st.rec.mode & 0o777), cx.now);
        (rec.uid, rec.gid, rec.tree) = (st.rec.uid, st.rec.gid, st.rec.tree);
        (rec.flags, rec.parent) = (rec.flags | flag::STREAM, ino);
        let held = self.hold_new(cx, &pass, &rec)?;
        let mut of = stamped(st.rec, cx.now, false);
        of.flags |= flag::STREAMS;
        let own = Ino(self.counters.take_ino());
        let entry = DirentRef {
            ino: own,
            kind: FileKind::Regular,
            name,
        };
        let mut value = Vec::with_capacity(9 + name.len());
        entry.encode(&mut value);
        let mut edits = Edits::new(self.id, 2 * InodeRec::LEN + 64 + value.len());
        edits.inode(own, &rec);
        edits.side(ino, kind::STREAM, cookie, Some(&value));
        edits.inode(ino, &of);
        let lsn = self.core.log.append_call(cx, self.id, edits, own)?;

        let stream = Arc::new(Inode::new(own, rec));
        let attr = {
            let mut st = stream.state.write();
            let delta = self.touch(&pass, &stream, &mut st, &mut reservation);
            delta.new = true;
            held.settle_reservation(&st);
            self.attr_of(own, &st)
        };
        self.table.insert_new(&stream);
        let delta = self.touch(&pass, &inode, st, &mut reservation);
        let heap = ENTRY_BYTES + value.len() as u64;
        delta.put_side(kind::STREAM, cookie, Some(value.into()));
        let charge = reservation.take(1);
        self.charge(delta, charge, heap);
        st.rec = of;
        st.unlogged = false;
        Ok(Done {
            value: Stream {
                name: name.into(),
                attr,
            },
            lsn: Some(lsn),
        })
    }

    /// Removes a stream. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// `NotFound`, `NameTooLong`, `Invalid`, `ReadOnly`, `Stale`, `Io`.
    pub fn remove_stream(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        name: &[u8],
    ) -> Result<Done<Change>, Stop> {
        self.move_stream(cx, ino, name, None)
    }

    /// Renames a stream to an unused name. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NameTooLong`, `Invalid`, `NoSpace`, `ReadOnly`, `Stale`, `Io`.
    pub fn rename_stream(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        from: &[u8],
        to: &[u8],
    ) -> Result<Done<Change>, Stop> {
        check_name(to)?;
        if is_dots(to) {
            return Err(FsError::Invalid.into());
        }
        self.move_stream(cx, ino, from, Some(to))
    }

    /// Removes a stream's name, and gives it another one if requested.
    fn move_stream(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        name: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Done<Change>, Stop> {
        self.writable()?;
        check_name(name)?;
        let inode = self.inode(cx, ino)?;
        loop {
            let found = {
                let st = inode.state.read();
                alive(&st)?;
                self.stream_entry(cx, ino, &st, name)?
            };
            let found = found.ok_or(FsError::NotFound)?;
            let stream = match self.inode(cx, found.ino) {
                Err(Stop::Fail(FsError::Stale)) => continue,
                stream => stream?,
            };
            let mut reservation = self.reserve_for_delete(cx, NAME_BLOCKS)?;
            self.core.schedule.admit(SMALL_OP)?;
            let pass = self.enter()?;
            let mut locked = LockedInodes::new(&[&inode, &stream]);
            let st = locked.get(ino)?;
            alive(st)?;
            if self.stream_entry(cx, ino, st, name)?.as_ref() != Some(&found) {
                continue;
            }
            let before = self.attr_of(ino, st);
            let of = stamped(st.rec, cx.now, false);
            let child = locked.get(found.ino)?;
            alive(child)?;
            let mut edits = Edits::new(self.id, 3 * InodeRec::LEN + 64);
            edits.side(ino, kind::STREAM, found.cookie, None);
            let placed = match to {
                None => None,
                Some(to) => {
                    let other = self.stream_entry(cx, ino, st, to)?;
                    if other.is_some_and(|other| other.ino != found.ino) {
                        return Err(FsError::Exists.into());
                    }
                    let taken = self.stream_entries(cx, ino, st, Some(to))?;
                    let first = first_cookie(self.key.get(), to);
                    let free = |cookie: &u64| {
                        let of = taken.iter().find(|entry| entry.cookie == *cookie);
                        of.is_none_or(|entry| entry.ino == found.ino)
                    };
                    let cookie = (first..first + VARIANTS)
                        .find(free)
                        .ok_or(FsError::NoSpace)?;
                    let entry = DirentRef {
                        ino: found.ino,
                        kind: FileKind::Regular,
                        name: to,
                    };
                    let mut value = Vec::with_capacity(9 + to.len());
                    entry.encode(&mut value);
                    edits.side(ino, kind::STREAM, cookie, Some(&value));
                    Some((cookie, value))
                }
            };
            let rec = match placed {
                Some(_) => stamped(child.rec, cx.now, false),
                None => unlinked(self.core.agg.guard(), child.rec, cx.now),
            };
            log_unlinked(&pass, &mut edits, found.ino, &rec);
            edits.inode(ino, &of);
            let lsn = self.core.log.append_call(cx, self.id, edits, Ino(0))?;

            if let Some((inode, st)) = locked.get_mut(found.ino) {
                self.apply_unlinked(&pass, inode, st, rec, &mut reservation);
            }
            if let Some((inode, st)) = locked.get_mut(ino) {
                let delta = self.touch(&pass, inode, st, &mut reservation);
                delta.put_side(kind::STREAM, found.cookie, None);
                let mut heap = ENTRY_BYTES;
                if let Some((cookie, value)) = placed {
                    heap += ENTRY_BYTES + value.len() as u64;
                    delta.put_side(kind::STREAM, cookie, Some(value.into()));
                }
                let charge = reservation.take(1);
                self.charge(delta, charge, heap);
                st.rec = of;
                st.unlogged = false;
            }
            return Ok(Done {
                value: Change {
                    before,
                    after: self.attr_of(ino, locked.get(ino)?),
                },
                lsn: Some(lsn),
            });
        }
    }

    /// Returns the streams of an inode if it is about to lose its last name.
    pub(crate) fn doomed(
        &self,
        cx: &mut EngineContext,
        inode: &Arc<Inode>,
    ) -> Result<DoomedStreams, Stop> {
        let entries = {
            let st = inode.state.read();
            let last = st.rec.kind == FileKind::Directory || st.rec.nlink <= 1;
            if !last || st.rec.flags & flag::STREAMS == 0 {
                return Ok(DoomedStreams::default());
            }
            self.stream_entries(cx, inode.ino, &st, None)?
        };
        let inodes = entries.iter().map(|entry| self.inode(cx, entry.ino));
        let inodes = inodes.collect::<Result<Vec<_>, Stop>>();
        Ok(match inodes {
            // A stream was removed meanwhile, which the comparison will show.
            Err(Stop::Fail(FsError::Stale)) => DoomedStreams::default(),
            inodes => DoomedStreams {
                inodes: inodes?,
                entries,
            },
        })
    }

    /// Returns true if an inode, which is locked, still has exactly these streams, or keeps a name.
    pub(crate) fn still_doomed(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        doomed: &DoomedStreams,
    ) -> Result<bool, Stop> {
        let last = st.rec.kind == FileKind::Directory || st.rec.nlink <= 1;
        let now = match last {
            true => self.stream_entries(cx, ino, st, None)?,
            false => Vec::new(),
        };
        Ok(now == doomed.entries)
    }

    /// Logs the end of the streams of an inode that loses its last name, and removes their flag
    /// from its new record `rec`.
    pub(crate) fn log_doomed(
        &self,
        (pass, locked): (&ChangePermit<'_>, &LockedInodes<'_>),
        edits: &mut Edits,
        (ino, rec): (Ino, &mut InodeRec),
        doomed: &DoomedStreams,
        now: Time,
    ) -> Result<Vec<(Ino, InodeRec)>, Stop> {
        let mut ended = Vec::with_capacity(doomed.entries.len());
        for entry in &doomed.entries {
            let stream = unlinked(self.core.agg.guard(), locked.get(entry.ino)?.rec, now);
            edits.side(ino, kind::STREAM, entry.cookie, None);
            log_unlinked(pass, edits, entry.ino, &stream);
            ended.push((entry.ino, stream));
        }
        if !ended.is_empty() {
            rec.flags &= !flag::STREAMS;
        }
        Ok(ended)
    }

    /// Applies the changes that [`Volume::log_doomed`] logged.
    pub(crate) fn apply_doomed(
        &self,
        pass: &ChangePermit<'_>,
        locked: &mut LockedInodes<'_>,
        (ino, doomed): (Ino, &DoomedStreams),
        ended: Vec<(Ino, InodeRec)>,
        reservation: &mut Reservation<'_>,
    ) {
        for (stream, rec) in ended {
            if let Some((inode, st)) = locked.get_mut(stream) {
                self.apply_unlinked(pass, inode, st, rec, reservation);
            }
        }
        if doomed.entries.is_empty() {
            return;
        }
        if let Some((inode, st)) = locked.get_mut(ino) {
            let delta = self.touch(pass, inode, st, reservation);
            for entry in &doomed.entries {
                delta.put_side(kind::STREAM, entry.cookie, None);
            }
        }
    }
}
