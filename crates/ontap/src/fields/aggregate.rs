//! Aggregates, which are storage pools.

use super::value::{identity, pool_uuid, text};
use super::{Field, Table, Value};
use crate::cluster::Cluster;
use crate::storage::{Aggregate, Physical};
use crate::value::part;

/// An aggregate with the node that has it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// The node.
    pub node: String,
    /// The node's space.
    pub physical: Physical,
}

impl std::ops::Deref for Row {
    type Target = Aggregate;

    fn deref(&self) -> &Aggregate {
        &self.aggregate
    }
}

impl Row {
    /// Returns the bytes that its volumes may still use: of its capacity, and of the node's space.
    fn left(&self) -> Value {
        Value::Bytes(self.aggregate.available(&self.physical))
    }
}

/// Returns all aggregates, by machine and name.
pub fn rows(cluster: &dyn Cluster) -> Vec<Row> {
    let (node, physical) = (cluster.name(), cluster.physical());
    let row = |aggregate| Row {
        aggregate,
        node: node.clone(),
        physical,
    };
    cluster.aggregates().into_iter().map(row).collect()
}

type F = Field<Row>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::new("name", "aggregate", "Aggregate", |p| text(&p.name)).key(),
    F::new("space.block_storage.size", "size", "Size", |p| Value::Capacity(p.size)),
    F::new("space.block_storage.used", "usedsize", "Used Size", |p| Value::Bytes(p.used)),
    F::new("space.block_storage.available", "availsize", "Available Size", Row::left),
    F::new("space.block_storage.used_percent", "percent-used", "Used Percentage",
        |p| Value::Percent(part(p.used, p.size))),
    F::always("state", "state", "State", "online"),
    F::new("volume_count", "volcount", "Number Of Volumes", |p| p.volumes.into()),
    F::new("node.name", "node", "Node", |p| text(&p.node)),
    F::always("", "raidstatus", "RAID Status", "normal"),
    F::column("vserver", "Vserver", |p| text(&p.svm)),
    F::column("physical-size", "Physical Size of Node", |p| Value::Bytes(p.physical.size)),
    F::column("physical-used", "Physical Used of Node", |p| Value::Bytes(p.physical.used())),
    F::column("physical-avail", "Physical Available of Node", |p| Value::Bytes(p.physical.free)),
    F::new("uuid", "uuid", "Aggregate UUID", |p| text(pool_uuid(&p.svm, &p.location, &p.name)))
        .aside(),
    F::always("", "root", "Is the Node's Own", "false").aside(),
    F::rest("node.uuid", |p| identity("node", &p.node)),
    F::rest("home_node.name", |p| text(&p.node)),
    F::always("snaplock_type", "", "", "non-snaplock"),
    F::always("data_encryption.software_encryption_enabled", "", "", "false"),
    F::always("data_encryption.drive_protection_enabled", "", "", "false"),
    F::always("block_storage.primary.disk_class", "", "", "solid-state"),
    F::always("block_storage.primary.disk_count", "", "", "1"),
    F::always("block_storage.primary.disk_type", "", "", "ssd"),
    F::always("block_storage.primary.raid_type", "", "", "raid0"),
    F::always("block_storage.hybrid_cache.enabled", "", "", "false"),
    F::always("block_storage.mirror.enabled", "", "", "false"),
    F::always("block_storage.storage_type", "", "", "ssd"),
    F::rest("space.footprint", |p| Value::Bytes(p.used)),
    F::rest("space.block_storage.physical_used", |p| Value::Bytes(p.used)),
};

/// The resource.
pub const TABLE: Table<Row> = Table {
    path: "storage/aggregates",
    command: &["storage", "aggregate"],
    fields: FIELDS,
    absent: rows! {
        "block_storage.primary.raid_size", "block_storage.uses_partitions",
        "space.cloud_storage.used", "cloud_storage.attach_eligible", "_tags",
    },
    keys: &["uuid", "name"],
    order: &["name", "uuid"],
    ids: |p| vec![pool_uuid(&p.svm, &p.location, &p.name)],
    why: "",
};
