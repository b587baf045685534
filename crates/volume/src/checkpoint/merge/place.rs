//! Allocates device blocks for changed pages, in runs as long as possible.

use weir_base::limits::engine::CHECKPOINT_CALM_IN_FLIGHT as CALM_IN_FLIGHT;
use weir_base::{BLOCK_SIZE, BlockAddr};
use weir_store::block::page_crc;
use weir_store::frame::Frame;
use weir_store::tree::NodeSource;
use weir_store::{BlockPtr, StoreError};

use super::Merge;
use crate::format::record::StoredBlock;
use crate::overlay::direct::LONGEST_WRITE;
use crate::overlay::file_delta::FileDelta;

impl<S: NodeSource> Merge<'_, S> {
    /// Allocates a block for every page that has none, and queues its write.
    pub(super) fn place(
        &mut self,
        data: &FileDelta,
    ) -> Result<Vec<(u64, StoredBlock)>, StoreError> {
        let mut placed = Vec::with_capacity(data.pages().len());
        let mut run: Vec<(u64, Frame, u32)> = Vec::new();
        let mut adopted = (BlockAddr(0), 0);
        for (block, page) in data.pages().iter() {
            if let Some(place) = &page.placed {
                self.write_run(&mut run, &mut placed)?;
                let (first, count) = adopted;
                if first.0 + u64::from(count) != place.addr.0 {
                    self.adopt(adopted)?;
                    adopted = (place.addr, 0);
                }
                adopted.1 += 1;
                let stored = StoredBlock {
                    addr: place.addr,
                    birth: self.cp.generation(),
                    crc: place.crc,
                };
                if let Some(frame) = &page.frame {
                    self.keep(stored, frame);
                }
                placed.push((block, stored));
                continue;
            }
            let Some(frame) = &page.frame else {
                unreachable!("a page is somewhere");
            };
            run.push((block, frame.clone(), page_crc(frame)));
            if run.len() == LONGEST_WRITE {
                self.write_run(&mut run, &mut placed)?;
            }
        }
        self.adopt(adopted)?;
        self.write_run(&mut run, &mut placed)?;
        Ok(placed)
    }

    /// Adds already written blocks to the checkpoint.
    fn adopt(&mut self, (addr, count): (BlockAddr, u32)) -> Result<(), StoreError> {
        if count > 0 {
            self.cp.commit(addr, count)?;
            self.progressed(u64::from(count) * BLOCK_SIZE as u64);
        }
        Ok(())
    }

    pub(super) fn write_run(
        &mut self,
        run: &mut Vec<(u64, Frame, u32)>,
        placed: &mut Vec<(u64, StoredBlock)>,
    ) -> Result<(), StoreError> {
        let birth = self.cp.generation();
        let mut rest = std::mem::take(run);
        while !rest.is_empty() {
            let (addr, count) = self.cp.alloc(rest.len() as u32, None)?;
            let tail = rest.split_off((count as usize).min(rest.len()));
            for (i, (block, frame, crc)) in (0u64..).zip(&rest) {
                let stored = StoredBlock {
                    addr: BlockAddr(addr.0 + i),
                    birth,
                    crc: *crc,
                };
                self.keep(stored, frame);
                placed.push((*block, stored));
            }
            self.progressed((rest.len() * BLOCK_SIZE) as u64);
            self.give_way()?;
            self.cp
                .write(addr, rest.into_iter().map(|(_, frame, _)| frame).collect())?;
            rest = tail;
        }
        Ok(())
    }

    /// Yields the device to the log, once for each longest write.
    fn give_way(&mut self) -> Result<(), StoreError> {
        let written = self.cp.written();
        if written - self.gave_way >= LONGEST_WRITE as u64 {
            self.gave_way = written;
            let schedule = &self.vol.core.schedule;
            schedule.give_way();
            if !schedule.hurries() {
                self.cp.hold(CALM_IN_FLIGHT)?;
            }
        }
        Ok(())
    }

    /// Keeps a page that is being written in the cache, where reads find it once the overlay is
    /// dropped.
    fn keep(&self, stored: StoredBlock, frame: &Frame) {
        let ptr = BlockPtr {
            addr: stored.addr,
            birth: stored.birth,
            crc: stored.crc,
        };
        self.vol.core.agg.cache().insert(ptr, frame.clone());
    }
}
