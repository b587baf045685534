//! AES-CBC by instructions of x86 processors (AES-NI). A block stays in a register until the next
//! one is added: passing it through memory would cost as much as the cipher.

use super::cbc::{BLOCK, Block, HashInput, STRETCH};
use std::arch::x86_64::*;

/// Number of rounds of AES-256, the maximum.
const MOST: usize = 14;
/// Number of blocks that are decrypted at a time: enough to keep both units busy while a round
/// takes its time.
const MANY: usize = 8;

/// A key, expanded for both directions.
pub struct Keys {
    rounds: usize,
    forward: [__m128i; MOST + 1],
    backward: [__m128i; MOST + 1],
}

impl Keys {
    /// Expands a key of AES-128 or AES-256; `None` if it has another length, or the processor lacks
    /// the instructions.
    pub fn new(key: &[u8]) -> Option<Keys> {
        let known = matches!(key.len(), 16 | 32) && is_x86_feature_detected!("aes");
        // SAFETY: the processor has the instructions.
        known.then(|| unsafe { Keys::expanded(key) })
    }

    /// FIPS 197 §5.2; the equivalent inverse cipher's keys by §5.3.5.
    #[target_feature(enable = "aes")]
    fn expanded(key: &[u8]) -> Keys {
        let (key, _) = key.as_chunks::<4>();
        let (own, rounds) = (key.len(), key.len() + 6);
        let mut words = [0u32; 4 * (MOST + 1)];
        for (word, bytes) in words.iter_mut().zip(key) {
            *word = u32::from_le_bytes(*bytes);
        }
        let substituted = |word: u32| {
            let four = _mm_set1_epi32(word.cast_signed());
            _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(four)).cast_unsigned()
        };
        let mut constant = 1u32;
        for at in own..4 * (rounds + 1) {
            let mut word = words[at - 1];
            if at % own == 0 {
                word = substituted(word).rotate_right(8) ^ constant;
                // Doubled in the field of the cipher.
                constant = constant << 1 ^ if constant & 0x80 != 0 { 0x11b } else { 0 };
            } else if own > 6 && at % own == 4 {
                word = substituted(word);
            }
            words[at] = words[at - own] ^ word;
        }
        let mut forward = [_mm_setzero_si128(); MOST + 1];
        for (key, four) in forward.iter_mut().zip(words.as_chunks::<4>().0) {
            let [a, b, c, d] = four.map(u32::cast_signed);
            *key = _mm_set_epi32(d, c, b, a);
        }
        let mut backward = forward;
        for (at, key) in backward[..=rounds].iter_mut().enumerate() {
            *key = match at {
                0 => forward[rounds],
                at if at == rounds => forward[0],
                at => _mm_aesimc_si128(forward[rounds - at]),
            };
        }
        Keys {
            rounds,
            forward,
            backward,
        }
    }

    /// Encrypts as [`super::cbc::Aes::encrypt`] does.
    pub fn encrypt(
        &self,
        chain: &mut Block,
        data: &mut [u8],
        hashed: HashInput,
        hash: impl FnMut(&[u8]),
    ) {
        // SAFETY: there are no keys on a processor without the instructions.
        unsafe {
            match self.rounds {
                10 => encrypt::<10>(&self.forward, chain, data, hashed, hash),
                _ => encrypt::<MOST>(&self.forward, chain, data, hashed, hash),
            }
        }
    }

    /// Decrypts as [`super::cbc::Aes::decrypt`] does.
    pub fn decrypt(&self, chain: &mut Block, data: &mut [u8]) {
        // SAFETY: as in `encrypt`.
        unsafe {
            match self.rounds {
                10 => decrypt::<10>(&self.backward, chain, data),
                _ => decrypt::<MOST>(&self.backward, chain, data),
            }
        }
    }
}

#[inline(always)]
fn load(block: &Block) -> __m128i {
    // SAFETY: there are 16 bytes, which need not be aligned.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

#[inline(always)]
fn store(block: &mut Block, value: __m128i) {
    // SAFETY: as in `load`.
    unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), value) }
}

#[target_feature(enable = "aes")]
fn encrypt<const ROUNDS: usize>(
    keys: &[__m128i; MOST + 1],
    chain: &mut Block,
    data: &mut [u8],
    hashed: HashInput,
    mut hash: impl FnMut(&[u8]),
) {
    let mut last = load(chain);
    for stretch in data.chunks_mut(STRETCH) {
        if hashed == HashInput::Plain {
            hash(stretch);
        }
        for block in stretch.as_chunks_mut::<BLOCK>().0 {
            last = _mm_xor_si128(last, _mm_xor_si128(load(block), keys[0]));
            for key in &keys[1..ROUNDS] {
                last = _mm_aesenc_si128(last, *key);
            }
            last = _mm_aesenclast_si128(last, keys[ROUNDS]);
            store(block, last);
        }
        if hashed == HashInput::Sealed {
            hash(stretch);
        }
    }
    store(chain, last);
}

#[target_feature(enable = "aes")]
fn decrypt<const ROUNDS: usize>(keys: &[__m128i; MOST + 1], chain: &mut Block, data: &mut [u8]) {
    let mut last = load(chain);
    let (blocks, _) = data.as_chunks_mut::<BLOCK>();
    let (groups, rest) = blocks.as_chunks_mut::<MANY>();
    for group in groups {
        let mut work = [_mm_setzero_si128(); MANY];
        for (work, block) in work.iter_mut().zip(&*group) {
            *work = _mm_xor_si128(load(block), keys[0]);
        }
        for key in &keys[1..ROUNDS] {
            for work in &mut work {
                *work = _mm_aesdec_si128(*work, *key);
            }
        }
        for (work, block) in work.iter().zip(group) {
            let plain = _mm_aesdeclast_si128(*work, _mm_xor_si128(keys[ROUNDS], last));
            last = load(block);
            store(block, plain);
        }
    }
    for block in rest {
        let sealed = load(block);
        let mut work = _mm_xor_si128(sealed, keys[0]);
        for key in &keys[1..ROUNDS] {
            work = _mm_aesdec_si128(work, *key);
        }
        store(
            block,
            _mm_aesdeclast_si128(work, _mm_xor_si128(keys[ROUNDS], last)),
        );
        last = sealed;
    }
    store(chain, last);
}
