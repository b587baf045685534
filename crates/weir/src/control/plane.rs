//! The control plane within the server: its catalog, its API, and the thread that both run on.
//!
//! They have a thread and an event loop of their own, and a few threads for work that waits for
//! disks. A burst of changes, a slow catalog or a faulty peer then costs the event loops that serve
//! data only a share of the processor. These threads have a lower priority ([`weir_base::nice`]),
//! which the threads that they start inherit: start a thread that needs its full share elsewhere.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use weir_api::live::Live;
use weir_api::{Access, AppState, Benchmarks, Metrics, Mounts, Problems, Tls};
use weir_base::{Clock, Rng, SystemRng, percent};
use weir_control::levels::Levels;
use weir_control::{Actor, CatalogCopy, Control, LocationName, Options};
use weir_volume::Engine;

use crate::cli::Serve;
use crate::cli::endpoint::ApiAddress;
use crate::control::daemon_view::DaemonView;
use weir_net::{self as net, ReservedAddress};
use weir_node::backend::Node;
use weir_node::counters::Counters;
use weir_node::snapshot_files::SnapshotFiles;
use weir_pair_node::Pair;

use crate::cli::usage;
use weir_node::{control_socket, data_folder, device_metrics, os, port, space_metrics};
use weir_ontap_node::{AsUser, MachineSource, Server};
use weir_replication_node::{self as replication_node, MoveParts, Replication};

/// Number of threads for work that waits for the disk: as many volumes are created or deleted at
/// once. They share checkpoints and batches of the log, so more than one a core pays.
const WAITING: usize = 16;

/// A place for the API, taken but not served yet.
pub struct ApiListener {
    listener: ReservedAddress,
    tls: Option<TlsSource>,
    token: Option<PathBuf>,
}

/// Source of the API's certificate.
pub enum TlsSource {
    /// Files of a certificate and its key.
    Given(PathBuf, PathBuf),
    /// A certificate that is generated, for these names, too.
    Generated(Vec<String>),
}

/// Options about the API's certificate.
pub struct TlsOptions<'a> {
    /// `--api-tls`
    pub generate: Option<&'a str>,
    /// `--api-tls-cert`
    pub certificate: Option<&'a Path>,
    /// `--api-tls-key`
    pub key: Option<&'a Path>,
    /// `--api-tls-san`
    pub names: &'a [String],
}

impl TlsSource {
    /// Returns the source of a certificate for an address; `None` for none.
    ///
    /// # Errors
    /// If options exclude each other, or others than this machine would be served without TLS.
    pub fn from_options(wanted: ApiAddress, options: &TlsOptions<'_>) -> Result<Option<TlsSource>> {
        let tls = match (options.generate, options.certificate, options.key) {
            (None, None, None) => None,
            (None, Some(cert), Some(key)) => {
                Some(TlsSource::Given(cert.to_owned(), key.to_owned()))
            }
            (Some(_), None, None) => Some(TlsSource::Generated(options.names.to_vec())),
            (Some(_), ..) => bail!("--api-tls generate and --api-tls-cert exclude each other"),
            _ => bail!("--api-tls-cert and --api-tls-key belong together"),
        };
        if let ApiAddress::At(wanted) = wanted {
            if !wanted.ip().is_loopback() && tls.is_none() {
                return Err(usage::error(format!(
                    "--api {wanted} is not a loopback address, and anyone who reaches the API can delete volumes: it needs TLS \
                     (--api-tls generate, or --api-tls-cert FILE --api-tls-key FILE) and a token for every client (`weir tokens create`)"
                )));
            }
        }
        Ok(tls)
    }

    /// Opens the certificate for a listener at `address`. A generated one is in the folder `data`.
    ///
    /// # Errors
    /// The files cannot be read or created.
    pub fn open(&self, data: &Path, address: SocketAddr) -> Result<Tls> {
        let tls = match self {
            TlsSource::Given(cert, key) => Tls::given(cert, key),
            TlsSource::Generated(asked) => Tls::generated(data, &names(address), asked),
        };
        tls.context("TLS for the API")
    }
}

/// Returns the names and addresses by which clients may reach the API.
fn names(address: SocketAddr) -> Vec<String> {
    let here = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut names: Vec<String> = here.into_iter().chain([os::host_name()]).collect();
    if !address.ip().is_unspecified() {
        names.push(address.ip().to_string());
    }
    names.sort_unstable();
    names.dedup();
    names
}

impl ApiListener {
    /// Takes the address that `args` names; `None` for none.
    ///
    /// # Errors
    /// If the address is not to be had, or others than this machine would be served without TLS.
    pub fn open(args: &Serve) -> Result<Option<ApiListener>> {
        let tls = ApiListener::source(args)?;
        let ApiAddress::At(wanted) = args.api else {
            return Ok(None);
        };
        let listener = net::reserve(wanted, false).map_err(|error| {
            let next = "stop it, or pass --api ADDR:PORT or --api off";
            port::refused(wanted, "the API", next, &error)
        })?;
        Ok(Some(ApiListener {
            listener,
            tls,
            token: args.api_token_file.clone(),
        }))
    }

    /// Returns the source of the API's certificate.
    ///
    /// # Errors
    /// If options exclude each other, or others than this machine would be served without TLS.
    fn source(args: &Serve) -> Result<Option<TlsSource>> {
        let options = TlsOptions {
            generate: args.api_tls.as_deref(),
            certificate: args.api_tls_cert.as_deref(),
            key: args.api_tls_key.as_deref(),
            names: &args.api_tls_san,
        };
        TlsSource::from_options(args.api, &options)
    }

    /// Returns the access to the API: over loopback, or with tokens over TLS.
    async fn access(&self, data: &Path, control: &Control) -> Result<Access> {
        if let Some(path) = &self.token {
            let made = control.adopt_token(&secret_in(path)?).await;
            made.map_err(|refusal| anyhow!("{}: {}", path.display(), refusal.message))?;
        }
        let Some(tls) = &self.tls else {
            return Ok(Access::Loopback);
        };
        let tls = tls.open(data, self.address())?;
        let tokens = control.has_tokens().await;
        ensure!(
            self.address().ip().is_loopback() || tokens.map_err(|e| anyhow!("{}", e.message))?,
            "--api {} is not a loopback address, and there is no token yet: start with --api 127.0.0.1:{port}, \
             make one with `weir tokens create NAME --role admin`, and start again (or pass --api-token-file FILE)",
            self.address(),
            port = self.address().port(),
        );
        Ok(Access::Tokens(tls))
    }

    fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }
}

/// Reads the secret of an administrator's token: the first line of a file.
///
/// # Errors
/// The file cannot be read, or its first line is no token.
fn secret_in(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token file {}", path.display()))?;
    let secret = text.lines().next().unwrap_or_default().trim();
    weir_control::check_secret(secret)
        .map_err(|refusal| usage::error(format!("{}: {}", path.display(), refusal.message)))?;
    Ok(secret.to_owned())
}

/// Says whether the settings of the control plane are valid.
///
/// # Errors
/// Files that cannot be read or are not what they are to be.
pub fn check(args: &Serve) -> Result<()> {
    levels(args)?;
    if let Some(path) = &args.api_token_file {
        secret_in(path)?;
    }
    match ApiListener::source(args)? {
        Some(TlsSource::Given(cert, key)) => Tls::given(&cert, &key).map(drop),
        _ => Ok(()),
    }
    .context("TLS for the API")
}

fn levels(args: &Serve) -> Result<Levels> {
    match &args.service_levels {
        Some(path) => {
            Levels::with_file(path).with_context(|| format!("--service-levels {}", path.display()))
        }
        None => Levels::built_in().context("reading the built-in service levels"),
    }
}

/// Parts that the control plane is started with.
pub struct Parts<'a> {
    /// The options of `weir serve`.
    pub args: &'a Serve,
    /// The node on which jobs are carried out.
    pub node: Arc<Node>,
    /// Its engine, for replication.
    pub engine: Arc<Engine>,
    /// The server's clock, for time stamps and schedules.
    pub clock: Arc<dyn Clock>,
    /// Counters of the data path.
    pub counters: Counters,
    /// Addresses that clients mount from.
    pub mounts: Mounts,
    /// The SMB service.
    pub smb: Arc<weir_smb::Service>,
    /// The pair that this node is one of.
    pub pair: Option<Arc<Pair>>,
    /// Second place of the catalog.
    pub copy: Option<Arc<dyn CatalogCopy>>,
    /// Bytes that the device holds.
    pub device_bytes: u64,
    /// The metrics, piece by piece.
    pub metrics: Metrics,
    /// Problems of the server as a whole.
    pub problems: Problems,
    /// Live data.
    pub live: Arc<Live>,
}

impl Parts<'_> {
    /// Returns the parts for moves of volumes.
    fn moves(&self) -> Result<MoveParts> {
        Ok(MoveParts {
            vfs: self.node.vfs(),
            secret: data_folder::handle_key(&self.args.data, &SystemRng)?,
        })
    }
}

/// The running control plane. Every acknowledged change is in the catalog, so dropping it loses
/// nothing.
pub struct Plane {
    api: Option<String>,
    control: Arc<Control>,
    replication: Option<Arc<Replication>>,
    catalog: String,
    tls: Option<Tls>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Plane {
    /// Opens the catalog, makes the node match it and serves the API. On return all volumes are
    /// exported, and clients of the API can connect.
    ///
    /// # Errors
    /// If the catalog cannot be opened or the node not be brought to it.
    pub fn start(
        parts: &Parts<'_>,
        door: Option<ApiListener>,
        peers: Option<ReservedAddress>,
    ) -> Result<Plane> {
        let args = parts.args;
        let levels = levels(args)?;
        let options = Options {
            catalog: catalog(args.catalog.as_deref(), &args.data)?,
            levels,
            instance_addresses: args.instance_addresses,
            backend: Arc::clone(&parts.node) as _,
            clock: Arc::clone(&parts.clock),
            rng: Arc::new(SystemRng) as Arc<dyn Rng>,
            device_bytes: parts.device_bytes,
            copy: parts.copy.clone(),
            first_place: LocationName::new(&LocationName::local().project, &args.first_location),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WAITING)
            .thread_name("weir-job")
            .build()
            .context("starting the control plane")?;
        let (api, catalog) = (door.as_ref().map(ApiListener::url), options.catalog.clone());
        let (data, mounts) = (args.data.clone(), parts.mounts);
        let benchmarks = { args.benchmarks.clone() }.unwrap_or_else(|| data.join("benchmarks"));
        let (pair, counters) = (parts.pair.clone(), parts.counters.clone());
        let (clock, smb) = (Arc::clone(&parts.clock), Arc::clone(&parts.smb));
        let (metrics, problems) = (Arc::clone(&parts.metrics), Arc::clone(&parts.problems));
        let (engine, live) = (Arc::clone(&parts.engine), Arc::clone(&parts.live));
        let (name, machines) = name_of_node(args);
        let files = Arc::new(SnapshotFiles::new(
            Arc::clone(&engine),
            parts.node.vfs(),
            Arc::clone(&parts.clock),
            Arc::new(SystemRng),
            runtime.handle().clone(),
        ));
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (opened, outcome) = mpsc::channel::<Result<(Arc<Control>, Option<Tls>)>>();
        let (replicating, replicated) = oneshot::channel::<Arc<Replication>>();
        let (listening, listens) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("weir-api".to_owned())
            .spawn(move || {
                weir_base::nice();
                weir_base::ioprio_realtime();
                runtime.block_on(async {
                    let (control, access) = match open(options, &data, door.as_ref()).await {
                        Ok((control, access)) => {
                            let tls = tls_of(access.as_ref());
                            let _ = opened.send(Ok((Arc::clone(&control), tls)));
                            (control, access)
                        }
                        Err(error) => {
                            let _ = opened.send(Err(error));
                            return;
                        }
                    };
                    // If there is none, the start has failed.
                    if let Ok(replication) = replicated.await {
                        let served = ApiParts {
                            control: Arc::clone(&control),
                            server: Arc::new(Server {
                                control: Arc::clone(&control),
                                runtime: Handle::current(),
                                engine: Arc::clone(&engine),
                                clock,
                                name,
                                counters,
                                smb: Some(smb),
                                pair,
                                replication: Arc::clone(&replication),
                                machines,
                            }),
                            files: Arc::clone(&files),
                            mounts,
                            metrics,
                            problems,
                            engine,
                            live,
                            listening,
                            benchmarks,
                            data,
                        };
                        serve(served, door, access, stopped).await;
                        // Its threads may wait for this one.
                        let ending = tokio::task::spawn_blocking(move || {
                            files.stop();
                            replication.stop();
                        });
                        let _ = ending.await;
                    }
                    control.close().await;
                });
            })
            .context("starting the control plane")?;
        let opened = outcome
            .recv()
            .map_err(|_| anyhow!("cannot start the control plane: its thread ended"))
            .and_then(|opened| opened);
        let (control, tls) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // A panic of that thread has ended the process.
                let _ = thread.join();
                return Err(error);
            }
        };
        let mut plane = Plane {
            api,
            control: Arc::clone(&control),
            replication: None,
            catalog,
            tls,
            stop: Some(stop),
            thread: Some(thread),
        };
        let peers = peers.map(ReservedAddress::listen).transpose();
        let listener = peers.context("listening for replication")?;
        let replication = Replication::start(replication_node::Parts {
            data: args.data.clone(),
            engine: Arc::clone(&parts.engine),
            control,
            runtime: handle,
            clock: Arc::clone(&parts.clock),
            rng: Arc::new(SystemRng),
            name: os::host_name(),
            listener,
            counters: parts.counters.clone(),
            moves: Some(parts.moves()?),
        });
        match replication.context("replication") {
            // It waits for nothing else.
            Ok(replication) => {
                plane.replication = Some(Arc::clone(&replication));
                drop(replicating.send(replication));
            }
            Err(error) => {
                // First, for it ends without, and `plane` waits for its end.
                drop(replicating);
                return Err(error);
            }
        }
        // An error says that nobody will tell: clients can connect, or there is no API.
        let _ = listens.recv();
        Ok(plane)
    }

    /// The control plane itself.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Returns the relationships of this node.
    pub fn replication(&self) -> Option<Arc<Replication>> {
        self.replication.clone()
    }

    /// The catalog's file, if it is in one.
    pub fn catalog_file(&self) -> Option<PathBuf> {
        weir_control::file_of(&self.catalog)
    }

    /// The certificate of the API, if it has one.
    pub fn tls(&self) -> Option<Tls> {
        self.tls.clone()
    }

    /// The API's URL, if it is served.
    pub fn api(&self) -> Option<&str> {
        self.api.as_deref()
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has ended the process.
            let _ = thread.join();
        }
    }
}

fn tls_of(access: Option<&Access>) -> Option<Tls> {
    match access {
        Some(Access::Tokens(tls)) => Some(tls.clone()),
        _ => None,
    }
}

async fn open(
    options: Options,
    data: &Path,
    door: Option<&ApiListener>,
) -> Result<(Arc<Control>, Option<Access>)> {
    let control = Control::open(options).await?;
    let access = match door {
        Some(door) => Some(door.access(data, &control).await?),
        None => None,
    };
    Ok((control, access))
}

/// Takes the address at which other nodes connect, if there is to be one. Servers of a cluster have
/// one, for volumes that move between their aggregates.
///
/// # Errors
/// If the address is not to be had.
pub fn peers(args: &Serve) -> Result<(Option<ReservedAddress>, Option<SocketAddr>)> {
    let wanted = match (args.replication, &args.node_data) {
        (ApiAddress::At(wanted), _) => wanted,
        // Other servers of the cluster learn the port from its directory.
        (ApiAddress::Off, Some(_)) => {
            let own = args.address.is_empty().then(|| args.nfs.ip());
            SocketAddr::new(own.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0)
        }
        (ApiAddress::Off, None) => return Ok((None, None)),
    };
    let listener = net::reserve(wanted, false).map_err(|error| {
        let next = "stop it, or pass --replication ADDR:PORT";
        port::refused(wanted, "replication", next, &error)
    })?;
    let address = listener.address();
    Ok((Some(listener), Some(address)))
}

/// Returns the name of this node, and the cluster that it is of.
fn name_of_node(args: &Serve) -> (String, Option<Arc<dyn MachineSource>>) {
    match args.node_data.as_deref().and_then(DaemonView::open) {
        Some(view) => (view.node.clone(), Some(Arc::new(view))),
        None => (os::host_name(), None),
    }
}

/// Parts that the API is served from.
struct ApiParts {
    control: Arc<Control>,
    server: Arc<Server>,
    files: Arc<SnapshotFiles>,
    mounts: Mounts,
    metrics: Metrics,
    problems: Problems,
    engine: Arc<Engine>,
    live: Arc<Live>,
    /// Told when clients can connect, or never will.
    listening: mpsc::Sender<()>,
    /// The folder of benchmark reports.
    benchmarks: PathBuf,
    /// The data folder, with the socket for a node's daemon.
    data: PathBuf,
}

/// Serves the API at its address, if it has one, and to a node's daemon, until it is time to stop.
async fn serve(
    served: ApiParts,
    door: Option<ApiListener>,
    access: Option<Access>,
    stopped: oneshot::Receiver<()>,
) {
    // Either way the other end is gone.
    let stopped = async {
        let _ = stopped.await;
    };
    let ApiParts {
        control,
        server,
        files,
        mounts,
        metrics,
        problems,
        engine,
        live,
        listening,
        benchmarks,
        data,
    } = served;
    let mirrors = Arc::clone(&server.replication);
    let measured = Arc::clone(&control);
    let metrics: Metrics = Arc::new(move || {
        let space = space_metrics::pieces(&measured, &engine);
        let device = device_metrics::pieces(&engine);
        Box::new(metrics().chain(mirrors.pieces()).chain(space).chain(device))
    });
    let clusters: weir_ontap::Clusters<Actor> =
        Arc::new(move |actor: &Actor| Arc::new(AsUser::new(Arc::clone(&server), actor.clone())));
    let state = AppState::new(control, mounts)
        .with_metrics(metrics)
        .with_problems(problems)
        .with_live(live)
        .with_files(files)
        .with_benchmarks(Benchmarks::new(benchmarks))
        .with_ontap(clusters);
    let (end, ended) = oneshot::channel::<()>();
    let daemon = serve_daemon(&data, state.clone(), ended);
    match (door, access) {
        (Some(door), Some(access)) => match door.listener.listen() {
            Ok(listener) => {
                drop(listening);
                if let Err(error) = weir_api::serve(listener, state, access, stopped).await {
                    tracing::error!(%error, "stopped serving the API");
                }
            }
            Err(error) => tracing::error!(%error, "cannot listen for the API"),
        },
        _ => {
            drop(listening);
            stopped.await;
            state.end_streams();
        }
    }
    drop(end);
    if let Some(daemon) = daemon {
        // It ends at once.
        let _ = daemon.await;
    }
    if let Err(error) = std::fs::remove_file(data.join(control_socket::API)) {
        tracing::debug!(%error, "cannot remove the socket for a node's daemon");
    }
}

/// Begins to serve the requests that a node's daemon passes on, until the other end of `ended` is
/// dropped. `None` if that cannot be.
fn serve_daemon(
    data: &Path,
    state: AppState,
    ended: oneshot::Receiver<()>,
) -> Option<tokio::task::JoinHandle<()>> {
    let ended = async {
        let _ = ended.await;
    };
    match daemon_socket(data) {
        Ok(socket) => Some(tokio::spawn(weir_api::serve_daemon(socket, state, ended))),
        Err(error) => {
            tracing::error!("cannot serve the API to a node's daemon: {error:#}");
            None
        }
    }
}

/// Listens for the requests that a node's daemon passes on.
fn daemon_socket(data: &Path) -> Result<tokio::net::UnixListener> {
    let listener = control_socket::listen_in(data, control_socket::API)?;
    listener.set_nonblocking(true)?;
    Ok(tokio::net::UnixListener::from_std(listener)?)
}

/// Returns the address of the catalog: the one that was given, or the folder's own.
///
/// # Errors
/// As [`in_folder`].
pub fn catalog(given: Option<&str>, data: &Path) -> Result<String> {
    match given {
        Some(url) => Ok(url.to_owned()),
        None => in_folder(data),
    }
}

/// Returns an event loop for what a command asks of the catalog.
///
/// # Errors
/// The system cannot make one.
pub fn event_loop() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting an event loop")
}

/// The catalog of `data`.
pub fn in_folder(data: &Path) -> Result<String> {
    let path = std::path::absolute(data)?.join("catalog.db");
    let path = path.to_str().context(
        "cannot name the catalog: path of the data folder is not UTF-8 (pass --catalog)",
    )?;
    Ok(format!(
        "sqlite://{}",
        percent::escaped(path, percent::PATH)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_of_any_folder_has_a_url() {
        assert_eq!(
            in_folder(Path::new("/a b/50%?")).unwrap(),
            "sqlite:///a%20b/50%25%3F/catalog.db"
        );
    }
}
