//! Free space goes back to the host's file system, and is used again, over crashes.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use common::client::Client;
use common::{PATIENCE, Server, weir};
use weir_bench::nfs3::Stable;

const MIB: usize = 1 << 20;
/// Length of one file.
const FILE: usize = 32 * MIB;

/// Waits until the device's file takes up a number of MiB on its file system that `enough` accepts.
fn until_held(data: &Path, what: &str, enough: impl Fn(u64) -> bool) -> u64 {
    let pause = Duration::from_millis(20);
    let mut held = 0;
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        held = std::fs::metadata(data.join("device")).unwrap().blocks() * 512 / MIB as u64;
        if enough(held) {
            return held;
        }
        std::thread::sleep(pause);
    }
    panic!("{what}: the device still holds {held} MiB");
}

/// Writes files that are full of their number, durably.
fn write(client: &mut Client, files: std::ops::Range<u8>) {
    for n in files {
        let file = client.create(&format!("f{n}")).unwrap();
        let piece = vec![n; MIB];
        for at in (0..FILE).step_by(MIB) {
            let written = client.write(&file, at as u64, &piece, Stable::Unstable);
            assert_eq!(written.unwrap().count as usize, MIB);
        }
        client.commit(&file).unwrap();
    }
}

fn verify(client: &mut Client, files: std::ops::Range<u8>) {
    for n in files {
        let file = client.lookup(&format!("f{n}"));
        for at in (0..FILE).step_by(MIB) {
            let piece = client.read(&file, at as u64, MIB as u32).unwrap();
            assert!(
                piece.len() == MIB && piece.iter().all(|b| *b == n),
                "f{n} at {at}"
            );
        }
    }
}

#[test]
fn removed_files_leave_the_hosts_disk_and_new_ones_come_back_over_crashes() {
    let top = tempfile::tempdir().unwrap();
    let data = top.path().join("data");
    let server = Server::start(&data, &[]);
    let mut client = Client::mount(&server);
    write(&mut client, 1..26);
    let full = until_held(&data, "written", |held| held > 800);
    for n in 2..26 {
        client.remove(&format!("f{n}")).unwrap();
    }
    until_held(&data, "the first discard", |held| held < full);
    server.kill();

    let server = Server::start(&data, &[]);
    let mut client = Client::mount(&server);
    until_held(&data, "removed", |held| held < 500);
    verify(&mut client, 1..2);
    write(&mut client, 2..18);
    server.kill();

    let server = Server::start(&data, &[]);
    let mut client = Client::mount(&server);
    verify(&mut client, 1..18);
    until_held(&data, "written again", |held| held > 17 * 32);
    server.stop();
    let check = weir(&["check", data.to_str().unwrap()]);
    assert!(check.status.success(), "{check:?}");
}
