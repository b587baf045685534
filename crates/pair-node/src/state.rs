//! The state of a pair as its operators know it, in the log and in `weir pair show`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weir_mirror::Role;

use super::pair::{Inner, Pair};
use super::rules::role_name;

/// Time after which a state other than PRIMARY, STANDBY and SYNCING is warned of.
const LONG: Duration = Duration::from_secs(30);

/// The state of the pair as one node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairState {
    /// This node serves, and its partner has everything.
    Primary,
    /// The partner serves, and this node has everything.
    Standby,
    /// One of the two copies is brought up to the other.
    Syncing,
    /// This node serves, and no partner is there.
    Alone,
    /// This node does not serve, and does not know of one that does.
    Degraded,
}

impl fmt::Display for PairState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairState::Primary => "PRIMARY",
            PairState::Standby => "STANDBY",
            PairState::Syncing => "SYNCING",
            PairState::Alone => "ALONE",
            PairState::Degraded => "DEGRADED",
        })
    }
}

/// The state that was logged last.
#[derive(Default)]
pub struct LoggedState {
    state: Option<PairState>,
    /// Current state, and the time since which it has lasted.
    now: Option<(PairState, Duration)>,
    /// True if the current state was warned of.
    warned: bool,
}

impl Inner {
    /// Returns the current state.
    pub(super) fn state_now(&self) -> PairState {
        let linked = self.partner.link();
        match self.rules.role() {
            Role::Primary if self.rules.register().mirrored => PairState::Primary,
            Role::Standby => PairState::Standby,
            Role::Behind if linked.is_some() => PairState::Syncing,
            Role::Primary | Role::Alone => match linked {
                Some(link) if link.joined.is_some() || link.feed.is_some() => PairState::Syncing,
                _ => PairState::Alone,
            },
            _ => PairState::Degraded,
        }
    }
}

impl Pair {
    /// Logs the state when it has changed, and warns of one that lasts.
    pub(super) fn log_state(self: &Arc<Self>) {
        let inner = &mut *self.inner.lock();
        if inner.rules.stopping() {
            return;
        }
        let (state, now) = (inner.state_now(), self.clock.monotonic());
        let since = match inner.logged.now {
            Some((before, since)) if before == state => since,
            _ => {
                inner.logged.now = Some((state, now));
                inner.logged.warned = false;
                now
            }
        };
        let register = inner.rules.register();
        // A start, and each turn, goes through DEGRADED for a moment.
        if inner.logged.state != Some(state) && state != PairState::Degraded {
            let was = match inner.logged.state.replace(state) {
                Some(was) => format!(", was {was}"),
                None => String::new(),
            };
            let (term, version) = (register.term, register.version);
            let said = format!("pair state {state}{was} (term {term}, version {version})");
            match (state, was.is_empty()) {
                (PairState::Alone, false) => tracing::warn!("{said}"),
                _ => tracing::info!("{said}"),
            }
        }
        if now < since + LONG || inner.logged.warned {
            return;
        }
        inner.logged.warned = true;
        let (seconds, data) = (LONG.as_secs(), self.folder.display());
        let why = inner
            .fault_text()
            .map_or_else(String::new, |why| format!("; {why}"));
        match state {
            PairState::Primary | PairState::Standby | PairState::Syncing => {}
            PairState::Alone => tracing::warn!(
                "pair state ALONE for {seconds} s: what is written is on this node only{why} (start the partner; \
                 `weir pair show --data {data}` says what is in the way)"
            ),
            PairState::Degraded => {
                inner.logged.state = Some(state);
                tracing::warn!(
                    "pair state DEGRADED for {seconds} s: {}, and no client is served from here{why} (`weir pair show --data {data}` \
                     says what is in the way; once the other node is off for good, `weir pair takeover --force` here has this \
                     one serve what it has)",
                    role_name(inner.rules.role())
                );
            }
        }
    }
}
