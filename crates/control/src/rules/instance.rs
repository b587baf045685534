//! Filestore instances: what may be made, changed and deleted.

use super::words::{count, gb};
use super::{asked_iops, exports, names, paths, snapshot, volume};
use crate::levels::Tier;
use crate::model::{Instance, Performance, Protocol, State};
use crate::mutation::{InstanceChange, NewInstance};
use crate::name::{Name, SnapshotOf};
use crate::refusal::{Refusal, Status};
use crate::stamp::Stamp;
use crate::view::View;

/// A new instance, or why not.
pub fn create(
    view: &View,
    name: &Name,
    new: &NewInstance,
    id: u64,
    now: Stamp,
) -> Result<Instance, Refusal> {
    names::check(name)?;
    names::check_share(&new.share_name)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if view.instance(name).is_some() {
        return Err(super::pool::taken("instance", &name.id));
    }
    let paths = paths::of_instance(view, name, &new.share_name)?;
    if new.protocol == Some(Protocol::Smb) {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "PROTOCOL_NOT_OFFERED",
            "SMB is not served by this version; make the instance with protocol NFS_V3 or NFS_V4_1",
        )
        .field("protocol"));
    }
    exports::check(new.export_rules.as_deref().unwrap_or_default())?;
    let tier = tier(view, &new.tier)?;
    let instance = Instance {
        id,
        key: format!("v-{id:016x}").into(),
        number: None,
        name: name.clone(),
        revision: 1,
        state: State::Creating,
        state_details: String::new(),
        created: now,
        tier: new.tier.as_str().into(),
        share_name: new.share_name.as_str().into(),
        paths,
        capacity_gb: new.capacity_gb,
        protocol: new.protocol,
        export_rules: new.export_rules.clone(),
        performance: new.performance,
        deletion_protected: new.deletion_protected,
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    };
    check(tier, &instance)?;
    Ok(instance)
}

/// The instance as changed. `used` is what its data holds, where that is known.
pub fn update(
    view: &View,
    instance: &Instance,
    change: &InstanceChange,
    used: Option<u64>,
) -> Result<Instance, Refusal> {
    if let Some(revision) = change.if_revision.filter(|r| *r != instance.revision) {
        return Err(Refusal::new(
            Status::Aborted,
            "ETAG_MISMATCH",
            format!(
                "instance {} has changed since it was read (revision {}, not {revision}); read it again",
                instance.name.id, instance.revision
            ),
        ));
    }
    let mut next = instance.clone();
    next.revision += 1;
    let tier = tier(view, &instance.tier)?;
    if let Some(capacity) = change.capacity_gb {
        if capacity < instance.capacity_gb && !tier.shrinks {
            return Err(Refusal::new(
                Status::InvalidArgument,
                "INSTANCE_CANNOT_SHRINK",
                format!(
                    "a {} instance only grows: {} has {}, and {} is less",
                    tier.name,
                    instance.name.id,
                    gb(instance.capacity_gb),
                    gb(capacity)
                ),
            )
            .field("fileShares.capacityGb")
            .with("minCapacityGb", instance.capacity_gb));
        }
        if capacity != instance.capacity_gb {
            volume::above_used(&instance.name.id, capacity, None, used)?;
        }
        next.capacity_gb = capacity;
    }
    if let Some(rules) = &change.export_rules {
        exports::check(rules)?;
        next.export_rules = Some(rules.clone());
    }
    if let Some(performance) = change.performance {
        next.performance = performance;
    }
    if let Some(protected) = change.deletion_protected {
        next.deletion_protected = protected;
    }
    if let Some(description) = &change.description {
        next.description.clone_from(description);
    }
    if let Some(labels) = &change.labels {
        next.labels.clone_from(labels);
    }
    names::merge(&mut next.extra, change.extra.clone());
    names::check_words(&next.description, &next.labels, &next.extra)?;
    check(tier, &next)?;
    Ok(next)
}

/// Whether the instance may go.
pub fn delete(view: &View, instance: &Instance, force: bool) -> Result<(), Refusal> {
    if instance.deletion_protected {
        return Err(Refusal::new(
            Status::FailedPrecondition,
            "DELETION_PROTECTED",
            format!(
                "instance {} is protected against deletion; take deletionProtectionEnabled off first",
                instance.name.id
            ),
        ));
    }
    snapshot::none_left(view, SnapshotOf::Instance, &instance.name, force)
}

fn check(tier: &Tier, instance: &Instance) -> Result<(), Refusal> {
    let capacity = instance.capacity_gb;
    let range = tier.capacity_gb;
    if !range.holds(capacity) {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "INSTANCE_CAPACITY_RANGE",
            format!(
                "a {} instance has {} to {}; {} is outside",
                tier.name,
                gb(range.min),
                gb(range.max),
                gb(capacity)
            ),
        )
        .field("fileShares.capacityGb")
        .with("minGb", range.min)
        .with("maxGb", range.max));
    }
    // From ten TB on, the tiers of two ranges go in that range's steps.
    let band = tier.bands.iter().rev().find(|b| b.from_gb <= capacity);
    let step = band.and_then(|b| b.per_gb).unwrap_or(tier.step_gb);
    let step = step.max(tier.step_gb);
    if capacity % step != 0 {
        let below = capacity / step * step;
        return Err(Refusal::new(
            Status::InvalidArgument,
            "INSTANCE_CAPACITY_STEP",
            format!(
                "a {} instance of that size has a multiple of {}; {} is none: {} and {} are",
                tier.name,
                gb(step),
                gb(capacity),
                gb(below),
                gb(below.saturating_add(step))
            ),
        )
        .field("fileShares.capacityGb")
        .with("stepGb", step));
    }
    match instance.performance {
        Some(performance) => check_performance(tier, capacity, performance),
        None => Ok(()),
    }
}

fn check_performance(tier: &Tier, capacity: u64, asked: Performance) -> Result<(), Refusal> {
    let rules = tier.custom_performance.iter().rev();
    let Some(rules) = rules.into_iter().find(|rule| rule.from_gb <= capacity) else {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "TIER_PERFORMANCE_NOT_OFFERED",
            format!(
                "there is no custom performance in tier {}: it follows capacity",
                tier.name
            ),
        )
        .field("performanceConfig"));
    };
    let scale = |per_tb: u64| (u128::from(per_tb) * u128::from(capacity) / 1024) as u64;
    let (least, most) = (scale(rules.iops_per_tb.min), scale(rules.iops_per_tb.max));
    let iops = asked_iops(capacity, asked);
    if !(least..=most).contains(&iops) {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "TIER_PERFORMANCE_RANGE",
            format!(
                "a {} instance of {} does {} to {} operations a second ({} to {} per TB); {} is outside",
                tier.name,
                gb(capacity),
                count(least),
                count(most),
                count(rules.iops_per_tb.min),
                count(rules.iops_per_tb.max),
                count(iops)
            ),
        ).field("performanceConfig")
        .with("minIops", least)
        .with("maxIops", most));
    }
    match asked {
        Performance::FixedIops(iops) if iops % rules.iops_step != 0 => Err(Refusal::new(
            Status::InvalidArgument,
            "TIER_PERFORMANCE_STEP",
            format!(
                "fixed operations a second come in multiples of {}; {} is none",
                count(rules.iops_step),
                count(iops)
            ),
        )
        .field("performanceConfig")),
        _ => Ok(()),
    }
}

fn tier<'v>(view: &'v View, name: &str) -> Result<&'v Tier, Refusal> {
    view.levels.tier(name).ok_or_else(|| {
        let known: Vec<&str> = view.levels.tiers().map(|t| t.name.as_str()).collect();
        let name: String = name.chars().take(100).collect();
        Refusal::new(
            Status::InvalidArgument,
            "TIER_UNKNOWN",
            format!("there is no tier {name:?}; there are {}", known.join(", ")),
        )
        .field("tier")
    })
}
