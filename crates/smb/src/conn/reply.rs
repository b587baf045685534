//! A response message on its way out: the encoded part of the chain, and the data of a READ by
//! reference to the cache's pages.
//!
//! Each response is signed when the message is complete, over its own bytes with its padding, or
//! the message is encrypted as a whole. Compression comes after signing and before encryption. A
//! response that waits for the log keeps its keys and headers, so that a failure can be reported,
//! signed or encrypted as well.

use crate::open::channel::Channel;
use crate::proto::compression::{self, Algorithms};
use crate::proto::encryption;
use crate::proto::header::{HEADER, Header, flag};
use crate::proto::keys::Signer;
use crate::proto::status::Status;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use weir_auth::wire::Put;
use weir_vfs::stats::Done;
use weir_vfs::volume::ReadOut;

/// Length in bytes of the mark of direct TCP before a message (MS-SMB2 §2.1).
const MARK: usize = 4;

/// One response of a chain.
pub(crate) struct Part {
    /// Offset of its header in the message.
    pub at: usize,
    /// Its request's header.
    pub header: Header,
    /// Credits that it grants.
    pub credits: u16,
    /// Signs it.
    pub signer: Option<Arc<Signer>>,
    /// True if it promises that a change is durable, which the log has to make true.
    pub promises: bool,
    /// Its async id, after an interim response.
    pub async_id: Option<u64>,
}

/// A finished response with its mark.
pub struct Reply {
    head: Vec<u8>,
    payload: Option<Box<ReadOut>>,
    /// The responses, if some of them promise something.
    parts: Vec<Part>,
    /// The compressed or encrypted message, which is sent instead.
    packed: Option<TransformedMessage>,
    done: ChainOperations,
}

/// A message that is compressed, encrypted, or both, with its mark.
struct TransformedMessage {
    bytes: Vec<u8>,
    /// The channel that it is encrypted for.
    to: Option<Rc<Channel>>,
}

/// Operations that the requests of a chain count as. A chain of one, the usual case, takes no
/// memory for them.
#[derive(Default)]
pub(crate) struct ChainOperations {
    first: Option<Done>,
    more: Vec<Done>,
}

impl ChainOperations {
    pub fn add(&mut self, done: Done) {
        match self.first {
            None => self.first = Some(done),
            Some(_) => self.more.push(done),
        }
    }
}

/// Room for the mark.
pub(crate) fn start() -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    head.put_zeroes(MARK);
    head
}

/// Makes a response's header one of an asynchronous request (§2.2.1.1).
pub(crate) fn put_async(header: &mut [u8], id: u64) {
    header[16] |= flag::ASYNC as u8;
    header[32..40].copy_from_slice(&id.to_le_bytes());
}

/// Writes the body of an error (§2.2.2).
pub(crate) fn put_error(out: &mut Vec<u8>) {
    out.put_u16(9);
    out.put_u16(0);
    out.put_u32(0);
    out.put_u8(0);
}

/// Writes the body of an error with more to say.
pub(crate) fn put_error_with(out: &mut Vec<u8>, contexts: u8, data: &[u8]) {
    out.put_u16(9);
    out.put_u8(contexts);
    out.put_u8(0);
    out.put_u32(data.len() as u32);
    out.put(data);
}

impl Reply {
    /// Closes a chain: `head` has room for the mark, then the parts; `payload` follows the last.
    /// With a channel it is encrypted for that.
    pub(crate) fn new(
        head: Vec<u8>,
        payload: Option<Box<ReadOut>>,
        parts: Vec<Part>,
        to: Option<Rc<Channel>>,
    ) -> Reply {
        Reply::compressed(head, payload, parts, to, None)
    }

    /// Closes a chain as [`Reply::new`] does, and compresses the message with `with` if that makes
    /// it shorter.
    pub(crate) fn compressed(
        head: Vec<u8>,
        payload: Option<Box<ReadOut>>,
        parts: Vec<Part>,
        to: Option<Rc<Channel>>,
        with: Option<Algorithms>,
    ) -> Reply {
        let mut reply = Reply {
            head,
            payload,
            parts,
            packed: None,
            done: ChainOperations::default(),
        };
        reply.finish(to, with);
        if !reply.parts.iter().any(|part| part.promises) {
            reply.parts = Vec::new();
            if reply.packed.is_some() {
                (reply.head, reply.payload) = (Vec::new(), None);
            }
        }
        reply
    }

    /// Fills in what depends on all of it: marks, and signatures, compression or encryption.
    fn finish(&mut self, to: Option<Rc<Channel>>, with: Option<Algorithms>) {
        let payload = self.payload.as_deref();
        close(&mut self.head, payload, &self.parts, to.is_none());
        let compressed = with.zip(payload);
        let compressed = compressed.and_then(|(with, data)| compress(&self.head, data, with));
        let Some(to) = to else {
            self.packed = compressed.map(|bytes| TransformedMessage { bytes, to: None });
            return;
        };
        let Some(sealing) = &to.sealing else {
            unreachable!("a session without keys opens no encrypted message");
        };
        let (head, data) = match &compressed {
            Some(bytes) => (bytes, None),
            None => (&self.head, payload),
        };
        let len = head.len() + data.map_or(0, |p| p.len) + encryption::HEADER;
        let data = data.into_iter().flat_map(|p| p.slices());
        let plain = std::iter::once(&head[MARK..]).chain(data);
        let mut bytes = Vec::with_capacity(len);
        bytes.put_zeroes(MARK);
        sealing.seal(&mut bytes, to.nonces.next(), to.id, plain);
        put_mark(&mut bytes, len - MARK);
        self.packed = Some(TransformedMessage {
            bytes,
            to: Some(to),
        });
    }

    /// Says what the requests count as.
    pub(crate) fn count_as(&mut self, done: ChainOperations) {
        self.done = done;
    }

    /// Returns the operations on volumes that the requests count as.
    pub fn done(&self) -> impl Iterator<Item = Done> + use<'_> {
        self.done
            .first
            .into_iter()
            .chain(self.done.more.iter().copied())
    }

    /// A message as it is.
    pub fn unasked(message: &[u8]) -> Reply {
        let mut head = start();
        head.put(message);
        Reply::new(head, None, Vec::new(), None)
    }

    /// The message without its mark, as far as it is encoded: all of it but the data of a READ. Of
    /// none that is packed.
    pub(crate) fn message(&self) -> &[u8] {
        &self.head[MARK..]
    }

    /// The whole message, for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        if let Some(packed) = &self.packed {
            return packed.bytes[MARK..].to_vec();
        }
        let mut out = self.message().to_vec();
        if let Some(payload) = &self.payload {
            payload.slices().for_each(|s| out.put(s));
        }
        out
    }

    /// Length in bytes, with the mark.
    pub fn len(&self) -> usize {
        match &self.packed {
            Some(packed) => packed.bytes.len(),
            None => self.head.len() + self.payload.as_ref().map_or(0, |p| p.len),
        }
    }

    /// Never true: it has a mark.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `skip` on, in order, appended to `out`.
    pub fn slices<'a>(&'a self, mut skip: usize, out: &mut Vec<IoSlice<'a>>) {
        let (head, payload) = match &self.packed {
            Some(packed) => (&packed.bytes, None),
            None => (&self.head, self.payload.as_ref()),
        };
        let payload = payload.into_iter().flat_map(|p| p.slices());
        for part in std::iter::once(head.as_slice()).chain(payload) {
            match part.get(skip..) {
                Some(rest) => {
                    if !rest.is_empty() {
                        out.push(IoSlice::new(rest));
                    }
                    skip = 0;
                }
                None => skip -= part.len(),
            }
        }
    }

    /// Returns the reply with a failure in place of each response that the log was to make durable.
    #[must_use]
    pub fn into_failure(self) -> Reply {
        let mut head = start();
        let mut parts = self.parts;
        let ends: Vec<usize> = parts.iter().skip(1).map(|p| p.at).collect();
        let last = self.head.len();
        for (n, part) in parts.iter_mut().enumerate() {
            let from = part.at;
            let to = ends.get(n).copied().unwrap_or(last);
            part.at = head.len();
            match part.promises {
                false => head.put(&self.head[from..to]),
                true => {
                    let status = Status::UNEXPECTED_IO_ERROR.0;
                    part.header.put_response(&mut head, status, part.credits);
                    if let Some(id) = part.async_id {
                        put_async(&mut head[part.at..], id);
                    }
                    put_error(&mut head);
                    if n < ends.len() {
                        head.align(MARK, 8);
                    }
                }
            }
        }
        let promised = parts.last().is_some_and(|part| part.promises);
        let payload = self.payload.filter(|_| !promised);
        for part in &mut parts {
            part.promises = false;
        }
        let to = self.packed.and_then(|packed| packed.to);
        let mut reply = Reply::new(head, payload, parts, to);
        reply.done = self.done;
        reply
    }
}

/// The message of `head`, which has a mark, and `data`, with its mark; `None` if it stays as it is.
fn compress(head: &[u8], data: &ReadOut, with: Algorithms) -> Option<Vec<u8>> {
    let slices: Vec<&[u8]> = data.slices().collect();
    let mut out = vec![0; MARK];
    compression::compress(&mut out, &head[MARK..], &slices, with).then(|| {
        // It may be kept for as long as its client takes.
        out.shrink_to_fit();
        let len = out.len() - MARK;
        put_mark(&mut out, len);
        out
    })
}

fn put_mark(head: &mut [u8], len: usize) {
    assert!(len < 1 << 24, "a message of {len} bytes has no mark");
    head[..MARK].copy_from_slice(&(len as u32).to_be_bytes());
}

/// Fills in the mark, where each part's next one begins, and the signatures, if there are to be
/// any.
fn close(head: &mut [u8], payload: Option<&ReadOut>, parts: &[Part], signs: bool) {
    let len = head.len() + payload.map_or(0, |p| p.len) - MARK;
    put_mark(head, len);
    for (n, part) in parts.iter().enumerate() {
        let next = parts.get(n + 1).map(|next| next.at);
        let end = next.unwrap_or(head.len());
        let message = &mut head[part.at..end];
        let distance = next.map_or(0, |next| next - part.at);
        message[20..24].copy_from_slice(&(distance as u32).to_le_bytes());
        let Some(signer) = part.signer.as_ref().filter(|_| signs) else {
            // Where the one who would sign went with the session, the flag stays as the request has
            // it: Samba's client takes no response without it, and looks for no signature under
            // STATUS_USER_SESSION_DELETED.
            if !signs {
                message[16] &= !(flag::SIGNED as u8);
            }
            continue;
        };
        message[16] |= flag::SIGNED as u8;
        message[48..HEADER].fill(0);
        let data = payload.filter(|_| next.is_none());
        let data = data.into_iter().flat_map(|p| p.slices());
        let signature = signer.sign(message, data);
        message[48..HEADER].copy_from_slice(&signature);
    }
}

impl weir_conn::Reply for Reply {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn pieces<'a>(&'a self, skip: usize, out: &mut weir_conn::Pieces<'a>) {
        self.slices(skip, out);
    }

    fn into_failure(self) -> Reply {
        Reply::into_failure(self)
    }
}
