//! `storage failover` in ONTAP's form.
#![allow(clippy::unwrap_used)]

use std::time::Duration;
use weir_ontap::cluster::{Failover, MirrorCost};
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
