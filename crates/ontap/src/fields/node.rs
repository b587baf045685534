//! The node, with the pair that it is one of.

use std::net::IpAddr;

use super::value::{identity, text};
use super::{Field, Table, Value};
use crate::cluster::{Cluster, Failover};
use crate::value;

/// The release whose interface this follows. Clients decide by it what they may ask for.
pub const RELEASE: (u32, u32, u32) = (9, 15, 1);

/// Returns the version for people.
pub fn version() -> String {
    let (generation, major, minor) = RELEASE;
    format!(
        "Weir {}, with the interface of ONTAP {generation}.{major}.{minor}",
        env!("CARGO_PKG_VERSION")
    )
}

/// The node.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its cluster's identity, which never changes.
    pub cluster: String,
    /// Its pair, if it is one of one.
    pub pair: Option<Failover>,
    /// The address at which clients reach it, if that is known.
    pub address: Option<IpAddr>,
    /// True if it answers the others.
    pub up: bool,
    /// True if it may serve.
    pub eligible: bool,
}

impl Row {
    fn pair(&self, read: impl Fn(&Failover) -> Value) -> Value {
        self.pair.as_ref().map(read).into()
    }
}

/// Returns the words for why the partner may not serve: ONTAP's, of a pair.
pub fn reason(pair: &Failover) -> Option<&'static str> {
    match (pair.possible, pair.connected) {
        (true, _) => None,
        (false, true) if pair.in_cluster => Some("No standby for its aggregates"),
        (false, false) if pair.in_cluster => Some("Node is down"),
        (false, true) => Some("NVRAM log not synchronized"),
        (false, false) => Some("Storage failover interconnect error"),
    }
}

/// Returns the node, or all machines of its cluster.
pub fn rows(cluster: &dyn Cluster, address: Option<IpAddr>) -> Vec<Row> {
    let Some(machines) = cluster.machines() else {
        return vec![Row {
            name: cluster.name(),
            cluster: cluster.uuid(),
            pair: cluster.failover(),
            address,
            up: true,
            eligible: true,
        }];
    };
    let failovers = machines.failovers();
    let both = machines.nodes.into_iter().zip(failovers);
    both.map(|(machine, failover)| Row {
        cluster: identity_of(&machine.name),
        name: machine.name,
        pair: Some(failover),
        address: machine.address,
        up: machine.up,
        eligible: machine.eligible,
    })
    .collect()
}

/// Returns the serial number of a machine of a cluster: the same at each of its servers.
fn identity_of(machine: &str) -> String {
    value::identity("node", machine)
}

type F = Field<Row>;

/// The fields. The cost of a pair's mirror is in `ha.mirror`, which ONTAP does not have; times are
/// those of the last minute, in microseconds.
pub const FIELDS: &[F] = rows! {
    F::new("name", "node", "Node", |n| text(&n.name)).key().same(),
    F::column("health", "Health", |n| n.up.into()),
    F::column("eligibility", "Eligibility", |n| n.eligible.into()),
    F::column("vendor", "Vendor", |_| text("Weir")),
    F::new("model", "model", "Model", |_| text("Weir")).same(),
    F::new("uuid", "uuid", "Node UUID", |n| identity("node", &n.name)).same(),
    F::rest("state", |n| text(if n.up { "up" } else { "down" })).same(),
    F::always("membership", "", "", "member").same(),
    F::rest("serial_number", |n| text(&n.cluster)).same(),
    F::rest("system_id", |n| text(&n.cluster)).same(),
    F::rest("version.full", |_| text(version())).same(),
    F::rest("version.generation", |_| RELEASE.0.into()).same(),
    F::rest("version.major", |_| RELEASE.1.into()).same(),
    F::rest("version.minor", |_| RELEASE.2.into()).same(),
    F::rest("ha.enabled", |n| n.pair.is_some().into()).same(),
    F::rest("ha.partners", |n| n.pair(|p| {
        let names = p.partner.split(", ").filter(|name| !name.is_empty());
        Value::List(names.map(|name| Value::Object(vec![("name", text(name))])).collect())
    })).same(),
    F::rest("ha.interconnect.state", |n| n.pair(|p| text(if p.connected { "up" } else { "down" })))
        .same(),
    F::rest("ha.takeover_check.takeover_possible", |n| n.pair(|p| p.possible.into())).same(),
    F::rest("ha.takeover_check.reasons",
        |n| n.pair(|p| Value::List(reason(p).into_iter().map(text).collect()))).same(),
    F::rest("ha.mirror.lag", |n| n.pair(|p| p.lag.into())).same(),
    F::rest("ha.mirror.position", |n| n.pair(|p| p.position.into())).same(),
    F::rest("ha.mirror.waited_mean", |n| n.pair(|p| (p.cost.mean.as_micros() as u64).into()))
        .same(),
    F::rest("ha.mirror.waited_p99", |n| n.pair(|p| (p.cost.p99.as_micros() as u64).into())).same(),
    F::rest("ha.mirror.sent_per_written",
        |n| n.pair(|p| p.cost.sent_per_written.map(Value::Decimal).into())).same(),
    F::rest("management_interfaces", |n| {
        let object = |address: IpAddr| {
            Value::List(vec![Value::Object(vec![(
                "ip.address",
                text(address.to_string()),
            )])])
        };
        n.address.map(object).into()
    }).parts(&["ip.address"]).same(),
    F::rest("location", |_| Value::None).same(),
    F::rest("owner", |_| Value::None).same(),
    F::rest("vendor_serial_number", |_| Value::None).same(),
    F::rest("storage_configuration", |_| Value::None).same(),
    F::rest("is_spares_low", |_| Value::None).same(),
};

/// The resource.
pub const TABLE: Table<Row> = Table {
    path: "cluster/nodes",
    command: &["system", "node"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid", "name"],
    order: &["name"],
    ids: |n| vec![value::identity("node", &n.name)],
    why: "the node is as its server was started",
};
