//! The whole generator against a small server of its own, over loopback.

// Helpers of a test are test code too, which the lints' own exception does not see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

mod fake;

use clap::Parser;
use fake::{Fake, Mischief};
use weir_bench::args::NfsArgs;
use weir_bench::engine::{self, Link, Options, Phase, Stage};
use weir_bench::error::BenchError;
use weir_bench::load::{ClientContext, Load, RunState};
use weir_bench::nfs3::Calls;
use weir_bench::report::Report;
use weir_bench::rpc::Credential;
use weir_bench::working_set::WorkingSet;
use weir_bench::{BenchArgs, BenchCommand};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parsed(fake: &Fake, arguments: &str) -> NfsArgs {
    let server = fake.addr.to_string();
    let line = ["weir-bench", "nfs3", "--server", &server, "--timeout", "30"];
    let cli = Cli::parse_from(line.into_iter().chain(arguments.split_whitespace()));
    match cli.bench.command {
        BenchCommand::Nfs3(args) => *args,
        _ => unreachable!(),
    }
}

/// Runs the generator with these arguments against the server.
fn bench(fake: &Fake, arguments: &str) -> Result<Report, BenchError> {
    weir_bench::run::nfs(&parsed(fake, arguments))
}

/// A run may be interrupted, or over, before one of its threads has had the processor for the first
/// time.
#[test]
fn a_thread_that_starts_in_a_run_that_drains_ends() {
    let fake = Fake::start(Mischief::None);
    let args = parsed(&fake, "null -c 1 -d 2");
    let calls = Calls::new(Some(&Credential { uid: 0, gid: 0 }));
    let (set, shared) = (WorkingSet::none(), RunState::default());
    let stage = Stage::new(None);
    stage.enter(Phase::Drain);
    let seat = ClientContext {
        wire: &calls,
        files: &[],
        first_slot: 0,
    };
    let link = Link {
        stream: std::net::TcpStream::connect(fake.addr).unwrap(),
        load: Load::new(&args, &set, &shared, seat, 0),
        depth: 2,
        arrivals: None,
    };
    let options = Options {
        region: &[],
        timeout_ns: 30_000_000_000,
        heads_only: false,
    };
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let stage = &stage;
        scope.spawn(move || ended.send(engine::run(vec![link], options, stage).map(drop)));
        let outcome = end.recv_timeout(std::time::Duration::from_secs(60));
        stage.enter(Phase::Abort);
        outcome.expect("it goes on for ever").unwrap();
    });
}

const DATA: &str = "-c 3 -d 4 -b 8k -s 1m --files 4 -n 500";

#[test]
fn every_load_runs_and_cleans_up() {
    let fake = Fake::start(Mischief::None);
    for (load, procedure) in [
        ("null", 0),
        ("getattr", 1),
        ("lookup", 3),
        ("access", 4),
        ("read", 6),
        ("read -p sequential --verify", 6),
        ("write", 7),
        ("mix --verify", 7),
        ("create", 8),
        ("create-write-commit", 21),
        ("mkdir", 9),
        ("rename", 14),
        ("readdir", 16),
        ("readdirplus", 17),
    ] {
        let before = fake.count(procedure);
        let size = if load.starts_with(['r', 'w', 'm']) && procedure < 8 {
            "-s 1m --files 4 -b 8k"
        } else {
            "--files 100 --dirs 3 -b 4k"
        };
        let report = bench(&fake, &format!("{load} -c 3 -d 4 -n 500 {size}")).unwrap();
        assert_eq!(report.figures.ops, 500, "{load}");
        assert_eq!(report.figures.faults, Vec::<String>::new(), "{load}");
        assert!(fake.count(procedure) > before, "{load}");
        assert_eq!(fake.nodes(), 1, "{load} left something behind");
        // Little's law: no more in flight than there are slots.
        assert!(
            report.figures.in_flight <= 12.5,
            "{load}: {}",
            report.figures.in_flight
        );
    }
}

#[test]
fn remove_ends_with_the_last_file() {
    let fake = Fake::start(Mischief::None);
    let report = bench(&fake, "remove -c 2 -d 3 --files 77 --dirs 5").unwrap();
    assert_eq!(report.figures.ops, 77);
    assert_eq!(report.figures.faults, Vec::<String>::new());
    assert_eq!(fake.nodes(), 1);
}

#[test]
fn unstable_writes_are_committed() {
    let fake = Fake::start(Mischief::None);
    // 128 blocks in four files: three passes and a bit on each connection's own.
    let report = bench(
        &fake,
        "write -p sequential -c 2 -d 4 -b 8k -s 1m --files 2 -n 400 --keep",
    )
    .unwrap();
    let commits = report
        .figures
        .classes
        .iter()
        .find(|c| c.class == "commit")
        .unwrap();
    // Each connection writes 200 blocks over a file of 64: three whole passes, and
    // one COMMIT for the rest.
    assert!((6..=10).contains(&commits.ops), "{}", commits.ops);
    let stable = bench(
        &fake,
        &format!("write {DATA} --stability file_sync --dir other"),
    )
    .unwrap();
    assert!(stable.figures.classes.iter().all(|c| c.class != "commit"));
    // What was written with --verify is what a later run expects to find.
    let args = "-c 2 -d 4 -b 8k -s 1m --files 2 -n 400 --verify --reuse --keep --dir v";
    bench(&fake, &format!("write {args}")).unwrap();
    let report = bench(&fake, &format!("read {args}")).unwrap();
    assert_eq!(report.figures.faults, Vec::<String>::new());
}

#[test]
fn replies_may_come_late_in_pieces_and_in_any_order() {
    for mischief in [
        Mischief::Jukebox(7),
        Mischief::Fragments(50),
        Mischief::Fragments(5000),
        Mischief::Reverse,
    ] {
        let fake = Fake::start(mischief);
        for load in [
            "read",
            "read --verify",
            "read --verify -b 256k -s 4m",
            "mix",
        ] {
            let report = bench(
                &fake,
                &format!("{load} {DATA}").replace(
                    if load.contains("256k") {
                        "-b 8k -s 1m"
                    } else {
                        "\0"
                    },
                    "",
                ),
            )
            .unwrap();
            assert_eq!(report.figures.ops, 500, "{mischief:?} {load}");
            assert_eq!(
                report.figures.faults,
                Vec::<String>::new(),
                "{mischief:?} {load}"
            );
        }
        let report = bench(&fake, "create-write-commit -c 3 -d 4 -n 200").unwrap();
        assert_eq!(report.figures.ops, 200, "{mischief:?}");
        if mischief == Mischief::Jukebox(7) {
            assert!(report.jukebox > 0);
        }
    }
}

#[test]
fn large_reads_are_discarded_in_the_kernel_and_still_counted() {
    let fake = Fake::start(Mischief::None);
    for block in ["32k", "64k", "1m"] {
        let report = bench(
            &fake,
            &format!("read -p sequential -c 2 -d 3 -b {block} -s 4m --files 2 -n 300"),
        )
        .unwrap();
        assert_eq!(report.figures.ops, 300, "{block}");
        let bytes: u64 = report.figures.classes.iter().map(|c| c.bytes).sum();
        assert_eq!(bytes, 300 * report.settings.block_size, "{block}");
    }
}

/// The run is complete, but its result says what is wrong.
#[test]
fn faults_are_reported() {
    for (mischief, load, expected) in [
        (Mischief::ShortReads, "read", "500 reads shorter"),
        (
            Mischief::Misplace,
            "read --verify",
            "500 reads with wrong data",
        ),
        (
            Mischief::WeakStability,
            "write --stability data_sync",
            "500 writes answered with less stability",
        ),
        (Mischief::Verifier, "write", "changes of the write verifier"),
    ] {
        let fake = Fake::start(mischief);
        let report = bench(&fake, &format!("{load} {DATA} --no-preread")).unwrap();
        let faults = report.figures.faults.join("; ");
        assert!(faults.contains(expected), "{mischief:?}: {faults:?}");
        if mischief == Mischief::Misplace {
            assert!(report.figures.notes.join(" ").contains("the block of file"));
        }
    }
    let fake = Fake::start(Mischief::Stale);
    let report = bench(&fake, "getattr -c 1 -d 2 -n 50 --files 10").unwrap();
    assert_eq!(report.figures.ops, 0, "a failed call is no operation");
    assert_eq!(
        report.figures.faults,
        ["50 replies with NFS3ERR_STALE (70)"]
    );
}

/// The run ends at once with a protocol error.
#[test]
fn protocol_errors_end_the_run() {
    for (mischief, load, expected) in [
        (Mischief::WrongCount, "read", "count 8191"),
        (Mischief::Trailing, "access", "behind the results"),
        (Mischief::WrongXid, "access", "reply to no call"),
        (Mischief::Close(200), "access", "closed the connection"),
        (Mischief::Stale, "getattr", "too many failures"),
    ] {
        let fake = Fake::start(mischief);
        let size = if load == "read" {
            "-b 8k -s 1m --no-preread"
        } else {
            "--files 20"
        };
        let error = bench(&fake, &format!("{load} -c 2 -d 4 -t 20 {size}"))
            .map(|r| r.figures.faults)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{mischief:?}: {error}");
    }
}

#[test]
fn impossible_arguments_are_refused() {
    let fake = Fake::start(Mischief::None);
    for (arguments, expected) in [
        ("read -b 6", "multiple of 4"),
        ("read -b 2m -s 64m -c 1", "at most 1048576"),
        ("read -b 6000 --verify", "multiple of 4096"),
        ("read -b 1m -s 1m", "no block"),
        ("rename -c 8 -d 16 --files 10", "as many files"),
    ] {
        let error = bench(&fake, arguments)
            .map(|r| r.figures.ops)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}

/// A server that stalls once: an open loop counts the wait of everything that was due
/// meanwhile, which is what its users would have seen.
#[test]
fn an_open_loop_counts_latency_from_the_due_time() {
    // The stall falls into the load: preparation takes some 30 calls.
    let fake = Fake::start(Mischief::Stall(300));
    let report = bench(
        &fake,
        "getattr -c 1 -d 4 --files 10 --dirs 1 --rate 1000 --arrivals constant -n 1000",
    )
    .unwrap();
    assert_eq!(report.figures.ops, 1000);
    let l = &report.figures.classes[0].latency_us;
    assert!(l.max >= 300_000.0, "{l:?}");
    // 400 of 1000 were due during the stall; with only 4 slots, a closed loop would have
    // seen 4 of them. At least those due in its first half waited for 200 ms.
    assert!(l.p90 >= 100_000.0, "{l:?}");
    assert!(report.offered_ops_per_s == Some(1000.0));
}

#[test]
fn a_rate_is_not_exceeded_and_clients_share_the_connections() {
    let fake = Fake::start(Mischief::None);
    let report = bench(
        &fake,
        "getattr -c 6 -d 4 --clients 3 --files 20 --rate 500 --warmup 0 -t 1",
    )
    .unwrap();
    // Poisson: 500 ± 5 deviations of √500.
    assert!(
        (1..=620).contains(&report.figures.ops),
        "{}",
        report.figures.ops
    );
    // In flight in all, where it does not divide evenly: 10 on 4 connections.
    let report = bench(
        &fake,
        "read -c 4 -d 3 --in-flight 10 -b 8k -s 1m --files 4 -n 2000",
    )
    .unwrap();
    assert!(
        report.figures.in_flight <= 10.3,
        "{}",
        report.figures.in_flight
    );
    let error = bench(&fake, "null -c 4 -d 2 --in-flight 9")
        .map(|r| r.figures.ops)
        .unwrap_err();
    assert!(error.to_string().contains("at most 8"), "{error}");
}

#[test]
fn the_blend_cleans_up_what_it_makes() {
    let fake = Fake::start(Mischief::None);
    let report = bench(
        &fake,
        "eda -c 3 -d 4 -n 3000 -b 64k -s 4m --files 16 --dirs 3",
    )
    .unwrap();
    assert_eq!(report.figures.faults, Vec::<String>::new());
    let commits = report.figures.classes.iter().find(|c| c.class == "commit");
    assert!(report.figures.ops + commits.map_or(0, |c| c.ops) >= 3000);
    for procedure in [1, 3, 4, 6, 7, 8, 12, 17, 21] {
        assert!(fake.count(procedure) > 0, "procedure {procedure}");
    }
    assert_eq!(fake.nodes(), 1);
}

#[test]
fn the_front_end_does_its_operations_in_their_shares_and_cleans_up() {
    let fake = Fake::start(Mischief::None);
    let set = "-b 16k -s 4m --files 256 --dirs 16";
    let report = bench(
        &fake,
        &format!("eda-front-end -c 3 -d 4 -n 20000 --verify --stability file_sync {set}"),
    )
    .unwrap();
    assert_eq!(report.figures.faults, Vec::<String>::new());
    assert_eq!(report.figures.ops, 20_000);
    assert_eq!(fake.nodes(), 1);
    // Making the set, checking it and removing it takes LOOKUPs, CREATEs, WRITEs and REMOVEs.
    for (procedure, percent) in [(1, 26.0), (2, 1.0), (4, 15.0), (17, 2.0)] {
        let got = fake.count(procedure) as f64 / 200.0;
        assert!(
            (got - percent).abs() < 1.0,
            "procedure {procedure}: {got} %"
        );
    }
    let class = |name: &str| {
        let classes = &report.figures.classes;
        classes.iter().find(|c| c.class == name).unwrap()
    };
    let (read, write) = (class("read"), class("write"));
    for (class, percent) in [(read, 15.0), (write, 25.0)] {
        let got = class.ops as f64 / 200.0;
        assert!((got - percent).abs() < 1.5, "{}: {got} %", class.class);
    }
    let error = bench(&fake, "eda-front-end -b 4k -s 1m --verify --files 256").map(|_| ());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("multiple of 16384 bytes"), "{error}");
}

#[test]
fn the_back_end_has_its_files_in_directories() {
    let fake = Fake::start(Mischief::None);
    let set = "-b 64k -s 4m --files 6 --dirs 6 -p sequential";
    let report = bench(&fake, &format!("eda-back-end -c 3 -d 2 -n 600 {set}")).unwrap();
    assert_eq!(report.figures.faults, Vec::<String>::new());
    // The set's folder, and one for each file.
    assert_eq!(fake.count(9), 7);
    assert_eq!(fake.nodes(), 1);
}

#[test]
fn clients_are_spread_over_the_addresses() {
    let fake = Fake::start(Mischief::None);
    let (other, there) = fake.serve_elsewhere();
    let server = format!("{},{other}", fake.addr);
    let run = |clients: &str| {
        let mut args = parsed(
            &fake,
            &format!("getattr -c 4 -d 2 -n 4000 --files 64 {clients}"),
        );
        args.server.clone_from(&server);
        weir_bench::run::nfs(&args)
    };
    let report = run("--clients 2").unwrap();
    assert_eq!(report.figures.ops, 4000);
    let getattrs = there[1].load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(fake.count(1) + getattrs, 4000);
    assert!(getattrs > 0 && getattrs < 4000, "{getattrs}");
    let error = run("--clients 1").map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("do not all reach 2 addresses; give --clients 2"),
        "{error}"
    );
}
