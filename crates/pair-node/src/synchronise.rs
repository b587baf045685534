//! Resync of a partner whose copy is not at a position in the stream: of a pair that was made of an
//! aggregate with data, of a primary that was killed, or of a partner that was away for longer than
//! the window covers.
//!
//! The engine makes the entries of a round ([`weir_volume::Round`]): the difference to a mark that
//! is made now, from a mark that both sides hold or from nothing. They travel over the same link as
//! the stream's entries and are applied by the same code. When the last of them is sent, the copy
//! is at the position where this primary's stream begins, and joins it ([`Message::Join`]). If
//! clients wrote more meanwhile than the window holds, another round follows, from the mark just
//! made.
//!
//! **Only alone.** From a round's first entry to its last the copy is no state that anybody ever
//! saw. So a round begins only once the witness has recorded the primary as alone: then the partner
//! cannot take over.
//!
//! **After a break.** The round is kept, and resumes behind the entries that the partner has. A
//! primary that was restarted finds the mark and resumes as well; its clients' changes follow with
//! another round.
//!
//! **Marks.** While the two are in sync the primary makes one every [`MARK_EVERY`] if something has
//! changed. So a lost node returns by a difference that covers little more than the time it was
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
use super::feed::{End, Feed, FeedEntry};
use super::pair::{Inner, Pair};
use super::resync_rate::ResyncRate;
use super::service::ServiceParts;

/// Maximum time that a primary that is alone holds replies for a partner that acknowledges nothing.
const STALLED: Duration = Duration::from_secs(2);

/// Delay before the next attempt to begin a round.
const AGAIN: Duration = Duration::from_millis(50);
/// Interval between marks while the two are in sync.
const MARK_EVERY: Duration = Duration::from_secs(30);
/// Interval between checks whether a mark is due.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Pace of a round: the limit for transfers of SnapMirror, which the round has for itself, and the
/// throttle that protects clients.
struct Pace {
    rate: ResyncRate,
    /// Time from which more may be sent, by the clock.
    due: Duration,
    /// Limit in KB/s from which `due` was computed.
    limit: Option<u64>,
}

impl Pace {
    /// Waits until `bytes` more may be sent.
    fn hold(&mut self, pair: &Pair, bytes: usize, feed: &Feed) {
        let (now, writes) = (pair.clock.monotonic(), pair.engine.log_writes());
        std::thread::sleep(self.rate.wait(now, writes, bytes));
        feed.set_rate(self.rate.limit().map_or(0, |limit| limit as u64));
        while !feed.is_closed() {
            let Some(ServiceParts { control, .. }) = pair.service.serving() else {
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

/// A round, kept for a later link.
pub struct SavedRound {
    round: Round,
    /// Beginning of the stream that a copy joins after the round.
    follow: Option<StreamPosition>,
}

impl Pair {
    /// Starts the thread that brings the partner's copy up. This side is the primary, alone.
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
        let SavedRound { round, follow } = kept.insert(found);
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
                    tracing::info!(
                        "resync: the partner gets the difference from mark {base} to {mark}"
                    );
                }
                None => tracing::info!("resync: the partner gets everything, up to mark {mark}"),
            }
        }
        self.send.notify_one();
        let mut pace = Pace {
            rate: ResyncRate::default(),
            due: Duration::ZERO,
            limit: None,
        };
        while let Some(entry) = round.advance().map_err(|e| anyhow!("mark {mark}: {e}"))? {
            let ready = FeedEntry::from_round_entry(entry);
            pace.hold(self, ready.weight(), feed);
            if !feed.put(ready) {
                return Ok(());
            }
            self.send.notify_one();
        }
        feed.end(End::Whole(*follow));
        Ok(())
    }

    /// Returns a round that resumes where the partner's copy is, or a new one; `None` if the link
    /// has ended.
    fn find_round(
        &self,
        kept: Option<SavedRound>,
        number: u64,
        hello: &Hello,
        feed: &Feed,
    ) -> Result<Option<SavedRound>> {
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
        let failed = |e: FsError| anyhow!("cannot resume a round: {e}");
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
                        return Ok(Some(SavedRound {
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

    fn begin_round(
        &self,
        base: Option<MarkId>,
        number: u64,
        feed: &Feed,
    ) -> Result<Option<SavedRound>> {
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
                    engine
                        .cp_now()
                        .map_err(|e| anyhow!("cannot make a checkpoint: {e}"))?;
                    std::thread::sleep(AGAIN);
                }
                Err(FsError::NotSupported) => bail!(
                    "cannot begin a round: a volume here is a destination of SnapMirror, which a pair cannot mirror (break it off or delete it)"
                ),
                Err(e) => bail!("cannot begin a round: {e}"),
            }
        };
        if let Some(stream) = stream {
            self.goes_on(&mut self.inner.lock(), stream);
        }
        Ok(Some(SavedRound {
            round,
            follow: Some(from),
        }))
    }

    fn goes_on(&self, inner: &mut Inner, stream: Arc<ChangeStream>) {
        let wake = Arc::clone(&self.send);
        stream.wake_by(Box::new(move || wake.notify_one()));
        // A copy that is not at a position in this stream cannot join it.
        let lineage = Lineage {
            fresh: false,
            before: None,
            terms: vec![inner.rules.register().term],
        };
        inner.partner.set_stream(stream, lineage);
    }

    /// Lets the partner join the stream after the last entry of a round, or asks for another round.
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
            tracing::info!("resync: another round follows for changes that were made meanwhile");
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

    /// Refuses the partner because a round has failed.
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

    /// Drops the kept round: the partner has everything.
    pub(super) fn forget_round(&self) {
        if let Some(mut kept) = self.round.try_lock() {
            *kept = None;
        }
    }

    /// Requests a new resync of this side's copy: from a mark, or with `everything` from nothing.
    ///
    /// # Errors
    /// This side is not the standby, or its state cannot be written.
    pub(super) fn resync(&self, everything: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.rules.serving() || !matches!(inner.rules.role(), Role::Standby | Role::Behind) {
            bail!("cannot resync: this node is not the standby of its pair (ask the other node)");
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
                // The mark of a comparison must stay.
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

    /// Stops replies from waiting for a partner that acknowledges nothing.
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

    /// Tells the rules that the partner has everything that replies waited for.
    pub(super) fn caught_up(self: &Arc<Self>, inner: &mut Inner) {
        inner.partner.caught_up();
        self.forget_round();
        self.happens(inner, Node::caught_up);
    }
}
