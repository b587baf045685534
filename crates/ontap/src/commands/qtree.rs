//! `volume qtree`: folders of volumes that are counted and limited by themselves.

use weir_relations::model::Path;

use super::refusal::{argument, failed, invalid, none};
use super::show::{self, Answer, Field};
use super::volume::{path, permissions, signs, there};
use crate::cluster::{Change, Cluster, Failure, Reason, Volume};
use crate::grammar::Parsed;
use crate::storage::Qtree;
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

/// A qtree with its volume.
struct Row {
    qtree: Qtree,
    volume: Volume,
}

impl Row {
    fn path(&self) -> String {
        let (volume, name) = (&self.volume.path.volume, &self.qtree.name);
        format!("/vol/{volume}/{name}")
            .trim_end_matches('/')
            .to_owned()
    }
}

/// Returns the qtrees of all volumes, each volume's own (number 0) first.
fn rows(cluster: &dyn Cluster) -> Vec<Row> {
    let mut qtrees = cluster.qtrees(None);
    let mut rows = Vec::new();
    for volume in cluster.volumes() {
        let own = Qtree {
            volume: volume.path.clone(),
            number: 0,
            name: String::new(),
            permissions: volume.details.permissions,
            owner: 0,
            group: 0,
        };
        let here = qtrees.extract_if(.., |qtree| qtree.volume == volume.path);
        let here: Vec<Qtree> = here.collect();
        rows.extend([own].into_iter().chain(here).map(|qtree| Row {
            qtree,
            volume: volume.clone(),
        }));
    }
    rows
}

const FIELDS: &[Field<Row>] = &[
    Field::key("vserver", "Vserver Name", |r| r.volume.path.vserver.clone()),
    Field::key("volume", "Volume Name", |r| r.volume.path.volume.clone()),
    Field::key("qtree", "Qtree Name", |r| r.qtree.name.clone()),
    Field::new("qtree-path", "Qtree Path", Row::path),
    Field::new("security-style", "Security Style", |r| {
        r.volume.details.security_style().to_owned()
    }),
    Field::new("oplock-mode", "Oplock Mode", |_| "enable".to_owned()),
    Field::new("unix-permissions", "Unix Permissions", |r: &Row| {
        signs(r.qtree.permissions)
    }),
    Field::counted("id", "Qtree Id", |r| r.qtree.number.into()),
    Field::new("status", "Qtree Status", |_| "normal".to_owned()),
    Field::new("export-policy", "Export Policy", |r| {
        r.volume.details.export_policy.clone()
    }),
    Field::new(
        "is-export-policy-inherited",
        "Is Export Policy Inherited",
        |_| "true".to_owned(),
    ),
];

/// Runs `volume qtree` with this verb.
pub fn run(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let volume = there(path(parsed, "volume")?, cluster)?;
    let name = argument(parsed, "qtree")?.to_owned();
    let exists = || cluster.qtrees(Some(&volume)).iter().any(|q| q.name == name);
    if verb != "create" && !exists() {
        return Err(none());
    }
    let mode = parsed.get("unix-permissions").map(|text| {
        let kind = "octal digits or ---rwxr-xr-x";
        permissions(text).ok_or_else(|| invalid(text, "unix-permissions", kind))
    });
    let permissions = mode.transpose()?;
    let own = cluster.volumes().into_iter().find(|v| v.path == volume);
    let own = own.ok_or_else(none)?;
    for (argument, here) in [
        ("security-style", own.details.security_style()),
        ("oplock-mode", "enable"),
        ("export-policy", own.details.export_policy.as_str()),
    ] {
        if let Some(given) = parsed.get(argument).filter(|given| *given != here) {
            let kind = format!("{here}: qtrees have what their volume has");
            return Err(invalid(given, argument, &kind));
        }
    }
    let change = match verb {
        "create" => Change::QtreeCreate {
            volume,
            name,
            permissions,
        },
        "delete" => Change::QtreeDelete { volume, name },
        _ => Change::QtreeModify {
            volume,
            name,
            to: parsed.get("newname").map(str::to_owned),
            permissions,
        },
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 10),
        Column::new(&["Volume"], 13),
        Column::new(&["Qtree"], 12),
        Column::new(&["Style"], 12),
        Column::new(&["Oplocks"], 9),
        Column::new(&["Status"], 8),
    ];
    let keys = ["vserver", "volume", "qtree"];
    show::print(FIELDS, parsed, rows(cluster), &keys, |all| {
        let row = |r: &Row| {
            let name = match r.qtree.number {
                0 => "\"\"".to_owned(),
                _ => r.qtree.name.clone(),
            };
            vec![
                r.volume.path.vserver.clone(),
                r.volume.path.volume.clone(),
                name,
                r.volume.details.security_style().to_owned(),
                "enable".to_owned(),
                "normal".to_owned(),
            ]
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}
