//! AES in CBC mode with ciphertext stealing, in Kerberos' variant (RFC 3962 §5): the last two
//! blocks are always swapped.
//!
//! **Performance.** Blocks are decrypted independently of each other, and eight at a time keep the
//! processor's AES unit busy. Encryption of a block depends on the one before, so the unit idles
//! for most of a block's 40 to 60 cycles. Therefore [`Aes::encrypt`] passes its output to the hash
//! a [`STRETCH`] at a time. The rounds of a hash depend on each other too, and a processor that
//! executes out of order overlaps the two chains if they alternate closely enough.

#[cfg(target_arch = "x86_64")]
use super::ni;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256};

/// Bytes of a block.
pub const BLOCK: usize = 16;
/// Bytes that are encrypted and hashed in turn: a block of SHA-1 and SHA-256.
pub const STRETCH: usize = 64;

/// A block, or what is combined with the next one.
pub type Block = [u8; BLOCK];

/// When the hash takes a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashInput {
    /// Before it is encrypted.
    Plain,
    /// Once it is encrypted.
    Sealed,
}

/// The cipher with a key.
pub enum Aes {
    /// By the processor's instructions.
    #[cfg(target_arch = "x86_64")]
    Native(Box<ni::Keys>),
    /// With a key of 16 bytes, on any processor.
    Short(Box<Aes128>),
    /// With one of 32 bytes.
    Long(Box<Aes256>),
}

impl Aes {
    /// Returns the cipher for a key of 16 or 32 bytes, by the processor's instructions if it has
    /// them.
    pub fn new(key: &[u8]) -> Option<Aes> {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = ni::Keys::new(key) {
            return Some(Aes::Native(Box::new(keys)));
        }
        Aes::portable(key)
    }

    /// Returns the cipher without the processor's instructions; `None` if the key has another
    /// length.
    pub fn portable(key: &[u8]) -> Option<Aes> {
        let short = Aes128::new_from_slice(key).map(|aes| Aes::Short(Box::new(aes)));
        short
            .or_else(|_| Aes256::new_from_slice(key).map(|aes| Aes::Long(Box::new(aes))))
            .ok()
    }

    /// Encrypts whole blocks in place, and passes them to `hash`. `chain` is the block before them.
    pub fn encrypt(
        &self,
        chain: &mut Block,
        data: &mut [u8],
        hashed: HashInput,
        mut hash: impl FnMut(&[u8]),
    ) {
        assert!(
            data.len() % BLOCK == 0,
            "{} bytes are no blocks",
            data.len()
        );
        #[cfg(target_arch = "x86_64")]
        if let Aes::Native(keys) = self {
            return keys.encrypt(chain, data, hashed, hash);
        }
        if hashed == HashInput::Plain {
            hash(data);
        }
        for block in data.as_chunks_mut::<BLOCK>().0 {
            add(block, chain);
            self.encrypt_block(block);
            *chain = *block;
        }
        if hashed == HashInput::Sealed {
            hash(data);
        }
    }

    /// Decrypts whole blocks in place. `chain` is the encrypted block before them.
    pub fn decrypt(&self, chain: &mut Block, data: &mut [u8]) {
        assert!(
            data.len() % BLOCK == 0,
            "{} bytes are no blocks",
            data.len()
        );
        #[cfg(target_arch = "x86_64")]
        if let Aes::Native(keys) = self {
            return keys.decrypt(chain, data);
        }
        for block in data.as_chunks_mut::<BLOCK>().0 {
            let sealed = *block;
            self.decrypt_block(block);
            add(block, chain);
            *chain = sealed;
        }
    }

    /// Encrypts one block, without chaining.
    pub fn encrypt_block(&self, block: &mut Block) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Aes::Native(keys) => keys.encrypt(&mut [0; BLOCK], block, HashInput::Plain, |_| {}),
            Aes::Short(aes) => aes.encrypt_block(block.into()),
            Aes::Long(aes) => aes.encrypt_block(block.into()),
        }
    }

    fn decrypt_block(&self, block: &mut Block) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Aes::Native(keys) => keys.decrypt(&mut [0; BLOCK], block),
            Aes::Short(aes) => aes.decrypt_block(block.into()),
            Aes::Long(aes) => aes.decrypt_block(block.into()),
        }
    }

    /// Encrypts the end of a message, [`end`] bytes, in place.
    pub fn encrypt_end(&self, chain: &Block, data: &mut [u8]) {
        let Some((first, last)) = data.split_first_chunk_mut::<BLOCK>() else {
            unreachable!("a message has a block");
        };
        add(first, chain);
        self.encrypt_block(first);
        if last.is_empty() {
            return;
        }
        let stolen = *first;
        for (to, from) in first.iter_mut().zip(&*last) {
            *to ^= from;
        }
        self.encrypt_block(first);
        last.copy_from_slice(&stolen[..last.len()]);
    }

    /// Decrypts the end of a message, [`end`] bytes, in place.
    pub fn decrypt_end(&self, chain: &Block, data: &mut [u8]) {
        let Some((first, last)) = data.split_first_chunk_mut::<BLOCK>() else {
            unreachable!("a message has a block");
        };
        self.decrypt_block(first);
        if !last.is_empty() {
            // The last block is padded with the bytes that were stolen from the block before.
            let padded = *first;
            first[..last.len()].copy_from_slice(last);
            for (to, from) in last.iter_mut().zip(padded) {
                *to ^= from;
            }
            self.decrypt_block(first);
        }
        add(first, chain);
    }
}

/// Returns the number of bytes at the end of a message of `len` bytes that [`Aes::encrypt_end`] and
/// [`Aes::decrypt_end`] take: the only block, or the last two, of which the last may be short.
pub fn end(len: usize) -> usize {
    match len {
        0..=BLOCK => len,
        _ => BLOCK + (len - 1) % BLOCK + 1,
    }
}

fn add(to: &mut Block, other: &Block) {
    *to = (u128::from_ne_bytes(*to) ^ u128::from_ne_bytes(*other)).to_ne_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::krb5::tests::bytes;

    fn sealed(cipher: &Aes, text: &[u8]) -> Vec<u8> {
        let (mut data, mut chain, mut hashed) = (text.to_vec(), [0; BLOCK], Vec::new());
        let (front, last) = data.split_at_mut(text.len() - end(text.len()));
        let hash = |part: &[u8]| hashed.extend_from_slice(part);
        cipher.encrypt(&mut chain, front, HashInput::Plain, hash);
        assert_eq!(hashed, text[..front.len()]);
        cipher.encrypt_end(&chain, last);
        data
    }

    fn opened(cipher: &Aes, sealed: &[u8]) -> Vec<u8> {
        let (mut data, mut chain) = (sealed.to_vec(), [0; BLOCK]);
        let (front, last) = data.split_at_mut(sealed.len() - end(sealed.len()));
        cipher.decrypt(&mut chain, front);
        cipher.decrypt_end(&chain, last);
        data
    }

    /// Returns the cipher with the processor's instructions and the portable one.
    fn both(key: &[u8]) -> [Aes; 2] {
        [Aes::new(key).unwrap(), Aes::portable(key).unwrap()]
    }

    #[test]
    fn keys_have_two_lengths() {
        for len in 0..50 {
            let key = vec![1; len];
            let good = matches!(len, 16 | 32);
            assert_eq!(
                (Aes::new(&key).is_some(), Aes::portable(&key).is_some()),
                (good, good)
            );
        }
    }

    /// RFC 3962, appendix B.
    #[test]
    fn sample_encryptions_of_the_standard() {
        let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
        for (len, expected) in [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (
                31,
                "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5",
            ),
            (
                32,
                "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584",
            ),
            (
                47,
                "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e\
                 39312523a78662d5be7fcbcc98ebf5",
            ),
            (
                48,
                "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd8\
                 39312523a78662d5be7fcbcc98ebf5a8",
            ),
            (
                64,
                "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8\
                 4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
            ),
        ] {
            for cipher in both(b"chicken teriyaki") {
                let sealed = sealed(&cipher, &text[..len]);
                assert_eq!(sealed, bytes(expected), "{len} bytes");
                assert_eq!(opened(&cipher, &sealed), text[..len], "{len} bytes");
            }
        }
    }

    /// FIPS 197, appendix C.
    #[test]
    fn sample_blocks_of_the_cipher() {
        let key: Vec<u8> = (0..32).collect();
        for (len, expected) in [
            (16, "69c4e0d86a7b0430d8cdb78070b4c55a"),
            (32, "8ea2b7ca516745bfeafc49904b496089"),
        ] {
            for cipher in both(&key[..len]) {
                let text: Block = std::array::from_fn(|at| 0x11 * at as u8);
                let mut block = text;
                cipher.encrypt_block(&mut block);
                assert_eq!(block[..], bytes(expected));
                cipher.decrypt_block(&mut block);
                assert_eq!(block, text);
            }
        }
    }

    #[test]
    fn any_length_is_decrypted_on_any_processor() {
        let text: Vec<u8> = (0..600u32).map(|n| (n * n) as u8).collect();
        for key in [&text[100..116], &text[200..232]] {
            let [native, portable] = both(key);
            for len in 16..text.len() {
                let one = sealed(&native, &text[..len]);
                assert_eq!(one, sealed(&portable, &text[..len]), "{len} bytes");
                assert_eq!(opened(&native, &one), text[..len], "{len} bytes");
                assert_eq!(opened(&portable, &one), text[..len], "{len} bytes");
            }
        }
    }
}
