//! Service levels and Filestore tiers, as data.
//!
//! Levels are data, not code: the built-in table is `levels.toml`, and an operator's file of the
//! same form adds levels or replaces those with the same name. The units are those of the services
//! that the names come from. NetApp counts MiB/s (2^20) and TiB (2^40) or GiB. Filestore counts
//! MB/s (10^6), while its capacity is in GB of 2^30 bytes, and 1 TB of capacity is 1,024 of these.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The built-in table.
pub const BUILT_IN: &str = include_str!("levels.toml");

/// Bytes in a MiB, as `f64` for rates in MiB/s.
pub const MIB: f64 = 1_048_576.0;

/// Capacity that the throughput of a level is proportional to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Follows {
    /// The volume's capacity: each volume has its own limit.
    Volume,
    /// The pool's capacity: its volumes share the limit.
    Pool,
}

/// An inclusive range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Minimum, inclusive.
    pub min: u64,
    /// Maximum, inclusive.
    pub max: u64,
}

impl Range {
    /// Returns true if it contains `value`.
    pub fn holds(self, value: u64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

/// Throughput and operations that are set independently of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CustomPerformance {
    /// Maximum throughput in MiB/s.
    pub max_throughput_mibps: f64,
    /// Maximum operations a second.
    pub max_iops: u64,
    /// Default operations a second for each MiB/s.
    pub iops_per_mibps: u64,
}

/// Volumes beyond the usual size and throughput.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LargeVolumes {
    /// Capacity of one volume, in GiB.
    pub capacity_gib: Range,
    /// Maximum throughput of one volume in MiB/s.
    pub max_throughput_mibps: f64,
}

/// A service level of storage pools.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PoolLevel {
    /// Name, spelled as in the API: `PREMIUM`.
    pub name: String,
    /// MiB/s for each TiB; `None`: unlimited.
    pub mibps_per_tib: Option<f64>,
    /// Capacity that the rate applies to.
    pub follows: Follows,
    /// True if throughput may be assigned manually.
    #[serde(default)]
    pub manual_qos: bool,
    /// True if the sum of the volumes may exceed the pool; a single volume may not.
    #[serde(default)]
    pub overcommit: bool,
    /// Capacity of a pool, in GiB.
    pub pool_gib: Range,
    /// Capacity of a volume, in GiB.
    pub volume_gib: Range,
    /// Maximum MiB/s of one volume.
    pub volume_max_mibps: Option<f64>,
    /// Limits of large volumes, if offered.
    pub large_volumes: Option<LargeVolumes>,
    /// Limits of custom performance, if offered.
    pub custom_performance: Option<CustomPerformance>,
}

/// Separate limits of reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figures {
    /// Read operations a second.
    pub read_iops: u64,
    /// Write operations a second.
    pub write_iops: u64,
    /// Bytes a second of reads.
    pub read_bps: u64,
    /// Bytes a second of writes.
    pub write_bps: u64,
}

/// Limits of an instance within a range of capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Band {
    /// Lowest capacity of the band, which ends at the next one.
    pub from_gb: u64,
    /// Step in GB that the limits apply to, counted in whole steps; `None`: they apply to the
    /// instance.
    pub per_gb: Option<u64>,
    /// Limits of the instance, or of each step.
    pub limits: Figures,
}

/// Custom performance of a tier, with requested operations a second. That many reads are allowed,
/// or three tenths as many writes (a write counts 3.33), and throughput keeps the tier's own
/// proportion to reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TierPerformance {
    /// Lowest capacity that the entry applies to, up to the next entry.
    pub from_gb: u64,
    /// Range of requested reads a second for each TB.
    pub iops_per_tb: Range,
    /// Step of the requested operations.
    pub iops_step: u64,
}

/// A tier of Filestore instances.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tier {
    /// Name, spelled as in the API: `BASIC_HDD`.
    pub name: String,
    /// Older names of the same tier.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Capacity, in GB of 2^30 bytes.
    pub capacity_gb: Range,
    /// Step of the capacity in GB.
    pub step_gb: u64,
    /// True if the capacity may be reduced.
    pub shrinks: bool,
    /// Limits by capacity, in ascending order.
    pub bands: Vec<Band>,
    /// Limits of each client.
    pub client: Option<Figures>,
    /// Custom performance, if offered; in ascending order.
    #[serde(default)]
    pub custom_performance: Vec<TierPerformance>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    pool_level: Vec<PoolLevel>,
    #[serde(default)]
    tier: Vec<Tier>,
}

/// A levels file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LevelsError {
    /// The file could not be read.
    #[error("cannot read {0}: {1}")]
    Read(String, std::io::Error),
    /// The file is not TOML, or has unknown or missing fields.
    #[error("{0}: {1}")]
    Form(String, toml::de::Error),
    /// The file has invalid values.
    #[error("{0}: {1}")]
    Meaning(String, String),
}

/// All levels and tiers in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levels {
    pools: BTreeMap<String, PoolLevel>,
    tiers: BTreeMap<String, Tier>,
}

impl Levels {
    /// Returns the built-in levels.
    pub fn built_in() -> Result<Levels, LevelsError> {
        let mut levels = Levels::default();
        levels.add("built-in service levels", BUILT_IN)?;
        Ok(levels)
    }

    /// Returns the built-in levels and, on top, those of an operator's file.
    pub fn with_file(path: &Path) -> Result<Levels, LevelsError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| LevelsError::Read(name.clone(), e))?;
        let mut levels = Levels::built_in()?;
        levels.add(&name, &text)?;
        Ok(levels)
    }

    fn add(&mut self, source: &str, text: &str) -> Result<(), LevelsError> {
        let file: File =
            toml::from_str(text).map_err(|e| LevelsError::Form(source.to_owned(), e))?;
        let wrong = |what: String| LevelsError::Meaning(source.to_owned(), what);
        for level in file.pool_level {
            check_level(&level).map_err(wrong)?;
            self.pools.insert(level.name.clone(), level);
        }
        for tier in file.tier {
            check_tier(&tier).map_err(wrong)?;
            self.tiers.insert(tier.name.clone(), tier);
        }
        Ok(())
    }

    /// Returns the level with this name.
    pub fn pool(&self, name: &str) -> Option<&PoolLevel> {
        self.pools.get(name)
    }

    /// Returns the tier with this name or alias.
    pub fn tier(&self, name: &str) -> Option<&Tier> {
        self.tiers.get(name).or_else(|| {
            self.tiers
                .values()
                .find(|tier| tier.aliases.iter().any(|alias| alias == name))
        })
    }

    /// Returns all levels, by name.
    pub fn pool_levels(&self) -> impl Iterator<Item = &PoolLevel> {
        self.pools.values()
    }

    /// Returns all tiers, by name.
    pub fn tiers(&self) -> impl Iterator<Item = &Tier> {
        self.tiers.values()
    }
}

fn check_range(what: &str, range: Range) -> Result<(), String> {
    // 2^40 GiB is 2^70 bytes: above it, products of capacities and rates would not fit.
    if range.min == 0 || range.min > range.max || range.max > 1 << 34 {
        return Err(format!(
            "{what}: {} to {} is no range within 1 to {}",
            range.min,
            range.max,
            1u64 << 34
        ));
    }
    Ok(())
}

fn check_rate(what: &str, rate: Option<f64>) -> Result<(), String> {
    match rate {
        Some(rate) if !(rate > 0.0 && rate <= 1e9) => {
            Err(format!("{what}: {rate} is not within 0 to 1,000,000,000"))
        }
        _ => Ok(()),
    }
}

fn check_level(level: &PoolLevel) -> Result<(), String> {
    let of = |what: &str| format!("service level {}: {what}", level.name);
    if level.name.is_empty() {
        return Err("a service level without a name".to_owned());
    }
    check_range(&of("pool-gib"), level.pool_gib)?;
    check_range(&of("volume-gib"), level.volume_gib)?;
    check_rate(&of("mibps-per-tib"), level.mibps_per_tib)?;
    check_rate(&of("volume-max-mibps"), level.volume_max_mibps)?;
    if let Some(large) = level.large_volumes {
        check_range(&of("large-volumes.capacity-gib"), large.capacity_gib)?;
        check_rate(&of("large-volumes"), Some(large.max_throughput_mibps))?;
    }
    if let Some(custom) = level.custom_performance {
        check_rate(&of("custom-performance"), Some(custom.max_throughput_mibps))?;
        if level.follows == Follows::Volume {
            return Err(of(
                "custom performance is the pool's, so throughput has to follow the pool",
            ));
        }
    }
    if level.manual_qos && (level.follows == Follows::Pool || level.mibps_per_tib.is_none()) {
        return Err(of(
            "manual QoS deals out what follows the volumes' capacity",
        ));
    }
    Ok(())
}

fn check_tier(tier: &Tier) -> Result<(), String> {
    let of = |what: &str| format!("tier {}: {what}", tier.name);
    if tier.name.is_empty() {
        return Err("a tier without a name".to_owned());
    }
    check_range(&of("capacity-gb"), tier.capacity_gb)?;
    if tier.step_gb == 0 {
        return Err(of("step-gb is 0"));
    }
    match tier.bands.first() {
        Some(first) if first.from_gb <= tier.capacity_gb.min => {}
        _ => return Err(of("no band for its smallest capacity")),
    }
    let ascending = |at: &[u64]| at.is_sorted_by(|a, b| a < b);
    if !ascending(&tier.bands.iter().map(|b| b.from_gb).collect::<Vec<_>>()) {
        return Err(of("bands have to ascend"));
    }
    let custom = &tier.custom_performance;
    if !ascending(&custom.iter().map(|b| b.from_gb).collect::<Vec<_>>()) {
        return Err(of("custom-performance has to ascend"));
    }
    let per = tier.bands.iter().filter_map(|b| b.per_gb);
    if per
        .chain(custom.iter().map(|c| c.iops_step))
        .any(|n| n == 0)
    {
        return Err(of("a step of 0"));
    }
    Ok(())
}
