//! A device in a regular file or on a block device.
//!
//! **I/O.** I/O is direct (O_DIRECT), so that no memory goes to the kernel's page cache beside our
//! own, and a failed write is reported to its caller. It goes through io_uring where the system
//! allows it, else through a few threads. Where the file system refuses direct I/O it is buffered.
//! The rates of io_uring and threads are alike. io_uring takes less processor time: for reads of 4
//! KiB, 13 against 20 µs alone, and 3.2 against 4.3 µs with 64 in flight (`benches/io.rs`).
//!
//! **Scattered operations** go through contiguous buffers on disks that pay for each segment
//! (`device/staging.rs`).
//!
//! **A durable device** (the intent log's) is opened O_DSYNC and carries each operation out on the
//! calling thread. Its one user writes one batch at a time and waits for it. Another thread would
//! only add two wake-ups to every acknowledgement.
//!
//! **Provisioning.** A regular file grows with fallocate(2), so that a full host is noticed when
//! space is requested and not when it is written. Discarding makes a hole in it, which has to be
//! provisioned in the same way before it is written ([`Discards::Deprovision`]). Discards run on
//! the calling thread: file systems hold all I/O to a file while they make a hole in it.
//!
//! **One owner.** The file is locked (flock(2)) on the descriptor used for I/O. The kernel keeps
//! that descriptor open for as long as I/O of a killed process is in flight. So once a process has
//! the lock, no late write of a predecessor can reach the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock, fstatvfs};
use rustix::io::Errno;
pub use weir_base::limits::engine::HOST_MARGIN;
use weir_base::limits::engine::{LOCK_PAUSE, LOCK_TRIES, LOG_STAGING_BUFFERS, STAGING_BUFFERS};
use weir_base::{BLOCK_SIZE, BlockAddr};

use super::op::Op;
use super::staging::{Staging, segments_are_dear};
use super::sync::{self, ThreadEngine};
#[cfg(target_os = "linux")]
use super::uring::UringEngine;
use super::{Device, Discards, Io, Meter, host_space};
use crate::error::{IoError, IoKind};
use crate::frame::{Frame, FrameMut, FramePool};

/// Options for opening a [`FileDevice`]. Lengths are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Bypass the page cache, if the file system supports it.
    pub direct: bool,
    /// A completed write is durable; every call blocks the calling thread.
    pub durable: bool,
    /// Open without changing anything, and share the file with other readers.
    pub read_only: bool,
    /// Use io_uring, if the system supports it.
    pub uring: bool,
    /// Minimum length. A missing file is created, and a shorter one is provisioned to this length.
    /// `None`: the file must exist, and is left as it is.
    pub create_len: Option<u64>,
    /// Maximum length that the file grows to.
    pub max_len: u64,
}

impl FileOptions {
    /// Returns the options for an aggregate's data: direct, through io_uring, durable after a
    /// flush.
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

    /// Returns the options for an intent log: durable, of fixed length.
    pub fn log() -> FileOptions {
        FileOptions {
            durable: true,
            ..FileOptions::data(u64::MAX)
        }
    }

    /// Creates the file, or makes it longer, if necessary.
    #[must_use]
    pub fn create(self, blocks: u64) -> FileOptions {
        FileOptions {
            create_len: Some(blocks),
            ..self
        }
    }

    /// Returns the number of staging buffers. A log is written one batch at a time.
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

/// A [`Device`] in a file or on a block device. Dropping it completes the started operations and
/// ends its threads.
pub struct FileDevice {
    engine: Engine,
    file: Arc<File>,
    staging: Arc<Staging>,
    /// Blocks that can be used now.
    length: AtomicU64,
    max_len: u64,
    block_device: bool,
    discards: Discards,
    direct: bool,
    growing: Mutex<()>,
    meter: Arc<Meter>,
}

impl FileDevice {
    /// Opens, and if requested creates, the file at `path`.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has it open; [`io::ErrorKind::StorageFull`]
    /// if the host has no space for `create_len`; [`io::ErrorKind::InvalidInput`] if it is neither
    /// a file nor a block device.
    pub fn open(path: &Path, options: FileOptions) -> io::Result<FileDevice> {
        Self::open_with(path, options, |_| Staging::default())
    }

    /// Like [`FileDevice::open`]. On a disk where each segment of a request is costly, frames of
    /// `pool` serve as staging buffers for scattered operations.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
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
        let mut device = FileDevice {
            engine,
            file,
            staging,
            length: AtomicU64::new(bytes / BLOCK_SIZE as u64),
            max_len: options.max_len,
            block_device,
            discards: Discards::Never,
            direct,
            growing: Mutex::new(()),
            meter: Arc::default(),
        };
        if let Some(blocks) = options.create_len {
            if device.grow_leaving(blocks, 0)? < blocks {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if bytes == 0 && !block_device {
                // The directory entry must survive a crash as well.
                device.file.sync_all()?;
                if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                    File::open(folder)?.sync_all()?;
                }
            }
        }
        // A log is used round and round.
        if !options.durable && !options.read_only && device.length() > 0 {
            device.discards = match block_device {
                true => Discards::Hint,
                false if host_space::can_give_back(&device.file) => Discards::Deprovision,
                false => Discards::Never,
            };
            if device.discards == Discards::Never {
                tracing::info!(path = %path.display(), "cannot free parts of the device: not supported by the host's file system; the device keeps its free space");
            }
        }
        tracing::info!(path = %path.display(), mode = device.mode(), blocks = device.length(), "device opened");
        Ok(device)
    }

    /// Returns the mode of I/O, for people: "io_uring, direct".
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

    /// Returns the byte offset of a range within the device.
    fn place(&self, kind: IoKind, addr: BlockAddr, count: u64) -> Result<u64, IoError> {
        match (addr.checked_add(count), addr.byte_offset()) {
            (Some(end), Some(offset)) if end.0 <= self.length() => Ok(offset),
            _ => {
                let e = io::Error::new(io::ErrorKind::InvalidInput, "beyond the device's end");
                Err(IoError::new(kind, addr, count, e))
            }
        }
    }

    /// Grows to `blocks`, if at least `margin` bytes remain free on the host's file system.
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
        self.leave_host(to - from, margin)?;
        match host_space::provision(&self.file, from, to - from) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(
                    "cannot reserve device growth: the host's file system does not support fallocate"
                );
                self.file.set_len(to)?;
            }
            // Blocks that the failed call reserved are beyond the device's length, and may have
            // changed the file's.
            Err(e) => {
                self.file.set_len(from)?;
                return Err(e);
            }
        }
        self.length.store(blocks, Ordering::Release);
        Ok(blocks)
    }

    /// Refuses to take `bytes` from the host if less than `margin` would be left.
    fn leave_host(&self, bytes: u64, margin: u64) -> io::Result<()> {
        if margin > 0 && host_free(&self.file)? < bytes + margin {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn submit<T>(&self, (mut op, io): (Op, Io<T>)) -> Io<T> {
        op.measure(&self.meter);
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
                tracing::warn!(path = %path.display(), "cannot use direct I/O: refused by the file system; using buffered I/O");
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

/// Returns the number of free bytes of the file's file system.
fn host_free(file: &File) -> io::Result<u64> {
    // Saturates: the numbers come from the host.
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
            Err(e) => {
                tracing::warn!(error = %e, "cannot start io_uring; using threads for device I/O")
            }
        }
    }
    match ThreadEngine::start(Arc::clone(file), Arc::clone(staging)) {
        Ok(engine) => Engine::Threads(engine),
        Err(e) => {
            tracing::warn!(error = %e, "cannot start device threads; using synchronous I/O");
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
        let offset = match self.place(IoKind::Discard, addr, count) {
            Ok(offset) => offset,
            Err(e) => return Io::ready(Err(e)),
        };
        let bytes = count * BLOCK_SIZE as u64;
        let done = match self.discards {
            _ if count == 0 => Ok(()),
            Discards::Never => Ok(()),
            Discards::Deprovision => host_space::punch(&self.file, offset, bytes),
            Discards::Hint => host_space::discard(&self.file, offset, bytes),
        };
        Io::ready(done.map_err(|e| IoError::new(IoKind::Discard, addr, count, e)))
    }

    fn discards(&self) -> Discards {
        self.discards
    }

    fn provision(&self, addr: BlockAddr, count: u64) -> io::Result<()> {
        let offset = self.place(IoKind::Write, addr, count);
        let offset = offset.map_err(|e| io::Error::new(e.source.kind(), e))?;
        let bytes = count * BLOCK_SIZE as u64;
        if self.discards == Discards::Deprovision && count > 0 {
            self.leave_host(bytes, HOST_MARGIN)?;
            host_space::provision(&self.file, offset, bytes)?;
        }
        Ok(())
    }

    fn find_discarded(&self, found: &mut dyn FnMut(BlockAddr, u64)) -> io::Result<()> {
        let bytes = self.length() * BLOCK_SIZE as u64;
        if self.discards != Discards::Deprovision {
            return Ok(());
        }
        host_space::find_holes(&self.file, bytes, &mut |offset, bytes| {
            let first = offset / BLOCK_SIZE as u64;
            let end = (offset + bytes).div_ceil(BLOCK_SIZE as u64);
            found(BlockAddr(first), end - first);
        })
    }

    fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    fn grow(&self, blocks: u64) -> io::Result<u64> {
        self.grow_leaving(blocks, HOST_MARGIN)
    }

    fn host_free(&self) -> Option<u64> {
        if self.block_device {
            return None;
        }
        // Saturates: the host may have less than the margin.
        let bytes = host_free(&self.file).ok()?.saturating_sub(HOST_MARGIN);
        Some(bytes / BLOCK_SIZE as u64)
    }

    fn meter(&self) -> Option<&Meter> {
        Some(&self.meter)
    }

    fn max_length(&self) -> u64 {
        match self.block_device {
            true => self.length(),
            false => self.max_len,
        }
    }
}

#[cfg(test)]
mod tests;
