//! `snapmirror policy`.

use weir_relations::model::{Policy, PolicyKind};

use super::refusal::{argument, failed, invalid, none, not_among};
use super::show::{self, Answer, Field, or_dash};
use crate::cluster::{Cluster, Failure, Reason};
use crate::grammar::Parsed;
use crate::table::{self, Column};
use weir_relations::manager::Verb;

const FIELDS: &[Field<(String, Policy)>] = &[
    Field::key("vserver", "Vserver", |(vserver, _)| vserver.clone()),
    Field::key("policy", "SnapMirror Policy Name", |(_, p)| p.name.clone()),
    Field::new("type", "SnapMirror Policy Type", |(_, p)| {
        p.kind.word().to_owned()
    }),
    Field::new("rules", "Rules", |(_, p)| rules(p)),
    Field::new("rules-schedules", "Schedules of Rules", |(_, p)| {
        let named = p.rules.iter().filter_map(|rule| {
            let schedule = rule.schedule.as_ref()?;
            Some(format!("{}:{schedule}", rule.label))
        });
        let all: Vec<String> = named.collect();
        or_dash(Some(all.join(", ")).filter(|text| !text.is_empty()))
    }),
    Field::new("comment", "Comment", |(_, p)| {
        or_dash(Some(p.comment.clone()).filter(|text| !text.is_empty()))
    }),
    Field::new("owner", "Policy Owner", |(_, p)| {
        if p.system {
            "cluster-admin"
        } else {
            "vserver-admin"
        }
        .to_owned()
    }),
    Field::new(
        "is-network-compression-enabled",
        "Is Network Compression Enabled",
        |(_, p)| p.compression.to_string(),
    ),
];

fn rules(policy: &Policy) -> String {
    let all: Vec<String> = policy
        .rules
        .iter()
        .map(|rule| format!("{}:{}", rule.label, rule.keep))
        .collect();
    all.join(", ")
}

/// Runs a verb of `snapmirror policy`.
pub fn run(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let name = argument(parsed, "policy")?.to_owned();
    if verb == "create" {
        let kind = match parsed.get("type") {
            None => PolicyKind::AsyncMirror,
            Some(word) => PolicyKind::from_word(word)
                .ok_or_else(|| invalid(word, "type", "async-mirror|vault|mirror-vault"))?,
        };
        let comment = parsed.get("comment").unwrap_or_default().to_owned();
        let compression = compression(parsed)?.unwrap_or(false);
        let create = Verb::PolicyCreate {
            name,
            kind,
            comment,
            compression,
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
        "modify" => Verb::PolicyModify {
            name,
            comment: parsed.get("comment").map(str::to_owned),
            compression: compression(parsed)?,
            rules: None,
        },
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

fn compression(parsed: &Parsed) -> Result<Option<bool>, Failure> {
    flag(parsed, "is-network-compression-enabled")
}

fn flag(parsed: &Parsed, name: &str) -> Result<Option<bool>, Failure> {
    match parsed.get(name) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(invalid(other, name, "true|false")),
    }
}

fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::grouping(&["Vserver", "Name"], 7),
        Column::new(&["Policy", "Name"], 18),
        Column::new(&["Policy", "Type"], 12),
        Column::new(&["Number", "Of Rules"], 8),
        Column::new(&["Rules"], 40),
    ];
    let all = cluster
        .policies()
        .into_iter()
        .map(|policy| (cluster.name(), policy))
        .collect();
    show::print(FIELDS, parsed, all, &["policy"], |all| {
        let rows: Vec<Vec<String>> = all
            .iter()
            .map(|(vserver, p)| {
                vec![
                    vserver.clone(),
                    p.name.clone(),
                    p.kind.word().to_owned(),
                    p.rules.len().to_string(),
                    rules(p),
                ]
            })
            .collect();
        table::fixed(COLUMNS, &rows)
    })
}
