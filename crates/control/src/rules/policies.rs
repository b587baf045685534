//! Policies by name: their valid contents, and their effect on volumes.
//!
//! The contents of a policy are copied into the volumes that refer to it, as their own settings. So
//! the data path, the schedules and the other interfaces read one place, and none of them knows
//! about policies. The transaction that changes a policy changes all volumes that refer to it, or
//! none: the rules of volumes apply to each ([`volume::update`]). A setting that is given to a
//! volume directly ends its reference.

use super::{exports, names, trees, volume};
use crate::figures::words;
use crate::levels::{Follows, MIB};
use crate::model::{ExportRule, Extra, Period, Pool, QosType, TreeExport, Volume};
use crate::mutation::VolumeChange;
use crate::name::VolumeName;
use crate::policies::{
    NamedKind, NamedPolicy, PolicyBody, PolicyChange, PolicyName, as_sent, described,
};
use crate::policy;
use crate::policy_assignment::{Assign, Ceiling, PolicyAssignment, TreePolicy};
use crate::refusal::{Refusal, Status};
use crate::view::View;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_qos::plan::VolumePlan;

fn refuse<T>(status: Status, reason: &'static str, message: String) -> Result<T, Refusal> {
    Err(Refusal::new(status, reason, message))
}

fn invalid<T>(reason: &'static str, message: String) -> Result<T, Refusal> {
    refuse(Status::InvalidArgument, reason, message)
}

/// Returns the changed policy (`None` if it is deleted), and the volumes that change with it.
pub fn change(
    view: &View,
    name: &PolicyName,
    change: &PolicyChange,
    id: u64,
) -> Result<(Option<NamedPolicy>, Vec<Volume>), Refusal> {
    if let PolicyChange::Create { comment, body } = change {
        check_name(view, name)?;
        let policy = NamedPolicy {
            id,
            name: name.clone(),
            revision: 1,
            comment: comment.clone(),
            body: body.clone(),
        };
        check(&policy)?;
        return Ok((Some(policy), Vec::new()));
    }
    let Some(there) = view.policy(name) else {
        return Err(missing(name));
    };
    if there.is_builtin() {
        let words = format!(
            "{} {} cannot be changed: every server has it",
            name.kind.noun(),
            name.id
        );
        return refuse(Status::FailedPrecondition, "SYSTEM_POLICY", words);
    }
    let mut next = NamedPolicy::clone(there);
    next.revision += 1;
    match change {
        PolicyChange::Create { .. } => {}
        PolicyChange::Set {
            revision,
            comment,
            body,
        } => {
            if *revision != there.revision {
                let words = format!("{name} was changed meanwhile; read it and try again");
                return refuse(Status::Aborted, "REVISION_MISMATCH", words);
            }
            if let Some(comment) = comment {
                next.comment.clone_from(comment);
            }
            if let Some(body) = body {
                next.body = body.clone();
            }
            check(&next)?;
        }
        PolicyChange::Rename(to) => {
            if name.kind == NamedKind::Project {
                return invalid("PROJECT_RENAME", "a project cannot be renamed".to_owned());
            }
            next.name.id = to.as_str().into();
            check_name(view, &next.name)?;
            return Ok((Some(next), Vec::new()));
        }
        PolicyChange::Delete => {
            check_unused(view, there)?;
            return Ok((None, Vec::new()));
        }
    }
    let changed = if next.body == there.body {
        Vec::new()
    } else {
        follow(view, there, &next)?
    };
    Ok((Some(next), changed))
}

/// Checks the name of a policy that is to be created or renamed.
fn check_name(view: &View, name: &PolicyName) -> Result<(), Refusal> {
    if view.policy(name).is_some() {
        let words = format!("{} {} exists already", name.kind.noun(), name.id);
        return refuse(Status::AlreadyExists, "ALREADY_EXISTS", words);
    }
    names::check_policy(name)
}

/// Checks that a policy can be deleted.
fn check_unused(view: &View, policy: &NamedPolicy) -> Result<(), Refusal> {
    let name = &policy.name;
    let used = view.volumes.values().find(|v| refers(v, policy));
    if let Some(volume) = used {
        let words = format!("{name} is in use by volume {}", volume.name.id);
        return refuse(Status::FailedPrecondition, "POLICY_IN_USE", words);
    }
    let mut pools = view.pools.keys();
    let pools = pools.any(|pool| pool.place.project == name.project);
    let own = |p: &PolicyName| p.project == name.project && p.kind != NamedKind::Project;
    if name.kind == NamedKind::Project && (pools || view.policies.keys().any(own)) {
        let words = format!("project {} has storage pools or policies", name.id);
        return refuse(Status::FailedPrecondition, "POLICY_IN_USE", words);
    }
    Ok(())
}

/// Returns the users of the policy `before` as they are under `next`.
fn follow(view: &View, before: &NamedPolicy, next: &NamedPolicy) -> Result<Vec<Volume>, Refusal> {
    let mut after = view.clone();
    after.put_policy(Arc::new(next.clone()));
    let mut changed = Vec::new();
    for user in view.volumes.values().filter(|v| refers(v, before)) {
        let again = assigned_again(user, before);
        let user = volume::update(&after, user, &again, None)?;
        // Each counts when the next is fitted into its pool.
        after.put_volume(Arc::new(user.clone()));
        changed.push(user);
    }
    Ok(changed)
}

fn refers(volume: &Volume, policy: &NamedPolicy) -> bool {
    itself_refers(volume, policy) || trees_of(volume, policy).next().is_some()
}

/// Returns true if the volume refers to the policy for itself, not for qtrees only.
fn itself_refers(volume: &Volume, policy: &NamedPolicy) -> bool {
    let assigned = &volume.assigned;
    let id = match policy.name.kind {
        NamedKind::Project => None,
        NamedKind::Export => assigned.export,
        NamedKind::Qos => assigned.qos,
        NamedKind::Snapshot => assigned.snapshot,
    };
    id == Some(policy.id)
}

/// Returns the numbers of the volume's qtrees that have this export policy.
fn trees_of(volume: &Volume, policy: &NamedPolicy) -> impl Iterator<Item = u32> {
    let (export, id) = (policy.name.kind == NamedKind::Export, policy.id);
    let trees = volume.trees.iter();
    let having = trees.filter(move |(_, tree)| export && tree.policy == Some(id));
    having.map(|(number, _)| *number)
}

/// Returns the change that copies a policy into a volume that refers to it.
fn assigned_again(volume: &Volume, policy: &NamedPolicy) -> VolumeChange {
    let id = policy.name.id.to_string();
    let mut again = VolumeChange::default();
    if itself_refers(volume, policy) {
        let named = Some(Some(id.clone()));
        match policy.name.kind {
            NamedKind::Project => {}
            NamedKind::Export => again.assign.export = named,
            NamedKind::Qos => again.assign.qos = named,
            NamedKind::Snapshot => again.assign.snapshot = named,
        }
    }
    let trees = trees_of(volume, policy);
    again.assign.trees = trees
        .map(|tree| (tree, TreePolicy::Named(id.clone())))
        .collect();
    again
}

fn missing(name: &PolicyName) -> Refusal {
    let reason = match name.kind {
        NamedKind::Project => "PROJECT_NOT_FOUND",
        NamedKind::Export => "EXPORT_POLICY_NOT_FOUND",
        NamedKind::Qos => "QOS_POLICY_NOT_FOUND",
        NamedKind::Snapshot => "SNAPSHOT_POLICY_NOT_FOUND",
    };
    let words = format!("there is no {} \"{}\"", name.kind.noun(), name.id);
    Refusal::new(Status::NotFound, reason, words)
}

fn check(policy: &NamedPolicy) -> Result<(), Refusal> {
    names::check_words(&policy.comment, &Default::default(), &Extra::new())?;
    if policy.body.kind() != policy.name.kind {
        return invalid(
            "POLICY_KIND",
            format!("that is no {}", policy.name.kind.noun()),
        );
    }
    match &policy.body {
        PolicyBody::Project => Ok(()),
        PolicyBody::Export(rules) => {
            let plain: Vec<ExportRule> = rules.iter().map(|r| r.rule.clone()).collect();
            exports::check(&plain)?;
            for rule in rules {
                names::check_words("", &Default::default(), &rule.words)?;
            }
            match rules.is_sorted_by(|a, b| a.index < b.index) {
                true => Ok(()),
                false => invalid("EXPORT_RULE_INVALID", "two rules have one index".to_owned()),
            }
        }
        PolicyBody::Qos(ceiling) => match (ceiling.bytes, ceiling.ops) {
            (Some(0), _) | (_, Some(0)) => {
                invalid("THROUGHPUT_INVALID", "a maximum is 1 at least".to_owned())
            }
            _ => Ok(()),
        },
        PolicyBody::Snapshot { copies, .. } => {
            let periods: Option<BTreeSet<Period>> =
                copies.iter().map(|c| Some(described(&c.at)?.0)).collect();
            match periods {
                Some(periods) if periods.len() == copies.len() => {
                    policy::parse(&as_sent(true, copies)).map(|_| ())
                }
                Some(_) => invalid(
                    "SNAPSHOT_POLICY_INVALID",
                    "a policy has one schedule an hour, a day, a week and a month at most".to_owned(),
                ),
                None => invalid(
                    "SCHEDULE_UNSUPPORTED",
                    "snapshots are taken at one minute of each hour, or at one time of each day, of days of the week, or of \
                     days of the month"
                        .to_owned(),
                ),
            }
        }
    }
}

/// Settings of a volume that were given directly.
#[derive(Default, Clone, Copy, Debug)]
pub struct DirectSettings {
    pub export: bool,
    pub snapshot: bool,
    pub throughput: bool,
}

/// Settings that a volume gets by name.
#[derive(Debug)]
pub struct PolicySettings {
    assigned: PolicyAssignment,
    export: Option<Option<Vec<ExportRule>>>,
    /// `None`: that of the volume.
    trees: Vec<(u32, Option<TreeExport>)>,
    snapshot: Option<Option<Value>>,
    /// MiB/s, if the pool's QoS is manual.
    pub throughput: Option<f64>,
}

/// Returns true if each volume of a pool has a throughput of its own.
fn has_manual_qos(view: &View, pool: &Pool) -> bool {
    let level = view.levels.pool(&pool.service_level);
    let own = level.is_some_and(|level| level.follows == Follows::Volume);
    own && pool.qos_type == QosType::Manual
}

/// Returns the policy of this name for volumes of a project.
pub(super) fn find<'v>(
    view: &'v View,
    kind: NamedKind,
    project: &str,
    id: &str,
) -> Option<&'v Arc<NamedPolicy>> {
    let own = view.policy(&PolicyName::new(kind, project, id));
    own.or_else(|| view.policy(&PolicyName::new(kind, "", id)))
}

/// Looks up the policies assigned by name to a volume of `pool`.
pub fn resolve_policies(
    view: &View,
    pool: Option<&Pool>,
    (project, before): (&str, &PolicyAssignment),
    assign: &Assign,
    given: DirectSettings,
) -> Result<PolicySettings, Refusal> {
    let mut out = PolicySettings {
        assigned: before.clone(),
        export: None,
        trees: Vec::new(),
        snapshot: None,
        throughput: None,
    };
    let next = &mut out.assigned;
    next.export = next.export.filter(|_| !given.export);
    next.snapshot = next.snapshot.filter(|_| !given.snapshot);
    if given.throughput {
        (next.qos, next.ceiling) = (None, Ceiling::default());
    }
    let find = |kind, id: &str| {
        let found = find(view, kind, project, id);
        found.ok_or_else(|| missing(&PolicyName::new(kind, project, id)))
    };
    match &assign.export {
        None => {}
        Some(None) => (next.export, out.export) = (None, Some(None)),
        Some(Some(id)) => {
            let policy = find(NamedKind::Export, id)?;
            next.export = Some(policy.id);
            out.export = Some(rules_of(policy));
        }
    }
    for (number, policy) in &assign.trees {
        let named = |id: &String| find(NamedKind::Export, id);
        out.trees.push((*number, tree_export(policy, named)?));
    }
    match &assign.snapshot {
        None => {}
        Some(None) => (next.snapshot, out.snapshot) = (None, Some(None)),
        Some(Some(id)) => {
            let policy = find(NamedKind::Snapshot, id)?;
            next.snapshot = Some(policy.id);
            if let PolicyBody::Snapshot { enabled, copies } = &policy.body {
                out.snapshot = Some(Some(as_sent(*enabled, copies)));
            }
        }
    }
    match &assign.qos {
        None => {}
        Some(None) => (next.qos, next.ceiling) = (None, Ceiling::default()),
        Some(Some(id)) => {
            let policy = find(NamedKind::Qos, id)?;
            next.qos = Some(policy.id);
            if let PolicyBody::Qos(ceiling) = policy.body {
                next.ceiling = ceiling;
                let manual = pool.is_some_and(|pool| has_manual_qos(view, pool));
                let bytes = ceiling.bytes.filter(|_| manual);
                out.throughput = bytes.map(|bytes| bytes as f64 / MIB);
            }
        }
    }
    next.offline = assign.offline.unwrap_or(next.offline);
    next.synchronous = assign.synchronous.unwrap_or(next.synchronous);
    if let Some(path) = &assign.path {
        next.unmounted = path.is_none();
    }
    Ok(out)
}

/// Returns the export policy of a qtree; `None`: that of its volume.
fn tree_export<'p>(
    policy: &TreePolicy,
    named: impl Fn(&String) -> Result<&'p Arc<NamedPolicy>, Refusal>,
) -> Result<Option<TreeExport>, Refusal> {
    Ok(match policy {
        TreePolicy::Inherited => None,
        TreePolicy::Default => Some(trees::export_from_policy(None)),
        TreePolicy::Named(id) => Some(trees::export_from_policy(Some(named(id)?))),
    })
}

/// Returns the rules of an export policy.
pub(super) fn rules_of(policy: &NamedPolicy) -> Option<Vec<ExportRule>> {
    match &policy.body {
        PolicyBody::Export(rules) => Some(rules.iter().map(|r| r.rule.clone()).collect()),
        _ => None,
    }
}

impl PolicySettings {
    /// Applies them to the volume.
    pub fn apply(self, view: &View, assign: &Assign, next: &mut Volume) -> Result<(), Refusal> {
        next.assigned = self.assigned;
        if let Some(rules) = self.export {
            next.export_rules = rules;
        }
        for (number, own) in self.trees {
            match own {
                Some(mut own) => {
                    let before = next.trees.get(&number);
                    // The policy itself has changed, not which one the qtree has.
                    let same = before.filter(|before| before.policy == own.policy);
                    own.copied = own.policy.is_some() && same.is_some_and(|same| same.copied);
                    next.trees.insert(number, own)
                }
                None => next.trees.remove(&number),
            };
        }
        trees::check_count(next, next.trees.len())?;
        if let Some(policy) = self.snapshot {
            next.snapshot_policy = policy;
        }
        if let Some(Some(path)) = &assign.path {
            repath(view, next, path)?;
        }
        Ok(())
    }
}

/// Gives a volume the single path `path`.
fn repath(view: &View, next: &mut Volume, path: &str) -> Result<(), Refusal> {
    if let [only] = next.paths.as_slice() {
        if **only == *path {
            return Ok(());
        }
    }
    names::check_path(path)?;
    // Its own path may be above or below the new one.
    let mut others = view.clone();
    for own in view.volume(&next.name).iter().flat_map(|v| &v.paths) {
        others.exports.remove_mut(own);
    }
    if !others.is_path_free(path) {
        let words = format!("path /{path} is in use, or is above or below one that is");
        return refuse(Status::AlreadyExists, "PATH_IN_USE", words);
    }
    next.paths = vec![path.into()];
    Ok(())
}

/// Lowers a volume's limits to the ceiling of its QoS policy.
pub fn lower(volume: &Volume, plan: &mut VolumePlan) {
    let Ceiling { bytes, ops } = volume.assigned.ceiling;
    let rate = &mut plan.limits.total;
    let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
    let (lower, fewer) = (least(rate.bytes, bytes), least(rate.ops, ops));
    if (lower, fewer) == (rate.bytes, rate.ops) {
        return;
    }
    (rate.bytes, rate.ops) = (lower, fewer);
    let rates = [
        bytes.map(words::mibps),
        ops.map(|ops| format!("{} operations/s", words::count(ops))),
    ];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    plan.source = format!("QoS policy: {}", rates.join(", ")).into();
}

/// Checks that a volume can be renamed, with everything that has its name as a part of its own.
pub fn check_rename(view: &View, volume: &Volume, to: &VolumeName) -> Result<(), Refusal> {
    names::check(&to.place, &to.id)?;
    if view.volume(to).is_some() {
        return Err(names::taken(to.surface.noun(), &to.id));
    }
    if volume.splitting {
        let words = format!("volume {} is being split", volume.name.id);
        return refuse(Status::Aborted, "RESOURCE_BUSY", words);
    }
    Ok(())
}
