//! AES-128-GMAC (SP 800-38D): GCM without data, the message being what is authenticated beside it.
//!
//! The code is GHASH of the message, masked by a block that is encrypted under the nonce. Libraries for GCM take what is
//! authenticated beside the data as a few bytes and hash it block by block, each block waiting for the one before. The message here is all
//! of it, so GHASH is a library's own, which hashes four blocks for one reduction, and the message stays where it is, in any
//! pieces.

use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use ghash::universal_hash::UniversalHash;
use ghash::universal_hash::common::array::Array;
use ghash::{Block, GHash};

/// Bytes of a block, and of a code.
const BLOCK: usize = 16;

/// A key, with what is derived from it once.
pub struct Gmac {
    aes: Aes128,
    /// Before any block.
    hash: GHash,
}

impl Gmac {
    /// A key.
    pub fn new(key: &[u8; 16]) -> Gmac {
        let aes = Aes128::new(key.into());
        let mut subkey = aes::Block::default();
        aes.encrypt_block(&mut subkey);
        let hash = GHash::new(&<[u8; BLOCK]>::from(subkey).into());
        Gmac { aes, hash }
    }

    /// The code of a message in pieces.
    pub fn code<'a>(&self, nonce: [u8; 12], pieces: impl Iterator<Item = &'a [u8]>) -> [u8; BLOCK] {
        let mut hash = self.hash.clone();
        let mut len = 0;
        // A block that the pieces before have filled in part.
        let (mut block, mut filled) = ([0; BLOCK], 0);
        for mut piece in pieces {
            len += piece.len();
            if filled > 0 {
                let (more, rest) = piece.split_at(piece.len().min(BLOCK - filled));
                block[filled..filled + more.len()].copy_from_slice(more);
                filled += more.len();
                if filled < BLOCK {
                    continue;
                }
                hash.update(&[block.into()]);
                piece = rest;
            }
            let (blocks, rest): (&[Block], _) = Array::slice_as_chunks(piece);
            hash.update(blocks);
            block[..rest.len()].copy_from_slice(rest);
            filled = rest.len();
        }
        hash.update_padded(&block[..filled]);
        // In bits: the message's, and of no data.
        let mut lengths = [0; BLOCK];
        lengths[..8].copy_from_slice(&(8 * len as u64).to_be_bytes());
        hash.update(&[lengths.into()]);
        let mut first = [0; BLOCK];
        first[..12].copy_from_slice(&nonce);
        first[12..].copy_from_slice(&1u32.to_be_bytes());
        let mut mask = first.into();
        self.aes.encrypt_block(&mut mask);
        let (mask, hash): ([u8; BLOCK], [u8; BLOCK]) = (mask.into(), hash.finalize().into());
        (u128::from_be_bytes(mask) ^ u128::from_be_bytes(hash)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::unhex;
    use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    /// The GCM specification's test case 1: neither data nor anything beside it.
    #[test]
    fn the_code_of_nothing_is_the_published_one() {
        let code = Gmac::new(&[0; 16]).code([0; 12], std::iter::empty());
        assert_eq!(code.to_vec(), unhex("58e2fccefa7e3061367f1d57a4e7455a"));
    }

    /// As GCM of another library has it, with no data, for lengths around the blocks that are hashed together.
    #[test]
    fn codes_are_those_of_gcm_however_the_message_is_cut() {
        let key: [u8; 16] = std::array::from_fn(|n| 3 * n as u8);
        let (nonce, gmac) = ([5; 12], Gmac::new(&key));
        let peer = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let message: Vec<u8> = (0..300u32).map(|n| (n * n) as u8).collect();
        for len in [1, 15, 16, 17, 63, 64, 65, 80, 127, 128, 129, 300] {
            let message = &message[..len];
            let nonce_again = Nonce::assume_unique_for_key(nonce);
            let tag = peer.seal_in_place_separate_tag(nonce_again, Aad::from(message), &mut []);
            let tag = tag.unwrap();
            for cut in 0..=len {
                let (a, rest) = message.split_at(cut);
                let (b, c) = rest.split_at(rest.len() / 2);
                let code = gmac.code(nonce, [a, b, c].into_iter());
                assert_eq!(code, tag.as_ref(), "{len} bytes, cut at {cut}");
            }
        }
    }
}
