//! Policies by name: what all kinds have in common, `storage/qos/policies`,
//! `storage/snapshot-policies`.
//!
//! All of them are found by an identity, belong to a machine (or to all), and are changed from how
//! they were read. A change that another overtook is made once more from the newer state.

use serde_json::{Value, json};
use weir_ontap::storage::{
    Ceiling, Copies, NamedKind, PolicyBody, PolicyChange, PolicyKey, StoragePolicy,
};
use weir_ontap::{Change, Reason};

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself};
use super::svms::{svm, svm_of};
use crate::route::Verb;
use weir_ontap::value::identity as uuid;

/// Changes of one policy that may come in between.
const ATTEMPTS: usize = 8;
/// Bytes of ONTAP's MB.
const MB: u64 = 1 << 20;

const QOS: &[&str] = &[
    "uuid",
    "name",
    "svm.name",
    "svm.uuid",
    "scope",
    "policy_class",
    "object_count",
    "pgid",
    "fixed.max_throughput_iops",
    "fixed.max_throughput_mbps",
    "fixed.min_throughput_iops",
    "fixed.min_throughput_mbps",
    "fixed.capacity_shared",
    "fixed.max_throughput",
    "fixed.min_throughput",
    "adaptive.expected_iops",
    "adaptive.peak_iops",
    "adaptive.absolute_min_iops",
    "adaptive.expected_iops_allocation",
    "adaptive.peak_iops_allocation",
    "adaptive.block_size",
];

const SNAPSHOTS: &[&str] = &[
    "uuid",
    "name",
    "svm.name",
    "svm.uuid",
    "scope",
    "enabled",
    "comment",
    "copies.schedule.name",
    "copies.schedule.uuid",
    "copies.count",
    "copies.prefix",
    "copies.snapmirror_label",
    "copies.retention_period",
];

const SCHEDULES: &[&str] = &[
    "schedule.name",
    "schedule.uuid",
    "count",
    "prefix",
    "snapmirror_label",
    "retention_period",
    "snapshot_policy.name",
    "snapshot_policy.uuid",
];

/// Returns the UUID of a QoS or snapshot policy.
pub fn uuid_of(policy: &StoragePolicy) -> String {
    match policy.id {
        0 => uuid("snapshot-policy", &policy.key.name),
        id => uuid("policy-by-name", &id.to_string()),
    }
}

/// Returns the id of an export policy. The default has none: it is that of all machines, and ONTAP
/// has one for each.
pub(super) fn id_of(policy: &StoragePolicy) -> u64 {
    match policy.id {
        0 => {
            let text = uuid("export-policy", &policy.key.svm);
            let head = text.split('-').next().unwrap_or_default();
            u64::from_str_radix(head, 16).unwrap_or(1).max(1)
        }
        // Clients read JSON's numbers as doubles.
        id => id % (1 << 53),
    }
}

/// Returns the policies of a kind. Export policies of the cluster are repeated for each machine,
/// as ONTAP lists them.
pub(super) fn all(a: &Asked<'_>, kind: NamedKind) -> Vec<StoragePolicy> {
    let found = a.cluster.storage_policies(kind);
    if kind != NamedKind::Export {
        return found;
    }
    let svms = a.cluster.svms();
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
    found.into_iter().flat_map(each).collect()
}

pub(super) fn find(a: &Asked<'_>, kind: NamedKind, id: &str) -> Answered<StoragePolicy> {
    let meant = |p: &StoragePolicy| match kind {
        NamedKind::Export => id_of(p).to_string() == id,
        _ => uuid_of(p) == id,
    };
    let found = all(a, kind).into_iter().find(meant);
    found.ok_or_else(Refusal::no_entry)
}

pub(super) fn submit(a: &Asked<'_>, key: PolicyKey, change: PolicyChange) -> Answered<()> {
    let kind = key.kind;
    let change = Change::Policy { key, change };
    a.cluster
        .change(change)
        .map_err(|failure| Refusal::of_policy(failure, kind))
}

/// Changes what a policy says, from how it is.
pub(super) fn edit(
    a: &Asked<'_>,
    kind: NamedKind,
    id: &str,
    comment: Option<&str>,
    make: impl Fn(&StoragePolicy) -> Answered<Option<PolicyBody>>,
) -> Answered<()> {
    for attempt in 1.. {
        let policy = find(a, kind, id)?;
        let body = make(&policy)?.filter(|body| *body != policy.body);
        let comment = comment
            .filter(|comment| *comment != policy.comment)
            .map(str::to_owned);
        if body.is_none() && comment.is_none() {
            return Ok(());
        }
        let change = Change::Policy {
            key: policy.key,
            change: PolicyChange::Set {
                revision: policy.revision,
                comment,
                body,
            },
        };
        match a.cluster.change(change) {
            Err(failure) if failure.reason == Reason::Busy && attempt < ATTEMPTS => {}
            other => return other.map_err(|failure| Refusal::of_policy(failure, kind)),
        }
    }
    Ok(())
}

/// Returns a policy's new name, if the body has one.
pub(super) fn rename(a: &Asked<'_>, policy: &StoragePolicy, to: Option<String>) -> Answered<()> {
    match to.filter(|to| *to != policy.key.name) {
        None => Ok(()),
        Some(to) => submit(a, policy.key.clone(), PolicyChange::Rename(to)),
    }
}

pub(super) fn delete(a: &Asked<'_>, kind: NamedKind, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let policy = find(a, kind, id)?;
    submit(a, policy.key, PolicyChange::Delete)?;
    a.done(None)
}

/// Returns the policy that was just made, as the reply has it.
pub(super) fn made(
    a: &Asked<'_>,
    key: &PolicyKey,
    show: impl Fn(&StoragePolicy) -> (String, Value),
) -> Answered<Reply> {
    let found = all(a, key.kind).into_iter().find(|p| p.key == *key);
    a.done(found.map(|p| show(&p)))
}

pub(super) fn key(a: &Asked<'_>, fields: &mut Fields, kind: NamedKind) -> Answered<PolicyKey> {
    let name = fields
        .text("name")?
        .ok_or_else(|| Refusal::required("name"))?;
    let svm = svm_of(a, fields)?;
    Ok(PolicyKey { kind, svm, name })
}

fn qos_link(policy: &StoragePolicy) -> String {
    format!("/api/storage/qos/policies/{}", uuid_of(policy))
}

fn ceiling_of(body: &PolicyBody) -> Ceiling {
    match body {
        PolicyBody::Qos(ceiling) => *ceiling,
        _ => Ceiling::default(),
    }
}

fn qos(policy: &StoragePolicy) -> Value {
    let Ceiling { ops: iops, bytes } = ceiling_of(&policy.body);
    json!({
        "_links": itself(&qos_link(policy)),
        "uuid": uuid_of(policy),
        "name": policy.key.name,
        "svm": svm(&policy.key.svm),
        "scope": "svm",
        "policy_class": "user_defined",
        "object_count": policy.users,
        "fixed": {
            "max_throughput_iops": iops.unwrap_or(0),
            "max_throughput_mbps": bytes.map_or(0, |bytes| bytes / MB),
            "min_throughput_iops": 0,
            "min_throughput_mbps": 0,
            "capacity_shared": false,
        },
    })
}

/// Returns `fixed` of a request, over what the policy had before; 0 is no maximum.
fn maximum(fields: &mut Fields, before: &PolicyBody) -> Answered<PolicyBody> {
    let Ceiling {
        ops: mut iops,
        mut bytes,
    } = ceiling_of(before);
    if let Some(n) = fields.number("fixed.max_throughput_iops")? {
        iops = Some(n).filter(|n| *n > 0);
    }
    if let Some(n) = fields.number("fixed.max_throughput_mbps")? {
        bytes = Some(n.saturating_mul(MB)).filter(|n| *n > 0);
    }
    fields.fixed(&[
        ("fixed.min_throughput_iops", "0"),
        ("fixed.min_throughput_mbps", "0"),
        ("fixed.capacity_shared", "false"),
    ])?;
    Ok(PolicyBody::Qos(Ceiling { ops: iops, bytes }))
}

/// The fields that lists of policies are ordered by.
const ORDER: &[&str] = &["svm.name", "name", "uuid"];

/// Handles requests to `storage/qos/policies`.
pub fn qos_policies(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    const KIND: NamedKind = NamedKind::Qos;
    const KEYS: &[&str] = &["uuid", "name"];
    match (verb, path) {
        (Verb::Get, []) => {
            let listing = Listing::parse(&a.call.query, QOS)?;
            Ok(listing.reply(
                &a.here(),
                KEYS,
                ORDER,
                all(a, KIND).iter().map(qos).collect(),
            ))
        }
        (Verb::Get, [id]) => {
            let listing = Listing::parse(&a.call.query, QOS)?;
            Ok(listing.one(KEYS, qos(&find(a, KIND, id)?)))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let (key, comment) = (key(a, &mut fields, KIND)?, String::new());
            let none = PolicyBody::Qos(Ceiling::default());
            let body = maximum(&mut fields, &none)?;
            fields.done_of(QOS)?;
            if body == none {
                return Err(Refusal::required("fixed.max_throughput_iops"));
            }
            submit(a, key.clone(), PolicyChange::Create { comment, body })?;
            made(a, &key, |p| (qos_link(p), qos(p)))
        }
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            let policy = find(a, KIND, id)?;
            let mut fields = Fields::read(&a.call.body)?;
            let to = fields.text("name")?;
            let body = maximum(&mut fields, &policy.body)?;
            fields.done_of(QOS)?;
            edit(a, KIND, id, None, |_| Ok(Some(body.clone())))?;
            rename(a, &policy, to)?;
            a.done(None)
        }
        (Verb::Delete, [id]) => delete(a, KIND, id),
        _ => Err(Refusal::no_api()),
    }
}

fn copies_of(policy: &StoragePolicy) -> (bool, &[Copies]) {
    match &policy.body {
        PolicyBody::Snapshot { enabled, copies } => (*enabled, copies),
        _ => (false, &[]),
    }
}

fn copies(c: &Copies) -> Value {
    let label = c.label.as_deref().unwrap_or("-");
    json!({
        "schedule": {"name": c.schedule, "uuid": uuid("schedule", &c.schedule)},
        "count": c.count,
        "prefix": label,
        "snapmirror_label": label,
        "retention_period": "PT0S",
    })
}

fn snapshot_link(policy: &StoragePolicy) -> String {
    format!("/api/storage/snapshot-policies/{}", uuid_of(policy))
}

fn snapshot(policy: &StoragePolicy) -> Value {
    let (enabled, each) = copies_of(policy);
    let mut out = json!({
        "_links": itself(&snapshot_link(policy)),
        "uuid": uuid_of(policy),
        "name": policy.key.name,
        "scope": if policy.key.svm.is_empty() { "cluster" } else { "svm" },
        "enabled": enabled,
        "comment": policy.comment,
        "copies": each.iter().map(copies).collect::<Vec<_>>(),
    });
    if let (false, Some(out)) = (policy.key.svm.is_empty(), out.as_object_mut()) {
        out.insert("svm".to_owned(), svm(&policy.key.svm));
    }
    out
}

/// Reads one schedule of a policy; fields that the body does not have are as `before`.
fn read_copies(a: &Asked<'_>, fields: &mut Fields, before: Option<&Copies>) -> Answered<Copies> {
    let (name, id) = (fields.text("schedule.name")?, fields.text("schedule.uuid")?);
    let found = match (name, id, before) {
        (Some(name), ..) => name,
        (None, Some(id), _) => {
            let all = a.cluster.schedules();
            let found = all.into_iter().find(|s| uuid("schedule", &s.name) == id);
            found.ok_or_else(|| Refusal::no_schedule(&id))?.name
        }
        (None, None, Some(before)) => before.schedule.clone(),
        (None, None, None) => return Err(Refusal::required("copies.schedule.name")),
    };
    let count = match (fields.number("count")?, before) {
        (Some(n), _) => match u32::try_from(n).ok().filter(|n| (1..=1023).contains(n)) {
            Some(n) => n,
            None => return Err(Refusal::value("copies.count", &n.to_string(), "1 to 1023")),
        },
        (None, Some(before)) => before.count,
        (None, None) => return Err(Refusal::required("copies.count")),
    };
    // Both are the same here: what a snapshot's name begins with is what replication policies know
    // it by.
    let said = |text: Option<String>| text.filter(|text| !matches!(text.as_str(), "" | "-"));
    let (label, prefix) = (
        said(fields.text("snapmirror_label")?),
        said(fields.text("prefix")?),
    );
    if let (Some(label), Some(prefix)) = (&label, &prefix) {
        if label != prefix {
            return Err(Refusal::not_here(
                "copies.prefix",
                "it is the snapmirror_label here",
            ));
        }
    }
    fields.fixed(&[("retention_period", "PT0S|")])?;
    let schedule = found;
    let label = label.or(prefix);
    Ok(Copies {
        schedule,
        count,
        label,
    })
}

/// Returns `copies` of a policy's body.
fn read_all_copies(a: &Asked<'_>, fields: &mut Fields) -> Answered<Option<Vec<Copies>>> {
    let list = match fields.take("copies") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(Refusal::value(
                "copies",
                &other.to_string(),
                "a list of schedules",
            ));
        }
    };
    let one = |body: &Value| {
        let mut fields = Fields::read(body)?;
        let copies = read_copies(a, &mut fields, None)?;
        fields.done_of(SCHEDULES)?;
        Ok(copies)
    };
    list.iter().map(one).collect::<Answered<_>>().map(Some)
}

/// Handles requests to `storage/snapshot-policies`.
pub fn snapshot_policies(a: &Asked<'_>, verb: Verb, path: &[&str]) -> Answered<Reply> {
    const KIND: NamedKind = NamedKind::Snapshot;
    const KEYS: &[&str] = &["uuid", "name"];
    match (verb, path) {
        (Verb::Get, []) => {
            let listing = Listing::parse(&a.call.query, SNAPSHOTS)?;
            Ok(listing.reply(
                &a.here(),
                KEYS,
                ORDER,
                all(a, KIND).iter().map(snapshot).collect(),
            ))
        }
        (Verb::Get, [id]) => {
            let listing = Listing::parse(&a.call.query, SNAPSHOTS)?;
            Ok(listing.one(KEYS, snapshot(&find(a, KIND, id)?)))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let name = fields
                .text("name")?
                .ok_or_else(|| Refusal::required("name"))?;
            let cluster =
                ["svm", "svm.name", "svm.uuid"].map(|name| fields.has(name)) == [false; 3];
            let svm = match cluster {
                true => String::new(),
                false => svm_of(a, &mut fields)?,
            };
            let comment = fields.text("comment")?.unwrap_or_default();
            let enabled = fields.flag("enabled")?.unwrap_or(true);
            let copies = read_all_copies(a, &mut fields)?.unwrap_or_default();
            fields.ignore(&["scope"]);
            fields.done_of(SNAPSHOTS)?;
            if copies.is_empty() {
                return Err(Refusal::required("copies"));
            }
            let kind = KIND;
            let key = PolicyKey { kind, svm, name };
            let body = PolicyBody::Snapshot { enabled, copies };
            submit(a, key.clone(), PolicyChange::Create { comment, body })?;
            made(a, &key, |p| (snapshot_link(p), snapshot(p)))
        }
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let comment = fields.text("comment")?;
            let switch = fields.flag("enabled")?;
            let all = read_all_copies(a, &mut fields)?;
            fields.done_of(SNAPSHOTS)?;
            edit(a, KIND, id, comment.as_deref(), |policy| {
                let (enabled, copies) = copies_of(policy);
                Ok(Some(PolicyBody::Snapshot {
                    enabled: switch.unwrap_or(enabled),
                    copies: all.clone().unwrap_or_else(|| copies.to_vec()),
                }))
            })?;
            a.done(None)
        }
        (Verb::Delete, [id]) => delete(a, KIND, id),
        (_, [id, "schedules", rest @ ..]) => schedules(a, verb, id, rest),
        _ => Err(Refusal::no_api()),
    }
}

fn schedules(a: &Asked<'_>, verb: Verb, id: &str, path: &[&str]) -> Answered<Reply> {
    const KIND: NamedKind = NamedKind::Snapshot;
    let policy = find(a, KIND, id)?;
    let shown = |of: &StoragePolicy, c: &Copies| {
        let mut out = copies(c);
        if let Some(out) = out.as_object_mut() {
            let of = json!({"name": of.key.name, "uuid": uuid_of(of)});
            out.insert("snapshot_policy".to_owned(), of);
        }
        out
    };
    let is = |c: &Copies, at: &str| uuid("schedule", &c.schedule) == at;
    let body = |policy: &StoragePolicy, change: &dyn Fn(&mut Vec<Copies>)| {
        let (enabled, copies) = copies_of(policy);
        let mut copies = copies.to_vec();
        change(&mut copies);
        Ok(Some(PolicyBody::Snapshot { enabled, copies }))
    };
    let there = |at: &str| {
        let found = copies_of(&policy).1.iter().find(|c| is(c, at));
        found.ok_or_else(Refusal::no_entry)
    };
    const KEYS: &[&str] = &["schedule.name", "schedule.uuid"];
    match (verb, path) {
        (Verb::Get, []) => {
            let listing = Listing::parse(&a.call.query, SCHEDULES)?;
            let records = copies_of(&policy)
                .1
                .iter()
                .map(|c| shown(&policy, c))
                .collect();
            Ok(listing.reply(&a.here(), KEYS, KEYS, records))
        }
        (Verb::Get, [at]) => {
            let listing = Listing::parse(&a.call.query, SCHEDULES)?;
            Ok(listing.one(KEYS, shown(&policy, there(at)?)))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let new = read_copies(a, &mut fields, None)?;
            fields.done_of(SCHEDULES)?;
            edit(a, KIND, id, None, |p| body(p, &|all| all.push(new.clone())))?;
            let link = format!(
                "{}/schedules/{}",
                snapshot_link(&policy),
                uuid("schedule", &new.schedule)
            );
            a.done(Some((link, shown(&policy, &new))))
        }
        (Verb::Patch, [at]) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let new = read_copies(a, &mut fields, Some(there(at)?))?;
            fields.done_of(SCHEDULES)?;
            edit(a, KIND, id, None, |p| {
                body(p, &|all| {
                    for one in all.iter_mut().filter(|c| is(c, at)) {
                        *one = new.clone();
                    }
                })
            })?;
            a.done(None)
        }
        (Verb::Delete, [at]) => {
            a.only(&[])?;
            there(at)?;
            edit(a, KIND, id, None, |p| {
                body(p, &|all| all.retain(|c| !is(c, at)))
            })?;
            a.done(None)
        }
        _ => Err(Refusal::no_api()),
    }
}
