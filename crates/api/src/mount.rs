//! The mount command that clients of a volume get.
//!
//! The options are the ones that the tuning documents ask for: hard mounts, 1 MiB transfers,
//! sixteen connections. What the kernel would choose anyway is left out, so that the line stays one
//! that people read.

use crate::json::Object;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use weir_control::{Protocol, Volume};

/// Addresses that clients mount from.
#[derive(Clone, Copy, Debug)]
pub struct Mounts {
    /// The address of all protocols, and NFS's port.
    pub nfs: SocketAddr,
    /// SMB's port; `None`: it is not served.
    pub smb: Option<u16>,
    /// True when rpcbind knows the lock manager: clients of NFSv3 need no port options, and can
    /// lock.
    pub registered: bool,
}

impl Mounts {
    /// Returns the address of NFS; SMB is served at the same one.
    pub fn ip(&self) -> IpAddr {
        self.nfs.ip()
    }
}

/// NFS's registered port: with another one, the mount line has to name it, as there is no
/// portmapper to ask.
const NFS_PORT: u16 = 2049;
/// SMB's.
const SMB_PORT: u16 = 445;

/// Returns an address as it is written before the colon of an export.
fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(a) => a.to_string(),
        IpAddr::V6(a) => format!("[{a}]"),
    }
}

/// Returns `mountOptions` of a volume without addresses, one for each of its protocols; [`reach`]
/// completes them.
pub fn exports(v: &Volume) -> Value {
    let all = v.protocols.iter().filter_map(|protocol| {
        let export = match protocol {
            Protocol::Nfsv3 | Protocol::Nfsv4 => format!("/{}", v.path()),
            Protocol::Smb => format!("\\{}", v.smb_share()?),
        };
        Some(json!({"export": export, "protocol": protocol.as_str()}))
    });
    Value::Array(all.collect())
}

/// Completes a resource in normal form with the address at which its reader reaches this server. It
/// is in `mountOptions`, of the protocols that are served, and in the addresses of `networks`,
/// except of an instance with an address of its own.
pub fn reach(resource: &mut Object, at: Mounts) {
    let share = resource.get("shareName").and_then(Value::as_str);
    let share = share.unwrap_or_default().to_owned();
    if let Some(Value::Array(options)) = resource.get_mut("mountOptions") {
        let reached = options.iter().filter_map(|o| reach_export(o, &share, at));
        *options = reached.collect();
    }
    if let Some(Value::Array(networks)) = resource.get_mut("networks") {
        for network in networks.iter_mut().filter_map(Value::as_object_mut) {
            if own_address(network).is_none() {
                network.insert("ipAddresses".to_owned(), json!([at.ip().to_string()]));
            }
        }
    }
}

/// Returns the address that is an instance's own, if it has one. Operations of earlier versions
/// were stored with the unspecified address where the reader's belongs.
fn own_address(network: &Object) -> Option<IpAddr> {
    let address = network.get("ipAddresses")?.get(0)?.as_str()?;
    let address: IpAddr = address.parse().ok()?;
    (!address.is_unspecified()).then_some(address)
}

/// Returns an option of [`exports`] with its address; `None` if its protocol is not served.
fn reach_export(option: &Value, share_name: &str, at: Mounts) -> Option<Value> {
    let address = at.ip();
    let text = |name: &str| option.get(name).and_then(Value::as_str);
    let (export, protocol) = (text("export")?, Protocol::from_name(text("protocol")?)?);
    let (full, instructions) = match protocol {
        Protocol::Nfsv3 | Protocol::Nfsv4 => {
            let (ip, path) = (host(address), export.trim_start_matches('/'));
            let line = command(protocol, &ip, at, path, share_name);
            (format!("{ip}:{export}"), line)
        }
        Protocol::Smb => {
            let (port, share) = (at.smb?, export.trim_start_matches('\\'));
            let lines = smb_commands(&address.to_string(), port, share);
            (format!("\\\\{address}{export}"), lines)
        }
    };
    Some(json!({
        "export": export,
        "exportFull": full,
        "protocol": protocol.as_str(),
        "ipAddress": address.to_string(),
        "instructions": instructions,
    }))
}

/// Returns the commands for Linux, and for Windows (of which 11 24H2 and later take another port
/// than 445).
fn smb_commands(ip: &str, port: u16, share: &str) -> String {
    let (linux, windows) = match port {
        SMB_PORT => (String::new(), String::new()),
        port => (format!(",port={port}"), format!(" /tcpport:{port}")),
    };
    format!(
        "sudo mkdir -p /mnt/{share}\nsudo mount -t cifs -o vers=3.1.1{linux},username=USER //{ip}/{share} /mnt/{share}\nnet use Z: \\\\{ip}\\{share} /user:USER{windows}"
    )
}

fn command(protocol: Protocol, ip: &str, at: Mounts, path: &str, share: &str) -> String {
    let folder = format!("/mnt/{share}");
    let line = nfs_command(protocol, ip, at, path, &folder);
    format!("sudo mkdir -p {folder}\n{line}")
}

/// Returns the command that mounts an export of this server on Linux over one version of NFS.
pub fn nfs_command(protocol: Protocol, host: &str, at: Mounts, path: &str, folder: &str) -> String {
    let port = at.nfs.port();
    let (version, own) = match (protocol, port) {
        (Protocol::Nfsv4, NFS_PORT) => ("4.2", String::new()),
        (Protocol::Nfsv4, port) => ("4.2", format!(",port={port}")),
        (_, NFS_PORT) if at.registered => ("3", String::new()),
        (_, port) => {
            let lock = if at.registered { "" } else { ",nolock" };
            let own = format!(",port={port},mountport={port},mountproto=tcp{lock}");
            ("3", own)
        }
    };
    format!(
        "sudo mount -t nfs -o vers={version},proto=tcp,hard,timeo=600,retrans=3,rsize=1048576,wsize=1048576,nconnect=16{own} {host}:/{path} {folder}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations of earlier versions were stored with an address; it gives way to the reader's.
    #[test]
    fn a_stored_address_gives_way_to_the_readers() {
        let at = Mounts {
            nfs: "[fd00::1]:2049".parse().unwrap(),
            smb: Some(445),
            registered: false,
        };
        let stored = json!({
            "shareName": "a",
            "description": "0.0.0.0",
            "mountOptions": [
                {"export": "/data/a", "exportFull": "0.0.0.0:/data/a", "protocol": "NFSV3",
                 "ipAddress": "0.0.0.0", "instructions": "mount 0.0.0.0:/data/a"},
                {"export": "\\a$", "protocol": "SMB"},
            ],
            "networks": [{"reservedIpRange": "10.0.0.0/29", "ipAddresses": ["0.0.0.0"]}],
        });
        let mut object = stored.as_object().unwrap().clone();
        reach(&mut object, at);
        let (nfs, smb) = (&object["mountOptions"][0], &object["mountOptions"][1]);
        assert_eq!(nfs["exportFull"], "[fd00::1]:/data/a");
        let line = nfs["instructions"].as_str().unwrap();
        assert!(line.ends_with("[fd00::1]:/data/a /mnt/a"), "{line}");
        assert_eq!(smb["exportFull"], "\\\\fd00::1\\a$");
        let network = json!([{"reservedIpRange": "10.0.0.0/29", "ipAddresses": ["fd00::1"]}]);
        assert_eq!(object["networks"], network);
        let own = json!([{"ipAddresses": ["10.9.0.1"]}]);
        object.insert("networks".to_owned(), own.clone());
        reach(&mut object, at);
        assert_eq!(object["networks"], own);
        assert_eq!(object["description"], "0.0.0.0");
    }

    #[test]
    fn another_port_than_the_usual_one_is_said() {
        let usual = smb_commands("10.0.0.1", SMB_PORT, "share");
        assert!(!usual.contains("port"), "{usual}");
        assert!(
            usual.ends_with("net use Z: \\\\10.0.0.1\\share /user:USER"),
            "{usual}"
        );
        let other = smb_commands("10.0.0.1", 4450, "share");
        assert!(
            other.contains("vers=3.1.1,port=4450,username=USER //10.0.0.1/share"),
            "{other}"
        );
        assert!(other.ends_with("/tcpport:4450"), "{other}");
    }

    fn make_mounts(port: u16, registered: bool) -> Mounts {
        Mounts {
            nfs: SocketAddr::from(([10, 0, 0, 1], port)),
            smb: None,
            registered,
        }
    }

    /// Without a registration a client finds neither ports nor the lock manager.
    #[test]
    fn the_line_fits_the_servers_registration() {
        let options = |protocol, at| {
            let line = nfs_command(protocol, "h", at, "v", "/mnt/v");
            let (_, rest) = line.split_once("nconnect=16").unwrap();
            rest.split(' ').next().unwrap().to_owned()
        };
        let (v3, v4) = (Protocol::Nfsv3, Protocol::Nfsv4);
        let ports = ",port=2049,mountport=2049,mountproto=tcp,nolock";
        assert_eq!(options(v3, make_mounts(NFS_PORT, false)), ports);
        assert_eq!(options(v3, make_mounts(NFS_PORT, true)), "");
        let ports = ",port=9,mountport=9,mountproto=tcp";
        assert_eq!(options(v3, make_mounts(9, true)), ports);
        assert_eq!(
            options(v3, make_mounts(9, false)),
            format!("{ports},nolock")
        );
        assert_eq!(options(v4, make_mounts(NFS_PORT, false)), "");
        assert_eq!(options(v4, make_mounts(9, false)), ",port=9");
    }

    /// The rows of the tuning documents that are about mounting (document, key, value), as the line
    /// for clients has them.
    #[test]
    fn the_documents_values_are_in_the_line() {
        let line = command(
            Protocol::Nfsv3,
            "10.0.0.1",
            make_mounts(NFS_PORT, true),
            "share",
            "share",
        );
        let options = line
            .split_once(" -o ")
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap();
        for (document, key, value) in [
            ("000", "nconnect", 16),
            ("001", "timeo", 600),
            ("001", "retrans", 3),
            ("001", "rsize", 1_048_576),
            ("001", "wsize", 1_048_576),
        ] {
            let wanted = format!("{key}={value}");
            assert!(
                options.split(',').any(|option| option == wanted),
                "document {document}, {key}: {options}"
            );
        }
        assert!(options.split(',').any(|option| option == "hard"));
    }
}
