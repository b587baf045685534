//! `weir cluster`: asks a running server about its aggregate on RADOS.

use anyhow::Result;

use crate::cli::ClusterCommand;

/// Carries out `weir cluster`.
///
/// # Errors
/// No server runs on the folder; the server's reason.
pub fn run(command: &ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Show { data, output } => output.show(data, "cluster show"),
        ClusterCommand::Takeover { host, data, output } => {
            let host = host.as_deref().unwrap_or_default();
            output.ask(data, format!("cluster takeover {host}").trim_end())
        }
    }
}
