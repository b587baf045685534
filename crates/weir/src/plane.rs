//! The control plane within the server: its catalog, its API, and the thread that both run on.
//!
//! They have a thread and an event loop of their own, and a few threads for work that waits for
//! disks. A burst of changes, a slow catalog or a faulty peer then costs the event loops that serve
//! data only a share of the processor. These threads have a lower priority ([`weir_base::nice`]),
//! which the threads that they start inherit: start a thread that needs its full share elsewhere.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use weir_api::live::Live;
use weir_api::{Access, AppState, Benchmarks, Metrics, Mounts, Problems, Tls};
use weir_base::{Clock, Rng, SystemRng};
use weir_control::levels::Levels;
use weir_control::{Actor, CatalogCopy, Control, Options};
use weir_volume::Engine;

use crate::cli::Serve;
use crate::endpoint::ApiAddress;
use weir_net::{self as net, Reserved};
use weir_node::backend::Node;
use weir_node::counters::Counters;
use weir_node::snapshot_files::SnapshotFiles;
use weir_pair_node::Pair;

use crate::usage;
use weir_node::{device_metrics, os, port, space_metrics};
use weir_ontap_node::{AsUser, Server};
use weir_replication_node::{self as replication_node, Replication};

/// Number of threads for work that waits for the disk: as many volumes are created or deleted at
/// once. They share checkpoints and batches of the log, so more than one a core pays.
const WAITING: usize = 16;

/// A place for the API, taken but not served yet.
pub struct ApiListener {
    listener: Reserved,
    tls: Option<TlsSource>,
    token: Option<PathBuf>,
    /// The folder of benchmark reports.
    benchmarks: PathBuf,
}

enum TlsSource {
    Given(PathBuf, PathBuf),
    /// For these names, too.
    Generated(Vec<String>),
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
            benchmarks: { args.benchmarks.clone() }.unwrap_or_else(|| args.data.join("benchmarks")),
        }))
    }

    /// Returns the source of the API's certificate.
    ///
    /// # Errors
    /// If options exclude each other, or others than this machine would be served without TLS.
    fn source(args: &Serve) -> Result<Option<TlsSource>> {
        let tls = match (&args.api_tls, &args.api_tls_cert, &args.api_tls_key) {
            (None, None, None) => None,
            (None, Some(cert), Some(key)) => Some(TlsSource::Given(cert.clone(), key.clone())),
            (Some(_), None, None) => Some(TlsSource::Generated(args.api_tls_san.clone())),
            (Some(_), ..) => bail!("--api-tls generate and --api-tls-cert exclude each other"),
            _ => bail!("--api-tls-cert and --api-tls-key belong together"),
        };
        if let ApiAddress::At(wanted) = args.api {
            if !wanted.ip().is_loopback() && tls.is_none() {
                return Err(usage::error(format!(
                    "--api {wanted} is not a loopback address, and anyone who reaches the API can delete volumes: it needs TLS \
                     (--api-tls generate, or --api-tls-cert FILE --api-tls-key FILE) and a token for every client (`weir tokens create`)"
                )));
            }
        }
        Ok(tls)
    }

    /// Returns the access to the API: over loopback, or with tokens over TLS.
    async fn access(&self, data: &Path, control: &Control) -> Result<Access> {
        if let Some(path) = &self.token {
            let made = control.adopt_token(&secret_in(path)?).await;
            made.map_err(|refusal| anyhow!("{}: {}", path.display(), refusal.message))?;
        }
        let tls = match &self.tls {
            None => return Ok(Access::Loopback),
            Some(TlsSource::Given(cert, key)) => Tls::given(cert, key),
            Some(TlsSource::Generated(asked)) => Tls::generated(data, &self.names(), asked),
        };
        let tokens = control.has_tokens().await;
        ensure!(
            self.address().ip().is_loopback() || tokens.map_err(|e| anyhow!("{}", e.message))?,
            "--api {} is not a loopback address, and there is no token yet: start with --api 127.0.0.1:{port}, \
             make one with `weir tokens create NAME --role admin`, and start again (or pass --api-token-file FILE)",
            self.address(),
            port = self.address().port(),
        );
        Ok(Access::Tokens(tls.context("TLS for the API")?))
    }

    /// Returns the names and addresses by which clients may reach the API.
    fn names(&self) -> Vec<String> {
        let here = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut names: Vec<String> = here.into_iter().chain([os::host_name()]).collect();
        if !self.address().ip().is_unspecified() {
            names.push(self.address().ip().to_string());
        }
        names.sort_unstable();
        names.dedup();
        names
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
        peers: Option<Reserved>,
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
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WAITING)
            .thread_name("weir-job")
            .build()
            .context("starting the control plane")?;
        let api = door.as_ref().map(ApiListener::url);
        let catalog = options.catalog.clone();
        let (data, mounts) = (args.data.clone(), parts.mounts);
        let smb = Arc::clone(&parts.smb);
        let (pair, counters) = (parts.pair.clone(), parts.counters.clone());
        let clock = Arc::clone(&parts.clock);
        let metrics = Arc::clone(&parts.metrics);
        let problems = Arc::clone(&parts.problems);
        let engine = Arc::clone(&parts.engine);
        let live = Arc::clone(&parts.live);
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
                            let tls = match &access {
                                Some(Access::Tokens(tls)) => Some(tls.clone()),
                                _ => None,
                            };
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
                        let served = Served {
                            control: Arc::clone(&control),
                            server: Arc::new(Server {
                                control: Arc::clone(&control),
                                runtime: Handle::current(),
                                engine: Arc::clone(&engine),
                                clock,
                                name: os::host_name(),
                                counters,
                                smb: Some(smb),
                                pair,
                                replication: Arc::clone(&replication),
                            }),
                            files: Arc::clone(&files),
                            mounts,
                            metrics,
                            problems,
                            engine,
                            live,
                            listening,
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
        let peers = peers.map(Reserved::listen).transpose();
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

/// Takes the address at which other nodes connect, if there is to be one.
///
/// # Errors
/// If the address is not to be had.
pub fn peers(wanted: ApiAddress) -> Result<Option<Reserved>> {
    let ApiAddress::At(wanted) = wanted else {
        return Ok(None);
    };
    let listener = net::reserve(wanted, false).map_err(|error| {
        let next = "stop it, or pass --replication ADDR:PORT";
        port::refused(wanted, "replication", next, &error)
    })?;
    Ok(Some(listener))
}

/// Parts that the API is served from.
struct Served {
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
}

/// Serves the API, if there is one, until it is time to stop.
async fn serve(
    served: Served,
    door: Option<ApiListener>,
    access: Option<Access>,
    stopped: oneshot::Receiver<()>,
) {
    // Either way the other end is gone.
    let stopped = async {
        let _ = stopped.await;
    };
    let (Some(door), Some(access)) = (door, access) else {
        drop(served);
        return stopped.await;
    };
    let Served {
        control,
        server,
        files,
        mounts,
        metrics,
        problems,
        engine,
        live,
        listening,
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
        .with_benchmarks(Benchmarks::new(door.benchmarks))
        .with_ontap(clusters);
    let listener = match door.listener.listen() {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen for the API"),
    };
    drop(listening);
    if let Err(error) = weir_api::serve(listener, state, access, stopped).await {
        tracing::error!(%error, "stopped serving the API");
    }
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
    // What means something else in a URL.
    let mut url = "sqlite://".to_owned();
    for c in path.chars() {
        match c {
            '%' | '?' | '#' => url.push_str(&format!("%{:02X}", u32::from(c))),
            c => url.push(c),
        }
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_of_any_folder_has_a_url() {
        assert_eq!(
            in_folder(Path::new("/a b/50%?")).unwrap(),
            "sqlite:///a b/50%25%3F/catalog.db"
        );
    }
}
