//! Encoding of oplocks and leases (MS-SMB2 §2.2.13, §2.2.13.2.8, §2.2.13.2.10, §2.2.14.2.10,
//! §2.2.23): requests of clients, responses and breaks.

use crate::proto::header::{HEADER, PROTOCOL, command, flag};
use std::sync::Arc;
use weir_auth::wire::{DecodeError, Put, Reader};
use weir_vfs::claims::{CacheRights, Client, Owner, OwnerId};

/// Oplock levels (§2.2.13).
pub mod level {
    /// No oplock.
    pub const NONE: u8 = 0;
    /// Others may read as well.
    pub const II: u8 = 1;
    /// Reads and writes are cached.
    pub const EXCLUSIVE: u8 = 8;
    /// Closes as well.
    pub const BATCH: u8 = 9;
    /// A lease says it.
    pub const LEASE: u8 = 0xff;
}

/// SMB2_LEASE_FLAG_BREAK_IN_PROGRESS and SMB2_LEASE_FLAG_PARENT_LEASE_KEY_SET (§2.2.13.2.10).
pub const BREAK_IN_PROGRESS: u32 = 2;
pub const PARENT_KEY_SET: u32 = 4;
/// SMB2_NOTIFY_BREAK_LEASE_FLAG_ACK_REQUIRED (§2.2.23.2).
const ACK_REQUIRED: u32 = 1;

/// Bytes of SMB2_CREATE_REQUEST_LEASE and SMB2_CREATE_REQUEST_LEASE_V2 (§2.2.13.2.8, §2.2.13.2.10).
const FIRST_LEN: usize = 32;
const SECOND_LEN: usize = 52;

/// The bits of a lease on the wire: R 1, H 2, W 4 (§2.2.13.2.8).
pub fn to_wire(caching: CacheRights) -> u32 {
    u32::from(caching.any(CacheRights::READ))
        | u32::from(caching.any(CacheRights::HANDLE)) << 1
        | u32::from(caching.any(CacheRights::WRITE)) << 2
}

/// Decodes the LeaseState bits of a lease.
pub fn from_wire(bits: u32) -> CacheRights {
    let mut out = CacheRights::NONE;
    for (bit, caching) in [
        (1, CacheRights::READ),
        (2, CacheRights::HANDLE),
        (4, CacheRights::WRITE),
    ] {
        if bits & bit != 0 {
            out = out | caching;
        }
    }
    out
}

/// Returns the caching rights of an oplock level.
pub fn of_level(level: u8) -> CacheRights {
    match level {
        level::II => CacheRights::READ,
        level::EXCLUSIVE => CacheRights::READ | CacheRights::WRITE,
        level::BATCH => CacheRights::ALL,
        _ => CacheRights::NONE,
    }
}

/// Returns the oplock level for a set of caching rights. A set that no level matches is rounded
/// down to the next level.
pub fn level_of(caching: CacheRights) -> u8 {
    match caching {
        c if c == CacheRights::ALL => level::BATCH,
        c if c == CacheRights::READ | CacheRights::WRITE => level::EXCLUSIVE,
        c if c.any(CacheRights::READ) => level::II,
        _ => level::NONE,
    }
}

/// A lease that is asked for (§2.2.13.2.8, §2.2.13.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The key.
    pub key: [u8; 16],
    /// The caching rights that the client asks for.
    pub caching: CacheRights,
    /// Version 2 only: the key of the lease on the directory, if the client has one, and the epoch.
    pub second: Option<(Option<[u8; 16]>, u16)>,
}

impl LeaseRequest {
    /// Decodes the data of the create context, whose length says its version.
    ///
    /// # Errors
    /// Neither version has this length.
    pub fn decode(data: &[u8]) -> Result<LeaseRequest, DecodeError> {
        let mut r = Reader::new(data);
        let (key, bits, flags) = (r.array()?, r.u32()?, r.u32()?);
        r.u64()?;
        let second = match data.len() {
            FIRST_LEN => None,
            SECOND_LEN => {
                let parent = Some(r.array()?).filter(|_| flags & PARENT_KEY_SET != 0);
                Some((parent, r.u16()?))
            }
            _ => return Err(DecodeError),
        };
        // Without R there is no lease, and no other bit exists.
        let caching = match bits & 1 != 0 && bits < 8 {
            true => from_wire(bits),
            false => CacheRights::NONE,
        };
        Ok(LeaseRequest {
            key,
            caching,
            second,
        })
    }

    /// Returns the lease as a directory can have it: version 2, without W. `None` for version 1.
    #[must_use]
    pub fn of_directory(self) -> Option<LeaseRequest> {
        let caching = self.caching & !CacheRights::WRITE;
        self.second.map(|_| LeaseRequest { caching, ..self })
    }

    /// Returns the holder of the client's lease on the directory, if the client says that it has
    /// one.
    pub fn parent(&self, client: &Client) -> Option<Owner> {
        let key = self.second.and_then(|(parent, _)| parent)?;
        Some(directory_holder(client, &key))
    }

    /// Returns true for version 2, the only one that directories can have.
    pub fn is_second(&self) -> bool {
        self.second.is_some()
    }

    /// Appends a lease's key and version to a record, or a mark that there is no lease.
    pub fn record(wanted: Option<&LeaseRequest>, out: &mut Vec<u8>) {
        let Some(wanted) = wanted else {
            out.put_u8(0);
            return;
        };
        match wanted.second {
            None => out.put_u8(1),
            Some((None, _)) => out.put_u8(2),
            Some((Some(parent), _)) => {
                out.put_u8(3);
                out.put(&parent);
            }
        }
        out.put(&wanted.key);
    }

    /// Decodes a lease from a record. It asks for all caching rights.
    ///
    /// # Errors
    /// The record is malformed.
    pub fn recorded(r: &mut Reader<'_>) -> Result<Option<LeaseRequest>, DecodeError> {
        let second = match r.u8()? {
            0 => return Ok(None),
            1 => None,
            2 => Some((None, 0)),
            3 => Some((Some(r.array()?), 0)),
            _ => return Err(DecodeError),
        };
        Ok(Some(LeaseRequest {
            key: r.array()?,
            caching: CacheRights::ALL,
            second,
        }))
    }
}

/// Returns the holder of a client's lease on a directory under this key.
pub fn directory_holder(client: &Client, key: &[u8; 16]) -> Owner {
    Owner {
        client: client.clone(),
        who: OwnerId::Opaque(Arc::from(&key[..])),
        shown: Arc::default(),
    }
}

/// Encodes the break of a lease from its current caching rights to those that remain.
pub fn lease_break(
    key: &[u8; 16],
    epoch: u16,
    (from, to): (CacheRights, CacheRights),
    answer: bool,
) -> Vec<u8> {
    let mut out = head(0);
    out.put_u16(44);
    out.put_u16(epoch);
    out.put_u32(if answer { ACK_REQUIRED } else { 0 });
    out.put(key);
    out.put_u32(to_wire(from));
    out.put_u32(to_wire(to));
    out.put_zeroes(12);
    out
}

/// The break of the oplock of a session's open to a level.
pub fn oplock_break(session: u64, open: u64, to: u8) -> Vec<u8> {
    let mut out = head(session);
    out.put_u16(24);
    out.put_u8(to);
    out.put_zeroes(5);
    out.put_u64(open);
    out.put_u64(open);
    out
}

/// The header of a message that nobody asked for (§3.3.4.6).
fn head(session: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + 44);
    out.put(&PROTOCOL);
    out.put_u16(HEADER as u16);
    out.put_zeroes(6);
    out.put_u16(command::OPLOCK_BREAK);
    out.put_u16(0);
    out.put_u32(flag::RESPONSE);
    out.put_u32(0);
    out.put_u64(u64::MAX);
    out.put_zeroes(8);
    out.put_u64(session);
    out.put_zeroes(16);
    out
}
