//! Durable opens: kept, taken over, ended and replayed, with the client of
//! [`crate::tests::service`].

use crate::proto::dialect::Dialect;
use crate::proto::header::{HEADER, command};
use crate::proto::status::Status;
use crate::tests::lease::{BATCH, LEASE, mailed, with_mail};
use crate::tests::service::*;
use std::time::Duration;
use weir_auth::wire::Put;

const R_H: u32 = 3;
const R_H_W: u32 = 7;
const GUID: [u8; 16] = [0xa5; 16];

/// A CREATE of "f" with an oplock and these contexts.
pub(crate) fn asks(oplock: u8, contexts: &[(&[u8; 4], Vec<u8>)]) -> (u16, Vec<u8>) {
    let (command, mut body) = create("f", 0x3, SHARE, OPEN_IF, 0);
    body[3] = oplock;
    put_contexts(&mut body, contexts);
    (command, body)
}

/// Appends contexts to a CREATE.
pub(crate) fn put_contexts(body: &mut Vec<u8>, contexts: &[(impl AsRef<[u8]>, Vec<u8>)]) {
    body.align(0, 8);
    let start = body.len();
    for (n, (name, data)) in contexts.iter().enumerate() {
        let (at, name) = (body.len(), name.as_ref());
        body.put_u32(0);
        body.put_u16(16);
        body.put_u16(name.len() as u16);
        body.put_u16(0);
        body.put_u16((16 + name.len().next_multiple_of(8)) as u16);
        body.put_u32(data.len() as u32);
        body.put(name);
        body.align(at, 8);
        body.put(data);
        if n + 1 < contexts.len() {
            body.align(0, 8);
            let next = (body.len() - at) as u32;
            body.set_u32(at, next);
        }
    }
    let len = (body.len() - start) as u32;
    body.set_u32(48, (HEADER + start) as u32);
    body.set_u32(52, len);
}

pub(crate) fn first() -> (&'static [u8; 4], Vec<u8>) {
    (b"DHnQ", vec![0; 16])
}

pub(crate) fn first_back(file: &[u8]) -> (&'static [u8; 4], Vec<u8>) {
    (b"DHnC", file.to_vec())
}

fn second(timeout: u32) -> (&'static [u8; 4], Vec<u8>) {
    let mut data = timeout.to_le_bytes().to_vec();
    data.put_zeroes(12);
    data.put(&GUID);
    (b"DH2Q", data)
}

pub(crate) fn second_back(file: &[u8], guid: [u8; 16]) -> (&'static [u8; 4], Vec<u8>) {
    let mut data = file.to_vec();
    data.put(&guid);
    data.put_u32(0);
    (b"DH2C", data)
}

pub(crate) fn lease(key: u8, bits: u32) -> (&'static [u8; 4], Vec<u8>) {
    let mut data = vec![key; 16];
    data.put_u32(bits);
    data.put_zeroes(32);
    (b"RqLs", data)
}

pub(crate) fn has_context(answer: &Answer, name: &[u8; 4]) -> bool {
    answer.body.windows(4).any(|w| w == name)
}

/// The client of connection 1, on another.
pub(crate) fn again<'w>(world: &'w World, connection: u64, user: &'static str) -> Client<'w> {
    let mut c = Client::new(world, connection);
    (c.guid, c.user) = (1, user);
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(c.connect("VOL1"), Status::SUCCESS);
    c
}

#[test]
fn a_durable_open_is_taken_over_with_all_it_has() {
    let (world, sent) = with_mail();
    let mut a = Client::ready(&world, 1);
    let opened = a.one(command::CREATE, asks(BATCH, &[first()]).1);
    assert!(has_context(&opened, b"DHnQ"));
    let file = opened.file();
    let all = a.send_chain(
        false,
        &[write(&file, 0, b"hello"), lock(&file, 0, 5, 2 | 0x10)],
    );
    assert_eq!(statuses(&all), [Status::SUCCESS; 2]);
    // Nobody else's, and nobody's as long as it has its session.
    let mut early = again(&world, 2, "Alice");
    let back = asks(BATCH, &[first_back(&file)]);
    let refused = early.send_chain(false, std::slice::from_ref(&back));
    assert_eq!(statuses(&refused), [Status::OBJECT_NAME_NOT_FOUND]);
    world.ended(1);
    let mut bob = again(&world, 3, "Bob");
    assert_eq!(
        statuses(&bob.send_chain(false, std::slice::from_ref(&back))),
        [Status::ACCESS_DENIED]
    );

    let answer = early.one(command::CREATE, back.1.clone());
    assert_eq!((answer.file(), answer.body[2]), (file.clone(), BATCH));
    let read = early.send_chain(false, &[read(&file, 0, 9)]);
    assert_eq!(&read[0].body[16..], b"hello");
    let twice = early.send_chain(false, &[back]);
    assert_eq!(statuses(&twice), [Status::OBJECT_NAME_NOT_FOUND]);
    assert!(sent.lock().is_empty());
    // Breaks go where it is now.
    let mut b = Client::ready(&world, 9);
    let (_later, _) = crate::tests::lease::waits(&mut b, asks(BATCH, &[]));
    assert_eq!(sent.lock()[0].0, 2);
}

#[test]
fn who_wants_the_file_ends_what_nobody_is_there_for() {
    for (oplock, contexts) in [
        (BATCH, vec![first()]),
        (LEASE, vec![first(), lease(7, R_H_W)]),
    ] {
        let (world, _) = with_mail();
        let mut a = Client::ready(&world, 1);
        let file = a.one(command::CREATE, asks(oplock, &contexts).1).file();
        world.ended(1);
        let mut b = Client::ready(&world, 9);
        let opened = b.one(command::CREATE, asks(BATCH, &[]).1);
        assert_eq!((opened.status, opened.body[2]), (Status::SUCCESS, BATCH));
        let mut c = again(&world, 2, "Alice");
        let mut contexts = contexts;
        contexts[0] = first_back(&file);
        let gone = c.send_chain(false, &[asks(oplock, &contexts)]);
        assert_eq!(statuses(&gone), [Status::OBJECT_NAME_NOT_FOUND]);
    }
}

#[test]
fn only_what_the_client_would_be_asked_about_is_durable() {
    let (world, _) = with_mail();
    let mut a = Client::ready(&world, 1);
    for (oplock, contexts) in [
        (0, vec![first()]),
        (8, vec![first()]),
        (LEASE, vec![first(), lease(7, 1)]),
    ] {
        let opened = a.one(command::CREATE, asks(oplock, &contexts).1);
        assert!(!has_context(&opened, b"DHnQ"), "under {oplock}");
        a.send_chain(false, &[close(&opened.file())]);
    }
    let opened = a.one(command::CREATE, asks(LEASE, &[first(), lease(7, R_H)]).1);
    assert!(has_context(&opened, b"DHnQ"));
    // It ends with its tree connect.
    a.send_chain(false, &[(command::TREE_DISCONNECT, vec![4, 0, 0, 0])]);
    let mut c = again(&world, 2, "Alice");
    let contexts = [first_back(&opened.file()), lease(7, R_H)];
    let gone = c.send_chain(false, &[asks(LEASE, &contexts)]);
    assert_eq!(statuses(&gone), [Status::OBJECT_NAME_NOT_FOUND]);
    let both = c.send_chain(false, &[asks(BATCH, &[first(), second(0)])]);
    assert_eq!(statuses(&both), [Status::INVALID_PARAMETER]);
}

#[test]
fn the_second_version_has_an_id_and_a_time() {
    let (world, _) = with_mail();
    let open = |connection| {
        let mut c = again(&world, connection, "Alice");
        let opened = c.one(command::CREATE, asks(BATCH, &[second(20_000)]).1);
        assert!(has_context(&opened, b"DH2Q"));
        world.ended(connection);
        opened.file()
    };
    let file = open(1);
    let pass = |seconds| {
        world.clock.advance(Duration::from_secs(seconds));
        world.service.tick();
    };
    pass(19);
    let mut c = again(&world, 2, "Alice");
    let wrong = c.send_chain(false, &[asks(BATCH, &[second_back(&file, [1; 16])])]);
    assert_eq!(statuses(&wrong), [Status::OBJECT_NAME_NOT_FOUND]);
    let back = c.one(command::CREATE, asks(BATCH, &[second_back(&file, GUID)]).1);
    assert_eq!(back.file(), file);
    c.send_chain(false, &[close(&file)]);
    let file = open(3);
    pass(20);
    let late = c.send_chain(false, &[asks(BATCH, &[second_back(&file, GUID)])]);
    assert_eq!(statuses(&late), [Status::OBJECT_NAME_NOT_FOUND]);
}

/// A durable open of one version can be taken over with the other: without a CreateGuid by the
/// number, with one by the zeroes that the first version has.
#[test]
fn either_version_comes_back_to_what_the_other_has_opened() {
    let (world, _) = with_mail();
    for (n, (made, wrong, right)) in [
        (second(0), Some([0; 16]), None),
        (first(), Some(GUID), Some([0; 16])),
    ]
    .into_iter()
    .enumerate()
    {
        let n = 2 * n as u64;
        let mut c = again(&world, n + 1, "Alice");
        let file = c.one(command::CREATE, asks(BATCH, &[made]).1).file();
        world.ended(n + 1);
        let mut c = again(&world, n + 2, "Alice");
        let mut back = |guid: Option<[u8; 16]>| {
            let context = match guid {
                Some(guid) => second_back(&file, guid),
                None => first_back(&file),
            };
            c.one(command::CREATE, asks(BATCH, &[context]).1).status
        };
        assert_eq!(back(wrong), Status::OBJECT_NAME_NOT_FOUND);
        assert_eq!(back(right), Status::SUCCESS);
        c.send_chain(false, &[close(&file)]);
    }
}

/// A LOCK whose response was lost is sent again, and another of the same place in between makes it
/// a new one.
#[test]
fn a_lock_that_is_sent_again_locks_nothing_twice() {
    const EXCLUSIVE_AT_ONCE: u32 = 0x12;
    const UNLOCK: u32 = 4;
    let world = world();
    let mut a = Client::ready(&world, 1);
    let file = a.one(command::CREATE, asks(0, &[]).1).file();
    let mut at = |sequence: u32, flags| {
        let (command, mut body) = lock(&file, 0, 10, flags);
        body[4..8].copy_from_slice(&sequence.to_le_bytes());
        a.one(command, body).status
    };
    for (place, again) in [(0, false), (1, true), (64, true), (65, false)] {
        let sequence = place << 4 | 5;
        assert_eq!(at(sequence, EXCLUSIVE_AT_ONCE), Status::SUCCESS);
        let expected = match again {
            true => Status::SUCCESS,
            false => Status::LOCK_NOT_GRANTED,
        };
        assert_eq!(at(sequence, EXCLUSIVE_AT_ONCE), expected, "place {place}");
        let refused = Status::LOCK_NOT_GRANTED;
        assert_eq!(at(sequence + 1, EXCLUSIVE_AT_ONCE), refused);
        // A refused LOCK is not done, and clears the place of the one before it.
        assert_eq!(at(sequence, EXCLUSIVE_AT_ONCE), refused, "place {place}");
        assert_eq!(at(sequence + 2, UNLOCK), Status::SUCCESS);
        let twice = match again {
            true => Status::SUCCESS,
            false => Status::RANGE_NOT_LOCKED,
        };
        assert_eq!(at(sequence + 2, UNLOCK), twice);
    }
}

#[test]
fn a_create_that_is_sent_again_opens_nothing_twice() {
    let (world, _) = with_mail();
    let mut a = Client::ready(&world, 1);
    let request = asks(BATCH, &[second(0)]);
    let opened = a.one(command::CREATE, request.1.clone());
    assert_eq!(opened.u32(4), 2, "it was made");
    let twice = a.send_chain(false, std::slice::from_ref(&request));
    assert_eq!(statuses(&twice), [Status::DUPLICATE_OBJECTID]);
    a.replay = true;
    let replayed = a.one(command::CREATE, request.1.clone());
    assert_eq!((replayed.file(), replayed.u32(4)), (opened.file(), 2));
    assert!(has_context(&replayed, b"DH2Q"));
    let other = a.send_chain(false, &[asks(LEASE, &[second(0), lease(7, R_H)])]);
    assert_eq!(statuses(&other), [Status::ACCESS_DENIED]);
    assert_eq!(world.service.counts().2, 1);
    // When it is closed the id is free.
    a.send_chain(false, &[close(&opened.file())]);
    let anew = a.one(command::CREATE, request.1);
    assert_ne!(anew.file(), opened.file());
}

/// A client that has used up its share of the table loses its connection: what it had open must not
/// keep it from opening more.
#[test]
fn the_opens_kept_longest_yield_to_what_their_client_opens_next() {
    const SHARE_BYTES: usize = 128 << 10;
    let (world, _) = mailed(world_of_claims(4 * SHARE_BYTES));
    let durable = |name: &str| {
        let (command, mut body) = create(name, 0x3, SHARE, OPEN_IF, 0);
        body[3] = BATCH;
        put_contexts(&mut body, &[first()]);
        (command, body)
    };
    let mut a = Client::ready(&world, 1);
    let mut files = Vec::new();
    loop {
        let (command, body) = durable(&format!("file{}", files.len()));
        let opened = a.one(command, body);
        match opened.status {
            Status::SUCCESS => files.push((opened.file(), has_context(&opened, b"DHnQ"))),
            status => break assert_eq!(status, Status::INSUFFICIENT_RESOURCES),
        }
    }
    // The last ones had no room for an oplock, and are not durable.
    let kept: Vec<Vec<u8>> = files.into_iter().filter(|f| f.1).map(|f| f.0).collect();
    assert!(kept.len() > 20, "{}", kept.len());
    // An open with a session does not yield.
    let refused = a.send_chain(false, &[create("new", 0x3, SHARE, OPEN_IF, 0)]);
    assert_eq!(statuses(&refused), [Status::INSUFFICIENT_RESOURCES]);
    world.ended(1);
    let mut c = again(&world, 2, "Alice");
    for n in 0..2 * kept.len() {
        let (command, body) = durable(&format!("new{n}"));
        let opened = c.one(command, body);
        assert_eq!(opened.status, Status::SUCCESS, "{n}");
        if n == 0 {
            let back = |c: &mut Client<'_>, file: &[u8]| {
                let back = asks(BATCH, &[first_back(file)]);
                c.send_chain(false, &[back]).remove(0).status
            };
            assert_eq!(back(&mut c, &kept[0]), Status::OBJECT_NAME_NOT_FOUND);
            let last = kept.last().unwrap();
            assert_eq!(back(&mut c, last), Status::SUCCESS, "the newest stay");
            c.send_chain(false, &[close(last)]);
        }
        c.send_chain(false, &[close(&opened.file())]);
    }
}
