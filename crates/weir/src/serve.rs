//! `weir serve`: from a data folder to answered requests, and back to rest.
//!
//! The order of starting is: the options and the files that they name, the addresses (one in use
//! must not touch the data; nobody can connect before the end), the data folder (its lock refuses a
//! second server), the control plane (what the catalog says is made so and exported), the event
//! loops, the listeners, rpcbind, the lines that say so. Stopping begins with the control plane,
//! goes backwards from there, and ends with a checkpoint, so that the next start has no log to
//! replay.

pub mod announce;
pub mod pair_connections;
pub mod preflight;
pub mod reload;
pub mod storage;

use std::fs::Permissions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use weir_api::Mounts;
use weir_base::limits::net as limits;
use weir_base::{Clock, SystemClock};

use crate::cli::Serve;
use crate::cli::endpoint::ApiAddress;
use crate::cluster_directory::Follower;
use crate::control::conditions::{self, Finder};
use crate::control::descriptions::{self, Server};
use crate::control::plane::{self, ApiListener, Parts, Plane};
use crate::protocols::rpcbind::Registration;
use crate::serve::announce::{Paint, ServerFacts};
use weir_net::{
    self as net, ConnectionRegistry, Cores, Ledger, ReservedAddress, Settings, Wakeups,
};
use weir_node::health::Health;
use weir_node::metrics::Sampler;
use weir_node::size::Size;
use weir_node::watch::Watch;
use weir_node::{os, port};
use weir_pair_node::{Pair, ServiceParts};

use crate::aggregate::standby;
use crate::cli::usage;
use crate::control::instances;
use crate::process::{notify, predecessor};
use crate::protocols::callbacks;
use crate::serve::pair_connections::PairConnections;

/// Memory to use when the options do not say: this part of the machine's.
const MEMORY_SHARE: u64 = 4;

/// The least memory that a server can work with.
const MEMORY_LEAST: Size = Size(64 << 20);

/// The most: page frames are numbered with 32 bits.
const MEMORY_MOST: Size = Size(15 << 40);

/// Bytes that the process takes before it does anything: its code, threads, the allocator's
/// reserves.
const MEMORY_FIXED: u64 = 24 << 20;

/// The part of the memory that connections may hold: requests and answers under way.
const NETWORK_SHARE: u64 = 8;

/// Why a server stops whose partner or standby is to serve.
const SWITCH: &str = "another server takes over";

/// Status of a node of a pair that does not serve.
const PAIR_WAITS: &str = "waiting to serve: the partner of the pair does, or it is not decided yet";

/// Serves until a signal ends it, or only checks the settings if that is asked for.
pub fn serve(args: &Serve) -> Result<()> {
    match args.check_config {
        true => check(args),
        false => standby::ended_well(run(args)),
    }
}

/// Checks the settings: values, files that they name, and options that exclude each other.
fn check(args: &Serve) -> Result<()> {
    memory(args)?;
    preflight::options(args)?;
    println!("the settings are valid");
    Ok(())
}

/// Addresses that are taken before the data is touched. Nobody can connect to them yet.
struct Ports {
    nfs: ReservedAddress,
    /// True if the machine may not have the address of NFS yet, or for long.
    early: bool,
    /// Addresses of single Filestore instances.
    instances: Vec<ReservedAddress>,
    smb: Option<ReservedAddress>,
}

impl Ports {
    /// Takes the addresses, once a server that ran before has left them.
    fn reserve(args: &Serve) -> Result<Ports> {
        let moving = weir_pair_node::Config::read(&args.data)?
            .map_or_else(|| args.address.clone(), |config| config.addresses);
        let early = |at: SocketAddr| moving.iter().any(|address| address.ip == at.ip());
        predecessor::wait(&args.data);
        let nfs = net::reserve(args.nfs, early(args.nfs)).map_err(|error| {
            let next = "stop it, or pass --nfs ADDR:PORT";
            port::refused(args.nfs, "NFS", next, &error)
        })?;
        let instances = instances::reserve(args.instance_addresses, nfs.address())?;
        let smb = match args.smb {
            ApiAddress::Off => None,
            ApiAddress::At(wanted) => {
                Some(net::reserve(wanted, early(wanted)).map_err(|error| {
                    let next = "stop it, or pass --smb ADDR:PORT or --smb off";
                    port::refused(wanted, "SMB", next, &error)
                })?)
            }
        };
        Ok(Ports {
            early: early(args.nfs),
            nfs,
            instances,
            smb,
        })
    }
}

/// Parts of a server that its metrics, its conditions and the console show.
struct ServerParts {
    clock: Arc<dyn Clock>,
    connected: Arc<ConnectionRegistry>,
    health: Arc<Health>,
    mounts: Mounts,
    smb: Option<SocketAddr>,
    /// File of the API's certificate, known once the control plane has started.
    api_certificate: Arc<OnceLock<PathBuf>>,
}

/// Serves until a signal ends it.
fn run(args: &Serve) -> Result<()> {
    let mask = os::own_files_only();
    let descriptors = descriptors()?;
    let whole = memory(args)?;
    let (first, aggregate) = preflight::check(args)?;
    let ports = Ports::reserve(args)?;
    let (address, smb) = (
        ports.nfs.address(),
        ports.smb.as_ref().map(ReservedAddress::address),
    );
    let door = ApiListener::open(args)?;
    let (peers, transfers) = plane::peers(args)?;

    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let wakeups = Wakeups::new(os::cores());
    let memory = whole.0 - MEMORY_FIXED;
    let network = memory / NETWORK_SHARE;
    let starting = begin("opening the data folder")?;
    let opened =
        storage::OpenedStorage::open(args, &aggregate, Size(memory - network), &clock, &starting)?;
    if let Some(pair) = &opened.pair {
        // No port is listened at meanwhile.
        starting.stands_by(PAIR_WAITS);
        pair.wait_to_serve();
        starting.goes_on("taking over");
    }
    let room = (whole, Size(network), transfers);
    let mut storage = storage::Storage::from_opened(opened, args, room, &clock, &wakeups)?;
    let registration = match args.no_rpcbind {
        true => Registration::default(),
        false => Registration::register(address),
    };
    let parts = ServerParts {
        clock,
        connected: Arc::default(),
        health: Arc::new(Health::new(storage.engine())),
        mounts: Mounts {
            nfs: address,
            smb: smb.map(|address| address.port()),
            registered: registration.has_locks(),
        },
        smb,
        api_certificate: Arc::default(),
    };
    let plane = start_plane(args, &storage, &parts, door, peers)?;
    // A server that takes over from here on has to have them.
    storage.keep_files()?;
    describe(args, &storage, &plane, &parts, whole);
    let sampler = start_sampler(&mut storage, &plane, &parts)?;
    let watch = start_watch(&mut storage, &plane, &parts)?;
    let settings = settings(args, network, descriptors, &parts);
    let event_loops = Cores::start(&settings, &wakeups, &storage.protocols())
        .context("starting the event loops")?;
    let running = RunningServer {
        registration,
        watch,
        sampler,
        plane,
        event_loops,
        pair: storage.pair(),
        storage,
    };
    let ready = |running: &RunningServer| {
        drop(starting);
        running.announce(args, &parts, first, mask)
    };
    let runtime = plane::event_loop()?;
    let tasks = tokio::task::LocalSet::new();
    let serving = running.serve(args, ports, &parts, &wakeups, ready);
    let stop = tasks.block_on(&runtime, serving);
    // The listeners are in the runtime, and are closed after all else.
    running.stop(stop)
}

/// Raises the limit of open files as far as it goes, and returns it.
fn descriptors() -> Result<u64> {
    let descriptors = os::raise_descriptor_limit();
    anyhow::ensure!(
        descriptors >= limits::LEAST_DESCRIPTORS,
        "cannot serve with {descriptors} open files: {} are the least (raise the limit: `ulimit -n 65536`, LimitNOFILE=65536 in a unit of systemd)",
        limits::LEAST_DESCRIPTORS
    );
    if descriptors < 16_384 {
        tracing::warn!(
            "only {descriptors} files may be open at once: {} are for the server, and the rest for connections",
            limits::OWN_DESCRIPTORS
        );
    }
    Ok(descriptors)
}

/// Returns the settings of the event loops, whose connections may hold `network` bytes.
fn settings(args: &Serve, network: u64, descriptors: u64, parts: &ServerParts) -> Settings {
    Settings {
        cores: os::cores(),
        ledger: Ledger::new(
            usize::try_from(network).unwrap_or(usize::MAX),
            usize::try_from(descriptors).unwrap_or(usize::MAX),
        ),
        connected: Arc::clone(&parts.connected),
        stall: args.stall.map_or(limits::STALL, Duration::from_secs),
        clock: Arc::clone(&parts.clock),
    }
}

/// Starts the control plane, and its API at `door`.
fn start_plane(
    args: &Serve,
    storage: &storage::Storage,
    parts: &ServerParts,
    door: Option<ApiListener>,
    peers: Option<ReservedAddress>,
) -> Result<Plane> {
    let problems = Arc::clone(&parts.health);
    let plane = Plane::start(
        &Parts {
            args,
            node: storage.node(),
            clock: Arc::clone(&parts.clock),
            mounts: parts.mounts,
            smb: storage.smb(),
            copy: storage.catalog_copy(),
            pair: storage.pair(),
            device_bytes: storage.device_bytes(),
            counters: storage.counters(),
            metrics: metrics(args, storage, parts),
            problems: Arc::new(move || {
                let problems = problems.problems().into_iter();
                let problem = |p: weir_node::health::Problem| weir_api::Problem {
                    about: p.about.as_str(),
                    fatal: p.fatal,
                    message: p.why,
                };
                problems.map(problem).collect()
            }),
            engine: storage.engine(),
            live: storage.live(),
        },
        door,
        peers,
    )?;
    if let Some(tls) = plane.tls() {
        // Once a start.
        let _ = parts.api_certificate.set(tls.certificate);
    }
    Ok(plane)
}

/// Returns what `/metrics` is made of.
fn metrics(args: &Serve, storage: &storage::Storage, parts: &ServerParts) -> weir_api::Metrics {
    let ports = [
        ("nfs", Some(parts.mounts.nfs.port())),
        ("smb", parts.mounts.smb),
    ];
    let (metrics, others) = (storage.metrics(), storage.others());
    let (health, connected) = (Arc::clone(&parts.health), Arc::clone(&parts.connected));
    let (api, nfs) = (
        Arc::clone(&parts.api_certificate),
        args.nfs_tls_cert.clone(),
    );
    Arc::new(move || {
        let (health, others) = (Arc::clone(&health), others.clone());
        let connections = descriptions::connections(&connected, &ports);
        let certificates = descriptions::certificates(&[
            ("api", api.get().map(PathBuf::as_path)),
            ("nfs", nfs.as_deref()),
        ]);
        let rest = move || health.render() + &connections + &certificates + &others.render();
        Box::new(metrics.pieces().chain(std::iter::once_with(rest)))
    })
}

/// Describes the server to the console and to clients of the API.
fn describe(
    args: &Serve,
    storage: &storage::Storage,
    plane: &Plane,
    parts: &ServerParts,
    memory: Size,
) {
    let server = Server {
        clock: Arc::clone(&parts.clock),
        began: parts.clock.current_time().secs,
        addresses: served(args, parts.mounts.nfs, parts.smb, plane),
        protocols: match parts.smb {
            Some(_) => vec!["NFSV3", "NFSV4", "SMB"],
            None => vec!["NFSV3", "NFSV4"],
        },
        certificate: parts.api_certificate.get().cloned(),
        memory,
        folder: std::path::absolute(&args.data).unwrap_or_else(|_| args.data.clone()),
        engine: storage.engine(),
        control: plane.control(),
    };
    descriptions::begin(&storage.live(), storage.pair(), server);
}

/// Starts what measures, and looks for conditions, once a second.
fn start_sampler(
    storage: &mut storage::Storage,
    plane: &Plane,
    parts: &ServerParts,
) -> Result<Sampler> {
    let finder = Finder::new(conditions::Sources {
        live: storage.live(),
        engine: storage.engine(),
        health: Arc::clone(&parts.health),
        vfs: storage.node().vfs(),
        control: plane.control(),
        replication: plane.replication().context("replication")?,
        pair: storage.pair(),
        member: storage.others().member,
        certificate: parts.api_certificate.get().cloned(),
        scrubs: storage.metrics().scrubs(),
    });
    let each_second = each_second(finder, storage.take_directory());
    Sampler::start(storage.metrics(), Arc::clone(&parts.clock), each_second)
}

/// Starts what watches the data folder and the catalog, if they are files.
fn start_watch(
    storage: &mut storage::Storage,
    plane: &Plane,
    parts: &ServerParts,
) -> Result<Option<Watch>> {
    let Some((files, room)) = storage.watched() else {
        return Ok(None);
    };
    let (catalog, health) = (plane.catalog_file(), Arc::clone(&parts.health));
    Watch::start(files, catalog.as_deref(), room, health, plane.control()).map(Some)
}

/// A server that runs.
struct RunningServer {
    registration: Registration,
    watch: Option<Watch>,
    sampler: Sampler,
    plane: Plane,
    event_loops: Cores<storage::Wire>,
    pair: Option<Arc<Pair>>,
    storage: storage::Storage,
}

impl RunningServer {
    /// Takes requests until a signal ends the server; returns its name. `ready` is called once
    /// clients can connect.
    async fn serve(
        &self,
        args: &Serve,
        ports: Ports,
        parts: &ServerParts,
        wakeups: &Wakeups,
        ready: impl FnOnce(&RunningServer) -> Result<()>,
    ) -> Result<&'static str> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let hangups = signal(SignalKind::hangup())?;
        let status = format!("serving on {}", parts.mounts.nfs);
        let (rpc, tls) = (self.storage.rpc(), self.plane.tls());
        tokio::task::spawn_local(reload::on_hangup(hangups, rpc, tls, status.clone()));
        if let Some(interval) = notify::watchdog() {
            tokio::task::spawn_local(watchdog(interval, wakeups.clone()));
        }
        self.listen(args, ports, parts)?;
        tokio::task::spawn_local(callbacks::run(self.storage.service()));
        let here = tokio::runtime::Handle::current();
        let run = move |work| drop(here.spawn(work));
        self.storage.service().run_in_background(Arc::new(run));
        let others = self.storage.others();
        others.serve(ServiceParts {
            control: self.plane.control(),
            connections: Arc::new(PairConnections(Arc::clone(&parts.connected))),
            counters: self.storage.counters(),
        })?;
        ready(self)?;
        notify::ready(&status);
        Ok(tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
            () = others.switched() => SWITCH,
        })
    }

    /// Listens for clients. From here on requests are taken, and none that was sent before.
    fn listen(&self, args: &Serve, ports: Ports, parts: &ServerParts) -> Result<()> {
        let address = ports.nfs.address();
        let accept = |listener, wire| {
            tokio::spawn(net::accept(listener, self.event_loops.queues(), wire));
        };
        let listener = ports.nfs.listen();
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        accept(listener, storage::Wire::Rpc);
        for listener in instances::listen(ports.instances)? {
            accept(listener, storage::Wire::Rpc);
        }
        if let Some(block) = args.instance_addresses {
            instances::report(block);
        }
        if let Some(listener) = ports.smb {
            let listener = listener.listen().context("cannot listen for SMB")?;
            accept(listener, storage::Wire::Smb);
            let service = self.storage.smb();
            tokio::task::spawn_local(async move {
                let mut tick = tokio::time::interval(Duration::from_secs(1));
                loop {
                    tick.tick().await;
                    service.tick();
                }
            });
        }
        let (rpc, clock) = (self.storage.rpc(), Arc::clone(&parts.clock));
        let is_served = weir_nfs::rpc::is_for_datagrams;
        match net::datagrams(address, ports.early, rpc, clock, is_served) {
            Ok(serving) => {
                tokio::task::spawn_local(serving);
            }
            Err(error) => tracing::warn!(
                "cannot bind UDP port {}: {} (clients of NFSv3 that restart keep their locks until it is free and Weir restarts)",
                address.port(),
                port::reason(address, port::UDP, &error)
            ),
        }
        Ok(())
    }

    /// Tells people and scripts that the server is ready. `first`: the start made the data folder.
    fn announce(&self, args: &Serve, parts: &ServerParts, first: bool, mask: u32) -> Result<()> {
        let created = first && self.storage.is_new();
        let ready = ServerFacts {
            mounts: parts.mounts,
            api: self.plane.api(),
            smb: parts.smb,
            created: created.then(|| self.storage.created(args)),
            exports: &self.storage.node().exports(),
        };
        announce(&ready, args, mask)
    }

    /// Stops everything, the last part that was started first; `why` is the reason, or the error
    /// that ends the server.
    fn stop(self, why: Result<&'static str>) -> Result<()> {
        // Clients are not to come here any more before nobody listens, or they would be refused.
        self.storage.others().end();
        drop(self.registration);
        notify::notify("STOPPING=1\nSTATUS=writing a checkpoint");
        tracing::info!(
            "{}: stopping",
            why.as_ref().map_or("error", |signal| signal)
        );
        // SQLite deletes its log when the catalog is closed.
        drop(self.watch);
        drop(self.sampler);
        // No more changes from outside; what was begun is in the catalog.
        self.storage.node().stop_jobs();
        drop(self.plane);
        self.event_loops.stop();
        // No client claims anything any more: what each has is known.
        self.storage.service().list_claims();
        if let Some(pair) = &self.pair {
            pair.leave();
        }
        let stands_by = self.storage.others().stand_by();
        self.storage.close()?;
        tracing::info!("clean shutdown, log empty");
        if matches!(why, Ok(SWITCH)) && stands_by {
            weir_pair_node::begin_anew("another server serves from now on");
        }
        why.map(|_| ())
    }
}

/// Returns the work that is done once a second: `finder` looks for conditions, and the directory of
/// the cluster is read if it has changed.
fn each_second(
    mut finder: Finder,
    mut directory: Option<Follower>,
) -> impl FnMut(u64) + Send + 'static {
    move |at| {
        finder.find(at);
        if let Some(directory) = &mut directory {
            directory.poll();
        }
    }
}

fn begin(status: &'static str) -> Result<notify::StartProgress> {
    notify::StartProgress::begin(status).context("starting a thread")
}

/// Returns what is served, and at which addresses.
fn served(
    args: &Serve,
    nfs: SocketAddr,
    smb: Option<SocketAddr>,
    plane: &Plane,
) -> Vec<(&'static str, String)> {
    let replication = match args.replication {
        ApiAddress::At(address) => Some(address.to_string()),
        ApiAddress::Off => None,
    };
    let all = [
        ("NFS", Some(nfs.to_string())),
        ("SMB", smb.map(|smb| smb.to_string())),
        ("API", plane.api().map(str::to_owned)),
        ("REPLICATION", replication),
    ];
    all.into_iter()
        .filter_map(|(protocol, address)| Some((protocol, address?)))
        .collect()
}

/// Tells the service manager that every event loop turns, twice in `interval`; while one does not,
/// it hears nothing.
async fn watchdog(interval: Duration, wakeups: Wakeups) {
    let mut tick = tokio::time::interval(interval / 2);
    let mut before = Vec::new();
    loop {
        tick.tick().await;
        let beats = wakeups.beats();
        let stuck = before
            .iter()
            .zip(&beats)
            .position(|(before, now)| before == now);
        match stuck {
            None => notify::notify("WATCHDOG=1"),
            Some(core) => {
                tracing::error!("event loop {core} has not turned for {:?}", interval / 2)
            }
        }
        before = beats;
    }
}

fn memory(args: &Serve) -> Result<Size> {
    let usable = os::usable_memory();
    let memory = match (args.memory, usable) {
        (Some(memory), _) => memory,
        (None, Some(usable)) => Size(usable.0 / MEMORY_SHARE),
        (None, None) => Size(1 << 30),
    };
    if !(MEMORY_LEAST..=MEMORY_MOST).contains(&memory) {
        return Err(usage::error(format!(
            "cannot use --memory {memory}: it must be {MEMORY_LEAST} to {MEMORY_MOST}, and at most the machine's"
        )));
    }
    if let Some(usable) = usable.filter(|usable| memory > *usable) {
        tracing::warn!("--memory {memory} is more than the {usable} that this machine has");
    }
    Ok(memory)
}

/// Prints what a user needs next and writes the ready file, which may be read by the users that
/// `mask` lets.
fn announce(ready: &ServerFacts<'_>, args: &Serve, mask: u32) -> Result<()> {
    let mut out = std::io::stdout().lock();
    // Standard output may have no reader; that is no reason to stop serving.
    let text = ready.text(Paint::from_terminal(&out));
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    if let Some(path) = &args.ready_file {
        let mode = Permissions::from_mode(0o666 & !mask);
        let smb = ready.smb.map_or(String::new(), |at| format!("smb {at}\n"));
        let written = std::fs::write(path, format!("{}\n{smb}", ready.mounts.nfs))
            .and_then(|()| std::fs::set_permissions(path, mode));
        match written {
            // The file is for scripts; serving is what frees space.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                tracing::error!(%error, "cannot write {}; serving without it", path.display());
            }
            other => other.with_context(|| format!("writing {}", path.display()))?,
        }
    }
    Ok(())
}
