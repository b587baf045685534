//! Sets of clients, as export rules name them.
//!
//! | Written | Means |
//! |---|---|
//! | `*` | everyone |
//! | `10.1.2.3`, `fd00::7` | that address |
//! | `10.1.0.0/16`, `10.1.0.0/255.255.0.0`, `fd00::/8` | that network |
//! | `build7.example.com` | the addresses that this name has |
//! | `*.example.com`, `build?.example.com` | clients with such a name |
//!
//! A name does not end in a number, decimal, octal or hexadecimal: `127.1`, `2130706433` and
//! `0x7f000001` are addresses to inet_aton(3) and names to no other resolver. A pattern with
//! neither letter nor digit (`*.`, `*.*`) would admit everyone whose address has any name, which is
//! hardly meant. Both are refused.
//!
//! `*` stands for any run of characters, dots included, and `?` for any one, as in exports(5); case
//! does not matter. A host name is looked up forwards. A wildcard is compared with the name of the
//! client's address, which the owner of that address can choose. So the name counts only if it
//! leads back to the address (see `names`).

use crate::names::{Names, Wait};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::network::is_in_network;

/// Longest name (RFC 1035 §2.3.4, without the root's dot).
const MAX_NAME: usize = 253;
/// Longest part of a name.
const MAX_LABEL: usize = 63;

/// A set of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Every client, whatever its address.
    Any,
    /// The addresses whose first `prefix` bits are those of `address`.
    Net {
        /// Any address of the network.
        address: IpAddr,
        /// Bits that must agree.
        prefix: u8,
    },
    /// The addresses of the host of this name, in lower case.
    Host(Arc<str>),
    /// Clients whose verified name matches this pattern, in lower case.
    Like(Arc<str>),
}

/// Answer whether a client is one of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Yes,
    No,
    /// Names decide, and are not known.
    Unknown(Wait),
}

impl Clients {
    /// Reads one entry of a list of clients.
    ///
    /// # Errors
    /// A text for people that says what is wrong with the entry.
    pub fn parse(text: &str) -> Result<Clients, String> {
        let text = text.trim();
        if text == "*" {
            return Ok(Clients::Any);
        }
        if let Some((address, bits)) = text.split_once('/') {
            return net(text, address, bits);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            let prefix = bits_of(address);
            return Ok(Clients::Net { address, prefix });
        }
        name(text)
    }

    /// Returns true if names are needed to decide which clients belong to it.
    pub(crate) fn by_name(&self) -> bool {
        matches!(self, Clients::Host(_) | Clients::Like(_))
    }

    /// Compares `client` with the set. An IPv4 address mapped into IPv6 is the IPv4 address.
    pub(crate) fn matches(&self, client: IpAddr, names: &Names) -> Match {
        let known = match self {
            Clients::Any => return Match::Yes,
            Clients::Net { address, prefix } => {
                return match is_in_network(*address, *prefix, client) {
                    true => Match::Yes,
                    false => Match::No,
                };
            }
            Clients::Host(name) => names.is_host(name, client.to_canonical()),
            Clients::Like(pattern) => {
                names.has_name(client.to_canonical(), |name| like(pattern, name))
            }
        };
        match known {
            Ok(true) => Match::Yes,
            Ok(false) => Match::No,
            Err(wait) => Match::Unknown(wait),
        }
    }

    /// Begins to look up what [`Clients::matches`] would need.
    pub(crate) fn prefetch(&self, client: IpAddr, names: &Names) {
        if self.by_name() {
            self.matches(client, names);
        }
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clients::Any => f.write_str("*"),
            Clients::Net { address, prefix } if *prefix == bits_of(*address) => {
                write!(f, "{address}")
            }
            Clients::Net { address, prefix } => write!(f, "{address}/{prefix}"),
            Clients::Host(name) | Clients::Like(name) => f.write_str(name),
        }
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn net(text: &str, address: &str, bits: &str) -> Result<Clients, String> {
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("'{text}': '{address}' is not an address"))?;
    let all = bits_of(address);
    let prefix = match (bits.parse::<u8>(), bits.parse::<std::net::Ipv4Addr>()) {
        (Ok(prefix), _) if prefix <= all && bits.bytes().all(|b| b.is_ascii_digit()) => prefix,
        (_, Ok(mask)) if address.is_ipv4() => {
            let mask = u32::from(mask);
            if mask.leading_ones() + mask.trailing_zeros() != 32 && mask != 0 {
                return Err(format!("'{text}': the mask's bits are not contiguous"));
            }
            mask.leading_ones() as u8
        }
        _ => {
            return Err(format!(
                "'{text}': after the slash comes a number of bits, 0 to {all}"
            ));
        }
    };
    Ok(Clients::Net { address, prefix })
}

fn name(text: &str) -> Result<Clients, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let bad = |why: &str| {
        Err(format!(
            "'{text}' is no address, network or host name: {why}"
        ))
    };
    if name.is_empty() || name.len() > MAX_NAME {
        return bad("it is empty or longer than 253 characters");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*' | '?');
    if let Some(c) = name.chars().find(|c| !fits(*c)) {
        return bad(&format!("'{c}' cannot be in a name"));
    }
    if name
        .split('.')
        .any(|label| label.is_empty() || label.len() > MAX_LABEL)
    {
        return bad("a part is empty or longer than 63 characters");
    }
    let wild = name.contains(['*', '?']);
    if wild && !name.contains(|c: char| c.is_ascii_alphanumeric()) {
        return bad(
            "it matches every client that has a name; everyone is written *, without a dot",
        );
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    // inet_aton(3) reads these as addresses, and so would the resolver.
    let hexadecimal = last.strip_prefix("0x");
    if hexadecimal.is_some_and(|digits| digits.chars().all(|c| c.is_ascii_hexdigit())) {
        return bad("it ends in a number; an address is written as four decimal numbers");
    }
    if !last.contains(|c: char| c.is_ascii_alphabetic())
        && (!wild || name.contains(|c: char| c.is_ascii_digit()))
    {
        return bad(
            "it ends in a number; an address is written as four decimal numbers, a network ADDR/BITS",
        );
    }
    let name = Arc::from(name);
    Ok(if wild {
        Clients::Like(name)
    } else {
        Clients::Host(name)
    })
}

/// Returns true if `name` matches `pattern`, both in lower case. Linear in the name for one `*`, at
/// most quadratic: names are short, and it only ever goes back to the last `*`.
pub(crate) fn like(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    loop {
        match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((p + 1, n));
                p += 1;
            }
            (Some(a), Some(b)) if a == b || *a == b'?' => {
                p += 1;
                n += 1;
            }
            _ => match star {
                // The last `*` takes one more character.
                Some((after, at)) if at < name.len() => {
                    star = Some((after, at + 1));
                    (p, n) = (after, at + 1);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_match_by_prefix() {
        let at = |s: &str| s.parse::<IpAddr>().unwrap();
        let names = Names::default();
        let is = |clients: &str, client: &str| {
            Clients::parse(clients).unwrap().matches(at(client), &names) == Match::Yes
        };
        assert!(is("*", "::1"));
        assert!(is("10.1.2.3/8", "10.200.0.1"));
        assert!(is("10.1.2.3/8", "::ffff:10.200.0.1"));
        assert!(is("10.1.2.3/255.0.0.0", "10.200.0.1"));
        assert!(!is("10.1.2.3/8", "11.1.2.3"));
        assert!(is("10.1.2.3", "10.1.2.3"));
        assert!(!is("10.1.2.3", "10.1.2.2"));
        assert!(is("0.0.0.0/0", "1.1.1.1"));
        assert!(is("0.0.0.0/0.0.0.0", "1.1.1.1"));
        assert!(!is("0.0.0.0/0", "fe80::1"));
        assert!(is("fd00::/8", "fdff::1"));
        assert!(!is("fd00::/8", "fe80::1"));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for good in [
            "*",
            "10.0.0.0/8",
            "10.0.0.0/255.0.0.0",
            "::1",
            "fd00::/8",
            "host",
            "nfs-1.Example.com.",
            "*.example.com",
            "node??.local",
            "3com.example",
            "a_b.c",
            "*example",
            "0xdead.example.com",
            "x0",
        ] {
            let clients = Clients::parse(good).unwrap();
            let again = Clients::parse(&clients.to_string()).unwrap();
            assert_eq!(clients, again, "{good}");
        }
        for bad in [
            "",
            " ",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/255.0.255.0",
            "/8",
            "::1/129",
            "10.0.0",
            "10.0.0.256",
            "10.0.*",
            "10.0.0.?",
            "a..b",
            ".a",
            "a b",
            "@group",
            "host!",
            "hôte",
            "fd00::/255.0.0.0",
            "1",
            "*.5",
            "*.",
            "*.*",
            "*.*.",
            "?",
            "**",
            "*?*",
            "0x7f000002",
            "0X7F000002",
            "0x7f000002.",
            "0x7f.1",
            "127.0x1",
            "0x",
            "a.0x1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0177.0.0.1",
            "0177.1",
            &"a".repeat(64),
            &"a.".repeat(128),
        ] {
            assert!(Clients::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, yes) in [
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.example.com.evil.net", false),
            ("node?.x", "node1.x", true),
            ("node?.x", "node12.x", false),
            ("a*b*c", "abxbc", true),
            ("a*b*c", "abxb", false),
            ("*", "", true),
            ("**", "x", true),
            ("?", "", false),
        ] {
            assert_eq!(like(pattern, name), yes, "{pattern} {name}");
        }
    }
}
