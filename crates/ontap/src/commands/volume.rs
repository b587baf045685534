//! `volume`: sources to copy, destinations to copy into, clones.

use weir_relations::model::Path;

use super::show::{self, Answer};
use crate::cluster::{Change, Cluster, Failure};
use crate::fields::volume::{Draft, FIELDS, TABLE, rows};
use crate::fields::{self, Way};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, invalid, none};
use crate::storage::Settings;
use crate::table::Column;
use crate::value;

/// Returns the path of the volume that the arguments `-vserver` and another name.
pub(super) fn path(parsed: &ParsedCommand, name: &str) -> Result<Path, Failure> {
    let volume = argument(parsed, name)?;
    let text = format!("{}:{volume}", argument(parsed, "vserver")?);
    Path::parse(&text).ok_or_else(|| invalid(volume, name, "volume name"))
}

/// Returns what the arguments set.
fn draft(parsed: &ParsedCommand, way: Way, cluster: &dyn Cluster) -> Result<Draft, Failure> {
    let mut draft = Draft::default();
    fields::read(&TABLE, parsed, way, &mut draft, cluster, None)?;
    Ok(draft)
}

/// Runs `volume create`, of type `RW` or `DP`.
pub fn create(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = path(parsed, "volume")?;
    let draft = draft(parsed, Way::Create, cluster)?;
    let change = Change::VolumeCreate {
        path: path.clone(),
        size: draft.settings.size.unwrap_or_default(),
        protection: draft.protection,
        settings: draft.settings,
    };
    cluster.change(change).map_err(failed)?;
    Ok(successful("Volume creation", &path))
}

/// Runs `volume delete`, of one that exists.
pub fn delete(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let change = Change::VolumeDelete(path.clone());
    cluster.change(change).map_err(failed)?;
    Ok(successful("Volume deletion", &path))
}

/// Runs `volume modify`, `mount`, `unmount`, `online`, `offline`.
pub fn modify(
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let mut settings = draft(parsed, Way::Modify, cluster)?.settings;
    let said = match verb {
        "mount" => {
            argument(parsed, "junction-path")?;
            String::new()
        }
        "unmount" => {
            settings.junction = Some(None);
            String::new()
        }
        "online" | "offline" => {
            settings.online = Some(verb == "online");
            format!("Volume \"{path}\" is now {verb}.\n")
        }
        _ => format!(
            "Volume modify successful on volume {} of Vserver {}.\n",
            path.volume, path.vserver
        ),
    };
    let change = Change::VolumeModify { path, settings };
    cluster.change(change).map_err(failed)?;
    Ok(said.into())
}

/// Runs `volume size`: shows it, or sets it; `+10g` and `-10g` are by so much.
pub fn resize(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = path(parsed, "volume")?;
    let all = cluster.volumes();
    let volume = all.iter().find(|v| v.path == path).ok_or_else(none)?;
    let now = volume.capacity();
    let short = |bytes| {
        let text = value::tidy_size(bytes).to_lowercase();
        text.strip_suffix('b').unwrap_or(&text).to_owned()
    };
    let Some(text) = parsed.get("new-size") else {
        return Ok(format!("vol size: Volume \"{path}\" has size {}.\n", short(now)).into());
    };
    let wrong = || invalid(text, "new-size", "[+|-]{<integer>[KB|MB|GB|TB|PB]}");
    let bytes = value::bytes(text.trim_start_matches(['+', '-'])).ok_or_else(wrong)?;
    let next = match text.chars().next() {
        Some('+') => now.checked_add(bytes),
        Some('-') => now.checked_sub(bytes).filter(|left| *left > 0),
        _ => Some(bytes),
    };
    let settings = Settings {
        size: Some(next.ok_or_else(wrong)?),
        ..Settings::default()
    };
    let change = Change::VolumeModify {
        path: path.clone(),
        settings,
    };
    cluster.change(change).map_err(failed)?;
    let all = cluster.volumes();
    let after = all.iter().find(|v| v.path == path).ok_or_else(none)?;
    let after = after.capacity();
    Ok(format!(
        "vol size: Volume \"{path}\" size set to {}.\n",
        short(after)
    )
    .into())
}

/// Runs `volume rename`
pub fn rename(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let to = argument(parsed, "newname")?.to_owned();
    let renamed = Path::local(&path.vserver, &to);
    cluster
        .change(Change::VolumeRename { path, to })
        .map_err(failed)?;
    Ok(successful("Volume rename", &renamed))
}

/// Runs `volume clone create`, of a volume or of its snapshot.
pub fn clone(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let change = Change::VolumeClone {
        path: path(parsed, "flexclone")?,
        parent: there(path(parsed, "parent-volume")?, cluster)?,
        snapshot: parsed.get("parent-snapshot").map(str::to_owned),
        settings: draft(parsed, Way::Create, cluster)?.settings,
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

/// Runs `volume clone split start`
pub fn split(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "flexclone")?, cluster)?;
    cluster.change(Change::VolumeSplit(path)).map_err(failed)?;
    Ok(String::new().into())
}

pub(super) fn there(path: Path, cluster: &dyn Cluster) -> Result<Path, Failure> {
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

/// Runs `volume show` and `volume footprint show`, with queries and `-fields`.
pub fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 9).with_field("vserver"),
        Column::new(&["Volume"], 12).with_field("volume"),
        Column::new(&["Aggregate"], 12).with_field("aggregate"),
        Column::new(&["State"], 10).with_field("state"),
        Column::new(&["Type"], 4).with_field("type"),
        Column::new(&["      Size"], 10).with_field("size").right(),
        Column::new(&[" Available"], 10)
            .with_field("available")
            .right(),
        Column::new(&["Used%"], 5)
            .with_field("percent-used")
            .right(),
    ];
    let all = rows(cluster, show::asks_costly(FIELDS, parsed));
    show::list(FIELDS, parsed, all, &["vserver", "volume"], COLUMNS)
}
