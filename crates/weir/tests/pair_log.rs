//! Nodes whose logs are lost with their machines (`--log-ephemeral`).

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;
mod pairs;

use pairs::{Client, World, Writer, refuses, until};

#[test]
fn what_a_lost_log_held_is_on_the_partner_and_nowhere_else() {
    let mut world = World::with_logs();
    let writer = Writer::limited(world.a.nfs, "file", 200);
    writer.has_written(200);
    let (fh, blocks) = writer.ended();
    // The standby cannot take over yet.
    world.b.process().suspend();
    world.a.loses_log();
    world.a.start();
    world
        .a
        .is("role", "leaving its partner the time to take over");
    world.b.process().signal(libc::SIGCONT);
    world.b.serves();
    assert!(!world.a.ready.exists());
    Client::connect(world.b.nfs).unwrap().holds(&fh, blocks);
    // And back.
    let writer = Writer::limited(world.b.nfs, "more", 50);
    writer.has_written(50);
    world.a.is("in sync", "yes");
    world.b.is("in sync", "yes");
    writer.goes_on();
    let (more, others) = writer.ended();
    world.b.end();
    world.a.serves();
    let mut client = Client::connect(world.a.nfs).unwrap();
    client.holds(&fh, blocks);
    client.holds(&more, others);
    world.b.start();
    world.hold_the_same(true);
}

#[test]
fn what_is_reported_alone_is_in_a_checkpoint() {
    let mut world = World::with_logs();
    world.b.end();
    world.a.is("role", "primary, alone");
    let writer = Writer::limited(world.a.nfs, "file", 30);
    writer.has_written(30);
    // While it writes.
    writer
        .limit
        .store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
    writer.has_written(40);
    world.a.loses_log();
    let (fh, blocks) = writer.ended();
    world.a.start();
    world.a.serves();
    Client::connect(world.a.nfs).unwrap().holds(&fh, blocks);
    world.b.start();
    world.hold_the_same(true);
}

#[test]
fn a_standby_that_lost_its_log_is_brought_up_before_it_takes_over() {
    let mut world = World::with_logs();
    let writer = Writer::limited(world.a.nfs, "file", 50);
    writer.has_written(50);
    world.b.loses_log();
    world.a.is("role", "primary, alone");
    world.b.start();
    world.b.is("in sync", "yes");
    world.a.is("in sync", "yes");
    writer.goes_on();
    world.a.loses_log();
    let (fh, blocks) = writer.ended();
    world.b.serves();
    Client::connect(world.b.nfs).unwrap().holds(&fh, blocks);
}

#[test]
fn a_log_that_may_be_lost_needs_a_partner() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
    let (data, log) = (at("data"), at("log"));
    let serve = |data: &str, more: &[&str]| {
        let mut args = vec!["serve", "--data", data, "--nfs", "127.0.0.1:0"];
        args.extend(["--api", "off", "--no-rpcbind"]);
        args.extend(more);
        refuses(&args)
    };
    let why = serve(&data, &["--log-dir", &log, "--log-ephemeral"]);
    assert!(why.contains("`weir pair create` makes one"), "{why}");
    assert!(!top.path().join("data").join("weir.json").exists());
    let why = serve(&data, &["--log-ephemeral"]);
    assert!(why.contains("--log-dir <DIR>"), "{why}");
    // A log that should be there is not made anew.
    let mut world = World::with_logs();
    world.b.loses_log();
    let gone = world.b.log.take().unwrap();
    let why = serve(world.b.data(), &["--log-dir", gone.to_str().unwrap()]);
    assert!(why.contains("weir-log.json"), "{why}");
    assert!(!gone.exists());
    world.b.log = Some(gone);
    world.b.start();
    until("it is brought up", || world.b.shows());
    world.b.is("in sync", "yes");
}
