//! Many mutations at once.

use super::*;
use crate::{PoolChange, PoolUse, VolumeChange};

/// Two hundred new volumes with room for a hundred and fifty, and two hundred changes of one of
/// them.
pub async fn two_hundred_at_once(bench: &Bench) {
    bench.done(pool("p", "PREMIUM", 150, QosType::Auto)).await;
    let before = bench.node.publications();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..200 {
        let control = Arc::clone(&bench.control);
        tasks.spawn(async move {
            let mutation = volume(&format!("v{n}"), "p", 1);
            control.submit(mutation, &Actor::local()).await
        });
    }
    let results = tasks.join_all().await;
    let (made, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (150, 50));
    for operation in made.into_iter().map(Result::unwrap) {
        assert_eq!(operation.outcome, Some(Outcome::Done));
    }
    for refusal in refused.into_iter().map(Result::unwrap_err) {
        assert_eq!(refusal.reason, "POOL_CAPACITY_EXCEEDED");
    }
    let view = bench.control.view();
    let full = PoolUse {
        volumes: 150,
        capacity_gib: 150,
        throughput: 0,
    };
    assert_eq!(view.pool_use(&name("p")), full);
    crash::sound(&view, &bench.node, "two hundred at once");
    let publications = bench.node.publications() - before;
    assert!(
        publications < 100,
        "{publications} publications for 150 volumes"
    );

    bench
        .done(pool("m", "EXTREME", 10_240, QosType::Manual))
        .await;
    bench.done(volume("one", "m", 1)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 1..=200 {
        let control = Arc::clone(&bench.control);
        tasks.spawn(async move {
            let change = VolumeChange {
                throughput_mibps: Some(f64::from(n)),
                capacity_gib: Some(n as u64),
                ..VolumeChange::default()
            };
            let mutation = Mutation::UpdateVolume(vol("one"), change);
            control.submit(mutation, &Actor::local()).await
        });
    }
    for operation in tasks.join_all().await {
        assert_eq!(operation.unwrap().outcome, Some(Outcome::Done));
    }
    let view = bench.control.view();
    let one = view.volume(&vol("one")).unwrap();
    assert_eq!(
        one.throughput_mibps(),
        Some(one.capacity_gib as f64),
        "one change, whole"
    );
    assert_eq!(one.revision, 201);
    crash::sound(&view, &bench.node, "two hundred changes");
    let published = bench.node.published().unwrap();
    let plan = published
        .plan
        .volumes
        .iter()
        .find(|p| p.name.ends_with("/one"))
        .unwrap();
    assert_eq!(
        plan.limits.total.bytes,
        Some(one.capacity_gib << 20),
        "the last is in force"
    );
}

#[tokio::test]
async fn two_hundred_at_once_on_sqlite() {
    two_hundred_at_once(&Bench::new().await).await;
}

#[tokio::test]
async fn what_did_not_change_is_published_as_it_was() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1000, QosType::Auto)).await;
    bench.done(volume("a", "p", 1)).await;
    bench.done(volume("b", "p", 1)).await;
    let export = |bench: &Bench, path: &str| {
        let published = bench.node.published().unwrap();
        let found = published.exports.iter().find(|e| e.paths == [path]);
        Arc::clone(found.unwrap())
    };
    let (a, b) = (export(&bench, "/share-a"), export(&bench, "/share-b"));
    let change = VolumeChange {
        snapshot_directory: Some(false),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("a"), change)).await;
    assert!(!Arc::ptr_eq(&a, &export(&bench, "/share-a")));
    assert!(Arc::ptr_eq(&b, &export(&bench, "/share-b")));
    let change = VolumeChange {
        capacity_gib: Some(2),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("b"), change)).await;
    assert!(
        Arc::ptr_eq(&b, &export(&bench, "/share-b")),
        "only its limits changed"
    );
}

/// A publication names only changed resources, however many volumes there are.
#[tokio::test]
async fn a_publication_has_what_changed_and_nothing_else() {
    let bench = Bench::new().await;
    bench.done(pool("p", "FLEX", 10_000, QosType::Auto)).await;
    bench
        .done(pool("q", "PREMIUM", 10_000, QosType::Auto))
        .await;
    for n in 0..20 {
        bench.done(volume(&format!("p{n}"), "p", 1)).await;
        bench.done(volume(&format!("q{n}"), "q", 1)).await;
    }
    let keys = |id: &str| bench.control.view().volume(&vol(id)).unwrap().key.clone();
    let seen = |bench: &Bench| {
        let last = bench.node.last_publication().unwrap();
        assert!(!last.whole && !last.limits.whole);
        let exports: Vec<String> = last.exports.iter().map(|e| e.paths[0].clone()).collect();
        let volumes: Vec<String> = last
            .limits
            .volumes
            .iter()
            .map(|v| v.name.to_string())
            .collect();
        (exports, volumes, last.limits.pools.len())
    };
    let full = |id: &str| vol(id).to_string();
    let patch = |id: &str, change: VolumeChange| Mutation::UpdateVolume(vol(id), change);

    let change = VolumeChange {
        snapshot_directory: Some(false),
        ..VolumeChange::default()
    };
    bench.done(patch("q3", change)).await;
    assert_eq!(seen(&bench), (vec!["/share-q3".to_owned()], vec![], 0));
    let change = VolumeChange {
        capacity_gib: Some(2),
        ..VolumeChange::default()
    };
    bench.done(patch("q4", change)).await;
    assert_eq!(seen(&bench), (vec![], vec![full("q4")], 0));
    // A pool's own limit, which its volumes share by weights that do not depend on it.
    let grow = |gib| PoolChange {
        capacity_gib: Some(gib),
        ..PoolChange::default()
    };
    bench
        .done(Mutation::UpdatePool(name("p"), grow(20_000)))
        .await;
    assert_eq!(seen(&bench), (vec![], vec![], 1));
    // Another service level: its volumes' limits follow, no other pool's.
    let change = PoolChange {
        service_level: Some("EXTREME".to_owned()),
        ..PoolChange::default()
    };
    bench.done(Mutation::UpdatePool(name("q"), change)).await;
    let (exports, volumes, _) = seen(&bench);
    assert!(exports.is_empty());
    assert_eq!(volumes.len(), 20);
    assert!(
        volumes.iter().all(|v| v.contains("/volumes/q")),
        "{volumes:?}"
    );
    // To another pool.
    let change = VolumeChange {
        pool: Some("p".to_owned()),
        ..VolumeChange::default()
    };
    bench.done(patch("q5", change)).await;
    assert_eq!(seen(&bench), (vec![], vec![full("q5")], 0));
    let (key, number) = (
        keys("q6"),
        bench.control.view().volume(&vol("q6")).unwrap().number,
    );
    bench
        .done(Mutation::DeleteVolume {
            name: vol("q6"),
            force: false,
        })
        .await;
    let last = bench.node.last_publication().unwrap();
    assert_eq!(
        (last.withdrawn.clone(), last.limits.volumes_gone.clone()),
        (vec![key], vec![number.unwrap()])
    );
    assert!(last.exports.is_empty() && last.limits.volumes.is_empty());

    // A change of descriptive fields has ended when it is written, and is not published.
    let publications = bench.node.publications();
    let change = VolumeChange {
        labels: Some([("team".to_owned(), "a".to_owned())].into_iter().collect()),
        description: Some("for the team".to_owned()),
        ..VolumeChange::default()
    };
    bench.done(patch("q7", change)).await;
    assert_eq!(bench.node.publications(), publications);
    // The sum of all differences is the intended state.
    crash::sound(&bench.control.view(), &bench.node, "after differences");

    // After a failure the state of the node is unknown: everything is published.
    bench.node.inject(
        "publish",
        crate::sim::Fault::After(crate::backend::BackendError::Failed("?".to_owned())),
    );
    let change = VolumeChange {
        capacity_gib: Some(3),
        ..VolumeChange::default()
    };
    bench.done(patch("q8", change)).await;
    let last = bench.node.last_publication().unwrap();
    assert!(last.whole && last.limits.whole);
    assert_eq!(last.exports.len(), bench.control.view().volume_count());
    crash::sound(&bench.control.view(), &bench.node, "after a failure");
}

/// Changes derived from the present state do not undo each other.
#[tokio::test]
async fn changes_made_from_what_is_there_all_count() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 10, QosType::Auto)).await;
    bench.done(volume("v", "p", 1)).await;
    let target = crate::Target::Volume(vol("v"));
    let mut tasks = Vec::new();
    for n in 0..30 {
        let (control, target) = (Arc::clone(&bench.control), target.clone());
        tasks.push(tokio::spawn(async move {
            let one_more = move |view: &crate::View| -> Result<Mutation, Refusal> {
                let mut labels = view.volume(&vol("v")).unwrap().labels.clone();
                labels.insert(format!("l{n}"), "x".to_owned());
                let change = VolumeChange {
                    labels: Some(labels),
                    ..VolumeChange::default()
                };
                Ok(Mutation::UpdateVolume(vol("v"), change))
            };
            control
                .submit_made(&target, one_more, &Actor::local())
                .await
                .unwrap()
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().outcome, Some(Outcome::Done));
    }
    let view = bench.control.view();
    assert_eq!(view.volume(&vol("v")).unwrap().labels.len(), 30);
}

/// A hundred snapshots in a row are quick only if the catalog's flushes are shared; here only their
/// order is checked.
#[tokio::test]
async fn jobs_of_one_volume_keep_their_order() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 10, QosType::Auto)).await;
    bench.done(volume("v", "p", 1)).await;
    let mut tasks = Vec::new();
    for n in 0..50 {
        let control = Arc::clone(&bench.control);
        let snapshot = vol("v").snapshot(&format!("s{n:02}"));
        let take = Mutation::CreateSnapshot(snapshot, Default::default());
        // Accepted in this order: each task runs until it waits for the catalog before the next
        // begins.
        tasks.push(tokio::spawn(async move {
            control.submit(take, &Actor::local()).await.unwrap()
        }));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().outcome, Some(Outcome::Done));
    }
    let view = bench.control.view();
    let key = view.volume(&vol("v")).unwrap().key.to_string();
    let log = bench
        .control
        .audit(None, 100, &Actor::local())
        .await
        .unwrap();
    let accepted: Vec<String> = log
        .iter()
        .rev()
        .filter_map(|entry| entry.target.rsplit_once("/snapshots/"))
        .map(|(_, id)| id.to_owned())
        .collect();
    let taken: Vec<String> = bench.node.list_volumes()[&key]
        .snapshots
        .iter()
        .map(|s| s.name.clone())
        .collect();
    assert_eq!(taken.len(), 50);
    assert_eq!(taken, accepted);
}
