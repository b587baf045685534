//! Every rule's refusal: its status, its name, and the valid value in it. A refusal changes
//! nothing.

use super::*;
use crate::{
    Actor, ExportRule, NewSnapshot, Performance, PoolChange, Role, SecurityStyle, Share,
    SmbSetting, SnapshotChange, State, Status, TieredSettings, VolumeChange,
};
use Status::{
    Aborted, AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied,
    ResourceExhausted,
};

fn update_pool(id: &str, change: PoolChange) -> Mutation {
    Mutation::UpdatePool(name(id), change)
}

fn update(id: &str, change: VolumeChange) -> Mutation {
    Mutation::UpdateVolume(vol(id), change)
}

fn create(change: impl FnOnce(&mut NewVolume)) -> Mutation {
    let mut new = new_volume("new", "manual", 100);
    change(&mut new);
    Mutation::CreateVolume(vol("new"), new)
}

/// Returns the SMB share of a new volume.
fn smb(new: &mut NewVolume) -> &mut Share {
    new.protocols.push(Protocol::Smb);
    &mut new.smb
}

fn new_pool(change: impl FnOnce(&mut NewPool)) -> Mutation {
    let mut new = NewPool {
        service_level: "FLEX".to_owned(),
        capacity_gib: 1024,
        ..NewPool::default()
    };
    change(&mut new);
    Mutation::CreatePool(name("newpool"), new)
}

fn instance(tier: &str, gb: u64, performance: Option<Performance>) -> Mutation {
    let new = NewVolume {
        presentation: Presentation::Filestore(TieredSettings {
            tier: tier.into(),
            performance,
            address: None,
        }),
        share_name: "newfs".to_owned(),
        capacity_gib: gb,
        ..NewVolume::default()
    };
    Mutation::CreateVolume(inst("newfs"), new)
}

fn rule(clients: &str) -> ExportRule {
    ExportRule {
        allowed_clients: clients.to_owned(),
        ..ExportRule::default()
    }
}

async fn setting() -> Bench {
    let bench = Bench::new().await;
    // 10 TiB of PREMIUM: 640 MiB/s, of which m1 has 600 and 8 TiB.
    bench
        .done(pool("manual", "PREMIUM", 10_240, QosType::Manual))
        .await;
    let m1 = given(600.0, new_volume("m1", "manual", 8192));
    bench.done(Mutation::CreateVolume(vol("m1"), m1)).await;
    bench
        .done(pool("auto", "STANDARD", 1024, QosType::Auto))
        .await;
    bench.done(volume("a1", "auto", 1000)).await;
    bench.done(pool("flex", "FLEX", 1024, QosType::Auto)).await;
    bench
        .done(pool("huge", "EXTREME", 2 << 20, QosType::Manual))
        .await;
    let win = NewVolume {
        protocols: vec![Protocol::Nfsv3, Protocol::Smb],
        smb: Share {
            settings: vec![SmbSetting::AccessBasedEnumeration],
            ..Share::default()
        },
        share_name: "win".to_owned(),
        ..new_volume("win", "flex", 1)
    };
    bench.done(Mutation::CreateVolume(vol("win"), win)).await;
    let kept = NewVolume {
        deletion_restricted: true,
        ..new_volume("kept", "auto", 1)
    };
    bench.done(Mutation::CreateVolume(vol("kept"), kept)).await;
    let hdd = NewVolume {
        presentation: Presentation::of_tier("BASIC_HDD"),
        share_name: "fs".to_owned(),
        capacity_gib: 4096,
        deletion_restricted: true,
        ..NewVolume::default()
    };
    bench.done(Mutation::CreateVolume(inst("hdd"), hdd)).await;
    let s1 = vol("a1").snapshot("s1");
    bench
        .done(Mutation::CreateSnapshot(s1, NewSnapshot::default()))
        .await;
    bench
}

#[tokio::test]
async fn every_rule_refuses_with_its_numbers() {
    let bench = setting().await;
    let a1 = bench
        .control
        .view()
        .volume(&vol("a1"))
        .unwrap()
        .key
        .to_string();
    bench.node.fill(&a1, 600 << 30);
    let s = |id: &str| vol("a1").snapshot(id);
    let cap = |gib| VolumeChange {
        capacity_gib: Some(gib),
        ..VolumeChange::default()
    };
    let tput = |mibps| VolumeChange {
        throughput_mibps: Some(mibps),
        ..VolumeChange::default()
    };
    let pool_cap = |gib| PoolChange {
        capacity_gib: Some(gib),
        ..PoolChange::default()
    };
    let to = |pool: &str| VolumeChange {
        pool: Some(pool.to_owned()),
        ..VolumeChange::default()
    };

    #[rustfmt::skip]
    let table: Vec<(Mutation, Status, &str, &[&str])> = vec![
        // Pools.
        (pool("manual", "PREMIUM", 1024, QosType::Auto), AlreadyExists, "NAME_TAKEN", &["manual"]),
        (pool("x", "GOLD", 1024, QosType::Auto), InvalidArgument, "SERVICE_LEVEL_UNKNOWN", &["GOLD", "EXTREME", "FLEX"]),
        (pool("x", "PREMIUM", 0, QosType::Auto), InvalidArgument, "POOL_CAPACITY_RANGE", &["1 GiB", "10,240 TiB"]),
        (pool("x", "PREMIUM", u64::MAX, QosType::Auto), InvalidArgument, "POOL_CAPACITY_RANGE", &["10,240 TiB"]),
        (pool("1x", "PREMIUM", 1024, QosType::Auto), InvalidArgument, "NAME_INVALID", &["1x"]),
        (pool("x", "FLEX", 1024, QosType::Manual), InvalidArgument, "QOS_MANUAL_NOT_OFFERED", &["FLEX"]),
        (update_pool("flex", PoolChange { qos_type: Some(QosType::Manual), ..PoolChange::default() }),
            InvalidArgument, "QOS_MANUAL_NOT_OFFERED", &["FLEX"]),
        (update_pool("manual", PoolChange { qos_type: Some(QosType::Auto), ..PoolChange::default() }),
            FailedPrecondition, "QOS_MANUAL_TO_AUTO", &["automatic to manual only"]),
        (new_pool(|p| { p.custom_performance = true; p.total_throughput_mibps = Some(5121.0); }),
            InvalidArgument, "CUSTOM_THROUGHPUT_MAX", &["5,120 MiB/s", "5121"]),
        (new_pool(|p| { p.custom_performance = true; p.total_throughput_mibps = Some(f64::NAN); }),
            InvalidArgument, "CUSTOM_THROUGHPUT_MAX", &["5,120 MiB/s"]),
        (new_pool(|p| { p.custom_performance = true; p.total_throughput_mibps = Some(100.0); p.total_iops = Some(160_001); }),
            InvalidArgument, "CUSTOM_IOPS_MAX", &["160,000", "160,001"]),
        (new_pool(|p| p.custom_performance = true), InvalidArgument, "CUSTOM_PERFORMANCE_NEEDS_THROUGHPUT", &["5,120"]),
        (new_pool(|p| p.total_iops = Some(1000)), InvalidArgument, "CUSTOM_PERFORMANCE_OFF", &["customPerformanceEnabled"]),
        (new_pool(|p| { p.service_level = "PREMIUM".to_owned(); p.custom_performance = true; }),
            InvalidArgument, "CUSTOM_PERFORMANCE_NOT_OFFERED", &["PREMIUM"]),
        (update_pool("auto", pool_cap(1000)), FailedPrecondition, "POOL_SHRINK_BELOW_VOLUMES", &["1,001 GiB", "2 volumes"]),
        (update_pool("manual", pool_cap(8192)), FailedPrecondition, "POOL_SHRINK_BELOW_THROUGHPUT", &["512 MiB/s"]),
        (Mutation::DeletePool(name("manual")), FailedPrecondition, "POOL_HAS_VOLUMES", &["1 volumes", "m1"]),
        (Mutation::DeletePool(name("nope")), NotFound, "NOT_FOUND", &["storagePools/nope"]),
        (Mutation::SwitchPool(name("nope")), NotFound, "NOT_FOUND", &["storagePools/nope"]),
        (update_pool("nope", pool_cap(1)), NotFound, "NOT_FOUND", &["storagePools/nope"]),
        // Volumes: capacity.
        (volume("a1", "auto", 1), AlreadyExists, "NAME_TAKEN", &["a1"]),
        (volume("x", "nope", 1), NotFound, "POOL_NOT_FOUND", &["storagePools/nope"]),
        (volume("x", "auto", 24), FailedPrecondition, "POOL_CAPACITY_EXCEEDED", &["1,024 GiB", "1,001 GiB", "up to 23 GiB", "pool of 1,025 GiB"]),
        (update("m1", cap(10_241)), FailedPrecondition, "POOL_CAPACITY_EXCEEDED", &["up to 10,240 GiB"]),
        (update("m1", cap(u64::MAX)), InvalidArgument, "VOLUME_CAPACITY_RANGE", &["1 GiB"]),
        (volume("x", "huge", 200_000), InvalidArgument, "VOLUME_CAPACITY_RANGE", &["200,000", "a large volume"]),
        (create(|v| { pooled(v).pool = "huge".into(); pooled(v).large = true; }), InvalidArgument, "VOLUME_CAPACITY_RANGE", &["15 TiB", "1,024 TiB"]),
        (create(|v| { v.capacity_gib = 0; }), InvalidArgument, "VOLUME_CAPACITY_RANGE", &["1 GiB"]),
        (update("a1", cap(599)), FailedPrecondition, "CAPACITY_BELOW_USED", &["600 GiB", "at least 600 GiB"]),
        // Volumes: throughput.
        (create(|v| pooled(v).throughput_mibps = Some(41.0)), FailedPrecondition, "POOL_THROUGHPUT_EXCEEDED",
            &["640 MiB/s", "64 MiB/s per TiB × 10 TiB", "600 MiB/s", "up to 40 MiB/s", "pool of 10,256 GiB"]),
        (update("m1", tput(640.5)), FailedPrecondition, "POOL_THROUGHPUT_EXCEEDED", &["up to 640 MiB/s"]),
        (update("m1", tput(0.0)), InvalidArgument, "THROUGHPUT_INVALID", &["up to 640 MiB/s"]),
        (update("m1", tput(f64::NAN)), InvalidArgument, "THROUGHPUT_INVALID", &[]),
        (update("m1", tput(-5.0)), InvalidArgument, "THROUGHPUT_INVALID", &[]),
        (update("m1", tput(f64::INFINITY)), InvalidArgument, "THROUGHPUT_INVALID", &[]),
        (update("a1", tput(8.0)), InvalidArgument, "THROUGHPUT_NEEDS_MANUAL_QOS", &["MANUAL"]),
        (create(|v| { pooled(v).pool = "flex".into(); pooled(v).throughput_mibps = Some(1.0); }), InvalidArgument, "THROUGHPUT_NEEDS_MANUAL_QOS", &["shared"]),
        (create(|v| { pooled(v).pool = "huge".into(); pooled(v).throughput_mibps = Some(4609.0); }), InvalidArgument, "VOLUME_THROUGHPUT_CAP",
            &["4,608 MiB/s", "4,609", "30,720 MiB/s"]),
        (create(|v| { pooled(v).pool = "huge".into(); pooled(v).large = true; v.capacity_gib = 20_000; pooled(v).throughput_mibps = Some(30_721.0); }),
            InvalidArgument, "VOLUME_THROUGHPUT_CAP", &["30,720 MiB/s"]),
        // Volumes: moves.
        (update("a1", to("nope")), NotFound, "POOL_NOT_FOUND", &["nope"]),
        (update("m1", to("auto")), FailedPrecondition, "POOL_CAPACITY_EXCEEDED", &["auto", "up to 23 GiB"]),
        (update("a1", VolumeChange { throughput_mibps: Some(200.0), ..to("manual") }), FailedPrecondition, "POOL_THROUGHPUT_EXCEEDED", &["up to 40 MiB/s"]),
        // Volumes: the rest.
        (create(|v| v.share_name = "a/b".to_owned()), InvalidArgument, "SHARE_NAME_INVALID", &["a/b"]),
        (create(|v| v.protocols = vec![]), InvalidArgument, "PROTOCOL_NOT_OFFERED", &["NFSV3"]),
        (create(|v| v.smb.settings = vec![SmbSetting::Browsable]), InvalidArgument, "NOT_AN_SMB_VOLUME", &["BROWSABLE", "smbSettings"]),
        (create(|v| v.smb.style = Some(SecurityStyle::Ntfs)), InvalidArgument, "NOT_AN_SMB_VOLUME", &["NTFS", "securityStyle"]),
        (create(|v| smb(v).settings = vec![SmbSetting::Browsable, SmbSetting::NonBrowsable]), InvalidArgument, "SMB_SETTINGS_CONTRADICT", &["NON_BROWSABLE"]),
        (create(|v| smb(v).settings = vec![SmbSetting::ShowSnapshot]), InvalidArgument, "SMB_SETTING_NOT_OFFERED", &["SHOW_SNAPSHOT"]),
        (create(|v| { smb(v).style = Some(SecurityStyle::Ntfs); v.unix_permissions = Some(0o770); }), InvalidArgument, "NO_MODE_OF_NTFS", &["0770"]),
        (create(|v| { smb(v); v.share_name = "WIN".to_owned(); }), AlreadyExists, "SHARE_NAME_TAKEN", &["volumes/win", "the SMB share win"]),
        (update("a1", VolumeChange { protocols: Some(vec![Protocol::Smb]), smb_name: Some("win".to_owned()), ..VolumeChange::default() }), AlreadyExists, "SHARE_NAME_TAKEN", &["win"]),
        (update("a1", VolumeChange { protocols: Some(vec![Protocol::Smb]), smb_name: Some("ipc$".to_owned()), ..VolumeChange::default() }), InvalidArgument, "SHARE_NAME_INVALID", &["ipc$"]),
        (update("win", VolumeChange { protocols: Some(vec![Protocol::Nfsv3]), ..VolumeChange::default() }), InvalidArgument, "NOT_AN_SMB_VOLUME", &["ACCESS_BASED_ENUMERATION"]),
        (create(|v| v.unix_permissions = Some(0o10000)), InvalidArgument, "UNIX_PERMISSIONS_INVALID", &["7777"]),
        (create(|v| v.export_rules = Some(vec![rule("10.0.0.0/40")])), InvalidArgument, "EXPORT_RULE_INVALID", &["export rule 1", "10.0.0.0/40"]),
        (create(|v| v.export_rules = Some(vec![rule("*"); 65])), InvalidArgument, "TOO_MANY_EXPORT_RULES", &["64"]),
        (create(|v| v.snap_reserve = Some(91.0)), InvalidArgument, "SNAP_RESERVE_RANGE", &["90"]),
        (create(|v| v.snapshot_policy = Some("x".repeat(20_000).into())), InvalidArgument, "RESOURCE_TOO_LARGE", &["16,384"]),
        (create(|v| v.description = "x".repeat(3000)), InvalidArgument, "DESCRIPTION_TOO_LONG", &["2048"]),
        (create(|v| v.clone_of = Some(s("nope"))), NotFound, "SOURCE_SNAPSHOT_NOT_FOUND", &["snapshots/nope"]),
        (update("nope", cap(1)), NotFound, "NOT_FOUND", &["volumes/nope"]),
        (Mutation::DeleteVolume { name: vol("kept"), force: true }, FailedPrecondition, "DELETION_RESTRICTED", &["restrictedActions"]),
        (Mutation::DeleteVolume { name: vol("a1"), force: false }, FailedPrecondition, "HAS_SNAPSHOTS", &["1 snapshots", "force"]),
        (Mutation::DeleteVolume { name: vol("nope"), force: true }, NotFound, "NOT_FOUND", &[]),
        // Snapshots.
        (Mutation::CreateSnapshot(s("s1"), NewSnapshot::default()), AlreadyExists, "NAME_TAKEN", &["s1"]),
        (Mutation::CreateSnapshot(s(".."), NewSnapshot::default()), InvalidArgument, "NAME_INVALID", &[]),
        (Mutation::CreateSnapshot(vol("nope").snapshot("s"), NewSnapshot::default()), NotFound, "NOT_FOUND", &[]),
        (Mutation::UpdateSnapshot(s("nope"), SnapshotChange::default()), NotFound, "NOT_FOUND", &[]),
        (Mutation::DeleteSnapshot(s("nope")), NotFound, "NOT_FOUND", &["snapshots/nope"]),
        (Mutation::RevertVolume { name: vol("a1"), snapshot: "nope".to_owned() }, NotFound, "NOT_FOUND", &["snapshots/nope"]),
        // Instances.
        (instance("GOLD", 1024, None), InvalidArgument, "TIER_UNKNOWN", &["BASIC_HDD"]),
        (instance("BASIC_SSD", 2559, None), InvalidArgument, "INSTANCE_CAPACITY_RANGE", &["2.5 TB", "65433 GB"]),
        (instance("HIGH_SCALE_SSD", 15 * 1024, None), InvalidArgument, "INSTANCE_CAPACITY_STEP", &["10 TB", "20 TB"]),
        (instance("ZONAL", 1025, None), InvalidArgument, "INSTANCE_CAPACITY_STEP", &["256 GB"]),
        (instance("ZONAL", 11 * 1024, None), InvalidArgument, "INSTANCE_CAPACITY_STEP", &["2.5 TB"]),
        (instance("BASIC_HDD", 1024, Some(Performance::FixedIops(1000))), InvalidArgument, "TIER_PERFORMANCE_NOT_OFFERED", &["BASIC_HDD"]),
        (instance("ZONAL", 1024, Some(Performance::IopsPerTb(18_000))), InvalidArgument, "TIER_PERFORMANCE_RANGE", &["4,000", "17,000", "18,000"]),
        (instance("ZONAL", 2048, Some(Performance::FixedIops(8_500))), InvalidArgument, "TIER_PERFORMANCE_STEP", &["1,000"]),
        (Mutation::UpdateVolume(inst("hdd"), VolumeChange { capacity_gib: Some(2048), ..VolumeChange::default() }),
            InvalidArgument, "INSTANCE_CANNOT_SHRINK", &["4 TB", "2 TB"]),
        (Mutation::UpdateVolume(inst("hdd"), VolumeChange { if_revision: Some(77), ..VolumeChange::default() }),
            Aborted, "ETAG_MISMATCH", &["77"]),
        (Mutation::DeleteVolume { name: inst("hdd"), force: true }, FailedPrecondition, "DELETION_PROTECTED", &["deletionProtectionEnabled"]),
        (Mutation::UpdateVolume(inst("nope"), VolumeChange::default()), NotFound, "NOT_FOUND", &["instances/nope"]),
    ];
    let before = bench.control.view();
    let engine = bench.node.list_volumes().len();
    for (mutation, status, reason, words) in table {
        let what = format!("{mutation:?}");
        let preview = bench.control.preview(&mutation, &Actor::local()).await;
        let refusal = bench.refused(mutation).await;
        assert_eq!(preview.err(), Some(refusal.clone()), "validateOnly: {what}");
        assert_eq!(
            (&*refusal.reason, refusal.status),
            (reason, status),
            "{what}: {refusal}"
        );
        for word in words {
            assert!(refusal.message.contains(word), "{word:?} in {refusal}");
        }
    }
    let after = bench.control.view();
    assert_eq!(bench.node.list_volumes().len(), engine);
    assert_eq!(after.generation, before.generation, "nothing was changed");
    assert!(after.operations.keys().eq(before.operations.keys()));
}

#[tokio::test]
async fn what_a_refusal_says_would_fit_does_fit() {
    let bench = setting().await;
    // The refusal above for 41 says "up to 40 MiB/s".
    bench
        .done(create(|v| pooled(v).throughput_mibps = Some(40.0)))
        .await;
    let view = bench.control.view();
    let figures = view.pool_figures(view.pool(&name("manual")).unwrap());
    assert_eq!(figures.available_throughput_mibps, Some(0.0));
    // Nothing is left for a volume without a request.
    let refusal = bench.refused(volume("more", "manual", 1)).await;
    assert_eq!(refusal.reason, "POOL_THROUGHPUT_EXCEEDED");
    let needed = refusal
        .metadata
        .iter()
        .find(|(key, _)| key == "poolGibNeeded")
        .unwrap();
    let grow = PoolChange {
        capacity_gib: Some(needed.1.parse().unwrap()),
        ..PoolChange::default()
    };
    bench.done(update_pool("manual", grow)).await;
    bench.done(volume("more", "manual", 1)).await;
    bench.done(volume("x", "auto", 23)).await;
}

#[tokio::test]
async fn a_volume_has_as_many_snapshots_as_the_engine_keeps() {
    use crate::backend::SnapshotState;
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    bench.done(volume("v", "p", 1)).await;
    let key = bench.control.view().volume(&vol("v")).unwrap().key.clone();
    bench.node.snapshots_mut(&key, |snapshots| {
        let each = (1..weir_volume::MAX_SNAPSHOTS).map(|n| SnapshotState {
            name: format!("s{n}"),
            created: n as i128,
            used: 0,
            label: String::new(),
            busy: false,
            number: n as u32,
            identity: crate::sim::identity(1, n as u32),
        });
        snapshots.extend(each);
    });
    bench.control.adopt_snapshots(&key).await;
    let last = vol("v").snapshot("last");
    bench
        .done(Mutation::CreateSnapshot(last, NewSnapshot::default()))
        .await;
    let one_more = vol("v").snapshot("more");
    let refusal = bench
        .refused(Mutation::CreateSnapshot(one_more, NewSnapshot::default()))
        .await;
    assert_eq!(
        (refusal.status, &*refusal.reason),
        (ResourceExhausted, "TOO_MANY_SNAPSHOTS")
    );
}

#[tokio::test]
async fn viewers_change_nothing_and_are_in_the_audit_log() {
    let bench = Bench::new().await;
    let viewer = Actor {
        name: "grafana".into(),
        role: Role::Viewer,
        address: Some([192, 0, 2, 7].into()),
    };
    let refused = bench
        .control
        .submit(pool("p", "PREMIUM", 1024, QosType::Auto), &viewer)
        .await;
    let refusal = refused.unwrap_err();
    assert_eq!(
        (refusal.status, &*refusal.reason),
        (PermissionDenied, "ROLE_INSUFFICIENT")
    );
    assert!(bench.control.view().pool(&name("p")).is_none());
    let editor = Actor {
        role: Role::Editor,
        name: "terraform".into(),
        ..viewer.clone()
    };
    bench
        .control
        .submit(pool("p", "PREMIUM", 1024, QosType::Auto), &editor)
        .await
        .unwrap();
    for actor in [&viewer, &editor] {
        let refusal = bench.control.audit(None, 10, actor).await.unwrap_err();
        assert_eq!(refusal.status, PermissionDenied);
        assert!(
            bench
                .control
                .create_token("t", Role::Viewer, actor)
                .await
                .is_err()
        );
    }
    let log = bench
        .control
        .audit(None, 10, &Actor::local())
        .await
        .unwrap();
    let lines: Vec<_> = log
        .iter()
        .map(|e| {
            (
                e.actor.as_str(),
                e.address.as_str(),
                e.verb.as_str(),
                e.outcome.as_str(),
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            ("terraform", "192.0.2.7", "create", "done"),
            (
                "grafana",
                "192.0.2.7",
                "create",
                "refused: ROLE_INSUFFICIENT"
            ),
        ]
    );
    assert_eq!(
        log[0].target,
        "projects/p1/locations/us-central1/storagePools/p"
    );
}

#[tokio::test]
async fn what_is_being_made_or_deleted_is_busy() {
    let bench = Bench::new().await;
    bench.done(pool("p", "PREMIUM", 1024, QosType::Auto)).await;
    // The node is slow: a call stops until it is revived.
    bench.node.stop_in(0, false);
    let (control, slow) = (bench.control.clone(), volume("v", "p", 1));
    let waiting = tokio::spawn(async move { control.submit(slow, &Actor::local()).await });
    while bench.control.view().volume(&vol("v")).is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        bench.control.view().volume(&vol("v")).unwrap().state,
        State::Creating
    );
    let change = VolumeChange {
        capacity_gib: Some(2),
        ..VolumeChange::default()
    };
    let refusal = bench.refused(update("v", change)).await;
    assert_eq!(
        (refusal.status, &*refusal.reason),
        (Aborted, "RESOURCE_BUSY")
    );
    bench.node.revive();
    let operation = waiting.await.unwrap().unwrap();
    assert!(
        matches!(operation.outcome, Some(Outcome::Done)),
        "{operation:?}"
    );
}
