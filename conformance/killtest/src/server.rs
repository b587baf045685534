//! The server under test as a process: start, kill -9, stop.

use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::fault::Fault;

/// Commands that run the server. In them `{data}` and `{port}` are replaced; words are split at
/// blanks.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub serve: String,
    pub check: Option<String>,
    pub data: PathBuf,
    /// `None`: a free port for each start.
    pub port: Option<u16>,
    pub log: PathBuf,
}

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    log: PathBuf,
}

impl Recipe {
    fn command(&self, line: &str, port: u16) -> Result<Command, Fault> {
        let data = self.data.to_string_lossy();
        let mut words = line.split_whitespace().map(|w| {
            w.replace("{data}", &data)
                .replace("{port}", &port.to_string())
        });
        let mut c = Command::new(words.next().ok_or("an empty command")?);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|e| format!("{}: {e}", self.log.display()))?;
        let err = log.try_clone().map_err(|e| e.to_string())?;
        c.args(words).stdin(Stdio::null()).stdout(log).stderr(err);
        Ok(c)
    }

    /// Starts the process; it need not listen yet.
    pub fn spawn(&self) -> Result<Server, Fault> {
        let port = match self.port {
            Some(p) => p,
            None => TcpListener::bind("127.0.0.1:0")
                .and_then(|l| l.local_addr())
                .map_err(|e| e.to_string())?
                .port(),
        };
        let child = self
            .command(&self.serve, port)?
            .spawn()
            .map_err(|e| format!("{}: {e}", self.serve))?;
        Ok(Server {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            log: self.log.clone(),
        })
    }

    /// The offline check, if there is one. The server must not be running.
    pub fn check(&self) -> Result<(), Fault> {
        let Some(line) = &self.check else {
            return Ok(());
        };
        let status = self
            .command(line, 0)?
            .status()
            .map_err(|e| format!("{line}: {e}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!(
                "the offline check found faults ({status}){}",
                tail(&self.log)
            ))
        }
    }
}

impl Server {
    /// Until it accepts connections.
    pub fn ready(&mut self) -> Result<(), Fault> {
        for _ in 0..3000 {
            if TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok() {
                return Ok(());
            }
            self.alive()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("does not listen after a minute{}", tail(&self.log)))
    }

    /// A fault if the process has ended by itself.
    pub fn alive(&mut self) -> Result<(), Fault> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!(
                "the server ended by itself: {status}{}",
                tail(&self.log)
            )),
            Err(e) => Err(e.to_string()),
        }
    }

    /// kill -9, and until the process is gone.
    pub fn kill(mut self) -> Result<(), Fault> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map(drop)
            .map_err(|e| e.to_string())
    }

    /// Sends a signal, such as `-STOP`.
    pub fn signal(&self, signal: &str) -> Result<(), Fault> {
        let sent = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        match sent.is_ok_and(|s| s.success()) {
            true => Ok(()),
            false => Err(format!("{signal} could not be sent")),
        }
    }

    /// SIGTERM; it must end by itself, with success.
    pub fn stop(mut self) -> Result<(), Fault> {
        self.signal("-TERM")?;
        for _ in 0..3000 {
            match self.child.try_wait() {
                Ok(Some(s)) if s.success() => return Ok(()),
                Ok(Some(s)) => {
                    return Err(format!("ended with {s} after SIGTERM{}", tail(&self.log)));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(e) => return Err(e.to_string()),
            }
        }
        self.child.kill().ok();
        Err(format!(
            "did not end within a minute after SIGTERM{}",
            tail(&self.log)
        ))
    }
}

impl Drop for Server {
    /// Whatever way the test ends, no server stays behind.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// The end of a log, to follow an error message.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(12).collect();
    lines
        .iter()
        .rev()
        .fold(String::from("; its log ends:"), |s, l| s + "\n    " + l)
}
