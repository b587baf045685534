//! Addresses of interfaces by rtnetlink (rtnetlink(7)): the two requests needed, encoded by hand.
//! All numbers are in the machine's own byte order.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::Address;

/// Size of a message's header in bytes.
const HEAD: usize = 16;
/// Read timeout; the kernel replies at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Attributes of an interface's address: that of the peer, which for these is the same, and its
/// own.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Attribute with the lifetimes, `struct ifa_cacheinfo`.
const IFA_CACHEINFO: u16 = 6;
/// Flag that makes the address usable at once, without a search for duplicates: the previous node
/// has just lost it.
const IFA_F_NODAD: u8 = 2;

/// A socket to the kernel.
pub struct Netlink {
    socket: Socket,
    /// Number of the last request.
    last: u32,
}

/// Returns the index of an interface.
///
/// # Errors
/// There is no interface of that name.
pub fn interface(name: &str) -> io::Result<u32> {
    let any = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&any, name)?)
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<Netlink> {
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Netlink { socket, last: 0 })
    }

    /// Adds the address with a lifetime that begins now, or renews the lifetime of an existing one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&mut self, address: &Address, index: u32, lifetime: Duration) -> io::Result<()> {
        let mut body = body(address, index);
        // Preferred for no time: the node's own connections do not use it as a source. Valid for
        // the lifetime, in whole seconds.
        let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX).max(1);
        let times: Vec<u8> = [0, seconds, 0, 0]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        attribute(&mut body, IFA_CACHEINFO, &times);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        self.request(libc::RTM_NEWADDR, flags, &body)
    }

    /// Removes the address.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if the interface does not have it; others of the kernel's.
    pub fn remove(&mut self, address: &Address, index: u32) -> io::Result<()> {
        self.request(libc::RTM_DELADDR, 0, &body(address, index))
    }

    /// Returns the socket, for messages built by the caller.
    pub fn into_socket(self) -> Socket {
        self.socket
    }

    /// Sends one request and waits for its outcome.
    fn request(&mut self, kind: u16, flags: libc::c_int, body: &[u8]) -> io::Result<()> {
        self.last = self.last.wrapping_add(1);
        let message = message(kind, libc::NLM_F_ACK | flags, self.last, body);
        self.socket.send(&message)?;
        loop {
            let mut reply = [0; 1024];
            let length = io::Read::read(&mut &self.socket, &mut reply)?;
            if let Some(outcome) = outcome(reply.get(..length).unwrap_or_default(), self.last) {
                return outcome;
            }
            // A late reply to an earlier request.
        }
    }
}

/// Encodes a request to remove the address, to which the kernel replies only if it fails.
pub fn removal(address: &Address, index: u32) -> Vec<u8> {
    message(libc::RTM_DELADDR, 0, 0, &body(address, index))
}

fn message(kind: u16, flags: libc::c_int, number: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEAD + body.len());
    message.extend(((HEAD + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

/// Returns the outcome of request `number`; `None` if the reply belongs to another one or is
/// truncated.
fn outcome(reply: &[u8], number: u32) -> Option<io::Result<()>> {
    let word = |at: usize| {
        let bytes = reply.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let kind = reply.get(4..)?.first_chunk::<2>()?;
    if u16::from_ne_bytes(*kind) != libc::NLMSG_ERROR as u16 || word(8)? != number {
        return None;
    }
    // A negative error number, or 0.
    Some(match word(HEAD)?.cast_signed() {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
    })
}

/// Encodes `struct ifaddrmsg` and the address.
fn body(address: &Address, index: u32) -> Vec<u8> {
    let (family, flags, octets) = match address.ip {
        IpAddr::V4(v4) => (libc::AF_INET, 0, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, IFA_F_NODAD, v6.octets().to_vec()),
    };
    let mut body = vec![family as u8, address.prefix, flags, libc::RT_SCOPE_UNIVERSE];
    body.extend(index.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, &octets);
    attribute(&mut body, IFA_ADDRESS, &octets);
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(((4 + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    // All attributes used here are whole words, so none is padded.
    body.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reply_to_this_request_counts_and_cut_ones_do_not() {
        let reply = |number: u32, error: i32| {
            let mut reply = 36u32.to_ne_bytes().to_vec();
            reply.extend((libc::NLMSG_ERROR as u16).to_ne_bytes());
            reply.extend([0; 2]);
            reply.extend(number.to_ne_bytes());
            reply.extend([0; 4]);
            reply.extend(error.to_ne_bytes());
            reply.extend([0; 16]);
            reply
        };
        assert!(outcome(&reply(7, 0), 7).unwrap().is_ok());
        let denied = outcome(&reply(7, -libc::EPERM), 7).unwrap().unwrap_err();
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        assert!(outcome(&reply(6, 0), 7).is_none());
        for length in 0..20 {
            assert!(outcome(&reply(7, 0)[..length], 7).is_none(), "{length}");
        }
    }
}
