//! `snapmirror show` and `snapmirror list-destinations`.

use std::collections::HashMap;

use weir_relations::model::{Path, PolicyKind, Relationship};

use super::show::{self, Answer, Field, Instant, or_dash};
use crate::cluster::{Cluster, Failure};
use crate::grammar::Parsed;
use crate::table::{self, Column};
use crate::value;

/// A relationship with what it takes to show it.
struct Shown {
    relationship: Relationship,
    now: i64,
    /// The node that has the destination.
    node: String,
    kind: Option<PolicyKind>,
}

const fn field(
    name: &'static str,
    label: &'static str,
    value: fn(&Shown) -> String,
) -> Field<Shown> {
    Field::new(name, label, value)
}

const FIELDS: &[Field<Shown>] = &[
    Field::key("source-path", "Source Path", |s| {
        s.relationship.source.to_string()
    }),
    field("source-cluster", "Source Cluster", |s| {
        cluster(&s.relationship.source)
    }),
    field("source-vserver", "Source Vserver", |s| {
        s.relationship.source.vserver.clone()
    }),
    field("source-volume", "Source Volume", |s| {
        s.relationship.source.volume.clone()
    }),
    Field::key("destination-path", "Destination Path", |s| {
        s.relationship.destination.to_string()
    }),
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
    field("snapshot-progress", "Snapshot Progress", progress).exact(moved),
    field("total-progress", "Total Progress", progress).exact(moved),
    field("total-wire-progress", "Total Wire Progress", |s| {
        or_dash(
            s.relationship
                .transfer
                .as_ref()
                .map(|t| value::size(t.wire_bytes)),
        )
    })
    .exact(|s| s.relationship.transfer.as_ref().map(|t| t.wire_bytes)),
    field("current-transfer-size", "Current Transfer Size", |s| {
        or_dash(
            s.relationship
                .transfer
                .as_ref()
                .and_then(|t| t.total)
                .map(value::size),
        )
    })
    .exact(|s| s.relationship.transfer.as_ref().and_then(|t| t.total)),
    field(
        "network-compression-ratio",
        "Network Compression Ratio",
        |s| {
            or_dash(
                s.relationship
                    .transfer
                    .as_ref()
                    .map(|t| ratio(t.bytes, t.wire_bytes)),
            )
        },
    ),
    field("newest-snapshot", "Newest Snapshot", |s| {
        or_dash(s.relationship.newest.as_ref().map(|n| n.name.clone()))
    }),
    field(
        "newest-snapshot-timestamp",
        "Newest Snapshot Timestamp",
        |s| {
            or_dash(
                s.relationship
                    .newest
                    .as_ref()
                    .map(|n| value::timestamp(n.taken)),
            )
        },
    )
    .instant(|s| s.relationship.newest.as_ref().map(|n| Instant::At(n.taken))),
    field("exported-snapshot", "Exported Snapshot", |s| {
        or_dash(s.relationship.exported.as_ref().map(|n| n.name.clone()))
    }),
    field(
        "exported-snapshot-timestamp",
        "Exported Snapshot Timestamp",
        |s| {
            or_dash(
                s.relationship
                    .exported
                    .as_ref()
                    .map(|n| value::timestamp(n.taken)),
            )
        },
    )
    .instant(|s| {
        s.relationship
            .exported
            .as_ref()
            .map(|n| Instant::At(n.taken))
    }),
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
    })
    .exact(|s| s.relationship.transfer.as_ref().map(|t| t.rate)),
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
    })
    .exact(|s| s.relationship.last.as_ref().map(|l| l.bytes)),
    field("last-transfer-wire-size", "Last Transfer Wire Size", |s| {
        last(s, |l| value::size(l.wire_bytes))
    })
    .exact(|s| s.relationship.last.as_ref().map(|l| l.wire_bytes)),
    field(
        "last-transfer-network-compression-ratio",
        "Last Transfer Network Compression Ratio",
        |s| last(s, |l| ratio(l.bytes, l.wire_bytes)),
    ),
    field("last-transfer-duration", "Last Transfer Duration", |s| {
        last(s, |l| value::duration(l.duration_ms.div_ceil(1000)))
    })
    .instant(|s| {
        let last = s.relationship.last.as_ref();
        last.map(|l| Instant::For(l.duration_ms.div_ceil(1000)))
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
    )
    .instant(|s| s.relationship.last.as_ref().map(|l| Instant::At(l.end))),
    field("progress-last-updated", "Progress Last Updated", updated).instant(|s| {
        let transfer = s.relationship.transfer.as_ref();
        transfer.map(|t| Instant::At(t.updated))
    }),
    field("relationship-capability", "Relationship Capability", |_| {
        "8.2 and above".to_owned()
    }),
    field("lag-time", "Lag Time", |s| {
        or_dash(s.relationship.lag(s.now).map(value::duration))
    })
    .instant(|s| s.relationship.lag(s.now).map(Instant::For)),
    field("destination-volume-node", "Destination Volume Node", |s| {
        s.node.clone()
    })
    .aside(),
    field("relationship-type", "Relationship Type", |_| {
        "extended-data-protection".to_owned()
    })
    .words()
    .aside(),
];

fn cluster(path: &Path) -> String {
    or_dash(Some(path.cluster.clone()).filter(|name| !name.is_empty()))
}

fn last(shown: &Shown, value: fn(&weir_relations::model::LastTransfer) -> String) -> String {
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

fn moved(shown: &Shown) -> Option<u64> {
    shown.relationship.transfer.as_ref().map(|t| t.bytes)
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

fn time_left(transfer: &weir_relations::model::Transfer) -> Option<String> {
    transfer.time_left().map(value::duration)
}

fn milliseconds(ms: u64) -> String {
    format!("{}.{:03}s", ms / 1000, ms % 1000)
}

/// Returns the bytes per byte on the wire, such as `2.5:1`.
fn ratio(bytes: u64, wire: u64) -> String {
    match wire {
        0 => "1:1".to_owned(),
        wire => {
            let text = format!("{:.1}", bytes as f64 / wire as f64);
            format!("{}:1", text.strip_suffix(".0").unwrap_or(&text))
        }
    }
}

const SUMMARY: &[Column] = &[
    Column::grouping(&["Source", "Path"], 11),
    Column::grouping(&["", "Type"], 4),
    Column::new(&[" Destination", " Path"], 12),
    Column::new(&["Mirror", "State"], 7),
    Column::new(&["Relationship", "Status"], 14),
    Column::new(&["Total", "Progress"], 9),
    Column::new(&["", "Healthy"], 7),
    Column::new(&["Progress", "Last", "Updated"], 8),
];

fn records(cluster: &dyn Cluster, relationships: Vec<Relationship>) -> Vec<Shown> {
    let now = cluster.now();
    let node = cluster.name();
    let policies = cluster.policies();
    relationships
        .into_iter()
        .map(|relationship| Shown {
            kind: policies
                .iter()
                .find(|p| p.name == relationship.policy)
                .map(|p| p.kind),
            now,
            node: node.clone(),
            relationship,
        })
        .collect()
}

/// Runs `snapmirror show`: relationships whose destination is here.
pub fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let one = parsed.get("destination-path").and_then(Path::parse);
    let found = match one.and_then(|path| cluster.relationship(&path)) {
        Some(one) => vec![one],
        None => cluster.relationships(),
    };
    let mut all = records(cluster, found);
    // Relationships of one source are listed together, at the place of the first of them.
    let mut first: HashMap<Path, usize> = HashMap::new();
    for (at, s) in all.iter().enumerate() {
        first.entry(s.relationship.source.clone()).or_insert(at);
    }
    all.sort_by_key(|s| first.get(&s.relationship.source).copied());
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

/// Runs `snapmirror list-destinations`: relationships whose source is here.
pub fn list_destinations(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::grouping(&["", "Source", "Path"], 11),
        Column::grouping(&["", "", "Type"], 5),
        Column::new(&["", "Destination", "Path"], 12),
        Column::new(&["", "", "Status"], 12),
        Column::new(&["Transfer", "Last", "Updated"], 14),
        Column::new(&["", "Relationship", "Id"], 36),
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
