//! Promises of [`Device`], as tests that every implementation passes: in memory, in a file, on
//! simulated and real objects of RADOS.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use weir_base::{BLOCK_SIZE, BlockAddr};
use weir_store::{Class, Device, Discards, Frame, FrameMut, FramePool, IoKind};

use crate::rand::Choices;

/// Blocks that a device under test has at least.
pub const LENGTH: u64 = 4096;

/// Blocks that it may grow to at least.
pub const MAX: u64 = 8192;

/// Page frames of the suite.
const FRAMES: usize = 8192;

/// A kind of device under test.
pub struct Subject<'a> {
    /// Name for messages.
    pub name: &'a str,
    /// Opens the device, new at first and then with everything that it had. No other handle to it
    /// is open.
    pub open: &'a mut dyn FnMut() -> Arc<dyn Device>,
    /// True if the device can grow to [`MAX`].
    pub grows: bool,
}

struct CheckedDevice {
    name: String,
    device: Arc<dyn Device>,
    pool: Arc<FramePool>,
    /// Versions of the blocks that were written.
    model: BTreeMap<u64, u64>,
    version: u64,
}

/// Runs all tests on a device. Panics at the first promise that is broken.
pub fn run(subject: Subject<'_>) {
    let Subject { name, open, grows } = subject;
    let mut checked = CheckedDevice {
        name: name.to_owned(),
        device: open(),
        pool: FramePool::new(FRAMES).unwrap(),
        model: BTreeMap::new(),
        version: 0,
    };
    checked.begins_empty();
    checked.refuses_what_is_outside();
    checked.keeps_what_is_written_at_once();
    checked.crosses_every_border();
    checked.completes_what_nobody_waits_for();
    checked.discards();
    if grows {
        checked.grows();
    }
    let (model, version) = (std::mem::take(&mut checked.model), checked.version);
    let length = checked.device.length();
    checked.device.flush().wait().unwrap();
    drop(checked);
    let reopened = CheckedDevice {
        name: format!("{name}, opened again"),
        device: open(),
        pool: FramePool::new(FRAMES).unwrap(),
        model,
        version,
    };
    assert_eq!(reopened.device.length(), length, "{}", reopened.name);
    reopened.compare(0, length);
}

impl CheckedDevice {
    fn frames(&self, count: u64) -> Vec<FrameMut> {
        let frame = |_| self.pool.alloc(Class::Foreground).unwrap();
        (0..count).map(frame).collect()
    }

    /// A block that says where it belongs and which write it is of.
    fn block(&self, at: u64, version: u64) -> Frame {
        let mut frame = self.pool.alloc(Class::Foreground).unwrap();
        frame.fill((version % 251) as u8);
        frame[..8].copy_from_slice(&at.to_le_bytes());
        frame[BLOCK_SIZE - 8..].copy_from_slice(&version.to_le_bytes());
        frame.freeze()
    }

    fn blocks(&mut self, at: u64, count: u64) -> Vec<Frame> {
        self.version += 1;
        (at..at + count)
            .map(|n| {
                self.model.insert(n, self.version);
                self.block(n, self.version)
            })
            .collect()
    }

    fn write(&mut self, at: u64, count: u64) {
        let blocks = self.blocks(at, count);
        let written = self.device.write(BlockAddr(at), blocks).wait();
        written.unwrap_or_else(|e| panic!("{}: {e}", self.name));
    }

    /// Compares blocks with what was written last.
    fn compare(&self, at: u64, count: u64) {
        for first in (at..at + count).step_by(1024) {
            let some = 1024.min(at + count - first);
            let into = self.frames(some);
            let read = self.device.read(BlockAddr(first), into).wait();
            let read = read.unwrap_or_else(|e| panic!("{}: {e}", self.name));
            assert_eq!(read.len() as u64, some, "{}", self.name);
            for (n, frame) in (first..).zip(&read) {
                match self.model.get(&n) {
                    Some(version) => {
                        let wanted = self.block(n, *version);
                        assert!(frame[..] == wanted[..], "{}: block {n}", self.name);
                    }
                    None => {
                        assert!(frame.iter().all(|b| *b == 0), "{}: block {n}", self.name);
                    }
                }
            }
        }
    }

    fn begins_empty(&self) {
        assert!(self.device.length() >= LENGTH, "{}", self.name);
        self.compare(0, self.device.length());
    }

    fn refuses_what_is_outside(&mut self) {
        let length = self.device.length();
        let name = &self.name;
        for at in [length, length - 1, u64::MAX, u64::MAX - 1] {
            let frames = self.frames(2);
            let read = self.device.read(BlockAddr(at), frames).wait().err();
            let read = read.unwrap_or_else(|| panic!("{name}: read at {at}"));
            assert_eq!(read.kind, IoKind::Read, "{name}");
            assert_eq!(read.source.kind(), io::ErrorKind::InvalidInput, "{name}");
            let blocks = vec![Frame::zero(); 2];
            let write = self.device.write(BlockAddr(at), blocks).wait().err();
            assert!(write.is_some(), "{name}: write at {at}");
            let discard = self.device.discard(BlockAddr(at), 2).wait().err();
            assert!(discard.is_some(), "{name}: discard at {at}");
        }
        self.compare(length - 8, 8);
    }

    fn keeps_what_is_written_at_once(&mut self) {
        let choices = Choices::new(1);
        let length = self.device.length();
        for _ in 0..4 {
            let mut at = 0;
            let mut flight = Vec::new();
            while at < LENGTH.min(length) {
                let count = (1 + choices.below(120)).min(LENGTH - at);
                let blocks = self.blocks(at, count);
                flight.push(self.device.write(BlockAddr(at), blocks));
                at += count;
            }
            for write in flight {
                write
                    .wait()
                    .unwrap_or_else(|e| panic!("{}: {e}", self.name));
            }
            self.device.flush().wait().unwrap();
            let mut reads = Vec::new();
            let mut at = 0;
            while at < LENGTH {
                let count = (1 + choices.below(300)).min(LENGTH - at);
                let read = self.device.read(BlockAddr(at), self.frames(count));
                reads.push((at, read));
                at += count;
            }
            for (at, read) in reads {
                for (n, frame) in (at..).zip(read.wait().unwrap()) {
                    let wanted = self.block(n, self.model[&n]);
                    assert!(frame[..] == wanted[..], "{}: block {n}", self.name);
                }
            }
        }
    }

    fn crosses_every_border(&mut self) {
        for (at, count) in [
            (0, 1),
            (1, 1),
            (0, 3),
            (1022, 4),
            (1023, 2),
            (1025, 1),
            (1, 2050),
            (LENGTH - 1, 1),
        ] {
            self.write(at, count);
            self.compare(at.saturating_sub(1), count + 1);
        }
        self.compare(0, LENGTH);
    }

    fn completes_what_nobody_waits_for(&mut self) {
        let blocks = self.blocks(100, 20);
        drop(self.device.write(BlockAddr(100), blocks));
        // Its end is not known, and a read that begins later may overtake it.
        let mut tries = 0;
        loop {
            let read = self.device.read(BlockAddr(100), self.frames(20)).wait();
            let mut blocks = (100..).zip(read.unwrap());
            if blocks.all(|(n, read)| read[..] == self.block(n, self.version)[..]) {
                break;
            }
            tries += 1;
            assert!(tries < 10_000, "{}: a write was cancelled", self.name);
        }
        self.compare(100, 20);
    }

    fn discards(&mut self) {
        let name = self.name.clone();
        let (at, count) = (1024, 1024);
        if self.device.discards() == Discards::Never {
            return;
        }
        self.device.discard(BlockAddr(at), count).wait().unwrap();
        for n in at..at + count {
            self.model.remove(&n);
        }
        self.compare(at - 4, 4);
        self.compare(at + count, 4);
        if self.device.discards() == Discards::Deprovision {
            let mut found = 0;
            let note = &mut |from: BlockAddr, blocks: u64| {
                assert!(from.0 >= at && from.0 + blocks <= at + count, "{name}");
                found += blocks;
            };
            self.device.find_discarded(note).unwrap();
            assert_eq!(found, count, "{name}");
        }
        self.device.provision(BlockAddr(at), count).unwrap();
        self.write(at, count);
        self.compare(at - 4, count + 8);
    }

    fn grows(&mut self) {
        let length = self.device.length();
        assert_eq!(
            self.device.grow(length - 1).unwrap(),
            length,
            "{}",
            self.name
        );
        let grown = self.device.grow(length + 100).unwrap();
        assert!(
            grown >= length + 100 && grown == self.device.length(),
            "{}",
            self.name
        );
        self.compare(0, grown);
        self.write(length - 10, 60);
        self.compare(length - 20, 100);
        assert!(self.device.grow(u64::MAX).is_err(), "{}", self.name);
        assert_eq!(self.device.length(), grown, "{}", self.name);
        let grown = self.device.grow(MAX).unwrap();
        self.write(grown - 1, 1);
    }
}
