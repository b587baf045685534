//! Leases of directories: what breaks them and what does not, with the client of
//! [`crate::tests::service`].

use crate::proto::dialect::Dialect;
use crate::proto::header::{HEADER, command};
use crate::proto::status::Status;
use crate::tests::lease::{LEASE, SentMessages, poll, waits, with_mail};
use crate::tests::service::*;
use weir_auth::wire::{Put, utf16};
use weir_base::Time;
use weir_vfs::claims::{Actor, Event, Passage, Style};
use weir_vfs::{FileId, Namespace};

/// R and H, and all that there is, on the wire.
const R_H: u32 = 3;
const ALL_BITS: u32 = 7;
/// The keys of the directory's lease and of a file's.
const DIRECTORY: u8 = 0xd;
const FILE: u8 = 0xf;
/// SMB2_LEASE_FLAG_PARENT_LEASE_KEY_SET.
const PARENT: u32 = 4;

/// A CREATE with a lease of version 2 under a key, which names the directory's as its parent or
/// does not.
fn leased(name: &str, options: u32, (key, bits): (u8, u32), parent: Option<u8>) -> (u16, Vec<u8>) {
    let (command, mut body) = create(name, ALL, SHARE, OPEN_IF, options);
    body[3] = LEASE;
    body.truncate(56);
    body.put(&utf16(name));
    body.align(0, 8);
    let start = body.len();
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
    body.put_u32(if parent.is_some() { PARENT } else { 0 });
    body.put_u64(0);
    body.put(&[parent.unwrap_or(0); 16]);
    body.put_u32(0);
    let len = (body.len() - start) as u32;
    body.set_u32(48, (HEADER + start) as u32);
    body.set_u32(52, len);
    (command, body)
}

/// The bits that a response grants.
fn bits(answer: &Answer) -> u32 {
    assert_eq!(answer.status, Status::SUCCESS);
    let at = answer.body.windows(4).position(|w| w == b"RqLs");
    at.map_or(0, |at| answer.u32(at + 24))
}

fn opens(c: &mut Client<'_>) -> Vec<u8> {
    let answer = c.one(
        command::CREATE,
        leased("d", 1, (DIRECTORY, ALL_BITS), None).1,
    );
    assert_eq!(bits(&answer), R_H, "a directory has nothing to write");
    answer.file()
}

fn acknowledged(c: &mut Client<'_>) {
    let mut body = Vec::new();
    body.put_u16(36);
    body.put_zeroes(6);
    body.put(&[DIRECTORY; 16]);
    body.put_u32(0);
    body.put_u64(0);
    assert_eq!(c.one(command::OPLOCK_BREAK, body).status, Status::SUCCESS);
}

/// The key and the new state of each break since the last time, and to whom it was sent.
fn broken(sent: &SentMessages) -> Vec<(u64, u8, u32)> {
    let all = std::mem::take(&mut *sent.lock());
    let one = |(to, message): (u64, Vec<u8>)| {
        let body = &message[HEADER..];
        let state = u32::from_le_bytes(body[28..32].try_into().unwrap());
        (to, body[8], state)
    };
    all.into_iter().map(one).collect()
}

fn directory(world: &World) -> FileId {
    let volume = world.engine.volumes().remove(0);
    let mut cx = weir_volume::EngineContext::new(Time::EPOCH);
    let root = volume.root();
    let found = volume.drive_blocking(&mut cx, |cx| volume.lookup(cx, root, b"d"));
    FileId {
        volume: volume.id(),
        ino: found.unwrap().ino,
        namespace: Namespace::Live,
    }
}

#[test]
fn others_changes_of_entries_wait_for_the_holder() {
    let (world, sent) = with_mail();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    opens(&mut a);
    // To open, read and list is no change.
    let listed = b
        .one(command::CREATE, create("d", 1, SHARE, OPEN, 1).1)
        .file();
    b.send_chain(false, &[close(&listed)]);
    assert_eq!(broken(&sent), []);
    let makes = create("d\\new", ALL, SHARE, CREATE, 0);
    let (mut later, _) = waits(&mut b, makes);
    assert_eq!(broken(&sent), [(1, DIRECTORY, 0)]);
    acknowledged(&mut a);
    let made = poll(&mut later).unwrap().file();
    // Once broken, nobody is asked.
    let other = b.one(command::CREATE, create("d\\other", ALL, SHARE, CREATE, 0).1);
    assert_eq!(other.status, Status::SUCCESS);
    assert_eq!(broken(&sent), []);
    // A size that others' listings show is theirs with the close.
    opens(&mut a);
    b.send_chain(false, &[write(&made, 0, b"hello")]);
    assert_eq!(broken(&sent), []);
    b.send_chain(false, &[close(&made)]);
    assert_eq!(broken(&sent), [(1, DIRECTORY, 0)]);
    acknowledged(&mut a);
    // NFS waits, and goes ahead afterwards.
    opens(&mut a);
    let d = directory(&world);
    let nfs = || {
        world
            .vfs
            .claims
            .names(d, Actor::Stateless, Event::Entries, Style::Unix)
    };
    assert!(matches!(nfs(), Passage::Breaking(_)));
    assert_eq!(broken(&sent), [(1, DIRECTORY, 0)]);
    acknowledged(&mut a);
    assert_eq!(nfs(), Passage::Free);
}

#[test]
fn the_holders_own_changes_break_nothing() {
    let (world, sent) = with_mail();
    let mut a = Client::ready(&world, 1);
    opens(&mut a);
    let makes = leased("d\\own", 0x1000, (FILE, ALL_BITS), Some(DIRECTORY));
    let made = a.one(command::CREATE, makes.1);
    assert_eq!(bits(&made), ALL_BITS);
    let all = a.send_chain(
        false,
        &[write(&made.file(), 0, b"hello"), close(&made.file())],
    );
    assert_eq!(statuses(&all), [Status::SUCCESS; 2]);
    let gone = a
        .one(command::CREATE, create("d\\own", 1, SHARE, OPEN, 0).1)
        .status;
    assert_eq!(
        gone,
        Status::OBJECT_NAME_NOT_FOUND,
        "deleted with its close"
    );
    assert_eq!(broken(&sent), []);
    // One that does not say that it knows of the lease is another.
    let (_later, _) = waits(&mut a, leased("d\\new", 0, (FILE, ALL_BITS), Some(FILE)));
    assert_eq!(broken(&sent), [(1, DIRECTORY, 0)]);
}

#[test]
fn what_the_directory_itself_goes_through_takes_its_handle() {
    let (world, sent) = with_mail();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let file = opens(&mut a);
    let wanted = create("d", 0x1_0000, SHARE, OPEN, 0x1001);
    let opened = b.one(command::CREATE, wanted.1).file();
    assert_eq!(broken(&sent), [], "it goes with the last close");
    b.send_chain(false, &[close(&opened)]);
    a.send_chain(false, &[close(&file)]);
    let gone = b
        .one(command::CREATE, create("d", 1, SHARE, OPEN, 1).1)
        .status;
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn a_key_is_of_one_file_whatever_it_gets() {
    let (world, _) = with_mail();
    let mut a = Client::ready(&world, 1);
    let file = a.one(command::CREATE, leased("f", 0, (FILE, ALL_BITS), None).1);
    assert_eq!(bits(&file), ALL_BITS);
    let (_, mut first) = leased("d", 1, (FILE, R_H), None);
    let refused = a.one(command::CREATE, first.clone()).status;
    assert_eq!(refused, Status::INVALID_PARAMETER);
    // Of version 1, which directories do not have.
    let at = first.windows(4).position(|w| w == b"RqLs").unwrap();
    first.set_u32(at - 4, 32);
    first.truncate(at + 8 + 32);
    let contexts = (first.len() - (at - 16)) as u32;
    first.set_u32(52, contexts);
    let refused = a.one(command::CREATE, first).status;
    assert_eq!(refused, Status::INVALID_PARAMETER);
}

#[test]
fn who_does_not_know_them_has_none() {
    let (world, _) = with_mail();
    let mut old = Client::new(&world, 1);
    assert_eq!(old.log_on(Dialect::Smb210, PASSWORD), Status::SUCCESS);
    assert_eq!(old.connect("VOL1"), Status::SUCCESS);
    let answer = old.one(command::CREATE, leased("d", 1, (DIRECTORY, R_H), None).1);
    assert_eq!(bits(&answer), 0);
    // A durable open is of files.
    let mut a = Client::ready(&world, 2);
    let file = opens(&mut a);
    world.ended(2);
    assert_eq!(world.service.counts().2, 1, "{file:?}");
}
