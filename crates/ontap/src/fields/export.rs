//! Export policies, and their rules.

use super::value::{identity, text};
use super::{Field, Kind, Table, Value};
use crate::cluster::Cluster;
use crate::storage::{ExportRule, NamedKind, PolicyBody, StoragePolicy};
use crate::value;

/// Returns all export policies. Those of the cluster are repeated for each machine, as ONTAP lists
/// them.
pub fn policies(cluster: &dyn Cluster) -> Vec<StoragePolicy> {
    let svms = cluster.svms();
    let each = |policy: StoragePolicy| match policy.key.svm.is_empty() {
        false => vec![policy],
        true => svms
            .iter()
            .map(|svm| {
                let mut one = policy.clone();
                one.key.svm.clone_from(&svm.name);
                one
            })
            .collect(),
    };
    let found = cluster.storage_policies(NamedKind::Export).into_iter();
    found.flat_map(each).collect()
}

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
    F::new("svm.name", "vserver", "Vserver", |p| text(&p.key.svm)).key()
        .creates(Kind::Svm, |d, v| d.svm = v.text()),
    F::new("name", "policyname", "Policy Name", |p| text(&p.key.name)).key()
        .sets(Kind::Text, |d, v| d.name = v.text()),
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
    command: &["vserver", "export-policy"],
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

/// Returns the rules of all policies.
pub fn all_rules(cluster: &dyn Cluster) -> Vec<Rule> {
    let each = |policy: StoragePolicy| {
        let of = |rule: &ExportRule| Rule {
            policy: Some(policy.clone()),
            rule: rule.clone(),
        };
        rules(&policy).iter().map(of).collect::<Vec<_>>()
    };
    policies(cluster).into_iter().flat_map(each).collect()
}

/// Returns the rules with one more at `index`; those that are there move on by one, as far as they
/// are in each other's way.
pub fn inserted(rules: &[ExportRule], new: &ExportRule, index: u32) -> Vec<ExportRule> {
    let mut out: Vec<ExportRule> = rules.iter().filter(|r| r.index < index).cloned().collect();
    let mut next = ExportRule {
        index,
        ..new.clone()
    };
    for rule in rules.iter().filter(|r| r.index >= index) {
        let free = next.index.saturating_add(1);
        out.push(next);
        next = ExportRule {
            index: rule.index.max(free),
            ..rule.clone()
        };
    }
    out.push(next);
    out
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

impl RuleDraft {
    /// Returns the rule; what was not given is as `before`. `superuser` is that of a new rule.
    pub fn rule(self, before: Option<&ExportRule>, superuser: &str) -> ExportRule {
        let word = |word: &str| vec![word.to_owned()];
        let mut rule = before.cloned().unwrap_or_else(|| ExportRule {
            index: 0,
            clients: Vec::new(),
            protocols: word("any"),
            ro: Vec::new(),
            rw: Vec::new(),
            superuser: word(superuser),
            anonymous: "65534".to_owned(),
        });
        for (given, to) in [
            (self.clients, &mut rule.clients),
            (self.protocols, &mut rule.protocols),
            (self.ro, &mut rule.ro),
            (self.rw, &mut rule.rw),
            (self.superuser, &mut rule.superuser),
        ] {
            if let Some(list) = given {
                *to = list;
            }
        }
        rule.anonymous = self.anonymous.unwrap_or(rule.anonymous);
        rule
    }
}

fn list(all: &[String]) -> Value {
    Value::Apart(
        all.join(","),
        Box::new(Value::List(all.iter().map(text).collect())),
    )
}

type R = Field<Rule, RuleDraft>;

/// The fields of a rule within its policy.
pub const RULE: &[R] = rows! {
    R::new("svm.name", "vserver", "Vserver",
        |r| r.policy.as_ref().map(|p| text(&p.key.svm)).into()).key(),
    R::new("policy.name", "policyname", "Policy Name",
        |r| r.policy.as_ref().map(|p| text(&p.key.name)).into()).key(),
    R::new("index", "ruleindex", "Rule Index", |r| r.index.into()).key().optional()
        .ordered(|r| r.index.into()).sets(Kind::Number, |d, v| d.index = v.number()),
    R::new("protocols", "protocol", "Access Protocol", |r| list(&r.protocols))
        .sets(Kind::List, |d, v| d.protocols = v.list()),
    R::new("clients", "clientmatch",
        "List of Client Match Hostnames, IP Addresses, Netgroups, or Domains", |r| {
        let client = |name: &String| Value::Object(vec![("match", text(name))]);
        let all = Value::List(r.clients.iter().map(client).collect());
        Value::Apart(r.clients.join(","), Box::new(all))
    }).parts(&["match"]).sets(Kind::Objects("match"), |d, v| d.clients = v.list()).required(),
    R::new("ro_rule", "rorule", "RO Access Rule", |r| list(&r.ro))
        .sets(Kind::List, |d, v| d.ro = v.list()).required(),
    R::new("rw_rule", "rwrule", "RW Access Rule", |r| list(&r.rw))
        .sets(Kind::List, |d, v| d.rw = v.list()).required(),
    R::new("anonymous_user", "anon", "User ID To Which Anonymous Users Are Mapped",
        |r| text(&r.anonymous)).sets(Kind::Id, |d, v| d.anonymous = v.text()),
    R::new("superuser", "superuser", "Superuser Security Types", |r| list(&r.superuser))
        .sets(Kind::List, |d, v| d.superuser = v.list()),
    R::fixed("allow_suid", "allow-suid", "Honor SetUID Bits in SETATTR", "true"),
    R::fixed("allow_device_creation", "allow-dev", "Allow Creation of Devices", "true"),
    R::fixed("ntfs_unix_security", "ntfs-unix-security-ops",
        "NTFS Unix Security Options", "fail"),
    R::fixed("chown_mode", "chown-mode", "Change Ownership Mode", "restricted"),
    R::rest("policy.id", |r| r.policy.as_ref().map(id).into()),
    R::rest("svm.uuid", |r| r.policy.as_ref().map(|p| identity("svm", &p.key.svm)).into()),
};

/// The resource of rules.
pub const RULES: Table<Rule, RuleDraft> = Table {
    path: "protocols/nfs/export-policies/*/rules",
    command: &["vserver", "export-policy", "rule"],
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(index: u32, client: &str) -> ExportRule {
        let any = vec!["any".to_owned()];
        ExportRule {
            index,
            clients: vec![client.to_owned()],
            protocols: any.clone(),
            ro: any.clone(),
            rw: any.clone(),
            superuser: any,
            anonymous: "65534".to_owned(),
        }
    }

    #[test]
    fn a_rule_takes_its_place_and_moves_those_behind_it() {
        let rules = [rule(1, "a"), rule(2, "b"), rule(5, "c")];
        for (index, wanted) in [
            (1, "1x 2a 3b 5c"),
            (2, "1a 2x 3b 5c"),
            (3, "1a 2b 3x 5c"),
            (5, "1a 2b 5x 6c"),
            (9, "1a 2b 5c 9x"),
        ] {
            let all = inserted(&rules, &rule(0, "x"), index);
            let all: Vec<String> = all
                .iter()
                .map(|r| format!("{}{}", r.index, r.clients[0]))
                .collect();
            assert_eq!(all.join(" "), wanted, "at {index}");
        }
    }
}
