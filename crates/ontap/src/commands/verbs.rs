//! `snapmirror`: what changes relationships and moves data.

use weir_relations::manager::{First, Verb};
use weir_relations::model::{FileRestore, Path};

use super::refusal::{argument, failed, invalid, none, not_among, refused};
use super::show::Answer;
use crate::cluster::{Cluster, Failure, Reason};
use crate::grammar::Parsed;
use crate::{query, value};

fn path(parsed: &Parsed, name: &str) -> Result<Path, Failure> {
    let text = argument(parsed, name)?;
    Path::parse(text).ok_or_else(|| invalid(text, name, "[<cluster>:]<vserver>:<volume>"))
}

/// Returns a throttle that was given.
fn throttle(parsed: &Parsed) -> Result<Option<Option<u64>>, Failure> {
    let Some(text) = parsed.get("throttle") else {
        return Ok(None);
    };
    match value::parse_throttle(text) {
        Some(throttle) => Ok(Some(throttle)),
        None => Err(not_among(
            text,
            "throttle",
            "throttleType",
            &value::throttles(),
        )),
    }
}

/// Returns the schedule that was given, by its exact name; `-` is none.
fn schedule(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Option<Option<String>>, Failure> {
    match parsed.get("schedule") {
        None => Ok(None),
        Some("-" | "") => Ok(Some(None)),
        Some(name) if cluster.schedules().iter().any(|s| s.name == name) => {
            Ok(Some(Some(name.to_owned())))
        }
        Some(name) => Err(Failure::new(
            Reason::NotFound,
            format!("command failed: Schedule \"{name}\" not found."),
        )),
    }
}

fn policy(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Option<String>, Failure> {
    let Some(text) = parsed.get("policy") else {
        return Ok(None);
    };
    match cluster.policies().iter().any(|p| p.name == text) {
        true => Ok(Some(text.to_owned())),
        false => Err(Failure::new(
            Reason::NotFound,
            format!("command failed: Policy lookup for \"{text}\" failed: entry doesn't exist."),
        )),
    }
}

/// Runs a verb of `snapmirror` that changes relationships.
pub fn act(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if let Some(kind) = parsed
        .get("type")
        .filter(|kind| !kind.eq_ignore_ascii_case("XDP"))
    {
        return Err(invalid(kind, "type", "XDP"));
    }
    match verb {
        "create" => {
            let (source, destination) = (
                path(parsed, "source-path")?,
                path(parsed, "destination-path")?,
            );
            let change = Verb::Create {
                policy: policy(parsed, cluster)?,
                schedule: schedule(parsed, cluster)?.flatten(),
                throttle: throttle(parsed)?.flatten(),
                tries: tries(parsed)?,
                note: None,
                initialize: None,
                source,
                destination: destination.clone(),
            };
            cluster.change(change.into()).map_err(failed)?;
            return Ok(succeeded_for("create", &destination).into());
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
                throttle: throttle(parsed)?.flatten(),
                files: files(parsed),
            };
            cluster.change(change.into()).map_err(failed)?;
            return Ok(queued("restore", &destination).into());
        }
        // Without a relationship, `initialize` with a source makes one.
        "initialize"
            if parsed.get("source-path").is_some() && matched(parsed, cluster)?.is_empty() =>
        {
            let destination = path(parsed, "destination-path")?;
            let change = Verb::Create {
                source: path(parsed, "source-path")?,
                destination: destination.clone(),
                policy: policy(parsed, cluster)?,
                schedule: schedule(parsed, cluster)?.flatten(),
                throttle: None,
                tries: None,
                note: None,
                initialize: Some(First {
                    source_snapshot: parsed.get("source-snapshot").map(str::to_owned),
                    throttle: throttle(parsed)?,
                    once_paired: false,
                }),
            };
            cluster.change(change.into()).map_err(failed)?;
            return Ok(queued("initialize", &destination).into());
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
            return Ok(queued("resync", &destination).into());
        }
        _ => {}
    }
    let destinations = matched(parsed, cluster)?;
    if destinations.is_empty() {
        return Err(none());
    }
    let mut out = String::new();
    for destination in destinations {
        // A policy that comes with another verb holds from this transfer on.
        if let (Some(policy), true) = (policy(parsed, cluster)?, verb == "resync") {
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
            .change(change(verb, parsed, cluster, &destination)?.into())
            .map_err(failed)?;
        out.push_str(&match verb {
            "update" | "initialize" | "resync" => queued(verb, &destination),
            "modify" | "delete" | "release" => succeeded_for(verb, &destination),
            _ => succeeded(verb, &destination),
        });
    }
    Ok(out.into())
}

/// Reads the number of tries; `unlimited` is as often as a number can say.
fn tries(parsed: &Parsed) -> Result<Option<u32>, Failure> {
    match parsed.get("tries") {
        None => Ok(None),
        Some("unlimited") => Ok(Some(u32::MAX)),
        Some(text) => match text.parse() {
            Ok(tries) => Ok(Some(tries)),
            Err(_) => Err(invalid(text, "tries", "unsigned32_or_unlimited")),
        },
    }
}

/// Reads `-file-list /a,/b,@/c`: a name that begins with `@` is the new one of the path before it.
fn files(parsed: &Parsed) -> Vec<FileRestore> {
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

fn quick(parsed: &Parsed) -> Result<bool, Failure> {
    match parsed.get("quick-resync") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(invalid(other, "quick-resync", "true|false")),
    }
}

fn change(
    verb: &str,
    parsed: &Parsed,
    cluster: &dyn Cluster,
    destination: &Path,
) -> Result<Verb, Failure> {
    let destination = destination.clone();
    let source_snapshot = parsed.get("source-snapshot").map(str::to_owned);
    // A resync always searches for data that the destination already has.
    quick(parsed)?;
    Ok(match verb {
        "modify" => Verb::Modify {
            destination,
            policy: policy(parsed, cluster)?,
            schedule: schedule(parsed, cluster)?,
            throttle: throttle(parsed)?,
            tries: tries(parsed)?,
            note: None,
        },
        "initialize" => Verb::Initialize {
            destination,
            source_snapshot,
            throttle: throttle(parsed)?,
        },
        "update" => Verb::Update {
            destination,
            source_snapshot,
            throttle: throttle(parsed)?,
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
fn matched(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Vec<Path>, Failure> {
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
