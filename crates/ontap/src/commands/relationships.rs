//! `snapmirror`: relationships.

use weir_replica::model::{Path, PolicyKind, Relationship};

use super::show::{self, Field, or_dash};
use super::{argument, failed, invalid, none, refused};
use crate::cluster::{Change, Cluster, Failure, Reason};
use crate::grammar::Parsed;
use crate::table::{self, Column};
use crate::{query, value};

/// A relationship with what it takes to show it.
struct Shown {
    relationship: Relationship,
    now: i64,
    kind: Option<PolicyKind>,
}

const fn field(
    name: &'static str,
    label: &'static str,
    value: fn(&Shown) -> String,
) -> Field<Shown> {
    Field {
        name,
        label,
        key: false,
        value,
    }
}

const FIELDS: &[Field<Shown>] = &[
    Field {
        name: "source-path",
        label: "Source Path",
        key: true,
        value: |s| s.relationship.source.to_string(),
    },
    field("source-cluster", "Source Cluster", |s| {
        cluster(&s.relationship.source)
    }),
    field("source-vserver", "Source Vserver", |s| {
        s.relationship.source.vserver.clone()
    }),
    field("source-volume", "Source Volume", |s| {
        s.relationship.source.volume.clone()
    }),
    Field {
        name: "destination-path",
        label: "Destination Path",
        key: true,
        value: |s| s.relationship.destination.to_string(),
    },
    field("destination-cluster", "Destination Cluster", |s| {
        cluster(&s.relationship.destination)
    }),
    field("destination-vserver", "Destination Vserver", |s| {
        s.relationship.destination.vserver.clone()
    }),
    field("destination-volume", "Destination Volume", |s| {
        s.relationship.destination.volume.clone()
    }),
    field("type", "Relationship Type", |_| "XDP".to_owned()),
    field("relationship-group-type", "Relationship Group Type", |_| {
        "none".to_owned()
    }),
    field("managing-vserver", "Managing Vserver", |s| {
        s.relationship.destination.vserver.clone()
    }),
    field("schedule", "SnapMirror Schedule", |s| {
        or_dash(s.relationship.schedule.clone())
    }),
    field("policy-type", "SnapMirror Policy Type", |s| {
        or_dash(s.kind.map(|k| k.word().to_owned()))
    }),
    field("policy", "SnapMirror Policy", |s| {
        s.relationship.policy.clone()
    }),
    field("tries", "Tries Limit", |s| {
        value::tries(s.relationship.tries)
    }),
    field("throttle", "Throttle (KB/sec)", |s| {
        value::throttle(s.relationship.throttle)
    }),
    field(
        "current-transfer-throttle",
        "Current Transfer Throttle (KB/sec)",
        |s| {
            or_dash(
                s.relationship
                    .transfer
                    .as_ref()
                    .map(|t| value::throttle(t.throttle)),
            )
        },
    ),
    field("state", "Mirror State", |s| {
        s.relationship.state.word().to_owned()
    }),
    field("status", "Relationship Status", |s| {
        s.relationship.status.word().to_owned()
    }),
    field("snapshot-progress", "Snapshot Progress", progress),
    field("total-progress", "Total Progress", progress),
    field(
        "network-compression-ratio",
        "Network Compression Ratio",
        |s| {
            or_dash(
                s.relationship
                    .last
                    .as_ref()
                    .filter(|_| s.relationship.transfer.is_some())
                    .map(|l| ratio(l.bytes, l.wire_bytes)),
            )
        },
    ),
    field("newest-snapshot", "Newest Snapshot", |s| {
        or_dash(s.relationship.newest.as_ref().map(|(name, _)| name.clone()))
    }),
    field(
        "newest-snapshot-timestamp",
        "Newest Snapshot Timestamp",
        |s| {
            or_dash(
                s.relationship
                    .newest
                    .as_ref()
                    .map(|(_, at)| value::timestamp(*at)),
            )
        },
    ),
    field("exported-snapshot", "Exported Snapshot", |s| {
        or_dash(
            s.relationship
                .exported
                .as_ref()
                .map(|(name, _)| name.clone()),
        )
    }),
    field(
        "exported-snapshot-timestamp",
        "Exported Snapshot Timestamp",
        |s| {
            or_dash(
                s.relationship
                    .exported
                    .as_ref()
                    .map(|(_, at)| value::timestamp(*at)),
            )
        },
    ),
    field("healthy", "Healthy", |s| s.relationship.healthy.to_string()),
    field("unhealthy-reason", "Unhealthy Reason", |s| {
        or_dash(s.relationship.unhealthy_reason.clone())
    }),
    field("relationship-id", "Relationship ID", |s| {
        s.relationship.uuid.clone()
    }),
    field("current-transfer-type", "Current Transfer Type", |s| {
        or_dash(
            s.relationship
                .transfer
                .as_ref()
                .map(|t| t.kind.word().to_owned()),
        )
    }),
    field("current-transfer-rate", "Current Transfer Rate", |s| {
        or_dash(
            s.relationship
                .transfer
                .as_ref()
                .map(|t| format!("{}/s", value::size(t.rate))),
        )
    }),
    field(
        "current-transfer-limited-by",
        "Current Transfer Limited By",
        |s| {
            or_dash(
                s.relationship
                    .transfer
                    .as_ref()
                    .and_then(|t| t.bound_by.clone()),
            )
        },
    ),
    field(
        "current-transfer-time-left",
        "Current Transfer Time Left",
        |s| or_dash(s.relationship.transfer.as_ref().and_then(time_left)),
    ),
    field("last-transfer-type", "Last Transfer Type", |s| {
        last(s, |l| l.kind.word().to_owned())
    }),
    field("last-transfer-error", "Last Transfer Error", |s| {
        or_dash(s.relationship.last.as_ref().and_then(|l| l.error.clone()))
    }),
    field("last-transfer-size", "Last Transfer Size", |s| {
        last(s, |l| value::size(l.bytes))
    }),
    field("last-transfer-wire-size", "Last Transfer Wire Size", |s| {
        last(s, |l| value::size(l.wire_bytes))
    }),
    field(
        "last-transfer-network-compression-ratio",
        "Last Transfer Network Compression Ratio",
        |s| last(s, |l| ratio(l.bytes, l.wire_bytes)),
    ),
    field("last-transfer-duration", "Last Transfer Duration", |s| {
        last(s, |l| value::duration(l.duration_ms.div_ceil(1000)))
    }),
    field(
        "last-transfer-setup-time",
        "Last Transfer Setup Time",
        |s| last(s, |l| milliseconds(l.setup_ms)),
    ),
    field("last-transfer-data-time", "Last Transfer Data Time", |s| {
        last(s, |l| milliseconds(l.data_ms))
    }),
    field(
        "last-transfer-finalize-time",
        "Last Transfer Finalize Time",
        |s| last(s, |l| milliseconds(l.finalize_ms)),
    ),
    field("last-transfer-from", "Last Transfer From", |s| {
        or_dash(
            s.relationship
                .last
                .as_ref()
                .map(|_| s.relationship.source.to_string()),
        )
    }),
    field(
        "last-transfer-end-timestamp",
        "Last Transfer End Timestamp",
        |s| last(s, |l| value::timestamp(l.end)),
    ),
    field("progress-last-updated", "Progress Last Updated", updated),
    field("relationship-capability", "Relationship Capability", |_| {
        "8.2 and above".to_owned()
    }),
    field("lag-time", "Lag Time", |s| {
        or_dash(s.relationship.lag(s.now).map(value::duration))
    }),
];

fn cluster(path: &Path) -> String {
    or_dash(Some(path.cluster.clone()).filter(|name| !name.is_empty()))
}

fn last(shown: &Shown, value: fn(&weir_replica::model::LastTransfer) -> String) -> String {
    or_dash(shown.relationship.last.as_ref().map(value))
}

fn progress(shown: &Shown) -> String {
    or_dash(
        shown
            .relationship
            .transfer
            .as_ref()
            .map(|t| value::size(t.bytes)),
    )
}

fn updated(shown: &Shown) -> String {
    or_dash(
        shown
            .relationship
            .transfer
            .as_ref()
            .map(|t| value::timestamp(t.updated)),
    )
}

fn time_left(transfer: &weir_replica::model::Transfer) -> Option<String> {
    let left = transfer.total?.checked_sub(transfer.bytes)?;
    left.checked_div(transfer.rate).map(value::duration)
}

fn milliseconds(ms: u64) -> String {
    format!("{}.{:03}s", ms / 1000, ms % 1000)
}

/// `2.5:1`
fn ratio(bytes: u64, wire: u64) -> String {
    match wire {
        0 => "1:1".to_owned(),
        wire => {
            let text = format!("{:.1}", bytes as f64 / wire as f64);
            format!("{}:1", text.strip_suffix(".0").unwrap_or(&text))
        }
    }
}

const fn column(heading: &'static [&'static str], width: usize, groups: bool) -> Column {
    Column {
        heading,
        width,
        groups,
    }
}

const SUMMARY: &[Column] = &[
    column(&["Source", "Path"], 11, true),
    column(&["", "Type"], 4, true),
    column(&[" Destination", " Path"], 12, false),
    column(&["Mirror", "State"], 7, false),
    column(&["Relationship", "Status"], 14, false),
    column(&["Total", "Progress"], 9, false),
    column(&["", "Healthy"], 7, false),
    column(&["Progress", "Last", "Updated"], 8, false),
];

fn records(cluster: &dyn Cluster, relationships: Vec<Relationship>) -> Vec<Shown> {
    let now = cluster.now();
    let policies = cluster.policies();
    relationships
        .into_iter()
        .map(|relationship| Shown {
            kind: policies
                .iter()
                .find(|p| p.name == relationship.policy)
                .map(|p| p.kind),
            now,
            relationship,
        })
        .collect()
}

/// `snapmirror show`
pub fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    let mut all = records(cluster, cluster.relationships());
    // Relationships of one source stand together, where the first of them stands.
    let order: Vec<Path> = all.iter().map(|s| s.relationship.source.clone()).collect();
    all.sort_by_key(|s| {
        order
            .iter()
            .position(|source| *source == s.relationship.source)
    });
    show::print(FIELDS, parsed, all, &["destination-path"], |all| {
        let rows: Vec<Vec<String>> = all
            .iter()
            .map(|s| {
                let r = &s.relationship;
                vec![
                    r.source.to_string(),
                    "XDP".to_owned(),
                    r.destination.to_string(),
                    r.state.word().to_owned(),
                    r.status.word().to_owned(),
                    progress(s),
                    r.healthy.to_string(),
                    updated(s),
                ]
            })
            .collect();
        table::fixed(SUMMARY, &rows)
    })
}

/// `snapmirror list-destinations`
pub fn list_destinations(parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    const COLUMNS: &[Column] = &[
        column(&["", "Source", "Path"], 11, true),
        column(&["", "", "Type"], 5, true),
        column(&["", "Destination", "Path"], 12, false),
        column(&["", "", "Status"], 12, false),
        column(&["Transfer", "Last", "Updated"], 14, false),
        column(&["", "Relationship", "Id"], 36, false),
    ];
    show::print(
        FIELDS,
        parsed,
        records(cluster, cluster.destinations()),
        &[],
        |all| {
            let rows: Vec<Vec<String>> = all
                .iter()
                .map(|s| {
                    let r = &s.relationship;
                    vec![
                        r.source.to_string(),
                        "XDP".to_owned(),
                        r.destination.to_string(),
                        r.status.word().to_owned(),
                        last(s, |l| value::timestamp(l.end)),
                        r.uuid.clone(),
                    ]
                })
                .collect();
            table::fixed(COLUMNS, &rows)
        },
    )
}

fn path(parsed: &Parsed, name: &str) -> Result<Path, Failure> {
    let text = argument(parsed, name)?;
    Path::parse(text).ok_or_else(|| invalid(text, name, "[<cluster>:]<vserver>:<volume>"))
}

/// A throttle that was given.
fn throttle(parsed: &Parsed) -> Result<Option<Option<u64>>, Failure> {
    let Some(text) = parsed.get("throttle") else {
        return Ok(None);
    };
    match value::parse_throttle(text) {
        Some(throttle) => Ok(Some(throttle)),
        None => Err(invalid(text, "throttle", "throttleType")),
    }
}

/// A schedule by name; `-` is none. A last letter typed twice is forgiven.
fn schedule(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Option<Option<String>>, Failure> {
    let Some(text) = parsed.get("schedule") else {
        return Ok(None);
    };
    if text == "-" || text.is_empty() {
        return Ok(Some(None));
    }
    let known = |name: &str| {
        cluster
            .schedules()
            .iter()
            .any(|schedule| schedule.name == name)
    };
    if known(text) {
        return Ok(Some(Some(text.to_owned())));
    }
    let mut letters = text.chars().rev();
    let doubled = letters
        .next()
        .is_some_and(|end| letters.next() == Some(end));
    let shorter = text
        .strip_suffix(|_: char| true)
        .filter(|shorter| doubled && known(shorter));
    match shorter {
        Some(shorter) => Ok(Some(Some(shorter.to_owned()))),
        None => Err(Failure::new(
            Reason::NotFound,
            format!("command failed: Schedule \"{text}\" not found."),
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

/// All other verbs.
pub fn act(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
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
            let change = Change::Create {
                policy: policy(parsed, cluster)?,
                schedule: schedule(parsed, cluster)?.flatten(),
                throttle: throttle(parsed)?.flatten(),
                tries: tries(parsed)?,
                annotation: String::new(),
                source,
                destination: destination.clone(),
            };
            cluster.change(change).map_err(failed)?;
            return Ok(succeeded_for("create", &destination));
        }
        "restore" => {
            let (source, destination) = (
                path(parsed, "source-path")?,
                path(parsed, "destination-path")?,
            );
            let change = Change::Restore {
                source,
                destination: destination.clone(),
                source_snapshot: parsed.get("source-snapshot").map(str::to_owned),
                throttle: throttle(parsed)?.flatten(),
                files: files(parsed),
            };
            cluster.change(change).map_err(failed)?;
            return Ok(queued("restore", &destination));
        }
        // Without a relationship, `initialize` with a source makes one.
        "initialize"
            if parsed.get("source-path").is_some() && matched(parsed, cluster)?.is_empty() =>
        {
            let destination = path(parsed, "destination-path")?;
            let change = Change::Create {
                source: path(parsed, "source-path")?,
                destination: destination.clone(),
                policy: policy(parsed, cluster)?,
                schedule: schedule(parsed, cluster)?.flatten(),
                throttle: None,
                tries: None,
                annotation: String::new(),
            };
            cluster.change(change).map_err(failed)?;
        }
        // The other way round: today's destination is the source.
        "resync" if parsed.get("source-path").is_some() && matched(parsed, cluster)?.is_empty() => {
            let (source, destination) = (
                path(parsed, "source-path")?,
                path(parsed, "destination-path")?,
            );
            let change = Change::Resync {
                destination: destination.clone(),
                source: Some(source),
                quick: quick(parsed)?,
            };
            cluster.change(change).map_err(failed)?;
            return Ok(queued("resync", &destination));
        }
        _ => {}
    }
    let destinations = matched(parsed, cluster)?;
    if destinations.is_empty() {
        return Err(none());
    }
    let mut out = String::new();
    for destination in destinations {
        cluster
            .change(change(verb, parsed, cluster, &destination)?)
            .map_err(failed)?;
        out.push_str(&match verb {
            "update" | "initialize" | "resync" => queued(verb, &destination),
            "modify" | "delete" | "release" => succeeded_for(verb, &destination),
            _ => succeeded(verb, &destination),
        });
    }
    Ok(out)
}

/// How often to try; `unlimited` is as often as a number can say.
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

/// `-file-list /a,/b,@/c`: where a name begins with `@` it is the new one of the path before it.
fn files(parsed: &Parsed) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in parsed.get("file-list").unwrap_or_default().split(',') {
        let part = part.trim();
        match (part.starts_with('@'), all.last_mut()) {
            (true, Some(before)) => {
                before.push(',');
                before.push_str(part);
            }
            _ if part.is_empty() => {}
            _ => all.push(part.to_owned()),
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
) -> Result<Change, Failure> {
    let destination = destination.clone();
    let source_snapshot = parsed.get("source-snapshot").map(str::to_owned);
    Ok(match verb {
        "modify" => Change::Modify {
            destination,
            policy: policy(parsed, cluster)?,
            schedule: schedule(parsed, cluster)?,
            throttle: throttle(parsed)?,
            tries: tries(parsed)?,
            annotation: None,
        },
        "initialize" => Change::Initialize {
            destination,
            source_snapshot,
            throttle: throttle(parsed)?,
        },
        "update" => Change::Update {
            destination,
            source_snapshot,
            throttle: throttle(parsed)?,
        },
        "quiesce" => Change::Quiesce(destination),
        "resume" => Change::Resume(destination),
        "abort" => Change::Abort {
            destination,
            hard: parsed.get("hard").is_some_and(|hard| hard == "true"),
        },
        "break" => Change::Break(destination),
        "resync" => Change::Resync {
            destination,
            source: None,
            quick: quick(parsed)?,
        },
        "release" => Change::Release(destination),
        "delete" => Change::Delete(destination),
        _ => return Err(refused(format!("\"{verb}\" is not a recognized command"))),
    })
}

/// The destinations of the relationships that the arguments mean; `release` looks at those whose source is here.
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
