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
//! The state has three parts: [`rules`] (the role, and what follows from it for this node), [`partner`]
//! (the connection and the stream) and [`service`] (clients). Rules and partner change in one step,
//! under one lock, so that no message to the partner contradicts the role.
//!
//! A primary keeps its stream of changes also while it is alone, as far as there is memory, and a copy that is exactly at a place of
//! it goes on from there ([`config::Lineage`]). One that is not is brought up first, while clients go on ([`synchronise`]).

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
mod partner;
pub mod postgres;
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

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, mpsc};
use weir_base::{BLOCK_SIZE, Clock};
use weir_control::CatalogCopy;
use weir_mirror::wire::{CopyState, Message};
use weir_mirror::{Action, Node, Register, Role, Side, Swap, Timing};
use weir_volume::{ChangeStream, Engine, StreamPosition};

pub use address::Address;
pub use clients::{Connections, Ends};
pub use commands::PairCommands;
pub use config::{Config, Mode, Name};
use config::{Lineage, State};
use connection::Hello;
use fault::Fault;
pub use lease::Lease;
use partner::Partner;
use rules::Rules;
use service::Service;
pub use service::Serving;
use show::role_name;
pub use show::{Shown, Standing};
use standby::{Again, Standby};
use synchronise::Kept;
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

/// A node of a pair.
pub struct Pair {
    folder: PathBuf,
    config: Config,
    identity: Identity,
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    /// The catalog's file, if it is one.
    catalog: Option<PathBuf>,
    shipped_files: &'static [&'static str],
    /// The log is lost with its machine.
    log_ephemeral: bool,
    lease: Arc<Lease>,
    inner: Mutex<Inner>,
    /// With `inner`: the role, or what a stop waits for, is another.
    changed: Condvar,
    /// There is something to send to the partner.
    send: Arc<Notify>,
    standby: Arc<Standby>,
    service: Service,
    /// Of the thread that reads what brings the partner up, and between two of them. Locked before `inner`.
    round: Mutex<Option<Kept>>,
    /// Locked while files are being sent.
    shipped: tokio::sync::Mutex<files::Shipped>,
}

/// State that changes in one step: a decision of the rules, and what is said of it to the partner.
struct Inner {
    rules: Rules,
    partner: Partner,
    logged: state::Logged,
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
        let service = Service::new(config.addresses.clone(), config.address_hook.clone())?;
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
                logged: state::Logged::default(),
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
        });
        pair.service.run_hook("remove");
        pair.keep_addresses()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()
            .context("starting the pair's thread")?;
        let runs = Arc::clone(&pair);
        std::thread::Builder::new()
            .name("weir-pair".to_owned())
            .spawn(move || {
                // Clients' replies wait for what it sends and receives.
                weir_base::short_slice();
                runtime.block_on(async move {
                    tokio::join!(
                        runs.pass_time(),
                        link::run(&runs, listener),
                        witness::run(&runs, asked),
                        runs.note_all(notes),
                        files::ship(&runs),
                        client_reports::report(&runs),
                        runs.make_marks(),
                    );
                });
            })
            .context("starting the pair's thread")?;
        Ok(pair)
    }

    /// Waits until this node is to serve clients.
    pub fn settle(&self) {
        let mut inner = self.inner.lock();
        while inner.rules.role() != Role::Alone {
            self.changed.wait(&mut inner);
        }
    }

    /// Returns the lease within which this node may reply.
    pub fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// Begins to serve clients.
    pub fn serve(self: &Arc<Self>, parts: Serving) {
        self.service.begin(parts);
        let role = {
            let mut inner = self.inner.lock();
            inner.rules.begin_to_serve();
            inner.rules.role()
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

    /// Waits until a user has the other side serve.
    pub async fn switched(&self) {
        self.service.switched().await;
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

    /// A connection that ended and was not made again: the primary's machine has closed it, so the primary's process is gone. One that
    /// is alive and cannot connect does not lose what it acknowledges: the witness decides.
    fn check_link(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let now = self.clock.monotonic();
        let unlinked = inner.partner.unlinked();
        let gone = unlinked.is_some_and(|since| now >= since + RELINKED);
        if gone && inner.rules.role() == Role::Standby {
            self.happens(&mut inner, Node::partner_gone);
        }
    }

    /// Clients that have waited for long are to try again later: what they wait with is not to be used up.
    fn check_held(&self) {
        let held = self.inner.lock().rules.held();
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
        let effects = inner.rules.apply(inner.partner.stream(), event);
        if !effects.messages.is_empty() {
            for message in &effects.messages {
                inner.partner.say(message);
            }
            self.send.notify_one();
        }
        if let Some(before) = effects.before {
            self.turned(inner, before);
        }
    }

    /// Carries out a change of the role.
    fn turned(self: &Arc<Self>, inner: &mut Inner, before: Role) {
        let (role, register) = (inner.rules.role(), inner.rules.register());
        tracing::debug!(
            "this node of the pair is {}, and was {} (term {}, version {})",
            role_name(role),
            role_name(before),
            register.term,
            register.version
        );
        self.changed.notify_all();
        match role {
            Role::Standby | Role::Behind | Role::Asking | Role::TakingOver
                if inner.rules.serving() =>
            {
                inner.rules.end_lease();
                self.service.addresses().end();
                self.service.run_hook("remove");
                begin_anew("this node is not its pair's primary any more");
            }
            Role::Alone => {
                inner.partner.stop_catching();
                self.offer(inner);
            }
            _ => {}
        }
    }

    /// Has the partner go on, if it is connected and can.
    fn offer(self: &Arc<Self>, inner: &mut Inner) {
        let role = inner.rules.role();
        if !matches!(role, Role::Alone | Role::Primary) {
            return;
        }
        let Inner { rules, partner, .. } = inner;
        let Some(link) = partner.link() else {
            return;
        };
        if link.joined.is_some() || link.feed.is_some() {
            return;
        }
        let Hello { at, copy, .. } = link.hello;
        let resumed = match (partner.stream(), partner.lineage()) {
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
                if let Some(link) = partner.link_mut() {
                    link.joined = Some(from);
                    link.stream = Some(stream);
                    link.say(&Message::Join {
                        term: rules.register().term,
                        sequence: from,
                    });
                }
                partner.set_files(false);
                partner.clear_fault();
                self.send.notify_one();
            }
            // By the register it may take over, which a copy that is being brought up must not.
            None if role == Role::Primary => self.happens(inner, Node::partner_gone),
            None => self.synchronise(inner),
        }
    }

    /// The partner has acknowledged.
    fn acknowledged(self: &Arc<Self>, number: u64, term: u64, sequence: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        let (Some(stream), Some(link)) = (inner.partner.stream().cloned(), inner.partner.link())
        else {
            return Ok(());
        };
        let counts = matches!(inner.rules.role(), Role::Alone | Role::Primary);
        if link.number != number
            || link.joined.is_none()
            || !counts
            || term != inner.rules.register().term
        {
            return Ok(());
        }
        self.engine
            .acknowledge(&stream, sequence)
            .map_err(|error| anyhow!("{error}"))?;
        if inner.rules.role() != Role::Alone || !inner.rules.serving() {
            return Ok(());
        }
        inner.partner.progress(self.clock.monotonic());
        match inner.partner.catching() {
            Some(to) if stream.acknowledged() >= to => self.caught_up(&mut inner),
            Some(_) => {}
            None => self.catch(&mut inner, &stream),
        }
        Ok(())
    }

    /// Has replies wait for the partner if it is nearly there.
    fn catch(self: &Arc<Self>, inner: &mut Inner, stream: &Arc<ChangeStream>) {
        let Inner { rules, partner, .. } = inner;
        let alone = rules.role() == Role::Alone && rules.serving();
        if !alone || !partner.has_files() || partner.catching().is_some() {
            return;
        }
        let far = stream.held() > NEAR && partner.rounds() <= ROUNDS;
        if far || !self.engine.join_partner(stream) {
            return;
        }
        let to = stream.last();
        if stream.acknowledged() >= to {
            self.caught_up(inner);
        } else {
            partner.catch(to, self.clock.monotonic());
        }
    }

    /// The link is over.
    fn unlinked(self: &Arc<Self>, number: u64) {
        let mut inner = self.inner.lock();
        if inner.partner.ended(number, self.clock.monotonic()) {
            self.follow_alone(&mut inner);
        }
    }

    /// Has nothing wait for the partner, if this side is the primary alone.
    fn follow_alone(&self, inner: &mut Inner) {
        if inner.rules.role() == Role::Alone
            && let Some(stream) = inner.partner.stream().cloned()
        {
            inner.partner.stop_catching();
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
        let stream = self.inner.lock().partner.stream().cloned();
        let lineage = match stream {
            Some(stream) => {
                self.engine.follow_partner(&stream, term)?;
                None
            }
            None => {
                // What was received is applied first.
                self.standby.drain();
                let was = self.inner.lock().rules.state().open;
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
        let state = self.inner.lock().rules.alone_by(register);
        state.write(&self.folder)?;
        let mut inner = self.inner.lock();
        inner.rules.set_state(state);
        if let Some((stream, lineage)) = lineage {
            inner.partner.set_stream(stream, lineage);
        }
        inner.partner.add_term(term);
        // What is on its way is of another term.
        inner.partner.close();
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
        let state = inner.rules.state();
        let copy = match () {
            () if inner.rules.serving() || again.is_some() => CopyState::Open,
            // It has not been served from since it is brought up, and knows how far it is.
            () if at.mark().is_some() => CopyState::Exact,
            () if state.open || state.lacking => CopyState::Open,
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
        ensure!(!inner.rules.serving(), "this node serves already");
        ensure!(
            self.engine.position().is_whole(),
            "this copy was being brought up to date, and is no state that clients ever saw: it cannot be served"
        );
        if self.config.witness.is_none() && !self.config.keeps_register() {
            ensure!(!self.is_fresh(), "this copy has got nothing yet");
            // Nobody can be asked: from now on this side has the last word.
            let config = Config {
                preferred: Some(self.config.side),
                ..self.config.clone()
            };
            let known = inner.rules.told().unwrap_or(inner.rules.register());
            let id = self.engine.aggregate().id().0;
            // Above what the other side can have come to without this one: it may have gone on alone, once.
            let next = known.alone(self.config.side.into());
            let next = next.alone(next.primary);
            own_register::take(&self.folder, id, next)?;
            config.write(&self.folder)?;
            inner.rules.stop();
            // The reply to the user is on its way first.
            std::thread::spawn(|| {
                std::thread::sleep(LAST_LINE);
                begin_anew("a user has this side serve, without a witness")
            });
            return Ok(());
        }
        let before = inner.rules.role();
        self.happens(&mut inner, Node::force);
        ensure!(
            inner.rules.role() != before,
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
            Err(why) => inner.note_fault(Fault::Passing(why)),
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
