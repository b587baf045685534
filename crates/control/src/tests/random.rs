//! Random mutations against a separate model: the guarantees of the rules hold after each, and the
//! catalog after a restart equals the view before it.

use super::*;
use crate::{NewSnapshot, PoolChange, Resource, Surface, View, VolumeChange, Within};
use weir_base::Rng;

const STEPS: usize = 150;
const MIB: f64 = 1_048_576.0;

pub(super) fn pick<'a>(rng: &SeededRng, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

const POOLS: &[&str] = &["p0", "p1", "p2"];
const VOLUMES: &[&str] = &["v0", "v1", "v2", "v3", "v4", "v5"];
const LEVELS: &[&str] = &["STANDARD", "PREMIUM", "EXTREME", "FLEX", "UNLIMITED"];

pub(super) fn maybe<T>(rng: &SeededRng, one_in: u64, value: impl FnOnce() -> T) -> Option<T> {
    (rng.below(one_in) == 0).then(value)
}

pub(super) fn random(rng: &SeededRng) -> Mutation {
    let gib = || [1, 100, 512, 1024, 2048, 10_240][rng.below(6) as usize];
    let mibps = || [0.5, 16.0, 64.0, 100.25, 640.0, 5000.0][rng.below(6) as usize];
    let volume = vol(pick(rng, VOLUMES));
    let pool = pick(rng, POOLS);
    let snapshot = volume.snapshot(pick(rng, &["s0", "s1"]));
    match rng.below(20) {
        0..=2 => {
            let qos = if rng.below(2) == 0 {
                QosType::Auto
            } else {
                QosType::Manual
            };
            super::pool(pool, pick(rng, LEVELS), gib() * 2, qos)
        }
        3..=4 => {
            let change = PoolChange {
                capacity_gib: maybe(rng, 2, gib),
                qos_type: maybe(rng, 3, || QosType::Manual),
                service_level: maybe(rng, 6, || pick(rng, LEVELS).to_owned()),
                ..PoolChange::default()
            };
            Mutation::UpdatePool(name(pool), change)
        }
        5 => Mutation::DeletePool(name(pool)),
        6..=9 => {
            let mut new = new_volume(&volume.id, pool, gib());
            pooled(&mut new).throughput_mibps = maybe(rng, 2, mibps);
            Mutation::CreateVolume(volume, new)
        }
        10..=13 => {
            let change = VolumeChange {
                pool: maybe(rng, 3, || pool.to_owned()),
                capacity_gib: maybe(rng, 2, gib),
                throughput_mibps: maybe(rng, 2, mibps),
                ..VolumeChange::default()
            };
            Mutation::UpdateVolume(volume, change)
        }
        14 => Mutation::DeleteVolume {
            name: volume,
            force: rng.below(2) == 0,
        },
        15..=16 => Mutation::CreateSnapshot(snapshot, NewSnapshot::default()),
        17 => Mutation::DeleteSnapshot(snapshot),
        18 => Mutation::RevertVolume {
            name: volume,
            snapshot: "s0".to_owned(),
        },
        _ => {
            let new = NewVolume {
                presentation: Presentation::of_tier("BASIC_HDD"),
                share_name: "fs".to_owned(),
                capacity_gib: 1024,
                ..NewVolume::default()
            };
            match rng.below(2) {
                0 => Mutation::CreateVolume(inst("i"), new),
                _ => Mutation::DeleteVolume {
                    name: inst("i"),
                    force: true,
                },
            }
        }
    }
}

/// Asserts the properties of a view, computed from the resources alone.
fn holds(view: &View, context: &str) {
    let place = place();
    for pool in view.pools(&Within::place(&place)) {
        let of_pool: Vec<_> = view
            .volumes(Surface::Netapp, &Within::place(&place))
            .filter(|volume| volume.pool().as_ref() == Some(&pool.name))
            .collect();
        let capacity: u64 = of_pool.iter().map(|v| v.capacity_gib).sum();
        let taken = view.pool_use(&pool.name);
        assert_eq!(
            taken.volumes,
            of_pool.len() as u64,
            "{context}: {}",
            pool.name.id
        );
        assert_eq!(taken.capacity_gib, capacity, "{context}: {}", pool.name.id);
        let listed: Vec<_> = view.volumes_of(&pool.name).collect();
        assert_eq!(listed, of_pool, "{context}");
        let level = view.levels.pool(&pool.service_level).unwrap();
        if !level.overcommit {
            assert!(capacity <= pool.capacity_gib, "{context}: {pool:?}");
        }
        // The pool's throughput, computed from its capacity in another way than the rules do.
        let total = level
            .mibps_per_tib
            .map(|rate| rate * pool.capacity_gib as f64 / 1024.0);
        if pool.qos_type == QosType::Manual {
            let given: f64 = of_pool.iter().map(|v| v.throughput_mibps().unwrap()).sum();
            // Each sum is rounded down to whole bytes.
            assert!(
                given <= total.unwrap() + 1e-3,
                "{context}: {given} of {total:?}"
            );
            for volume in &of_pool {
                assert!(volume.throughput_mibps().unwrap() <= 4608.0, "{context}");
            }
        } else {
            assert!(
                of_pool.iter().all(|v| v.throughput_mibps().is_none()),
                "{context}"
            );
            let each: f64 = of_pool
                .iter()
                .filter_map(|v| view.volume_throughput(v))
                .map(|bytes| bytes as f64 / MIB)
                .sum();
            if let Some(total) = total {
                let shared = level.follows == crate::levels::Follows::Pool;
                assert!(
                    shared || each <= total + 1e-3,
                    "{context}: {each} of {total}"
                );
            }
        }
    }
    let volumes = view.volumes.values().flat_map(|v| v.paths.clone());
    let mut paths: Vec<_> = volumes.collect();
    paths.sort_unstable();
    assert!(view.exports.keys().eq(&paths), "{context}");
    let below = paths.windows(2).find(|pair| match pair {
        [a, b] => b.starts_with(&format!("{a}/")),
        _ => false,
    });
    assert_eq!(below, None, "{context}: no path is below another");
}

fn same(a: &View, b: &View, context: &str) {
    assert!(a.pools.values().eq(b.pools.values()), "{context}: pools");
    assert!(
        a.volumes.values().eq(b.volumes.values()),
        "{context}: volumes"
    );
    assert!(
        a.snapshots.values().eq(b.snapshots.values()),
        "{context}: snapshots"
    );
    assert!(
        a.operations.values().eq(b.operations.values()),
        "{context}: operations"
    );
    assert!(a.exports.iter().eq(b.exports.iter()), "{context}: paths");
    assert!(a.members.keys().eq(b.members.keys()), "{context}: members");
    let used = |view: &View| -> Vec<_> {
        let uses = view.uses.iter().filter(|(_, u)| u.volumes > 0);
        uses.map(|(n, u)| (n.clone(), *u)).collect()
    };
    assert_eq!(used(a), used(b), "{context}: uses");
}

/// Checks that a preview shows the limits that the change has brought into force.
pub(super) fn foretold(preview: &View, after: &View, mutation: &Mutation, context: &str) {
    let (Some(Resource::Volume(then)), Some(Resource::Volume(now))) = (
        preview.resource(&mutation.target()),
        after.resource(&mutation.target()),
    ) else {
        return;
    };
    assert_eq!(then.capacity_gib, now.capacity_gib, "{context}");
    assert_eq!(
        preview.volume_throughput(&then),
        after.volume_throughput(&now),
        "{context}"
    );
    assert_eq!(
        crate::rules::limit_source(preview, &then),
        crate::rules::limit_source(after, &now),
        "{context}"
    );
    let left = |view: &View, volume| view.pool_of(volume).map(|pool| view.pool_figures(pool));
    assert_eq!(left(preview, &then), left(after, &now), "{context}");
}

pub async fn keeps_the_rules(bench: &mut Bench, seed: u64) {
    let rng = SeededRng::new(seed);
    let mut accepted = 0;
    for step in 0..STEPS {
        let mutation = random(&rng);
        let context = format!("seed {seed}, step {step}, {mutation:?}");
        let before = bench.control.view();
        let preview = bench.control.preview(&mutation, &Actor::local()).await;
        assert_eq!(bench.control.view().revision, before.revision, "{context}");
        let submitted = bench.submit(mutation.clone()).await;
        assert_eq!(
            preview.as_ref().err(),
            submitted.as_ref().err(),
            "validateOnly: {context}"
        );
        if let Ok(operation) = submitted {
            foretold(
                &preview.unwrap(),
                &bench.control.view(),
                &mutation,
                &context,
            );
            assert!(
                matches!(operation.outcome, Some(Outcome::Done | Outcome::Deleted)),
                "{context}: {operation:?}"
            );
            accepted += 1;
        }
        let view = bench.control.view();
        holds(&view, &context);
        crash::sound(&view, &bench.node, &context);
    }
    assert!(
        accepted > STEPS / 8,
        "seed {seed}: only {accepted} were accepted"
    );
    let before = bench.control.view();
    bench.restart(seed + 1000).await;
    same(&before, &bench.control.view(), &format!("seed {seed}"));
}

#[tokio::test]
async fn any_sequence_of_mutations_keeps_the_rules() {
    for seed in 1..=8 {
        keeps_the_rules(&mut Bench::new().await, seed).await;
    }
}
