//! The node as ONTAP shows it, with its pair.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

#[path = "support/ontap.rs"]
mod node;
mod support;

use std::time::Duration;

use node::Node;
use serde_json::json;
use weir_ontap::cluster::{Failover, Machine, Machines, MirrorCost, ServedAggregate};
use weir_ontap::script::Script;

#[tokio::test]
async fn a_pair_and_what_it_costs() {
    let n = Node::from_script(Script::running(&["SVM:v"])).await;
    let nodes = n.get("cluster/nodes?fields=ha").await;
    assert_eq!(nodes["records"][0]["ha"], json!({"enabled": false}));
    n.script.state().pair = Some(Failover {
        node: "a".to_owned(),
        partner: "b".to_owned(),
        possible: false,
        connected: true,
        lag: 4096,
        position: 70,
        cost: MirrorCost {
            changes: 9,
            mean: Duration::from_micros(41),
            p99: Duration::from_micros(250),
            sent_per_written: Some(1.0625),
        },
        trouble: None,
        in_cluster: false,
    });
    let nodes = n.get("cluster/nodes?fields=*").await;
    let node = format!(
        "cluster/nodes/{}",
        nodes["records"][0]["uuid"].as_str().unwrap()
    );
    let one = n.get(&node).await;
    assert_eq!(nodes["records"][0]["ha"], one["ha"]);
    let expected = json!({
        "enabled": true,
        "partners": [{"name": "b"}],
        "interconnect": {"state": "up"},
        "takeover_check": {"takeover_possible": false, "reasons": ["NVRAM log not synchronized"]},
        "mirror": {"lag": 4096, "position": 70, "waited_mean": 41, "waited_p99": 250, "sent_per_written": 1.0625},
    });
    assert_eq!(one["ha"], expected);
}

#[tokio::test]
async fn all_machines_of_a_cluster_are_nodes() {
    let n = Node::from_script(Script::running(&["SVM:v"])).await;
    let machine = |name: &str, up| Machine {
        name: name.to_owned(),
        address: "10.0.0.7".parse().ok(),
        up,
        eligible: up,
    };
    n.script.state().machines = Some(Machines {
        nodes: vec![
            machine("n1", true),
            machine("n2", true),
            machine("n3", false),
        ],
        served: vec![ServedAggregate {
            name: "agg1".to_owned(),
            owner: Some("n1".to_owned()),
            standby: Some("n2".to_owned()),
        }],
    });
    let nodes = n.get("cluster/nodes?fields=state,ha&order_by=name").await;
    let records = nodes["records"].as_array().unwrap();
    let states: Vec<_> = records.iter().map(|r| (&r["name"], &r["state"])).collect();
    assert_eq!(
        serde_json::json!(states),
        json!([["n1", "up"], ["n2", "up"], ["n3", "down"]])
    );
    assert_eq!(records[0]["ha"]["partners"], json!([{"name": "n2"}]));
    assert_eq!(
        records[0]["ha"]["takeover_check"]["takeover_possible"],
        true
    );
    assert_eq!(records[1]["ha"]["partners"], json!([]));
    let reasons = &records[2]["ha"]["takeover_check"]["reasons"];
    assert_eq!(reasons, &json!(["Node is down"]));
    // The same node is the same at each of its servers, whatever their catalogs are.
    let other = Node::from_script(Script::running(&["SVM:w"])).await;
    other.script.state().machines = n.script.state().machines.clone();
    let elsewhere = other
        .get("cluster/nodes?fields=state,ha&order_by=name")
        .await;
    assert_eq!(elsewhere["records"], nodes["records"]);
}
