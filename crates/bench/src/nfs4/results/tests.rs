use super::*;
use crate::xdr::{put_opaque, put_u32, put_u64};

const SESSION: [u8; 16] = [7; 16];
const TURN: Turn = Turn {
    slot: 5,
    sequence: 9,
};

/// A COMPOUND's results with SEQUENCE's, and PUTFH's if there are more.
fn reply(status: u32, sequence: (u32, [u32; 2]), more: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for v in [status, 0, 3, op::SEQUENCE, sequence.0] {
        put_u32(&mut out, v);
    }
    if sequence.0 == 0 {
        out.extend_from_slice(&SESSION);
        for v in [sequence.1[0], sequence.1[1], 63, 63, 0] {
            put_u32(&mut out, v);
        }
    }
    out.extend_from_slice(more);
    out
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|v| v.to_be_bytes()).collect()
}

#[test]
fn the_head_ends_at_the_operation_itself() {
    let good = [TURN.sequence, TURN.slot];
    let more = words(&[op::PUTFH, 0, op::SAVEFH, 0, op::PUTFH, 0, op::RENAME, 0]);
    let bytes = reply(0, (0, good), &more);
    let mut r = Reader::new(&bytes);
    let head = head(&mut r, &SESSION, TURN).unwrap();
    assert_eq!((head.status, head.sequenced), (0, true));
    assert_eq!(ok(&mut r, op::RENAME), Ok(()));
    assert!(r.rest().is_empty());
    for cut in 0..bytes.len() - 8 {
        let mut r = Reader::new(&bytes[..cut]);
        assert!(super::head(&mut r, &SESSION, TURN).is_err(), "{cut}");
    }
}

#[test]
fn a_number_counts_only_if_sequence_succeeded() {
    let good = [TURN.sequence, TURN.slot];
    let failed = words(&[op::PUTFH, 70]);
    let told = |bytes: &[u8]| head(&mut Reader::new(bytes), &SESSION, TURN).unwrap();
    let late = told(&reply(70, (0, good), &failed));
    assert_eq!((late.status, late.sequenced), (70, true));
    let first = told(&reply(10_008, (10_008, good), &[]));
    assert_eq!((first.status, first.sequenced), (10_008, false));
    let none = told(&words(&[10_021, 0, 0]));
    assert_eq!((none.status, none.sequenced), (10_021, false));
}

#[test]
fn another_slots_reply_is_refused() {
    for turn in [[8, 5], [9, 4]] {
        let bytes = reply(0, (0, turn), &[]);
        let told = head(&mut Reader::new(&bytes), &SESSION, TURN);
        assert!(matches!(told, Err(XdrError::Unexpected { .. })), "{turn:?}");
    }
    let bytes = reply(0, (0, [9, 5]), &[]);
    assert!(head(&mut Reader::new(&bytes), &[8; 16], TURN).is_err());
}

#[test]
fn attributes_are_those_asked_for() {
    let mut out = words(&[op::GETATTR, 0]);
    Mask::ALL.put(&mut out);
    let mut values = words(&[1]);
    for v in [77, 4096, 1, 0, 12] {
        put_u64(&mut values, v);
    }
    put_opaque(&mut out, &values);
    assert_eq!(size_and_fileid(&mut Reader::new(&out)), Ok((4096, 12)));
    let more = attributes(&mut Reader::new(&out), Mask::CONSISTENCY);
    assert!(matches!(more, Err(XdrError::Unexpected { .. })));
    // A bitmap may have more words than mean something.
    let wide = words(&[op::GETATTR, 0, 3, 0x10, 0, 0, 0]);
    assert!(attributes(&mut Reader::new(&wide), Mask::ALL).is_ok());
    let beyond = words(&[op::GETATTR, 0, 3, 0x10, 0, 1, 0]);
    assert!(attributes(&mut Reader::new(&beyond), Mask::ALL).is_err());
}

#[test]
fn an_open_with_a_delegation_is_refused() {
    let open = |delegation: &[u32]| {
        let mut out = words(&[op::OPEN, 0, 1, 2, 3, 4, 1]);
        put_u64(&mut out, 1);
        put_u64(&mut out, 2);
        out.extend(words(&[4, 1, 0]));
        out.extend(words(delegation));
        let mut r = Reader::new(&out);
        let state = opened(&mut r)?;
        assert!(r.rest().is_empty());
        Ok(state)
    };
    for none in [&[0][..], &[3, 0], &[3, 1, 1], &[3, 2, 0]] {
        let state = open(none).unwrap();
        assert_eq!(state[..4], [0, 0, 0, 1], "{none:?}");
    }
    let found = |what: Result<[u8; 16], XdrError>| matches!(what, Err(XdrError::Unexpected { .. }));
    assert!(found(open(&[1])) && found(open(&[2])));
}
