//! Metrics of replication for `/metrics` (Prometheus text format).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_relations::cutover::Departure;
use weir_relations::model::{MirrorState, Status};

use super::moves::Moves;
use super::state::Replication;
use weir_node::metrics::{Family, Pieces};

/// Metric families, in the order of [`Row::figures`].
const FAMILIES: [Family; 8] = [
    (
        "weir_snapmirror_transferred_bytes_total",
        "counter",
        "Bytes that transfers have moved since the start, before compression.",
    ),
    (
        "weir_snapmirror_wire_bytes_total",
        "counter",
        "The same as they came over the wire.",
    ),
    (
        "weir_snapmirror_rate_bytes_per_second",
        "gauge",
        "Bytes a second of the running transfer on the wire, 0 without one.",
    ),
    (
        "weir_snapmirror_lag_seconds",
        "gauge",
        "Age of the newest snapshot that the destination has.",
    ),
    (
        "weir_snapmirror_newest_snapshot_timestamp_seconds",
        "gauge",
        "When that snapshot was taken, since 1970; the lag goes on from it when the server does not.",
    ),
    (
        "weir_snapmirror_healthy",
        "gauge",
        "1 if the relationship is healthy.",
    ),
    (
        "weir_snapmirror_mirrored",
        "gauge",
        "1 if the destination is a copy, 0 if it is not initialized or broken off.",
    ),
    (
        "weir_snapmirror_transferring",
        "gauge",
        "1 while a transfer runs.",
    ),
];

/// Metrics of a relationship.
struct Row {
    source: String,
    destination: String,
    figures: [Option<f64>; 8],
}

impl Replication {
    /// Returns the relationships whose destination is on this node.
    pub fn relationships(&self) -> Vec<weir_relations::model::Relationship> {
        self.manager.lock().relationships(&self.rows())
    }

    /// Returns the metrics of all relationships whose destination is on this node, formatted while
    /// they are read.
    pub fn pieces(&self) -> Pieces {
        let now = self.current_time();
        let flag = |is: bool| if is { 1.0 } else { 0.0 };
        let rows: Arc<[Row]> = self
            .relationships()
            .into_iter()
            .map(|r| {
                let moved = self.moved.lock().get(&r.uuid).cloned().unwrap_or_default();
                let read = |n: &AtomicU64| n.load(Ordering::Relaxed) as f64;
                let idle = matches!(r.status, Status::Idle | Status::Quiesced | Status::Queued);
                Row {
                    figures: [
                        Some(read(&moved.logical)),
                        Some(read(&moved.wire)),
                        Some(r.transfer.as_ref().map_or(0, |t| t.rate) as f64),
                        r.lag(now.wall).map(|lag| lag as f64),
                        r.lag(now.wall)
                            .and_then(|_| Some(r.newest.as_ref()?.taken as f64)),
                        Some(flag(r.healthy)),
                        Some(flag(r.state == MirrorState::Snapmirrored)),
                        Some(flag(!idle)),
                    ],
                    source: r.source.to_string(),
                    destination: r.destination.to_string(),
                }
            })
            .collect();
        let mut page = Pieces::default();
        for (at, family) in FAMILIES.into_iter().enumerate() {
            page.family(family);
            page.each(&rows, move |page, row| {
                if let Some(Some(value)) = row.figures.get(at) {
                    let labels = [("source", &*row.source), ("destination", &row.destination)];
                    page.sample(family.0, &labels, value);
                }
            });
        }
        if let Some(moves) = &self.moves {
            of_moves(moves, &mut page);
        }
        page
    }
}

/// Appends the metrics of moves between aggregates.
fn of_moves(moves: &Moves, page: &mut Pieces) {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let (out, undecided) = {
        let leaving = moves.leaving.lock();
        let undecided = { leaving.values() }.filter(|one| one.machine == Departure::HandedOver);
        (leaving.len() as f64, undecided.count() as f64)
    };
    let inward = moves.receiving.lock().len() as f64;
    let ended = [
        ("departed", count(&moves.departed)),
        ("arrived", count(&moves.arrived)),
        ("failed", count(&moves.failed)),
    ];
    let pause = count(&moves.pause_ms) / 1e3;
    let mut family = |name, kind, help, label: &'static str, rows: &[(&'static str, f64)]| {
        page.family((name, kind, help));
        let rows: Arc<[(&'static str, f64)]> = rows.into();
        page.each(&rows, move |page, (value, number)| {
            let labels = [(label, *value)];
            let labels = if label.is_empty() {
                &labels[..0]
            } else {
                &labels
            };
            page.sample(name, labels, number);
        });
    };
    family(
        "weir_volume_moves",
        "gauge",
        "Volumes that are being moved to another aggregate (out), or to this one (in).",
        "direction",
        &[("out", out), ("in", inward)],
    );
    family(
        "weir_volume_moves_undecided",
        "gauge",
        "Volumes that nobody serves until the destination of their move answers.",
        "",
        &[("", undecided)],
    );
    family(
        "weir_volume_moves_total",
        "counter",
        "Moves that have ended since the start.",
        "result",
        &ended,
    );
    family(
        "weir_volume_move_pause_seconds",
        "gauge",
        "Time for which requests waited at the last departure.",
        "",
        &[("", pause)],
    );
}
