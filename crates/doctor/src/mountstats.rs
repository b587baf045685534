//! `/proc/self/mountstats`: what the kernel counts for each NFS mount.
//!
//! Statistics version 1.1. The line `xprt: tcp` holds, in this order: source port, binds, connects,
//! connect time, idle time, sends, receives, bad XIDs, Σ requests under way at each send, Σ backlog
//! at each send, most slots ever in use, Σ send queue, Σ pending queue (net/sunrpc/xprtsock.c,
//! xs_tcp_print_stats; older kernels end after the backlog). Each operation's line holds: requests,
//! transmissions, major timeouts, bytes sent, bytes received, then milliseconds queued, of round
//! trips, and in all (net/sunrpc/stats.c); later kernels add errors.

use std::collections::BTreeMap;

/// One connection of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// `tcp`, `udp` or `rdma`.
    pub transport: String,
    /// Number of times it was connected.
    pub connects: u64,
    /// Requests sent on it.
    pub sends: u64,
    /// Replies that belonged to no request.
    pub bad_xids: u64,
    /// Requests that were waiting for a slot, summed over all sends.
    pub backlog: u64,
    /// The most slots that were ever in use; `None` where the kernel does not say.
    pub most_slots: Option<u64>,
}

/// Counters of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Requests that were made.
    pub requests: u64,
    /// Transmissions: more than requests where some were repeated.
    pub transmissions: u64,
    /// Requests that ran into a major timeout.
    pub timeouts: u64,
    /// Milliseconds that requests waited before they were sent.
    pub queued_ms: u64,
    /// Milliseconds between sending and the reply.
    pub round_trip_ms: u64,
}

/// A mount, as counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Source of the mount: `server:/share`.
    pub what: String,
    /// Path of the mount point.
    pub point: String,
    /// Type of the file system: `nfs` or `nfs4`.
    pub kind: String,
    /// Effective options, after negotiation.
    pub options: BTreeMap<String, String>,
    /// Its connections. Mounts of one server share them, and each shows the same.
    pub connections: Vec<Connection>,
    /// By name, such as `READ`.
    pub operations: BTreeMap<String, Operation>,
}

/// The NFS mounts of the file; others, and lines that are not of the format, are left out.
pub fn parse(text: &str) -> Vec<Stats> {
    let mut all: Vec<Stats> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(header) = line.strip_prefix("device ") {
            let stats = device(header);
            inside = stats.is_some();
            all.extend(stats);
        } else if let (true, Some(stats)) = (inside, all.last_mut()) {
            detail(stats, line);
        }
    }
    all
}

fn device(header: &str) -> Option<Stats> {
    let (what, rest) = header.split_once(" mounted on ")?;
    let (point, kind) = rest.split_once(" with fstype ")?;
    let kind = kind.split(' ').next()?;
    matches!(kind, "nfs" | "nfs4").then(|| Stats {
        what: crate::mountinfo::unescape(what),
        point: crate::mountinfo::unescape(point),
        kind: kind.to_owned(),
        ..Stats::default()
    })
}

fn detail(stats: &mut Stats, line: &str) {
    let Some((name, values)) = line.trim_start().split_once(':') else {
        return;
    };
    let mut words = values.split_whitespace();
    match name {
        "opts" => stats.options = options(values.trim()),
        "xprt" => {
            let Some(transport) = words.next() else {
                return;
            };
            let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
            // UDP has no connects and times; only TCP's counts are of use here.
            stats.connections.push(match transport {
                "tcp" => Connection {
                    transport: transport.to_owned(),
                    connects: at(2),
                    sends: at(5),
                    bad_xids: at(7),
                    backlog: at(9),
                    most_slots: numbers.get(10).copied(),
                },
                _ => Connection {
                    transport: transport.to_owned(),
                    ..Connection::default()
                },
            });
        }
        _ if !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b == b'_' || b.is_ascii_digit()) =>
        {
            let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            if let [
                requests,
                transmissions,
                timeouts,
                _,
                _,
                queued_ms,
                round_trip_ms,
                ..,
            ] = numbers[..]
            {
                let operation = Operation {
                    requests,
                    transmissions,
                    timeouts,
                    queued_ms,
                    round_trip_ms,
                };
                stats.operations.insert(name.to_owned(), operation);
            }
        }
        _ => {}
    }
}

/// `a,b=c` as a map; a word without a value has an empty one.
pub fn options(text: &str) -> BTreeMap<String, String> {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name.to_owned(), value.to_owned())
    };
    text.split(',')
        .filter(|word| !word.is_empty())
        .map(pair)
        .collect()
}
