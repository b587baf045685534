//! Job definitions: what to measure, as a TOML file.
//!
//! A definition is a list of tables, as the published ones are: one block size and
//! access pattern each, columns for the mixes. `[load]` holds what all tables share; a
//! table may say otherwise. Any of `clients`, `jobs`, `depth`, `nconnect` and `rate` may
//! be a list, which makes the table a sweep over it. Everything is checked before
//! anything is measured; unknown keys are errors, because a misspelt one would silently
//! measure something else.

use super::units::Size;
use crate::arrivals::Spacing;
use crate::error::BenchError;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The Linux client's own limit of `nconnect` (nfs(5)).
pub const MAX_NCONNECT: u32 = 16;
/// Calls in flight that one connection of the generator can distinguish.
pub const MAX_DEPTH: u32 = 1024;
/// Greatest block: what one READ or WRITE of NFS may move with any common server.
const MAX_BLOCK: u64 = 4 << 20;
/// Files of the front end are a multiple of this, in bytes: their parts are of whole 512 bytes.
const FRONT_END_STEP: u64 = 512 * crate::eda_mix::PARTS;

/// A whole definition, as read from TOML.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Short name; also of the preset.
    pub name: String,
    /// One line for reports.
    pub title: String,
    /// Source of the parameters.
    #[serde(default)]
    pub source: String,
    /// Anything a reader of the results must know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The set of published figures that it corresponds to.
    #[serde(default)]
    pub published: Option<String>,
    /// The first target is the baseline: other targets' overhead over it is shown.
    #[serde(default)]
    pub baseline: bool,
    /// Load that all tables share.
    pub load: Load,
    /// Durations and repetitions.
    #[serde(default)]
    pub time: Time,
    /// The tables to measure, in order.
    #[serde(rename = "table")]
    pub tables: Vec<Table>,
}

/// The load that tables share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Hosts (or, for the own generator, simulated clients with addresses of their own).
    #[serde(default = "one")]
    pub clients: u32,
    /// Concurrent streams of I/O on each client, each with a file of its own.
    #[serde(default = "one")]
    pub jobs: u32,
    /// Operations in flight of each job.
    #[serde(default = "one")]
    pub depth: u32,
    /// TCP connections of each client.
    #[serde(default = "one")]
    pub nconnect: u32,
    /// Bytes of all files together.
    pub working_set: Size,
    /// Durability that a write asks for before it counts as done.
    #[serde(default)]
    pub durability: Durability,
    /// State of the caches when a measurement begins.
    #[serde(default)]
    pub cache: Cache,
}

fn one() -> u32 {
    1
}

/// Durability that a write asks for before it counts as done.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Data on stable storage before each reply (FILE_SYNC; O_DSYNC).
    #[default]
    Stable,
    /// Data in the server's memory; made durable by a COMMIT (fsync) at the end of each
    /// pass over a file.
    Unstable,
}

/// State of the caches when a measurement begins.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// The working set was read once through the target.
    #[default]
    Warm,
    /// Caches were dropped before each measurement (by the command of
    /// `--cold-command`; for a path, by fio's invalidation).
    Cold,
    /// Nothing was done about them.
    AsIs,
}

impl Cache {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
            Self::AsIs => "as it was",
        }
    }
}

/// Durations and repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Time {
    /// Seconds of load before a measurement, at the least.
    pub warmup: f64,
    /// Seconds after which it is measured although no steady state was seen.
    pub warmup_at_most: f64,
    /// Seconds of a measurement.
    pub measure: f64,
    /// Measurements of each point.
    pub repetitions: u32,
}

impl Default for Time {
    fn default() -> Self {
        Self {
            warmup: 5.0,
            warmup_at_most: 60.0,
            measure: 30.0,
            repetitions: 3,
        }
    }
}

/// Order of the blocks.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// From start to end, each job in its own file.
    Sequential,
    /// Drawn evenly from the whole working set, block-aligned.
    Random,
}

impl From<Pattern> for crate::args::Pattern {
    fn from(pattern: Pattern) -> Self {
        match pattern {
            Pattern::Sequential => Self::Sequential,
            Pattern::Random => Self::Random,
        }
    }
}

impl Pattern {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
    }
}

/// Unit of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Throughput in MiB a second.
    #[serde(rename = "MiB/s")]
    Throughput,
    /// Rate in operations a second.
    #[serde(rename = "IOPS")]
    Iops,
}

impl Unit {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "MiB/s",
            Self::Iops => "IOPS",
        }
    }
}

/// Kind of operations of a table's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reads and writes of whole blocks.
    #[default]
    Data,
    /// The blend of both phases of chip design ([`crate::eda_mix::EDA_LIKE`]).
    Eda,
    /// Its front end ([`crate::eda_mix::FRONT_END`]): files of one block in many directories.
    EdaFrontEnd,
    /// Its back end: reads and writes of large files, each in a directory of its own.
    EdaBackEnd,
}

impl Kind {
    /// Returns true if the load has operations on names and attributes of many small files.
    pub fn is_blend(self) -> bool {
        matches!(self, Self::Eda | Self::EdaFrontEnd)
    }
}

/// One value, or a list of values to sweep over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sweep<T> {
    /// One value, no sweep.
    One(T),
    /// Several, in the order of their columns.
    Many(Vec<T>),
}

impl<T: Copy> Sweep<T> {
    /// All values, in the order of columns.
    pub fn values(&self) -> Vec<T> {
        match self {
            Self::One(v) => vec![*v],
            Self::Many(v) => v.clone(),
        }
    }
}

/// One table: a block size and a pattern.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Heading [default: made from block size and pattern].
    #[serde(default)]
    pub title: Option<String>,
    /// Kind of operations that the load consists of.
    #[serde(default)]
    pub kind: Kind,
    /// Bytes of a read or write.
    pub block_size: Size,
    /// Order of the blocks.
    pub pattern: Pattern,
    /// Shares of reads in percent; a column each.
    #[serde(default = "reads_only")]
    pub mixes: Vec<u32>,
    /// Unit [default: MiB/s when sequential, IOPS when random].
    #[serde(default)]
    pub unit: Option<Unit>,
    /// Clients, instead of the load's.
    #[serde(default)]
    pub clients: Option<Sweep<u32>>,
    /// Jobs of each client, instead of the load's.
    #[serde(default)]
    pub jobs: Option<Sweep<u32>>,
    /// Operations in flight of each job, instead of the load's.
    #[serde(default)]
    pub depth: Option<Sweep<u32>>,
    /// Connections of each client, instead of the load's.
    #[serde(default)]
    pub nconnect: Option<Sweep<u32>>,
    /// Operations a second that an open loop offers in all [default: a closed loop].
    #[serde(default)]
    pub rate: Option<Sweep<f64>>,
    /// Spacing of an open loop's operations.
    #[serde(default)]
    pub arrivals: Option<Spacing>,
    /// Raise the depth along its list only while that raises the result, and report the
    /// best.
    #[serde(default)]
    pub until_peak: bool,
    /// Bytes of all files together, instead of the load's.
    #[serde(default)]
    pub working_set: Option<Size>,
    /// Durability of writes, instead of the load's.
    #[serde(default)]
    pub durability: Option<Durability>,
    /// State of caches, instead of the load's.
    #[serde(default)]
    pub cache: Option<Cache>,
    /// Options given to fio as they are, over the ones of ours.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fio: BTreeMap<String, FioValue>,
}

/// The value of an option of fio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FioValue {
    /// A whole number, such as `8`.
    Number(i64),
    /// Any other value, as text.
    Text(String),
}

impl std::fmt::Display for FioValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(t) => f.write_str(t),
        }
    }
}

fn reads_only() -> Vec<u32> {
    vec![100]
}

impl Table {
    /// Returns the unit of the table, by its pattern if it does not say.
    pub fn unit(&self) -> Unit {
        self.unit.unwrap_or(match self.pattern {
            Pattern::Sequential => Unit::Throughput,
            Pattern::Random => Unit::Iops,
        })
    }

    /// Heading of the table, made from block size and pattern if it has none.
    pub fn heading(&self) -> String {
        self.title
            .clone()
            .unwrap_or_else(|| format!("{} {}", self.block_size, self.pattern.name()))
    }
}

impl Definition {
    /// Reads a definition; `from` names it in errors.
    pub fn parse(text: &str, from: &str) -> Result<Self, BenchError> {
        let definition: Self = toml::from_str(text)
            .map_err(|e| BenchError::Usage(format!("{from}: {}", e.to_string().trim_end())))?;
        definition
            .check()
            .map_err(|e| BenchError::Usage(format!("{from}: {e}")))?;
        Ok(definition)
    }

    /// Returns the state of caches when a point of this table is measured.
    pub fn cache(&self, table: &Table) -> Cache {
        table.cache.unwrap_or(self.load.cache)
    }

    /// The durability of this table's writes.
    pub fn durability(&self, table: &Table) -> Durability {
        table.durability.unwrap_or(self.load.durability)
    }

    /// The values of a table's sweep, or the load's own value.
    pub fn axis(&self, sweep: Option<&Sweep<u32>>, own: u32) -> Vec<u32> {
        sweep.map_or_else(|| vec![own], Sweep::values)
    }

    /// Says what is impossible about it.
    pub fn check(&self) -> Result<(), String> {
        if self.name.is_empty()
            || !self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        {
            return Err("name: letters, digits, - and _, at least one".into());
        }
        if self.tables.is_empty() {
            return Err("at least one [[table]] is needed".into());
        }
        let t = self.time;
        for (key, value, least) in [
            ("time.warmup", t.warmup, 0.0),
            ("time.warmup_at_most", t.warmup_at_most, 0.0),
            ("time.measure", t.measure, 0.1),
        ] {
            if !(least..=86_400.0).contains(&value) {
                return Err(format!("{key} = {value}: {least} to 86,400 seconds"));
            }
        }
        in_range("time.repetitions", t.repetitions, 100)?;
        for (i, table) in self.tables.iter().enumerate() {
            self.check_table(table)
                .map_err(|e| format!("table {} ({}): {e}", i + 1, table.heading()))?;
        }
        Ok(())
    }

    fn check_table(&self, table: &Table) -> Result<(), String> {
        let block = table.block_size.0;
        if block == 0 || block % 512 != 0 || block > MAX_BLOCK {
            return Err(format!(
                "block_size = {block} bytes: a multiple of 512 and at most 4 MiB"
            ));
        }
        if table.kind == Kind::EdaFrontEnd && block % FRONT_END_STEP != 0 {
            return Err(format!(
                "block_size = {block} bytes: a multiple of {FRONT_END_STEP}, since eda-front-end reads and writes quarters"
            ));
        }
        if table.mixes.is_empty() {
            return Err("mixes: at least one".into());
        }
        if let Some(bad) = table.mixes.iter().find(|m| **m > 100) {
            return Err(format!("mixes: {bad} % of reads is more than all"));
        }
        let l = &self.load;
        let clients = self.axis(table.clients.as_ref(), l.clients);
        let jobs = self.axis(table.jobs.as_ref(), l.jobs);
        let depth = self.axis(table.depth.as_ref(), l.depth);
        let nconnect = self.axis(table.nconnect.as_ref(), l.nconnect);
        for (key, values, most) in [
            ("clients", &clients, 200),
            ("jobs", &jobs, 1000),
            ("depth", &depth, MAX_DEPTH),
            ("nconnect", &nconnect, MAX_NCONNECT),
        ] {
            if values.is_empty() {
                return Err(format!("{key}: an empty list"));
            }
            for value in values {
                in_range(key, *value, most)?;
            }
        }
        if let Some(rates) = &table.rate {
            for rate in rates.values() {
                if !(1.0..=1e9).contains(&rate) {
                    return Err(format!(
                        "rate = {rate}: 1 to 1,000,000,000 operations a second"
                    ));
                }
            }
        }
        if table.until_peak && depth.len() < 2 {
            return Err("until_peak needs a list of depths".into());
        }
        let set = table.working_set.unwrap_or(l.working_set).0;
        let most = u64::from(clients.iter().copied().max().unwrap_or(1))
            * u64::from(jobs.iter().copied().max().unwrap_or(1));
        if set / most < block {
            return Err(format!(
                "a working set of {} has no block of {} for each of {most} jobs",
                Size(set),
                Size(block)
            ));
        }
        Ok(())
    }
}

fn in_range(key: &str, value: u32, most: u32) -> Result<(), String> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{key} = {value}: 1 to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "t"
title = "T"
[load]
clients = 2
jobs = 3
working_set = "64MiB"
[[table]]
block_size = "8KiB"
pattern = "random"
mixes = [100, 0]
depth = [1, 2]
[[table]]
block_size = "64KiB"
pattern = "sequential"
rate = 50.0
"#;

    #[test]
    fn a_definition_is_read_and_survives_json() {
        let d = Definition::parse(GOOD, "here").unwrap();
        assert_eq!(d.tables.len(), 2);
        assert_eq!(d.tables[0].unit(), Unit::Iops);
        assert_eq!(d.tables[1].unit(), Unit::Throughput);
        assert_eq!(d.tables[0].heading(), "8 KiB random");
        let json = serde_json::to_string(&d).unwrap();
        let back: Definition = serde_json::from_str(&json).unwrap();
        assert_eq!(back, d);
    }

    #[test]
    fn the_impossible_is_refused_by_name() {
        for (from, to, expected) in [
            ("mixes = [100, 0]", "mixes = [101]", "101 % of reads"),
            ("mixes = [100, 0]", "mixes = []", "at least one"),
            ("\"8KiB\"", "\"8000\"", "multiple of 512"),
            ("\"8KiB\"", "\"8MiB\"", "at most 4 MiB"),
            (
                "block_size = \"8KiB\"",
                "kind = \"eda-front-end\"\nblock_size = \"1KiB\"",
                "a multiple of 2048",
            ),
            ("\"8KiB\"", "\"8kilo\"", "unknown unit"),
            ("jobs = 3", "jobs = 0", "jobs = 0: 1 to 1000"),
            ("jobs = 3", "nconnect = 17", "nconnect = 17: 1 to 16"),
            ("jobs = 3", "job = 3", "unknown field `job`"),
            ("\"64MiB\"", "\"64KiB\"", "no block of 64 KiB for each of 6"),
            ("rate = 50.0", "rate = 0.0", "rate = 0"),
            ("depth = [1, 2]", "until_peak = true", "list of depths"),
            ("depth = [1, 2]", "depth = []", "depth: an empty list"),
            ("\"random\"", "\"zigzag\"", "unknown variant `zigzag`"),
            (
                "[load]",
                "[time]\nmeasure = 0.0\n[load]",
                "time.measure = 0",
            ),
            ("name = \"t\"", "name = \"../t\"", "name: letters"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let error = Definition::parse(&text, "file.toml")
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{to}: {error}");
            assert!(error.starts_with("file.toml: "), "{error}");
        }
    }
}
