//! Framing: the rule by which a protocol splits a stream into messages. It is the choice of the
//! listener that accepted the connection.

use weir_base::limits::net::{self as limits, MAX_FRAGMENTS, RECORD_HEAD, SMALL_RECORD};

/// Bytes of the mark before each piece of a message.
pub const MARK_BYTES: usize = 4;

/// A piece of a message, as its mark announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes that follow the mark.
    pub len: usize,
    /// True if the message ends with this piece.
    pub last: bool,
}

/// Delimiters of a protocol's messages on a stream: each message consists of pieces, each behind a
/// mark of [`MARK_BYTES`].
pub trait Framing: 'static {
    /// Maximum length in bytes of a message that needs no admission by the receiver.
    const SMALL: usize;
    /// Bytes of a longer message that the receiver needs to admit it; at most [`Framing::SMALL`].
    const HEAD: usize;

    /// Decodes a mark.
    ///
    /// # Errors
    /// [`Broken::Mark`] if the bytes are not a mark.
    fn piece(mark: [u8; MARK_BYTES]) -> Result<Piece, Broken>;

    /// Returns the mark of a message of `len` bytes in one piece.
    fn mark(len: usize) -> [u8; MARK_BYTES];
}

/// Record marking of ONC RPC (RFC 5531 §11): 31 bits of length, and whether the fragment is the
/// record's last.
pub struct RecordMarks;

/// Bit of the fragment header that marks the last fragment.
pub(crate) const LAST: u32 = 1 << 31;

impl Framing for RecordMarks {
    const SMALL: usize = SMALL_RECORD;
    const HEAD: usize = RECORD_HEAD;

    #[inline]
    fn piece(mark: [u8; MARK_BYTES]) -> Result<Piece, Broken> {
        let mark = u32::from_be_bytes(mark);
        Ok(Piece {
            len: (mark & !LAST) as usize,
            last: mark & LAST != 0,
        })
    }

    fn mark(len: usize) -> [u8; MARK_BYTES] {
        assert!(len < LAST as usize, "a record of {len} bytes has no mark");
        (len as u32 | LAST).to_be_bytes()
    }
}

/// Fault after which a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A message exceeds the limit. The bytes announced so far.
    TooLong(usize),
    /// A message has more fragments than any sender needs.
    TooManyFragments,
    /// A mark is invalid. The cause.
    Mark(&'static str),
    /// The receiver refused a message. The cause.
    Refused(&'static str),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::TooLong(n) => {
                write!(f, "a message of {n} bytes or more exceeds the limit")
            }
            Broken::TooManyFragments => {
                write!(f, "a message in more than {MAX_FRAGMENTS} fragments")
            }
            Broken::Mark(why) | Broken::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Broken {}

/// SMB over direct TCP (MS-SMB2 §2.1): a zero byte, 24 bits of length, and the whole message.
pub struct DirectTcp;

impl Framing for DirectTcp {
    const SMALL: usize = limits::SMB_SMALL;
    const HEAD: usize = limits::SMB_HEAD;

    #[inline]
    fn piece([kind, rest @ ..]: [u8; MARK_BYTES]) -> Result<Piece, Broken> {
        let [high, middle, low] = rest;
        match kind {
            0 => Ok(Piece {
                len: u32::from_be_bytes([0, high, middle, low]) as usize,
                last: true,
            }),
            _ => Err(Broken::Mark("not a message of SMB over direct TCP")),
        }
    }

    fn mark(len: usize) -> [u8; MARK_BYTES] {
        assert!(len < 1 << 24, "a message of {len} bytes has no mark");
        (len as u32).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::{Admit, Flow, Inbox, Receiver};

    struct RecordingReceiver {
        messages: Vec<Vec<u8>>,
        asked: Vec<usize>,
    }

    impl Receiver for RecordingReceiver {
        fn admit(&mut self, head: &[u8], bytes: usize) -> Admit {
            assert!(head.len() >= DirectTcp::HEAD);
            self.asked.push(bytes);
            Admit::Take
        }
        fn record(&mut self, message: &[u8]) -> Flow {
            self.messages.push(message.to_vec());
            Flow::Continue
        }
        fn skipped(&mut self) -> Flow {
            unreachable!("nothing is refused")
        }
    }

    /// Feeds `bytes` in reads of `step`.
    fn read(bytes: &[u8], step: usize, limit: usize) -> Result<RecordingReceiver, Broken> {
        let mut inbox: Inbox<DirectTcp> = Inbox::new(limit);
        let mut kept = RecordingReceiver {
            messages: Vec::new(),
            asked: Vec::new(),
        };
        for chunk in bytes.chunks(step) {
            assert_eq!(inbox.accept(chunk, &mut kept)?, chunk.len());
        }
        assert!(!inbox.partial());
        Ok(kept)
    }

    #[test]
    fn every_length_has_one_mark_and_comes_back() {
        for len in [0, 1, 255, 256, 65_535, 65_536, (1 << 20) + 7, (1 << 24) - 1] {
            let mark = DirectTcp::mark(len);
            assert_eq!(mark[0], 0);
            assert_eq!(DirectTcp::piece(mark), Ok(Piece { len, last: true }));
        }
        // The first bit of a record mark of RPC is in SMB's first byte.
        for kind in [1, 0x80, 0x81, 0x85, 0xff] {
            assert!(DirectTcp::piece([kind, 0, 0, 4]).is_err());
        }
    }

    #[test]
    fn any_cut_of_the_stream_gives_the_same_messages() {
        let sizes = [4, 64, 0, 1000, limits::SMB_SMALL, 65];
        let message = |(i, size): (usize, &usize)| -> Vec<u8> {
            (0..*size).map(|j| (i * 31 + j * 7) as u8).collect()
        };
        let messages: Vec<Vec<u8>> = sizes.iter().enumerate().map(message).collect();
        let mut bytes = Vec::new();
        for message in &messages {
            bytes.extend_from_slice(&DirectTcp::mark(message.len()));
            bytes.extend_from_slice(message);
        }
        for step in [1, 2, 3, 5, 64, 67, 4096, bytes.len()] {
            let kept = read(&bytes, step, 1 << 20).unwrap();
            assert!(kept.messages == messages, "step {step}");
            assert!(kept.asked.is_empty(), "none is large");
        }
    }

    #[test]
    fn large_messages_are_asked_about_and_too_large_ones_refused() {
        let large = vec![7; limits::SMB_SMALL + 1];
        let bytes = [&DirectTcp::mark(large.len())[..], &large].concat();
        let kept = read(&bytes, 1000, large.len()).unwrap();
        assert_eq!(kept.asked, [large.len()]);
        assert!(kept.messages == [large.clone()]);
        let broken = read(&bytes, 1000, large.len() - 1).err();
        assert_eq!(broken, Some(Broken::TooLong(large.len())));
        let rpc = [0x80, 0, 0, 1, 9];
        assert!(matches!(read(&rpc, 5, 100).err(), Some(Broken::Mark(_))));
    }
}
