//! Mounts as rules see them, and findings about their options.

use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Change, Finding, Fix, Severity};

/// Returns the NFS mounts.
pub(super) fn nfs(facts: &Facts) -> impl Iterator<Item = &Mount> {
    facts
        .mounts
        .iter()
        .filter(|mount| mount.protocol != Protocol::Smb)
}

/// Returns the mounts of a server, whatever their protocol.
pub(super) fn of_server<'f>(facts: &'f Facts, server: &'f str) -> impl Iterator<Item = &'f Mount> {
    nfs(facts).filter(move |mount| mount.server == server)
}

/// Returns the servers of NFS mounts with their protocols, each once: mounts of one pair share
/// their connections.
pub(super) fn servers(facts: &Facts) -> Vec<(&str, Protocol)> {
    let mut all: Vec<(&str, Protocol)> = Vec::new();
    for mount in nfs(facts) {
        let pair = (mount.server.as_str(), mount.protocol);
        if !all.contains(&pair) {
            all.push(pair);
        }
    }
    all
}

/// Returns a finding on a mount or a line of fstab.
pub(super) fn on(
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
        subject: mount.subject(),
        seen,
        why: why.to_owned(),
        fix,
        gain,
    }
}

/// Returns a change of a mount's options: `set` are words such as `nconnect=16`, which replace a
/// word of the same name; `drop` are names that are deleted.
pub(super) fn change(mount: &Mount, set: &[&str], drop: &[&str]) -> Change {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Change {
        what: mount.what.clone(),
        point: mount.point.clone(),
        set: words(set),
        drop: words(drop),
        remount: mount.line.is_none(),
    }
}

/// Returns a fix by such a change.
pub(super) fn options_fix(mount: &Mount, set: &[&str], drop: &[&str]) -> Fix {
    Fix {
        changes: vec![change(mount, set, drop)],
        effective: match mount.line {
            None => "when it is mounted again, as shown below".to_owned(),
            Some(_) => "the next time that the line is used".to_owned(),
        },
        ..Fix::default()
    }
}
