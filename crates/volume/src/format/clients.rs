//! Stored form of client records ([`crate::overlay::clients`] has them in memory).

use crate::format::codec::Reader;
pub use weir_base::limits::engine::{
    MAX_CLIENT_RECORD as MAX_CLIENT, MAX_CLIENT_RECORDS as MAX_CLIENTS,
};

pub(crate) const VERSION: u8 = 1;

/// Decodes the record in a value of the tree.
pub(crate) fn decode(value: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(value);
    if r.u8()? != VERSION {
        return None;
    }
    let record = r.rest();
    (1..=MAX_CLIENT).contains(&record.len()).then_some(record)
}

/// Encodes a value of the tree.
pub(crate) fn encode(record: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + record.len());
    out.push(VERSION);
    out.extend_from_slice(record);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        for len in [1, 7, MAX_CLIENT] {
            let record = vec![9; len];
            let value = encode(&record);
            assert!(value.len() <= weir_base::limits::MAX_VALUE);
            assert_eq!(decode(&value), Some(&*record));
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&encode(&[])), None);
        assert_eq!(decode(&encode(&vec![1; MAX_CLIENT + 1])), None);
        assert_eq!(decode(&[2, 1, 1]), None);
    }
}
