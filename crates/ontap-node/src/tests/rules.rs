//! Snapshots that rules with a schedule make at the destination.

use weir_relations::manager::Take;
use weir_relations::model::Rule as PolicyRule;

use super::*;

#[test]
fn a_rule_with_a_schedule_takes_its_snapshots_at_the_destination() {
    let station = Station::new(30);
    station.put("a", "one", &noise(1, 100_000));
    for line in [
        "snapmirror policy create -policy Mine -type mirror-vault",
        "snapmirror policy add-rule -policy Mine -snapmirror-label kept -keep 2 -schedule 5min -prefix sv",
        "snapmirror create -source-path SVM:a -destination-path SVM:b -policy Mine",
        "snapmirror initialize -destination-path SVM:b",
    ] {
        station.does(line);
    }
    let shown = station.says("snapmirror policy show -policy Mine -instance");
    assert!(shown.contains("kept:5min"), "{shown}");
    let first = station.succeeds("SVM:b");
    let b = station.engine_volume("b");
    let policy = station.service.relations().policy("Mine").unwrap();
    let rule = policy.rules.iter().find(|r| r.label == "kept").unwrap();
    let take = |name: &str| {
        station.service.take_scheduled(&Take {
            relationship: first.uuid.clone(),
            destination: Path::local("SVM", "b"),
            rule: PolicyRule::clone(rule),
            name: name.to_owned(),
            at: 7,
        });
    };
    let made = || {
        let all = b.snapshots().into_iter();
        let made = all.filter(|s| s.label == "kept").map(|s| s.name);
        made.collect::<Vec<_>>()
    };
    take("sv.1");
    take("sv.2");
    // As after a crash that came before it was written down.
    take("sv.2");
    assert_eq!(made(), ["sv.1", "sv.2"]);
    let listed = station.says("snapshot show -vserver SVM -volume b");
    assert!(listed.contains("sv.2"), "{listed}");
    let rows = station.service.relations();
    assert_eq!(rows.find_by_uuid(&first.uuid).unwrap().ruled["kept"], 7);
    assert_eq!(content(&b, "sv.2", "one").unwrap(), noise(1, 100_000));
    // The next transfer continues from the common snapshot. Snapshots made here are neither
    // overwritten nor lost.
    station.put("a", "one", &noise(2, 100_000));
    station.does("snapshot create -vserver SVM -volume a -snapshot theirs -snapmirror-label kept");
    station.does("snapmirror update -destination-path SVM:b");
    station.succeeds("SVM:b");
    assert_eq!(made(), ["sv.1", "sv.2"]);
    take("sv.3");
    assert_eq!(made(), ["sv.2", "sv.3"], "the rule keeps two");
    assert_eq!(content(&b, "sv.3", "one").unwrap(), noise(2, 100_000));
    // While part of a transfer has arrived there is nothing of which it could be made.
    station.put("a", "one", &noise(3, 2 << 20));
    station.does("options -option-name replication.throttle.incoming.max_kbs 64");
    station.does("snapmirror update -destination-path SVM:b");
    while station.relationship("SVM:b").status != Status::Transferring {
        std::thread::yield_now();
    }
    take("sv.4");
    assert_eq!(made(), ["sv.2", "sv.3"]);
    station.does("snapmirror abort -destination-path SVM:b -hard true");
    station.rests("SVM:b");
    station.does("options -option-name replication.throttle.incoming.max_kbs unlimited");
    // Broken off, it is what its readers saw, with all that was made of it.
    station.does("snapmirror break -destination-path SVM:b");
    assert_eq!(made(), ["sv.2", "sv.3"]);
    b.snapshot_create("after", Time { secs: 9, nanos: 0 })
        .unwrap();
    assert_eq!(content(&b, "after", "one").unwrap(), noise(2, 100_000));
}
