//! Ten thousand random mutations of every kind: a check and a submission agree.

use super::random::{foretold, maybe, pick, random};
use super::replication::{create as replication, replicate, settings};
use super::*;
use crate::{
    ActiveDirectoryChange, Assign, Ceiling, NamedKind, NewActiveDirectory, NewQuotaRule,
    NewSnapshot, NumberedRule, PolicyBody, PolicyChange, PolicyName, QuotaLimits, QuotaRuleChange,
    QuotaSubject, Secret, SnapshotChange, VolumeChange,
};
use std::collections::BTreeMap;
use weir_base::Rng;
use weir_relations::manager::Verb;
use weir_relations::model::Path as Replicated;

const STEPS: usize = 1250;
const SEEDS: u64 = 8;

/// Kinds of mutations that have to be accepted at least once, and refused at least once.
const KINDS: [&str; 22] = [
    "CreatePool",
    "UpdatePool",
    "DeletePool",
    "SwitchPool",
    "CreateVolume",
    "UpdateVolume",
    "DeleteVolume",
    "RevertVolume",
    "SplitVolume",
    "RenameVolume",
    "ChangePolicy",
    "CreateSnapshot",
    "UpdateSnapshot",
    "RenameSnapshot",
    "DeleteSnapshot",
    "CreateActiveDirectory",
    "UpdateActiveDirectory",
    "DeleteActiveDirectory",
    "CreateQuotaRule",
    "UpdateQuotaRule",
    "DeleteQuotaRule",
    "Replicate",
];

const VOLUMES: &[&str] = &["v0", "v1", "v2", "v3", "v4", "v5"];
const SNAPSHOTS: &[&str] = &["s0", "s1", "s2"];

fn kind(mutation: &Mutation) -> String {
    let shown = format!("{mutation:?}");
    let word = shown.split(|c: char| !c.is_alphanumeric()).next();
    word.unwrap_or_default().to_owned()
}

fn directory(rng: &SeededRng) -> Mutation {
    let name = name(pick(rng, &["ad0", "ad1"]));
    match rng.below(4) {
        0 => Mutation::CreateActiveDirectory(
            name,
            NewActiveDirectory {
                domain: pick(rng, &["example.com", "not a domain"]).to_owned(),
                net_bios_prefix: "files".to_owned(),
                organizational_unit: String::new(),
                kdc_hostname: String::new(),
                username: "admin".to_owned(),
                password: Secret::new(crate::sim::PASSWORD),
                description: String::new(),
                labels: Default::default(),
                extra: Default::default(),
            },
        ),
        1 => Mutation::UpdateActiveDirectory(
            name,
            ActiveDirectoryChange {
                description: Some(pick(rng, &["a", "b"]).to_owned()),
                ..ActiveDirectoryChange::default()
            },
        ),
        _ => Mutation::DeleteActiveDirectory(name),
    }
}

fn policy(rng: &SeededRng) -> Mutation {
    let kind = [NamedKind::Qos, NamedKind::Export][rng.below(2) as usize];
    let policy = PolicyName::new(kind, "p1", pick(rng, &["one", "two"]));
    let body = match rng.below(4) {
        0 => PolicyBody::Export(vec![NumberedRule {
            index: 1,
            rule: crate::ExportRule {
                allowed_clients: pick(rng, &["10.0.0.0/8", "nonsense"]).to_owned(),
                ..crate::ExportRule::default()
            },
            words: Default::default(),
        }]),
        _ => PolicyBody::Qos(Ceiling {
            bytes: maybe(rng, 2, || 1 << 24),
            ops: maybe(rng, 2, || 5000),
        }),
    };
    let change = match rng.below(4) {
        0 => PolicyChange::Create {
            comment: String::new(),
            body,
        },
        1 => PolicyChange::Delete,
        _ => PolicyChange::Set {
            revision: rng.below(4),
            comment: Some(pick(rng, &["a", "b"]).to_owned()),
            body: maybe(rng, 2, || body),
        },
    };
    Mutation::ChangePolicy(policy, change)
}

fn relation(rng: &SeededRng) -> Mutation {
    let (from, to) = (pick(rng, VOLUMES), pick(rng, VOLUMES));
    let destination = Replicated::local("p1", to);
    match rng.below(6) {
        0..=1 => replication(from, to, u128::from(rng.below(1 << 20))),
        2 => replicate(Verb::Delete(destination)),
        3 => replicate(Verb::Quiesce(destination)),
        _ => {
            let mut settings = settings();
            replicate(settings.swap_remove(rng.below(settings.len() as u64) as usize))
        }
    }
}

fn quota(rng: &SeededRng) -> Mutation {
    let name = vol(pick(rng, VOLUMES)).quota_rule(pick(rng, &["q0", "q1"]));
    let bytes = [1 << 20, 0][rng.below(2) as usize];
    match rng.below(4) {
        0..=1 => Mutation::CreateQuotaRule(
            name,
            NewQuotaRule {
                subject: QuotaSubject::User(rng.below(3) as u32),
                limits: QuotaLimits {
                    bytes,
                    ..QuotaLimits::default()
                },
                description: String::new(),
                labels: Default::default(),
                extra: Default::default(),
            },
        ),
        2 => Mutation::UpdateQuotaRule(
            name,
            QuotaRuleChange {
                bytes: Some(bytes),
                ..QuotaRuleChange::default()
            },
        ),
        _ => Mutation::DeleteQuotaRule(name),
    }
}

/// Returns a mutation of any kind.
fn any(rng: &SeededRng) -> Mutation {
    let volume = vol(pick(rng, VOLUMES));
    let snapshot = volume.snapshot(pick(rng, SNAPSHOTS));
    match rng.below(20) {
        0 => Mutation::SwitchPool(name(pick(rng, &["p0", "p1", "none"]))),
        1 => Mutation::SplitVolume(volume),
        2 => Mutation::RenameVolume {
            name: volume,
            to: pick(rng, VOLUMES).to_owned(),
        },
        3 => Mutation::CreateSnapshot(snapshot, NewSnapshot::default()),
        4 => Mutation::UpdateSnapshot(
            snapshot,
            SnapshotChange {
                description: Some("x".repeat(rng.below(3000) as usize)),
                ..SnapshotChange::default()
            },
        ),
        5 => Mutation::RenameSnapshot {
            name: snapshot,
            to: pick(rng, SNAPSHOTS).to_owned(),
        },
        6 => directory(rng),
        7 => policy(rng),
        8 => {
            let qos = Some(Some(pick(rng, &["one", "two"]).to_owned()));
            let assign = Assign {
                qos,
                ..Assign::default()
            };
            let change = VolumeChange {
                assign,
                ..VolumeChange::default()
            };
            Mutation::UpdateVolume(volume, change)
        }
        9 => {
            let mut new = new_volume(&volume.id, pick(rng, &["p0", "p1"]), 100);
            new.clone_of = Some(snapshot);
            Mutation::CreateVolume(vol(pick(rng, VOLUMES)), new)
        }
        10 => relation(rng),
        11 => quota(rng),
        _ => random(rng),
    }
}

#[tokio::test]
async fn check_and_submission_agree_on_ten_thousand_mutations() {
    // Numbers of each kind that were accepted, and how many refused.
    let mut seen: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let bench = Bench::new().await;
        let rng = SeededRng::new(seed);
        for step in 0..STEPS {
            let mutation = any(&rng);
            let context = format!("seed {seed}, step {step}, {mutation:?}");
            let before = bench.control.view();
            let preview = bench.control.preview(&mutation, &Actor::local()).await;
            let after = bench.control.view();
            assert_eq!(after.revision, before.revision, "{context}");
            let submitted = bench.submit(mutation.clone()).await;
            assert_eq!(
                preview.as_ref().err(),
                submitted.as_ref().err(),
                "{context}"
            );
            let counts = seen.entry(kind(&mutation)).or_default();
            counts[usize::from(submitted.is_err())] += 1;
            if let (Ok(preview), Ok(operation)) = (&preview, &submitted)
                && matches!(operation.outcome, Some(Outcome::Done | Outcome::Deleted))
            {
                foretold(preview, &bench.control.view(), &mutation, &context);
            }
        }
    }
    let all: usize = seen.values().flatten().sum();
    assert_eq!(all, 10_000);
    for kind in KINDS {
        let [accepted, refused] = seen.get(kind).copied().unwrap_or_default();
        assert!(
            accepted > 0 && refused > 0,
            "{kind}: {accepted} and {refused}\n{seen:#?}"
        );
    }
    assert_eq!(seen.len(), KINDS.len(), "{seen:#?}");
}
