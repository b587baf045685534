//! Encryption of what a bucket gets, and names of chunks.
//!
//! Everything is sealed with AES-256-GCM (NIST SP 800-38D) under the vault's key, with a random
//! nonce and with the place where it belongs as associated data. So a bucket can withhold objects,
//! and can neither read, change nor exchange them unnoticed. A chunk is named by an HMAC-SHA-256 of
//! its contents under a key derived from the vault's, so that names say nothing about contents.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use weir_base::{Rng, hex};

/// The key of a vault: 32 random bytes. Who has lost it has lost the backups.
#[derive(Clone, PartialEq, Eq)]
pub struct VaultKey([u8; 32]);

impl fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VaultKey(…)")
    }
}

impl VaultKey {
    /// Makes a key.
    pub fn random(rng: &dyn Rng) -> VaultKey {
        let mut bytes = [0; 32];
        rng.fill(&mut bytes);
        VaultKey(bytes)
    }

    /// Returns the key as 64 hexadecimal digits, as it is kept in a file.
    pub fn to_hex(&self) -> String {
        hex::encode(&self.0)
    }

    /// Reads what [`VaultKey::to_hex`] wrote. `None` if it is anything else.
    pub fn from_hex(text: &str) -> Option<VaultKey> {
        hex::decode(text).map(VaultKey)
    }
}

/// Name of a chunk: half of the HMAC of its contents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkId(pub(crate) [u8; 16]);

/// Seals and opens with the key of a vault.
pub(crate) struct Sealer {
    aead: LessSafeKey,
    names: hmac::Key,
    rng: Arc<dyn Rng>,
}

/// Bytes by which sealing makes data longer.
pub(crate) const OVERHEAD: usize = NONCE_LEN + 16;

impl Sealer {
    pub(crate) fn new(key: &VaultKey, rng: Arc<dyn Rng>) -> Sealer {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key.0), b"weir: chunks");
        #[expect(
            clippy::expect_used,
            reason = "the key has the length of the algorithm's"
        )]
        let unbound = UnboundKey::new(&AES_256_GCM, &key.0).expect("32 bytes");
        Sealer {
            aead: LessSafeKey::new(unbound),
            names: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
            rng,
        }
    }

    pub(crate) fn rng(&self) -> &dyn Rng {
        &*self.rng
    }

    pub(crate) fn name(&self, contents: &[u8]) -> ChunkId {
        let tag = hmac::sign(&self.names, contents);
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        ChunkId(name)
    }

    /// Appends `plain`, sealed for `place`, to `out`.
    pub(crate) fn seal(&self, place: &[u8], mut plain: Vec<u8>, out: &mut Vec<u8>) {
        let mut nonce = [0; NONCE_LEN];
        self.rng.fill(&mut nonce);
        out.extend_from_slice(&nonce);
        let nonce = Nonce::assume_unique_for_key(nonce);
        #[expect(clippy::expect_used, reason = "fails beyond 64 GiB")]
        self.aead
            .seal_in_place_append_tag(nonce, Aad::from(place), &mut plain)
            .expect("a chunk is short");
        out.extend_from_slice(&plain);
    }

    /// Opens what was sealed for `place`. `None` if it was not.
    pub(crate) fn open(&self, place: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut bytes = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.aead.open_in_place(nonce, Aad::from(place), &mut bytes);
        let length = opened.ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::SeededRng;

    #[test]
    fn what_is_sealed_opens_at_its_place_with_its_key() {
        let rng = Arc::new(SeededRng::new(1));
        let key = VaultKey::random(&*rng);
        let sealer = Sealer::new(&key, rng.clone());
        let mut sealed = Vec::new();
        sealer.seal(b"here", b"contents".to_vec(), &mut sealed);
        assert_eq!(sealed.len(), 8 + OVERHEAD);
        assert_eq!(sealer.open(b"here", &sealed).unwrap(), b"contents");
        assert_eq!(sealer.open(b"there", &sealed), None);
        let other = Sealer::new(&VaultKey::random(&*rng), rng);
        assert_eq!(other.open(b"here", &sealed), None);
        assert_ne!(other.name(b"contents"), sealer.name(b"contents"));
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(sealer.open(b"here", &damaged), None);
        }
        assert_eq!(sealer.open(b"here", &sealed[..5]), None);
        assert_eq!(VaultKey::from_hex(&key.to_hex()), Some(key));
        assert_eq!(VaultKey::from_hex("00"), None);
        assert_eq!(VaultKey::from_hex(&"+1".repeat(32)), None);
    }
}
