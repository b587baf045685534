//! What travels between the two nodes of a pair, over any stream that delivers bytes in order.
//!
//! A frame is a head of 32 bytes, a body, checksums of pages, and the pages themselves, each of one block:
//!
//! | Offset | Bytes | Field of the head |
//! |--:|--:|---|
//! | 0 | 4 | length of the body |
//! | 4 | 2 | number of pages |
//! | 6 | 1 | kind |
//! | 7 | 1 | zero |
//! | 8 | 8 | term |
//! | 16 | 8 | a number: by kind a sequence, a version, or a time in nanoseconds |
//! | 24 | 4 | zero |
//! | 28 | 4 | CRC32C of bytes 0–27, the body and the pages' checksums |
//!
//! All numbers are little-endian. The pages' checksums (CRC32C, 4 bytes each) are those that the primary's log has computed
//! already, so an entry is sent with one vectored write of a small front and pages by reference.
//!
//! A receiver takes no memory for what a head announces before it has come, and refuses what no entry can be.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weir_base::BLOCK_SIZE;
use weir_base::limits::engine::MAX_RECORD_META;

use crate::register::Register;

/// Version of this form. Each side says its own first; another one is refused.
pub const VERSION: u32 = 7;

/// With a copy's state: [`Greeting::memory`].
const MEMORY: u8 = 0x80;

const HEAD: usize = 32;
const SUM_AT: usize = 28;
/// Pages of an entry: as many as a record of the log can have.
const MAX_PAGES: usize = 1024;
/// Before the edits of an entry of which pages came before: their advance, and how many pages are before them.
const REFERENCE: usize = 10;
/// Bytes of a refusal's text.
const MAX_TEXT: usize = 1000;
/// Bytes of a piece of a file, with its name.
const MAX_PIECE: usize = 65_536 + 256;
/// Marks that a side names in its greeting.
pub const MAX_MARKS: usize = 4;
/// Hashes of volumes in one message at most.
pub const HASHES: usize = 1000;
/// Bytes of one, with the volume's number.
const HASH: usize = 48;
/// Of a round that begins from nothing, in place of a mark.
const NO_MARK: u64 = u64::MAX;
/// Connections in one message at most.
pub const CONNECTIONS: usize = 1000;
/// Bytes of one: two ends, each an IPv6 address (IPv4 mapped) and a port.
const CONNECTION: usize = 36;
/// Bytes of a piece's contents at most.
pub const PIECE: usize = 65_536;

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const ENTRY: u8 = 2;
    pub(super) const ACK: u8 = 3;
    pub(super) const BEAT: u8 = 4;
    pub(super) const ANSWER: u8 = 5;
    pub(super) const REFUSAL: u8 = 6;
    pub(super) const JOIN: u8 = 7;
    pub(super) const FILE: u8 = 8;
    pub(super) const HAND_OVER: u8 = 9;
    pub(super) const REGISTER: u8 = 10;
    pub(super) const ROUND: u8 = 11;
    pub(super) const VERIFY: u8 = 12;
    pub(super) const VERIFIED: u8 = 13;
    pub(super) const AGAIN: u8 = 14;
    pub(super) const CONNECTIONS: u8 = 15;
    pub(super) const ADVANCE: u8 = 16;
    pub(super) const BACK: u8 = 17;
    pub(super) const REST: u8 = 18;
}

/// What a side's copy is when it connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// Empty: nothing was ever done to it.
    Fresh,
    /// Exactly what its position says: that of a standby, or of a primary that has ended in order.
    Exact,
    /// It may hold what no position says: that of a primary which did not end in order, or answers clients.
    Open,
}

/// What a volume holds at a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeHash {
    /// Number of the volume.
    pub volume: u64,
    /// Of its tree at the mark, as `weir_volume::Engine::mark_hashes` computes it.
    pub hash: [u8; 40],
}

/// How a side greets: its copy, of which aggregate, and how far it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Identity of the aggregate.
    pub aggregate: [u8; 16],
    /// [`VERSION`] of the one who greets.
    pub version: u32,
    /// Term of the position up to which everything is durable there.
    pub term: u64,
    /// The position's last entry.
    pub sequence: u64,
    /// What can be said of the copy at that position.
    pub copy: CopyState,
    /// The pair acknowledges what was received, as the one who greets has it; otherwise what is durable.
    pub memory: bool,
    /// Bytes of pages that it keeps of those sent before their entries ([`Message::Advance`]).
    pub ahead: u32,
    /// The newest marks that it holds, oldest first; at most [`MAX_MARKS`].
    pub marks: Vec<u64>,
}

/// Pages of an entry that came before it ([`Message::Advance`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// With this number.
    pub id: u64,
    /// So many of the pages that come with the entry are before them.
    pub first: u16,
}

/// What one side says to the other. A `term` is the primary's, a `sequence` the number of an entry in that term, and `mark` the number
/// of a mark, unless a field says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Of the fields: the line above.
pub enum Message {
    /// Both, first.
    Hello(Greeting),
    /// The primary, to a standby's greeting: entries follow that bring the copy up to a mark, wherever it is now.
    Round {
        term: u64,
        mark: u64,
        /// The mark to which they are the difference; `None`: to nothing.
        base: Option<u64>,
    },
    /// The primary, to a standby's greeting: entries follow, and where the standby is has this position in their stream.
    Join {
        term: u64,
        /// The entry before the first that follows.
        sequence: u64,
    },
    /// The primary: a piece of a file of the data folder that a node which takes over has to have.
    File {
        name: String,
        /// The next bytes of it.
        bytes: Vec<u8>,
        /// Whether a file begins with this piece.
        first: bool,
        /// Whether it ends with it.
        last: bool,
    },
    /// The primary: it replies to nobody any more, and this was the last entry. The standby takes over.
    HandOver {
        term: u64,
        sequence: u64,
        /// The write verifier that it goes on with, since it has all data that was written without stability; `None`: some was lost.
        verifier: Option<u64>,
    },
    /// The side that keeps the register of a pair without a witness: what it is.
    Register(Register),
    /// The primary: the next change.
    Entry {
        term: u64,
        sequence: u64,
        /// Edits, in the form of a record of the log.
        meta: Vec<u8>,
        /// Of one block each; verified when it is received.
        pages: Vec<Box<[u8]>>,
        /// Others came before it.
        advance: Option<Before>,
    },
    /// The primary: pages of an entry that is to follow on this connection, or not.
    Advance {
        /// How the entry will refer to them.
        id: u64,
        pages: Vec<Box<[u8]>>,
    },
    /// The primary: no entry will refer to the pages that came with this number.
    Back { id: u64 },
    /// The standby: everything up to here is durable.
    Ack { term: u64, sequence: u64 },
    /// The primary, every 200 ms ([`crate::Timing::beat`]).
    Beat {
        term: u64,
        /// Of the register, as the primary knows it.
        version: u64,
        /// By the primary's clock; comes back with the answer.
        sent: Duration,
    },
    /// The standby, to a beat, with the beat's term and time.
    Answer { term: u64, sent: Duration },
    /// The primary: what does the standby hold at this mark?
    Verify {
        term: u64,
        mark: u64,
        /// An entry with which the standby has it.
        sequence: u64,
    },
    /// The standby: what it holds at a mark.
    Verified {
        mark: u64,
        /// Whether this is the last message of the reply.
        last: bool,
        /// At most [`HASHES`].
        hashes: Vec<VolumeHash>,
    },
    /// The primary, whose address moves: connections of clients to it, the primary's end first. At most [`CONNECTIONS`] in both.
    Connections {
        /// The others that were reported before are no more.
        whole: bool,
        /// Those that there are now besides.
        opened: Vec<(SocketAddr, SocketAddr)>,
        /// Those that have ended.
        closed: Vec<(SocketAddr, SocketAddr)>,
    },
    /// The primary: the standby's copy is to be brought up anew, from nothing.
    Again,
    /// Either: it does not go on, and why.
    Refusal(String),
}

/// What comes is no message; the connection has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged(pub &'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a damaged message of the mirror: {}", self.0)
    }
}

impl std::error::Error for Damaged {}

struct Head {
    body: usize,
    pages: usize,
    kind: u8,
    term: u64,
    number: u64,
    sum: u32,
}

fn frame(kind: u8, term: u64, number: u64, body: &[u8], sums: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + body.len() + 4 * sums.len());
    out.extend((body.len() as u32).to_le_bytes());
    out.extend((sums.len() as u16).to_le_bytes());
    out.extend([kind, 0]);
    out.extend(term.to_le_bytes());
    out.extend(number.to_le_bytes());
    out.extend([0; 8]);
    out.extend(body);
    sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
    let sum = checksum(&out);
    if let Some(at) = out.get_mut(SUM_AT..HEAD) {
        at.copy_from_slice(&sum.to_le_bytes());
    }
    out
}

/// Of a head, what follows it but for the pages, and not of itself.
fn checksum(front: &[u8]) -> u32 {
    let (head, rest) = front.split_at(HEAD.min(front.len()));
    let sum = crc32c::crc32c(head.get(..SUM_AT).unwrap_or_default());
    crc32c::crc32c_append(sum, rest)
}

fn nanos(time: Duration) -> u64 {
    // Saturates: 584 years.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// All of an entry but its pages, which follow it: `sums` are theirs.
#[must_use]
pub fn entry_front(term: u64, sequence: u64, meta: &[u8], sums: &[u32]) -> Vec<u8> {
    frame(kind::ENTRY, term, sequence, meta, sums)
}

/// As [`entry_front`], of an entry of which pages have been sent: `sums` are those of the others.
#[must_use]
pub fn rest_front(term: u64, sequence: u64, before: Before, meta: &[u8], sums: &[u32]) -> Vec<u8> {
    let mut body = Vec::with_capacity(REFERENCE + meta.len());
    body.extend(before.id.to_le_bytes());
    body.extend(before.first.to_le_bytes());
    body.extend(meta);
    frame(kind::REST, term, sequence, &body, sums)
}

/// All of an advance but its pages, which follow it: `sums` are theirs.
#[must_use]
pub fn advance_front(id: u64, sums: &[u32]) -> Vec<u8> {
    frame(kind::ADVANCE, 0, id, &[], sums)
}

fn with_pages(pages: &[Box<[u8]>], front: impl FnOnce(&[u32]) -> Vec<u8>) -> Vec<u8> {
    let sums: Vec<u32> = pages.iter().map(|page| crc32c::crc32c(page)).collect();
    let mut out = front(&sums);
    pages.iter().for_each(|page| out.extend(&page[..]));
    out
}

impl Message {
    /// The message as it travels.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Message::Hello(hello) => {
                let mut body = hello.aggregate.to_vec();
                body.extend(hello.version.to_le_bytes());
                let copy = match hello.copy {
                    CopyState::Fresh => 0,
                    CopyState::Exact => 1,
                    CopyState::Open => 2,
                };
                body.push(if hello.memory { copy | MEMORY } else { copy });
                body.extend(hello.ahead.to_le_bytes());
                let newest = hello.marks.iter().rev().take(MAX_MARKS).rev();
                newest.for_each(|mark| body.extend(mark.to_le_bytes()));
                frame(kind::HELLO, hello.term, hello.sequence, &body, &[])
            }
            Message::Join { term, sequence } => frame(kind::JOIN, *term, *sequence, &[], &[]),
            Message::Round { term, mark, base } => {
                let base = base.unwrap_or(NO_MARK).to_le_bytes();
                frame(kind::ROUND, *term, *mark, &base, &[])
            }
            Message::File {
                name,
                bytes,
                first,
                last,
            } => {
                let mut body = vec![u8::from(*first) | u8::from(*last) << 1, name.len() as u8];
                body.extend(name.as_bytes());
                body.extend(bytes);
                frame(kind::FILE, 0, 0, &body, &[])
            }
            Message::HandOver {
                term,
                sequence,
                verifier,
            } => {
                let verifier = verifier.map(u64::to_le_bytes);
                let body = verifier.as_ref().map_or(&[][..], |bytes| bytes);
                frame(kind::HAND_OVER, *term, *sequence, body, &[])
            }
            Message::Register(register) => {
                let (term, version) = (register.term, register.version);
                frame(kind::REGISTER, term, version, &register.sides(), &[])
            }
            Message::Entry {
                term,
                sequence,
                meta,
                pages,
                advance,
            } => with_pages(pages, |sums| match advance {
                None => entry_front(*term, *sequence, meta, sums),
                Some(before) => rest_front(*term, *sequence, *before, meta, sums),
            }),
            Message::Advance { id, pages } => with_pages(pages, |sums| advance_front(*id, sums)),
            Message::Back { id } => frame(kind::BACK, 0, *id, &[], &[]),
            Message::Ack { term, sequence } => frame(kind::ACK, *term, *sequence, &[], &[]),
            Message::Beat {
                term,
                version,
                sent,
            } => frame(kind::BEAT, *term, nanos(*sent), &version.to_le_bytes(), &[]),
            Message::Answer { term, sent } => frame(kind::ANSWER, *term, nanos(*sent), &[], &[]),
            Message::Verify {
                term,
                mark,
                sequence,
            } => frame(kind::VERIFY, *term, *mark, &sequence.to_le_bytes(), &[]),
            Message::Verified { mark, last, hashes } => {
                let mut body = vec![u8::from(*last)];
                for hash in hashes {
                    body.extend(hash.volume.to_le_bytes());
                    body.extend(hash.hash);
                }
                frame(kind::VERIFIED, 0, *mark, &body, &[])
            }
            Message::Connections {
                whole,
                opened,
                closed,
            } => {
                let mut body = vec![u8::from(*whole)];
                for (local, peer) in opened.iter().chain(closed) {
                    end(&mut body, *local);
                    end(&mut body, *peer);
                }
                frame(kind::CONNECTIONS, 0, opened.len() as u64, &body, &[])
            }
            Message::Again => frame(kind::AGAIN, 0, 0, &[], &[]),
            Message::Refusal(text) => {
                let mut end = text.len().min(MAX_TEXT);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let text = text.get(..end).unwrap_or_default();
                frame(kind::REFUSAL, 0, 0, text.as_bytes(), &[])
            }
        }
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// One end of a connection, as it travels.
fn end(body: &mut Vec<u8>, at: SocketAddr) {
    let ip = match at.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    body.extend(ip.octets());
    body.extend(at.port().to_le_bytes());
}

fn end_of(bytes: &[u8], at: usize) -> Option<SocketAddr> {
    let ip = IpAddr::from(field::<16>(bytes, at)?).to_canonical();
    let port = u16::from_le_bytes(field(bytes, at + 16)?);
    Some(SocketAddr::new(ip, port))
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Head> {
        Some(Head {
            body: u32::from_le_bytes(field(bytes, 0)?) as usize,
            pages: usize::from(u16::from_le_bytes(field(bytes, 4)?)),
            kind: u8::from_le_bytes(field(bytes, 6)?),
            term: u64::from_le_bytes(field(bytes, 8)?),
            number: u64::from_le_bytes(field(bytes, 16)?),
            sum: u32::from_le_bytes(field(bytes, SUM_AT)?),
        })
    }

    /// Head, body and the pages' checksums, in bytes.
    fn front(&self) -> usize {
        HEAD + self.body + 4 * self.pages
    }

    fn whole(&self) -> usize {
        self.front() + self.pages * BLOCK_SIZE
    }

    /// Whether a message of this kind can be so large.
    fn admissible(&self) -> bool {
        let (body, pages) = match self.kind {
            kind::HELLO => (25 + 8 * MAX_MARKS, 0),
            kind::FILE => (MAX_PIECE, 0),
            kind::REGISTER => (2, 0),
            kind::ENTRY => (MAX_RECORD_META, MAX_PAGES),
            kind::REST => (REFERENCE + MAX_RECORD_META, MAX_PAGES),
            kind::ADVANCE => (0, MAX_PAGES),
            kind::ACK | kind::ANSWER | kind::JOIN | kind::AGAIN | kind::BACK => (0, 0),
            kind::VERIFIED => (1 + HASH * HASHES, 0),
            kind::CONNECTIONS => (1 + CONNECTION * CONNECTIONS, 0),
            kind::BEAT | kind::ROUND | kind::VERIFY | kind::HAND_OVER => (8, 0),
            kind::REFUSAL => (MAX_TEXT, 0),
            _ => return false,
        };
        self.body <= body && self.pages <= pages
    }
}

/// Takes messages out of bytes as they come, however they are cut.
#[derive(Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Where the next message begins.
    at: usize,
}

impl Decoder {
    /// Adds bytes that follow those of the last call.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).extend(bytes);
    }

    /// Where bytes that follow are to be appended, with room for so many.
    pub fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        // What was taken is moved out of the way once for all that comes with one read.
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.reserve(bytes);
        &mut self.bytes
    }

    /// The next message, if all of it has come.
    ///
    /// # Errors
    /// [`Damaged`]; nothing more is to be taken from it.
    pub fn pop(&mut self) -> Result<Option<Message>, Damaged> {
        let bytes = self.bytes.get(self.at..).unwrap_or_default();
        let Some(head) = Head::read(bytes) else {
            return Ok(None);
        };
        if !head.admissible() {
            return Err(Damaged("an unknown kind, or too long for it"));
        }
        if bytes.len() < head.front() {
            return Ok(None);
        }
        let (front, pages) = bytes.split_at(head.front());
        if checksum(front) != head.sum
            || front.get(7) != Some(&0)
            || field(front, 24) != Some([0; 4])
        {
            return Err(Damaged("the checksum of a head"));
        }
        let Some(pages) = pages.get(..head.pages * BLOCK_SIZE) else {
            return Ok(None);
        };
        let (body, sums) = front.get(HEAD..).unwrap_or_default().split_at(head.body);
        let (sums, _) = sums.as_chunks::<4>();
        let mut contents = Vec::with_capacity(head.pages);
        for (page, sum) in pages.chunks_exact(BLOCK_SIZE).zip(sums) {
            if crc32c::crc32c(page) != u32::from_le_bytes(*sum) {
                return Err(Damaged("the checksum of a page"));
            }
            contents.push(page.into());
        }
        let message = message(&head, body, contents).ok_or(Damaged("a field"))?;
        self.at += head.whole();
        Ok(Some(message))
    }
}

fn message(head: &Head, body: &[u8], pages: Vec<Box<[u8]>>) -> Option<Message> {
    let (term, number) = (head.term, head.number);
    Some(match head.kind {
        kind::HELLO => Message::Hello(Greeting {
            aggregate: field(body, 0)?,
            version: u32::from_le_bytes(field(body, 16)?),
            term,
            sequence: number,
            memory: body.get(20)? & MEMORY != 0,
            copy: match body.get(20)? & !MEMORY {
                0 => CopyState::Fresh,
                1 => CopyState::Exact,
                2 => CopyState::Open,
                _ => return None,
            },
            ahead: u32::from_le_bytes(field(body, 21)?),
            marks: {
                let (marks, rest) = body.get(25..)?.as_chunks::<8>();
                if !rest.is_empty() {
                    return None;
                }
                marks.iter().map(|mark| u64::from_le_bytes(*mark)).collect()
            },
        }),
        kind::ROUND => Message::Round {
            term,
            mark: number,
            base: Some(u64::from_le_bytes(field(body, 0)?)).filter(|base| *base != NO_MARK),
        },
        kind::JOIN => Message::Join {
            term,
            sequence: number,
        },
        kind::HAND_OVER => Message::HandOver {
            term,
            sequence: number,
            verifier: match body.is_empty() {
                true => None,
                false => Some(u64::from_le_bytes(field(body, 0)?)),
            },
        },
        kind::REGISTER => Message::Register(Register::of_sides(number, term, field(body, 0)?)?),
        kind::FILE => {
            let [flags, length] = field(body, 0)?;
            let (name, bytes) = body.get(2..)?.split_at_checked(usize::from(length))?;
            Message::File {
                name: std::str::from_utf8(name).ok()?.to_owned(),
                bytes: bytes.to_vec(),
                first: flags & 1 != 0,
                last: flags & 2 != 0,
            }
        }
        kind::ENTRY => Message::Entry {
            term,
            sequence: number,
            meta: body.to_vec(),
            pages,
            advance: None,
        },
        kind::REST => Message::Entry {
            term,
            sequence: number,
            meta: body.get(REFERENCE..)?.to_vec(),
            pages,
            advance: Some(Before {
                id: u64::from_le_bytes(field(body, 0)?),
                first: u16::from_le_bytes(field(body, 8)?),
            }),
        },
        kind::ADVANCE if !pages.is_empty() => Message::Advance { id: number, pages },
        kind::BACK => Message::Back { id: number },
        kind::ACK => Message::Ack {
            term,
            sequence: number,
        },
        kind::BEAT => Message::Beat {
            term,
            version: u64::from_le_bytes(field(body, 0)?),
            sent: Duration::from_nanos(number),
        },
        kind::ANSWER => Message::Answer {
            term,
            sent: Duration::from_nanos(number),
        },
        kind::VERIFY => Message::Verify {
            term,
            mark: number,
            sequence: u64::from_le_bytes(field(body, 0)?),
        },
        kind::VERIFIED => {
            let (flag, hashes) = body.split_first()?;
            let (hashes, rest) = hashes.as_chunks::<HASH>();
            if *flag > 1 || !rest.is_empty() {
                return None;
            }
            let hash = |bytes: &[u8; HASH]| {
                Some(VolumeHash {
                    volume: u64::from_le_bytes(field(bytes, 0)?),
                    hash: field(bytes, 8)?,
                })
            };
            Message::Verified {
                mark: number,
                last: *flag == 1,
                hashes: hashes.iter().map(hash).collect::<Option<_>>()?,
            }
        }
        kind::CONNECTIONS => {
            let (flag, all) = body.split_first()?;
            let (all, rest) = all.as_chunks::<CONNECTION>();
            if *flag > 1 || !rest.is_empty() {
                return None;
            }
            let both = |bytes: &[u8; CONNECTION]| Some((end_of(bytes, 0)?, end_of(bytes, 18)?));
            let (opened, closed) = all.split_at_checked(usize::try_from(number).ok()?)?;
            Message::Connections {
                whole: *flag == 1,
                opened: opened.iter().map(both).collect::<Option<_>>()?,
                closed: closed.iter().map(both).collect::<Option<_>>()?,
            }
        }
        kind::AGAIN => Message::Again,
        kind::REFUSAL => Message::Refusal(std::str::from_utf8(body).ok()?.to_owned()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Rng, SeededRng};

    fn all() -> Vec<Message> {
        let page = |byte: u8| vec![byte; BLOCK_SIZE].into_boxed_slice();
        let sent = Duration::from_micros(77);
        vec![
            Message::Hello(Greeting {
                aggregate: [7; 16],
                version: VERSION,
                term: 4,
                sequence: 5,
                copy: CopyState::Exact,
                memory: true,
                ahead: 10,
                marks: vec![8, 9],
            }),
            Message::Round {
                term: 4,
                mark: 9,
                base: None,
            },
            Message::Round {
                term: 4,
                mark: 9,
                base: Some(8),
            },
            Message::Join {
                term: 4,
                sequence: 5,
            },
            Message::File {
                name: "handle-key".into(),
                bytes: b"secret".to_vec(),
                first: true,
                last: false,
            },
            Message::HandOver {
                term: 4,
                sequence: 6,
                verifier: Some(77),
            },
            Message::HandOver {
                term: 4,
                sequence: 6,
                verifier: None,
            },
            Message::Register(Register::new(crate::Side::A).alone(crate::Side::B)),
            Message::Entry {
                term: 4,
                sequence: 6,
                meta: b"edits".to_vec(),
                pages: vec![page(1), page(2)],
                advance: None,
            },
            Message::Advance {
                id: 3,
                pages: vec![page(3), page(4)],
            },
            Message::Back { id: 2 },
            Message::Entry {
                term: 4,
                sequence: 6,
                meta: b"edits".to_vec(),
                pages: vec![page(1)],
                advance: Some(Before { id: 3, first: 1 }),
            },
            Message::Entry {
                term: 4,
                sequence: 7,
                meta: vec![9; 5000],
                pages: vec![],
                advance: None,
            },
            Message::Ack {
                term: 4,
                sequence: 7,
            },
            Message::Beat {
                term: 4,
                version: 9,
                sent,
            },
            Message::Answer { term: 4, sent },
            Message::Verify {
                term: 4,
                mark: 9,
                sequence: 7,
            },
            Message::Verified {
                mark: 9,
                last: true,
                hashes: vec![VolumeHash {
                    volume: 1,
                    hash: [3; 40],
                }],
            },
            Message::Connections {
                whole: true,
                opened: vec![
                    (
                        "10.0.0.1:2049".parse().unwrap(),
                        "10.0.0.9:700".parse().unwrap(),
                    ),
                    (
                        "[fd00::1]:2049".parse().unwrap(),
                        "[fd00::9]:701".parse().unwrap(),
                    ),
                ],
                closed: vec![(
                    "10.0.0.1:445".parse().unwrap(),
                    "10.0.0.9:1".parse().unwrap(),
                )],
            },
            Message::Again,
            Message::Refusal("no space".into()),
        ]
    }

    fn decoded(decoder: &mut Decoder) -> Result<Vec<Message>, Damaged> {
        let mut messages = Vec::new();
        while let Some(message) = decoder.pop()? {
            messages.push(message);
        }
        Ok(messages)
    }

    #[test]
    fn messages_come_out_as_they_went_in_however_the_bytes_come() {
        let bytes: Vec<u8> = all().iter().flat_map(Message::encode).collect();
        let rng = SeededRng::new(5);
        for _ in 0..50 {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let take = rest.len().min(1 + rng.below(3000) as usize);
                let (some, more) = rest.split_at(take);
                decoder.push(some);
                got.extend(decoded(&mut decoder).unwrap());
                rest = more;
            }
            assert_eq!(got, all());
        }
    }

    #[test]
    fn a_changed_bit_is_noticed_wherever_it_is() {
        let rng = SeededRng::new(6);
        for message in all() {
            let bytes = message.encode();
            for _ in 0..400 {
                let mut bytes = bytes.clone();
                let at = match rng.below(2) {
                    0 => rng.below(bytes.len().min(60) as u64),
                    _ => rng.below(bytes.len() as u64),
                } as usize;
                bytes[at] ^= 1 << rng.below(8);
                let mut decoder = Decoder::default();
                decoder.push(&bytes);
                let got = decoded(&mut decoder);
                // A length that has grown waits for more.
                assert!(
                    !matches!(&got, Ok(got) if !got.is_empty()),
                    "byte {at} of {message:?}"
                );
            }
        }
    }

    #[test]
    fn what_no_message_can_be_is_refused_at_its_head() {
        let rng = SeededRng::new(7);
        for kind in 0..=255u8 {
            let mut head = [0; HEAD];
            rng.fill(&mut head);
            head[..4].copy_from_slice(&u32::MAX.to_le_bytes());
            head[6] = kind;
            let mut decoder = Decoder::default();
            decoder.push(&head);
            assert!(decoder.pop().is_err(), "kind {kind}");
        }
        let long = Message::Refusal("é".repeat(1000)).encode();
        let mut decoder = Decoder::default();
        decoder.push(&long);
        assert!(decoder.pop().unwrap().is_some());
    }
}
