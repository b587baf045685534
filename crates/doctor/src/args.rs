//! The words of the command line.

use std::path::PathBuf;

/// Checks this Linux client's NFS and SMB settings for speed and safety, and prints each fix with
/// its reason.
///
/// Exits with 0 if there is nothing but hints, 1 if there are findings, 2 on failure.
#[derive(Debug, clap::Parser)]
#[command(
    name = "weir-doctor",
    bin_name = "weir doctor",
    version,
    max_term_width = 100
)]
pub struct Cli {
    /// Command and its settings.
    #[command(flatten)]
    pub doctor: Args,
}

/// Checks this Linux client's NFS and SMB settings for speed and safety, and prints each fix with
/// its reason.
///
/// Exits with 0 if there is nothing but hints, 1 if there are findings, 2 on failure.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Another command.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Only mounts of this server (name or address), against what it serves: 128 requests a
    /// connection over NFSv3, 180 a session over NFSv4.1, 10,000 in all
    #[arg(long, value_name = "HOST")]
    pub server: Option<String>,
    /// Write the files of the fixes, after showing each
    #[arg(long)]
    pub fix: bool,
    /// With --fix: do not ask
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Look at the files in this folder, which --capture filled, instead of this machine's
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Copy the files that are looked at into a new folder, and stop
    #[arg(long, value_name = "DIR", conflicts_with = "fix")]
    pub capture: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Another command.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Measure the latency of each address of one or several servers: connecting, and an NFS call
    /// that does nothing
    Ping(Ping),
}

/// The words of `ping`.
#[derive(Debug, clap::Args)]
pub struct Ping {
    /// Names or addresses, each with :PORT if it is not 2049
    #[arg(required = true, value_name = "HOST[:PORT]")]
    pub hosts: Vec<String>,
    /// Calls an address
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
