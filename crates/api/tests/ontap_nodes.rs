//! The node as ONTAP shows it, with its pair.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

#[path = "support/ontap.rs"]
mod node;
mod support;

use std::time::Duration;

use node::Node;
use serde_json::json;
use weir_ontap::cluster::{Failover, MirrorCost};
use weir_ontap::script::Script;

#[tokio::test]
async fn a_pair_and_what_it_costs() {
    let n = Node::over(Script::running(&["SVM:v"])).await;
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
