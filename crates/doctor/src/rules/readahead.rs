//! Read-ahead: how much the client requests beyond what a sequential reader has read.
//!
//! A single stream's throughput is at most the read-ahead divided by the round trip. Kernels before
//! 5.4 took 15 × rsize by themselves; later ones take 128 KiB, whatever rsize is.

use super::mounts::{nfs, on};
use crate::draft::quoted;
use crate::facts::{Facts, Mount};
use crate::finding::{Edit, Finding, Fix, Phase, Severity, Step};

/// Read-ahead of kernels before 5.4, in rsizes.
const TIMES_RSIZE: u64 = 15;

/// KiB that a sequential reader of this mount should have under way.
fn wanted(mount: &Mount) -> Option<u64> {
    let rsize = mount.number("rsize")? / 1024;
    Some((rsize * TIMES_RSIZE).clamp(1024, 15_360))
}

/// Read-ahead of less than four requests.
pub fn read_ahead(facts: &Facts) -> Vec<Finding> {
    // One file for all mounts: the most that any wants.
    let most = nfs(facts).filter_map(wanted).max().unwrap_or_default();
    nfs(facts).filter_map(|mount| small(mount, most)).collect()
}

fn small(mount: &Mount, most: u64) -> Option<Finding> {
    let (now, want) = (mount.read_ahead?, wanted(mount)?);
    let rsize = mount.number("rsize")? / 1024;
    if now >= (4 * rsize).min(want) {
        return None;
    }
    let bound = |kib: u64, ms: f64| kib as f64 / 1024.0 / (ms / 1000.0);
    let gain = match mount.round_trip_ms().filter(|ms| *ms >= 0.05) {
        Some(ms) => format!(
            "one sequential reader at {ms:.2} ms a round trip: at most {:.0} MiB/s now, {:.0} MiB/s then",
            bound(now, ms),
            bound(want, ms)
        ),
        None => format!(
            "{} times as much under way for each sequential reader",
            want / now.max(1)
        ),
    };
    Some(on(
        "read-ahead",
        Severity::Slow,
        mount,
        format!("read-ahead is {now} KiB with rsize={} KiB", rsize),
        "A sequential reader has only this much under way, however many connections and slots there are. Random reads do not gain.",
        Fix {
            edits: ["nfs", "nfs4"]
                .map(|key| Edit::Ini {
                    file: "/etc/nfs.conf.d/read-ahead.conf",
                    section: "nfsrahead",
                    key,
                    value: most.to_string(),
                })
                .into(),
            // By the mount point: the device is another one once it is mounted anew.
            steps: vec![Step {
                phase: Phase::Mounted,
                command: format!(
                    "echo {want} > /sys/class/bdi/$(mountpoint -d {})/read_ahead_kb",
                    quoted(&mount.point)
                ),
            }],
            effective: "the command at once; the file for what is mounted afterwards (nfsrahead, in nfs-utils since 2.6.2, reads it)".to_owned(),
            ..Fix::default()
        },
        gain,
    ))
}
