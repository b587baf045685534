//! The messages of the NetApp Volumes API, version 1, as far as it is spoken here: names and types
//! as its public definition has them.

use super::own::{SPACE_STATUS, THROUGHPUT_STATUS};
use super::{Enum, Kind, Message, field};

/// The public message `google.cloud.netapp.v1.StoragePool`.
pub static STORAGE_POOL: Message = Message {
    name: "google.cloud.netapp.v1.StoragePool",
    fields: &[
        field("name", Kind::String),
        field("serviceLevel", Kind::Enum(&SERVICE_LEVEL)),
        field("capacityGib", Kind::Int64),
        field("volumeCapacityGib", Kind::Int64).output_only(),
        field("volumeCount", Kind::Int32).output_only(),
        field("state", Kind::Enum(&STORAGE_POOL_STATE)).output_only(),
        field("stateDetails", Kind::String).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("description", Kind::String),
        field("labels", Kind::Labels),
        field("network", Kind::String),
        field("activeDirectory", Kind::String),
        field("kmsConfig", Kind::String),
        field("ldapEnabled", Kind::Bool),
        field("psaRange", Kind::String),
        field("encryptionType", Kind::Enum(&ENCRYPTION_TYPE)).output_only(),
        field("globalAccessAllowed", Kind::Bool),
        field("allowAutoTiering", Kind::Bool),
        field("replicaZone", Kind::String),
        field("zone", Kind::String),
        field("satisfiesPzs", Kind::Bool).output_only(),
        field("satisfiesPzi", Kind::Bool).output_only(),
        field("customPerformanceEnabled", Kind::Bool),
        field("totalThroughputMibps", Kind::Int64),
        field("totalIops", Kind::Int64),
        field("hotTierSizeGib", Kind::Int64),
        field("enableHotTierAutoResize", Kind::Bool),
        field("qosType", Kind::Enum(&QOS_TYPE)),
        field("availableThroughputMibps", Kind::Double).output_only(),
        field("coldTierSizeUsedGib", Kind::Int64).output_only(),
        field("hotTierSizeUsedGib", Kind::Int64).output_only(),
        field("type", Kind::Enum(&STORAGE_POOL_TYPE)),
        field("mode", Kind::Enum(&MODE)),
        field("scaleType", Kind::Enum(&SCALE_TYPE)),
        // Not in the public definition: what it holds, and the physical space.
        field("spaceStatus", Kind::Message(&SPACE_STATUS)).output_only(),
    ],
};

/// The public message `google.cloud.netapp.v1.ActiveDirectory`.
pub static ACTIVE_DIRECTORY: Message = Message {
    name: "google.cloud.netapp.v1.ActiveDirectory",
    fields: &[
        field("name", Kind::String),
        field("createTime", Kind::Timestamp).output_only(),
        field("state", Kind::Enum(&ACTIVE_DIRECTORY_STATE)).output_only(),
        field("domain", Kind::String),
        field("site", Kind::String),
        field("dns", Kind::String),
        field("netBiosPrefix", Kind::String),
        field("organizationalUnit", Kind::String),
        field("aesEncryption", Kind::Bool),
        field("username", Kind::String),
        field("password", Kind::String).input_only(),
        field("backupOperators", Kind::String).repeated(),
        field("administrators", Kind::String).repeated(),
        field("securityOperators", Kind::String).repeated(),
        field("kdcHostname", Kind::String),
        field("kdcIp", Kind::String),
        field("nfsUsersWithLdap", Kind::Bool),
        field("description", Kind::String),
        field("ldapSigning", Kind::Bool),
        field("encryptDcConnections", Kind::Bool),
        field("labels", Kind::Labels),
        field("stateDetails", Kind::String).output_only(),
    ],
};

/// The public message `google.cloud.netapp.v1.BackupVault`.
pub static BACKUP_VAULT: Message = Message {
    name: "google.cloud.netapp.v1.BackupVault",
    fields: &[
        field("name", Kind::String),
        field("state", Kind::Enum(&BACKUP_VAULT_STATE)).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("description", Kind::String),
        field("labels", Kind::Labels),
        field("backupVaultType", Kind::Enum(&BACKUP_VAULT_TYPE)),
        field("sourceRegion", Kind::String).output_only(),
        field("backupRegion", Kind::String),
        field("sourceBackupVault", Kind::String).output_only(),
        field("destinationBackupVault", Kind::String).output_only(),
        field(
            "backupRetentionPolicy",
            Kind::Message(&BACKUP_RETENTION_POLICY),
        ),
        field("kmsConfig", Kind::String),
        field("encryptionState", Kind::Enum(&ENCRYPTION_STATE)).output_only(),
        field("backupsCryptoKeyVersion", Kind::String).output_only(),
        // Not in the public definition: the reason of a state.
        field("stateDetails", Kind::String).output_only(),
    ],
};

/// The public message `google.cloud.netapp.v1.BackupVault.BackupRetentionPolicy`.
pub static BACKUP_RETENTION_POLICY: Message = Message {
    name: "google.cloud.netapp.v1.BackupVault.BackupRetentionPolicy",
    fields: &[
        field("backupMinimumEnforcedRetentionDays", Kind::Int32),
        field("dailyBackupImmutable", Kind::Bool),
        field("weeklyBackupImmutable", Kind::Bool),
        field("monthlyBackupImmutable", Kind::Bool),
        field("manualBackupImmutable", Kind::Bool),
    ],
};

/// The public enum `google.cloud.netapp.v1.BackupVault.State`.
pub static BACKUP_VAULT_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.BackupVault.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("READY", 1),
        ("CREATING", 2),
        ("DELETING", 3),
        ("ERROR", 4),
        ("UPDATING", 5),
    ],
};

/// The public enum `google.cloud.netapp.v1.BackupVault.BackupVaultType`.
pub static BACKUP_VAULT_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.BackupVault.BackupVaultType",
    open: false,
    values: &[
        ("BACKUP_VAULT_TYPE_UNSPECIFIED", 0),
        ("IN_REGION", 1),
        ("CROSS_REGION", 2),
    ],
};

/// The public enum `google.cloud.netapp.v1.BackupVault.EncryptionState`.
pub static ENCRYPTION_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.BackupVault.EncryptionState",
    open: false,
    values: &[
        ("ENCRYPTION_STATE_UNSPECIFIED", 0),
        ("ENCRYPTION_STATE_PENDING", 1),
        ("ENCRYPTION_STATE_COMPLETED", 2),
        ("ENCRYPTION_STATE_IN_PROGRESS", 3),
        ("ENCRYPTION_STATE_FAILED", 4),
    ],
};

/// The public message `google.cloud.netapp.v1.BackupPolicy`.
pub static BACKUP_POLICY: Message = Message {
    name: "google.cloud.netapp.v1.BackupPolicy",
    fields: &[
        field("name", Kind::String),
        field("dailyBackupLimit", Kind::Int32),
        field("weeklyBackupLimit", Kind::Int32),
        field("monthlyBackupLimit", Kind::Int32),
        field("description", Kind::String),
        field("enabled", Kind::Bool),
        field("assignedVolumeCount", Kind::Int32).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("labels", Kind::Labels),
        field("state", Kind::Enum(&BACKUP_POLICY_STATE)).output_only(),
    ],
};

/// The public enum `google.cloud.netapp.v1.BackupPolicy.State`.
pub static BACKUP_POLICY_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.BackupPolicy.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("READY", 2),
        ("DELETING", 3),
        ("ERROR", 4),
        ("UPDATING", 5),
    ],
};

/// The public message `google.cloud.netapp.v1.Backup`.
pub static BACKUP: Message = Message {
    name: "google.cloud.netapp.v1.Backup",
    fields: &[
        field("name", Kind::String),
        field("state", Kind::Enum(&BACKUP_STATE)).output_only(),
        field("description", Kind::String),
        field("volumeUsageBytes", Kind::Int64).output_only(),
        field("backupType", Kind::Enum(&BACKUP_TYPE)).output_only(),
        field("sourceVolume", Kind::String),
        field("sourceSnapshot", Kind::String),
        field("createTime", Kind::Timestamp).output_only(),
        field("labels", Kind::Labels),
        field("chainStorageBytes", Kind::Int64).output_only(),
        field("satisfiesPzs", Kind::Bool).output_only(),
        field("satisfiesPzi", Kind::Bool).output_only(),
        field("volumeRegion", Kind::String).output_only(),
        field("backupRegion", Kind::String).output_only(),
        field("enforcedRetentionEndTime", Kind::Timestamp).output_only(),
        // Not in the public definition: the reason of a state.
        field("stateDetails", Kind::String).output_only(),
    ],
};

/// The public enum `google.cloud.netapp.v1.Backup.State`.
pub static BACKUP_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.Backup.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("UPLOADING", 2),
        ("READY", 3),
        ("DELETING", 4),
        ("ERROR", 5),
        ("UPDATING", 6),
    ],
};

/// The public enum `google.cloud.netapp.v1.Backup.Type`.
pub static BACKUP_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.Backup.Type",
    open: false,
    values: &[("TYPE_UNSPECIFIED", 0), ("MANUAL", 1), ("SCHEDULED", 2)],
};

/// The public enum `google.cloud.netapp.v1.ActiveDirectory.State`.
pub static ACTIVE_DIRECTORY_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.ActiveDirectory.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("READY", 2),
        ("UPDATING", 3),
        ("IN_USE", 4),
        ("DELETING", 5),
        ("ERROR", 6),
        ("DIAGNOSING", 7),
    ],
};

/// The public enum `google.cloud.netapp.v1.ServiceLevel`.
pub static SERVICE_LEVEL: Enum = Enum {
    name: "google.cloud.netapp.v1.ServiceLevel",
    open: true,
    values: &[
        ("SERVICE_LEVEL_UNSPECIFIED", 0),
        ("PREMIUM", 1),
        ("EXTREME", 2),
        ("STANDARD", 3),
        ("FLEX", 4),
    ],
};

/// The public enum `google.cloud.netapp.v1.StoragePool.State`.
pub static STORAGE_POOL_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.StoragePool.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("READY", 1),
        ("CREATING", 2),
        ("DELETING", 3),
        ("UPDATING", 4),
        ("RESTORING", 5),
        ("DISABLED", 6),
        ("ERROR", 7),
    ],
};

/// The public enum `google.cloud.netapp.v1.EncryptionType`.
pub static ENCRYPTION_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.EncryptionType",
    open: false,
    values: &[
        ("ENCRYPTION_TYPE_UNSPECIFIED", 0),
        ("SERVICE_MANAGED", 1),
        ("CLOUD_KMS", 2),
    ],
};

/// The public enum `google.cloud.netapp.v1.QosType`.
pub static QOS_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.QosType",
    open: false,
    values: &[("QOS_TYPE_UNSPECIFIED", 0), ("AUTO", 1), ("MANUAL", 2)],
};

/// The public enum `google.cloud.netapp.v1.StoragePoolType`.
pub static STORAGE_POOL_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.StoragePoolType",
    open: false,
    values: &[
        ("STORAGE_POOL_TYPE_UNSPECIFIED", 0),
        ("FILE", 1),
        ("UNIFIED", 2),
    ],
};

/// The public enum `google.cloud.netapp.v1.Mode`.
pub static MODE: Enum = Enum {
    name: "google.cloud.netapp.v1.Mode",
    open: false,
    values: &[("MODE_UNSPECIFIED", 0), ("DEFAULT", 1), ("ONTAP", 2)],
};

/// The public enum `google.cloud.netapp.v1.ScaleType`.
pub static SCALE_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.ScaleType",
    open: false,
    values: &[
        ("SCALE_TYPE_UNSPECIFIED", 0),
        ("SCALE_TYPE_DEFAULT", 1),
        ("SCALE_TYPE_SCALEOUT", 2),
    ],
};

/// The public message `google.cloud.netapp.v1.Volume`.
pub static VOLUME: Message = Message {
    name: "google.cloud.netapp.v1.Volume",
    fields: &[
        field("name", Kind::String),
        field("state", Kind::Enum(&VOLUME_STATE)).output_only(),
        field("stateDetails", Kind::String).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("shareName", Kind::String),
        field("psaRange", Kind::String).output_only(),
        field("storagePool", Kind::String),
        field("network", Kind::String).output_only(),
        field("serviceLevel", Kind::Enum(&SERVICE_LEVEL)).output_only(),
        field("capacityGib", Kind::Int64),
        field("exportPolicy", Kind::Message(&EXPORT_POLICY)),
        field("protocols", Kind::Enum(&PROTOCOLS)).repeated(),
        field("smbSettings", Kind::Enum(&SMB_SETTINGS)).repeated(),
        field("mountOptions", Kind::Message(&MOUNT_OPTION))
            .repeated()
            .output_only(),
        field("unixPermissions", Kind::String),
        field("labels", Kind::Labels),
        field("description", Kind::String),
        field("snapshotPolicy", Kind::Message(&SNAPSHOT_POLICY)),
        field("snapReserve", Kind::Double),
        field("snapshotDirectory", Kind::Bool),
        field("usedGib", Kind::Int64).output_only(),
        field("securityStyle", Kind::Enum(&SECURITY_STYLE)),
        field("kerberosEnabled", Kind::Bool),
        field("ldapEnabled", Kind::Bool).output_only(),
        field("activeDirectory", Kind::String).output_only(),
        field("restoreParameters", Kind::Message(&RESTORE_PARAMETERS)),
        field("kmsConfig", Kind::String).output_only(),
        field("encryptionType", Kind::Enum(&ENCRYPTION_TYPE)).output_only(),
        field("hasReplication", Kind::Bool).output_only(),
        field("backupConfig", Kind::Message(&BACKUP_CONFIG)),
        field("restrictedActions", Kind::Enum(&RESTRICTED_ACTION)).repeated(),
        field("largeCapacity", Kind::Bool),
        field("multipleEndpoints", Kind::Bool),
        field("tieringPolicy", Kind::Message(&TIERING_POLICY)),
        field("replicaZone", Kind::String).output_only(),
        field("zone", Kind::String).output_only(),
        field("coldTierSizeGib", Kind::Int64).output_only(),
        field(
            "hybridReplicationParameters",
            Kind::Message(&HYBRID_REPLICATION_PARAMETERS),
        ),
        field("throughputMibps", Kind::Double),
        field("cacheParameters", Kind::Message(&CACHE_PARAMETERS)),
        field("hotTierSizeUsedGib", Kind::Int64).output_only(),
        field("blockDevices", Kind::Message(&BLOCK_DEVICE)).repeated(),
        field("largeCapacityConfig", Kind::Message(&LARGE_CAPACITY_CONFIG)),
        field("cloneDetails", Kind::Message(&VOLUME_CLONE_DETAILS)).output_only(),
        // Not in the public definition: what limits it now.
        field("throughputStatus", Kind::Message(&THROUGHPUT_STATUS)).output_only(),
        // Nor this: what it holds, and the physical space.
        field("spaceStatus", Kind::Message(&SPACE_STATUS)).output_only(),
    ],
};

/// The public enum `google.cloud.netapp.v1.Volume.State`.
pub static VOLUME_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.Volume.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("READY", 1),
        ("CREATING", 2),
        ("DELETING", 3),
        ("UPDATING", 4),
        ("RESTORING", 5),
        ("DISABLED", 6),
        ("ERROR", 7),
        ("PREPARING", 8),
        ("READ_ONLY", 9),
    ],
};

/// The public message `google.cloud.netapp.v1.ExportPolicy`.
pub static EXPORT_POLICY: Message = Message {
    name: "google.cloud.netapp.v1.ExportPolicy",
    fields: &[field("rules", Kind::Message(&SIMPLE_EXPORT_POLICY_RULE)).repeated()],
};

/// The public message `google.cloud.netapp.v1.SimpleExportPolicyRule`.
pub static SIMPLE_EXPORT_POLICY_RULE: Message = Message {
    name: "google.cloud.netapp.v1.SimpleExportPolicyRule",
    fields: &[
        field("allowedClients", Kind::String),
        field("hasRootAccess", Kind::String),
        field("accessType", Kind::Enum(&ACCESS_TYPE)),
        field("nfsv3", Kind::Bool),
        field("nfsv4", Kind::Bool),
        field("kerberos5ReadOnly", Kind::Bool),
        field("kerberos5ReadWrite", Kind::Bool),
        field("kerberos5iReadOnly", Kind::Bool),
        field("kerberos5iReadWrite", Kind::Bool),
        field("kerberos5pReadOnly", Kind::Bool),
        field("kerberos5pReadWrite", Kind::Bool),
        field(
            "squashMode",
            Kind::Enum(&SIMPLE_EXPORT_POLICY_RULE_SQUASH_MODE),
        ),
        field("anonUid", Kind::Int64),
    ],
};

/// The public enum `google.cloud.netapp.v1.AccessType`.
pub static ACCESS_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.AccessType",
    open: false,
    values: &[
        ("ACCESS_TYPE_UNSPECIFIED", 0),
        ("READ_ONLY", 1),
        ("READ_WRITE", 2),
        ("READ_NONE", 3),
    ],
};

/// The public enum `google.cloud.netapp.v1.SimpleExportPolicyRule.SquashMode`.
pub static SIMPLE_EXPORT_POLICY_RULE_SQUASH_MODE: Enum = Enum {
    name: "google.cloud.netapp.v1.SimpleExportPolicyRule.SquashMode",
    open: false,
    values: &[
        ("SQUASH_MODE_UNSPECIFIED", 0),
        ("NO_ROOT_SQUASH", 1),
        ("ROOT_SQUASH", 2),
        ("ALL_SQUASH", 3),
    ],
};

/// The public enum `google.cloud.netapp.v1.Protocols`.
pub static PROTOCOLS: Enum = Enum {
    name: "google.cloud.netapp.v1.Protocols",
    open: false,
    values: &[
        ("PROTOCOLS_UNSPECIFIED", 0),
        ("NFSV3", 1),
        ("NFSV4", 2),
        ("SMB", 3),
        ("ISCSI", 4),
        ("NVME", 5),
    ],
};

/// The public enum `google.cloud.netapp.v1.SMBSettings`.
pub static SMB_SETTINGS: Enum = Enum {
    name: "google.cloud.netapp.v1.SMBSettings",
    open: false,
    values: &[
        ("SMB_SETTINGS_UNSPECIFIED", 0),
        ("ENCRYPT_DATA", 1),
        ("BROWSABLE", 2),
        ("CHANGE_NOTIFY", 3),
        ("NON_BROWSABLE", 4),
        ("OPLOCKS", 5),
        ("SHOW_SNAPSHOT", 6),
        ("SHOW_PREVIOUS_VERSIONS", 7),
        ("ACCESS_BASED_ENUMERATION", 8),
        ("CONTINUOUSLY_AVAILABLE", 9),
    ],
};

/// The public message `google.cloud.netapp.v1.MountOption`.
pub static MOUNT_OPTION: Message = Message {
    name: "google.cloud.netapp.v1.MountOption",
    fields: &[
        field("export", Kind::String),
        field("exportFull", Kind::String),
        field("protocol", Kind::Enum(&PROTOCOLS)),
        field("instructions", Kind::String),
        field("ipAddress", Kind::String),
    ],
};

/// The public message `google.cloud.netapp.v1.SnapshotPolicy`.
pub static SNAPSHOT_POLICY: Message = Message {
    name: "google.cloud.netapp.v1.SnapshotPolicy",
    fields: &[
        field("enabled", Kind::Bool),
        field("hourlySchedule", Kind::Message(&HOURLY_SCHEDULE)),
        field("dailySchedule", Kind::Message(&DAILY_SCHEDULE)),
        field("weeklySchedule", Kind::Message(&WEEKLY_SCHEDULE)),
        field("monthlySchedule", Kind::Message(&MONTHLY_SCHEDULE)),
    ],
};

/// The public message `google.cloud.netapp.v1.HourlySchedule`.
pub static HOURLY_SCHEDULE: Message = Message {
    name: "google.cloud.netapp.v1.HourlySchedule",
    fields: &[
        field("snapshotsToKeep", Kind::Double),
        field("minute", Kind::Double),
    ],
};

/// The public message `google.cloud.netapp.v1.DailySchedule`.
pub static DAILY_SCHEDULE: Message = Message {
    name: "google.cloud.netapp.v1.DailySchedule",
    fields: &[
        field("snapshotsToKeep", Kind::Double),
        field("minute", Kind::Double),
        field("hour", Kind::Double),
    ],
};

/// The public message `google.cloud.netapp.v1.WeeklySchedule`.
pub static WEEKLY_SCHEDULE: Message = Message {
    name: "google.cloud.netapp.v1.WeeklySchedule",
    fields: &[
        field("snapshotsToKeep", Kind::Double),
        field("minute", Kind::Double),
        field("hour", Kind::Double),
        field("day", Kind::String),
    ],
};

/// The public message `google.cloud.netapp.v1.MonthlySchedule`.
pub static MONTHLY_SCHEDULE: Message = Message {
    name: "google.cloud.netapp.v1.MonthlySchedule",
    fields: &[
        field("snapshotsToKeep", Kind::Double),
        field("minute", Kind::Double),
        field("hour", Kind::Double),
        field("daysOfMonth", Kind::String),
    ],
};

/// The public enum `google.cloud.netapp.v1.SecurityStyle`.
pub static SECURITY_STYLE: Enum = Enum {
    name: "google.cloud.netapp.v1.SecurityStyle",
    open: false,
    values: &[("SECURITY_STYLE_UNSPECIFIED", 0), ("NTFS", 1), ("UNIX", 2)],
};

/// The public message `google.cloud.netapp.v1.RestoreParameters`.
pub static RESTORE_PARAMETERS: Message = Message {
    name: "google.cloud.netapp.v1.RestoreParameters",
    fields: &[
        field("sourceSnapshot", Kind::String).one_of("source"),
        field("sourceBackup", Kind::String).one_of("source"),
    ],
};

/// The public message `google.cloud.netapp.v1.RestoreBackupFilesRequest`.
pub static RESTORE_BACKUP_FILES_REQUEST: Message = Message {
    name: "google.cloud.netapp.v1.RestoreBackupFilesRequest",
    fields: &[
        field("name", Kind::String),
        field("backup", Kind::String),
        field("fileList", Kind::String).repeated(),
        field("restoreDestinationPath", Kind::String),
    ],
};

/// The public message `google.cloud.netapp.v1.RestoreBackupFilesResponse`.
pub static RESTORE_BACKUP_FILES_RESPONSE: Message = Message {
    name: "google.cloud.netapp.v1.RestoreBackupFilesResponse",
    fields: &[],
};

/// The public message `google.cloud.netapp.v1.BackupConfig`.
pub static BACKUP_CONFIG: Message = Message {
    name: "google.cloud.netapp.v1.BackupConfig",
    fields: &[
        field("backupPolicies", Kind::String).repeated(),
        field("backupVault", Kind::String),
        field("scheduledBackupEnabled", Kind::Bool),
        field("backupChainBytes", Kind::Int64).output_only(),
    ],
};

/// The public enum `google.cloud.netapp.v1.RestrictedAction`.
pub static RESTRICTED_ACTION: Enum = Enum {
    name: "google.cloud.netapp.v1.RestrictedAction",
    open: false,
    values: &[("RESTRICTED_ACTION_UNSPECIFIED", 0), ("DELETE", 1)],
};

/// The public message `google.cloud.netapp.v1.TieringPolicy`.
pub static TIERING_POLICY: Message = Message {
    name: "google.cloud.netapp.v1.TieringPolicy",
    fields: &[
        field("tierAction", Kind::Enum(&TIERING_POLICY_TIER_ACTION)),
        field("coolingThresholdDays", Kind::Int32),
        field("hotTierBypassModeEnabled", Kind::Bool),
    ],
};

/// The public enum `google.cloud.netapp.v1.TieringPolicy.TierAction`.
pub static TIERING_POLICY_TIER_ACTION: Enum = Enum {
    name: "google.cloud.netapp.v1.TieringPolicy.TierAction",
    open: false,
    values: &[
        ("TIER_ACTION_UNSPECIFIED", 0),
        ("ENABLED", 1),
        ("PAUSED", 2),
    ],
};

/// The public message `google.cloud.netapp.v1.HybridReplicationParameters`.
pub static HYBRID_REPLICATION_PARAMETERS: Message = Message {
    name: "google.cloud.netapp.v1.HybridReplicationParameters",
    fields: &[
        field("replication", Kind::String),
        field("peerVolumeName", Kind::String),
        field("peerClusterName", Kind::String),
        field("peerSvmName", Kind::String),
        field("peerIpAddresses", Kind::String).repeated(),
        field("clusterLocation", Kind::String),
        field("description", Kind::String),
        field("labels", Kind::Labels),
        field(
            "replicationSchedule",
            Kind::Enum(&HYBRID_REPLICATION_SCHEDULE),
        ),
        field(
            "hybridReplicationType",
            Kind::Enum(&HYBRID_REPLICATION_PARAMETERS_VOLUME_HYBRID_REPLICATION_TYPE),
        ),
        field("largeVolumeConstituentCount", Kind::Int32),
    ],
};

/// The public enum `google.cloud.netapp.v1.HybridReplicationSchedule`.
pub static HYBRID_REPLICATION_SCHEDULE: Enum = Enum {
    name: "google.cloud.netapp.v1.HybridReplicationSchedule",
    open: false,
    values: &[
        ("HYBRID_REPLICATION_SCHEDULE_UNSPECIFIED", 0),
        ("EVERY_10_MINUTES", 1),
        ("HOURLY", 2),
        ("DAILY", 3),
    ],
};

/// The public enum
/// `google.cloud.netapp.v1.HybridReplicationParameters.VolumeHybridReplicationType`.
pub static HYBRID_REPLICATION_PARAMETERS_VOLUME_HYBRID_REPLICATION_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.HybridReplicationParameters.VolumeHybridReplicationType",
    open: false,
    values: &[
        ("VOLUME_HYBRID_REPLICATION_TYPE_UNSPECIFIED", 0),
        ("MIGRATION", 1),
        ("CONTINUOUS_REPLICATION", 2),
        ("ONPREM_REPLICATION", 3),
        ("REVERSE_ONPREM_REPLICATION", 4),
    ],
};

/// The public message `google.cloud.netapp.v1.CacheParameters`.
pub static CACHE_PARAMETERS: Message = Message {
    name: "google.cloud.netapp.v1.CacheParameters",
    fields: &[
        field("peerVolumeName", Kind::String),
        field("peerClusterName", Kind::String),
        field("peerSvmName", Kind::String),
        field("peerIpAddresses", Kind::String).repeated(),
        field("enableGlobalFileLock", Kind::Bool),
        field("cacheConfig", Kind::Message(&CACHE_CONFIG)),
        field("cacheState", Kind::Enum(&CACHE_PARAMETERS_CACHE_STATE)).output_only(),
        field("command", Kind::String).output_only(),
        field("peeringCommandExpiryTime", Kind::Timestamp).output_only(),
        field("passphrase", Kind::String).output_only(),
        field("stateDetails", Kind::String).output_only(),
    ],
};

/// The public message `google.cloud.netapp.v1.CacheConfig`.
pub static CACHE_CONFIG: Message = Message {
    name: "google.cloud.netapp.v1.CacheConfig",
    fields: &[
        field("cachePrePopulate", Kind::Message(&CACHE_PRE_POPULATE)),
        field("writebackEnabled", Kind::Bool),
        field("cifsChangeNotifyEnabled", Kind::Bool),
        field(
            "cachePrePopulateState",
            Kind::Enum(&CACHE_CONFIG_CACHE_PRE_POPULATE_STATE),
        )
        .output_only(),
    ],
};

/// The public message `google.cloud.netapp.v1.CachePrePopulate`.
pub static CACHE_PRE_POPULATE: Message = Message {
    name: "google.cloud.netapp.v1.CachePrePopulate",
    fields: &[
        field("pathList", Kind::String).repeated(),
        field("excludePathList", Kind::String).repeated(),
        field("recursion", Kind::Bool),
    ],
};

/// The public enum `google.cloud.netapp.v1.CacheConfig.CachePrePopulateState`.
pub static CACHE_CONFIG_CACHE_PRE_POPULATE_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.CacheConfig.CachePrePopulateState",
    open: false,
    values: &[
        ("CACHE_PRE_POPULATE_STATE_UNSPECIFIED", 0),
        ("NOT_NEEDED", 1),
        ("IN_PROGRESS", 2),
        ("COMPLETE", 3),
        ("ERROR", 4),
    ],
};

/// The public enum `google.cloud.netapp.v1.CacheParameters.CacheState`.
pub static CACHE_PARAMETERS_CACHE_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.CacheParameters.CacheState",
    open: false,
    values: &[
        ("CACHE_STATE_UNSPECIFIED", 0),
        ("PENDING_CLUSTER_PEERING", 1),
        ("PENDING_SVM_PEERING", 2),
        ("PEERED", 3),
        ("ERROR", 4),
    ],
};

/// The public message `google.cloud.netapp.v1.BlockDevice`.
pub static BLOCK_DEVICE: Message = Message {
    name: "google.cloud.netapp.v1.BlockDevice",
    fields: &[
        field("name", Kind::String),
        field("hostGroups", Kind::String).repeated(),
        field("identifier", Kind::String).output_only(),
        field("sizeGib", Kind::Int64),
        field("osType", Kind::Enum(&OS_TYPE)),
    ],
};

/// The public enum `google.cloud.netapp.v1.OsType`.
pub static OS_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.OsType",
    open: false,
    values: &[
        ("OS_TYPE_UNSPECIFIED", 0),
        ("LINUX", 1),
        ("WINDOWS", 2),
        ("ESXI", 3),
    ],
};

/// The public message `google.cloud.netapp.v1.LargeCapacityConfig`.
pub static LARGE_CAPACITY_CONFIG: Message = Message {
    name: "google.cloud.netapp.v1.LargeCapacityConfig",
    fields: &[field("constituentCount", Kind::Int32)],
};

/// The public message `google.cloud.netapp.v1.Volume.CloneDetails`.
pub static VOLUME_CLONE_DETAILS: Message = Message {
    name: "google.cloud.netapp.v1.Volume.CloneDetails",
    fields: &[
        field("sourceSnapshot", Kind::String),
        field("sourceVolume", Kind::String),
        field("sharedSpaceGib", Kind::Int64),
        field("splitState", Kind::Enum(&SPLIT_STATE)),
    ],
};

/// The public enum `google.cloud.netapp.v1.SplitState`.
pub static SPLIT_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.SplitState",
    open: false,
    values: &[
        ("SPLIT_STATE_UNSPECIFIED", 0),
        ("SPLIT_STATE_NOT_SPLITTING", 1),
        ("SPLIT_STATE_IN_PROGRESS", 2),
        ("SPLIT_STATE_FAILED", 3),
    ],
};

/// The public message `google.cloud.netapp.v1.Snapshot`.
pub static SNAPSHOT: Message = Message {
    name: "google.cloud.netapp.v1.Snapshot",
    fields: &[
        field("name", Kind::String),
        field("state", Kind::Enum(&SNAPSHOT_STATE)).output_only(),
        field("stateDetails", Kind::String).output_only(),
        field("description", Kind::String),
        field("usedBytes", Kind::Double).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("labels", Kind::Labels),
    ],
};

/// The public enum `google.cloud.netapp.v1.Snapshot.State`.
pub static SNAPSHOT_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.Snapshot.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("READY", 1),
        ("CREATING", 2),
        ("DELETING", 3),
        ("UPDATING", 4),
        ("DISABLED", 5),
        ("ERROR", 6),
    ],
};

/// The public message `google.cloud.netapp.v1.QuotaRule`.
pub static QUOTA_RULE: Message = Message {
    name: "google.cloud.netapp.v1.QuotaRule",
    fields: &[
        field("name", Kind::String),
        field("target", Kind::String),
        field("type", Kind::Enum(&QUOTA_RULE_TYPE)),
        field("diskLimitMib", Kind::Int32),
        field("state", Kind::Enum(&QUOTA_RULE_STATE)).output_only(),
        field("stateDetails", Kind::String).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("description", Kind::String),
        field("labels", Kind::Labels),
    ],
};

/// The public enum `google.cloud.netapp.v1.QuotaRule.Type`.
pub static QUOTA_RULE_TYPE: Enum = Enum {
    name: "google.cloud.netapp.v1.QuotaRule.Type",
    open: false,
    values: &[
        ("TYPE_UNSPECIFIED", 0),
        ("INDIVIDUAL_USER_QUOTA", 1),
        ("INDIVIDUAL_GROUP_QUOTA", 2),
        ("DEFAULT_USER_QUOTA", 3),
        ("DEFAULT_GROUP_QUOTA", 4),
    ],
};

/// The public enum `google.cloud.netapp.v1.QuotaRule.State`.
pub static QUOTA_RULE_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.QuotaRule.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("UPDATING", 2),
        ("DELETING", 3),
        ("READY", 4),
        ("ERROR", 5),
    ],
};

/// The public message `google.cloud.netapp.v1.StartSplitRequest`.
pub static START_SPLIT_REQUEST: Message = Message {
    name: "google.cloud.netapp.v1.StartSplitRequest",
    fields: &[field("name", Kind::String)],
};

/// The public message `google.cloud.netapp.v1.SplitStatus`.
pub static SPLIT_STATUS: Message = Message {
    name: "google.cloud.netapp.v1.SplitStatus",
    fields: &[
        field("splitState", Kind::Enum(&SPLIT_STATE)).output_only(),
        field("stateDetails", Kind::String).output_only(),
        field("progressPercent", Kind::Int32).output_only(),
    ],
};

/// Weir's own: the public API renames no snapshots.
pub static RENAME_SNAPSHOT_REQUEST: Message = Message {
    name: "weir.v1.RenameSnapshotRequest",
    fields: &[
        field("name", Kind::String),
        field("newSnapshotId", Kind::String),
    ],
};

/// The public message `google.cloud.netapp.v1.RevertVolumeRequest`.
pub static REVERT_VOLUME_REQUEST: Message = Message {
    name: "google.cloud.netapp.v1.RevertVolumeRequest",
    fields: &[
        field("name", Kind::String),
        field("snapshotId", Kind::String),
    ],
};

/// The public message `google.cloud.netapp.v1.Replication`.
pub static REPLICATION: Message = Message {
    name: "google.cloud.netapp.v1.Replication",
    fields: &[
        field("name", Kind::String),
        field("state", Kind::Enum(&REPLICATION_STATE)).output_only(),
        field("stateDetails", Kind::String).output_only(),
        field("role", Kind::Enum(&REPLICATION_ROLE)).output_only(),
        field("replicationSchedule", Kind::Enum(&REPLICATION_SCHEDULE)),
        field("mirrorState", Kind::Enum(&MIRROR_STATE)).output_only(),
        field("healthy", Kind::Bool).output_only(),
        field("createTime", Kind::Timestamp).output_only(),
        field("destinationVolume", Kind::String).output_only(),
        field("transferStats", Kind::Message(&TRANSFER_STATS)).output_only(),
        field("labels", Kind::Labels),
        field("description", Kind::String),
        field(
            "destinationVolumeParameters",
            Kind::Message(&DESTINATION_VOLUME_PARAMETERS),
        ),
        field("sourceVolume", Kind::String).output_only(),
        field("hybridPeeringDetails", Kind::Any).output_only(),
        field("clusterLocation", Kind::String),
        field("hybridReplicationType", Kind::Any).output_only(),
        field("hybridReplicationUserCommands", Kind::Any).output_only(),
    ],
};

/// The public enum `google.cloud.netapp.v1.Replication.State`.
pub static REPLICATION_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.Replication.State",
    open: false,
    values: &[
        ("STATE_UNSPECIFIED", 0),
        ("CREATING", 1),
        ("READY", 2),
        ("UPDATING", 3),
        ("DELETING", 5),
        ("ERROR", 6),
        ("PENDING_CLUSTER_PEERING", 8),
        ("PENDING_SVM_PEERING", 9),
        ("PENDING_REMOTE_RESYNC", 10),
        ("EXTERNALLY_MANAGED_REPLICATION", 11),
    ],
};

/// The public enum `google.cloud.netapp.v1.Replication.ReplicationRole`.
pub static REPLICATION_ROLE: Enum = Enum {
    name: "google.cloud.netapp.v1.Replication.ReplicationRole",
    open: false,
    values: &[
        ("REPLICATION_ROLE_UNSPECIFIED", 0),
        ("SOURCE", 1),
        ("DESTINATION", 2),
    ],
};

/// The public enum `google.cloud.netapp.v1.Replication.ReplicationSchedule`.
pub static REPLICATION_SCHEDULE: Enum = Enum {
    name: "google.cloud.netapp.v1.Replication.ReplicationSchedule",
    open: false,
    values: &[
        ("REPLICATION_SCHEDULE_UNSPECIFIED", 0),
        ("EVERY_10_MINUTES", 1),
        ("HOURLY", 2),
        ("DAILY", 3),
    ],
};

/// The public enum `google.cloud.netapp.v1.Replication.MirrorState`.
pub static MIRROR_STATE: Enum = Enum {
    name: "google.cloud.netapp.v1.Replication.MirrorState",
    open: false,
    values: &[
        ("MIRROR_STATE_UNSPECIFIED", 0),
        ("PREPARING", 1),
        ("MIRRORED", 2),
        ("STOPPED", 3),
        ("TRANSFERRING", 4),
        ("BASELINE_TRANSFERRING", 5),
        ("ABORTED", 6),
        ("EXTERNALLY_MANAGED", 7),
        ("PENDING_PEERING", 8),
    ],
};

/// The public message `google.cloud.netapp.v1.TransferStats`.
pub static TRANSFER_STATS: Message = Message {
    name: "google.cloud.netapp.v1.TransferStats",
    fields: &[
        field("transferBytes", Kind::Int64),
        field("totalTransferDuration", Kind::String),
        field("lastTransferBytes", Kind::Int64),
        field("lastTransferDuration", Kind::String),
        field("lagDuration", Kind::String),
        field("updateTime", Kind::Timestamp),
        field("lastTransferEndTime", Kind::Timestamp),
        field("lastTransferError", Kind::String),
    ],
};

/// The public message `google.cloud.netapp.v1.DestinationVolumeParameters`.
pub static DESTINATION_VOLUME_PARAMETERS: Message = Message {
    name: "google.cloud.netapp.v1.DestinationVolumeParameters",
    fields: &[
        field("storagePool", Kind::String),
        field("volumeId", Kind::String),
        field("shareName", Kind::String),
        field("description", Kind::String),
        field("tieringPolicy", Kind::Message(&TIERING_POLICY)),
    ],
};

/// `google.cloud.netapp.v1.EstablishPeeringRequest`.
pub static ESTABLISH_PEERING_REQUEST: Message = Message {
    name: "google.cloud.netapp.v1.EstablishPeeringRequest",
    fields: &[
        field("name", Kind::String),
        field("peerClusterName", Kind::String),
        field("peerSvmName", Kind::String),
        field("peerIpAddresses", Kind::String).repeated(),
        field("peerVolumeName", Kind::String),
    ],
};

/// `google.cloud.netapp.v1.StopReplicationRequest`; the other verbs' requests have its name alone.
pub static STOP_REPLICATION_REQUEST: Message = Message {
    name: "google.cloud.netapp.v1.StopReplicationRequest",
    fields: &[field("name", Kind::String), field("force", Kind::Bool)],
};
