//! A device in memory, for tests of the layers above a device. It has no faults and is durable at
//! once; the simulated device that loses and tears writes is a different one.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::{BLOCK_SIZE, BlockAddr};

use super::{Device, Discards, Hints, Io};
use crate::error::{IoError, IoKind};
use crate::frame::{Frame, FrameMut};

/// A sparse device in memory. Blocks that were never written read as zeroes.
pub struct MemDevice {
    blocks: Mutex<HashMap<u64, Box<[u8; BLOCK_SIZE]>>>,
    length: AtomicU64,
    max: u64,
    discards: Discards,
    hints: Hints,
    longest_write: AtomicU64,
    /// Blocks without space. They cannot be written.
    holes: Mutex<BTreeSet<u64>>,
    host_full: AtomicBool,
    discarded: AtomicU64,
}

impl MemDevice {
    /// Creates a device of `length` blocks.
    pub fn new(length: u64) -> MemDevice {
        MemDevice::growable(length, length)
    }

    /// Creates a device of `length` blocks that may grow to `max`.
    pub fn growable(length: u64, max: u64) -> MemDevice {
        MemDevice {
            blocks: Mutex::default(),
            length: AtomicU64::new(length),
            max: max.max(length),
            discards: Discards::Never,
            hints: Hints {
                prepared: true,
                ..Hints::DISK
            },
            longest_write: AtomicU64::new(0),
            holes: Mutex::default(),
            host_full: AtomicBool::new(false),
            discarded: AtomicU64::new(0),
        }
    }

    /// Makes discards have this effect.
    #[must_use]
    pub fn discarding(self, discards: Discards) -> MemDevice {
        MemDevice { discards, ..self }
    }

    /// Gives the device these hints.
    #[must_use]
    pub fn hinting(self, hints: Hints) -> MemDevice {
        MemDevice { hints, ..self }
    }

    /// Returns the number of blocks in the longest write so far.
    pub fn longest_write(&self) -> u64 {
        self.longest_write.load(Ordering::Relaxed)
    }

    /// Makes the host refuse all space from now on, or not any more.
    pub fn set_host_full(&self, full: bool) {
        self.host_full.store(full, Ordering::Relaxed);
    }

    /// Returns the number of blocks that were discarded and not provisioned again.
    pub fn holes(&self) -> u64 {
        self.holes.lock().len() as u64
    }

    /// Returns true if any of these blocks has no space.
    pub fn any_hole(&self, addr: BlockAddr, count: u64) -> bool {
        let range = addr.0..addr.0 + count;
        self.holes.lock().range(range).next().is_some()
    }

    /// Returns the first block without space.
    pub fn first_hole(&self) -> Option<BlockAddr> {
        self.holes.lock().first().copied().map(BlockAddr)
    }

    /// Returns the number of blocks discarded so far.
    pub fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }

    /// Changes a block without a write, as a fault at rest would.
    pub fn tamper(&self, addr: BlockAddr, with: impl FnOnce(&mut [u8; BLOCK_SIZE])) {
        with(
            self.blocks
                .lock()
                .entry(addr.0)
                .or_insert_with(|| Box::new([0; BLOCK_SIZE])),
        );
    }

    fn check(&self, kind: IoKind, addr: BlockAddr, count: u64) -> Result<(), IoError> {
        match addr.checked_add(count) {
            Some(end) if end.0 <= self.length() => Ok(()),
            _ => Err(IoError::new(
                kind,
                addr,
                count,
                io::ErrorKind::InvalidInput.into(),
            )),
        }
    }
}

impl Device for MemDevice {
    fn read(&self, addr: BlockAddr, mut into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        if let Err(e) = self.check(IoKind::Read, addr, into.len() as u64) {
            return Io::ready(Err(e));
        }
        let blocks = self.blocks.lock();
        for (n, frame) in (addr.0..).zip(&mut into) {
            match blocks.get(&n) {
                Some(block) => frame.copy_from_slice(&block[..]),
                None => frame.fill(0),
            }
        }
        Io::ready(Ok(into))
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        if let Err(e) = self.check(IoKind::Write, addr, from.len() as u64) {
            return Io::ready(Err(e));
        }
        let count = from.len() as u64;
        self.longest_write.fetch_max(count, Ordering::Relaxed);
        if self.any_hole(addr, count) {
            let full = io::ErrorKind::StorageFull.into();
            return Io::ready(Err(IoError::new(IoKind::Write, addr, count, full)));
        }
        let mut blocks = self.blocks.lock();
        for (n, frame) in (addr.0..).zip(&from) {
            blocks.insert(n, Box::new(**frame));
        }
        Io::ready(Ok(()))
    }

    fn flush(&self) -> Io<()> {
        Io::ready(Ok(()))
    }

    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        if let Err(e) = self.check(IoKind::Discard, addr, count) {
            return Io::ready(Err(e));
        }
        let range = addr.0..addr.0 + count;
        self.discarded.fetch_add(count, Ordering::Relaxed);
        if self.discards == Discards::Deprovision {
            self.holes.lock().extend(range.clone());
        }
        self.blocks.lock().retain(|n, _| !range.contains(n));
        Io::ready(Ok(()))
    }

    fn discards(&self) -> Discards {
        self.discards
    }

    fn provision(&self, addr: BlockAddr, count: u64) -> io::Result<()> {
        if self.host_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let range = addr.0..addr.0 + count;
        self.holes.lock().retain(|n| !range.contains(n));
        Ok(())
    }

    fn find_discarded(&self, found: &mut dyn FnMut(BlockAddr, u64)) -> io::Result<()> {
        let holes = self.holes.lock().clone();
        holes.into_iter().for_each(|n| found(BlockAddr(n), 1));
        Ok(())
    }

    fn hints(&self) -> Hints {
        self.hints
    }

    fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        let full = self.host_full.load(Ordering::Relaxed) && blocks > self.length();
        if blocks > self.max || full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(self.length.fetch_max(blocks, Ordering::AcqRel).max(blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Class, FramePool};

    #[test]
    fn reads_what_was_written_and_zeroes_elsewhere() {
        let pool = FramePool::new(64).unwrap();
        let dev = MemDevice::growable(4, 8);
        let mut f = pool.alloc(Class::Cp).unwrap();
        f.fill(9);
        dev.write(BlockAddr(2), vec![f.freeze()]).wait().unwrap();
        let into = (0..4).map(|_| pool.alloc(Class::Cp).unwrap()).collect();
        let got = dev.read(BlockAddr(0), into).wait().unwrap();
        let first: Vec<u8> = got.iter().map(|f| f[4095]).collect();
        assert_eq!(first, [0, 0, 9, 0]);
        assert!(dev.write(BlockAddr(4), vec![Frame::zero()]).wait().is_err());
        assert!(dev.read(BlockAddr(u64::MAX), got).wait().is_err());
        assert_eq!(dev.grow(6).unwrap(), 6);
        assert_eq!(dev.grow(2).unwrap(), 6);
        assert!(dev.grow(9).is_err());
        dev.write(BlockAddr(4), vec![Frame::zero()]).wait().unwrap();
        dev.discard(BlockAddr(0), 6).wait().unwrap();
        let got = dev
            .read(BlockAddr(2), vec![pool.alloc(Class::Cp).unwrap()])
            .wait()
            .unwrap();
        assert_eq!(got[0][0], 0);
    }
}
