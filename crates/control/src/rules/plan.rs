//! Limits for the shaper.
//!
//! The tree is pool, volume, client. A pool limits its volumes if they share its throughput (Flex).
//! A volume's weight there is its capacity, so that volumes of 1, 2 and 4 TiB share 1 : 2 : 4. With
//! manual QoS the weight is the assigned throughput, though the sum of the volumes never exceeds
//! the pool. Weights are scaled by one divisor a pool, which depends on the pool alone, so that a
//! new volume changes no other volume's.

use crate::figures::{
    pool_iops, pool_source, pool_throughput, tier_figures, volume_source, volume_throughput, words,
};
use crate::levels::{Figures, Follows, Levels, MIB};
use crate::model::{Pool, Presentation, QosType, TieredSettings, Volume};
use crate::view::View;
use weir_base::limits::api::MAX_WEIGHT;
use weir_qos::plan::{PoolPlan, SharedPart, VolumePlan};
use weir_qos::{Limits, Rate};

/// Id of the pool that instances are under: no resource has it.
pub const INSTANCES: u64 = 0;

/// Returns the limits from a pool's level and capacity.
pub fn pool(levels: &Levels, pool: &Pool) -> PoolPlan {
    let level = levels.pool(&pool.service_level);
    PoolPlan {
        id: pool.id,
        name: pool.name.full(crate::name::Collection::Pools).into(),
        limits: Limits {
            total: Rate {
                bytes: level.and_then(|level| pool_throughput(level, pool)),
                ops: level.and_then(|level| pool_iops(level, pool)),
            },
            ..Limits::default()
        },
        source: level
            .map_or_else(String::new, |level| pool_source(level, pool))
            .into(),
        shared: pool.span.map(|span| SharedPart {
            limit: span.id,
            part: span.number,
            parts: span.parts,
        }),
    }
}

/// Returns true if a change of the pool leaves its volumes' limits unchanged.
pub fn same_for_volumes(before: &Pool, after: &Pool) -> bool {
    let seen = |pool: &Pool| {
        (
            pool.id,
            pool.service_level.clone(),
            pool.qos_type,
            pool.capacity_gib,
            pool.custom_performance,
            pool.total_throughput_mibps,
            pool.total_iops,
        )
    };
    seen(before) == seen(after)
}

/// Returns a volume's limits; `number` is the engine's. `None` if its pool does not exist.
pub fn volume(view: &View, volume: &Volume, number: u64) -> Option<VolumePlan> {
    let levels = &view.levels;
    let plan = VolumePlan {
        volume: number,
        name: volume.name.to_string().into(),
        pool: INSTANCES,
        limits: Limits::default(),
        client: Limits::default(),
        source: "".into(),
        shared: None,
    };
    let pool = match &volume.presentation {
        Presentation::Netapp(_) => view.pool_of(volume)?,
        Presentation::Filestore(tiered) => return Some(of_tier(levels, volume, tiered, plan)),
    };
    let level = levels.pool(&pool.service_level);
    let mut plan = VolumePlan {
        pool: pool.id,
        limits: Limits {
            total: Rate {
                bytes: volume_throughput(levels, pool, volume),
                ops: None,
            },
            weight: weight(levels, pool, volume),
            ..Limits::default()
        },
        source: level
            .map_or_else(String::new, |level| volume_source(level, pool, volume))
            .into(),
        ..plan
    };
    if level.is_some_and(|level| level.follows == Follows::Volume) {
        share(volume, &mut plan);
    }
    super::policies::lower(volume, &mut plan);
    Some(plan)
}

/// Makes the limit of a constituent a part of its large volume's, unless a QoS policy limits the
/// constituent alone.
fn share(volume: &Volume, plan: &mut VolumePlan) {
    let Some(constituent) = volume.constituent() else {
        return;
    };
    if volume.assigned.ceiling.bytes.is_some() {
        return;
    }
    plan.shared = Some(SharedPart {
        limit: constituent.large,
        part: constituent.number,
        parts: constituent.members,
    });
    let (source, parts) = (&plan.source, constituent.members);
    plan.source = format!("{source}, a part that {parts} constituents share").into();
}

fn weight(levels: &Levels, pool: &Pool, volume: &Volume) -> u32 {
    let level = levels.pool(&pool.service_level);
    let manual = pool.qos_type == QosType::Manual
        && level.is_some_and(|level| level.follows == Follows::Volume);
    let (own, whole) = match (manual, level, volume.throughput_mibps()) {
        (true, Some(level), Some(given)) => {
            let whole = pool_throughput(level, pool).unwrap_or(u64::MAX);
            (given as u64, (whole as f64 / MIB) as u64)
        }
        _ => (volume.capacity_gib, pool.capacity_gib),
    };
    let divisor = whole.div_ceil(MAX_WEIGHT).max(1);
    (own / divisor).clamp(1, MAX_WEIGHT) as u32
}

/// Returns the pool that instances are under, which is unlimited.
pub fn instances() -> PoolPlan {
    PoolPlan {
        id: INSTANCES,
        name: "filestore".into(),
        limits: Limits::default(),
        source: "".into(),
        shared: None,
    }
}

fn rates(figures: Option<Figures>) -> Limits {
    let Some(figures) = figures else {
        return Limits::default();
    };
    Limits {
        read: Rate {
            bytes: Some(figures.read_bps),
            ops: Some(figures.read_iops),
        },
        write: Rate {
            bytes: Some(figures.write_bps),
            ops: Some(figures.write_iops),
        },
        ..Limits::default()
    }
}

fn of_tier(
    levels: &Levels,
    volume: &Volume,
    tiered: &TieredSettings,
    plan: VolumePlan,
) -> VolumePlan {
    let limits = tier_figures(levels, volume);
    let source = limits.map_or_else(String::new, |f| {
        format!(
            "{}: {} read {}, write {}; {}/{} IOPS",
            tiered.tier,
            words::gb(volume.capacity_gib),
            words::mbps(f.read_bps),
            words::mbps(f.write_bps),
            words::count(f.read_iops),
            words::count(f.write_iops)
        )
    });
    let client = levels.tier(&tiered.tier).and_then(|tier| tier.client);
    VolumePlan {
        limits: rates(limits),
        client: rates(client),
        source: source.into(),
        ..plan
    }
}
