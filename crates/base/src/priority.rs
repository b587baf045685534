//! Priorities of threads, at processors and at disks.

use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::process::{getpriority_process, setpriority_process};

/// Nice value of an [`idle_priority`] thread: a tenth of an ordinary thread's share when both want
/// the processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;
/// Nice value of a [`nice`] thread: two thirds of an ordinary thread's share.
#[cfg(target_os = "linux")]
const SLIGHTLY_NICE: i32 = 2;

/// Lowers the priority of the calling thread: for work without waiters. A thread that does wait for
/// it sleeps, and leaves it the processor. Does nothing on systems without thread priorities, or if
/// the thread's priority is already as low, for example if the whole server runs under `nice`.
pub fn idle_priority() {
    #[cfg(target_os = "linux")]
    step_back(NICE);
}

/// Lowers the priority of the calling thread, and of the threads that it will start, although
/// clients wait for its work. Threads that serve data get priority over those that administer it.
///
/// The thread's share of the processor is smaller, but its latency is not higher: like a
/// [`short_slice`] thread it runs soon after it wakes, for a short slice. A request to the control
/// plane wakes half a dozen threads one after the other. When each waited for the slices of threads
/// that serve data, the request took ten times as long as its work.
pub fn nice() {
    #[cfg(target_os = "linux")]
    step_back(SLIGHTLY_NICE);
    short_slice();
}

#[cfg(target_os = "linux")]
fn step_back(nice: i32) {
    // `None` is the calling thread. Every thread may lower its own priority, so the call does not
    // fail.
    if getpriority_process(None).is_ok_and(|now| now < nice) {
        let _ = setpriority_process(None, nice);
    }
}

/// Minimum slice that Linux grants, 100 µs.
#[cfg(target_os = "linux")]
const SLICE: Duration = Duration::from_micros(100);

/// Gives the calling thread a short slice: for a thread that does little at a time and has waiters.
/// When it wakes, it need not wait until the running thread has used up a slice of some
/// milliseconds. Its share of the processor does not grow (EEVDF, Linux 6.12); older kernels and
/// other systems behave as before.
///
/// Measured for the intent log's thread, which sleeps at once ([`yield_timed`]), with both cores
/// full of other programs' work. The rates of durable writes and renames roughly doubled; this was
/// one run each.
pub fn short_slice() {
    #[cfg(target_os = "linux")]
    {
        // `struct sched_attr` of sched_setattr(2), first version.
        #[repr(C)]
        struct Attributes {
            size: u32,
            policy: u32,
            flags: u64,
            nice: i32,
            priority: u32,
            runtime: u64,
            deadline: u64,
            period: u64,
        }
        let Ok(nice) = getpriority_process(None) else {
            // Without the nice value, sched_setattr would reset it, so the thread stays as it is.
            return;
        };
        let wanted = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice,
            priority: 0,
            runtime: SLICE.as_nanos() as u64,
            deadline: 0,
            period: 0,
        };
        // SAFETY: the kernel reads `size` bytes of `wanted`; 0 is the calling thread. A refusal
        // changes nothing.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    }
}

/// Gives the disk writes of the calling thread, and of the threads that it will start, priority
/// over the writes of others. It is for writes of a few blocks that a client waits for.
///
/// Linux's mq-deadline, which most distributions choose for SATA and virtual disks, serves requests
/// in the order of their addresses. While a checkpoint wrote long runs, a log block waited up to 20
/// ms in that queue, and less than 1.5 ms in the device. mq-deadline serves I/O priority classes
/// separately.
///
/// The class is realtime (ioprio_set(2)), for which a process that is not root's needs
/// CAP_SYS_NICE. Without it, and with schedulers that have no classes, the call has no effect.
pub fn ioprio_realtime() {
    #[cfg(target_os = "linux")]
    {
        const WHO_PROCESS: libc::c_int = 1;
        const REALTIME: libc::c_int = 1 << 13;
        // The middle of the class: only BFQ distinguishes its levels.
        const LEVEL: libc::c_int = 4;
        // SAFETY: no pointers are passed; 0 is the calling thread. A refusal leaves everything as
        // it was.
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, REALTIME | LEVEL) };
    }
}

/// Time to get the processor back that indicates another busy thread. Weir's own threads keep a
/// yielded processor for less.
const LONG: Duration = Duration::from_micros(500);

/// Yields the processor to other threads, and returns true if it took long to get it back. In that
/// case another thread runs that does not sleep, and each yield costs one of its slices. A waiting
/// thread should then sleep instead: a thread that wakes has priority over one that yielded.
#[allow(clippy::disallowed_methods)] // Decides how to wait, and nothing that a caller can observe.
pub fn yield_timed() -> bool {
    let start = Instant::now();
    std::thread::yield_now();
    start.elapsed() > LONG
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::getpriority_process;

    #[test]
    fn a_prompt_thread_keeps_its_nice_value() {
        std::thread::spawn(|| {
            let nice = || getpriority_process(None).unwrap();
            super::idle_priority();
            let before = nice();
            super::short_slice();
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn realtime_io_is_inherited_or_left() {
        // SAFETY: no pointers are passed; 1, 0 is the calling thread.
        let class = || unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) } >> 13;
        let before = class();
        let inside = std::thread::spawn(move || {
            super::ioprio_realtime();
            let next = std::thread::spawn(class).join().unwrap();
            (class(), next)
        });
        let (own, next) = inside.join().unwrap();
        assert!(own == 1 || own == before, "class {own}");
        assert_eq!(next, own);
        assert_eq!(class(), before);
    }

    #[test]
    fn only_this_thread_steps_back() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        let inside = std::thread::spawn(move || {
            super::nice();
            let (slightly, wholly) = (nice(), {
                super::idle_priority();
                nice()
            });
            super::nice();
            assert_eq!(nice(), wholly, "nobody comes forward again");
            (slightly, wholly)
        });
        let stepped = (before.max(super::SLIGHTLY_NICE), before.max(super::NICE));
        assert_eq!(inside.join().unwrap(), stepped);
        assert_eq!(nice(), before);
    }
}
