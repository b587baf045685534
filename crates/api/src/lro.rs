//! Long-running operations (AIP-151): how a mutation is answered.
//!
//! Every mutation answers with an operation. Most have ended by then and say so at once, with the resource in the
//! response: clients poll in steps of up to ten seconds, and each step that is saved is time that people wait.

use crate::error::ApiError;
use crate::fields::Made;
use crate::json::{EnumsAs, Object, encode};
use crate::schema::{Field, Kind, Message, filestore as fs, netapp as na};
use crate::{filestore, netapp};
use serde_json::{Value, json};
use std::net::SocketAddr;
use weir_control::{Operation, Outcome, Resource, SnapshotOf, Surface, View};

/// `google.longrunning.Operation`, as far as lists are filtered by it.
pub static OPERATION: Message = Message {
    name: "google.longrunning.Operation",
    fields: &[
        output("name", Kind::String),
        output("metadata", Kind::Any),
        output("done", Kind::Bool),
        output("error", Kind::Any),
        output("response", Kind::Any),
    ],
};

const fn output(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        repeated: false,
        output_only: true,
        one_of: None,
    }
}

/// The domain of a surface's errors.
pub fn domain(surface: Surface) -> &'static str {
    match surface {
        Surface::Netapp => "netapp.googleapis.com",
        Surface::Filestore => "file.googleapis.com",
    }
}

/// An operation on the wire. `view` is where its target is looked up.
pub fn operation(view: &View, op: &Operation, enums: EnumsAs, nfs: SocketAddr) -> Object {
    let metadata_type = match op.surface {
        Surface::Netapp => "type.googleapis.com/google.cloud.netapp.v1.OperationMetadata",
        Surface::Filestore => "type.googleapis.com/google.cloud.common.OperationMetadata",
    };
    let mut metadata = Made::default();
    metadata
        .set("@type", metadata_type)
        .set("createTime", op.created.rfc3339())
        .set("endTime", op.ended.map(|e| e.rfc3339()))
        .set("target", op.target.to_string())
        .set("verb", &*op.verb)
        .set("apiVersion", "v1");
    let metadata = metadata.all();
    let mut out = Object::new();
    out.insert("name".to_owned(), Value::String(op.full_name()));
    match &op.outcome {
        None => {}
        Some(Outcome::Failed(refusal)) => {
            let number = refusal.status.grpc();
            let mut e = ApiError::refused(refusal.clone());
            e.domain = domain(op.surface);
            out.insert(
                "error".to_owned(),
                json!({"code": number, "message": e.message, "details": e.details()}),
            );
        }
        Some(Outcome::Deleted) => {
            out.insert("response".to_owned(), empty());
        }
        Some(Outcome::Done) => {
            // Somebody may have deleted it since; then there is nothing left to show.
            let response = view
                .resource(&op.target)
                .map_or_else(empty, |r| response(view, &r, enums, nfs));
            out.insert("response".to_owned(), response);
        }
    }
    out.insert("done".to_owned(), Value::Bool(op.done()));
    out.insert("metadata".to_owned(), Value::Object(metadata));
    out
}

fn empty() -> Value {
    json!({"@type": "type.googleapis.com/google.protobuf.Empty"})
}

fn response(view: &View, r: &Resource, enums: EnumsAs, nfs: SocketAddr) -> Value {
    let (message, object) = match r {
        Resource::Pool(p) => (&na::STORAGE_POOL, netapp::pool(view, p)),
        Resource::Volume(v) => (&na::VOLUME, netapp::volume(view, v, None, nfs)),
        Resource::Instance(i) => (&fs::INSTANCE, filestore::instance(view, i, nfs.ip())),
        Resource::Snapshot(s) => match s.name.of {
            SnapshotOf::Volume => (&na::SNAPSHOT, netapp::snapshot(s, None)),
            SnapshotOf::Instance => (&fs::SNAPSHOT, filestore::snapshot(s, None)),
        },
    };
    let mut v = encode(message, &object, enums);
    if let Some(o) = v.as_object_mut() {
        let t = format!("type.googleapis.com/{}", message.name);
        o.insert("@type".to_owned(), Value::String(t));
    }
    v
}
