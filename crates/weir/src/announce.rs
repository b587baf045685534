//! What the server prints when it is ready: lines to copy.

use std::fmt::Write;
use std::net::SocketAddr;

/// Connections that a Linux client should open (its most).
const NCONNECT: u32 = 16;

/// The port that clients take where none is named.
const NFS_PORT: u16 = 2049;

/// Exports to print commands for. A list of ten thousand volumes would scroll everything else away.
const LISTED: usize = 10;

/// Facts about a server that is ready.
pub struct Ready<'a> {
    /// Address that it listens on.
    pub address: SocketAddr,
    /// Where the API is, if it is served.
    pub api: Option<&'a str>,
    /// Where SMB is served, if it is.
    pub smb: Option<SocketAddr>,
    /// Paths of its exports.
    pub exports: &'a [String],
    /// True when the machine's rpcbind knows its lock manager, so that clients can lock.
    pub locks: bool,
}

/// How clients name the host of an address.
fn host_of(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => "THIS-HOST".to_owned(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    }
}

impl Ready<'_> {
    /// The text to print.
    pub fn text(&self) -> String {
        let host = host_of(self.address);
        let port = self.address.port();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "listening on {}", self.address);
        if let Some(api) = self.api {
            let _ = writeln!(text, "API on {api}");
        }
        if let Some(smb) = self.smb {
            let _ = writeln!(text, "SMB on {smb} (users: `weir users create NAME`)");
        }
        for export in self.exports.iter().take(LISTED) {
            let _ = writeln!(text, "\n{export}");
            let _ = writeln!(
                text,
                "  Linux:   sudo mount -t nfs -o {} {host}:{export} /mnt",
                self.options()
            );
            let port4 = match port {
                NFS_PORT => String::new(),
                port => format!("-o port={port} "),
            };
            let _ = writeln!(
                text,
                "  NFSv4:   sudo mount -t nfs4 {port4}{host}:{export} /mnt"
            );
            let _ = writeln!(
                text,
                "  libnfs:  nfs://{host}{export}?version=3&nfsport={port}&mountport={port}"
            );
            if let Some(smb) = self.smb {
                let (host, port) = (host_of(smb), smb.port());
                let _ = writeln!(
                    text,
                    "  SMB:     sudo mount -t cifs -o vers=3.1.1,port={port},username=NAME //{host}{export} /mnt"
                );
            }
        }
        if let Some(more @ 1..) = self.exports.len().checked_sub(LISTED) {
            let _ = writeln!(
                text,
                "\n… and {more} more (`weir volumes list`, `weir volumes mount-help VOLUME`)"
            );
        }
        text
    }

    /// The mount options for Linux.
    fn options(&self) -> String {
        let port = self.address.port();
        let nolock = if self.locks { "" } else { ",nolock" };
        format!(
            "vers=3,tcp,port={port},mountport={port},mountproto=tcp,nconnect={NCONNECT},hard{nolock}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_complete_commands() {
        let exports = ["/vol1".to_owned()];
        let ready = |address: &str, locks| {
            Ready {
                address: address.parse().unwrap(),
                api: Some("http://127.0.0.1:8049"),
                smb: Some("127.0.0.1:4450".parse().unwrap()),
                exports: &exports,
                locks,
            }
            .text()
        };
        let text = ready("127.0.0.1:2049", false);
        assert!(text.starts_with("listening on 127.0.0.1:2049\nAPI on http://127.0.0.1:8049\n"));
        assert!(text.contains(
            "sudo mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,mountproto=tcp,nconnect=16,hard,nolock 127.0.0.1:/vol1 /mnt\n"
        ));
        assert!(text.contains("sudo mount -t nfs4 127.0.0.1:/vol1 /mnt\n"));
        assert!(ready("0.0.0.0:9", true).contains("mount -t nfs4 -o port=9 THIS-HOST:/vol1"));
        assert!(text.contains("nfs://127.0.0.1/vol1?version=3&nfsport=2049&mountport=2049\n"));
        assert!(text.contains("\nSMB on 127.0.0.1:4450 "));
        assert!(text.contains(
            "sudo mount -t cifs -o vers=3.1.1,port=4450,username=NAME //127.0.0.1/vol1 /mnt\n"
        ));
        assert!(!ready("127.0.0.1:2049", true).contains("nolock"));
        assert!(ready("[::1]:2049", true).contains(" [::1]:/vol1 /mnt"));
        assert!(ready("0.0.0.0:9", true).contains(" THIS-HOST:/vol1 /mnt"));
    }

    #[test]
    fn the_list_is_bounded() {
        let exports: Vec<String> = (0..1000).map(|i| format!("/v{i}")).collect();
        let text = Ready {
            address: "127.0.0.1:2049".parse().unwrap(),
            api: None,
            smb: None,
            exports: &exports,
            locks: true,
        }
        .text();
        for line in ["sudo mount -t nfs4 ", "sudo mount -t nfs -o vers=3"] {
            assert_eq!(text.matches(line).count(), LISTED, "{line}");
        }
        assert!(text.contains("and 990 more"));
        assert!(!text.contains("API"));
    }
}
