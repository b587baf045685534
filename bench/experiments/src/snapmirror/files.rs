//! A hundred changed files among a million: an update is to cost in proportion to what has changed,
//! not to the volume.

use super::{Line, MIB, Run};
use crate::qos::Verdict;
use serde_json::json;
use std::time::Duration;
use weir_bench::clock;
use weir_bench::control::{Control, Verdict as Reply};
use weir_bench::error::BenchError;
use weir_bench::nfs3::{self, Handle, Proc, Stable};
use weir_bench::rpc::Credential;

/// Files of a directory.
const EACH: u64 = 1000;
/// Files that change between the transfers.
const CHANGED: u64 = 100;
/// Bytes that each of them gets.
const BYTES: u32 = 4096;
/// Longest that the update may take, seconds.
const MOST: f64 = 1.0;
/// Calls in flight while files are made.
const WINDOW: usize = 64;
const SOURCE: &str = "many";
const MIRROR: &str = "many_dst";

fn name(number: u64) -> Vec<u8> {
    format!("file-{number:07}").into_bytes()
}

fn failed(what: &'static str, status: u32) -> Result<(), BenchError> {
    match status {
        0 => Ok(()),
        status => Err(BenchError::Status(what, status)),
    }
}

/// Makes the files; the directories' handles.
fn make(control: &mut Control, root: &Handle, files: u64) -> Result<Vec<Handle>, BenchError> {
    let mut dirs = Vec::new();
    for n in 0..files.div_ceil(EACH) {
        dirs.push(control.directory(root, format!("dir-{n:04}").as_bytes())?);
    }
    let dir = |n: u64| dirs.get((n / EACH) as usize).unwrap_or(root);
    control.many(
        files,
        WINDOW,
        |c, out, n, xid| c.create(out, xid, dir(n), &name(n)),
        |_, status, r| {
            failed("CREATE", status)?;
            nfs3::created(r)?;
            Ok(Reply::Done)
        },
    )?;
    Ok(dirs)
}

/// Writes a block to some files, spread over all of them.
fn change(control: &mut Control, dirs: &[Handle], files: u64, turn: u8) -> Result<(), BenchError> {
    let count = CHANGED.min(files);
    for n in 0..count {
        let number = n * (files / count);
        let Some(dir) = dirs.get((number / EACH) as usize) else {
            continue;
        };
        let found = control.one(
            "LOOKUP",
            |c, out, xid| c.of_name(out, xid, Proc::Lookup, dir, &name(number)),
            nfs3::found,
        )?;
        let data = vec![turn.wrapping_add(n as u8); BYTES as usize];
        control.one(
            "WRITE",
            |c, out, xid| {
                c.write_head(out, xid, &found, 0, BYTES, Stable::FileSync);
                out.extend_from_slice(&data);
            },
            nfs3::written,
        )?;
    }
    Ok(())
}

/// The case: makes, changes and transfers the files.
pub(super) fn update(run: &mut Run) -> Result<(), BenchError> {
    run.pair.volume(SOURCE)?;
    let root = Credential { uid: 0, gid: 0 };
    let xid = clock::now_ns() as u32;
    let patience = Duration::from_secs(120);
    let mut control = Control::connect(run.pair.source.nfs, Some(&root), xid, patience)?;
    let top = control.mount(&format!("/{SOURCE}"), Some(&root))?;
    let dirs = make(&mut control, &top, run.files)?;
    let first = run.pair.mirror(SOURCE, MIRROR, "MirrorLatest")?;
    let mut transfers = Vec::new();
    for turn in 0..run.rounds {
        change(&mut control, &dirs, run.files, turn as u8)?;
        let begun = run.pair.begin("update", MIRROR, "")?;
        transfers.push(run.pair.succeeds(begun)?);
    }
    let slowest = transfers.iter().map(|t| t.seconds).fold(0.0, f64::max);
    let whole = first.seconds;
    run.line(Line {
        case: format!("files: {CHANGED} changed of {}", run.files),
        seed: "-".to_owned(),
        target: format!("≤ {MOST:.0} s"),
        achieved: format!(
            "{slowest:.2} s at most from request to end; all of them took {whole:.1} s, {:.0} MB",
            first.logical as f64 / MIB
        ),
        verdict: Verdict::from_met(slowest <= MOST * run.margin),
        data: json!({"first": first}),
        transfers,
    });
    Ok(())
}
