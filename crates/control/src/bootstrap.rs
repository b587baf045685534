//! Resources created by the first start, and defaults for a volume that a rebuild knows nothing
//! else about.

use crate::model::{Pool, Presentation, Protocol, QosType, Runs, State, Volume};
use crate::name::{Name, VolumeName};
use crate::timestamp::Stamp;

/// Pool of the first start.
pub(crate) const POOL: &str = "default";
/// Service level of that pool.
pub(crate) const LEVEL: &str = "UNLIMITED";
/// Mode of a volume's root, as in a new ext4 file system.
pub(crate) const ROOT_MODE: u32 = 0o755;

pub(crate) fn pool(name: Name, id: u64, capacity_gib: u64, now: Stamp) -> Pool {
    Pool {
        id,
        name,
        revision: 1,
        state: State::Ready,
        state_details: String::new(),
        created: now,
        service_level: LEVEL.into(),
        capacity_gib,
        qos_type: QosType::Auto,
        custom_performance: false,
        total_throughput_mibps: None,
        total_iops: None,
        active_directory: None,
        span: None,
        description: "made by the first start: the whole device, without limits".to_owned(),
        labels: Default::default(),
        extra: Default::default(),
    }
}

pub(crate) fn volume(name: VolumeName, id: u64, capacity_gib: u64, now: Stamp) -> Volume {
    Volume {
        id,
        key: format!("v-{id:016x}").into(),
        number: None,
        revision: 1,
        state: State::Ready,
        state_details: String::new(),
        created: now,
        presentation: Presentation::in_pool(POOL),
        share_name: name.id.clone(),
        paths: vec![name.id.clone()],
        name,
        capacity_gib,
        protocols: vec![Protocol::Nfsv3, Protocol::Nfsv4, Protocol::Smb],
        export_rules: None,
        smb: Default::default(),
        unix_permissions: ROOT_MODE,
        snapshot_directory: true,
        snap_reserve: None,
        snapshot_policy: None,
        snapshot_runs: Runs::new(),
        backup: None,
        backup_runs: Default::default(),
        deletion_restricted: false,
        clone_of: None,
        splitting: false,
        restore_of: None,
        protection: false,
        assigned: Default::default(),
        trees: Default::default(),
        quotas: Default::default(),
        moving: None,
        origin: None,
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    }
}
