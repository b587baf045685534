//! Initial sync from the node that serves, while clients write: of an aggregate with data, and
//! after either node was killed meanwhile.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;
mod pairs;

use std::sync::atomic::Ordering;

use weir_base::Time;
use weir_testclient::nfs3::Fh;
use weir_volume::{CreateHow, EngineContext, SetAttr};

use pairs::{Client, Node, World, Writer, does, fill, free_port, refuses, until, word};

/// Makes a pair from an aggregate with a file of `blocks` + 1 blocks; returns it and the file. The
/// second node is not started.
fn pair_with_file(name: &str, blocks: u64) -> (World, Fh) {
    let mut filled = None;
    let world = World::with_setup(|a| {
        a.start();
        a.serves();
        let mut client = Client::connect(a.nfs).unwrap();
        let root = client.root();
        let fh = client.file(&root, name);
        fill(&mut client, &fh, blocks);
        a.stop();
        filled = Some(fh);
    });
    (world, filled.unwrap())
}

#[test]
fn an_aggregate_with_data_is_paired_while_clients_write() {
    let (mut world, fh) = pair_with_file("before", 500);
    let writer = Writer::start(world.a.nfs, "while");
    writer.has_written(20);
    world.b.start();
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    assert!(world.a.said("the partner gets everything"));
    writer.has_written(writer.acknowledged.load(Ordering::SeqCst) + 50);
    world.a.process().kill();
    let (while_fh, blocks) = writer.ended();
    world.b.serves();
    let mut client = Client::connect(world.b.nfs).unwrap();
    client.holds(&fh, 501);
    client.holds(&while_fh, blocks);
    world.a.start();
    world.a.is("in sync", "yes");
    // A standby whose copy is not trusted gets everything again.
    does(&["pair", "resync", "--data", world.a.data(), "--everything"]);
    until("everything is sent", || {
        world.b.said("the partner gets everything").then_some(())
    });
    let refused = refuses(&["pair", "resync", "--data", world.b.data()]);
    assert!(refused.contains("is not the standby"), "{refused}");
    world.hold_the_same(false);
}

#[test]
fn a_synchronisation_goes_on_after_either_was_killed_in_it() {
    const BLOCKS: u64 = 2000;
    let (mut world, fh) = pair_with_file("large", BLOCKS);
    let begun = |world: &World| {
        until("some of it is there", || {
            let shown = world.b.shows()?;
            word(&shown, "position")
                .contains("between states")
                .then_some(())
        });
        until("some is sent", || {
            let shown = world.a.shows()?;
            let line = shown
                .lines()
                .find(|line| line.starts_with("synchronising"))?;
            (line.contains(" sent of everything") && !line.contains(" 0 MiB")).then_some(())
        });
    };
    // 16 MiB take 8 s.
    world.a.limits("2048");
    world.b.start();
    begun(&world);
    // What is half of something is never served.
    let refused = refuses(&["pair", "takeover", "--data", world.b.data(), "--force"]);
    assert!(
        refused.contains("no state that clients ever saw"),
        "{refused}"
    );
    world.b.process().kill();
    world.b.start();
    begun(&world);
    world.a.process().kill();
    world.a.start();
    world.a.serves();
    begun(&world);
    world.a.limits("unlimited");
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    assert!(
        world.b.said("this copy is brought from mark"),
        "another round, from the first one's mark"
    );
    Client::connect(world.a.nfs).unwrap().holds(&fh, BLOCKS + 1);
    world.hold_the_same(true);
}

#[test]
fn a_half_copy_is_not_served_without_its_pair_either() {
    let (mut world, _) = pair_with_file("large", 300);
    world.a.limits("64");
    world.b.start();
    until("some of it is there", || {
        let shown = world.b.shows()?;
        word(&shown, "position")
            .contains("between states")
            .then_some(())
    });
    world.b.end();
    world.a.stop();
    for node in [&world.a, &world.b] {
        does(&["pair", "delete", "--data", node.data()]);
    }
    let serve = ["serve", "--data", world.b.data(), "--nfs", "127.0.0.1:0"];
    let refused = refuses(&[&serve[..], &["--api", "off", "--no-rpcbind"]].concat());
    assert!(
        refused.contains("no state that clients ever saw"),
        "{refused}"
    );
    world.a.start();
    world.a.serves();
    world.a.stop();
    // What is left of the old pair does not keep a new one from beginning.
    let (top, listen) = (
        tempfile::tempdir().unwrap(),
        format!("127.0.0.1:{}", free_port()),
    );
    let mut c = Node::new(top.path(), "c");
    let create = [
        "pair",
        "create",
        "--data",
        world.a.data(),
        "--listen",
        &listen,
    ];
    let made = does(&[&create[..], &["--preferred", "a"]].concat());
    let (id, print) = (word(&made, "aggregate"), word(&made, "certificate"));
    let join = [
        "pair",
        "join",
        "--data",
        c.data(),
        "--aggregate",
        &id,
        "--partner",
        &listen,
    ];
    let with = ["--partner-certificate", &print, "--preferred", "a"];
    let print = word(&does(&[&join[..], &with].concat()), "certificate");
    does(&["pair", "accept", "--data", world.a.data(), &print]);
    world.a.start();
    world.a.serves();
    world.a.limits("unlimited");
    c.start();
    c.is("in sync", "yes");
    world.a.is("in sync", "yes");
}

#[test]
fn silent_divergence_is_found_and_repaired() {
    let mut world = World::in_sync();
    let writer = Writer::start(world.a.nfs, "file");
    writer.has_written(50);
    let verify = ["pair", "verify", "--data", world.a.data()];
    assert!(does(&verify).contains("the same on both"), "under writes");
    let (fh, blocks) = writer.ended();
    // A file that only the standby has, and nobody knows of.
    world.b.end();
    let engine = world.b.engine();
    let (vol, set) = (engine.volumes()[0].clone(), SetAttr::default());
    let mut cx = EngineContext::new(Time::EPOCH);
    let made = vol.drive_blocking(&mut cx, |cx| {
        vol.create(cx, vol.root(), b"only here", CreateHow::Unchecked, &set)
    });
    made.unwrap();
    engine.shutdown().unwrap();
    drop(vol);
    drop(engine);
    world.b.start();
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    assert!(!world.a.said("the partner gets"), "it goes on where it was");
    let found = refuses(&verify);
    assert!(found.contains("the copies differ at mark"), "{found}");
    does(&[&verify[..], &["--repair"]].concat());
    until("everything is sent", || {
        world.a.said("the partner gets everything").then_some(())
    });
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    assert!(does(&verify).contains("the same on both"));
    Client::connect(world.a.nfs).unwrap().holds(&fh, blocks);
    world.hold_the_same(true);
}
