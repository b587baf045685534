//! Metrics of the storage below the volumes: latencies of the intent log, of the device and of
//! checkpoints, and the last replay.

use weir_store::IoKind;
use weir_volume::Engine;

use crate::metrics::{Pieces, histogram};

/// Returns the metrics in Prometheus' text form.
pub fn pieces(engine: &Engine) -> Pieces {
    let log = engine.log_latencies();
    let device = engine.device_latencies();
    let (checkpoints, recovered) = (engine.checkpoint_latencies(), engine.recovered());
    let mut page = Pieces::default();
    page.then(move |page| {
        let family = "weir_log_write_seconds";
        let help = "Writes of the intent log to its device, each of a batch of records.";
        page.family(family, "histogram", help);
        histogram(page, family, &[], &log, true);
        let family = "weir_device_operation_seconds";
        let help = "Operations of the aggregate's device, from submission to completion.";
        page.family(family, "histogram", help);
        for (kind, latencies) in &device {
            let operation = match kind {
                IoKind::Read => "read",
                IoKind::Write => "write",
                IoKind::Flush => "flush",
                IoKind::Discard => "discard",
            };
            histogram(page, family, &[("operation", operation)], latencies, true);
        }
        let family = "weir_checkpoint_seconds";
        let help = "Checkpoints, from the cut of the log to the new roots.";
        page.family(family, "histogram", help);
        histogram(page, family, &[], &checkpoints, true);
        let family = "weir_replay_seconds";
        let help = "Time for which the log was replayed at the last start.";
        page.family(family, "gauge", help);
        page.sample(family, &[], recovered.took.as_secs_f64());
        let family = "weir_replay_records";
        page.family(
            family,
            "gauge",
            "Records that were replayed at the last start.",
        );
        page.sample(family, &[], recovered.records);
    });
    page
}
