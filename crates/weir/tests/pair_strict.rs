//! Strict volumes of two real nodes: while the partner is lost their changes are held, reads go on,
//! and others change.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use std::io::{Read, Write};

use common::api::Api;
use common::record;
use pairs::{BLOCK, Client, Node, World, block, until};
use serde_json::json;
use weir_testclient::nfs3::{Call, CreateHow3, FILE_SYNC, Fh, Reply, Sattr, UNSTABLE};
use weir_testclient::{Caller, rpc};

const JUKEBOX: u32 = 10008;

/// Types a line of ONTAP's at a node; whether it was carried out, and what was printed.
fn types(node: &Node, line: &str) -> (bool, String) {
    let body = json!({"input": line});
    let (status, said) = Api(node.api)
        .send("POST", "/api/private/cli", &body)
        .unwrap();
    (status == 200, said.to_string())
}

fn carried_out(node: &Node, line: &str) -> String {
    let (done, said) = types(node, line);
    assert!(done, "{line}: {said}");
    said
}

fn refused(node: &Node, line: &str) -> String {
    let (done, said) = types(node, line);
    assert!(!done, "{line}: {said}");
    said
}

fn write(fh: &Fh, n: u64, stable: u32) -> Call {
    Call::Write {
        fh: fh.clone(),
        offset: n * BLOCK,
        stable,
        data: block(n),
    }
}

fn read(fh: &Fh, n: u64) -> Call {
    Call::Read {
        fh: fh.clone(),
        offset: n * BLOCK,
        count: BLOCK as u32,
    }
}

/// Sends a call and does not wait for its reply.
fn send(client: &mut Client, call: &Call) -> u32 {
    client.xid = client.xid.wrapping_add(1);
    let message = call.message(client.xid, &Caller::default());
    client.stream.write_all(&record(&message)).unwrap();
    client.xid
}

/// The next message on the connection.
fn next(client: &mut Client) -> Vec<u8> {
    let mut mark = [0; 4];
    client.stream.read_exact(&mut mark).unwrap();
    let mut body = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    client.stream.read_exact(&mut body).unwrap();
    body
}

/// A volume's root.
fn root_of(client: &mut Client, path: &str) -> Fh {
    match client.call(&Call::Mnt(path.as_bytes().to_vec())).unwrap() {
        Reply::Root(root) => root,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_strict_volume_changes_on_both_nodes_or_not_at_all() {
    let mut world = World::in_sync();
    let api = Api(world.a.api);
    api.pool("pool");
    api.make_volume("pool", "other");
    let create = "snapmirror create -source-path weir:vol1 -destination-path";
    for (wrong, why) in [
        ("b://weir/other -policy StrictSync", "has to be"),
        ("weir:other -policy StrictSync", "has to be"),
        ("b://weir/vol1 -policy MirrorLatest", "Sync or StrictSync"),
        ("b://weir/vol1", "Sync or StrictSync"),
        ("b://weir/vol1 -policy Sync -schedule daily", "no schedule"),
    ] {
        let said = refused(&world.a, &format!("{create} {wrong}"));
        assert!(said.contains(why), "{said}");
    }
    carried_out(
        &world.a,
        &format!("{create} b://weir/vol1 -policy StrictSync"),
    );
    let again = refused(&world.a, &format!("{create} b://weir/vol1 -policy Sync"));
    assert!(again.contains("already exists"), "{again}");
    let fields = "snapmirror show -fields policy,policy-type,status,lag-time,healthy";
    let shown = carried_out(&world.a, fields);
    for word in [
        "InSync",
        "StrictSync",
        "strict-sync-mirror",
        "0:0:0",
        "true",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    for verb in ["break", "update", "quiesce", "resync"] {
        refused(
            &world.a,
            &format!("snapmirror {verb} -destination-path b://weir/vol1"),
        );
    }

    let mut client = Client::connect(world.a.nfs).unwrap();
    let root = client.root();
    let strict = client.file(&root, "strict");
    client.file(&root, "removed");
    client.write(&strict, 0, FILE_SYNC).unwrap();
    client.write(&strict, 1, UNSTABLE).unwrap();
    let other_root = root_of(&mut client, "/other");
    let other = client.file(&other_root, "other");

    // Under way when the partner is lost: of the strict volume held, of the other one not.
    world.b.process().suspend();
    let mut held = Client::connect(world.a.nfs).unwrap();
    let under_way = send(&mut held, &write(&strict, 2, FILE_SYNC));
    let mut removing = Client::connect(world.a.nfs).unwrap();
    let removal = Call::Remove(root.clone(), b"removed".to_vec());
    let removed = send(&mut removing, &removal);
    client.write(&other, 0, FILE_SYNC).unwrap();
    world.a.is("role", "primary, alone");
    // What is read on the same connection comes first: the change has not been reported.
    let reading = send(&mut held, &read(&strict, 0));
    let reply = next(&mut held);
    assert!(rpc::results(&reply, under_way).is_err());
    let data = read(&strict, 0).decode(rpc::results(&reply, reading).unwrap());
    assert!(matches!(data, Ok(Reply::Data { data, .. }) if data == block(0)));
    // Changes are to be tried again later, whatever they promise; other volumes go on.
    let create_call = Call::Create(
        root.clone(),
        b"new".to_vec(),
        CreateHow3::Unchecked(Sattr::mode(0o644)),
    );
    let commit = Call::Commit {
        fh: strict.clone(),
        offset: 0,
        count: 0,
    };
    for call in [
        write(&strict, 3, FILE_SYNC),
        write(&strict, 3, UNSTABLE),
        create_call,
        commit,
    ] {
        let reply = client.call(&call).unwrap();
        assert!(
            matches!(reply, Reply::Error(JUKEBOX)),
            "{call:?}: {reply:?}"
        );
    }
    client.write(&other, 1, FILE_SYNC).unwrap();
    client.holds(&strict, 2);
    let shown = carried_out(&world.a, &format!("{fields},unhealthy-reason"));
    for word in ["OutOfSync", "held", "false"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(!shown.contains("0:0:0 "), "{shown}");
    let figure = |node: &Node, name: &str| -> f64 {
        let metrics = Api(node.api).text("/metrics");
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}"))
            .trim()
            .parse()
            .unwrap()
    };
    assert!(figure(&world.a, "weir_pair_behind_seconds ") > 0.0);
    assert!(figure(&world.a, "weir_pair_position ") > 0.0);
    assert!(figure(&world.a, "weir_pair_round_trip_seconds ") > 0.0);

    // The partner is back: what was held is reported, and changes are made.
    world.b.process().signal(libc::SIGCONT);
    world.a.is("in sync", "yes");
    let reply = next(&mut held);
    let written = write(&strict, 2, FILE_SYNC).decode(rpc::results(&reply, under_way).unwrap());
    assert!(matches!(written, Ok(Reply::Written { .. })), "{written:?}");
    let reply = next(&mut removing);
    let done = removal.decode(rpc::results(&reply, removed).unwrap());
    assert!(matches!(done, Ok(Reply::Done(_))), "{done:?}");
    client.write(&strict, 3, FILE_SYNC).unwrap();
    assert!(carried_out(&world.a, fields).contains("InSync"));
    assert_eq!(figure(&world.a, "weir_pair_behind_seconds "), 0.0);
    // What it costs, by the same figures everywhere.
    assert!(figure(&world.a, "weir_pair_cost_changes ") > 0.0);
    assert!(figure(&world.a, "weir_pair_sent_bytes_total ") > 0.0);
    assert!(figure(&world.a, "weir_pair_sent_per_written ") > 1.0);
    let shown = world.a.shows().unwrap();
    assert!(shown.contains("longer than for this node's log"), "{shown}");
    assert!(shown.contains("bytes sent for each byte"), "{shown}");

    // The side that takes over is alone and holds changes as well, until an administrator permits
    // them.
    world.a.process().kill();
    world.b.serves();
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.holds(&strict, 4);
    let reply = client.call(&write(&strict, 4, FILE_SYNC)).unwrap();
    assert!(matches!(reply, Reply::Error(JUKEBOX)), "{reply:?}");
    client.write(&other, 2, FILE_SYNC).unwrap();
    let shown = carried_out(&world.b, "snapmirror show -fields status");
    assert!(shown.contains("a://weir/vol1"), "{shown}");
    carried_out(
        &world.b,
        "snapmirror modify -destination-path a://weir/vol1 -policy Sync",
    );
    until("it is changed", || {
        match client.call(&write(&strict, 4, FILE_SYNC)).unwrap() {
            Reply::Written { .. } => Some(()),
            _ => None,
        }
    });
    carried_out(
        &world.b,
        "snapmirror delete -destination-path a://weir/vol1",
    );
    let shown = carried_out(&world.b, "snapmirror show");
    assert!(!shown.contains("vol1"), "{shown}");
}
