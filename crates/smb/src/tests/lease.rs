//! Oplocks, leases, their breaks, and requests that wait for them, with the client of
//! [`crate::tests::service`].

use crate::proto::header::{HEADER, command, flag};
use crate::proto::status::Status;
use crate::service::{Later, Outcome};
use crate::tests::service::*;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use weir_auth::wire::{Put, utf16};
use weir_vfs::claims::{Actor, Passage, Range};
use weir_vfs::{FileId, Namespace};

pub(crate) const BATCH: u8 = 9;
const II: u8 = 1;
pub(crate) const LEASE: u8 = 0xff;
/// Bits of leases on the wire.
const R: u32 = 1;
const H: u32 = 2;
const W: u32 = 4;

pub(crate) type SentMessages = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// A world whose service sends its breaks into a list.
pub(crate) fn with_mail() -> (World, SentMessages) {
    mailed(world())
}

/// A world that sends its breaks into a list from now on.
pub(crate) fn mailed(world: World) -> (World, SentMessages) {
    let sent = SentMessages::default();
    let list = Arc::clone(&sent);
    world
        .service
        .send_with(Arc::new(move |connection, message| {
            list.lock().push((connection, message.into()));
            true
        }));
    (world, sent)
}

/// A CREATE that asks for an oplock, or a lease of version 2 under a key with these bits and epoch.
fn caching(name: &str, oplock: u8, lease: Option<(u8, u32, u16)>) -> (u16, Vec<u8>) {
    let (command, mut body) = create(name, 0x3, SHARE, OPEN_IF, 0);
    body[3] = oplock;
    if let Some((key, bits, epoch)) = lease {
        body.truncate(56);
        let name = utf16(name);
        body.put(&name);
        body.align(0, 8);
        let (at, start) = (HEADER + body.len(), body.len());
        body.put_u32(0);
        body.put_u16(16);
        body.put_u16(4);
        body.put_u16(0);
        body.put_u16(24);
        body.put_u32(52);
        body.put(b"RqLs");
        body.put_u32(0);
        body.put(&[key; 16]);
        body.put_u32(bits);
        body.put_zeroes(28);
        body.put_u16(epoch);
        body.put_u16(0);
        let len = (body.len() - start) as u32;
        body.set_u32(48, at as u32);
        body.set_u32(52, len);
    }
    (command, body)
}

/// The bits and the epoch that a response to CREATE has of a lease.
fn lease_in(answer: &Answer) -> (u32, u16) {
    assert_eq!((answer.status, answer.body[2]), (Status::SUCCESS, LEASE));
    let at = answer.body.windows(4).position(|w| w == b"RqLs").unwrap() + 8;
    let epoch = &answer.body[at + 48..at + 50];
    (
        answer.u32(at + 16),
        u16::from_le_bytes(epoch.try_into().unwrap()),
    )
}

/// A request that waits for a break: it, and the async id that the interim response gave it.
pub(crate) fn waits(c: &mut Client<'_>, request: (u16, Vec<u8>)) -> (Later, u64) {
    let record = c.chain(false, &[request]);
    let Outcome::Parked(mut later, _, Some(interim)) = c.world.handle(c.connection, &record) else {
        panic!("it does not wait")
    };
    let interim = answers(&interim.to_vec()).remove(0);
    assert_eq!(interim.status, Status::PENDING);
    assert!(interim.header.has_flag(flag::ASYNC) && !interim.header.has_flag(flag::SIGNED));
    assert!(poll(&mut later).is_none(), "it waits still");
    (later, interim.header.async_id())
}

pub(crate) fn poll(later: &mut Later) -> Option<Answer> {
    let mut cx = Context::from_waker(Waker::noop());
    match later.as_mut().poll(&mut cx) {
        Poll::Ready(done) => Some(answers(&done.reply().unwrap().0.to_vec()).remove(0)),
        Poll::Pending => None,
    }
}

/// The break that was sent, without its header, and to which connection.
fn only_break(sent: &SentMessages) -> (u64, Vec<u8>) {
    let all = std::mem::take(&mut *sent.lock());
    assert_eq!(all.len(), 1, "one break");
    let (to, message) = all.into_iter().next().unwrap();
    let header = crate::proto::header::Header::decode(&message).unwrap();
    assert_eq!(
        (header.command, header.message),
        (command::OPLOCK_BREAK, u64::MAX)
    );
    (to, message[HEADER..].to_vec())
}

fn oplock_answer(level: u8, file: &[u8]) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(24);
    body.put_u8(level);
    body.put_zeroes(5);
    body.put(file);
    (command::OPLOCK_BREAK, body)
}

fn lease_answer(key: u8, bits: u32) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(36);
    body.put_u16(0);
    body.put_u32(0);
    body.put(&[key; 16]);
    body.put_u32(bits);
    body.put_u64(0);
    (command::OPLOCK_BREAK, body)
}

#[test]
fn a_batch_oplock_is_broken_before_another_opens() {
    let (world, sent) = with_mail();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let mine = a.one(command::CREATE, caching("f", BATCH, None).1);
    assert_eq!(mine.body[2], BATCH);
    // For its attributes alone nothing is broken.
    let stat = b.send_chain(false, &[create("f", 0x80, SHARE, OPEN, 0)]);
    assert_eq!(
        (statuses(&stat), sent.lock().len()),
        (vec![Status::SUCCESS], 0)
    );
    let (mut later, id) = waits(&mut b, caching("f", BATCH, None));
    let (to, message) = only_break(&sent);
    assert_eq!((to, message[2], &message[8..24]), (1, II, &mine.file()[..]));
    assert_eq!(
        statuses(&a.send_chain(false, &[oplock_answer(II, &mine.file())])),
        [Status::SUCCESS]
    );
    let opened = poll(&mut later).expect("it was answered");
    assert_eq!((opened.status, opened.body[2]), (Status::SUCCESS, II));
    assert!(opened.header.has_flag(flag::ASYNC) && opened.header.async_id() == id);
    assert_eq!(
        opened.header.credits, 0,
        "the interim response granted them"
    );
    // Both cache reads until one of them writes. The write waits for nobody, and ends the writer's
    // own caching as well.
    let write = a.send_chain(false, &[write(&mine.file(), 0, b"x")]);
    assert_eq!(statuses(&write), [Status::SUCCESS]);
    let broken: Vec<(u64, u8)> = sent
        .lock()
        .iter()
        .map(|(to, m)| (*to, m[HEADER + 2]))
        .collect();
    assert_eq!(broken, [(2, 0), (1, 0)]);
    // Nothing is broken any more.
    let late = a.send_chain(false, &[oplock_answer(II, &mine.file())]);
    assert_eq!(statuses(&late), [Status::INVALID_OPLOCK_PROTOCOL]);
}

#[test]
fn a_lease_is_of_all_opens_under_its_key() {
    let (world, sent) = with_mail();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let first = a.one(
        command::CREATE,
        caching("f", LEASE, Some((7, R | H | W, 10))).1,
    );
    assert_eq!(lease_in(&first), (R | H | W, 11));
    let second = a.one(command::CREATE, caching("f", LEASE, Some((7, R, 10))).1);
    assert_eq!(
        lease_in(&second),
        (R | H | W, 11),
        "nothing is taken by asking for less"
    );
    assert!(sent.lock().is_empty());
    let elsewhere = a.one(command::CREATE, caching("g", LEASE, Some((7, R, 0))).1);
    assert_eq!(elsewhere.status, Status::INVALID_PARAMETER);
    let without_r = a.one(command::CREATE, caching("h", LEASE, Some((8, H | W, 0))).1);
    assert_eq!(lease_in(&without_r).0, 0);

    let (mut later, _) = waits(&mut b, caching("f", LEASE, Some((9, R | H | W, 0))));
    let (to, message) = only_break(&sent);
    let answer = Answer {
        header: first.header,
        status: Status::SUCCESS,
        body: message,
    };
    assert_eq!(to, 1);
    assert_eq!(answer.body[2..4], 12u16.to_le_bytes(), "the next epoch");
    assert_eq!(
        (answer.u32(4), answer.u32(24), answer.u32(28)),
        (1, R | H | W, R | H)
    );
    let refused = a.send_chain(false, &[lease_answer(7, R | H | W), lease_answer(6, R)]);
    let expected = [Status::REQUEST_NOT_ACCEPTED, Status::OBJECT_NAME_NOT_FOUND];
    assert_eq!(statuses(&refused), expected);
    assert!(poll(&mut later).is_none());
    let done = a.send_chain(false, &[lease_answer(7, R | H), lease_answer(7, R | H)]);
    assert_eq!(statuses(&done), [Status::SUCCESS, Status::UNSUCCESSFUL]);
    let opened = poll(&mut later).unwrap();
    assert_eq!(lease_in(&opened).0, R | H);

    // A write under one of its opens leaves the lease alone, and takes the other's: that has to
    // answer.
    let (mut later, _) = waits(&mut a, write(&second.file(), 0, b"x"));
    let (to, message) = only_break(&sent);
    assert_eq!((to, message[8], message[24], message[28]), (2, 9, 3, 0));
    assert_eq!(
        statuses(&b.send_chain(false, &[lease_answer(9, 0)])),
        [Status::SUCCESS]
    );
    assert_eq!(poll(&mut later).unwrap().status, Status::SUCCESS);
}

/// NFS breaks what clients of SMB cache, and who has no connection any more gives it up at once.
#[test]
fn nfs_breaks_leases_and_an_ended_session_has_none() {
    let (world, sent) = with_mail();
    let mut a = Client::ready(&world, 1);
    let open = a.one(
        command::CREATE,
        caching("f", LEASE, Some((7, R | W | H, 0))).1,
    );
    let export = world.vfs.exports();
    let volume = export.iter().next().unwrap().root().volume;
    let info = a.one(command::QUERY_INFO, {
        // FileInternalInformation: the inode's number.
        let mut body = vec![41, 0, 1, 6, 64, 0, 0, 0];
        body.put_zeroes(16);
        body.put(&open.file());
        body
    });
    let ino = u64::from_le_bytes(info.body[8..16].try_into().unwrap());
    let file = FileId {
        volume,
        ino: weir_base::Ino(ino),
        namespace: Namespace::Live,
    };
    let passage = world
        .vfs
        .claims
        .io(file, Actor::Stateless, true, Range::ALL);
    assert!(matches!(passage, Passage::Breaking(_)));
    let (to, message) = only_break(&sent);
    assert_eq!((to, message[28]), (1, 0), "to nothing");
    assert_eq!(
        statuses(&a.send_chain(false, &[lease_answer(7, 0)])),
        [Status::SUCCESS]
    );
    let passage = world
        .vfs
        .claims
        .io(file, Actor::Stateless, true, Range::ALL);
    assert_eq!(passage, Passage::Free);

    let again = a.one(
        command::CREATE,
        caching("f", LEASE, Some((7, R | W | H, 0))).1,
    );
    assert_eq!(lease_in(&again).0, R | W | H);
    // NFSv4 wants to know what size the file has there: what was not sent is sent.
    let question = world
        .vfs
        .claims
        .request_attributes(file, Actor::Stateless)
        .unwrap();
    assert_eq!(only_break(&sent).1[28], 3, "to RH");
    assert!(!question.ticket().is_over());
    let kept = a.send_chain(false, &[lease_answer(7, R | H)]);
    assert_eq!(statuses(&kept), [Status::SUCCESS]);
    assert!(question.ticket().is_over() && question.answer().is_none());
    world.ended(1);
    assert_eq!(world.vfs.claims.totals().grants, 0);
    assert_eq!(world.vfs.claims.totals().held, 0);
}

#[test]
fn a_lock_waits_for_another_and_for_nothing_else() {
    let (world, _) = with_mail();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let mine = a.one(command::CREATE, caching("f", 0, None).1).file();
    let theirs = b.one(command::CREATE, caching("f", 0, None).1).file();
    const EXCLUSIVE: u32 = 2;
    let (ours, unlock) = (lock(&mine, 0, 10, EXCLUSIVE), lock(&mine, 0, 10, 4));
    assert_eq!(
        statuses(&a.send_chain(false, std::slice::from_ref(&ours))),
        [Status::SUCCESS]
    );
    let want = lock(&theirs, 5, 10, EXCLUSIVE);
    // It has it when it is its turn.
    let (mut later, _) = waits(&mut b, want.clone());
    assert_eq!(
        statuses(&a.send_chain(false, std::slice::from_ref(&unlock))),
        [Status::SUCCESS]
    );
    assert_eq!(poll(&mut later).unwrap().status, Status::SUCCESS);
    assert_eq!(
        statuses(&a.send_chain(false, &[lock(&mine, 0, 10, 0x12)])),
        [Status::LOCK_NOT_GRANTED]
    );
    assert_eq!(
        statuses(&b.send_chain(false, &[lock(&theirs, 5, 10, 4)])),
        [Status::SUCCESS]
    );
    // One that is granted as it is given up is nobody's.
    assert_eq!(
        statuses(&a.send_chain(false, std::slice::from_ref(&ours))),
        [Status::SUCCESS]
    );
    let (later, _) = waits(&mut b, want.clone());
    assert_eq!(statuses(&a.send_chain(false, &[unlock])), [Status::SUCCESS]);
    drop(later);
    assert_eq!(statuses(&a.send_chain(false, &[ours])), [Status::SUCCESS]);
    // It ends with its open.
    let (mut later, _) = waits(&mut b, want);
    assert_eq!(
        statuses(&b.send_chain(false, &[close(&theirs)])),
        [Status::SUCCESS]
    );
    assert_eq!(poll(&mut later).unwrap().status, Status::RANGE_NOT_LOCKED);
    world.ended(1);
    world.ended(2);
    assert_eq!(
        world.vfs.claims.totals(),
        weir_vfs::claims::Totals::default()
    );
}

#[test]
fn a_request_that_waits_is_cancelled() {
    let (world, sent) = with_mail();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    a.one(command::CREATE, caching("f", BATCH, None).1);
    for by_id in [true, false] {
        let number = b.message;
        let (mut later, id) = waits(&mut b, caching("f", BATCH, None));
        let used = b.message;
        // It has the number of what it cancels.
        b.message = number;
        let mut cancel = b.chain(false, &[(command::CANCEL, vec![4, 0, 0, 0])]);
        b.message = used;
        if by_id {
            crate::conn::reply::put_async(&mut cancel, id);
            cancel[24..32].fill(0);
        }
        assert!(matches!(world.send(2, &cancel), Came::Nothing));
        assert_eq!(poll(&mut later).unwrap().status, Status::CANCELLED);
    }
    assert_eq!(sent.lock().len(), 1, "the break goes on");
    // The end of a session releases all that it held.
    world.ended(1);
    let all = b.send_chain(false, &[caching("f", BATCH, None), caching("g", 0, None)]);
    assert_eq!(statuses(&all), [Status::SUCCESS; 2]);
}

#[test]
fn a_break_that_finds_no_room_is_sent_later_and_awaited() {
    let (world, sent, full) = (
        world(),
        SentMessages::default(),
        Arc::new(AtomicBool::new(true)),
    );
    let (list, no_room) = (Arc::clone(&sent), Arc::clone(&full));
    world
        .service
        .send_with(Arc::new(move |connection, message| {
            let room = !no_room.load(Ordering::Relaxed);
            if room {
                list.lock().push((connection, message.into()));
            }
            room
        }));
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    for (name, oplock, lease) in [("f", BATCH, None), ("g", LEASE, Some((7, R | H | W, 0)))] {
        full.store(true, Ordering::Relaxed);
        let mine = a.one(command::CREATE, caching(name, oplock, lease).1);
        // It waits: the client was not asked yet, and relies on what it caches.
        let (mut later, _) = waits(&mut b, caching(name, BATCH, None));
        world.service.tick();
        assert!(poll(&mut later).is_none() && sent.lock().is_empty());
        full.store(false, Ordering::Relaxed);
        world.service.tick();
        assert_eq!(only_break(&sent).0, 1);
        world.service.tick();
        assert!(sent.lock().is_empty(), "once");
        let answer = match oplock {
            BATCH => oplock_answer(II, &mine.file()),
            _ => lease_answer(7, R),
        };
        let answered = a.send_chain(false, &[answer]);
        assert_eq!(statuses(&answered), [Status::SUCCESS]);
        assert_eq!(poll(&mut later).unwrap().status, Status::SUCCESS);
        sent.lock().clear();
    }
}

/// A close that a client has put off keeps no file that another deletes.
#[test]
fn what_is_to_be_deleted_takes_leases_of_handles() {
    const DELETE: u32 = 0x1_0000;
    let disposition = |file: &[u8]| {
        let mut body = vec![33, 0, 1, 13, 1, 0, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0];
        body.put(file);
        body.put_u8(1);
        (command::SET_INFO, body)
    };
    for on_close in [true, false] {
        let (world, sent) = with_mail();
        let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
        let cached = caching("f", LEASE, Some((7, R | H, 0))).1;
        let cached = a.one(command::CREATE, cached).file();
        let deletes = match on_close {
            true => create("f", DELETE, SHARE, OPEN, 0x1000),
            false => {
                let opened = b.one(command::CREATE, create("f", DELETE, SHARE, OPEN, 0).1);
                assert!(sent.lock().is_empty(), "a mere open takes nothing");
                disposition(&opened.file())
            }
        };
        let (mut later, _) = waits(&mut b, deletes);
        let (to, message) = only_break(&sent);
        assert_eq!((to, message[24], message[28]), (1, 3, 1), "RH to R");
        a.send_chain(false, &[close(&cached)]);
        assert_eq!(poll(&mut later).unwrap().status, Status::SUCCESS);
    }
}

/// If the end of an open breaks its own caching, its client is notified only for other opens under
/// the lease.
#[test]
fn an_open_that_ends_is_sent_no_break() {
    for (kind, another) in [
        (Some((7, R | H | W, 0)), true),
        (Some((7, R | H | W, 0)), false),
        (None, false),
    ] {
        let (world, sent) = with_mail();
        let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
        let oplock = kind.map_or(BATCH, |_| LEASE);
        for _ in 0..1 + usize::from(another) {
            a.one(command::CREATE, caching("f", oplock, kind).1);
        }
        let session = world.service.session(a.session).unwrap();
        session.opens_under(a.tree)[0].hold.stands_alone();
        let request = caching("f", LEASE, Some((9, R, 0)));
        if another {
            let _waits = waits(&mut b, request);
            assert_eq!(only_break(&sent).0, 1);
        } else {
            let opened = b.one(command::CREATE, request.1);
            assert_eq!(opened.status, Status::SUCCESS, "{kind:?}");
            assert!(sent.lock().is_empty(), "{kind:?}");
        }
    }
}
