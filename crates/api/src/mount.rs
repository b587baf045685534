//! The mount command that clients of a volume get.
//!
//! The options are the ones that the tuning documents ask for: hard mounts, 1 MiB transfers, sixteen connections. What
//! the kernel would choose anyway is left out, so that the line stays one that people read.

use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use weir_control::{Protocol, Volume};

/// NFS's registered port: with another one, the mount line has to name it, as there is no portmapper to ask.
const NFS_PORT: u16 = 2049;

/// An address as it is written before the colon of an export.
pub fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(a) => a.to_string(),
        IpAddr::V6(a) => format!("[{a}]"),
    }
}

/// `mountOptions` of a volume: of the protocols that are served, whatever the volume was made with.
pub fn options(v: &Volume, nfs: SocketAddr) -> Value {
    let ip = host(nfs.ip());
    let path = v.path();
    let served = |p: &&Protocol| matches!(p, Protocol::Nfsv3 | Protocol::Nfsv4);
    let served = v.protocols.iter().filter(served);
    let all = served.map(|p| {
        json!({
            "export": format!("/{path}"),
            "exportFull": format!("{ip}:/{path}"),
            "protocol": p.as_str(),
            "ipAddress": nfs.ip().to_string(),
            "instructions": command(*p, &ip, nfs.port(), path, &v.share_name),
        })
    });
    Value::Array(all.collect())
}

fn command(protocol: Protocol, ip: &str, port: u16, path: &str, share: &str) -> String {
    let (version, ports) = match (protocol, port) {
        (Protocol::Nfsv4, NFS_PORT) => ("4.2", String::new()),
        (Protocol::Nfsv4, port) => ("4.2", format!(",port={port}")),
        (_, NFS_PORT) => ("3", String::new()),
        (_, port) => ("3", format!(",port={port},mountport={port}")),
    };
    format!(
        "sudo mkdir -p /mnt/{share}\nsudo mount -t nfs -o vers={version},proto=tcp,hard,timeo=600,retrans=3,rsize=1048576,wsize=1048576,nconnect=16{ports} {ip}:/{path} /mnt/{share}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the tuning documents that are about mounting (document, key, value), as the line for clients has
    /// them.
    #[test]
    fn the_documents_values_are_in_the_line() {
        let line = command(Protocol::Nfsv3, "10.0.0.1", NFS_PORT, "share", "share");
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
