//! Messages to the service manager that started this process: sd_notify(3), without its library.
//!
//! Without `NOTIFY_SOCKET` in the environment there is no manager, and every message goes nowhere.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use weir_store::log::ReplayProgress;

/// Interval at which a start asks for more time.
const EXTEND_EVERY: Duration = Duration::from_secs(10);

/// Interval at which a terminal shows how far a start has come.
const SHOW_EVERY: Duration = Duration::from_millis(250);

/// Time that each such message asks for.
const EXTEND_BY: Duration = Duration::from_secs(60);

/// Sends `state`, lines of `NAME=VALUE`, to the service manager, if there is one.
pub fn notify(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|to| !to.is_empty()) else {
        return;
    };
    if let Err(error) = send(&address, state) {
        tracing::warn!(
            "cannot notify the service manager at {}: {error}",
            address.display()
        );
    }
}

/// Sends `state` to a path, or to an abstract address, which begins with `@`.
fn send(to: &OsStr, state: &str) -> io::Result<()> {
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// Says that the server serves, in the words of `status`.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// Says that the configuration is being read anew; [`ready`] ends that.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// Returns the interval at which the service manager wants to hear from this process, if it does.
pub fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC")
        .filter(|micros| *micros > 0)
        .map(Duration::from_micros)
}

/// A start in progress. The service manager's time limit is extended until this is dropped; a
/// terminal shows a progress line.
pub struct StartProgress {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    replay: Arc<OnceLock<Arc<ReplayProgress>>>,
    waiting: Arc<Mutex<Wait>>,
}

/// State of a start that waits as a standby.
#[derive(Default)]
struct Wait {
    /// Takes the place of what the start is doing.
    status: Option<String>,
    /// True once the service manager was told that the server is ready: its watchdog waits then.
    ready: bool,
}

impl StartProgress {
    /// Reports `first` as the status, and asks the manager for time until the start has ended.
    pub fn begin(first: &'static str) -> io::Result<StartProgress> {
        let (stop, stopped) = mpsc::channel();
        let replay = Arc::<OnceLock<Arc<ReplayProgress>>>::default();
        let progress = Arc::clone(&replay);
        let waiting = Arc::<Mutex<Wait>>::default();
        let waits = Arc::clone(&waiting);
        let every = watchdog().map_or(EXTEND_EVERY, |limit| EXTEND_EVERY.min(limit / 2));
        let terminal = io::stderr().is_terminal();
        let thread = std::thread::Builder::new()
            .name("weir-starting".to_owned())
            .spawn(move || {
                let mut shown = String::new();
                let mut due = Duration::ZERO;
                loop {
                    let (ready, status) = {
                        let waits = waits.lock();
                        let replayed =
                            || status(first, progress.get().map(|p| (p.done(), p.found)));
                        (waits.ready, waits.status.clone().unwrap_or_else(replayed))
                    };
                    if due.is_zero() {
                        notify(&format!("STATUS={status}\n{}", more_time(ready)));
                        due = every;
                    }
                    let step = match terminal {
                        true => SHOW_EVERY,
                        false => every,
                    };
                    let ended = stopped.recv_timeout(step) != Err(RecvTimeoutError::Timeout);
                    if terminal && (ended || status != shown) {
                        show(if ended { "" } else { &status }, &shown);
                        shown = status;
                    }
                    if ended {
                        break;
                    }
                    // Ends at zero: a step is a part of the interval.
                    due = due.saturating_sub(step);
                }
            })?;
        Ok(StartProgress {
            stop: Some(stop),
            thread: Some(thread),
            replay,
            waiting,
        })
    }

    /// Says that the server waits as a standby, in the words of `status`, and is ready so far.
    pub fn stands_by(&self, status: &str) {
        *self.waiting.lock() = Wait {
            status: Some(status.to_owned()),
            ready: true,
        };
        ready(status);
    }

    /// Says that the wait is over, in the words of `status`.
    pub fn goes_on(&self, status: &str) {
        self.waiting.lock().status = None;
        notify(&format!("STATUS={status}"));
    }

    /// Says that the log is replayed.
    pub fn replays(&self, progress: Arc<ReplayProgress>) {
        // Once a start.
        let _ = self.replay.set(progress);
    }
}

/// Returns the line that asks the service manager to wait on. One that was told that the server is
/// ready has a watchdog in place of a limit of the start.
fn more_time(ready: bool) -> String {
    match ready {
        true => "WATCHDOG=1".to_owned(),
        false => format!("EXTEND_TIMEOUT_USEC={}", EXTEND_BY.as_micros()),
    }
}

/// Returns the status of a start: `first`, then the progress of the replay as (records replayed,
/// records found).
fn status(first: &str, replay: Option<(u64, u64)>) -> String {
    match replay {
        Some((done, found)) if done < found => {
            let percent = u128::from(done) * 100 / u128::from(found);
            format!("replaying the log: {percent} % of {found} records")
        }
        Some(_) => "opening the volumes".to_owned(),
        None => first.to_owned(),
    }
}

/// Shows a line on the terminal in place of `before`. The next log line overwrites it.
fn show(line: &str, before: &str) {
    let mut terminal = io::stderr().lock();
    let width = before.chars().count();
    // A terminal that is gone needs no line.
    let _ = write!(terminal, "{line:<width$}\r").and_then(|()| terminal.flush());
}

impl Drop for StartProgress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It sends messages and nothing else.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let n = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..n].to_vec()).unwrap()
    }

    #[test]
    fn a_start_says_how_far_it_is() {
        assert_eq!(status("opening", None), "opening");
        assert_eq!(
            status("", Some((1, 3))),
            "replaying the log: 33 % of 3 records"
        );
        assert_eq!(status("", Some((3, 3))), "opening the volumes");
        assert_eq!(status("", Some((0, 0))), "opening the volumes");
    }

    #[test]
    fn a_server_that_was_ready_has_a_watchdog() {
        assert_eq!(more_time(false), "EXTEND_TIMEOUT_USEC=60000000");
        assert_eq!(more_time(true), "WATCHDOG=1");
        let starting = StartProgress::begin("opening").unwrap();
        starting.stands_by("waits");
        assert!(starting.waiting.lock().ready);
        starting.goes_on("taking over");
        let waiting = starting.waiting.lock();
        assert!(waiting.ready && waiting.status.is_none());
    }

    #[test]
    fn messages_arrive_at_paths_and_at_abstract_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(received(&by_path), "READY=1");

        let name = format!("weir-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let abstractly = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), "WATCHDOG=1").unwrap();
        assert_eq!(received(&abstractly), "WATCHDOG=1");

        let nobody = folder.path().join("nobody");
        assert!(send(nobody.as_os_str(), "READY=1").is_err());
    }
}
