//! Sends a snapshot as the difference to an older one that the destination has, or in full.
//!
//! Two roots of a volume share all unchanged nodes. So their difference is found at a cost
//! proportional to it ([`weir_store::tree::Diff`]), in the order of keys, and from any key on. Of a
//! file's window, the blocks are sent that are not the very same block on the device. A block
//! rewritten with the same contents is sent again, but nothing has to be compared or even read to
//! find out. Blocks shared between files are sent for each file, and the copy stores them as often.
//! So a window can be received by itself, in any order and after any interruption.
//!
//! Both snapshots are held, so they cannot be deleted meanwhile. Their roots are held, so that none
//! of their blocks is reused even if the whole volume is deleted.

use std::sync::Arc;

use smallvec::SmallVec;
use weir_base::Time;
use weir_base::limits::engine::SEND_MEMORY_WAITS as MEMORY_WAITS;
use weir_store::cache::Cache;
use weir_store::node::Key;
use weir_store::tree::{self, Diff, NodeSource, TreeRoot, Value};
use weir_store::{BlockPtr, Frame, StoreError};

use crate::format::record::{Window, kind};
use crate::lifecycle::mirror::{Position, SnapshotHold};
use crate::overlay::context::EngineContext;
use crate::overlay::inode::malformed;
use crate::overlay::root::RootState;
use crate::overlay::transfer_state::TransferHeader;
use crate::overlay::volume::Volume;
use crate::types::{Backpressure, FsError, Stop};
use weir_base::SnapshotIdentity;

/// A block of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRef(BlockPtr);

impl BlockRef {
    /// Returns the CRC32C of its contents, as stored by the source.
    pub fn crc(&self) -> u32 {
        self.0.crc
    }
}

/// One difference between the base and the target of a transfer.
#[derive(Debug)]
pub enum DiffItem {
    /// A record that has this value in the target.
    Put {
        /// The record's position in the order of sending.
        at: Position,
        /// The record's value in the target.
        value: Value,
    },
    /// A record that the target does not have.
    Gone {
        /// The record's position in the order of sending.
        at: Position,
    },
    /// Changed blocks of a window of 32 file blocks.
    Data {
        /// The window's position in the order of sending.
        at: Position,
        /// Blocks with contents, with their place in the window, in order.
        blocks: Vec<(u8, BlockRef)>,
        /// Blocks that are holes in the target, one bit each.
        holes: u32,
    },
}

/// The difference between two snapshots of a volume, or between one and an empty volume.
pub struct SnapshotDiff {
    volume: Arc<Volume>,
    incoming: TransferHeader,
    referenced: u64,
    old: Arc<RootState>,
    new: Arc<RootState>,
    diff: Diff,
    _holds: SmallVec<[SnapshotHold; 2]>,
}

/// A source that reads nodes for a caller that can wait, without the memory reserved for
/// checkpoints.
pub(crate) struct Source<'a>(pub(crate) &'a Volume);

impl Source<'_> {
    fn cache(&self) -> &Cache {
        self.0.core.agg.cache()
    }

    /// Reads the contents of blocks.
    pub(crate) fn read(&self, ptrs: &[BlockPtr]) -> Result<Vec<Frame>, StoreError> {
        self.fetch(ptrs)
    }

    fn fetch(&self, ptrs: &[BlockPtr]) -> Result<Vec<Frame>, StoreError> {
        for _ in 0..MEMORY_WAITS {
            match crate::overlay::event::block_on(self.cache().fetch(ptrs)) {
                Err(StoreError::NoMemory) => {
                    let wait = Stop::Wait(Backpressure::Memory);
                    let mut cx = EngineContext::new(Time::EPOCH);
                    let waited = self.0.resume_blocking(&mut cx, wait);
                    waited.map_err(|_| StoreError::NoMemory)?;
                }
                other => return other,
            }
        }
        Err(StoreError::NoMemory)
    }
}

impl NodeSource for Source<'_> {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, tree::Stop> {
        if let Some(frame) = self.cache().get(ptr) {
            return Ok(frame);
        }
        let mut frames = self.fetch(&[*ptr]).map_err(tree::Stop::Fail)?;
        frames.pop().ok_or(tree::Stop::Fail(StoreError::NoMemory))
    }

    fn prefetch(&self, ptrs: &[BlockPtr]) {
        // The failure is reported when the node itself is read.
        let _ = crate::overlay::event::block_on(self.cache().fetch(ptrs));
    }
}

fn position_of(key: Key) -> Position {
    Position(key.encode())
}

impl SnapshotDiff {
    /// Starts the difference between `base` and `target`, both snapshots of `volume`; without a
    /// base, all of `target`. If the snapshots are very new, blocks the thread until a checkpoint
    /// has made them: from then on their content is fixed.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the base is not older; `ReadOnly`.
    pub fn new(
        volume: &Arc<Volume>,
        base: Option<SnapshotIdentity>,
        target: SnapshotIdentity,
    ) -> Result<SnapshotDiff, FsError> {
        let mut holds = SmallVec::new();
        let hold = volume.hold_identity(target)?;
        let newer = hold.id();
        let new = volume.open_held(&hold)?.root.load_full();
        holds.push(hold);
        let mut old = RootState::new(TreeRoot::EMPTY);
        if let Some(base) = base {
            let hold = volume.hold_identity(base)?;
            if hold.id() >= newer {
                return Err(FsError::Invalid);
            }
            old = volume.open_held(&hold)?.root.load_full();
            holds.push(hold);
        }
        let snapshot = volume.snapshot_with(target).ok_or(FsError::NotFound)?;
        let next_ino = volume.live()?.snaps.lock().next_ino(newer);
        let key = volume.key.get();
        Ok(SnapshotDiff {
            incoming: TransferHeader {
                base,
                target,
                name: snapshot.name,
                label: snapshot.label,
                created: snapshot.created,
                next_ino: next_ino.ok_or(FsError::NotFound)?,
                key: (key.0, key.1),
            },
            referenced: snapshot.referenced,
            diff: Diff::new(&old.root, &new.root),
            old,
            new,
            volume: Arc::clone(volume),
            _holds: holds,
        })
    }

    /// Returns the description of the snapshot for the destination.
    pub fn incoming(&self) -> &TransferHeader {
        &self.incoming
    }

    /// Returns the bytes of file data in the snapshot.
    pub fn referenced(&self) -> u64 {
        self.referenced
    }

    fn failed(&self, stop: tree::Stop) -> FsError {
        let error = crate::format::reading::blocking(stop);
        tracing::error!(volume = %self.volume.id, %error, "cannot read a snapshot to send it");
        FsError::Io
    }

    /// Continues with the first difference that is not before `from`.
    ///
    /// # Errors
    /// `Io`.
    pub fn seek(&mut self, from: Position) -> Result<(), FsError> {
        let src = Source(&self.volume);
        let key = Key::decode(&from.0);
        let diff = Diff::from(&src, &self.old.root, &self.new.root, key);
        self.diff = diff.map_err(|stop| self.failed(stop))?;
        Ok(())
    }

    /// Returns the next difference; `None` at the end. Blocks the thread while it reads.
    ///
    /// # Errors
    /// `Io`.
    pub fn advance(&mut self) -> Result<Option<DiffItem>, FsError> {
        loop {
            let src = Source(&self.volume);
            let found = self.diff.advance(&src);
            let Some(found) = found.map_err(|stop| self.failed(stop))? else {
                return Ok(None);
            };
            let key = found.key;
            if kind::OWN.contains(&key.kind) {
                // The copy gets contents; it shares no blocks, and counts usage itself.
                continue;
            }
            if key.kind != kind::EXTENT {
                return Ok(Some(match found.new {
                    Some(value) => DiffItem::Put {
                        at: position_of(key),
                        value,
                    },
                    None => DiffItem::Gone {
                        at: position_of(key),
                    },
                }));
            }
            let (old, new) = (self.window(key, found.old)?, self.window(key, found.new)?);
            let (mut blocks, mut holes) = (Vec::new(), 0u32);
            for (i, (old, new)) in old.blocks.iter().zip(&new.blocks).enumerate() {
                match new {
                    Some(_) if old == new => {}
                    Some(stored) => blocks.push((i as u8, BlockRef(stored.ptr()))),
                    None if old.is_some() => holes |= 1 << i,
                    None => {}
                }
            }
            if !blocks.is_empty() || holes != 0 {
                let at = position_of(key);
                return Ok(Some(DiffItem::Data { at, blocks, holes }));
            }
        }
    }

    fn window(&self, key: Key, value: Option<Value>) -> Result<Window, FsError> {
        let Some(value) = value else {
            return Ok(Window::EMPTY);
        };
        Window::decode(&value).ok_or_else(|| {
            malformed(self.volume.id, weir_base::Ino(key.ino), "extent");
            FsError::Io
        })
    }

    /// Reads the contents of blocks, in order, from memory or the disk, and verifies the stored
    /// checksums. Blocks the thread.
    ///
    /// # Errors
    /// `Io`.
    pub fn read(&self, blocks: &[BlockRef]) -> Result<Vec<Frame>, FsError> {
        let ptrs: SmallVec<[BlockPtr; 64]> = blocks.iter().map(|b| b.0).collect();
        let read = Source(&self.volume).fetch(&ptrs);
        read.map_err(|error| self.failed(tree::Stop::Fail(error)))
    }

    /// Returns the volume that the transfer reads.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }
}
