//! The bytes of what is recorded of a client (`weir_vfs::grace`). Numbers are big-endian.
//!
//! | Kind (1 byte) | Then |
//! |--:|---|
//! | 0, 1 | a record of before kinds of claims were recorded: with the kind it is the client's name, and it may have had any claim |
//! | 2 | fields: tag (1), length (2), bytes. Unknown tags are ignored |
//!
//! | Tag | Bytes |
//! |--:|---|
//! | 1 | the client's name: 0 and its owner, or 1 and a hash of one that is too long |
//! | 2 | for each kind of claims, the volumes in which it may have some (8 each; [`Bound`]) |
//! | 3 | an address that it has, 4 or 16 bytes; a field for each. Without any, it may come from anywhere |

use std::net::IpAddr;
use weir_base::SipKey;
use weir_vfs::grace::Bound;

const WHOLE: u8 = 0;
const HASHED: u8 = 1;
const FIELDS: u8 = 2;
const NAME: u8 = 1;
const BOUND: u8 = 2;
const ADDRESS: u8 = 3;

/// Longest owner that is recorded as it is: leaves room for the other fields.
const MAX_WHOLE: usize = 768;

/// Addresses of a client that are known and recorded.
pub(super) const MAX_ADDRESSES: usize = 4;

/// A record of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// The name that it keeps over restarts ([`name`]).
    pub(super) name: Box<[u8]>,
    /// Claims that it may have.
    pub(super) bound: Bound,
    /// Its addresses; empty if they are not known.
    pub(super) addresses: Vec<IpAddr>,
}

/// Returns the name that a client keeps over restarts: its owner, or a hash of a long one.
pub(super) fn name(owners: SipKey, owner: &[u8]) -> Box<[u8]> {
    let name = if owner.len() <= MAX_WHOLE {
        [&[WHOLE], owner].concat()
    } else {
        let hash = owners.hash128(&[b"client", owner]);
        [&[HASHED][..], &hash.to_be_bytes()].concat()
    };
    name.into()
}

fn put(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Encodes the record of a client, of [`MAX_CLIENT`](weir_vfs::volume::MAX_CLIENT) bytes at most.
pub(super) fn encode(name: &[u8], bound: &Bound, addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = vec![FIELDS];
    put(&mut out, NAME, name);
    let words = bound.words().map(u64::to_be_bytes);
    put(&mut out, BOUND, words.as_flattened());
    for address in addresses.iter().take(MAX_ADDRESSES) {
        match address {
            IpAddr::V4(v4) => put(&mut out, ADDRESS, &v4.octets()),
            IpAddr::V6(v6) => put(&mut out, ADDRESS, &v6.octets()),
        }
    }
    out
}

/// Returns `None` for a record that is not understood.
pub(super) fn decode(record: &[u8], owners: SipKey) -> Option<Recorded> {
    let older = |name| {
        let (bound, addresses) = (Bound::ANYWHERE, Vec::new());
        Some(Recorded {
            name,
            bound,
            addresses,
        })
    };
    let mut rest = match record.split_first()? {
        (&WHOLE, owner) => return older(name(owners, owner)),
        (&HASHED, _) => return older(record.into()),
        (&FIELDS, rest) => rest,
        _ => return None,
    };
    let (mut named, mut bound, mut addresses) = (None, Bound::ANYWHERE, Vec::new());
    while let Some((&[tag, high, low], behind)) = rest.split_first_chunk() {
        let length = u16::from_be_bytes([high, low]);
        let (bytes, behind) = behind.split_at_checked(length.into())?;
        rest = behind;
        match tag {
            NAME => named = Some(bytes.into()),
            BOUND => {
                let words = bytes
                    .chunks_exact(8)
                    .filter_map(|word| word.try_into().ok());
                bound = Bound::from_words(words.map(u64::from_be_bytes));
            }
            ADDRESS => {
                let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
                let six = || <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok();
                addresses.extend(four.or_else(six));
            }
            _ => {}
        }
    }
    let name = named.filter(|_| rest.is_empty())?;
    Some(Recorded {
        name,
        bound,
        addresses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::VolumeId;
    use weir_vfs::grace::Kinds;
    use weir_vfs::volume::MAX_CLIENT;

    fn owners() -> SipKey {
        SipKey::new([7; 16])
    }

    #[test]
    fn records_round_trip_and_fit() {
        for owner in [&b"client"[..], &[7; MAX_WHOLE], &[7; MAX_WHOLE + 1]] {
            let name = name(owners(), owner);
            let bound = Bound::of(Kinds::RANGES, VolumeId(3));
            let (four, six) = ("10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap());
            for addresses in [vec![], vec![four], vec![six; MAX_ADDRESSES]] {
                let record = encode(&name, &bound, &addresses);
                assert!(record.len() <= MAX_CLIENT);
                let name = name.clone();
                let expected = Some(Recorded {
                    name,
                    bound,
                    addresses,
                });
                assert_eq!(decode(&record, owners()), expected);
                // A field of a later version.
                let longer = [&record[..], &[99, 0, 1, 1]].concat();
                assert_eq!(decode(&longer, owners()), expected);
            }
        }
    }

    #[test]
    fn a_client_with_an_older_record_may_have_had_any_claim() {
        for owner in [&b"client"[..], &[7; MAX_CLIENT - 1]] {
            let decoded = decode(&[&[WHOLE], owner].concat(), owners()).unwrap();
            assert_eq!(decoded.name, name(owners(), owner));
            assert_eq!(decoded.bound, Bound::ANYWHERE);
            assert!(decoded.addresses.is_empty());
        }
        let hashed = name(owners(), &[7; 1024]);
        let decoded = decode(&hashed, owners()).unwrap();
        assert_eq!((decoded.name, decoded.bound), (hashed, Bound::ANYWHERE));
    }

    #[test]
    fn a_record_that_is_cut_off_is_not_understood() {
        let name = name(owners(), b"client");
        let record = encode(&name, &Bound::ANYWHERE, &[]);
        // Between two fields it is a shorter record.
        let shorter = 1 + 3 + name.len();
        for len in 0..record.len() {
            let decoded = decode(&record[..len], owners());
            assert_eq!(decoded.is_some(), len == shorter, "{len}");
        }
        assert_eq!(decode(&[9, 9], owners()), None);
    }
}
