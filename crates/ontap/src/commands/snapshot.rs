//! `snapshot` and `volume snapshot`.

use weir_relations::model::Path;

use super::show::{self, Answer};
use crate::cluster::{Change, Cluster, Failure};
use crate::fields::snapshot::{Draft, FIELDS, Row, TABLE, like};
use crate::fields::{self, Way};
use crate::grammar::ParsedCommand;
use crate::query;
use crate::refusal::{argument, failed, invalid, none};
use crate::table::Column;

/// Runs a verb of `snapshot` or `volume snapshot`.
pub fn run(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let (vserver, volume) = (argument(parsed, "vserver")?, argument(parsed, "volume")?);
    let text = format!("{vserver}:{volume}");
    let path = Path::parse(&text).ok_or_else(|| invalid(volume, "volume", "volume name"))?;
    let name = argument(parsed, "snapshot")?.to_owned();
    let draft = draft(verb, parsed, &path, cluster)?;
    if verb == "create" {
        let change = Change::SnapshotCreate {
            path,
            name,
            label: draft.label.flatten(),
            comment: draft.comment.unwrap_or_default(),
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
                label: draft.label.clone(),
                comment: draft.comment.clone(),
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

/// Returns what the arguments set of a snapshot of a volume that is there.
fn draft(
    verb: &str,
    parsed: &ParsedCommand,
    volume: &Path,
    cluster: &dyn Cluster,
) -> Result<Draft, Failure> {
    let mut all = cluster.volumes().into_iter();
    let volume = all.find(|v| v.path == *volume).ok_or_else(none)?;
    let way = match verb {
        "create" => Way::Create,
        _ => Way::Modify,
    };
    let mut draft = Draft::default();
    fields::read(
        &TABLE,
        parsed,
        way,
        &mut draft,
        cluster,
        Some(&like(&volume)),
    )?;
    Ok(draft)
}

fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::grouping(&["Vserver"], 8).with_field("vserver"),
        Column::grouping(&["Volume"], 8).with_field("volume"),
        Column::new(&["Snapshot"], 37).with_field("snapshot"),
        Column::new(&["Size"], 8).with_field("size"),
        Column::new(&["Label"], 12).with_field("snapmirror-label"),
    ];
    let row = |snapshot| Row {
        snapshot,
        volume: String::new(),
    };
    let all = cluster.snapshots(None).into_iter().map(row).collect();
    show::list(
        FIELDS,
        parsed,
        all,
        &["vserver", "volume", "snapshot"],
        COLUMNS,
    )
}
