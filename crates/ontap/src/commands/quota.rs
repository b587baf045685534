//! `volume quota`: rules of users, groups and qtrees, whether they hold, and what is used.
//!
//! A machine has one quota policy, `default`. A rule holds once it is made: `resize` has nothing to
//! activate.

use weir_relations::model::Path;

use super::show::{self, Answer};
use super::storage::right;
use super::volume::{path, there};
use crate::cluster::{Change, Cluster, Failure, Reason};
use crate::fields::quota::{self, Draft, FIELDS, Line, POLICY, REPORT, Row};
use crate::fields::{self, Field, Way, rows};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, invalid, none, not_among, refused};
use crate::storage::{QuotaLimits, QuotaState, QuotaTarget};
use crate::table::{self, Column};
use crate::value;

/// Runs `volume quota policy rule` with this verb.
pub fn rule(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
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
            limits: limits(parsed, QuotaLimits::default(), cluster)?,
        },
        (_, None) => return Err(none()),
        ("delete", Some(_)) => Change::QuotaRemove { volume, target },
        (_, Some(rule)) => Change::QuotaSet {
            volume,
            target,
            new: false,
            limits: limits(parsed, rule.limits, cluster)?,
        },
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new().into())
}

/// Refuses a quota policy other than the one that there is.
fn policy(parsed: &ParsedCommand, volume: &Path) -> Result<(), Failure> {
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
fn target(parsed: &ParsedCommand) -> Result<QuotaTarget, Failure> {
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
fn limits(
    parsed: &ParsedCommand,
    now: QuotaLimits,
    cluster: &dyn Cluster,
) -> Result<QuotaLimits, Failure> {
    let mut draft = Draft::default();
    fields::read(
        &quota::TABLE,
        parsed,
        Way::Modify,
        &mut draft,
        cluster,
        None,
    )?;
    Ok(draft.limits(now))
}

/// Heading of the rules of a volume, and the columns below it.
const RULES_HEADING: &str = "                                               Soft             Soft
                         User         Disk     Disk   Files    Files
Type   Target    Qtree   Mapping     Limit    Limit   Limit    Limit  Threshold
-----  --------  ------- -------  --------  -------  ------  -------  ---------
";
const RULES_COLUMNS: &[Column] = &[
    Column::new(&["Type"], 6).with_field("type"),
    Column::new(&["Target"], 9).with_field("target"),
    Column::new(&["Qtree"], 7).with_field("qtree"),
    Column::new(&["Mapping"], 8).with_field("user-mapping"),
    Column::new(&["Disk"], 9).with_field("disk-limit"),
    Column::new(&["Soft"], 8).with_field("soft-disk-limit"),
    Column::new(&["Files"], 7).with_field("file-limit"),
    Column::new(&["Soft"], 8).with_field("soft-file-limit"),
    Column::new(&["Threshold"], 9).with_field("threshold"),
];

/// Runs `volume quota policy rule show`: a table a volume.
fn show_rules(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    let keys = ["vserver", "volume", "type", "target"];
    show::print(FIELDS, parsed, quota::rows(cluster), &keys, |all| {
        let row = |r: &Row| {
            let cells = show::cells(FIELDS, RULES_COLUMNS, r).into_iter();
            let shown = cells
                .zip(RULES_COLUMNS)
                .map(|(cell, column)| match column.field {
                    _ if cell.is_empty() => "\"\"".to_owned(),
                    // Numbers end a blank before the next column.
                    "disk-limit" | "soft-disk-limit" | "file-limit" | "soft-file-limit" => {
                        right(&cell, column.width - 1)
                    }
                    "threshold" => right(&cell, column.width),
                    _ => cell,
                });
            shown.collect()
        };
        let heading = |r: &Row| {
            let vserver = format!("Vserver: {}", r.rule.volume.vserver);
            let policy = format!("Policy: {POLICY}");
            let volume = &r.rule.volume.volume;
            format!("{vserver:<26} {policy:<25} Volume: {volume}\n\n{RULES_HEADING}")
        };
        grouped(all, |r| r.rule.volume.clone(), heading, RULES_COLUMNS, row)
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

/// Runs `volume quota report`.
pub fn report(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const HEADING: &str = "                                    ----Disk----  ----Files-----   Quota
Volume   Tree      Type    ID        Used  Limit    Used   Limit   Specifier
-------  --------  ------  -------  -----  -----  ------  ------   ---------
";
    const COLUMNS: &[Column] = &[
        Column::grouping(&["Volume"], 8).with_field("volume"),
        Column::new(&["Tree"], 9).with_field("tree"),
        Column::new(&["Type"], 7).with_field("quota-type"),
        Column::new(&["ID"], 8).with_field("quota-target"),
        Column::new(&["Used"], 6),
        Column::new(&["Limit"], 6).with_field("disk-limit"),
        Column::new(&["Used"], 7).with_field("files-used"),
        Column::new(&["Limit"], 8).with_field("file-limit"),
        Column::new(&["Specifier"], 9).with_field("quota-specifier"),
    ];
    let keys = ["vserver", "volume", "index"];
    show::print(REPORT, parsed, quota::lines(cluster), &keys, |all| {
        let row = |l: &Line| {
            let mut cells = show::cells(REPORT, COLUMNS, l);
            let used = value::tidy_size(l.used_bytes);
            for (at, width) in [(4, 5), (5, 5), (6, 6), (7, 6)] {
                if let Some(cell) = cells.get_mut(at) {
                    let text = if at == 4 { &used } else { &*cell };
                    *cell = right(text, width);
                }
            }
            cells
        };
        let heading = |l: &Line| format!("Vserver: {}\n{HEADING}", l.of.rule.volume.vserver);
        let machine = |l: &Line| l.of.rule.volume.vserver.clone();
        grouped(all, machine, heading, COLUMNS, row)
    })
}

/// A volume with the state of its quotas.
pub(super) struct Quotas {
    volume: Path,
    state: QuotaState,
}

/// Fields of the state of a volume's quotas.
pub(super) const STATES: &[Field<Quotas>] = rows! {
    Field::<Quotas>::column("vserver", "Vserver Name", |q| q.volume.vserver.clone().into()).key(),
    Field::<Quotas>::column("volume", "Volume Name", |q| q.volume.volume.clone().into()).key(),
    Field::<Quotas>::column("state", "Quota State", |q: &Quotas| q.state.word().into()),
    Field::<Quotas>::always("", "scan-status", "Scan Status", "-"),
    Field::<Quotas>::always("", "sub-status", "Sub Quota Status", "-"),
    Field::<Quotas>::always("", "last-quota-error", "Last Quota Error Message", "-"),
    Field::<Quotas>::always("", "quota-errors", "Collection of Quota Errors", "-"),
};

/// Runs `volume quota show`: all volumes, with the state of their quotas.
pub fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 10).with_field("vserver"),
        Column::new(&["Volume"], 13).with_field("volume"),
        Column::new(&["State"], 16).with_field("state"),
        Column::new(&["Scan", "Status"], 6)
            .with_field("scan-status")
            .right(),
    ];
    let mut states = cluster.quota_states();
    let volumes = cluster.volumes().into_iter();
    let all = volumes.map(|v| Quotas {
        state: states.remove(&v.path).unwrap_or(QuotaState::Off),
        volume: v.path,
    });
    show::list(
        STATES,
        parsed,
        all.collect(),
        &["vserver", "volume"],
        COLUMNS,
    )
}

/// Runs `volume quota on`, `off`, `resize`, and `modify` with one of these as its `-state`.
pub fn switch(
    verb: &str,
    parsed: &ParsedCommand,
    cluster: &dyn Cluster,
) -> Result<Answer, Failure> {
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
