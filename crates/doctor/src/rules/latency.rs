//! Where time goes: waiting on this side, and windows that are too small for the distance.

use super::{nfs, on};
use crate::facts::Facts;
use crate::finding::{FileFix, Finding, Fix, Severity};

/// The throughput that one connection should be able to carry, bytes a second: 10 Gbit/s.
const STREAM: f64 = 1.25e9;

/// TCP buffers that cap one connection below 10 Gbit/s at the measured round trip.
pub fn buffers(facts: &Facts) -> Vec<Finding> {
    let Some(largest) = facts.tcp_receive.into_iter().chain(facts.tcp_send).min() else {
        return Vec::new();
    };
    // Half of the buffer is the kernel's bookkeeping (tcp_adv_win_scale).
    let window = largest as f64 / 2.0;
    let slow = |mount: &crate::facts::Mount| {
        let ms = mount.distance_ms().filter(|ms| *ms >= 1.0)?;
        let carried = window / (ms / 1000.0) * mount.connections.len().max(1) as f64;
        (carried < STREAM).then(|| {
            on(
                "tcp-buffers",
                Severity::Slow,
                mount,
                format!("TCP may buffer {largest} bytes, and the smallest calls take {ms:.1} ms"),
                "A connection carries at most its window a round trip.",
                Fix {
                    files: vec![FileFix {
                        path: "/etc/sysctl.d/90-nfs-tcp.conf".to_owned(),
                        content: "net.ipv4.tcp_rmem = 4096 131072 33554432\nnet.ipv4.tcp_wmem = 4096 65536 33554432\n".to_owned(),
                    }],
                    commands: vec!["sysctl --system".to_owned()],
                    effective: "for new connections".to_owned(),
..Fix::default()
},
                format!("from at most {:.0} MiB/s to {:.0} MiB/s, if the network carries it", carried / 1048576.0, (carried * 33_554_432.0 / largest as f64).min(STREAM) / 1048576.0),
            )
        })
    };
    nfs(facts).filter_map(slow).collect()
}

/// Requests that wait for a slot longer than for the server.
pub fn queued(facts: &Facts) -> Vec<Finding> {
    let waiting = |mount: &crate::facts::Mount| {
        let (requests, queued, trip) = mount.data().fold((0, 0, 0), |(n, q, t), o| {
            (n + o.requests, q + o.queued_ms, t + o.round_trip_ms)
        });
        (requests >= 1000 && queued > trip && queued / requests >= 1).then(|| {
            on(
                "queued",
                Severity::Slow,
                mount,
                format!(
                    "READs and WRITEs waited {:.1} ms on this client before they were sent, and then {:.1} ms for the answer",
                    queued as f64 / requests as f64,
                    trip as f64 / requests as f64
                ),
                "Requests stand in line for a slot or for the connection here, not at the server.",
                Fix {
                    commands: vec!["# more connections (nconnect) or slots, as found above; if neither: the load offers more than the path carries".to_owned()],
                    effective: "as above".to_owned(),
                    ..Fix::default()
                },
                "latency nearer to the server's own".to_owned(),
            )
        })
    };
    nfs(facts).filter_map(waiting).collect()
}
