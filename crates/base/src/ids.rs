//! Identifiers. Each is its own type so that a block address cannot be passed where an inode number
//! is meant. The inner number is public because codecs need it and there is no invariant to
//! protect.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// Index of a block of [`crate::BLOCK_SIZE`] bytes on a device.
    BlockAddr(u64)
}
id! {
    /// Number of a checkpoint. A block's generation is the checkpoint
    /// that wrote it: its birth number.
    Generation(u64)
}
id! {
    /// Log sequence number: the position of a record in the order of the intent
    /// log. The first record of an aggregate has number 1; 0 means "none".
    Lsn(u64)
}
id! {
    /// Number of a volume within its aggregate. Never reused.
    VolumeId(u64)
}
id! {
    /// Inode number within a volume. Never reused.
    Ino(u64)
}

/// Identity of an aggregate, chosen at random when it is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AggregateId(pub [u8; 16]);

impl fmt::Display for AggregateId {
    /// As a UUID is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl BlockAddr {
    /// Returns the byte offset of the block on the device, or `None` beyond 2^64 bytes.
    pub fn byte_offset(self) -> Option<u64> {
        self.0.checked_mul(crate::BLOCK_SIZE as u64)
    }

    /// Returns the address `blocks` further on, or `None` on overflow.
    pub fn checked_add(self, blocks: u64) -> Option<BlockAddr> {
        self.0.checked_add(blocks).map(BlockAddr)
    }
}

impl Lsn {
    /// Returns the number of the record after this one.
    #[must_use]
    pub fn next(self) -> Lsn {
        Lsn(self.0.wrapping_add(1))
    }
}

impl Generation {
    /// Returns the checkpoint after this one.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0.wrapping_add(1))
    }
}
