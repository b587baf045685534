//! The rules: each asks one question of the facts.
//!
//! Mount options are judged twice: the effective ones, and those that a line of fstab asks for. A
//! bad line is a finding of its own even while a good mount hides it; one that the mount's own
//! finding mends already is not said twice.

mod connections;
mod latency;
mod misprints;
mod mounts;
mod options;
mod readahead;
mod sizes;
mod slots;
mod smb;

use crate::facts::{Facts, Mount};
use crate::finding::{Change, Finding};

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

/// Returns all findings, the gravest first.
pub fn collect_findings(facts: &Facts) -> Vec<Finding> {
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
