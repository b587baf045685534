//! Export policies, and their rules.

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::storage::{ExportRule, PolicyBody, StoragePolicy};
use crate::value;

/// Returns the id of an export policy. The default has none: it is that of all machines, and ONTAP
/// has one for each.
pub fn id(policy: &StoragePolicy) -> u64 {
    match policy.id {
        0 => {
            let text = value::identity("export-policy", &policy.key.svm);
            let head = text.split('-').next().unwrap_or_default();
            u64::from_str_radix(head, 16).unwrap_or(1).max(1)
        }
        // Clients read JSON's numbers as doubles.
        id => id % (1 << 53),
    }
}

/// Returns the rules of a policy.
pub fn rules(policy: &StoragePolicy) -> &[ExportRule] {
    match &policy.body {
        PolicyBody::Export(rules) => rules,
        _ => &[],
    }
}

/// A policy that is made or changed: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its name.
    pub name: Option<String>,
    /// Its machine.
    pub svm: Option<String>,
}

type F = Field<StoragePolicy, Draft>;

/// The fields of policies.
pub const FIELDS: &[F] = rows! {
    F::rest("id", |p| id(p).into()),
    F::rest("name", |p| text(&p.key.name)).sets(Kind::Text, |d, v| d.name = v.text()),
    F::rest("svm.name", |p| text(&p.key.svm)).creates(Kind::Svm, |d, v| d.svm = v.text()),
    F::rest("svm.uuid", |p| identity("svm", &p.key.svm)),
    F::rest("rules", |p| {
        let object = |rule: &ExportRule| {
            let (policy, rule) = (None, rule.clone());
            Value::record(RULE, &Rule { policy, rule })
        };
        Value::List(rules(p).iter().map(object).collect())
    }).parts(&[
        "index", "clients.match", "protocols", "ro_rule", "rw_rule", "superuser", "anonymous_user",
        "allow_suid", "chown_mode", "ntfs_unix_security", "allow_device_creation",
    ]).sets(Kind::Nested, |_, _| {}),
};

/// The resource of policies.
pub const TABLE: Table<StoragePolicy, Draft> = Table {
    path: "protocols/nfs/export-policies",
    command: &[],
    fields: FIELDS,
    absent: &[],
    keys: &["id", "name"],
    order: &["svm.name", "name", "id"],
    ids: |p| vec![id(p).to_string()],
    why: "",
};

/// A rule of a policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The policy; `None`: it is known.
    pub policy: Option<StoragePolicy>,
    /// The rule.
    pub rule: ExportRule,
}

impl std::ops::Deref for Rule {
    type Target = ExportRule;

    fn deref(&self) -> &ExportRule {
        &self.rule
    }
}

/// A rule that is made or changed: what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct RuleDraft {
    /// Its place among the others, from 1.
    pub index: Option<u64>,
    /// Addresses, networks, host names.
    pub clients: Option<Vec<String>>,
    /// Protocols.
    pub protocols: Option<Vec<String>>,
    /// Means by which readers are to be known.
    pub ro: Option<Vec<String>>,
    /// Means by which writers are to be known.
    pub rw: Option<Vec<String>>,
    /// Means by which root is to be known to stay root.
    pub superuser: Option<Vec<String>>,
    /// The anonymous user.
    pub anonymous: Option<String>,
}

fn list(all: &[String]) -> Value {
    Value::List(all.iter().map(text).collect())
}

type R = Field<Rule, RuleDraft>;

/// The fields of a rule within its policy.
pub const RULE: &[R] = rows! {
    R::rest("index", |r| r.index.into()).sets(Kind::Number, |d, v| d.index = v.number()),
    R::rest("clients", |r| {
        let client = |name: &String| Value::Object(vec![("match", text(name))]);
        Value::List(r.clients.iter().map(client).collect())
    }).parts(&["match"]).sets(Kind::Objects("match"), |d, v| d.clients = v.list()),
    R::rest("protocols", |r| list(&r.protocols)).sets(Kind::List, |d, v| d.protocols = v.list()),
    R::rest("ro_rule", |r| list(&r.ro)).sets(Kind::List, |d, v| d.ro = v.list()),
    R::rest("rw_rule", |r| list(&r.rw)).sets(Kind::List, |d, v| d.rw = v.list()),
    R::rest("superuser", |r| list(&r.superuser)).sets(Kind::List, |d, v| d.superuser = v.list()),
    R::rest("anonymous_user", |r| text(&r.anonymous)).sets(Kind::Id, |d, v| d.anonymous = v.text()),
    R::fixed("allow_suid", "", "", "true"),
    R::fixed("chown_mode", "", "", "restricted"),
    R::fixed("ntfs_unix_security", "", "", "fail"),
    R::fixed("allow_device_creation", "", "", "true"),
    R::rest("policy.id", |r| r.policy.as_ref().map(id).into()),
    R::rest("policy.name", |r| r.policy.as_ref().map(|p| text(&p.key.name)).into()),
    R::rest("svm.name", |r| r.policy.as_ref().map(|p| text(&p.key.svm)).into()),
    R::rest("svm.uuid", |r| r.policy.as_ref().map(|p| identity("svm", &p.key.svm)).into()),
};

/// The resource of rules.
pub const RULES: Table<Rule, RuleDraft> = Table {
    path: "protocols/nfs/export-policies/*/rules",
    command: &[],
    fields: RULE,
    absent: &[],
    keys: &["index"],
    order: &["index"],
    ids: |r| {
        let policy = r.policy.as_ref().map(|p| id(p).to_string());
        vec![policy.unwrap_or_default(), r.index.to_string()]
    },
    why: "",
};
