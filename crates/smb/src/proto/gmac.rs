//! AES-128-GMAC (SP 800-38D): GCM without plaintext. The message is the additional authenticated
//! data.
//!
//! The library takes that in one piece, and hashes it several times faster than it can be copied,
//! so a message in pieces is gathered first. The buffer belongs to the thread, which signs one
//! message at a time.
//!
//! The lower library takes pieces, and encrypts from one buffer to another. With that interface 64
//! KiB reads were no faster, signed or encrypted (four servers in turn, working sets of 8 and 256
//! MiB: within the spread of 10 %). The first pass waits for the memory, and the second finds the
//! data in the processor's caches.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use std::cell::RefCell;

/// Bytes of room that a thread keeps: for the data of the greatest READ or WRITE, and what is
/// before it.
const KEPT: usize = crate::proto::dialect::MAX_TRANSFER as usize + 4096;

thread_local! {
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A channel's signing key, ready to hash with.
pub struct Gmac(LessSafeKey);

impl Gmac {
    /// Expands the key once for all messages.
    pub fn new(key: &[u8; 16]) -> Gmac {
        match UnboundKey::new(&AES_128_GCM, key) {
            Ok(key) => Gmac(LessSafeKey::new(key)),
            Err(Unspecified) => unreachable!("the key has the cipher's length"),
        }
    }

    /// The code of a message in pieces.
    pub fn code<'a>(&self, nonce: [u8; 12], pieces: impl Iterator<Item = &'a [u8]>) -> [u8; 16] {
        GATHERED.with_borrow_mut(|message| {
            message.clear();
            pieces.for_each(|piece| message.extend_from_slice(piece));
            let code = self.code_of(nonce, message);
            if message.capacity() > KEPT {
                *message = Vec::new();
            }
            code
        })
    }

    fn code_of(&self, nonce: [u8; 12], message: &[u8]) -> [u8; 16] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(message);
        let sealed = self.0.seal_in_place_separate_tag(nonce, aad, &mut []);
        let code = sealed.map(|tag| tag.as_ref().try_into());
        match code {
            Ok(Ok(code)) => code,
            Ok(Err(_)) | Err(Unspecified) => unreachable!("no message is 64 GiB long"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::keys::tests::unhex;

    /// The GCM specification's test case 1: neither data nor anything beside it.
    #[test]
    fn the_code_of_nothing_is_the_published_one() {
        let code = Gmac::new(&[0; 16]).code([0; 12], std::iter::empty());
        assert_eq!(code.to_vec(), unhex("58e2fccefa7e3061367f1d57a4e7455a"));
    }

    /// NIST's gcmEncryptExtIV128, of no data and 128 bits beside it, count 0.
    #[test]
    fn a_code_is_the_published_one() {
        let key: [u8; 16] = unhex("77be63708971c4e240d1cb79e8d77feb")
            .try_into()
            .unwrap();
        let nonce = unhex("e0e00f19fed7ba0136a797f3").try_into().unwrap();
        let message = unhex("7a43ec1d9c0a5a78a0b16533a6213cab");
        let code = Gmac::new(&key).code(nonce, std::iter::once(&message[..]));
        assert_eq!(code.to_vec(), unhex("209fcc8d3675ed938e9c7166709dd946"));
    }

    #[test]
    fn codes_are_the_same_however_the_message_is_cut() {
        let key: [u8; 16] = std::array::from_fn(|n| 3 * n as u8);
        let (nonce, gmac) = ([5; 12], Gmac::new(&key));
        let message: Vec<u8> = (0..300u32).map(|n| (n * n) as u8).collect();
        for len in [1, 15, 16, 17, 63, 64, 65, 300] {
            let message = &message[..len];
            let whole = gmac.code_of(nonce, message);
            for cut in 0..=len {
                let (a, rest) = message.split_at(cut);
                let (b, c) = rest.split_at(rest.len() / 2);
                let code = gmac.code(nonce, [a, b, c].into_iter());
                assert_eq!(code, whole, "{len} bytes, cut at {cut}");
            }
        }
    }

    /// The code depends on every byte: what a shorter message leaves in the room is not in the code
    /// of the next.
    #[test]
    fn a_message_is_hashed_alone() {
        let gmac = Gmac::new(&[1; 16]);
        let alone = gmac.code([2; 12], std::iter::once(&[7; 20][..]));
        gmac.code([2; 12], std::iter::once(&[9; 3 * KEPT][..]));
        gmac.code([2; 12], std::iter::once(&[9; 200][..]));
        let again = gmac.code([2; 12], std::iter::once(&[7; 20][..]));
        assert_eq!(again, alone);
        let capacity = GATHERED.with_borrow(Vec::capacity);
        assert!(capacity <= KEPT, "{capacity} bytes are kept");
    }
}
