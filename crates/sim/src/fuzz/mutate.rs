//! Mutations of valid inputs, and the bounded run.
//!
//! The decoders here read 4-byte units, lengths in front of data, and little- or big-endian
//! integers; so besides bits and bytes the mutations change aligned words to values at which length
//! checks fail, and splice inputs at word boundaries.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Target;
use crate::rand::Choices;

/// Values at which length and range checks break.
const WORDS: [u32; 14] = [
    0,
    1,
    2,
    3,
    4,
    255,
    256,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0xffff_fffc,
    0xffff_fff0,
    0x0010_0000,
    0x0010_0001,
];

/// A changed copy of one of `seeds`.
#[must_use]
pub fn mutate(choices: &Choices, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = if seeds.is_empty() {
        Vec::new()
    } else {
        choices.pick(seeds).clone()
    };
    for _ in 0..choices.between(1, 4) {
        one(choices, seeds, &mut bytes);
    }
    bytes.truncate(1 << 17);
    bytes
}

fn one(choices: &Choices, seeds: &[Vec<u8>], bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.extend((0..choices.below(64)).map(|_| choices.bits() as u8));
        return;
    }
    let at = choices.index(bytes.len());
    let word = at & !3;
    match choices.below(10) {
        0 => bytes[at] ^= 1 << choices.below(8),
        1 => bytes[at] = choices.bits() as u8,
        2..=4 => {
            if let Some(place) = bytes.get_mut(word..word + 4) {
                let mut value = *choices.pick(&WORDS);
                if choices.chance(1, 3) {
                    let mut old = [0; 4];
                    old.copy_from_slice(place);
                    value = u32::from_be_bytes(old)
                        .wrapping_add(choices.below(9) as u32)
                        .wrapping_sub(4);
                }
                let new = if choices.chance(2, 3) {
                    value.to_be_bytes()
                } else {
                    value.to_le_bytes()
                };
                place.copy_from_slice(&new);
            }
        }
        5 => bytes.truncate(at),
        6 => bytes.truncate(word),
        7 => {
            let more: Vec<u8> = (0..4 * choices.between(1, 8))
                .map(|_| choices.bits() as u8)
                .collect();
            bytes.splice(word..word, more);
        }
        8 => {
            let end = (word + 4 * choices.between(1, 8) as usize).min(bytes.len());
            if choices.chance(1, 2) {
                bytes.drain(word..end);
            } else {
                let copy = bytes[word..end].to_vec();
                bytes.splice(word..word, copy);
            }
        }
        _ => {
            let other = choices.pick(seeds);
            let from = choices.index(other.len() + 1) & !3;
            bytes.truncate(word);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

/// An input that made a target panic.
#[derive(Debug)]
pub struct Crash {
    /// [`Target::name`] of the target that panicked.
    pub target: &'static str,
    /// The bytes that made it panic.
    pub input: Vec<u8>,
    /// The message of the panic.
    pub message: String,
}

/// Runs `target` on its seeds and then on `count` mutations that follow from `seed`.
///
/// # Errors
/// The first input that makes it panic.
pub fn run(target: &Target, seed: u64, count: u64) -> Result<(), Crash> {
    let choices = Choices::new(seed);
    let seeds = (target.seeds)();
    for input in &seeds {
        check(target, input)?;
    }
    for _ in 0..count {
        check(target, &mutate(&choices, &seeds))?;
    }
    Ok(())
}

fn check(target: &Target, input: &[u8]) -> Result<(), Crash> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| Crash {
        target: target.name,
        input: input.to_vec(),
        message: panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default(),
    })
}
