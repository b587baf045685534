//! Record marking (RFC 5531 §11): whole messages out of a byte stream.
//!
//! Almost every client sends a message as one fragment. Such a record is handed
//! on where it lies in the connection's buffer; only a message in several
//! fragments is gathered in a buffer of the assembler's own. A record's length
//! is bounded before anything is reserved for it, and the bound counts all of
//! its fragments.

/// Bit of the fragment header that marks the last fragment.
const LAST: u32 = 1 << 31;
/// Length of a fragment header in bytes.
pub const MARK_BYTES: usize = 4;

/// Most fragments of one record. A record of the largest size in TCP segments
/// of the smallest usual size is below this; empty fragments without end are not.
const MAX_FRAGMENTS: u32 = 4096;

/// A record that is refused; the stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// A record longer than the limit: the bytes announced so far.
    TooLong(usize),
    /// A record in more fragments than any sender has use for.
    TooManyFragments,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordError::TooLong(n) => {
                write!(f, "RPC record of {n} bytes or more exceeds the limit")
            }
            RecordError::TooManyFragments => {
                write!(f, "RPC record in more than {MAX_FRAGMENTS} fragments")
            }
        }
    }
}

impl std::error::Error for RecordError {}

/// What the front of the buffer holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// One whole message. `consumed` bytes of the buffer are done with.
    Record {
        /// The message without its record marks.
        message: &'a [u8],
        /// Bytes to drop from the front of the buffer.
        consumed: usize,
    },
    /// More bytes are needed.
    More {
        /// Bytes to drop from the front of the buffer now.
        consumed: usize,
        /// Bytes that the rest of the buffer must reach before it is worth
        /// asking again; at most the record limit and a mark.
        want: usize,
    },
}

/// Assembles the records of one connection.
#[derive(Debug)]
pub struct Assembler {
    limit: usize,
    gathered: Vec<u8>,
    fragments: u32,
    finished: bool,
}

impl Assembler {
    /// An assembler for records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Assembler {
            limit,
            gathered: Vec::new(),
            fragments: 0,
            finished: false,
        }
    }

    /// Bytes that this assembler holds of an unfinished record.
    pub fn held(&self) -> usize {
        self.gathered.capacity()
    }

    /// Looks at the front of `buf`, which starts where the last step ended.
    pub fn step<'a>(&'a mut self, buf: &'a [u8]) -> Result<Step<'a>, RecordError> {
        if self.finished {
            self.finished = false;
            self.fragments = 0;
            self.gathered = Vec::new();
        }
        let mut consumed = 0;
        loop {
            let rest = buf.get(consumed..).unwrap_or(&[]);
            let Some((mark, body)) = rest.split_first_chunk::<MARK_BYTES>() else {
                return Ok(Step::More {
                    consumed,
                    want: MARK_BYTES,
                });
            };
            let mark = u32::from_be_bytes(*mark);
            let len = (mark & !LAST) as usize;
            let total = self.gathered.len().saturating_add(len);
            if total > self.limit {
                return Err(RecordError::TooLong(total));
            }
            let Some(fragment) = body.get(..len) else {
                return Ok(Step::More {
                    consumed,
                    want: MARK_BYTES + len,
                });
            };
            consumed += MARK_BYTES + len;
            let last = mark & LAST != 0;
            if last && self.fragments == 0 {
                return Ok(Step::Record {
                    message: fragment,
                    consumed,
                });
            }
            self.fragments += 1;
            if self.fragments > MAX_FRAGMENTS {
                return Err(RecordError::TooManyFragments);
            }
            self.gathered.extend_from_slice(fragment);
            if last {
                self.finished = true;
                return Ok(Step::Record {
                    message: &self.gathered,
                    consumed,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(data: &[u8], last: bool) -> Vec<u8> {
        let mut v = ((data.len() as u32) | if last { LAST } else { 0 })
            .to_be_bytes()
            .to_vec();
        v.extend_from_slice(data);
        v
    }

    /// Feeds `stream` as it would arrive in pieces, and returns the messages.
    fn run(limit: usize, stream: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut a = Assembler::new(limit);
        let (mut buf, mut out) = (Vec::new(), Vec::new());
        for part in stream.chunks(piece) {
            buf.extend_from_slice(part);
            loop {
                match a.step(&buf)? {
                    Step::Record { message, consumed } => {
                        out.push(message.to_vec());
                        buf.drain(..consumed);
                    }
                    Step::More { consumed, want } => {
                        assert!(want > buf.len() - consumed, "asked for what is there");
                        assert!(want <= limit + MARK_BYTES);
                        buf.drain(..consumed);
                        break;
                    }
                }
            }
        }
        Ok(out)
    }

    #[test]
    fn one_fragment_is_not_copied() {
        let stream = fragment(b"hello", true);
        let mut a = Assembler::new(100);
        let Ok(Step::Record { message, consumed }) = a.step(&stream) else {
            panic!()
        };
        assert_eq!((message, consumed), (&b"hello"[..], 9));
        assert_eq!(message.as_ptr(), stream[4..].as_ptr());
        assert_eq!(a.held(), 0);
    }

    #[test]
    fn the_limit_counts_all_fragments() {
        let mut s = fragment(b"12345", false);
        s.extend(fragment(b"6789", true));
        assert_eq!(run(9, &s, 3), Ok(vec![b"123456789".to_vec()]));
        assert_eq!(run(8, &s, 3), Err(RecordError::TooLong(9)));
        assert_eq!(
            run(8, &[0xff; 4], 1),
            Err(RecordError::TooLong(0x7fff_ffff))
        );
    }

    #[test]
    fn endless_empty_fragments_end() {
        let s = fragment(b"", false).repeat(MAX_FRAGMENTS as usize + 1);
        assert_eq!(run(8, &s, 64), Err(RecordError::TooManyFragments));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_messages(
            messages in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..4), 0..6),
            piece in 1usize..40,
        ) {
            let mut stream = Vec::new();
            for m in &messages {
                for (i, f) in m.iter().enumerate() {
                    stream.extend(fragment(f, i + 1 == m.len()));
                }
            }
            let want: Vec<Vec<u8>> = messages.iter().map(|m| m.concat()).collect();
            prop_assert_eq!(run(100, &stream, piece), Ok(want));
        }
    }
}
