//! Implementation of the commands.

mod backups;
mod directories;
mod filestore;
mod moves;
mod netapp;
mod ontap;
mod operations;
mod peers;
mod replications;
mod server;
mod snapmirror;
mod status;
mod steps;

use crate::Environment;
use crate::args::{Command, Netapp};
use crate::error::Error;
use crate::session::Io;
use steps::Tables;

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
        Command::BackupVaults { command }
        | Command::Netapp {
            command: Netapp::BackupVaults { command },
        } => backups::backup_vaults(command, environment, io),
        Command::Backups { command } => backups::backups(command, environment, io),
        Command::BackupPolicies { command }
        | Command::Netapp {
            command: Netapp::BackupPolicies { command },
        } => backups::backup_policies(command, environment, io),
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
