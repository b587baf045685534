//! A reply on its way out: the encoded head, and for READ the pages of the
//! cache that hold the data, by reference. Nothing is copied between the cache
//! and the socket; the connection writes the slices with one `writev`.

use crate::rpc;
use crate::rpc::failure::{Cut, Failure, Fallback};
use crate::rpc::message::{ACCEPTED_BYTES, Refusal};
use crate::rpc::xdr::padding;
use std::io::IoSlice;
use weir_base::BLOCK_SIZE;
use weir_conn::{Framing, MARK_BYTES, Pieces, RecordMarks, Reply};
use weir_vfs::stats::Done;
use weir_vfs::volume::ReadOut;

/// Data of a READ: a range of shared pages. In a sealed reply also parts around them.
#[derive(Default)]
pub struct Payload {
    /// The results in front of the data, in a sealed reply: bytes of the reply as it was encoded,
    /// from an offset on.
    results: (Vec<u8>, usize),
    data: Option<ReadOut>,
    /// Bytes behind the data, in a sealed reply.
    tail: Vec<u8>,
}

/// Maximum length in bytes of results that are copied to be sealed: by reference they would cost
/// more.
const COPIED: usize = 4096;

impl Payload {
    /// Returns the data of a read.
    pub fn new(data: ReadOut) -> Payload {
        Payload {
            data: Some(data),
            ..Payload::default()
        }
    }

    /// Appends a copy of all the data to `to`.
    pub(crate) fn flatten(&self, to: &mut Vec<u8>) {
        self.parts().for_each(|part| to.extend_from_slice(part));
    }

    fn results(&self) -> &[u8] {
        let (encoded, at) = &self.results;
        encoded.get(*at..).unwrap_or_default()
    }

    fn data_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.len)
    }

    /// Returns the results, the data, the XDR padding and the tail.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let padding = &[0u8; 3][..padding(self.data_bytes())];
        let data = self.data.iter().flat_map(|data| data.slices());
        let results = Some(self.results()).filter(|results| !results.is_empty());
        results.into_iter().chain(data).chain([padding, &self.tail])
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let data = self.data_bytes();
        self.results().len() + data + padding(data) + self.tail.len()
    }

    /// Returns the number of bytes of memory that it occupies.
    fn held(&self) -> usize {
        let pages = self.data.as_ref().map_or(0, |data| data.pages.len());
        self.results.0.capacity() + pages * BLOCK_SIZE + self.tail.capacity()
    }
}

/// One encoded RPC message with its record mark.
#[derive(Default)]
pub struct ReplyBuf {
    /// Record mark, then the message up to the payload if there is one.
    head: Vec<u8>,
    /// Boxed, since most replies have none and replies are moved often.
    payload: Option<Box<Payload>>,
    /// Method of turning the reply into a failure; see [`ReplyBuf::into_failure`].
    failure: Option<Fallback>,
    /// Operation that it is counted as.
    done: Option<Done>,
    /// Further operations of a COMPOUND that it is counted as.
    more: Vec<Done>,
}

impl ReplyBuf {
    /// Starts a message: room for the record mark, `capacity` bytes reserved.
    pub(crate) fn start(capacity: usize) -> Vec<u8> {
        let mut head = Vec::with_capacity(capacity);
        head.extend_from_slice(&[0; MARK_BYTES]);
        head
    }

    /// Finishes a message that is entirely in `head`.
    pub(crate) fn whole(mut head: Vec<u8>, failure: Option<Failure>) -> ReplyBuf {
        mark(&mut head, 0);
        ReplyBuf {
            head,
            payload: None,
            failure: failure.map(Fallback::Shape),
            done: None,
            more: Vec::new(),
        }
    }

    /// Returns a message of the server, such as a call, that is sent on a connection like a reply.
    pub fn unasked(message: &[u8]) -> ReplyBuf {
        let mut head = ReplyBuf::start(MARK_BYTES + message.len());
        head.extend_from_slice(message);
        ReplyBuf::whole(head, None)
    }

    /// Finishes a message whose data follows `head` by reference.
    pub(crate) fn with_payload(
        mut head: Vec<u8>,
        payload: Option<Box<Payload>>,
        failure: Option<Failure>,
    ) -> ReplyBuf {
        mark(&mut head, payload.as_ref().map_or(0, |p| p.encoded_len()));
        ReplyBuf {
            head,
            payload,
            failure: failure.map(Fallback::Shape),
            done: None,
            more: Vec::new(),
        }
    }

    /// Finishes the reply to a COMPOUND.
    pub(crate) fn compound(
        head: Vec<u8>,
        payload: Option<Box<Payload>>,
        cut: Option<Cut>,
    ) -> ReplyBuf {
        ReplyBuf {
            failure: cut.map(Fallback::Cut),
            ..ReplyBuf::with_payload(head, payload, None)
        }
    }

    /// Replaces the encoded reply by `head`, which begins with room for the record mark. The reply
    /// is counted as before; if the log fails, it becomes SYSTEM_ERR.
    pub(crate) fn replaced(self, head: Vec<u8>) -> ReplyBuf {
        ReplyBuf {
            done: self.done,
            more: self.more,
            ..ReplyBuf::whole(head, None)
        }
    }

    /// Replaces the first `replaced` bytes of the message by `head`, which begins with room for the
    /// record mark. The results and the data follow as before, and behind them `tail`. The reply is
    /// counted as before; if the log fails, it becomes SYSTEM_ERR.
    pub(crate) fn reheaded(
        mut self,
        mut head: Vec<u8>,
        replaced: usize,
        tail: Vec<u8>,
    ) -> ReplyBuf {
        let results = self.head.get(MARK_BYTES + replaced..).unwrap_or_default();
        let large = results.len() > COPIED;
        if !large {
            head.extend_from_slice(results);
        }
        match &mut self.payload {
            None if !large => head.extend_from_slice(&tail),
            payload => {
                let payload = payload.get_or_insert_default();
                payload.tail = tail;
                if large {
                    payload.results = (self.head, MARK_BYTES + replaced);
                }
            }
        }
        ReplyBuf {
            done: self.done,
            more: self.more,
            ..ReplyBuf::with_payload(head, self.payload, None)
        }
    }

    /// Returns the message without its record mark: the encoded part, and the data that follow.
    pub(crate) fn parts(&self) -> (&[u8], Option<&Payload>) {
        let head = self.head.get(MARK_BYTES..).unwrap_or_default();
        (head, self.payload.as_deref())
    }

    /// Returns the results of an accepted call, up to data that follow by reference.
    pub(crate) fn results(&self) -> &[u8] {
        self.head
            .get(MARK_BYTES + ACCEPTED_BYTES..)
            .unwrap_or_default()
    }

    /// Returns the number of the refusal, if RPC refuses the call.
    pub(crate) fn refusal(&self) -> Option<u32> {
        Refusal::number_in(self.head.get(MARK_BYTES..)?)
    }

    /// Sets the operation that the reply is counted as.
    pub(crate) fn count_as(&mut self, done: Done) {
        self.done = Some(done);
    }

    /// Sets the further operations that the reply is counted as.
    pub(crate) fn count_also(&mut self, more: Vec<Done>) {
        self.more = more;
    }

    /// Returns the operations on volumes that the reply is counted as.
    pub fn done(&self) -> impl Iterator<Item = Done> + use<'_> {
        self.done.into_iter().chain(self.more.iter().copied())
    }

    /// Returns the encoded reply, if it is in one piece.
    pub(crate) fn head(&self) -> Option<&[u8]> {
        self.payload.is_none().then_some(&self.head)
    }

    /// Returns the length of the whole reply on a stream, in bytes, record mark included.
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.as_ref().map_or(0, |p| p.encoded_len())
    }

    /// Returns false for every finished reply.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes of memory that the reply occupies, for the connection's bound on
    /// waiting replies.
    pub fn held(&self) -> usize {
        self.head.capacity() + self.payload.as_ref().map_or(0, |p| p.held())
    }

    /// Appends the bytes of the reply from `skip` on to `out`, in order; `skip` is the number of
    /// bytes taken by an earlier short write.
    pub fn slices<'a>(&'a self, skip: usize, out: &mut Vec<IoSlice<'a>>) {
        let mut skip = skip;
        let payload = self.payload.iter().flat_map(|p| p.parts());
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

    /// Returns the message without its record mark, for a datagram transport.
    pub fn message(&self) -> Vec<u8> {
        let (head, payload) = self.parts();
        let mut message = Vec::with_capacity(self.len());
        message.extend_from_slice(head);
        if let Some(payload) = payload {
            payload.flatten(&mut message);
        }
        message
    }

    /// Returns the transaction id of the answered call.
    pub fn xid(&self) -> u32 {
        let xid = self.head.get(MARK_BYTES..MARK_BYTES + 4);
        xid.and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_be_bytes)
    }

    /// Returns the reply of the call as a failed one. A connection sends it in place of a held
    /// reply when the log that was to make that true is poisoned. NFS calls get NFS3ERR_IO without
    /// attributes, a COMPOUND is cut at the operation concerned, others get RPC's SYSTEM_ERR.
    #[must_use]
    pub fn into_failure(self) -> ReplyBuf {
        let xid = self.xid();
        let mut head = ReplyBuf::start(64);
        match self.failure {
            Some(Fallback::Shape(f)) => {
                rpc::put_accepted(&mut head, xid);
                f.put_io_error(&mut head);
            }
            Some(Fallback::Cut(cut)) => {
                let results = self.head.get(MARK_BYTES + ACCEPTED_BYTES..);
                let mut results = results.unwrap_or_default().to_vec();
                cut.apply(&mut results);
                rpc::put_accepted(&mut head, xid);
                head.extend_from_slice(&results);
            }
            None => rpc::put_refusal(&mut head, xid, rpc::Refusal::SystemErr),
        }
        ReplyBuf {
            failure: self.failure,
            ..ReplyBuf::whole(head, None)
        }
    }
}

impl Reply for ReplyBuf {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn pieces<'a>(&'a self, skip: usize, out: &mut Pieces<'a>) {
        self.slices(skip, out);
    }

    fn into_failure(self) -> ReplyBuf {
        ReplyBuf::into_failure(self)
    }
}

/// Fills in the record mark of a message of one fragment (RFC 5531 §11);
/// `payload` bytes follow outside `head`.
fn mark(head: &mut [u8], payload: usize) {
    let len = head.len() + payload - MARK_BYTES;
    head[..MARK_BYTES].copy_from_slice(&RecordMarks::mark(len));
}
