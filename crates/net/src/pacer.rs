//! Wakes an event loop when a limit on throughput releases operations.
//!
//! The event loop's own timers have a resolution of a millisecond, so that twenty operations of a
//! limit of 20,000 a second would be released at once. A timer descriptor (timerfd_create(2)) has
//! one of about 50 µs. Setting it needs no wake-up because the kernel holds it: any thread that
//! finds an earlier release on this loop shard sets it.

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

    /// Clears the expiration. `WouldBlock` if the timer has not expired.
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
        // A time of zero would disarm the timer.
        let wait = at.saturating_sub(now).max(1);
        let when = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (wait / 1_000_000_000) as i64,
                tv_nsec: (wait % 1_000_000_000) as _,
            },
        };
        // Cannot fail: the timer is open and the time is valid.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &when);
    }
}

/// Releases waiting operations of a loop shard at their time, until the server stops. Runs on the
/// shard's event loop.
pub async fn pace(throttle: Arc<Throttle>, lane: usize, clock: Arc<dyn Clock>) {
    let timer = match Timer::new(clock).and_then(|timer| {
        // SAFETY: the descriptor is open as long as the timer, which is registered by value
        // (through an `Arc` of it), and the timer always returns the same one.
        let registered =
            unsafe { AsyncFd::register_with_interest(Arc::new(timer), Interest::READABLE) };
        registered.map_err(io::Error::from)
    }) {
        Ok(timer) => timer,
        Err(error) => {
            // Without the timer, operations are released only when the next request arrives.
            tracing::error!(%error, "no timer for limits on throughput");
            return;
        }
    };
    throttle.on_alarm(lane, Arc::clone(timer.get_ref()) as Arc<dyn Alarm>);
    loop {
        let Ok(mut ready) = timer.readable().await else {
            return;
        };
        // The timer is read before `expire`, which may set the next alarm.
        let taken = ready.try_io(|timer| timer.get_ref().take());
        // One read empties it, and the next expiration marks it ready again. If it stayed marked as
        // ready, it would be read and all limits checked a second time.
        ready.clear_ready();
        if matches!(taken, Ok(Ok(()))) {
            throttle.expire(lane);
        }
    }
}
