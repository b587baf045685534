//! Pages of known counters.

use super::*;
use std::time::Duration;
use weir_api::live::{Kind, WAITS, limit_of};
use weir_base::{Budget, ManualClock};
use weir_qos::{Metadata, Plan, PoolPlan, Rate, VolumePlan};
use weir_vfs::HandleKey;
use weir_vfs::stats::{Cause, Done, OTHER_STATUS, UNATTRIBUTED};
use weir_vfs::throttle::{CreditLimits, Request, Throttle};

fn value(page: &str, series: &str) -> f64 {
    let mut found = page
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = found
        .next()
        .unwrap_or_else(|| panic!("no {series} in\n{page}"));
    assert!(found.next().is_none(), "{series} twice");
    value.parse().unwrap()
}

#[test]
fn a_page_says_what_was_done_and_what_is_held_back() {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(100));
    let dyn_clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let throttle = Throttle::new(Arc::clone(&dyn_clock), 1, CreditLimits::of_budget(1 << 24));
    let vfs = Vfs::with_throttle(
        HandleKey::new([1; 16], [0; 16]),
        Arc::clone(&throttle),
        Budget::new(1 << 20),
    );
    let stats = Arc::new(Stats::classed(1, classes()));
    let limits = Limits {
        total: Rate::bytes(1000),
        ..Limits::default()
    };
    let plan = Plan {
        generation: 1,
        pools: vec![PoolPlan {
            id: 5,
            name: "po\"ol".into(),
            limits: Limits {
                total: Rate::ops(1_000_000),
                ..Limits::default()
            },
            source: "".into(),
            shared: None,
        }],
        volumes: vec![VolumePlan {
            volume: 3,
            name: "v".into(),
            pool: 5,
            limits,
            client: Limits::default(),
            source: "".into(),
            shared: None,
        }],
    };
    assert!(throttle.apply(&plan));
    let device = Arc::new(weir_store::MemDevice::new(16));
    let pool = weir_store::FramePool::new(1024).unwrap();
    let cache = Arc::new(Cache::new(pool, device));
    cache.read_ahead(&[weir_store::BlockPtr::default()], &Arc::new(()));
    let live = Arc::new(Live::new(1 << 20, 100));
    let metrics = Arc::new(Metrics::new(
        vfs,
        Arc::clone(&stats),
        dyn_clock,
        cache,
        Arc::clone(&live),
        (None, None),
    ));
    let render = || metrics.pieces().collect::<String>();
    let page = render();
    assert!((value(&page, "weir_read_ahead_blocks_total") - 1.0).abs() < 1e-9);
    assert!((value(&page, "weir_read_ahead_wasted_blocks_total") - 1.0).abs() < 1e-9);
    let request = Request {
        volume: VolumeId(3),
        client: std::net::IpAddr::from([10, 0, 0, 1]).into(),
        flow: 1,
        direction: Direction::Read,
        bytes: 500,
    };
    metrics.sample(101);
    let first = throttle.gate(&request, None, &mut None);
    let second = throttle.gate(&request, None, &mut None);
    let client = std::net::IpAddr::from([10, 0, 0, 1]).into();
    throttle.charge_metadata(VolumeId(3), client, Metadata::Change, None);
    let arrived = 1_000;
    let done = Done {
        volume: VolumeId(3),
        operation: 6,
        bytes: 500,
        arrived,
    };
    stats.record(
        1,
        [10, 0, 0, 1].into(),
        arrived + 20_000,
        [done].into_iter(),
    );
    stats.wait(1, VolumeId(3), Cause::Log, 5_000);
    clock.advance(Duration::from_secs(1));
    metrics.sample(102);
    // Another one asks in between.
    clock.advance(Duration::from_millis(100));
    let page = render();
    let labels = r#"pool="po\"ol",volume="v""#;
    let operation = format!(r#"{labels},protocol="nfsv3",operation="READ""#);
    assert_eq!(
        value(
            &page,
            &format!("weir_operation_seconds_count{{{operation}}}")
        ),
        1.0
    );
    assert_eq!(
        value(
            &page,
            &format!(r#"weir_operation_seconds_bucket{{{operation},le="0.000016384"}}"#)
        ),
        0.0
    );
    assert_eq!(
        value(
            &page,
            &format!(r#"weir_operation_seconds_bucket{{{operation},le="0.000032768"}}"#)
        ),
        1.0
    );
    assert_eq!(
        value(
            &page,
            &format!(r#"weir_operation_seconds_bucket{{{operation},le="+Inf"}}"#)
        ),
        1.0
    );
    assert_eq!(
        value(&page, &format!("weir_operation_bytes_total{{{operation}}}")),
        500.0
    );
    assert_eq!(
        value(&page, r#"weir_client_bytes_total{client="10.0.0.1"}"#),
        500.0
    );
    let client = r#"client="10.0.0.1""#;
    let of_client = |le: &str| {
        let series = format!(r#"weir_client_operation_seconds_bucket{{{client},le="{le}"}}"#);
        value(&page, &series)
    };
    assert_eq!(
        ["0.000016384", "0.000032768", "+Inf"].map(of_client),
        [0.0, 1.0, 1.0]
    );
    assert_eq!(
        ["sum", "count"].map(|what| value(
            &page,
            &format!("weir_client_operation_seconds_{what}{{{client}}}")
        )),
        [0.00002, 1.0]
    );
    let limit = format!(r#"level="volume",{labels},direction="both""#);
    let of_limit = |family: &str| value(&page, &format!("{family}{{{limit}}}"));
    assert_eq!(
        ["weir_limit", "weir_limit_used"].map(|of| of_limit(&format!("{of}_bytes_per_second"))),
        [1000.0, 500.0]
    );
    let pool = r#"level="pool",pool="po\"ol",volume="""#;
    assert_eq!(
        value(
            &page,
            &format!("weir_limit_metadata_operations_total{{{pool}}}")
        ),
        1.0
    );
    // A READ and what metadata took.
    let operations = format!(r#"weir_limit_used_operations_per_second{{{pool},direction="both"}}"#);
    assert_eq!(value(&page, &operations), 2.0);
    assert_eq!(
        ["read", "write"].map(|direction| value(
            &page,
            &format!(r#"weir_throttle_queue_length{{{labels},direction="{direction}"}}"#)
        )),
        [1.0, 0.0]
    );
    let bound = format!(r#"{{level="volume",{labels},limit="bytes",direction="read"}}"#);
    // The time up to the reading, when the limit had become ready: the delay of a release after
    // that is not the limit's.
    assert_eq!(
        value(&page, &format!("weir_limit_bound_seconds_total{bound}")),
        1.0
    );
    let binding = format!(r#"weir_limit_binding{{level="volume",{labels},limit="bytes"}}"#);
    assert_eq!(value(&page, &binding), 1.0);
    assert_eq!(
        value(
            &page,
            &format!(r#"weir_throttled_operations_total{{{labels},direction="read"}}"#)
        ),
        1.0
    );
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (_, number) = line.rsplit_once(' ').unwrap();
        assert!(number.parse::<f64>().is_ok(), "{line}");
    }
    let volume = live.book.newest(Kind::Volume, "v").unwrap();
    assert_eq!((volume.reads, volume.read_bytes), (1.0, 500.0));
    assert_eq!((volume.waiting, volume.waiting_bytes), (1.0, 500.0));
    assert_eq!((volume.bound, volume.limit), (1.0, 1000.0));
    assert_eq!((volume.spent.count, volume.spent.operations), (1.0, 2e-5));
    let log = WAITS.iter().position(|cause| *cause == "log").unwrap();
    assert_eq!(volume.spent.waits[log], 5e-6);
    assert_eq!(
        volume
            .spent
            .waits
            .iter()
            .filter(|wait| **wait > 0.0)
            .count(),
        1
    );
    assert_eq!(limit_of(volume.bound_by), Some(("VOLUME", "BYTES")));
    assert!((0.00001..0.00004).contains(&volume.p50), "{}", volume.p50);
    for (kind, name) in [
        (Kind::Client, "10.0.0.1"),
        (Kind::VolumeClient, "v 10.0.0.1"),
    ] {
        let row = live.book.newest(kind, name).unwrap();
        assert_eq!((row.read_bytes, row.waiting), (500.0, 1.0), "{name}");
    }
    // The volume's limit held it, not the pool's.
    let of_pool = live.book.newest(Kind::Pool, "po\"ol").unwrap();
    assert_eq!((of_pool.read_bytes, of_pool.waiting), (500.0, 1.0));
    assert_eq!((of_pool.bound, of_pool.bound_by), (0.0, 0));
    let waited = format!(r#"weir_operation_wait_seconds_total{{{labels},wait="pool"}}"#);
    assert_eq!(value(&page, &waited), 0.0);
    stats.wait(0, VolumeId(3), Cause::Device, 2_000_000_000);
    stats.wait(0, UNATTRIBUTED, Cause::Claim, 500_000_000);
    let page = render();
    for (labels, wait, seconds) in [
        (labels, "log", 5e-6),
        (labels, "device", 2.0),
        (r#"pool="",volume="""#, "claim", 0.5),
    ] {
        let waited = format!(r#"weir_operation_wait_seconds_total{{{labels},wait="{wait}"}}"#);
        assert_eq!(value(&page, &waited), seconds, "{waited}");
    }
    drop((first, second));
    assert_eq!(
        value(
            &render(),
            &format!(r#"weir_throttle_queue_length{{{labels},direction="read"}}"#)
        ),
        0.0
    );
}

#[test]
fn failures_have_the_names_of_their_protocols() {
    let numbers = |protocol, operation| {
        let mut all = 0..=u8::MAX;
        let found = all.find(|number| operation_name(*number) == Some((protocol, operation)));
        found.unwrap_or_else(|| panic!("{protocol} {operation}"))
    };
    let stats = Stats::new(1);
    for (protocol, operation, status, name) in [
        ("nfsv3", "LOOKUP", 2, "NOENT"),
        ("nfsv3", "WRITE", 10008, "JUKEBOX"),
        ("mountv3", "MNT", 13, "ACCES"),
        ("nfsv4", "SEQUENCE", 10052, "BADSESSION"),
        ("nfsv4", "OPEN", 10008, "DELAY"),
        ("nfsv4", "OPEN", 10999, "10999"),
        ("smb", "CREATE", 0xc000_0034, "OBJECT_NAME_NOT_FOUND"),
        ("smb", "CREATE", OTHER_STATUS, "other"),
    ] {
        stats.fail(0, numbers(protocol, operation), status);
        let failures = stats.failures();
        let mut pieces = Pieces::default();
        pieces.then(move |page| errors(page, &failures));
        let page: String = pieces.collect();
        let labels = format!(r#"protocol="{protocol}",operation="{operation}",status="{name}""#);
        let series = format!("weir_operation_errors_total{{{labels}}}");
        assert_eq!(value(&page, &series), 1.0);
    }
}

#[test]
fn a_piece_is_small_however_many_volumes_there_are() {
    const VOLUMES: u64 = 2000;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let throttle = Throttle::new(Arc::clone(&clock), 1, CreditLimits::of_budget(1 << 24));
    let vfs = Vfs::with_throttle(
        HandleKey::new([1; 16], [0; 16]),
        Arc::clone(&throttle),
        Budget::new(1 << 20),
    );
    let limits = Limits {
        total: Rate::bytes(1000),
        ..Limits::default()
    };
    let volume = |volume| VolumePlan {
        volume,
        name: format!("volume-{volume}").into(),
        pool: volume,
        limits,
        client: limits,
        source: "".into(),
        shared: None,
    };
    let pool = |id| PoolPlan {
        id,
        name: format!("pool-{id}").into(),
        limits,
        source: "".into(),
        shared: None,
    };
    assert!(throttle.apply(&Plan {
        generation: 1,
        pools: (0..VOLUMES).map(pool).collect(),
        volumes: (0..VOLUMES).map(volume).collect(),
    }));
    let stats = Arc::new(Stats::classed(1, classes()));
    for volume in 0..VOLUMES {
        let done = (1..=10).map(|operation| Done {
            volume: VolumeId(volume),
            operation,
            bytes: 1,
            arrived: 0,
        });
        stats.record(1, [10, 0, 0, 1].into(), 20_000, done);
    }
    let device = Arc::new(weir_store::MemDevice::new(16));
    let frames = weir_store::FramePool::new(1024).unwrap();
    let cache = Arc::new(Cache::new(frames, device));
    let live = Arc::new(Live::new(1 << 20, 100));
    let metrics = Arc::new(Metrics::new(vfs, stats, clock, cache, live, (None, None)));
    metrics.sample(1);
    metrics.sample(2);
    let mut page = String::new();
    for piece in metrics.pieces() {
        // What one step adds to a piece that is not full yet: the histograms of one volume.
        let most = weir_base::limits::api::METRICS_PIECE + (64 << 10);
        assert!(piece.len() < most, "a piece of {} bytes", piece.len());
        page.push_str(&piece);
    }
    assert!(page.len() > 4 << 20, "{} bytes", page.len());
    let mut families = std::collections::HashSet::new();
    let mut series = std::collections::HashSet::new();
    let mut family = "";
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            family = head.split(' ').next().unwrap();
            assert!(families.insert(family), "{family} twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(family), "{line} in {family}");
            assert!(series.insert(line.rsplit_once(' ').unwrap().0), "{line}");
        }
    }
    for (family, rows) in [
        ("weir_operation_seconds_count", 10 * VOLUMES),
        (
            "weir_operation_seconds_bucket",
            10 * (weir_base::latency::BUCKETS as u64 * DETAILED as u64 + VOLUMES - DETAILED as u64),
        ),
        ("weir_limit_bytes_per_second", 3 * VOLUMES),
        ("weir_limit_used_bytes_per_second", 2 * VOLUMES),
        ("weir_throttle_queue_length", 2 * VOLUMES),
    ] {
        let begin = format!("{family}{{");
        let found = page.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(found.count() as u64, rows, "{family}");
    }
}
