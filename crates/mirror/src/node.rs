//! The rules of a node of a pair, as a machine without threads, sockets and clocks: events and times in, actions out.
//!
//! **Writes need no clock.** While the pair is in sync, the primary replies to a change only once the standby has acknowledged it,
//! in the same term. A standby that is about to take over acknowledges nothing any more. So from then on the primary
//! completes nothing, whatever it believes.
//!
//! **Alone only by the witness.** The primary goes on without its partner only after a compare-and-swap that takes the
//! partner out of the set, and after that is noted durably on its own side ([`Action::Note`]). The standby takes over only
//! by one from a version in which it had everything. Both begin a new term. Of two that try from one version one wins;
//! the other holds still and reads.
//!
//! **What the register says is so, what a node believes may be late.** A change whose reply was lost may be made, or be made
//! later. A node that does not know keeps to what is safe under both: it acknowledges nothing, and answers nothing that is not acknowledged.
//!
//! **Reads need a lease.** A primary in sync answers a read only within [`Timing::lease`] from the *sending* of the last beat that
//! the standby has answered. With each answer the standby promises not to serve before that is over by its own
//! clock, with a margin for clocks that run unevenly. A promise is in memory only: a node that starts does not know
//! what it has promised, and so waits as long, unless it knows by its own note that it was the primary and alone.
//! A primary that is alone needs no lease: nobody can take over.
//!
//! **Who begins after a crash.** A primary that comes back while the register has both may have lost data that was written without
//! stability, and the standby has not: it leaves the standby the time to take over, and only then goes on itself. One whose log is gone
//! has lost what it had acknowledged, and never goes on by itself ([`Node::lacking`]).

use std::time::Duration;

use crate::register::{Register, Side, Swap};

/// Times of a pair, the same on both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// From one beat to the next; well below `lease`, which beats renew.
    pub beat: Duration,
    /// How long a primary may answer reads after the sending of a beat that was answered.
    pub lease: Duration,
    /// How long a standby that has answered a beat does not serve.
    pub promise: Duration,
    /// A primary takes a partner for lost that has not answered for so long.
    pub lost: Duration,
    /// A standby takes a primary for lost that has not been heard for so long: longer than `lost`, so that of two that are up
    /// but do not hear each other the primary stays.
    pub patience: Duration,
    /// Between two attempts to reach the witness.
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

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send the partner a beat; `sent` comes back with its answer.
    Beat {
        /// The term of this primary.
        term: u64,
        /// Of the register, as this side knows it.
        version: u64,
        /// Now, by this side's clock.
        sent: Duration,
    },
    /// Answer the partner's beat with what it says itself.
    Answer {
        /// Term of the partner.
        term: u64,
        /// The time at which it was sent, by the partner's clock.
        sent: Duration,
    },
    /// Ask the witness for the register.
    Read,
    /// Ask the witness to put this in place of the version before, once everything that was acknowledged is durable here.
    Swap(Register),
    /// Make it durable on this side that this is so, then call [`Node::noted`].
    Note(Register),
}

/// When a change may be reported to the client that made it. It is durable on this side in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replies {
    /// Not before the role is another.
    Held,
    /// When the partner has acknowledged it in this term.
    WithPartner(u64),
    /// As soon as it is durable on this side.
    Alone,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has to learn from the witness what it is.
    Asking,
    /// It was the primary of a pair in sync, and leaves the partner until then to take over.
    Yielding(Duration),
    /// Changes wait for the partner.
    Primary,
    /// The partner is lost, or the witness may say so: changes are held.
    Deciding,
    /// It is alone, or has taken over, and that is not durable here yet.
    Noting,
    /// It is the primary, and alone.
    Alone,
    /// It has everything, and acknowledges.
    Standby,
    /// It acknowledges nothing any more, and asks the witness to be the primary.
    TakingOver,
    /// It does not have everything, and can only be brought up to date.
    Behind,
}

/// The rules of one of the two nodes: what happens goes in, and what is to be done comes out.
#[derive(Clone, Debug)]
pub struct Node {
    side: Side,
    timing: Timing,
    /// As of the last reply of the witness.
    register: Register,
    role: Role,
    /// No lease of the partner's can run any more from then on.
    free_from: Duration,
    /// Until then reads are answered.
    lease: Duration,
    /// When the partner was heard last.
    heard: Duration,
    next_beat: Duration,
    next_try: Duration,
    /// What was to be noted is durable.
    noted: bool,
    /// Terms of this side's own are above this.
    above: u64,
    /// It may lack what it has acknowledged before it started.
    unsure: bool,
    /// It does, and what it has reported while both were in sync.
    lacking: bool,
}

impl Node {
    /// A node that starts. `noted`: what it has noted last.
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

    /// What it acknowledged before it started may not have been durable here, as in a pair that acknowledges what was received: it does not
    /// take over before a primary has found it to [have everything](Node::has_everything).
    #[must_use]
    pub fn unsure(mut self) -> Node {
        self.unsure = true;
        self
    }

    /// What it acknowledged and reported before it started, while the two were in sync, is gone from here with its log; what it reported alone
    /// is not. As [`Node::unsure`], and if it was the primary it leaves all that to its partner, for as long as it takes.
    #[must_use]
    pub fn lacking(mut self) -> Node {
        self.lacking = true;
        self.unsure()
    }

    /// The primary of this term goes on behind what this side has.
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

    /// Terms of this side's own are above this: the copy has a position in it, from a pair that was ended.
    #[must_use]
    pub fn above(mut self, term: u64) -> Node {
        self.above = term;
        self
    }

    /// The register in which this side serves alone.
    fn own(&self) -> Register {
        let own = self.register.alone(self.side);
        Register {
            term: own.term.max(self.above + 1),
            ..own
        }
    }

    /// The role as of the last event.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The register as this node knows it.
    #[must_use]
    pub fn register(&self) -> Register {
        self.register
    }

    /// When changes may be reported to clients.
    #[must_use]
    pub fn replies(&self) -> Replies {
        match self.role {
            Role::Primary => Replies::WithPartner(self.register.term),
            Role::Alone => Replies::Alone,
            _ => Replies::Held,
        }
    }

    /// Whether the reply to a read may be sent now. To be called after it was evaluated.
    #[must_use]
    pub fn may_read(&self, now: Duration) -> bool {
        match self.role {
            Role::Alone => true,
            Role::Primary | Role::Deciding => now < self.lease,
            _ => false,
        }
    }

    /// Until when replies to reads may be sent, by this side's clock.
    #[must_use]
    pub fn reads_until(&self) -> Duration {
        match self.role {
            Role::Alone => Duration::MAX,
            Role::Primary | Role::Deciding => self.lease,
            _ => Duration::ZERO,
        }
    }

    /// The side that it was started as.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Whether entries of this term are acknowledged that follow what this side has. One that is behind does so once it has
    /// got everything else from the primary of that term.
    #[must_use]
    pub fn acknowledges(&self, term: u64) -> bool {
        match self.role {
            Role::Standby => self.register.term == term,
            Role::Behind => self.register.term <= term,
            _ => false,
        }
    }

    /// Does what is due by `now`. To be called every [`Timing::beat`] or more often.
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
                // Whether it is still so.
                self.try_again(now, Action::Read)
            }
            Role::Standby if now >= (self.heard + self.timing.patience).max(self.free_from) => {
                self.take_over(now)
            }
            Role::TakingOver => self.try_again(now, Action::Swap(self.own())),
            Role::Yielding(until) if now >= until => self.open(now),
            // Whether the partner has taken over.
            Role::Yielding(_) if self.lacking => self.try_again(now, Action::Read),
            // Before a lease of the partner's may have run out, nothing is served.
            Role::Noting if self.noted && now >= self.free_from => {
                self.role = Role::Alone;
                // Nothing else was reported.
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

    /// The connection to the partner broke in a way that says that its process is gone, or the partner refuses.
    pub fn partner_gone(&mut self, now: Duration) -> Vec<Action> {
        match self.role {
            Role::Primary => self.lose_partner(now),
            Role::Standby if now >= self.free_from => self.take_over(now),
            Role::Standby => {
                // As soon as its lease has run out.
                // Saturates: times near the start.
                self.heard = self.free_from.saturating_sub(self.timing.patience);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// This side, a primary in sync, replies to nobody any more, and has told its partner so.
    pub fn hand_over(&mut self, now: Duration) {
        if self.role == Role::Primary {
            self.role = Role::Behind;
            self.lease = Duration::ZERO;
            self.heard = now;
        }
    }

    /// The primary of this term has handed over: it replies to nobody any more, reads included.
    pub fn handed_over(&mut self, now: Duration, term: u64) -> Vec<Action> {
        match self.role {
            Role::Standby if term == self.register.term => {
                self.free_from = now;
                self.take_over(now)
            }
            _ => Vec::new(),
        }
    }

    /// A user says that the other side is off, and that this one is to serve what it has, complete or not. The witness
    /// still has the last word on who is primary.
    pub fn force(&mut self, now: Duration) -> Vec<Action> {
        match self.role {
            Role::Standby | Role::Behind | Role::Asking | Role::Yielding(_) => {
                self.free_from = self.free_from.max(self.heard + self.timing.promise);
                self.take_over(now)
            }
            _ => Vec::new(),
        }
    }

    /// The partner's beat has arrived.
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
            // It serves; what this side is to it, the witness knows.
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

    /// The partner has answered the beat sent at `sent`.
    pub fn heard_answer(&mut self, now: Duration, term: u64, sent: Duration) {
        if term == self.register.term && matches!(self.role, Role::Primary | Role::Deciding) {
            self.heard = self.heard.max(now);
            self.lease = self.lease.max(sent + self.timing.lease);
        }
    }

    /// The partner of a primary that is alone has everything, and replies to clients wait for it from now on.
    pub fn caught_up(&mut self, now: Duration) -> Vec<Action> {
        if self.role != Role::Alone {
            return Vec::new();
        }
        // Once it is asked for the partner may take over.
        self.role = Role::Primary;
        self.heard = now;
        self.lease = Duration::ZERO;
        vec![Action::Swap(self.register.joined())]
    }

    /// The witness has replied to a question or a change.
    pub fn witness(&mut self, now: Duration, reply: Swap) -> Vec<Action> {
        let (Swap::Done(register) | Swap::Lost(register)) = reply;
        if register.version < self.register.version {
            // Late.
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
            // It was alone before, and has noted it.
            Role::Asking if !mirrored && known => {
                self.free_from = now;
                self.open(now)
            }
            // Or a process before it had asked for that, once all that was reported was durable: a partner that
            // was waited for cannot take over any more.
            Role::Asking | Role::Yielding(_) if !mirrored => self.open(now),
            Role::Asking => {
                let until = match self.lacking {
                    true => Duration::MAX,
                    false => now + self.timing.patience + self.timing.retry,
                };
                self.role = Role::Yielding(until);
                Vec::new()
            }
            // It was taken for what is left, and is not.
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
        // A primary that has lost that role, alone or not, is behind the one that has it.
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

    /// What was to be noted is durable here.
    pub fn noted(&mut self, now: Duration, register: Register) -> Vec<Action> {
        if self.role != Role::Noting || register != self.register {
            return Vec::new();
        }
        self.noted = true;
        self.tick(now)
    }
}
