//! Records beside an inode that the engine stores without interpreting them: extended attributes
//! and access control lists.
//!
//! Both are values of up to 64 KiB, stored in pieces of a tree value each
//! ([`crate::format::side`]). Attributes of one inode are found by a hash of their folded name
//! ([`crate::format::fold`]). So a protocol that ignores case in names (SMB's EAs) finds the same
//! attributes as one that does not (RFC 8276). An access control list has no name. The layer above
//! interprets the values.
//!
//! A record is changed as a whole, in the log and in the overlay: an edit contains the new value,
//! or none. Inodes without any, which are nearly all, cost nothing: a flag in the inode says
//! whether there are records to read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use weir_base::Ino;
use weir_base::limits::{MAX_NAME, MAX_VALUE, MAX_XATTR};
use weir_store::node::Key;
use weir_store::tree;

use crate::format::edit::Edits;
use crate::format::hash::{DISAMBIGUATOR_BITS, first_cookie};
use crate::format::record::{flag, kind};
use crate::format::side::{PIECE_BITS, Pieces, SAME_HASH, decode, difference, encode, join};
use crate::ops::admission::SMALL_OP;
use crate::overlay::context::{EngineContext, Source};
use crate::overlay::delta::ENTRY_BYTES;
use crate::overlay::inode::{State, alive, malformed, stamped};
use crate::overlay::volume::Volume;
use crate::types::{Attr, Change, Done, FsError, Stop};

/// Treatment of an existing attribute when one is set (RFC 8276 section 8.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetHow {
    /// Replaces an existing attribute, or creates a new one.
    Either,
    /// An existing attribute is an error (`Exists`).
    Create,
    /// A missing attribute is an error (`NotFound`).
    Replace,
}

impl Volume {
    /// Returns the records of one kind of an inode, whose lock the caller holds.
    pub(crate) fn side(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        kind: u8,
        (from, to): (u64, u64),
    ) -> Result<Pieces, Stop> {
        let mut found = Pieces::new();
        let mut decided: BTreeMap<u64, bool> = BTreeMap::new();
        for delta in st.layers() {
            for ((_, sub), value) in delta.side_range((kind, from)..=(kind, to)) {
                if decided.insert(*sub, true).is_none()
                    && let Some(value) = value
                {
                    found.insert(*sub, value.to_vec());
                }
            }
            if delta.new {
                return Ok(found);
            }
        }
        let root = self.root.load();
        let src = Source {
            cache: self.core.agg.cache(),
            cx,
        };
        let (first, last) = (Key::new(ino.0, kind, from), Key::new(ino.0, kind, to));
        tree::scan(&src, &root.root, first, last, &mut |key, value| {
            if !decided.contains_key(&key.sub) {
                found.insert(key.sub, value.to_vec());
            }
            ControlFlow::Continue(())
        })
        .map_err(|s| self.stop(cx, &root, s))?;
        Ok(found)
    }

    /// Returns the attributes with the hash of `name`: the first number that they can have, their
    /// pieces, and these joined.
    fn xattrs_at(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        st: &State,
        name: &[u8],
    ) -> Result<(u64, Pieces, Pieces), Stop> {
        let first = first_cookie(self.key.get(), name);
        if st.rec.flags & flag::XATTRS == 0 {
            return Ok((first, Pieces::new(), Pieces::new()));
        }
        let last = first | ((1 << DISAMBIGUATOR_BITS) - 1);
        let pieces = self.side(cx, ino, st, kind::XATTR, (first, last))?;
        let joined = join(&pieces).ok_or_else(|| malformed(self.id, ino, "attribute"))?;
        Ok((first, pieces, joined))
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// `NotFound`, `Stale`, `Io`.
    pub fn xattr(&self, cx: &mut EngineContext, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        alive(&st)?;
        let (_, _, joined) = self.xattrs_at(cx, ino, &st, name)?;
        for bytes in joined.values() {
            match decode(bytes) {
                Some((found, value)) if found == name => return Ok(value.to_vec()),
                Some(_) => {}
                None => return Err(malformed(self.id, ino, "attribute")),
            }
        }
        Err(FsError::NotFound.into())
    }

    /// Returns the names of all extended attributes, in a stable order.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn xattrs(&self, cx: &mut EngineContext, ino: Ino) -> Result<Vec<Vec<u8>>, Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        alive(&st)?;
        if st.rec.flags & flag::XATTRS == 0 {
            return Ok(Vec::new());
        }
        let pieces = self.side(cx, ino, &st, kind::XATTR, (0, u64::MAX))?;
        let bad = || malformed(self.id, ino, "attribute");
        let joined = join(&pieces).ok_or_else(bad)?;
        let names = joined.values().map(|bytes| decode(bytes));
        let names = names.map(|found| found.map(|(name, _)| name.to_vec()));
        names.collect::<Option<_>>().ok_or_else(bad)
    }

    /// Sets an extended attribute, or removes it (`None`). Durable once the log has reached
    /// `Done::lsn`.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (see [`SetHow`]; also for removing a missing attribute); `NameTooLong`;
    /// `Invalid` for an empty name or a value of more than [`MAX_XATTR`] bytes; `NoSpace`,
    /// `ReadOnly`, `Stale`, `Io`.
    pub fn set_xattr(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetHow,
    ) -> Result<Done<Change>, Stop> {
        self.set_xattr_if(cx, ino, name, value, how, || Ok(()))
    }

    /// Like [`Volume::set_xattr`], if `allowed` permits it at the moment of the change: it is
    /// evaluated under the file's lock. It must not wait for anything.
    ///
    /// # Errors
    /// As [`Volume::set_xattr`], and the errors of `allowed`.
    pub fn set_xattr_if<E: From<Stop> + From<FsError>>(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetHow,
        allowed: impl FnOnce() -> Result<(), E>,
    ) -> Result<Done<Change>, E> {
        if name.len() > MAX_NAME {
            return Err(FsError::NameTooLong.into());
        }
        if name.is_empty() || value.is_some_and(|value| value.len() > MAX_XATTR) {
            return Err(FsError::Invalid.into());
        }
        let bytes = value.map(|value| encode(name, value));
        self.set_side(cx, ino, kind::XATTR, bytes.as_deref(), None, |cx, st| {
            let (first, pieces, joined) = self.xattrs_at(cx, ino, st, name)?;
            let mut own = None;
            for (of, bytes) in &joined {
                let (found, _) =
                    decode(bytes).ok_or_else(|| malformed(self.id, ino, "attribute"))?;
                if found == name {
                    own = Some(*of);
                }
            }
            match (own, value, how) {
                (Some(_), Some(_), SetHow::Create) => return Err(FsError::Exists.into()),
                (None, Some(_), SetHow::Replace) | (None, None, _) => {
                    return Err(FsError::NotFound.into());
                }
                _ => {}
            }
            let free = || {
                let mut places = (first >> PIECE_BITS..).take(SAME_HASH as usize);
                places.find(|of| !joined.contains_key(of))
            };
            let of = own.or_else(free).ok_or(FsError::NoSpace)?;
            allowed()?;
            Ok((of << PIECE_BITS, pieces, flag::XATTRS))
        })
    }

    /// Returns the access control list, as passed to [`Volume::set_acl`].
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn acl(&self, cx: &mut EngineContext, ino: Ino) -> Result<Option<Vec<u8>>, Stop> {
        let inode = self.inode(cx, ino)?;
        let st = inode.state.read();
        alive(&st)?;
        if st.rec.flags & flag::ACL == 0 {
            return Ok(None);
        }
        let pieces = self.side(cx, ino, &st, kind::ACL, (0, u64::MAX))?;
        Ok(Some(pieces.into_values().flatten().collect()))
    }

    /// Sets the access control list, or removes it. Durable once the log has reached `Done::lsn`.
    ///
    /// # Errors
    /// `Invalid` for a list that is empty or has more than [`MAX_XATTR`] bytes; `NoSpace`,
    /// `ReadOnly`, `Stale`, `Io`.
    pub fn set_acl(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        acl: Option<&[u8]>,
    ) -> Result<Done<Change>, Stop> {
        self.set_acl_if(cx, ino, acl, None, || Ok(()))
    }

    /// Like [`Volume::set_acl`], together with the mode, if `allowed` permits it at the moment of
    /// the change: it is evaluated under the file's lock. It must not wait for anything.
    ///
    /// # Errors
    /// As [`Volume::set_acl`], and the errors of `allowed`.
    pub fn set_acl_if<E: From<Stop> + From<FsError>>(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        acl: Option<&[u8]>,
        mode: Option<u32>,
        allowed: impl FnOnce() -> Result<(), E>,
    ) -> Result<Done<Change>, E> {
        if acl.is_some_and(|acl| acl.is_empty() || acl.len() > MAX_XATTR) {
            return Err(FsError::Invalid.into());
        }
        self.set_side(cx, ino, kind::ACL, acl, mode, |cx, st| {
            let old = match st.rec.flags & flag::ACL {
                0 => Pieces::new(),
                _ => self.side(cx, ino, st, kind::ACL, (0, u64::MAX))?,
            };
            allowed()?;
            Ok((0, old, flag::ACL))
        })
    }

    /// Replaces a value of `kind`. `find` returns the number where it begins, its current pieces,
    /// and the flag for its existence. `mode`, if given, is set as well.
    fn set_side<E: From<Stop> + From<FsError>>(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        kind: u8,
        value: Option<&[u8]>,
        mode: Option<u32>,
        find: impl FnOnce(&mut EngineContext, &State) -> Result<(u64, Pieces, u16), E>,
    ) -> Result<Done<Change>, E> {
        self.writable()?;
        let bytes = value.map_or(0, <[u8]>::len) as u64;
        let blocks = 4 + bytes.div_ceil(MAX_VALUE as u64);
        let mut reservation = match value {
            Some(_) => self.reserve(cx, blocks)?,
            None => self.reserve_for_delete(cx, 4 + (MAX_XATTR / MAX_VALUE) as u64)?,
        };
        self.core.schedule.admit(SMALL_OP + 2 * bytes)?;
        let inode = self.inode(cx, ino)?;
        let pass = self.enter()?;
        let mut st = inode.state.write();
        let st = &mut *st;
        alive(st)?;
        let before: Attr = self.attr_of(ino, st);
        let (base, old, flag) = find(cx, st)?;
        let changes = difference(base, &old, value);
        let mut rec = stamped(st.rec, cx.now, false);
        if let Some(mode) = mode {
            rec.mode = (mode & 0o7777) as u16;
        }
        rec.flags = match (value, kind) {
            (Some(_), _) => rec.flags | flag,
            // Other attributes may be left.
            (None, kind::XATTR) => rec.flags,
            (None, _) => rec.flags & !flag,
        };
        let mut edits = Edits::new(self.id, 160 + bytes as usize);
        for (sub, value) in &changes {
            edits.side(ino, kind, *sub, value.as_deref());
        }
        edits.inode(ino, &rec);
        let lsn = self.core.log.append_call(cx, self.id, edits, ino)?;
        let delta = self.touch(&pass, &inode, st, &mut reservation);
        for (sub, value) in changes {
            let heap = ENTRY_BYTES + value.as_ref().map_or(0, Vec::len) as u64;
            delta.put_side(kind, sub, value.map(Vec::into_boxed_slice));
            let charge = reservation.take(1);
            self.charge(delta, charge, heap);
        }
        st.rec = rec;
        st.unlogged = false;
        Ok(Done {
            value: Change {
                before,
                after: self.attr_of(ino, st),
            },
            lsn: Some(lsn),
        })
    }
}
