//! Runs schedules: once a minute, due snapshots are taken and those in excess are deleted.
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
use crate::jobs::JobContext;
use crate::model::{Actor, Labels, Period, Role, SNAPMIRROR_LABEL, State, Volume};
use crate::mutation::{Mutation, NewSnapshot};
use crate::name::{SnapshotName, VolumeName};
use crate::policy::{self, Rules, Wants};
use crate::refusal::{Refusal, Status};
use crate::rules::replication;
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
            let minute = self.clock.now().secs.div_euclid(60);
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
        let now = self.clock.now().secs;
        let view = self.context.store.view();
        let mut tasks = JoinSet::new();
        for (n, volume) in view.volumes.values().enumerate() {
            if n % STRIDE == STRIDE - 1 {
                tokio::task::yield_now().await;
            }
            let waits = !ready(volume) || replication::is_copy(&view, &volume.name);
            if volume.snapshot_policy.is_none() || waits {
                continue;
            }
            let rules = policy::of(volume);
            let wants = |period: &Period, wanted: Wants| {
                let rule = rules.get(period);
                rule.map(|rule| policy::wants(rule, &volume.snapshot_runs, *period, now))
                    == Some(wanted)
            };
            if rules.keys().any(|period| wants(period, Wants::Settling)) {
                self.settle(&volume.name, now).await;
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
    async fn settle(&self, volume: &VolumeName, now: i64) {
        let settled = self.context.store.commit_with_retry(|tx| {
            if let Some(volume) = tx.view.volume(volume).cloned() {
                let mut volume = Volume::clone(&volume);
                policy::settle(&mut volume, now);
                tx.note_volume(volume);
            }
        });
        if let Err(why) = settled.await {
            tracing::info!(%why, "catalog unavailable; left for the next start");
        }
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
        // A failure that will recur is not retried every minute.
        if !matches!(why.status, Status::Unavailable | Status::Aborted) {
            let noted = self.context.store.commit_with_retry(|tx| {
                if let Some(volume) = tx.view.volume(volume).cloned() {
                    let mut volume = Volume::clone(&volume);
                    policy::ran(&mut volume, period, now);
                    tx.note_volume(volume);
                }
            });
            noted.await?;
        }
        Err(why)
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
        let all = self.context.ask(move |node| node.snapshots(&key)).await;
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
        let (operation, place) = accepted(&self.context, mutation, &actor, &inputs, name).await?;
        if let Some(place) = place {
            self.context.run(operation, place, None).await;
        }
        Ok(())
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
    let at = jiff::Timestamp::from_second(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let stem = format!("{}.{}", period.as_str(), at.strftime("%Y-%m-%d_%H%M"));
    let names = (1..=NAMESAKES).map(|n| match n {
        1 => stem.clone(),
        n => format!("{stem}_{n}"),
    });
    let mut names = names.map(|id| volume.snapshot(&id));
    names
        .find(|name| view.snapshot(name).is_none())
        .ok_or_else(|| {
            Refusal::new(
                Status::AlreadyExists,
                "NAME_TAKEN",
                format!("there are {NAMESAKES} snapshots {stem}"),
            )
        })
}
