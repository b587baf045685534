//! Batched direct writes: writes the data of many requests in place and makes it durable with one
//! flush.
//!
//! A flush takes about as long for one write as for a hundred, and only one at a time is in flight
//! in the device anyway. So a thread takes the gathered requests, writes them, and flushes once for
//! all of them: a *turn*. Two threads do so, and one writes while the other flushes. They do
//! nothing else, so that no flush waits for an event loop: under load that takes milliseconds.
//!
//! A turn ends for all its requests at once, and then their clients send the next. If a turn took
//! all gathered requests, the clients would soon wait for the device together, and the device for
//! them; so a turn is bounded. With two threads and turns of 4 MiB, durable writes of 256 KiB, 64
//! at a time, are 1.1 times as many as with one thread and unbounded turns. Three threads and
//! shorter turns give less.
//!
//! The blocks in flight are bounded as for a checkpoint. The device is no faster with more of them,
//! and writes of the intent log, for which clients wait, queue up behind.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use weir_base::limits::engine::{
    DIRECT_WRITE_IN_FLIGHT as IN_FLIGHT, DIRECT_WRITE_THREADS as THREADS, DIRECT_WRITE_TURN as TURN,
};
use weir_base::{BlockAddr, invariant};

use crate::device::{Completer, Device, Io};
use crate::error::{IoError, IoKind};
use crate::frame::Frame;

/// Frames for consecutive blocks.
pub type Piece = (BlockAddr, Vec<Frame>);

/// Threads that write and flush for many requests: see the module's head. Dropping it completes the
/// queued requests.
pub struct DirectWriteBatcher {
    shared: Arc<BatcherState>,
    threads: Vec<JoinHandle<()>>,
}

struct BatcherState {
    device: Arc<dyn Device>,
    queue: Mutex<Queue>,
    work: Condvar,
    /// The error of a failed flush. Locked during a flush. After a failed flush a later success
    /// proves nothing.
    failed: Mutex<Option<IoError>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    stop: bool,
}

/// The pieces of one request, and the handle that is completed when they are durable.
struct Job {
    pieces: VecDeque<Piece>,
    result: Result<(), IoError>,
    done: Completer<()>,
}

/// Creates the error for data that must not be reported as durable.
fn unwritten() -> IoError {
    let why = io::Error::other("it was not written");
    IoError::new(IoKind::Write, BlockAddr(0), 0, why)
}

/// The jobs that one flush makes durable.
#[derive(Default)]
struct Turn {
    jobs: Vec<Job>,
    /// Index of the first job with pieces left.
    next: usize,
    /// Writes in flight, each with its number of blocks and its job.
    flight: VecDeque<(Io<()>, usize, usize)>,
    in_flight: usize,
}

impl Turn {
    /// Starts as many writes as may be in flight.
    fn submit(&mut self, device: &dyn Device) {
        while let Some(job) = self.jobs.get_mut(self.next) {
            let Some((_, frames)) = job.pieces.front() else {
                self.next += 1;
                continue;
            };
            let count = frames.len();
            if self.in_flight > 0 && self.in_flight + count > IN_FLIGHT {
                return;
            }
            if let Some((addr, frames)) = job.pieces.pop_front() {
                self.in_flight += count;
                let io = device.write(addr, frames);
                self.flight.push_back((io, count, self.next));
            }
        }
    }

    /// Writes all pieces and waits for them.
    fn finish(&mut self, device: &dyn Device) {
        loop {
            self.submit(device);
            let Some((io, count, job)) = self.flight.pop_front() else {
                // All is written.
                return;
            };
            let written = io.wait();
            self.in_flight -= count;
            let Some(job) = self.jobs.get_mut(job) else {
                invariant!(false, "a write of job {job}, of {}", self.jobs.len());
                continue;
            };
            if let Err(error) = written {
                job.result = Err(error);
            }
        }
    }
}

impl DirectWriteBatcher {
    /// Starts the threads that write and flush.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(device: Arc<dyn Device>) -> io::Result<DirectWriteBatcher> {
        let shared = Arc::new(BatcherState {
            device,
            queue: Mutex::default(),
            work: Condvar::new(),
            failed: Mutex::default(),
        });
        let mut batcher = DirectWriteBatcher {
            shared,
            threads: Vec::new(),
        };
        for _ in 0..THREADS {
            let shared = Arc::clone(&batcher.shared);
            let thread = std::thread::Builder::new()
                .name("direct-write".into())
                .spawn(move || {
                    // The thread does little at a time, and clients wait for it.
                    weir_base::short_slice();
                    shared.run();
                })?;
            batcher.threads.push(thread);
        }
        Ok(batcher)
    }

    /// Writes these pieces. The handle is complete when they are durable. If a write or the flush
    /// fails, the state of all of them is unknown.
    pub fn write(&self, pieces: VecDeque<Piece>) -> Io<()> {
        let (done, io) = Io::pair();
        self.shared.queue.lock().waiting.push_back(Job {
            pieces,
            result: Ok(()),
            done,
        });
        self.shared.work.notify_one();
        io
    }
}

impl Drop for DirectWriteBatcher {
    fn drop(&mut self) {
        self.shared.queue.lock().stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // The notified waiter may have held the last reference: a thread cannot wait for
            // itself.
            if thread.thread().id() != std::thread::current().id() {
                // A panic there has ended the process, or completed every handle with an error.
                let _ = thread.join();
            }
        }
    }
}

impl BatcherState {
    fn run(&self) {
        let device = &*self.device;
        while let Some(jobs) = self.take() {
            let mut turn = Turn {
                jobs,
                ..Turn::default()
            };
            turn.finish(device);
            for job in &mut turn.jobs {
                let left = job.pieces.len();
                if !invariant!(
                    left == 0,
                    "{left} pieces are not written before their flush"
                ) {
                    job.result = Err(unwritten());
                }
            }
            let flushed = self.flush();
            for job in turn.jobs {
                job.done.complete(job.result.and(flushed.clone()));
            }
        }
    }

    /// Makes the written data durable. One flush at a time: of two at once the system may report a
    /// failure to either, and it concerns both.
    fn flush(&self) -> Result<(), IoError> {
        let mut failed = self.failed.lock();
        if let Err(error) = self.device.flush().wait() {
            failed.get_or_insert(error);
        }
        failed.clone().map_or(Ok(()), Err)
    }

    /// Returns the jobs of a turn, the oldest first; `None` if the thread is to stop.
    fn take(&self) -> Option<Vec<Job>> {
        let mut queue = self.queue.lock();
        while queue.waiting.is_empty() {
            if queue.stop {
                return None;
            }
            self.work.wait(&mut queue);
        }
        let mut blocks = 0;
        let fits = |job: &&Job| {
            blocks += job
                .pieces
                .iter()
                .map(|(_, frames)| frames.len())
                .sum::<usize>();
            blocks <= TURN
        };
        // A job larger than a turn is a turn of its own.
        let count = queue.waiting.iter().take_while(fits).count().max(1);
        Some(queue.waiting.drain(..count).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::frame::FrameMut;

    /// A call that the test completes: the first block and the number of blocks; `None` for a
    /// flush.
    type Call = (Option<(u64, usize)>, Completer<()>);

    struct ManualDevice(Mutex<Sender<Call>>);

    impl ManualDevice {
        fn tell(&self, what: Option<(u64, usize)>) -> Io<()> {
            let (done, io) = Io::pair();
            self.0.lock().send((what, done)).unwrap();
            io
        }
    }

    impl Device for ManualDevice {
        fn read(&self, _: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
            Io::ready(Ok(into))
        }
        fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
            self.tell(Some((addr.0, from.len())))
        }
        fn flush(&self) -> Io<()> {
            self.tell(None)
        }
        fn discard(&self, _: BlockAddr, _: u64) -> Io<()> {
            Io::ready(Ok(()))
        }
        fn length(&self) -> u64 {
            0
        }
        fn grow(&self, _: u64) -> io::Result<u64> {
            Ok(0)
        }
    }

    fn batcher() -> (DirectWriteBatcher, Receiver<Call>) {
        let (send, calls) = channel();
        let device = Arc::new(ManualDevice(Mutex::new(send)));
        (DirectWriteBatcher::start(device).unwrap(), calls)
    }

    fn piece(addr: u64, count: usize) -> Piece {
        (BlockAddr(addr), vec![Frame::zero(); count])
    }

    fn next(calls: &Receiver<Call>, wanted: Option<(u64, usize)>) -> Completer<()> {
        let (what, done) = calls.recv().unwrap();
        assert_eq!(what, wanted);
        done
    }

    fn error(kind: IoKind) -> IoError {
        IoError::new(kind, BlockAddr(0), 0, io::Error::other("the cable is out"))
    }

    #[test]
    fn a_flush_begins_when_all_that_it_covers_is_written() {
        let (batcher, calls) = batcher();
        let first = batcher.write([piece(0, 64), piece(64, 1)].into());
        let (a, b) = (next(&calls, Some((0, 64))), next(&calls, Some((64, 1))));
        b.complete(Ok(()));
        assert!(calls.try_recv().is_err(), "a write is still under way");
        a.complete(Ok(()));
        let flush = next(&calls, None);
        // A job submitted now needs a flush that begins later, and is written meanwhile.
        let second = batcher.write([piece(100, 1)].into());
        let written = next(&calls, Some((100, 1)));
        // One flush for both.
        let third = batcher.write([piece(200, 1)].into());
        let fourth = batcher.write([piece(300, 2)].into());
        flush.complete(Ok(()));
        first.wait().unwrap();
        next(&calls, Some((200, 1))).complete(Ok(()));
        next(&calls, Some((300, 2))).complete(Ok(()));
        next(&calls, None).complete(Ok(()));
        third.wait().unwrap();
        fourth.wait().unwrap();
        written.complete(Ok(()));
        next(&calls, None).complete(Ok(()));
        second.wait().unwrap();
        drop(batcher);
        assert!(calls.recv().is_err(), "no more flushes than needed");
    }

    #[test]
    fn a_flush_waits_for_the_one_before_it() {
        let (batcher, calls) = batcher();
        let first = batcher.write([piece(0, 1)].into());
        next(&calls, Some((0, 1))).complete(Ok(()));
        let flush = next(&calls, None);
        let second = batcher.write([piece(100, 1)].into());
        next(&calls, Some((100, 1))).complete(Ok(()));
        let beside = calls.recv_timeout(Duration::from_millis(50));
        assert!(beside.is_err(), "two flushes at once");
        flush.complete(Err(error(IoKind::Flush)));
        assert_eq!(first.wait().unwrap_err().kind, IoKind::Flush);
        next(&calls, None).complete(Ok(()));
        assert_eq!(second.wait().unwrap_err().kind, IoKind::Flush);
    }

    #[test]
    fn a_turn_is_bounded() {
        let (batcher, calls) = batcher();
        let busy = [0, 1].map(|at| {
            let io = batcher.write([piece(at, 1)].into());
            (io, next(&calls, Some((at, 1))))
        });
        let part = TURN as u64 / 2;
        let waiting: Vec<_> = [100, 10_100, 20_100]
            .map(|at| batcher.write([piece(at, part as usize)].into()))
            .into();
        let [(first, a), (second, b)] = busy;
        a.complete(Ok(()));
        next(&calls, None).complete(Ok(()));
        first.wait().unwrap();
        // Two of them fill a turn.
        next(&calls, Some((100, part as usize))).complete(Ok(()));
        next(&calls, Some((10_100, part as usize))).complete(Ok(()));
        next(&calls, None).complete(Ok(()));
        next(&calls, Some((20_100, part as usize))).complete(Ok(()));
        next(&calls, None).complete(Ok(()));
        waiting.into_iter().for_each(|io| io.wait().unwrap());
        b.complete(Ok(()));
        next(&calls, None).complete(Ok(()));
        second.wait().unwrap();
    }

    #[test]
    fn what_is_in_flight_is_bounded() {
        let (batcher, calls) = batcher();
        let pieces: VecDeque<Piece> = (0..20).map(|i| piece(i * 64, 64)).collect();
        let io = batcher.write(pieces);
        let mut flight = VecDeque::new();
        for i in 0..20 {
            if flight.len() == IN_FLIGHT / 64 {
                assert!(calls.try_recv().is_err());
                let first: Option<Completer<()>> = flight.pop_front();
                first.unwrap().complete(Ok(()));
            }
            flight.push_back(next(&calls, Some((i * 64, 64))));
        }
        flight.into_iter().for_each(|io| io.complete(Ok(())));
        next(&calls, None).complete(Ok(()));
        io.wait().unwrap();
    }

    #[test]
    fn a_failed_write_is_its_own_and_a_failed_flush_everybodys() {
        let (batcher, calls) = batcher();
        let bad = batcher.write([piece(0, 1)].into());
        next(&calls, Some((0, 1))).complete(Err(error(IoKind::Write)));
        next(&calls, None).complete(Ok(()));
        assert_eq!(bad.wait().unwrap_err().kind, IoKind::Write);
        for kind in [IoKind::Flush, IoKind::Discard] {
            let failed = batcher.write([piece(0, 1)].into());
            next(&calls, Some((0, 1))).complete(Ok(()));
            let flush = next(&calls, None);
            flush.complete(match kind {
                IoKind::Flush => Err(error(kind)),
                _ => Ok(()),
            });
            assert_eq!(failed.wait().unwrap_err().kind, IoKind::Flush, "for good");
        }
    }
}
