//! QoS policies: maxima that volumes refer to.

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::Cluster;
use crate::storage::{Ceiling, NamedKind, PolicyBody, StoragePolicy};
use crate::value;

/// Bytes of ONTAP's MB.
const MB: u64 = 1 << 20;

/// A policy with the machine whose it is on the command line, where the cluster is one.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy.
    pub policy: StoragePolicy,
    /// The machine, or the cluster.
    pub vserver: String,
}

impl Row {
    /// Creates the record of a policy.
    pub fn new(policy: StoragePolicy, cluster: &dyn Cluster) -> Row {
        let vserver = match policy.key.svm.is_empty() {
            true => cluster.name(),
            false => policy.key.svm.clone(),
        };
        Row { policy, vserver }
    }

    /// Returns its machine, which in REST the cluster's own policies do not have.
    pub(super) fn svm(&self) -> Value {
        let svm = &self.policy.key.svm;
        let rest = Some(svm.clone()).filter(|svm| !svm.is_empty());
        Value::Apart(self.vserver.clone(), Box::new(rest.into()))
    }

    /// Returns the identity of its machine.
    pub(super) fn svm_uuid(&self) -> Value {
        match self.policy.key.svm.as_str() {
            "" => Value::None,
            svm => identity("svm", svm),
        }
    }

    fn ceiling(&self) -> Ceiling {
        ceiling(&self.policy.body)
    }
}

/// Returns the policies of a kind.
pub fn rows(cluster: &dyn Cluster, kind: NamedKind) -> Vec<Row> {
    let all = cluster.storage_policies(kind).into_iter();
    all.map(|policy| Row::new(policy, cluster)).collect()
}

/// Returns the maximum of a policy.
pub fn ceiling(body: &PolicyBody) -> Ceiling {
    match body {
        PolicyBody::Qos(ceiling) => *ceiling,
        _ => Ceiling::default(),
    }
}

/// Returns the UUID of a QoS or snapshot policy.
pub fn uuid(policy: &StoragePolicy) -> String {
    match policy.id {
        0 => value::identity("snapshot-policy", &policy.key.name),
        id => value::identity("policy-by-name", &id.to_string()),
    }
}

/// Returns a maximum as ONTAP writes it: `500IOPS,100MB/s`, or `INF`.
pub fn maximum(ceiling: Ceiling) -> String {
    let rates = [
        ceiling.ops.map(|n| format!("{n}IOPS")),
        ceiling.bytes.map(|n| format!("{}/s", value::tidy_size(n))),
    ];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    match rates.is_empty() {
        true => "INF".to_owned(),
        false => rates.join(","),
    }
}

/// A policy that is made or changed: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Its machine.
    pub svm: Option<String>,
    /// Operations a second; 0 is no maximum.
    pub ops: Option<u64>,
    /// Bytes a second; 0 is no maximum.
    pub bytes: Option<u64>,
}

impl Draft {
    /// Returns the maximum; what was not given is as in `now`.
    pub fn ceiling(&self, now: Ceiling) -> Ceiling {
        let or = |given: Option<u64>, now| match given {
            None => now,
            Some(given) => Some(given).filter(|given| *given > 0),
        };
        Ceiling {
            ops: or(self.ops, now.ops),
            bytes: or(self.bytes, now.bytes),
        }
    }
}

type F = Field<Row, Draft>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::new("name", "policy-group", "Policy Group Name", |q| text(&q.policy.key.name)).key()
        .sets(Kind::Text, |d, v| d.name = v.text()),
    F::new("svm.name", "vserver", "Vserver", Row::svm).same()
        .creates(Kind::Svm, |d, v| d.svm = v.text()),
    F::always("policy_class", "class", "Policy Group Class", "user-defined"),
    F::new("uuid", "uuid", "Policy Group UUID", |q| text(uuid(&q.policy))).aside(),
    F::new("object_count", "num-workloads", "Number of Workloads", |q| q.policy.users.into()),
    F::column("throughput-policy", "Throughput Policy",
        |q: &Row| text(format!("0-{}", maximum(q.ceiling())))),
    F::column("max-throughput", "Maximum Throughput", |q: &Row| {
        text(maximum(q.ceiling()))
    }).sets(Kind::Throughput, |d, v| {
        let all = v
            .text().and_then(|text| value::throughput(&text)).unwrap_or_default();
        (d.ops, d.bytes) = (Some(all.0.unwrap_or(0)), Some(all.1.unwrap_or(0)));
    }),
    F::always("", "min-throughput", "Minimum Throughput", "0"),
    F::fixed("fixed.capacity_shared", "is-shared", "Is Policy Shared", "false"),
    F::rest("svm.uuid", Row::svm_uuid),
    F::always("scope", "", "", "svm"),
    F::rest("fixed.max_throughput_iops", |q| q.ceiling().ops.unwrap_or(0).into())
        .sets(Kind::Number, |d, v| d.ops = v.number()),
    F::rest("fixed.max_throughput_mbps", |q| (q.ceiling().bytes.unwrap_or(0) / MB).into())
        .sets(Kind::Number, |d, v| d.bytes = v.number().map(|n| n.saturating_mul(MB))),
    F::fixed("fixed.min_throughput_iops", "", "", "0"),
    F::fixed("fixed.min_throughput_mbps", "", "", "0"),
};

/// The resource.
pub const TABLE: Table<Row, Draft> = Table {
    path: "storage/qos/policies",
    command: &["qos", "policy-group"],
    fields: FIELDS,
    absent: rows! {
        "pgid", "fixed.max_throughput", "fixed.min_throughput", "adaptive.expected_iops",
        "adaptive.peak_iops", "adaptive.absolute_min_iops", "adaptive.expected_iops_allocation",
        "adaptive.peak_iops_allocation", "adaptive.block_size",
    },
    keys: &["uuid", "name"],
    order: &["svm.name", "name", "uuid"],
    ids: |q| vec![uuid(&q.policy)],
    why: "",
};
