//! What follows from capacity, service level and quality of service; and what is refused.

use crate::levels::{Figures, Levels};
use crate::model::{Instance, Pool, Volume};
use crate::view::PoolUse;

/// A storage pool's figures as its users see them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolFigures {
    /// How many volumes it has.
    pub volume_count: u64,
    /// The sum of their capacities.
    pub volume_capacity_gib: u64,
    /// MiB/s of the whole pool; `None` without limit.
    pub total_throughput_mibps: Option<f64>,
    /// MiB/s not yet given to volumes; `None` without limit.
    pub available_throughput_mibps: Option<f64>,
    /// Operations a second of the whole pool; `None` without limit.
    pub total_iops: Option<u64>,
}

/// See [`PoolFigures`].
pub fn pool_figures(_levels: &Levels, _pool: &Pool, taken: PoolUse) -> PoolFigures {
    PoolFigures {
        volume_count: taken.volumes,
        volume_capacity_gib: taken.capacity_gib,
        ..PoolFigures::default()
    }
}

/// Bytes a second that a volume may do by itself; `None` where only the pool binds, or nothing.
pub fn volume_throughput(_levels: &Levels, _pool: &Pool, _volume: &Volume) -> Option<u64> {
    None
}

/// What an instance may do: Filestore's `performanceLimits`. `None` if its tier is no longer in the levels file.
pub fn instance_limits(_levels: &Levels, _instance: &Instance) -> Option<Figures> {
    None
}
