//! The NFS service, which is the same for all machines.

use super::value::{identity, text};
use super::{Field, Table};
use crate::value;

type F = Field<String>;

/// Creates a field with one value, which may be given.
const fn is(rest: &'static str, value: &'static str) -> F {
    F::always(rest, "", "", value).same()
}

/// The fields; the record is the name of the machine.
pub const FIELDS: &[F] = rows! {
    F::rest("svm.name", |svm| text(svm)).same(),
    F::rest("svm.uuid", |svm| identity("svm", svm)).same(),
    is("enabled", "true"),
    is("state", "online"),
    is("vstorage_enabled", "false"),
    is("rquota_enabled", "false"),
    is("showmount_enabled", "true"),
    is("protocol.v3_enabled", "true"),
    is("protocol.v3_64bit_identifiers_enabled", "true"),
    is("protocol.v3_features.connection_drop", "false"),
    is("protocol.v3_features.ejukebox_enabled", "true"),
    is("protocol.v3_features.fsid_change", "true"),
    is("protocol.v3_features.hide_snapshot_enabled", "false"),
    is("protocol.v3_features.mount_root_only", "false"),
    is("protocol.v4_64bit_identifiers_enabled", "true"),
    is("protocol.v4_fsid_change", "true"),
    is("protocol.v40_enabled", "false"),
    is("protocol.v40_features.acl_enabled", "false"),
    is("protocol.v40_features.read_delegation_enabled", "false"),
    is("protocol.v40_features.write_delegation_enabled", "false"),
    is("protocol.v40_features.referrals_enabled", "false"),
    is("protocol.v41_enabled", "true"),
    is("protocol.v41_features.acl_enabled", "true"),
    is("protocol.v41_features.read_delegation_enabled", "true"),
    is("protocol.v41_features.write_delegation_enabled", "true"),
    is("protocol.v41_features.referrals_enabled", "false"),
    is("protocol.v41_features.pnfs_enabled", "false"),
    is("protocol.v41_features.trunking_enabled", "true"),
    is("protocol.v42_features.seclabel_enabled", "false"),
    is("protocol.v42_features.sparsefile_ops_enabled", "true"),
    is("protocol.v42_features.xattrs_enabled", "true"),
    is("security.chown_mode", "restricted"),
    is("security.ntfs_unix_security", "fail"),
    is("transport.rdma_enabled", "false"),
    is("transport.tcp_enabled", "true"),
    is("transport.tcp_max_transfer_size", "1048576"),
    is("transport.udp_enabled", "false"),
};

/// The resource.
pub const TABLE: Table<String> = Table {
    path: "protocols/nfs/services",
    command: &[],
    fields: FIELDS,
    absent: rows! {
        "auth_sys_extended_groups_enabled", "extended_groups_limit",
        "file_session_io_grouping_count", "file_session_io_grouping_duration",
        "protocol.v3_features.mount_daemon_port", "protocol.v3_features.network_lock_manager_port",
        "protocol.v3_features.network_status_monitor_port",
        "protocol.v3_features.rquota_daemon_port", "protocol.v4_grace_seconds",
        "protocol.v4_id_domain", "protocol.v4_lease_seconds",
        "protocol.v4_session_slot_reply_cache_size", "protocol.v4_session_slots",
        "protocol.v40_features.acl_max_aces", "protocol.v40_features.acl_preserve",
        "protocol.v41_features.implementation_domain", "protocol.v41_features.implementation_name",
        "root.ignore_nt_acl", "root.skip_write_permission_check",
        "security.nt_acl_display_permission", "security.permitted_encryption_types",
        "security.rpcsec_context_idle", "windows.default_user",
        "windows.map_unknown_uid_to_default_user", "windows.v3_ms_dos_client_enabled", "metric",
        "statistics",
    },
    keys: &["svm"],
    order: &["svm.name", "svm.uuid"],
    ids: |svm| vec![value::identity("svm", svm)],
    why: "all machines are served alike",
};
