//! A log with a [stream](super::stream): how it is attached, joined, followed, acknowledged and
//! detached, and what is sent with it.

use super::Log;
use super::advance::{Advance, AdvanceId, AdvancedPages, Advances, InAdvance};
use super::batch::Record;
use super::cost::{LogWrites, PartnerCost};
use super::error::{AppendError, LogPoisonError};
use super::stream::{
    ChangeStream, ChecksummedRecord, Entry, NO_STREAM, NotShipped, Sequence, Window,
};
use crate::frame::Frame;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use weir_base::latency::Latencies;
use weir_base::{Clock, Lsn};

impl Log {
    /// Attaches a stream: each further change is an entry of it, the first with the number after
    /// `from`, and nothing is durable without the partner's acknowledgement. Earlier records are
    /// not in it: the partner has them. `window`: bytes that entries may take. Returns `None` if a
    /// stream is attached already.
    ///
    /// The caller prevents concurrent changes; otherwise half of an operation may be missing from
    /// the stream.
    pub fn attach(&self, from: Sequence, window: u32) -> Option<Arc<ChangeStream>> {
        self.attach_as(from, window, false)
    }

    /// Like [`Log::attach`], but nothing waits for the partner until it is [joined](Log::join).
    pub fn attach_following(&self, from: Sequence, window: u32) -> Option<Arc<ChangeStream>> {
        self.attach_as(from, window, true)
    }

    fn attach_as(&self, from: Sequence, window: u32, following: bool) -> Option<Arc<ChangeStream>> {
        let s = &*self.shared;
        let mut q = s.queue.lock();
        if q.stream.is_some() {
            return None;
        }
        let stream = Arc::new(ChangeStream {
            window: Mutex::new(Window {
                last: from,
                acknowledged: from,
                acknowledged_lsn: q.last(),
                following,
                limit: i64::from(window),
                ..Window::default()
            }),
            advances: Advances::default(),
            idle: AtomicBool::new(false),
            wake: OnceLock::new(),
        });
        if !following {
            s.progress.mirror(Some(q.last()));
            s.stream_room.store(i64::from(window), Ordering::Relaxed);
        }
        s.ships.store(true, Ordering::Relaxed);
        q.stream = Some(Arc::clone(&stream));
        Some(stream)
    }

    /// Joins the stream: from now on nothing is durable without the partner's acknowledgement;
    /// earlier durable records stay durable. Returns false for a detached or overrun stream.
    pub fn join(&self, stream: &ChangeStream) -> bool {
        let s = &*self.shared;
        // Holding the queue's lock prevents pushes.
        let _q = s.queue.lock();
        let mut window = stream.window.lock();
        if window.detached || window.overrun {
            return false;
        }
        if window.following {
            window.following = false;
            let room = window.limit - window.held;
            s.stream_room.store(room, Ordering::Relaxed);
            s.progress.mirror(Some(window.acknowledged_lsn));
        }
        true
    }

    /// Makes the stream follow: nothing waits for the partner until it is [joined](Log::join)
    /// again, and entries stay for it while there is room. Written records whose waiters waited for
    /// the partner are durable at once. The caller ensures that the partner is not considered in
    /// sync meanwhile.
    pub fn follow(&self, stream: &ChangeStream) {
        let s = &*self.shared;
        // Holding the queue's lock prevents pushes.
        let q = s.queue.lock();
        let mut window = stream.window.lock();
        if window.detached || window.following {
            return;
        }
        window.following = true;
        let mut gone = VecDeque::new();
        if window.held > window.limit {
            window.overrun = true;
            window.held = 0;
            gone = std::mem::take(&mut window.entries);
        }
        s.stream_room.store(NO_STREAM, Ordering::Relaxed);
        s.progress.mirror(None);
        drop(window);
        drop(q);
        drop(gone);
    }

    /// Detaches the stream, if there is one: nothing waits for the partner any more. Written
    /// records whose waiters waited for the partner are durable at once.
    pub fn detach(&self) {
        let s = &*self.shared;
        let Some(stream) = s.queue.lock().stream.take() else {
            // There is no stream.
            return;
        };
        let mut window = stream.window.lock();
        s.ships.store(false, Ordering::Relaxed);
        s.stream_room.store(NO_STREAM, Ordering::Relaxed);
        window.detached = true;
        // Under the lock under which acknowledgements change it.
        s.progress.mirror(None);
        let entries = std::mem::take(&mut window.entries);
        drop(window);
        drop(entries);
    }

    /// Notes that the partner has everything up to `sequence`. A detached stream's partner is not
    /// waited for.
    ///
    /// # Errors
    /// [`NotShipped`] if there is no such entry.
    pub fn acknowledge(&self, stream: &ChangeStream, sequence: Sequence) -> Result<(), NotShipped> {
        let s = &*self.shared;
        let mut window = stream.window.lock();
        if sequence > window.last {
            return Err(NotShipped);
        }
        if window.detached || window.overrun || sequence <= window.acknowledged {
            return Ok(());
        }
        let count = (sequence.0 - window.acknowledged.0) as usize;
        window.acknowledged = sequence;
        let gone: Vec<Arc<Entry>> = window.entries.drain(..count).collect();
        let weight = gone.iter().map(|entry| entry.weight()).sum();
        window.held -= weight;
        if let Some(last) = gone.last() {
            window.acknowledged_lsn = last.lsn;
        }
        if !window.following {
            s.stream_room.fetch_add(weight, Ordering::Relaxed);
            s.progress.mirror(Some(window.acknowledged_lsn));
        }
        drop(window);
        // Dropped outside the lock: these may be the last references to the pages.
        drop(gone);
        Ok(())
    }

    /// Makes an entry of a change that is not logged. Does nothing without a stream.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`]; [`AppendError::TooLarge`] for a change that would also be too
    /// large for a record.
    pub fn ship(&self, record: Record) -> Result<(), AppendError> {
        let s = &*self.shared;
        if let Some(why) = s.progress.guard().why() {
            return Err(AppendError::Poisoned(LogPoisonError(Arc::clone(why))));
        }
        if !self.fits(record.meta.len(), record.pages.len()) {
            return Err(AppendError::TooLarge);
        }
        let summed = ChecksummedRecord::new(record);
        let mut q = s.queue.lock();
        if let Some(stream) = &q.stream {
            s.push(stream, summed, q.last());
            let (writer, sender) = s.owes(&mut q);
            drop(q);
            s.wake(writer, sender.as_deref());
        }
        Ok(())
    }

    /// Like [`Log::append`], but the stream gets `shipped` in place of `record`; it has the same
    /// effect on the partner. `advance` names those of its pages that may have been [sent
    /// before](Log::advance).
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_as(
        &self,
        record: Record,
        shipped: Record,
        advance: Option<InAdvance>,
    ) -> Result<Lsn, AppendError> {
        if !self.fits(shipped.meta.len(), shipped.pages.len()) {
            return Err(AppendError::TooLarge);
        }
        let shipped = ChecksummedRecord::new(shipped);
        self.append_in(record, Some(ChecksummedRecord { advance, ..shipped }))
    }

    pub(super) fn stream(&self) -> Option<Arc<ChangeStream>> {
        self.shared.queue.lock().stream.clone()
    }

    /// Returns true if a stream is attached. Reliable only if the caller prevents streams from
    /// being attached.
    pub fn ships(&self) -> bool {
        self.shared.ships.load(Ordering::Relaxed)
    }

    /// Returns the last entry of the stream, if one is attached.
    pub fn streamed(&self) -> Option<Sequence> {
        let q = self.shared.queue.lock();
        q.stream.as_ref().map(|stream| stream.last())
    }

    /// Returns the last entry that the partner has acknowledged, if there is a stream whose partner
    /// is waited for.
    pub fn acknowledged(&self) -> Option<Sequence> {
        let q = self.shared.queue.lock();
        let window = q.stream.as_ref()?.window.lock();
        (!window.following).then_some(window.acknowledged)
    }

    /// Returns true if the window is full: nothing may be changed before the partner has
    /// acknowledged more.
    pub fn stream_full(&self) -> bool {
        self.shared.stream_room.load(Ordering::Relaxed) <= 0
    }

    /// Starts measuring [`Log::partner_cost`] with this clock.
    pub fn measure_partner(&self, clock: Arc<dyn Clock>) {
        self.shared.progress.measure(clock);
    }

    /// Returns the writes of this side's device and their times; nothing unless they are
    /// [measured](Log::measure_partner).
    pub fn writes(&self) -> LogWrites {
        self.shared.progress.meter().writes()
    }

    /// Returns the latencies of the writes to this side's device, of a batch each; nothing unless
    /// they are [measured](Log::measure_partner).
    pub fn latencies(&self) -> Latencies {
        self.shared.progress.meter().latencies()
    }

    /// Returns the cost of waiting for the partner in the last minute; nothing unless it is
    /// [measured](Log::measure_partner).
    pub fn partner_cost(&self) -> PartnerCost {
        self.shared.progress.cost()
    }

    /// Returns the last record written to this side's device, whatever the partner has.
    pub fn written(&self) -> Lsn {
        self.shared.progress.written()
    }

    /// Blocks until the record is written to this side's device, whatever the partner has.
    ///
    /// # Errors
    /// [`LogPoisonError`] if it never will be.
    pub fn wait_written(&self, lsn: Lsn) -> Result<(), LogPoisonError> {
        self.shared.gathered();
        self.shared.progress.wait_written(lsn)
    }

    /// Returns true if pages can be sent to a partner before their entry.
    pub fn advances(&self) -> bool {
        let stream = self.stream();
        stream.is_some_and(|stream| stream.advances().queue.lock().carrier.is_some())
    }

    /// Sends pages, at least one, each with its checksum (CRC32C), to the partner before the entry
    /// that will have them. Returns `None` if no carrier exists.
    pub fn advance(&self, pages: impl Iterator<Item = (Frame, u32)>) -> Option<AdvancedPages> {
        let stream = self.stream()?;
        let (pages, sums): (Vec<Frame>, SmallVec<[u32; 16]>) = pages.unzip();
        let count = pages.len();
        let mut queue = stream.advances().queue.lock();
        queue.carrier?;
        queue.last += 1;
        let id = AdvanceId(queue.last);
        queue.waiting.push_back(Advance::Pages { id, pages, sums });
        drop(queue);
        stream.ring();
        Some(AdvancedPages {
            stream,
            id,
            count,
            used: false,
        })
    }
}
