//! The retry loop of operations: waits for the cause of a stop, and runs the operation again.

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
    /// Waits for the cause of `stop`, so that the operation can be retried.
    ///
    /// An unreadable block is recorded in the context: the retry returns an error if it needs the
    /// block.
    ///
    /// # Errors
    /// The cause of `stop`, if it is an error.
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
        // Queued in the device behind the reads that the operation waits for.
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
        // Find out which block it is.
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

    /// Waits for a checkpoint to clean the dirty pages that occupy the memory for a read. If that
    /// does not help, other users hold the memory, and the client gets `Delay`: it has to retry.
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

    /// Waits until the operation's direct write is durable.
    async fn land(&self, cx: &mut EngineContext) -> Result<(), FsError> {
        let Some(direct) = &mut cx.direct else {
            return Ok(());
        };
        let landed = direct.land().await;
        landed.map_err(|error| self.core.unwritten(&error))
    }

    /// Like [`Volume::resume`], but blocks the thread: for tools and tests.
    ///
    /// # Errors
    /// The cause of `stop`, if it is an error.
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

    /// Like [`Volume::drive`], but blocks the thread: for tools and tests.
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
    /// Waits until the engine's shortage is over.
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
            // Checked again, because the relief may have come before the registration.
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
