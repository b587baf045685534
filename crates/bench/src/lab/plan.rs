//! From a definition to the points to be measured, and what they will take.
//!
//! Repetitions are the outermost loop: each round goes through the whole matrix before
//! the next begins, and in it the targets alternate at every point. So whatever the
//! machine does besides falls on all targets alike, the spread of the repetitions covers
//! minutes instead of seconds, and a run that is ended early has every point once rather
//! than a few points often.

use super::outcome::{Cell, OperationClass, Point, Run};
use super::spec::{Definition, Kind, Table};
use super::units::Size;

/// Gain of a step of the depth below which it counts as none, and such steps in a row
/// after which the search for the peak ends.
const PEAK_GAIN: f64 = 1.02;
const PEAK_PATIENCE: usize = 2;

/// All points of a round, in the order of measuring.
pub fn points(definition: &Definition, targets: usize) -> Vec<Point> {
    let mut out = Vec::new();
    for (number, table) in definition.tables.iter().enumerate() {
        for template in of_table(definition, number, table) {
            for target in 0..targets {
                out.push(Point { target, ..template });
            }
        }
    }
    out
}

fn of_table(definition: &Definition, number: usize, table: &Table) -> Vec<Point> {
    let l = &definition.load;
    let rates: Vec<Option<f64>> = match &table.rate {
        Some(rates) => rates.values().into_iter().map(Some).collect(),
        None => vec![None],
    };
    let mut out = Vec::new();
    for clients in definition.axis(table.clients.as_ref(), l.clients) {
        for jobs in definition.axis(table.jobs.as_ref(), l.jobs) {
            for nconnect in definition.axis(table.nconnect.as_ref(), l.nconnect) {
                for read_percent in &table.mixes {
                    for rate in &rates {
                        for depth in definition.axis(table.depth.as_ref(), l.depth) {
                            out.push(Point {
                                target: 0,
                                table: number,
                                read_percent: *read_percent,
                                clients,
                                jobs,
                                depth,
                                nconnect,
                                rate: *rate,
                            });
                        }
                    }
                }
            }
        }
    }
    out
}

/// Seconds that the whole run takes, without making working sets.
pub fn seconds(definition: &Definition, targets: usize) -> f64 {
    let t = &definition.time;
    // A quarter second to connect, to end and to write down.
    points(definition, targets).len() as f64
        * f64::from(t.repetitions)
        * (t.warmup + t.measure + 0.25)
}

/// A working set: points with the same one use the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    /// Number of the target.
    pub target: usize,
    /// Files; one a job.
    pub files: u64,
    /// Bytes of each file.
    pub file_size: u64,
    /// Directories that the files are spread over.
    pub dirs: u32,
    /// Kind of the load that it is for.
    pub kind: Kind,
}

/// Bytes of a file of the set of the blend of both phases: four of its blocks, as sources and
/// netlists are.
const SMALL_FILE: u64 = 256 << 10;
/// Greatest number of files of that set; more only take longer to make.
const MANY: u64 = 20_000;
/// Directories of that set.
const BLEND_DIRS: u32 = 32;
/// Greatest number of files of the front end's set: their handles take 150 MB.
const FRONT_END_FILES: u64 = 1 << 20;
/// Files of a directory of the front end's set.
const FRONT_END_DIRECTORY: u64 = 64;
/// Greatest number of directories of the back end's set.
const BACK_END_DIRS: u64 = 1024;

impl Set {
    /// The set that a point of this definition uses.
    pub fn from_point(definition: &Definition, point: &Point) -> Option<Self> {
        let table = definition.tables.get(point.table)?;
        let total = table.working_set.unwrap_or(definition.load.working_set).0;
        let jobs = u64::from(point.clients) * u64::from(point.jobs);
        let block = table.block_size.0;
        match table.kind {
            Kind::Eda => {
                return Some(Self {
                    target: point.target,
                    files: (total / SMALL_FILE).clamp(1, MANY).max(jobs),
                    file_size: SMALL_FILE.max(block),
                    dirs: BLEND_DIRS,
                    kind: table.kind,
                });
            }
            Kind::EdaFrontEnd => {
                let files = (total / block).clamp(1, FRONT_END_FILES).max(jobs);
                return Some(Self {
                    target: point.target,
                    files,
                    file_size: block,
                    dirs: files.div_ceil(FRONT_END_DIRECTORY) as u32,
                    kind: table.kind,
                });
            }
            Kind::Data | Kind::EdaBackEnd => {}
        }
        // Whole MiB where there is one, so that tables of all block sizes share the set.
        let each = total / jobs;
        let step = if each >= 1 << 20 {
            1 << 20
        } else {
            table.block_size.0
        };
        Some(Self {
            target: point.target,
            files: jobs,
            file_size: (each / step * step).max(table.block_size.0),
            dirs: match table.kind {
                Kind::EdaBackEnd => jobs.min(BACK_END_DIRS) as u32,
                _ => 1,
            },
            kind: table.kind,
        })
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.saturating_mul(self.file_size)
    }

    /// A name for its folder.
    pub fn name(&self) -> String {
        format!(
            "{}{}x{}",
            match self.kind {
                Kind::Data => "s",
                Kind::Eda => "m",
                Kind::EdaFrontEnd => "f",
                Kind::EdaBackEnd => "b",
            },
            self.files,
            self.file_size
        )
    }
}

/// The greatest sum of working sets that one target has to hold.
pub fn footprint(definition: &Definition) -> Size {
    let mut sets: Vec<Set> = points(definition, 1)
        .iter()
        .filter_map(|p| Set::from_point(definition, p))
        .collect();
    sets.sort_unstable();
    sets.dedup();
    Size(sets.iter().map(Set::bytes).fold(0, u64::saturating_add))
}

/// Returns true if a point of a search for the peak is beyond it: the depths before it, in this
/// repetition, no longer raised the result.
pub fn beyond_peak(run: &Run, point: &Point, repetition: usize) -> bool {
    let Some(table) = run.definition.tables.get(point.table) else {
        return false;
    };
    if !table.until_peak {
        return false;
    }
    let mut results = Vec::new();
    for depth in run
        .definition
        .axis(table.depth.as_ref(), run.definition.load.depth)
    {
        if depth >= point.depth {
            break;
        }
        let Some(r) = run
            .cell(&Point { depth, ..*point })
            .and_then(|c| c.repetitions.get(repetition))
        else {
            break;
        };
        results.push(r.total(table.unit()));
    }
    let mut best = 0.0;
    let mut without_gain = 0;
    for r in results {
        if r > best * PEAK_GAIN {
            without_gain = 0;
        } else {
            without_gain += 1;
        }
        best = f64::max(best, r);
    }
    without_gain >= PEAK_PATIENCE
}

/// The cell at the peak among those that differ from `point` in depth alone.
pub fn peak<'r>(run: &'r Run, point: &Point) -> Option<&'r Cell> {
    let unit = run.definition.tables.get(point.table)?.unit();
    let total = |c: &Cell| c.spread(|r| Some(r.total(unit))).map_or(0.0, |s| s.median);
    run.cells
        .iter()
        .filter(|c| {
            Point {
                depth: point.depth,
                ..c.point
            } == *point
                && OperationClass::ALL
                    .into_iter()
                    .any(|w| c.rate(w, unit).is_some())
        })
        .max_by(|a, b| total(a).total_cmp(&total(b)))
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;

    #[test]
    fn targets_alternate_and_every_point_comes_once() {
        let d = presets::load("netapp-extreme").unwrap();
        let p = points(&d, 2);
        assert_eq!(p.len(), 4 * 5 * 2);
        assert_eq!((p[0].target, p[1].target), (0, 1));
        assert_eq!(p[0].read_percent, p[1].read_percent);
        assert_eq!(p[2].read_percent, 75);
        for (i, a) in p.iter().enumerate() {
            assert!(!p[..i].contains(a));
        }
        let d = presets::load("nconnect-sweep").unwrap();
        assert_eq!(points(&d, 1).len(), 5 * 9);
    }

    #[test]
    fn tables_share_a_set_where_they_can() {
        let mut d = presets::load("netapp-extreme").unwrap();
        d.load.working_set = Size(1 << 30);
        let sets: Vec<_> = points(&d, 1)
            .iter()
            .map(|p| Set::from_point(&d, p).unwrap())
            .collect();
        assert!(sets.iter().all(|s| *s == sets[0]), "{sets:?}");
        assert_eq!((sets[0].files, sets[0].file_size), (48, 21 << 20));
        assert_eq!(footprint(&d), Size(48 * (21 << 20)));
        // Less than a MiB a file: whole blocks, and every file has one.
        d.load.working_set = Size(48 * 300_000);
        let p = points(&d, 1);
        for p in p {
            let s = Set::from_point(&d, &p).unwrap();
            assert_eq!(s.file_size % d.tables[p.table].block_size.0, 0);
            assert!(s.file_size > 0);
        }
        let d = presets::load("eda-like").unwrap();
        let s = Set::from_point(&d, &points(&d, 1)[0]).unwrap();
        assert_eq!((s.files, s.file_size), (20_000, 256 << 10));
    }

    #[test]
    fn the_phases_of_chip_design_have_sets_of_their_own() {
        let mut d = presets::load("eda").unwrap();
        let sets = |d: &Definition| {
            let mut sets: Vec<Set> = points(d, 1)
                .iter()
                .map(|p| Set::from_point(d, p).unwrap())
                .collect();
            sets.dedup();
            sets
        };
        let whole = sets(&d);
        let kinds: Vec<Kind> = whole.iter().map(|s| s.kind).collect();
        assert_eq!(kinds, [Kind::EdaFrontEnd, Kind::EdaBackEnd, Kind::Eda]);
        let names: std::collections::BTreeSet<String> = whole.iter().map(Set::name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        // Many directories of small files; large files, each in a directory of its own.
        assert_eq!(
            (whole[0].files, whole[0].file_size, whole[0].dirs),
            (65_536, 16 << 10, 1024)
        );
        assert_eq!((whole[1].files, whole[1].dirs), (48, 48));
        for table in &mut d.tables {
            table.working_set = Some(Size(8 << 20));
        }
        let small = sets(&d);
        assert_eq!((small[0].files, small[0].dirs), (512, 8));
        assert_eq!((small[1].files, small[1].file_size), (48, 128 << 10));
    }
}
