//! Rules for latency: waiting on this side, and windows that are too small for the distance.

use super::mounts::{nfs, on};
use crate::facts::{Facts, Mount};
use crate::finding::{Edit, Finding, Fix, Phase, Severity, Step};

/// The throughput that one connection should be able to carry, bytes a second: 10 Gbit/s.
const STREAM: f64 = 1.25e9;

/// The largest buffer that is proposed, bytes: a connection that fills it holds that much of the
/// kernel's memory.
const MOST: u64 = 64 << 20;

/// The buffer that lets a mount's connections carry [`STREAM`] together, bytes.
fn wanted(mount: &Mount) -> Option<u64> {
    let ms = mount.distance_ms().filter(|ms| *ms >= 1.0)?;
    let window = STREAM * ms / 1000.0 / mount.connections.len().max(1) as f64;
    // Half of the buffer is the kernel's bookkeeping (tcp_adv_win_scale).
    Some(((window * 2.0) as u64).next_power_of_two().min(MOST))
}

/// TCP buffers that cap one connection below 10 Gbit/s at the measured round trip.
pub fn buffers(facts: &Facts) -> Vec<Finding> {
    let both = [
        ("net.ipv4.tcp_rmem", facts.tcp_receive),
        ("net.ipv4.tcp_wmem", facts.tcp_send),
    ];
    let Some(largest) = both
        .iter()
        .filter_map(|(_, sizes)| Some((*sizes)?[2]))
        .min()
    else {
        return Vec::new();
    };
    let most = nfs(facts).filter_map(wanted).max().unwrap_or_default();
    let fix = || {
        let small = both.iter().filter_map(|(name, sizes)| {
            let [least, first, _] = (*sizes).filter(|sizes| sizes[2] < most)?;
            Some((*name, format!("{least} {first} {most}")))
        });
        Fix {
            edits: small
                .clone()
                .map(|(name, value)| Edit::Sysctl {
                    name,
                    value,
                    or_add: true,
                })
                .collect(),
            steps: small
                .map(|(name, value)| Step {
                    phase: Phase::Kernel,
                    command: format!("sysctl -w {name}='{value}'"),
                })
                .collect(),
            effective: "for new connections".to_owned(),
            ..Fix::default()
        }
    };
    let slow = |mount: &Mount| {
        let ms = mount.distance_ms()?;
        let carried = largest as f64 / 2.0 / (ms / 1000.0) * mount.connections.len().max(1) as f64;
        (largest < wanted(mount)?).then(|| {
            on(
                "tcp-buffers",
                Severity::Slow,
                mount,
                format!("TCP may buffer {largest} bytes, and the smallest calls take {ms:.1} ms"),
                "A connection carries at most its window a round trip.",
                fix(),
                format!(
                    "from at most {:.0} MiB/s to {:.0} MiB/s, if the network carries it",
                    carried / 1048576.0,
                    (carried * most as f64 / largest as f64).min(STREAM) / 1048576.0
                ),
            )
        })
    };
    nfs(facts).filter_map(slow).collect()
}

/// Requests that wait for a slot longer than for the server.
pub fn queued(facts: &Facts) -> Vec<Finding> {
    let waiting = |mount: &Mount| {
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
                "Requests queue for a slot or for the connection here, not at the server.",
                Fix {
                    advice: vec!["more connections (nconnect) or slots, as found above; if neither: the load offers more than the path carries".to_owned()],
                    effective: "as above".to_owned(),
                    ..Fix::default()
                },
                "latency nearer to the server's own".to_owned(),
            )
        })
    };
    nfs(facts).filter_map(waiting).collect()
}
