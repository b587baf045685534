//! Waiting for the log: the progress of durability, and its waiters.
//!
//! The durable LSN is one atomic; a thread that polls it (a server that holds many replies) takes
//! no lock. Waiters register under a lock *and check again under it*. The log thread advances the
//! atomic *before* it takes the lock to collect them. So either the waiter sees the advance or the
//! thread sees the waiter.
//!
//! With a stream attached ([`super::stream`]) a record is durable when it is written here *and* the
//! partner has acknowledged it. Each side stores its own progress and then reads the other's, in
//! one order for all (`SeqCst`): the later one sees both.
//!
//! **A device that may be lost with its machine** keeps nothing by itself. In a log that [relies on
//! checkpoints](super::Log::rely_on_checkpoints) a record is durable once a checkpoint contains it
//! as well. As long as a written record is in no checkpoint, a checkpoint is requested.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex, RwLock};
use weir_base::{Clock, Lsn, Poison, invariant};

use super::cost::{CostMeter, PartnerCost};
use super::error::LogPoisonError;

type Listener = Arc<dyn Fn() + Send + Sync>;

pub(super) struct Progress {
    /// The lesser of `written` and `mirrored`.
    durable: AtomicU64,
    /// LSN up to which the device has everything.
    written: AtomicU64,
    /// LSN up to which the partner has acknowledged everything; [`ALONE`] without a partner.
    mirrored: AtomicU64,
    /// LSN up to which a checkpoint has everything.
    checkpointed: AtomicU64,
    /// True if a record in no checkpoint is not durable.
    relies: AtomicBool,
    /// Requests a checkpoint of the written records.
    ask: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The aggregate's guard: any thread may set it, and does not notify the waiters here.
    guard: Arc<Poison>,
    /// Set when nothing is being written any more, nor will be. Only then a record that is not
    /// durable never will be.
    ended: OnceLock<LogPoisonError>,
    waiters: Mutex<Waiters>,
    /// Notifies threads that block; they hold the lock of `waiters`.
    advanced: Condvar,
    listeners: RwLock<Vec<Listener>>,
    /// Measures the time by which `mirrored` lags behind `written`.
    cost: CostMeter,
}

/// Value of `mirrored` while no acknowledgement is needed.
const ALONE: u64 = u64::MAX;

#[derive(Default)]
struct Waiters {
    /// Wakers by LSN, then by a number of the waiter.
    tasks: BTreeMap<(Lsn, u64), Waker>,
    next: u64,
    blocked: usize,
}

impl Progress {
    pub fn starting_at(durable: Lsn) -> Progress {
        Progress {
            durable: AtomicU64::new(durable.0),
            written: AtomicU64::new(durable.0),
            mirrored: AtomicU64::new(ALONE),
            checkpointed: AtomicU64::new(0),
            relies: AtomicBool::new(false),
            ask: OnceLock::new(),
            guard: Arc::default(),
            ended: OnceLock::new(),
            waiters: Mutex::default(),
            advanced: Condvar::new(),
            listeners: RwLock::default(),
            cost: CostMeter::default(),
        }
    }

    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns the LSN up to which the device has everything.
    pub fn written(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    /// Starts measuring the partner's cost with this clock.
    pub fn measure(&self, clock: Arc<dyn Clock>) {
        self.cost.begin(clock);
    }

    /// Returns the partner's cost in the last minute.
    pub fn cost(&self) -> PartnerCost {
        self.cost.minute()
    }

    /// Returns the meter of this side's writes and of the partner.
    pub fn meter(&self) -> &CostMeter {
        &self.cost
    }

    pub fn guard(&self) -> &Arc<Poison> {
        &self.guard
    }

    pub fn poisoned(&self) -> Option<LogPoisonError> {
        self.ended.get().cloned()
    }

    pub fn listen(&self, f: Listener) {
        self.listeners.write().push(f);
    }

    /// Notes that the device has everything up to `lsn`.
    pub fn advance(&self, lsn: Lsn) {
        let before = self.written.swap(lsn.0, Ordering::SeqCst);
        invariant!(self.guard => before < lsn.0, "record {before} was durable, now {lsn} is");
        if self.mirrored.load(Ordering::SeqCst) != ALONE {
            self.cost.written(lsn);
        }
        self.update_durable();
    }

    /// Notes that the partner has everything up to `lsn`; `None`: there is no partner to wait for.
    /// Called by one thread at a time.
    pub fn mirror(&self, lsn: Option<Lsn>) {
        self.mirrored
            .store(lsn.map_or(ALONE, |lsn| lsn.0), Ordering::SeqCst);
        self.update_durable();
        // No waiter waits for this.
        match lsn {
            Some(lsn) => self.cost.acknowledged(lsn),
            None => self.cost.alone(),
        }
    }

    /// Sets the callback that begins a checkpoint. It must not block. Only the first call counts.
    pub fn ask_by(&self, ask: Box<dyn Fn() + Send + Sync>) {
        let _ = self.ask.set(ask);
    }

    /// Sets the mode in which a written record is durable only once it is [in a
    /// checkpoint](Progress::checkpoint).
    pub fn rely_on_checkpoints(&self, relies: bool) {
        self.relies.store(relies, Ordering::SeqCst);
        self.update_durable();
    }

    /// Notes that a durable checkpoint has everything up to `lsn`.
    pub fn checkpoint(&self, lsn: Lsn) {
        self.checkpointed.store(lsn.0, Ordering::SeqCst);
        self.update_durable();
    }

    fn update_durable(&self) {
        let written = self.written.load(Ordering::SeqCst);
        let kept = match self.relies.load(Ordering::SeqCst) {
            true => self.checkpointed.load(Ordering::SeqCst),
            false => u64::MAX,
        };
        let now = written.min(self.mirrored.load(Ordering::SeqCst)).min(kept);
        let before = self.durable.fetch_max(now, Ordering::AcqRel);
        if kept < written
            && let Some(ask) = self.ask.get()
        {
            ask();
        }
        if before < now {
            self.wake(Lsn(now));
        } else if self.waiters.lock().blocked > 0 {
            // A thread may wait for this side alone.
            self.advanced.notify_all();
        }
    }

    /// Ends the waiting: the log's thread ends, and nothing more will become durable. Only the
    /// first reason is kept.
    pub fn poison(&self, why: LogPoisonError) {
        // A second poisoning changes nothing.
        let _ = self.guard.set(Arc::clone(&why.0));
        // The guard's reason comes first.
        let first = self.guard.why().cloned().map_or(why, LogPoisonError);
        let _ = self.ended.set(first);
        self.wake(Lsn(u64::MAX));
    }

    fn wake(&self, upto: Lsn) {
        let (due, blocked) = {
            let mut w = self.waiters.lock();
            let later = match upto.0.checked_add(1) {
                Some(next) => w.tasks.split_off(&(Lsn(next), 0)),
                None => BTreeMap::new(),
            };
            (std::mem::replace(&mut w.tasks, later), w.blocked > 0)
        };
        if blocked {
            self.advanced.notify_all();
        }
        for waker in due.into_values() {
            waker.wake();
        }
        for f in self.listeners.read().iter() {
            f();
        }
    }

    /// Returns the result for a waiter of `lsn`, or `None` if it has to wait.
    fn state(&self, lsn: Lsn) -> Option<Result<(), LogPoisonError>> {
        if self.durable() >= lsn {
            return Some(Ok(()));
        }
        self.poisoned().map(Err)
    }

    pub fn wait_blocking(&self, lsn: Lsn) -> Result<(), LogPoisonError> {
        self.block_until(|| self.state(lsn))
    }

    /// Blocks until the device has everything up to `lsn`, whatever the partner has.
    pub fn wait_written(&self, lsn: Lsn) -> Result<(), LogPoisonError> {
        self.block_until(|| match self.written() >= lsn {
            true => Some(Ok(())),
            false => self.poisoned().map(Err),
        })
    }

    fn block_until(
        &self,
        state: impl Fn() -> Option<Result<(), LogPoisonError>>,
    ) -> Result<(), LogPoisonError> {
        if let Some(done) = state() {
            return done;
        }
        let mut w = self.waiters.lock();
        loop {
            if let Some(done) = state() {
                return done;
            }
            w.blocked += 1;
            self.advanced.wait(&mut w);
            w.blocked -= 1;
        }
    }
}

/// A future that waits until a record is durable; returned by [`super::Log::wait`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Wait {
    progress: Arc<Progress>,
    lsn: Lsn,
    registered: Option<u64>,
}

impl Wait {
    pub(super) fn new(progress: Arc<Progress>, lsn: Lsn) -> Wait {
        Wait {
            progress,
            lsn,
            registered: None,
        }
    }
}

impl Future for Wait {
    type Output = Result<(), LogPoisonError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(done) = this.progress.state(this.lsn) {
            return Poll::Ready(done);
        }
        let mut w = this.progress.waiters.lock();
        if let Some(done) = this.progress.state(this.lsn) {
            return Poll::Ready(done);
        }
        let number = *this.registered.get_or_insert_with(|| {
            w.next += 1;
            w.next
        });
        w.tasks.insert((this.lsn, number), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(number) = self.registered {
            self.progress
                .waiters
                .lock()
                .tasks
                .remove(&(self.lsn, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn tasks_wake_when_their_record_is_durable_and_not_before() {
        let p = Arc::new(Progress::starting_at(Lsn(0)));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let mut five = Wait::new(Arc::clone(&p), Lsn(5));
        let mut six = Wait::new(Arc::clone(&p), Lsn(6));
        for _ in 0..3 {
            assert!(Pin::new(&mut five).poll(&mut cx).is_pending());
            assert!(Pin::new(&mut six).poll(&mut cx).is_pending());
        }
        assert_eq!(
            p.waiters.lock().tasks.len(),
            2,
            "polling again does not register again"
        );
        p.advance(Lsn(4));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        p.advance(Lsn(5));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(Pin::new(&mut five).poll(&mut cx), Poll::Ready(Ok(())));
        drop(six);
        assert!(
            p.waiters.lock().tasks.is_empty(),
            "a dropped waiter leaves nothing behind"
        );
    }

    #[test]
    fn without_a_partner_a_device_that_may_be_lost_waits_for_checkpoints() {
        let p = Progress::starting_at(Lsn(3));
        let asked = Arc::new(Count::default());
        let count = Arc::clone(&asked);
        p.ask_by(Box::new(move || {
            count.0.fetch_add(1, Ordering::SeqCst);
        }));
        p.rely_on_checkpoints(true);
        assert_eq!(p.durable(), Lsn(3), "what was durable stays so");
        let before = asked.0.load(Ordering::SeqCst);
        p.advance(Lsn(5));
        assert_eq!((p.written(), p.durable()), (Lsn(5), Lsn(3)));
        assert_eq!(asked.0.load(Ordering::SeqCst), before + 1);
        p.checkpoint(Lsn(4));
        assert_eq!(p.durable(), Lsn(4));
        assert_eq!(
            asked.0.load(Ordering::SeqCst),
            before + 2,
            "one is written and in none"
        );
        p.checkpoint(Lsn(5));
        assert_eq!(p.durable(), Lsn(5));
        assert_eq!(asked.0.load(Ordering::SeqCst), before + 2);
        // With a partner the two logs suffice, once the partner is reported.
        p.mirror(Some(Lsn(5)));
        p.advance(Lsn(6));
        p.mirror(Some(Lsn(6)));
        assert_eq!(p.durable(), Lsn(5));
        p.rely_on_checkpoints(false);
        assert_eq!(p.durable(), Lsn(6));
        let before = asked.0.load(Ordering::SeqCst);
        p.advance(Lsn(7));
        p.mirror(Some(Lsn(7)));
        assert_eq!(p.durable(), Lsn(7));
        assert_eq!(asked.0.load(Ordering::SeqCst), before);
        p.rely_on_checkpoints(true);
        p.mirror(None);
        assert_eq!(p.durable(), Lsn(7), "it was reported");
        assert!(asked.0.load(Ordering::SeqCst) > before);
        p.advance(Lsn(8));
        p.checkpoint(Lsn(7));
        assert_eq!(p.durable(), Lsn(7));
        p.rely_on_checkpoints(false);
        assert_eq!(p.durable(), Lsn(8));
    }

    #[test]
    fn poison_wakes_everybody_but_what_is_durable_stays_so() {
        let p = Arc::new(Progress::starting_at(Lsn(3)));
        let heard = Arc::new(Count::default());
        let h = Arc::clone(&heard);
        p.listen(Arc::new(move || {
            h.0.fetch_add(1, Ordering::SeqCst);
        }));
        std::thread::scope(|s| {
            let t = s.spawn(|| p.wait_blocking(Lsn(4)));
            while p.waiters.lock().blocked == 0 {
                std::thread::yield_now();
            }
            p.poison(LogPoisonError("disk on fire".into()));
            assert_eq!(
                t.join().unwrap(),
                Err(LogPoisonError("disk on fire".into()))
            );
        });
        assert_eq!(p.wait_blocking(Lsn(3)), Ok(()));
        p.poison(LogPoisonError("again".into()));
        assert_eq!(p.poisoned(), Some(LogPoisonError("disk on fire".into())));
        assert_eq!(heard.0.load(Ordering::SeqCst), 2);
    }
}
