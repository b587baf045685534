//! Weir's command line as a client of its HTTP surfaces: the NetApp Volumes and Filestore
//! commands of gcloud, word for word where Weir has the thing.
//!
//! Reading order: `args` (grammar), `session` (steps that commands have in common), `commands`,
//! `format` and `filter` (output), `values` (values of flags). Apart from these are `plan` (sizing,
//! which needs no server) and `top` (the live view).

mod archive;
pub mod args;
mod commands;
mod context;
mod early_flags;
mod error;
mod filter;
mod flags_file;
mod format;
mod http;
mod mount;
pub mod plan;
mod service_account;
mod session;
pub mod top;
mod values;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

pub use args::Command;
pub use context::Environment;
pub use session::Io;

/// Returns the command line's arguments with flags files put in place. Flags of every command that
/// come before the command or between its words, as gcloud takes them, are put behind it. `whole`
/// is the whole command line.
///
/// # Errors
/// A flags file that cannot be read or is none.
pub fn arguments(
    given: impl IntoIterator<Item = OsString>,
    whole: &clap::Command,
) -> Result<Vec<OsString>, String> {
    Ok(early_flags::put_behind(flags_file::expand(given)?, whole))
}

/// Runs a command with this process's streams and environment. `secret` reads a user's
/// password; `interrupted` has an interrupt print a line and end the program.
pub fn run(
    command: &Command,
    secret: &mut dyn FnMut(&str) -> Result<String, String>,
    interrupted: &mut dyn FnMut(&str),
) -> ExitCode {
    let environment: Environment = std::env::vars().collect();
    let stdin = std::io::stdin();
    let mut answer = || {
        let mut line = String::new();
        stdin.read_line(&mut line).ok().map(|_| line)
    };
    let mut io = Io {
        out: &mut std::io::stdout(),
        err: &mut std::io::stderr(),
        progress: std::io::stderr().is_terminal(),
        answer: stdin.is_terminal().then_some(&mut answer as _),
        secret,
        interrupted,
    };
    ExitCode::from(run_with(command, &environment, &mut io))
}

/// Runs a command with the streams and the environment given. Returns the exit code: 0, 1 for a
/// failure, or 2 for a wrong command line, as clap does.
pub fn run_with(command: &Command, environment: &Environment, io: &mut Io<'_>) -> u8 {
    let outcome = commands::run(command, environment, io);
    match outcome.and_then(|()| io.out.flush().map_err(error::Error::from)) {
        Ok(()) => 0,
        Err(error) => {
            // If this cannot be written either, there is no stream left to report it on.
            let _ = io.err.write_all(error.lines(&command.path()).as_bytes());
            error.exit_code()
        }
    }
}
