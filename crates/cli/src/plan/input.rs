//! Input of the sizing: volumes and prices.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::values::{Dict, gib};

/// More than any server: sums of these stay far from the limits of their types.
const MOST_MIBPS: f64 = 1e9;

/// Volumes at most: the splits that are tried grow with the square of their number.
const MOST_VOLUMES: usize = 20_000;

/// MiB/s in one MB/s.
const MIB_PER_MB: f64 = 1_000_000.0 / 1_048_576.0;

/// Demand of a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// Its name, unique in the input
    pub name: String,
    /// Capacity wanted, in GiB
    pub gib: u64,
    /// Throughput in MiB/s, reads and writes together
    pub mibps: f64,
    /// Asked to be a large one
    pub large: bool,
    /// MiB/s of reads, where it differs (Filestore)
    pub read_mibps: f64,
    /// MiB/s of writes, where it differs (Filestore)
    pub write_mibps: f64,
    /// Reads a second that it needs
    pub read_iops: u64,
    /// Writes a second that it needs
    pub write_iops: u64,
}

const KEYS: &[&str] = &[
    "capacity",
    "large",
    "name",
    "read-iops",
    "read-throughput",
    "throughput",
    "write-iops",
    "write-throughput",
];

/// Reads a throughput such as `128`, `5GiB/s` or `500MB/s` (10⁶ bytes), in MiB/s.
pub fn throughput(text: &str) -> Result<f64, String> {
    let wrong = || {
        format!(
            "a throughput is a number, of MiB/s or with a unit: MiB/s, GiB/s, MB/s, GB/s; received: {text}"
        )
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim().trim_end_matches("/s") {
        "" | "MiB" => 1.0,
        "GiB" => 1024.0,
        "KiB" => 1.0 / 1024.0,
        "MB" => MIB_PER_MB,
        "GB" => MIB_PER_MB * 1000.0,
        _ => return Err(wrong()),
    };
    let amount: f64 = number.parse().map_err(|_| wrong())?;
    let mibps = amount * factor;
    if !(0.0..=MOST_MIBPS).contains(&mibps) {
        return Err(wrong());
    }
    Ok(mibps)
}

fn need(fields: &Dict) -> Result<Need, String> {
    let name = fields.required("name")?;
    let at = |error: String| format!("volume {name}: {error}");
    let rate = |key: &str| fields.text(key).map(|t| throughput(&t)).transpose();
    let mibps = rate("throughput").map_err(at)?;
    let (read, write) = (
        rate("read-throughput").map_err(at)?,
        rate("write-throughput").map_err(at)?,
    );
    let iops = |key: &str| -> Result<u64, String> {
        let n = fields.integer(key).map_err(at)?.unwrap_or(0);
        u64::try_from(n).map_err(|_| at(format!("{key} is not below 0")))
    };
    let apart = read.unwrap_or(0.0) + write.unwrap_or(0.0);
    let capacity = gib(&fields.required("capacity").map_err(at)?).map_err(at)?;
    Ok(Need {
        gib: capacity.0,
        mibps: mibps.unwrap_or(apart),
        large: fields.boolean("large").map_err(at)?.unwrap_or(false),
        read_mibps: read.unwrap_or(mibps.unwrap_or(0.0)),
        write_mibps: write.unwrap_or(mibps.unwrap_or(0.0)),
        read_iops: iops("read-iops")?,
        write_iops: iops("write-iops")?,
        name,
    })
}

/// Returns the volumes of the command line and of a file.
pub fn needs(given: &[Dict], file: Option<&Path>) -> Result<Vec<Need>, String> {
    let mut all: Vec<Dict> = given.to_vec();
    if let Some(path) = file {
        let at = |error: String| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| at(e.to_string()))?;
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        all.extend(rows(&text, extension).map_err(at)?);
    }
    if all.is_empty() {
        return Err("nothing to plan for: give --volume or --volumes".to_owned());
    }
    if all.len() > MOST_VOLUMES {
        return Err(format!("{} volumes; {MOST_VOLUMES} at most", all.len()));
    }
    let mut found: Vec<Need> = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for fields in all {
        let need = need(&fields.only(KEYS)?)?;
        if !names.insert(need.name.clone()) {
            return Err(format!("volume {} is there twice", need.name));
        }
        found.push(need);
    }
    Ok(found)
}

fn rows(text: &str, extension: &str) -> Result<Vec<Dict>, String> {
    let list = match extension {
        "csv" => return csv(text),
        "toml" => {
            let file: Value = toml::from_str(text).map_err(|e| e.message().to_owned())?;
            file.get("volume").cloned().unwrap_or_default()
        }
        "json" => {
            let file: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
            file.get("volumes").cloned().unwrap_or(file)
        }
        _ => return Err("the file's name ends in .csv, .toml or .json".to_owned()),
    };
    let Value::Array(items) = list else {
        return Err("there is no list of volumes in it".to_owned());
    };
    let fields = |item: Value| match item {
        Value::Object(map) => Ok(Dict(map)),
        _ => Err("a volume is a mapping of fields to values".to_owned()),
    };
    items.into_iter().map(fields).collect()
}

/// Reads comma-separated values (RFC 4180), the first line naming the fields.
fn csv(text: &str) -> Result<Vec<Dict>, String> {
    let mut lines: Vec<Vec<String>> = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(line) = lines.last_mut() else { break };
        let Some(cell) = line.last_mut() else { break };
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            ('"', _) => quoted = !quoted,
            (',', false) => line.push(String::new()),
            ('\n', false) => lines.push(vec![String::new()]),
            ('\r', false) => {}
            (c, _) => cell.push(c),
        }
    }
    if quoted {
        return Err("a quote has no end".to_owned());
    }
    let mut lines = lines
        .into_iter()
        .filter(|l| l.iter().any(|c| !c.trim().is_empty()));
    let heading = lines.next().ok_or("it is empty")?;
    let row = |line: Vec<String>| {
        if line.len() > heading.len() {
            return Err(format!(
                "a line has more cells than the first: {}",
                line.join(",")
            ));
        }
        let cells = heading
            .iter()
            .zip(line)
            .filter(|(_, cell)| !cell.trim().is_empty());
        let map: Map<String, Value> = cells
            .map(|(key, cell)| (key.trim().to_owned(), Value::from(cell.trim())))
            .collect();
        Ok(Dict(map))
    };
    lines.map(row).collect()
}

/// Prices for a month, in whatever money.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Prices {
    /// The currency, printed behind amounts
    #[serde(default)]
    pub currency: String,
    /// Price of a TiB, by service level or tier
    #[serde(default)]
    pub per_tib: BTreeMap<String, f64>,
    /// Price of a MiB/s, for custom performance
    #[serde(default)]
    pub per_mibps: BTreeMap<String, f64>,
    /// Price of 1,000 operations a second, for custom performance
    #[serde(default, rename = "per-1000-iops")]
    pub per_1000_iops: BTreeMap<String, f64>,
}

/// Returns the prices of a file.
pub fn prices(file: Option<&Path>) -> Result<Prices, String> {
    let Some(path) = file else {
        return Ok(Prices::default());
    };
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| at(&e))?;
    let prices: Prices = toml::from_str(&text).map_err(|e| at(&e.message()))?;
    let all = prices
        .per_tib
        .iter()
        .chain(&prices.per_mibps)
        .chain(&prices.per_1000_iops);
    for (name, price) in all {
        if !price.is_finite() || *price < 0.0 {
            return Err(at(&format!("the price of {name} is {price}")));
        }
    }
    Ok(prices)
}
