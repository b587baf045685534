//! Policies by name, as in ONTAP: export rules, maxima and snapshot schedules that belong to a
//! project, and to which volumes refer. Their effects are in `rules::policies`.

use crate::model::{ExportRule, Extra, Period};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use weir_relations::policy;
pub use weir_relations::policy::NamedKind;
use weir_relations::schedule::{Numbers, Schedule, WEEKDAYS};

/// Highest id of the policies that every server has.
pub(crate) const LAST_BUILTIN: u64 = 2;

/// A policy's name, unique among those of its kind in its project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyName {
    /// Kind of the policy.
    pub kind: NamedKind,
    /// Bare id of the project; empty: for all projects.
    pub project: Arc<str>,
    /// Bare id; the project's, for a project's own row.
    pub id: Arc<str>,
}

impl PolicyName {
    /// Creates the name of a policy in a project.
    pub fn new(kind: NamedKind, project: &str, id: &str) -> PolicyName {
        PolicyName {
            kind,
            project: project.into(),
            id: id.into(),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let project = match &*self.project {
            "" => "-",
            project => project,
        };
        write!(
            f,
            "projects/{project}/{}/{}",
            self.kind.collection(),
            self.id
        )
    }
}

/// A policy in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedPolicy {
    /// Identifier, never reused; volumes refer to the policy by it.
    pub id: u64,
    /// Name: project and bare id.
    pub name: PolicyName,
    /// Number of changes.
    pub revision: u64,
    /// Free text of up to 2,048 bytes.
    pub comment: String,
    /// Contents, of its name's kind.
    pub body: PolicyBody,
}

impl NamedPolicy {
    /// Returns true for a policy that every server has, unchanged.
    pub fn is_builtin(&self) -> bool {
        self.id <= LAST_BUILTIN
    }
}

/// Content of a policy in the catalog.
pub type PolicyBody = policy::PolicyBody<NumberedRule, Copies>;

/// Change of a policy in the catalog.
pub type PolicyChange = policy::PolicyChange<PolicyBody>;

/// A rule of an export policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumberedRule {
    /// Place among the other rules, from 1.
    pub index: u32,
    /// The rule that the node enforces.
    pub rule: ExportRule,
    /// The client's own fields of the rule.
    pub words: Extra,
}

/// One schedule of a snapshot policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Name of the schedule when it was copied.
    pub schedule: Arc<str>,
    /// Times of the schedule when it was copied.
    pub at: Schedule,
    /// Number of snapshots kept; 0 takes none.
    pub keep: u32,
}

/// Returns the period of a schedule and its form in the NetApp Volumes API, without the number of
/// kept snapshots.
pub(crate) fn described(at: &Schedule) -> Option<(Period, Value)> {
    let Schedule::At {
        minutes,
        hours,
        days,
        months,
        weekdays,
    } = at
    else {
        return None;
    };
    let one = |numbers: &Numbers| match numbers.list().as_slice() {
        [one] => Some(*one),
        _ => None,
    };
    let all = |numbers: &Numbers, low, high| *numbers == Numbers::from_range(low, high);
    let minute = one(minutes)?;
    let (any_day, any_weekday) = (all(days, 1, 31), all(weekdays, 0, 6));
    if !all(months, 1, 12) {
        return None;
    }
    if all(hours, 0, 23) && any_day && any_weekday {
        return Some((Period::Hourly, json!({"minute": minute})));
    }
    let hour = one(hours)?;
    let listed = |words: Vec<String>| words.join(",");
    match (any_day, any_weekday) {
        (true, true) => Some((Period::Daily, json!({"hour": hour, "minute": minute}))),
        (true, false) => {
            let named = weekdays.list().into_iter();
            let named = named
                .filter_map(|n| WEEKDAYS.get(n as usize))
                .map(|d| (*d).to_owned());
            let day = listed(named.collect());
            Some((
                Period::Weekly,
                json!({"day": day, "hour": hour, "minute": minute}),
            ))
        }
        (false, true) => {
            let days = listed(days.list().iter().map(u32::to_string).collect());
            Some((
                Period::Monthly,
                json!({"daysOfMonth": days, "hour": hour, "minute": minute}),
            ))
        }
        (false, false) => None,
    }
}

impl Copies {
    /// Returns the prefix and label of its snapshots; `None` for a schedule that [`PolicyBody`]
    /// cannot contain.
    pub fn period(&self) -> Option<Period> {
        described(&self.at).map(|(period, _)| period)
    }
}

/// Returns the policy in the form of the NetApp Volumes API.
pub(crate) fn as_sent(enabled: bool, copies: &[Copies]) -> Value {
    let mut out = json!({"enabled": enabled});
    for copies in copies {
        let (Some((period, mut at)), Some(out)) = (described(&copies.at), out.as_object_mut())
        else {
            continue;
        };
        if let Some(at) = at.as_object_mut() {
            at.insert("snapshotsToKeep".to_owned(), json!(copies.keep));
        }
        out.insert(crate::policy::field_of(period).to_owned(), at);
    }
    out
}

/// Returns the policies that every catalog has, unchanged: ONTAP's own snapshot policies.
pub(crate) fn builtin() -> Vec<NamedPolicy> {
    let copies = |schedule: &str, at, keep| Copies {
        schedule: schedule.into(),
        at,
        keep,
    };
    let sunday = Numbers::one(0);
    let hourly = copies("hourly", Schedule::hourly(5), 6);
    let daily = copies("daily", Schedule::daily(0, 10), 2);
    let weekly = |keep| copies("weekly", Schedule::weekly(sunday, 0, 15), keep);
    let policy = |id, name: &str, comment: &str, copies| NamedPolicy {
        id,
        name: PolicyName::new(NamedKind::Snapshot, "", name),
        revision: 1,
        comment: comment.to_owned(),
        body: PolicyBody::Snapshot {
            enabled: true,
            copies,
        },
    };
    vec![
        policy(
            1,
            "default",
            "Default policy with hourly, daily & weekly schedules.",
            vec![hourly.clone(), daily.clone(), weekly(2)],
        ),
        policy(
            LAST_BUILTIN,
            "default-1weekly",
            "Default policy with 6 hourly, 2 daily & 1 weekly schedule.",
            vec![hourly, daily, weekly(1)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_said_as_the_other_api_says_them() {
        let said = |cron: &str| described(&Schedule::cron(cron).unwrap());
        for (cron, wanted) in [
            ("5 * * * *", Some((Period::Hourly, json!({"minute": 5})))),
            (
                "10 0 * * *",
                Some((Period::Daily, json!({"hour": 0, "minute": 10}))),
            ),
            (
                "15 3 * * 1,5",
                Some((
                    Period::Weekly,
                    json!({"day": "monday,friday", "hour": 3, "minute": 15}),
                )),
            ),
            (
                "20 0 1,15 * *",
                Some((
                    Period::Monthly,
                    json!({"daysOfMonth": "1,15", "hour": 0, "minute": 20}),
                )),
            ),
            ("0,30 * * * *", None),
            ("0 2,10,18 * * *", None),
            ("0 0 1 * 1", None),
            ("0 0 1 6 *", None),
        ] {
            assert_eq!(said(cron), wanted, "{cron}");
            // Parsing gives the same times again.
            if let Some((period, _)) = wanted {
                let copies = Copies {
                    schedule: "s".into(),
                    at: Schedule::cron(cron).unwrap(),
                    keep: 3,
                };
                let rules =
                    crate::policy::parse(&as_sent(true, std::slice::from_ref(&copies))).unwrap();
                assert_eq!(rules[&period].schedule, copies.at, "{cron}");
                assert_eq!(rules[&period].keep, 3);
            }
        }
        assert_eq!(described(&Schedule::Every(300)), None);
    }
}
