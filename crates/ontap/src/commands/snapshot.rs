//! `snapshot`, `volume snapshot`, and `volume show`.

use weir_replica::model::Path;

use super::show::{self, Field, or_dash};
use super::{argument, failed, invalid, none};
use crate::cluster::{Change, Cluster, Failure, Snapshot, Volume};
use crate::grammar::Parsed;
use crate::table::{self, Column};
use crate::value;

const FIELDS: &[Field<Snapshot>] = &[
    Field {
        name: "vserver",
        label: "Vserver",
        key: true,
        value: |s| s.path.vserver.clone(),
    },
    Field {
        name: "volume",
        label: "Volume",
        key: true,
        value: |s| s.path.volume.clone(),
    },
    Field {
        name: "snapshot",
        label: "Snapshot",
        key: true,
        value: |s| s.name.clone(),
    },
    Field {
        name: "create-time",
        label: "Creation Time",
        key: false,
        value: |s| value::long_timestamp(s.created),
    },
    Field {
        name: "size",
        label: "Snapshot Size",
        key: false,
        value: |s| value::size(s.size),
    },
    Field {
        name: "snapmirror-label",
        label: "SnapMirror Label",
        key: false,
        value: |s| or_dash(s.label.clone()),
    },
];

const VOLUMES: &[Field<Volume>] = &[
    Field {
        name: "vserver",
        label: "Vserver Name",
        key: true,
        value: |v| v.path.vserver.clone(),
    },
    Field {
        name: "volume",
        label: "Volume Name",
        key: true,
        value: |v| v.path.volume.clone(),
    },
    Field {
        name: "size",
        label: "Volume Size",
        key: false,
        value: |v| or_dash(v.size.map(value::size)),
    },
    Field {
        name: "used",
        label: "Used Size",
        key: false,
        value: |v| value::size(v.used),
    },
    Field {
        name: "available",
        label: "Available Size",
        key: false,
        value: |v| or_dash(v.size.map(|size| value::size(size.saturating_sub(v.used)))),
    },
    Field {
        name: "state",
        label: "Volume State",
        key: false,
        value: |_| "online".to_owned(),
    },
    Field {
        name: "type",
        label: "Volume Type",
        key: false,
        value: |v| kind(v).to_owned(),
    },
];

fn kind(volume: &Volume) -> &'static str {
    if volume.protection { "DP" } else { "RW" }
}

/// All verbs.
pub fn run(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let (vserver, volume) = (argument(parsed, "vserver")?, argument(parsed, "volume")?);
    let text = format!("{vserver}:{volume}");
    let path = Path::parse(&text).ok_or_else(|| invalid(volume, "volume", "volume name"))?;
    let name = argument(parsed, "snapshot")?.to_owned();
    if !cluster.volumes().iter().any(|v| v.path == path) {
        return Err(none());
    }
    let there = cluster
        .snapshots(Some(&path))
        .iter()
        .any(|s| s.name == name);
    if verb != "create" && !there {
        return Err(none());
    }
    let label = parsed
        .get("snapmirror-label")
        .map(|label| Some(label.to_owned()).filter(|label| !matches!(label.as_str(), "-" | "")));
    let comment = parsed.get("comment").map(str::to_owned);
    let change = match verb {
        "create" => Change::SnapshotCreate {
            path,
            name,
            label: label.flatten(),
            comment: comment.unwrap_or_default(),
        },
        "delete" => Change::SnapshotDelete { path, name },
        "rename" => Change::SnapshotRename {
            path,
            name,
            new_name: argument(parsed, "new-name")?.to_owned(),
        },
        "restore" => Change::SnapshotRestore { path, name },
        _ => Change::SnapshotModify {
            path,
            name,
            label,
            comment,
        },
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new())
}

fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    const COLUMNS: &[Column] = &[
        Column {
            heading: &["Vserver"],
            width: 8,
            groups: true,
        },
        Column {
            heading: &["Volume"],
            width: 8,
            groups: true,
        },
        Column {
            heading: &["Snapshot"],
            width: 37,
            groups: false,
        },
        Column {
            heading: &["Size"],
            width: 8,
            groups: false,
        },
        Column {
            heading: &["Label"],
            width: 12,
            groups: false,
        },
    ];
    show::print(
        FIELDS,
        parsed,
        cluster.snapshots(None),
        &["vserver", "volume", "snapshot"],
        |all| {
            let row = |s: &Snapshot| {
                vec![
                    s.path.vserver.clone(),
                    s.path.volume.clone(),
                    s.name.clone(),
                    value::size(s.size),
                    or_dash(s.label.clone()),
                ]
            };
            table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
        },
    )
}

/// `volume show`
pub fn volumes(parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    const COLUMNS: &[Column] = &[
        Column {
            heading: &["Vserver"],
            width: 9,
            groups: true,
        },
        Column {
            heading: &["Volume"],
            width: 12,
            groups: false,
        },
        Column {
            heading: &["State"],
            width: 10,
            groups: false,
        },
        Column {
            heading: &["Type"],
            width: 4,
            groups: false,
        },
        Column {
            heading: &["Size"],
            width: 10,
            groups: false,
        },
        Column {
            heading: &["Used"],
            width: 10,
            groups: false,
        },
    ];
    show::print(
        VOLUMES,
        parsed,
        cluster.volumes(),
        &["vserver", "volume"],
        |all| {
            let row = |v: &Volume| {
                vec![
                    v.path.vserver.clone(),
                    v.path.volume.clone(),
                    "online".to_owned(),
                    kind(v).to_owned(),
                    or_dash(v.size.map(value::size)),
                    value::size(v.used),
                ]
            };
            table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
        },
    )
}
