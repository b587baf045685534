//! Every limit of the system, on a size, a count or a time. The relations between limits are
//! checked at compile time.

pub mod api;
pub mod backup;
pub mod cluster;
pub mod csi;
pub mod engine;
pub mod memory;
pub mod mirror;
pub mod net;
pub mod protocol;
pub mod rados;
pub mod replica;

/// Bytes in a block: the unit of the device, the cache, trees and checksums.
pub const BLOCK_SIZE: usize = 4096;

/// Maximum length of a directory entry's name in bytes, as `NAME_MAX` on Linux.
pub const MAX_NAME: usize = 255;

/// Maximum length of a symbolic link's target in bytes. `PATH_MAX` on Linux counts a closing NUL
/// that is not stored.
pub const MAX_SYMLINK: usize = 4095;

/// Maximum length in bytes of an extended attribute's value and of an access control list: as
/// Linux's `XATTR_SIZE_MAX`.
pub const MAX_XATTR: usize = 65_536;

/// Maximum length of a path in a MOUNT request in bytes (`MNTPATHLEN`, RFC 1813 section 5).
pub const MAX_MOUNT_PATH: usize = 1024;

/// Maximum size of a file in bytes: 8 EiB − 1, the range of a client's signed 64-bit `off_t`.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// Maximum offset up to which a file may be written; equal to [`MAX_FILE_SIZE`].
pub const MAX_FILE_OFFSET: u64 = MAX_FILE_SIZE;

/// Maximum number of hard links to a file. The count of a directory grows with its subdirectories,
/// and a million of them must fit.
pub const MAX_LINKS: u32 = u32::MAX - 1;

/// Maximum number of bytes in one READ or WRITE.
pub const MAX_IO: usize = 1 << 20;

/// Maximum number of supplementary groups in a credential (AUTH_SYS, RFC 5531 appendix A).
pub const MAX_GROUPS: usize = 16;

/// Maximum length of a value in a tree, in bytes.
pub const MAX_VALUE: usize = 1024;

/// Maximum number of blocks that one extent covers.
pub const MAX_EXTENT_BLOCKS: u32 = 32;

/// Maximum number of snapshots of one volume. Users have a thousand and more; the records of this
/// many take a few megabytes.
pub const MAX_SNAPSHOTS: usize = 16_384;

/// Maximum length of the name of a volume or snapshot in bytes.
pub const MAX_VOLUME_NAME: usize = 255;

/// Maximum length of a snapshot's label in bytes.
pub const MAX_LABEL: usize = 255;

/// Maximum length of a volume's annotation in bytes. Its length is sent to a partner as 16 bits.
pub const MAX_ANNOTATION: usize = 65_000;

/// Maximum length of a piece of an annotation in bytes. With its version it fits into a value of
/// the tree.
pub const ANNOTATION_PIECE: usize = 1000;

const _: () = {
    assert!(MAX_VOLUME_NAME <= MAX_NAME && MAX_LABEL <= MAX_NAME);
    assert!(ANNOTATION_PIECE + 24 <= MAX_VALUE && MAX_ANNOTATION <= u16::MAX as usize);
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
