//! Handlers over a control plane on a simulated node: their responses, and that what is refused
//! changes nothing.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use support::{Api, PLACE, furnished, pool, volume};
use weir_api::{Gate, MAX_BODY};
use weir_control::{Actor, Role};

#[tokio::test]
async fn a_pool_and_its_volume_from_beginning_to_end() {
    let api = furnished().await;
    let p = api.ok("GET", &format!("{PLACE}/storagePools/mq"), "").await;
    assert_eq!(
        (&p["totalThroughputMibps"], &p["availableThroughputMibps"]),
        (&json!("2560"), &json!(2432.0))
    );
    assert_eq!(
        (&p["volumeCount"], &p["volumeCapacityGib"], &p["state"]),
        (&json!(1), &json!("1024"), &json!("READY"))
    );
    assert_eq!(p["network"], pool()["network"]);
    let v = api.ok("GET", &format!("{PLACE}/volumes/v1"), "").await;
    assert_eq!(
        (&v["storagePool"], &v["serviceLevel"], &v["network"]),
        (&json!("mq"), &json!("PREMIUM"), &pool()["network"])
    );
    assert_eq!(v["mountOptions"][0]["exportFull"], "10.1.2.3:/v1");
    assert_eq!(v.get("exportPolicy"), None);
    // The whole resource with a narrow mask.
    let mut body = v.clone();
    body["throughputMibps"] = json!(256);
    body["capacityGib"] = json!("1");
    let path = format!("{PLACE}/volumes/v1?updateMask=throughputMibps");
    let changed = api.done("PATCH", &path, body).await;
    assert_eq!(
        (&changed["throughputMibps"], &changed["capacityGib"]),
        (&json!(256.0), &json!("1024"))
    );
    assert_eq!(
        changed["@type"],
        "type.googleapis.com/google.cloud.netapp.v1.Volume"
    );
    // Numbers where the client wants numbers.
    let n = api
        .ok(
            "GET",
            &format!("{PLACE}/volumes/v1?%24alt=json%3Benum-encoding%3Dint"),
            "",
        )
        .await;
    assert_eq!((&n["state"], &n["protocols"]), (&json!(1), &json!([1])));
    let snapshots = format!("{PLACE}/volumes/v1/snapshots");
    let s = api
        .done(
            "POST",
            &format!("{snapshots}?snapshotId=s1"),
            json!({"labels": {"snapmirror-label": "daily"}}),
        )
        .await;
    assert_eq!(s["labels"]["snapmirror-label"], "daily");
    assert_eq!(
        api.ok("GET", &snapshots, "").await["snapshots"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let op = api
        .ok(
            "POST",
            &format!("{PLACE}/volumes/v1:revert"),
            r#"{"snapshotId": "s1"}"#,
        )
        .await;
    assert_eq!(
        (&op["done"], &op["metadata"]["verb"]),
        (&json!(true), &json!("revert"))
    );
    let op = api
        .ok("DELETE", &format!("{PLACE}/volumes/v1?force=True"), "")
        .await;
    assert_eq!(
        op["response"],
        json!({"@type": "type.googleapis.com/google.protobuf.Empty"})
    );
    api.ok("DELETE", &format!("{PLACE}/storagePools/mq"), "")
        .await;
    let name = op["name"].as_str().unwrap();
    assert_eq!(api.ok("GET", name, "").await, op);
    assert_eq!(
        api.ok("POST", &format!("{name}:cancel"), "{}").await,
        json!({})
    );
    assert_eq!(api.ok("DELETE", name, "").await, json!({}));
    assert_eq!(api.send_request("GET", name, "").await.0, 404);
}

#[tokio::test]
async fn operations_of_both_surfaces_have_types_that_their_clients_know() {
    let api = furnished().await;
    let mut all = Vec::new();
    for prefix in ["/netapp", "/file"] {
        let path = format!("{prefix}/v1/{PLACE}/operations");
        let ops = api.ok("GET", &path, "").await["operations"].clone();
        all.extend(ops.as_array().unwrap().iter().cloned());
    }
    assert_eq!(all.len(), 3);
    for op in &all {
        let filestore = op["metadata"]["target"]
            .as_str()
            .unwrap()
            .contains("/instances/");
        let (meta, response) = if filestore {
            (
                "google.cloud.common.OperationMetadata",
                "google.cloud.filestore.v1.Instance",
            )
        } else {
            (
                "google.cloud.netapp.v1.OperationMetadata",
                "google.cloud.netapp.v1.",
            )
        };
        assert_eq!(
            op["metadata"]["@type"],
            format!("type.googleapis.com/{meta}")
        );
        assert!(
            op["response"]["@type"].as_str().unwrap().contains(response),
            "{op}"
        );
    }
}

#[tokio::test]
async fn pages_go_through_all_locations_in_one_order() {
    let api = Api::new().await;
    // `us-east1-b` sorts before `us-east1` where whole names are compared, behind it where parts
    // are.
    for location in ["us-east1", "us-east1-b", "us-east10"] {
        for i in 0..3 {
            let path = format!("projects/p1/locations/{location}/storagePools?storagePoolId=p{i}");
            api.done(
                "POST",
                &path,
                json!({"serviceLevel": "STANDARD", "capacityGib": 1024, "network": "n"}),
            )
            .await;
        }
    }
    for extra in [
        "",
        "&orderBy=capacityGib%20desc",
        "&filter=serviceLevel%3DSTANDARD",
    ] {
        let mut names = Vec::new();
        let mut token = String::new();
        loop {
            let path =
                format!("projects/p1/locations/-/storagePools?pageSize=2&pageToken={token}{extra}");
            let page = api.ok("GET", &path, "").await;
            names.extend(
                page["storagePools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|p| p["name"].to_string()),
            );
            match page["nextPageToken"].as_str() {
                Some(t) => token = t.to_owned(),
                None => break,
            }
        }
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!((names.len(), distinct.len()), (9, 9), "{extra}: {names:?}");
    }
    let locations = api.ok("GET", "projects/p1/locations", "").await;
    assert_eq!(locations["locations"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn every_bad_input_is_refused_in_the_apis_shape_and_changes_nothing() {
    let api = furnished().await;
    let before = api.everything().await;
    let big = format!("{{\"description\": \"{}\"}}", "x".repeat(MAX_BODY));
    let pools = format!("{PLACE}/storagePools?storagePoolId=n");
    let volumes = format!("{PLACE}/volumes?volumeId=n");
    let v1 = format!("{PLACE}/volumes/v1");
    let i1 = format!("{PLACE}/instances/i1");
    let with = |base: Value, field: &str, value: Value| {
        let mut v = base;
        v[field] = value;
        v.to_string()
    };
    let bad_rule = |clients: &str| {
        json!({"exportPolicy": {"rules": [{"allowedClients": clients, "accessType": "READ_WRITE"}]}}).to_string()
    };
    let cases: Vec<(&str, String, String, u16, &str)> = vec![
        // Unknown fields and parameters.
        (
            "POST",
            pools.clone(),
            with(pool(), "nonsense", json!(1)),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            format!("{pools}&nonsense=1"),
            pool().to_string(),
            400,
            "INVALID_ARGUMENT",
        ),
        // Wrong types.
        (
            "POST",
            pools.clone(),
            with(pool(), "capacityGib", json!("many")),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            pools.clone(),
            with(pool(), "labels", json!([])),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            pools.clone(),
            with(pool(), "labels", json!({"Upper": "x"})),
            400,
            "INVALID_ARGUMENT",
        ),
        ("POST", pools.clone(), "[]".into(), 400, "INVALID_ARGUMENT"),
        (
            "POST",
            volumes.clone(),
            with(volume("n"), "unixPermissions", json!("999")),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            volumes.clone(),
            with(volume("n"), "protocols", json!(["NFSV9"])),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            volumes.clone(),
            with(volume("n"), "protocols", json!(["ISCSI"])),
            400,
            "FAILED_PRECONDITION",
        ),
        (
            "POST",
            volumes.clone(),
            with(volume("n"), "kerberosEnabled", json!(true)),
            400,
            "FAILED_PRECONDITION",
        ),
        // Masks.
        (
            "PATCH",
            format!("{v1}?updateMask=usedGib"),
            "{}".into(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "PATCH",
            format!("{v1}?updateMask=state,capacityGib"),
            "{}".into(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "PATCH",
            format!("{v1}?updateMask=shareName"),
            r#"{"shareName":"x"}"#.into(),
            400,
            "INVALID_ARGUMENT",
        ),
        ("PATCH", v1.clone(), "{}".into(), 400, "INVALID_ARGUMENT"),
        (
            "PATCH",
            format!("{i1}?updateMask=tier"),
            r#"{"tier":"ZONAL"}"#.into(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "PATCH",
            format!("{i1}?updateMask=performanceLimits"),
            "{}".into(),
            400,
            "INVALID_ARGUMENT",
        ),
        // Etags.
        (
            "PATCH",
            format!("{i1}?updateMask=description"),
            r#"{"etag":"00000000000000ff","description":"x"}"#.into(),
            409,
            "ABORTED",
        ),
        (
            "PATCH",
            format!("{i1}?updateMask=description"),
            r#"{"etag":"nonsense","description":"x"}"#.into(),
            409,
            "ABORTED",
        ),
        // Names that are taken.
        (
            "POST",
            format!("{PLACE}/storagePools?storagePoolId=mq"),
            pool().to_string(),
            409,
            "ALREADY_EXISTS",
        ),
        (
            "POST",
            format!("{PLACE}/volumes?volumeId=v1"),
            volume("n").to_string(),
            409,
            "ALREADY_EXISTS",
        ),
        // Names that are none.
        (
            "POST",
            format!("{PLACE}/storagePools?storagePoolId=1n"),
            pool().to_string(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            format!("{PLACE}/storagePools"),
            pool().to_string(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            "projects/p1/locations/-/storagePools?storagePoolId=n".into(),
            pool().to_string(),
            400,
            "INVALID_ARGUMENT",
        ),
        // Requests that would lose something.
        (
            "DELETE",
            format!("{PLACE}/storagePools/mq"),
            String::new(),
            400,
            "FAILED_PRECONDITION",
        ),
        (
            "DELETE",
            format!("{v1}?force=perhaps"),
            String::new(),
            400,
            "INVALID_ARGUMENT",
        ),
        // Malformed clients.
        (
            "PATCH",
            format!("{v1}?updateMask=exportPolicy"),
            bad_rule("10.0.0.0/33"),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "PATCH",
            format!("{v1}?updateMask=exportPolicy"),
            bad_rule("300.0.0.1/8"),
            400,
            "INVALID_ARGUMENT",
        ),
        // Bodies.
        ("POST", pools.clone(), "{".into(), 400, "INVALID_ARGUMENT"),
        (
            "POST",
            pools.clone(),
            "[".repeat(10_000),
            400,
            "INVALID_ARGUMENT",
        ),
        ("POST", pools.clone(), big, 413, "INVALID_ARGUMENT"),
        // Paths and methods.
        (
            "GET",
            format!("{PLACE}/volumes/none"),
            String::new(),
            404,
            "NOT_FOUND",
        ),
        (
            "GET",
            format!("{PLACE}/volumes/none/snapshots"),
            String::new(),
            404,
            "NOT_FOUND",
        ),
        (
            "GET",
            format!("{PLACE}/kmsConfigs/none"),
            String::new(),
            404,
            "NOT_FOUND",
        ),
        ("GET", "/v2/x".into(), String::new(), 404, "NOT_FOUND"),
        ("PUT", v1.clone(), String::new(), 405, "UNIMPLEMENTED"),
        (
            "POST",
            format!("{PLACE}/backupVaults?backupVaultId=v"),
            "{}".into(),
            400,
            "FAILED_PRECONDITION",
        ),
        (
            "POST",
            format!("{PLACE}/storagePools/mq/ontap/api/private/cli"),
            "{}".into(),
            400,
            "FAILED_PRECONDITION",
        ),
        (
            "POST",
            format!("{v1}:revert"),
            "{}".into(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            format!("{v1}:revert"),
            r#"{"snapshotId":"none"}"#.into(),
            404,
            "NOT_FOUND",
        ),
        (
            "GET",
            format!("{PLACE}/volumes?filter=nope%3D1"),
            String::new(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "GET",
            format!("{PLACE}/volumes?pageToken=x"),
            String::new(),
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "GET",
            format!("{PLACE}/volumes?alt=media"),
            String::new(),
            400,
            "INVALID_ARGUMENT",
        ),
    ];
    for (method, path, body, code, status) in cases {
        let shown: String = body.chars().take(100).collect();
        let (got, answer) = api.send_request(method, &path, body).await;
        let e = &answer["error"];
        assert_eq!(
            (got, e["status"].as_str()),
            (code, Some(status)),
            "{method} {path} {shown}: {answer}"
        );
        assert_eq!(e["code"], code);
        assert!(e["message"].as_str().is_some_and(|m| !m.is_empty()));
        assert_eq!(
            e["details"][0]["@type"],
            "type.googleapis.com/google.rpc.ErrorInfo"
        );
        assert!(
            e["details"][0]["reason"]
                .as_str()
                .is_some_and(|r| !r.is_empty())
        );
        assert_eq!(api.everything().await, before, "{method} {path} {shown}");
    }
}

#[tokio::test]
async fn fields_that_are_the_clients_own_come_back_as_they_were_sent() {
    let api = furnished().await;
    let sent = json!({
        "storagePool": format!("{PLACE}/storagePools/mq"), "shareName": "own", "capacityGib": "100",
        "protocols": ["NFSV3"], "unixPermissions": "755", "throughputMibps": 10,
        "tieringPolicy": {"tierAction": "PAUSED", "coolingThresholdDays": 31}, "securityStyle": "UNIX",
        "exportPolicy": {"rules": [{"allowedClients": "10.0.0.1, 10.0.0.2", "hasRootAccess": "True", "nfsv3": true,
                                    "kerberos5ReadOnly": false, "kerberos5pReadWrite": true, "accessType": "READ_NONE"}]},
        "snapshotPolicy": {"enabled": true, "dailySchedule": {"snapshotsToKeep": 3.0, "hour": 2.0}},
    });
    let got = api
        .done(
            "POST",
            &format!("{PLACE}/volumes?volumeId=own"),
            sent.clone(),
        )
        .await;
    for (field, value) in sent.as_object().unwrap() {
        let want = match field.as_str() {
            "storagePool" => json!("mq"),
            "throughputMibps" => json!(10.0),
            _ => value.clone(),
        };
        assert_eq!(got[field], want, "{field}");
    }
    let path = format!(
        "{PLACE}/volumes/own?updateMask=unix_permissions,tiering_policy.tier_action,snapshotPolicy"
    );
    let body = json!({"unixPermissions": "0700", "tieringPolicy": {}});
    let got = api.done("PATCH", &path, body).await;
    assert_eq!(got["unixPermissions"], "0700");
    assert_eq!(got["tieringPolicy"], json!({"coolingThresholdDays": 31}));
    assert_eq!(got.get("snapshotPolicy"), None);
}

#[tokio::test]
async fn tokens_and_roles() {
    let api = furnished().await;
    let mut secrets = Vec::new();
    for role in Role::ALL {
        api.clock.advance(std::time::Duration::from_millis(1));
        let made = api
            .control
            .create_token(role.as_str(), *role, &Actor::local())
            .await
            .unwrap();
        secrets.push(made.1);
    }
    let ask = |method: &'static str, path: String, token: Option<String>| {
        let mut b = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "weir.example.com");
        if let Some(t) = token {
            b = b.header("authorization", format!("Bearer {t}"));
        }
        api.send(Gate::Tokens, b.body(Body::empty()).unwrap())
    };
    let pools = format!("/v1/{PLACE}/storagePools");
    let (viewer, editor, admin) = (secrets[0].clone(), secrets[1].clone(), secrets[2].clone());
    for (method, path, token, code, status) in [
        ("GET", pools.clone(), None, 401, "UNAUTHENTICATED"),
        ("GET", "/v1/nothing".into(), None, 401, "UNAUTHENTICATED"),
        ("GET", "/metrics".into(), None, 401, "UNAUTHENTICATED"),
        (
            "GET",
            pools.clone(),
            Some("wrong".to_owned()),
            401,
            "UNAUTHENTICATED",
        ),
        (
            "DELETE",
            format!("{pools}/mq"),
            Some(viewer.clone()),
            403,
            "PERMISSION_DENIED",
        ),
        (
            "GET",
            "/v1/tokens".into(),
            Some(editor.clone()),
            403,
            "PERMISSION_DENIED",
        ),
        (
            "GET",
            "/v1/auditEntries".into(),
            Some(viewer.clone()),
            403,
            "PERMISSION_DENIED",
        ),
        (
            "DELETE",
            format!("{pools}/mq"),
            Some(editor.clone()),
            400,
            "FAILED_PRECONDITION",
        ),
    ] {
        let (got, answer) = ask(method, path.clone(), token).await;
        assert_eq!(
            (got, answer["error"]["status"].as_str()),
            (code, Some(status)),
            "{method} {path}: {answer}"
        );
    }
    assert_eq!(ask("GET", pools.clone(), Some(viewer)).await.0, 200);
    let (code, audit) = ask(
        "GET",
        "/v1/auditEntries?pageSize=1".into(),
        Some(admin.clone()),
    )
    .await;
    assert_eq!(
        (code, audit["auditEntries"].as_array().unwrap().len()),
        (200, 1)
    );
    assert!(audit["nextPageToken"].is_string());
    let (_, listed) = ask("GET", "/v1/tokens".into(), Some(admin.clone())).await;
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 3);
    assert!(!listed.to_string().contains(&editor));
    api.clock.advance(std::time::Duration::from_millis(1));
    assert_eq!(
        ask("DELETE", "/v1/tokens/editor".into(), Some(admin))
            .await
            .0,
        200
    );
    assert_eq!(ask("GET", pools, Some(editor)).await.0, 401);
}

#[tokio::test]
async fn metrics_and_descriptions_are_served() {
    let api = Api::new().await;
    assert_eq!(api.send_request("GET", "/metrics", "").await.0, 404);
    let state = api.state.clone().with_metrics(std::sync::Arc::new(|| {
        Box::new(std::iter::once("weir_up 1\n".to_owned()))
    }));
    let request = Request::builder()
        .uri("/metrics")
        .body(Body::empty())
        .unwrap();
    let answer = tower::ServiceExt::oneshot(weir_api::router(state, Gate::Loopback), request)
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    for index in ["/openapi/", "/openapi"] {
        let text = api.ok("GET", index, "").await;
        let text = text.as_str().unwrap();
        for link in text.split("href=\"").skip(1) {
            let link = link.split('"').next().unwrap();
            assert!(api.ok("GET", link, "").await["openapi"].is_string());
        }
        assert_eq!(text.matches("href=").count(), 3);
    }
    let doc = api.ok("GET", "/openapi/netapp-v1.json", "").await;
    assert!(
        doc["paths"]["/v1/projects/{project}/locations/{location}/volumes/{volume}:revert"]["post"]
            .is_object()
    );
}

/// Twenty masks that name one label each, at once, of everything that has labels: none undoes
/// another.
#[tokio::test]
async fn masks_that_name_single_labels_do_not_undo_each_other() {
    let api = std::sync::Arc::new(furnished().await);
    let snapshots = format!("{PLACE}/volumes/v1/snapshots");
    api.done("POST", &format!("{snapshots}?snapshotId=s1"), json!({}))
        .await;
    for path in [
        format!("{PLACE}/storagePools/mq"),
        format!("{PLACE}/volumes/v1"),
        format!("{PLACE}/instances/i1"),
        format!("{snapshots}/s1"),
    ] {
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..20 {
            let (api, path) = (std::sync::Arc::clone(&api), path.clone());
            tasks.spawn(async move {
                let label = json!({"labels": {format!("l{n}"): n.to_string()}});
                let masked = format!("{path}?updateMask=labels.l{n}");
                api.done("PATCH", &masked, label).await;
            });
        }
        tasks.join_all().await;
        let labels = api.ok("GET", &path, "").await["labels"].clone();
        assert_eq!(labels.as_object().unwrap().len(), 20, "{path}: {labels}");
    }
}

#[tokio::test]
async fn a_description_names_the_limit_that_binds_now() {
    use weir_control::backend::{BindingLevel, ThrottleState};
    let api = furnished().await;
    let key = |name: &str| {
        let view = api.control.view();
        let place = weir_control::LocationName::new("p1", "us-central1");
        let volume = view.volume(&place.volume(name));
        let found = volume.or_else(|| view.volume(&place.instance(name)));
        found.map(|v| v.key.to_string())
    };
    let free = ThrottleState {
        source: "PREMIUM, manual: 128 MiB/s".to_owned(),
        ..ThrottleState::default()
    };
    let held = ThrottleState {
        binding: Some((BindingLevel::Client, weir_qos::Limit::ReadOps)),
        waiting: 12,
        ..free.clone()
    };
    for (collection, id) in [("volumes", "v1"), ("instances", "i1")] {
        let path = format!("{PLACE}/{collection}/{id}");
        api.node.throttle(&key(id).unwrap(), free.clone());
        let shown = api.ok("GET", &path, "").await;
        assert_eq!(
            shown["throughputStatus"],
            json!({"limitSource": "PREMIUM, manual: 128 MiB/s", "waitingRequests": "0"})
        );
        api.node.throttle(&key(id).unwrap(), held.clone());
        let shown = api.ok("GET", &path, "").await;
        assert_eq!(
            shown["throughputStatus"],
            json!({"limitSource": "PREMIUM, manual: 128 MiB/s", "waitingRequests": "12",
                   "bindingLevel": "CLIENT", "bindingLimit": "READ_OPS"})
        );
        let list = api.ok("GET", &format!("{PLACE}/{collection}"), "").await;
        let mut listed = list[collection].as_array().unwrap().iter();
        let found = listed
            .find(|one| one["name"].as_str().unwrap().ends_with(id))
            .unwrap();
        assert_eq!(found["throughputStatus"], shown["throughputStatus"]);
        // Clients send back what they read: it is no field that they could set.
        let masked = format!("{path}?updateMask=description");
        let mut body = shown.clone();
        body["description"] = json!("slow");
        api.done("PATCH", &masked, body.clone()).await;
        let masked = format!("{path}?updateMask=throughputStatus");
        assert_eq!(
            api.send_request("PATCH", &masked, body.to_string()).await.0,
            400
        );
    }
}

/// AIP-134: `*` is the whole resource. What was read and is sent back with one change is that
/// change.
#[tokio::test]
async fn a_mask_of_everything_takes_back_what_was_read() {
    let api = furnished().await;
    let snapshot = format!("{PLACE}/volumes/v1/snapshots/s1");
    api.done(
        "POST",
        &format!("{PLACE}/volumes/v1/snapshots?snapshotId=s1"),
        json!({}),
    )
    .await;
    for path in [
        format!("{PLACE}/storagePools/mq"),
        format!("{PLACE}/volumes/v1"),
        format!("{PLACE}/instances/i1"),
        snapshot,
    ] {
        let masked = format!("{path}?updateMask=*");
        let mut whole = api.ok("GET", &path, "").await;
        whole["description"] = json!("new");
        let changed = api.done("PATCH", &masked, whole.clone()).await;
        assert_eq!(changed["description"], "new", "{path}");
        let mut now = api.ok("GET", &path, "").await;
        let mut unchanged = now.clone();
        for side in [&mut now, &mut whole] {
            side.as_object_mut().unwrap().remove("etag");
        }
        assert_eq!(now, whole, "{path}");
        // Nothing but what it is; then without the description, which is to clear it.
        api.done("PATCH", &masked, unchanged.clone()).await;
        unchanged.as_object_mut().unwrap().remove("description");
        unchanged.as_object_mut().unwrap().remove("etag");
        let changed = api.done("PATCH", &masked, unchanged).await;
        assert_eq!(changed.get("description"), None, "{path}");
    }
    // A resource that cannot be without a field is refused, and the field is named.
    let masked = format!("{PLACE}/volumes/v1?updateMask=*");
    let (status, answer) = api
        .send_request("PATCH", &masked, r#"{"description": "x"}"#)
        .await;
    assert_eq!(
        (
            status,
            answer["error"]["details"][1]["fieldViolations"].is_array()
        ),
        (400, true)
    );
}

/// v1beta1 has the capacity at the instance as well.
#[tokio::test]
async fn an_instances_capacity_of_v1beta1() {
    let api = Api::new().await;
    let instances = format!("/v1beta1/{PLACE}/instances");
    let body = json!({"tier": "BASIC_HDD", "capacityGb": "1024", "fileShares": [{"name": "s"}]});
    let made = api
        .done("POST", &format!("{instances}?instanceId=i"), body)
        .await;
    assert_eq!(
        (&made["capacityGb"], &made["fileShares"][0]["capacityGb"]),
        (&json!("1024"), &json!("1024"))
    );
    let path = format!("{instances}/i");
    let masked = format!("{path}?updateMask=capacityGb");
    let grown = api
        .done("PATCH", &masked, json!({"capacityGb": "2048"}))
        .await;
    assert_eq!(grown["fileShares"][0]["capacityGb"], "2048");
    // The instance that was read comes back with the share grown, with a mask and without.
    let mut body = api.ok("GET", &path, "").await;
    for (query, gb) in [("?updateMask=fileShares", "3072"), ("", "4096")] {
        body["fileShares"][0]["capacityGb"] = json!(gb);
        body["etag"] = Value::Null;
        let grown = api
            .done("PATCH", &format!("{path}{query}"), body.clone())
            .await;
        assert_eq!(grown["capacityGb"], gb);
        body = api.ok("GET", &path, "").await;
    }
    let both = json!({"tier": "BASIC_HDD", "capacityGb": "1024", "fileShares": [{"name": "t", "capacityGb": "2048"}]});
    let (status, answer) = api
        .send_request(
            "POST",
            &format!("{instances}?instanceId=j"),
            both.to_string(),
        )
        .await;
    assert_eq!(
        (status, answer["error"]["status"].as_str()),
        (400, Some("INVALID_ARGUMENT"))
    );
}
