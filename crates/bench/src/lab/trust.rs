//! Trust in a figure: its durability tier, and what limited it.

use super::outcome::{LimitingFactor, Tier};
use super::spec::Durability;

/// A share of its limit from which something counts as exhausted.
const EXHAUSTED: f64 = 0.95;
/// A share from which a disk is named beside processors that are exhausted: they keep it
/// from always having work. Estimated.
const DISK_TOO: f64 = 0.85;
/// A share of a cap from which the cap is what was measured. The shaper holds its rate
/// to within 1 %, and a measurement's edges cost as much again.
const AT_CAP: f64 = 0.97;

/// Observations during a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Observations {
    /// Operations a second that were achieved.
    pub ops_per_s: f64,
    /// MiB a second that were achieved.
    pub mib_per_s: f64,
    /// Offered by an open loop.
    pub offered: Option<f64>,
    /// Caps that the target is known to have.
    pub cap_mib_s: Option<f64>,
    /// Cap in operations a second.
    pub cap_iops: Option<f64>,
    /// Share of its time that the generator's busiest thread ran.
    pub generator_busy: f64,
    /// Cores kept busy on this machine, by all processes.
    pub busy_cores: f64,
    /// Cores that this machine has.
    pub cores: f64,
    /// Share of the time in which the busiest local disk had work, where the target is
    /// on this machine.
    pub disk_busy: Option<f64>,
}

/// Limit of the result. The first that applies: what was asked for, limits that were set,
/// then what ran out, the generator before the rest because it makes the figure worthless as
/// one of the target.
pub fn bound(seen: &Observations) -> LimitingFactor {
    if seen.offered.is_some_and(|o| seen.ops_per_s >= AT_CAP * o) {
        return LimitingFactor::Offered;
    }
    if let Some(cap) = seen.cap_mib_s.filter(|c| seen.mib_per_s >= AT_CAP * c) {
        return LimitingFactor::Cap(format!("{cap:.0} MiB/s"));
    }
    if let Some(cap) = seen.cap_iops.filter(|c| seen.ops_per_s >= AT_CAP * c) {
        return LimitingFactor::Cap(format!("{cap:.0} IOPS"));
    }
    if seen.generator_busy >= EXHAUSTED {
        return LimitingFactor::Generator;
    }
    let processors = seen.cores > 0.0 && seen.busy_cores >= EXHAUSTED * seen.cores;
    let disk = |share| seen.disk_busy.is_some_and(|d| d >= share);
    match processors {
        true if disk(DISK_TOO) => LimitingFactor::ProcessorsAndDisk,
        true => LimitingFactor::Processors,
        false if disk(EXHAUSTED) => LimitingFactor::Disk,
        false => LimitingFactor::Concurrency,
    }
}

/// The tier of a load's writes.
pub fn tier(read_percent: u32, durability: Durability, mirrored: bool) -> Tier {
    match durability {
        _ if read_percent == 100 => Tier::Nothing,
        Durability::Unstable => Tier::Memory,
        Durability::Stable if mirrored => Tier::Mirrored,
        Durability::Stable => Tier::Local,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_named() {
        let idle = Observations {
            ops_per_s: 1000.0,
            mib_per_s: 62.5,
            busy_cores: 1.0,
            cores: 4.0,
            generator_busy: 0.5,
            ..Observations::default()
        };
        assert_eq!(bound(&idle), LimitingFactor::Concurrency);
        let mut s = idle;
        s.disk_busy = Some(0.99);
        assert_eq!(bound(&s), LimitingFactor::Disk);
        s.busy_cores = 3.9;
        assert_eq!(bound(&s), LimitingFactor::ProcessorsAndDisk);
        s.disk_busy = Some(0.5);
        assert_eq!(bound(&s), LimitingFactor::Processors);
        s.generator_busy = 0.97;
        assert_eq!(bound(&s), LimitingFactor::Generator);
        s.cap_iops = Some(1001.0);
        assert_eq!(bound(&s), LimitingFactor::Cap("1001 IOPS".into()));
        s.cap_mib_s = Some(64.0);
        assert_eq!(bound(&s), LimitingFactor::Cap("64 MiB/s".into()));
        s.offered = Some(1010.0);
        assert_eq!(bound(&s), LimitingFactor::Offered);
        // An open loop that does not reach its rate is bound by something else.
        s.offered = Some(5000.0);
        assert_eq!(bound(&s), LimitingFactor::Cap("64 MiB/s".into()));
    }

    #[test]
    fn reads_have_no_tier() {
        assert_eq!(tier(100, Durability::Stable, true), Tier::Nothing);
        assert_eq!(tier(50, Durability::Stable, true), Tier::Mirrored);
        assert_eq!(tier(0, Durability::Stable, false), Tier::Local);
        assert_eq!(tier(0, Durability::Unstable, true), Tier::Memory);
    }
}
