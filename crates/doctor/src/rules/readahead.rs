//! Read-ahead: how far ahead of one sequential reader the client asks.
//!
//! A single stream's throughput is at most the read-ahead divided by the round trip. Kernels before 5.4 took 15 × rsize
//! by themselves; later ones take 128 KiB, whatever rsize is.

use super::{nfs, on};
use crate::facts::{Facts, Mount};
use crate::finding::{FileFix, Finding, Fix, Severity};

/// Former kernels' rule.
const TIMES_RSIZE: u64 = 15;

/// Read-ahead of less than four requests.
pub fn read_ahead(facts: &Facts) -> Vec<Finding> {
    nfs(facts).filter_map(small).collect()
}

fn small(mount: &Mount) -> Option<Finding> {
    let (now, device) = (mount.read_ahead?, mount.device.as_ref()?);
    let rsize = mount.number("rsize")? / 1024;
    let want = (rsize * TIMES_RSIZE).clamp(1024, 15_360);
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
            files: vec![FileFix {
                path: "/etc/nfs.conf.d/read-ahead.conf".to_owned(),
                content: format!("[nfsrahead]\nnfs={want}\nnfs4={want}\n"),
            }],
            commands: vec![format!("echo {want} > /sys/class/bdi/{device}/read_ahead_kb   # now, until it is mounted again")],
            effective: "the command at once; the file for what is mounted afterwards (nfsrahead, in nfs-utils since 2.6.2, reads it)".to_owned(),
..Fix::default()
},
        gain,
    ))
}
