//! Reading of blocks that are not in memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use weir_base::limits::engine::CACHE_READ as RUN;

use parking_lot::Mutex;

use super::Cache;
use super::shard::Fresh;
use crate::block::BlockPtr;
use crate::device::Io;
use crate::error::StoreError;
use crate::frame::{Class, Frame, FrameMut};
use crate::task::block_on;

/// A block being read, and the tasks and threads that wait for it.
pub(super) struct Load {
    ptr: BlockPtr,
    /// True while no request has asked for the block: a read-ahead.
    ahead: AtomicBool,
    state: Mutex<State>,
}

enum State {
    Reading(Vec<Option<Waker>>),
    /// Complete. `None`: the reader was dropped before the read was complete.
    Done(Option<Result<Frame, StoreError>>),
}

impl Load {
    pub(super) fn new(ptr: BlockPtr, ahead: bool) -> Arc<Load> {
        Arc::new(Load {
            ptr,
            ahead: AtomicBool::new(ahead),
            state: Mutex::new(State::Reading(Vec::new())),
        })
    }

    pub(super) fn ptr(&self) -> BlockPtr {
        self.ptr
    }

    fn finish(&self, result: Option<Result<Frame, StoreError>>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Done(result));
        if let State::Reading(wakers) = before {
            wakers.into_iter().flatten().for_each(Waker::wake);
        }
    }
}

/// A future that waits for a read started by another caller.
struct Join {
    load: Arc<Load>,
    place: Option<usize>,
}

impl Future for Join {
    type Output = Option<Result<Frame, StoreError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut *this.load.state.lock() {
            State::Done(result) => Poll::Ready(result.clone()),
            State::Reading(wakers) => {
                let place = *this.place.get_or_insert_with(|| {
                    wakers.push(None);
                    wakers.len() - 1
                });
                if let Some(waker) = wakers.get_mut(place) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// The duty to finish a [`Load`]. It is fulfilled in any case, at the latest on drop.
pub(super) struct Duty<'a> {
    cache: &'a Cache,
    load: Option<Arc<Load>>,
    /// Index among the caller's pointers.
    index: usize,
}

impl<'a> Duty<'a> {
    pub(super) fn new(cache: &'a Cache, load: Arc<Load>, index: usize) -> Duty<'a> {
        Duty {
            cache,
            load: Some(load),
            index,
        }
    }

    pub(super) fn ptr(&self) -> BlockPtr {
        self.load.as_ref().map(|l| l.ptr).unwrap_or_default()
    }

    pub(super) fn finish(&mut self, result: Option<Result<Frame, StoreError>>) {
        let Some(load) = self.load.take() else {
            // The load was finished before the drop.
            return;
        };
        let displaced = {
            let mut shard = self.cache.shard(load.ptr.addr).lock();
            if shard
                .loading
                .get(&load.ptr.addr.0)
                .is_some_and(|l| Arc::ptr_eq(l, &load))
            {
                shard.loading.remove(&load.ptr.addr.0);
            }
            let ahead = load.ahead.load(Ordering::Relaxed);
            match &result {
                // The page enters the map before it leaves `loading`, under one lock: no caller can
                // miss both.
                Some(Ok(frame)) => {
                    let fresh = if ahead { Fresh::Ahead } else { Fresh::Asked };
                    shard.insert(load.ptr, frame.clone(), fresh)
                }
                _ => {
                    if ahead {
                        self.cache.ahead.wasted(1);
                    }
                    None
                }
            }
        };
        drop(displaced);
        load.finish(result);
    }
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        self.finish(None);
    }
}

enum Claim<'a> {
    Hit(Frame),
    Join(Join),
    Read(Duty<'a>),
    /// A read of the same address with another birth is in flight: read without letting others
    /// join.
    Alone,
}

impl Cache {
    fn claim(&self, index: usize, ptr: &BlockPtr) -> Claim<'_> {
        let mut shard = self.shard(ptr.addr).lock();
        if let Some(frame) = shard.peek(ptr) {
            return Claim::Hit(frame);
        }
        match shard.loading.get(&ptr.addr.0) {
            Some(load) if load.ptr == *ptr => {
                // Under the shard's lock, as the end of the read is.
                if load.ahead.swap(false, Ordering::Relaxed) {
                    self.ahead.asked_for(1);
                }
                Claim::Join(Join {
                    load: Arc::clone(load),
                    place: None,
                })
            }
            Some(_) => Claim::Alone,
            None => {
                let load = Load::new(*ptr, false);
                shard.loading.insert(ptr.addr.0, Arc::clone(&load));
                drop(shard);
                Claim::Read(Duty::new(self, load, index))
            }
        }
    }

    /// Allocates frames for one device read, sorted by address: frames that are neighbours in
    /// memory form one segment of the request.
    pub(super) fn frames(&self, count: usize, class: Class) -> Option<Vec<FrameMut>> {
        let mut frames: Vec<FrameMut> = (0..count)
            .map(|_| self.alloc(class))
            .collect::<Option<_>>()?;
        frames.sort_unstable_by_key(|frame| frame.as_ptr());
        Some(frames)
    }

    /// Returns the pages that `ptrs` name, in that order, from memory or the device.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::NoMemory`], [`StoreError::Corrupt`] for a block whose
    /// contents do not match its pointer. The other readable blocks are in the cache in that case.
    pub async fn fetch(&self, ptrs: &[BlockPtr]) -> Result<Vec<Frame>, StoreError> {
        self.fetch_as(ptrs, Class::Foreground).await
    }

    /// Like [`Cache::fetch`], for threads that may block. Uses the frames reserved for checkpoints.
    ///
    /// # Errors
    /// As [`Cache::fetch`].
    pub fn fetch_blocking(&self, ptrs: &[BlockPtr]) -> Result<Vec<Frame>, StoreError> {
        block_on(self.fetch_as(ptrs, Class::Cp))
    }

    async fn fetch_as(&self, ptrs: &[BlockPtr], class: Class) -> Result<Vec<Frame>, StoreError> {
        let mut pages: Vec<Option<Frame>> = vec![None; ptrs.len()];
        let mut failure = None;
        let mut note = |index: usize, result: Result<Frame, StoreError>| match result {
            Ok(frame) => {
                if let Some(place) = pages.get_mut(index) {
                    *place = Some(frame);
                }
            }
            Err(e) => failure = failure.take().or(Some(e)),
        };
        let mut todo: Vec<usize> = (0..ptrs.len()).collect();
        while !todo.is_empty() {
            let (mut duties, mut joins) = (Vec::new(), Vec::new());
            for index in todo.drain(..) {
                let Some(ptr) = ptrs.get(index) else { continue };
                match self.claim(index, ptr) {
                    Claim::Hit(frame) => note(index, Ok(frame)),
                    Claim::Join(join) => joins.push((index, join)),
                    Claim::Read(duty) => duties.push(duty),
                    Claim::Alone => {
                        duties.push(Duty::new(self, Load::new(*ptr, false), index));
                    }
                }
            }
            // All reads are started before the first one is awaited.
            let reads: Vec<_> = runs(duties)
                .into_iter()
                .map(|run| (self.start(&run, class), run))
                .collect();
            for (read, run) in reads {
                self.finish_run(read, run, class, &mut note).await;
            }
            // A duty of this very call may have been joined (a pointer given twice), so joins are
            // awaited last.
            for (index, join) in joins {
                match join.await {
                    Some(result) => note(index, result),
                    None => todo.push(index),
                }
            }
        }
        match failure {
            Some(e) => Err(e),
            None => pages
                .into_iter()
                .collect::<Option<Vec<_>>>()
                .ok_or(StoreError::NoMemory),
        }
    }

    /// Starts the read of a run; `None` if there is no memory.
    fn start(&self, run: &[Duty<'_>], class: Class) -> Option<Io<Vec<FrameMut>>> {
        let first = run.first()?.ptr().addr;
        Some(self.device.read(first, self.frames(run.len(), class)?))
    }

    async fn finish_run(
        &self,
        read: Option<Io<Vec<FrameMut>>>,
        run: Vec<Duty<'_>>,
        class: Class,
        note: &mut impl FnMut(usize, Result<Frame, StoreError>),
    ) {
        let result = match read {
            Some(read) => read.await.map_err(StoreError::Io),
            None => Err(StoreError::NoMemory),
        };
        match result {
            Ok(frames) => {
                let mut frames = frames.into_iter();
                for duty in run {
                    deliver(duty, frames.next().ok_or(StoreError::NoMemory), note);
                }
            }
            Err(StoreError::Io(_)) if run.len() > 1 => {
                for duty in run {
                    let one = match self.start(std::slice::from_ref(&duty), class) {
                        Some(read) => read.await.map_err(StoreError::Io),
                        None => Err(StoreError::NoMemory),
                    };
                    let frame = one.and_then(|f| f.into_iter().next().ok_or(StoreError::NoMemory));
                    deliver(duty, frame, note);
                }
            }
            Err(e) => {
                for duty in run {
                    deliver(duty, Err(e.clone()), note);
                }
            }
        }
    }
}

/// Verifies a block and hands it to every waiter.
fn deliver(
    mut duty: Duty<'_>,
    read: Result<FrameMut, StoreError>,
    note: &mut impl FnMut(usize, Result<Frame, StoreError>),
) {
    let ptr = duty.ptr();
    let result = read.and_then(|frame| {
        if ptr.verifies(&frame) {
            Ok(frame.freeze())
        } else {
            duty.cache.damaged.fetch_add(1, Ordering::Relaxed);
            Err(StoreError::Corrupt {
                addr: ptr.addr,
                what: "wrong checksum",
            })
        }
    });
    if let Err(e @ (StoreError::Corrupt { .. } | StoreError::Io(_))) = &result {
        tracing::error!(block = ptr.addr.0, birth = ptr.birth.0, error = %e, "cannot read block");
    }
    let index = duty.index;
    duty.finish(Some(result.clone()));
    note(index, result);
}

/// Groups blocks that follow one another on the device.
fn runs(mut duties: Vec<Duty<'_>>) -> Vec<Vec<Duty<'_>>> {
    duties.sort_by_key(|d| d.ptr().addr);
    let mut out: Vec<Vec<Duty<'_>>> = Vec::new();
    let mut next = None;
    for duty in duties {
        let addr = duty.ptr().addr;
        match out.last_mut() {
            Some(run) if next == Some(addr) && run.len() < RUN => {
                next = addr.checked_add(1);
                run.push(duty);
            }
            _ => {
                next = addr.checked_add(1);
                out.push(vec![duty]);
            }
        }
    }
    out
}
