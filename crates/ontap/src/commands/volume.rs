//! `volume`: sources to copy, destinations to copy into, clones.

use weir_relations::model::Path;

use super::refusal::{argument, failed, invalid, none, not_among};
use super::show::{self, Answer, Field, Instant, or_dash};
use super::storage::part;
use crate::cluster::{Change, Cluster, Failure, Volume};
use crate::grammar::Parsed;
use crate::storage::Settings;
use crate::table::{self, Column};
use crate::value;

const VOLUMES: &[Field<Row>] = &[
    Field::key("vserver", "Vserver Name", |v| v.path.vserver.clone()),
    Field::key("volume", "Volume Name", |v| v.path.volume.clone()),
    Field::new("size", "Volume Size", |v: &Row| {
        or_dash(v.size.map(value::tidy_size))
    })
    .exact(|v| Some(v.capacity())),
    Field::new("used", "Used Size", |v: &Row| value::size(v.used)).exact(|v| Some(v.used)),
    Field::new("available", "Available Size", |v: &Row| {
        or_dash(v.size.map(|size| value::size(v.available(size))))
    })
    .exact(|v| Some(v.available(v.capacity()))),
    Field::new("percent-used", "Volume Percent Used", |v: &Row| percent(v))
        .exact(|v| Some(part(v.used, v.capacity()))),
    Field::new("state", "Volume State", |v: &Row| state(v).to_owned()),
    Field::new("type", "Volume Type", |v| kind(v).to_owned()),
    Field::new("aggregate", "Aggregate Name", |v| v.pool.clone()),
    Field::new("junction-path", "Junction Path", |v| {
        or_dash(v.junction.clone())
    }),
    Field::new("policy", "Export Policy", |v| {
        v.details.export_policy.clone()
    }),
    Field::new("unix-permissions", "UNIX Permissions", |v: &Row| {
        signs(v.details.permissions)
    }),
    Field::new("security-style", "Security Style", |v| {
        v.details.security_style().to_owned()
    }),
    Field::new("comment", "Comment", |v| {
        or_dash(Some(v.details.comment.clone()).filter(|c| !c.is_empty()))
    }),
    Field::new(
        "percent-snapshot-space",
        "Space Reserved for Snapshot Copies",
        |v: &Row| format!("{}%", v.details.snapshot_reserve),
    )
    .exact(|v| Some(v.details.snapshot_reserve.into())),
    Field::new("snapdir-access", "Snapshot Directory Access Enabled", |v| {
        v.details.snapshot_directory.to_string()
    }),
    Field::new("snapshot-policy", "Snapshot Policy", |v| {
        v.details.snapshot_policy.clone()
    }),
    Field::new("qos-policy-group", "QoS Policy Group Name", |v| {
        or_dash(v.details.qos_policy.clone())
    }),
    Field::new("space-guarantee", "Space Guarantee Style", |_| {
        "none".to_owned()
    }),
    Field::new("clone-parent-name", "Clone Parent Volume", |v| {
        or_dash(v.parent.as_ref().map(|(path, _)| path.volume.clone()))
    }),
    Field::new("clone-parent-snapshot", "Clone Parent Snapshot", |v| {
        or_dash(v.parent.as_ref().map(|(_, snapshot)| snapshot.clone()))
    }),
    Field::new("create-time", "Creation Time", |v: &Row| {
        value::long_timestamp(v.created)
    })
    .instant(|v| Some(Instant::At(v.created))),
    Field::new("instance-uuid", "Volume Instance UUID", |v| v.uuid.clone()),
    // The rest is what monitors ask for.
    Field::new("aggr-list", "List of Aggregates", |v: &Row| v.pool.clone()).aside(),
    Field::new("nodes", "List of Nodes", |v: &Row| v.node.clone()).aside(),
    Field::new("volume-style-extended", "Extended Volume Style", |_| {
        "flexvol".to_owned()
    })
    .aside(),
    Field::new("clone-parent-vserver", "Clone Parent Vserver", |v: &Row| {
        or_dash(v.parent.as_ref().map(|(path, _)| path.vserver.clone()))
    })
    .aside(),
    Field::new("clone-volume", "Is a FlexClone", |v: &Row| {
        v.parent.is_some().to_string()
    })
    .aside(),
    never("is-constituent", "Is a Constituent of a FlexGroup"),
    never("is-encrypted", "Is Volume Encrypted"),
    never("is-sis-volume", "Is Sis Volume"),
    never("is-space-enforcement-logical", "Logical Space Enforcement"),
    never("is-space-reporting-logical", "Logical Space Reporting"),
    never("vsroot", "Is the Root of its Vserver"),
    Field::new("autosize-mode", "Autosize Mode", |_| "off".to_owned()).aside(),
    Field::new("snaplock-type", "SnapLock Type", |_| {
        "non-snaplock".to_owned()
    })
    .words()
    .aside(),
    Field::new("tiering-policy", "Tiering Policy", |_| "none".to_owned()).aside(),
    bytes("filesystem-size", "Filesystem Size", |v| v.capacity()),
    bytes("total", "Total Size without Reserve", |v| {
        v.capacity().saturating_sub(v.reserve())
    }),
    bytes("total-footprint", "Total Footprint", |v| v.used),
    bytes("volume-blocks-footprint", "Volume Data Footprint", |v| {
        v.used
    }),
    bytes(
        "volume-blocks-footprint-bin0",
        "Data in the First Tier",
        |v| v.used,
    ),
    bytes("volume-guarantee-footprint", "Volume Guarantee", |_| 0),
    bytes("logical-used", "Logical Used Size", |v| v.used),
    bytes("virtual-used", "Total Physical Used Size", |v| v.used),
    count("logical-used-percent", "Logical Used Percent", |v| {
        part(v.used, v.capacity())
    }),
    count("virtual-used-percent", "Physical Used Percent", |v| {
        part(v.used, v.capacity())
    }),
    bytes("compression-space-saved", "Saved by Compression", |_| 0),
    bytes("dedupe-space-saved", "Saved by Deduplication", |_| 0),
    bytes("sis-space-saved", "Saved by Storage Efficiency", |_| 0),
    count(
        "compression-space-saved-percent",
        "Saved by Compression",
        |_| 0,
    ),
    count(
        "dedupe-space-saved-percent",
        "Saved by Deduplication",
        |_| 0,
    ),
    count(
        "sis-space-saved-percent",
        "Saved by Storage Efficiency",
        |_| 0,
    ),
    count("snapshot-count", "Number of Snapshots", |v| v.snapshots),
    bytes("size-used-by-snapshots", "Used by Snapshots", |v| v.held),
    bytes("snapshot-reserve-size", "Snapshot Reserve", Row::reserve),
    bytes("snapshot-reserve-available", "Snapshot Reserve Left", |v| {
        v.reserve().saturating_sub(v.held)
    }),
    bytes("size-available-for-snapshots", "Left for Snapshots", |v| {
        v.available(v.capacity())
    }),
    count("snapshot-space-used", "Snapshot Reserve Used", |v| {
        part(v.held, v.reserve())
    }),
];

/// Creates a field of something that no volume here is.
const fn never(name: &'static str, label: &'static str) -> Field<Row> {
    Field::new(name, label, |_| "false".to_owned()).aside()
}

/// Creates a field with a number of bytes.
const fn bytes(name: &'static str, label: &'static str, value: fn(&Row) -> u64) -> Field<Row> {
    Field::sized(name, label, value).aside()
}

/// Creates a field with a number.
const fn count(name: &'static str, label: &'static str, value: fn(&Row) -> u64) -> Field<Row> {
    Field::counted(name, label, value).aside()
}

/// A volume with what its record takes besides.
struct Row {
    volume: Volume,
    /// The node that has it.
    node: String,
    /// Number of its snapshots, and bytes that only they hold; 0 unless a field asks for them.
    snapshots: u64,
    held: u64,
}

impl std::ops::Deref for Row {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.volume
    }
}

impl Row {
    /// Returns the bytes that the volume may hold.
    fn capacity(&self) -> u64 {
        self.size.unwrap_or(self.details.provisioned)
    }

    /// Returns the bytes of the capacity that are kept for snapshots.
    fn reserve(&self) -> u64 {
        let percent = u128::from(self.details.snapshot_reserve);
        (u128::from(self.capacity()) * percent / 100) as u64
    }
}

/// Returns the volumes. Snapshots are counted only if a field or a query asks for them.
fn rows(parsed: &Parsed, cluster: &dyn Cluster) -> Vec<Row> {
    let asks = |text: &str| text.contains("snapshot") || text.contains('*');
    let counted =
        parsed.get("fields").is_some_and(asks) || parsed.queries.iter().any(|(name, _)| asks(name));
    let node = cluster.name();
    let row = |volume: Volume| {
        let snapshots = match counted {
            true => cluster.snapshots(Some(&volume.path)),
            false => Vec::new(),
        };
        Row {
            node: node.clone(),
            snapshots: snapshots.len() as u64,
            held: snapshots.iter().map(|s| s.size).sum(),
            volume,
        }
    };
    cluster.volumes().into_iter().map(row).collect()
}

fn state(volume: &Volume) -> &'static str {
    match volume.details.online {
        true => "online",
        false => "offline",
    }
}

fn percent(volume: &Volume) -> String {
    let size = volume.size.unwrap_or(volume.details.provisioned);
    format!("{}%", part(volume.used, size))
}

/// Returns permission bits as ONTAP shows them: `---rwxr-xr-x`.
pub(super) fn signs(mode: u32) -> String {
    let bit = |(at, sign): (usize, char)| match mode >> (8 - at) & 1 {
        1 => sign,
        _ => '-',
    };
    let nine: String = "rwxrwxrwx".chars().enumerate().map(bit).collect();
    format!("---{nine}")
}

fn kind(volume: &Volume) -> &'static str {
    if volume.protection { "DP" } else { "RW" }
}

/// Returns the path of the volume that the arguments `-vserver` and another name.
pub(super) fn path(parsed: &Parsed, name: &str) -> Result<Path, Failure> {
    let volume = argument(parsed, name)?;
    let text = format!("{}:{volume}", argument(parsed, "vserver")?);
    Path::parse(&text).ok_or_else(|| invalid(volume, name, "volume name"))
}

/// Reads permission bits: octal digits, or `---rwxr-xr-x`.
///
/// `None`: neither.
pub fn permissions(text: &str) -> Option<u32> {
    let signs = text.strip_prefix("---").unwrap_or(text);
    let symbolic = || {
        let mut bits = signs.bytes().zip(b"rwxrwxrwx".iter());
        bits.try_fold(0_u32, |mode, (given, sign)| match given {
            b'-' => Some(mode << 1),
            given if given == *sign => Some(mode << 1 | 1),
            _ => None,
        })
    };
    let found = match signs.len() {
        9 => symbolic(),
        _ => u32::from_str_radix(text, 8).ok(),
    };
    found.filter(|mode| *mode <= 0o7777)
}

/// Returns the settings among the arguments.
fn settings(parsed: &Parsed) -> Result<Settings, Failure> {
    let text = |name: &str| parsed.get(name).map(str::to_owned);
    let read = |name: &str, kind: &str, read: fn(&str) -> Option<u64>| {
        let given = parsed.get(name);
        given
            .map(|text| read(text).ok_or_else(|| invalid(text, name, kind)))
            .transpose()
    };
    let state = match parsed.get("state") {
        None => None,
        Some("online") => Some(true),
        Some("offline") => Some(false),
        Some(other) => return Err(not_among(other, "state", "volume state", "online, offline")),
    };
    let visible = match parsed.get("snapdir-access") {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(other) => return Err(invalid(other, "snapdir-access", "true|false")),
    };
    let mode = read("unix-permissions", "unix perm", |text| {
        permissions(text).map(u64::from)
    })?;
    let percent = |text: &str| {
        let digits = text.strip_suffix('%').unwrap_or(text);
        digits.parse().ok().filter(|percent| *percent <= 90)
    };
    let reserve = read("percent-snapshot-space", "percent", percent)?;
    Ok(Settings {
        size: read("size", SIZE, size)?,
        aggregate: text("aggregate"),
        comment: text("comment"),
        online: state,
        junction: text("junction-path").map(|path| Some(path).filter(|path| !path.is_empty())),
        export_policy: text("policy"),
        snapshot_policy: text("snapshot-policy"),
        qos_policy: text("qos-policy-group"),
        permissions: mode.and_then(|mode| u32::try_from(mode).ok()),
        snapshot_directory: visible,
        snapshot_reserve: reserve.and_then(|percent| u32::try_from(percent).ok()),
    })
}

const SIZE: &str = "{<integer>[KB|MB|GB|TB|PB]}";

/// Returns the bytes of a size that is one at least.
fn size(text: &str) -> Option<u64> {
    let bytes = value::number(text)?;
    (1.0..9.0e18).contains(&bytes).then_some(bytes as u64)
}

/// Runs `volume create`, of type `RW` or `DP`.
pub fn create(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = path(parsed, "volume")?;
    let text = argument(parsed, "size")?;
    let size = size(text).ok_or_else(|| invalid(text, "size", SIZE))?;
    let kind = parsed.get("type").unwrap_or("RW");
    let protection = match kind.to_ascii_uppercase().as_str() {
        "RW" => false,
        "DP" => true,
        _ => return Err(invalid(kind, "type", "RW|DP")),
    };
    let change = Change::VolumeCreate {
        path: path.clone(),
        size,
        protection,
        settings: settings(parsed)?,
    };
    cluster.change(change).map_err(failed)?;
    Ok(successful("Volume creation", &path))
}

/// Runs `volume delete`, of one that exists.
pub fn delete(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let change = Change::VolumeDelete(path.clone());
    cluster.change(change).map_err(failed)?;
    Ok(successful("Volume deletion", &path))
}

/// Runs `volume modify`, `mount`, `unmount`, `online`, `offline`.
pub fn modify(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let mut settings = settings(parsed)?;
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
pub fn resize(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = path(parsed, "volume")?;
    let all = cluster.volumes();
    let volume = all.iter().find(|v| v.path == path).ok_or_else(none)?;
    let now = volume.size.unwrap_or(volume.details.provisioned);
    let short = |bytes| {
        let text = value::tidy_size(bytes).to_lowercase();
        text.strip_suffix('b').unwrap_or(&text).to_owned()
    };
    let Some(text) = parsed.get("new-size") else {
        return Ok(format!("vol size: Volume \"{path}\" has size {}.\n", short(now)).into());
    };
    let wrong = || invalid(text, "new-size", "[+|-]{<integer>[KB|MB|GB|TB|PB]}");
    let bytes = size(text.trim_start_matches(['+', '-'])).ok_or_else(wrong)?;
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
    let after = after.size.unwrap_or(after.details.provisioned);
    Ok(format!(
        "vol size: Volume \"{path}\" size set to {}.\n",
        short(after)
    )
    .into())
}

/// Runs `volume rename`
pub fn rename(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let path = there(path(parsed, "volume")?, cluster)?;
    let to = argument(parsed, "newname")?.to_owned();
    let renamed = Path::local(&path.vserver, &to);
    cluster
        .change(Change::VolumeRename { path, to })
        .map_err(failed)?;
    Ok(successful("Volume rename", &renamed))
}

/// Runs `volume clone create`, of a volume or of its snapshot.
pub fn clone(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let change = Change::VolumeClone {
        path: path(parsed, "flexclone")?,
        parent: there(path(parsed, "parent-volume")?, cluster)?,
        snapshot: parsed.get("parent-snapshot").map(str::to_owned),
        settings: settings(parsed)?,
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

/// Runs `volume clone split start`
pub fn split(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
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
pub fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 9),
        Column::new(&["Volume"], 12),
        Column::new(&["Aggregate"], 12),
        Column::new(&["State"], 10),
        Column::new(&["Type"], 4),
        Column::new(&["      Size"], 10),
        Column::new(&[" Available"], 10),
        Column::new(&["Used%"], 5),
    ];
    show::print(
        VOLUMES,
        parsed,
        rows(parsed, cluster),
        &["vserver", "volume"],
        |all| {
            let row = |v: &Row| {
                let size = v.capacity();
                vec![
                    v.path.vserver.clone(),
                    v.path.volume.clone(),
                    v.pool.clone(),
                    state(v).to_owned(),
                    kind(v).to_owned(),
                    format!("{:>10}", value::tidy_size(size)),
                    format!("{:>10}", value::size(v.available(size))),
                    format!("{:>5}", percent(v)),
                ]
            };
            table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
        },
    )
}
