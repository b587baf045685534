//! Reservations: what overlays count for, and blocks that are reserved to them.
//!
//! Blocks are allocated when a checkpoint is written. So an operation first has the allocator *reserve* the blocks
//! that its checkpoint may need; what it charges to an overlay of them stays reserved until that is dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{BLOCK_SIZE, invariant};
use weir_store::aggregate::Aggregate;

use crate::overlay::delta::Charge;

/// What all overlays together count for.
#[derive(Default)]
pub(crate) struct Totals {
    blocks: AtomicU64,
    pages: AtomicU64,
    heap: AtomicU64,
    /// Blocks that deletions count for without a reservation.
    unreserved: AtomicU64,
}

impl Totals {
    /// The parts of a charge that are not 0, each with its total: all cores share these.
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

    /// Reserved blocks that overlays hold.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Blocks out of the floor that overlays hold.
    pub(crate) fn unreserved(&self) -> u64 {
        self.unreserved.load(Ordering::Relaxed)
    }

    /// Bytes of page frames that overlays hold.
    pub(crate) fn frames(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) * BLOCK_SIZE as u64
    }

    /// Bytes of other memory that overlays hold.
    pub(crate) fn heap(&self) -> u64 {
        self.heap.load(Ordering::Relaxed)
    }
}

/// Blocks reserved to an operation; what it does not use is released.
pub(crate) struct Reservation<'a> {
    agg: &'a Aggregate,
    blocks: u64,
    /// The blocks come out of the floor: they have no reservation.
    from_floor: bool,
}

impl<'a> Reservation<'a> {
    /// A reservation for what cannot be refused: recovery. The space was there when
    /// the operation was accepted.
    pub(crate) fn if_possible(agg: &'a Aggregate, blocks: u64) -> Reservation<'a> {
        Reservation::of(agg, blocks).unwrap_or_else(|| Reservation {
            agg,
            blocks: 0,
            from_floor: false,
        })
    }

    /// So many blocks, reserved by the allocator, if it has them.
    pub(crate) fn of(agg: &'a Aggregate, blocks: u64) -> Option<Reservation<'a>> {
        agg.space().reserve(blocks).then(|| Reservation {
            agg,
            blocks,
            from_floor: false,
        })
    }

    /// So many blocks out of the floor, which operations that free space may use when there is nothing else.
    pub(crate) fn from_floor(agg: &'a Aggregate, blocks: u64) -> Reservation<'a> {
        Reservation {
            agg,
            blocks,
            from_floor: true,
        }
    }

    /// Whether so many blocks were reserved, by the allocator.
    pub(crate) fn covers(&self, blocks: u64) -> bool {
        !self.from_floor && self.blocks >= blocks
    }

    /// Notes that so many blocks have been allocated out of the reservation.
    pub(crate) fn spent(&mut self, blocks: u64) {
        let guard = self.agg.guard();
        self.blocks = guard.less(self.blocks, blocks, "reserved blocks");
    }

    /// Takes blocks out of the reservation, to be charged to an overlay. Estimates
    /// add up, so it can be short by a few; the floor covers those.
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
