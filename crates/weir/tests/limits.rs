//! Limits against the real binary: they hold for our load and for another client, and throttled
//! requests hold up no other client. A client that goes away, comes back or stops listening gains
//! nothing and leaves nothing behind.
//!
//! The upper bound of a limit is exact: `rate × (time + burst)` and one request for each volume,
//! timed from before the load begins to after it ended. The lower bound depends on the machine, so
//! its margins are wide; `bench/experiment qos` has the narrow ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "what a limit lets through is a matter of real time"
)]

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use common::api::{Api, PLACE};
use common::client::Client;
use common::{PATIENCE, Server, root};
use serde_json::json;
use weir_bench::control::Control;
use weir_bench::nfs3::{Calls, Handle, Stable};
use weir_experiments::qos::load::{self, Flow, Kind};

const MIB: f64 = 1048576.0;
/// The burst of a limit, in seconds.
const BURST: f64 = 0.01;

/// Starts a server with the volume `v` in a pool of manual QoS. The volume's throughput is far
/// above any load of these tests.
fn limited(data: &Path) -> (Server, Api) {
    let server = Server::start(data, &[]);
    let api = Api(server.api.unwrap());
    let body = json!({"capacityGib": "204800", "serviceLevel": "PREMIUM", "network": "default", "qosType": "MANUAL"});
    let path = format!("{PLACE}/storagePools?storagePoolId=m");
    api.must("POST", &path, &body);
    let mut body = Api::volume_body("m", "v");
    body["throughputMibps"] = json!(4096);
    api.must("POST", &format!("{PLACE}/volumes?volumeId=v"), &body);
    (server, api)
}

/// Limits the volume `v`.
fn limit(api: Api, bytes: f64) {
    let path = format!("{}?updateMask=throughputMibps", Api::volume("v"));
    api.must("PATCH", &path, &json!({"throughputMibps": bytes / MIB}));
}

/// The sum of a metric's samples, of those whose labels contain `label`.
fn metric_of(api: Api, family: &str, label: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(family)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        (rest.starts_with([' ', '{']) && labels.contains(label))
            .then(|| value.parse::<f64>().ok())?
    };
    api.text("/metrics").lines().filter_map(value).sum()
}

fn metric(api: Api, family: &str) -> f64 {
    metric_of(api, family, "")
}

/// Waits until no throttled request is left.
fn nothing_left(api: Api) {
    while metric(api, "weir_held_bytes") > 0.0 || metric(api, "weir_throttle_queue_length") > 0.0 {
        std::thread::yield_now();
    }
}

/// Returns the most bytes that a limit lets through in this time.
fn most(rate: f64, seconds: f64, request: f64) -> f64 {
    rate * (seconds + BURST) + request
}

/// A volume of the server's with a file of 8 MiB.
fn volume(server: &Server, path: &str) -> (Handle, Handle) {
    let mut calls: Control = server.client();
    let dir = calls.mount(path, Some(&root())).unwrap();
    let made = calls.one(
        "CREATE",
        |c, out, xid| c.create(out, xid, &dir, b"load"),
        weir_bench::nfs3::created,
    );
    let file = made.unwrap().unwrap();
    for at in 0..8u64 {
        calls
            .one(
                "WRITE",
                |c, out, xid| {
                    c.write_head(out, xid, &file, at << 20, 1 << 20, Stable::Unstable);
                    out.extend_from_slice(&vec![at as u8; 1 << 20]);
                },
                weir_bench::nfs3::written,
            )
            .unwrap();
    }
    (dir, file)
}

fn flow(
    (dir, file): (Handle, Handle),
    client: u8,
    kind: Kind,
    block: u32,
    connections: u32,
) -> Flow {
    Flow {
        client,
        dir,
        file,
        size: 8 << 20,
        kind,
        block,
        connections,
        depth: 8,
        thread: 0,
        on: None,
        every: None,
    }
}

/// Runs flows for a while. Returns the time that this took, and the bytes that each flow moved.
fn moved(server: &Server, flows: &[Flow], seconds: f64) -> (f64, Vec<f64>) {
    let begun = Instant::now();
    let running = load::start(server.address, flows).unwrap();
    std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
    let done = running.finish().unwrap();
    let took = begun.elapsed().as_secs_f64();
    let sum = |flow: &Vec<load::Done>| flow.iter().map(|d| f64::from(d.bytes)).sum();
    (took, done.iter().map(sum).collect())
}

#[test]
fn provisioned_limits_hold_for_each_volume_and_are_shared_by_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    let api = Api(server.api.unwrap());
    // 64 MiB/s for each TiB: 12.5 and 6.25 MiB/s.
    api.pool("p");
    api.make_volume("p", "a");
    api.must(
        "PATCH",
        &format!("{}?updateMask=capacityGib", Api::volume("a")),
        &json!({"capacityGib": "200"}),
    );
    api.make_volume("p", "b");
    let (a, b) = (volume(&server, "/a"), volume(&server, "/b"));
    let flows = [
        flow(a, 2, Kind::Read, 65536, 8),
        flow(a, 3, Kind::Read, 65536, 1),
        flow(b, 2, Kind::Write, 65536, 2),
        flow(b, 4, Kind::Read, 4096, 2),
    ];
    let (took, sums) = moved(&server, &flows, 2.0);
    let [a1, a2, b1, b2] = sums[..] else { panic!() };
    for (sum, rate) in [(a1 + a2, 12.5 * MIB), (b1 + b2, 6.25 * MIB)] {
        let most = most(rate, took, 65536.0);
        assert!(sum <= most, "{sum} > {most}");
        assert!(sum >= 0.5 * rate * 2.0, "{sum} of {rate} a second");
    }
    // Eight connections get what one gets, and small requests what large ones get.
    for (one, other) in [(a1, a2), (b1, b2)] {
        assert!(
            one <= 1.5 * other && other <= 1.5 * one,
            "{one} and {other}"
        );
    }

    // Raised while they wait: what comes now is more than the old limit could let through.
    let begun = Instant::now();
    let running = load::start(server.address, &flows[..1]).unwrap();
    while metric_of(api, "weir_throttle_queue_length", "volumes/a\"") == 0.0 {
        std::thread::yield_now();
    }
    api.must(
        "PATCH",
        &format!("{}?updateMask=capacityGib", Api::volume("a")),
        &json!({"capacityGib": "2000"}),
    );
    let before = metric_of(api, "weir_client_throttled_bytes_total", "volumes/a\"");
    let raised = Instant::now();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let now = metric_of(api, "weir_client_throttled_bytes_total", "volumes/a\"");
    let (since, whole) = (
        raised.elapsed().as_secs_f64(),
        begun.elapsed().as_secs_f64(),
    );
    running.finish().unwrap();
    assert!(now - before > most(12.5 * MIB, since, 65536.0) * 2.0);
    assert!(now - before <= most(125.0 * MIB, whole, 65536.0));
    nothing_left(api);
}

#[test]
fn limits_of_operations_and_of_each_way_hold() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let levels = folder.path().join("levels.toml");
    let tier = "[[tier]]\nname = \"SMALL\"\ncapacity-gb = { min = 1, max = 2 }\nstep-gb = 1\nshrinks = true\nbands = [\n\
        { from-gb = 1, limits = { read-iops = 100000, write-iops = 100000, read-bps = 1000000000, write-bps = 1000000000 } },\n\
        { from-gb = 2, limits = { read-iops = 200, write-iops = 100000, read-bps = 1000000000, write-bps = 2097152 } },\n]\n\
        client = { read-iops = 50, write-iops = 100000, read-bps = 1000000000, write-bps = 1000000000 }\n";
    std::fs::write(&levels, tier).unwrap();
    let server = Server::start(&data, &["--service-levels", levels.to_str().unwrap()]);
    let api = Api(server.api.unwrap());
    let instance =
        |gb: u32| json!({"fileShares": [{"name": "data", "capacityGb": gb.to_string()}]});
    let mut small = instance(1);
    small["tier"] = json!("SMALL");
    api.must(
        "POST",
        &format!("{PLACE}/instances?instanceId=small"),
        &small,
    );
    let file = volume(&server, "/data");
    let path = format!("{PLACE}/instances/small?updateMask=fileShares");
    api.must("PATCH", &path, &instance(2));
    let flows = [
        flow(file, 2, Kind::Read, 4096, 2),
        flow(file, 3, Kind::Read, 4096, 2),
        flow(file, 4, Kind::Write, 65536, 2),
    ];
    let (took, sums) = moved(&server, &flows, 2.0);
    for reads in &sums[..2] {
        // Each client has a limit of its own, and the volume's is not reached.
        assert!(reads / 4096.0 <= most(50.0, took, 1.0));
        assert!(reads / 4096.0 >= 50.0);
    }
    assert!(sums[2] <= most(2.0 * MIB, took, 65536.0));
    assert!(sums[2] >= 2.0 * MIB, "{}", sums[2]);
}

#[test]
fn nfs_cp_takes_as_long_as_the_limit_says() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    let api = Api(server.api.unwrap());
    api.must(
        "POST",
        &format!("{PLACE}/storagePools?storagePoolId=m"),
        &json!({"capacityGib": "4096", "serviceLevel": "PREMIUM", "network": "default", "qosType": "MANUAL"}),
    );
    let mut body = Api::volume_body("m", "slow");
    body["throughputMibps"] = json!(4);
    api.must("POST", &format!("{PLACE}/volumes?volumeId=slow"), &body);

    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let content: Vec<u8> = (0..6u32 << 20)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    std::fs::write(&there, &content).unwrap();
    let port = server.address.port();
    let url = format!(
        "nfs://127.0.0.1/slow/file?version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0"
    );
    let (there, back) = (there.to_str().unwrap(), back.to_str().unwrap());
    for (from, to) in [(there, &*url), (&*url, back)] {
        let begun = Instant::now();
        let copied = Command::new("nfs-cp").args([from, to]).output().unwrap();
        let took = begun.elapsed().as_secs_f64();
        assert!(copied.status.success(), "{copied:?}");
        // 6 MiB at 4 MiB/s, less the burst and one request.
        let least = (content.len() as f64 - MIB) / (4.0 * MIB) - BURST;
        assert!(took >= least, "{took} s for {from}, at least {least}");
        assert!(took <= 20.0 * least, "{took} s for {from}");
    }
    assert!(
        std::fs::read(back).unwrap() == content,
        "other content came back"
    );
    assert!(metric_of(api, "weir_throttled_operations_total", "volumes/slow\"") > 0.0);
    nothing_left(api);
}

#[test]
fn large_writes_over_many_connections_share_what_memory_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Room for three requests of a client, and for fourteen in all.
    let (server, api) = limited(&data);
    let file = volume(&server, "/v");
    limit(api, 16.0 * MIB);
    let most_held = metric(api, "weir_held_limit_bytes");
    let flows: Vec<Flow> = (0..5)
        .map(|n| flow(file, 2 + n, Kind::Write, 1 << 20, 12))
        .collect();
    let begun = Instant::now();
    let running = load::start(server.address, &flows).unwrap();
    for _ in 0..20 {
        let held = metric(api, "weir_held_bytes");
        assert!(held <= most_held, "{held} > {most_held}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let done = running.finish().unwrap();
    let took = begun.elapsed().as_secs_f64();
    let sum: f64 = done.iter().flatten().map(|d| f64::from(d.bytes)).sum();
    assert!(sum <= most(16.0 * MIB, took, MIB), "{sum} in {took} s");
    assert!(sum >= 8.0 * MIB, "{sum} in {took} s");
    assert!(
        done.iter().all(|flow| !flow.is_empty()),
        "a client was forgotten"
    );
    nothing_left(api);
}

#[test]
fn what_waits_goes_with_its_connection_and_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (server, api) = limited(&data);
    let mut client = Client::mount_at(&server, "/v");
    let file = client.file("f", &[7; 65536]);
    // A byte a second: what waits here waits for ever.
    limit(api, 1.0);
    client.read(&file, 0, 4096).unwrap();

    let calls = Calls::new(Some(&root()));
    for round in 0..5u32 {
        let mut streams: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for (n, stream) in streams.iter_mut().enumerate() {
            let mut out = Vec::new();
            for xid in 0..20 {
                let xid = round << 16 | (n as u32) << 8 | xid;
                calls.read(&mut out, xid, &file, 0, 4096);
                calls.write_head(&mut out, xid | 1 << 24, &file, 0, 4096, Stable::Unstable);
                out.extend_from_slice(&[1; 4096]);
            }
            // A retransmission takes no second place.
            calls.read(&mut out, round << 16 | (n as u32) << 8, &file, 0, 4096);
            stream.write_all(&out).unwrap();
        }
        while metric(api, "weir_throttle_queue_length") < 160.0 {
            std::thread::yield_now();
        }
        assert_eq!(metric(api, "weir_throttle_queue_length"), 160.0);
        // Another connection's metadata, and this volume's, go on.
        client.lookup("f");
        drop(streams);
        nothing_left(api);
    }

    // What waits is served as soon as the limit allows it.
    let mut stream = server.connect();
    let mut out = Vec::new();
    calls.read(&mut out, 99, &file, 0, 4);
    stream.write_all(&out).unwrap();
    while metric(api, "weir_throttle_queue_length") < 1.0 {
        std::thread::yield_now();
    }
    limit(api, 4096.0 * MIB);
    assert_eq!(common::reply(&mut stream)[0], 99);
    assert_eq!(client.read(&file, 0, 4).unwrap(), [7; 4]);
}

#[test]
fn a_client_that_reconnects_or_stops_listening_gains_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (server, api) = limited(&data);
    let file = volume(&server, "/v");
    let begun = Instant::now();
    limit(api, 4.0 * MIB);
    let before = metric(api, "weir_client_throttled_bytes_total");
    // An honest client of the same volume all the while.
    let honest = load::start(server.address, &[flow(file, 9, Kind::Read, 65536, 1)]).unwrap();
    let calls = Calls::new(Some(&root()));
    // One that takes no answers, and one that stops in the middle of a WRITE.
    let mut deaf: Vec<_> = (0..2).map(|_| server.connect()).collect();
    let mut out = Vec::new();
    for xid in 0..64 {
        calls.read(&mut out, xid, &file.1, 0, 1 << 20);
    }
    deaf[0].write_all(&out).unwrap();
    out.clear();
    calls.write_head(&mut out, 1, &file.1, 0, 1 << 20, Stable::Unstable);
    out.extend_from_slice(&[1; 9999]);
    deaf[1].write_all(&out).unwrap();
    // And one that asks for much, comes anew, and asks again.
    for round in 0..40u32 {
        let mut stream = server.connect();
        let mut out = Vec::new();
        for xid in 0..32 {
            calls.read(&mut out, round << 8 | xid, &file.1, 0, 1 << 20);
        }
        stream.write_all(&out).unwrap();
        // Some answers, or part of one, are taken in.
        let mut some = vec![0; 10_000];
        let _ = stream
            .read(&mut some[..if round % 2 == 0 { 10_000 } else { 1 }])
            .unwrap();
    }
    let through = metric(api, "weir_client_throttled_bytes_total") - before;
    let most_held = metric(api, "weir_held_limit_bytes");
    assert!(metric(api, "weir_held_bytes") <= most_held);
    let took = begun.elapsed().as_secs_f64();
    assert!(
        through <= most(4.0 * MIB, took, MIB),
        "{through} in {took} s"
    );
    let done = honest.finish().unwrap();
    let fair: f64 = done[0].iter().map(|d| f64::from(d.bytes)).sum();
    // Half of the total, less the requests in flight at the end; the others' requests are large.
    assert!(
        fair >= 0.5 * through - 4.0 * MIB && fair >= 0.25 * through,
        "{fair} of {through}"
    );
    drop(deaf);
    nothing_left(api);
}

/// Runs a command on a pseudo-terminal of 120 × 40 until it ends, and returns its output. Sends `q`
/// as soon as `until` was seen.
fn on_terminal(command: &mut Command, until: &[&str]) -> (bool, String) {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: both descriptors are written by the call; no name and no settings are asked for;
    // `size` is valid.
    let made = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    assert_eq!(made, 0);
    // SAFETY: just opened, and owned by nothing else.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    // SAFETY: between fork and exec only calls that are safe there: a session of its own, with the
    // terminal (which is its standard input by now) as the one that controls it.
    unsafe {
        use std::os::unix::process::CommandExt;
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    let mut child = command
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap())
        .stderr(Stdio::from(theirs))
        .env("TERM", "xterm-256color")
        .spawn()
        .unwrap();
    // The command holds the other end's descriptors too, and would never see its end.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut terminal = std::fs::File::from(ours);
    let mut drawn = Vec::new();
    let mut sent = false;
    loop {
        let mut poll = libc::pollfd {
            fd: terminal.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as i32) };
        assert_eq!(
            ready,
            1,
            "nothing was drawn any more:\n{}",
            String::from_utf8_lossy(&drawn)
        );
        let mut buffer = [0; 4096];
        match terminal.read(&mut buffer) {
            // The other end is closed: EIO on Linux.
            Err(_) | Ok(0) => break,
            Ok(n) => drawn.extend_from_slice(&buffer[..n]),
        }
        let text = String::from_utf8_lossy(&drawn);
        if !sent && until.iter().all(|part| text.contains(part)) {
            terminal.write_all(b"q").unwrap();
            sent = true;
        }
    }
    let status = child.wait().unwrap();
    (
        status.success(),
        String::from_utf8_lossy(&drawn).into_owned(),
    )
}

#[test]
fn top_shows_who_is_held_back_by_what() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (server, api) = limited(&data);
    let file = volume(&server, "/v");
    limit(api, 4.0 * MIB);
    let api = format!("http://{}", server.api.unwrap());
    let top = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["top", "--server", &api]).args(more);
        command
    };
    let running = load::start(server.address, &[flow(file, 2, Kind::Read, 65536, 4)]).unwrap();
    // A request that is released late waits for no limit: a reading may find none in force.
    let mut looks = 0;
    let said = loop {
        let once = top(&["--once", "--interval", "1"]).output().unwrap();
        let said = String::from_utf8(once.stdout).unwrap();
        assert!(once.status.success(), "{said}");
        looks += 1;
        if said.contains("volume bytes") || looks == 30 {
            break said;
        }
    };
    let line = |kind: &str| {
        let found = said.lines().find(|line| line.starts_with(kind));
        found.unwrap_or_else(|| panic!("no {kind} in\n{said}"))
    };
    assert!(
        line("volume").contains("m/v") && line("volume").contains("volume bytes"),
        "{said}"
    );
    assert!(
        line("client").contains("127.0.0.2") && line("client").contains("v: volume bytes"),
        "{said}"
    );
    assert!(line("pool").contains("m"), "{said}");
    // Live, on a terminal: it draws the same, and `q` ends it and restores the terminal.
    let parts = [
        "Pools",
        "Volumes",
        "Clients",
        "m/v",
        "volume bytes",
        "127.0.0.2",
    ];
    let (well, drawn) = on_terminal(&mut top(&["--interval", "0.5"]), &parts);
    assert!(well, "{drawn}");
    assert!(
        drawn.contains("\x1b[?1049h") && drawn.ends_with("\x1b[?25h"),
        "{drawn:?}"
    );
    assert!(drawn.contains("\x1b[?1049l"));
    running.finish().unwrap();
}
