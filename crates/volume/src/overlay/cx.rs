//! The context of one request, and the loop that runs an operation to its end.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use smallvec::SmallVec;
use weir_base::Time;
use weir_store::{BlockPtr, Frame, StoreError};

use crate::overlay::calls::CallKey;
use crate::overlay::direct::Direct;
use crate::overlay::readahead::Plan;
use crate::overlay::volume::{RootState, Volume};
use crate::types::{FsError, Pressure, Stop};

/// One request's context, kept over the repetitions of its operation.
///
/// It pins what was fetched for it, so that each repetition gets further than
/// the one before even if the cache has evicted the blocks meanwhile; and it
/// keeps the tree alive that the pointers came from, so that their blocks cannot
/// be reused while they are read.
pub struct Cx {
    /// The time of the request, which becomes the time stamps.
    pub now: Time,
    /// What the protocol knows the call by, if it must not be carried out twice: it becomes part of the log record.
    pub call: Option<CallKey>,
    pins: Vec<(BlockPtr, Frame)>,
    bad: SmallVec<[BlockPtr; 1]>,
    roots: SmallVec<[Arc<RootState>; 1]>,
    /// How often the operation has waited for space.
    pub(crate) space_waits: u8,
    /// How often it has waited for memory to read into.
    memory_waits: u8,
    /// The consistency point that a commit waits for.
    pub(crate) commit_epoch: Option<u64>,
    /// How often a commit has sent pages to their places.
    pub(crate) commit_rounds: u16,
    /// The request has been taken note of as a part of a stream.
    pub(crate) noted: bool,
    /// What is to be read ahead of the next requests, once this one's own reads are under way.
    pub(crate) ahead: Option<Plan>,
    /// Data of this operation that is on its way to its place, or there.
    pub(crate) direct: Option<Direct>,
}

impl Cx {
    /// The context of a request made at `now`.
    pub fn new(now: Time) -> Cx {
        Cx {
            now,
            call: None,
            pins: Vec::new(),
            bad: SmallVec::new(),
            roots: SmallVec::new(),
            space_waits: 0,
            memory_waits: 0,
            commit_epoch: None,
            commit_rounds: 0,
            noted: false,
            ahead: None,
            direct: None,
        }
    }

    /// Whether the operation has taken its data: see [`Stop::Land`].
    pub fn has_data(&self) -> bool {
        self.direct.is_some()
    }

    pub(crate) fn pinned(&self, ptr: &BlockPtr) -> Option<&Frame> {
        if self.pins.is_empty() {
            return None;
        }
        let i = self
            .pins
            .binary_search_by_key(&(ptr.addr, ptr.birth), |(p, _)| (p.addr, p.birth))
            .ok()?;
        self.pins.get(i).map(|(_, frame)| frame)
    }

    pub(crate) fn is_bad(&self, ptr: &BlockPtr) -> bool {
        self.bad.contains(ptr)
    }

    /// Keeps the blocks of this root from being reused.
    pub(crate) fn hold(&mut self, root: &Arc<RootState>) {
        if !self.roots.iter().any(|r| Arc::ptr_eq(r, root)) {
            self.roots.push(Arc::clone(root));
        }
    }

    fn pin(&mut self, ptrs: &[BlockPtr], frames: Vec<Frame>) {
        self.pins.extend(ptrs.iter().copied().zip(frames));
        self.pins.sort_unstable_by_key(|(p, _)| (p.addr, p.birth));
        self.pins.dedup_by_key(|(p, _)| (p.addr, p.birth));
    }
}

/// Times that a request waits for memory to read into before it is put off.
const MEMORY_WAITS: u8 = 4;

impl Volume {
    /// Does what `stop` asks for, so that the operation can be run again.
    ///
    /// A block that cannot be read is noted in the context: the repetition
    /// answers an error if it cannot do without it.
    ///
    /// # Errors
    /// The reason, if the operation failed.
    pub async fn resume(&self, cx: &mut Cx, stop: Stop) -> Result<(), FsError> {
        match stop {
            Stop::Fail(e) => Err(e),
            Stop::Fetch(ptrs) => self.fetch(cx, &ptrs).await,
            Stop::Wait(pressure) => self.wait(pressure).await,
            Stop::Land => self.land(cx).await,
        }
    }

    async fn fetch(&self, cx: &mut Cx, ptrs: &[BlockPtr]) -> Result<(), FsError> {
        let cache = self.core.agg.cache();
        let mut fetched = pin!(cache.fetch(ptrs));
        let first = poll_fn(|task| Poll::Ready(fetched.as_mut().poll(task))).await;
        // Behind what is waited for in the device's queue.
        if let Some(plan) = cx.ahead.take() {
            plan.start(&self.core);
        }
        let fetched = match first {
            Poll::Ready(fetched) => fetched,
            Poll::Pending => fetched.await,
        };
        let Err(error) = fetched.map(|frames| cx.pin(ptrs, frames)) else {
            return Ok(());
        };
        if matches!(error, StoreError::NoMemory) {
            return self.wait_for_memory(cx).await;
        }
        // Find out which of them it is.
        for ptr in ptrs {
            match cache.fetch(&[*ptr]).await {
                Ok(frames) => cx.pin(&[*ptr], frames),
                Err(StoreError::NoMemory) => return self.wait_for_memory(cx).await,
                Err(error) => {
                    tracing::error!(volume = %self.id(), block = %ptr.addr, %error, "cannot read a block");
                    cx.bad.push(*ptr);
                }
            }
        }
        Ok(())
    }

    /// Changed pages occupy what a read needs: a consistency point makes them
    /// clean. If that does not help, others hold the memory, and the client is
    /// told to come back.
    async fn wait_for_memory(&self, cx: &mut Cx) -> Result<(), FsError> {
        cx.memory_waits += 1;
        if cx.memory_waits > MEMORY_WAITS {
            return Err(FsError::Delay);
        }
        self.wait(Pressure::Memory)
            .await
            .map_err(|_| FsError::Delay)
    }

    async fn wait(&self, pressure: Pressure) -> Result<(), FsError> {
        let target = self.core.relieve(pressure);
        let core = &self.core;
        poll_fn(|task| {
            if core.eased(pressure, target) {
                return Poll::Ready(());
            }
            core.progress.register(task.waker());
            // Again, because it may have come before the registration.
            if core.eased(pressure, target) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        if core.is_durable(target) || matches!(pressure, Pressure::Pace(_)) {
            Ok(())
        } else if core.is_poisoned() {
            Err(FsError::ReadOnly)
        } else {
            // The engine is stopping.
            Err(FsError::Delay)
        }
    }

    /// As [`Volume::resume`], blocking the thread: for tools and tests.
    ///
    /// # Errors
    /// The reason, if the operation failed.
    pub fn resume_blocking(&self, cx: &mut Cx, stop: Stop) -> Result<(), FsError> {
        crate::overlay::event::block_on(self.resume(cx, stop))
    }

    /// Runs an operation to its end.
    ///
    /// # Errors
    /// As the operation.
    pub async fn drive<T>(
        &self,
        cx: &mut Cx,
        mut op: impl FnMut(&mut Cx) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        loop {
            match op(cx) {
                Ok(value) => return Ok(value),
                Err(stop) => self.resume(cx, stop).await?,
            }
        }
    }

    /// As [`Volume::drive`], blocking the thread: for tools and tests.
    ///
    /// # Errors
    /// As the operation.
    pub fn drive_blocking<T>(
        &self,
        cx: &mut Cx,
        op: impl FnMut(&mut Cx) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        crate::overlay::event::block_on(self.drive(cx, op))
    }
}
