//! Interfaces: the address at which clients reach the node, once for each machine. In ONTAP each
//! machine has addresses of its own; here all machines are served at the node's.

use std::net::IpAddr;

use super::value::{identity, text};
use super::{Field, Table, Value};
use crate::cluster::Cluster;
use crate::value;

/// The name of every machine's interface.
pub const NAME: &str = "data";

/// An address of a machine.
#[derive(Clone, Debug)]
pub struct Row {
    /// The machine.
    pub svm: String,
    /// The node.
    pub node: String,
    /// The address.
    pub address: IpAddr,
}

impl Row {
    fn uuid(&self) -> String {
        value::identity("interface", &format!("{}/{}", self.svm, self.address))
    }
}

/// Returns the interfaces of all machines, at the node's address.
pub fn rows(cluster: &dyn Cluster, address: IpAddr) -> Vec<Row> {
    let node = cluster.name();
    let row = |svm: crate::storage::Svm| Row {
        svm: svm.name,
        node: node.clone(),
        address,
    };
    cluster.svms().into_iter().map(row).collect()
}

type F = Field<Row>;

/// The fields.
pub const FIELDS: &[F] = rows! {
    F::rest("uuid", |i| text(i.uuid())).same(),
    F::rest("name", |_| text(NAME)).same(),
    F::always("enabled", "", "", "true").same(),
    F::always("state", "", "", "up").same(),
    F::always("scope", "", "", "svm").same(),
    F::rest("svm.name", |i| text(&i.svm)).same(),
    F::rest("svm.uuid", |i| identity("svm", &i.svm)).same(),
    F::always("ipspace.name", "", "", "Default").same(),
    F::rest("ipspace.uuid", |_| identity("ipspace", "Default")).same(),
    F::rest("ip.address", |i| text(i.address.to_string())).same(),
    // The node knows its address, not the network behind it.
    F::rest("ip.netmask", |i| text(if i.address.is_ipv4() { "32" } else { "128" })).same(),
    F::rest("ip.family", |i| text(if i.address.is_ipv4() { "ipv4" } else { "ipv6" })).same(),
    F::rest("services", |_| {
        let all = ["data_core", "data_nfs", "data_cifs", "management_https"];
        Value::List(all.map(text).to_vec())
    }).same(),
    F::rest("service_policy.name", |_| text("default-data-files")).same(),
    F::rest("service_policy.uuid", |_| identity("service-policy", "default-data-files")).same(),
    F::rest("location.node.name", |i| text(&i.node)).same(),
    F::rest("location.node.uuid", |i| identity("node", &i.node)).same(),
    F::rest("location.home_node.name", |i| text(&i.node)).same(),
    F::rest("location.home_node.uuid", |i| identity("node", &i.node)).same(),
    F::always("location.is_home", "", "", "true").same(),
    F::always("location.auto_revert", "", "", "false").same(),
    F::always("vip", "", "", "false").same(),
};

/// The resource.
pub const TABLE: Table<Row> = Table {
    path: "network/ip/interfaces",
    command: &[],
    fields: FIELDS,
    absent: rows! {
        "location.port.name", "location.port.uuid", "location.home_port.name",
        "location.home_port.uuid", "location.failover", "location.broadcast_domain.name",
        "subnet.name", "subnet.uuid", "dns_zone", "ddns_enabled", "probe_port", "rdma_protocols",
    },
    keys: &["uuid", "name"],
    order: &["svm.name", "name", "uuid"],
    ids: |i| vec![i.uuid()],
    why: "an interface is an address that the server was started with (--nfs, --api)",
};
