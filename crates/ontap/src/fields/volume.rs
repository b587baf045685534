//! Volumes.

use std::collections::BTreeSet;

use weir_relations::model::Path;

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::{Cluster, Volume};
use crate::storage::{Movement, NamedKind, QuotaState, Settings};
use crate::value;

/// A volume with what its record takes besides.
#[derive(Clone, Debug)]
pub struct Row {
    /// The volume.
    pub volume: Volume,
    /// The node that has it.
    pub node: String,
    /// Number of its snapshots, and bytes that only they hold; `None` unless a field asks for them.
    pub snapshots: Option<(u64, u64)>,
    /// A relationship copies it.
    pub copied: bool,
    /// The state of its quotas.
    pub quotas: QuotaState,
}

impl std::ops::Deref for Row {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.volume
    }
}

impl Row {
    /// Returns the bytes of the capacity that are kept for snapshots.
    fn reserve(&self) -> u64 {
        let percent = u128::from(self.details.snapshot_reserve);
        let bytes = u128::from(self.capacity()) * percent / 100;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns bytes: on lines a dash, if the capacity has no bound of its own.
    fn bounded(&self, bytes: Value) -> Value {
        match self.size {
            Some(_) => bytes,
            None => Value::Shown("-".to_owned(), Box::new(bytes)),
        }
    }

    fn held(&self) -> Option<u64> {
        self.snapshots.map(|(_, held)| held)
    }

    fn pool(&self) -> Value {
        let pool = &self.volume.pool;
        let uuid = super::pool_uuid(&self.path.vserver, &self.location, pool);
        let object = Value::Object(vec![("name", text(pool)), ("uuid", text(uuid))]);
        Value::Apart(pool.clone(), Box::new(Value::List(vec![object])))
    }

    fn parent(&self) -> Option<&(Path, String)> {
        self.volume.parent.as_ref()
    }
}

/// Returns the record of a volume that was just made.
pub fn new(volume: Volume, cluster: &dyn Cluster) -> Row {
    Row {
        volume,
        node: cluster.name(),
        snapshots: None,
        copied: false,
        quotas: QuotaState::Off,
    }
}

/// Returns all volumes. `counted`: with what their snapshots hold.
pub fn rows(cluster: &dyn Cluster, counted: bool) -> Vec<Row> {
    let copied = cluster.destinations().into_iter().map(|r| r.source);
    let copied: BTreeSet<Path> = copied.collect();
    let states = cluster.quota_states();
    let node = cluster.name();
    let row = |volume: Volume| {
        let snapshots = counted.then(|| cluster.snapshots(Some(&volume.path)));
        Row {
            node: node.clone(),
            snapshots: snapshots.map(|all| (all.len() as u64, all.iter().map(|s| s.size).sum())),
            copied: copied.contains(&volume.path),
            quotas: states.get(&volume.path).copied().unwrap_or(QuotaState::Off),
            volume,
        }
    };
    cluster.volumes().into_iter().map(row).collect()
}

/// A volume that is made or changed.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its machine.
    pub svm: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// It is the destination of a relationship.
    pub protection: bool,
    /// Its settings.
    pub settings: Settings,
    /// It is a clone.
    pub is_clone: Option<bool>,
    /// The parent of a clone: its machine, name, identity.
    pub parent: [Option<String>; 3],
    /// The parent's snapshot: its name, identity.
    pub snapshot: [Option<String>; 2],
    /// The clone is to become a volume of its own.
    pub split: Option<bool>,
    /// Its quota rules hold.
    pub quotas: Option<bool>,
    /// State that its move is to have.
    pub movement: Option<String>,
}

/// Returns a value of a volume's move.
fn moved(row: &Row, read: fn(&Movement) -> Value) -> Value {
    row.details.movement.as_ref().map_or(Value::None, read)
}

/// Creates a field with bytes, for those who ask for it by its name.
const fn bytes(
    rest: &'static str,
    column: &'static str,
    label: &'static str,
    read: fn(&Row) -> Value,
) -> Field<Row, Draft> {
    Field::new(rest, column, label, read).aside()
}

type F = Field<Row, Draft>;

/// The fields: those of REST and the command line in the order of `-instance`, then those that
/// monitors ask for, then those of REST alone.
pub const FIELDS: &[F] = rows! {
    F::new("svm.name", "vserver", "Vserver Name", |v| text(&v.path.vserver)).key()
        .creates(Kind::Svm, |d, v| d.svm = v.text()),
    F::new("name", "volume", "Volume Name", |v| text(&v.path.volume)).key()
        .sets(Kind::Text, |d, v| d.name = v.text()),
    F::new("size", "size", "Volume Size", |v: &Row| v.bounded(Value::Capacity(v.capacity())))
        .sets(Kind::Size, |d, v| d.settings.size = v.number()).required(),
    F::new("space.used", "used", "Used Size", |v| Value::Bytes(v.used)),
    F::new("space.available", "available", "Available Size",
        |v: &Row| v.bounded(Value::Bytes(v.available(v.capacity())))),
    F::new("space.percent_used", "percent-used", "Volume Percent Used",
        |v: &Row| Value::Percent(value::part(v.used, v.capacity()))),
    F::new("state", "state", "Volume State", |v: &Row| text(v.state()))
        .sets(Kind::Words("online|offline"), |d, v| d.settings.online = Some(v.is("online"))),
    F::new("type", "type", "Volume Type", |v: &Row| match v.protection {
        true => Value::Spelled("DP", "dp"),
        false => Value::Spelled("RW", "rw"),
    }).creates(Kind::Words("RW|DP"), |d, v| d.protection = v.is("DP")),
    F::new("aggregates", "aggregate", "Aggregate Name", Row::pool).parts(&["name", "uuid"])
        .sets(Kind::Pool, |d, v| d.settings.aggregate = v.text()).early(),
    F::new("nas.path", "junction-path", "Junction Path", |v| v.junction.clone().into())
        .sets(Kind::Path, |d, v| {
            d.settings.junction = v.text().map(|path| Some(path).filter(|path| !path.is_empty()));
        }).early(),
    F::new("nas.export_policy.name", "policy", "Export Policy", |v| text(&v.details.export_policy))
        .sets(Kind::Policy(NamedKind::Export), |d, v| d.settings.export_policy = v.text()),
    F::new(
        "nas.unix_permissions", "unix-permissions", "UNIX Permissions",
        |v| Value::Mode(v.details.permissions),
    ).sets(Kind::Mode, |d, v| d.settings.permissions = v.small()),
    F::new("nas.security_style", "security-style", "Security Style",
        |v| text(v.details.security_style())).only("unix"),
    F::new("comment", "comment", "Comment", |v| Value::Remark(v.details.comment.clone()))
        .sets(Kind::Text, |d, v| d.settings.comment = v.text()),
    F::new(
        "space.snapshot.reserve_percent", "percent-snapshot-space",
        "Space Reserved for Snapshot Copies", |v| Value::Percent(v.details.snapshot_reserve.into()),
    ).sets(Kind::Percent(90), |d, v| d.settings.snapshot_reserve = v.small()),
    F::new(
        "snapshot_directory_access_enabled", "snapdir-access", "Snapshot Directory Access Enabled",
        |v| v.details.snapshot_directory.into(),
    ).sets(Kind::Flag, |d, v| d.settings.snapshot_directory = v.flag()),
    F::new(
        "snapshot_policy.name", "snapshot-policy", "Snapshot Policy",
        |v| text(&v.details.snapshot_policy),
    ).sets(Kind::Policy(NamedKind::Snapshot), |d, v| d.settings.snapshot_policy = v.text()),
    F::new(
        "qos.policy.name", "qos-policy-group", "QoS Policy Group Name",
        |v| v.details.qos_policy.clone().into(),
    ).sets(Kind::Policy(NamedKind::Qos), |d, v| d.settings.qos_policy = v.text()),
    F::fixed("guarantee.type", "space-guarantee", "Space Guarantee Style", "none"),
    F::new(
        "clone.parent_volume.name", "clone-parent-name", "Clone Parent Volume",
        |v| v.parent().map(|(path, _)| text(&path.volume)).into(),
    ).creates(Kind::Text, |d, v| d.parent[1] = v.text()).rest_only(),
    F::new(
        "clone.parent_snapshot.name", "clone-parent-snapshot", "Clone Parent Snapshot",
        |v| v.parent().map(|(_, snapshot)| text(snapshot)).into(),
    ).creates(Kind::Text, |d, v| d.snapshot[0] = v.text()).rest_only(),
    F::new("create_time", "create-time", "Creation Time", |v| Value::Time(v.created)),
    F::new("uuid", "instance-uuid", "Volume Instance UUID", |v| text(&v.uuid)),
    // Fields that monitors ask for.
    F::column("aggr-list", "List of Aggregates", |v: &Row| text(&v.volume.pool)).aside(),
    F::column("nodes", "List of Nodes", |v: &Row| text(&v.node)).aside(),
    F::fixed("style", "volume-style-extended", "Extended Volume Style", "flexvol").aside(),
    F::new(
        "clone.parent_svm.name", "clone-parent-vserver", "Clone Parent Vserver",
        |v| v.parent().map(|(path, _)| text(&path.vserver)).into(),
    ).creates(Kind::Text, |d, v| d.parent[0] = v.text()).rest_only().aside(),
    F::new("clone.is_flexclone", "clone-volume", "Is a FlexClone", |v| v.parent().is_some().into())
        .creates(Kind::Flag, |d, v| d.is_clone = v.flag()).rest_only().aside(),
    F::always("is_constituent", "is-constituent", "Is a Constituent of a FlexGroup", "false")
        .aside(),
    F::fixed("encryption.enabled", "is-encrypted", "Is Volume Encrypted", "false").aside(),
    F::always("", "is-sis-volume", "Is Sis Volume", "false").aside(),
    F::fixed(
        "space.logical_space.enforcement", "is-space-enforcement-logical",
        "Logical Space Enforcement", "false",
    ).aside(),
    F::fixed(
        "space.logical_space.reporting", "is-space-reporting-logical", "Logical Space Reporting",
        "false",
    ).aside(),
    F::always("is_svm_root", "vsroot", "Is the Root of its Vserver", "false").aside(),
    F::fixed("autosize.mode", "autosize-mode", "Autosize Mode", "off").aside(),
    F::fixed("snaplock.type", "snaplock-type", "SnapLock Type", "non-snaplock").aside(),
    F::fixed("tiering.policy", "tiering-policy", "Tiering Policy", "none").aside(),
    bytes("space.size", "filesystem-size", "Filesystem Size", |v| Value::Bytes(v.capacity()))
        .sets(Kind::Size, |d, v| d.settings.size = d.settings.size.or(v.number())).rest_only(),
    bytes("", "total", "Total Size without Reserve",
        |v| Value::Bytes(v.capacity().saturating_sub(v.reserve()))),
    bytes("space.footprint", "total-footprint", "Total Footprint", |v| Value::Bytes(v.used)),
    bytes("", "volume-blocks-footprint", "Volume Data Footprint", |v| Value::Bytes(v.used)),
    bytes("", "volume-blocks-footprint-bin0", "Data in the First Tier", |v| Value::Bytes(v.used)),
    bytes("", "volume-guarantee-footprint", "Volume Guarantee", |_| Value::Bytes(0)),
    bytes("space.logical_space.used", "logical-used", "Logical Used Size",
        |v| Value::Bytes(v.used)),
    bytes("space.physical_used", "virtual-used", "Total Physical Used Size",
        |v| Value::Bytes(v.used)),
    bytes("", "logical-used-percent", "Logical Used Percent",
        |v| value::part(v.used, v.capacity()).into()),
    bytes("", "virtual-used-percent", "Physical Used Percent",
        |v| value::part(v.used, v.capacity()).into()),
    bytes("", "compression-space-saved", "Saved by Compression", |_| Value::Bytes(0)),
    bytes("", "dedupe-space-saved", "Saved by Deduplication", |_| Value::Bytes(0)),
    bytes("", "sis-space-saved", "Saved by Storage Efficiency", |_| Value::Bytes(0)),
    F::always("", "compression-space-saved-percent", "Saved by Compression", "0").aside(),
    F::always("", "dedupe-space-saved-percent", "Saved by Deduplication", "0").aside(),
    F::always("", "sis-space-saved-percent", "Saved by Storage Efficiency", "0").aside(),
    F::new("snapshot_count", "snapshot-count", "Number of Snapshots",
        |v: &Row| v.snapshots.map(|(count, _)| count).into()).aside().costly(),
    bytes("space.snapshot.used", "size-used-by-snapshots", "Used by Snapshots",
        |v| v.held().map(Value::Bytes).into()).costly(),
    bytes("space.snapshot.reserve_size", "snapshot-reserve-size", "Snapshot Reserve",
        |v| Value::Bytes(v.reserve())),
    bytes("", "snapshot-reserve-available", "Snapshot Reserve Left",
        |v| v.held().map(|held| Value::Bytes(v.reserve().saturating_sub(held))).into()).costly(),
    bytes("", "size-available-for-snapshots", "Left for Snapshots",
        |v| Value::Bytes(v.available(v.capacity()))),
    bytes("", "snapshot-space-used", "Snapshot Reserve Used",
        |v| v.held().map(|held| value::part(held, v.reserve())).into()).costly(),
    // In REST alone.
    F::rest("svm.uuid", |v| identity("svm", &v.path.vserver)),
    F::fixed("language", "", "", "c.utf_8|utf8mb4|en_us.utf_8"),
    F::rest(
        "clone.parent_svm.uuid",
        |v| v.parent().map(|(path, _)| identity("svm", &path.vserver)).into(),
    ).creates(Kind::Text, |_, _| {}),
    F::rest("clone.parent_volume.uuid", |_| Value::None)
        .creates(Kind::Text, |d, v| d.parent[2] = v.text()),
    F::rest("clone.parent_snapshot.uuid", |_| Value::None)
        .creates(Kind::Text, |d, v| d.snapshot[1] = v.text()),
    F::rest("clone.split_initiated", |v| v.parent().map(|_| v.details.splitting).into())
        .sets(Kind::Flag, |d, v| d.split = v.flag()),
    F::rest("movement.destination_aggregate.name", |v| moved(v, |to| text(&to.destination)))
        .modifies(Kind::Text, |d, v| {
            d.settings.aggregate = d.settings.aggregate.take().or(v.text());
        }),
    F::rest("movement.state", |v| moved(v, |to| text(to.phase)))
        .modifies(Kind::Text, |d, v| d.movement = v.text()),
    F::rest("movement.percent_complete", |v| moved(v, |to| u64::from(to.percent).into())),
    // A new volume has no rules that could hold.
    F::rest("quota.enabled", |v| (v.quotas != QuotaState::Off).into())
        .sets(Kind::Flag, |d, v| d.quotas = v.flag()),
    F::rest("quota.state", |v| text(v.quotas.word())),
    F::rest("snapmirror.is_protected", |v| v.copied.into()),
    F::rest("snapmirror.destinations.is_ontap", |v| v.copied.into()),
    F::always("snapmirror.destinations.is_cloud", "", "", "false"),
    F::always("guarantee.honored", "", "", "true"),
    F::fixed("nas.uid", "", "", "-").only("0"),
    F::fixed("nas.gid", "", "", "-").only("0"),
    F::fixed("space.snapshot.autodelete_enabled", "", "", "false"),
    F::fixed("space.snapshot.autodelete.enabled", "", "", "false"),
    F::fixed("snapshot_locking_enabled", "", "", "false"),
    F::fixed("access_time_enabled", "", "", "true"),
    F::fixed("activity_tracking.state", "", "", "off"),
    F::always("activity_tracking.supported", "", "", "false"),
    F::fixed("analytics.state", "", "", "off"),
    F::always("analytics.supported", "", "", "false"),
    F::fixed("anti_ransomware.state", "", "", "disabled"),
    F::fixed("cloud_retrieval_policy", "", "", "default"),
    F::always("efficiency.state", "", "", "disabled"),
    F::always("efficiency.op_state", "", "", "idle"),
    F::fixed("efficiency.compression", "", "", "none"),
    F::fixed("efficiency.dedupe", "", "", "none"),
    F::fixed("efficiency.compaction", "", "", "none"),
    F::fixed("efficiency.cross_volume_dedupe", "", "", "none"),
    F::rest("efficiency.policy.name", |_| text("-")).only("-|none"),
    F::always("efficiency.storage_efficiency_mode", "", "", "default"),
    F::rest("efficiency.volume_path", |v| text(format!("/vol/{}", v.path.volume))),
    F::always("encryption.state", "", "", "none"),
    F::always("flexcache_endpoint_type", "", "", "none"),
    F::fixed("granular_data", "", "", "false"),
    F::always("is_object_store", "", "", "false"),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "storage/volumes",
    command: &["volume"],
    fields: FIELDS,
    absent: rows! {
        "nas.export_policy.id", "nas.junction_parent.name", "nas.junction_parent.uuid",
        "space.snapshot.autodelete.trigger", "space.snapshot.autodelete.target_free_space",
        "space.snapshot.autodelete.delete_order", "space.snapshot.autodelete.commitment",
        "space.snapshot.autodelete.defer_delete", "space.snapshot.autodelete.prefix",
        "space.nearly_full_threshold_percent", "space.full_threshold_percent",
        "space.large_size_enabled", "snapshot_policy.uuid", "qos.policy.uuid",
        "anti_ransomware.attack_probability", "anti_ransomware.dry_run_start_time",
        "autosize.maximum", "autosize.minimum", "autosize.grow_threshold",
        "autosize.shrink_threshold", "clone.split_complete_percent", "clone.split_estimate",
        "constituents_per_aggregate", "efficiency.schedule", "efficiency.scanner.state",
        "encryption.type", "files.maximum", "files.used", "max_dir_size",
        "movement.destination_aggregate.uuid", "snaplock.append_mode_enabled",
        "snaplock.autocommit_period", "snaplock.privileged_delete", "snaplock.retention.default",
        "snaplock.retention.maximum", "snaplock.retention.minimum", "tiering.min_cooling_days",
        "tiering.object_tags", "_tags",
    },
    keys: &["uuid", "name"],
    order: &["svm.name", "name", "uuid"],
    ids: |v| vec![v.uuid.clone()],
    why: "",
};
