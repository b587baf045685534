//! Policies of SnapMirror.

use weir_relations::model::{ALL, Policy, PolicyKind, Rule};

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::Cluster;
use crate::value;

/// A policy with the cluster whose it is.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy.
    pub policy: Policy,
    /// The cluster.
    pub vserver: String,
    /// The machine that it is shown as a policy of; `None`: it is the cluster's.
    pub svm: Option<String>,
}

impl Row {
    fn copies(&self) -> PolicyKind {
        self.policy.kind
    }

    fn has_all(&self) -> bool {
        self.policy.rules.iter().any(|rule| rule.label == ALL)
    }

    fn rules(&self, text: impl Fn(&Rule) -> Option<String>) -> Value {
        let all: Vec<String> = self.policy.rules.iter().filter_map(text).collect();
        Value::Remark(all.join(", "))
    }

    fn retention(&self) -> Value {
        let by_label = self.policy.rules.iter().filter(|rule| rule.is_by_label());
        let all: Vec<Value> = by_label.map(|rule| Value::record(RULES, rule)).collect();
        match all.is_empty() {
            true => Value::None,
            false => Value::List(all),
        }
    }
}

/// Returns all policies, by name.
pub fn rows(cluster: &dyn Cluster) -> Vec<Row> {
    let vserver = cluster.name();
    let row = |policy| Row {
        policy,
        vserver: vserver.clone(),
        svm: None,
    };
    cluster.policies().into_iter().map(row).collect()
}

/// A policy that is made or changed: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Free text; empty is none.
    pub comment: Option<String>,
    /// Transfers are compressed.
    pub compression: Option<bool>,
    /// The kind of mirror on the command line.
    pub kind: Option<PolicyKind>,
    /// It copies all snapshots, or the newest state alone.
    pub copies: [Option<bool>; 2],
    /// Transfers take a snapshot of their own.
    pub own: Option<bool>,
}

type F = Field<Row, Draft>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::column("vserver", "Vserver", |p| text(&p.vserver)).key().optional(),
    F::new("name", "policy", "SnapMirror Policy Name", |p| text(&p.policy.name)).key()
        .creates(Kind::Text, |d, v| d.name = v.text()),
    F::column("type", "SnapMirror Policy Type", |p: &Row| text(p.policy.kind.word())).creates(
            Kind::Words("async-mirror|vault|mirror-vault"),
            |d, v| { d.kind = v.text().and_then(|word| PolicyKind::from_word(&word)); },
        ),
    F::column("rules", "Rules", |p| p.rules(|rule| Some(format!("{}:{}", rule.label, rule.keep)))),
    F::column("rules-schedules", "Schedules of Rules",
        |p| p.rules(|rule| Some(format!("{}:{}", rule.label, rule.schedule.as_ref()?)))),
    F::new("comment", "comment", "Comment", |p| Value::Remark(p.policy.comment.clone()))
        .sets(Kind::Text, |d, v| d.comment = v.text()),
    F::column("owner", "Policy Owner",
        |p: &Row| text(if p.policy.system { "cluster-admin" } else { "vserver-admin" })),
    F::new(
        "network_compression_enabled", "is-network-compression-enabled",
        "Is Network Compression Enabled", |p| p.policy.compression.into(),
    ).sets(Kind::Flag, |d, v| d.compression = v.flag()),
    F::rest("uuid", |p| identity("policy", &p.policy.name)),
    F::rest("type", |p| text(if p.policy.kind.is_synchronous() { "sync" } else { "async" }))
        .creates(Kind::Words("async"), |_, _| {}),
    F::rest("scope", |p| text(if p.svm.is_some() { "svm" } else { "cluster" }))
        .creates(Kind::Text, |_, _| {}),
    F::rest("svm.name", |p| p.svm.clone().into()).creates(Kind::Text, |_, _| {}),
    F::rest("svm.uuid", |p| p.svm.as_ref().map(|svm| identity("svm", svm)).into())
        .creates(Kind::Text, |_, _| {}),
    // Relationships have throttles and schedules, policies do not.
    F::always("throttle", "", "", "0").only("0|unlimited"),
    F::rest("transfer_schedule.name", |_| Value::None).only("|-"),
    F::rest("transfer_schedule.uuid", |_| Value::None).only("|-"),
    F::rest("rpo", |_| Value::None).only("|-"),
    F::rest("identity_preservation", |_| Value::None).sets(Kind::Text, |_, _| {}),
    F::rest("retention", Row::retention).parts(&[
            "label", "count", "prefix", "creation_schedule.name", "creation_schedule.uuid",
            "preserve", "warn",
        ]).sets(Kind::Nested, |_, _| {}),
    F::rest("copy_all_source_snapshots", |p| match p.copies() {
        PolicyKind::AsyncMirror if p.has_all() => Value::Flag(true),
        _ => Value::None,
    }).creates(Kind::Flag, |d, v| d.copies[0] = v.flag()),
    F::rest("copy_latest_source_snapshot", |p| match p.copies() {
        PolicyKind::AsyncMirror if !p.has_all() => Value::Flag(true),
        _ => Value::None,
    }).creates(Kind::Flag, |d, v| d.copies[1] = v.flag()),
    F::rest("create_snapshot_on_source", |p| match p.copies() {
        PolicyKind::Vault => Value::Flag(false),
        PolicyKind::MirrorVault => Value::Flag(true),
        _ => Value::None,
    }).creates(Kind::Flag, |d, v| d.own = v.flag()),
    F::rest("sync_type", |p| match p.copies() {
        PolicyKind::SyncMirror => text("sync"),
        PolicyKind::StrictSyncMirror => text("strict_sync"),
        _ => Value::None,
    }).only("|-"),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "snapmirror/policies",
    command: &["snapmirror", "policy"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid", "name"],
    order: &["name", "uuid"],
    ids: |p| vec![value::identity("policy", &p.policy.name)],
    why: "",
};

/// The fields of a rule within its policy.
const RULES: &[Field<Rule>] = rows! {
    Field::rest("label", |r| text(&r.label)),
    Field::rest("count", |r| text(r.keep.to_string())),
    Field::rest("preserve", |r| r.preserve.into()),
    Field::always("warn", "", "", "0"),
    Field::rest("prefix", |r| {
        let prefix = |_| text(r.prefix.as_ref().unwrap_or(&r.label));
        r.schedule.as_ref().map(prefix).into()
    }),
    Field::rest("creation_schedule.name", |r| r.schedule.clone().into()),
    Field::rest("creation_schedule.uuid",
        |r| r.schedule.as_ref().map(|name| identity("schedule", name)).into()),
};
