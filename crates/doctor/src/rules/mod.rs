//! The rules: each asks one question of the facts.
//!
//! Mount options are judged twice: the effective ones, and those that a line of fstab asks for. A
//! bad line is a finding of its own even while a good mount hides it; one that the mount's own
//! finding mends already is not said twice.

mod connections;
mod latency;
mod misprints;
mod options;
mod readahead;
mod sizes;
mod slots;
mod smb;

use crate::facts::{Facts, Mount, Protocol};
use crate::finding::{Change, Finding, Fix, Severity};

/// A question about the options of a mount or of a line of fstab.
type OptionRule = fn(&Facts, &Mount) -> Option<Finding>;

const OPTION_RULES: &[OptionRule] = &[
    options::soft,
    options::synchronous,
    options::uncached,
    options::datagrams,
    options::local_locks,
    options::timeouts,
    options::protection,
    sizes::transfer,
    smb::channels,
    smb::dialect,
    smb::caching,
];

/// A question about the machine.
type Rule = fn(&Facts) -> Vec<Finding>;

const RULES: &[Rule] = &[
    misprints::names,
    misprints::places,
    connections::nconnect,
    connections::shared,
    connections::retransmissions,
    slots::per_connection,
    slots::per_session,
    slots::total,
    sizes::negotiated,
    readahead::read_ahead,
    latency::buffers,
    latency::queued,
    smb::missing_channels,
];

/// All findings, the gravest first.
pub fn all(facts: &Facts) -> Vec<Finding> {
    let mut all: Vec<Finding> = OPTION_RULES
        .iter()
        .flat_map(|rule| facts.mounts.iter().filter_map(|mount| rule(facts, mount)))
        .chain(RULES.iter().flat_map(|rule| rule(facts)))
        .collect();
    for line in &facts.lines {
        let rules = OPTION_RULES.iter().filter_map(|rule| rule(facts, line));
        let found: Vec<Finding> = rules.chain(connections::asked(facts, line)).collect();
        let live = facts.mounts.iter().find(|m| m.is(&line.what, &line.point));
        for finding in found {
            let said = all.iter().any(|other| {
                let mends = |change: &Change| line.is(&change.what, &change.point);
                let same = other.rule == finding.rule
                    || (other.rule, finding.rule) == ("nconnect-shared", "nconnect");
                same && (other.fix.changes.iter().any(mends)
                    || live.is_some_and(|mount| other.subject == mount.subject()))
            });
            if !said {
                all.push(finding);
            }
        }
    }
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}

fn nfs(facts: &Facts) -> impl Iterator<Item = &Mount> {
    facts
        .mounts
        .iter()
        .filter(|mount| mount.protocol != Protocol::Smb)
}

/// Mounts of a server, whatever their protocol.
fn of_server<'f>(facts: &'f Facts, server: &'f str) -> impl Iterator<Item = &'f Mount> {
    nfs(facts).filter(move |mount| mount.server == server)
}

/// The servers of NFS mounts with their protocols, each once: mounts of one pair share their
/// connections.
fn servers(facts: &Facts) -> Vec<(&str, Protocol)> {
    let mut all: Vec<(&str, Protocol)> = Vec::new();
    for mount in nfs(facts) {
        let pair = (mount.server.as_str(), mount.protocol);
        if !all.contains(&pair) {
            all.push(pair);
        }
    }
    all
}

/// A finding on a mount or a line of fstab.
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
        subject: mount.subject(),
        seen,
        why: why.to_owned(),
        fix,
        gain,
    }
}

/// A change of a mount's options: `set` are words such as `nconnect=16`, which replace a word of
/// the same name; `drop` are names that are deleted.
fn change(mount: &Mount, set: &[&str], drop: &[&str]) -> Change {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Change {
        what: mount.what.clone(),
        point: mount.point.clone(),
        set: words(set),
        drop: words(drop),
        remount: mount.line.is_none(),
    }
}

/// A fix by such a change.
fn options_fix(mount: &Mount, set: &[&str], drop: &[&str]) -> Fix {
    Fix {
        changes: vec![change(mount, set, drop)],
        effective: match mount.line {
            None => "when it is mounted again, as shown below".to_owned(),
            Some(_) => "the next time that the line is used".to_owned(),
        },
        ..Fix::default()
    }
}
