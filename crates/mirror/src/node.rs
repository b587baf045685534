//! The rules of a node of a pair, as a state machine without threads, sockets and clocks: events
//! and times in, actions out.
//!
//! **Writes need no clock.** While the pair is in sync, the primary replies to a change only once
//! the standby has acknowledged it, in the same term. A standby that is about to take over
//! acknowledges nothing any more. So from then on the primary completes nothing, whatever its
//! state.
//!
//! **Alone only through the witness.** The primary continues without its partner only after a
//! compare-and-swap that removes the partner. That has to be durably noted on its own side first
//! ([`Action::Note`]). The standby takes over only with a compare-and-swap from a version in which
//! it was in sync. Both begin a new term. Of two that try from one version one wins; the other
//! changes nothing and reads the register.
//!
//! **The register is authoritative, a node's knowledge may be late.** A change whose reply was lost
//! may have been made, or may be made later. A node that does not know does only what is safe in
//! both cases: it acknowledges nothing, and replies to nothing that is not acknowledged.
//!
//! **Reads need a lease.** A primary in sync answers a read only within [`Timing::lease`] from the
//! *sending* of the last beat that the standby has answered. With each answer the standby promises
//! not to serve before the lease is over by its own clock, with a margin for clocks of different
//! rates. A promise is in memory only. A node that starts does not know its promises, and so waits
//! for that time, unless its own note says that it was the primary and alone. A primary that is
//! alone needs no lease: nobody can take over.
//!
//! **Start after a crash.** A primary that restarts while the register has both in sync may have
//! lost unstable writes, and the standby has not. It leaves the standby the time to take over, and
//! only then continues itself. A primary whose log is gone has lost acknowledged changes, and never
//! continues by itself ([`Node::lacking`]).

use std::time::Duration;

use crate::register::{Register, Side, Swap};

/// Times of a pair, equal on both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Interval between beats; well below `lease`, which beats renew.
    pub beat: Duration,
    /// Time for which a primary may answer reads, from the sending of an answered beat on.
    pub lease: Duration,
    /// Time for which a standby that has answered a beat does not serve.
    pub promise: Duration,
    /// Time without an answer after which a primary considers its partner lost.
    pub lost: Duration,
    /// Time without a beat after which a standby considers the primary lost. It is longer than
    /// `lost`, so that the primary stays if both are up but do not hear each other.
    pub patience: Duration,
    /// Interval between attempts to reach the witness.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            beat: Duration::from_millis(200),
            lease: Duration::from_secs(1),
            // 1 % for the clocks, and 100 ms.
            promise: Duration::from_millis(1110),
            lost: Duration::from_secs(2),
            patience: Duration::from_secs(3),
            retry: Duration::from_millis(500),
        }
    }
}

/// An action for the caller to carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send the partner a beat; its answer returns `sent`.
    Beat {
        /// The term of this primary.
        term: u64,
        /// Version of the register, as this side knows it.
        version: u64,
        /// Current time by this side's clock.
        sent: Duration,
    },
    /// Answer the partner's beat with its own values.
    Answer {
        /// Term of the partner.
        term: u64,
        /// Time at which the beat was sent, by the partner's clock.
        sent: Duration,
    },
    /// Ask the witness for the register.
    Read,
    /// Ask the witness to replace the previous version with this register, once every acknowledged
    /// change is durable here.
    Swap(Register),
    /// Make this register durable on this side, then call [`Node::noted`].
    Note(Register),
}

/// Condition for reporting a change to its client. The change is durable on this side in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replies {
    /// Held until the role changes.
    Held,
    /// Once the partner has acknowledged the change in this term.
    WithPartner(u64),
    /// As soon as the change is durable on this side.
    Alone,
}

/// Role of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The node has to learn its role from the witness.
    Asking,
    /// It was the primary of a pair in sync, and leaves the partner until this time to take over.
    Yielding(Duration),
    /// Changes wait for the partner.
    Primary,
    /// The partner is lost, or the register may say so: changes are held.
    Deciding,
    /// The node is alone, or has taken over, and that is not durable here yet.
    Noting,
    /// It is the primary, and alone.
    Alone,
    /// It is in sync, and acknowledges.
    Standby,
    /// It acknowledges nothing any more, and asks the witness to become the primary.
    TakingOver,
    /// It is not in sync, and can only be resynced.
    Behind,
}

/// The rules of one of the two nodes: takes events, returns actions.
#[derive(Clone, Debug)]
pub struct Node {
    side: Side,
    timing: Timing,
    /// Register in the last reply of the witness.
    register: Register,
    role: Role,
    /// Time from which on no lease of the partner can run any more.
    free_from: Duration,
    /// Time until which reads are answered.
    lease: Duration,
    /// Time at which the partner was last heard.
    heard: Duration,
    next_beat: Duration,
    next_try: Duration,
    /// True once the register to be noted is durable.
    noted: bool,
    /// Lower bound of this side's own terms, exclusive.
    above: u64,
    /// True if it may lack changes that it acknowledged before it started.
    unsure: bool,
    /// True if it lacks such changes, and those reported while both were in sync.
    lacking: bool,
}

impl Node {
    /// Starts a node. `noted`: the register that it noted last.
    #[must_use]
    pub fn start(side: Side, noted: Register, timing: Timing, now: Duration) -> Node {
        Node {
            side,
            timing,
            register: noted,
            role: Role::Asking,
            free_from: now + timing.promise,
            lease: Duration::ZERO,
            heard: now,
            next_beat: now,
            next_try: now,
            noted: false,
            above: 0,
            unsure: false,
            lacking: false,
        }
    }

    /// Marks changes acknowledged before the start as possibly not durable here, as in a pair that
    /// acknowledges received changes. The node then does not take over before a primary has found
    /// it to [have everything](Node::has_everything).
    #[must_use]
    pub fn unsure(mut self) -> Node {
        self.unsure = true;
        self
    }

    /// Marks changes acknowledged and reported before the start, while the two were in sync, as
    /// lost with the log; those reported alone are not. Acts like [`Node::unsure`], and a former
    /// primary leaves the takeover to its partner, for as long as it takes.
    #[must_use]
    pub fn lacking(mut self) -> Node {
        self.lacking = true;
        self.unsure()
    }

    /// Notes that the primary of this term continues after this side's position.
    pub fn has_everything(&mut self, now: Duration, term: u64) -> Vec<Action> {
        self.lacking = false;
        let was = std::mem::replace(&mut self.unsure, false);
        let standby = self.register.mirrored
            && self.register.primary != self.side
            && self.register.term == term;
        match self.role {
            Role::Behind if was && standby => self.be_other(now),
            _ => Vec::new(),
        }
    }

    /// Sets the lower bound of this side's own terms: the copy has a position in `term`, from a
    /// pair that was ended.
    #[must_use]
    pub fn above(mut self, term: u64) -> Node {
        self.above = term;
        self
    }

    /// Returns the register in which this side serves alone.
    fn own(&self) -> Register {
        let own = self.register.alone(self.side);
        Register {
            term: own.term.max(self.above + 1),
            ..own
        }
    }

    /// Returns the role after the last event.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the register as this node knows it.
    #[must_use]
    pub fn register(&self) -> Register {
        self.register
    }

    /// Returns the condition for reporting changes to clients.
    #[must_use]
    pub fn replies(&self) -> Replies {
        match self.role {
            Role::Primary => Replies::WithPartner(self.register.term),
            Role::Alone => Replies::Alone,
            _ => Replies::Held,
        }
    }

    /// Returns true if the reply to a read may be sent now. Call it after the read was evaluated.
    #[must_use]
    pub fn may_read(&self, now: Duration) -> bool {
        match self.role {
            Role::Alone => true,
            Role::Primary | Role::Deciding => now < self.lease,
            _ => false,
        }
    }

    /// Returns the time until which replies to reads may be sent, by this side's clock.
    #[must_use]
    pub fn reads_until(&self) -> Duration {
        match self.role {
            Role::Alone => Duration::MAX,
            Role::Primary | Role::Deciding => self.lease,
            _ => Duration::ZERO,
        }
    }

    /// Returns the side that it was started as.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns true if entries of this term are acknowledged that follow this side's position. A
    /// node that is behind acknowledges once it has everything else from the primary of that term.
    #[must_use]
    pub fn acknowledges(&self, term: u64) -> bool {
        match self.role {
            Role::Standby => self.register.term == term,
            Role::Behind => self.register.term <= term,
            _ => false,
        }
    }

    /// Returns the actions due by `now`. Call it every [`Timing::beat`] or more often.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        match self.role {
            Role::Primary => {
                if now >= self.heard + self.timing.lost {
                    return self.lose_partner(now);
                }
                self.beat(now)
            }
            Role::Alone if now >= self.next_beat => self.beat(now),
            Role::Deciding => self.try_again(now, Action::Swap(self.own())),
            Role::Asking => self.try_again(now, Action::Read),
            Role::Behind if now >= self.heard + self.timing.patience => {
                // Check that it is still behind.
                self.try_again(now, Action::Read)
            }
            Role::Standby if now >= (self.heard + self.timing.patience).max(self.free_from) => {
                self.take_over(now)
            }
            Role::TakingOver => self.try_again(now, Action::Swap(self.own())),
            Role::Yielding(until) if now >= until => self.open(now),
            // Check for a takeover by the partner.
            Role::Yielding(_) if self.lacking => self.try_again(now, Action::Read),
            // Nothing is served before a lease of the partner has run out.
            Role::Noting if self.noted && now >= self.free_from => {
                self.role = Role::Alone;
                // No other change was reported.
                self.lacking = false;
                self.next_beat = now;
                self.beat(now)
            }
            _ => Vec::new(),
        }
    }

    fn beat(&mut self, now: Duration) -> Vec<Action> {
        if now < self.next_beat {
            return Vec::new();
        }
        self.next_beat = now + self.timing.beat;
        vec![Action::Beat {
            term: self.register.term,
            version: self.register.version,
            sent: now,
        }]
    }

    fn try_again(&mut self, now: Duration, action: Action) -> Vec<Action> {
        if now < self.next_try {
            return Vec::new();
        }
        self.next_try = now + self.timing.retry;
        vec![action]
    }

    fn lose_partner(&mut self, now: Duration) -> Vec<Action> {
        self.role = Role::Deciding;
        self.next_try = now;
        self.tick(now)
    }

    fn take_over(&mut self, now: Duration) -> Vec<Action> {
        self.role = Role::TakingOver;
        self.next_try = now;
        self.tick(now)
    }

    /// Notes that the connection to the partner broke because its process is gone, or that the
    /// partner refuses.
    pub fn partner_gone(&mut self, now: Duration) -> Vec<Action> {
        match self.role {
            Role::Primary => self.lose_partner(now),
            Role::Standby if now >= self.free_from => self.take_over(now),
            Role::Standby => {
                // The standby takes over as soon as its promise has run out.
                // Saturates: the times may be near the start.
                self.heard = self.free_from.saturating_sub(self.timing.patience);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Notes that this side, a primary in sync, replies to nobody any more, and has told its
    /// partner so.
    pub fn hand_over(&mut self, now: Duration) {
        if self.role == Role::Primary {
            self.role = Role::Behind;
            self.lease = Duration::ZERO;
            self.heard = now;
        }
    }

    /// Notes that the primary of this term has handed over: it replies to nobody any more, not even
    /// to reads.
    pub fn handed_over(&mut self, now: Duration, term: u64) -> Vec<Action> {
        match self.role {
            Role::Standby if term == self.register.term => {
                self.free_from = now;
                self.take_over(now)
            }
            _ => Vec::new(),
        }
    }

    /// Makes this side serve its copy, complete or not, because a user says that the other side is
    /// off. The witness still decides who is primary.
    pub fn force(&mut self, now: Duration) -> Vec<Action> {
        match self.role {
            Role::Standby | Role::Behind | Role::Asking | Role::Yielding(_) => {
                self.free_from = self.free_from.max(self.heard + self.timing.promise);
                self.take_over(now)
            }
            _ => Vec::new(),
        }
    }

    /// Notes the partner's beat.
    pub fn heard_beat(
        &mut self,
        now: Duration,
        term: u64,
        version: u64,
        sent: Duration,
    ) -> Vec<Action> {
        match self.role {
            Role::Standby if term == self.register.term => {
                self.heard = self.heard.max(now);
                self.free_from = self.free_from.max(now + self.timing.promise);
                vec![Action::Answer { term, sent }]
            }
            // The partner serves; the witness knows this side's role.
            Role::Standby | Role::Primary | Role::Alone | Role::Deciding | Role::Yielding(_)
                if term > self.register.term =>
            {
                self.role = Role::Asking;
                self.next_try = now;
                self.tick(now)
            }
            Role::Behind => {
                self.heard = self.heard.max(now);
                match version > self.register.version {
                    true => self.try_again(now, Action::Read),
                    false => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Notes the partner's answer to the beat sent at `sent`.
    pub fn heard_answer(&mut self, now: Duration, term: u64, sent: Duration) {
        if term == self.register.term && matches!(self.role, Role::Primary | Role::Deciding) {
            self.heard = self.heard.max(now);
            self.lease = self.lease.max(sent + self.timing.lease);
        }
    }

    /// Notes that the partner of a primary that is alone has caught up. Replies to clients wait for
    /// it from now on.
    pub fn caught_up(&mut self, now: Duration) -> Vec<Action> {
        if self.role != Role::Alone {
            return Vec::new();
        }
        // Once the register is requested the partner may take over.
        self.role = Role::Primary;
        self.heard = now;
        self.lease = Duration::ZERO;
        vec![Action::Swap(self.register.joined())]
    }

    /// Handles the witness's reply to a read or a swap.
    pub fn witness(&mut self, now: Duration, reply: Swap) -> Vec<Action> {
        let (Swap::Done(register) | Swap::Lost(register)) = reply;
        if register.version < self.register.version {
            // A late reply.
            return Vec::new();
        }
        let known = register == self.register;
        self.register = register;
        if register.primary == self.side {
            self.be_primary(now, known)
        } else {
            self.be_other(now)
        }
    }

    fn be_primary(&mut self, now: Duration, known: bool) -> Vec<Action> {
        let mirrored = self.register.mirrored;
        match self.role {
            // It was alone before, and has noted that.
            Role::Asking if !mirrored && known => {
                self.free_from = now;
                self.open(now)
            }
            // Or an earlier process had requested it, once every reported change was durable: a
            // partner that was waited for cannot take over any more.
            Role::Asking | Role::Yielding(_) if !mirrored => self.open(now),
            Role::Asking => {
                let until = match self.lacking {
                    true => Duration::MAX,
                    false => now + self.timing.patience + self.timing.retry,
                };
                self.role = Role::Yielding(until);
                Vec::new()
            }
            // This node assumed that it was the only survivor; the register says that the partner
            // is in sync, so it yields.
            Role::Deciding if mirrored && self.lacking => {
                self.role = Role::Yielding(Duration::MAX);
                Vec::new()
            }
            // The change was made, now or before.
            Role::Deciding | Role::TakingOver if !mirrored && !known => self.note(),
            Role::Primary if !mirrored && !known => self.note(),
            // Nothing has changed.
            Role::Standby | Role::Behind => self.open(now),
            _ => Vec::new(),
        }
    }

    /// Begins a new term of its own.
    fn open(&mut self, now: Duration) -> Vec<Action> {
        self.role = Role::Deciding;
        self.next_try = now;
        self.lease = Duration::ZERO;
        self.tick(now)
    }

    fn note(&mut self) -> Vec<Action> {
        self.role = Role::Noting;
        self.noted = false;
        self.lease = Duration::ZERO;
        vec![Action::Note(self.register)]
    }

    fn be_other(&mut self, now: Duration) -> Vec<Action> {
        let role = match self.register.mirrored && !self.unsure {
            true => Role::Standby,
            false => Role::Behind,
        };
        // A former primary, alone or not, is behind the new one.
        let was_primary = matches!(
            self.role,
            Role::Primary | Role::Deciding | Role::Alone | Role::Noting | Role::Yielding(_)
        );
        self.lease = Duration::ZERO;
        self.heard = now;
        self.role = match was_primary {
            true => Role::Behind,
            false => role,
        };
        Vec::new()
    }

    /// Notes that the register is durable here.
    pub fn noted(&mut self, now: Duration, register: Register) -> Vec<Action> {
        if self.role != Role::Noting || register != self.register {
            return Vec::new();
        }
        self.noted = true;
        self.tick(now)
    }
}
