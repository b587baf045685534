//! Steps that commands share: a session, a body, a deletion.

use serde_json::{Map, Value, json};

use crate::Environment;
use crate::args::{Async, At, Common, ListArgs, ResourceArgs, WordChanges, Words};
use crate::error::Error;
use crate::format::{self, Format, Kind};
use crate::http::Method;
use crate::session::{Change, Io, Session};

/// The tables that lists print without `--format`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// Those of `weir volumes` and `weir storage-pools`: with used and free space.
    Own,
    /// Those of `weir netapp …`: gcloud's, for scripts that read them.
    Gcloud,
}

impl Tables {
    pub(super) fn pick(self, own: &'static str, gcloud: &'static str) -> Result<Format, Error> {
        let text = match self {
            Tables::Own => own,
            Tables::Gcloud => gcloud,
        };
        format::parse(text).map_err(Into::into)
    }
}

/// Returns a format of the program's own.
pub(super) fn own(text: &str) -> Result<Format, Error> {
    Ok(format::parse(text)?)
}

pub(super) fn open<'s, 'io>(
    common: &Common,
    at: &At,
    environment: &Environment,
    io: &'s mut Io<'io>,
) -> Result<Session<'s, 'io>, Error> {
    Session::open(common, at, environment, io)
}

pub(super) fn open_named<'s, 'io>(
    named: &ResourceArgs,
    environment: &Environment,
    io: &'s mut Io<'io>,
) -> Result<Session<'s, 'io>, Error> {
    open(&named.common, &named.at, environment, io)
}

/// Deletes a resource of a full name.
pub(super) fn delete(
    s: &mut Session<'_, '_>,
    name: String,
    query: Vec<(&'static str, String)>,
    wait: Async,
    what: &str,
) -> Result<(), Error> {
    s.change(Change {
        method: Method::Delete,
        done: format!("Deleted {what} [{}].", last(&name)),
        name,
        query,
        body: None,
        wait,
        format: &Format::plain(Kind::None),
    })
}

/// A body that takes the fields that there are.
#[derive(Default)]
pub(super) struct Body(pub(super) Map<String, Value>);

impl Body {
    pub(super) fn set(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    /// Adds an int64 field, which travels as a string.
    pub(super) fn int64(&mut self, name: &str, value: Option<impl ToString>) {
        self.set(name, value.map(|v| v.to_string()));
    }

    /// Adds the description and labels of a new resource.
    pub(super) fn words(&mut self, args: &Words) {
        self.set("description", args.description.as_deref());
        self.set("labels", args.labels.as_ref().map(|labels| json!(labels)));
    }

    /// Adds the changes to the description and labels of a resource.
    pub(super) fn changed_words(&mut self, current: &Value, args: &WordChanges) {
        self.set("description", args.description.as_deref());
        self.set("labels", Session::labels(current, &args.labels));
    }

    /// Returns the fields, comma-separated: the mask of a change.
    pub(super) fn mask(&self) -> Result<String, Error> {
        if self.0.is_empty() {
            return Err(Error::Usage(
                "nothing to change: give a flag that changes something".to_owned(),
            ));
        }
        Ok(self.0.keys().cloned().collect::<Vec<_>>().join(","))
    }
}

/// Prints the resources of a collection.
pub(super) fn list(
    args: &ListArgs,
    collection: &str,
    format: &Format,
    environment: &Environment,
    io: &mut Io<'_>,
) -> Result<(), Error> {
    let mut s = open(&args.common, &args.at, environment, io)?;
    let parent = s.listed(&args.at);
    s.list(&parent, collection, &args.listing, format)
}

/// Returns the last part of a full name.
pub(super) fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
