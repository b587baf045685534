//! Snapshot policies, and their schedules.

pub use super::qos::Row;
use super::qos::uuid;
use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::storage::{Copies, PolicyBody, StoragePolicy};
use crate::value;

/// Returns true if a policy takes snapshots, and its schedules.
pub fn copies(policy: &StoragePolicy) -> (bool, &[Copies]) {
    match &policy.body {
        PolicyBody::Snapshot { enabled, copies } => (*enabled, copies),
        _ => (false, &[]),
    }
}

fn row_copies(p: &Row) -> &[Copies] {
    copies(&p.policy).1
}

/// A policy that is made or changed: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Its machine; `None`: it is the cluster's.
    pub svm: Option<String>,
    /// It takes snapshots.
    pub enabled: Option<bool>,
    /// Free text; empty is none.
    pub comment: Option<String>,
}

type F = Field<Row, Draft>;

/// The fields of policies.
pub const FIELDS: &[F] = rows! {
    F::new("svm.name", "vserver", "Vserver", Row::svm).key().optional()
        .creates(Kind::Svm, |d, v| d.svm = v.text()),
    F::new("name", "policy", "Snapshot Policy Name", |p| text(&p.policy.key.name)).key()
        .creates(Kind::Text, |d, v| d.name = v.text()),
    F::new("enabled", "enabled", "Snapshot Policy Enabled", |p| copies(&p.policy).0.into())
        .sets(Kind::Flag, |d, v| d.enabled = v.flag()),
    F::new("comment", "comment", "Comment", |p| Value::Remark(p.policy.comment.clone()))
        .sets(Kind::Text, |d, v| d.comment = v.text()),
    F::column("total-schedules", "Total Number of Schedules", |p| row_copies(p).len().into()),
    F::column("schedules", "Schedules",
        |p| Value::List(row_copies(p).iter().map(|c| text(&c.schedule)).collect())),
    F::column("counts", "Counts", |p| Value::List(row_copies(p).iter().map(|c| c.count.into()).collect())),
    F::rest("uuid", |p| text(uuid(&p.policy))),
    F::rest("svm.uuid", Row::svm_uuid),
    F::rest("scope", |p| text(if p.policy.key.svm.is_empty() { "cluster" } else { "svm" }))
        .creates(Kind::Text, |_, _| {}),
    F::rest("copies", |p| {
        let object = |of: &Copies| {
            let (policy, of) = (None, of.clone());
            Value::record(COPIES, &PolicySchedule { policy, of })
        };
        Value::List(row_copies(p).iter().map(object).collect())
    }).parts(&[
        "schedule.name", "schedule.uuid", "count", "prefix", "snapmirror_label", "retention_period",
    ]).sets(Kind::Nested, |_, _| {}),
};

/// The resource of policies.
pub const TABLE: Table<Row, Draft> = Table {
    path: "storage/snapshot-policies",
    command: &["volume", "snapshot", "policy"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid", "name"],
    order: &["svm.name", "name", "uuid"],
    ids: |p| vec![uuid(&p.policy)],
    why: "",
};

/// A schedule of a policy.
#[derive(Clone, Debug)]
pub struct PolicySchedule {
    /// The policy; `None`: it is known.
    pub policy: Option<StoragePolicy>,
    /// The schedule.
    pub of: Copies,
}

impl PolicySchedule {
    /// Returns its label, which is the prefix of the snapshots' names too.
    fn label(&self) -> Value {
        text(self.of.label.as_deref().unwrap_or("-"))
    }
}

/// A schedule of a policy that is made or changed: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct CopiesDraft {
    /// Name and identity of the schedule.
    pub schedule: [Option<String>; 2],
    /// Number of snapshots that are kept.
    pub count: Option<u64>,
    /// The label.
    pub label: Option<String>,
    /// The prefix.
    pub prefix: Option<String>,
}

type C = Field<PolicySchedule, CopiesDraft>;

/// The fields of a schedule within its policy.
pub const COPIES: &[C] = rows! {
    C::rest("schedule.name", |s| text(&s.of.schedule))
        .sets(Kind::Text, |d, v| d.schedule[0] = v.text()),
    C::rest("schedule.uuid", |s| identity("schedule", &s.of.schedule))
        .sets(Kind::Text, |d, v| d.schedule[1] = v.text()),
    C::rest("count", |s| s.of.count.into()).sets(Kind::Number, |d, v| d.count = v.number()),
    C::rest("prefix", PolicySchedule::label).sets(Kind::Label, |d, v| d.prefix = v.text()),
    C::rest("snapmirror_label", PolicySchedule::label).sets(Kind::Label, |d, v| d.label = v.text()),
    C::fixed("retention_period", "", "", "PT0S|"),
    C::rest("snapshot_policy.name", |s| s.policy.as_ref().map(|p| text(&p.key.name)).into()),
    C::rest("snapshot_policy.uuid", |s| s.policy.as_ref().map(|p| text(uuid(p))).into()),
};

/// The fields of a schedule as a resource of its own.
pub const SCHEDULES: Table<PolicySchedule, CopiesDraft> = Table {
    path: "storage/snapshot-policies/*/schedules",
    command: &[],
    fields: COPIES,
    absent: &[],
    keys: &["schedule.name", "schedule.uuid"],
    order: &["schedule.name", "schedule.uuid"],
    ids: |s| {
        let policy = s.policy.as_ref().map(uuid).unwrap_or_default();
        vec![policy, value::identity("schedule", &s.of.schedule)]
    },
    why: "",
};
