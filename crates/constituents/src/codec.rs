//! Bytes of the protocol: messages between constituents, and the values of tokens in a volume.
//!
//! Numbers are little-endian. Every value has one form: what is decoded encodes to the same bytes.

use weir_base::Ino;

use crate::message::{Message, Ticket, Token};
use crate::number::{CONSTITUENTS_MAX, Constituent};
use crate::part::{Part, PreparedPart};
use crate::record::{Kind, Target};
use crate::request::{Attributes, Refusal};

/// Maximum length of the value of a token in bytes.
pub const VALUE_MAX: usize = 1024;

/// Bytes of a decision before its parts: tag, token, count.
const DECISION_HEAD: usize = 1 + 17 + 1;
/// Bytes of a part of a decision: constituent and ticket.
const DECISION_PART: usize = 1 + 16;

const _: () = assert!(DECISION_HEAD + CONSTITUENTS_MAX * DECISION_PART <= VALUE_MAX);

/// A part of the protocol's durable state: the value of one token of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Epoch of the last start.
    Epoch(u64),
    /// A part that is prepared.
    Prepared(Ticket, PreparedPart),
    /// A change that was decided, with its parts, at most [`CONSTITUENTS_MAX`].
    Decided(Token, Vec<(Constituent, Ticket)>),
}

impl Entry {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Entry::Epoch(epoch) => {
                out.push(1);
                put_u64(&mut out, *epoch);
            }
            Entry::Prepared(ticket, prepared) => {
                out.push(2);
                put_ticket(&mut out, *ticket);
                put_token(&mut out, prepared.token);
                put_part(&mut out, &prepared.part);
                put_target(&mut out, prepared.target);
            }
            Entry::Decided(token, parts) => {
                out.push(3);
                put_token(&mut out, *token);
                // At most CONSTITUENTS_MAX, which fits.
                out.push(parts.len() as u8);
                for (constituent, ticket) in parts {
                    out.push(constituent.0);
                    put_ticket(&mut out, *ticket);
                }
            }
        }
        out
    }

    /// Decodes an entry; `None` if it is malformed.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Entry> {
        let mut reader = Reader(bytes);
        let entry = match reader.u8()? {
            1 => Entry::Epoch(reader.u64()?),
            2 => {
                let (ticket, token) = (reader.ticket()?, reader.token()?);
                let (part, target) = (reader.part()?, reader.target()?);
                let prepared = PreparedPart {
                    token,
                    part,
                    target,
                };
                Entry::Prepared(ticket, prepared)
            }
            3 => {
                let (token, count) = (reader.token()?, reader.u8()?);
                if usize::from(count) > CONSTITUENTS_MAX {
                    return None;
                }
                let part = |_| Some((Constituent(reader.u8()?), reader.ticket()?));
                Entry::Decided(token, (0..count).map(part).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        reader.0.is_empty().then_some(entry)
    }
}

impl Message {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut head = |tag: u8, token: Token| {
            out.push(tag);
            put_token(&mut out, token);
        };
        match self {
            Message::Prepare { token, part } => {
                head(1, *token);
                put_part(&mut out, part);
            }
            Message::Vote {
                token,
                part,
                answer,
            } => {
                head(2, *token);
                put_part(&mut out, part);
                put_vote(&mut out, *answer);
            }
            Message::Finish {
                token,
                ticket,
                commit,
            } => {
                head(3, *token);
                put_ticket(&mut out, *ticket);
                out.push(u8::from(*commit));
            }
            Message::Finished { token, ticket } => {
                head(4, *token);
                put_ticket(&mut out, *ticket);
            }
            Message::Ask { token, ticket } => {
                head(5, *token);
                put_ticket(&mut out, *ticket);
            }
            Message::Parent { token, directory } => {
                head(6, *token);
                put_u64(&mut out, directory.0);
            }
            Message::ParentIs {
                token,
                directory,
                answer,
            } => {
                head(7, *token);
                put_u64(&mut out, directory.0);
                match answer {
                    Ok(parent) => {
                        out.push(0);
                        put_u64(&mut out, parent.0);
                    }
                    Err(refusal) => put_refusal(&mut out, *refusal),
                }
            }
            Message::Close { token } => head(8, *token),
            Message::Closed { token, ticket } => {
                head(9, *token);
                put_ticket(&mut out, *ticket);
            }
        }
        out
    }

    /// Decodes a message; `None` if it is malformed.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut reader = Reader(bytes);
        let tag = reader.u8()?;
        let token = reader.token()?;
        let message = match tag {
            1 => Message::Prepare {
                token,
                part: reader.part()?,
            },
            2 => Message::Vote {
                token,
                part: reader.part()?,
                answer: match reader.refusal()? {
                    None => Ok((reader.ticket()?, reader.target()?)),
                    Some(refusal) => Err(refusal),
                },
            },
            3 => Message::Finish {
                token,
                ticket: reader.ticket()?,
                commit: reader.bool()?,
            },
            4 => Message::Finished {
                token,
                ticket: reader.ticket()?,
            },
            5 => Message::Ask {
                token,
                ticket: reader.ticket()?,
            },
            6 => Message::Parent {
                token,
                directory: reader.ino()?,
            },
            7 => Message::ParentIs {
                token,
                directory: reader.ino()?,
                answer: match reader.refusal()? {
                    None => Ok(reader.ino()?),
                    Some(refusal) => Err(refusal),
                },
            },
            8 => Message::Close { token },
            9 => Message::Closed {
                token,
                ticket: reader.ticket()?,
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_token(out: &mut Vec<u8>, token: Token) {
    out.push(token.decider.0);
    put_u64(out, token.epoch);
    put_u64(out, token.number);
}

fn put_ticket(out: &mut Vec<u8>, ticket: Ticket) {
    put_u64(out, ticket.epoch);
    put_u64(out, ticket.number);
}

fn put_target(out: &mut Vec<u8>, target: Option<Target>) {
    match target {
        None => out.push(0),
        Some(Target { ino, kind }) => {
            out.push(match kind {
                Kind::Directory => 1,
                Kind::File => 2,
            });
            put_u64(out, ino.0);
        }
    }
}

/// Refusals by their numbers from 1 on.
const REFUSALS: [Refusal; 10] = [
    Refusal::NotFound,
    Refusal::Exists,
    Refusal::NotDirectory,
    Refusal::IsDirectory,
    Refusal::NotEmpty,
    Refusal::Stale,
    Refusal::Loop,
    Refusal::Busy,
    Refusal::Full,
    Refusal::TooManyLinks,
];

fn put_refusal(out: &mut Vec<u8>, refusal: Refusal) {
    let index = REFUSALS.iter().position(|other| *other == refusal);
    out.push(index.map_or(REFUSALS.len(), |index| index + 1) as u8);
}

fn put_vote(out: &mut Vec<u8>, vote: Result<(Ticket, Option<Target>), Refusal>) {
    match vote {
        Ok((ticket, target)) => {
            out.push(0);
            put_ticket(out, ticket);
            put_target(out, target);
        }
        Err(refusal) => put_refusal(out, refusal),
    }
}

fn put_part(out: &mut Vec<u8>, part: &Part) {
    match part {
        Part::MakeDirectory {
            parent,
            depth,
            attributes,
        } => {
            out.push(1);
            put_u64(out, parent.0);
            out.push(*depth);
            out.extend_from_slice(&attributes.mode.to_le_bytes());
            out.extend_from_slice(&attributes.uid.to_le_bytes());
            out.extend_from_slice(&attributes.gid.to_le_bytes());
        }
        Part::RemoveDirectory { directory } => {
            out.push(2);
            put_u64(out, directory.0);
        }
        Part::AddLink { file } => {
            out.push(3);
            put_u64(out, file.0);
        }
        Part::DropLink { file } => {
            out.push(4);
            put_u64(out, file.0);
        }
        Part::TakeEntry { directory, name } => {
            out.push(5);
            put_u64(out, directory.0);
            // Names have at most 255 bytes.
            out.push(name.len() as u8);
            out.extend_from_slice(name);
        }
        Part::MoveDirectory {
            directory,
            to,
            depth,
        } => {
            out.push(6);
            put_u64(out, directory.0);
            put_u64(out, to.0);
            out.push(*depth);
        }
        Part::LockMoves => out.push(7),
        Part::Snapshot { closing } => {
            out.push(8);
            put_ticket(out, *closing);
        }
    }
}

/// The bytes that are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    fn ino(&mut self) -> Option<Ino> {
        self.u64().map(Ino)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn token(&mut self) -> Option<Token> {
        Some(Token {
            decider: Constituent(self.u8()?),
            epoch: self.u64()?,
            number: self.u64()?,
        })
    }

    fn ticket(&mut self) -> Option<Ticket> {
        Some(Ticket {
            epoch: self.u64()?,
            number: self.u64()?,
        })
    }

    fn target(&mut self) -> Option<Option<Target>> {
        let kind = match self.u8()? {
            0 => return Some(None),
            1 => Kind::Directory,
            2 => Kind::File,
            _ => return None,
        };
        let ino = self.ino()?;
        Some(Some(Target { ino, kind }))
    }

    /// Returns `Some(None)` where there is no refusal.
    fn refusal(&mut self) -> Option<Option<Refusal>> {
        match usize::from(self.u8()?).checked_sub(1) {
            None => Some(None),
            Some(index) => REFUSALS.get(index).copied().map(Some),
        }
    }

    fn part(&mut self) -> Option<Part> {
        Some(match self.u8()? {
            1 => Part::MakeDirectory {
                parent: self.ino()?,
                depth: self.u8()?,
                attributes: Attributes {
                    mode: u16::from_le_bytes(*self.bytes(2)?.first_chunk()?),
                    uid: u32::from_le_bytes(*self.bytes(4)?.first_chunk()?),
                    gid: u32::from_le_bytes(*self.bytes(4)?.first_chunk()?),
                },
            },
            2 => Part::RemoveDirectory {
                directory: self.ino()?,
            },
            3 => Part::AddLink { file: self.ino()? },
            4 => Part::DropLink { file: self.ino()? },
            5 => {
                let directory = self.ino()?;
                let len = usize::from(self.u8()?);
                let name = self.bytes(len).filter(|name| !name.is_empty())?.into();
                Part::TakeEntry { directory, name }
            }
            6 => Part::MoveDirectory {
                directory: self.ino()?,
                to: self.ino()?,
                depth: self.u8()?,
            },
            7 => Part::LockMoves,
            8 => Part::Snapshot {
                closing: self.ticket()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};

    fn any_part(rng: &SeededRng) -> Part {
        let ino = || Ino(rng.next_u64() >> rng.below(60));
        match rng.below(8) {
            0 => Part::MakeDirectory {
                parent: ino(),
                depth: 7,
                attributes: Attributes {
                    mode: 0o755,
                    uid: rng.next_u64() as u32,
                    gid: 7,
                },
            },
            1 => Part::RemoveDirectory { directory: ino() },
            2 => Part::AddLink { file: ino() },
            3 => Part::DropLink { file: ino() },
            4 => Part::TakeEntry {
                directory: ino(),
                name: vec![b'n'; 1 + rng.below(255) as usize].into(),
            },
            5 => Part::MoveDirectory {
                directory: ino(),
                to: ino(),
                depth: 255,
            },
            6 => Part::LockMoves,
            _ => Part::Snapshot {
                closing: any_ticket(rng),
            },
        }
    }

    fn any_ticket(rng: &SeededRng) -> Ticket {
        Ticket {
            epoch: rng.next_u64() >> rng.below(60),
            number: rng.next_u64() >> rng.below(60),
        }
    }

    fn any_token(rng: &SeededRng) -> Token {
        let Ticket { epoch, number } = any_ticket(rng);
        Token {
            decider: Constituent(rng.below(255) as u8),
            epoch,
            number,
        }
    }

    fn any_target(rng: &SeededRng) -> Option<Target> {
        let kind = [Kind::Directory, Kind::File][rng.below(2) as usize];
        (rng.below(3) > 0).then(|| Target {
            ino: Ino(rng.next_u64()),
            kind,
        })
    }

    fn any_message(rng: &SeededRng) -> Message {
        let (token, ticket, part) = (any_token(rng), any_ticket(rng), any_part(rng));
        let directory = Ino(rng.next_u64());
        let refusal = REFUSALS[rng.below(REFUSALS.len() as u64) as usize];
        match rng.below(11) {
            0 => Message::Prepare { token, part },
            1 => Message::Vote {
                token,
                part,
                answer: Ok((ticket, any_target(rng))),
            },
            2 => Message::Vote {
                token,
                part,
                answer: Err(refusal),
            },
            3 => Message::Finish {
                token,
                ticket,
                commit: rng.below(2) == 0,
            },
            4 => Message::Finished { token, ticket },
            5 => Message::Ask { token, ticket },
            6 => Message::Parent { token, directory },
            7 => Message::ParentIs {
                token,
                directory,
                answer: Ok(Ino(rng.next_u64())),
            },
            8 => Message::ParentIs {
                token,
                directory,
                answer: Err(refusal),
            },
            9 => Message::Close { token },
            _ => Message::Closed { token, ticket },
        }
    }

    fn any_entry(rng: &SeededRng) -> Entry {
        match rng.below(3) {
            0 => Entry::Epoch(rng.next_u64()),
            1 => {
                let prepared = PreparedPart {
                    token: any_token(rng),
                    part: any_part(rng),
                    target: any_target(rng),
                };
                Entry::Prepared(any_ticket(rng), prepared)
            }
            _ => {
                let part = |_| (Constituent(rng.below(255) as u8), any_ticket(rng));
                let count = rng.below(CONSTITUENTS_MAX as u64 + 1);
                Entry::Decided(any_token(rng), (0..count).map(part).collect())
            }
        }
    }

    #[test]
    fn messages_and_entries_round_trip_and_have_one_form() {
        let rng = SeededRng::new(1);
        for _ in 0..5000 {
            let message = any_message(&rng);
            let mut bytes = message.encode();
            assert_eq!(Message::decode(&bytes).as_ref(), Some(&message));
            assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), None);
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            if let Some(other) = Message::decode(&bytes) {
                assert_eq!(other.encode(), bytes);
            }
            let entry = any_entry(&rng);
            let mut bytes = entry.encode();
            assert!(bytes.len() <= VALUE_MAX);
            assert_eq!(Entry::decode(&bytes).as_ref(), Some(&entry));
            assert_eq!(Entry::decode(&bytes[..bytes.len() - 1]), None);
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            if let Some(other) = Entry::decode(&bytes) {
                assert_eq!(other.encode(), bytes);
            }
        }
    }
}
