//! Addresses that move with a pair: only the node that serves has them on its interfaces.
//!
//! **Lent, not given.** The kernel keeps an address after the process that added it was killed, or
//! while it is stopped. Both nodes would then have it once the partner serves. So an address is
//! added with a lifetime and renewed five times a second, and the kernel removes it if the process
//! stops renewing it ([`LEASED`]). The lifetime is that of the lease under which a primary in sync
//! replies, and the standby waits for the lease before it serves. A primary that is alone, whose
//! partner may not serve, takes a longer one ([`ALONE`]): for it a late renewal is the greater
//! evil.
//!
//! A node that does not serve removes its addresses: at its start (an older process may have left
//! one), when it loses its role or its lease, and first of all in an orderly stop. Its connections
//! are closed after that, so that no segment of theirs reaches clients; the partner ends them. If
//! the process is killed, another one keeps the same order ([`guard`]).
//!
//! **Taking over.** Neighbours still have the other node's hardware address, so the new one is
//! announced, several times, since nothing confirms it ([`announce`]). Clients meanwhile wait for
//! replies on connections that no node has any more. Their requests were acknowledged, so they send
//! nothing until their own timers run out, after a minute. The primary therefore reports its
//! connections to the standby ([`super::clients`]), which makes each client notice at once
//! ([`tickle`]).
//!
//! Clouds do not deliver to an address that a machine gives itself; there `--address-hook` moves
//! it.

mod announce;
pub mod guard;
mod netlink;
mod tickle;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_base::limits::mirror::MAX_MOVING_ADDRESSES;

use netlink::Netlink;

/// Interval between renewals.
const RENEWAL: Duration = Duration::from_millis(200);
/// Interval between checks for due renewals and announcements.
pub const POLL: Duration = Duration::from_millis(50);
/// Lifetime of the addresses of a primary in sync. The kernel counts whole seconds, and removes an
/// address within a quarter of one.
pub const LEASED: Duration = Duration::from_secs(1);
/// Lifetime of the addresses of a primary that is alone.
pub const ALONE: Duration = Duration::from_secs(5);
/// Times after an address was added at which it is announced.
const REPEATED: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// Maximum length of an interface's name in bytes (IFNAMSIZ without the terminator).
const MAX_INTERFACE: usize = 15;

/// An address on an interface, written `ADDR/PREFIX@IFACE`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// Address that clients mount from.
    pub ip: IpAddr,
    /// Length of the network's prefix in bits.
    prefix: u8,
    /// Name of the interface.
    interface: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.ip, self.prefix, self.interface)
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = String;
    fn try_from(text: String) -> Result<Address, String> {
        text.parse()
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let form = || format!("'{text}' is not ADDR/PREFIX@IFACE, such as 10.0.0.100/24@eth0");
        let (network, interface) = text.split_once('@').ok_or_else(form)?;
        let (ip, prefix) = network.split_once('/').ok_or_else(form)?;
        let ip: IpAddr = ip.parse().map_err(|_| form())?;
        let prefix: u8 = prefix.parse().map_err(|_| form())?;
        let (bits, local) = match ip {
            IpAddr::V4(v4) => (32, v4.is_link_local() || v4.is_broadcast()),
            IpAddr::V6(v6) => (
                128,
                v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
            ),
        };
        if prefix == 0 || prefix > bits {
            return Err(format!("'{text}': a prefix of {ip} has 1 to {bits} bits"));
        }
        if local || ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
            return Err(format!(
                "'{text}': {ip} is no address that can move between machines"
            ));
        }
        let named = (1..=MAX_INTERFACE).contains(&interface.len())
            && !interface.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
        if !named {
            return Err(format!(
                "'{text}': '{interface}' is no name of an interface"
            ));
        }
        Ok(Address {
            ip,
            prefix,
            interface: interface.to_owned(),
        })
    }
}

/// Checks that the addresses can be those of a pair.
///
/// # Errors
/// There are too many, or one occurs twice.
pub fn admissible(addresses: &[Address]) -> Result<()> {
    ensure!(
        addresses.len() <= MAX_MOVING_ADDRESSES,
        "at most {MAX_MOVING_ADDRESSES} addresses move with a pair"
    );
    for (n, address) in addresses.iter().enumerate() {
        let mut before = addresses.iter().take(n);
        ensure!(
            before.all(|one| one.ip != address.ip),
            "{} is said twice",
            address.ip
        );
    }
    Ok(())
}

/// A client's connection: the server's end and the client's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Connection {
    /// The server's end.
    pub local: SocketAddr,
    /// The client's end.
    pub peer: SocketAddr,
}

/// The addresses of a node, and whether it has them now.
pub struct Addresses {
    all: Vec<Address>,
    held: Mutex<AddressState>,
}

struct AddressState {
    netlink: Option<Netlink>,
    /// Time of the last renewal and its lifetime; `None` if this node does not have the addresses.
    renewed: Option<(Duration, Duration)>,
    /// Time at which they were added, and the number of announcements since.
    added: Option<(Duration, usize)>,
    /// True once this process will not have the addresses again.
    ended: bool,
    /// Last failure, so that each is reported once.
    failed: Option<String>,
}

impl Addresses {
    /// Removes addresses that an older process has left, which also checks that this process may
    /// move addresses.
    ///
    /// # Errors
    /// An interface does not exist, or the process may not change it.
    pub fn open(all: Vec<Address>) -> Result<Addresses> {
        let mut netlink = None;
        let mut removals = Vec::new();
        if !all.is_empty() {
            let open = netlink
                .insert(Netlink::open().map_err(|error| refused("a netlink socket", &error))?);
            for address in &all {
                let index = interface(address)?;
                if let Err(error) = open.remove(address, index)
                    && error.raw_os_error() != Some(libc::EADDRNOTAVAIL)
                {
                    return Err(refused(address, &error));
                }
                announce::try_out(address, index).map_err(|error| refused(address, &error))?;
                tickle::try_out(address.ip).map_err(|error| refused(address, &error))?;
                removals.push(netlink::removal(address, index));
            }
            let guarded = Netlink::open().and_then(|own| guard::start(own.into_socket(), removals));
            if let Err(error) = guarded {
                tracing::warn!(
                    "if this process is killed, clients notice before the partner serves: {error}"
                );
            }
        }
        Ok(Addresses {
            all,
            held: Mutex::new(AddressState {
                netlink,
                renewed: None,
                added: None,
                ended: false,
                failed: None,
            }),
        })
    }

    /// Returns true if no address moves.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if `ip` is one of the addresses.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.all
            .iter()
            .any(|address| address.ip == ip.to_canonical())
    }

    /// Describes the addresses and whether this node has them; `None` if none moves.
    pub fn describe(&self) -> Option<String> {
        let all: Vec<String> = self.all.iter().map(Address::to_string).collect();
        let there = match self.held.lock().renewed {
            Some(_) => "here",
            None => "not here",
        };
        (!all.is_empty()).then(|| format!("{} ({there})", all.join(", ")))
    }

    /// Keeps the addresses on this node for `lifetime` from now on, or removes them if it is
    /// `None`. `clients` returns the connections of the previous node's clients. To be called every
    /// [`POLL`], and whenever this node begins to have the addresses.
    ///
    /// # Errors
    /// The step that failed, once for each cause. The next call tries again.
    pub fn keep(
        &self,
        now: Duration,
        lifetime: Option<Duration>,
        clients: impl FnOnce() -> Vec<Connection>,
    ) -> Result<(), String> {
        let mut held = self.held.lock();
        let held = &mut *held;
        let Some(netlink) = &mut held.netlink else {
            return Ok(());
        };
        guard::partnered(lifetime == Some(LEASED));
        let Some(lifetime) = lifetime.filter(|_| !held.ended) else {
            let gone = held.renewed.take().map(|_| remove_all(&self.all, netlink));
            return note(&mut held.failed, gone.unwrap_or(Ok(())));
        };
        if held
            .renewed
            .is_some_and(|(since, of)| of == lifetime && now < since + RENEWAL)
        {
            return announce_due(&self.all, now, &mut held.added, clients);
        }
        let all = self.all.iter();
        let done = all.map(|address| {
            let index = interface(address).map_err(|error| format!("{error:#}"))?;
            let added = netlink.add(address, index, lifetime);
            added.map_err(|error| format!("{address} cannot be added: {error}"))
        });
        if let Err(why) = done.collect::<Result<(), String>>() {
            return note(&mut held.failed, Err(why));
        }
        // If the lifetime has passed (this thread had no processor), the kernel may have removed
        // the address meanwhile.
        let lasted = held.renewed.is_some_and(|(since, of)| now < since + of);
        held.renewed = Some((now, lifetime));
        if !lasted {
            held.added = Some((now, 0));
        }
        held.failed = None;
        announce_due(&self.all, now, &mut held.added, clients)
    }

    /// Removes the addresses for the rest of this process.
    pub fn end(&self) {
        let mut held = self.held.lock();
        let held = &mut *held;
        held.ended = true;
        if let Some(netlink) = &mut held.netlink
            && held.renewed.take().is_some()
            && let Err(why) = remove_all(&self.all, netlink)
        {
            // The address expires by itself.
            tracing::error!("{why}");
        }
        if let Err(error) = guard::abandon(|ip| self.all.iter().any(|address| address.ip == ip)) {
            tracing::warn!(
                "connections may be in the way when this node has the addresses again: {error}"
            );
        }
        guard::end();
    }
}

fn remove_all(all: &[Address], netlink: &mut Netlink) -> Result<(), String> {
    let mut outcome = Ok(());
    for address in all {
        let Ok(index) = interface(address) else {
            // The address is gone with its interface.
            continue;
        };
        match netlink.remove(address, index) {
            Err(error) if error.raw_os_error() != Some(libc::EADDRNOTAVAIL) => {
                outcome = Err(format!("{address} cannot be removed: {error}"));
            }
            _ => {}
        }
    }
    outcome
}

/// Makes the announcement that is due, if one is, and makes clients notice.
fn announce_due(
    all: &[Address],
    now: Duration,
    added: &mut Option<(Duration, usize)>,
    clients: impl FnOnce() -> Vec<Connection>,
) -> Result<(), String> {
    let Some((since, times)) = added else {
        return Ok(());
    };
    let due = REPEATED
        .get(*times)
        .is_some_and(|after| now >= *since + *after);
    if !due {
        return Ok(());
    }
    *times += 1;
    for address in all {
        let announced = interface(address).map_err(|error| io::Error::other(format!("{error:#}")));
        let announced = announced.and_then(|index| announce::announce(address, index));
        if let Err(error) = announced {
            tracing::warn!("{address} cannot be announced: {error}");
        }
    }
    let clients = clients();
    if *times == 1 {
        tracing::info!(
            "{} connections of clients are ended for the node before",
            clients.len()
        );
    }
    if let Err(error) = tickle::tickle(&clients) {
        tracing::warn!("clients cannot be made to notice: {error}");
    }
    Ok(())
}

/// Reports a failure that was not reported last.
fn note(failed: &mut Option<String>, outcome: Result<(), String>) -> Result<(), String> {
    match outcome {
        Err(why) if failed.as_ref() != Some(&why) => {
            *failed = Some(why.clone());
            Err(why)
        }
        Err(_) => Ok(()),
        Ok(()) => {
            *failed = None;
            Ok(())
        }
    }
}

fn interface(address: &Address) -> Result<u32> {
    netlink::interface(&address.interface)
        .with_context(|| format!("{address}: no interface {} is there", address.interface))
}

fn refused(what: impl fmt::Display, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => anyhow!(
            "{what}: to move an address the process needs CAP_NET_ADMIN and CAP_NET_RAW: run it as root, or have systemd give it both \
             (AmbientCapabilities=); or move it with --address-hook"
        ),
        _ => anyhow!("{what}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read_and_bad_ones_are_refused_by_name() {
        for text in ["10.1.2.3/24@eth0", "fd00::5/64@bond0.17", "192.0.2.1/32@a"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            let stored = serde_json::to_string(&address).unwrap();
            assert_eq!(serde_json::from_str::<Address>(&stored).unwrap(), address);
        }
        for (text, why) in [
            ("10.1.2.3", "is not ADDR/PREFIX@IFACE"),
            ("10.1.2.3/24", "is not ADDR/PREFIX@IFACE"),
            ("10.1.2.3@eth0", "is not ADDR/PREFIX@IFACE"),
            ("host/24@eth0", "is not ADDR/PREFIX@IFACE"),
            ("10.1.2.3/-1@eth0", "is not ADDR/PREFIX@IFACE"),
            ("10.1.2.3/0@eth0", "1 to 32 bits"),
            ("10.1.2.3/33@eth0", "1 to 32 bits"),
            ("fd00::1/129@eth0", "1 to 128 bits"),
            ("10.1.2.3/24@", "no name of an interface"),
            (
                "10.1.2.3/24@a-name-that-is-too-long",
                "no name of an interface",
            ),
            ("10.1.2.3/24@../x", "no name of an interface"),
            ("127.0.0.1/8@lo", "no address that can move"),
            ("0.0.0.0/8@eth0", "no address that can move"),
            ("224.0.0.1/8@eth0", "no address that can move"),
            ("169.254.1.1/16@eth0", "no address that can move"),
            ("fe80::1/64@eth0", "no address that can move"),
            ("::ffff:10.0.0.1/120@eth0", "no address that can move"),
            ("::/64@eth0", "no address that can move"),
        ] {
            let said = text.parse::<Address>().unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn addresses_of_a_pair_are_few_and_different() {
        let address = |n: usize| format!("10.0.0.{n}/24@eth0").parse::<Address>().unwrap();
        let many: Vec<Address> = (1..=MAX_MOVING_ADDRESSES + 1).map(address).collect();
        assert!(admissible(&many[1..]).is_ok());
        assert!(admissible(&many).is_err());
        assert!(admissible(&[address(1), address(2), address(1)]).is_err());
    }
}
