//! Tests of two nodes in one process: engines in memory, catalogs in files, TLS over the loopback
//! between them.

use std::sync::mpsc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use weir_base::{SeededRng, SystemClock, Time};
use weir_control::levels::Levels;
use weir_control::{Actor, LocationName, Mutation, NewPool, NewVolume, Options, Protocol};
use weir_ontap::{Cluster as _, execute};
use weir_relations::model::{MirrorState, Relationship, Status, TransferKind};
use weir_store::{Aggregate, Env, FramePool, MemDevice};
use weir_transfer::wire::{Hello, Message as _};
use weir_vfs::{HandleKey, Rule, Vfs};
use weir_volume::{CreateHow, EngineContext, EngineOptions, SetAttr, Stability, Volume};

use parking_lot::Mutex;
use std::net::TcpListener;
use tokio::sync::watch;
use weir_base::Rng;
use weir_relations::manager::{Command, Entry, Step};
use weir_relations::plan;
use weir_replication_node::{EARLIER, Parts};
use weir_volume::Engine;

use super::*;
use weir_node::backend::{self, Node};

mod claims;
mod export_access;
mod files;
mod pairing;
mod proof;
mod qtrees;
mod relationships;
mod rules;
mod station;
mod versions;
use station::*;

#[test]
fn within_a_node() {
    let station = Station::new(1);
    station.put("a", "one", &noise(1, 300_000));
    station.does(
        "snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorAllSnapshots",
    );
    station.does("snapmirror initialize -destination-path SVM:b");
    let r = station.succeeds("SVM:b");
    assert_eq!(r.last.unwrap().kind, TransferKind::Initialize);
    let (a, b) = (station.engine_volume("a"), station.engine_volume("b"));
    assert_eq!(same(&a, &b, &["one"]), 1);
    // An update costs what has changed.
    station.put("a", "two", &noise(2, 100_000));
    station.does("snapshot create -vserver SVM -volume a -snapshot mine");
    station.does("snapmirror update -destination-path SVM:b");
    let last = station.succeeds("SVM:b").last.unwrap();
    assert!((100_000..250_000).contains(&last.bytes), "{last:?}");
    assert_eq!(
        same(&a, &b, &["one", "two"]),
        2,
        "the labelled and the newest"
    );
    let own = |v: &Volume| {
        v.snapshots()
            .iter()
            .filter(|s| s.name.starts_with(plan::OWN))
            .count()
    };
    assert_eq!(
        (own(&a), own(&b)),
        (1, 1),
        "each relationship keeps one of its own"
    );
    // Broken off and written to, it goes back on resync.
    station.does("snapmirror break -destination-path SVM:b");
    station.put("b", "stray", &noise(3, 50_000));
    let refused = station.says("snapmirror update -destination-path SVM:b");
    assert!(
        refused.contains("must be a data-protection volume"),
        "{refused}"
    );
    station.put("a", "three", &noise(4, 50_000));
    station.does("snapmirror resync -destination-path SVM:b");
    let newest = station.succeeds("SVM:b").newest.unwrap().name;
    let b = station.engine_volume("b");
    assert_eq!(content(&b, &newest, "stray"), None);
    assert_eq!(content(&b, &newest, "three").unwrap(), noise(4, 50_000));
    assert!(same(&a, &b, &["one", "two", "three"]) >= 2);
}

/// Once a client sees that a transfer has ended, the lists of snapshots are up to date: the
/// destination's has the new ones, and the source's lacks the deleted ones. So each side continues
/// only after its list is updated.
#[test]
fn the_lists_of_snapshots_hold_what_a_transfer_did_once_it_has_ended() {
    let station = Station::new(12);
    let source = station.engine_volume("a");
    for turn in 0..20 {
        let now = station.service.clock().current_time();
        let name = format!("{}-{turn}", plan::OWN);
        source.snapshot_take(&name, "", now).unwrap();
        let key = station.key("a");
        let adopted = station.service.adopt_snapshots(&key);
        station.service.runtime().block_on(adopted);
        let (listed, there) = station.own_snapshots("a");
        assert_eq!((listed.len(), listed), (turn + 1, there));
    }
    station
        .does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest");
    station.does("snapmirror initialize -destination-path SVM:b");
    for turn in 0..20 {
        station.succeeds("SVM:b");
        for volume in ["a", "b"] {
            let (listed, there) = station.own_snapshots(volume);
            assert_eq!(listed, there, "{volume}, turn {turn}");
            let newest = there.last().unwrap();
            let delete =
                format!("snapshot delete -vserver SVM -volume {volume} -snapshot {newest}");
            let refused = station.says(&delete);
            assert!(
                refused.contains("currently used as a reference"),
                "{turn} {volume} {newest} {refused}"
            );
        }
        station.put("a", "one", &noise(turn, 10_000));
        station.does("snapmirror update -destination-path SVM:b");
    }
}

/// A transfer that fails after its last snapshot has nothing to send at its retry. So the reference
/// snapshot of the source follows from the destination's snapshots, not from the data that was
/// sent.
#[test]
fn a_transfer_without_anything_to_send_keeps_the_reference_snapshot() {
    let station = Station::new(13);
    let source = station.engine_volume("a");
    let now = station.service.clock().current_time();
    for name in ["daily.1", "daily.2"] {
        source.snapshot_take(name, "daily", now).unwrap();
    }
    station.does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy XDPDefault");
    station.does("snapmirror initialize -destination-path SVM:b");
    let relationship = station.succeeds("SVM:b").uuid;
    for name in ["daily.3", "daily.4"] {
        source.snapshot_take(name, "daily", now).unwrap();
    }
    station.does("snapmirror update -destination-path SVM:b");
    let newest = station.succeeds("SVM:b").newest.unwrap();
    assert_eq!(newest.name, "daily.4");
    // As if the last transfer had failed before the source wrote down that it was sent.
    let before = source.snapshots()[0].identity;
    station.service.record(Step::Served {
        relationship: relationship.clone(),
        source: Path::local("SVM", "a"),
        destination: Path::local("SVM", "b"),
        newest: before,
    });
    station.does("snapmirror update -destination-path SVM:b");
    assert_eq!(station.succeeds("SVM:b").newest, Some(newest.clone()));
    let rows = station.service.relations();
    let known = rows.destination(&relationship).unwrap();
    assert_eq!(known.newest, Some(newest.id));
    let refused = station.says("snapshot delete -vserver SVM -volume a -snapshot daily.4");
    assert!(
        refused.contains("currently used as a reference"),
        "{refused}"
    );
}

#[test]
fn a_vault_and_a_cascade() {
    let station = Station::new(2);
    station.volume("c", true);
    station.put("a", "one", &noise(1, 100_000));
    station.does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy XDPDefault");
    station.does("snapmirror initialize -destination-path SVM:b");
    station.succeeds("SVM:b");
    station
        .does("snapmirror create -source-path SVM:b -destination-path SVM:c -policy MirrorLatest");
    station.does("snapmirror initialize -destination-path SVM:c");
    station.succeeds("SVM:c");
    let names = |of: &str| -> Vec<String> {
        let all = station.engine_volume(of).snapshots();
        all.into_iter()
            .map(|s| s.name)
            .filter(|n| !n.starts_with(plan::OWN))
            .collect()
    };
    for day in 1..=9 {
        station.put("a", "one", &noise(day, 40_000));
        let now = station.service.clock().current_time();
        let a = station.engine_volume("a");
        a.snapshot_take(&format!("daily.{day}"), "daily", now)
            .unwrap();
        a.snapshot_take(&format!("other.{day}"), "", now).unwrap();
        station.does("snapmirror update -destination-path SVM:b");
        station.succeeds("SVM:b");
    }
    let kept: Vec<String> = (3..=9).map(|day| format!("daily.{day}")).collect();
    assert_eq!(names("b"), kept, "a rule keeps its newest seven");
    station.does("snapmirror update -destination-path SVM:c");
    station.succeeds("SVM:c");
    let (b, c) = (station.engine_volume("b"), station.engine_volume("c"));
    assert!(same(&b, &c, &["one"]) >= 1);
    assert_eq!(content(&c, "daily.9", "one"), content(&b, "daily.9", "one"));
}

#[test]
fn between_two_nodes() {
    let (near, far) = (Station::new(3), Station::new(4));
    far.put("a", "one", &noise(1, 1_000_000));
    // No node knows another.
    let create =
        "snapmirror create -source-path far://SVM/a -destination-path SVM:b -policy MirrorLatest";
    assert!(
        near.says(create).contains("not peered"),
        "{}",
        near.says(create)
    );
    let address = far.service.listening().unwrap().to_string();
    near.peer("far", Some(&address), &"ab".repeat(32));
    let wrong = near.says(create);
    assert!(wrong.contains("another certificate"), "{wrong}");
    near.does("cluster peer delete -cluster far");
    near.peer("far", Some(&address), far.service.fingerprint());
    let one_sided = near.says(create);
    assert!(one_sided.contains("does not know this node"), "{one_sided}");
    assert_eq!(near.user.relationships(), []);
    near.does("cluster peer delete -cluster far");
    pair(&near, &far);
    near.does(create);
    near.does("snapmirror initialize -destination-path SVM:b");
    near.succeeds("SVM:b");
    let (a, b) = (far.engine_volume("a"), near.engine_volume("b"));
    assert_eq!(same(&a, &b, &["one"]), 1);
    // The source knows its destination by its own name for the peer.
    assert_eq!(far.user.destinations().len(), 1);
    let listed = far.says("snapmirror list-destinations");
    assert!(listed.contains("near://SVM/b"), "{listed}");
    // A restart of the source is nothing to a relationship.
    let one = a.snapshots().len();
    far.put("a", "two", &noise(2, 200_000));
    near.does("snapmirror update -destination-path SVM:b");
    near.succeeds("SVM:b");
    assert_eq!(same(&a, &b, &["one", "two"]), 1);
    assert_eq!(a.snapshots().len(), one);
    // A source that is gone is tried again, and says so.
    drop(far);
    near.does("snapmirror update -destination-path SVM:b");
    let mut tries = 0;
    while near.relationship("SVM:b").healthy && tries < 2000 {
        std::thread::sleep(Duration::from_millis(5));
        tries += 1;
    }
    let r = near.relationship("SVM:b");
    assert_eq!((r.status, r.healthy), (Status::Queued, false));
    let reason = r.unhealthy_reason.unwrap();
    assert!(
        reason.contains("cannot be reached") || reason.contains("closed"),
        "{reason}"
    );
    near.does("snapmirror abort -destination-path SVM:b");
    assert_eq!(near.relationship("SVM:b").status, Status::Idle);
}

#[test]
fn a_transfer_is_aborted_and_goes_on_from_its_checkpoint() {
    let station = Station::new(5);
    station.put("a", "one", &noise(1, 2 << 20));
    station.does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest -throttle 64");
    station.does("snapmirror initialize -destination-path SVM:b");
    let moving = || loop {
        let r = station.relationship("SVM:b");
        if let Some(transfer) = r.transfer.filter(|t| t.bytes > 200_000) {
            return transfer;
        }
        assert_ne!(r.status, Status::Idle, "{:?}", r.last);
        std::thread::sleep(Duration::from_millis(5));
    };
    let transfer = moving();
    assert_eq!(transfer.throttle, Some(64));
    assert_eq!(transfer.kind, TransferKind::Initialize);
    station.does("snapmirror modify -destination-path SVM:b -throttle unlimited");
    station.does("snapmirror abort -destination-path SVM:b");
    let r = station.rests("SVM:b");
    assert_eq!(r.last.unwrap().error.as_deref(), Some("Transfer aborted."));
    assert_eq!(r.state, MirrorState::Uninitialized);
    station.does("snapmirror initialize -destination-path SVM:b");
    station.succeeds("SVM:b");
    assert_eq!(
        same(
            &station.engine_volume("a"),
            &station.engine_volume("b"),
            &["one"]
        ),
        1
    );
}

#[test]
fn a_limit_of_the_source_is_told_at_the_destination() {
    let (near, far) = (Station::new(8), Station::new(9));
    pair(&near, &far);
    far.put("a", "one", &noise(1, 2 << 20));
    near.does(
        "snapmirror create -source-path far://SVM/a -destination-path SVM:b -policy MirrorLatest",
    );
    far.does("options -option-name replication.throttle.outgoing.max_kbs 64");
    near.does("snapmirror initialize -destination-path SVM:b");
    let until_told = |limit: &str| loop {
        let r = near.relationship("SVM:b");
        assert_ne!(r.status, Status::Idle, "{:?}", r.last);
        if r.transfer.and_then(|t| t.bound_by).as_deref() == Some(limit) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    until_told("outgoing");
    near.does("options -option-name replication.throttle.incoming.max_kbs 4");
    until_told("incoming");
    far.does("options -option-name replication.throttle.outgoing.max_kbs unlimited");
    near.does("options -option-name replication.throttle.incoming.max_kbs unlimited");
    let last = near.succeeds("SVM:b").last.unwrap();
    let metrics: String = near.service.pieces().collect();
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("weir_snapmirror_wire_bytes_total{"))
        .and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert_eq!(counted, Some(last.wire_bytes as f64), "{metrics}");
}

#[test]
fn a_transfer_outlives_the_server() {
    let mut station = Station::new(6);
    station.put("a", "one", &noise(1, 2 << 20));
    station.does("options -option-name replication.throttle.incoming.max_kbs 64");
    station
        .does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest");
    station.does("snapmirror initialize -destination-path SVM:b");
    while station.relationship("SVM:b").status != Status::Transferring {
        std::thread::sleep(Duration::from_millis(5));
    }
    let engine = Arc::clone(station.service.engine());
    let clock = Arc::clone(station.service.clock());
    station.end();
    let data = station.stop();
    let station = Station::with_engine(data, engine, 6, clock);
    assert_ne!(
        station.relationship("SVM:b").status,
        Status::Idle,
        "it goes on by itself"
    );
    station.does("options -option-name replication.throttle.incoming.max_kbs unlimited");
    station.succeeds("SVM:b");
    assert_eq!(
        same(
            &station.engine_volume("a"),
            &station.engine_volume("b"),
            &["one"]
        ),
        1
    );
}

/// Neither a request begins a transfer from or into it, nor does one that runs go on.
#[test]
fn a_volume_that_is_offline_is_not_transferred() {
    let (near, far) = (Station::new(26), Station::new(27));
    pair(&near, &far);
    near.put("a", "one", &noise(1, 2 << 20));
    far.volume("c", true);
    far.does(
        "snapmirror create -source-path near://SVM/a -destination-path SVM:c -policy MirrorLatest",
    );
    for (of, volume) in [(&near, "a"), (&far, "c")] {
        let why = format!("Volume \"SVM:{volume}\" is offline.");
        let switch = |to: &str| of.does(&format!("volume {to} -vserver SVM -volume {volume}"));
        // What has been sent would arrive all the same.
        near.does("options -option-name replication.throttle.outgoing.max_kbs 64");
        far.does("snapmirror initialize -destination-path SVM:c");
        while far.relationship("SVM:c").status != Status::Transferring {
            std::thread::yield_now();
        }
        switch("offline");
        let error = || far.rests("SVM:c").last.unwrap().error.unwrap();
        assert!(error().contains(&why), "{}", error());
        let says = far.says("snapmirror initialize -destination-path SVM:c");
        match volume {
            // Of its own volume a node knows it before it begins.
            "c" => assert!(says.contains(&why), "{says}"),
            _ => assert!(error().contains(&why), "{}", error()),
        }
        switch("online");
    }
    near.does("options -option-name replication.throttle.outgoing.max_kbs unlimited");
    far.does("snapmirror initialize -destination-path SVM:c");
    far.succeeds("SVM:c");
}

/// A crash keeps from the row that a snapshot has come, and so does what ends a transfer behind it.
#[test]
fn rows_say_what_readers_see() {
    let mut station = Station::new(23);
    station.put("a", "one", &noise(1, 100_000));
    station
        .does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest");
    station.does("snapmirror initialize -destination-path SVM:b");
    let first = station.succeeds("SVM:b");
    station.does("snapmirror update -destination-path SVM:b");
    let second = station.succeeds("SVM:b");
    assert_ne!(first.newest, second.newest);
    let lost = |station: &Station| {
        let step = Step::Snapshot(first.uuid.clone(), first.newest.clone().unwrap());
        let service = &station.service;
        let settled = service.control().record_steps(std::slice::from_ref(&step));
        service.runtime().block_on(settled).unwrap();
        assert_eq!(station.relationship("SVM:b").newest, first.newest);
    };
    lost(&station);
    let engine = Arc::clone(station.service.engine());
    let clock = Arc::clone(station.service.clock());
    station.end();
    let data = station.stop();
    let station = Station::with_engine(data, Arc::clone(&engine), 23, clock);
    assert_eq!(station.relationship("SVM:b").newest, second.newest);
    lost(&station);
    engine.set_limit(&station.engine_volume("b"), 1 << 20);
    station.does("snapmirror update -destination-path SVM:b");
    let failed = station.rests("SVM:b");
    assert!(failed.last.unwrap().error.unwrap().contains("is smaller"));
    assert_eq!(failed.newest, second.newest);
}

/// Neither node has both relationships: each learns from the other what its volume is a copy of.
#[test]
fn a_loop_over_two_nodes_is_refused() {
    let (near, far) = (Station::new(24), Station::new(25));
    pair(&near, &far);
    near.put("a", "one", &noise(1, 10_000));
    far.volume("c", true);
    far.does("snapmirror create -source-path near://SVM/a -destination-path SVM:c");
    far.does("snapmirror initialize -destination-path SVM:c");
    far.succeeds("SVM:c");
    let back = "snapmirror resync -source-path far://SVM/c -destination-path SVM:a";
    let says = near.says(back);
    assert!(says.contains("would make a loop"), "{says}");
    far.does("snapmirror break -destination-path SVM:c");
    near.does(back);
    near.succeeds("SVM:a");
    let says = far.says("snapmirror resync -destination-path SVM:c");
    assert!(says.contains("would make a loop"), "{says}");
    // What both have found free at the same time, the transfer compares once more.
    let mut manager = weir_relations::manager::Manager::default();
    let mut rows = far.service.relations();
    let entry = Arc::clone(rows.entry(&Path::local("SVM", "c")).unwrap());
    let mut entry = Entry::clone(&entry);
    entry.pending = Some(weir_relations::manager::PendingWork {
        uuid: "t".to_owned(),
        work: weir_relations::manager::Work::Transfer(TransferKind::Resync),
        source_snapshot: None,
        throttle: weir_relations::manager::OwnThrottle::Relationships,
        begun: 0,
        failures: 0,
        aborting: false,
        arrived: false,
    });
    rows.apply(&weir_relations::manager::Edit::Relationship(Arc::new(
        entry,
    )));
    let commands = manager.reconcile(&rows, far.service.time());
    let begun = commands.into_iter().find_map(|command| match command {
        Command::Start(job) => Some(*job),
        _ => None,
    });
    let (_abort, aborted) = watch::channel(false);
    let ended = far.service.run_job(&begun.unwrap(), aborted).unwrap_err();
    assert!(ended.words().contains("would make a loop"), "{ended:?}");
    assert!(far.engine_volume("c").mirror().is_none());
}

#[test]
fn a_copy_gives_back_what_it_was_made_from() {
    let station = Station::new(7);
    station.put("a", "one", &noise(1, 100_000));
    station.does(
        "snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorAllSnapshots",
    );
    station.does("snapmirror initialize -destination-path SVM:b");
    station.succeeds("SVM:b");
    station.put("a", "one", &noise(2, 100_000));
    station.does("snapmirror restore -source-path SVM:b -destination-path SVM:a");
    while station.find("SVM:a").is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let a = station.engine_volume("a");
    assert!(a.mirror().is_none(), "it can be written to again");
    a.snapshot_create("after", Time { secs: 2, nanos: 0 })
        .unwrap();
    assert_eq!(content(&a, "after", "one").unwrap(), noise(1, 100_000));
    station.put("a", "one", &noise(3, 100_000));
    station.does("snapmirror update -destination-path SVM:b");
    station.succeeds("SVM:b");
    assert!(same(&a, &station.engine_volume("b"), &["one"]) >= 1);
}

/// A start refuses a folder with state files of earlier versions beside the catalog.
#[test]
fn a_data_folder_of_an_earlier_form_is_refused_by_name() {
    let station = Station::new(12);
    let service = &station.service;
    for name in EARLIER {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), "{}").unwrap();
        let started = Replication::start(Parts {
            data: folder.path().to_owned(),
            engine: Arc::clone(service.engine()),
            control: Arc::clone(service.control()),
            runtime: service.runtime().clone(),
            clock: Arc::clone(service.clock()),
            rng: Arc::clone(service.rng()),
            name: String::new(),
            listener: None,
            counters: service.counters().clone(),
            moves: None,
        });
        let why = started.err().unwrap().to_string();
        assert!(
            why.contains(name) && why.contains("snapmirror resync"),
            "{why}"
        );
    }
}

type Log = Vec<(String, String, String)>;

fn logged(log: &Log, verb: &str, target: &str, outcome: &str) {
    let line = (verb.to_owned(), target.to_owned(), outcome.to_owned());
    assert!(log.contains(&line), "{line:?} in {log:?}");
}

/// Returns the audit entries up to the last mutation that was waited for: verb, target
/// and outcome.
fn audit(station: &Station) -> Log {
    let control = &station.service.control();
    let all = control.audit(None, 100, &station.user.actor);
    let all = station.service.runtime().block_on(all).unwrap();
    all.into_iter()
        .map(|e| (e.verb, e.target, e.outcome))
        .collect()
}

#[test]
fn what_a_relationship_needs_stays() {
    let station = Station::new(8);
    let before = "snapshot create -vserver SVM -volume a -snapshot before";
    station.does(before);
    station.put("a", "one", &noise(1, 100_000));
    station
        .does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest");
    station.does("snapmirror initialize -destination-path SVM:b");
    let newest = station.succeeds("SVM:b").newest.unwrap().name;
    let state = || {
        let names = |of: &str| -> Vec<String> {
            let all = station.engine_volume(of).snapshots();
            all.into_iter().map(|s| s.name).collect()
        };
        let r = station.relationship("SVM:b");
        (names("a"), names("b"), r.state, r.newest)
    };
    let unchanged = state();
    let says = |line: &str, words: &str| {
        let said = station.says(line);
        assert!(said.contains(words), "{line}: {said}");
        assert_eq!(state(), unchanged, "{line}");
    };
    says(
        "volume delete -vserver SVM -volume a",
        "is the source endpoint of one or more SnapMirror relationships",
    );
    says(
        "volume delete -vserver SVM -volume b",
        "is the destination endpoint of one or more SnapMirror relationships",
    );
    for volume in ["a", "b"] {
        says(
            &format!("snapshot delete -vserver SVM -volume {volume} -snapshot {newest}"),
            "currently used as a reference Snapshot copy by one or more SnapMirror relationships",
        );
    }
    says(
        &format!("snapshot rename -vserver SVM -volume a -snapshot {newest} -new-name x"),
        "Failed to rename snapshot",
    );
    says(
        "snapshot restore -vserver SVM -volume a -snapshot before",
        "because one or more newer Snapshot copies are currently used as a reference Snapshot copy",
    );
    says(
        &format!("snapshot restore -vserver SVM -volume b -snapshot {newest}"),
        "is not permitted on data-protection volume \"SVM:b\"",
    );
    // The same by way of the control plane.
    let name = LocationName::new("SVM", "local").volume("a");
    let snapshot = name.snapshot(&newest);
    let elsewhere = LocationName::new("SVM", "elsewhere").volume("a");
    let refusals = [
        (
            Mutation::DeleteVolume {
                name: name.clone(),
                force: true,
            },
            "VOLUME_REPLICATED",
        ),
        (Mutation::DeleteSnapshot(snapshot), "SNAPSHOT_REPLICATED"),
        (
            Mutation::RevertVolume {
                name: name.clone(),
                snapshot: "before".to_owned(),
            },
            "SNAPSHOT_REPLICATED",
        ),
        (
            Mutation::CreateVolume(elsewhere, NewVolume::default()),
            "VOLUME_NAME_REPLICATED",
        ),
    ];
    for (mutation, reason) in refusals {
        let asked = station
            .service
            .control()
            .submit(mutation, &station.user.actor);
        let refused = station.service.runtime().block_on(asked).unwrap_err();
        assert_eq!(refused.reason, reason, "{refused:?}");
        assert_eq!(state(), unchanged, "{reason}");
    }
    // What nothing needs goes, and in the end everything does.
    station.does("snapshot delete -vserver SVM -volume a -snapshot before");
    let log = audit(&station);
    assert!(log.iter().any(|l| l.2 == "refused: VOLUME_NAME_REPLICATED"));
    logged(&log, "snapmirror initialize", "SVM:b", "queued");
    station.does("snapmirror delete -destination-path SVM:b");
    let still = station.says("volume delete -vserver SVM -volume a");
    assert!(still.contains("snapmirror release"), "{still}");
    station.does("snapmirror release -destination-path SVM:b");
    station.does("volume delete -vserver SVM -volume b");
    station.does("volume delete -vserver SVM -volume a");
}

#[test]
fn changes_of_replication_stand_in_the_audit_log() {
    let station = Station::new(9);
    station.does("options -option-name replication.throttle.outgoing.max_kbs -option-value 4096");
    let fingerprint = "cd".repeat(32);
    station.does(&format!(
        "cluster peer create -cluster far -fingerprint {fingerprint}"
    ));
    station.does("cluster peer delete -cluster far");
    station.says("snapmirror policy delete -policy MirrorLatest");
    station.does("snapshot create -vserver SVM -volume a -snapshot last");
    let log = audit(&station);
    let why = "refused: Policy \"MirrorLatest\" is a system policy and cannot be changed.";
    logged(&log, "snapmirror policy delete", "MirrorLatest", why);
    logged(&log, "cluster peer delete", "far", "done");
    logged(&log, "cluster peer create", "far", "done");
    let option = "replication.throttle.outgoing.max_kbs=4096";
    logged(&log, "options", option, "done");
    // A user who may only read changes nothing.
    let looker = Actor {
        name: "looker".into(),
        role: weir_control::Role::Viewer,
        address: None,
    };
    let viewer = AsUser::new(Arc::clone(&station.server), looker);
    let refused = execute("snapmirror policy create -policy P", &viewer).unwrap_err();
    assert!(refused.contains("role viewer"), "{refused}");
}

#[test]
fn a_peer_of_another_version_is_refused() {
    let (near, far) = (Station::new(10), Station::new(11));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    near.peer("far", Some(&address), far.service.fingerprint());
    far.peer("near", None, near.service.fingerprint());
    let config = far.service.tls_server();
    let mut greeting = Vec::new();
    let hello = Hello {
        version: 9,
        oldest: 8,
        node: [9; 16],
    };
    hello.frame(&mut greeting).unwrap();
    let there = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(config);
            let mut tls = acceptor.accept(stream).await.unwrap();
            tls.write_all(&greeting).await.unwrap();
            tls.flush().await.unwrap();
            // Until it hangs up, in whatever way.
            let _ = tls.read_to_end(&mut Vec::new()).await;
        });
    });
    let said =
        near.says("snapmirror create -source-path far://SVM/a -destination-path SVM:b -policy X");
    assert!(said.contains("Policy lookup"), "{said}");
    let said = near.says("snapmirror create -source-path far://SVM/a -destination-path SVM:b");
    let words = "peer speaks versions 8 to 9 of the protocol, this node 4 to 4";
    assert!(said.contains(words), "{said}");
    there.join().unwrap();
    assert_eq!(near.user.relationships(), []);
}
