//! Slots: how many requests may be under way, a connection, a session, and in all.

use super::{of_server, on, servers};
use crate::facts::{Facts, LIMITS, Mount, Protocol};
use crate::finding::{FileFix, Finding, Fix, Severity};

/// What an NFSv3 or NFSv4.0 client may have under way on a connection.
fn slots(facts: &Facts) -> u64 {
    facts.max_slots.unwrap_or(65_536)
}

fn module_fix(path: &str, module: &str, name: &str, value: u64, now: &str) -> Fix {
    Fix {
        files: vec![FileFix {
            path: path.to_owned(),
            content: format!("options {module} {name}={value}\n"),
        }],
        commands: vec![now.to_owned()],
        effective: "for servers mounted afterwards: all mounts of a server have to be gone first, or reboot".to_owned(),
..Fix::default()
}
}

/// NFSv3 slots a connection away from 128.
pub fn per_connection(facts: &Facts) -> Vec<Finding> {
    let Some(set) = facts.max_slots else {
        return Vec::new();
    };
    let Some(mount) = facts
        .mounts
        .iter()
        .find(|m| matches!(m.protocol, Protocol::Nfs3 | Protocol::Nfs40))
    else {
        return Vec::new();
    };
    let fix = || {
        module_fix(
            "/etc/modprobe.d/sunrpc.conf",
            "sunrpc",
            "tcp_max_slot_table_entries",
            LIMITS.per_connection,
            "sysctl -w sunrpc.tcp_max_slot_table_entries=128   # until the next start",
        )
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
        let why = "A server takes 128 requests a connection. What is sent beyond waits in its socket, in front of other users' requests, and counts against the 10,000 of all clients. The setting belongs into modprobe.d: sysctl.conf is read before the module is loaded and has no effect then.";
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

/// NFSv4.1 session slots below 180.
pub fn per_session(facts: &Facts) -> Vec<Finding> {
    let Some(mount) = facts.mounts.iter().find(|m| m.protocol == Protocol::Nfs41) else {
        return Vec::new();
    };
    let Some(set) = facts.session_slots.filter(|set| *set != LIMITS.per_session) else {
        return Vec::new();
    };
    let fix = module_fix(
        "/etc/modprobe.d/nfsclient.conf",
        "nfs",
        "max_session_slots",
        LIMITS.per_session,
        "systool -v -m nfs | grep max_session_slots   # after the mount: shows the value in force (without systool: cat /sys/module/nfs/parameters/max_session_slots)",
    );
    let low = set < LIMITS.per_session;
    let why = match low {
        true => {
            "An NFSv4.1 session has this many requests under way, whatever nconnect says; the server grants 180."
        }
        false => "The server grants 180; asking for more changes nothing.",
    };
    let gain = match low {
        true => format!(
            "up to {:.1} times the requests under way",
            LIMITS.per_session as f64 / set.max(1) as f64
        ),
        false => "none; it says what is true".to_owned(),
    };
    let severity = if low { Severity::Slow } else { Severity::Hint };
    vec![on(
        "session-slots",
        severity,
        mount,
        format!("nfs.max_session_slots is {set}"),
        why,
        fix,
        gain,
    )]
}

/// What all mounts of a server may have under way together.
pub fn total(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for server in servers(facts) {
        let Some(mount) = of_server(facts, server).next() else {
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
                commands: vec![format!(
                    "# over all clients: nconnect × min(tcp_max_slot_table_entries, 128) × clients ≤ {}",
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
