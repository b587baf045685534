//! `statistics` and `qos statistics volume`: what volumes do, as means over a second.
//!
//! Latency is the server's own part, from a call's arrival to its reply. ONTAP divides it among a
//! node's modules; here two parts of it are known: what requests wait for limits, and all the rest.

use std::time::Duration;

use super::show::{self, Answer};
use super::storage::right;
use crate::cluster::{Cluster, Failure, Performance, Rate};
use crate::fields::{Field, rows};
use crate::grammar::ParsedCommand;
use crate::refusal::{invalid, not_among};
use crate::table::{self, Column};

/// Over which figures are means.
const INTERVAL: Duration = Duration::from_secs(1);

impl Performance {
    /// Returns ONTAP's name for what a volume's requests are together.
    fn workload(&self) -> String {
        format!("{}-wid{}", self.path.volume, self.id)
    }

    /// Returns all requests.
    fn total(&self) -> Rate {
        let all = [self.reads, self.writes, self.others];
        let mut sum = Rate::default();
        let mut nanos = 0;
        for rate in all {
            sum.ops += rate.ops;
            sum.bytes += rate.bytes;
            nanos += u128::from(rate.ops) * u128::from(rate.nanos);
        }
        let mean = nanos.checked_div(u128::from(sum.ops)).unwrap_or(0);
        sum.nanos = u64::try_from(mean).unwrap_or(u64::MAX);
        sum
    }
}

fn latency(nanos: u64) -> String {
    match nanos {
        0 => "0ms".to_owned(),
        1..1_000_000 => format!("{:.2}us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}ms", nanos as f64 / 1e6),
        _ => format!("{:.2}s", nanos as f64 / 1e9),
    }
}

fn throughput(bytes: u64) -> String {
    match bytes {
        0 => "0KB/s".to_owned(),
        1..1_048_576 => format!("{:.2}KB/s", bytes as f64 / 1024.0),
        _ => format!("{:.2}MB/s", bytes as f64 / 1_048_576.0),
    }
}

/// Fields of what volumes do.
pub(super) const FIELDS: &[Field<Performance>] = rows! {
    Field::<Performance>::column("vserver", "Vserver Name", |p| p.path.vserver.clone().into())
        .key(),
    Field::<Performance>::column("volume", "Volume Name", |p| p.path.volume.clone().into()).key(),
    Field::<Performance>::column("workload", "Workload", |p| p.workload().into()),
    Field::<Performance>::column("id", "Workload ID", |p| p.id.into()),
    Field::<Performance>::column("aggregate", "Aggregate Name", |p| p.aggregate.clone().into()),
    Field::<Performance>::column("total-ops", "Total Ops", |p| p.total().ops.into()),
    Field::<Performance>::column("read-ops", "Read Ops", |p| p.reads.ops.into()),
    Field::<Performance>::column("write-ops", "Write Ops", |p| p.writes.ops.into()),
    Field::<Performance>::column("other-ops", "Other Ops", |p| p.others.ops.into()),
    Field::<Performance>::column("read-data", "Read Throughput (Bps)", |p| p.reads.bytes.into()),
    Field::<Performance>::column("write-data", "Write Throughput (Bps)", |p| p.writes.bytes.into()),
    Field::<Performance>::column("latency", "Average Latency", |p| latency(p.total().nanos).into()),
    Field::<Performance>::column("read-latency", "Read Latency", |p| latency(p.reads.nanos).into()),
    Field::<Performance>::column(
        "write-latency", "Write Latency", |p| latency(p.writes.nanos).into(),
    ),
    Field::<Performance>::column(
        "other-latency", "Other Latency", |p| latency(p.others.nanos).into(),
    ),
    Field::<Performance>::column("qos-max", "Wait for Limits", |p| latency(p.waited).into()),
};

/// Runs `statistics volume show`
pub fn volumes(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Volume"], 15).with_field("volume"),
        Column::new(&["Vserver"], 10).with_field("vserver"),
        Column::new(&["Aggregate"], 10).with_field("aggregate"),
        Column::new(&["*Total", "  Ops"], 8)
            .with_field("total-ops")
            .right(),
        Column::new(&["  Read", "  Ops"], 8)
            .with_field("read-ops")
            .right(),
        Column::new(&["   Write", "  Ops"], 8)
            .with_field("write-ops")
            .right(),
        Column::new(&["   Other", "  Ops"], 8)
            .with_field("other-ops")
            .right(),
        Column::new(&["      Read", "     (Bps)"], 11)
            .with_field("read-data")
            .right(),
        Column::new(&["     Write", "     (Bps)"], 11)
            .with_field("write-data")
            .right(),
        Column::new(&["Latency"], 10).with_field("latency").right(),
    ];
    let all = cluster.performance(INTERVAL);
    show::list(FIELDS, parsed, all, &["vserver", "volume"], COLUMNS)
}

/// Returns the line before those of volumes: of all together.
fn together(all: &[Performance]) -> Performance {
    let sum = |of: fn(&Performance) -> Rate| {
        let mut sum = Performance::default();
        // As one volume's kinds of requests are added up.
        for p in all {
            let (one, two) = (sum.total(), of(p));
            (sum.reads, sum.writes) = (one, two);
            (sum.reads, sum.writes) = (sum.total(), Rate::default());
        }
        sum.total()
    };
    let mut waited = 0;
    for p in all {
        waited += u128::from(p.waited) * u128::from(p.total().ops);
    }
    let (reads, writes, others) = (sum(|p| p.reads), sum(|p| p.writes), sum(|p| p.others));
    let mut total = Performance {
        reads,
        writes,
        others,
        ..Performance::default()
    };
    let mean = waited.checked_div(u128::from(total.total().ops));
    total.waited = u64::try_from(mean.unwrap_or(0)).unwrap_or(u64::MAX);
    total
}

/// Runs `qos statistics volume latency show` and `performance show`.
pub fn qos(what: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const LATENCY: &[Column] = &[
        Column::new(&["Workload"], 19),
        Column::new(&["    ID"], 6),
        Column::new(&["   Latency"], 10),
        Column::new(&["      Data"], 10),
        Column::new(&["   QoS Max"], 10),
    ];
    const PERFORMANCE: &[Column] = &[
        Column::new(&["Workload"], 19),
        Column::new(&["    ID"], 6),
        Column::new(&["    IOPS"], 8),
        Column::new(&["    Throughput"], 15),
        Column::new(&["   Latency"], 10),
    ];
    let all = cluster.performance(INTERVAL);
    // A table, of however few volumes.
    show::print(FIELDS, parsed, all, &["workload"], |all| {
        let total = together(all);
        let lines = [(&total, "-total-".to_owned(), "-".to_owned())].into_iter();
        let lines = lines.chain(all.iter().map(|p| (p, p.workload(), p.id.to_string())));
        let rows = lines.map(|(p, name, id)| {
            let sum = p.total();
            let mut row = vec![name, right(&id, 6)];
            row.extend(match what {
                "latency" => [
                    right(&latency(sum.nanos), 10),
                    // Both are means over the same requests, read a moment apart.
                    right(&latency(sum.nanos.saturating_sub(p.waited)), 10),
                    right(&latency(p.waited), 10),
                ],
                _ => [
                    right(&sum.ops.to_string(), 8),
                    right(&throughput(sum.bytes), 15),
                    right(&latency(sum.nanos), 10),
                ],
            });
            row
        });
        let columns = match what {
            "latency" => LATENCY,
            _ => PERFORMANCE,
        };
        // As in ONTAP, nothing is said of how many lines there are.
        let rows: Vec<Vec<String>> = rows.collect();
        let text = table::fixed(columns, &rows);
        let counted = format!("{} entries were displayed.\n", rows.len());
        text.strip_suffix(&counted)
            .map_or(text.clone(), str::to_owned)
    })
}

/// ONTAP's name for it, and its value.
type Counter = (&'static str, fn(&Performance) -> String);

/// Runs `statistics show -object volume`: all counters of each volume, one below the other.
pub fn counters(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if let Some(object) = parsed.get("object").filter(|object| *object != "volume") {
        return Err(invalid(object, "object", "volume"));
    }
    const COUNTERS: &[Counter] = &[
        ("avg_latency", |p| latency(p.total().nanos)),
        ("other_latency", |p| latency(p.others.nanos)),
        ("other_ops", |p| p.others.ops.to_string()),
        ("read_data", |p| format!("{}b", p.reads.bytes)),
        ("read_latency", |p| latency(p.reads.nanos)),
        ("read_ops", |p| p.reads.ops.to_string()),
        ("total_ops", |p| p.total().ops.to_string()),
        ("write_data", |p| format!("{}b", p.writes.bytes)),
        ("write_latency", |p| latency(p.writes.nanos)),
        ("write_ops", |p| p.writes.ops.to_string()),
    ];
    let wanted: Option<Vec<&str>> = parsed.get("counter").map(|text| text.split('|').collect());
    let known = |name: &&&str| COUNTERS.iter().any(|(counter, _)| counter == *name);
    if let Some(unknown) = wanted.iter().flatten().find(|name| !known(name)) {
        let names: Vec<&str> = COUNTERS.iter().map(|(name, _)| *name).collect();
        return Err(not_among(
            unknown,
            "counter",
            "counter name",
            &names.join(", "),
        ));
    }
    let is =
        |wanted: Option<&str>, name: &str| wanted.is_none_or(|w| crate::query::matches(w, name));
    let mut all = cluster.performance(INTERVAL);
    all.retain(|p| {
        is(parsed.get("vserver"), &p.path.vserver) && is(parsed.get("instance"), &p.path.volume)
    });
    if all.is_empty() {
        return Err(crate::refusal::none());
    }
    let mut out = String::new();
    for p in &all {
        let lines: Vec<String> = COUNTERS
            .iter()
            .filter(|(name, _)| wanted.as_ref().is_none_or(|all| all.contains(name)))
            .map(|(name, value)| format!("    {name:<32} {:>32}\n", value(p)))
            .collect();
        out += &format!(
            "\nObject: volume\nInstance: {}\nElapsed-time: {}s\nScope: {}\n\n    {:<32} {:>32}\n    {} {}\n{}",
            p.path.volume,
            INTERVAL.as_secs(),
            p.path.vserver,
            "Counter",
            "Value",
            "-".repeat(32),
            "-".repeat(32),
            lines.concat()
        );
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_relations::model::Path;

    #[test]
    fn all_volumes_are_a_line_above_each() {
        let script = crate::script::Script::session();
        let shown = |what: &str| {
            let line = format!("qos statistics volume {what} show -volume vol_test");
            crate::execute(&line, &script).unwrap()
        };
        let (latency, performance) = (shown("latency"), shown("performance"));
        let figures = "756.00us   500.00us   256.00us";
        for name in ["-total-", "vol_test-wid"] {
            let line = |text: &str| {
                text.lines()
                    .find(|l| l.starts_with(name))
                    .map(str::to_owned)
            };
            assert!(line(&latency).unwrap().ends_with(figures), "{latency}");
            let line = line(&performance).unwrap();
            assert!(line.contains("400") && line.ends_with("756.00us"), "{line}");
        }
        assert_eq!(latency.lines().count(), 4, "{latency}");
    }

    #[test]
    fn means_are_weighed_by_what_they_are_of() {
        let rate = |ops, bytes, nanos| Rate { ops, bytes, nanos };
        let one = Performance {
            path: Path::local("s", "a"),
            id: 3,
            reads: rate(30, 300, 1_000_000),
            writes: rate(10, 100, 5_000_000),
            waited: 1_000_000,
            ..Performance::default()
        };
        assert_eq!(one.total(), rate(40, 400, 2_000_000));
        let two = Performance {
            reads: rate(10, 100, 5_000_000),
            waited: 0,
            ..one.clone()
        };
        let all = together(&[one, two]);
        assert_eq!(all.reads, rate(40, 400, 2_000_000));
        assert_eq!(all.writes, rate(20, 200, 5_000_000));
        assert_eq!(all.waited, 40_000_000 / 60);
        assert_eq!(latency(608_000), "608.00us");
        assert_eq!(latency(1_200_000), "1.20ms");
        assert_eq!(throughput(23_456_789), "22.37MB/s");
    }
}
