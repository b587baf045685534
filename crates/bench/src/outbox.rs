//! Queue of a connection: encoded calls, and payloads by reference.
//!
//! Calls made while one batch of replies is handled leave together in one
//! `sendmsg`. A WRITE's payload that need not be distinct is not built: it is a
//! piece of one constant region of incompressible bytes, and the vector of the
//! `sendmsg` points into it.

use rustix::io::Errno;
use rustix::net;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// Pieces given to one `sendmsg`; far below the system's 1024, and enough for 32
/// WRITEs.
const MAX_VECTOR: usize = 64;

#[derive(Debug, Clone, Copy)]
enum Piece {
    /// A range of the encoded bytes.
    Encoded { start: usize, len: usize },
    /// A range of the constant region.
    Constant { start: usize, len: usize },
}

impl Piece {
    const fn len(self) -> usize {
        match self {
            Self::Encoded { len, .. } | Self::Constant { len, .. } => len,
        }
    }
}

/// Result of [`Outbox::flush`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Everything is handed to the socket.
    Empty,
    /// The socket takes no more for now.
    Blocked,
}

/// The unsent output of one connection.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// First piece not completely sent, and what of it is sent.
    first: usize,
    sent: usize,
}

impl Outbox {
    /// Appends what `encode` writes.
    pub fn encode(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let added = self.bytes.len() - start;
        if added == 0 {
            return;
        }
        let last_index = self.pieces.len().wrapping_sub(1);
        match self.pieces.last_mut() {
            // A piece that is being sent may grow too: what is sent of it is counted
            // from its beginning.
            Some(Piece::Encoded { start: s, len })
                if *s + *len == start && last_index >= self.first =>
            {
                *len += added;
            }
            _ => self.pieces.push(Piece::Encoded { start, len: added }),
        }
    }

    /// Appends `len` bytes of the constant region from `start` on.
    pub fn constant(&mut self, start: usize, len: usize) {
        self.pieces.push(Piece::Constant { start, len });
    }

    /// Returns true if nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.first >= self.pieces.len()
    }

    /// Sends as much as the socket takes without blocking.
    pub fn flush(&mut self, fd: impl AsFd, region: &[u8]) -> io::Result<Flush> {
        while self.first < self.pieces.len() {
            let mut vector = [IoSlice::new(&[]); MAX_VECTOR];
            let mut used = 0;
            let mut skip = self.sent;
            let waiting = self.pieces.get(self.first..).unwrap_or(&[]);
            for (slot, piece) in vector.iter_mut().zip(waiting) {
                let slice = match *piece {
                    Piece::Encoded { start, len } => self.bytes.get(start + skip..start + len),
                    Piece::Constant { start, len } => region.get(start + skip..start + len),
                }
                .ok_or_else(|| io::Error::other("payload outside its region"))?;
                skip = 0;
                *slot = IoSlice::new(slice);
                used += 1;
            }
            match net::sendmsg(
                &fd,
                vector.get(..used).unwrap_or_default(),
                &mut net::SendAncillaryBuffer::default(),
                net::SendFlags::DONTWAIT | net::SendFlags::NOSIGNAL,
            ) {
                Ok(n) => self.advance(n),
                Err(Errno::WOULDBLOCK) => return Ok(Flush::Blocked),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.bytes.clear();
        self.pieces.clear();
        self.first = 0;
        Ok(Flush::Empty)
    }

    fn advance(&mut self, mut n: usize) {
        while let Some(piece) = self.pieces.get(self.first) {
            let left = piece.len() - self.sent;
            if n < left {
                self.sent += n;
                return;
            }
            n -= left;
            self.sent = 0;
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn order_survives_a_socket_that_takes_little_at_a_time() {
        let (tx, mut rx) = UnixStream::pair().unwrap();
        tx.set_nonblocking(true).unwrap();
        let region: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        let mut received = vec![0; 30_011];
        let mut got = Vec::new();
        for round in 0..200usize {
            outbox.encode(|o| o.extend_from_slice(&[round as u8; 7]));
            expected.extend_from_slice(&[round as u8; 7]);
            if round % 3 == 0 {
                let start = round * 100;
                outbox.constant(start, 60_000);
                expected.extend_from_slice(&region[start..start + 60_000]);
            }
            if outbox.flush(&tx, &region).unwrap() == Flush::Blocked {
                let n = rx.read(&mut received).unwrap();
                got.extend_from_slice(&received[..n]);
            }
        }
        while outbox.flush(&tx, &region).unwrap() == Flush::Blocked {
            let n = rx.read(&mut received).unwrap();
            got.extend_from_slice(&received[..n]);
        }
        assert!(outbox.is_empty());
        drop(tx);
        rx.read_to_end(&mut got).unwrap();
        assert!(got == expected);
    }
}
