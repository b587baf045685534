//! One operation on a file: its buffers, its progress and its waiter. All I/O engines share it.

use std::io;
use std::sync::Arc;

use weir_base::limits::engine::DEVICE_PIECES as MAX_PIECES;
use weir_base::{BLOCK_SIZE, BlockAddr, invariant};

use super::{Completer, Io, Meter};
use crate::error::{IoError, IoKind};
use crate::frame::{Frame, FrameMut};

/// Consecutive calls without progress after which an operation fails.
const MAX_IDLE: u32 = 16;

enum Payload {
    Read(Vec<FrameMut>, Completer<Vec<FrameMut>>),
    Write(Vec<Frame>, Completer<()>),
    Bare(Completer<()>),
}

/// An operation and its buffers, which it owns until it is complete.
pub(super) struct Op {
    kind: IoKind,
    addr: BlockAddr,
    count: u64,
    /// Buffers of the transfer. Frames that are neighbours in memory form one piece.
    pieces: Vec<libc::iovec>,
    /// Number of completed pieces.
    done: usize,
    /// Byte offset of the remaining range on the device.
    offset: u64,
    idle: u32,
    payload: Payload,
    /// Staging buffers transferred in place of the frames in `payload`.
    staged: Option<Vec<FrameMut>>,
    /// The meter that the operation is counted by, and its submission in nanoseconds.
    measured: Option<(Arc<Meter>, u64)>,
}

// SAFETY: the pointers in `pieces` lead into the frames in `payload` or `staged`, which move with
// the operation and may be sent.
unsafe impl Send for Op {}

/// Progress of an operation after a call.
pub(super) enum Progress {
    Again,
    Done(io::Result<()>),
}

fn add_piece(pieces: &mut Vec<libc::iovec>, page: *mut u8) {
    if let Some(last) = pieces.last_mut()
        && last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == page
    {
        last.iov_len += BLOCK_SIZE;
        return;
    }
    pieces.push(libc::iovec {
        iov_base: page.cast(),
        iov_len: BLOCK_SIZE,
    });
}

impl Op {
    pub fn read(addr: BlockAddr, offset: u64, mut into: Vec<FrameMut>) -> (Op, Io<Vec<FrameMut>>) {
        let (done, io) = Io::pair();
        let mut pieces = Vec::new();
        for frame in &mut into {
            add_piece(&mut pieces, frame.as_mut_ptr());
        }
        let count = into.len() as u64;
        (
            Op::new(
                IoKind::Read,
                addr,
                count,
                offset,
                pieces,
                Payload::Read(into, done),
            ),
            io,
        )
    }

    pub fn write(addr: BlockAddr, offset: u64, from: Vec<Frame>) -> (Op, Io<()>) {
        let (done, io) = Io::pair();
        let mut pieces = Vec::new();
        for frame in &from {
            // The kernel only reads through this pointer.
            add_piece(&mut pieces, frame.as_ptr().cast_mut());
        }
        let count = from.len() as u64;
        (
            Op::new(
                IoKind::Write,
                addr,
                count,
                offset,
                pieces,
                Payload::Write(from, done),
            ),
            io,
        )
    }

    pub fn flush() -> (Op, Io<()>) {
        let (done, io) = Io::pair();
        (
            Op::new(
                IoKind::Flush,
                BlockAddr(0),
                0,
                0,
                Vec::new(),
                Payload::Bare(done),
            ),
            io,
        )
    }

    fn new(
        kind: IoKind,
        addr: BlockAddr,
        count: u64,
        offset: u64,
        pieces: Vec<libc::iovec>,
        payload: Payload,
    ) -> Op {
        Op {
            kind,
            addr,
            count,
            pieces,
            done: 0,
            offset,
            idle: 0,
            payload,
            staged: None,
            measured: None,
        }
    }

    /// Arranges that `meter` counts the operation, which begins now.
    pub fn measure(&mut self, meter: &Arc<Meter>) {
        self.measured = meter.current_nanos().map(|now| (Arc::clone(meter), now));
    }

    pub fn blocks(&self) -> usize {
        self.count as usize
    }

    /// Transfers the first frames of `buffers` instead of the operation's own, before anything was
    /// transferred. Data to be written is copied there.
    pub fn stage(&mut self, mut buffers: Vec<FrameMut>) {
        let blocks = self.blocks();
        invariant!(
            self.done == 0 && self.staged.is_none() && blocks <= buffers.len(),
            "{blocks} blocks are staged in {} after {} pieces",
            buffers.len(),
            self.done
        );
        if let Payload::Write(frames, _) = &self.payload {
            for (staged, frame) in buffers.iter_mut().zip(frames) {
                staged.copy_from_slice(&frame[..]);
            }
        }
        self.pieces.clear();
        for frame in buffers.iter_mut().take(blocks) {
            add_piece(&mut self.pieces, frame.as_mut_ptr());
        }
        self.staged = Some(buffers);
    }

    /// Takes the buffers of a staged operation away, after its last transfer. If the transfer was
    /// complete (`whole`), data read is copied to the read's own frames.
    pub fn unstage(&mut self, whole: bool) -> Option<Vec<FrameMut>> {
        let buffers = self.staged.take()?;
        if whole && let Payload::Read(frames, _) = &mut self.payload {
            for (frame, staged) in frames.iter_mut().zip(&buffers) {
                frame.copy_from_slice(&staged[..]);
            }
        }
        Some(buffers)
    }

    pub fn kind(&self) -> IoKind {
        self.kind
    }

    /// Returns the byte offset of the remaining range on the device.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the pieces of the next call.
    pub fn pieces(&self) -> &[libc::iovec] {
        let rest = self.pieces.get(self.done..).unwrap_or_default();
        rest.get(..MAX_PIECES).unwrap_or(rest)
    }

    /// Applies the result of a call for [`Op::pieces`].
    pub fn advance(&mut self, result: io::Result<usize>) -> Progress {
        let moved = match result {
            Ok(n) => n,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                return self.no_progress(e);
            }
            Err(e) => return Progress::Done(Err(e)),
        };
        if self.pieces.is_empty() {
            return Progress::Done(Ok(()));
        }
        // Direct I/O continues at a block boundary only.
        let mut left = moved / BLOCK_SIZE * BLOCK_SIZE;
        if left == 0 {
            let kind = if moved == 0 {
                io::ErrorKind::UnexpectedEof
            } else {
                io::ErrorKind::Other
            };
            return self.no_progress(io::Error::new(kind, "the transfer fell short"));
        }
        self.idle = 0;
        self.offset += left as u64;
        while left > 0 {
            let Some(piece) = self.pieces.get_mut(self.done) else {
                invariant!(
                    false,
                    "{left} bytes more were transferred than were asked for"
                );
                break;
            };
            let step = left.min(piece.iov_len);
            piece.iov_base = piece.iov_base.cast::<u8>().wrapping_add(step).cast();
            piece.iov_len -= step;
            left -= step;
            if piece.iov_len == 0 {
                self.done += 1;
            }
        }
        if self.done == self.pieces.len() {
            Progress::Done(Ok(()))
        } else {
            Progress::Again
        }
    }

    fn no_progress(&mut self, why: io::Error) -> Progress {
        self.idle += 1;
        if self.idle < MAX_IDLE {
            Progress::Again
        } else {
            Progress::Done(Err(why))
        }
    }

    /// Completes the waiter's handle. A writer's frames are released before that.
    pub fn complete(self, result: io::Result<()>) {
        if let Some((meter, begun)) = &self.measured {
            meter.count(self.kind, *begun);
        }
        let result = result.map_err(|e| IoError::new(self.kind, self.addr, self.count, e));
        match self.payload {
            Payload::Read(frames, done) => done.complete(result.map(|()| frames)),
            Payload::Write(frames, done) => {
                drop(frames);
                done.complete(result);
            }
            Payload::Bare(done) => done.complete(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Class, FramePool};

    fn reading(frames: usize) -> (Op, Io<Vec<FrameMut>>) {
        let pool = FramePool::new(frames).unwrap();
        let mut into: Vec<_> = (0..frames)
            .map(|_| pool.alloc(Class::Cp).unwrap())
            .collect();
        // Frames apart in memory, so that each is a piece.
        into.sort_by_key(|f| std::cmp::Reverse(f.as_ptr() as usize));
        Op::read(BlockAddr(10), 40960, into)
    }

    #[test]
    fn short_transfers_go_on_where_they_stopped() {
        let (mut op, io) = reading(3);
        assert_eq!(op.pieces().len(), 3);
        assert!(matches!(op.advance(Ok(4096 + 512)), Progress::Again));
        assert_eq!((op.pieces().len(), op.offset()), (2, 45056));
        assert!(matches!(
            op.advance(Err(io::ErrorKind::Interrupted.into())),
            Progress::Again
        ));
        assert!(matches!(op.advance(Ok(8192)), Progress::Done(Ok(()))));
        op.complete(Ok(()));
        assert_eq!(io.wait().unwrap().len(), 3);
    }

    #[test]
    fn no_progress_is_an_error_in_the_end() {
        let (mut op, _io) = reading(1);
        let mut calls = 0;
        let e = loop {
            calls += 1;
            match op.advance(Ok(0)) {
                Progress::Again => {}
                Progress::Done(r) => break r.unwrap_err(),
            }
        };
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(calls, MAX_IDLE);
    }

    #[test]
    fn neighbours_in_memory_are_one_piece_and_long_vectors_are_cut() {
        let pool = FramePool::new(4).unwrap();
        let mut run: Vec<_> = (0..4).map(|_| pool.alloc(Class::Cp).unwrap()).collect();
        run.sort_by_key(|f| f.as_ptr() as usize);
        let (op, _io) = Op::write(
            BlockAddr(0),
            0,
            run.into_iter().map(FrameMut::freeze).collect(),
        );
        assert_eq!(op.pieces().len(), 1);
        assert_eq!(op.pieces()[0].iov_len, 4 * BLOCK_SIZE);
        let (mut op, io) = Op::write(BlockAddr(0), 0, vec![Frame::zero(); 1500]);
        assert_eq!(op.pieces().len(), 1024);
        assert!(matches!(op.advance(Ok(1024 * BLOCK_SIZE)), Progress::Again));
        assert_eq!(op.pieces().len(), 476);
        assert!(matches!(
            op.advance(Ok(476 * BLOCK_SIZE)),
            Progress::Done(Ok(()))
        ));
        op.complete(Err(io::ErrorKind::StorageFull.into()));
        let e = io.wait().unwrap_err();
        assert_eq!(
            (e.kind, e.addr, e.count),
            (IoKind::Write, BlockAddr(0), 1500)
        );
    }
}
