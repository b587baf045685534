//! How a node stops serving in order: what was done reaches the partner, and the partner takes over.

use std::time::Duration;

use weir_mirror::Role;
use weir_mirror::wire::Message;

use super::config::State;
use super::{Inner, Pair};

/// How long a stop waits for the partner to acknowledge what was done.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Pair {
    /// This node is about to serve no more: changes that wait for the partner are not waited for much longer, and clients are not to come
    /// here any more. Their connections end after that.
    pub fn ends(&self) {
        self.addresses.end();
        // The first time counts.
        let _ = self.ends.set(self.clock.monotonic() + LAST_WORDS);
    }

    /// This node serves no more: what was done is acknowledged by the partner, if it is in sync, and it takes over.
    ///
    /// To be called when no client is served any more and before the engine ends.
    pub fn leave(&self) {
        self.hook("remove");
        let deadline = self.clock.monotonic() + LAST_WORDS;
        let mut inner = self.inner.lock();
        inner.stopping = true;
        if let Some(feed) = inner.link.as_mut().and_then(|link| link.feed.take()) {
            feed.close();
        }
        let Some(stream) = inner.stream.clone() else {
            return;
        };
        let in_sync = |inner: &Inner| inner.role == Role::Primary && inner.node.register().mirrored;
        while in_sync(&inner) && stream.acknowledged() < stream.last() {
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
        let in_sync = in_sync(&inner);
        let term = inner.node.register().term;
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
        let state = State::new(inner.node.register(), false);
        if let Err(error) = state.write(&self.folder) {
            tracing::error!("what this node was cannot be noted: {error:#}");
            return;
        }
        inner.state = state;
        if handed {
            let now = self.clock.monotonic();
            inner.node.hand_over(now);
            if let Some(link) = &mut inner.link {
                link.say(&Message::HandOver {
                    term,
                    sequence: at.sequence,
                    verifier: Some(self.engine.write_verifier()),
                });
            }
            self.send.notify_one();
            // Until it is on its way; if it is not, the partner finds out by itself.
            while inner.link.as_ref().is_some_and(|link| !link.said_all())
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
        if inner.role == Role::Primary && inner.node.register().mirrored && !inner.stopping {
            inner.stopping = true;
            let register = inner.node.register();
            tracing::error!("nothing can be changed here any more: the partner takes over");
            inner.node.hand_over(self.clock.monotonic());
            self.lease.set(Duration::ZERO);
            let sequence = inner.stream.as_ref().map_or(0, |s| s.acknowledged().0);
            if let Some(link) = &mut inner.link {
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
