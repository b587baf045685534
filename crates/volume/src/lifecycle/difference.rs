//! Lists the records that differ between two views of a volume, without their contents.

use weir_base::Ino;
use weir_store::StoreError;
use weir_store::node::Key;
use weir_store::tree;

use crate::format::reading::blocking;
use crate::format::record::kind;
use crate::overlay::volume::Volume;

/// One difference between two roots of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Difference {
    /// The inode whose record differs.
    pub ino: Ino,
    /// The part of the inode that the record describes.
    pub part: Part,
    /// The old root has the record.
    pub in_old: bool,
    /// The new root has the record.
    pub in_new: bool,
}

/// A kind of record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The record of the inode's attributes.
    Inode,
    /// A piece of a link target.
    Symlink,
    /// The directory entry with this cookie.
    Entry(u64),
    /// The 32 file blocks from this one on.
    Data(u64),
    /// Any other kind of record.
    Other,
}

impl Volume {
    /// Returns the differences between the committed trees of two views of one volume, at a cost
    /// proportional to the difference. Blocks the calling thread.
    ///
    /// # Errors
    /// As the store's.
    pub fn diff(&self, newer: &Volume) -> Result<Vec<Difference>, StoreError> {
        let (old, new) = (self.root.load_full(), newer.root.load_full());
        let src = self.core.agg.source();
        let mut out = Vec::new();
        tree::diff(&src, &old.root, &new.root, &mut |key, a, b| {
            if kind::OWN.contains(&key.kind) {
                // Neither contents nor attributes.
                return Ok(());
            }
            out.push(Difference {
                ino: Ino(key.ino),
                part: part_of(&key),
                in_old: a.is_some(),
                in_new: b.is_some(),
            });
            Ok(())
        })
        .map_err(blocking)?;
        Ok(out)
    }
}

fn part_of(key: &Key) -> Part {
    match key.kind {
        kind::INODE => Part::Inode,
        kind::SYMLINK => Part::Symlink,
        kind::DIRENT => Part::Entry(key.sub),
        kind::EXTENT => Part::Data(key.sub),
        _ => Part::Other,
    }
}
