//! Who must be told when the server restarts: client hosts that hold locks, and
//! the lock managers of this machine that asked the status monitor. Written down
//! at every change, since it is needed exactly when nobody could say goodbye.
//!
//! The record is a text of lines, so that an administrator can read and mend it.
//! Names may be any bytes and stand in hexadecimal.

use crate::rpc;
use crate::service::NSM_PROGRAM;
use crate::xdr::Put;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use weir_vfs::locks::Client;

/// SM_NOTIFY of the status monitor.
const SM_NOTIFY: u32 = 6;
/// First line of the record.
const TITLE: &str = "weir lock hosts, version 1";
/// Most hosts and monitors written down.
const MAX_HOSTS: usize = 16_384;

/// Where the record is kept. Implemented with one small file that is replaced
/// atomically; it may block for the time of an fsync, once per host that starts
/// or ends to hold locks.
pub trait HostStore: Send + Sync {
    /// The record as last saved; `None` if there was none.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;
    /// Replaces the record, durably.
    fn save(&self, record: &[u8]) -> io::Result<()>;
}

/// A client host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// What it calls itself.
    pub(crate) name: Arc<[u8]>,
    /// Its address.
    pub(crate) addr: IpAddr,
    /// The address of ours that it uses.
    pub(crate) local: IpAddr,
}

/// A lock manager on this machine that wants to be told of a host's restart
/// (SM_MON).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Monitor {
    pub(crate) host: Vec<u8>,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) private: [u8; 16],
}

/// A call ready to be sent: program, version, message.
pub(crate) type ReadyCall = (u32, u32, Vec<u8>);

pub(crate) struct Hosts {
    store: Arc<dyn HostStore>,
    /// Odd; goes up by two at every start (X/Open XNFS, status monitor).
    state: u32,
    hosts: HashMap<Client, Host>,
    /// When each host last asked for a lock, on the monotonic clock.
    asked: HashMap<Client, Duration>,
    monitors: Vec<Monitor>,
    /// Who held locks when the server stopped.
    recovering: Vec<Host>,
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2 + 1), |mut s, b| {
            // Writing to a String does not fail.
            let _ = write!(s, "{b:02x}");
            s
        })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() % 2 != 0 {
        return None;
    }
    let nibble = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    digits
        .chunks(2)
        .map(|p| Some(nibble(*p.first()?)? << 4 | nibble(*p.get(1)?)?))
        .collect()
}

/// The call that tells a host that `name` has reached `state`
/// (`stat_chge`, SM_NOTIFY).
pub(crate) fn notify_call(xid: u32, name: &str, state: u32) -> ReadyCall {
    let mut message = Vec::with_capacity(96);
    rpc::put_call(&mut message, xid, NSM_PROGRAM, 1, SM_NOTIFY);
    message.put_opaque(name.as_bytes());
    message.put_u32(state);
    (NSM_PROGRAM, 1, message)
}

impl Hosts {
    /// Reads the record and starts a new state.
    pub(crate) fn load(store: Arc<dyn HostStore>) -> Hosts {
        let mut h = Hosts {
            store,
            state: 1,
            hosts: HashMap::new(),
            asked: HashMap::new(),
            monitors: Vec::new(),
            recovering: Vec::new(),
        };
        match h.store.load() {
            Ok(Some(record)) => h.parse(&String::from_utf8_lossy(&record)),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "cannot read who held locks; they will not be told of the restart")
            }
        }
        if let Err(error) = h.save() {
            tracing::error!(%error, "cannot write the record of lock holders");
        }
        h
    }

    fn parse(&mut self, text: &str) {
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            tracing::error!("the record of lock holders is not in a known format; ignored");
            return;
        }
        for line in lines {
            if self.parse_line(line).is_none() {
                tracing::warn!(line, "line of the record of lock holders not understood");
            }
        }
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        match words.next()? {
            "state" => {
                let old: u32 = words.next()?.parse().ok()?;
                self.state = (old | 1).wrapping_add(2);
            }
            "host" => {
                let addr = words.next()?.parse().ok()?;
                let local = words.next()?.parse().ok()?;
                let name = Arc::from(unhex(words.next()?)?);
                self.recovering.push(Host { name, addr, local });
            }
            "monitor" => {
                let mut number = || words.next()?.parse::<u32>().ok();
                let (program, version, procedure) = (number()?, number()?, number()?);
                let private = unhex(words.next()?)?.try_into().ok()?;
                let host = unhex(words.next()?)?;
                self.monitors.push(Monitor {
                    host,
                    program,
                    version,
                    procedure,
                    private,
                });
            }
            _ => return None,
        }
        Some(())
    }

    fn save(&self) -> io::Result<()> {
        let mut text = format!("{TITLE}\nstate {}\n", self.state);
        // Those that have not come back yet would still have to be told after
        // another restart.
        let current = self.hosts.values();
        let absent = self
            .recovering
            .iter()
            .filter(|r| !self.hosts.values().any(|h| h.addr == r.addr));
        for h in current.chain(absent) {
            let _ = writeln!(text, "host {} {} {}", h.addr, h.local, hex(&h.name));
        }
        for m in &self.monitors {
            let (private, host) = (hex(&m.private), hex(&m.host));
            let _ = writeln!(
                text,
                "monitor {} {} {} {private} {host}",
                m.program, m.version, m.procedure
            );
        }
        self.store.save(text.as_bytes())
    }

    fn save_or_say(&self) {
        if let Err(error) = self.save() {
            tracing::error!(%error, "cannot write the record of lock holders");
        }
    }

    /// Forgets who holds locks as a restart would, keeping who must be told.
    pub(crate) fn restart(&mut self) {
        self.state = self.state.wrapping_add(2);
        self.recovering.extend(self.hosts.drain().map(|(_, h)| h));
        self.save_or_say();
    }

    /// This start's number.
    pub(crate) fn state(&self) -> u32 {
        self.state
    }

    /// Who held locks when the server stopped.
    pub(crate) fn recovering(&self) -> &[Host] {
        &self.recovering
    }

    /// The host of a client.
    pub(crate) fn get(&self, client: &Client) -> Option<&Host> {
        self.hosts.get(client)
    }

    /// Writes a host down.
    ///
    /// # Errors
    /// If it could not be written, or there are too many; then it is not there.
    pub(crate) fn add(&mut self, client: &Client, host: Host, now: Duration) -> io::Result<()> {
        if let Some(asked) = self.asked.get_mut(client) {
            *asked = now;
        } else if self.asked.len() < MAX_HOSTS {
            self.asked.insert(client.clone(), now);
        }
        if self.hosts.get(client) == Some(&host) {
            return Ok(());
        }
        if self.hosts.len() >= MAX_HOSTS {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let old = self.hosts.insert(client.clone(), host);
        self.save().inspect_err(|error| {
            tracing::error!(%error, "cannot write the record of lock holders; the lock is refused");
            match old {
                Some(old) => self.hosts.insert(client.clone(), old),
                None => self.hosts.remove(client),
            };
        })
    }

    /// Forgets a restarted host's clients.
    pub(crate) fn remove(&mut self, gone: &[Client]) {
        for client in gone {
            self.hosts.remove(client);
            self.asked.remove(client);
        }
        self.save_or_say();
    }

    /// Forgets the hosts that hold nothing and have asked for nothing since
    /// `since`, and those of before the restart.
    pub(crate) fn prune(&mut self, holders: &HashSet<Client>, since: Duration) {
        let before = self.hosts.len() + self.recovering.len();
        let asked = &self.asked;
        self.hosts
            .retain(|c, _| holders.contains(c) || asked.get(c).is_some_and(|at| *at >= since));
        let hosts = &self.hosts;
        self.asked.retain(|c, _| hosts.contains_key(c));
        self.recovering.clear();
        if self.hosts.len() != before {
            self.save_or_say();
        }
    }

    /// The clients that a restarted host stands for: those at its address, or if
    /// there are none, those of its name.
    pub(crate) fn matching(&self, addr: IpAddr, name: &[u8]) -> Vec<Client> {
        let of = |by: &dyn Fn(&Host) -> bool| -> Vec<Client> {
            self.hosts
                .iter()
                .filter(|(_, h)| by(h))
                .map(|(c, _)| c.clone())
                .collect()
        };
        let here = of(&|h| h.addr == addr);
        if here.is_empty() {
            of(&|h| *h.name == *name)
        } else {
            here
        }
    }

    /// SM_MON: somebody here wants to be told of the restart of a host.
    pub(crate) fn monitor(&mut self, m: Monitor) -> bool {
        self.monitors.retain(|x| {
            !(x.host == m.host && x.program == m.program && x.procedure == m.procedure)
        });
        if self.monitors.len() >= MAX_HOSTS {
            return false;
        }
        self.monitors.push(m);
        self.save().is_ok()
    }

    /// SM_UNMON of one host, or SM_UNMON_ALL.
    pub(crate) fn unmonitor(&mut self, host: Option<&[u8]>, program: u32) {
        let before = self.monitors.len();
        self.monitors
            .retain(|m| m.program != program || host.is_some_and(|h| h != m.host));
        if self.monitors.len() != before {
            self.save_or_say();
        }
    }

    /// The calls that tell the lock managers of this machine of the restart of
    /// a host (`None`: of this server). Their argument is that of the status
    /// monitor's callback: name, state, and what they gave to be given back.
    pub(crate) fn monitor_calls(
        &self,
        restarted: Option<(&[u8], u32)>,
        xid: impl Fn() -> u32,
    ) -> Vec<(IpAddr, ReadyCall)> {
        let concerned = self
            .monitors
            .iter()
            .filter(|m| restarted.is_none_or(|(name, _)| m.host == name));
        let call = |m: &Monitor| {
            let mut message = Vec::with_capacity(128);
            rpc::put_call(&mut message, xid(), m.program, m.version, m.procedure);
            message.put_opaque(&m.host);
            message.put_u32(restarted.map_or(self.state, |(_, state)| state));
            message.put_fixed(&m.private);
            (
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                (m.program, m.version, message),
            )
        };
        concerned.map(call).collect()
    }
}
