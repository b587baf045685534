//! Quota rules, and what those whom they limit use.

use std::collections::BTreeMap;

use weir_relations::model::Path;

use super::value::{identity, text};
use super::{Field, Input, Kind, Table, Value};
use crate::cluster::Cluster;
use crate::storage::{QuotaLimits, QuotaRule, QuotaState, QuotaTarget};
use crate::value;

/// The one quota policy of a machine.
pub const POLICY: &str = "default";

/// The names of qtrees by volume and number, and the identities of volumes.
struct Names {
    qtrees: BTreeMap<(Path, u32), String>,
    volumes: BTreeMap<Path, String>,
}

impl Names {
    fn read(cluster: &dyn Cluster) -> Names {
        let qtrees = cluster.qtrees(None).into_iter();
        let volumes = cluster.volumes().into_iter();
        Names {
            qtrees: qtrees.map(|q| ((q.volume, q.number), q.name)).collect(),
            volumes: volumes.map(|v| (v.path, v.uuid)).collect(),
        }
    }

    /// Returns a rule with the names in it.
    fn row(&self, rule: QuotaRule) -> Row {
        let target = match rule.target {
            QuotaTarget::Tree(number) => self.qtrees.get(&(rule.volume.clone(), number)).cloned(),
            _ => None,
        };
        Row {
            target: target.unwrap_or_else(|| rule.target.name()),
            volume: self.volumes.get(&rule.volume).cloned(),
            rule,
        }
    }
}

/// A rule with the names in it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The rule.
    pub rule: QuotaRule,
    /// The name of its target: of a qtree, its name; empty for a default.
    pub target: String,
    /// The identity of its volume.
    pub volume: Option<String>,
}

impl Row {
    /// Returns its identity, which follows from its target.
    fn uuid(&self) -> String {
        let QuotaRule { volume, target, .. } = &self.rule;
        let (kind, name) = (target.kind(), target.name());
        value::identity(
            "quota",
            &format!("{}:{} {kind} {name}", volume.vserver, volume.volume),
        )
    }

    /// Returns the users that it limits. One that is known by number has no name in a rule of
    /// ONTAP's.
    fn users(&self) -> Value {
        let user = match self.rule.target {
            QuotaTarget::User(_) => ("id", text(&self.target)),
            QuotaTarget::DefaultUser => ("name", text("")),
            _ => return Value::None,
        };
        Value::List(vec![Value::Object(vec![user])])
    }

    fn group(&self) -> Value {
        match self.rule.target {
            QuotaTarget::Group(_) | QuotaTarget::DefaultGroup => text(&self.target),
            _ => Value::None,
        }
    }

    fn qtree(&self) -> Value {
        match self.rule.target {
            QuotaTarget::Tree(_) | QuotaTarget::DefaultTree => text(&self.target),
            _ => Value::None,
        }
    }

    fn number(&self) -> Value {
        match self.rule.target {
            QuotaTarget::Tree(number) => number.into(),
            _ => Value::None,
        }
    }

    /// Returns its user mapping: it is off, and groups have none.
    fn mapping(&self) -> Value {
        let line = match self.rule.target {
            QuotaTarget::DefaultUser | QuotaTarget::User(_) => "off",
            _ => "-",
        };
        Value::Apart(line.to_owned(), Box::new(Value::Flag(false)))
    }
}

/// Returns all rules, by volume and target.
pub fn rows(cluster: &dyn Cluster) -> Vec<Row> {
    let names = Names::read(cluster);
    let all = cluster.quota_rules().into_iter();
    all.map(|rule| names.row(rule)).collect()
}

/// Returns the record of a rule.
pub fn row(rule: QuotaRule, cluster: &dyn Cluster) -> Row {
    Names::read(cluster).row(rule)
}

/// A rule that is made or changed: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    bytes: Option<u64>,
    soft_bytes: Option<u64>,
    files: Option<u64>,
    soft_files: Option<u64>,
}

impl Draft {
    /// Returns the limits; those that were not given are as in `now`.
    pub fn limits(&self, now: QuotaLimits) -> QuotaLimits {
        QuotaLimits {
            bytes: self.bytes.unwrap_or(now.bytes),
            soft_bytes: self.soft_bytes.unwrap_or(now.soft_bytes),
            files: self.files.unwrap_or(now.files),
            soft_files: self.soft_files.unwrap_or(now.soft_files),
        }
    }
}

/// Returns a limit as a draft has it: 0 is none.
fn limit(given: Input) -> Option<u64> {
    Some(given.number().unwrap_or(0))
}

/// Returns a limit of bytes; 0 is none.
fn bytes(limit: u64) -> Value {
    Some(limit)
        .filter(|limit| *limit > 0)
        .map(Value::Capacity)
        .into()
}

/// Returns a limit of files; 0 is none.
fn files(limit: u64) -> Value {
    Some(limit).filter(|limit| *limit > 0).into()
}

const BYTES: Kind = Kind::Limit(1024);
const FILES: Kind = Kind::Limit(1);

type F = Field<Row, Draft>;

/// The fields of rules.
pub const FIELDS: &[F] = rows! {
    F::new("svm.name", "vserver", "Vserver", |r| text(&r.rule.volume.vserver)).key()
        .creates(Kind::Nested, |_, _| {}),
    F::always("", "policy-name", "Policy Name", POLICY).key().optional(),
    F::new("volume.name", "volume", "Volume Name", |r| text(&r.rule.volume.volume)).key()
        .creates(Kind::Nested, |_, _| {}),
    F::new("type", "type", "Type", |r| text(r.rule.target.kind())).key()
        .creates(Kind::Words("tree|user|group"), |_, _| {}),
    F::column("target", "Target", |r: &Row| text(&r.target)).key(),
    F::column("qtree", "Qtree Name", |_| text("")).key().optional(),
    F::new("user_mapping", "user-mapping", "User Mapping", Row::mapping).only("off|false|-"),
    F::new("space.hard_limit", "disk-limit", "Disk Limit", |r| bytes(r.rule.limits.bytes))
        .sets(BYTES, |d, v| d.bytes = limit(v)),
    F::new("files.hard_limit", "file-limit", "Files Limit", |r| files(r.rule.limits.files))
        .sets(FILES, |d, v| d.files = limit(v)),
    F::fixed("", "threshold", "Threshold for Disk Limit", "-|unlimited")
        .why("use -soft-disk-limit, which warns as well"),
    F::new("space.soft_limit", "soft-disk-limit", "Soft Disk Limit",
        |r| bytes(r.rule.limits.soft_bytes)).sets(BYTES, |d, v| d.soft_bytes = limit(v)),
    F::new("files.soft_limit", "soft-file-limit", "Soft Files Limit",
        |r| files(r.rule.limits.soft_files)).sets(FILES, |d, v| d.soft_files = limit(v)),
    F::rest("uuid", |r| text(r.uuid())),
    F::rest("svm.uuid", |r| identity("svm", &r.rule.volume.vserver))
        .creates(Kind::Nested, |_, _| {}),
    F::rest("volume.uuid", |r| r.volume.clone().into()).creates(Kind::Nested, |_, _| {}),
    F::rest("users", Row::users).parts(&["name", "id"]).creates(Kind::Nested, |_, _| {}),
    F::rest("group.name", Row::group).creates(Kind::Nested, |_, _| {}),
    F::rest("group.id", Row::group).creates(Kind::Nested, |_, _| {}),
    F::rest("qtree.name", Row::qtree).creates(Kind::Nested, |_, _| {}),
    F::rest("qtree.id", Row::number).creates(Kind::Nested, |_, _| {}),
    // There without any limit, too.
    F::rest("space", |_| Value::Object(Vec::new())),
    F::rest("files", |_| Value::Object(Vec::new())),
};

/// The resource of rules.
pub const TABLE: Table<Row, Draft> = Table {
    path: "storage/quota/rules",
    command: &["volume", "quota", "policy", "rule"],
    fields: FIELDS,
    absent: &[],
    keys: &["uuid"],
    order: &["svm.name", "volume.name", "type", "uuid"],
    ids: |r| vec![r.uuid()],
    why: "",
};

/// A line of the report: a default rule, or a user, a group or a qtree with its usage.
#[derive(Clone, Debug)]
pub struct Line {
    /// The target with its limits.
    pub of: Row,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// Files that it has.
    pub used_files: u64,
    /// Its place among the lines of its volume, from 0.
    pub index: u64,
    /// The rule that its limits are from; `-`: none.
    pub specifier: String,
}

impl Line {
    /// Returns the target as the report has it: `*` is a default rule.
    fn id(&self) -> Value {
        match self.of.rule.target {
            QuotaTarget::User(0) | QuotaTarget::Group(0) => text("root"),
            target if target.is_default() => text("*"),
            target => text(target.name()),
        }
    }

    fn tree(&self) -> Value {
        match self.of.rule.target {
            QuotaTarget::Tree(_) => text(&self.of.target),
            _ => text(""),
        }
    }
}

/// Returns what is used of a limit, in percent.
fn percent(used: u64, limit: u64) -> Value {
    let some = Some(limit).filter(|limit| *limit > 0);
    some.map(|limit| value::part(used, limit)).into()
}

/// Returns the lines of all volumes whose quotas hold: of each volume its default rules, then who
/// has usage or limits.
pub fn lines(cluster: &dyn Cluster) -> Vec<Line> {
    let states = cluster.quota_states();
    let rules = cluster.quota_rules();
    let names = Names::read(cluster);
    let is_on = |volume: &Path| states.get(volume) == Some(&QuotaState::On);
    let mut all: BTreeMap<(Path, QuotaTarget), Line> = BTreeMap::new();
    let mut add = |rule: QuotaRule, used_bytes, used_files| {
        let has = |target: &QuotaTarget| {
            let mut all = rules.iter();
            all.any(|r| r.volume == rule.volume && r.target == *target)
        };
        let default = match rule.target {
            QuotaTarget::User(0) | QuotaTarget::Group(0) => None,
            QuotaTarget::User(_) => Some(QuotaTarget::DefaultUser),
            QuotaTarget::Group(_) => Some(QuotaTarget::DefaultGroup),
            QuotaTarget::Tree(_) => Some(QuotaTarget::DefaultTree),
            _ => None,
        };
        let source = Some(rule.target).filter(has).or(default.filter(has));
        let of = names.row(rule);
        let specifier = match source {
            Some(source) if source.is_default() => "*".to_owned(),
            Some(_) => of.target.clone(),
            None => "-".to_owned(),
        };
        let key = (of.rule.volume.clone(), of.rule.target);
        let line = Line {
            of,
            used_bytes,
            used_files,
            index: 0,
            specifier,
        };
        all.insert(key, line);
    };
    let defaults = rules.iter().filter(|rule| rule.target.is_default());
    for rule in defaults.filter(|rule| is_on(&rule.volume)) {
        add(rule.clone(), 0, 0);
    }
    for held in cluster.quota_report() {
        add(held.rule, held.used_bytes, held.used_files);
    }
    let mut all: Vec<Line> = all.into_values().collect();
    let mut above: Option<(Path, u64)> = None;
    for line in &mut all {
        line.index = match &above {
            Some((volume, index)) if *volume == line.of.rule.volume => index + 1,
            _ => 0,
        };
        above = Some((line.of.rule.volume.clone(), line.index));
    }
    all
}

type L = Field<Line>;

/// The fields of the report.
pub const REPORT: &[L] = rows! {
    L::new("svm.name", "vserver", "Vserver", |l| text(&l.of.rule.volume.vserver)).key(),
    L::new("volume.name", "volume", "Volume Name", |l| text(&l.of.rule.volume.volume)).key(),
    L::new("index", "index", "Index", |l| l.index.into()).key().ordered(|l| l.index),
    L::column("tree", "Tree Name", Line::tree),
    L::new("type", "quota-type", "Quota Type", |l| text(l.of.rule.target.kind())),
    L::column("quota-target", "Quota Target", Line::id),
    L::new("space.used.total", "disk-used", "Disk Space Used", |l| Value::Bytes(l.used_bytes)),
    L::new("space.hard_limit", "disk-limit", "Disk Space Limit", |l| bytes(l.of.rule.limits.bytes)),
    L::new("files.used.total", "files-used", "Files Used", |l| l.used_files.into()),
    L::new("files.hard_limit", "file-limit", "Files Limit", |l| files(l.of.rule.limits.files)),
    L::new("space.soft_limit", "soft-disk-limit", "Soft Disk Space Limit",
        |l| bytes(l.of.rule.limits.soft_bytes)),
    L::new("files.soft_limit", "soft-file-limit", "Soft Files Limit",
        |l| files(l.of.rule.limits.soft_files)),
    L::always("", "threshold", "Threshold for Disk Space", "-"),
    L::new("specifier", "quota-specifier", "Quota Specifier", |l| text(&l.specifier)),
    L::rest("svm.uuid", |l| identity("svm", &l.of.rule.volume.vserver)),
    L::rest("volume.uuid", |l| l.of.volume.clone().into()),
    L::rest("users", |l| l.of.users()).parts(&["name", "id"]),
    L::rest("group.name", |l| l.of.group()),
    L::rest("group.id", |l| l.of.group()),
    L::rest("qtree.name", Line::tree),
    L::rest("qtree.id", |l| match l.of.rule.target {
        QuotaTarget::DefaultTree => Value::None,
        QuotaTarget::Tree(number) => number.into(),
        _ => Value::Number(0),
    }),
    L::rest("space.used.hard_limit_percent", |l| percent(l.used_bytes, l.of.rule.limits.bytes)),
    L::rest("space.used.soft_limit_percent",
        |l| percent(l.used_bytes, l.of.rule.limits.soft_bytes)),
    L::rest("files.used.hard_limit_percent", |l| percent(l.used_files, l.of.rule.limits.files)),
    L::rest("files.used.soft_limit_percent",
        |l| percent(l.used_files, l.of.rule.limits.soft_files)),
};

/// The resource of the report.
pub const REPORTS: Table<Line> = Table {
    path: "storage/quota/reports",
    command: &["volume", "quota", "report"],
    fields: REPORT,
    absent: &[],
    keys: &["index"],
    order: &["svm.name", "volume.name", "type", "index"],
    ids: |l| vec![l.of.volume.clone().unwrap_or_default(), l.index.to_string()],
    why: "",
};
