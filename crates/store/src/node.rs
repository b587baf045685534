//! The node: one 4 KiB block of a copy-on-write B+tree.
//!
//! A node is read far more often than it is written, and read in place. The search runs over the
//! bytes as they came from the device, with no decoding and no allocation. So keys have one fixed
//! width and are stored in a sorted array of slots at the front. The values of a leaf vary in
//! length and grow from the back of the block. Prefix compression would raise the fan-out of
//! interior nodes from 110 to perhaps 160. That saves no level at the intended sizes, and would
//! cost a decoding step for each comparison.
//!
//! ```text
//! 0   magic "WNOD"            8   tree u64
//! 4   level u8, 0 = leaf      16  generation that wrote the node, u64
//! 5   zero u8                 24  lowest byte used by values, u16 (leaf)
//! 6   slots u16               26  slots …                … values 4096
//! ```
//! Numbers are little-endian, except inside keys: those are big-endian, so that comparing bytes is
//! comparing keys. A leaf's slot is key, offset u16 and length u16 of the value; an interior node's
//! is key and [`BlockPtr`]. An interior slot's key is the first key in the subtree below it.
//!
//! A node has no checksum of its own; the pointer to it has one.

use std::fmt;

use weir_base::limits::MAX_VALUE;
use weir_base::{BLOCK_SIZE, BlockAddr, Generation, VolumeId};

use crate::block::{BlockPtr, PTR_SIZE};
use crate::error::StoreError;

/// Bytes of a key on disk.
pub const KEY_SIZE: usize = 17;
/// Maximum level of a node; 110⁷ leaves are more than a device has blocks.
pub const MAX_LEVEL: u8 = 15;

const MAGIC: [u8; 4] = *b"WNOD";
const HEADER: usize = 26;
const LEAF_SLOT: usize = KEY_SIZE + 4;
const INNER_SLOT: usize = KEY_SIZE + PTR_SIZE;

/// Bytes of a node available to slots and values.
pub const NODE_CAPACITY: usize = BLOCK_SIZE - HEADER;

// Splitting in halves needs room for at least three of the largest records.
const _: () = assert!(3 * (LEAF_SLOT + MAX_VALUE) <= NODE_CAPACITY);

/// The key of a record: an inode number, the kind of record, and a number whose meaning depends on
/// the kind. Ordered by ino, kind, sub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    /// Inode number, or 0 for records of the tree as a whole.
    pub ino: u64,
    /// Kind of record, defined by the tree's user.
    pub kind: u8,
    /// Directory cookie, file block, …
    pub sub: u64,
}

impl Key {
    /// The smallest key: all parts 0.
    pub const MIN: Key = Key {
        ino: 0,
        kind: 0,
        sub: 0,
    };
    /// The largest key: all parts at their maximum.
    pub const MAX: Key = Key {
        ino: u64::MAX,
        kind: u8::MAX,
        sub: u64::MAX,
    };

    /// Creates a key of the three parts.
    pub const fn new(ino: u64, kind: u8, sub: u64) -> Key {
        Key { ino, kind, sub }
    }

    /// Encodes the key for the disk: the parts in order, big-endian.
    pub fn encode(&self) -> [u8; KEY_SIZE] {
        let mut out = [0; KEY_SIZE];
        let (ino, rest) = out.split_at_mut(8);
        let (kind, sub) = rest.split_at_mut(1);
        ino.copy_from_slice(&self.ino.to_be_bytes());
        kind.copy_from_slice(&[self.kind]);
        sub.copy_from_slice(&self.sub.to_be_bytes());
        out
    }

    /// Decodes a key encoded by [`Key::encode`]; every pattern of bytes is a key.
    #[inline]
    pub fn decode(bytes: &[u8; KEY_SIZE]) -> Key {
        let [i0, i1, i2, i3, i4, i5, i6, i7, kind, sub @ ..] = *bytes;
        Key {
            ino: u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
            kind,
            sub: u64::from_be_bytes(sub),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.ino, self.kind, self.sub)
    }
}

/// A view of a node's bytes with a checked header: the slots are inside the block. Values and order
/// are checked where they are used, or all at once by [`NodeView::validate`].
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    bytes: &'a [u8; BLOCK_SIZE],
    addr: BlockAddr,
    level: u8,
    count: usize,
}

impl<'a> NodeView<'a> {
    /// Checks the header of the node that `ptr` led to.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the bytes are not a node, or not the one pointed to, or its slots
    /// do not fit into a block.
    #[inline]
    pub fn new(ptr: &BlockPtr, bytes: &'a [u8; BLOCK_SIZE]) -> Result<NodeView<'a>, StoreError> {
        let corrupt = |what| {
            Err(StoreError::Corrupt {
                addr: ptr.addr,
                what,
            })
        };
        let [m0, m1, m2, m3, level, _, c0, c1, ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return corrupt("not a tree node");
        }
        let count = usize::from(u16::from_le_bytes([c0, c1]));
        let slot = if level == 0 { LEAF_SLOT } else { INNER_SLOT };
        if level > MAX_LEVEL || count * slot > NODE_CAPACITY {
            return corrupt("tree node with an impossible header");
        }
        if u64::from_le_bytes(take(bytes, 16)) != ptr.birth.0 {
            return corrupt("tree node of another generation");
        }
        Ok(NodeView {
            bytes,
            addr: ptr.addr,
            level,
            count,
        })
    }

    /// Returns the distance from the leaves.
    #[inline]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Returns the number of slots in use.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the tree that wrote the node.
    pub fn tree(&self) -> VolumeId {
        VolumeId(u64::from_le_bytes(take(self.bytes, 8)))
    }

    #[inline]
    fn slot_at(&self, index: usize) -> usize {
        HEADER
            + index
                * if self.level == 0 {
                    LEAF_SLOT
                } else {
                    INNER_SLOT
                }
    }

    /// Returns the key in a slot; [`Key::MIN`] if there is no such slot.
    #[inline]
    pub fn key(&self, index: usize) -> Key {
        Key::decode(&take(self.bytes, self.slot_at(index)))
    }

    /// Returns the number of slots with a key not greater than `key`.
    #[inline]
    pub fn rank(&self, key: &Key) -> usize {
        // The number of rounds depends on the count alone, and each round's choice compiles to a
        // conditional move: no mispredicted branches.
        let mut low = 0;
        let mut size = self.count;
        while size > 1 {
            let half = size / 2;
            if self.key(low + half) <= *key {
                low += half;
            }
            size -= half;
        }
        low + usize::from(size == 1 && self.key(low) <= *key)
    }

    /// Returns the pointer in a slot of an interior node.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if this is a leaf or has no such slot.
    #[inline]
    pub fn child(&self, index: usize) -> Result<BlockPtr, StoreError> {
        if self.level == 0 || index >= self.count {
            return Err(self.corrupt("tree node without the expected child"));
        }
        Ok(BlockPtr::decode(&take(
            self.bytes,
            self.slot_at(index) + KEY_SIZE,
        )))
    }

    /// Returns the offset and length, within the block, of the value of a leaf's slot.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if this is not a leaf, has no such slot, or the value is not inside
    /// the block.
    #[inline]
    pub fn value_range(&self, index: usize) -> Result<(u16, u16), StoreError> {
        if self.level != 0 || index >= self.count {
            return Err(self.corrupt("tree node without the expected record"));
        }
        let [o0, o1, l0, l1] = take(self.bytes, self.slot_at(index) + KEY_SIZE);
        let (at, len) = (u16::from_le_bytes([o0, o1]), u16::from_le_bytes([l0, l1]));
        if usize::from(at) + usize::from(len) > BLOCK_SIZE || usize::from(len) > MAX_VALUE {
            return Err(self.corrupt("record outside its node"));
        }
        Ok((at, len))
    }

    /// Returns the value of a leaf's slot.
    ///
    /// # Errors
    /// As [`NodeView::value_range`].
    #[inline]
    pub fn value(&self, index: usize) -> Result<&'a [u8], StoreError> {
        let (at, len) = self.value_range(index)?;
        let (at, len) = (usize::from(at), usize::from(len));
        self.bytes
            .get(at..at + len)
            .ok_or_else(|| self.corrupt("record outside its node"))
    }

    /// Creates the error that this node is damaged.
    pub fn corrupt(&self, what: &'static str) -> StoreError {
        StoreError::Corrupt {
            addr: self.addr,
            what,
        }
    }

    /// Checks everything that can be checked without other nodes: order of the keys, place of the
    /// values.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for the first fault.
    pub fn validate(&self) -> Result<(), StoreError> {
        if self.count == 0 {
            return Err(self.corrupt("empty tree node"));
        }
        for i in 1..self.count {
            if self.key(i - 1) >= self.key(i) {
                return Err(self.corrupt("tree node with keys out of order"));
            }
        }
        if self.level == 0 {
            let mut bytes = 0;
            for i in 0..self.count {
                let (at, len) = self.value_range(i)?;
                if usize::from(at) < self.slot_at(self.count) {
                    return Err(self.corrupt("record over its node's slots"));
                }
                bytes += usize::from(len);
            }
            if bytes + self.count * LEAF_SLOT > NODE_CAPACITY {
                return Err(self.corrupt("records that overlap"));
            }
        }
        Ok(())
    }
}

/// Returns `N` bytes at `at`; zeros beyond the end of the block, which a checked header rules out.
#[inline]
fn take<const N: usize>(bytes: &[u8; BLOCK_SIZE], at: usize) -> [u8; N] {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
        Some(chunk) => *chunk,
        None => [0; N],
    }
}

/// Returns the number of bytes that an entry with a value of `len` bytes takes in a node of
/// `level`.
pub(crate) fn entry_size(level: u8, len: usize) -> usize {
    if level == 0 {
        LEAF_SLOT + len
    } else {
        INNER_SLOT
    }
}

/// Writes a node. The entries have to fit and be in order; for an interior node each value is an
/// encoded [`BlockPtr`].
///
/// # Errors
/// [`StoreError::Format`] if they do not fit: a defect of the caller, which must not become a
/// damaged node.
pub(crate) fn encode<'a>(
    bytes: &mut [u8; BLOCK_SIZE],
    level: u8,
    tree: VolumeId,
    generation: Generation,
    entries: impl Iterator<Item = (Key, &'a [u8])>,
) -> Result<(), StoreError> {
    let overflow = || StoreError::Format("tree node overflow".into());
    bytes.fill(0);
    let mut slot = HEADER;
    let mut heap = BLOCK_SIZE;
    let mut count = 0u16;
    for (key, value) in entries {
        let size = entry_size(level, 0);
        if level == 0 {
            heap = heap.checked_sub(value.len()).ok_or_else(overflow)?;
            let into = bytes
                .get_mut(heap..heap + value.len())
                .ok_or_else(overflow)?;
            into.copy_from_slice(value);
        }
        if slot + size > heap {
            return Err(overflow());
        }
        let (k, rest) = bytes
            .get_mut(slot..slot + size)
            .and_then(|s| s.split_at_mut_checked(KEY_SIZE))
            .ok_or_else(overflow)?;
        k.copy_from_slice(&key.encode());
        if level == 0 {
            let at = u16::try_from(heap).unwrap_or(0).to_le_bytes();
            let len = u16::try_from(value.len())
                .map_err(|_| overflow())?
                .to_le_bytes();
            // An empty value at the very end of the block has offset 4096.
            rest.copy_from_slice(&[at[0], at[1], len[0], len[1]]);
        } else if rest.len() == value.len() {
            rest.copy_from_slice(value);
        } else {
            return Err(overflow());
        }
        slot += size;
        count += 1;
    }
    let mut header = [0u8; HEADER];
    header[0..4].copy_from_slice(&MAGIC);
    header[4] = level;
    header[6..8].copy_from_slice(&count.to_le_bytes());
    header[8..16].copy_from_slice(&tree.0.to_le_bytes());
    header[16..24].copy_from_slice(&generation.0.to_le_bytes());
    header[24..26].copy_from_slice(&u16::try_from(heap).unwrap_or(0).to_le_bytes());
    if let Some(into) = bytes.first_chunk_mut::<HEADER>() {
        *into = header;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ptr(generation: u64) -> BlockPtr {
        BlockPtr {
            addr: BlockAddr(7),
            birth: Generation(generation),
            crc: 0,
        }
    }

    #[test]
    fn keys_encode_in_order() {
        let keys = [
            Key::MIN,
            Key::new(0, 0, 1),
            Key::new(0, 1, 0),
            Key::new(1, 0, u64::MAX),
            Key::new(1, 3, 0x0102_0304_0506_0708),
            Key::new(0x0102_0304_0506_0708, 0, 0),
            Key::MAX,
        ];
        for pair in keys.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].encode() < pair[1].encode());
        }
        for key in keys {
            assert_eq!(Key::decode(&key.encode()), key);
        }
        assert_eq!(Key::new(1, 2, 3).encode()[7..10], [1, 2, 0]);
    }

    #[test]
    fn leaf_round_trip_and_rank() {
        let mut page = [0xEE; BLOCK_SIZE];
        let entries: Vec<(Key, Vec<u8>)> = (0..40u64)
            .map(|i| (Key::new(i / 7, 3, i * 2), vec![i as u8; i as usize]))
            .collect();
        encode(
            &mut page,
            0,
            VolumeId(9),
            Generation(5),
            entries.iter().map(|(k, v)| (*k, v.as_slice())),
        )
        .unwrap();
        let node = NodeView::new(&ptr(5), &page).unwrap();
        node.validate().unwrap();
        assert_eq!(
            (node.level(), node.count(), node.tree()),
            (0, 40, VolumeId(9))
        );
        for (i, (k, v)) in entries.iter().enumerate() {
            assert_eq!(node.key(i), *k);
            assert_eq!(node.value(i).unwrap(), &v[..]);
            assert_eq!(node.rank(k), i + 1);
            assert_eq!(
                node.rank(&Key {
                    sub: k.sub + 1,
                    ..*k
                }),
                i + 1
            );
        }
        assert!(node.value(40).is_err() && node.child(0).is_err());
        assert!(NodeView::new(&ptr(6), &page).is_err());
    }

    #[test]
    fn encoding_is_the_documented_one() {
        let mut page = [0xEE; BLOCK_SIZE];
        let key = Key::new(0x0102, 3, 0x0405);
        let entries = [(key, &b"abc"[..]), (Key::MAX, &b"z"[..])].into_iter();
        encode(&mut page, 0, VolumeId(9), Generation(5), entries).unwrap();
        let head = [b'W', b'N', b'O', b'D', 0, 0, 2, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(page[..16], head);
        assert_eq!(page[16..24], 5u64.to_le_bytes());
        assert_eq!(page[24..26], [0xFC, 0x0F]);
        assert_eq!(
            page[26..43],
            [0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5]
        );
        assert_eq!(page[43..47], [0xFD, 0x0F, 3, 0]);
        assert_eq!(page[47..64], [0xFF; 17]);
        assert_eq!(page[64..68], [0xFC, 0x0F, 1, 0]);
        assert_eq!(page[68..4092], [0; 4024]);
        assert_eq!(page[4092..], *b"zabc");

        let child = ptr(6).encode();
        encode(
            &mut page,
            1,
            VolumeId(9),
            Generation(5),
            [(key, &child[..])].into_iter(),
        )
        .unwrap();
        assert_eq!((page[4], page[6]), (1, 1));
        assert_eq!(page[43..63], child);
    }

    #[test]
    fn too_much_is_refused_not_written() {
        let mut page = [0; BLOCK_SIZE];
        let value = vec![1u8; MAX_VALUE];
        let many = (0..4u64).map(|i| (Key::new(i, 0, 0), value.as_slice()));
        assert!(encode(&mut page, 0, VolumeId(1), Generation(1), many).is_err());
        let p = ptr(1).encode();
        let fits = |n: u64| {
            (0..n)
                .map(|i| (Key::new(i, 0, 0), p.as_slice()))
                .collect::<Vec<_>>()
        };
        assert!(
            encode(
                &mut page,
                1,
                VolumeId(1),
                Generation(1),
                fits(110).into_iter()
            )
            .is_ok()
        );
        assert!(
            encode(
                &mut page,
                1,
                VolumeId(1),
                Generation(1),
                fits(111).into_iter()
            )
            .is_err()
        );
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut state = 1u64;
        for round in 0..2000 {
            let mut page = [0; BLOCK_SIZE];
            for b in page.iter_mut() {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                *b = (state >> 56) as u8;
            }
            page[..4].copy_from_slice(&MAGIC);
            page[4] %= 4;
            page[16..24].copy_from_slice(&5u64.to_le_bytes());
            if round % 2 == 0 {
                page[7] = 0;
            }
            if let Ok(node) = NodeView::new(&ptr(5), &page) {
                assert!(node.validate().is_err() || node.count() < 8);
                for i in 0..node.count() + 2 {
                    let _ = (
                        node.key(i),
                        node.child(i),
                        node.value(i),
                        node.rank(&node.key(i)),
                    );
                }
            }
        }
    }
}
