//! Compares the allocation map with the reachable blocks.

use std::sync::atomic::Ordering;

use weir_base::BlockAddr;

use super::bitmap::Bitmap;
use super::persist::chunk_len;
use super::{Chunk, Map, MapFault, Space, address, discard, parts};
use crate::error::StoreError;
use crate::layout::{self, CHUNK_BLOCKS};

/// The set of blocks found to be referred to.
#[derive(Clone, Default)]
pub struct Usage {
    chunks: Vec<Option<Box<Bitmap>>>,
}

impl Usage {
    /// Creates a set without any reference.
    pub fn new() -> Usage {
        Usage::default()
    }

    /// Notes a reference to `count` blocks from `addr` on, and returns the number of them that had
    /// one already. Blocks beyond any device are not noted, and count as referred to twice.
    pub fn claim(&mut self, addr: BlockAddr, count: u32) -> u32 {
        let mut twice = count;
        for (chunk, bit, len) in parts(addr, count) {
            let chunk = chunk as usize;
            // 128 TiB: keeps a wild address from taking all memory.
            if chunk >= 1 << 20 {
                break;
            }
            if self.chunks.len() <= chunk {
                self.chunks.resize_with(chunk + 1, || None);
            }
            if let Some(map) = self.chunks.get_mut(chunk) {
                let map = map.get_or_insert_with(Bitmap::new);
                twice -= len - map.ones(bit, len);
                map.set(bit, len);
            }
        }
        twice
    }

    /// Returns the number of these blocks that something refers to.
    pub fn count(&self, addr: BlockAddr, count: u32) -> u32 {
        let ones = |(chunk, bit, len): (u32, u32, u32)| match self.chunks.get(chunk as usize) {
            Some(Some(map)) => map.ones(bit, len),
            _ => 0,
        };
        parts(addr, count).map(ones).sum()
    }

    /// Returns the number of blocks referred to here and nowhere in `others`.
    pub fn alone(&self, others: &[&Usage]) -> u64 {
        let mut blocks = 0;
        for (number, chunk) in (0u32..).zip(&self.chunks) {
            let Some(own) = chunk else { continue };
            let mut rest = own.clone();
            for other in others {
                if let Some(Some(map)) = other.chunks.get(number as usize) {
                    rest.remove(map);
                }
            }
            blocks += u64::from(rest.ones(0, CHUNK_BLOCKS));
        }
        blocks
    }

    fn claimed(&self, number: u32) -> Box<Bitmap> {
        match self.chunks.get(number as usize) {
            Some(Some(map)) => map.clone(),
            _ => Bitmap::new(),
        }
    }

    /// Returns the correct map of a chunk.
    fn image(&self, number: u32) -> Box<Bitmap> {
        let mut image = self.claimed(number);
        layout::fixed(number).for_each(|(at, count)| image.set(at, count));
        image
    }
}

/// A disagreement between the allocation map and the blocks in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// Allocated, but nothing refers to these blocks.
    Leak(BlockAddr, u32),
    /// Referred to, but free in the map, or beyond the device.
    Missing(BlockAddr, u32),
}

impl Space {
    /// Returns the parts of the map that were found damaged. [`Space::compare`] reads all map
    /// pages.
    pub fn faults(&self) -> Vec<MapFault> {
        self.state
            .lock()
            .chunks
            .iter()
            .filter_map(|chunk| chunk.fault)
            .collect()
    }

    /// Compares the map with the blocks in use. Chunks with a damaged map are passed over.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`].
    pub fn compare(&self, usage: &Usage) -> Result<Vec<Mismatch>, StoreError> {
        let mut out = Vec::new();
        let state = &mut *self.state.lock();
        let chunks = state.chunks.len().max(usage.chunks.len()) as u32;
        for number in 0..chunks {
            let beyond = number as usize >= state.chunks.len();
            if beyond
                && usage
                    .chunks
                    .get(number as usize)
                    .is_none_or(Option::is_none)
            {
                continue;
            }
            if !beyond && !self.load(state, number)? {
                continue;
            }
            let want = if beyond {
                usage.claimed(number)
            } else {
                usage.image(number)
            };
            let nothing = Bitmap::new();
            let image = match state.chunks.get(number as usize) {
                Some(Chunk { map: Some(map), .. }) => &map.image,
                _ => &nothing,
            };
            let leaks = image.minus(&want);
            let missing = want.minus(image);
            out.extend(
                leaks
                    .runs()
                    .map(|(at, len)| Mismatch::Leak(address(number, at), len)),
            );
            out.extend(
                missing
                    .runs()
                    .map(|(at, len)| Mismatch::Missing(address(number, at), len)),
            );
        }
        Ok(out)
    }

    /// Rebuilds the map from the blocks in use, its damaged parts included. It is for repair, with
    /// nothing allocated and no checkpoint in progress; the next checkpoint writes the map.
    pub fn rebuild(&self, usage: &Usage) {
        let state = &mut *self.state.lock();
        let length = state.length;
        let mut free = 0;
        for (number, chunk) in (0u32..).zip(&mut state.chunks) {
            let len = chunk_len(length, number);
            let mut image = usage.image(number);
            image.clear(len, CHUNK_BLOCKS - len);
            let used = image.ones(0, len);
            let same = chunk.map.as_ref().is_some_and(|map| map.image == image);
            chunk.dirty |= !same;
            chunk.fault = None;
            chunk.map = None;
            self.fill_used(number, chunk, &image);
            chunk.free = len - used - chunk.hole_blocks();
            free += u64::from(chunk.free);
            let mut busy = image.clone();
            busy.set(len, CHUNK_BLOCKS - len);
            discard::set_holes(&mut busy, chunk.holes);
            chunk.map = Some(Map { image, busy });
        }
        for group in &mut state.groups {
            group.damaged = false;
        }
        self.free.store(free, Ordering::Relaxed);
    }
}
