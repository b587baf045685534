//! Allocation of blocks.
//!
//! The allocator keeps two bitmaps in memory for each chunk of 128 MiB. `image` is the map that the
//! checkpoint in progress will write, so exactly the blocks that its trees reach. `busy` marks the
//! blocks that must not be handed out. A block that is allocated but not yet part of a checkpoint
//! is only in `busy`. After a crash it is free again, unless the log refers to it and marks it
//! anew. A freed block that may still be read through an older root is also only in `busy`. So a
//! block goes
//!
//! ```text
//! free → reserve → busy → commit → busy + image → free → busy → reuse → free
//! ```
//!
//! and no step depends on when a map page is written.
//!
//! Map pages and the index over them have fixed addresses with two slots each ([`crate::layout`]).
//! Their checksums are in the index and the superblock: one chain from the superblock down. They
//! are loaded when first needed: start-up reads the index only, a block for each 31 GiB. A map
//! takes 8 KiB of memory (640 MiB for 10 TiB, if all were kept). So beyond [`KEPT_MAPS`] a
//! checkpoint drops maps that the last one has not used and that equal their page.
//!
//! **Placement** follows WAFL ("File System Design for an NFS File Server Appliance", 1994, and
//! "Algorithms and Data Structures for Efficient Free Space Reclamation in WAFL", 2017). A cursor
//! runs through the emptiest chunk and takes free blocks in order, so that a checkpoint's writes
//! are long and sequential. At the end it goes to the chunk that is emptiest then. Data and tree
//! nodes have a cursor each, so that they do not alternate on the device.
//!
//! **Admission.** Blocks are allocated when a checkpoint is written, long after the write was
//! accepted. So the overlay reserves the blocks that it will need, as a number of blocks without
//! addresses (a *reservation*). Foreground reservations and allocated blocks leave a floor of free
//! blocks for checkpoints. Deletions above all need it: they need blocks to free blocks. All of
//! this counts provisioned blocks only: a full host disk shows as "no space" at admission, not as a
//! failed checkpoint.
//!
//! **Discards** give free space back to the host, in pieces of 4 MiB (`space/discard.rs`).

mod bitmap;
mod check;
mod discard;
mod index;
mod persist;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::limits::engine::{
    GROWTH_LEAST_STEP as LEAST_STEP, GROWTH_MOST_STEP as MOST_STEP, LEAST_GROWTH, LEAST_RUN,
    SPACE_LOCK as BRIEFLY,
};
use weir_base::{BlockAddr, Poison, invariant};

use crate::device::Device;
use crate::error::StoreError;
use crate::frame::{Class, FramePool};
use crate::layout::CHUNK_BLOCKS;
use crate::superblock::IndexRef;

use bitmap::Bitmap;
use index::Entry;

pub use check::{Mismatch, Usage};

/// Number of unused maps kept in memory: 8 MiB for 128 GiB of device. Rereading one costs one block
/// of I/O with the allocator locked. Tests keep none, so that they meet dropped maps.
const KEPT_MAPS: usize = if cfg!(test) { 0 } else { 1024 };

/// Purpose of blocks. Each has its own place on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Contents of files, in the data cursor's chunk.
    Data,
    /// Tree nodes, in the node cursor's chunk.
    Meta,
}

/// Space of the device in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Current length of the device.
    pub total: u64,
    /// Blocks of that length that have no space on the host.
    pub holes: u64,
    /// Provisioned blocks that are not busy.
    pub free: u64,
    /// Blocks reserved for the overlay, without addresses: [`Space::reserve`].
    pub reserved: u64,
    /// Blocks reserved for checkpoints.
    pub floor: u64,
    /// Blocks that the host could still provision, as far as known: holes, and blocks beyond the
    /// length.
    pub growth: u64,
}

/// Physical space of an aggregate, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Physical {
    /// Bytes of the device, and those that the host's file system can still give to it.
    pub size: u64,
    /// Bytes that requests may still use.
    pub free: u64,
}

impl Physical {
    /// Returns the bytes that data, metadata and reservations hold.
    pub fn used(&self) -> u64 {
        // Saturates: both are read while blocks are taken and freed.
        self.size.saturating_sub(self.free)
    }
}

impl Stats {
    /// Returns the number of blocks that the device has and can still get.
    pub fn capacity(&self) -> u64 {
        // Saturates: the values are read while space is discarded, and the host's is an estimate.
        let provisioned = self.total.saturating_sub(self.holes);
        provisioned.saturating_add(self.growth)
    }

    /// Returns the number of blocks that requests may still use.
    pub fn available(&self) -> u64 {
        self.free
            // Saturates: the host's value is an estimate, and reservations and the floor may exceed
            // the free blocks.
            .saturating_add(self.growth)
            .saturating_sub(self.reserved + self.floor)
    }
}

/// A part of the map that cannot be read: nothing is allocated or freed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapFault {
    /// The chunk that this part describes.
    pub chunk: u32,
    /// The damaged block.
    pub addr: BlockAddr,
    /// Description of the damage.
    pub what: &'static str,
}

/// Result of [`Space::write_out`] for the superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapRoot {
    /// Blocks of the device described by the map.
    pub length: u64,
    /// The index, by group.
    pub index: Vec<IndexRef>,
}

struct Map {
    image: Box<Bitmap>,
    busy: Box<Bitmap>,
}

#[derive(Default)]
struct Chunk {
    entry: Entry,
    /// Blocks that are not busy.
    free: u32,
    /// Pieces that have no space on the host, a bit for each. Their blocks are busy.
    holes: u32,
    /// Pieces that may have become free since they were last examined for a discard.
    candidates: u32,
    map: Option<Map>,
    /// True if the image differs from the last written one.
    dirty: bool,
    /// True if the map was used since the last checkpoint.
    touched: bool,
    fault: Option<MapFault>,
}

impl Chunk {
    /// Returns true if the map is in memory, or can be created without a read.
    fn is_ready(&self) -> bool {
        self.fault.is_none() && (self.map.is_some() || self.entry.generation.0 == 0)
    }

    /// Returns true if the map equals its page and the holes, so that it can be dropped: it has no
    /// blocks that are reserved, or freed and not reusable yet, and the page has been durable since
    /// an earlier checkpoint. `length`: blocks of the chunk.
    fn is_as_written(&self, length: u32) -> bool {
        !self.dirty && self.free + self.entry.used + self.hole_blocks() == length
    }

    /// Returns the chunk and its map, once [`Space::load`] has returned true.
    fn loaded(&mut self) -> Option<(&mut Map, &mut u32, &mut bool)> {
        match self {
            Chunk {
                map: Some(map),
                fault: None,
                free,
                dirty,
                ..
            } => Some((map, free, dirty)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Cursor {
    chunk: u32,
    bit: u32,
}

struct State {
    length: u64,
    chunks: Vec<Chunk>,
    groups: Vec<Group>,
    data: Cursor,
    meta: Cursor,
    /// The chunk before which the search for free space to discard continues, downwards.
    discard: u32,
}

#[derive(Clone, Copy, Default)]
struct Group {
    reference: IndexRef,
    /// True if the index block cannot be read, and so must not be replaced.
    damaged: bool,
}

/// The allocator of an aggregate.
pub struct Space {
    device: Arc<dyn Device>,
    guard: Arc<Poison>,
    /// Frames to read the map into. The allocator has its own, because a checkpoint may have all
    /// others in flight when it needs one. One is in use at a time.
    scratch: Arc<FramePool>,
    state: Mutex<State>,
    /// Held while the device grows, so that it grows once at a time; never taken with `state` held.
    growing: Mutex<()>,
    /// Set when the device could not grow. Not retried before the next checkpoint, because each
    /// attempt costs system calls.
    exhausted: AtomicBool,
    /// Blocks that are freed and no longer referred to by a root, but still busy.
    reclaimable: Mutex<Vec<Vec<(BlockAddr, u32)>>>,
    reclaimable_blocks: AtomicU64,
    total: AtomicU64,
    holes: AtomicU64,
    /// True as long as the device carries discards out.
    discarding: AtomicBool,
    free: AtomicU64,
    reserved: AtomicU64,
    floor: AtomicU64,
    growth: AtomicU64,
    /// Blocks that a [thin](crate::device::Hints::thin) device's host has left; all, if it is not
    /// thin or that is unknown.
    room: AtomicU64,
    /// Set when a request was refused for lack of space, until there is enough again.
    refusing: AtomicBool,
}

/// Splits a run of blocks by chunk: (chunk, first block in it, blocks).
fn parts(addr: BlockAddr, count: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    let mut at = addr.0;
    // Saturates: the address comes from the disk.
    let end = addr.0.saturating_add(u64::from(count));
    std::iter::from_fn(move || {
        let chunk = u32::try_from(at / u64::from(CHUNK_BLOCKS)).ok()?;
        let bit = (at % u64::from(CHUNK_BLOCKS)) as u32;
        let len = u64::from(CHUNK_BLOCKS - bit).min(end.checked_sub(at)?) as u32;
        at += u64::from(len);
        (len > 0).then_some((chunk, bit, len))
    })
}

fn address(chunk: u32, bit: u32) -> BlockAddr {
    BlockAddr(crate::layout::chunk_start(chunk) + u64::from(bit))
}

impl Space {
    /// Allocates a run of up to `want` blocks: from `near` on if that is free, else at this
    /// stream's cursor. Foreground callers are refused when only reserved blocks and the floor are
    /// left.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`]; [`StoreError::NoMemory`] if a map page has to be read and there is
    /// no frame for it.
    pub fn allocate(
        &self,
        want: u32,
        near: Option<BlockAddr>,
        stream: Stream,
        class: Class,
    ) -> Result<(BlockAddr, u32), StoreError> {
        let want = want.min(CHUNK_BLOCKS);
        match class {
            Class::Cp => {
                let short = || self.free.load(Ordering::Relaxed) < u64::from(want);
                if short() && (!self.reclaim() || short()) {
                    self.grow();
                }
                self.take(want, near, stream)
            }
            Class::Foreground => {
                let granted = self.reserve_up_to(u64::from(want));
                if granted == 0 {
                    return Err(StoreError::NoSpace);
                }
                let taken = self.take(granted as u32, near, stream);
                self.release_reserved(granted);
                taken
            }
        }
    }

    /// Allocates `want` blocks for file data, in at most `most` runs, out of blocks that the caller
    /// has [reserved](Space::reserve): all of them or none. It is for callers that must not block.
    /// Returns `None` if a map page would have to be read first, if the allocator is busy, or if
    /// free space is too scattered.
    pub fn allocate_reserved(&self, want: u32, most: usize) -> Option<Vec<(BlockAddr, u32)>> {
        let state = &mut *self.state.try_lock_for(BRIEFLY)?;
        let mut runs = Vec::with_capacity(1);
        let mut left = want;
        while left > 0 {
            let run = match runs.len() < most {
                true => self.take_loaded(state, left),
                false => None,
            };
            let Some((addr, count)) = run else {
                for (addr, count) in runs {
                    self.unclaim(state, addr, count);
                }
                return None;
            };
            left -= count;
            runs.push((addr, count));
        }
        self.release_reserved(u64::from(want));
        Some(runs)
    }

    /// Allocates up to `want` blocks for data from maps that are in memory.
    fn take_loaded(&self, state: &mut State, want: u32) -> Option<(BlockAddr, u32)> {
        let least = want.min(LEAST_RUN);
        for _ in 0..2 {
            let Cursor { chunk, bit } = state.data;
            let ready = state
                .chunks
                .get(chunk as usize)
                .is_some_and(Chunk::is_ready);
            if ready && let Ok(Some((bit, len))) = self.find(state, chunk, bit, least) {
                let len = len.min(want);
                state.data = Cursor {
                    chunk,
                    bit: bit + len,
                };
                return self.claim(state, chunk, bit, len);
            }
            state.data = Cursor {
                chunk: emptiest(state, Stream::Data, Chunk::is_ready)?,
                bit: 0,
            };
        }
        None
    }

    /// Takes back an allocation.
    fn unclaim(&self, state: &mut State, addr: BlockAddr, count: u32) {
        for (number, bit, len) in parts(addr, count) {
            let chunk = state.chunks.get_mut(number as usize);
            let Some((map, free, _)) = chunk.and_then(Chunk::loaded) else {
                invariant!(self.guard => false, "blocks of chunk {number} were allocated just now, and it has no map");
                continue;
            };
            map.busy.clear(bit, len);
            *free += len;
            self.free.fetch_add(u64::from(len), Ordering::Relaxed);
            note_freed(state, number, bit, len);
        }
    }

    /// Reads map pages before they are needed, of the emptiest chunks first, until `blocks` free
    /// ones can be [allocated](Space::allocate_reserved) without reading. An unreadable page is
    /// reported when it is needed.
    fn load_ahead(&self, blocks: u64) {
        let mut order: Vec<(u32, u32)> = {
            let state = self.state.lock();
            let free = |chunk: &Chunk| u64::from(chunk.free);
            let ready = state.chunks.iter().filter(|c| c.is_ready()).map(free);
            if ready.sum::<u64>() >= blocks {
                return;
            }
            let numbered = (0u32..).zip(&state.chunks);
            numbered.map(|(number, c)| (c.free, number)).collect()
        };
        order.sort_unstable_by_key(|(free, number)| (std::cmp::Reverse(*free), *number));
        let mut ahead = 0;
        for (free, number) in order {
            if ahead >= blocks || free < LEAST_RUN {
                return;
            }
            // One page at a time, so that no thread waits for more than one read.
            if matches!(self.load(&mut self.state.lock(), number), Ok(true)) {
                ahead += u64::from(free);
            }
        }
    }

    fn take(
        &self,
        want: u32,
        near: Option<BlockAddr>,
        stream: Stream,
    ) -> Result<(BlockAddr, u32), StoreError> {
        if want == 0 {
            return Err(StoreError::NoSpace);
        }
        let state = &mut *self.state.lock();
        if let Some((chunk, bit, _)) = near.and_then(|near| parts(near, 1).next())
            && let Some((bit, len)) = self.find(state, chunk, bit, 1)?.filter(|run| run.0 == bit)
        {
            return self
                .claim(state, chunk, bit, len.min(want))
                .ok_or(StoreError::NoSpace);
        }
        // From the cursor on; then in the emptiest chunk; then anywhere.
        for least in [want.min(LEAST_RUN), want.min(LEAST_RUN), 1] {
            let cursor = match stream {
                Stream::Data => state.data,
                Stream::Meta => state.meta,
            };
            if let Some((bit, len)) = self.find(state, cursor.chunk, cursor.bit, least)? {
                let len = len.min(want);
                let next = Cursor {
                    chunk: cursor.chunk,
                    bit: bit + len,
                };
                match stream {
                    Stream::Data => state.data = next,
                    Stream::Meta => state.meta = next,
                }
                return self
                    .claim(state, cursor.chunk, bit, len)
                    .ok_or(StoreError::NoSpace);
            }
            let next = Cursor {
                chunk: emptiest(state, stream, |_| true).unwrap_or(0),
                bit: 0,
            };
            match stream {
                Stream::Data => state.data = next,
                Stream::Meta => state.meta = next,
            }
        }
        // The last resort: chunk by chunk. Reached when a map turned out to be damaged on the way.
        for chunk in 0..state.chunks.len() as u32 {
            if let Some((bit, len)) = self.find(state, chunk, 0, 1)? {
                return self
                    .claim(state, chunk, bit, len.min(want))
                    .ok_or(StoreError::NoSpace);
            }
        }
        Err(StoreError::NoSpace)
    }

    /// Finds a run of at least `least` free blocks of a chunk from `bit` on.
    fn find(
        &self,
        state: &mut State,
        chunk: u32,
        bit: u32,
        least: u32,
    ) -> Result<Option<(u32, u32)>, StoreError> {
        let has_room = |chunk: &Chunk| chunk.free >= least;
        if !state.chunks.get(chunk as usize).is_some_and(has_room) || !self.load(state, chunk)? {
            return Ok(None);
        }
        let chunk = state
            .chunks
            .get(chunk as usize)
            .and_then(|chunk| chunk.map.as_ref());
        Ok(chunk.and_then(|map| map.busy.free_run(bit, least)))
    }

    fn claim(&self, state: &mut State, chunk: u32, bit: u32, len: u32) -> Option<(BlockAddr, u32)> {
        let (map, free, _) = state.chunks.get_mut(chunk as usize)?.loaded()?;
        let taken = map.busy.ones(bit, len);
        if !invariant!(self.guard => taken == 0 && *free >= len, "{taken} of {len} blocks to be allocated are in use, {free} are free")
        {
            return None;
        }
        map.busy.set(bit, len);
        *free -= len;
        self.free.fetch_sub(u64::from(len), Ordering::Relaxed);
        Some((address(chunk, bit), len))
    }

    /// Runs `change` on the maps of the chunks that hold the blocks. Blocks with a damaged map are
    /// passed over: nothing is allocated there any more, so no block in use can be handed out.
    fn change(
        &self,
        addr: BlockAddr,
        count: u32,
        mut change: impl FnMut(&mut Map, u32, u32) -> Result<i64, &'static str>,
    ) -> Result<(), StoreError> {
        let state = &mut *self.state.lock();
        for (number, bit, len) in parts(addr, count) {
            if !self.load(state, number)? {
                if number as usize >= state.chunks.len() {
                    return Err(StoreError::Corrupt {
                        addr,
                        what: "beyond the device",
                    });
                }
                continue;
            }
            let chunk = state.chunks.get_mut(number as usize);
            let Some((map, free, dirty)) = chunk.and_then(Chunk::loaded) else {
                invariant!(self.guard => false, "the map of chunk {number} was loaded and is not there");
                continue;
            };
            let before = map.image.ones(bit, len);
            let freed = change(map, bit, len).map_err(|what| StoreError::Corrupt {
                addr: address(number, bit),
                what,
            })?;
            *dirty |= map.image.ones(bit, len) != before;
            let now = i64::from(*free) + freed;
            invariant!(self.guard => (0..=i64::from(CHUNK_BLOCKS)).contains(&now), "{now} blocks of chunk {number} are free");
            *free = now as u32;
            if freed > 0 {
                note_freed(state, number, bit, len);
            }
            // Two's complement: a decrease is added by wrapping around.
            self.free.fetch_add(freed as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the guard that its invariants name.
    pub(crate) fn guard(&self) -> &Arc<Poison> {
        &self.guard
    }

    /// Makes allocated blocks part of the checkpoint in progress.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if they are not allocated or already part of it: a block with two
    /// owners, which must not become durable.
    pub fn commit(&self, addr: BlockAddr, count: u32) -> Result<(), StoreError> {
        self.change(addr, count, |map, bit, len| {
            if map.image.ones(bit, len) != 0 || map.busy.ones(bit, len) != len {
                return Err("block with two owners");
            }
            map.image.set(bit, len);
            Ok(0)
        })
    }

    /// Releases allocated blocks that have not become part of a checkpoint.
    pub fn abandon(&self, addr: BlockAddr, count: u32) {
        self.give_back(addr, count, "abandon");
    }

    /// Takes blocks out of the checkpoint in progress. They stay busy: older roots may refer to
    /// them.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if they are not allocated.
    pub fn free(&self, addr: BlockAddr, count: u32) -> Result<(), StoreError> {
        self.change(addr, count, |map, bit, len| {
            if map.image.ones(bit, len) != len {
                return Err("freed block is not allocated");
            }
            map.image.clear(bit, len);
            Ok(0)
        })
    }

    /// Makes freed blocks available, after the checkpoint that freed them is durable and no reader
    /// uses older roots.
    pub fn reuse(&self, addr: BlockAddr, count: u32) {
        self.give_back(addr, count, "reuse");
    }

    fn give_back(&self, addr: BlockAddr, count: u32, why: &str) {
        let result = self.change(addr, count, |map, bit, len| {
            if map.image.ones(bit, len) != 0 || map.busy.ones(bit, len) != len {
                return Err("block abandoned while in use");
            }
            map.busy.clear(bit, len);
            Ok(i64::from(len))
        });
        // Fails closed: blocks in doubt stay busy until the next start.
        match result {
            Err(StoreError::Corrupt { addr: at, what }) => {
                invariant!(self.guard => false, "{why} of {count} blocks from {addr} on, at {at}: {what}");
            }
            Err(error) => {
                tracing::error!(%addr, count, why, %error, "cannot release blocks; they stay allocated");
            }
            Ok(()) => {}
        }
    }

    /// Reserves blocks that a record of the log refers to, during recovery; a second call changes
    /// nothing. Returns the number of them that the trees refer to. That happens only after damage,
    /// when an older superblock is used than the one that the record was written after.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if they are beyond the device.
    pub fn mark_recovered(&self, addr: BlockAddr, count: u32) -> Result<u32, StoreError> {
        self.fill_recovered(addr, count);
        let mut owned = 0;
        self.change(addr, count, |map, bit, len| {
            let busy = map.busy.ones(bit, len);
            owned += map.image.ones(bit, len);
            map.busy.set(bit, len);
            Ok(-i64::from(len - busy))
        })?;
        Ok(owned)
    }

    /// Reserves `blocks` for the overlay, without addresses, all or none; returns `false` if fewer
    /// are available.
    #[must_use]
    pub fn reserve(&self, blocks: u64) -> bool {
        let enough = |reserved: u64| {
            let left = self.left(reserved);
            (left >= blocks).then_some(reserved + blocks)
        };
        let attempt = || {
            self.reserved
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, enough)
                .is_ok()
        };
        attempt() || (self.reclaim() && attempt()) || (self.grow() && attempt())
    }

    /// Like [`Space::reserve`], but reserves fewer if necessary; returns the number reserved.
    fn reserve_up_to(&self, blocks: u64) -> u64 {
        let short = || self.left(self.reserved.load(Ordering::Acquire)) < blocks;
        if short() && (!self.reclaim() || short()) {
            self.grow();
        }
        let mut granted = 0;
        let take = |reserved: u64| {
            granted = self.left(reserved).min(blocks);
            (granted > 0).then_some(reserved + granted)
        };
        match self
            .reserved
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
        {
            Ok(_) => granted,
            Err(_) => 0,
        }
    }

    fn left(&self, reserved: u64) -> u64 {
        let kept = reserved + self.floor.load(Ordering::Relaxed);
        let free = self.free.load(Ordering::Relaxed);
        let room = self.room.load(Ordering::Relaxed);
        // Saturates: the floor may exceed the free blocks.
        free.min(room).saturating_sub(kept)
    }

    /// Returns the number of provisioned blocks that requests may still reserve.
    pub fn spare(&self) -> u64 {
        self.left(self.reserved.load(Ordering::Acquire))
    }

    /// Queues blocks for a later [reuse](Space::reuse): a request may drop the last reference to an
    /// old root, and there may be many blocks.
    pub fn make_reclaimable(&self, runs: Vec<(BlockAddr, u32)>) {
        let blocks: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
        let mut reclaimable = self.reclaimable.lock();
        reclaimable.push(runs);
        self.reclaimable_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Makes the queued blocks available; returns `false` if there are none.
    pub fn reclaim(&self) -> bool {
        let lists = std::mem::take(&mut *self.reclaimable.lock());
        for (addr, count) in lists.iter().flatten() {
            self.reuse(*addr, *count);
            let reclaimable = self
                .reclaimable_blocks
                .fetch_sub(u64::from(*count), Ordering::Relaxed);
            invariant!(self.guard => reclaimable >= u64::from(*count), "{count} blocks become free of {reclaimable} that wait");
        }
        !lists.is_empty()
    }

    /// Releases `blocks` of a [reservation](Space::reserve), after they were allocated or are not
    /// needed.
    pub fn release_reserved(&self, blocks: u64) {
        let less = |reserved: u64| reserved.checked_sub(blocks);
        let ended = self
            .reserved
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        if let Err(reserved) = ended {
            invariant!(self.guard => false, "reservations of {blocks} blocks end, and {reserved} are reserved");
        }
    }

    /// Bounds the blocks that requests may use by those that the host of a thin device has left.
    pub fn limit(&self, host_free: Option<u64>) {
        let room = host_free.unwrap_or(u64::MAX);
        if self.room.swap(room, Ordering::Relaxed) < room {
            // The host has got space.
            self.exhausted.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the space of the device.
    pub fn stats(&self) -> Stats {
        let free =
            self.free.load(Ordering::Relaxed) + self.reclaimable_blocks.load(Ordering::Relaxed);
        Stats {
            total: self.total.load(Ordering::Relaxed),
            holes: self.holes.load(Ordering::Relaxed),
            free: free.min(self.room.load(Ordering::Relaxed)),
            reserved: self.reserved.load(Ordering::Relaxed),
            floor: self.floor.load(Ordering::Relaxed),
            growth: self.growth.load(Ordering::Relaxed),
        }
    }

    /// Notes that a request is refused because the aggregate is full; logs the first one.
    pub fn note_refused(&self) {
        if !self.refusing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "refusing writes: the aggregate is full (free space on the host's file system, or delete files and snapshots)"
            );
        }
    }

    /// Returns true if requests have been refused for lack of space since [`Space::note_enough`].
    pub fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// Notes that there is enough space again.
    pub fn note_enough(&self) {
        self.refusing.store(false, Ordering::Relaxed);
    }

    /// Grows the device before it is full, so that requests seldom wait for that. One step is kept
    /// ready, and the map of `ahead` free blocks. `host_free` is the number of blocks that the host
    /// could still provide, if known.
    pub fn prepare(&self, host_free: Option<u64>, ahead: u64) {
        self.exhausted.store(false, Ordering::Relaxed);
        let ready = step(self.provisioned());
        while self.left(self.reserved.load(Ordering::Acquire)) < ready && self.grow() {}
        self.load_ahead(ahead);
        if let Some(blocks) = host_free {
            self.growth.store(blocks, Ordering::Relaxed);
        }
    }

    /// Provisions a step of space: holes first, then blocks beyond the device's length. Returns
    /// `false` if the host has none.
    fn grow(&self) -> bool {
        let room = self.room.load(Ordering::Relaxed);
        if self.exhausted.load(Ordering::Relaxed) || self.free.load(Ordering::Relaxed) >= room {
            return false;
        }
        let before = self.provisioned();
        let _one = self.growing.lock();
        let length = self.device.length();
        let provisioned = self.provisioned();
        if provisioned > before {
            return true; // another thread has just done it
        }
        let mut step = step(provisioned);
        if self.fill_holes(step) {
            return true;
        }
        while step >= LEAST_GROWTH {
            // Growth only counts if it makes the used part longer.
            // Saturates: the device reports
            // its own length.
            if let Ok(grown) = self.device.grow(length.saturating_add(step)) {
                let state = &mut *self.state.lock();
                let old = state.length;
                if self.extend(state, grown).is_ok() && state.length > old {
                    let added = state.length - old;
                    // Saturates: an estimate.
                    let less = |growth: u64| Some(growth.saturating_sub(added));
                    let _ = self
                        .growth
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                    return true;
                }
                break;
            }
            step /= 4;
        }
        self.exhausted.store(true, Ordering::Relaxed);
        self.growth.store(0, Ordering::Relaxed);
        false
    }
}

/// Notes that blocks of a chunk were freed: they may make up a piece to discard.
fn note_freed(state: &mut State, number: u32, bit: u32, len: u32) {
    if let Some(chunk) = state.chunks.get_mut(number as usize) {
        chunk.candidates |= discard::pieces(bit, len);
    }
}

/// Returns the number of blocks by which a device with `provisioned` blocks grows.
fn step(provisioned: u64) -> u64 {
    (provisioned / 8).clamp(LEAST_STEP, MOST_STEP)
}

/// Returns the chunk with most free blocks, if possible not that of the other stream's cursor.
fn emptiest(state: &State, stream: Stream, among: impl Fn(&Chunk) -> bool) -> Option<u32> {
    let other = match stream {
        Stream::Data => state.meta.chunk,
        Stream::Meta => state.data.chunk,
    };
    let worth = |number: u32, chunk: &Chunk| {
        let free = if number == other {
            chunk.free / 2
        } else {
            chunk.free
        };
        // Among equals it is the first: it keeps a mostly empty device short.
        (free, std::cmp::Reverse(number))
    };
    let best = (0u32..)
        .zip(&state.chunks)
        .filter(|(_, chunk)| among(chunk))
        .max_by_key(|(number, chunk)| worth(*number, chunk));
    best.map(|(number, _)| number)
}
