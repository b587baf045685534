//! How a node stops serving in order: what was done reaches the partner, and the partner takes
//! over.

use std::time::Duration;

use weir_mirror::Role;
use weir_mirror::wire::Message;

use super::config::State;
use super::pair::Pair;

/// How long a stop waits for the partner to acknowledge what was done.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Pair {
    /// This node is about to serve no more: changes that wait for the partner are not waited for
    /// much longer, and clients are not to come here any more. Their connections end after that.
    pub fn end(&self) {
        self.service.end(self.clock.monotonic() + LAST_WORDS);
    }

    /// This node serves no more: what was done is acknowledged by the partner, if it is in sync,
    /// and it takes over.
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
                    "the partner has not acknowledged everything; it does not take over by itself from here"
                );
                return;
            }
            drop(inner);
            std::thread::sleep(Duration::from_millis(1).min(left));
            inner = self.inner.lock();
        }
        let in_sync = inner.rules.in_sync();
        let term = inner.rules.register().term;
        // In order: nothing is done any more that the position does not say.
        self.engine.end_stream();
        let at = self.engine.position();
        // If something was done meanwhile all the same, the partner does not have it.
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
            // Until it is on its way; if it is not, the partner finds out by itself.
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

    /// This side's disk does not take changes any more: the partner is to serve.
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
                    // What was not in the log yet is lost here.
                    verifier: None,
                });
            }
            self.send.notify_one();
        }
    }
}
