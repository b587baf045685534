//! The system's resolver, for export rules with names: /etc/hosts, DNS, and the other sources of
//! nsswitch.conf.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo, getnameinfo};
use weir_base::limits::net::NAME_THREADS as THREADS;
use weir_vfs::Vfs;
use weir_vfs::names::{Resolver, Unavailable};

/// Starts answering what the export rules of `vfs` need to know. The threads end with the process.
pub fn start(vfs: &Arc<Vfs>) -> Result<()> {
    for _ in 0..THREADS {
        let vfs = Arc::clone(vfs);
        std::thread::Builder::new()
            .name("weir-names".to_owned())
            .spawn(move || vfs.names.serve(&System))
            .context("starting a thread")?;
    }
    Ok(())
}

struct System;

impl Resolver for System {
    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unavailable> {
        let hints = AddrInfoHints {
            socktype: SockType::Stream.into(),
            ..AddrInfoHints::default()
        };
        match getaddrinfo(Some(name), None, Some(hints)) {
            Ok(list) => {
                let mut found: Vec<IpAddr> = list.flatten().map(|a| a.sockaddr.ip()).collect();
                found.sort_unstable();
                found.dedup();
                Ok(found)
            }
            Err(error) => unknown(error.kind(), Vec::new()),
        }
    }

    fn name(&self, address: IpAddr) -> Result<Option<String>, Unavailable> {
        let flags = libc::NI_NAMEREQD | libc::NI_NUMERICSERV;
        match getnameinfo(&SocketAddr::new(address, 0), flags) {
            Ok((name, _)) => Ok(Some(name)),
            Err(error) => unknown(error.kind(), None),
        }
    }
}

/// Tells an unknown name, which yields `nothing`, from a resolver that did not reply. `IO` is a
/// name with a NUL, or not in UTF-8.
fn unknown<T>(kind: LookupErrorKind, nothing: T) -> Result<T, Unavailable> {
    match kind {
        LookupErrorKind::NoName | LookupErrorKind::NoData | LookupErrorKind::IO => Ok(nothing),
        _ => Err(Unavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_has_its_name() {
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(System.addresses("localhost").unwrap().contains(&here));
        assert_eq!(System.addresses("127.0.0.1").unwrap(), [here]);
        assert!(System.addresses("a\0b").unwrap().is_empty());
        let name = System.name(here).unwrap().unwrap();
        assert!(System.addresses(&name).unwrap().contains(&here), "{name}");
    }
}
