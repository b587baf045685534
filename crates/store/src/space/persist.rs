//! Reads and writes the allocation map.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_base::{BlockAddr, Generation, Poison, invariant};

use super::bitmap::Bitmap;
use super::index::{self, Entry};
use super::{Chunk, Cursor, Group, KEPT_MAPS, Map, MapFault, MapRoot, Space, State, discard};
use crate::block::page_crc;
use crate::device::Device;
use crate::error::StoreError;
use crate::frame::{Class, Frame, FrameMut, FramePool};
use crate::layout::{self, CHUNK_BLOCKS, GROUP_CHUNKS};
use crate::superblock::{IndexRef, MAX_GROUPS};

/// Number of frames to read the map into.
const SCRATCH: usize = 16;

/// Returns the number of blocks of chunk `number` on a device of `length` blocks.
pub(super) fn chunk_len(length: u64, number: u32) -> u32 {
    // Saturates: a chunk may begin behind the end.
    let rest = length.saturating_sub(layout::chunk_start(number));
    rest.min(u64::from(CHUNK_BLOCKS)) as u32
}

impl Space {
    /// Opens the allocator from the superblock's references to the index; none for a new aggregate.
    ///
    /// # Errors
    /// [`StoreError::Format`] if the device is too small or too large, [`StoreError::Io`],
    /// [`StoreError::NoMemory`]. A damaged index block is no error: see [`Space::faults`].
    pub fn open(device: Arc<dyn Device>, references: &[IndexRef]) -> Result<Space, StoreError> {
        let mut state = State {
            length: 0,
            chunks: Vec::new(),
            groups: Vec::new(),
            data: Cursor::default(),
            // Away from data, even if there is only one chunk.
            meta: Cursor {
                chunk: 0,
                bit: CHUNK_BLOCKS / 4 * 3,
            },
            discard: 0,
        };
        let length = device.length();
        if length < layout::MIN_BLOCKS {
            return Err(StoreError::Format(
                "the device is smaller than 16 MiB".into(),
            ));
        }
        let space = Space {
            device,
            scratch: FramePool::new(SCRATCH).map_err(|_| StoreError::NoMemory)?,
            state: Mutex::new(State {
                chunks: Vec::new(),
                groups: Vec::new(),
                ..state
            }),
            guard: Arc::default(),
            growing: Mutex::new(()),
            exhausted: AtomicBool::new(false),
            reclaimable: Mutex::default(),
            reclaimable_blocks: AtomicU64::new(0),
            total: AtomicU64::new(0),
            holes: AtomicU64::new(0),
            discarding: AtomicBool::new(true),
            free: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            growth: AtomicU64::new(0),
            room: AtomicU64::new(u64::MAX),
            refusing: AtomicBool::new(false),
        };
        space.extend(&mut state, length)?;
        if references.len() > state.groups.len() {
            return Err(StoreError::Format(
                "the device is shorter than it was".into(),
            ));
        }
        for (number, reference) in (0u32..).zip(references) {
            if reference.generation.0 != 0 {
                space.load_group(&mut state, number, *reference)?;
            }
        }
        space.find_holes(&mut state);
        *space.state.lock() = state;
        Ok(space)
    }

    /// Makes violated invariants of the allocator poison an aggregate.
    pub(crate) fn guarded_by(self, guard: &Arc<Poison>) -> Space {
        Space {
            guard: Arc::clone(guard),
            ..self
        }
    }

    /// Takes the device's blocks up to `length` into use.
    pub(super) fn extend(&self, state: &mut State, length: u64) -> Result<(), StoreError> {
        let length = layout::usable(length);
        let chunks = layout::chunks(length)
            .filter(|n| n.div_ceil(GROUP_CHUNKS) as usize <= MAX_GROUPS)
            .ok_or_else(|| StoreError::Format("the device is larger than 124 TiB".into()))?;
        if length <= state.length {
            return Ok(());
        }
        let before = std::mem::replace(&mut state.length, length);
        let mut added = 0;
        // The chunk that ended the device until now may become longer.
        for number in (before / u64::from(CHUNK_BLOCKS)) as u32..chunks {
            let len = chunk_len(length, number);
            let old = chunk_len(before, number);
            if let Some(chunk) = state.chunks.get_mut(number as usize) {
                if let Some(map) = &mut chunk.map {
                    map.busy.clear(old, len - old);
                }
                if chunk.fault.is_none() {
                    chunk.free += len - old;
                    added += u64::from(len - old);
                }
            } else {
                let fixed: u32 = layout::fixed(number).map(|(_, count)| count).sum();
                let entry = Entry {
                    used: fixed,
                    ..Entry::default()
                };
                let free = len - fixed;
                state.chunks.push(Chunk {
                    entry,
                    free,
                    candidates: u32::MAX,
                    ..Chunk::default()
                });
                added += u64::from(free);
            }
        }
        state
            .groups
            .resize(chunks.div_ceil(GROUP_CHUNKS) as usize, Group::default());
        self.free.fetch_add(added, Ordering::Relaxed);
        self.total.store(length, Ordering::Relaxed);
        // One part in 32, from 1 MiB to 256 MiB. Estimated: a checkpoint rewrites a few thousand
        // nodes unless it is large, and the blocks of a large one are reserved in advance.
        self.floor
            .store((length / 32).clamp(256, 65_536), Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, addr: BlockAddr) -> Result<FrameMut, StoreError> {
        let frame = self.scratch.alloc(Class::Cp).ok_or(StoreError::NoMemory)?;
        let mut frames = self.device.read(addr, vec![frame]).wait()?;
        frames.pop().ok_or(StoreError::NoMemory)
    }

    fn load_group(
        &self,
        state: &mut State,
        number: u32,
        reference: IndexRef,
    ) -> Result<(), StoreError> {
        let addr = layout::index_page(number, reference.slot);
        let entries = match self.read(addr) {
            Ok(page) if page_crc(&page) == reference.crc => {
                index::decode(&page, number, reference.generation)
            }
            Ok(_) | Err(StoreError::Io(_)) => None,
            Err(other) => return Err(other),
        };
        let what = "index block of the allocation map is damaged";
        if entries.is_none() {
            tracing::error!(%addr, group = number, what);
        }
        if let Some(group) = state.groups.get_mut(number as usize) {
            *group = Group {
                reference,
                damaged: entries.is_none(),
            };
        }
        let first = number * GROUP_CHUNKS;
        let length = state.length;
        for (i, chunk) in (0u32..).zip(state.chunks.iter_mut().skip(first as usize)) {
            if i == GROUP_CHUNKS {
                break;
            }
            let before = chunk.free;
            match &entries {
                None => {
                    chunk.fault = Some(MapFault {
                        chunk: first + i,
                        addr,
                        what,
                    });
                    chunk.free = 0;
                }
                Some(entries) => {
                    if let Some(entry) = entries.get(i as usize).filter(|e| e.generation.0 != 0) {
                        chunk.entry = *entry;
                        // Saturates: the number comes from the disk. If it is larger, the map is
                        // damaged, which is found when it is read.
                        chunk.free = chunk_len(length, first + i).saturating_sub(entry.used);
                    }
                }
            }
            self.free
                .fetch_add(u64::from(chunk.free), Ordering::Relaxed);
            self.free.fetch_sub(u64::from(before), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Loads a chunk's map into memory; returns `false` if there is no such chunk or its map is
    /// damaged.
    ///
    /// Reads one block with the allocator locked. That happens once for each 128 MiB that a cursor
    /// moves through, and at a chunk's first change since its map was dropped
    /// ([`Space::drop_idle_maps`]).
    pub(super) fn load(&self, state: &mut State, number: u32) -> Result<bool, StoreError> {
        let length = chunk_len(state.length, number);
        let Some(chunk) = state.chunks.get_mut(number as usize) else {
            return Ok(false);
        };
        chunk.touched = true;
        if chunk.fault.is_some() || chunk.map.is_some() {
            return Ok(chunk.fault.is_none());
        }
        let addr = layout::map_page(number, chunk.entry.slot);
        let image = if chunk.entry.generation.0 == 0 {
            let mut image = Bitmap::new();
            layout::fixed(number).for_each(|(at, count)| image.set(at, count));
            Ok(image)
        } else {
            match self.read(addr) {
                Ok(page) if page_crc(&page) != chunk.entry.crc => Err("map page is damaged"),
                Ok(page) => Ok(Bitmap::decode(&page)),
                Err(StoreError::Io(_)) => Err("map page cannot be read"),
                Err(other) => return Err(other),
            }
        };
        let image = image.and_then(|image| {
            let beyond = image.ones(length, CHUNK_BLOCKS - length);
            if beyond == 0 && image.ones(0, length) == chunk.entry.used {
                Ok(image)
            } else {
                Err("map page does not match its index entry")
            }
        });
        match image {
            Ok(image) => {
                self.fill_used(number, chunk, &image);
                let mut busy = image.clone();
                busy.set(length, CHUNK_BLOCKS - length);
                discard::set_holes(&mut busy, chunk.holes);
                chunk.map = Some(Map { image, busy });
                Ok(true)
            }
            Err(what) => {
                tracing::error!(%addr, chunk = number, what, "cannot use an allocation map page; its chunk receives no new blocks");
                chunk.fault = Some(MapFault {
                    chunk: number,
                    addr,
                    what,
                });
                self.free
                    .fetch_sub(u64::from(chunk.free), Ordering::Relaxed);
                chunk.free = 0;
                self.holes
                    .fetch_sub(u64::from(chunk.hole_blocks()), Ordering::Relaxed);
                chunk.holes = 0;
                Ok(false)
            }
        }
    }

    /// Drops maps that were not used since the last checkpoint, if there are more than
    /// [`KEPT_MAPS`].
    fn drop_idle_maps(&self) {
        let state = &mut *self.state.lock();
        let loaded = state.chunks.iter().filter(|c| c.map.is_some()).count();
        // Saturates: there may be none too many.
        let mut excess = loaded.saturating_sub(KEPT_MAPS);
        let length = state.length;
        for (number, chunk) in (0u32..).zip(&mut state.chunks) {
            let idle = !std::mem::take(&mut chunk.touched);
            let as_written = chunk.is_as_written(chunk_len(length, number));
            if excess > 0 && idle && as_written && chunk.map.take().is_some() {
                excess -= 1;
            }
        }
    }

    /// Passes the changed pages of map and index to `write`, each for the slot that the newest
    /// superblock does not refer to. Returns the references for the next superblock.
    ///
    /// From here on the pages count as written. A checkpoint that fails afterwards must not be
    /// followed by another before a restart.
    ///
    /// # Errors
    /// As `frame` and `write`.
    pub fn write_out(
        &self,
        generation: Generation,
        frame: &mut dyn FnMut() -> Result<FrameMut, StoreError>,
        write: &mut dyn FnMut(BlockAddr, Frame) -> Result<(), StoreError>,
    ) -> Result<MapRoot, StoreError> {
        self.drop_idle_maps();
        // The state read here changes only while a checkpoint is written, so the lock can be
        // released between pages.
        let (length, chunks, groups) = {
            let state = self.state.lock();
            (
                state.length,
                state.chunks.len() as u32,
                state.groups.len() as u32,
            )
        };
        let mut changed = Vec::new();
        for number in 0..chunks {
            let dirty = |chunk: &Chunk| chunk.dirty && chunk.fault.is_none();
            if !self
                .state
                .lock()
                .chunks
                .get(number as usize)
                .is_some_and(dirty)
            {
                continue;
            }
            let mut page = frame()?;
            let addr = {
                let mut state = self.state.lock();
                let Some(chunk) = state.chunks.get_mut(number as usize) else {
                    invariant!(self.guard => false, "chunk {number} is there no more");
                    continue;
                };
                let Some(map) = &chunk.map else {
                    invariant!(self.guard => false, "chunk {number} has changed and has no map");
                    continue;
                };
                map.image.encode(&mut page);
                chunk.entry = Entry {
                    generation,
                    crc: page_crc(&page),
                    slot: chunk.entry.slot.other(),
                    used: map.image.ones(0, CHUNK_BLOCKS),
                };
                chunk.dirty = false;
                layout::map_page(number, chunk.entry.slot)
            };
            write(addr, page.freeze())?;
            let group = number / GROUP_CHUNKS;
            if changed.last() != Some(&group) {
                changed.push(group);
            }
        }
        for number in changed {
            let mut page = frame()?;
            let addr = {
                let mut state = self.state.lock();
                let State { chunks, groups, .. } = &mut *state;
                let first = (number * GROUP_CHUNKS) as usize;
                let end = chunks.len().min(first + GROUP_CHUNKS as usize);
                let (Some(entries), Some(group)) =
                    (chunks.get(first..end), groups.get_mut(number as usize))
                else {
                    invariant!(self.guard => false, "chunks of group {number} have changed, which is not there");
                    continue;
                };
                if group.damaged {
                    continue;
                }
                index::encode(
                    &mut page,
                    number,
                    generation,
                    entries.iter().map(|c| c.entry),
                );
                let slot = group.reference.slot.other();
                group.reference = IndexRef {
                    generation,
                    crc: page_crc(&page),
                    slot,
                };
                layout::index_page(number, slot)
            };
            write(addr, page.freeze())?;
        }
        let state = self.state.lock();
        // The device may have grown meanwhile: the added part is still empty.
        let index = state
            .groups
            .iter()
            .take(groups as usize)
            .map(|g| g.reference)
            .collect();
        Ok(MapRoot { length, index })
    }
}
