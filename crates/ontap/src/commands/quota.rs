//! `volume quota`: rules of users, groups and qtrees, whether they hold, and what is used.
//!
//! A machine has one quota policy, `default`. A rule holds once it is made: `resize` has nothing to
//! activate.

use std::collections::BTreeMap;

use weir_relations::model::Path;

use super::refusal::{argument, failed, invalid, none, not_among, refused};
use super::show::{self, Answer, Field};
use super::storage::right;
use super::volume::{path, there};
use crate::cluster::{Change, Cluster, Failure, Reason};
use crate::grammar::Parsed;
use crate::storage::{QuotaLimits, QuotaRule, QuotaState, QuotaTarget};
use crate::table::{self, Column};
use crate::value;

/// The one quota policy of a machine.
const POLICY: &str = "default";
const SIZE: &str = "{<integer>[KB|MB|GB|TB|PB]}|unlimited|-";
const FILES: &str = "<integer>[K|M|G|T]|unlimited|-";
const KIB: u64 = 1024;

/// Runs `volume quota policy rule` with this verb.
pub fn rule(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if verb == "show" {
        return show_rules(parsed, cluster);
    }
    let volume = there(path(parsed, "volume")?, cluster)?;
    policy(parsed, &volume)?;
    let of_tree = parsed.get("type") == Some("tree");
    if let Some(qtree) = parsed
        .get("qtree")
        .filter(|name| !matches!(*name, "" | "-"))
    {
        let kind = match of_tree {
            true => "\"\": the qtree is the target",
            false => "\"\": users and groups are limited in the whole volume",
        };
        return Err(invalid(qtree, "qtree", kind));
    }
    let target = match of_tree {
        true => tree(argument(parsed, "target")?, &volume, cluster)?,
        false => target(parsed)?,
    };
    let mut rules = cluster.quota_rules().into_iter();
    let known = rules.find(|rule| rule.volume == volume && rule.target == target);
    let change = match (verb, known) {
        ("create", Some(_)) => {
            return Err(failed(Failure::new(Reason::Duplicate, "duplicate entry")));
        }
        ("create", None) => Change::QuotaSet {
            volume,
            target,
            new: true,
            limits: limits(parsed, QuotaLimits::default())?,
        },
        (_, None) => return Err(none()),
        ("delete", Some(_)) => Change::QuotaRemove { volume, target },
        (_, Some(rule)) => Change::QuotaSet {
            volume,
            target,
            new: false,
            limits: limits(parsed, rule.limits)?,
        },
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

/// Refuses a quota policy other than the one that there is.
fn policy(parsed: &Parsed, volume: &Path) -> Result<(), Failure> {
    match parsed.get("policy-name") {
        None | Some(POLICY) => Ok(()),
        Some(other) => Err(failed(Failure::new(
            Reason::NotFound,
            format!(
                "Quota policy \"{other}\" does not exist for Vserver \"{}\": it has one, \"{POLICY}\".",
                volume.vserver
            ),
        ))),
    }
}

/// Returns the target of a rule for qtrees.
fn tree(name: &str, volume: &Path, cluster: &dyn Cluster) -> Result<QuotaTarget, Failure> {
    if matches!(name, "" | "*") {
        return Ok(QuotaTarget::DefaultTree);
    }
    let mut all = cluster.qtrees(Some(volume)).into_iter();
    let found = all.find(|qtree| qtree.name == name);
    let found = found.ok_or_else(|| failed(super::qtree::none_of(volume, name)))?;
    Ok(QuotaTarget::Tree(found.number))
}

/// Reads `-type` and `-target` of a rule for users or groups.
fn target(parsed: &Parsed) -> Result<QuotaTarget, Failure> {
    let (kind, name) = (argument(parsed, "type")?, argument(parsed, "target")?);
    let number = || match name {
        "root" => Ok(0),
        name => name.parse::<u32>().map_err(|_| {
            invalid(
                name,
                "target",
                "number of a user or group: names are not looked up",
            )
        }),
    };
    let default = matches!(name, "" | "*");
    match kind {
        "user" if default => Ok(QuotaTarget::DefaultUser),
        "user" => Ok(QuotaTarget::User(number()?)),
        "group" if default => Ok(QuotaTarget::DefaultGroup),
        "group" => Ok(QuotaTarget::Group(number()?)),
        other => Err(not_among(
            other,
            "type",
            "tree|user|group",
            "tree, user, group",
        )),
    }
}

/// Returns the limits that the arguments set; others are as in `now`.
fn limits(parsed: &Parsed, now: QuotaLimits) -> Result<QuotaLimits, Failure> {
    let unlimited = |text: &str| matches!(text, "-" | "unlimited");
    if let Some(text) = parsed.get("threshold").filter(|text| !unlimited(text)) {
        let kind = "-: use -soft-disk-limit, which warns as well";
        return Err(invalid(text, "threshold", kind));
    }
    if let Some(text) = parsed.get("user-mapping")
        && !matches!(text, "off" | "false" | "-")
    {
        return Err(invalid(text, "user-mapping", "off"));
    }
    let limit = |name: &str, kind: &str, unit: u64, now: u64| match parsed.get(name) {
        None => Ok(now),
        Some(text) if unlimited(text) => Ok(0),
        Some(text) => {
            let unit = match text.bytes().all(|b| b.is_ascii_digit()) {
                true => unit,
                false => 1,
            };
            let given = value::number(text).map(|n| n * unit as f64);
            let given = given.filter(|n| (1.0..9.0e18).contains(n));
            given.map_or_else(|| Err(invalid(text, name, kind)), |n| Ok(n as u64))
        }
    };
    Ok(QuotaLimits {
        bytes: limit("disk-limit", SIZE, KIB, now.bytes)?,
        soft_bytes: limit("soft-disk-limit", SIZE, KIB, now.soft_bytes)?,
        files: limit("file-limit", FILES, 1, now.files)?,
        soft_files: limit("soft-file-limit", FILES, 1, now.soft_files)?,
    })
}

/// Returns a limit of bytes; a dash for none.
fn bytes(limit: u64) -> String {
    match limit {
        0 => "-".to_owned(),
        limit => value::tidy_size(limit),
    }
}

/// Returns a limit of files; a dash for none.
fn files(limit: u64) -> String {
    match limit {
        0 => "-".to_owned(),
        limit => limit.to_string(),
    }
}

fn given(limit: u64) -> Option<u64> {
    (limit > 0).then_some(limit)
}

/// Returns the rule's user mapping: it is off, and groups have none.
fn mapping(rule: &QuotaRule) -> &'static str {
    match rule.target {
        QuotaTarget::DefaultUser | QuotaTarget::User(_) => "off",
        _ => "-",
    }
}

/// The names of qtrees, by volume and number.
type Names = BTreeMap<(Path, u32), String>;

/// Returns the names of the qtrees of all volumes.
fn names(cluster: &dyn Cluster) -> Names {
    let all = cluster.qtrees(None).into_iter();
    all.map(|q| ((q.volume, q.number), q.name)).collect()
}

/// Returns the name of a rule's target: of a qtree, its name; empty for a default.
fn name_of(rule: &QuotaRule, names: &Names) -> String {
    let named = match rule.target {
        QuotaTarget::Tree(number) => names.get(&(rule.volume.clone(), number)),
        _ => None,
    };
    named.cloned().unwrap_or_else(|| rule.target.name())
}

/// A rule with the name of its target.
struct Rule {
    rule: QuotaRule,
    target: String,
}

impl std::ops::Deref for Rule {
    type Target = QuotaRule;

    fn deref(&self) -> &QuotaRule {
        &self.rule
    }
}

const RULES: &[Field<Rule>] = &[
    Field::key("vserver", "Vserver", |r| r.volume.vserver.clone()),
    Field::key("policy-name", "Policy Name", |_| POLICY.to_owned()),
    Field::key("volume", "Volume Name", |r| r.volume.volume.clone()),
    Field::key("type", "Type", |r: &Rule| r.rule.target.kind().to_owned()),
    Field::key("target", "Target", |r: &Rule| r.target.clone()),
    Field::key("qtree", "Qtree Name", |_| String::new()),
    Field::new("user-mapping", "User Mapping", |r| mapping(r).to_owned()),
    Field::new("disk-limit", "Disk Limit", |r: &Rule| bytes(r.limits.bytes))
        .exact(|r| given(r.limits.bytes)),
    Field::new("file-limit", "Files Limit", |r: &Rule| {
        files(r.limits.files)
    }),
    Field::new("threshold", "Threshold for Disk Limit", |_| "-".to_owned()),
    Field::new("soft-disk-limit", "Soft Disk Limit", |r: &Rule| {
        bytes(r.limits.soft_bytes)
    })
    .exact(|r| given(r.limits.soft_bytes)),
    Field::new("soft-file-limit", "Soft Files Limit", |r: &Rule| {
        files(r.limits.soft_files)
    }),
];

/// Heading of the rules of a volume, and the columns below it.
const RULES_HEADING: &str = "                                               Soft             Soft
                         User         Disk     Disk   Files    Files
Type   Target    Qtree   Mapping     Limit    Limit   Limit    Limit  Threshold
-----  --------  ------- -------  --------  -------  ------  -------  ---------
";
const RULES_COLUMNS: &[Column] = &[
    Column::new(&["Type"], 6),
    Column::new(&["Target"], 9),
    Column::new(&["Qtree"], 7),
    Column::new(&["Mapping"], 8),
    Column::new(&["Disk"], 9),
    Column::new(&["Soft"], 8),
    Column::new(&["Files"], 7),
    Column::new(&["Soft"], 8),
    Column::new(&["Threshold"], 9),
];

/// Runs `volume quota policy rule show`: a table a volume.
fn show_rules(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let keys = ["vserver", "volume", "type", "target"];
    let names = names(cluster);
    let rules = cluster.quota_rules().into_iter().map(|rule| Rule {
        target: name_of(&rule, &names),
        rule,
    });
    show::print(RULES, parsed, rules.collect(), &keys, |all| {
        let row = |r: &Rule| {
            let quoted = |text: String| match text.is_empty() {
                true => "\"\"".to_owned(),
                false => text,
            };
            vec![
                r.rule.target.kind().to_owned(),
                quoted(r.target.clone()),
                quoted(String::new()),
                mapping(r).to_owned(),
                right(&bytes(r.limits.bytes), 8),
                right(&bytes(r.limits.soft_bytes), 7),
                right(&files(r.limits.files), 6),
                right(&files(r.limits.soft_files), 7),
                right("-", 9),
            ]
        };
        let heading = |r: &Rule| {
            let vserver = format!("Vserver: {}", r.volume.vserver);
            let policy = format!("Policy: {POLICY}");
            let volume = &r.volume.volume;
            format!("{vserver:<26} {policy:<25} Volume: {volume}\n\n{RULES_HEADING}")
        };
        grouped(all, |r| r.volume.clone(), heading, RULES_COLUMNS, row)
    })
}

/// Returns tables with a heading each: records beside each other with the same key are in one.
fn grouped<T, K: PartialEq>(
    all: &[T],
    key: impl Fn(&T) -> K,
    heading: impl Fn(&T) -> String,
    columns: &[Column],
    row: impl Fn(&T) -> Vec<String>,
) -> String {
    let mut out = String::new();
    let mut above: Option<K> = None;
    for record in all {
        let of = Some(key(record));
        if above != of {
            if above.is_some() {
                out.push('\n');
            }
            out.push_str(&heading(record));
            above = of;
        }
        out.push_str(&table::plain(columns, &[row(record)]));
    }
    if all.len() > 1 {
        out.push_str(&format!("{} entries were displayed.\n", all.len()));
    }
    out
}

/// A line of the report: a default rule, or a user, a group or a qtree with its usage.
struct Line {
    rule: QuotaRule,
    used_bytes: u64,
    used_files: u64,
    /// The name of the qtree; empty if it is about none.
    tree: String,
    /// Its place among the lines of its volume, from 0.
    index: u64,
    /// The rule that its limits are from; `-`: none.
    specifier: String,
}

impl Line {
    /// Returns the target as the report has it: `*` is a default rule.
    fn id(&self) -> String {
        match self.rule.target {
            QuotaTarget::User(0) | QuotaTarget::Group(0) => "root".to_owned(),
            target => Some(target.name())
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "*".to_owned()),
        }
    }
}

/// Returns the lines of all volumes whose quotas hold: of each volume its default rules, then who
/// has usage or limits.
fn lines(cluster: &dyn Cluster) -> Vec<Line> {
    let states = cluster.quota_states();
    let rules = cluster.quota_rules();
    let names = names(cluster);
    let is_on = |volume: &Path| states.get(volume) == Some(&QuotaState::On);
    let defaults = rules.iter().filter(|rule| rule.target.is_default());
    let mut all: BTreeMap<(Path, QuotaTarget), Line> = BTreeMap::new();
    let mut add = |rule: QuotaRule, used_bytes, used_files| {
        let of = |target| {
            let found = rules
                .iter()
                .any(|r| r.volume == rule.volume && r.target == target);
            found.then_some(target)
        };
        let default = match rule.target {
            QuotaTarget::User(0) | QuotaTarget::Group(0) => None,
            QuotaTarget::User(_) => of(QuotaTarget::DefaultUser),
            QuotaTarget::Group(_) => of(QuotaTarget::DefaultGroup),
            QuotaTarget::Tree(_) => of(QuotaTarget::DefaultTree),
            _ => None,
        };
        let specifier = match of(rule.target).or(default) {
            Some(own) if own.is_default() => "*".to_owned(),
            Some(_) => name_of(&rule, &names),
            None => "-".to_owned(),
        };
        let tree = match rule.target {
            QuotaTarget::Tree(_) => name_of(&rule, &names),
            _ => String::new(),
        };
        let line = Line {
            tree,
            used_bytes,
            used_files,
            index: 0,
            specifier,
            rule,
        };
        all.insert((line.rule.volume.clone(), line.rule.target), line);
    };
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
            Some((volume, index)) if *volume == line.rule.volume => index + 1,
            _ => 0,
        };
        above = Some((line.rule.volume.clone(), line.index));
    }
    all
}

/// Runs `volume quota report`.
pub fn report(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const FIELDS: &[Field<Line>] = &[
        Field::key("vserver", "Vserver", |l| l.rule.volume.vserver.clone()),
        Field::key("volume", "Volume Name", |l| l.rule.volume.volume.clone()),
        Field::key("index", "Index", |l: &Line| l.index.to_string()).ordered(|l| l.index),
        Field::new("tree", "Tree Name", |l| l.tree.clone()),
        Field::new("quota-type", "Quota Type", |l: &Line| {
            l.rule.target.kind().to_owned()
        }),
        Field::new("quota-target", "Quota Target", Line::id),
        Field::sized("disk-used", "Disk Space Used", |l| l.used_bytes),
        Field::new("disk-limit", "Disk Space Limit", |l: &Line| {
            bytes(l.rule.limits.bytes)
        })
        .exact(|l| given(l.rule.limits.bytes)),
        Field::counted("files-used", "Files Used", |l| l.used_files),
        Field::new("file-limit", "Files Limit", |l: &Line| {
            files(l.rule.limits.files)
        }),
        Field::new("soft-disk-limit", "Soft Disk Space Limit", |l: &Line| {
            bytes(l.rule.limits.soft_bytes)
        })
        .exact(|l| given(l.rule.limits.soft_bytes)),
        Field::new("soft-file-limit", "Soft Files Limit", |l: &Line| {
            files(l.rule.limits.soft_files)
        }),
        Field::new("threshold", "Threshold for Disk Space", |_| "-".to_owned()),
        Field::new("quota-specifier", "Quota Specifier", |l: &Line| {
            l.specifier.clone()
        }),
    ];
    const HEADING: &str = "                                    ----Disk----  ----Files-----   Quota
Volume   Tree      Type    ID        Used  Limit    Used   Limit   Specifier
-------  --------  ------  -------  -----  -----  ------  ------   ---------
";
    const COLUMNS: &[Column] = &[
        Column::grouping(&["Volume"], 8),
        Column::new(&["Tree"], 9),
        Column::new(&["Type"], 7),
        Column::new(&["ID"], 8),
        Column::new(&["Used"], 6),
        Column::new(&["Limit"], 6),
        Column::new(&["Used"], 7),
        Column::new(&["Limit"], 8),
        Column::new(&["Specifier"], 9),
    ];
    let keys = ["vserver", "volume", "index"];
    show::print(FIELDS, parsed, lines(cluster), &keys, |all| {
        let row = |l: &Line| {
            vec![
                l.rule.volume.volume.clone(),
                l.tree.clone(),
                l.rule.target.kind().to_owned(),
                l.id(),
                right(&value::tidy_size(l.used_bytes), 5),
                right(&bytes(l.rule.limits.bytes), 5),
                right(&l.used_files.to_string(), 6),
                right(&files(l.rule.limits.files), 6),
                l.specifier.clone(),
            ]
        };
        let heading = |l: &Line| format!("Vserver: {}\n{HEADING}", l.rule.volume.vserver);
        let machine = |l: &Line| l.rule.volume.vserver.clone();
        grouped(all, machine, heading, COLUMNS, row)
    })
}

/// A volume with the state of its quotas.
struct Quotas {
    volume: Path,
    state: QuotaState,
}

/// Runs `volume quota show`: all volumes, with the state of their quotas.
pub fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const STATE: fn(&Quotas) -> String = |q| {
        let state = match q.state {
            QuotaState::Off => "off",
            QuotaState::Initializing => "initializing",
            QuotaState::On => "on",
        };
        state.to_owned()
    };
    const FIELDS: &[Field<Quotas>] = &[
        Field::key("vserver", "Vserver Name", |q| q.volume.vserver.clone()),
        Field::key("volume", "Volume Name", |q| q.volume.volume.clone()),
        Field::new("state", "Quota State", STATE),
        Field::new("scan-status", "Scan Status", |_| "-".to_owned()),
        Field::new("sub-status", "Sub Quota Status", |_| "-".to_owned()),
        Field::new("last-quota-error", "Last Quota Error Message", |_| {
            "-".to_owned()
        }),
        Field::new("quota-errors", "Collection of Quota Errors", |_| {
            "-".to_owned()
        }),
    ];
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 10),
        Column::new(&["Volume"], 13),
        Column::new(&["State"], 16),
        Column::new(&["Scan", "Status"], 6),
    ];
    let mut states = cluster.quota_states();
    let volumes = cluster.volumes().into_iter();
    let all = volumes.map(|v| Quotas {
        state: states.remove(&v.path).unwrap_or(QuotaState::Off),
        volume: v.path,
    });
    let keys = ["vserver", "volume"];
    show::print(FIELDS, parsed, all.collect(), &keys, |all| {
        let row = |q: &Quotas| {
            let volume = &q.volume;
            let (vserver, volume) = (volume.vserver.clone(), volume.volume.clone());
            vec![vserver, volume, STATE(q), right("-", 6)]
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}

/// Runs `volume quota on`, `off`, `resize`, and `modify` with one of these as its `-state`.
pub fn switch(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let volume = there(path(parsed, "volume")?, cluster)?;
    let verb = match verb {
        "modify" => argument(parsed, "state")?,
        verb => verb,
    };
    let foreground = parsed.get("foreground").unwrap_or("false");
    if !matches!(foreground, "true" | "false") {
        return Err(invalid(foreground, "foreground", "true|false"));
    }
    let object = format!(
        "volume \"{}\" in Vserver \"{}\"",
        volume.volume, volume.vserver
    );
    let has_rules = |volume: &Path| cluster.quota_rules().iter().any(|r| r.volume == *volume);
    match verb {
        "on" if !has_rules(&volume) => {
            return Err(failed(Failure::new(
                Reason::State,
                format!("No valid quota rules found in quota policy {POLICY} for {object}."),
            )));
        }
        "on" | "off" => {
            let on = verb == "on";
            cluster
                .change(Change::QuotasOn { volume, on })
                .map_err(failed)?;
        }
        "resize" => {
            let state = cluster.quota_states().get(&volume).copied();
            if state.is_none_or(|state| state == QuotaState::Off) {
                return Err(failed(Failure::new(
                    Reason::State,
                    format!(
                        "Quotas are off for {object}: switch them on (\"volume quota on\") instead of resizing them."
                    ),
                )));
            }
        }
        other => return Err(refused(state_refusal(other))),
    }
    Ok(format!(
        "Operation succeeded: \"quota {verb}\" performed for quota policy \"{POLICY}\" on {object}.\n"
    )
    .into())
}

fn state_refusal(given: &str) -> String {
    invalid(given, "state", "on|off|resize").message
}
