//! Messages of Weir's own paths.

use super::{Enum, Kind, Message, field};

/// A token for the API.
pub static TOKEN: Message = Message {
    name: "weir.v1.Token",
    fields: &[
        field("name", Kind::String),
        field("role", Kind::String),
        field("createTime", Kind::Timestamp).output_only(),
        field("createdBy", Kind::String).output_only(),
        field("revokeTime", Kind::Timestamp).output_only(),
        field("ttl", Kind::String),
        field("expireTime", Kind::Timestamp).output_only(),
        field("lastUseTime", Kind::Timestamp).output_only(),
        field("token", Kind::String).output_only(),
        field("publicKey", Kind::String),
        field("tokenUri", Kind::String),
    ],
};

/// A request to make the partner of the pair serve.
pub static SWITCH_PAIR_REQUEST: Message = Message {
    name: "weir.v1.SwitchPairRequest",
    fields: &[],
};

/// Another name for a snapshot, which the public API does not let clients give.
pub static RENAME_SNAPSHOT_REQUEST: Message = Message {
    name: "weir.v1.RenameSnapshotRequest",
    fields: &[
        field("name", Kind::String),
        field("newSnapshotId", Kind::String),
    ],
};

/// A file of a snapshot that is to be copied into its volume.
pub static RESTORE_FILE_REQUEST: Message = Message {
    name: "weir.v1.RestoreFileRequest",
    fields: &[
        field("snapshot", Kind::String),
        field("path", Kind::String),
        field("pathBytes", Kind::String),
        field("inPlace", Kind::Bool),
        field("overwrite", Kind::Bool),
    ],
};

/// Directory of an instance's users, which newer definitions of the public API have.
pub static DIRECTORY_SERVICES: Message = Message {
    name: "weir.v1.DirectoryServices",
    fields: &[
        field(
            "managedActiveDirectory",
            Kind::Message(&MANAGED_ACTIVE_DIRECTORY),
        ),
        field("ldap", Kind::Message(&LDAP)),
    ],
};

static MANAGED_ACTIVE_DIRECTORY: Message = Message {
    name: "weir.v1.ManagedActiveDirectory",
    fields: &[
        field("domain", Kind::String),
        field("computer", Kind::String),
    ],
};

static LDAP: Message = Message {
    name: "weir.v1.Ldap",
    fields: &[
        field("domain", Kind::String),
        field("servers", Kind::String).repeated(),
        field("usersOu", Kind::String),
        field("groupsOu", Kind::String),
    ],
};

/// Space that a pool, volume or instance uses and has, and the physical space below it. Fields that
/// a kind does not have are absent.
pub static SPACE_STATUS: Message = Message {
    name: "weir.v1.SpaceStatus",
    fields: &[
        field("usedBytes", Kind::Int64).output_only(),
        field("freeBytes", Kind::Int64).output_only(),
        field("physicalSizeBytes", Kind::Int64).output_only(),
        field("physicalUsedBytes", Kind::Int64).output_only(),
        field("physicalFreeBytes", Kind::Int64).output_only(),
        field("provisionedBytes", Kind::Int64).output_only(),
        field("overcommitRatio", Kind::Double).output_only(),
    ],
};

/// Limit of a volume or an instance now.
pub static THROUGHPUT_STATUS: Message = Message {
    name: "weir.v1.ThroughputStatus",
    fields: &[
        field("limitSource", Kind::String).output_only(),
        field("bindingLevel", Kind::Enum(&BINDING_LEVEL)).output_only(),
        field("bindingLimit", Kind::Enum(&BINDING_LIMIT)).output_only(),
        field("waitingRequests", Kind::Int64).output_only(),
    ],
};

/// Level whose limit requests wait for.
pub static BINDING_LEVEL: Enum = Enum {
    name: "weir.v1.ThroughputStatus.BindingLevel",
    open: false,
    values: &[
        ("BINDING_LEVEL_UNSPECIFIED", 0),
        ("POOL", 1),
        ("VOLUME", 2),
        ("CLIENT", 3),
    ],
};

/// Limit that requests wait for.
pub static BINDING_LIMIT: Enum = Enum {
    name: "weir.v1.ThroughputStatus.BindingLimit",
    open: false,
    values: &[
        ("BINDING_LIMIT_UNSPECIFIED", 0),
        ("BYTES", 1),
        ("OPS", 2),
        ("READ_BYTES", 3),
        ("READ_OPS", 4),
        ("WRITE_BYTES", 5),
        ("WRITE_OPS", 6),
    ],
};
