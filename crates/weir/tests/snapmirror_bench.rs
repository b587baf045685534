//! The measurement of SnapMirror's throttles runs through, on little data. What it measures then means nothing and is
//! not checked.

#![allow(clippy::unwrap_used)] // Tests fail loudly.

mod common;

use serde_json::Value;

#[test]
fn the_experiment_runs_and_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (scratch, out) = (path("scratch"), path("out"));
    std::fs::create_dir(&scratch).unwrap();
    let run = common::weir(&[
        "bench",
        "snapmirror",
        "--quick",
        "--memory",
        "256M",
        "--scratch",
        scratch.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let why = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(matches!(run.status.code(), Some(0 | 2)), "{said}{why}");
    let raw = std::fs::read(out.join("raw.json")).unwrap();
    let lines: Vec<Value> = serde_json::from_slice(&raw).unwrap();
    assert_eq!(lines.len(), 11, "{said}");
    for line in &lines {
        let transfers = line["transfers"].as_array().unwrap();
        assert_eq!(transfers.last().unwrap()["state"], "success", "{line}");
    }
    let summary = std::fs::read_to_string(out.join("summary.md")).unwrap();
    for words in [
        "global, 4 MB/s, two transfers | 524.9 MB, 281 s",
        "sent twice",
        "rustls",
    ] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    for file in ["command", "machine.json", "changes.svg"] {
        assert!(out.join(file).exists(), "{file}");
    }
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}
