//! Clients as limits know them.

use std::net::{IpAddr, Ipv4Addr};

/// The key under which requests count as one client's for limits. It stays the same however many
/// connections and addresses a client uses, as far as its protocol has such a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKey {
    /// The address, canonical: NFSv3 knows no more of a client.
    Address(IpAddr),
    /// Identity of the client in the protocol: of NFSv4 a hash of the client owner, of SMB the
    /// ClientGuid.
    Id([u8; 16]),
}

impl ClientKey {
    /// All clients beyond those that are counted one by one.
    pub const OTHERS: ClientKey = ClientKey::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
}

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> ClientKey {
        ClientKey::Address(address.to_canonical())
    }
}

impl std::fmt::Display for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            &ClientKey::OTHERS => f.write_str("others"),
            ClientKey::Address(address) => address.fmt(f),
            ClientKey::Id(id) => id.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}
