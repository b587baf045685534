//! Transfer sizes: how much one request moves.

use super::mounts::{change, nfs, on, options_fix};
use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Finding, Fix, Severity};
use crate::mountstats::options;

/// Below this every request's fixed cost shows.
const LEAST: u64 = 65_536;
/// Transfer size that Filestore's guide sets, in bytes.
const BEST: u64 = 1_048_576;

/// rsize or wsize below 64 KiB.
pub fn transfer(_: &Facts, mount: &Mount) -> Option<Finding> {
    if mount.protocol == Protocol::Smb {
        return None;
    }
    let sizes = ["rsize", "wsize"].map(|name| mount.number(name));
    let least = sizes.into_iter().flatten().min().filter(|n| *n < LEAST)?;
    let shown = |size: Option<u64>| size.map_or("negotiated".to_owned(), |n| n.to_string());
    Some(on(
        "transfer-size",
        Severity::Slow,
        mount,
        format!("rsize={}, wsize={}", shown(sizes[0]), shown(sizes[1])),
        "Each request costs the client, the network and the server about the same whatever its size. 64 KiB is what NetApp Volumes was measured with, 1 MiB what Filestore's guide sets.",
        options_fix(mount, &["rsize=1048576", "wsize=1048576"], &[]),
        format!(
            "{} times fewer requests for sequential data",
            BEST / least.max(1)
        ),
    ))
}

/// Asked for more than the server takes: harmless, but worth knowing.
pub fn negotiated(facts: &Facts) -> Vec<Finding> {
    let less = |mount: &Mount| {
        let wanted = facts.wanted(mount)?;
        let wanted = options(&wanted.options);
        let asked = |name: &str| wanted.get(name)?.parse::<u64>().ok();
        let cut = ["rsize", "wsize"].into_iter().find_map(|name| {
            let asked = asked(name)?;
            let have = mount.number(name)?;
            (have < asked).then(|| format!("{name}={asked} was asked for, {have} is in force"))
        })?;
        // No Linux client has ever sent more than 1 MiB: asking for it is what can be fixed here.
        let set: Vec<String> = ["rsize", "wsize"]
            .into_iter()
            .filter(|name| asked(name).is_some_and(|n| n > BEST))
            .map(|name| format!("{name}={BEST}"))
            .collect();
        let mut line = change(
            mount,
            &set.iter().map(String::as_str).collect::<Vec<_>>(),
            &[],
        );
        line.remount = false;
        Some(on(
            "negotiated-size",
            Severity::Hint,
            mount,
            cut,
            "The client's or the server's own maximum is lower, or an earlier mount of it decided: sizes are shared by mounts that share a connection.",
            Fix {
                advice: match set.is_empty() {
                    true => vec![format!(
                        "`nfsstat -m` shows what is in force for each mount of {}",
                        mount.server
                    )],
                    false => Vec::new(),
                },
                changes: (!set.is_empty()).then_some(line).into_iter().collect(),
                effective: "when the server, or the mount that decided, is changed".to_owned(),
                ..Fix::default()
            },
            "the size that was asked for, if the server takes it".to_owned(),
        ))
    };
    nfs(facts).filter_map(less).collect()
}
