//! `weir cluster`: asks a running server about its aggregate on RADOS.

use anyhow::{Context as _, Result};
use serde_json::Value;
use weir_node::control_socket;

use crate::cli::ClusterCommand;

/// Carries out `weir cluster`.
///
/// # Errors
/// No server runs on the folder; the server's reason.
pub fn run(command: &ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Show { data, output } => {
            if !output.json {
                return control_socket::ask(data, "cluster show").map(drop);
            }
            let shown = control_socket::query(data, "cluster show --json")?.checked()?;
            let shown: Value = serde_json::from_str(&shown).context("reading the reply")?;
            output.print(&shown, "")
        }
        ClusterCommand::Takeover { host, data, output } => {
            let host = host.as_deref().unwrap_or_default();
            output.ask(data, format!("cluster takeover {host}").trim_end())
        }
    }
}
