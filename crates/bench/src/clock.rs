//! The one clock of the generator.
//!
//! Latencies are the product here, so real time is the point; the generator is not simulated.

use rustix::time::ClockId;

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Processor time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Seconds since 1970, of the system's clock.
pub fn unix_seconds() -> u64 {
    read(ClockId::Realtime) / 1_000_000_000
}

/// Waits for so many seconds.
pub fn sleep(seconds: f64) {
    std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
}

/// Reads a clock of the system, in nanoseconds.
fn read(clock: ClockId) -> u64 {
    let t = rustix::time::clock_gettime(clock);
    (t.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(t.tv_nsec as u64)
}
