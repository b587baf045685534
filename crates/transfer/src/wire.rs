//! Frames between two nodes (byte layout in docs/internals/format.md).
//!
//! A connection begins with a [`Hello`] from each side, which detects incompatible versions. After
//! that it carries frames. A frame is at most [`MAX_PAYLOAD`] long and has a checksum over all its
//! bytes. So a decoder returns exactly the frames that an encoder was given, or the connection
//! ends. There is no resynchronization within a stream; a transfer resumes from its checkpoint over
//! a new connection.
//!
//! Frames are compressed individually, and a flag in the frame says so. Compression can be omitted
//! where it does not pay, and a reader never holds more than a frame. The checksum is over the
//! bytes on the wire, so damaged data is never decompressed.
//!
//! The codec is sans-I/O and total: any bytes give frames or an error.

use std::borrow::Cow;
pub use weir_base::limits::replica::MAX_PAYLOAD;

use weir_base::{SnapshotIdentity, Time};
use weir_volume::{ContentHash, Position};

/// Bytes before a frame's payload.
pub const HEADER: usize = 16;

/// Version of the protocol that this program speaks. Earlier versions were never released; they had
/// other identities and records.
pub const VERSION: u16 = 4;

/// Oldest version that this program understands.
pub const OLDEST: u16 = 4;

const MAGIC: [u8; 8] = *b"WEIRREPL";
const COMPRESSED: u8 = 1;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// [`Hello`], the first frame of each side.
    Hello = 1,
    /// A message of [`crate::session`], or of another protocol above; not interpreted here.
    Control = 2,
    /// [`Begin`], from the source.
    Begin = 3,
    /// [`Resume`], the destination's reply.
    Resume = 4,
    /// Operations and data, from the source. The only kind that a throttle counts.
    Records = 5,
    /// [`End`], from the source.
    End = 6,
    /// [`Done`], the destination's reply.
    Done = 7,
    /// [`Refusal`], from either side: the end of the transfer.
    Refusal = 8,
    /// [`Ack`], from the destination.
    Ack = 9,
    /// [`Pace`], from the source.
    Pace = 10,
}

impl Kind {
    fn from_number(n: u8) -> Option<Kind> {
        Some(match n {
            1 => Kind::Hello,
            2 => Kind::Control,
            3 => Kind::Begin,
            4 => Kind::Resume,
            5 => Kind::Records,
            6 => Kind::End,
            7 => Kind::Done,
            8 => Kind::Refusal,
            9 => Kind::Ack,
            10 => Kind::Pace,
            _ => return None,
        })
    }
}

/// Cause for which the rest of a stream cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// A checksum is wrong.
    #[error("cannot read the stream: a frame's checksum is wrong")]
    Checksum,
    /// A frame that no peer of this version sends.
    #[error("cannot read the stream: {0}")]
    Malformed(&'static str),
    /// The peer is not a replication service.
    #[error("cannot use the connection: the peer is not a replication service")]
    Foreign,
    /// The peer and this program have no version in common.
    #[error(
        "peer speaks versions {oldest} to {newest} of the protocol, this node {OLDEST} to {VERSION}"
    )]
    Version {
        /// Oldest version that the peer understands.
        oldest: u16,
        /// Version that the peer speaks.
        newest: u16,
    },
}

/// A frame that was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Kind of the payload.
    pub kind: Kind,
    /// Payload, decompressed if it was compressed.
    pub payload: Cow<'a, [u8]>,
    /// Bytes on the wire, including the header.
    pub wire: usize,
}

/// Appends a frame to `out` and returns its bytes on the wire. With a `level`, compresses it with
/// zstd at that level if that makes it smaller.
///
/// # Errors
/// `DecodeError` if the payload is longer than [`MAX_PAYLOAD`].
pub fn put_frame(
    out: &mut Vec<u8>,
    kind: Kind,
    payload: &[u8],
    level: Option<i32>,
) -> Result<usize, WireError> {
    let begin = begin_frame(out);
    out.extend_from_slice(payload);
    end_frame(out, begin, kind, level)
}

/// Begins a frame whose payload the caller appends to `out`. Returns its start for [`end_frame`].
pub fn begin_frame(out: &mut Vec<u8>) -> usize {
    let begin = out.len();
    out.extend_from_slice(&[0; HEADER]);
    begin
}

/// Ends the frame that began at `begin` and returns its bytes on the wire.
///
/// # Errors
/// As [`put_frame`].
pub fn end_frame(
    out: &mut Vec<u8>,
    begin: usize,
    kind: Kind,
    level: Option<i32>,
) -> Result<usize, WireError> {
    let body = begin + HEADER;
    let raw = out.len().checked_sub(body).filter(|n| *n <= MAX_PAYLOAD);
    let raw = raw.ok_or(WireError::Malformed("payload too long"))?;
    let mut flags = 0;
    if let Some(level) = level.filter(|_| raw > 0) {
        let packed = zstd::bulk::compress(out.get(body..).unwrap_or_default(), level);
        if let Some(packed) = packed.ok().filter(|p| p.len() < raw) {
            out.truncate(body);
            out.extend_from_slice(&packed);
            flags = COMPRESSED;
        }
    }
    let length = out.len() - body;
    let mut header = [0u8; HEADER];
    let (head, sum) = header.split_at_mut(12);
    let (a, b) = head.split_at_mut(4);
    a.copy_from_slice(&(length as u32).to_le_bytes());
    let (b, c) = b.split_at_mut(4);
    b.copy_from_slice(&[kind as u8, flags, 0, 0]);
    c.copy_from_slice(&(raw as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(out.get(body..).unwrap_or_default()), head);
    sum.copy_from_slice(&crc.to_le_bytes());
    if let Some(slot) = out.get_mut(begin..body) {
        slot.copy_from_slice(&header);
    }
    Ok(HEADER + length)
}

/// Splits a stream into frames. Holds one frame at most, and the bytes that were read beyond it.
#[derive(Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been returned in frames.
    read: usize,
}

impl Decoder {
    /// Creates a decoder at the start of a stream.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Adds received bytes. Call [`Decoder::frame`] until it returns `None` before the next call.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.buffer.drain(..self.read);
            self.read = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The rest of the stream cannot be read; the connection has to be closed.
    pub fn frame(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let rest = self.buffer.get(self.read..).unwrap_or_default();
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [
            l0,
            l1,
            l2,
            l3,
            kind,
            flags,
            z0,
            z1,
            r0,
            r1,
            r2,
            r3,
            c0,
            c1,
            c2,
            c3,
        ] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let raw = u32::from_le_bytes([r0, r1, r2, r3]) as usize;
        let crc = u32::from_le_bytes([c0, c1, c2, c3]);
        if length > MAX_PAYLOAD || raw > MAX_PAYLOAD {
            return Err(WireError::Malformed("a frame that is too long"));
        }
        if flags & !COMPRESSED != 0 || z0 != 0 || z1 != 0 {
            return Err(WireError::Malformed("a frame with unknown flags"));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let head = header.get(..12).unwrap_or_default();
        if crc32c::crc32c_append(crc32c::crc32c(payload), head) != crc {
            return Err(WireError::Checksum);
        }
        let kind = Kind::from_number(kind).ok_or(WireError::Malformed("an unknown frame"))?;
        let payload = if flags & COMPRESSED != 0 {
            let bytes = zstd::bulk::decompress(payload, raw)
                .ok()
                .filter(|bytes| bytes.len() == raw)
                .ok_or(WireError::Malformed("a frame that cannot be decompressed"))?;
            Cow::Owned(bytes)
        } else if length == raw {
            Cow::Borrowed(payload)
        } else {
            return Err(WireError::Malformed("a frame of two lengths"));
        };
        self.read += HEADER + length;
        Ok(Some(Frame {
            kind,
            payload,
            wire: HEADER + length,
        }))
    }
}

/// The first frame of each side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Version that the node speaks.
    pub version: u16,
    /// Oldest version that the node understands.
    pub oldest: u16,
    /// Identity of the node's aggregate.
    pub node: [u8; 16],
}

/// Base of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// The snapshot that both sides have.
    pub identity: SnapshotIdentity,
    /// Hash of its content at the source. The transfer continues only if the destination's is the
    /// same.
    pub content: ContentHash,
}

/// Offer of a transfer, its first frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Base of the difference; `None` sends everything.
    pub base: Option<Base>,
    /// The snapshot that is transferred.
    pub target: SnapshotIdentity,
    /// Name of the snapshot.
    pub name: String,
    /// Label of the snapshot; empty is none.
    pub label: String,
    /// Time of its creation.
    pub created: Time,
    /// Inodes below this number existed in the base, unless they had been deleted.
    pub next_ino: u64,
    /// The key of the source's directory hash.
    pub key: (u64, u64),
    /// Bytes of file data in the snapshot.
    pub referenced: u64,
    /// Bytes that will be sent before compression; `None` if they were not counted.
    pub total: Option<u64>,
}

/// Position from which the destination wants the transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resume {
    /// First position to send.
    pub position: Position,
    /// Digest of the data sent before.
    pub digest: u64,
    /// Bytes received before, counted before compression.
    pub logical: u64,
    /// Bytes received before, counted on the wire.
    pub wire: u64,
}

/// End of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Digest of all data that was sent.
    pub digest: u64,
    /// Hash of the snapshot's content at the source, made from its tree. The destination compares
    /// it with its own tree.
    pub content: ContentHash,
}

/// The snapshot is complete, and clients of the destination see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The snapshot's number in the destination volume.
    pub snapshot: u32,
}

/// Data that is durable at the destination: a transfer that is cut short now resumes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Bytes before compression, from the start of the first attempt.
    pub logical: u64,
}

/// Limit that the source waits for before it sends more. The destination reports it as the limit
/// that binds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// No limit.
    #[default]
    Free,
    /// The relationship's throttle.
    Relationship,
    /// The node's global limit on outgoing transfers.
    Outgoing,
}

/// Refusal that ends a transfer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// The kind of refusal, for programs.
    pub reason: Reason,
    /// The message that users see.
    pub text: String,
}

/// Kind of a refusal, by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Reason {
    /// None of the others; the text has the cause.
    Other = 0,
    /// The destination does not have the base of the difference, or its readers see another
    /// snapshot.
    NoCommonSnapshot = 1,
    /// The destination is writable.
    NotProtected = 2,
    /// Another transfer into the destination is running.
    Busy = 3,
    /// The destination is too small, or its aggregate is full.
    NoSpace = 4,
    /// A read or write has failed.
    Io = 5,
    /// The received data differs from the data that was sent.
    Corrupt = 6,
    /// The transfer was aborted on request.
    Aborted = 7,
    /// A snapshot has different content at the two ends.
    Different = 8,
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.u16()?);
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
    fn identity(&mut self) -> Option<SnapshotIdentity> {
        SnapshotIdentity::decode(&self.array()?)
    }
    fn content(&mut self) -> Option<ContentHash> {
        self.array().map(|bytes| ContentHash::decode(&bytes))
    }
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Names are at most 255 bytes; a longer text is truncated.
    let bytes = text.as_bytes();
    let bytes = bytes.get(..usize::from(u16::MAX)).unwrap_or(bytes);
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_identity(out: &mut Vec<u8>, identity: &SnapshotIdentity) {
    out.extend_from_slice(&identity.encode());
}

/// A message that has its own kind of frame.
pub trait Message: Sized {
    /// Kind of its frame.
    const KIND: Kind;
    /// Appends its payload, without the frame's header.
    fn put(&self, out: &mut Vec<u8>);
    #[doc(hidden)]
    fn read(payload: &[u8]) -> Option<Self>;

    /// Decodes a frame's payload.
    ///
    /// # Errors
    /// `Malformed`.
    fn decode(payload: &[u8]) -> Result<Self, WireError> {
        Self::read(payload).ok_or(WireError::Malformed("a message of another shape"))
    }

    /// Appends the message as a frame and returns the frame's bytes.
    ///
    /// # Errors
    /// As [`put_frame`].
    fn frame(&self, out: &mut Vec<u8>) -> Result<usize, WireError> {
        let begin = begin_frame(out);
        self.put(out);
        end_frame(out, begin, Self::KIND, None)
    }
}

impl Hello {
    /// Returns the greeting of this program.
    pub fn ours(node: [u8; 16]) -> Hello {
        Hello {
            version: VERSION,
            oldest: OLDEST,
            node,
        }
    }

    /// Returns the version to speak with the peer that sent this greeting.
    ///
    /// # Errors
    /// [`WireError::Version`].
    pub fn agree(&self) -> Result<u16, WireError> {
        let version = self.version.min(VERSION);
        match version >= self.oldest.max(OLDEST) {
            true => Ok(version),
            false => Err(WireError::Version {
                oldest: self.oldest,
                newest: self.version,
            }),
        }
    }

    /// Decodes the first frame of a connection.
    ///
    /// # Errors
    /// [`WireError::Foreign`] if it is not a greeting.
    pub fn from_frame(frame: &Frame<'_>) -> Result<Hello, WireError> {
        match frame.kind {
            Kind::Hello => Hello::read(&frame.payload).ok_or(WireError::Foreign),
            _ => Err(WireError::Foreign),
        }
    }
}

impl Message for Hello {
    const KIND: Kind = Kind::Hello;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.oldest.to_le_bytes());
        out.extend_from_slice(&self.node);
    }
    fn read(payload: &[u8]) -> Option<Hello> {
        let mut r = Bytes(payload);
        if r.array::<8>()? != MAGIC {
            return None;
        }
        // Later versions may append more.
        Some(Hello {
            version: r.u16()?,
            oldest: r.u16()?,
            node: r.array()?,
        })
    }
}

impl Message for Begin {
    const KIND: Kind = Kind::Begin;
    fn put(&self, out: &mut Vec<u8>) {
        match &self.base {
            Some(base) => {
                out.push(1);
                put_identity(out, &base.identity);
                out.extend_from_slice(&base.content.encode());
            }
            None => out.push(0),
        }
        put_identity(out, &self.target);
        out.extend_from_slice(&self.created.secs.to_le_bytes());
        out.extend_from_slice(&self.created.nanos.to_le_bytes());
        for n in [self.next_ino, self.key.0, self.key.1, self.referenced] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&self.total.unwrap_or(u64::MAX).to_le_bytes());
        put_text(out, &self.name);
        put_text(out, &self.label);
    }
    fn read(payload: &[u8]) -> Option<Begin> {
        let mut r = Bytes(payload);
        let base = match r.u8()? {
            0 => None,
            1 => Some(Base {
                identity: r.identity()?,
                content: r.content()?,
            }),
            _ => return None,
        };
        let target = r.identity()?;
        let created = Time {
            secs: r.array().map(i64::from_le_bytes)?,
            nanos: r.u32().filter(|n| *n < 1_000_000_000)?,
        };
        let (next_ino, key, referenced) = (r.u64()?, (r.u64()?, r.u64()?), r.u64()?);
        let total = r.u64()?;
        let (name, label) = (r.text()?, r.text()?);
        r.end(Begin {
            base,
            target,
            name,
            label,
            created,
            next_ino,
            key,
            referenced,
            total: (total != u64::MAX).then_some(total),
        })
    }
}

impl Message for Resume {
    const KIND: Kind = Kind::Resume;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.position.0);
        for n in [self.digest, self.logical, self.wire] {
            out.extend_from_slice(&n.to_le_bytes());
        }
    }
    fn read(payload: &[u8]) -> Option<Resume> {
        let mut r = Bytes(payload);
        let position = Position(r.array()?);
        let (digest, logical, wire) = (r.u64()?, r.u64()?, r.u64()?);
        r.end(Resume {
            position,
            digest,
            logical,
            wire,
        })
    }
}

impl Message for End {
    const KIND: Kind = Kind::End;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.digest.to_le_bytes());
        out.extend_from_slice(&self.content.encode());
    }
    fn read(payload: &[u8]) -> Option<End> {
        let mut r = Bytes(payload);
        let (digest, content) = (r.u64()?, r.content()?);
        r.end(End { digest, content })
    }
}

impl Message for Done {
    const KIND: Kind = Kind::Done;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.snapshot.to_le_bytes());
    }
    fn read(payload: &[u8]) -> Option<Done> {
        let mut r = Bytes(payload);
        let snapshot = r.u32()?;
        r.end(Done { snapshot })
    }
}

impl Message for Ack {
    const KIND: Kind = Kind::Ack;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.logical.to_le_bytes());
    }
    fn read(payload: &[u8]) -> Option<Ack> {
        let mut r = Bytes(payload);
        let logical = r.u64()?;
        r.end(Ack { logical })
    }
}

impl Message for Pace {
    const KIND: Kind = Kind::Pace;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Pace::Free => 0,
            Pace::Relationship => 1,
            Pace::Outgoing => 2,
        });
    }
    fn read(payload: &[u8]) -> Option<Pace> {
        let mut r = Bytes(payload);
        let pace = match r.u8()? {
            0 => Pace::Free,
            1 => Pace::Relationship,
            2 => Pace::Outgoing,
            _ => return None,
        };
        r.end(pace)
    }
}

impl Message for Refusal {
    const KIND: Kind = Kind::Refusal;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.reason as u16).to_le_bytes());
        put_text(out, &self.text);
    }
    fn read(payload: &[u8]) -> Option<Refusal> {
        let mut r = Bytes(payload);
        let reason = match r.u16()? {
            1 => Reason::NoCommonSnapshot,
            2 => Reason::NotProtected,
            3 => Reason::Busy,
            4 => Reason::NoSpace,
            5 => Reason::Io,
            6 => Reason::Corrupt,
            7 => Reason::Aborted,
            8 => Reason::Different,
            _ => Reason::Other,
        };
        let text = r.text()?;
        r.end(Refusal { reason, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document has the code's version and kinds of frames.
    #[test]
    fn the_document_says_what_is_spoken() {
        let text = include_str!("../../../docs/internals/format.md");
        assert!(
            text.contains(&format!("\nVersion {VERSION}, over any stream")),
            "docs/internals/format.md has another version of the replication protocol than {VERSION}"
        );
        for number in 0..=u8::MAX {
            let listed = Kind::from_number(number)
                .map(|kind| text.contains(&format!("\n| {number} {kind:?} |")));
            assert_ne!(listed, Some(false), "frame {number}");
        }
    }
}
