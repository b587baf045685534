//! Long-running operations (AIP-151): the response to a mutation.
//!
//! Every mutation returns an operation. Most have ended by then and say so at once, with the
//! resource in the response. Clients poll in steps of up to ten seconds, and each step that is
//! saved is time that people wait.

use crate::error::ApiError;
use crate::fields::ResourceBuilder;
use crate::json::{EnumsAs, Object, encode};
use crate::mount::{self, Mounts};
use crate::schema::{Message, filestore as fs, netapp as na};
use crate::{active_directory, backups, filestore, netapp, quota_rules};
use serde_json::{Value, json};
use std::sync::Arc;
use weir_control::{
    Job, Operation, Outcome, Presentation, Render, Resource, Snapshot, Surface, Target, View,
    Volume,
};

/// Returns the domain of a surface's errors.
pub fn domain(surface: Surface) -> &'static str {
    match surface {
        Surface::Netapp => "netapp.googleapis.com",
        Surface::Filestore => "file.googleapis.com",
    }
}

/// Returns the function that keeps the target of an operation as the operation ends
/// ([`weir_control::Render`]). The text has no address: each reader's own is added when the
/// operation is read ([`mount::reach`]).
pub fn render() -> Render {
    Arc::new(|view, target| Some(Value::Object(unaddressed(view, target)?).to_string()))
}

/// Returns an operation on the wire.
pub fn operation(op: &Operation, enums: EnumsAs, at: Mounts) -> Object {
    let metadata_type = match op.surface() {
        Surface::Netapp => "type.googleapis.com/google.cloud.netapp.v1.OperationMetadata",
        Surface::Filestore => "type.googleapis.com/google.cloud.common.OperationMetadata",
    };
    let mut metadata = ResourceBuilder::default();
    metadata
        .set("@type", metadata_type)
        .set("createTime", op.created.rfc3339())
        .set("endTime", op.ended.map(|e| e.rfc3339()))
        .set("target", op.target().to_string())
        .set("verb", op.verb())
        .set("apiVersion", "v1");
    if !op.warnings.is_empty() {
        // The public definition has this field for text: clients that do not know Weir show it.
        let field = match op.surface() {
            Surface::Netapp => "statusMessage",
            Surface::Filestore => "statusDetail",
        };
        let warnings = op.warnings.iter().map(|why| format!("Warning: {why}"));
        metadata.set(field, warnings.collect::<Vec<_>>().join("\n"));
    }
    let metadata = metadata.into_object();
    let mut out = Object::new();
    out.insert("name".to_owned(), Value::String(op.full_name()));
    match &op.outcome {
        None => {}
        Some(Outcome::Failed(refusal)) => {
            let mut e = ApiError::refused(refusal.clone());
            let number = e.status.grpc();
            e.domain = domain(op.surface());
            out.insert(
                "error".to_owned(),
                json!({"code": number, "message": e.message, "details": e.details()}),
            );
        }
        Some(Outcome::Deleted) => {
            out.insert("response".to_owned(), empty());
        }
        Some(Outcome::Done) => {
            // There is none for what went away in the moment in which the operation ended.
            let kept = op.response.as_deref().filter(|_| !restores_files(op));
            let kept = kept.and_then(|text| serde_json::from_str::<Object>(text).ok());
            let nothing = || match restores_files(op) {
                true => typed(&na::RESTORE_BACKUP_FILES_RESPONSE, json!({})),
                false => empty(),
            };
            let response =
                kept.map_or_else(nothing, |kept| response(&op.target(), kept, enums, at));
            out.insert("response".to_owned(), response);
        }
    }
    out.insert("done".to_owned(), Value::Bool(op.done()));
    out.insert("metadata".to_owned(), Value::Object(metadata));
    out
}

/// Returns true for an operation whose response is no resource.
fn restores_files(op: &Operation) -> bool {
    matches!(op.job, Job::RestoreFiles { .. })
}

fn empty() -> Value {
    json!({"@type": "type.googleapis.com/google.protobuf.Empty"})
}

/// Returns a resource in normal form, as it is intended, without figures that only the node knows.
/// `at` is where its reader mounts from. `None`: it does not exist, or is not in the catalog.
pub fn render_target(view: &View, target: &Target, at: Mounts) -> Option<Object> {
    let mut object = unaddressed(view, target)?;
    mount::reach(&mut object, at);
    Some(object)
}

fn unaddressed(view: &View, target: &Target) -> Option<Object> {
    Some(match view.resource(target)? {
        Resource::Pool(p) => netapp::pool(view, &p),
        Resource::ActiveDirectory(a) => active_directory::render_directory(&a),
        Resource::BackupVault(v) => backups::vault(&v),
        Resource::Backup(b) => match b.name.surface() {
            Surface::Netapp => backups::backup(&b),
            Surface::Filestore => filestore::backup(&b),
        },
        Resource::BackupPolicy(p) => backups::policy(view, &p),
        Resource::Volume(v) => unaddressed_volume(view, &v, None),
        Resource::Snapshot(s) => snapshot(&s, None),
        Resource::QuotaRule(name, rule) => quota_rules::render_rule(&name, &rule),
    })
}

/// Returns a volume in its surface's normal form. `used` is in bytes.
pub fn volume(view: &View, v: &Volume, used: Option<u64>, at: Mounts) -> Object {
    let mut object = unaddressed_volume(view, v, used);
    mount::reach(&mut object, at);
    object
}

fn unaddressed_volume(view: &View, v: &Volume, used: Option<u64>) -> Object {
    match &v.presentation {
        Presentation::Netapp(pooled) => netapp::volume(view, v, pooled, used),
        Presentation::Filestore(tiered) => filestore::instance(view, v, tiered),
    }
}

/// Returns a snapshot in its surface's normal form. `used` is in bytes.
pub fn snapshot(s: &Snapshot, used: Option<u64>) -> Object {
    match s.name.parent.surface {
        Surface::Netapp => netapp::snapshot(s, used),
        Surface::Filestore => filestore::snapshot(s, used),
    }
}

/// Returns the message that describes a target on the wire.
pub fn message(target: &Target) -> &'static Message {
    let either = |netapp, filestore, surface: Surface| match surface {
        Surface::Netapp => netapp,
        Surface::Filestore => filestore,
    };
    match target {
        Target::Pool(_) => &na::STORAGE_POOL,
        Target::ActiveDirectory(_) => &na::ACTIVE_DIRECTORY,
        Target::BackupVault(_) => &na::BACKUP_VAULT,
        Target::Backup(b) => either(&na::BACKUP, &fs::BACKUP, b.surface()),
        Target::BackupPolicy(_) => &na::BACKUP_POLICY,
        Target::Volume(v) => either(&na::VOLUME, &fs::INSTANCE, v.surface),
        Target::Replication(_) | Target::Relation(_) => &na::REPLICATION,
        Target::Snapshot(s) => either(&na::SNAPSHOT, &fs::SNAPSHOT, s.parent.surface),
        Target::QuotaRule(_) => &na::QUOTA_RULE,
    }
}

fn response(target: &Target, mut kept: Object, enums: EnumsAs, at: Mounts) -> Value {
    mount::reach(&mut kept, at);
    let message = message(target);
    typed(message, encode(message, &kept, enums))
}

fn typed(message: &Message, mut v: Value) -> Value {
    if let Some(o) = v.as_object_mut() {
        let t = format!("type.googleapis.com/{}", message.name);
        o.insert("@type".to_owned(), Value::String(t));
    }
    v
}
