//! Executes operations with blocking system calls: on the caller's thread, or on a pool of threads
//! where io_uring is unavailable.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use weir_base::limits::engine::DEVICE_THREADS as THREADS;

use parking_lot::{Condvar, Mutex};

use super::op::{Op, Progress};
use super::staging::Staging;
use crate::error::IoKind;

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Executes `op` and notifies its waiter.
pub(super) fn run(file: &File, staging: &Staging, mut op: Op) {
    staging.lend(&mut op);
    let result = loop {
        match op.advance(step(file, &op)) {
            Progress::Again => {}
            Progress::Done(result) => break result,
        }
    };
    staging.take_back(&mut op, result.is_ok());
    op.complete(result);
}

fn step(file: &File, op: &Op) -> io::Result<usize> {
    let fd = file.as_raw_fd();
    let offset = i64::try_from(op.offset()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let pieces = op.pieces();
    match op.kind() {
        IoKind::Read => {
            // SAFETY: the pieces describe frames that `op` owns uniquely, and there are at most
            // UIO_MAXIOV of them.
            check(unsafe { libc::preadv(fd, pieces.as_ptr(), pieces.len() as i32, offset) })
        }
        IoKind::Write => {
            // SAFETY: as above; the frames are only read.
            check(unsafe { libc::pwritev(fd, pieces.as_ptr(), pieces.len() as i32, offset) })
        }
        // A discard is not an operation of an engine.
        IoKind::Flush | IoKind::Discard => file.sync_data().map(|()| 0),
    }
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Op>,
    stop: bool,
}

struct WorkerState {
    file: Arc<File>,
    staging: Arc<Staging>,
    jobs: Mutex<Jobs>,
    work: Condvar,
}

/// Threads that execute operations. On drop they finish the queued ones.
pub(super) struct ThreadEngine {
    shared: Arc<WorkerState>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadEngine {
    pub fn start(file: Arc<File>, staging: Arc<Staging>) -> io::Result<ThreadEngine> {
        let shared = Arc::new(WorkerState {
            file,
            staging,
            jobs: Mutex::default(),
            work: Condvar::new(),
        });
        let mut engine = ThreadEngine {
            shared,
            threads: Vec::new(),
        };
        for n in 0..THREADS {
            let shared = Arc::clone(&engine.shared);
            let thread = std::thread::Builder::new()
                .name(format!("device-{n}"))
                .spawn(move || work(&shared))?;
            engine.threads.push(thread);
        }
        Ok(engine)
    }

    pub fn submit(&self, op: Op) {
        self.shared.jobs.lock().queue.push_back(op);
        self.shared.work.notify_one();
    }
}

fn work(shared: &WorkerState) {
    loop {
        let mut jobs = shared.jobs.lock();
        let op = loop {
            if let Some(op) = jobs.queue.pop_front() {
                break op;
            }
            if jobs.stop {
                return;
            }
            shared.work.wait(&mut jobs);
        };
        drop(jobs);
        run(&shared.file, &shared.staging, op);
    }
}

impl Drop for ThreadEngine {
    fn drop(&mut self) {
        self.shared.jobs.lock().stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // One of these threads may have just woken the task that drops the device.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
