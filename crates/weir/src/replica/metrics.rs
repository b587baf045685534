//! What `/metrics` says of replication (Prometheus text format).

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_replica::model::{MirrorState, Status};

use super::Replication;

impl Replication {
    /// Returns the relationships whose destination is here.
    pub fn relationships(&self) -> Vec<weir_replica::model::Relationship> {
        self.manager.lock().relationships(&self.rows())
    }

    /// All relationships whose destination is here.
    pub fn render(&self) -> String {
        let now = self.now();
        let all = self.relationships();
        let counted = |uuid: &str| {
            let moved = self.moved.lock().get(uuid).cloned().unwrap_or_default();
            let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
            (read(&moved.logical), read(&moved.wire))
        };
        let mut out = String::new();
        let mut family =
            |name: &str, kind: &str, help: &str, value: &dyn Fn(usize) -> Option<f64>| {
                let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
                for (at, r) in all.iter().enumerate() {
                    if let Some(value) = value(at) {
                        // Paths are letters, digits and -_.: which need no escaping.
                        let (from, to) = (&r.source, &r.destination);
                        let _ = writeln!(
                            out,
                            "{name}{{source=\"{from}\",destination=\"{to}\"}} {value}"
                        );
                    }
                }
            };
        let of = |at: usize| all.get(at);
        let flag = |is: bool| if is { 1.0 } else { 0.0 };
        family(
            "weir_snapmirror_transferred_bytes_total",
            "counter",
            "Bytes that transfers have moved since the start, before compression.",
            &|at| Some(counted(&of(at)?.uuid).0 as f64),
        );
        family(
            "weir_snapmirror_wire_bytes_total",
            "counter",
            "The same as they came over the wire.",
            &|at| Some(counted(&of(at)?.uuid).1 as f64),
        );
        family(
            "weir_snapmirror_rate_bytes_per_second",
            "gauge",
            "Bytes a second of the running transfer on the wire, 0 without one.",
            &|at| Some(of(at)?.transfer.as_ref().map_or(0, |t| t.rate) as f64),
        );
        family(
            "weir_snapmirror_lag_seconds",
            "gauge",
            "Age of the newest snapshot that the destination has.",
            &|at| of(at)?.lag(now.wall).map(|lag| lag as f64),
        );
        family(
            "weir_snapmirror_healthy",
            "gauge",
            "1 if the relationship is healthy.",
            &|at| Some(flag(of(at)?.healthy)),
        );
        family(
            "weir_snapmirror_mirrored",
            "gauge",
            "1 if the destination is a copy, 0 if it is not initialized or broken off.",
            &|at| Some(flag(of(at)?.state == MirrorState::Snapmirrored)),
        );
        family(
            "weir_snapmirror_transferring",
            "gauge",
            "1 while a transfer runs.",
            &|at| {
                Some(flag(!matches!(
                    of(at)?.status,
                    Status::Idle | Status::Quiesced | Status::Queued
                )))
            },
        );
        out
    }
}
