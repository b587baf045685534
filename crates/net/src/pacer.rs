//! An event loop's part in limits on throughput: it wakes when something is to be released.
//!
//! The event loop's own timers count in milliseconds, in which twenty operations of a limit of 20,000 a second would come
//! at once; a timer descriptor (timerfd_create(2)) is good to some 50 µs. Setting it needs no wake-up: it is the
//! kernel's, so any thread that finds something earlier to release on this loop shard sets it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use weir_base::Clock;
use weir_vfs::throttle::{Alarm, Throttle};

struct Timer {
    fd: OwnedFd,
    clock: Arc<dyn Clock>,
}

impl Timer {
    fn new(clock: Arc<dyn Clock>) -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer { fd, clock })
    }

    /// Takes note that it has gone off. `WouldBlock` if it has not.
    fn take(&self) -> io::Result<()> {
        rustix::io::read(&self.fd, &mut [0u8; 8])?;
        Ok(())
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Alarm for Timer {
    fn set(&self, at: u64) {
        let now = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        // Nothing would disarm it.
        let wait = at.saturating_sub(now).max(1);
        let when = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (wait / 1_000_000_000) as i64,
                tv_nsec: (wait % 1_000_000_000) as _,
            },
        };
        // An open timer and a valid time: it cannot fail.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &when);
    }
}

/// Releases what waits on a loop shard at its time, for ever. Runs on the shard's event loop.
pub async fn pace(throttle: Arc<Throttle>, lane: usize, clock: Arc<dyn Clock>) {
    let timer = match Timer::new(clock).and_then(|timer| {
        // SAFETY: the descriptor is open as long as the timer, which is registered by value (through an `Arc` of it),
        // and the timer always returns the same one.
        let registered =
            unsafe { AsyncFd::register_with_interest(Arc::new(timer), Interest::READABLE) };
        registered.map_err(io::Error::from)
    }) {
        Ok(timer) => timer,
        Err(error) => {
            // Without it, what waits would wait for the next request.
            tracing::error!(%error, "no timer for limits on throughput");
            return;
        }
    };
    throttle.on_alarm(lane, Arc::clone(timer.get_ref()) as Arc<dyn Alarm>);
    loop {
        let Ok(mut ready) = timer.readable().await else {
            return;
        };
        // Before it is read, not after: the next alarm may be set within `expire`.
        let taken = ready.try_io(|timer| timer.get_ref().take());
        // It is read empty at once; going off again makes it ready again. Left marked as ready, it would be read and
        // all be checked a second time for nothing.
        ready.clear_ready();
        if matches!(taken, Ok(Ok(()))) {
            throttle.expire(lane);
        }
    }
}
