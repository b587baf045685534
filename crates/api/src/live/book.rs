//! Rings of rows: what the server looked at, for the last minutes and the last day.
//!
//! One thread records a row for each pool, the busiest volumes and the busiest clients once a
//! second. Every view that shows a figure reads it here, so none depends on who asked last. A
//! second in which nothing happened takes no place. The memory of all rings is bounded: the series
//! with the least recent traffic is given up first.

use super::heat::{Column, Grid};
use super::row::{COLUMNS, PackedRow, Row};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;
use weir_base::limits::api::{
    LIVE_CLIENTS, LIVE_HEAT_COLUMNS, LIVE_LIMIT_STEPS, LIVE_MINUTES, LIVE_POOLS, LIVE_SECONDS,
    LIVE_VOLUME_CLIENTS, LIVE_VOLUMES,
};

/// Kinds of things that have rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A pool: the sum over its volumes.
    Pool,
    /// A volume or an instance.
    Volume,
    /// A client, by its address.
    Client,
    /// A client on a volume: the volume's name, a space, the client.
    VolumeClient,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Pool, Kind::Volume, Kind::Client, Kind::VolumeClient];

    /// Returns its name in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Pool => "POOL",
            Kind::Volume => "VOLUME",
            Kind::Client => "CLIENT",
            Kind::VolumeClient => "VOLUME_CLIENT",
        }
    }

    /// Returns how many of it have rows at most.
    pub(super) fn most(self) -> usize {
        match self {
            Kind::Pool => LIVE_POOLS,
            Kind::Volume => LIVE_VOLUMES,
            Kind::Client => LIVE_CLIENTS,
            Kind::VolumeClient => LIVE_VOLUME_CLIENTS,
        }
    }

    /// Tells that the sampler gives a row, if only an idle one, for each that exists.
    fn is_listed(self) -> bool {
        matches!(self, Kind::Pool | Kind::Volume)
    }
}

/// Bytes that a series takes besides its rows: its name, and what the rings themselves are.
const SERIES_BYTES: usize = 512;
/// A ring grows by so many rows at a time.
const GROWTH: usize = 60;
/// Seconds of a column of the histograms: of ten minutes, and of a day.
const HEAT_STEPS: [u64; 2] = [
    LIVE_SECONDS / LIVE_HEAT_COLUMNS,
    LIVE_MINUTES * 60 / LIVE_HEAT_COLUMNS,
];
/// Part of a series' weight that is left after a second.
const DECAY: f64 = 0.98;
/// Most seconds that one reading of the counters stands for.
const MOST_SPAN: u64 = 10;

/// Rows of a series that was not idle, oldest first.
#[derive(Default)]
struct Ring(VecDeque<PackedRow>);

impl Ring {
    /// Adds a row, if there is something in it, and forgets those before `from`.
    fn push(&mut self, at: u64, row: &Row, from: u64) {
        while self.0.front().is_some_and(|old| u64::from(old.at) < from) {
            self.0.pop_front();
        }
        if row.is_idle() {
            if self.0.is_empty() {
                self.0 = VecDeque::new();
            }
            return;
        }
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(GROWTH);
        }
        self.0.push_back(PackedRow::new(at, row));
    }

    fn find_row(&self, at: u64) -> Option<Row> {
        let place = self.0.binary_search_by_key(&at, |row| row.at.into());
        self.0.get(place.ok()?).map(PackedRow::row)
    }
}

struct Series {
    number: u32,
    now: Row,
    seconds: Ring,
    minutes: Ring,
    /// Histograms of ten minutes and of a day; pools and volumes alone have them.
    heat: Option<Box<[Grid; 2]>>,
    /// Sum of the rows of the minute that is under way.
    minute: Row,
    /// Weight of recent activity, for choosing which series to give up.
    weight: f64,
    /// Since when a limit has held something back in each second.
    bound_since: Option<u64>,
}

impl Series {
    fn record(&mut self, at: u64, row: &Row) {
        self.now = *row;
        self.weight = self.weight * DECAY + row.weight();
        self.bound_since = match (row.bound > 0.0, self.bound_since) {
            (true, since) => since.or(Some(at)),
            (false, _) => None,
        };
        self.seconds
            .push(at, row, (at + 1).saturating_sub(LIVE_SECONDS));
        for grid in self.heat.iter_mut().flat_map(|heat| heat.iter_mut()) {
            grid.record(at, &row.latencies, &row.spent);
        }
        self.minute.add(row);
        if (at + 1).is_multiple_of(60) {
            let whole = std::mem::take(&mut self.minute).mean(60.0);
            let from = (at + 60).saturating_sub(LIVE_MINUTES * 60);
            self.minutes.push(at, &whole, from);
        }
    }

    fn bytes(&self) -> usize {
        let rows = self.seconds.0.capacity() + self.minutes.0.capacity();
        let grids = self.heat.iter().flat_map(|heat| heat.iter());
        SERIES_BYTES + rows * size_of::<PackedRow>() + grids.map(Grid::bytes).sum::<usize>()
    }

    fn is_empty(&self) -> bool {
        let cold = { &self.heat }
            .as_ref()
            .is_none_or(|heat| heat.iter().all(Grid::is_empty));
        self.seconds.0.is_empty() && self.minutes.0.is_empty() && self.minute.is_idle() && cold
    }
}

type Key = (Kind, Arc<str>);

/// A change of the limit on bytes that is in force for a pool or volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Seconds since 1970 of the last reading with the old limit and of the first with the new one.
    pub between: (u64, u64),
    /// Bytes a second before it; 0 for none.
    pub from: f64,
    /// Bytes a second after it; 0 for none.
    pub to: f64,
}

/// Limits in force, and their changes of the last day. Idle pools and volumes, which have no rows,
/// are here, too.
#[derive(Default)]
struct Limits {
    now: BTreeMap<Key, f64>,
    /// The oldest first.
    steps: VecDeque<(Key, Step)>,
}

impl Limits {
    /// Notes the limits of a reading, the first after the one at `before`.
    fn note(&mut self, before: u64, at: u64, rows: &BTreeMap<Key, Row>) {
        let listed = || rows.iter().filter(|(key, _)| key.0.is_listed());
        for (key, row) in listed() {
            let Some(from) = self.now.get(key).copied() else {
                self.now.insert(key.clone(), row.limit);
                continue;
            };
            if from.total_cmp(&row.limit).is_ne() {
                self.now.insert(key.clone(), row.limit);
                let step = Step {
                    between: (before, at),
                    from,
                    to: row.limit,
                };
                self.steps.push_back((key.clone(), step));
            }
        }
        if self.now.len() > listed().count() {
            self.now.retain(|key, _| rows.contains_key(key));
        }
        let from = at.saturating_sub(LIVE_MINUTES * 60);
        while self.steps.len() > LIVE_LIMIT_STEPS || { self.steps.front() }
            .is_some_and(|(_, step)| step.between.1 < from)
        {
            self.steps.pop_front();
        }
    }
}

struct Pages {
    /// Seconds since 1970 of the first and of the newest rows.
    first: u64,
    latest: u64,
    series: BTreeMap<Key, Series>,
    limits: Limits,
    numbers: u32,
    /// Time at which a series of each kind was last given up, or not begun.
    incomplete: [u64; 4],
}

/// A row of a second: the number of its series, what it is of, and its figures.
#[derive(Clone, Debug)]
pub struct SeriesRow {
    /// Stays the same for as long as the series does.
    pub number: u32,
    /// The kind of thing.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// Its figures.
    pub row: Row,
}

/// Rows of a series over a window: `None` where the server did not look.
#[derive(Debug, PartialEq)]
pub struct History {
    /// Seconds from row to row.
    pub step: u64,
    /// Seconds since 1970 of the last row.
    pub end: u64,
    /// The rows, oldest first.
    pub rows: Vec<Option<Row>>,
}

/// Histograms of a series over a window: `None` where the server did not look.
#[derive(Debug, PartialEq)]
pub struct Heat {
    /// Seconds of a column.
    pub step: u64,
    /// Seconds since 1970 of the last second of the last column.
    pub end: u64,
    /// The columns, oldest first.
    pub columns: Vec<Option<Column>>,
}

/// A series that a limit holds.
#[derive(Clone, Debug)]
pub struct LimitedSeries {
    /// The volume.
    pub name: Arc<str>,
    /// Seconds since 1970 from which on it has been held in each second.
    pub since: u64,
    /// Its figures of the last second.
    pub row: Row,
}

/// All that was recorded.
pub struct Book {
    pages: Mutex<Pages>,
    news: watch::Sender<Option<u64>>,
    bytes: usize,
}

impl Book {
    /// Returns an empty book of at most so many bytes, which begins at `now` (seconds since 1970).
    pub fn new(bytes: usize, now: u64) -> Book {
        Book {
            pages: Mutex::new(Pages {
                first: now + 1,
                latest: now,
                series: BTreeMap::new(),
                limits: Limits::default(),
                numbers: 0,
                incomplete: [0; 4],
            }),
            news: watch::Sender::new(Some(now)),
            bytes,
        }
    }

    /// Records what was so between the last reading and `at`, in seconds since 1970. Pools and
    /// volumes without a row are gone; clients without one were idle.
    pub fn record(&self, at: u64, rows: Vec<(Kind, Arc<str>, Row)>) {
        let mut pages = self.pages.lock();
        let pages = &mut *pages;
        if at <= pages.latest {
            return;
        }
        let mut rows: BTreeMap<Key, Row> = rows
            .into_iter()
            .map(|(kind, name, row)| ((kind, name), row))
            .collect();
        pages.limits.note(pages.latest, at, &rows);
        pages
            .series
            .retain(|key, _| !key.0.is_listed() || rows.contains_key(key));
        // A reading that came late stands for the seconds before it, too.
        let from = (pages.latest + 1).max(at.saturating_sub(MOST_SPAN - 1));
        for (key, series) in &mut pages.series {
            let row = rows.remove(key).unwrap_or_default();
            (from..=at).for_each(|at| series.record(at, &row));
        }
        pages.latest = at;
        let pools_count = |key: &Key, row: &Row| key.0 == Kind::Pool || !row.is_idle();
        let mut new: Vec<(Key, Row)> = rows
            .into_iter()
            .filter(|(key, row)| pools_count(key, row))
            .collect();
        new.sort_by(|(_, a), (_, b)| b.weight().total_cmp(&a.weight()));
        for (key, row) in new {
            pages.begin(key, from, &row);
        }
        pages
            .series
            .retain(|key, series| key.0 == Kind::Pool || !series.is_empty());
        pages.fit(self.bytes);
        // A closed book stays closed.
        self.news.send_if_modified(|now| {
            *now = now.map(|_| at);
            now.is_some()
        });
    }

    /// Ends all that follows the book: the server stops.
    pub fn close(&self) {
        self.news.send_replace(None);
    }

    /// Returns what tells of new rows: the second of the newest, `None` once the book is closed.
    pub fn follow(&self) -> watch::Receiver<Option<u64>> {
        self.news.subscribe()
    }

    /// Returns the seconds since 1970 of the newest rows.
    pub fn latest(&self) -> u64 {
        self.pages.lock().latest
    }

    /// Returns the newest row of a series.
    pub fn newest(&self, kind: Kind, name: &str) -> Option<Row> {
        let pages = self.pages.lock();
        pages.series.get(&(kind, Arc::from(name))).map(|s| s.now)
    }

    /// Returns all rows of a second, with what each weighs; `None` if the rings no longer have that
    /// second.
    pub(super) fn rows(&self, at: u64) -> Option<Vec<(f64, SeriesRow)>> {
        let pages = self.pages.lock();
        let newest = pages.latest == at;
        if at > pages.latest || at < pages.first || pages.latest - at >= LIVE_SECONDS {
            return None;
        }
        let all = pages.series.iter().map(|((kind, name), series)| {
            let row = match newest {
                true => series.now,
                false => series.seconds.find_row(at).unwrap_or_default(),
            };
            let shown = SeriesRow {
                number: series.number,
                kind: *kind,
                name: Arc::clone(name),
                row,
            };
            (series.weight, shown)
        });
        Some(all.collect())
    }

    /// Returns the rows of a series over the last `seconds`: by the minute if that is more than
    /// rings by the second hold.
    pub fn history(&self, kind: Kind, name: &str, seconds: u64) -> History {
        let pages = self.pages.lock();
        let series = pages.series.get(&(kind, Arc::from(name)));
        let incomplete = pages.incomplete.get(kind as usize).copied().unwrap_or(0);
        let step = if seconds <= LIVE_SECONDS { 1 } else { 60 };
        let end = match step {
            1 => pages.latest,
            // The end of the last whole minute.
            _ => (pages.latest + 1) / 60 * 60 - 1,
        };
        let count = seconds.div_ceil(step);
        let row = |ago: u64| {
            let at = end
                .checked_sub(ago * step)
                .filter(|at| *at >= pages.first)?;
            let ring = series.map(|s| if step == 1 { &s.seconds } else { &s.minutes });
            match ring.and_then(|ring| ring.find_row(at)) {
                Some(row) => Some(row),
                // It may have been given up since.
                None => (at > incomplete).then(Row::default),
            }
        };
        History {
            step,
            end,
            rows: (0..count).rev().map(row).collect(),
        }
    }

    /// Returns the histograms of a pool or volume over the last `seconds`: the finer ones if they
    /// reach as far back.
    pub fn heat(&self, kind: Kind, name: &str, seconds: u64) -> Heat {
        let pages = self.pages.lock();
        let series = pages.series.get(&(kind, Arc::from(name)));
        let incomplete = pages.incomplete.get(kind as usize).copied().unwrap_or(0);
        let [fine, coarse] = HEAT_STEPS;
        let (which, step) = match seconds <= LIVE_SECONDS {
            true => (0, fine),
            false => (1, coarse),
        };
        // The end of the last whole column.
        let end = ((pages.latest + 1) / step * step).saturating_sub(1);
        let column = |ago: u64| {
            let at = end.checked_sub(ago * step);
            let at = at.filter(|at| *at >= pages.first)?;
            let grid = series.and_then(|s| s.heat.as_ref()?.get(which));
            match grid.and_then(|grid| grid.find_column(at)) {
                Some(column) => Some(column),
                // It may have been given up since.
                None => (at > incomplete).then(Column::default),
            }
        };
        Heat {
            step,
            end,
            columns: (0..seconds.div_ceil(step)).rev().map(column).collect(),
        }
    }

    /// Returns the changes of a pool's or volume's limit in the last `seconds`, the oldest first.
    pub fn steps(&self, kind: Kind, name: &str, seconds: u64) -> Vec<Step> {
        let pages = self.pages.lock();
        let from = pages.latest.saturating_sub(seconds);
        let steps = pages.limits.steps.iter();
        let of =
            steps.filter(|(key, step)| key.0 == kind && *key.1 == *name && step.between.1 >= from);
        of.map(|(_, step)| *step).collect()
    }

    /// Returns the volumes that limits hold, the longest first.
    pub fn held(&self) -> Vec<LimitedSeries> {
        let pages = self.pages.lock();
        let volumes = pages.series.iter().filter(|((k, _), _)| *k == Kind::Volume);
        let mut held: Vec<LimitedSeries> = volumes
            .filter_map(|((_, name), series)| {
                Some(LimitedSeries {
                    name: Arc::clone(name),
                    since: series.bound_since?,
                    row: series.now,
                })
            })
            .collect();
        held.sort_by(|a, b| (a.since, &a.name).cmp(&(b.since, &b.name)));
        held
    }
}

impl Pages {
    /// Begins a series, if need be instead of the one with the least traffic of its kind.
    fn begin(&mut self, key: Key, at: u64, row: &Row) {
        let kind = key.0;
        let of_kind = self.series.iter().filter(|((k, _), _)| *k == kind);
        if of_kind.clone().count() >= kind.most() {
            let least = of_kind.min_by(|(_, a), (_, b)| a.weight.total_cmp(&b.weight));
            match least.filter(|(_, series)| series.weight < row.weight()) {
                Some((given_up, _)) => {
                    let given_up = given_up.clone();
                    self.series.remove(&given_up);
                    self.note(kind);
                }
                None => return self.note(kind),
            }
        }
        self.numbers = self.numbers.wrapping_add(1);
        let mut series = Series {
            number: self.numbers,
            now: Row::default(),
            seconds: Ring::default(),
            minutes: Ring::default(),
            heat: kind
                .is_listed()
                .then(|| Box::new(HEAT_STEPS.map(Grid::new))),
            minute: Row::default(),
            weight: 0.0,
            bound_since: None,
        };
        (at..=self.latest).for_each(|at| series.record(at, row));
        self.series.insert(key, series);
    }

    fn note(&mut self, kind: Kind) {
        if let Some(incomplete) = self.incomplete.get_mut(kind as usize) {
            *incomplete = self.latest;
        }
    }

    /// Gives up those with the least traffic of late until all fit.
    fn fit(&mut self, bytes: usize) {
        let mut taken: usize = self.series.values().map(Series::bytes).sum();
        if taken <= bytes {
            return;
        }
        let mut order: Vec<(f64, Key)> = self
            .series
            .iter()
            .map(|(key, series)| (series.weight, key.clone()))
            .collect();
        // Clients of single volumes first, pools last.
        order.sort_by(|(a, (of, _)), (b, (other, _))| other.cmp(of).then(a.total_cmp(b)));
        for (_, key) in order {
            if taken <= bytes {
                break;
            }
            if let Some(series) = self.series.remove(&key) {
                taken -= series.bytes();
                self.note(key.0);
            }
        }
    }
}

/// Rows that a reader wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSelector {
    /// Busiest series of a kind, so many: those with the most recent traffic.
    Busiest(Kind, usize),
    /// Clients of a volume.
    ClientsOf(String),
    /// A pool, a volume or a client, by its name.
    Named(String),
}

/// Returns those of `rows` that are wanted, by their numbers' order.
pub(super) fn select(rows: Vec<(f64, SeriesRow)>, wanted: &[RowSelector]) -> Vec<SeriesRow> {
    let mut chosen = BTreeSet::new();
    for term in wanted {
        match term {
            RowSelector::Busiest(kind, most) => {
                let of_kind = rows.iter().filter(|(_, shown)| shown.kind == *kind);
                let mut of_kind: Vec<(f64, u32)> =
                    of_kind.map(|(weight, s)| (*weight, s.number)).collect();
                of_kind.sort_by(|(a, m), (b, n)| b.total_cmp(a).then(m.cmp(n)));
                chosen.extend(of_kind.into_iter().take(*most).map(|(_, number)| number));
            }
            RowSelector::ClientsOf(volume) => {
                let of_volume = rows.iter().filter(|(_, shown)| {
                    let name = (shown.kind == Kind::VolumeClient).then_some(&*shown.name);
                    name.and_then(|name| name.rsplit_once(' '))
                        .is_some_and(|(of, _)| of == volume)
                });
                chosen.extend(of_volume.map(|(_, shown)| shown.number));
            }
            RowSelector::Named(name) => {
                let named = rows.iter().filter(|(_, shown)| *shown.name == **name);
                chosen.extend(named.map(|(_, shown)| shown.number));
            }
        }
    }
    let mut shown: Vec<SeriesRow> = rows
        .into_iter()
        .filter(|(_, shown)| chosen.contains(&shown.number))
        .map(|(_, shown)| shown)
        .collect();
    shown.sort_unstable_by_key(|shown| shown.number);
    shown
}

const _: () = assert!(COLUMNS.len() == 12);

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_019;

    fn row(ops: f64) -> Row {
        Row {
            reads: ops,
            ..Row::default()
        }
    }

    fn volume(name: &str, row: Row) -> (Kind, Arc<str>, Row) {
        (Kind::Volume, name.into(), row)
    }

    #[test]
    fn the_last_ten_minutes_and_the_last_day_are_kept() {
        let book = Book::new(1 << 20, START);
        let end = START + 2 * 86_400;
        for at in START + 1..=end {
            book.record(at, vec![volume("v", row((at % 1000) as f64))]);
        }
        let fine = book.history(Kind::Volume, "v", 600);
        assert_eq!((fine.step, fine.end, fine.rows.len()), (1, end, 600));
        assert_eq!(fine.rows[599], Some(row((end % 1000) as f64)));
        assert_eq!(fine.rows[0], Some(row(((end - 599) % 1000) as f64)));
        let coarse = book.history(Kind::Volume, "v", 86_400);
        assert_eq!((coarse.step, coarse.rows.len()), (60, 1440));
        assert_eq!((coarse.end + 1) % 60, 0);
        let mean: f64 = (coarse.end - 59..=coarse.end)
            .map(|at| (at % 1000) as f64)
            .sum::<f64>()
            / 60.0;
        let last = coarse.rows[1439].unwrap().reads;
        assert!((last - mean).abs() < 1.0, "{last} {mean}");
        assert!(coarse.rows.iter().all(Option::is_some));
        let bytes: usize = book.pages.lock().series.values().map(Series::bytes).sum();
        assert!(bytes < 70_000, "{bytes}");
        // A series that is not there was idle; before the start nothing was recorded.
        let other = book.history(Kind::Volume, "w", 10);
        assert!(other.rows.iter().all(|row| *row == Some(Row::default())));
        let fresh = Book::new(1 << 20, START);
        fresh.record(START + 1, vec![]);
        let rows = fresh.history(Kind::Pool, "p", 3).rows;
        assert_eq!(rows, [None, None, Some(Row::default())]);
    }

    #[test]
    fn the_busiest_displace_those_that_rest_and_all_fit() {
        let book = Book::new(1 << 24, START);
        let many = LIVE_VOLUMES as u32;
        let mut at = START;
        let mut record = |rows: Vec<(Kind, Arc<str>, Row)>| {
            at += 1;
            book.record(at, rows);
        };
        let all = |extra: Option<(&str, f64)>| {
            let old = (0..many).map(|n| volume(&format!("v{n}"), row(f64::from(n + 1))));
            old.chain(extra.map(|(name, ops)| volume(name, row(ops))))
                .collect::<Vec<_>>()
        };
        record(all(None));
        record(all(Some(("lazy", 0.5))));
        assert_eq!(book.newest(Kind::Volume, "lazy"), None);
        record(all(Some(("new", 5000.0))));
        assert_eq!(book.newest(Kind::Volume, "new"), Some(row(5000.0)));
        assert_eq!(book.newest(Kind::Volume, "v0"), None);
        // It was given up, so what it did is not known.
        assert!(book.history(Kind::Volume, "v0", 2).rows.contains(&None));
        // A volume that is deleted is gone; a small book has few rows.
        record(vec![volume("v7", row(1.0))]);
        assert_eq!(book.pages.lock().series.len(), 1);
        let small = Book::new(16 << 10, START);
        for second in 1..400 {
            small.record(START + second, all(None));
            let pages = small.pages.lock();
            let bytes: usize = pages.series.values().map(Series::bytes).sum();
            assert!(bytes <= 16 << 10, "{bytes}");
            assert!(!pages.series.is_empty());
        }
    }

    #[test]
    fn histograms_have_columns_of_their_own_width() {
        let book = Book::new(1 << 20, START);
        let mut one = row(1.0);
        one.latencies[4] = 1;
        let rests = row(0.0);
        // Columns end with seconds that are one less than a multiple of their step.
        let end = START + 1 + 86_400;
        for at in START + 1..=end {
            let now = if at % 10 < 5 { one } else { rests };
            book.record(at, vec![volume("v", now), volume("idle", rests)]);
        }
        let fine = book.heat(Kind::Volume, "v", 600);
        assert_eq!((fine.step, fine.columns.len()), (5, 120));
        assert_eq!((fine.end + 1) % 5, 0);
        assert!(fine.end <= end && end - fine.end < 5);
        let [.., before, last] = &fine.columns[..] else {
            panic!("no columns")
        };
        let mut numbers = [before, last].map(|column| column.unwrap().numbers[4]);
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 5]);
        let coarse = book.heat(Kind::Volume, "v", 86_400);
        assert_eq!((coarse.step, coarse.columns.len()), (720, 120));
        let middle = coarse.columns[60].unwrap().numbers[4];
        assert!((342..=378).contains(&middle), "{middle}");
        // An idle volume has empty columns; before the start there is none.
        let idle = book.heat(Kind::Volume, "idle", 10);
        assert_eq!(idle.columns, [Some(Column::default()); 2]);
        let fresh = Book::new(1 << 20, START);
        fresh.record(START + 1, vec![]);
        assert_eq!(fresh.heat(Kind::Volume, "v", 600).columns[0], None);
    }

    #[test]
    fn a_reading_that_comes_late_stands_for_the_seconds_before_it() {
        let book = Book::new(1 << 20, START);
        book.record(START + 1, vec![volume("v", row(1.0))]);
        book.record(START + 4, vec![volume("v", row(2.0))]);
        book.record(START + 3, vec![volume("v", row(9.0))]);
        let rows = book.history(Kind::Volume, "v", 4).rows;
        let ops: Vec<f64> = rows.iter().map(|row| row.unwrap().reads).collect();
        assert_eq!(ops, [1.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn what_a_limit_holds_is_known_with_its_beginning() {
        let book = Book::new(1 << 20, START);
        let held = Row {
            bound: 1.0,
            bound_by: 7,
            ..row(1.0)
        };
        book.record(START + 1, vec![volume("v", row(1.0)), volume("w", held)]);
        book.record(START + 2, vec![volume("v", held), volume("w", held)]);
        let now = book.held();
        assert_eq!((&*now[0].name, now[0].since), ("w", START + 1));
        assert_eq!((&*now[1].name, now[1].since), ("v", START + 2));
        book.record(START + 3, vec![volume("v", row(1.0)), volume("w", held)]);
        assert_eq!(book.held().len(), 1);
    }

    #[test]
    fn limits_change_on_idle_volumes_too() {
        let book = Book::new(1 << 20, START);
        let limited = |limit: f64, ops: f64| Row { limit, ..row(ops) };
        book.record(
            START + 1,
            vec![
                volume("v", limited(8.0, 0.0)),
                volume("w", limited(1.0, 2.0)),
            ],
        );
        book.record(
            START + 2,
            vec![
                volume("v", limited(8.0, 0.0)),
                volume("w", limited(1.0, 0.0)),
            ],
        );
        assert_eq!(book.steps(Kind::Volume, "v", 60), []);
        book.record(
            START + 5,
            vec![
                volume("v", limited(16.0, 0.0)),
                volume("w", limited(1.0, 0.0)),
            ],
        );
        let step = Step {
            between: (START + 2, START + 5),
            from: 8.0,
            to: 16.0,
        };
        assert_eq!(book.steps(Kind::Volume, "v", 60), [step]);
        assert_eq!(book.steps(Kind::Volume, "w", 60), []);
        assert_eq!(book.steps(Kind::Pool, "v", 60), []);
        // A volume that is made anew under the name begins anew.
        book.record(START + 6, vec![]);
        book.record(START + 7, vec![volume("v", limited(4.0, 0.0))]);
        assert_eq!(book.steps(Kind::Volume, "v", 60), [step]);
        book.record(START + 90, vec![volume("v", limited(4.0, 0.0))]);
        assert_eq!(book.steps(Kind::Volume, "v", 60), []);
        assert_eq!(book.steps(Kind::Volume, "v", 86_400), [step]);
        // They are bounded, and of the last day.
        for at in 0..10_000u32 {
            let now = limited(f64::from(at), 0.0);
            book.record(START + 100 + u64::from(at), vec![volume("v", now)]);
        }
        assert_eq!(
            book.steps(Kind::Volume, "v", 86_400).len(),
            LIVE_LIMIT_STEPS
        );
        book.record(START + 200_000, vec![]);
        assert!(book.pages.lock().limits.steps.is_empty());
        assert!(book.pages.lock().limits.now.is_empty());
    }

    #[test]
    fn readers_choose_rows() {
        let book = Book::new(1 << 20, START);
        let client = |name: &str, ops: f64| (Kind::VolumeClient, Arc::from(name), row(ops));
        book.record(
            START + 1,
            vec![
                (Kind::Pool, "p".into(), Row::default()),
                volume("a", row(1.0)),
                volume("b", row(3.0)),
                volume("c", row(2.0)),
                client("a 10.0.0.1", 1.0),
                client("b 10.0.0.1", 1.0),
            ],
        );
        let names = |wanted: &[RowSelector]| {
            let rows = select(book.rows(START + 1).unwrap(), wanted);
            let mut names: Vec<String> = rows.iter().map(|s| s.name.to_string()).collect();
            names.sort();
            names.join(",")
        };
        let busiest = |most| RowSelector::Busiest(Kind::Volume, most);
        assert_eq!(names(&[busiest(2)]), "b,c");
        assert_eq!(names(&[RowSelector::Busiest(Kind::Pool, 9)]), "p");
        assert_eq!(
            names(&[RowSelector::Named("a".to_owned()), busiest(1)]),
            "a,b"
        );
        assert_eq!(
            names(&[RowSelector::ClientsOf("a".to_owned())]),
            "a 10.0.0.1"
        );
        assert_eq!(names(&[RowSelector::Named("x".to_owned())]), "");
        assert!(book.rows(START).is_none() && book.rows(START + 2).is_none());
    }
}
