//! Selection of the snapshots that a policy copies, and of the copies that it deletes.
//!
//! A rule names snapshots by their label. `sm_created` means the one that a transfer takes itself,
//! and `all_source_snapshots` means all that the source has.
//!
//! A transfer copies the snapshots that a rule names and that are newer than the newest common one.
//! It copies the oldest first, so that the destination's history is in order even if a transfer is
//! cut short.
//!
//! Each rule keeps its newest copies. A snapshot that no rule names is never deleted, because a
//! user created it. Neither is the newest common snapshot, without which the next transfer would
//! have to start with a new baseline.

use std::collections::BTreeSet;

pub use crate::model::{ALL, SM_CREATED};
use crate::model::{Policy, Rule, SnapshotIdentity};

/// A snapshot on either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledSnapshot {
    /// Name, the same on both sides.
    pub name: String,
    /// Identity, the same on both sides; distinguishes snapshots of the same name.
    pub id: SnapshotIdentity,
    /// The `snapmirror-label`, or [`SM_CREATED`]; `None` if it has none.
    pub label: Option<String>,
}

fn named_by(policy: &Policy, snapshot: &LabelledSnapshot) -> bool {
    policy
        .rules
        .iter()
        .any(|rule| rule.label == ALL || rule.copies(snapshot.label.as_deref()))
}

/// Returns the newest snapshot that both sides have. Both lists are oldest first.
pub fn common<'h>(
    source: &'h [LabelledSnapshot],
    destination: &[LabelledSnapshot],
) -> Option<&'h LabelledSnapshot> {
    let there: BTreeSet<SnapshotIdentity> = destination.iter().map(|held| held.id).collect();
    source.iter().rev().find(|held| there.contains(&held.id))
}

/// Returns the snapshots to copy, oldest first. `source` ends with the transfer's own snapshot if
/// the policy requires one.
pub fn to_copy<'h>(
    policy: &Policy,
    source: &'h [LabelledSnapshot],
    destination: &[LabelledSnapshot],
) -> Vec<&'h LabelledSnapshot> {
    let after = common(source, destination).map(|common| common.id);
    let from = source
        .iter()
        .position(|held| Some(held.id) == after)
        .map_or(0, |at| at + 1);
    let newer = source.get(from..).unwrap_or_default();
    newer.iter().filter(|held| named_by(policy, held)).collect()
}

/// Returns true if a transfer takes a snapshot of its own.
pub fn takes_own(policy: &Policy) -> bool {
    policy.rules.iter().any(|rule| rule.label == SM_CREATED)
}

/// Returns a rule with `preserve` whose limit would be exceeded by `copies`.
pub fn overfull<'p>(
    policy: &'p Policy,
    destination: &[LabelledSnapshot],
    copies: &[LabelledSnapshot],
) -> Option<&'p Rule> {
    let of = |held: &[LabelledSnapshot], rule: &Rule| {
        let named = |h: &&LabelledSnapshot| rule.copies(h.label.as_deref());
        held.iter().filter(named).count()
    };
    policy
        .rules
        .iter()
        .filter(|rule| rule.preserve)
        .find(|rule| {
            let more = of(copies, rule);
            more > 0 && of(destination, rule) + more > rule.keep as usize
        })
}

/// Returns the copies to delete, oldest first.
pub fn to_drop<'h>(
    policy: &Policy,
    source: &[LabelledSnapshot],
    destination: &'h [LabelledSnapshot],
) -> Vec<&'h LabelledSnapshot> {
    let needed = common(source, destination).map(|held| held.id);
    let at_source: BTreeSet<SnapshotIdentity> = source.iter().map(|held| held.id).collect();
    let mirrors_all = policy.rules.iter().any(|rule| rule.label == ALL);
    let mut drop = BTreeSet::new();
    let rotates = |rule: &&Rule| rule.label != ALL && !rule.preserve;
    for rule in policy.rules.iter().filter(rotates) {
        let of_rule: Vec<&LabelledSnapshot> = destination
            .iter()
            .filter(|held| held.label.as_deref() == Some(rule.label.as_str()))
            .collect();
        // Saturates: the rule may keep more than there are.
        let surplus = of_rule.len().saturating_sub(rule.keep as usize);
        drop.extend(of_rule.into_iter().take(surplus).map(|held| held.id));
    }
    if mirrors_all {
        // A mirror of all snapshots has only those that the source has now. Own snapshots of
        // transfers are deleted by their transfers.
        let theirs = |held: &LabelledSnapshot| held.label.as_deref() == Some(SM_CREATED);
        // Snapshots that the destination took itself are not copies.
        let own = |held: &LabelledSnapshot| {
            let label = held.label.as_deref();
            let scheduled = |rule: &Rule| rule.schedule.is_some() && label == Some(&*rule.label);
            policy.rules.iter().any(scheduled)
        };
        let at_source = |held: &LabelledSnapshot| own(held) || at_source.contains(&held.id);
        drop.retain(|id| {
            destination
                .iter()
                .any(|held| held.id == *id && (theirs(held) || !at_source(held)))
        });
        drop.extend(
            destination
                .iter()
                .filter(|held| !theirs(held) && !at_source(held))
                .map(|held| held.id),
        );
    }
    destination
        .iter()
        .filter(|held| drop.contains(&held.id) && Some(held.id) != needed)
        .collect()
}

#[cfg(test)]
mod tests {
    use weir_base::{AggregateId, Time, VolumeId};

    use super::*;
    use crate::model::system_policies;

    fn policy(name: &str) -> Policy {
        system_policies()
            .into_iter()
            .find(|p| p.name == name)
            .unwrap()
    }

    fn numbered(n: u32) -> SnapshotIdentity {
        SnapshotIdentity {
            aggregate: AggregateId([1; 16]),
            volume: VolumeId(1),
            snapshot: n,
            birth: Time::EPOCH,
        }
    }

    /// Builds snapshots from names: `daily3` has the label `daily`, `2` has none, and `sm4` is a
    /// transfer's own.
    fn held(names: &[&str]) -> Vec<LabelledSnapshot> {
        let one = |name: &&str| {
            let label = name.trim_end_matches(|c: char| c.is_ascii_digit());
            LabelledSnapshot {
                name: (*name).to_owned(),
                id: numbered(name.bytes().fold(0, |id, byte| id << 8 | u32::from(byte))),
                label: match label {
                    "" => None,
                    "sm" => Some(SM_CREATED.to_owned()),
                    label => Some(label.to_owned()),
                },
            }
        };
        names.iter().map(one).collect()
    }

    fn names(held: Vec<&LabelledSnapshot>) -> Vec<&str> {
        held.into_iter().map(|h| h.name.as_str()).collect()
    }

    #[test]
    fn a_vault_copies_what_its_rules_name() {
        let source = held(&["daily1", "hourly2", "daily3", "weekly4", "5", "sm6"]);
        let vault = policy("XDPDefault");
        assert!(!takes_own(&vault));
        assert_eq!(
            names(to_copy(&vault, &source, &[])),
            ["daily1", "daily3", "weekly4"]
        );
        assert_eq!(
            names(to_copy(&vault, &source, &held(&["daily1"]))),
            ["daily3", "weekly4"]
        );
        assert_eq!(
            names(to_copy(&vault, &source, &held(&["daily1", "weekly4"]))),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn a_mirror_copies_all_and_forgets_what_the_source_forgot() {
        let all = policy("MirrorAllSnapshots");
        assert!(takes_own(&all));
        let source = held(&["2", "daily3", "sm5"]);
        let destination = held(&["1", "2", "sm4"]);
        assert_eq!(
            names(to_copy(&all, &source, &destination)),
            ["daily3", "sm5"]
        );
        let destination = held(&["1", "2", "daily3", "sm4", "sm5"]);
        assert_eq!(names(to_drop(&all, &source, &destination)), ["1", "sm4"]);
        let latest = policy("MirrorLatest");
        assert_eq!(names(to_copy(&latest, &source, &[])), ["sm5"]);
    }

    #[test]
    fn rules_keep_their_newest_and_the_common_one_stays() {
        let vault = policy("XDPDefault");
        let dailies: Vec<String> = (1..=9).map(|n| format!("daily{n}")).collect();
        let dailies: Vec<&str> = dailies.iter().map(String::as_str).collect();
        let destination = held(&dailies);
        assert_eq!(
            names(to_drop(&vault, &held(&["daily9"]), &destination)),
            ["daily1", "daily2"]
        );
        assert_eq!(
            names(to_drop(&vault, &held(&["daily1"]), &destination)),
            ["daily2"],
            "the common one is needed"
        );
        assert_eq!(
            names(to_drop(&vault, &[], &held(&["mine1", "2"]))),
            Vec::<&str>::new(),
            "no rule names them"
        );
    }

    #[test]
    fn a_rule_that_preserves_deletes_nothing_and_takes_no_more() {
        let mut vault = policy("XDPDefault");
        let daily = vault.rules.iter_mut().find(|r| r.label == "daily").unwrap();
        (daily.keep, daily.preserve) = (2, true);
        let there = held(&["daily1", "daily2", "daily3"]);
        assert_eq!(
            names(to_drop(&vault, &there[2..], &there)),
            Vec::<&str>::new()
        );
        let more = held(&["daily3", "weekly4"]);
        let label = |there: &[LabelledSnapshot], more: &[LabelledSnapshot]| {
            overfull(&vault, there, more).map(|rule| rule.label.clone())
        };
        assert_eq!(label(&there[..2], &more).as_deref(), Some("daily"));
        assert_eq!(label(&there[..2], &more[1..]), None);
        assert_eq!(label(&there[..1], &more), None);
    }

    /// Snapshots that the destination takes itself are not copied and not deleted as missing at the
    /// source; they rotate.
    #[test]
    fn a_rule_with_a_schedule_copies_nothing() {
        let mut vault = policy("XDPDefault");
        let daily = vault.rules.iter_mut().find(|r| r.label == "daily").unwrap();
        (daily.keep, daily.schedule) = (1, Some("hourly".to_owned()));
        let source = held(&["weekly1", "daily2", "weekly3"]);
        assert_eq!(names(to_copy(&vault, &source, &[])), ["weekly1", "weekly3"]);
        let destination = held(&["weekly1", "daily7", "daily8"]);
        assert_eq!(names(to_drop(&vault, &source, &destination)), ["daily7"]);
        vault.rules.push(Rule::new(ALL, 1));
        assert_eq!(
            names(to_drop(&vault, &source, &destination)),
            Vec::<&str>::new()
        );
        let (none, two) = (held(&[]), held(&["daily1", "daily2"]));
        vault.rules.iter_mut().for_each(|rule| rule.preserve = true);
        assert_eq!(overfull(&vault, &none, &two), None);
    }

    #[test]
    fn names_alone_make_nothing_common() {
        let mut destination = held(&["daily1"]);
        destination[0].id.snapshot += 1;
        assert_eq!(common(&held(&["daily1"]), &destination), None);
    }

    /// Volumes of an aggregate differ in a few low bits only, and so do the snapshots of a volume.
    /// A sum of the fields would therefore collide with a snapshot of another volume. A difference
    /// in any one field makes another snapshot.
    #[test]
    fn a_snapshot_of_the_copys_own_is_no_common_one() {
        let of = |volume, snapshot, birth| SnapshotIdentity {
            volume: VolumeId(volume),
            snapshot,
            birth: Time {
                secs: birth,
                nanos: 0,
            },
            ..numbered(0)
        };
        let one = |id| LabelledSnapshot {
            name: "x".to_owned(),
            id,
            label: None,
        };
        for a in 1..8 {
            for b in (1..8).filter(|b| *b != a) {
                let source: Vec<LabelledSnapshot> = (1..12).map(|n| one(of(a, n, 5))).collect();
                let own: Vec<LabelledSnapshot> = (1..12).map(|n| one(of(b, n, 5))).collect();
                assert_eq!(common(&source, &own), None);
            }
        }
        // An aggregate that was restored from an older image assigns the number again.
        assert_eq!(common(&[one(of(1, 3, 5))], &[one(of(1, 3, 6))]), None);
    }
}
