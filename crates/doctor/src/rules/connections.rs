//! Connections: how many, whether those that were asked for exist, and whether they lose anything.

use super::mounts::{change, nfs, of_server, on, options_fix, servers};
use crate::facts::{Facts, LIMITS, Mount, Protocol};
use crate::finding::{Finding, Fix, Severity};

/// A mean backlog above this many requests at each send says that slots are what the client waits
/// for.
const BACKLOG: f64 = 1.0;

/// The number of connections that all mounts and lines of a server and a protocol should ask for:
/// the mount that is made first decides, so that it is one number, the largest that any of fstab's
/// lines asks for, or else 16.
fn target(facts: &Facts, server: &str, protocol: Protocol) -> u64 {
    facts
        .lines
        .iter()
        .filter(|line| line.server == server && line.protocol == protocol)
        .filter_map(|line| line.number("nconnect"))
        .map(|n| n.min(LIMITS.nconnect))
        .filter(|n| *n > 1)
        .max()
        .unwrap_or(LIMITS.nconnect)
}

/// The change for all mounts of a server and a protocol.
fn more(facts: &Facts, server: &str, protocol: Protocol) -> Fix {
    let word = format!("nconnect={}", target(facts, server, protocol));
    let mounts = of_server(facts, server).filter(|m| m.protocol == protocol);
    Fix {
        changes: mounts.map(|mount| change(mount, &[&word], &[])).collect(),
        effective: "when all of the server's mounts are mounted again, as shown below".to_owned(),
        ..Fix::default()
    }
}

/// Returns true if a mount uses TCP, or will once its `udp` is fixed.
fn is_tcp(mount: &Mount) -> bool {
    let rdma = mount
        .options
        .get("proto")
        .is_some_and(|p| p.starts_with("rdma"));
    mount.protocol != Protocol::Smb && !rdma
}

/// Fewer connections than would help.
pub fn nconnect(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for (server, protocol) in servers(facts) {
        let group = || of_server(facts, server).filter(|m| m.protocol == protocol);
        let Some(mount) = group().next() else {
            continue;
        };
        let tcp = mount.connections.iter().filter(|c| c.transport == "tcp");
        let connections = tcp.count().max(1) as u64;
        // What fstab asked for in vain is reported by `shared`.
        let asked = group().any(|m| wanted_connections(facts, m).is_some_and(|n| n > connections));
        if (asked && facts.kernel.has_nconnect()) || connections > 1 || !is_tcp(mount) {
            continue;
        }
        let (sends, backlog) = mount
            .connections
            .iter()
            .fold((0, 0), |(s, b), c| (s + c.sends, b + c.backlog));
        let waiting = backlog as f64 / sends.max(1) as f64;
        let why = "All mounts of a server share one TCP connection unless nconnect says otherwise: one stream's speed, one processor's receive work, and for NFSv3 at most 128 requests under way.";
        let (fix, note) = match facts.kernel.has_nconnect() {
            true => (more(facts, server, protocol), ""),
            false => (
                Fix {
                    advice: vec![format!(
                        "{} has no nconnect; it came with Linux 5.3 (Red Hat: 8.3)",
                        facts.kernel.name
                    )],
                    effective: "with a newer kernel".to_owned(),
                    ..Fix::default()
                },
                "; this kernel is too old for more",
            ),
        };
        all.push(on(
            "nconnect",
            if waiting >= BACKLOG { Severity::Slow } else { Severity::Hint },
            mount,
            match waiting >= 0.05 {
                false => format!("one connection to {server}{note}"),
                true => format!("one connection to {server}, and {waiting:.1} requests waiting for a slot at each send{note}"),
            },
            why,
            fix,
            format!(
                "room for {} requests instead of {}; 16 connections gave 5 times the 8 KiB reads of one in NetApp Volumes' published test",
                LIMITS.nconnect * LIMITS.per_connection,
                LIMITS.per_connection
            ),
        ));
    }
    all
}

/// A line of fstab that asks for another number of connections than it should.
pub fn asked(facts: &Facts, line: &Mount) -> Option<Finding> {
    let asked = line.number("nconnect");
    if !facts.kernel.has_nconnect() {
        // Such a kernel refuses the option, and with it the mount.
        return line.has_option("nconnect").then(|| {
            on(
                "nconnect",
                Severity::Slow,
                line,
                format!("nconnect is asked for, which {} does not have", facts.kernel.name),
                "A mount with an option that the kernel does not know is refused. It came with Linux 5.3 (Red Hat: 8.3).",
                options_fix(line, &[], &["nconnect"]),
                "a mount at the next start".to_owned(),
            )
        });
    }
    let want = target(facts, &line.server, line.protocol);
    if !is_tcp(line) || asked.map(|n| n.min(LIMITS.nconnect)) == Some(want) {
        return None;
    }
    Some(on(
        "nconnect",
        Severity::Hint,
        line,
        match asked {
            None => "nconnect is not asked for".to_owned(),
            Some(n) => {
                format!("nconnect={n}, while {want} is what other lines of the server ask for")
            }
        },
        "All mounts of a server share the connections of the first one: one, unless it asks for more.",
        options_fix(line, &[&format!("nconnect={want}")], &[]),
        format!("{want} connections, whichever line is mounted first"),
    ))
}

/// Returns the number of connections that fstab asks for.
fn wanted_connections(facts: &Facts, mount: &Mount) -> Option<u64> {
    let line = facts
        .lines
        .iter()
        .find(|line| line.is(&mount.what, &mount.point))?;
    line.number("nconnect")
}

/// `nconnect` asked for in fstab, and fewer effective: an earlier mount of the same server decided.
pub fn shared(facts: &Facts) -> Vec<Finding> {
    let missing = |mount: &Mount| {
        let asked = wanted_connections(facts, mount)?;
        let have = mount.connections.len() as u64;
        (have < asked.min(LIMITS.nconnect) && facts.kernel.has_nconnect()).then(|| {
            on(
                "nconnect-shared",
                Severity::Slow,
                mount,
                format!("fstab asks for nconnect={asked}, and {have} connections are in use"),
                "The first mount of a server decides on the connections, and later ones share them.",
                more(facts, &mount.server, mount.protocol),
                "the connections that were asked for".to_owned(),
            )
        })
    };
    nfs(facts).filter_map(missing).collect()
}

/// Repeated requests, and connections made again and again.
pub fn retransmissions(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for (server, protocol) in servers(facts) {
        let group = || of_server(facts, server).filter(|m| m.protocol == protocol);
        let Some(mount) = group().next() else {
            continue;
        };
        let (mut requests, mut again, mut timeouts) = (0, 0, 0);
        for operation in group().flat_map(|m| m.operations.values()) {
            requests += operation.requests;
            again += operation.transmissions.saturating_sub(operation.requests);
            timeouts += operation.timeouts;
        }
        let reconnects: u64 = mount
            .connections
            .iter()
            .map(|c| c.connects.saturating_sub(1))
            .sum();
        // One in ten thousand is what a single short break of a busy mount leaves behind.
        if requests < 1000 || again * 10_000 < requests {
            continue;
        }
        all.push(on(
            "retransmissions",
            Severity::Slow,
            mount,
            format!("{again} of {requests} requests to {server} were sent again, {timeouts} ran into a timeout; connected again {reconnects} times"),
            "TCP repeats what the network loses; a request that is sent again met a broken connection or a server that was silent for the whole of timeo.",
            Fix {
                advice: vec![
                    "is it the network? nstat -az TcpRetransSegs TcpExtTCPTimeouts".to_owned(),
                    format!("is it the distance? weir doctor ping {server}"),
                    "when was it? dmesg | grep -i 'nfs: server'".to_owned(),
                ],
                effective: "at once".to_owned(),
                ..Fix::default()
            },
            "each one avoided saves up to timeo".to_owned(),
        ));
    }
    all
}
