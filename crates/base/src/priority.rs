//! Which threads go first.

/// How much a background thread steps back: a tenth of an ordinary thread's share
/// when both want the processor.
#[cfg(target_os = "linux")]
const NICE: libc::c_int = 10;

/// Makes the calling thread one that others go before: for work that nobody waits
/// for. When somebody does wait for it, they sleep, and it has the processor to
/// itself. Does nothing where threads have no priority of their own, and to one that
/// has stepped back as far already, with the whole server under `nice` for instance.
pub fn background() {
    #[cfg(target_os = "linux")]
    // SAFETY: no pointers are passed; 0 is the calling thread. Everybody may step
    // back, so there is no failure to speak of.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, 0) < NICE {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn only_this_thread_steps_back() {
        // SAFETY: no pointers are passed.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        let inside = std::thread::spawn(move || {
            super::background();
            nice()
        });
        assert_eq!(inside.join().unwrap(), before.max(super::NICE));
        assert_eq!(nice(), before);
    }
}
