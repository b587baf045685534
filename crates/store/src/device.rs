//! The aggregate's device: five asynchronous calls, in blocks of 4 KiB.

mod completion;
mod file;
mod host_space;
mod mem;
mod meter;
mod op;
mod paced;
mod staging;
mod sync;
#[cfg(target_os = "linux")]
mod uring;

use std::io;

use weir_base::BlockAddr;
use weir_base::limits::engine::{CHECKPOINT_IN_FLIGHT, NODE_WRITE};

pub use completion::{Completer, Io};
pub use file::{FileDevice, FileOptions, HOST_MARGIN};
pub use mem::MemDevice;
pub use meter::{MEASURED, Meter};
pub use paced::Pace;
pub(crate) use paced::{PacedDevice, PacedDisk};

use crate::frame::{Frame, FrameMut};

/// Effect of [`Device::discard`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discards {
    /// The device keeps its space. Nothing is to be discarded.
    Never,
    /// The space goes back to the host. The blocks must be [provisioned](Device::provision) before
    /// they are written again.
    Deprovision,
    /// The device learns that the blocks are unused. They can be written again at any time.
    Hint,
}

/// Properties of a device that its users adapt to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints {
    /// Maximum number of blocks in one write of a checkpoint; longer ones gain nothing.
    pub longest_write: usize,
    /// Maximum number of blocks that a checkpoint has in flight; more gains nothing.
    pub writes_in_flight: usize,
    /// True if the first write to a block costs no more than later ones: a log on the device needs
    /// no preparation.
    pub prepared: bool,
    /// True if blocks that were not written take no space of the host: what the host has left
    /// bounds the blocks that can be used, however long the device is.
    pub thin: bool,
}

impl Hints {
    /// Hints for disks, and files on them.
    pub const DISK: Hints = Hints {
        longest_write: NODE_WRITE,
        writes_in_flight: CHECKPOINT_IN_FLIGHT,
        prepared: false,
        thin: false,
    };
}

/// A device of 4 KiB blocks.
///
/// Every call starts the operation and returns a handle at once. Operations in flight at the same
/// time may complete, and become durable, in any order. The device owns the buffers until the
/// operation is complete, even if the handle is dropped, and releases them on completion.
pub trait Device: Send + Sync {
    /// Reads as many blocks as `into` has frames, from `addr` on. The operation returns the filled
    /// frames; on an error they are gone.
    fn read(&self, addr: BlockAddr, into: Vec<FrameMut>) -> Io<Vec<FrameMut>>;

    /// Writes the frames to consecutive blocks from `addr` on. The data is durable after a
    /// [`Device::flush`] that starts after this write has completed. On a device opened as durable,
    /// it is durable on completion.
    ///
    /// After a crash each 512-byte sector of a write that had not become durable may independently
    /// have its old or its new contents.
    fn write(&self, addr: BlockAddr, from: Vec<Frame>) -> Io<()>;

    /// Makes every write durable that completed before this call. After a failed flush nothing is
    /// known about those writes, and a later success proves nothing: the caller must not retry.
    fn flush(&self) -> Io<()>;

    /// Discards `count` blocks from `addr` on that are no longer needed. Their contents are
    /// undefined afterwards, and whether they can be written is up to [`Device::discards`]. After
    /// an error or a crash any of them may have been discarded. May block the calling thread.
    fn discard(&self, addr: BlockAddr, count: u64) -> Io<()>;

    /// Returns the effect of [`Device::discard`] on this device.
    fn discards(&self) -> Discards {
        Discards::Never
    }

    /// Gives discarded blocks space again; blocks that have space keep it and their contents.
    /// Durable on return, so that no crash takes the space from what was accepted for it. Blocks
    /// the calling thread for milliseconds.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the host has no space. Some of the blocks may have got
    /// theirs.
    fn provision(&self, _addr: BlockAddr, _count: u64) -> io::Result<()> {
        Ok(())
    }

    /// Passes every run of blocks that have no space to `found`, in ascending order: those that
    /// were discarded and not provisioned again.
    ///
    /// # Errors
    /// If the host cannot tell.
    fn find_discarded(&self, _found: &mut dyn FnMut(BlockAddr, u64)) -> io::Result<()> {
        Ok(())
    }

    /// Returns the number of blocks that can be used now.
    fn length(&self) -> u64;

    /// Provisions blocks until at least `blocks` can be used, and returns the new length in blocks.
    /// Does nothing if the device is that long already. Durable with the next [`Device::flush`].
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the host has no space or the device's maximum is reached;
    /// the length is unchanged in that case.
    fn grow(&self, blocks: u64) -> io::Result<u64>;

    /// Returns the device's properties.
    fn hints(&self) -> Hints {
        Hints::DISK
    }

    /// Returns the number of blocks that the host could still give to the device, if known.
    fn host_free(&self) -> Option<u64> {
        None
    }

    /// Returns the meter of the device's operations, if they are measured.
    fn meter(&self) -> Option<&Meter> {
        None
    }

    /// Returns the maximum length in blocks, as far as the device knows it.
    fn max_length(&self) -> u64 {
        u64::MAX
    }
}
