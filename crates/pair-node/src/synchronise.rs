//! Bringing the partner's copy up when it is not at a place of the stream: of a pair that was made of an aggregate with data, of a primary
//! that was killed, of a partner that was away for longer than the window lasts.
//!
//! The engine makes the entries ([`weir_volume::Round`]): the difference between a mark that both sides hold, or nothing, and a mark
//! that is made now. They travel over the same link as the stream's entries and are applied by the same code. When the last of them
//! is sent, the copy is at the place where the stream of this primary begins, and joins it ([`Message::Join`]). If more was written meanwhile than the
//! window holds, another round follows, from the mark just made.
//!
//! **Only alone.** From a round's first entry to its last the copy is no state that anybody ever saw, so a round begins only once
//! the witness has the primary alone: then the partner cannot take over.
//!
//! **After a break.** The round is kept, and goes on behind what the partner has. A primary that was restarted finds the mark and goes on
//! as well; its clients' changes come with another round.
//!
//! **Marks.** While the two are in sync the primary makes one every [`MARK_EVERY`] if something has changed. So who is lost comes back
//! by a difference that covers little more than the time it was away.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use parking_lot::{Condvar, Mutex};
use weir_base::BLOCK_SIZE;
use weir_mirror::wire::{CopyState, Message};
use weir_mirror::{Node, Role};
use weir_relations::manager::Global;
use weir_volume::{ChangeStream, Frame, FsError, MarkId, Round, RoundEntry, StreamPosition};

use super::config::Lineage;
use super::fault::Fault;
use super::link::Hello;
use super::resync_rate::ResyncRate;
use super::{Inner, Pair, Serving};

/// Bytes of entries that are read and not sent.
const AHEAD: usize = 4 << 20;
/// Before it is tried again to begin a round where something is in the way.
const AGAIN: Duration = Duration::from_millis(50);
/// From one mark to the next while the two are in sync.
const MARK_EVERY: Duration = Duration::from_secs(30);
/// How often it is checked whether a mark is due.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// An entry that is to be sent.
pub struct Ready {
    pub at: StreamPosition,
    pub meta: Vec<u8>,
    pub pages: Vec<Frame>,
    /// The pages' checksums.
    pub sums: Vec<u32>,
}

impl Ready {
    fn of(entry: RoundEntry) -> Ready {
        let RoundEntry { at, meta, pages } = entry;
        let sums = pages
            .iter()
            .map(|page| weir_store::block::page_crc(page))
            .collect();
        Ready {
            at,
            meta,
            pages: pages.into_vec(),
            sums,
        }
    }

    /// Bytes.
    pub fn weight(&self) -> usize {
        self.meta.len() + self.pages.len() * BLOCK_SIZE + 64
    }
}

/// How a round ends.
enum End {
    /// With its last entry; the stream that begins where the copy then is.
    Whole(Option<StreamPosition>),
    Failed(String),
    /// Nobody sends it any more.
    Closed,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Ready>,
    bytes: usize,
    end: Option<End>,
}

/// What the link sends next of a round.
pub enum Taken {
    Entries(Vec<Ready>),
    /// There is nothing yet.
    Nothing,
    /// All is sent.
    Whole(Option<StreamPosition>),
    Failed(String),
}

/// Between the thread that reads a round and the link that sends it.
#[derive(Default)]
pub struct Feed {
    queue: Mutex<Queue>,
    /// With `queue`: there is room, or nobody takes anything any more.
    changed: Condvar,
    /// From which mark to which.
    marks: OnceLock<(Option<MarkId>, MarkId)>,
    /// Bytes that were sent over this link.
    sent: AtomicU64,
    /// Bytes a second to which it is [held back](ResyncRate) now; 0: it is not.
    eased: AtomicU64,
}

impl Feed {
    /// Nothing more is taken from it.
    pub fn close(&self) {
        let mut queue = self.queue.lock();
        queue.end = Some(End::Closed);
        queue.ready.clear();
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        matches!(self.queue.lock().end, Some(End::Closed))
    }

    /// Waits for room; false: it is closed.
    fn put(&self, ready: Ready) -> bool {
        let mut queue = self.queue.lock();
        while queue.end.is_none() && queue.bytes >= AHEAD {
            self.changed.wait(&mut queue);
        }
        if queue.end.is_some() {
            return false;
        }
        queue.bytes += ready.weight();
        queue.ready.push_back(ready);
        true
    }

    fn end(&self, end: End) {
        let mut queue = self.queue.lock();
        if queue.end.is_none() {
            queue.end = Some(end);
        }
    }

    /// Entries of about so many bytes.
    pub fn take(&self, bytes: usize) -> Taken {
        let mut queue = self.queue.lock();
        let mut taken = Vec::new();
        let mut weight = 0;
        while weight < bytes
            && let Some(ready) = queue.ready.pop_front()
        {
            weight += ready.weight();
            taken.push(ready);
        }
        if !taken.is_empty() {
            queue.bytes -= weight;
            self.changed.notify_all();
            self.sent.fetch_add(weight as u64, Ordering::Relaxed);
            return Taken::Entries(taken);
        }
        match &queue.end {
            Some(End::Whole(follow)) => Taken::Whole(*follow),
            Some(End::Failed(why)) => Taken::Failed(why.clone()),
            Some(End::Closed) | None => Taken::Nothing,
        }
    }

    /// Bytes that were sent over this link.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// In words.
    pub fn shown(&self) -> String {
        let mib = self.sent() >> 20;
        let eased = match self.eased.load(Ordering::Relaxed) >> 20 {
            0 => String::new(),
            rate => format!(", held back to {rate} MiB/s for clients' writes"),
        };
        match self.marks.get() {
            Some((Some(base), to)) => {
                format!("{mib} MiB sent of the difference from mark {base} to {to}{eased}")
            }
            Some((None, to)) => format!("{mib} MiB sent of everything, up to mark {to}{eased}"),
            None => "a mark is being made".to_owned(),
        }
    }
}

/// Holds a round back to the limit on what SnapMirror's transfers send, of which it has one for itself, and for what clients feel of it.
struct Pace {
    ease: ResyncRate,
    /// When more may be sent.
    due: Duration,
    /// KB/s, of which `due` was computed.
    limit: Option<u64>,
}

impl Pace {
    /// Waits before so many bytes more are sent.
    fn hold(&mut self, pair: &Pair, bytes: usize, feed: &Feed) {
        let (now, writes) = (pair.clock.monotonic(), pair.engine.log_writes());
        std::thread::sleep(self.ease.wait(now, writes, bytes));
        let limit = self.ease.limit().map_or(0, |limit| limit as u64);
        feed.eased.store(limit, Ordering::Relaxed);
        while !feed.is_closed() {
            let Some(Serving { control, .. }) = pair.serving.get() else {
                // The limit is not known before this node serves.
                std::thread::sleep(AGAIN);
                continue;
            };
            let limit = match control.view().relations.global_throttle(false) {
                Global::Max(kbs) => Some(kbs.max(1)),
                Global::Unset | Global::Unlimited => None,
            };
            let now = pair.clock.monotonic();
            if self.limit != limit {
                (self.due, self.limit) = (now, limit);
            }
            let Some(kbs) = limit else {
                return;
            };
            if self.due <= now {
                self.due = now + Duration::from_secs_f64(bytes as f64 / (kbs * 1024) as f64);
                return;
            }
            // A limit that changes counts at once.
            std::thread::sleep((self.due - now).min(AGAIN));
        }
    }
}

/// A round, for a link after this one.
pub struct Kept {
    round: Round,
    /// Where a stream begins that goes on from it.
    follow: Option<StreamPosition>,
}

impl Pair {
    /// Brings the partner's copy up; this side is the primary, alone.
    pub(super) fn synchronise(self: &Arc<Self>, inner: &mut Inner) {
        let Some(link) = inner.link.as_mut().filter(|link| link.feed.is_none()) else {
            return;
        };
        let feed = Arc::new(Feed::default());
        link.feed = Some(Arc::clone(&feed));
        let (pair, number, hello) = (Arc::clone(self), link.number, link.hello.clone());
        let thread = std::thread::Builder::new().name("weir-resync".to_owned());
        let begun = thread.spawn(move || {
            if let Err(error) = pair.feed(number, &hello, &feed) {
                feed.end(End::Failed(format!("{error:#}")));
            }
            pair.send.notify_one();
        });
        if let Err(error) = begun {
            link.refuse(&format!("the copy needs a synchronisation: {error}"));
        }
    }

    fn feed(&self, number: u64, hello: &Hello, feed: &Feed) -> Result<()> {
        let mut kept = self.round.lock();
        if feed.is_closed() {
            return Ok(());
        }
        let before = kept.take();
        let Some(found) = self.find_round(before, number, hello, feed)? else {
            return Ok(());
        };
        let Kept { round, follow } = kept.insert(found);
        let (base, mark) = (round.base(), round.mark());
        // Set once: there is one round for each link.
        let _ = feed.marks.set((base, mark));
        {
            let mut inner = self.inner.lock();
            let term = inner.node.register().term;
            let Some(link) = inner.link.as_mut().filter(|link| link.number == number) else {
                return Ok(());
            };
            link.say(&Message::Round {
                term,
                mark: mark.0,
                base: base.map(|base| base.0),
            });
            inner.fault = None;
            match base {
                Some(base) => {
                    tracing::info!("the partner gets the difference from mark {base} to {mark}");
                }
                None => tracing::info!("the partner gets everything, up to mark {mark}"),
            }
        }
        self.send.notify_one();
        let mut pace = Pace {
            ease: ResyncRate::default(),
            due: Duration::ZERO,
            limit: None,
        };
        while let Some(entry) = round.advance().map_err(|e| anyhow!("mark {mark}: {e}"))? {
            let ready = Ready::of(entry);
            pace.hold(self, ready.weight(), feed);
            if !feed.put(ready) {
                return Ok(());
            }
            self.send.notify_one();
        }
        feed.end(End::Whole(*follow));
        Ok(())
    }

    /// A round that goes on where the partner's copy is, or a new one; `None`: the link is over.
    fn find_round(
        &self,
        kept: Option<Kept>,
        number: u64,
        hello: &Hello,
        feed: &Feed,
    ) -> Result<Option<Kept>> {
        let engine = &self.engine;
        let at = hello.at;
        let receives = hello.copy != CopyState::Open && !at.is_whole();
        let receiving = at.mark().filter(|_| receives);
        let theirs: Vec<MarkId> = hello
            .marks
            .iter()
            .copied()
            .filter(|mark| Some(*mark) != receiving)
            .collect();
        let failed = |e: FsError| anyhow!("to go on with a round: {e}");
        if let Some(mut kept) = kept
            && receiving == Some(kept.round.mark())
            && kept.round.base().is_none_or(|base| theirs.contains(&base))
            && (kept.round.goes_on_at(at) || kept.round.seek(at).map_err(failed)?)
        {
            return Ok(Some(kept));
        }
        if receiving.is_some() {
            match engine.reopen_round(theirs.last().copied(), at) {
                Ok(mut round) => {
                    if round.seek(at).map_err(failed)? {
                        return Ok(Some(Kept {
                            round,
                            follow: None,
                        }));
                    }
                }
                Err(FsError::NotFound) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        let ours = engine.marks();
        let base = theirs.iter().rev().find(|mark| ours.contains(mark));
        self.begin_round(base.copied(), number, feed)
    }

    fn begin_round(&self, base: Option<MarkId>, number: u64, feed: &Feed) -> Result<Option<Kept>> {
        {
            let mut inner = self.inner.lock();
            let linked = inner
                .link
                .as_ref()
                .is_some_and(|link| link.number == number);
            if inner.role != Role::Alone || inner.stopping || !linked {
                return Ok(None);
            }
            inner.stream = None;
            inner.catching = None;
            inner.rounds += 1;
        }
        let engine = &self.engine;
        engine.end_stream();
        let (round, stream, from) = loop {
            // Nothing has a number twice in one term.
            let mut from = engine.position();
            from.sequence += 1;
            match engine.begin_round(base, Some((from, self.window()))) {
                Ok((round, stream)) => break (round, stream, from),
                // A clone is being split, or a volume reverted.
                Err(FsError::Busy) => {
                    if feed.is_closed() {
                        return Ok(None);
                    }
                    engine.cp_now().map_err(|e| anyhow!("a checkpoint: {e}"))?;
                    std::thread::sleep(AGAIN);
                }
                Err(FsError::NotSupported) => bail!(
                    "a volume here is a destination of SnapMirror, which a pair cannot mirror: break it off or delete it"
                ),
                Err(e) => bail!("to begin a round: {e}"),
            }
        };
        if let Some(stream) = stream {
            self.goes_on(&mut self.inner.lock(), stream);
        }
        Ok(Some(Kept {
            round,
            follow: Some(from),
        }))
    }

    fn goes_on(&self, inner: &mut Inner, stream: Arc<ChangeStream>) {
        let wake = Arc::clone(&self.send);
        stream.wake_by(Box::new(move || wake.notify_one()));
        inner.stream = Some(stream);
        // A copy that is not at a place of this stream is not one from which it goes on.
        inner.lineage = Some(Lineage {
            fresh: false,
            before: None,
            terms: vec![inner.node.register().term],
        });
    }

    /// All of a round is sent.
    pub(super) fn round_sent(&self, number: u64, follow: Option<StreamPosition>) {
        let mut inner = self.inner.lock();
        let term = inner.node.register().term;
        let stream = inner.stream.clone().filter(|stream| !stream.is_overrun());
        let Some(link) = inner.link.as_mut().filter(|link| link.number == number) else {
            return;
        };
        link.feed = None;
        let (Some(at), Some(stream)) = (follow.filter(|at| at.term == term), stream) else {
            // Another round is needed: the partner connects again and says how far it is.
            tracing::info!("the partner needs what was done meanwhile: another round follows");
            link.close();
            return;
        };
        link.joined = Some(at.sequence);
        link.stream = Some(stream);
        link.say(&Message::Join {
            term,
            sequence: at.sequence,
        });
        inner.files = false;
        inner.fault = None;
    }

    /// A round cannot go on.
    pub(super) fn round_failed(&self, number: u64, why: &str) {
        let mut inner = self.inner.lock();
        let Some(link) = inner.link.as_mut().filter(|link| link.number == number) else {
            return;
        };
        link.feed = None;
        let why = format!("the partner's copy needs a synchronisation, which fails: {why}");
        link.refuse(&why);
        inner.has_fault(Fault::Refusal(why));
    }

    /// The partner has everything: what was kept for another link is of no use any more.
    pub(super) fn forget_round(&self) {
        if let Some(mut kept) = self.round.try_lock() {
            *kept = None;
        }
    }

    /// Has the partner's copy, which is this side's, brought up once more: from a mark, or with `everything` from nothing.
    ///
    /// # Errors
    /// This side serves; its file cannot be written.
    pub(super) fn resync(&self, everything: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.serving || !matches!(inner.role, Role::Standby | Role::Behind) {
            bail!("this node is not the standby of its pair: ask the other one");
        }
        let mut state = inner.state;
        state.open = true;
        state.write(&self.folder)?;
        inner.state = state;
        self.standby.begin_again(everything);
        if let Some(link) = &mut inner.link {
            link.close();
        }
        self.send.notify_one();
        Ok(())
    }

    /// Makes marks while the two are in sync, for as long as the process runs.
    pub(super) async fn make_marks(self: &Arc<Self>) {
        let mut last: Option<(Duration, StreamPosition)> = None;
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            {
                let inner = self.inner.lock();
                let in_sync = inner.role == Role::Primary && inner.node.register().mirrored;
                if !in_sync || !inner.serving || inner.stopping {
                    last = None;
                    continue;
                }
                // Its mark is to stay.
                if inner.comparison.is_some() {
                    continue;
                }
            }
            let (now, at) = (self.clock.monotonic(), self.engine.position());
            if last.is_some_and(|(then, place)| now < then + MARK_EVERY || at == place) {
                continue;
            }
            let engine = Arc::clone(&self.engine);
            let made = tokio::task::spawn_blocking(move || {
                let made = engine.make_mark();
                (made, engine.position())
            });
            match made.await {
                Ok((Ok(mark), at)) => {
                    tracing::debug!("made mark {mark}");
                    last = Some((now, at));
                }
                // A clone is being split, or the log is full: later.
                Ok((Err(FsError::Busy | FsError::Delay), _)) => {}
                Ok((Err(error), at)) => {
                    tracing::warn!("no mark could be made: {error}");
                    last = Some((now, at));
                }
                // A panic has ended the process.
                Err(_) => return,
            }
        }
    }

    /// Replies wait for a partner that acknowledges nothing: it is not waited for any more.
    pub(super) fn check_progress(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        if inner.role != Role::Alone || inner.catching.is_none() {
            return;
        }
        if self.clock.monotonic() < inner.progressed + super::STALLED {
            return;
        }
        inner.catching = None;
        if let Some(stream) = inner.stream.clone() {
            self.engine.aggregate().log().follow(&stream);
        }
        if let Some(link) = &mut inner.link {
            link.close();
        }
        let why = "the partner acknowledges nothing, and is not waited for";
        inner.has_fault(Fault::Passing(why.to_owned()));
        self.send.notify_one();
    }

    /// The partner has everything that replies waited for.
    pub(super) fn caught_up(self: &Arc<Self>, inner: &mut Inner) {
        inner.rounds = 0;
        self.forget_round();
        self.happens(inner, Node::caught_up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(bytes: usize) -> Ready {
        Ready {
            at: StreamPosition::default(),
            meta: vec![0; bytes],
            pages: Vec::new(),
            sums: Vec::new(),
        }
    }

    #[test]
    fn a_feed_holds_no_more_than_its_bytes_and_ends_behind_the_last_entry() {
        const ENTRIES: usize = 60;
        let feed = Arc::new(Feed::default());
        let puts = Arc::clone(&feed);
        let thread = std::thread::spawn(move || {
            for _ in 0..ENTRIES {
                assert!(puts.put(ready(AHEAD / 2)));
            }
            puts.end(End::Whole(None));
        });
        let mut entries = 0;
        loop {
            assert!(feed.queue.lock().bytes <= AHEAD + AHEAD / 2 + 200);
            match feed.take(1) {
                Taken::Entries(taken) => entries += taken.len(),
                Taken::Nothing => std::thread::yield_now(),
                Taken::Whole(None) => break,
                _ => panic!("it fails"),
            }
        }
        assert_eq!(entries, ENTRIES);
        assert_eq!(feed.sent(), (ENTRIES * (AHEAD / 2 + 64)) as u64);
        assert!(thread.join().is_ok());
    }

    #[test]
    fn a_feed_that_is_closed_stops_the_thread_that_reads() {
        let feed = Arc::new(Feed::default());
        assert!(feed.put(ready(AHEAD)));
        let puts = Arc::clone(&feed);
        let thread = std::thread::spawn(move || puts.put(ready(10)));
        feed.close();
        assert_eq!(thread.join().ok(), Some(false));
        assert!(matches!(feed.take(1), Taken::Nothing));
    }
}
