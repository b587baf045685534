//! The host's file system is full to the last byte: a server starts on it, and things can be deleted.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use common::Server;
use common::api::{Api, PLACE};
use common::client::Client;
use serde_json::{Value, json};
use weir_bench::nfs3::Stable;

/// Mounts a file system of its own at `at`, for this thread and what it starts. It goes with them. Takes the right to
/// mount, that is root.
fn small_disk(at: &Path, size: &str) {
    let place = CString::new(at.as_os_str().as_bytes()).unwrap();
    let (kind, options) = (c"tmpfs", CString::new(format!("size={size}")).unwrap());
    let (none, nothing) = (std::ptr::null(), std::ptr::null());
    // SAFETY: all strings end with NUL and live as long as the calls.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS)
            | libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_PRIVATE,
                nothing,
            )
            | libc::mount(
                kind.as_ptr(),
                place.as_ptr(),
                kind.as_ptr(),
                0,
                options.as_ptr().cast(),
            )
    };
    let error = std::io::Error::last_os_error();
    assert_eq!(
        done, 0,
        "a file system of its own (this test needs root): {error}"
    );
}

/// Writes a file until nothing more fits.
fn fill(path: &Path) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    for size in [1 << 20, 4096, 1] {
        let piece = vec![1; size];
        while file.write_all(&piece).is_ok() {}
    }
}

/// Bytes that the host's file system has left.
fn host_free(at: &Path) -> u64 {
    let place = CString::new(at.as_os_str().as_bytes()).unwrap();
    // SAFETY: a struct of numbers.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with NUL.
    assert_eq!(unsafe { libc::statvfs(place.as_ptr(), &mut stat) }, 0);
    stat.f_bavail * stat.f_frsize
}

fn api(server: &Server) -> Api {
    Api(server.api.unwrap())
}

#[test]
fn a_crash_on_a_full_disk_leaves_a_server_that_starts_and_removes() {
    let top = tempfile::tempdir().unwrap();
    small_disk(top.path(), "720m");
    let data = top.path().join("data");
    let filler = top.path().join("filler");
    let server = Server::start(&data, &[]);
    let mut client = Client::mount(&server);
    for n in 0..8u8 {
        client.file(&format!("f{n}"), &vec![n; 1 << 20]);
    }
    api(&server).pool("p");
    for id in ["a", "b"] {
        api(&server).make_volume("p", id);
    }
    let snapshots = format!("{}/snapshots", Api::volume("vol1"));
    api(&server).must("POST", &format!("{snapshots}?snapshotId=s"), &json!({}));
    server.kill();

    // More than once: what was kept for the first time is used up then.
    for (round, volume) in ["a", "b"].into_iter().enumerate() {
        fill(&filler);
        assert_eq!(host_free(top.path()), 0);
        let server = Server::start(&data, &[]);
        let mut client = Client::mount(&server);
        let file = client.lookup("f7");
        assert_eq!(client.read(&file, 0, 1000).unwrap(), [7; 1000]);
        for n in 0..3 {
            client.remove(&format!("f{}", 3 * round + n)).unwrap();
        }
        api(&server).must("DELETE", &Api::volume(volume), &Value::Null);
        if round == 0 {
            api(&server).must("DELETE", &format!("{snapshots}/s"), &Value::Null);
        }
        // What was deleted makes room for something else.
        let new = client.create(&format!("new{round}")).unwrap();
        let written = client.write(&new, 0, &vec![9; 1 << 20], Stable::FileSync);
        assert!(written.is_ok(), "{written:?}");
        server.kill();
    }

    // Full while it runs.
    std::fs::remove_file(&filler).unwrap();
    let server = Server::start(&data, &[]);
    fill(&filler);
    let (_, health) = api(&server).get("/health");
    assert!(health["problems"].is_array(), "{health}");
    let pool = format!("{PLACE}/storagePools/p");
    api(&server).must("DELETE", &pool, &Value::Null);
    server.kill();
    std::fs::remove_file(&filler).unwrap();
    let server = Server::start(&data, &[]);
    assert_eq!(api(&server).get(&pool).0, 404);
    assert_eq!(api(&server).get(&Api::volume("a")).0, 404);
    assert_eq!(api(&server).get("/health").0, 200);
}
