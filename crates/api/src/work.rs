//! Metrics of the control plane: the catalog and the jobs.

use std::fmt::Write as _;

use weir_control::Work;

use crate::metrics::histogram;

/// Returns the families in Prometheus' text format.
pub fn render(work: &Work) -> String {
    let Work {
        commits,
        running,
        done,
        failed,
    } = work;
    let mut out = String::new();
    let family = "weir_catalog_commit_seconds";
    let help = "Time until changes are durable in the catalog, and in its second place.";
    histogram(
        &mut out,
        (family, help),
        commits.cumulative(),
        commits.seconds(),
    );
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "# HELP weir_jobs_running Jobs of the control plane that have not ended.\n\
         # TYPE weir_jobs_running gauge\n\
         weir_jobs_running {running}\n\
         # HELP weir_jobs_total Jobs of the control plane that have ended, by their outcome.\n\
         # TYPE weir_jobs_total counter\n\
         weir_jobs_total{{outcome=\"done\"}} {done}\n\
         weir_jobs_total{{outcome=\"failed\"}} {failed}\n"
    );
    out
}
