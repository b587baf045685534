//! Connections: how many, whether those that were asked for exist, and whether they lose anything.

use super::{nfs, of_server, on, options_fix, servers};
use crate::facts::{Facts, LIMITS, Mount};
use crate::finding::{Finding, Fix, Severity};

/// A mean backlog above this many requests at each send says that slots are what the client waits for.
const BACKLOG: f64 = 1.0;

/// Fewer connections than would help.
pub fn nconnect(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for server in servers(facts) {
        let Some(mount) = of_server(facts, server).next() else {
            continue;
        };
        let connections = mount
            .connections
            .iter()
            .filter(|c| c.transport == "tcp")
            .count()
            .max(1) as u64;
        // What fstab asked for in vain is said by `shared`.
        let asked = of_server(facts, server)
            .any(|m| wanted_connections(facts, m).is_some_and(|n| n > connections));
        if asked
            || connections > 1
            || mount
                .options
                .get("proto")
                .is_some_and(|p| p != "tcp" && p != "tcp6")
        {
            continue;
        }
        let (sends, backlog) = mount
            .connections
            .iter()
            .fold((0, 0), |(s, b), c| (s + c.sends, b + c.backlog));
        let waiting = backlog as f64 / sends.max(1) as f64;
        let why = "All mounts of a server share one TCP connection unless nconnect says otherwise: one stream's speed, one processor's receive work, and for NFSv3 at most 128 requests under way.";
        let (fix, note) = match facts.kernel.has_nconnect() {
            true => (options_fix(mount, &["nconnect=16"], &[]), ""),
            false => (
                Fix {
                    commands: vec![format!(
                        "# {} has no nconnect; it came with Linux 5.3 (Red Hat: 8.3)",
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

/// What fstab asks for.
fn wanted_connections(facts: &Facts, mount: &Mount) -> Option<u64> {
    let wanted = facts.wanted(mount)?;
    crate::mountstats::options(&wanted.options)
        .get("nconnect")?
        .parse()
        .ok()
}

/// `nconnect` asked for in fstab, and fewer in force: an earlier mount of the same server decided.
pub fn shared(facts: &Facts) -> Vec<Finding> {
    let missing = |mount: &Mount| {
        let asked = wanted_connections(facts, mount)?;
        let have = mount.connections.len() as u64;
        (have < asked.min(LIMITS.nconnect)).then(|| {
            on(
                "nconnect-shared",
                Severity::Slow,
                mount,
                format!("fstab asks for nconnect={asked}, and {have} connections are in use"),
                "The first mount of a server decides on the connections, and later ones share them.",
                options_fix(mount, &[&format!("nconnect={}", asked.min(LIMITS.nconnect))], &[]),
                "the connections that were asked for".to_owned(),
            )
        })
    };
    nfs(facts).filter_map(missing).collect()
}

/// Repeated requests, and connections made again and again.
pub fn retransmissions(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for server in servers(facts) {
        let Some(mount) = of_server(facts, server).next() else {
            continue;
        };
        let (mut requests, mut again, mut timeouts) = (0, 0, 0);
        for operation in of_server(facts, server).flat_map(|m| m.operations.values()) {
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
                commands: vec![
                    "nstat -az TcpRetransSegs TcpExtTCPTimeouts   # is it the network?".to_owned(),
                    format!("weir doctor ping {server}"),
                    "dmesg | grep -i 'nfs: server'   # when was it?".to_owned(),
                ],
                effective: "at once".to_owned(),
                ..Fix::default()
            },
            "each one avoided saves up to timeo".to_owned(),
        ));
    }
    all
}
