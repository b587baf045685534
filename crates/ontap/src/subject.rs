//! What a change is called in the audit log: its command, and what that is about.

use weir_replica::model::Path;

use crate::cluster::Change;

impl Change {
    /// The command in full, and the one thing that it is about: a path, or a name.
    pub fn subject(&self) -> (&'static str, String) {
        let (verb, path): (&str, &Path) = match self {
            Change::Create { destination, .. } => ("snapmirror create", destination),
            Change::Modify { destination, .. } => ("snapmirror modify", destination),
            Change::Initialize { destination, .. } => ("snapmirror initialize", destination),
            Change::Update { destination, .. } => ("snapmirror update", destination),
            Change::Quiesce(destination) => ("snapmirror quiesce", destination),
            Change::Resume(destination) => ("snapmirror resume", destination),
            Change::Abort { destination, .. } => ("snapmirror abort", destination),
            Change::Break(destination) => ("snapmirror break", destination),
            Change::Resync { destination, .. } => ("snapmirror resync", destination),
            Change::Restore { destination, .. } => ("snapmirror restore", destination),
            Change::Release(destination) => ("snapmirror release", destination),
            Change::Delete(destination) => ("snapmirror delete", destination),
            Change::SnapshotCreate { path, .. } => ("snapshot create", path),
            Change::SnapshotDelete { path, .. } => ("snapshot delete", path),
            Change::SnapshotRename { path, .. } => ("snapshot rename", path),
            Change::SnapshotModify { path, .. } => ("snapshot modify", path),
            Change::SnapshotRestore { path, .. } => ("snapshot restore", path),
            Change::VolumeCreate { path, .. } => ("volume create", path),
            Change::VolumeProtect(path) => ("volume create -type DP", path),
            Change::VolumeDelete(path) => ("volume delete", path),
            Change::VolumeClone { path, .. } => ("volume clone create", path),
            Change::VolumeSplit(path) => ("volume clone split", path),
            Change::PolicyCreate { name, .. } => {
                return ("snapmirror policy create", name.clone());
            }
            Change::PolicyModify { name, .. } => {
                return ("snapmirror policy modify", name.clone());
            }
            Change::PolicyDelete(name) => return ("snapmirror policy delete", name.clone()),
            Change::PolicyRule { name, keep, .. } => {
                let verb = match keep {
                    Some(_) => "snapmirror policy add-rule",
                    None => "snapmirror policy remove-rule",
                };
                return (verb, name.clone());
            }
            Change::ScheduleCreate { name, .. } => return ("job schedule create", name.clone()),
            Change::ScheduleDelete(name) => return ("job schedule delete", name.clone()),
            Change::PeerCreate { name, .. } => return ("cluster peer create", name.clone()),
            Change::PeerDelete(name) => return ("cluster peer delete", name.clone()),
            Change::GlobalThrottle { incoming, max } => {
                let direction = if *incoming { "incoming" } else { "outgoing" };
                let max = max.map_or_else(|| "unlimited".to_owned(), |kbs| kbs.to_string());
                let option = format!("replication.throttle.{direction}.max_kbs={max}");
                return ("options", option);
            }
        };
        (verb, path.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_by_their_commands() {
        let destination = Path::parse("SVM:b").unwrap();
        let resumed = Change::Resume(destination).subject();
        assert_eq!(resumed, ("snapmirror resume", "SVM:b".to_owned()));
        let max = Some(4096);
        let throttled = Change::GlobalThrottle {
            incoming: true,
            max,
        };
        let option = "replication.throttle.incoming.max_kbs=4096".to_owned();
        assert_eq!(throttled.subject(), ("options", option));
    }
}
