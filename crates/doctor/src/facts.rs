//! Facts from all files together: the kernel, its settings, and a record for each NFS and SMB
//! mount.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};

use anyhow::{Result, bail};
use serde::Serialize;

use crate::mountinfo;
use crate::mountstats::{self, Connection, Operation};
use crate::settings::{self, FstabEntry, Setting};
use crate::source::Source;

/// A kernel's version as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Kernel {
    /// Major and minor number; 0.0 if unknown.
    pub version: (u32, u32),
    /// As it calls itself, such as `4.18.0-553.el8_10.x86_64`.
    pub name: String,
}

impl Kernel {
    fn parse(text: &str) -> Kernel {
        let name = text
            .split_whitespace()
            .nth(2)
            .unwrap_or_default()
            .to_owned();
        let mut numbers = name.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Kernel { version, name }
    }

    /// Returns true if it knows `nconnect`: mainline since 5.3, Red Hat's 4.18 since release 240
    /// (8.3).
    pub fn has_nconnect(&self) -> bool {
        let red_hat = || {
            let release = self.name.strip_prefix("4.18.0-")?;
            let number: u32 = release.split(['.', '-']).next()?.parse().ok()?;
            release.contains("el8").then_some(number >= 240)
        };
        self.version >= (5, 3) || red_hat().unwrap_or(false)
    }
}

/// Protocol of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// NFSv3, and version 2 alike.
    Nfs3,
    /// NFSv4.0: one owner's requests, slots as in NFSv3.
    Nfs40,
    /// NFSv4.1 and later: a session with its own slots.
    Nfs41,
    /// SMB, of any dialect.
    Smb,
}

/// A mount, or a line of fstab in its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Source of the mount: `server:/share` or `//server/share`.
    pub what: String,
    /// Path of the mount point.
    pub point: String,
    /// The protocol, by type and options.
    pub protocol: Protocol,
    /// Effective options, by name; empty without a value.
    pub options: BTreeMap<String, String>,
    /// The server's address if the options have it, else its name.
    pub server: String,
    /// Connections, with their counts. Empty for SMB.
    pub connections: Vec<Connection>,
    /// Counters by operation. Empty for SMB.
    pub operations: BTreeMap<String, Operation>,
    /// Read-ahead in KiB; `None` if unknown.
    pub read_ahead: Option<u64>,
    /// Device number, as `major:minor`; `None` if unknown.
    pub device: Option<String>,
    /// Options of the mount point itself, such as `nosuid`.
    pub flags: String,
    /// The line of fstab (counted from 1) that this is, of which the options are judged like those
    /// of a mount; `None` for an effective mount.
    pub line: Option<usize>,
}

impl Mount {
    /// A line of fstab, with its options as the kernel would show them.
    fn of_line(wanted: &FstabEntry) -> Mount {
        let mut options = mountstats::options(&wanted.options);
        for (word, value) in [("tcp", "tcp"), ("udp", "udp"), ("rdma", "rdma")] {
            if options.contains_key(word) {
                options
                    .entry("proto".to_owned())
                    .or_insert_with(|| value.to_owned());
            }
        }
        if let Some(version) = options.get("nfsvers").cloned() {
            options.insert("vers".to_owned(), version);
        }
        if let Some(seconds) = options.get("actimeo").cloned() {
            for name in ["acregmin", "acregmax", "acdirmin", "acdirmax"] {
                options.insert(name.to_owned(), seconds.clone());
            }
        }
        let version = options.get("vers").map_or("", String::as_str);
        Mount {
            protocol: match (wanted.kind.as_str(), version) {
                ("cifs" | "smb3", _) => Protocol::Smb,
                (_, "2" | "3") => Protocol::Nfs3,
                (_, "4.0") => Protocol::Nfs40,
                _ => Protocol::Nfs41,
            },
            what: wanted.what.clone(),
            point: wanted.point.clone(),
            server: server_of(&wanted.what).to_owned(),
            options,
            connections: Vec::new(),
            operations: BTreeMap::new(),
            read_ahead: None,
            device: None,
            flags: String::new(),
            line: Some(wanted.line),
        }
    }

    /// Returns the name by which findings refer to it.
    pub fn subject(&self) -> String {
        match self.line {
            Some(line) => format!("/etc/fstab:{line}"),
            None => format!("{} on {}", self.what, self.point),
        }
    }

    /// Returns true if this is the mount of `what` at `point`.
    pub fn is(&self, what: &str, point: &str) -> bool {
        self.what == what && self.point == point
    }

    /// An option's value as a number.
    pub fn number(&self, option: &str) -> Option<u64> {
        self.options.get(option)?.parse().ok()
    }

    /// Returns true if an option is set, with any value or none.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// Mean round trip of READ and WRITE in milliseconds, if there were at least a hundred.
    pub fn round_trip_ms(&self) -> Option<f64> {
        mean_ms(self.data())
    }

    /// Returns the latency of calls that carry next to nothing: the cost of the distance to the
    /// server, without moving data.
    pub fn distance_ms(&self) -> Option<f64> {
        mean_ms(
            ["GETATTR", "ACCESS", "LOOKUP"]
                .iter()
                .filter_map(|name| self.operations.get(*name)),
        )
    }

    /// The counts of READ and WRITE.
    pub fn data(&self) -> impl Iterator<Item = &Operation> {
        ["READ", "WRITE"]
            .iter()
            .filter_map(|name| self.operations.get(*name))
    }
}

fn mean_ms<'o>(operations: impl Iterator<Item = &'o Operation>) -> Option<f64> {
    let (requests, ms) =
        operations.fold((0, 0), |(n, ms), o| (n + o.requests, ms + o.round_trip_ms));
    (requests >= 100).then(|| ms as f64 / requests as f64)
}

/// Limits of one server, as published for NetApp Volumes and as Weir serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Requests under way on one NFSv3 connection.
    pub per_connection: u64,
    /// Requests under way in one NFSv4.1 session.
    pub per_session: u64,
    /// Requests under way from all clients.
    pub total: u64,
    /// Connections a mount can have.
    pub nconnect: u64,
}

/// Best practices of NetApp Volumes: 128 a connection, 180 a session, 10,000 slots in a project,
/// nconnect up to 16.
pub const LIMITS: Limits = Limits {
    per_connection: 128,
    per_session: 180,
    total: 10_000,
    nconnect: 16,
};

/// Everything that rules read.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The kernel of the client.
    pub kernel: Kernel,
    /// NFS and SMB mounts.
    pub mounts: Vec<Mount>,
    /// Mounts that fstab asks for.
    pub lines: Vec<Mount>,
    /// `sunrpc.tcp_max_slot_table_entries`; `None` if the module is not loaded.
    pub max_slots: Option<u64>,
    /// `nfs.max_session_slots`; `None` if the module is not loaded.
    pub session_slots: Option<u64>,
    /// `net.ipv4.tcp_rmem`: the smallest, the first and the largest receive buffer of a connection,
    /// bytes.
    pub tcp_receive: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: the same of send buffers, bytes.
    pub tcp_send: Option<[u64; 3]>,
    /// Settings in sysctl files.
    pub sysctl: Vec<Setting>,
    /// Settings in modprobe files.
    pub modules: Vec<Setting>,
    /// True if sysctl's settings of `sunrpc` are applied when the module is loaded.
    pub sysctl_at_load: bool,
    /// The network mounts that fstab asks for.
    pub fstab: Vec<FstabEntry>,
    /// Connections of each SMB session, by the server's address.
    pub smb_channels: BTreeMap<String, u64>,
    /// The server that was asked for.
    pub server: Option<String>,
}

impl Facts {
    /// Reads all files of `source`.
    pub fn read(source: &Source) -> Result<Facts> {
        let Some(version) = source.read("proc/version") else {
            bail!(
                "cannot read {} (`weir doctor` examines a Linux client, or a folder that --capture has filled)",
                source.on_disk("proc/version").display()
            );
        };
        let buffers = |path| -> Option<[u64; 3]> {
            let text = source.read(path)?;
            let numbers: Vec<u64> = text
                .split_whitespace()
                .map_while(|n| n.parse().ok())
                .collect();
            numbers.try_into().ok()
        };
        let mounts = mounts(source);
        let fstab = settings::fstab(source);
        let lines = fstab.iter().map(Mount::of_line).map(|mut line| {
            // A mount of the same name has the name's effective address.
            let named = mounts.iter().find(|m| server_of(&m.what) == line.server);
            if let Some(mount) = named {
                line.server.clone_from(&mount.server);
            }
            if let Some(mount) = mounts.iter().find(|m| m.is(&line.what, &line.point)) {
                line.protocol = mount.protocol;
            }
            line
        });
        Ok(Facts {
            kernel: Kernel::parse(&version),
            lines: lines.collect(),
            mounts,
            max_slots: source
                .number("proc/sys/sunrpc/tcp_max_slot_table_entries")
                .or_else(|| {
                    source.number("sys/module/sunrpc/parameters/tcp_max_slot_table_entries")
                }),
            session_slots: source.number("sys/module/nfs/parameters/max_session_slots"),
            tcp_receive: buffers("proc/sys/net/ipv4/tcp_rmem"),
            tcp_send: buffers("proc/sys/net/ipv4/tcp_wmem"),
            sysctl: settings::sysctl(source),
            modules: settings::modules(source),
            sysctl_at_load: settings::sysctl_at_load(source),
            fstab,
            smb_channels: smb_channels(&source.read("proc/fs/cifs/DebugData").unwrap_or_default()),
            server: None,
        })
    }

    /// The line of fstab that asks for a mount.
    pub fn wanted(&self, mount: &Mount) -> Option<&FstabEntry> {
        self.fstab
            .iter()
            .find(|wanted| wanted.point == mount.point && wanted.what == mount.what)
    }

    /// Leaves out mounts of other servers. `host` is a name or an address.
    pub fn only_server(&mut self, host: &str) -> Result<()> {
        let addresses: Vec<IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => (host, 0)
                .to_socket_addrs()
                .map(|all| all.map(|a| a.ip()).collect())
                .unwrap_or_default(),
        };
        let of_host = |mount: &Mount| {
            mount.server == host
                || server_of(&mount.what) == host
                || mount
                    .server
                    .parse()
                    .is_ok_and(|ip: IpAddr| addresses.contains(&ip))
        };
        self.mounts.retain(of_host);
        self.lines.retain(of_host);
        if self.mounts.is_empty() {
            bail!("nothing of {host} is mounted here");
        }
        self.server = Some(host.to_owned());
        Ok(())
    }
}

/// `server` of `server:/share`, `[address]:/share` or `//server/share`.
fn server_of(what: &str) -> &str {
    match what.strip_prefix("//") {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => what
            .split(":/")
            .next()
            .unwrap_or(what)
            .trim_matches(['[', ']']),
    }
}

/// Sessions of `/proc/fs/cifs/DebugData` (`1) Address: 192.0.2.20 Uses: 1 …`), and how many
/// channels each has: one, and those that a line `Extra Channels: N` counts.
fn smb_channels(text: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut address = None;
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once(") Address: ") {
            address = rest.split_whitespace().next().map(str::to_owned);
            if let Some(address) = &address {
                all.insert(address.clone(), 1);
            }
        } else if let (Some((_, count)), Some(address)) =
            (line.split_once("Extra Channels: "), &address)
        {
            let extra: u64 = count.trim().parse().unwrap_or(0);
            all.insert(address.clone(), extra.saturating_add(1));
        }
    }
    all
}

fn mounts(source: &Source) -> Vec<Mount> {
    let mounted = mountinfo::parse(&source.read("proc/self/mountinfo").unwrap_or_default());
    let read_ahead = |device: &str| source.number(&format!("sys/class/bdi/{device}/read_ahead_kb"));
    let nfs = mountstats::parse(&source.read("proc/self/mountstats").unwrap_or_default());
    let mut all: Vec<Mount> = nfs
        .into_iter()
        .map(|stats| {
            let info = mounted
                .iter()
                .find(|m| m.point == stats.point && m.kind == stats.kind);
            let address = info.and_then(|m| mountstats::options(&m.options).remove("addr"));
            let version = stats.options.get("vers").map_or("3", String::as_str);
            Mount {
                protocol: match (stats.kind.as_str(), version) {
                    ("nfs", _) => Protocol::Nfs3,
                    (_, "4" | "4.0") => Protocol::Nfs40,
                    _ => Protocol::Nfs41,
                },
                server: address.unwrap_or_else(|| server_of(&stats.what).to_owned()),
                read_ahead: info.and_then(|m| read_ahead(&m.device)),
                device: info.map(|m| m.device.clone()),
                flags: info.map(|m| m.flags.clone()).unwrap_or_default(),
                line: None,
                what: stats.what,
                point: stats.point,
                options: stats.options,
                connections: stats.connections,
                operations: stats.operations,
            }
        })
        .collect();
    let smb = mounted
        .iter()
        .filter(|m| matches!(m.kind.as_str(), "cifs" | "smb3"));
    all.extend(smb.map(|m| {
        let options = mountstats::options(&m.options);
        Mount {
            what: m.what.clone(),
            point: m.point.clone(),
            protocol: Protocol::Smb,
            server: options
                .get("addr")
                .cloned()
                .unwrap_or_else(|| server_of(&m.what).to_owned()),
            options,
            connections: Vec::new(),
            operations: BTreeMap::new(),
            read_ahead: read_ahead(&m.device),
            device: Some(m.device.clone()),
            flags: m.flags.clone(),
            line: None,
        }
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_know_nconnect() {
        let kernel = |name: &str| Kernel::parse(&format!("Linux version {name} (someone) #1"));
        assert!(kernel("6.1.0-27-amd64").has_nconnect());
        assert!(kernel("5.3.0").has_nconnect());
        assert!(!kernel("5.2.21").has_nconnect());
        assert!(kernel("4.18.0-553.el8_10.x86_64").has_nconnect());
        assert!(!kernel("4.18.0-193.el8.x86_64").has_nconnect());
        assert!(!kernel("3.10.0-1160.el7.x86_64").has_nconnect());
        assert!(!kernel("").has_nconnect());
    }

    #[test]
    fn servers_of_what_is_mounted() {
        assert_eq!(server_of("10.0.0.1:/vol"), "10.0.0.1");
        assert_eq!(server_of("[fd00::1]:/vol"), "fd00::1");
        assert_eq!(server_of("//nas/share/sub"), "nas");
    }
}
