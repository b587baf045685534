//! The catalog is lost: the real binary neither serves something empty in its place nor leaves its operator without a way out.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::fs;
use std::path::Path;

use common::api::{Api, PLACE};
use common::caller::Caller;
use common::{Server, weir};
use serde_json::{Value, json};

fn api(server: &Server) -> Api {
    Api(server.api.unwrap())
}

fn lose_catalog(data: &Path) {
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = fs::remove_file(data.join(name));
    }
}

/// What `weir` said, which must have ended like this.
fn said(args: &[&str], success: bool) -> String {
    let output = weir(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.success(), success, "{args:?}: {all}");
    all
}

#[test]
fn a_lost_catalog_is_made_anew_from_the_engines_records() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let dir = data.to_str().unwrap();
    let server = Server::start(data, &[]);
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    let root = caller.mount("/vol1").unwrap();
    caller.mkdir(&root, "mine").unwrap();
    api(&server).pool("p");
    api(&server).make_volume("p", "db");
    let root = caller.mount("/db").unwrap();
    caller.mkdir(&root, "rows").unwrap();
    let snapshots = format!("{}/snapshots?snapshotId=before", Api::volume("db"));
    api(&server).must("POST", &snapshots, &json!({}));
    // After a crash the log has what the last checkpoint has not.
    server.stop();
    assert!(
        said(&["check", dir], true).contains("catalog: 2 volumes, 0 instances, 1 snapshots: clean")
    );

    lose_catalog(data);
    let Err(refusal) = Server::try_start(data, &[]) else {
        panic!("served without its catalog");
    };
    for part in ["weir catalog rebuild", "volumes/db", "volumes/vol1"] {
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    assert!(!data.join("catalog.db").exists());
    assert!(said(&["check", dir], false).contains("weir catalog rebuild"));

    let done = said(&["catalog", "rebuild", dir], true);
    for part in ["volumes/db: /db", "volumes/vol1: /vol1", "--export-policy="] {
        assert!(done.contains(part), "{part}: {done}");
    }
    assert!(
        said(&["check", dir], true).contains("catalog: 2 volumes, 0 instances, 1 snapshots: clean")
    );
    assert!(said(&["catalog", "rebuild", dir], true).contains("nothing was changed"));

    let server = Server::start(data, &[]);
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    let access = 13;
    assert_eq!(
        caller.mount("/db"),
        Err(access),
        "nobody until it has rules"
    );
    assert_eq!(caller.mount("/vol1"), Err(access));
    let everybody = json!([{"allowedClients": "*", "accessType": "READ_WRITE", "nfsv3": true}]);
    for id in ["db", "vol1"] {
        api(&server).set_policy(id, &everybody);
    }
    let exists = 17;
    let root = caller.mount("/db").unwrap();
    assert_eq!(caller.mkdir(&root, "rows"), Err(exists));
    let root = caller.mount("/vol1").unwrap();
    assert_eq!(caller.mkdir(&root, "mine"), Err(exists));
    let (_, volumes) = api(&server).get(&format!("{PLACE}/volumes"));
    assert_eq!(volumes["volumes"].as_array().unwrap().len(), 2, "{volumes}");
    let (_, shown) = api(&server).get(&Api::volume("db"));
    assert_eq!(
        (&shown["capacityGib"], &shown["storagePool"]),
        (&json!("100"), &json!("p"))
    );
    let (_, listed) = api(&server).get(&format!("{}/snapshots", Api::volume("db")));
    assert_eq!(listed["snapshots"].as_array().unwrap().len(), 1, "{listed}");
    // It is a volume like others.
    let path = format!("{}?force=true", Api::volume("db"));
    api(&server).must("DELETE", &path, &Value::Null);
}

#[test]
fn a_damaged_catalog_is_kept_aside_and_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let dir = data.to_str().unwrap();
    Server::start(data, &[]).stop();
    lose_catalog(data);
    fs::write(data.join("catalog.db"), vec![b'x'; 20_000]).unwrap();
    let Err(refusal) = Server::try_start(data, &[]) else {
        panic!("served with a damaged catalog");
    };
    assert!(refusal.contains("weir catalog rebuild"), "{refusal}");
    assert!(said(&["check", dir], false).contains("fault: catalog:"));
    let done = said(&["catalog", "rebuild", dir], true);
    assert!(done.contains("catalog.db.damaged"), "{done}");
    assert_eq!(
        fs::read(data.join("catalog.db.damaged")).unwrap(),
        vec![b'x'; 20_000]
    );
    let server = Server::start(data, &[]);
    assert_eq!(api(&server).get(&Api::volume("vol1")).0, 200);
}
