//! Every field of the two APIs does something, describes, or is refused by name: none is stored
//! without effect.

#![allow(clippy::unwrap_used)] // A test may panic.

mod support;

use serde_json::{Value, json};
use support::{Api, PLACE};

/// A resource of each kind, as the plainest client makes it.
fn plain(collection: &str) -> Value {
    match collection {
        "storagePools" => json!({"serviceLevel": "PREMIUM", "capacityGib": "1024"}),
        "volumes" => {
            json!({"storagePool": "p", "shareName": "s", "capacityGib": "1", "protocols": ["NFSV3"]})
        }
        _ => json!({"tier": "BASIC_HDD", "fileShares": [{"name": "files", "capacityGb": "1024"}]}),
    }
}

fn parameter(collection: &str) -> &'static str {
    match collection {
        "storagePools" => "storagePoolId",
        "volumes" => "volumeId",
        _ => "instanceId",
    }
}

fn with(collection: &str, more: &Value) -> Value {
    let mut body = plain(collection);
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn what_nobody_would_keep_is_refused_by_name() {
    let api = Api::new().await;
    let pool = format!("{PLACE}/storagePools?storagePoolId=p");
    api.done("POST", &pool, plain("storagePools")).await;
    let before = api.everything().await;
    for (collection, field, value) in [
        ("storagePools", "ldapEnabled", json!(true)),
        ("storagePools", "globalAccessAllowed", json!(true)),
        ("storagePools", "kmsConfig", json!("k")),
        ("storagePools", "replicaZone", json!("b")),
        ("storagePools", "allowAutoTiering", json!(true)),
        ("storagePools", "hotTierSizeGib", json!("100")),
        ("storagePools", "enableHotTierAutoResize", json!(true)),
        ("storagePools", "type", json!("UNIFIED")),
        ("storagePools", "mode", json!("ONTAP")),
        ("storagePools", "scaleType", json!("SCALE_TYPE_SCALEOUT")),
        ("volumes", "protocols", json!(["NFSV3", "ISCSI"])),
        // Not a volume of SMB.
        ("volumes", "smbSettings", json!(["BROWSABLE"])),
        ("volumes", "securityStyle", json!("NTFS")),
        ("volumes", "multipleEndpoints", json!(true)),
        ("volumes", "tieringPolicy", json!({"tierAction": "ENABLED"})),
        (
            "volumes",
            "tieringPolicy",
            json!({"hotTierBypassModeEnabled": true}),
        ),
        (
            "volumes",
            "largeCapacityConfig",
            json!({"constituentCount": 8}),
        ),
        ("instances", "kmsKeyName", json!("k")),
    ] {
        let path = format!("{PLACE}/{collection}?{}=x", parameter(collection));
        let body = with(collection, &json!({field: value}));
        let (status, answer) = api.send_request("POST", &path, body.to_string()).await;
        assert_eq!(status, 400, "{collection}.{field}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        let word = match field {
            "protocols" => "ISCSI",
            field => field,
        };
        assert!(message.contains(word), "{collection}.{field}: {message}");
        assert_eq!(api.everything().await, before, "{collection}.{field}");
    }
    // Nor afterwards.
    let volume = format!("{PLACE}/volumes?volumeId=v");
    api.done("POST", &volume, plain("volumes")).await;
    for (path, body) in [
        (
            "storagePools/p?updateMask=allowAutoTiering",
            json!({"allowAutoTiering": true}),
        ),
        (
            "volumes/v?updateMask=smbSettings",
            json!({"smbSettings": ["NON_BROWSABLE"]}),
        ),
        (
            "volumes/v?updateMask=tieringPolicy",
            json!({"tieringPolicy": {"tierAction": "ENABLED"}}),
        ),
    ] {
        let (status, answer) = api
            .send_request("PATCH", &format!("{PLACE}/{path}"), body.to_string())
            .await;
        assert_eq!(status, 400, "{path}: {answer}");
    }
}

#[tokio::test]
async fn volumes_of_smb_are_made_changed_and_mounted() {
    let api = Api::new().await;
    let pool = format!("{PLACE}/storagePools?storagePoolId=p");
    api.done("POST", &pool, plain("storagePools")).await;
    for (id, protocols, mounts) in [
        ("win", json!(["SMB"]), vec!["SMB"]),
        (
            "both",
            json!(["NFSV3", "NFSV4", "SMB"]),
            vec!["NFSV3", "NFSV4", "SMB"],
        ),
    ] {
        let more = json!({"protocols": protocols, "shareName": id, "securityStyle": "UNIX",
                          "smbSettings": ["BROWSABLE", "OPLOCKS", "ACCESS_BASED_ENUMERATION"]});
        let path = format!("{PLACE}/volumes?volumeId={id}");
        let made = api.done("POST", &path, with("volumes", &more)).await;
        for field in ["protocols", "smbSettings", "securityStyle"] {
            assert_eq!(made[field], more[field], "{field}");
        }
        let lines = made["mountOptions"].as_array().unwrap();
        let shown: Vec<_> = lines.iter().map(|line| line["protocol"].clone()).collect();
        assert_eq!(json!(shown), json!(mounts));
        let line = lines.last().unwrap();
        assert_eq!(line["exportFull"], json!(format!("\\\\10.1.2.3\\{id}")));
        assert!(
            line["instructions"]
                .as_str()
                .unwrap()
                .contains("mount -t cifs"),
            "{line}"
        );
    }
    // A share is of one volume, in any case of its letters.
    let path = format!("{PLACE}/volumes?volumeId=other");
    let taken = with(
        "volumes",
        &json!({"protocols": ["SMB"], "shareName": "WIN"}),
    );
    let (status, answer) = api.send_request("POST", &path, taken.to_string()).await;
    assert_eq!(status, 409, "{answer}");
    let (status, answer) = api
        .send_request(
            "PATCH",
            &format!("{PLACE}/volumes/both?updateMask=smbSettings,protocols"),
            json!({"protocols": ["NFSV3"]}).to_string(),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    let got = api.ok("GET", &format!("{PLACE}/volumes/both"), "").await;
    assert_eq!(
        (&got["smbSettings"], &got["protocols"]),
        (&Value::Null, &json!(["NFSV3"]))
    );
}

#[tokio::test]
async fn defaults_that_clients_send_are_taken_and_come_back() {
    let api = Api::new().await;
    for (collection, id, more) in [
        (
            "storagePools",
            "p",
            json!({"ldapEnabled": false, "allowAutoTiering": false, "type": "FILE", "mode": "DEFAULT", "network": "n",
                   "zone": "a", "psaRange": "r", "activeDirectory": "", "kmsConfig": "", "replicaZone": "",
                   "enableHotTierAutoResize": false, "hotTierSizeGib": "0", "scaleType": "SCALE_TYPE_DEFAULT"}),
        ),
        (
            "volumes",
            "v",
            json!({"smbSettings": [], "securityStyle": "UNIX", "kerberosEnabled": false, "multipleEndpoints": false,
                   "tieringPolicy": {"tierAction": "PAUSED", "coolingThresholdDays": 31}, "largeCapacity": false,
                   "exportPolicy": {"rules": [{"allowedClients": "*", "nfsv3": true, "nfsv4": false}]}}),
        ),
        (
            "instances",
            "i",
            json!({"protocol": "NFS_V3", "kmsKeyName": "", "tags": {}, "deletionProtectionReason": "r",
                   "networks": [{"network": "n", "modes": ["MODE_IPV4"], "connectMode": "DIRECT_PEERING"}]}),
        ),
    ] {
        let path = format!("{PLACE}/{collection}?{}={id}", parameter(collection));
        let got = api.done("POST", &path, with(collection, &more)).await;
        for field in [
            "type",
            "mode",
            "network",
            "zone",
            "securityStyle",
            "tieringPolicy",
        ] {
            if let Some(sent) = more.get(field) {
                assert_eq!(&got[field], sent, "{field}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_printed_for_mounting_is_what_is_exported() {
    let api = Api::new().await;
    let pool = format!("{PLACE}/storagePools?storagePoolId=p");
    api.done("POST", &pool, plain("storagePools")).await;
    // The first volume of the server has /vol1.
    let body = with("volumes", &json!({"shareName": "vol1"}));
    let got = api
        .done("POST", &format!("{PLACE}/volumes?volumeId=v"), body)
        .await;
    let options = got["mountOptions"].as_array().unwrap();
    assert_eq!(options.len(), 1, "{got}");
    assert_eq!(options[0]["protocol"], "NFSV3");
    assert_eq!(options[0]["export"], "/v/vol1");
    let instructions = options[0]["instructions"].as_str().unwrap();
    assert!(
        instructions.contains(":/v/vol1 /mnt/vol1"),
        "{instructions}"
    );
    let path = format!("{PLACE}/instances?instanceId=one");
    let got = api.done("POST", &path, plain("instances")).await;
    assert_eq!(got["exportPaths"], json!(["/one/files", "/files"]));
    // The volume that the first start makes is served by all protocols.
    let first = "/v1/projects/weir/locations/local/volumes/vol1";
    let got = api.ok("GET", first, "").await;
    assert_eq!(got["protocols"], json!(["NFSV3", "NFSV4", "SMB"]));
    let options = got["mountOptions"].as_array().unwrap();
    for (option, protocol, command) in [
        (&options[0], "NFSV3", "vers=3,"),
        (&options[1], "NFSV4", "vers=4.2,"),
        (&options[2], "SMB", "vers=3.1.1,"),
    ] {
        assert_eq!(option["protocol"], protocol);
        let instructions = option["instructions"].as_str().unwrap();
        assert!(instructions.contains(command), "{instructions}");
        assert!(instructions.contains("/vol1 /mnt"), "{instructions}");
    }
    assert_eq!(options.len(), 3, "{got}");
}

/// docs/reference/api.md says of each field which of the three it is.
#[test]
fn every_field_is_in_the_documents_table() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let text = read("docs/reference/api.md");
    let (_, table) = text.split_once("## Fields").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let row = |kind: &str| {
        let found = table
            .lines()
            .find(|l| l.starts_with(&format!("| {kind} |")));
        found.unwrap_or_else(|| panic!("no row {kind}"))
    };
    for (document, message, kind) in [
        ("netapp-v1", "StoragePool", "Storage pool"),
        ("netapp-v1", "Volume", "Volume"),
        (
            "netapp-v1",
            "SimpleExportPolicyRule",
            "Rule of an export policy",
        ),
        ("netapp-v1", "Snapshot", "Snapshot"),
        ("filestore-v1", "Instance", "Instance"),
        ("filestore-v1", "FileShareConfig", "Instance"),
        ("filestore-v1", "NfsExportOptions", "Option of an instance"),
        ("filestore-v1", "Backup", "Backup of an instance"),
    ] {
        let document: Value =
            serde_json::from_str(&read(&format!("openapi/{document}.json"))).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let found = schemas
            .iter()
            .find(|(name, _)| name.rsplit('.').next() == Some(message) && !name.contains("backup"));
        let (_, schema) = found.unwrap_or_else(|| panic!("no {message}"));
        for (field, of) in schema["properties"].as_object().unwrap() {
            let said = of["readOnly"] == json!(true) || field == "name";
            let shown = row(kind).contains(&format!("`{field}`"));
            assert!(said || shown, "{message}.{field} is not in the row {kind}");
        }
    }
}
