//! What keeps the two nodes from each other, or a node from serving, as it was seen last.

use std::io;

use tokio_rustls::rustls::{AlertDescription, Error as TlsError};
use weir_mirror::Role;

use super::{Inner, Pair};
use crate::identity::in_words;

/// Why the partner could not go on, or the witness did not reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It may be over with the next attempt.
    Passing(String),
    /// One of the two does not go on with the other. The next attempt will end the same, unless something was mended.
    Refusal(String),
}

impl Trouble {
    pub fn why(&self) -> &str {
        match self {
            Trouble::Passing(why) | Trouble::Refusal(why) => why,
        }
    }
}

/// Why a connection ends: one side does not go on with the other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Whether the other end does not know this node's certificate. In TLS 1.3 it says so only after the handshake.
pub fn is_stranger(error: &anyhow::Error) -> bool {
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    let denied = TlsError::AlertReceived(AlertDescription::AccessDenied);
    inner.and_then(|inner| inner.downcast_ref::<TlsError>()) == Some(&denied)
}

/// Of an error that ends a connection, and the trouble that it is with `before` said first.
pub fn of(error: &anyhow::Error, before: &str) -> Trouble {
    if is_stranger(error) {
        let why = "the partner does not know this node's certificate: it has another partner, or `weir pair accept` is missing there";
        return Trouble::Refusal(why.to_owned());
    }
    let why = format!("{before}{}", in_words(error));
    match error.is::<Refused>() {
        true => Trouble::Refusal(why),
        false => Trouble::Passing(why),
    }
}

impl Inner {
    /// This is in the way now; the log says so once. What a user may do by force is not said before the pair has been
    /// [degraded for long](super::state), and what is in the way of a start may be over in a moment.
    pub fn has_trouble(&mut self, trouble: Trouble) {
        let starts = !matches!(self.role, Role::Primary | Role::Standby | Role::Alone);
        let why = trouble.why();
        match &trouble {
            _ if self.trouble.as_ref() == Some(&trouble) => {}
            Trouble::Passing(_) if why.contains("--force") => {}
            Trouble::Passing(_) if starts => tracing::info!("{why}"),
            _ => tracing::warn!("{why}"),
        }
        self.trouble = Some(trouble);
    }

    /// In words.
    pub fn trouble(&self) -> Option<String> {
        self.trouble
            .as_ref()
            .map(|trouble| trouble.why().to_owned())
    }
}

impl Pair {
    pub(super) fn troubled(&self, why: String) {
        self.inner.lock().has_trouble(Trouble::Passing(why));
    }

    /// Whether the two could not go on with each other last.
    pub(super) fn refused(&self) -> bool {
        matches!(self.inner.lock().trouble, Some(Trouble::Refusal(_)))
    }
}
