//! `weir top`: pools, volumes and clients as they are now, from the server's `/metrics`.
//!
//! Two looks at the counters make one view ([`view`]); it is drawn live, or printed once for scripts.

mod live;
mod page;
mod view;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;

use crate::Environment;
use crate::args::{At, Common};
use crate::error::Error;
use crate::session::{Io, Session};
use view::{Look, Row, View};

/// `weir top`
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Print one table and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 1.0)]
    pub interval: f64,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub common: Common,
}

/// Runs it.
pub fn run(args: &TopArgs, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    if !(0.1..=3600.0).contains(&args.interval) {
        return Err(Error::Other(
            "the interval is 0.1 to 3600 seconds".to_owned(),
        ));
    }
    let interval = Duration::from_secs_f64(args.interval);
    let session = Session::open(&args.common, &At::default(), environment, io)?;
    let mut seconds = 0.0;
    let mut look = |passed: Duration| -> Result<Look, Error> {
        seconds += passed.as_secs_f64();
        Ok(Look::new(page::parse(&session.text("/metrics")?), seconds))
    };
    if !args.once {
        return live::run(interval, &mut look);
    }
    let first = look(Duration::ZERO)?;
    std::thread::sleep(interval);
    let view = view::between(&first, &look(interval)?);
    Ok(io.out.write_all(table(&view).as_bytes())?)
}

const HEADERS: [&str; 10] = [
    "",
    "NAME",
    "READ",
    "WRITE",
    "OPS/S",
    "MEAN",
    "P99",
    "OF LIMIT",
    "WAIT",
    "THROTTLED BY",
];

/// A row in words.
fn cells(kind: &str, row: &Row, with_direction: bool) -> [String; 10] {
    let name = match (row.pool.as_str(), row.name.as_str()) {
        ("", "") => "(no pool)".to_owned(),
        (pool, "") => pool.to_owned(),
        ("", name) => name.to_owned(),
        (pool, name) => format!("{pool}/{name}"),
    };
    let (read, written) = match with_direction {
        true => (bytes(row.read), bytes(row.written)),
        false => (bytes(row.bytes), String::new()),
    };
    [
        kind.to_owned(),
        name,
        read,
        written,
        format!("{:.0}", row.ops),
        time(row.mean),
        time(row.p99),
        row.share
            .map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
        if row.queue > 0.0 {
            format!("{:.0}", row.queue)
        } else {
            String::new()
        },
        row.throttled.clone(),
    ]
}

fn bytes(rate: f64) -> String {
    match rate {
        r if r >= 1048576.0 => format!("{:.1} MiB/s", r / 1048576.0),
        r if r > 0.0 => format!("{:.1} KiB/s", r / 1024.0),
        _ => "-".to_owned(),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s.is_infinite() => "> 17 s".to_owned(),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s if s > 0.0 => format!("{:.0} µs", s * 1e6),
        _ => "-".to_owned(),
    }
}

/// What the server does as a whole.
fn summary(view: &View) -> String {
    const MIB: f64 = 1048576.0;
    let sum = |of: fn(&Row) -> f64| view.volumes.iter().map(of).sum::<f64>();
    format!(
        "read {}, write {}, {:.0} operations/s; waiting {:.0} with {:.1} of {:.0} MiB; {:.2} cores, {:.0} MiB",
        bytes(sum(|row| row.read)),
        bytes(sum(|row| row.written)),
        sum(|row| row.ops),
        sum(|row| row.queue),
        view.held.0 / MIB,
        view.held.1 / MIB,
        view.cores,
        view.resident / MIB
    )
}

fn table(view: &View) -> String {
    let mut rows = vec![HEADERS.map(str::to_owned)];
    rows.extend(view.pools.iter().map(|row| cells("pool", row, true)));
    rows.extend(view.volumes.iter().map(|row| cells("volume", row, true)));
    rows.extend(view.clients.iter().map(|row| cells("client", row, false)));
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADERS.len()).map(width).collect();
    let mut out = format!("{}\n", summary(view));
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                2..=8 => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each() {
        let row = Row {
            pool: "p".into(),
            name: "v".into(),
            read: 3.0 * 1048576.0,
            ops: 48.0,
            mean: 0.0015,
            p99: 0.004,
            share: Some(0.998),
            throttled: "volume bytes".into(),
            queue: 12.0,
            ..Row::default()
        };
        let view = View {
            volumes: vec![row],
            ..View::default()
        };
        let text = table(&view);
        let line = text.lines().nth(2).unwrap();
        for part in [
            "volume",
            "p/v",
            "3.0 MiB/s",
            "48",
            "1.5 ms",
            "4.0 ms",
            "100 %",
            "12",
            "volume bytes",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(time(f64::INFINITY), "> 17 s");
    }
}
