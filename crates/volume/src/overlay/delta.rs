//! The overlay of one inode: its changes since a checkpoint.
//!
//! A delta is a layer over the tree. A key in it hides the tree's record; a tombstone hides it with
//! nothing. An inode has one *active* delta, which operations write, and *frozen* ones of segments
//! that have ended: a segment ends when a checkpoint begins or a snapshot is made. Readers search
//! the active delta, the frozen ones from the newest to the oldest, and the tree, in that order. A
//! frozen delta never changes again, so a checkpoint reads it without a lock.
//!
//! A file's data is in [`crate::overlay::file_delta`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::format::record::{Dirent, InodeRec};
use crate::format::usage::Owners;
use crate::overlay::file_delta::{FileDelta, Layer};

/// Estimated memory in bytes of a delta besides names and pages.
pub(crate) const DELTA_BYTES: u64 = 640;
/// Estimated memory in bytes of a directory entry besides its name.
pub(crate) const ENTRY_BYTES: u64 = 80;

/// State of a directory entry in a layer.
#[derive(Debug)]
pub(crate) enum Name {
    /// Exists, and no lower layer mentions its cookie. So if it is removed in the same segment it
    /// leaves no tombstone: short-lived names (temporary files, renames) leave nothing behind.
    New(Dirent),
    /// Exists, whatever the layers below contain.
    Over(Dirent),
    /// Does not exist, whatever the layers below contain.
    Gone,
}

impl Name {
    /// Returns the entry, if it exists.
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
    /// Owners before the segment.
    pub(crate) was: Owners,
    /// Attributes at the end of the segment: set when the delta is frozen.
    pub(crate) rec: Option<InodeRec>,
    /// True if the tree has no record of this inode when this delta is merged.
    pub(crate) new: bool,
    /// The inode was removed.
    pub(crate) dead: bool,
    /// True if the inode had no name before the segment ([`crate::overlay::open_inodes`]).
    pub(crate) unlinked: bool,
    /// A link's new target; empty: the inode is no longer a link, and the tree's target is deleted.
    pub(crate) symlink: Option<Box<[u8]>>,
    /// Directory entries by cookie.
    names: BTreeMap<u64, Name>,
    pub(crate) data: Option<Box<FileDelta>>,
    /// Records of [`kind::SIDE`](crate::format::record::kind::SIDE) by kind and number; `None`: the
    /// record is removed.
    side: Option<Box<Side>>,
    /// Charge to the engine's totals.
    pub(crate) charge: Charge,
}

/// Charge of overlays: blocks that their checkpoint may have to allocate, and bytes of memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    /// Blocks with a reservation.
    pub(crate) blocks: u64,
    /// Blocks taken from the floor.
    pub(crate) unreserved: u64,
    /// Blocks that are already allocated.
    pub(crate) placed: u64,
    /// Page frames, of 4 KiB each.
    pub(crate) pages: u64,
    /// Bytes of memory besides the page frames.
    pub(crate) heap: u64,
}

impl Charge {
    /// Returns the bytes of memory in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages * weir_base::BLOCK_SIZE as u64 + self.heap
    }
}

impl Delta {
    pub(crate) fn new(segment: u64, was: Owners) -> Delta {
        Delta {
            segment,
            was,
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

    /// Returns the directory entries by cookie.
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

    /// Removes the entry at `cookie`. Returns true if that took it out of memory instead of leaving
    /// a tombstone.
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

    /// Marks the inode as removed, with all its records.
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

    /// Returns the records beside the inode.
    pub(crate) fn side_range(
        &self,
        range: std::ops::RangeInclusive<(u8, u64)>,
    ) -> impl Iterator<Item = (&(u8, u64), &Option<Box<[u8]>>)> {
        let side = self.side.iter();
        side.flat_map(move |side| side.range(range.clone()))
    }

    /// Returns this layer's state of a file block.
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
        let mut d = Delta::new(1, Owners::default());
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
