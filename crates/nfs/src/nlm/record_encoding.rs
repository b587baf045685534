//! Encoding of the records of lock manager and status monitor (`weir_vfs::grace`). Numbers are
//! big-endian. An *address* is 4 and its 4 bytes, or 6 and its 16 bytes.
//!
//! The first byte of a record is its kind:
//! - 1: NSM's state of the last start (4 bytes).
//! - 2: a host that may hold locks and share reservations: its address, length of its name (1
//!   byte), name; the server's addresses that it uses, the latest last.
//! - 3: SM_MON: program, procedure and version to call (4 bytes each), private bytes (16); the rest
//!   is the host's name.
//! - 4: a host that may hold only locks; otherwise as 2.
//! - 5, 6: as 2 and 4, for a host that holds claims in listed files only (kind 7).
//! - 7: an address, and files in which hosts there may have claims ([`put_files`]).

use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_vfs::grace::{FILE_BYTES, FileKey, Kinds, files_of, put_files};
use weir_vfs::volume::MAX_CLIENT;

/// Longest name of a host. DNS has 253 at most (RFC 1035 §2.3.4), Linux 64.
pub(crate) const MAX_NAME: usize = 255;

const STATE: u8 = 1;
const SHARING_HOST: u8 = 2;
const MONITOR: u8 = 3;
const LOCKING_HOST: u8 = 4;
const LISTED_SHARING_HOST: u8 = 5;
const LISTED_LOCKING_HOST: u8 = 6;
const FILES: u8 = 7;
/// Maximum number of files in one record.
pub(super) const MAX_FILES: usize = (MAX_CLIENT - 18) / FILE_BYTES;

/// A lock manager on this machine that wants to be notified of a host's restart (SM_MON).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Monitor {
    pub(crate) host: Vec<u8>,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) private: [u8; 16],
}

/// A decoded durable record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// NSM's state of the last start.
    State(u32),
    /// A host that may hold locks: its address and name, and the server's addresses that it uses.
    Host {
        address: IpAddr,
        name: Vec<u8>,
        locals: Vec<IpAddr>,
        /// True if it may hold share reservations, too.
        shares: bool,
        /// True if it holds claims in listed files only.
        listed: bool,
    },
    /// Files in which hosts at an address may have claims.
    Files(IpAddr, BTreeMap<FileKey, Kinds>),
    Monitor(Monitor),
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend_from_slice(&v6.octets());
        }
    }
}

pub(super) fn state(state: u32) -> Vec<u8> {
    let mut out = vec![STATE];
    out.extend_from_slice(&state.to_be_bytes());
    out
}

/// Returns the record of a host whose name has [`MAX_NAME`] bytes at most, and which may have
/// claims in any file.
pub(super) fn host(address: IpAddr, name: &[u8], locals: &[IpAddr], shares: bool) -> Vec<u8> {
    let kind = if shares { SHARING_HOST } else { LOCKING_HOST };
    host_of(kind, address, name, locals)
}

/// Returns the record of a host that has claims in listed files only.
pub(super) fn listed(address: IpAddr, name: &[u8], locals: &[IpAddr], shares: bool) -> Vec<u8> {
    let kind = if shares {
        LISTED_SHARING_HOST
    } else {
        LISTED_LOCKING_HOST
    };
    host_of(kind, address, name, locals)
}

/// Returns a record of [`MAX_FILES`] files at most in which hosts at an address may have claims.
pub(super) fn files(address: IpAddr, files: &[(FileKey, Kinds)]) -> Vec<u8> {
    let mut out = vec![FILES];
    put_address(&mut out, address);
    put_files(&mut out, files.iter().map(|(file, kinds)| (file, kinds)));
    out
}

fn host_of(kind: u8, address: IpAddr, name: &[u8], locals: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + name.len() + 17 * locals.len());
    out.push(kind);
    put_address(&mut out, address);
    assert!(name.len() <= MAX_NAME, "a name that was to be refused");
    out.push(name.len() as u8);
    out.extend_from_slice(name);
    for local in locals {
        put_address(&mut out, *local);
    }
    out
}

pub(super) fn monitor(m: &Monitor) -> Vec<u8> {
    let mut out = vec![MONITOR];
    for number in [m.program, m.procedure, m.version] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(&m.private);
    out.extend_from_slice(&m.host);
    out
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.fixed().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_be_bytes)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.byte()? {
            4 => self.fixed::<4>().map(IpAddr::from),
            6 => self.fixed::<16>().map(IpAddr::from),
            _ => None,
        }
    }
}

/// Decodes a record; `None` if it is malformed or of an unknown kind.
pub(super) fn decode(record: &[u8]) -> Option<Entry> {
    let mut r = In(record);
    let kind = r.byte()?;
    match kind {
        STATE => {
            let state = r.number()?;
            r.0.is_empty().then_some(Entry::State(state))
        }
        SHARING_HOST | LOCKING_HOST | LISTED_SHARING_HOST | LISTED_LOCKING_HOST => {
            let address = r.address()?;
            let len = r.byte()?;
            let name = r.bytes(usize::from(len))?.to_vec();
            let mut locals = Vec::new();
            while !r.0.is_empty() {
                locals.push(r.address()?);
            }
            Some(Entry::Host {
                address,
                name,
                locals,
                shares: matches!(kind, SHARING_HOST | LISTED_SHARING_HOST),
                listed: matches!(kind, LISTED_SHARING_HOST | LISTED_LOCKING_HOST),
            })
        }
        FILES => Some(Entry::Files(r.address()?, files_of(r.0)?)),
        MONITOR => Some(Entry::Monitor(Monitor {
            program: r.number()?,
            procedure: r.number()?,
            version: r.number()?,
            private: r.fixed()?,
            host: r.0.to_vec(),
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Ino, VolumeId};

    #[test]
    fn records_round_trip_and_fit() {
        let (four, six) = ("10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap());
        let longest = vec![7; MAX_NAME];
        for (address, name, locals) in [
            (four, &b"alpha"[..], vec![four]),
            (six, &b""[..], vec![]),
            (six, &longest[..], vec![six; 4]),
        ] {
            for (shares, listed) in [(false, false), (true, false), (false, true), (true, true)] {
                let record = match listed {
                    true => super::listed(address, name, &locals, shares),
                    false => host(address, name, &locals, shares),
                };
                assert!(record.len() <= MAX_CLIENT);
                let (name, locals) = (name.to_vec(), locals.clone());
                let expected = Entry::Host {
                    address,
                    name,
                    locals,
                    shares,
                    listed,
                };
                assert_eq!(decode(&record), Some(expected));
            }
        }
        let key = |ino| FileKey {
            volume: VolumeId(1),
            ino: Ino(ino),
        };
        let held: Vec<_> = (0..MAX_FILES as u64)
            .map(|n| (key(n), Kinds::RANGES))
            .collect();
        let record = files(six, &held);
        assert!(record.len() <= MAX_CLIENT);
        let expected = Entry::Files(six, held.into_iter().collect());
        assert_eq!(decode(&record), Some(expected));
        assert_eq!(decode(&state(7)), Some(Entry::State(7)));
        let m = Monitor {
            host: longest,
            program: 1,
            version: 2,
            procedure: 3,
            private: [4; 16],
        };
        assert!(monitor(&m).len() <= MAX_CLIENT);
        assert_eq!(decode(&monitor(&m)), Some(Entry::Monitor(m)));
    }

    #[test]
    fn what_is_cut_off_is_not_understood() {
        let address = "10.0.0.1".parse().unwrap();
        let whole = host(address, b"alpha", &[address], false);
        // Between two addresses it is a shorter record.
        let shorter = whole.len() - 5;
        for len in 0..whole.len() {
            assert_eq!(decode(&whole[..len]).is_some(), len == shorter, "{len}");
        }
        for bytes in [
            &[][..],
            &[9],
            &[STATE, 1],
            &[STATE, 0, 0, 0, 1, 1],
            &[SHARING_HOST, 5],
        ] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
