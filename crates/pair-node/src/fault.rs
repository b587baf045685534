//! The fault that was last seen to keep the two nodes apart, or a node from serving.

use weir_peer_link::identity::{in_words, is_stranger};

/// Reason why the partner could not join, or the witness did not reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The next attempt may succeed.
    Passing(String),
    /// One node refuses the other. The next attempt fails as well, unless the cause is mended.
    Refusal(String),
}

impl Fault {
    pub fn why(&self) -> &str {
        match self {
            Fault::Passing(why) | Fault::Refusal(why) => why,
        }
    }
}

/// Error that ends a connection: one side refuses the other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusalError(pub String);

/// Returns the fault of an error that ends a connection, with `before` as the first words.
pub fn from_error(error: &anyhow::Error, before: &str) -> Fault {
    if is_stranger(error) {
        let why = "the partner does not know this node's certificate: it has another partner, or `weir pair accept` is missing there";
        return Fault::Refusal(why.to_owned());
    }
    let why = format!("{before}{}", in_words(error));
    match error.is::<RefusalError>() {
        true => Fault::Refusal(why),
        false => Fault::Passing(why),
    }
}
