//! Soft limits of quotas: who is over one, as conditions and in the log.
//!
//! A soft limit refuses nothing. Usage is compared every ten seconds, for volumes whose rules have
//! soft limits. The log has a line when a user, a group or a qtree comes to be over one, and one
//! when it is no more. A server that starts writes a line for each that is over one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use weir_api::live::{Condition, ConditionKind as Kind, Severity};
use weir_base::BLOCK_SIZE;
use weir_control::{Surface, View, Volume};
use weir_volume::{QuotaEntry, QuotaKind};

use crate::control::condition_words as texts;

/// Seconds between two comparisons.
const PERIOD: u64 = 10;
/// Number of owners that a condition names.
const NAMED: usize = 5;

/// Kind of usage that a soft limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Space,
    Files,
}

/// A user, a group or a qtree over a soft limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Over {
    kind: QuotaKind,
    id: u32,
    of: Of,
}

impl Over {
    fn owner(self) -> String {
        let kind = match self.kind {
            QuotaKind::User => "user",
            QuotaKind::Group => "group",
            QuotaKind::Tree => "qtree",
        };
        format!("{kind} {}", self.id)
    }
}

/// A passing of a soft limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LimitCrossing {
    volume: String,
    over: Over,
    /// True if it is over the limit now.
    up: bool,
}

/// Soft limits that are exceeded.
#[derive(Default)]
pub struct SoftLimits {
    compared: Option<u64>,
    /// By the volume's full name.
    over: BTreeMap<String, BTreeSet<Over>>,
}

fn has_soft_limits(volume: &Volume) -> bool {
    let mut rules = volume.quotas.rules.iter();
    let soft = rules.any(|rule| rule.limits.soft_bytes > 0 || rule.limits.soft_files > 0);
    soft && !volume.quotas.off
}

fn exceeded(entry: &QuotaEntry) -> impl Iterator<Item = Over> + use<> {
    let counted = |n: i64| u64::try_from(n).unwrap_or(0);
    // Saturates: nothing that exists is as large.
    let bytes = counted(entry.usage.blocks).saturating_mul(BLOCK_SIZE as u64);
    let files = counted(entry.usage.files);
    let limit = &entry.limit;
    let (kind, id) = (entry.id.kind, entry.id.id);
    let space = limit.soft_bytes > 0 && bytes > limit.soft_bytes;
    let many = limit.soft_files > 0 && files > limit.soft_files;
    let all = [(space, Of::Space), (many, Of::Files)];
    let over = all.into_iter().filter(|(over, _)| *over);
    over.map(move |(_, of)| Over { kind, id, of })
}

impl SoftLimits {
    /// Returns the conditions at `at`, in seconds since 1970. `report` returns the usage of a
    /// volume.
    pub fn find(
        &mut self,
        at: u64,
        view: &View,
        report: impl Fn(&Volume) -> Vec<QuotaEntry>,
    ) -> Vec<Condition> {
        let due = self
            .compared
            .is_none_or(|before| at.abs_diff(before) >= PERIOD);
        if due {
            self.compared = Some(at);
            let volumes = view.every_volume(Surface::Netapp);
            let limited = volumes.filter(|volume| has_soft_limits(volume));
            let now = limited.map(|volume| (volume.name.to_string(), report(volume)));
            for crossing in self.compare(now) {
                let LimitCrossing { volume, over, up } = crossing;
                let (owner, of) = (over.owner(), over.of);
                match up {
                    true => tracing::warn!(volume, owner, ?of, "over the soft limit of a quota"),
                    false => {
                        tracing::info!(volume, owner, ?of, "below the soft limit of a quota again")
                    }
                }
            }
        }
        self.over
            .iter()
            .map(|(volume, over)| condition(volume, over))
            .collect()
    }

    /// Notes who is over a soft limit now. Returns who was not before, and who is no more.
    fn compare(
        &mut self,
        now: impl Iterator<Item = (String, Vec<QuotaEntry>)>,
    ) -> Vec<LimitCrossing> {
        let mut before = std::mem::take(&mut self.over);
        let mut crossings = Vec::new();
        for (volume, entries) in now {
            let over: BTreeSet<Over> = entries.iter().flat_map(exceeded).collect();
            let was = before.remove(&volume).unwrap_or_default();
            let passed = |over: Over, up| LimitCrossing {
                volume: volume.clone(),
                over,
                up,
            };
            crossings.extend(over.difference(&was).map(|over| passed(*over, true)));
            crossings.extend(was.difference(&over).map(|over| passed(*over, false)));
            if !over.is_empty() {
                self.over.insert(volume, over);
            }
        }
        for (volume, was) in before {
            crossings.extend(was.into_iter().map(|over| LimitCrossing {
                volume: volume.clone(),
                over,
                up: false,
            }));
        }
        crossings
    }
}

fn condition(volume: &str, over: &BTreeSet<Over>) -> Condition {
    let owners: BTreeSet<(QuotaKind, u32)> = over.iter().map(|over| (over.kind, over.id)).collect();
    let named: Vec<(QuotaKind, u32)> = owners.iter().take(NAMED).copied().collect();
    let short = volume.rsplit('/').next().unwrap_or(volume);
    let mut condition = Condition::new(
        Kind::QuotaSoftLimit,
        Severity::Warning,
        volume,
        texts::over_soft_limits(short, &named, owners.len()),
        texts::below_soft_limits(),
    );
    let count = json!(owners.len());
    condition.details.insert("owners".to_owned(), count);
    condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api::words::Language;
    use weir_volume::{QuotaId, QuotaLimit, QuotaUsage};

    fn entry(id: QuotaId, blocks: i64, files: i64) -> QuotaEntry {
        QuotaEntry {
            id,
            usage: QuotaUsage { blocks, files },
            limit: QuotaLimit {
                soft_bytes: 8192,
                soft_files: 3,
                ..QuotaLimit::default()
            },
        }
    }

    fn compared(soft: &mut SoftLimits, entries: Vec<QuotaEntry>) -> Vec<(u32, Of, bool)> {
        let crossings = soft.compare([("a/v".to_owned(), entries)].into_iter());
        crossings
            .into_iter()
            .map(|c| (c.over.id, c.over.of, c.up))
            .collect()
    }

    #[test]
    fn each_crossing_is_told_once() {
        let mut soft = SoftLimits::default();
        let (user, group) = (QuotaId::user(7), QuotaId::group(8));
        assert_eq!(
            compared(&mut soft, vec![entry(user, 2, 3), entry(group, -1, 0)]),
            []
        );
        let over = vec![entry(user, 3, 3), entry(group, 0, 4)];
        let told = [(7, Of::Space, true), (8, Of::Files, true)];
        assert_eq!(compared(&mut soft, over.clone()), told);
        assert_eq!(compared(&mut soft, over), []);
        let all: Vec<_> = soft
            .over
            .iter()
            .map(|(v, over)| condition(v, over))
            .collect();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].resource, "a/v");
        assert!(
            all[0]
                .message
                .text(Language::English)
                .ends_with("in v: user 7, group 8"),
            "{}",
            all[0].message
        );
        let later = vec![entry(user, 3, 4), entry(group, 0, 3)];
        assert_eq!(
            compared(&mut soft, later),
            [(7, Of::Files, true), (8, Of::Files, false)]
        );
        // The rules are gone.
        let gone = soft.compare(std::iter::empty());
        assert_eq!(gone.len(), 2);
        assert!(gone.iter().all(|crossing| !crossing.up));
        assert!(soft.over.is_empty());
    }

    #[test]
    fn a_condition_names_a_few() {
        let over = (0..8).map(|id| Over {
            kind: QuotaKind::User,
            id,
            of: Of::Space,
        });
        let condition = condition("v", &over.collect());
        assert!(
            condition
                .message
                .text(Language::English)
                .ends_with("user 4, 3 more"),
            "{}",
            condition.message
        );
    }
}
