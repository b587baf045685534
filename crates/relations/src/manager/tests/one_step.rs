//! Verbs of several steps are one change each, and pages are parts of the one list.

use super::*;

#[test]
fn stopped_in_one_step_from_any_state() {
    let disk = Disk::default();
    let mut m = disk.open();
    let stop = || Verb::Stop(path("s:b"));
    m.change(create("s:a", "s:b"), &preconditions(), START)
        .unwrap();
    m.change(initialize("s:b"), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.change(stop(), &preconditions(), START).unwrap();
    assert_eq!(m.commands(), [Command::Abort { id: job.id }]);
    assert_eq!(only(&m).status, Status::Aborting);
    m.event(job.id, Event::Ended(Err(Failure::Aborted)), START);
    // There is nothing to show yet.
    let shown = only(&m);
    let rests = (MirrorState::Uninitialized, Status::Quiesced);
    assert_eq!((shown.state, shown.status), rests);

    m.change(Verb::Resume(path("s:b")), &preconditions(), START)
        .unwrap();
    m.change(initialize("s:b"), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    let often = with_schedule("s:b", "5min");
    m.change(often, &preconditions(), START).unwrap();
    m.change(update("s:b"), &preconditions(), START).unwrap();
    started(&mut m);
    let writes = disk.0.lock().unwrap().writes;
    m.change(stop(), &preconditions(), START).unwrap();
    assert_eq!(disk.0.lock().unwrap().writes, writes + 1);
    // A node that dies here goes on with it; no slot of the schedule comes between.
    let mut m = disk.open();
    m.tick(START.plus(3600));
    let job = started(&mut m).remove(0);
    assert_eq!(job.task, Task::Break);
    m.event(job.id, done(), START);
    assert_eq!(only(&m).state, MirrorState::BrokenOff);
    m.change(stop(), &preconditions(), START).unwrap();
    assert_eq!(started(&mut m), []);
    assert_eq!(only(&m).state, MirrorState::BrokenOff);
}

/// Going back would delete what a further copy needs for its next transfer: that is refused until
/// the copy is released.
#[test]
fn going_back_spares_what_further_copies_need() {
    let disk = Disk::default();
    let mut m = disk.open();
    m.change(create("s:a", "s:b"), &preconditions(), START)
        .unwrap();
    m.change(initialize("s:b"), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    m.change(Verb::Break(path("s:b")), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    let served = |to: &str| Step::Served {
        relationship: to.to_owned(),
        source: path("s:b"),
        destination: path(to),
        newest: numbered(2),
    };
    m.apply_steps(&[served("s:c")], START);
    let mut ahead = preconditions();
    ahead.destination = Ok(Side {
        size: Some(100),
        snapshots: vec![snapshot("a", 1), snapshot("own", 2)],
        ..Side::default()
    });
    let resync = || Verb::Resync {
        destination: path("s:b"),
        source: None,
    };
    let restore = || Verb::Restore {
        source: path("s:z"),
        destination: path("s:b"),
        source_snapshot: None,
        throttle: None,
        files: Vec::new(),
    };
    let words = "Failed to promote Snapshot copy \"a\" because one or more newer Snapshot copies are currently used as a \
                 reference Snapshot copy for data protection operations: own.";
    refused(&mut m, resync(), &ahead, words);
    m.change(Verb::Delete(path("s:b")), &preconditions(), START)
        .unwrap();
    refused(&mut m, restore(), &ahead, words);
    // The copy that it is restored from is the one that may be left behind.
    let mut pair = disk.open();
    pair.apply_steps(&[served("s:z"), Step::Forgotten("s:c".to_owned())], START);
    pair.change(Verb::Release(path("s:c")), &preconditions(), START)
        .unwrap();
    pair.change(restore(), &ahead, START).unwrap();
}

/// One change ends it, whatever it is doing and wherever the node dies meanwhile; a break that
/// fails leaves it as it is.
#[test]
fn ended_in_one_step_from_any_state() {
    let disk = Disk::default();
    let mut m = disk.open();
    let end = || Verb::End(path("s:b"));
    m.change(create("s:a", "s:b"), &preconditions(), START)
        .unwrap();
    m.change(end(), &preconditions(), START).unwrap();
    assert_eq!(m.relationships(), [], "it had nothing to show");
    m.change(create("s:a", "s:b"), &preconditions(), START)
        .unwrap();
    m.change(initialize("s:b"), &preconditions(), START)
        .unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    m.change(update("s:b"), &preconditions(), START).unwrap();
    started(&mut m);
    let writes = disk.0.lock().unwrap().writes;
    m.change(end(), &preconditions(), START).unwrap();
    assert_eq!(disk.0.lock().unwrap().writes, writes + 1);
    let mut m = disk.open();
    m.tick(START.plus(3600));
    let job = started(&mut m).remove(0);
    assert_eq!(job.task, Task::Break);
    let failed = Event::Ended(Err(Failure::Final("the disk".to_owned())));
    m.event(job.id, failed, START);
    assert_eq!(only(&m).state, MirrorState::Snapmirrored, "it stays");
    m.change(end(), &preconditions(), START).unwrap();
    let job = started(&mut m).remove(0);
    m.event(job.id, done(), START);
    assert_eq!((m.relationships(), m.destinations()), (vec![], vec![]));
    let forget = |order: &Command| matches!(order, Command::Forget { .. });
    assert!(m.commands().iter().any(forget), "what its source kept goes");
}

/// A relationship and its first transfer, as it is to be, are one change; or nothing is.
#[test]
fn made_and_begun_in_one_step() {
    let disk = Disk::default();
    let mut m = disk.open();
    let with = |snapshot: &str| match create("s:a", "s:b") {
        Verb::Create {
            source,
            destination,
            policy,
            schedule,
            throttle,
            tries,
            note,
            ..
        } => Verb::Create {
            source,
            destination,
            policy,
            schedule,
            throttle,
            tries,
            note,
            initialize: Some(First {
                source_snapshot: Some(snapshot.to_owned()),
                throttle: Some(Some(8192)),
                once_paired: false,
            }),
        },
        verb => verb,
    };
    let words = "Snapshot copy \"gone\" is not present on source volume \"s:a\".";
    refused(&mut m, with("gone"), &preconditions(), words);
    m.change(with("a"), &preconditions(), START).unwrap();
    assert_eq!(disk.0.lock().unwrap().writes, 1);
    let job = started(&mut m).remove(0);
    assert_eq!(job.task, Task::Transfer(TransferKind::Initialize));
    assert_eq!(
        (job.source_snapshot.as_deref(), job.throttle),
        (Some("a"), Some(8192))
    );
}
