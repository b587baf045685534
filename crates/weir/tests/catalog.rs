//! The catalog is lost: the real binary does not serve an empty one in its place, and tells its
//! operator how to rebuild it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::fs;
use std::path::Path;

use common::api::{Api, PLACE};
use common::caller::Caller;
use common::{Server, weir};
use serde_json::{Value, json};
use weir_testclient::nfs3::{Call, Reply};

fn api(server: &Server) -> Api {
    Api(server.api.unwrap())
}

fn lose_catalog(data: &Path) {
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = fs::remove_file(data.join(name));
    }
}

/// Runs `weir` and returns its output; panics unless it ended with `success`.
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

/// Checks NTFS style after a rebuild: an object made over NFS inherits its directory's permissions,
/// whatever mode is requested, and `chmod` is refused. UNIX style would take the mode, and `chmod`
/// would undo the permissions that users of Windows have set.
#[test]
fn a_volume_of_ntfs_style_is_one_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let dir = data.to_str().unwrap();
    let server = Server::start(data, &[]);
    api(&server).pool("p");
    let mut body = Api::volume_body("p", "win");
    body["unixPermissions"] = Value::Null;
    body["protocols"] = json!(["NFSV3", "SMB"]);
    body["securityStyle"] = json!("NTFS");
    body["smbSettings"] = json!(["CONTINUOUSLY_AVAILABLE"]);
    let path = format!("{PLACE}/volumes?volumeId=win");
    api(&server).must("POST", &path, &body);
    let perm = 1;
    let is_ntfs = |server: &Server, name: &str| {
        let mut tom = Caller::connect(server.address, "127.0.0.1").user(4711);
        let root = tom.mount("/win").unwrap();
        assert_eq!(tom.getattr(&root), Ok(0o777), "a new root is everyone's");
        assert_eq!(tom.mkdir(&root, name), Ok(4711));
        let mut ann = Caller::connect(server.address, "127.0.0.1").user(4712);
        let find = Call::Lookup(root.clone(), name.into());
        let Reply::Found(made, _) = tom.request_reply(&find) else {
            panic!("{name} is there");
        };
        assert_eq!(tom.getattr(&made), Ok(0o777), "and not 0755");
        assert_eq!(tom.chmod(&made, 0o700), perm);
        assert_eq!(ann.mkdir(&made, "anns"), Ok(4712));
        let (_, shown) = api(server).get(&Api::volume("win"));
        assert_eq!(shown["securityStyle"], "NTFS");
    };
    is_ntfs(&server, "d");
    server.stop();

    lose_catalog(data);
    let done = said(&["catalog", "rebuild", dir], true);
    for part in [
        "volumes/win: /win, NTFS security style",
        "volumes/win: SMB",
        "weir volumes update win --project=weir --location=local --protocols=nfsv3,smb --export-policy=",
        "storagePools/p: ",
        "weir tokens create",
    ] {
        assert!(done.contains(part), "{part}: {done}");
    }
    let server = Server::start(data, &[]);
    let everybody = json!([{"allowedClients": "*", "accessType": "READ_WRITE", "nfsv3": true}]);
    api(&server).set_policy("win", &everybody);
    // Also while it is no share.
    is_ntfs(&server, "e");
    let path = format!("{}?updateMask=protocols", Api::volume("win"));
    api(&server).must("PATCH", &path, &json!({"protocols": ["NFSV3", "SMB"]}));
    is_ntfs(&server, "f");
    let (_, shown) = api(&server).get(&Api::volume("win"));
    assert_eq!(shown["smbSettings"], json!(["CONTINUOUSLY_AVAILABLE"]));
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
