//! What keeps the two nodes from each other, or a node from serving, as it was seen last.

use weir_mirror::Role;

use super::{Inner, Pair};
use weir_peer_link::identity::{in_words, is_stranger};

/// Why the partner could not go on, or the witness did not reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It may be over with the next attempt.
    Passing(String),
    /// One of the two does not go on with the other. The next attempt will end the same, unless something was mended.
    Refusal(String),
}

impl Fault {
    pub fn why(&self) -> &str {
        match self {
            Fault::Passing(why) | Fault::Refusal(why) => why,
        }
    }
}

/// Why a connection ends: one side does not go on with the other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Returns the fault of an error that ends a connection, with `before` as the first words.
pub fn of(error: &anyhow::Error, before: &str) -> Fault {
    if is_stranger(error) {
        let why = "the partner does not know this node's certificate: it has another partner, or `weir pair accept` is missing there";
        return Fault::Refusal(why.to_owned());
    }
    let why = format!("{before}{}", in_words(error));
    match error.is::<Refused>() {
        true => Fault::Refusal(why),
        false => Fault::Passing(why),
    }
}

impl Inner {
    /// This is in the way now; the log says so once. What a user may do by force is not said before the pair has been
    /// [degraded for long](super::state), and what is in the way of a start may be over in a moment.
    pub(crate) fn note_fault(&mut self, fault: Fault) {
        let starts = !matches!(
            self.rules.role(),
            Role::Primary | Role::Standby | Role::Alone
        );
        let why = fault.why();
        match &fault {
            _ if self.partner.fault() == Some(&fault) => {}
            Fault::Passing(_) if why.contains("--force") => {}
            Fault::Passing(_) if starts => tracing::info!("{why}"),
            _ => tracing::warn!("{why}"),
        }
        self.partner.set_fault(fault);
    }

    /// In words.
    pub(crate) fn fault_text(&self) -> Option<String> {
        let fault = self.partner.fault();
        fault.map(|fault| fault.why().to_owned())
    }
}

impl Pair {
    pub(super) fn note_passing(&self, why: String) {
        let mut inner = self.inner.lock();
        inner.note_fault(Fault::Passing(why));
    }

    /// Whether the two could not go on with each other last.
    pub(super) fn refused(&self) -> bool {
        matches!(self.inner.lock().partner.fault(), Some(Fault::Refusal(_)))
    }
}
