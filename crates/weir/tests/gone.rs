//! Files of a running server are deleted, replaced or truncated: no reply says any more that
//! something is durable.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::fs::{self, OpenOptions};
use std::path::Path;

use common::Server;
use common::api::{Api, PLACE};
use common::client::Client;
use serde_json::{Value, json};
use weir_bench::nfs3::Stable;

const NFS3ERR_IO: u32 = 5;
const NFS3ERR_ROFS: u32 = 30;

fn api(server: &Server) -> Api {
    Api(server.api.unwrap())
}

/// A server with a file of stable contents.
fn serving(data: &Path) -> (Server, Client) {
    let server = Server::start(data, &[]);
    let mut client = Client::mount(&server);
    client.file("before", &[7; 10_000]);
    assert_eq!(api(&server).get("/health").0, 200);
    (server, client)
}

/// Sends stable writes until one fails with NFS3ERR_ROFS. A write that was queued in the log fails
/// with NFS3ERR_IO first.
fn until_read_only(client: &mut Client) {
    let file = client.lookup("before");
    loop {
        match client.write(&file, 0, &[8; 4096], Stable::FileSync) {
            Ok(_) | Err(NFS3ERR_IO) => {}
            Err(status) => {
                assert_eq!(status, NFS3ERR_ROFS);
                return;
            }
        }
    }
}

/// Waits until `/health` reports a problem of a part, and returns the problem.
fn unwell(server: &Server, about: &str) -> String {
    loop {
        let (status, health) = api(server).get("/health");
        let problems = health["problems"].as_array().unwrap();
        let found = problems.iter().find(|p| p["about"] == json!(about));
        assert_eq!(status == 200, problems.is_empty(), "{health}");
        if let Some(problem) = found {
            let metrics = api(server).text("/metrics");
            let sample = format!("weir_problem{{about=\"{about}\"}} 1");
            assert!(metrics.contains(&sample), "{metrics}");
            return problem["message"].as_str().unwrap().to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The server refuses changes of both kinds, says why, and can still be read.
fn read_only_and_loud(server: &Server, client: &mut Client, why: &str) {
    until_read_only(client);
    assert!(unwell(server, "aggregate").contains(why));
    server.logged(why, 1);
    assert!(
        api(server)
            .text("/metrics")
            .contains("\nweir_read_only 1\n")
    );
    assert_eq!(client.create("new").err(), Some(NFS3ERR_ROFS));
    let file = client.lookup("before");
    assert_eq!(client.read(&file, 8192, 100).unwrap(), [7; 100]);
    changes_are_refused(server);
}

fn changes_are_refused(server: &Server) {
    let pool = json!({"capacityGib": "1024", "serviceLevel": "PREMIUM", "network": "default"});
    let path = format!("{PLACE}/storagePools?storagePoolId=p");
    let (status, answer) = api(server).send("POST", &path, &pool).unwrap();
    assert_eq!(status, 400, "{answer}");
    assert_eq!(answer["error"]["details"][0]["reason"], "CATALOG_GONE");
    assert_eq!(api(server).get(&Api::volume("vol1")).0, 200);
}

#[test]
fn a_deleted_data_folder_ends_durable_answers() {
    let top = tempfile::tempdir().unwrap();
    let data = top.path().join("data");
    let (server, mut client) = serving(&data);
    fs::remove_dir_all(&data).unwrap();
    read_only_and_loud(&server, &mut client, "is not there any more");
}

#[test]
fn what_the_next_start_would_not_find_is_not_accepted() {
    let top = tempfile::tempdir().unwrap();
    let (data, away) = (top.path().join("data"), top.path().join("away"));
    let (server, mut client) = serving(&data);
    fs::rename(&data, &away).unwrap();
    read_only_and_loud(&server, &mut client, "is not there any more");
    server.kill();
    // Nothing that was answered is lost.
    fs::rename(&away, &data).unwrap();
    let server = Server::start(&data, &[]);
    let mut client = Client::mount(&server);
    let file = client.lookup("before");
    assert_eq!(client.read(&file, 8192, 100).unwrap(), [7; 100]);
}

#[test]
fn a_replaced_or_truncated_file_of_the_aggregate_is_noticed() {
    for name in ["device", "log"] {
        let top = tempfile::tempdir().unwrap();
        let data = top.path().join("data");
        let (server, mut client) = serving(&data);
        let (path, old) = (data.join(name), data.join("old"));
        fs::rename(&path, &old).unwrap();
        fs::File::create(&path).unwrap();
        read_only_and_loud(&server, &mut client, "is another file");
        server.kill();
        fs::rename(&old, &path).unwrap();
        let server = Server::start(&data, &[]);
        let mut client = Client::mount(&server);
        let file = client.lookup("before");
        assert_eq!(client.read(&file, 8192, 100).unwrap(), [7; 100]);
    }
    let top = tempfile::tempdir().unwrap();
    let (server, mut client) = serving(top.path());
    let device = OpenOptions::new()
        .write(true)
        .open(top.path().join("device"))
        .unwrap();
    device
        .set_len(device.metadata().unwrap().len() - 4096)
        .unwrap();
    until_read_only(&mut client);
    assert!(unwell(&server, "aggregate").contains("was truncated to"));
}

#[test]
fn without_its_catalog_the_api_refuses_changes_and_data_go_on() {
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let top = tempfile::tempdir().unwrap();
        let (server, mut client) = serving(top.path());
        fs::remove_file(top.path().join(name)).unwrap();
        let why = unwell(&server, "catalog");
        assert!(why.contains(name), "{why}");
        changes_are_refused(&server);
        let (status, token) = api(&server)
            .send("POST", "/v1/tokens?tokenId=t", &json!({"role": "VIEWER"}))
            .unwrap();
        assert_eq!(status, 400, "{token}");
        client.file("after", &[9; 5000]);
        assert!(
            api(&server)
                .text("/metrics")
                .contains("\nweir_read_only 0\n")
        );
    }
}

#[test]
fn a_deleted_lock_lets_no_second_server_in() {
    let top = tempfile::tempdir().unwrap();
    let (server, mut client) = serving(top.path());
    fs::remove_file(top.path().join("lock")).unwrap();
    assert!(unwell(&server, "lock").contains("do not start another server"));
    let Err(said) = Server::try_start(top.path(), &[]) else {
        panic!("two servers on one folder");
    };
    assert!(said.contains("in use by another server"), "{said}");
    client.file("after", &[9; 5000]);
    api(&server).pool("p");
    let path = format!("{PLACE}/storagePools/p");
    assert_eq!(api(&server).get(&path).0, 200);
    assert_eq!(api(&server).get(&path).1["state"], Value::from("READY"));
}
