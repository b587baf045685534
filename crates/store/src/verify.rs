//! Verifies blocks on the device, bypassing the cache.
//!
//! The cache hides damage: a block in memory is not read. A scrub has to find the damage that the
//! next start would find, and must not evict blocks that requests need. So it reads into a few
//! frames of its own.
//!
//! **Order.** Trees name blocks in the order of their keys, which is the order of the device only
//! for files that were written once and never changed. Read in that order, one read after the
//! other, 6 GiB took 4.5 times as long as the device needs. A [`Sweep`] therefore collects blocks,
//! sorts each batch by address, joins neighbours, and keeps [`DEPTH`] reads in flight. Meanwhile
//! the thread that walks the tree collects the next batch (OpenZFS's sorted scan, `dsl_scan.c`,
//! does the same with more memory).
//!
//! Only blocks of a durable checkpoint may be verified, and only while its
//! [`RootPin`](crate::RootPin) is held. Other blocks may still be on their way to the device, or
//! have been reallocated. A scrub that takes hours therefore goes in slices. A slice holds the pin,
//! [walks](crate::tree::walk_from) on from the key where the last one ended until enough has been
//! read, and drops the pin.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use weir_base::limits::engine::{VERIFY_BATCH as BATCH, VERIFY_DEPTH as DEPTH, VERIFY_READ as RUN};

use crate::aggregate::Aggregate;
use crate::block::BlockPtr;
use crate::device::{Device, Io};
use crate::error::{IoError, StoreError};
use crate::frame::{Class, Frame, FrameMut, FramePool};
use crate::tree::{NodeSource, Stop};

/// Frames for the reads in flight, and for the path of nodes that a walk holds: 4.2 MiB.
const FRAMES: usize = DEPTH * RUN + RUN;
/// Blocks after which a sweep polls for completed reads. The device reads far more in the time that
/// it takes to collect them.
const LOOK: usize = 64;

/// Reads blocks from the device and compares them with their pointers. For one thread, which may
/// block.
pub struct Verifier {
    device: Arc<dyn Device>,
    pool: Arc<FramePool>,
}

impl Verifier {
    /// Creates a verifier of an aggregate's device.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`].
    pub fn new(aggregate: &Aggregate) -> Result<Verifier, StoreError> {
        Verifier::on(Arc::clone(aggregate.device()))
    }

    /// Creates a verifier of a device.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`].
    pub fn on(device: Arc<dyn Device>) -> Result<Verifier, StoreError> {
        let pool = FramePool::new(FRAMES).map_err(|_| StoreError::NoMemory)?;
        Ok(Verifier { device, pool })
    }

    /// Starts reading `count` blocks from that of `first` on.
    fn read(&self, first: &BlockPtr, count: usize) -> Result<Io<Vec<FrameMut>>, StoreError> {
        let frame = |_| self.pool.alloc(Class::Cp).ok_or(StoreError::NoMemory);
        let frames = (0..count).map(frame).collect::<Result<Vec<_>, _>>()?;
        Ok(self.device.read(first.addr, frames))
    }

    fn read_one(&self, ptr: &BlockPtr) -> Result<FrameMut, StoreError> {
        let mut frames = self.read(ptr, 1)?.wait()?;
        let frame = frames.pop().ok_or(StoreError::NoMemory)?;
        if ptr.verifies(&frame) {
            Ok(frame)
        } else {
            Err(mismatch(ptr))
        }
    }

    /// Starts a sweep over blocks that the caller identifies by a `T`.
    pub fn sweep<T>(&self) -> Sweep<'_, T> {
        Sweep {
            verifier: self,
            batch: Vec::new(),
            sorted: VecDeque::new(),
            flight: VecDeque::new(),
        }
    }
}

/// Callback for each block that cannot be read or does not match its pointer.
pub type OnFault<'f, T> = &'f mut dyn FnMut(&BlockPtr, T, StoreError);

type Blocks<T> = Vec<(BlockPtr, T)>;

/// Verifies many blocks: see the module's head.
pub struct Sweep<'v, T> {
    verifier: &'v Verifier,
    /// Blocks that are not sorted yet.
    batch: Blocks<T>,
    /// Blocks in the order of addresses, not read yet.
    sorted: VecDeque<(BlockPtr, T)>,
    flight: VecDeque<(Io<Vec<FrameMut>>, Blocks<T>)>,
}

impl<T> Sweep<'_, T> {
    /// Adds a block. Blocks the thread only if a full batch has to be processed.
    pub fn push(&mut self, ptr: BlockPtr, of: T, fault: OnFault<'_, T>) {
        self.batch.push((ptr, of));
        if self.batch.len() >= BATCH {
            self.read_sorted(fault);
            self.sort();
        }
        if self.batch.len().is_multiple_of(LOOK) {
            self.reap(fault);
            self.fill(fault);
        }
    }

    /// Blocks until everything is verified.
    pub fn finish(mut self, fault: OnFault<'_, T>) {
        self.read_sorted(fault);
        self.sort();
        self.read_sorted(fault);
        while self.settle_oldest(fault) {}
    }

    fn sort(&mut self) {
        self.batch.sort_by_key(|(ptr, _)| ptr.addr);
        self.sorted.extend(self.batch.drain(..));
    }

    /// Blocks until reads of all sorted blocks have started.
    fn read_sorted(&mut self, fault: OnFault<'_, T>) {
        self.fill(fault);
        while !self.sorted.is_empty() {
            self.settle_oldest(fault);
            self.fill(fault);
        }
    }

    /// Starts as many reads as may be in flight.
    fn fill(&mut self, fault: OnFault<'_, T>) {
        while self.flight.len() < DEPTH {
            let Some((first, of)) = self.sorted.pop_front() else {
                // All blocks are read, or being read.
                return;
            };
            let mut run = vec![(first, of)];
            let mut next = first.addr.checked_add(1);
            while run.len() < RUN
                && let Some((ptr, _)) = self.sorted.front()
                && next == Some(ptr.addr)
            {
                next = ptr.addr.checked_add(1);
                run.extend(self.sorted.pop_front());
            }
            match self.verifier.read(&first, run.len()) {
                Ok(read) => self.flight.push_back((read, run)),
                Err(error) => run
                    .into_iter()
                    .for_each(|(ptr, of)| fault(&ptr, of, error.clone())),
            }
        }
    }

    /// Processes the oldest reads that are complete.
    fn reap(&mut self, fault: OnFault<'_, T>) {
        let mut nobody = Context::from_waker(Waker::noop());
        while let Some((read, _)) = self.flight.front_mut()
            && let Poll::Ready(result) = Pin::new(read).poll(&mut nobody)
        {
            if let Some((_, run)) = self.flight.pop_front() {
                self.verify_read(result, run, fault);
            }
        }
    }

    /// Blocks until the oldest read is complete; returns `false` if there is none.
    fn settle_oldest(&mut self, fault: OnFault<'_, T>) -> bool {
        let Some((read, run)) = self.flight.pop_front() else {
            return false;
        };
        self.verify_read(read.wait(), run, fault);
        true
    }

    fn verify_read(
        &self,
        read: Result<Vec<FrameMut>, IoError>,
        run: Blocks<T>,
        fault: OnFault<'_, T>,
    ) {
        match read {
            Ok(frames) => {
                for ((ptr, of), frame) in run.into_iter().zip(&frames) {
                    if !ptr.verifies(frame) {
                        fault(&ptr, of, mismatch(&ptr));
                    }
                }
            }
            // One bad block must not hide the state of the others.
            Err(_) => {
                for (ptr, of) in run {
                    if let Err(error) = self.verifier.read_one(&ptr) {
                        fault(&ptr, of, error);
                    }
                }
            }
        }
    }
}

fn mismatch(ptr: &BlockPtr) -> StoreError {
    StoreError::Corrupt {
        addr: ptr.addr,
        what: "wrong checksum",
    }
}

impl NodeSource for Verifier {
    fn node(&self, ptr: &BlockPtr) -> Result<Frame, Stop> {
        Ok(self.read_one(ptr)?.freeze())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;

    use super::*;
    use crate::device::MemDevice;
    use weir_base::{BLOCK_SIZE, BlockAddr, Generation};

    const BLOCKS: u64 = 1000;

    /// A device that records its reads.
    struct RecordingDevice {
        disk: MemDevice,
        reads: Mutex<Vec<(u64, usize)>>,
    }

    impl Device for RecordingDevice {
        fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
            self.reads.lock().push((addr.0, into.len()));
            self.disk.read(addr, into)
        }
        fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
            self.disk.write(addr, from)
        }
        fn flush(&self) -> Io<()> {
            self.disk.flush()
        }
        fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
            self.disk.discard(addr, count)
        }
        fn length(&self) -> u64 {
            self.disk.length()
        }
        fn grow(&self, blocks: u64) -> io::Result<u64> {
            self.disk.grow(blocks)
        }
    }

    fn device() -> (Arc<RecordingDevice>, Verifier) {
        let disk = MemDevice::new(BLOCKS);
        for at in 0..BLOCKS {
            disk.tamper(BlockAddr(at), |page| page.fill(at as u8));
        }
        let reads = Mutex::default();
        let device = Arc::new(RecordingDevice { disk, reads });
        let verifier = Verifier::on(Arc::clone(&device) as _).unwrap();
        (device, verifier)
    }

    fn ptr(at: u64) -> BlockPtr {
        BlockPtr::to_page(BlockAddr(at), Generation(1), &[at as u8; BLOCK_SIZE])
    }

    fn bad(verifier: &Verifier, blocks: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut bad = Vec::new();
        let mut note = |ptr: &BlockPtr, of, _| bad.push((ptr.addr.0, of));
        let mut sweep = verifier.sweep();
        for at in blocks {
            sweep.push(ptr(at), 10 * at, &mut note);
        }
        sweep.finish(&mut note);
        bad
    }

    #[test]
    fn damaged_and_unreadable_blocks_are_named_and_no_others() {
        let (device, verifier) = device();
        device.disk.tamper(BlockAddr(170), |page| page[7] ^= 1);
        device.disk.tamper(BlockAddr(10), |page| page[7] ^= 1);
        // The last one is beyond the device, and fails the read of its neighbours.
        let found = bad(&verifier, (100..300).chain([10, 999, BLOCKS]));
        assert_eq!(found, [(10, 100), (170, 1700), (BLOCKS, 10 * BLOCKS)]);
        assert!(verifier.node(&ptr(100)).is_ok());
        assert!(matches!(
            verifier.node(&ptr(170)),
            Err(Stop::Fail(StoreError::Corrupt { .. }))
        ));
    }

    /// The device is read from its start to its end, whatever order the tree names blocks in.
    #[test]
    fn blocks_are_read_in_the_order_of_the_device_and_together() {
        let (device, verifier) = device();
        // 613 and 1000 have no common factor: each block once.
        let order = (0..BLOCKS).map(|n| n * 613 % BLOCKS);
        assert_eq!(bad(&verifier, order), []);
        let reads = device.reads.lock();
        assert_eq!(reads.len(), BLOCKS.div_ceil(RUN as u64) as usize);
        assert!(reads.is_sorted());
    }
}
