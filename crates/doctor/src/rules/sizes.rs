//! Transfer sizes: how much one request moves.

use super::{nfs, on, options_fix};
use crate::facts::Facts;
use crate::finding::{Finding, Fix, Severity};
use crate::mountstats::options;

/// Below this every request's fixed cost shows.
const LEAST: u64 = 65_536;
/// What Filestore's guide sets.
const BEST: u64 = 1_048_576;

/// rsize or wsize below 64 KiB.
pub fn transfer(facts: &Facts) -> Vec<Finding> {
    let small = |mount: &crate::facts::Mount| {
        let (read, write) = (mount.number("rsize")?, mount.number("wsize")?);
        (read.min(write) < LEAST).then(|| {
            on(
                "transfer-size",
                Severity::Slow,
                mount,
                format!("rsize={read}, wsize={write}"),
                "Each request costs the client, the network and the server about the same whatever its size. 64 KiB is what NetApp Volumes was measured with, 1 MiB what Filestore's guide sets.",
                options_fix(mount, &["rsize=1048576", "wsize=1048576"], &[]),
                format!("{} times fewer requests for sequential data", BEST / read.min(write).max(1)),
            )
        })
    };
    nfs(facts).filter_map(small).collect()
}

/// Asked for more than the server takes: harmless, but worth knowing.
pub fn negotiated(facts: &Facts) -> Vec<Finding> {
    let less = |mount: &crate::facts::Mount| {
        let wanted = facts.wanted(mount)?;
        let wanted = options(&wanted.options);
        let cut = ["rsize", "wsize"].into_iter().find_map(|name| {
            let asked: u64 = wanted.get(name)?.parse().ok()?;
            let have = mount.number(name)?;
            (have < asked).then(|| format!("{name}={asked} was asked for, {have} is in force"))
        })?;
        Some(on(
            "negotiated-size",
            Severity::Hint,
            mount,
            cut,
            "The server's own maximum is lower, or an earlier mount of it decided: sizes are shared by mounts that share a connection.",
            Fix {
                commands: vec![format!(
                    "nfsstat -m   # what is in force for each mount of {}",
                    mount.server
                )],
                effective: "when the server, or the mount that decided, is changed".to_owned(),
                ..Fix::default()
            },
            "the size that was asked for, if the server takes it".to_owned(),
        ))
    };
    nfs(facts).filter_map(less).collect()
}
