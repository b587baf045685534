//! The generator over NFSv4.1, against a server that is strict about sessions and opens.

// Helpers of a test are test code too, which the lints' own exception does not see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

mod fake;

use clap::Parser;
use fake::{Fake, Mischief};
use weir_bench::error::BenchError;
use weir_bench::report::Report;
use weir_bench::{BenchArgs, BenchCommand};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Runs the generator with these arguments against the server.
fn bench(fake: &Fake, arguments: &str) -> Result<Report, BenchError> {
    let server = fake.addr.to_string();
    let line = ["weir-bench", "nfs4", "--server", &server, "--timeout", "30"];
    let cli = Cli::parse_from(line.into_iter().chain(arguments.split_whitespace()));
    match cli.bench.command {
        BenchCommand::Nfs4(args) => weir_bench::run::nfs(&args.settings()),
        _ => unreachable!(),
    }
}

#[test]
fn every_load_runs_cleans_up_and_ends_its_sessions() {
    let fake = Fake::start(Mischief::None);
    for (load, operation) in [
        ("getattr", 9),
        ("lookup", 15),
        ("access", 3),
        ("read", 25),
        ("read -p sequential --verify", 25),
        ("read -p sequential -b 64k --files 3", 25),
        ("write", 38),
        ("mix --verify", 38),
        ("create", 18),
        ("create-write-commit", 5),
        ("create-write-commit --stability file_sync", 38),
        ("mkdir", 6),
        ("rename", 29),
        ("readdir", 26),
        ("readdirplus", 26),
        ("eda -b 64k", 28),
        ("eda-front-end -b 16k --verify", 34),
        ("eda-back-end -b 64k -p sequential", 38),
    ] {
        let before = fake.operations(operation);
        let size = match load.split(' ').next().unwrap() {
            "eda-front-end" => "-s 1m --files 64 --dirs 3",
            "eda-back-end" => "-s 4m --files 6 --dirs 6",
            "read" | "write" | "mix" | "eda" if load.contains("64k") => "-s 4m --dirs 3",
            "read" | "write" | "mix" => "-s 1m --files 4 -b 8k",
            _ => "--files 100 --dirs 3 -b 4k",
        };
        for clients in ["--clients 1", "--clients 2 --minor 2"] {
            let line = format!("{load} -c 3 -d 4 -n 500 {size} {clients}");
            let report = bench(&fake, &line).unwrap();
            let commits = report.figures.classes.iter().find(|c| c.class == "commit");
            let all = report.figures.ops + commits.map_or(0, |c| c.ops);
            assert!(
                report.figures.ops == 500 || all >= 500,
                "{line}: {}",
                report.figures.ops
            );
            assert_eq!(report.figures.faults, Vec::<String>::new(), "{line}");
            assert_eq!(report.figures.notes, Vec::<String>::new(), "{line}");
            assert_eq!(fake.nodes(), 1, "{line} left something behind");
            assert_eq!(fake.sessions().0, 0, "{line} left a client behind");
        }
        assert!(fake.operations(operation) > before, "{load}");
    }
    let report = bench(&fake, "null -c 1 -d 1 -n 50").unwrap();
    assert_eq!(report.figures.ops, 50);
    assert_eq!(fake.sessions().0, 0);
}

/// As over NFSv3: READs and WRITEs go by opens, what is created is closed.
#[test]
fn files_are_open_while_they_are_read_and_written() {
    let fake = Fake::start(Mischief::None);
    let data = "-c 4 -d 2 -b 8k -s 1m --files 5 -n 200 --clients 2";
    bench(&fake, &format!("mix {data} --no-preread")).unwrap();
    // Each of two clients has each of five files open. That a READ or WRITE by another stateid
    // fails, the server sees to.
    assert_eq!(fake.sessions().1, 10);
    let fake = Fake::start(Mischief::None);
    bench(&fake, "create -c 2 -d 4 -n 300").unwrap();
    assert!((1..=8).contains(&fake.sessions().1), "one a call at most");
    assert_eq!(fake.operations(18), fake.operations(4), "OPENs and CLOSEs");
}

#[test]
fn calls_in_flight_are_the_slots_that_were_granted() {
    let fake = Fake::start(Mischief::None);
    let report = bench(&fake, "getattr -c 4 -d 4 --files 20 -n 2000 --slots 6").unwrap();
    assert_eq!((report.figures.ops, report.slots), (2000, Some(6)));
    assert!(
        report.figures.in_flight <= 6.2,
        "{}",
        report.figures.in_flight
    );
    // The server grants fewer than there are connections.
    let fake = Fake::start(Mischief::Slots(3));
    let report = bench(&fake, "getattr --nconnect 4 -d 4 --files 20 -n 2000").unwrap();
    assert_eq!((report.figures.ops, report.slots), (2000, Some(3)));
    assert_eq!(report.settings.connections, 4);
    assert!(
        report.figures.in_flight <= 3.1,
        "{}",
        report.figures.in_flight
    );
    // No more are asked for than calls can be in flight.
    let fake = Fake::start(Mischief::None);
    let report = bench(
        &fake,
        "read -b 4k -s 1m --nconnect 2 --clients 2 -d 3 -n 500",
    )
    .unwrap();
    assert_eq!((report.settings.connections, report.slots), (4, Some(6)));
}

/// NFS4ERR_DELAY to SEQUENCE leaves the number in the slot unused, NFS4ERR_DELAY to an operation
/// behind it does not.
#[test]
fn delayed_calls_are_repeated_with_the_right_number() {
    let fake = Fake::start(Mischief::Jukebox(7));
    for load in [
        "read --verify -b 8k -s 1m --files 4",
        "create",
        "getattr --files 20",
    ] {
        let report = bench(&fake, &format!("{load} -c 3 -d 4 -n 300")).unwrap();
        assert_eq!(report.figures.ops, 300, "{load}");
        assert!(report.jukebox > 20, "{load}: {}", report.jukebox);
        assert_eq!(report.figures.faults, Vec::<String>::new(), "{load}");
        assert_eq!(fake.sessions().0, 0, "{load}");
    }
}

#[test]
fn replies_may_come_in_pieces_and_in_any_order() {
    for mischief in [Mischief::Fragments(50), Mischief::Reverse] {
        let fake = Fake::start(mischief);
        for load in ["read", "read --verify", "mix", "create-write-commit"] {
            let report = bench(&fake, &format!("{load} -c 3 -d 4 -b 8k -s 1m -n 300")).unwrap();
            assert_eq!(report.figures.ops, 300, "{mischief:?} {load}");
            assert_eq!(
                report.figures.faults,
                Vec::<String>::new(),
                "{mischief:?} {load}"
            );
        }
    }
}

#[test]
fn faults_are_reported() {
    const DATA: &str = "-c 3 -d 4 -b 8k -s 1m --files 4 -n 500 --no-preread";
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
    ] {
        let fake = Fake::start(mischief);
        let report = bench(&fake, &format!("{load} {DATA}")).unwrap();
        let faults = report.figures.faults.join("; ");
        assert!(faults.contains(expected), "{mischief:?}: {faults:?}");
    }
    let fake = Fake::start(Mischief::WrongTurn);
    let error = bench(&fake, "null -c 1 -d 1 -n 9").map(|r| r.figures.ops);
    assert_eq!(error.ok(), Some(9), "one call at a time has no slot 3");
    let error = bench(&fake, "access -c 1 -d 8 --files 5 -t 20").map(|r| r.figures.ops);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("sequence number"), "{error}");
}
