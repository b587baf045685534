//! Export paths: the same share name as often as users choose it.

use super::*;
use crate::State;

fn instance_in(place: &Place, id: &str, share: &str) -> Mutation {
    let new = NewVolume {
        presentation: Presentation::of_tier("BASIC_HDD"),
        share_name: share.to_owned(),
        capacity_gib: 1024,
        ..NewVolume::default()
    };
    Mutation::CreateVolume(place.instance(id), new)
}

fn volume_of(id: &str, share: &str) -> Mutation {
    let new = NewVolume {
        share_name: share.to_owned(),
        ..new_volume(id, "p", 1)
    };
    Mutation::CreateVolume(vol(id), new)
}

/// Returns the paths that the node exports a volume at, in order.
fn exported(bench: &Bench, key: &str) -> Vec<String> {
    let published = bench.node.published().unwrap();
    let mut exports = published.exports.iter();
    exports.find(|e| e.key == key).unwrap().paths.clone()
}

fn instance_paths(bench: &Bench, place: &Place, id: &str) -> Vec<String> {
    let view = bench.control.view();
    let instance = view.volume(&place.instance(id)).unwrap();
    assert_eq!(instance.state, State::Ready);
    exported(bench, &instance.key)
}

fn volume_paths(bench: &Bench, id: &str) -> Vec<String> {
    let key = bench.control.view().volume(&vol(id)).unwrap().key.clone();
    exported(bench, &key)
}

#[tokio::test]
async fn every_instance_may_have_the_usual_share() {
    let mut bench = Bench::new().await;
    let (here, there) = (place(), Place::new("p2", "europe-west3"));
    // The first volume of a new server has /vol1.
    for id in ["one", "two"] {
        bench.done(instance_in(&here, id, "vol1")).await;
        let expected = format!("/{id}/vol1");
        assert_eq!(instance_paths(&bench, &here, id), [expected]);
    }
    // Another project has its own `one`.
    bench.done(instance_in(&there, "one", "vol1")).await;
    let long = "/p2/europe-west3/one/vol1";
    assert_eq!(instance_paths(&bench, &there, "one"), [long]);
    // The short path goes to the first resource that requests it while it is free, and stays.
    bench.done(instance_in(&here, "three", "share")).await;
    bench.done(instance_in(&here, "four", "share")).await;
    let three = ["/three/share", "/share"];
    assert_eq!(instance_paths(&bench, &here, "three"), three);
    assert_eq!(instance_paths(&bench, &here, "four"), ["/four/share"]);
    // An instance with the name of its share has the path that clients construct.
    bench.done(instance_in(&here, "same", "same")).await;
    assert_eq!(instance_paths(&bench, &here, "same"), ["/same"]);

    bench.restart(2).await;
    assert_eq!(instance_paths(&bench, &here, "three"), three);
    let gone = Mutation::DeleteVolume {
        name: here.instance("three"),
        force: false,
    };
    bench.done(gone).await;
    bench.done(instance_in(&here, "five", "share")).await;
    let five = ["/five/share", "/share"];
    assert_eq!(instance_paths(&bench, &here, "five"), five);
    assert_eq!(instance_paths(&bench, &here, "four"), ["/four/share"]);
}

#[tokio::test]
async fn no_volumes_path_is_taken_away_or_shadowed() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1000, QosType::Auto)).await;
    bench.done(volume_of("v", "vol1")).await;
    assert_eq!(volume_paths(&bench, "v"), ["/v/vol1"]);
    bench.done(volume_of("w", "data")).await;
    assert_eq!(volume_paths(&bench, "w"), ["/data"]);
    // Paths below or above a taken path are not free.
    bench.done(instance_in(&place(), "data", "x")).await;
    let below = ["/p1/us-central1/data/x", "/x"];
    assert_eq!(instance_paths(&bench, &place(), "data"), below);
    bench.done(volume_of("above", "v")).await;
    assert_eq!(volume_paths(&bench, "above"), ["/above/v"]);

    // If nothing is left, the refusal names the tried paths.
    bench.done(volume_of("p", "p2")).await;
    let other = Place::new("p2", "l");
    bench.done(instance_in(&place(), "i", "s")).await;
    let refusal = bench.refused(instance_in(&other, "i", "s")).await;
    assert_eq!(refusal.reason, "SHARE_NAME_TAKEN");
    assert!(refusal.message.contains("/p2/l/i/s"), "{refusal}");
}
