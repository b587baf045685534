//! Quota rules: what is accepted, what the node gets, and what outlives a restart.

use super::*;
use crate::backend::Facts;
use crate::quota::Quotas;
use crate::{NewQuotaRule, QuotaLimits, QuotaRuleChange, QuotaSubject, VolumeChange};
use weir_volume::{QuotaId, QuotaRules};

fn create(id: &str, subject: QuotaSubject, bytes: u64) -> Mutation {
    let new = NewQuotaRule {
        subject,
        limits: QuotaLimits {
            bytes,
            ..QuotaLimits::default()
        },
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    };
    Mutation::CreateQuotaRule(vol("v").quota_rule(id), new)
}

fn delete(id: &str) -> Mutation {
    Mutation::DeleteQuotaRule(vol("v").quota_rule(id))
}

fn update(id: &str, change: QuotaRuleChange) -> Mutation {
    Mutation::UpdateQuotaRule(vol("v").quota_rule(id), change)
}

/// Returns the rules that the node holds the volume to.
fn published(bench: &Bench) -> QuotaRules {
    let key = bench.control.view().volume(&vol("v")).unwrap().key.clone();
    let published = bench.node.published().unwrap();
    let mut exports = published.exports.iter();
    exports.find(|e| e.key == *key).unwrap().quotas.clone()
}

async fn bench() -> Bench {
    let bench = Bench::new().await;
    bench
        .done(pool("p", "PREMIUM", 10_240, QosType::Auto))
        .await;
    bench.done(volume("v", "p", 1024)).await;
    bench
}

#[tokio::test]
async fn rules_reach_the_node_and_outlive_a_restart() {
    let mut bench = bench().await;
    bench.done(create("u", QuotaSubject::User(7), 4096)).await;
    bench
        .done(create("all", QuotaSubject::DefaultGroup, 8192))
        .await;
    for _ in 0..2 {
        let rules = published(&bench);
        assert_eq!(rules.own[&QuotaId::user(7)].bytes, 4096);
        assert_eq!(rules.default_group.unwrap().bytes, 8192);
        assert_eq!(rules.default_user, None);
        bench.restart(3).await;
    }
    let more = QuotaRuleChange {
        bytes: Some(1 << 20),
        soft_bytes: Some(5),
        ..QuotaRuleChange::default()
    };
    bench.done(update("u", more)).await;
    let limit = published(&bench).own[&QuotaId::user(7)];
    assert_eq!((limit.bytes, limit.soft_bytes), (1 << 20, 5));
    let off = VolumeChange {
        quotas_on: Some(false),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("v"), off)).await;
    assert!(published(&bench).is_empty());
    let on = VolumeChange {
        quotas_on: Some(true),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("v"), on)).await;
    assert_eq!(published(&bench).own.len(), 1);
    bench.done(delete("u")).await;
    bench.done(delete("all")).await;
    assert!(published(&bench).is_empty());
}

#[tokio::test]
async fn rules_that_cannot_hold_are_refused() {
    let bench = bench().await;
    bench.done(create("u", QuotaSubject::User(7), 4096)).await;
    for (mutation, reason) in [
        (create("u", QuotaSubject::User(8), 1), "NAME_TAKEN"),
        (create("w", QuotaSubject::User(7), 1), "QUOTA_EXISTS"),
        (create("9", QuotaSubject::User(9), 1), "NAME_INVALID"),
        (delete("w"), "NOT_FOUND"),
        (update("w", QuotaRuleChange::default()), "NOT_FOUND"),
    ] {
        assert_eq!(bench.refused(mutation).await.reason, reason);
    }
    let soft = QuotaRuleChange {
        soft_bytes: Some(4097),
        ..QuotaRuleChange::default()
    };
    assert_eq!(
        bench.refused(update("u", soft)).await.reason,
        "QUOTA_INVALID"
    );
    bench.node.set_facts(Facts {
        usage_off: true,
        ..Facts::default()
    });
    let refusal = bench.refused(create("x", QuotaSubject::User(10), 1)).await;
    assert!(refusal.message.contains("weir upgrade"), "{refusal}");
}

fn rule(id: &str, subject: QuotaSubject, limits: QuotaLimits) -> crate::QuotaRule {
    crate::QuotaRule {
        id: id.into(),
        subject,
        limits,
        created: crate::Stamp::from_nanos(7),
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    }
}

/// Limits that take the most digits.
const LONG: QuotaLimits = QuotaLimits {
    bytes: u64::MAX,
    soft_bytes: u64::MAX,
    files: u64::MAX,
    soft_files: u64::MAX,
};

#[tokio::test]
async fn rules_outlive_the_catalog() {
    let mut bench = bench().await;
    let limits = QuotaLimits {
        files: 9,
        ..QuotaLimits::default()
    };
    bench.done(create("u", QuotaSubject::User(7), 4096)).await;
    bench
        .done(create("all", QuotaSubject::DefaultGroup, 8192))
        .await;
    bench
        .done(Mutation::CreateQuotaRule(
            vol("v").quota_rule("files"),
            NewQuotaRule {
                limits,
                ..match create("files", QuotaSubject::Group(9), 0) {
                    Mutation::CreateQuotaRule(_, new) => new,
                    _ => unreachable!(),
                }
            },
        ))
        .await;
    let (before, rules) = (published(&bench), rules_of(&bench));
    for off in [false, true] {
        let change = VolumeChange {
            quotas_on: Some(!off),
            ..VolumeChange::default()
        };
        bench.done(Mutation::UpdateVolume(vol("v"), change)).await;
        bench.rebuild(3).await;
        assert_eq!(rules_of(&bench), rules);
        assert_eq!(
            published(&bench),
            if off {
                QuotaRules::default()
            } else {
                before.clone()
            }
        );
    }
}

/// Returns id, subject and limits of the volume's rules.
fn rules_of(bench: &Bench) -> Vec<(String, QuotaSubject, QuotaLimits)> {
    let view = bench.control.view();
    let rules = view.volume(&vol("v")).unwrap().quotas.rules.iter();
    rules
        .map(|rule| (rule.id.to_string(), rule.subject, rule.limits))
        .collect()
}

#[test]
fn a_record_holds_the_most_rules() {
    let now = crate::Stamp::from_nanos(7);
    let most = weir_base::limits::api::MAX_QUOTA_RULES as u32;
    let limits = QuotaLimits {
        bytes: 1 << 50,
        soft_bytes: 1 << 49,
        ..QuotaLimits::default()
    };
    let mut rules: Vec<_> = (0..most)
        .map(|n| {
            rule(
                &format!("{n:x>63}"),
                QuotaSubject::User(u32::MAX - n),
                limits,
            )
        })
        .collect();
    rules.sort_by(|a, b| a.id.cmp(&b.id));
    let quotas = Quotas { rules, off: false };
    let room = weir_volume::MAX_ANNOTATION - 1000;
    let length = |lines: &[String]| lines.iter().map(|line| line.len() + 3).sum::<usize>();
    assert!(length(&quotas.recorded(true)) > room);
    let lines = quotas.recorded(false);
    assert!(length(&lines) <= room, "{}", length(&lines));
    let read = Quotas::from_recorded(&lines, false, now);
    let subjects = |quotas: &Quotas| {
        let mut all: Vec<_> = quotas.rules.iter().map(|r| (r.subject, r.limits)).collect();
        all.sort_by_key(|(subject, _)| *subject);
        all
    };
    assert_eq!(subjects(&read), subjects(&quotas));
    assert_eq!(
        &*read.find_rule(QuotaSubject::User(u32::MAX)).unwrap().id,
        "user-4294967295"
    );
}

#[test]
fn recorded_rules_round_trip_and_damaged_ones_are_left_out() {
    let now = crate::Stamp::from_nanos(7);
    let rules = vec![
        rule("a", QuotaSubject::DefaultUser, QuotaLimits::default()),
        rule("b", QuotaSubject::Group(0), LONG),
    ];
    let quotas = Quotas { rules, off: true };
    let mut lines = quotas.recorded(true);
    assert_eq!(lines[0], "a u");
    assert_eq!(Quotas::from_recorded(&lines, true, now), quotas);
    for bad in [
        "",
        "c",
        "c ",
        "c x7",
        "c u-1 5",
        "c u7 five",
        "a u8 1",
        "d u 1",
        "é é",
    ] {
        lines.push(bad.to_owned());
    }
    assert_eq!(Quotas::from_recorded(&lines, true, now), quotas);
}
