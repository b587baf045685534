//! Relationships in the catalog: stored, audited, and protected together with their volumes and
//! snapshots.

use super::*;
use crate::sim::identity;
use crate::{NewSnapshot, Role, State};
use weir_relations::manager::{Done, Preconditions, Side, Step, Verb};
use weir_relations::model::{CopiedSnapshot, LastTransfer, MirrorState, Path, TransferKind};
use weir_relations::retention::LabelledSnapshot;

fn path(volume: &str) -> Path {
    Path::local("p1", volume)
}

fn preconditions(unique: u128) -> Preconditions {
    let side = |data_protection| {
        Ok(Side {
            size: None,
            data_protection,
            snapshots: vec![LabelledSnapshot {
                name: "base".to_owned(),
                id: identity(1, 1),
                label: None,
            }],
            uuid: [u8::from(data_protection); 16],
            above: Vec::new(),
        })
    };
    Preconditions {
        unique,
        source: side(false),
        destination: side(true),
        ..Preconditions::none()
    }
}

pub(super) fn replicate(verb: Verb) -> Mutation {
    let preconditions = preconditions(7);
    Mutation::Replicate {
        verb,
        preconditions,
    }
}

pub(super) fn create(from: &str, to: &str, unique: u128) -> Mutation {
    let verb = Verb::Create {
        source: path(from),
        destination: path(to),
        policy: Some("mine".to_owned()),
        schedule: Some("often".to_owned()),
        throttle: Some(8192),
        tries: None,
        note: None,
        initialize: None,
    };
    let preconditions = preconditions(unique);
    Mutation::Replicate {
        verb,
        preconditions,
    }
}

pub(super) fn settings() -> Vec<Verb> {
    vec![
        Verb::PolicyCreate {
            name: "mine".to_owned(),
            kind: weir_relations::model::PolicyKind::MirrorVault,
            comment: String::new(),
            compression: true,
            rules: Vec::new(),
        },
        Verb::PolicyRule {
            name: "mine".to_owned(),
            label: "daily".to_owned(),
            keep: Some(7),
            preserve: None,
            schedule: None,
            prefix: None,
        },
        Verb::ScheduleCreate {
            name: "often".to_owned(),
            schedule: weir_relations::schedule::Schedule::Every(60),
        },
        Verb::PolicyRule {
            name: "mine".to_owned(),
            label: "kept".to_owned(),
            keep: Some(2),
            preserve: None,
            schedule: Some(Some("often".to_owned())),
            prefix: Some(Some("sv".to_owned())),
        },
        Verb::PeerCreate {
            name: "far".to_owned(),
            address: None,
            fingerprint: "cd".repeat(32),
        },
        Verb::GlobalThrottle {
            incoming: true,
            max: None,
        },
        Verb::GlobalThrottle {
            incoming: false,
            max: Some(4096),
        },
    ]
}

/// `src` with snapshots `old` and `base`, and `dst`.
async fn volumes(bench: &Bench) {
    bench
        .done(pool("p", "PREMIUM", 10_240, QosType::Auto))
        .await;
    for id in ["src", "dst"] {
        bench.done(volume(id, "p", 100)).await;
    }
    for id in ["old", "base"] {
        let snapshot = vol("src").snapshot(id);
        bench
            .done(Mutation::CreateSnapshot(snapshot, NewSnapshot::default()))
            .await;
    }
}

pub async fn relationships_are_rows(bench: &mut Bench) {
    volumes(bench).await;
    for verb in settings() {
        bench.done(replicate(verb)).await;
    }
    bench.done(create("src", "dst", 7)).await;
    bench
        .done(replicate(Verb::Initialize {
            destination: path("dst"),
            source_snapshot: None,
            throttle: None,
        }))
        .await;
    let view = bench.control.view();
    let entry = view.relations.entry(&path("dst")).unwrap().clone();
    let base = vol("src").snapshot("base");
    let engine = view.snapshot(&base).unwrap().engine.unwrap();
    let ended = Step::Ended {
        relationship: entry.uuid.clone(),
        transfer: entry.pending.as_ref().unwrap().uuid.clone(),
        outcome: Ok(Done {
            newest: Some(CopiedSnapshot {
                name: "base".to_owned(),
                taken: 1,
                id: engine.identity,
            }),
            above: Vec::new(),
        }),
        last: Some(LastTransfer {
            uuid: entry.pending.as_ref().unwrap().uuid.clone(),
            snapshot: None,
            kind: TransferKind::Initialize,
            bytes: 1,
            wire_bytes: 1,
            duration_ms: 1,
            setup_ms: 0,
            data_ms: 1,
            finalize_ms: 0,
            rate: 1,
            end: 2,
            error: None,
        }),
    };
    let served = Step::Served {
        relationship: entry.uuid.clone(),
        source: path("src"),
        destination: path("dst"),
        newest: engine.identity,
    };
    bench.control.record_steps(&[ended, served]).await.unwrap();
    let before = bench.control.view().relations.clone();
    let now = before.entry(&path("dst")).unwrap();
    assert_eq!(
        (now.state, &now.pending),
        (MirrorState::Snapmirrored, &None)
    );
    bench.restart(2).await;
    assert_eq!(bench.control.view().relations, before, "as it was");

    let target = |id: &str| vol("src").snapshot(id);
    let revert = |snapshot: &str| Mutation::RevertVolume {
        name: vol("src"),
        snapshot: snapshot.to_owned(),
    };
    let delete = |id: &str| Mutation::DeleteVolume {
        name: vol(id),
        force: true,
    };
    let rename = Mutation::RenameSnapshot {
        name: target("base"),
        to: "other".to_owned(),
    };
    for (mutation, reason) in [
        (delete("src"), "VOLUME_REPLICATED"),
        (delete("dst"), "VOLUME_REPLICATED"),
        (
            Mutation::DeleteSnapshot(target("base")),
            "SNAPSHOT_REPLICATED",
        ),
        (rename, "SNAPSHOT_REPLICATED"),
        (revert("old"), "SNAPSHOT_REPLICATED"),
        (
            replicate(Verb::PolicyDelete("mine".to_owned())),
            "REPLICATION_STATE",
        ),
        (
            replicate(Verb::ScheduleDelete("often".to_owned())),
            "REPLICATION_STATE",
        ),
        (create("src", "dst", 8), "ALREADY_EXISTS"),
        // Its volume existed when the preconditions were gathered, and does not now.
        (create("src", "gone", 9), "NOT_FOUND"),
        (create("gone", "src", 9), "NOT_FOUND"),
    ] {
        let words = format!("{mutation:?}");
        assert_eq!(
            bench
                .control
                .preview(&mutation, &Actor::local())
                .await
                .unwrap_err()
                .reason,
            reason
        );
        let refusal = bench.refused(mutation).await;
        assert_eq!(refusal.reason, reason, "{words}: {refusal}");
    }
    assert_eq!(bench.control.view().relations, before);
    // Unneeded resources can be deleted, in the end all of them.
    bench.done(revert("base")).await;
    bench.done(Mutation::DeleteSnapshot(target("old"))).await;
    bench.done(replicate(Verb::Delete(path("dst")))).await;
    bench.refused(delete("src")).await;
    bench.done(replicate(Verb::Release(path("dst")))).await;
    bench.done(delete("src")).await;
    bench.done(delete("dst")).await;
    let uuid = entry.uuid.clone();
    bench
        .control
        .record_steps(&[Step::Forgotten(uuid)])
        .await
        .unwrap();
    bench.restart(3).await;
    assert!(bench.control.view().relations.known().next().is_none());
    let log = bench
        .control
        .audit(None, 100, &Actor::local())
        .await
        .unwrap();
    let said = |verb: &str, target: &str, outcome: &str| {
        let line = |e: &&crate::AuditEntry| e.verb == verb && e.target == target;
        let found = log.iter().filter(line).any(|e| e.outcome == outcome);
        assert!(found, "{verb} {target} {outcome}: {log:?}");
    };
    said("snapmirror create", "p1:dst", "done");
    said("snapmirror initialize", "p1:dst", "queued");
    said(
        "snapmirror create",
        "p1:dst",
        "refused: Relationship with destination \"p1:dst\" already exists.",
    );
    said("cluster peer create", "far", "done");
    let operations = bench.control.view();
    let replicating = |o: &crate::Operation| matches!(o.job, crate::Job::Relation { .. });
    assert!(!operations.operations.values().any(|o| replicating(o)));
}

#[tokio::test]
async fn relationships_are_kept_in_sqlite() {
    relationships_are_rows(&mut Bench::new().await).await;
}

#[tokio::test]
async fn a_destination_is_made_in_one_operation() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    for (id, protection) in [("plain", false), ("dst", true)] {
        let new = crate::NewVolume {
            protection,
            ..new_volume(id, "p", 1)
        };
        bench.done(Mutation::CreateVolume(vol(id), new)).await;
        let key = bench.control.view().volume(&vol(id)).unwrap().key.clone();
        assert_eq!(bench.node.list_volumes()[&*key].protection, protection);
    }
}

/// A revert deletes newer snapshots: no transfer is in progress when it begins, and none begins
/// before it has ended.
#[tokio::test]
async fn a_revert_and_a_transfer_keep_out_of_each_others_way() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    for verb in settings() {
        bench.done(replicate(verb)).await;
    }
    for id in ["src", "dst"] {
        bench.done(volume(id, "p", 1)).await;
    }
    let old = vol("src").snapshot("old");
    bench
        .done(Mutation::CreateSnapshot(old, NewSnapshot::default()))
        .await;
    bench.done(create("src", "dst", 7)).await;
    let entry = || {
        let view = bench.control.view();
        Arc::clone(view.relations.entry(&path("dst")).unwrap())
    };
    let update = || {
        replicate(Verb::Update {
            destination: path("dst"),
            source_snapshot: None,
            throttle: None,
        })
    };
    let copied = CopiedSnapshot {
        name: "old".to_owned(),
        taken: 1,
        id: identity(1, 1),
    };
    let uuid = entry().uuid.clone();
    let settle = |step| async { bench.control.record_steps(&[step]).await.unwrap() };
    settle(Step::Snapshot(uuid.clone(), copied)).await;
    let revert = || Mutation::RevertVolume {
        name: vol("src"),
        snapshot: "old".to_owned(),
    };
    bench.done(update()).await;
    assert_eq!(bench.refused(revert()).await.reason, "TRANSFER_IN_PROGRESS");
    let abort = Verb::Abort {
        destination: path("dst"),
        hard: false,
    };
    bench.done(replicate(abort)).await;

    let set = |state| {
        let (store, name) = (Arc::clone(&bench.control.context.store), vol("src"));
        async move {
            let made = store.commit_with_retry(|tx| {
                let volume = tx.view.volume(&name).cloned().unwrap();
                tx.set_state(&volume, state, "", None);
            });
            made.await.unwrap();
        }
    };
    set(State::Restoring).await;
    assert_eq!(bench.refused(update()).await.reason, "TRANSFER_IN_PROGRESS");
    settle(Step::Due(uuid.clone())).await;
    assert_eq!(entry().pending, None);
    set(State::Ready).await;
    settle(Step::Due(uuid)).await;
    assert!(entry().pending.is_some(), "what was due is made up for");
}

/// If a volume is deleted while a relationship with it is created, one of the two is refused,
/// whichever comes first.
#[tokio::test]
async fn a_volume_and_a_relationship_do_not_pass_each_other() {
    let bench = Bench::new().await;
    bench
        .done(pool("p", "PREMIUM", 10_240, QosType::Auto))
        .await;
    for verb in settings() {
        bench.done(replicate(verb)).await;
    }
    let (mut made, mut deleted) = (0, 0);
    for n in 0..40u32 {
        let (from, to) = (format!("s{n}"), format!("d{n}"));
        bench.done(volume(&from, "p", 1)).await;
        bench.done(volume(&to, "p", 1)).await;
        let going = if n % 2 == 0 { &from } else { &to };
        let deletion = Mutation::DeleteVolume {
            name: vol(going),
            force: true,
        };
        let creation = create(&from, &to, u128::from(n) + 1);
        // In either order, and as close to each other as tasks can be.
        let (first, second) = match n % 4 < 2 {
            true => (deletion.clone(), creation),
            false => (creation, deletion.clone()),
        };
        let control = Arc::clone(&bench.control);
        let other = tokio::spawn(async move { control.submit(first, &Actor::local()).await });
        let second = bench.submit(second).await;
        let first = other.await.unwrap();
        assert_ne!(first.is_ok(), second.is_ok(), "{n}: {first:?} {second:?}");
        let view = bench.control.view();
        let relationship = view.relations.entry(&path(&to)).is_some();
        let volume = view.volume(&vol(going));
        let there = volume.is_some_and(|v| v.state != State::Deleting);
        assert_eq!(relationship, there, "{n}");
        match relationship {
            true => made += 1,
            false => deleted += 1,
        }
    }
    assert!(made > 0 && deleted > 0, "{made} {deleted}");
}

#[tokio::test]
async fn who_may_read_all_volumes_is_for_administrators() {
    let bench = Bench::new().await;
    let editor = Actor {
        name: "terraform".into(),
        role: Role::Editor,
        address: None,
    };
    for verb in settings() {
        let pairs = matches!(verb, Verb::PeerCreate { .. });
        let submitted = bench.control.submit(replicate(verb), &editor).await;
        let refused = submitted.err().map(|why| why.reason);
        assert_eq!(refused.as_deref(), pairs.then_some("ROLE_INSUFFICIENT"));
    }
}
