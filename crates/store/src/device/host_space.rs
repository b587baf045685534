//! Space of a device on its host: gives parts of a file or block device back, and finds the parts
//! of a file that have none.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use weir_base::limits::engine::EXTENTS_READ;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: u32 = 0xC020_660B;
/// `_IO(0x12, 119)`.
const BLKDISCARD: u32 = 0x1277;
/// Flag of the file's last extent.
const EXTENT_LAST: u32 = 1;

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` of linux/fiemap.h.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_READ],
}

/// Gives the space of a file's range back to the host's file system.
pub(super) fn punch(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    retried(|| fallocate(file, mode, offset, bytes))
}

/// Gives a file's range space, durably. Data in it stays. Returns `false` if the file system cannot
/// reserve space.
pub(super) fn provision(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    match retried(|| fallocate(file, FallocateFlags::empty(), offset, bytes)) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(false),
        done => done.and_then(|()| file.sync_data()).map(|()| true),
    }
}

fn retried(mut call: impl FnMut() -> Result<(), Errno>) -> io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Tells a block device that a range is unused.
pub(super) fn discard(device: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let range = [offset, bytes];
    // SAFETY: BLKDISCARD reads two numbers, which live until the call returns.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if parts of a file can be freed on the host, found again, and provisioned
/// again. Otherwise a full host would show as a failed write.
pub(super) fn can_give_back(file: &File) -> bool {
    let first = weir_base::BLOCK_SIZE as u64;
    matches!(provision(file, 0, first), Ok(true)) && find_holes(file, first, &mut |_, _| {}).is_ok()
}

/// Passes the ranges of a file below `end` that have no space to `found`: (offset, bytes),
/// ascending. Space that was reserved and never written is no hole, which FIEMAP tells and
/// SEEK_HOLE does not.
pub(super) fn find_holes(file: &File, end: u64, found: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
    let mut map = Box::new(ExtentMap {
        start: 0,
        length: 0,
        flags: 0,
        mapped_extents: 0,
        extent_count: EXTENTS_READ as u32,
        reserved: 0,
        extents: [Extent::default(); EXTENTS_READ],
    });
    let mut at = 0;
    while at < end {
        (map.start, map.length, map.mapped_extents) = (at, end - at, 0);
        // SAFETY: the map is a `struct fiemap` with room for the extents that it announces.
        let result = unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                FS_IOC_FIEMAP as _,
                std::ptr::from_mut(&mut *map),
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let extents = map.extents.get(..map.mapped_extents as usize);
        let extents = extents.unwrap_or(&map.extents);
        for extent in extents {
            let begins = extent.logical.min(end);
            if begins > at {
                found(at, begins - at);
            }
            // Saturates: the numbers come from the host.
            at = at.max(extent.logical.saturating_add(extent.length));
        }
        let last = extents
            .last()
            .is_none_or(|extent| extent.flags & EXTENT_LAST != 0);
        if last {
            break;
        }
    }
    if at < end {
        found(at, end - at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn holes(by: impl Fn(&mut dyn FnMut(u64, u64)) -> io::Result<()>) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        by(&mut |at, bytes| holes.push((at / MIB, bytes / MIB))).unwrap();
        holes
    }

    #[test]
    fn holes_are_found_between_what_was_written_and_reserved() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(600 * MIB).unwrap();
        assert_eq!(
            holes(|found| find_holes(&file, 600 * MIB, found)),
            [(0, 600)]
        );
        assert!(
            provision(&file, 0, 8 * MIB).unwrap(),
            "the tests' file system reserves space"
        );
        // More extents than one call returns.
        for at in (8..600).step_by(2) {
            file.seek(SeekFrom::Start(at * MIB)).unwrap();
            file.write_all(&[1; MIB as usize / 4]).unwrap();
            file.write_all(&[1; MIB as usize / 4 * 3]).unwrap();
        }
        file.sync_all().unwrap();
        let odd: Vec<_> = (9..600).step_by(2).map(|at| (at, 1)).collect();
        let found = holes(|found| find_holes(&file, 600 * MIB, found));
        assert_eq!(found, odd);
        assert!(can_give_back(&file));
        punch(&file, 10 * MIB, 3 * MIB).unwrap();
        let found = holes(|found| find_holes(&file, 16 * MIB, found));
        assert_eq!(found, [(9, 5), (15, 1)]);
        provision(&file, 9 * MIB, 7 * MIB).unwrap();
        assert_eq!(holes(|found| find_holes(&file, 16 * MIB, found)), []);
    }

    #[test]
    fn a_file_is_no_block_device() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MIB).unwrap();
        assert!(discard(&file, 0, MIB).is_err());
    }
}
