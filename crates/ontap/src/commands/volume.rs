//! `volume`: sources to copy, destinations to copy into, clones.

use weir_replica::model::Path;

use super::show::{self, Answer, Field, or_dash};
use super::{argument, failed, invalid, none};
use crate::cluster::{Change, Cluster, Failure, Volume};
use crate::grammar::Parsed;
use crate::table::{self, Column};
use crate::value;

const VOLUMES: &[Field<Volume>] = &[
    Field::key("vserver", "Vserver Name", |v| v.path.vserver.clone()),
    Field::key("volume", "Volume Name", |v| v.path.volume.clone()),
    Field::new("size", "Volume Size", |v: &Volume| {
        or_dash(v.size.map(value::size))
    })
    .exact(|v| v.size),
    Field::new("used", "Used Size", |v: &Volume| value::size(v.used)).exact(|v| Some(v.used)),
    Field::new("available", "Available Size", |v| {
        or_dash(v.size.map(|size| value::size(size.saturating_sub(v.used))))
    }),
    Field::new("state", "Volume State", |_| "online".to_owned()),
    Field::new("type", "Volume Type", |v| kind(v).to_owned()),
    Field::new("aggregate", "Aggregate Name", |v| v.pool.clone()),
    Field::new("junction-path", "Junction Path", |v| {
        or_dash(v.junction.clone())
    }),
    Field::new("clone-parent-name", "Clone Parent Volume", |v| {
        or_dash(v.parent.as_ref().map(|(path, _)| path.volume.clone()))
    }),
    Field::new("clone-parent-snapshot", "Clone Parent Snapshot", |v| {
        or_dash(v.parent.as_ref().map(|(_, snapshot)| snapshot.clone()))
    }),
    Field::new("create-time", "Creation Time", |v| {
        value::long_timestamp(v.created)
    }),
    Field::new("instance-uuid", "Volume Instance UUID", |v| v.uuid.clone()),
];

fn kind(volume: &Volume) -> &'static str {
    if volume.protection { "DP" } else { "RW" }
}

/// A volume by the arguments `-vserver` and another.
fn path(parsed: &Parsed, name: &str) -> Result<Path, Failure> {
    let volume = argument(parsed, name)?;
    let text = format!("{}:{volume}", argument(parsed, "vserver")?);
    Path::parse(&text).ok_or_else(|| invalid(volume, name, "volume name"))
}

/// `volume create`, of type `RW` or `DP`.
pub fn create(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = path(parsed, "volume")?;
    let text = argument(parsed, "size")?;
    let size = value::number(text).filter(|bytes| *bytes >= 1.0 && *bytes < 9.0e18);
    let size = size.ok_or_else(|| invalid(text, "size", "{<integer>[KB|MB|GB|TB|PB]}"))?;
    let kind = parsed.get("type").unwrap_or("RW");
    let protection = match kind.to_ascii_uppercase().as_str() {
        "RW" => false,
        "DP" => true,
        _ => return Err(invalid(kind, "type", "RW|DP")),
    };
    let change = Change::VolumeCreate {
        path: path.clone(),
        size: size as u64,
        protection,
        pool: parsed.get("aggregate").map(str::to_owned),
        junction: parsed.get("junction-path").map(str::to_owned),
    };
    cluster.change(change).map_err(failed)?;
    Ok(successful("Volume creation", &path))
}

/// `volume delete`, of one that exists.
pub fn delete(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let change = Change::VolumeDelete(path.clone());
    cluster.change(change).map_err(failed)?;
    Ok(successful("Volume deletion", &path))
}

/// `volume clone create`, of a volume or of its snapshot.
pub fn clone(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let change = Change::VolumeClone {
        path: path(parsed, "flexclone")?,
        parent: there(path(parsed, "parent-volume")?, cluster)?,
        snapshot: parsed.get("parent-snapshot").map(str::to_owned),
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

/// `volume clone split start`
pub fn split(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "flexclone")?, cluster)?;
    cluster.change(Change::VolumeSplit(path)).map_err(failed)?;
    Ok(String::new().into())
}

fn there(path: Path, cluster: &dyn Cluster) -> Result<Path, Failure> {
    match cluster.volumes().iter().any(|v| v.path == path) {
        true => Ok(path),
        false => Err(none()),
    }
}

fn successful(what: &str, path: &Path) -> Answer {
    format!(
        "{what} successful: Vserver \"{}\", volume \"{}\".\n",
        path.vserver, path.volume
    )
    .into()
}

/// `volume show`, with queries and `-fields`.
pub fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
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
