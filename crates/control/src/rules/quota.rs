//! Rules for quota rules.

use super::{Inputs, names};
use crate::figures::words::count;
use crate::job::RowVerb;
use crate::model::Volume;
use crate::mutation::Mutation;
use crate::name::QuotaRuleName;
use crate::quota::{NewQuotaRule, QuotaRule, QuotaRuleChange, QuotaSubject, Quotas};
use crate::refusal::{Refusal, Status};
use crate::timestamp::Stamp;
use weir_base::limits::api::MAX_QUOTA_RULES;

/// Returns the volume's quotas after a change of its rules, or the refusal.
pub fn change(
    volume: &Volume,
    mutation: &Mutation,
    inputs: &Inputs,
    now: Stamp,
) -> Result<(Quotas, RowVerb), Refusal> {
    let mut quotas = volume.quotas.clone();
    let verb = match mutation {
        Mutation::CreateQuotaRule(name, new) => {
            if inputs.facts.usage_off {
                return Err(not_counted());
            }
            create(&mut quotas, name, new, now)?;
            RowVerb::Create
        }
        Mutation::UpdateQuotaRule(name, change) => {
            update(found(&mut quotas, name)?, change)?;
            RowVerb::Update
        }
        Mutation::DeleteQuotaRule(name) => {
            found(&mut quotas, name)?;
            quotas.rules.retain(|rule| rule.id != name.id);
            RowVerb::Delete
        }
        _ => unreachable!("a change of another resource"),
    };
    Ok((quotas, verb))
}

/// Returns the refusal of quotas in a folder whose format does not count usage.
fn not_counted() -> Refusal {
    Refusal::new(
        Status::FailedPrecondition,
        "USAGE_NOT_COUNTED",
        "the data folder was made by an earlier version, and does not count what users and groups hold: stop the server, run `weir upgrade`, and start it again".to_owned(),
    )
}

fn found<'q>(quotas: &'q mut Quotas, name: &QuotaRuleName) -> Result<&'q mut QuotaRule, Refusal> {
    let rule = quotas.rules.iter_mut().find(|rule| rule.id == name.id);
    rule.ok_or_else(|| {
        Refusal::new(
            Status::NotFound,
            "NOT_FOUND",
            format!("Resource '{name}' was not found"),
        )
    })
}

fn create(
    quotas: &mut Quotas,
    name: &QuotaRuleName,
    new: &NewQuotaRule,
    now: Stamp,
) -> Result<(), Refusal> {
    names::check(&name.volume.place, &name.id)?;
    names::check_words(&new.description, &new.labels, &new.extra)?;
    if quotas.rule(&name.id).is_some() {
        return Err(super::names::taken("quota rule", &name.id));
    }
    if let Some(other) = quotas.find_rule(new.subject) {
        return Err(Refusal::new(
            Status::AlreadyExists,
            "QUOTA_EXISTS",
            format!(
                "the quota rule {} limits {} already; change or delete it",
                other.id,
                words(new.subject)
            ),
        ));
    }
    if quotas.rules.len() >= MAX_QUOTA_RULES {
        return Err(Refusal::new(
            Status::ResourceExhausted,
            "TOO_MANY_QUOTA_RULES",
            format!(
                "{} has {} quota rules, and no more fit; delete one",
                name.volume.id,
                count(MAX_QUOTA_RULES as u64)
            ),
        ));
    }
    let rule = QuotaRule {
        id: name.id.clone(),
        subject: new.subject,
        limits: new.limits,
        created: now,
        description: new.description.clone(),
        labels: new.labels.clone(),
        extra: new.extra.clone(),
    };
    check_limits(&rule)?;
    let at = quotas.rules.partition_point(|other| other.id < rule.id);
    quotas.rules.insert(at, rule);
    Ok(())
}

fn update(rule: &mut QuotaRule, change: &QuotaRuleChange) -> Result<(), Refusal> {
    let limits = &mut rule.limits;
    limits.bytes = change.bytes.unwrap_or(limits.bytes);
    limits.soft_bytes = change.soft_bytes.unwrap_or(limits.soft_bytes);
    limits.files = change.files.unwrap_or(limits.files);
    limits.soft_files = change.soft_files.unwrap_or(limits.soft_files);
    if let Some(description) = &change.description {
        rule.description.clone_from(description);
    }
    if let Some(labels) = &change.labels {
        rule.labels.clone_from(labels);
    }
    names::merge(&mut rule.extra, change.extra.clone());
    names::check_words(&rule.description, &rule.labels, &rule.extra)?;
    check_limits(rule)
}

/// Refuses soft limits above the hard ones.
fn check_limits(rule: &QuotaRule) -> Result<(), Refusal> {
    let limits = &rule.limits;
    for (hard, soft, what) in [
        (limits.bytes, limits.soft_bytes, "bytes"),
        (limits.files, limits.soft_files, "files"),
    ] {
        if hard > 0 && soft > hard {
            return Err(Refusal::new(
                Status::InvalidArgument,
                "QUOTA_INVALID",
                format!("the soft limit of {soft} {what} is above the hard limit of {hard}"),
            ));
        }
    }
    Ok(())
}

fn words(subject: QuotaSubject) -> String {
    match subject {
        QuotaSubject::DefaultUser => "all users without a rule of their own".to_owned(),
        QuotaSubject::DefaultGroup => "all groups without a rule of their own".to_owned(),
        QuotaSubject::User(id) => format!("user {id}"),
        QuotaSubject::Group(id) => format!("group {id}"),
        QuotaSubject::DefaultTree => "all qtrees without a rule of their own".to_owned(),
        QuotaSubject::Tree(id) => format!("qtree {id}"),
    }
}
