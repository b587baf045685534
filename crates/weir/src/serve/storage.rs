//! From a data folder to the service that the event loops call.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use weir_base::limits::api::{LIVE_BYTES, LIVE_SHARE};
use weir_base::limits::memory::{MAX_DEFAULT_LOG, MAX_DRC, MAX_LOCK_MEMORY};

use anyhow::{Context as _, Result, anyhow, ensure};
use parking_lot::RwLock;
use tokio_rustls::rustls::ServerConfig;
use weir_api::live::Live;
use weir_auth::library::Kerberos;
use weir_base::{BLOCK_SIZE, Budget, Clock, Rng, SystemRng};
use weir_cluster::directory::Transfers;
use weir_conn::{Arrival, Begin, Outcome, RecordMarks};
use weir_control::CatalogCopy;
use weir_nfs::{ConnInfo, ReplyBuf, Service};
use weir_rados_store::{Sizes, StandbyObserver};
use weir_smb::negotiate::Protection;
use weir_store::aggregate::Location;
use weir_store::layout::MAX_BLOCKS;
use weir_store::{Aggregate, Env, FramePool, Populator};
use weir_vfs::grace::{GRACE, Records};
use weir_vfs::stats::{Cause, Stats};
use weir_vfs::throttle::{CreditLimits, Throttle};
use weir_vfs::{ExportTable, HandleKey, Vfs};
use weir_volume::{Engine, EngineOptions};

use crate::aggregate::log_device;
use crate::aggregate::place::{AggregatePlace, in_folder};
use crate::aggregate::rados::{OwnedAggregate, TakeoverOptions};
use crate::aggregate::{kept_files, standby};
use crate::cli::endpoint::ApiAddress;
use crate::cli::{Serve, SmbSigning};
use crate::cluster::{ClusterCommands, Member};
use crate::cluster_directory::{Exporter, Follower, Places};
use crate::control::{bucket, plane};
use crate::forwarder::Forwarder;
use crate::large_link::LargeLink;
use crate::process::notify::StartProgress;
use crate::protocols::reply_gate::ReplyGate;
use crate::protocols::smb::Smb;
use crate::protocols::{referrals, resolve, tls};
use crate::serve::announce::NewAggregate;
use crate::shared_limits::SharedLimits;
use crate::sign_in::accounts::{AccountCommands, Accounts};
use crate::sign_in::ad::{self, Membership};
use crate::sign_in::{domains, users};
use weir_net::{self as net, Backend, LoopSlot, Services, Wakeups};
use weir_node::backend::{self, Node};
use weir_node::backups::Backups;
use weir_node::control_socket::{Commands, Control};
use weir_node::counters::Counters;
use weir_node::data_folder;
use weir_node::metrics::Metrics;
use weir_node::room::DiskReserve;
use weir_node::scrub::Scrubber;
use weir_node::size::Size;
use weir_node::watch::Files;
use weir_node::{exports, os};
use weir_pair_node::{self as pair_node, Lease, Pair, PairCommands, ServiceParts};
use weir_peer_link::identity::Identity;

/// A new intent log has at most this part of the memory's size. Half the memory: what has been
/// logged is in memory until it is written to its place, so a much larger log would hardly ever
/// fill.
const LOG_SHARE: u64 = 2;

/// Bytes of memory that an inode at rest costs, measured as resident memory over a million.
const INODE_BYTES: u64 = 400;
/// The part of the memory that inodes at rest may take.
const INODE_SHARE: u64 = 16;
/// The part of the memory that the duplicate-request cache may take.
const DRC_SHARE: u64 = 32;
/// The part of the memory that locks and what belongs to them may take.
const LOCK_SHARE: u64 = 32;
/// The part that is left for what is allocated on the heap besides: overlays of directories,
/// log records, the allocator's own losses.
const HEAP_SHARE: u64 = 8;

/// The data folder with its engine, of which nothing is served yet.
pub struct OpenedStorage {
    /// Dropped first: a client that asks after that learns that no server answers.
    control: Control,
    /// Within it replies may leave.
    lease: Arc<Lease>,
    /// The node of a pair that this is.
    pub pair: Option<Arc<Pair>>,
    engine: Arc<Engine>,
    /// The aggregate's ownership, if it is on RADOS.
    held: Option<OwnedAggregate>,
    room: DiskReserve,
    rules: Vec<weir_vfs::Rule>,
    tls: Option<Arc<ServerConfig>>,
    rng: Arc<dyn Rng>,
    drc: u64,
    locks: u64,
    live: u64,
    pages: Populator,
}

/// Connections to other servers of the same aggregate.
#[derive(Clone)]
pub struct Others {
    /// The node of a pair that this is.
    pair: Option<Arc<Pair>>,
    /// The part in an aggregate on RADOS.
    pub member: Option<Arc<Member>>,
    /// The lease of an aggregate on RADOS.
    lease: Option<Arc<Lease>>,
    /// The way to other servers of the cluster.
    forwarder: Arc<Forwarder>,
}

impl Others {
    /// Returns their metrics.
    pub fn render(&self) -> String {
        let pair = self.pair.as_ref().map(|pair| pair.render());
        let member = self.member.as_ref().map(|member| member.render());
        let forwarded = self.forwarder.render();
        { pair.into_iter().chain(member) }
            .chain([forwarded])
            .collect()
    }

    /// Directs clients to this server.
    ///
    /// # Errors
    /// As [`Member::serve`].
    pub fn serve(&self, serving: ServiceParts) -> Result<()> {
        if let Some(pair) = &self.pair {
            pair.serve(serving);
        } else if let (Some(member), Some(lease)) = (&self.member, &self.lease) {
            member.serve(lease, serving.connections)?;
        }
        Ok(())
    }

    /// Removes the addresses by which clients come to this server.
    pub fn end(&self) {
        if let Some(pair) = &self.pair {
            pair.end();
        }
        if let Some(member) = &self.member {
            member.end();
        }
    }

    /// Waits until a user has another server serve.
    pub async fn switched(&self) {
        match (&self.pair, &self.member) {
            (Some(pair), _) => pair.switched().await,
            (None, Some(member)) => member.switched().await,
            (None, None) => std::future::pending().await,
        }
    }

    /// Returns true if this server stands by when another one serves.
    pub fn stand_by(&self) -> bool {
        self.pair.is_some()
            || self
                .member
                .as_ref()
                .is_some_and(|member| member.stands_by())
    }
}

/// The open data folder.
pub struct Storage {
    /// Dropped first: a client that asks after that learns that no server answers.
    control: Control,
    engine: Arc<Engine>,
    protocols: Arc<Protocols>,
    node: Arc<Node>,
    metrics: Arc<Metrics>,
    live: Arc<Live>,
    /// Taken when the watch over them begins.
    watched: Option<(Files, DiskReserve)>,
    /// Taken when it is polled.
    directory: Option<Follower>,
    forwarder: Arc<Forwarder>,
    pair: Option<Arc<Pair>>,
    /// The aggregate's ownership, if it is on RADOS.
    held: Option<OwnedAggregate>,
    /// Makes page frames ready for as long as this exists.
    _pages: Populator,
}

impl OpenedStorage {
    /// Opens the data folder, or makes a new aggregate in an empty one; at most `memory` is
    /// used. One of a pair begins to find out whether it is to serve ([`Pair::wait_to_serve`]).
    /// `starting` tells people how far the log has been replayed.
    pub fn open(
        args: &Serve,
        aggregate: &AggregatePlace<'_>,
        memory: Size,
        clock: &Arc<dyn Clock>,
        starting: &StartProgress,
    ) -> Result<OpenedStorage> {
        let config = pair_node::Config::read(&args.data)?;
        let rules = exports::rules(&args.export_options)?;
        if let Some(caution) = exports::caution(&rules, args.nfs.ip()) {
            tracing::warn!("{caution}");
        }
        let tls = tls::config(args, &rules)?;
        let rng: Arc<dyn Rng> = Arc::new(SystemRng);
        let drc = (memory.0 / DRC_SHARE).min(MAX_DRC);
        let locks = (memory.0 / LOCK_SHARE).min(MAX_LOCK_MEMORY);
        let inodes = memory.0 / INODE_SHARE / INODE_BYTES;
        let live = (memory.0 / LIVE_SHARE).min(LIVE_BYTES);
        let frames =
            (memory.0 - drc - locks - live - memory.0 / INODE_SHARE - memory.0 / HEAP_SHARE)
                / BLOCK_SIZE as u64;
        let env = Env {
            pool: FramePool::new(usize::try_from(frames)?)
                .context("cannot reserve memory (pass a smaller --memory)")?,
            clock: Arc::clone(clock),
            rng: Arc::clone(&rng),
        };
        let pages = Populator::start(&env.pool).context("starting a thread")?;
        let (location, mut held) =
            place(args, aggregate, memory, config.is_some(), clock, starting)?;
        let (aggregate, replay) = Aggregate::open_or_create(&location, env)?;
        starting.replays(replay.records.progress());
        // It is ours, and this process has it for itself.
        data_folder::close_to_others(&args.data)?;
        data_folder::refuse_client_file(&args.data)?;
        args.log_dir
            .as_deref()
            .map_or(Ok(()), data_folder::close_to_others)?;
        let room = DiskReserve::at_start(&args.data);
        let options = EngineOptions {
            inodes: usize::try_from(inodes)?,
            standby: config.is_some(),
            ..EngineOptions::default()
        };
        let engine = Arc::new(
            Engine::open(aggregate, replay, &*rng, options).context("opening the volumes")?,
        );
        if config.is_none() {
            pair_node::serves_by_itself(&engine, &args.data)?;
        }
        let pair = match config {
            Some(config) => {
                let catalog = plane::catalog(args.catalog.as_deref(), &args.data)?;
                Some(Pair::start(pair_node::Parts {
                    folder: args.data.clone(),
                    config,
                    engine: Arc::clone(&engine),
                    clock: Arc::clone(clock),
                    catalog: weir_control::file_of(&catalog),
                    log_ephemeral: args.log_ephemeral,
                    shipped_files: &kept_files::OF_AGGREGATE,
                })?)
            }
            None => None,
        };
        let lease = match &mut held {
            Some(held) => Some(held.finish_takeover(clock)),
            None => pair.as_ref().map(|pair| pair.lease()),
        };
        let lease = lease.unwrap_or_else(|| Arc::new(Lease::unlimited(Arc::clone(clock))));
        let control = open_control(args, held.as_mut(), pair.as_ref())?;
        Ok(OpenedStorage {
            control,
            lease,
            pair,
            engine,
            held,
            room,
            rules,
            tls,
            rng,
            drc,
            locks,
            live,
            pages,
        })
    }
}

/// Opens the bucket for backups, if the server has one.
fn open_backups(
    args: &Serve,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> Result<Option<Arc<Backups>>> {
    let bucket = bucket::open(&args.backups)?;
    Ok(bucket.map(|bucket| {
        let (rng, clock) = (Arc::clone(rng), Arc::clone(clock));
        Arc::new(Backups::new(bucket, args.data.clone(), rng, clock))
    }))
}

/// Makes the system's users and groups known to the protocols that need them.
fn name_users(args: &Serve, smb: &Smb, service: &Service, clock: &Arc<dyn Clock>) -> Result<()> {
    let serves_smb = matches!(args.smb, ApiAddress::At(_));
    if args.lookup_groups || args.nfs4_domain.is_some() || serves_smb {
        let system = Arc::new(users::System::start()?);
        if serves_smb {
            let named = users::MachineNames::new(Arc::clone(&system), Arc::clone(clock));
            smb.service().name_by(named);
        }
        if args.lookup_groups {
            service.look_groups_up(Arc::clone(&system) as Arc<dyn weir_nfs::groups::Directory>);
        }
        if let Some(domain) = &args.nfs4_domain {
            service.map_names(domain, system);
        }
    }
    Ok(())
}

impl Storage {
    /// Creates the storage of a server over an engine, with `whole` as the server's memory. Other
    /// servers of the cluster send volumes to the address `transfers`.
    /// Requests that wait for limits are held in a part of `network`, the memory of connections.
    pub fn from_opened(
        opened: OpenedStorage,
        args: &Serve,
        (whole, network, transfers): (Size, Size, Option<SocketAddr>),
        clock: &Arc<dyn Clock>,
        wakeups: &Wakeups,
    ) -> Result<Storage> {
        let (engine, rng) = (opened.engine, opened.rng);
        let backups = open_backups(args, clock, &rng)?;
        let files = Files::from_engine(Arc::clone(&engine)).context("watching the data folder")?;
        let throttle = Throttle::new(
            Arc::clone(clock),
            os::cores(),
            CreditLimits::of_budget(usize::try_from(network.0)?),
        );
        let key = HandleKey::new(
            data_folder::handle_key(&args.data, &*rng)?,
            engine.aggregate().id().0,
        );
        let locks = Budget::new(usize::try_from(opened.locks)?);
        let stats = Arc::new(Stats::classed(os::cores(), weir_node::metrics::classes()));
        let vfs = Vfs::counting(key, Arc::clone(&throttle), locks, Some(Arc::clone(&stats)));
        vfs.publish_table(ExportTable::with_addresses(args.instance_addresses));
        vfs.follow(&engine);
        resolve::start(&vfs)?;
        let records = Records::from_engine(&engine);
        let service = Service::new(weir_nfs::Config {
            vfs: Arc::clone(&vfs),
            clock: Arc::clone(clock),
            rng: Arc::clone(&rng),
            drc_bytes: usize::try_from(opened.drc)?,
            done_calls: engine.done_calls(),
            records: Arc::clone(&records),
            grace: GRACE,
            name: os::host_name(),
        });
        let accounts = Accounts::open(&args.data)?;
        let smb = Smb::new(
            weir_smb::Service::new(weir_smb::Config {
                vfs: Arc::clone(&vfs),
                clock: Arc::clone(clock),
                rng: Arc::new(SystemRng),
                users: Arc::clone(&accounts) as Arc<dyn weir_auth::users::Users>,
                name: os::host_name(),
                protection: match (args.smb_require_encryption, args.smb_signing) {
                    (true, _) => Protection::Encrypted,
                    (false, SmbSigning::Required) => Protection::Signed,
                    (false, SmbSigning::Offered) => Protection::Offered,
                },
                records,
                done_calls: engine.done_calls(),
            }),
            Arc::clone(&throttle),
            Arc::clone(&stats),
            Arc::clone(clock),
            Arc::clone(&engine),
        );
        // Before anyone is served, over whatever protocol.
        match args.smb {
            ApiAddress::At(_) => smb.service().restore(&engine.volumes()),
            ApiAddress::Off => smb.service().forget_persistent(),
        }
        deliver(&smb, &service, wakeups);
        service.refer(referrals::read(&args.nfs4_referral)?);
        let forwarder = connect_servers(&service, &vfs);
        let domains = domains::open(&args.data)?;
        smb.service().number_domains(Arc::clone(&domains));
        if let Some(keytab) = &args.krb5_keytab {
            let kerberos = Arc::new(Kerberos::start(keytab, os::cores(), &domains)?);
            if kerberos.serves_smb() {
                smb.service()
                    .accept_tickets(Some(Arc::clone(&kerberos) as _));
            }
            service.accept_contexts(kerberos);
        }
        let membership = Arc::new(Membership::new(
            &args.data,
            args.krb5_keytab.is_some(),
            domains,
            smb.service(),
            Arc::clone(&service),
        ));
        if let Err(error) = membership.reload() {
            // Who logs on with a password, and NFS by numbers, go on being served.
            tracing::error!("users of the domain that was joined cannot log on: {error:#}");
        }
        let node = Arc::new(Node::new(backend::Parts {
            engine: Arc::clone(&engine),
            vfs: Arc::clone(&vfs),
            clock: Arc::clone(clock),
            rng,
            default_rules: opened.rules,
            domains: Some(Arc::clone(&membership) as _),
            memory: Some(whole),
            overcommit: args.overcommit,
            smb_off: !matches!(args.smb, ApiAddress::At(_)),
            backups,
        }));
        name_users(args, &smb, &service, clock)?;
        follow_log(&engine, wakeups);
        let followed = Arc::clone(&service);
        let rpc = Rpc::new(
            service,
            throttle,
            stats,
            Arc::clone(clock),
            Arc::clone(&engine),
        );
        if let Some(tls) = opened.tls {
            rpc.protect(tls);
        }
        let now = u64::try_from(clock.current_time().secs).unwrap_or(0);
        let live = Arc::new(Live::new(usize::try_from(opened.live)?, now));
        let metrics = Arc::new(Metrics::new(
            Arc::clone(&vfs),
            Arc::clone(&rpc.stats),
            Arc::clone(clock),
            Arc::clone(engine.aggregate().cache()),
            Arc::clone(&live),
            (Some(followed), Some(smb.service())),
        ));
        let (held, pair) = (opened.held.as_ref(), opened.pair.as_ref());
        let asked = ad::commands::MembershipCommands {
            membership,
            next: AccountCommands {
                accounts: Arc::clone(&accounts),
                next: Scrubber::new(&engine, clock, metrics.scrubs()),
            },
        };
        let (exporter, directory) = daemon_parts(args, &vfs, &engine, transfers, clock)?;
        let commands = commands(held, pair, Some(exporter), Some(kept(held, pair, asked)));
        let control = opened.control.replace(&args.data, commands)?;
        let gate = ReplyGate::new(Arc::clone(&engine), opened.lease);
        // Who made a user since they were read could not ask for that.
        accounts.reload()?;
        Ok(Storage {
            control,
            pair: opened.pair,
            held: opened.held,
            protocols: Arc::new(Protocols::new(gate, rpc, smb)),
            engine,
            node,
            metrics,
            live,
            watched: Some((files, opened.room)),
            directory: Some(directory),
            forwarder,
            _pages: opened.pages,
        })
    }

    /// Returns what follows the directory of the cluster; once.
    pub fn take_directory(&mut self) -> Option<Follower> {
        self.directory.take()
    }

    /// The node of a pair that this is.
    pub fn pair(&self) -> Option<Arc<Pair>> {
        self.pair.clone()
    }

    /// Returns what other servers have to do with this one.
    pub fn others(&self) -> Others {
        Others {
            pair: self.pair.clone(),
            member: self.held.as_ref().map(|held| Arc::clone(held.member())),
            lease: self.held.as_ref().and_then(OwnedAggregate::lease),
            forwarder: Arc::clone(&self.forwarder),
        }
    }

    /// Returns the files that [`weir_node::watch::Watch`] polls, and room; once.
    pub fn watched(&mut self) -> Option<(Files, DiskReserve)> {
        self.watched.take()
    }

    /// Returns the services of the event loops.
    pub fn protocols(&self) -> Arc<Protocols> {
        Arc::clone(&self.protocols)
    }

    /// NFS and its companions.
    pub fn rpc(&self) -> Arc<Rpc> {
        Arc::clone(&self.protocols.rpc)
    }

    /// The SMB service itself.
    pub fn smb(&self) -> Arc<weir_smb::Service> {
        self.protocols.smb.service()
    }

    /// The metrics that `/metrics` serves.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Returns what live data is shown from.
    pub fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    /// The NFS service itself.
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.protocols.rpc.service)
    }

    /// Bytes that the device holds, or may grow to.
    pub fn device_bytes(&self) -> u64 {
        let stats = self.engine.aggregate().space().stats();
        stats.capacity() * BLOCK_SIZE as u64
    }

    /// The engine, for replication.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Returns the counters of the data path.
    pub fn counters(&self) -> Counters {
        Counters {
            stats: Arc::clone(&self.protocols.rpc.stats),
            vfs: self.node.vfs(),
        }
    }

    /// The node, for the control plane.
    pub fn node(&self) -> Arc<Node> {
        Arc::clone(&self.node)
    }

    /// Returns false if the aggregate was there before this server had it.
    pub fn is_new(&self) -> bool {
        self.held.as_ref().is_none_or(OwnedAggregate::is_new)
    }

    /// Returns what a first start has made.
    pub fn created<'a>(&self, args: &'a Serve) -> NewAggregate<'a> {
        let aggregate = self.engine.aggregate();
        let log_folder = args.log_dir.as_deref();
        let in_folder = log_folder.unwrap_or(&args.data).join("log");
        let bytes = |blocks: u64| Size(blocks * BLOCK_SIZE as u64);
        NewAggregate {
            place: match &args.rados.aggregate {
                Some(place) => format!("the aggregate {place}"),
                None => format!("the data folder {}", args.data.display()),
            },
            device: (
                bytes(aggregate.device().length()),
                Size(self.device_bytes()),
            ),
            log: match &self.held {
                Some(held) => bytes(held.log_blocks()),
                None => Size(std::fs::metadata(in_folder).map_or(0, |file| file.len())),
            },
            log_folder,
        }
    }

    /// Returns the second place of the catalog.
    pub fn catalog_copy(&self) -> Option<Arc<dyn CatalogCopy>> {
        second_place(self.held.as_ref(), self.pair.as_ref())
    }

    /// Puts the data folder's files with an aggregate that is elsewhere, and from then on those
    /// that change.
    ///
    /// # Errors
    /// As [`OwnedAggregate::keep`].
    pub fn keep_files(&mut self) -> Result<()> {
        self.held.as_mut().map_or(Ok(()), OwnedAggregate::keep)
    }

    /// Takes a last checkpoint and ends the engine.
    pub fn close(self) -> Result<()> {
        drop(self.control);
        let ended = self.engine.shutdown().map_err(|error| {
            let why = self
                .engine
                .poisoned()
                .unwrap_or_else(|| format!("{error:?}"));
            anyhow!("no last checkpoint ({why}); the next start replays the log")
        });
        // The next owner needs no catalog of before.
        let kept = self
            .held
            .as_ref()
            .map_or(Ok(()), OwnedAggregate::keep_catalog);
        ended.and(kept)
    }
}

/// Listens for commands to a server that does not serve yet.
fn open_control(
    args: &Serve,
    mut held: Option<&mut OwnedAggregate>,
    pair: Option<&Arc<Pair>>,
) -> Result<Control> {
    let commands = commands(held.as_deref(), pair, None, None);
    match held.as_mut().and_then(|held| held.take_control()) {
        Some(control) => control.replace(&args.data, commands),
        None => Control::listen(&args.data, commands),
    }
}

/// Wakes the event loops when the log is durable further on.
fn follow_log(engine: &Engine, wakeups: &Wakeups) {
    let (log, wakeups) = (engine.aggregate().log(), wakeups.clone());
    log.on_advance(Arc::new(move || wakeups.log_advanced()));
}

/// Lets services send messages that no client has asked for.
fn deliver(smb: &Smb, service: &Service, wakeups: &Wakeups) {
    let mail = wakeups.clone();
    smb.service()
        .send_with(Arc::new(move |connection, message| {
            mail.send(connection, message).is_ok()
        }));
    let mail = wakeups.clone();
    service.on_callback(Arc::new(move |connection, message| {
        mail.send(connection, message).is_ok()
    }));
}

/// Returns where a server listens, for the other servers of its cluster.
fn places(args: &Serve, transfers: Option<SocketAddr>) -> Result<Places> {
    let moving = weir_pair_node::Config::read(&args.data)?
        .map_or_else(|| args.address.clone(), |config| config.addresses);
    Ok(Places {
        nfs: args.nfs,
        smb: match args.smb {
            ApiAddress::At(address) => Some(address),
            ApiAddress::Off => None,
        },
        addresses: moving.iter().map(|address| address.ip).collect(),
        transfers: match transfers {
            Some(at) => Some(Transfers {
                at,
                fingerprint: Identity::open(&args.data)?.fingerprint,
            }),
            None => None,
        },
    })
}

/// Returns what the daemon of the node asks for, and what follows the daemon.
fn daemon_parts(
    args: &Serve,
    vfs: &Arc<Vfs>,
    engine: &Engine,
    transfers: Option<SocketAddr>,
    clock: &Arc<dyn Clock>,
) -> Result<(Exporter, Follower)> {
    let identity = engine.aggregate().id().0;
    let limits = SharedLimits::new(vfs, Arc::clone(clock));
    let exporter = Exporter::new(vfs, identity, places(args, transfers)?, Arc::clone(&limits));
    let follower = Follower::begin(&args.data, identity, Arc::clone(vfs), limits);
    Ok((exporter, follower))
}

/// Connects to the other servers of a cluster: for calls about their aggregates, and for messages
/// between constituents of large volumes.
fn connect_servers(service: &Service, vfs: &Arc<Vfs>) -> Arc<Forwarder> {
    vfs.constituents.connect(LargeLink::new(vfs));
    Forwarder::install(service, vfs)
}

/// Returns the commands of a server, with `next` as those of one that serves.
fn commands(
    held: Option<&OwnedAggregate>,
    pair: Option<&Arc<Pair>>,
    exports: Option<Exporter>,
    next: Option<Arc<dyn Commands>>,
) -> Arc<dyn Commands> {
    let pair = pair.cloned();
    Arc::new(ClusterCommands {
        member: held.map(|held| Arc::downgrade(held.member())),
        exports,
        next: Some(Arc::new(PairCommands { pair, next })),
    })
}

/// Returns the second place of the catalog and of the other files that go with the aggregate.
fn second_place(
    held: Option<&OwnedAggregate>,
    pair: Option<&Arc<Pair>>,
) -> Option<Arc<dyn CatalogCopy>> {
    let held = held.map(OwnedAggregate::catalog_copy);
    held.or_else(|| pair.map(|pair| Arc::clone(pair) as _))
}

/// Returns commands that are done once the second place has what they changed.
fn kept(
    held: Option<&OwnedAggregate>,
    pair: Option<&Arc<Pair>>,
    next: impl Commands + 'static,
) -> Arc<dyn Commands> {
    let copy = second_place(held, pair);
    Arc::new(kept_files::FileCopyCommands { copy, next })
}

/// Returns where the aggregate is, and the ownership of one on RADOS.
fn place(
    args: &Serve,
    aggregate: &AggregatePlace<'_>,
    memory: Size,
    paired: bool,
    clock: &Arc<dyn Clock>,
    starting: &StartProgress,
) -> Result<(Location, Option<OwnedAggregate>)> {
    let most = (memory.0 / LOG_SHARE).min(MAX_DEFAULT_LOG);
    if let Some((connected, place)) = aggregate.pool() {
        ensure!(
            !paired,
            "{} is a node of a pair, whose aggregate is in the folder: leave out --aggregate",
            args.data.display()
        );
        let sizes = Sizes {
            max_blocks: args
                .size
                .map_or(MAX_BLOCKS, |size| size.0 / BLOCK_SIZE as u64),
            log_bytes: most,
        };
        let catalog = args.catalog.as_deref();
        let take = |waiting: Option<&StandbyObserver<'_>>| {
            let addresses = &args.address;
            let served = TakeoverOptions { waiting, addresses };
            OwnedAggregate::take(connected, place, &args.data, catalog, sizes, clock, served)
        };
        let held = match args.standby {
            true => standby::wait(place, starting, |waiting| take(Some(waiting)))?,
            false => take(None)?,
        };
        return Ok((held.location(), Some(held)));
    }
    let mut location = in_folder(&args.data, args.log_dir.as_deref());
    if let Some(size) = args.size {
        location.max_blocks = size.0 / BLOCK_SIZE as u64;
        location.device_blocks = location.device_blocks.min(location.max_blocks);
    }
    location.log_most = most / BLOCK_SIZE as u64;
    location.pace = args.pace_disk;
    location.log_lost = log_device::is_lost(args, paired)?;
    Ok((location.into(), None))
}

/// Services of the event loops.
pub struct Protocols {
    gate: ReplyGate,
    rpc: Arc<Rpc>,
    smb: Arc<Smb>,
}

/// NFS and its companions as the event loops see them.
pub struct Rpc {
    service: Arc<Service>,
    throttle: Arc<Throttle>,
    stats: Arc<Stats>,
    clock: Arc<dyn Clock>,
    engine: Arc<Engine>,
    /// For connections that ask for it.
    tls: RwLock<Option<Arc<ServerConfig>>>,
}

impl Protocols {
    /// Over an open engine.
    pub fn new(gate: ReplyGate, rpc: Arc<Rpc>, smb: Arc<Smb>) -> Protocols {
        Protocols { gate, rpc, smb }
    }
}

impl Rpc {
    /// The service over an open engine.
    pub fn new(
        service: Arc<Service>,
        throttle: Arc<Throttle>,
        stats: Arc<Stats>,
        clock: Arc<dyn Clock>,
        engine: Arc<Engine>,
    ) -> Arc<Rpc> {
        Arc::new(Rpc {
            service,
            throttle,
            stats,
            clock,
            engine,
            tls: RwLock::new(None),
        })
    }

    /// Protects connections that ask for it from now on.
    pub fn protect(&self, tls: Arc<ServerConfig>) {
        *self.tls.write() = Some(tls);
        self.service.offer_tls();
    }
}

/// Protocol of a listener's connections.
#[derive(Clone, Copy, Debug)]
pub enum Wire {
    /// ONC RPC: NFS, MOUNT, NLM and NSM.
    Rpc,
    /// SMB.
    Smb,
}

impl Services for Protocols {
    type Log = ReplyGate;
    type Wire = Wire;

    fn log(&self) -> ReplyGate {
        self.gate.clone()
    }

    fn serve(
        &self,
        seat: LoopSlot<'_, ReplyGate>,
        stream: TcpStream,
        wire: Wire,
    ) -> io::Result<()> {
        match wire {
            Wire::Rpc => seat.serve(&self.rpc, stream),
            Wire::Smb => seat.serve(&self.smb, stream),
        }
    }

    fn background_task(&self, event_loop: usize) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        let rpc = &self.rpc;
        let (throttle, clock) = (Arc::clone(&rpc.throttle), Arc::clone(&rpc.clock));
        let pace = net::pace(throttle, event_loop, clock);
        if event_loop > 0 {
            return Some(Box::pin(pace));
        }
        let smb = self.smb.service().background();
        Some(Box::pin(async move {
            futures_util::future::join(pace, smb).await;
        }))
    }
}

impl Backend for Rpc {
    type Framing = RecordMarks;
    type Reply = ReplyBuf;
    type State = weir_nfs::v4::ConnectionState;
    type Log = ReplyGate;

    fn unasked(&self, message: Box<[u8]>) -> ReplyBuf {
        ReplyBuf::unasked(&message)
    }

    fn handle(&self, conn: &ConnInfo, record: &[u8], now: Arrival) -> Outcome<ReplyBuf> {
        self.service.handle(conn, record, now)
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.read().clone()
    }

    fn together<T>(&self, calls: impl FnOnce() -> T) -> T {
        let _gather = self.engine.aggregate().log().gather();
        calls()
    }

    fn may_read(&self, conn: &ConnInfo, cx: &mut Context<'_>) -> bool {
        self.throttle.poll_credit(conn.peer.ip(), cx)
    }

    fn begin(
        &self,
        conn: &ConnInfo,
        head: &[u8],
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Begin<ReplyBuf> {
        self.service.begin_counted(conn, head, bytes, cx)
    }

    fn reply_bound(&self, record: &[u8], reads: usize) -> usize {
        weir_nfs::reply_bound(record, reads)
    }

    fn knows(&self, conn: &ConnInfo) -> bool {
        conn.admitted.any()
    }

    fn under_pressure(&self) -> bool {
        let (held, limits) = self.throttle.held();
        held > limits.total / 8
    }

    fn answered(&self, conn: &ConnInfo, replies: &mut dyn Iterator<Item = &ReplyBuf>) {
        let done = replies.flat_map(ReplyBuf::done);
        let now = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.stats.record(conn.id, conn.peer.ip(), now, done);
    }

    fn logged(&self, conn: &ConnInfo, waited: &mut dyn Iterator<Item = (&ReplyBuf, u64)>) {
        // The first operation stands for all of a reply to several.
        let waits = waited.filter_map(|(reply, nanos)| Some((reply.done().next()?.volume, nanos)));
        self.stats.wait_all(conn.id, Cause::Log, waits);
    }

    fn ended(&self, conn: &ConnInfo) {
        self.service.connection_ended(conn);
    }
}
