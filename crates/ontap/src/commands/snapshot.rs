//! `snapshot` and `volume snapshot`.

use weir_relations::model::Path;

use super::refusal::{argument, failed, invalid, none};
use super::show::{self, Answer, Field, Instant, or_dash};
use crate::cluster::{Change, Cluster, Failure, Snapshot};
use crate::grammar::Parsed;
use crate::table::{self, Column};
use crate::{query, value};

const FIELDS: &[Field<Snapshot>] = &[
    Field::key("vserver", "Vserver", |s| s.path.vserver.clone()),
    Field::key("volume", "Volume", |s| s.path.volume.clone()),
    Field::key("snapshot", "Snapshot", |s| s.name.clone()),
    Field::new("create-time", "Creation Time", |s: &Snapshot| {
        value::long_timestamp(s.created)
    })
    .instant(|s| Some(Instant::At(s.created))),
    Field::new("size", "Snapshot Size", |s: &Snapshot| value::size(s.size)).exact(|s| Some(s.size)),
    Field::new("snapmirror-label", "SnapMirror Label", |s| {
        or_dash(s.label.clone())
    }),
    Field::new("comment", "Comment", |s| {
        or_dash(Some(s.comment.clone()).filter(|text| !text.is_empty()))
    }),
    Field::new("snapshot-uuid", "Snapshot UUID", |s| s.uuid.clone()),
];

/// Runs a verb of `snapshot` or `volume snapshot`.
pub fn run(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
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
    if verb == "create" {
        let change = Change::SnapshotCreate {
            path,
            name,
            label: label(parsed).flatten(),
            comment: parsed.get("comment").unwrap_or_default().to_owned(),
        };
        cluster.change(change).map_err(failed)?;
        return Ok(String::new().into());
    }
    let several = matches!(verb, "delete" | "modify");
    let meant: Vec<String> = cluster
        .snapshots(Some(&path))
        .into_iter()
        .map(|s| s.name)
        .filter(|there| *there == name || several && query::matches(&name, there))
        .collect();
    if meant.is_empty() {
        return Err(none());
    }
    let acted = meant.len();
    for name in meant {
        let path = path.clone();
        let change = match verb {
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
                label: label(parsed),
                comment: parsed.get("comment").map(str::to_owned),
            },
        };
        cluster.change(change).map_err(failed)?;
    }
    Ok(match (verb, acted) {
        ("modify", 1) => "1 entry was modified.\n".to_owned().into(),
        ("modify", n) => format!("{n} entries were modified.\n").into(),
        (_, 1) => String::new().into(),
        (_, n) => format!("{n} entries were acted on.\n").into(),
    })
}

fn label(parsed: &Parsed) -> Option<Option<String>> {
    let text = parsed.get("snapmirror-label")?;
    Some(Some(text.to_owned()).filter(|label| !matches!(label.as_str(), "-" | "")))
}

fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::grouping(&["Vserver"], 8),
        Column::grouping(&["Volume"], 8),
        Column::new(&["Snapshot"], 37),
        Column::new(&["Size"], 8),
        Column::new(&["Label"], 12),
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
