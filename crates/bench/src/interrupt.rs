//! Ctrl-C: the first one asks the run to end with what it has, the second ends the
//! process as usual.
//!
//! A signal belongs to the process, hence the one global of this crate. Code that may
//! take long (filling a working set, waiting for fio) polls [`requested`].

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn remember(_signal: libc::c_int) {
    REQUESTED.store(true, Ordering::SeqCst);
}

/// Takes SIGINT and SIGTERM from now on, once each: after that the system's default
/// (the end of the process) holds again.
pub fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero sigaction is a valid value; the handler only stores to an
        // atomic, which is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = remember as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Lets what has to be done at the end go on. A second signal still ends the process.
pub fn dismiss() {
    REQUESTED.store(false, Ordering::SeqCst);
}

/// Returns true if the user asked for the end.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
