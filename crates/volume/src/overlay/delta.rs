//! The overlay of one inode: what changed since a checkpoint.
//!
//! A delta is a layer over the tree: a key that it mentions hides the tree's record, a tombstone hides it with nothing.
//! An inode has one *active* delta, which operations write, and *frozen* ones of segments that have ended: a segment
//! ends when a checkpoint begins or a snapshot is made. Readers search active, frozen from the newest to the
//! oldest, tree, in that order. A frozen delta is never changed again, so a checkpoint reads it without a lock.
//!
//! A file's data is in [`crate::overlay::file_delta`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::format::record::{Dirent, InodeRec};
use crate::overlay::file_delta::{FileDelta, Layer};

/// Estimated bytes that a delta takes in memory besides names and pages.
pub(crate) const DELTA_BYTES: u64 = 640;
/// The same for a directory entry, besides its name.
pub(crate) const ENTRY_BYTES: u64 = 80;

/// What a layer says about a directory entry.
#[derive(Debug)]
pub(crate) enum Name {
    /// It is there, and no layer below mentions its cookie. So when it is removed
    /// in the same segment nothing has to be remembered: names that come and go
    /// (temporary files, renames) leave no tombstones behind.
    New(Dirent),
    /// It is there, whatever the layers below say.
    Over(Dirent),
    /// It is not there, whatever the layers below say.
    Gone,
}

impl Name {
    /// The entry, if there is one.
    pub(crate) fn entry(&self) -> Option<&Dirent> {
        match self {
            Name::New(entry) | Name::Over(entry) => Some(entry),
            Name::Gone => None,
        }
    }
}

type Side = BTreeMap<(u8, u64), Option<Box<[u8]>>>;

/// All changes to one inode in one segment.
#[derive(Debug)]
pub(crate) struct Delta {
    /// The segment of the volume's history that the changes belong to.
    pub(crate) segment: u64,
    /// The attributes at the end of the segment: set when the delta is frozen.
    pub(crate) rec: Option<InodeRec>,
    /// The tree has nothing of this inode when this delta is merged.
    pub(crate) new: bool,
    /// The inode was removed.
    pub(crate) dead: bool,
    /// It had no name before already ([`crate::overlay::unlinked`]).
    pub(crate) unlinked: bool,
    /// A link's new target; empty: it is no link any more, and what the tree has of a target goes.
    pub(crate) symlink: Option<Box<[u8]>>,
    /// Directory entries by cookie.
    names: BTreeMap<u64, Name>,
    pub(crate) data: Option<Box<FileDelta>>,
    /// Records of [`kind::SIDE`](crate::format::record::kind::SIDE) by kind and number; `None`: there is no such record.
    side: Option<Box<Side>>,
    /// What it counts for in the engine's totals.
    pub(crate) charge: Charge,
}

/// What overlays count for: blocks that their checkpoint may have to
/// allocate, and bytes of memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    /// Blocks with a reservation.
    pub(crate) blocks: u64,
    /// Blocks that come out of the floor.
    pub(crate) unreserved: u64,
    /// Blocks that are allocated already.
    pub(crate) placed: u64,
    /// Page frames, of 4 KiB each.
    pub(crate) pages: u64,
    /// Bytes of memory besides the page frames.
    pub(crate) heap: u64,
}

impl Charge {
    /// Bytes of memory in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages * weir_base::BLOCK_SIZE as u64 + self.heap
    }
}

impl Delta {
    pub(crate) fn new(segment: u64) -> Delta {
        Delta {
            segment,
            rec: None,
            new: false,
            dead: false,
            unlinked: false,
            symlink: None,
            names: BTreeMap::new(),
            data: None,
            side: None,
            charge: Charge::default(),
        }
    }

    pub(crate) fn file(&mut self) -> &mut FileDelta {
        self.data.get_or_insert_default()
    }

    /// Directory entries by cookie.
    pub(crate) fn names(&self) -> &BTreeMap<u64, Name> {
        &self.names
    }

    /// Sets the entry at `cookie`. `bare`: no layer below mentions the cookie.
    pub(crate) fn put_name(&mut self, cookie: u64, entry: Dirent, bare: bool) {
        match self.names.entry(cookie) {
            Entry::Vacant(place) => {
                place.insert(if bare {
                    Name::New(entry)
                } else {
                    Name::Over(entry)
                });
            }
            Entry::Occupied(mut place) => {
                let new = matches!(place.get(), Name::New(_));
                place.insert(if new {
                    Name::New(entry)
                } else {
                    Name::Over(entry)
                });
            }
        }
    }

    /// Removes the entry at `cookie`; returns whether that took it out of memory instead of leaving a tombstone.
    pub(crate) fn remove_name(&mut self, cookie: u64) -> bool {
        match self.names.entry(cookie) {
            Entry::Vacant(place) => {
                place.insert(Name::Gone);
                false
            }
            Entry::Occupied(place) if matches!(place.get(), Name::New(_)) => {
                place.remove();
                true
            }
            Entry::Occupied(mut place) => {
                place.insert(Name::Gone);
                false
            }
        }
    }

    /// Notes that the inode is gone, with all that it had.
    pub(crate) fn bury(&mut self) {
        self.dead = true;
        self.file().cut(0);
        self.names.clear();
        self.side = None;
    }

    /// Sets a record beside the inode, or removes it.
    pub(crate) fn put_side(&mut self, kind: u8, sub: u64, value: Option<Box<[u8]>>) {
        self.side.get_or_insert_default().insert((kind, sub), value);
    }

    /// Records beside the inode.
    pub(crate) fn side_range(
        &self,
        range: std::ops::RangeInclusive<(u8, u64)>,
    ) -> impl Iterator<Item = (&(u8, u64), &Option<Box<[u8]>>)> {
        let side = self.side.iter();
        side.flat_map(move |side| side.range(range.clone()))
    }

    /// What this layer says about a file block.
    pub(crate) fn block(&self, block: u64) -> Layer<'_> {
        if let Some(data) = &self.data {
            match data.get(block) {
                Layer::Below => {}
                found => return found,
            }
        }
        if self.new { Layer::Hole } else { Layer::Below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::Ino;

    #[test]
    fn names_over_nothing_leave_no_tombstone() {
        let entry = || Dirent {
            ino: Ino(9),
            kind: crate::types::FileKind::Regular,
            name: b"n"[..].into(),
        };
        let mut d = Delta::new(1);
        d.put_name(256, entry(), true);
        d.put_name(256, entry(), false);
        assert!(
            d.remove_name(256),
            "replacing an entry puts nothing below it"
        );
        assert!(d.names().is_empty());
        d.put_name(512, entry(), false);
        assert!(!d.remove_name(512));
        d.put_name(512, entry(), true);
        assert!(matches!(d.names().get(&512), Some(Name::Over(_))));
        assert!(!d.remove_name(512));
        assert!(!d.remove_name(768));
        let gone = d.names().values().all(|n| matches!(n, Name::Gone));
        assert!(gone && d.names().len() == 2);
    }
}
