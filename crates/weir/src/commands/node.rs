//! `weir node`: the daemon of a machine of a cluster.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use weir_base::{Clock, Rng as _, SystemClock, SystemRng};
use weir_cluster::commands::ClusterCommands;
use weir_cluster::config::Config;
use weir_cluster::daemon::{Daemon, Start};
use weir_cluster::metrics;
use weir_node::control_socket::Control;
use weir_node::os;
use weir_store::folder;

use crate::cli::NodeArgs;
use crate::notify;

/// Runs the daemon until a signal ends it, and its servers then. If it is killed, they go on.
///
/// # Errors
/// The folder is no node's, or another daemon runs on it.
pub fn run(args: &NodeArgs) -> Result<()> {
    os::own_files_only();
    let config = Config::read(&args.data)?;
    let config = config.with_context(|| {
        format!(
            "{} is no folder of a node (`weir cluster init` or `weir cluster join` makes it one)",
            args.data.display()
        )
    })?;
    let _lock = folder::lock_only(&args.data)?;
    let data = std::path::absolute(&args.data)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let name = config.name.clone();
    let mut daemon = Daemon::new(Start {
        config: config.clone(),
        folder: &data,
        program: std::env::current_exe().context("finding the program")?,
        version: env!("CARGO_PKG_VERSION"),
        clock: Arc::clone(&clock),
        holder: format!("{name}/{:016x}", SystemRng.next_u64()),
    })?;
    let commands = ClusterCommands {
        config,
        known: daemon.known(),
        clock: Arc::clone(&clock),
    };
    let control = Control::listen(&data, Arc::new(commands))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the event loop")?;
    let known = daemon.known();
    let why: Result<&str> = runtime.block_on(async {
        if let Some(at) = args.metrics {
            let listener = metrics::listen(at).await?;
            let serving = metrics::serve(listener, known, name.clone(), Arc::clone(&clock));
            tokio::spawn(serving);
        }
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        notify::ready(&format!("node {name} of a cluster"));
        tracing::info!("node {name} runs");
        Ok(tokio::select! {
            () = daemon.run() => "the daemon has ended",
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        })
    });
    let why = why?;
    notify::notify("STOPPING=1\nSTATUS=ending the servers");
    tracing::info!("{why}: ending the servers");
    daemon.stop_servers();
    drop(control);
    Ok(())
}
