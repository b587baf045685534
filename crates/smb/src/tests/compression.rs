//! Compressed messages in both directions, with the client of [`crate::tests::service`].

use crate::proto::compression::{self, Algorithms, COMPRESSED};
use crate::proto::dialect::Dialect;
use crate::proto::encryption::{Cipher, TRANSFORM};
use crate::proto::header::{HEADER, command};
use crate::proto::lz77;
use crate::proto::lz77::tests::{random, text};
use crate::proto::status::Status;
use crate::service::Outcome;
use crate::tests::service::*;
use weir_auth::ntlm::client::negotiate as ntlm_negotiate;
use weir_auth::wire::Put;
use weir_base::limits::net::{MAX_RECORD, SMB_SMALL};

const LZ77: Algorithms = Algorithms {
    lz77: true,
    pattern: false,
    chained: false,
};
const ALL_KINDS: Algorithms = Algorithms {
    lz77: true,
    pattern: true,
    chained: true,
};
/// Offset of the data in a WRITE.
const DATA: usize = HEADER + 48;

/// SMB2_COMPRESSION_CAPABILITIES.
fn offer(chained: u8, ids: &[u8]) -> Vec<u8> {
    let len = 8 + 2 * ids.len() as u8;
    let mut out = vec![3, 0, len, 0, 0, 0, 0, 0];
    out.put(&[ids.len() as u8, 0, 0, 0, chained, 0, 0, 0]);
    ids.iter().for_each(|id| out.put_u16(u16::from(*id)));
    out
}

/// A client that has negotiated this and logged on; with a cipher it uses it.
fn client(world: &World, connection: u64, with: Algorithms, cipher: Option<Cipher>) -> Client<'_> {
    let mut c = Client::new(world, connection);
    c.contexts = vec![match with.chained {
        true => offer(1, &[4, 2, 3, 1]),
        false => offer(0, &[2, 3, 1]),
    }];
    c.cipher = cipher;
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(c.connect("vol1"), Status::SUCCESS);
    c.seals = cipher.is_some();
    c
}

/// A file of the client with these contents.
fn file(c: &mut Client<'_>, name: &str, data: &[u8]) -> Vec<u8> {
    let (command, body) = create(name, ALL, SHARE, CREATE, 0);
    let file = c.one(command, body).file();
    let (command, body) = write(&file, 0, data);
    assert_eq!(c.one(command, body).status, Status::SUCCESS);
    file
}

/// A message, compressed behind its first `front` bytes.
fn packed(record: &[u8], front: usize, with: Algorithms) -> Vec<u8> {
    let (head, data) = record.split_at(front);
    let mut out = Vec::new();
    assert!(compression::compress(&mut out, head, &[data], with));
    out
}

fn sealed(c: &Client<'_>, record: Vec<u8>) -> Vec<u8> {
    match c.seals {
        true => c.seal(&record),
        false => record,
    }
}

/// Returns a response decrypted and decompressed, and whether it was compressed.
fn opened(c: &Client<'_>, reply: Vec<u8>, with: Algorithms) -> (bool, Vec<u8>) {
    let reply = match c.seals {
        true => {
            assert!(reply.starts_with(&TRANSFORM), "compressed, then sealed");
            c.sealing.as_ref().unwrap().open(&reply).unwrap()
        }
        false => reply,
    };
    match reply.starts_with(&COMPRESSED) {
        true => {
            let plain = compression::decompress(&reply, with, MAX_RECORD).unwrap();
            assert!(reply.len() < plain.len());
            (true, plain)
        }
        false => (false, reply),
    }
}

/// Sends requests, as they are or compressed; each response with whether it was.
fn send_requests(
    c: &mut Client<'_>,
    requests: &[(u16, Vec<u8>)],
    with: Option<Algorithms>,
) -> (bool, Vec<Answer>) {
    let mut record = c.chain(true, requests);
    if let Some(with) = with {
        record = packed(&record, DATA, with);
    }
    let record = sealed(c, record);
    let Came::Answer(reply) = c.world.send(c.connection, &record) else {
        panic!("no answer")
    };
    let (compressed, reply) = opened(c, reply, ALL_KINDS);
    let all = answers(&reply);
    if let Some(signer) = c.signer.as_ref().filter(|_| !c.seals) {
        let mut at = 0;
        for answer in &all {
            let (_, message) = crate::proto::header::link(&reply, at).unwrap();
            assert!(signer.verify(message), "signed before it is compressed");
            at += answer.header.next as usize;
        }
    }
    (compressed, all)
}

/// A READ that asks for a compressed response.
fn read_compressed(file: &[u8], offset: u64, len: u32) -> (u16, Vec<u8>) {
    let (command, mut body) = read(file, offset, len);
    body[3] = 2;
    (command, body)
}

#[test]
fn what_was_written_compressed_is_read_compressed() {
    let world = world();
    let some = text(60_000);
    let mixed = [&[0; 20_000][..], &text(20_000), &[b'x'; 20_000]].concat();
    let mut n = 0;
    for with in [LZ77, ALL_KINDS] {
        for cipher in [None, Some(Cipher::Aes128Gcm), Some(Cipher::Aes256Ccm)] {
            n += 1;
            let mut c = client(&world, n, with, cipher);
            let file = file(&mut c, &format!("f{n}"), b"");
            for data in [&some, &mixed] {
                let (_, all) = send_requests(&mut c, &[write(&file, 0, data)], Some(with));
                assert_eq!(statuses(&all), [Status::SUCCESS]);
                for asks in [false, true] {
                    let request = match asks {
                        true => read_compressed(&file, 0, 60_000),
                        false => read(&file, 0, 60_000),
                    };
                    let (compressed, all) = send_requests(&mut c, &[request], None);
                    assert_eq!(compressed, asks, "{with:?}");
                    assert!(all[0].body[16..] == data[..]);
                }
            }
        }
    }
}

/// The form that was negotiated is the one that is sent.
#[test]
fn a_chain_is_sent_where_it_was_negotiated() {
    let world = world();
    let data = [&[0; 8000][..], &random(8000), &[b'x'; 8000]].concat();
    for (n, (ids, chained, form)) in [
        (&[4, 2, 3, 1][..], 1, Some((0, 1))),
        (&[2, 3, 1], 0, None),
        (&[4], 1, Some((0, 1))),
        (&[2], 1, None),
    ]
    .into_iter()
    .enumerate()
    {
        let mut c = Client::new(&world, n as u64 + 1);
        c.contexts = vec![offer(chained, ids)];
        c.log_on(Dialect::Smb311, PASSWORD);
        c.connect("vol1");
        let file = file(&mut c, &format!("f{n}"), &data);
        let record = c.chain(false, &[read_compressed(&file, 0, 24_000)]);
        let reply = world.reply(c.connection, &record).0.to_vec();
        match form {
            // The middle does not compress, the ends are patterns.
            Some((algorithm, flags)) => {
                assert_eq!(reply[..4], COMPRESSED);
                assert_eq!(reply[8..12], [algorithm, 0, flags, 0]);
                assert_eq!(reply.len(), 8 + 8 + 80 + 16 + 8 + 8000 + 16);
            }
            None => assert!(reply.len() == 80 + 24_000 && !reply.starts_with(&COMPRESSED)),
        }
    }
}

/// A response is sent as it is if compression was not asked for, or it is too short, or it does not
/// become shorter.
#[test]
fn what_does_not_profit_is_not_compressed() {
    let world = world();
    let mut c = client(&world, 1, ALL_KINDS, None);
    let (dense, some) = (
        file(&mut c, "dense", &random(60_000)),
        file(&mut c, "text", &text(60_000)),
    );
    for (requests, is) in [
        (vec![read_compressed(&some, 0, 4097)], true),
        (vec![read_compressed(&some, 0, 4096)], false),
        (vec![read_compressed(&dense, 0, 60_000)], false),
        (vec![read(&some, 0, 60_000)], false),
        // Only the last one's data are where they can be compressed from.
        (
            vec![read_compressed(&some, 0, 9000), read(&some, 0, 9000)],
            false,
        ),
        (
            vec![read(&some, 0, 9000), read_compressed(&some, 0, 9000)],
            true,
        ),
        (vec![read_compressed(&some, 0, 9000), close(&some)], false),
    ] {
        let (compressed, all) = send_requests(&mut c, &requests, None);
        assert_eq!(compressed, is);
        assert!(all.iter().all(|answer| answer.status == Status::SUCCESS));
    }
}

#[test]
fn nothing_is_compressed_where_it_was_not_negotiated() {
    let world = world();
    for (n, contexts) in [vec![], vec![offer(1, &[1, 3, 5])], vec![offer(0, &[4])]]
        .into_iter()
        .enumerate()
    {
        let mut c = Client::new(&world, n as u64 + 1);
        c.contexts = contexts;
        c.log_on(Dialect::Smb311, PASSWORD);
        c.connect("vol1");
        let file = file(&mut c, &format!("f{n}"), &text(60_000));
        let (compressed, all) = send_requests(&mut c, &[read_compressed(&file, 0, 60_000)], None);
        assert!(!compressed && all[0].body[16..] == text(60_000)[..]);
        let record = c.chain(false, &[write(&file, 0, &text(60_000))]);
        assert!(!world.takes_long(c.connection, &COMPRESSED, 1 << 20));
        for with in [LZ77, ALL_KINDS] {
            let mut other = Client::new(&world, n as u64 + 101);
            other.contexts = c.contexts.clone();
            other.negotiate(0x0311);
            for connection in [n as u64 + 201, other.connection] {
                let came = world.send(connection, &packed(&record, DATA, with));
                assert!(matches!(came, Came::Closed));
            }
        }
        let came = world.send(c.connection, &packed(&record, DATA, LZ77));
        assert!(matches!(came, Came::Closed));
    }
}

#[test]
fn a_malformed_message_ends_the_connection() {
    let world = world();
    for cipher in [None, Some(Cipher::Aes128Gcm)] {
        let kinds = [
            "cut",
            "size",
            "algorithm",
            "flags",
            "offset",
            "bytes",
            "nested",
            "sealed",
            "other",
        ];
        for (n, spoil) in kinds.into_iter().enumerate() {
            let connection = n as u64 + 1 + 100 * u64::from(cipher.is_some());
            let mut c = client(&world, connection, LZ77, cipher);
            let file = file(&mut c, &format!("f{connection}"), b"");
            let record = c.chain(false, &[write(&file, 0, &text(60_000))]);
            let mut wrong = packed(&record, DATA, LZ77);
            match spoil {
                "cut" => wrong.truncate(15),
                "size" => wrong[4] ^= 1,
                "algorithm" => wrong[8] = 3,
                "flags" => wrong[10] = 1,
                "offset" => wrong[15] = 1,
                // The last one is missing.
                "bytes" => wrong.truncate(wrong.len() - 1),
                "nested" => wrong = packed(&[&wrong[..], &[0; 90_000]].concat(), 16, LZ77),
                "sealed" => {
                    let inner = match cipher {
                        Some(_) => c.seal(&record),
                        None => [&TRANSFORM[..], &[0; 9000]].concat(),
                    };
                    wrong = packed(&[&inner[..], &[0; 90_000]].concat(), 16, LZ77);
                }
                _ => wrong = packed(&[0; 9000], 16, LZ77),
            }
            let wrong = sealed(&c, wrong);
            assert!(
                matches!(world.send(connection, &wrong), Came::Closed),
                "{spoil}"
            );
        }
    }
}

/// A signature is over what was compressed, and is needed as ever.
#[test]
fn a_compressed_message_has_to_be_signed() {
    let world = world();
    let mut c = client(&world, 1, LZ77, None);
    let file = file(&mut c, "f", b"");
    let mut record = c.chain(false, &[write(&file, 0, &text(60_000))]);
    record[7000] ^= 1;
    let Came::Answer(reply) = world.send(1, &packed(&record, DATA, LZ77)) else {
        panic!("no answer")
    };
    assert_eq!(statuses(&answers(&reply)), [Status::ACCESS_DENIED]);
}

/// A SESSION_SETUP of so many bytes with zeroes behind it, compressed.
fn padded(c: &mut Client<'_>, len: usize) -> Vec<u8> {
    let setup = c.setup_body(&ntlm_negotiate(), false);
    let mut record = c.chain(false, &[(command::SESSION_SETUP, setup)]);
    record.resize(len, 0);
    packed(&record, 16, ALL_KINDS)
}

#[test]
fn a_stranger_has_little_memory_taken() {
    let world = world();
    let negotiated = |connection| {
        let mut c = Client::new(&world, connection);
        c.contexts = vec![offer(1, &[4, 2])];
        c.negotiate(0x0311);
        c
    };
    let mut c = negotiated(1);
    let record = padded(&mut c, SMB_SMALL);
    assert!(record.len() < 200);
    let Came::Answer(reply) = world.send(1, &record) else {
        panic!("no answer")
    };
    let all = answers(&reply);
    assert_eq!(statuses(&all), [Status::MORE_PROCESSING_REQUIRED]);
    let mut c = negotiated(2);
    let record = padded(&mut c, SMB_SMALL + 1);
    assert!(matches!(world.send(2, &record), Came::Closed));
    // Nor may it send a long one, which a user may.
    assert!(!world.takes_long(1, &COMPRESSED, SMB_SMALL + 1));
    let mut user = client(&world, 3, ALL_KINDS, None);
    assert!(world.takes_long(3, &COMPRESSED, SMB_SMALL + 1));
    let file = file(&mut user, "f", b"");
    let mut request = write(&file, 0, b"x");
    request.1.put_zeroes(1 << 20);
    let (_, all) = send_requests(&mut user, &[request], Some(ALL_KINDS));
    assert_eq!(statuses(&all), [Status::SUCCESS]);
}

/// However much a message says that it is, no more is taken for it than for the largest one.
#[test]
fn expansion_is_bounded() {
    let world = world();
    for (n, size) in [1u32 << 21, u32::MAX, MAX_RECORD as u32]
        .into_iter()
        .enumerate()
    {
        let c = client(&world, n as u64 + 1, ALL_KINDS, None);
        let mut bomb = COMPRESSED.to_vec();
        bomb.put_u32(size);
        bomb.put(&[4, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
        bomb.put_u32(size);
        assert!(matches!(world.send(c.connection, &bomb), Came::Closed));
    }
    // A front that is as it is, and as much again as may be compressed.
    let c = client(&world, 9, LZ77, None);
    let mut long = COMPRESSED.to_vec();
    long.put_u32(1 << 20);
    long.put(&[2, 0, 0, 0]);
    long.put_u32(5000);
    long.put_zeroes(5000);
    assert!(lz77::compress(&vec![0; 1 << 20], usize::MAX, &mut long));
    assert!(matches!(world.send(c.connection, &long), Came::Closed));
}

/// A message that waits is charged for its decompressed length.
#[test]
fn a_message_that_waits_says_how_long_it_is() {
    let world = world();
    for (n, cipher) in [None, Some(Cipher::Aes128Gcm)].into_iter().enumerate() {
        let mut c = client(&world, n as u64 + 1, ALL_KINDS, cipher);
        let first = file(&mut c, &format!("f{n}"), b"data");
        let (command, body) = create(&format!("f{n}"), ALL, SHARE, OPEN, 0);
        let second = c.one(command, body).file();
        let (command, body) = lock(&first, 0, 1, 0x12);
        assert_eq!(c.one(command, body).status, Status::SUCCESS);
        let (command, mut body) = lock(&second, 0, 1, 2);
        body.put_zeroes(60_000);
        let record = c.chain(false, &[(command, body)]);
        let message = packed(&record, DATA, ALL_KINDS);
        let expected = record.len() - message.len();
        let message = sealed(&c, message);
        let Outcome::Larger(waits, more) = world.handle(c.connection, &message) else {
            panic!("it does not wait")
        };
        assert!(matches!(*waits, Outcome::Parked(..)));
        assert_eq!(more, expected);
    }
}

/// A chain whose CREATE has to be durable, and whose READ is compressed: both ends of it.
#[test]
fn a_failure_after_a_compressed_answer_is_said() {
    let world = world();
    for (n, cipher) in [None, Some(Cipher::Aes128Gcm)].into_iter().enumerate() {
        let mut c = client(&world, n as u64 + 1, LZ77, cipher);
        let name = format!("f{n}");
        let requests = [
            create(&name, ALL, SHARE, CREATE, 0),
            write(&SAME, 0, &text(20_000)),
            read_compressed(&SAME, 0, 20_000),
        ];
        let plain = c.chain(true, &requests);
        let record = sealed(&c, plain);
        let (reply, lsn) = world.reply(c.connection, &record);
        assert!(lsn.is_some());
        let (compressed, plain) = opened(&c, reply.to_vec(), LZ77);
        assert!(compressed);
        assert_eq!(statuses(&answers(&plain)), [Status::SUCCESS; 3]);
        let mut pieces = Vec::new();
        reply.slices(4, &mut pieces);
        let sent: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        assert!(sent == reply.to_vec() && reply.len() == sent.len() + 4);
        let failed = reply.into_failure();
        assert_eq!(failed.len(), failed.to_vec().len() + 4);
        let (compressed, plain) = opened(&c, failed.to_vec(), LZ77);
        assert!(!compressed);
        let all = statuses(&answers(&plain));
        assert_eq!(all[0], Status::UNEXPECTED_IO_ERROR);
        assert_eq!(all[2], Status::SUCCESS);
    }
}
