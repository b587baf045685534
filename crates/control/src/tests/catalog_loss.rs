//! The catalog is lost, empty, damaged or another aggregate's: nothing empty is served in place of
//! the engine's volumes.

use super::*;
use crate::backend::SnapshotState;
use crate::catalog::{Catalog, file_of};
use crate::{
    Assign, CopyOf, NewSnapshot, OpenError, Performance, Protocol, Rebuilt, RebuiltPool,
    SecurityStyle, Share, SmbSetting, State, Synchronous, TieredSettings, VolumeChange,
};

pub(super) fn options(url: &str, node: &SimBackend, seed: u64) -> Options {
    Options {
        catalog: url.to_owned(),
        levels: Levels::built_in().unwrap(),
        instance_addresses: None,
        backend: Arc::new(node.clone()),
        clock: Arc::new(SystemClock::new()),
        rng: Arc::new(SeededRng::new(seed)),
        device_bytes: 100 << 30,
        copy: None,
        first_place: crate::LocationName::local(),
    }
}

async fn refused(url: &str, node: &SimBackend) -> OpenError {
    match open(url, node, 9).await {
        Ok(_) => panic!("served without its catalog"),
        Err(error) => error,
    }
}

/// Returns an instance with custom performance.
fn zonal() -> NewVolume {
    NewVolume {
        presentation: Presentation::Filestore(TieredSettings {
            tier: "ZONAL".into(),
            performance: Some(Performance::FixedIops(5000)),
            address: None,
        }),
        share_name: "shared".to_owned(),
        capacity_gib: 1024,
        ..NewVolume::default()
    }
}

/// Creates a server with volumes of all kinds and shuts it down. Returns its catalog, and its
/// exports.
async fn built() -> (Bench, Vec<(String, Vec<String>)>) {
    let bench = Bench::new().await;
    bench
        .done(pool("mq", "PREMIUM", 4096, QosType::Manual))
        .await;
    let new = NewVolume {
        unix_permissions: Some(0o1777),
        ..given(100.0, new_volume("db", "mq", 1024))
    };
    bench.done(Mutation::CreateVolume(vol("db"), new)).await;
    let snapshot = vol("db").snapshot("s");
    let taken = Mutation::CreateSnapshot(snapshot.clone(), NewSnapshot::default());
    bench.done(taken).await;
    let clone = NewVolume {
        clone_of: Some(snapshot),
        ..given(50.0, new_volume("copy", "mq", 512))
    };
    bench.done(Mutation::CreateVolume(vol("copy"), clone)).await;
    bench
        .done(Mutation::CreateVolume(inst("fs"), zonal()))
        .await;
    let exports = bench.node.published().unwrap().exports;
    let served = exports
        .iter()
        .map(|e| (e.key.clone(), e.paths.clone()))
        .collect();
    bench.control.close().await;
    bench.node.revive();
    (bench, served)
}

pub(super) fn remove(url: &str) {
    let path = file_of(url).unwrap();
    for tail in ["", "-wal", "-shm"] {
        let file = format!("{}{tail}", path.display());
        let _ = std::fs::remove_file(file);
    }
}

#[tokio::test]
async fn a_lost_catalog_is_no_fresh_one_and_is_made_anew() {
    let (bench, served) = built().await;
    let before = bench.node.list_volumes();
    remove(&bench.url);
    for _ in 0..2 {
        let error = refused(&bench.url, &bench.node).await;
        assert!(
            matches!(&error, OpenError::Lost { count: 4, .. }),
            "{error}"
        );
        let words = error.to_string();
        for part in ["weir catalog rebuild", "volumes/db", "instances/fs"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(
            Catalog::is_missing(&bench.url),
            "nothing is left in its place"
        );
    }
    assert_eq!(bench.node.published().map(|p| p.exports.len()), None);
    assert_eq!(
        bench.node.list_volumes().len(),
        before.len(),
        "no first volume"
    );

    let rebuilt = Control::rebuild(options(&bench.url, &bench.node, 3)).await;
    let rebuilt = rebuilt.unwrap();
    let volumes = &rebuilt.volumes;
    let names: Vec<String> = volumes.iter().map(|r| r.name.to_string()).collect();
    let place = place();
    assert_eq!(
        names,
        [
            format!("{place}/volumes/copy"),
            format!("{place}/volumes/db"),
            "projects/weir/locations/local/volumes/vol1".to_owned(),
            format!("{place}/instances/fs"),
        ]
    );
    assert!(volumes.iter().all(|r| !r.made_up));
    let pools = |known| {
        let pools = rebuilt.pools.iter().filter(move |p| p.known == known);
        pools.map(|p| p.name.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        (pools(false), pools(true)),
        (vec!["mq".to_owned(), "default".to_owned()], Vec::new())
    );
    bench.node.revive();

    let control = open(&bench.url, &bench.node, 4).await.unwrap();
    let view = control.view();
    // Known values are unchanged; no client may use the volumes.
    let exports = bench.node.published().unwrap().exports;
    let now: Vec<_> = exports
        .iter()
        .map(|e| (e.key.clone(), e.paths.clone()))
        .collect();
    assert_eq!(now, served);
    assert!(exports.iter().all(|e| e.rules == Some(Vec::new())));
    let db = view.volume(&vol("db")).unwrap();
    assert_eq!((db.state, db.capacity_gib), (State::Ready, 1024));
    assert_eq!(
        (db.throughput_mibps(), db.unix_permissions),
        (Some(100.0), 0o1777)
    );
    let pool = view.pool_of(db).unwrap();
    assert_eq!((&*pool.name.id, &*pool.service_level), ("mq", "PREMIUM"));
    assert_eq!(pool.qos_type, QosType::Manual);
    // 150 MiB/s at 64 MiB/s per TiB.
    assert_eq!(pool.capacity_gib, 2400);
    let snapshot = vol("db").snapshot("s");
    assert_eq!(view.snapshot(&snapshot).unwrap().state, State::Ready);
    let copy = view.volume(&vol("copy")).unwrap();
    assert_eq!(copy.clone_of, Some(snapshot));
    let fs = view.volume(&inst("fs")).unwrap();
    assert_eq!(
        (fs.tiered().unwrap().tier.as_ref(), fs.capacity_gib),
        ("ZONAL", 1024)
    );
    assert!(fs.protocols.is_empty(), "as it was made: none was named");
    assert_eq!(bench.node.list_volumes().len(), before.len());
    control.close().await;
}

#[tokio::test]
async fn a_rebuild_leaves_what_the_catalog_knows_and_adds_the_rest() {
    let (bench, _) = built().await;
    bench.node.put("v-00000000000000aa", 3 << 30);
    let made = |rebuilt: Rebuilt| -> Vec<(VolumeName, Vec<String>, bool)> {
        let each = rebuilt.volumes.into_iter();
        each.map(|r| (r.name, r.paths, r.made_up)).collect()
    };
    let rebuild = || Control::rebuild(options(&bench.url, &bench.node, 5));
    let key = "v-00000000000000aa";
    assert_eq!(
        made(rebuild().await.unwrap()),
        [(
            LocationName::local().volume(key),
            vec![format!("/{key}")],
            true
        )]
    );
    bench.node.revive();
    assert_eq!(made(rebuild().await.unwrap()), []);
    bench.node.revive();
    let control = open(&bench.url, &bench.node, 6).await.unwrap();
    let view = control.view();
    assert_eq!(view.volume_count(), 5);
    let open_to_all = view.volume(&vol("db")).unwrap();
    assert_eq!(open_to_all.export_rules, None, "as it was");
    control.close().await;
}

#[tokio::test]
async fn an_empty_catalog_is_a_lost_one() {
    let (bench, _) = built().await;
    remove(&bench.url);
    // The tables exist, and are empty.
    Catalog::open(&bench.url).await.unwrap().close().await;
    let error = refused(&bench.url, &bench.node).await;
    assert!(matches!(error, OpenError::Lost { .. }), "{error}");
    // An adopted volume of an older program counts as known.
    let (node, folder) = (SimBackend::new(), tempfile::tempdir().unwrap());
    node.put("home", 5);
    let url = url_in(folder.path());
    open(&url, &node, 1).await.unwrap().close().await;
    node.revive();
    remove(&url);
    let error = refused(&url, &node).await;
    assert!(matches!(error, OpenError::Lost { count: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_catalog_of_another_aggregate_is_refused_untouched() {
    let (bench, _) = built().await;
    let mine = SimBackend::of_aggregate("another");
    let error = refused(&bench.url, &mine).await;
    assert!(matches!(&error, OpenError::Foreign { .. }), "{error}");
    let error = Control::rebuild(options(&bench.url, &mine, 7)).await;
    assert!(matches!(error, Err(OpenError::Foreign { .. })));
    // The right server continues with it.
    let control = open(&bench.url, &bench.node, 8).await.unwrap();
    assert_eq!(control.view().volume_count(), 4);
    control.close().await;
}

#[tokio::test]
async fn a_damaged_catalog_says_what_to_do() {
    let (bench, _) = built().await;
    remove(&bench.url);
    std::fs::write(file_of(&bench.url).unwrap(), vec![b'x'; 8192]).unwrap();
    let error = refused(&bench.url, &bench.node).await;
    let damaged = matches!(&error, OpenError::Catalog(_, why) if why.is_damage());
    assert!(damaged, "{error:?}");
    assert!(
        error.to_string().contains("weir catalog rebuild"),
        "{error}"
    );
}

/// Returns the faults that a check finds.
async fn faults_of(bench: &Bench) -> Vec<String> {
    let keys = bench.node.list_volumes().into_keys().collect();
    let seen = crate::inspect(&bench.url, "", &keys).await;
    assert_eq!((seen.volumes, seen.instances, seen.snapshots), (3, 1, 1));
    seen.faults
}

#[tokio::test]
async fn a_check_compares_the_catalog_with_itself_and_the_engine() {
    let (bench, _) = built().await;
    let keys = || bench.node.list_volumes().into_keys().collect();
    assert_eq!(faults_of(&bench).await, [""; 0]);

    bench.node.put("v-00000000000000aa", 1);
    let view = bench.control.view();
    let db = view.volume(&vol("db")).unwrap();
    bench.node.lose(&db.key);
    let faults = faults_of(&bench).await;
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].contains("volumes/db: the engine does not have its data"));
    assert!(faults[1].contains("v-00000000000000aa") && faults[1].contains("rebuild"));
    bench.node.lose("v-00000000000000aa");
    bench.node.put(&db.key, 1);

    for (statement, said) in [
        (
            "UPDATE meta SET value = 'me' WHERE name = 'owner'",
            "owner mark",
        ),
        (
            "UPDATE meta SET value = 'b' WHERE name = 'aggregate'",
            "belongs to aggregate b",
        ),
        (
            "UPDATE shares SET owner = 7 WHERE name = 'share-db'",
            "/share-db is kept for a volume",
        ),
        (
            "INSERT INTO shares VALUES ('zz', 9)",
            "/zz is kept for a volume",
        ),
        ("DELETE FROM pools", "storage pool mq, which does not exist"),
    ] {
        faults::sql(&bench.url, statement).await;
        let faults = faults_of(&bench).await;
        assert!(
            faults.iter().any(|f| f.contains(said)),
            "{said}: {faults:?}"
        );
    }
    faults::sql(&bench.url, "UPDATE volumes SET body = '{'").await;
    let seen = crate::inspect(&bench.url, "", &keys()).await;
    assert!(seen.damaged, "{seen:?}");
    remove(&bench.url);
    let seen = crate::inspect(&bench.url, "", &keys()).await;
    assert!(
        !seen.damaged && seen.faults[0].contains("does not exist"),
        "{seen:?}"
    );
    std::fs::write(file_of(&bench.url).unwrap(), vec![b'x'; 8192]).unwrap();
    assert!(crate::inspect(&bench.url, "", &keys()).await.damaged);
}

/// Only the catalog has relationships; the rebuild names the volumes that lack one now, and their
/// sources.
#[tokio::test]
async fn a_rebuild_names_what_was_replicated_and_from_where() {
    let folder = tempfile::tempdir().unwrap();
    let url = url_in(folder.path());
    let node = SimBackend::of_aggregate("00000000-0000-0000-0000-000000000001");
    let bench = Bench {
        control: open(&url, &node, 1).await.unwrap(),
        node,
        url,
        _folder: Some(folder),
    };
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    bench.done(volume("src", "p", 1)).await;
    for id in ["near", "far", "fresh"] {
        let new = NewVolume {
            protection: true,
            ..new_volume(id, "p", 1)
        };
        bench.done(Mutation::CreateVolume(vol(id), new)).await;
    }
    let view = bench.control.view();
    let of = |id: &str| view.volume(&vol(id)).unwrap();
    let source = of("src").number.unwrap();
    let far = "00000000-0000-0000-0000-000000000002";
    for (id, identity) in [
        ("near", crate::sim::identity(source, 3)),
        ("far", format!("{far}/7/1/1.000000000").parse().unwrap()),
    ] {
        let copy = SnapshotState {
            name: "daily".to_owned(),
            created: 1,
            used: 0,
            label: String::new(),
            busy: false,
            number: 1,
            identity,
        };
        bench.node.snapshots_mut(&of(id).key, |all| all.push(copy));
    }
    bench.control.close().await;
    bench.node.revive();
    remove(&bench.url);
    let rebuilt = Control::rebuild(options(&bench.url, &bench.node, 3)).await;
    let rebuilt = rebuilt.unwrap().volumes.into_iter();
    let copies: Vec<_> = rebuilt
        .filter_map(|one| Some((one.name.id.to_string(), one.copy_of?)))
        .collect();
    assert_eq!(
        copies,
        [
            ("far".to_owned(), CopyOf::Elsewhere(far.to_owned())),
            ("fresh".to_owned(), CopyOf::Unknown),
            ("near".to_owned(), CopyOf::Here(vol("src"))),
        ]
    );
}

/// Security style, share, visibility of snapshots, treatment of changes without the partner: all of
/// it changes the meaning of data or promises about it, and is restored automatically.
#[tokio::test]
async fn a_rebuild_has_what_decides_over_the_data_and_names_what_it_has_not() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 4096, QosType::Auto)).await;
    let smb = Share {
        name: None,
        settings: vec![
            SmbSetting::ContinuouslyAvailable,
            SmbSetting::AccessBasedEnumeration,
        ],
        style: Some(SecurityStyle::Ntfs),
    };
    let win = NewVolume {
        protocols: vec![Protocol::Nfsv4, Protocol::Smb],
        smb: smb.clone(),
        snapshot_directory: Some(false),
        snap_reserve: Some(12.5),
        deletion_restricted: true,
        export_rules: Some(Vec::new()),
        snapshot_policy: Some(
            serde_json::json!({"enabled": true, "hourlySchedule": {"snapshotsToKeep": 3}}),
        ),
        ..new_volume("win", "p", 100)
    };
    bench.done(Mutation::CreateVolume(vol("win"), win)).await;
    let renamed = VolumeChange {
        smb_name: Some("Data".to_owned()),
        assign: Assign {
            synchronous: Some(Some(Synchronous::StrictSync)),
            ..Assign::default()
        },
        ..VolumeChange::default()
    };
    bench
        .done(Mutation::UpdateVolume(vol("win"), renamed))
        .await;
    let alone = NewVolume {
        protocols: vec![Protocol::Smb],
        smb: Share {
            style: Some(SecurityStyle::Unix),
            ..Share::default()
        },
        ..new_volume("alone", "p", 100)
    };
    bench
        .done(Mutation::CreateVolume(vol("alone"), alone))
        .await;
    for (id, offline, path) in [("off", Some(true), None), ("bare", None, Some(None))] {
        let new = NewVolume {
            protection: true,
            ..new_volume(id, "p", 100)
        };
        bench.done(Mutation::CreateVolume(vol(id), new)).await;
        let change = VolumeChange {
            assign: Assign {
                offline,
                path,
                ..Assign::default()
            },
            // Only a record stored after the volume went offline has that.
            capacity_gib: Some(200),
            ..VolumeChange::default()
        };
        bench.done(Mutation::UpdateVolume(vol(id), change)).await;
    }
    let instance = NewVolume {
        protocols: vec![Protocol::Nfsv4],
        ..zonal()
    };
    bench
        .done(Mutation::CreateVolume(inst("fs"), instance))
        .await;
    let before = bench.control.view();
    let served = bench.node.published().unwrap().exports;
    let win = before.volume(&vol("win")).unwrap();
    let spec = served.iter().find(|e| *e.key == *win.key).unwrap();
    assert!(spec.ntfs && spec.strict && !spec.snapshot_directory);
    bench.control.close().await;
    bench.node.revive();

    remove(&bench.url);
    let rebuilt = Control::rebuild(options(&bench.url, &bench.node, 3)).await;
    let rebuilt = rebuilt.unwrap();
    let of = |id: &str| {
        let mut volumes = rebuilt.volumes.iter();
        volumes.find(|one| one.name == vol(id)).unwrap()
    };
    assert!(of("win").ntfs && !of("alone").ntfs);
    assert_eq!(of("win").protocols, [Protocol::Nfsv4, Protocol::Smb]);
    assert_eq!(of("win").lost, ["export policy", "snapshot schedules"]);
    assert_eq!(of("alone").lost, [""; 0]);
    let pool = |p: &RebuiltPool| (p.name.id.to_string(), p.known);
    let pools: Vec<_> = rebuilt.pools.iter().map(pool).collect();
    assert!(pools.contains(&("p".to_owned(), false)), "{pools:?}");
    bench.node.revive();

    let control = open(&bench.url, &bench.node, 4).await.unwrap();
    let after = control.view();
    for name in ["win", "alone", "off", "bare"]
        .map(vol)
        .iter()
        .chain([&inst("fs")])
    {
        let (was, is) = (before.volume(name).unwrap(), after.volume(name).unwrap());
        assert_eq!(is.smb, was.smb, "{name}");
        assert_eq!(is.assigned, was.assigned, "{name}");
        assert_eq!(is.unix_permissions, was.unix_permissions, "{name}");
        assert_eq!(
            (
                is.snapshot_directory,
                is.snap_reserve,
                is.deletion_restricted,
                is.protection
            ),
            (
                was.snapshot_directory,
                was.snap_reserve,
                was.deletion_restricted,
                was.protection
            ),
            "{name}"
        );
        assert_eq!(
            (&is.paths, &is.presentation),
            (&was.paths, &was.presentation)
        );
        let nfs = was.protocols.iter().filter(|p| **p != Protocol::Smb);
        assert!(is.protocols.iter().eq(nfs), "{name}");
    }
    let exports = bench.node.published().unwrap().exports;
    let keys = |all: &[Arc<crate::backend::ExportSpec>]| -> Vec<String> {
        all.iter().map(|e| e.key.clone()).collect()
    };
    assert_eq!(
        keys(&exports),
        keys(&served),
        "what is out of service stays so"
    );
    for (is, was) in exports.iter().zip(&served) {
        assert_eq!(
            (is.ntfs, is.snapshot_directory, is.strict, is.protocols),
            (was.ntfs, was.snapshot_directory, was.strict, was.protocols),
            "{is:?}"
        );
        assert_eq!(is.share, None, "nobody's until it is said again");
    }

    // The printed commands restore the shares.
    for (id, protocols) in [
        ("win", vec![Protocol::Nfsv4, Protocol::Smb]),
        ("alone", vec![Protocol::Smb]),
    ] {
        let change = VolumeChange {
            protocols: Some(protocols),
            ..VolumeChange::default()
        };
        let operation = control
            .submit(Mutation::UpdateVolume(vol(id), change), &Actor::local())
            .await;
        assert_eq!(operation.unwrap().outcome, Some(Outcome::Done));
        let key = &*after.volume(&vol(id)).unwrap().key;
        let share = |all: &[Arc<crate::backend::ExportSpec>]| {
            let mut all = all.iter();
            all.find(|e| e.key == key).unwrap().share.clone()
        };
        let exports = bench.node.published().unwrap().exports;
        assert!(share(&served).is_some());
        assert_eq!(share(&exports), share(&served));
    }
    control.close().await;
}

/// A record of another version has fewer fields; the missing ones are reported.
#[tokio::test]
async fn what_a_record_does_not_say_is_named() {
    let (bench, _) = built().await;
    let key = bench.control.view().volume(&vol("db")).unwrap().key.clone();
    let text = format!(r#"{{"name": "{}", "share": "db", "gib": 1024}}"#, vol("db"));
    bench.node.annotate(&key, &text);
    remove(&bench.url);
    let rebuilt = Control::rebuild(options(&bench.url, &bench.node, 3)).await;
    let rebuilt = rebuilt.unwrap();
    let mut volumes = rebuilt.volumes.iter();
    let db = volumes.find(|one| one.name == vol("db")).unwrap();
    assert!(!db.made_up && db.protocols.is_empty());
    assert!(
        db.lost
            .iter()
            .any(|what| what.starts_with("security style"))
    );
}
