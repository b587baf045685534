//! An event loop's timing wheel: which pools have something to release, by when.
//!
//! A shard's entries are made by whichever thread finds that a pool's next release is earlier than
//! what it is scheduled for. They are handed out by the one event loop that the shard belongs to.
//! The lock is therefore all but uncontended.

use super::domain::Domain;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use weir_qos::{Nanos, Wheel};

/// Timer that calls [`super::Throttle::expire`] in time.
pub trait Alarm: Send + Sync {
    /// Arranges that the shard's `expire` is called at `at` or soon after, in place of what was set
    /// before.
    fn set(&self, at: Nanos);
}

struct Timers {
    wheel: Wheel<Arc<Domain>>,
    /// Time to which the alarm is set; [`Nanos::MAX`] for none.
    armed: Nanos,
}

pub(super) struct LoopShard {
    timers: Mutex<Timers>,
    alarm: OnceLock<Arc<dyn Alarm>>,
}

impl LoopShard {
    pub(super) fn new(now: Nanos) -> LoopShard {
        LoopShard {
            timers: Mutex::new(Timers {
                wheel: Wheel::new(now),
                armed: Nanos::MAX,
            }),
            alarm: OnceLock::new(),
        }
    }

    /// Sets the alarm; the first one given is the one used.
    pub(super) fn on_alarm(&self, alarm: Arc<dyn Alarm>) {
        let _ = self.alarm.set(alarm);
        let mut timers = self.timers.lock();
        timers.armed = Nanos::MAX;
        self.arm(&mut timers);
    }

    fn arm(&self, timers: &mut Timers) {
        let Some(next) = timers.wheel.next_expiry() else {
            // Nothing waits.
            return;
        };
        if next < timers.armed {
            timers.armed = next;
            if let Some(alarm) = self.alarm.get() {
                alarm.set(next);
            }
        }
    }

    /// Adds a pool that is to be polled at `at`.
    pub(super) fn schedule(&self, at: Nanos, domain: Arc<Domain>) {
        let mut timers = self.timers.lock();
        timers.wheel.schedule(at, domain);
        self.arm(&mut timers);
    }

    /// Takes the pools that are due at `now`. The alarm is set anew by what is scheduled next, or
    /// by [`LoopShard::rearm`].
    pub(super) fn take_due(&self, now: Nanos, due: &mut Vec<Arc<Domain>>) {
        let mut timers = self.timers.lock();
        timers.armed = Nanos::MAX;
        timers.wheel.expire(now, |domain| due.push(domain));
    }

    /// Sets the alarm to what is left.
    pub(super) fn rearm(&self) {
        self.arm(&mut self.timers.lock());
    }

    /// Returns the time at which the shard is to be polled next.
    pub(super) fn next_expiry(&self) -> Option<Nanos> {
        self.timers.lock().wheel.next_expiry()
    }
}
