//! Errors of addresses that cannot be listened at, with the process that holds the port.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Error, anyhow};

/// Characters of a command line that are shown.
const SHOWN: usize = 80;

/// A transport protocol: its tables in `/proc/net`, and the state of sockets that hold a port
/// there.
#[derive(Clone, Copy)]
pub struct Transport {
    tables: [&'static str; 2],
    state: &'static str,
}

/// Listening sockets of TCP.
pub const TCP: Transport = Transport {
    tables: ["/proc/net/tcp", "/proc/net/tcp6"],
    state: "0A",
};

/// Sockets of UDP that no peer is connected to.
pub const UDP: Transport = Transport {
    tables: ["/proc/net/udp", "/proc/net/udp6"],
    state: "07",
};

/// Returns the error of a server that cannot listen on a TCP address for `service`; `next` is the
/// next step.
pub fn refused(at: SocketAddr, service: &str, next: &str, error: &io::Error) -> Error {
    anyhow!(
        "cannot listen on {at} for {service}: {} ({next})",
        reason(at, TCP, error)
    )
}

/// Returns the reason for which an address cannot be bound, in words.
pub fn reason(at: SocketAddr, transport: Transport, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => match holder(at, transport) {
            Some(process) => format!("address in use by {process}"),
            None => "address in use by another process".to_owned(),
        },
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address".to_owned(),
        io::ErrorKind::PermissionDenied if at.port() < 1024 => {
            "ports below 1024 are for root and processes with CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns the process whose socket holds `at`, as number and command. Only root sees processes of
/// other users.
fn holder(at: SocketAddr, transport: Transport) -> Option<String> {
    let sockets: Vec<String> = transport
        .tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| {
            let rows = table.lines().skip(1);
            let held = rows.filter_map(|row| held(row, transport, at));
            held.collect::<Vec<_>>()
        })
        .collect();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    // Not `self` and its like.
    let numbered = |name: &str| name.bytes().all(|digit| digit.is_ascii_digit());
    let processes = processes.filter(|p| p.file_name().to_str().is_some_and(numbered));
    processes
        .filter(|process| {
            let files = fs::read_dir(process.path().join("fd"));
            let mut files = files.into_iter().flatten().filter_map(Result::ok);
            files.any(|file| {
                let target = fs::read_link(file.path()).unwrap_or_default();
                let socket = target.to_str().and_then(|t| t.strip_prefix("socket:["));
                let inode = socket.and_then(|rest| rest.strip_suffix(']'));
                inode.is_some_and(|inode| sockets.iter().any(|socket| socket == inode))
            })
        })
        .find_map(|process| {
            let id = process.file_name().into_string().ok()?;
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            Some(format!("process {id}{}", command(&line)))
        })
}

/// Returns the command of a process, in parentheses after a space; empty if it is not known.
fn command(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\0').replace(char::is_control, " ");
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    match shown.is_empty() {
        true => shown,
        false => format!(" ({shown})"),
    }
}

/// Returns the inode of the socket in a row of a table, if it keeps others from `at`.
fn held(row: &str, transport: Transport, at: SocketAddr) -> Option<String> {
    let columns: Vec<&str> = row.split_whitespace().collect();
    let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
    let (ip, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = address(ip)?;
    let meets = ip.is_unspecified() || at.ip().is_unspecified() || ip == at.ip().to_canonical();
    (port == at.port() && meets && *state == transport.state).then(|| (*inode).to_owned())
}

/// Parses an address of a table: words in the machine's byte order.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |n: usize| -> Option<[u8; 4]> {
        let digits = hex.get(n * 8..n * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (n, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(n)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    fn own() -> String {
        format!("process {} (", std::process::id())
    }

    #[test]
    fn the_process_that_holds_a_port_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        let any = SocketAddr::from(([0, 0, 0, 0], at.port()));
        for at in [at, any] {
            let error = TcpListener::bind(at).unwrap_err();
            let said = refused(at, "NFS", "pass --nfs ADDR:PORT", &error).to_string();
            let start = format!("cannot listen on {at} for NFS: address in use by {}", own());
            assert!(said.starts_with(&start), "{said}");
            assert!(said.ends_with(" (pass --nfs ADDR:PORT)"), "{said}");
        }
        let other = SocketAddr::from(([127, 0, 0, 2], at.port()));
        assert_eq!(holder(other, TCP), None);
        assert_eq!(holder(at, UDP), None);
        let taken = UdpSocket::bind("[::1]:0");
        if let Ok(at) = taken.as_ref().map(|taken| taken.local_addr().unwrap()) {
            assert!(holder(at, UDP).unwrap().starts_with(&own()));
        }
    }

    #[test]
    fn rows_are_read() {
        let row = "   0: 0100007F:0801 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0";
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        if cfg!(target_endian = "little") {
            assert_eq!(
                held(row, TCP, at("127.0.0.1:2049")).as_deref(),
                Some("4711")
            );
            assert_eq!(
                held(row, TCP, at("[::ffff:127.0.0.1]:2049")).as_deref(),
                Some("4711")
            );
        }
        for other in ["127.0.0.1:2050", "10.0.0.1:2049"] {
            assert_eq!(held(row, TCP, at(other)), None);
        }
        assert_eq!(held("sl local_address", TCP, at("127.0.0.1:2049")), None);
        assert_eq!(address("xy"), None);
    }

    #[test]
    fn commands_are_bounded_and_of_one_line() {
        assert_eq!(
            command(b"weir\0serve\0--data\0a\nb\0"),
            " (weir serve --data a b)"
        );
        assert_eq!(command(b""), "");
        let long = command(&[b'x'; 1000]);
        assert_eq!(long.chars().count(), SHOWN + 4);
    }
}
