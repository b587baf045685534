//! A node of a pair: its state, and the effects of events on the rules.
//!
//! Resync of the partner ([`synchronise`](super::synchronise)), its files ([`files`](super::files))
//! and the logged state ([`state`](super::state)) are parts of the same state, and in one circle of
//! modules with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use weir_base::{BLOCK_SIZE, Clock};
use weir_mirror::wire::{CopyState, Message};
use weir_mirror::{Action, Node, Register, Role, Swap};
use weir_peer_link::identity::Identity;
use weir_volume::{ChangeStream, Engine, StreamPosition};

use super::config::{Config, Lineage};
use super::connection::Hello;
use super::fault::Fault;
use super::files::FileSender;
use super::lease::Lease;
use super::own_register;
use super::partner::Partner;
use super::rados;
use super::restart::begin_anew;
use super::rules::{Rules, role_name};
use super::service::{Service, ServiceParts};
use super::standby::{ResyncBase, Standby};
use super::state::LoggedState;
use super::synchronise::SavedRound;

/// Share of the page frames that unacknowledged entries may keep, as a divisor, and their maximum
/// in bytes.
const WINDOW_SHARE: usize = 8;
const WINDOW: usize = 256 << 20;
/// Maximum time that changes of strict volumes wait for a lost partner. After it clients are asked
/// to try again later.
const STRICT_HOLD: Duration = Duration::from_secs(5);
/// Time within which a partner that is alive has connected again.
const RELINKED: Duration = Duration::from_millis(600);
/// Maximum number of bytes that a partner may lack when replies begin to wait for it.
const NEAR: u64 = 4 << 20;
/// Number of rounds after which replies wait whatever the partner lacks: otherwise clients might
/// write faster than it can follow.
const ROUNDS: u32 = 3;
/// Delay before the process starts again at a user's command.
const LAST_LINE: Duration = Duration::from_millis(200);

/// A node of a pair.
pub struct Pair {
    pub(super) folder: PathBuf,
    pub(super) config: Config,
    pub(super) identity: Identity,
    pub(super) engine: Arc<Engine>,
    pub(super) clock: Arc<dyn Clock>,
    /// Path of the catalog, if it is a file.
    pub(super) catalog: Option<PathBuf>,
    pub(super) shipped_files: &'static [&'static str],
    /// True if the log is lost with its machine.
    pub(super) log_ephemeral: bool,
    pub(super) lease: Arc<Lease>,
    pub(super) inner: Mutex<Inner>,
    /// Signals, with `inner`, a change of the role or of a state that a stop or a comparison waits
    /// for.
    pub(super) changed: Condvar,
    /// Notified when something may have to be sent to the partner.
    pub(super) send: Arc<Notify>,
    pub(super) standby: Arc<Standby>,
    pub(super) service: Service,
    /// Round that the resync thread reads, kept between two of these threads. Locked before
    /// `inner`.
    pub(super) round: Mutex<Option<SavedRound>>,
    /// Locked while files are being sent.
    pub(super) shipped: tokio::sync::Mutex<FileSender>,
    /// Client of the cluster whose pool is the witness.
    pub(super) rados: rados::Client,
}

/// State that changes in one step: a decision of the rules, and the messages to the partner about
/// it.
pub(super) struct Inner {
    pub(super) rules: Rules,
    pub(super) partner: Partner,
    pub(super) logged: LoggedState,
}

impl Inner {
    /// Records a fault, and logs it once. Advice to use force is not logged before the pair has
    /// been [degraded for long](super::state). A fault at the start may pass in a moment, so it is
    /// no warning.
    pub(super) fn note_fault(&mut self, fault: Fault) {
        let starts = !matches!(
            self.rules.role(),
            Role::Primary | Role::Standby | Role::Alone
        );
        let why = fault.why();
        match &fault {
            _ if self.partner.fault() == Some(&fault) => {}
            Fault::Passing(_) if why.contains("--force") => {}
            Fault::Passing(_) if starts => tracing::info!("{why}"),
            _ => tracing::warn!("{why}"),
        }
        self.partner.set_fault(fault);
    }

    /// Returns the fault that was seen last, in words.
    pub(super) fn fault_text(&self) -> Option<String> {
        let fault = self.partner.fault();
        fault.map(|fault| fault.why().to_owned())
    }
}

impl Pair {
    /// Waits until this node is to serve clients.
    pub fn wait_to_serve(&self) {
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
    pub fn serve(self: &Arc<Self>, parts: ServiceParts) {
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

    /// Tells the rules of a standby that the primary's process is gone if the connection has ended
    /// and was not made again: the primary's machine has closed it. A primary that is alive and
    /// cannot connect loses nothing that it acknowledged: the witness decides.
    pub(super) fn check_link(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let now = self.clock.monotonic();
        let unlinked = inner.partner.unlinked();
        let gone = unlinked.is_some_and(|since| now >= since + RELINKED);
        if gone && inner.rules.role() == Role::Standby {
            self.happens(&mut inner, Node::partner_gone);
        }
    }

    /// Asks clients that have waited for long to try again later, which frees the resources that
    /// they wait with.
    pub(super) fn check_held(&self) {
        let held = self.inner.lock().rules.held();
        if held.is_some_and(|since| self.clock.monotonic() >= since + STRICT_HOLD) {
            self.engine.refuse_strict();
        }
    }

    /// Applies an event to the rules and carries out their actions.
    pub(super) fn with(self: &Arc<Self>, event: impl FnOnce(&mut Node, Duration) -> Vec<Action>) {
        let mut inner = self.inner.lock();
        self.happens(&mut inner, event);
    }

    pub(super) fn happens(
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
    pub(super) fn turned(self: &Arc<Self>, inner: &mut Inner, before: Role) {
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

    /// Lets the partner join the stream if it is connected and its copy is at a position in it.
    /// Otherwise begins a resync.
    pub(super) fn offer(self: &Arc<Self>, inner: &mut Inner) {
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
                tracing::info!(
                    "resuming the partner's stream behind {from} of {}",
                    stream.last().0
                );
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
            // By the register the partner may take over, which a copy that is being brought up must
            // not.
            None if role == Role::Primary => self.happens(inner, Node::partner_gone),
            None => self.synchronise(inner),
        }
    }

    /// Takes an acknowledgement of the partner.
    pub(super) fn acknowledged(
        self: &Arc<Self>,
        number: u64,
        term: u64,
        sequence: u64,
    ) -> Result<()> {
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

    /// Makes replies wait for the partner if it lacks little.
    pub(super) fn catch(self: &Arc<Self>, inner: &mut Inner, stream: &Arc<ChangeStream>) {
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

    /// Notes that the connection with this number has ended.
    pub(super) fn unlinked(self: &Arc<Self>, number: u64) {
        let mut inner = self.inner.lock();
        if inner.partner.ended(number, self.clock.monotonic()) {
            self.follow_alone(&mut inner);
        }
    }

    /// Stops replies from waiting for the partner, if this side is the primary alone.
    pub(super) fn follow_alone(&self, inner: &mut Inner) {
        if inner.rules.role() == Role::Alone
            && let Some(stream) = inner.partner.stream().cloned()
        {
            inner.partner.stop_catching();
            self.engine.aggregate().log().follow(&stream);
        }
    }

    /// Makes it durable that this side answers in the register's term, alone. Nothing is answered
    /// in that term before.
    pub(super) fn note(&self, register: Register) -> Result<()> {
        let term = register.term;
        let stream = self.inner.lock().partner.stream().cloned();
        let lineage = match stream {
            Some(stream) => {
                self.engine.follow_partner(&stream, term)?;
                None
            }
            None => {
                // Received entries are applied first.
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
        // Messages on their way are of another term.
        inner.partner.close();
        self.send.notify_one();
        Ok(())
    }

    /// Returns the size in bytes of the stream's window.
    pub(super) fn window(&self) -> u32 {
        let frames = self.engine.aggregate().cache().pool().total();
        (frames * BLOCK_SIZE / WINDOW_SHARE).min(WINDOW) as u32
    }

    /// Returns true if the aggregate was never changed.
    pub(super) fn is_fresh(&self) -> bool {
        self.engine.volumes().is_empty() && self.engine.position() == StreamPosition::default()
    }

    /// Returns the state and position of this side's copy.
    pub(super) fn hello(&self) -> Hello {
        let (at, mut marks) = (self.engine.position(), self.engine.marks());
        let again = self.standby.again();
        if again == Some(ResyncBase::Nothing) {
            marks.clear();
        }
        let inner = self.inner.lock();
        let state = inner.rules.state();
        let copy = match () {
            () if inner.rules.serving() || again.is_some() => CopyState::Open,
            // A copy that is being brought up has served nobody, and knows its position.
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

    /// Takes over at a user's command, without the partner.
    ///
    /// # Errors
    /// This side serves already, its copy is no state that clients saw, or its role does not allow
    /// it.
    pub(super) fn force(self: &Arc<Self>) -> Result<()> {
        let mut inner = self.inner.lock();
        ensure!(
            !inner.rules.serving(),
            "cannot take over: this node serves already"
        );
        ensure!(
            self.engine.position().is_whole(),
            "cannot take over: this copy was being brought up to date, and is no state that clients ever saw"
        );
        if self.config.witness.is_none() && !self.config.keeps_register() {
            ensure!(
                !self.is_fresh(),
                "cannot take over: this copy has received nothing yet"
            );
            // There is no witness to ask: from now on this side has the last word.
            let config = Config {
                preferred: Some(self.config.side),
                ..self.config.clone()
            };
            let known = inner.rules.told().unwrap_or(inner.rules.register());
            let id = self.engine.aggregate().id().0;
            // Above any version that the other side can have reached without this one: it may have
            // continued alone, once.
            let next = known.alone(self.config.side.into());
            let next = next.alone(next.primary);
            own_register::take(&self.folder, id, next)?;
            config.write(&self.folder)?;
            inner.rules.stop();
            // The reply to the user leaves first.
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
            "cannot take over: this node is {}",
            role_name(before)
        );
        Ok(())
    }

    /// Takes the witness's reply.
    pub(super) fn replied(self: &Arc<Self>, reply: std::result::Result<Swap, String>) {
        let mut inner = self.inner.lock();
        match reply {
            Ok(reply) => self.happens(&mut inner, |node, now| node.witness(now, reply)),
            Err(why) => inner.note_fault(Fault::Passing(why)),
        }
    }

    pub(super) fn note_passing(&self, why: String) {
        let mut inner = self.inner.lock();
        inner.note_fault(Fault::Passing(why));
    }

    /// Returns true if one node refused the other last.
    pub(super) fn refused(&self) -> bool {
        matches!(self.inner.lock().partner.fault(), Some(Fault::Refusal(_)))
    }
}
