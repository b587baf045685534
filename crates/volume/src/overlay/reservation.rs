//! Reservations: the charges of overlays, and the blocks reserved for them.
//!
//! Blocks are allocated when a checkpoint is written. So an operation first *reserves* the blocks
//! that its checkpoint may need. Blocks that it charges to an overlay stay reserved until the
//! overlay is dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{BLOCK_SIZE, invariant};
use weir_store::aggregate::Aggregate;

use crate::overlay::delta::Charge;

/// Total charge of all overlays.
#[derive(Default)]
pub(crate) struct Totals {
    blocks: AtomicU64,
    pages: AtomicU64,
    heap: AtomicU64,
    /// Blocks charged by deletions without a reservation.
    unreserved: AtomicU64,
}

impl Totals {
    /// Returns the non-zero parts of a charge, each with its total: all cores share the totals.
    fn parts(&self, c: Charge) -> impl Iterator<Item = (&AtomicU64, u64)> {
        [
            (&self.blocks, c.blocks),
            (&self.pages, c.pages),
            (&self.heap, c.heap),
            (&self.unreserved, c.unreserved),
        ]
        .into_iter()
        .filter(|(_, part)| *part > 0)
    }

    pub(crate) fn add(&self, c: Charge) {
        for (total, part) in self.parts(c) {
            total.fetch_add(part, Ordering::Relaxed);
        }
    }

    pub(crate) fn sub(&self, c: Charge) {
        for (total, part) in self.parts(c) {
            let all = total.fetch_sub(part, Ordering::Relaxed);
            invariant!(
                all >= part,
                "overlays count for {all}, and {part} of it is taken back"
            );
        }
    }

    /// Returns the reserved blocks that overlays hold.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Returns the blocks from the floor that overlays hold.
    pub(crate) fn unreserved(&self) -> u64 {
        self.unreserved.load(Ordering::Relaxed)
    }

    /// Returns the bytes of page frames that overlays hold.
    pub(crate) fn frames(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) * BLOCK_SIZE as u64
    }

    /// Returns the bytes of other memory that overlays hold.
    pub(crate) fn heap(&self) -> u64 {
        self.heap.load(Ordering::Relaxed)
    }
}

/// Blocks reserved for an operation; unused ones are released on drop.
pub(crate) struct Reservation<'a> {
    agg: &'a Aggregate,
    blocks: u64,
    /// True if the blocks come from the floor: they have no reservation.
    from_floor: bool,
}

impl<'a> Reservation<'a> {
    /// Creates a reservation for an operation that cannot be refused, during recovery. The space
    /// existed when the operation was accepted.
    pub(crate) fn if_possible(agg: &'a Aggregate, blocks: u64) -> Reservation<'a> {
        Reservation::try_new(agg, blocks).unwrap_or_else(|| Reservation {
            agg,
            blocks: 0,
            from_floor: false,
        })
    }

    /// Reserves `blocks` in the allocator, if it has them.
    pub(crate) fn try_new(agg: &'a Aggregate, blocks: u64) -> Option<Reservation<'a>> {
        agg.space().reserve(blocks).then(|| Reservation {
            agg,
            blocks,
            from_floor: false,
        })
    }

    /// Takes `blocks` from the floor, which operations that free space may use when nothing else is
    /// left.
    pub(crate) fn from_floor(agg: &'a Aggregate, blocks: u64) -> Reservation<'a> {
        Reservation {
            agg,
            blocks,
            from_floor: true,
        }
    }

    /// Returns true if at least `blocks` were reserved in the allocator.
    pub(crate) fn covers(&self, blocks: u64) -> bool {
        !self.from_floor && self.blocks >= blocks
    }

    /// Notes that `blocks` have been allocated out of the reservation.
    pub(crate) fn spent(&mut self, blocks: u64) {
        let guard = self.agg.guard();
        self.blocks = guard.less(self.blocks, blocks, "reserved blocks");
    }

    /// Takes blocks out of the reservation, to be charged to an overlay. Estimates add up, so it
    /// can be short by a few; the floor covers those.
    pub(crate) fn take(&mut self, blocks: u64) -> Charge {
        let given = blocks.min(self.blocks);
        self.blocks -= given;
        if self.from_floor {
            Charge {
                unreserved: given,
                ..Charge::default()
            }
        } else {
            Charge {
                blocks: given,
                ..Charge::default()
            }
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.from_floor && self.blocks > 0 {
            self.agg.space().release_reserved(self.blocks);
        }
    }
}
