//! Tiers of Filestore: valid sizes of a volume, and valid requests for performance.

use crate::figures::asked_iops;
use crate::figures::words::{count, gb};
use crate::levels::Tier;
use crate::model::{Performance, TieredSettings, Volume};
use crate::refusal::{Refusal, Status};
use crate::view::View;

/// Checks a volume of a tier, and its change from `before`.
pub fn fit(
    view: &View,
    tiered: &TieredSettings,
    next: &Volume,
    before: Option<&Volume>,
) -> Result<(), Refusal> {
    let tier = tier(view, &tiered.tier)?;
    match before {
        Some(before) if next.capacity_gib < before.capacity_gib && !tier.shrinks => {
            Err(Refusal::new(
                Status::InvalidArgument,
                "INSTANCE_CANNOT_SHRINK",
                format!(
                    "a {} instance only grows: {} has {}, and {} is less",
                    tier.name,
                    next.name.id,
                    gb(before.capacity_gib),
                    gb(next.capacity_gib)
                ),
            )
            .field("fileShares.capacityGb")
            .with("minCapacityGb", before.capacity_gib))
        }
        _ => check(tier, next.capacity_gib, tiered.performance),
    }
}

fn check(tier: &Tier, capacity: u64, performance: Option<Performance>) -> Result<(), Refusal> {
    let range = tier.capacity_gb;
    if !range.holds(capacity) {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "INSTANCE_CAPACITY_RANGE",
            format!(
                "the capacity of a {} instance must be {} to {}; received: {}",
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
    // From ten TB on, tiers with two ranges have that range's steps.
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
    match performance {
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
                "a {} instance of {} must have {} to {} IOPS ({} to {} per TB); received: {}",
                tier.name,
                gb(capacity),
                count(least),
                count(most),
                count(rules.iops_per_tb.min),
                count(rules.iops_per_tb.max),
                count(iops)
            ),
        )
        .field("performanceConfig")
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
