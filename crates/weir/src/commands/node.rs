//! `weir node`: the daemon of a machine of a cluster.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use weir_api::Access;
use weir_api::fleet::{self, Members};
use weir_base::{Clock, Rng as _, SystemClock, SystemRng};
use weir_cluster::commands::ClusterCommands;
use weir_cluster::config::Config;
use weir_cluster::daemon::{Daemon, Start};
use weir_cluster::gateway::{Gateway, advertised};
use weir_cluster::metrics;
use weir_cluster::rows::NodeApi;
use weir_node::control_socket::Control;
use weir_node::{os, port};
use weir_peer_link::identity::fingerprint;
use weir_store::folder;

use crate::cli::NodeArgs;
use crate::cli::endpoint::ApiAddress;
use crate::control::certificate;
use crate::control::plane::{TlsOptions, TlsSource};
use crate::process::notify;

/// The API of the cluster at this node, before it is served.
struct Door {
    listener: TcpListener,
    access: Access,
    advertised: NodeApi,
}

impl Door {
    /// Listens at the address that the options name; `None` for none.
    fn open(args: &NodeArgs, data: &Path, config: &Config) -> Result<Option<Door>> {
        let options = TlsOptions {
            generate: args.api_tls.as_deref(),
            certificate: args.api_tls_cert.as_deref(),
            key: args.api_tls_key.as_deref(),
            names: &args.api_tls_san,
        };
        let source = TlsSource::from_options(args.api, &options)?;
        let ApiAddress::At(wanted) = args.api else {
            return Ok(None);
        };
        let listener = weir_net::reserve(wanted, false)
            .and_then(weir_net::ReservedAddress::listen)
            .map_err(|error| {
                let next = "stop it, or pass --api ADDR:PORT or --api off";
                port::refused(wanted, "the API", next, &error)
            })?;
        let address = advertised(listener.local_addr()?, config.address);
        let tls = source
            .map(|source| source.open(data, address))
            .transpose()?;
        let shown = tls
            .as_ref()
            .map(|tls| certificate::first_of(&tls.certificate));
        let shown = shown.transpose()?;
        Ok(Some(Door {
            listener,
            access: tls.map_or(Access::Loopback, Access::Tokens),
            advertised: NodeApi {
                address,
                certificate: shown.map(|shown| fingerprint(&shown)),
            },
        }))
    }

    /// Returns the URL of the API.
    fn url(&self) -> String {
        let scheme = match self.access {
            Access::Loopback => "http",
            Access::Tokens(_) => "https",
        };
        format!("{scheme}://{}", self.advertised.address)
    }

    /// Serves the API on a thread of its own: a large list must not delay heartbeats.
    fn serve(self, members: Arc<dyn Members>, clock: Arc<dyn Clock>) -> Result<ApiServer> {
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the API's event loop")?;
        let thread = std::thread::Builder::new().name("weir-api".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async move {
                let stopped = async {
                    // Either way the other end is gone.
                    let _ = stopped.await;
                };
                let Door {
                    listener, access, ..
                } = self;
                let served = fleet::serve(listener, members, clock, access, stopped).await;
                if let Err(error) = served {
                    tracing::error!(%error, "stopped serving the API");
                }
            });
        })?;
        Ok(ApiServer { stop, thread })
    }
}

/// The API while it is served.
struct ApiServer {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ApiServer {
    fn end(self) {
        drop(self.stop);
        // It has reported its panic.
        let _ = self.thread.join();
    }
}

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
    let door = Door::open(args, &data, &config)?;
    let mut daemon = Daemon::new(Start {
        config: config.clone(),
        folder: &data,
        program: std::env::current_exe().context("finding the program")?,
        version: env!("CARGO_PKG_VERSION"),
        clock: Arc::clone(&clock),
        holder: format!("{name}/{:016x}", SystemRng.next_u64()),
        api: door.as_ref().map(|door| door.advertised.clone()),
    })?;
    let api = match door {
        Some(door) => {
            tracing::info!("serving the API of the cluster at {}", door.url());
            let gateway = Gateway::new(&config, &data, daemon.known(), Arc::clone(&clock))?;
            Some(door.serve(Arc::new(gateway), Arc::clone(&clock))?)
        }
        None => None,
    };
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
    if let Some(api) = api {
        api.end();
    }
    notify::notify("STOPPING=1\nSTATUS=ending the servers");
    tracing::info!("{why}: ending the servers");
    daemon.stop_servers();
    drop(control);
    Ok(())
}
