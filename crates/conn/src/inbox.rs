//! Splits the bytes of a socket into messages, without copying small ones.
//!
//! The [`Framing`] of the protocol delimits messages on the stream; the rest is the same for all.
//!
//! Two sizes matter. Many small calls (GETATTR, READ, LOOKUP) arrive in one read: they are passed
//! on as slices of the caller's receive buffer and never copied. Large calls (WRITE of 64 KiB to 1
//! MiB) span several reads. Their part in the first read is copied once into a buffer, and later
//! reads go straight into that buffer ([`Inbox::spare`]), with the receive buffer as the second
//! part of the same `readv` for bytes after the record.
//!
//! **Memory of a record.** A mark announces up to 2 GiB in four bytes. If memory were taken for
//! announced bytes, some kilobytes from a stranger would use up the budget of all connections. So
//! the buffer of a small record is at most [`RECORD_GROWTH`] times as large as the part that has
//! arrived. Of a larger record only the head is stored until the [`Receiver`] has checked it and
//! admitted the record. A record that is not admitted is skipped, so that the stream stays
//! readable. Admitted bytes are counted ([`Inbox::announced`]) apart from those that have arrived
//! ([`Inbox::held`]). The buffer then has the record's size at once: growing with the arrival would
//! cost 40 of the 240 µs of processor time that a WRITE of 1 MiB takes.
//!
//! Fragments change nothing about this: the bounds are on the record, whose fragments are gathered
//! in one buffer.
//!
//! Nothing is allocated between records, which is where an idle connection rests.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use weir_base::limits::net::{MAX_FRAGMENTS, RECORD_GROWTH};

use crate::framing::{Broken, Framing, MARK_BYTES, Piece};

/// Next action that the receiver of a record wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue with the next record.
    Continue,
    /// Pause: the connection has enough in flight.
    Pause,
    /// Close the connection: the peer violated the protocol.
    Close(&'static str),
}

/// Decision about memory for a large record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The record is admitted: take memory for it.
    Take,
    /// Not now: ask again with the next [`Inbox::accept`].
    Wait,
    /// Never: skip the record, then call [`Receiver::skipped`].
    Skip,
    /// Close the connection.
    Close(&'static str),
}

/// Receiver of a connection's records.
pub trait Receiver {
    /// Decides whether memory may be taken for a record. `bytes` are announced so far, more than
    /// [`Framing::SMALL`], and `head` is its start of at least [`Framing::HEAD`] bytes. Called
    /// again when a record in fragments turns out to be larger.
    fn admit(&mut self, head: &[u8], bytes: usize) -> Admit;

    /// Returns true if a complete record may be handed over now. If not, called again with the next
    /// [`Inbox::accept`].
    fn ready(&mut self, _message: &[u8]) -> bool {
        true
    }

    /// Handles a complete record, without its marks.
    fn record(&mut self, message: &[u8]) -> Flow;

    /// Called at the end of a record that was not admitted.
    fn skipped(&mut self) -> Flow;
}

/// A record that has begun.
#[derive(Default)]
struct Open {
    /// Bytes of the message announced so far, in all its fragments.
    announced: usize,
    /// Bytes of the current fragment that have not arrived.
    left: usize,
    /// True if the current fragment is the last.
    last: bool,
    fragments: u32,
    /// Bytes that the receiver has admitted.
    admitted: usize,
    /// True if the record is skipped.
    skip: bool,
}

impl Open {
    /// Returns true if the receiver has to admit the record before more than the head is stored.
    fn to_ask<F: Framing>(&self) -> bool {
        !self.skip && self.announced > F::SMALL && self.admitted < self.announced
    }
}

/// Position of a connection in its stream of records.
pub struct Inbox<F> {
    limit: usize,
    /// Bytes of the next mark that have arrived.
    mark: [u8; MARK_BYTES],
    marked: usize,
    open: Option<Open>,
    /// The part of the open record that has arrived, without marks.
    held: Vec<u8>,
    waits: bool,
    framing: PhantomData<fn() -> F>,
}

impl<F: Framing> Inbox<F> {
    /// Creates an inbox that refuses records longer than `limit` bytes.
    pub fn new(limit: usize) -> Inbox<F> {
        Inbox {
            limit,
            mark: [0; MARK_BYTES],
            marked: 0,
            open: None,
            held: Vec::new(),
            waits: false,
            framing: PhantomData,
        }
    }

    /// Returns the bytes of memory of the record under assembly: the part that has arrived, and a
    /// small record's room for more.
    pub fn held(&self) -> usize {
        match self.admitted() {
            0 => self.held.capacity(),
            _ => self.held.len(),
        }
    }

    fn admitted(&self) -> usize {
        let open = self.open.as_ref().filter(|open| !open.skip);
        open.map_or(0, |open| open.admitted)
    }

    /// Returns the bytes beyond [`Inbox::held`] that were admitted for the record under assembly.
    pub fn announced(&self) -> usize {
        self.admitted().saturating_sub(self.held.len())
    }

    /// Returns true if the peer has begun a record and not finished it.
    pub fn partial(&self) -> bool {
        self.marked > 0 || self.open.is_some()
    }

    /// Returns true if a record waits for the receiver.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Returns the bytes of the record under assembly that are announced and have not been stored.
    pub fn rest(&self) -> usize {
        let open = self.open.as_ref();
        open.map_or(0, |open| open.announced.saturating_sub(self.held.len()))
    }

    /// Returns the next bytes that are skipped.
    pub fn skips(&self) -> usize {
        let open = self.open.as_ref().filter(|open| open.skip);
        open.map_or(0, |open| open.left)
    }

    /// Returns the buffer for the next bytes of the record under assembly; empty if there is none.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = match &self.open {
            Some(open) if !open.skip && !self.held.is_empty() => match open.to_ask::<F>() {
                true => F::HEAD.saturating_sub(self.held.len()).min(open.left),
                false => open.left,
            },
            _ => 0,
        };
        if room > 0 && self.held.len() == self.held.capacity() {
            self.grow(0, self.held.len() + room);
        }
        let spare = self.held.spare_capacity_mut();
        let len = spare.len().min(room);
        &mut spare[..len]
    }

    /// Records that `n` bytes were written to [`Inbox::spare`].
    ///
    /// # Safety
    /// The first `n` bytes of the slice last returned by `spare` must have been initialised.
    pub unsafe fn filled(&mut self, n: usize) {
        if let Some(open) = &mut self.open {
            open.left -= n;
        }
        // SAFETY: the caller initialised these `n` bytes, and `spare` reserved them.
        unsafe { self.held.set_len(self.held.len() + n) };
    }

    /// Makes room for `more` bytes, and up to `want` in all. An admitted record gets all of it;
    /// another one gets as much as the part that will have arrived allows.
    fn grow(&mut self, more: usize, want: usize) {
        let arrived = self.held.len() + more;
        if arrived > self.held.capacity() || more == 0 {
            let to = match self.admitted() {
                0 => (arrived * RECORD_GROWTH).max(F::HEAD).min(want),
                _ => want,
            };
            self.held.reserve_exact(to.max(arrived) - self.held.len());
        }
    }

    /// Takes bytes of the next mark from `rest`. Returns the number of bytes taken, and the mark
    /// once it is complete.
    fn mark(&mut self, rest: &[u8]) -> (usize, Option<[u8; MARK_BYTES]>) {
        let mut taken = 0;
        for (to, from) in self.mark[self.marked..].iter_mut().zip(rest) {
            *to = *from;
            taken += 1;
        }
        self.marked += taken;
        if self.marked < MARK_BYTES {
            return (taken, None);
        }
        self.marked = 0;
        (taken, Some(self.mark))
    }

    /// Begins a fragment whose mark has arrived.
    fn begin(&mut self, mark: [u8; MARK_BYTES]) -> Result<(), Broken> {
        let piece = F::piece(mark)?;
        let open = self.open.get_or_insert_default();
        open.left = piece.len;
        open.last = piece.last;
        open.announced += open.left;
        open.fragments += 1;
        if open.announced > self.limit {
            return Err(Broken::TooLong(open.announced));
        }
        if open.fragments > MAX_FRAGMENTS {
            return Err(Broken::TooManyFragments);
        }
        Ok(())
    }

    /// Splits `input` into records and passes each complete one to `to`.
    ///
    /// Returns the number of consumed bytes. These are all unless `to` returned [`Flow::Pause`] or
    /// [`Admit::Wait`] or was not [ready](Receiver::ready); the caller then keeps the rest and
    /// presents it again. Must be called once after [`Inbox::filled`], with an empty `input` if
    /// nothing else arrived.
    ///
    /// # Errors
    /// [`Broken`]: the start of the next record is not known any more.
    pub fn accept(&mut self, input: &[u8], to: &mut impl Receiver) -> Result<usize, Broken> {
        let mut at = 0;
        self.waits = false;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let flow = match &mut self.open {
                None => {
                    if self.marked == 0
                        && let Some((mark, body)) = rest.split_first_chunk::<MARK_BYTES>()
                    {
                        let Piece { len, last } = F::piece(*mark)?;
                        if last
                            && len <= self.limit
                            && let Some(message) = body.get(..len)
                        {
                            if !to.ready(message) {
                                self.waits = true;
                                return Ok(at);
                            }
                            at += MARK_BYTES + len;
                            match to.record(message) {
                                Flow::Continue => continue,
                                Flow::Pause => return Ok(at),
                                Flow::Close(why) => return Err(Broken::Refused(why)),
                            }
                        }
                    }
                    let (taken, mark) = self.mark(rest);
                    at += taken;
                    match mark {
                        Some(mark) => self.begin(mark)?,
                        None => return Ok(at),
                    }
                    continue;
                }
                Some(open) if open.left == 0 && !open.last => {
                    let (taken, mark) = self.mark(rest);
                    at += taken;
                    match mark {
                        Some(mark) => self.begin(mark)?,
                        None => return Ok(at),
                    }
                    continue;
                }
                Some(open) if open.skip => {
                    let past = open.left.min(rest.len());
                    open.left -= past;
                    at += past;
                    match open.left {
                        0 if open.last => {
                            self.open = None;
                            to.skipped()
                        }
                        0 => continue,
                        _ => return Ok(at),
                    }
                }
                Some(open) => {
                    let to_ask = open.to_ask::<F>();
                    if to_ask && self.held.len() >= F::HEAD {
                        match to.admit(&self.held, open.announced) {
                            Admit::Take => open.admitted = open.announced,
                            Admit::Wait => {
                                self.waits = true;
                                return Ok(at);
                            }
                            Admit::Skip => {
                                open.skip = true;
                                self.held = Vec::new();
                            }
                            Admit::Close(why) => return Err(Broken::Refused(why)),
                        }
                        continue;
                    }
                    let want = match to_ask {
                        true => F::HEAD - self.held.len(),
                        false => open.left,
                    };
                    let take = want.min(open.left).min(rest.len());
                    open.left -= take;
                    let (left, last) = (open.left, open.last);
                    if take > 0 {
                        let want = match to_ask {
                            true => F::HEAD,
                            false => self.held.len() + take + left,
                        };
                        self.grow(take, want);
                        self.held.extend_from_slice(&rest[..take]);
                        at += take;
                    }
                    match left {
                        0 if last => {
                            if !to.ready(&self.held) {
                                self.waits = true;
                                return Ok(at);
                            }
                            let flow = to.record(&self.held);
                            self.held = Vec::new();
                            self.open = None;
                            flow
                        }
                        _ if at == input.len() && take < want => return Ok(at),
                        _ => continue,
                    }
                }
            };
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
    use crate::framing::{LAST, RecordMarks};
    use weir_base::limits::net::{RECORD_HEAD, SMALL_RECORD};

    type Inbox = super::Inbox<RecordMarks>;

    /// Large enough that a record of this size needs admission.
    const LARGE: usize = 10 * SMALL_RECORD;

    fn mark(len: usize, last: bool) -> [u8; 4] {
        (len as u32 | if last { LAST } else { 0 }).to_be_bytes()
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

    type Decide = Box<dyn FnMut(&[u8], usize) -> Admit>;

    /// Keeps the records that it gets. Returns `flow` and `admit`.
    struct RecordingReceiver {
        records: Vec<Vec<u8>>,
        skipped: usize,
        asked: Vec<usize>,
        flow: Flow,
        admit: Decide,
    }

    impl RecordingReceiver {
        fn new(admit: impl FnMut(&[u8], usize) -> Admit + 'static) -> RecordingReceiver {
            RecordingReceiver {
                records: Vec::new(),
                skipped: 0,
                asked: Vec::new(),
                flow: Flow::Continue,
                admit: Box::new(admit),
            }
        }
    }

    impl Receiver for RecordingReceiver {
        fn admit(&mut self, head: &[u8], bytes: usize) -> Admit {
            assert!(head.len() >= RECORD_HEAD && bytes > SMALL_RECORD);
            self.asked.push(bytes);
            (self.admit)(head, bytes)
        }
        fn record(&mut self, message: &[u8]) -> Flow {
            self.records.push(message.to_vec());
            self.flow
        }
        fn skipped(&mut self) -> Flow {
            self.skipped += 1;
            self.flow
        }
    }

    /// Reads `chunk` like a connection: first as much as fits into the record under assembly.
    fn read(inbox: &mut Inbox, chunk: &[u8], to: &mut RecordingReceiver) -> Result<usize, Broken> {
        let spare = inbox.spare();
        let direct = spare.len().min(chunk.len());
        for (to, from) in spare.iter_mut().zip(chunk) {
            to.write(*from);
        }
        // SAFETY: `direct` bytes were written just above.
        unsafe { inbox.filled(direct) };
        Ok(direct + inbox.accept(&chunk[direct..], to)?)
    }

    /// Every division of the stream into reads gives the same records, whether the bytes come
    /// through the receive buffer or through `spare`.
    #[test]
    fn any_cut_of_the_stream_gives_the_same_records() {
        for cut in [5, 64, 10_000] {
            let (bytes, records) = stream(&[1, 0, 40, 300, 4, 7, 0, 129], cut);
            for step in 1..bytes.len() {
                let mut inbox = Inbox::new(4096);
                let mut kept = RecordingReceiver::new(|_, _| Admit::Close("none is large"));
                for chunk in bytes.chunks(step) {
                    assert_eq!(read(&mut inbox, chunk, &mut kept), Ok(chunk.len()));
                }
                assert_eq!(kept.records, records, "cut {cut} step {step}");
                assert!(!inbox.partial());
                assert_eq!(inbox.held(), 0);
            }
        }
    }

    #[test]
    fn pause_keeps_the_rest_for_later() {
        let (bytes, records) = stream(&[10, 20, 30], 100);
        let mut inbox = Inbox::new(4096);
        let mut kept = RecordingReceiver::new(|_, _| Admit::Take);
        kept.flow = Flow::Pause;
        let (mut at, mut calls) = (0, 0);
        while at < bytes.len() {
            at += inbox.accept(&bytes[at..], &mut kept).unwrap();
            calls += 1;
        }
        assert_eq!(calls, 3);
        assert_eq!(kept.records, records);
    }

    /// Memory is bounded by the bytes that have arrived, and by the head until the record is
    /// admitted. Neither its arrival nor its fragments make a difference.
    #[test]
    fn memory_follows_what_has_arrived() {
        for cut in [100, 3000, usize::MAX] {
            let (bytes, records) = stream(&[8, LARGE + 5, 8, 2 * LARGE], cut);
            for step in [7, 700, RECORD_HEAD, RECORD_HEAD + 1, 9000, 3 * LARGE] {
                let mut inbox = Inbox::new(4 * LARGE);
                let mut refusals = 0;
                let mut kept = RecordingReceiver::new(move |_, _| {
                    refusals += 1;
                    match refusals % 3 {
                        0 => Admit::Take,
                        _ => Admit::Wait,
                    }
                });
                let (mut backlog, mut arrived) = (Vec::new(), 0);
                for chunk in bytes.chunks(step) {
                    let done = kept.records.len();
                    arrived += chunk.len();
                    backlog.extend_from_slice(chunk);
                    // Retries after a refusal, like a connection.
                    for _ in 0..3 * MAX_FRAGMENTS {
                        let used = inbox.accept(&backlog, &mut kept).unwrap();
                        backlog.drain(..used);
                        if !inbox.waits() {
                            break;
                        }
                        if cut == usize::MAX {
                            assert!(inbox.held() <= RECORD_HEAD, "step {step}");
                        }
                    }
                    assert!(backlog.is_empty());
                    if kept.records.len() > done {
                        arrived = chunk.len();
                    }
                    let most = (arrived * RECORD_GROWTH).max(RECORD_HEAD);
                    assert!(inbox.held() <= most, "cut {cut} step {step}");
                }
                assert!(kept.records == records, "cut {cut} step {step}");
                if cut == usize::MAX && step < LARGE {
                    assert_eq!(kept.asked, [[LARGE + 5; 3], [2 * LARGE; 3]].concat());
                }
                assert_eq!((inbox.held(), inbox.announced()), (0, 0));
            }
        }
    }

    /// A large record that is not admitted takes no memory, and the stream after it is understood,
    /// with fragments or without.
    #[test]
    fn what_is_not_admitted_is_read_past() {
        for cut in [100, 3000, usize::MAX] {
            let (bytes, records) = stream(&[8, LARGE, 9], cut);
            for step in [1, 7, 5000] {
                let mut inbox = Inbox::new(2 * LARGE);
                let mut kept = RecordingReceiver::new(|_, _| Admit::Skip);
                for chunk in bytes.chunks(step) {
                    assert_eq!(read(&mut inbox, chunk, &mut kept), Ok(chunk.len()));
                    let most = if cut == usize::MAX {
                        RECORD_HEAD
                    } else {
                        SMALL_RECORD
                    };
                    assert!(inbox.held() <= most && inbox.announced() == 0);
                }
                assert_eq!(kept.records, [&records[0][..], &records[2][..]]);
                assert_eq!(kept.skipped, 1, "cut {cut} step {step}");
                assert!(!inbox.partial());
            }
        }
    }

    /// The first fragments of a record may be small: the head for the decision is the record's.
    #[test]
    fn fragments_hide_nothing() {
        let mut bytes = [&mark(4, false)[..], b"head"].concat();
        bytes.extend_from_slice(&mark(LARGE, true));
        bytes.resize(bytes.len() + 4000, 7);
        let mut inbox = Inbox::new(2 * LARGE);
        let mut kept = RecordingReceiver::new(|head, bytes| {
            assert!(head.starts_with(b"head\x07") && bytes == LARGE + 4);
            Admit::Close("no")
        });
        let refused = inbox.accept(&bytes, &mut kept);
        assert_eq!(refused, Err(Broken::Refused("no")));
        assert_eq!(kept.asked, [LARGE + 4]);
    }

    #[test]
    fn what_is_agreed_to_is_promised_until_it_is_there() {
        let (bytes, _) = stream(&[LARGE], usize::MAX);
        let mut inbox = Inbox::new(LARGE);
        let mut kept = RecordingReceiver::new(|_, _| Admit::Take);
        for chunk in bytes.chunks(1500) {
            read(&mut inbox, chunk, &mut kept).unwrap();
            if !kept.asked.is_empty() && inbox.partial() {
                assert_eq!(inbox.held() + inbox.announced(), LARGE);
            }
        }
        assert_eq!((inbox.held(), inbox.announced()), (0, 0));
        assert_eq!(kept.records.len(), 1);
    }

    #[test]
    fn oversized_records_are_refused_before_any_memory_is_held() {
        let mut kept = RecordingReceiver::new(|_, _| Admit::Take);
        let mut inbox = Inbox::new(1000);
        let error = inbox.accept(&mark(1001, true), &mut kept).unwrap_err();
        assert_eq!(error, Broken::TooLong(1001));
        assert_eq!(inbox.held(), 0);

        let mut inbox = Inbox::new(1000);
        let mut bytes = mark(600, false).to_vec();
        bytes.extend_from_slice(&[0; 600]);
        bytes.extend_from_slice(&mark(401, true));
        let error = inbox.accept(&bytes, &mut kept).unwrap_err();
        assert_eq!(error, Broken::TooLong(1001));
    }

    #[test]
    fn endless_empty_fragments_end() {
        let mut inbox = Inbox::new(1000);
        let bytes: Vec<u8> = std::iter::repeat_n(mark(0, false), 5000)
            .flatten()
            .collect();
        let mut kept = RecordingReceiver::new(|_, _| Admit::Take);
        let error = inbox.accept(&bytes, &mut kept).unwrap_err();
        assert_eq!(error, Broken::TooManyFragments);
    }

    /// Admits a record at every second request.
    struct Slow {
        records: Vec<Vec<u8>>,
        asked: usize,
    }

    impl Receiver for Slow {
        fn admit(&mut self, _: &[u8], _: usize) -> Admit {
            Admit::Take
        }
        fn ready(&mut self, _: &[u8]) -> bool {
            self.asked += 1;
            self.asked.is_multiple_of(2)
        }
        fn record(&mut self, message: &[u8]) -> Flow {
            self.records.push(message.to_vec());
            Flow::Continue
        }
        fn skipped(&mut self) -> Flow {
            Flow::Continue
        }
    }

    #[test]
    fn records_that_may_not_be_handed_over_wait_and_keep_their_order() {
        let (bytes, records) = stream(&[3, 0, LARGE, 100, 17], 1000);
        for step in [1, 7, 1004, bytes.len()] {
            let mut inbox = Inbox::new(1 << 20);
            let mut slow = Slow {
                records: Vec::new(),
                asked: 0,
            };
            for chunk in bytes.chunks(step) {
                let mut rest = chunk;
                loop {
                    let used = inbox.accept(rest, &mut slow).unwrap();
                    rest = &rest[used..];
                    if !inbox.waits() {
                        break;
                    }
                }
                assert!(rest.is_empty());
            }
            assert!(slow.records == records, "steps of {step}");
            assert_eq!(slow.asked, 2 * records.len());
        }
    }
}
