//! Record marking on the receiving side (RFC 5531 §11), without copying what arrives whole.
//!
//! A TCP stream of RPC calls is a row of records, each a row of fragments: four bytes of mark
//! (top bit: last fragment; 31 bits: length), then the bytes. Two sizes matter. Small calls
//! (GETATTR, READ, LOOKUP) arrive many to one `read`: they are handed out as slices of the
//! caller's receive buffer and never copied. Large calls (WRITE of 64 KiB to 1 MiB) span several
//! reads: the part that came with the first read is copied once into a buffer of the record's
//! exact size, and later reads go straight into that buffer ([`Inbox::spare`]), with the caller's
//! receive buffer as the second part of the same `readv` for whatever follows the record.
//!
//! Nothing is allocated at a record boundary, which is where an idle connection rests.

use std::mem::MaybeUninit;

/// Bytes of one record mark.
const MARK: usize = 4;

/// Fragments that one record may have. The oldest clients cut a 1 MiB WRITE into fragments of
/// about 4000 bytes (264 of them); anything far beyond that only burns time.
const MAX_FRAGMENTS: u32 = 1024;

/// What the receiver of a record wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Hand out the next record.
    Continue,
    /// Hold the rest back: the connection has enough in flight.
    Pause,
    /// The peer broke the protocol; the connection is to be closed.
    Close(&'static str),
}

/// Why a byte stream is not a stream of acceptable records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A record announces more bytes than any call may have.
    TooLong {
        /// Bytes announced so far.
        announced: usize,
    },
    /// A record in more than 1024 fragments.
    TooManyFragments,
    /// The receiver of records refused one.
    Refused(&'static str),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::TooLong { announced } => {
                write!(f, "a record of {announced} bytes or more was announced")
            }
            FrameError::TooManyFragments => f.write_str("a record in too many fragments"),
            FrameError::Refused(why) => f.write_str(why),
        }
    }
}

enum State {
    /// Reading a mark, of which `have` bytes are known.
    Mark { have: usize, bytes: [u8; MARK] },
    /// `left` bytes of the current fragment are missing.
    Body { left: usize, last: bool },
}

const AT_MARK: State = State::Mark {
    have: 0,
    bytes: [0; MARK],
};

/// One connection's position in its stream of records.
pub struct Inbox {
    state: State,
    record: Vec<u8>,
    fragments: u32,
    max_record: usize,
}

impl Inbox {
    /// An inbox that refuses records longer than `max_record` bytes.
    pub fn new(max_record: usize) -> Inbox {
        Inbox {
            state: AT_MARK,
            record: Vec::new(),
            fragments: 0,
            max_record,
        }
    }

    /// Bytes of memory held for the record under assembly.
    pub fn held(&self) -> usize {
        self.record.capacity()
    }

    /// True when the peer has begun a record and not finished it.
    pub fn partial(&self) -> bool {
        match self.state {
            State::Mark { have, .. } => have > 0 || self.fragments > 0,
            State::Body { .. } => true,
        }
    }

    /// Where the kernel may put the rest of the current fragment; empty unless one is open.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let left = match self.state {
            State::Body { left, .. } => left,
            State::Mark { .. } => 0,
        };
        self.record.reserve(left);
        let spare = self.record.spare_capacity_mut();
        let len = spare.len().min(left);
        &mut spare[..len]
    }

    /// Takes note of `n` bytes that were written to [`Inbox::spare`].
    ///
    /// # Safety
    /// The first `n` bytes of the slice last returned by `spare` must have been initialised.
    pub unsafe fn filled(&mut self, n: usize) {
        if let State::Body { left, .. } = &mut self.state {
            debug_assert!(n <= *left);
            *left -= n;
            // SAFETY: the caller initialised these `n` bytes, and `spare` reserved them.
            unsafe { self.record.set_len(self.record.len() + n) };
        }
    }

    /// Runs `input` through the assembler and hands each whole record to `each`.
    ///
    /// Returns how many bytes were consumed: all of them unless `each` answered
    /// [`Flow::Pause`], in which case the caller keeps the rest and presents it again. Must be
    /// called once after [`Inbox::filled`], with an empty `input` if nothing else came.
    pub fn accept(
        &mut self,
        input: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Result<usize, FrameError> {
        let mut at = 0;
        loop {
            match &mut self.state {
                State::Mark { have, bytes } => {
                    let rest = input.get(at..).unwrap_or_default();
                    let take = rest.len().min(MARK - *have);
                    for (to, from) in bytes.iter_mut().skip(*have).zip(rest) {
                        *to = *from;
                    }
                    *have += take;
                    at += take;
                    if *have < MARK {
                        return Ok(at);
                    }
                    let mark = u32::from_be_bytes(*bytes);
                    let last = mark & 0x8000_0000 != 0;
                    let len = (mark & 0x7fff_ffff) as usize;
                    let announced = self.record.len() + len;
                    if announced > self.max_record {
                        return Err(FrameError::TooLong { announced });
                    }
                    self.fragments += 1;
                    if self.fragments > MAX_FRAGMENTS {
                        return Err(FrameError::TooManyFragments);
                    }
                    self.state = State::Body { left: len, last };
                    if let (true, 1, Some(whole)) = (last, self.fragments, input.get(at..at + len))
                    {
                        // The common case: a whole record in the receive buffer.
                        at += len;
                        self.state = AT_MARK;
                        self.fragments = 0;
                        match each(whole) {
                            Flow::Continue => {}
                            Flow::Pause => return Ok(at),
                            Flow::Close(why) => return Err(FrameError::Refused(why)),
                        }
                    }
                }
                State::Body { left, last } => {
                    let last = *last;
                    let rest = input.get(at..).unwrap_or_default();
                    let piece = rest.get(..*left).unwrap_or(rest);
                    if !piece.is_empty() {
                        self.record.reserve_exact(*left);
                        self.record.extend_from_slice(piece);
                        *left -= piece.len();
                        at += piece.len();
                    }
                    if *left > 0 {
                        return Ok(at);
                    }
                    self.state = AT_MARK;
                    if last {
                        self.fragments = 0;
                        let record = std::mem::take(&mut self.record);
                        match each(&record) {
                            Flow::Continue => {}
                            Flow::Pause => return Ok(at),
                            Flow::Close(why) => return Err(FrameError::Refused(why)),
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(len: usize, last: bool) -> [u8; 4] {
        (len as u32 | if last { 0x8000_0000 } else { 0 }).to_be_bytes()
    }

    /// A stream of records of the given sizes, each cut into fragments of at most `cut`.
    fn stream(sizes: &[usize], cut: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut bytes = Vec::new();
        let mut records = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            let record: Vec<u8> = (0..size).map(|j| (i * 31 + j * 7) as u8).collect();
            let pieces: Vec<&[u8]> = if size == 0 {
                vec![&[]]
            } else {
                record.chunks(cut).collect()
            };
            for (k, piece) in pieces.iter().enumerate() {
                bytes.extend_from_slice(&mark(piece.len(), k + 1 == pieces.len()));
                bytes.extend_from_slice(piece);
            }
            records.push(record);
        }
        (bytes, records)
    }

    /// Every way of cutting the stream into reads gives the same records, whether the bytes come
    /// through the receive buffer or through `spare`.
    #[test]
    fn any_cut_of_the_stream_gives_the_same_records() {
        for cut in [5, 64, 10_000] {
            let (bytes, records) = stream(&[1, 0, 40, 300, 4, 7, 0, 129], cut);
            for step in 1..bytes.len() {
                let mut inbox = Inbox::new(4096);
                let mut seen = Vec::new();
                let mut at = 0;
                while at < bytes.len() {
                    let end = (at + step).min(bytes.len());
                    let mut chunk = &bytes[at..end];
                    let spare = inbox.spare();
                    let direct = spare.len().min(chunk.len());
                    for (to, from) in spare.iter_mut().zip(chunk) {
                        to.write(*from);
                    }
                    // SAFETY: `direct` bytes were written just above.
                    unsafe { inbox.filled(direct) };
                    chunk = &chunk[direct..];
                    let used = inbox
                        .accept(chunk, &mut |r| {
                            seen.push(r.to_vec());
                            Flow::Continue
                        })
                        .unwrap();
                    assert_eq!(used, chunk.len());
                    at = end;
                }
                assert_eq!(seen, records, "cut {cut} step {step}");
                assert!(!inbox.partial());
                assert_eq!(inbox.held(), 0);
            }
        }
    }

    #[test]
    fn pause_keeps_the_rest_for_later() {
        let (bytes, records) = stream(&[10, 20, 30], 100);
        let mut inbox = Inbox::new(4096);
        let mut seen = Vec::new();
        let mut at = 0;
        let mut calls = 0;
        while at < bytes.len() {
            at += inbox
                .accept(&bytes[at..], &mut |r| {
                    seen.push(r.to_vec());
                    Flow::Pause
                })
                .unwrap();
            calls += 1;
        }
        assert_eq!(calls, 3);
        assert_eq!(seen, records);
    }

    #[test]
    fn oversized_records_are_refused_before_any_memory_is_held() {
        let mut inbox = Inbox::new(1000);
        let error = inbox
            .accept(&mark(1001, true), &mut |_| Flow::Continue)
            .unwrap_err();
        assert_eq!(error, FrameError::TooLong { announced: 1001 });
        assert_eq!(inbox.held(), 0);

        let mut inbox = Inbox::new(1000);
        let mut bytes = mark(600, false).to_vec();
        bytes.extend_from_slice(&[0; 600]);
        bytes.extend_from_slice(&mark(401, true));
        let error = inbox.accept(&bytes, &mut |_| Flow::Continue).unwrap_err();
        assert_eq!(error, FrameError::TooLong { announced: 1001 });
    }

    #[test]
    fn endless_empty_fragments_end() {
        let mut inbox = Inbox::new(1000);
        let bytes: Vec<u8> = std::iter::repeat_n(mark(0, false), 2000)
            .flatten()
            .collect();
        let error = inbox.accept(&bytes, &mut |_| Flow::Continue).unwrap_err();
        assert_eq!(error, FrameError::TooManyFragments);
    }
}
