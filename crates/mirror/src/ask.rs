//! The protocol between a node and a witness: one request and one reply of fixed length on a
//! connection of its own.
//!
//! | Offset | Bytes | Field |
//! |--:|--:|---|
//! | 0 | 4 | `WIR` and the version of the form, 1 |
//! | 4 | 1 | request: 0 read, 1 swap; reply: 0 no register, 1 swapped or read, 2 lost, 3 refused |
//! | 5 | 2 | primary (0: A, 1: B), whether its partner is in sync |
//! | 7 | 1 | zero |
//! | 8 | 8 | version |
//! | 16 | 8 | term |
//! | 24 | 16 | the aggregate |
//! | 40 | 4 | CRC32C of bytes 0–39 |

use crate::register::{Register, Side, Swap, Witness};

/// Length in bytes of a request, and of a reply.
pub const LENGTH: usize = 44;
const FORM: [u8; 4] = *b"WIR\x01";

/// A request of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// Returns the register.
    Read,
    /// Replaces the register of the previous version.
    Swap(Register),
}

/// A reply of the witness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The witness knows no such aggregate.
    None,
    /// The current register, or the result of a change.
    Is(Swap),
    /// The witness cannot reply, or does not serve this aggregate.
    Refused,
}

fn frame(kind: u8, register: Option<&Register>, aggregate: [u8; 16]) -> [u8; LENGTH] {
    let mut out = Vec::with_capacity(LENGTH);
    out.extend(FORM);
    out.push(kind);
    out.extend(register.map_or([0; 2], Register::sides));
    out.push(0);
    out.extend(register.map_or(0, |r| r.version).to_le_bytes());
    out.extend(register.map_or(0, |r| r.term).to_le_bytes());
    out.extend(aggregate);
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    let mut all = [0; LENGTH];
    all.copy_from_slice(&out);
    all
}

fn parts(bytes: &[u8; LENGTH]) -> Option<(u8, Register, [u8; 16])> {
    let (said, sum) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(said) != u32::from_le_bytes(*sum) || !said.starts_with(&FORM) {
        return None;
    }
    let number =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*said.get(at..)?.first_chunk()?)) };
    let sides = *said.get(5..)?.first_chunk()?;
    let register = Register::of_sides(number(8)?, number(16)?, sides)?;
    Some((bytes[4], register, *said.get(24..)?.first_chunk()?))
}

/// Encodes a request.
#[must_use]
pub fn question(question: Question, aggregate: [u8; 16]) -> [u8; LENGTH] {
    match question {
        Question::Read => frame(0, None, aggregate),
        Question::Swap(to) => frame(1, Some(&to), aggregate),
    }
}

/// Decodes a reply; `None` if the bytes are not one.
#[must_use]
pub fn reply(bytes: &[u8; LENGTH]) -> Option<Reply> {
    let (kind, register, _) = parts(bytes)?;
    match kind {
        0 => Some(Reply::None),
        1 => Some(Reply::Is(Swap::Done(register))),
        2 => Some(Reply::Is(Swap::Lost(register))),
        3 => Some(Reply::Refused),
        _ => None,
    }
}

/// Carries out the encoded request on `witness` and encodes the reply; `None` if the bytes are not
/// a request.
pub fn answer(bytes: &[u8; LENGTH], witness: &mut dyn Witness) -> Option<[u8; LENGTH]> {
    let (kind, to, aggregate) = parts(bytes)?;
    let known = match kind {
        0 => match witness.read(aggregate) {
            Ok(None) => return Some(frame(0, None, aggregate)),
            known => known.map(|register| register.map(Swap::Done)),
        },
        1 => witness.swap(aggregate, to).map(Some),
        _ => return None,
    };
    Some(match known {
        Ok(Some(Swap::Done(register))) => frame(1, Some(&register), aggregate),
        Ok(Some(Swap::Lost(register))) => frame(2, Some(&register), aggregate),
        Ok(None) | Err(_) => frame(3, Some(&Register::first(Side::A)), aggregate),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::MemoryWitness;

    #[test]
    fn a_witness_is_asked_over_a_stream_of_bytes() {
        let mut witness = MemoryWitness::default();
        let id = [7; 16];
        let mut ask = |what: Question| {
            let said = answer(&question(what, id), &mut witness).unwrap();
            reply(&said).unwrap()
        };
        assert_eq!(ask(Question::Read), Reply::None);
        let first = Register::first(Side::A);
        let second = first.alone(Side::B);
        assert_eq!(ask(Question::Swap(second)), Reply::Refused);
        assert_eq!(ask(Question::Swap(first)), Reply::Is(Swap::Done(first)));
        assert_eq!(ask(Question::Swap(second)), Reply::Is(Swap::Done(second)));
        let late = first.alone(Side::A);
        assert_eq!(ask(Question::Swap(late)), Reply::Is(Swap::Lost(second)));
        assert_eq!(ask(Question::Read), Reply::Is(Swap::Done(second)));
        let good = question(Question::Swap(second), id);
        for at in 0..LENGTH {
            let mut bytes = good;
            bytes[at] ^= 1;
            assert!(answer(&bytes, &mut witness).is_none(), "byte {at}");
        }
    }
}
