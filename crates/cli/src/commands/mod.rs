//! Implementation of the commands.

mod directories;
mod filestore;
mod netapp;
mod ontap;
mod operations;
mod peers;
mod replications;
mod server;
mod snapmirror;
mod status;

use serde_json::{Map, Value};

use crate::Environment;
use crate::args::{Async, At, Command, Common, Named, Netapp};
use crate::error::Error;
use crate::format::{self, Format, Kind};
use crate::http::Method;
use crate::session::{Change, Io, Session};

/// Runs the command that was parsed.
///
/// # Errors
/// The command's own: of the server, the arguments, or a stream.
pub fn run(command: &Command, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    match command {
        Command::StoragePools { command } => netapp::pools(command, Tables::Own, environment, io),
        Command::Netapp {
            command: Netapp::StoragePools { command },
        } => netapp::pools(command, Tables::Gcloud, environment, io),
        Command::Volumes { command } => netapp::volumes(command, Tables::Own, environment, io),
        Command::Netapp {
            command: Netapp::Volumes { command },
        } => netapp::volumes(command, Tables::Gcloud, environment, io),
        Command::ActiveDirectories { command }
        | Command::Netapp {
            command: Netapp::ActiveDirectories { command },
        } => directories::run(command, environment, io),
        Command::Operations { command }
        | Command::Netapp {
            command: Netapp::Operations { command },
        } => operations::operations(command, environment, io),
        Command::Locations { command }
        | Command::Netapp {
            command: Netapp::Locations { command },
        } => operations::locations(command, environment, io),
        Command::Filestore { command } => filestore::run(command, environment, io),
        Command::Ontap(args) => ontap::run(args, environment, io),
        Command::Snapmirror(args) => snapmirror::run(args, environment, io),
        Command::Peers { command } => peers::run(command, environment, io),
        Command::Tokens { command } => server::tokens(command, environment, io),
        Command::Audit(args) => server::audit(args, environment, io),
        Command::Conditions(args) => server::conditions(args, environment, io),
        Command::Config { command } => server::config(command, environment, io),
        Command::Status(args) => status::status(args, environment, io),
        Command::SupportBundle(args) => status::bundle(args, environment, io),
        Command::Top(args) => crate::top::run(args, environment, io),
        Command::Plan(args) => {
            let text = crate::plan::run(args)?;
            Ok(io.out.write_all(text.as_bytes())?)
        }
        Command::Completion { shell } => completion(&shell.to_string(), io),
    }
}

/// Prints the script that has `shell` ask the program itself which words may follow.
fn completion(shell: &str, io: &mut Io<'_>) -> Result<(), Error> {
    let shells = clap_complete::env::Shells::builtins();
    let shell = shells
        .completer(shell)
        .ok_or_else(|| Error::Other(format!("no completion for {shell}")))?;
    let mut script = Vec::new();
    shell.write_registration("COMPLETE", "weir", "weir", "weir", &mut script)?;
    Ok(io.out.write_all(&script)?)
}

/// The tables that lists print without `--format`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    /// Those of `weir volumes` and `weir storage-pools`: with used and free space.
    Own,
    /// Those of `weir netapp …`: gcloud's, for scripts that read them.
    Gcloud,
}

impl Tables {
    fn pick(self, own: &'static str, gcloud: &'static str) -> Result<Format, Error> {
        let text = match self {
            Tables::Own => own,
            Tables::Gcloud => gcloud,
        };
        format::parse(text).map_err(Into::into)
    }
}

/// Returns a format of the program's own.
fn own(text: &str) -> Result<Format, Error> {
    Ok(format::parse(text)?)
}

fn open<'s, 'io>(
    common: &Common,
    at: &At,
    environment: &Environment,
    io: &'s mut Io<'io>,
) -> Result<Session<'s, 'io>, Error> {
    Session::open(common, at, environment, io)
}

fn open_named<'s, 'io>(
    named: &Named,
    environment: &Environment,
    io: &'s mut Io<'io>,
) -> Result<Session<'s, 'io>, Error> {
    open(&named.common, &named.at, environment, io)
}

/// Deletes a resource of a full name.
fn delete(
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
struct Body(Map<String, Value>);

impl Body {
    fn set(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    /// Adds an int64 field, which travels as a string.
    fn int64(&mut self, name: &str, value: Option<impl ToString>) {
        self.set(name, value.map(|v| v.to_string()));
    }

    /// Returns the fields, comma-separated: the mask of a change.
    fn mask(&self) -> Result<String, Error> {
        if self.0.is_empty() {
            return Err(Error::Usage(
                "nothing to change: give a flag that changes something".to_owned(),
            ));
        }
        Ok(self.0.keys().cloned().collect::<Vec<_>>().join(","))
    }
}

/// Returns the last part of a full name.
fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
