//! `svm` and `storage/aggregates`: projects and storage pools.
//!
//! A project is there when it has a pool, a volume or a policy; one that is made here is there
//! before that, with nothing. Pools are made through the NetApp Volumes API: ONTAP has no words for
//! a service level.

use weir_ontap::Change;
use weir_ontap::fields::svm::{Draft, TABLE, rows};
use weir_ontap::fields::{Way, aggregate, svm_peer};
use weir_ontap::storage::{NamedKind, PolicyBody, PolicyChange, PolicyKey, StoragePolicy, Svm};

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};

/// Returns the machine that a body names, by `svm.name`, `svm.uuid` or both.
pub fn svm_of(a: &CallContext<'_>, fields: &mut Fields) -> HandlerResult<String> {
    let found = resource::svm(a, fields, "svm.name")?;
    found.ok_or_else(|| Refusal::required("svm.name"))
}

/// Handles GET of the machines, or of the one whose path it is.
pub fn list(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    resource::get(a, &TABLE, one, |_| rows(a.cluster))
}

fn key(svm: &str) -> PolicyKey {
    PolicyKey {
        kind: NamedKind::Project,
        svm: svm.to_owned(),
        name: svm.to_owned(),
    }
}

/// Returns the machine's own record, if it was made by name.
fn row(a: &CallContext<'_>, svm: &str) -> Option<StoragePolicy> {
    let all = a.cluster.storage_policies(NamedKind::Project);
    all.into_iter().find(|p| p.key.name == svm)
}

fn change(a: &CallContext<'_>, svm: &str, change: PolicyChange) -> HandlerResult<()> {
    let key = key(svm);
    a.cluster
        .change(Change::Policy { key, change })
        .map_err(Refusal::from_failure)
}

/// Returns the aggregates in a body: they can be named, not changed.
fn pools(fields: &mut Fields, svm: Option<&Svm>) -> HandlerResult<()> {
    let Some(list) = fields.take("aggregates") else {
        return Ok(());
    };
    let all = list.as_array().into_iter().flatten();
    let mut asked: Vec<&str> = all.filter_map(|one| one.get("name")?.as_str()).collect();
    asked.sort_unstable();
    let mut own: Vec<&str> = svm
        .iter()
        .flat_map(|svm| &svm.aggregates)
        .map(String::as_str)
        .collect();
    own.sort_unstable();
    match asked == own {
        true => Ok(()),
        false => {
            let why =
                "an SVM has the storage pools of its project, which the NetApp Volumes API makes";
            Err(Refusal::not_here("aggregates", why))
        }
    }
}

/// Handles POST of a machine.
pub fn create(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    pools(&mut fields, None)?;
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, Way::Create, &mut draft, None)?;
    let name = draft.name.ok_or_else(|| Refusal::required("name"))?;
    let comment = draft.comment.unwrap_or_default();
    if a.cluster.svms().iter().any(|svm| svm.name == name) {
        return Err(Refusal::duplicate(&format!(
            "SVM \"{name}\" already exists."
        )));
    }
    let body = PolicyBody::Project;
    change(a, &name, PolicyChange::Create { comment, body })?;
    let mut all = rows(a.cluster).into_iter();
    resource::made(a, &TABLE, all.find(|row| row.svm.name == name))
}

/// Handles PATCH of a machine: its comment.
pub fn modify(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let like = resource::found(a, &TABLE, rows(a.cluster))?;
    let svm = &like.svm;
    let mut fields = Fields::read(&a.call.body)?;
    pools(&mut fields, Some(svm))?;
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, Way::Modify, &mut draft, Some(&like))?;
    if let Some(comment) = draft.comment.filter(|comment| *comment != svm.comment) {
        let made = match row(a, &svm.name) {
            Some(row) => PolicyChange::Set {
                revision: row.revision,
                comment: Some(comment),
                body: None,
            },
            None => PolicyChange::Create {
                comment,
                body: PolicyBody::Project,
            },
        };
        change(a, &svm.name, made)?;
    }
    a.done(None)
}

/// Handles DELETE of a machine that has nothing.
pub fn delete(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&[])?;
    let svm = resource::found(a, &TABLE, rows(a.cluster))?.svm;
    if row(a, &svm.name).is_none() {
        let why = format!(
            "SVM \"{}\" has storage pools, volumes or policies.",
            svm.name
        );
        return Err(Refusal::in_use(&why));
    }
    change(a, &svm.name, PolicyChange::Delete)?;
    a.done(None)
}

/// Handles GET of pairs of machines, or of the one whose path it is.
pub fn svm_peers(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    resource::get(a, &svm_peer::TABLE, one, |_| svm_peer::rows(a.cluster))
}

/// Handles GET of the aggregates, or of the one whose path it is.
pub fn aggregates(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    resource::get(a, &aggregate::TABLE, one, |_| aggregate::rows(a.cluster))
}
