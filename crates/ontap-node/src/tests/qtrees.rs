//! Export policies of qtrees in copies.

use weir_control::{ExportRule, NamedKind, NumberedRule, PolicyBody, PolicyChange, PolicyName};

use super::*;

fn policy(station: &Station, id: &str) {
    let rule = NumberedRule {
        index: 1,
        rule: ExportRule {
            allowed_clients: "10.0.0.0/8".to_owned(),
            ..ExportRule::default()
        },
        words: Default::default(),
    };
    let create = PolicyChange::Create {
        comment: String::new(),
        body: PolicyBody::Export(vec![rule]),
    };
    let name = PolicyName::new(NamedKind::Export, "SVM", id);
    station.submit(Mutation::ChangePolicy(name, create));
}

/// Returns the export policy of the qtree `q` of a volume; `None`: the volume's.
fn policy_of(station: &Station, volume: &str) -> Option<String> {
    let path = Path::local("SVM", volume);
    let mut all = station.user.all_qtrees(Some(&path)).into_iter();
    all.find(|tree| tree.name == "q").unwrap().export_policy
}

#[test]
fn a_copy_has_the_export_policies_of_its_source() {
    let (near, far) = (Station::new(50), Station::new(51));
    pair(&near, &far);
    policy(&near, "web");
    near.does("volume qtree create -vserver SVM -volume a -qtree q -export-policy web");
    near.does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest");
    near.does("snapmirror initialize -destination-path SVM:b");
    near.succeeds("SVM:b");
    assert_eq!(policy_of(&near, "b").as_deref(), Some("web"));

    far.volume("copy", true);
    far.does("snapmirror create -source-path near://SVM/a -destination-path SVM:copy -policy MirrorLatest");
    far.does("snapmirror initialize -destination-path SVM:copy");
    far.succeeds("SVM:copy");
    assert_eq!(policy_of(&far, "copy").as_deref(), Some("weir:nobody"));
    policy(&far, "web");
    far.does("snapmirror update -destination-path SVM:copy");
    far.succeeds("SVM:copy");
    assert_eq!(policy_of(&far, "copy").as_deref(), Some("web"));
    far.does("snapmirror break -destination-path SVM:copy");
    far.rests("SVM:copy");
    assert_eq!(policy_of(&far, "copy").as_deref(), Some("web"));

    // A snapshot still has a qtree that was deleted, and so does its clone.
    near.does("volume snapshot create -vserver SVM -volume a -snapshot s");
    near.does("volume qtree delete -vserver SVM -volume a -qtree q");
    near.does("volume clone create -vserver SVM -flexclone c -parent-volume a -parent-snapshot s");
    assert_eq!(policy_of(&near, "c").as_deref(), Some("web"));
}
