//! Runs schedules: once a minute, due snapshots and backups are taken and those in excess are
//! deleted.
//!
//! A scheduled snapshot is a mutation like any other: the same rules, the same job, a line in the
//! audit log, by an actor of its own. Only the operation is forgotten once it has succeeded,
//! because ten thousand volumes with an hourly schedule would push the users' own out of the list.
//! The snapshots that a schedule may delete are recorded with them, not guessed from their names; a
//! renamed one is its owner's.
//!
//! The number of kept snapshots is checked every minute, not only after a run. So three cases need
//! no special treatment: a policy that now keeps fewer, a server that was stopped between taking
//! and deleting, and a snapshot that something depended on for a while.

use crate::accept::Inputs;
use crate::backups::DELETION_FAILED;
use crate::jobs::{JobContext, LaneTicket};
use crate::model::{
    Actor, Backup, Extra, Labels, Operation, Period, Role, Run, Runs, SNAPMIRROR_LABEL, State,
    Volume,
};
use crate::mutation::{Mutation, NewBackup, NewSnapshot};
use crate::name::{BackupName, Name, SnapshotName, VolumeName};
use crate::policy::{self, Rule, Rules, Wants};
use crate::refusal::{Refusal, Status};
use crate::rules::{self, replication};
use crate::submit::{accepted, operation_name};
use crate::view::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use weir_base::{Clock, Rng};

/// Interval for reading the clock.
const LOOK: Duration = Duration::from_secs(1);
/// Number of volumes checked before other tasks get a turn.
const STRIDE: usize = 256;
/// Maximum number of volumes whose snapshots are taken concurrently.
const AT_ONCE: usize = 32;
/// Maximum number of snapshots with one name, distinguished by a suffix: if a clock went back, or a
/// user took the name.
const NAMESAKES: u32 = 100;

pub(crate) struct Schedules {
    context: Arc<JobContext>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Ensures that only one round runs at a time.
    turn: tokio::sync::Mutex<()>,
}

/// Due work for a volume.
struct Task {
    volume: VolumeName,
    due: Vec<Period>,
    rules: Rules,
}

impl Schedules {
    pub fn new(context: Arc<JobContext>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Schedules {
        Schedules {
            context,
            clock,
            rng,
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Checks once in each minute of the clock, for as long as the server runs.
    pub async fn run(self: Arc<Self>) {
        let mut looked = None;
        loop {
            let minute = self.clock.current_time().secs.div_euclid(60);
            if looked != Some(minute) {
                looked = Some(minute);
                Arc::clone(&self).look().await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Takes due snapshots, and deletes those in excess. Returns when that is done.
    pub async fn look(self: Arc<Self>) {
        let _turn = self.turn.lock().await;
        let now = self.clock.current_time().secs;
        let view = self.context.store.view();
        let mut tasks = JoinSet::new();
        for (n, volume) in view.volumes.values().enumerate() {
            if n % STRIDE == STRIDE - 1 {
                tokio::task::yield_now().await;
            }
            let waits = !ready(volume) || replication::is_copy(&view, &volume.name);
            let backed_up = volume.backup.is_some() || !volume.backup_runs.is_empty();
            if backed_up && !waits {
                self.back_up(&view, volume, now).await;
            }
            if volume.snapshot_policy.is_none() || waits {
                continue;
            }
            let rules = policy::volume_rules(volume);
            let wants = |period: &Period, wanted: Wants| {
                let rule = rules.get(period);
                rule.map(|rule| policy::wants(rule, &volume.snapshot_runs, *period, now))
                    == Some(wanted)
            };
            if rules.keys().any(|period| wants(period, Wants::Settling)) {
                self.store_corrected_times(&volume.name, now).await;
            }
            let due: Vec<Period> = rules
                .keys()
                .copied()
                .filter(|p| wants(p, Wants::Snapshot))
                .collect();
            if due.is_empty() && !too_many(&view, volume, &rules) {
                continue;
            }
            let task = Task {
                volume: volume.name.clone(),
                due,
                rules,
            };
            while tasks.len() >= AT_ONCE {
                tasks.join_next().await;
            }
            let schedules = Arc::clone(&self);
            tasks.spawn(async move { schedules.carry_out(task, now).await });
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn carry_out(&self, task: Task, now: i64) {
        for period in task.due {
            if let Err(why) = self.take(&task.volume, period, now).await {
                tracing::warn!(volume = %task.volume.id, schedule = period.as_str(), %why, "cannot take a scheduled snapshot");
            }
        }
        for (period, rule) in &task.rules {
            if let Err(why) = self.prune(&task.volume, *period, rule.keep).await {
                tracing::warn!(volume = %task.volume.id, schedule = period.as_str(), %why, "cannot delete snapshots in excess of the schedule");
            }
        }
    }

    /// Stores corrected times; if that fails, the next minute retries.
    async fn store_corrected_times(&self, volume: &VolumeName, now: i64) {
        let settled = self.note(volume, |_, volume| policy::correct_times(volume, now));
        if let Err(why) = settled.await {
            tracing::info!(%why, "catalog unavailable; left for the next start");
        }
    }

    /// Stores what `change` does to a volume that is still there.
    async fn note(
        &self,
        volume: &VolumeName,
        change: impl Fn(&View, &mut Volume),
    ) -> Result<(), Refusal> {
        let noted = self.context.store.commit_with_retry(|tx| {
            if let Some(volume) = tx.view.volume(volume).cloned() {
                let mut volume = Volume::clone(&volume);
                change(&tx.view, &mut volume);
                tx.note_volume(volume);
            }
        });
        noted.await.map(drop)
    }

    /// Returns a failure as an error. One that will recur counts as a run in the times that `runs`
    /// returns, so that it is not retried every minute.
    async fn failed(
        &self,
        why: Refusal,
        volume: &VolumeName,
        (period, now): (Period, i64),
        runs: fn(&mut Volume) -> &mut Runs,
    ) -> Result<(), Refusal> {
        if !matches!(why.status, Status::Unavailable | Status::Aborted) {
            let noted = self.note(volume, |_, volume| policy::ran(runs(volume), period, now));
            noted.await?;
        }
        Err(why)
    }

    async fn take(&self, volume: &VolumeName, period: Period, now: i64) -> Result<(), Refusal> {
        let view = self.context.store.view();
        let name = free_name(&view, volume, period, now)?;
        let new = NewSnapshot {
            schedule: Some(period),
            labels: Labels::from([(SNAPMIRROR_LABEL.to_owned(), period.as_str().to_owned())]),
            ..NewSnapshot::default()
        };
        let taken = self.submit(Mutation::CreateSnapshot(name, new)).await;
        let Err(why) = taken else { return Ok(()) };
        self.failed(why, volume, (period, now), |volume| {
            &mut volume.snapshot_runs
        })
        .await
    }

    /// Begins backups that are due, and the deletion of those in excess. Neither is waited for:
    /// they take as long as there is data.
    async fn back_up(&self, view: &View, volume: &Volume, now: i64) {
        let rules = rules::backup::schedules(view, volume);
        let runs = &volume.backup_runs;
        let wanted = |(period, rule): (&Period, &Rule)| policy::wants(rule, runs, *period, now);
        let unsettled = rules.iter().any(|rule| wanted(rule) == Wants::Settling);
        if unsettled || runs.keys().any(|period| !rules.contains_key(period)) {
            return self.settle_backups(&volume.name, now).await;
        }
        let vault = volume
            .backup
            .as_ref()
            .and_then(|config| config.vault.as_ref());
        let Some(vault) = vault.map(|id| volume.name.place.name(id)) else {
            return;
        };
        for (period, rule) in &rules {
            let made = ScheduledBackups::new(view, volume, &vault, *period);
            let due = policy::wants(rule, runs, *period, now) == Wants::Snapshot;
            if due && !made.running {
                let begun = self
                    .begin_backup(view, volume, &vault, (*period, now))
                    .await;
                if let Err(why) = begun {
                    tracing::warn!(volume = %volume.name.id, schedule = period.as_str(), %why, "cannot make a scheduled backup");
                }
            }
            for name in made.in_excess(rule.keep, due) {
                if let Err(why) = self.begin(Mutation::DeleteBackup(name)).await {
                    tracing::warn!(volume = %volume.name.id, schedule = period.as_str(), %why, "cannot delete a backup in excess of the schedule");
                }
            }
        }
    }

    /// Stores the times from which the schedules of a volume's backup policy count.
    async fn settle_backups(&self, volume: &VolumeName, now: i64) {
        let settled = self.note(volume, |view, volume| {
            let rules = rules::backup::schedules(view, volume);
            let since = Run {
                since: now,
                last: None,
            };
            let runs = &mut volume.backup_runs;
            runs.retain(|period, _| rules.contains_key(period));
            for period in rules.keys() {
                runs.entry(*period).or_insert(since);
            }
            policy::correct(runs, now);
        });
        if let Err(why) = settled.await {
            tracing::info!(%why, "catalog unavailable; left for the next start");
        }
    }

    async fn begin_backup(
        &self,
        view: &View,
        volume: &Volume,
        vault: &Name,
        (period, now): (Period, i64),
    ) -> Result<(), Refusal> {
        let name = |id: &str| BackupName {
            vault: vault.clone(),
            id: id.into(),
        };
        let at = time_of(now).strftime("%Y-%m-%d-%H%M");
        // Ids have 63 bytes at most.
        let of: String = volume.name.id.chars().take(30).collect();
        let stem = format!("{of}-{}-{at}", period.as_str());
        let id = free((&stem, '-'), "backups", |id| {
            view.backup(&name(id)).is_none()
        })?;
        let new = NewBackup {
            share: None,
            source: volume.name.clone(),
            snapshot: None,
            schedule: Some(period),
            description: String::new(),
            labels: Labels::new(),
            extra: Extra::new(),
        };
        let begun = self.begin(Mutation::CreateBackup(name(&id), new)).await;
        let Err(why) = begun else { return Ok(()) };
        self.failed(why, &volume.name, (period, now), |volume| {
            &mut volume.backup_runs
        })
        .await
    }

    /// Deletes the oldest snapshots of a schedule until only `keep` are left. Snapshots that
    /// something depends on stay for now.
    async fn prune(&self, volume: &VolumeName, period: Period, keep: usize) -> Result<(), Refusal> {
        let view = self.context.store.view();
        let ours: BTreeMap<&str, &SnapshotName> = view
            .snapshots(volume, None)
            .filter(|snapshot| snapshot.schedule == Some(period) && snapshot.state == State::Ready)
            .map(|snapshot| (&*snapshot.name.id, &snapshot.name))
            .collect();
        let Some(mut over) = ours.len().checked_sub(keep).filter(|over| *over > 0) else {
            return Ok(());
        };
        let Some(key) = view.volume(volume).map(|volume| volume.key.to_string()) else {
            return Ok(());
        };
        // In the order in which they were taken, which may differ from the clock's.
        let all = self
            .context
            .call_node(move |node| node.snapshots(&key))
            .await;
        for snapshot in all.unwrap_or_default() {
            let Some(name) = ours.get(snapshot.name.as_str()).filter(|_| over > 0) else {
                continue;
            };
            let deletion = Mutation::DeleteSnapshot(SnapshotName::clone(name));
            if !snapshot.busy && replication::hold(&view, &deletion).is_none() {
                self.submit(deletion).await?;
                over -= 1;
            }
        }
        Ok(())
    }

    /// Submits a mutation and carries it out.
    async fn submit(&self, mutation: Mutation) -> Result<(), Refusal> {
        let (operation, place) = self.accepted(mutation).await?;
        if let Some(place) = place {
            self.context.run(operation, place, None).await;
        }
        Ok(())
    }

    /// Submits a mutation, which is then carried out by a task of its own.
    async fn begin(&self, mutation: Mutation) -> Result<(), Refusal> {
        let (operation, place) = self.accepted(mutation).await?;
        if let Some(place) = place {
            let context = Arc::clone(&self.context);
            tokio::spawn(async move { context.run(operation, place, None).await });
        }
        Ok(())
    }

    async fn accepted(
        &self,
        mutation: Mutation,
    ) -> Result<(Operation, Option<LaneTicket>), Refusal> {
        let actor = Actor {
            name: "schedule".into(),
            role: Role::Editor,
            address: None,
        };
        let inputs = Inputs {
            id: (self.rng.next_u64() >> 1).max(1),
            used: None,
            quiet: true,
            facts: self.context.backend.facts(),
        };
        let name = operation_name(&*self.clock, &*self.rng, &mutation);
        accepted(&self.context, mutation, &actor, &inputs, name).await
    }
}

/// Backups that a schedule of a volume has made in a vault.
struct ScheduledBackups<'v> {
    /// Oldest first.
    backups: Vec<&'v Arc<Backup>>,
    /// True if one is being made.
    running: bool,
}

impl<'v> ScheduledBackups<'v> {
    fn new(
        view: &'v View,
        volume: &Volume,
        vault: &'v Name,
        period: Period,
    ) -> ScheduledBackups<'v> {
        let ours = |b: &&Arc<Backup>| b.source_id == volume.id && b.schedule == Some(period);
        let mut backups: Vec<&Arc<Backup>> = view.backups_in(vault).filter(ours).collect();
        backups.sort_by_key(|backup| (backup.created, backup.id));
        let running = backups.iter().any(|b| b.state == State::Creating);
        ScheduledBackups { backups, running }
    }

    /// Returns the oldest complete ones beyond `keep`, and those that failed before the newest
    /// complete one. Those whose deletion failed are among them only if `again`.
    fn in_excess(&self, keep: usize, again: bool) -> Vec<BackupName> {
        let complete: Vec<&Arc<Backup>> = self
            .backups
            .iter()
            .copied()
            .filter(|b| b.state == State::Ready)
            .collect();
        let Some(newest) = complete.last().map(|backup| backup.created) else {
            return Vec::new();
        };
        let over = complete.len().saturating_sub(keep);
        let failed = self.backups.iter().copied().filter(|backup| {
            let stuck = backup.state_details.starts_with(DELETION_FAILED);
            backup.state == State::Error && backup.created < newest && (again || !stuck)
        });
        let old = complete.iter().copied().take(over);
        old.chain(failed)
            .map(|backup| backup.name.clone())
            .collect()
    }
}

/// Returns true if the volume's snapshots are its own, and can be taken.
fn ready(volume: &Volume) -> bool {
    volume.number.is_some() && !volume.splitting && volume.idle().is_ok()
}

fn too_many(view: &View, volume: &Volume, rules: &Rules) -> bool {
    let mut counts: BTreeMap<Period, usize> = BTreeMap::new();
    for snapshot in view.snapshots(&volume.name, None) {
        if let Some(period) = snapshot.schedule.filter(|_| snapshot.state == State::Ready) {
            *counts.entry(period).or_default() += 1;
        }
    }
    let over = |(period, rule): (&Period, &policy::Rule)| {
        counts.get(period).is_some_and(|n| *n > rule.keep)
    };
    rules.iter().any(over)
}

/// Returns a free name, such as `hourly.2026-11-22_0405`.
fn free_name(
    view: &View,
    volume: &VolumeName,
    period: Period,
    now: i64,
) -> Result<SnapshotName, Refusal> {
    let at = time_of(now).strftime("%Y-%m-%d_%H%M");
    let stem = format!("{}.{at}", period.as_str());
    let is_free = |id: &str| view.snapshot(&volume.snapshot(id)).is_none();
    let id = free((&stem, '_'), "snapshots", is_free)?;
    Ok(volume.snapshot(&id))
}

fn time_of(now: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// Returns a free name: `stem`, or with a number behind it.
fn free(
    (stem, separator): (&str, char),
    noun: &str,
    is_free: impl Fn(&str) -> bool,
) -> Result<String, Refusal> {
    let mut names = (1..=NAMESAKES).map(|n| match n {
        1 => stem.to_owned(),
        n => format!("{stem}{separator}{n}"),
    });
    names.find(|id| is_free(id)).ok_or_else(|| {
        Refusal::new(
            Status::AlreadyExists,
            "NAME_TAKEN",
            format!("there are {NAMESAKES} {noun} {stem}"),
        )
    })
}
