//! Quota rules: what is accepted, what the node gets, and what outlives a restart.

use super::*;
use crate::backend::Facts;
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
