//! The servers of a node: a process for each aggregate, and a thread that keeps it running.
//!
//! A process outlives the daemon: a daemon that starts finds it by the lock of its data folder.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use serde_json::Value;
use weir_base::Clock;
use weir_base::limits::cluster::{
    CHILD_END, FAULT_BYTES, RESTART_CALM, RESTART_PAUSE, RESTART_PAUSE_MAX, ROUND,
};
use weir_node::control_socket;
use weir_store::folder;

use crate::conditions::Fact;
use crate::config::Config;
use crate::directory::{Entry, Exports, Listing};
use crate::rows::{Aggregate, Child, Kind, Listen, Role, View};
use crate::shares::message::{self, Grant, LimitReport};

/// Folder of the servers' data folders.
const FOLDER: &str = "aggregates";
/// Folder of the servers' logs.
const LOGS: &str = "logs";
/// Size from which on a log is put aside when its server starts, in bytes.
const LOG_BYTES: u64 = 4 << 20;
/// Pause between two checks of a server that ends.
const END_STEP: Duration = Duration::from_millis(20);
/// Checks in a row without the lock of its folder after which an adopted server has ended, although
/// a process has its number.
const LOCK_MISSES: u32 = 20;
/// Variables of the service manager, which are about the daemon's process.
const MANAGER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Request to the thread of a server.
enum Ask {
    Stop,
    Switch(String),
}

/// A server that is kept running.
struct ServerHandle {
    aggregate: Aggregate,
    report: Arc<Mutex<Child>>,
    volumes: Arc<Mutex<Volumes>>,
    rows: Arc<Mutex<message::Request>>,
    data: PathBuf,
    asks: Sender<Ask>,
    thread: JoinHandle<()>,
}

/// Volumes of an aggregate as its owner has reported them, with the name of that state.
#[derive(Default)]
struct Volumes {
    token: String,
    listing: Option<Listing>,
}
/// Maximum length of the facts that a server gets, in bytes: a request is a line of 8 KiB.
const FACTS_BYTES: usize = 6000;

/// The servers of a node.
pub struct Servers {
    starter: Starter,
    kept: BTreeMap<String, ServerHandle>,
}

/// Everything that starts a server depends on.
#[derive(Clone)]
struct Starter {
    program: PathBuf,
    folder: PathBuf,
    config: Config,
    clock: Arc<dyn Clock>,
    /// Faults of the cluster, as the servers get them.
    facts: Arc<Mutex<String>>,
}

impl Servers {
    /// Begins without servers. `program` is the file of `weir`.
    pub fn new(program: PathBuf, folder: &Path, config: Config, clock: Arc<dyn Clock>) -> Servers {
        Servers {
            starter: Starter {
                program,
                folder: folder.to_owned(),
                config,
                clock,
                facts: Arc::new(Mutex::new("[]".to_owned())),
            },
            kept: BTreeMap::new(),
        }
    }

    /// Returns the names of aggregates whose servers run without this daemon: those of the daemon
    /// before.
    pub fn left_over(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.starter.folder.join(FOLDER)) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .filter(|name| !self.kept.contains_key(name))
            .filter(|name| folder::holder(&self.starter.data(name)).is_some())
            .collect()
    }

    /// Keeps a server of the aggregate running from now on: one that runs, or a new one.
    ///
    /// # Errors
    /// A folder or a thread cannot be created.
    pub fn start(&mut self, aggregate: &Aggregate) -> Result<()> {
        if self.kept.contains_key(&aggregate.name) {
            return Ok(());
        }
        let starter = self.starter.clone();
        let name = starter.config.name.as_str();
        let side = aggregate
            .sides()
            .into_iter()
            .find(|(side, _)| *side == name);
        let side = side.map(|(_, folder)| folder.to_owned());
        ensure!(
            aggregate.kind == Kind::Rados || side.is_some(),
            "{} has no server on this node",
            aggregate.name
        );
        for folder in [FOLDER, LOGS] {
            let folder = starter.folder.join(folder);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let (asks, asked) = channel();
        let report = Arc::<Mutex<Child>>::default();
        let volumes = Arc::<Mutex<Volumes>>::default();
        let rows = Arc::<Mutex<message::Request>>::default();
        let mut keeper = Keeper {
            running: None,
            report: Arc::clone(&report),
            volumes: Arc::clone(&volumes),
            rows: Arc::clone(&rows),
            pause: RESTART_PAUSE,
            next: starter.clock.monotonic(),
            since: starter.clock.monotonic(),
            aggregate: aggregate.clone(),
            side,
            starter,
        };
        let thread = std::thread::Builder::new().name("weir-server".to_owned());
        let kept = ServerHandle {
            aggregate: aggregate.clone(),
            report,
            volumes,
            rows,
            data: keeper.data(),
            asks,
            thread: thread.spawn(move || keeper.run(&asked))?,
        };
        self.kept.insert(aggregate.name.clone(), kept);
        Ok(())
    }

    /// Ends the server of an aggregate in order. Its thread goes on for as long as that takes.
    pub fn stop(&mut self, name: &str) {
        if let Some(kept) = self.kept.get(name) {
            // A thread that has ended has nothing to stop.
            let _ = kept.asks.send(Ask::Stop);
        }
    }

    /// Makes the server of an aggregate switch to the standby of a process.
    pub fn switch(&self, name: &str, process: &str) {
        if let Some(kept) = self.kept.get(name) {
            // A thread that has ended has no server.
            let _ = kept.asks.send(Ask::Switch(process.to_owned()));
        }
    }

    /// Passes the faults of the cluster on to the servers, from their next reports on.
    pub fn tell(&self, facts: &[Fact]) {
        let text = serde_json::to_string(facts).unwrap_or_default();
        let fits = !text.is_empty() && text.len() <= FACTS_BYTES;
        *self.starter.facts.lock() = if fits { text } else { "[]".to_owned() };
    }

    /// Returns the row by which the server of an aggregate was started.
    pub fn aggregate(&self, name: &str) -> Option<&Aggregate> {
        self.kept.get(name).map(|kept| &kept.aggregate)
    }

    /// Returns the state of each server. Forgets those that were stopped.
    pub fn reports(&mut self) -> BTreeMap<String, Child> {
        self.kept.retain(|_, kept| !kept.thread.is_finished());
        let kept = self.kept.iter();
        kept.map(|(name, kept)| (name.clone(), kept.report.lock().clone()))
            .collect()
    }

    /// Returns the lists of aggregates that servers here own, with their texts for the tables.
    pub fn listings(&self) -> BTreeMap<String, (Entry, String)> {
        let listing = |(name, kept): (&String, &ServerHandle)| {
            let report = kept.report.lock();
            let epoch = (report.role == Role::Owner).then_some(report.epoch)?;
            drop(report);
            let listing = kept.volumes.lock().listing.clone()?;
            // A list has only texts and numbers.
            Some((name.clone(), Entry::new(epoch, listing).ok()?))
        };
        self.kept.iter().filter_map(listing).collect()
    }

    /// Passes the rows of a view on to the servers whose reports, as of `children`, are in the
    /// tables since before it was read.
    pub fn hand_shares(&self, children: &BTreeMap<String, Child>, view: &View) {
        for (name, child) in children {
            let Some(kept) = self.kept.get(name) else {
                continue;
            };
            let row = |one: &LimitReport| {
                let (limit, part) = (one.limit, one.part);
                let share = *view.shares.get(&(limit, part))?;
                Some(Grant { limit, part, share })
            };
            *kept.rows.lock() = message::Request {
                as_of: child.shares_as_of.clone(),
                term: view.leader.as_ref().map_or(0, |leader| leader.term),
                grants: child.shares.iter().filter_map(row).collect(),
            };
        }
    }

    /// Returns the data folders of the servers.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.kept.values().map(|kept| &*kept.data)
    }

    /// Ends all servers in order. Blocks until they have ended.
    pub fn stop_all(&mut self) {
        let names: Vec<String> = self.kept.keys().cloned().collect();
        names.iter().for_each(|name| self.stop(name));
        for (_, kept) in std::mem::take(&mut self.kept) {
            // It has reported its panic.
            let _ = kept.thread.join();
        }
    }
}

/// Returns the data folder of an aggregate's server in the folder of a node.
pub fn data_folder(node: &Path, aggregate: &str) -> PathBuf {
    node.join(FOLDER).join(aggregate)
}

impl Starter {
    fn data(&self, aggregate: &str) -> PathBuf {
        data_folder(&self.folder, aggregate)
    }

    /// Opens the log of a server to append to it, and puts a long one aside.
    fn log(&self, aggregate: &str) -> Result<File> {
        let path = self.folder.join(LOGS).join(format!("{aggregate}.log"));
        if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES) {
            fs::rename(&path, path.with_extension("log.1"))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.with_context(|| path.display().to_string())
    }

    /// Returns the arguments of an aggregate's server.
    fn arguments(&self, aggregate: &Aggregate) -> Vec<String> {
        let at = |listen: &Option<Listen>, own: std::net::IpAddr| match listen {
            Some(Listen { address, port }) => {
                std::net::SocketAddr::new(address.unwrap_or(own), *port).to_string()
            }
            None => "off".to_owned(),
        };
        let settings = &aggregate.settings;
        let own = self.config.address;
        let data = self.data(&aggregate.name).display().to_string();
        let mut arguments: Vec<String> = ["serve", "--standby", "--no-rpcbind", "--data", &data]
            .map(str::to_owned)
            .into();
        let mut add = |name: &str, value: String| arguments.push(format!("--{name}={value}"));
        add("aggregate", aggregate.place.clone());
        add("node-data", self.folder.display().to_string());
        // Names are unique in the cluster.
        add("first-location", aggregate.name.clone());
        if settings.nfs.is_some() {
            add("nfs", at(&settings.nfs, own));
        }
        add("smb", at(&settings.smb, own));
        // Another address takes tokens and a certificate.
        add(
            "api",
            at(&settings.api, std::net::Ipv4Addr::LOCALHOST.into()),
        );
        add("memory", settings.memory.to_string());
        for address in &settings.addresses {
            add("address", address.clone());
        }
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        for (name, value) in [
            ("ceph-conf", file(&self.config.ceph_conf)),
            ("ceph-keyring", file(&self.config.ceph_keyring)),
            ("ceph-user", self.config.ceph_user.clone()),
        ] {
            if let Some(value) = value {
                add(name, value);
            }
        }
        arguments
    }

    fn spawn(&self, aggregate: &Aggregate) -> Result<process::Child> {
        let log = self.log(&aggregate.name)?;
        let mut command = Command::new(&self.program);
        command.args(self.arguments(aggregate));
        for name in MANAGER {
            command.env_remove(name);
        }
        // Ctrl-C in a terminal is for the daemon, which passes the end on.
        command.process_group(0);
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn();
        child.with_context(|| format!("starting {}", self.program.display()))
    }
}

/// A process that serves, or stands by.
enum ServerProcess {
    /// A child of this daemon.
    Own(process::Child),
    /// A process that an earlier daemon has started, and the number of checks in a row at which it
    /// did not hold the lock of its folder: it has none while it begins anew.
    Adopted(libc::pid_t, u32),
}

/// The state of the thread that keeps a server running.
struct Keeper {
    starter: Starter,
    aggregate: Aggregate,
    /// Data folder of a pair's server, which others start.
    side: Option<PathBuf>,
    report: Arc<Mutex<Child>>,
    volumes: Arc<Mutex<Volumes>>,
    /// Rows of shared limits for the server.
    rows: Arc<Mutex<message::Request>>,
    running: Option<ServerProcess>,
    /// Pause before the next start.
    pause: Duration,
    /// Time of the next start at the earliest.
    next: Duration,
    /// Time of the last start.
    since: Duration,
}

impl Keeper {
    fn run(&mut self, asked: &Receiver<Ask>) {
        loop {
            if self.side.is_some() {
                self.watch_pair();
            } else {
                if self.running.is_none() {
                    self.start();
                }
                self.watch();
            }
            match asked.recv_timeout(self.wait()) {
                Ok(Ask::Switch(process)) => self.switch(&process),
                Ok(Ask::Stop) => return self.stop(),
                // The daemon ends without its servers.
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the time until something is to be done.
    fn wait(&self) -> Duration {
        let now = self.starter.clock.monotonic();
        if self.running.is_some() || self.side.is_some() {
            ROUND / 2
        } else {
            self.next.saturating_sub(now).min(ROUND)
        }
    }

    fn data(&self) -> PathBuf {
        let folder = self.side.clone();
        folder.unwrap_or_else(|| self.starter.data(&self.aggregate.name))
    }

    /// Reads the state of a pair's server.
    fn watch_pair(&mut self) {
        let child = match control_socket::data(&self.data(), "pair show") {
            Ok(data) => side(&data),
            Err(error) => Child {
                fault: Some(shortened(&format!("{error:#}"))),
                ..Child::default()
            },
        };
        self.report.lock().replace(child);
        self.watch_volumes();
        self.exchange_shares();
    }

    /// Reads the list of volumes of a server that owns its aggregate, if it has changed.
    fn watch_volumes(&self) {
        if self.report.lock().role != Role::Owner {
            *self.volumes.lock() = Volumes::default();
            return;
        }
        let token = self.volumes.lock().token.clone();
        let reply = control_socket::data(&self.data(), &format!("cluster show-exports {token}"));
        let exports = reply.and_then(|reply| Ok(serde_json::from_value::<Exports>(reply)?));
        match exports {
            Ok(Exports {
                token,
                served: Some(served),
            }) => {
                let listing = Some(served.listing(self.starter.config.address));
                *self.volumes.lock() = Volumes { token, listing };
            }
            Ok(Exports { served: None, .. }) => {}
            Err(error) => tracing::debug!("{}: {error:#}", self.aggregate.name),
        }
    }

    /// Adopts the server that runs, or starts one when its pause is over.
    fn start(&mut self) {
        let now = self.starter.clock.monotonic();
        if let Some(process) = folder::holder(&self.data()) {
            if let Ok(process) = process.parse() {
                tracing::info!("{}: its server runs already", self.aggregate.name);
                self.running = Some(ServerProcess::Adopted(process, 0));
                self.since = now;
            }
            return;
        }
        if now < self.next {
            return;
        }
        self.since = now;
        match self.starter.spawn(&self.aggregate) {
            Ok(child) => {
                tracing::info!(
                    "{}: started its server (process {})",
                    self.aggregate.name,
                    child.id()
                );
                self.running = Some(ServerProcess::Own(child));
            }
            Err(error) => self.note_end(&format!("{error:#}")),
        }
    }

    /// Notes the end of the server, and when it is started again.
    fn note_end(&mut self, why: &str) {
        let now = self.starter.clock.monotonic();
        if now.saturating_sub(self.since) >= RESTART_CALM {
            self.pause = RESTART_PAUSE;
        }
        tracing::warn!(
            "{}: its server has ended: {why}; starting it again in {:?}",
            self.aggregate.name,
            self.pause
        );
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(RESTART_PAUSE_MAX);
        self.running = None;
        let mut report = self.report.lock();
        let ends = report.ends + 1;
        let logs = self.starter.folder.join(LOGS);
        let why = format!("{why} ({}/{}.log)", logs.display(), self.aggregate.name);
        *report = Child {
            fault: Some(shortened(&why)),
            ends,
            ..Child::default()
        };
    }

    /// Reads the state of the server.
    fn watch(&mut self) {
        let ended = match &mut self.running {
            None => return,
            Some(ServerProcess::Own(child)) => child.try_wait().ok().flatten().map(describe),
            Some(ServerProcess::Adopted(..)) => self
                .has_ended()
                .then(|| "an earlier daemon had started it".to_owned()),
        };
        if let Some(why) = ended {
            return self.note_end(&why);
        }
        let request = format!("cluster show {}", self.starter.facts.lock());
        let data = control_socket::data(&self.data(), &request);
        let mut report = self.report.lock();
        match data {
            Ok(data) => {
                let ends = report.ends;
                report.replace(Child {
                    ends,
                    ..child(&data)
                });
            }
            // It starts. What it was before holds until it answers or ends.
            Err(error) if report.role == Role::Starting => {
                tracing::debug!("{}: {error:#}", self.aggregate.name);
            }
            Err(error) => report.fault = Some(shortened(&format!("{error:#}"))),
        }
        drop(report);
        self.watch_volumes();
        self.exchange_shares();
    }

    /// Hands the rows of shared limits to a server that owns its aggregate, and reads its reports.
    /// Older ones stay while it does not answer.
    fn exchange_shares(&self) {
        if self.report.lock().role != Role::Owner {
            return;
        }
        let rows = self.rows.lock().clone();
        let mut parts = rows.grants.chunks(message::GRANTS_MAX);
        let mut next = Some(parts.next().unwrap_or_default());
        while let Some(grants) = next {
            let request = message::Request {
                grants: grants.to_vec(),
                as_of: rows.as_of.clone(),
                ..rows
            };
            match self.exchange(&request) {
                Ok(reply) => {
                    let mut report = self.report.lock();
                    (report.shares, report.shares_as_of) = (reply.reports, reply.as_of);
                }
                Err(error) => {
                    tracing::debug!("{}: {error:#}", self.aggregate.name);
                    return;
                }
            }
            next = parts.next();
        }
    }

    fn exchange(&self, request: &message::Request) -> Result<message::Reply> {
        let text = serde_json::to_string(request)?;
        let reply = control_socket::data(&self.data(), &format!("cluster show-shares {text}"))?;
        Ok(serde_json::from_value(reply)?)
    }

    fn switch(&mut self, process: &str) {
        let name = &self.aggregate.name;
        let request = if self.side.is_some() {
            "pair switch".to_owned()
        } else {
            format!("cluster takeover {process}")
        };
        match control_socket::query(&self.data(), &request) {
            Ok(reply) => tracing::info!("{name}: {}", reply.summary),
            Err(error) => tracing::warn!("{name}: {error:#}"),
        }
    }

    /// Returns the number of the server's process.
    fn process(&self) -> Option<libc::pid_t> {
        match self.running.as_ref()? {
            ServerProcess::Own(child) => libc::pid_t::try_from(child.id()).ok(),
            ServerProcess::Adopted(process, _) => Some(*process),
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // A process group of its own number is one that this daemon or its predecessor has made.
        if let Some(process) = self.process().filter(|process| *process > 1) {
            // SAFETY: kill only sends a signal.
            unsafe {
                libc::kill(process, signal);
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        let data = self.data();
        match &mut self.running {
            None => true,
            Some(ServerProcess::Own(child)) => !matches!(child.try_wait(), Ok(None)),
            Some(ServerProcess::Adopted(process, misses)) => {
                let holds = folder::holder(&data).is_some();
                *misses = if holds { 0 } else { *misses + 1 };
                *misses > LOCK_MISSES || !Path::new(&format!("/proc/{process}")).exists()
            }
        }
    }

    /// Ends the server in order, and kills it if that takes longer than [`CHILD_END`].
    fn stop(&mut self) {
        if self.side.is_some() {
            return;
        }
        tracing::info!("{}: ending its server", self.aggregate.name);
        self.signal(libc::SIGTERM);
        for _ in 0..CHILD_END.as_millis() / END_STEP.as_millis() {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(END_STEP);
        }
        tracing::error!(
            "{}: its server does not end; killing it",
            self.aggregate.name
        );
        self.signal(libc::SIGKILL);
        if let Some(ServerProcess::Own(child)) = &mut self.running {
            // It has been killed.
            let _ = child.wait();
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("killed by signal {signal}"),
        None => status.to_string(),
    }
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(FAULT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// Reads the reply of a server to `cluster show --json`.
fn child(data: &Value) -> Child {
    let process = |value: &Value| {
        let host = value.get("host")?.as_str()?;
        Some(format!(
            "{host} (process {})",
            value.get("process")?.as_u64()?
        ))
    };
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| data.get(name).and_then(Value::as_u64).unwrap_or(0);
    Child {
        role: match text("role").as_deref() {
            Some("OWNER") => Role::Owner,
            // A standby that has not seen the aggregate yet has joined nothing.
            Some("STANDBY") if data.get("epoch").is_some_and(Value::is_u64) => Role::Standby,
            _ => Role::Starting,
        },
        epoch: number("epoch"),
        role_seconds: number("roleSeconds"),
        process: data.get("server").and_then(process).unwrap_or_default(),
        owner: data.get("owner").and_then(process),
        fault: text("fault").map(|fault| shortened(&fault)),
        ends: 0,
        ..Child::default()
    }
}

/// Reads the reply of a pair's server to `pair show --json`.
fn side(data: &Value) -> Child {
    let is = |name: &str| data.get(name).and_then(Value::as_bool) == Some(true);
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
    let ready = is("inSync") && is("partnerConnected");
    Child {
        role: if is("serving") {
            Role::Owner
        } else if ready {
            Role::Standby
        } else {
            Role::Starting
        },
        epoch: data.get("term").and_then(Value::as_u64).unwrap_or(0),
        process: text("node").map_or_else(String::new, |side| format!("side {side}")),
        fault: text("fault").map(|fault| shortened(&fault)),
        ..Child::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replies_of_servers_are_read() {
        let mut data = json!({
            "role": "STANDBY", "epoch": 3, "roleSeconds": 7, "fault": null,
            "server": {"host": "h", "process": 12}, "owner": {"host": "g", "process": 5},
        });
        let read = child(&data);
        assert_eq!(
            (read.role, read.epoch, read.role_seconds),
            (Role::Standby, 3, 7)
        );
        assert_eq!(read.process, "h (process 12)");
        assert_eq!(read.owner.as_deref(), Some("g (process 5)"));
        assert_eq!(read.fault, None);
        data["epoch"] = Value::Null;
        assert_eq!(child(&data).role, Role::Starting);
        assert_eq!(child(&json!("?")), Child::default());
        let pair = json!({"serving": false, "inSync": true, "partnerConnected": true, "term": 4, "node": "b"});
        let read = side(&pair);
        assert_eq!((read.role, read.epoch), (Role::Standby, 4));
        assert_eq!(side(&json!({"serving": true, "term": 5})).role, Role::Owner);
        assert_eq!(shortened(&"ä".repeat(200)).len(), 300);
    }
}
