//! Export policies of qtrees travel with the contents of their volume.

use super::*;
use crate::backend::ExportRule;
use crate::{
    Assign, NamedKind, NewBackup, NewBackupVault, NewSnapshot, PolicyBody, PolicyChange,
    PolicyName, TreePolicy, VolumeChange,
};
use std::collections::BTreeMap;
use weir_relations::plan::TreePolicies;

fn policy(project: &str, id: &str, clients: &str) -> Mutation {
    let rule = crate::NumberedRule {
        index: 1,
        rule: crate::ExportRule {
            allowed_clients: clients.to_owned(),
            ..Default::default()
        },
        words: Default::default(),
    };
    let create = PolicyChange::Create {
        comment: String::new(),
        body: PolicyBody::Export(vec![rule]),
    };
    Mutation::ChangePolicy(PolicyName::new(NamedKind::Export, project, id), create)
}

fn give(id: &str, trees: Vec<(u32, TreePolicy)>) -> Mutation {
    let change = VolumeChange {
        assign: Assign {
            trees,
            ..Assign::default()
        },
        ..VolumeChange::default()
    };
    Mutation::UpdateVolume(vol(id), change)
}

/// Returns the clients that the rules of each qtree admit; `None`: the server's default.
fn admitted(bench: &Bench, id: &str) -> Vec<(u32, Option<Vec<String>>)> {
    let key = bench.control.view().volume(&vol(id)).unwrap().key.clone();
    let published = bench.node.published().unwrap();
    let export = published.exports.iter().find(|e| e.key == *key).unwrap();
    let clients = |rules: &Vec<ExportRule>| rules.iter().flat_map(|r| r.clients.clone()).collect();
    let trees = export.trees.iter();
    trees
        .map(|(tree, rules)| (*tree, rules.as_ref().map(clients)))
        .collect()
}

fn by(clients: &str) -> Option<Vec<String>> {
    Some(vec![clients.to_owned()])
}

const NOBODY: Option<Vec<String>> = Some(Vec::new());

/// Creates volume `a`, whose qtrees 7 and 8 have the policy `web` and the server's default.
async fn setting() -> Bench {
    let bench = Bench::new().await;
    bench
        .done(pool("auto", "PREMIUM", 4096, QosType::Auto))
        .await;
    bench.done(volume("a", "auto", 512)).await;
    bench.done(policy("p1", "web", "10.0.0.0/8")).await;
    let web = TreePolicy::Named("web".to_owned());
    bench
        .done(give("a", vec![(7, web), (8, TreePolicy::Default)]))
        .await;
    bench
}

#[tokio::test]
async fn a_clone_and_a_restored_backup_have_them() {
    let bench = setting().await;
    let snapshot = vol("a").snapshot("s");
    let taken = Mutation::CreateSnapshot(snapshot.clone(), NewSnapshot::default());
    bench.done(taken).await;
    let clone = NewVolume {
        clone_of: Some(snapshot),
        ..new_volume("clone", "auto", 512)
    };
    bench
        .done(Mutation::CreateVolume(vol("clone"), clone))
        .await;
    let whole = [(7, by("10.0.0.0/8")), (8, None)];
    assert_eq!(admitted(&bench, "clone"), whole);

    bench.node.set_facts(crate::backend::Facts {
        backups: true,
        ..Default::default()
    });
    let vault = name("safe");
    let backup = crate::BackupName {
        vault: vault.clone(),
        id: "b".into(),
    };
    bench
        .done(Mutation::CreateBackupVault(
            vault,
            NewBackupVault::default(),
        ))
        .await;
    let new = NewBackup {
        source: vol("a"),
        snapshot: None,
        schedule: None,
        share: None,
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    };
    bench
        .done(Mutation::CreateBackup(backup.clone(), new))
        .await;
    // Without its policy the qtree of a restored volume is closed, not open.
    let both = ["a", "clone"];
    for id in both {
        bench.done(give(id, vec![(7, TreePolicy::Inherited)])).await;
    }
    let restored = |id: &str| {
        let new = NewVolume {
            restore_of: Some(backup.clone()),
            ..new_volume(id, "auto", 512)
        };
        Mutation::CreateVolume(vol(id), new)
    };
    bench.done(restored("there")).await;
    assert_eq!(admitted(&bench, "there"), whole);
    bench
        .done(give("there", vec![(7, TreePolicy::Inherited)]))
        .await;
    let gone = PolicyName::new(NamedKind::Export, "p1", "web");
    bench
        .done(Mutation::ChangePolicy(gone, PolicyChange::Delete))
        .await;
    bench.done(restored("gone")).await;
    assert_eq!(admitted(&bench, "gone"), [(7, NOBODY), (8, None)]);
    let view = bench.control.view();
    let unknown = view.volume(&vol("gone")).unwrap().trees[&7].unknown.clone();
    assert_eq!(unknown.as_deref(), Some("web"));
    // Until an operator says what it is.
    bench
        .done(give("gone", vec![(7, TreePolicy::Inherited)]))
        .await;
    assert_eq!(admitted(&bench, "gone"), [(8, None)]);
}

#[tokio::test]
async fn a_rebuilt_catalog_closes_qtrees_whose_policies_are_lost() {
    let mut bench = setting().await;
    let key = bench.control.view().volume(&vol("a")).unwrap().key.clone();
    bench.node.add_tree(&key, 7, "homes");
    bench.node.add_tree(&key, 8, "open");
    bench.control.close().await;
    bench.node.revive();
    catalog_loss::remove(&bench.url);
    let options = catalog_loss::options(&bench.url, &bench.node, 3);
    let rebuilt = Control::rebuild(options).await.unwrap();
    let of_a = rebuilt.volumes.iter().find(|r| r.name == vol("a")).unwrap();
    assert_eq!(
        of_a.lost,
        ["export policy \"web\" of qtree \"homes\", which admits nobody now"]
    );
    bench.restart(4).await;
    assert_eq!(admitted(&bench, "a"), [(7, NOBODY), (8, None)]);
    // Once more: what was not known stays so.
    bench.rebuild(5).await;
    assert_eq!(admitted(&bench, "a"), [(7, NOBODY), (8, None)]);
}

#[tokio::test]
async fn without_a_record_all_qtrees_are_closed() {
    let mut bench = setting().await;
    let key = bench.control.view().volume(&vol("a")).unwrap().key.clone();
    bench.node.add_tree(&key, 9, "c");
    bench.control.close().await;
    bench.node.annotate(&key, "");
    bench.node.revive();
    catalog_loss::remove(&bench.url);
    let options = catalog_loss::options(&bench.url, &bench.node, 3);
    let rebuilt = Control::rebuild(options).await.unwrap();
    let made_up = rebuilt.volumes.iter().find(|r| r.made_up).unwrap();
    let lost = "export policy of qtree \"c\", which admits nobody now";
    assert!(made_up.lost.iter().any(|line| line == lost), "{made_up:?}");
    bench.restart(4).await;
    let view = bench.control.view();
    let volume = view.volume(&made_up.name).unwrap();
    let rules = volume.trees[&9].rules.as_deref();
    assert_eq!(rules, Some(&[][..]));
}

#[tokio::test]
async fn a_copy_follows_its_source_except_for_what_was_set_at_the_copy() {
    let mut bench = setting().await;
    bench.done(volume("copy", "auto", 512)).await;
    let key = bench
        .control
        .view()
        .volume(&vol("copy"))
        .unwrap()
        .key
        .clone();
    let source = |names: &[(u32, &str)]| -> TreePolicies {
        let all = names.iter();
        all.map(|(number, name)| (*number, Some((*name).to_owned())))
            .collect::<BTreeMap<_, _>>()
    };
    let first = source(&[(7, "web"), (8, ""), (9, "elsewhere")]);
    bench.control.follow_trees(&key, &first).await.unwrap();
    let ten = by("10.0.0.0/8");
    let whole = [(7, ten.clone()), (8, None), (9, NOBODY)];
    assert_eq!(admitted(&bench, "copy"), whole);
    bench.restart(2).await;
    assert_eq!(admitted(&bench, "copy"), whole);
    // The mark of a copy survives a change of the policy.
    let rule = policy("p1", "web", "11.0.0.0/8");
    let Mutation::ChangePolicy(named, PolicyChange::Create { body, .. }) = rule else {
        panic!("{rule:?}");
    };
    let set = PolicyChange::Set {
        revision: 1,
        comment: None,
        body: Some(body),
    };
    bench.done(Mutation::ChangePolicy(named, set)).await;
    let eleven = by("11.0.0.0/8");
    bench
        .done(give("copy", vec![(9, TreePolicy::Named("web".to_owned()))]))
        .await;
    let given = [(7, eleven.clone()), (8, None), (9, eleven.clone())];
    assert_eq!(admitted(&bench, "copy"), given);
    let second = source(&[(9, "elsewhere")]);
    bench.control.follow_trees(&key, &second).await.unwrap();
    assert_eq!(admitted(&bench, "copy"), [(9, eleven)]);
}

#[tokio::test]
async fn the_deletion_of_a_qtree_goes_on_after_a_restart() {
    let mut bench = setting().await;
    let key = bench.control.view().volume(&vol("a")).unwrap().key.clone();
    bench.node.add_tree(&key, 7, "homes");
    let rule = crate::NewQuotaRule {
        subject: crate::QuotaSubject::Tree(7),
        limits: crate::QuotaLimits {
            bytes: 1 << 30,
            ..Default::default()
        },
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    };
    bench.node.set_facts(Default::default());
    let name = vol("a").quota_rule("q");
    bench.done(Mutation::CreateQuotaRule(name, rule)).await;
    let snapshot = vol("a").snapshot("s");
    let taken = Mutation::CreateSnapshot(snapshot.clone(), NewSnapshot::default());
    bench.done(taken).await;
    // The node stops within the deletion: the name is gone, and the rest goes on later.
    bench.node.keep_trees();
    let control = Arc::clone(&bench.control);
    let deletion = Mutation::DeleteTree {
        of: vol("a"),
        number: 7,
    };
    let begun = tokio::spawn(async move { control.submit(deletion, &Actor::local()).await });
    while bench.control.view().pending.is_empty() {
        tokio::task::yield_now().await;
    }
    let view = bench.control.view();
    assert!(view.volume(&vol("a")).unwrap().quotas.rules.is_empty());
    let revert = Mutation::RevertVolume {
        name: vol("a"),
        snapshot: "s".to_owned(),
    };
    assert_eq!(bench.refused(revert).await.reason, "RESOURCE_BUSY");
    begun.abort();
    bench.restart(2).await;
    while !bench.control.view().pending.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.node.trees_of(&key), []);
    let view = bench.control.view();
    // The snapshot may have it.
    assert!(view.volume(&vol("a")).unwrap().trees.contains_key(&7));
    drop(view);
    bench.done(Mutation::DeleteSnapshot(snapshot)).await;
    let again = Mutation::DeleteTree {
        of: vol("a"),
        number: 7,
    };
    bench.done(again).await;
    let view = bench.control.view();
    assert!(!view.volume(&vol("a")).unwrap().trees.contains_key(&7));
}
