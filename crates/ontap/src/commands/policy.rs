//! `snapmirror policy` and `job schedule`.

use weir_replica::model::{Policy, PolicyKind};

use super::show::{self, Field};
use super::{argument, failed, invalid};
use crate::cluster::{Change, Cluster, Failure, NamedSchedule};
use crate::grammar::Parsed;
use crate::table::{self, Column};

const FIELDS: &[Field<(String, Policy)>] = &[
    Field {
        name: "vserver",
        label: "Vserver",
        key: true,
        value: |(vserver, _)| vserver.clone(),
    },
    Field {
        name: "policy",
        label: "SnapMirror Policy Name",
        key: true,
        value: |(_, p)| p.name.clone(),
    },
    Field {
        name: "type",
        label: "SnapMirror Policy Type",
        key: false,
        value: |(_, p)| p.kind.word().to_owned(),
    },
    Field {
        name: "rules",
        label: "Rules",
        key: false,
        value: |(_, p)| rules(p),
    },
    Field {
        name: "comment",
        label: "Comment",
        key: false,
        value: |(_, p)| p.comment.clone(),
    },
];

fn rules(policy: &Policy) -> String {
    let all: Vec<String> = policy
        .rules
        .iter()
        .map(|rule| format!("{}:{}", rule.label, rule.keep))
        .collect();
    all.join(", ")
}

/// All verbs.
pub fn run(verb: &str, parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let name = argument(parsed, "policy")?.to_owned();
    let change = match verb {
        "create" => Change::PolicyCreate {
            name,
            kind: match parsed.get("type") {
                None => PolicyKind::AsyncMirror,
                Some(word) => PolicyKind::from_word(word)
                    .ok_or_else(|| invalid(word, "type", "async-mirror|vault|mirror-vault"))?,
            },
            comment: parsed.get("comment").unwrap_or_default().to_owned(),
            compression: false,
        },
        "delete" => Change::PolicyDelete(name),
        _ => Change::PolicyRule {
            name,
            label: argument(parsed, "snapmirror-label")?.to_owned(),
            keep: match (verb, parsed.get("keep")) {
                ("remove-rule", _) | (_, None) => None,
                (_, Some(text)) => {
                    let keep = text.parse().ok().filter(|keep| (1..=1019).contains(keep));
                    Some(keep.ok_or_else(|| invalid(text, "keep", "text"))?)
                }
            },
        },
    };
    cluster.change(change).map_err(failed)?;
    Ok(String::new())
}

fn show(parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    const COLUMNS: &[Column] = &[
        Column {
            heading: &["Vserver", "Name"],
            width: 7,
            groups: true,
        },
        Column {
            heading: &["Policy", "Name"],
            width: 18,
            groups: false,
        },
        Column {
            heading: &["Policy", "Type"],
            width: 12,
            groups: false,
        },
        Column {
            heading: &["Number", "Of Rules"],
            width: 8,
            groups: false,
        },
        Column {
            heading: &["Rules"],
            width: 40,
            groups: false,
        },
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

/// `job schedule show`
pub fn schedules(parsed: &Parsed, cluster: &dyn Cluster) -> Result<String, Failure> {
    const FIELDS: &[Field<NamedSchedule>] = &[
        Field {
            name: "name",
            label: "Schedule Name",
            key: true,
            value: |s| s.name.clone(),
        },
        Field {
            name: "description",
            label: "Description",
            key: false,
            value: |s| s.about.clone(),
        },
    ];
    const COLUMNS: &[Column] = &[
        Column {
            heading: &["Name"],
            width: 12,
            groups: false,
        },
        Column {
            heading: &["Description"],
            width: 50,
            groups: false,
        },
    ];
    show::print(FIELDS, parsed, cluster.schedules(), &["name"], |all| {
        let rows: Vec<Vec<String>> = all
            .iter()
            .map(|s| vec![s.name.clone(), s.about.clone()])
            .collect();
        table::fixed(COLUMNS, &rows)
    })
}
