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
use crate::control::described::{self, Server};
use crate::control::plane::{self, ApiListener, Parts, Plane};
use crate::protocols::rpcbind::Registration;
use crate::serve::announce::{Paint, Ready};
use weir_net::{self as net, Connected, Cores, Ledger, Reserved, Settings, Wakeups};
use weir_node::health::Health;
use weir_node::metrics::Sampler;
use weir_node::size::Size;
use weir_node::watch::Watch;
use weir_node::{os, port};
use weir_pair_node::{Pair, Serving};

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

/// Serves until a signal ends it.
fn run(args: &Serve) -> Result<()> {
    let mask = os::own_files_only();
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
    let memory = memory(args)?;
    let (first, aggregate) = preflight::check(args)?;
    let moving = weir_pair_node::Config::read(&args.data)?
        .map_or_else(|| args.address.clone(), |config| config.addresses);
    // It is not there yet, and may not be for long.
    let early = |at: SocketAddr| moving.iter().any(|address| address.ip == at.ip());
    predecessor::wait(&args.data);
    let listener = net::reserve(args.nfs, early(args.nfs)).map_err(|error| {
        let next = "stop it, or pass --nfs ADDR:PORT";
        port::refused(args.nfs, "NFS", next, &error)
    })?;
    let address = listener.address();
    let instances = instances::reserve(args.instance_addresses, address)?;

    let smb = match args.smb {
        ApiAddress::Off => None,
        ApiAddress::At(wanted) => Some(net::reserve(wanted, early(wanted)).map_err(|error| {
            let next = "stop it, or pass --smb ADDR:PORT or --smb off";
            port::refused(wanted, "SMB", next, &error)
        })?),
    };
    let smb_address = smb.as_ref().map(Reserved::address);

    let door = ApiListener::open(args)?;
    let peers = plane::peers(args.replication)?;

    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let cores = os::cores();
    let wakeups = Wakeups::new(cores);
    let whole = memory;
    let memory = Size(memory.0 - MEMORY_FIXED);
    let network = memory.0 / NETWORK_SHARE;
    let starting = begin("opening the data folder")?;
    let rest = Size(memory.0 - network);
    let opened = storage::Opened::open(args, &aggregate, rest, &clock, &starting)?;
    if let Some(pair) = &opened.pair {
        // No port is listened at meanwhile.
        starting.stands_by(PAIR_WAITS);
        pair.settle();
        starting.goes_on("taking over");
    }
    let mut storage =
        storage::Storage::over(opened, args, (whole, Size(network)), &clock, &wakeups)?;
    let pair = storage.pair();

    let registration = match args.no_rpcbind {
        true => Registration::default(),
        false => Registration::register(address),
    };
    let mounts = Mounts {
        nfs: address,
        smb: smb_address.map(|address| address.port()),
        registered: registration.has_locks(),
    };
    let metrics = storage.metrics();
    let connected = Arc::<Connected>::default();
    let counted = Arc::clone(&connected);
    let api_certificate = Arc::<OnceLock<PathBuf>>::default();
    let (dated, nfs_certificate) = (Arc::clone(&api_certificate), args.nfs_tls_cert.clone());
    let ports = [("nfs", Some(address.port())), ("smb", mounts.smb)];
    let health = Arc::new(Health::new(storage.engine()));
    let others = storage.others();
    let (shown, member) = (others.clone(), others.member.clone());
    let (ill, problems) = (Arc::clone(&health), Arc::clone(&health));
    let plane = Plane::start(
        &Parts {
            args,
            node: storage.node(),
            clock: Arc::clone(&clock),
            mounts,
            smb: storage.smb(),
            copy: storage.catalog_copy(),
            pair: pair.clone(),
            device_bytes: storage.device_bytes(),
            counters: storage.counters(),
            metrics: Arc::new(move || {
                let (ill, shown) = (Arc::clone(&ill), shown.clone());
                let connections = described::connections(&counted, &ports);
                let certificates = described::certificates(&[
                    ("api", dated.get().map(PathBuf::as_path)),
                    ("nfs", nfs_certificate.as_deref()),
                ]);
                let rest = move || ill.render() + &connections + &certificates + &shown.render();
                Box::new(metrics.pieces().chain(std::iter::once_with(rest)))
            }),
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

    // A server that takes over from here on has to have them.
    storage.keep_files()?;
    let live = storage.live();
    let certificate = plane.tls().map(|tls| tls.certificate);
    if let Some(path) = &certificate {
        // Once a start.
        let _ = api_certificate.set(path.clone());
    }
    let described = Server {
        clock: Arc::clone(&clock),
        began: clock.now().secs,
        addresses: served(args, address, smb_address, &plane),
        protocols: match smb_address {
            Some(_) => vec!["NFSV3", "NFSV4", "SMB"],
            None => vec!["NFSV3", "NFSV4"],
        },
        certificate: certificate.clone(),
        memory: whole,
        folder: std::path::absolute(&args.data).unwrap_or_else(|_| args.data.clone()),
        engine: storage.engine(),
        control: plane.control(),
    };
    described::begin(&live, pair.clone(), described);
    let finder = Finder::new(conditions::Sources {
        live,
        engine: storage.engine(),
        health: Arc::clone(&health),
        vfs: storage.node().vfs(),
        control: plane.control(),
        replication: plane.replication().context("replication")?,
        pair: pair.clone(),
        member,
        certificate,
        scrubs: storage.metrics().scrubs(),
    });
    let each_second = each_second(finder, storage.take_directory());
    let sampler = Sampler::start(storage.metrics(), Arc::clone(&clock), each_second)?;

    let watch = match storage.watched() {
        Some((files, room)) => {
            let catalog = plane.catalog_file();
            let control = plane.control();
            Some(Watch::start(
                files,
                catalog.as_deref(),
                room,
                health,
                control,
            )?)
        }
        None => None,
    };

    let settings = Settings {
        cores,
        ledger: Ledger::new(
            usize::try_from(network).unwrap_or(usize::MAX),
            usize::try_from(descriptors).unwrap_or(usize::MAX),
        ),
        connected: Arc::clone(&connected),
        stall: args.stall.map_or(limits::STALL, Duration::from_secs),
        clock,
    };
    let status = format!("serving on {address}");
    let rpc = storage.rpc();
    let event_loops = Cores::start(&settings, &wakeups, &storage.protocols())
        .context("starting the event loops")?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the event loop")?;
    let tasks = tokio::task::LocalSet::new();
    let stop: Result<&'static str> = tasks.block_on(&runtime, async {
        let (mut term, mut int) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let hangups = signal(SignalKind::hangup())?;
        tokio::task::spawn_local(reload::on_hangup(hangups, rpc, plane.tls(), status.clone()));
        if let Some(interval) = notify::watchdog() {
            tokio::task::spawn_local(watchdog(interval, wakeups.clone()));
        }
        // From here on requests are taken, and none that was sent before.
        let listener = listener.listen().with_context(|| format!("cannot listen on {address}"))?;
        tokio::spawn(net::accept(
            listener,
            event_loops.queues(),
            storage::Wire::Rpc,
        ));
        for listener in instances::listen(instances)? {
            let queues = event_loops.queues();
            tokio::spawn(net::accept(listener, queues, storage::Wire::Rpc));
        }
        if let Some(block) = args.instance_addresses {
            instances::report(block);
        }
        if let Some(listener) = smb {
            let listener = listener.listen().context("cannot listen for SMB")?;
            let (queues, wire) = (event_loops.queues(), storage::Wire::Smb);
            tokio::spawn(net::accept(listener, queues, wire));
            let service = storage.smb();
            tokio::task::spawn_local(async move {
                let mut tick = tokio::time::interval(Duration::from_secs(1));
                loop {
                    tick.tick().await;
                    service.tick();
                }
            });
        }
        let datagrams = net::datagrams(address, early(address), storage.rpc(), Arc::clone(&settings.clock), weir_nfs::rpc::is_for_datagrams);
        match datagrams {
            Ok(serving) => {
                tokio::task::spawn_local(serving);
            }
            Err(error) => tracing::warn!(
                "cannot bind UDP port {}: {} (clients of NFSv3 that restart keep their locks until it is free and Weir restarts)",
                address.port(),
                port::reason(address, port::UDP, &error)
            ),
        }
        tokio::task::spawn_local(callbacks::run(storage.service()));
        let here = tokio::runtime::Handle::current();
        let run = move |work| drop(here.spawn(work));
        storage.service().run_in_background(Arc::new(run));
        let ready = Ready {
            mounts,
            api: plane.api(),
            smb: smb_address,
            created: (first && storage.is_new()).then(|| storage.created(args)),
            exports: &storage.node().exports(),
        };
        others.serve(Serving {
            control: plane.control(),
            connections: Arc::new(PairConnections(Arc::clone(&connected))),
            counters: storage.counters(),
        })?;
        drop(starting);
        announce(&ready, args, mask)?;
        notify::ready(&status);
        let signal = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
            () = others.switched() => SWITCH,
        };
        Ok(signal)
    });
    let running = Running {
        registration,
        watch,
        sampler,
        plane,
        event_loops,
        pair,
        storage,
    };
    running.stop(stop)
}

/// A server that runs.
struct Running {
    registration: Registration,
    watch: Option<Watch>,
    sampler: Sampler,
    plane: Plane,
    event_loops: Cores<storage::Wire>,
    pair: Option<Arc<Pair>>,
    storage: storage::Storage,
}

impl Running {
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
        self.storage.node().stop_backups();
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

fn begin(status: &'static str) -> Result<notify::Starting> {
    notify::Starting::begin(status).context("starting a thread")
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
fn announce(ready: &Ready<'_>, args: &Serve, mask: u32) -> Result<()> {
    let mut out = std::io::stdout().lock();
    // Standard output may have no reader; that is no reason to stop serving.
    let text = ready.text(Paint::of(&out));
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
