//! Export policies of qtrees in copies.

use weir_control::{ExportRule, NamedKind, NumberedRule, PolicyBody, PolicyChange, PolicyName};

use weir_sim::machine::{Machine, Sizes};
use weir_sim::rand::Choices;

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

/// A catalog that is rebuilt after a power failure has the policies of qtrees as they were
/// acknowledged, and none that would admit more clients.
#[test]
fn the_record_of_a_volume_has_a_qtrees_policy_once_it_is_acknowledged() {
    let choices = Choices::new(52);
    let sizes = Sizes {
        background: true,
        ..Sizes::small()
    };
    let mut machine = Machine::new(sizes, &choices).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let engine = Arc::new(machine.boot().unwrap().engine);
    let data = tempfile::tempdir().unwrap();
    let station = Station::with_engine(data, engine, 52, clock);
    let pool = NewPool {
        service_level: "PREMIUM".to_owned(),
        capacity_gib: 204_800,
        ..NewPool::default()
    };
    let place = LocationName::new("SVM", "local");
    station.submit(Mutation::CreatePool(place.name("p"), pool));
    station.volume("a", false);
    policy(&station, "web");
    let key = station.key("a");
    let mut data = Some(station);
    for (step, (line, wanted)) in [
        (
            "volume qtree create -vserver SVM -volume a -qtree q -export-policy default",
            "",
        ),
        (
            "volume qtree modify -vserver SVM -volume a -qtree q -export-policy web",
            "web",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let station = data.take().unwrap();
        station.does(line);
        machine.world.crash();
        let folder = station.kill();
        machine.reboot(&choices);
        let engine = Arc::new(machine.boot().unwrap().engine);
        let record = engine.volume(&key).unwrap().annotation();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        let policies = record["trees"].as_object().unwrap().values();
        assert_eq!(policies.collect::<Vec<_>>(), [wanted], "{line}");
        let (clock, seed) = (Arc::new(SystemClock::new()), 60 + step as u64);
        data = Some(Station::with_engine(folder, engine, seed, clock));
    }
}
