//! What operations do.
//!
//! A job has all that it takes as fields, its target among them, so that a job that was cut short is begun again from its row
//! alone. What cannot be cannot be written; a row that says anything else is damaged, and is not read as a job that is done.

use crate::name::{Name, ReplicationName, SnapshotName, Target, VolumeName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// Has the data path take over a pool.
    CreatePool(Name),
    /// Has the data path take over what was changed of a pool.
    UpdatePool(Name),
    /// Has the data path forget a pool.
    DeletePool(Name),
    /// Nothing: there is one machine.
    SwitchPool(Name),
    /// Makes it on the node.
    Create(VolumeName),
    /// Has the node and the data path take over what was changed of it.
    Update {
        /// The volume to change.
        of: VolumeName,
        /// The engine's capacity is another.
        capacity: bool,
        /// The root's permission bits were given.
        mode: bool,
    },
    /// Deletes it on the node, with its snapshots.
    Delete(VolumeName),
    /// Makes it what it was.
    Revert {
        /// The volume to revert.
        of: VolumeName,
        /// The snapshot's bare id.
        snapshot: Arc<str>,
    },
    /// Copies what a clone shares.
    Split(VolumeName),
    /// Takes a snapshot on the node.
    TakeSnapshot(SnapshotName),
    /// Has the node take over what was changed of a snapshot.
    UpdateSnapshot {
        /// The snapshot that was changed.
        name: SnapshotName,
        /// Its label for replication is another.
        label: bool,
    },
    /// Renames a snapshot on the node.
    RenameSnapshot {
        /// The name that it has now.
        name: SnapshotName,
        /// The bare id that it had.
        from: Arc<str>,
    },
    /// Deletes a snapshot on the node.
    DeleteSnapshot(SnapshotName),
    /// Has the data path take over what a policy's change has changed of volumes.
    Policy {
        /// What was done to the policy, in one word.
        verb: Arc<str>,
        /// Its full name.
        name: Arc<str>,
    },
    /// Has the node join a domain, by a password that is in memory alone: one that is cut short fails.
    JoinDomain {
        /// The domain of Active Directory.
        name: Name,
        /// It was there before.
        again: bool,
    },
    /// Nothing: a description of it was changed.
    UpdateDomain(Name),
    /// Has the node leave a domain.
    LeaveDomain(Name),
    /// Nothing: a relationship's rows have been changed, and what goes on is the relationship's own.
    Replicate {
        /// As NetApp Volumes calls it.
        name: ReplicationName,
        /// What was done to the replication.
        verb: ReplicationVerb,
    },
    /// The same, asked for in ONTAP's words: these are no operations, and in no catalog.
    Relation {
        /// The command's words: `snapmirror create`.
        command: Arc<str>,
        /// The one thing that it is about.
        target: Arc<str>,
    },
}

/// What NetApp Volumes does to replications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicationVerb {
    /// Make it, with the volume that it copies into.
    Create,
    /// Change its description, labels or schedule.
    Update,
    /// End it; both volumes stay.
    Delete,
    /// Make the destination writable.
    Stop,
    /// Make the destination a copy again.
    Resume,
    /// Copy in the other direction.
    Reverse,
    /// Copy now, whatever the schedule.
    Sync,
    /// Offer pairing to the source's node.
    EstablishPeering,
}

impl ReplicationVerb {
    /// The word that the API has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplicationVerb::Create => "create",
            ReplicationVerb::Update => "update",
            ReplicationVerb::Delete => "delete",
            ReplicationVerb::Stop => "stop",
            ReplicationVerb::Resume => "resume",
            ReplicationVerb::Reverse => "reverseDirection",
            ReplicationVerb::Sync => "sync",
            ReplicationVerb::EstablishPeering => "establishPeering",
        }
    }
}

impl Job {
    /// The resource that it changes.
    pub fn target(&self) -> Target {
        match self {
            Job::CreatePool(name)
            | Job::UpdatePool(name)
            | Job::DeletePool(name)
            | Job::SwitchPool(name) => Target::Pool(name.clone()),
            Job::JoinDomain { name, .. } | Job::UpdateDomain(name) | Job::LeaveDomain(name) => {
                Target::ActiveDirectory(name.clone())
            }
            Job::Create(of)
            | Job::Update { of, .. }
            | Job::Delete(of)
            | Job::Revert { of, .. }
            | Job::Split(of) => Target::Volume(of.clone()),
            Job::TakeSnapshot(name)
            | Job::UpdateSnapshot { name, .. }
            | Job::RenameSnapshot { name, .. }
            | Job::DeleteSnapshot(name) => Target::Snapshot(name.clone()),
            Job::Replicate { name, .. } => Target::Replication(name.clone()),
            Job::Relation { target, .. } | Job::Policy { name: target, .. } => {
                Target::Relation(Arc::clone(target))
            }
        }
    }

    /// What it does to that, in the API's word.
    pub fn verb(&self) -> &str {
        match self {
            Job::CreatePool(_)
            | Job::Create(_)
            | Job::TakeSnapshot(_)
            | Job::JoinDomain { again: false, .. } => "create",
            Job::UpdatePool(_)
            | Job::Update { .. }
            | Job::UpdateSnapshot { .. }
            | Job::UpdateDomain(_)
            | Job::JoinDomain { again: true, .. } => "update",
            Job::DeletePool(_) | Job::Delete(_) | Job::DeleteSnapshot(_) | Job::LeaveDomain(_) => {
                "delete"
            }
            Job::SwitchPool(_) => "switch",
            Job::Revert { .. } => "revert",
            Job::Split(_) => "split",
            Job::RenameSnapshot { .. } => "rename",
            Job::Replicate { verb, .. } => verb.as_str(),
            Job::Relation { command, .. } | Job::Policy { verb: command, .. } => command,
        }
    }

    /// Whether it deletes its target.
    pub(crate) fn deletes(&self) -> bool {
        matches!(
            self,
            Job::DeletePool(_) | Job::Delete(_) | Job::DeleteSnapshot(_) | Job::LeaveDomain(_)
        )
    }

    /// Whether running it once more, when it was done and acknowledged long ago, changes nothing. A second revert would
    /// take away what was written after the first, and a mode set again what a client made of it.
    pub(crate) fn lazily_durable(&self) -> bool {
        match self {
            Job::CreatePool(_)
            | Job::UpdatePool(_)
            | Job::DeletePool(_)
            | Job::Create(_)
            | Job::Update { mode: false, .. }
            | Job::Delete(_)
            | Job::TakeSnapshot(_)
            | Job::UpdateSnapshot { .. }
            | Job::Policy { .. }
            | Job::UpdateDomain(_)
            | Job::LeaveDomain(_)
            | Job::DeleteSnapshot(_) => true,
            Job::Update { mode: true, .. }
            | Job::SwitchPool(_)
            | Job::Revert { .. }
            | Job::Split(_)
            | Job::RenameSnapshot { .. }
            | Job::JoinDomain { .. }
            | Job::Replicate { .. }
            | Job::Relation { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Place;

    #[test]
    fn what_is_no_job_is_not_read_as_one() {
        let job = Job::Update {
            of: Place::new("p", "l").volume("v"),
            capacity: true,
            mode: false,
        };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        for (from, to) in [
            ("Update", "Shrink"),
            ("capacity", "size"),
            ("true", "\"capacity,mode\""),
            ("Netapp", "Azure"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            assert!(serde_json::from_str::<Job>(&other).is_err(), "{other}");
        }
    }
}
