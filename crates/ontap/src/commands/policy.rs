//! `snapmirror policy`.

use weir_relations::model::PolicyKind;

use super::show::{self, Answer};
use crate::cluster::{Cluster, Failure, Reason};
use crate::fields::mirror_policy::{Draft, FIELDS, Row, TABLE, rows};
use crate::fields::{self, Way};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, failed, invalid, none, not_among};
use crate::table::{self, Column};

use weir_relations::manager::Verb;

/// Runs a verb of `snapmirror policy`.
pub fn run(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let name = argument(parsed, "policy")?.to_owned();
    if verb == "create" {
        let draft = draft(parsed, Way::Create, cluster)?;
        let create = Verb::PolicyCreate {
            name,
            kind: draft.kind.unwrap_or(PolicyKind::AsyncMirror),
            comment: draft.comment.unwrap_or_default(),
            compression: draft.compression.unwrap_or(false),
            rules: Vec::new(),
        };
        cluster.change(create.into()).map_err(failed)?;
        return Ok(String::new().into());
    }
    let policies = cluster.policies();
    let policy = policies.iter().find(|p| p.name == name).ok_or_else(none)?;
    let rule = |label: &str| policy.rules.iter().any(|rule| rule.label == label);
    let change = match verb {
        "delete" => Verb::PolicyDelete(name),
        "modify" => {
            let draft = draft(parsed, Way::Modify, cluster)?;
            Verb::PolicyModify {
                name,
                comment: draft.comment,
                compression: draft.compression,
                rules: None,
            }
        }
        _ => {
            let label = argument(parsed, "snapmirror-label")?.to_owned();
            match (verb, rule(&label)) {
                ("add-rule", true) => {
                    return Err(failed(Failure::new(Reason::Duplicate, "duplicate entry")));
                }
                ("modify-rule" | "remove-rule", false) => return Err(none()),
                _ => {}
            }
            let preserve = flag(parsed, "preserve")?;
            let keep = match (verb, parsed.get("keep")) {
                ("remove-rule", _) | (_, None) => None,
                (_, Some(text)) => {
                    let keep = text.parse().ok().filter(|keep| KEEP.contains(keep));
                    Some(keep.ok_or_else(|| {
                        let valid = format!("{} to {}", KEEP.start(), KEEP.end());
                        not_among(text, "keep", "text", &valid)
                    })?)
                }
            };
            let text = |name: &str| {
                let given = parsed.get(name);
                given.map(|text| Some(text.to_owned()).filter(|text| text != "-"))
            };
            Verb::PolicyRule {
                name,
                label,
                keep,
                preserve,
                schedule: text("schedule"),
                prefix: text("prefix"),
            }
        }
    };
    cluster.change(change.into()).map_err(failed)?;
    Ok(String::new().into())
}

/// Numbers of snapshots that a rule may keep: ONTAP's 1,019 are what a volume may have there.
pub const KEEP: std::ops::RangeInclusive<u32> = 1..=1019;

/// Returns what the arguments set.
fn draft(parsed: &ParsedCommand, way: Way, cluster: &dyn Cluster) -> Result<Draft, Failure> {
    let mut draft = Draft::default();
    fields::read(&TABLE, parsed, way, &mut draft, cluster, None)?;
    Ok(draft)
}

fn flag(parsed: &ParsedCommand, name: &str) -> Result<Option<bool>, Failure> {
    match parsed.get(name) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(invalid(other, name, "true|false")),
    }
}

fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::grouping(&["Vserver", "Name"], 7).with_field("vserver"),
        Column::new(&["Policy", "Name"], 18).with_field("policy"),
        Column::new(&["Policy", "Type"], 12).with_field("type"),
        Column::new(&["Number", "Of Rules"], 8),
        Column::new(&["Rules"], 40).with_field("rules"),
    ];
    show::print(FIELDS, parsed, rows(cluster), &["policy"], |all| {
        let row = |p: &Row| {
            let mut cells = show::cells(FIELDS, COLUMNS, p);
            if let Some(number) = cells.get_mut(3) {
                *number = p.policy.rules.len().to_string();
            }
            cells
        };
        table::fixed(COLUMNS, &all.iter().map(row).collect::<Vec<_>>())
    })
}
