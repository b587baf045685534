//! Policies by name: what all kinds have in common, `storage/qos/policies`,
//! `storage/snapshot-policies`.
//!
//! All of them are found by an identity, belong to a machine (or to all), and are changed from how
//! they were read. A change that another overtook is made once more from the newer state.

use serde_json::Value;
use weir_ontap::fields::snapshot_policy::{
    CopiesDraft, Draft, PolicySchedule, SCHEDULES, TABLE, copies as copies_of,
};
use weir_ontap::fields::{Way, export, qos};
use weir_ontap::storage::{
    Ceiling, Copies, NamedKind, PolicyBody, PolicyChange, PolicyKey, StoragePolicy,
};
use weir_ontap::value::identity as uuid;
use weir_ontap::{Change, Reason};

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};
use crate::route::Verb;

/// Changes of one policy that may come in between.
const ATTEMPTS: usize = 8;
/// Returns the key of a policy that is made.
pub(super) fn key(
    kind: NamedKind,
    name: Option<String>,
    svm: Option<String>,
) -> HandlerResult<PolicyKey> {
    let name = name.ok_or_else(|| Refusal::required("name"))?;
    let svm = svm.ok_or_else(|| Refusal::required("svm.name"))?;
    Ok(PolicyKey { kind, svm, name })
}

/// Returns the policies of a kind. Export policies of the cluster are repeated for each machine,
/// as ONTAP lists them.
pub(super) fn list_policies(a: &CallContext<'_>, kind: NamedKind) -> Vec<StoragePolicy> {
    match kind {
        NamedKind::Export => export::policies(a.cluster),
        _ => a.cluster.storage_policies(kind),
    }
}

pub(super) fn find(a: &CallContext<'_>, kind: NamedKind, id: &str) -> HandlerResult<StoragePolicy> {
    let meant = |p: &StoragePolicy| match kind {
        NamedKind::Export => export::id(p).to_string() == id,
        _ => qos::uuid(p) == id,
    };
    let found = list_policies(a, kind).into_iter().find(meant);
    found.ok_or_else(Refusal::no_entry)
}

pub(super) fn submit(
    a: &CallContext<'_>,
    key: PolicyKey,
    change: PolicyChange,
) -> HandlerResult<()> {
    let kind = key.kind;
    let change = Change::Policy { key, change };
    a.cluster
        .change(change)
        .map_err(|failure| Refusal::of_policy(failure, kind))
}

/// Changes what a policy says, from how it is.
pub(super) fn edit(
    a: &CallContext<'_>,
    kind: NamedKind,
    id: &str,
    comment: Option<&str>,
    make: impl Fn(&StoragePolicy) -> HandlerResult<Option<PolicyBody>>,
) -> HandlerResult<()> {
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
pub(super) fn rename(
    a: &CallContext<'_>,
    policy: &StoragePolicy,
    to: Option<String>,
) -> HandlerResult<()> {
    match to.filter(|to| *to != policy.key.name) {
        None => Ok(()),
        Some(to) => submit(a, policy.key.clone(), PolicyChange::Rename(to)),
    }
}

pub(super) fn delete(a: &CallContext<'_>, kind: NamedKind, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let policy = find(a, kind, id)?;
    submit(a, policy.key, PolicyChange::Delete)?;
    a.done(None)
}

/// Returns the policy that was just made, if it is there.
pub(super) fn made(a: &CallContext<'_>, key: &PolicyKey) -> Option<StoragePolicy> {
    list_policies(a, key.kind)
        .into_iter()
        .find(|p| p.key == *key)
}

/// Handles requests to `storage/qos/policies`.
pub fn qos_policies(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    const KIND: NamedKind = NamedKind::Qos;
    let draft = |way| -> HandlerResult<qos::Draft> {
        let mut draft = qos::Draft::default();
        let mut fields = Fields::read(&a.call.body)?;
        resource::read(a, &qos::TABLE, &mut fields, way, &mut draft, None)?;
        Ok(draft)
    };
    match (verb, path) {
        (Verb::Get, [] | [_]) => {
            let one = !path.is_empty();
            resource::get(a, &qos::TABLE, one, |_| qos::rows(a.cluster, KIND))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let draft = draft(Way::Create)?;
            let key = key(KIND, draft.name.clone(), draft.svm.clone())?;
            let ceiling = draft.ceiling(Ceiling::default());
            if ceiling == Ceiling::default() {
                return Err(Refusal::required("fixed.max_throughput_iops"));
            }
            let (comment, body) = (String::new(), PolicyBody::Qos(ceiling));
            submit(a, key.clone(), PolicyChange::Create { comment, body })?;
            let made = made(a, &key).map(|p| qos::Row::new(p, a.cluster));
            resource::made(a, &qos::TABLE, made)
        }
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            let policy = find(a, KIND, id)?;
            let draft = draft(Way::Modify)?;
            edit(a, KIND, id, None, |policy| {
                let ceiling = draft.ceiling(qos::ceiling(&policy.body));
                Ok(Some(PolicyBody::Qos(ceiling)))
            })?;
            rename(a, &policy, draft.name)?;
            a.done(None)
        }
        (Verb::Delete, [id]) => delete(a, KIND, id),
        _ => Err(Refusal::no_api()),
    }
}

/// Reads one schedule of a policy; fields that the body does not have are as `before`.
fn read_copies(
    a: &CallContext<'_>,
    fields: &mut Fields,
    before: Option<&Copies>,
) -> HandlerResult<Copies> {
    let mut draft = CopiesDraft::default();
    resource::read(a, &SCHEDULES, fields, Way::Modify, &mut draft, None)?;
    let [name, id] = draft.schedule;
    let schedule = match (name, id, before) {
        (Some(name), ..) => name,
        (None, Some(id), _) => {
            let all = a.cluster.schedules();
            let found = all.into_iter().find(|s| uuid("schedule", &s.name) == id);
            found.ok_or_else(|| Refusal::no_schedule(&id))?.name
        }
        (None, None, Some(before)) => before.schedule.clone(),
        (None, None, None) => return Err(Refusal::required("copies.schedule.name")),
    };
    let count = match (draft.count, before) {
        (Some(n), _) => match u32::try_from(n).ok().filter(|n| (1..=1023).contains(n)) {
            Some(n) => n,
            None => return Err(Refusal::value("copies.count", &n.to_string(), "1 to 1023")),
        },
        (None, Some(before)) => before.count,
        (None, None) => return Err(Refusal::required("copies.count")),
    };
    // Both are the same here: what a snapshot's name begins with is what replication policies know
    // it by.
    let (label, prefix) = (draft.label, draft.prefix);
    if let (Some(label), Some(prefix)) = (&label, &prefix) {
        if label != prefix {
            return Err(Refusal::not_here(
                "copies.prefix",
                "it is the snapmirror_label here",
            ));
        }
    }
    let label = label.or(prefix);
    Ok(Copies {
        schedule,
        count,
        label,
    })
}

/// Returns `copies` of a policy's body.
fn read_all_copies(a: &CallContext<'_>, fields: &mut Fields) -> HandlerResult<Option<Vec<Copies>>> {
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
        read_copies(a, &mut fields, None)
    };
    list.iter().map(one).collect::<HandlerResult<_>>().map(Some)
}

/// Handles requests to `storage/snapshot-policies`.
pub fn snapshot_policies(a: &CallContext<'_>, verb: Verb, path: &[&str]) -> HandlerResult<Reply> {
    const KIND: NamedKind = NamedKind::Snapshot;
    let read = |way| -> HandlerResult<(Draft, Option<Vec<Copies>>, bool)> {
        let mut draft = Draft::default();
        let mut fields = Fields::read(&a.call.body)?;
        let cluster =
            ["svm", "svm.name", "svm.uuid"].map(|name| fields.has_field(name)) == [false; 3];
        let copies = read_all_copies(a, &mut fields)?;
        resource::read(a, &TABLE, &mut fields, way, &mut draft, None)?;
        Ok((draft, copies, cluster))
    };
    match (verb, path) {
        (Verb::Get, [] | [_]) => {
            let one = !path.is_empty();
            resource::get(a, &TABLE, one, |_| qos::rows(a.cluster, KIND))
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let (draft, copies, cluster) = read(Way::Create)?;
            let svm = if cluster {
                Some(String::new())
            } else {
                draft.svm
            };
            let key = key(KIND, draft.name, svm)?;
            let copies = copies.unwrap_or_default();
            if copies.is_empty() {
                return Err(Refusal::required("copies"));
            }
            let enabled = draft.enabled.unwrap_or(true);
            let body = PolicyBody::Snapshot { enabled, copies };
            let comment = draft.comment.unwrap_or_default();
            submit(a, key.clone(), PolicyChange::Create { comment, body })?;
            let made = made(a, &key).map(|p| qos::Row::new(p, a.cluster));
            resource::made(a, &TABLE, made)
        }
        (Verb::Patch, [id]) => {
            a.only(&[])?;
            let (draft, all, _) = read(Way::Modify)?;
            edit(a, KIND, id, draft.comment.as_deref(), |policy| {
                let (enabled, copies) = copies_of(policy);
                Ok(Some(PolicyBody::Snapshot {
                    enabled: draft.enabled.unwrap_or(enabled),
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

fn schedules(a: &CallContext<'_>, verb: Verb, id: &str, path: &[&str]) -> HandlerResult<Reply> {
    const KIND: NamedKind = NamedKind::Snapshot;
    let policy = find(a, KIND, id)?;
    let row = |of: &Copies| PolicySchedule {
        policy: Some(policy.clone()),
        of: of.clone(),
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
    match (verb, path) {
        (Verb::Get, [] | [_]) => {
            let rows = |_| copies_of(&policy).1.iter().map(row).collect();
            resource::get(a, &SCHEDULES, !path.is_empty(), rows)
        }
        (Verb::Post, []) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let new = read_copies(a, &mut fields, None)?;
            edit(a, KIND, id, None, |p| body(p, &|all| all.push(new.clone())))?;
            resource::made(a, &SCHEDULES, Some(row(&new)))
        }
        (Verb::Patch, [at]) => {
            a.only(&[])?;
            let mut fields = Fields::read(&a.call.body)?;
            let new = read_copies(a, &mut fields, Some(there(at)?))?;
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
