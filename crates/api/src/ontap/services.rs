//! `protocols/nfs/services`: what is served over NFS, which is the same for all machines.

use serde_json::{Value, json};

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself};
use super::svms::{svm, svm_of};
use crate::route::Verb;
use weir_ontap::value::identity as uuid;

const KEYS: &[&str] = &["svm"];

const NFS: &[&str] = &[
    "svm.name",
    "svm.uuid",
    "enabled",
    "state",
    "vstorage_enabled",
    "rquota_enabled",
    "showmount_enabled",
    "auth_sys_extended_groups_enabled",
    "extended_groups_limit",
    "file_session_io_grouping_count",
    "file_session_io_grouping_duration",
    "protocol.v3_enabled",
    "protocol.v3_64bit_identifiers_enabled",
    "protocol.v3_features.connection_drop",
    "protocol.v3_features.ejukebox_enabled",
    "protocol.v3_features.fsid_change",
    "protocol.v3_features.hide_snapshot_enabled",
    "protocol.v3_features.mount_daemon_port",
    "protocol.v3_features.mount_root_only",
    "protocol.v3_features.network_lock_manager_port",
    "protocol.v3_features.network_status_monitor_port",
    "protocol.v3_features.rquota_daemon_port",
    "protocol.v4_64bit_identifiers_enabled",
    "protocol.v4_fsid_change",
    "protocol.v4_grace_seconds",
    "protocol.v4_id_domain",
    "protocol.v4_lease_seconds",
    "protocol.v4_session_slot_reply_cache_size",
    "protocol.v4_session_slots",
    "protocol.v40_enabled",
    "protocol.v40_features.acl_enabled",
    "protocol.v40_features.acl_max_aces",
    "protocol.v40_features.acl_preserve",
    "protocol.v40_features.read_delegation_enabled",
    "protocol.v40_features.referrals_enabled",
    "protocol.v40_features.write_delegation_enabled",
    "protocol.v41_enabled",
    "protocol.v41_features.acl_enabled",
    "protocol.v41_features.implementation_domain",
    "protocol.v41_features.implementation_name",
    "protocol.v41_features.pnfs_enabled",
    "protocol.v41_features.read_delegation_enabled",
    "protocol.v41_features.referrals_enabled",
    "protocol.v41_features.trunking_enabled",
    "protocol.v41_features.write_delegation_enabled",
    "protocol.v42_features.seclabel_enabled",
    "protocol.v42_features.sparsefile_ops_enabled",
    "protocol.v42_features.xattrs_enabled",
    "root.ignore_nt_acl",
    "root.skip_write_permission_check",
    "security.chown_mode",
    "security.nt_acl_display_permission",
    "security.ntfs_unix_security",
    "security.permitted_encryption_types",
    "security.rpcsec_context_idle",
    "transport.rdma_enabled",
    "transport.tcp_enabled",
    "transport.tcp_max_transfer_size",
    "transport.udp_enabled",
    "windows.default_user",
    "windows.map_unknown_uid_to_default_user",
    "windows.v3_ms_dos_client_enabled",
    "metric",
    "statistics",
];

const WHY: &str = "all machines are served alike";

fn nfs(of: &str) -> Value {
    let features = json!({
        "acl_enabled": true,
        "read_delegation_enabled": true,
        "write_delegation_enabled": true,
        "referrals_enabled": false,
        "pnfs_enabled": false,
        "trunking_enabled": true,
    });
    json!({
        "_links": itself(&format!("/api/protocols/nfs/services/{}", uuid("svm", of))),
        "svm": svm(of),
        "enabled": true,
        "state": "online",
        "vstorage_enabled": false,
        "rquota_enabled": false,
        "showmount_enabled": true,
        "protocol": {
            "v3_enabled": true,
            "v3_64bit_identifiers_enabled": true,
            "v3_features": {
                "connection_drop": false,
                "ejukebox_enabled": true,
                "fsid_change": true,
                "hide_snapshot_enabled": false,
                "mount_root_only": false,
            },
            "v4_64bit_identifiers_enabled": true,
            "v4_fsid_change": true,
            "v40_enabled": false,
            "v40_features": {
                "acl_enabled": false,
                "read_delegation_enabled": false,
                "write_delegation_enabled": false,
                "referrals_enabled": false,
            },
            "v41_enabled": true,
            "v41_features": features,
            "v42_features": {
                "seclabel_enabled": false,
                "sparsefile_ops_enabled": true,
                "xattrs_enabled": true,
            },
        },
        "security": {"chown_mode": "restricted", "ntfs_unix_security": "fail"},
        "transport": {
            "rdma_enabled": false,
            "tcp_enabled": true,
            "tcp_max_transfer_size": 1_048_576,
            "udp_enabled": false,
        },
    })
}

fn find(a: &Asked<'_>, id: &str) -> Answered<Value> {
    let all = a.cluster.svms().into_iter();
    let mut found = all.filter(|of| uuid("svm", &of.name) == id);
    let found = found.next().ok_or_else(Refusal::no_entry)?;
    Ok(nfs(&found.name))
}

/// Handles requests to `protocols/nfs/services`. The service is there as soon as its machine is:
/// making it is only refused where it would have to be otherwise.
pub fn nfs_services(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    match (verb, path) {
        (Verb::Get, []) => {
            let listing = Listing::parse(&a.call.query, NFS)?;
            let records = a.cluster.svms().iter().map(|of| nfs(&of.name)).collect();
            Ok(listing.reply(&a.here(), KEYS, &["svm.name", "svm.uuid"], records))
        }
        (Verb::Get, [id]) => {
            let listing = Listing::parse(&a.call.query, NFS)?;
            Ok(listing.one(KEYS, find(a, id)?))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let of = svm_of(a, &mut fields)?;
            let record = nfs(&of);
            fields.same_as(&record, NFS, WHY)?;
            let link = format!("/api/protocols/nfs/services/{}", uuid("svm", &of));
            a.done(Some((link, record)))
        }
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            let record = find(a, id)?;
            Fields::read(&a.call.body)?.same_as(&record, NFS, WHY)?;
            a.done(None)
        }
        (Verb::Delete, [id]) => {
            find(a, id)?;
            Err(Refusal::not_here(
                "svm.uuid",
                "NFS is served as long as the server runs",
            ))
        }
        _ => Err(Refusal::no_api()),
    }
}
