//! Tests of what gcloud has no recording of: fields newer than it, waiting, questions, settings,
//! pages, tokens, refusals.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;
mod server;

use common::{Ran, weir};
use serde_json::{Value, json};
use server::{Answer, Server};

fn operation(n: u32, done: bool, rest: Value) -> Value {
    let mut operation = json!({
        "name": format!("projects/weir/locations/local/operations/op-{n}"),
        "metadata": {"verb": "create"},
        "done": done,
    });
    for (key, value) in rest.as_object().unwrap() {
        operation[key] = value.clone();
    }
    operation
}

/// A server that accepts every change at once and shows an empty resource.
fn accepting() -> Server {
    Server::start(Box::new(|(method, ..), _| match method.as_str() {
        "GET" => Some((200, json!({"labels": {"old": "1"}}))),
        _ => Some((
            200,
            operation(1, true, json!({"response": {"state": "READY"}})),
        )),
    }))
}

fn on(server: &Server, args: &[&str]) -> Ran {
    weir(args, &[("WEIR_SERVER", &server.address)], None)
}

/// Runs a command that must succeed with one request besides reads, and returns that.
fn sent(args: &[&str]) -> server::Request {
    let server = accepting();
    let ran = on(&server, args);
    assert_eq!(ran.exit, 0, "{}", ran.err);
    let mut changes: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|r| r.0 != "GET")
        .collect();
    assert_eq!(changes.len(), 1);
    changes.remove(0)
}

/// Every command of the document on performance, in its own order of flags.
#[test]
fn the_commands_for_manual_qos() {
    let (method, path, query, body) = sent(&[
        "storage-pools",
        "create",
        "mq",
        "--project=p1",
        "--location=us-central1",
        "--capacity=40960",
        "--service-level=Premium",
        "--qos-type=manual",
        "--network=name=default",
    ]);
    assert_eq!(
        (method.as_str(), path.as_str()),
        ("POST", "/v1/projects/p1/locations/us-central1/storagePools")
    );
    assert_eq!(query, "storagePoolId=mq");
    assert_eq!(body["qosType"], "MANUAL");
    assert_eq!(body["serviceLevel"], "PREMIUM");
    assert_eq!(body["capacityGib"], "40960");
    assert_eq!(body["network"], "default");

    let (method, path, query, body) = sent(&[
        "storage-pools",
        "update",
        "mq",
        "--project=p1",
        "--location=us-central1",
        "--qos-type=manual",
    ]);
    assert_eq!(
        (method.as_str(), path.as_str()),
        (
            "PATCH",
            "/v1/projects/p1/locations/us-central1/storagePools/mq"
        )
    );
    assert_eq!(
        (query.as_str(), &body["qosType"]),
        ("updateMask=qosType", &json!("MANUAL"))
    );

    let (_, path, query, body) = sent(&[
        "volumes",
        "create",
        "v1",
        "--project=p1",
        "--location=us-central1",
        "--storage-pool=mq",
        "--capacity=1024",
        "--protocols=nfsv3,nfsv4",
        "--share-name=share1",
        "--throughput-mibps=128",
    ]);
    assert_eq!(path, "/v1/projects/p1/locations/us-central1/volumes");
    assert_eq!(query, "volumeId=v1");
    assert_eq!(body["throughputMibps"], json!(128.0));
    assert_eq!(body["storagePool"], "mq");
    assert_eq!(body["protocols"], json!(["NFSV3", "NFSV4"]));

    let (_, _, query, body) = sent(&["volumes", "update", "v1", "--throughput-mibps=256.5"]);
    assert_eq!(
        (query.as_str(), &body["throughputMibps"]),
        ("updateMask=throughputMibps", &json!(256.5))
    );
}

#[test]
fn export_rules() {
    let (.., body) = sent(&[
        "volumes",
        "update",
        "v1",
        "--export-policy=allowed-clients=10.0.0.0/8,host1,access-type=read-only,squash-mode=all-squash,anon-uid=99",
        "--export-policy=allowed-clients=*.example.com,has-root-access=True,nfsv4=off",
    ]);
    assert_eq!(
        body["exportPolicy"]["rules"],
        json!([
            {"allowedClients": "10.0.0.0/8,host1", "accessType": "READ_ONLY", "squashMode": "ALL_SQUASH", "anonUid": "99"},
            {"allowedClients": "*.example.com", "hasRootAccess": "true", "nfsv4": false},
        ])
    );
}

#[test]
fn schedules_of_snapshots() {
    let (.., body) = sent(&[
        "volumes",
        "update",
        "v1",
        "--snapshot-hourly=snapshots-to-keep=24,minute=5",
        "--snapshot-monthly=snapshots-to-keep=12,day=1,15",
    ]);
    assert_eq!(
        body["snapshotPolicy"],
        json!({
            "enabled": true,
            "hourlySchedule": {"snapshotsToKeep": 24, "minute": 5},
            "monthlySchedule": {"snapshotsToKeep": 12, "daysOfMonth": "1,15"},
        })
    );
}

#[test]
fn the_word_netapp_may_stand_or_not() {
    assert_eq!(
        sent(&["netapp", "volumes", "update", "v1", "--capacity=2TiB"]),
        sent(&["volumes", "update", "v1", "--capacity=2048"])
    );
}

#[test]
fn nothing_to_change_asks_nothing() {
    let server = accepting();
    let ran = on(&server, &["volumes", "update", "v1"]);
    assert_eq!(ran.exit, 2);
    assert!(ran.err.contains("nothing to change"), "{}", ran.err);
    assert!(server.requests().iter().all(|r| r.0 == "GET"));
}

#[test]
fn a_long_operation_is_waited_for() {
    let server = Server::start(Box::new(|(method, ..), before| match method.as_str() {
        "POST" => Some((200, operation(7, false, json!({})))),
        _ if before < 2 => Some((200, operation(7, false, json!({})))),
        _ => Some((
            200,
            operation(
                7,
                true,
                json!({"response": {"name": "x", "state": "READY"}}),
            ),
        )),
    }));
    let ran = on(
        &server,
        &[
            "storage-pools",
            "create",
            "p",
            "--capacity=1TiB",
            "--service-level=flex",
            "--format=value(state)",
        ],
    );
    assert_eq!((ran.exit, ran.out.as_str()), (0, "READY\n"));
    assert_eq!(ran.err, "Created storage pool [p].\n");
    // Ctrl-C would have printed this.
    assert_eq!(
        ran.interrupted,
        [
            "the operation goes on in the server: weir operations describe projects/weir/locations/local/operations/op-7"
        ]
    );
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn an_operation_that_fails_is_an_error() {
    let error =
        json!({"error": {"code": 9, "message": "Pool p has 100 MiB/s left, 128 are wanted."}});
    let server = Server::start(Box::new(move |_, _| {
        Some((200, operation(7, true, error.clone())))
    }));
    let ran = on(&server, &["volumes", "revert", "v", "--snapshot=s"]);
    assert_eq!(ran.exit, 1);
    assert_eq!(
        ran.err,
        "ERROR: (weir.volumes.revert) FAILED_PRECONDITION: Pool p has 100 MiB/s left, 128 are wanted.\n"
    );
}

#[test]
fn without_waiting_nothing_is_polled() {
    let server = Server::start(Box::new(|_, _| Some((200, operation(7, false, json!({}))))));
    let ran = on(&server, &["volumes", "delete", "v", "--async", "--quiet"]);
    assert_eq!((ran.exit, ran.out.as_str()), (0, ""));
    assert!(
        ran.err
            .contains("weir operations describe projects/weir/locations/local/operations/op-7")
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn deleting_asks_first() {
    let server = accepting();
    let environment = [("WEIR_SERVER", server.address.as_str())];
    let ran = weir(&["volumes", "delete", "v"], &environment, Some("n\n"));
    assert_eq!(ran.exit, 1);
    assert!(
        ran.err.ends_with(
            "Do you want to continue (Y/n)?  ERROR: (weir.volumes.delete) Aborted by user.\n"
        ),
        "{}",
        ran.err
    );
    assert!(server.requests().is_empty());
    assert_eq!(
        weir(&["volumes", "delete", "v"], &environment, Some("\n")).exit,
        0
    );
    let ran = weir(&["volumes", "delete", "v", "-q"], &environment, Some("n\n"));
    assert_eq!((ran.exit, ran.err.as_str()), (0, "Deleted volume [v].\n"));
}

fn paged() -> Answer {
    Box::new(|(_, _, query, _), _| {
        let page: usize = query
            .split('&')
            .find_map(|q| q.strip_prefix("pageToken="))
            .map_or(0, |t| t.parse().unwrap());
        let volumes: Vec<Value> = (page * 3..page * 3 + 3)
            .map(|n| json!({"name": format!("projects/weir/locations/local/volumes/v{n}")}))
            .collect();
        let next = if page < 3 {
            (page + 1).to_string()
        } else {
            String::new()
        };
        Some((
            200,
            json!({"volumes": volumes, "nextPageToken": next, "unreachable": ["there"]}),
        ))
    })
}

#[test]
fn pages_are_followed_and_no_more_than_needed() {
    let server = Server::start(paged());
    let ran = on(&server, &["volumes", "list", "--format=value(name)"]);
    assert_eq!(ran.out.lines().count(), 12);
    assert!(ran.err.contains("WARNING: unreachable: there"));
    assert_eq!(server.requests().len(), 4);
    let ran = on(
        &server,
        &[
            "volumes",
            "list",
            "--limit=4",
            "--page-size=3",
            "--format=value(name)",
        ],
    );
    assert_eq!(ran.out, "v0\nv1\nv2\nv3\n");
    let asked: Vec<String> = server.requests().into_iter().map(|r| r.2).collect();
    assert_eq!(asked, ["pageSize=3", "pageSize=3&pageToken=1"]);
    let ran = on(
        &server,
        &[
            "volumes",
            "list",
            "--sort-by=~name",
            "--limit=1",
            "--format=value(name)",
        ],
    );
    assert_eq!(ran.out, "v9\n");
}

#[test]
fn mount_lines() {
    let volume = json!({
        "shareName": "share1",
        "mountOptions": [
            {"export": "/share1", "exportFull": "10.0.0.5:/share1", "protocol": "NFSV3",
             "instructions": "sudo mkdir -p /mnt/share1\nsudo mount -t nfs -o vers=3,proto=tcp,hard,port=12049,mountport=12049,mountproto=tcp,nolock 10.0.0.5:/share1 /mnt/share1"},
            {"export": "/share1", "exportFull": "10.0.0.5:/share1", "protocol": "NFSV4",
             "instructions": "sudo mkdir -p /mnt/share1\nsudo mount -t nfs -o vers=4.2,proto=tcp,hard,port=12049 10.0.0.5:/share1 /mnt/share1"},
        ],
    });
    let server = Server::start(Box::new(move |_, _| Some((200, volume.clone()))));
    let ran = on(&server, &["volumes", "mount-help", "v1"]);
    assert_eq!(
        ran.out,
        "\
# NFSv3; the settings of the kernel have to be made before the first mount of this server
sudo modprobe sunrpc
sudo sysctl -w sunrpc.tcp_max_slot_table_entries=128
sudo mkdir -p /mnt/share1
sudo mount -t nfs -o vers=3,proto=tcp,hard,port=12049,mountport=12049,mountproto=tcp,nolock 10.0.0.5:/share1 /mnt/share1
echo 15360 | sudo tee /sys/class/bdi/$(mountpoint -d /mnt/share1)/read_ahead_kb
# in /etc/fstab:
10.0.0.5:/share1 /mnt/share1 nfs vers=3,proto=tcp,hard,port=12049,mountport=12049,mountproto=tcp,nolock,_netdev 0 0
# in /etc/modprobe.d/sunrpc.conf:
options sunrpc tcp_max_slot_table_entries=128
# in /etc/nfs.conf.d/read-ahead.conf (nfs-utils 2.6.2 or later):
[nfsrahead]
nfs=15360
nfs4=15360

# NFSv4; the settings of the kernel have to be made before the first mount of this server
sudo modprobe nfs
echo 180 | sudo tee /sys/module/nfs/parameters/max_session_slots
sudo mkdir -p /mnt/share1
sudo mount -t nfs -o vers=4.2,proto=tcp,hard,port=12049 10.0.0.5:/share1 /mnt/share1
echo 15360 | sudo tee /sys/class/bdi/$(mountpoint -d /mnt/share1)/read_ahead_kb
# in /etc/fstab:
10.0.0.5:/share1 /mnt/share1 nfs vers=4.2,proto=tcp,hard,port=12049,_netdev 0 0
# in /etc/modprobe.d/nfsclient.conf:
options nfs max_session_slots=180
# in /etc/nfs.conf.d/read-ahead.conf (nfs-utils 2.6.2 or later):
[nfsrahead]
nfs=15360
nfs4=15360
"
    );
}

#[test]
fn settings_come_from_flags_then_the_environment_then_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep").join("config.toml");
    let token = folder.path().join("token");
    std::fs::write(&token, "from-file\n").unwrap();
    let server = accepting();
    let path = file.to_str().unwrap();
    let environment = [("WEIR_CONFIG", path)];
    for (name, value) in [
        ("server", server.address.as_str()),
        ("project", "fp"),
        ("location", "fl"),
        ("token-file", token.to_str().unwrap()),
    ] {
        assert_eq!(
            weir(&["config", "set", name, value], &environment, None).exit,
            0
        );
    }
    let named = |environment: &[(&str, &str)], args: &[&str]| {
        let mut words = vec!["volumes", "describe", "v"];
        words.extend(args);
        let ran = weir(&words, environment, None);
        assert_eq!(ran.exit, 0, "{}", ran.err);
        let requests = server.requests();
        let token = requests
            .iter()
            .find(|r| r.0 == "TOKEN")
            .map(|r| r.1.clone());
        (requests[0].1.clone(), token.unwrap_or_default())
    };
    assert_eq!(
        named(&environment, &[]),
        (
            "/v1/projects/fp/locations/fl/volumes/v".to_owned(),
            "Bearer from-file".to_owned()
        )
    );
    let more = [
        ("WEIR_CONFIG", path),
        ("WEIR_PROJECT", "ep"),
        ("WEIR_TOKEN", "from-env"),
        ("WEIR_LOCATION", ""),
    ];
    assert_eq!(
        named(&more, &["--location=x"]),
        (
            "/v1/projects/ep/locations/x/volumes/v".to_owned(),
            "Bearer from-env".to_owned()
        )
    );
    assert_eq!(
        weir(&["config", "unset", "project"], &environment, None).exit,
        0
    );
    let listed = weir(&["config", "list"], &environment, None);
    assert!(listed.out.contains("project: weir\n"), "{}", listed.out);
    assert!(listed.out.contains("location: fl\n"), "{}", listed.out);
    let ran = weir(&["config", "set", "colour", "blue"], &environment, None);
    assert_eq!(ran.exit, 2);
    assert!(
        ran.err.contains("there is no setting [colour]"),
        "{}",
        ran.err
    );
    std::fs::write(&file, "server = [").unwrap();
    assert_eq!(weir(&["volumes", "list"], &environment, None).exit, 1);
}

#[test]
fn tokens_and_the_audit_log() {
    let server = Server::start(Box::new(|(method, path, ..), _| {
        match (method.as_str(), path.as_str()) {
            ("POST", "/v1/tokens") => Some((
                200,
                json!({"name": "tokens/ci", "role": "EDITOR", "token": "s3cret"}),
            )),
            ("GET", "/v1/tokens") => Some((
                200,
                json!({"tokens": [{"name": "tokens/ci", "role": "EDITOR", "createTime": "2026-11-21T10:00:00Z"}]}),
            )),
            ("DELETE", "/v1/tokens/ci") => Some((200, json!({}))),
            ("GET", "/v1/auditEntries") => Some((
                200,
                json!({"auditEntries": [{"time": "2026-11-21T10:00:00Z", "actor": "ci", "method": "CreateVolume", "resource": "projects/p/locations/l/volumes/v", "outcome": "OK"}]}),
            )),
            _ => None,
        }
    }));
    let ran = on(&server, &["tokens", "create", "ci", "--role=editor"]);
    assert_eq!((ran.exit, ran.out.as_str()), (0, "s3cret\n"));
    let requests = server.requests();
    assert_eq!(
        (requests[0].2.as_str(), &requests[0].3),
        ("tokenId=ci", &json!({"role": "EDITOR"}))
    );
    let ran = on(&server, &["tokens", "list"]);
    assert_eq!(
        ran.out,
        "NAME  ROLE    CREATE_TIME          EXPIRES  LAST_USE  REVOKED\n\
         ci    EDITOR  2026-11-21T10:00:00\n"
    );
    assert_eq!(on(&server, &["tokens", "revoke", "ci"]).exit, 0);
    let ran = on(&server, &["audit"]);
    assert!(ran.out.contains("CreateVolume"), "{}", ran.out);
    assert_eq!(
        on(&server, &["tokens", "create", "ci", "--role=god"]).exit,
        2
    );
}

#[test]
fn answers_that_are_none() {
    for (status, body) in [
        (200, json!("x")),
        (500, Value::Null),
        (502, json!("gateway")),
        (
            401,
            json!({"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no token"}}),
        ),
    ] {
        let server = Server::start(Box::new(move |_, _| Some((status, body.clone()))));
        let ran = on(&server, &["storage-pools", "delete", "p"]);
        assert_eq!(ran.exit, 1, "{status}");
        assert!(
            ran.err.starts_with("ERROR: (weir.storage-pools.delete) "),
            "{}",
            ran.err
        );
    }
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let address = format!("http://{gone}");
    let ran = weir(&["volumes", "list"], &[("WEIR_SERVER", &address)], None);
    assert_eq!(ran.exit, 1);
    assert!(ran.err.contains("UNAVAILABLE: cannot reach"), "{}", ran.err);
    for word in [
        "connection refused",
        "weir serve",
        "--server",
        "WEIR_SERVER",
    ] {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
    let ran = weir(&["volumes", "list", "--server=nonsense"], &[], None);
    assert_eq!(ran.exit, 2);
}

#[test]
fn names_stay_in_their_place() {
    let server = accepting();
    for name in [
        "a/b",
        "",
        "projects/p/locations/l/storagePools/x",
        "projects/p/locations/l/volumes/",
    ] {
        let ran = on(&server, &["volumes", "describe", name]);
        assert_eq!(ran.exit, 2, "{name}");
    }
    assert!(server.requests().is_empty());
    assert_eq!(on(&server, &["volumes", "describe", "a?b#c %"]).exit, 0);
    assert_eq!(
        server.requests()[0].1,
        "/v1/projects/weir/locations/local/volumes/a%3Fb%23c%20%25"
    );
    let full = "projects/p/locations/l/volumes/v/snapshots/s";
    assert_eq!(
        on(&server, &["volumes", "snapshots", "describe", full]).exit,
        0
    );
    assert_eq!(server.requests()[0].1, format!("/v1/{full}"));
}

#[test]
fn completion_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = weir(&["completion", shell], &[], None);
        assert_eq!(ran.exit, 0);
        // A few lines that ask the program itself.
        assert!(
            ran.out.contains("COMPLETE=") && ran.out.contains("weir"),
            "{shell}: {}",
            ran.out
        );
        assert!(ran.out.len() < 4096, "{shell}");
    }
}

#[test]
fn flags_files_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flags.yaml");
    let flag = format!("--flags-file={}", path.display());
    for text in [
        "- 1",
        "location: x",
        ": [",
        &format!("--flags-file: {}", path.display()),
    ] {
        std::fs::write(&path, text).unwrap();
        let ran = weir(&["volumes", "list", &flag], &[], None);
        assert_eq!(ran.exit, 2, "{text}: {}", ran.err);
    }
    std::fs::write(
        &path,
        r#"{"--limit": 3, "--uri": true, "--sort-by": ["name", "state"]}"#,
    )
    .unwrap();
    let server = Server::start(paged());
    let ran = weir(
        &["volumes", "list", &flag],
        &[("WEIR_SERVER", &server.address)],
        None,
    );
    assert_eq!(ran.out.lines().count(), 3, "{}", ran.err);
}

/// Flags of every command may come anywhere, and a line of ONTAP's runs at the server that they
/// name.
#[test]
fn flags_stand_anywhere() {
    let lines = || {
        Server::start(Box::new(|_, _| {
            Some((200, json!({"output": "done\n", "volumes": []})))
        }))
    };
    let (here, elsewhere) = (lines(), lines());
    let at = here.address.as_str();
    let flag = format!("--server={at}");
    let volumes: &[&str] = &["volumes", "list"];
    let line: &[&str] = &["ontap", "snapmirror show -fields throttle"];
    let words: &[&str] = &["snapmirror", "show", "-fields", "throttle"];
    for command in [volumes, line, words] {
        for place in 0..=command.len() {
            for given in [&[flag.as_str()][..], &["--server", at]] {
                let mut args = command[..place].to_vec();
                args.extend(given);
                args.extend(&command[place..]);
                let ran = weir(&args, &[("WEIR_SERVER", &elsewhere.address)], None);
                assert_eq!(ran.exit, 0, "{args:?}: {}", ran.err);
                let requests = here.requests();
                assert_eq!(requests.len(), 1, "{args:?}");
                if command != volumes {
                    let input = &requests[0].3["input"];
                    assert_eq!(input, "snapmirror show -fields throttle", "{args:?}");
                }
            }
        }
    }
    for refused in [
        &["ontap", "snapmirror show", "--srever", at][..],
        &["ontap", "--srever", at, "snapmirror show"],
        &["snapmirror", "show", "--srever", at],
        &["ontap", "version", "--server"],
    ] {
        let ran = weir(refused, &[("WEIR_SERVER", &elsewhere.address)], None);
        assert_ne!(ran.exit, 0, "{refused:?}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
}

/// `--json` prints one JSON document, whatever the command prints for people.
#[test]
fn json_of_every_kind_of_command() {
    let server = Server::start(Box::new(|(_, path, ..), _| {
        Some((
            200,
            match path.as_str() {
                "/v1/conditions" => json!({"headline": "all is well", "conditions": []}),
                "/health" => json!({"status": "OK", "version": "1.2.3", "problems": []}),
                _ => json!({
                    "volumes": [],
                    "output": "done\n",
                    "records": [{"source_path": "a:b"}],
                    "tokens": [{"name": "tokens/t"}],
                }),
            },
        ))
    }));
    for (args, pointer, wanted) in [
        (&["volumes", "list"][..], "", json!([])),
        (&["tokens", "list"], "/0/name", json!("tokens/t")),
        (&["conditions"], "/headline", json!("all is well")),
        (&["status"], "/health", json!("OK")),
        (&["config", "list"], "/project", json!("weir")),
        (&["peers", "list"], "/0/source_path", json!("a:b")),
        (
            &["ontap", "snapmirror show"],
            "/0/source_path",
            json!("a:b"),
        ),
        (&["snapmirror", "show"], "/0/source_path", json!("a:b")),
        (
            &["snapmirror", "update", "-destination-path", "a:b"],
            "/output",
            json!("done\n"),
        ),
        (&["top", "--interval=0.1"], "/volumes", json!([])),
        (
            &["plan", "--volume=name=v,capacity=1TiB"],
            "/cheapest/level",
            Value::Null,
        ),
    ] {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let ran = on(&server, &args);
        assert_eq!(ran.exit, 0, "{args:?}: {}", ran.err);
        let printed: Value = serde_json::from_str(&ran.out).unwrap();
        let found = printed.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, wanted, "{args:?}: {}", ran.out);
    }
    let ran = on(&server, &["volumes", "list", "--json", "--format=yaml"]);
    assert_eq!(ran.exit, 2, "{}", ran.err);
    let ran = on(&server, &["ontap", "--json"]);
    assert_eq!(ran.exit, 2, "{}", ran.err);
}

/// `?`, `help` and `--help` work without a server.
#[test]
fn help_with_a_line() {
    for (args, wanted) in [
        (&["ontap", "?"][..], "snapmirror update"),
        (&["ontap", "help"], "volume show"),
        (&["ontap", "help snapmirror upd"], "-source-snapshot <text>"),
        (&["ontap", "snapmirror update -th?"], "-throttle <throttle>"),
        (&["snapmirror", "?"], "snapmirror policy add-rule"),
        (
            &["snapmirror", "update", "?"],
            "-destination-path <SVM:volume>",
        ),
        (
            &["snapmirror", "update", "--help"],
            "-destination-path <SVM:volume>",
        ),
    ] {
        let ran = weir(args, &[("WEIR_SERVER", "http://127.0.0.1:1")], None);
        assert!(
            ran.exit == 0 && ran.out.contains(wanted),
            "{args:?}: {}{}",
            ran.out,
            ran.err
        );
    }
    let ran = weir(&["ontap", "nonsense ?"], &[], None);
    assert!(
        ran.exit == 1 && ran.err.contains("not a recognized command"),
        "{}",
        ran.err
    );
}

#[test]
fn snapshots_of_instances() {
    let created = sent(&[
        "filestore",
        "instances",
        "snapshots",
        "create",
        "s1",
        "--instance=i1",
        "--instance-region=us-central1",
        "--description=before",
        "--labels=a=b",
    ]);
    let parent = "/v1/projects/weir/locations/us-central1/instances/i1";
    assert_eq!(
        (created.0.as_str(), created.1),
        ("POST", format!("{parent}/snapshots"))
    );
    assert_eq!(created.2, "snapshotId=s1");
    assert_eq!(created.3["description"], "before");
    let updated = sent(&[
        "filestore",
        "instances",
        "snapshots",
        "update",
        "s1",
        "--instance=i1",
        "--instance-location=us-central1",
        "--update-labels=c=d",
    ]);
    assert_eq!(
        (updated.0.as_str(), updated.1),
        ("PATCH", format!("{parent}/snapshots/s1"))
    );
    assert_eq!(updated.3["labels"], json!({"old": "1", "c": "d"}));
    let deleted = sent(&[
        "filestore",
        "instances",
        "snapshots",
        "delete",
        "s1",
        "--instance=i1",
        "--location=us-central1",
        "--quiet",
    ]);
    assert_eq!(
        (deleted.0.as_str(), deleted.1),
        ("DELETE", format!("{parent}/snapshots/s1"))
    );
    let reverted = sent(&[
        "filestore",
        "instances",
        "revert",
        "i1",
        "--target-snapshot=s1",
        "--location=us-central1",
        "-q",
    ]);
    assert_eq!(
        (reverted.0.as_str(), reverted.1),
        ("POST", format!("{parent}:revert"))
    );
    assert_eq!(reverted.3, json!({"targetSnapshotId": "s1"}));
    let server = accepting();
    let ran = on(&server, &["filestore", "instances", "snapshots", "list"]);
    assert!(
        ran.exit == 2 && ran.err.contains("[--instance]"),
        "{}",
        ran.err
    );
}

#[test]
fn backups_of_instances() {
    let created = sent(&[
        "filestore",
        "backups",
        "create",
        "b1",
        "--region=us-central1",
        "--instance=i1",
        "--instance-zone=us-central1-a",
        "--file-share=files",
        "--description=before",
    ]);
    let parent = "/v1/projects/weir/locations/us-central1/backups";
    assert_eq!((created.0.as_str(), created.1.as_str()), ("POST", parent));
    assert_eq!(created.2, "backupId=b1");
    let source = "projects/weir/locations/us-central1-a/instances/i1";
    assert_eq!(created.3["sourceInstance"], source);
    assert_eq!(created.3["sourceFileShare"], "files");
    assert_eq!(created.3["description"], "before");
    let deleted = sent(&[
        "filestore",
        "backups",
        "delete",
        "b1",
        "--location=us-central1",
        "--quiet",
    ]);
    assert_eq!(
        (deleted.0.as_str(), deleted.1),
        ("DELETE", format!("{parent}/b1"))
    );
    let restored = sent(&[
        "filestore",
        "instances",
        "create",
        "i2",
        "--location=us-central1-a",
        "--file-share=name=files,capacity=1024,source-backup=b1,source-backup-region=us-central1",
    ]);
    let backup = "projects/weir/locations/us-central1/backups/b1";
    assert_eq!(restored.3["fileShares"][0]["sourceBackup"], backup);
    let server = accepting();
    let ran = on(
        &server,
        &[
            "filestore",
            "instances",
            "update",
            "i2",
            "--location=l1",
            "--file-share=name=files,capacity=1024,source-backup=b1",
        ],
    );
    assert!(
        ran.exit == 2 && ran.err.contains("source-backup"),
        "{}",
        ran.err
    );
}

#[test]
fn pools_are_switched_and_take_lines() {
    let switched = sent(&["storage-pools", "switch", "mq", "--location=l1"]);
    let pool = "/v1/projects/weir/locations/l1/storagePools/mq";
    assert_eq!(
        (switched.0.as_str(), switched.1),
        ("POST", format!("{pool}:switch"))
    );
    let server = Server::start(Box::new(|_, _| {
        Some((200, json!({"body": {"output": "1 entry was displayed.\n"}})))
    }));
    let ran = on(
        &server,
        &[
            "storage-pools",
            "execute",
            "mq",
            "snapmirror show",
            "--location=l1",
        ],
    );
    assert_eq!(
        ran.out, "body:\n  output: |\n    1 entry was displayed.\n",
        "{}",
        ran.err
    );
    let (method, path, _, body) = server.requests().remove(0);
    assert_eq!(
        (method.as_str(), path),
        ("POST", format!("{pool}/ontap/api/private/cli"))
    );
    assert_eq!(body, json!({"body": {"input": "snapmirror show"}}));
}

/// Checks that an error that no server has to be asked about is a usage error, and says which
/// values are valid.
#[test]
fn usage_errors_exit_with_2() {
    for args in [
        &["volumes", "snapshots", "list"][..],
        &["volumes", "list", "--format=xml"],
        &["volumes", "list", "--filter=("],
        &["volumes", "describe", "a/b"],
        &["volumes", "update", "v"],
        &["volumes", "update", "v", "--throughput-mibps=-1"],
        &["filestore", "instances", "snapshots", "list"],
        &["plan", "--volume=name=a"],
        &["plan"],
        &["plan", "--volume=name=a,capacity=1TiB", "--levels=gold"],
        &["config", "set", "colour", "blue"],
        &["top", "--interval=0"],
        &["volumes", "list", "--server=127.0.0.1:8049"],
    ] {
        let server = accepting();
        let ran = on(&server, args);
        assert_eq!(ran.exit, 2, "{args:?}: {}", ran.err);
        assert!(server.requests().iter().all(|r| r.0 == "GET"), "{args:?}");
    }
}

/// Each end that speaks another protocol than the address says is named by its fix.
#[test]
fn the_wrong_scheme_is_named() {
    let server = accepting();
    let tls = server.address.replace("http://", "https://");
    let ran = weir(&["volumes", "list"], &[("WEIR_SERVER", &tls)], None);
    assert!(
        ran.exit == 1 && ran.err.contains("use http://"),
        "{}",
        ran.err
    );

    // A TLS server's answer to plain text: an alert.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let alert = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, &[0x15, 3, 3, 0, 2, 2, 50]).unwrap();
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
    });
    let ran = weir(&["volumes", "list"], &[("WEIR_SERVER", &address)], None);
    assert!(
        ran.exit == 1 && ran.err.contains("use https://"),
        "{}",
        ran.err
    );
    alert.join().unwrap();
}

/// A revert prints one line, as the other verbs do.
#[test]
fn a_revert_prints_one_line() {
    let server = accepting();
    let ran = on(&server, &["volumes", "revert", "v", "--snapshot=s"]);
    assert_eq!(
        (ran.out.as_str(), ran.err.as_str()),
        ("", "Reverted volume [v].\n")
    );
}
