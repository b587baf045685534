//! The pointer to a block: its address, the checkpoint that wrote it, and the checksum of its
//! contents.
//!
//! The checksum is stored in the pointer, not in the block. So a block that was written to the
//! wrong place, or not at all, is detected as surely as one with flipped bits. The birth number
//! distinguishes two blocks at the same address (addresses are reused) and bounds the blocks that a
//! snapshot shares.

use weir_base::{BLOCK_SIZE, BlockAddr, Generation};

/// Bytes of a [`BlockPtr`] on disk.
pub const PTR_SIZE: usize = 20;

/// A checked reference to one block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockPtr {
    /// Address of the block on the aggregate's device.
    pub addr: BlockAddr,
    /// The checkpoint that wrote it.
    pub birth: Generation,
    /// CRC32C (Castagnoli, RFC 3720 appendix B.4) of its 4096 bytes.
    pub crc: u32,
}

impl BlockPtr {
    /// Returns the pointer to `page` once it is written at `addr` by `birth`.
    pub fn to_page(addr: BlockAddr, birth: Generation, page: &[u8; BLOCK_SIZE]) -> BlockPtr {
        BlockPtr {
            addr,
            birth,
            crc: page_crc(page),
        }
    }

    /// Returns true if `page` has the checksum of this pointer.
    pub fn verifies(&self, page: &[u8; BLOCK_SIZE]) -> bool {
        page_crc(page) == self.crc
    }

    /// Encodes the pointer for the disk: address, birth (u64 each) and checksum (u32),
    /// little-endian.
    pub fn encode(&self) -> [u8; PTR_SIZE] {
        let mut out = [0; PTR_SIZE];
        let (addr, rest) = out.split_at_mut(8);
        let (birth, crc) = rest.split_at_mut(8);
        addr.copy_from_slice(&self.addr.0.to_le_bytes());
        birth.copy_from_slice(&self.birth.0.to_le_bytes());
        crc.copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// Decodes a pointer encoded by [`BlockPtr::encode`]. Every pattern of bytes is a pointer; the
    /// reader has to check that it is valid.
    pub fn decode(bytes: &[u8; PTR_SIZE]) -> BlockPtr {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
            b6,
            b7,
            c @ ..,
        ] = *bytes;
        BlockPtr {
            addr: BlockAddr(u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7])),
            birth: Generation(u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7])),
            crc: u32::from_le_bytes(c),
        }
    }
}

/// Returns the CRC32C of a page.
pub fn page_crc(page: &[u8; BLOCK_SIZE]) -> u32 {
    crc32c::crc32c(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_is_the_documented_one() {
        let p = BlockPtr {
            addr: BlockAddr(0x0102),
            birth: Generation(3),
            crc: 0xAABB_CCDD,
        };
        let mut expect = [0u8; 20];
        expect[0] = 2;
        expect[1] = 1;
        expect[8] = 3;
        expect[16..].copy_from_slice(&[0xDD, 0xCC, 0xBB, 0xAA]);
        assert_eq!(p.encode(), expect);
        assert_eq!(BlockPtr::decode(&expect), p);
    }

    #[test]
    fn checksum_is_crc32c_and_notices_a_bit() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xE306_9283);
        let mut page = [7u8; BLOCK_SIZE];
        let p = BlockPtr::to_page(BlockAddr(1), Generation(1), &page);
        assert!(p.verifies(&page));
        page[4000] ^= 0x10;
        assert!(!p.verifies(&page));
    }
}
