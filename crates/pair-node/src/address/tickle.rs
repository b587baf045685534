//! Notification of clients that the node which had their connections is gone.
//!
//! A *tickle ACK* is a segment from the server's end of a connection with a sequence number that
//! fits nothing. A client whose connection is established replies with its own numbers (RFC 9293
//! §3.10.7.4). This node knows no such connection, so its kernel answers with a reset that carries
//! the number just received. The client accepts the reset, and connects again at once. Clustered
//! Samba (CTDB) ends connections in this way. If a client has meanwhile connected again from the
//! same port, both ends treat the segment as an old one, and it changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::Connection;

/// Bytes of a TCP header without options.
const SEGMENT: usize = 20;
/// TCP's protocol number, in the sum over the pseudo-header.
const TCP: u32 = 6;
/// The header's length in words, and the flag ACK.
const ACK: [u8; 2] = [5 << 4, 0x10];
const WINDOW: u16 = 1234;
const SUM_AT: usize = 16;

/// Checks that this process may send such segments.
///
/// # Errors
/// The process lacks the capability.
pub fn try_out(ip: IpAddr) -> io::Result<()> {
    open(ip).map(drop)
}

fn open(ip: IpAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(SocketAddr::new(ip, 0));
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
    // The socket is never read, and would get copies of all segments that arrive.
    socket.set_recv_buffer_size(0)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends a tickle ACK to each client. This node has the addresses already.
///
/// # Errors
/// The system's, for the last segment that failed; the others are sent.
pub fn tickle(connections: &[Connection]) -> io::Result<()> {
    let mut open_at: Option<(IpAddr, Socket)> = None;
    let mut failed = Ok(());
    for connection in connections {
        let from = connection.local.ip();
        if open_at.as_ref().is_none_or(|(at, _)| *at != from) {
            let socket = open(from)?;
            socket.bind(&SocketAddr::new(from, 0).into())?;
            open_at = Some((from, socket));
        }
        let Some((_, socket)) = &open_at else {
            continue;
        };
        let to = SocketAddr::new(connection.peer.ip(), 0);
        if let Err(error) = socket.send_to(&segment(connection), &to.into()) {
            failed = Err(error);
        }
    }
    failed
}

fn segment(connection: &Connection) -> [u8; SEGMENT] {
    let Connection { local, peer } = connection;
    let mut segment = [0; SEGMENT];
    let fields = [local.port().to_be_bytes(), peer.port().to_be_bytes()].concat();
    // Sequence and acknowledgement are 0.
    let rest = [&ACK[..], &WINDOW.to_be_bytes()].concat();
    segment[..4].copy_from_slice(&fields);
    segment[12..SUM_AT].copy_from_slice(&rest);
    let sum = checksum(local.ip(), peer.ip(), &segment);
    segment[SUM_AT..SUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// The internet checksum over the segment and its pseudo-header (RFC 9293 §3.1).
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8; SEGMENT]) -> u16 {
    fn words(bytes: &[u8]) -> u32 {
        let (words, _) = bytes.as_chunks::<2>();
        words
            .iter()
            .map(|word| u32::from(u16::from_be_bytes(*word)))
            .sum()
    }
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => words(&v4.octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    };
    let mut sum = octets(from) + octets(to) + TCP + SEGMENT as u32 + words(segment);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum over what was sent, with its checksum, is all ones.
    #[test]
    fn a_segment_carries_the_checksum_that_receivers_compute() {
        for (local, peer) in [
            ("10.1.2.3:2049", "10.1.2.200:873"),
            ("[fd00::5]:2049", "[fd00::ffff:1]:65535"),
        ] {
            let (local, peer): (SocketAddr, SocketAddr) =
                (local.parse().unwrap(), peer.parse().unwrap());
            let sent = segment(&Connection { local, peer });
            assert_eq!(checksum(local.ip(), peer.ip(), &sent), 0);
            assert_eq!(sent[..2], local.port().to_be_bytes());
            assert_eq!(sent[2..4], peer.port().to_be_bytes());
        }
    }
}
