//! Devices whose blocks are in objects.
//!
//! An operation is cut at the borders of objects, and complete when all of its pieces are. A
//! completed write is durable. Changes of data wait until earlier owners are shut out.
//!
//! Only a new length is not durable at once, so that growing never
//! blocks: a flush waits for it, and each superblock or record that counts on it follows a flush.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::limits::rados::{LONGEST_WRITE, OBJECT_BLOCKS, WRITES_IN_FLIGHT};
use weir_base::{BLOCK_SIZE, BlockAddr};
use weir_rados::{Objects, Step};
use weir_store::device::{Completer, Hints};
use weir_store::{Device, Discards, Frame, FrameMut, Io, IoError, IoKind, Meter};

use crate::layout::{Kind, Piece, pieces};
use crate::session::Session;

/// A device in objects.
pub struct ObjectDevice {
    kind: Kind,
    objects: Arc<dyn Objects>,
    session: Arc<Session>,
    length: AtomicU64,
    max: u64,
    /// Held while the device grows.
    growth: Arc<Mutex<Growth>>,
    meter: Arc<Meter>,
}

/// Lengths that are being recorded.
#[derive(Default)]
struct Growth {
    pending: usize,
    failed: bool,
    /// Flushes that wait for all of them.
    waiting: Vec<Completer<()>>,
}

impl Growth {
    fn end(&mut self, session: &Session, recorded: io::Result<()>) {
        // Saturates: each ends once.
        self.pending = self.pending.saturating_sub(1);
        if let Err(error) = recorded {
            let error = session.judge(error, true);
            tracing::error!("cannot record the length of the device: {error}");
            self.failed = true;
        }
        if self.pending == 0 {
            let failed = self.failed;
            self.waiting.drain(..).for_each(|waiting| {
                waiting.complete(match failed {
                    true => Err(unrecorded()),
                    false => Ok(()),
                });
            });
        }
    }
}

/// Error of flushes after a length could not be recorded.
fn unrecorded() -> IoError {
    let why = "the length of the device is not recorded";
    IoError::new(IoKind::Flush, BlockAddr(0), 0, io::Error::other(why))
}

/// An operation whose pieces are in flight.
struct Operation<T> {
    kind: IoKind,
    addr: BlockAddr,
    count: u64,
    session: Arc<Session>,
    meter: Arc<Meter>,
    /// Time of the submission in nanoseconds, if it is measured.
    begun: Option<u64>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// Pieces in flight.
    left: usize,
    /// The first failure.
    failed: Option<io::Error>,
    result: T,
    done: Option<Completer<T>>,
}

impl<T: Default> Operation<T> {
    /// Ends a piece; `note` puts what it brought into the result. The last one completes the
    /// operation.
    fn end(&self, piece: io::Result<()>, guarded: bool, note: impl FnOnce(&mut T)) {
        let piece = piece.map_err(|error| self.session.judge(error, guarded));
        let mut state = self.state.lock();
        match piece {
            Ok(()) => note(&mut state.result),
            // The first failure counts.
            Err(error) => drop(state.failed.get_or_insert(error)),
        }
        // Saturates: each piece ends once.
        state.left = state.left.saturating_sub(1);
        if state.left > 0 {
            return;
        }
        let result = std::mem::take(&mut state.result);
        let (failed, done) = (state.failed.take(), state.done.take());
        drop(state);
        if let Some(begun) = self.begun {
            self.meter.count(self.kind, begun);
        }
        if let Some(done) = done {
            done.complete(match failed {
                None => Ok(result),
                Some(error) => Err(IoError::new(self.kind, self.addr, self.count, error)),
            });
        }
    }
}

impl ObjectDevice {
    pub(crate) fn new(
        kind: Kind,
        objects: Arc<dyn Objects>,
        session: Arc<Session>,
        length: u64,
        max: u64,
    ) -> ObjectDevice {
        ObjectDevice {
            kind,
            objects,
            session,
            length: AtomicU64::new(length),
            max,
            growth: Arc::default(),
            meter: Arc::default(),
        }
    }

    fn check(&self, kind: IoKind, addr: BlockAddr, count: u64) -> Result<(), IoError> {
        let end = addr.checked_add(count);
        let within = match end {
            Some(end) if end.0 <= self.length() => self.session.check(),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        within.map_err(|error| IoError::new(kind, addr, count, error))
    }

    /// Sends a change: to the log at once, to the data as soon as earlier owners cannot write it.
    fn change(
        &self,
        operation: Arc<Operation<()>>,
        pieces: Vec<Piece>,
        send: impl FnOnce(&Arc<Operation<()>>, Vec<Piece>) + Send + 'static,
    ) {
        if self.kind == Kind::Log || self.session.may_write_data() {
            return send(&operation, pieces);
        }
        let begin = move |allowed: io::Result<()>| match allowed {
            Ok(()) => send(&operation, pieces),
            Err(error) => {
                let code = error.raw_os_error().unwrap_or(libc::EIO);
                for _ in pieces {
                    operation.end(Err(io::Error::from_raw_os_error(code)), false, |()| {});
                }
            }
        };
        self.session.when_data_may_be_written(Box::new(begin));
    }

    fn begin<T>(
        &self,
        kind: IoKind,
        (addr, count): (BlockAddr, u64),
        pieces: usize,
        result: T,
    ) -> (Arc<Operation<T>>, Io<T>) {
        let (done, io) = Io::pair();
        let operation = Operation {
            kind,
            addr,
            count,
            session: Arc::clone(&self.session),
            meter: Arc::clone(&self.meter),
            begun: self.meter.current_nanos(),
            state: Mutex::new(State {
                left: pieces,
                failed: None,
                result,
                done: Some(done),
            }),
        };
        (Arc::new(operation), io)
    }
}

/// Writes blocks to their objects, all at once.
fn send_writes(
    objects: &dyn Objects,
    operation: &Arc<Operation<()>>,
    pieces: Vec<Piece>,
    from: Vec<Frame>,
) {
    let mut frames = from.into_iter();
    for piece in pieces {
        // The library takes a contiguous buffer, and copies it. Each frame is free again once
        // it is in there.
        let mut bytes = Vec::with_capacity(piece.count as usize * BLOCK_SIZE);
        for frame in frames.by_ref().take(piece.count as usize) {
            bytes.extend_from_slice(&frame[..]);
        }
        let offset = piece.block * BLOCK_SIZE as u64;
        let write = Step::Write { offset, bytes };
        let guarded = piece.guarded;
        let steps = match guarded {
            true => vec![operation.session.guard(), write],
            false => vec![write],
        };
        let operation = Arc::clone(operation);
        let done = Box::new(move |written| operation.end(written, guarded, |()| {}));
        objects.operate(&piece.object, steps, done);
    }
}

/// Removes objects, all at once.
fn send_removals(objects: &dyn Objects, operation: &Arc<Operation<()>>, pieces: Vec<Piece>) {
    for piece in pieces {
        let operation = Arc::clone(operation);
        let done = Box::new(move |removed: io::Result<()>| {
            let removed = match removed {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                removed => removed,
            };
            operation.end(removed, false, |()| {});
        });
        objects.operate(&piece.object, vec![Step::Remove], done);
    }
}

/// Fills frames with what was read, and with zeroes where nothing was written.
fn fill(frames: &mut [FrameMut], bytes: &[u8]) {
    let mut rest = bytes;
    for frame in frames {
        let (part, left) = rest.split_at(rest.len().min(BLOCK_SIZE));
        let (read, unread) = frame.split_at_mut(part.len());
        read.copy_from_slice(part);
        unread.fill(0);
        rest = left;
    }
}

impl Device for ObjectDevice {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        let count = into.len() as u64;
        if let Err(error) = self.check(IoKind::Read, addr, count) {
            return Io::ready(Err(error));
        }
        let pieces = pieces(self.kind, addr, count);
        if pieces.is_empty() {
            return Io::ready(Ok(into));
        }
        let range = (addr, count);
        let (operation, io) = self.begin(IoKind::Read, range, pieces.len(), into);
        let mut from = 0;
        for piece in pieces {
            let operation = Arc::clone(&operation);
            let (first, blocks) = (from, piece.count as usize);
            from += blocks;
            let done = Box::new(move |read: io::Result<Vec<u8>>| {
                let read = match read {
                    // Nothing was ever written there.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
                    read => read,
                };
                let (result, bytes) = match read {
                    Ok(bytes) => (Ok(()), bytes),
                    Err(error) => (Err(error), Vec::new()),
                };
                operation.end(result, false, |frames| {
                    let frames = frames.get_mut(first..first + blocks);
                    fill(frames.unwrap_or_default(), &bytes);
                });
            });
            let offset = piece.block * BLOCK_SIZE as u64;
            self.objects
                .read(&piece.object, offset, blocks * BLOCK_SIZE, done);
        }
        io
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        let count = from.len() as u64;
        if let Err(error) = self.check(IoKind::Write, addr, count) {
            return Io::ready(Err(error));
        }
        let pieces = pieces(self.kind, addr, count);
        if pieces.is_empty() {
            return Io::ready(Ok(()));
        }
        let range = (addr, count);
        let (operation, io) = self.begin(IoKind::Write, range, pieces.len(), ());
        let objects = Arc::clone(&self.objects);
        self.change(operation, pieces, move |operation, pieces| {
            send_writes(&*objects, operation, pieces, from);
        });
        io
    }

    fn flush(&self) -> Io<()> {
        // A server that lost the aggregate must not go on.
        if let Err(error) = self.session.check() {
            return Io::ready(Err(IoError::new(IoKind::Flush, BlockAddr(0), 0, error)));
        }
        let mut growth = self.growth.lock();
        if growth.failed {
            return Io::ready(Err(unrecorded()));
        }
        if growth.pending == 0 {
            return Io::ready(Ok(()));
        }
        let (done, io) = Io::pair();
        growth.waiting.push(done);
        io
    }

    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        if let Err(error) = self.check(IoKind::Discard, addr, count) {
            return Io::ready(Err(error));
        }
        // Whole objects only: others are written again, and their parts are not worth a request.
        let whole = |piece: &Piece| piece.count == OBJECT_BLOCKS && !piece.guarded;
        let mut pieces = pieces(self.kind, addr, count);
        pieces.retain(whole);
        if pieces.is_empty() {
            return Io::ready(Ok(()));
        }
        let range = (addr, count);
        let (operation, io) = self.begin(IoKind::Discard, range, pieces.len(), ());
        let objects = Arc::clone(&self.objects);
        self.change(operation, pieces, move |operation, pieces| {
            send_removals(&*objects, operation, pieces);
        });
        io
    }

    fn discards(&self) -> Discards {
        match self.kind {
            Kind::Data => Discards::Hint,
            Kind::Log => Discards::Never,
        }
    }

    fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        let mut growth = self.growth.lock();
        let length = self.length();
        if blocks <= length {
            return Ok(length);
        }
        if blocks > self.max {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.session.check_room(blocks - length)?;
        growth.pending += 1;
        self.length.store(blocks, Ordering::Release);
        drop(growth);
        let (growth, session) = (Arc::clone(&self.growth), Arc::clone(&self.session));
        let done = Box::new(move |recorded| growth.lock().end(&session, recorded));
        self.session.record_length(blocks, done);
        Ok(blocks)
    }

    fn hints(&self) -> Hints {
        Hints {
            longest_write: LONGEST_WRITE,
            writes_in_flight: WRITES_IN_FLIGHT,
            prepared: true,
            thin: true,
        }
    }

    fn host_free(&self) -> Option<u64> {
        self.session.free()
    }

    fn max_length(&self) -> u64 {
        self.max
    }

    fn meter(&self) -> Option<&Meter> {
        Some(&self.meter)
    }
}
