//! Two real nodes and a witness on loopback: paired, killed, stopped and switched, with writes that
//! are verified afterwards.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use common::api::Api;
use common::record;
use pairs::{Client, Node, World, Writer, does, free_port, refuses, until, word};
use serde_json::json;
use weir_testclient::Caller;
use weir_testclient::nfs3::{Call, FILE_SYNC, UNSTABLE};

#[test]
fn the_standby_serves_all_that_was_acknowledged_when_the_primary_is_killed() {
    let mut world = World::in_sync();
    let mut client = Client::connect(world.a.nfs).unwrap();
    let root = client.root();
    let file = client.file(&root, "unstable");
    let verifier = client.write(&file, 0, UNSTABLE).unwrap();
    let writer = Writer::start(world.a.nfs, "stable");
    writer.has_written(100);
    let refused = refuses(&["pair", "switch", "--data", world.b.data()]);
    assert!(refused.contains("does not serve"), "{refused}");
    world.a.process().kill();
    let (fh, blocks) = writer.ended();
    assert!(blocks >= 100);
    // The listener was there before; the same handles lead to the same files.
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.holds(&fh, blocks);
    assert_eq!(client.root(), root);
    assert_ne!(client.write(&file, 0, UNSTABLE).unwrap(), verifier);
    world.b.is("role", "primary, alone");
    client.write(&fh, blocks, FILE_SYNC).unwrap();
    let writer = Writer::start(world.b.nfs, "while it comes back");
    // The killed node may hold changes that were never acknowledged. It gets the difference from
    // the last common state.
    world.a.start();
    world.a.is("in sync", "yes");
    world.b.is("in sync", "yes");
    assert_eq!(
        world.b.times("the partner gets the difference from mark"),
        1
    );
    assert!(!world.a.ready.exists());
    // From now on it is a standby like another: it goes on where it is.
    world.a.process().kill();
    world.b.is("role", "primary, alone");
    world.a.start();
    world.a.is("in sync", "yes");
    world.b.is("in sync", "yes");
    assert_eq!(world.b.times("the partner gets"), 1);
    writer.has_written(writer.acknowledged.load(Ordering::SeqCst) + 50);
    // It can take over again, and then the other one comes back.
    world.b.process().kill();
    let (more, written) = writer.ended();
    world.a.serves();
    let mut client = Client::connect(world.a.nfs).unwrap();
    client.holds(&fh, blocks + 1);
    client.holds(&more, written);
    assert_eq!(client.root(), root);
    world.b.start();
    world.b.is("in sync", "yes");
    client.write(&more, written, FILE_SYNC).unwrap();
    world.hold_the_same(true);
}

#[test]
fn a_change_by_the_api_outlives_the_primary_that_acknowledged_it() {
    let mut world = World::in_sync();
    let api = Api(world.a.api);
    api.pool("pool");
    for n in 0..4 {
        api.make_volume("pool", &format!("vol-{n}"));
    }
    world.a.process().kill();
    world.b.serves();
    let api = Api(world.b.api);
    for n in 0..4 {
        let (status, volume) = api.get(&Api::volume(&format!("vol-{n}")));
        assert_eq!((status, &volume["state"]), (200, &json!("READY")), "{n}");
    }
    // Alone it waits for nobody.
    api.make_volume("pool", "alone");
    world.a.start();
    world.a.is("in sync", "yes");
    world.b.is("in sync", "yes");
    let mut users = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["users", "create", "anna", "--uid", "7", "--data"])
        .arg(&world.b.data)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = users.stdin.take().unwrap();
    input.write_all(b"secret words\n").unwrap();
    drop(input);
    assert!(users.wait().unwrap().success());
    world.b.process().kill();
    world.a.serves();
    let users = does(&["users", "list", "--data", world.a.data()]);
    assert!(users.contains("anna"), "{users}");
    assert_eq!(Api(world.a.api).get(&Api::volume("alone")).0, 200);
}

#[test]
fn a_lost_partner_is_left_and_goes_on_when_it_is_back() {
    let mut world = World::in_sync();
    let writer = Writer::limited(world.a.nfs, "file", 50);
    writer.has_written(50);
    world.b.process().kill();
    world.a.is("role", "primary, alone");
    writer.goes_on();
    world.b.start();
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    writer.goes_on();
    // A standby that stands still and goes on.
    world.b.process().suspend();
    world.a.is("role", "primary, alone");
    world.b.process().signal(libc::SIGCONT);
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    writer.goes_on();
    writer.limit.store(u64::MAX, Ordering::SeqCst);
    writer.has_written(writer.acknowledged.load(Ordering::SeqCst) + 20);
    world.a.process().kill();
    let (fh, blocks) = writer.ended();
    world.b.serves();
    Client::connect(world.b.nfs).unwrap().holds(&fh, blocks);
}

#[test]
fn a_primary_that_stands_still_finds_another_and_answers_nobody() {
    let mut world = World::in_sync();
    let writer = Writer::start(world.a.nfs, "file");
    writer.has_written(50);
    let mut reader = Client::connect(world.a.nfs).unwrap();
    let root = reader.root();
    world.a.process().suspend();
    world.b.serves();
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.file(&root, "made at the other");
    // The call is there before the process goes on; what it would say is no longer so.
    let call =
        Call::Lookup(root.clone(), b"made at the other".to_vec()).message(7, &Caller::default());
    reader.stream.write_all(&record(&call)).unwrap();
    world.a.process().signal(libc::SIGCONT);
    let mut said = [0; 4];
    assert!(reader.stream.read_exact(&mut said).is_err(), "it replies");
    world.a.is("role", "standby, behind");
    let (fh, blocks) = writer.ended();
    client.holds(&fh, blocks);
}

#[test]
fn a_switch_and_a_stop_hand_over_and_both_are_in_sync_again() {
    let mut world = World::in_sync();
    let mut client = Client::connect(world.a.nfs).unwrap();
    let root = client.root();
    let unstable = client.file(&root, "unstable");
    let verifier = client.write(&unstable, 0, UNSTABLE).unwrap();
    let writer = Writer::start(world.a.nfs, "file");
    writer.has_written(50);
    does(&["pair", "switch", "--data", world.a.data()]);
    let (fh, blocks) = writer.ended();
    world.b.serves();
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.holds(&fh, blocks);
    // Nothing is lost, and clients have nothing to send again.
    assert_eq!(client.write(&unstable, 1, UNSTABLE).unwrap(), verifier);
    client.holds(&unstable, 2);
    world.a.is("role", "standby");
    world.b.is("in sync", "yes");
    let writer = Writer::start(world.b.nfs, "another");
    writer.has_written(50);
    let _ = std::fs::remove_file(&world.a.ready);
    world.b.process().signal(libc::SIGTERM);
    world.a.serves();
    let (another, more) = writer.ended();
    let mut client = Client::connect(world.a.nfs).unwrap();
    client.holds(&fh, blocks);
    client.holds(&another, more);
    assert_eq!(client.write(&unstable, 2, UNSTABLE).unwrap(), verifier);
    assert!(world.b.process().child.wait().unwrap().success());
    world.b.start();
    world.b.is("role", "standby");
    world.a.is("in sync", "yes");
    // A takeover that nobody has prepared may have lost some.
    let _ = std::fs::remove_file(&world.b.ready);
    world.a.process().kill();
    world.b.serves();
    let mut client = Client::connect(world.b.nfs).unwrap();
    assert_ne!(client.write(&unstable, 3, UNSTABLE).unwrap(), verifier);
    world.a.start();
    world.a.is("in sync", "yes");
    let used = refuses(&["pair", "delete", "--data", world.b.data()]);
    assert!(used.contains("stop it first"), "{used}");
    drop(world.witness);
}

/// Without a witness the side that is not preferred takes over only by hand, and the hook is run
/// at each change of role.
#[test]
fn without_a_witness_a_user_has_the_last_word() {
    let top = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Node::new(top.path(), "a"), Node::new(top.path(), "b"));
    let hook = top.path().join("hook");
    let said = top.path().join("said");
    std::fs::write(&hook, format!("#!/bin/sh\necho $1 >> {}\n", said.display())).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let hook = hook.to_str().unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let create = [
        "pair",
        "create",
        "--data",
        a.data(),
        "--listen",
        &listen,
        "--preferred",
        "a",
    ];
    let made = does(&create);
    let (id, print_a) = (word(&made, "aggregate"), word(&made, "certificate"));
    let join = [
        "pair",
        "join",
        "--data",
        b.data(),
        "--aggregate",
        &id,
        "--partner",
        &listen,
        "--partner-certificate",
        &print_a,
        "--preferred",
        "a",
        "--address-hook",
        hook,
    ];
    let print_b = word(&does(&join), "certificate");
    does(&["pair", "accept", "--data", a.data(), &print_b]);
    a.start();
    a.serves();
    b.start();
    a.is("in sync", "yes");
    b.is("in sync", "yes");
    let writer = Writer::start(a.nfs, "file");
    writer.has_written(50);
    a.process().kill();
    let (fh, blocks) = writer.ended();
    until("it wants to serve", || {
        word(&b.shows()?, "role")
            .starts_with("taking over")
            .then_some(())
    });
    until("it is said why", || {
        b.shows()?.contains("takeover --force").then_some(())
    });
    assert!(!b.ready.exists());
    does(&["pair", "takeover", "--data", b.data(), "--force"]);
    b.serves();
    Client::connect(b.nfs).unwrap().holds(&fh, blocks);
    let words = std::fs::read_to_string(said).unwrap();
    assert_eq!(
        words.split_whitespace().collect::<Vec<_>>(),
        ["remove", "remove", "add"]
    );
    // The one that was preferred finds out that it is not any more, and that it lacks something.
    a.start();
    a.is("in sync", "yes");
    b.is("in sync", "yes");
    assert!(!a.ready.exists());
    // The preferred side does not serve alone again before the other has reported that it was not
    // made to serve meanwhile.
    a.end();
    b.end();
    b.start();
    until("it is said why", || {
        b.shows()?
            .contains("has not said whether a user has it serve")
            .then_some(())
    });
    assert!(!b.ready.exists());
    a.start();
    b.serves();
    a.is("in sync", "yes");
    Client::connect(b.nfs).unwrap().holds(&fh, blocks);
    // Or a user has said that it was not.
    a.end();
    b.end();
    b.start();
    until("it asks", || b.shows());
    does(&["pair", "takeover", "--data", b.data(), "--force"]);
    b.serves();
}

#[test]
fn a_standby_whose_disk_has_lost_what_it_reported_as_durable_is_refused() {
    let mut world = World::in_sync();
    let writer = Writer::limited(world.a.nfs, "file", 50);
    writer.has_written(50);
    world.b.process().kill();
    world.a.is("role", "primary, alone");
    // The disk as it is now comes back later.
    let kept = world.b.data.with_extension("kept");
    let copied = Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([&world.b.data, &kept])
        .status();
    assert!(copied.unwrap().success());
    world.b.start();
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    writer.goes_on();
    world.b.process().kill();
    world.a.is("role", "primary, alone");
    std::fs::remove_dir_all(&world.b.data).unwrap();
    std::fs::rename(&kept, &world.b.data).unwrap();
    world.b.start();
    for node in [&world.a, &world.b] {
        until("it is said why", || {
            let fault = word(&node.shows()?, "fault");
            fault.contains("had reported as durable").then_some(())
        });
    }
    world.b.is("in sync", "no");
    writer.goes_on();
    does(&["pair", "resync", "--data", world.b.data(), "--everything"]);
    world.b.is("in sync", "yes");
    world.a.process().kill();
    let (fh, blocks) = writer.ended();
    world.b.serves();
    Client::connect(world.b.nfs).unwrap().holds(&fh, blocks);
}

#[test]
fn what_cannot_be_a_pair_is_refused_by_name() {
    let top = tempfile::tempdir().unwrap();
    // Two aggregates are no pair.
    let (mut a, mut b) = (Node::new(top.path(), "a"), Node::new(top.path(), "b"));
    let listen = format!("127.0.0.1:{}", free_port());
    let preferred = ["--preferred", "a"];
    let mut create = vec!["pair", "create", "--data", a.data(), "--listen", &listen];
    create.extend(preferred);
    let print_a = word(&does(&create), "certificate");
    let other = "00000000-0000-4000-8000-000000000000";
    let mut join = vec!["pair", "join", "--data", b.data(), "--aggregate", other];
    join.extend(["--partner", &listen, "--partner-certificate", &print_a]);
    join.extend(preferred);
    let print_b = word(&does(&join), "certificate");
    does(&["pair", "accept", "--data", a.data(), &print_b]);
    a.start();
    a.serves();
    b.start();
    until("it is said why", || {
        let shown = b.shows()?;
        (shown.contains("different aggregates") && word(&shown, "serves clients") == "no")
            .then_some(())
    });
    assert!(!b.ready.exists());
    drop((a, b));
    let full = top.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("something"), "x").unwrap();
    let full = full.to_str().unwrap();
    let create = ["pair", "create", "--data", full, "--listen", "127.0.0.1:1"];
    let why = refuses(&create);
    assert!(why.contains("missing --witness HOST:PORT"), "{why}");
    let with = |more: &[&'static str]| -> Vec<&str> {
        create.iter().copied().chain(more.iter().copied()).collect()
    };
    let why = refuses(&with(&["--preferred", "a"]));
    assert!(why.contains("holds something else"), "{why}");
    let why = refuses(&with(&[
        "--witness",
        "w:1",
        "--witness-certificate",
        "short",
    ]));
    assert!(why.contains("64 hexadecimal digits"), "{why}");
    let none = top.path().join("none");
    let why = refuses(&["pair", "show", "--data", none.to_str().unwrap()]);
    assert!(why.contains("is not one of a pair"), "{why}");
    let half = top.path().join("half");
    let half = half.to_str().unwrap();
    does(&[
        "pair",
        "create",
        "--data",
        half,
        "--listen",
        "127.0.0.1:0",
        "--preferred",
        "a",
    ]);
    let why = refuses(&[
        "serve",
        "--data",
        half,
        "--nfs",
        "127.0.0.1:0",
        "--api",
        "127.0.0.1:0",
        "--no-rpcbind",
    ]);
    assert!(
        why.contains("the partner's certificate is not known yet"),
        "{why}"
    );
    does(&["pair", "delete", "--data", half]);
}
