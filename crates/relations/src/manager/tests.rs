//! The rules and the manager over rows on a disk that may fail, with a runner that only remembers,
//! in virtual time.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::model::{ABORTED, MirrorState, Relationship, SnapshotIdentity, Status, THROTTLE_MOST};

mod node;
mod one_step;
mod own;
mod random;
use node::{Disk, Node};

/// 4 May 2023, 10:41:30, a Thursday.
const START: Now = Now {
    wall: 1_683_196_890,
    ms: 1_000,
};

impl Now {
    fn plus(self, seconds: i64) -> Now {
        Now {
            wall: self.wall + seconds,
            ms: self.ms + seconds as u64 * 1000,
        }
    }
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn numbered(n: u32) -> SnapshotIdentity {
    let text = format!("00000000-0000-0000-0000-000000000001/1/{n}/1.000000000");
    text.parse().unwrap()
}

fn snapshot(name: &str, id: u32) -> LabelledSnapshot {
    LabelledSnapshot {
        name: name.to_owned(),
        id: numbered(id),
        label: None,
    }
}

fn preconditions() -> Preconditions {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let next = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    Preconditions {
        unique: next << 80 | next,
        found: None,
        source: Ok(Side {
            size: Some(100),
            snapshots: vec![snapshot("a", 1)],
            uuid: [1; 16],
            ..Side::default()
        }),
        destination: Ok(Side {
            size: Some(100),
            data_protection: true,
            snapshots: vec![snapshot("a", 1)],
            uuid: [2; 16],
            above: Vec::new(),
        }),
        synchronous: false,
        running: false,
        fingerprint: "ab".repeat(32),
    }
}

fn create(from: &str, to: &str) -> Verb {
    Verb::Create {
        source: path(from),
        destination: path(to),
        policy: Some("MirrorAllSnapshots".to_owned()),
        schedule: None,
        throttle: None,
        tries: None,
        note: None,
        initialize: None,
    }
}

fn modify(to: &str) -> Verb {
    Verb::Modify {
        destination: path(to),
        policy: None,
        schedule: None,
        throttle: None,
        tries: None,
        note: None,
    }
}

fn with_schedule(to: &str, name: &str) -> Verb {
    match modify(to) {
        Verb::Modify { destination, .. } => Verb::Modify {
            destination,
            policy: None,
            schedule: Some(Some(name.to_owned())),
            throttle: None,
            tries: None,
            note: None,
        },
        verb => verb,
    }
}

fn with_throttle(to: &str, kbs: Option<u64>) -> Verb {
    Verb::Modify {
        destination: path(to),
        policy: None,
        schedule: None,
        throttle: Some(kbs),
        tries: None,
        note: None,
    }
}

fn update(to: &str) -> Verb {
    Verb::Update {
        destination: path(to),
        source_snapshot: None,
        throttle: None,
    }
}

fn initialize(to: &str) -> Verb {
    Verb::Initialize {
        destination: path(to),
        source_snapshot: None,
        throttle: None,
    }
}

fn started(manager: &mut Node) -> Vec<Job> {
    let commands = manager.commands().into_iter();
    commands
        .filter_map(|command| match command {
            Command::Start(job) => Some(*job),
            _ => None,
        })
        .collect()
}

fn done() -> Event {
    Event::Ended(Ok(Done {
        newest: Some(CopiedSnapshot {
            name: "a".to_owned(),
            taken: START.wall,
            id: numbered(1),
        }),
        above: vec![[1; 16]],
    }))
}

/// `s:b` is a copy of `s:a`.
fn mirrored(disk: &Disk) -> Node {
    let mut m = disk.open();
    m.change(create("s:a", "s:b"), &preconditions(), START)
        .unwrap();
    m.change(initialize("s:b"), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START.plus(10));
    m
}

fn only(m: &Node) -> Relationship {
    m.relationship(&path("s:b")).unwrap()
}

fn refused(m: &mut Node, verb: Verb, preconditions: &Preconditions, words: &str) {
    let before = m.rows.clone();
    let answer = m.change(verb.clone(), preconditions, START).unwrap_err();
    assert!(answer.text.contains(words), "{verb:?}: {}", answer.text);
    assert_eq!(m.rows, before, "{verb:?}");
    assert!(started(m).is_empty(), "{verb:?}");
}

#[test]
fn a_relationships_life() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    let now = START.plus(20);
    let shown = only(&m);
    assert_eq!(shown.state, MirrorState::Snapmirrored);
    assert_eq!((shown.status, shown.healthy), (Status::Idle, true));
    assert_eq!(shown.lag(now.wall), Some(20));
    let first = shown.last.unwrap();
    assert_eq!(
        (first.kind, first.duration_ms),
        (TransferKind::Initialize, 10_000)
    );
    assert_eq!(m.destinations().len(), 1);

    m.change(update("s:b"), &preconditions(), now).unwrap();
    let job = started(&mut m).remove(0);
    assert_eq!(only(&m).status, Status::Preparing);
    m.event(job.id, Event::Moving, now.plus(2));
    let progress = Progress {
        bytes: 1 << 20,
        wire_bytes: 1 << 19,
        moved: 1 << 18,
        ..Progress::default()
    };
    m.event(job.id, Event::Progress(progress), now.plus(5));
    let transfer = only(&m).transfer.unwrap();
    assert_eq!(
        (transfer.bytes, transfer.updated),
        (1 << 20, now.plus(5).wall)
    );
    // A quiesced one ends what runs.
    m.change(Verb::Quiesce(path("s:b")), &preconditions(), now)
        .unwrap();
    assert_eq!(only(&m).status, Status::Quiescing);
    m.event(job.id, Event::Finalizing, now.plus(12));
    m.event(job.id, done(), now.plus(13));
    let last = only(&m).last.unwrap();
    assert_eq!(
        (last.setup_ms, last.data_ms, last.finalize_ms),
        (2_000, 10_000, 1_000)
    );
    assert_eq!((last.bytes, last.wire_bytes), (1 << 20, 1 << 19));
    assert_eq!(last.rate, (1 << 18) / 10, "without what had come before");
    assert_ne!(last.uuid, first.uuid);
    assert_eq!(only(&m).status, Status::Quiesced);
    refused(&mut m, update("s:b"), &preconditions(), "is quiesced");
    m.change(Verb::Resume(path("s:b")), &preconditions(), now)
        .unwrap();

    m.change(Verb::Break(path("s:b")), &preconditions(), now)
        .unwrap();
    assert_eq!(only(&m).status, Status::Breaking);
    let job = started(&mut m).remove(0);
    assert_eq!(job.task, Task::Break);
    m.event(job.id, done(), now);
    assert_eq!(only(&m).state, MirrorState::BrokenOff);
    for verb in [update("s:b"), initialize("s:b"), Verb::Break(path("s:b"))] {
        refused(
            &mut m,
            verb,
            &preconditions(),
            "must be a data-protection volume",
        );
    }
    let resync = |source| Verb::Resync {
        destination: path("s:b"),
        source,
    };
    let mut strangers = preconditions();
    strangers.source.as_mut().unwrap().snapshots.clear();
    refused(
        &mut m,
        resync(None),
        &strangers,
        "No common Snapshot copy found between s:a and s:b",
    );
    m.change(resync(None), &preconditions(), now).unwrap();
    let job = started(&mut m).remove(0);
    assert_eq!(job.task, Task::Transfer(TransferKind::Resync));
    m.event(job.id, done(), now);
    assert_eq!(only(&m).state, MirrorState::Snapmirrored);

    m.change(Verb::Delete(path("s:b")), &preconditions(), now)
        .unwrap();
    assert_eq!(m.relationships(), []);
    assert_eq!(m.destinations().len(), 1, "known until it is released");
    m.commands();
    m.change(Verb::Release(path("s:b")), &preconditions(), now)
        .unwrap();
    let commands = m.commands();
    let [Command::Forget { relationship, .. }] = commands.as_slice() else {
        panic!("{commands:?}");
    };
    assert_eq!(m.destinations(), []);
    let again = disk.open().commands();
    assert!(
        commands.iter().all(|o| again.contains(o)),
        "until it is done"
    );
    m.apply_steps(&[Step::Forgotten(relationship.clone())], now);
    assert_eq!(m.rows.known().next(), None);
    refused(
        &mut m,
        Verb::Release(path("s:b")),
        &preconditions(),
        NO_ENTRIES,
    );
}

#[test]
fn turned_round() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    let back = || Verb::Resync {
        destination: path("s:a"),
        source: Some(path("s:b")),
    };
    refused(&mut m, back(), &preconditions(), "would make a loop");
    m.change(Verb::Break(path("s:b")), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    m.change(back(), &preconditions(), START).unwrap();
    let job = started(&mut m).remove(0);
    assert_eq!((job.source, job.destination), (path("s:b"), path("s:a")));
    assert_eq!(
        job.policy.name, "MirrorAllSnapshots",
        "as it was the other way"
    );
    m.event(job.id, done(), START);
    // Both ways at once would never come to rest.
    let again = || Verb::Resync {
        destination: path("s:b"),
        source: None,
    };
    refused(&mut m, again(), &preconditions(), "would make a loop");
}

#[test]
fn reversed_in_one_step() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    let reverse = || Verb::Reverse(path("s:b"));
    refused(&mut m, reverse(), &preconditions(), "is not broken off");
    let modified = with_schedule("s:b", "hourly");
    m.change(modified, &preconditions(), START).unwrap();
    m.change(with_throttle("s:b", Some(8192)), &preconditions(), START)
        .unwrap();
    m.change(Verb::Break(path("s:b")), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    let mut strangers = preconditions();
    strangers.source.as_mut().unwrap().snapshots.clear();
    refused(
        &mut m,
        reverse(),
        &strangers,
        "No common Snapshot copy found between s:b and s:a",
    );
    let writes = disk.0.lock().unwrap().writes;
    m.change(reverse(), &preconditions(), START).unwrap();
    assert_eq!(disk.0.lock().unwrap().writes, writes + 1);
    let [turned] = m.relationships().try_into().unwrap();
    assert_eq!(
        (turned.source, turned.destination),
        (path("s:b"), path("s:a"))
    );
    assert_eq!(
        (&*turned.policy, turned.schedule.as_deref(), turned.throttle),
        ("MirrorAllSnapshots", Some("hourly"), Some(8192))
    );
    let job = started(&mut m).remove(0);
    assert_eq!(job.task, Task::Transfer(TransferKind::Resync));
    assert_eq!((job.source, job.destination), (path("s:b"), path("s:a")));
}

#[test]
fn commands_by_their_subjects() {
    let resumed = Verb::Resume(path("SVM:b")).subject();
    assert_eq!(resumed, ("snapmirror resume", "SVM:b".to_owned()));
    let max = Some(4096);
    let incoming = true;
    let throttled = Verb::GlobalThrottle { incoming, max }.subject();
    let option = "replication.throttle.incoming.max_kbs=4096".to_owned();
    assert_eq!(throttled, ("options", option));
}

#[test]
fn what_is_refused_changes_nothing() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    let with = |change: fn(&mut Preconditions)| {
        let mut preconditions = preconditions();
        change(&mut preconditions);
        preconditions
    };
    let good = preconditions();
    let missing = with(|f| f.source = Err("entry doesn't exist".to_owned()));
    let homeless = with(|f| f.destination = Err("entry doesn't exist".to_owned()));
    let small = with(|f| f.destination.as_mut().unwrap().size = Some(99));
    let open = with(|f| f.destination.as_mut().unwrap().data_protection = false);
    let synchronous = with(|f| f.synchronous = true);
    refused(
        &mut m,
        create("s:x", "s:y"),
        &missing,
        "Failed to find source volume \"s:x\"",
    );
    refused(
        &mut m,
        create("s:x", "s:y"),
        &homeless,
        "Failed to find destination volume \"s:y\"",
    );
    refused(
        &mut m,
        create("s:x", "s:y"),
        &small,
        "smaller than the source",
    );
    refused(
        &mut m,
        create("s:x", "s:y"),
        &open,
        "must be a data-protection volume",
    );
    refused(&mut m, create("s:x", "s:b"), &good, "already exists");
    refused(&mut m, create("s:x", "s:x"), &good, "different volumes");
    refused(&mut m, create("s:b", "s:a"), &good, "would make a loop");
    refused(
        &mut m,
        create("s:x", "far://s/y"),
        &good,
        "on the destination cluster",
    );
    refused(&mut m, initialize("s:b"), &good, "already initialized");
    refused(&mut m, update("s:nothing"), &good, NO_ENTRIES);
    let named = Verb::Update {
        destination: path("s:b"),
        source_snapshot: Some("none".to_owned()),
        throttle: None,
    };
    refused(
        &mut m,
        named,
        &good,
        "\"none\" is not present on source volume \"s:a\"",
    );
    for kbs in [1, 3, THROTTLE_MOST + 1] {
        refused(
            &mut m,
            with_throttle("s:b", Some(kbs)),
            &good,
            "Invalid throttle",
        );
        let max = Some(kbs);
        let global = Verb::GlobalThrottle {
            incoming: true,
            max,
        };
        refused(&mut m, global, &good, "Invalid throttle");
    }
    let global = Verb::GlobalThrottle {
        incoming: false,
        max: Some(4096),
    };
    refused(&mut m, global, &synchronous, "SnapMirror Synchronous");
    refused(
        &mut m,
        with_schedule("s:b", "never"),
        &good,
        "Schedule \"never\" not found",
    );
    let hard = false;
    let abort = Verb::Abort {
        destination: path("s:b"),
        hard,
    };
    refused(&mut m, abort, &good, "No transfer to abort");
    refused(
        &mut m,
        Verb::PolicyDelete("XDPDefault".to_owned()),
        &good,
        "system policy",
    );
    let rule = |keep| Verb::PolicyRule {
        name: "mine".to_owned(),
        label: "daily".to_owned(),
        keep,
        preserve: Some(true),
        schedule: None,
        prefix: None,
    };
    refused(&mut m, rule(Some(1)), &good, NO_ENTRIES);
    let policy = Verb::PolicyCreate {
        name: "mine".to_owned(),
        kind: PolicyKind::Vault,
        comment: String::new(),
        compression: true,
        rules: Vec::new(),
    };
    m.change(policy.clone(), &good, START).unwrap();
    refused(&mut m, policy, &good, "duplicate entry");
    refused(&mut m, rule(Some(2000)), &good, "keep count");
    refused(&mut m, rule(None), &good, NO_ENTRIES);
    m.change(rule(Some(3)), &good, START).unwrap();
    let mirror = Verb::PolicyCreate {
        name: "mirror".to_owned(),
        kind: PolicyKind::AsyncMirror,
        comment: String::new(),
        compression: false,
        rules: m.rows.policy("mine").unwrap().rules,
    };
    refused(&mut m, mirror, &good, "cannot preserve");
    let scheduled = |name: &str, prefix: Option<&str>| Verb::PolicyRule {
        name: "mine".to_owned(),
        label: "weekly".to_owned(),
        keep: Some(1),
        preserve: None,
        schedule: Some(Some(name.to_owned()).filter(|name| !name.is_empty())),
        prefix: prefix.map(|prefix| Some(prefix.to_owned())),
    };
    refused(
        &mut m,
        scheduled("never", None),
        &good,
        "Schedule \"never\" not found",
    );
    refused(&mut m, scheduled("", Some("p")), &good, "has no schedule");
    refused(
        &mut m,
        scheduled("5min", Some("a/b")),
        &good,
        "not a valid name",
    );
    // While one thing is done, nothing else is.
    m.change(update("s:b"), &good, START).unwrap();
    started(&mut m);
    for verb in [
        update("s:b"),
        Verb::Break(path("s:b")),
        Verb::Delete(path("s:b")),
    ] {
        refused(&mut m, verb, &good, "Another transfer is in progress");
    }
}

#[test]
fn peers_are_known_by_name_and_by_certificate() {
    let disk = Disk::default();
    let mut m = disk.open();
    let peer = |name: &str, address: &str, print: &str| Verb::PeerCreate {
        name: name.to_owned(),
        address: Some(address.to_owned()),
        fingerprint: print.to_owned(),
    };
    let print = "SHA256:".to_owned() + &["CD"; 32].join(":");
    m.change(
        peer("far", "far.example:11105", &print),
        &preconditions(),
        START,
    )
    .unwrap();
    let held = m.rows.peer("far").unwrap();
    assert_eq!(held.fingerprint, "cd".repeat(32), "as it is compared");
    let own = "ab".repeat(32);
    let other = "ef".repeat(32);
    for (verb, words) in [
        (peer("far", "h:1", &other), "Peer \"far\" already exists"),
        (
            peer("x", "h:1", &print),
            "\"far\" already has that fingerprint",
        ),
        (peer("x", "h:1", &own), "of this node itself"),
        (peer("x", "h:1", "abc"), "64 hexadecimal digits"),
        (peer("x", "h:0", &other), "not HOST:PORT"),
        (peer("a b", "h:1", &other), "not a valid name"),
        (Verb::PeerDelete("x".to_owned()), NO_ENTRIES),
    ] {
        refused(&mut m, verb, &preconditions(), words);
    }
    m.change(create("far://s/a", "s:b"), &preconditions(), START)
        .unwrap();
    let gone = || Verb::PeerDelete("far".to_owned());
    refused(
        &mut m,
        gone(),
        &preconditions(),
        "is the source of SnapMirror",
    );
    m.change(Verb::Delete(path("s:b")), &preconditions(), START)
        .unwrap();
    m.change(gone(), &preconditions(), START).unwrap();
    assert_eq!(m.rows.peers().count(), 0);
}

#[test]
fn a_copy_restores_what_it_was_made_from() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    let restore = |from: &str, to: &str| Verb::Restore {
        source: path(from),
        destination: path(to),
        source_snapshot: None,
        throttle: Some(64),
        files: Vec::new(),
    };
    let mut strangers = preconditions();
    strangers.destination.as_mut().unwrap().snapshots.clear();
    strangers.destination.as_mut().unwrap().data_protection = false;
    refused(
        &mut m,
        restore("s:b", "s:x"),
        &strangers,
        "No common Snapshot copy found",
    );
    m.change(restore("s:b", "s:a"), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    assert_eq!(job.task, Task::Transfer(TransferKind::Restore));
    assert_eq!((job.destination, job.throttle), (path("s:a"), Some(64)));
    assert_eq!(m.relationships().len(), 2);
    let lost = |m: &Node, id: u64| {
        let uuid = m.rows.entry(&path("s:a")).unwrap().uuid.clone();
        let ended = Step::Ended {
            relationship: uuid,
            transfer: id.to_string(),
            outcome: Ok(Done::default()),
            last: None,
        };
        ended.is_lazily_durable(&m.rows)
    };
    assert!(
        !lost(&m, job.id),
        "begun again, it would take back what users wrote"
    );
    m.event(job.id, done(), START);
    // Nobody can write to it before it is stored that it has arrived: a node that dies goes on
    // behind that.
    let mut m = disk.open();
    let job = started(&mut m).remove(0);
    assert_eq!((job.task, job.destination), (Task::Break, path("s:a")));
    let failed = Event::Ended(Err(Failure::Final("the disk".to_owned())));
    m.event(job.id, failed, START);
    assert_eq!(m.relationships().len(), 2);
    // It can be tried again, and broken off as it is.
    m.change(restore("s:b", "s:a"), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, Event::Ended(Err(Failure::Aborted)), START);
    m.change(Verb::Break(path("s:a")), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    assert_eq!(m.relationships().len(), 1, "it lasted for the transfer");
}

#[test]
fn throttles_hold_from_the_next_transfer_on() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    m.change(with_throttle("s:b", Some(8192)), &preconditions(), START)
        .unwrap();
    m.change(update("s:b"), &preconditions(), START).unwrap();
    let job = started(&mut m).remove(0);
    assert_eq!(job.throttle, Some(8192));
    m.change(with_throttle("s:b", Some(4096)), &preconditions(), START)
        .unwrap();
    assert_eq!(m.commands(), [], "nothing happens to what is under way");
    let shown = only(&m);
    assert_eq!(
        (shown.throttle, shown.transfer.unwrap().throttle),
        (Some(4096), Some(8192))
    );
    let abort = Verb::Abort {
        destination: path("s:b"),
        hard: false,
    };
    m.change(abort, &preconditions(), START).unwrap();
    assert_eq!(m.commands(), [Command::Abort { id: job.id }]);
    assert_eq!(only(&m).status, Status::Aborting);
    m.event(job.id, Event::Ended(Err(Failure::Aborted)), START);
    let shown = only(&m);
    assert_eq!(shown.last.unwrap().error.as_deref(), Some(ABORTED));
    assert_eq!((shown.status, shown.healthy), (Status::Idle, false));
    m.change(update("s:b"), &preconditions(), START).unwrap();
    let again = started(&mut m).remove(0);
    assert_eq!(
        (again.throttle, again.anew),
        (Some(4096), false),
        "from its checkpoint"
    );
    assert!(!only(&m).healthy, "until one has ended well");
    m.event(again.id, done(), START);
    // One that waits can be queried after it was aborted.
    m.change(update("s:b"), &preconditions(), START).unwrap();
    let failing = started(&mut m).remove(0);
    let failure = Failure::Retry("connection refused".to_owned());
    m.event(failing.id, Event::Ended(Err(failure)), START);
    let waiting = only(&m).transfer.unwrap();
    let abort = Verb::Abort {
        destination: path("s:b"),
        hard: false,
    };
    m.change(abort, &preconditions(), START.plus(1)).unwrap();
    let last = only(&m).last.unwrap();
    assert_eq!(
        (last.uuid, last.error.as_deref()),
        (waiting.uuid, Some(ABORTED))
    );
    assert_eq!((last.end, only(&m).transfer), (START.plus(1).wall, None));
    // The global ones are commands of their own.
    let global = Verb::GlobalThrottle {
        incoming: true,
        max: Some(4096),
    };
    m.change(global, &preconditions(), START).unwrap();
    let (incoming, outgoing) = (Some(4096), None);
    assert_eq!(m.commands(), [Command::Throttle { incoming, outgoing }]);
    assert_eq!(m.rows.global_throttle(true), Global::Max(4096));
    assert_eq!(m.rows.global_throttle(false), Global::Unset);
    assert_eq!(
        disk.open().commands().first(),
        Some(&Command::Throttle { incoming, outgoing })
    );
}

#[test]
fn failures_are_tried_again_less_and_less_often() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    m.change(update("s:b"), &preconditions(), START).unwrap();
    let mut now = START;
    let mut tries = 0;
    let mut waits = Vec::new();
    while let Some(job) = started(&mut m).pop() {
        tries += 1;
        let failure = Failure::Retry("connection refused".to_owned());
        m.event(job.id, Event::Ended(Err(failure)), now);
        let since = now.wall;
        for _ in 0..1000 {
            now = now.plus(1);
            m.tick(now);
            if m.commands.iter().any(|o| matches!(o, Command::Start(_))) {
                waits.push(now.wall - since);
                break;
            }
        }
    }
    assert_eq!(tries, TRIES);
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300]);
    let shown = only(&m);
    assert_eq!((shown.status, shown.healthy), (Status::Idle, false));
    let reason = "Transfer failed. (connection refused)";
    assert_eq!(shown.unhealthy_reason.as_deref(), Some(reason));
    // What cannot be mended is not tried again.
    m.change(update("s:b"), &preconditions(), now).unwrap();
    let job = started(&mut m).remove(0);
    let failure = Failure::Final("No common Snapshot copy found".to_owned());
    m.event(job.id, Event::Ended(Err(failure)), now);
    m.tick(now.plus(4000));
    assert!(started(&mut m).is_empty());
}

#[test]
fn schedules_over_restarts_and_changes_of_the_clock() {
    let disk = Disk::default();
    let mut m = mirrored(&disk);
    m.change(with_schedule("s:b", "5min"), &preconditions(), START)
        .unwrap();
    let mut now = START;
    let mut at = Vec::new();
    for _ in 0..900 {
        now = now.plus(1);
        m.tick(now);
        for job in started(&mut m) {
            at.push(now.wall);
            m.event(job.id, done(), now);
        }
    }
    assert_eq!(
        at,
        [1_683_197_100, 1_683_197_400, 1_683_197_700],
        "10:45, 10:50, 10:55"
    );
    // A day without power: once.
    let mut m = disk.open();
    now = now.plus(86_400);
    let mut runs = 0;
    for _ in 0..60 {
        m.tick(now);
        for job in started(&mut m) {
            runs += 1;
            m.event(job.id, done(), now);
        }
        now = now.plus(1);
    }
    assert_eq!(runs, 1);
    // Set back by half a day: no run twice, no silence.
    now.wall -= 43_200;
    let mut runs = 0;
    for _ in 0..900 {
        now = now.plus(1);
        m.tick(now);
        for job in started(&mut m) {
            runs += 1;
            m.event(job.id, done(), now);
        }
    }
    assert_eq!(runs, 3);
    // Quiesced, it misses runs and says so; resumed, it waits for its next slot.
    m.change(Verb::Quiesce(path("s:b")), &preconditions(), now)
        .unwrap();
    let at_rest = only(&m);
    assert!(!at_rest.healthy, "as long as nothing is copied");
    assert!(at_rest.unhealthy_reason.unwrap().contains("quiesced"));
    now = now.plus(600);
    m.tick(now);
    assert!(started(&mut m).is_empty());
    m.change(Verb::Resume(path("s:b")), &preconditions(), now)
        .unwrap();
    m.tick(now.plus(1));
    assert!(started(&mut m).is_empty() && only(&m).healthy);
    m.tick(now.plus(300));
    assert_eq!(started(&mut m).len(), 1);
}

#[test]
fn a_crash_at_any_write_loses_nothing_that_was_answered() {
    let script = || {
        vec![
            create("s:a", "s:b"),
            with_throttle("s:b", Some(8192)),
            initialize("s:b"),
            with_schedule("s:b", "hourly"),
            update("s:b"),
            Verb::Quiesce(path("s:b")),
            Verb::Resume(path("s:b")),
            Verb::Break(path("s:b")),
            Verb::Resync {
                destination: path("s:b"),
                source: None,
            },
            create("s:b", "s:c"),
            Verb::GlobalThrottle {
                incoming: false,
                max: Some(4096),
            },
            Verb::Delete(path("s:b")),
        ]
    };
    let run = |disk: &Disk| {
        let mut m = disk.open();
        let mut acknowledged = m.rows.clone();
        for (at, verb) in script().into_iter().enumerate() {
            let now = START.plus(at as i64 * 10);
            match m.change(verb, &preconditions(), now) {
                Ok(()) => acknowledged = m.rows.clone(),
                Err(_) => return (acknowledged, m.rows.clone()),
            }
            for job in started(&mut m) {
                m.event(job.id, done(), now.plus(5));
                match m.unsaved {
                    true => return (acknowledged, m.rows.clone()),
                    false => acknowledged = m.rows.clone(),
                }
            }
        }
        (acknowledged, m.rows.clone())
    };
    let whole = Disk::default();
    run(&whole);
    let writes = whole.0.lock().unwrap().writes;
    assert!(writes > 12);
    for stop in 1..=writes {
        for reaches in [false, true] {
            let disk = Disk::default();
            (disk.0.lock().unwrap().stop, disk.0.lock().unwrap().reaches) = (Some(stop), reaches);
            let (acknowledged, _) = run(&disk);
            disk.0.lock().unwrap().stop = None;
            let mut m = disk.open();
            if !reaches {
                assert_eq!(m.rows, acknowledged, "write {stop}");
            }
            // What was begun is begun again, once, and everything comes to rest.
            let mut now = START.plus(200);
            for _ in 0..5 {
                m.tick(now);
                for job in started(&mut m) {
                    m.event(job.id, done(), now);
                }
                now = now.plus(1);
            }
            for shown in m.relationships() {
                let rests = matches!(shown.status, Status::Idle | Status::Quiesced);
                assert!(rests && shown.transfer.is_none(), "write {stop}: {shown:?}");
            }
        }
    }
}
