//! Files of snapshots: their versions, their contents, and copies of them in the volume.

use weir_api::files::{FilePath, Files as _, RestorePlacement};
use weir_control::Status;
use weir_node::snapshot_files::SnapshotFiles;
use weir_volume::SetTime;

use super::files::current_contents;
use super::*;

fn path(text: &str) -> FilePath {
    FilePath::parse(text.as_bytes()).unwrap()
}

fn time_at(secs: i64) -> Time {
    Time { secs, nanos: 0 }
}

fn attr(volume: &Arc<Volume>, name: &[u8]) -> weir_volume::Attr {
    let mut cx = EngineContext::new(time_at(1));
    let found = volume.drive_blocking(&mut cx, |cx| volume.lookup(cx, volume.root(), name));
    found.unwrap().attr
}

/// A volume whose file `one` is in `s1` and `s2`, is another in `s3`, and has gone.
fn with_versions(seed: u64) -> (Station, SnapshotFiles, String) {
    let station = Station::new(seed);
    let volume = station.engine_volume("a");
    station.put("a", "one", &noise(1, 300_000));
    let mut cx = EngineContext::new(time_at(1));
    let ino = attr(&volume, b"one").ino;
    let set = SetAttr {
        mode: Some(0o640),
        uid: Some(7),
        gid: Some(8),
        // With a hole at its end.
        size: Some(500_001),
        mtime: SetTime::Client(Time { secs: 77, nanos: 5 }),
        ..SetAttr::default()
    };
    volume
        .drive_blocking(&mut cx, |cx| volume.setattr(cx, ino, &set, None))
        .unwrap();
    volume.snapshot_create("s1", time_at(10)).unwrap();
    volume.snapshot_create("s2", time_at(20)).unwrap();
    station.put("a", "one", &noise(2, 16));
    volume.snapshot_create("s3", time_at(30)).unwrap();
    volume
        .drive_blocking(&mut cx, |cx| volume.remove(cx, volume.root(), b"one"))
        .unwrap();
    volume.snapshot_create("s4", time_at(40)).unwrap();
    let files = SnapshotFiles::new(
        Arc::clone(station.service.engine()),
        Arc::clone(&station.vfs),
        Arc::clone(station.service.clock()),
        Arc::clone(station.service.rng()),
        station.service.runtime().clone(),
    );
    let key = station.key("a");
    (station, files, key)
}

#[test]
fn versions_are_found_over_snapshots() {
    let (station, files, key) = with_versions(60);
    let found = files.find(&key, &path("/one")).unwrap();
    assert_eq!(
        (found.live.clone(), found.searched, found.omitted),
        (None, 4, 0)
    );
    let versions: Vec<_> = found.versions.iter().collect();
    let shown = |n: usize| {
        let v = versions[n];
        (&*v.first, &*v.last, v.snapshots, v.state.size, v.taken)
    };
    assert_eq!(shown(0), ("s3", "s3", 1, 16, (time_at(30), time_at(30))));
    assert_eq!(
        shown(1),
        ("s1", "s2", 2, 500_001, (time_at(10), time_at(20)))
    );
    assert_eq!(versions[1].state.modified, Time { secs: 77, nanos: 5 });
    // The live file has the identity that its newest snapshot has.
    station.put("a", "two", &noise(3, 8));
    station
        .engine_volume("a")
        .snapshot_create("s5", time_at(50))
        .unwrap();
    let found = files.find(&key, &path("two")).unwrap();
    assert_eq!(
        found.live.unwrap().identity,
        found.versions[0].state.identity
    );
    for nowhere in ["/none", "/one/two", "/none/one"] {
        let found = files.find(&key, &path(nowhere)).unwrap();
        assert!(
            found.live.is_none() && found.versions.is_empty(),
            "{nowhere}"
        );
    }
}

#[test]
fn contents_are_read_by_ranges() {
    let (station, files, key) = with_versions(61);
    let file = files.open(&key, "s2", &path("/one")).unwrap();
    assert_eq!(file.state.size, 500_001);
    let mut whole = noise(1, 300_000);
    whole.resize(500_001, 0);
    assert_eq!(files.read(&file, 0, 600_000).unwrap(), whole);
    assert_eq!(
        files.read(&file, 299_990, 20).unwrap(),
        whole[299_990..300_010]
    );
    assert!(files.read(&file, 500_001, 10).unwrap().is_empty());
    for (snapshot, name, status) in [
        ("s4", "/one", Status::NotFound),
        ("none", "/one", Status::NotFound),
        ("s2", "/one/x", Status::FailedPrecondition),
    ] {
        let refused = files.open(&key, snapshot, &path(name)).unwrap_err();
        assert_eq!(refused.status, status, "{snapshot} {name}: {refused}");
    }
    station.engine_volume("a").snapshot_delete("s2").unwrap();
    assert!(files.read(&file, 0, 10).is_err());
}

#[test]
fn a_file_is_restored_beside_and_over_only_when_asked() {
    let (station, files, key) = with_versions(62);
    let volume = station.engine_volume("a");
    let mut whole = noise(1, 300_000);
    whole.resize(500_001, 0);
    let (restored, state) = files
        .restore(&key, "s2", &path("/one"), RestorePlacement::Beside)
        .unwrap();
    assert_eq!(
        (restored.bytes(), state.size),
        (b"/one.from-s2".to_vec(), 500_001)
    );
    assert_eq!(current_contents(&volume, "one.from-s2").unwrap(), whole);
    let made = attr(&volume, b"one.from-s2");
    assert_eq!(
        (made.mode, made.uid, made.gid, made.nlink),
        (0o640, 7, 8, 1)
    );
    assert_eq!(made.mtime, Time { secs: 77, nanos: 5 });
    // What is there is not replaced, by either name.
    station.put("a", "one", b"mine");
    for place in [RestorePlacement::Beside, RestorePlacement::Own] {
        let refused = files.restore(&key, "s2", &path("/one"), place).unwrap_err();
        assert_eq!(refused.status, Status::AlreadyExists, "{place:?}");
    }
    assert_eq!(current_contents(&volume, "one").unwrap(), b"mine");
    files
        .restore(&key, "s2", &path("/one"), RestorePlacement::Over)
        .unwrap();
    assert_eq!(current_contents(&volume, "one").unwrap(), whole);
    // A directory that has the name stays.
    let mut cx = EngineContext::new(time_at(1));
    volume
        .drive_blocking(&mut cx, |cx| volume.remove(cx, volume.root(), b"one"))
        .unwrap();
    volume
        .drive_blocking(&mut cx, |cx| {
            volume.mkdir(cx, volume.root(), b"one", &SetAttr::default())
        })
        .unwrap();
    let refused = files.restore(&key, "s2", &path("/one"), RestorePlacement::Over);
    assert_eq!(refused.unwrap_err().reason, "NOT_A_FILE");
    // Nothing is left of what was refused, and destinations of replications take nothing.
    let leftovers = super::files::names(&volume);
    assert!(
        !leftovers.iter().any(|n| n.starts_with('.')),
        "{leftovers:?}"
    );
    let protected = files.restore(
        &station.key("b"),
        "s2",
        &path("/one"),
        RestorePlacement::Own,
    );
    assert_eq!(protected.unwrap_err().reason, "VOLUME_READ_ONLY");
}

#[test]
fn paths_do_not_lead_through_links() {
    let (station, files, key) = with_versions(63);
    let volume = station.engine_volume("a");
    let mut cx = EngineContext::new(time_at(1));
    let attrs = SetAttr::default();
    let dir = volume.drive_blocking(&mut cx, |cx| {
        volume.mkdir(cx, volume.root(), b"dir", &attrs)
    });
    let dir = dir.unwrap().value.attr.ino;
    let link = |name: &'static [u8], to: &'static [u8]| {
        let mut cx = EngineContext::new(time_at(1));
        let made = volume.drive_blocking(&mut cx, |cx| {
            volume.symlink(cx, volume.root(), name, to, &attrs)
        });
        made.unwrap();
    };
    link(b"way", b"dir");
    link(b"out", b"/etc/passwd");
    volume
        .drive_blocking(&mut cx, |cx| {
            volume.create(cx, dir, b"f\xff", CreateHow::Guarded, &attrs)
        })
        .unwrap();
    volume.snapshot_create("s5", time_at(50)).unwrap();
    let odd = FilePath::parse(b"dir/f\xff").unwrap();
    assert_eq!(files.find(&key, &odd).unwrap().versions.len(), 1);
    let (restored, _) = files
        .restore(&key, "s5", &odd, RestorePlacement::Beside)
        .unwrap();
    assert_eq!(restored.bytes(), b"/dir/f\xff.from-s5");
    let through = FilePath::parse(b"way/f\xff").unwrap();
    assert!(files.find(&key, &through).unwrap().versions.is_empty());
    for (path, reason) in [
        (through, "NOT_A_DIRECTORY"),
        (path("/out"), "NOT_A_FILE"),
        (path("/dir"), "NOT_A_FILE"),
    ] {
        for place in [
            RestorePlacement::Beside,
            RestorePlacement::Own,
            RestorePlacement::Over,
        ] {
            let refused = files.restore(&key, "s5", &path, place).unwrap_err();
            assert_eq!(refused.reason, reason, "{path} {place:?}");
        }
        assert_eq!(files.open(&key, "s5", &path).unwrap_err().reason, reason);
    }
    // The directory that it was in has become a link.
    volume
        .drive_blocking(&mut cx, |cx| {
            volume.rename(cx, volume.root(), b"dir", volume.root(), b"old")
        })
        .unwrap();
    let gone = files
        .restore(&key, "s5", &odd, RestorePlacement::Own)
        .unwrap_err();
    assert_eq!(gone.reason, "DIRECTORY_NOT_FOUND");
    link(b"dir", b"old");
    let link = files
        .restore(&key, "s5", &odd, RestorePlacement::Own)
        .unwrap_err();
    assert_eq!(link.reason, "NOT_A_DIRECTORY");
}
