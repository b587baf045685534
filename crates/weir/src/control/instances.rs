//! Addresses of the server that are for single Filestore instances (`--instance-addresses`).
//!
//! Clients mount an instance's share as `IP:/SHARE`, and most instances' shares have the same name.
//! So each instance has an address, where its share is the only export ([`weir_vfs::Scope`]). The
//! server listens at all of them from the start, at NFS's port: an instance that is created later
//! needs nothing to be opened. An address may come to this machine later, too, as those of a pair
//! do (`weir pair create --address`).

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context as _, Result};
use weir_base::network::AddressBlock;
use weir_net::{self as net, ReservedAddress};
use weir_node::port;

use crate::cli::Serve;
use crate::cli::endpoint::ApiAddress;
use crate::cli::usage;

/// Checks that the addresses are not those of the server itself.
///
/// # Errors
/// One of them is.
pub fn check(args: &Serve) -> Result<()> {
    let Some(block) = args.instance_addresses else {
        return Ok(());
    };
    let api = match args.api {
        ApiAddress::At(at) => Some(("--api", at)),
        ApiAddress::Off => None,
    };
    for (option, at) in [("--nfs", args.nfs)].into_iter().chain(api) {
        if block.contains(at.ip()) {
            return Err(usage::error(anyhow::anyhow!(
                "--instance-addresses {block} contains {}, which is the server's own address ({option}); use addresses \
                 that nothing else is at",
                at.ip()
            )));
        }
    }
    Ok(())
}

/// Takes all addresses of the block, at the port of `nfs`; none if `nfs` is for all addresses of
/// this machine anyway.
///
/// # Errors
/// One is in use.
pub fn reserve(block: Option<AddressBlock>, nfs: SocketAddr) -> Result<Vec<ReservedAddress>> {
    if nfs.ip().is_unspecified() {
        return Ok(Vec::new());
    }
    let hosts = block.into_iter().flat_map(|block| block.hosts());
    let taken = hosts.map(|host| {
        let wanted = SocketAddr::new(host, nfs.port());
        net::reserve(wanted, true).map_err(|error| {
            let next = "stop it, or pass other --instance-addresses";
            port::refused(wanted, "NFS", next, &error)
        })
    });
    taken.collect()
}

/// Logs which addresses this machine lacks, with what to do.
pub fn report(block: AddressBlock) {
    let missing: Vec<IpAddr> = block.hosts().filter(|host| !is_here(*host)).collect();
    let Some(first) = missing.first() else {
        return;
    };
    tracing::warn!(
        "{} of the addresses {block} are not on this machine, {first} the first: clients do not reach instances there \
         (ip address add {first}/{} dev INTERFACE, or for all: ip route add local {block} dev lo)",
        missing.len(),
        if first.is_ipv4() { 32 } else { 128 },
    );
}

/// Returns true if this machine has the address.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Starts to listen at the reserved addresses.
///
/// # Errors
/// Another socket listens at one of the addresses.
pub fn listen(reserved: Vec<ReservedAddress>) -> Result<Vec<std::net::TcpListener>> {
    let listening = reserved.into_iter().map(|reserved| {
        let at = reserved.address();
        reserved
            .listen()
            .with_context(|| format!("cannot listen on {at}"))
    });
    listening.collect()
}
