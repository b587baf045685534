//! A response message on its way out: what was encoded of the chain, and the data of a READ by reference to the cache's pages.
//!
//! It is signed when it is made, each response of the chain over its own bytes with its padding. A response that waits for
//! the log keeps what it takes to say later that it failed, signed as well.

use crate::header::{HEADER, Header, flag};
use crate::session::Session;
use crate::status::Status;
use crate::wire::Put;
use std::io::IoSlice;
use std::sync::Arc;
use weir_vfs::volume::ReadOut;

/// Length in bytes of the mark of direct TCP before a message (MS-SMB2 §2.1).
const MARK: usize = 4;

/// One response of a chain.
pub(crate) struct Part {
    /// Where it begins.
    pub at: usize,
    /// Its request's header.
    pub header: Header,
    /// Credits that it grants.
    pub credits: u16,
    /// What signs it.
    pub signer: Option<Arc<Session>>,
    /// It says that something is durable, which the log has to make true.
    pub promises: bool,
}

/// A finished response with its mark.
pub struct Reply {
    head: Vec<u8>,
    payload: Option<Box<ReadOut>>,
    /// The responses, if some of them promise something.
    parts: Vec<Part>,
}

/// Room for the mark.
pub(crate) fn start() -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    head.put_zeroes(MARK);
    head
}

/// Writes the body of an error (§2.2.2).
pub(crate) fn put_error(out: &mut Vec<u8>) {
    out.put_u16(9);
    out.put_u16(0);
    out.put_u32(0);
    out.put_u8(0);
}

impl Reply {
    /// Closes a chain: `head` has room for the mark, then the parts; `payload` follows the last.
    pub(crate) fn new(mut head: Vec<u8>, payload: Option<Box<ReadOut>>, parts: Vec<Part>) -> Reply {
        seal(&mut head, payload.as_deref(), &parts);
        let keep = parts.iter().any(|part| part.promises);
        Reply {
            head,
            payload,
            parts: if keep { parts } else { Vec::new() },
        }
    }

    /// A message as it is.
    pub fn unasked(message: &[u8]) -> Reply {
        let mut head = start();
        head.put(message);
        Reply::new(head, None, Vec::new())
    }

    /// The message without its mark, as far as it is encoded: all of it but the data of a READ.
    pub(crate) fn message(&self) -> &[u8] {
        &self.head[MARK..]
    }

    /// The whole message, for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = self.message().to_vec();
        if let Some(payload) = &self.payload {
            payload.slices().for_each(|s| out.put(s));
        }
        out
    }

    /// Length in bytes, with the mark.
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.as_ref().map_or(0, |p| p.len)
    }

    /// Never true: it has a mark.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `skip` on, in order, appended to `out`.
    pub fn slices<'a>(&'a self, mut skip: usize, out: &mut Vec<IoSlice<'a>>) {
        let payload = self.payload.iter().flat_map(|p| p.slices());
        for part in std::iter::once(self.head.as_slice()).chain(payload) {
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

    /// The same requests with what the log was to make true answered as failed.
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
                    put_error(&mut head);
                    if n < ends.len() {
                        head.align(MARK, 8);
                    }
                }
            }
        }
        let promised = parts.last().is_some_and(|part| part.promises);
        let payload = self.payload.filter(|_| !promised);
        seal(&mut head, payload.as_deref(), &parts);
        Reply {
            head,
            payload,
            parts: Vec::new(),
        }
    }
}

/// Fills in the mark, where each part's next one begins, and the signatures.
fn seal(head: &mut [u8], payload: Option<&ReadOut>, parts: &[Part]) {
    let len = head.len() + payload.map_or(0, |p| p.len) - MARK;
    assert!(len < 1 << 24, "a message of {len} bytes has no mark");
    head[..MARK].copy_from_slice(&(len as u32).to_be_bytes());
    for (n, part) in parts.iter().enumerate() {
        let next = parts.get(n + 1).map(|next| next.at);
        let end = next.unwrap_or(head.len());
        let message = &mut head[part.at..end];
        let distance = next.map_or(0, |next| next - part.at);
        message[20..24].copy_from_slice(&(distance as u32).to_le_bytes());
        let Some(session) = &part.signer else {
            continue;
        };
        message[16] |= flag::SIGNED as u8;
        message[48..HEADER].fill(0);
        let data = payload.filter(|_| next.is_none());
        let data = data.into_iter().flat_map(|p| p.slices());
        let signature = session.signer.sign(std::iter::once(&*message).chain(data));
        message[48..HEADER].copy_from_slice(&signature);
    }
}
