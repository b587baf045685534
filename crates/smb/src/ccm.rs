//! AES-CCM (RFC 3610, SP 800-38C): what SMB 3.0 encrypts with, and 3.1.1 where a client has nothing better.
//!
//! The code is a chain of blocks that cannot be worked on side by side, so it is several times slower than GCM, which is chosen
//! wherever both sides have it. The key stream is made eight blocks at a time.

use crate::legacy::{Key, equal};
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockCipher, BlockEncrypt, KeyInit, consts::U16};
use aes::{Aes128, Aes256};

/// Bytes of a block.
const BLOCK: usize = 16;
/// Blocks of key stream that are made at a time.
const BATCH: usize = 8;

/// A key of AES-CCM.
pub enum Ccm {
    /// Of 128 bits.
    Aes128(Box<Aes128>),
    /// Of 256 bits.
    Aes256(Box<Aes256>),
}

impl Ccm {
    /// With a key of 128 bits.
    pub fn new_128(key: &[u8; 16]) -> Ccm {
        Ccm::Aes128(Box::new(Aes128::new(&(*key).into())))
    }

    /// With a key of 256 bits.
    pub fn new_256(key: &[u8; 32]) -> Ccm {
        Ccm::Aes256(Box::new(Aes256::new(&(*key).into())))
    }

    /// Encrypts `data` in place; its code, of which `code_len` bytes count. The nonce's length says how long a message may
    /// be: with 11 bytes, 2^32 bytes.
    pub fn seal(&self, nonce: &[u8], aad: &[u8], data: &mut [u8], code_len: usize) -> Key {
        match self {
            Ccm::Aes128(cipher) => seal(&**cipher, nonce, aad, data, code_len),
            Ccm::Aes256(cipher) => seal(&**cipher, nonce, aad, data, code_len),
        }
    }

    /// Decrypts `data` in place; whether `code` is its code. What is decrypted of it otherwise is of no use.
    #[must_use]
    pub fn open(&self, nonce: &[u8], aad: &[u8], data: &mut [u8], code: &[u8]) -> bool {
        match self {
            Ccm::Aes128(cipher) => open(&**cipher, nonce, aad, data, code),
            Ccm::Aes256(cipher) => open(&**cipher, nonce, aad, data, code),
        }
    }
}

trait Cipher: BlockCipher + BlockEncrypt + aes::cipher::BlockSizeUser<BlockSize = U16> {}
impl Cipher for Aes128 {}
impl Cipher for Aes256 {}

fn seal<C: Cipher>(cipher: &C, nonce: &[u8], aad: &[u8], data: &mut [u8], code_len: usize) -> Key {
    let code = code(cipher, nonce, aad, data, code_len);
    crypt(cipher, nonce, data);
    masked(cipher, nonce, code)
}

fn open<C: Cipher>(cipher: &C, nonce: &[u8], aad: &[u8], data: &mut [u8], expected: &[u8]) -> bool {
    crypt(cipher, nonce, data);
    let code = code(cipher, nonce, aad, data, expected.len());
    equal(&masked(cipher, nonce, code)[..expected.len()], expected)
}

/// The block that counts, at `n`: A_n (RFC 3610 §2.3).
fn counter(nonce: &[u8], n: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let len = BLOCK - 1 - nonce.len();
    block[0] = len as u8 - 1;
    block[1..=nonce.len()].copy_from_slice(nonce);
    block[BLOCK - len..].copy_from_slice(&n.to_be_bytes()[8 - len..]);
    block
}

fn masked<C: Cipher>(cipher: &C, nonce: &[u8], mut code: Key) -> Key {
    let mut mask = counter(nonce, 0).into();
    cipher.encrypt_block(&mut mask);
    code.iter_mut().zip(mask).for_each(|(c, m)| *c ^= m);
    code
}

fn crypt<C: Cipher>(cipher: &C, nonce: &[u8], data: &mut [u8]) {
    let mut next = 1;
    for chunk in data.chunks_mut(BATCH * BLOCK) {
        let mut stream: [GenericArray<u8, U16>; BATCH] =
            std::array::from_fn(|n| counter(nonce, next + n as u64).into());
        next += BATCH as u64;
        cipher.encrypt_blocks(&mut stream);
        let stream = stream.iter().flatten();
        chunk.iter_mut().zip(stream).for_each(|(d, s)| *d ^= s);
    }
}

/// The code before it is masked: a CBC-MAC of the lengths, `aad` and the data (RFC 3610 §2.2).
fn code<C: Cipher>(cipher: &C, nonce: &[u8], aad: &[u8], data: &[u8], code_len: usize) -> Key {
    let mut state = counter(nonce, data.len() as u64);
    state[0] |= 0x40 * u8::from(!aad.is_empty()) | (((code_len - 2) / 2) as u8) << 3;
    let step = |state: &mut [u8; BLOCK], with: &[u8]| {
        state.iter_mut().zip(with).for_each(|(s, w)| *s ^= w);
        let mut block = (*state).into();
        cipher.encrypt_block(&mut block);
        *state = block.into();
    };
    step(&mut state, &[]);
    if !aad.is_empty() {
        assert!(aad.len() < 0xff00, "its length is said in two bytes");
        let (first, rest) = aad.split_at(aad.len().min(BLOCK - 2));
        let mut block = [0; BLOCK];
        block[..2].copy_from_slice(&(aad.len() as u16).to_be_bytes());
        block[2..2 + first.len()].copy_from_slice(first);
        step(&mut state, &block);
        rest.chunks(BLOCK).for_each(|part| step(&mut state, part));
    }
    data.chunks(BLOCK).for_each(|part| step(&mut state, part));
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::tests::unhex;

    /// SP 800-38C, examples 1 to 3, and RFC 3610's packet vector 1.
    #[test]
    fn ccm_is_the_published_one() {
        let key = "404142434445464748494a4b4c4d4e4f";
        let rfc = "c0c1c2c3c4c5c6c7c8c9cacbcccdcecf";
        for (key, nonce, aad, data, sealed, code) in [
            (
                key,
                "10111213141516",
                "0001020304050607",
                "20212223",
                "7162015b",
                "4dac255d",
            ),
            (
                key,
                "1011121314151617",
                "000102030405060708090a0b0c0d0e0f",
                "202122232425262728292a2b2c2d2e2f",
                "d2a1f0e051ea5f62081a7792073d593d",
                "1fc64fbfaccd",
            ),
            (
                key,
                "101112131415161718191a1b",
                "000102030405060708090a0b0c0d0e0f10111213",
                "202122232425262728292a2b2c2d2e2f3031323334353637",
                "e3b201a9f5b71a7a9b1ceaeccd97e70b6176aad9a4428aa5",
                "484392fbc1b09951",
            ),
            (
                rfc,
                "00000003020100a0a1a2a3a4a5",
                "0001020304050607",
                "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e",
                "588c979a61c663d2f066d0c2c0f989806d5f6b61dac384",
                "17e8d12cfdf926e0",
            ),
        ] {
            let ccm = Ccm::new_128(&unhex(key).try_into().unwrap());
            let (nonce, aad, plain) = (unhex(nonce), unhex(aad), unhex(data));
            let (expected, code) = (unhex(sealed), unhex(code));
            let mut data = plain.clone();
            let made = ccm.seal(&nonce, &aad, &mut data, code.len());
            assert_eq!((&data, &made[..code.len()]), (&expected, &code[..]));
            assert!(ccm.open(&nonce, &aad, &mut data, &code));
            assert_eq!(data, plain);
            let mut data = expected;
            data[0] ^= 1;
            assert!(!ccm.open(&nonce, &aad, &mut data, &code));
        }
    }
}
