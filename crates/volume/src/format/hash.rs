//! The keyed hash that places names in a directory.
//!
//! Directory entries are ordered by a hash of their folded name ([`crate::format::fold`]), so that
//! a position (the READDIR cookie) belongs to the entry and not to the sequence. The hash is keyed
//! with a secret of the volume. Otherwise a user could construct names that collide and exhaust the
//! disambiguators of one hash. SipHash-2-4 (Aumasson and Bernstein, 2012) is designed for this.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::SipKey;

use crate::format::fold::fold;

/// The 128-bit key of a volume's hash of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashKey(pub(crate) u64, pub(crate) u64);

/// A volume's key. It changes at most once: an empty volume gets the key of the volume that it
/// becomes a copy of.
pub(crate) struct KeyCell(AtomicU64, AtomicU64);

impl KeyCell {
    pub(crate) fn new(key: HashKey) -> KeyCell {
        KeyCell(AtomicU64::new(key.0), AtomicU64::new(key.1))
    }

    pub(crate) fn get(&self) -> HashKey {
        HashKey(
            self.0.load(Ordering::Relaxed),
            self.1.load(Ordering::Relaxed),
        )
    }

    /// Sets the key. No name may be looked up meanwhile.
    pub(crate) fn set(&self, key: HashKey) {
        self.0.store(key.0, Ordering::Relaxed);
        self.1.store(key.1, Ordering::Relaxed);
    }
}

/// Bits of a cookie that distinguish names with one hash.
pub(crate) const DISAMBIGUATOR_BITS: u32 = 16;

/// Maximum number of entries of one hash in a directory: names that differ only in case. The format
/// has room for more, but each entry makes the lookup of all of them slower.
pub(crate) const VARIANTS: u64 = 1024;

/// Returns the part of a cookie derived from the name.
pub(crate) fn hash_of(cookie: u64) -> u64 {
    cookie >> DISAMBIGUATOR_BITS << DISAMBIGUATOR_BITS
}

/// Returns the first cookie of a name: the 47-bit hash of the folded name above a 16-bit
/// disambiguator. The top bit is clear (some clients treat cookies as signed), and the cookie is
/// never below 65,536, so 0, 1 and 2 stay free for the start, "." and "..".
pub(crate) fn first_cookie(key: HashKey, name: &[u8]) -> u64 {
    let hash = SipKey(key.0, key.1).hash(&fold(name));
    (hash >> (DISAMBIGUATOR_BITS + 1)).max(1) << DISAMBIGUATOR_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_leave_room() {
        for i in 0..1000u32 {
            let c = first_cookie(HashKey(1, 2), &i.to_le_bytes());
            assert_eq!(hash_of(c), c);
            assert!(c >= 65_536 && c <= i64::MAX as u64);
            assert_eq!(hash_of(c + VARIANTS - 1), c);
        }
    }

    #[test]
    fn variants_of_a_name_have_one_place() {
        let of = |name: &str| first_cookie(HashKey(1, 2), name.as_bytes());
        assert_eq!(of("Makefile"), of("makeFILE"));
        assert_ne!(of("Makefile"), of("Makefil"));
    }
}
