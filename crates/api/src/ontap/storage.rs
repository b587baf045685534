//! Volumes, their snapshots, the machines that they belong to: what relationships are made of.
//!
//! A storage virtual machine is a project that has volumes; an aggregate is a storage pool.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use weir_ontap::cluster::Volume;
use weir_ontap::{Change, Snapshot};
use weir_replica::model::Path;

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::{Asked, Reply, itself, time, uuid};

const VOLUMES: &[&str] = &[
    "uuid",
    "name",
    "svm.name",
    "svm.uuid",
    "type",
    "state",
    "style",
    "size",
    "create_time",
    "comment",
    "aggregates.name",
    "aggregates.uuid",
    "nas.path",
    "space.size",
    "space.used",
    "space.available",
    "clone.is_flexclone",
    "clone.parent_volume.name",
    "clone.parent_snapshot.name",
    "snapmirror.is_protected",
];

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
];

fn svm(name: &str) -> Value {
    json!({"name": name, "uuid": uuid("svm", name)})
}

fn volume_link(v: &Volume) -> String {
    format!("/api/storage/volumes/{}", v.uuid)
}

fn volume(v: &Volume, protected: bool) -> Value {
    let mut out = Map::new();
    let mut set = |name: &str, value: Value| out.insert(name.to_owned(), value);
    set("_links", itself(&volume_link(v)));
    set("uuid", json!(v.uuid));
    set("name", json!(v.path.volume));
    set("svm", svm(&v.path.vserver));
    set("type", json!(if v.protection { "dp" } else { "rw" }));
    set("state", json!("online"));
    set("style", json!("flexvol"));
    set("create_time", time(v.created));
    set(
        "aggregates",
        json!([{"name": v.pool, "uuid": uuid("aggregate", &v.pool)}]),
    );
    let mut space = json!({"used": v.used});
    if let (Some(size), Some(space)) = (v.size, space.as_object_mut()) {
        space.insert("size".to_owned(), json!(size));
        space.insert("available".to_owned(), json!(size.saturating_sub(v.used)));
        set("size", json!(size));
    }
    set("space", space);
    if let Some(junction) = &v.junction {
        set("nas", json!({"path": junction}));
    }
    set(
        "clone",
        match &v.parent {
            None => json!({"is_flexclone": false}),
            Some((path, snapshot)) => json!({
                "is_flexclone": true,
                "parent_volume": {"name": path.volume},
                "parent_snapshot": {"name": snapshot},
            }),
        },
    );
    set("snapmirror", json!({"is_protected": protected}));
    Value::Object(out)
}

fn find(a: &Asked<'_>, id: &str) -> Answered<Volume> {
    let found = a.cluster.volumes().into_iter().find(|v| v.uuid == id);
    found.ok_or_else(Refusal::no_entry)
}

/// GET of volumes; with `id`, of one.
pub fn volumes(a: &Asked<'_>, id: Option<&str>) -> Answered<Reply> {
    const KEYS: &[&str] = &["uuid", "name"];
    let listing = Listing::parse(&a.call.query, VOLUMES)?;
    let sources: BTreeSet<Path> = a
        .cluster
        .destinations()
        .into_iter()
        .map(|r| r.source)
        .collect();
    if let Some(id) = id {
        let v = find(a, id)?;
        return Ok(listing.one(KEYS, volume(&v, sources.contains(&v.path))));
    }
    let all = a.cluster.volumes();
    let all = all.iter().map(|v| volume(v, sources.contains(&v.path)));
    Ok(listing.reply(&a.here(), KEYS, all.collect()))
}

/// POST of a volume.
pub fn create(a: &Asked<'_>) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let name = fields
        .text("name")?
        .ok_or_else(|| Refusal::required("name"))?;
    let svm = fields.text("svm.name")?;
    let svm = svm.ok_or_else(|| Refusal::required("svm.name"))?;
    let size = match fields.number("size")? {
        None => fields.number("space.size")?,
        size => size,
    };
    let size = size.ok_or_else(|| Refusal::required("size"))?;
    let kind = fields.text("type")?.unwrap_or_else(|| "rw".to_owned());
    let protection = match kind.to_ascii_lowercase().as_str() {
        "rw" => false,
        "dp" => true,
        _ => return Err(Refusal::value("type", &kind, "rw, dp")),
    };
    let pool = aggregate(&mut fields)?;
    let junction = fields.text("nas.path")?;
    fields.ignore(&["style", "guarantee.type"]);
    fields.done()?;
    let path = Path::parse(&format!("{svm}:{name}"));
    let path = path.ok_or_else(|| Refusal::value("name", &name, "volume name"))?;
    let change = Change::VolumeCreate {
        path: path.clone(),
        size,
        protection,
        pool,
        junction,
    };
    a.cluster.change(change).map_err(Refusal::of)?;
    let made = a.cluster.volumes().into_iter().find(|v| v.path == path);
    a.done(made.map(|v| (volume_link(&v), volume(&v, false))))
}

/// `aggregates`: a list of one at most.
fn aggregate(fields: &mut Fields) -> Answered<Option<String>> {
    if let Some(name) = fields.text("aggregates.name")? {
        return Ok(Some(name));
    }
    let wrong = |v: &Value| Refusal::value("aggregates", &v.to_string(), "a list of one name");
    match fields.take("aggregates") {
        None | Some(Value::Null) => Ok(None),
        Some(list) => match list.as_array().map(Vec::as_slice) {
            Some([]) => Ok(None),
            Some([one]) => match one.get("name").and_then(Value::as_str) {
                Some(name) => Ok(Some(name.to_owned())),
                None => Err(wrong(&list)),
            },
            _ => Err(wrong(&list)),
        },
    }
}

/// DELETE of a volume.
pub fn delete(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&["force"])?;
    let v = find(a, id)?;
    let change = Change::VolumeDelete(v.path);
    a.cluster.change(change).map_err(Refusal::of)?;
    a.done(None)
}

fn snapshot_link(v: &Volume, s: &Snapshot) -> String {
    format!("{}/snapshots/{}", volume_link(v), s.uuid)
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

/// GET of a volume's snapshots.
pub fn snapshots(a: &Asked<'_>, of: &str, id: Option<&str>) -> Answered<Reply> {
    const KEYS: &[&str] = &["uuid", "name"];
    let listing = Listing::parse(&a.call.query, SNAPSHOTS)?;
    let v = find(a, of)?;
    if let Some(id) = id {
        return Ok(listing.one(KEYS, snapshot(&v, &find_snapshot(a, &v, id)?)));
    }
    let all = a.cluster.snapshots(Some(&v.path));
    let all = all.iter().map(|s| snapshot(&v, s));
    Ok(listing.reply(&a.here(), KEYS, all.collect()))
}

/// POST of a snapshot.
pub fn take_snapshot(a: &Asked<'_>, of: &str) -> Answered<Reply> {
    a.only(&[])?;
    let v = find(a, of)?;
    let mut fields = Fields::read(&a.call.body)?;
    let name = fields
        .text("name")?
        .ok_or_else(|| Refusal::required("name"))?;
    let label = fields.text("snapmirror_label")?;
    let comment = fields.text("comment")?.unwrap_or_default();
    fields.done()?;
    let change = Change::SnapshotCreate {
        path: v.path.clone(),
        name: name.clone(),
        label: label.filter(|label| !matches!(label.as_str(), "" | "-")),
        comment,
    };
    a.cluster.change(change).map_err(Refusal::of)?;
    let made = a.cluster.snapshots(Some(&v.path));
    let made = made.into_iter().find(|s| s.name == name);
    a.done(made.map(|s| (snapshot_link(&v, &s), snapshot(&v, &s))))
}

/// PATCH of a snapshot: its name, its label, its comment.
pub fn change_snapshot(a: &Asked<'_>, of: &str, id: &str) -> Answered<Reply> {
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
    fields.done()?;
    if label.is_some() || comment.is_some() {
        let change = Change::SnapshotModify {
            path: v.path.clone(),
            name: s.name.clone(),
            label,
            comment,
        };
        a.cluster.change(change).map_err(Refusal::of)?;
    }
    if let Some(new_name) = new_name {
        let change = Change::SnapshotRename {
            path: v.path,
            name: s.name,
            new_name,
        };
        a.cluster.change(change).map_err(Refusal::of)?;
    }
    a.done(None)
}

/// DELETE of a snapshot.
pub fn delete_snapshot(a: &Asked<'_>, of: &str, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let v = find(a, of)?;
    let s = find_snapshot(a, &v, id)?;
    let change = Change::SnapshotDelete {
        path: v.path,
        name: s.name,
    };
    a.cluster.change(change).map_err(Refusal::of)?;
    a.done(None)
}

/// GET of the machines.
pub fn svms(a: &Asked<'_>, id: Option<&str>) -> Answered<Reply> {
    let known = ["uuid", "name", "state", "subtype"];
    let listing = Listing::parse(&a.call.query, &known)?;
    let names: BTreeSet<String> = a
        .cluster
        .volumes()
        .into_iter()
        .map(|v| v.path.vserver)
        .collect();
    let record = |name: &String| {
        let id = uuid("svm", name);
        json!({"_links": itself(&format!("/api/svm/svms/{id}")), "uuid": id, "name": name,
               "state": "running", "subtype": "default"})
    };
    if let Some(id) = id {
        let name = names.iter().find(|name| uuid("svm", name) == id);
        return Ok(listing.one(
            &["uuid", "name"],
            record(name.ok_or_else(Refusal::no_entry)?),
        ));
    }
    Ok(listing.reply(
        &a.here(),
        &["uuid", "name"],
        names.iter().map(record).collect(),
    ))
}

/// GET of pairs of machines: relationships need none here, nodes are paired as wholes.
pub fn svm_peers(a: &Asked<'_>) -> Answered<Reply> {
    let known = [
        "uuid",
        "name",
        "svm.name",
        "peer.svm.name",
        "peer.cluster.name",
        "state",
    ];
    let listing = Listing::parse(&a.call.query, &known)?;
    Ok(listing.reply(&a.here(), &["uuid"], Vec::new()))
}

/// GET of the pools.
pub fn aggregates(a: &Asked<'_>) -> Answered<Reply> {
    let known = ["uuid", "name", "state"];
    let listing = Listing::parse(&a.call.query, &known)?;
    let names: BTreeSet<String> = a.cluster.volumes().into_iter().map(|v| v.pool).collect();
    let records = names
        .iter()
        .map(|name| json!({"uuid": uuid("aggregate", name), "name": name, "state": "online"}));
    Ok(listing.reply(&a.here(), &["uuid", "name"], records.collect()))
}
