//! Kills the control plane at every step: in each call to the node and in each transaction, before
//! its effect and after it.
//!
//! The control plane runs on a runtime of its own, which is torn down at that point. Another one
//! then opens the same catalog over the same node. Acknowledged changes have to be there; changes
//! in progress have to be there entirely or not at all; nothing may be left half done; and the rest
//! of the work has to succeed.

use super::*;
use crate::{NewSnapshot, PoolChange, State, Surface, View, VolumeChange, Within};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Stops of catalogs: by URL, the number of transactions until the stop, and true to stop after
/// writing.
static TRIPS: Mutex<BTreeMap<String, (u64, bool)>> = Mutex::new(BTreeMap::new());
static TRIPPED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Called by the writer around each transaction.
pub async fn at_commit(url: &str, after: bool) {
    let stop = {
        let mut trips = TRIPS.lock();
        match trips.get_mut(url) {
            Some((left, when)) if *when == after => {
                let stop = *left == 0;
                *left = left.saturating_sub(1);
                stop
            }
            _ => false,
        }
    };
    if stop {
        TRIPPED.lock().insert(url.to_owned());
        std::future::pending::<()>().await;
    }
}

/// Returns the mutations, in order. Each depends on those before it.
fn work() -> Vec<Mutation> {
    let snapshot = |id: &str| vol("v1").snapshot(id);
    let take = |id: &str| Mutation::CreateSnapshot(snapshot(id), NewSnapshot::default());
    let instance = NewVolume {
        presentation: Presentation::of_tier("BASIC_HDD"),
        share_name: "fs".to_owned(),
        capacity_gib: 1024,
        ..NewVolume::default()
    };
    let grow = VolumeChange {
        capacity_gib: Some(2048),
        ..VolumeChange::default()
    };
    vec![
        pool("p", "PREMIUM", 10_240, QosType::Auto),
        volume("v1", "p", 1024),
        Mutation::UpdatePool(
            name("p"),
            PoolChange {
                qos_type: Some(QosType::Manual),
                ..PoolChange::default()
            },
        ),
        Mutation::UpdateVolume(
            vol("v1"),
            VolumeChange {
                capacity_gib: Some(2048),
                throughput_mibps: Some(100.0),
                unix_permissions: Some(0o700),
                ..VolumeChange::default()
            },
        ),
        take("s1"),
        take("s2"),
        Mutation::RevertVolume {
            name: vol("v1"),
            snapshot: "s1".to_owned(),
        },
        take("s3"),
        Mutation::DeleteSnapshot(snapshot("s3")),
        Mutation::CreateVolume(inst("i1"), instance),
        Mutation::UpdateVolume(inst("i1"), grow),
        Mutation::DeleteVolume {
            name: vol("v1"),
            force: true,
        },
        Mutation::DeleteVolume {
            name: inst("i1"),
            force: false,
        },
        Mutation::DeletePool(name("p")),
    ]
}

/// Returns true if a repeated mutation may end so because the first attempt was carried out.
fn already(mutation: &Mutation, refusal: &Refusal) -> bool {
    match mutation.verb() {
        "create" => refusal.reason == "NAME_TAKEN",
        "delete" => refusal.reason == "NOT_FOUND",
        _ => false,
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[derive(Clone, Copy, Debug)]
enum KillPoint {
    Call(u64, bool),
    Commit(u64, bool),
}

/// Runs the mutations until the kill or the end. Returns the number of acknowledged ones, and true
/// if it was killed.
fn until_killed(url: &str, node: &SimBackend, at: KillPoint) -> (usize, bool) {
    TRIPPED.lock().remove(url);
    let shown = url.to_owned();
    match at {
        KillPoint::Call(calls, after) => node.stop_in(calls, after),
        KillPoint::Commit(commits, after) => {
            TRIPS.lock().insert(shown.clone(), (commits, after));
        }
    }
    let runtime = runtime();
    let acknowledged = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let done = {
        let (url, node, count) = (url.to_owned(), node.clone(), Arc::clone(&acknowledged));
        runtime.spawn(async move {
            let control = open(&url, &node, 1).await.unwrap();
            for mutation in work() {
                let operation = control.submit(mutation.clone(), &Actor::local()).await;
                let operation = operation.unwrap_or_else(|e| panic!("{mutation:?}: {e}"));
                assert!(
                    matches!(operation.outcome, Some(Outcome::Done | Outcome::Deleted)),
                    "{operation:?}"
                );
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            control.close().await;
        })
    };
    let killed = runtime.block_on(async {
        // Both are states, not events: neither can be missed.
        while !(node.stopped() || TRIPPED.lock().contains(&shown)) {
            if done.is_finished() {
                done.await.unwrap();
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        true
    });
    runtime.shutdown_background();
    TRIPS.lock().remove(&shown);
    node.revive();
    (
        acknowledged.load(std::sync::atomic::Ordering::SeqCst),
        killed,
    )
}

/// Asserts that view and engine agree.
pub fn sound(view: &View, node: &SimBackend, context: &str) {
    let engine = node.list_volumes();
    let mut known = BTreeSet::new();
    for volume in view.volumes.values() {
        assert_eq!(volume.state, State::Ready, "{context}: {volume:?}");
        let there = &engine[&*volume.key];
        assert_eq!(Some(there.number), volume.number, "{context}");
        let wanted = crate::rules::volume::capacity(view, volume);
        assert_eq!(there.capacity, wanted.bytes, "{context}");
        let names: BTreeSet<&str> = there.snapshots.iter().map(|s| s.name.as_str()).collect();
        let taken = view.snapshots(&volume.name, None);
        let taken: BTreeSet<&str> = taken.map(|s| &*s.name.id).collect();
        assert_eq!(names, taken, "{context}");
        known.insert(volume.key.to_string());
    }
    let there: BTreeSet<String> = engine.keys().cloned().collect();
    assert_eq!(
        there, known,
        "{context}: the engine has what the catalog has"
    );
    for operation in view.operations.values() {
        assert!(operation.done(), "{context}: {operation:?}");
    }
    let published = node.published().unwrap();
    let served: BTreeSet<&str> = published.exports.iter().map(|e| e.key.as_str()).collect();
    assert_eq!(
        served,
        known.iter().map(String::as_str).collect(),
        "{context}"
    );
    assert!(published.exports.is_sorted_by(|a, b| a.key < b.key));
    assert!(
        published
            .plan
            .volumes
            .is_sorted_by(|a, b| a.volume < b.volume)
    );
}

/// Kills at one place. Returns `false` if the work ended before it.
fn killed_at(at: KillPoint) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let url = url_in(folder.path());
    let node = SimBackend::new();
    let (acknowledged, killed) = until_killed(&url, &node, at);
    let all = work();
    runtime().block_on(async {
        let control = open(&url, &node, 2).await.unwrap();
        let context = format!("{at:?}, {acknowledged} acknowledged");
        sound(&control.view(), &node, &context);
        for (index, mutation) in all.iter().enumerate().skip(acknowledged) {
            match control.submit(mutation.clone(), &Actor::local()).await {
                Ok(operation) => assert!(
                    matches!(operation.outcome, Some(Outcome::Done | Outcome::Deleted)),
                    "{context}: {operation:?}"
                ),
                Err(refusal) => assert!(
                    index == acknowledged && already(mutation, &refusal),
                    "{context}: {mutation:?}: {refusal}"
                ),
            }
            sound(&control.view(), &node, &context);
        }
        let place = place();
        for surface in Surface::ALL {
            let left = control
                .view()
                .volumes(surface, &Within::place(&place))
                .count();
            assert_eq!(left, 0);
        }
        assert_eq!(control.view().pools(&Within::place(&place)).count(), 0);
        // Nothing is left over: the log has the outcome of each mutation.
        let log = control.audit(None, 1000, &Actor::local()).await.unwrap();
        let open = log
            .iter()
            .filter(|entry| entry.outcome == "started")
            .count();
        assert_eq!(open, 0, "{context}: {log:?}");
        control.close().await;
    });
    killed
}

fn sweep(kind: impl Fn(u64, bool) -> KillPoint) {
    let mut places = 0;
    for after in [false, true] {
        for n in 0.. {
            if !killed_at(kind(n, after)) {
                break;
            }
            places += 1;
        }
    }
    assert!(places > 40, "{places} places");
}

#[test]
fn killed_in_every_call_to_the_node() {
    sweep(KillPoint::Call);
}

#[test]
fn killed_in_every_transaction() {
    sweep(KillPoint::Commit);
}

#[test]
fn a_crash_at_the_very_start_leaves_a_catalog_that_starts() {
    for after in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let url = url_in(folder.path());
        let node = SimBackend::new();
        let (acknowledged, killed) = until_killed(&url, &node, KillPoint::Commit(0, after));
        assert_eq!((acknowledged, killed), (0, true));
        runtime().block_on(async {
            let control = open(&url, &node, 2).await.unwrap();
            sound(&control.view(), &node, "first start");
            let vol1 = LocationName::local().volume("vol1");
            assert!(control.view().volume(&vol1).is_some(), "{vol1}");
            control.close().await;
        });
    }
}
