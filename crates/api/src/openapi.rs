//! The APIs' OpenAPI documents, made from the tables that requests are served by.
//!
//! Written straight as JSON: the tables are already data, so a library that derives documents from
//! types would need them twice. A document that is out of date cannot be: a test compares what is
//! committed with what this makes.

mod own;

use crate::route::{
    Action, Api, Kind as Resource, ROUTES, ReplicationMethod as Asked, Route, VALIDATE_ONLY, Verb,
};
use crate::schema::{Enum, Field, Kind, Message, filestore, netapp, own as messages};
use own::reference;
use serde_json::{Map, Value, json};

/// Returns one API's document, as text that ends with a newline.
pub fn document(api: Api) -> String {
    let (title, about) = match api {
        Api::Filestore => (
            "Filestore",
            "Weir's implementation of the public Filestore API, version 1.",
        ),
        Api::Own => (
            "Weir",
            "Weir's own paths, beside the public APIs: live data, conditions, files in snapshots, tokens, the audit log.",
        ),
        Api::Netapp | Api::Both => (
            "NetApp Volumes",
            "Weir's implementation of the public NetApp Volumes API, version 1.",
        ),
    };
    let mut schemas = Map::new();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let common = route.api == Api::Both && api != Api::Own;
        if route.api == api || common {
            let (path, parameters) = template(route);
            let entry = paths.entry(path).or_insert_with(|| json!({}));
            if let Some(methods) = entry.as_object_mut() {
                methods.insert(
                    method(route.verb).to_owned(),
                    operation(route, parameters, &mut schemas),
                );
            }
        }
    }
    add_common(&mut schemas);
    if api == Api::Own {
        own::add(&mut schemas);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": "v1",
            "description": about,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    });
    // Serializing a value whose keys are strings cannot fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn method(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Post => "post",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
    }
}

/// Returns `/v1/projects/{project}/locations/{location}/…` and its parameters.
fn template(route: &Route) -> (String, Vec<Value>) {
    let mut path = "/v1".to_owned();
    let mut parameters = Vec::new();
    let mut collection = "";
    for p in route.path.split('/') {
        path.push('/');
        match p.strip_prefix('*') {
            None => {
                path.push_str(p);
                collection = p;
            }
            Some(verb) => {
                let name = singular(collection);
                let verb = if verb == "*" { "" } else { verb };
                path.push_str(&format!("{{{name}}}{verb}"));
                parameters.push(json!({
                    "name": name, "in": "path", "required": true, "schema": {"type": "string"},
                }));
            }
        }
    }
    (path, parameters)
}

fn singular(collection: &str) -> String {
    match collection.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => collection.strip_suffix('s').unwrap_or("path").to_owned(),
    }
}

fn operation(route: &Route, mut parameters: Vec<Value>, schemas: &mut Map<String, Value>) -> Value {
    for name in route.parameters() {
        let kind = match *name {
            "pageSize" => "integer",
            "force" | "returnPartialSuccess" | VALIDATE_ONLY => "boolean",
            _ => "string",
        };
        let required = name.ends_with("Id");
        parameters.push(json!({
            "name": name, "in": "query", "required": required, "schema": {"type": kind},
        }));
    }
    let (summary, body, answer) = about(route, schemas);
    let mut out = json!({
        "operationId": operation_id(route),
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "content": {own::content_type(route.action): {"schema": answer}}},
            "default": {
                "description": "Refused or failed",
                "content": {"application/json": {"schema": reference("Error")}},
            },
        },
    });
    if let (Some(body), Some(o)) = (body, out.as_object_mut()) {
        o.insert(
            "requestBody".to_owned(),
            json!({"content": {"application/json": {"schema": body}}}),
        );
    }
    out
}

/// Returns a name that no other operation of the document has, such as `volumes.get` or
/// `volumes.snapshots.create`: the collections of the path, and what is done.
fn operation_id(route: &Route) -> String {
    let path = route.path.strip_prefix("projects/*/").unwrap_or(route.path);
    let path = path.strip_prefix("locations/*/").unwrap_or(path);
    let (path, custom) = match path.split_once(':') {
        Some((path, custom)) => (path, Some(custom)),
        None => (path, None),
    };
    let collections: Vec<&str> = path.split('/').filter(|p| !p.starts_with('*')).collect();
    let one = path.ends_with('*');
    let only = matches!(
        route.action,
        Action::Live
            | Action::History
            | Action::Latency
            | Action::Conditions
            | Action::Headline
            | Action::Pair
            | Action::Server
    );
    let done = match (route.verb, custom) {
        (_, Some(custom)) => custom,
        (Verb::Get, None) if one || only => "get",
        (Verb::Get, None) => "list",
        (Verb::Post, None) if one => "post",
        (Verb::Post, None) => "create",
        (Verb::Patch, None) => "update",
        (Verb::Delete, None) => "delete",
    };
    format!("{}.{done}", collections.join("."))
}

/// Returns the same as [`about`] for an action of Weir's own.
fn about_own(
    action: Action,
    schemas: &mut Map<String, Value>,
) -> Option<(String, Option<Value>, Value)> {
    let (summary, reply) = own::about(action)?;
    let body = match action {
        Action::CreateToken => Some(message(&messages::TOKEN, schemas)),
        Action::RestoreFile(_) => Some(message(&messages::RESTORE_FILE_REQUEST, schemas)),
        Action::SwitchPair => Some(message(&messages::SWITCH_PAIR_REQUEST, schemas)),
        _ => None,
    };
    Some((summary.to_owned(), body, reference(reply)))
}

/// Returns the words for one resource of a kind.
fn words(kind: Resource) -> &'static str {
    match kind {
        Resource::Pool => "a storage pool",
        Resource::Volume => "a volume",
        Resource::Instance => "an instance",
        Resource::VolumeSnapshot | Resource::InstanceSnapshot => "a snapshot",
        Resource::QuotaRule => "a quota rule",
        Resource::ActiveDirectory => "an Active Directory",
        Resource::BackupVault => "a backup vault",
        Resource::Backup | Resource::InstanceBackup => "a backup",
        Resource::BackupPolicy => "a backup policy",
    }
}

/// Describes a custom method of volumes, and returns its request.
fn custom(action: Action) -> (&'static str, &'static Message) {
    match action {
        Action::RestoreBackupFiles => (
            "Copies files of a backup into a volume",
            &netapp::RESTORE_BACKUP_FILES_REQUEST,
        ),
        _ => (
            "Copies what a clone shares with the volume that it was made from",
            &netapp::START_SPLIT_REQUEST,
        ),
    }
}

/// Returns a route's description, its body and its response.
fn about(route: &Route, schemas: &mut Map<String, Value>) -> (String, Option<Value>, Value) {
    if let Some(described) = about_own(route.action, schemas) {
        return described;
    }
    let lro = reference("Operation");
    let none = json!({"type": "object"});
    match route.action {
        Action::List(k) => {
            let item = message(k.message(), schemas);
            (
                format!("Lists {}", k.collection()),
                None,
                list(k.collection(), item),
            )
        }
        Action::Get(k) => (
            format!("Describes {}", words(k)),
            None,
            message(k.message(), schemas),
        ),
        Action::Create(k) => (
            format!("Makes {}", words(k)),
            Some(message(k.message(), schemas)),
            lro,
        ),
        Action::Update(k) => (
            format!("Changes {}", words(k)),
            Some(message(k.message(), schemas)),
            lro,
        ),
        Action::Delete(k) => (format!("Deletes {}", words(k)), None, lro),
        Action::Revert(k) => {
            let body = match k {
                Resource::Instance => &filestore::REVERT_INSTANCE_REQUEST,
                _ => &netapp::REVERT_VOLUME_REQUEST,
            };
            let body = message(body, schemas);
            (
                format!("Makes {} what it was when a snapshot was taken", words(k)),
                Some(body),
                lro,
            )
        }
        Action::StartSplit | Action::RestoreBackupFiles => {
            let (words, body) = custom(route.action);
            (words.to_owned(), Some(message(body, schemas)), lro)
        }
        Action::SplitStatus => (
            "Says how far splitting a clone has come".to_owned(),
            None,
            message(&netapp::SPLIT_STATUS, schemas),
        ),
        Action::Rename(k) => (
            format!("Gives {} another name", words(k)),
            Some(message(&messages::RENAME_SNAPSHOT_REQUEST, schemas)),
            lro,
        ),
        Action::SwitchPool => ("Lets a pool's zones change places".to_owned(), None, lro),
        Action::ListLocations => (
            "Lists locations".to_owned(),
            None,
            list("locations", reference("Location")),
        ),
        Action::GetLocation => (
            "Describes a location".to_owned(),
            None,
            reference("Location"),
        ),
        Action::ListOperations => ("Lists operations".to_owned(), None, list("operations", lro)),
        Action::GetOperation => ("Describes an operation".to_owned(), None, lro),
        Action::DeleteOperation => ("Forgets an operation that has ended".to_owned(), None, none),
        Action::CancelOperation => ("Asks for the end of an operation".to_owned(), None, none),
        Action::ListReplications => {
            let item = message(&netapp::REPLICATION, schemas);
            let answer = list("replications", item);
            ("Lists a volume's replications".to_owned(), None, answer)
        }
        Action::GetReplication => (
            "Describes a replication".to_owned(),
            None,
            message(&netapp::REPLICATION, schemas),
        ),
        Action::CreateReplication => (
            "Makes a replication, and the volume that it copies into".to_owned(),
            Some(message(&netapp::REPLICATION, schemas)),
            lro,
        ),
        Action::UpdateReplication => (
            "Changes a replication".to_owned(),
            Some(message(&netapp::REPLICATION, schemas)),
            lro,
        ),
        Action::DeleteReplication => ("Ends a replication".to_owned(), None, lro),
        Action::Replication(verb) => {
            let (what, body) = match verb {
                Asked::Stop => (
                    "Stops a replication: the copy becomes writable",
                    Some(message(&netapp::STOP_REPLICATION_REQUEST, schemas)),
                ),
                Asked::Resume => ("Makes a stopped replication's copy a copy again", None),
                Asked::Reverse => ("Turns a stopped replication round", None),
                Asked::Sync => ("Copies what has changed, now", None),
                Asked::EstablishPeering => (
                    "Offers pairing to the node of the source",
                    Some(message(&netapp::ESTABLISH_PEERING_REQUEST, schemas)),
                ),
            };
            (what.to_owned(), body, lro)
        }
        Action::Ontap => (
            "Passes through to the pool's ONTAP interface".to_owned(),
            None,
            none,
        ),
        Action::EmptyList(what) => (
            format!("Lists {what}: there are none"),
            None,
            list(what, none),
        ),
        Action::Missing => ("Not found".to_owned(), None, none),
        Action::Unimplemented(what, _) => (format!("{what} is not implemented: 400"), None, none),
        // Its reply is a file; the others are described above.
        _ => (
            own::about_file(route.action).to_owned(),
            None,
            json!({"type": "string", "format": "binary"}),
        ),
    }
}

fn list(collection: &str, item: Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            collection: {"type": "array", "items": item},
            "nextPageToken": {"type": "string"},
            "unreachable": {"type": "array", "items": {"type": "string"}},
        },
    })
}

/// Returns the schema's name, such as `VolumeState` for `google.cloud.netapp.v1.Volume.State`.
fn short(name: &str) -> String {
    name.rsplit_once(".v1.")
        .map_or(name, |(_, s)| s)
        .replace('.', "")
}

/// Describes a message, and all it refers to, and returns the reference to it.
fn message(m: &'static Message, schemas: &mut Map<String, Value>) -> Value {
    let name = short(m.name);
    if !schemas.contains_key(&name) {
        // Before its fields are described: a message may hold itself.
        schemas.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        for f in m.fields {
            properties.insert(f.name.to_owned(), field(f, schemas));
        }
        schemas.insert(
            name.clone(),
            json!({"type": "object", "properties": properties, "additionalProperties": false}),
        );
    }
    reference(&name)
}

fn field(f: &Field, schemas: &mut Map<String, Value>) -> Value {
    let one = match f.kind {
        Kind::String => json!({"type": "string"}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Int32 => json!({"type": "integer", "format": "int32"}),
        Kind::Int64 => json!({"type": ["string", "integer"], "format": "int64"}),
        Kind::Double => json!({"type": "number", "format": "double"}),
        Kind::Timestamp => json!({"type": "string", "format": "date-time"}),
        Kind::Labels => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        Kind::Any => json!({}),
        Kind::Enum(e) => enumeration(e, schemas),
        Kind::Message(m) => message(m, schemas),
    };
    let mut out = if f.repeated {
        json!({"type": "array", "items": one})
    } else {
        one
    };
    if let (true, Some(o)) = (f.output_only, out.as_object_mut()) {
        o.insert("readOnly".to_owned(), Value::Bool(true));
    }
    if let (true, Some(o)) = (f.input_only, out.as_object_mut()) {
        o.insert("writeOnly".to_owned(), Value::Bool(true));
    }
    out
}

fn enumeration(e: &'static Enum, schemas: &mut Map<String, Value>) -> Value {
    let name = short(e.name);
    if !schemas.contains_key(&name) {
        let names: Vec<&str> = e.values.iter().map(|v| v.0).collect();
        let described = if e.open {
            json!({"type": "string", "examples": names,
                   "description": "One of these, or a name that the operator has defined"})
        } else {
            json!({"type": "string", "enum": names})
        };
        schemas.insert(name.clone(), described);
    }
    reference(&name)
}

fn add_common(schemas: &mut Map<String, Value>) {
    let text = json!({"type": "string"});
    schemas.insert(
        "Location".to_owned(),
        json!({"type": "object", "properties": {"name": text, "locationId": text}}),
    );
    schemas.insert(
        "Operation".to_owned(),
        json!({"type": "object", "properties": {
            "name": text,
            "metadata": {"type": "object", "properties": {
                "@type": text, "createTime": text, "endTime": text, "target": text, "verb": text,
                "requestedCancellation": {"type": "boolean"}, "apiVersion": text,
            }},
            "done": {"type": "boolean"},
            "error": {"type": "object", "properties": {
                "code": {"type": "integer"}, "message": text, "details": {"type": "array"},
            }},
            "response": {"type": "object"},
        }}),
    );
    schemas.insert(
        "Error".to_owned(),
        json!({"type": "object", "properties": {"error": {"type": "object", "properties": {
            "code": {"type": "integer"}, "message": text, "status": text,
            "details": {"type": "array", "items": {"type": "object", "properties": {"@type": text}}},
        }}}}),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Returns the path of a committed document.
    fn committed(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../openapi")
            .join(name)
    }

    #[test]
    fn the_committed_documents_are_what_is_served() {
        for (api, name) in [
            (Api::Netapp, "netapp-v1.json"),
            (Api::Filestore, "filestore-v1.json"),
            (Api::Own, "weir-v1.json"),
        ] {
            let made = document(api);
            let path = committed(name);
            if std::env::var_os("WEIR_WRITE_OPENAPI").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &made).unwrap();
            }
            let kept = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                kept == made,
                "openapi/{name} is out of date: WEIR_WRITE_OPENAPI=1 cargo test -p weir-api openapi"
            );
        }
    }

    #[test]
    fn every_operation_has_an_id_of_its_own() {
        for api in [Api::Netapp, Api::Filestore, Api::Own] {
            let doc: Value = serde_json::from_str(&document(api)).unwrap();
            let paths = doc["paths"].as_object().unwrap().values();
            let all = paths.flat_map(|path| path.as_object().unwrap().values());
            let ids: Vec<&str> = all
                .map(|one| one["operationId"].as_str().unwrap())
                .collect();
            let distinct: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
            assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        for api in [Api::Netapp, Api::Filestore, Api::Own] {
            let doc: Value = serde_json::from_str(&document(api)).unwrap();
            fn walk(v: &Value, root: &Value) {
                match v {
                    Value::Object(o) => {
                        if let Some(Value::String(r)) = o.get("$ref") {
                            let found = root.pointer(r.strip_prefix('#').unwrap());
                            assert!(found.is_some_and(Value::is_object), "{r}");
                        }
                        o.values().for_each(|v| walk(v, root));
                    }
                    Value::Array(a) => a.iter().for_each(|v| walk(v, root)),
                    _ => {}
                }
            }
            walk(&doc, &doc);
        }
    }
}
