//! Values derived from capacity, service level and quality of service.
//!
//! Throughput is computed in whole bytes a second, rounded down once for each volume and once for
//! the pool, so that sums are exact. For example, 64 MiB/s per TiB is 65,536 bytes a second for
//! each GiB.

pub mod words;

use crate::levels::{Figures, Follows, Levels, MIB, PoolLevel, Tier};
use crate::model::{Performance, Pool, QosType, Volume};
use words::mibps;

/// Usage of a pool by its volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Number of volumes.
    pub volumes: u64,
    /// The sum of their capacities, in GiB.
    pub capacity_gib: u64,
    /// Sum of the manually assigned throughput, in bytes a second.
    pub throughput: u64,
}

/// Derived values of a storage pool, as users see them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolFigures {
    /// Number of volumes.
    pub volume_count: u64,
    /// The sum of their capacities.
    pub volume_capacity_gib: u64,
    /// MiB/s of the whole pool; `None`: unlimited.
    pub total_throughput_mibps: Option<f64>,
    /// MiB/s not yet assigned to volumes; `None`: unlimited.
    pub available_throughput_mibps: Option<f64>,
    /// Operations a second of the whole pool; `None`: unlimited.
    pub total_iops: Option<u64>,
}

/// Returns the derived values of a pool whose volumes use `taken`; see [`PoolFigures`].
pub fn pool_figures(levels: &Levels, pool: &Pool, taken: PoolUse) -> PoolFigures {
    let level = levels.pool(&pool.service_level);
    let total = level.and_then(|level| pool_throughput(level, pool));
    let given = match level {
        Some(level) if level.follows == Follows::Volume => match pool.qos_type {
            QosType::Manual => taken.throughput,
            QosType::Auto => follow(level, taken.capacity_gib).unwrap_or(0),
        },
        _ => 0,
    };
    let mib = |bytes: u64| bytes as f64 / MIB;
    PoolFigures {
        volume_count: taken.volumes,
        volume_capacity_gib: taken.capacity_gib,
        total_throughput_mibps: total.map(mib),
        available_throughput_mibps: total.map(|total| mib(total.saturating_sub(given))),
        total_iops: level.and_then(|level| pool_iops(level, pool)),
    }
}

/// Converts MiB/s to bytes a second.
pub fn bytes_of(mibps: f64) -> u64 {
    // Saturates at both ends, and turns NaN into 0.
    (mibps * MIB).floor() as u64
}

/// Returns the throughput of a capacity at a level, in bytes a second.
pub(crate) fn follow(level: &PoolLevel, gib: u64) -> Option<u64> {
    // MiB/s per TiB is 1,024 bytes a second per GiB.
    level
        .mibps_per_tib
        .map(|rate| (rate * 1024.0 * gib as f64).floor() as u64)
}

/// Returns a pool's limit in bytes a second; `None`: unlimited.
pub fn pool_throughput(level: &PoolLevel, pool: &Pool) -> Option<u64> {
    match pool.total_throughput_mibps {
        Some(total) if pool.custom_performance => Some(bytes_of(total)),
        _ => follow(level, pool.capacity_gib),
    }
}

/// Returns a pool's limit in operations a second; `None`: unlimited.
pub fn pool_iops(level: &PoolLevel, pool: &Pool) -> Option<u64> {
    let custom = level
        .custom_performance
        .filter(|_| pool.custom_performance)?;
    Some(pool.total_iops.unwrap_or_else(|| {
        let total = pool.total_throughput_mibps.unwrap_or(0.0);
        ((total * custom.iops_per_mibps as f64) as u64).clamp(1, custom.max_iops)
    }))
}

/// Returns the maximum bytes a second of one volume at a level.
pub(crate) fn volume_cap(level: &PoolLevel, large: bool) -> Option<u64> {
    match level.large_volumes {
        Some(rules) if large => Some(bytes_of(rules.max_throughput_mibps)),
        _ => level.volume_max_mibps.map(bytes_of),
    }
}

/// Returns the automatic throughput of a volume at a level in bytes a second, limited by its cap.
pub(crate) fn automatic(level: &PoolLevel, gib: u64, large: bool) -> Option<u64> {
    let rate = follow(level, gib)?;
    Some(volume_cap(level, large).map_or(rate, |cap| rate.min(cap)))
}

/// Returns a volume's own limit in bytes a second; `None` if only the pool limits it, or nothing.
pub fn volume_throughput(levels: &Levels, pool: &Pool, volume: &Volume) -> Option<u64> {
    let level = levels.pool(&pool.service_level)?;
    match level.follows {
        Follows::Pool => volume_cap(level, volume.large()),
        Follows::Volume => match (pool.qos_type, volume.throughput_mibps()) {
            (QosType::Manual, Some(given)) => Some(bytes_of(given)),
            _ => automatic(level, volume.capacity_gib, volume.large()),
        },
    }
}

/// Describes the origin of a pool's throughput.
pub(crate) fn pool_source(level: &PoolLevel, pool: &Pool) -> String {
    let name = &level.name;
    match (pool_throughput(level, pool), level.mibps_per_tib) {
        (Some(total), _) if pool.custom_performance => {
            let iops = pool_iops(level, pool).unwrap_or(0);
            let (total, iops) = (mibps(total), words::count(iops));
            format!("{name}, custom performance: {total}, {iops} IOPS")
        }
        (Some(_), Some(rate)) => {
            let (rate, tib) = (words::decimal(rate), words::gib(pool.capacity_gib));
            format!("{name}: {rate} MiB/s per TiB × {tib}")
        }
        _ => format!("{name}: no limit"),
    }
}

/// Describes the origin of a volume's throughput.
pub(crate) fn volume_source(level: &PoolLevel, pool: &Pool, volume: &Volume) -> String {
    let name = &level.name;
    let Some(rate) = level.mibps_per_tib else {
        return format!("{name}: no limit");
    };
    if level.follows == Follows::Pool {
        return format!("{name}: a share of the pool");
    }
    if let (QosType::Manual, Some(given)) = (pool.qos_type, volume.throughput_mibps()) {
        return format!("{name}, manual: {} MiB/s", words::decimal(given));
    }
    let (rate, size) = (words::decimal(rate), words::gib(volume.capacity_gib));
    let capped = match volume_cap(level, volume.large()) {
        Some(cap) if follow(level, volume.capacity_gib) > Some(cap) => {
            format!(", at most {}", mibps(cap))
        }
        _ => String::new(),
    };
    format!("{name}: {rate} MiB/s per TiB × {size}{capped}")
}

/// Returns the limits of a volume of a tier: Filestore's `performanceLimits`. `None` if it is in a
/// pool, or its tier is not in the levels file.
pub fn tier_figures(levels: &Levels, volume: &Volume) -> Option<Figures> {
    let tiered = volume.tiered()?;
    let tier = levels.tier(&tiered.tier)?;
    tier_limits(tier, volume.capacity_gib, tiered.performance)
}

/// Returns the limits of a capacity of a tier.
pub fn tier_limits(
    tier: &Tier,
    capacity_gb: u64,
    performance: Option<Performance>,
) -> Option<Figures> {
    let band = tier.bands.iter().rev().find(|b| b.from_gb <= capacity_gb)?;
    let steps = band.per_gb.map_or(1, |per| capacity_gb / per);
    let by = |figure: u64| figure.saturating_mul(steps);
    let own = band.limits;
    let Some(performance) = performance else {
        return Some(Figures {
            read_iops: by(own.read_iops),
            write_iops: by(own.write_iops),
            read_bps: by(own.read_bps),
            write_bps: by(own.write_bps),
        });
    };
    let asked = asked_iops(capacity_gb, performance);
    let scaled = |figure: u64| {
        let exact = u128::from(figure) * u128::from(asked) / u128::from(own.read_iops.max(1));
        u64::try_from(exact).unwrap_or(u64::MAX)
    };
    Some(Figures {
        read_iops: asked,
        write_iops: (u128::from(asked) * 3 / 10) as u64,
        read_bps: scaled(own.read_bps),
        write_bps: scaled(own.write_bps),
    })
}

/// Returns the operations a second requested by custom performance.
pub(crate) fn asked_iops(capacity_gb: u64, performance: Performance) -> u64 {
    match performance {
        Performance::FixedIops(iops) => iops,
        Performance::IopsPerTb(iops) => {
            (u128::from(iops) * u128::from(capacity_gb) / 1024).min(u128::from(u64::MAX)) as u64
        }
    }
}
