//! The real binary, started on a free port with a data folder of its own.

#![allow(dead_code)] // Each test file uses its part of this.
#![allow(clippy::unwrap_used, clippy::panic)] // Part of tests: a failure here fails them.

pub mod api;
pub mod caller;
pub mod client;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use weir_base::{Clock as _, SystemClock};
use weir_bench::control::Control;
use weir_bench::rpc::Credential;

/// Time limit of any wait in a test, far above the expected times.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// Address of the API.
    pub api: Option<SocketAddr>,
    log: PathBuf,
    said: PathBuf,
}

/// Runs `weir` with arguments until it ends.
pub fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command of the load generators in this process until it ends.
pub fn bench(args: &[&str]) -> std::process::ExitCode {
    let words = ["weir-bench"].iter().chain(args);
    weir_bench::run(&<weir_bench::Cli as clap::Parser>::parse_from(words).bench)
}

impl Server {
    /// Starts a server and waits until it serves.
    pub fn start(data: &Path, more: &[&str]) -> Server {
        Server::try_start(data, more).unwrap_or_else(|log| panic!("no server: {log}"))
    }

    /// Starts a server; if it ends instead of serving, returns what it said.
    pub fn try_start(data: &Path, more: &[&str]) -> Result<Server, String> {
        let side = tempfile::tempdir().unwrap().keep();
        let (ready, log) = (side.join("ready"), side.join("log"));
        let file = std::fs::File::create(&log).unwrap();
        let said = side.join("said");
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args([
                "serve",
                "--nfs",
                "127.0.0.1:0",
                "--memory",
                "256M",
                "--no-rpcbind",
            ])
            .args(match more.contains(&"--api") {
                true => &[][..],
                false => &["--api", "127.0.0.1:0"],
            })
            .arg("--data")
            .arg(data)
            .arg("--ready-file")
            .arg(&ready)
            .args(more)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&said).unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        loop {
            let text = std::fs::read_to_string(&ready).unwrap_or_default();
            if let Some(Ok(address)) = text.lines().next().map(str::parse) {
                let screen = std::fs::read_to_string(&said).unwrap();
                let api = screen.lines().find_map(|l| l.strip_prefix("API on "));
                let api = api.and_then(|api| Some(api.split_once("://")?.1));
                return Ok(Server {
                    child,
                    address,
                    api: api.map(|api| api.parse().unwrap()),
                    log,
                    said,
                });
            }
            if child.try_wait().unwrap().is_some() {
                let said = std::fs::read_to_string(&log).unwrap();
                let _ = std::fs::remove_dir_all(&side);
                return Err(said);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A TCP connection to the NFS port, whose reads time out.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// An NFS client as root.
    pub fn client(&self) -> Control {
        let xid = u32::from_ne_bytes(unique().to_ne_bytes()[..4].try_into().unwrap());
        Control::connect(self.address, Some(&root()), xid, PATIENCE).unwrap()
    }

    /// Returns what the server printed when it was ready.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    /// Returns the server's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log has `count` lines with `text`; returns them. Fails with the log after
    /// two minutes.
    pub fn logged(&self, text: &str, count: usize) -> Vec<String> {
        let lines = |log: &str| -> Vec<String> {
            let with = log.lines().filter(|line| line.contains(text));
            with.map(str::to_owned).collect()
        };
        let what = format!("{count} log lines with {text:?}");
        lines(&self.until(&what, |log| lines(log).len() >= count))
    }

    /// Waits until `holds` of the log; returns the log. Fails with it after two minutes.
    pub fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let clock = SystemClock::new();
        loop {
            let log = self.log();
            if holds(&log) {
                return log;
            }
            let late = clock.monotonic() >= Duration::from_secs(120);
            assert!(!late, "not within two minutes: {what}:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    /// Asks the server to stop, waits for it, and returns its log.
    pub fn stop(mut self) -> String {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        let status = self.child.wait().unwrap();
        let log = self.log();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// Ends the server without warning.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server said:\n{}", self.log());
        }
        if let Some(side) = self.log.parent() {
            let _ = std::fs::remove_dir_all(side);
        }
    }
}

/// A number that no other call of this run gets.
pub fn unique() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// The credential of root.
pub fn root() -> Credential {
    Credential { uid: 0, gid: 0 }
}

/// A record of one fragment.
pub fn record(body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32 | 0x8000_0000).to_be_bytes().to_vec();
    out.extend_from_slice(body);
    out
}

/// The words of an RPC message, big-endian.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// A call without credentials (RFC 5531 §9), with `args`.
pub fn call(xid: u32, program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut body = words(&[xid, 0, 2, program, version, procedure, 0, 0, 0, 0]);
    body.extend_from_slice(args);
    record(&body)
}

/// A NULL call of NFSv3 (RFC 1813 section 3.3.0).
pub fn null(xid: u32) -> Vec<u8> {
    call(xid, 100_003, 3, 0, &[])
}

/// One whole reply as words.
pub fn reply(stream: &mut (impl Read + ?Sized)) -> Vec<u32> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mark = u32::from_be_bytes(mark);
    assert!(mark & 0x8000_0000 != 0, "a reply in several fragments");
    let mut body = vec![0; (mark & 0x7fff_ffff) as usize];
    stream.read_exact(&mut body).unwrap();
    body.chunks(4)
        .map(|w| u32::from_be_bytes(w.try_into().unwrap()))
        .collect()
}

/// Sends bytes and returns the reply.
pub fn exchange_bytes(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u32> {
    stream.write_all(bytes).unwrap();
    reply(stream)
}

/// True once the peer has closed the connection.
pub fn closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// The server answers NULL on this connection.
pub fn serves(stream: &mut TcpStream) {
    assert_eq!(exchange_bytes(stream, &null(77)), [77, 1, 0, 0, 0, 0]);
}
