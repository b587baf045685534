//! Snapshots, and those that clones of volumes stand on.

use serde_json::{Value, json};

use super::volumes::Content;
use super::{Controller, DRIVER, FOR, GIB, WEIR, has_label, page};
use crate::api::{Verb, number, text};
use crate::names::{SnapshotId, VolumeId, hash, id_for};
use crate::requests::{OfSnapshots, read};
use crate::status::{Code, Outcome, Status};

/// Returns the identifier of the snapshot that a clone of a volume stands on.
fn clone_snapshot(clone: &str) -> String {
    format!("csi-clone-{}", hash(clone))
}

/// Returns a snapshot as CSI has it. A volume made of it needs the capacity of its volume.
fn render_snapshot(snapshot: &Value, volume: &Value) -> Value {
    let id = SnapshotId::of_resource(text(snapshot, "name"));
    json!({
        "snapshotId": id.as_ref().map(SnapshotId::to_string).unwrap_or_default(),
        "sourceVolumeId": id.as_ref().map(|id| id.volume.to_string()).unwrap_or_default(),
        "sizeBytes": (number(volume, "capacityGib") * GIB).to_string(),
        "creationTime": text(snapshot, "createTime"),
        "readyToUse": text(snapshot, "state") == "READY",
    })
}

impl Controller {
    fn snapshot_name(&self, of: &SnapshotId) -> String {
        format!("{}/snapshots/{}", self.volume_name(&of.volume), of.id)
    }

    pub(super) fn create_snapshot(&self, request: Value) -> Outcome<Value> {
        let request: OfSnapshots = read(request)?;
        if request.name.is_empty() || request.source_volume_id.is_empty() {
            return Err(Status::invalid("name or source_volume_id is missing"));
        }
        if let Some(name) = request
            .parameters
            .keys()
            .find(|n| !n.starts_with("csi.storage.k8s.io/"))
        {
            return Err(Status::invalid(format!(
                "parameter {name:?} is unknown: a snapshot has none"
            )));
        }
        let missing = || Status::not_found("volume", &request.source_volume_id);
        let volume = VolumeId::parse(&request.source_volume_id).ok_or_else(missing)?;
        let id = SnapshotId {
            volume,
            id: id_for(&request.name),
        };
        let _operation = self.in_flight.begin(format!("snapshot {}", id.id))?;
        let source = self.volume(&id.volume)?;
        let name = self.snapshot_name(&id);
        if self.api.get(&name)?.is_none() {
            self.check_name(&id)?;
            let body = json!({"labels": {DRIVER: WEIR}});
            let parent = format!("{}/snapshots", self.volume_name(&id.volume));
            let query = [("snapshotId", id.id.as_str())];
            match self.api.change(&Verb::Post(&body), &parent, &query) {
                Err(e) if e.code != Code::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        let there = self.api.get(&name)?;
        let there = there
            .ok_or_else(|| Status::new(Code::Aborted, "the snapshot was deleted meanwhile"))?;
        Ok(json!({"snapshot": render_snapshot(&there, &source)}))
    }

    /// Checks that no other volume has a snapshot of this name: CSI's names are the plugin's.
    fn check_name(&self, id: &SnapshotId) -> Outcome<()> {
        for volume in self.volumes()? {
            let other = VolumeId::of_resource(text(&volume, "name"));
            let Some(other) = other.filter(|other| *other != id.volume) else {
                continue;
            };
            let other = SnapshotId {
                volume: other,
                id: id.id.clone(),
            };
            let found = self.api.get(&self.snapshot_name(&other))?;
            if found.is_some_and(|found| has_label(&found, DRIVER, WEIR)) {
                let why = format!(
                    "snapshot {} exists already, of volume {}",
                    id.id, other.volume
                );
                return Err(Status::new(Code::AlreadyExists, why));
            }
        }
        Ok(())
    }

    pub(super) fn delete_snapshot(&self, request: Value) -> Outcome<Value> {
        let request: OfSnapshots = read(request)?;
        if request.snapshot_id.is_empty() {
            return Err(Status::invalid("snapshot_id is missing"));
        }
        let Some(id) = SnapshotId::parse(&request.snapshot_id) else {
            return Ok(json!({}));
        };
        let _operation = self.in_flight.begin(format!("snapshot {}", id.id))?;
        let name = self.snapshot_name(&id);
        if self.api.get(&name)?.is_none() {
            return Ok(json!({}));
        }
        self.split_clones(&id.volume, Some(&id.id))?;
        match self.api.change(&Verb::Delete, &name, &[]) {
            Ok(_) => Ok(json!({})),
            Err(e) if e.code == Code::NotFound => Ok(json!({})),
            Err(e) => Err(e),
        }
    }

    pub(super) fn get_snapshot(&self, request: Value) -> Outcome<Value> {
        let request: OfSnapshots = read(request)?;
        if request.snapshot_id.is_empty() {
            return Err(Status::invalid("snapshot_id is missing"));
        }
        let missing = || Status::not_found("snapshot", &request.snapshot_id);
        let found = self.one(&request.snapshot_id)?.ok_or_else(missing)?;
        Ok(json!({"snapshot": found}))
    }

    /// Returns a snapshot by the id that CSI knows it by.
    fn one(&self, id: &str) -> Outcome<Option<Value>> {
        let Some(id) = SnapshotId::parse(id) else {
            return Ok(None);
        };
        let Some(there) = self.api.get(&self.snapshot_name(&id))? else {
            return Ok(None);
        };
        Ok(Some(render_snapshot(&there, &self.volume(&id.volume)?)))
    }

    pub(super) fn list_snapshots(&self, request: Value) -> Outcome<Value> {
        let request: OfSnapshots = read(request)?;
        let mut all: Vec<(String, Value)> = Vec::new();
        if !request.snapshot_id.is_empty() {
            let found = self.one(&request.snapshot_id)?;
            all.extend(found.map(|found| (request.snapshot_id.clone(), found)));
        } else {
            let of = match request.source_volume_id.as_str() {
                "" => self.volumes()?,
                id => match VolumeId::parse(id) {
                    Some(id) => self.api.get(&self.volume_name(&id))?.into_iter().collect(),
                    None => Vec::new(),
                },
            };
            for volume in of {
                let list = format!("{}/snapshots", text(&volume, "name"));
                let snapshots = match self.api.list(&list, "snapshots") {
                    Ok(snapshots) => snapshots,
                    // The volume was deleted meanwhile.
                    Err(e) if e.code == Code::NotFound => continue,
                    Err(e) => return Err(e),
                };
                let own = snapshots.iter().filter(|s| has_label(s, DRIVER, WEIR));
                all.extend(own.map(|s| {
                    let shown = render_snapshot(s, &volume);
                    (text(&shown, "snapshotId").to_owned(), shown)
                }));
            }
        }
        let (page, next) = page(all, request.max_entries, &request.starting_token)?;
        let entries: Vec<Value> = page.into_iter().map(|s| json!({"snapshot": s})).collect();
        Ok(json!({"entries": entries, "nextToken": next.unwrap_or_default()}))
    }

    /// Returns the name of the snapshot that a new volume is made of. Of a volume as it is now it
    /// is one that is taken for the new volume.
    ///
    /// # Errors
    /// NOT_FOUND: there is no such snapshot. As [`crate::api::Api::call`].
    pub(super) fn content(&self, of: &Content, new: &VolumeId) -> Outcome<String> {
        let source = match of {
            Content::Snapshot(of) => {
                let name = self.snapshot_name(of);
                let missing = || Status::not_found("snapshot", &of.to_string());
                self.api.get(&name)?.ok_or_else(missing)?;
                return Ok(name);
            }
            Content::Volume(of) => of,
        };
        let id = SnapshotId {
            volume: source.clone(),
            id: clone_snapshot(&new.id),
        };
        let body = json!({"labels": {FOR: new.id.to_lowercase()}});
        let parent = format!("{}/snapshots", self.volume_name(source));
        let query = [("snapshotId", id.id.as_str())];
        match self.api.change(&Verb::Post(&body), &parent, &query) {
            Err(e) if e.code != Code::AlreadyExists => Err(e),
            _ => Ok(self.snapshot_name(&id)),
        }
    }

    /// Deletes the snapshot that was taken for a clone, as far as that can be: the clone is gone,
    /// or was not made. What remains goes with its volume.
    pub(super) fn drop_clone_snapshot(&self, of: &VolumeId, clone: &str) {
        let id = SnapshotId {
            volume: of.clone(),
            id: clone_snapshot(clone),
        };
        let name = self.snapshot_name(&id);
        match self.api.change(&Verb::Delete, &name, &[]) {
            Ok(_) => {}
            Err(e) if e.code == Code::NotFound => {}
            Err(e) => tracing::warn!("cannot delete {name}: {}", e.message),
        }
    }
}
