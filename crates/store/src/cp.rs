//! Writing a checkpoint.
//!
//! A [`CpWriter`] is where everything goes that a checkpoint writes: file
//! data, tree nodes, at last the allocation map. It allocates from the share of
//! memory and blocks that is kept for checkpoints, collects tree nodes
//! into long writes, keeps a bounded amount in flight, and gathers what becomes
//! free. Nothing that it writes is referred to by anything durable before
//! [`Aggregate::commit`](crate::Aggregate::commit) has written the superblock,
//! and it writes to no block that the last durable checkpoint refers to.
//! So at any moment a crash leaves that one intact.
//!
//! A checkpoint that fails cannot be undone: the allocator already counts it as written. It
//! poisons the aggregate, and the next start begins at the last durable one.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_base::limits::engine::{
    CHECKPOINT_IN_FLIGHT as IN_FLIGHT, CHECKPOINT_MEMORY_SHARE as MEMORY_SHARE, NODE_RESERVE,
    NODE_WRITE as RUN,
};
use weir_base::{BlockAddr, Generation, invariant};

use crate::aggregate::Aggregate;
use crate::block::BlockPtr;
use crate::device::Io;
use crate::error::StoreError;
use crate::frame::{Class, Frame, FrameMut};
use crate::space::Stream;
use crate::tree::NodeSink;

/// Blocks with the same birth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first of them.
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
    /// Reserved for nodes: the next block and how many are left.
    node_space: (BlockAddr, u32),
    /// Nodes with consecutive blocks that are not being written yet.
    node_run: Option<(BlockAddr, Vec<Frame>)>,
    /// The same of other blocks. Small files get consecutive blocks: a write for each would cost
    /// more than everything else that is done for it.
    data_run: Option<(BlockAddr, Vec<Frame>)>,
    flight: VecDeque<(Io<()>, usize)>,
    in_flight: usize,
    /// Bound of what is in flight, in blocks, and of a run of nodes.
    limit: usize,
    freed: Vec<Run>,
    /// Reserved blocks that the log refers to for as long as it is not cut, and no tree ever will.
    unused: Vec<(BlockAddr, u32)>,
    retain: Option<Generation>,
    retained: Vec<Run>,
    /// What is this old belongs to another volume.
    origin_generation: Generation,
    written: u64,
    /// The allocator's image has been changed.
    touched: bool,
    /// Neither committed nor dropped.
    open: bool,
}

impl CpWriter {
    pub(crate) fn new(agg: Arc<Aggregate>, generation: Generation) -> CpWriter {
        CpWriter {
            generation,
            node_space: (BlockAddr(0), 0),
            node_run: None,
            data_run: None,
            flight: VecDeque::new(),
            in_flight: 0,
            limit: (agg.pool().total() / MEMORY_SHARE).clamp(1, IN_FLIGHT),
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

    /// The checkpoint's number: the birth of all that it writes.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Ends a part of the checkpoint whose roots are to be distinguished from what follows
    /// by the birth of their blocks: a snapshot was made here. What is written from now on has a
    /// later birth. The parity stays: it chooses the superblock's slot.
    ///
    /// # Errors
    /// [`StoreError::Format`] if there are no more numbers.
    pub fn bump_generation(&mut self) -> Result<(), StoreError> {
        let next = self.generation.0.checked_add(2);
        self.generation = next
            .map(Generation)
            .ok_or_else(|| StoreError::Format("generations are used up".into()))?;
        Ok(())
    }

    /// From now on, what was born at or before `until` is neither freed nor collected
    /// when it is replaced: it belongs to the volume that this one is a clone of.
    /// Generation 0: everything is the volume's own.
    pub fn origin_generation(&mut self, until: Generation) {
        self.origin_generation = until;
    }

    /// Blocks written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Allocates up to `want` blocks for file data, from `near` on if that is
    /// free. They are part of this checkpoint.
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

    /// Takes blocks into this checkpoint that were allocated and written
    /// before, in the foreground.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if they are not allocated.
    pub fn commit(&mut self, addr: BlockAddr, count: u32) -> Result<(), StoreError> {
        self.touched = true;
        self.agg.space().commit(addr, count)
    }

    /// Takes allocated blocks of which nothing came: a record of the log before the cut
    /// refers to them, but what it says has been overwritten since. They can be allocated
    /// again when the checkpoint is durable, and not before: until then a crash
    /// would have that record applied.
    pub fn unused(&mut self, addr: BlockAddr, count: u32) {
        self.unused.push((addr, count));
    }

    /// Queues `frames` for blocks that [`CpWriter::alloc`] returned: consecutive blocks
    /// are written together. Waits while too much is in flight; the data is durable when
    /// the checkpoint is.
    ///
    /// # Errors
    /// That of an earlier write; the checkpoint has failed then.
    pub fn write(&mut self, addr: BlockAddr, mut frames: Vec<Frame>) -> Result<(), StoreError> {
        let most = RUN.min(self.limit);
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

    /// Waits until no more than so many blocks are in flight.
    ///
    /// # Errors
    /// That of a write; the checkpoint has failed then.
    pub fn hold(&mut self, blocks: usize) -> Result<(), StoreError> {
        while self.in_flight > blocks {
            self.land()?;
        }
        Ok(())
    }

    /// Waits for the oldest write in flight.
    fn land(&mut self) -> Result<(), StoreError> {
        if let Some((io, count)) = self.flight.pop_front() {
            self.in_flight -= count;
            io.wait()?;
        }
        Ok(())
    }

    /// From now on, what was born at or before `newest` is not freed when it is
    /// replaced, because a snapshot of that age refers to it, but collected for
    /// [`CpWriter::take_retained`]. `None` frees everything.
    pub fn retain(&mut self, newest: Option<Generation>) {
        self.retain = newest;
    }

    /// What was replaced but is still referred to by a snapshot: for its deadlist.
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

    /// Waits for all writes.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        self.flush_nodes()?;
        self.flush_data()?;
        while !self.flight.is_empty() {
            self.land()?;
        }
        Ok(())
    }

    /// Ends allocation: releases the blocks that were allocated but not used, takes the freed ones
    /// out of the image, and returns the latter.
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

    /// It has become durable, or its failure has poisoned the aggregate.
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
            // What this checkpoint has in flight is pinned by it.
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
        if run.len() >= RUN.min(self.limit) {
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
