use super::*;
use crate::rpc::xdr::Put;
use proptest::prelude::*;

fn stateid(out: &mut Vec<u8>) {
    out.put_u32(7);
    out.put_fixed(&[9; 12]);
}

#[test]
fn a_write_is_decoded_in_place() {
    let mut out = Vec::new();
    stateid(&mut out);
    out.put_u64(4096);
    out.put_u32(2);
    out.put_opaque(b"data!");
    let mut r = Reader::new(&out);
    let Ok(Args::Write(write)) = decode(1, 38, &mut r) else {
        panic!("not a WRITE");
    };
    assert_eq!(
        (write.offset, write.stable, write.data),
        (4096, Stability::FileSync, &b"data!"[..])
    );
    assert!(r.rest().is_empty());
}

#[test]
fn an_open_with_everything_is_decoded() {
    let mut out = Vec::new();
    for word in [0, 3, 0] {
        out.put_u32(word);
    }
    out.put_u64(5);
    out.put_opaque(b"owner");
    // CREATE, EXCLUSIVE4_1, with the mode; CLAIM_NULL.
    out.put_u32(1);
    out.put_u32(3);
    out.put_fixed(&[1; 8]);
    Bitmap::from_numbers(&[33]).put(&mut out);
    out.put_opaque(&0o644u32.to_be_bytes());
    out.put_u32(0);
    out.put_opaque(b"name");
    let mut r = Reader::new(&out);
    let Ok(Args::Open(open)) = decode(2, 18, &mut r) else {
        panic!("not an OPEN");
    };
    assert_eq!((open.access, open.owner), (3, &b"owner"[..]));
    assert_eq!(open.claim, Claim::Null(b"name"));
    assert!(matches!(open.how, OpenFlag::ExclusiveWith([1, ..], attrs) if attrs.mask.contains(33)));
    assert!(r.rest().is_empty());
}

#[test]
fn each_minor_version_has_its_own_operations() {
    let mut r = Reader::new(&[]);
    for (minor, operation, expected) in [
        (1, 2, Args::Illegal),
        (1, 59, Args::Illegal),
        (2, 76, Args::Illegal),
        (2, 70, Args::NotServed),
        (1, 50, Args::NotServed),
        (1, 24, Args::PutRootFh),
    ] {
        assert_eq!(decode(minor, operation, &mut r), Ok(expected));
    }
    let names = crate::rpc::operation::NFS4;
    assert_eq!((names[53], names[75]), ("SEQUENCE", "REMOVEXATTR"));
}

#[test]
fn a_list_of_stateids_is_as_long_as_it_says() {
    let mut out = Vec::new();
    out.put_u32(2);
    stateid(&mut out);
    let cut = out.clone();
    stateid(&mut out);
    let Ok(Args::TestStateId(ids)) = decode(1, 55, &mut Reader::new(&out)) else {
        panic!("not a TEST_STATEID");
    };
    assert_eq!((ids.len(), ids.iter().count()), (2, 2));
    assert!(decode(1, 55, &mut Reader::new(&cut)).is_err());
    assert!(decode(1, 55, &mut Reader::new(&[0xff; 4])).is_err());
}

#[test]
fn the_head_of_a_long_write_shows_session_and_file() {
    let mut out = Vec::new();
    out.put_opaque(b"tag");
    out.put_u32(2);
    out.put_u32(4);
    out.put_u32(SEQUENCE);
    out.put_fixed(&[3; 16]);
    for word in [1, 0, 0, 0] {
        out.put_u32(word);
    }
    out.put_u32(PUTFH);
    out.put_opaque(&[4; 32]);
    let before = out.len();
    out.put_u32(WRITE);
    assert_eq!(long(&out), Some(([3; 16], &[4u8; 32][..])));
    // Without an operation with data the request is not long.
    out.truncate(before);
    out.put_u32(9);
    Bitmap::default().put(&mut out);
    assert_eq!(long(&out), None);
}

proptest! {
    /// Nothing panics, and nothing is read beyond the end.
    #[test]
    fn any_bytes_decode_or_do_not(operation in 0u32..80, minor in 1u32..3, bytes: Vec<u8>) {
        let mut r = Reader::new(&bytes);
        let _ = decode(minor, operation, &mut r);
        prop_assert!(r.rest().len() <= bytes.len());
        long(&bytes);
    }
}
