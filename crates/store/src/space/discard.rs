//! Discards: free space goes back to the host, and is provisioned again before it is used.
//!
//! A chunk is discarded in pieces of 4 MiB. A piece may be discarded when the allocator could hand
//! out all of its blocks. That is so when the checkpoint that freed them is durable, no reader uses
//! older roots, and no record of the log refers to them. So a discard needs no rule of its own for
//! crashes: it is as safe as a write to an allocated block would be. It is also done like one. The
//! piece's blocks are reserved and marked busy before the device is called, so that nothing can be
//! allocated in it meanwhile.
//!
//! Where discarding takes the space away ([`Discards::Deprovision`]) the piece is a *hole* then:
//! its blocks stay busy until the device has provisioned them again. [`Space::grow`] fills holes,
//! the lowest first, before it makes the device longer. Nothing on the device says where holes are:
//! at a start the host is asked. It may name pieces that a crash has left half discarded or half
//! provisioned. A free piece without all of its space becomes a hole, and one in use is
//! provisioned at once.
//!
//! Where discarding is a hint ([`Discards::Hint`]) the piece is free again afterwards.
//!
//! A discard takes from the highest free pieces, so that a device is filled from its beginning. It
//! spares the pieces that the two cursors come to next, and a number of free blocks that the caller
//! gives, because a piece that is discarded and soon provisioned again costs more than it saves.

use std::sync::atomic::Ordering;

use weir_base::limits::engine::{DISCARD_LEAVES_STEPS, DISCARD_PIECES};
use weir_base::{BlockAddr, invariant};

use super::bitmap::Bitmap;
use super::persist::chunk_len;
use super::{Chunk, Cursor, Space, State, address, parts, step};
use crate::device::Discards;
use crate::layout::{self, CHUNK_BLOCKS, PIECE_BLOCKS};

const _: () = assert!(CHUNK_BLOCKS / PIECE_BLOCKS == u32::BITS);

/// Returns the bits of the pieces that hold the `len` blocks from `bit` on.
pub(super) fn pieces(bit: u32, len: u32) -> u32 {
    if len == 0 {
        return 0;
    }
    let (first, last) = (bit / PIECE_BLOCKS, (bit + len - 1) / PIECE_BLOCKS);
    (u32::MAX << first) & (u32::MAX >> (u32::BITS - 1 - last))
}

/// Returns the bits of `count` pieces from `first` on.
fn run_bits(first: u32, count: u32) -> u32 {
    pieces(first * PIECE_BLOCKS, count * PIECE_BLOCKS)
}

/// Returns the runs of set bits, from the lowest on: (first piece, pieces).
fn runs(pieces: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut left = pieces;
    std::iter::from_fn(move || {
        let first = left.trailing_zeros();
        let count = left.checked_shr(first)?.trailing_ones();
        left &= !run_bits(first, count);
        Some((first, count))
    })
}

/// Marks the blocks of `holes` busy.
pub(super) fn set_holes(busy: &mut Bitmap, holes: u32) {
    for (first, count) in runs(holes) {
        busy.set(first * PIECE_BLOCKS, count * PIECE_BLOCKS);
    }
}

/// Returns the pieces of a chunk that hold fixed structures.
fn fixed_pieces(number: u32) -> u32 {
    layout::fixed(number).fold(0, |bits, (at, count)| bits | pieces(at, count))
}

/// Returns the pieces of a chunk that the cursors come to next.
fn spared(state: &State, number: u32) -> u32 {
    let of = |cursor: &Cursor| match cursor.chunk == number {
        true => u32::MAX.checked_shl(cursor.bit / PIECE_BLOCKS).unwrap_or(0),
        false => 0,
    };
    of(&state.data) | of(&state.meta)
}

/// A run of pieces that is being discarded.
struct PieceRun {
    chunk: u32,
    first: u32,
    count: u32,
    /// True if the map was read for this.
    loaded: bool,
}

/// Result of a search for free space to discard.
enum Search {
    Found(PieceRun),
    /// One chunk was examined in vain; there may be others.
    Continue,
    Nothing,
}

impl Chunk {
    /// Returns the number of blocks in holes.
    pub(super) fn hole_blocks(&self) -> u32 {
        self.holes.count_ones() * PIECE_BLOCKS
    }

    /// Drops a map that was read for a search, if `loaded`: a search must not fill memory.
    fn drop_map_if(&mut self, loaded: bool, length: u32) {
        if loaded && self.is_as_written(length) {
            self.map = None;
        }
    }

    /// Returns the highest run of pieces to discard except `spared`: (first piece, pieces). Forgets
    /// candidates that are in use; they become candidates again when something in them is freed.
    fn free_pieces(&mut self, spared: u32) -> Option<(u32, u32)> {
        let map = self.map.as_ref()?;
        let in_use = |piece: &u32| map.busy.ones(piece * PIECE_BLOCKS, PIECE_BLOCKS) > 0;
        let used = (0..u32::BITS).filter(in_use);
        self.candidates &= !used.fold(0, |bits, piece| bits | 1 << piece);
        let free = self.candidates & !spared;
        let last = free.checked_ilog2()?;
        let count = (free << (u32::BITS - 1 - last)).leading_ones();
        Some((last + 1 - count, count))
    }
}

impl Space {
    /// Returns the number of blocks of the device that have space on the host.
    pub(super) fn provisioned(&self) -> u64 {
        let total = self.total.load(Ordering::Relaxed);
        // Saturates: the two are read one after the other.
        total.saturating_sub(self.holes.load(Ordering::Relaxed))
    }

    /// Returns the number of available blocks that a discard should leave.
    pub fn discard_leaves(&self) -> u64 {
        DISCARD_LEAVES_STEPS * step(self.provisioned())
    }

    /// Discards one run of free pieces, if at least `leave` available blocks are left. Blocks the
    /// calling thread on the device. Returns true if another call may find more.
    pub fn discard(&self, leave: u64) -> bool {
        let left = self.left(self.reserved.load(Ordering::Acquire));
        if self.device.discards() == Discards::Never
            || !self.discarding.load(Ordering::Relaxed)
            || left < leave + u64::from(PIECE_BLOCKS)
        {
            return false;
        }
        let taken = match self.take_free_pieces(leave) {
            Search::Found(taken) => taken,
            Search::Continue => return true,
            Search::Nothing => return false,
        };
        let addr = address(taken.chunk, taken.first * PIECE_BLOCKS);
        let blocks = u64::from(taken.count * PIECE_BLOCKS);
        let result = self.device.discard(addr, blocks).wait();
        if let Err(error) = &result {
            self.discarding.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "cannot discard free space; the device keeps it until the next start");
        }
        self.finish_discard(&taken);
        result.is_ok()
    }

    /// Searches for free pieces, downwards from the last place, and takes them out of the free
    /// space.
    fn take_free_pieces(&self, leave: u64) -> Search {
        let state = &mut *self.state.lock();
        for _ in 0..state.chunks.len() {
            state.discard = match state.discard.min(state.chunks.len() as u32) {
                0 => state.chunks.len() as u32 - 1,
                at => at - 1,
            };
            let number = state.discard;
            let spared = spared(state, number);
            let worth =
                |chunk: &Chunk| chunk.candidates & !spared != 0 && chunk.free >= PIECE_BLOCKS;
            if !state.chunks.get(number as usize).is_some_and(worth) {
                continue;
            }
            let found = self.take_pieces_of(state, number, spared, leave);
            if matches!(found, Search::Found(_)) {
                // There may be more in this chunk.
                state.discard += 1;
            }
            return found;
        }
        Search::Nothing
    }

    fn take_pieces_of(&self, state: &mut State, number: u32, spared: u32, leave: u64) -> Search {
        let length = chunk_len(state.length, number);
        let loaded = state
            .chunks
            .get(number as usize)
            .is_some_and(|chunk| chunk.map.is_none());
        if !matches!(self.load(state, number), Ok(true)) {
            return Search::Continue;
        }
        let Some(chunk) = state.chunks.get_mut(number as usize) else {
            return Search::Continue;
        };
        let Some((lowest, free_pieces)) = chunk.free_pieces(spared) else {
            chunk.drop_map_if(loaded, length);
            return Search::Continue;
        };
        let count = self.reserve_pieces(free_pieces.min(DISCARD_PIECES), leave);
        if count == 0 {
            chunk.drop_map_if(loaded, length);
            return Search::Nothing;
        }
        // The upper part of the run.
        let first = lowest + free_pieces - count;
        let blocks = count * PIECE_BLOCKS;
        chunk.candidates &= !run_bits(first, count);
        if let Some((map, free, _)) = chunk.loaded() {
            map.busy.set(first * PIECE_BLOCKS, blocks);
            *free -= blocks;
            self.free.fetch_sub(u64::from(blocks), Ordering::Relaxed);
        }
        self.release_reserved(u64::from(blocks));
        Search::Found(PieceRun {
            chunk: number,
            first,
            count,
            loaded,
        })
    }

    /// Reserves the blocks of up to `most` pieces, so that `leave` stay available; returns the
    /// number of pieces.
    fn reserve_pieces(&self, most: u32, leave: u64) -> u32 {
        let mut granted = 0;
        let take = |reserved: u64| {
            // Saturates: less may be left.
            let beyond = self.left(reserved).saturating_sub(leave);
            granted = u64::from(most).min(beyond / u64::from(PIECE_BLOCKS));
            (granted > 0).then_some(reserved + granted * u64::from(PIECE_BLOCKS))
        };
        match self
            .reserved
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
        {
            Ok(_) => granted as u32,
            Err(_) => 0,
        }
    }

    /// Turns the pieces into holes, or makes them free again. After an error nobody knows which of
    /// them have space: as holes they are provisioned before they are used.
    fn finish_discard(&self, taken: &PieceRun) {
        let state = &mut *self.state.lock();
        let length = chunk_len(state.length, taken.chunk);
        let blocks = taken.count * PIECE_BLOCKS;
        let Some(chunk) = state.chunks.get_mut(taken.chunk as usize) else {
            invariant!(self.guard => false, "chunk {} was discarded in and is gone", taken.chunk);
            return;
        };
        if self.device.discards() == Discards::Deprovision {
            chunk.holes |= run_bits(taken.first, taken.count);
            self.holes.fetch_add(u64::from(blocks), Ordering::Relaxed);
            self.growth.fetch_add(u64::from(blocks), Ordering::Relaxed);
            self.exhausted.store(false, Ordering::Relaxed);
        } else if let Some((map, free, _)) = chunk.loaded() {
            map.busy.clear(taken.first * PIECE_BLOCKS, blocks);
            *free += blocks;
            self.free.fetch_add(u64::from(blocks), Ordering::Relaxed);
        }
        chunk.drop_map_if(taken.loaded, length);
    }

    /// Provisions holes again until `blocks` blocks have become free; returns `false` if none have.
    /// The caller holds `growing`.
    pub(super) fn fill_holes(&self, blocks: u64) -> bool {
        let mut filled = 0;
        while filled < blocks
            && let Some((number, first, most)) = self.lowest_holes()
        {
            let left = (blocks - filled).div_ceil(u64::from(PIECE_BLOCKS));
            let count = u64::from(most).min(left) as u32;
            // A host that is nearly full may still have space for one.
            let mut counts = [count, 1].into_iter();
            let Some(count) = counts.find(|count| self.provision(number, first, *count)) else {
                // The host has no space.
                break;
            };
            let state = &mut *self.state.lock();
            if let Some(chunk) = state.chunks.get_mut(number as usize) {
                self.fill(chunk, run_bits(first, count));
            }
            filled += u64::from(count * PIECE_BLOCKS);
        }
        filled > 0
    }

    /// Returns the first run of holes: (chunk, first piece, pieces).
    fn lowest_holes(&self) -> Option<(u32, u32, u32)> {
        if self.holes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let state = self.state.lock();
        let mut chunks = (0u32..).zip(&state.chunks);
        let (number, chunk) = chunks.find(|(_, chunk)| chunk.holes != 0)?;
        let (first, count) = runs(chunk.holes).next()?;
        Some((number, first, count))
    }

    /// Makes the device provision pieces; returns `false` if it cannot.
    fn provision(&self, number: u32, first: u32, count: u32) -> bool {
        let addr = address(number, first * PIECE_BLOCKS);
        let blocks = u64::from(count * PIECE_BLOCKS);
        match self.device.provision(addr, blocks) {
            Ok(()) => true,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::StorageFull {
                    tracing::warn!(%error, %addr, blocks, "cannot provision discarded space of the device");
                }
                false
            }
        }
    }

    /// Notes that the device has provisioned those of `pieces` that are holes.
    fn fill(&self, chunk: &mut Chunk, pieces: u32) {
        let pieces = chunk.holes & pieces;
        let blocks = pieces.count_ones() * PIECE_BLOCKS;
        chunk.holes &= !pieces;
        chunk.free += blocks;
        if let Some(map) = &mut chunk.map {
            for (first, count) in runs(pieces) {
                map.busy.clear(first * PIECE_BLOCKS, count * PIECE_BLOCKS);
            }
        }
        let blocks = u64::from(blocks);
        self.holes.fetch_sub(blocks, Ordering::Relaxed);
        self.free.fetch_add(blocks, Ordering::Relaxed);
        // Saturates: an estimate.
        let less = |growth: u64| Some(growth.saturating_sub(blocks));
        let _ = self
            .growth
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Notes the holes that the device has at the start, and provisions pieces that are in use.
    pub(super) fn find_holes(&self, state: &mut State) {
        let mut sparse = 0;
        let mut last = None;
        let result = self.device.find_discarded(&mut |addr, count| {
            let piece = u64::from(PIECE_BLOCKS);
            // Saturates: the numbers come from the host.
            let end = addr.0.saturating_add(count).min(state.length);
            for at in (addr.0 / piece..end.div_ceil(piece)).map(|n| n * piece) {
                if last.replace(at) == Some(at) || self.note_hole(state, BlockAddr(at)) {
                    continue;
                }
                let blocks = piece.min(state.length - at);
                if self.device.provision(BlockAddr(at), blocks).is_err() {
                    sparse += blocks;
                }
            }
        });
        if let Err(error) = result {
            self.discarding.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "cannot find the holes of the device; its free space is not discarded");
        }
        if sparse > 0 {
            tracing::warn!(
                blocks = sparse,
                "parts of the device that are in use have no space on the host, and it has none to give"
            );
        }
        self.growth
            .store(self.holes.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes that the piece at `at` lacks space; returns `false` if it is in use.
    fn note_hole(&self, state: &mut State, at: BlockAddr) -> bool {
        let length = state.length;
        let Some((number, bit, _)) = parts(at, 1).next() else {
            return false;
        };
        let Some(chunk) = state.chunks.get_mut(number as usize) else {
            return false;
        };
        let piece = pieces(bit, 1);
        let whole = bit + PIECE_BLOCKS <= chunk_len(length, number);
        if !whole || chunk.free < PIECE_BLOCKS || piece & fixed_pieces(number) != 0 {
            return false;
        }
        chunk.holes |= piece;
        chunk.free -= PIECE_BLOCKS;
        let blocks = u64::from(PIECE_BLOCKS);
        self.holes.fetch_add(blocks, Ordering::Relaxed);
        self.free.fetch_sub(blocks, Ordering::Relaxed);
        true
    }

    /// Provisions the holes in which `image` has blocks in use, before the map is used. They come
    /// from a crash, or from a copy of the device that left out zeros.
    pub(super) fn fill_used(&self, number: u32, chunk: &mut Chunk, image: &Bitmap) {
        for piece in 0..u32::BITS {
            let bit = 1 << piece;
            if chunk.holes & bit != 0 && image.ones(piece * PIECE_BLOCKS, PIECE_BLOCKS) > 0 {
                if !self.provision(number, piece, 1) {
                    tracing::warn!(
                        chunk = number,
                        piece,
                        "blocks in use have no space on the host"
                    );
                }
                self.fill(chunk, bit);
            }
        }
    }

    /// Provisions the holes among blocks that a record of the log refers to.
    pub(super) fn fill_recovered(&self, addr: BlockAddr, count: u32) {
        let state = &mut *self.state.lock();
        for (number, bit, len) in parts(addr, count) {
            let Some(chunk) = state.chunks.get_mut(number as usize) else {
                // The caller refuses blocks beyond the device.
                return;
            };
            let holes = chunk.holes & pieces(bit, len);
            for (first, count) in runs(holes) {
                if !self.provision(number, first, count) {
                    tracing::warn!(%addr, count, "blocks that the log refers to have no space on the host");
                }
            }
            self.fill(chunk, holes);
        }
    }
}
