//! Restores of single files.

use weir_volume::{SetHow, SetTime};

use super::*;

/// Returns the present contents of a file in a volume's root; `None` if it is missing.
pub fn current_contents(volume: &Arc<Volume>, name: &str) -> Option<Vec<u8>> {
    let stem = format!("look-{}", volume.snapshots().len());
    volume
        .snapshot_create(&stem, Time { secs: 3, nanos: 0 })
        .unwrap();
    let got = content(volume, &stem, name);
    volume.snapshot_delete(&stem).unwrap();
    got
}

pub fn names(volume: &Arc<Volume>) -> Vec<String> {
    let mut cx = EngineContext::new(Time { secs: 1, nanos: 0 });
    let mut all: Vec<String> = Vec::new();
    let limit = weir_volume::ReadDirLimit {
        entries: 1000,
        bytes: 1 << 20,
        attrs: false,
    };
    let read = volume.drive_blocking(&mut cx, |cx| {
        all.clear();
        volume.readdir(cx, volume.root(), 2, limit, &mut |entry| {
            all.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
    });
    read.unwrap();
    all.sort();
    all
}

/// `a` at `near`, and its copy at `far`, of which files are restored.
pub fn copied() -> (Station, Station) {
    let (near, far) = (Station::new(40), Station::new(41));
    pair(&near, &far);
    near.put("a", "one", &noise(1, 300_000));
    near.put("a", "two", &noise(2, 10_000));
    near.put("a", "three", &noise(3, 10_000));
    let a = near.engine_volume("a");
    let mut cx = EngineContext::new(Time { secs: 1, nanos: 0 });
    let found = a.drive_blocking(&mut cx, |cx| a.lookup(cx, a.root(), b"one"));
    let ino = found.unwrap().ino;
    let set = SetAttr {
        mode: Some(0o640),
        uid: Some(7),
        gid: Some(8),
        // With a hole at its end.
        size: Some(500_001),
        mtime: SetTime::Client(Time { secs: 77, nanos: 5 }),
        ..SetAttr::default()
    };
    a.drive_blocking(&mut cx, |cx| a.setattr(cx, ino, &set, None))
        .unwrap();
    a.drive_blocking(&mut cx, |cx| {
        a.set_xattr(cx, ino, b"user.k", Some(b"v"), SetHow::Either)
    })
    .unwrap();
    for (name, bytes) in [(&b"empty"[..], vec![]), (b"more", noise(4, 70_000))] {
        let made = a.drive_blocking(&mut cx, |cx| a.make_stream(cx, ino, name));
        let stream = made.unwrap().value.attr.ino;
        if !bytes.is_empty() {
            a.drive_blocking(&mut cx, |cx| {
                a.write(cx, stream, 5_000, &bytes, Stability::Unstable)
            })
            .unwrap();
        }
    }
    far.volume("copy", true);
    far.does("snapmirror create -source-path near://SVM/a -destination-path SVM:copy -policy MirrorLatest");
    far.does("snapmirror initialize -destination-path SVM:copy");
    far.succeeds("SVM:copy");
    (near, far)
}

fn restored(station: &Station, more: &str) -> Option<String> {
    station.does(&format!(
        "snapmirror restore -source-path far://SVM/copy -destination-path SVM:a {more}"
    ));
    ended(station)
}

/// Waits for the end of the restore, and returns its error.
pub fn ended(station: &Station) -> Option<String> {
    let path = Path::local("SVM", "a");
    let mut manager = station.service.manager();
    loop {
        let rows = station.service.relations();
        match rows.entry(&path) {
            None => return None,
            Some(entry) if entry.pending.is_none() => return entry.last.clone()?.error,
            Some(_) => {}
        }
        let wait = Duration::from_millis(50);
        station.service.wait_for_change(&mut manager, wait);
    }
}

#[test]
fn single_files_come_back_and_nothing_else_changes() {
    let (near, _far) = copied();
    let a = near.engine_volume("a");
    let mut was = noise(1, 300_000);
    was.resize(500_001, 0);
    near.put("a", "one", &noise(11, 50_000));
    near.put("a", "two", &noise(12, 20_000));
    near.put("a", "three", &noise(13, 20_000));
    assert_eq!(restored(&near, "-file-list /one,/two,@/was"), None);
    assert_eq!(current_contents(&a, "one").unwrap(), was);
    assert_eq!(current_contents(&a, "two").unwrap(), noise(12, 20_000));
    assert_eq!(current_contents(&a, "was").unwrap(), noise(2, 10_000));
    assert_eq!(current_contents(&a, "three").unwrap(), noise(13, 20_000));
    assert_eq!(names(&a), ["one", "three", "two", "was"]);
    assert!(a.mirror().is_none());
    let mut cx = EngineContext::new(Time { secs: 1, nanos: 0 });
    let found = a.drive_blocking(&mut cx, |cx| a.lookup(cx, a.root(), b"one"));
    let (ino, attr) = found.map(|found| (found.ino, found.attr)).unwrap();
    let kept = (attr.mode, attr.uid, attr.gid, attr.mtime);
    assert_eq!(kept, (0o640, 7, 8, Time { secs: 77, nanos: 5 }));
    let value = a.drive_blocking(&mut cx, |cx| a.xattr(cx, ino, b"user.k"));
    assert_eq!(value.unwrap(), b"v");
    let streams = a.drive_blocking(&mut cx, |cx| a.streams(cx, ino)).unwrap();
    let mut held = Vec::new();
    for stream in streams {
        let (ino, size) = (stream.attr.ino, stream.attr.size);
        let read = a.drive_blocking(&mut cx, |cx| a.read(cx, ino, 0, 1 << 20));
        held.push((stream.name.to_vec(), size, read.unwrap().to_vec()));
    }
    held.sort();
    let mut more = vec![0; 5_000];
    more.extend(noise(4, 70_000));
    let was = [
        (b"empty".to_vec(), 0, vec![]),
        (b"more".to_vec(), 75_000, more),
    ];
    assert_eq!(held, was);
    // Transfers from it go on as if nothing had been.
    _far.does("snapmirror update -destination-path SVM:copy");
    _far.succeeds("SVM:copy");
}

#[test]
fn a_restore_of_files_that_fails_changes_nothing() {
    let (near, far) = copied();
    let a = near.engine_volume("a");
    near.put("a", "one", &noise(11, 50_000));
    let failed = restored(&near, "-file-list /one,/none");
    assert!(failed.unwrap().contains("\"/none\""));
    assert_eq!(current_contents(&a, "one").unwrap(), noise(11, 50_000));
    assert_eq!(names(&a), ["one", "three", "two"]);
    let failed = restored(&near, "-file-list /one,@/no/such");
    assert!(failed.unwrap().contains("/no/such"));
    for (more, why) in [
        ("-file-list one", "is not the path"),
        ("-file-list /a/../b", "is not the path"),
        ("-file-list /one,/two,@/one", "is named twice"),
        ("-file-list /one -source-snapshot never", "is not present"),
        ("", "already exists"),
    ] {
        let says = near.says(&format!(
            "snapmirror restore -source-path far://SVM/copy -destination-path SVM:a {more}"
        ));
        assert!(says.contains(why), "{more}: {says}");
    }
    near.does("snapmirror break -destination-path SVM:a");
    assert_eq!(near.find("SVM:a"), None);
    let says = far.says(
        "snapmirror restore -source-path near://SVM/a -destination-path SVM:copy -file-list /one",
    );
    assert!(says.contains("already exists"), "{says}");
    let says = near.says(
        "snapmirror restore -source-path far://SVM/copy -destination-path SVM:b -file-list /one",
    );
    assert!(says.contains("must be a read-write volume"), "{says}");
    // While it copies, the volume is nobody's copy, and an abort takes away what has come.
    near.does("options -option-name replication.throttle.incoming.max_kbs 8");
    near.does(
        "snapmirror restore -source-path far://SVM/copy -destination-path SVM:a -file-list /one",
    );
    while names(&a).len() == 3 {
        std::thread::yield_now();
    }
    near.put("a", "two", &noise(22, 5_000));
    near.does("snapmirror abort -destination-path SVM:a");
    near.rests("SVM:a");
    assert_eq!(names(&a), ["one", "three", "two"]);
    assert_eq!(current_contents(&a, "one").unwrap(), noise(11, 50_000));
    near.does("options -option-name replication.throttle.incoming.max_kbs unlimited");
    assert_eq!(restored(&near, "-file-list /one"), None);
    assert_eq!(current_contents(&a, "one").unwrap().len(), 500_001);
}

/// After a crash behind the last rename nothing is copied again over later writes of users.
#[test]
fn files_that_had_come_are_not_copied_again() {
    let (near, _far) = copied();
    let a = near.engine_volume("a");
    let wanted = |file: &str| weir_relations::model::FileRestore {
        source: format!("/{file}"),
        destination: format!("/{file}"),
    };
    let job = |arrived: bool| weir_relations::manager::Job {
        id: 1,
        relationship: "r".to_owned(),
        task: weir_relations::manager::Task::Transfer(TransferKind::Restore),
        source: Path::parse("far://SVM/copy").unwrap(),
        destination: Path::local("SVM", "a"),
        policy: near.service.relations().policy("MirrorLatest").unwrap(),
        source_snapshot: None,
        throttle: None,
        files: vec![wanted("one"), wanted("two")],
        arrived,
        anew: false,
        serial: 1,
    };
    near.put("a", "one", &noise(11, 50_000));
    near.put("a", "two", &noise(12, 50_000));
    // The first has its name already, the second has not got it yet.
    near.put("a", ".weir-restore-r-1", &noise(99, 1_000));
    let (_abort, aborted) = watch::channel(false);
    near.service.run_job(&job(true), aborted).unwrap();
    assert_eq!(current_contents(&a, "one").unwrap(), noise(11, 50_000));
    assert_eq!(current_contents(&a, "two").unwrap(), noise(99, 1_000));
    assert_eq!(names(&a), ["one", "three", "two"]);
}

/// A process that was killed has left part of a file, and the restore is aborted before it goes on.
#[test]
fn what_a_crash_has_left_of_a_restored_file_goes_with_the_next_start() {
    let (mut near, _far) = copied();
    near.does("options -option-name replication.throttle.incoming.max_kbs 8");
    near.does(
        "snapmirror restore -source-path far://SVM/copy -destination-path SVM:a -file-list /one",
    );
    // No job begins again.
    near.does("snapmirror quiesce -destination-path SVM:a");
    let (engine, clock) = (
        Arc::clone(near.service.engine()),
        Arc::clone(near.service.clock()),
    );
    near.end();
    let uuid = near.relationship("SVM:a").uuid;
    near.put("a", &format!(".weir-restore-{uuid}-0"), &noise(5, 1_000));
    let near = Station::with_engine(near.stop(), engine, 40, clock);
    near.does("snapmirror abort -destination-path SVM:a");
    near.rests("SVM:a");
    assert_eq!(names(&near.engine_volume("a")), ["one", "three", "two"]);
    near.does("snapmirror break -destination-path SVM:a");
}
