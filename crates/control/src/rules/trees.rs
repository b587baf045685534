//! Export policies of qtrees that come with a volume's contents.
//!
//! Clones, restored backups, copies of SnapMirror and volumes whose catalog was rebuilt have the
//! qtrees of another volume, or of an earlier time, under the same numbers. They get the policies
//! by name. Without a policy of that name nobody is admitted, until a policy is given to the qtree:
//! the volume's own would admit more clients than the qtree had.

use super::policies;
use crate::job::Job;
use crate::model::{TreeExport, Volume};
use crate::policies::{NamedKind, NamedPolicy};
use crate::quota::QuotaSubject;
use crate::refusal::{Refusal, Status};
use crate::view::View;
use std::collections::BTreeMap;
use weir_base::limits::api::MAX_TREE_POLICIES;
use weir_relations::plan::TreePolicies;

/// Returns the export of a qtree with this policy; `None`: the server's default.
pub fn export_from_policy(policy: Option<&NamedPolicy>) -> TreeExport {
    TreeExport {
        policy: policy.map(|policy| policy.id),
        rules: policy.and_then(policies::rules_of),
        unknown: None,
        copied: false,
    }
}

/// Returns the export of a qtree that admits nobody, because its policy is not there. An empty name
/// is not known.
pub fn closed(name: &str) -> TreeExport {
    TreeExport {
        policy: None,
        rules: Some(Vec::new()),
        unknown: Some(name.into()),
        copied: false,
    }
}

/// Returns the names of the policies of a volume's qtrees.
pub fn names(view: &View, volume: &Volume) -> TreePolicies {
    let name = |own: &TreeExport| match (&own.unknown, own.policy) {
        (Some(unknown), _) => Some(unknown.to_string()).filter(|name| !name.is_empty()),
        (None, None) => Some(String::new()),
        (None, Some(id)) => {
            let mut all = view.policies.values();
            let found = all.find(|policy| policy.id == id);
            found.map(|policy| policy.name.id.to_string())
        }
    };
    let all = volume.trees.iter();
    all.map(|(number, own)| (*number, name(own))).collect()
}

/// Returns the exports of qtrees for these names, in a volume of `project`.
pub fn resolve(view: &View, project: &str, names: &TreePolicies) -> BTreeMap<u32, TreeExport> {
    let one = |name: &Option<String>| match name.as_deref() {
        None => closed(""),
        Some("") => export_from_policy(None),
        Some(name) => match policies::find(view, NamedKind::Export, project, name) {
            Some(policy) => export_from_policy(Some(policy)),
            None => closed(name),
        },
    };
    let all = names.iter().map(|(number, name)| (*number, one(name)));
    all.collect()
}

/// Returns the volume without the quota rule of a qtree that goes. The qtree's export policy stays
/// while it is being deleted, and while snapshots may have it.
pub fn delete(volume: &Volume, number: u32) -> Volume {
    let mut next = volume.clone();
    let subject = QuotaSubject::Tree(number);
    next.quotas.rules.retain(|rule| rule.subject != subject);
    next.revision += 1;
    next
}

/// Returns the volume without the export policy of a qtree that is gone; `None` if it has none, or
/// if snapshots may have the qtree.
pub fn forget(view: &View, volume: &Volume, number: u32) -> Option<Volume> {
    let kept = view.snapshots(&volume.name, None).next().is_some();
    if kept || !volume.trees.contains_key(&number) {
        return None;
    }
    let mut next = volume.clone();
    next.trees.remove(&number);
    Some(next)
}

/// Refuses to give a volume other contents while a qtree of it is being deleted: the deletion would
/// go on in these.
pub fn check_none_deleted(view: &View, volume: &Volume) -> Result<(), Refusal> {
    let mut pending = view.pending.keys().filter_map(|name| view.operation(name));
    let deletes = |job: &Job| matches!(job, Job::DeleteTree { key, .. } if *key == volume.key);
    match pending.any(|operation| deletes(&operation.job)) {
        false => Ok(()),
        true => {
            let id = &volume.name.id;
            let words =
                format!("a qtree of volume {id} is being deleted; try again when that has ended");
            Err(Refusal::new(Status::Aborted, "RESOURCE_BUSY", words))
        }
    }
}

/// Refuses more export policies of qtrees than a volume can have.
pub fn check_count(volume: &Volume, count: usize) -> Result<(), Refusal> {
    if count <= MAX_TREE_POLICIES {
        return Ok(());
    }
    let words = format!(
        "{MAX_TREE_POLICIES} qtrees of volume {} have an export policy of their own, and no more can",
        volume.name.id
    );
    let (status, reason) = (Status::ResourceExhausted, "TOO_MANY_QTREE_POLICIES");
    Err(Refusal::new(status, reason, words))
}

/// Returns the exports of the qtrees of a copy whose source has these policies: what was given to
/// the copy's own qtrees stays, and all else follows the source.
pub fn follow(
    view: &View,
    copy: &Volume,
    source: &TreePolicies,
) -> Result<BTreeMap<u32, TreeExport>, Refusal> {
    let mut next = resolve(view, &copy.name.place.project, source);
    next.values_mut().for_each(|own| own.copied = true);
    let given = copy.trees.iter().filter(|(_, own)| !own.copied);
    next.extend(given.map(|(number, own)| (*number, own.clone())));
    check_count(copy, next.len())?;
    Ok(next)
}
