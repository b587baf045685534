//! `storage failover` in ONTAP's form.
#![allow(clippy::unwrap_used)]

use std::time::Duration;
use weir_ontap::cluster::{
    Failover, Machine, MachineChange, Machines, MirrorCost, ServedAggregate,
};
use weir_ontap::execute;
use weir_ontap::script::Script;

#[test]
fn the_partner_of_a_pair_is_shown_and_serves_when_asked() {
    let script = Script::empty();
    assert_eq!(
        execute("storage failover show", &script).unwrap(),
        "This table is currently empty.\n"
    );
    let mut pair = Failover {
        node: "a".to_owned(),
        partner: "b".to_owned(),
        possible: true,
        connected: true,
        lag: 0,
        position: 70,
        cost: MirrorCost {
            changes: 9,
            mean: Duration::from_micros(41),
            p99: Duration::from_micros(250),
            sent_per_written: Some(1.0441),
        },
        trouble: None,
        in_cluster: false,
    };
    script.state().pair = Some(pair.clone());
    let shown = execute("storage failover show", &script).unwrap();
    assert!(shown.contains("Connected to b"), "{shown}");
    assert!(!shown.contains("not possible"), "{shown}");
    let line = "storage failover show -fields position,cost-mean,cost-p99,sent-per-written";
    let shown = execute(line, &script).unwrap();
    for value in ["70", "41", "250", "1.044"] {
        assert!(shown.split_whitespace().any(|w| w == value), "{shown}");
    }
    for (line, done) in [
        ("storage failover takeover -ofnode a", true),
        ("storage failover giveback -ofnode b", true),
        ("storage failover takeover -ofnode b", false),
        ("storage failover giveback -ofnode a", false),
        ("storage failover takeover -ofnode c", false),
        ("storage failover takeover", false),
    ] {
        let before = script.state().handed_over;
        assert_eq!(execute(line, &script).is_ok(), done, "{line}");
        assert_eq!(script.state().handed_over > before, done, "{line}");
    }
    (pair.possible, pair.connected) = (false, false);
    script.state().pair = Some(pair);
    let shown = execute("storage failover show -fields state-description", &script).unwrap();
    assert!(
        shown.contains(
            "Waiting for b, Takeover is not possible: Storage failover interconnect error"
        ),
        "{shown}"
    );
}

#[test]
fn the_machines_of_a_cluster_are_shown_and_changed() {
    let script = Script::empty();
    let alone = execute("cluster show", &script).unwrap();
    assert_eq!(alone.matches("true").count(), 2, "{alone}");
    let start = "storage aggregate relocation start -node n1 -destination n2 -aggregate-list a";
    let why = execute(start, &script).unwrap_err();
    assert!(why.contains("in no cluster"), "{why}");
    let machine = |name: &str, up, eligible| Machine {
        name: name.to_owned(),
        address: None,
        up,
        eligible,
    };
    let served = |name: &str, owner: &str, standby: Option<&str>| ServedAggregate {
        name: name.to_owned(),
        owner: Some(owner.to_owned()),
        standby: standby.map(str::to_owned),
    };
    script.state().machines = Some(Machines {
        nodes: vec![
            machine("n1", true, true),
            machine("n2", true, false),
            machine("n3", false, false),
            machine("n4", true, true),
        ],
        served: vec![
            served("a", "n1", Some("n4")),
            served("b", "n1", Some("n2")),
            served("c", "n2", None),
        ],
    });
    let row = |line: &str, node: &str| {
        let shown = execute(line, &script).unwrap();
        let found = shown.lines().find(|row| row.starts_with(node));
        found
            .unwrap_or_else(|| panic!("{node}: {shown}"))
            .to_owned()
    };
    for (node, words) in [
        ("n1", "n1 true true"),
        ("n2", "n2 true false"),
        ("n3", "n3 false false"),
    ] {
        let shown = row("cluster show", node);
        assert_eq!(
            shown.split_whitespace().collect::<Vec<_>>().join(" "),
            words
        );
    }
    for (node, words) in [
        ("n1", "Connected to n4, n2"),
        (
            "n2",
            "Takeover is not possible: No standby for its aggregates",
        ),
        ("n3", "Takeover is not possible: Node is down"),
        ("n4", "Owns no aggregate"),
    ] {
        let shown = row("storage failover show -fields state-description", node);
        assert!(shown.contains(words), "{shown}");
    }
    let shown = row("aggr relocation show", "a");
    assert!(shown.contains("n1") && shown.contains("n4"), "{shown}");
    for (line, change) in [
        (
            start,
            Some(MachineChange::Relocate {
                aggregate: "a".to_owned(),
                to: "n2".to_owned(),
            }),
        ),
        (
            "aggr relocation start -node n1 -destination n4 -aggregate-list c",
            None,
        ),
        (
            "aggr relocation start -node n1 -destination n9 -aggregate-list a",
            None,
        ),
        (
            "storage failover takeover -ofnode n1",
            Some(MachineChange::Takeover("n1".to_owned())),
        ),
        (
            "storage failover giveback -ofnode n1",
            Some(MachineChange::Giveback("n1".to_owned())),
        ),
        ("storage failover takeover -ofnode n9", None),
    ] {
        let before = script.state().machine_changes.len();
        assert_eq!(execute(line, &script).is_ok(), change.is_some(), "{line}");
        let made = script.state().machine_changes.split_off(before);
        assert_eq!(made, change.into_iter().collect::<Vec<_>>(), "{line}");
    }
}
