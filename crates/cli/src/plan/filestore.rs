//! The smallest Filestore instance of a tier that does what a volume wants.

use super::input::{Need, Prices};
use super::levels::{Figures, Tier};

/// An instance for a volume, or why there is none.
#[derive(Debug)]
pub struct Instance {
    /// The name of the volume it is for
    pub volume: String,
    /// The name of the Filestore tier
    pub tier: String,
    /// Capacity in GB (2³⁰) and limits, or the reason
    pub sized: Result<Size, String>,
}

/// An instance's size, and what it does and costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// GB of 2³⁰ bytes
    pub gb: u64,
    /// The limits at this capacity
    pub limits: Figures,
    /// Clients that it takes to do what is wanted
    pub clients: u64,
    /// Its price, if known
    pub cost: Option<f64>,
}

fn times(f: Figures, n: u64) -> Figures {
    Figures {
        read_iops: f.read_iops.saturating_mul(n),
        write_iops: f.write_iops.saturating_mul(n),
        read_bps: f.read_bps.saturating_mul(n),
        write_bps: f.write_bps.saturating_mul(n),
    }
}

/// Returns the number of times `limits` that it takes for `wanted`; none where a limit is zero and
/// something wanted.
fn steps(wanted: Figures, limits: Figures) -> Option<u64> {
    let pairs = [
        (wanted.read_iops, limits.read_iops),
        (wanted.write_iops, limits.write_iops),
        (wanted.read_bps, limits.read_bps),
        (wanted.write_bps, limits.write_bps),
    ];
    pairs
        .iter()
        .try_fold(0u64, |most, (wanted, limit)| match (wanted, limit) {
            (0, _) => Some(most),
            (_, 0) => None,
            (wanted, limit) => Some(most.max(wanted.div_ceil(*limit))),
        })
}

/// Returns the limits of an instance of a capacity; none below the tier's least.
pub fn limits(tier: &Tier, gb: u64) -> Option<Figures> {
    let band = tier
        .bands
        .iter()
        .filter(|b| b.from_gb <= gb)
        .max_by_key(|b| b.from_gb)?;
    Some(match band.per_gb {
        Some(per) => times(band.limits, gb.checked_div(per)?),
        None => band.limits,
    })
}

/// Returns the throughput that a volume wants, in bytes and operations a second.
fn wanted(need: &Need) -> Figures {
    let bytes = |mibps: f64| (mibps * 1_048_576.0 - 1e-3).ceil().max(0.0) as u64;
    Figures {
        read_iops: need.read_iops,
        write_iops: need.write_iops,
        read_bps: bytes(need.read_mibps),
        write_bps: bytes(need.write_mibps),
    }
}

/// Returns a throughput in MB/s of 10⁶ bytes, in which Filestore's limits are printed.
pub fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn size(need: &Need, tier: &Tier, prices: &Prices) -> Result<Size, String> {
    let wanted = wanted(need);
    let least = need.gib.max(tier.capacity_gb.min);
    if least > tier.capacity_gb.max {
        return Err(format!(
            "{} GB are more than {} GB",
            need.gib, tier.capacity_gb.max
        ));
    }
    let mut found: Option<(u64, Figures)> = None;
    for band in &tier.bands {
        let by_limits = match (steps(wanted, band.limits), band.per_gb) {
            (Some(n), Some(per)) => n.saturating_mul(per),
            (Some(0 | 1), None) => 0,
            _ => continue,
        };
        // Capacity that counts in whole steps is sold in whole steps.
        let step = band.per_gb.unwrap_or(tier.step_gb).max(1);
        let round = |gb: u64| gb.div_ceil(step).saturating_mul(step);
        let gb = round(least.max(band.from_gb).max(by_limits));
        let Some(does) = limits(tier, gb) else {
            continue;
        };
        let enough = steps(wanted, does).is_some_and(|n| n <= 1) && gb <= tier.capacity_gb.max;
        if enough && found.is_none_or(|(smallest, _)| gb < smallest) {
            found = Some((gb, does));
        }
    }
    let Some((gb, limits)) = found else {
        let most = limits(tier, tier.capacity_gb.max).unwrap_or_default();
        let mut wants = format!(
            "{:.0}/{:.0} MB/s (read/write) wanted, {:.0}/{:.0} at most",
            mb(wanted.read_bps),
            mb(wanted.write_bps),
            mb(most.read_bps),
            mb(most.write_bps)
        );
        if wanted.read_iops > 0 || wanted.write_iops > 0 {
            wants.push_str(&format!(
                "; {}/{} operations a second wanted, {}/{} at most",
                wanted.read_iops, wanted.write_iops, most.read_iops, most.write_iops
            ));
        }
        return Err(wants);
    };
    let clients = match tier.client {
        Some(client) => steps(wanted, client).unwrap_or(1).max(1),
        None => 1,
    };
    let cost = prices
        .per_tib
        .get(&tier.name)
        .map(|price| gb as f64 / 1024.0 * price);
    Ok(Size {
        gb,
        limits,
        clients,
        cost,
    })
}

/// Returns instances for every volume in every tier.
pub fn instances(needs: &[Need], tiers: &[Tier], prices: &Prices) -> Vec<Instance> {
    let each = |need: &Need| -> Vec<Instance> {
        let sized = |tier: &Tier| Instance {
            volume: need.name.clone(),
            tier: tier.name.clone(),
            sized: size(need, tier, prices),
        };
        tiers.iter().map(sized).collect()
    };
    needs.iter().flat_map(each).collect()
}
