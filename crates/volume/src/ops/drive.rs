//! The loop that runs an operation to its end: waits for what it says that it waits for, and runs it again.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;

use weir_base::limits::engine::MEMORY_WAITS;
use weir_store::{BlockPtr, StoreError};

use crate::overlay::context::EngineContext;
use crate::overlay::core::Core;
use crate::overlay::volume::Volume;
use crate::types::{Backpressure, FsError, Stop};

impl Volume {
    /// Resolves what `stop` waits for, so that the operation can be run again.
    ///
    /// A block that cannot be read is noted in the context: the repetition returns an error if it cannot do
    /// without it.
    ///
    /// # Errors
    /// The reason, if the operation failed.
    pub async fn resume(&self, cx: &mut EngineContext, stop: Stop) -> Result<(), FsError> {
        match stop {
            Stop::Fail(e) => Err(e),
            Stop::Fetch(ptrs) => self.fetch(cx, &ptrs).await,
            Stop::Wait(pressure) => self.core.relieved(pressure).await,
            Stop::Land => self.land(cx).await,
        }
    }

    async fn fetch(&self, cx: &mut EngineContext, ptrs: &[BlockPtr]) -> Result<(), FsError> {
        let cache = self.core.agg.cache();
        let mut fetched = pin!(cache.fetch(ptrs));
        let first = poll_fn(|task| Poll::Ready(fetched.as_mut().poll(task))).await;
        // Behind what is waited for in the device's queue.
        if let Some(plan) = cx.ahead.take() {
            plan.start(self.core.agg.cache());
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
                    cx.note_bad(*ptr);
                }
            }
        }
        Ok(())
    }

    /// Changed pages occupy what a read needs: a checkpoint makes them clean. If that does not help,
    /// others hold the memory, and the client gets `Delay`: it is to try again.
    async fn wait_for_memory(&self, cx: &mut EngineContext) -> Result<(), FsError> {
        cx.memory_waits += 1;
        if cx.memory_waits > MEMORY_WAITS {
            return Err(FsError::Delay);
        }
        self.core
            .relieved(Backpressure::Memory)
            .await
            .map_err(|_| FsError::Delay)
    }

    /// Waits until what the operation has sent to its place is durable.
    async fn land(&self, cx: &mut EngineContext) -> Result<(), FsError> {
        let Some(direct) = &mut cx.direct else {
            return Ok(());
        };
        let landed = direct.land().await;
        landed.map_err(|error| self.core.unwritten(&error))
    }

    /// As [`Volume::resume`], blocking the thread: for tools and tests.
    ///
    /// # Errors
    /// The reason, if the operation failed.
    pub fn resume_blocking(&self, cx: &mut EngineContext, stop: Stop) -> Result<(), FsError> {
        crate::overlay::event::block_on(self.resume(cx, stop))
    }

    /// Runs an operation to its end.
    ///
    /// # Errors
    /// As the operation.
    pub async fn drive<T>(
        &self,
        cx: &mut EngineContext,
        mut op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
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
        cx: &mut EngineContext,
        op: impl FnMut(&mut EngineContext) -> Result<T, Stop>,
    ) -> Result<T, FsError> {
        crate::overlay::event::block_on(self.drive(cx, op))
    }
}

impl Core {
    /// Waits until there is enough again of what the engine is short of.
    ///
    /// # Errors
    /// `ReadOnly`; `Delay` if the engine is stopping.
    pub(crate) async fn relieved(&self, pressure: Backpressure) -> Result<(), FsError> {
        let target = self.schedule.request_checkpoint(pressure);
        let partner = || pressure == Backpressure::Partner && !self.log.strict().waits();
        let is_over = || partner() || self.schedule.is_relieved(pressure, target);
        poll_fn(|task| {
            if is_over() {
                return Poll::Ready(());
            }
            self.schedule.progress().register(task.waker());
            // Again, because it may have come before the registration.
            if is_over() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        let relieved = match pressure {
            Backpressure::Pace(_) => true,
            Backpressure::Mirror => !self.agg.log().stream_full(),
            Backpressure::Partner => partner(),
            _ => self.schedule.is_durable(target),
        };
        if relieved {
            Ok(())
        } else if self.is_poisoned() {
            Err(FsError::ReadOnly)
        } else {
            // The engine is stopping.
            Err(FsError::Delay)
        }
    }
}
