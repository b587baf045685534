//! The aggregate's device: five calls, in blocks of 4 KiB, that complete later.

mod completion;
mod file;
mod mem;
mod op;
mod paced;
mod staging;
mod sync;
#[cfg(target_os = "linux")]
mod uring;

use std::io;

use weir_base::BlockAddr;

pub use completion::{Completer, Io};
pub use file::{FileDevice, FileOptions, HOST_MARGIN};
pub use mem::MemDevice;
pub use paced::Pace;
pub(crate) use paced::{PacedDevice, PacedDisk};

use crate::frame::{Frame, FrameMut};

/// A device of 4 KiB blocks.
///
/// Every call starts the operation and returns a handle at once; operations in flight at the
/// same time may complete, and become durable, in any order. The buffers belong to the device
/// until the operation is complete, whether or not the handle still exists; it has released them
/// when the operation completes.
pub trait Device: Send + Sync {
    /// Reads as many blocks as `into` has frames, from `addr` on. The frames come
    /// back filled; on an error they are gone.
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>>;

    /// Writes the frames to consecutive blocks from `addr` on. The data is
    /// durable after a [`Device::flush`] that was started after this completed,
    /// or at once if the device was opened as durable.
    ///
    /// After a crash each 512-byte sector of a write that had not become durable
    /// may independently have its old or its new contents.
    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()>;

    /// Makes every write durable that completed before this call. Once a flush
    /// has failed nothing is known about those writes, and a later success means
    /// nothing: the caller must not try again.
    fn flush(&self) -> Io<()>;

    /// Discards `count` blocks from `addr` on, which are not needed. Their
    /// contents are undefined afterwards.
    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()>;

    /// Blocks that can be used now.
    fn length(&self) -> u64;

    /// Provisions blocks until at least `blocks` can be used, and returns the new length in blocks.
    /// Does nothing if there are as many already.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the host has no space or the device's
    /// maximum is reached; then the length is as before.
    fn grow(&self, blocks: u64) -> io::Result<u64>;

    /// Blocks that the device can have at most, as far as it knows itself.
    fn max_length(&self) -> u64 {
        u64::MAX
    }
}
