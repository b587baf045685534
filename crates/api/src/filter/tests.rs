use super::*;
use crate::schema::netapp::VOLUME;
use serde_json::json;

fn volume() -> Object {
    json!({
        "name": "projects/p1/locations/l1/volumes/my-vol",
        "capacityGib": 2048,
        "throughputMibps": 12.5,
        "state": "READY",
        "serviceLevel": "UNLIMITED",
        "protocols": ["NFSV3", "NFSV4"],
        "snapshotDirectory": true,
        "createTime": "2026-03-01T10:00:00Z",
        "description": "Seismic \"raw\" data",
        "labels": {"team": "geo", "cost-center": "12"},
        "exportPolicy": {"rules": [{"allowedClients": "10.0.0.0/8", "accessType": "READ_ONLY"},
                                   {"allowedClients": "*", "accessType": "READ_WRITE"}]},
    })
    .as_object()
    .cloned()
    .unwrap()
}

fn says(text: &str) -> bool {
    match Filter::parse(&VOLUME, text) {
        Ok(Some(f)) => f.matches(&volume()),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn what_passes_and_what_does_not() {
    for (text, want) in [
        ("capacityGib=2048", true),
        ("capacity_gib = 2048", true),
        ("capacityGib!=2048", false),
        ("capacityGib>2047 AND capacityGib<2049", true),
        ("capacityGib>=2049", false),
        ("capacityGib<=2048", true),
        ("throughputMibps>12.4", true),
        ("usedGib=0", true),
        ("usedGib>0", false),
        ("state=READY", true),
        ("state=\"ready\"", true),
        ("state!=READY", false),
        ("serviceLevel=UNLIMITED", true),
        ("serviceLevel=PREMIUM", false),
        ("protocols:NFSV4", true),
        ("protocols=SMB", false),
        ("protocols!=SMB", true),
        ("protocols!=NFSV3", false),
        ("snapshotDirectory=true", true),
        ("kerberosEnabled=false", true),
        ("kerberosEnabled=true", false),
        ("createTime>2026-02-28T00:00:00Z", true),
        ("createTime>\"2026-03-01T10:00:01Z\"", false),
        ("createTime<2026-03-01T12:00:00+01:00", true),
        ("labels.team=geo", true),
        ("labels.team=g*", true),
        ("labels.team=*e*", true),
        ("labels.team!=geo", false),
        ("labels.none!=geo", true),
        ("labels.cost-center:12", true),
        ("labels:team", true),
        ("labels:nobody", false),
        ("labels.team:*", true),
        ("labels.nobody:*", false),
        ("exportPolicy:*", true),
        ("snapshotPolicy:*", false),
        ("exportPolicy.rules.accessType=READ_ONLY", true),
        ("exportPolicy.rules.accessType=READ_NONE", false),
        ("name:my-vol", true),
        ("name=\"projects/p1/locations/l1/volumes/my-vol\"", true),
        ("name=*/my-vol", true),
        ("name:MY", true),
        ("description:'\"raw\"'", true),
        ("description:\"\\\"raw\\\"\"", true),
        ("seismic", true),
        ("seismic geo", true),
        ("seismic nothing", false),
        ("\"raw\\\" data\"", true),
        ("NOT state=READY", false),
        ("-state=READY", false),
        ("-(state=READY) OR labels:team", true),
        ("state=READY AND (capacityGib=1 OR capacityGib=2048)", true),
        // OR binds more tightly than AND.
        ("state=READY AND capacityGib=2048 OR capacityGib=1", true),
        ("capacityGib=1 AND state=READY OR state=READY", false),
        ("NOT NOT state=READY", true),
        ("((((state=READY))))", true),
        ("unixPermissions=\"\"", true),
    ] {
        assert_eq!(says(text), want, "{text}");
    }
    assert!(Filter::parse(&VOLUME, "  ").unwrap().is_none());
}

#[test]
fn what_cannot_be_read_is_refused() {
    let deep = "(".repeat(1000);
    let long = "a ".repeat(10_000);
    let nots = "NOT ".repeat(1000) + "a";
    for text in [
        "nope=1",
        "capacityGib=many",
        "capacityGib=",
        "=1",
        "capacityGib==1",
        "state=NONSENSE",
        "createTime>yesterday",
        "snapshotDirectory=perhaps",
        "(state=READY",
        "state=READY)",
        "state=READY AND",
        "OR state=READY",
        "AND",
        "\"open",
        "labels=geo",
        "exportPolicy=1",
        "labels.team=",
        "a ! b",
        "exportPolicy.rules.nope=1",
        "capacityGib.x=1",
        "capacityGib=inf",
        "()",
        &deep,
        &long,
        &nots,
    ] {
        let e = match Filter::parse(&VOLUME, text) {
            Err(e) => e,
            Ok(f) => panic!("{text}: {f:?}"),
        };
        assert_eq!(
            (e.code(), e.violations.first().unwrap().field.as_str()),
            (400, "filter"),
            "{text}"
        );
    }
}
