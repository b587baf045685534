//! A device in a file or on a block device.
//!
//! **How I/O is done.** Directly (O_DIRECT), so that memory is not spent on the
//! kernel's page cache beside our own, and so that a write that failed is
//! reported to the caller that made it. Through io_uring where the system allows it, else on a few
//! threads; buffered where the file system refuses direct I/O. The rates of both are alike;
//! io_uring takes less of the processor for it (measured for reads of 4 KiB: 13 against 20 µs
//! alone, 3.2 against 4.3 µs with 64 in flight; `benches/io.rs`).
//!
//! **Scattered operations** go through contiguous buffers on disks that pay for each segment (`device/staging.rs`).
//!
//! **A durable device** (the intent log's) is opened O_DSYNC and carries each
//! operation out on the calling thread: its one user writes one batch at a time
//! and waits for it, so handing it to another thread and back would only add two
//! wake-ups to every acknowledgement.
//!
//! **Provisioning.** A regular file grows with fallocate(2), so that a full host
//! is noticed when space is asked for and not when it is written. For the same
//! reason discarding does nothing there: a hole might not be filled again.
//!
//! **One owner.** The file is locked (flock(2)) on the descriptor that I/O goes
//! through. The kernel keeps that descriptor open for as long as I/O of a killed
//! process is in flight. So once a process has the lock, no late write of a predecessor
//! can reach the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, fstatvfs};
use rustix::io::Errno;
pub use weir_base::limits::engine::HOST_MARGIN;
use weir_base::limits::engine::{LOCK_PAUSE, LOCK_TRIES, LOG_STAGING_BUFFERS, STAGING_BUFFERS};
use weir_base::{BLOCK_SIZE, BlockAddr};

use super::op::Op;
use super::staging::{Staging, segments_are_dear};
use super::sync::{self, ThreadEngine};
#[cfg(target_os = "linux")]
use super::uring::UringEngine;
use super::{Device, Io};
use crate::error::{IoError, IoKind};
use crate::frame::{Frame, FrameMut, FramePool};

/// How a [`FileDevice`] is opened. Lengths are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Bypass the page cache, if the file system can.
    pub direct: bool,
    /// A completed write is durable; every call blocks the calling thread.
    pub durable: bool,
    /// Change nothing, and share the file with other readers.
    pub read_only: bool,
    /// Use io_uring, if the system can.
    pub uring: bool,
    /// The file is created if it is missing, and provisioned to this length if it
    /// is shorter; `None`: it must exist, and stays as it is.
    pub create_len: Option<u64>,
    /// It never grows beyond this.
    pub max_len: u64,
}

impl FileOptions {
    /// For an aggregate's data: direct, through io_uring, durable after a flush.
    pub fn data(max_len: u64) -> FileOptions {
        FileOptions {
            direct: true,
            durable: false,
            read_only: false,
            uring: true,
            create_len: None,
            max_len,
        }
    }

    /// For an intent log: durable, of fixed length.
    pub fn log() -> FileOptions {
        FileOptions {
            durable: true,
            ..FileOptions::data(u64::MAX)
        }
    }

    /// The file is made, or made longer, if need be.
    #[must_use]
    pub fn create(self, blocks: u64) -> FileOptions {
        FileOptions {
            create_len: Some(blocks),
            ..self
        }
    }

    /// A log is written one batch at a time.
    fn staging_buffers(&self) -> usize {
        if self.durable {
            LOG_STAGING_BUFFERS
        } else {
            STAGING_BUFFERS
        }
    }

    /// Opens without writing, shared with other readers; the file is not created.
    #[must_use]
    pub fn read_only(self) -> FileOptions {
        FileOptions {
            read_only: true,
            create_len: None,
            ..self
        }
    }
}

enum Engine {
    Caller,
    Threads(ThreadEngine),
    #[cfg(target_os = "linux")]
    Uring(UringEngine),
}

/// A [`Device`] in a file or on a block device. Dropping it finishes what was
/// started and ends its threads.
pub struct FileDevice {
    engine: Engine,
    file: Arc<File>,
    staging: Arc<Staging>,
    /// Blocks that can be used now.
    length: AtomicU64,
    max_len: u64,
    block_device: bool,
    direct: bool,
    growing: Mutex<()>,
}

impl FileDevice {
    /// Opens, and if asked for creates, the file at `path`.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has it open;
    /// [`io::ErrorKind::StorageFull`] if the host has no space for `create_len`;
    /// [`io::ErrorKind::InvalidInput`] if it is neither a file nor a block device.
    pub fn open(path: &Path, options: FileOptions) -> io::Result<FileDevice> {
        Self::open_with(path, options, |_| Staging::default())
    }

    /// As [`FileDevice::open`]. On a disk that pays for each segment, frames of `pool` are the buffers that scattered
    /// operations go through.
    ///
    /// # Errors
    /// As there.
    pub fn open_staged(
        path: &Path,
        options: FileOptions,
        pool: &Arc<FramePool>,
    ) -> io::Result<FileDevice> {
        Self::open_with(path, options, |disk| match segments_are_dear(disk) {
            true => Staging::new(pool, options.staging_buffers()),
            false => Staging::default(),
        })
    }

    fn open_with(
        path: &Path,
        options: FileOptions,
        staging: impl FnOnce(u64) -> Staging,
    ) -> io::Result<FileDevice> {
        let (file, direct) = open_file(path, options)?;
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is neither a file nor a block device", path.display()),
            ));
        }
        lock(&file, options.read_only)?;
        let block_device = kind.is_block_device();
        let bytes = if block_device {
            use std::io::Seek;
            (&file).seek(io::SeekFrom::End(0))?
        } else {
            file.metadata()?.len()
        };
        let disk = match block_device {
            true => metadata.rdev(),
            false => metadata.dev(),
        };
        let staging = if direct {
            staging(disk)
        } else {
            Staging::default()
        };
        let file = Arc::new(file);
        let staging = Arc::new(staging);
        let engine = start_engine(&file, options, &staging);
        let device = FileDevice {
            engine,
            file,
            staging,
            length: AtomicU64::new(bytes / BLOCK_SIZE as u64),
            max_len: options.max_len,
            block_device,
            direct,
            growing: Mutex::new(()),
        };
        if let Some(blocks) = options.create_len {
            if device.grow_leaving(blocks, 0)? < blocks {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if bytes == 0 && !block_device {
                // The name itself must survive.
                device.file.sync_all()?;
                if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                    File::open(folder)?.sync_all()?;
                }
            }
        }
        tracing::info!(path = %path.display(), mode = device.mode(), blocks = device.length(), "device opened");
        Ok(device)
    }

    /// How I/O is done, for people: "io_uring, direct".
    pub fn mode(&self) -> &'static str {
        match (&self.engine, self.direct) {
            #[cfg(target_os = "linux")]
            (Engine::Uring(_), true) => "io_uring, direct",
            #[cfg(target_os = "linux")]
            (Engine::Uring(_), false) => "io_uring, buffered",
            (Engine::Threads(_), true) => "threads, direct",
            (Engine::Threads(_), false) => "threads, buffered",
            (Engine::Caller, true) => "synchronous, direct",
            (Engine::Caller, false) => "synchronous, buffered",
        }
    }

    /// Byte offset of a range within the device.
    fn place(&self, kind: IoKind, addr: BlockAddr, count: u64) -> Result<u64, IoError> {
        match (addr.checked_add(count), addr.byte_offset()) {
            (Some(end), Some(offset)) if end.0 <= self.length() => Ok(offset),
            _ => {
                let e = io::Error::new(io::ErrorKind::InvalidInput, "beyond the device's end");
                Err(IoError::new(kind, addr, count, e))
            }
        }
    }

    /// Grows to `blocks`, and leaves at least `margin` bytes free on the host's file system.
    fn grow_leaving(&self, blocks: u64, margin: u64) -> io::Result<u64> {
        let _one = self.growing.lock();
        let now = self.length();
        if blocks <= now || self.block_device {
            return Ok(now);
        }
        if blocks > self.max_len {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = |blocks: u64| {
            let bytes = blocks.checked_mul(BLOCK_SIZE as u64);
            bytes
                .filter(|bytes| i64::try_from(*bytes).is_ok())
                .ok_or(io::Error::from(io::ErrorKind::StorageFull))
        };
        let (from, to) = (bytes(now)?, bytes(blocks)?);
        if margin > 0 && host_free(&self.file)? < to - from + margin {
            return Err(io::ErrorKind::StorageFull.into());
        }
        loop {
            match fallocate(&self.file, FallocateFlags::empty(), from, to - from) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => {
                    tracing::warn!("the host's file system cannot reserve space");
                    self.file.set_len(to)?;
                    break;
                }
                // What a failed call did reserve is beyond our length, and may
                // have changed the file's.
                Err(e) => {
                    self.file.set_len(from)?;
                    return Err(e.into());
                }
            }
        }
        self.length.store(blocks, Ordering::Release);
        Ok(blocks)
    }

    fn submit<T>(&self, (op, io): (Op, Io<T>)) -> Io<T> {
        match &self.engine {
            Engine::Caller => sync::run(&self.file, &self.staging, op),
            Engine::Threads(t) => t.submit(op),
            #[cfg(target_os = "linux")]
            Engine::Uring(u) => u.submit(op),
        }
        io
    }
}

fn open_file(path: &Path, options: FileOptions) -> io::Result<(File, bool)> {
    let mut how = OpenOptions::new();
    how.read(true).write(!options.read_only);
    how.create(options.create_len.is_some() && !options.read_only)
        .mode(0o600);
    let durable = if options.durable { libc::O_DSYNC } else { 0 };
    if options.direct {
        match how.custom_flags(durable | libc::O_DIRECT).open(path) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                tracing::warn!(path = %path.display(), "no direct I/O here: buffered instead");
            }
            other => return other.map(|f| (f, true)),
        }
    }
    how.custom_flags(durable).open(path).map(|f| (f, false))
}

fn lock(file: &File, shared: bool) -> io::Result<()> {
    let how = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    for tries in 0.. {
        match flock(file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if tries < LOCK_TRIES => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Bytes that the file's file system could still give.
fn host_free(file: &File) -> io::Result<u64> {
    // Saturates: numbers of the host.
    let stat = fstatvfs(file)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn start_engine(file: &Arc<File>, options: FileOptions, staging: &Arc<Staging>) -> Engine {
    if options.durable {
        return Engine::Caller;
    }
    #[cfg(target_os = "linux")]
    if options.uring {
        match UringEngine::start(Arc::clone(file), Arc::clone(staging)) {
            Ok(engine) => return Engine::Uring(engine),
            Err(e) => tracing::warn!(error = %e, "no io_uring here: threads instead"),
        }
    }
    match ThreadEngine::start(Arc::clone(file), Arc::clone(staging)) {
        Ok(engine) => Engine::Threads(engine),
        Err(e) => {
            tracing::warn!(error = %e, "no threads for the device: synchronous instead");
            Engine::Caller
        }
    }
}

impl Device for FileDevice {
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>> {
        match self.place(IoKind::Read, addr, into.len() as u64) {
            Ok(_) if into.is_empty() => Io::ready(Ok(into)),
            Ok(offset) => self.submit(Op::read(addr, offset, into)),
            Err(e) => Io::ready(Err(e)),
        }
    }

    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()> {
        match self.place(IoKind::Write, addr, from.len() as u64) {
            Ok(_) if from.is_empty() => Io::ready(Ok(())),
            Ok(offset) => self.submit(Op::write(addr, offset, from)),
            Err(e) => Io::ready(Err(e)),
        }
    }

    fn flush(&self) -> Io<()> {
        self.submit(Op::flush())
    }

    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()> {
        match self.place(IoKind::Discard, addr, count) {
            Ok(offset) if self.block_device && count > 0 => {
                self.submit(Op::discard(addr, offset, count))
            }
            Ok(_) => Io::ready(Ok(())),
            Err(e) => Io::ready(Err(e)),
        }
    }

    fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.grow_leaving(blocks, HOST_MARGIN)
    }

    fn max_length(&self) -> u64 {
        match self.block_device {
            true => self.length(),
            false => self.max_len,
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
