//! Encoding of the records of clients (`weir_vfs::grace`). Numbers are big-endian.
//!
//! The first byte of a record is its kind:
//! - 0, 1: an old record without kinds of claims: it consists of this byte and the client's name,
//!   and the client may have had any claim.
//! - 2: fields: tag (1 byte), length (2), bytes. Unknown tags are ignored.
//! - 3: more files of a client: the number of its record (8 bytes), files as in tag 4.
//!
//! Tags:
//! - 1: the client's name: 0 and its owner, or 1 and a hash of one that is too long.
//! - 2: for each kind of claims, the volumes in which it may have any (8 bytes each;
//!   [`PossibleClaims`](weir_vfs::grace::PossibleClaims)).
//! - 3: one address of the client, 4 or 16 bytes. Without any, it may call from anywhere.
//! - 4: files in which it may have claims ([`put_files`]).

use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_base::SipKey;
use weir_vfs::grace::{
    FILE_BYTES, FileKey, Had, Kinds, PossibleClaims, RecordId, files_of, put_files,
};
use weir_vfs::volume::MAX_CLIENT;

const WHOLE: u8 = 0;
const HASHED: u8 = 1;
const FIELDS: u8 = 2;
const MORE: u8 = 3;
const NAME: u8 = 1;
const BOUND: u8 = 2;
const ADDRESS: u8 = 3;
const FILES: u8 = 4;

/// Longest owner that is recorded unchanged; leaves room for the other fields.
const MAX_WHOLE: usize = 768;

/// Maximum number of recorded addresses of a client.
pub(super) const MAX_ADDRESSES: usize = 4;

/// Maximum number of files in a client's record.
const MOST: usize = 48;
/// Maximum number of files in a record of more files.
pub(super) const MORE_FILES: usize = (MAX_CLIENT - 9) / FILE_BYTES;

/// Returns the number of files for which a client's record has room.
pub(super) fn room(name: &[u8]) -> usize {
    let beside = 1 + 3 + name.len() + 3 + 40 + MAX_ADDRESSES * (3 + 16) + 3;
    MOST.min(MAX_CLIENT.saturating_sub(beside) / FILE_BYTES)
}

/// A durable record, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A client.
    Client(ClientRecord),
    /// More files in which the client of a record may have claims.
    More(RecordId, BTreeMap<FileKey, Kinds>),
}

/// A record of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientRecord {
    /// The name under which it is recorded over restarts ([`name`]).
    pub(super) name: Box<[u8]>,
    /// Claims that it may have.
    pub(super) had: Had,
    /// Its addresses; empty if they are unknown.
    pub(super) addresses: Vec<IpAddr>,
}

/// Returns the name under which a client is recorded: its owner, or a hash of a long one.
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
pub(super) fn encode(name: &[u8], had: &Had, addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = vec![FIELDS];
    put(&mut out, NAME, name);
    let words = had.whole.words().map(u64::to_be_bytes);
    put(&mut out, BOUND, words.as_flattened());
    for address in addresses.iter().take(MAX_ADDRESSES) {
        match address {
            IpAddr::V4(v4) => put(&mut out, ADDRESS, &v4.octets()),
            IpAddr::V6(v6) => put(&mut out, ADDRESS, &v6.octets()),
        }
    }
    if !had.files.is_empty() {
        let mut files = Vec::with_capacity(FILE_BYTES * had.files.len());
        put_files(&mut files, &had.files);
        put(&mut out, FILES, &files);
    }
    out
}

/// Encodes a record of at most [`MORE_FILES`] files in which the client of record `of` may have
/// claims.
pub(super) fn encode_more(of: RecordId, files: &[(FileKey, Kinds)]) -> Vec<u8> {
    let mut out = vec![MORE];
    out.extend_from_slice(&of.to_bytes());
    put_files(&mut out, files.iter().map(|(file, kinds)| (file, kinds)));
    out
}

/// Decodes a record; `None` if it is malformed or of an unknown kind.
pub(super) fn decode(record: &[u8], owners: SipKey) -> Option<Entry> {
    let older = |name| {
        let (had, addresses) = (PossibleClaims::ANYWHERE.into(), Vec::new());
        Some(Entry::Client(ClientRecord {
            name,
            had,
            addresses,
        }))
    };
    let rest = match record.split_first()? {
        (&WHOLE, owner) => return older(name(owners, owner)),
        (&HASHED, _) => return older(record.into()),
        (&FIELDS, rest) => rest,
        (&MORE, rest) => {
            let (of, files) = rest.split_first_chunk()?;
            return Some(Entry::More(RecordId::from_bytes(*of), files_of(files)?));
        }
        _ => return None,
    };
    decode_fields(rest).map(Entry::Client)
}

fn decode_fields(mut rest: &[u8]) -> Option<ClientRecord> {
    let (mut named, mut had, mut addresses) =
        (None, Had::from(PossibleClaims::ANYWHERE), Vec::new());
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
                had.whole = PossibleClaims::from_words(words.map(u64::from_be_bytes));
            }
            ADDRESS => {
                let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
                let six = || <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok();
                addresses.extend(four.or_else(six));
            }
            FILES => had.files = files_of(bytes)?,
            _ => {}
        }
    }
    let name = named.filter(|_| rest.is_empty())?;
    Some(ClientRecord {
        name,
        had,
        addresses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Ino, VolumeId};

    fn owners() -> SipKey {
        SipKey::new([7; 16])
    }

    fn file(ino: u64) -> FileKey {
        let (volume, ino) = (VolumeId(u64::MAX), Ino(ino));
        FileKey { volume, ino }
    }

    fn client(record: &[u8]) -> Option<ClientRecord> {
        match decode(record, owners())? {
            Entry::Client(client) => Some(client),
            Entry::More(..) => None,
        }
    }

    #[test]
    fn records_round_trip_and_fit() {
        for owner in [&b"client"[..], &[7; MAX_WHOLE], &[7; MAX_WHOLE + 1]] {
            let name = name(owners(), owner);
            let mut had = Had::from(PossibleClaims::in_volume(Kinds::RANGES, VolumeId(3)));
            let room = room(&name);
            assert!(room >= 6 && (owner.len() > 100 || room >= 40), "{room}");
            for files in [0, room] {
                (0..files as u64).for_each(|ino| had.add(Kinds::OPENS, file(ino), room));
                let (four, six) = ("10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap());
                for addresses in [vec![], vec![four], vec![six; MAX_ADDRESSES]] {
                    let record = encode(&name, &had, &addresses);
                    assert!(record.len() <= MAX_CLIENT);
                    let (name, had) = (name.clone(), had.clone());
                    let expected = Some(ClientRecord {
                        name,
                        had,
                        addresses,
                    });
                    assert_eq!(client(&record), expected);
                    // A field of a later version.
                    let longer = [&record[..], &[99, 0, 1, 1]].concat();
                    assert_eq!(client(&longer), expected);
                }
            }
        }
    }

    #[test]
    fn records_of_more_files_round_trip_and_fit() {
        let id = RecordId::from_bytes([1; 8]);
        let all = (0..MORE_FILES as u64).map(|ino| (file(ino), Kinds::OPENS));
        let files: Vec<_> = all.collect();
        let record = encode_more(id, &files);
        assert!(record.len() <= MAX_CLIENT);
        let expected = Some(Entry::More(id, files.into_iter().collect()));
        assert_eq!(decode(&record, owners()), expected);
        assert_eq!(decode(&record[..record.len() - 1], owners()), None);
    }

    #[test]
    fn a_client_with_an_older_record_may_have_had_any_claim() {
        for owner in [&b"client"[..], &[7; MAX_CLIENT - 1]] {
            let decoded = client(&[&[WHOLE], owner].concat()).unwrap();
            assert_eq!(decoded.name, name(owners(), owner));
            assert_eq!(decoded.had, PossibleClaims::ANYWHERE.into());
            assert!(decoded.addresses.is_empty());
        }
        let hashed = name(owners(), &[7; 1024]);
        let decoded = client(&hashed).unwrap();
        assert_eq!(decoded.name, hashed);
        assert_eq!(decoded.had, PossibleClaims::ANYWHERE.into());
    }

    #[test]
    fn a_record_that_is_cut_off_is_not_understood() {
        let name = name(owners(), b"client");
        let record = encode(&name, &PossibleClaims::ANYWHERE.into(), &[]);
        // Between two fields it is a shorter record.
        let shorter = 1 + 3 + name.len();
        for len in 0..record.len() {
            let decoded = decode(&record[..len], owners());
            assert_eq!(decoded.is_some(), len == shorter, "{len}");
        }
        assert_eq!(decode(&[9, 9], owners()), None);
    }
}
