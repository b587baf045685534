//! One of two nodes that keep an aggregate together: the threads, sockets and files around
//! [`weir_mirror::node`].
//!
//! A node that starts opens its engine as a standby's and asks the witness for its role
//! ([`Pair::wait_to_serve`]). The rest of the server starts over the same engine only once it is
//! durable that the node is the primary, alone. Until then nobody listens, so no request of a
//! client is queued and carried out later. A primary that loses its role does not dismantle the
//! server: the process starts again ([`begin_anew`]), which closes every client's connection, and
//! takes the role that the witness reports.
//!
//! One thread (`weir-pair`) runs the link to the partner ([`link`]), drives the rules' timers, and
//! asks the witness ([`witness`]); work that waits for the disk is done on other threads. On a
//! standby one more (`weir-standby`, [`standby`]) applies the entries.
//!
//! The state has three parts: [`rules`] (the role and its consequences for this node), [`partner`]
//! (the connection and the stream) and [`service`] (clients). Rules and partner change in one step,
//! under one lock, so that no message to the partner contradicts the role.
//!
//! A primary keeps its stream of changes also while it is alone, as far as memory allows, and a
//! copy that is exactly at a position in it resumes there ([`config::Lineage`]). Any other copy is
//! brought up first, while clients continue ([`synchronise`]).

pub mod address;
mod advance;
mod client_reports;
mod clients;
mod commands;
pub mod config;
mod connection;
mod fault;
mod feed;
mod files;
mod floating_address;
mod incoming_files;
mod lease;
mod link;
pub mod own_register;
mod pair;
mod partner;
pub mod postgres;
pub mod rados;
mod restart;
mod resync_rate;
mod rules;
mod service;
mod show;
mod shutdown;
mod standby;
mod state;
mod synchronise;
mod traffic;
mod verify;
mod witness;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, mpsc};
use weir_base::Clock;
use weir_mirror::{Node, Register, Side, Timing};
use weir_volume::Engine;

pub use address::Address;
pub use clients::{Connections, Ends};
pub use commands::PairCommands;
use config::State;
pub use config::{Config, Mode, Name};
pub use lease::Lease;
use pair::Inner;
pub use pair::Pair;
use partner::Partner;
pub use restart::begin_anew;
use rules::Rules;
use service::Service;
pub use service::ServiceParts;
pub use show::{PairHealth, PairStatus};
use standby::Standby;
use weir_peer_link::identity::Identity;

/// Interval at which the rules see time pass.
const TICK: Duration = Duration::from_millis(20);

/// Parts that a pair is started with.
pub struct Parts {
    /// The data folder.
    pub folder: PathBuf,
    /// Configuration of the pair.
    pub config: Config,
    /// Engine, open as a standby's.
    pub engine: Arc<Engine>,
    /// Clock of beats and leases.
    pub clock: Arc<dyn Clock>,
    /// Path of the catalog, if it is a file.
    pub catalog: Option<PathBuf>,
    /// True if the log is lost with its machine.
    pub log_ephemeral: bool,
    /// Names of files of the data folder that the partner needs.
    pub shipped_files: &'static [&'static str],
}

impl Pair {
    /// Starts this node of the pair: connects to the partner, and asks for its role.
    ///
    /// # Errors
    /// A file cannot be read, an address cannot be bound, or the configuration cannot work.
    pub fn start(parts: Parts) -> Result<Arc<Pair>> {
        let Parts {
            folder,
            config,
            engine,
            clock,
            catalog,
            log_ephemeral,
            shipped_files,
        } = parts;
        let side = Side::from(config.side);
        ensure!(
            config.partner.is_some(),
            "cannot start the pair: the partner's certificate is not known yet (`weir pair accept --data {} FINGERPRINT` with \
             what `weir pair join` has printed there, or `weir pair delete --data {}`)",
            folder.display(),
            folder.display()
        );
        let identity = Identity::open(&folder)?;
        let service = Service::new(config.addresses.clone(), config.address_hook.clone())?;
        let listener = listener(side, config.listen)?;
        let state = State::read(&folder)?;
        let node = Node::start(side, state.register(), Timing::default(), clock.monotonic());
        let node = as_it_ended(node, &state, &config, &engine);
        let heard = own_register::was_taken(&folder)?;
        let (ask, asked) = mpsc::unbounded_channel();
        let (note, notes) = mpsc::unbounded_channel();
        let send = Arc::new(Notify::new());
        let standby = Standby::start(&engine, &send, config.mode)?;
        let (rings, waits) = (Arc::clone(&send), Arc::clone(&standby));
        let log = engine.aggregate().log();
        log.on_advance(Arc::new(move || {
            if waits.waits() {
                rings.notify_one();
            }
        }));
        let parts = rules::Parts {
            engine: Arc::clone(&engine),
            clock: Arc::clone(&clock),
            ask,
            note,
            log_ephemeral,
            keeps_register: config.keeps_register(),
        };
        let rules = Rules::new(parts, node, state, heard);
        let pair = Arc::new(Pair {
            lease: Arc::clone(rules.lease()),
            inner: Mutex::new(Inner {
                rules,
                partner: Partner::default(),
                logged: state::LoggedState::default(),
            }),
            folder,
            config,
            identity,
            engine,
            clock,
            catalog,
            shipped_files,
            log_ephemeral,
            changed: Condvar::new(),
            send,
            standby,
            service,
            round: Mutex::default(),
            shipped: tokio::sync::Mutex::default(),
            rados: rados::Client::default(),
        });
        pair.service.run_hook("remove");
        pair.keep_addresses()?;
        let runs = Arc::clone(&pair);
        start_thread(async move {
            tokio::join!(
                runs.pass_time(),
                link::run(&runs, listener),
                witness::run(&runs, asked),
                runs.note_all(notes),
                files::ship(&runs),
                client_reports::report(&runs),
                runs.make_marks(),
            );
        })
        .context("starting the pair's thread")?;
        Ok(pair)
    }

    async fn pass_time(self: &Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.with(|node, now| node.tick(now));
            self.check_progress();
            self.check_link();
            self.check_held();
            self.log_state();
            let (now, written) = (self.clock.monotonic(), self.service.bytes_written());
            self.service.traffic().tick(now, written);
            if self.engine.poisoned().is_some() {
                self.give_up();
            }
        }
    }

    async fn note_all(self: &Arc<Self>, mut notes: mpsc::UnboundedReceiver<Register>) {
        while let Some(register) = notes.recv().await {
            let pair = Arc::clone(self);
            let noted = tokio::task::spawn_blocking(move || pair.note(register)).await;
            match noted {
                Ok(Ok(())) => self.with(|node, now| node.noted(now, register)),
                Ok(Err(error)) => tracing::error!("cannot persist the pair role: {error:#}"),
                // A panic has ended the process.
                Err(_) => return,
            }
        }
    }
}

/// Returns the rules of a node with what it knew when it ended.
fn as_it_ended(node: Node, state: &State, config: &Config, engine: &Engine) -> Node {
    // The term of a pair that this aggregate was in before. A copy that is being brought up has no
    // term.
    let node = match engine.position() {
        at if at.mark().is_none() => node.above(at.term),
        _ => node,
    };
    let node = match config.mode {
        Mode::Durable => node,
        Mode::Memory => node.unsure(),
    };
    if state.lacking { node.lacking() } else { node }
}

/// Starts the thread that runs the pair's `tasks`.
fn start_thread(tasks: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()?;
    std::thread::Builder::new()
        .name("weir-pair".to_owned())
        .spawn(move || {
            // Clients' replies wait for the messages of this thread.
            weir_base::short_slice();
            runtime.block_on(tasks);
        })?;
    Ok(())
}

/// Opens the socket on which side A waits for its partner.
fn listener(side: Side, listen: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    match (side, listen) {
        (Side::A, Some(at)) => {
            let listener = TcpListener::bind(at);
            let listener = listener.map_err(|error| {
                weir_node::port::refused(at, "the pair's partner", "stop it", &error)
            })?;
            listener.set_nonblocking(true)?;
            Ok(Some(listener))
        }
        (Side::A, None) => Err(anyhow!("side a of a pair has no address to listen on")),
        (Side::B, _) => Ok(None),
    }
}

/// Records that the log of a node is lost, which it reports until it is brought up again. To be
/// called before another log is created.
///
/// # Errors
/// The node's files cannot be read or written.
pub fn note_lost_log(folder: &Path) -> Result<()> {
    let mut state = State::read(folder)?;
    state.lacking = true;
    state.write(folder)
}

/// Prepares a folder that is not, or no longer, a pair's to be served: checks that its state is one
/// that clients saw, and drops the marks.
///
/// # Errors
/// The copy was being brought up when the pair ended, or the marks cannot be dropped.
pub fn serves_by_itself(engine: &Engine, folder: &Path) -> Result<()> {
    ensure!(
        engine.position().is_whole(),
        "{} was being brought up to date when its pair ended: it is no state that clients ever saw, and is not served. \
         Serve the other copy, and make this one anew with `weir pair join`",
        folder.display()
    );
    let dropped = engine.drop_marks(|_| true);
    dropped.map_err(|error| anyhow!("cannot drop the marks of an ended pair: {error}"))
}
