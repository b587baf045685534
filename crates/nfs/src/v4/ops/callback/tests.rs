//! Tests of replies to callbacks.

use super::*;
use crate::v4::args::{Channel, Security};
use crate::v4::backchannel::BackChannel;
use weir_base::Time;

#[test]
fn replies_are_taken_apart() {
    let accepted = |words: &[u32]| {
        let mut out = Vec::new();
        for word in [0, 0, 0, 0].iter().chain(words) {
            out.put_u32(*word);
        }
        out
    };
    assert!(parse(&[]).is_none());
    let failed = accepted(&[10_052, 0, 1, op::SEQUENCE, 10_052]);
    assert!(matches!(parse(&failed), Some(Reply::Sequence(10_052))));
    let mut words = vec![0, 0, 2, op::SEQUENCE, 0];
    words.extend([7; 8]);
    words.extend([op::GETATTR, 0, 1, 0x18, 16, 0, 5, 0, 9]);
    let body = accepted(&words);
    let Some(Reply::Operation(0, r)) = parse(&body) else {
        panic!("a good reply");
    };
    let plain = HolderAttr {
        change: 5,
        size: 9,
        ..HolderAttr::default()
    };
    assert_eq!(attributes(r), Some(plain));
    let mut timed = words[..15].to_vec();
    timed.extend([3, 0x18, 0, 3 << 20, 40, 0, 5, 0, 9, 0, 7, 1, 0, 8, 2]);
    let body = accepted(&timed);
    let Some(Reply::Operation(0, r)) = parse(&body) else {
        panic!("a good reply");
    };
    let time = |secs, nanos| Some(Time { secs, nanos });
    let with_times = HolderAttr {
        accessed: time(7, 1),
        modified: time(8, 2),
        ..plain
    };
    assert_eq!(attributes(r), Some(with_times));
    // No time has so many nanoseconds.
    *timed.last_mut().unwrap() = 1_000_000_000;
    let body = accepted(&timed);
    let Some(Reply::Operation(0, r)) = parse(&body) else {
        panic!("its head is good");
    };
    assert_eq!(attributes(r), None);
    let short = accepted(&words[..words.len() - 2]);
    let Some(Reply::Operation(0, r)) = parse(&short) else {
        panic!("its head is good");
    };
    assert_eq!(attributes(r), None);
}

#[test]
fn of_what_memory_asks_for_the_newest_alone_waits() {
    let channel = Channel {
        header_pad: 0,
        max_request: 4096,
        max_response: 4096,
        max_cached: 0,
        max_operations: 2,
        max_requests: 4,
    };
    let back = BackChannel::new(true, channel, 1, &Security::None);
    let mut inner = back.inner.lock();
    for what in [
        Callback::RecallAny(9),
        Callback::RecallSlot(7),
        Callback::RecallAny(5),
    ] {
        inner.add(what);
    }
    let waits: Vec<u32> = { inner.queue.iter() }
        .map(|entry| match entry.what {
            Callback::RecallAny(keep) => keep,
            Callback::RecallSlot(last) => last,
            _ => unreachable!("nothing else was added"),
        })
        .collect();
    assert_eq!(waits, [7, 5]);
}
