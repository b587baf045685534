//! `snapmirror`: what changes relationships and moves data.

use weir_relations::manager::{First, Verb};
use weir_relations::model::{FileRestore, Path};

use super::show::Answer;
use crate::cluster::{Cluster, Failure};
use crate::fields::relationship::{Draft, TABLE};
use crate::fields::{self, Way};
use crate::grammar::ParsedCommand;
use crate::query;
use crate::refusal::{argument, failed, invalid, none, refused};

fn path(parsed: &ParsedCommand, name: &str) -> Result<Path, Failure> {
    let text = argument(parsed, name)?;
    Path::parse(text).ok_or_else(|| invalid(text, name, "[<cluster>:]<vserver>:<volume>"))
}

/// Returns what the arguments set.
fn draft(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Draft, Failure> {
    let mut draft = Draft::default();
    fields::read(&TABLE, parsed, Way::Create, &mut draft, cluster, None)?;
    Ok(draft)
}

/// Runs a verb of `snapmirror` that changes relationships.
pub fn act(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let draft = draft(parsed, cluster)?;
    if let Some(answer) = act_on_ends(verb, parsed, cluster, &draft)? {
        return Ok(answer);
    }
    let destinations = matched(parsed, cluster)?;
    if destinations.is_empty() {
        return Err(none());
    }
    let mut out = String::new();
    for destination in destinations {
        // A policy that comes with another verb holds from this transfer on.
        if let (Some(policy), true) = (draft.policy.clone(), verb == "resync") {
            let change = Verb::Modify {
                destination: destination.clone(),
                policy: Some(policy),
                schedule: None,
                throttle: None,
                tries: None,
                note: None,
            };
            cluster.change(change.into()).map_err(failed)?;
        }
        cluster
            .change(change(verb, parsed, &draft, &destination)?.into())
            .map_err(failed)?;
        out.push_str(&match verb {
            "update" | "initialize" | "resync" => queued(verb, &destination),
            "modify" | "delete" | "release" => succeeded_for(verb, &destination),
            _ => succeeded(verb, &destination),
        });
    }
    Ok(out.into())
}

/// Runs a verb that names both ends of a relationship, which it may create; `None` if it acts on
/// relationships that exist.
fn act_on_ends(
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
    draft: &Draft,
) -> Result<Option<Answer>, Failure> {
    match verb {
        "create" => {
            let (source, destination) = (
                path(parsed, "source-path")?,
                path(parsed, "destination-path")?,
            );
            let change = Verb::Create {
                policy: draft.policy.clone(),
                schedule: draft.schedule.clone().flatten(),
                throttle: draft.throttle.flatten(),
                tries: draft.tries,
                note: None,
                initialize: None,
                source,
                destination: destination.clone(),
            };
            cluster.change(change.into()).map_err(failed)?;
            Ok(Some(succeeded_for("create", &destination).into()))
        }
        "restore" => {
            let (source, destination) = (
                path(parsed, "source-path")?,
                path(parsed, "destination-path")?,
            );
            let change = Verb::Restore {
                source,
                destination: destination.clone(),
                source_snapshot: parsed.get("source-snapshot").map(str::to_owned),
                throttle: draft.throttle.flatten(),
                files: files(parsed),
            };
            cluster.change(change.into()).map_err(failed)?;
            Ok(Some(queued("restore", &destination).into()))
        }
        // Without a relationship, `initialize` with a source makes one.
        "initialize"
            if parsed.get("source-path").is_some() && matched(parsed, cluster)?.is_empty() =>
        {
            let destination = path(parsed, "destination-path")?;
            let change = Verb::Create {
                source: path(parsed, "source-path")?,
                destination: destination.clone(),
                policy: draft.policy.clone(),
                schedule: draft.schedule.clone().flatten(),
                throttle: None,
                tries: None,
                note: None,
                initialize: Some(First {
                    source_snapshot: parsed.get("source-snapshot").map(str::to_owned),
                    throttle: draft.throttle,
                    once_paired: false,
                }),
            };
            cluster.change(change.into()).map_err(failed)?;
            Ok(Some(queued("initialize", &destination).into()))
        }
        // The other way round: today's destination is the source.
        "resync" if parsed.get("source-path").is_some() && matched(parsed, cluster)?.is_empty() => {
            let (source, destination) = (
                path(parsed, "source-path")?,
                path(parsed, "destination-path")?,
            );
            let change = Verb::Resync {
                destination: destination.clone(),
                source: Some(source),
            };
            quick(parsed)?;
            cluster.change(change.into()).map_err(failed)?;
            Ok(Some(queued("resync", &destination).into()))
        }
        _ => Ok(None),
    }
}

/// Reads `-file-list /a,/b,@/c`: a name that begins with `@` is the new one of the path before it.
fn files(parsed: &ParsedCommand) -> Vec<FileRestore> {
    let mut all: Vec<FileRestore> = Vec::new();
    for part in parsed.get("file-list").unwrap_or_default().split(',') {
        let part = part.trim();
        match (part.strip_prefix('@'), all.last_mut()) {
            (Some(to), Some(before)) => before.destination = to.to_owned(),
            _ if part.is_empty() => {}
            _ => all.push(FileRestore {
                source: part.to_owned(),
                destination: part.to_owned(),
            }),
        }
    }
    all
}

fn quick(parsed: &ParsedCommand) -> Result<bool, Failure> {
    match parsed.get("quick-resync") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(invalid(other, "quick-resync", "true|false")),
    }
}

fn change(
    verb: &str,
    parsed: &ParsedCommand,
    draft: &Draft,
    destination: &Path,
) -> Result<Verb, Failure> {
    let destination = destination.clone();
    let source_snapshot = parsed.get("source-snapshot").map(str::to_owned);
    // A resync always searches for data that the destination already has.
    quick(parsed)?;
    Ok(match verb {
        "modify" => Verb::Modify {
            destination,
            policy: draft.policy.clone(),
            schedule: draft.schedule.clone(),
            throttle: draft.throttle,
            tries: draft.tries,
            note: None,
        },
        "initialize" => Verb::Initialize {
            destination,
            source_snapshot,
            throttle: draft.throttle,
        },
        "update" => Verb::Update {
            destination,
            source_snapshot,
            throttle: draft.throttle,
        },
        "quiesce" => Verb::Quiesce(destination),
        "resume" => Verb::Resume(destination),
        "abort" => Verb::Abort {
            destination,
            hard: parsed.get("hard").is_some_and(|hard| hard == "true"),
        },
        "break" => Verb::Break(destination),
        "resync" => Verb::Resync {
            destination,
            source: None,
        },
        "release" => Verb::Release(destination),
        "delete" => Verb::Delete(destination),
        _ => return Err(refused(format!("\"{verb}\" is not a recognized command"))),
    })
}

/// Returns the destinations of the relationships that the arguments mean; `release` reads those
/// whose source is here.
fn matched(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Vec<Path>, Failure> {
    let destination = argument(parsed, "destination-path")?;
    let plain = !destination.contains(['*', '|', '!', '<', '>']);
    if plain && Path::parse(destination).is_none() {
        return Err(invalid(
            destination,
            "destination-path",
            "[<cluster>:]<vserver>:<volume>",
        ));
    }
    let source = parsed.get("source-path");
    let all = match parsed.command.path {
        ["snapmirror", "release"] => cluster.destinations(),
        _ => cluster.relationships(),
    };
    let meant = all.into_iter().filter(|r| {
        query::matches(destination, &r.destination.to_string())
            && source.is_none_or(|source| query::matches(source, &r.source.to_string()))
    });
    Ok(meant.map(|r| r.destination).collect())
}

fn succeeded_for(verb: &str, destination: &Path) -> String {
    format!(
        "Operation succeeded: snapmirror {verb} for the relationship with destination \"{destination}\".\n"
    )
}

fn succeeded(verb: &str, destination: &Path) -> String {
    format!("Operation succeeded: snapmirror {verb} for destination \"{destination}\".\n")
}

fn queued(verb: &str, destination: &Path) -> String {
    format!("Operation is queued: snapmirror {verb} of destination \"{destination}\".\n")
}
