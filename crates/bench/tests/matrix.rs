//! `weir bench matrix` and its reports, as a user runs them, against a small server.

// Helpers of a test are test code too, which the lints' own exception does not see.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod fake;

use fake::{Fake, Mischief};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const DEFINITION: &str = r#"
name = "tiny"
title = "A tiny matrix <&>"
source = "a test"
published = "netapp-extreme"
[load]
clients = 2
jobs = 2
depth = 2
nconnect = 2
working_set = "1MiB"
[time]
warmup = 0.1
warmup_at_most = 0.2
measure = 0.5
repetitions = 2
[[table]]
block_size = "8KiB"
pattern = "random"
mixes = [100, 50, 0]
[[table]]
block_size = "64KiB"
pattern = "sequential"
mixes = [100, 50, 0]
"#;

/// A folder of the test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-lab-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("tiny.toml"), DEFINITION).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn run(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(&format!("{name}/run.json"))).unwrap()
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        let child = self
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        finish(child)
    }

    /// A program in the folder that a run takes for fio.
    fn fake_fio(&self, script: &str) {
        std::fs::write(self.path("fio"), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(self.path("fio"), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_weir-bench"));
        c.args(arguments).current_dir(&self.0);
        c
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Seconds after which a run hangs. Those of these tests take some seconds each.
const DEADLINE_S: u64 = 120;

/// Returns what a child prints until it ends. One that hangs is killed, so that the test fails by
/// its exit status rather than hanging as well.
fn finish(child: Child) -> Output {
    let pid = child.id().to_string();
    let (over, ended) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let deadline = std::time::Duration::from_secs(DEADLINE_S);
        if ended.recv_timeout(deadline).is_err() {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
    });
    let out = child.wait_with_output().unwrap();
    over.send(()).unwrap();
    watch.join().unwrap();
    out
}

fn url(fake: &Fake) -> String {
    format!("nfs://{}/vol1", fake.addr)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn array<'v>(v: &'v Value, key: &str) -> &'v [Value] {
    v[key].as_array().unwrap()
}

#[test]
fn a_matrix_becomes_tables_files_and_comparisons() {
    let fake = Fake::start(Mischief::None);
    let s = Scratch::new("whole");
    let out = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        &url(&fake),
        "-o",
        "a",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    // The published tables' form: a column a mix, a read row and a write row.
    assert!(shown.contains("NFSv3, 8 KiB random"), "{shown}");
    for row in [
        "100/0",
        "Read IOPS",
        "Write IOPS",
        "Read MiB/s",
        "durable at the reply",
        "bound by",
    ] {
        assert!(shown.contains(row), "{row} in\n{shown}");
    }
    let run = s.run("a");
    assert_eq!(run["state"], "complete");
    let cells = array(&run, "cells");
    assert_eq!(cells.len(), 6);
    for c in cells {
        assert_eq!(array(c, "repetitions").len(), 2);
        for r in array(c, "repetitions") {
            let mix = c["point"]["read_percent"].as_u64().unwrap();
            assert_eq!(r["read"].is_null(), mix == 0);
            assert_eq!(r["write"].is_null(), mix == 100);
            assert_eq!(r["tier"], if mix == 100 { "nothing" } else { "local" });
            // 2 clients × 2 jobs × 2 deep are kept in flight, by Little's law.
            let l = r["little"]["in_flight"].as_f64().unwrap();
            assert!(l > 0.0 && l < 8.5, "{l}");
            assert_eq!(r["little"]["asked"].as_f64(), Some(8.0));
            assert!(array(r, "series").len() > 2);
        }
    }
    assert_eq!(fake.nodes(), 1, "the working set is removed");
    let html = s.read("a/report.html");
    assert!(html.contains("A tiny matrix &lt;&amp;&gt;") && html.contains("<svg class=\"plot\""));
    assert!(!html.contains("<script") && !html.contains("http://") && !html.contains("https://"));
    assert!(s.read("a/report.md").contains("| **Read IOPS** |"));
    is_summed_up(&s, &run);

    // The same again is refused, and what is there stays; elsewhere it may be done.
    let again = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        &url(&fake),
        "-o",
        "a",
    ]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again.stderr).contains("run.json exists"),
        "{}",
        text(&again.stderr)
    );
    assert_eq!(s.run("a")["started"], run["started"]);
    let out = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        &url(&fake),
        "-o",
        "b",
        "-q",
        "-r",
        "1",
        "--label",
        "other",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(
        out.stdout.is_empty() && out.stderr.is_empty(),
        "quiet is quiet"
    );

    let out = s.bench(&["compare", "a", "b", "--html", "c.html", "--json", "c.json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    assert!(
        shown.contains("A is tiny of nfs://") && shown.contains("other over A"),
        "{shown}"
    );
    assert!(shown.contains("differs: measured: "), "{shown}");
    let ratios: Value = serde_json::from_str(&s.read("c.json")).unwrap();
    assert!(
        ratios
            .as_array()
            .unwrap()
            .iter()
            .all(|r| r["ratio"]["median"].as_f64().unwrap() > 0.0)
    );
    let out = s.bench(&[
        "compare",
        "a",
        "--published",
        "netapp-extreme",
        "--per",
        "core",
    ]);
    let shown = text(&out.stdout);
    assert!(
        shown.contains("Per core of the clients") && !shown.contains("265,000"),
        "{shown}"
    );
    let out = s.bench(&["compare", "a", "--published", "netapp-extreme"]);
    let shown = text(&out.stdout);
    assert!(
        shown.contains("Not scaled") && shown.contains("265,000") && shown.contains("2,172"),
        "{shown}"
    );
    let out = s.bench(&["compare", "a", "--published", "moon"]);
    assert!(
        text(&out.stderr).contains("netapp-flex"),
        "{}",
        text(&out.stderr)
    );
    let out = s.bench(&["report", "a", "--html", "c.html"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("c.html exists"));
}

/// The summary has each rate with its published one, and is made again as it was.
fn is_summed_up(s: &Scratch, run: &Value) {
    let written = s.read("a/summary.json");
    let summary: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(
        (&summary["format"], &summary["state"]),
        (&1.into(), &"complete".into())
    );
    assert_eq!(summary["startedSeconds"], run["started"]);
    assert_eq!(summary["published"]["set"], "netapp-extreme");
    assert_eq!(summary["published"]["cores"], 192);
    let tables = array(&summary, "tables");
    let rows = |table: usize| {
        let rows = array(&tables[table], "rows").iter();
        rows.map(|row| {
            assert!(row["value"].as_f64().unwrap() > 0.0 && !array(row, "boundBy").is_empty());
            let published = array(row, "published")[0]["value"].as_f64().unwrap();
            format!(
                "{} {} {published}",
                row["side"].as_str().unwrap(),
                row["column"].as_str().unwrap()
            )
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(
        (
            tables.len(),
            tables[0]["unit"].as_str(),
            tables[1]["unit"].as_str()
        ),
        (2, Some("IOPS"), Some("MiB/s"))
    );
    assert_eq!(
        rows(0),
        [
            "Read 100/0 265000",
            "Read 50/50 66900",
            "Write 50/50 66900",
            "Write 0/100 104000"
        ]
    );
    assert_eq!(rows(1)[0], "Read 100/0 5237");
    let again = s.bench(&["report", "a", "--summary", "again.json"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_eq!(s.read("again.json"), written);
}

/// Targets are measured in alternation, and the first is what overheads are over.
#[test]
fn a_baseline_and_a_second_target() {
    let fakes = [Fake::start(Mischief::None), Fake::start(Mischief::None)];
    let s = Scratch::new("baseline");
    let given = [
        format!("NoMirror={}", url(&fakes[0])),
        format!("Mirror={}", url(&fakes[1])),
    ];
    let out = s.bench(&[
        "matrix",
        "--preset",
        "datakeeper",
        &given[0],
        &given[1],
        "--max-size",
        "4m",
        "-t",
        "0.3",
        "--warmup",
        "0.1",
        "-r",
        "1",
        "-o",
        "a",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    assert!(
        shown.contains("Overhead over NoMirror") && shown.contains("8 KiB Mirror"),
        "{shown}"
    );
    let out = s.bench(&["compare", "a", "--published", "datakeeper"]);
    let shown = text(&out.stdout);
    assert!(
        shown.contains("58.87") && shown.contains("39.18 %") && shown.contains("64.50 %"),
        "{shown}"
    );
}

/// The phases of chip design at two addresses of one server, by offered load, beside the published
/// figure by address.
#[test]
fn phases_of_chip_design_are_beside_the_published_figure() {
    let fake = Fake::start(Mischief::None);
    let (other, there) = fake.serve_elsewhere();
    let s = Scratch::new("eda");
    let at = format!("nfs://{},{other}/vol1", fake.addr);
    let tiny = "--max-size 2m --rate-scale 0.0004 --clients 2 --jobs 2 --depth 4 --nconnect 2";
    let mut line = vec!["matrix", "--preset", "eda", &at, "-o", "a", "-r", "1"];
    line.extend(tiny.split(' '));
    line.extend(["-t", "0.5", "--warmup", "0.1"]);
    let out = s.bench(&line);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(fake.nodes(), 1, "a working set was left behind");
    assert!(there[1].load(std::sync::atomic::Ordering::SeqCst) > 0);
    let run = s.run("a");
    assert_eq!(run["targets"][0]["addresses"], 2);
    assert_eq!(array(&run, "cells").len(), 18);
    let first = &array(&run, "cells")[0]["repetitions"][0];
    for side in ["read", "write", "other"] {
        assert!(first[side]["ops_per_s"].as_f64().unwrap() > 0.0, "{side}");
    }
    assert_eq!(first["tier"], "local", "the front end's writes are stable");
    let shown = text(&out.stdout);
    for row in [
        "NFSv3, Front end\n",
        "open loop · 2 addresses",
        "Both, MiB/s",
        "Beside NetApp Volumes' figure of a large volume",
        "per address: 6 published, 2 here",
        "1,350,000",
        "22,016",
        "225,000",
    ] {
        assert!(shown.contains(row), "{row} in\n{shown}");
    }
    let offered: Vec<Vec<&str>> = shown
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("offered ops/s "))
        .map(|columns| columns.split_whitespace().collect())
        .collect();
    assert_eq!(offered.len(), 3, "{shown}");
    assert_eq!(offered[0], ["90", "180", "270", "360", "450", "540"]);
    for file in ["a/report.html", "a/report.md"] {
        let report = s.read(file);
        assert!(report.contains("divide them by 6 and this run"), "{file}");
        let changed = "offered ops/s of Back end: 58,709 to 352,256 → 23 to 141";
        assert!(report.contains(changed), "{file}");
    }
    let out = s.bench(&["compare", "a", "--published", "netapp-eda"]);
    assert!(text(&out.stdout).contains("3,669"), "{}", text(&out.stdout));
    let out = s.bench(&["compare", "a", "--published", "netapp-eda", "--per", "core"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("neither clients nor cores"));
}

/// One export over three versions of the protocol, in turn.
#[test]
fn targets_may_name_the_version_of_the_protocol() {
    let fake = Fake::start(Mischief::None);
    let s = Scratch::new("versions");
    let (v3, v4) = (
        format!("three={}?version=3", url(&fake)),
        format!("four=nfs://{}/vol1?version=4.1&slots=3", fake.addr),
    );
    let out = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        "--only",
        "8 KiB random",
        "-r",
        "1",
        "--nfs",
        "4.2",
        &v3,
        &v4,
        &format!("given={}", url(&fake)),
        "-o",
        "a",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let run = s.run("a");
    let named: Vec<&str> = array(&run, "targets")
        .iter()
        .map(|t| t["protocol"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["NFSv3", "NFSv4.1", "NFSv4.2"]);
    assert!(array(&run, "cells").len() == 9, "{run}");
    assert_eq!(fake.nodes(), 1, "a working set was left behind");
    assert_eq!(fake.sessions().0, 0, "a client was left behind");
}

#[test]
fn what_is_no_server_or_no_definition_is_said() {
    let s = Scratch::new("bad");
    let mut web = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = web.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in web_streams(&mut web) {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let fake = Fake::start(Mischief::None);
    let good = url(&fake);
    let (elsewhere, _) = fake.serve_elsewhere();
    let spread = format!("nfs://{},{elsewhere}/vol1", fake.addr);
    let stranger = Fake::start(Mischief::Stale);
    let two = format!("nfs://{},{}/vol1", fake.addr, stranger.addr);
    std::fs::write(
        s.path("bad.toml"),
        DEFINITION.replace("jobs = 2", "jobs = 0"),
    )
    .unwrap();
    let web = format!("nfs://{at}/vol1");
    for (arguments, expected) in [
        (
            vec!["--preset", "netapp-flex", &web, "--max-size", "8m"],
            "does not answer like an NFS server",
        ),
        (vec!["--preset", "moon", &good], "no preset \"moon\""),
        (
            vec!["--definition", "bad.toml", &good],
            "bad.toml: table 1 (8 KiB random): jobs = 0: 1 to 1000",
        ),
        (vec!["--definition", "none.toml", &good], "none.toml"),
        (vec![&good], "give --preset"),
        (vec!["--preset", "netapp-flex"], "what is to be measured?"),
        (vec!["--preset", "netapp-flex", &good], "take 576 GiB and"),
        (
            vec!["--preset", "netapp-flex", &good, "--max-size", "1k"],
            "no block of 64 KiB",
        ),
        (
            vec![
                "--preset",
                "netapp-flex",
                &good,
                "--max-size",
                "8m",
                "--budget",
                "3s",
            ],
            "do not fit into 3 s",
        ),
        (
            vec!["--preset", "netapp-flex", &good, "--only", "1 MiB"],
            "--only leaves no table",
        ),
        (
            vec!["--definition", "tiny.toml", &good, &good],
            "two targets are called",
        ),
        (
            vec!["--definition", "tiny.toml", "/", "--fio", "/no/fio"],
            "apt-get install fio",
        ),
        (vec!["--preset", "eda-like", "/"], "fio does not have"),
        (
            vec!["--preset", "eda", "/"],
            "Front end needs operations on names",
        ),
        (
            vec!["--preset", "eda", &two, "--max-size", "8m"],
            "does not serve what",
        ),
        (
            vec![
                "--preset",
                "eda",
                &spread,
                "--max-size",
                "8m",
                "--clients",
                "1",
            ],
            "has 2 addresses, which 1 client(s) do not all reach; --clients 2 or more",
        ),
        (
            vec!["--preset", "netapp-flex", &good, "--rate-scale", "2"],
            "no table of netapp-flex offers a rate",
        ),
        (
            vec!["--preset", "eda", &good, "--rate-scale", "0"],
            "--rate-scale is a factor greater than 0",
        ),
        (
            vec!["--preset", "nconnect-sweep", "/"],
            "option of the mount",
        ),
    ] {
        let mut line = vec!["matrix", "-o", "x"];
        line.extend(&arguments);
        let out = s.bench(&line);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(
            !Path::new(&s.path("x")).exists(),
            "{arguments:?} left a folder"
        );
    }
    std::fs::create_dir(s.path("y")).unwrap();
    std::fs::write(s.path("y/run.json"), "{\"format\": 99}").unwrap();
    let out = s.bench(&["compare", "y", "y"]);
    assert!(text(&out.stderr).contains("format 99, where 1 is known"));
    let out = s.bench(&["matrix", "--resume", "y"]);
    assert_eq!(out.status.code(), Some(1));
}

fn web_streams(l: &mut TcpListener) -> impl Iterator<Item = std::net::TcpStream> + '_ {
    l.incoming().flatten()
}

#[test]
fn an_old_fio_is_refused() {
    let s = Scratch::new("old-fio");
    s.fake_fio("echo fio-3.7");
    let out = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        "/",
        "--fio",
        "./fio",
        "-o",
        "x",
    ]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("fio-3.7; fio-3.25 or newer"),
        "{}",
        text(&out.stderr)
    );
}

/// fio itself breaks, or finds the disk full: the run says what fio said, and keeps what it has.
#[test]
fn what_becomes_of_a_run_whose_fio_fails() {
    let s = Scratch::new("broken-fio");
    std::fs::create_dir(s.path("target")).unwrap();
    let is_asked = "[ \"$1\" != --version ] || { echo fio-3.33; exit; }";
    let run = |out: &str| {
        s.bench(&[
            "matrix",
            "--definition",
            "tiny.toml",
            "target",
            "--fio",
            &s.path("fio"),
            "-o",
            out,
            "-r",
            "1",
        ])
    };
    s.fake_fio(&format!(
        "{is_asked}\necho 'the engine broke' >&2; kill -9 $$"
    ));
    let out = run("killed");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the engine broke"), "{said}");
    assert!(
        array(&s.run("killed"), "cells")
            .iter()
            .all(|c| c["failed"].is_string())
    );
    s.fake_fio(&format!(
        "{is_asked}\nfor a; do case $a in --output=*) o=${{a#--output=}};; esac; done\n\
         echo '{{\"jobs\":[{{\"jobname\":\"x\",\"error\":28}}]}}' >\"$o\"; exit 1"
    ));
    let out = run("full");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the target is full") && said.contains("--resume full"),
        "{said}"
    );
    assert!(s.run("full")["state"]["failed"].is_string());
}

/// A cold cache was made cold: before every measurement, by a command, and not at
/// all where there is none.
#[test]
fn a_cold_cache_needs_a_command_and_gets_it_before_each_measurement() {
    let s = Scratch::new("cold");
    let fake = Fake::start(Mischief::None);
    let at = url(&fake);
    let base = [
        "matrix",
        "--definition",
        "tiny.toml",
        &at,
        "--cache",
        "cold",
        "-o",
        "a",
        "-r",
        "1",
    ];
    let out = s.bench(&base);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("cold only after --cold-command"),
        "{}",
        text(&out.stderr)
    );
    let with = |command| [&base[..], &["--cold-command", command]].concat();
    let out = s.bench(&with("echo once >> commands"));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(s.read("commands").lines().count(), 6);
    assert!(text(&out.stdout).contains("cache cold (by `echo once >> commands`)"));
    for cell in array(&s.run("a"), "cells") {
        assert_eq!(cell["repetitions"][0]["warmup_s"].as_f64(), Some(0.0));
    }
    let out = s.bench(&[&with("false")[..], &["--force"]].concat());
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("\"false\" failed"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn a_server_that_dies_leaves_what_was_measured_and_the_run_can_go_on() {
    let s = Scratch::new("dies");
    let fake = Fake::start(Mischief::Die(60_000));
    let out = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        &url(&fake),
        "-o",
        "a",
    ]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(
        said.contains("no longer answers") && said.contains("--resume a"),
        "{said}"
    );
    let run = s.run("a");
    assert!(
        run["state"]["failed"]
            .as_str()
            .unwrap()
            .contains("no longer answers"),
        "{}",
        run["state"]
    );
    let kept: usize = array(&run, "cells")
        .iter()
        .map(|c| array(c, "repetitions").len())
        .sum();
    assert!(array(&run, "cells").iter().any(|c| c["failed"].is_string()));
    assert!(s.read("a/report.html").contains("The run ended early"));

    // The server comes back elsewhere: the run's own settings say where it is.
    let fake = Fake::start(Mischief::None);
    let mut run = run;
    run["settings"]["targets"][0] = Value::String(url(&fake));
    std::fs::write(s.path("a/run.json"), run.to_string()).unwrap();
    let out = s.bench(&["matrix", "--resume", "a"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(
        text(&out.stderr).contains(&format!("{} measurements", 12 - kept)),
        "{}",
        text(&out.stderr)
    );
    let run = s.run("a");
    assert_eq!(run["state"], "complete");
    assert!(
        array(&run, "cells")
            .iter()
            .all(|c| array(c, "repetitions").len() == 2)
    );
}

#[test]
fn a_full_target_ends_the_run() {
    let s = Scratch::new("full");
    let fake = Fake::start(Mischief::Full);
    let out = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        &url(&fake),
        "-o",
        "a",
    ]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(
        said.contains("the target is full") && said.contains("NFS3ERR_NOSPC"),
        "{said}"
    );
    assert!(s.run("a")["state"]["failed"].is_string());
}

/// Waits for a line of the child's standard error that contains `what`.
fn wait_for_line(child: &mut Child, what: &str) -> BufReader<std::process::ChildStderr> {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(what) {
        line.clear();
        assert_ne!(
            lines.read_line(&mut line).unwrap(),
            0,
            "ended without {what:?}"
        );
    }
    lines
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_says_so() {
    let s = Scratch::new("interrupted");
    let fake = Fake::start(Mischief::None);
    let mut child = s
        .command(&[
            "matrix",
            "--definition",
            "tiny.toml",
            &url(&fake),
            "-o",
            "a",
        ])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut rest = wait_for_line(&mut child, "[2/12]");
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut said = String::new();
    let reader = std::thread::spawn(move || {
        rest.read_to_string(&mut said).unwrap();
        said
    });
    let out = finish(child);
    let said = reader.join().unwrap();
    assert_eq!(out.status.code(), Some(130), "{said}");
    assert!(
        said.contains("interrupted;") && said.contains("--resume a"),
        "{said}"
    );
    assert!(
        text(&out.stdout).contains("The run was interrupted"),
        "{}",
        text(&out.stdout)
    );
    assert_eq!(fake.nodes(), 1, "the working set is removed all the same");
    let run = s.run("a");
    assert_eq!(run["state"], "interrupted");
    let whole = |run: &Value| {
        array(run, "cells")
            .iter()
            .flat_map(|c| array(c, "repetitions"))
            .filter(|r| r["cut_short"] == false)
            .count()
    };
    let kept = whole(&run);
    assert!((2..12).contains(&kept), "{kept}");
    let out = s.bench(&["matrix", "--resume", "a"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(whole(&s.run("a")), 12);
    assert_eq!(s.run("a")["state"], "complete");
}

#[test]
fn faults_make_the_exit_status_two() {
    let s = Scratch::new("faults");
    let fake = Fake::start(Mischief::WeakStability);
    let out = s.bench(&[
        "matrix",
        "--definition",
        "tiny.toml",
        &url(&fake),
        "-o",
        "a",
        "-r",
        "1",
    ]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    assert!(
        text(&out.stdout).contains("FAULT: 8 KiB random 0/100: "),
        "{}",
        text(&out.stdout)
    );
    assert!(
        s.read("a/report.html")
            .contains("less stability than asked for")
    );
}

#[test]
fn presets_can_be_listed_and_shown_and_are_definitions() {
    let s = Scratch::new("presets");
    let out = s.bench(&["presets", "list"]);
    let list = text(&out.stdout);
    for name in [
        "netapp-extreme",
        "netapp-flex",
        "filestore",
        "datakeeper",
        "nconnect-sweep",
        "eda",
        "eda-like",
    ] {
        assert!(list.contains(name));
        let shown = s.bench(&["presets", "show", name]);
        std::fs::write(s.path("p.toml"), &shown.stdout).unwrap();
        let dry = s.bench(&[
            "matrix",
            "--definition",
            "p.toml",
            "nfs://127.0.0.1/x",
            "--dry-run",
        ]);
        assert_eq!(dry.status.code(), Some(0), "{}", text(&dry.stderr));
        assert!(
            text(&dry.stdout).contains("points ×"),
            "{}",
            text(&dry.stdout)
        );
    }
}
