//! Addresses and connections of a client, which decide who may act for it.
//!
//! A client's name and its client id are no secrets, and by AUTH_SYS anybody may claim both. Some
//! operations free a client's claims, or return a session in its name. They are therefore refused
//! to callers at other addresses while the client's lease runs and one of its connections is open.
//! Likewise, NLM accepts requests for a host from its own address only.
//!
//! The addresses of a client are the one at which it introduced itself, and those from which its
//! sessions are used: a session id is random, and sent to the client alone. A client may change its
//! address once its old connections have ended, or its lease has expired. A principal that Kerberos
//! has established is accepted from anywhere.

use super::record_encoding::MAX_ADDRESSES;
use std::net::IpAddr;
use weir_conn::{ConnInfo, Line};

/// Maximum number of remembered connections of a client; the oldest of more are forgotten.
const MAX_LINES: usize = 32;

/// See the module's head.
pub(super) struct Reach {
    /// The address at which it introduced itself, then others in the order in which they were seen.
    addresses: Vec<IpAddr>,
    lines: Vec<(u64, Line)>,
}

impl Reach {
    /// Returns the reach of a client that introduces itself at an address.
    pub(super) fn from_address(address: IpAddr) -> Reach {
        Reach {
            addresses: vec![address],
            lines: Vec::new(),
        }
    }

    /// Adds one of the client's connections; returns true if it comes from a new address.
    pub(super) fn add<S>(&mut self, conn: &ConnInfo<S>) -> bool {
        if self.lines.iter().all(|(id, _)| *id != conn.id) {
            self.lines.retain(|(_, line)| line.is_open());
            if self.lines.len() >= MAX_LINES {
                self.lines.remove(0);
            }
            self.lines.push((conn.id, conn.line()));
        }
        let address = conn.address();
        let is_new = !self.addresses.contains(&address);
        if is_new {
            if self.addresses.len() >= MAX_ADDRESSES {
                self.addresses.remove(1);
            }
            self.addresses.push(address);
        }
        is_new
    }

    /// Returns the client's addresses.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns true if the client is alive, and not at the address of `conn`.
    pub(super) fn is_elsewhere<S>(&self, conn: &ConnInfo<S>) -> bool {
        let is_open = || self.lines.iter().any(|(_, line)| line.is_open());
        !self.addresses.contains(&conn.address()) && is_open()
    }
}
