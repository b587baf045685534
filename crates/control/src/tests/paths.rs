//! Export paths: the same share name as often as users choose it.

use super::*;
use crate::State;
use weir_base::network::AddressBlock;

fn instance_in(place: &LocationName, id: &str, share: &str) -> Mutation {
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

fn instance_paths(bench: &Bench, place: &LocationName, id: &str) -> Vec<String> {
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
async fn an_instance_whose_clients_would_mount_another_volume_is_refused() {
    let mut bench = Bench::new().await;
    let (here, there) = (place(), LocationName::new("p2", "europe-west3"));
    // The first volume of a new server has /vol1.
    let refusal = bench.refused(instance_in(&here, "one", "vol1")).await;
    assert_eq!(refusal.reason, "SHARE_NAME_TAKEN");
    for part in ["/vol1", "volumes/vol1", "--instance-addresses"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    bench.done(instance_in(&here, "three", "share")).await;
    let three = ["/three/share", "/share"];
    assert_eq!(instance_paths(&bench, &here, "three"), three);
    for other in [&here, &there] {
        let refusal = bench.refused(instance_in(other, "four", "share")).await;
        assert!(refusal.message.contains("instances/three"), "{refusal}");
    }
    // An instance with the name of its share has the path that clients construct alone.
    bench.done(instance_in(&here, "same", "same")).await;
    assert_eq!(instance_paths(&bench, &here, "same"), ["/same"]);

    bench.restart(2).await;
    assert_eq!(instance_paths(&bench, &here, "three"), three);
    bench.done(delete(&here, "three")).await;
    bench.done(instance_in(&here, "five", "share")).await;
    let five = ["/five/share", "/share"];
    assert_eq!(instance_paths(&bench, &here, "five"), five);
}

fn delete(place: &LocationName, id: &str) -> Mutation {
    Mutation::DeleteVolume {
        name: place.instance(id),
        force: false,
    }
}

/// Returns where clients find an instance: its address and its path there.
fn home(bench: &Bench, place: &LocationName, id: &str) -> Option<(String, String)> {
    let key = bench
        .control
        .view()
        .volume(&place.instance(id))?
        .key
        .clone();
    let published = bench.node.published()?;
    let spec = published.exports.iter().find(|e| e.key == *key)?;
    let (address, path) = spec.home.clone()?;
    Some((address.to_string(), path))
}

#[tokio::test]
async fn instances_have_addresses_of_their_own_and_may_all_have_the_usual_share() {
    let mut bench = Bench::new().await;
    let addresses: AddressBlock = "10.9.0.0/30".parse().unwrap();
    bench.restart_with(2, Some(addresses)).await;
    let (here, there) = (place(), LocationName::new("p2", "europe-west3"));
    bench.done(instance_in(&here, "one", "vol1")).await;
    bench.done(instance_in(&there, "one", "vol1")).await;
    let at = |address: &str| Some((address.to_owned(), "/vol1".to_owned()));
    assert_eq!(home(&bench, &here, "one"), at("10.9.0.1"));
    assert_eq!(home(&bench, &there, "one"), at("10.9.0.2"));
    // At the server's address there is no /vol1 of theirs.
    assert_eq!(instance_paths(&bench, &here, "one"), ["/one/vol1"]);
    let long = ["/p2/europe-west3/one/vol1"];
    assert_eq!(instance_paths(&bench, &there, "one"), long);
    let refusal = bench.refused(instance_in(&here, "two", "vol1")).await;
    assert_eq!(refusal.reason, "NO_ADDRESS");
    assert!(refusal.message.contains("10.9.0.0/30"), "{refusal}");

    // They stay over a restart, also one that has no addresses for instances.
    for (seed, addresses) in [(3, Some(addresses)), (4, None), (5, Some(addresses))] {
        bench.restart_with(seed, addresses).await;
        assert_eq!(home(&bench, &there, "one"), at("10.9.0.2"));
    }
    bench.done(delete(&here, "one")).await;
    bench.done(instance_in(&here, "two", "vol1")).await;
    assert_eq!(home(&bench, &here, "two"), at("10.9.0.1"));
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
}

#[tokio::test]
async fn if_no_path_is_left_the_refusal_names_those_tried() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1000, QosType::Auto)).await;
    bench.done(volume_of("z", "p1")).await;
    bench.done(instance_in(&place(), "i", "s")).await;
    let refusal = bench.refused(volume_of("i", "s")).await;
    assert_eq!(refusal.reason, "SHARE_NAME_TAKEN");
    let tried = "/p1/us-central1/i/s";
    assert!(refusal.message.contains(tried), "{refusal}");
}
