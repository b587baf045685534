//! Persistent opens over crashes of the server, with the client of [`crate::tests::service`].

use crate::proto::dialect::Dialect;
use crate::proto::header::command;
use crate::proto::negotiate::POSIX_TAG;
use crate::proto::status::Status;
use crate::service::Outcome;
use crate::tests::durable::{again, asks, has_context, lease, put_contexts, second_back};
use crate::tests::lease::{BATCH, LEASE, SentMessages, mailed, poll, waits};
use crate::tests::service::files::{query, set};
use crate::tests::service::*;
use std::sync::Arc;
use std::time::Duration;
use weir_auth::wire::Put;
use weir_base::Clock;
use weir_vfs::claims::{Actor, Event, Passage, Range, ServiceId, Style};
use weir_vfs::grace::{Claimant, Kinds, PossibleClaims};
use weir_vfs::{FileId, Namespace};

const GUID: [u8; 16] = [0x5a; 16];
/// SMB2_DHANDLE_FLAG_PERSISTENT.
const PERSISTENT: u32 = 2;
const R_H_W: u32 = 7;

/// A world whose share has persistent opens, and the breaks that it sends.
fn continuous() -> (World, SentMessages) {
    let world = world();
    published(&world, |export| {
        export.share.as_mut().unwrap().continuous = true
    });
    mailed(world)
}

/// Restarts a world after a crash, with persistent opens and the breaks that it sends.
fn crashed(world: World) -> (World, SentMessages) {
    let world = world.crashed();
    published(&world, |export| {
        export.share.as_mut().unwrap().continuous = true
    });
    mailed(world)
}

fn wanted(timeout: u32, guid: [u8; 16], flags: u32) -> (&'static [u8; 4], Vec<u8>) {
    let mut data = timeout.to_le_bytes().to_vec();
    data.put_u32(flags);
    data.put_u64(0);
    data.put(&guid);
    (b"DH2Q", data)
}

fn back(file: &[u8]) -> (&'static [u8; 4], Vec<u8>) {
    let (name, mut data) = second_back(file, GUID);
    data.set_u32(32, PERSISTENT);
    (name, data)
}

/// The timeout and the flags that a response has.
fn granted(answer: &Answer) -> Option<(u32, u32)> {
    let at = answer.body.windows(4).position(|w| w == b"DH2Q")? + 8;
    Some((answer.u32(at), answer.u32(at + 4)))
}

fn pass(world: &World, seconds: u64) {
    for _ in 0..seconds {
        world.clock.advance(Duration::from_secs(1));
        world.service.tick();
        world.vfs.claims.tick(world.clock.monotonic());
    }
}

/// Opens "f" as `contexts` say, with ShareAccess.
fn open(c: &mut Client<'_>, oplock: u8, share: u32, contexts: &[(&[u8; 4], Vec<u8>)]) -> Answer {
    let (command, mut body) = asks(oplock, contexts);
    body[32..36].copy_from_slice(&share.to_le_bytes());
    c.one(command, body)
}

/// The file "f".
fn file(world: &World) -> FileId {
    let volume = world.engine.volumes().remove(0);
    let mut cx = weir_volume::EngineContext::new(weir_base::Time::EPOCH);
    let root = volume.root();
    let found = volume.drive_blocking(&mut cx, |cx| volume.lookup(cx, root, b"f"));
    FileId {
        volume: volume.id(),
        ino: found.unwrap().ino,
        namespace: Namespace::Live,
    }
}

#[test]
fn an_open_with_its_locks_is_there_again_after_a_crash() {
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let record = {
        let (command, body) = asks(0, &[wanted(0, GUID, PERSISTENT)]);
        a.chain(false, &[(command, body)])
    };
    let (reply, lsn) = world.reply(1, &record);
    assert!(lsn.is_some(), "the response waits for the record");
    let opened = answers(&reply.to_vec()).remove(0);
    assert_eq!(granted(&opened), Some((120_000, PERSISTENT)));
    let made = opened.file();
    let all = [
        write(&made, 0, b"hello"),
        lock(&made, 0, 5, 2 | 0x10),
        lock(&made, 9, 9, 1 | 0x10),
    ];
    for request in all {
        let record = a.chain(false, &[request]);
        let (reply, lsn) = world.reply(1, &record);
        assert_eq!(answers(&reply.to_vec())[0].status, Status::SUCCESS);
        assert!(lsn.is_some(), "what is answered is durable");
    }
    let unlocked = a.send_chain(false, &[lock(&made, 9, 9, 4)]);
    assert_eq!(statuses(&unlocked), [Status::SUCCESS]);

    let (world, _) = crashed(world);
    assert_eq!(world.service.persistent(), 1);
    // Nobody gets at what it has, whatever protocol they use.
    let f = file(&world);
    let claims = &world.vfs.claims;
    let nfs = |write, start, len| {
        let range = Range::exact(start, len).unwrap();
        claims.io(f, Actor::Stateless, write, range)
    };
    assert_eq!(nfs(true, 0, 5), Passage::Locked);
    assert_eq!(nfs(true, 9, 9), Passage::Free);
    let mut bob = again(&world, 3, "Bob");
    let refused = bob.send_chain(false, &[asks(0, &[back(&made)])]);
    assert_eq!(statuses(&refused), [Status::ACCESS_DENIED]);
    let mut c = again(&world, 2, "Alice");
    let unflagged = c.send_chain(false, &[asks(0, &[second_back(&made, GUID)])]);
    assert_eq!(statuses(&unflagged), [Status::OBJECT_NAME_NOT_FOUND]);

    let returned = c.one(command::CREATE, asks(0, &[back(&made)]).1);
    assert_eq!(returned.file(), made);
    let all = c.send_chain(
        false,
        &[
            read(&made, 0, 9),
            lock(&made, 0, 5, 4),
            lock(&made, 0, 5, 4),
        ],
    );
    assert_eq!(&all[0].body[16..21], b"hello");
    assert_eq!(
        statuses(&all[1..]),
        [Status::SUCCESS, Status::RANGE_NOT_LOCKED]
    );
    // New opens have numbers of their own.
    let other = c.one(command::CREATE, asks(0, &[]).1);
    assert_ne!(other.file(), made);
    assert_eq!(
        statuses(&c.send_chain(false, &[close(&made)])),
        [Status::SUCCESS]
    );

    let (world, _) = crashed(world);
    assert_eq!(world.service.persistent(), 0, "what was closed is closed");
    assert!(world.engine.client_records().list_records().is_empty());
}

#[test]
fn denials_and_caches_hold_until_the_client_is_back_or_its_time_is_over() {
    for returns in [true, false] {
        let (world, _) = continuous();
        let mut a = Client::ready(&world, 1);
        let contexts = [wanted(80_000, GUID, PERSISTENT), lease(7, R_H_W)];
        // It shares reading alone.
        let made = open(&mut a, LEASE, 1, &contexts).file();
        let (world, sent) = crashed(world);
        let f = file(&world);
        let claims = &world.vfs.claims;
        // NFS waits for a break that nobody is there for yet, and writes nothing.
        let all = Range::ALL;
        assert!(matches!(
            claims.io(f, Actor::Stateless, true, all),
            Passage::Denied
        ));
        assert!(matches!(
            claims.io(f, Actor::Stateless, false, all),
            Passage::Breaking(_)
        ));
        let mut b = Client::ready(&world, 9);
        let mut refused = || b.one(command::CREATE, asks(0, &[]).1).status;
        let contexts = [back(&made), lease(7, R_H_W)];
        if returns {
            let mut c = again(&world, 2, "Alice");
            assert_eq!(open(&mut c, LEASE, 1, &contexts).file(), made);
            assert_eq!(sent.lock().len(), 0);
            world.service.tick();
            assert_eq!(sent.lock().len(), 1, "the break has waited for its client");
            pass(&world, 100);
            assert_eq!(refused(), Status::SHARING_VIOLATION);
            assert_eq!(world.service.persistent(), 1);
        } else {
            pass(&world, 40);
            assert_eq!(refused(), Status::SHARING_VIOLATION);
            pass(&world, 42);
            // Its end is durable before another client can profit from it.
            while refused() == Status::SHARING_VIOLATION {
                pass(&world, 1);
            }
            assert_eq!(refused(), Status::SUCCESS);
            assert_eq!(world.service.persistent(), 0);
            assert!(world.engine.client_records().list_records().is_empty());
            let mut c = again(&world, 2, "Alice");
            let late = c.send_chain(false, &[asks(LEASE, &contexts)]);
            assert_eq!(statuses(&late), [Status::OBJECT_NAME_NOT_FOUND]);
        }
    }
}

#[test]
fn a_create_that_is_sent_again_over_a_crash_is_carried_out_once() {
    let request = |disposition: u32| {
        let (command, mut body) = asks(BATCH, &[wanted(0, GUID, PERSISTENT)]);
        body[36..40].copy_from_slice(&disposition.to_le_bytes());
        (command, body)
    };
    // The record is there; or only what says that this CREATE has made the file.
    for recorded in [true, false] {
        let (world, _) = continuous();
        let mut a = Client::ready(&world, 1);
        let opened = a.one(command::CREATE, request(CREATE).1);
        assert_eq!((opened.status, opened.u32(4)), (Status::SUCCESS, 2));
        if !recorded {
            let records = world.engine.client_records();
            let (number, _) = records.list_records().remove(0);
            records.set_blocking(number, None).unwrap();
        }
        let (world, _) = crashed(world);
        assert_eq!(world.service.persistent(), usize::from(recorded));
        let mut c = again(&world, 2, "Alice");
        if recorded {
            let twice = c.send_chain(false, &[request(CREATE)]);
            assert_eq!(statuses(&twice), [Status::DUPLICATE_OBJECTID]);
        }
        c.replay = true;
        let replayed = c.one(command::CREATE, request(CREATE).1);
        assert_eq!((replayed.status, replayed.u32(4)), (Status::SUCCESS, 2));
        assert_eq!(granted(&replayed), Some((120_000, PERSISTENT)));
        if recorded {
            assert_eq!(replayed.file(), opened.file());
        }
        assert_eq!(
            (world.service.persistent(), world.service.counts().2),
            (1, 1)
        );
        // Another is another.
        c.replay = false;
        let mut other = request(CREATE);
        let at = other.1.windows(16).position(|w| w == GUID).unwrap();
        other.1[at] ^= 1;
        let refused = c.send_chain(false, &[other]);
        assert_eq!(statuses(&refused), [Status::OBJECT_NAME_COLLISION]);
    }
}

#[test]
fn only_what_a_share_has_for_files_is_persistent() {
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let (_, mut directory) = asks(BATCH, &[wanted(0, GUID, PERSISTENT)]);
    directory[40] = 1;
    let name = directory.windows(2).rposition(|w| w == b"f\0").unwrap();
    directory[name] = b'd';
    let opened = a.one(command::CREATE, directory);
    assert_eq!((opened.status, granted(&opened)), (Status::SUCCESS, None));
    published(&world, |_| {});
    for (oplock, grants) in [(0, None), (BATCH, Some((60_000, 0)))] {
        let guid = [oplock; 16];
        let opened = a.one(
            command::CREATE,
            asks(oplock, &[wanted(0, guid, PERSISTENT)]).1,
        );
        assert_eq!((opened.status, granted(&opened)), (Status::SUCCESS, grants));
        a.send_chain(false, &[close(&opened.file())]);
    }
    assert_eq!(world.service.persistent(), 0);
    assert!(world.engine.client_records().list_records().is_empty());
    // Of 2.1 they are not.
    let (world, _) = continuous();
    let mut old = Client::new(&world, 1);
    assert_eq!(old.log_on(Dialect::Smb210, PASSWORD), Status::SUCCESS);
    assert_eq!(old.connect("VOL1"), Status::SUCCESS);
    let opened = old.one(
        command::CREATE,
        asks(BATCH, &[wanted(0, GUID, PERSISTENT)]).1,
    );
    assert_eq!(
        (opened.status, has_context(&opened, b"DH2Q")),
        (Status::SUCCESS, false)
    );
}

#[test]
fn a_lock_that_is_sent_again_over_a_crash_locks_nothing_twice() {
    const EXCLUSIVE_AT_ONCE: u32 = 0x12;
    let at = |c: &mut Client<'_>, made: &[u8], sequence: u32, flags| {
        let (command, mut body) = lock(made, 0, 10, flags);
        body[4..8].copy_from_slice(&sequence.to_le_bytes());
        c.one(command, body).status
    };
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let made = a
        .one(command::CREATE, asks(0, &[wanted(0, GUID, PERSISTENT)]).1)
        .file();
    let sequence = 3 << 4 | 7;
    assert_eq!(
        at(&mut a, &made, sequence, EXCLUSIVE_AT_ONCE),
        Status::SUCCESS
    );
    let (world, _) = crashed(world);
    let mut c = again(&world, 2, "Alice");
    assert_eq!(
        c.one(command::CREATE, asks(0, &[back(&made)]).1).file(),
        made
    );
    assert_eq!(
        at(&mut c, &made, sequence, EXCLUSIVE_AT_ONCE),
        Status::SUCCESS
    );
    let refused = at(&mut c, &made, sequence + 1, EXCLUSIVE_AT_ONCE);
    assert_eq!(refused, Status::LOCK_NOT_GRANTED);
    // As many as its record has room for.
    let mut n = 1;
    let full = loop {
        match c
            .one(command::LOCK, lock(&made, 100 * n, 1, EXCLUSIVE_AT_ONCE).1)
            .status
        {
            Status::SUCCESS => n += 1,
            full => break full,
        }
    };
    assert_eq!(full, Status::INSUFFICIENT_RESOURCES);
    assert!(n > 30, "{n}");
    let (world, _) = crashed(world);
    let claims = &world.vfs.claims;
    assert_eq!(
        claims.totals().held as u64,
        1 + n,
        "the open, and all of them"
    );
}

#[test]
fn what_was_to_be_deleted_and_what_was_renamed_stays_so() {
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let (_, mut body) = asks(0, &[wanted(0, GUID, PERSISTENT)]);
    body[24..28].copy_from_slice(&ALL.to_le_bytes());
    let (access, options) = (24, 40);
    body[access..access + 4].copy_from_slice(&ALL.to_le_bytes());
    body[options + 1] = 0x10;
    let made = a.one(command::CREATE, body).file();
    let (world, _) = crashed(world);
    let mut c = again(&world, 2, "Alice");
    assert_eq!(
        c.one(command::CREATE, asks(0, &[back(&made)]).1).file(),
        made
    );
    assert_eq!(
        statuses(&c.send_chain(false, &[close(&made)])),
        [Status::SUCCESS]
    );
    let gone = c
        .one(command::CREATE, create("f", 1, SHARE, OPEN, 0).1)
        .status;
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
}

/// A file that loses its name with the close of the open that deletes it, and not with the last.
#[test]
fn what_posix_extensions_ask_for_is_so_after_a_crash() {
    const OTHER: [u8; 16] = [0x5b; 16];
    const ON_CLOSE: u32 = 0x1000;
    const POSIX: u8 = 100;
    fn ready(world: &World, connection: u64, posix: bool) -> Client<'_> {
        let mut c = Client::new(world, connection);
        c.guid = 1;
        if posix {
            c.contexts = vec![posix_context()];
        }
        assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
        assert_eq!(c.connect("VOL1"), Status::SUCCESS);
        c
    }
    let opens = |(name, data): (&'static [u8; 4], Vec<u8>), posix, options| {
        let mut contexts = vec![(&name[..], data)];
        if posix {
            contexts.push((&POSIX_TAG[..], 0o600u32.to_le_bytes().to_vec()));
        }
        let (_, mut body) = create("f", 0x83 | 0x1_0000, SHARE, OPEN_IF, options);
        put_contexts(&mut body, &contexts);
        body
    };
    for posix in [true, false] {
        let (world, _) = continuous();
        let mut a = ready(&world, 1, posix);
        let options = if posix { ON_CLOSE } else { 0 };
        let other = opens(wanted(0, OTHER, PERSISTENT), posix, 0);
        let other = a.one(command::CREATE, other).file();
        let made = opens(wanted(0, GUID, PERSISTENT), posix, options);
        let made = a.one(command::CREATE, made).file();
        if !posix {
            // DELETE and POSIX_SEMANTICS of FileDispositionInformationEx.
            let (command, body) = set(&made, 1, 64, 0, &3u32.to_le_bytes());
            assert_eq!(a.one(command, body).status, Status::SUCCESS);
        }
        let (world, _) = crashed(world);
        let mut c = ready(&world, 2, posix);
        let returned = c.one(command::CREATE, opens(back(&made), posix, 0));
        assert_eq!(returned.file(), made);
        let (name, mut data) = second_back(&other, OTHER);
        data.set_u32(32, PERSISTENT);
        let returned = c.one(command::CREATE, opens((name, data), posix, 0));
        assert_eq!(returned.file(), other);
        let shown = c.one(command::QUERY_INFO, query(&made, 1, POSIX, 0).1);
        assert_eq!(shown.status == Status::SUCCESS, posix);
        assert_eq!(
            statuses(&c.send_chain(false, &[close(&made)])),
            [Status::SUCCESS]
        );
        let new = c.one(command::CREATE, create("f", 1, SHARE, CREATE, 0).1);
        assert_eq!(new.status, Status::SUCCESS, "the name is free");
        let goes_on = c.send_chain(false, &[write(&other, 0, b"more"), close(&other)]);
        assert_eq!(statuses(&goes_on), [Status::SUCCESS; 2]);
    }
}

/// Any open that may delete a file may say that it stays.
#[test]
fn what_stays_after_all_is_there_after_a_crash() {
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let (_, mut body) = asks(0, &[wanted(0, GUID, PERSISTENT)]);
    body[24..28].copy_from_slice(&ALL.to_le_bytes());
    body[41] = 0x10;
    let made = a.one(command::CREATE, body).file();
    let mut b = Client::ready(&world, 9);
    let other = b.one(command::CREATE, create("f", ALL, SHARE, OPEN, 0).1);
    let (command, body) = set(&other.file(), 1, 13, 0, &[0]);
    let record = b.chain(false, &[(command, body)]);
    let (reply, lsn) = world.reply(9, &record);
    assert_eq!(answers(&reply.to_vec())[0].status, Status::SUCCESS);
    world.outlast(lsn.expect("what is answered is durable"));
    let (world, _) = crashed(world);
    let mut c = again(&world, 2, "Alice");
    let returned = c.one(command::CREATE, asks(0, &[back(&made)]).1);
    assert_eq!(returned.file(), made);
    assert_eq!(
        statuses(&c.send_chain(false, &[close(&made)])),
        [Status::SUCCESS]
    );
    let there = c.one(command::CREATE, create("f", 1, SHARE, OPEN, 0).1);
    assert_eq!(there.status, Status::SUCCESS);
}

#[test]
fn a_break_waits_for_a_persistent_client_without_a_connection() {
    let (world, sent) = continuous();
    let mut a = Client::ready(&world, 1);
    let contexts = [wanted(60_000, GUID, PERSISTENT), lease(7, R_H_W)];
    let made = open(&mut a, LEASE, SHARE, &contexts).file();
    world.ended(1);
    let mut b = Client::ready(&world, 9);
    let (_later, _) = waits(&mut b, asks(0, &[]));
    assert_eq!(
        world.service.persistent(),
        1,
        "it is not ended by who wants the file"
    );
    assert!(sent.lock().is_empty());
    let mut c = again(&world, 2, "Alice");
    let returned = open(&mut c, LEASE, SHARE, &[back(&made), lease(7, R_H_W)]);
    assert_eq!(returned.file(), made);
    world.service.tick();
    assert_eq!(sent.lock().len(), 1);
    // A directory above it is not renamed meanwhile, and names pass when it is over.
    let passage = world.vfs.claims.names(
        file(&world),
        Actor::Stateless,
        Event::Attributes,
        Style::Unix,
    );
    assert_eq!(passage, Passage::Free);
}

/// A CLOSE and an unlock give nothing to others before it is durable that they did: a crash would
/// give it back.
#[test]
fn what_others_gain_is_durable_first() {
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let opened = a.one(command::CREATE, asks(0, &[wanted(0, GUID, PERSISTENT)]).1);
    let made = opened.file();
    a.send_chain(false, &[lock(&made, 0, 5, 2 | 0x10)]);
    let claims = &world.vfs.claims;
    assert_eq!(claims.totals().held, 2);
    for (request, left) in [(lock(&made, 0, 5, 4), 1), (close(&made), 0)] {
        let record = a.chain(false, &[request]);
        let Outcome::Later(mut later) = world.handle(1, &record) else {
            panic!("it does not wait for the log")
        };
        assert_eq!(claims.totals().held, left + 1);
        let answer = loop {
            match poll(&mut later) {
                Some(answer) => break answer,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(
            (answer.status, claims.totals().held),
            (Status::SUCCESS, left)
        );
    }
    // A client that hangs up in between has closed all the same.
    let opened = a.one(command::CREATE, asks(0, &[wanted(0, GUID, PERSISTENT)]).1);
    let record = a.chain(false, &[close(&opened.file())]);
    let Outcome::Later(later) = world.handle(1, &record) else {
        panic!("it does not wait for the log")
    };
    drop(later);
    world.ended(1);
    assert_eq!((claims.totals().held, world.service.persistent()), (0, 0));
}

/// A TREE_DISCONNECT closes what is open under it as CLOSE does.
#[test]
fn what_a_tree_disconnect_closes_is_not_there_again_after_a_crash() {
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let kept = a.connect("VOL1");
    assert_eq!(kept, Status::SUCCESS);
    let opened = a.one(command::CREATE, asks(0, &[wanted(0, GUID, PERSISTENT)]).1);
    assert_eq!(granted(&opened), Some((120_000, PERSISTENT)));
    let record = a.chain(false, &[(command::TREE_DISCONNECT, vec![4, 0, 0, 0])]);
    let Outcome::Later(mut later) = world.handle(1, &record) else {
        panic!("it does not wait for the log")
    };
    let claims = &world.vfs.claims;
    assert_eq!(claims.totals().held, 1, "nobody gains before it is durable");
    let answer = loop {
        match poll(&mut later) {
            Some(answer) => break answer,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!((answer.status, claims.totals().held), (Status::SUCCESS, 0));
    let (world, _) = crashed(world);
    assert_eq!(world.service.persistent(), 0);
}

/// A persistent open that a volume's revert has ended does not return after a crash.
#[test]
fn a_revert_removes_the_records_of_what_was_open() {
    let (world, _) = continuous();
    world.vfs.follow(&world.engine);
    let volume = world.engine.volumes().remove(0);
    let now = weir_base::Time::EPOCH;
    volume.snapshot_take("before", "", now).unwrap();
    let mut a = Client::ready(&world, 1);
    let opened = a.one(command::CREATE, asks(0, &[wanted(0, GUID, PERSISTENT)]).1);
    assert_eq!(granted(&opened), Some((120_000, PERSISTENT)));
    assert_eq!(world.engine.client_records().list_records().len(), 1);
    world.engine.revert(volume.name(), "before").unwrap();
    assert!(world.engine.client_records().list_records().is_empty());
    assert_eq!(world.vfs.claims.totals().held, 0);
}

/// An absent client of NFSv4 that had plain opens keeps nobody from sharing files.
#[test]
fn an_open_that_conflicts_with_nothing_waits_for_nobody() {
    const DATA: u32 = 3;
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let new = create("f", DATA, SHARE, CREATE, 0);
    assert_eq!(a.one(command::CREATE, new.1).status, Status::SUCCESS);
    let claimant = Claimant {
        service: ServiceId(3),
        name: Arc::from(&b"a client of NFSv4"[..]),
    };
    let volume = world.engine.volumes().remove(0).id();
    let expected = [(
        claimant,
        PossibleClaims::in_volume(Kinds::OPENS, volume).into(),
    )];
    let (now, period) = (world.clock.monotonic(), Duration::from_secs(45));
    world.vfs.grace.begin_bound(expected, now, period);
    let mut b = Client::ready(&world, 9);
    let opened = b.one(command::CREATE, create("f", DATA, SHARE, OPEN, 0).1);
    assert_eq!(opened.status, Status::SUCCESS);
    let locked = b.one(command::LOCK, lock(&opened.file(), 0, 5, 2 | 0x10).1);
    assert_eq!(locked.status, Status::SUCCESS);
    let (mut denies, _) = waits(&mut b, create("f", DATA, 1, OPEN, 0));
    pass(&world, 44);
    assert!(poll(&mut denies).is_none());
}

/// Clients of other protocols that claim again what they had find it free.
#[test]
fn nothing_new_is_claimed_while_others_may_claim_again() {
    const DATA: u32 = 3;
    let (world, _) = continuous();
    let mut a = Client::ready(&world, 1);
    let made = a
        .one(command::CREATE, asks(0, &[wanted(0, GUID, PERSISTENT)]).1)
        .file();
    let (world, _) = crashed(world);
    let claimant = Claimant {
        service: ServiceId(3),
        name: Arc::from(&b"a client of NFSv4"[..]),
    };
    let now = world.clock.monotonic();
    let period = Duration::from_secs(45);
    world.vfs.grace.begin([claimant.clone()], now, period);
    // Taking a restored open over needs no grace period, but new locks do.
    let mut c = again(&world, 2, "Alice");
    assert_eq!(
        c.one(command::CREATE, asks(0, &[back(&made)]).1).file(),
        made
    );
    let (mut lock_waits, _) = waits(&mut c, lock(&made, 0, 5, 2 | 0x10));
    // Attributes conflict with nothing, nor does what is new.
    let mut b = Client::ready(&world, 9);
    let stat = create("f", 0x80, SHARE, OPEN, 0);
    assert_eq!(b.one(command::CREATE, stat.1).status, Status::SUCCESS);
    let new = create("new", DATA, SHARE, CREATE, 0);
    assert_eq!(b.one(command::CREATE, new.1).status, Status::SUCCESS);
    let (mut open_waits, _) = waits(&mut b, create("f", DATA, SHARE, OPEN, 0));
    pass(&world, 44);
    assert!(poll(&mut open_waits).is_none() && poll(&mut lock_waits).is_none());
    world.vfs.grace.finished(&claimant);
    pass(&world, 1);
    for waiting in [&mut lock_waits, &mut open_waits] {
        let answer = loop {
            match poll(waiting) {
                Some(answer) => break answer,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(answer.status, Status::SUCCESS);
    }
}
