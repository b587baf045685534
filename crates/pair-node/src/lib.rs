//! One of two nodes that keep an aggregate together: the threads, sockets and files around [`weir_mirror::node`].
//!
//! A node that starts opens its engine as a standby's and asks the witness what it is ([`Pair::settle`]). Only once it is the primary,
//! alone, and that is durable, does the rest of the server start over the same engine; until then clients are refused:
//! nobody listens, so that nothing of theirs is carried out later. A primary that loses its role does not take the server apart: the process begins anew
//! ([`begin_anew`]), which closes every client's connection, and comes up as what the witness says.
//!
//! One thread (`weir-pair`) runs the link to the partner ([`link`]), lets time pass for the rules, and asks the witness ([`witness`]); what
//! waits for the disk is done on others. On a standby one more (`weir-standby`, [`standby`]) applies what comes.
//!
//! A primary keeps its stream of changes also while it is alone, as far as there is memory, and a copy that is exactly at a place of
//! it goes on from there ([`config::Lineage`]). One that is not is brought up first, while clients go on ([`synchronise`]).

pub mod address;
mod advance;
mod clients;
mod commands;
pub mod config;
mod fault;
mod files;
mod floating_address;
mod lease;
mod link;
pub mod postgres;
mod resync_rate;
mod show;
mod shutdown;
mod standby;
mod state;
mod synchronise;
mod traffic;
mod verify;
pub mod witness;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, mpsc};
use weir_base::{BLOCK_SIZE, Clock};
use weir_control::{CatalogCopy, Control};
use weir_mirror::wire::{CopyState, Message};
use weir_mirror::{Action, Node, Register, Role, Side, Swap, Timing};
use weir_volume::{ChangeStream, Engine, Sequence, StreamPosition};

pub use address::Address;
use address::Addresses;
pub use clients::{Connections, Ends};
pub use commands::PairCommands;
pub use config::{Config, Mode, Name};
use config::{Lineage, State};
use fault::Fault;
pub use lease::Lease;
use link::{Hello, Link};
use show::role_name;
pub use show::{Shown, Standing};
use standby::{Again, Standby};
use synchronise::Kept;
use weir_node::counters::Counters;
use weir_peer_link::identity::Identity;

/// Time passes for the rules so often.
const TICK: Duration = Duration::from_millis(20);
/// The part of the page frames that entries may keep which the partner has not acknowledged, and the most bytes.
const WINDOW_SHARE: usize = 8;
const WINDOW: usize = 256 << 20;
/// How long a primary that is alone holds replies for a partner that acknowledges nothing.
const STALLED: Duration = Duration::from_secs(2);
/// How long changes of strict volumes wait for a lost partner before clients are to try again later.
const STRICT_HOLD: Duration = Duration::from_secs(5);
/// A partner that is alive has made another connection by then.
const RELINKED: Duration = Duration::from_millis(600);
/// Bytes that a partner may lack when replies begin to wait for it.
const NEAR: u64 = 4 << 20;
/// Rounds after which they wait whatever it lacks: clients write faster than it can follow otherwise.
const ROUNDS: u32 = 3;
/// Before the process begins anew at a user's word.
const LAST_LINE: Duration = Duration::from_millis(200);

/// What a pair is started with.
pub struct Parts {
    /// The data folder.
    pub folder: PathBuf,
    /// What users have said of the pair.
    pub config: Config,
    /// The engine, open as a standby's.
    pub engine: Arc<Engine>,
    /// The clock of beats and leases.
    pub clock: Arc<dyn Clock>,
    /// The catalog's file, if it is one.
    pub catalog: Option<PathBuf>,
    /// The log is lost with its machine.
    pub log_ephemeral: bool,
    /// Names of files of the data folder that the partner needs.
    pub shipped_files: &'static [&'static str],
}

/// Parts of the server that exist once it serves clients.
pub struct Serving {
    /// The control plane.
    pub control: Arc<Control>,
    /// Connections of clients.
    pub connections: Arc<dyn Connections>,
    /// Counters of the data path.
    pub counters: Counters,
}

/// See the module's head.
pub struct Pair {
    folder: PathBuf,
    config: Config,
    identity: Identity,
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    catalog: Option<PathBuf>,
    inner: Mutex<Inner>,
    /// With `inner`: the role, or what a stop waits for, is another.
    changed: Condvar,
    /// There is something to send to the partner.
    send: Arc<Notify>,
    /// What the witness is to be asked.
    ask: mpsc::UnboundedSender<Option<Register>>,
    /// What is to be noted.
    note: mpsc::UnboundedSender<Register>,
    standby: Arc<Standby>,
    /// A user asks for the other side to serve.
    pub switch: Notify,
    /// Set when this node begins to serve, once in a process.
    serving: OnceLock<Serving>,
    /// Renewed by the rules; replies leave only within it.
    lease: Arc<Lease>,
    shipped_files: &'static [&'static str],
    runtime: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Of the thread that reads what brings the partner up, and between two of them. Locked before `inner`.
    round: Mutex<Option<Kept>>,
    /// When a node that ends does not wait for its partner any more, by the clock.
    ends: OnceLock<Duration>,
    /// Those that move with the pair.
    addresses: Addresses,
    /// Clients of the partner, while that serves.
    clients: clients::Known,
    /// Locked while files are being sent.
    shipped: tokio::sync::Mutex<files::Shipped>,
    /// What is sent for what clients write.
    traffic: traffic::Traffic,
    /// The log is lost with its machine.
    log_ephemeral: bool,
}

struct Inner {
    node: Node,
    state: State,
    role: Role,
    /// Since when, by the clock.
    turned: Duration,
    stream: Option<Arc<ChangeStream>>,
    lineage: Option<Lineage>,
    link: Option<Link>,
    /// Number of the last link.
    links: u64,
    /// When that ended, if no other has followed.
    unlinked: Option<Duration>,
    /// The server runs, and serves clients.
    serving: bool,
    /// The other side may have what is behind this: replies wait for it, and it is caught up when it has acknowledged this.
    catching: Option<Sequence>,
    /// When the partner acknowledged something last, or replies began to wait for it.
    progressed: Duration,
    /// Rounds since the partner was in sync last.
    rounds: u32,
    /// The files that the partner needs are on its side.
    files: bool,
    /// The two copies are being compared.
    comparison: Option<verify::Comparison>,
    /// What came of it last.
    verified: Option<String>,
    fault: Option<Fault>,
    logged: state::Logged,
    /// As the other side of a pair without a witness has said.
    told: Option<Register>,
    /// It has said since the start that it does not serve, or a user has said so.
    heard: bool,
    /// The partner's clock and this one were found to run apart.
    apart: Option<String>,
    /// Nothing is durable here before a checkpoint has it.
    relies: bool,
    /// Nothing more is begun.
    stopping: bool,
    /// What clients waited for the partner's acknowledgement last, of a beat: a round trip.
    round_trip: Option<Duration>,
    /// Changes of strict volumes are held or refused, since then.
    held: Option<Duration>,
    /// The same in seconds since 1970; if this side was alone before it started, since it was.
    behind_since: Option<i64>,
}

impl CatalogCopy for Pair {
    fn bring_up_to_date(self: Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.mirror_files().await })
    }
}

impl Pair {
    /// Begins to be one of the two: connects, and asks who it is.
    ///
    /// # Errors
    /// Files that cannot be read; an address that is not to be had; a configuration that cannot work.
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
            "the partner's certificate is not known yet: `weir pair accept --data {} FINGERPRINT` with what \
             `weir pair join` has printed there, or `weir pair delete --data {}`",
            folder.display(),
            folder.display()
        );
        let identity = Identity::open(&folder)?;
        // Before anything that a primary which was killed has left could be taken for this node's.
        let addresses = Addresses::open(config.addresses.clone())?;
        let listener = match (side, config.listen) {
            (Side::A, Some(at)) => {
                let listener = std::net::TcpListener::bind(at);
                let listener = listener.map_err(|error| {
                    weir_node::port::refused(at, "the pair's partner", "stop it", &error)
                })?;
                listener.set_nonblocking(true)?;
                Some(listener)
            }
            (Side::A, None) => return Err(anyhow!("side a of a pair has no address to listen on")),
            (Side::B, _) => None,
        };
        let state = State::read(&folder)?;
        engine.hold_strict();
        let node = Node::start(side, state.register(), Timing::default(), clock.monotonic());
        // Of a pair that this aggregate was in before. A copy that is being brought up has no term.
        let node = match engine.position() {
            at if at.mark().is_none() => node.above(at.term),
            _ => node,
        };
        let node = match config.mode {
            Mode::Durable => node,
            Mode::Memory => node.unsure(),
        };
        let node = match state.lacking {
            true => node.lacking(),
            false => node,
        };
        let heard = witness::was_taken(&folder)?;
        let lease = Arc::new(Lease::expired(Arc::clone(&clock)));
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
        let pair = Arc::new(Pair {
            inner: Mutex::new(Inner {
                role: node.role(),
                turned: clock.monotonic(),
                node,
                state,
                stream: None,
                lineage: None,
                link: None,
                links: 0,
                unlinked: None,
                serving: false,
                catching: None,
                progressed: Duration::ZERO,
                rounds: 0,
                files: false,
                comparison: None,
                verified: None,
                fault: None,
                logged: state::Logged::default(),
                told: None,
                heard,
                apart: None,
                relies: false,
                stopping: false,
                round_trip: None,
                held: Some(clock.monotonic()),
                behind_since: Some(state.behind_since.unwrap_or(clock.now().secs)),
            }),
            folder,
            config,
            identity,
            engine,
            clock,
            catalog,
            changed: Condvar::new(),
            send,
            ask,
            note,
            standby,
            switch: Notify::new(),
            serving: OnceLock::new(),
            lease,
            shipped_files,
            runtime: Mutex::default(),
            round: Mutex::default(),
            ends: OnceLock::new(),
            addresses,
            clients: clients::Known::default(),
            shipped: tokio::sync::Mutex::default(),
            traffic: traffic::Traffic::default(),
            log_ephemeral,
        });
        pair.hook("remove");
        pair.keep_addresses()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()
            .context("starting the pair's thread")?;
        let runs = Arc::clone(&pair);
        let thread = std::thread::Builder::new()
            .name("weir-pair".to_owned())
            .spawn(move || {
                // Clients' replies wait for what it sends and receives.
                weir_base::short_slice();
                runtime.block_on(async move {
                    tokio::join!(
                        runs.pass_time(),
                        link::run(&runs, listener),
                        witness::ask_all(&runs, asked),
                        runs.note_all(notes),
                        files::ship(&runs),
                        clients::report(&runs),
                        runs.make_marks(),
                    );
                });
            })
            .context("starting the pair's thread")?;
        *pair.runtime.lock() = Some(thread);
        Ok(pair)
    }

    /// Waits until this node is to serve clients.
    pub fn settle(&self) {
        let mut inner = self.inner.lock();
        while inner.role != Role::Alone {
            self.changed.wait(&mut inner);
        }
    }

    /// Returns the lease within which this node may reply.
    pub fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// Begins to serve clients.
    pub fn serve(self: &Arc<Self>, parts: Serving) {
        // A process begins to serve once.
        let _ = self.serving.set(parts);
        let role = {
            let mut inner = self.inner.lock();
            inner.serving = true;
            inner.role
        };
        if matches!(
            role,
            Role::Standby | Role::Behind | Role::Asking | Role::TakingOver
        ) {
            // It has lost the role while the rest of the server was starting.
            begin_anew("this node is not its pair's primary any more");
        }
        self.begin_to_serve();
    }

    /// Bytes that clients have written to this node since it serves.
    fn bytes_written(&self) -> u64 {
        let serving = self.serving.get();
        serving.map_or(0, |serving| serving.counters.bytes_written())
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
            self.traffic
                .tick(self.clock.monotonic(), self.bytes_written());
            if self.engine.poisoned().is_some() {
                self.give_up();
            }
        }
    }

    /// A connection that ended and was not made again: the primary's machine has closed it, so the primary's process is gone. One that
    /// is alive and cannot connect does not lose what it acknowledges: the witness decides.
    fn check_link(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let now = self.clock.monotonic();
        let gone = inner.unlinked.is_some_and(|since| now >= since + RELINKED);
        if gone && inner.role == Role::Standby {
            self.happens(&mut inner, Node::partner_gone);
        }
    }

    /// Clients that have waited for long are to try again later: what they wait with is not to be used up.
    fn check_held(&self) {
        let held = self.inner.lock().held;
        if held.is_some_and(|since| self.clock.monotonic() >= since + STRICT_HOLD) {
            self.engine.refuse_strict();
        }
    }

    /// Lets something happen to the rules, and does what they say.
    fn with(self: &Arc<Self>, event: impl FnOnce(&mut Node, Duration) -> Vec<Action>) {
        let mut inner = self.inner.lock();
        self.happens(&mut inner, event);
    }

    fn happens(
        self: &Arc<Self>,
        inner: &mut Inner,
        event: impl FnOnce(&mut Node, Duration) -> Vec<Action>,
    ) {
        if inner.stopping {
            return;
        }
        let now = self.clock.monotonic();
        let actions = event(&mut inner.node, now);
        self.lease
            .set(match inner.serving || inner.node.role() == Role::Alone {
                true => inner.node.reads_until(),
                false => Duration::ZERO,
            });
        let role = inner.node.role();
        // Before anything is durable on this side alone.
        match (role == Role::Primary, inner.held, &inner.stream) {
            (true, Some(_), Some(stream)) => {
                self.engine.admit_strict(stream);
                (inner.held, inner.behind_since) = (None, None);
            }
            (false, None, _) => {
                self.engine.hold_strict();
                (inner.held, inner.behind_since) = (Some(now), Some(self.clock.now().secs));
            }
            _ => {}
        }
        for action in actions {
            self.act(inner, action);
        }
        self.keep(inner);
        if role != inner.role {
            self.turn(inner, role);
        }
    }

    /// Says whether this side's log suffices, of those that are lost with their machines: while the witness has the partner take over if it is.
    fn keep(&self, inner: &mut Inner) {
        let relies = self.log_ephemeral
            && match inner.node.role() {
                Role::Asking | Role::Yielding(_) | Role::Standby | Role::Behind => false,
                Role::Primary => !inner.node.register().mirrored,
                _ => true,
            };
        if inner.relies != relies {
            inner.relies = relies;
            self.engine.rely_on_checkpoints(relies);
        }
    }

    fn act(&self, inner: &mut Inner, action: Action) {
        match action {
            Action::Beat {
                term,
                version,
                sent,
            } => {
                if let Some(link) = &mut inner.link {
                    link.say(&Message::Beat {
                        term,
                        version,
                        sent,
                    });
                    if self.keeps_register() {
                        link.say(&Message::Register(inner.node.register()));
                    }
                    self.send.notify_one();
                }
            }
            Action::Answer { term, sent } => {
                if let Some(link) = &mut inner.link {
                    link.say(&Message::Answer { term, sent });
                    self.send.notify_one();
                }
            }
            // The receivers live as long as the thread that gets here.
            Action::Read => drop(self.ask.send(None)),
            Action::Swap(to) => drop(self.ask.send(Some(to))),
            Action::Note(register) => drop(self.note.send(register)),
        }
    }

    /// There is no witness, and this side has the last word.
    fn keeps_register(&self) -> bool {
        self.config.witness.is_none() && self.config.preferred == Some(self.config.side)
    }

    /// The role has changed.
    fn turn(self: &Arc<Self>, inner: &mut Inner, role: Role) {
        let before = std::mem::replace(&mut inner.role, role);
        inner.turned = self.clock.monotonic();
        let register = inner.node.register();
        tracing::debug!(
            "this node of the pair is {}, and was {} (term {}, version {})",
            role_name(role),
            role_name(before),
            register.term,
            register.version
        );
        self.changed.notify_all();
        match role {
            Role::Standby | Role::Behind | Role::Asking | Role::TakingOver if inner.serving => {
                self.lease.set(Duration::ZERO);
                self.addresses.end();
                self.hook("remove");
                begin_anew("this node is not its pair's primary any more");
            }
            Role::Alone => {
                inner.catching = None;
                self.offer(inner);
            }
            _ => {}
        }
    }

    /// Has the partner go on, if it is connected and can.
    fn offer(self: &Arc<Self>, inner: &mut Inner) {
        if !matches!(inner.role, Role::Alone | Role::Primary) {
            return;
        }
        let Some(link) = &mut inner.link else {
            return;
        };
        if link.joined.is_some() || link.feed.is_some() {
            return;
        }
        let Hello { at, copy, .. } = link.hello;
        let resumed = match (&inner.stream, &inner.lineage) {
            (Some(stream), Some(lineage)) if !stream.is_overrun() => {
                let (acknowledged, last) = (stream.acknowledged().0, stream.last().0);
                let from = lineage.resume(at, copy, acknowledged, last);
                from.map(|from| (from, Arc::clone(stream)))
            }
            _ => None,
        };
        match resumed {
            Some((from, stream)) => {
                tracing::info!("the partner goes on behind {from} of {}", stream.last().0);
                link.joined = Some(from);
                link.stream = Some(stream);
                link.say(&Message::Join {
                    term: inner.node.register().term,
                    sequence: from,
                });
                inner.files = false;
                inner.fault = None;
                self.send.notify_one();
            }
            // By the register it may take over, which a copy that is being brought up must not.
            None if inner.role == Role::Primary => self.happens(inner, Node::partner_gone),
            None => self.synchronise(inner),
        }
    }

    /// The partner has acknowledged.
    fn acknowledged(self: &Arc<Self>, number: u64, term: u64, sequence: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        let (Some(stream), Some(link)) = (inner.stream.clone(), &inner.link) else {
            return Ok(());
        };
        let counts = matches!(inner.role, Role::Alone | Role::Primary);
        if link.number != number
            || link.joined.is_none()
            || !counts
            || term != inner.node.register().term
        {
            return Ok(());
        }
        self.engine
            .acknowledge(&stream, sequence)
            .map_err(|error| anyhow!("{error}"))?;
        if inner.role != Role::Alone || !inner.serving {
            return Ok(());
        }
        inner.progressed = self.clock.monotonic();
        match inner.catching {
            Some(to) if stream.acknowledged() >= to => {
                inner.catching = None;
                self.caught_up(&mut inner);
            }
            Some(_) => {}
            None => self.catch(&mut inner, &stream),
        }
        Ok(())
    }

    /// Has replies wait for the partner if it is nearly there.
    fn catch(self: &Arc<Self>, inner: &mut Inner, stream: &Arc<ChangeStream>) {
        if inner.role != Role::Alone || !inner.serving || !inner.files || inner.catching.is_some() {
            return;
        }
        let far = stream.held() > NEAR && inner.rounds <= ROUNDS;
        if far || !self.engine.join_partner(stream) {
            return;
        }
        let to = stream.last();
        if stream.acknowledged() >= to {
            self.caught_up(inner);
        } else {
            inner.progressed = self.clock.monotonic();
            inner.catching = Some(to);
        }
    }

    /// The link is over.
    fn unlinked(self: &Arc<Self>, number: u64) {
        let mut inner = self.inner.lock();
        if inner.link.as_ref().is_none_or(|link| link.number != number) {
            return;
        }
        inner.link = None;
        inner.unlinked = Some(self.clock.monotonic());
        inner.files = false;
        if inner.role == Role::Alone
            && let Some(stream) = inner.stream.clone()
        {
            inner.catching = None;
            self.engine.aggregate().log().follow(&stream);
        }
    }

    async fn note_all(self: &Arc<Self>, mut notes: mpsc::UnboundedReceiver<Register>) {
        while let Some(register) = notes.recv().await {
            let pair = Arc::clone(self);
            let noted = tokio::task::spawn_blocking(move || pair.note(register)).await;
            match noted {
                Ok(Ok(())) => self.with(|node, now| node.noted(now, register)),
                Ok(Err(error)) => tracing::error!("what this node is cannot be noted: {error:#}"),
                // A panic has ended the process.
                Err(_) => return,
            }
        }
    }

    /// Makes it durable that this side answers in the register's term, alone. Nothing is answered in it before.
    fn note(&self, register: Register) -> Result<()> {
        let term = register.term;
        let stream = self.inner.lock().stream.clone();
        let lineage = match stream {
            Some(stream) => {
                self.engine.follow_partner(&stream, term)?;
                None
            }
            None => {
                // What was received is applied first.
                self.standby.drain();
                let was = self.inner.lock().state.open;
                let before = self.engine.position();
                let fresh = !was && self.is_fresh();
                let at = StreamPosition { term, sequence: 0 };
                self.engine.take_over(at)?;
                let stream = self.engine.begin_stream(at, self.window())?;
                self.engine.aggregate().log().follow(&stream);
                let wake = Arc::clone(&self.send);
                stream.wake_by(Box::new(move || wake.notify_one()));
                let lineage = Lineage {
                    fresh,
                    before: (!was).then_some(before),
                    terms: vec![],
                };
                Some((stream, lineage))
            }
        };
        let state = {
            let mut inner = self.inner.lock();
            // It was alone before as well, and has not been in sync since.
            let before = inner.state.behind_since;
            let same = before.filter(|_| inner.state.register().version + 1 == register.version);
            let since = same.or(inner.behind_since);
            inner.behind_since = since;
            let mut state = State::new(register, true);
            state.behind_since = since;
            state
        };
        state.write(&self.folder)?;
        let mut inner = self.inner.lock();
        inner.state = state;
        if let Some((stream, lineage)) = lineage {
            inner.stream = Some(stream);
            inner.lineage = Some(lineage);
        }
        if let Some(lineage) = &mut inner.lineage {
            lineage.terms.push(term);
        }
        if let Some(link) = &mut inner.link {
            // What is on its way is of another term.
            link.close();
        }
        self.send.notify_one();
        Ok(())
    }

    /// Bytes of the stream's window.
    fn window(&self) -> u32 {
        let frames = self.engine.aggregate().cache().pool().total();
        (frames * BLOCK_SIZE / WINDOW_SHARE).min(WINDOW) as u32
    }

    /// Nothing was ever done to the aggregate.
    fn is_fresh(&self) -> bool {
        self.engine.volumes().is_empty() && self.engine.position() == StreamPosition::default()
    }

    /// What this side's copy is, and where.
    fn hello(&self) -> Hello {
        let (at, mut marks) = (self.engine.position(), self.engine.marks());
        let again = self.standby.again();
        if again == Some(Again::Nothing) {
            marks.clear();
        }
        let inner = self.inner.lock();
        let copy = match () {
            () if inner.serving || again.is_some() => CopyState::Open,
            // It has not been served from since it is brought up, and knows how far it is.
            () if at.mark().is_some() => CopyState::Exact,
            () if inner.state.open || inner.state.lacking => CopyState::Open,
            () if self.is_fresh() => CopyState::Fresh,
            () => CopyState::Exact,
        };
        Hello {
            at,
            copy,
            marks,
            ahead: self.standby.ahead(),
        }
    }

    /// A user has the last word.
    ///
    /// # Errors
    /// This side serves already.
    fn force(self: &Arc<Self>) -> Result<()> {
        let mut inner = self.inner.lock();
        ensure!(!inner.serving, "this node serves already");
        ensure!(
            self.engine.position().is_whole(),
            "this copy was being brought up to date, and is no state that clients ever saw: it cannot be served"
        );
        if self.config.witness.is_none() && !self.keeps_register() {
            ensure!(!self.is_fresh(), "this copy has got nothing yet");
            // Nobody can be asked: from now on this side has the last word.
            let config = Config {
                preferred: Some(self.config.side),
                ..self.config.clone()
            };
            let known = inner.told.unwrap_or(inner.node.register());
            let id = self.engine.aggregate().id().0;
            // Above what the other side can have come to without this one: it may have gone on alone, once.
            let next = known.alone(self.config.side.into());
            let next = next.alone(next.primary);
            witness::take(&self.folder, id, next)?;
            config.write(&self.folder)?;
            inner.stopping = true;
            // The reply to the user is on its way first.
            std::thread::spawn(|| {
                std::thread::sleep(LAST_LINE);
                begin_anew("a user has this side serve, without a witness")
            });
            return Ok(());
        }
        let before = inner.role;
        self.happens(&mut inner, Node::force);
        ensure!(
            inner.role != before,
            "this node is {} and cannot take over",
            role_name(before)
        );
        Ok(())
    }

    /// As the witness has replied.
    fn replied(self: &Arc<Self>, reply: std::result::Result<Swap, String>) {
        let mut inner = self.inner.lock();
        match reply {
            Ok(reply) => self.happens(&mut inner, |node, now| node.witness(now, reply)),
            Err(why) => inner.has_fault(Fault::Passing(why)),
        }
    }
}

/// The log of a node is lost: it says so until it has been brought up again. To be called before there is another.
///
/// # Errors
/// The node's files cannot be read or written.
pub fn note_lost_log(folder: &Path) -> Result<()> {
    let mut state = State::read(folder)?;
    state.lacking = true;
    state.write(folder)
}

/// A folder that is no pair's, or is no more: it needs no marks, and has to be a state that clients saw.
///
/// # Errors
/// It was being brought up to date when the pair ended; the marks cannot be dropped.
pub fn serves_by_itself(engine: &Engine, folder: &Path) -> Result<()> {
    ensure!(
        engine.position().is_whole(),
        "{} was being brought up to date when its pair ended: it is no state that clients ever saw, and is not served. \
         Serve the other copy, and make this one anew with `weir pair join`",
        folder.display()
    );
    let dropped = engine.drop_marks(|_| true);
    dropped.map_err(|error| anyhow!("the marks of an ended pair cannot be dropped: {error}"))
}

/// The process begins anew, with its arguments: what it was serving it serves no more from that moment on.
pub fn begin_anew(why: &str) -> ! {
    tracing::info!("{why}: starting again");
    address::guard::end();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // What runs now, also if its file has been replaced meanwhile.
    let error = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .exec();
    tracing::error!("starting again failed: {error}");
    std::process::exit(1)
}
