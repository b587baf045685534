//! The messages between the two nodes of a pair, over any stream that delivers bytes in order.
//!
//! A frame is a head of 32 bytes, a body, checksums of pages, and the pages themselves, each of one
//! block:
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
//! All numbers are little-endian. The pages' checksums (CRC32C, 4 bytes each) are those computed by
//! the primary's log, so an entry is sent with one vectored write of a small front and pages by
//! reference.
//!
//! A receiver allocates no memory for announced bytes before they arrive, and refuses lengths that
//! no entry can have.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weir_base::BLOCK_SIZE;
use weir_base::limits::engine::MAX_RECORD_META;

use crate::register::Register;

/// Version of this protocol. Each side states its own first; a different one is refused.
pub const VERSION: u32 = 7;

/// Flag in a copy's state: [`Greeting::memory`].
const MEMORY: u8 = 0x80;

const HEAD: usize = 32;
const SUM_AT: usize = 28;
/// Maximum number of pages of an entry: those of a log record.
const MAX_PAGES: usize = 1024;
/// Bytes of the reference before the edits of an entry with advance pages: the advance's number,
/// and the number of pages before them.
const REFERENCE: usize = 10;
/// Maximum length of a refusal's text in bytes.
const MAX_TEXT: usize = 1000;
/// Maximum length in bytes of a piece of a file, with its name.
const MAX_PIECE: usize = 65_536 + 256;
/// Maximum number of marks in a greeting.
pub const MAX_MARKS: usize = 4;
/// Maximum number of volume hashes in one message.
pub const HASHES: usize = 1000;
/// Length in bytes of a hash with the volume's number.
const HASH: usize = 48;
/// Value in place of a mark for a round that begins from nothing.
const NO_MARK: u64 = u64::MAX;
/// Maximum number of connections in one message.
pub const CONNECTIONS: usize = 1000;
/// Length in bytes of a connection: two ends, each an IPv6 address (IPv4 mapped) and a port.
const CONNECTION: usize = 36;
/// Maximum length of a piece's contents in bytes.
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

/// State of a side's copy when it connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// Empty: no change was ever made to it.
    Fresh,
    /// Exactly at its position: the copy of a standby, or of a primary that was shut down cleanly.
    Exact,
    /// May contain changes after its position: the copy of a primary that was not shut down
    /// cleanly, or serves clients.
    Open,
}

/// Hash of a volume's contents at a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeHash {
    /// Number of the volume.
    pub volume: u64,
    /// Hash of its tree at the mark, as computed by `weir_volume::Engine::mark_hashes`.
    pub hash: [u8; 40],
}

/// Greeting of a side: the aggregate, its copy, and its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Identity of the aggregate.
    pub aggregate: [u8; 16],
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// Term of the position up to which everything is durable there.
    pub term: u64,
    /// The last entry of the position.
    pub sequence: u64,
    /// State of the copy at that position.
    pub copy: CopyState,
    /// True if the sender's pair acknowledges received changes; otherwise durable ones.
    pub memory: bool,
    /// Bytes that it keeps of pages sent before their entries ([`Message::Advance`]).
    pub ahead: u32,
    /// The newest marks that it has, oldest first; at most [`MAX_MARKS`].
    pub marks: Vec<u64>,
}

/// Reference to pages of an entry that came before it ([`Message::Advance`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// Number of the advance.
    pub id: u64,
    /// Number of pages coming with the entry that precede them.
    pub first: u16,
}

/// A message between the two sides. A `term` is the primary's, a `sequence` the number of an entry
/// in that term, and `mark` the number of a mark, unless a field says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Of the fields: the line above.
pub enum Message {
    /// From both sides, first.
    Hello(Greeting),
    /// From the primary, in reply to a standby's greeting: entries of a round follow that bring the
    /// copy up to a mark.
    Round {
        term: u64,
        mark: u64,
        /// Base mark of the difference; `None`: nothing.
        base: Option<u64>,
    },
    /// From the primary, in reply to a standby's greeting: entries follow, and the standby's state
    /// has this position in their stream.
    Join {
        term: u64,
        /// The entry before the first that follows.
        sequence: u64,
    },
    /// From the primary: a piece of a file of the data folder that a node needs for a takeover.
    File {
        name: String,
        /// The next bytes of the file.
        bytes: Vec<u8>,
        /// True if the file begins with this piece.
        first: bool,
        /// True if the file ends with this piece.
        last: bool,
    },
    /// From the primary: it replies to nobody any more, and this was the last entry. The standby
    /// takes over.
    HandOver {
        term: u64,
        sequence: u64,
        /// Write verifier for the standby to continue with, since it has all unstable writes;
        /// `None`: some were lost.
        verifier: Option<u64>,
    },
    /// From the side that keeps the register of a pair without a witness: the register.
    Register(Register),
    /// From the primary: the next change.
    Entry {
        term: u64,
        sequence: u64,
        /// Edits, in the form of a log record.
        meta: Vec<u8>,
        /// Pages of one block each; verified on receipt.
        pages: Vec<Box<[u8]>>,
        /// Reference to pages that came before the entry.
        advance: Option<Before>,
    },
    /// From the primary: pages of an entry that may follow on this connection.
    Advance {
        /// Number by which the entry will refer to them.
        id: u64,
        pages: Vec<Box<[u8]>>,
    },
    /// From the primary: no entry will refer to the pages that came with this number.
    Back { id: u64 },
    /// From the standby: everything up to here is durable.
    Ack { term: u64, sequence: u64 },
    /// From the primary, every 200 ms ([`crate::Timing::beat`]).
    Beat {
        term: u64,
        /// Version of the register, as the primary knows it.
        version: u64,
        /// Time by the primary's clock; the answer returns it.
        sent: Duration,
    },
    /// From the standby, in answer to a beat, with the beat's term and time.
    Answer { term: u64, sent: Duration },
    /// From the primary: asks for the standby's contents at this mark.
    Verify {
        term: u64,
        mark: u64,
        /// An entry with which the standby has the mark.
        sequence: u64,
    },
    /// From the standby: its contents at a mark.
    Verified {
        mark: u64,
        /// True for the last message of the reply.
        last: bool,
        /// At most [`HASHES`] hashes.
        hashes: Vec<VolumeHash>,
    },
    /// From a primary with a floating address: connections of clients to it, the primary's end
    /// first. At most [`CONNECTIONS`] in both lists.
    Connections {
        /// True if all connections reported before have ended.
        whole: bool,
        /// New connections.
        opened: Vec<(SocketAddr, SocketAddr)>,
        /// Ended connections.
        closed: Vec<(SocketAddr, SocketAddr)>,
    },
    /// From the primary: the standby's copy has to be created again, from nothing.
    Again,
    /// From either side: it does not continue, for this reason.
    Refusal(String),
}

/// The received bytes are not a message; the connection has to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError(pub &'static str);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged message on the pair's connection: {}", self.0)
    }
}

impl std::error::Error for DecodeError {}

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

/// Computes the checksum of a frame without its pages and the checksum itself.
fn checksum(front: &[u8]) -> u32 {
    let (head, rest) = front.split_at(HEAD.min(front.len()));
    let sum = crc32c::crc32c(head.get(..SUM_AT).unwrap_or_default());
    crc32c::crc32c_append(sum, rest)
}

fn nanos(time: Duration) -> u64 {
    // Saturates: 584 years.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Encodes an entry without its pages, which follow it: `sums` are theirs.
#[must_use]
pub fn entry_front(term: u64, sequence: u64, meta: &[u8], sums: &[u32]) -> Vec<u8> {
    frame(kind::ENTRY, term, sequence, meta, sums)
}

/// Like [`entry_front`], for an entry with pages sent before: `sums` are those of the others.
#[must_use]
pub fn rest_front(term: u64, sequence: u64, before: Before, meta: &[u8], sums: &[u32]) -> Vec<u8> {
    let mut body = Vec::with_capacity(REFERENCE + meta.len());
    body.extend(before.id.to_le_bytes());
    body.extend(before.first.to_le_bytes());
    body.extend(meta);
    frame(kind::REST, term, sequence, &body, sums)
}

/// Encodes an advance without its pages, which follow it: `sums` are theirs.
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
    /// Encodes the message.
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

/// Encodes one end of a connection.
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

    /// Returns the length of head, body and the pages' checksums, in bytes.
    fn front(&self) -> usize {
        HEAD + self.body + 4 * self.pages
    }

    fn whole(&self) -> usize {
        self.front() + self.pages * BLOCK_SIZE
    }

    /// Returns true if a message of this kind can have this size.
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

/// Decodes messages from received bytes, however they are split.
#[derive(Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Index of the next message.
    at: usize,
}

impl Decoder {
    /// Adds bytes that follow those of the last call.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).extend(bytes);
    }

    /// Returns the buffer to append received bytes to, with room for `bytes`.
    pub fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        // Decoded bytes are moved out of the way once for each read.
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.reserve(bytes);
        &mut self.bytes
    }

    /// Returns the next message, if all of it has arrived.
    ///
    /// # Errors
    /// [`DecodeError`]; the decoder must not be used any more.
    pub fn pop(&mut self) -> Result<Option<Message>, DecodeError> {
        let bytes = self.bytes.get(self.at..).unwrap_or_default();
        let Some(head) = Head::read(bytes) else {
            return Ok(None);
        };
        if !head.admissible() {
            return Err(DecodeError("unknown kind or invalid length"));
        }
        if bytes.len() < head.front() {
            return Ok(None);
        }
        let (front, pages) = bytes.split_at(head.front());
        if checksum(front) != head.sum
            || front.get(7) != Some(&0)
            || field(front, 24) != Some([0; 4])
        {
            return Err(DecodeError("wrong checksum of the head"));
        }
        let Some(pages) = pages.get(..head.pages * BLOCK_SIZE) else {
            return Ok(None);
        };
        let (body, sums) = front.get(HEAD..).unwrap_or_default().split_at(head.body);
        let (sums, _) = sums.as_chunks::<4>();
        let mut contents = Vec::with_capacity(head.pages);
        for (page, sum) in pages.chunks_exact(BLOCK_SIZE).zip(sums) {
            if crc32c::crc32c(page) != u32::from_le_bytes(*sum) {
                return Err(DecodeError("wrong checksum of a page"));
            }
            contents.push(page.into());
        }
        let message = message(&head, body, contents).ok_or(DecodeError("a field"))?;
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

    fn sample_messages() -> Vec<Message> {
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

    fn decoded(decoder: &mut Decoder) -> Result<Vec<Message>, DecodeError> {
        let mut messages = Vec::new();
        while let Some(message) = decoder.pop()? {
            messages.push(message);
        }
        Ok(messages)
    }

    #[test]
    fn messages_come_out_as_they_went_in_however_the_bytes_come() {
        let bytes: Vec<u8> = sample_messages().iter().flat_map(Message::encode).collect();
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
            assert_eq!(got, sample_messages());
        }
    }

    #[test]
    fn a_changed_bit_is_noticed_wherever_it_is() {
        let rng = SeededRng::new(6);
        for message in sample_messages() {
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
                // A larger length waits for more bytes.
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
