//! SIGHUP: reads certificates, their keys and the log's filter again. Open connections stay.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::Signal;
use weir_api::Tls;

use crate::cli::settings::{self, Invalid};
use crate::cli::{Command, Serve};
use crate::process::{logging, notify};
use crate::protocols::tls;
use crate::serve::storage::Rpc;
use weir_node::exports;

/// Reads anew on each signal; `status` is for the service manager when that is done.
pub async fn on_hangup(mut hangups: Signal, rpc: Arc<Rpc>, api: Option<Tls>, status: String) {
    while hangups.recv().await.is_some() {
        notify::reloading();
        match reload(&rpc, api.as_ref()) {
            Ok(()) => tracing::info!("SIGHUP: read certificates and the log filter anew"),
            Err(error) => tracing::error!(
                "SIGHUP: cannot reload: {error:#} (what is in force stays; mend it and send SIGHUP again)"
            ),
        }
        notify::ready(&status);
    }
}

/// Everything is read before anything is changed.
fn reload(rpc: &Rpc, api: Option<&Tls>) -> Result<()> {
    let args = arguments()?;
    let for_nfs = tls::config(&args, &exports::rules(&args.export_options)?)?;
    let for_api = api.map(Tls::read).transpose();
    let for_api = for_api.context("TLS for the API")?;
    let filter = args.log.as_deref().unwrap_or(logging::DEFAULT);
    logging::set_filter(filter).map_err(anyhow::Error::msg)?;
    if let (Some(api), Some(config)) = (api, for_api) {
        api.replace(config);
    }
    if let Some(config) = for_nfs {
        rpc.protect(config);
    }
    Ok(())
}

/// The settings as they are now.
fn arguments() -> Result<Box<Serve>> {
    match settings::parse(std::env::args_os().collect()) {
        Ok(cli) => match cli.command {
            Command::Serve(args) => Ok(args),
            _ => bail!("not the command line of a server"),
        },
        Err(Invalid::File(message)) => bail!(message),
        Err(Invalid::Usage(error)) => bail!("{error}"),
    }
}
