//! Export policies of qtrees that come with a volume's contents.
//!
//! Clones, restored backups, copies of SnapMirror and volumes whose catalog was rebuilt have the
//! qtrees of another volume, or of an earlier time, under the same numbers. They get the policies
//! by name. Without a policy of that name nobody is admitted, until a policy is given to the qtree:
//! the volume's own would admit more clients than the qtree had.

use super::named;
use crate::model::{TreeExport, Volume};
use crate::named::{NamedKind, NamedPolicy};
use crate::refusal::{Refusal, Status};
use crate::view::View;
use std::collections::BTreeMap;
use weir_base::limits::api::MAX_TREE_POLICIES;
use weir_relations::plan::TreePolicies;

/// Returns the export of a qtree with this policy; `None`: the server's default.
pub fn of(policy: Option<&NamedPolicy>) -> TreeExport {
    TreeExport {
        policy: policy.map(|policy| policy.id),
        rules: policy.and_then(named::rules_of),
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
        Some("") => of(None),
        Some(name) => match named::find(view, NamedKind::Export, project, name) {
            Some(policy) => of(Some(policy)),
            None => closed(name),
        },
    };
    let all = names.iter().map(|(number, name)| (*number, one(name)));
    all.collect()
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
