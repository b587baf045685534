//! Operations as clients of the two APIs see them.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use support::{PLACE, furnished};
use weir_api::Gate;
use weir_control::{Actor, Role};

/// A client of one API neither sees nor reaches the operations of the other, once it says which it
/// is a client of.
#[tokio::test]
async fn operations_of_the_two_apis_are_kept_apart() {
    let api = furnished().await;
    let ask = |path: String, agent: &'static str| {
        let request = Request::builder()
            .uri(path)
            .header("host", "127.0.0.1:8049")
            .header("user-agent", agent)
            .body(Body::empty())
            .unwrap();
        api.send(Gate::Loopback, request)
    };
    let gcloud = [
        "google-cloud-sdk gcloud/560.0.0 command/gcloud.netapp.operations.list",
        "google-cloud-sdk gcloud/560.0.0 command/gcloud.beta.filestore.operations.list",
    ];
    let mut names: Vec<Vec<String>> = Vec::new();
    for (path, agent) in [
        (format!("/netapp/v1/{PLACE}/operations"), ""),
        (format!("/file/v1beta1/{PLACE}/operations"), ""),
        (format!("/v1/{PLACE}/operations"), gcloud[0]),
        (format!("/v1/{PLACE}/operations"), gcloud[1]),
        (format!("/v1/{PLACE}/operations"), "python"),
        (format!("/v1p1alpha1/{PLACE}/operations"), ""),
    ] {
        let (status, listed) = ask(path, agent).await;
        assert_eq!(status, 200, "{listed}");
        let all = listed["operations"].as_array().unwrap();
        names.push(
            all.iter()
                .map(|o| o["name"].as_str().unwrap().to_owned())
                .collect(),
        );
    }
    assert_eq!(
        names.iter().map(Vec::len).collect::<Vec<_>>(),
        [2, 1, 2, 1, 2, 1]
    );
    let (netapp, filestore) = (names[0][0].clone(), names[1][0].clone());
    for (prefix, agent, name, expected) in [
        ("/netapp/v1", "", &netapp, 200),
        ("/netapp/v1", "", &filestore, 404),
        ("/file/v1", "", &filestore, 200),
        ("/file/v1", "", &netapp, 404),
        ("/v1", gcloud[0], &filestore, 404),
        // Polled for by a client that does not say: by its name it is found.
        ("/v1", "", &filestore, 200),
        ("/v1", "", &netapp, 200),
    ] {
        let (status, _) = ask(format!("{prefix}/{name}"), agent).await;
        assert_eq!(status, expected, "{prefix} {agent} {name}");
    }
    for (path, expected) in [
        (format!("/netapp/v1/{PLACE}/volumes/v1"), 200),
        (format!("/file/v1/{PLACE}/volumes/v1"), 404),
        (format!("/file/v1/{PLACE}/instances/i1"), 200),
        (format!("/netapp/v1/{PLACE}/instances/i1"), 404),
        ("/file/v1/projects/p1/locations".into(), 200),
    ] {
        assert_eq!(ask(path.clone(), "").await.0, expected, "{path}");
    }
}

/// Checks that an operation's result is what it was then, whatever has happened since: also when
/// the resource is gone.
#[tokio::test]
async fn an_operations_response_stays_what_it_was() {
    let api = furnished().await;
    let v1 = format!("{PLACE}/volumes/v1");
    let i1 = format!("{PLACE}/instances/i1");
    let change = |mask: &str, body: Value| {
        let path = format!("{v1}?updateMask={mask}");
        let api = &api;
        async move { api.ok("PATCH", &path, body.to_string()).await }
    };
    let first = change("throughputMibps", json!({"throughputMibps": 64})).await;
    let second = change(
        "description,labels",
        json!({"description": "d", "labels": {"a": "b"}}),
    )
    .await;
    let grown = api
        .ok(
            "PATCH",
            &format!("{i1}?updateMask=fileShares"),
            json!({"fileShares": [{"name": "i1", "capacityGb": 2048}]}).to_string(),
        )
        .await;
    let pool = api
        .ok(
            "PATCH",
            &format!("{PLACE}/storagePools/mq?updateMask=description"),
            json!({"description": "x"}).to_string(),
        )
        .await;
    assert_eq!(first["response"]["throughputMibps"], 64.0);
    assert_eq!(first["response"].get("description"), None);
    // As its own pool and addresses are, too.
    assert_eq!(first["response"]["serviceLevel"], "PREMIUM");
    assert_eq!(
        first["response"]["mountOptions"][0]["exportFull"],
        "10.1.2.3:/v1"
    );
    assert_eq!(second["response"]["description"], "d");
    assert_eq!(grown["response"]["fileShares"][0]["capacityGb"], "2048");
    assert_eq!(
        grown["response"]["networks"][0]["ipAddresses"][0],
        "10.1.2.3"
    );
    assert_eq!(pool["response"]["volumeCount"], 1);
    change("throughputMibps", json!({"throughputMibps": 8})).await;
    api.ok("DELETE", &format!("{v1}?force=true"), "").await;
    api.ok("DELETE", &i1, "").await;
    for op in [&first, &second, &grown, &pool] {
        assert_eq!(op["done"], true, "{op}");
        assert_eq!(&api.ok("GET", op["name"].as_str().unwrap(), "").await, op);
    }
    // The form of enums is the asking client's.
    let ints = format!(
        "{}?%24alt=json%3Benum-encoding%3Dint",
        first["name"].as_str().unwrap()
    );
    assert_eq!(api.ok("GET", &ints, "").await["response"]["state"], 1);
}

/// A change that is only checked shows its result and its limit, is refused as the change itself
/// is, and leaves nothing: no resource, no operation, no line in the audit log.
#[tokio::test]
async fn what_is_only_validated_changes_nothing() {
    let api = furnished().await;
    let before = api.everything().await;
    let audited = || async {
        let all = api.ok("GET", "/v1/auditEntries", "").await;
        all["auditEntries"].as_array().unwrap().len()
    };
    let entries = audited().await;
    let v1 = format!("{PLACE}/volumes/v1");
    let check = |method: &'static str, path: String, body: Value| {
        let api = &api;
        async move { api.ok(method, &path, body.to_string()).await }
    };
    let raised = check(
        "PATCH",
        format!("{v1}?updateMask=throughputMibps&validateOnly=true"),
        json!({"throughputMibps": 64}),
    )
    .await;
    assert_eq!(raised["done"], true);
    assert_eq!(raised["response"]["throughputMibps"], 64.0);
    assert_eq!(raised["response"]["state"], "READY");
    assert_eq!(raised["preview"]["throughputMibps"], 64.0);
    assert!(raised["preview"]["limitSource"].is_string(), "{raised}");
    let pool = &raised["preview"]["pool"];
    let left = pool["availableThroughputMibps"].as_f64().unwrap();
    assert!(left < pool["totalThroughputMibps"].as_f64().unwrap());
    for (method, path, body) in [
        ("DELETE", format!("{v1}?validateOnly=true"), json!({})),
        (
            "POST",
            format!("{v1}/snapshots?snapshotId=s1&validateOnly=true"),
            json!({}),
        ),
        (
            "POST",
            format!("{PLACE}/storagePools?storagePoolId=new&validateOnly=true"),
            support::pool(),
        ),
        (
            "DELETE",
            format!("{PLACE}/instances/i1?validateOnly=1"),
            json!({}),
        ),
    ] {
        let answer = check(method, path.clone(), body).await;
        assert_eq!(answer["validateOnly"], true, "{path}: {answer}");
    }
    // Refused byte for byte as without the parameter.
    for (method, path, body) in [
        (
            "PATCH",
            format!("{v1}?updateMask=throughputMibps"),
            json!({"throughputMibps": 1e6}),
        ),
        ("DELETE", format!("{PLACE}/storagePools/mq?"), json!({})),
        ("DELETE", format!("{PLACE}/volumes/none?"), json!({})),
    ] {
        let only = format!("{path}&validateOnly=true");
        let checked = api.send_request(method, &only, body.to_string()).await;
        let submitted = api.send_request(method, &path, body.to_string()).await;
        assert!(submitted.0 >= 400, "{submitted:?}");
        assert_eq!(checked, submitted);
    }
    let (status, _) = api
        .send_request("DELETE", &format!("{v1}?validateOnly=maybe"), "{}")
        .await;
    assert_eq!(status, 400);
    assert_eq!(api.everything().await, before);
    assert_eq!(audited().await, entries + 3, "the refused changes alone");
    // Viewers may ask, and may not change.
    let made = api
        .control
        .create_token("look", Role::Viewer, &Actor::local())
        .await;
    let (_, secret) = made.unwrap();
    for (query, expected) in [("&validateOnly=true", 200), ("", 403)] {
        let request = Request::builder()
            .method("PATCH")
            .uri(format!("/v1/{v1}?updateMask=throughputMibps{query}"))
            .header("authorization", format!("Bearer {secret}"))
            .header("content-type", "application/json")
            .body(Body::from(r#"{"throughputMibps": 64}"#))
            .unwrap();
        let (status, answer) = api.send(Gate::Tokens, request).await;
        assert_eq!(status, expected, "{query}: {answer}");
    }
}

/// Addresses are added for each reader; a network or a text that looks like one is not touched.
#[tokio::test]
async fn a_response_has_what_was_sent() {
    let api = furnished().await;
    let body = json!({
        "tier": "BASIC_HDD",
        "description": "0.0.0.0 and 10.0.0.0",
        "labels": {"range": "10-0-0-0-29"},
        "fileShares": [{"name": "i2", "capacityGb": "1024",
                        "nfsExportOptions": [{"ipRanges": ["10.0.0.0/29", "0.0.0.0/0"]}]}],
        "networks": [{"network": "default", "modes": ["MODE_IPV4"], "reservedIpRange": "10.0.0.0/29"}],
    });
    let path = format!("{PLACE}/instances?instanceId=i2");
    let op = api.ok("POST", &path, body.to_string()).await;
    let again = api.ok("GET", op["name"].as_str().unwrap(), "").await;
    let shown = api.ok("GET", &format!("{PLACE}/instances/i2"), "").await;
    for answer in [&op["response"], &again["response"], &shown] {
        let network = &answer["networks"][0];
        assert_eq!(network["reservedIpRange"], "10.0.0.0/29", "{answer}");
        assert_eq!(network["ipAddresses"], json!(["10.1.2.3"]), "{answer}");
        assert_eq!(answer["description"], body["description"]);
        assert_eq!(answer["labels"], body["labels"]);
        let ranges = &answer["fileShares"][0]["nfsExportOptions"][0]["ipRanges"];
        assert_eq!(ranges, &json!(["10.0.0.0/29", "0.0.0.0/0"]), "{answer}");
    }
}

/// A backup of an instance is in a vault that nobody made and nobody sees, and outlives its
/// instance.
#[tokio::test]
async fn an_instance_is_backed_up_without_a_vault() {
    let api = furnished().await;
    let region = "/v1/projects/p1/locations/region";
    let share = json!([{"name": "files", "capacityGb": "1024"}]);
    let body = json!({"tier": "BASIC_HDD", "fileShares": share});
    let made = format!("{PLACE}/instances?instanceId=one");
    let source = api.done("POST", &made, body.clone()).await["name"].clone();
    let wanted = json!({"sourceInstance": source, "labels": {"a": "b"}});
    let create = format!("{region}/backups?backupId=b");
    let (status, refused) = api.send_request("POST", &create, wanted.to_string()).await;
    assert_eq!(status, 400, "{refused}");
    assert!(refused.to_string().contains("--backup-bucket"), "{refused}");
    assert_eq!(
        api.ok("GET", &format!("{region}/backups"), "").await,
        json!({})
    );
    api.node.set_facts(weir_control::backend::Facts {
        backups: true,
        ..Default::default()
    });
    let first = api.done("POST", &create, wanted.clone()).await;
    for (field, value) in [
        (
            "@type",
            "type.googleapis.com/google.cloud.filestore.v1.Backup",
        ),
        ("name", "projects/p1/locations/region/backups/b"),
        ("state", "READY"),
        ("sourceFileShare", "files"),
        ("sourceInstanceTier", "BASIC_HDD"),
        ("capacityGb", "1024"),
    ] {
        assert_eq!(first[field], value, "{first}");
    }
    let second = format!("{region}/backups?backupId=c");
    api.done("POST", &second, wanted.clone()).await;
    assert_eq!(api.node.backups().len(), 2);
    let hidden = format!("{region}/backupVaults");
    assert_eq!(api.ok("GET", &hidden, "").await, json!({}));
    for path in ["", "/backups", "/backups/b"] {
        let path = format!("{hidden}/.filestore{path}");
        assert_eq!(api.send_request("GET", &path, "").await.0, 404, "{path}");
    }
    for (body, code) in [
        (
            json!({"sourceInstance": source, "sourceFileShare": "other"}),
            404,
        ),
        (
            json!({"sourceInstance": "projects/p1/locations/l/volumes/v"}),
            400,
        ),
        (json!({"sourceInstance": source, "kmsKey": "k"}), 400),
        (json!({}), 400),
    ] {
        let path = format!("{region}/backups?backupId=d");
        let (status, refused) = api.send_request("POST", &path, body.to_string()).await;
        assert_eq!(status, code, "{refused}");
    }
    let one = format!("{PLACE}/instances/one");
    api.done("DELETE", &format!("{one}?force=true"), json!({}))
        .await;
    let everywhere = api
        .ok("GET", "/v1/projects/p1/locations/-/backups", "")
        .await;
    let backups = everywhere["backups"].as_array().unwrap();
    let names: Vec<&str> = backups.iter().filter_map(|b| b["name"].as_str()).collect();
    let parent = "projects/p1/locations/region/backups";
    assert_eq!(names, [format!("{parent}/b"), format!("{parent}/c")]);
    let name = format!("{region}/backups/b");
    let change = format!("{name}?updateMask=description");
    let changed = api
        .done("PATCH", &change, json!({"description": "kept"}))
        .await;
    assert_eq!(
        (&changed["description"], &changed["sourceInstance"]),
        (&json!("kept"), &source)
    );
    api.done("DELETE", &name, json!({})).await;
    assert_eq!(api.node.backups().len(), 1);
    let mut restored = body;
    for (backup, code) in [("backups/none", 404), ("backupVaults/v/backups/c", 400)] {
        let backup = format!("projects/p1/locations/region/{backup}");
        restored["fileShares"][0]["sourceBackup"] = json!(backup);
        let path = format!("{PLACE}/instances?instanceId=new");
        let (status, answer) = api.send_request("POST", &path, restored.to_string()).await;
        assert_eq!(status, code, "{answer}");
    }
}
