//! From a socket's bytes to whole records, without copying what arrives whole.
//!
//! The record marking itself is [`weir_nfs::record::Assembler`]'s; this is the memory it works
//! in. Two sizes matter. Small calls (GETATTR, READ, LOOKUP) arrive many to one `read`: they are
//! handed out as slices of the core's receive buffer and never copied. Large calls (WRITE of
//! 64 KiB to 1 MiB) span several reads: the part that came with the first read is copied once
//! into a buffer of the record's exact size, and later reads go straight into that buffer
//! ([`Inbox::spare`]), with the receive buffer as the second part of the same `readv` for
//! whatever follows the record.
//!
//! Nothing is allocated at a record boundary, which is where an idle connection rests.

use std::mem::MaybeUninit;

use weir_nfs::record::{Assembler, MARK_BYTES, RecordError, Step};

/// Records from this length on are asked about before memory is taken for them: WRITEs of 64 KiB and more.
pub const LARGE: usize = 64 << 10;

/// Bytes of a large record, with its mark, that there have to be before it is asked about: the header of a call and the
/// file handle of a WRITE, however long its credentials are. Until then it takes no more memory than that.
const HEAD: usize = 1024;

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

/// Why a connection cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The bytes are not acceptable records.
    Record(RecordError),
    /// The receiver of records refused one.
    Refused(&'static str),
}

impl From<RecordError> for Broken {
    fn from(error: RecordError) -> Broken {
        Broken::Record(error)
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Record(error) => error.fmt(f),
            Broken::Refused(why) => f.write_str(why),
        }
    }
}

/// One connection's position in its stream of records.
pub struct Inbox {
    assembler: Assembler,
    /// The beginning of a fragment, from its mark on; empty at a fragment's end.
    held: Vec<u8>,
    /// Length that `held` must reach before the assembler gets further.
    want: usize,
}

impl Inbox {
    /// An inbox that refuses records longer than `max_record` bytes.
    pub fn new(max_record: usize) -> Inbox {
        Inbox {
            assembler: Assembler::new(max_record),
            held: Vec::new(),
            want: 0,
        }
    }

    /// Bytes of memory held for the record under assembly.
    pub fn held(&self) -> usize {
        self.held.capacity() + self.assembler.held()
    }

    /// True when the peer has begun a record and not finished it.
    pub fn partial(&self) -> bool {
        !self.held.is_empty() || self.assembler.held() > 0
    }

    /// Where the kernel may put the rest of the current fragment; empty unless one is open.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let missing = match self.held.is_empty() {
            true => 0,
            false => self.want.saturating_sub(self.held.len()),
        };
        self.held.reserve_exact(missing);
        let spare = self.held.spare_capacity_mut();
        let len = spare.len().min(missing);
        &mut spare[..len]
    }

    /// Takes note of `n` bytes that were written to [`Inbox::spare`].
    ///
    /// # Safety
    /// The first `n` bytes of the slice last returned by `spare` must have been initialised.
    pub unsafe fn filled(&mut self, n: usize) {
        // SAFETY: the caller initialised these `n` bytes, and `spare` reserved them.
        unsafe { self.held.set_len(self.held.len() + n) };
    }

    /// Runs `input` through the assembler and hands each whole record to `each`.
    ///
    /// Before memory is taken for a record of at least [`LARGE`] bytes that is not there as a whole, `begin` is asked,
    /// with what there is of it ([`HEAD`] bytes at least, with its mark) and its length with its mark.
    ///
    /// Returns how many bytes were consumed: all of them unless `each` answered
    /// [`Flow::Pause`] or `begin` answered false, in which case the caller keeps the rest and presents it again. Must be
    /// called once after [`Inbox::filled`], with an empty `input` if nothing else came.
    pub fn accept(
        &mut self,
        input: &[u8],
        begin: &mut dyn FnMut(&[u8], usize) -> bool,
        each: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Result<usize, Broken> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let flow = if self.held.is_empty() {
                if rest.is_empty() {
                    return Ok(at);
                }
                match self.assembler.step(rest)? {
                    Step::Record { message, consumed } => {
                        at += consumed;
                        each(message)
                    }
                    Step::More { consumed, want } => {
                        let begun = rest.get(consumed..).unwrap_or_default();
                        let large = want >= LARGE && consumed == 0;
                        let want = match begun.get(MARK_BYTES..) {
                            Some(head) if large && begun.len() >= HEAD => {
                                if !begin(head, want) {
                                    return Ok(at);
                                }
                                want
                            }
                            _ if large => HEAD,
                            _ => want,
                        };
                        if !begun.is_empty() {
                            self.held.reserve_exact(want.max(begun.len()));
                            self.held.extend_from_slice(begun);
                            self.want = want;
                        }
                        return Ok(input.len());
                    }
                }
            } else {
                let missing = self.want.saturating_sub(self.held.len());
                let piece = rest.get(..missing).unwrap_or(rest);
                self.held.reserve_exact(missing);
                self.held.extend_from_slice(piece);
                at += piece.len();
                if self.held.len() < self.want {
                    return Ok(at);
                }
                match self.assembler.step(&self.held)? {
                    Step::Record { message, .. } => {
                        // `held` never holds more than the one fragment.
                        let flow = each(message);
                        self.held = Vec::new();
                        flow
                    }
                    Step::More { consumed, want } => {
                        // Only a record of which there was no more than the head comes here.
                        let large = want >= LARGE && consumed == 0;
                        let want = match self.held.get(MARK_BYTES..) {
                            Some(head) if large && self.held.len() >= HEAD => {
                                if !begin(head, want) {
                                    return Ok(at);
                                }
                                want
                            }
                            _ if large => HEAD,
                            _ => want,
                        };
                        self.held.drain(..consumed);
                        if self.held.is_empty() {
                            self.held = Vec::new();
                        }
                        self.want = want;
                        continue;
                    }
                }
            };
            if self.assembler.held() > 0 {
                // A record in several fragments: its buffer goes with the next step.
                self.assembler.step(&[])?;
            }
            match flow {
                Flow::Continue => {}
                Flow::Pause => return Ok(at),
                Flow::Close(why) => return Err(Broken::Refused(why)),
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
                        .accept(chunk, &mut |_, _| true, &mut |r| {
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
                .accept(&bytes[at..], &mut |_, _| true, &mut |r| {
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
    fn a_large_record_waits_for_leave_with_its_head_only() {
        let (bytes, records) = stream(&[8, LARGE + 5, 8, 2 * LARGE], usize::MAX);
        for step in [1, 3, 700, HEAD, HEAD + 1, 9000, 3 * LARGE] {
            let mut inbox = Inbox::new(4 * LARGE);
            let (mut seen, mut asked, mut refusals) = (Vec::new(), Vec::new(), 0);
            let mut backlog: Vec<u8> = Vec::new();
            for chunk in bytes.chunks(step) {
                backlog.extend_from_slice(chunk);
                // As a connection does: refused twice, it comes again.
                for _ in 0..4 {
                    let mut refused = false;
                    let used = inbox
                        .accept(
                            &backlog,
                            &mut |head, bytes| {
                                assert!(head.len() + MARK_BYTES >= HEAD);
                                refusals += 1;
                                refused = refusals % 3 != 0;
                                if !refused {
                                    asked.push(bytes);
                                }
                                !refused
                            },
                            &mut |r| {
                                seen.push(r.to_vec());
                                Flow::Continue
                            },
                        )
                        .unwrap();
                    backlog.drain(..used);
                    assert!(!refused || inbox.held() <= HEAD, "step {step}");
                    if !refused {
                        break;
                    }
                }
            }
            assert_eq!(seen, records, "step {step}");
            if step < LARGE {
                assert_eq!(asked, [LARGE + 9, 2 * LARGE + 4], "step {step}");
            }
            assert_eq!(inbox.held(), 0);
        }
    }

    #[test]
    fn oversized_records_are_refused_before_any_memory_is_held() {
        let mut inbox = Inbox::new(1000);
        let error = inbox
            .accept(&mark(1001, true), &mut |_, _| true, &mut |_| Flow::Continue)
            .unwrap_err();
        assert_eq!(error, Broken::Record(RecordError::TooLong(1001)));
        assert_eq!(inbox.held(), 0);

        let mut inbox = Inbox::new(1000);
        let mut bytes = mark(600, false).to_vec();
        bytes.extend_from_slice(&[0; 600]);
        bytes.extend_from_slice(&mark(401, true));
        let error = inbox
            .accept(&bytes, &mut |_, _| true, &mut |_| Flow::Continue)
            .unwrap_err();
        assert_eq!(error, Broken::Record(RecordError::TooLong(1001)));
    }

    #[test]
    fn endless_empty_fragments_end() {
        let mut inbox = Inbox::new(1000);
        let bytes: Vec<u8> = std::iter::repeat_n(mark(0, false), 5000)
            .flatten()
            .collect();
        let error = inbox
            .accept(&bytes, &mut |_, _| true, &mut |_| Flow::Continue)
            .unwrap_err();
        assert_eq!(error, Broken::Record(RecordError::TooManyFragments));
    }
}
