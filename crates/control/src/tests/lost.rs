//! The catalog is lost, empty, damaged or another's: nothing empty is served in place of what the engine has.

use super::*;
use crate::backend::SnapshotState;
use crate::catalog::{Catalog, file_of};
use crate::{CopyOf, NewSnapshot, OpenError, Performance, Rebuilt, State, Tiered};

fn options(url: &str, node: &SimBackend, seed: u64) -> Options {
    Options {
        catalog: url.to_owned(),
        levels: Levels::built_in().unwrap(),
        backend: Arc::new(node.clone()),
        clock: Arc::new(SystemClock::new()),
        rng: Arc::new(SeededRng::new(seed)),
        device_bytes: 100 << 30,
    }
}

async fn refused(url: &str, node: &SimBackend) -> OpenError {
    match open(url, node, 9).await {
        Ok(_) => panic!("served without its catalog"),
        Err(error) => error,
    }
}

/// A server with volumes of all kinds, shut down; its catalog, and what was exported.
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
    let instance = NewVolume {
        presentation: Presentation::Filestore(Tiered {
            tier: "ZONAL".into(),
            performance: Some(Performance::FixedIops(5000)),
        }),
        share_name: "vol1".to_owned(),
        capacity_gib: 1024,
        ..NewVolume::default()
    };
    bench
        .done(Mutation::CreateVolume(inst("fs"), instance))
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

fn remove(url: &str) {
    let path = file_of(url).unwrap();
    for tail in ["", "-wal", "-shm"] {
        let file = format!("{}{tail}", path.display());
        let _ = std::fs::remove_file(file);
    }
}

#[tokio::test]
async fn a_lost_catalog_is_no_fresh_one_and_is_made_anew() {
    let (bench, served) = built().await;
    let before = bench.node.all();
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
    assert_eq!(bench.node.all().len(), before.len(), "no first volume");

    let rebuilt = Control::rebuild(options(&bench.url, &bench.node, 3)).await;
    let rebuilt = rebuilt.unwrap();
    let names: Vec<String> = rebuilt.iter().map(|r| r.name.to_string()).collect();
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
    assert!(rebuilt.iter().all(|r| !r.made_up));
    bench.node.revive();

    let control = open(&bench.url, &bench.node, 4).await.unwrap();
    let view = control.view();
    // What is known is as it was; no client may use it.
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
    assert_eq!(bench.node.all().len(), before.len());
    control.close().await;
}

#[tokio::test]
async fn a_rebuild_leaves_what_the_catalog_knows_and_adds_the_rest() {
    let (bench, _) = built().await;
    bench.node.put("v-00000000000000aa", 3 << 30);
    let made = |rebuilt: Vec<Rebuilt>| -> Vec<(VolumeName, Vec<String>, bool)> {
        let each = rebuilt.into_iter();
        each.map(|r| (r.name, r.paths, r.made_up)).collect()
    };
    let rebuild = || Control::rebuild(options(&bench.url, &bench.node, 5));
    let key = "v-00000000000000aa";
    assert_eq!(
        made(rebuild().await.unwrap()),
        [(Place::local().volume(key), vec![format!("/{key}")], true)]
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
    // The tables are there, and nothing in them.
    Catalog::open(&bench.url).await.unwrap().close().await;
    let error = refused(&bench.url, &bench.node).await;
    assert!(matches!(error, OpenError::Lost { .. }), "{error}");
    // A volume of an older program that was adopted counts as known.
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
    // The right server goes on with it.
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

/// What a check finds.
async fn faults_of(bench: &Bench) -> Vec<String> {
    let keys = bench.node.all().into_keys().collect();
    let seen = crate::inspect(&bench.url, "", &keys).await;
    assert_eq!((seen.volumes, seen.instances, seen.snapshots), (3, 1, 1));
    seen.faults
}

#[tokio::test]
async fn a_check_compares_the_catalog_with_itself_and_the_engine() {
    let (bench, _) = built().await;
    let keys = || bench.node.all().into_keys().collect();
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

/// A relationship is in the catalog alone; which volumes lack one now, and what they were copied from, is said by name.
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
    let rebuilt = rebuilt.unwrap().into_iter();
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
