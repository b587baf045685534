//! Fitting a definition to a machine smaller than the one it was made for.
//!
//! Every change is remembered in words and printed with the results: a scaled run is
//! comparable with itself, and with the published figures only as far as it says.

use super::plan;
use super::spec::{Cache, Definition, Durability, Sweep};
use super::units::{Size, duration, thousands};
use crate::error::BenchError;

/// Changes of a definition.
#[derive(Debug, Clone, Default)]
pub struct Scale {
    /// Working sets times this.
    pub factor: Option<f64>,
    /// Working sets at most so large.
    pub max_size: Option<Size>,
    /// Clients, instead of the definition's number.
    pub clients: Option<u32>,
    /// Jobs of each client, instead of the definition's number.
    pub jobs: Option<u32>,
    /// Operations in flight of each job, instead of the definition's.
    pub depth: Option<u32>,
    /// Connections of each client, instead of the definition's number.
    pub nconnect: Option<u32>,
    /// Seconds of load before each measurement, instead of the definition's.
    pub warmup: Option<f64>,
    /// Seconds of each measurement, instead of the definition's.
    pub measure: Option<f64>,
    /// Measurements of each point, instead of the definition's number.
    pub repetitions: Option<u32>,
    /// Durability of writes, instead of the definition's.
    pub durability: Option<Durability>,
    /// State of caches, instead of the definition's.
    pub cache: Option<Cache>,
    /// Rates of open loops times this.
    pub rates: Option<f64>,
    /// Tables with one of these in their heading; all when empty.
    pub only: Vec<String>,
    /// Seconds that the whole run may take.
    pub budget: Option<f64>,
}

/// Shortest measurement that a budget leads to; below it, the five rounds of the
/// steady-state window are too short to say anything.
const LEAST_MEASURE: f64 = 1.0;

impl Scale {
    /// Changes the definition; returns the changes in words.
    pub fn apply(&self, d: &mut Definition, targets: usize) -> Result<Vec<String>, BenchError> {
        let mut changes = Vec::new();
        self.choose_tables(d, &mut changes)?;
        self.sizes(d, &mut changes);
        self.rates(d, &mut changes)?;
        self.shape(d, &mut changes);
        self.times(d, targets, &mut changes)?;
        d.check().map_err(|e| {
            BenchError::Usage(format!("{} cannot be scaled like this: {e}", d.name))
        })?;
        Ok(changes)
    }

    fn choose_tables(
        &self,
        d: &mut Definition,
        changes: &mut Vec<String>,
    ) -> Result<(), BenchError> {
        if self.only.is_empty() {
            return Ok(());
        }
        let all = d.tables.len();
        let headings: Vec<String> = d.tables.iter().map(|t| t.heading()).collect();
        d.tables
            .retain(|t| self.only.iter().any(|o| t.heading().contains(o.as_str())));
        if d.tables.is_empty() {
            return Err(BenchError::Usage(format!(
                "--only leaves no table; there are: {}",
                headings.join("; ")
            )));
        }
        if d.tables.len() < all {
            changes.push(format!("{} of {all} tables", d.tables.len()));
        }
        Ok(())
    }

    fn sizes(&self, d: &mut Definition, changes: &mut Vec<String>) {
        let (factor, most) = (self.factor, self.max_size);
        let scaled = |size: Size| {
            let bytes = factor.map_or(size.0, |f| (size.0 as f64 * f) as u64);
            Size(bytes.min(most.map_or(u64::MAX, |m| m.0)))
        };
        let mut change = |what: String, size: &mut Size| {
            let new = scaled(*size);
            if new != *size {
                changes.push(format!("{what}: {size} → {new}"));
                *size = new;
            }
        };
        let everywhere = d.tables.iter().all(|t| t.working_set.is_some());
        if everywhere {
            d.load.working_set = scaled(d.load.working_set);
        } else {
            change("working set".into(), &mut d.load.working_set);
        }
        for table in &mut d.tables {
            let heading = table.heading();
            if let Some(size) = &mut table.working_set {
                change(format!("working set of {heading}"), size);
            }
        }
    }

    fn rates(&self, d: &mut Definition, changes: &mut Vec<String>) -> Result<(), BenchError> {
        let Some(factor) = self.rates else {
            return Ok(());
        };
        if d.tables.iter().all(|t| t.rate.is_none()) {
            return Err(BenchError::Usage(format!(
                "--rate-scale: no table of {} offers a rate",
                d.name
            )));
        }
        let words = |rates: &[f64]| match rates {
            [one] => thousands(*one),
            [first, .., last] => format!("{} to {}", thousands(*first), thousands(*last)),
            [] => String::new(),
        };
        for table in &mut d.tables {
            let heading = table.heading();
            let Some(rate) = &mut table.rate else {
                continue;
            };
            let was = rate.values();
            let now: Vec<f64> = was.iter().map(|r| (r * factor).round()).collect();
            if now != was {
                changes.push(format!(
                    "offered ops/s of {heading}: {} → {}",
                    words(&was),
                    words(&now)
                ));
                *rate = Sweep::Many(now);
            }
        }
        Ok(())
    }

    fn shape(&self, d: &mut Definition, changes: &mut Vec<String>) {
        let l = &mut d.load;
        for (name, new, old) in [
            ("clients", self.clients, &mut l.clients),
            ("jobs", self.jobs, &mut l.jobs),
            ("depth", self.depth, &mut l.depth),
            ("nconnect", self.nconnect, &mut l.nconnect),
        ] {
            let Some(new) = new else { continue };
            let mut was: Vec<u32> = Vec::new();
            for table in &mut d.tables {
                let own = match name {
                    "clients" => &mut table.clients,
                    "jobs" => &mut table.jobs,
                    "depth" => &mut table.depth,
                    _ => &mut table.nconnect,
                };
                match own.take() {
                    Some(sweep) => {
                        was.extend(sweep.values());
                        if name == "depth" {
                            table.until_peak = false;
                        }
                        *own = Some(Sweep::One(new));
                    }
                    None => was.push(*old),
                }
            }
            was.sort_unstable();
            was.dedup();
            if was != [new] {
                let was: Vec<String> = was.iter().map(u32::to_string).collect();
                changes.push(format!("{name}: {} → {new}", was.join(", ")));
            }
            *old = new;
        }
        if let Some(new) = self.durability {
            l.durability = new;
            for t in &mut d.tables {
                t.durability = None;
            }
            changes.push(format!(
                "writes: {}",
                match new {
                    Durability::Stable => "stable",
                    Durability::Unstable => "unstable, COMMIT later",
                }
            ));
        }
        if let Some(new) = self.cache {
            l.cache = new;
            for t in &mut d.tables {
                t.cache = None;
            }
            changes.push(format!("caches: {}", new.name()));
        }
    }

    fn times(
        &self,
        d: &mut Definition,
        targets: usize,
        changes: &mut Vec<String>,
    ) -> Result<(), BenchError> {
        let before = d.time;
        if let Some(r) = self.repetitions {
            d.time.repetitions = r;
        }
        if let Some(w) = self.warmup {
            d.time.warmup = w;
            // A shortened warm-up is not to wait long for a steady state.
            d.time.warmup_at_most = d.time.warmup_at_most.min(w * 4.0);
        }
        if let Some(m) = self.measure {
            d.time.measure = m;
        }
        if let Some(budget) = self.budget {
            let n = plan::points(d, targets).len() as f64 * f64::from(d.time.repetitions.max(1));
            // A fifth for making the sets and for the edges; of the rest a fifth is
            // warm-up.
            let each = budget * 0.8 / n.max(1.0) - 0.25;
            let measure = (each * 0.8).min(d.time.measure);
            if measure < LEAST_MEASURE {
                return Err(BenchError::Usage(format!(
                    "{n:.0} measurements do not fit into {}; at least {} are needed, or fewer --repetitions, or --only some tables",
                    duration(budget),
                    duration((LEAST_MEASURE / 0.8 + 0.25) * n / 0.8 + 1.0)
                )));
            }
            d.time.measure = (measure * 10.0).floor() / 10.0;
            d.time.warmup = d.time.warmup.min((each * 2.0).floor() / 10.0);
            d.time.warmup_at_most = d.time.warmup_at_most.min(d.time.warmup * 2.0);
        }
        for (name, was, now) in [
            ("measured", before.measure, d.time.measure),
            ("warm-up", before.warmup, d.time.warmup),
        ] {
            if was != now {
                changes.push(format!(
                    "{name}: {} s → {} s",
                    thousands(was),
                    thousands(now)
                ));
            }
        }
        if before.repetitions != d.time.repetitions {
            changes.push(format!(
                "repetitions: {} → {}",
                before.repetitions, d.time.repetitions
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;

    #[test]
    fn offered_rates_are_scaled_and_that_is_said() {
        let mut d = presets::load("eda").unwrap();
        let scale = Scale {
            rates: Some(0.01),
            only: vec!["Front end".into()],
            ..Scale::default()
        };
        let changes = scale.apply(&mut d, 1).unwrap();
        assert_eq!(
            changes,
            [
                "1 of 3 tables",
                "offered ops/s of Front end: 225,000 to 1,350,000 → 2,250 to 13,500"
            ]
        );
        let rates = d.tables[0].rate.as_ref().unwrap().values();
        assert_eq!(rates, [2250.0, 4500.0, 6750.0, 9000.0, 11_250.0, 13_500.0]);
        let scale = Scale {
            rates: Some(0.5),
            ..Scale::default()
        };
        let mut closed = presets::load("netapp-flex").unwrap();
        let error = scale.apply(&mut closed, 1).unwrap_err().to_string();
        assert!(
            error.contains("no table of netapp-flex offers a rate"),
            "{error}"
        );
        let scale = Scale {
            rates: Some(1e-7),
            ..Scale::default()
        };
        let error = scale.apply(&mut d, 1).unwrap_err().to_string();
        assert!(error.contains("rate = "), "{error}");
    }

    #[test]
    fn everything_that_is_changed_is_said() {
        let mut d = presets::load("netapp-extreme").unwrap();
        let scale = Scale {
            max_size: Some(Size(1 << 30)),
            clients: Some(2),
            repetitions: Some(2),
            measure: Some(3.0),
            only: vec!["random".into()],
            ..Scale::default()
        };
        let changes = scale.apply(&mut d, 1).unwrap();
        assert_eq!(
            changes,
            [
                "2 of 4 tables",
                "working set: 6 TiB → 1 GiB",
                "clients: 6 → 2",
                "measured: 60 s → 3 s",
                "repetitions: 3 → 2"
            ]
        );
        assert_eq!(d.tables.len(), 2);
        // Nothing to change, nothing to say.
        let mut d = presets::load("netapp-extreme").unwrap();
        let same = Scale {
            clients: Some(6),
            max_size: Some(Size(6 << 40)),
            ..Scale::default()
        };
        assert_eq!(same.apply(&mut d, 1).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_budget_is_kept_or_refused() {
        for (preset, targets, budget) in [
            ("netapp-extreme", 2, 240.0),
            ("netapp-extreme", 1, 3600.0),
            ("datakeeper", 2, 60.0),
            ("nconnect-sweep", 1, 300.0),
        ] {
            let mut d = presets::load(preset).unwrap();
            let scale = Scale {
                budget: Some(budget),
                max_size: Some(Size(1 << 30)),
                ..Scale::default()
            };
            scale.apply(&mut d, targets).unwrap();
            let needed = plan::seconds(&d, targets);
            assert!(needed <= budget * 0.85, "{preset}: {needed} of {budget}");
            assert!(d.time.measure >= LEAST_MEASURE, "{preset}");
        }
        let mut d = presets::load("netapp-extreme").unwrap();
        let scale = Scale {
            budget: Some(30.0),
            ..Scale::default()
        };
        let error = scale.apply(&mut d, 2).unwrap_err().to_string();
        assert!(
            error.contains("120 measurements do not fit into 30 s"),
            "{error}"
        );
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let mut d = presets::load("filestore").unwrap();
        let scale = Scale {
            max_size: Some(Size(100 << 10)),
            ..Scale::default()
        };
        let error = scale.apply(&mut d, 1).unwrap_err().to_string();
        assert!(error.contains("no block of 1 MiB"), "{error}");
    }
}
