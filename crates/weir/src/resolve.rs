//! The system's resolver, for export rules that use names: /etc/hosts, DNS, and whatever else nsswitch.conf says.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::Arc;

use anyhow::{Context, Result};
use socket2::SockAddr;
use weir_vfs::Vfs;
use weir_vfs::names::{Resolver, Unavailable};

/// Lookups at once. One that hangs (a name server that is gone takes half a minute) must not hold up all others;
/// more threads would only ask the same server.
const THREADS: usize = 4;

/// Longest name that is taken (NI_MAXHOST of <netdb.h>).
const LONGEST: usize = 1025;

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
        // A name with a NUL in it has no addresses.
        let Ok(name) = CString::new(name) else {
            return Ok(Vec::new());
        };
        // SAFETY: all-zero is a valid value of this C struct: no flags, any family.
        let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
        hints.ai_socktype = libc::SOCK_STREAM;
        let mut list = ptr::null_mut();
        // SAFETY: `name` is a C string, `hints` is initialised, and `list` is a place for the result.
        match unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &hints, &mut list) } {
            0 => {}
            libc::EAI_NONAME | libc::EAI_NODATA => return Ok(Vec::new()),
            _ => return Err(Unavailable),
        }
        let mut found = Vec::new();
        let mut next = list;
        // SAFETY: `next` is null or one of the entries that `list` begins, which live until they are freed below.
        while let Some(entry) = unsafe { next.as_ref() } {
            found.extend(address(entry));
            next = entry.ai_next;
        }
        // SAFETY: `list` came from getaddrinfo and is not used after this.
        unsafe { libc::freeaddrinfo(list) };
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn name(&self, address: IpAddr) -> Result<Option<String>, Unavailable> {
        let address = SockAddr::from(SocketAddr::new(address, 0));
        let mut name = [0u8; LONGEST];
        // SAFETY: the address has the length that goes with it; the result is at most as long as its buffer.
        let outcome = unsafe {
            libc::getnameinfo(
                address.as_ptr().cast(),
                address.len(),
                name.as_mut_ptr().cast(),
                LONGEST as libc::socklen_t,
                ptr::null_mut(),
                0,
                libc::NI_NAMEREQD,
            )
        };
        match outcome {
            0 => {
                let name = CStr::from_bytes_until_nul(&name).map_err(|_| Unavailable)?;
                Ok(name.to_str().ok().map(str::to_owned))
            }
            libc::EAI_NONAME | libc::EAI_NODATA => Ok(None),
            _ => Err(Unavailable),
        }
    }
}

fn address(entry: &libc::addrinfo) -> Option<IpAddr> {
    // SAFETY: `try_init` hands out zeroed storage that is large enough for any address; at most that much is copied.
    let outcome = unsafe {
        SockAddr::try_init(|storage, len| {
            let bytes = entry.ai_addrlen.min(*len);
            ptr::copy_nonoverlapping(
                entry.ai_addr.cast::<u8>(),
                storage.cast::<u8>(),
                bytes as usize,
            );
            *len = bytes;
            Ok(())
        })
    };
    let ((), address) = outcome.ok()?;
    address.as_socket().map(|address| address.ip())
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
