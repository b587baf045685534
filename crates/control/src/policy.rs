//! Snapshot policies: the rules of a volume's schedules, and the actions due now.
//!
//! Nothing is counted down. A schedule's last run is stored with the volume, in the transaction
//! that accepts the snapshot. The due actions follow from it and from the time
//! ([`weir_relations::schedule`]). So a restart changes nothing, and missed runs count as one run.
//! If a clock is set back a little, the schedule waits, since those slots have been served. If it
//! is set back far, the last run counts as now, so that a schedule does not pause until the old
//! time comes again.
//!
//! Times are UTC, as in the public API.

use crate::model::{Period, Run, Runs, Volume};
use crate::refusal::{Refusal, Status};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use weir_base::limits::api::MAX_SNAPSHOT_POLICY;
use weir_relations::schedule::{Numbers, Schedule, WEEKDAYS, due};

/// Maximum seconds that a clock may be set back without a slot being served again. Less than the
/// interval of two slots.
const PATIENCE: i64 = 30 * 60;

/// One schedule of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The slots at which it takes a snapshot.
    pub schedule: Schedule,
    /// Number of its snapshots that are kept.
    pub keep: usize,
}

/// The schedules in force.
pub type Rules = BTreeMap<Period, Rule>;

/// Action of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// None: no slot is due.
    Nothing,
    /// A snapshot is due now.
    Snapshot,
    /// Its times have to be corrected: they are missing, or in the future.
    Settling,
}

/// Parses the schedules of a policy in the API's form: `enabled`, `hourlySchedule`, … . The
/// schedules of a disabled policy, and those that keep nothing, are checked and left out.
///
/// # Errors
/// `RESOURCE_TOO_LARGE`, `SNAPSHOT_POLICY_INVALID` with the field.
pub fn parse(policy: &Value) -> Result<Rules, Refusal> {
    let size = policy.to_string().len();
    if size > MAX_SNAPSHOT_POLICY {
        return Err(Refusal::new(
            Status::InvalidArgument,
            "RESOURCE_TOO_LARGE",
            format!("a snapshot policy of {size} bytes; 16,384 fit"),
        ));
    }
    let Value::Object(policy) = policy else {
        return match policy {
            Value::Null => Ok(Rules::new()),
            _ => Err(invalid("snapshotPolicy", "it is no object")),
        };
    };
    let enabled = matches!(policy.get("enabled"), Some(Value::Bool(true)));
    let mut rules = Rules::new();
    for period in Period::ALL {
        let field = field_of(*period);
        let Some(Value::Object(schedule)) = policy.get(field) else {
            continue;
        };
        let rule = rule(*period, &Schedules { field, schedule })?;
        if enabled && rule.keep > 0 {
            rules.insert(*period, rule);
        }
    }
    let kept: usize = rules.values().map(|rule| rule.keep).sum();
    if kept > weir_volume::MAX_SNAPSHOTS {
        let words = format!(
            "{kept} snapshots to keep; a volume has {} at most",
            weir_volume::MAX_SNAPSHOTS
        );
        return Err(invalid("snapshotPolicy", &words));
    }
    Ok(rules)
}

pub(crate) fn field_of(period: Period) -> &'static str {
    match period {
        Period::Hourly => "hourlySchedule",
        Period::Daily => "dailySchedule",
        Period::Weekly => "weeklySchedule",
        Period::Monthly => "monthlySchedule",
    }
}

fn invalid(field: &str, why: &str) -> Refusal {
    Refusal::new(
        Status::InvalidArgument,
        "SNAPSHOT_POLICY_INVALID",
        format!("{field}: {why}"),
    )
    .field("snapshotPolicy")
}

/// The fields of a schedule, and its name.
struct Schedules<'a> {
    field: &'static str,
    schedule: &'a Map<String, Value>,
}

impl Schedules<'_> {
    fn invalid(&self, name: &str, why: &str) -> Refusal {
        invalid(&format!("snapshotPolicy.{}.{name}", self.field), why)
    }

    /// Returns a whole number, which the API encodes as a floating one.
    fn number(&self, name: &str, most: u32) -> Result<Option<u32>, Refusal> {
        let Some(value) = self.schedule.get(name).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let number = value.as_f64().unwrap_or(f64::NAN);
        if number.fract() == 0.0 && (0.0..=f64::from(most)).contains(&number) {
            return Ok(Some(number as u32));
        }
        Err(self.invalid(
            name,
            &format!("a whole number from 0 to {most} is wanted, not {value}"),
        ))
    }

    /// Returns a comma-separated list; `default` if there is none.
    fn list(
        &self,
        name: &str,
        default: &str,
        (from, to): (u32, u32),
        wanted: &str,
        read: impl Fn(&str) -> Option<u32>,
    ) -> Result<Numbers, Refusal> {
        let text = match self.schedule.get(name) {
            None | Some(Value::Null) => default,
            Some(Value::String(text)) if text.trim().is_empty() => default,
            Some(Value::String(text)) => text,
            Some(_) => return Err(self.invalid(name, wanted)),
        };
        let each: Option<Vec<u32>> = text.split(',').map(|word| read(word.trim())).collect();
        each.and_then(|each| Numbers::from_numbers(each, from, to))
            .ok_or_else(|| {
                let text: String = text.chars().take(100).collect();
                self.invalid(
                    name,
                    &format!("{wanted}, with commas between several, not {text:?}"),
                )
            })
    }
}

/// Parses a day of the week, 0 = Sunday, from its name or the first three letters.
fn weekday(word: &str) -> Option<u32> {
    let word = word.to_ascii_lowercase();
    let is = |day: &&str| **day == word || day.get(..3) == Some(word.as_str());
    WEEKDAYS.iter().position(is).map(|at| at as u32)
}

fn rule(period: Period, fields: &Schedules<'_>) -> Result<Rule, Refusal> {
    let most = weir_volume::MAX_SNAPSHOTS as u32;
    let Some(keep) = fields.number("snapshotsToKeep", most)? else {
        return Err(fields.invalid(
            "snapshotsToKeep",
            "how many to keep has to be said; 0 takes none",
        ));
    };
    let minute = fields.number("minute", 59)?.unwrap_or(0);
    let hour = || Ok::<u32, Refusal>(fields.number("hour", 23)?.unwrap_or(0));
    let schedule = match period {
        Period::Hourly => Schedule::hourly(minute),
        Period::Daily => Schedule::daily(hour()?, minute),
        Period::Weekly => {
            let days = fields.list("day", "Sunday", (0, 6), "a day of the week", weekday)?;
            Schedule::weekly(days, hour()?, minute)
        }
        Period::Monthly => {
            let wanted = "a day of the month, 1 to 31";
            let days = fields.list("daysOfMonth", "1", (1, 31), wanted, |word| {
                word.parse().ok()
            })?;
            Schedule::monthly(days, hour()?, minute)
        }
    };
    Ok(Rule {
        schedule,
        keep: keep as usize,
    })
}

/// Returns the rules of a volume; none if its policy cannot be read.
pub fn volume_rules(volume: &Volume) -> Rules {
    let policy = volume.snapshot_policy.as_ref();
    policy
        .and_then(|policy| parse(policy).ok())
        .unwrap_or_default()
}

/// Updates the runs after a change of the policy, or at the beginning. New or changed schedules
/// count from `now` on, and removed ones are forgotten.
pub fn follow(volume: &mut Volume, before: &Rules, now: i64) {
    let rules = volume_rules(volume);
    volume
        .snapshot_runs
        .retain(|period, _| rules.contains_key(period));
    for (period, rule) in &rules {
        let same = before
            .get(period)
            .is_some_and(|old| old.schedule == rule.schedule);
        if !same || !volume.snapshot_runs.contains_key(period) {
            let run = Run {
                since: now,
                last: None,
            };
            volume.snapshot_runs.insert(*period, run);
        }
    }
}

/// Returns the action of a schedule that is due at `now`.
pub fn wants(rule: &Rule, runs: &Runs, period: Period, now: i64) -> Wants {
    let Some(run) = runs.get(&period) else {
        return Wants::Settling;
    };
    let latest = run.last.unwrap_or(run.since).max(run.since);
    if latest > now.saturating_add(PATIENCE) {
        return Wants::Settling;
    }
    match due(&rule.schedule, run.last, run.since, now) {
        true => Wants::Snapshot,
        false => Wants::Nothing,
    }
}

/// Corrects the times that [`wants`] found wrong.
pub fn correct_times(volume: &mut Volume, now: i64) {
    let before = volume_rules(volume);
    follow(volume, &before, now);
    correct(&mut volume.snapshot_runs, now);
}

/// Sets times of runs in the future to `now`.
pub fn correct(runs: &mut Runs, now: i64) {
    for run in runs.values_mut() {
        let ahead = |at: i64| at > now.saturating_add(PATIENCE);
        if ahead(run.since) {
            run.since = now;
        }
        run.last = run.last.map(|last| if ahead(last) { now } else { last });
    }
}

/// Records that a schedule has run at `now`, successfully or not.
pub fn ran(runs: &mut Runs, period: Period, now: i64) {
    let run = runs.entry(period).or_insert(Run {
        since: now,
        last: None,
    });
    run.last = Some(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn policies_as_clients_send_them() {
        let policy = json!({
            "enabled": true,
            "hourlySchedule": {"snapshotsToKeep": 24.0, "minute": 5.0},
            "dailySchedule": {"snapshotsToKeep": 7, "hour": 2},
            "weeklySchedule": {"snapshotsToKeep": 4, "day": "Monday, fri", "hour": 3, "minute": 15},
            "monthlySchedule": {"snapshotsToKeep": 0, "daysOfMonth": "1,15"},
        });
        let rules = parse(&policy).unwrap();
        let kept: Vec<_> = rules
            .iter()
            .map(|(period, rule)| (*period, rule.keep))
            .collect();
        assert_eq!(
            kept,
            [
                (Period::Hourly, 24),
                (Period::Daily, 7),
                (Period::Weekly, 4)
            ]
        );
        let cron = |text: &str| Schedule::cron(text).unwrap();
        assert_eq!(rules[&Period::Hourly].schedule, cron("5 * * * *"));
        assert_eq!(rules[&Period::Daily].schedule, cron("0 2 * * *"));
        assert_eq!(rules[&Period::Weekly].schedule, cron("15 3 * * 1,5"));
        let monthly = json!({"enabled": true, "monthlySchedule": {"snapshotsToKeep": 1, "daysOfMonth": "1,15"}});
        assert_eq!(
            parse(&monthly).unwrap()[&Period::Monthly].schedule,
            cron("0 0 1,15 * *")
        );
        let plain = json!({"enabled": true, "weeklySchedule": {"snapshotsToKeep": 1}});
        assert_eq!(
            parse(&plain).unwrap()[&Period::Weekly].schedule,
            cron("0 0 * * 0")
        );
        let off = json!({"enabled": false, "hourlySchedule": {"snapshotsToKeep": 1}});
        assert_eq!(parse(&off).unwrap(), Rules::new());
        assert_eq!(parse(&Value::Null).unwrap(), Rules::new());
    }

    #[test]
    fn what_is_refused() {
        for (schedule, field) in [
            (
                json!({"hourlySchedule": {"minute": 5}}),
                "snapshotPolicy.hourlySchedule.snapshotsToKeep",
            ),
            (
                json!({"hourlySchedule": {"snapshotsToKeep": 1.5}}),
                "snapshotsToKeep",
            ),
            (
                json!({"hourlySchedule": {"snapshotsToKeep": 1, "minute": 60}}),
                "minute",
            ),
            (
                json!({"hourlySchedule": {"snapshotsToKeep": 1, "minute": -1}}),
                "minute",
            ),
            (
                json!({"dailySchedule": {"snapshotsToKeep": 1, "hour": 24}}),
                "hour",
            ),
            (
                json!({"dailySchedule": {"snapshotsToKeep": 1, "hour": "noon"}}),
                "hour",
            ),
            (
                json!({"weeklySchedule": {"snapshotsToKeep": 1, "day": "Sonntag"}}),
                "day",
            ),
            (
                json!({"weeklySchedule": {"snapshotsToKeep": 1, "day": "Monday,"}}),
                "day",
            ),
            (
                json!({"monthlySchedule": {"snapshotsToKeep": 1, "daysOfMonth": "0"}}),
                "daysOfMonth",
            ),
            (
                json!({"monthlySchedule": {"snapshotsToKeep": 1, "daysOfMonth": "1,32"}}),
                "daysOfMonth",
            ),
            (
                json!({"hourlySchedule": {"snapshotsToKeep": 1e9}}),
                "snapshotsToKeep",
            ),
            (
                json!({"enabled": true, "hourlySchedule": {"snapshotsToKeep": 9000}, "dailySchedule": {"snapshotsToKeep": 9000}}),
                "snapshotPolicy",
            ),
            (json!("hourly"), "snapshotPolicy"),
        ] {
            let refusal = parse(&schedule).unwrap_err();
            assert_eq!(refusal.reason, "SNAPSHOT_POLICY_INVALID", "{schedule}");
            assert!(
                refusal.message.contains(field),
                "{schedule}: {}",
                refusal.message
            );
        }
        let large = json!({"note": "x".repeat(20_000)});
        assert_eq!(parse(&large).unwrap_err().reason, "RESOURCE_TOO_LARGE");
    }
}
