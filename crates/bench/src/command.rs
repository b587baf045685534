//! The command line of the load generators.

use crate::args::{Nfs4Args, NfsArgs, TcpArgs};
use crate::ceph::CephArgs;
use crate::delay_proxy::RelayArgs;
use crate::lab::cli::{CompareArgs, MatrixArgs, PresetsArgs, ReportArgs};
use crate::log::LogArgs;
use crate::smb::SmbArgs;
use clap::{Args, Subcommand};

/// Load generators for file servers: NFSv3, NFSv4.1 and 4.2, SMB 3.1.1.
#[derive(clap::Parser, Debug, Clone)]
#[command(
    name = "weir-bench",
    bin_name = "weir bench",
    version,
    max_term_width = 100
)]
pub struct Cli {
    /// Command and its settings.
    #[command(flatten)]
    pub bench: BenchArgs,
}

/// Load generators.
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
    /// Measurement.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// Measurements and what belongs to them.
#[derive(Subcommand, Debug, Clone)]
pub enum BenchCommand {
    /// Load on an NFSv3 server.
    Nfs3(Box<NfsArgs>),
    /// Load on an NFSv4.1 or 4.2 server.
    Nfs4(Box<Nfs4Args>),
    /// Load on an SMB 3.1.1 server.
    Smb(Box<SmbArgs>),
    /// Throughput of TCP over loopback on this machine: the ceiling of any server.
    Tcp(TcpArgs),
    /// Durable appends of an intent log to devices, folder by folder.
    Log(LogArgs),
    /// A pool of Ceph, and an intent log in it.
    Ceph(CephArgs),
    /// A link with a delay, for measurements of two nodes on one machine.
    #[command(hide = true)]
    Relay(RelayArgs),
    /// Tables of block sizes and read/write mixes, with reports.
    Matrix(Box<MatrixArgs>),
    /// Definitions for `matrix` that come with this program.
    Presets(PresetsArgs),
    /// Runs of `matrix` side by side, and beside published figures.
    Compare(CompareArgs),
    /// The reports of a run of `matrix`, made again.
    Report(ReportArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
