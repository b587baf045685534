//! `volume qtree`: folders of volumes that are counted and limited by themselves.

use weir_relations::model::Path;

use super::show::{self, Answer};
use super::volume::{path, there};
use crate::cluster::{Change, Cluster, Failure, Reason};
use crate::fields::qtree::{self, Draft, FIELDS, TABLE};
use crate::fields::{self, Way};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, none};
use crate::table::{self, Column};

/// Returns the failure for a qtree that does not exist.
pub fn none_of(volume: &Path, name: &str) -> Failure {
    Failure::new(
        Reason::NotFound,
        format!(
            "Qtree \"{name}\" does not exist in volume \"{}\" in Vserver \"{}\".",
            volume.volume, volume.vserver
        ),
    )
}

/// Runs `volume qtree` with this verb.
pub fn run(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let volume = there(path(parsed, "volume")?, cluster)?;
    let name = argument(parsed, "qtree")?.to_owned();
    let exists = || cluster.qtrees(Some(&volume)).iter().any(|q| q.name == name);
    if verb != "create" && !exists() {
        return Err(none());
    }
    let own = cluster.volumes().into_iter().find(|v| v.path == volume);
    let way = match verb {
        "create" => Way::Create,
        _ => Way::Modify,
    };
    let mut draft = Draft::default();
    let like = own.as_ref().map(qtree::own);
    fields::read(&TABLE, parsed, way, &mut draft, cluster, like.as_ref())?;
    let Draft {
        permissions,
        export_policy,
        ..
    } = draft;
    let change = match verb {
        "create" => Change::QtreeCreate {
            volume,
            name,
            permissions,
            export_policy,
        },
        "delete" => Change::QtreeDelete { volume, name },
        _ => Change::QtreeModify {
            volume,
            name,
            to: parsed.get("newname").map(str::to_owned),
            permissions,
            export_policy,
        },
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 10).with_field("vserver"),
        Column::new(&["Volume"], 13).with_field("volume"),
        Column::new(&["Qtree"], 12).with_field("qtree"),
        Column::new(&["Style"], 12).with_field("security-style"),
        Column::new(&["Oplocks"], 9).with_field("oplock-mode"),
        Column::new(&["Status"], 8).with_field("status"),
    ];
    let keys = ["vserver", "volume", "qtree"];
    show::print(FIELDS, parsed, qtree::rows(cluster), &keys, |all| {
        let row = |r| {
            let mut cells = show::cells(FIELDS, COLUMNS, r);
            for name in cells.iter_mut().filter(|name| name.is_empty()) {
                *name = "\"\"".to_owned();
            }
            cells
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}
