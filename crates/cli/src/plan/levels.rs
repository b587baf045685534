//! Service levels and tiers, read from the table that the server enforces.

use std::path::Path;

use serde::Deserialize;

/// The server's own table.
const BUILT_IN: &str = include_str!("../../../control/src/levels.toml");

/// Part of the table of levels that sizing needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Table {
    #[serde(default)]
    pub pool_level: Vec<Level>,
    #[serde(default)]
    pub tier: Vec<Tier>,
}

/// From and to, both included.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

/// A service level of NetApp Volumes, as the table of levels has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Level {
    pub name: String,
    /// Resource whose capacity throughput follows: `volume` or `pool`
    pub follows: String,
    pub mibps_per_tib: Option<f64>,
    #[serde(default)]
    pub manual_qos: bool,
    pub pool_gib: Range,
    pub volume_gib: Range,
    pub volume_max_mibps: Option<f64>,
    pub large_volumes: Option<Large>,
    pub custom_performance: Option<Custom>,
}

/// The range of large volumes, where a level has them.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Large {
    pub capacity_gib: Range,
    pub max_throughput_mibps: f64,
}

/// The most that custom performance can be bought.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Custom {
    pub max_throughput_mibps: f64,
    pub max_iops: u64,
}

/// A Filestore tier: its capacities, in steps, and limits.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Tier {
    pub name: String,
    pub capacity_gb: Range,
    pub step_gb: u64,
    pub bands: Vec<Band>,
    pub client: Option<Figures>,
}

/// Limits from a capacity on.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Band {
    pub from_gb: u64,
    pub per_gb: Option<u64>,
    pub limits: Figures,
}

/// Four limits: operations and bytes a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figures {
    pub read_iops: u64,
    pub write_iops: u64,
    pub read_bps: u64,
    pub write_bps: u64,
}

/// Returns the built-in table with an operator's file over it.
pub fn table(own: Option<&Path>) -> Result<Table, String> {
    let mut table: Table =
        toml::from_str(BUILT_IN).map_err(|error| format!("levels: {}", error.message()))?;
    if let Some(path) = own {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
        let more: Table = toml::from_str(&text).map_err(|error| at(&error.message()))?;
        for level in more.pool_level {
            table.pool_level.retain(|l| l.name != level.name);
            table.pool_level.push(level);
        }
        for tier in more.tier {
            table.tier.retain(|t| t.name != tier.name);
            table.tier.push(tier);
        }
    }
    Ok(table)
}

/// Returns the rows with some names.
pub fn chosen<T: Clone>(
    all: &[T],
    names: &[String],
    name: impl Fn(&T) -> &String,
    what: &str,
) -> Result<Vec<T>, String> {
    let find = |wanted: &String| {
        all.iter()
            .find(|t| name(t) == wanted)
            .cloned()
            .ok_or_else(|| {
                let known: Vec<&str> = all.iter().map(|t| name(t).as_str()).collect();
                format!(
                    "there is no {what} {wanted}; there are {}",
                    known.join(", ")
                )
            })
    };
    names.iter().map(find).collect()
}
