//! Executes operations through io_uring.
//!
//! One thread owns the ring: it alone submits and reaps. Submitting from the callers' threads would
//! save a hop. But the kernel runs a request's completion work on the thread that submitted it,
//! which would interrupt the network threads. It also cancels the requests of a thread that ends.
//!
//! Callers push to a queue and, only if the thread sleeps, wake it through an eventfd that it
//! always has a read pending on. One system call submits all requests gathered meanwhile, and waits
//! for completions.
//!
//! Sleeping without losing a wake-up: the thread announces that it will sleep, *then* checks the
//! queue once more. A caller pushes, *then* checks whether sleep was announced. Both are
//! sequentially consistent, with the queue's lock between, so one of them sees the other.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;

use super::op::{Op, Progress};
use super::staging::Staging;
use weir_base::invariant;
use weir_base::limits::engine::DEVICE_DEPTH as DEPTH;

use crate::error::IoKind;

/// `user_data` of the read on the eventfd.
const WAKE: u64 = u64::MAX;

struct UringState {
    file: Arc<File>,
    staging: Arc<Staging>,
    queue: Mutex<VecDeque<Op>>,
    asleep: AtomicBool,
    stop: AtomicBool,
    bell: OwnedFd,
}

impl UringState {
    fn ring_bell(&self) {
        // A write fails only if the counter is at its limit, and then a wake-up is already pending.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// The ring's owner. On drop it finishes every queued operation first.
pub(super) struct UringEngine {
    shared: Arc<UringState>,
    thread: Option<JoinHandle<()>>,
}

impl UringEngine {
    /// # Errors
    /// When the system has no io_uring or does not allow it.
    pub fn start(file: Arc<File>, staging: Arc<Staging>) -> io::Result<UringEngine> {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(UringState {
            file,
            staging,
            queue: Mutex::default(),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            bell,
        });
        let (ready, answer) = std::sync::mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("device".into())
            .spawn(move || {
                // The thread does little at a time, and every durable operation waits for it twice.
                weir_base::short_slice();
                // A single-issuer ring belongs to the thread that creates it.
                match build() {
                    Ok(ring) => {
                        let _ = ready.send(Ok(()));
                        Worker::new(ring, theirs).run();
                    }
                    Err(e) => {
                        let _ = ready.send(Err(e));
                    }
                }
            })?;
        let engine = UringEngine {
            shared,
            thread: Some(thread),
        };
        answer.recv().map_err(io::Error::other)??;
        Ok(engine)
    }

    pub fn submit(&self, op: Op) {
        self.shared.queue.lock().push_back(op);
        if self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.shared.ring_bell();
        }
    }
}

impl Drop for UringEngine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.ring_bell();
        if let Some(thread) = self.thread.take() {
            // This thread may have just woken the task that drops the device.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn build() -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(2 * DEPTH as u32)
        // Linux before 6.1 does not know these flags.
        .or_else(|_| IoUring::new(2 * DEPTH as u32))?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Read::CODE,
    ];
    if needed.iter().all(|code| probe.is_supported(*code)) {
        Ok(ring)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

struct Worker {
    ring: IoUring,
    shared: Arc<UringState>,
    flight: Flight,
}

/// Operations that the kernel is working on. Their buffers must not be freed before the kernel is
/// done with them, not even if this thread panics: then the process ends.
struct Flight {
    ops: Vec<Option<Op>>,
    vacant: Vec<usize>,
    count: usize,
    /// Target of the pending read on the eventfd.
    bell: Box<u64>,
    bell_pending: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.count > 0 || self.bell_pending {
            tracing::error!("cannot continue I/O: the device thread panicked; aborting");
            std::process::abort();
        }
    }
}

impl Worker {
    fn new(ring: IoUring, shared: Arc<UringState>) -> Worker {
        let flight = Flight {
            ops: (0..DEPTH).map(|_| None).collect(),
            vacant: (0..DEPTH).rev().collect(),
            count: 0,
            bell: Box::new(0),
            bell_pending: false,
        };
        Worker {
            ring,
            shared,
            flight,
        }
    }

    fn run(&mut self) {
        loop {
            let stopping = self.shared.stop.load(Ordering::SeqCst);
            if !self.flight.bell_pending && !stopping {
                self.listen();
            }
            self.take_queued();
            if stopping
                && self.flight.count == 0
                && !self.flight.bell_pending
                && self.shared.queue.lock().is_empty()
            {
                return;
            }
            self.shared.asleep.store(true, Ordering::SeqCst);
            let more = !self.flight.vacant.is_empty() && !self.shared.queue.lock().is_empty();
            let waited = if more {
                self.ring.submit()
            } else {
                self.ring.submit_and_wait(1)
            };
            self.shared.asleep.store(false, Ordering::SeqCst);
            match waited {
                Ok(_) => {}
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME)
                    ) => {}
                Err(e) => {
                    // Nothing is known about the operations in flight; see `Flight`.
                    tracing::error!(error = %e, "io_uring failed; aborting");
                    return;
                }
            }
            self.reap();
        }
    }

    fn listen(&mut self) {
        let target = std::ptr::from_mut(&mut *self.flight.bell).cast::<u8>();
        let entry = opcode::Read::new(types::Fd(self.shared.bell.as_raw_fd()), target, 8)
            .build()
            .user_data(WAKE);
        // SAFETY: the target is boxed, and lives until the read is complete, because the thread
        // does not end before (see `run`).
        self.flight.bell_pending = unsafe { self.ring.submission().push(&entry) }.is_ok();
    }

    /// Moves operations from the queue to the ring, as many as may be in flight.
    fn take_queued(&mut self) {
        while let Some(slot) = self.flight.vacant.pop() {
            let Some(mut op) = self.shared.queue.lock().pop_front() else {
                self.flight.vacant.push(slot);
                return;
            };
            self.shared.staging.lend(&mut op);
            self.flight.count += 1;
            if let Some(place) = self.flight.ops.get_mut(slot) {
                *place = Some(op);
            }
            self.push(slot);
        }
    }

    fn push(&mut self, slot: usize) {
        let Some(op) = self.flight.ops.get(slot).and_then(Option::as_ref) else {
            invariant!(
                false,
                "nothing is in flight at {slot} that could be submitted"
            );
            return;
        };
        let fd = types::Fd(self.shared.file.as_raw_fd());
        let pieces = op.pieces();
        let (at, len, offset) = (pieces.as_ptr(), pieces.len() as u32, op.offset());
        let entry: squeue::Entry = match op.kind() {
            IoKind::Read => opcode::Readv::new(fd, at, len).offset(offset).build(),
            IoKind::Write => opcode::Writev::new(fd, at, len).offset(offset).build(),
            IoKind::Flush | IoKind::Discard => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the pieces and the frames they describe belong to the operation in `flight`,
        // which keeps it until its completion was reaped.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            // The submission queue has room for twice the operations that may be in flight.
            self.finish(slot, Err(io::Error::other("the submission queue is full")));
        }
    }

    fn reap(&mut self) {
        // Collected first: completing one may push to the ring.
        let mut done: Vec<(u64, i32)> = Vec::new();
        done.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
        for (data, result) in done {
            if data == WAKE {
                self.flight.bell_pending = false;
                continue;
            }
            let slot = data as usize;
            let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            let Some(op) = self.flight.ops.get_mut(slot).and_then(Option::as_mut) else {
                invariant!(false, "what is complete at {slot} is not in flight");
                continue;
            };
            match op.advance(result) {
                Progress::Again => self.push(slot),
                Progress::Done(result) => self.finish(slot, result),
            }
        }
    }

    fn finish(&mut self, slot: usize, result: io::Result<()>) {
        let op = self.flight.ops.get_mut(slot).and_then(Option::take);
        if let Some(mut op) = op {
            self.flight.count -= 1;
            self.flight.vacant.push(slot);
            self.shared.staging.take_back(&mut op, result.is_ok());
            op.complete(result);
        }
    }
}
