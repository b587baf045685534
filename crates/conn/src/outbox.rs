//! Queue of a connection's replies, which are gathered into vectored writes.
//!
//! A reply is a header and, for READ, references to pages of the block cache; nothing is copied
//! between the cache and the socket. All ready replies are sent in one `writev`, up to the amount
//! that the kernel takes at once. After a short write, the position in the first reply is kept.
//!
//! The copy into the socket is half of the cost of a large READ (256 KiB: 20 of 32 µs), but it
//! cannot be avoided. With `splice`, the kernel refers to the pages until the peer has read them,
//! and does not report when; a page might be written again meanwhile. `MSG_ZEROCOPY` does report,
//! but copies over loopback all the same (see bench/README.md). Smaller send buffers, to keep the
//! copy within the cores' caches, made it no faster: with at most 4 MiB, 1 MiB, 512 KiB, 256 KiB, a
//! READ of 64 KiB took 9.0, 9.9, 9.5, 11 µs of the server's time (two cores, busy with other things
//! too).

use std::collections::VecDeque;
use std::io::IoSlice;
use weir_base::limits::net::{SEND_BYTES as MAX_WRITE, SEND_PIECES as MAX_PIECES};

use weir_base::invariant;

/// The pieces of one vectored write.
pub type Pieces<'a> = Vec<IoSlice<'a>>;

/// A finished reply, including its record mark.
pub trait Reply: Unpin + 'static {
    /// Returns the length in bytes, including the record mark.
    fn bytes(&self) -> usize;

    /// Adds the reply's pieces in order, without its first `skip` bytes.
    fn pieces<'a>(&'a self, skip: usize, out: &mut Pieces<'a>);

    /// Returns the reply that reports failure, for use when the log has failed before this reply
    /// became durable.
    #[must_use]
    fn into_failure(self) -> Self;
}

/// The queue of replies that may be sent.
pub struct Outbox<R> {
    queue: VecDeque<R>,
    /// Bytes of the first reply that the kernel already has.
    sent: usize,
    bytes: usize,
    /// Number of the last replies that [`Outbox::fresh`] has not returned yet.
    fresh: usize,
}

impl<R> Default for Outbox<R> {
    fn default() -> Outbox<R> {
        Outbox {
            queue: VecDeque::new(),
            sent: 0,
            bytes: 0,
            fresh: 0,
        }
    }
}

impl<R: Reply> Outbox<R> {
    /// Creates an empty queue.
    pub fn new() -> Outbox<R> {
        Outbox::default()
    }

    /// Returns the bytes that still have to be sent.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Appends a reply.
    pub fn push(&mut self, reply: R) {
        self.bytes += reply.bytes();
        self.fresh += 1;
        self.queue.push_back(reply);
    }

    /// Returns the replies that were added since the last call, if there are any.
    pub fn fresh(&mut self) -> Option<impl Iterator<Item = &R>> {
        let fresh = std::mem::take(&mut self.fresh).min(self.queue.len());
        (fresh > 0).then(|| self.queue.range(self.queue.len() - fresh..))
    }

    /// Returns the pieces of the next write in order, and how many bytes they hold.
    pub fn gather(&self) -> (Pieces<'_>, usize) {
        let mut pieces = Pieces::with_capacity(32);
        let mut total = 0;
        let mut skip = self.sent;
        for reply in &self.queue {
            if total >= MAX_WRITE || pieces.len() >= MAX_PIECES {
                break;
            }
            reply.pieces(skip, &mut pieces);
            total += reply.bytes().saturating_sub(skip);
            skip = 0;
        }
        if pieces.len() > MAX_PIECES {
            pieces.truncate(MAX_PIECES);
            total = pieces.iter().map(|p| p.len()).sum();
        }
        (pieces, total)
    }

    /// Records that the kernel accepted `n` bytes.
    pub fn advance(&mut self, n: usize) {
        if invariant!(self.bytes >= n, "more was sent than there is") {
            self.bytes -= n;
        }
        self.sent += n;
        while let Some(first) = self.queue.front() {
            if self.sent < first.bytes() {
                return;
            }
            self.sent -= first.bytes();
            self.queue.pop_front();
        }
        // The room of many replies must not stay with an idle connection.
        if self.queue.capacity() > 64 {
            self.queue = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PiecewiseReply(Vec<Vec<u8>>);

    impl Reply for PiecewiseReply {
        fn bytes(&self) -> usize {
            self.0.iter().map(Vec::len).sum()
        }
        fn pieces<'a>(&'a self, mut skip: usize, out: &mut Pieces<'a>) {
            for piece in &self.0 {
                let from = skip.min(piece.len());
                skip -= from;
                out.push(IoSlice::new(&piece[from..]));
            }
        }
        fn into_failure(self) -> Self {
            self
        }
    }

    /// The bytes are complete and in order, however few of them each write takes.
    #[test]
    fn short_writes_lose_and_repeat_nothing() {
        let replies = || {
            vec![
                PiecewiseReply(vec![vec![1; 5], vec![2; 100], vec![3; 3]]),
                PiecewiseReply(vec![vec![4; 1]]),
                PiecewiseReply(vec![vec![5; 64], vec![], vec![6; 2]]),
            ]
        };
        let whole: Vec<u8> = replies().into_iter().flat_map(|r| r.0.concat()).collect();
        for step in 1..=whole.len() + 1 {
            let mut outbox = Outbox::new();
            replies().into_iter().for_each(|r| outbox.push(r));
            let mut out = Vec::new();
            while !outbox.is_empty() {
                let (pieces, total) = outbox.gather();
                let flat: Vec<u8> = pieces.iter().flat_map(|p| p.to_vec()).collect();
                assert_eq!(flat.len(), total);
                assert_eq!(total, outbox.bytes());
                let n = step.min(total);
                out.extend_from_slice(&flat[..n]);
                drop(pieces);
                outbox.advance(n);
            }
            assert_eq!(out, whole, "step {step}");
            assert_eq!(outbox.bytes(), 0);
        }
    }

    #[test]
    fn a_write_is_bounded_in_pieces() {
        let mut outbox = Outbox::new();
        for _ in 0..MAX_PIECES {
            outbox.push(PiecewiseReply(vec![vec![7; 2], vec![8; 1]]));
        }
        let (pieces, total) = outbox.gather();
        assert!(pieces.len() <= MAX_PIECES);
        assert_eq!(pieces.iter().map(|p| p.len()).sum::<usize>(), total);
        assert!(total < outbox.bytes());
    }
}
