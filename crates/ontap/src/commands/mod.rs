//! Implementation of each command.

pub(crate) mod catalogue;
mod cifs;
mod export;
pub mod failover;
mod moves;
pub mod node;
mod options;
pub mod policy;
mod qtree;
mod quota;

mod relationships;
mod show;
mod snapshot;
mod statistics;
mod storage;
mod verbs;
pub mod volume;

pub use catalogue::COMMANDS;
pub use options::NAMES as OPTION_NAMES;
pub use show::{Answer, Record};

use crate::cluster::{Cluster, Failure, Reason};
use crate::grammar::{self, ParsedCommand};
use crate::refusal::refused;

/// Runs a line and returns what ONTAP would print; for an empty line, nothing. `Err` holds the same
/// kind of text, for callers that distinguish failure from success.
pub fn execute(line: &str, cluster: &dyn Cluster) -> Result<String, String> {
    run(line, cluster).map_err(|(echo, failure)| format!("{echo}{}", error(&failure.message)))
}

/// Runs a line like [`execute`], with the refusal apart from the line that says how an abbreviated
/// command was understood.
pub fn run(line: &str, cluster: &dyn Cluster) -> Result<String, (String, Failure)> {
    if line.trim().is_empty() {
        return Ok(String::new());
    }
    if let Some(before) = crate::help::asked(line) {
        return crate::help(before).map_err(|message| (String::new(), refused(message)));
    }
    let parsed =
        grammar::parse(line, COMMANDS).map_err(|message| (String::new(), refused(message)))?;
    let echo = match parsed.in_full {
        true => String::new(),
        false => format!("  ({})\n", parsed.command.name()),
    };
    match dispatch(&parsed, cluster) {
        Ok(Answer::Text(text)) => Ok(echo + &warnings(cluster) + &text),
        Ok(Answer::Records(_)) => Ok(echo),
        Err(failure) => Err((echo, failure)),
    }
}

/// Runs a command that a program gives in parts: its words, and names with values. What `show`
/// finds comes as records. `lenient`: fields, queries and arguments that the command does not have
/// are passed over.
///
/// # Errors
/// The refusal; [`Reason::Unsupported`] where there is no such command.
pub fn call(
    words: &[&str],
    arguments: Vec<(String, String)>,
    lenient: bool,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    let Some(command) = COMMANDS.iter().find(|c| c.path == words) else {
        return Err(Failure::new(
            Reason::Unsupported,
            format!("\"{}\" is not a recognized command", words.join(" ")),
        ));
    };
    let parsed = grammar::parse_arguments(command, arguments, lenient).map_err(refused)?;
    Ok(match dispatch(&parsed, cluster)? {
        Answer::Text(text) => Answer::Text(warnings(cluster) + &text),
        records @ Answer::Records(_) => records,
    })
}

/// Returns the warnings of a change, a line each.
fn warnings(cluster: &dyn Cluster) -> String {
    let all = cluster.take_warnings().into_iter();
    all.map(|why| format!("Warning: {why}\n")).collect()
}

/// Returns the text that is printed for a refusal.
pub fn error(message: &str) -> String {
    format!("\nError: {message}\n")
}

fn dispatch(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    match parsed.command.path {
        ["snapmirror", "show"] => relationships::show(parsed, cluster),
        ["snapmirror", "list-destinations"] => relationships::list_destinations(parsed, cluster),
        ["snapmirror", "policy", verb] => policy::run(verb, parsed, cluster),
        ["snapmirror", verb] => verbs::act(verb, parsed, cluster),
        ["snapshot", verb] | ["volume", "snapshot", verb] => snapshot::run(verb, parsed, cluster),
        ["volume", "show"] | ["volume", "footprint", "show"] => volume::show(parsed, cluster),
        ["volume", "create"] => volume::create(parsed, cluster),
        ["volume", "delete"] => volume::delete(parsed, cluster),
        ["volume", "snapshot", "policy", verb] => storage::snapshot_policy(verb, parsed, cluster),
        [
            "volume",
            verb @ ("modify" | "mount" | "unmount" | "online" | "offline"),
        ] => volume::modify(verb, parsed, cluster),
        ["volume", "move", verb] => moves::run(verb, parsed, cluster),
        ["volume", "size"] => volume::resize(parsed, cluster),
        ["volume", "rename"] => volume::rename(parsed, cluster),
        ["volume", "quota", "policy", "rule", verb] => quota::rule(verb, parsed, cluster),
        ["volume", "quota", "report"] => quota::report(parsed, cluster),
        ["volume", "quota", "show"] => quota::show(parsed, cluster),
        ["volume", "quota", verb] => quota::switch(verb, parsed, cluster),
        ["volume", "qtree", verb] => qtree::run(verb, parsed, cluster),
        ["df"] => storage::df(parsed, cluster),
        ["qos", "statistics", "volume", what, "show"] => statistics::qos(what, parsed, cluster),
        ["statistics", "show"] => statistics::counters(parsed, cluster),
        ["statistics", "volume", "show"] => statistics::volumes(parsed, cluster),
        ["qos", "policy-group", verb] => storage::policy_group(verb, parsed, cluster),
        ["storage", "failover", verb] => failover::run(verb, parsed, cluster),
        ["storage", "aggregate", "relocation", "start"] => failover::relocate(parsed, cluster),
        ["storage", "aggregate", "relocation", "show"] => failover::relocations(parsed, cluster),
        ["storage", "aggregate", "show"] => storage::aggregates(parsed, cluster),
        ["cifs", what, verb] | ["vserver", "cifs", what, verb] => {
            cifs::run(what, verb, parsed, cluster)
        }
        ["vserver", "export-policy", "rule", verb] => export::rule(verb, parsed, cluster),
        ["vserver", "export-policy", verb] => export::run(verb, parsed, cluster),
        ["vserver", "peer", "show"] => storage::svm_peers(parsed, cluster),
        ["vserver", "show"] => storage::vservers(parsed, cluster),
        ["storage", "aggregate", "show-space"] => storage::aggregate_space(parsed, cluster),
        ["cluster", "show"] => node::cluster_show(parsed, cluster),
        ["cluster", "date", "show"] => node::date(parsed, cluster),
        ["system", "node", "show"] => node::nodes(parsed, cluster),
        ["qos", "workload", "show"] => storage::workloads(parsed, cluster),
        ["job", "show"] => storage::jobs(parsed, cluster),
        ["event", "log", "show"] => storage::events(parsed, cluster),
        ["volume", "clone", "create"] => volume::clone(parsed, cluster),
        ["volume", "clone", "split", "start"] => volume::split(parsed, cluster),
        ["job", "schedule", "show"] => node::schedules(parsed, cluster),
        ["job", "schedule", "cron", "create"] => node::cron(parsed, cluster),
        ["job", "schedule", "interval", "create"] => node::interval(parsed, cluster),
        ["job", "schedule", "delete"] => node::delete_schedule(parsed, cluster),
        ["cluster", "identity", "show"] => node::identity(parsed, cluster),
        ["cluster", "peer", "show"] => node::peers(parsed, cluster),
        ["cluster", "peer", "create"] => node::create_peer(parsed, cluster),
        ["cluster", "peer", "delete"] => node::delete_peer(parsed, cluster),
        ["options"] | ["options", _] => options::run(parsed, cluster),
        ["version"] => Ok(format!("Weir {}\n", env!("CARGO_PKG_VERSION")).into()),
        _ => Err(refused(format!(
            "\"{}\" is not a recognized command",
            parsed.command.name()
        ))),
    }
}
