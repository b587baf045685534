//! Metrics of the control plane: the catalog and the jobs.

use std::fmt::Write as _;

use weir_control::Work;

/// Returns the families in Prometheus' text format.
pub fn render(work: &Work) -> String {
    let mut out = String::from(
        "# HELP weir_catalog_commit_seconds Time until changes are durable in the catalog, and in its second place.\n\
         # TYPE weir_catalog_commit_seconds histogram\n",
    );
    for (bound, count) in work.commits.cumulative() {
        let le = match bound.is_infinite() {
            true => "+Inf".to_owned(),
            false => bound.to_string(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "weir_catalog_commit_seconds_bucket{{le=\"{le}\"}} {count}"
        );
    }
    let Work {
        commits,
        running,
        done,
        failed,
    } = work;
    let (sum, count) = (commits.seconds(), commits.count);
    let _ = write!(
        out,
        "weir_catalog_commit_seconds_sum {sum}\n\
         weir_catalog_commit_seconds_count {count}\n\
         # HELP weir_jobs_running Jobs of the control plane that have not ended.\n\
         # TYPE weir_jobs_running gauge\n\
         weir_jobs_running {running}\n\
         # HELP weir_jobs_total Jobs of the control plane that have ended, by their outcome.\n\
         # TYPE weir_jobs_total counter\n\
         weir_jobs_total{{outcome=\"done\"}} {done}\n\
         weir_jobs_total{{outcome=\"failed\"}} {failed}\n"
    );
    out
}
