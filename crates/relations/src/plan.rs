//! Plan of a transfer: the snapshots that it copies, their order and base, and those that it
//! deletes afterwards.
//!
//! A transfer is a chain of differences, each relative to the snapshot that was copied before. The
//! chain begins with the newest common snapshot. That has to be the one that the destination's
//! readers see, because a difference applies to no other state. If the destination has newer
//! snapshots of its own, a transfer would lose them, so it is refused; `resync` is the command that
//! discards them.
//!
//! **The transfer's own snapshot.** The newest state of the source has no name until a transfer
//! takes a snapshot. It is taken once for each request, not for each attempt: its name has the
//! request's number, so a retry finds it and uses it again, along with the checkpoint of the
//! earlier attempt. A source that is itself a copy cannot take a snapshot. There the snapshot that
//! its readers see is used instead, and so a cascade follows its head.
//!
//! **Retention.** The destination keeps what the policy says ([`crate::retention`]), and the
//! snapshots that further copies of it need. Of its own snapshots a relationship keeps only the
//! newest common one, on either side.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manager::{Job, Task};
use crate::model::{SnapshotIdentity, TransferKind, VolumeUuid};
use crate::retention::{self, ALL, LabelledSnapshot, SM_CREATED};

/// A snapshot, as one side describes it to the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Name in the volume described.
    pub name: String,
    /// `snapmirror-label`; empty is none.
    pub label: String,
    /// Identity, the same at the source and at all copies.
    pub id: SnapshotIdentity,
    /// Time at which it was taken, seconds since 1970.
    pub created: i64,
}

impl Snapshot {
    fn own(&self, relationship: &str) -> bool {
        self.name.starts_with(&prefix(relationship))
    }
}

/// A volume, as its node describes it to the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Maximum size in bytes; `None` is no limit.
    pub size: Option<u64>,
    /// True if the volume is itself a copy.
    pub data_protection: bool,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<Snapshot>,
    /// The snapshot that readers of a copy see; `None` if the volume is not a copy.
    pub exported: Option<SnapshotIdentity>,
    /// Snapshots that copies of this volume need for their next transfers.
    pub needed: Vec<SnapshotIdentity>,
    /// Identity of the volume.
    #[serde(default)]
    pub uuid: VolumeUuid,
    /// The volumes that it is a copy of: its source, the source of that one, and so on.
    #[serde(default)]
    pub above: Vec<VolumeUuid>,
    /// Export policies of its qtrees that have their own, which a copy takes over.
    #[serde(default)]
    pub trees: TreePolicies,
}

/// Names of export policies by the numbers of the qtrees that have them. An empty name is the
/// server's default, `None` a policy that is not known.
pub type TreePolicies = BTreeMap<u32, Option<String>>;

/// Prefix of the names of all relationships' own snapshots.
pub const OWN: &str = "snapmirror.";

/// Returns the prefix of the names of a relationship's own snapshots.
pub fn prefix(relationship: &str) -> String {
    format!("{OWN}{relationship}_")
}

/// Returns the prefix of the name of the snapshot that belongs to the job's request.
fn prefix_of(job: &Job) -> String {
    format!("{}{}.", prefix(&job.relationship), job.serial)
}

/// Returns the name of a request's own snapshot in ONTAP's form, with the UTC date and time of
/// `at`.
pub fn own_name(job: &Job, at: i64) -> String {
    let at = Timestamp::from_second(at).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{}{}", prefix_of(job), at.strftime("%Y-%m-%d_%H%M%S"))
}

/// Returns true if a snapshot has to be taken before the transfer.
pub fn must_take(job: &Job, source: &Volume) -> bool {
    let Task::Transfer(kind) = job.task else {
        return false;
    };
    let wanted = match kind {
        TransferKind::Restore => false,
        TransferKind::Initialize => true,
        TransferKind::Update | TransferKind::Resync => retention::takes_own(&job.policy),
    };
    wanted && job.source_snapshot.is_none() && !source.data_protection && own(job, source).is_none()
}

/// Returns the snapshot that has the source's newest state.
fn own<'s>(job: &Job, source: &'s Volume) -> Option<&'s Snapshot> {
    let mut newest = source.snapshots.iter().rev();
    match (source.data_protection, &source.exported) {
        (true, Some(exported)) => newest.find(|s| s.id == *exported),
        (true, None) => None,
        (false, _) => {
            let own = prefix_of(job);
            newest.find(|s| s.name.starts_with(&own))
        }
    }
}

/// Returns the snapshots as the rules see them: only this relationship's own snapshots count as
/// own.
fn held(job: &Job, source: &Volume, snapshots: &[Snapshot]) -> Vec<LabelledSnapshot> {
    let cascade = source.data_protection;
    snapshots
        .iter()
        .map(|s| LabelledSnapshot {
            name: s.name.clone(),
            id: s.id,
            label: match s.label.as_str() {
                _ if s.own(&job.relationship) => Some(SM_CREATED.to_owned()),
                "" => None,
                SM_CREATED if !cascade => None,
                label => Some(label.to_owned()),
            },
        })
        .collect()
}

/// Snapshots to copy, and the state to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The newest common snapshot, to which the first difference applies; `None` if the destination
    /// is empty.
    pub base: Option<LabelledSnapshot>,
    /// True if the destination has to be reverted to `base` first.
    pub back: bool,
    /// The snapshots to copy, oldest first.
    pub copies: Vec<LabelledSnapshot>,
}

/// Returns true if the destination has to go back to `base`, the newest common snapshot.
///
/// # Errors
/// The destination has nothing that the transfer could build on.
fn goes_back(
    job: &Job,
    kind: TransferKind,
    base: Option<&LabelledSnapshot>,
    has_snapshots: bool,
    destination: &Volume,
) -> Result<bool, String> {
    let is_seen = |held: &LabelledSnapshot| destination.exported == Some(held.id);
    match (base, kind) {
        (None, _)
            if has_snapshots || kind == TransferKind::Update || kind == TransferKind::Resync =>
        {
            Err(format!(
                "No common Snapshot copy found between {} and {}.",
                job.source, job.destination
            ))
        }
        (None, _) => Ok(false),
        (Some(base), TransferKind::Resync | TransferKind::Restore) => {
            Ok(!destination.data_protection || !is_seen(base))
        }
        (Some(base), _) if !is_seen(base) => Err(format!(
            "The newest common Snapshot copy \"{}\" is not the one that {} is at; snapmirror resync goes back to it.",
            base.name, job.destination
        )),
        (Some(_), _) => Ok(false),
    }
}

/// Plans a transfer. `partial` is the snapshot that an earlier attempt has begun to copy.
///
/// # Errors
/// Cause for which nothing can be transferred, in ONTAP's words where it has some.
pub fn plan(
    job: &Job,
    source: &Volume,
    destination: &Volume,
    partial: Option<SnapshotIdentity>,
) -> Result<Plan, String> {
    let Task::Transfer(kind) = job.task else {
        return Err("This is no transfer.".to_owned());
    };
    let from = held(job, source, &source.snapshots);
    let to = held(job, source, &destination.snapshots);
    let base = retention::common(&from, &to).cloned();
    let back = goes_back(job, kind, base.as_ref(), !to.is_empty(), destination)?;
    let behind = base
        .as_ref()
        .and_then(|b| from.iter().position(|h| h.id == b.id));
    let newer = from
        .get(behind.map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    let own = own(job, source).map(|s| s.id);
    let chosen: Vec<SnapshotIdentity> = match &job.source_snapshot {
        Some(name) => {
            let named = from.iter().find(|held| held.name == *name);
            let named = named.ok_or_else(|| {
                let source = &job.source;
                format!("Snapshot copy \"{name}\" is not present on source volume \"{source}\".")
            })?;
            vec![named.id]
        }
        None if kind == TransferKind::Restore => newer.last().map(|h| h.id).into_iter().collect(),
        None => {
            let named = retention::to_copy(&job.policy, &from, &to).into_iter();
            let mirrors = retention::takes_own(&job.policy) || kind == TransferKind::Initialize;
            named.map(|h| h.id).chain(own.filter(|_| mirrors)).collect()
        }
    };
    // A partial copy would replace a snapshot that was requested by name, or come after it.
    let begun = partial.filter(|_| job.source_snapshot.is_none());
    let copies: Vec<LabelledSnapshot> = newer
        .iter()
        .filter(|h| chosen.contains(&h.id) || begun == Some(h.id))
        .cloned()
        .collect();
    if kind != TransferKind::Restore
        && let Some(full) = retention::overfull(&job.policy, &to, &copies)
    {
        return Err(format!(
            "Destination \"{}\" has the {} Snapshot copies with label \"{}\" that its policy keeps and preserves.",
            job.destination, full.keep, full.label
        ));
    }
    if base.is_none() && copies.is_empty() {
        // An example is a source that is a copy without any snapshot yet. Success would hide this.
        let source = &job.source;
        return Err(format!(
            "Source volume \"{source}\" has no Snapshot copy that could be transferred."
        ));
    }
    if let (Some(name), true) = (&job.source_snapshot, copies.is_empty()) {
        if !to.iter().any(|held| chosen.contains(&held.id)) {
            return Err(format!(
                "Snapshot copy \"{name}\" is older than what {} has already.",
                job.destination
            ));
        }
    }
    Ok(Plan { base, back, copies })
}

/// Returns the names of the snapshots to delete after a transfer: at the destination, and at the
/// source.
pub fn let_go(job: &Job, source: &Volume, destination: &Volume) -> (Vec<String>, Vec<String>) {
    let from = held(job, source, &source.snapshots);
    let to = held(job, source, &destination.snapshots);
    let newest = retention::common(&from, &to).map(|held| held.id);
    let spare = |held: &LabelledSnapshot| Some(held.id) != newest;
    let own = |held: &LabelledSnapshot| held.name.starts_with(&prefix(&job.relationship));
    let mut at_destination: Vec<&LabelledSnapshot> = match job.task {
        Task::Transfer(TransferKind::Restore) => Vec::new(),
        _ => {
            let mirrored = job.policy.rules.iter().any(|rule| rule.label == ALL);
            let dropped = retention::to_drop(&job.policy, &from, &to);
            // Without the rule that mirrors, no user requested to keep own snapshots.
            let surplus = to.iter().filter(|h| own(h) && spare(h) && !mirrored);
            dropped.into_iter().chain(surplus).collect()
        }
    };
    // A snapshot that was requested by name remains after a successful transfer, whatever the rules
    // keep.
    let named = |held: &&LabelledSnapshot| job.source_snapshot.as_ref() == Some(&held.name);
    at_destination.retain(|held| !destination.needed.contains(&held.id) && !named(held));
    let mut at_destination: Vec<String> = at_destination.iter().map(|h| h.name.clone()).collect();
    at_destination.sort_unstable();
    at_destination.dedup();
    let at_source = from
        .iter()
        .filter(|h| own(h) && spare(h) && newest.is_some());
    (at_destination, at_source.map(|h| h.name.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Path, system_policies};

    const R: &str = "0000-1";

    fn job(policy: &str, kind: TransferKind) -> Job {
        Job {
            id: 1,
            relationship: R.to_owned(),
            task: Task::Transfer(kind),
            source: Path::parse("s:a").unwrap(),
            destination: Path::parse("s:b").unwrap(),
            policy: system_policies()
                .into_iter()
                .find(|p| p.name == policy)
                .unwrap(),
            source_snapshot: None,
            throttle: None,
            files: Vec::new(),
            arrived: false,
            anew: false,
            serial: 100,
        }
    }

    fn numbered(n: &str) -> SnapshotIdentity {
        let text = format!("00000000-0000-0000-0000-000000000001/1/{n}/{n}.000000000");
        text.parse().unwrap()
    }

    /// Builds a volume from names: `daily3` has the label `daily`, `sm5` is this relationship's
    /// own, and `other7` is another one's. The number gives identity and time.
    fn volume(names: &[&str], exported: Option<&str>) -> Volume {
        fn id(name: &str) -> &str {
            name.trim_start_matches(|c: char| !c.is_ascii_digit())
        }
        let one = |name: &&str| {
            let label = name.trim_end_matches(|c: char| c.is_ascii_digit());
            Snapshot {
                name: match label {
                    "sm" => format!("{}{}.{name}", prefix(R), id(name)),
                    "other" => format!("snapmirror.2_{}.{name}", id(name)),
                    _ => (*name).to_owned(),
                },
                label: match label {
                    "sm" | "other" => SM_CREATED.to_owned(),
                    label => label.to_owned(),
                },
                id: numbered(id(name)),
                created: id(name).parse().unwrap(),
            }
        };
        Volume {
            size: None,
            data_protection: exported.is_some(),
            snapshots: names.iter().map(one).collect(),
            exported: exported.map(|name| numbered(id(name))),
            ..Volume::default()
        }
    }

    fn names(plan: &Plan) -> Vec<&str> {
        let short = |h: &LabelledSnapshot| h.name.rfind('.').map_or(0, |at| at + 1);
        plan.copies.iter().map(|h| &h.name[short(h)..]).collect()
    }

    #[test]
    fn own_snapshots_are_taken_once_a_request() {
        let job = job("MirrorLatest", TransferKind::Update);
        assert!(
            must_take(&job, &volume(&["daily1", "sm99"], None)),
            "an older request's"
        );
        assert!(
            !must_take(&job, &volume(&["sm99", "sm100"], None)),
            "an earlier try's"
        );
        assert!(
            !must_take(&job, &volume(&["other100"], Some("other100"))),
            "a copy cannot"
        );
        assert_eq!(
            own_name(&job, 1_683_196_890),
            "snapmirror.0000-1_100.2023-05-04_104130"
        );
    }

    #[test]
    fn a_vault_begins_with_a_baseline_and_goes_on_with_labels() {
        let empty = volume(&[], None);
        let source = volume(&["daily1", "hourly2", "sm100"], None);
        let first = plan(
            &job("XDPDefault", TransferKind::Initialize),
            &source,
            &empty,
            None,
        );
        assert_eq!(names(&first.unwrap()), ["daily1", "sm100"]);
        let copy = volume(&["daily1", "sm100"], Some("sm100"));
        let source = volume(&["daily1", "sm100", "hourly101", "daily102", "sm103"], None);
        let next = plan(
            &job("XDPDefault", TransferKind::Update),
            &source,
            &copy,
            None,
        )
        .unwrap();
        assert_eq!((names(&next), next.back), (vec!["daily102"], false));
    }

    #[test]
    fn another_relationships_snapshots_are_no_newest_state() {
        let source = volume(&["sm50", "other60", "sm100"], None);
        let copy = volume(&["sm50"], Some("sm50"));
        let latest = plan(
            &job("MirrorLatest", TransferKind::Update),
            &source,
            &copy,
            None,
        );
        assert_eq!(names(&latest.unwrap()), ["sm100"]);
        let all = plan(
            &job("MirrorAllSnapshots", TransferKind::Update),
            &source,
            &copy,
            None,
        );
        assert_eq!(names(&all.unwrap()), ["other60", "sm100"]);
    }

    #[test]
    fn what_was_begun_is_ended() {
        let source = volume(&["sm50", "sm80", "sm100"], None);
        let copy = volume(&["sm50"], Some("sm50"));
        let again = plan(
            &job("MirrorLatest", TransferKind::Update),
            &source,
            &copy,
            Some(numbered("80")),
        );
        assert_eq!(names(&again.unwrap()), ["sm80", "sm100"]);
    }

    #[test]
    fn a_snapshot_that_is_asked_for_by_name_comes_and_stays() {
        let named = |name: &str| Job {
            source_snapshot: Some(name.to_owned()),
            ..job("XDPDefault", TransferKind::Update)
        };
        let source = volume(&["hourly40", "sm50", "hourly60", "sm80"], None);
        let copy = volume(&["sm50"], Some("sm50"));
        let begun = Some(numbered("80"));
        let next = plan(&named("hourly60"), &source, &copy, begun).unwrap();
        assert_eq!(names(&next), ["hourly60"]);
        let older = plan(&named("hourly40"), &source, &copy, begun);
        assert!(older.unwrap_err().contains("is older"));
        let own = format!("{}80.sm80", prefix(R));
        let copy = volume(&["sm50", "sm80", "daily90"], Some("daily90"));
        let source = volume(&["sm50", "sm80", "daily90"], None);
        let (there, _) = let_go(&named(&own), &source, &copy);
        assert_eq!(there, [format!("{}50.sm50", prefix(R))]);
    }

    #[test]
    fn nothing_of_the_destinations_own_is_lost_but_by_a_resync() {
        let source = volume(&["sm50", "sm100"], None);
        let copy = volume(&["sm50", "daily70"], Some("daily70"));
        let update = plan(
            &job("MirrorLatest", TransferKind::Update),
            &source,
            &copy,
            None,
        );
        assert!(update.unwrap_err().contains("snapmirror resync"));
        let resync = plan(
            &job("MirrorLatest", TransferKind::Resync),
            &source,
            &copy,
            None,
        )
        .unwrap();
        assert_eq!((resync.back, names(&resync)), (true, vec!["sm100"]));
        let foreign = volume(&["daily7"], Some("daily7"));
        for kind in [
            TransferKind::Update,
            TransferKind::Resync,
            TransferKind::Initialize,
        ] {
            let none = plan(&job("MirrorLatest", kind), &source, &foreign, None);
            assert!(
                none.unwrap_err().starts_with("No common Snapshot copy"),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_source_without_a_snapshot_makes_no_copy() {
        let bare = Volume {
            data_protection: true,
            ..Volume::default()
        };
        for kind in [TransferKind::Initialize, TransferKind::Restore] {
            let nothing = plan(&job("MirrorLatest", kind), &bare, &bare, None);
            assert!(nothing.unwrap_err().contains("has no Snapshot copy"));
        }
    }

    #[test]
    fn a_cascade_follows_what_its_source_shows() {
        let source = volume(&["other50", "other60"], Some("other60"));
        let copy = volume(&["other50"], Some("other50"));
        let job = job("MirrorLatest", TransferKind::Update);
        assert!(!must_take(&job, &source));
        assert_eq!(
            names(&plan(&job, &source, &copy, None).unwrap()),
            ["other60"]
        );
        // The copy above may not delete the snapshots that it needs.
        let mut middle = volume(&["other50", "other60"], Some("other60"));
        middle.needed = vec![numbered("50")];
        let head = volume(&["other50", "other60"], None);
        let mut above = job;
        above.relationship = "2".to_owned();
        let (gone, at_head) = let_go(&above, &head, &middle);
        assert_eq!(gone, Vec::<String>::new());
        assert_eq!(at_head, ["snapmirror.2_50.other50"]);
    }

    #[test]
    fn one_own_snapshot_stays_on_either_side() {
        let source = volume(&["sm50", "daily60", "sm100"], None);
        let copy = volume(&["sm50", "daily60", "sm100"], Some("sm100"));
        for policy in ["MirrorLatest", "MirrorAllSnapshots", "XDPDefault"] {
            let (there, here) = let_go(&job(policy, TransferKind::Update), &source, &copy);
            assert_eq!(
                (there, here),
                (
                    vec![format!("{}50.sm50", prefix(R))],
                    vec![format!("{}50.sm50", prefix(R))]
                ),
                "{policy}"
            );
        }
    }
}
