//! `snapmirror/relationships/{uuid}/transfers`: the running one, and the last.

use serde_json::Value;
use weir_ontap::Failure;
use weir_ontap::fields::Way;
use weir_ontap::fields::transfer::{Draft, TABLE, rows};
use weir_relations::manager::Verb;
use weir_relations::model::{FileRestore, MirrorState};

use super::body::Fields;
use super::refusal::{HandlerResult, Refusal};
use super::relationships::find;
use super::resource;
use super::surface::{CallContext, Reply};

/// Handles GET of a relationship's transfers, or of the one whose path it is.
pub fn list(a: &CallContext<'_>, id: &str, one: bool) -> HandlerResult<Reply> {
    let all = match a.surface.restores().iter().any(|r| r.uuid == id) {
        true => Vec::new(),
        false => rows(&find(a, id)?),
    };
    resource::get(a, &TABLE, one, |_| all)
}

/// Returns `files`: paths, with where they are to go in the volume, if that is elsewhere.
fn files(fields: &mut Fields) -> HandlerResult<Vec<FileRestore>> {
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
pub fn create(a: &CallContext<'_>, id: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let files = files(&mut fields)?;
    // Nothing is deduplicated or compressed at rest, so there is nothing that could be lost on the
    // way.
    fields.ignore(&["storage_efficiency_enabled"]);
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, Way::Create, &mut draft, None)?;
    let Draft {
        source_snapshot,
        throttle,
        ..
    } = draft;
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
    resource::made(a, &TABLE, rows(&r).into_iter().next())
}

/// Handles PATCH: `state: aborted` or `hard_aborted` ends a transfer.
pub fn change(a: &CallContext<'_>, id: &str, transfer: &str) -> HandlerResult<Reply> {
    a.only(&[])?;
    let mut fields = Fields::read(&a.call.body)?;
    let mut draft = Draft::default();
    resource::read(a, &TABLE, &mut fields, Way::Modify, &mut draft, None)?;
    let wish = draft.state.ok_or_else(|| Refusal::required("state"))?;
    let hard = wish == "hard_aborted";
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
