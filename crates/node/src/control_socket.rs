//! Requests to a running server, over a socket in its data folder.
//!
//! A request is one line; lines of reply follow until the connection ends. Each begins with a word:
//! `heard` (the first, at once), `note` (progress, for people), `fault` (something is wrong with
//! the data), `done` or `error` (the last line). A process that may write in the data folder may
//! send requests.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

/// Name of the socket in the data folder.
const NAME: &str = "control";
/// Name of the socket at which a server answers requests to its API that a node's daemon passes on.
pub const API: &str = "api";

/// Longest request line, in bytes.
const MAX_REQUEST: u64 = 8192;

/// A server that runs says that it has heard, and a client says what it wants, within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Requests at a time.
const MAX_REQUESTS: usize = 16;

/// The commands that a running server carries out for its control socket.
pub trait Commands: Send + Sync {
    /// Runs one request; `say` sends a line and fails when no client listens any more.
    fn run(&self, request: &str, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String>;
}

/// Sends lines of names and values, for people, as notes with the values below each other.
///
/// # Errors
/// No client listens any more.
pub fn say_lines(
    say: &mut dyn FnMut(&str) -> io::Result<()>,
    lines: &[(&str, String)],
) -> io::Result<()> {
    let names = lines.iter().map(|(name, _)| name.len());
    let width = names.max().unwrap_or_default() + 2;
    let mut lines = lines.iter();
    lines.try_for_each(|(name, value)| say(&format!("note {name:<width$}{value}")))
}

/// A listening control socket. Dropping it removes the socket.
pub struct Control {
    /// `None`: another socket has taken the path.
    path: Option<PathBuf>,
}

impl Control {
    /// Listens in `folder`, which the caller has locked. Answers each request on a thread of its
    /// own: some take hours.
    pub fn listen(folder: &Path, commands: Arc<dyn Commands>) -> Result<Control> {
        let path = folder.join(NAME);
        let listener = listen_in(folder, NAME)?;
        std::thread::Builder::new()
            .name("weir-control".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    if let Err(error) = stream.and_then(|stream| begin(stream, &commands)) {
                        tracing::debug!(%error, "control connection lost");
                    }
                }
            })?;
        Ok(Control { path: Some(path) })
    }

    /// Answers requests by other commands from now on. Requests under way end with the old ones.
    ///
    /// # Errors
    /// As [`Control::listen`].
    pub fn replace(mut self, folder: &Path, commands: Arc<dyn Commands>) -> Result<Control> {
        let next = Control::listen(folder, commands)?;
        // The path is the new socket's.
        self.path = None;
        Ok(next)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.path.as_ref().map(fs::remove_file) {
            tracing::debug!(%error, "the control socket was gone already");
        }
    }
}

fn begin(stream: UnixStream, commands: &Arc<dyn Commands>) -> io::Result<()> {
    // Each request that is being carried out has one, and so has the listener.
    if Arc::strong_count(commands) > MAX_REQUESTS {
        return writeln!(
            &stream,
            "error the server is busy with {MAX_REQUESTS} requests of this kind"
        );
    }
    let commands = Arc::clone(commands);
    let thread = std::thread::Builder::new().name("weir-command".to_owned());
    let thread = thread.spawn(move || {
        if let Err(error) = answer(stream, &*commands) {
            tracing::debug!(%error, "control connection lost");
        }
    });
    thread.map(drop)
}

fn answer(stream: UnixStream, commands: &dyn Commands) -> io::Result<()> {
    writeln!(&stream, "heard")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = String::new();
    BufReader::new(io::Read::take(&stream, MAX_REQUEST)).read_line(&mut request)?;
    let request = request.trim();
    // Programs ask for a state every second.
    if !request.contains(" show") {
        tracing::info!("admin: {request}");
    }
    let mut say = |line: &str| writeln!(&stream, "{line}");
    match commands.run(request, &mut say) {
        Ok(summary) => say(&format!("done {summary}")),
        Err(error) => say(&format!("error {error:#}")),
    }
}

/// The server's reply to a request that it carried out.
#[derive(Debug, Default)]
pub struct Reply {
    /// Progress, for people.
    pub notes: Vec<String>,
    /// Faults of the data.
    pub faults: Vec<String>,
    /// The last line.
    pub summary: String,
}

impl Reply {
    /// Returns the last line.
    ///
    /// # Errors
    /// There were faults.
    pub fn checked(self) -> Result<String> {
        match self.faults.len() {
            0 => Ok(self.summary),
            n => bail!("{n} faults; {}", self.summary),
        }
    }
}

/// A line of a reply before the last one.
enum Line {
    Note(String),
    Fault(String),
}

/// Asks the server of `folder`, prints its notes and faults, and returns its last word.
/// Faults make it an error.
pub fn send_request(folder: &Path, request: &str) -> Result<String> {
    ask_within(folder, request, PATIENCE)
}

/// Asks the server of `folder` and returns the whole reply. Prints nothing.
pub fn query(folder: &Path, request: &str) -> Result<Reply> {
    let (mut notes, mut faults) = (Vec::new(), Vec::new());
    let summary = converse(folder, request, PATIENCE, &mut |line| match line {
        Line::Note(text) => notes.push(text),
        Line::Fault(text) => faults.push(text),
    })?;
    Ok(Reply {
        notes,
        faults,
        summary,
    })
}

/// Asks the server of `folder` for something that it shows, and returns it as data. Prints nothing.
///
/// # Errors
/// There is no server, it refuses, or its reply is no JSON.
pub fn data(folder: &Path, request: &str) -> Result<serde_json::Value> {
    let reply = query(folder, &format!("{request} --json"))?;
    serde_json::from_str(&reply.checked()?).context("reading the reply")
}

fn ask_within(folder: &Path, request: &str, patience: Duration) -> Result<String> {
    let mut faults = Vec::new();
    let summary = converse(folder, request, patience, &mut |line| match line {
        Line::Note(text) => println!("{text}"),
        Line::Fault(text) => {
            println!("FAULT {text}");
            faults.push(text);
        }
    })?;
    let reply = Reply {
        notes: Vec::new(),
        faults,
        summary,
    };
    reply.checked()
}

/// Sends a request, hands out the lines of the reply as they come, and returns the last one.
fn converse(
    folder: &Path,
    request: &str,
    patience: Duration,
    say: &mut dyn FnMut(Line),
) -> Result<String> {
    ensure!(
        folder.is_dir(),
        "data folder {} does not exist",
        folder.display()
    );
    let stream =
        with_short_path(folder, NAME, |short| UnixStream::connect(short)).map_err(|error| {
            let shown = folder.display();
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    anyhow!("no server runs on {shown} (start it with `weir serve --data {shown}`)")
                }
                _ => anyhow!("cannot ask the server of {shown}: {error}"),
            }
        })?;
    writeln!(&stream, "{request}")?;
    stream.set_read_timeout(Some(patience))?;
    for line in BufReader::new(&stream).lines() {
        let line = match line {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => bail!(
                "server of {} has the request and does not reply: its process or its disk hangs",
                folder.display()
            ),
            line => line?,
        };
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("heard", "") => stream.set_read_timeout(None)?,
            ("note", text) => say(Line::Note(text.to_owned())),
            ("fault", text) => say(Line::Fault(text.to_owned())),
            ("done", summary) => return Ok(summary.to_owned()),
            ("error", text) => bail!("{text}"),
            _ => bail!("malformed reply of the server: '{line}'"),
        }
    }
    bail!("connection closed by the server before it was done")
}

/// Listens at a socket in a folder, which only its owner can connect to. It takes the place of an
/// old one.
///
/// # Errors
/// The socket cannot be created.
pub fn listen_in(folder: &Path, name: &str) -> Result<UnixListener> {
    let new = format!("{name}.new");
    let (path, made) = (folder.join(name), folder.join(&new));
    match fs::remove_file(&made) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing an old socket {new}"));
        }
        _ => {}
    }
    let listener = with_short_path(folder, &new, |short| UnixListener::bind(short))
        .with_context(|| format!("creating the socket {name}"))?;
    fs::set_permissions(&made, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&made, &path))
        .with_context(|| format!("publishing the socket {name}"))?;
    Ok(listener)
}

/// Connects to a socket in a folder.
///
/// # Errors
/// Nobody listens at it.
pub fn connect_in(folder: &Path, name: &str) -> io::Result<UnixStream> {
    with_short_path(folder, name, |short| UnixStream::connect(short))
}

/// Calls `with` a path of the socket that fits into a socket address (108 bytes) however deep
/// the folder is: through a descriptor of the folder.
fn with_short_path<T>(
    folder: &Path,
    name: &str,
    with: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let folder = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(folder)?;
    with(Path::new(&format!(
        "/proc/self/fd/{}/{name}",
        folder.as_raw_fd()
    )))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Commands of the test; "slow" waits for the barrier, twice.
    struct Answers(Arc<Barrier>);

    impl Commands for Answers {
        fn run(
            &self,
            request: &str,
            say: &mut dyn FnMut(&str) -> io::Result<()>,
        ) -> Result<String> {
            match request {
                "fine" => {
                    say("note half way")?;
                    Ok("all good".to_owned())
                }
                "broken" => {
                    say("fault block 5")?;
                    Ok("looked at everything".to_owned())
                }
                "slow" => {
                    self.0.wait();
                    self.0.wait();
                    Ok("at last".to_owned())
                }
                other => bail!("'{other}' is not known"),
            }
        }
    }

    #[test]
    fn requests_are_answered_also_in_a_deep_folder() {
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        assert!(send_request(&deep, "fine").is_err());
        let control = Control::listen(&deep, Arc::new(Answers(Arc::new(Barrier::new(1))))).unwrap();
        assert_eq!(send_request(&deep, "fine").unwrap(), "all good");
        assert_eq!(
            send_request(&deep, "broken").unwrap_err().to_string(),
            "1 faults; looked at everything"
        );
        assert_eq!(
            send_request(&deep, "other").unwrap_err().to_string(),
            "'other' is not known"
        );
        drop(control);
        assert!(send_request(&deep, "fine").is_err());
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    }

    #[test]
    fn a_request_that_takes_long_keeps_none_waiting_and_a_server_that_stands_still_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let slow = Arc::new(Barrier::new(2));
        let control = Control::listen(dir.path(), Arc::new(Answers(Arc::clone(&slow)))).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| send_request(dir.path(), "slow"));
            slow.wait();
            assert_eq!(send_request(dir.path(), "fine").unwrap(), "all good");
            slow.wait();
            assert_eq!(waits.join().unwrap().unwrap(), "at last");
        });
        drop(control);
        // The kernel connects, and nobody accepts.
        let _silent = UnixListener::bind(dir.path().join(NAME)).unwrap();
        let said = ask_within(dir.path(), "fine", Duration::from_millis(1)).unwrap_err();
        assert!(said.to_string().contains("does not reply"), "{said}");
    }
}
