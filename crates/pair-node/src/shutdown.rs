//! Orderly end of service: the partner receives all changes and takes over.

use std::time::Duration;

use weir_mirror::Role;
use weir_mirror::wire::Message;

use super::config::State;
use super::pair::Pair;

/// Maximum time that a stop waits for the partner's acknowledgement.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Pair {
    /// Prepares the end of service: limits the time for which changes wait for the partner, and
    /// removes the addresses. The clients' connections end after that.
    pub fn end(&self) {
        self.service.end(self.clock.monotonic() + LAST_WORDS);
    }

    /// Ends the service: waits until a partner in sync has acknowledged all changes, and hands over
    /// to it.
    ///
    /// To be called when no client is served any more and before the engine ends.
    pub fn leave(&self) {
        self.service.run_hook("remove");
        let deadline = self.clock.monotonic() + LAST_WORDS;
        let mut inner = self.inner.lock();
        inner.rules.stop();
        if let Some(feed) = inner.partner.link_mut().and_then(|link| link.feed.take()) {
            feed.close();
        }
        let Some(stream) = inner.partner.stream().cloned() else {
            return;
        };
        while inner.rules.in_sync() && stream.acknowledged() < stream.last() {
            let left = deadline.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                tracing::warn!(
                    "cannot hand over: the partner has not acknowledged everything; it does not take over by itself from here"
                );
                return;
            }
            drop(inner);
            std::thread::sleep(Duration::from_millis(1).min(left));
            inner = self.inner.lock();
        }
        let in_sync = inner.rules.in_sync();
        let term = inner.rules.register().term;
        // From here on no change is made that the position does not cover.
        self.engine.end_stream();
        let at = self.engine.position();
        // A change made meanwhile all the same is missing on the partner.
        let handed = in_sync && stream.acknowledged().0 == at.sequence;
        let noted = self
            .engine
            .note_position(at)
            .is_ok_and(|lsn| self.engine.wait_durable(Some(lsn)).is_ok());
        if !noted {
            return;
        }
        let state = State::new(inner.rules.register(), false);
        if let Err(error) = inner.rules.write_state(state, &self.folder) {
            tracing::error!("cannot persist the pair role: {error:#}");
            return;
        }
        if handed {
            inner.rules.hand_over();
            if let Some(link) = inner.partner.link_mut() {
                link.say(&Message::HandOver {
                    term,
                    sequence: at.sequence,
                    verifier: Some(self.engine.write_verifier()),
                });
            }
            self.send.notify_one();
            // Waits until the message is on its way. If it is lost, the partner finds out by
            // itself.
            while inner.partner.link().is_some_and(|link| !link.said_all())
                && self.clock.monotonic() < deadline
            {
                drop(inner);
                std::thread::sleep(Duration::from_millis(1));
                inner = self.inner.lock();
            }
            tracing::info!(
                "handed over to the partner at {} of term {term}",
                at.sequence
            );
        }
    }

    /// Hands over to a partner in sync because this side's disk takes no more changes.
    pub(super) fn give_up(&self) {
        let mut inner = self.inner.lock();
        if inner.rules.role() == Role::Primary
            && inner.rules.register().mirrored
            && !inner.rules.stopping()
        {
            inner.rules.stop();
            let register = inner.rules.register();
            tracing::error!("nothing can be changed here any more: the partner takes over");
            inner.rules.hand_over();
            inner.rules.end_lease();
            let sequence = inner.partner.stream().map_or(0, |s| s.acknowledged().0);
            if let Some(link) = inner.partner.link_mut() {
                link.say(&Message::HandOver {
                    term: register.term,
                    sequence,
                    // Writes that were not in the log yet are lost here.
                    verifier: None,
                });
            }
            self.send.notify_one();
        }
    }
}
