//! ONTAP's interface over a cluster that only remembers: what its clients send, and what they get.

#![allow(clippy::unwrap_used, clippy::panic)] // A test may panic.

#[path = "support/ontap.rs"]
mod node;
mod support;

use axum::body::Body;
use axum::http::Request;
use node::Node;
use serde_json::{Value, json};
use support::PLACE;
use weir_api::Gate;
use weir_control::{Actor, Role};
use weir_ontap::Cluster;
use weir_ontap::cluster::Change;
use weir_ontap::script::Script;
use weir_relations::manager::Verb;
use weir_relations::model::{MirrorState, Path, Policy};

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// The users' own policy.
fn own(n: &Node) -> Policy {
    let all = n.script.policies();
    all.into_iter().find(|p| !p.system).unwrap()
}

const R: &str = "snapmirror/relationships";

#[tokio::test]
async fn a_relationship_from_beginning_to_end() {
    let n = Node::from_script(Script::running(&["SVM:src", "SVM:dst"])).await;
    let body = json!({"source": {"path": "SVM:src"}, "destination.path": "SVM:dst",
                      "policy": {"name": "MirrorLatest"}, "throttle": 8192});
    let made = n.done("POST", R, body).await;
    assert_eq!(made.status, 202);
    let one = made.location.strip_prefix("/api/").unwrap().to_owned();
    assert!(one.starts_with(R), "{one}");
    let r = n.get(&one).await;
    assert_eq!(
        (
            &r["state"],
            &r["throttle"],
            &r["policy"]["name"],
            &r["policy"]["type"],
            &r["healthy"]
        ),
        (
            &json!("uninitialized"),
            &json!(8192),
            &json!("MirrorLatest"),
            &json!("async"),
            &json!(true)
        )
    );
    assert_eq!(r["source"]["svm"]["name"], "SVM");
    assert_eq!(r.get("transfer"), None);

    let begun = n
        .done("POST", &format!("{one}/transfers"), json!({"throttle": 0}))
        .await;
    assert_eq!(
        n.last(),
        Verb::Initialize {
            destination: path("SVM:dst"),
            source_snapshot: None,
            throttle: Some(None),
        }
    );
    let transfer = begun.location.strip_prefix("/api/").unwrap().to_owned();
    let mut states = Vec::new();
    loop {
        let t = n.get(&transfer).await;
        states.push(t["state"].as_str().unwrap().to_owned());
        if t["state"] == "success" {
            assert_eq!(t["phases"]["data_ms"], 40_000);
            assert_eq!(t["total_duration"], "PT41S");
            break;
        }
    }
    assert_eq!(states.last().map(String::as_str), Some("success"));
    assert!(states.contains(&"transferring".to_owned()), "{states:?}");
    let r = n
        .get(&format!(
            "{R}?destination.path=SVM:dst&fields=state,lag_time,transfer"
        ))
        .await;
    let r = &r["records"][0];
    assert_eq!(
        (
            &r["state"],
            &r["lag_time"],
            &r["transfer"]["state"],
            r.get("source")
        ),
        (
            &json!("snapmirrored"),
            &json!("PT1M"),
            &json!("success"),
            None
        )
    );

    for (wish, state) in [
        ("paused", "paused"),
        ("paused", "paused"),
        ("snapmirrored", "snapmirrored"),
        ("broken_off", "broken_off"),
    ] {
        n.done("PATCH", &one, json!({"state": wish})).await;
        assert_eq!(n.get(&one).await["state"], state);
    }
    n.done(
        "PATCH",
        &one,
        json!({"state": "snapmirrored", "throttle": "4096", "quick_resync": true}),
    )
    .await;
    let changes = n.script.state().changes.clone();
    assert!(matches!(
        changes[changes.len() - 2],
        Change::Relation(Verb::Modify {
            throttle: Some(Some(4096)),
            ..
        })
    ));
    assert!(matches!(n.last(), Verb::Resync { source: None, .. }));
    n.done("PATCH", &one, json!({"transfer_schedule": null}))
        .await;
    assert!(matches!(
        n.last(),
        Verb::Modify {
            schedule: Some(None),
            ..
        }
    ));
    n.done(
        "PATCH",
        &one,
        json!({"transfer_schedule": {"name": "weekly"}}),
    )
    .await;
    assert_eq!(n.get(&one).await["transfer_schedule"]["name"], "weekly");
    let whole = format!("{one}?return_timeout=120&destination_only=true");
    assert_eq!(n.done("DELETE", &whole, Value::Null).await.status, 200);
    assert_eq!(n.get(R).await["num_records"], 0);
}

#[tokio::test]
async fn made_with_a_destination_and_turned_round() {
    let n = Node::from_script(Script::running(&["SVM:src"])).await;
    let body = json!({"source.path": "SVM:src", "destination.path": "SVM:new", "state": "snapmirrored",
                      "create_destination": {"enabled": true}});
    let made = n
        .done(
            "POST",
            &format!("{R}?return_timeout=15&return_records=true"),
            body,
        )
        .await;
    assert_eq!((made.status, &made.body["num_records"]), (201, &json!(1)));
    assert!(
        n.script
            .state()
            .volumes
            .iter()
            .any(|v| v.path == path("SVM:new") && v.protection)
    );
    let one = made.location.strip_prefix("/api/").unwrap().to_owned();
    while n.get(&one).await["state"] != "snapmirrored" {}
    let swapped =
        json!({"source.path": "SVM:new", "destination.path": "SVM:src", "state": "snapmirrored"});
    n.done("PATCH", &one, swapped).await;
    let all = n.get(R).await;
    assert_eq!(all["num_records"], 1);
    assert_eq!(all["records"][0]["destination"]["path"], "SVM:src");
}

#[tokio::test]
async fn a_restore_is_announced_and_then_begun() {
    let n = Node::from_script(Script::running(&["SVM:copy", "SVM:back"])).await;
    // As Ansible sends it.
    let body =
        json!({"source.path": "SVM:copy", "destination.path": "SVM:back", "restore": "true"});
    n.done("POST", R, body).await;
    assert_eq!(n.script.state().changes, []);
    let found = n.get(&format!("{R}?destination.path=SVM:back")).await;
    assert_eq!(found["records"][0]["restore"], true);
    let id = found["records"][0]["uuid"].as_str().unwrap();
    let body = json!({"source_snapshot": "snapmirror.1", "throttle": 64,
                      "files": [{"source_path": "/a"}, {"source_path": "/b", "destination_path": "/c"}]});
    let refused = n
        .send_request("POST", &format!("{R}/{id}/transfers"), body)
        .await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    let Verb::Restore { files, .. } = n.last() else {
        panic!("{:?}", n.last());
    };
    let paths = files.iter().map(|file| (&*file.source, &*file.destination));
    assert!(paths.eq([("/a", "/a"), ("/b", "/c")]), "{files:?}");
    let body = json!({"source_snapshot": "snapmirror.1", "throttle": 64});
    let begun = n.done("POST", &format!("{R}/{id}/transfers"), body).await;
    assert_eq!(
        n.last(),
        Verb::Restore {
            source: path("SVM:copy"),
            destination: path("SVM:back"),
            source_snapshot: Some("snapmirror.1".to_owned()),
            throttle: Some(64),
            files: Vec::new(),
        }
    );
    assert!(begun.location.contains("/transfers/"));
    n.refused("GET", &format!("{R}/{id}"), Value::Null, 404, "4")
        .await;
}

#[tokio::test]
async fn transfers_are_aborted() {
    let n = Node::from_script(Script::session()).await;
    n.script.set("SVM:vol_test_dst", |r| r.quiesced = false);
    let id = n.script.relationships()[0].uuid.clone();
    let begun = n
        .done("POST", &format!("{R}/{id}/transfers"), json!({}))
        .await;
    let t = begun.location.strip_prefix("/api/").unwrap().to_owned();
    n.refused(
        "POST",
        &format!("{R}/{id}/transfers"),
        json!({}),
        409,
        "13303844",
    )
    .await;
    n.refused(
        "PATCH",
        &format!("{R}/{id}/transfers/x"),
        json!({"state": "aborted"}),
        404,
        "4",
    )
    .await;
    n.refused("PATCH", &t, json!({"state": "success"}), 400, "262197")
        .await;
    n.done("PATCH", &t, json!({"state": "hard_aborted"})).await;
    assert!(matches!(n.last(), Verb::Abort { hard: true, .. }));
    assert_eq!(n.get(&t).await["state"], "aborted");
    n.refused(
        "PATCH",
        &format!("{R}/{id}"),
        json!({"state": "sideways"}),
        400,
        "262197",
    )
    .await;
}

#[tokio::test]
async fn policies_as_ansible_makes_them() {
    let n = Node::from_script(Script::empty()).await;
    let p = "snapmirror/policies";
    let body = json!({"name": "P", "svm": {"name": "S"}, "type": "async", "comment": "c",
                      "retention": [{"label": "daily", "count": "7"}]});
    let made = n.done("POST", p, body).await;
    let one = made.location.strip_prefix("/api/").unwrap().to_owned();
    let got = n
        .get(&format!(
            "{p}?scope=svm&svm.name=S&name=P&fields=retention,svm.name"
        ))
        .await;
    assert_eq!(got["records"][0]["retention"][0]["count"], "7");
    assert_eq!(got["records"][0]["svm"]["name"], "S");
    n.done(
        "PATCH",
        &one,
        json!({"comment": "d", "retention": [{"label": "weekly", "count": 52}]}),
    )
    .await;
    let got = n.get(&one).await;
    assert_eq!(
        (
            &got["comment"],
            got["retention"].as_array().unwrap().len(),
            &got["retention"][0]["label"]
        ),
        (&json!("d"), 1, &json!("weekly"))
    );
    assert_eq!(own(&n).rules[0].label, "sm_created");
    n.done(
        "POST",
        p,
        json!({"name": "A", "copy_all_source_snapshots": true}),
    )
    .await;
    let got = n
        .get(&format!("{p}?copy_all_source_snapshots=true&fields=name"))
        .await;
    let names: Vec<&str> = got["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["A", "MirrorAllSnapshots"]);
    n.refused("POST", p, json!({"name": "P"}), 409, "1").await;
    n.refused(
        "POST",
        p,
        json!({"name": "S", "type": "sync"}),
        400,
        "262197",
    )
    .await;
    let zero = json!({"name": "Z", "retention": [{"label": "x", "count": 0}]});
    n.refused("POST", p, zero, 400, "262197").await;
    let system = got["records"][1]["uuid"].as_str().unwrap();
    n.refused(
        "DELETE",
        &format!("{p}/{system}"),
        Value::Null,
        409,
        "13001",
    )
    .await;
    n.done("DELETE", &one, Value::Null).await;
    n.refused("GET", &one, Value::Null, 404, "4").await;
}

#[tokio::test]
async fn volumes_and_snapshots() {
    let n = Node::from_script(Script::running(&["SVM:v"])).await;
    let found = n
        .get("storage/volumes?name=v&svm.name=SVM&fields=name,size,type")
        .await;
    let v = &found["records"][0];
    assert_eq!(
        (&v["type"], &v["size"]),
        (&json!("rw"), &json!(16_u64 << 30))
    );
    let snapshots = format!("storage/volumes/{}/snapshots", v["uuid"].as_str().unwrap());
    let body = json!({"name": "s1", "snapmirror_label": "daily", "comment": "before"});
    let made = n.done("POST", &snapshots, body).await;
    let one = made.location.strip_prefix("/api/").unwrap().to_owned();
    let s = n.get(&one).await;
    assert_eq!(
        (&s["name"], &s["snapmirror_label"], &s["comment"]),
        (&json!("s1"), &json!("daily"), &json!("before"))
    );
    n.done(
        "PATCH",
        &one,
        json!({"name": "s2", "snapmirror_label": null}),
    )
    .await;
    let s = n.get(&one).await;
    assert_eq!(
        (&s["name"], s.get("snapmirror_label")),
        (&json!("s2"), None)
    );
    n.refused("POST", &snapshots, json!({"name": "s2"}), 409, "1")
        .await;
    n.done("DELETE", &one, Value::Null).await;
    assert_eq!(n.get(&snapshots).await["num_records"], 0);
    let body = json!({"name": "w", "svm.name": "SVM", "size": 1 << 30, "type": "DP", "aggregates": [{"name": "p"}]});
    let made = n.done("POST", "storage/volumes", body).await;
    let one = made.location.strip_prefix("/api/").unwrap().to_owned();
    assert_eq!(n.get(&one).await["type"], "dp");
    n.done("DELETE", &one, Value::Null).await;
}

#[tokio::test]
async fn the_node_itself() {
    let n = Node::from_script(Script::running(&["SVM:v"])).await;
    let c = n.get("cluster?fields=version").await;
    assert_eq!(
        (
            &c["version"]["generation"],
            &c["version"]["major"],
            c.get("peering")
        ),
        (&json!(9), &json!(15), None)
    );
    let made = n
        .done(
            "POST",
            "cluster/schedules",
            json!({"name": "q", "cron": {"minutes": [0, 30], "hours": [4]}}),
        )
        .await;
    let one = made.location.strip_prefix("/api/").unwrap().to_owned();
    let s = n.get(&one).await;
    assert_eq!(
        (&s["type"], &s["cron"]),
        (&json!("cron"), &json!({"minutes": [0, 30], "hours": [4]}))
    );
    n.done("DELETE", &one, Value::Null).await;
    let wrong = json!({"name": "q", "cron": {"minutes": [60]}});
    n.refused("POST", "cluster/schedules", wrong, 400, "262197")
        .await;
    let print = "AB:".repeat(31) + "AB";
    let body = json!({"name": "other", "remote": {"ip_addresses": ["10.0.0.2:2050"]}, "fingerprint": print});
    n.done("POST", "cluster/peers", body).await;
    let peers = n.get("cluster/peers?name=other").await;
    assert_eq!(peers["records"][0]["fingerprint"], "ab".repeat(32));
    assert_eq!(peers["records"][0]["status"]["state"], "pending");
    let wrong = json!({"name": "x", "fingerprint": "abc"});
    n.refused("POST", "cluster/peers", wrong, 400, "262197")
        .await;
    n.done("DELETE", "cluster/peers/other", Value::Null).await;
    assert_eq!(n.get("svm/svms").await["records"][0]["name"], "SVM");
}

#[tokio::test]
async fn what_is_wrong_changes_nothing() {
    let n = Node::from_script(Script::session()).await;
    let ends = |more: Value| {
        let mut body = json!({"source.path": "SVM:vol_test", "destination.path": "SVM:x"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    for (method, path, body, status, code) in [
        ("GET", "nothing", Value::Null, 404, "3"),
        ("GET", "cluster/nothing", Value::Null, 404, "3"),
        ("PATCH", R, json!({}), 405, "3"),
        ("PUT", R, json!({}), 405, "3"),
        (
            "GET",
            "snapmirror/relationships/none",
            Value::Null,
            404,
            "4",
        ),
        (
            "GET",
            "snapmirror/relationships?colour=red",
            Value::Null,
            400,
            "262179",
        ),
        (
            "GET",
            "snapmirror/relationships?fields=colour",
            Value::Null,
            400,
            "262197",
        ),
        (
            "POST",
            R,
            json!({"source.path": "SVM:vol_test"}),
            400,
            "262197",
        ),
        ("POST", R, json!([]), 400, "262254"),
        ("POST", R, ends(json!({"colour": 1})), 400, "262179"),
        ("POST", R, ends(json!({"throttle": 3})), 400, "262197"),
        (
            "POST",
            R,
            ends(json!({"throttle": 2_147_483_649_u64})),
            400,
            "262197",
        ),
        (
            "POST",
            R,
            ends(json!({"destination.path": "x"})),
            400,
            "262197",
        ),
        (
            "POST",
            R,
            ends(json!({"policy": {"name": "none"}})),
            400,
            "262197",
        ),
        (
            "POST",
            R,
            ends(json!({"transfer_schedule": {"name": "none"}})),
            400,
            "262197",
        ),
        ("POST", R, ends(json!({"state": "in_sync"})), 400, "262197"),
        (
            "POST",
            "snapmirror/relationships?return_timeout=121",
            ends(json!({})),
            400,
            "262197",
        ),
        ("POST", "private/cli", json!({"output": "x"}), 400, "262179"),
        ("POST", "private/cli", json!({"input": 1}), 400, "262197"),
        ("GET", "private/cli/nothing", Value::Null, 404, "3"),
        (
            "PATCH",
            "private/cli/snapmirror?destination_path=SVM:vol_test_dst",
            json!({"throttle": 3}),
            400,
            "262197",
        ),
        (
            "PATCH",
            "private/cli/snapmirror",
            json!({"throttle": 8}),
            400,
            "262197",
        ),
        (
            "PATCH",
            "private/cli/snapmirror?destination_path=SVM:vol_test_dst",
            json!({"throttle": {"a": 1}}),
            400,
            "262197",
        ),
    ] {
        n.refused(method, path, body, status, code).await;
    }
    assert_eq!(n.script.state().changes, []);
    let duplicate = json!({"source.path": "SVM:vol_test", "destination.path": "SVM:vol_test_dst"});
    n.refused("POST", R, duplicate, 409, "6619637").await;
    let request = Request::builder()
        .method("POST")
        .uri("/api/private/cli")
        .header("host", "127.0.0.1:8049")
        .header("content-type", "application/json")
        .body(Body::from("{"))
        .unwrap();
    let (status, body) = n.api.send(Gate::Loopback, request).await;
    assert_eq!((status, body["error"]["code"].is_string()), (400, true));
}

#[tokio::test]
async fn commands_as_resources_and_as_lines() {
    let n = Node::from_script(Script::session()).await;
    let shown = n
        .get("private/cli/snapmirror?fields=throttle,healthy&source-path=SVM:vol_test")
        .await;
    // Records are in the order of their keys.
    assert_eq!(
        shown["records"][1],
        json!({"source_path": "SVM:vol_test", "destination_path": "SVM:vol_test_dst",
               "throttle": "unlimited", "healthy": false})
    );
    assert_eq!(shown["num_records"], 2);
    let set = "private/cli/options?option_name=replication.throttle.incoming.max_kbs&privilege_level=admin";
    let changed = n
        .send_request("PATCH", set, json!({"option_value": "4096"}))
        .await;
    assert_eq!(
        (changed.status, &changed.body["num_records"]),
        (200, &json!(1))
    );
    assert_eq!(
        n.last(),
        Verb::GlobalThrottle {
            incoming: true,
            max: Some(4096)
        }
    );
    let options = n.get("private/cli/options?fields=option_value").await;
    assert_eq!(options["records"][0]["option_value"], 4096);
    let resumed = n
        .send_request(
            "POST",
            "private/cli/snapmirror/resume",
            json!({"destination-path": "SVM:vol_test_dst"}),
        )
        .await;
    assert_eq!(
        (resumed.status, &resumed.body["cli_output"]),
        (
            201,
            &json!(
                "Operation succeeded: snapmirror resume for destination \"SVM:vol_test_dst\".\n"
            )
        )
    );
    let modified = n
        .send_request(
            "PATCH",
            "private/cli/snapmirror?destination_path=SVM:vol_test_dst",
            json!({"throttle": 8192}),
        )
        .await;
    assert_eq!(modified.status, 200);
    assert_eq!(
        n.get("private/cli/snapmirror?destination_path=none:none")
            .await["num_records"],
        0
    );

    let line = n
        .send_request(
            "POST",
            "private/cli",
            json!({"input": "snapm show -destination-path *_1_* -fields throttle"}),
        )
        .await;
    assert_eq!(
        line.body["output"],
        "  (snapmirror show)\nsource-path  destination-path   throttle\n------------ ------------------ ---------\nSVM:vol_test SVM:vol_test_1_dst unlimited\n"
    );
    let refused = n
        .send_request(
            "POST",
            "private/cli",
            json!({"input": "snapmirror frobnicate"}),
        )
        .await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.body["output"],
        "\nError: \"frobnicate\" is not a recognized command\n"
    );
}

#[tokio::test]
async fn through_the_pools() {
    let n = Node::from_script(Script::session()).await;
    let pool = json!({"serviceLevel": "PREMIUM", "capacityGib": "2048", "network": "default"});
    n.api
        .done(
            "POST",
            &format!("{PLACE}/storagePools?storagePoolId=mq"),
            pool,
        )
        .await;
    let ontap = format!("{PLACE}/storagePools/mq/ontap/api");
    // As gcloud's `storage-pools execute` sends it.
    let body = json!({"body": {"input": "snapmirror show -fields throttle -destination-path SVM:vol_test_dst"}});
    let answer = n
        .api
        .ok("POST", &format!("{ontap}/private/cli"), body.to_string())
        .await;
    assert!(
        answer["body"]["output"]
            .as_str()
            .unwrap()
            .starts_with("source-path  destination-path throttle\n")
    );
    let answer = n
        .api
        .ok(
            "GET",
            &format!("{ontap}/snapmirror/relationships?fields=state&$alt=json"),
            "",
        )
        .await;
    assert_eq!(answer["body"]["num_records"], 2);
    let (status, e) = n
        .api
        .send_request("GET", &format!("{ontap}/nothing"), "")
        .await;
    assert_eq!((status, &e["error"]["status"]), (404, &json!("NOT_FOUND")));
    assert_eq!(e["error"]["code"], 3, "ONTAP's code: {e}");
    // As Trident renames it.
    let fields = format!("{ontap}/snapmirror/relationships?ontap_fields=state&max_records=1");
    let answer = n.api.ok("GET", &fields, "").await;
    let one = &answer["body"]["records"][0];
    assert_eq!((one["state"].is_string(), one.get("source")), (true, None));
    let (status, _) = n
        .api
        .send_request(
            "GET",
            &format!("{PLACE}/storagePools/none/ontap/api/cluster"),
            "",
        )
        .await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn passwords_are_tokens() {
    let n = Node::from_script(Script::session()).await;
    let local = Actor::local();
    let (_, secret) = n
        .api
        .control
        .create_token("v", Role::Viewer, &local)
        .await
        .unwrap();
    let ask = |method: &str, authorization: Option<String>| {
        let mut request = Request::builder().method(method).uri("/api/cluster");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        n.api
            .send(Gate::Tokens, request.body(Body::empty()).unwrap())
    };
    use base64::Engine as _;
    let basic = |password: &str| {
        let plain = format!("admin:{password}");
        Some(format!(
            "Basic {}",
            base64::engine::general_purpose::STANDARD.encode(plain)
        ))
    };
    assert_eq!(ask("GET", basic(&secret)).await.0, 200);
    assert_eq!(ask("GET", Some(format!("Bearer {secret}"))).await.0, 200);
    let (status, body) = ask("GET", basic("wrong")).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("6691623")));
    assert_eq!(ask("GET", None).await.0, 401);
    let (status, body) = ask("POST", basic(&secret)).await;
    assert_eq!((status, &body["error"]["code"]), (403, &json!("6")));
}

/// A list is searched and ordered by what its records have, whether that is read from them or from
/// the rows.
#[tokio::test]
async fn what_is_searched_and_ordered_by_is_what_records_show() {
    let n = Node::from_script(Script::session()).await;
    let names: Vec<String> = (0..7).map(|at| format!("SVM:c{at}")).collect();
    let add = |name: &str, copy| n.script.state().volume(path(name), 16 << 30, copy);
    add("SVM-a:x", false);
    names.iter().for_each(|name| add(name, true));
    for (at, name) in names.iter().enumerate() {
        let source = ["SVM-a:x", "SVM:vol_test"][at % 2];
        let policy = ["MirrorLatest", "XDPDefault"][at % 2];
        let body = json!({"source.path": source, "destination.path": name, "throttle": at * 90,
                          "policy.name": policy});
        n.done("POST", R, body).await;
    }
    n.script.moving("SVM:c0", 77, 1_683_200_000);
    let set = |name: &str, how: fn(&mut weir_relations::manager::Entry)| n.script.set(name, how);
    set("SVM:c1", |e| e.trouble = Some("No.".to_owned()));
    set("SVM:c2", |e| e.schedule = Some("daily".to_owned()));
    set("SVM:c3", |e| e.state = MirrorState::BrokenOff);
    set("SVM:c4", |e| e.shown.cluster = "far".to_owned());
    n.script.state().moves = true;
    for (name, lag) in [("SVM:c5", 5), ("SVM:c6", 40_000)] {
        let id = n.script.relationship(&path(name)).unwrap().uuid;
        n.done(
            "PATCH",
            &format!("{R}/{id}"),
            json!({"state": "snapmirrored"}),
        )
        .await;
        while n.get(&format!("{R}/{id}")).await["state"] != "snapmirrored" {}
        n.script
            .set(name, |entry| entry.newest.as_mut().unwrap().taken -= lag);
    }
    n.script.state().moves = false;

    let uuids = |page: &Value| -> Vec<String> {
        let all = page["records"].as_array().unwrap().iter();
        all.map(|r| r["uuid"].as_str().unwrap().to_owned())
            .collect()
    };
    let whole = n.get(R).await;
    let mut distinct = 0;
    const FIELDS: &str = "uuid source.path source.svm.name source.cluster.name destination.path destination.svm.name \
        policy.name state healthy throttle transfer_schedule.name exported_snapshot lag_time transfer.state transfer.type \
        total_transfer_bytes";
    for field in FIELDS.split_whitespace() {
        let pointer = format!("/{}", field.replace('.', "/"));
        let text = |r: &Value| match r.pointer(&pointer) {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let records = whole["records"].as_array().unwrap();
        let mut values: Vec<String> = records.iter().map(text).collect();
        values.sort();
        values.dedup();
        distinct += values.len();
        for value in &values {
            let wanted = if value.is_empty() { "null" } else { value };
            let found = n.get(&format!("{R}?{field}={wanted}")).await;
            let meant = records.iter().filter(|r| text(r) == *value);
            let meant: Vec<&str> = meant.map(|r| r["uuid"].as_str().unwrap()).collect();
            assert_eq!(uuids(&found), meant, "{field}={value}");
        }
        for way in ["asc", "desc"] {
            // Page by page it is the same as at once: each of its records once.
            let order = format!("{R}?order_by={field}%20{way}");
            let at_once = n.get(&order).await;
            let mut paged = Vec::new();
            let mut next = Some(format!("{order}&max_records=4"));
            while let Some(path) = next {
                let page = n.get(&path).await;
                paged.extend(uuids(&page));
                let link = page["_links"]["next"]["href"].as_str();
                next = link.map(|link| link.strip_prefix("/api/").unwrap().to_owned());
            }
            assert_eq!(paged, uuids(&at_once), "{order}");
            let rank = |r: &Value| {
                let text = text(r);
                match field {
                    "throttle" | "total_transfer_bytes" => format!("{text:0>20}"),
                    "lag_time" if !text.is_empty() => {
                        let span: jiff::SignedDuration = text.parse().unwrap();
                        format!("{:020}", span.as_secs())
                    }
                    _ => text,
                }
            };
            let mut sorted: Vec<&Value> = records.iter().collect();
            sorted.sort_by(|a, b| match way {
                "asc" => rank(a).cmp(&rank(b)),
                _ => rank(b).cmp(&rank(a)),
            });
            let sorted: Vec<&str> = sorted.iter().map(|r| r["uuid"].as_str().unwrap()).collect();
            assert_eq!(uuids(&at_once), sorted, "{order}");
        }
    }
    assert!(distinct > 50, "{distinct} values, which compare little");
    let cli = n
        .get("private/cli/snapmirror?fields=state&order_by=destination_path%20desc&max_records=2")
        .await;
    assert_eq!(
        (&cli["num_records"], &cli["records"][0]["destination_path"]),
        (&json!(2), &json!("SVM:vol_test_dst"))
    );
    let next = cli["_links"]["next"]["href"].as_str().unwrap();
    let next = n.get(next.strip_prefix("/api/").unwrap()).await;
    assert_eq!(next["records"][0]["destination_path"], "SVM:c6");
}
