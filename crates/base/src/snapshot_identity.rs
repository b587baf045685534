//! The identity of a snapshot, which it keeps in every copy.
//!
//! A snapshot keeps the identity of its first creation through any number of copies. Each part is a
//! field of its own and is never added to another. Identities of volumes in one aggregate differ in
//! only a few low bits, so arithmetic on them could make the identities of two snapshots equal.
//!
//! The time of birth distinguishes snapshots with equal numbers: an aggregate restored from an
//! older image of its device gives out numbers for a second time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use crate::{AggregateId, Time, VolumeId};

/// Place and time of a snapshot's first creation. Two snapshots with the same identity are meant to
/// have the same contents; their content hashes show whether they do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SnapshotIdentity {
    /// The aggregate in which it was first made.
    pub aggregate: AggregateId,
    /// The volume's number in the aggregate.
    pub volume: VolumeId,
    /// The snapshot's number in the volume.
    pub snapshot: u32,
    /// Its time of creation.
    pub birth: Time,
}

impl SnapshotIdentity {
    /// Length of an encoded identity in bytes.
    pub const LEN: usize = 40;

    /// Encodes the identity for storage and transfer: aggregate (16), volume (8), snapshot (4),
    /// seconds (8, signed) and nanoseconds (4) of birth, little-endian.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let (aggregate, rest) = out.split_at_mut(16);
        let (volume, rest) = rest.split_at_mut(8);
        let (snapshot, rest) = rest.split_at_mut(4);
        let (secs, nanos) = rest.split_at_mut(8);
        aggregate.copy_from_slice(&self.aggregate.0);
        volume.copy_from_slice(&self.volume.0.to_le_bytes());
        snapshot.copy_from_slice(&self.snapshot.to_le_bytes());
        secs.copy_from_slice(&self.birth.secs.to_le_bytes());
        nanos.copy_from_slice(&self.birth.nanos.to_le_bytes());
        out
    }

    /// Decodes an identity encoded by [`SnapshotIdentity::encode`]; `None` if the nanoseconds are a
    /// second or more.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Option<SnapshotIdentity> {
        let (aggregate, rest) = bytes.split_first_chunk()?;
        let (volume, rest) = rest.split_first_chunk()?;
        let (snapshot, rest) = rest.split_first_chunk()?;
        let (secs, rest) = rest.split_first_chunk()?;
        let (nanos, _) = rest.split_first_chunk()?;
        let nanos = u32::from_le_bytes(*nanos);
        (nanos < 1_000_000_000).then(|| SnapshotIdentity {
            aggregate: AggregateId(*aggregate),
            volume: VolumeId(u64::from_le_bytes(*volume)),
            snapshot: u32::from_le_bytes(*snapshot),
            birth: Time {
                secs: i64::from_le_bytes(*secs),
                nanos,
            },
        })
    }

    /// Returns a UUID: version 8 (RFC 9562 section 5.8), of the SHA-256 of all fields.
    pub fn uuid(&self) -> [u8; 16] {
        let sum = Sha256::digest(self.encode());
        let mut uuid = [0; 16];
        for (byte, of) in uuid.iter_mut().zip(sum) {
            *byte = of;
        }
        uuid[6] = uuid[6] & 0x0F | 0x80;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }
}

impl fmt::Display for SnapshotIdentity {
    /// Formats `AGGREGATE/VOLUME/SNAPSHOT/SECONDS.NANOSECONDS`, the aggregate as a UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SnapshotIdentity {
            aggregate,
            volume,
            snapshot,
            birth,
        } = self;
        let (volume, secs, nanos) = (volume.0, birth.secs, birth.nanos);
        write!(f, "{aggregate}/{volume}/{snapshot}/{secs}.{nanos:09}")
    }
}

/// The error for a text that is not an identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoIdentity;

impl fmt::Display for NoIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the identity of a snapshot: AGGREGATE/VOLUME/SNAPSHOT/BIRTH is wanted")
    }
}

impl std::error::Error for NoIdentity {}

impl FromStr for SnapshotIdentity {
    type Err = NoIdentity;

    /// Parses exactly the format of [`fmt::Display`].
    fn from_str(text: &str) -> Result<SnapshotIdentity, NoIdentity> {
        let read = || {
            let mut parts = text.split('/');
            let digits: String = parts.next()?.chars().filter(|c| *c != '-').collect();
            let aggregate = u128::from_str_radix(&digits, 16).ok()?.to_be_bytes();
            let volume = parts.next()?.parse().ok()?;
            let snapshot = parts.next()?.parse().ok()?;
            let (secs, nanos) = parts.next()?.split_once('.')?;
            Some(SnapshotIdentity {
                aggregate: AggregateId(aggregate),
                volume: VolumeId(volume),
                snapshot,
                birth: Time {
                    secs: secs.parse().ok()?,
                    nanos: nanos.parse().ok().filter(|n| *n < 1_000_000_000)?,
                },
            })
        };
        let found = read().ok_or(NoIdentity)?;
        match found.to_string() == text {
            true => Ok(found),
            false => Err(NoIdentity),
        }
    }
}

impl Serialize for SnapshotIdentity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SnapshotIdentity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SnapshotIdentity {
        SnapshotIdentity {
            aggregate: AggregateId([0xA5; 16]),
            volume: VolumeId(2),
            snapshot: 7,
            birth: Time { secs: -9, nanos: 5 },
        }
    }

    #[test]
    fn identities_come_back_from_bytes_and_from_text() {
        let id = sample();
        assert_eq!(SnapshotIdentity::decode(&id.encode()), Some(id));
        assert_eq!(
            id.to_string(),
            "a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5/2/7/-9.000000005"
        );
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "a5", "a5/2/7/1.0", "-/2/7/-9.000000005"] {
            assert_eq!(
                wrong.parse::<SnapshotIdentity>(),
                Err(NoIdentity),
                "{wrong}"
            );
        }
        let mut bytes = id.encode();
        bytes[36..].copy_from_slice(&1_000_000_000u32.to_le_bytes());
        assert_eq!(SnapshotIdentity::decode(&bytes), None);
    }

    /// A difference in any field makes another snapshot, even if two differences would cancel in a
    /// sum or in an exclusive or.
    #[test]
    fn no_two_fields_make_up_for_each_other() {
        let mut all = std::collections::BTreeSet::new();
        let mut uuids = std::collections::BTreeSet::new();
        for volume in 0..16 {
            for snapshot in 0..16 {
                for secs in 0..2 {
                    let id = SnapshotIdentity {
                        volume: VolumeId(volume),
                        snapshot,
                        birth: Time { secs, nanos: 0 },
                        ..sample()
                    };
                    assert!(all.insert(id) && uuids.insert(id.uuid()), "{id}");
                }
            }
        }
    }
}
