//! The server's figures, now and of the last day: `GET /v1/live`, `/v1/history`, `/v1/latency`,
//! `/v1/limitChanges`, `/v1/conditions`, `/v1/headline`, `/v1/pair`, `/v1/server`.

mod book;
mod breakdown;
mod condition;
mod headline;
mod heat;
mod row;
mod stream;

pub use book::{Book, Heat, History, Kind, LimitedSeries, Step};
pub use condition::{Condition, ConditionKind, Conditions, Report, Severity};
pub(crate) use headline::{HeadlineRequest, headline};
pub use heat::{Column, FIRST_SECONDS, LATENCIES, Latencies, OperationTimes, WAITS};
pub use row::{COLUMNS, Row, bound_by, limit_of, limits};
pub(crate) use stream::response;

use crate::error::{ApiError, ApiResult};
use crate::json::abbreviate;
use crate::query::Query;
use crate::words::Language;
use book::RowSelector;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use weir_base::limits::api::{LIVE_MINUTES, LIVE_READERS, LIVE_TERMS, MAX_LIMIT_CHANGES};
use weir_control::{AuditEntry, Collection, Control, Refusal, Stamp, Status, Surface};

/// Rows that a reader gets who asks for none in particular.
const DEFAULT_ROWS: &str = "pools,volumes:50,clients:20";

/// Describes a part of the server that only the binary knows, its sentences in a language.
pub type Describe = Box<dyn Fn(Language) -> Value + Send + Sync>;

/// Makes the partner of the pair serve, or only checks that it could, if its argument is true.
pub type Switch = Box<dyn Fn(bool) -> Result<(), String> + Send + Sync>;

/// The data that the endpoints show.
pub struct Live {
    /// Rows by the second and by the minute.
    pub book: Book,
    /// The conditions.
    pub conditions: Conditions,
    /// Tells streams of this process from those of others.
    run: u64,
    readers: Arc<Semaphore>,
    pair: std::sync::OnceLock<Describe>,
    server: std::sync::OnceLock<Describe>,
    switch: std::sync::OnceLock<Switch>,
}

impl Live {
    /// Returns an empty one, whose rows take at most so many bytes; `now` in seconds since 1970.
    pub fn new(bytes: usize, now: u64) -> Live {
        Live {
            book: Book::new(bytes, now),
            conditions: Conditions::default(),
            run: now,
            readers: Arc::new(Semaphore::new(LIVE_READERS)),
            pair: std::sync::OnceLock::new(),
            server: std::sync::OnceLock::new(),
            switch: std::sync::OnceLock::new(),
        }
    }

    /// Sets what describes the pair and the server. Only the first counts.
    pub fn describe(&self, pair: Describe, server: Describe) {
        let _ = self.pair.set(pair);
        let _ = self.server.set(server);
    }

    /// Sets how the partner of the pair is made to serve. Only the first counts.
    pub fn switch_by(&self, switch: Switch) {
        let _ = self.switch.set(switch);
    }

    /// Makes the partner of the pair serve, or only checks that it could.
    ///
    /// # Errors
    /// FAILED_PRECONDITION: the node is none of a pair, does not serve, or its partner could not.
    pub(crate) fn switch(&self, only: bool) -> Result<(), Refusal> {
        let refused =
            |why: String| Refusal::new(Status::FailedPrecondition, "PAIR_CANNOT_SWITCH", why);
        match self.switch.get() {
            Some(switch) => switch(only).map_err(refused),
            None => Err(refused("the server is not a node of a pair".to_owned())),
        }
    }

    /// Returns the response of `GET /v1/conditions`.
    pub(crate) fn conditions(&self, language: Language) -> Value {
        let now = i64::try_from(self.book.latest()).unwrap_or(i64::MAX);
        self.conditions.report().to_json(now, language)
    }

    /// Returns the response of `GET /v1/pair`.
    pub(crate) fn pair(&self, language: Language) -> Value {
        let described = self.pair.get().map(|describe| describe(language));
        described.unwrap_or_else(|| json!({"configured": false}))
    }

    /// Returns the response of `GET /v1/server` but for the caller.
    pub(crate) fn server(&self) -> Map<String, Value> {
        match self
            .server
            .get()
            .map(|describe| describe(Language::English))
        {
            Some(Value::Object(described)) => described,
            _ => Map::new(),
        }
    }
}

fn invalid(parameter: &str, why: impl std::fmt::Display) -> Box<ApiError> {
    ApiError::field(parameter, format!("Invalid value at '{parameter}': {why}"))
}

fn number(text: &str, kind: Kind) -> ApiResult<usize> {
    let most = kind.most();
    let number = text.parse::<usize>().ok();
    number.filter(|n| (1..=most).contains(n)).ok_or_else(|| {
        let shown = abbreviate(text);
        invalid(
            "rows",
            format_args!("\"{shown}\" is not a number from 1 to {most}"),
        )
    })
}

/// Reads a selection of rows.
///
/// # Errors
/// INVALID_ARGUMENT: too many terms, or one that means nothing.
pub(crate) fn wanted(query: &Query) -> ApiResult<Vec<RowSelector>> {
    let text = query.get("rows").unwrap_or(DEFAULT_ROWS);
    let terms: Vec<&str> = text.split(',').collect();
    if terms.len() > LIVE_TERMS {
        return Err(invalid(
            "rows",
            format_args!("more than {LIVE_TERMS} terms"),
        ));
    }
    terms.into_iter().map(term).collect()
}

fn term(text: &str) -> ApiResult<RowSelector> {
    const KINDS: [(&str, Kind); 4] = [
        ("pools", Kind::Pool),
        ("volumes", Kind::Volume),
        ("clients", Kind::Client),
        ("volumeClients", Kind::VolumeClient),
    ];
    if text.starts_with("projects/") && text.len() <= 512 {
        return Ok(RowSelector::Named(text.to_owned()));
    }
    if text == "others" || text.parse::<IpAddr>().is_ok() {
        return Ok(RowSelector::Named(text.to_owned()));
    }
    let (word, argument) = match text.split_once(':') {
        Some((word, argument)) => (word, Some(argument)),
        None => (text, None),
    };
    if let ("clientsOf", Some(volume)) = (word, argument) {
        if volume.starts_with("projects/") && volume.len() <= 512 {
            return Ok(RowSelector::ClientsOf(volume.to_owned()));
        }
    }
    match KINDS.iter().find(|(known, _)| *known == word) {
        Some((_, kind)) => Ok(RowSelector::Busiest(
            *kind,
            argument.map_or(Ok(kind.most()), |text| number(text, *kind))?,
        )),
        None => {
            let shown = abbreviate(text);
            Err(invalid(
                "rows",
                format_args!(
                    "\"{shown}\" is none of pools, volumes:N, clients:N, volumeClients:N, clientsOf:VOLUME, a \
                     resource's full name, a client's address"
                ),
            ))
        }
    }
}

/// Returns the seconds of a window such as `10m`.
fn window(text: &str) -> ApiResult<u64> {
    let wrong = || {
        let shown = abbreviate(text);
        invalid(
            "window",
            format_args!("\"{shown}\" is not a time from 1s to 24h, such as 30s, 10m, 24h"),
        )
    };
    let unit = text
        .chars()
        .last()
        .filter(char::is_ascii)
        .ok_or_else(wrong)?;
    let number = text.strip_suffix(unit).and_then(|n| n.parse::<u64>().ok());
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.and_then(|n| n.checked_mul(seconds));
    seconds
        .filter(|s| (1..=LIVE_MINUTES * 60).contains(s))
        .ok_or_else(wrong)
}

/// Tells that a pool, a volume or an instance has this full name.
fn exists(control: &Control, kind: Kind, name: &str) -> bool {
    let view = control.view();
    match kind {
        Kind::Pool => view
            .every_pool()
            .any(|pool| pool.name.full(Collection::Pools) == name),
        _ => [Surface::Netapp, Surface::Filestore]
            .into_iter()
            .flat_map(|surface| view.every_volume(surface))
            .any(|volume| volume.name.to_string() == name),
    }
}

/// Returns the response of `GET /v1/history`.
///
/// # Errors
/// INVALID_ARGUMENT naming the parameter; NOT_FOUND: nothing has the name.
pub(crate) fn history(live: &Live, control: &Control, query: &Query) -> ApiResult<Value> {
    let of = |name: &str| query.get(name).filter(|value| !value.is_empty());
    let (kind, name) = match (of("pool"), of("volume"), of("client")) {
        (Some(pool), None, None) => (Kind::Pool, pool.to_owned()),
        (None, Some(volume), None) => (Kind::Volume, volume.to_owned()),
        (None, None, Some(client)) => (Kind::Client, client.to_owned()),
        (None, Some(volume), Some(client)) => (Kind::VolumeClient, format!("{volume} {client}")),
        (None, None, None) => {
            return Err(invalid("volume", "one of volume, pool, client is required"));
        }
        _ => return Err(invalid("pool", "it cannot be given with volume or client")),
    };
    if let Some(client) = of("client") {
        if client != "others" && client.parse::<IpAddr>().is_err() {
            let shown = abbreviate(client);
            return Err(invalid(
                "client",
                format_args!("\"{shown}\" is not an address"),
            ));
        }
    }
    let resource = of("pool").or(of("volume"));
    if let Some(resource) = resource.filter(|name| !exists(control, kind, name)) {
        return Err(ApiError::not_found(&abbreviate(resource)));
    }
    let window = window(query.get("window").unwrap_or("10m"))?;
    let history = live.book.history(kind, &name, window);
    let mut figures = Map::new();
    for (at, column) in COLUMNS.iter().enumerate() {
        let column_of = |row: &Option<Row>| {
            let figure = row.and_then(|row| row.figures().get(at).copied());
            figure.map_or(Value::Null, rounded)
        };
        let all: Vec<Value> = history.rows.iter().map(column_of).collect();
        figures.insert((*column).to_owned(), Value::Array(all));
    }
    let span = (history.rows.len() as u64).saturating_sub(1) * history.step;
    Ok(json!({
        "kind": kind.as_str(),
        "resource": name,
        "stepSeconds": history.step,
        "startEpochSeconds": history.end - span,
        "endEpochSeconds": history.end,
        "limits": limits(),
        "figures": figures,
    }))
}

/// Reads the pool or the volume that a query names, and its window.
///
/// # Errors
/// INVALID_ARGUMENT naming the parameter; NOT_FOUND: nothing has the name.
fn one_of(control: &Control, query: &Query) -> ApiResult<(Kind, String, u64)> {
    let of = |name: &str| query.get(name).filter(|value| !value.is_empty());
    let (kind, name) = match (of("pool"), of("volume")) {
        (Some(pool), None) => (Kind::Pool, pool),
        (None, Some(volume)) => (Kind::Volume, volume),
        _ => return Err(invalid("volume", "either volume or pool is required")),
    };
    if !exists(control, kind, name) {
        return Err(ApiError::not_found(&abbreviate(name)));
    }
    let window = window(query.get("window").unwrap_or("10m"))?;
    Ok((kind, name.to_owned(), window))
}

/// Returns the response of `GET /v1/latency`.
///
/// # Errors
/// INVALID_ARGUMENT naming the parameter; NOT_FOUND: nothing has the name.
pub(crate) fn latency(
    live: &Live,
    control: &Control,
    query: &Query,
    language: Language,
) -> ApiResult<Value> {
    let (kind, name, window) = one_of(control, query)?;
    let heat = live.book.heat(kind, &name, window);
    let bounds = (0..LATENCIES as i32 - 1).map(|at| json!(FIRST_SECONDS * f64::from(at).exp2()));
    let each = |of: &dyn Fn(&Column) -> Value| -> Vec<Value> {
        let columns = heat.columns.iter();
        columns
            .map(|column| column.as_ref().map_or(Value::Null, of))
            .collect()
    };
    let waits = WAITS.iter().enumerate().map(|(at, cause)| {
        let seconds = |column: &Column| column.spent.waits.get(at).copied().unwrap_or_default();
        let all = each(&|column| rounded(seconds(column).into()));
        ((*cause).to_owned(), Value::Array(all))
    });
    let span = (heat.columns.len() as u64) * heat.step;
    let mut out = json!({
        "kind": kind.as_str(),
        "resource": name,
        "stepSeconds": heat.step,
        "startEpochSeconds": (heat.end + 1).saturating_sub(span),
        "endEpochSeconds": heat.end,
        "upperSeconds": bounds.collect::<Vec<_>>(),
        "operations": each(&|column| json!(column.numbers)),
        "operationSeconds": each(&|column| rounded(column.spent.operations.into())),
        "waitSeconds": Value::Object(waits.collect()),
    });
    if let Some(out) = out.as_object_mut() {
        let recent = live.book.heat(kind, &name, RECENT_SECONDS);
        breakdown::add_to(out, &recent, language);
    }
    Ok(out)
}

/// Returns the response of `GET /v1/limitChanges`: changes of a limit, each with the change of the
/// volume or its pool that made it.
///
/// # Errors
/// INVALID_ARGUMENT naming the parameter; NOT_FOUND; UNAVAILABLE: the catalog cannot be read.
pub(crate) async fn limit_changes(
    live: &Live,
    control: &Control,
    query: &Query,
) -> ApiResult<Value> {
    let (kind, name, window) = one_of(control, query)?;
    let steps = live.book.steps(kind, &name, window);
    let mut targets = vec![name.clone()];
    targets.extend(pool_of(control, kind, &name));
    let first = steps.first().map(|step| step.between.0);
    let entries = match first {
        None => Vec::new(),
        Some(first) => {
            let since = i128::from(first.saturating_sub(SLACK)) * 1_000_000_000;
            let since = Stamp::from_nanos(since);
            let found = control.updates(&targets, since, MAX_LIMIT_CHANGES).await;
            found.map_err(ApiError::refused)?
        }
    };
    let changes = steps.iter().filter_map(|step| {
        let (after, until) = step.between;
        let fits = |entry: &&AuditEntry| {
            let at = u64::try_from(entry.time().secs()).unwrap_or(0);
            (after.saturating_sub(SLACK)..=until + SLACK).contains(&at)
        };
        let entry = entries.iter().rfind(fits)?;
        Some(json!({
            "time": entry.time().rfc3339(),
            "actor": entry.actor,
            "resource": entry.target,
            "fromBytesPerSecond": step.from,
            "toBytesPerSecond": step.to,
        }))
    });
    Ok(json!({
        "resource": name,
        "changes": changes.collect::<Vec<_>>(),
    }))
}

/// Seconds over which the time of an operation is split.
const RECENT_SECONDS: u64 = 60;

/// Seconds by which a row may be later, or earlier, than the change that it shows.
const SLACK: u64 = 2;

/// Returns the pool of a volume.
fn pool_of(control: &Control, kind: Kind, name: &str) -> Option<String> {
    if kind == Kind::Pool {
        return None;
    }
    let view = control.view();
    let mut volumes = view.every_volume(Surface::Netapp);
    let volume = volumes.find(|volume| volume.name.to_string() == name)?;
    volume.pool().map(|pool| pool.full(Collection::Pools))
}

/// Returns a figure as it is written in frames, too.
fn rounded(figure: f64) -> Value {
    let mut text = String::new();
    row::write_figure(&mut text, figure);
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// Refuses one more reader than there may be.
pub(crate) fn too_many() -> Box<ApiError> {
    ApiError::new(
        Status::ResourceExhausted,
        "TOO_MANY_READERS",
        format!(
            "Cannot begin a stream of live data: {LIVE_READERS} are open already (close one, or poll /v1/history)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_are_read_or_refused() {
        let read = |text: &str| wanted(&Query::parse(&format!("rows={text}")).unwrap());
        let name = "projects/p/locations/l/volumes/v";
        let all = format!("pools,volumes:7,10.0.0.1,fd00::1,{name},clientsOf:{name}");
        assert_eq!(
            read(&all).unwrap(),
            [
                RowSelector::Busiest(Kind::Pool, Kind::Pool.most()),
                RowSelector::Busiest(Kind::Volume, 7),
                RowSelector::Named("10.0.0.1".to_owned()),
                RowSelector::Named("fd00::1".to_owned()),
                RowSelector::Named(name.to_owned()),
                RowSelector::ClientsOf(name.to_owned()),
            ]
        );
        assert_eq!(wanted(&Query::default()).unwrap().len(), 3);
        let long = format!("projects/{}", "x".repeat(600));
        for wrong in [
            "",
            "x",
            "volumes:0",
            "volumes:501",
            "volumes:-1",
            "volumes:",
            "pools,",
            "clientsOf:",
            "clientsOf:x",
            &"pools,".repeat(65),
            &long,
        ] {
            let e = read(wrong).unwrap_err();
            assert_eq!((e.code(), &*e.reason), (400, "INVALID_FIELD"), "{wrong}");
        }
    }

    #[test]
    fn windows_are_read_or_refused() {
        for (text, seconds) in [("1s", 1), ("10m", 600), ("24h", 86_400), ("90m", 5400)] {
            assert_eq!(window(text).unwrap(), seconds);
        }
        for wrong in [
            "",
            "0s",
            "25h",
            "10",
            "m",
            "-1m",
            "1.5h",
            "10ｍ",
            "99999999999999999999h",
        ] {
            assert!(window(wrong).is_err(), "{wrong}");
        }
    }
}
