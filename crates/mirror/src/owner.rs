//! The rules of an owner of an aggregate on shared objects, as a state machine without threads, I/O
//! and clocks: events and times in, actions out.
//!
//! The objects are in a store such as RADOS, which compares an epoch in each guarded write, keeps a
//! lock, and can put a client on a blocklist.
//!
//! **Changes need the epoch.** A new owner takes the next epoch with a compare-and-swap, then sets
//! it in all guarded objects (the seal). From then on the store refuses log batches and superblocks
//! of every earlier owner. So the log is replayed after the seal, and not before it is complete.
//!
//! **Data blocks need the blocklist.** They are not guarded. So an owner writes none before it
//! holds the lock, and it gets the lock only once each client that held it before is on the
//! blocklist. All who ever wrote data held the lock, so nobody unfenced can write any. The
//! blocklist is a commit of monitors and takes up to a second; it runs beside seal and replay, and
//! small stable writes, which go to the log only, do not wait for it.
//!
//! **The blocklist needs its map.** A place of storage refuses a client only once it has the map
//! with the blocklist, and it gets maps from the clients that use it. So an owner that holds the
//! lock gets the newest map before it writes data. The map of its own blocklist is not enough:
//! another server may have shut a holder out, broken the lock and ended, and left the lock free.
//!
//! **The lock needs the epoch.** The lock compares nothing, so an owner that was suspended on the
//! way to it may come to it after a later owner. It shuts no later owner out, and it compares the
//! epoch again once it holds the lock: a server that takes the next epoch later finds the lock
//! held.
//!
//! **Replies need a lease.** A reply may leave within [`OwnerTiming::lease`] of *sending* a touch
//! that was accepted; a touch compares the epoch. A new owner replies to nothing before
//! [`OwnerTiming::wait`] has passed since it learned that it has the epoch, unless it knows that no
//! earlier owner can answer any more.
//!
//! **The store is authoritative.** An owner that is refused, shut out or without a lease for too
//! long drops all that it has in memory and begins anew. Its next incarnation is another client.
//!
//! **A standby waits.** It looks for as long as the owner touches the aggregate, and takes over by
//! the same rules as any other owner. Each look counts by itself: a standby that found the
//! aggregate free and came too late waits for the lease of the one that came first. An owner that
//! ends for a certain standby reserves the aggregate: all others wait until they would take it
//! from a silent owner.

use std::time::Duration;

/// Times of an owner, equal on all machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerTiming {
    /// Time for which an owner may reply, from the sending of an accepted touch on.
    pub lease: Duration,
    /// Time for which a new owner does not reply: `lease` by the slowest clock, and the time
    /// between a touch's sending and its note.
    pub wait: Duration,
    /// Interval between touches; well below `lease`.
    pub touch: Duration,
    /// Time without a touch after which an owner is considered dead.
    pub silence: Duration,
    /// Interval between two checks of another owner's touches.
    pub look: Duration,
    /// Interval between attempts to put clients on the blocklist, or to confirm the lock.
    pub retry: Duration,
    /// Time after the end of its lease after which an owner drops everything.
    pub expiry: Duration,
}

/// An action for the caller to carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerAction {
    /// Read the aggregate's record and lock, then call [`Owner::found`].
    Look,
    /// Replace the epoch if it is still `before`, then call [`Owner::epoch_taken`] or
    /// [`Owner::epoch_refused`].
    TakeEpoch {
        /// The epoch that was found; `None` if there was no record.
        before: Option<u64>,
        /// The new one.
        epoch: u64,
    },
    /// Set the epoch in all guarded objects, where it is older, then call [`Owner::sealed`].
    Seal(u64),
    /// Take the lock, then call [`Owner::locked`] or [`Owner::lock_held`].
    Lock(u64),
    /// Put all holders of the lock on the blocklist, then call [`Owner::blocklisted`],
    /// [`Owner::blocklist_refused`] or [`Owner::lock_failed`].
    Blocklist,
    /// Break the lock of those who were put on the blocklist, then call [`Owner::lock_broken`].
    BreakLock,
    /// Compare the record's epoch, and get the newest map, with each blocklist that was in force
    /// before this. Then call [`Owner::lock_confirmed`], [`Owner::guard_refused`] or
    /// [`Owner::lock_failed`].
    ConfirmLock(u64),
    /// Read superblock and log, then call [`Owner::replayed`].
    Replay,
    /// Small stable writes may be acknowledged, while replies may leave.
    AllowChanges,
    /// Checkpoints and direct writes may begin.
    AllowData,
    /// Touch the aggregate, then call [`Owner::touched`] with `sent`.
    Touch {
        /// Current time by this side's clock.
        sent: Duration,
        /// True if no earlier owner replies any more. The record has to say so from this touch on.
        alone: bool,
    },
    /// Replies may leave between these times by this side's clock.
    AllowReplies {
        /// Time from which on no earlier owner replies.
        from: Duration,
        /// End of the lease.
        until: Duration,
    },
    /// Drop everything that is in memory, and reply to nobody any more.
    Drop(Loss),
}

/// Reason of [`OwnerAction::Drop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Another owner touches the aggregate. Nothing was taken.
    Served,
    /// Another one took the epoch at the same moment. Nothing was taken.
    AtOnce,
    /// No epoch is left.
    NoEpoch,
    /// A guard refused: another owner has taken the aggregate.
    Taken,
    /// The store has shut this client out.
    ShutOut,
    /// No touch was accepted for too long.
    Expired,
    /// This client may not put others on the blocklist.
    MayNotBlocklist,
}

impl Loss {
    /// Returns true if a new incarnation may begin at once.
    #[must_use]
    pub fn begins_anew(self) -> bool {
        matches!(self, Loss::Taken | Loss::ShutOut | Loss::Expired)
    }
}

/// The aggregate's record and lock, as they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObservedOwner {
    /// The epoch; `None` if there is no record.
    pub epoch: Option<u64>,
    /// Counter of the owner's touches.
    pub touch: u64,
    /// True if the record describes a process. An owner that ends properly removes itself.
    pub described: bool,
    /// True if that process has certainly ended.
    pub ended: bool,
    /// True if no owner before that one replies any more.
    pub alone: bool,
    /// True if the owner ended for another process than this one.
    pub reserved: bool,
    /// Epochs under which clients hold the lock.
    pub locks: Vec<u64>,
}

impl ObservedOwner {
    /// Returns true if no process can reply any more. The holders of the lock have to be of the
    /// record's epoch: a server that failed to take over may have replaced the description of one
    /// that it has not shut out. An owner that ended soon may have left the lease of its
    /// predecessor running.
    fn is_free(&self) -> bool {
        let of_record = self.locks.iter().all(|lock| Some(*lock) == self.epoch);
        match self.described {
            false => of_record && !self.reserved,
            true => of_record && self.ended && self.alone && !self.locks.is_empty(),
        }
    }
}

/// Role of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerRole {
    /// It finds out whether there is another owner.
    Looking,
    /// It has asked for the epoch.
    Taking,
    /// It has the epoch, and sets it in all guarded objects.
    Sealing,
    /// It reads superblock and log.
    Replaying,
    /// It serves.
    Owning,
    /// It has dropped everything.
    Dropped(Loss),
}

/// State of the way to the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LockState {
    /// The lock has been asked for, or one of the steps to it is under way.
    Asked,
    /// The blocklist is tried again at this time.
    Failed(Duration),
    /// The lock is held, and is being confirmed.
    Confirming,
    /// The lock is held, and is confirmed again at this time.
    Unconfirmed(Duration),
    /// The lock was held while the epoch was this owner's, and this client has the map of each
    /// blocklist before that.
    Held,
}

/// The rules of an owner: takes events, returns actions.
#[derive(Clone, Debug)]
pub struct Owner {
    timing: OwnerTiming,
    role: OwnerRole,
    /// True if it waits for as long as another owner touches the aggregate.
    is_standby: bool,
    epoch: u64,
    lock: LockState,
    next_look: Duration,
    next_touch: Duration,
    /// The other owner's epoch and touch, and the time since which they are the same.
    watched: Option<(Option<u64>, u64, Duration)>,
    /// True if an earlier owner may still reply.
    may_answer: bool,
    /// Time from which on no earlier owner replies.
    from: Duration,
    /// End of the lease.
    until: Duration,
}

impl Owner {
    /// Starts an incarnation, which ends if another owner touches the aggregate.
    #[must_use]
    pub fn start(timing: OwnerTiming, now: Duration) -> Owner {
        Owner {
            timing,
            role: OwnerRole::Looking,
            is_standby: false,
            epoch: 0,
            lock: LockState::Asked,
            next_look: now,
            next_touch: now,
            watched: None,
            may_answer: true,
            from: Duration::MAX,
            until: now,
        }
    }

    /// Starts a standby, which waits while another owner touches the aggregate.
    #[must_use]
    pub fn standby(timing: OwnerTiming, now: Duration) -> Owner {
        Owner {
            is_standby: true,
            ..Owner::start(timing, now)
        }
    }

    /// Returns the role after the last event.
    #[must_use]
    pub fn role(&self) -> OwnerRole {
        self.role
    }

    /// Returns the epoch; 0 before it is taken.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns true if a reply may leave now that was computed before this is called.
    #[must_use]
    pub fn may_reply(&self, now: Duration) -> bool {
        self.role == OwnerRole::Owning && now >= self.from && now < self.until
    }

    /// Returns true if data blocks may be written.
    #[must_use]
    pub fn may_write_data(&self) -> bool {
        self.has_epoch() && self.lock == LockState::Held
    }

    /// Returns the time from which on no earlier owner replies; the latest time before the epoch is
    /// taken.
    #[must_use]
    pub fn replies_from(&self) -> Duration {
        self.from
    }

    /// Returns true if this owner, which has completed everything and replies no more, may leave a
    /// record that says that nobody replies any more.
    #[must_use]
    pub fn may_release(&self, now: Duration) -> bool {
        // An earlier owner may reply until then, or write data.
        self.has_epoch() && now >= self.from && self.lock == LockState::Held
    }

    fn has_epoch(&self) -> bool {
        use OwnerRole::{Owning, Replaying, Sealing};
        matches!(self.role, Sealing | Replaying | Owning)
    }

    fn end(&mut self, loss: Loss) -> Vec<OwnerAction> {
        if matches!(self.role, OwnerRole::Dropped(_)) {
            return Vec::new();
        }
        self.role = OwnerRole::Dropped(loss);
        vec![OwnerAction::Drop(loss)]
    }

    /// Returns the actions due by `now`. Call it every [`OwnerTiming::look`] while looking, and
    /// every [`OwnerTiming::touch`] afterwards, or more often.
    pub fn tick(&mut self, now: Duration) -> Vec<OwnerAction> {
        match self.role {
            OwnerRole::Looking if now >= self.next_look => {
                // Until the answer is there.
                self.next_look = Duration::MAX;
                vec![OwnerAction::Look]
            }
            OwnerRole::Looking | OwnerRole::Taking | OwnerRole::Dropped(_) => Vec::new(),
            OwnerRole::Sealing | OwnerRole::Replaying | OwnerRole::Owning => {
                if now >= self.until + self.timing.expiry {
                    return self.end(Loss::Expired);
                }
                let mut actions = Vec::new();
                if now >= self.next_touch {
                    self.next_touch = now + self.timing.touch;
                    actions.push(self.touch(now));
                }
                actions.extend(self.retry_lock(now));
                actions
            }
        }
    }

    /// Returns the step on the way to the lock that is due again.
    fn retry_lock(&mut self, now: Duration) -> Option<OwnerAction> {
        match self.lock {
            LockState::Failed(next) if now >= next => {
                self.lock = LockState::Asked;
                Some(OwnerAction::Blocklist)
            }
            LockState::Unconfirmed(next) if now >= next => {
                self.lock = LockState::Confirming;
                Some(OwnerAction::ConfirmLock(self.epoch))
            }
            _ => None,
        }
    }

    /// Notes the record and the lock.
    pub fn found(&mut self, now: Duration, found: &ObservedOwner) -> Vec<OwnerAction> {
        if self.role != OwnerRole::Looking {
            return Vec::new();
        }
        self.may_answer = !found.is_free();
        if !self.may_answer {
            return self.take(found.epoch);
        }
        let seen = (found.epoch, found.touch);
        // The first look counts from its answer.
        let (epoch, touch, since) = *self.watched.get_or_insert((seen.0, seen.1, now));
        if (epoch, touch) != seen {
            if !self.is_standby {
                return self.end(Loss::Served);
            }
            self.watched = Some((seen.0, seen.1, now));
        } else if now >= since + self.timing.silence {
            return self.take(found.epoch);
        }
        self.next_look = now + self.timing.look;
        Vec::new()
    }

    fn take(&mut self, before: Option<u64>) -> Vec<OwnerAction> {
        let Some(epoch) = before.unwrap_or(0).checked_add(1) else {
            return self.end(Loss::NoEpoch);
        };
        self.role = OwnerRole::Taking;
        self.epoch = epoch;
        vec![OwnerAction::TakeEpoch { before, epoch }]
    }

    /// Notes that the epoch is this owner's: touches of earlier owners are refused from now on.
    pub fn epoch_taken(&mut self, now: Duration) -> Vec<OwnerAction> {
        if self.role != OwnerRole::Taking {
            return Vec::new();
        }
        self.role = OwnerRole::Sealing;
        self.from = match self.may_answer {
            true => now + self.timing.wait,
            false => now,
        };
        self.until = now;
        self.next_touch = now + self.timing.touch;
        vec![
            self.touch(now),
            OwnerAction::Seal(self.epoch),
            OwnerAction::Lock(self.epoch),
        ]
    }

    /// Notes that another one has taken the epoch. A standby goes on waiting.
    pub fn epoch_refused(&mut self, now: Duration) -> Vec<OwnerAction> {
        match self.role {
            OwnerRole::Taking if self.is_standby => {
                self.role = OwnerRole::Looking;
                self.epoch = 0;
                self.next_look = now + self.timing.look;
                Vec::new()
            }
            OwnerRole::Taking => self.end(Loss::AtOnce),
            _ => Vec::new(),
        }
    }

    /// Notes that all guarded objects have the epoch.
    pub fn sealed(&mut self) -> Vec<OwnerAction> {
        if self.role != OwnerRole::Sealing {
            return Vec::new();
        }
        self.role = OwnerRole::Replaying;
        vec![OwnerAction::Replay]
    }

    /// Notes that this owner has read all that earlier ones acknowledged.
    pub fn replayed(&mut self) -> Vec<OwnerAction> {
        if self.role != OwnerRole::Replaying {
            return Vec::new();
        }
        self.role = OwnerRole::Owning;
        vec![OwnerAction::AllowChanges, self.replies()]
    }

    fn touch(&self, now: Duration) -> OwnerAction {
        OwnerAction::Touch {
            sent: now,
            alone: now >= self.from,
        }
    }

    fn replies(&self) -> OwnerAction {
        OwnerAction::AllowReplies {
            from: self.from,
            until: self.until,
        }
    }

    /// Notes that this owner has the lock.
    pub fn locked(&mut self) -> Vec<OwnerAction> {
        let actions = self.go_on(OwnerAction::ConfirmLock(self.epoch));
        if !actions.is_empty() {
            self.lock = LockState::Confirming;
        }
        actions
    }

    /// Returns true if a holder of the lock under the epoch `holder` may be put on the blocklist.
    /// If not, call [`Owner::guard_refused`]: a later owner has the aggregate.
    #[must_use]
    pub fn may_shut_out(&self, holder: u64) -> bool {
        holder <= self.epoch
    }

    /// Notes that the epoch was this owner's while it held the lock, and that this client has a map
    /// at least as new as the newest one then.
    pub fn lock_confirmed(&mut self) -> Vec<OwnerAction> {
        if !self.has_epoch() || self.lock != LockState::Confirming {
            return Vec::new();
        }
        self.lock = LockState::Held;
        vec![OwnerAction::AllowData]
    }

    /// Notes that others have the lock.
    pub fn lock_held(&mut self) -> Vec<OwnerAction> {
        self.go_on(OwnerAction::Blocklist)
    }

    /// Notes that all who held the lock are on the blocklist.
    pub fn blocklisted(&mut self) -> Vec<OwnerAction> {
        // Only now: an owner that ended before this leaves the lock to the next one, which then
        // knows whom to shut out.
        self.go_on(OwnerAction::BreakLock)
    }

    /// Notes that the locks of those who are on the blocklist are broken.
    pub fn lock_broken(&mut self) -> Vec<OwnerAction> {
        self.go_on(OwnerAction::Lock(self.epoch))
    }

    fn go_on(&self, action: OwnerAction) -> Vec<OwnerAction> {
        match self.has_epoch() && self.lock == LockState::Asked {
            true => vec![action],
            false => Vec::new(),
        }
    }

    /// Notes that a step on the way to the lock failed, as while no monitor answers. It is tried
    /// again; the owner goes on without checkpoints and direct writes.
    pub fn lock_failed(&mut self, now: Duration) {
        let next = now + self.timing.retry;
        match self.lock {
            LockState::Asked if self.has_epoch() => self.lock = LockState::Failed(next),
            // Not the blocklist: this client is the holder.
            LockState::Confirming if self.has_epoch() => self.lock = LockState::Unconfirmed(next),
            _ => {}
        }
    }

    /// Notes that this client may not put others on the blocklist.
    pub fn blocklist_refused(&mut self) -> Vec<OwnerAction> {
        match self.has_epoch() {
            true => self.end(Loss::MayNotBlocklist),
            false => Vec::new(),
        }
    }

    /// Notes that the touch that was sent at `sent` was accepted.
    pub fn touched(&mut self, sent: Duration) -> Vec<OwnerAction> {
        if !self.has_epoch() {
            return Vec::new();
        }
        self.until = self.until.max(sent + self.timing.lease);
        match self.role {
            OwnerRole::Owning => vec![self.replies()],
            _ => Vec::new(),
        }
    }

    /// Notes that a guard refused an operation of this owner's.
    pub fn guard_refused(&mut self) -> Vec<OwnerAction> {
        self.end(Loss::Taken)
    }

    /// Notes that the store has shut this client out (`ESHUTDOWN`).
    pub fn shut_out(&mut self) -> Vec<OwnerAction> {
        self.end(Loss::ShutOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: OwnerTiming = OwnerTiming {
        lease: Duration::from_secs(2),
        wait: Duration::from_millis(2_120),
        touch: Duration::from_millis(500),
        silence: Duration::from_millis(1_500),
        look: Duration::from_millis(100),
        retry: Duration::from_secs(1),
        expiry: Duration::from_secs(60),
    };

    fn from_millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn found(touch: u64) -> ObservedOwner {
        ObservedOwner {
            epoch: Some(7),
            touch,
            described: true,
            ended: false,
            alone: true,
            reserved: false,
            locks: vec![7],
        }
    }

    /// An owner that took over from a silent one at 2 s.
    fn taken() -> Owner {
        let mut owner = Owner::start(TIMING, from_millis(0));
        assert_eq!(owner.tick(from_millis(0)), [OwnerAction::Look]);
        assert_eq!(owner.found(from_millis(10), &found(3)), []);
        assert_eq!(owner.tick(from_millis(20)), []);
        assert_eq!(owner.tick(from_millis(1_600)), [OwnerAction::Look]);
        let take = OwnerAction::TakeEpoch {
            before: Some(7),
            epoch: 8,
        };
        assert_eq!(owner.found(from_millis(1_610), &found(3)), [take]);
        let begun = owner.epoch_taken(from_millis(2_000));
        let touch = OwnerAction::Touch {
            sent: from_millis(2_000),
            alone: false,
        };
        let (seal, lock) = (OwnerAction::Seal(8), OwnerAction::Lock(8));
        assert_eq!(begun, [touch, seal, lock]);
        owner
    }

    #[test]
    fn the_log_is_served_before_the_blocklist_is_in_force_and_data_after() {
        let mut owner = taken();
        assert_eq!(owner.lock_held(), [OwnerAction::Blocklist]);
        assert_eq!(owner.sealed(), [OwnerAction::Replay]);
        owner.touched(from_millis(2_000));
        let replies = OwnerAction::AllowReplies {
            from: from_millis(4_120),
            until: from_millis(4_000),
        };
        assert_eq!(owner.replayed(), [OwnerAction::AllowChanges, replies]);
        assert!(
            !owner.may_reply(from_millis(4_119)),
            "the old lease may hold"
        );
        owner.touched(from_millis(4_000));
        assert!(owner.may_reply(from_millis(4_120)) && !owner.may_reply(from_millis(6_000)));
        assert!(!owner.may_write_data() && !owner.may_release(from_millis(5_000)));
        assert_eq!(owner.blocklisted(), [OwnerAction::BreakLock]);
        assert_eq!(owner.lock_broken(), [OwnerAction::Lock(8)]);
        assert_eq!(owner.locked(), [OwnerAction::ConfirmLock(8)]);
        assert!(!owner.may_write_data() && !owner.may_release(from_millis(5_000)));
        assert_eq!(owner.lock_confirmed(), [OwnerAction::AllowData]);
        assert!(owner.may_write_data() && owner.may_release(from_millis(5_000)));
        assert!(
            !owner.may_release(from_millis(4_000)),
            "the old lease may hold"
        );
    }

    #[test]
    fn an_owner_that_touches_is_left_alone() {
        let mut owner = Owner::start(TIMING, from_millis(0));
        owner.found(from_millis(10), &found(3));
        let served = [OwnerAction::Drop(Loss::Served)];
        assert_eq!(owner.found(from_millis(500), &found(4)), served);
        assert!(!Loss::Served.begins_anew());
    }

    #[test]
    fn a_standby_waits_while_the_owner_touches_and_takes_over_from_a_silent_one() {
        let mut owner = Owner::standby(TIMING, from_millis(0));
        owner.found(from_millis(0), &found(3));
        for touch in 4..10 {
            let now = from_millis(touch * 1_000);
            assert_eq!(owner.found(now, &found(touch)), []);
            assert_eq!(owner.tick(now), [], "not before the next look is due");
            assert_eq!(owner.tick(now + TIMING.look), [OwnerAction::Look]);
        }
        assert_eq!(owner.found(from_millis(10_499), &found(9)), []);
        let take = OwnerAction::TakeEpoch {
            before: Some(7),
            epoch: 8,
        };
        assert_eq!(owner.found(from_millis(10_500), &found(9)), [take]);
        assert_eq!(owner.role(), OwnerRole::Taking);
        owner.epoch_taken(from_millis(10_510));
        assert_eq!(owner.replies_from(), from_millis(10_510) + TIMING.wait);
    }

    #[test]
    fn a_standby_that_came_too_late_waits_for_the_one_that_came_first() {
        let mut owner = Owner::standby(TIMING, from_millis(0));
        let released = ObservedOwner {
            described: false,
            locks: Vec::new(),
            ..found(3)
        };
        assert_eq!(owner.found(from_millis(0), &released).len(), 1);
        assert_eq!(owner.epoch_refused(from_millis(5)), []);
        assert_eq!((owner.role(), owner.epoch()), (OwnerRole::Looking, 0));
        assert_eq!(
            owner.tick(from_millis(5) + TIMING.look),
            [OwnerAction::Look]
        );
        let other = ObservedOwner {
            epoch: Some(8),
            locks: vec![8],
            ..found(1)
        };
        assert_eq!(owner.found(from_millis(110), &other), []);
        assert_eq!(owner.found(from_millis(1_700), &other).len(), 1);
        owner.epoch_taken(from_millis(1_710));
        assert_eq!(owner.replies_from(), from_millis(1_710) + TIMING.wait);
    }

    #[test]
    fn only_an_owner_that_certainly_ended_is_not_waited_for() {
        let ended = ObservedOwner {
            ended: true,
            ..found(3)
        };
        // The lease of its predecessor may outlive it.
        let young = ObservedOwner {
            alone: false,
            ..ended.clone()
        };
        let half = ObservedOwner {
            locks: vec![6],
            ..ended.clone()
        };
        let unlocked = ObservedOwner {
            locks: Vec::new(),
            ..ended.clone()
        };
        let released = ObservedOwner {
            described: false,
            ..unlocked.clone()
        };
        let reserved = ObservedOwner {
            reserved: true,
            ..released.clone()
        };
        let cases = [
            (&ended, true),
            (&young, false),
            (&half, false),
            (&unlocked, false),
            (&released, true),
            (&reserved, false),
            (&ObservedOwner::default(), true),
        ];
        for (found, free) in cases {
            let mut owner = Owner::start(TIMING, from_millis(0));
            assert_eq!(
                !owner.found(from_millis(0), found).is_empty(),
                free,
                "{found:?}"
            );
            if free {
                owner.epoch_taken(from_millis(5));
                assert_eq!(owner.replies_from(), from_millis(5));
            }
        }
    }

    #[test]
    fn an_owner_ends_when_it_is_refused_or_not_heard_for_long() {
        let mut owner = taken();
        owner.touched(from_millis(2_000));
        assert!(matches!(
            owner.tick(from_millis(63_999))[..],
            [OwnerAction::Touch { .. }]
        ));
        let expired = [OwnerAction::Drop(Loss::Expired)];
        assert_eq!(owner.tick(from_millis(64_000)), expired);
        assert_eq!(owner.guard_refused(), [], "once");
        for (event, loss) in [
            (Owner::guard_refused as fn(&mut Owner) -> _, Loss::Taken),
            (Owner::shut_out, Loss::ShutOut),
            (Owner::blocklist_refused, Loss::MayNotBlocklist),
        ] {
            let mut owner = taken();
            assert_eq!(event(&mut owner), [OwnerAction::Drop(loss)]);
            assert_eq!(loss.begins_anew(), loss != Loss::MayNotBlocklist);
            // Late replies change nothing.
            assert_eq!(owner.sealed(), []);
            assert_eq!(owner.locked(), []);
            assert_eq!(owner.touched(from_millis(9_000)), []);
            assert!(!owner.may_reply(from_millis(5_000)));
        }
    }

    #[test]
    fn a_blocklist_that_fails_is_tried_again() {
        let mut owner = taken();
        owner.lock_held();
        owner.lock_failed(from_millis(2_100));
        let touch = |sent| OwnerAction::Touch {
            sent: from_millis(sent),
            alone: false,
        };
        assert_eq!(owner.tick(from_millis(2_500)), [touch(2_500)]);
        assert_eq!(
            owner.tick(from_millis(3_100)),
            [touch(3_100), OwnerAction::Blocklist]
        );
    }

    #[test]
    fn an_owner_that_holds_the_lock_confirms_it_again_and_never_shuts_itself_out() {
        let mut owner = taken();
        assert_eq!(owner.locked(), [OwnerAction::ConfirmLock(8)]);
        owner.lock_failed(from_millis(2_100));
        assert_eq!(owner.lock_confirmed(), [], "nobody was asked");
        assert!(owner.tick(from_millis(3_099)).len() == 1 && !owner.may_write_data());
        assert_eq!(
            owner.tick(from_millis(3_100)),
            [OwnerAction::ConfirmLock(8)]
        );
        assert_eq!(owner.locked(), [], "once");
        assert_eq!(owner.lock_confirmed(), [OwnerAction::AllowData]);
        assert!(owner.may_write_data());
    }

    #[test]
    fn a_later_owner_is_not_shut_out() {
        let owner = taken();
        assert!(owner.may_shut_out(7) && !owner.may_shut_out(9));
    }
}
