//! Announcement of an address's new place to neighbours: a gratuitous ARP request for IPv4 (RFC
//! 5227 §3), an unsolicited neighbour advertisement to all nodes for IPv6 (RFC 4861 §7.2.6). Both
//! override the neighbours' entries.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::Address;

/// Bytes of an Ethernet address.
const MAC: usize = 6;
/// Ethernet broadcast address.
const BROADCAST: [u8; MAC] = [0xff; MAC];
/// ARP over Ethernet for IPv4, a request (RFC 826).
const ARP: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
/// A neighbour advertisement without its checksum: it overrides, and answers nobody.
const ADVERTISEMENT: [u8; 8] = [136, 0, 0, 0, 0x20, 0, 0, 0];
/// The option with the sender's link-layer address, of one unit of 8 bytes.
const TARGET_LINK_LAYER: [u8; 2] = [2, 1];

/// Opens a socket below the internet layer at an interface, and returns it with the interface's
/// Ethernet address. An interface without one has no neighbours to notify.
fn link(index: u32) -> io::Result<(Socket, Option<[u8; MAC]>)> {
    let protocol = (libc::ETH_P_ARP as u16).to_be();
    // With protocol 0 it receives nothing.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let ll = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the storage is larger than a sockaddr_ll and aligned for any address; the length is
    // that of the address written.
    let ((), at) = unsafe {
        SockAddr::try_init(|storage, length| {
            storage.cast::<libc::sockaddr_ll>().write(ll);
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }?;
    socket.bind(&at)?;
    let bound = socket.local_addr()?;
    if usize::try_from(bound.len()).unwrap_or(0) < size_of::<libc::sockaddr_ll>() - 2 {
        return Ok((socket, None));
    }
    // SAFETY: the kernel has written an address of AF_PACKET to storage that is larger and was
    // zeroed.
    let own = unsafe { bound.as_ptr().cast::<libc::sockaddr_ll>().read() };
    let [a, b, c, d, e, f, ..] = own.sll_addr;
    let ethernet = own.sll_hatype == libc::ARPHRD_ETHER && usize::from(own.sll_halen) == MAC;
    Ok((socket, ethernet.then_some([a, b, c, d, e, f])))
}

/// Checks that this process may announce the address.
///
/// # Errors
/// The process lacks the capability.
pub fn try_out(address: &Address, index: u32) -> io::Result<()> {
    link(index)?;
    if address.ip.is_ipv6() {
        Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    }
    Ok(())
}

/// Announces this interface's Ethernet address as that of `address` to all neighbours. This node
/// has the address already.
///
/// # Errors
/// The system's.
pub fn announce(address: &Address, index: u32) -> io::Result<()> {
    let (socket, mac) = link(index)?;
    let Some(mac) = mac else {
        return Ok(());
    };
    match address.ip {
        IpAddr::V4(v4) => socket.send(&arp(mac, v4)).map(drop),
        IpAddr::V6(v6) => advertise(mac, v6, index),
    }
}

/// Builds an ARP request for the address, whose sender is the address itself.
fn arp(mac: [u8; MAC], v4: Ipv4Addr) -> Vec<u8> {
    let mut frame = BROADCAST.to_vec();
    frame.extend(mac);
    frame.extend((libc::ETH_P_ARP as u16).to_be_bytes());
    frame.extend(ARP);
    frame.extend(mac);
    frame.extend(v4.octets());
    frame.extend([0; MAC]);
    frame.extend(v4.octets());
    frame
}

fn advertise(mac: [u8; MAC], v6: Ipv6Addr, index: u32) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.bind(&SocketAddr::from((v6, 0)).into())?;
    socket.set_multicast_if_v6(index)?;
    // Receivers ignore other hop limits, as the message might come from another network (RFC 4861
    // §7.1.2).
    socket.set_multicast_hops_v6(255)?;
    let mut message = ADVERTISEMENT.to_vec();
    message.extend(v6.octets());
    message.extend(TARGET_LINK_LAYER);
    message.extend(mac);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let to = SocketAddrV6::new(all_nodes, 0, 0, index);
    // The kernel adds the checksum.
    socket
        .send_to(&message, &SocketAddr::V6(to).into())
        .map(drop)
}
