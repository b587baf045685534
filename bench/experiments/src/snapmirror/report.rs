//! Files of a run: table, raw data, machine, command, plots.

use super::{Line, MIB, Run, SnapmirrorArgs, Transfer};
use crate::qos::plot;
use crate::qos::verdict_name;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use weir_bench::error::BenchError;

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// A transfer in a line.
pub(super) fn words(t: &Transfer) -> String {
    format!(
        "{} {}: {:.1} MB, {:.1} on the wire; setup {:.3} s, data {:.3} s at {:.2} MB/s, finalizing {:.3} s; {:.2} s in all",
        t.to,
        t.state,
        t.logical as f64 / MIB,
        t.wire as f64 / MIB,
        seconds(t.setup_ms),
        seconds(t.data_ms),
        t.rate as f64 / MIB,
        seconds(t.finalize_ms),
        t.seconds
    )
}

fn table(lines: &[Line]) -> String {
    let mut out = String::from(
        "| Case | Published: size, duration, MB/s | To | MB | MB on the wire | Setup, s | Data, s | Finalizing, s | All, s | MB/s of the data phase | Size by duration, MB/s |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for line in lines {
        for (n, t) in line.transfers.iter().enumerate() {
            let (case, seed) = match n {
                0 => (line.case.as_str(), line.seed.as_str()),
                _ => ("", ""),
            };
            // A string takes everything.
            let _ = writeln!(
                out,
                "| {case} | {seed} | {}{} | {:.1} | {:.1} | {:.3} | {:.3} | {:.3} | {:.2} | {:.3} | {:.2} |",
                t.to,
                if t.state == "success" {
                    ""
                } else {
                    ", aborted"
                },
                t.logical as f64 / MIB,
                t.wire as f64 / MIB,
                seconds(t.setup_ms),
                seconds(t.data_ms),
                seconds(t.finalize_ms),
                t.seconds,
                t.rate as f64 / MIB,
                t.logical as f64 / MIB / t.seconds.max(0.001),
            );
        }
    }
    out
}

fn verdicts(lines: &[Line]) -> String {
    let mut out = String::from("| Case | Target | Achieved | |\n|---|---|---|---|\n");
    for line in lines {
        let verdict = verdict_name(line.verdict);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {verdict} |",
            line.case, line.target, line.achieved
        );
    }
    out
}

/// Writes a run's folder.
pub(super) fn write(
    run: &Run,
    args: &SnapmirrorArgs,
    facts: &BTreeMap<String, String>,
    out: &Path,
) -> Result<(), BenchError> {
    let failed = || BenchError::io(format!("write to {}", out.display()));
    std::fs::create_dir_all(out).map_err(failed())?;
    let mut text = format!(
        "# SnapMirror under throttles: a published experiment repeated\n\n\
         Published: Classmethod, \"SnapMirrorの帯域制御をやってみる\", 4 May 2023, Amazon FSx for NetApp ONTAP; its MB/s are size by duration.\n\
         Here: two processes of `weir serve` on loopback, paired over TLS, {} of memory each, {:.0} MiB of new data a transfer. \
         MB are 2^20 bytes. Limits count bytes on the wire while data moves.\n\n",
        args.memory,
        run.size as f64 / MIB
    );
    for (name, value) in facts {
        let _ = writeln!(text, "- {name}: {value}");
    }
    text.push('\n');
    text.push_str(&verdicts(&run.lines));
    text.push('\n');
    text.push_str(&table(&run.lines));
    text.push_str(
        "\nA plain copy: one thread reads a file from the page cache, a mebibyte at a time, and sends it through rustls (ring, TLS 1.3) \
         over loopback; another writes it to a file and syncs it at the end. A transfer's speed is its size by its whole duration, \
         setup to durable end; both are medians, taken in turns.\n",
    );
    std::fs::write(out.join("summary.md"), text).map_err(failed())?;
    let raw = serde_json::to_string_pretty(&run.lines).unwrap_or_default();
    std::fs::write(out.join("raw.json"), raw).map_err(failed())?;
    let machine = serde_json::to_string_pretty(facts).unwrap_or_default();
    std::fs::write(out.join("machine.json"), machine).map_err(failed())?;
    let mut command = "bench/experiment snapmirror".to_owned();
    if args.quick {
        command.push_str(" --quick");
    } else {
        let _ = write!(command, " --size {} --files {}", args.size, args.files);
    }
    let _ = write!(command, " --memory {}", args.memory);
    if !args.only.is_empty() {
        let _ = write!(command, " --only '{}'", args.only);
    }
    std::fs::write(out.join("command"), command + "\n").map_err(failed())?;
    if !run.plots.is_empty() {
        let title = "A global throttle changed in flight, windows of 50 ms";
        let svg = plot::svg(title, super::cases::WINDOW, &run.plots);
        std::fs::write(out.join("changes.svg"), svg).map_err(failed())?;
    }
    Ok(())
}
