//! Data folders: which ones a server accepts, and their contents afterwards.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::client::Client;
use common::{Server, serves, weir};
use weir_bench::nfs3::Stable;

/// All files of a folder with their contents. The lock's are for people only: they name its holder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name() != "lock")
        .map(|entry| {
            let path = entry.unwrap().path();
            (
                path.display().to_string(),
                fs::read(&path).unwrap_or_default(),
            )
        })
        .collect()
}

/// A server must refuse `data` with a message that has `why`, and change nothing in it.
fn refused(data: &Path, more: &[&str], why: &str) {
    let before = contents(data);
    let said = match Server::try_start(data, more) {
        Ok(_) => panic!("served a folder that is not to be served"),
        Err(said) => said,
    };
    assert!(said.contains(why), "'{why}' is not in: {said}");
    assert!(contents(data) == before, "the refused folder was changed");
}

#[test]
fn a_clean_stop_leaves_everything_in_place() {
    let top = tempfile::tempdir().unwrap();
    // The folder itself is made as well.
    let data = top.path().join("deep").join("data");
    let server = Server::start(&data, &[]);
    let mut client = Client::mount(&server);
    client.file("stable", &[7; 10_000]);
    let lazy = client.create("lazy").unwrap();
    client
        .write(&lazy, 0, &[8; 300_000], Stable::Unstable)
        .unwrap();
    server.stop();
    let check = weir(&["check", data.to_str().unwrap()]);
    assert!(check.status.success(), "{check:?}");

    let server = Server::start(&data, &[]);
    let mut client = Client::mount(&server);
    let (stable, lazy) = (client.lookup("stable"), client.lookup("lazy"));
    assert_eq!(client.read(&stable, 0, 20_000).unwrap(), [7; 10_000]);
    // A clean stop loses not even what was never committed.
    assert!(client.read(&lazy, 0, 400_000).unwrap() == [8; 300_000]);
}

#[test]
fn kill_loses_nothing_that_was_acknowledged_as_stable() {
    let data = tempfile::tempdir().unwrap();
    for round in 0..3u8 {
        let server = Server::start(data.path(), &[]);
        let mut client = Client::mount(&server);
        for earlier in 0..round {
            let file = client.lookup(&format!("stable{earlier}"));
            assert_eq!(client.read(&file, 0, 9000).unwrap(), [earlier; 8192]);
            let file = client.lookup(&format!("committed{earlier}"));
            assert!(client.read(&file, 0, 1 << 20).unwrap() == [earlier; 1 << 20]);
        }
        client.file(&format!("stable{round}"), &[round; 8192]);
        let file = client.create(&format!("committed{round}")).unwrap();
        let written = client
            .write(&file, 0, &[round; 1 << 20], Stable::Unstable)
            .unwrap();
        assert_eq!(client.commit(&file).unwrap(), written.verifier);
        server.kill();
    }
    let check = weir(&["check", data.path().to_str().unwrap()]);
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn a_second_server_is_refused_and_the_first_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let first = Server::start(data.path(), &[]);
    let said = Server::try_start(data.path(), &[]).map(|_| ()).unwrap_err();
    assert!(said.contains("in use"), "{said}");
    let check = weir(&["check", data.path().to_str().unwrap()]);
    assert!(!check.status.success());
    assert!(
        String::from_utf8_lossy(&check.stderr).contains("is serving it (stop it first)"),
        "{check:?}"
    );
    serves(&mut first.connect());
    first.stop();
}

#[test]
fn a_foreign_folder_is_refused_untouched() {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("letters.txt"), "mine").unwrap();
    refused(data.path(), &[], "neither empty nor");
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let data = tempfile::tempdir().unwrap();
    Server::start(data.path(), &[]).stop();
    let path = data.path().join("weir.json");
    let mut about: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let version = about
        .as_object_mut()
        .unwrap()
        .values_mut()
        .find(|v| v.is_u64())
        .unwrap();
    *version = 4711.into();
    fs::write(&path, about.to_string()).unwrap();
    refused(data.path(), &[], "4711");
}

#[test]
fn a_log_of_another_aggregate_is_refused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log_one, log_two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let args = |log: &tempfile::TempDir| ["--log-dir".to_owned(), log.path().display().to_string()];
    for (data, log) in [(&one, &log_one), (&two, &log_two)] {
        let args = args(log);
        let server = Server::start(data.path(), &[&args[0], &args[1]]);
        Client::mount(&server).file("a", &[1; 4096]);
        server.stop();
    }
    let wrong = args(&log_two);
    let before = contents(log_two.path());
    refused(one.path(), &[&wrong[0], &wrong[1]], "log");
    refused(one.path(), &[], "log");
    assert!(contents(log_two.path()) == before);
    let right = args(&log_one);
    let server = Server::start(one.path(), &[&right[0], &right[1]]);
    let mut client = Client::mount(&server);
    let file = client.lookup("a");
    assert_eq!(client.read(&file, 0, 5000).unwrap(), [1; 4096]);
}
