//! Replication between real processes: paired, throttled, killed, and read all the while.
//! `KILL_ROUNDS=N` makes it long.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;

use std::path::Path;
use std::time::Duration;

use common::api::Api;
use common::client::Client;
use common::{Server, unique};
use serde_json::json;
use weir_base::{Rng, SeededRng};

/// Bytes of a file in these tests.
const FILE: usize = 256 << 10;
/// Files that a source holds.
const FILES: u64 = 8;

/// A node with a pool in which tests make volumes.
struct Node {
    server: Server,
    /// Address for peers.
    address: String,
}

impl Node {
    fn start(data: &Path, peers: u16) -> Node {
        let address = format!("127.0.0.1:{peers}");
        Node {
            server: Server::start(data, &["--replication", &address]),
            address,
        }
    }

    fn api(&self) -> Api {
        Api(self.server.api.unwrap())
    }

    /// Runs a line; the answer, or the refusal.
    fn says(&self, line: &str) -> Result<String, String> {
        let body = json!({"input": line});
        let (status, answer) = self.api().send("POST", "/api/private/cli", &body).unwrap();
        match status {
            200..300 => Ok(answer["output"].as_str().unwrap_or_default().to_owned()),
            _ => Err(answer.to_string()),
        }
    }

    fn does(&self, line: &str) {
        self.says(line)
            .unwrap_or_else(|why| panic!("{line}: {why}"));
    }

    /// A field of the relationship to `b`.
    fn field(&self, name: &str) -> String {
        let line = format!("snapmirror show -destination-path weir:b -fields {name}");
        let table = self.says(&line).unwrap();
        table.split_whitespace().last().unwrap().to_owned()
    }

    /// Waits until a field is one of these.
    fn until(&self, name: &str, values: &[&str]) -> String {
        let mut waited = 0;
        loop {
            let now = self.field(name);
            if values.contains(&now.as_str()) {
                return now;
            }
            assert!(waited < 12_000, "{name} stays {now}: {}", self.server.log());
            std::thread::sleep(Duration::from_millis(10));
            waited += 1;
        }
    }

    /// Waits for a transfer's good end.
    fn mirrored(&self) {
        self.until("status", &["Idle"]);
        assert_eq!(
            (self.field("state").as_str(), self.field("healthy").as_str()),
            ("Snapmirrored", "true"),
            "{:?}",
            self.says("snapmirror show -destination-path weir:b")
        );
    }

    fn fingerprint(&self) -> String {
        let (_, answer) = self.api().get("/api/cluster?fields=peering");
        answer["peering"]["fingerprint"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn mount(&self, volume: &str) -> Client {
        Client::mount_at(&self.server, volume)
    }
}

/// Contents of a source at a time: a version for each file.
type Versions = Vec<u64>;

fn content(file: u64, version: u64) -> Vec<u8> {
    let mut state = file << 32 | version | 1;
    let mut out = Vec::with_capacity(FILE);
    while out.len() < FILE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out
}

fn write(client: &mut Client, versions: &Versions) {
    for (file, version) in versions.iter().enumerate() {
        let name = format!("f{file}");
        let there = client.try_lookup(&name);
        let handle = there.unwrap_or_else(|| client.create(&name).unwrap());
        let data = content(file as u64, *version);
        for (at, piece) in data.chunks(64 << 10).enumerate() {
            let stable = weir_bench::nfs3::Stable::FileSync;
            client
                .write(&handle, (at * (64 << 10)) as u64, piece, stable)
                .unwrap();
        }
    }
}

/// Which version of everything a client sees; `None` before there is anything.
fn seen(client: &mut Client, known: &[Versions]) -> Option<usize> {
    // A reader of several files may see the change from one snapshot to the next between two of
    // them, but not twice.
    for _ in 0..2 {
        let found = all_files(client)?;
        let matches = |versions: &Versions| {
            let mut all = versions.iter().zip(&found).enumerate();
            all.all(|(file, (version, data))| content(file as u64, *version) == *data)
        };
        if let Some(at) = known.iter().rposition(matches) {
            return Some(at);
        }
    }
    panic!("a mixture of versions, or none of them");
}

fn all_files(client: &mut Client) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for file in 0..FILES {
        let handle = client.try_lookup(&format!("f{file}"))?;
        let mut data = Vec::new();
        while data.len() < FILE {
            let piece = client.read(&handle, data.len() as u64, 64 << 10).unwrap();
            assert!(!piece.is_empty(), "f{file} is {} bytes long", data.len());
            data.extend(piece);
        }
        found.push(data);
    }
    Some(found)
}

fn pair(here: &Node, there: &Node, name: &str) {
    here.does(&format!(
        "cluster peer create -cluster {name} -peer-addrs {} -fingerprint {}",
        there.address,
        there.fingerprint()
    ));
}

/// A port that is free now and stays the same over restarts.
fn port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn killed_again_and_again() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ports = (port(), port());
    let mut source = Node::start(one.path(), ports.0);
    let mut destination = Node::start(two.path(), ports.1);
    for node in [&source, &destination] {
        node.api().pool("p");
    }
    source.does("volume create -vserver weir -volume a -size 100GB -aggregate p");
    destination.does("volume create -vserver weir -volume b -size 100GB -aggregate p -type DP");
    pair(&source, &destination, "near");
    pair(&destination, &source, "far");
    let mut history: Vec<Versions> = vec![vec![1; FILES as usize]];
    write(&mut source.mount("/a"), &history[0]);
    destination.does(
        "snapmirror create -source-path far://weir/a -destination-path weir:b -policy MirrorLatest",
    );
    destination.does("snapmirror initialize -destination-path weir:b");
    destination.mirrored();
    assert_eq!(seen(&mut destination.mount("/b"), &history), Some(0));
    let seed = unique();
    let rounds = std::env::var("KILL_ROUNDS").map_or(4, |rounds| rounds.parse().unwrap());
    println!("seed {seed}");
    let rng = SeededRng::new(seed);
    let choose = |of: u64| rng.next_u64() % of;
    for round in 0..rounds {
        let mut next = history.last().unwrap().clone();
        for version in next.iter_mut().skip(1) {
            *version += choose(2);
        }
        next[0] += 1;
        write(&mut source.mount("/a"), &next);
        history.push(next);
        // Mostly slow enough to be met under way.
        let throttle = ["1024", "1024", "4096", "unlimited"][choose(4) as usize];
        destination.does(&format!(
            "snapmirror modify -destination-path weir:b -throttle {throttle}"
        ));
        destination.does("snapmirror update -destination-path weir:b");
        std::thread::sleep(Duration::from_millis(choose(600)));
        let before = seen(&mut destination.mount("/b"), &history).unwrap();
        assert!(
            before + 2 >= history.len(),
            "older than the last complete one"
        );
        let who = choose(3);
        println!(
            "round {round}: {throttle}, {}",
            ["source", "destination", "both"][who as usize]
        );
        match who {
            0 => {
                source.server.kill();
                source = Node::start(one.path(), ports.0);
            }
            1 => {
                destination.server.kill();
                destination = Node::start(two.path(), ports.1);
            }
            _ => {
                source.server.kill();
                destination.server.kill();
                destination = Node::start(two.path(), ports.1);
                source = Node::start(one.path(), ports.0);
            }
        }
        let now = seen(&mut destination.mount("/b"), &history);
        assert!(now >= Some(before), "what was complete is there at once");
        destination.mirrored();
        let newest = history.len() - 1;
        assert_eq!(
            seen(&mut destination.mount("/b"), &history),
            Some(newest),
            "round {round}"
        );
    }
    // Broken off, it is a volume like any other; resynchronised, a copy again.
    destination.does("snapmirror break -destination-path weir:b");
    destination.mount("/b").file("stray", b"text");
    destination.does("snapmirror resync -destination-path weir:b");
    destination.mirrored();
    let mut client = destination.mount("/b");
    assert!(client.try_lookup("stray").is_none());
    assert_eq!(seen(&mut client, &history), Some(history.len() - 1));
    assert_eq!(client.create("no").unwrap_err(), 30, "NFS3ERR_ROFS");
    let metrics = destination.api().text("/metrics");
    assert!(
        metrics
            .contains("weir_snapmirror_mirrored{source=\"far://weir/a\",destination=\"weir:b\"} 1")
    );
}

/// The replication `r` of a volume, once it is in one of these states.
fn in_state(node: &Node, volume: &str, field: &str, wanted: &str) -> serde_json::Value {
    let path = format!("{}/replications/r", Api::volume(volume));
    let mut waited = 0;
    loop {
        let (status, now) = node.api().get(&path);
        if now[field] == wanted {
            return now;
        }
        assert!(
            waited < 3_000,
            "{status} {now}, not {wanted}: {}",
            node.server.log()
        );
        std::thread::sleep(Duration::from_millis(10));
        waited += 1;
    }
}

/// Peering of two unrelated nodes through the NetApp Volumes API: a volume is created as the copy
/// of another node's, whose administrator gets a passphrase.
#[test]
fn peering_is_established_by_the_passphrase_that_a_replication_shows() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (near, far) = (
        Node::start(one.path(), port()),
        Node::start(two.path(), port()),
    );
    for node in [&near, &far] {
        node.api().pool("p");
    }
    far.does("volume create -vserver weir -volume a -size 100GB -aggregate p");
    let history: Vec<Versions> = vec![vec![1; FILES as usize]];
    write(&mut far.mount("/a"), &history[0]);
    let of = |source: &str| json!({"peerClusterName": "far", "peerSvmName": "weir", "peerVolumeName": source});
    for (volume, source) in [("b", "a"), ("c", "later")] {
        let mut body = Api::volume_body("p", volume);
        let mut parameters = of(source);
        parameters["replication"] = json!("r");
        parameters["replicationSchedule"] = json!("DAILY");
        body["hybridReplicationParameters"] = parameters;
        let path = Api::volume(volume).replace(
            &format!("volumes/{volume}"),
            &format!("volumes?volumeId={volume}"),
        );
        near.api().must("POST", &path, &body);
    }
    let establish = |volume: &str, source: &str| {
        let path = format!("{}/replications/r:establishPeering", Api::volume(volume));
        near.api().change("POST", &path, &of(source)).unwrap()
    };
    let wrong = establish("b", "other").unwrap_err();
    assert!(wrong.to_string().contains("far://weir/a"), "{wrong}");
    let passphrase = || {
        let pending = in_state(&near, "b", "state", "PENDING_CLUSTER_PEERING");
        assert_eq!(pending["mirrorState"], "PENDING_PEERING", "{pending}");
        assert_eq!(pending["hybridReplicationType"], "CONTINUOUS_REPLICATION");
        let details = pending["hybridPeeringDetails"].clone();
        let command = format!("weir peers join {}", near.address);
        assert_eq!(details["command"], command, "{details}");
        assert!(details["commandExpiryTime"].is_string(), "{details}");
        details["passphrase"].as_str().unwrap().to_owned()
    };
    let first = passphrase();
    establish("b", "a").unwrap();
    let second = passphrase();
    assert_ne!(first, second);
    let (_, operations) = near
        .api()
        .get("/v1/projects/weir/locations/local/operations");
    let said = operations.to_string();
    assert!(said.contains("establishPeering"), "{said}");
    for secret in [&first, &second] {
        assert!(!said.contains(secret.as_str()), "{said}");
    }
    let join = |passphrase: &str| {
        let body = json!({"name": "near", "authentication": {"passphrase": passphrase},
                          "remote": {"ip_addresses": [near.address]}});
        far.api().send("POST", "/api/cluster/peers", &body).unwrap()
    };
    let (status, refused) = join(&first);
    assert_eq!(status, 409, "{refused}");
    let (status, joined) = join(&second);
    assert_eq!(status, 201, "{joined}");
    let mirrored = in_state(&near, "b", "mirrorState", "MIRRORED");
    assert_eq!(
        (&mirrored["state"], &mirrored["healthy"]),
        (&json!("READY"), &json!(true))
    );
    assert_eq!(mirrored["sourceVolume"], "far://weir/a");
    assert_eq!(mirrored.get("hybridPeeringDetails"), None);
    assert_eq!(seen(&mut near.mount("/b"), &history), Some(0));
    let again = establish("b", "a").unwrap_err();
    assert!(again.to_string().contains("is paired already"), "{again}");
    // The node is paired and has no such volume yet.
    let pending = in_state(&near, "c", "state", "PENDING_SVM_PEERING");
    assert!(
        pending["stateDetails"]
            .as_str()
            .is_some_and(|why| !why.is_empty()),
        "{pending}"
    );
    far.does("volume create -vserver weir -volume later -size 100GB -aggregate p");
    establish("c", "later").unwrap();
    in_state(&near, "c", "mirrorState", "MIRRORED");
}
