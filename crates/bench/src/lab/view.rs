//! The results as tables, in the form of the published ones: one a block size and access
//! pattern, a column a mix, a read row and a write row; below them what makes the figures
//! worth something. Text, Markdown and HTML all print these rows.

use super::outcome::{Cell, OperationClass, Point, Repetition, Run, TargetFacts};
use super::plan;
use super::spec::{Cache, Durability, Kind, Table, Unit};
use super::stats::Spread;
use super::units::{MIB, latency, thousands};

/// From so many cores busy with neither generator nor server on, a reader is warned.
const OTHERS: f64 = 0.3;

/// Quantity in which the columns of a table differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Shares of reads and writes.
    Mix,
    /// Rates that an open loop offers.
    Rate,
    /// Connections of a client.
    Nconnect,
    /// Number of clients.
    Clients,
    /// Jobs of a client.
    Jobs,
    /// Operations in flight of a job.
    Depth,
}

impl Axis {
    /// Text of the corner cell: what the columns are.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mix => "read/write %",
            Self::Rate => "offered ops/s",
            Self::Nconnect => "nconnect",
            Self::Clients => "clients",
            Self::Jobs => "jobs a client",
            Self::Depth => "depth",
        }
    }

    /// A point's value on this axis, in words.
    pub fn label(self, p: &Point) -> String {
        match self {
            Self::Mix => format!("{}/{}", p.read_percent, 100 - p.read_percent.min(100)),
            Self::Rate => thousands(p.rate.unwrap_or(0.0)),
            Self::Nconnect => p.nconnect.to_string(),
            Self::Clients => p.clients.to_string(),
            Self::Jobs => p.jobs.to_string(),
            Self::Depth => p.depth.to_string(),
        }
    }
}

/// A column of a table.
pub struct Column<'r> {
    /// Heading of the column.
    pub label: String,
    /// The point that the column shows.
    pub point: Point,
    /// Measured values, if any.
    pub cell: Option<&'r Cell>,
}

/// One table of results.
pub struct View<'r> {
    /// Number of the target.
    pub target: usize,
    /// Number of the definition's table.
    pub table: usize,
    /// Heading: protocol, block size, pattern.
    pub heading: String,
    /// The load in one line.
    pub load: String,
    /// Unit of the table.
    pub unit: Unit,
    /// Quantity in which the columns differ.
    pub axis: Axis,
    /// The columns, in the order of the axis.
    pub columns: Vec<Column<'r>>,
}

/// A row of a table, as text.
pub struct Row {
    /// Label of the row.
    pub label: String,
    /// A text a column.
    pub cells: Vec<String>,
    /// A figure that was measured, rather than something about it.
    pub main: bool,
}

/// All tables of a run, in the order of its definition, target by target.
pub fn views(run: &Run) -> Vec<View<'_>> {
    let mut out = Vec::new();
    for (number, table) in run.definition.tables.iter().enumerate() {
        for target in 0..run.targets.len() {
            table_views(run, number, table, target, &mut out);
        }
    }
    out
}

fn table_views<'r>(
    run: &'r Run,
    number: usize,
    table: &Table,
    target: usize,
    out: &mut Vec<View<'r>>,
) {
    let points: Vec<Point> = plan::points(&run.definition, run.targets.len())
        .into_iter()
        .filter(|p| p.table == number && p.target == target)
        .collect();
    let axis = axis_of(&points, table.until_peak);
    // What else varies makes tables of its own.
    let mut groups: Vec<(Point, Vec<Point>)> = Vec::new();
    for p in points {
        let key = without(&p, axis, table.until_peak);
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, members)) => members.push(p),
            None => groups.push((key, vec![p])),
        }
    }
    let several = groups.len() > 1;
    for (_, members) in groups {
        let mut columns: Vec<Column<'r>> = Vec::new();
        for p in &members {
            let label = axis.label(p);
            if columns.iter().any(|c| c.label == label) {
                continue;
            }
            let cell = if table.until_peak {
                plan::peak(run, p)
            } else {
                run.cell(p)
            };
            columns.push(Column {
                label,
                point: *p,
                cell,
            });
        }
        let Some(first) = members.first() else {
            continue;
        };
        let facts = run.targets.get(target);
        let mut heading = String::new();
        if let Some(f) = facts {
            if run.targets.len() > 1 {
                heading.push_str(&f.label);
                heading.push_str(", ");
            }
            heading.push_str(&f.protocol);
            heading.push_str(", ");
        }
        heading.push_str(&table.heading());
        if several {
            heading.push_str(&format!(
                ", {} clients, {} jobs, depth {}, nconnect {}",
                first.clients, first.jobs, first.depth, first.nconnect
            ));
        }
        out.push(View {
            target,
            table: number,
            heading,
            load: load_line(run, first, axis, table),
            unit: table.unit(),
            axis,
            columns,
        });
    }
}

fn axis_of(points: &[Point], until_peak: bool) -> Axis {
    let varies = |f: fn(&Point) -> f64| {
        let first = points.first().map(f);
        points.iter().any(|p| Some(f(p)) != first)
    };
    if varies(|p| f64::from(p.read_percent)) {
        Axis::Mix
    } else if varies(|p| p.rate.unwrap_or(0.0)) {
        Axis::Rate
    } else if varies(|p| f64::from(p.nconnect)) {
        Axis::Nconnect
    } else if varies(|p| f64::from(p.clients)) {
        Axis::Clients
    } else if varies(|p| f64::from(p.jobs)) {
        Axis::Jobs
    } else if varies(|p| f64::from(p.depth)) && !until_peak {
        Axis::Depth
    } else {
        Axis::Mix
    }
}

/// The point with its place on the axis (and on a searched depth) forgotten.
fn without(p: &Point, axis: Axis, until_peak: bool) -> Point {
    let mut p = *p;
    match axis {
        Axis::Mix => p.read_percent = 0,
        Axis::Rate => p.rate = None,
        Axis::Nconnect => p.nconnect = 0,
        Axis::Clients => p.clients = 0,
        Axis::Jobs => p.jobs = 0,
        Axis::Depth => p.depth = 0,
    }
    if until_peak {
        p.depth = 0;
    }
    p
}

fn load_line(run: &Run, p: &Point, axis: Axis, table: &Table) -> String {
    let mut parts = Vec::new();
    let mut part = |a: Axis, text: String| {
        if a != axis {
            parts.push(text);
        }
    };
    let plural = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    part(Axis::Clients, plural(p.clients, "client"));
    part(Axis::Jobs, format!("× {}", plural(p.jobs, "job")));
    if table.until_peak {
        part(Axis::Depth, "× depth at the peak".into());
    } else {
        part(Axis::Depth, format!("× depth {}", p.depth));
    }
    let ours = run.targets.get(p.target).is_some_and(by_own_generator);
    let mut line = {
        if ours {
            part(Axis::Nconnect, format!("· nconnect {}", p.nconnect));
        }
        parts.join(" ")
    };
    if let Some(rate) = p.rate.filter(|_| axis != Axis::Rate) {
        line.push_str(&format!(" · open loop, {} ops/s", thousands(rate)));
    } else if p.rate.is_some() {
        line.push_str(" · open loop");
    }
    let set = run.working_set(p.table);
    let percent = set.0 as f64 * 100.0 / run.memory.0.max(1) as f64;
    let percent = if percent < 1.0 {
        "less than 1".to_owned()
    } else {
        format!("{percent:.0}")
    };
    let addresses = run.targets.get(p.target).map_or(1, |t| t.addresses);
    if addresses > 1 {
        line.push_str(&format!(" · {addresses} addresses"));
    }
    line.push_str(&format!(
        " · working set {set} ({percent} % of this machine's memory) · cache {}",
        cache_words(run, p.target, table)
    ));
    line
}

/// Returns in words what caches held and what made them so.
fn cache_words(run: &Run, target: usize, table: &Table) -> String {
    let cache = run.definition.cache(table);
    match (cache, &run.settings.cold_command) {
        _ if !cached(run, target, table) => "bypassed (direct I/O)".into(),
        (Cache::Cold, Some(command)) => format!("cold (by `{command}`)"),
        (Cache::Cold, None) => "cold (dropped by fio)".into(),
        _ => cache.name().into(),
    }
}

/// Returns true if reads of a target may be served from memory: all but those past the caches of
/// the machine that the disk is in.
fn cached(run: &Run, target: usize, table: &Table) -> bool {
    let Some(facts) = run.targets.get(target) else {
        return true;
    };
    let own_direct = table.fio.get("direct").map(ToString::to_string);
    let direct = match own_direct {
        Some(d) => d != "0",
        None => {
            let durability = run.definition.durability(table);
            !run.settings.buffered
                && (durability == Durability::Stable || table.mixes.iter().all(|m| *m == 100))
        }
    };
    by_own_generator(facts) || facts.local != Some(true) || !direct
}

/// Returns true if a target is an export or a share, not a path.
fn by_own_generator(facts: &TargetFacts) -> bool {
    ["nfs://", "smb://"]
        .iter()
        .any(|kind| facts.given.contains(kind))
}

/// A figure with half its spread in percent, when there are several.
pub fn figure(s: &Spread) -> String {
    let value = if s.median >= 100.0 {
        thousands(s.median.round())
    } else {
        thousands(s.median)
    };
    if s.count > 1 {
        format!("{value} ±{:.0} %", s.relative() * 100.0)
    } else {
        value
    }
}

impl View<'_> {
    fn row(&self, label: impl Into<String>, main: bool, text: impl Fn(&Cell) -> String) -> Row {
        Row {
            label: label.into(),
            main,
            cells: self
                .columns
                .iter()
                .map(|c| match c.cell {
                    Some(cell) if cell.repetitions.is_empty() && cell.failed.is_some() => {
                        "failed".into()
                    }
                    Some(cell) if !cell.repetitions.is_empty() => text(cell),
                    _ => "–".into(),
                })
                .collect(),
        }
    }

    /// Returns true if any column has this side.
    pub fn has_side(&self, which: OperationClass) -> bool {
        self.columns
            .iter()
            .filter_map(|c| c.cell)
            .any(|c| c.repetitions.iter().any(|r| r.side(which).is_some()))
    }

    /// All measurements in it.
    fn repetitions(&self) -> impl Iterator<Item = &Repetition> {
        self.columns
            .iter()
            .filter_map(|c| c.cell)
            .flat_map(|c| &c.repetitions)
    }

    /// Returns the label with the length of the rounds by which the steady state was judged.
    fn steady_label(&self) -> String {
        let mut rounds: Vec<f64> = self
            .repetitions()
            .filter_map(|r| r.steady.map(|s| s.round_s))
            .collect();
        rounds.sort_by(f64::total_cmp);
        match rounds.get(rounds.len() / 2) {
            Some(s) => format!("steady over rounds of {s:.1} s"),
            None => "steady state".into(),
        }
    }

    /// The sides that have a row: those measured, and both reads and writes in a table
    /// over mixes, as in the published ones.
    pub fn sides(&self) -> Vec<OperationClass> {
        let over_mixes = self.axis == Axis::Mix && self.columns.len() > 1;
        OperationClass::ALL
            .into_iter()
            .filter(|w| self.has_side(*w) || (over_mixes && *w != OperationClass::Other))
            .collect()
    }

    /// Returns the rows on which each figure rests: its durability and its limit.
    pub fn rests_on(&self) -> [Row; 2] {
        let last = |f: fn(&Repetition) -> String| {
            move |c: &Cell| {
                let mut all: Vec<String> = c.counted().into_iter().map(f).collect();
                all.dedup();
                all.join("; ")
            }
        };
        [
            self.row(
                "durable at the reply",
                false,
                last(|r| r.tier.name().into()),
            ),
            self.row("bound by", false, last(|r| r.bound.name())),
        ]
    }

    /// Returns the row of the offered rates in bytes.
    fn offered_throughput(&self, run: &Run) -> Row {
        let table = run.definition.tables.get(self.table);
        let block = table.map_or(0, |t| t.block_size.0);
        self.row("Offered MiB/s", false, |c| {
            let rate = c.point.rate.unwrap_or(0.0);
            thousands(rate * block as f64 / MIB)
        })
    }

    /// Returns the rows of sums over all sides, in tables of chip design.
    fn totals(&self, run: &Run) -> Vec<Row> {
        type Of = fn(&Repetition) -> f64;
        let commits: (&str, bool, Of) = ("COMMIT ops/s", true, |r| r.commits_per_s);
        let all: (&str, bool, Of) = ("All ops/s", true, |r| r.total(Unit::Iops) + r.commits_per_s);
        let bytes: (&str, bool, Of) = ("MiB/s", false, |r| r.total(Unit::Throughput));
        let figures = match run.definition.tables.get(self.table).map(|t| t.kind) {
            Some(Kind::Eda) => vec![commits, all, bytes],
            // Its writes are stable: there are no COMMITs.
            Some(Kind::EdaFrontEnd) => vec![all, bytes],
            Some(Kind::EdaBackEnd) => {
                vec![("Both, MiB/s", true, bytes.2), ("All ops/s", false, all.2)]
            }
            Some(Kind::Data) | None => Vec::new(),
        };
        let row = |(name, main, of): (&str, bool, Of)| {
            self.row(name, main, |c| {
                c.spread(|r| Some(of(r)))
                    .map_or_else(|| "–".into(), |s| figure(&s))
            })
        };
        figures.into_iter().map(row).collect()
    }

    /// The rows: figures first, then latencies, then what the figures rest on.
    pub fn rows(&self, run: &Run) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.axis == Axis::Rate && self.unit == Unit::Throughput {
            rows.push(self.offered_throughput(run));
        }
        for which in self.sides() {
            let unit = match which {
                OperationClass::Other => Unit::Iops,
                _ => self.unit,
            };
            let name = match which {
                OperationClass::Other => format!("{} ops/s", which.name()),
                _ => format!("{} {}", which.name(), unit.name()),
            };
            rows.push(self.row(name, true, |c| {
                c.rate(which, unit)
                    .map_or_else(|| "0".into(), |s| figure(&s))
            }));
        }
        rows.extend(self.totals(run));
        for which in self.sides().into_iter().filter(|w| self.has_side(*w)) {
            for (name, q) in [("median", 0.5), ("p99", 0.99)] {
                rows.push(
                    self.row(format!("{} latency, {name}", which.name()), false, |c| {
                        c.quantile(which, q)
                            .map_or_else(|| "–".into(), |s| latency(s.median))
                    }),
                );
            }
        }
        let table = run.definition.tables.get(self.table);
        if table.is_some_and(|t| t.until_peak) {
            rows.push(self.row("depth at the peak", false, |c| c.point.depth.to_string()));
        }
        rows.extend(self.rests_on());
        rows.push(self.row("in flight (Little)", false, in_flight));
        rows.push(self.row(self.steady_label(), false, steady));
        let disturbed = |r: &Repetition| r.other_cores.is_some_and(|c| c > OTHERS);
        if self.repetitions().any(disturbed) {
            rows.push(self.row("cores busy with other things", false, |c| {
                c.spread(|r| r.other_cores)
                    .map_or_else(|| "–".into(), |s| format!("{:.1}", s.median))
            }));
        }
        if self.repetitions().any(|r| r.server_cpu_us_per_op.is_some()) {
            rows.push(self.row("server CPU an operation", false, |c| {
                c.spread(|r| r.server_cpu_us_per_op)
                    .map_or_else(|| "–".into(), |s| format!("{:.1} µs", s.median))
            }));
        }
        rows
    }
}

/// Operations in flight by Little's law, of those that were to be.
fn in_flight(c: &Cell) -> String {
    let s = c.spread(|r| Some(r.little.in_flight));
    let wrong = c.counted().into_iter().any(|r| !r.little.agrees);
    let asked = c.counted().first().and_then(|r| r.little.asked);
    let text = s.map_or_else(|| "–".into(), |s| format!("{:.1}", s.median));
    match asked {
        Some(a) if wrong => format!("{text} of {a:.0} !"),
        Some(a) => format!("{text} of {a:.0}"),
        None => text,
    }
}

/// Tells whether the repetitions were in a steady state.
fn steady(c: &Cell) -> String {
    let reps = c.counted();
    let steady = reps
        .iter()
        .filter(|r| r.steady.is_some_and(|s| s.steady))
        .count();
    if reps.iter().all(|r| r.steady.is_none()) {
        return "not judged".into();
    }
    match (steady, reps.len()) {
        (s, n) if s == n => "yes".into(),
        (0, _) => "no".into(),
        (s, n) => format!("{s} of {n}"),
    }
}

/// Warnings that hold for a whole run, in words.
pub fn warnings(run: &Run) -> Vec<String> {
    use super::outcome::{LimitingFactor, State};
    let mut out = Vec::new();
    match &run.state {
        State::Complete | State::Running => {}
        State::Interrupted => {
            out.push("The run was interrupted: what is missing was not measured.".into());
        }
        State::Failed(why) => out.push(format!("The run ended early: {why}")),
    }
    let all = || {
        run.cells
            .iter()
            .flat_map(|c| c.repetitions.iter().map(move |r| (c, r)))
    };
    let count = |what: &dyn Fn(&Repetition) -> bool| all().filter(|(_, r)| what(r)).count();
    let total = all().count();
    let mut say = |n: usize, what: &str| {
        if n > 0 {
            out.push(format!("{n} of {total} measurements: {what}"));
        }
    };
    say(
        count(&|r| r.bound == LimitingFactor::Generator),
        "the generator's own thread was the bottleneck; they say little about the target (more --threads, or more hosts)",
    );
    say(
        count(&|r| matches!(r.bound, LimitingFactor::Cap(_))),
        "at a limit set on the target; they measure the limit",
    );
    say(
        count(&|r| !r.little.agrees),
        "rate × latency differs from what was to be in flight by more than a tenth (Little's law)",
    );
    say(
        count(&|r| r.steady.is_some_and(|s| !s.steady)),
        "not in a steady state by the SNIA criterion (five rounds within 20 % of their mean, slope within 10 %)",
    );
    say(
        count(&|r| r.steady.is_none()),
        "too short for a verdict on the steady state",
    );
    say(
        count(&|r| r.stolen_cores > 0.05),
        "the hypervisor gave processor time to others",
    );
    say(
        count(&|r| r.other_cores.is_some_and(|c| c > OTHERS)),
        "other programs, or the kernel for nobody in particular, kept more than 0.3 cores busy",
    );
    say(count(&|r| r.cut_short), "cut short");
    if run.definition.time.repetitions < 3 {
        out.push(format!(
            "{} repetition(s): three or more are needed for a spread that means something.",
            run.definition.time.repetitions
        ));
    }
    for (i, table) in run.definition.tables.iter().enumerate() {
        let set = run.working_set(i);
        let local = run
            .targets
            .iter()
            .enumerate()
            .any(|(t, facts)| facts.local == Some(true) && cached(run, t, table));
        if local && set < run.memory && table.mixes.iter().any(|m| *m > 0) {
            out.push(format!(
                "Working sets fit into this machine's memory ({}), where the server is as well: reads measure caches, not disks.",
                run.memory
            ));
            break;
        }
    }
    out
}
