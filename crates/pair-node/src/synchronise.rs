//! Bringing the partner's copy up when it is not at a place of the stream: of a pair that was made
//! of an aggregate with data, of a primary that was killed, of a partner that was away for longer
//! than the window lasts.
//!
//! The engine makes the entries ([`weir_volume::Round`]): the difference between a mark that both
//! sides hold, or nothing, and a mark that is made now. They travel over the same link as the
//! stream's entries and are applied by the same code. When the last of them is sent, the copy is at
//! the place where the stream of this primary begins, and joins it ([`Message::Join`]). If more was
//! written meanwhile than the window holds, another round follows, from the mark just made.
//!
//! **Only alone.** From a round's first entry to its last the copy is no state that anybody ever
//! saw, so a round begins only once the witness has the primary alone: then the partner cannot take
//! over.
//!
//! **After a break.** The round is kept, and goes on behind what the partner has. A primary that
//! was restarted finds the mark and goes on as well; its clients' changes come with another round.
//!
//! **Marks.** While the two are in sync the primary makes one every [`MARK_EVERY`] if something has
//! changed. So who is lost comes back by a difference that covers little more than the time it was
//! away.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use weir_mirror::wire::{CopyState, Message};
use weir_mirror::{Node, Role};
use weir_relations::manager::Global;
use weir_volume::{ChangeStream, FsError, MarkId, Round, StreamPosition};

use super::config::Lineage;
use super::connection::Hello;
use super::fault::Fault;
use super::feed::{End, Feed, Ready};
use super::pair::{Inner, Pair};
use super::resync_rate::ResyncRate;
use super::service::Serving;

/// How long a primary that is alone holds replies for a partner that acknowledges nothing.
const STALLED: Duration = Duration::from_secs(2);

/// Before it is tried again to begin a round where something is in the way.
const AGAIN: Duration = Duration::from_millis(50);
/// From one mark to the next while the two are in sync.
const MARK_EVERY: Duration = Duration::from_secs(30);
/// How often it is checked whether a mark is due.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Holds a round back to the limit on what SnapMirror's transfers send, of which it has one for
/// itself, and for what clients feel of it.
struct Pace {
    rate: ResyncRate,
    /// When more may be sent.
    due: Duration,
    /// KB/s, of which `due` was computed.
    limit: Option<u64>,
}

impl Pace {
    /// Waits before so many bytes more are sent.
    fn hold(&mut self, pair: &Pair, bytes: usize, feed: &Feed) {
        let (now, writes) = (pair.clock.monotonic(), pair.engine.log_writes());
        std::thread::sleep(self.rate.wait(now, writes, bytes));
        feed.set_rate(self.rate.limit().map_or(0, |limit| limit as u64));
        while !feed.is_closed() {
            let Some(Serving { control, .. }) = pair.service.serving() else {
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
        let Some(link) = inner.partner.link_mut().filter(|link| link.feed.is_none()) else {
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
        feed.set_marks(base, mark);
        {
            let mut inner = self.inner.lock();
            let term = inner.rules.register().term;
            let Some(link) = inner.partner.numbered(number) else {
                return Ok(());
            };
            link.say(&Message::Round {
                term,
                mark: mark.0,
                base: base.map(|base| base.0),
            });
            inner.partner.clear_fault();
            match base {
                Some(base) => {
                    tracing::info!("the partner gets the difference from mark {base} to {mark}");
                }
                None => tracing::info!("the partner gets everything, up to mark {mark}"),
            }
        }
        self.send.notify_one();
        let mut pace = Pace {
            rate: ResyncRate::default(),
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
                .partner
                .link()
                .is_some_and(|link| link.number == number);
            if inner.rules.role() != Role::Alone || inner.rules.stopping() || !linked {
                return Ok(None);
            }
            inner.partner.begin_round();
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
        // A copy that is not at a place of this stream is not one from which it goes on.
        let lineage = Lineage {
            fresh: false,
            before: None,
            terms: vec![inner.rules.register().term],
        };
        inner.partner.set_stream(stream, lineage);
    }

    /// All of a round is sent.
    pub(super) fn round_sent(&self, number: u64, follow: Option<StreamPosition>) {
        let mut inner = self.inner.lock();
        let term = inner.rules.register().term;
        let stream = inner
            .partner
            .stream()
            .cloned()
            .filter(|stream| !stream.is_overrun());
        let Some(link) = inner.partner.numbered(number) else {
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
        inner.partner.set_files(false);
        inner.partner.clear_fault();
    }

    /// A round cannot go on.
    pub(super) fn round_failed(&self, number: u64, why: &str) {
        let mut inner = self.inner.lock();
        let Some(link) = inner.partner.numbered(number) else {
            return;
        };
        link.feed = None;
        let why = format!("the partner's copy needs a synchronisation, which fails: {why}");
        link.refuse(&why);
        inner.note_fault(Fault::Refusal(why));
    }

    /// The partner has everything: what was kept for another link is of no use any more.
    pub(super) fn forget_round(&self) {
        if let Some(mut kept) = self.round.try_lock() {
            *kept = None;
        }
    }

    /// Has the partner's copy, which is this side's, brought up once more: from a mark, or with
    /// `everything` from nothing.
    ///
    /// # Errors
    /// This side serves; its file cannot be written.
    pub(super) fn resync(&self, everything: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.rules.serving() || !matches!(inner.rules.role(), Role::Standby | Role::Behind) {
            bail!("this node is not the standby of its pair: ask the other one");
        }
        let mut state = inner.rules.state();
        state.open = true;
        inner.rules.write_state(state, &self.folder)?;
        self.standby.begin_again(everything);
        if let Some(link) = inner.partner.link_mut() {
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
                let in_sync =
                    inner.rules.role() == Role::Primary && inner.rules.register().mirrored;
                if !in_sync || !inner.rules.serving() || inner.rules.stopping() {
                    last = None;
                    continue;
                }
                // Its mark is to stay.
                if inner.partner.is_compared() {
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
        if inner.rules.role() != Role::Alone || inner.partner.catching().is_none() {
            return;
        }
        if self.clock.monotonic() < inner.partner.progressed() + STALLED {
            return;
        }
        inner.partner.stop_catching();
        if let Some(stream) = inner.partner.stream().cloned() {
            self.engine.aggregate().log().follow(&stream);
        }
        if let Some(link) = inner.partner.link_mut() {
            link.close();
        }
        let why = "the partner acknowledges nothing, and is not waited for";
        inner.note_fault(Fault::Passing(why.to_owned()));
        self.send.notify_one();
    }

    /// The partner has everything that replies waited for.
    pub(super) fn caught_up(self: &Arc<Self>, inner: &mut Inner) {
        inner.partner.caught_up();
        self.forget_round();
        self.happens(inner, Node::caught_up);
    }
}
