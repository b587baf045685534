//! `vserver export-policy`.

use super::show::{self, Answer};
use super::storage::submit;
use crate::cluster::{Cluster, Failure};
use crate::fields::export::{self, Rule, RuleDraft, inserted, rules};
use crate::fields::{self, Way};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, invalid, none, refused};
use crate::storage::{ExportRule, NamedKind, PolicyBody, PolicyChange, PolicyKey, StoragePolicy};
use crate::table::Column;

/// Superuser types of a rule that is made on the command line without any, as in ONTAP.
const SUPERUSER: &str = "none";

/// Returns the policy that the arguments name.
fn find_policy(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<StoragePolicy, Failure> {
    let (svm, name) = (
        argument(parsed, "vserver")?,
        argument(parsed, "policyname")?,
    );
    let mut all = export::policies(cluster).into_iter();
    let found = all.find(|p| p.key.svm == svm && p.key.name == name);
    found.ok_or_else(none)
}

/// Runs `vserver export-policy`.
pub fn run(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["Vserver"], 15).with_field("vserver"),
        Column::new(&["Policy Name"], 19).with_field("policyname"),
    ];
    let change = match verb {
        "show" => {
            let keys = ["vserver", "policyname"];
            let all = export::policies(cluster);
            return show::list(export::FIELDS, parsed, all, &keys, COLUMNS);
        }
        "create" => {
            let key = PolicyKey {
                kind: NamedKind::Export,
                svm: argument(parsed, "vserver")?.to_owned(),
                name: argument(parsed, "policyname")?.to_owned(),
            };
            let (comment, body) = (String::new(), PolicyBody::Export(Vec::new()));
            return submit(cluster, key, PolicyChange::Create { comment, body });
        }
        "rename" => PolicyChange::Rename(argument(parsed, "newpolicyname")?.to_owned()),
        "delete" => PolicyChange::Delete,
        _ => return Err(refused(format!("\"{verb}\" is not a recognized command"))),
    };
    submit(cluster, find_policy(parsed, cluster)?.key, change)
}

/// Returns the place among rules that an argument names.
fn place(parsed: &ParsedCommand, name: &str) -> Result<u32, Failure> {
    let text = argument(parsed, name)?;
    let index = text.parse().ok().filter(|index| *index > 0);
    index.ok_or_else(|| invalid(text, name, "integer"))
}

fn draft(parsed: &ParsedCommand, way: Way, cluster: &dyn Cluster) -> Result<RuleDraft, Failure> {
    let mut draft = RuleDraft::default();
    fields::read(&export::RULES, parsed, way, &mut draft, cluster, None)?;
    Ok(draft)
}

/// Runs `vserver export-policy rule`.
pub fn rule(verb: &str, parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    if verb == "show" {
        return show(parsed, cluster);
    }
    let policy = find_policy(parsed, cluster)?;
    let all = rules(&policy);
    let next = if verb == "create" {
        let new = draft(parsed, Way::Create, cluster)?.rule(None, SUPERUSER);
        let last = all.last().map_or(0, |rule| rule.index);
        let index = match parsed.get("ruleindex") {
            // Saturates: a policy has fewer rules.
            None => last.saturating_add(1),
            Some(_) => place(parsed, "ruleindex")?,
        };
        inserted(all, &new, index)
    } else {
        let index = place(parsed, "ruleindex")?;
        let before = all
            .iter()
            .find(|rule| rule.index == index)
            .ok_or_else(none)?;
        let others = all.iter().filter(|rule| rule.index != index).cloned();
        let others: Vec<ExportRule> = others.collect();
        match verb {
            "delete" => others,
            "setindex" => inserted(&others, before, place(parsed, "newruleindex")?),
            _ => {
                let changed = draft(parsed, Way::Modify, cluster)?.rule(Some(before), SUPERUSER);
                inserted(&others, &changed, index)
            }
        }
    };
    let change = PolicyChange::Set {
        revision: policy.revision,
        comment: None,
        body: Some(PolicyBody::Export(next)),
    };
    submit(cluster, policy.key, change)
}

fn show(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Vserver"], 12).with_field("vserver"),
        Column::new(&["Policy", "Name"], 15).with_field("policyname"),
        Column::new(&["Rule", "Index"], 6).with_field("ruleindex"),
        Column::new(&["Access", "Protocol"], 8).with_field("protocol"),
        Column::new(&["Client", "Match"], 21).with_field("clientmatch"),
        Column::new(&["RO", "Rule"], 9).with_field("rorule"),
    ];
    let keys = ["vserver", "policyname", "ruleindex"];
    let all: Vec<Rule> = export::all_rules(cluster);
    show::list(export::RULE, parsed, all, &keys, COLUMNS)
}
