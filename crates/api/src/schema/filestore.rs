//! The messages of the Filestore API, version 1, as far as it is spoken here: names and types as
//! its public definition has them.

use super::own::{SPACE_STATUS, THROUGHPUT_STATUS};
use super::{Enum, Kind, Message, field};

/// The public message `google.cloud.filestore.v1.Instance`.
pub static INSTANCE: Message = Message {
    name: "google.cloud.filestore.v1.Instance",
    fields: &[
        field("name", Kind::String),
        field("description", Kind::String),
        field("state", Kind::Enum(&INSTANCE_STATE)).output_only(),
        field("statusMessage", Kind::String).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("tier", Kind::Enum(&INSTANCE_TIER)),
        field("labels", Kind::Labels),
        field("fileShares", Kind::Message(&FILE_SHARE_CONFIG)).repeated(),
        field("networks", Kind::Message(&NETWORK_CONFIG)).repeated(),
        field("etag", Kind::String),
        field("satisfiesPzs", Kind::Bool).output_only(),
        field("satisfiesPzi", Kind::Bool).output_only(),
        field("kmsKeyName", Kind::String),
        field("suspensionReasons", Kind::Enum(&INSTANCE_SUSPENSION_REASON))
            .repeated()
            .output_only(),
        field("replication", Kind::Message(&REPLICATION)),
        field("tags", Kind::Labels),
        field("protocol", Kind::Enum(&INSTANCE_FILE_PROTOCOL)),
        field("customPerformanceSupported", Kind::Bool).output_only(),
        field(
            "performanceConfig",
            Kind::Message(&INSTANCE_PERFORMANCE_CONFIG),
        ),
        field(
            "performanceLimits",
            Kind::Message(&INSTANCE_PERFORMANCE_LIMITS),
        )
        .output_only(),
        field("deletionProtectionEnabled", Kind::Bool),
        field("deletionProtectionReason", Kind::String),
        // Field of version v1beta1: capacity of the shares together.
        field("capacityGb", Kind::Int64),
        // Not in the public definition: the paths that its share is mounted by, and what limits it
        // now.
        field("exportPaths", Kind::String).repeated().output_only(),
        field("throughputStatus", Kind::Message(&THROUGHPUT_STATUS)).output_only(),
        field("spaceStatus", Kind::Message(&SPACE_STATUS)).output_only(),
    ],
};

/// The public enum `google.cloud.filestore.v1.Instance.State`.
pub static INSTANCE_STATE: Enum = Enum {
    name: "google.cloud.filestore.v1.Instance.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("READY", 2),
        ("REPAIRING", 3),
        ("DELETING", 4),
        ("ERROR", 6),
        ("RESTORING", 7),
        ("SUSPENDED", 8),
        ("SUSPENDING", 9),
        ("RESUMING", 10),
        ("REVERTING", 12),
        ("PROMOTING", 13),
    ],
};

/// The public enum `google.cloud.filestore.v1.Instance.Tier`.
pub static INSTANCE_TIER: Enum = Enum {
    name: "google.cloud.filestore.v1.Instance.Tier",
    open: true,
    values: &[
        ("TIER_UNSPECIFIED", 0),
        ("STANDARD", 1),
        ("PREMIUM", 2),
        ("BASIC_HDD", 3),
        ("BASIC_SSD", 4),
        ("HIGH_SCALE_SSD", 5),
        ("ENTERPRISE", 6),
        ("ZONAL", 7),
        ("REGIONAL", 8),
    ],
};

/// The public message `google.cloud.filestore.v1.FileShareConfig`.
pub static FILE_SHARE_CONFIG: Message = Message {
    name: "google.cloud.filestore.v1.FileShareConfig",
    fields: &[
        field("name", Kind::String),
        field("capacityGb", Kind::Int64),
        field("sourceBackup", Kind::String).one_of("source"),
        field("nfsExportOptions", Kind::Message(&NFS_EXPORT_OPTIONS)).repeated(),
    ],
};

/// The public message `google.cloud.filestore.v1.NfsExportOptions`.
pub static NFS_EXPORT_OPTIONS: Message = Message {
    name: "google.cloud.filestore.v1.NfsExportOptions",
    fields: &[
        field("ipRanges", Kind::String).repeated(),
        field("accessMode", Kind::Enum(&NFS_EXPORT_OPTIONS_ACCESS_MODE)),
        field("squashMode", Kind::Enum(&NFS_EXPORT_OPTIONS_SQUASH_MODE)),
        field("anonUid", Kind::Int64),
        field("anonGid", Kind::Int64),
    ],
};

/// The public enum `google.cloud.filestore.v1.NfsExportOptions.AccessMode`.
pub static NFS_EXPORT_OPTIONS_ACCESS_MODE: Enum = Enum {
    name: "google.cloud.filestore.v1.NfsExportOptions.AccessMode",
    open: false,
    values: &[
        ("ACCESS_MODE_UNSPECIFIED", 0),
        ("READ_ONLY", 1),
        ("READ_WRITE", 2),
    ],
};

/// The public enum `google.cloud.filestore.v1.NfsExportOptions.SquashMode`.
pub static NFS_EXPORT_OPTIONS_SQUASH_MODE: Enum = Enum {
    name: "google.cloud.filestore.v1.NfsExportOptions.SquashMode",
    open: false,
    values: &[
        ("SQUASH_MODE_UNSPECIFIED", 0),
        ("NO_ROOT_SQUASH", 1),
        ("ROOT_SQUASH", 2),
    ],
};

/// The public message `google.cloud.filestore.v1.NetworkConfig`.
pub static NETWORK_CONFIG: Message = Message {
    name: "google.cloud.filestore.v1.NetworkConfig",
    fields: &[
        field("network", Kind::String),
        field("modes", Kind::Enum(&NETWORK_CONFIG_ADDRESS_MODE)).repeated(),
        field("reservedIpRange", Kind::String),
        field("ipAddresses", Kind::String).repeated().output_only(),
        field("connectMode", Kind::Enum(&NETWORK_CONFIG_CONNECT_MODE)),
    ],
};

/// The public enum `google.cloud.filestore.v1.NetworkConfig.AddressMode`.
pub static NETWORK_CONFIG_ADDRESS_MODE: Enum = Enum {
    name: "google.cloud.filestore.v1.NetworkConfig.AddressMode",
    open: false,
    values: &[("ADDRESS_MODE_UNSPECIFIED", 0), ("MODE_IPV4", 1)],
};

/// The public enum `google.cloud.filestore.v1.NetworkConfig.ConnectMode`.
pub static NETWORK_CONFIG_CONNECT_MODE: Enum = Enum {
    name: "google.cloud.filestore.v1.NetworkConfig.ConnectMode",
    open: false,
    values: &[
        ("CONNECT_MODE_UNSPECIFIED", 0),
        ("DIRECT_PEERING", 1),
        ("PRIVATE_SERVICE_ACCESS", 2),
    ],
};

/// The public enum `google.cloud.filestore.v1.Instance.SuspensionReason`.
pub static INSTANCE_SUSPENSION_REASON: Enum = Enum {
    name: "google.cloud.filestore.v1.Instance.SuspensionReason",
    open: false,
    values: &[("SUSPENSION_REASON_UNSPECIFIED", 0), ("KMS_KEY_ISSUE", 1)],
};

/// The public message `google.cloud.filestore.v1.Replication`.
pub static REPLICATION: Message = Message {
    name: "google.cloud.filestore.v1.Replication",
    fields: &[
        field("role", Kind::Enum(&REPLICATION_ROLE)),
        field("replicas", Kind::Message(&REPLICA_CONFIG)).repeated(),
    ],
};

/// The public enum `google.cloud.filestore.v1.Replication.Role`.
pub static REPLICATION_ROLE: Enum = Enum {
    name: "google.cloud.filestore.v1.Replication.Role",
    open: false,
    values: &[("ROLE_UNSPECIFIED", 0), ("ACTIVE", 1), ("STANDBY", 2)],
};

/// The public message `google.cloud.filestore.v1.ReplicaConfig`.
pub static REPLICA_CONFIG: Message = Message {
    name: "google.cloud.filestore.v1.ReplicaConfig",
    fields: &[
        field("state", Kind::Enum(&REPLICA_CONFIG_STATE)).output_only(),
        field("stateReasons", Kind::Enum(&REPLICA_CONFIG_STATE_REASON))
            .repeated()
            .output_only(),
        field("peerInstance", Kind::String),
        field("lastActiveSyncTime", Kind::Timestamp).output_only(),
    ],
};

/// The public enum `google.cloud.filestore.v1.ReplicaConfig.State`.
pub static REPLICA_CONFIG_STATE: Enum = Enum {
    name: "google.cloud.filestore.v1.ReplicaConfig.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("READY", 3),
        ("REMOVING", 4),
        ("FAILED", 5),
    ],
};

/// The public enum `google.cloud.filestore.v1.ReplicaConfig.StateReason`.
pub static REPLICA_CONFIG_STATE_REASON: Enum = Enum {
    name: "google.cloud.filestore.v1.ReplicaConfig.StateReason",
    open: false,
    values: &[
        ("STATE_REASON_UNSPECIFIED", 0),
        ("PEER_INSTANCE_UNREACHABLE", 1),
        ("REMOVE_FAILED", 2),
    ],
};

/// The public enum `google.cloud.filestore.v1.Instance.FileProtocol`.
pub static INSTANCE_FILE_PROTOCOL: Enum = Enum {
    name: "google.cloud.filestore.v1.Instance.FileProtocol",
    open: false,
    values: &[
        ("FILE_PROTOCOL_UNSPECIFIED", 0),
        ("NFS_V3", 1),
        ("NFS_V4_1", 2),
    ],
};

/// The public message `google.cloud.filestore.v1.Instance.PerformanceConfig`.
pub static INSTANCE_PERFORMANCE_CONFIG: Message = Message {
    name: "google.cloud.filestore.v1.Instance.PerformanceConfig",
    fields: &[
        field("iopsPerTb", Kind::Message(&INSTANCE_IOPS_PER_TB)).one_of("mode"),
        field("fixedIops", Kind::Message(&INSTANCE_FIXED_IOPS)).one_of("mode"),
    ],
};

/// The public message `google.cloud.filestore.v1.Instance.IOPSPerTB`.
pub static INSTANCE_IOPS_PER_TB: Message = Message {
    name: "google.cloud.filestore.v1.Instance.IOPSPerTB",
    fields: &[field("maxIopsPerTb", Kind::Int64)],
};

/// The public message `google.cloud.filestore.v1.Instance.FixedIOPS`.
pub static INSTANCE_FIXED_IOPS: Message = Message {
    name: "google.cloud.filestore.v1.Instance.FixedIOPS",
    fields: &[field("maxIops", Kind::Int64)],
};

/// The public message `google.cloud.filestore.v1.Instance.PerformanceLimits`.
pub static INSTANCE_PERFORMANCE_LIMITS: Message = Message {
    name: "google.cloud.filestore.v1.Instance.PerformanceLimits",
    fields: &[
        field("maxIops", Kind::Int64),
        field("maxReadIops", Kind::Int64),
        field("maxWriteIops", Kind::Int64),
        field("maxReadThroughputBps", Kind::Int64),
        field("maxWriteThroughputBps", Kind::Int64),
    ],
};

/// The public message `google.cloud.filestore.v1.Snapshot`.
pub static SNAPSHOT: Message = Message {
    name: "google.cloud.filestore.v1.Snapshot",
    fields: &[
        field("name", Kind::String),
        field("description", Kind::String),
        field("state", Kind::Enum(&SNAPSHOT_STATE)).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("labels", Kind::Labels),
        field("filesystemUsedBytes", Kind::Int64).output_only(),
        field("tags", Kind::Labels),
    ],
};

/// The public enum `google.cloud.filestore.v1.Snapshot.State`.
pub static SNAPSHOT_STATE: Enum = Enum {
    name: "google.cloud.filestore.v1.Snapshot.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("READY", 2),
        ("DELETING", 3),
    ],
};

/// The public message `google.cloud.filestore.v1.RevertInstanceRequest`.
pub static REVERT_INSTANCE_REQUEST: Message = Message {
    name: "google.cloud.filestore.v1.RevertInstanceRequest",
    fields: &[
        field("name", Kind::String),
        field("targetSnapshotId", Kind::String),
    ],
};
