//! Staging: buffers scattered in memory are copied through contiguous ones where segments are
//! costly.
//!
//! A request to a disk lists the memory segments that it transfers. Frames are taken and returned
//! singly, so those of one request are soon scattered, and a read of 512 KiB has up to 128
//! segments. For a disk with a controller of its own that is free. A paravirtual disk's host
//! handles each segment in software. A virtio disk under Firecracker read 0.95 GiB/s into single
//! pages and 2.3 GiB/s into neighbouring ones. It wrote 1.8 and 3.7 GiB/s (durably 1.2 and 2.3),
//! with the same requests in flight.
//!
//! So on such a disk ([`segments_are_dear`]) a request of many segments uses buffers of
//! neighbouring frames, and its blocks are copied. Copying a block takes a sixth of the cost of a
//! segment. A request with fewer segments than that uses its own frames, as does one that finds too
//! few idle buffers. The processor time is the same either way, because the kernel looks up each
//! segment's page (`benches/io.rs`, "staging").

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_base::limits::engine::{STAGING_BLOCKS as BLOCKS, STAGING_SHARE};

use super::op::Op;
use crate::frame::{Class, FrameMut, FramePool};

/// Number of block copies that cost as much as one more segment.
const COPIES_A_SEGMENT: usize = 6;

/// The staging buffers of one device.
#[derive(Default)]
pub(super) struct Staging {
    /// Idle buffers. Of each [`BLOCKS`] frames in here, those after the first follow it in memory.
    idle: Mutex<Vec<FrameMut>>,
}

impl Staging {
    /// Takes up to `buffers` buffers of [`BLOCKS`] frames from `pool`: fewer from a small pool, and
    /// none from one whose frames are scattered already.
    pub fn new(pool: &Arc<FramePool>, buffers: usize) -> Staging {
        let buffers = buffers.min(pool.total() / STAGING_SHARE / BLOCKS);
        let mut frames: Vec<FrameMut> = (0..buffers * BLOCKS)
            .map_while(|_| pool.alloc(Class::Foreground))
            .collect();
        frames.sort_unstable_by_key(|frame| frame.as_ptr());
        let (mut idle, mut run): (Vec<FrameMut>, Vec<FrameMut>) = (Vec::new(), Vec::new());
        for frame in frames {
            if run
                .last()
                .is_some_and(|last| last.as_ptr_range().end != frame.as_ptr())
            {
                run.clear();
            }
            run.push(frame);
            if run.len() == BLOCKS {
                idle.append(&mut run);
            }
        }
        Staging {
            idle: Mutex::new(idle),
        }
    }

    /// Directs `op` to staging buffers, if that is cheaper and enough are idle.
    pub fn lend(&self, op: &mut Op) {
        let (blocks, segments) = (op.blocks(), op.pieces().len());
        if segments <= 1 + blocks / COPIES_A_SEGMENT {
            // Copying would cost more than it saves.
            return;
        }
        let wanted = blocks.next_multiple_of(BLOCKS);
        let mut idle = self.idle.lock();
        let Some(rest) = idle.len().checked_sub(wanted) else {
            // Too few are idle, so `op` uses its own frames.
            return;
        };
        let buffers = idle.split_off(rest);
        drop(idle);
        op.stage(buffers);
    }

    /// Takes back the buffers lent to `op`, which has ended. `whole`: its transfer was complete.
    pub fn take_back(&self, op: &mut Op, whole: bool) {
        if let Some(mut buffers) = op.unstage(whole) {
            self.idle.lock().append(&mut buffers);
        }
    }
}

/// Returns true if the disk behind a device number handles each segment in software. Returns false
/// if that is unknown, as for file systems that invent their device number.
pub(super) fn segments_are_dear(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let disk = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    disk.canonicalize().is_ok_and(|disk| dear(&disk))
}

/// Like [`segments_are_dear`], for the sysfs folder that describes a disk or partition.
fn dear(disk: &Path) -> bool {
    if let Ok(driver) = disk.join("device/driver").canonicalize() {
        return driver.ends_with("virtio_blk");
    }
    // A partition's folder is within its disk's; a volume of the device mapper or of md links to
    // its parts.
    let below = |disk: &Path| disk.canonicalize().is_ok_and(|disk| dear(&disk));
    if disk.join("partition").exists() {
        return disk.parent().is_some_and(below);
    }
    let Ok(slaves) = disk.join("slaves").read_dir() else {
        return false;
    };
    slaves.flatten().any(|slave| below(&slave.path()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use weir_base::{BLOCK_SIZE, BlockAddr};

    use super::*;
    use crate::device::Io;

    fn pool() -> Arc<FramePool> {
        FramePool::new(STAGING_SHARE * BLOCKS).unwrap()
    }

    fn idle(staging: &Staging) -> usize {
        staging.idle.lock().len() / BLOCKS
    }

    /// Creates a read into `blocks` frames with gaps of one frame between pieces of `piece` frames.
    fn read(pool: &Arc<FramePool>, blocks: usize, piece: usize) -> (Op, Io<Vec<FrameMut>>) {
        let mut frames: Vec<_> = (0..blocks + blocks / piece)
            .map(|_| pool.alloc(Class::Cp).unwrap())
            .collect();
        frames.sort_unstable_by_key(|frame| frame.as_ptr());
        let into = (1..)
            .zip(frames)
            .filter(|(n, _)| n % (piece + 1) != 0)
            .map(|(_, frame)| frame)
            .collect();
        Op::read(BlockAddr(3), 3 * BLOCK_SIZE as u64, into)
    }

    /// Returns the bytes of an operation's one piece.
    fn only_piece(op: &mut Op) -> &mut [u8] {
        let [piece] = op.pieces() else {
            panic!("{} pieces of a staged operation", op.pieces().len());
        };
        // SAFETY: the piece leads into frames that the operation owns, and nothing else touches
        // them in the test.
        unsafe { std::slice::from_raw_parts_mut(piece.iov_base.cast(), piece.iov_len) }
    }

    #[test]
    fn a_scattered_read_is_one_piece_and_arrives_in_its_frames() {
        let pool = pool();
        let staging = Staging::new(&pool, 16);
        assert_eq!(idle(&staging), 1);
        let (mut op, io) = read(&pool, 40, 1);
        staging.lend(&mut op);
        assert_eq!(idle(&staging), 0, "the buffer is lent");
        let piece = only_piece(&mut op);
        assert_eq!(piece.len(), 40 * BLOCK_SIZE);
        for (n, block) in (0..).zip(piece.chunks_mut(BLOCK_SIZE)) {
            block.fill(n);
        }
        // Another operation finds no buffer, and uses its own frames.
        let (mut other, _io) = read(&pool, 12, 1);
        staging.lend(&mut other);
        assert_eq!(other.pieces().len(), 12);
        staging.take_back(&mut other, true);

        staging.take_back(&mut op, true);
        assert_eq!(idle(&staging), 1);
        op.complete(Ok(()));
        for (n, frame) in (0..).zip(io.wait().unwrap()) {
            assert!(frame.iter().all(|byte| *byte == n), "block {n}");
        }
        staging.lend(&mut other);
        assert_eq!(only_piece(&mut other).len(), 12 * BLOCK_SIZE);
    }

    #[test]
    fn a_scattered_write_is_copied_before_it_begins() {
        let pool = pool();
        let staging = Staging::new(&pool, 16);
        let mut frames: Vec<_> = (0..100u8)
            .map(|n| {
                let mut frame = pool.alloc(Class::Cp).unwrap();
                frame.fill(n);
                frame.freeze()
            })
            .collect();
        frames.reverse();
        let (mut op, io) = Op::write(BlockAddr(0), 0, frames);
        assert_eq!(op.pieces().len(), 100);
        staging.lend(&mut op);
        for (n, block) in (0..100).rev().zip(only_piece(&mut op).chunks(BLOCK_SIZE)) {
            assert!(block.iter().all(|byte| *byte == n), "block {n}");
        }
        staging.take_back(&mut op, false);
        op.complete(Ok(()));
        io.wait().unwrap();
        assert_eq!(idle(&staging), 1);
    }

    #[test]
    fn few_segments_go_to_their_frames_and_long_operations_to_several_buffers() {
        let pool = FramePool::new(3 * STAGING_SHARE * BLOCKS).unwrap();
        let staging = Staging::new(&pool, 2);
        assert_eq!(idle(&staging), 2);
        for (blocks, piece) in [(1, 1), (20, 20), (48, 12), (2 * BLOCKS + 1, 1)] {
            let (mut op, _io) = read(&pool, blocks, piece);
            let pieces = op.pieces().len();
            staging.lend(&mut op);
            assert_eq!(op.pieces().len(), pieces, "{blocks} blocks");
            assert_eq!(idle(&staging), 2);
        }
        let (mut op, _io) = read(&pool, 2 * BLOCKS, 1);
        staging.lend(&mut op);
        assert!(op.pieces().len() <= 2, "{} pieces", op.pieces().len());
        assert_eq!(idle(&staging), 0);
        staging.take_back(&mut op, true);
        assert_eq!(idle(&staging), 2);
    }

    #[test]
    fn a_small_pool_lends_nothing() {
        let pool = FramePool::new(STAGING_SHARE * BLOCKS - 1).unwrap();
        assert_eq!(idle(&Staging::new(&pool, 16)), 0);
        assert_eq!(pool.free(), pool.total());
    }

    #[test]
    fn the_driver_decides_through_partitions_and_mapped_volumes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (disk, driver) in [("vda", "virtio_blk"), ("sda", "sd"), ("nvme0n1", "nvme")] {
            fs::create_dir_all(root.join("drivers").join(driver)).unwrap();
            fs::create_dir_all(root.join(disk).join("device")).unwrap();
            fs::create_dir_all(root.join(disk).join(format!("{disk}1"))).unwrap();
            fs::write(root.join(disk).join(format!("{disk}1/partition")), "1\n").unwrap();
            let link = root.join(disk).join("device/driver");
            symlink(root.join("drivers").join(driver), link).unwrap();
        }
        for (mapped, below) in [("dm-0", "sda/sda1"), ("dm-1", "vda/vda1"), ("dm-2", "dm-1")] {
            fs::create_dir_all(root.join(mapped).join("slaves")).unwrap();
            symlink(root.join(below), root.join(mapped).join("slaves/one")).unwrap();
        }
        for (disk, is_dear) in [
            ("vda", true),
            ("vda/vda1", true),
            ("dm-1", true),
            ("dm-2", true),
            ("sda", false),
            ("sda/sda1", false),
            ("nvme0n1", false),
            ("dm-0", false),
            ("missing", false),
        ] {
            assert_eq!(dear(&root.join(disk)), is_dear, "{disk}");
        }
    }
}
