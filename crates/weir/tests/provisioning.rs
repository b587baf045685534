//! Volumes and policies through the API, against the real binary: acknowledged changes are in
//! force, and stay.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Duration;

use common::api::{Api, PLACE};
use common::caller::Caller;
use common::{Server, unique, weir};
use serde_json::{Value, json};

const ACCES: u32 = 13;
const NOENT: u32 = 2;
const ROFS: u32 = 30;
const STALE: u32 = 70;

fn api(server: &Server) -> Api {
    Api(server.api.unwrap())
}

/// A rule as the API has it.
fn rule(clients: &str, access: &str) -> Value {
    json!({"allowedClients": clients, "accessType": access, "nfsv3": true, "hasRootAccess": "true"})
}

#[test]
fn volumes_come_and_go_without_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let api = api(&server);
    // Connected before there is anything to mount.
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    assert_eq!(caller.mount("/a"), Err(NOENT));
    api.pool("p");
    api.make_volume("p", "a");
    api.make_volume("p", "b");
    let (a, b) = (caller.mount("/a").unwrap(), caller.mount("/b").unwrap());
    assert_ne!(a, b);
    assert_eq!(caller.getattr(&a), Ok(0o777));
    assert_eq!(caller.mkdir(&a, "dir"), Ok(0));

    api.must("DELETE", &Api::volume("a"), &Value::Null);
    assert_eq!(caller.getattr(&a), Err(STALE));
    assert_eq!(caller.mount("/a"), Err(NOENT));
    assert_eq!(caller.getattr(&b), Ok(0o777));
    // Another volume under the same names is another volume.
    api.make_volume("p", "a");
    assert_eq!(caller.getattr(&a), Err(STALE));
    let anew = caller.mount("/a").unwrap();
    assert_eq!(caller.mkdir(&anew, "dir"), Ok(0));

    server.stop();
    let server = Server::start(data.path(), &[]);
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    assert_eq!(
        caller.getattr(&anew),
        Ok(0o777),
        "handles outlive a restart"
    );
    assert_eq!(caller.getattr(&a), Err(STALE));
    assert!(caller.mount("/vol1").is_ok());
}

#[test]
fn a_policy_changes_under_clients_that_are_connected() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let api = api(&server);
    api.pool("p");
    api.make_volume("p", "a");
    let mut one = Caller::connect(server.address, "127.0.0.1");
    let mut two = Caller::connect(server.address, "127.0.0.2");
    let root = one.mount("/a").unwrap();
    assert_eq!(two.mkdir(&root, "1"), Ok(0), "without a policy, everyone");

    api.set_policy(
        "a",
        &json!([
            rule("127.0.0.2", "READ_ONLY"),
            rule("127.0.0.0/24", "READ_WRITE")
        ]),
    );
    assert_eq!(one.mkdir(&root, "2"), Ok(0));
    assert_eq!(
        two.mkdir(&root, "3"),
        Err(ROFS),
        "the first that matches decides"
    );

    api.set_policy(
        "a",
        &json!([rule("127.0.0.1", "READ_NONE"), rule("*", "READ_WRITE")]),
    );
    assert_eq!(one.getattr(&root), Err(ACCES));
    assert_eq!(one.mount("/a"), Err(ACCES));
    assert!(!one.exports().contains("/a"));
    assert_eq!(two.mkdir(&root, "4"), Ok(0));

    let mut v4 = rule("*", "READ_WRITE");
    v4["nfsv3"] = json!(false);
    api.set_policy("a", &json!([v4, rule("localhost", "READ_ONLY")]));
    assert_eq!(two.getattr(&root), Err(ACCES), "not by this name");
    assert_eq!(one.mkdir(&root, "5"), Err(ROFS));

    let mut squashed = rule("127.0.0.0/24", "READ_WRITE");
    squashed["hasRootAccess"] = json!("false");
    api.set_policy("a", &json!([squashed]));
    assert_eq!(one.mkdir(&root, "6"), Ok(65_534));

    api.set_policy("a", &json!([]));
    assert_eq!(
        one.getattr(&root),
        Err(ACCES),
        "a policy without rules admits nobody"
    );
    // What is malformed changes nothing.
    for clients in ["10.0.0.0/33", "a..b", "", "10.0.*"] {
        let path = format!("{}?updateMask=exportPolicy", Api::volume("a"));
        let body = json!({"exportPolicy": {"rules": [rule(clients, "READ_WRITE")]}});
        let (status, answer) = api.send("PATCH", &path, &body).unwrap();
        assert_eq!(status, 400, "{clients}: {answer}");
    }
    assert_eq!(one.getattr(&root), Err(ACCES));
}

/// A rule's Kerberos fields are in force on the data path, are returned as they were sent, and
/// survive a restart.
#[test]
fn a_rule_for_kerberos_does_not_take_the_clients_word() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let started = api(&server);
    started.pool("p");
    started.make_volume("p", "a");
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    let root = caller.mount("/a").unwrap();
    let set = |api: Api, sent: Value| {
        api.set_policy("a", &json!([sent, rule("*", "READ_WRITE")]));
        let kept = &api.get(&Api::volume("a")).1["exportPolicy"]["rules"][0];
        assert_eq!(kept, &sent);
    };
    let refused = |caller: &mut Caller| {
        assert_eq!(caller.mount("/a"), Err(ACCES));
        assert_eq!(caller.getattr(&root), Err(ACCES));
        assert!(!caller.exports().contains("/a"));
    };
    let secure = json!({"allowedClients": "127.0.0.1", "kerberos5pReadWrite": true, "kerberos5ReadOnly": false});
    set(started, secure.clone());
    refused(&mut caller);
    let mut both = secure.clone();
    both["accessType"] = json!("READ_ONLY");
    set(started, both);
    assert_eq!(caller.mkdir(&root, "1"), Err(ROFS));
    let mut none = secure;
    none["accessType"] = json!("READ_NONE");
    set(started, none);
    refused(&mut caller);

    server.stop();
    let server = Server::start(data.path(), &[]);
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    refused(&mut caller);
    let off = json!({"allowedClients": "127.0.0.1", "kerberos5ReadWrite": false});
    set(api(&server), off);
    assert_eq!(caller.mkdir(&root, "2"), Ok(0));
}

/// While requests wait for a limit, each description of the volume names it; soon afterwards none
/// does.
#[test]
fn a_description_names_the_limit_that_requests_wait_for() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let api = api(&server);
    api.pool("p");
    // 100 GiB at 64 MiB/s per TiB: 6.25 MiB/s.
    api.make_volume("p", "a");
    let status = || api.get(&Api::volume("a")).1["throughputStatus"].clone();
    let calm = status();
    assert_eq!(calm["waitingRequests"], json!("0"));
    let source = calm["limitSource"].as_str().unwrap();
    assert!(source.starts_with("PREMIUM: 64 MiB/s per TiB"), "{calm}");
    assert_eq!(calm.get("bindingLimit"), None);
    let address = server.address.to_string();
    std::thread::scope(|s| {
        let load = s.spawn(|| {
            common::bench(&[
                "nfs3",
                "write",
                "-p",
                "sequential",
                "-b",
                "64k",
                "-c",
                "2",
                "-d",
                "8",
                "-s",
                "16m",
                "--server",
                &address,
                "--export",
                "/a",
                "-t",
                "6",
                "--warmup",
                "0",
            ])
        });
        let bound = loop {
            let now = status();
            if now.get("bindingLimit").is_some() {
                break Some(now);
            }
            if load.is_finished() {
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut looks = Vec::new();
        while bound.is_some() && looks.len() < 100 && !load.is_finished() {
            looks.push(status());
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = load.join().unwrap();
        let bound = bound.unwrap_or_else(|| panic!("nothing was held back: {said:?}"));
        assert!(looks.len() > 10, "{said:?}");
        // It had ended before the last one, perhaps.
        looks.pop();
        for look in looks.iter().chain([&bound]) {
            assert_eq!(
                (&look["bindingLevel"], &look["bindingLimit"]),
                (&json!("VOLUME"), &json!("BYTES"))
            );
        }
    });
    while status().get("bindingLimit").is_some() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn export_options_are_for_volumes_without_a_policy() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--export-options", "ro"]);
    let api = api(&server);
    api.pool("p");
    api.make_volume("p", "a");
    let mut caller = Caller::connect(server.address, "127.0.0.1");
    let (vol1, a) = (caller.mount("/vol1").unwrap(), caller.mount("/a").unwrap());
    assert_eq!(caller.mkdir(&vol1, "1"), Err(ROFS));
    assert_eq!(caller.mkdir(&a, "1"), Err(ROFS));
    api.set_policy("a", &json!([rule("*", "READ_WRITE")]));
    assert_eq!(caller.mkdir(&a, "1"), Ok(0));
    assert_eq!(caller.mkdir(&vol1, "1"), Err(ROFS));
}

/// Volumes that were answered for stand; none is half there; what had begun has ended.
#[test]
fn kill_in_the_middle_of_jobs() {
    let data = tempfile::tempdir().unwrap();
    let known: Mutex<BTreeMap<String, bool>> = Mutex::default();
    for round in 0..4u64 {
        let server = Server::start(data.path(), &[]);
        let api = api(&server);
        if round == 0 {
            api.pool("p");
        }
        // Everything that was begun before has ended by the time that the server serves.
        let (_, operations) = api.get(&format!("{PLACE}/operations?pageSize=1000"));
        for operation in operations["operations"].as_array().into_iter().flatten() {
            assert_eq!(operation["done"], json!(true), "{operation}");
        }
        let (_, volumes) = api.get(&format!("{PLACE}/volumes?pageSize=1000"));
        let volumes = volumes["volumes"].as_array().unwrap().clone();
        let there: BTreeMap<&str, &Value> = volumes
            .iter()
            .map(|v| (v["name"].as_str().unwrap().rsplit('/').next().unwrap(), v))
            .collect();
        let mut caller = Caller::connect(server.address, "127.0.0.1");
        for (id, state) in &there {
            assert_eq!(state["state"], json!("READY"), "{id}: {state}");
            let root = caller.mount(&format!("/{id}")).unwrap();
            caller.getattr(&root).unwrap();
        }
        for (id, exists) in known.lock().unwrap().iter() {
            assert_eq!(there.contains_key(id.as_str()), *exists, "{id}");
            if !exists {
                assert_eq!(caller.mount(&format!("/{id}")), Err(NOENT), "{id}");
            }
        }
        // Many at once, until the server is killed under them.
        let killed_after = Duration::from_millis(30 + unique() % 300);
        std::thread::scope(|s| {
            for t in 0..6 {
                let known = &known;
                s.spawn(move || {
                    for i in 0.. {
                        let id = format!("v{round}-{t}-{i}");
                        let path = format!("{PLACE}/volumes?volumeId={id}");
                        let made = api.change("POST", &path, &Api::volume_body("p", &id));
                        let Ok(made) = made else { return };
                        made.unwrap();
                        known.lock().unwrap().insert(id.clone(), true);
                        if i % 3 == 0 {
                            // Until it is answered, either is right.
                            known.lock().unwrap().remove(&id);
                            let Ok(gone) = api.change("DELETE", &Api::volume(&id), &Value::Null)
                            else {
                                return;
                            };
                            gone.unwrap();
                            known.lock().unwrap().insert(id, false);
                        }
                    }
                });
            }
            std::thread::sleep(killed_after);
            server.kill();
        });
    }
    let checked = weir(&["check", data.path().to_str().unwrap()]);
    assert!(checked.status.success(), "{checked:?}");
    assert!(
        !known.lock().unwrap().is_empty(),
        "it was killed before it did anything"
    );
}

fn refused(more: &[&str]) -> String {
    let data = tempfile::tempdir().unwrap();
    let said = Server::try_start(data.path(), more)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(
        std::fs::read_dir(data.path()).unwrap().count(),
        0,
        "the folder was touched"
    );
    said
}

#[test]
fn an_api_that_anyone_could_use_is_refused() {
    let said = refused(&["--api", "0.0.0.0:0"]);
    assert!(
        said.contains("TLS") && said.contains("weir tokens create"),
        "{said}"
    );
    let said = refused(&["--api", "127.0.0.1:0", "--api-tls-cert", "x"]);
    assert!(said.contains("--api-tls-key"), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = refused(&["--api", &taken.local_addr().unwrap().to_string()]);
    assert!(said.contains("--api"), "{said}");

    // With TLS, but no client that could be admitted.
    let data = tempfile::tempdir().unwrap();
    let open = ["--api", "0.0.0.0:0", "--api-tls", "generate"];
    let said = Server::try_start(data.path(), &open)
        .map(|_| ())
        .unwrap_err();
    assert!(said.contains("token"), "{said}");
    let server = Server::start(data.path(), &["--api", "off"]);
    assert!(server.api.is_none());
    assert!(
        Caller::connect(server.address, "127.0.0.1")
            .mount("/vol1")
            .is_ok()
    );
}

#[test]
fn service_levels_of_the_operators_own() {
    let data = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("levels.toml");
    let level = |rate: u32| {
        format!(
            "[[pool-level]]\nname = \"ARCHIVE\"\nfollows = \"volume\"\nmibps-per-tib = {rate}\nmanual-qos = true\n\
             pool-gib = {{ min = 1024, max = 1048576 }}\nvolume-gib = {{ min = 100, max = 102400 }}\n"
        )
    };
    std::fs::write(&file, level(4)).unwrap();
    let with_file = ["--service-levels", file.to_str().unwrap()];
    let server = Server::start(data.path(), &with_file);
    let api = api(&server);
    let body = json!({"serviceLevel": "ARCHIVE", "capacityGib": "4096", "network": "default"});
    api.must(
        "POST",
        &format!("{PLACE}/storagePools?storagePoolId=old"),
        &body,
    );
    let volume = json!({"storagePool": "old", "shareName": "old", "capacityGib": "2048", "protocols": ["NFSV3"]});
    api.must("POST", &format!("{PLACE}/volumes?volumeId=old"), &volume);
    // Of the pool, for a volume of it has what follows from its size.
    let given = |api: Api| {
        let pool = api.get(&format!("{PLACE}/storagePools/old")).1;
        // A whole number of 64 bits is text on the wire.
        pool["totalThroughputMibps"].as_str().map(str::to_owned)
    };
    assert_eq!(given(api).as_deref(), Some("16"));
    server.stop();
    // Without the file it is unknown what the service level provides.
    let said = Server::try_start(data.path(), &[]).map(|_| ()).unwrap_err();
    assert!(
        said.contains("ARCHIVE") && said.contains("--service-levels"),
        "{said}"
    );
    // What the file says now counts from the next start.
    std::fs::write(&file, level(16)).unwrap();
    let server = Server::start(data.path(), &with_file);
    assert_eq!(given(self::api(&server)).as_deref(), Some("64"));
}
