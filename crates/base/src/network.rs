//! Network addresses: as units of fairness, and in blocks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

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

/// Returns true if `address` is in the network of `of`, which the first `prefix` bits make. An IPv4
/// address mapped into IPv6 is the IPv4 address.
pub fn is_in_network(of: IpAddr, prefix: u8, address: IpAddr) -> bool {
    match (of.to_canonical(), address.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differ = a.to_bits() ^ b.to_bits();
            differ.leading_zeros() >= u32::from(prefix.min(32))
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differ = a.to_bits() ^ b.to_bits();
            differ.leading_zeros() >= u32::from(prefix.min(128))
        }
        _ => false,
    }
}

/// Maximum number of addresses of an [`AddressBlock`]: the server listens at each of them.
pub const MAX_BLOCK: u32 = 1024;

/// A block of consecutive addresses, written `ADDR/BITS` (RFC 4632 §3.1), such as `10.1.0.0/24`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressBlock {
    first: IpAddr,
    prefix: u8,
}

impl AddressBlock {
    /// Returns true if the address is in the block. An IPv4 address mapped into IPv6 is the IPv4
    /// address.
    pub fn contains(&self, address: IpAddr) -> bool {
        is_in_network(self.first, self.prefix, address)
    }

    /// Returns the addresses that hosts may have, in order. Of an IPv4 block with more than two
    /// addresses, the first and the last are the network's own.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let first = self.first;
        let count = self.count();
        let own = u32::from(first.is_ipv4() && count > 2);
        // Nothing overflows: a block ends within its address family.
        (own..count - own).map(move |number| match first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + number).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(number)).into(),
        })
    }

    fn count(&self) -> u32 {
        let bits = if self.first.is_ipv4() { 32 } else { 128 };
        1 << (bits - u32::from(self.prefix))
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl FromStr for AddressBlock {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressBlock, String> {
        let form = || format!("'{text}' is not ADDR/BITS, such as 10.1.0.0/24");
        let (first, prefix) = text.split_once('/').ok_or_else(form)?;
        let first: IpAddr = first.parse().map_err(|_| form())?;
        let prefix: u8 = prefix.parse().map_err(|_| form())?;
        let (first, bits) = match first.to_canonical() {
            IpAddr::V4(first) => (IpAddr::V4(first), 32),
            IpAddr::V6(first) => (IpAddr::V6(first), 128),
        };
        let least = bits - MAX_BLOCK.ilog2() as u8;
        if prefix > bits {
            return Err(form());
        }
        if prefix < least {
            return Err(format!(
                "'{text}' has more than {MAX_BLOCK} addresses: use a prefix of {least} to {bits} bits"
            ));
        }
        let block = AddressBlock { first, prefix };
        let start = match first {
            IpAddr::V4(first) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() & mask))
            }
            IpAddr::V6(first) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(first.to_bits() & mask))
            }
        };
        if start != first {
            return Err(format!(
                "'{text}' does not begin with the block's first address: write {start}/{prefix}"
            ));
        }
        if first.is_multicast() || first.is_unspecified() {
            return Err(format!("'{text}': hosts cannot have these addresses"));
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> AddressBlock {
        text.parse().unwrap()
    }

    #[test]
    fn a_block_has_the_addresses_that_hosts_may_have() {
        let hosts = |text| -> Vec<String> { block(text).hosts().map(|a| a.to_string()).collect() };
        assert_eq!(hosts("10.1.0.8/29").len(), 6);
        assert_eq!(hosts("10.1.0.8/30"), ["10.1.0.9", "10.1.0.10"]);
        assert_eq!(hosts("10.1.0.8/31"), ["10.1.0.8", "10.1.0.9"]);
        assert_eq!(hosts("10.1.0.8/32"), ["10.1.0.8"]);
        assert_eq!(hosts("fd00::/127"), ["fd00::", "fd00::1"]);
        assert_eq!(hosts("255.255.252.0/22").len(), 1022);
        assert_eq!(
            hosts("fdff:ffff:ffff:ffff:ffff:ffff:ffff:fc00/118").len(),
            1024
        );
        for text in ["10.1.0.8/29", "fd00::/120"] {
            assert!(block(text).hosts().all(|host| block(text).contains(host)));
            assert_eq!(block(text).to_string(), text);
        }
        assert!(!block("10.1.0.8/29").contains("10.1.0.16".parse().unwrap()));
        assert!(block("10.1.0.8/29").contains("::ffff:10.1.0.9".parse().unwrap()));
        assert!(!block("10.1.0.8/29").contains("fd00::1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_block_is_refused_with_the_way_out() {
        for (text, says) in [
            ("10.1.0.0", "is not ADDR/BITS"),
            ("10.1.0.0/x", "is not ADDR/BITS"),
            ("10.1.0.0/33", "is not ADDR/BITS"),
            ("10.0.0.0/8", "use a prefix of 22 to 32 bits"),
            ("fd00::/64", "use a prefix of 118 to 128 bits"),
            ("10.1.0.9/29", "write 10.1.0.8/29"),
            ("0.0.0.0/24", "hosts cannot have these"),
            ("224.0.0.0/24", "hosts cannot have these"),
        ] {
            let refused = text.parse::<AddressBlock>().unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
