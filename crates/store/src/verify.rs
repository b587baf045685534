//! Verifying what is on the device, past the cache.
//!
//! The cache hides damage: a block that is in memory is not read. A scrub wants
//! to know what the next start would find, and must not drive out of the cache
//! what requests need. So it reads into a few frames of its own.
//!
//! Only blocks of a durable consistency point may be verified, and only while its
//! [`RootLife`](crate::RootLife) is held: others may still be on their way to the
//! device, or have been given to somebody else. A scrub that is to take hours
//! therefore goes in slices: hold the life, [walk](crate::tree::walk_from) on
//! from the key where the last slice ended until enough has been read, let go.

use std::sync::Arc;

use crate::aggregate::Aggregate;
use crate::block::BlockPtr;
use crate::device::Device;
use crate::error::StoreError;
use crate::frame::{Class, Frame, FrameMut, FramePool};
use crate::tree::{NodeSource, Stop};

/// Most blocks in one read: 256 KiB.
const RUN: usize = 64;
/// Frames: a run, and a path of nodes that a walk holds.
const FRAMES: usize = 2 * RUN;

/// Reads blocks from the device and compares them with their pointers. For one
/// thread, which may block.
pub struct Verifier {
    device: Arc<dyn Device>,
    pool: Arc<FramePool>,
}

impl Verifier {
    /// A verifier of an aggregate's device.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`].
    pub fn new(aggregate: &Aggregate) -> Result<Verifier, StoreError> {
        Verifier::on(Arc::clone(aggregate.device()))
    }

    /// A verifier of a device.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`].
    pub fn on(device: Arc<dyn Device>) -> Result<Verifier, StoreError> {
        let pool = FramePool::new(FRAMES).map_err(|_| StoreError::NoMemory)?;
        Ok(Verifier { device, pool })
    }

    fn read(&self, run: &[BlockPtr]) -> Result<Vec<FrameMut>, StoreError> {
        let first = run.first().ok_or(StoreError::NoMemory)?.addr;
        let frame = |_: &BlockPtr| self.pool.alloc(Class::Cp).ok_or(StoreError::NoMemory);
        let frames = run.iter().map(frame).collect::<Result<Vec<_>, _>>()?;
        Ok(self.device.read(first, frames).wait()?)
    }

    /// Calls `fault` for each of the blocks that cannot be read or is not what
    /// its pointer says. Neighbours on the device are read together.
    pub fn check(&self, ptrs: &[BlockPtr], fault: &mut dyn FnMut(&BlockPtr, StoreError)) {
        let follows = |a: &BlockPtr, b: &BlockPtr| a.addr.0.checked_add(1) == Some(b.addr.0);
        for run in ptrs.chunk_by(follows).flat_map(|run| run.chunks(RUN)) {
            match self.read(run) {
                Ok(frames) => {
                    for (ptr, frame) in run.iter().zip(&frames) {
                        if !ptr.verifies(frame) {
                            fault(ptr, mismatch(ptr));
                        }
                    }
                }
                Err(e) if run.len() == 1 => run.iter().for_each(|ptr| fault(ptr, e.clone())),
                // One bad block must not hide the state of the others.
                Err(_) => run
                    .iter()
                    .for_each(|ptr| self.check(std::slice::from_ref(ptr), fault)),
            }
        }
    }
}

fn mismatch(ptr: &BlockPtr) -> StoreError {
    StoreError::Corrupt {
        addr: ptr.addr,
        what: "checksum does not match",
    }
}

impl NodeSource for Verifier {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        let mut frames = self.read(std::slice::from_ref(ptr))?;
        let frame = frames.pop().ok_or(StoreError::NoMemory)?;
        if !ptr.verifies(&frame) {
            return Err(mismatch(ptr).into());
        }
        Ok(frame.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemDevice;
    use weir_base::{BlockAddr, Generation};

    #[test]
    fn damaged_and_unreadable_blocks_are_named_and_no_others() {
        let device = Arc::new(MemDevice::new(1000));
        let write = |at: u64| {
            device.tamper(BlockAddr(at), |page| page.fill(at as u8));
            BlockPtr::to_page(BlockAddr(at), Generation(1), &[at as u8; 4096])
        };
        let mut ptrs: Vec<_> = (100..300).chain([10, 999]).map(write).collect();
        ptrs.push(BlockPtr {
            addr: BlockAddr(1000),
            ..ptrs[0]
        });
        device.tamper(BlockAddr(170), |page| page[7] ^= 1);
        device.tamper(BlockAddr(10), |page| page[7] ^= 1);
        let verifier = Verifier::on(device).unwrap();
        let mut bad = Vec::new();
        verifier.check(&ptrs, &mut |ptr, _| bad.push(ptr.addr.0));
        assert_eq!(bad, [170, 10, 1000]);
        assert!(verifier.node(&ptrs[0]).is_ok());
        assert!(matches!(
            verifier.node(&ptrs[70]),
            Err(Stop::Fail(StoreError::Corrupt { .. }))
        ));
    }
}
