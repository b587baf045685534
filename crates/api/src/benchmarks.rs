//! Benchmark reports: runs of `weir bench matrix` in a folder of the server, each beside the
//! published figures that it repeats.
//!
//! A run is a folder with `summary.json`, which is read, and `report.html`, which is passed on
//! unchanged. A run that cannot be read is named with the reason, and the others are shown.

use crate::blocking::waiting;
use crate::error::{ApiError, ApiResult};
use crate::json::abbreviate;
use crate::words::{Language, Words};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_base::limits::api::{
    MAX_BENCHMARK_NAME, MAX_BENCHMARK_READERS, MAX_BENCHMARK_REPORT, MAX_BENCHMARK_SUMMARY,
    MAX_BENCHMARKS, MAX_BENCHMARKS_SEEN,
};
use weir_control::{Stamp, Status};

mod sentence;

use self::sentence::Reach;

/// Version of the summaries' format that is read.
const FORMAT: u32 = 1;
const SUMMARY: &str = "summary.json";
const REPORT: &str = "report.html";
/// Sources of a report: itself. It runs no script and submits nothing.
const POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Summary of a run, as `weir bench` writes it.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Summary {
    format: u32,
    tool: String,
    command: String,
    name: String,
    title: String,
    label: String,
    started_seconds: i64,
    ended_seconds: i64,
    state: String,
    reason: Option<String>,
    targets: Vec<Target>,
    clients: u32,
    cores: u32,
    repetitions: u32,
    published: Option<PublishedSet>,
    #[serde(default)]
    warnings: Vec<String>,
    tables: Vec<Table>,
}

#[derive(Deserialize, Debug)]
struct Target {
    label: String,
    protocol: String,
    generator: String,
}

#[derive(Deserialize, Debug)]
struct PublishedSet {
    set: String,
    clients: Option<u32>,
    cores: Option<u32>,
}

#[derive(Deserialize, Debug)]
struct Table {
    heading: String,
    load: String,
    axis: String,
    unit: String,
    rows: Vec<Row>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Row {
    column: String,
    side: String,
    value: f64,
    least: f64,
    greatest: f64,
    p99_seconds: Option<f64>,
    bound_by: Vec<String>,
    durability: String,
    published: Vec<Figure>,
}

#[derive(Deserialize, Debug)]
struct Figure {
    name: String,
    value: f64,
}

/// A run beside its published set.
struct Comparison {
    /// All figures beside the only one that is published for each, as they are.
    whole: Option<Reach>,
    /// Both by the cores of clients.
    per_core: Option<Reach>,
    /// All figures beside those of one tier, where several are published for each.
    tiers: Vec<(String, Reach)>,
}

impl Summary {
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|table| &table.rows)
    }

    fn comparison(&self) -> Comparison {
        let several = self.rows().any(|row| row.published.len() > 1);
        let mut names: Vec<&str> = Vec::new();
        for figure in self.rows().flat_map(|row| &row.published) {
            if !names.contains(&figure.name.as_str()) {
                names.push(&figure.name);
            }
        }
        let ratios = |name: Option<&str>| {
            let figures = self.rows().flat_map(move |row| {
                let fit = row.published.iter();
                let fit = fit.filter(move |f| name.is_none_or(|name| f.name == name));
                fit.map(|figure| row.value / figure.value)
            });
            figures.collect::<Vec<f64>>()
        };
        if several {
            let tiers = names.iter().filter_map(|name| {
                let reach = Reach::from_ratios(ratios(Some(name)).into_iter())?;
                Some(((*name).to_owned(), reach))
            });
            return Comparison {
                whole: None,
                per_core: None,
                tiers: tiers.collect(),
            };
        }
        let theirs = self.published.as_ref().and_then(|p| p.cores);
        let scale = theirs.map(|theirs| f64::from(theirs) / f64::from(self.cores.max(1)));
        Comparison {
            whole: Reach::from_ratios(ratios(None).into_iter()),
            per_core: scale.and_then(|scale| {
                Reach::from_ratios(ratios(None).into_iter().map(|ratio| ratio * scale))
            }),
            tiers: Vec::new(),
        }
    }

    /// Describes the run, `whole` with its tables, with its sentence in `language`.
    fn to_json(&self, name: &str, report: bool, whole: bool, language: Language) -> Value {
        let comparison = self.comparison();
        let mut out = Map::new();
        let mut set = |key: &str, value: Value| {
            out.insert(key.to_owned(), value);
        };
        let targets = self
            .targets
            .iter()
            .map(|t| json!({"label": t.label, "protocol": t.protocol, "generator": t.generator}));
        set("name", json!(name));
        set("headline", json!(self.sentence().text(language)));
        set("title", json!(self.title));
        set("label", json!(self.label));
        set("definition", json!(self.name));
        set("startTime", json!(time(self.started_seconds)));
        set("endTime", json!(time(self.ended_seconds)));
        set("state", json!(self.state.to_uppercase()));
        set("targets", targets.collect());
        set("hasReport", json!(report));
        if let Some(published) = &self.published {
            set("publishedSet", json!(published.set));
            for (key, number) in [
                ("publishedClients", published.clients),
                ("publishedCores", published.cores),
            ] {
                number.into_iter().for_each(|n| set(key, json!(n)));
            }
        }
        for (key, reach) in [
            ("comparison", &comparison.whole),
            ("comparisonPerCore", &comparison.per_core),
        ] {
            reach.iter().for_each(|reach| set(key, reach.to_json()));
        }
        let tiers = comparison.tiers.iter().map(|(name, reach)| {
            let mut tier = reach.to_json();
            tier["name"] = json!(name);
            tier
        });
        if !comparison.tiers.is_empty() {
            set("tiers", tiers.collect());
        }
        if whole {
            set("tool", json!(self.tool));
            set("command", json!(self.command));
            set("clients", json!(self.clients));
            set("cores", json!(self.cores));
            set("repetitions", json!(self.repetitions));
            set("warnings", json!(self.warnings));
            set("tables", self.tables.iter().map(Table::to_json).collect());
        }
        Value::Object(out)
    }
}

impl Table {
    fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let published = row.published.iter();
            let published = published.map(|f| json!({"name": f.name, "value": f.value}));
            let mut out = json!({
                "column": row.column,
                "side": row.side,
                "value": row.value,
                "least": row.least,
                "greatest": row.greatest,
                "boundBy": row.bound_by,
                "durability": row.durability,
                "published": published.collect::<Vec<_>>(),
            });
            if let Some(p99) = row.p99_seconds {
                out["p99Seconds"] = json!(p99);
            }
            out
        });
        json!({
            "heading": self.heading,
            "load": self.load,
            "axis": self.axis,
            "unit": self.unit,
            "rows": rows.collect::<Vec<_>>(),
        })
    }
}

fn time(seconds: i64) -> String {
    Stamp::from_nanos(i128::from(seconds) * 1_000_000_000).rfc3339()
}

/// Returns true if a folder may be one of a run: a name of ASCII, which is no hidden one.
fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    !name.is_empty()
        && name.len() <= MAX_BENCHMARK_NAME
        && !name.starts_with('.')
        && name.bytes().all(fits)
}

/// Returns true for a folder, and false for a link to one.
fn is_folder(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

/// Reads a regular file of at most so many bytes.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let other = |why: String| io::Error::other(why);
    // A link, a pipe or a device is none: opening it may lead elsewhere, or wait for ever.
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(other("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads the summary of a run.
///
/// # Errors
/// The reason, in words.
fn summary(folder: &Path) -> Result<Summary, String> {
    let bytes = read(&folder.join(SUMMARY), MAX_BENCHMARK_SUMMARY);
    let bytes = bytes.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => format!(
            "it has no {SUMMARY} (weir bench report DIR/run.json --summary DIR/{SUMMARY} makes one)"
        ),
        _ => format!("cannot read its {SUMMARY}: {why}"),
    })?;
    let read: Summary = serde_json::from_slice(&bytes)
        .map_err(|why| format!("its {SUMMARY} is no summary of weir bench: {why}"))?;
    match read.format {
        FORMAT => Ok(read),
        other => Err(format!(
            "its {SUMMARY} has format {other}, and this server reads {FORMAT}"
        )),
    }
}

/// The folder of runs.
pub struct Benchmarks {
    folder: PathBuf,
    readers: Arc<Semaphore>,
}

impl Benchmarks {
    /// Shows the runs in `folder`, which need not exist.
    pub fn new(folder: PathBuf) -> Benchmarks {
        Benchmarks {
            folder,
            readers: Arc::new(Semaphore::new(MAX_BENCHMARK_READERS)),
        }
    }

    fn permit(&self) -> ApiResult<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.readers).try_acquire_owned();
        permit.map_err(|_| {
            ApiError::new(
                Status::ResourceExhausted,
                "TOO_MANY_READERS",
                format!(
                    "Cannot read the benchmarks: {MAX_BENCHMARK_READERS} requests are reading them (try again later)"
                ),
            )
        })
    }

    /// Answers `GET /v1/benchmarks`: all runs, the newest first.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED; UNAVAILABLE: the folder cannot be read.
    pub(crate) async fn list(&self, language: Language) -> ApiResult<Value> {
        let permit = self.permit()?;
        let folder = self.folder.clone();
        let listed = waiting(move || {
            let _permit = permit;
            list(&folder, language)
        });
        listed.await?.map_err(|why| {
            let folder = self.folder.display();
            let words = format!("cannot read the folder of benchmarks, {folder}: {why}");
            ApiError::new(Status::Unavailable, "BENCHMARKS_UNREADABLE", words)
        })
    }

    /// Answers `GET /v1/benchmarks/NAME`.
    ///
    /// # Errors
    /// NOT_FOUND; FAILED_PRECONDITION: its summary cannot be read; RESOURCE_EXHAUSTED.
    pub(crate) async fn get(&self, name: &str, language: Language) -> ApiResult<Value> {
        let folder = self.run(name)?;
        let permit = self.permit()?;
        let (of, name) = (name.to_owned(), name.to_owned());
        let found = waiting(move || {
            let _permit = permit;
            if !is_folder(&folder) {
                return None;
            }
            let report = folder.join(REPORT).is_file();
            Some(summary(&folder).map(|summary| summary.to_json(&of, report, true, language)))
        });
        let found = found.await?.ok_or_else(|| not_found(&name))?;
        found.map_err(|why| {
            let words = format!("cannot show the benchmark {name}: {why}");
            ApiError::new(Status::FailedPrecondition, "BENCHMARK_UNREADABLE", words)
        })
    }

    /// Answers `GET /v1/benchmarks/NAME:report`: the page that `weir bench` has made, which may do
    /// nothing in a browser but be read.
    ///
    /// # Errors
    /// NOT_FOUND; FAILED_PRECONDITION: the report cannot be read; RESOURCE_EXHAUSTED.
    pub(crate) async fn report(&self, name: &str) -> ApiResult<Response> {
        let folder = self.run(name)?;
        let permit = self.permit()?;
        let page = waiting(move || {
            let _permit = permit;
            match is_folder(&folder) {
                true => read(&folder.join(REPORT), MAX_BENCHMARK_REPORT),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        });
        let page = page.await?.map_err(|why| match why.kind() {
            io::ErrorKind::NotFound => not_found(name),
            _ => {
                let words = format!("cannot read the report of the benchmark {name}: {why}");
                ApiError::new(Status::FailedPrecondition, "BENCHMARK_UNREADABLE", words)
            }
        })?;
        let mut reply = page.into_response();
        let set = reply.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            set.insert(name, HeaderValue::from_static(value));
        }
        Ok(reply)
    }

    fn run(&self, name: &str) -> ApiResult<PathBuf> {
        match is_name(name) {
            true => Ok(self.folder.join(name)),
            false => Err(not_found(name)),
        }
    }
}

fn not_found(name: &str) -> Box<ApiError> {
    ApiError::not_found(&format!("benchmarks/{}", abbreviate(name)))
}

fn list(folder: &Path, language: Language) -> io::Result<Value> {
    let entries = match std::fs::read_dir(folder) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => None,
        found => Some(found?),
    };
    let mut names = Vec::new();
    for entry in entries.into_iter().flatten().take(MAX_BENCHMARKS_SEEN) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Other entries beside the folders of runs are passed over.
        if entry.file_type()?.is_dir() && !name.starts_with('.') {
            let changed = entry.metadata().and_then(|m| m.modified());
            names.push((changed.unwrap_or(std::time::UNIX_EPOCH), name));
        }
    }
    names.sort_by(|a, b| b.cmp(a));
    let omitted = names.len().saturating_sub(MAX_BENCHMARKS);
    let mut runs: Vec<(i64, Summary, Value)> = Vec::new();
    let mut unreadable = Vec::new();
    for (_, name) in names.into_iter().take(MAX_BENCHMARKS) {
        let of = folder.join(&name);
        let read = match is_name(&name) {
            true => summary(&of),
            false => Err("its name is not of letters, digits and -_.".to_owned()),
        };
        match read {
            Ok(one) => {
                let shown = one.to_json(&name, of.join(REPORT).is_file(), false, language);
                runs.push((one.started_seconds, one, shown));
            }
            Err(why) => unreadable.push(json!({"name": abbreviate(&name), "message": why})),
        }
    }
    runs.sort_by_key(|(started, ..)| std::cmp::Reverse(*started));
    let mut out = json!({
        "headline": headline(&runs).text(language),
        "folder": folder.display().to_string(),
        "unreadable": unreadable,
    });
    out["benchmarks"] = runs.into_iter().map(|(.., shown)| shown).collect();
    if omitted > 0 {
        out["omitted"] = json!(omitted);
    }
    Ok(out)
}

/// Returns the sentence about the newest run that has published figures beside it, else about the
/// newest.
fn headline(runs: &[(i64, Summary, Value)]) -> Words {
    let beside = runs.iter().find(|(_, run, _)| run.published.is_some());
    match (beside.or(runs.first()), runs.len()) {
        (None, _) => Words::new(
            "There is no benchmark report yet.",
            "ベンチマークの結果はまだありません。",
        ),
        (Some((_, run, _)), 1) => run.sentence(),
        (Some((_, run, _)), _) => {
            let (label, words) = (&run.label, run.sentence());
            Words::new(
                format!("{label}: {}", words.text(Language::English)),
                format!("{label}：{}", words.text(Language::Japanese)),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(published: &str, rows: &str) -> Summary {
        let text = format!(
            r#"{{"format": 1, "tool": "weir bench 0.1.0", "command": "c", "name": "n", "title": "t", "label": "l",
                "startedSeconds": 1, "endedSeconds": 2, "state": "complete", "cores": 2, "clients": 1,
                "repetitions": 3, "targets": [], "published": {published},
                "tables": [{{"heading": "h", "load": "l", "axis": "a", "unit": "IOPS", "rows": [{rows}]}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn row(value: f64, published: &[(&str, f64)]) -> String {
        let published = published.iter();
        let published = published.map(|(n, v)| json!({"name": n, "value": v}));
        json!({
            "column": "100/0", "side": "Read", "value": value, "least": value, "greatest": value,
            "boundBy": [], "durability": "memory", "published": published.collect::<Vec<_>>(),
        })
        .to_string()
    }

    #[test]
    fn a_headline_says_how_many_figures_reach_the_published_ones() {
        let set = r#"{"set": "s", "clients": 6, "cores": 8}"#;
        let rows = [row(50.0, &[("a", 100.0)]), row(20.0, &[("b", 100.0)])].join(",");
        let expected = "None of 2 figures reaches the published one of s (20 % to 50 % of it); \
            per core of the clients 1 of 2 do (80 % to 200 % of it).";
        let words = run(set, &rows).sentence();
        assert_eq!(words.text(Language::English), expected);
        let expected = "s の公表値に達した値は 2 個中 0 個です（20 %〜50 %）。\
            クライアントのコアあたりでは 2 個中 1 個です（80 %〜200 %）。";
        assert_eq!(words.text(Language::Japanese), expected);
        let rows = [row(500.0, &[("a", 100.0)]), row(600.0, &[("b", 100.0)])].join(",");
        let expected = "All 2 figures reach the published ones of s (500 % to 600 % of it); \
            per core of the clients all do (20 to 24 times it).";
        assert_eq!(run(set, &rows).sentence().text(Language::English), expected);
        let rows = row(150.0, &[("a", 100.0)]);
        let without_cores = r#"{"set": "s", "clients": null, "cores": null}"#;
        assert_eq!(
            run(without_cores, &rows).sentence().text(Language::English),
            "The one figure reaches the published one of s (150 % of it)."
        );
        // A figure published as 0 has no multiple.
        let rows = [row(5.0, &[("a", 0.0)]), row(5.0, &[])].join(",");
        assert_eq!(
            run(set, &rows).sentence().text(Language::English),
            "2 figures, and none is published beside them."
        );
        let mut cut = run("null", &row(5.0, &[]));
        cut.state = "failed".to_owned();
        cut.reason = Some("the server died".to_owned());
        assert!(
            cut.sentence()
                .text(Language::English)
                .ends_with("ended early: the server died.")
        );
    }

    #[test]
    fn of_several_tiers_it_names_the_highest_that_is_reached() {
        let rows = [
            row(50.0, &[("small", 10.0), ("middle", 40.0), ("large", 400.0)]),
            row(30.0, &[("small", 10.0), ("middle", 40.0), ("large", 400.0)]),
        ];
        let all = run(r#"{"set": "s"}"#, &rows.join(","));
        let words = all.sentence();
        let expected = "All 2 figures reach small; 1 of 2 reach middle.";
        assert_eq!(words.text(Language::English), expected);
        let expected = "全 2 個の値が small に達しています。middle には 2 個中 1 個です。";
        assert_eq!(words.text(Language::Japanese), expected);
        let shown = all.to_json("r", false, false, Language::English);
        assert_eq!(shown["tiers"][2]["reached"], 0);
        assert!(shown.get("comparison").is_none());
    }

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["a", "2026-11-29-netapp-extreme", "A_b.c"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(MAX_BENCHMARK_NAME + 1);
        for name in [
            "", ".", "..", ".hidden", "a/b", "a\\b", "a b", "é", "a\0", &long,
        ] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn bad_runs_are_named_and_the_others_shown() {
        let at = tempfile::tempdir().unwrap();
        let folder = at.path().join("benchmarks");
        let listed = list(&folder, Language::English).unwrap();
        assert_eq!(listed["headline"], "There is no benchmark report yet.");
        let make = |name: &str, content: Option<&[u8]>| {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            if let Some(content) = content {
                std::fs::write(folder.join(name).join(SUMMARY), content).unwrap();
            }
        };
        let mut good: Value = serde_json::from_slice(
            br#"{"format": 1, "tool": "w", "command": "c", "name": "n", "title": "t", "label": "first",
                "startedSeconds": 1, "endedSeconds": 2, "state": "complete", "cores": 2, "clients": 1,
                "repetitions": 3, "targets": [], "tables": []}"#,
        )
        .unwrap();
        make("first", Some(good.to_string().as_bytes()));
        good["startedSeconds"] = json!(5);
        good["label"] = json!("second");
        make("second", Some(good.to_string().as_bytes()));
        std::fs::write(folder.join("second").join(REPORT), "<p>").unwrap();
        good["format"] = json!(2);
        make("newer", Some(good.to_string().as_bytes()));
        make("empty", None);
        make("garbage", Some(b"\xff{"));
        make(
            "huge",
            Some(&vec![b' '; MAX_BENCHMARK_SUMMARY as usize + 1]),
        );
        make("a b", Some(good.to_string().as_bytes()));
        make("linked", None);
        std::os::unix::fs::symlink("/dev/zero", folder.join("linked").join(SUMMARY)).unwrap();
        make(".hidden", None);
        std::fs::write(folder.join("file"), "").unwrap();
        let listed = list(&folder, Language::English).unwrap();
        let names = |key: &str| {
            let all = listed[key].as_array().unwrap().iter();
            all.map(|one| one["name"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("benchmarks"), ["second", "first"]);
        assert_eq!(listed["benchmarks"][0]["hasReport"], true);
        let mut bad = names("unreadable");
        bad.sort();
        assert_eq!(bad, ["a b", "empty", "garbage", "huge", "linked", "newer"]);
        assert!(listed["headline"].as_str().unwrap().starts_with("second: "));
    }
}
