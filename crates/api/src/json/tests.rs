use super::*;
use crate::schema::{filestore, netapp};
use serde_json::json;

fn ok(m: &Message, v: Value) -> Value {
    Value::Object(decode(m, &v).unwrap())
}

fn wrong(m: &Message, v: Value) -> Vec<String> {
    let e = decode(m, &v).unwrap_err();
    assert_eq!(e.code(), 400);
    e.violations.iter().map(|v| v.field.clone()).collect()
}

#[test]
fn the_many_forms_of_one_value_have_one_normal_form() {
    for v in [
        json!({"capacityGib": "1024", "qosType": "MANUAL", "labels": {"a": "b"}}),
        json!({"capacity_gib": 1024, "qos_type": 2, "labels": {"a": "b"}, "network": null}),
        json!({"capacityGib": 1024.0, "qosType": 2, "labels": {"a": "b"}, "serviceLevel": 0}),
        json!({"capacityGib": 1024, "qosType": "MANUAL", "labels": {"a": "b"},
               "state": "READY", "volumeCount": 3, "createTime": "2026-01-01T00:00:00Z"}),
    ] {
        assert_eq!(
            ok(&netapp::STORAGE_POOL, v),
            json!({"capacityGib": 1024, "qosType": "MANUAL", "labels": {"a": "b"}})
        );
    }
    assert_eq!(
        ok(
            &netapp::VOLUME,
            json!({"throughputMibps": "12.5", "protocols": [1, "NFSV4"]})
        ),
        json!({"throughputMibps": 12.5, "protocols": ["NFSV3", "NFSV4"]})
    );
}

#[test]
fn what_is_wrong_is_named_by_its_path() {
    for (v, path) in [
        (json!({"foo": 1}), "foo"),
        (json!({"capacityGib": "many"}), "capacityGib"),
        (json!({"capacityGib": "+1"}), "capacityGib"),
        (json!({"capacityGib": 1.5}), "capacityGib"),
        (json!({"capacityGib": 1e300}), "capacityGib"),
        (json!({"capacityGib": "9223372036854775808"}), "capacityGib"),
        (json!({"capacityGib": [1]}), "capacityGib"),
        (json!({"throughputMibps": "NaN"}), "throughputMibps"),
        (json!({"throughputMibps": "infinity"}), "throughputMibps"),
        (json!({"protocols": "NFSV3"}), "protocols"),
        (json!({"protocols": ["NFSV3", "NFSV9"]}), "protocols[1]"),
        (json!({"protocols": [0]}), "protocols[0]"),
        (json!({"labels": {"a": 1}}), "labels.a"),
        (json!({"labels": []}), "labels"),
        (json!({"snapshotDirectory": "true"}), "snapshotDirectory"),
        (
            json!({"exportPolicy": {"rules": [{}, {"anonUid": "x"}]}}),
            "exportPolicy.rules[1].anonUid",
        ),
        (
            json!({"exportPolicy": {"rules": [{"nope": 1}]}}),
            "exportPolicy.rules[0].nope",
        ),
        (
            json!({"restoreParameters": {"sourceSnapshot": "a", "sourceBackup": "b"}}),
            "restoreParameters.sourceSnapshot",
        ),
        (json!([1, 2]), ""),
    ] {
        assert_eq!(wrong(&netapp::VOLUME, v.clone()), [path], "{v}");
    }
    // Output-only fields are ignored, but not of any type.
    assert_eq!(wrong(&netapp::VOLUME, json!({"usedGib": {}})), ["usedGib"]);
    let many: Object = (0..500).map(|i| (format!("x{i}"), Value::Null)).collect();
    assert_eq!(
        wrong(&netapp::VOLUME, Value::Object(many)).len(),
        MAX_VIOLATIONS
    );
}

#[test]
fn levels_of_ones_own_pass_and_other_sets_are_closed() {
    let own = json!({"serviceLevel": "UNLIMITED"});
    assert_eq!(ok(&netapp::STORAGE_POOL, own.clone()), own);
    assert_eq!(
        encode(
            &netapp::STORAGE_POOL,
            own.as_object().unwrap(),
            EnumsAs::Numbers
        ),
        json!({"serviceLevel": 0})
    );
    for v in [
        json!("unlimited"),
        json!(""),
        json!("A B"),
        json!(9),
        json!("X".repeat(64)),
    ] {
        assert_eq!(
            wrong(&netapp::STORAGE_POOL, json!({"serviceLevel": v})),
            ["serviceLevel"]
        );
    }
}

#[test]
fn the_values_of_a_set_are_listed() {
    let e = decode(&netapp::VOLUME, &json!({"securityStyle": "FOO"})).unwrap_err();
    let said: Vec<&str> = e.violations.iter().map(|v| &*v.description).collect();
    let name = "google.cloud.netapp.v1.SecurityStyle";
    let wanted =
        format!("Invalid value at 'securityStyle' ({name}), \"FOO\"; valid values: NTFS, UNIX");
    assert_eq!(said, [wanted]);
}

#[test]
fn encoding_writes_what_clients_read() {
    let v = json!({
        "tier": "ZONAL",
        "fileShares": [{"name": "a", "capacityGb": 1024,
                        "nfsExportOptions": [{"accessMode": "READ_ONLY", "anonUid": 7}]}],
        "performanceLimits": {"maxReadIops": 5},
    });
    let o = v.as_object().unwrap();
    assert_eq!(
        encode(&filestore::INSTANCE, o, EnumsAs::Names),
        json!({
            "tier": "ZONAL",
            "fileShares": [{"name": "a", "capacityGb": "1024",
                            "nfsExportOptions": [{"accessMode": "READ_ONLY", "anonUid": "7"}]}],
            "performanceLimits": {"maxReadIops": "5"},
        })
    );
    let numbers = encode(&filestore::INSTANCE, o, EnumsAs::Numbers);
    assert_eq!(numbers["tier"], json!(7));
    assert_eq!(
        numbers["fileShares"][0]["nfsExportOptions"][0]["accessMode"],
        json!(1)
    );
}

#[test]
fn states_have_the_numbers_of_the_public_definition() {
    for (name, number) in [("CREATING", 1), ("READY", 2), ("ERROR", 4)] {
        let vault = json!({"state": name});
        let vault = vault.as_object().unwrap();
        let numbers = encode(&netapp::BACKUP_VAULT, vault, EnumsAs::Numbers);
        assert_eq!(numbers, json!({"state": number}));
    }
}

#[test]
fn broken_bodies_are_the_clients_fault() {
    for body in [&b"{"[..], b"{\"a\":}", b"\xff\xfe", b"nul", b"{} {}"] {
        let e = decode_body(&netapp::VOLUME, body).unwrap_err();
        assert_eq!((e.code(), e.reason.as_str()), (400, "INVALID_JSON"));
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        decode_body(&netapp::VOLUME, deep.as_bytes())
            .unwrap_err()
            .code(),
        400
    );
    assert!(decode_body(&netapp::VOLUME, b" \n").unwrap().is_empty());
}
