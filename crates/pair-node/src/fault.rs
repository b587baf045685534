//! What keeps the two nodes from each other, or a node from serving, as it was seen last.

use weir_peer_link::identity::{in_words, is_stranger};

/// Why the partner could not go on, or the witness did not reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It may be over with the next attempt.
    Passing(String),
    /// One of the two does not go on with the other. The next attempt will end the same, unless
    /// something was mended.
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
