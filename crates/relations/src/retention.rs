//! Which snapshots a policy copies, and which of the copies it deletes.
//!
//! A rule names snapshots by their label. `sm_created` means the one that a transfer takes for itself, and
//! `all_source_snapshots` all that the source has. What is to be copied are, from the newest that both sides have on, the
//! source's snapshots that a rule names, oldest first, so that the destination's history is in order whenever a transfer
//! is cut short. Of the copies, each rule keeps its newest; nothing that no rule names is ever deleted (a user put it
//! there), and never the newest that both sides have, without which the next transfer would have to begin anew.

use std::collections::BTreeSet;

pub use crate::model::{ALL, SM_CREATED};
use crate::model::{Policy, Rule, SnapshotIdentity};

/// A snapshot on either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its name: the same on both sides.
    pub name: String,
    /// What distinguishes it from another of the same name: the same on both sides.
    pub id: SnapshotIdentity,
    /// Its `snapmirror-label`, or [`SM_CREATED`]; `None`: it has none.
    pub label: Option<String>,
}

fn named_by(policy: &Policy, snapshot: &Held) -> bool {
    policy
        .rules
        .iter()
        .any(|rule| rule.label == ALL || rule.copies(snapshot.label.as_deref()))
}

/// The newest snapshot that both sides have. Both lists are oldest first.
pub fn common<'h>(source: &'h [Held], destination: &[Held]) -> Option<&'h Held> {
    let there: BTreeSet<SnapshotIdentity> = destination.iter().map(|held| held.id).collect();
    source.iter().rev().find(|held| there.contains(&held.id))
}

/// What to copy, oldest first. `source` ends with the transfer's own snapshot where the policy requires one.
pub fn to_copy<'h>(policy: &Policy, source: &'h [Held], destination: &[Held]) -> Vec<&'h Held> {
    let after = common(source, destination).map(|common| common.id);
    let from = source
        .iter()
        .position(|held| Some(held.id) == after)
        .map_or(0, |at| at + 1);
    let newer = source.get(from..).unwrap_or_default();
    newer.iter().filter(|held| named_by(policy, held)).collect()
}

/// Whether a transfer takes a snapshot of its own.
pub fn takes_own(policy: &Policy) -> bool {
    policy.rules.iter().any(|rule| rule.label == SM_CREATED)
}

/// The rule that preserves its copies and for which there would be more than it keeps.
pub fn overfull<'p>(policy: &'p Policy, destination: &[Held], copies: &[Held]) -> Option<&'p Rule> {
    let of = |held: &[Held], rule: &Rule| {
        let named = |h: &&Held| rule.copies(h.label.as_deref());
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

/// The copies to delete, oldest first.
pub fn to_drop<'h>(policy: &Policy, source: &[Held], destination: &'h [Held]) -> Vec<&'h Held> {
    let needed = common(source, destination).map(|held| held.id);
    let at_source: BTreeSet<SnapshotIdentity> = source.iter().map(|held| held.id).collect();
    let mirrors_all = policy.rules.iter().any(|rule| rule.label == ALL);
    let mut drop = BTreeSet::new();
    let rotates = |rule: &&Rule| rule.label != ALL && !rule.preserve;
    for rule in policy.rules.iter().filter(rotates) {
        let of_rule: Vec<&Held> = destination
            .iter()
            .filter(|held| held.label.as_deref() == Some(rule.label.as_str()))
            .collect();
        // Saturates: there may be fewer than are to be kept.
        let surplus = of_rule.len().saturating_sub(rule.keep as usize);
        drop.extend(of_rule.into_iter().take(surplus).map(|held| held.id));
    }
    if mirrors_all {
        // A copy of all is a copy of what is there now, no archive. Snapshots of other transfers are theirs to delete.
        let theirs = |held: &Held| held.label.as_deref() == Some(SM_CREATED);
        // And what was made here is no copy.
        let own = |held: &Held| {
            let label = held.label.as_deref();
            let scheduled = |rule: &Rule| rule.schedule.is_some() && label == Some(&*rule.label);
            policy.rules.iter().any(scheduled)
        };
        let at_source = |held: &Held| own(held) || at_source.contains(&held.id);
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

    /// `daily3` has the label `daily`; a bare number none; `sm4` is a transfer's own.
    fn held(names: &[&str]) -> Vec<Held> {
        let one = |name: &&str| {
            let label = name.trim_end_matches(|c: char| c.is_ascii_digit());
            Held {
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

    fn names(held: Vec<&Held>) -> Vec<&str> {
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
        let label = |there: &[Held], more: &[Held]| {
            overfull(&vault, there, more).map(|rule| rule.label.clone())
        };
        assert_eq!(label(&there[..2], &more).as_deref(), Some("daily"));
        assert_eq!(label(&there[..2], &more[1..]), None);
        assert_eq!(label(&there[..1], &more), None);
    }

    /// What the destination makes itself is neither copied nor taken for what its source has forgotten, and rotates.
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

    /// Volumes of one aggregate differ in a few low bits, and so do a volume's snapshots: whatever is added up, one of
    /// another volume's is met. Each field alone makes another snapshot.
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
        let one = |id| Held {
            name: "x".to_owned(),
            id,
            label: None,
        };
        for a in 1..8 {
            for b in (1..8).filter(|b| *b != a) {
                let source: Vec<Held> = (1..12).map(|n| one(of(a, n, 5))).collect();
                let own: Vec<Held> = (1..12).map(|n| one(of(b, n, 5))).collect();
                assert_eq!(common(&source, &own), None);
            }
        }
        // An aggregate that was restored from an older image gives out the number again.
        assert_eq!(common(&[one(of(1, 3, 5))], &[one(of(1, 3, 6))]), None);
    }
}
