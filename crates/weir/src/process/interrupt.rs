//! Ctrl-C during a command that may take long: ends it at once, and says what goes on or is left.
//!
//! Everything that commands write is safe to cut short (whole files are renamed into their place,
//! and the engine replays its log), so there is nothing to undo. What the user has to know is set
//! before it can happen: a signal handler may only write what is there already.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Exit code of an interrupted command, as shells have it: 128 and the number of SIGINT.
const INTERRUPTED: libc::c_int = 130;

/// Line that is printed. Never freed: a handler may be reading it.
static LINE: AtomicPtr<Vec<u8>> = AtomicPtr::new(ptr::null_mut());

extern "C" fn end(_signal: libc::c_int) {
    let line = LINE.load(Ordering::Acquire);
    // SAFETY: `LINE` is null or points to a leaked vector that nothing changes. `write` and `_exit`
    // are async-signal-safe.
    unsafe {
        if let Some(line) = line.as_ref() {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        }
        libc::_exit(INTERRUPTED);
    }
}

/// Sets the line that Ctrl-C prints from now on; it ends the process. Not for servers.
pub fn explain(line: &str) {
    static INSTALLED: Once = Once::new();
    let text = format!("\nweir: interrupted: {line}\n").into_bytes();
    // A command sets a few lines at most.
    LINE.store(Box::into_raw(Box::new(text)), Ordering::Release);
    INSTALLED.call_once(|| {
        // SAFETY: an all-zero sigaction is a valid value; the handler does only what is
        // async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = end as extern "C" fn(libc::c_int) as libc::sighandler_t;
            libc::sigaction(libc::SIGINT, &raw const action, ptr::null_mut());
        }
    });
}
