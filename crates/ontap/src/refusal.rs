//! Refusals of commands, in ONTAP's words.

use crate::cluster::{Failure, Reason};
use crate::grammar::ParsedCommand;

/// ONTAP's words for a query that nothing matches.
const NO_ENTRIES: &str = "There are no entries matching your query.";

/// Returns the refusal when no record matches.
pub fn none() -> Failure {
    Failure::new(Reason::NotFound, NO_ENTRIES)
}

/// Creates the refusal of a command that cannot be carried out as it was given.
pub fn refused(message: String) -> Failure {
    Failure::new(Reason::Invalid, message)
}

/// Returns a required argument; the grammar has seen to it that it is there.
pub fn argument<'p>(parsed: &'p ParsedCommand, name: &str) -> Result<&'p str, Failure> {
    parsed
        .get(name)
        .ok_or_else(|| refused(format!("missing required argument \"-{name}\"")))
}

/// Creates the refusal of a value that is not of its kind, in ONTAP's words.
pub fn invalid(value: &str, name: &str, kind: &str) -> Failure {
    refused(format!(
        "\"{value}\" is an invalid value for field \"-{name} <{kind}>\""
    ))
}

/// Refuses a value as [`invalid`] does, and names those that are valid.
pub fn not_among(value: &str, name: &str, kind: &str, valid: &str) -> Failure {
    let refusal = invalid(value, name, kind);
    refused(format!("{} (valid: {valid})", refusal.message))
}

/// Returns the failure of a command, with its message introduced; that nothing matches stays as it
/// is.
pub fn failed(failure: Failure) -> Failure {
    match failure.message == NO_ENTRIES {
        true => failure,
        false => Failure::new(
            failure.reason,
            format!("command failed: {}", failure.message),
        ),
    }
}
