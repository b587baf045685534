//! `vserver export-policy`.

use super::show::{self, Answer};
use super::storage::submit;
use super::volume::{path, there};
use crate::cluster::{Cluster, Failure};
use crate::fields::export::{self, Rule, RuleDraft, inserted, rules};
use crate::fields::{self, Field, Value, Way, rows};
use crate::grammar::ParsedCommand;
use crate::refusal::{argument, invalid, none, not_among, refused};
use crate::storage::{
    AccessCheck, AccessQuery, AuthenticationMethod, ExportRule, NamedKind, PolicyBody,
    PolicyChange, PolicyKey, StoragePolicy,
};
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

/// Fields of a checked path.
pub(super) const ACCESS: &[Field<AccessCheck>] = rows! {
    Field::<AccessCheck>::column("path", "Path", |c| c.path.clone().into()).key(),
    Field::<AccessCheck>::column("policy", "Policy", |c| c.policy.clone().into()),
    Field::<AccessCheck>::column("policy-owner", "Policy Owner", |c| c.owner.clone().into()),
    Field::<AccessCheck>::column("policy-owner-type", "Policy Owner Type", |c| {
        Value::Word(if c.by_qtree { "qtree" } else { "volume" })
    }),
    Field::<AccessCheck>::column("rule-index", "Rule Index", |c| c.index.into()),
    Field::<AccessCheck>::column("access", "Access", |c| Value::Word(c.access)),
};

/// Reads the arguments of `check-access`.
fn access_query(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<AccessQuery, Failure> {
    let client = argument(parsed, "client-ip")?;
    let kinds = "none|sys|krb5|krb5i|krb5p";
    Ok(AccessQuery {
        volume: there(path(parsed, "volume")?, cluster)?,
        qtree: parsed.get("qtree").map(str::to_owned),
        client: { client.parse() }.map_err(|_| invalid(client, "client-ip", "IP Address"))?,
        method: match argument(parsed, "authentication-method")? {
            "none" => AuthenticationMethod::None,
            "sys" => AuthenticationMethod::Sys,
            "krb5" => AuthenticationMethod::Krb5,
            "krb5i" => AuthenticationMethod::Krb5i,
            "krb5p" => AuthenticationMethod::Krb5p,
            other => return Err(not_among(other, "authentication-method", "text", kinds)),
        },
        nfs4: match argument(parsed, "protocol")? {
            "nfs3" => false,
            "nfs4" => true,
            "cifs" => {
                let why = "Export policies are for NFS. Over SMB the permissions of files decide; \
                           see \"vserver cifs share show\" for shares.";
                return Err(refused(why.to_owned()));
            }
            other => return Err(not_among(other, "protocol", "text", "nfs3|nfs4")),
        },
        writes: match argument(parsed, "access-type")? {
            "read" => false,
            "read-write" => true,
            other => return Err(not_among(other, "access-type", "text", "read|read-write")),
        },
    })
}

/// Runs `vserver export-policy check-access`.
fn check_access(parsed: &ParsedCommand, cluster: &dyn Cluster) -> Result<Answer, Failure> {
    const COLUMNS: &[Column] = &[
        Column::new(&["", "Path"], 29).with_field("path"),
        Column::new(&["", "Policy"], 10).with_field("policy"),
        Column::new(&["Policy", "Owner"], 9).with_field("policy-owner"),
        Column::new(&["Policy", "Owner Type"], 10).with_field("policy-owner-type"),
        Column::new(&["Rule", "Index"], 6).with_field("rule-index"),
        Column::new(&["", "Access"], 10).with_field("access"),
    ];
    let rows = cluster.check_access(&access_query(parsed, cluster)?)?;
    show::list(ACCESS, parsed, rows, &["path"], COLUMNS)
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
        "check-access" => return check_access(parsed, cluster),
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
