//! Snapshots of volumes.

use weir_ontap::cluster::Volume;
use weir_ontap::fields::Way;
use weir_ontap::fields::snapshot::{Draft, TABLE, like, of_volume};
use weir_ontap::{Change, Snapshot};

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::resource;
use super::surface::{CallContext, Reply};
use super::volumes::find;

fn find_snapshot(a: &CallContext<'_>, v: &Volume, id: &str) -> HandlerResult<Snapshot> {
    let mut all = a.cluster.snapshots(Some(&v.path)).into_iter();
    all.find(|s| s.uuid == id).ok_or_else(Refusal::no_entry)
}

/// Handles GET of a volume's snapshots, or of the one whose path it is.
pub fn list(a: &CallContext<'_>, of: &str, one: bool) -> HandlerResult<Reply> {
    let v = find(a, of)?;
    resource::get(a, &TABLE, one, |_| of_volume(a.cluster, &v))
}

/// Returns what the body sets of a snapshot of this volume.
fn draft(a: &CallContext<'_>, v: &Volume, way: Way) -> HandlerResult<Draft> {
    let mut draft = Draft::default();
    let mut fields = Fields::read(&a.call.body)?;
    resource::read(a, &TABLE, &mut fields, way, &mut draft, Some(&like(v)))?;
    Ok(draft)
}

/// Handles POST of a snapshot.
pub fn create(a: &CallContext<'_>, of: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let v = find(a, of)?;
    let draft = draft(a, &v, Way::Create)?;
    let name = draft.name.ok_or_else(|| Refusal::required("name"))?;
    let change = Change::SnapshotCreate {
        path: v.path.clone(),
        name: name.clone(),
        label: draft.label.flatten(),
        comment: draft.comment.unwrap_or_default(),
    };
    a.cluster.change(change).map_err(Refusal::of_volume)?;
    let mut all = of_volume(a.cluster, &v).into_iter();
    resource::made(a, &TABLE, all.find(|s| s.name == name))
}

/// Handles PATCH of a snapshot: its name, its label, its comment.
pub fn change(a: &CallContext<'_>, of: &str, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let v = find(a, of)?;
    let s = find_snapshot(a, &v, id)?;
    let draft = draft(a, &v, Way::Modify)?;
    let new_name = draft.name.filter(|name| *name != s.name);
    let (label, comment) = (draft.label, draft.comment);
    if label.is_some() || comment.is_some() {
        let change = Change::SnapshotModify {
            path: v.path.clone(),
            name: s.name.clone(),
            label,
            comment,
        };
        a.cluster.change(change).map_err(Refusal::of_volume)?;
    }
    if let Some(new_name) = new_name {
        let change = Change::SnapshotRename {
            path: v.path,
            name: s.name,
            new_name,
        };
        a.cluster.change(change).map_err(Refusal::of_volume)?;
    }
    a.done(None)
}

/// Handles DELETE of a snapshot. ONTAP finds in the job that something stands on it: clients wait
/// for the job, read its code, and split the clones.
pub fn delete(a: &CallContext<'_>, of: &str, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let v = find(a, of)?;
    let s = find_snapshot(a, &v, id)?;
    let change = Change::SnapshotDelete {
        path: v.path,
        name: s.name,
    };
    match a
        .cluster
        .change(change)
        .map_err(Refusal::of_snapshot_deletion)
    {
        Ok(()) => a.done(None),
        Err((refusal, true)) => a.failed(refusal),
        Err((refusal, false)) => Err(refusal),
    }
}
