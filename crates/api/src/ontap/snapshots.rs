//! Snapshots of volumes.

use serde_json::{Value, json};
use weir_ontap::cluster::Volume;
use weir_ontap::{Change, Snapshot};

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::surface::{Asked, Reply, itself, time};
use super::svms::svm;
use super::volumes::{find, link};
use weir_ontap::value::identity as uuid;

const SNAPSHOTS: &[&str] = &[
    "uuid",
    "name",
    "svm.name",
    "svm.uuid",
    "volume.name",
    "volume.uuid",
    "create_time",
    "comment",
    "snapmirror_label",
    "size",
    "state",
    "expiry_time",
    "snaplock.expiry_time",
    "snaplock.expired",
    "snaplock_expiry_time",
    "logical_size",
    "version_uuid",
    "owners",
    "provenance_volume.uuid",
];

fn snapshot_link(v: &Volume, s: &Snapshot) -> String {
    format!("{}/snapshots/{}", link(v), s.uuid)
}

fn snapshot(v: &Volume, s: &Snapshot) -> Value {
    let mut out = json!({
        "_links": itself(&snapshot_link(v, s)),
        "uuid": s.uuid,
        "name": s.name,
        "svm": svm(&v.path.vserver),
        "volume": {"name": v.path.volume, "uuid": v.uuid},
        "create_time": time(s.created),
        "size": s.size,
        "state": "valid",
    });
    if let Some(out) = out.as_object_mut() {
        if let Some(label) = &s.label {
            out.insert("snapmirror_label".to_owned(), json!(label));
        }
        if !s.comment.is_empty() {
            out.insert("comment".to_owned(), json!(s.comment));
        }
    }
    out
}

fn find_snapshot(a: &Asked<'_>, v: &Volume, id: &str) -> Answered<Snapshot> {
    let mut all = a.cluster.snapshots(Some(&v.path)).into_iter();
    all.find(|s| s.uuid == id).ok_or_else(Refusal::no_entry)
}

/// Handles GET of a volume's snapshots.
pub fn list(a: &Asked<'_>, of: &str, id: Option<&str>) -> Answered<Reply> {
    const KEYS: &[&str] = &["uuid", "name"];
    let listing = Listing::parse(&a.call.query, SNAPSHOTS)?;
    let v = find(a, of)?;
    if let Some(id) = id {
        return Ok(listing.one(KEYS, snapshot(&v, &find_snapshot(a, &v, id)?)));
    }
    let all = a.cluster.snapshots(Some(&v.path));
    let all = all.iter().map(|s| snapshot(&v, s));
    Ok(listing.reply(&a.here(), KEYS, &["create_time", "name"], all.collect()))
}

/// Checks what a body says of the volume that its path names.
fn own_volume(v: &Volume, fields: &mut Fields) -> Answered<()> {
    let svm_id = uuid("svm", &v.path.vserver);
    fields.fixed(&[
        ("svm.name", &v.path.vserver),
        ("svm.uuid", &svm_id),
        ("volume.name", &v.path.volume),
        ("volume.uuid", &v.uuid),
    ])
}

/// Handles POST of a snapshot.
pub fn create(a: &Asked<'_>, of: &str) -> Answered<Reply> {
    a.only(&[])?;
    let v = find(a, of)?;
    let mut fields = Fields::read(&a.call.body)?;
    let name = fields
        .text("name")?
        .ok_or_else(|| Refusal::required("name"))?;
    let label = fields.text("snapmirror_label")?;
    let comment = fields.text("comment")?.unwrap_or_default();
    own_volume(&v, &mut fields)?;
    fields.done_of(SNAPSHOTS)?;
    let change = Change::SnapshotCreate {
        path: v.path.clone(),
        name: name.clone(),
        label: label.filter(|label| !matches!(label.as_str(), "" | "-")),
        comment,
    };
    a.cluster.change(change).map_err(Refusal::of_volume)?;
    let made = a.cluster.snapshots(Some(&v.path));
    let made = made.into_iter().find(|s| s.name == name);
    a.done(made.map(|s| (snapshot_link(&v, &s), snapshot(&v, &s))))
}

/// Handles PATCH of a snapshot: its name, its label, its comment.
pub fn change(a: &Asked<'_>, of: &str, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let v = find(a, of)?;
    let s = find_snapshot(a, &v, id)?;
    let mut fields = Fields::read(&a.call.body)?;
    let new_name = fields.text("name")?.filter(|name| *name != s.name);
    let label = match fields.take("snapmirror_label") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(Value::String(text)) => {
            Some(Some(text).filter(|label| !matches!(label.as_str(), "" | "-")))
        }
        Some(other) => {
            return Err(Refusal::value(
                "snapmirror_label",
                &other.to_string(),
                "string",
            ));
        }
    };
    let comment = fields.text("comment")?;
    own_volume(&v, &mut fields)?;
    fields.done_of(SNAPSHOTS)?;
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
pub fn delete(a: &Asked<'_>, of: &str, id: &str) -> Answered<Reply> {
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
