//! Slots: how many requests may be under way, a connection, a session, and in all.

use super::mounts::{of_server, on, servers};
use crate::facts::{Facts, LIMITS, Mount, Protocol};
use crate::finding::{Edit, Finding, Fix, Phase, Severity, Step};
use crate::settings::Setting;

/// Returns how many requests an NFSv3 or NFSv4.0 client may have under way on a connection.
fn slots(facts: &Facts) -> u64 {
    facts.max_slots.unwrap_or(65_536)
}

/// The sysctl and the parameter of NFSv3's slots.
const CONNECTION: &str = "tcp_max_slot_table_entries";
/// The parameter of NFSv4.1's.
const SESSION: &str = "max_session_slots";
/// Time at which a change of either takes effect.
const LATER: &str =
    "for servers mounted afterwards: all mounts of a server have to be gone first, or reboot";

/// 128 a connection: as the module's option, and in sysctl's files where they set something else,
/// because some systems apply those after the module's options.
pub fn connection_fix() -> Fix {
    let value = LIMITS.per_connection.to_string();
    Fix {
        edits: vec![
            Edit::ModuleOption {
                module: "sunrpc",
                name: CONNECTION.to_owned(),
                value: value.clone(),
            },
            Edit::Sysctl {
                name: "sunrpc.tcp_max_slot_table_entries",
                value: value.clone(),
                or_add: false,
            },
        ],
        // Without the module there is no such sysctl.
        steps: [
            "modprobe sunrpc".to_owned(),
            format!("sysctl -w sunrpc.{CONNECTION}={value}"),
        ]
        .map(|command| Step {
            phase: Phase::Kernel,
            command,
        })
        .into(),
        effective: LATER.to_owned(),
        ..Fix::default()
    }
}

/// 180 a session, as the option of the NFS module.
pub fn session_fix() -> Fix {
    let value = LIMITS.per_session.to_string();
    Fix {
        edits: vec![Edit::ModuleOption {
            module: "nfs",
            name: SESSION.to_owned(),
            value: value.clone(),
        }],
        steps: [
            "modprobe nfs".to_owned(),
            format!("echo {value} > /sys/module/nfs/parameters/{SESSION}"),
        ]
        .map(|command| Step {
            phase: Phase::Kernel,
            command,
        })
        .into(),
        effective: LATER.to_owned(),
        ..Fix::default()
    }
}

/// Mounts, and lines of fstab, of protocols of which `wanted` is true.
fn first(facts: &Facts, wanted: fn(Protocol) -> bool) -> Option<&Mount> {
    let all = facts.mounts.iter().chain(&facts.lines);
    all.into_iter().find(|m| wanted(m.protocol))
}

/// Effective lines that set something else than `value`: what holds after the next start.
fn configured<'f>(
    facts: &'f Facts,
    name: &'f str,
    value: u64,
) -> impl Iterator<Item = &'f Setting> {
    let all = facts.sysctl.iter().chain(&facts.modules);
    all.filter(move |s| s.in_force() && s.name == name && s.value != value.to_string())
}

fn at_next_start(rule: &'static str, setting: &Setting, why: &str, fix: Fix) -> Finding {
    Finding {
        rule,
        severity: Severity::Slow,
        subject: format!("{}:{}", setting.file, setting.line),
        seen: format!(
            "{} = {} from the next start on",
            setting.name, setting.value
        ),
        why: why.to_owned(),
        fix,
        gain: "the requests under way that the server takes, after a restart too".to_owned(),
    }
}

/// NFSv3 slots a connection away from 128.
pub fn per_connection(facts: &Facts) -> Vec<Finding> {
    let Some(mount) = first(facts, |p| matches!(p, Protocol::Nfs3 | Protocol::Nfs40)) else {
        return Vec::new();
    };
    let fix = connection_fix;
    let Some(set) = facts
        .max_slots
        .filter(|set| *set != LIMITS.per_connection && mount.line.is_none())
    else {
        let why = "A server takes 128 requests a connection: fewer slots cost throughput, and more wait in its socket.";
        return configured(
            facts,
            "sunrpc.tcp_max_slot_table_entries",
            LIMITS.per_connection,
        )
        .map(|setting| at_next_start("slots", setting, why, fix()))
        .collect();
    };
    let most = facts
        .mounts
        .iter()
        .flat_map(|m| &m.connections)
        .filter_map(|c| c.most_slots)
        .max();
    if set < LIMITS.per_connection {
        let seen = format!("sunrpc.tcp_max_slot_table_entries is {set}");
        let why = "So few requests may be under way on each connection; throughput is their number times the block size, divided by the latency.";
        let gain = format!(
            "up to {:.1} times the requests under way",
            LIMITS.per_connection as f64 / set.max(1) as f64
        );
        return vec![on("slots", Severity::Slow, mount, seen, why, fix(), gain)];
    }
    if set > LIMITS.per_connection {
        let used = most.map_or(String::new(), |m| {
            format!("; up to {m} were in use at once")
        });
        let severity = match most {
            Some(most) if most > LIMITS.per_connection => Severity::Slow,
            _ => Severity::Hint,
        };
        let seen = format!("sunrpc.tcp_max_slot_table_entries is {set}{used}");
        let why = "A server takes 128 requests a connection. What is sent beyond waits in its socket, in front of other users' requests, and counts against the 10,000 of all clients. The setting belongs into modprobe.d: sysctl.conf is often read before the module is loaded and has no effect then.";
        return vec![on(
            "slots",
            severity,
            mount,
            seen,
            why,
            fix(),
            "steadier latency for all mounts; more connections (nconnect) give more room"
                .to_owned(),
        )];
    }
    Vec::new()
}

/// NFSv4.1 session slots below 180. More is no fault: a server grants what it has, NetApp's
/// services 180, Weir up to 1,024.
pub fn per_session(facts: &Facts) -> Vec<Finding> {
    let Some(mount) = first(facts, |p| p == Protocol::Nfs41) else {
        return Vec::new();
    };
    let why = "An NFSv4.1 session has this many requests under way, whatever nconnect says; servers grant 180 and more.";
    let set = facts.session_slots.filter(|_| mount.line.is_none());
    match set {
        Some(set) if set < LIMITS.per_session => vec![on(
            "session-slots",
            Severity::Slow,
            mount,
            format!("nfs.max_session_slots is {set}"),
            why,
            session_fix(),
            format!(
                "up to {:.1} times the requests under way",
                LIMITS.per_session as f64 / set.max(1) as f64
            ),
        )],
        Some(set) if set > LIMITS.per_session => Vec::new(),
        _ => configured(facts, "nfs.max_session_slots", LIMITS.per_session)
            .filter(|s| {
                s.value
                    .parse::<u64>()
                    .is_ok_and(|set| set < LIMITS.per_session)
            })
            .map(|setting| at_next_start("session-slots", setting, why, session_fix()))
            .collect(),
    }
}

/// Checks how many requests all mounts of a server may have under way together.
pub fn total(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for (server, protocol) in servers(facts) {
        let Some(mount) = of_server(facts, server).find(|m| m.protocol == protocol) else {
            continue;
        };
        let under_way = possible(facts, mount);
        if under_way <= LIMITS.total {
            continue;
        }
        all.push(on(
            "slots-total",
            Severity::Hint,
            mount,
            format!("this client alone may have {under_way} requests under way at {server}"),
            "A server takes 10,000 from all its clients together; what is beyond is slowed down for everyone.",
            Fix {
                advice: vec![format!(
                    "over all clients: nconnect × min(tcp_max_slot_table_entries, 128) × clients ≤ {}",
                    LIMITS.total
                )],
                effective: "when set as above".to_owned(),
                ..Fix::default()
            },
            "no client is held back by another's queue".to_owned(),
        ));
    }
    all
}

/// The requests that a mount's connections may have under way.
fn possible(facts: &Facts, mount: &Mount) -> u64 {
    match mount.protocol {
        Protocol::Nfs41 => facts.session_slots.unwrap_or(64),
        _ => (mount.connections.len().max(1) as u64).saturating_mul(slots(facts)),
    }
}
