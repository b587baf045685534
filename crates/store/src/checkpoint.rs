//! Writing a checkpoint.
//!
//! A [`CpWriter`] receives everything that a checkpoint writes: file data, tree nodes, and finally
//! the allocation map. It allocates from the share of memory and blocks reserved for checkpoints,
//! collects tree nodes into long writes, keeps a bounded amount in flight, and gathers freed
//! blocks. Nothing durable refers to its blocks before
//! [`Aggregate::commit`](crate::Aggregate::commit) has written the superblock. It writes to no
//! block that the last durable checkpoint refers to. So a crash at any moment leaves that
//! checkpoint intact.
//!
//! A failed checkpoint cannot be undone, because the allocator already counts it as written. It
//! poisons the aggregate, and the next start begins at the last durable checkpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_base::limits::engine::{CHECKPOINT_MEMORY_SHARE as MEMORY_SHARE, NODE_RESERVE};
use weir_base::{BlockAddr, Generation, invariant};

use crate::aggregate::Aggregate;
use crate::block::BlockPtr;
use crate::device::Io;
use crate::error::StoreError;
use crate::frame::{Class, Frame, FrameMut};
use crate::space::Stream;
use crate::tree::NodeSink;

/// A run of consecutive blocks with the same birth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First block.
    pub addr: BlockAddr,
    /// Number of consecutive blocks, all with this birth.
    pub count: u32,
    /// The checkpoint that wrote them.
    pub birth: Generation,
}

/// A checkpoint being written.
pub struct CpWriter {
    agg: Arc<Aggregate>,
    generation: Generation,
    /// Blocks reserved for nodes: the next one and the number left.
    node_space: (BlockAddr, u32),
    /// Nodes with consecutive blocks whose write has not started.
    node_run: Option<(BlockAddr, Vec<Frame>)>,
    /// Other frames with consecutive blocks whose write has not started. Small files get
    /// consecutive blocks: a write for each would cost more than the rest of the work for it.
    data_run: Option<(BlockAddr, Vec<Frame>)>,
    flight: VecDeque<(Io<()>, usize)>,
    in_flight: usize,
    /// Maximum number of blocks in flight.
    limit: usize,
    /// Maximum number of blocks in one write.
    longest_run: usize,
    freed: Vec<Run>,
    /// Reserved blocks that the log refers to until it is cut, and no tree ever will.
    unused: Vec<(BlockAddr, u32)>,
    retain: Option<Generation>,
    retained: Vec<Run>,
    /// Blocks born at or before this generation belong to the volume that this one was cloned from.
    origin_generation: Generation,
    written: u64,
    /// True once the allocator's image has been changed.
    touched: bool,
    /// True until the checkpoint is committed or dropped.
    open: bool,
}

impl CpWriter {
    pub(crate) fn new(agg: Arc<Aggregate>, generation: Generation) -> CpWriter {
        let hints = agg.device().hints();
        let limit = (agg.pool().total() / MEMORY_SHARE).clamp(1, hints.writes_in_flight);
        CpWriter {
            generation,
            node_space: (BlockAddr(0), 0),
            node_run: None,
            data_run: None,
            flight: VecDeque::new(),
            in_flight: 0,
            limit,
            longest_run: hints.longest_write.min(limit),
            freed: Vec::new(),
            unused: Vec::new(),
            retain: None,
            retained: Vec::new(),
            origin_generation: Generation(0),
            written: 0,
            touched: false,
            open: true,
            agg,
        }
    }

    /// Returns the checkpoint's number: the birth of all blocks that it writes.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Separates the roots written so far from those written later by the birth of their blocks,
    /// because a snapshot was made here. Later blocks have a higher birth. The parity stays, as it
    /// chooses the superblock's slot.
    ///
    /// # Errors
    /// [`StoreError::Format`] if there are no more numbers.
    pub fn bump_generation(&mut self) -> Result<(), StoreError> {
        let next = self.generation.0.checked_add(2);
        self.generation = next
            .map(Generation)
            .ok_or_else(|| StoreError::Format("no checkpoint number is left".into()))?;
        Ok(())
    }

    /// Marks blocks born at or before `until` as those of the volume that this one is a clone of.
    /// They are neither freed nor collected when they are replaced. Generation 0: all blocks are
    /// the volume's own.
    pub fn origin_generation(&mut self, until: Generation) {
        self.origin_generation = until;
    }

    /// Returns the number of blocks written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Allocates up to `want` blocks for file data, starting at `near` if that is free. They are
    /// part of this checkpoint.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`].
    pub fn alloc(
        &mut self,
        want: u32,
        near: Option<BlockAddr>,
    ) -> Result<(BlockAddr, u32), StoreError> {
        self.touched = true;
        let space = self.agg.space();
        let (addr, count) = space.allocate(want, near, Stream::Data, Class::Cp)?;
        space.commit(addr, count)?;
        Ok((addr, count))
    }

    /// Makes blocks part of this checkpoint that were allocated and written before, in the
    /// foreground.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if they are not allocated.
    pub fn commit(&mut self, addr: BlockAddr, count: u32) -> Result<(), StoreError> {
        self.touched = true;
        self.agg.space().commit(addr, count)
    }

    /// Takes over allocated blocks that no tree refers to: a log record before the cut refers to
    /// them, but the data has been overwritten since. They can be allocated again only when the
    /// checkpoint is durable. Until then a crash would have that record applied.
    pub fn unused(&mut self, addr: BlockAddr, count: u32) {
        self.unused.push((addr, count));
    }

    /// Queues `frames` for blocks that [`CpWriter::alloc`] returned; consecutive blocks are written
    /// together. Blocks while too much is in flight. The data is durable when the checkpoint is.
    ///
    /// # Errors
    /// The error of an earlier write; the checkpoint has failed in that case.
    pub fn write(&mut self, addr: BlockAddr, mut frames: Vec<Frame>) -> Result<(), StoreError> {
        let most = self.longest_run;
        if let Some((at, run)) = &mut self.data_run
            && at.0 + run.len() as u64 == addr.0
            && run.len() + frames.len() <= most
        {
            run.append(&mut frames);
        } else {
            self.flush_data()?;
            self.data_run = Some((addr, frames));
        }
        match &self.data_run {
            Some((_, run)) if run.len() >= most => self.flush_data(),
            _ => Ok(()),
        }
    }

    fn submit(&mut self, addr: BlockAddr, frames: Vec<Frame>) -> Result<(), StoreError> {
        let count = frames.len();
        while self.in_flight > 0 && self.in_flight + count > self.limit {
            self.land()?;
        }
        self.in_flight += count;
        self.written += count as u64;
        self.flight
            .push_back((self.agg.device().write(addr, frames), count));
        Ok(())
    }

    /// Blocks until at most `blocks` blocks are in flight.
    ///
    /// # Errors
    /// The error of a write; the checkpoint has failed in that case.
    pub fn hold(&mut self, blocks: usize) -> Result<(), StoreError> {
        while self.in_flight > blocks {
            self.land()?;
        }
        Ok(())
    }

    /// Blocks until the oldest write in flight is complete.
    fn land(&mut self) -> Result<(), StoreError> {
        if let Some((io, count)) = self.flight.pop_front() {
            self.in_flight -= count;
            io.wait()?;
        }
        Ok(())
    }

    /// Sets the birth of the newest snapshot. Blocks born at or before `newest` are not freed when
    /// they are replaced, but collected for [`CpWriter::take_retained`]. `None` frees all blocks.
    pub fn retain(&mut self, newest: Option<Generation>) {
        self.retain = newest;
    }

    /// Takes the replaced blocks that a snapshot still refers to: for its deadlist.
    pub fn take_retained(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.retained)
    }

    /// Notes that the live tree no longer refers to these blocks.
    pub fn freed_run(&mut self, run: Run) {
        invariant!(self.agg.guard() => run.birth <= self.generation, "block {} of checkpoint {} is freed by {}", run.addr, run.birth, self.generation);
        if run.birth <= self.origin_generation {
            return;
        }
        let list = match self.retain {
            Some(newest) if run.birth <= newest => &mut self.retained,
            _ => &mut self.freed,
        };
        match list.last_mut() {
            Some(last)
                if last.birth == run.birth
                    && last.addr.0 + u64::from(last.count) == run.addr.0
                    && last.count.checked_add(run.count).is_some() =>
            {
                last.count += run.count;
            }
            _ => list.push(run),
        }
    }

    /// Frees blocks whatever their birth: those of a deadlist.
    pub fn release(&mut self, run: Run) {
        let retain = self.retain.take();
        let origin_generation = std::mem::replace(&mut self.origin_generation, Generation(0));
        self.freed_run(run);
        self.origin_generation = origin_generation;
        self.retain = retain;
    }

    fn flush_nodes(&mut self) -> Result<(), StoreError> {
        match self.node_run.take() {
            Some((addr, frames)) => self.submit(addr, frames),
            None => Ok(()),
        }
    }

    fn flush_data(&mut self) -> Result<(), StoreError> {
        match self.data_run.take() {
            Some((addr, frames)) => self.submit(addr, frames),
            None => Ok(()),
        }
    }

    /// Blocks until all writes are complete.
    pub(crate) fn wait_all(&mut self) -> Result<(), StoreError> {
        self.flush_nodes()?;
        self.flush_data()?;
        while !self.flight.is_empty() {
            self.land()?;
        }
        Ok(())
    }

    /// Ends allocation: releases the blocks that were allocated but not used, takes the freed
    /// blocks out of the image, and returns the freed ones.
    pub(crate) fn close_allocation(&mut self) -> Result<Vec<(BlockAddr, u32)>, StoreError> {
        let (addr, left) = std::mem::take(&mut self.node_space);
        if left > 0 {
            self.agg.space().abandon(addr, left);
        }
        let freed = std::mem::take(&mut self.freed);
        for run in &freed {
            self.agg.space().free(run.addr, run.count)?;
        }
        let mut reclaimable = std::mem::take(&mut self.unused);
        reclaimable.extend(freed.into_iter().map(|run| (run.addr, run.count)));
        Ok(reclaimable)
    }

    /// Ends the checkpoint after it has become durable, or its failure has poisoned the aggregate.
    pub(crate) fn done(mut self) {
        let left = self.retained.len();
        invariant!(self.agg.guard() => left == 0, "{left} runs of dead blocks are noted nowhere");
        self.open = false;
    }
}

impl NodeSink for CpWriter {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn frame(&mut self) -> Result<FrameMut, StoreError> {
        loop {
            if let Some(frame) = self.agg.cache().alloc(Class::Cp) {
                return Ok(frame);
            }
            // Writes in flight need this checkpoint's frames, so it waits for them.
            self.flush_nodes()?;
            self.flush_data()?;
            if self.flight.is_empty() {
                return Err(StoreError::NoMemory);
            }
            self.land()?;
        }
    }

    fn write_node(&mut self, node: FrameMut) -> Result<BlockPtr, StoreError> {
        if self.node_space.1 == 0 {
            self.touched = true;
            let space = self.agg.space();
            self.node_space = space.allocate(NODE_RESERVE, None, Stream::Meta, Class::Cp)?;
        }
        let (addr, left) = self.node_space;
        self.agg.space().commit(addr, 1)?;
        self.node_space = (BlockAddr(addr.0 + 1), left - 1);

        let ptr = BlockPtr::to_page(addr, self.generation, &node);
        let frame = node.freeze();
        self.agg.cache().insert(ptr, frame.clone());
        let follows = |run: &(BlockAddr, Vec<Frame>)| run.0.0 + run.1.len() as u64 == addr.0;
        if !self.node_run.as_ref().is_some_and(follows) {
            self.flush_nodes()?;
        }
        let (_, run) = self.node_run.get_or_insert_with(|| (addr, Vec::new()));
        run.push(frame);
        if run.len() >= self.longest_run {
            self.flush_nodes()?;
        }
        Ok(ptr)
    }

    fn freed(&mut self, ptr: BlockPtr) {
        self.freed_run(Run {
            addr: ptr.addr,
            count: 1,
            birth: ptr.birth,
        });
    }
}

impl Drop for CpWriter {
    fn drop(&mut self) {
        if self.open {
            self.agg.abandoned(self.touched);
        }
    }
}
