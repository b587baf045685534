//! Policies by name: their volumes follow them, over restarts, and a change that a volume cannot
//! follow is refused.

use super::*;
use crate::{
    Assign, Ceiling, Copies, ExportRule, NamedKind, NewSnapshot, NumberedRule, Period, PolicyBody,
    PolicyChange, PolicyName, State, Status, TreePolicy, VolumeChange,
};
use weir_relations::schedule::Schedule;

const MIB: u64 = 1 << 20;

fn policy(kind: NamedKind, id: &str) -> PolicyName {
    PolicyName::new(kind, "p1", id)
}

fn make(kind: NamedKind, id: &str, body: PolicyBody) -> Mutation {
    let comment = String::new();
    Mutation::ChangePolicy(policy(kind, id), PolicyChange::Create { comment, body })
}

fn set(kind: NamedKind, id: &str, revision: u64, body: PolicyBody) -> Mutation {
    let change = PolicyChange::Set {
        revision,
        comment: None,
        body: Some(body),
    };
    Mutation::ChangePolicy(policy(kind, id), change)
}

fn clients(each: &[&str]) -> PolicyBody {
    let rules = each.iter().zip(1..).map(|(clients, index)| NumberedRule {
        index,
        rule: ExportRule {
            allowed_clients: (*clients).to_owned(),
            ..ExportRule::default()
        },
        words: Default::default(),
    });
    PolicyBody::Export(rules.collect())
}

fn maximum(mib: u64, ops: Option<u64>) -> PolicyBody {
    PolicyBody::Qos(Ceiling {
        bytes: Some(mib * MIB),
        ops,
    })
}

fn assign(id: &str, assign: Assign) -> Mutation {
    let change = VolumeChange {
        assign,
        ..VolumeChange::default()
    };
    Mutation::UpdateVolume(vol(id), change)
}

fn assign_policy(id: &str) -> Option<Option<String>> {
    Some(Some(id.to_owned()))
}

impl Bench {
    fn find_volume(&self, id: &str) -> Arc<crate::Volume> {
        Arc::clone(self.control.view().volume(&vol(id)).unwrap())
    }

    /// Returns the clients of the first rule that the node enforces; `None` if the volume has no
    /// rules of its own.
    fn admitted(&self, id: &str) -> Option<Vec<String>> {
        let key = &self.find_volume(id).key;
        let published = self.node.published().unwrap();
        let export = published.exports.iter().find(|e| e.key == **key).unwrap();
        let rules = export.rules.as_ref()?;
        Some(rules.first().map(|r| r.clients.clone()).unwrap_or_default())
    }

    /// Returns the paths at which the node serves a volume; none if it does not.
    fn served_paths(&self, id: &str) -> Vec<String> {
        let key = &self.find_volume(id).key;
        let published = self.node.published().unwrap();
        let found = published.exports.iter().find(|e| e.key == **key);
        found.map(|e| e.paths.clone()).unwrap_or_default()
    }

    fn limits(&self, id: &str) -> (Option<u64>, Option<u64>) {
        let number = self.find_volume(id).number.unwrap();
        let published = self.node.published().unwrap();
        let plan = published
            .plan
            .volumes
            .iter()
            .find(|p| p.volume == number)
            .unwrap();
        (plan.limits.total.bytes, plan.limits.total.ops)
    }
}

async fn setting() -> Bench {
    let bench = Bench::new().await;
    bench
        .done(pool("auto", "PREMIUM", 4096, QosType::Auto))
        .await;
    bench
        .done(pool("manual", "PREMIUM", 4096, QosType::Manual))
        .await;
    bench.done(volume("a", "auto", 1024)).await;
    bench.done(volume("b", "auto", 1024)).await;
    bench
}

#[tokio::test]
async fn qtrees_follow_their_export_policy() {
    let mut bench = setting().await;
    let kind = NamedKind::Export;
    bench
        .done(make(kind, "web", clients(&["10.0.0.0/8"])))
        .await;
    let trees = |trees: Vec<(u32, TreePolicy)>| {
        let trees = Assign {
            trees,
            ..Assign::default()
        };
        assign("a", trees)
    };
    let web = || TreePolicy::Named("web".to_owned());
    let missing = bench
        .refused(trees(vec![(7, TreePolicy::Named("none".to_owned()))]))
        .await;
    assert_eq!(missing.reason, "EXPORT_POLICY_NOT_FOUND");
    bench
        .done(trees(vec![
            (9, web()),
            (7, web()),
            (8, TreePolicy::Default),
        ]))
        .await;
    let admitted = |bench: &Bench| {
        let key = bench.find_volume("a").key.clone();
        let published = bench.node.published().unwrap();
        let export = published.exports.iter().find(|e| e.key == *key).unwrap();
        let first = |rules: &Option<Vec<crate::backend::ExportRule>>| {
            let rules = rules.as_ref()?;
            Some(rules.first().map(|r| r.clients.clone()).unwrap_or_default())
        };
        let trees = export.trees.iter();
        trees
            .map(|(tree, rules)| (*tree, first(rules)))
            .collect::<Vec<_>>()
    };
    let by = |clients: &str| Some(vec![clients.to_owned()]);
    let ten = [(7, by("10.0.0.0/8")), (8, None), (9, by("10.0.0.0/8"))];
    assert_eq!(admitted(&bench), ten);
    assert_eq!(bench.admitted("a"), None, "the volume has none of its own");
    // They follow it, and keep it, also after a restart.
    bench
        .done(set(kind, "web", 1, clients(&["11.0.0.0/8"])))
        .await;
    bench.restart(2).await;
    let eleven = [(7, by("11.0.0.0/8")), (8, None), (9, by("11.0.0.0/8"))];
    assert_eq!(admitted(&bench), eleven);
    let delete = || Mutation::ChangePolicy(policy(kind, "web"), PolicyChange::Delete);
    assert_eq!(bench.refused(delete()).await.reason, "POLICY_IN_USE");
    let inherited = |tree| (tree, TreePolicy::Inherited);
    bench.done(trees(vec![inherited(7), inherited(9)])).await;
    assert_eq!(admitted(&bench), [(8, None)]);
    bench.done(delete()).await;

    let most = weir_base::limits::api::MAX_TREE_POLICIES as u32;
    let many = (0..=most).map(|tree| (tree, TreePolicy::Default)).collect();
    let refusal = bench.refused(trees(many)).await;
    assert_eq!(refusal.reason, "TOO_MANY_QTREE_POLICIES");
}

#[tokio::test]
async fn volumes_follow_their_export_policy() {
    let mut bench = setting().await;
    let kind = NamedKind::Export;
    bench
        .done(make(kind, "web", clients(&["10.0.0.0/8"])))
        .await;
    let refusal = bench.refused(make(kind, "web", clients(&[]))).await;
    assert_eq!(refusal.status, Status::AlreadyExists);
    for id in ["a", "b"] {
        bench
            .done(assign(
                id,
                Assign {
                    export: assign_policy("web"),
                    ..Assign::default()
                },
            ))
            .await;
    }
    assert_eq!(bench.admitted("a").unwrap(), ["10.0.0.0/8"]);
    bench
        .done(set(
            kind,
            "web",
            1,
            clients(&["10.1.0.0/16", "10.2.0.0/16"]),
        ))
        .await;
    for id in ["a", "b"] {
        assert_eq!(bench.admitted(id).unwrap(), ["10.1.0.0/16"], "{id}");
    }
    // The second of two changes from one state is refused; so is a rule that matches no client.
    let late = bench.refused(set(kind, "web", 1, clients(&["*"]))).await;
    assert_eq!(
        (late.status, &*late.reason),
        (Status::Aborted, "REVISION_MISMATCH")
    );
    let wrong = bench
        .refused(set(kind, "web", 2, clients(&["10.0.0.0/33"])))
        .await;
    assert_eq!(wrong.reason, "EXPORT_RULE_INVALID");
    let in_use = bench
        .refused(Mutation::ChangePolicy(
            policy(kind, "web"),
            PolicyChange::Delete,
        ))
        .await;
    assert_eq!(in_use.reason, "POLICY_IN_USE");

    // A renamed policy is the same one, also after a restart.
    bench
        .done(Mutation::ChangePolicy(
            policy(kind, "web"),
            PolicyChange::Rename("www".to_owned()),
        ))
        .await;
    bench.restart(2).await;
    assert!(bench.control.view().policy(&policy(kind, "web")).is_none());
    bench
        .done(set(kind, "www", 3, clients(&["10.3.0.0/16"])))
        .await;
    assert_eq!(bench.admitted("a").unwrap(), ["10.3.0.0/16"]);

    // Rules of its own end the reference; the default does too.
    let own = VolumeChange {
        export_rules: Some(Vec::new()),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("a"), own)).await;
    bench
        .done(assign(
            "b",
            Assign {
                export: Some(None),
                ..Assign::default()
            },
        ))
        .await;
    assert_eq!(
        (bench.admitted("a"), bench.admitted("b")),
        (Some(Vec::new()), None)
    );
    bench
        .done(Mutation::ChangePolicy(
            policy(kind, "www"),
            PolicyChange::Delete,
        ))
        .await;
    let gone = bench
        .refused(assign(
            "a",
            Assign {
                export: assign_policy("www"),
                ..Assign::default()
            },
        ))
        .await;
    assert_eq!(
        (gone.status, &*gone.reason),
        (Status::NotFound, "EXPORT_POLICY_NOT_FOUND")
    );
}

#[tokio::test]
async fn a_qos_policy_is_a_maximum_and_with_manual_qos_what_is_given() {
    let mut bench = setting().await;
    let kind = NamedKind::Qos;
    bench.done(make(kind, "slow", maximum(10, Some(500)))).await;
    let qos = |id: &str| Assign {
        qos: assign_policy(id),
        ..Assign::default()
    };
    bench.done(assign("a", qos("slow"))).await;
    assert_eq!(bench.limits("a"), (Some(10 * MIB), Some(500)));
    assert_eq!(bench.limits("b"), (Some(64 * MIB), None));
    // It does not reduce the pool's: 64 MiB/s for each TiB.
    bench.done(set(kind, "slow", 1, maximum(1000, None))).await;
    assert_eq!(bench.limits("a"), (Some(64 * MIB), None));

    // The pool has 256 MiB/s.
    let new = NewVolume {
        assign: qos("slow"),
        ..new_volume("m", "manual", 1024)
    };
    let refusal = bench
        .refused(Mutation::CreateVolume(vol("m"), new.clone()))
        .await;
    assert_eq!(refusal.reason, "POOL_THROUGHPUT_EXCEEDED");
    bench.done(set(kind, "slow", 2, maximum(100, None))).await;
    bench.done(Mutation::CreateVolume(vol("m"), new)).await;
    assert_eq!(bench.find_volume("m").throughput_mibps(), Some(100.0));
    let refusal = bench
        .refused(set(kind, "slow", 3, maximum(300, None)))
        .await;
    assert_eq!(refusal.reason, "POOL_THROUGHPUT_EXCEEDED");
    bench.done(set(kind, "slow", 3, maximum(200, None))).await;
    bench.restart(3).await;
    assert_eq!(bench.limits("m"), (Some(200 * MIB), None));
    let direct = VolumeChange {
        throughput_mibps: Some(250.0),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("m"), direct)).await;
    assert_eq!(bench.find_volume("m").assigned.qos, None);
    assert_eq!(bench.limits("m"), (Some(250 * MIB), None));
}

#[tokio::test]
async fn a_snapshot_policy_is_the_volumes_schedules() {
    let bench = setting().await;
    let kind = NamedKind::Snapshot;
    let copies = |cron: &str, keep| Copies {
        schedule: "s".into(),
        at: Schedule::cron(cron).unwrap(),
        keep,
    };
    let body = |copies| PolicyBody::Snapshot {
        enabled: true,
        copies,
    };
    bench
        .done(make(kind, "s", body(vec![copies("5 * * * *", 6)])))
        .await;
    bench
        .done(assign(
            "a",
            Assign {
                snapshot: assign_policy("s"),
                ..Assign::default()
            },
        ))
        .await;
    let kept = |bench: &Bench| {
        let rules = crate::policy::volume_rules(&bench.find_volume("a"));
        rules
            .into_iter()
            .map(|(p, r)| (p, r.keep))
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(&bench), [(Period::Hourly, 6)]);
    assert!(
        bench
            .find_volume("a")
            .snapshot_runs
            .contains_key(&Period::Hourly)
    );
    let more = body(vec![copies("5 * * * *", 8), copies("10 0 * * *", 2)]);
    bench.done(set(kind, "s", 1, more)).await;
    assert_eq!(kept(&bench), [(Period::Hourly, 8), (Period::Daily, 2)]);
    assert!(
        bench
            .find_volume("a")
            .snapshot_runs
            .contains_key(&Period::Daily)
    );
    for (wrong, reason) in [
        (
            vec![copies("5 * * * *", 1), copies("6 * * * *", 1)],
            "SNAPSHOT_POLICY_INVALID",
        ),
        (vec![copies("0,30 * * * *", 1)], "SCHEDULE_UNSUPPORTED"),
    ] {
        assert_eq!(
            bench.refused(set(kind, "s", 2, body(wrong))).await.reason,
            reason
        );
    }
    bench
        .done(assign(
            "a",
            Assign {
                snapshot: Some(None),
                ..Assign::default()
            },
        ))
        .await;
    assert_eq!(kept(&bench), []);
}

#[tokio::test]
async fn paths_are_taken_away_changed_and_given_back() {
    let mut bench = setting().await;
    assert_eq!(bench.served_paths("a"), ["/share-a"]);
    let path = |path: Option<&str>| Assign {
        path: Some(path.map(str::to_owned)),
        ..Assign::default()
    };
    bench.done(assign("a", path(None))).await;
    assert_eq!(bench.served_paths("a"), [""; 0]);
    // The path is still reserved for it.
    assert_eq!(
        bench
            .refused(assign("b", path(Some("share-a"))))
            .await
            .reason,
        "PATH_IN_USE"
    );
    bench.done(assign("a", path(Some("x/y")))).await;
    assert_eq!(bench.served_paths("a"), ["/x/y"]);
    for (taken, reason) in [
        ("x", "PATH_IN_USE"),
        ("x/y/z", "PATH_IN_USE"),
        ("share-b", "PATH_IN_USE"),
        ("..", "SHARE_NAME_INVALID"),
        ("", "SHARE_NAME_INVALID"),
    ] {
        let by = if taken == "share-b" { "a" } else { "b" };
        assert_eq!(
            bench.refused(assign(by, path(Some(taken)))).await.reason,
            reason,
            "{taken}"
        );
    }
    bench.done(assign("a", path(Some("x")))).await;
    bench.done(assign("b", path(Some("share-a")))).await;
    bench.restart(4).await;
    assert_eq!(
        (bench.served_paths("a"), bench.served_paths("b")),
        (vec!["/x".to_owned()], vec!["/share-a".to_owned()])
    );
    let offline = |offline| Assign {
        offline: Some(offline),
        ..Assign::default()
    };
    bench.done(assign("a", offline(true))).await;
    assert_eq!(bench.served_paths("a"), [""; 0]);
    bench.done(assign("a", offline(false))).await;
    assert_eq!(bench.served_paths("a"), ["/x"]);
}

#[tokio::test]
async fn a_renamed_volume_is_the_same_one() {
    let mut bench = setting().await;
    let of = |volume: &str| vol(volume).snapshot("s");
    bench
        .done(Mutation::CreateSnapshot(of("a"), NewSnapshot::default()))
        .await;
    let copy = NewVolume {
        clone_of: Some(of("a")),
        ..new_volume("copy", "auto", 1024)
    };
    bench.done(Mutation::CreateVolume(vol("copy"), copy)).await;
    let before = bench.find_volume("a");
    let rename = |from: &str, to: &str| Mutation::RenameVolume {
        name: vol(from),
        to: to.to_owned(),
    };
    assert_eq!(
        bench.refused(rename("a", "b")).await.status,
        Status::AlreadyExists
    );
    assert_eq!(bench.refused(rename("a", "1")).await.reason, "NAME_INVALID");
    bench.done(rename("a", "z")).await;
    bench.restart(5).await;
    let view = bench.control.view();
    assert!(view.volume(&vol("a")).is_none() && view.snapshot(&of("a")).is_none());
    let after = bench.find_volume("z");
    assert_eq!(
        (&after.key, after.id, after.number),
        (&before.key, before.id, before.number)
    );
    assert_eq!(bench.served_paths("z"), ["/share-a"]);
    assert_eq!(bench.limits("z"), (Some(64 * MIB), None));
    assert_eq!(view.snapshot(&of("z")).unwrap().state, State::Ready);
    assert_eq!(bench.find_volume("copy").clone_of, Some(of("z")));
    // It can be deleted, and the old name is free.
    bench.done(volume("a", "auto", 100)).await;
    bench
        .done(Mutation::DeleteVolume {
            name: vol("copy"),
            force: true,
        })
        .await;
    bench
        .done(Mutation::DeleteVolume {
            name: vol("z"),
            force: true,
        })
        .await;
}

#[tokio::test]
async fn a_project_is_there_before_it_has_anything() {
    let bench = setting().await;
    let row = PolicyName::new(NamedKind::Project, "new", "new");
    let create = PolicyChange::Create {
        comment: "soon".to_owned(),
        body: PolicyBody::Project,
    };
    bench
        .done(Mutation::ChangePolicy(row.clone(), create.clone()))
        .await;
    assert_eq!(bench.control.view().policy(&row).unwrap().comment, "soon");
    bench
        .done(Mutation::ChangePolicy(row.clone(), PolicyChange::Delete))
        .await;
    let used = PolicyName::new(NamedKind::Project, "p1", "p1");
    bench
        .done(Mutation::ChangePolicy(used.clone(), create))
        .await;
    let refusal = bench
        .refused(Mutation::ChangePolicy(used, PolicyChange::Delete))
        .await;
    assert_eq!(refusal.reason, "POLICY_IN_USE");
}
