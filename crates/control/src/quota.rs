//! Quota rules: limits of what users, groups and qtrees hold in a volume.

use crate::timestamp::Stamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_volume::{QuotaId, QuotaLimit, QuotaRules};

/// As the model has them.
type Extra = serde_json::Map<String, serde_json::Value>;
type Labels = std::collections::BTreeMap<String, String>;

/// Those whom a rule limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QuotaSubject {
    /// Each user without a rule of its own.
    DefaultUser,
    /// Each group without a rule of its own.
    DefaultGroup,
    /// The user with this number.
    User(u32),
    /// The group with this number.
    Group(u32),
    /// Each qtree without a rule of its own.
    DefaultTree,
    /// The qtree with this number.
    Tree(u32),
}

impl QuotaSubject {
    /// Returns true for a rule of qtrees, which the NetApp Volumes API does not have.
    pub fn is_tree(self) -> bool {
        matches!(self, QuotaSubject::DefaultTree | QuotaSubject::Tree(_))
    }
}

/// Limits of usage; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// Bytes that usage cannot exceed.
    #[serde(default)]
    pub bytes: u64,
    /// Bytes above which usage is reported.
    #[serde(default)]
    pub soft_bytes: u64,
    /// Files that usage cannot exceed.
    #[serde(default)]
    pub files: u64,
    /// Files above which usage is reported.
    #[serde(default)]
    pub soft_files: u64,
}

/// A quota rule of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaRule {
    /// Bare id, unique in the volume.
    pub id: Arc<str>,
    /// Those whom it limits: no other rule of the volume has the same.
    pub subject: QuotaSubject,
    /// The limits.
    pub limits: QuotaLimits,
    /// Time of creation.
    pub created: Stamp,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// The quota rules of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quotas {
    /// Rules, by their ids.
    pub rules: Vec<QuotaRule>,
    /// True if they do not hold.
    #[serde(default)]
    pub off: bool,
}

impl Quotas {
    pub(crate) fn is_default(&self) -> bool {
        self.rules.is_empty() && !self.off
    }

    /// Returns the rule with this id.
    pub fn rule(&self, id: &str) -> Option<&QuotaRule> {
        self.rules.iter().find(|rule| &*rule.id == id)
    }

    /// Returns the rule of a subject.
    pub fn find_rule(&self, subject: QuotaSubject) -> Option<&QuotaRule> {
        self.rules.iter().find(|rule| rule.subject == subject)
    }

    /// Returns each rule in one line for the volume's record ([`crate::record`]): `mouse u1001
    /// 1048576`. After id and subject come the limits in the order of [`QuotaLimits`] without
    /// zeroes at the end. Without `ids` each id is `-`, and is made from the subject when it is
    /// read.
    pub(crate) fn recorded(&self, ids: bool) -> Vec<String> {
        let line = |rule: &QuotaRule| {
            let id = if ids { &*rule.id } else { "-" };
            let subject = match rule.subject {
                QuotaSubject::DefaultUser => "u".to_owned(),
                QuotaSubject::DefaultGroup => "g".to_owned(),
                QuotaSubject::User(number) => format!("u{number}"),
                QuotaSubject::Group(number) => format!("g{number}"),
                QuotaSubject::DefaultTree => "t".to_owned(),
                QuotaSubject::Tree(number) => format!("t{number}"),
            };
            let QuotaLimits {
                bytes,
                soft_bytes,
                files,
                soft_files,
            } = rule.limits;
            let line = format!("{id} {subject} {bytes} {soft_bytes} {files} {soft_files}");
            let mut line = line.as_str();
            while let Some(shorter) = line.strip_suffix(" 0") {
                line = shorter;
            }
            line.to_owned()
        };
        self.rules.iter().map(line).collect()
    }

    /// Returns the quotas of a volume's record. Unreadable lines, and those that repeat an id or a
    /// subject, are left out.
    pub(crate) fn from_recorded(lines: &[String], off: bool, now: Stamp) -> Quotas {
        let mut quotas = Quotas {
            rules: Vec::new(),
            off,
        };
        for rule in lines.iter().filter_map(|line| read_rule(line, now)) {
            if quotas.rule(&rule.id).is_none() && quotas.find_rule(rule.subject).is_none() {
                quotas.rules.push(rule);
            }
        }
        quotas.rules.sort_by(|a, b| a.id.cmp(&b.id));
        quotas
    }

    /// Returns the rules for the engine; empty if they do not hold.
    pub(crate) fn enforced(&self) -> QuotaRules {
        let mut out = QuotaRules::default();
        for rule in self.rules.iter().filter(|_| !self.off) {
            let limit = QuotaLimit {
                bytes: rule.limits.bytes,
                soft_bytes: rule.limits.soft_bytes,
                files: rule.limits.files,
                soft_files: rule.limits.soft_files,
            };
            match rule.subject {
                QuotaSubject::DefaultUser => out.default_user = Some(limit),
                QuotaSubject::DefaultGroup => out.default_group = Some(limit),
                QuotaSubject::User(id) => drop(out.own.insert(QuotaId::user(id), limit)),
                QuotaSubject::Group(id) => drop(out.own.insert(QuotaId::group(id), limit)),
                QuotaSubject::DefaultTree => out.default_tree = Some(limit),
                QuotaSubject::Tree(id) => drop(out.own.insert(QuotaId::tree(id), limit)),
            }
        }
        out
    }
}

/// Reads a line of [`Quotas::recorded`].
fn read_rule(line: &str, now: Stamp) -> Option<QuotaRule> {
    let mut words = line.split(' ');
    let (id, whom) = (words.next()?, words.next()?);
    let (kind, number) = whom.split_at_checked(1)?;
    let number: Option<u32> = match number {
        "" => None,
        digits => Some(digits.parse().ok()?),
    };
    let (subject, made_up) = match (kind, number) {
        ("u", None) => (QuotaSubject::DefaultUser, "default-user".to_owned()),
        ("g", None) => (QuotaSubject::DefaultGroup, "default-group".to_owned()),
        ("u", Some(n)) => (QuotaSubject::User(n), format!("user-{n}")),
        ("g", Some(n)) => (QuotaSubject::Group(n), format!("group-{n}")),
        ("t", None) => (QuotaSubject::DefaultTree, "default-tree".to_owned()),
        ("t", Some(n)) => (QuotaSubject::Tree(n), format!("tree-{n}")),
        _ => return None,
    };
    let mut limits = [0; 4];
    for limit in &mut limits {
        *limit = words.next().map_or(Some(0), |word| word.parse().ok())?;
    }
    let [bytes, soft_bytes, files, soft_files] = limits;
    Some(QuotaRule {
        id: if id == "-" { made_up.into() } else { id.into() },
        subject,
        limits: QuotaLimits {
            bytes,
            soft_bytes,
            files,
            soft_files,
        },
        created: now,
        description: String::new(),
        labels: Labels::default(),
        extra: Extra::default(),
    })
}

/// A new quota rule.
#[derive(Clone, Debug, PartialEq)]
pub struct NewQuotaRule {
    /// Those whom it limits.
    pub subject: QuotaSubject,
    /// The limits.
    pub limits: QuotaLimits,
    /// Free text of up to 2,048 bytes.
    pub description: String,
    /// Up to 64 labels: keys of 1 to 63 characters, values of up to 63.
    pub labels: Labels,
    /// The client's own fields.
    pub extra: Extra,
}

/// Changes to a quota rule; its subject stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaRuleChange {
    /// Bytes that usage cannot exceed; `None`: unchanged.
    pub bytes: Option<u64>,
    /// Bytes above which usage is reported; `None`: unchanged.
    pub soft_bytes: Option<u64>,
    /// Files that usage cannot exceed; `None`: unchanged.
    pub files: Option<u64>,
    /// Files above which usage is reported; `None`: unchanged.
    pub soft_files: Option<u64>,
    /// Free text of up to 2,048 bytes; `None`: unchanged.
    pub description: Option<String>,
    /// Replaces all labels; `None`: unchanged.
    pub labels: Option<Labels>,
    /// The client's own fields: each key set, or removed where its value is null.
    pub extra: Extra,
}
