//! Hash of a snapshot's contents, which two volumes can compare.
//!
//! **Purpose.** A completed transfer is known to have carried over the sent data. Nothing in the
//! stream can prove that the right data was sent: that both sides began from the same tree, and
//! that no difference was left out. So each side computes a hash of the records in its own tree.
//! Only if the two are equal has the snapshot arrived.
//!
//! **Input.** The hash covers the data that two trees have in common if one is a copy of the other:
//! every record with its key. For a file's window of blocks, addresses and generations are replaced
//! by a bitmap of the blocks with contents, and the CRC32C that is stored for each.
//!
//! **Construction.** The hash is a sum modulo 2^256 over the records of SHA-256(key of the volume ‖
//! key of the record ‖ value). The number of records is beside it. It is a multiset hash of the
//! kind of AdHash (Bellare and Micciancio, Eurocrypt 1997). A sum does not depend on the order, and
//! a record can be taken out of it again. So the hash of a snapshot follows from that of an older
//! one and the differing records, at the cost of the difference ([`weir_store::tree::Diff`]).
//! Without a key such a hash can be forged with 2^k-lists (Wagner, Crypto 2002). The key, 128 bits
//! that source and copies share and no client knows, prevents that. Two trees that differ by
//! accident have the same sum with probability 2^-256.
//!
//! **Limits.** The contents of a block count by their CRC32C, the checksum with which either side
//! verifies every read. It detects damage, with one miss in 2^32, not malice: a client that can
//! write a file can find two blocks with one checksum. That is enough here. Checksums do not decide
//! which blocks are sent (blocks are distinguished by address and birth). So such a pair deceives
//! the proof only if another error affects that very block and nothing else. A transfer that starts
//! from the wrong tree differs in inode records, which are hashed as a whole. Hashing contents with
//! SHA-256 would mean rereading all transferred data on both sides.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use weir_base::hex;
use weir_store::node::Key;

use crate::format::hash::HashKey;
use crate::format::record::{Window, kind};

/// Domain prefix; with the key it fills one block of SHA-256.
const DOMAIN: &[u8; 48] = b"weir: contents of a snapshot, record by record 1";

/// The hash of all records of a snapshot: see the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContentHash {
    /// Sum modulo 2^256; the least significant word first.
    sum: [u64; 4],
    records: u64,
}

impl ContentHash {
    /// Length of an encoded hash in bytes.
    pub const LEN: usize = 40;

    /// Encodes the hash for storage and transfer: the sum (32), the number of records (8),
    /// little-endian.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let words = self.sum.iter().chain([&self.records]);
        for (to, word) in out.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Decodes a hash encoded by [`ContentHash::encode`].
    pub fn decode(bytes: &[u8; Self::LEN]) -> ContentHash {
        let mut words = [0; 5];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*from);
        }
        let [a, b, c, d, records] = words;
        ContentHash {
            sum: [a, b, c, d],
            records,
        }
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn add(&mut self, element: [u64; 4]) {
        let mut carry = false;
        for (word, more) in self.sum.iter_mut().zip(element) {
            let (once, over) = word.overflowing_add(more);
            let (twice, again) = once.overflowing_add(u64::from(carry));
            (*word, carry) = (twice, over | again);
        }
        self.records = self.records.wrapping_add(1);
    }

    pub(crate) fn sub(&mut self, element: [u64; 4]) {
        let mut borrow = false;
        for (word, less) in self.sum.iter_mut().zip(element) {
            let (once, under) = word.overflowing_sub(less);
            let (twice, again) = once.overflowing_sub(u64::from(borrow));
            (*word, borrow) = (twice, under | again);
        }
        self.records = self.records.wrapping_sub(1);
    }
}

impl fmt::Display for ContentHash {
    /// Formats sixteen digits of the sum, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, _, _, top] = self.sum;
        write!(f, "{top:016x} over {} records", self.records)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.encode()))
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match hex::decode(&text) {
            Some(bytes) => Ok(ContentHash::decode(&bytes)),
            None => Err(de::Error::custom("not the hash of a snapshot's contents")),
        }
    }
}

/// Hashes records with a volume's key.
pub(crate) struct RecordHasher(Sha256);

impl RecordHasher {
    pub(crate) fn new(key: HashKey) -> RecordHasher {
        let hasher = Sha256::new()
            .chain_update(DOMAIN)
            .chain_update(key.0.to_le_bytes())
            .chain_update(key.1.to_le_bytes());
        RecordHasher(hasher)
    }

    /// Returns the hash of a record; `Err` if it is malformed. Returns `None` for a record that
    /// does not count: a window in which nothing is stored, or a record that each copy has for
    /// itself.
    pub(crate) fn element(&self, key: &Key, value: &[u8]) -> Result<Option<[u64; 4]>, ()> {
        if kind::OWN.contains(&key.kind) {
            return Ok(None);
        }
        let mut hasher = self.0.clone();
        hasher.update(key.encode());
        if key.kind == kind::EXTENT {
            let window = Window::decode(value).ok_or(())?;
            let mut blocks: SmallVec<[u8; 160]> = SmallVec::new();
            for (place, stored) in window.blocks.iter().enumerate() {
                if let Some(stored) = stored {
                    blocks.push(place as u8);
                    blocks.extend_from_slice(&stored.crc.to_le_bytes());
                }
            }
            if blocks.is_empty() {
                return Ok(None);
            }
            hasher.update(&blocks);
        } else {
            hasher.update(value);
        }
        let sum: [u8; 32] = hasher.finalize().into();
        let mut words = [0; 4];
        for (word, from) in words.iter_mut().zip(sum.as_chunks().0) {
            *word = u64::from_le_bytes(*from);
        }
        Ok(Some(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{BlockAddr, Generation, Rng, SeededRng};

    use crate::format::record::StoredBlock;

    fn keyed() -> RecordHasher {
        RecordHasher::new(HashKey(1, 2))
    }

    fn element(key: &Key, value: &[u8]) -> [u64; 4] {
        keyed().element(key, value).unwrap().unwrap()
    }

    #[test]
    fn a_sum_forgets_order_and_what_was_taken_out() {
        let rng = SeededRng::new(1);
        let elements: Vec<[u64; 4]> = (0..200)
            .map(|n| element(&Key::new(n, 0, rng.below(3)), &n.to_le_bytes()))
            .collect();
        let mut forth = ContentHash::default();
        elements.iter().for_each(|e| forth.add(*e));
        let mut back = ContentHash::default();
        elements.iter().rev().for_each(|e| back.add(*e));
        assert_eq!((forth, forth.records()), (back, 200));
        assert_eq!(ContentHash::decode(&forth.encode()), forth);
        for e in &elements {
            forth.sub(*e);
        }
        assert_eq!(forth, ContentHash::default());
        // Carries and borrows propagate through all words.
        let mut edge = ContentHash::default();
        edge.sub([1, 0, 0, 0]);
        assert_eq!(edge.sum, [u64::MAX; 4]);
        edge.add([1, 0, 0, 0]);
        assert_eq!(edge, ContentHash::default());
    }

    #[test]
    fn every_bit_of_a_record_and_the_key_count() {
        let key = Key::new(7, kind::DIRENT, 9);
        let base = element(&key, b"value");
        assert_ne!(base, element(&key, b"valuf"));
        assert_ne!(base, element(&Key::new(7, kind::DIRENT, 10), b"value"));
        assert_ne!(base, element(&Key::new(8, kind::DIRENT, 9), b"value"));
        let other = RecordHasher::new(HashKey(1, 3)).element(&key, b"value");
        assert_ne!(Ok(Some(base)), other);
    }

    #[test]
    fn of_blocks_contents_and_places_count_and_addresses_do_not() {
        let key = Key::new(7, kind::EXTENT, 0);
        let window = |place: usize, addr, birth, crc| {
            let mut window = Window::EMPTY;
            window.blocks[place] = Some(StoredBlock {
                addr: BlockAddr(addr),
                birth: Generation(birth),
                crc,
            });
            let mut out = Vec::new();
            window.encode(&mut out);
            out
        };
        let base = element(&key, &window(3, 100, 5, 77));
        assert_eq!(base, element(&key, &window(3, 900, 6, 77)));
        assert_ne!(base, element(&key, &window(3, 100, 5, 78)));
        assert_ne!(base, element(&key, &window(4, 100, 5, 77)));
        let mut empty = Vec::new();
        Window::EMPTY.encode(&mut empty);
        assert_eq!(keyed().element(&key, &empty), Ok(None));
        assert_eq!(keyed().element(&key, &[9]), Err(()));
    }
}
