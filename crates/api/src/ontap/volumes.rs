//! `storage/volumes`: what their users read, make and change.
//!
//! Fields that ONTAP has and this node does not serve (compression, tiering, encryption, …) are
//! known, with the one value that they have here. A client may ask for them, and set them to that
//! value. Another value is refused.

use weir_ontap::cluster::Volume;
use weir_ontap::fields::Way;
use weir_ontap::fields::volume::{self, Draft, TABLE};
use weir_ontap::{Change, Settings, Snapshot};
use weir_relations::model::Path;

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};

/// Returns a volume by its UUID.
pub fn find(a: &CallContext<'_>, id: &str) -> HandlerResult<Volume> {
    let found = a.cluster.volumes().into_iter().find(|v| v.uuid == id);
    found.ok_or_else(Refusal::no_entry)
}

/// Switches the quota rules of a volume on or off, if that is asked for.
fn switch_quotas(a: &CallContext<'_>, volume: &Path, on: Option<bool>) -> HandlerResult<()> {
    let Some(on) = on else {
        // The body does not mention them.
        return Ok(());
    };
    let volume = volume.clone();
    let changed = a.cluster.change(Change::QuotasOn { volume, on });
    changed.map_err(Refusal::of_volume)
}

/// Handles GET of volumes, or of the one whose path it is.
pub fn list(a: &CallContext<'_>, one: bool) -> HandlerResult<Reply> {
    let rows = |counted| volume::rows(a.cluster, counted);
    resource::get(a, &TABLE, one, rows)
}

/// Returns the volume and the snapshot that a clone is made of; `None`: it is no clone.
fn parent(
    a: &CallContext<'_>,
    svm: &str,
    draft: &mut Draft,
) -> HandlerResult<Option<(Path, Option<String>)>> {
    let [of, name, id] = std::mem::take(&mut draft.parent);
    let [snapshot, snapshot_id] = std::mem::take(&mut draft.snapshot);
    let of = of.unwrap_or_else(|| svm.to_owned());
    let wanted = draft.is_clone;
    if name.is_none() && id.is_none() {
        return match wanted {
            Some(true) => Err(Refusal::required("clone.parent_volume.name")),
            _ => Ok(None),
        };
    }
    if wanted == Some(false) {
        return Err(Refusal::value(
            "clone.is_flexclone",
            "false",
            "a clone has a parent",
        ));
    }
    let all = a.cluster.volumes();
    let meant = |v: &&Volume| {
        let named = name
            .as_ref()
            .is_none_or(|name| v.path.volume == *name && v.path.vserver == of);
        named && id.as_ref().is_none_or(|id| v.uuid == *id)
    };
    let parent = all.iter().find(meant).ok_or_else(Refusal::no_entry)?;
    let snapshot = match (snapshot, snapshot_id) {
        (None, Some(id)) => {
            let all = a.cluster.snapshots(Some(&parent.path));
            let found = all.into_iter().find(|s| s.uuid == id);
            Some(found.ok_or_else(Refusal::no_entry)?.name)
        }
        (snapshot, _) => snapshot,
    };
    Ok(Some((parent.path.clone(), snapshot)))
}

/// Handles POST of a volume, or of a clone.
pub fn create(a: &CallContext<'_>) -> HandlerResult<Reply> {
    a.only(&["sizing_method"])?;
    let mut fields = Fields::read(&a.call.body)?;
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, Way::Create, &mut draft, None)?;
    let required =
        |field: &Option<String>, name: &str| field.clone().ok_or_else(|| Refusal::required(name));
    let name = required(&draft.name, "name")?;
    let svm = required(&draft.svm, "svm.name")?;
    let parent = parent(a, &svm, &mut draft)?;
    let mut settings = draft.settings;
    // ONTAP's own words for a volume of whatever QoS.
    settings.qos_policy = settings.qos_policy.filter(|name| !name.is_empty());
    let path = Path::parse(&format!("{svm}:{name}"));
    let path = path.ok_or_else(|| Refusal::value("name", &name, "volume name"))?;
    let change = match parent {
        Some((parent, snapshot)) => Change::VolumeClone {
            path: path.clone(),
            parent,
            snapshot,
            settings,
        },
        None => {
            let size = settings.size.ok_or_else(|| Refusal::required("size"))?;
            Change::VolumeCreate {
                path: path.clone(),
                size,
                protection: draft.protection,
                settings,
            }
        }
    };
    a.cluster.change(change).map_err(Refusal::from_failure)?;
    if draft.split == Some(true) {
        let split = Change::VolumeSplit(path.clone());
        a.cluster.change(split).map_err(Refusal::from_failure)?;
    }
    let made = a.cluster.volumes().into_iter().find(|v| v.path == path);
    resource::made(a, &TABLE, made.map(|v| volume::new(v, a.cluster)))
}

/// Handles PATCH of a volume: settings, its name, a split, a restore.
pub fn change(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    const RESTORE: &[&str] = &[
        "restore_to.snapshot.name",
        "restore_to.snapshot.uuid",
        "sizing_method",
    ];
    a.only(RESTORE)?;
    let v = find(a, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let mut restore: [Option<String>; 2] = [None, None];
    for (name, to) in RESTORE.iter().zip(&mut restore) {
        let queried = a.parameter(name).map(str::to_owned);
        *to = fields.text(name)?.or(queried);
    }
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, Way::Modify, &mut draft, None)?;
    let new_name = draft.name.filter(|name| *name != v.path.volume);
    let refuse = |failure| Refusal::of_volume(failure);
    if let [Some(_), _] | [_, Some(_)] = &restore {
        let all = a.cluster.snapshots(Some(&v.path));
        let [name, uuid] = &restore;
        let meant = |s: &&Snapshot| {
            name.as_ref().is_none_or(|name| s.name == *name)
                && uuid.as_ref().is_none_or(|uuid| s.uuid == *uuid)
        };
        let snapshot = all.iter().find(meant).ok_or_else(Refusal::no_snapshot)?;
        let change = Change::SnapshotRestore {
            path: v.path.clone(),
            name: snapshot.name.clone(),
        };
        a.cluster.change(change).map_err(refuse)?;
    }
    if let Some(state) = draft.movement {
        if !matches!(state.as_str(), "aborted" | "abort") {
            return Err(Refusal::value("movement.state", &state, "aborted"));
        }
        let abort = Change::VolumeMoveAbort(v.path.clone());
        a.cluster.change(abort).map_err(refuse)?;
    }
    if draft.settings != Settings::default() {
        let (path, settings) = (v.path.clone(), draft.settings);
        let change = Change::VolumeModify { path, settings };
        a.cluster.change(change).map_err(refuse)?;
    }
    switch_quotas(a, &v.path, draft.quotas)?;
    match (draft.split, &v.parent) {
        (None | Some(false), _) => {}
        (Some(true), None) => {
            let why = "the volume is no clone, and depends on no other";
            return Err(Refusal::not_here("clone.split_initiated", why));
        }
        (Some(true), Some(_)) => {
            let change = Change::VolumeSplit(v.path.clone());
            a.cluster.change(change).map_err(refuse)?;
        }
    }
    if let Some(to) = new_name {
        let change = Change::VolumeRename { path: v.path, to };
        a.cluster.change(change).map_err(refuse)?;
    }
    a.done(None)
}

/// Handles DELETE of a volume.
pub fn delete(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    a.only(&["force"])?;
    let v = find(a, id)?;
    let change = Change::VolumeDelete(v.path);
    a.cluster.change(change).map_err(Refusal::of_volume)?;
    a.done(None)
}
