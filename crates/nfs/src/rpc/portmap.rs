//! Talking to rpcbind as a client (RFC 1833): registering the service's programs and asking
//! where a client's lock manager listens.
//!
//! Registrations use RPCBIND version 4 because rpcbind takes them over its local socket only,
//! and that speaks nothing older. Questions to other machines use the portmapper protocol
//! (version 2), which every rpcbind serves over UDP and TCP.

use crate::rpc;
use crate::rpc::message::Message;
use crate::rpc::xdr::{Put, Reader};
use std::net::SocketAddr;

/// Program number of rpcbind and the portmapper (RFC 1833 §2.1, §3.1).
pub const PROGRAM: u32 = 100_000;
/// The port that rpcbind listens on (RFC 1833 §2.1).
pub const PORT: u16 = 111;

/// RPCBPROC_SET and RPCBPROC_UNSET of version 4 (RFC 1833 §2.1).
const SET: u32 = 1;
const UNSET: u32 = 2;
/// PMAPPROC_GETPORT of version 2 (RFC 1833 §3.2).
const GETPORT: u32 = 3;

/// A transport by its protocol number, as the portmapper counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, IP protocol 6.
    Tcp = 6,
    /// UDP, IP protocol 17.
    Udp = 17,
}

/// A program's version over a transport, as rpcbind keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// RPC program number (`prog`, RFC 5531 §9).
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// The transport that it is served over.
    pub transport: Transport,
}

/// Encodes the call that registers `entry` as served at `address` (RPCBPROC_SET).
pub fn set(xid: u32, entry: Entry, address: &SocketAddr) -> Vec<u8> {
    registration(xid, SET, entry, address)
}

/// Encodes the call that removes the registration by [`set`] (RPCBPROC_UNSET).
pub fn unset(xid: u32, entry: Entry, address: &SocketAddr) -> Vec<u8> {
    registration(xid, UNSET, entry, address)
}

fn registration(xid: u32, procedure: u32, entry: Entry, address: &SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    rpc::put_call(&mut out, xid, PROGRAM, 4, procedure);
    out.put_u32(entry.program);
    out.put_u32(entry.version);
    // Network identifiers: RFC 5665 §5.2.3.
    let netid = match (entry.transport, address) {
        (Transport::Tcp, SocketAddr::V4(_)) => "tcp",
        (Transport::Tcp, SocketAddr::V6(_)) => "tcp6",
        (Transport::Udp, SocketAddr::V4(_)) => "udp",
        (Transport::Udp, SocketAddr::V6(_)) => "udp6",
    };
    out.put_opaque(netid.as_bytes());
    out.put_opaque(universal(address).as_bytes());
    // The owner; rpcbind puts in the user that it sees at the other end of the local socket.
    out.put_opaque(b"");
    out
}

/// Returns a universal address (RFC 5665 §5.2.3.3): the host, then the port's two bytes.
fn universal(address: &SocketAddr) -> String {
    let port = address.port();
    format!("{}.{}.{}", address.ip(), port >> 8, port & 0xff)
}

/// Encodes the call that asks for the port of `entry` (PMAPPROC_GETPORT).
pub fn getport(xid: u32, entry: Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    rpc::put_call(&mut out, xid, PROGRAM, 2, GETPORT);
    for v in [entry.program, entry.version, entry.transport as u32, 0] {
        out.put_u32(v);
    }
    out
}

/// Returns the answer to [`set`] or [`unset`]; `None` if `message` is not an accepted reply to
/// `xid`.
pub fn reply_bool(xid: u32, message: &[u8]) -> Option<bool> {
    results(xid, message)?.bool().ok()
}

/// Returns the answer to [`getport`]; `None` if `message` is not an accepted reply to `xid`, or if
/// the program is not registered (port 0).
pub fn reply_port(xid: u32, message: &[u8]) -> Option<u16> {
    let port = results(xid, message)?.u32().ok()?;
    u16::try_from(port).ok().filter(|port| *port != 0)
}

fn results(xid: u32, message: &[u8]) -> Option<Reader<'_>> {
    match rpc::message(message) {
        Message::Reply(of, body) if of == xid => rpc::accepted_results(body).map(Reader::new),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn universal_addresses() {
        assert_eq!(universal(&address("127.0.0.1:2049")), "127.0.0.1.8.1");
        assert_eq!(universal(&address("[::1]:111")), "::1.0.111");
    }

    #[test]
    fn a_registration_names_program_transport_and_place() {
        let entry = Entry {
            program: 100_003,
            version: 3,
            transport: Transport::Tcp,
        };
        let call = set(7, entry, &address("0.0.0.0:2049"));
        let Message::Call(call) = rpc::message(&call) else {
            panic!("not a call");
        };
        assert_eq!(
            (call.program, call.version, call.procedure),
            (100_000, 4, 1)
        );
        let mut r = Reader::new(call.args);
        assert_eq!((r.u32(), r.u32()), (Ok(100_003), Ok(3)));
        assert_eq!(r.string(), Ok(&b"tcp"[..]));
        assert_eq!(r.string(), Ok(&b"0.0.0.0.8.1"[..]));
        assert_eq!(r.string(), Ok(&b""[..]));
        assert!(r.rest().is_empty());
    }

    #[test]
    fn only_accepted_replies_to_the_call_count() {
        let reply = |xid: u32, accept: u32, value: u32| {
            let mut out = Vec::new();
            for v in [xid, 1, 0, 0, 0, accept, value] {
                out.put_u32(v);
            }
            out
        };
        assert_eq!(reply_bool(5, &reply(5, 0, 1)), Some(true));
        assert_eq!(reply_bool(5, &reply(5, 0, 0)), Some(false));
        assert_eq!(reply_bool(5, &reply(6, 0, 1)), None);
        assert_eq!(reply_bool(5, &reply(5, 1, 1)), None);
        assert_eq!(reply_port(5, &reply(5, 0, 2049)), Some(2049));
        assert_eq!(reply_port(5, &reply(5, 0, 0)), None);
        assert_eq!(reply_port(5, &reply(5, 0, 70_000)), None);
        assert_eq!(reply_port(5, &[1, 2, 3]), None);
        let entry = Entry {
            program: 1,
            version: 1,
            transport: Transport::Udp,
        };
        assert_eq!(reply_port(5, &set(5, entry, &address("1.2.3.4:5"))), None);
    }
}
