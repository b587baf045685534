//! Online verification: reads every block of the committed trees from the device and compares it
//! with its checksum, while requests are served.
//!
//! It goes in slices of a quarter of a second at the intended rate. Within a slice a committed root
//! is held, so that none of its blocks is reused. Between slices it is released, so that a scrub of
//! hours does not keep hours of freed blocks. The next slice continues after the last key in the
//! root of that moment. Data written in between at keys already passed is not seen: it has only
//! just been written, and the next scrub sees it. The caller sets the pace between slices.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use weir_base::limits::engine::{SCRUB_LEAST as LEAST_SLICE, SCRUB_MOST as MOST_SLICE};
use weir_base::{BLOCK_SIZE, Ino, VolumeId};
use weir_store::node::Key;
use weir_store::tree::{self, Visitor};
use weir_store::verify::{Sweep, Verifier};
use weir_store::{BlockPtr, StoreError, TreeRoot};

use crate::format::catalog::AGGREGATE_TREE;
use crate::format::record::{Window, kind};
use crate::lifecycle::engine::Engine;
use crate::overlay::volume::Volume;
use crate::types::FsError;

/// A block that is damaged or cannot be read.
#[derive(Clone, Debug)]
pub struct ScrubFault {
    /// The tree: a volume, or 0 for the aggregate's own.
    pub tree: VolumeId,
    /// The file and the block within it; `None` for a node of the tree.
    pub data: Option<(Ino, u64)>,
    /// Description of the fault, with the block's place on the device.
    pub error: StoreError,
}

impl fmt::Display for ScrubFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data {
            Some((ino, block)) => write!(
                f,
                "volume {}, inode {ino}, file block {block}: {}",
                self.tree, self.error
            ),
            None => write!(f, "tree {}: {}", self.tree, self.error),
        }
    }
}

/// Paces a scrub and receives its findings.
pub trait ScrubWatch {
    /// Learns that the scrub reads about `bytes`: contents that several snapshots share count for
    /// each, as they are read. Tree nodes are not counted.
    fn expects(&mut self, bytes: u64);

    /// Returns the number of bytes a second to read.
    fn rate(&self) -> u64;

    /// Waits as long as the rate requires after a slice that read `bytes`. `Break` ends the scrub.
    fn pace(&mut self, bytes: u64) -> ControlFlow<()>;

    /// Reports a damaged block.
    fn fault(&mut self, fault: ScrubFault);
}

/// Results of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubStats {
    /// Tree nodes read and verified.
    pub nodes: u64,
    /// Data blocks read and verified.
    pub blocks: u64,
    /// Number of damaged nodes and blocks.
    pub faults: u64,
    /// True if the scrub completed.
    pub complete: bool,
}

impl Engine {
    /// Verifies everything that is committed: the aggregate's tree, the volumes' and their
    /// snapshots'. Blocks the calling thread. A block that several snapshots share is read for each
    /// of them.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`].
    pub fn scrub(&self, watch: &mut dyn ScrubWatch) -> Result<ScrubStats, StoreError> {
        let verifier = Verifier::new(self.aggregate())?;
        let mut seen = ScrubStats::default();
        let aggregate = self.aggregate();
        watch.expects(self.contents());
        // The pin comes before the root: a root is protected by its own pin and by any older one.
        let of_aggregate = || Some((aggregate.life(), aggregate.root()));
        let mut go_on = sweep(&verifier, AGGREGATE_TREE, of_aggregate, watch, &mut seen);
        for volume in self.volumes() {
            if go_on.is_break() {
                return Ok(seen);
            }
            let live = || {
                let state = volume.root.load_full();
                let root = state.root;
                Some((state, root))
            };
            go_on = sweep(&verifier, volume.id, live, watch, &mut seen);
            for snapshot in volume.snapshots() {
                if go_on.is_break() {
                    return Ok(seen);
                }
                // The snapshot may have been deleted in the meantime.
                let root = || match volume.open_snapshot(&snapshot.name) {
                    Ok(view) => {
                        let root = view.root.load().root;
                        Some((Arc::clone(&view), root))
                    }
                    Err(FsError::NotFound) => None,
                    Err(_) => None,
                };
                go_on = sweep(&verifier, volume.id, root, watch, &mut seen);
            }
        }
        seen.complete = go_on.is_continue();
        Ok(seen)
    }

    /// Returns the bytes of file data that a scrub reads.
    fn contents(&self) -> u64 {
        let of_snapshots = |volume: &Volume| -> u64 {
            let snapshots = volume.snapshots();
            snapshots.iter().map(|snapshot| snapshot.referenced).sum()
        };
        let volumes = self.volumes();
        volumes
            .iter()
            .map(|volume| volume.used() + of_snapshots(volume))
            .sum()
    }
}

/// Verifies one tree in slices. `hold` takes the current root together with the pin of its blocks.
fn sweep<T>(
    verifier: &Verifier,
    id: VolumeId,
    hold: impl Fn() -> Option<(T, TreeRoot)>,
    watch: &mut dyn ScrubWatch,
    seen: &mut ScrubStats,
) -> ControlFlow<()> {
    let mut from = Some(Key::MIN);
    while let Some(key) = from {
        let Some((held, root)) = hold() else {
            // The tree was deleted meanwhile.
            break;
        };
        let quarter = watch.rate() / 4 / BLOCK_SIZE as u64;
        let mut slice = Slice {
            tree: id,
            most: quarter.clamp(LEAST_SLICE, MOST_SLICE),
            read: 0,
            nodes: 0,
            blocks: 0,
            data: verifier.sweep(),
            last: None,
            faults: Vec::new(),
        };
        tree::walk_from(verifier, &root, key, &mut slice);
        from = match slice.enough() {
            true => slice.last.and_then(following),
            false => None,
        };
        let mut faults = slice.faults;
        slice.data.finish(&mut data_fault(id, &mut faults));
        drop(held);
        seen.nodes += slice.nodes;
        seen.blocks += slice.blocks;
        seen.faults += faults.len() as u64;
        for fault in faults {
            watch.fault(fault);
        }
        watch.pace(slice.read * BLOCK_SIZE as u64)?;
    }
    ControlFlow::Continue(())
}

/// Returns the key after `key`.
fn following(key: Key) -> Option<Key> {
    if let Some(sub) = key.sub.checked_add(1) {
        return Some(Key::new(key.ino, key.kind, sub));
    }
    if let Some(kind) = key.kind.checked_add(1) {
        return Some(Key::new(key.ino, kind, 0));
    }
    key.ino.checked_add(1).map(|ino| Key::new(ino, 0, 0))
}

/// The blocks collected by one slice.
struct Slice<'v> {
    tree: VolumeId,
    /// Number of blocks after which the slice ends.
    most: u64,
    /// Blocks read, or to be read.
    read: u64,
    nodes: u64,
    /// Data blocks read, or to be read.
    blocks: u64,
    /// Sweep that verifies data blocks, identified by file and block.
    data: Sweep<'v, (Ino, u64)>,
    last: Option<Key>,
    faults: Vec<ScrubFault>,
}

/// Reports a data block that is damaged or cannot be read.
fn data_fault(
    tree: VolumeId,
    faults: &mut Vec<ScrubFault>,
) -> impl FnMut(&BlockPtr, (Ino, u64), StoreError) {
    move |_, place, error| {
        faults.push(ScrubFault {
            tree,
            data: Some(place),
            error,
        });
    }
}

impl Visitor for Slice<'_> {
    fn node(&mut self, _ptr: &BlockPtr, _level: u8) -> bool {
        self.nodes += 1;
        self.read += 1;
        true
    }

    fn record(&mut self, key: Key, value: &[u8]) {
        self.last = Some(key);
        if self.tree == AGGREGATE_TREE || key.kind != kind::EXTENT {
            return;
        }
        // Consistency of records is for the offline check; the node's checksum is right.
        let Some(window) = Window::decode(value) else {
            // See above.
            return;
        };
        for (block, slot) in (key.sub..).zip(&window.blocks) {
            if let Some(stored) = slot {
                let mut fault = data_fault(self.tree, &mut self.faults);
                self.data
                    .push(stored.ptr(), (Ino(key.ino), block), &mut fault);
                self.blocks += 1;
                self.read += 1;
            }
        }
    }

    fn fault(&mut self, _ptr: &BlockPtr, _first: Key, error: &StoreError) {
        self.faults.push(ScrubFault {
            tree: self.tree,
            data: None,
            error: error.clone(),
        });
    }

    fn enough(&self) -> bool {
        self.read >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_one_another() {
        let max = u64::MAX;
        assert_eq!(following(Key::new(1, 2, 3)), Some(Key::new(1, 2, 4)));
        assert_eq!(following(Key::new(1, 2, max)), Some(Key::new(1, 3, 0)));
        assert_eq!(following(Key::new(1, 255, max)), Some(Key::new(2, 0, 0)));
        assert_eq!(following(Key::MAX), None);
    }
}
