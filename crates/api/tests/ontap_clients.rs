//! Requests as programs for ONTAP send them: Trident, Harvest, Ansible's modules.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

#[path = "support/ontap.rs"]
mod node;
mod support;

use node::Node;
use serde_json::{Value, json};
use weir_ontap::script::Script;

async fn node() -> Node {
    Node::from_script(Script::running(&["SVM:vol", "SVM:copy", "other:vol"])).await
}

async fn svm(n: &Node) -> String {
    let found = n.get("svm/svms?name=SVM").await;
    found["records"][0]["uuid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn trident_finds_a_backend() {
    let n = node().await;
    let svm = svm(&n).await;
    let asked =
        format!("network/ip/interfaces?fields=ip.address%2Cstate&services=data_nfs&svm.uuid={svm}");
    let found = n.get(&asked).await;
    assert_eq!(found["num_records"], 1);
    let one = &found["records"][0];
    assert_eq!(one["state"], "up");
    assert_eq!(one["ip"]["address"], "10.1.2.3");
    let none = asked.replace("data_nfs", "data_iscsi");
    assert_eq!(n.get(&none).await["num_records"], 0);

    let nodes = n.get("cluster/nodes?fields=serial_number&name=*").await;
    let serial = nodes["records"][0]["serial_number"].as_str().unwrap();
    assert!(!serial.is_empty());
    let peers = format!("svm/peers?fields=peer.svm.name&svm.uuid={svm}");
    assert_eq!(n.get(&peers).await["num_records"], 0);
    let qtrees = format!("storage/qtrees?fields=volume&name=trident_*&svm.uuid={svm}");
    assert_eq!(n.get(&qtrees).await["num_records"], 0);
}

#[tokio::test]
async fn interfaces_and_services_stay_as_they_are() {
    let n = node().await;
    let all = n.get("network/ip/interfaces?svm.name=SVM").await;
    let one = &all["records"][0];
    let path = format!("network/ip/interfaces/{}", one["uuid"].as_str().unwrap());
    assert_eq!(&n.get(&path).await["name"], &one["name"]);
    n.done(
        "PATCH",
        &path,
        json!({"enabled": true, "ip": {"address": "10.1.2.3"}}),
    )
    .await;
    n.refused("PATCH", &path, json!({"enabled": false}), 400, "262196")
        .await;
    n.refused("PATCH", &path, json!({"colour": "red"}), 400, "262179")
        .await;
    let new = json!({"name": "lif", "svm": {"name": "SVM"}, "ip": {"address": "10.0.0.1"}});
    n.refused("POST", "network/ip/interfaces", new, 400, "262196")
        .await;

    // na_ontap_nfs.
    let asked = "protocols/nfs/services?svm.name=SVM&fields=protocol.v3_enabled,protocol.v40_enabled,\
                 protocol.v41_features.pnfs_enabled,vstorage_enabled,root.*,security.*,windows.*,enabled,svm.uuid,";
    let found = n.get(asked).await;
    let one = &found["records"][0];
    assert_eq!(one["protocol"]["v3_enabled"], true);
    assert_eq!(one["security"]["chown_mode"], "restricted");
    let path = format!("protocols/nfs/services/{}", svm(&n).await);
    let same = json!({"protocol": {"v3_enabled": true, "v41_enabled": true}});
    assert_eq!(n.done("PATCH", &path, same).await.status, 200);
    let other = json!({"protocol": {"v3_enabled": false}});
    n.refused("PATCH", &path, other, 400, "262196").await;
    let new = json!({"svm.name": "SVM", "enabled": true});
    let made = n.done("POST", "protocols/nfs/services", new).await;
    assert_eq!(made.status, 201);
    let new = json!({"svm.name": "SVM", "protocol.v40_enabled": true});
    n.refused("POST", "protocols/nfs/services", new, 400, "262196")
        .await;
}

#[tokio::test]
async fn changes_without_jobs_are_answered_at_once() {
    let n = node().await;
    let policy = json!({"name": "trident_empty", "svm": {"name": "SVM"}});
    let every = json!({"name": "five", "interval": "PT5M"});
    let print = "a".repeat(64);
    let peer = json!({"name": "peer", "fingerprint": print});
    for (path, body) in [
        ("protocols/nfs/export-policies", policy),
        ("cluster/schedules", every),
        ("cluster/peers", peer),
    ] {
        let made = n.send_request("POST", path, body).await;
        assert_eq!(made.status, 201, "{path}: {}", made.body);
        assert_eq!(made.body.get("job"), None, "{path}: {}", made.body);
    }
    let schedules = n.get("cluster/schedules?name=five").await;
    let id = schedules["records"][0]["uuid"].as_str().unwrap();
    let gone = n
        .send_request("DELETE", &format!("cluster/schedules/{id}"), Value::Null)
        .await;
    assert_eq!((gone.status, gone.body.get("job")), (200, None));
    // The others have jobs.
    let volume = json!({"name": "new", "svm": {"name": "SVM"}, "size": 1 << 30});
    let made = n.done("POST", "storage/volumes", volume).await;
    assert_eq!(made.status, 202);
    assert!(made.body["job"]["uuid"].is_string());
}

#[tokio::test]
async fn a_busy_snapshot_fails_its_job() {
    let n = node().await;
    let volumes = n.get("storage/volumes?name=vol&svm.name=SVM").await;
    let volume = volumes["records"][0]["uuid"].as_str().unwrap();
    let snapshots = format!("storage/volumes/{volume}/snapshots");
    let name = "20261128T212948Z8xc1ja";
    n.done("POST", &snapshots, json!({"name": name})).await;
    let clone = json!({"name": "clone", "svm": {"name": "SVM"}, "clone": {
        "is_flexclone": true, "parent_volume": {"name": "vol"}, "parent_snapshot": {"name": name}}});
    n.done("POST", "storage/volumes", clone).await;
    let found = n.get(&format!("{snapshots}?name={name}")).await;
    let one = format!(
        "{snapshots}/{}",
        found["records"][0]["uuid"].as_str().unwrap()
    );
    let gone = n.send_request("DELETE", &one, Value::Null).await;
    assert_eq!(gone.status, 202, "{}", gone.body);
    let job = gone.body["job"]["uuid"].as_str().unwrap();
    let job = n.get(&format!("cluster/jobs/{job}")).await;
    assert_eq!(
        (&job["state"], &job["code"], &job["error"]["code"]),
        (&json!("failure"), &json!(1_638_555), &json!("1638555"))
    );
    let waits = format!("{one}?return_timeout=30");
    n.refused("DELETE", &waits, Value::Null, 409, "1638555")
        .await;

    let clones = n.get("storage/volumes?name=clone").await;
    let clone = clones["records"][0]["uuid"].as_str().unwrap();
    let split = json!({"clone": {"split_initiated": true}});
    n.done("PATCH", &format!("storage/volumes/{clone}"), split)
        .await;
    n.done("DELETE", &one, Value::Null).await;
}

#[tokio::test]
async fn kinds_that_are_not_here_are_empty_lists() {
    let n = node().await;
    for path in [
        "storage/luns?fields=lun_maps.igroup.name,space.size&ignore_unknown_fields=true",
        "storage/shelves?fields=*",
        "protocols/san/igroups?svm.name=SVM",
        "cluster/licensing/licenses",
        "support/ems/events?order_by=time",
        "storage/quota/reports?fields=space&show_default_records=false&type=tree",
        "storage/quota/rules?svm.name=SVM&volume.name=vol&type=tree",
        "storage/qtrees?name=!%22%22&fields=name,export_policy.name",
    ] {
        let found = n.get(path).await;
        assert_eq!(
            (&found["num_records"], &found["records"]),
            (&json!(0), &json!([])),
            "{path}"
        );
    }
    n.refused("GET", "storage/luns/x", Value::Null, 404, "4")
        .await;
    n.refused("POST", "storage/luns", json!({"name": "x"}), 400, "262196")
        .await;
    n.refused("GET", "storage/nothing", Value::Null, 404, "3")
        .await;
    assert_eq!(n.get("storage/qtrees").await["num_records"], 3);
}

/// The requests of Trident's driver `ontap-nas-economy` for one qtree's life.
#[tokio::test]
async fn qtrees_and_their_quotas() {
    let n = node().await;
    let of = json!({"svm": {"name": "SVM"}, "volume": {"name": "vol"}});
    let with = |more: Value| {
        let mut body = of.clone();
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        body
    };
    let all = json!({"type": "tree", "qtree": {"name": ""}, "space": {"hard_limit": -1}});
    n.done("POST", "storage/quota/rules", with(all)).await;
    let policy = json!({"name": "trident_pvc", "svm": {"name": "SVM"}});
    n.done("POST", "protocols/nfs/export-policies", policy)
        .await;
    let named = json!({"name": "trident_pvc_1", "unix_permissions": 777,
        "security_style": "unix", "export_policy": {"name": "trident_pvc"}});
    n.done("POST", "storage/qtrees", with(named)).await;
    let found = "storage/qtrees?volume.name=vol&svm.name=SVM&name=trident_*&fields=*";
    let found = n.get(found).await;
    let one = &found["records"][0];
    assert_eq!(
        (
            &found["num_records"],
            &one["name"],
            &one["unix_permissions"]
        ),
        (&json!(1), &json!("trident_pvc_1"), &json!(777))
    );
    assert_eq!(one["nas"]["path"], "/vol/trident_pvc_1");
    assert_eq!(one["export_policy"]["name"], "trident_pvc");
    let volume = one["volume"]["uuid"].as_str().unwrap();
    let at = format!("storage/qtrees/{volume}/{}", one["id"]);
    assert_eq!(n.get(&at).await["id"], one["id"]);
    for (asked, then) in [
        ("default", "default"),
        ("", "default"),
        ("trident_pvc", "trident_pvc"),
    ] {
        let named = json!({"export_policy": {"name": asked}});
        n.done("PATCH", &at, named).await;
        assert_eq!(n.get(&at).await["export_policy"]["name"], then);
    }

    let limit = json!({"type": "tree", "qtree": {"name": "trident_pvc_1"},
        "space": {"hard_limit": 1 << 30}});
    n.done("POST", "storage/quota/rules", with(limit)).await;
    let rules = "storage/quota/rules?type=tree&volume.name=vol&qtree.name=trident_pvc_1&fields=*";
    let rule = &n.get(rules).await["records"][0];
    assert_eq!(rule["space"], json!({"hard_limit": 1 << 30}));
    assert_eq!(rule["qtree"]["id"], one["id"]);
    let rule = format!("storage/quota/rules/{}", rule["uuid"].as_str().unwrap());
    let larger = json!({"space": {"hard_limit": "2147483648"}});
    n.done("PATCH", &rule, larger).await;

    n.done("PATCH", &at, json!({"name": "deleted_1"})).await;
    // The rule goes with its qtree.
    let renamed = n.get(&format!("{rule}?fields=*")).await;
    assert_eq!(renamed["qtree"]["name"], "deleted_1");
    assert_eq!(renamed["space"]["hard_limit"], 1_u64 << 31);

    let refused = [
        ("POST", "storage/qtrees", with(json!({})), 400, "262197"),
        (
            "PATCH",
            at.as_str(),
            json!({"security_style": "ntfs"}),
            400,
            "262196",
        ),
        (
            "PATCH",
            at.as_str(),
            json!({"colour": "red"}),
            400,
            "262179",
        ),
    ];
    for (verb, path, body, status, code) in refused {
        n.refused(verb, path, body, status, code).await;
    }
    let nobody = json!({"type": "tree", "qtree": {"name": "nobody"}});
    n.refused("POST", "storage/quota/rules", with(nobody), 400, "262197")
        .await;
    n.done("DELETE", &at, Value::Null).await;
    n.refused("GET", &at, Value::Null, 404, "4").await;
}
