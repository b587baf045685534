//! A server that stands by: it waits for as long as another one owns the aggregate on RADOS, then
//! takes it over and serves. Until then nobody listens at its addresses.

use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use weir_rados_store::{OwnerState, RadosPlace, StandbyObserver};

use crate::process::notify::StartProgress;

/// Seconds after which a standby that is to end does so although it waits for the cluster. Nothing
/// is lost by that.
const PATIENCE_SECONDS: libc::c_uint = 3;

/// True once a signal has asked this standby to end.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The standby was asked to end, and has nothing left to do.
#[derive(Debug)]
pub struct StandbyEnd;

impl std::fmt::Display for StandbyEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this server was a standby, and ends")
    }
}

impl std::error::Error for StandbyEnd {}

/// Returns the outcome of a server, for which the end of a standby is a success.
pub fn ended_well(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.is::<StandbyEnd>() => {
            tracing::info!("{error}");
            Ok(())
        }
        outcome => outcome,
    }
}

extern "C" fn ask(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Release);
    // SAFETY: alarm is async-signal-safe.
    unsafe {
        libc::alarm(PATIENCE_SECONDS);
    }
}

extern "C" fn end(_signal: libc::c_int) {
    // SAFETY: ends the process, without destructors, which would wait for the cluster.
    unsafe { libc::_exit(0) }
}

/// Sets the handler of a signal.
fn handle(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: an all-zero sigaction is a valid value; the handlers do only what is
    // async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// Handlers of the signals that end a standby, until this is dropped.
struct Signals;

impl Signals {
    fn catch() -> Signals {
        handle(libc::SIGALRM, end as extern "C" fn(libc::c_int) as _);
        for signal in [libc::SIGTERM, libc::SIGINT] {
            handle(signal, ask as extern "C" fn(libc::c_int) as _);
        }
        Signals
    }

    fn have_asked() -> bool {
        ASKED.load(Ordering::Acquire)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if Signals::have_asked() {
            // The end has a limit.
            return;
        }
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGALRM] {
            handle(signal, libc::SIG_DFL);
        }
    }
}

/// Returns the state of a standby for people.
fn status(place: &RadosPlace, seen: &OwnerState) -> String {
    let state = match (&seen.owner, &seen.fault) {
        (Some(owner), _) => format!("served by {owner}"),
        (None, _) => "which nobody serves".to_owned(),
    };
    match &seen.fault {
        None => format!("stands by for {place}, {state}"),
        Some(fault) => format!("stands by for {place}, last {state}: {fault}"),
    }
}

/// Calls `take` with what waits while another server owns the aggregate. Returns its result.
///
/// # Errors
/// [`StandbyEnd`] if a signal ended the wait; those of `take`.
pub fn wait<T>(
    place: &RadosPlace,
    starting: &StartProgress,
    take: impl FnOnce(&StandbyObserver<'_>) -> Result<T>,
) -> Result<T> {
    let shown = RefCell::new(String::new());
    let signals = Signals::catch();
    let taken = take(&|seen| {
        let status = status(place, seen);
        if *shown.borrow() != status {
            tracing::info!("{status}");
            starting.stands_by(&status);
            shown.replace(status);
        }
        !Signals::have_asked()
    });
    drop(signals);
    if Signals::have_asked() {
        return Err(StandbyEnd.into());
    }
    if !shown.borrow().is_empty() {
        starting.goes_on(&format!("taking {place} over"));
    }
    taken
}

#[cfg(test)]
mod tests {
    use weir_rados_store::Process;

    use super::*;

    #[test]
    fn a_standby_says_for_whom_it_stands_by() {
        let place = "rados:weir/a".parse().unwrap();
        let mut seen = OwnerState {
            owner: Some(Process::default()),
            epoch: Some(3),
            fault: None,
        };
        let served = "stands by for rados:weir/a, served by an unknown host";
        assert_eq!(status(&place, &seen), served);
        seen.fault = Some("no answer".to_owned());
        assert_eq!(
            status(&place, &seen),
            "stands by for rados:weir/a, last served by an unknown host: no answer"
        );
        seen.owner = None;
        seen.fault = None;
        let free = "stands by for rados:weir/a, which nobody serves";
        assert_eq!(status(&place, &seen), free);
    }
}
