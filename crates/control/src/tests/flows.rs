//! Workflows of users, from end to end.

use super::*;
use crate::{NewSnapshot, PoolChange, State, Status, Surface, VolumeChange, Within};

#[tokio::test]
async fn the_first_start_makes_a_pool_and_a_volume() {
    let mut bench = Bench::new().await;
    let view = bench.control.view();
    let vol1 = view.volume(&LocationName::local().volume("vol1")).unwrap();
    assert_eq!(vol1.state, State::Ready);
    assert_eq!(&*vol1.share_name, "vol1");
    let made = bench.node.list_volumes();
    assert_eq!(made.len(), 1);
    assert_eq!(made[&*vol1.key].capacity, None, "the whole device");
    let published = bench.node.published().unwrap();
    assert_eq!(published.exports.len(), 1);
    assert_eq!(published.exports[0].paths, ["/vol1"]);
    assert_eq!(published.plan.volumes[0].limits.total.bytes, None);

    bench
        .done(Mutation::DeleteVolume {
            name: LocationName::local().volume("vol1"),
            force: false,
        })
        .await;
    assert!(bench.node.list_volumes().is_empty());
    bench.restart(2).await;
    assert_eq!(
        bench.control.view().volume_count(),
        0,
        "made once, not again"
    );
}

#[tokio::test]
async fn volumes_of_an_older_program_are_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let node = SimBackend::new();
    node.put("vol1", 5);
    let control = open(&url_in(folder.path()), &node, 1).await.unwrap();
    let view = control.view();
    let vol1 = view.volume(&LocationName::local().volume("vol1")).unwrap();
    assert_eq!(
        (&*vol1.key, vol1.number, vol1.state),
        ("vol1", Some(1), State::Ready)
    );
    assert_eq!(node.list_volumes().len(), 1);
    assert_eq!(node.published().unwrap().exports[0].paths, ["/vol1"]);
    let used = control.volumes_used(std::iter::once(&**vol1)).await;
    assert_eq!(used, [5]);
}

#[tokio::test]
async fn a_volume_from_cradle_to_grave() {
    cradle_to_grave(&mut Bench::new().await).await;
}

pub async fn cradle_to_grave(bench: &mut Bench) {
    bench
        .done(pool("mq", "PREMIUM", 40_960, QosType::Manual))
        .await;
    bench
        .done(pool("std", "STANDARD", 10_240, QosType::Auto))
        .await;
    let new = given(128.0, new_volume("v1", "mq", 1024));
    bench.done(Mutation::CreateVolume(vol("v1"), new)).await;

    let limit = |bench: &Bench| {
        let published = bench.node.published().unwrap();
        let plan = published
            .plan
            .volumes
            .iter()
            .find(|v| v.name.ends_with("/v1"));
        plan.map(|plan| (plan.limits.total.bytes.unwrap(), plan.source.to_string()))
    };
    assert_eq!(
        limit(bench).unwrap(),
        (128 << 20, "PREMIUM, manual: 128 MiB/s".to_owned())
    );
    let view = bench.control.view();
    let figures = view.pool_figures(view.pool(&name("mq")).unwrap());
    assert_eq!(figures.total_throughput_mibps, Some(2560.0));
    assert_eq!(figures.available_throughput_mibps, Some(2432.0));

    let retune = VolumeChange {
        throughput_mibps: Some(256.0),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("v1"), retune)).await;
    assert_eq!(limit(bench).unwrap().0, 256 << 20);
    let grow = VolumeChange {
        capacity_gib: Some(2048),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("v1"), grow)).await;
    let key = bench
        .control
        .view()
        .volume(&vol("v1"))
        .unwrap()
        .key
        .to_string();
    assert_eq!(bench.node.list_volumes()[&key].capacity, Some(2048 << 30));
    let move_ = VolumeChange {
        pool: Some("std".to_owned()),
        capacity_gib: Some(3072),
        ..VolumeChange::default()
    };
    bench.done(Mutation::UpdateVolume(vol("v1"), move_)).await;
    assert_eq!(
        limit(bench).unwrap(),
        (48 << 20, "STANDARD: 16 MiB/s per TiB × 3 TiB".to_owned())
    );
    let view = bench.control.view();
    assert_eq!(view.pool_use(&name("mq")), crate::PoolUse::default());
    assert_eq!(view.pool_use(&name("std")).capacity_gib, 3072);

    let snapshot = |id: &str| vol("v1").snapshot(id);
    for id in ["s1", "s2"] {
        bench
            .done(Mutation::CreateSnapshot(
                snapshot(id),
                NewSnapshot::default(),
            ))
            .await;
    }
    bench
        .done(Mutation::RevertVolume {
            name: vol("v1"),
            snapshot: "s1".to_owned(),
        })
        .await;
    let view = bench.control.view();
    assert!(view.snapshot(&snapshot("s1")).is_some());
    assert!(
        view.snapshot(&snapshot("s2")).is_none(),
        "went with the revert"
    );

    bench.restart(2).await;
    let after = bench.control.view();
    assert_eq!(after.volume(&vol("v1")), view.volume(&vol("v1")));
    let refusal = bench.refused(Mutation::DeletePool(name("std"))).await;
    assert_eq!(
        (refusal.status, &*refusal.reason),
        (Status::FailedPrecondition, "POOL_HAS_VOLUMES")
    );
    let delete = |force| Mutation::DeleteVolume {
        name: vol("v1"),
        force,
    };
    assert_eq!(bench.refused(delete(false)).await.reason, "HAS_SNAPSHOTS");
    bench.done(delete(true)).await;
    assert!(!bench.node.list_volumes().contains_key(&key));
    assert!(limit(bench).is_none());
    bench.done(Mutation::DeletePool(name("std"))).await;
    assert!(bench.control.view().snapshot(&snapshot("s1")).is_none());
}

#[tokio::test]
async fn a_pool_becomes_manual_with_what_its_volumes_had() {
    let bench = Bench::new().await;
    bench
        .done(pool("p", "EXTREME", 204_800, QosType::Auto))
        .await;
    for (id, tib) in [("a", 1), ("b", 2), ("c", 50)] {
        bench.done(volume(id, "p", tib * 1024)).await;
    }
    let manual = PoolChange {
        qos_type: Some(QosType::Manual),
        ..PoolChange::default()
    };
    bench.done(Mutation::UpdatePool(name("p"), manual)).await;
    let view = bench.control.view();
    let given = |id: &str| view.volume(&vol(id)).unwrap().throughput_mibps();
    assert_eq!(given("a"), Some(128.0));
    assert_eq!(given("b"), Some(256.0));
    assert_eq!(given("c"), Some(4608.0), "the cap of 4.5 GiB/s");
    let figures = view.pool_figures(view.pool(&name("p")).unwrap());
    assert_eq!(figures.total_throughput_mibps, Some(25_600.0));
    assert_eq!(figures.available_throughput_mibps, Some(25_600.0 - 4992.0));
    let auto = PoolChange {
        qos_type: Some(QosType::Auto),
        ..PoolChange::default()
    };
    let refusal = bench.refused(Mutation::UpdatePool(name("p"), auto)).await;
    assert_eq!(refusal.reason, "QOS_MANUAL_TO_AUTO");
}

#[tokio::test]
async fn lists_are_ordered_and_paged() {
    let bench = Bench::new().await;
    bench
        .done(pool("p", "PREMIUM", 10_240, QosType::Auto))
        .await;
    for id in ["c", "a", "b", "aa"] {
        bench.done(volume(id, "p", 1)).await;
    }
    let view = bench.control.view();
    let place = place();
    let ids = |part: &Within<'_>| -> Vec<String> {
        view.volumes(Surface::Netapp, part)
            .map(|v| v.name.id.to_string())
            .collect()
    };
    assert_eq!(ids(&Within::place(&place)), ["a", "aa", "b", "c"]);
    let after = name("aa");
    let rest = Within {
        after: Some(&after),
        ..Within::place(&place)
    };
    assert_eq!(ids(&rest), ["b", "c"]);
    let all = Within {
        project: "p1",
        location: "-",
        after: Some(&after),
    };
    assert_eq!(ids(&all), ["b", "c"]);
    let other = Within {
        project: "p2",
        location: "-",
        after: None,
    };
    assert!(ids(&other).is_empty());
    let of_pool: Vec<_> = view
        .volumes_of(&name("p"))
        .map(|v| v.name.id.to_string())
        .collect();
    assert_eq!(of_pool, ["a", "aa", "b", "c"]);
}

/// Replication paths have no location.
#[tokio::test]
async fn a_path_names_a_volume_in_whatever_location() {
    use weir_relations::model::Path;
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    let elsewhere = LocationName::new("p1", "elsewhere");
    let new = NewPool {
        service_level: "PREMIUM".to_owned(),
        capacity_gib: 1024,
        ..NewPool::default()
    };
    bench
        .done(Mutation::CreatePool(elsewhere.name("p"), new))
        .await;
    let locations = |path: &Path| -> Vec<String> {
        let location = |v: &Arc<crate::Volume>| v.name.place.location.to_string();
        match bench.control.view().volume_at(path) {
            Ok(found) => found.map(location).into_iter().collect(),
            Err(both) => both.map(location).to_vec(),
        }
    };
    let path = Path::local("p1", "v");
    assert_eq!(locations(&path), Vec::<String>::new());
    // Neither another id with the same prefix, nor an instance, nor another project's volume.
    bench.done(volume("v1", "p", 1)).await;
    let instance = NewVolume {
        presentation: Presentation::of_tier("BASIC_HDD"),
        share_name: "fs".to_owned(),
        capacity_gib: 1024,
        ..NewVolume::default()
    };
    bench
        .done(Mutation::CreateVolume(inst("v"), instance))
        .await;
    assert_eq!(locations(&path), Vec::<String>::new());
    bench.done(volume("v", "p", 1)).await;
    assert_eq!(locations(&path), ["us-central1"]);
    let other = Mutation::CreateVolume(elsewhere.volume("v"), new_volume("w", "p", 1));
    bench.done(other).await;
    assert_eq!(locations(&path), ["elsewhere", "us-central1"]);
    let far = Path {
        cluster: "far".to_owned(),
        ..path.clone()
    };
    assert_eq!(locations(&far), Vec::<String>::new());
    let gone = Mutation::DeleteVolume {
        name: vol("v"),
        force: true,
    };
    bench.done(gone).await;
    assert_eq!(locations(&path), ["elsewhere"]);
}
