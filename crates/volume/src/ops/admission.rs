//! Admission: an operation is accepted only if the resources that it needs later are certain.
//!
//! Blocks are allocated when a checkpoint is written, and memory and log fill up meanwhile. So an
//! operation first *reserves* the blocks that its checkpoint may need. The estimate is generous (a
//! leaf for every scattered change), so a refusal near the end of the space is not final. The next
//! checkpoint releases the excess reservations of the overlays, and the operation waits for it, at
//! most twice. Only then does it fail with "no space".
//!
//! Operations that free space must work when there is none. They draw on the floor that the
//! allocator reserves for checkpoints, a part of it at a time.

use weir_base::BLOCK_SIZE;
use weir_base::limits::engine::SPACE_WAITS;

use crate::overlay::context::EngineContext;
use crate::overlay::reservation::Reservation;
use crate::overlay::volume::Volume;
use crate::types::{Backpressure, FsError, Stop};

/// Maximum number of log bytes of an operation on few inodes.
pub(crate) const SMALL_OP: u64 = 2048;

impl Volume {
    /// Reserves `blocks` from the volume's limit and from the aggregate.
    pub(crate) fn reserve(
        &self,
        cx: &mut EngineContext,
        blocks: u64,
    ) -> Result<Reservation<'_>, Stop> {
        self.reserve_beside(cx, blocks, 0)
    }

    /// Like [`Volume::reserve`]. `allocated` more blocks, which are already allocated, have to fit
    /// into the volume's limit.
    pub(crate) fn reserve_beside(
        &self,
        cx: &mut EngineContext,
        blocks: u64,
        allocated: u64,
    ) -> Result<Reservation<'_>, Stop> {
        let limit = self.space.room();
        if limit > 0 {
            let used = self.space.blocks_used();
            // Saturates: a file may be of any size.
            if (used + blocks + allocated).saturating_mul(BLOCK_SIZE as u64) > limit {
                return Err(self.no_space(cx));
            }
        }
        Reservation::try_new(&self.core.agg, blocks).ok_or_else(|| {
            let stop = self.no_space(cx);
            if matches!(stop, Stop::Fail(_)) {
                self.core.agg.space().note_refused();
            }
            stop
        })
    }

    #[cold]
    fn no_space(&self, cx: &mut EngineContext) -> Stop {
        if cx.space_waits < SPACE_WAITS && self.core.totals().blocks() > 0 {
            cx.space_waits += 1;
            return Stop::Wait(Backpressure::Space);
        }
        Stop::Fail(FsError::NoSpace)
    }

    /// Gets `blocks` for an operation that frees space: reserved if possible, and else out of the
    /// floor.
    pub(crate) fn reserve_for_delete(
        &self,
        cx: &mut EngineContext,
        blocks: u64,
    ) -> Result<Reservation<'_>, Stop> {
        let agg = &self.core.agg;
        if let Some(reservation) = Reservation::try_new(agg, blocks) {
            return Ok(reservation);
        }
        // A quarter of the floor for each of the two epochs that can be in memory at once; the rest
        // is for other needs of checkpoints.
        let taken = self.core.totals().unreserved();
        if taken + blocks > agg.space().stats().floor / 2 {
            if cx.space_waits < SPACE_WAITS {
                cx.space_waits += 1;
                return Err(Stop::Wait(Backpressure::Space));
            }
            agg.space().note_refused();
            return Err(FsError::NoSpace.into());
        }
        Ok(Reservation::from_floor(agg, blocks))
    }
}
