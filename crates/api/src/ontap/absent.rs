//! Kinds of resources that ONTAP has and that cannot exist here: LUNs, shelves, licences. Monitors
//! and inventories ask for all of them, and take an error for a fault of the cluster; so their
//! lists are empty.

use super::listing::Listing;
use super::refusal::{HandlerResult, Refusal};
use super::surface::{CallContext, Reply};
use crate::route::Verb;

/// The collections, by their paths.
const KINDS: &[&[&str]] = &[
    &["cloud", "targets"],
    &["cluster", "chassis"],
    &["cluster", "licensing", "licenses"],
    &["cluster", "licensing", "capacity-pools"],
    &["cluster", "mediators"],
    &["cluster", "metrocluster", "diagnostics"],
    &["cluster", "metrocluster", "nodes"],
    &["cluster", "ntp", "servers"],
    &["cluster", "sensors"],
    &["name-services", "dns"],
    &["name-services", "ldap"],
    &["name-services", "local-hosts"],
    &["name-services", "name-mappings"],
    &["name-services", "netgroup-files"],
    &["name-services", "nis"],
    &["name-services", "unix-groups"],
    &["name-services", "unix-users"],
    &["network", "ethernet", "broadcast-domains"],
    &["network", "ethernet", "ports"],
    &["network", "ethernet", "switch", "ports"],
    &["network", "ethernet", "switches"],
    &["network", "fc", "fabrics"],
    &["network", "fc", "interfaces"],
    &["network", "fc", "logins"],
    &["network", "fc", "ports"],
    &["network", "ip", "bgp", "peer-groups"],
    &["network", "ip", "routes"],
    &["network", "ip", "subnets"],
    &["protocols", "audit"],
    &["protocols", "cifs", "services"],
    &["protocols", "cifs", "sessions"],
    &["protocols", "fpolicy"],
    &["protocols", "locks"],
    &["protocols", "ndmp", "sessions"],
    &["protocols", "ndmp", "svms"],
    &["protocols", "nvme", "interfaces"],
    &["protocols", "nvme", "services"],
    &["protocols", "nvme", "subsystems"],
    &["protocols", "s3", "buckets"],
    &["protocols", "s3", "services"],
    &["protocols", "san", "fcp", "services"],
    &["protocols", "san", "igroups"],
    &["protocols", "san", "initiators"],
    &["protocols", "san", "iscsi", "credentials"],
    &["protocols", "san", "iscsi", "services"],
    &["protocols", "san", "iscsi", "sessions"],
    &["protocols", "san", "lun-maps"],
    &["protocols", "san", "portsets"],
    &["protocols", "san", "vvol-bindings"],
    &["protocols", "vscan"],
    &["security", "accounts"],
    &["security", "audit", "destinations"],
    &["security", "certificates"],
    &["security", "key-managers"],
    &["security", "login", "messages"],
    &["security", "multi-admin-verify", "requests"],
    &["security", "roles"],
    &["security", "ssh", "svms"],
    &["storage", "availability-zones"],
    &["storage", "disks"],
    &["storage", "file", "clone", "split-status"],
    &["storage", "flexcache", "flexcaches"],
    &["storage", "flexcache", "origins"],
    &["storage", "luns"],
    &["storage", "namespaces"],
    &["storage", "pools"],
    &["storage", "ports"],
    &["storage", "shelves"],
    &["storage", "snaplock", "audit-logs"],
    &["storage", "storage-units"],
    &["storage", "switches"],
    &["storage", "tape-devices"],
    &["storage", "volume-efficiency-policies"],
    &["support", "autosupport", "messages"],
    &["support", "ems", "destinations"],
    &["support", "ems", "events"],
    &["support", "ems", "filters"],
    &["support", "ems", "messages"],
];

/// Commands of such kinds, as `private/cli` has them.
const COMMANDS: &[&[&str]] = &[
    &["disk"],
    &["fabriclink"],
    &["lun"],
    &["metrocluster", "interconnect", "adapter"],
    &["network", "connections", "active"],
    &["network", "port"],
    &["network", "port", "ifgrp"],
    &["qos", "adaptive-policy-group"],
    &["security", "certificate"],
    &["storage", "disk"],
    &["storage", "shelf"],
    &["system", "chassis", "fru"],
    &["system", "controller", "fru"],
    &["system", "health", "subsystem"],
    &["system", "node", "environment", "sensors"],
    &["volume", "efficiency"],
    &["volume", "efficiency", "stat"],
    &["volume", "snaplock"],
    &["volume", "snapshot", "autodelete"],
    &["vserver", "cifs", "server", "security"],
    &["vserver", "object-store-server", "bucket"],
    &["vserver", "object-store-server", "bucket", "policy"],
];

/// Returns true if a command, without its verb, shows records of which there are none.
pub fn is_command(words: &[&str]) -> bool {
    COMMANDS.contains(&words)
}

/// Returns an empty list. Without a record no field can be told from others.
pub fn nothing(a: &CallContext<'_>) -> HandlerResult<Reply> {
    let query = a.call.query.iter().filter(|(name, _)| name != "order_by");
    let lenient = ("ignore_unknown_fields".to_owned(), "true".to_owned());
    let query: Vec<_> = query.cloned().chain([lenient]).collect();
    let listing = Listing::parse(&query, &[])?;
    Ok(listing.reply(&a.here(), &[], &[], Vec::new()))
}

/// Returns the collection that a path is or lies below.
fn kind(path: &[&str]) -> Option<&'static [&'static str]> {
    KINDS.iter().copied().find(|kind| path.starts_with(kind))
}

/// Returns true if a path names such a kind, or a resource of it.
pub fn is_kind(path: &[&str]) -> bool {
    kind(path).is_some()
}

/// Handles a request to such a kind: there are none, and none can be made.
pub fn answer(a: &CallContext<'_>, verb: Verb) -> HandlerResult<Reply> {
    let path = a.path();
    let kind = kind(&path).ok_or_else(Refusal::no_api)?;
    match verb {
        Verb::Get if path.len() == kind.len() => nothing(a),
        Verb::Post => Err(Refusal::absent(&kind.join("/"))),
        _ => Err(Refusal::no_entry()),
    }
}
