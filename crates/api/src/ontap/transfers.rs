//! `snapmirror/relationships/{uuid}/transfers`: the running one, and the last.

use serde_json::{Value, json};
use weir_ontap::Failure;
use weir_relations::manager::Verb;
use weir_relations::model::{FileRestore, MirrorState, Relationship};

use super::body::Fields;
use super::listing::Listing;
use super::refusal::{Answered, Refusal};
use super::relationships::find;
use super::surface::{Asked, Reply, itself, time};
use weir_ontap::fields::relationship::{TABLE, ended, ratio, running};
use weir_ontap::value::iso_duration as duration;

const KNOWN: &[&str] = &[
    "uuid",
    "state",
    "type",
    "snapshot",
    "relationship.uuid",
    "relationship.destination.path",
    "relationship.restore",
    "bytes_transferred",
    "wire_bytes_transferred",
    "total_bytes",
    "checkpoint_size",
    "throttle",
    "rate",
    "limited_by",
    "time_left",
    "last_updated_time",
    "end_time",
    "total_duration",
    "phases.setup_ms",
    "phases.data_ms",
    "phases.finalize_ms",
    "network_compression_ratio",
    "error_info.message",
    "error_info.code",
];

fn place(r: &Relationship, transfer: &str) -> String {
    format!("/api/{}/{}/transfers/{transfer}", TABLE.path, r.uuid)
}

/// Returns the transfers of a relationship. What ONTAP has no field for (the rate, the limit that
/// binds, wire bytes, phases) is in fields of our own beside its.
fn records(r: &Relationship) -> Vec<Value> {
    let of = json!({"uuid": r.uuid, "destination": {"path": r.destination.to_string()}, "restore": false});
    let now = r.transfer.as_ref().map(|t| {
        json!({
            "_links": itself(&place(r, &t.uuid)),
            "uuid": t.uuid,
            "relationship": of,
            "state": running(r.status),
            "type": t.kind.word(),
            "snapshot": t.snapshot,
            "bytes_transferred": t.bytes,
            "wire_bytes_transferred": t.wire_bytes,
            "total_bytes": t.total,
            "checkpoint_size": t.checkpoint,
            "throttle": t.throttle.unwrap_or(0),
            "rate": t.rate,
            "limited_by": t.bound_by,
            "time_left": t.time_left().map(duration),
            "last_updated_time": time(t.updated),
            "total_duration": duration(u64::try_from(t.updated - t.started).unwrap_or(0)),
            "network_compression_ratio": ratio(t.bytes, t.wire_bytes),
        })
    });
    let last = r.last.as_ref().map(|l| {
        json!({
            "_links": itself(&place(r, &l.uuid)),
            "uuid": l.uuid,
            "relationship": of,
            "state": ended(l.error.as_deref()),
            "type": l.kind.word(),
            "snapshot": l.snapshot,
            "bytes_transferred": l.bytes,
            "wire_bytes_transferred": l.wire_bytes,
            "rate": l.rate,
            "end_time": time(l.end),
            "total_duration": duration(l.duration_ms / 1000),
            "phases": {"setup_ms": l.setup_ms, "data_ms": l.data_ms, "finalize_ms": l.finalize_ms},
            "network_compression_ratio": ratio(l.bytes, l.wire_bytes),
            "error_info": l.error.as_ref().map(|e| json!({"message": e, "code": 13_303_844})),
        })
    });
    let mut all: Vec<Value> = now.into_iter().chain(last).collect();
    for record in &mut all {
        if let Some(fields) = record.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
    }
    all
}

/// Handles GET of a relationship's transfers; with `transfer`, of one.
pub fn list(a: &Asked<'_>, id: &str, transfer: Option<&str>) -> Answered<Reply> {
    let listing = Listing::parse(&a.call.query, KNOWN)?;
    let waiting = a.surface.restores().iter().any(|r| r.uuid == id);
    let all = match waiting {
        true => Vec::new(),
        false => records(&find(a, id)?),
    };
    let Some(wanted) = transfer else {
        return Ok(listing.reply(&a.here(), &["uuid"], &["uuid"], all));
    };
    let one = all
        .into_iter()
        .find(|t| t.get("uuid").is_some_and(|u| u == wanted));
    Ok(listing.one(&["uuid"], one.ok_or_else(Refusal::no_entry)?))
}

/// Returns `files`: paths, with where they are to go in the volume, if that is elsewhere.
fn files(fields: &mut Fields) -> Answered<Vec<FileRestore>> {
    let wrong = |v: &Value| Refusal::value("files", &v.to_string(), "a list of source_path");
    let list = match fields.take("files") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(&other)),
    };
    let path = |file: &Value| {
        let source = file.get("source_path")?.as_str()?;
        let destination = match file.get("destination_path") {
            None => source,
            Some(destination) => destination.as_str()?,
        };
        Some(FileRestore {
            source: source.to_owned(),
            destination: destination.to_owned(),
        })
    };
    list.iter()
        .map(|f| path(f).ok_or_else(|| wrong(f)))
        .collect()
}

/// Handles POST: initialize, update, or the restore that was announced.
pub fn create(a: &Asked<'_>, id: &str) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let throttle = fields.throttle("throttle")?;
    let source_snapshot = fields.text("source_snapshot")?;
    let files = files(&mut fields)?;
    // Nothing is deduplicated or compressed at rest, so there is nothing that could be lost on the
    // way.
    fields.ignore(&["storage_efficiency_enabled"]);
    fields.done()?;
    let waiting = a.surface.restores().into_iter().find(|r| r.uuid == id);
    let (change, verb, destination) = match waiting {
        Some(r) => {
            let change = Verb::Restore {
                source: r.source,
                destination: r.destination.clone(),
                source_snapshot,
                throttle: throttle.flatten(),
                files,
            };
            (change, "restore", r.destination)
        }
        None if !files.is_empty() => {
            let why = "files are for relationships made with restore";
            return Err(Refusal::not_here("files", why));
        }
        None => {
            let r = find(a, id)?;
            let destination = r.destination.clone();
            match r.state {
                MirrorState::Uninitialized => {
                    let change = Verb::Initialize {
                        destination: r.destination,
                        source_snapshot,
                        throttle,
                    };
                    (change, "initialize", destination)
                }
                _ => {
                    let change = Verb::Update {
                        destination: r.destination,
                        source_snapshot,
                        throttle,
                    };
                    (change, "update", destination)
                }
            }
        }
    };
    let refuse = |failure: Failure| Refusal::of_relationship(failure, verb);
    a.cluster.change(change.into()).map_err(refuse)?;
    a.surface
        .with(|held| held.restores.retain(|r| r.uuid != id));
    let r = a.cluster.relationship(&destination);
    let r = r.ok_or_else(Refusal::no_entry)?;
    let record = records(&r).into_iter().next();
    let made = record.map(|record| {
        let id = record
            .get("uuid")
            .and_then(Value::as_str)
            .unwrap_or_default();
        (place(&r, id), record.clone())
    });
    a.done(made)
}

/// Handles PATCH: `state: aborted` or `hard_aborted` ends a transfer.
pub fn change(a: &Asked<'_>, id: &str, transfer: &str) -> Answered<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let wish = fields
        .text("state")?
        .ok_or_else(|| Refusal::required("state"))?;
    fields.done()?;
    let hard = match wish.as_str() {
        "aborted" => false,
        "hard_aborted" => true,
        other => return Err(Refusal::value("state", other, "aborted, hard_aborted")),
    };
    let r = find(a, id)?;
    if r.transfer.as_ref().is_none_or(|t| t.uuid != transfer) {
        return Err(Refusal::no_entry());
    }
    let change = Verb::Abort {
        destination: r.destination,
        hard,
    };
    let done = a.cluster.change(change.into());
    done.map_err(|failure| Refusal::of_relationship(failure, "update"))?;
    a.done(None)
}
