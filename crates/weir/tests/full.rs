//! The host's file system is full to the last byte: a server starts on it, and things can be
//! deleted.

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

/// Mounts a file system at `at` for this thread and the processes that it starts. It ends with
/// them. Needs the right to mount, that is root.
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

/// The message of the operation that a change returns.
fn message(api: Api, method: &str, path: &str, body: &Value) -> String {
    let (status, operation) = api.send(method, path, body).unwrap();
    assert_eq!(status, 200, "{operation}");
    let words = operation["metadata"]["statusMessage"].as_str();
    words.unwrap_or_default().to_owned()
}

#[test]
fn promises_beyond_the_disk_are_answered_with_a_warning_and_a_full_disk_is_said() {
    let top = tempfile::tempdir().unwrap();
    small_disk(top.path(), "720m");
    let data = top.path().join("data");
    let server = Server::start(&data, &[]);
    let api = api(&server);
    // Terraform and gcloud read no warning, but the operation has it.
    let pool = json!({"capacityGib": "102400", "serviceLevel": "PREMIUM", "network": "default"});
    let pools = format!("{PLACE}/storagePools");
    let said = message(api, "POST", &format!("{pools}?storagePoolId=big"), &pool);
    assert!(
        said.contains(" TiB in all") && said.contains("MiB of physical space"),
        "{said}"
    );
    let mut volume = Api::volume_body("big", "v");
    volume["capacityGib"] = json!("51200");
    let said = message(api, "POST", &format!("{PLACE}/volumes?volumeId=v"), &volume);
    assert!(said.contains("volumes have 50"), "{said}");
    let tiny = json!({"capacityGib": "1", "shareName": "small", "protocols": ["NFSV3"], "storagePool": "big"});
    let said = message(
        api,
        "POST",
        &format!("{PLACE}/volumes?volumeId=small"),
        &tiny,
    );
    assert!(
        said.contains("limited to 0.063 MiB/s by automatic QoS"),
        "{said}"
    );
    let grown = format!("{}?updateMask=capacityGib", Api::volume("v"));
    let said = message(api, "PATCH", &grown, &json!({"capacityGib": "1024"}));
    assert!(
        said.contains("volume v shrinks from 50 TiB to 1 TiB; its data holds"),
        "{said}"
    );
    let status = api.get(&format!("{pools}/big")).1["spaceStatus"].clone();
    let figure = |name: &str| {
        status[name]
            .as_str()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap()
    };
    assert!(figure("physicalSizeBytes") < 720 << 20, "{status}");
    assert!(
        figure("physicalFreeBytes") <= figure("physicalSizeBytes"),
        "{status}"
    );
    assert!(
        status["overcommitRatio"].as_f64().unwrap() > 100.0,
        "{status}"
    );

    // Until nothing more fits.
    assert_eq!(api.get("/health").0, 200);
    let mut client = Client::mount(&server);
    let piece = vec![7; 1 << 20];
    let mut files = Vec::new();
    'full: loop {
        let name = format!("f{}", files.len());
        let file = client.create(&name).unwrap();
        files.push(name);
        for at in 0..32 {
            if client
                .write(&file, at << 20, &piece, Stable::FileSync)
                .is_err()
            {
                break 'full;
            }
        }
        assert!(files.len() < 40, "it is never full");
    }
    // The log says it before the reply does.
    let log = server.log();
    assert!(
        log.contains("refusing writes: the aggregate is full"),
        "{log}"
    );
    let (status, health) = api.get("/health");
    assert_eq!(status, 503, "{health}");
    let problem = &health["problems"][0];
    assert_eq!(
        (&problem["about"], &problem["severity"]),
        (&json!("space"), &json!("ERROR"))
    );
    server.logged("% full: ", 1);
    let metrics = api.text("/metrics");
    let metric = |name: &str| {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let (size, free) = (
        metric("weir_aggregate_size_bytes"),
        metric("weir_aggregate_free_bytes"),
    );
    assert!(free < size / 10.0, "{free} of {size} free");
    assert_eq!(metric("weir_aggregate_used_bytes"), size - free);
    assert!(
        metrics.contains(
            "weir_pool_used_bytes{pool=\"projects/weir/locations/local/storagePools/big\"}"
        )
    );

    // And that it is over.
    for name in &files {
        client.remove(name).unwrap();
    }
    // A checkpoint under the load may have given space back before, and the log told of both.
    let ended = |log: &str| log.matches("no longer a problem").count();
    let began = |log: &str| {
        log.matches("the aggregate is full, and writes are refused")
            .count()
    };
    server.until("space is no problem", |log| {
        ended(log) == began(log) && api.get("/health").0 == 200
    });
    server.kill();

    // With a bound the same promises are refused; what was promised before can be taken back.
    let server = Server::start(&data, &["--overcommit", "1"]);
    let api = Api(server.api.unwrap());
    let refused = api
        .change("POST", &format!("{pools}?storagePoolId=more"), &pool)
        .unwrap();
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("OVERCOMMIT") && refused.contains("nothing more fits"),
        "{refused}"
    );
    for volume in ["v", "small"] {
        api.must("DELETE", &Api::volume(volume), &Value::Null);
    }
    api.must("DELETE", &format!("{pools}/big"), &Value::Null);
}
