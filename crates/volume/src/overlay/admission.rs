//! Admission: an operation is accepted only if what it needs later is certain.
//!
//! Blocks are allocated when a consistency point is written, memory and log fill
//! up meanwhile. So an operation first has the allocator *promise* the blocks
//! that its consistency point may need. The estimate is generous (a leaf for
//! every scattered change), so a refusal near the end of the space is not the
//! last word: what the overlays were charged too much comes back with the next
//! consistency point, and the operation waits for it, at most twice. Only then
//! is there no space.
//!
//! Operations that free space must work when there is none. They draw on the
//! floor that the allocator keeps for consistency points, a part of it at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{BLOCK_SIZE, invariant};

use crate::overlay::core::Core;
use crate::overlay::cx::Cx;
use crate::overlay::delta::Charge;
use crate::overlay::volume::Volume;
use crate::types::{FsError, Pressure, Stop};

/// Bytes of log that an operation on few inodes takes at most.
pub(crate) const SMALL_OP: u64 = 2048;

/// What all overlays together count for.
#[derive(Default)]
pub(crate) struct Totals {
    blocks: AtomicU64,
    pages: AtomicU64,
    heap: AtomicU64,
    /// Blocks that deletions count for, which nobody has promised.
    unpromised: AtomicU64,
}

impl Totals {
    /// What there is of a charge, with what it is added to: all cores share these.
    fn parts(&self, c: Charge) -> impl Iterator<Item = (&AtomicU64, u64)> {
        [
            (&self.blocks, c.blocks),
            (&self.pages, c.pages),
            (&self.heap, c.heap),
            (&self.unpromised, c.unpromised),
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

    /// Promised blocks that overlays hold.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
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

/// Blocks promised to an operation; what it does not use is given back.
pub(crate) struct Promise<'a> {
    core: &'a Core,
    blocks: u64,
    /// The blocks come out of the floor: nobody has promised them.
    from_floor: bool,
}

impl<'a> Promise<'a> {
    /// A promise for what cannot be refused: recovery. The space was there when
    /// the operation was accepted.
    pub(crate) fn if_possible(core: &'a Core, blocks: u64) -> Promise<'a> {
        let granted = core.agg.space().promise(blocks);
        Promise {
            core,
            blocks: if granted { blocks } else { 0 },
            from_floor: false,
        }
    }

    /// Whether so many blocks were promised, by the allocator.
    pub(crate) fn covers(&self, blocks: u64) -> bool {
        !self.from_floor && self.blocks >= blocks
    }

    /// Notes that so many blocks have been reserved out of the promise.
    pub(crate) fn spent(&mut self, blocks: u64) {
        let guard = self.core.agg.guard();
        self.blocks = guard.less(self.blocks, blocks, "promised blocks");
    }

    /// Takes blocks out of the promise, to be charged to an overlay. Estimates
    /// add up, so it can be short by a few; the floor covers those.
    pub(crate) fn take(&mut self, blocks: u64) -> Charge {
        let given = blocks.min(self.blocks);
        self.blocks -= given;
        if self.from_floor {
            Charge {
                unpromised: given,
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

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if !self.from_floor && self.blocks > 0 {
            self.core.agg.space().fulfil(self.blocks);
        }
    }
}

/// Times that an operation waits for space before it is told that there is none.
const SPACE_WAITS: u8 = 2;

impl Volume {
    /// Has `blocks` promised.
    pub(crate) fn promise(&self, cx: &mut Cx, blocks: u64) -> Result<Promise<'_>, Stop> {
        self.promise_beside(cx, blocks, 0)
    }

    /// As [`Volume::promise`]; `reserved` more blocks, which are reserved already, have to
    /// have room in the volume.
    pub(crate) fn promise_beside(
        &self,
        cx: &mut Cx,
        blocks: u64,
        reserved: u64,
    ) -> Result<Promise<'_>, Stop> {
        let limit = self.room();
        if limit > 0 {
            let used = self.blocks_used();
            // Saturates: a file may be of any size.
            if (used + blocks + reserved).saturating_mul(BLOCK_SIZE as u64) > limit {
                return Err(self.no_space(cx));
            }
        }
        if !self.core.agg.space().promise(blocks) {
            return Err(self.no_space(cx));
        }
        Ok(Promise {
            core: &self.core,
            blocks,
            from_floor: false,
        })
    }

    #[cold]
    fn no_space(&self, cx: &mut Cx) -> Stop {
        if cx.space_waits < SPACE_WAITS && self.core.totals.blocks() > 0 {
            cx.space_waits += 1;
            return Stop::Wait(Pressure::Space);
        }
        Stop::Fail(FsError::NoSpace)
    }

    /// Has `blocks` for an operation that frees space: promised if possible,
    /// and else out of the floor.
    pub(crate) fn promise_for_delete(&self, cx: &mut Cx, blocks: u64) -> Result<Promise<'_>, Stop> {
        let space = self.core.agg.space();
        if space.promise(blocks) {
            return Ok(Promise {
                core: &self.core,
                blocks,
                from_floor: false,
            });
        }
        // A quarter of the floor for each of the two epochs that can be in
        // memory at once; the rest is for what consistency points need besides.
        let taken = self.core.totals.unpromised.load(Ordering::Relaxed);
        if taken + blocks > space.stats().floor / 2 {
            if cx.space_waits < SPACE_WAITS {
                cx.space_waits += 1;
                return Err(Stop::Wait(Pressure::Space));
            }
            return Err(FsError::NoSpace.into());
        }
        Ok(Promise {
            core: &self.core,
            blocks,
            from_floor: true,
        })
    }
}
