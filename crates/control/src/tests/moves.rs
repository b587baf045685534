//! Moves of volumes from one catalog to another.

use super::*;
use crate::moves::{DepartingRows, NotArrived, arriving_key};
use crate::{HandedOver, MoveChange, NewSnapshot, Origin, State};

const ORIGIN: Origin = Origin {
    aggregate: [1; 16],
    secret: [2; 16],
    number: 7,
    fsid: 9,
};

fn to(pool: &str) -> MoveChange {
    MoveChange::Start {
        pool: Some(pool.to_owned()),
        aggregate: None,
    }
}

/// A source with volume `v1` and its snapshot, and a destination with a pool in the same place.
async fn two() -> (Bench, Bench) {
    let (a, b) = (Bench::new().await, Bench::new().await);
    a.done(pool("of-a", "PREMIUM", 4096, QosType::Auto)).await;
    b.done(pool("of-b", "PREMIUM", 2048, QosType::Auto)).await;
    let mut new = new_volume("v1", "of-a", 100);
    new.labels.insert("who".to_owned(), "me".to_owned());
    a.done(Mutation::CreateVolume(vol("v1"), new)).await;
    let snapshot = NewSnapshot {
        description: "first".to_owned(),
        ..NewSnapshot::default()
    };
    a.done(Mutation::CreateSnapshot(vol("v1").snapshot("s1"), snapshot))
        .await;
    (a, b)
}

/// Begins the move of `v1`, and returns its key and the number of the move.
async fn begin(a: &Bench) -> (String, u64) {
    let change = Mutation::MoveVolume(vol("v1"), to("of-b"));
    let begun = a.control.submit_long(change, &Actor::local()).await;
    assert!(!begun.unwrap().done(), "it ends with the move");
    let view = a.control.view();
    let volume = view.volume(&vol("v1")).unwrap();
    (volume.key.to_string(), volume.moving.as_ref().unwrap().id)
}

#[tokio::test]
async fn a_volume_arrives_with_what_it_has_and_departs() {
    let (mut a, mut b) = two().await;
    let (key, id) = begin(&a).await;
    let departing = a.control.departing(&key).unwrap();
    b.control.may_arrive(&departing, Some("of-b")).unwrap();
    b.control.create_copy(id, Some(100 << 30)).await.unwrap();
    let copied = a.node.list_volumes()[&key].snapshots.clone();
    b.node.snapshots_mut(&arriving_key(id), |all| *all = copied);
    let over = HandedOver {
        attempt: 5,
        to: [3; 16],
    };
    let departing = a.control.hand_over(&key, over, 1).await.unwrap();
    let busy = Mutation::CreateSnapshot(vol("v1").snapshot("s2"), NewSnapshot::default());
    assert_eq!(a.refused(busy).await.reason, "RESOURCE_BUSY");
    // A start finds it as it was.
    a.restart(2).await;
    let view = a.control.view();
    let moving = view.volume(&vol("v1")).unwrap().moving.clone();
    assert_eq!(moving.unwrap().handed_over, Some(over));

    let text = serde_json::to_string(&departing).unwrap();
    let departing: DepartingRows = serde_json::from_str(&text).unwrap();
    assert!(!b.control.has_arrived(&place(), 5));
    let how = (Some("of-b"), ORIGIN);
    b.control.arrive(&departing, id, 5, how).await.unwrap();
    b.restart(3).await;
    assert!(b.control.has_arrived(&place(), 5) && !b.control.has_arrived(&place(), 6));
    let view = b.control.view();
    let there = view.volume(&vol("v1")).unwrap();
    assert_eq!(
        (there.state, &*there.key),
        (State::Ready, &*arriving_key(id))
    );
    assert_eq!(there.labels["who"], "me");
    assert_eq!((there.origin, &there.moving), (Some(ORIGIN), &None));
    assert_eq!(there.pool(), Some(name("of-b")));
    let snapshot = view.snapshot(&vol("v1").snapshot("s1")).unwrap();
    assert_eq!(snapshot.description, "first");
    let exports = b.node.published().unwrap().exports;
    let export = exports.iter().find(|e| e.paths == ["/share-v1"]).unwrap();
    assert_eq!(export.origin, Some(ORIGIN));

    a.control.departed(&key).await.unwrap();
    assert!(a.control.view().volume(&vol("v1")).is_none());
    assert!(!a.node.list_volumes().contains_key(&key));
    a.restart(4).await;
    assert!(a.control.view().volume(&vol("v1")).is_none());
}

#[tokio::test]
async fn a_volume_stays_that_cannot_arrive() {
    let (a, b) = two().await;
    let (key, id) = begin(&a).await;
    let again = a.refused(Mutation::MoveVolume(vol("v1"), to("of-b"))).await;
    assert_eq!(again.reason, "RESOURCE_BUSY");
    let departing = a.control.departing(&key).unwrap();
    let why = b.control.may_arrive(&departing, Some("none")).unwrap_err();
    assert!(why.message.contains("no storage pool none"), "{why}");
    b.done(volume("other", "of-b", 2000)).await;
    let why = b.control.may_arrive(&departing, None).unwrap_err();
    assert_eq!(why.reason, "POOL_CAPACITY_EXCEEDED");
    b.done(Mutation::DeleteVolume {
        name: vol("other"),
        force: true,
    })
    .await;
    let mut taken = new_volume("taken", "of-b", 100);
    taken.share_name = "share-v1".to_owned();
    b.done(Mutation::CreateVolume(vol("taken"), taken)).await;
    b.control.create_copy(id, None).await.unwrap();
    let over = HandedOver {
        attempt: 5,
        to: [3; 16],
    };
    let late = a.control.hand_over(&key, over, 0).await.unwrap_err();
    assert!(late.message.contains("newer than the copy"), "{late}");
    let departing = a.control.hand_over(&key, over, 1).await.unwrap();
    let refused = b.control.arrive(&departing, id, 5, (None, ORIGIN)).await;
    assert!(matches!(refused, Err(NotArrived::Refused(why)) if why.reason == "SHARE_NAME_TAKEN"));
    assert!(!b.control.has_arrived(&place(), 5));
    assert!(b.control.view().volume(&vol("v1")).is_none());
    b.control.drop_copy(id).await;
    assert!(!b.node.list_volumes().contains_key(&arriving_key(id)));
    a.control.take_back(&key, 5).await.unwrap();
    a.control.end_move(&key, "it is taken").await.unwrap();
    let view = a.control.view();
    let here = view.volume(&vol("v1")).unwrap();
    assert_eq!((here.state, &here.moving), (State::Ready, &None));
    assert!(here.state_details.contains("it is taken"));
    // Aborted by its user.
    begin(&a).await;
    a.done(Mutation::MoveVolume(vol("v1"), MoveChange::Abort))
        .await;
    let none = a
        .refused(Mutation::MoveVolume(vol("v1"), MoveChange::Abort))
        .await;
    assert_eq!(none.reason, "VOLUME_DOES_NOT_MOVE");
}

#[tokio::test]
async fn volumes_that_depend_on_others_do_not_move() {
    let (a, _) = two().await;
    let mut copy = new_volume("copy", "of-a", 100);
    copy.clone_of = Some(vol("v1").snapshot("s1"));
    a.done(Mutation::CreateVolume(vol("copy"), copy)).await;
    let mut smb = new_volume("smb", "of-a", 100);
    smb.protocols = vec![Protocol::Smb];
    a.done(Mutation::CreateVolume(vol("smb"), smb)).await;
    for (id, why) in [("v1", "clones of it"), ("copy", "a clone"), ("smb", "SMB")] {
        let refusal = a.refused(Mutation::MoveVolume(vol(id), to("of-b"))).await;
        assert!(refusal.message.contains(why), "{refusal}");
    }
    let here = a.refused(Mutation::MoveVolume(vol("v1"), to("of-a"))).await;
    assert_eq!(here.reason, "POOL_IN_SAME_AGGREGATE");
}
