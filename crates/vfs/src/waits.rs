//! Time that requests wait for the device, for other clients' claims, and for the log.
//!
//! Only a request that waits is measured: the clock is read twice and the counter of its event loop
//! is taken once for each wait. Requests that go on at once are not touched. What requests wait for
//! limits is counted by the limits themselves.

use weir_base::VolumeId;
use weir_qos::Nanos;

use crate::error::Suspend;
use crate::pipeline::OpContext;
use crate::stats::{Cause, UNATTRIBUTED};
use crate::vfs::Vfs;

/// A wait that has begun.
#[must_use]
pub struct WaitTimer {
    cause: Cause,
    volume: VolumeId,
    flow: u64,
    since: Nanos,
}

impl WaitTimer {
    /// Begins to measure a wait, if it is one that is counted.
    pub fn start(vfs: &Vfs, cx: &OpContext, suspend: &Suspend) -> Option<WaitTimer> {
        let (cause, volume) = match suspend {
            Suspend::Device(wait) => (Cause::Device, wait.volume.id()),
            Suspend::Recall(_) => (Cause::Claim, cx.volume().unwrap_or(UNATTRIBUTED)),
            Suspend::Room(_) | Suspend::Record(..) => (Cause::Log, UNATTRIBUTED),
            _ => return None,
        };
        Some(WaitTimer {
            cause,
            volume,
            flow: cx.flow(),
            since: vfs.throttle.current_time(),
        })
    }

    /// Counts the wait, which is over.
    pub fn end(self, vfs: &Vfs) {
        if let Some(stats) = &vfs.stats {
            // Saturates: the clock may be read on another thread.
            let nanos = vfs.throttle.current_time().saturating_sub(self.since);
            stats.wait(self.flow, self.volume, self.cause, nanos);
        }
    }
}
