//! Quota rules of NetApp Volumes: the public API's resource to and from the model.

use crate::error::{ApiError, ApiResult};
use crate::fields::{Fields, ResourceBuilder, required};
use crate::json::{Object, abbreviate};
use crate::schema::netapp as schema;
use weir_control::{
    NewQuotaRule, QuotaLimits, QuotaRule, QuotaRuleChange, QuotaRuleName, QuotaSubject,
};

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// Returns a quota rule on the wire.
pub fn render_rule(name: &QuotaRuleName, rule: &QuotaRule) -> Object {
    let (kind, target) = match rule.subject {
        QuotaSubject::DefaultUser => ("DEFAULT_USER_QUOTA", None),
        QuotaSubject::DefaultGroup => ("DEFAULT_GROUP_QUOTA", None),
        QuotaSubject::User(id) => ("INDIVIDUAL_USER_QUOTA", Some(id)),
        QuotaSubject::Group(id) => ("INDIVIDUAL_GROUP_QUOTA", Some(id)),
        // The API has no type for them; lists leave them out.
        QuotaSubject::DefaultTree | QuotaSubject::Tree(_) => ("TYPE_UNSPECIFIED", None),
    };
    let mut m = ResourceBuilder::from_extra(&rule.extra);
    m.set("name", name.to_string())
        .set("type", kind)
        .set("target", target.map(|id| id.to_string()))
        .set("diskLimitMib", rule.limits.bytes.div_ceil(MIB))
        .set("state", "READY")
        .set("createTime", rule.created.rfc3339())
        .set("description", rule.description.as_str())
        .labels(&rule.labels);
    m.done(&schema::QUOTA_RULE)
}

/// Returns the subject of a rule: its type and target.
fn subject(kind: &str, target: &str) -> ApiResult<QuotaSubject> {
    let whose = |noun: &str| {
        target.parse::<u32>().map_err(|_| {
            ApiError::field(
                "target",
                format!(
                    "Invalid 'target' \"{}\": the number of a {noun}, 0 to {} (names and SIDs are not looked up; `id -u NAME` prints a user's number)",
                    abbreviate(target),
                    u32::MAX
                ),
            )
        })
    };
    let default = |subject| match target.is_empty() {
        true => Ok(subject),
        false => Err(ApiError::field(
            "target",
            format!("'target' is for individual quotas, and this one is a {kind}; leave it out"),
        )),
    };
    match kind {
        "INDIVIDUAL_USER_QUOTA" => Ok(QuotaSubject::User(whose("user")?)),
        "INDIVIDUAL_GROUP_QUOTA" => Ok(QuotaSubject::Group(whose("group")?)),
        "DEFAULT_USER_QUOTA" => default(QuotaSubject::DefaultUser),
        "DEFAULT_GROUP_QUOTA" => default(QuotaSubject::DefaultGroup),
        _ => Err(ApiError::field("type", "'type' is required")),
    }
}

/// Returns the bytes of a limit in MiB.
fn bytes(mib: u64) -> ApiResult<u64> {
    match mib {
        0 => Err(ApiError::field(
            "diskLimitMib",
            "'diskLimitMib' is required: 1 or more (delete the rule to limit nothing)",
        )),
        mib => Ok(mib.saturating_mul(MIB)), // Saturates: the field has 32 bits.
    }
}

/// Returns a quota rule to be made.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn new(body: Object) -> ApiResult<NewQuotaRule> {
    let mut f = Fields::new(body);
    let kind = required(f.text("type").value(), "type")?;
    let target = f.text("target").value().unwrap_or_default();
    let mib = f.count("diskLimitMib")?.value().unwrap_or(0);
    Ok(NewQuotaRule {
        subject: subject(&kind, &target)?,
        limits: QuotaLimits {
            bytes: bytes(mib)?,
            ..QuotaLimits::default()
        },
        description: f.text("description").value().unwrap_or_default(),
        labels: f.labels()?.value().unwrap_or_default(),
        extra: f.rest(),
    })
}

/// Returns the changes to a quota rule, out of what the mask left.
///
/// # Errors
/// INVALID_ARGUMENT naming the field.
pub fn change(changed: Object, current: &Object) -> ApiResult<QuotaRuleChange> {
    let mut f = Fields::new(changed);
    for field in ["type", "target"] {
        f.fixed(field, current)?;
    }
    let mib = f.count("diskLimitMib")?.kept("diskLimitMib")?;
    Ok(QuotaRuleChange {
        bytes: mib.map(bytes).transpose()?,
        description: f.text("description").or_default(),
        labels: f.labels()?.or_default(),
        extra: f.rest(),
        ..QuotaRuleChange::default()
    })
}
