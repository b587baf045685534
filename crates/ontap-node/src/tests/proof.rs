//! Proof that a transfer reported as done is done: copies equal their sources, whatever happened
//! before, and copies that differ are discarded.

use weir_transfer::batch::Forgery;
use weir_transfer::pipe::Forger;

use super::*;

/// Identities of volumes of one aggregate, and of two, differ in a few low bits only, and so do
/// those of a volume's snapshots.
#[test]
fn a_resync_leaves_nothing_of_the_copys_own() {
    let (near, far) = (Station::new(20), Station::new(21));
    pair(&near, &far);
    for (source, from) in [(&near, "SVM:a"), (&far, "far://SVM/a")] {
        let to = match from {
            "SVM:a" => "b",
            _ => {
                near.volume("b2", true);
                "b2"
            }
        };
        let path = format!("SVM:{to}");
        source.put("a", "first", &noise(1, 100_000));
        for n in 1..=6 {
            source.does(&format!(
                "snapshot create -vserver SVM -volume a -snapshot s{n}"
            ));
        }
        near.does(&format!(
            "snapmirror create -source-path {from} -destination-path {path} -policy MirrorAllSnapshots"
        ));
        let verb = |verb: &str| near.does(&format!("snapmirror {verb} -destination-path {path}"));
        verb("initialize");
        near.succeeds(&path);
        source.put("a", "first", &noise(2, 100_000));
        verb("update");
        near.succeeds(&path);
        verb("quiesce");
        assert!(
            !near.rests(&path).healthy,
            "nothing is copied while it is quiesced"
        );
        verb("break");
        near.put(to, "diverged", &noise(3, 50_000));
        for n in 1..=3 {
            near.does(&format!(
                "snapshot create -vserver SVM -volume {to} -snapshot own{n}"
            ));
        }
        source.put("a", "later", &noise(4, 50_000));
        verb("resync");
        let newest = near.succeeds(&path).newest.unwrap();
        let (a, b) = (source.engine_volume("a"), near.engine_volume(to));
        assert_eq!(content(&b, &newest.name, "diverged"), None);
        assert_eq!(
            content(&b, &newest.name, "later").unwrap(),
            noise(4, 50_000)
        );
        // What clients see is that, and all that both have is the same.
        let seen = b.serving().unwrap().unwrap();
        let exported = b.snapshot_with(newest.id).unwrap();
        assert_eq!(seen.snapshot_id(), Some(exported.id));
        let own = |s: &weir_volume::Snapshot| s.name.starts_with("own");
        assert!(!b.snapshots().iter().any(own), "{:?}", b.snapshots());
        assert_eq!(same(&a, &b, &["first", "later"]), 7);
        for snapshot in b.snapshots() {
            let hash = |v: &Arc<Volume>| {
                let walk = v.content_walk(snapshot.identity).unwrap();
                walk.finish().unwrap()
            };
            assert_eq!(hash(&a), hash(&b), "{}", snapshot.name);
        }
        // And the other way round: what the source has made since goes.
        verb("break");
        near.put(to, "reversed", &noise(5, 50_000));
        source.put("a", "lost", &noise(6, 50_000));
        source.does("snapshot create -vserver SVM -volume a -snapshot lost");
        if from == "SVM:a" {
            near.does("snapmirror resync -source-path SVM:b -destination-path SVM:a");
            let newest = near.succeeds("SVM:a").newest.unwrap().name;
            assert_eq!(content(&a, &newest, "lost"), None);
            assert_eq!(content(&a, &newest, "reversed").unwrap(), noise(5, 50_000));
            assert_eq!(a.snapshot("lost"), None);
            near.does("snapmirror break -destination-path SVM:a");
        }
    }
}

/// Checks that data which is consistent, but differs from the source's, is discarded with an error
/// that names both sides.
#[test]
fn what_fails_the_proof_is_an_error_that_names_both_sides() {
    let station = Station::new(22);
    station.put("a", "one", &noise(1, 100_000));
    station
        .does("snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest");
    station.does("snapmirror initialize -destination-path SVM:b");
    let good = station.succeeds("SVM:b").newest.unwrap();
    let b = station.engine_volume("b");
    for how in [Forgery::Attributes, Forgery::Contents] {
        station.put("a", "one", &noise(2, 100_000));
        station.service.forger().how = Some(how);
        station.does("snapmirror update -destination-path SVM:b");
        let r = station.rests("SVM:b");
        assert!(station.service.forger().forged);
        *station.service.forger() = Forger::default();
        let why = r.unhealthy_reason.unwrap();
        for part in ["is not the same on SVM:a", "on SVM:b", "It was discarded"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(!r.healthy && r.last.unwrap().error.is_some());
        assert_eq!(
            (r.state, r.newest.as_ref()),
            (MirrorState::Snapmirrored, Some(&good))
        );
        assert_eq!(b.mirror().unwrap().partial, None);
        let seen = b.serving().unwrap().unwrap();
        let exported = b.snapshot_with(good.id).unwrap();
        assert_eq!(seen.snapshot_id(), Some(exported.id));
        assert_eq!(content(&b, &good.name, "one").unwrap(), noise(1, 100_000));
    }
    station.does("snapmirror update -destination-path SVM:b");
    let newest = station.succeeds("SVM:b").newest.unwrap();
    assert_eq!(content(&b, &newest.name, "one").unwrap(), noise(2, 100_000));
}

/// Two nodes that were cloned from one image have snapshots with the same identity and different
/// contents.
#[test]
fn nothing_is_given_up_for_a_base_that_is_not_the_same() {
    let near = Station::new(23);
    let twins = [Station::new(24), Station::new(24)];
    for (at, twin) in twins.iter().enumerate() {
        twin.put("a", "one", &noise(at as u64, 50_000));
        let then = Time { secs: 77, nanos: 0 };
        let a = twin.engine_volume("a");
        a.snapshot_take("x", "", then).unwrap();
        let address = twin.service.listening().unwrap().to_string();
        let print = &twin.service.fingerprint();
        near.peer(&format!("twin{at}"), Some(&address), print);
        let address = near.service.listening().unwrap().to_string();
        let print = &near.service.fingerprint();
        twin.peer("near", Some(&address), print);
    }
    let identity = |s: &Station| s.engine_volume("a").snapshot("x").unwrap().identity;
    assert_eq!(identity(&twins[0]), identity(&twins[1]));
    near.does(
        "snapmirror create -source-path twin0://SVM/a -destination-path SVM:b -policy MirrorLatest",
    );
    near.does("snapmirror initialize -destination-path SVM:b -source-snapshot x");
    near.succeeds("SVM:b");
    near.does("snapmirror break -destination-path SVM:b");
    near.put("b", "own", &noise(7, 10_000));
    near.does("snapmirror delete -destination-path SVM:b");
    near.does("snapmirror resync -source-path twin1://SVM/a -destination-path SVM:b");
    let r = near.rests("SVM:b");
    let why = r.unhealthy_reason.unwrap();
    for part in [
        "\"x\" is not the same on twin1://SVM/a",
        "on SVM:b",
        "Nothing was changed",
    ] {
        assert!(why.contains(part), "{why}");
    }
    // It is still a volume of its own, with what was written to it.
    assert_eq!(r.state, MirrorState::BrokenOff);
    let b = near.engine_volume("b");
    assert!(!b.protected());
    near.does("snapshot create -vserver SVM -volume b -snapshot still");
    assert_eq!(content(&b, "still", "own").unwrap(), noise(7, 10_000));
}

#[test]
fn a_deleted_peer_gets_no_further_byte() {
    let (near, far) = (Station::new(25), Station::new(26));
    pair(&near, &far);
    far.put("a", "one", &noise(1, 4_000_000));
    near.does(
        "snapmirror create -source-path far://SVM/a -destination-path SVM:b -policy MirrorLatest -throttle 256 -tries 1",
    );
    near.does("snapmirror initialize -destination-path SVM:b");
    while near
        .relationship("SVM:b")
        .transfer
        .is_none_or(|t| t.bytes == 0)
    {
        std::thread::yield_now();
    }
    far.does("cluster peer delete -cluster near");
    let r = near.rests("SVM:b");
    let last = r.last.unwrap();
    assert!(last.error.is_some() && last.bytes < 4_000_000, "{last:?}");
    assert_eq!(r.state, MirrorState::Uninitialized);
    // And is not let in again.
    near.does("snapmirror initialize -destination-path SVM:b");
    let why = near.rests("SVM:b").last.unwrap().error.unwrap();
    assert!(why.contains("does not know this node"), "{why}");
}

/// Steps of `:stop` by force: a transfer that is aborted in any state leaves a relationship that
/// can be resumed.
#[test]
fn what_was_ended_on_its_way_can_be_stopped_and_resumed() {
    let station = Station::new(27);
    station.put("a", "one", &noise(1, 2_000_000));
    station.does(
        "snapmirror create -source-path SVM:a -destination-path SVM:b -policy MirrorLatest -throttle 256",
    );
    let verb = |verb: &str| station.does(&format!("snapmirror {verb} -destination-path SVM:b"));
    let moves = || {
        while station
            .relationship("SVM:b")
            .transfer
            .is_none_or(|t| t.bytes == 0)
        {
            std::thread::yield_now();
        }
    };
    let ends = || {
        verb("quiesce");
        verb("abort");
        station.rests("SVM:b")
    };
    verb("initialize");
    moves();
    let r = ends();
    assert_eq!(
        (r.state, r.status),
        (MirrorState::Uninitialized, Status::Quiesced)
    );
    verb("resume");
    station.does("snapmirror modify -destination-path SVM:b -throttle unlimited");
    verb("initialize");
    station.succeeds("SVM:b");
    // A resync that is ended after it has gone back leaves a copy, which can be broken off again.
    verb("break");
    station.put("b", "stray", &noise(2, 10_000));
    station.put("a", "one", &noise(3, 2_000_000));
    station.does("snapmirror modify -destination-path SVM:b -throttle 256");
    verb("resync");
    moves();
    let r = ends();
    assert_eq!(
        (r.state, r.status),
        (MirrorState::Snapmirrored, Status::Quiesced)
    );
    let b = station.engine_volume("b");
    assert!(b.protected());
    verb("break");
    assert!(!b.protected());
    assert_eq!(station.rests("SVM:b").state, MirrorState::BrokenOff);
    station.put("b", "mine", &noise(4, 10_000));
    verb("delete");
}
