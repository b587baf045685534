//! Jobs: the work of operations.
//!
//! A job contains all of its arguments, its target among them, so that an interrupted job can be
//! restarted from its row alone. Invalid jobs cannot be written. A row with any other contents is
//! damaged, and is not read as a completed job.

use crate::name::{
    BackupName, Name, QuotaRuleName, ReplicationName, SnapshotName, Target, VolumeName,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A job: see the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// Makes the data path apply a new pool.
    CreatePool(Name),
    /// Makes the data path apply a pool's change.
    UpdatePool(Name),
    /// Makes the data path forget a pool.
    DeletePool(Name),
    /// Does nothing: there is only one machine.
    SwitchPool(Name),
    /// Creates a volume on the node.
    Create(VolumeName),
    /// Makes the node and the data path apply a volume's change.
    Update {
        /// The volume to change.
        of: VolumeName,
        /// True if the capacity changes.
        capacity: bool,
        /// True if the root's permission bits were given.
        mode: bool,
    },
    /// Deletes a volume on the node, with its snapshots.
    Delete(VolumeName),
    /// Reverts a volume to a snapshot.
    Revert {
        /// The volume to revert.
        of: VolumeName,
        /// The snapshot's bare id.
        snapshot: Arc<str>,
    },
    /// Copies the shared blocks of a clone.
    Split(VolumeName),
    /// Waits until a volume has moved to another aggregate.
    Move(VolumeName),
    /// Does nothing: the move of a volume was ended, or a volume has arrived.
    EndMove {
        /// The volume.
        of: VolumeName,
        /// True if it has arrived from another aggregate.
        arrived: bool,
    },
    /// Deletes a qtree with all that is in it.
    DeleteTree {
        /// The volume, by its name at that time.
        of: VolumeName,
        /// Its key in the engine, which a change of its name leaves as it is.
        key: Arc<str>,
        /// Number of the qtree.
        number: u32,
    },
    /// Takes a snapshot on the node.
    TakeSnapshot(SnapshotName),
    /// Makes the node apply a snapshot's change.
    UpdateSnapshot {
        /// The snapshot that was changed.
        name: SnapshotName,
        /// True if its replication label changes.
        label: bool,
    },
    /// Renames a snapshot on the node.
    RenameSnapshot {
        /// The present name.
        name: SnapshotName,
        /// The former bare id.
        from: Arc<str>,
    },
    /// Deletes a snapshot on the node.
    DeleteSnapshot(SnapshotName),
    /// Makes the data path apply the effects of a policy's change on volumes.
    Policy {
        /// Action on the policy, in one word.
        verb: Arc<str>,
        /// Its full name.
        name: Arc<str>,
    },
    /// Makes the data path apply a change of a volume's quota rules.
    QuotaRule {
        /// The rule.
        name: QuotaRuleName,
        /// Action on the rule.
        verb: RowVerb,
    },
    /// Makes the node join a domain, with a password that is only in memory: an interrupted job
    /// fails.
    JoinDomain {
        /// The domain of Active Directory.
        name: Name,
        /// True if the resource existed before.
        again: bool,
    },
    /// Does nothing: only the description was changed.
    UpdateDomain(Name),
    /// Makes the node leave a domain.
    LeaveDomain(Name),
    /// Makes a vault in the bucket.
    CreateBackupVault(Name),
    /// Does nothing: only the description was changed.
    UpdateBackupVault(Name),
    /// Deletes a vault in the bucket.
    DeleteBackupVault(Name),
    /// Does nothing: the schedules follow the policy by themselves.
    BackupPolicy {
        /// The policy.
        name: Name,
        /// Action on the policy.
        verb: RowVerb,
    },
    /// Backs a volume up.
    TakeBackup(BackupName),
    /// Does nothing: only the description was changed.
    UpdateBackup(BackupName),
    /// Deletes a backup in the bucket.
    DeleteBackup(BackupName),
    /// Copies files of a backup into a volume.
    RestoreFiles {
        /// The volume that gets them.
        of: VolumeName,
        /// The backup.
        backup: BackupName,
        /// Paths of the files in the backup's volume.
        files: Vec<Arc<str>>,
        /// Path of the directory of the volume.
        directory: Arc<str>,
    },
    /// Does nothing: a relationship's rows have been changed, and the relationship continues by
    /// itself.
    Replicate {
        /// Name in NetApp Volumes.
        name: ReplicationName,
        /// Action on the replication.
        verb: ReplicationVerb,
    },
    /// Replication change requested through ONTAP's interface: not an operation, and in no catalog.
    Relation {
        /// The words of the command: `snapmirror create`.
        command: Arc<str>,
        /// Target of the command.
        target: Arc<str>,
    },
}

/// Actions on quota rules and on policies of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowVerb {
    /// Create it.
    Create,
    /// Change it.
    Update,
    /// Delete it.
    Delete,
}

/// Actions of NetApp Volumes on replications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicationVerb {
    /// Create it, with its destination volume.
    Create,
    /// Change its description, labels or schedule.
    Update,
    /// Delete it; both volumes stay.
    Delete,
    /// Make the destination writable.
    Stop,
    /// Make the destination a copy again.
    Resume,
    /// Copy in the other direction.
    Reverse,
    /// Copy now, whatever the schedule.
    Sync,
    /// Pairing is offered to the source's node.
    EstablishPeering,
}

impl ReplicationVerb {
    /// Returns the API's word for it.
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
    /// Returns the resource that it changes.
    pub fn target(&self) -> Target {
        match self {
            Job::CreatePool(name)
            | Job::UpdatePool(name)
            | Job::DeletePool(name)
            | Job::SwitchPool(name) => Target::Pool(name.clone()),
            Job::JoinDomain { name, .. } | Job::UpdateDomain(name) | Job::LeaveDomain(name) => {
                Target::ActiveDirectory(name.clone())
            }
            Job::CreateBackupVault(name)
            | Job::UpdateBackupVault(name)
            | Job::DeleteBackupVault(name) => Target::BackupVault(name.clone()),
            Job::BackupPolicy { name, .. } => Target::BackupPolicy(name.clone()),
            Job::TakeBackup(name) | Job::UpdateBackup(name) | Job::DeleteBackup(name) => {
                Target::Backup(name.clone())
            }
            Job::Create(of)
            | Job::Update { of, .. }
            | Job::Delete(of)
            | Job::Revert { of, .. }
            | Job::RestoreFiles { of, .. }
            | Job::Move(of)
            | Job::EndMove { of, .. }
            | Job::DeleteTree { of, .. }
            | Job::Split(of) => Target::Volume(of.clone()),
            Job::TakeSnapshot(name)
            | Job::UpdateSnapshot { name, .. }
            | Job::RenameSnapshot { name, .. }
            | Job::DeleteSnapshot(name) => Target::Snapshot(name.clone()),
            Job::QuotaRule { name, .. } => Target::QuotaRule(name.clone()),
            Job::Replicate { name, .. } => Target::Replication(name.clone()),
            Job::Relation { target, .. } | Job::Policy { name: target, .. } => {
                Target::Relation(Arc::clone(target))
            }
        }
    }

    /// Returns the API's word for the action.
    pub fn verb(&self) -> &str {
        match self {
            Job::CreatePool(_)
            | Job::Create(_)
            | Job::TakeSnapshot(_)
            | Job::CreateBackupVault(_)
            | Job::TakeBackup(_)
            | Job::JoinDomain { again: false, .. } => "create",
            Job::UpdatePool(_)
            | Job::Update { .. }
            | Job::UpdateSnapshot { .. }
            | Job::UpdateDomain(_)
            | Job::UpdateBackupVault(_)
            | Job::UpdateBackup(_)
            | Job::JoinDomain { again: true, .. } => "update",
            Job::DeletePool(_)
            | Job::Delete(_)
            | Job::DeleteSnapshot(_)
            | Job::DeleteBackupVault(_)
            | Job::DeleteBackup(_)
            | Job::LeaveDomain(_) => "delete",
            Job::QuotaRule { verb, .. } | Job::BackupPolicy { verb, .. } => match verb {
                RowVerb::Create => "create",
                RowVerb::Update => "update",
                RowVerb::Delete => "delete",
            },
            Job::SwitchPool(_) => "switch",
            Job::DeleteTree { .. } => "deleteQtree",
            Job::Revert { .. } => "revert",
            Job::Split(_) => "split",
            Job::Move(_) => "move",
            Job::EndMove { arrived: false, .. } => "abortMove",
            Job::EndMove { arrived: true, .. } => "arrive",
            Job::RestoreFiles { .. } => "restore",
            Job::RenameSnapshot { .. } => "rename",
            Job::Replicate { verb, .. } => verb.as_str(),
            Job::Relation { command, .. } | Job::Policy { verb: command, .. } => command,
        }
    }

    /// Returns true if it deletes its target.
    pub(crate) fn deletes(&self) -> bool {
        matches!(
            self,
            Job::DeletePool(_)
                | Job::Delete(_)
                | Job::DeleteSnapshot(_)
                | Job::DeleteBackupVault(_)
                | Job::DeleteBackup(_)
                | Job::LeaveDomain(_)
                | Job::QuotaRule {
                    verb: RowVerb::Delete,
                    ..
                }
                | Job::BackupPolicy {
                    verb: RowVerb::Delete,
                    ..
                }
        )
    }

    /// Returns true if a repetition long after its acknowledgement changes nothing. A second revert
    /// would remove later writes, and a mode set again would undo a client's change.
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
            | Job::QuotaRule { .. }
            | Job::BackupPolicy { .. }
            | Job::UpdateDomain(_)
            | Job::LeaveDomain(_)
            | Job::CreateBackupVault(_)
            | Job::UpdateBackupVault(_)
            | Job::DeleteBackupVault(_)
            | Job::TakeBackup(_)
            | Job::UpdateBackup(_)
            | Job::DeleteBackup(_)
            | Job::RestoreFiles { .. }
            | Job::Move(_)
            | Job::EndMove { .. }
            | Job::DeleteTree { .. }
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
    use crate::name::LocationName;

    #[test]
    fn what_is_no_job_is_not_read_as_one() {
        let job = Job::Update {
            of: LocationName::new("p", "l").volume("v"),
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
