//! What each command does and answers.

mod catalogue;
mod options;
mod policy;
mod relationships;
mod show;
mod snapshot;

pub use catalogue::COMMANDS;

use crate::cluster::{Cluster, Failure, Reason};
use crate::grammar::{self, Parsed};

/// ONTAP's words for a query that nothing matches.
const NO_ENTRIES: &str = "There are no entries matching your query.";

/// Runs a line and answers with what ONTAP would print; an empty line with nothing. `Err` holds the same kind of text, for
/// callers that tell failure from success.
pub fn execute(line: &str, cluster: &dyn Cluster) -> Result<String, String> {
    if line.trim().is_empty() {
        return Ok(String::new());
    }
    let parsed = grammar::parse(line, COMMANDS).map_err(|message| error(&message))?;
    let mut out = match parsed.in_full {
        true => String::new(),
        false => format!("  ({})\n", parsed.command.name()),
    };
    let answer = dispatch(&parsed, cluster)
        .map_err(|failure| format!("{out}{}", error(&failure.message)))?;
    out.push_str(&answer);
    Ok(out)
}

/// Nothing matches.
fn none() -> Failure {
    Failure::new(Reason::NotFound, NO_ENTRIES)
}

/// A command that cannot be carried out as it was given.
fn refused(message: String) -> Failure {
    Failure::new(Reason::Invalid, message)
}

fn error(message: &str) -> String {
    format!("\nError: {message}\n")
}

fn dispatch(parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    match parsed.command.path {
        ["snapmirror", "show"] => relationships::show(parsed, cluster),
        ["snapmirror", "list-destinations"] => relationships::list_destinations(parsed, cluster),
        ["snapmirror", "policy", verb] => policy::run(verb, parsed, cluster),
        ["snapmirror", verb] => relationships::act(verb, parsed, cluster),
        ["snapshot", verb] | ["volume", "snapshot", verb] => snapshot::run(verb, parsed, cluster),
        ["volume", "show"] => snapshot::volumes(parsed, cluster),
        ["job", "schedule", "show"] => policy::schedules(parsed, cluster),
        ["options"] | ["options", _] => options::run(parsed, cluster),
        ["version"] => Ok(format!("Weir {}\n", env!("CARGO_PKG_VERSION"))),
        _ => Err(refused(format!(
            "\"{}\" is not a recognized command",
            parsed.command.name()
        ))),
    }
}

/// A required argument; the grammar has seen to it that it is there.
fn argument<'p>(parsed: &'p Parsed, name: &str) -> Result<&'p str, Failure> {
    parsed
        .get(name)
        .ok_or_else(|| refused(format!("missing required argument \"-{name}\"")))
}

/// A value that is not of its kind, in ONTAP's words.
fn invalid(value: &str, name: &str, kind: &str) -> Failure {
    refused(format!(
        "\"{value}\" is an invalid value for field \"-{name} <{kind}>\""
    ))
}

/// What was asked and refused.
fn failed(failure: Failure) -> Failure {
    match failure.message == NO_ENTRIES {
        true => failure,
        false => Failure::new(
            failure.reason,
            format!("command failed: {}", failure.message),
        ),
    }
}
