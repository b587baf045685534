//! Every rule and limit of the reference documents that concerns provisioning, row by row.

use crate::figures::{self, tier_limits};
use crate::levels::Levels;
use crate::model::{Performance, PooledSettings, Presentation};
use crate::rules;
use crate::view::View;
use crate::{Pool, QosType, State, Volume};
use crate::{Stamp, name::LocationName};
use std::sync::Arc;
use weir_qos::VolumePlan;

const ROWS: &str = include_str!("limits.tsv");

fn levels() -> Levels {
    Levels::built_in().unwrap()
}

fn a_pool(level: &str, gib: u64, qos_type: QosType) -> Pool {
    Pool {
        id: 1,
        name: LocationName::local().name("p"),
        revision: 1,
        state: State::Ready,
        state_details: String::new(),
        created: Stamp(0),
        service_level: level.into(),
        capacity_gib: gib,
        qos_type,
        custom_performance: false,
        total_throughput_mibps: None,
        total_iops: None,
        active_directory: None,
        span: None,
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    }
}

fn a_volume(gib: u64, large: bool) -> Volume {
    Volume {
        id: 2,
        key: "v-0000000000000002".into(),
        number: Some(1),
        name: LocationName::local().volume("v"),
        revision: 1,
        state: State::Ready,
        state_details: String::new(),
        created: Stamp(0),
        presentation: Presentation::Netapp(PooledSettings {
            constituent: None,
            pool: "p".into(),
            throughput_mibps: None,
            large,
        }),
        share_name: "v".into(),
        paths: vec!["v".into()],
        capacity_gib: gib,
        protocols: Vec::new(),
        export_rules: None,
        smb: Default::default(),
        unix_permissions: 0o755,
        snapshot_directory: true,
        snap_reserve: None,
        snapshot_policy: None,
        snapshot_runs: Default::default(),
        backup: None,
        backup_runs: Default::default(),
        deletion_restricted: false,
        clone_of: None,
        restore_of: None,
        splitting: false,
        protection: false,
        assigned: Default::default(),
        trees: Default::default(),
        quotas: Default::default(),
        moving: None,
        origin: None,
        description: String::new(),
        labels: Default::default(),
        extra: Default::default(),
    }
}

fn planned(pool: &Pool, volume: &Volume) -> VolumePlan {
    let mut view = View::empty(Arc::new(levels()));
    view.put_pool(Arc::new(pool.clone()));
    rules::plan::volume(&view, volume, 1).unwrap()
}

/// Returns the MiB/s of a whole pool.
fn pool_mibps(level: &str, tib: u64) -> f64 {
    let pool = a_pool(level, tib * 1024, QosType::Manual);
    let figures = figures::pool_figures(&levels(), &pool, Default::default());
    figures.total_throughput_mibps.unwrap()
}

/// Returns the MiB/s of one volume with automatic QoS.
fn volume_mibps(level: &str, tib: u64, large: bool) -> f64 {
    let pool = a_pool(level, tib * 1024, QosType::Auto);
    let volume = a_volume(tib * 1024, large);
    figures::volume_throughput(&levels(), &pool, &volume).unwrap() as f64 / 1_048_576.0
}

/// Returns a tier's value, in the row's unit: operations, or MB/s of 10^6 bytes.
fn tier(name: &str, tb: f64, figure: &str) -> f64 {
    let levels = levels();
    let gb = (tb * 1024.0) as u64;
    let limits = tier_limits(levels.tier(name).unwrap(), gb, None).unwrap();
    match figure {
        "read_iops" => limits.read_iops as f64,
        "write_iops" => limits.write_iops as f64,
        "read" => limits.read_bps as f64 / 1e6,
        "write" => limits.write_bps as f64 / 1e6,
        other => panic!("no figure {other}"),
    }
}

fn ours(document: &str, key: &str) -> f64 {
    let levels = levels();
    let parts: Vec<&str> = key.split('.').collect();
    match (document, key) {
        ("000", "pool.premium_rate") => return volume_mibps("PREMIUM", 1, false),
        ("000", "pool.premium_40TiB") => return pool_mibps("PREMIUM", 40),
        ("000", "pool.extreme_200TiB") => return pool_mibps("EXTREME", 200),
        ("000", "volume.max") => return volume_mibps("EXTREME", 75, false) / 1024.0,
        ("000", "largevol.max") => return volume_mibps("EXTREME", 1024, true) / 1024.0,
        ("004", "flexcustom.max_tput") => {
            let flex = levels.pool("FLEX").unwrap().custom_performance.unwrap();
            return flex.max_throughput_mibps;
        }
        ("004", "flexcustom.max_iops") => {
            let flex = levels.pool("FLEX").unwrap().custom_performance.unwrap();
            return flex.max_iops as f64;
        }
        // Measured sizes have to be possible at that level.
        ("004", "flexcustom.test_size") => {
            assert!(levels.pool("FLEX").unwrap().pool_gib.holds(10 * 1024));
            return 10.0;
        }
        ("004", "extreme.test_size") => {
            assert!(levels.pool("EXTREME").unwrap().volume_gib.holds(75 * 1024));
            return 75.0;
        }
        ("004", "largevol.capacity") => {
            let large = levels.pool("EXTREME").unwrap().large_volumes.unwrap();
            return large.capacity_gib.max as f64 / 1_048_576.0;
        }
        ("001", "HS.step") => {
            return levels.tier("HIGH_SCALE_SSD").unwrap().step_gb as f64 / 1024.0;
        }
        _ => {}
    }
    match (document, parts.as_slice()) {
        ("001", ["BASIC_HDD", "1-10TB", figure]) => tier("BASIC_HDD", 1.0, figure),
        // "10-63.9TB" and "2.5-63.9TB" have values of their own.
        ("001", ["BASIC_HDD", "10-63", _, figure]) => {
            assert_eq!(
                tier("BASIC_HDD", 10.0, figure),
                tier("BASIC_HDD", 63.9, figure)
            );
            tier("BASIC_HDD", 10.0, figure)
        }
        ("001", ["BASIC_SSD", .., figure]) => {
            assert_eq!(
                tier("BASIC_SSD", 2.5, figure),
                tier("BASIC_SSD", 63.9, figure)
            );
            tier("BASIC_SSD", 2.5, figure)
        }
        ("001", ["HIGH_SCALE_SSD", "60TB", figure]) => tier("HIGH_SCALE_SSD", 60.0, figure),
        ("001", ["HIGH_SCALE_SSD", "320TB", figure]) => tier("HIGH_SCALE_SSD", 320.0, figure),
        ("001", ["HS", "per10TB_and_per_client", figure]) => {
            let each = tier("HIGH_SCALE_SSD", 20.0, figure) - tier("HIGH_SCALE_SSD", 10.0, figure);
            let client = levels.tier("HIGH_SCALE_SSD").unwrap().client.unwrap();
            let client = match *figure {
                "read_iops" => client.read_iops as f64,
                "write_iops" => client.write_iops as f64,
                "read" => client.read_bps as f64 / 1e6,
                _ => client.write_bps as f64 / 1e6,
            };
            assert_eq!(each, client, "{key}");
            each
        }
        other => panic!("no check for {other:?}"),
    }
}

#[test]
fn every_row_is_kept() {
    let mut rows = 0;
    for row in ROWS.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.split('\t').collect();
        let [document, key, value, unit, words] = fields[..] else {
            panic!("not five fields: {row}");
        };
        let value: f64 = value.parse().unwrap();
        assert_eq!(
            ours(document, key),
            value,
            "document {document}, {key}, {unit}: {words}"
        );
        rows += 1;
    }
    assert_eq!(rows, 35);
}

#[test]
fn basic_tiers_have_no_limit_for_a_client_and_high_scale_has() {
    let levels = levels();
    assert!(levels.tier("BASIC_HDD").unwrap().client.is_none());
    assert!(
        levels.tier("STANDARD").unwrap().client.is_none(),
        "its older name"
    );
    let client = levels.tier("HIGH_SCALE_SSD").unwrap().client.unwrap();
    assert_eq!(
        (client.read_bps, client.write_bps),
        (500_000_000, 110_000_000)
    );
}

#[test]
fn newer_tiers_follow_capacity_or_what_was_asked_for() {
    let levels = levels();
    let zonal = levels.tier("ZONAL").unwrap();
    let limits = |gb, performance| tier_limits(zonal, gb, performance).unwrap();
    const MIB: u64 = 1 << 20;
    let small = limits(1024, None);
    assert_eq!((small.read_iops, small.write_iops), (9_200, 2_600));
    assert_eq!((small.read_bps, small.write_bps), (260 * MIB, 88 * MIB));
    let large = limits(102_400, None);
    assert_eq!((large.read_iops, large.write_iops), (920_000, 260_000));
    assert_eq!(
        (large.read_bps, large.write_bps),
        (26_000 * MIB, 8_800 * MIB)
    );
    let asked = limits(2048, Some(Performance::IopsPerTb(4_600)));
    assert_eq!((asked.read_iops, asked.write_iops), (9_200, 2_760));
    assert_eq!(asked.read_bps, 260 * MIB);
    let fixed = limits(2048, Some(Performance::FixedIops(10_000)));
    assert_eq!((fixed.read_iops, fixed.write_iops), (10_000, 3_000));
    let enterprise = tier_limits(levels.tier("ENTERPRISE").unwrap(), 10_240, None).unwrap();
    assert_eq!(
        (enterprise.read_iops, enterprise.write_iops),
        (120_000, 40_000)
    );
    assert_eq!(
        (enterprise.read_bps, enterprise.write_bps),
        (1200 * MIB, 1000 * MIB)
    );
}

#[test]
fn flex_shares_the_pool_by_capacity() {
    let levels = levels();
    let pool = a_pool("FLEX", 40 * 1024, QosType::Auto);
    let plan = rules::plan::pool(&levels, &pool);
    assert_eq!(plan.limits.total.bytes, Some(640 << 20));
    assert_eq!(&*plan.source, "FLEX: 16 MiB/s per TiB × 40 TiB");
    let weights: Vec<u32> = [1, 2, 4]
        .map(|tib| planned(&pool, &a_volume(tib * 1024, false)))
        .map(|plan| {
            assert_eq!(plan.limits.total.bytes, None);
            plan.limits.weight
        })
        .to_vec();
    assert_eq!(weights, [1024, 2048, 4096]);
    let mut custom = pool;
    custom.custom_performance = true;
    custom.total_throughput_mibps = Some(5120.0);
    let limits = rules::plan::pool(&levels, &custom).limits;
    assert_eq!(limits.total.bytes, Some(5120 << 20));
    assert_eq!(
        limits.total.ops,
        Some(81_920),
        "16 for each MiB/s unless given"
    );
    custom.total_iops = Some(160_000);
    let limits = rules::plan::pool(&levels, &custom).limits;
    assert_eq!(limits.total.ops, Some(160_000));
    // Weights are within the shaper's range even in a pool of 10 PiB.
    custom.capacity_gib = 10 << 20;
    let huge = planned(&custom, &a_volume(1 << 20, true));
    assert_eq!(huge.limits.weight, 6_553);
}

#[test]
fn an_operators_file_adds_and_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("levels.toml");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write(
        r#"
        [[pool-level]]
        name = "ARCHIVE"
        follows = "volume"
        mibps-per-tib = 4
        pool-gib = { min = 1024, max = 1048576 }
        volume-gib = { min = 100, max = 102400 }
        [[pool-level]]
        name = "STANDARD"
        follows = "volume"
        mibps-per-tib = 20
        manual-qos = true
        pool-gib = { min = 1, max = 100 }
        volume-gib = { min = 1, max = 100 }
        "#,
    );
    let levels = Levels::with_file(&path).unwrap();
    assert_eq!(levels.pool("ARCHIVE").unwrap().mibps_per_tib, Some(4.0));
    assert_eq!(levels.pool("STANDARD").unwrap().mibps_per_tib, Some(20.0));
    assert_eq!(levels.pool("PREMIUM").unwrap().mibps_per_tib, Some(64.0));
    for (text, words) in [
        ("[[pool-level]]\nname = 1", "invalid type"),
        ("[[pool-levels]]", "unknown field"),
        (
            "[[pool-level]]\nname='A'\nfollows='volume'\nmibps-per-tib=-1\npool-gib={min=1,max=2}\nvolume-gib={min=1,max=2}",
            "mibps-per-tib",
        ),
        (
            "[[pool-level]]\nname='A'\nfollows='volume'\npool-gib={min=3,max=2}\nvolume-gib={min=1,max=2}",
            "no range",
        ),
        (
            "[[pool-level]]\nname='A'\nfollows='pool'\nmanual-qos=true\nmibps-per-tib=1\npool-gib={min=1,max=2}\nvolume-gib={min=1,max=2}",
            "manual QoS",
        ),
        (
            "[[tier]]\nname='T'\ncapacity-gb={min=1,max=2}\nstep-gb=0\nshrinks=true\nbands=[]",
            "step-gb",
        ),
    ] {
        write(text);
        let error = Levels::with_file(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        assert!(error.contains("levels.toml"), "{error}");
    }
    assert!(Levels::with_file(&folder.path().join("none")).is_err());
}
