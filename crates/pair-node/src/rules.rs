//! State of the rules ([`weir_mirror::node`]) on this node: its role, the register that it knows,
//! and what follows from them for its lease, its log and its strict volumes.
//!
//! Nothing here knows the connection: messages to the partner are returned to the caller.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::mpsc;
use weir_base::Clock;
use weir_mirror::wire::Message;
use weir_mirror::{Action, Node, Register, Role, Side};
use weir_volume::{ChangeStream, Engine};

use crate::config::State;
use crate::lease::Lease;

/// Parts that a change of the rules acts on.
pub struct Parts {
    /// The engine, whose strict volumes and log the rules govern.
    pub engine: Arc<Engine>,
    /// The clock of beats and leases.
    pub clock: Arc<dyn Clock>,
    /// Questions to the witness: a register to swap in, or `None` to read.
    pub ask: mpsc::UnboundedSender<Option<Register>>,
    /// Registers that are to be made durable.
    pub note: mpsc::UnboundedSender<Register>,
    /// True if the log is lost with its machine.
    pub log_ephemeral: bool,
    /// True if there is no witness and this side has the last word.
    pub keeps_register: bool,
}

/// Messages and change of role that an event of the rules results in.
pub struct Effects {
    /// Messages to the partner, if it is connected.
    pub messages: Vec<Message>,
    /// The role before, if it has changed.
    pub before: Option<Role>,
}

/// Rules of the pair on this node.
pub struct Rules {
    parts: Parts,
    node: Node,
    state: State,
    role: Role,
    /// Time at which the node got its role, by the clock.
    turned: Duration,
    lease: Arc<Lease>,
    /// True once the server runs and serves clients.
    serving: bool,
    /// True once nothing more is begun.
    stopping: bool,
    /// Register that the other side of a pair without a witness has reported.
    told: Option<Register>,
    /// True if the partner has reported since the start that it does not serve, or a user has.
    heard: bool,
    /// True if a record is durable here only with a checkpoint.
    relies: bool,
    /// Time since which changes of strict volumes are held or refused, by the clock.
    held: Option<Duration>,
    /// Time since which the partner lacks something, in seconds since 1970. A node that was alone
    /// before it started keeps the earlier time.
    behind_since: Option<i64>,
}

impl Rules {
    /// Begins with a node that does not know its role, and holds strict volumes. `heard` is true if
    /// a user has reported that the partner does not serve.
    pub fn new(parts: Parts, node: Node, state: State, heard: bool) -> Rules {
        parts.engine.hold_strict();
        let (now, wall) = (parts.clock.monotonic(), parts.clock.current_time().secs);
        Rules {
            role: node.role(),
            node,
            state,
            turned: now,
            lease: Arc::new(Lease::expired(Arc::clone(&parts.clock))),
            serving: false,
            stopping: false,
            told: None,
            heard,
            relies: false,
            held: Some(now),
            behind_since: Some(state.behind_since.unwrap_or(wall)),
            parts,
        }
    }

    /// Returns the lease within which this node may reply.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the time at which the node got its role, by the clock.
    pub fn turned(&self) -> Duration {
        self.turned
    }

    /// Returns the register as this node knows it.
    pub fn register(&self) -> Register {
        self.node.register()
    }

    /// Returns the side of this node.
    pub fn side(&self) -> Side {
        self.node.side()
    }

    /// Returns true if this node is a standby of the term, and may acknowledge its entries.
    pub fn acknowledges(&self, term: u64) -> bool {
        self.node.acknowledges(term)
    }

    /// Returns true if this node is the primary and its partner has everything.
    pub fn in_sync(&self) -> bool {
        self.role == Role::Primary && self.register().mirrored
    }

    /// Returns true once the server serves clients.
    pub fn serving(&self) -> bool {
        self.serving
    }

    /// Notes that the server serves clients.
    pub fn begin_to_serve(&mut self) {
        self.serving = true;
    }

    /// Returns true once nothing more is begun.
    pub fn stopping(&self) -> bool {
        self.stopping
    }

    /// Ignores all events from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Ends the lease: no reply leaves any more.
    pub fn end_lease(&self) {
        self.lease.set(Duration::ZERO);
    }

    /// Hands the role over to the partner.
    pub fn hand_over(&mut self) {
        let now = self.parts.clock.monotonic();
        self.node.hand_over(now);
    }

    /// Returns the durable state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Makes a state durable.
    ///
    /// # Errors
    /// The file system's.
    pub fn write_state(&mut self, state: State, folder: &Path) -> Result<()> {
        state.write(folder)?;
        self.state = state;
        Ok(())
    }

    /// Takes over a state that was made durable.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }

    /// Returns the register that the other side of a pair without a witness has reported.
    pub fn told(&self) -> Option<Register> {
        self.told
    }

    /// Notes the register that the other side has reported.
    pub fn tell(&mut self, register: Register) {
        self.told = Some(register);
    }

    /// Returns true if the partner has reported since the start that it does not serve.
    pub fn heard(&self) -> bool {
        self.heard
    }

    /// Notes that the partner does not serve.
    pub fn hear(&mut self) {
        self.heard = true;
    }

    /// Returns the time since which changes of strict volumes are held, by the clock.
    pub fn held(&self) -> Option<Duration> {
        self.held
    }

    /// Returns the time since which the partner lacks something, in seconds since 1970.
    pub fn behind_since(&self) -> Option<i64> {
        self.behind_since
    }

    /// Returns the state to be made durable before this side answers alone by `register`.
    pub fn alone_by(&mut self, register: Register) -> State {
        // It was alone before as well, and has not been in sync since.
        let before = self.state.behind_since;
        let same = before.filter(|_| self.state.register().version + 1 == register.version);
        self.behind_since = same.or(self.behind_since);
        let mut state = State::new(register, true);
        state.behind_since = self.behind_since;
        state
    }

    /// Applies an event to the rules and carries out what concerns this node alone; `stream` is the
    /// primary's.
    pub fn apply(
        &mut self,
        stream: Option<&Arc<ChangeStream>>,
        event: impl FnOnce(&mut Node, Duration) -> Vec<Action>,
    ) -> Effects {
        let mut effects = Effects {
            messages: Vec::new(),
            before: None,
        };
        if self.stopping {
            return effects;
        }
        let now = self.parts.clock.monotonic();
        let actions = event(&mut self.node, now);
        let role = self.node.role();
        self.lease.set(match self.serving || role == Role::Alone {
            true => self.node.reads_until(),
            false => Duration::ZERO,
        });
        // Before anything is durable on this side alone.
        match (role == Role::Primary, self.held, stream) {
            (true, Some(_), Some(stream)) => {
                self.parts.engine.admit_strict(stream);
                (self.held, self.behind_since) = (None, None);
            }
            (false, None, _) => {
                self.parts.engine.hold_strict();
                self.held = Some(now);
                self.behind_since = Some(self.parts.clock.current_time().secs);
            }
            _ => {}
        }
        for action in actions {
            self.act(action, &mut effects.messages);
        }
        self.rely_on_checkpoints(role);
        if role != self.role {
            effects.before = Some(std::mem::replace(&mut self.role, role));
            self.turned = now;
        }
        effects
    }

    fn act(&self, action: Action, messages: &mut Vec<Message>) {
        match action {
            Action::Beat {
                term,
                version,
                sent,
            } => {
                messages.push(Message::Beat {
                    term,
                    version,
                    sent,
                });
                if self.parts.keeps_register {
                    messages.push(Message::Register(self.register()));
                }
            }
            Action::Answer { term, sent } => messages.push(Message::Answer { term, sent }),
            // The receivers live as long as the thread that gets here.
            Action::Read => drop(self.parts.ask.send(None)),
            Action::Swap(to) => drop(self.parts.ask.send(Some(to))),
            Action::Note(register) => drop(self.parts.note.send(register)),
        }
    }

    /// Tells the engine whether this side's log suffices, of logs that are lost with their
    /// machines: it does while the witness has the partner take over if this machine is lost.
    fn rely_on_checkpoints(&mut self, role: Role) {
        let relies = self.parts.log_ephemeral
            && match role {
                Role::Asking | Role::Yielding(_) | Role::Standby | Role::Behind => false,
                Role::Primary => !self.register().mirrored,
                _ => true,
            };
        if self.relies != relies {
            self.relies = relies;
            self.parts.engine.rely_on_checkpoints(relies);
        }
    }
}

/// Returns a role in words.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Asking => "asking the witness who is primary",
        Role::Yielding(_) => "leaving its partner the time to take over",
        Role::Primary => "primary",
        Role::Deciding => "deciding with the witness whether to go on alone",
        Role::Noting => "noting that it is primary",
        Role::Alone => "primary, alone",
        Role::Standby => "standby",
        Role::TakingOver => "taking over",
        Role::Behind => "standby, behind",
    }
}
