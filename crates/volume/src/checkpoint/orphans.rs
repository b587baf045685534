//! The inodes of a tree that no name leads to.

use std::ops::ControlFlow;

use weir_base::Ino;
use weir_store::StoreError;
use weir_store::node::Key;
use weir_store::tree::{NodeSource, TreeRoot};

use crate::format::reading::{get, scan};
use crate::format::record::kind;

/// The inodes of a tree that no name leads to.
#[derive(Default)]
pub(crate) struct Orphans {
    /// Removed inodes whose records are still to be deleted.
    pub(crate) dying: Vec<Ino>,
    /// Inodes that were open when they lost their last name.
    pub(crate) unlinked: Vec<Ino>,
}

/// Reads the inodes of a tree that no name leads to.
pub(crate) fn read_orphans(src: &impl NodeSource, root: &TreeRoot) -> Result<Orphans, StoreError> {
    let mut orphans = Vec::new();
    let key = |sub| Key::new(0, kind::ORPHAN, sub);
    scan(src, root, key(0), key(u64::MAX), &mut |key, _| {
        orphans.push(Ino(key.sub));
        ControlFlow::Continue(())
    })?;
    let mut found = Orphans::default();
    for ino in orphans {
        match get(src, root, &Key::new(ino.0, kind::INODE, 0))? {
            Some(_) => found.unlinked.push(ino),
            None => found.dying.push(ino),
        }
    }
    Ok(found)
}
