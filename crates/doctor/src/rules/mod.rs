//! The rules: each asks one question of the facts.

mod connections;
mod latency;
mod misprints;
mod options;
mod readahead;
mod sizes;
mod slots;
mod smb;
mod together;

pub use together::together;

use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Change, Finding, Fix, Severity};

/// All findings, the gravest first.
pub fn all(facts: &Facts) -> Vec<Finding> {
    const RULES: &[fn(&Facts) -> Vec<Finding>] = &[
        options::soft,
        options::synchronous,
        options::uncached,
        options::datagrams,
        options::local_locks,
        options::timeouts,
        misprints::names,
        misprints::places,
        connections::nconnect,
        connections::shared,
        connections::retransmissions,
        slots::per_connection,
        slots::per_session,
        slots::total,
        sizes::transfer,
        sizes::negotiated,
        readahead::read_ahead,
        latency::buffers,
        latency::queued,
        smb::channels,
        smb::missing_channels,
        smb::dialect,
        smb::caching,
    ];
    let mut all: Vec<Finding> = RULES.iter().flat_map(|rule| rule(facts)).collect();
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}

fn nfs(facts: &Facts) -> impl Iterator<Item = &Mount> {
    facts
        .mounts
        .iter()
        .filter(|mount| mount.protocol != Protocol::Smb)
}

/// Mounts of the same server as `mount`, itself among them: they share its connections.
fn of_server<'f>(facts: &'f Facts, server: &'f str) -> impl Iterator<Item = &'f Mount> {
    nfs(facts).filter(move |mount| mount.server == server)
}

/// The servers of NFS mounts, each once.
fn servers(facts: &Facts) -> Vec<&str> {
    let mut all: Vec<&str> = nfs(facts).map(|mount| mount.server.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A finding on a mount.
fn on(
    rule: &'static str,
    severity: Severity,
    mount: &Mount,
    seen: String,
    why: &str,
    fix: Fix,
    gain: String,
) -> Finding {
    Finding {
        rule,
        severity,
        subject: format!("{} on {}", mount.what, mount.point),
        seen,
        why: why.to_owned(),
        fix,
        gain,
    }
}

/// A fix of a mount's options: `set` are words such as `nconnect=16`, which replace a word of the same name; `drop` are
/// names that go.
fn options_fix(mount: &Mount, set: &[&str], drop: &[&str]) -> Fix {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Fix {
        change: Some(Change {
            what: mount.what.clone(),
            point: mount.point.clone(),
            set: words(set),
            drop: words(drop),
        }),
        effective: "when it is mounted again, as shown below".to_owned(),
        ..Fix::default()
    }
}
