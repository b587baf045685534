//! `network/ip/interfaces`: the address at which clients reach the node, once for each machine. In
//! ONTAP each machine has addresses of its own; here all machines are served at the node's.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::body::Fields;
use super::listing::Listing;
use super::node::own_uuid;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself};
use super::svms::svm;
use crate::route::Verb;
use weir_ontap::value::identity as uuid;

const KEYS: &[&str] = &["uuid", "name"];

const INTERFACES: &[&str] = &[
    "uuid",
    "name",
    "enabled",
    "state",
    "scope",
    "svm.name",
    "svm.uuid",
    "ipspace.name",
    "ipspace.uuid",
    "ip.address",
    "ip.netmask",
    "ip.family",
    "services",
    "service_policy.name",
    "service_policy.uuid",
    "location.node.name",
    "location.node.uuid",
    "location.home_node.name",
    "location.home_node.uuid",
    "location.port.name",
    "location.port.uuid",
    "location.home_port.name",
    "location.home_port.uuid",
    "location.is_home",
    "location.auto_revert",
    "location.failover",
    "location.broadcast_domain.name",
    "subnet.name",
    "subnet.uuid",
    "dns_zone",
    "ddns_enabled",
    "probe_port",
    "rdma_protocols",
    "vip",
];

/// The name of every machine's interface.
const NAME: &str = "data";

const WHY: &str = "an interface is an address that the server was started with (--nfs, --api)";

fn interface(a: &Asked<'_>, of: &str, address: IpAddr) -> Value {
    let id = uuid("interface", &format!("{of}/{address}"));
    let (node, node_id) = (a.cluster.name(), own_uuid(a));
    let node = json!({"name": node, "uuid": node_id});
    let (family, bits) = match address {
        IpAddr::V4(_) => ("ipv4", 32),
        IpAddr::V6(_) => ("ipv6", 128),
    };
    json!({
        "_links": itself(&format!("/api/network/ip/interfaces/{id}")),
        "uuid": id,
        "name": NAME,
        "enabled": true,
        "state": "up",
        "scope": "svm",
        "svm": svm(of),
        "ipspace": {"name": "Default", "uuid": uuid("ipspace", "Default")},
        // The node knows its address, not the network behind it.
        "ip": {"address": address, "netmask": bits.to_string(), "family": family},
        "services": ["data_core", "data_nfs", "data_cifs", "management_https"],
        "service_policy": {"name": "default-data-files", "uuid": uuid("service-policy", "default-data-files")},
        "location": {
            "node": node,
            "home_node": node,
            "is_home": true,
            "auto_revert": false,
        },
        "vip": false,
    })
}

/// Handles `network interface show` of `private/cli`: the same addresses.
pub fn lines(a: &Asked<'_>) -> Answered<Reply> {
    const FIELDS: &[&str] = &["vserver", "lif", "address", "data_protocol", "status_oper"];
    const KEYS: &[&str] = &["vserver", "lif"];
    let keys = ("fields".to_owned(), KEYS.join(","));
    let mut query = a.call.query.clone();
    // Without fields, `private/cli` has the key alone.
    if a.parameter("fields").is_none() {
        query.push(keys);
    }
    let listing = Listing::parse(&query, FIELDS)?;
    let all = a.cluster.svms().into_iter().map(|svm| {
        json!({
            "vserver": svm.name,
            "lif": NAME,
            "address": a.call.node,
            "data_protocol": ["nfs", "cifs"],
            "status_oper": "up",
        })
    });
    Ok(listing.reply(&a.here(), KEYS, KEYS, all.collect()))
}

/// Handles requests to `network/ip/interfaces`.
pub fn interfaces(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    let svms = a.cluster.svms();
    let all: Vec<Value> = svms
        .iter()
        .map(|of| interface(a, &of.name, a.call.node))
        .collect();
    let find = |id: &str| {
        let is = |one: &&Value| one.get("uuid").and_then(Value::as_str) == Some(id);
        all.iter().find(is).cloned().ok_or_else(Refusal::no_entry)
    };
    match (verb, path) {
        (Verb::Get, []) => {
            let listing = Listing::parse(&a.call.query, INTERFACES)?;
            Ok(listing.reply(&a.here(), KEYS, &["svm.name", "name", "uuid"], all))
        }
        (Verb::Get, [id]) => {
            let listing = Listing::parse(&a.call.query, INTERFACES)?;
            Ok(listing.one(KEYS, find(id)?))
        }
        (Verb::Post, []) => Err(Refusal::not_here("ip.address", WHY)),
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            Fields::read(&a.call.body)?.same_as(&find(id)?, INTERFACES, WHY)?;
            a.done(None)
        }
        (Verb::Delete, [id]) => {
            find(id)?;
            Err(Refusal::not_here("uuid", WHY))
        }
        _ => Err(Refusal::no_api()),
    }
}
