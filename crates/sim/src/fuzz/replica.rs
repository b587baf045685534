//! Targets of what a peer sends: frames, and the records in them.

use weir_base::AggregateId;
use weir_base::SnapshotIdentity;
use weir_base::{Time, VolumeId};
use weir_transfer::batch;
use weir_transfer::wire::{
    Ack, Base, Begin, Decoder, Done, End, HEADER, Hello, Kind, Message, Pace, Reason, Refusal,
    Resume, put_frame,
};
use weir_volume::{ContentHash, Position};

use super::Target;

/// The targets of this module.
pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "wire_frames",
            run: frames,
            seeds: frame_seeds,
        },
        Target {
            name: "wire_records",
            run: records,
            seeds: record_seeds,
        },
    ]
}

fn again<M: Message + PartialEq + std::fmt::Debug>(payload: &[u8]) {
    if let Ok(message) = M::decode(payload) {
        let mut out = Vec::new();
        message.put(&mut out);
        assert_eq!(M::decode(&out), Ok(message));
    }
}

/// A stream. The checksum of its first frame is made right where the length is plausible.
fn frames(input: &[u8]) {
    let mut bytes = input.to_vec();
    if let Some(&[a, b, c, d]) = bytes.get(..4) {
        let end = HEADER.saturating_add(u32::from_le_bytes([a, b, c, d]) as usize);
        if end <= bytes.len() {
            let sum = crc32c::crc32c(&bytes[HEADER..end]);
            let sum = crc32c::crc32c_append(sum, &bytes[..12]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let mut decoder = Decoder::new();
    for part in bytes.chunks(100) {
        decoder.feed(part);
        loop {
            let Ok(found) = decoder.frame() else { return };
            let Some(frame) = found else { break };
            let payload = &*frame.payload;
            match frame.kind {
                Kind::Hello => {
                    if let Ok(hello) = Hello::from_frame(&frame) {
                        let _ = hello.agree();
                    }
                }
                Kind::Control => {}
                Kind::Begin => again::<Begin>(payload),
                Kind::Resume => again::<Resume>(payload),
                Kind::Records => records(payload),
                Kind::End => again::<End>(payload),
                Kind::Done => again::<Done>(payload),
                Kind::Refusal => again::<Refusal>(payload),
                Kind::Ack => again::<Ack>(payload),
                Kind::Pace => again::<Pace>(payload),
            }
        }
    }
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let identity = SnapshotIdentity {
        aggregate: AggregateId([7; 16]),
        volume: VolumeId(6),
        snapshot: 8,
        birth: Time { secs: 5, nanos: 4 },
    };
    let content = ContentHash::decode(&[3; ContentHash::LEN]);
    let begin = Begin {
        base: Some(Base { identity, content }),
        target: identity,
        name: "snapshot".into(),
        label: "daily".into(),
        created: Time { secs: 1, nanos: 2 },
        next_ino: 3,
        key: (4, 5),
        referenced: 6,
        total: Some(7),
    };
    let resume = Resume {
        position: Position([1; 17]),
        digest: 2,
        logical: 3,
        wire: 4,
    };
    let refusal = Refusal {
        reason: Reason::Busy,
        text: "busy".into(),
    };
    let mut seeds = vec![Vec::new(); 9];
    let done = [
        Hello::ours([9; 16]).frame(&mut seeds[0]),
        begin.frame(&mut seeds[1]),
        resume.frame(&mut seeds[2]),
        refusal.frame(&mut seeds[3]),
        End { digest: 1, content }.frame(&mut seeds[4]),
        Done { snapshot: 1 }.frame(&mut seeds[5]),
        Ack { logical: 1 }.frame(&mut seeds[6]),
        put_frame(&mut seeds[7], Kind::Control, &[5; 300], Some(1)),
        Pace::Outgoing.frame(&mut seeds[8]),
    ];
    assert!(done.iter().all(Result::is_ok));
    seeds
}

fn records(input: &[u8]) {
    let _ = batch::verify(input);
}

fn record_seeds() -> Vec<Vec<u8>> {
    let head = |ops: &[u8]| {
        let mut seed = vec![1; 17];
        seed.extend_from_slice(&(ops.len() as u32).to_le_bytes());
        seed.extend_from_slice(ops);
        seed
    };
    let key = [3; 17];
    let mut put = vec![1];
    put.extend_from_slice(&key);
    put.extend_from_slice(&[5, 0, 1, 2, 3, 4, 5]);
    let mut gone = vec![2];
    gone.extend_from_slice(&key);
    let mut data = vec![3];
    data.extend_from_slice(&key);
    data.extend_from_slice(&[2, 0, 0, 0, 4, 0, 0, 0, 9, 9, 9, 9]);
    let mut with_page = head(&data);
    with_page.extend_from_slice(&[0; 4096]);
    vec![head(&put), head(&gone), with_page, head(&[])]
}
