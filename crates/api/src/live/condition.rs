//! Conditions: what holds, what is wrong, or soon will be, since when, and what to do about it.

use crate::words::{Language, Words};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_base::limits::api::MAX_CONDITIONS;
use weir_control::Stamp;

/// Kinds of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionKind {
    /// No node of the cluster serves an aggregate.
    AggregateNotServed,
    /// Nothing can be written any more.
    AggregateReadOnly,
    /// Physical space is little, or none.
    AggregateSpace,
    /// Nothing can be changed through the API any more.
    Catalog,
    /// A certificate is about to expire.
    CertificateExpires,
    /// A block read from the device was not what had been written.
    ChecksumFault,
    /// The tables of the cluster cannot be reached.
    ClusterTables,
    /// The server has found a defect in itself.
    Defect,
    /// Requests that wait take nearly all memory that they may.
    HeldMemory,
    /// A limit holds requests of a volume.
    LimitBinds,
    /// The lock file does not keep other servers out any more.
    LockFile,
    /// The log's device takes long.
    LogSlow,
    /// A node of the cluster sends no heartbeats.
    NodeDown,
    /// One of a pair lacks something.
    PairOutOfSync,
    /// The witness of a pair does not answer.
    PairWitnessLost,
    /// Nearly all of a pool is allocated.
    PoolAllocated,
    /// Qtrees admit nobody, because their export policies are not known.
    QtreePolicyUnknown,
    /// Users or groups hold more than the soft limits of their quotas.
    QuotaSoftLimit,
    /// A transfer failed.
    ReplicationFailing,
    /// A copy is older than its schedule says.
    ReplicationLate,
    /// Nobody stands by any more for the owner of an aggregate on RADOS.
    StandbyMissing,
    /// A volume is full, or nearly.
    VolumeFull,
}

impl ConditionKind {
    /// Returns its name in responses and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionKind::AggregateNotServed => "AGGREGATE_NOT_SERVED",
            ConditionKind::AggregateReadOnly => "AGGREGATE_READ_ONLY",
            ConditionKind::AggregateSpace => "AGGREGATE_SPACE",
            ConditionKind::Catalog => "CATALOG",
            ConditionKind::CertificateExpires => "CERTIFICATE_EXPIRES",
            ConditionKind::ChecksumFault => "CHECKSUM_FAULT",
            ConditionKind::ClusterTables => "CLUSTER_TABLES",
            ConditionKind::Defect => "DEFECT",
            ConditionKind::HeldMemory => "HELD_MEMORY",
            ConditionKind::LimitBinds => "LIMIT_BINDS",
            ConditionKind::LockFile => "LOCK_FILE",
            ConditionKind::LogSlow => "LOG_SLOW",
            ConditionKind::NodeDown => "NODE_DOWN",
            ConditionKind::PairOutOfSync => "PAIR_OUT_OF_SYNC",
            ConditionKind::PairWitnessLost => "PAIR_WITNESS_LOST",
            ConditionKind::PoolAllocated => "POOL_ALLOCATED",
            ConditionKind::QtreePolicyUnknown => "QTREE_POLICY_UNKNOWN",
            ConditionKind::QuotaSoftLimit => "QUOTA_SOFT_LIMIT",
            ConditionKind::ReplicationFailing => "REPLICATION_FAILING",
            ConditionKind::ReplicationLate => "REPLICATION_LATE",
            ConditionKind::StandbyMissing => "STANDBY_MISSING",
            ConditionKind::VolumeFull => "VOLUME_FULL",
        }
    }
}

/// Severity of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something will fail if nothing is done.
    Warning,
    /// Requests fail, or data is in danger.
    Error,
}

impl Severity {
    /// Returns its name in responses and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "INFO",
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
        }
    }
}

/// A condition as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Its kind; with the resource it tells one condition from another.
    pub kind: ConditionKind,
    /// Its severity.
    pub severity: Severity,
    /// The resource that it concerns, by its full name, or a part of the server such as
    /// `aggregate`.
    pub resource: String,
    /// Seconds since 1970 from which on it has held, where that is known; else since it was first
    /// found.
    pub since: Option<i64>,
    /// A sentence on what is so, without its full stop.
    pub message: Words,
    /// The next step for an operator; may be empty.
    pub action: Words,
    /// The command that does it, where there is one.
    pub command: Option<String>,
    /// Figures for programs.
    pub details: Map<String, Value>,
}

impl Condition {
    /// Returns a condition without command and details.
    pub fn new(
        kind: ConditionKind,
        severity: Severity,
        resource: impl Into<String>,
        message: impl Into<Words>,
        action: impl Into<Words>,
    ) -> Condition {
        Condition {
            kind,
            severity,
            resource: resource.into(),
            since: None,
            message: message.into(),
            action: action.into(),
            command: None,
            details: Map::new(),
        }
    }
}

/// Conditions of a moment, the worst first, and the sentence that sums them up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The conditions, each with the seconds since 1970 from which on it has held.
    pub conditions: Vec<(Condition, i64)>,
    /// Number of further ones.
    pub omitted: usize,
    /// Volumes and instances that there are.
    pub volumes: usize,
    /// Volumes and instances that limits hold.
    pub waiting: usize,
    /// The sentence.
    pub headline: Words,
}

impl Report {
    /// Tells that two reports list the same, whatever their figures are.
    pub fn lists_as(&self, other: &Report) -> bool {
        let same = |(a, since): &(Condition, i64), (b, begins): &(Condition, i64)| {
            (a.kind, a.severity, since, &a.resource, &a.message)
                == (b.kind, b.severity, begins, &b.resource, &b.message)
        };
        let (mine, theirs) = (&self.conditions, &other.conditions);
        self.headline == other.headline
            && mine.len() == theirs.len()
            && mine.iter().zip(theirs).all(|(a, b)| same(a, b))
    }
}

/// The conditions that there are, and since when.
#[derive(Default)]
pub struct Conditions {
    since: Mutex<BTreeMap<(ConditionKind, String), i64>>,
    now: Mutex<Arc<Report>>,
}

impl Conditions {
    /// Takes the conditions found at `now`, in seconds since 1970, in a server with so many
    /// volumes.
    pub fn update(&self, now: i64, found: Vec<Condition>, volumes: usize) {
        let mut since = self.since.lock();
        let mut before = std::mem::take(&mut *since);
        let mut conditions: Vec<(Condition, i64)> = Vec::with_capacity(found.len());
        for condition in found {
            let key = (condition.kind, condition.resource.clone());
            let known = before.remove(&key).unwrap_or(now);
            let began = condition.since.unwrap_or(known);
            since.insert(key, known);
            conditions.push((condition, began));
        }
        conditions.sort_by(|a, b| order(a).cmp(&order(b)));
        let waiting = conditions
            .iter()
            .filter(|(c, _)| c.kind == ConditionKind::LimitBinds)
            .count();
        let headline = headline(&conditions, volumes);
        let omitted = conditions.len().saturating_sub(MAX_CONDITIONS);
        conditions.truncate(MAX_CONDITIONS);
        let report = Report {
            conditions,
            omitted,
            volumes,
            waiting,
            headline,
        };
        *self.now.lock() = Arc::new(report);
    }

    /// Returns the conditions as of the last reading.
    pub fn report(&self) -> Arc<Report> {
        Arc::clone(&self.now.lock())
    }
}

/// Returns the order of a list: the worst first, then the oldest.
fn order((c, since): &(Condition, i64)) -> (Reverse<Severity>, i64, ConditionKind, &str) {
    (Reverse(c.severity), *since, c.kind, &c.resource)
}

fn count(n: usize) -> String {
    const WORDS: [&str; 10] = [
        "No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine",
    ];
    WORDS
        .get(n)
        .map_or_else(|| n.to_string(), |word| (*word).to_owned())
}

/// Returns the sentence that sums conditions up.
fn headline(conditions: &[(Condition, i64)], volumes: usize) -> Words {
    Words::new(
        sentences(conditions, volumes, Language::English).join(" "),
        sentences(conditions, volumes, Language::Japanese).concat(),
    )
}

/// Returns the worst problem, with the number of others.
fn problem(conditions: &[(Condition, i64)], language: Language) -> Option<String> {
    let of = |severity: Severity| {
        let all = conditions
            .iter()
            .filter(move |(c, _)| c.severity == severity);
        all.filter(|(c, _)| c.kind != ConditionKind::LimitBinds)
    };
    let found = [Severity::Error, Severity::Warning].map(|severity| {
        let mut these = of(severity);
        let (first, _) = these.next()?;
        Some((first.message.text(language), these.count()))
    });
    let (first, more) = found.into_iter().flatten().next()?;
    Some(match (language, more) {
        (Language::English, 0) => format!("{first}."),
        (Language::English, 1) => format!("{first}, and one more problem."),
        (Language::English, _) => format!("{first}, and {more} more problems."),
        (Language::Japanese, 0) => format!("{first}。"),
        (Language::Japanese, _) => format!("{first}。ほかに {more} 件の問題があります。"),
    })
}

/// Returns the limits that the volumes of LIMIT_BINDS wait for, in words.
fn cause(held: &[&Condition], language: Language) -> &'static str {
    let levels: Vec<&str> = ["POOL", "VOLUME", "CLIENT"]
        .into_iter()
        .filter(|level| {
            held.iter().any(|c| {
                let by = c.details.get("boundBy").and_then(Value::as_str);
                by.is_some_and(|by| by.starts_with(level))
            })
        })
        .collect();
    let (english, japanese) = match (levels.as_slice(), held.len()) {
        (["POOL"], _) => ("for the limit of the pool", "プールの上限"),
        (["VOLUME"], 1) => ("for its own limit", "固有の上限"),
        (["VOLUME"], _) => ("each for its own limit", "それぞれの上限"),
        (["CLIENT"], _) => ("for the limit of each client", "クライアントごとの上限"),
        _ => ("for different limits", "別々の上限"),
    };
    match language {
        Language::English => english,
        Language::Japanese => japanese,
    }
}

fn sentences(conditions: &[(Condition, i64)], volumes: usize, language: Language) -> Vec<String> {
    let mut sentences: Vec<String> = problem(conditions, language).into_iter().collect();
    let held: Vec<&Condition> = conditions
        .iter()
        .map(|(condition, _)| condition)
        .filter(|c| c.kind == ConditionKind::LimitBinds)
        .collect();
    let cause = cause(&held, language);
    let quiet = sentences.is_empty();
    let more = match (language, held.len(), volumes) {
        (_, 0, _) if !quiet => None,
        (Language::English, 0, 0) => Some("There are no volumes yet.".to_owned()),
        (Language::English, 0, 1) => {
            Some("Nothing waits: the volume is within its limits.".to_owned())
        }
        (Language::English, 0, n) => Some(format!(
            "Nothing waits: all {n} volumes are within their limits."
        )),
        (Language::English, 1, _) => Some(format!("One of {volumes} volumes waits, {cause}.")),
        (Language::English, n, _) => {
            Some(format!("{} of {volumes} volumes wait, {cause}.", count(n)))
        }
        (Language::Japanese, 0, 0) => Some("ボリュームはまだありません。".to_owned()),
        (Language::Japanese, 0, n) => Some(format!("{n} 個のボリュームに待ちはありません。")),
        (Language::Japanese, n, _) => Some(format!(
            "{volumes} 個中 {n} 個のボリュームが{cause}を待っています。"
        )),
    };
    sentences.extend(more);
    sentences
}

fn stamp(secs: i64) -> String {
    Stamp::from_nanos(i128::from(secs) * 1_000_000_000).rfc3339()
}

impl Report {
    /// Returns the response of `GET /v1/conditions`.
    pub fn to_json(&self, now: i64, language: Language) -> Value {
        let conditions: Vec<Value> = self
            .conditions
            .iter()
            .map(|(condition, since)| {
                let mut shown = Map::new();
                shown.insert("kind".to_owned(), json!(condition.kind.as_str()));
                shown.insert("severity".to_owned(), json!(condition.severity.as_str()));
                shown.insert("resource".to_owned(), json!(condition.resource));
                shown.insert("since".to_owned(), json!(stamp(*since)));
                shown.insert(
                    "message".to_owned(),
                    json!(condition.message.text(language)),
                );
                shown.insert("action".to_owned(), json!(condition.action.text(language)));
                if let Some(command) = &condition.command {
                    shown.insert("command".to_owned(), json!(command));
                }
                if !condition.details.is_empty() {
                    let details = Value::Object(condition.details.clone());
                    shown.insert("details".to_owned(), details);
                }
                Value::Object(shown)
            })
            .collect();
        let worst = self.conditions.iter().map(|(c, _)| c.severity).max();
        let mut out = json!({
            "time": stamp(now),
            "headline": self.headline.text(language),
            "severity": worst.map_or("OK", Severity::as_str),
            "volumes": self.volumes,
            "volumesWaiting": self.waiting,
            "conditions": conditions,
        });
        if let (true, Some(out)) = (self.omitted > 0, out.as_object_mut()) {
            out.insert("omitted".to_owned(), json!(self.omitted));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(name: &str, by: &str) -> Condition {
        let mut held = Condition::new(
            ConditionKind::LimitBinds,
            Severity::Info,
            name,
            format!("{name} is held"),
            "",
        );
        held.details.insert("boundBy".to_owned(), json!(by));
        held
    }

    #[test]
    fn the_headline_is_the_answer() {
        let conditions = Conditions::default();
        let line = |found: Vec<Condition>, volumes| {
            conditions.update(5, found, volumes);
            conditions.report().headline.to_string()
        };
        assert_eq!(line(vec![], 0), "There are no volumes yet.");
        assert_eq!(
            line(vec![], 38),
            "Nothing waits: all 38 volumes are within their limits."
        );
        let two = vec![held("a", "VOLUME/BYTES"), held("b", "VOLUME/OPS")];
        assert_eq!(
            line(two.clone(), 38),
            "Two of 38 volumes wait, each for its own limit."
        );
        let pool = vec![held("a", "POOL/BYTES")];
        assert_eq!(
            line(pool, 3),
            "One of 3 volumes waits, for the limit of the pool."
        );
        let full = Condition::new(
            ConditionKind::VolumeFull,
            Severity::Error,
            "c",
            "c is full",
            "Delete something",
        );
        let late = Condition::new(
            ConditionKind::ReplicationLate,
            Severity::Warning,
            "d",
            "d is late",
            "",
        );
        assert_eq!(line(vec![late.clone(), full.clone()], 2), "c is full.");
        assert_eq!(
            line([two, vec![late, full]].concat(), 9),
            "c is full. Two of 9 volumes wait, each for its own limit."
        );
        assert_eq!(
            conditions.report().headline.text(Language::Japanese),
            "c is full。9 個中 2 個のボリュームがそれぞれの上限を待っています。"
        );
        let shown = conditions.report().to_json(5, Language::English);
        assert_eq!(shown["severity"], "ERROR");
        assert_eq!(shown["volumesWaiting"], 2);
        let kinds: Vec<&str> = shown["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "VOLUME_FULL",
                "REPLICATION_LATE",
                "LIMIT_BINDS",
                "LIMIT_BINDS"
            ]
        );
    }

    #[test]
    fn a_condition_keeps_its_beginning_and_a_list_its_bound() {
        let conditions = Conditions::default();
        conditions.update(100, vec![held("a", "VOLUME/BYTES")], 1);
        conditions.update(
            105,
            vec![held("a", "VOLUME/BYTES"), held("b", "POOL/OPS")],
            2,
        );
        let since: Vec<i64> = conditions.report().conditions.iter().map(|c| c.1).collect();
        assert_eq!(since, [100, 105]);
        let before = conditions.report();
        let mut more = held("a", "VOLUME/BYTES");
        more.details.insert("waitingRequests".to_owned(), json!(7));
        conditions.update(106, vec![more, held("b", "POOL/OPS")], 2);
        assert!(conditions.report().lists_as(&before));
        conditions.update(106, vec![], 2);
        assert!(!conditions.report().lists_as(&before));
        conditions.update(107, vec![held("a", "VOLUME/BYTES")], 2);
        assert_eq!(conditions.report().conditions[0].1, 107);
        let many = (0..MAX_CONDITIONS + 3).map(|n| held(&n.to_string(), "VOLUME/BYTES"));
        conditions.update(108, many.collect(), 2000);
        let shown = conditions.report().to_json(108, Language::English);
        assert_eq!(shown["omitted"], 3);
        assert_eq!(
            shown["conditions"].as_array().unwrap().len(),
            MAX_CONDITIONS
        );
        assert_eq!(shown["conditions"][0]["since"], "1970-01-01T00:01:48Z");
    }
}
