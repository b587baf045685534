//! `weir top`: pools, volumes and clients as they are now, from the server's `/metrics`.
//!
//! Two samples of the counters make one view ([`view`]); it is drawn live, or printed once for
//! scripts.

mod live;
pub mod page;
mod screen;
mod view;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::Environment;
use crate::args::{At, Common};
use crate::error::Error;
use crate::session::{Io, Session};
use screen::{Choice, Pane, Screen, Sort};
use view::{MetricsSample, Row, View};

/// `weir top`
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Print one table and end; --json does so, too
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 1.0)]
    pub interval: f64,
    /// Order of the rows
    #[arg(long, value_enum, default_value_t = Sort::Rate)]
    pub sort: Sort,
    /// Part of the names of rows that are shown
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Leave out what does nothing
    #[arg(long)]
    pub hide_idle: bool,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub common: Common,
}

/// Runs `weir top`, live or once, until a key or an error ends it.
pub fn run(args: &TopArgs, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    if !(0.1..=3600.0).contains(&args.interval) {
        return Err(Error::Usage(
            "the interval is 0.1 to 3600 seconds".to_owned(),
        ));
    }
    let interval = Duration::from_secs_f64(args.interval);
    let session = Session::open(&args.common, &At::default(), environment, io)?;
    let mut seconds = 0.0;
    let mut look = |passed: Duration| -> Result<MetricsSample, Error> {
        seconds += passed.as_secs_f64();
        Ok(MetricsSample::new(
            page::parse(&session.text("/metrics")?),
            seconds,
        ))
    };
    let choice = Choice {
        sort: args.sort,
        filter: args.filter.clone(),
        hide_idle: args.hide_idle,
    };
    let json = args.common.is_json();
    if !(args.once || json) {
        return live::run(interval, Screen::new(choice), &mut look);
    }
    let first = look(Duration::ZERO)?;
    std::thread::sleep(interval);
    let view = view::between(&first, &look(interval)?);
    let text = match json {
        true => format!("{:#}\n", data(view, &choice)),
        false => table(&view, &choice),
    };
    Ok(io.out.write_all(text.as_bytes())?)
}

/// Value that a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Read,
    Written,
    Ops,
    Mean,
    P99,
    Used,
    Limit,
    Queue,
    Throttled,
}

/// All columns, for where there is room.
const WIDE: &[Column] = &[
    Column::Name,
    Column::Read,
    Column::Written,
    Column::Ops,
    Column::Mean,
    Column::P99,
    Column::Used,
    Column::Limit,
    Column::Queue,
    Column::Throttled,
];

/// Columns that fit into 80 characters and leave room for names.
const NARROW: &[Column] = &[
    Column::Name,
    Column::Read,
    Column::Written,
    Column::Ops,
    Column::P99,
    Column::Used,
    Column::Limit,
    Column::Throttled,
];

impl Column {
    /// Returns its header, in a table of clients too, whose bytes are not counted by direction.
    fn header(self, pane: Pane) -> &'static str {
        match (self, pane) {
            (Column::Name, _) => "NAME",
            (Column::Read, Pane::Clients) => "DATA",
            (Column::Read, _) => "READ",
            (Column::Written, Pane::Clients) => "",
            (Column::Written, _) => "WRITE",
            (Column::Ops, _) => "OPS/S",
            (Column::Mean, _) => "MEAN",
            (Column::P99, _) => "P99",
            (Column::Used, _) => "USED",
            (Column::Limit, _) => "LIMIT",
            (Column::Queue, _) => "WAIT",
            (Column::Throttled, _) => "THROTTLED BY",
        }
    }

    /// Returns a row's cell; `brief` leaves out of a rate what its header says.
    fn cell(self, row: &Row, pane: Pane, brief: bool) -> String {
        match self {
            Column::Name => row.full_name(),
            Column::Read if pane == Pane::Clients => bytes(row.bytes, brief),
            Column::Read => bytes(row.read, brief),
            Column::Written if pane == Pane::Clients => String::new(),
            Column::Written => bytes(row.written, brief),
            Column::Ops => format!("{:.0}", row.ops),
            Column::Mean => time(row.mean),
            Column::P99 => time(row.p99),
            Column::Used => row
                .share
                .map_or(String::new(), |share| format!("{:.0}%", share * 100.0)),
            Column::Limit => match row.limit_name.as_str() {
                "" => String::new(),
                name if name.contains("ops") => format!("{:.0}/s", row.limit),
                _ => bytes(row.limit, brief),
            },
            Column::Queue if row.queue > 0.0 => format!("{:.0}", row.queue),
            Column::Queue => String::new(),
            Column::Throttled => row.throttled.clone(),
        }
    }

    fn is_figure(self) -> bool {
        !matches!(self, Column::Name | Column::Throttled)
    }
}

fn bytes(rate: f64, brief: bool) -> String {
    let (value, unit) = match rate {
        r if r >= 1_073_741_824.0 * 10.0 => (r / 1_073_741_824.0, 'G'),
        r if r >= 1_048_576.0 => (r / 1_048_576.0, 'M'),
        r if r > 0.0 => (r / 1024.0, 'K'),
        _ => return "-".to_owned(),
    };
    match brief {
        true => format!("{value:.1}{unit}"),
        false => format!("{value:.1} {unit}iB/s"),
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

/// Returns the activity of the server as a whole, in parts.
fn summary(view: &View) -> Vec<String> {
    const MIB: f64 = 1048576.0;
    let sum = |of: fn(&Row) -> f64| view.volumes.iter().map(of).sum::<f64>();
    let mut parts = vec![
        format!(
            "read {}, write {}",
            bytes(sum(|row| row.read), false),
            bytes(sum(|row| row.written), false)
        ),
        format!("{:.0} operations/s", sum(|row| row.ops)),
        format!(
            "waiting {:.0} with {:.1} of {:.0} MiB",
            sum(|row| row.queue),
            view.held.0 / MIB,
            view.held.1 / MIB
        ),
        format!("{:.2} cores, {:.0} MiB", view.cores, view.resident / MIB),
    ];
    let space = &view.space;
    if space.size > 0.0 {
        let over = match space.provisioned / space.size {
            ratio if ratio > 1.0 => format!(", overcommitted {ratio:.2} times"),
            _ => String::new(),
        };
        parts.push(format!(
            "space: {} of {} used ({:.0}%), {} free{over}",
            bytes(space.used, true),
            bytes(space.size, true),
            100.0 * space.used / space.size,
            bytes(space.free, true),
        ));
    }
    if let Some(pair) = &view.pair {
        parts.push(match pair.in_sync {
            true => format!(
                "pair: in sync, waits {} longer, p99 {}{}",
                time(pair.mean),
                time(pair.p99),
                pair.sent
                    .map_or_else(String::new, |sent| format!(", {sent:.2} bytes sent a byte"))
            ),
            false => format!(
                "pair: not in sync for {:.0} s, {} behind",
                pair.behind,
                bytes(pair.lag, true)
            ),
        });
    }
    let nfs4 = &view.nfs4;
    if nfs4.clients > 0.0 {
        parts.push(format!(
            "NFSv4: {:.0} clients, {:.0} sessions with {:.0} slots, {:.0} opens, {:.0} delegations, {:.1} recalls/s",
            nfs4.clients, nfs4.sessions, nfs4.slots, nfs4.opens, nfs4.delegations, nfs4.recalls
        ));
    }
    parts
}

/// Returns the view for programs, with the rows that the table has, in its order.
fn data(mut view: View, choice: &Choice) -> Value {
    for rows in [
        &mut view.pools,
        &mut view.volumes,
        &mut view.clients,
        &mut view.operations,
    ] {
        *rows = choice.rows(rows).into_iter().cloned().collect();
    }
    // Numbers and strings only: none of them fails.
    serde_json::to_value(view).unwrap_or_default()
}

fn table(view: &View, choice: &Choice) -> String {
    let kinds = [
        ("pool", Pane::Pools),
        ("volume", Pane::Volumes),
        ("client", Pane::Clients),
        ("operation", Pane::Operations),
    ];
    let headers = WIDE
        .iter()
        .map(|column| column.header(Pane::Volumes).to_owned());
    let mut rows: Vec<Vec<String>> = vec![std::iter::once(String::new()).chain(headers).collect()];
    for (kind, pane) in kinds {
        for row in choice.rows(pane.rows(view)) {
            let cells = WIDE.iter().map(|column| column.cell(row, pane, false));
            rows.push(std::iter::once(kind.to_owned()).chain(cells).collect());
        }
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=WIDE.len()).map(width).collect();
    let figures = std::iter::once(false).chain(WIDE.iter().map(|column| column.is_figure()));
    let figures: Vec<bool> = figures.collect();
    let mut out = format!("{}\n", summary(view).join("; "));
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), figure) in row.iter().zip(&widths).zip(&figures) {
            // Writing to a string cannot fail.
            let _ = match figure {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
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
            limit: 3.0 * 1048576.0,
            limit_name: "bytes".into(),
            throttled: "volume bytes".into(),
            queue: 12.0,
            ..Row::default()
        };
        let view = View {
            volumes: vec![row],
            ..View::default()
        };
        let text = table(&view, &Choice::default());
        let line = text.lines().nth(2).unwrap();
        for part in [
            "volume",
            "p/v",
            "3.0 MiB/s",
            "48",
            "1.5 ms",
            "4.0 ms",
            "100%  3.0 MiB/s",
            "12",
            "volume bytes",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let with_nfs4 = View {
            nfs4: view::Nfs4 {
                clients: 2.0,
                sessions: 3.0,
                slots: 192.0,
                opens: 70.0,
                delegations: 5.0,
                recalls: 0.5,
            },
            pair: Some(view::Pair {
                in_sync: true,
                mean: 41e-6,
                p99: 250e-6,
                sent: Some(1.0441),
                ..view::Pair::default()
            }),
            operations: vec![Row {
                name: "nfsv4 OPEN".into(),
                ops: 9.0,
                ..Row::default()
            }],
            ..view.clone()
        };
        let text_of = table(&with_nfs4, &Choice::default());
        for part in [
            "2 clients, 3 sessions with 192 slots, 70 opens, 5 delegations, 0.5 recalls/s",
            "pair: in sync, waits 41 µs longer, p99 250 µs, 1.04 bytes sent a byte",
            "operation  nfsv4 OPEN",
        ] {
            assert!(text_of.contains(part), "{part}: {text_of}");
        }
        assert_eq!(time(f64::INFINITY), "> 17 s");
        assert_eq!(bytes(20_971_520.0, true), "20.0M");
        let hidden = Choice {
            filter: "other".to_owned(),
            ..Choice::default()
        };
        assert_eq!(table(&view, &hidden).lines().count(), 2);
    }
}
