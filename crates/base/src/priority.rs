//! Which threads go first, at processors and at disks.

use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::process::{getpriority_process, setpriority_process};

/// How much a background thread steps back: a tenth of an ordinary thread's share
/// when both want the processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;
/// How much an attentive thread does: two thirds of an ordinary thread's share.
#[cfg(target_os = "linux")]
const SLIGHTLY_NICE: i32 = 2;

/// Makes the calling thread one that others go before: for work that nobody waits
/// for. When somebody does wait for it, they sleep, and it has the processor to
/// itself. Does nothing where threads have no priority of their own, and to one that
/// has stepped back as far already, with the whole server under `nice` for instance.
pub fn background() {
    #[cfg(target_os = "linux")]
    step_back(NICE);
}

/// Makes the calling thread, and those that it will make, such that others go before it,
/// though somebody does wait for its work: who serves data goes before who administers it.
/// Its share is smaller, but it need not wait for it: like one that is [`prompt`] it has the
/// processor soon after it wakes, for a little at a time. A request to the control plane wakes
/// half a dozen threads one after the other; where each waited for the slices of those that
/// serve data, it took ten times as long as its work.
pub fn attentive() {
    #[cfg(target_os = "linux")]
    step_back(SLIGHTLY_NICE);
    prompt();
}

#[cfg(target_os = "linux")]
fn step_back(nice: i32) {
    // `None` is the calling thread. Everybody may step back, so there is no failure to speak of.
    if getpriority_process(None).is_ok_and(|now| now < nice) {
        let _ = setpriority_process(None, nice);
    }
}

/// The least slice that Linux grants, 100 µs.
#[cfg(target_os = "linux")]
const SLICE: Duration = Duration::from_micros(100);

/// Makes the calling thread one that does little at a time and is waited for: when it
/// wakes it need not wait until whoever has the processor has used up a slice of some
/// milliseconds. It gets no greater share for that (EEVDF, Linux 6.12; older kernels
/// and other systems do as before).
///
/// For the intent log's thread, with both cores full of other programs' work, where it sleeps
/// at once ([`give_way`]), the rates of durable writes and renames roughly doubled: one run
/// each, so no more than that can be said.
pub fn prompt() {
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
            // Without the nice value it would be changed: the thread stays as it is.
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
        // SAFETY: the kernel reads `size` bytes of it; 0 is the calling thread. A refusal
        // leaves everything as it was.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    }
}

/// Makes what the calling thread, and those that it will make, write to disks go before what others do: for writes of
/// a few blocks that somebody waits for. Linux's mq-deadline, which most distributions choose for SATA and virtual
/// disks, serves requests in the order of their places; a log's block behind which a consistency point writes in long
/// runs waited up to 20 ms in its queue, and less than 1.5 ms in the device. Between classes it keeps them apart.
///
/// The class is the realtime one (ioprio_set(2)), for which a process that is not root's needs CAP_SYS_NICE; without it,
/// and with schedulers that have no classes, everything is as it was.
pub fn first_at_disks() {
    #[cfg(target_os = "linux")]
    {
        const WHO_PROCESS: libc::c_int = 1;
        const REALTIME: libc::c_int = 1 << 13;
        // The class's middle: between its levels no scheduler but BFQ makes a difference.
        const LEVEL: libc::c_int = 4;
        // SAFETY: no pointers are passed; 0 is the calling thread. A refusal leaves everything as it was.
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, REALTIME | LEVEL) };
    }
}

/// Longer than threads of ours keep the processor when they are given way to.
const LONG: Duration = Duration::from_micros(500);

/// Lets other threads have the processor, and answers whether it was long until it came
/// back: then somebody is there who does not sleep, and each time of giving way costs
/// one of his slices. Whoever waits for something should sleep instead: who wakes up
/// goes before who gave way.
#[allow(clippy::disallowed_methods)] // Decides how to wait, and nothing that anyone can see.
pub fn give_way() -> bool {
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
            super::background();
            let before = nice();
            super::prompt();
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn who_is_first_at_disks_hands_it_on_or_is_as_before() {
        // SAFETY: no pointers are passed; 1, 0 is the calling thread.
        let class = || unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) } >> 13;
        let before = class();
        let inside = std::thread::spawn(move || {
            super::first_at_disks();
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
            super::attentive();
            let (slightly, wholly) = (nice(), {
                super::background();
                nice()
            });
            super::attentive();
            assert_eq!(nice(), wholly, "nobody comes forward again");
            (slightly, wholly)
        });
        let stepped = (before.max(super::SLIGHTLY_NICE), before.max(super::NICE));
        assert_eq!(inside.join().unwrap(), stepped);
        assert_eq!(nice(), before);
    }
}
