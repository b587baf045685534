//! Targets of measurements: an NFS export or an SMB share through the own generators, or a path or
//! block device through fio.

use super::units::Size;
use crate::args::{Pattern, RunArgs, SessionArgs, Version};
use crate::control::{Control, rpcbind_port};
use crate::error::BenchError;
use crate::nfs3::{Fsinfo, Handle, MOUNT_PROGRAM, Proc};
use crate::nfs4::{Client, client};
use crate::rpc::Credential;
use crate::run::{resolve, resolve_all};
use crate::smb::crypto::{Cipher, Signing};
use crate::smb::{self, Protection, SmbArgs, SmbLoad};
use clap::ValueEnum as _;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// User that mounts.
const ROOT: Credential = Credential { uid: 0, gid: 0 };

/// The registered port of NFS.
const NFS_PORT: u16 = 2049;
const RPCBIND_PORT: u16 = 111;
/// The registered port of SMB.
const SMB_PORT: u16 = 445;
/// Longest wait for a server that is only asked whether it is one.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A target with its name.
#[derive(Debug, Clone)]
pub struct Target {
    /// Name in the results: given as `NAME=TARGET`, or the target itself.
    pub label: String,
    /// The target as given on the command line.
    pub given: String,
    /// Kind of the target, and its place.
    pub place: TargetKind,
}

/// Kind of a target.
#[derive(Debug, Clone)]
pub enum TargetKind {
    /// An export of an NFS server.
    Nfs(Nfs),
    /// A share of an SMB server.
    Smb(Box<Smb>),
    /// A directory, a mount of anything.
    Directory(PathBuf),
    /// A block device, by its path.
    Device(PathBuf),
}

/// An export of an NFS server.
#[derive(Debug, Clone)]
pub struct Nfs {
    /// NFSv3, or NFSv4 with its minor version and slots.
    pub version: Version,
    /// HOST:PORT of the NFS service; several with commas between them.
    pub servers: String,
    /// The first address that each host resolves to, one at least.
    pub addresses: Vec<SocketAddr>,
    /// Port of the MOUNT service (NFSv3) at the first address.
    pub mount_port: u16,
    /// Path of the export.
    pub export: String,
    /// The server's limits.
    pub fsinfo: Fsinfo,
    /// Bytes free for us.
    pub free: Size,
}

/// A share of an SMB server, and who logs on to it.
#[derive(Debug, Clone)]
pub struct Smb {
    /// HOST:PORT.
    pub server: String,
    /// The first address that the host resolves to.
    pub address: SocketAddr,
    /// Name of the share.
    pub share: String,
    /// Name of the user.
    pub user: String,
    /// File whose first line is the user's password.
    pub password_file: PathBuf,
    /// Protection of messages.
    pub protection: Protection,
    /// Signing algorithm.
    pub signing: Signing,
    /// Cipher.
    pub cipher: Cipher,
    /// Bytes that the server moves a request.
    pub most: u32,
}

impl Target {
    /// Recognises a target, and asks it whether it is what it seems to be. `version`: of an export
    /// that names none.
    pub fn find(given: &str, version: Version) -> Result<Self, BenchError> {
        let (label, text) = match given.split_once('=') {
            Some((l, rest)) if !l.is_empty() && l.chars().all(is_label) => (l, rest),
            _ => (given, given),
        };
        let place = if let Some(rest) = text.strip_prefix("nfs://") {
            TargetKind::Nfs(Nfs::find(text, rest, version)?)
        } else if let Some(rest) = text.strip_prefix("smb://") {
            TargetKind::Smb(Box::new(Smb::find(text, rest)?))
        } else {
            let none = |e| BenchError::Usage(format!("target {text}: {e}"));
            let meta = fs::metadata(text).map_err(none)?;
            // fio runs in a folder of its own, and hosts in theirs.
            let path = std::path::absolute(text).map_err(none)?;
            if meta.is_dir() {
                TargetKind::Directory(path)
            } else if meta.file_type().is_block_device() {
                TargetKind::Device(path)
            } else {
                return Err(BenchError::Usage(format!(
                    "target {text}: neither a directory, nor a block device, nor nfs://HOST/EXPORT, nor smb://USER@HOST/SHARE"
                )));
            }
        };
        Ok(Self {
            label: label.to_owned(),
            given: given.to_owned(),
            place,
        })
    }

    /// Bytes free for the working set; `None` when unknown.
    pub fn free(&self) -> Option<Size> {
        match &self.place {
            TargetKind::Nfs(n) => Some(n.free),
            TargetKind::Directory(p) => free_space(p),
            TargetKind::Smb(_) | TargetKind::Device(_) => None,
        }
    }

    /// Returns true if the server is on this machine as well; `None` when unknown.
    pub fn local(&self) -> Option<bool> {
        match &self.place {
            TargetKind::Nfs(n) => Some(n.is_local()),
            TargetKind::Smb(s) => Some(s.address.ip().is_loopback()),
            TargetKind::Directory(p) => mount_of(p).map(|m| !is_network(&m.kind)),
            TargetKind::Device(_) => Some(true),
        }
    }

    /// Number of addresses that clients are spread over.
    pub fn address_count(&self) -> u32 {
        match &self.place {
            TargetKind::Nfs(n) => n.addresses.len() as u32,
            _ => 1,
        }
    }

    /// The protocol, or the file system.
    pub fn protocol(&self) -> String {
        match &self.place {
            TargetKind::Nfs(n) => n.version.to_string(),
            TargetKind::Smb(s) => format!("SMB 3.1.1, {}", s.protected()),
            TargetKind::Directory(p) => mount_of(p).map_or_else(|| "path".into(), |m| m.protocol()),
            TargetKind::Device(_) => "block device".into(),
        }
    }

    /// Returns true if the data has caches other than this machine's, which cannot be made cold
    /// from here.
    pub fn caches_elsewhere(&self) -> bool {
        match &self.place {
            TargetKind::Nfs(_) | TargetKind::Smb(_) => true,
            TargetKind::Directory(_) => self.local() != Some(true),
            TargetKind::Device(_) => false,
        }
    }

    /// Facts worth keeping with the results.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut note = |k: &str, v: String| {
            facts.insert(k.to_owned(), v);
        };
        match &self.place {
            TargetKind::Nfs(n) => {
                let addresses = n.addresses.iter().map(SocketAddr::to_string);
                note("server", addresses.collect::<Vec<_>>().join(", "));
                note("export", n.export.clone());
                note("rtmax", Size(n.fsinfo.rtmax.into()).to_string());
                note("wtmax", Size(n.fsinfo.wtmax.into()).to_string());
                note("free", n.free.to_string());
            }
            TargetKind::Smb(s) => {
                note("server", s.address.to_string());
                note("share", s.share.clone());
                note("protection", s.protected());
                note("bytes a request", Size(s.most.into()).to_string());
            }
            TargetKind::Directory(p) => {
                if let Some(m) = mount_of(p) {
                    note("mounted from", m.source);
                    note("mount options", m.options);
                }
                if let Some(free) = free_space(p) {
                    note("free", free.to_string());
                }
            }
            TargetKind::Device(p) => note("device", p.display().to_string()),
        }
        facts
    }
}

/// Splits at the first slash, which belongs to what is behind it; there is something.
fn host_and_path(place: &str) -> Option<(&str, &str)> {
    let at = place.find('/')?;
    Some(place.split_at(at)).filter(|(_, path)| path.len() > 1)
}

fn host_and_port(host: &str) -> Result<(&str, Option<u16>), &'static str> {
    match host.rsplit_once(':') {
        Some((h, p)) if !h.ends_with(':') && !p.ends_with(']') => {
            let port = p.parse().map_err(|_| "the port is no number below 65536")?;
            Ok((h, Some(port)))
        }
        _ => Ok((host, None)),
    }
}

fn is_label(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ')
}

impl Nfs {
    /// Reads `HOST[:PORT][,HOST[:PORT]]…/EXPORT[?nfsport=N&mountport=N&version=V&slots=N]`
    /// (libnfs's form, with several hosts and slots), connects, mounts, and asks for the limits.
    fn find(url: &str, rest: &str, mut version: Version) -> Result<Self, BenchError> {
        let bad = |what: &str| BenchError::Usage(format!("target {url}: {what}"));
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, export) = host_and_path(place)
            .ok_or_else(|| bad("nfs://HOST[:PORT][,HOST[:PORT]]…/EXPORT is expected"))?;
        let mut port = None;
        let mut mount_port = None;
        let mut slots = None;
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = || {
                value
                    .parse::<u16>()
                    .map_err(|_| bad(&format!("{key} is no number below 65536")))
            };
            match key {
                "nfsport" => port = Some(number()?),
                "mountport" => mount_port = Some(number()?),
                "version" => version = Version::parse(value).map_err(|e| bad(&e))?,
                "slots" => slots = Some(u32::from(number()?).clamp(1, client::MAX_SLOTS)),
                other => return Err(bad(&format!("unknown parameter {other:?}"))),
            }
        }
        let servers = servers_of(hosts, port.unwrap_or(NFS_PORT)).map_err(|e| bad(&e))?;
        let addresses = resolve_all(&servers)?;
        let Some(&address) = addresses.first() else {
            return Err(bad("no host"));
        };
        let fails = |e: BenchError| {
            BenchError::Usage(format!(
                "target {url}: {address} does not answer like an NFS server: {e}"
            ))
        };
        let xid = (crate::clock::now_ns() >> 8) as u32;
        let mut control =
            Control::connect(address, Some(&ROOT), xid, PROBE_TIMEOUT).map_err(fails)?;
        version = version.with_slots(slots);
        let (mount_port, fsinfo, free) = match version {
            Version::V3 => {
                control.null().map_err(fails)?;
                let (mount_port, root) = mounted(url, address, mount_port, export, xid ^ 0x5a5a)?;
                for other in addresses.iter().skip(1) {
                    same_file_system(*other, &root, xid).map_err(|e| {
                        bad(&format!(
                            "{other} does not serve what {address} serves: {e}"
                        ))
                    })?;
                }
                let fsinfo = control.fsinfo(&root).map_err(fails)?;
                (mount_port, fsinfo, control.fsstat(&root).map_err(fails)?)
            }
            Version::V4(v4) => {
                let (fsinfo, free) = limits_of(&mut control, &ROOT, v4, export).map_err(fails)?;
                (address.port(), fsinfo, free)
            }
        };
        Ok(Self {
            version,
            servers,
            addresses,
            mount_port,
            export: export.to_owned(),
            fsinfo,
            free: Size(free),
        })
    }

    /// Fails if the server does not reply any more at one of its addresses.
    pub fn answers(&self) -> Result<(), BenchError> {
        let xid = (crate::clock::now_ns() >> 8) as u32;
        for address in &self.addresses {
            let mut control = Control::connect(*address, Some(&ROOT), xid, PROBE_TIMEOUT)?;
            match self.version {
                Version::V3 => control.null()?,
                Version::V4(_) => client::null(&mut control, &ROOT)?,
            }
        }
        Ok(())
    }

    /// Returns true if all addresses are of this machine.
    pub fn is_local(&self) -> bool {
        self.addresses.iter().all(|a| a.ip().is_loopback())
    }
}

/// Returns the hosts of a list, each with its port or the given one, as `HOST:PORT,…`.
fn servers_of(hosts: &str, port: u16) -> Result<String, String> {
    let mut servers: Vec<String> = Vec::new();
    for host in hosts.split(',') {
        let (name, own) = host_and_port(host)?;
        if name.is_empty() {
            return Err("a host is missing".into());
        }
        let server = format!("{name}:{}", own.unwrap_or(port));
        if servers.contains(&server) {
            return Err(format!("{server} is named twice"));
        }
        servers.push(server);
    }
    Ok(servers.join(","))
}

/// Asks another address for the attributes of an export's root, by the handle that the first
/// address gave out: handles of one are used at all.
fn same_file_system(address: SocketAddr, root: &Handle, xid: u32) -> Result<(), BenchError> {
    let mut control = Control::connect(address, Some(&ROOT), xid, PROBE_TIMEOUT)?;
    let wire = control.wire();
    control
        .one(
            "GETATTR of the export's root",
            |c, out, id| c.of_handle(out, id, Proc::Getattr, root),
            |r| wire.got_attributes(r),
        )
        .map(|_| ())
}

/// Mounts an NFSv3 export; returns the port of MOUNT and the root. `port` is that port, if known.
fn mounted(
    url: &str,
    address: SocketAddr,
    port: Option<u16>,
    export: &str,
    xid: u32,
) -> Result<(u16, Handle), BenchError> {
    let candidates: Vec<u16> = match port {
        Some(p) => vec![p],
        // Weir serves MOUNT where it serves NFS; others register with rpcbind.
        None => {
            let mut rpcbind = address;
            rpcbind.set_port(RPCBIND_PORT);
            std::iter::once(address.port())
                .chain(rpcbind_port(rpcbind, MOUNT_PROGRAM, PROBE_TIMEOUT).ok())
                .collect()
        }
    };
    let mut last = None;
    for mount_port in candidates {
        let mut at = address;
        at.set_port(mount_port);
        let root = Control::connect(at, Some(&ROOT), xid, PROBE_TIMEOUT)
            .and_then(|mut c| c.mount(export, Some(&ROOT)));
        match root {
            Ok(root) => return Ok((mount_port, root)),
            Err(e) => last = Some(e),
        }
    }
    Err(BenchError::Usage(match last {
        Some(e @ BenchError::Status(..)) => {
            format!("target {url}: the server does not let {export} be mounted: {e}")
        }
        Some(e) => {
            format!("target {url}: the MOUNT service does not answer: {e} (give mountport=N)")
        }
        None => format!("target {url}: no MOUNT service"),
    }))
}

impl Smb {
    /// Reads `USER@HOST[:PORT]/SHARE?password-file=FILE[&protection=P&signing=S&cipher=C]`, with
    /// the words of `weir bench smb`, and logs on.
    fn find(url: &str, rest: &str) -> Result<Self, BenchError> {
        const FORM: &str = "smb://USER@HOST[:PORT]/SHARE?password-file=FILE is expected";
        let bad = |what: &str| BenchError::Usage(format!("target {url}: {what}"));
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, place) = place.split_once('@').ok_or_else(|| bad(FORM))?;
        let (host, share) = host_and_path(place).ok_or_else(|| bad(FORM))?;
        let (host, port) = host_and_port(host).map_err(bad)?;
        let server = format!("{host}:{}", port.unwrap_or(SMB_PORT));
        let mut found = Self {
            address: resolve(&server)?,
            server,
            share: share.trim_start_matches('/').to_owned(),
            user: user.to_owned(),
            password_file: PathBuf::new(),
            protection: Protection::Sign,
            signing: Signing::Gmac,
            cipher: Cipher::Aes128Gcm,
            most: 0,
        };
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "password-file" => found.password_file = value.into(),
                "protection" => found.protection = word(key, value).map_err(|e| bad(&e))?,
                "signing" => found.signing = word(key, value).map_err(|e| bad(&e))?,
                "cipher" => found.cipher = word(key, value).map_err(|e| bad(&e))?,
                other => return Err(bad(&format!("unknown parameter {other:?}"))),
            }
        }
        if found.password_file.as_os_str().is_empty() {
            return Err(bad(FORM));
        }
        let most = smb::probe(&found.arguments());
        found.most = most.map_err(|e| {
            let address = found.address;
            BenchError::Usage(format!(
                "target {url}: {address} does not let {user} use the share: {e}"
            ))
        })?;
        Ok(found)
    }

    /// Returns the protection of messages, in a word or two.
    fn protected(&self) -> String {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        match self.protection {
            Protection::None => "not protected".to_owned(),
            Protection::Sign => format!("signed by {}", name(self.signing.to_possible_value())),
            Protection::Encrypt => {
                format!("encrypted by {}", name(self.cipher.to_possible_value()))
            }
        }
    }

    /// The settings that name the share, for one connection; the rest are defaults.
    pub fn arguments(&self) -> SmbArgs {
        SmbArgs {
            load: SmbLoad::Read,
            server: self.server.clone(),
            share: self.share.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            protection: self.protection,
            signing: self.signing,
            cipher: self.cipher,
            dir: String::new(),
            connections: 1,
            clients: 1,
            depth: 1,
            jobs: 1,
            block_size: 4096,
            size: 0,
            files: Some(1),
            dirs: 1,
            pattern: Pattern::Random,
            read_percent: 100,
            write_through: false,
            warmup: None,
            run: RunArgs::kept(1.0),
            server_pid: None,
            timeout: PROBE_TIMEOUT.as_secs_f64(),
            json: None,
            label: String::new(),
        }
    }
}

/// A parameter's value, of those that the option of this name has.
fn word<V: clap::ValueEnum>(key: &str, value: &str) -> Result<V, String> {
    V::from_str(value, false).map_err(|_| {
        let values = V::value_variants().iter();
        let names: Vec<String> = values
            .filter_map(|v| v.to_possible_value().map(|v| v.get_name().to_owned()))
            .collect();
        format!("{key} is {}", names.join(" or "))
    })
}

/// The limits and the free bytes of an export over NFSv4.
fn limits_of(
    control: &mut Control,
    cred: &Credential,
    v4: SessionArgs,
    export: &str,
) -> Result<(Fsinfo, u64), BenchError> {
    let (client, _) = Client::begin(control, cred, v4.minor, 4096, 0)?;
    let root = client::walk(control, export)?;
    let limits = (control.fsinfo(&root)?, control.fsstat(&root)?);
    client.end(control)?;
    Ok(limits)
}

/// A line of `/proc/self/mountinfo` (proc(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    point: String,
    kind: String,
    source: String,
    options: String,
}

impl Mount {
    fn protocol(&self) -> String {
        match self.kind.as_str() {
            "nfs" => "NFSv3".into(),
            "nfs4" => self
                .options
                .split(',')
                .find_map(|o| o.strip_prefix("vers="))
                .map_or_else(|| "NFSv4".into(), |v| format!("NFSv{v}")),
            "cifs" | "smb3" => "SMB".into(),
            other => other.to_owned(),
        }
    }
}

fn is_network(kind: &str) -> bool {
    matches!(
        kind,
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "fuse.sshfs"
    )
}

/// Returns true if a path is on a disk of this machine, as far as its mount says.
pub fn is_local(path: &Path) -> bool {
    mount_of(path).is_some_and(|m| !is_network(&m.kind) && m.source.starts_with("/dev/"))
}

/// The mount that a path is on.
pub fn mount_of(path: &Path) -> Option<Mount> {
    let path = fs::canonicalize(path).ok()?;
    find_mount(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

fn find_mount(table: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<Mount> = None;
    for line in table.lines() {
        let Some((front, back)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = front.split(' ').nth(4).map(unescape) else {
            continue;
        };
        let mut back = back.split(' ');
        let (Some(kind), Some(source)) = (back.next(), back.next()) else {
            continue;
        };
        let longer = best.as_ref().is_none_or(|b| point.len() >= b.point.len());
        if path.starts_with(&point) && longer {
            best = Some(Mount {
                kind: kind.to_owned(),
                source: unescape(source),
                options: back.next().unwrap_or("").to_owned(),
                point,
            });
        }
    }
    best
}

/// Spaces, tabs and backslashes come as octal numbers in mountinfo.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

fn free_space(path: &Path) -> Option<Size> {
    let s = rustix::fs::statvfs(path).ok()?;
    Some(Size(s.f_bavail.saturating_mul(s.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_path_is_the_longest_and_last_that_holds_it() {
        let table = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
30 22 0:45 / /mnt\\040a rw - nfs server:/vol1 rw,vers=3,nconnect=16\n\
31 22 0:46 / /mnt rw - cifs //s/share rw,vers=3.1.1\n\
32 31 0:47 / /mnt/v4 rw - nfs4 server:/vol2 rw,vers=4.1\n\
33 22 0:48 / /mnt rw - tmpfs tmpfs rw\n";
        let at = |p: &str| find_mount(table, Path::new(p)).unwrap();
        assert_eq!(at("/usr/bin").kind, "ext4");
        assert_eq!(at("/mnt a/x").protocol(), "NFSv3");
        assert_eq!(at("/mnt a/x").options, "rw,vers=3,nconnect=16");
        assert_eq!(at("/mnt/v4").protocol(), "NFSv4.1");
        assert_eq!(
            at("/mnt/v4x").kind,
            "tmpfs",
            "the later mount hides the earlier"
        );
        assert_eq!(find_mount("nonsense\n\n", Path::new("/")), None);
    }

    #[test]
    fn targets_that_are_none_are_refused_in_words() {
        for (given, expected) in [
            (
                "nfs://host",
                "nfs://HOST[:PORT][,HOST[:PORT]]…/EXPORT is expected",
            ),
            ("nfs://host/", "is expected"),
            ("nfs://127.0.0.1:http/x", "no number"),
            ("nfs://127.0.0.1,/x", "a host is missing"),
            (
                "nfs://10.0.0.1,10.0.0.1:2049/x",
                "10.0.0.1:2049 is named twice",
            ),
            ("nfs://127.0.0.1/x?version=5", "3, 4.1 or 4.2"),
            ("nfs://127.0.0.1/x?color=red", "unknown parameter \"color\""),
            (
                "nfs://127.0.0.1/x?nfsport=1",
                "does not answer like an NFS server",
            ),
            ("/does/not/exist", "No such file"),
            ("NAME=/dev/null", "neither a directory"),
            (
                "smb://127.0.0.1/vol1",
                "smb://USER@HOST[:PORT]/SHARE?password-file=FILE",
            ),
            ("smb://me@127.0.0.1?password-file=x", "is expected"),
            ("smb://me@127.0.0.1/vol1", "password-file=FILE is expected"),
            ("smb://me@127.0.0.1:smb/vol1", "no number"),
            (
                "smb://me@127.0.0.1/vol1?protection=strong",
                "none or sign or encrypt",
            ),
            (
                "smb://me@127.0.0.1/vol1?signing=md5",
                "hmac or cmac or gmac",
            ),
            (
                "smb://me@127.0.0.1/vol1?sign=1",
                "unknown parameter \"sign\"",
            ),
            (
                "smb://me@127.0.0.1:1/vol1?password-file=Cargo.toml",
                "does not let me use the share",
            ),
        ] {
            let error = Target::find(given, Version::V3).unwrap_err().to_string();
            assert!(error.contains(expected), "{given}: {error}");
        }
        let t = Target::find("Local disk=/", Version::V3).unwrap();
        assert_eq!(t.label, "Local disk");
        assert!(matches!(t.place, TargetKind::Directory(_)));
        assert!(t.free().unwrap() > Size(0));
        // Relative to where we are, not to where fio is started.
        let here = Target::find("src", Version::V3).unwrap();
        assert!(
            matches!(here.place, TargetKind::Directory(p) if p.is_absolute() && p.ends_with("src"))
        );
    }
}
