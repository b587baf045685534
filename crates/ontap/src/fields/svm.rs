//! Machines, which are projects.

use super::value::{identity, pool_uuid, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::Cluster;
use crate::storage::{Aggregate, Physical, Svm};

/// A machine with its storage pools.
#[derive(Clone, Debug)]
pub struct Row {
    /// The machine.
    pub svm: Svm,
    /// Its storage pools.
    pub pools: Vec<Aggregate>,
    /// The node's space.
    pub physical: Physical,
}

impl Row {
    fn pools(&self) -> Value {
        let object = |p: &Aggregate| {
            Value::Object(vec![
                ("name", text(&p.name)),
                ("uuid", text(pool_uuid(&p.svm, &p.location, &p.name))),
                ("state", text("online")),
                ("available_size", Value::Bytes(p.available(&self.physical))),
            ])
        };
        let line = match self.svm.aggregates.is_empty() {
            true => "-".to_owned(),
            false => self.svm.aggregates.join(", "),
        };
        let all = self.pools.iter().map(object).collect();
        Value::Apart(line, Box::new(Value::List(all)))
    }
}

/// Returns all machines, by name.
pub fn rows(cluster: &dyn Cluster) -> Vec<Row> {
    let (pools, physical) = (cluster.aggregates(), cluster.physical());
    let row = |svm: Svm| Row {
        pools: pools
            .iter()
            .filter(|p| p.svm == svm.name)
            .cloned()
            .collect(),
        physical,
        svm,
    };
    cluster.svms().into_iter().map(row).collect()
}

/// A machine that is made or changed.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Free text; empty is none.
    pub comment: Option<String>,
}

type F = Field<Row, Draft>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::new("name", "vserver", "Vserver", |s| text(&s.svm.name)).key().same()
        .creates(Kind::Text, |d, v| d.name = v.text()),
    F::always("", "type", "Vserver Type", "data"),
    F::fixed("subtype", "subtype", "Vserver Subtype", "default"),
    F::new("aggregates", "aggr-list", "List of Aggregates Assigned", Row::pools)
        .parts(&["name", "uuid", "state", "available_size"]),
    F::always("", "admin-state", "Vserver Admin State", "running"),
    F::fixed("state", "operational-state", "Vserver Operational State", "running"),
    F::always("", "allowed-protocols", "Allowed Protocols", "nfs"),
    F::new("language", "language", "Default Volume Language Code",
        |_| Value::Spelled("C.UTF-8", "c.utf_8")).only("c.utf_8|utf8mb4|en_us.utf_8"),
    F::fixed("snapshot_policy.name", "snapshot-policy", "Snapshot Policy", "none"),
    F::fixed("ipspace.name", "ipspace", "IPspace Name", "Default"),
    F::new("comment", "comment", "Comment", |s| Value::Remark(s.svm.comment.clone()))
        .sets(Kind::Text, |d, v| d.comment = v.text()),
    F::new("uuid", "uuid", "Vserver UUID", |s| identity("svm", &s.svm.name)).aside(),
    F::always(
        "anti_ransomware_default_volume_state", "anti-ransomware-default-volume-state",
        "Default Anti-ransomware State of New Volumes", "disabled",
    ).aside(),
    F::always(
        "is_space_enforcement_logical", "is-space-enforcement-logical",
        "Enable Logical Space Enforcement", "false",
    ).aside(),
    F::always(
        "is_space_reporting_logical", "is-space-reporting-logical",
        "Enable Logical Space Reporting", "false",
    ).aside(),
    F::rest("ipspace.uuid", |_| identity("ipspace", "Default")),
    F::rest("snapshot_policy.uuid", |_| identity("snapshot-policy", "none")),
    F::fixed("max_volumes", "", "", "unlimited"),
    F::fixed("nfs.allowed", "", "", "true"),
    F::fixed("nfs.enabled", "", "", "true"),
    F::fixed("cifs.allowed", "", "", "false"),
    F::fixed("cifs.enabled", "", "", "false"),
    F::fixed("fcp.allowed", "", "", "false"),
    F::fixed("fcp.enabled", "", "", "false"),
    F::fixed("iscsi.allowed", "", "", "false"),
    F::fixed("iscsi.enabled", "", "", "false"),
    F::fixed("nvme.allowed", "", "", "false"),
    F::fixed("nvme.enabled", "", "", "false"),
    F::fixed("ndmp.allowed", "", "", "false"),
    F::fixed("s3.allowed", "", "", "false"),
    F::fixed("s3.enabled", "", "", "false"),
    F::fixed("auto_enable_analytics", "", "", "false"),
    F::fixed("auto_enable_activity_tracking", "", "", "false"),
    F::fixed("storage.limit", "", "", "0"),
    F::fixed("storage.limit_threshold_alert", "", "", "90"),
    F::always("storage.limit_threshold_exceeded", "", "", "false"),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "svm/svms",
    command: &["vserver"],
    fields: FIELDS,
    absent: rows! {
        "certificate.uuid", "qos_policy.name", "storage.allocated",
        "number_of_volumes_in_recovery_queue",
    },
    keys: &["uuid", "name"],
    order: &["name", "uuid"],
    ids: |s| vec![crate::value::identity("svm", &s.svm.name)],
    why: "a project keeps its name",
};
