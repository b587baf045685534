//! Domains of Active Directory as clients see them; nobody's password comes back.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use serde_json::{Value, json};
use support::{Api, PLACE};
use weir_control::sim::PASSWORD;

fn domain(password: &str) -> Value {
    json!({"domain": "example.com", "netBiosPrefix": "files", "dns": "10.0.0.1", "username": "admin", "password": password,
           "aesEncryption": true, "description": "ours", "labels": {"team": "geo"}})
}

/// The operation of a request, which has ended.
async fn ended(api: &Api, method: &str, path: &str, body: Value) -> Value {
    let op = api.ok(method, path, body.to_string()).await;
    assert_eq!(op["done"], true, "{op}");
    op
}

#[tokio::test]
async fn a_domain_is_made_listed_changed_and_deleted() {
    let api = Api::new().await;
    let all = format!("{PLACE}/activeDirectories");
    assert_eq!(api.ok("GET", &all, "").await, json!({}));
    let made = api
        .done(
            "POST",
            &format!("{all}?activeDirectoryId=ad"),
            domain(PASSWORD),
        )
        .await;
    let one = format!("{all}/ad");
    assert_eq!(made["name"], one);
    assert_eq!(
        made["@type"],
        "type.googleapis.com/google.cloud.netapp.v1.ActiveDirectory"
    );
    let got = api.ok("GET", &one, "").await;
    for (field, value) in domain(PASSWORD).as_object().unwrap() {
        match field.as_str() {
            "password" => assert_eq!(got.get(field), None),
            _ => assert_eq!(got[field], *value, "{field}"),
        }
    }
    assert_eq!(got["state"], "READY");
    let listed = api
        .ok(
            "GET",
            "projects/p1/locations/-/activeDirectories?filter=state=READY",
            "",
        )
        .await;
    assert_eq!(listed["activeDirectories"], json!([got]));
    // Fields that only describe are changed without a password, those that joining depends on are
    // not.
    let changed = api
        .done(
            "PATCH",
            &format!("{one}?updateMask=description,dns"),
            json!({"description": "new", "dns": "10.0.0.2"}),
        )
        .await;
    assert_eq!(
        (&changed["description"], &changed["dns"]),
        (&json!("new"), &json!("10.0.0.2"))
    );
    let (status, refused) = api
        .send_request(
            "PATCH",
            &format!("{one}?updateMask=username"),
            json!({"username": "other"}).to_string(),
        )
        .await;
    assert_eq!(status, 400, "{refused}");
    let both = json!({"username": "other", "password": PASSWORD});
    let changed = api
        .done(
            "PATCH",
            &format!("{one}?updateMask=username,password"),
            both,
        )
        .await;
    assert_eq!(
        (&changed["username"], &changed["state"]),
        (&json!("other"), &json!("READY"))
    );
    let (status, _) = api
        .send_request(
            "PATCH",
            &format!("{one}?updateMask=domain"),
            json!({"domain": "example.org"}).to_string(),
        )
        .await;
    assert_eq!(status, 400);

    let pools = format!("{PLACE}/storagePools?storagePoolId=");
    let pool = json!({"serviceLevel": "PREMIUM", "capacityGib": "2048", "activeDirectory": one});
    let made = api.done("POST", &format!("{pools}p"), pool).await;
    assert_eq!(made["activeDirectory"], one);
    let missing =
        json!({"serviceLevel": "PREMIUM", "capacityGib": "2048", "activeDirectory": "no"});
    assert_eq!(
        api.send_request("POST", &format!("{pools}q"), missing.to_string())
            .await
            .0,
        404
    );
    let volume =
        json!({"storagePool": "p", "shareName": "s", "capacityGib": "100", "protocols": ["SMB"]});
    let volume = api
        .done("POST", &format!("{PLACE}/volumes?volumeId=v"), volume)
        .await;
    assert_eq!(volume["activeDirectory"], one);
    assert_eq!(api.send_request("DELETE", &one, "").await.0, 400);
    api.done("DELETE", &format!("{PLACE}/volumes/v"), json!({}))
        .await;
    api.done("DELETE", &format!("{PLACE}/storagePools/p"), json!({}))
        .await;
    api.done("DELETE", &one, json!({})).await;
    assert_eq!(api.send_request("GET", &one, "").await.0, 404);
}

#[tokio::test]
async fn what_a_domain_refuses_is_said_and_a_volume_with_smb_has_to_wait() {
    let api = Api::new().await;
    let all = format!("{PLACE}/activeDirectories?activeDirectoryId=ad");
    let op = ended(&api, "POST", &all, domain("a wrong password")).await;
    assert_eq!(op["error"]["code"], 9, "{op}");
    let one = format!("{PLACE}/activeDirectories/ad");
    let got = api.ok("GET", &one, "").await;
    assert_eq!(
        (&got["state"], &got["stateDetails"]),
        (&json!("ERROR"), &json!("the password is wrong"))
    );
    let pool = json!({"serviceLevel": "PREMIUM", "capacityGib": "2048", "activeDirectory": one});
    api.done(
        "POST",
        &format!("{PLACE}/storagePools?storagePoolId=p"),
        pool,
    )
    .await;
    let volume = json!({"storagePool": "p", "shareName": "s", "capacityGib": "100", "protocols": ["NFSV3", "SMB"]});
    let volumes = format!("{PLACE}/volumes?volumeId=v");
    let (status, refused) = api.send_request("POST", &volumes, volume.to_string()).await;
    assert_eq!(
        (status, &refused["error"]["status"]),
        (400, &json!("FAILED_PRECONDITION")),
        "{refused}"
    );
    api.done(
        "PATCH",
        &format!("{one}?updateMask=password"),
        json!({"password": PASSWORD}),
    )
    .await;
    api.done("POST", &volumes, volume).await;
    // No trace of either password, wherever clients read.
    for path in [
        "projects/p1/locations/-/activeDirectories",
        "projects/p1/locations/-/operations",
        "auditEntries",
    ] {
        let text = api.ok("GET", path, "").await.to_string();
        assert!(
            !text.contains(PASSWORD) && !text.contains("a wrong password"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn what_would_have_no_effect_is_refused_by_name() {
    let api = Api::new().await;
    let all = format!("{PLACE}/activeDirectories?activeDirectoryId=ad");
    for (field, value) in [
        ("site", json!("here")),
        ("nfsUsersWithLdap", json!(true)),
        ("backupOperators", json!(["bob"])),
        ("administrators", json!(["bob"])),
        ("securityOperators", json!(["bob"])),
        ("dns", json!("")),
        ("domain", Value::Null),
        ("password", Value::Null),
        ("netBiosPrefix", json!("longer-than-ten")),
    ] {
        let mut body = domain(PASSWORD);
        body[field] = value;
        let (status, refused) = api.send_request("POST", &all, body.to_string()).await;
        assert_eq!(status, 400, "{field}: {refused}");
        assert!(refused.to_string().contains(field), "{field}: {refused}");
    }
    assert_eq!(api.node.domain(), None);
}
