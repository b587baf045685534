//! Network addresses as units of fairness.

use std::net::IpAddr;

/// One client for limits and fairness: a whole IPv4 address, or the network half of an IPv6 address
/// (RFC 4291 §2.5.1).
pub type Address = u128;

/// Returns the address that a peer counts as.
pub fn address_of(peer: IpAddr) -> Address {
    match peer.to_canonical() {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() >> 64 << 64,
    }
}
