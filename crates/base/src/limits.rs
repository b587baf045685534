//! Every bound of the system, on a size, a count or a time, in one place, with the
//! relations between them checked when it is compiled.

pub mod api;
pub mod engine;
pub mod memory;
pub mod mirror;
pub mod net;
pub mod protocol;
pub mod replica;

/// Bytes in a block: the unit of the device, the cache, trees and checksums.
pub const BLOCK_SIZE: usize = 4096;

/// Longest name of a directory entry in bytes, as `NAME_MAX` on Linux.
pub const MAX_NAME: usize = 255;

/// Longest symbolic link target in bytes: `PATH_MAX` on Linux counts a closing
/// NUL that is not stored.
pub const MAX_SYMLINK: usize = 4095;

/// Longest value of an extended attribute, and longest access control list, in bytes: as Linux's `XATTR_SIZE_MAX`.
pub const MAX_XATTR: usize = 65_536;

/// Longest path in a MOUNT request in bytes (`MNTPATHLEN`, RFC 1813 section 5).
pub const MAX_MOUNT_PATH: usize = 1024;

/// Highest size of a file in bytes: 8 EiB − 1, as far as a signed 64-bit `off_t`
/// of a client reaches.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// Highest offset up to which a file may be written; the same as
/// [`MAX_FILE_SIZE`].
pub const MAX_FILE_OFFSET: u64 = MAX_FILE_SIZE;

/// Most hard links to a file. The count of a directory grows with its
/// subdirectories, of which a million must fit.
pub const MAX_LINKS: u32 = u32::MAX - 1;

/// Most bytes in one READ or WRITE.
pub const MAX_IO: usize = 1 << 20;

/// Most supplementary groups in a credential (AUTH_SYS, RFC 5531 appendix A).
pub const MAX_GROUPS: usize = 16;

/// Longest value in a tree, in bytes.
pub const MAX_VALUE: usize = 1024;

/// Most blocks that one extent covers.
pub const MAX_EXTENT_BLOCKS: u32 = 32;

/// Most snapshots of one volume. A thousand and more is what users have; the records
/// of so many take a few megabytes.
pub const MAX_SNAPSHOTS: usize = 16_384;

/// Longest name of a volume or snapshot in bytes.
pub const MAX_VOLUME_NAME: usize = 255;

/// Longest label of a snapshot in bytes.
pub const MAX_LABEL: usize = 255;

/// Longest annotation of a volume in bytes: with its version it fits into a value of the tree.
pub const MAX_ANNOTATION: usize = 1000;

const _: () = {
    assert!(MAX_VOLUME_NAME <= MAX_NAME && MAX_LABEL <= MAX_NAME);
    assert!(MAX_ANNOTATION + 24 <= MAX_VALUE);
    assert!(BLOCK_SIZE.is_power_of_two());
    assert!(MAX_IO.is_multiple_of(BLOCK_SIZE));
    assert!(
        MAX_NAME + 64 <= MAX_VALUE,
        "a directory entry is one tree value"
    );
    assert!(
        MAX_SYMLINK.div_ceil(MAX_VALUE) <= 4,
        "a link target takes few tree values"
    );
    assert!(
        MAX_EXTENT_BLOCKS as usize * 4 + 32 <= MAX_VALUE,
        "an extent with its checksums is one tree value"
    );
    assert!(
        3 * (MAX_VALUE + 64) <= BLOCK_SIZE,
        "a node that splits must have room on both sides"
    );
};
