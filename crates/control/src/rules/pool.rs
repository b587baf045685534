//! Rules for creating, changing and deleting storage pools.

use super::{active_directory, names};
use crate::figures::words::{count, decimal, gib, mibps};
use crate::figures::{automatic, bytes_of, pool_throughput};
use crate::levels::{Follows, MIB, PoolLevel};
use crate::model::{Pool, Presentation, QosType, State, Volume};
use crate::mutation::{NewPool, PoolChange};
use crate::name::Name;
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use crate::view::View;
use std::sync::Arc;

/// Returns a new pool, or the refusal.
pub fn create(
    view: &View,
    name: &Name,
    new: &NewPool,
    id: u64,
    now: Stamp,
) -> Result<Pool, Refusal> {
    names::check(&name.place, &name.id)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if view.pool(name).is_some() {
        return Err(names::taken("storage pool", &name.id));
    }
    active_directory::check_pool(view, &name.place, new.active_directory.as_deref())?;
    let level = level(view, &new.service_level)?;
    let pool = Pool {
        id,
        name: name.clone(),
        revision: 1,
        state: State::Ready,
        state_details: String::new(),
        created: now,
        service_level: level.name.as_str().into(),
        capacity_gib: new.capacity_gib,
        qos_type: new.qos_type.unwrap_or(QosType::Auto),
        custom_performance: new.custom_performance,
        total_throughput_mibps: new.total_throughput_mibps,
        total_iops: new.total_iops,
        active_directory: new.active_directory.as_deref().map(Arc::from),
        span: new.span,
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    };
    check(level, &pool)?;
    Ok(pool)
}

/// Returns the changed pool, and its volumes that change with it.
pub fn update(
    view: &View,
    pool: &Pool,
    change: &PoolChange,
) -> Result<(Pool, Vec<Volume>), Refusal> {
    let mut next = pool.clone();
    next.revision += 1;
    if let Some(capacity) = change.capacity_gib {
        next.capacity_gib = capacity;
    }
    if let Some(name) = &change.service_level {
        next.service_level = level(view, name)?.name.as_str().into();
    }
    if change.total_throughput_mibps.is_some() {
        next.total_throughput_mibps = change.total_throughput_mibps;
    }
    if change.total_iops.is_some() {
        next.total_iops = change.total_iops;
    }
    if let Some(qos_type) = change.qos_type {
        if (pool.qos_type, qos_type) == (QosType::Manual, QosType::Auto) {
            return Err(Refusal::new(
                Status::FailedPrecondition,
                "QOS_MANUAL_TO_AUTO",
                format!(
                    "storage pool {} has manual QoS; a pool changes from automatic to manual only. To have automatic QoS again, move its volumes to a pool that has it",
                    pool.name.id
                ),
            ).field("qosType"));
        }
        next.qos_type = qos_type;
    }
    if let Some(directory) = &change.active_directory {
        let directory = Some(directory.as_str()).filter(|id| !id.is_empty());
        active_directory::check_pool(view, &pool.name.place, directory)?;
        next.active_directory = directory.map(Arc::from);
    }
    if let Some(description) = &change.description {
        next.description.clone_from(description);
    }
    if let Some(labels) = &change.labels {
        next.labels.clone_from(labels);
    }
    names::merge(&mut next.extra, change.extra.clone());
    names::check_words(&next.description, &next.labels, &next.extra)?;
    let level = level(view, &next.service_level)?;
    check(level, &next)?;
    let volumes = follow(view, level, pool, &next)?;
    holds_capacity(view, level, &next)?;
    holds_throughput(view, level, pool, &next, &volumes)?;
    Ok((next, volumes))
}

/// Returns the volumes whose throughput changes: with manual QoS each starts with its automatic
/// throughput.
fn follow(
    view: &View,
    level: &PoolLevel,
    pool: &Pool,
    next: &Pool,
) -> Result<Vec<Volume>, Refusal> {
    let relevelled = pool.service_level != next.service_level;
    let turned = pool.qos_type != next.qos_type;
    if !relevelled && !turned {
        return Ok(Vec::new());
    }
    let mut changed = Vec::new();
    for volume in view.volumes_of(&pool.name) {
        if relevelled {
            super::volume::check_size(level, volume, volume.large())?;
        }
        if turned && next.qos_type == QosType::Manual {
            let mut volume = Volume::clone(volume);
            volume.revision += 1;
            let given = automatic(level, volume.capacity_gib, volume.large());
            if let Presentation::Netapp(pooled) = &mut volume.presentation {
                pooled.throughput_mibps = given.map(|bytes| bytes as f64 / MIB);
            }
            changed.push(volume);
        }
    }
    Ok(changed)
}

/// Checks a pool by itself.
fn check(level: &PoolLevel, pool: &Pool) -> Result<(), Refusal> {
    if !level.pool_gib.holds(pool.capacity_gib) {
        let (least, most) = (gib(level.pool_gib.min), gib(level.pool_gib.max));
        return Err(Refusal::new(
            Status::InvalidArgument,
            "POOL_CAPACITY_RANGE",
            format!(
                "the capacity of a {} pool must be {least} to {most}; received: {} GiB",
                level.name,
                count(pool.capacity_gib)
            ),
        )
        .field("capacityGib")
        .with("minGib", level.pool_gib.min)
        .with("maxGib", level.pool_gib.max)
        .with("capacityGib", pool.capacity_gib));
    }
    if pool.qos_type == QosType::Manual && !level.manual_qos {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "QOS_MANUAL_NOT_OFFERED",
            format!(
                "there is no manual QoS at service level {}: its volumes share the pool's throughput",
                level.name
            ),
        )
        .field("qosType"));
    }
    check_custom_performance(level, pool)
}

/// Checks the throughput and the IOPS that a pool asks for itself.
fn check_custom_performance(level: &PoolLevel, pool: &Pool) -> Result<(), Refusal> {
    let refuse = |reason, message: String| {
        let refusal = Refusal::new(Status::InvalidArgument, reason, message);
        Err(refusal.field("customPerformanceEnabled"))
    };
    let asked = pool.total_throughput_mibps.is_some() || pool.total_iops.is_some();
    let Some(custom) = level.custom_performance else {
        if pool.custom_performance || asked {
            return refuse(
                "CUSTOM_PERFORMANCE_NOT_OFFERED",
                format!(
                    "there is no custom performance at service level {}: throughput follows capacity",
                    level.name
                ),
            );
        }
        return Ok(());
    };
    if !pool.custom_performance {
        if asked {
            return refuse(
                "CUSTOM_PERFORMANCE_OFF",
                "totalThroughputMibps and totalIops need customPerformanceEnabled, which is set when the pool is made"
                    .to_owned(),
            );
        }
        return Ok(());
    }
    let most = custom.max_throughput_mibps;
    let Some(total) = pool.total_throughput_mibps else {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "CUSTOM_PERFORMANCE_NEEDS_THROUGHPUT",
            format!(
                "custom performance needs totalThroughputMibps, up to {} MiB/s",
                decimal(most)
            ),
        )
        .field("totalThroughputMibps"));
    };
    if !(total > 0.0 && total <= most) {
        return Err(Refusal::new(
                Status::InvalidArgument,
                "CUSTOM_THROUGHPUT_MAX",
                format!(
                    "the throughput of a {} pool with custom performance must be up to {} MiB/s; received: {total} MiB/s",
                    level.name,
                    decimal(most)
                ),
            ).field("totalThroughputMibps").with("requestedThroughputMibps", total)
            .with("maxThroughputMibps", most));
    }
    match pool.total_iops {
        Some(iops) if iops == 0 || iops > custom.max_iops => Err(Refusal::new(
            Status::InvalidArgument,
            "CUSTOM_IOPS_MAX",
            format!(
                "a {} pool with custom performance must have 1 to {} IOPS; received: {}",
                level.name,
                count(custom.max_iops),
                count(iops)
            ),
        )
        .field("totalIops")
        .with("maxIops", custom.max_iops)),
        _ => Ok(()),
    }
}

fn holds_capacity(view: &View, level: &PoolLevel, next: &Pool) -> Result<(), Refusal> {
    let taken = view.pool_use(&next.name);
    let need = if level.overcommit {
        let sizes = view.volumes_of(&next.name).map(|v| v.capacity_gib);
        sizes.max().unwrap_or(0)
    } else {
        taken.capacity_gib
    };
    if next.capacity_gib >= need {
        return Ok(());
    }
    Err(Refusal::new(
        Status::FailedPrecondition,
        "POOL_SHRINK_BELOW_VOLUMES",
        format!(
            "storage pool {} cannot have {} GiB: its {} volumes have {} GiB. At least {} GiB fit",
            next.name.id,
            count(next.capacity_gib),
            count(taken.volumes),
            count(need),
            count(need)
        ),
    )
    .field("capacityGib")
    .with("minCapacityGib", need))
}

fn holds_throughput(
    view: &View,
    level: &PoolLevel,
    pool: &Pool,
    next: &Pool,
    changed: &[Volume],
) -> Result<(), Refusal> {
    if next.qos_type != QosType::Manual || level.follows != Follows::Volume {
        return Ok(());
    }
    let given = if pool.qos_type == QosType::Manual {
        view.pool_use(&pool.name).throughput
    } else {
        let each = changed.iter().filter_map(Volume::throughput_mibps);
        each.map(bytes_of).sum()
    };
    let total = pool_throughput(level, next).unwrap_or(u64::MAX);
    if given <= total {
        return Ok(());
    }
    let rate = level.mibps_per_tib.unwrap_or(1.0);
    let least = (given as f64 / (rate * 1024.0)).ceil() as u64;
    Err(Refusal::new(
        Status::FailedPrecondition,
        "POOL_SHRINK_BELOW_THROUGHPUT",
        format!(
            "storage pool {} with {} GiB would give {} ({} MiB/s per TiB), but its volumes were given {}. At least {} GiB fit, or give the volumes less first",
            next.name.id,
            count(next.capacity_gib),
            mibps(total),
            decimal(rate),
            mibps(given),
            count(least)
        ),
    ).field("capacityGib")
    .with("minCapacityGib", least)
    .with("givenMibps", given as f64 / MIB))
}

/// Checks that the pool may be deleted.
pub fn delete(view: &View, pool: &Pool) -> Result<(), Refusal> {
    let volumes = view.pool_use(&pool.name).volumes;
    if volumes == 0 {
        return Ok(());
    }
    let first = view.volumes_of(&pool.name).next();
    let first = first.map_or_else(String::new, |volume| format!(", {} first", volume.name.id));
    Err(Refusal::new(
        Status::FailedPrecondition,
        "POOL_HAS_VOLUMES",
        format!(
            "storage pool {} has {} volumes; delete or move them{first}",
            pool.name.id,
            count(volumes)
        ),
    )
    .with("volumeCount", volumes))
}

fn level<'v>(view: &'v View, name: &str) -> Result<&'v PoolLevel, Refusal> {
    view.levels.pool(name).ok_or_else(|| {
        let known: Vec<&str> = view.levels.pool_levels().map(|l| l.name.as_str()).collect();
        let name: String = name.chars().take(100).collect();
        Refusal::new(
            Status::InvalidArgument,
            "SERVICE_LEVEL_UNKNOWN",
            format!(
                "there is no service level {name:?}; there are {}",
                known.join(", ")
            ),
        )
        .field("serviceLevel")
    })
}
