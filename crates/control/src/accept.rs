//! Turns a mutation into intended state, an operation, and a job.
//!
//! The operation contains the job with all of its arguments, so that an interrupted job can be
//! restarted from the catalog alone.

use crate::job::{Job, RowVerb};
use crate::model::{
    ActiveDirectory, Actor, Backup, BackupVault, Operation, Outcome, Snapshot, State, Volume,
};
use crate::mutation::{MoveChange, Mutation, NewBackupVault, RestoreFiles, VolumeChange};
use crate::name::{Name, QuotaRuleName, SnapshotName, Surface, Target, VolumeName};
use crate::policies::{PolicyChange, PolicyName};
use crate::policy;
use crate::publish::alike;
use crate::refusal::{Refusal, Status};
use crate::rules::{self, replication};
use crate::store::Transaction;
use crate::view::View;
use std::sync::Arc;

/// Renders the target of an ended operation as text, from which an API makes the operation's
/// response when it knows the reader's address. Called in the change that ends the operation; it
/// must not block.
pub type Render = Arc<dyn Fn(&View, &Target) -> Option<String> + Send + Sync>;

/// Returns an operation's response, if it has been done.
pub(crate) fn response(
    render: Option<&Render>,
    tx: &Transaction<'_>,
    operation: &Operation,
    outcome: &Outcome,
) -> Option<Arc<str>> {
    let render = render.filter(|_| *outcome == Outcome::Done)?;
    render(&tx.view, &operation.target()).map(Into::into)
}

pub(crate) use crate::rules::Inputs;

/// An operation that was accepted.
pub(crate) struct AcceptedOperation {
    pub operation: Operation,
    /// Lane of the job: jobs of one lane run in the order in which they were accepted.
    pub lane: u64,
}

fn missing(target: &Target) -> Refusal {
    Refusal::new(
        Status::NotFound,
        "NOT_FOUND",
        format!("Resource '{target}' was not found"),
    )
}

/// Returns a volume that can be changed now.
fn idle(view: &View, name: &VolumeName) -> Result<Arc<Volume>, Refusal> {
    let volume = view.volume(name).cloned();
    let volume = volume.ok_or_else(|| missing(&Target::Volume(name.clone())))?;
    volume.idle()?;
    Ok(volume)
}

/// Makes the change in the transaction, with its operation and its line in the audit log, or
/// refuses it.
pub(crate) fn apply(
    render: Option<&Render>,
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    actor: &Actor,
    inputs: &Inputs,
    operation: Name,
) -> Result<AcceptedOperation, Refusal> {
    let target = mutation.target();
    if let Some(hold) = replication::hold(&tx.view, mutation) {
        return Err(hold.refusal());
    }
    let before = tx.view.clone();
    let (lane, job, ends) = intend(tx, mutation, &target, inputs)?;
    rules::space::check(&before, &tx.view, &inputs.facts)?;
    let warnings = rules::warnings::change_warnings(&before, &tx.view, mutation, inputs);
    let seq = tx.audit(actor, mutation.verb(), target.to_string(), "started");
    let mut operation = Operation {
        name: operation,
        job,
        quiet: inputs.quiet,
        audit: Some(seq),
        created: tx.now,
        ended: None,
        outcome: None,
        warnings,
        response: None,
    };
    let queues =
        |mutation: &Mutation| matches!(mutation, Mutation::Replicate { verb, .. } if verb.queues());
    // Neither is an operation, unless the data path has to apply a change.
    let ended = matches!(
        mutation,
        Mutation::Replicate { .. } | Mutation::ChangePolicy(..)
    );
    if ends && ended {
        let words = if queues(mutation) { "queued" } else { "done" };
        tx.outcome(seq, words.to_owned());
        operation.ended = Some(tx.now);
        operation.outcome = Some(Outcome::Done);
    } else if ends {
        operation.response = response(render, tx, &operation, &Outcome::Done);
        tx.end(&operation, Outcome::Done, operation.response.clone());
        operation.ended = Some(tx.now);
        operation.outcome = Some(Outcome::Done);
    } else {
        tx.put_operation(operation.clone());
    }
    Ok(AcceptedOperation { operation, lane })
}

/// The lane, the job, and true if nothing has to be done.
type Intent = (u64, Job, bool);

fn intend(
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    target: &Target,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    rules::large::check(&tx.view, mutation)?;
    match mutation {
        Mutation::CreatePool(..)
        | Mutation::UpdatePool(..)
        | Mutation::DeletePool(_)
        | Mutation::SwitchPool(_) => intend_pool(tx, mutation, target, inputs),
        Mutation::CreateVolume(..)
        | Mutation::UpdateVolume(..)
        | Mutation::RenameVolume { .. }
        | Mutation::DeleteVolume { .. }
        | Mutation::RevertVolume { .. }
        | Mutation::SplitVolume(_)
        | Mutation::MoveVolume(..)
        | Mutation::DeleteTree { .. }
        | Mutation::RestoreFiles(..) => intend_volume(tx, mutation, target, inputs),
        Mutation::CreateSnapshot(..)
        | Mutation::UpdateSnapshot(..)
        | Mutation::RenameSnapshot { .. }
        | Mutation::DeleteSnapshot(_) => intend_snapshot(tx, mutation, target, inputs),
        Mutation::ChangePolicy(name, change) => change_policy(tx, name, change, inputs),
        Mutation::CreateQuotaRule(name, _)
        | Mutation::UpdateQuotaRule(name, _)
        | Mutation::DeleteQuotaRule(name) => change_quotas(tx, name, mutation, inputs),
        Mutation::CreateActiveDirectory(..)
        | Mutation::UpdateActiveDirectory(..)
        | Mutation::DeleteActiveDirectory(_) => intend_domain(tx, mutation, target, inputs),
        Mutation::Replicate {
            verb,
            preconditions,
        } => {
            let edits = replication::change(&tx.view, verb, preconditions, tx.now.secs())?;
            tx.replicate(edits);
            let (command, target) = verb.subject();
            let job = Job::Relation {
                command: command.into(),
                target: target.into(),
            };
            Ok((0, job, true))
        }
        _ => intend_backup(tx, mutation, target, inputs),
    }
}

/// Intends a change of a storage pool.
fn intend_pool(
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    target: &Target,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    match mutation {
        Mutation::CreatePool(name, new) => {
            let pool = rules::pool::create(&tx.view, name, new, inputs.id, tx.now)?;
            tx.put_pool(pool);
            Ok((inputs.id, Job::CreatePool(name.clone()), false))
        }
        Mutation::UpdatePool(name, change) => {
            let pool = tx.view.pool(name).cloned();
            let pool = pool.ok_or_else(|| missing(target))?;
            let (next, volumes) = rules::pool::update(&tx.view, &pool, change)?;
            tx.put_pool(next);
            for volume in volumes {
                tx.put_volume(volume);
            }
            Ok((pool.id, Job::UpdatePool(name.clone()), false))
        }
        Mutation::DeletePool(name) => {
            let pool = tx.view.pool(name).cloned();
            let pool = pool.ok_or_else(|| missing(target))?;
            rules::pool::delete(&tx.view, &pool)?;
            tx.remove_pool(&pool);
            Ok((pool.id, Job::DeletePool(name.clone()), false))
        }
        Mutation::SwitchPool(name) => match tx.view.pool(name) {
            Some(pool) => Ok((pool.id, Job::SwitchPool(name.clone()), true)),
            None => Err(missing(target)),
        },
        _ => Err(missing(target)),
    }
}

/// Intends a change of a volume.
fn intend_volume(
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    target: &Target,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    match mutation {
        Mutation::CreateVolume(name, new) => {
            let mut volume = rules::volume::create(&tx.view, name, new, inputs.id, tx.now)?;
            policy::follow(&mut volume, &policy::Rules::new(), tx.now.secs());
            tx.put_volume(volume);
            Ok((inputs.id, Job::Create(name.clone()), false))
        }
        Mutation::UpdateVolume(name, change) => update_volume(tx, name, change, inputs),
        Mutation::RenameVolume { name, to } => {
            let volume = idle(&tx.view, name)?;
            let to = name.place.volume_name(name.surface, to);
            rules::policies::check_rename(&tx.view, &volume, &to)?;
            rename_volume(tx, &volume, &to);
            let job = Job::Update {
                of: to,
                capacity: false,
                mode: false,
            };
            Ok((volume.id, job, false))
        }
        Mutation::DeleteVolume { name, force } => {
            let going = idle(&tx.view, name)?;
            rules::volume::delete(&tx.view, &going, *force)?;
            tx.set_state(&going, State::Deleting, "", None);
            Ok((going.id, Job::Delete(name.clone()), false))
        }
        Mutation::RevertVolume { name, snapshot } => {
            let back = idle(&tx.view, name)?;
            rules::trees::check_none_deleted(&tx.view, &back)?;
            rules::snapshot::whole(&back)?;
            rules::snapshot::revert(&tx.view, &name.snapshot(snapshot))?;
            tx.set_state(&back, State::Restoring, "", None);
            let job = Job::Revert {
                of: name.clone(),
                snapshot: snapshot.as_str().into(),
            };
            Ok((back.id, job, false))
        }
        Mutation::SplitVolume(name) => {
            let volume = idle(&tx.view, name)?;
            rules::volume::split(&tx.view, &volume)?;
            let mut next = Volume::clone(&volume);
            next.splitting = true;
            next.revision += 1;
            tx.put_volume(next);
            Ok((split_lane(volume.id), Job::Split(name.clone()), false))
        }
        Mutation::MoveVolume(name, change) => move_volume(tx, name, change, inputs),
        Mutation::RestoreFiles(name, restore) => restore_files(tx, name, restore),
        Mutation::DeleteTree { of, number } => {
            let volume = idle(&tx.view, of)?;
            tx.put_volume(rules::trees::delete(&volume, *number));
            let job = Job::DeleteTree {
                of: of.clone(),
                key: Arc::clone(&volume.key),
                number: *number,
            };
            Ok((tree_lane(volume.id, *number), job, false))
        }
        _ => Err(missing(target)),
    }
}

fn move_volume(
    tx: &mut Transaction<'_>,
    name: &VolumeName,
    change: &MoveChange,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    let volume = idle(&tx.view, name)?;
    let mut next = Volume::clone(&volume);
    next.revision += 1;
    let (job, ends) = match change {
        MoveChange::Start { pool, aggregate } => {
            let given = (pool.as_deref(), aggregate.as_deref());
            next.moving = Some(rules::moves::start(
                &tx.view, &volume, given, inputs, tx.now,
            )?);
            next.state_details.clear();
            (Job::Move(name.clone()), false)
        }
        MoveChange::Abort => {
            rules::moves::abort(&volume)?;
            next.moving = None;
            "the move was aborted".clone_into(&mut next.state_details);
            let (of, arrived) = (name.clone(), false);
            (Job::EndMove { of, arrived }, true)
        }
    };
    tx.put_volume(next);
    Ok((move_lane(volume.id), job, ends))
}

fn update_volume(
    tx: &mut Transaction<'_>,
    name: &VolumeName,
    change: &VolumeChange,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    let volume = idle(&tx.view, name)?;
    let before = tx.view.clone();
    let mut next = rules::volume::update(&before, &volume, change, inputs.used)?;
    policy::follow(&mut next, &policy::volume_rules(&volume), tx.now.secs());
    tx.put_volume(next.clone());
    let held = |view: &View, of: &Volume| rules::volume::capacity(view, of);
    let capacity = held(&before, &volume) != held(&tx.view, &next);
    let mode = change.unix_permissions.is_some();
    // The engine has to be notified.
    let touched = capacity || mode;
    if touched {
        tx.set_state(&next, State::Updating, "", None);
    }
    let of = name.clone();
    let job = Job::Update { of, capacity, mode };
    // Labels, descriptions and the like are in force once they are written.
    let words = !touched && alike((&before, &volume), (&tx.view, &next));
    Ok((volume.id, job, words))
}

/// Intends a change of a named policy, and of the volumes that use it.
fn change_policy(
    tx: &mut Transaction<'_>,
    name: &PolicyName,
    change: &PolicyChange,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    let (next, volumes) = rules::policies::change(&tx.view, name, change, inputs.id)?;
    let before = tx.view.policy(name).cloned();
    if let Some(before) = &before {
        let moves = next.as_ref().is_none_or(|next| next.name != before.name);
        if moves {
            tx.remove_policy(before);
        }
    }
    let id = next.as_ref().or(before.as_deref());
    let id = id.map_or(inputs.id, |policy| policy.id);
    if let Some(next) = next {
        tx.put_policy(next);
    }
    let seen = !volumes.is_empty();
    for mut volume in volumes {
        let old = tx.view.volume(&volume.name).cloned();
        let rules = old
            .map(|old| policy::volume_rules(&old))
            .unwrap_or_default();
        policy::follow(&mut volume, &rules, tx.now.secs());
        tx.put_volume(volume);
    }
    let job = Job::Policy {
        verb: change.verb().into(),
        name: name.to_string().into(),
    };
    Ok((id, job, !seen))
}

/// Intends a change of a snapshot.
fn intend_snapshot(
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    target: &Target,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    match mutation {
        Mutation::CreateSnapshot(name, new) => {
            let parent = idle(&tx.view, &name.parent)?;
            rules::snapshot::whole(&parent)?;
            let snapshot = rules::snapshot::create(&tx.view, name, new, inputs.id, tx.now)?;
            tx.put_snapshot(snapshot);
            if let Some(period) = new.schedule {
                let mut volume = Volume::clone(&parent);
                policy::ran(&mut volume.snapshot_runs, period, tx.now.secs());
                tx.note_volume(volume);
            }
            Ok((parent.id, Job::TakeSnapshot(name.clone()), false))
        }
        Mutation::UpdateSnapshot(name, change) => {
            let parent = idle(&tx.view, &name.parent)?;
            let snapshot = tx.view.snapshot(name).cloned();
            let snapshot = snapshot.ok_or_else(|| missing(target))?;
            let next = rules::snapshot::update(&snapshot, change)?;
            let label = next.snapmirror_label() != snapshot.snapmirror_label();
            tx.put_snapshot(next);
            let name = name.clone();
            Ok((parent.id, Job::UpdateSnapshot { name, label }, !label))
        }
        Mutation::RenameSnapshot { name, to } => {
            let parent = idle(&tx.view, &name.parent)?;
            let next = rules::snapshot::rename(&tx.view, name, to)?;
            let job = Job::RenameSnapshot {
                name: next.name.clone(),
                from: Arc::clone(&name.id),
            };
            rename(tx, name, next);
            Ok((parent.id, job, false))
        }
        Mutation::DeleteSnapshot(name) => delete_snapshot(tx, name, target),
        _ => Err(missing(target)),
    }
}

fn delete_snapshot(
    tx: &mut Transaction<'_>,
    name: &SnapshotName,
    target: &Target,
) -> Result<Intent, Refusal> {
    let parent = idle(&tx.view, &name.parent)?;
    let snapshot = tx.view.snapshot(name).cloned();
    let snapshot = snapshot.ok_or_else(|| missing(target))?;
    let mut going = Snapshot::clone(&snapshot);
    if going.state != State::Ready {
        return Err(Refusal::new(
            Status::Aborted,
            "RESOURCE_BUSY",
            format!("snapshot {} is {}", name.id, going.state.as_str()),
        ));
    }
    going.state = State::Deleting;
    tx.put_snapshot(going);
    Ok((parent.id, Job::DeleteSnapshot(name.clone()), false))
}

fn change_quotas(
    tx: &mut Transaction<'_>,
    name: &QuotaRuleName,
    mutation: &Mutation,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    let volume = idle(&tx.view, &name.volume)?;
    let (quotas, verb) = rules::quota::change(&volume, mutation, inputs, tx.now)?;
    let mut next = Volume::clone(&volume);
    next.quotas = quotas;
    next.revision += 1;
    tx.put_volume(next);
    let name = name.clone();
    Ok((volume.id, Job::QuotaRule { name, verb }, false))
}

/// Intends a change of the membership of a domain.
fn intend_domain(
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    target: &Target,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    match mutation {
        Mutation::CreateActiveDirectory(name, new) => {
            let directory =
                rules::active_directory::create(&tx.view, name, new, inputs.id, tx.now)?;
            tx.put_directory(directory);
            let (name, again) = (name.clone(), false);
            Ok((inputs.id, Job::JoinDomain { name, again }, false))
        }
        Mutation::UpdateActiveDirectory(name, change) => {
            let directory = tx.view.active_directory(name).cloned();
            let directory = directory.ok_or_else(|| missing(target))?;
            let (next, again) = rules::active_directory::update(&directory, change)?;
            tx.put_directory(next);
            let name = name.clone();
            let job = match again {
                true => Job::JoinDomain { name, again },
                false => Job::UpdateDomain(name),
            };
            Ok((directory.id, job, !again))
        }
        Mutation::DeleteActiveDirectory(name) => {
            let directory = tx.view.active_directory(name).cloned();
            let directory = directory.ok_or_else(|| missing(target))?;
            rules::active_directory::delete(&tx.view, &directory)?;
            let mut next = ActiveDirectory::clone(&directory);
            next.state = State::Deleting;
            tx.put_directory(next);
            Ok((directory.id, Job::LeaveDomain(name.clone()), false))
        }
        _ => Err(missing(target)),
    }
}

/// Intends a change of a vault or a backup. All jobs of a vault are in its lane.
fn intend_backup(
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    target: &Target,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    match mutation {
        Mutation::CreateBackupVault(name, new) => {
            let made = (inputs.id, inputs.facts.backups);
            let vault = rules::backup::create_vault(&tx.view, name, new, made, tx.now)?;
            tx.put_vault(vault);
            Ok((inputs.id, Job::CreateBackupVault(name.clone()), false))
        }
        Mutation::UpdateBackupVault(name, change) => {
            let vault = tx.view.backup_vault(name).cloned();
            let vault = vault.ok_or_else(|| missing(target))?;
            tx.put_vault(rules::backup::update_vault(&vault, change)?);
            Ok((vault.id, Job::UpdateBackupVault(name.clone()), true))
        }
        Mutation::DeleteBackupVault(name) => {
            let vault = tx.view.backup_vault(name).cloned();
            let vault = vault.ok_or_else(|| missing(target))?;
            rules::backup::delete_vault(&tx.view, &vault)?;
            let mut next = BackupVault::clone(&vault);
            next.state = State::Deleting;
            tx.put_vault(next);
            Ok((vault.id, Job::DeleteBackupVault(name.clone()), false))
        }
        Mutation::CreateBackup(name, new) => {
            if name.surface() == Surface::Filestore && tx.view.backup_vault(&name.vault).is_none() {
                // Vaults and backups are counted apart: both may have this identifier.
                let (vault, made) = (NewBackupVault::default(), (inputs.id, inputs.facts.backups));
                let vault = rules::backup::new_vault(&tx.view, &name.vault, &vault, made, tx.now)?;
                tx.put_vault(vault);
            }
            let backup = rules::backup::create(&tx.view, name, new, inputs.id, tx.now)?;
            let source = tx.view.volume(&backup.source).cloned();
            if let (Some(period), Some(source)) = (new.schedule, source) {
                let mut volume = Volume::clone(&source);
                policy::ran(&mut volume.backup_runs, period, tx.now.secs());
                tx.note_volume(volume);
            }
            tx.put_backup(backup);
            let lane = vault_lane(&tx.view, &name.vault);
            Ok((lane, Job::TakeBackup(name.clone()), false))
        }
        Mutation::UpdateBackup(name, change) => {
            let backup = tx.view.backup(name).cloned();
            let backup = backup.ok_or_else(|| missing(target))?;
            tx.put_backup(rules::backup::update(&backup, change)?);
            let lane = vault_lane(&tx.view, &name.vault);
            Ok((lane, Job::UpdateBackup(name.clone()), true))
        }
        Mutation::DeleteBackup(name) => {
            let backup = tx.view.backup(name).cloned();
            let backup = backup.ok_or_else(|| missing(target))?;
            rules::backup::delete(&tx.view, &backup)?;
            let mut next = Backup::clone(&backup);
            next.state = State::Deleting;
            tx.put_backup(next);
            let lane = vault_lane(&tx.view, &name.vault);
            Ok((lane, Job::DeleteBackup(name.clone()), false))
        }
        _ => intend_backup_policy(tx, mutation, target, inputs),
    }
}

/// Intends to copy files of a backup into a volume.
fn restore_files(
    tx: &Transaction<'_>,
    name: &VolumeName,
    restore: &RestoreFiles,
) -> Result<Intent, Refusal> {
    let volume = idle(&tx.view, name)?;
    rules::backup::restore_files(&tx.view, &volume, restore)?;
    let files = restore.files.iter().map(|path| path.as_str().into());
    let job = Job::RestoreFiles {
        of: name.clone(),
        backup: restore.backup.clone(),
        files: files.collect(),
        directory: restore.directory.as_str().into(),
    };
    let lane = vault_lane(&tx.view, &restore.backup.vault);
    Ok((lane, job, false))
}

/// Intends a change of a policy of backups.
fn intend_backup_policy(
    tx: &mut Transaction<'_>,
    mutation: &Mutation,
    target: &Target,
    inputs: &Inputs,
) -> Result<Intent, Refusal> {
    let found = |tx: &Transaction<'_>, name: &Name| {
        let policy = tx.view.backup_policy(name).cloned();
        policy.ok_or_else(|| missing(target))
    };
    let job = |name: &Name, verb: RowVerb| Job::BackupPolicy {
        name: name.clone(),
        verb,
    };
    match mutation {
        Mutation::CreateBackupPolicy(name, new) => {
            let policy = rules::backup::create_policy(&tx.view, name, new, inputs.id, tx.now)?;
            tx.put_backup_policy(policy);
            Ok((inputs.id, job(name, RowVerb::Create), false))
        }
        Mutation::UpdateBackupPolicy(name, change) => {
            let policy = found(tx, name)?;
            tx.put_backup_policy(rules::backup::update_policy(&policy, change)?);
            Ok((policy.id, job(name, RowVerb::Update), false))
        }
        Mutation::DeleteBackupPolicy(name) => {
            let policy = found(tx, name)?;
            rules::backup::delete_policy(&tx.view, &policy)?;
            tx.remove_backup_policy(&policy);
            Ok((policy.id, job(name, RowVerb::Delete), false))
        }
        _ => Err(missing(target)),
    }
}

/// Returns the lane of the jobs of a vault and of its backups.
pub(crate) fn vault_lane(view: &View, name: &Name) -> u64 {
    view.backup_vault(name).map_or(0, |vault| vault.id)
}

/// Returns the lane of a split, which takes as long as there is data, so that nothing else waits
/// for it. Ids have 63 bits.
pub(crate) fn split_lane(volume: u64) -> u64 {
    volume | 1 << 63
}

/// Returns the lane of a volume's moves, for which nothing else waits.
pub(crate) fn move_lane(volume: u64) -> u64 {
    (volume ^ 1) | 1 << 63
}

/// Returns the lane of the deletion of a qtree, which takes as long as there are files.
pub(crate) fn tree_lane(volume: u64, number: u32) -> u64 {
    split_lane(volume) ^ u64::from(number) << 1
}

/// Replaces a renamed snapshot; clones of it refer to it by its new name.
pub(crate) fn rename(tx: &mut Transaction<'_>, before: &SnapshotName, next: Snapshot) {
    let copies = tx.view.volumes.values();
    let copies = copies.filter(|volume| volume.clone_of.as_ref() == Some(before));
    let copies: Vec<Arc<Volume>> = copies.cloned().collect();
    for volume in copies {
        let mut volume = Volume::clone(&volume);
        volume.clone_of = Some(next.name.clone());
        tx.note_volume(volume);
    }
    tx.view.remove_snapshot(before);
    tx.put_snapshot(next);
}

/// Replaces a renamed volume, with its snapshots; clones of them refer to them by their new names.
fn rename_volume(tx: &mut Transaction<'_>, volume: &Volume, to: &VolumeName) {
    let snapshots = tx.view.snapshots_to_go(&volume.name);
    tx.remove_volume(volume);
    let mut next = Volume::clone(volume);
    next.name = to.clone();
    next.revision += 1;
    tx.put_volume(next);
    for snapshot in snapshots {
        let mut next = Snapshot::clone(&snapshot);
        next.name = to.snapshot(&snapshot.name.id);
        rename(tx, &snapshot.name, next);
    }
}
