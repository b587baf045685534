//! `volumes/*/replications` over the product's rules, with scripted transfers.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use std::sync::Arc;

use serde_json::json;
use support::{Api, PLACE};
use weir_control::Actor;
use weir_ontap::Cluster;
use weir_ontap::script::Script;
use weir_relations::model::Path;

struct Node {
    api: Api,
    script: Arc<Script>,
}

impl Node {
    async fn from_script(script: Script) -> Node {
        let mut api = Api::new().await;
        let script = Arc::new(script);
        let cluster: Arc<dyn Cluster> = Arc::clone(&script) as _;
        api.state = api
            .state
            .with_ontap(Arc::new(move |_: &Actor| Arc::clone(&cluster)));
        Node { api, script }
    }
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

#[tokio::test]
async fn replications_over_the_same_relationships() {
    let n = Node::from_script(Script::running(&["p1:v1"])).await;
    let pool = json!({"serviceLevel": "PREMIUM", "capacityGib": "4096", "network": "default"});
    n.api
        .done(
            "POST",
            &format!("{PLACE}/storagePools?storagePoolId=a"),
            pool,
        )
        .await;
    let v = json!({"storagePool": "a", "shareName": "v1", "capacityGib": "1024", "protocols": ["NFSV3", "SMB"],
        "securityStyle": "NTFS", "smbSettings": ["ENCRYPT_DATA"]});
    n.api
        .done("POST", &format!("{PLACE}/volumes?volumeId=v1"), v)
        .await;
    // The script knows its own volumes only, so the one that is to be made is in it already.
    let mut copy = n.script.state().volumes[0].clone();
    (copy.path, copy.location) = (path("p1:v2"), "us-central1".to_owned());
    copy.protection = true;
    n.script.state().volumes[0].location = "us-central1".to_owned();
    n.script.state().volumes.push(copy);
    let all = format!("{PLACE}/volumes/v1/replications");
    let body = json!({
        "replicationSchedule": "HOURLY", "description": "d", "labels": {"a": "b"},
        "destinationVolumeParameters": {"storagePool": format!("{PLACE}/storagePools/a"), "volumeId": "v2"},
    });
    let made = n
        .api
        .done("POST", &format!("{all}?replicationId=r1"), body.clone())
        .await;
    assert_eq!(
        made["@type"],
        "type.googleapis.com/google.cloud.netapp.v1.Replication"
    );
    assert_eq!(
        (
            &made["role"],
            &made["replicationSchedule"],
            &made["description"],
            &made["labels"]["a"]
        ),
        (&json!("SOURCE"), &json!("HOURLY"), &json!("d"), &json!("b"))
    );
    // Broken off it is what the source was, also to whom.
    let copied = n.api.ok("GET", &format!("{PLACE}/volumes/v2"), "").await;
    assert_eq!(
        (&copied["securityStyle"], &copied["smbSettings"]),
        (&json!("NTFS"), &json!(["ENCRYPT_DATA"]))
    );
    let one = format!("{all}/r1");
    let state = async || n.api.ok("GET", &one, "").await["mirrorState"].clone();
    while state().await != "MIRRORED" {}
    // Seen from the other end, with numbers.
    let other = format!("{PLACE}/volumes/v2/replications?$alt=json;enum-encoding=int");
    let listed = n.api.ok("GET", &other, "").await;
    let r = &listed["replications"][0];
    assert_eq!(
        (&r["role"], &r["mirrorState"], &r["state"]),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!(r["sourceVolume"], format!("{PLACE}/volumes/v1"));
    assert_eq!(r["transferStats"]["lastTransferBytes"], "550397542");

    for (verb, body, wanted) in [
        ("sync", "", "MIRRORED"),
        ("stop", r#"{"force": true}"#, "STOPPED"),
        ("resume", "{}", "MIRRORED"),
        ("stop", "", "STOPPED"),
    ] {
        while state().await == "TRANSFERRING" {}
        n.api.ok("POST", &format!("{one}:{verb}"), body).await;
        while state().await == "TRANSFERRING" {}
        assert_eq!(state().await, wanted, "{verb}");
    }
    n.api
        .ok("POST", &format!("{one}:reverseDirection"), "{}")
        .await;
    while state().await == "TRANSFERRING" {}
    let r = n.api.ok("GET", &one, "").await;
    assert_eq!(
        (&r["role"], &r["replicationSchedule"], &r["description"]),
        (&json!("DESTINATION"), &json!("HOURLY"), &json!("d"))
    );
    let changed = format!("{one}?updateMask=description,replicationSchedule");
    let changed = n
        .api
        .done(
            "PATCH",
            &changed,
            json!({"description": "e", "replicationSchedule": "DAILY"}),
        )
        .await;
    assert_eq!(
        (&changed["description"], &changed["replicationSchedule"]),
        (&json!("e"), &json!("DAILY"))
    );
    n.api.ok("DELETE", &one, "").await;
    assert_eq!(n.api.send_request("GET", &one, "").await.0, 404);

    for (body, code) in [
        (json!({"replicationSchedule": "HOURLY"}), 400),
        (
            json!({"destinationVolumeParameters": {"storagePool": "a", "volumeId": "v3"}}),
            400,
        ),
        (
            json!({"replicationSchedule": "WEEKLY", "destinationVolumeParameters": {"storagePool": "a"}}),
            400,
        ),
        (
            json!({"replicationSchedule": "HOURLY", "destinationVolumeParameters": {"storagePool": "none", "volumeId": "v3"}}),
            404,
        ),
    ] {
        let (status, answer) = n
            .api
            .send_request("POST", &format!("{all}?replicationId=r2"), body.to_string())
            .await;
        assert_eq!(status, code, "{answer}");
    }
}

/// A node with volume `v1`, its copy `v2`, and a replication `r1` whose first transfer does not
/// progress.
async fn replicating() -> (Node, String) {
    let n = Node::from_script(Script::running(&["p1:v1"])).await;
    let pool = json!({"serviceLevel": "PREMIUM", "capacityGib": "4096", "network": "default"});
    let pools = format!("{PLACE}/storagePools?storagePoolId=a");
    n.api.done("POST", &pools, pool).await;
    let v = json!({"storagePool": "a", "shareName": "v1", "capacityGib": "1024", "protocols": ["NFSV3"]});
    n.api
        .done("POST", &format!("{PLACE}/volumes?volumeId=v1"), v)
        .await;
    let mut copy = n.script.state().volumes[0].clone();
    (copy.path, copy.location) = (path("p1:v2"), "us-central1".to_owned());
    copy.protection = true;
    n.script.state().volumes[0].location = "us-central1".to_owned();
    n.script.state().volumes.push(copy);
    n.script.state().moves = false;
    let body = json!({
        "replicationSchedule": "HOURLY",
        "destinationVolumeParameters": {"storagePool": format!("{PLACE}/storagePools/a"), "volumeId": "v2"},
    });
    let all = format!("{PLACE}/volumes/v1/replications");
    n.api
        .done("POST", &format!("{all}?replicationId=r1"), body)
        .await;
    n.script.step();
    (n, format!("{all}/r1"))
}

#[tokio::test]
async fn a_replication_is_stopped_and_deleted_in_every_state() {
    let force = r#"{"force": true}"#;
    let (n, one) = replicating().await;
    let state = async || n.api.ok("GET", &one, "").await["mirrorState"].clone();
    let stop = format!("{one}:stop");
    // While the baseline runs: by force only.
    assert_eq!(state().await, "BASELINE_TRANSFERRING");
    assert_eq!(n.api.send_request("POST", &stop, "{}").await.0, 409);
    assert_eq!(state().await, "BASELINE_TRANSFERRING");
    n.api.ok("POST", &stop, force).await;
    assert_eq!(state().await, "STOPPED");
    // It may be repeated without limit.
    for body in ["{}", force, "{}"] {
        n.api.ok("POST", &stop, body).await;
        assert_eq!(state().await, "STOPPED", "{body}");
    }
    // Resumed, it begins again.
    n.api.ok("POST", &format!("{one}:resume"), "{}").await;
    n.script.step();
    assert_eq!(state().await, "BASELINE_TRANSFERRING");
    n.script.step();
    assert_eq!(state().await, "MIRRORED");
    // While an update runs, while it rests, while it is resynchronised, and when it is stopped.
    n.api.ok("POST", &format!("{one}:sync"), "{}").await;
    n.script.step();
    n.api.ok("POST", &stop, force).await;
    assert_eq!(state().await, "STOPPED");
    n.api.ok("POST", &stop, force).await;
    assert_eq!(state().await, "STOPPED");
    n.api.ok("POST", &format!("{one}:resume"), "{}").await;
    n.script.step();
    assert_eq!(state().await, "TRANSFERRING");
    n.api.ok("POST", &stop, force).await;
    assert_eq!(state().await, "STOPPED");
    n.api.ok("DELETE", &one, "").await;
    assert_eq!(n.api.send_request("GET", &one, "").await.0, 404);
    // Deleting ends a running baseline, and any other transfer.
    for steps in [0, 1, 2] {
        let (n, one) = replicating().await;
        for _ in 0..steps {
            n.script.step();
        }
        if steps == 2 {
            n.api.ok("POST", &format!("{one}:sync"), "{}").await;
        }
        n.api.ok("DELETE", &one, "").await;
        assert_eq!(
            n.api.send_request("GET", &one, "").await.0,
            404,
            "after {steps} steps"
        );
        assert!(n.script.relationships().is_empty());
    }
}
