//! The one clock of the generator.
//!
//! Latencies are the product here, so real time is the point; the generator is not simulated.

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Seconds since 1970, of the system's clock.
pub fn unix_seconds() -> u64 {
    read(libc::CLOCK_REALTIME) / 1_000_000_000
}

/// Waits for so many seconds.
pub(crate) fn sleep(seconds: f64) {
    std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
}

/// What a clock of the system says, in nanoseconds.
pub(crate) fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a timespec that the call may write; the clocks exist on Linux.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64)
}
