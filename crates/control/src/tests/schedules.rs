//! Snapshot schedules in virtual time, against a model without catalogs, jobs and nodes.

use super::*;
use crate::backend::BackendError;
use crate::sim::Fault;
use crate::{
    BackupConfig, BackupPolicyChange, NewBackupPolicy, NewSnapshot, Period, SNAPMIRROR_LABEL,
    State, VolumeChange,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_base::{Clock, ManualClock, Rng, Time};

/// 22 November 2026, 03:30:00, a Sunday.
const START: i64 = 1_795_318_200;
const HOUR: u64 = 3600;

struct ScheduleBench {
    control: Arc<Control>,
    node: SimBackend,
    clock: Arc<ManualClock>,
    url: String,
    _folder: tempfile::TempDir,
    starts: u64,
}

impl ScheduleBench {
    async fn new() -> ScheduleBench {
        let folder = tempfile::tempdir().unwrap();
        let url = url_in(folder.path());
        let node = SimBackend::new();
        let clock = Arc::new(ManualClock::new(Time {
            secs: START,
            nanos: 0,
        }));
        let control = start(&url, &node, &clock, 1).await;
        let timed = ScheduleBench {
            control,
            node,
            clock,
            url,
            _folder: folder,
            starts: 1,
        };
        timed
            .done(pool("p", "PREMIUM", 10_240, QosType::Auto))
            .await;
        timed
    }

    async fn restart(&mut self) {
        self.control.close().await;
        self.node.revive();
        self.starts += 1;
        self.control = start(&self.url, &self.node, &self.clock, self.starts).await;
    }

    async fn done(&self, mutation: Mutation) {
        let operation = self.control.submit(mutation.clone(), &Actor::local()).await;
        let operation = operation.unwrap_or_else(|e| panic!("{mutation:?}: {e}"));
        assert!(
            matches!(operation.outcome, Some(Outcome::Done | Outcome::Deleted)),
            "{mutation:?}: {operation:?}"
        );
    }

    async fn volume(&self, id: &str, policy: Value) {
        let mut new = new_volume(id, "p", 100);
        new.snapshot_policy = Some(policy);
        self.done(Mutation::CreateVolume(vol(id), new)).await;
    }

    async fn policy(&self, id: &str, policy: Value) {
        let change = VolumeChange {
            snapshot_policy: Some(policy),
            ..VolumeChange::default()
        };
        self.done(Mutation::UpdateVolume(vol(id), change)).await;
    }

    async fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.control.look_at_schedules().await;
    }

    async fn set(&self, secs: i64) {
        self.clock.set(Time { secs, nanos: 0 });
        self.control.look_at_schedules().await;
    }

    /// Returns the names in the node, oldest first, and asserts that the catalog has the same.
    fn names(&self, id: &str) -> Vec<String> {
        let view = self.control.view();
        let volume = view.volume(&vol(id)).unwrap();
        let there = self.node.list_volumes()[&*volume.key].snapshots.clone();
        let names: Vec<String> = there.into_iter().map(|s| s.name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        let listed: Vec<String> = view
            .snapshots(&vol(id), None)
            .map(|s| s.name.id.to_string())
            .collect();
        assert_eq!(sorted, listed);
        names
    }
}

async fn start(url: &str, node: &SimBackend, clock: &Arc<ManualClock>, seed: u64) -> Arc<Control> {
    Control::open(Options {
        catalog: url.to_owned(),
        levels: Levels::built_in().unwrap(),
        instance_addresses: None,
        backend: Arc::new(node.clone()),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        rng: Arc::new(SeededRng::new(seed)),
        device_bytes: 100 << 30,
        copy: None,
        first_place: crate::LocationName::local(),
    })
    .await
    .unwrap()
}

fn hourly(keep: u32, minute: u32) -> Value {
    json!({"enabled": true, "hourlySchedule": {"snapshotsToKeep": keep, "minute": minute}})
}

#[tokio::test]
async fn an_hourly_schedule() {
    let mut timed = ScheduleBench::new().await;
    timed.volume("v", hourly(3, 5)).await;
    timed.pass(34 * 60).await;
    assert!(timed.names("v").is_empty(), "04:04");
    timed.pass(60).await;
    assert_eq!(timed.names("v"), ["hourly.2026-11-22_0405"]);
    timed.pass(30).await;
    assert_eq!(timed.names("v").len(), 1, "once");
    {
        let view = timed.control.view();
        let snapshot = view
            .snapshot(&vol("v").snapshot("hourly.2026-11-22_0405"))
            .unwrap();
        assert_eq!(snapshot.labels[SNAPMIRROR_LABEL], "hourly");
        let key = view.volume(&vol("v")).unwrap().key.clone();
        assert_eq!(
            timed.node.list_volumes()[&*key].snapshots[0].label,
            "hourly"
        );
        let operations = view.operations.values();
        assert_eq!(
            operations
                .filter(|o| o.verb() == "create" && o.quiet)
                .count(),
            0
        );
    }
    timed.restart().await;
    timed.control.look_at_schedules().await;
    assert_eq!(timed.names("v").len(), 1, "a restart repeats nothing");
    for _ in 0..3 {
        timed.pass(HOUR).await;
    }
    assert_eq!(
        timed.names("v"),
        [
            "hourly.2026-11-22_0505",
            "hourly.2026-11-22_0605",
            "hourly.2026-11-22_0705"
        ]
    );
    // Missed runs count as one.
    timed.control.close().await;
    timed.clock.advance(Duration::from_secs(10 * HOUR));
    timed.restart().await;
    timed.control.look_at_schedules().await;
    assert_eq!(
        timed.names("v"),
        [
            "hourly.2026-11-22_0605",
            "hourly.2026-11-22_0705",
            "hourly.2026-11-22_1705"
        ]
    );
    // Fewer are kept from now on; those of a deleted policy stay.
    timed.policy("v", hourly(1, 5)).await;
    timed.pass(60).await;
    assert_eq!(timed.names("v"), ["hourly.2026-11-22_1705"]);
    timed
        .policy(
            "v",
            json!({"enabled": false, "hourlySchedule": {"snapshotsToKeep": 1}}),
        )
        .await;
    timed.pass(5 * HOUR).await;
    assert_eq!(timed.names("v"), ["hourly.2026-11-22_1705"]);
    // Runs missed while it was off are not made up for.
    timed.policy("v", hourly(5, 5)).await;
    timed.pass(60).await;
    assert_eq!(timed.names("v").len(), 1);
    timed.policy("v", Value::Null).await;
    timed.pass(5 * HOUR).await;
    assert_eq!(timed.names("v").len(), 1);
    assert!(
        timed
            .control
            .view()
            .volume(&vol("v"))
            .unwrap()
            .snapshot_runs
            .is_empty()
    );
}

#[tokio::test]
async fn what_people_do_to_a_schedules_snapshots() {
    let timed = ScheduleBench::new().await;
    timed.volume("v", hourly(2, 0)).await;
    let snapshot = |id: &str| vol("v").snapshot(id);
    timed
        .done(Mutation::CreateSnapshot(
            snapshot("hourly.mine"),
            NewSnapshot::default(),
        ))
        .await;
    timed.pass(HOUR / 2).await;
    timed
        .done(Mutation::RenameSnapshot {
            name: snapshot("hourly.2026-11-22_0400"),
            to: "release".to_owned(),
        })
        .await;
    timed.pass(HOUR).await;
    timed.pass(HOUR).await;
    timed.pass(HOUR).await;
    assert_eq!(
        timed.names("v"),
        [
            "hourly.mine",
            "release",
            "hourly.2026-11-22_0600",
            "hourly.2026-11-22_0700"
        ]
    );
    // A user deletes the newest: it is not taken again.
    timed
        .done(Mutation::DeleteSnapshot(snapshot("hourly.2026-11-22_0700")))
        .await;
    timed.pass(60).await;
    assert_eq!(timed.names("v").len(), 3);
    // A snapshot that something depends on stays, and is deleted later.
    let key = timed.control.view().volume(&vol("v")).unwrap().key.clone();
    let busy = |busy: bool| {
        timed.node.snapshots_mut(&key, |all| {
            for snapshot in all.iter_mut().filter(|s| s.name.ends_with("0600")) {
                snapshot.busy = busy;
            }
        })
    };
    busy(true);
    for _ in 0..3 {
        timed.pass(HOUR).await;
    }
    assert_eq!(
        timed.names("v"),
        [
            "hourly.mine",
            "release",
            "hourly.2026-11-22_0600",
            "hourly.2026-11-22_1001"
        ]
    );
    busy(false);
    timed.pass(HOUR).await;
    assert_eq!(
        timed.names("v"),
        [
            "hourly.mine",
            "release",
            "hourly.2026-11-22_1001",
            "hourly.2026-11-22_1101"
        ]
    );
    // A revert drops later snapshots; the schedule continues.
    timed
        .done(Mutation::RevertVolume {
            name: vol("v"),
            snapshot: "release".to_owned(),
        })
        .await;
    timed.pass(HOUR).await;
    assert_eq!(
        timed.names("v"),
        ["hourly.mine", "release", "hourly.2026-11-22_1201"]
    );
    // The node fails: the next slot retries, and nothing does in between.
    for _ in 0..4 {
        let broken = BackendError::Failed("broken".to_owned());
        timed.node.inject("snapshot_create", Fault::Before(broken));
    }
    timed.pass(HOUR).await;
    timed.pass(60).await;
    assert_eq!(timed.names("v").len(), 3);
    timed.pass(HOUR).await;
    assert_eq!(timed.names("v").last().unwrap(), "hourly.2026-11-22_1402");
    let view = timed.control.view();
    let failed = view.operations.values().filter(|o| o.quiet);
    assert_eq!(failed.count(), 1, "a failure is there to be seen");
}

#[tokio::test]
async fn a_clock_that_is_set_back_and_forth() {
    let timed = ScheduleBench::new().await;
    timed.volume("v", hourly(100, 5)).await;
    timed.set(START + 35 * 60).await;
    assert_eq!(timed.names("v"), ["hourly.2026-11-22_0405"]);
    // Back a little: the slot is not served again.
    timed.set(START + 30 * 60).await;
    timed.set(START + 36 * 60).await;
    assert_eq!(timed.names("v").len(), 1);
    // Back by a day: the schedule does not pause until tomorrow.
    timed.set(START + 36 * 60 - 24 * 3600).await;
    assert_eq!(
        timed.names("v").len(),
        1,
        "the time is noted, nothing is taken"
    );
    timed.set(START + 96 * 60 - 24 * 3600).await;
    assert_eq!(timed.names("v")[1], "hourly.2026-11-21_0506");
    // Forward by three years and back: one snapshot, and the same slot a second time has another
    // name.
    timed.set(START + 3 * 365 * 86_400).await;
    assert_eq!(timed.names("v")[2], "hourly.2029-11-21_0330");
    timed.set(START).await;
    timed.set(START + 35 * 60).await;
    assert_eq!(timed.names("v")[3], "hourly.2026-11-22_0405_2");
    assert_eq!(timed.names("v").len(), 4);
}

/// Expected state, from its inputs alone.
#[derive(Default)]
struct Model {
    snapshots: Vec<(Option<Period>, String)>,
    /// Time of the last snapshot of each schedule, or the time from which it counts.
    seen: BTreeMap<Period, i64>,
    keep: BTreeMap<Period, usize>,
}

impl Model {
    /// Checks every minute since the last check, as if it had been awake; at most one snapshot
    /// results.
    fn look(&mut self, now: i64) {
        for (period, keep) in self.keep.clone() {
            let seen = self.seen.get_mut(&period).unwrap();
            if *seen > now + 1800 {
                *seen = now;
            }
            let slots = (*seen / 60 + 1..=now / 60).filter(|minute| slot(period, *minute));
            if slots.count() > 0 {
                *seen = now;
                let text = text(now);
                let name = format!("{}.{text}", period.as_str());
                let same = self
                    .snapshots
                    .iter()
                    .filter(|(_, other)| other.split('_').take(2).eq(name.split('_')));
                let mut free = vec![name.clone()];
                free.extend((2..).take(same.count() + 1).map(|n| format!("{name}_{n}")));
                let taken = |n: &String| self.snapshots.iter().any(|(_, other)| other == n);
                let name = free.into_iter().find(|n| !taken(n)).unwrap();
                self.snapshots.push((Some(period), name));
            }
            while self
                .snapshots
                .iter()
                .filter(|(p, _)| *p == Some(period))
                .count()
                > keep
            {
                let oldest = self.snapshots.iter().position(|(p, _)| *p == Some(period));
                self.snapshots.remove(oldest.unwrap());
            }
        }
    }
}

fn text(at: i64) -> String {
    jiff::Timestamp::from_second(at)
        .unwrap()
        .strftime("%Y-%m-%d_%H%M")
        .to_string()
}

/// Returns true for the slots of the model test's policy: hourly at :05, daily at 02:00, Wednesdays
/// at 04:30, the 1st and 15th at 00:10.
fn slot(period: Period, minute: i64) -> bool {
    let at = jiff::Timestamp::from_second(minute * 60).unwrap();
    let at = at.strftime("%A %d %H:%M").to_string();
    let is = |end: &str| at.ends_with(end);
    match period {
        Period::Hourly => is(":05"),
        Period::Daily => is(" 02:00"),
        Period::Weekly => at.starts_with("Wednesday") && is(" 04:30"),
        Period::Monthly => is(" 01 00:10") || is(" 15 00:10"),
    }
}

fn policy(keep: &BTreeMap<Period, usize>) -> Value {
    let kept = |period| keep.get(&period).copied().unwrap_or(0);
    json!({
        "enabled": true,
        "hourlySchedule": {"snapshotsToKeep": kept(Period::Hourly), "minute": 5},
        "dailySchedule": {"snapshotsToKeep": kept(Period::Daily), "hour": 2},
        "weeklySchedule": {"snapshotsToKeep": kept(Period::Weekly), "day": "Wednesday", "hour": 4, "minute": 30},
        "monthlySchedule": {"snapshotsToKeep": kept(Period::Monthly), "daysOfMonth": "1,15", "minute": 10},
    })
}

async fn as_the_model(seed: u64) {
    let rng = SeededRng::new(seed);
    let mut timed = ScheduleBench::new().await;
    let mut model = Model::default();
    let mut now = START;
    timed.volume("v", json!({"enabled": false})).await;
    for step in 0..120 {
        let before = now;
        match rng.below(20) {
            0..=7 => now += rng.below(2 * HOUR) as i64,
            8..=11 => now += rng.below(60 * HOUR) as i64,
            12 => now += rng.below(40 * 24 * HOUR) as i64,
            // A little back, or far.
            13 => now -= rng.below(1700) as i64,
            14 => now -= 7200 + rng.below(100 * HOUR) as i64,
            15 => timed.restart().await,
            16..=17 => {
                let period = Period::ALL[rng.below(4) as usize];
                let keep = rng.below(5) as usize;
                match keep {
                    0 => {
                        model.keep.remove(&period);
                        model.seen.remove(&period);
                    }
                    keep => {
                        model.keep.insert(period, keep);
                        model.seen.entry(period).or_insert(now);
                    }
                }
                timed.policy("v", policy(&model.keep)).await;
            }
            18 => {
                let id = format!("s{step}");
                let snapshot = vol("v").snapshot(&id);
                timed
                    .done(Mutation::CreateSnapshot(snapshot, NewSnapshot::default()))
                    .await;
                model.snapshots.push((None, id));
            }
            _ if !model.snapshots.is_empty() => {
                let at = rng.below(model.snapshots.len() as u64) as usize;
                let (_, id) = model.snapshots.remove(at);
                let snapshot = vol("v").snapshot(&id);
                timed.done(Mutation::DeleteSnapshot(snapshot)).await;
            }
            _ => {}
        }
        timed.set(now).await;
        model.look(now);
        let expected: Vec<&String> = model.snapshots.iter().map(|(_, name)| name).collect();
        assert_eq!(
            timed.names("v").iter().collect::<Vec<_>>(),
            expected,
            "seed {seed}, step {step}, {} → {}",
            text(before),
            text(now)
        );
    }
    let view = timed.control.view();
    assert!(view.snapshots.values().all(|s| s.state == State::Ready));
}

#[tokio::test]
async fn schedules_do_what_the_model_does() {
    for seed in 1..=4 {
        as_the_model(seed).await;
    }
}

#[tokio::test]
async fn many_volumes_at_once() {
    let timed = ScheduleBench::new().await;
    for n in 0..100 {
        timed.volume(&format!("v{n}"), hourly(1, 0)).await;
    }
    for _ in 0..2 {
        timed.pass(HOUR).await;
    }
    let view = timed.control.view();
    let names: Vec<_> = view
        .snapshots
        .values()
        .map(|s| s.name.id.to_string())
        .collect();
    assert_eq!(names, vec!["hourly.2026-11-22_0530"; 100]);
}

const DAY: u64 = 24 * HOUR;

impl ScheduleBench {
    /// Makes the vault `safe`, the policy `often`, and the volume `v` with both.
    async fn backups() -> ScheduleBench {
        let timed = ScheduleBench::new().await;
        timed.node.set_facts(crate::backend::Facts {
            backups: true,
            ..Default::default()
        });
        let vault = Mutation::CreateBackupVault(name("safe"), Default::default());
        timed.done(vault).await;
        timed.backup_policy(2, 1).await;
        let mut new = new_volume("v", "p", 100);
        new.backup = Some(config());
        timed.done(Mutation::CreateVolume(vol("v"), new)).await;
        timed.pass(60).await;
        timed
    }

    async fn backup_policy(&self, daily: u32, weekly: u32) {
        let new = NewBackupPolicy {
            daily,
            weekly,
            enabled: true,
            ..NewBackupPolicy::default()
        };
        self.done(Mutation::CreateBackupPolicy(name("often"), new))
            .await;
    }

    async fn config(&self, config: BackupConfig) {
        let change = VolumeChange {
            backup: Some(config),
            ..VolumeChange::default()
        };
        self.done(Mutation::UpdateVolume(vol("v"), change)).await;
    }

    /// Lets time pass, and waits for the backups that begin and for those that go.
    async fn back_up(&self, seconds: u64) -> Vec<(String, State)> {
        self.pass(seconds).await;
        for _ in 0..2 {
            self.control.look_at_schedules().await;
            let busy = || {
                let view = self.control.view();
                let mut all = view.every_backup();
                all.any(|b| !matches!(b.state, State::Ready | State::Error))
            };
            while busy() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let view = self.control.view();
        view.every_backup()
            .map(|b| (b.name.id.to_string(), b.state))
            .collect()
    }
}

fn config() -> BackupConfig {
    BackupConfig {
        policies: vec!["often".into()],
        vault: Some("safe".into()),
        enabled: None,
    }
}

fn ready(ids: &[&str]) -> Vec<(String, State)> {
    ids.iter()
        .map(|id| (format!("v-{id}"), State::Ready))
        .collect()
}

#[tokio::test]
async fn backups_are_made_and_deleted_by_their_policy() {
    let mut timed = ScheduleBench::backups().await;
    assert_eq!(timed.back_up(3600).await, []);
    // Monday.
    let monday = ready(&["daily-2026-11-23-0330", "weekly-2026-11-23-0330"]);
    assert_eq!(timed.back_up(23 * HOUR - 60).await, monday);
    assert_eq!(timed.back_up(60).await, monday, "once a slot");
    timed.restart().await;
    timed.back_up(DAY).await;
    let thursday = ready(&[
        "daily-2026-11-24-0331",
        "daily-2026-11-26-0331",
        "weekly-2026-11-23-0330",
    ]);
    assert_eq!(timed.back_up(2 * DAY).await, thursday);
    let there: Vec<String> = timed.node.backups().into_iter().collect();
    assert!(
        there.iter().eq(thursday.iter().map(|(id, _)| id)),
        "{there:?}"
    );

    // Paused, a slot is not made up for.
    let paused = BackupConfig {
        enabled: Some(false),
        ..config()
    };
    timed.config(paused).await;
    assert_eq!(timed.back_up(8 * DAY).await, thursday);
    timed.config(config()).await;
    timed.pass(60).await;
    assert_eq!(timed.back_up(60).await, thursday);

    // A failed backup is shown until one succeeds.
    let fault = || Fault::Before(BackendError::Precondition("denied".to_owned()));
    timed.node.inject("backup_take", fault());
    let failed = ("v-daily-2026-12-05-0333".to_owned(), State::Error);
    assert!(timed.back_up(DAY).await.contains(&failed));
    let saturday = ready(&[
        "daily-2026-11-26-0331",
        "daily-2026-12-06-0333",
        "weekly-2026-11-23-0330",
    ]);
    assert_eq!(timed.back_up(DAY).await, saturday);

    // A deletion that fails is repeated at the next slot.
    timed.node.inject("backup_delete", fault());
    let weekly = timed.back_up(DAY).await;
    let stuck = |all: &[(String, State)]| all.iter().filter(|(_, s)| *s == State::Error).count();
    assert_eq!(stuck(&weekly), 1, "{weekly:?}");
    let next = timed.back_up(DAY).await;
    assert_eq!((stuck(&next), next.len()), (0, 3), "{next:?}");
}

#[tokio::test]
async fn backup_policies_in_use_and_bad_ones_are_refused() {
    let timed = ScheduleBench::backups().await;
    let refused = async |mutation: Mutation| {
        let result = timed.control.submit(mutation, &Actor::local()).await;
        result.unwrap_err().reason
    };
    for (mutation, reason) in [
        (
            Mutation::DeleteBackupPolicy(name("often")),
            "BACKUP_POLICY_IN_USE",
        ),
        (
            Mutation::DeleteBackupVault(name("safe")),
            "BACKUP_VAULT_IN_USE",
        ),
        (
            Mutation::CreateBackupPolicy(name("few"), NewBackupPolicy::default()),
            "BACKUP_POLICY_INVALID",
        ),
        (
            Mutation::UpdateBackupPolicy(
                name("often"),
                BackupPolicyChange {
                    weekly: Some(1001),
                    ..BackupPolicyChange::default()
                },
            ),
            "BACKUP_POLICY_INVALID",
        ),
    ] {
        assert_eq!(refused(mutation).await, reason);
    }
    for (config, reason) in [
        (
            BackupConfig {
                vault: None,
                ..config()
            },
            "BACKUP_VAULT_MISSING",
        ),
        (
            BackupConfig {
                policies: vec!["often".into(), "often".into()],
                ..config()
            },
            "TOO_MANY_BACKUP_POLICIES",
        ),
        (
            BackupConfig {
                vault: Some("none".into()),
                ..config()
            },
            "NOT_FOUND",
        ),
        (
            BackupConfig {
                policies: vec!["none".into()],
                ..config()
            },
            "NOT_FOUND",
        ),
    ] {
        let change = VolumeChange {
            backup: Some(config),
            ..VolumeChange::default()
        };
        assert_eq!(
            refused(Mutation::UpdateVolume(vol("v"), change)).await,
            reason
        );
    }
    timed.config(BackupConfig::default()).await;
    timed
        .done(Mutation::DeleteBackupPolicy(name("often")))
        .await;
    timed.done(Mutation::DeleteBackupVault(name("safe"))).await;
    assert!(timed.back_up(8 * DAY).await.is_empty());
}
