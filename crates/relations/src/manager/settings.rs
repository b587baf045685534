//! The users' commands on policies, schedules, peers and global throttles.

use std::sync::Arc;

use super::rows::{ChangeSet, Edit, Entry, Peer, Relations};
use super::{NO_ENTRIES, Preconditions, Reason, Verb, VerbRefusal, refuse};
use crate::model::{Policy, PolicyKind, Rule, THROTTLE_LEAST, THROTTLE_MOST};
use crate::retention::SM_CREATED;
use crate::schedule;
use weir_base::limits::replica::{MAX_COMMENT, MAX_GIVEN_NAME, MAX_KEPT, MAX_POLICY_RULES};

type Outcome = Result<(), VerbRefusal>;

/// Maximum number of peers. More are an accident rather than pairings.
const MAX_PEERS: usize = 256;

/// Carries out the verbs on policies, schedules, peers and global throttles.
pub(super) fn settings(next: &mut ChangeSet, verb: Verb, preconditions: &Preconditions) -> Outcome {
    match verb {
        Verb::ScheduleCreate { name, schedule } => {
            sound(&name, "Schedule")?;
            if next.rows.schedule(&name).is_some() {
                return refuse(Reason::Duplicate, "duplicate entry");
            }
            if schedule.next(0).is_none() {
                return refuse(Reason::Invalid, format!("Schedule \"{name}\" never runs."));
            }
            next.make(Edit::Schedule(name, schedule));
        }
        Verb::ScheduleDelete(name) => {
            check_spare_schedule(&next.rows, &name)?;
            next.make(Edit::NoSchedule(name));
        }
        Verb::GlobalThrottle { incoming, max } => {
            if preconditions.synchronous && max.is_some() {
                return refuse(
                    Reason::State,
                    "Global throttling cannot be enabled because the cluster has \
                         SnapMirror Synchronous relationships.",
                );
            }
            let max = in_range(max)?;
            next.make(Edit::Throttle { incoming, max });
        }
        Verb::PeerCreate {
            name,
            address,
            fingerprint,
        } => {
            let peer = new_peer(&next.rows, name, address, &fingerprint, preconditions)?;
            next.make(Edit::Peer(Arc::new(peer)));
        }
        Verb::PeerInvite { name, address } => {
            // The peer's certificate is not known yet: check with one that differs from this
            // node's.
            let unknown = "0".repeat(64);
            new_peer(&next.rows, name, address, &unknown, preconditions)?;
        }
        Verb::PeerDelete(name) => {
            if next.rows.uses_peer(&name) {
                return refuse(
                    Reason::State,
                    format!("Peer \"{name}\" is the source of SnapMirror relationships."),
                );
            }
            if next.rows.peer(&name).is_none() {
                return refuse(Reason::NotFound, NO_ENTRIES);
            }
            next.make(Edit::NoPeer(name));
        }
        verb => return policies(next, verb),
    }
    Ok(())
}

/// Carries out the verbs on policies.
fn policies(next: &mut ChangeSet, verb: Verb) -> Outcome {
    match verb {
        Verb::PolicyCreate {
            name,
            kind,
            comment,
            compression,
            rules,
        } => {
            let policy = Policy {
                name,
                kind,
                rules,
                comment,
                compression,
                system: false,
            };
            let policy = new_policy(&next.rows, policy)?;
            next.make(Edit::Policy(Arc::new(policy)));
        }
        Verb::PolicyModify {
            name,
            comment,
            compression,
            rules,
        } => {
            let comment = comment.map(brief).transpose()?;
            let mut policy = own_policy(&next.rows, &name)?;
            if let Some(rules) = rules {
                let stays = |rule: &Rule| {
                    !rule.is_by_label() && !rules.iter().any(|new| new.label == rule.label)
                };
                policy.rules.retain(stays);
                policy.rules.extend(rules);
                may_have(&next.rows, policy.kind, &policy.rules)?;
            }
            policy.comment = comment.unwrap_or(policy.comment);
            policy.compression = compression.unwrap_or(policy.compression);
            next.make(Edit::Policy(Arc::new(policy)));
        }
        Verb::PolicyDelete(name) => {
            own_policy(&next.rows, &name)?;
            if next.rows.entries(0).any(|e| e.policy == name) {
                return refuse(
                    Reason::State,
                    format!("Policy \"{name}\" is in use by one or more SnapMirror relationships."),
                );
            }
            next.make(Edit::NoPolicy(name));
        }
        Verb::PolicyRule { ref name, .. } => {
            let mut policy = own_policy(&next.rows, name)?;
            change_rule(&mut policy.rules, verb)?;
            may_have(&next.rows, policy.kind, &policy.rules)?;
            next.make(Edit::Policy(Arc::new(policy)));
        }
        // The callers handle all other verbs.
        _ => {}
    }
    Ok(())
}

/// Checks a new policy, and completes its rules.
fn new_policy(rows: &Relations, mut policy: Policy) -> Result<Policy, VerbRefusal> {
    sound(&policy.name, "Policy")?;
    if rows.policy(&policy.name).is_some() {
        return refuse(Reason::Duplicate, "duplicate entry");
    }
    policy.comment = brief(policy.comment)?;
    let rules = &mut policy.rules;
    if policy.kind != PolicyKind::Vault && !rules.iter().any(|rule| rule.label == SM_CREATED) {
        rules.insert(0, Rule::new(SM_CREATED, 1));
    }
    may_have(rows, policy.kind, rules)?;
    Ok(policy)
}

/// Adds, changes or removes a rule of a policy.
fn change_rule(rules: &mut Vec<Rule>, verb: Verb) -> Outcome {
    let Verb::PolicyRule {
        name: _,
        label,
        keep,
        preserve,
        schedule,
        prefix,
    } = verb
    else {
        return Ok(());
    };
    let at = rules.iter().position(|rule| rule.label == label);
    let before = at.map(|at| rules.remove(at));
    match (before, keep) {
        (None, None) => refuse(Reason::NotFound, NO_ENTRIES),
        (Some(_), None) => Ok(()),
        (before, Some(keep)) => {
            let was = before.unwrap_or_else(|| Rule::new(&label, keep));
            let rule = Rule {
                label,
                keep,
                preserve: preserve.unwrap_or(was.preserve),
                schedule: schedule.unwrap_or(was.schedule),
                prefix: prefix.unwrap_or(was.prefix),
            };
            rules.insert(at.unwrap_or(rules.len()), rule);
            Ok(())
        }
    }
}

/// Checks that a schedule can be deleted.
fn check_spare_schedule(rows: &Relations, name: &str) -> Outcome {
    if schedule::built_in_schedules()
        .iter()
        .any(|(n, ..)| *n == name)
    {
        return refuse(
            Reason::State,
            format!("Schedule \"{name}\" cannot be deleted."),
        );
    }
    let used = |e: &Arc<Entry>| e.schedule.as_deref() == Some(name);
    let names = |rule: &Rule| rule.schedule.as_deref() == Some(name);
    let by_rule = |policy: &Arc<Policy>| policy.rules.iter().any(names);
    if rows.own_policies().any(by_rule) || rows.entries(0).any(used) {
        return refuse(Reason::State, format!("Schedule \"{name}\" is in use."));
    }
    if rows.schedule(name).is_none() {
        return refuse(Reason::NotFound, NO_ENTRIES);
    }
    Ok(())
}

/// Refuses rules that a policy of this kind may not have.
fn may_have(rows: &Relations, kind: PolicyKind, rules: &[Rule]) -> Outcome {
    if rules.len() > MAX_POLICY_RULES {
        return refuse(
            Reason::Invalid,
            format!("The policy already has the maximum of {MAX_POLICY_RULES} rules."),
        );
    }
    for rule in rules {
        sound(&rule.label, "SnapMirror label")?;
        if !(1..=MAX_KEPT).contains(&rule.keep) {
            return refuse(
                Reason::Invalid,
                format!("The keep count must be between 1 and {MAX_KEPT}."),
            );
        }
        let wants = match rule {
            rule if rule.preserve => "preserve Snapshot copies",
            rule if rule.schedule.is_some() => "have a schedule",
            _ => "",
        };
        if !wants.is_empty() && (kind == PolicyKind::AsyncMirror || !rule.is_by_label()) {
            return refuse(
                Reason::Invalid,
                format!(
                    "Rule \"{}\" cannot {wants}: only rules by label of policies of type vault or mirror-vault can.",
                    rule.label
                ),
            );
        }
        match (&rule.schedule, &rule.prefix) {
            (Some(name), _) if rows.schedule(name).is_none() => {
                return refuse(Reason::NotFound, format!("Schedule \"{name}\" not found."));
            }
            (None, Some(_)) => {
                return refuse(
                    Reason::Invalid,
                    format!(
                        "Rule \"{}\" has no schedule that a prefix would be for.",
                        rule.label
                    ),
                );
            }
            (_, Some(prefix)) => sound(prefix, "Prefix")?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns a fingerprint in its stored form. Accepts colons and either case.
fn normal(fingerprint: &str) -> Option<String> {
    let text = fingerprint.strip_prefix("SHA256:").unwrap_or(fingerprint);
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let sound = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    sound.then(|| digits.to_ascii_lowercase())
}

fn new_peer(
    rows: &Relations,
    name: String,
    address: Option<String>,
    print: &str,
    preconditions: &Preconditions,
) -> Result<Peer, VerbRefusal> {
    let invalid = |why: String| VerbRefusal::new(Reason::Invalid, why);
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 63 || !name.chars().all(sound) {
        return Err(invalid(format!(
            "\"{name}\" is not a valid name for a peer."
        )));
    }
    let fingerprint = normal(print).ok_or_else(|| {
        invalid(format!(
            "\"{print}\" is not a SHA-256 fingerprint: 64 hexadecimal digits are wanted."
        ))
    })?;
    if fingerprint == preconditions.fingerprint {
        return refuse(
            Reason::Invalid,
            "That is the fingerprint of this node itself.",
        );
    }
    let has_port = |address: &String| {
        let parts = address.rsplit_once(':');
        parts.is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        })
    };
    if let Some(address) = address.as_ref().filter(|address| !has_port(address)) {
        return Err(invalid(format!("\"{address}\" is not HOST:PORT.")));
    }
    let mut all = rows.peers();
    if let Some(same) = all.find(|p| p.name == name || p.fingerprint == fingerprint) {
        return refuse(
            Reason::Duplicate,
            match same.name == name {
                true => format!("Peer \"{name}\" already exists."),
                false => format!("Peer \"{}\" already has that fingerprint.", same.name),
            },
        );
    }
    if rows.peers().count() >= MAX_PEERS {
        return Err(invalid(format!("There are already {MAX_PEERS} peers.")));
    }
    Ok(Peer {
        name,
        address,
        fingerprint,
    })
}

fn sound(name: &str, what: &str) -> Outcome {
    let good = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    match !name.is_empty() && name.len() <= MAX_GIVEN_NAME && name.chars().all(good) {
        true => Ok(()),
        false => refuse(
            Reason::Invalid,
            format!("{what} \"{name}\" is not a valid name."),
        ),
    }
}

fn brief(text: String) -> Result<String, VerbRefusal> {
    match text.len() <= MAX_COMMENT {
        true => Ok(text),
        false => refuse(
            Reason::Invalid,
            format!("A text is longer than {MAX_COMMENT} bytes."),
        ),
    }
}

fn own_policy(rows: &Relations, name: &str) -> Result<Policy, VerbRefusal> {
    match rows.policy(name) {
        Some(policy) if policy.system => refuse(
            Reason::State,
            format!("Policy \"{name}\" is a system policy and cannot be changed."),
        ),
        Some(policy) => Ok(policy),
        None => refuse(Reason::NotFound, NO_ENTRIES),
    }
}

pub(super) fn in_range(throttle: Option<u64>) -> Result<Option<u64>, VerbRefusal> {
    match throttle {
        Some(0) => Ok(None),
        Some(kbs) if !(THROTTLE_LEAST..=THROTTLE_MOST).contains(&kbs) => refuse(
            Reason::Invalid,
            format!(
                "Invalid throttle value {kbs}: it must be 0, unlimited, or from {THROTTLE_LEAST} to {THROTTLE_MOST} KB/s."
            ),
        ),
        throttle => Ok(throttle),
    }
}
