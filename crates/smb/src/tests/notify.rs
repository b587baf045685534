//! Watches of directories, with the client of [`crate::tests::service`].

use crate::proto::header::command;
use crate::proto::status::Status;
use crate::service::Outcome;
use crate::tests::lease::{poll, waits};
use crate::tests::service::*;
use weir_auth::wire::{Put, from_utf16};
use weir_vfs::volume::SetAttr;
use weir_vfs::{
    Admissions, ClientKey, Flavour, Identity, MetadataWrite, OpContext, Protocol, Transport,
};

const DIRECTORY: u32 = 0x1;
const DELETE_ON_CLOSE: u32 = 0x1000;
/// Names of files and directories.
const NAMES: u32 = 0x3;
const EVERYTHING: u32 = 0xfff;

fn notify(file: &[u8], tree: bool, len: u32, filter: u32) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(32);
    body.put_u16(u16::from(tree));
    body.put_u32(len);
    body.put(file);
    body.put_u32(filter);
    body.put_u32(0);
    (command::CHANGE_NOTIFY, body)
}

/// Returns the changes that a response reports: the action and the name of each.
fn changes(answer: &Answer) -> Vec<(u32, String)> {
    assert_eq!(answer.status, Status::SUCCESS);
    let (mut at, mut out) = (8, Vec::new());
    loop {
        let (next, len) = (answer.u32(at), answer.u32(at + 8) as usize);
        let name = from_utf16(&answer.body[at + 12..at + 12 + len]).unwrap();
        out.push((answer.u32(at + 4), name));
        match next {
            0 => return out,
            next => at += next as usize,
        }
    }
}

fn owned_changes(all: &[(u32, &str)]) -> Vec<(u32, String)> {
    all.iter().map(|(a, n)| (*a, (*n).into())).collect()
}

fn open_dir(c: &mut Client<'_>, name: &str) -> Vec<u8> {
    let options = if name.is_empty() { 0 } else { DIRECTORY };
    // To list it, and its attributes.
    let (command, body) = create(name, 0x81, SHARE, OPEN_IF, options);
    c.one(command, body).file()
}

/// Makes, or deletes, what has a name.
fn make(c: &mut Client<'_>, name: &str, options: u32) {
    let (command, body) = create(name, ALL, SHARE, OPEN_IF, options);
    let file = c.one(command, body).file();
    assert_eq!(
        statuses(&c.send_chain(false, &[close(&file)])),
        [Status::SUCCESS]
    );
}

/// Makes a directory in the volume's root as a protocol without opens does.
fn mkdir_from_elsewhere(world: &World, name: &[u8]) {
    let (table, admitted) = (world.vfs.exports(), Admissions::default());
    let root = table.iter().next().unwrap().root();
    let identity = Identity::default();
    let session = weir_vfs::Session {
        origin: [127, 0, 0, 9].into(),
        protocol: Protocol::Smb,
        flavour: Flavour::Ntlm,
        transport: Transport::Clear,
        identity: Some(&identity),
        access: (),
        client: ClientKey::OTHERS,
        admitted: &admitted,
    };
    let mut cx = OpContext::new(weir_base::Time::default(), 0, None);
    let file = world.vfs.admit_file(&table, root, &session);
    let file = file.ok().expect("everybody is admitted");
    let (root, charged) = file
        .charge(&world.vfs, &mut cx, MetadataWrite)
        .ok()
        .unwrap();
    let made = root.mkdir(&mut cx, charged, name, &SetAttr::default());
    assert!(made.is_ok());
}

#[test]
fn changes_over_any_protocol_wake_who_watches() {
    let world = world();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let root = open_dir(&mut a, "");
    let ask = || notify(&root, false, 4096, NAMES);
    let (mut later, _) = waits(&mut a, ask());
    make(&mut b, "new", 0);
    let answer = poll(&mut later).expect("it was reported");
    assert_eq!(changes(&answer), owned_changes(&[(1, "new")]));

    let (mut later, _) = waits(&mut a, ask());
    mkdir_from_elsewhere(&world, b"d");
    let answer = poll(&mut later).expect("over whatever protocol");
    assert_eq!(changes(&answer), owned_changes(&[(1, "d")]));

    // Changes are kept while no request waits. Changes below a directory are not reported for its
    // parent.
    make(&mut b, "d\\deep", 0);
    make(&mut b, "d\\deep", DELETE_ON_CLOSE);
    make(&mut b, "d", DIRECTORY | DELETE_ON_CLOSE);
    make(&mut b, "new", DELETE_ON_CLOSE);
    let answer = a.send_chain(false, &[ask()]).remove(0);
    assert_eq!(changes(&answer), owned_changes(&[(2, "d"), (2, "new")]));
}

#[test]
fn a_watch_of_a_tree_says_the_path() {
    let world = world();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    for dir in ["x", "x\\y", "x\\y\\z"] {
        open_dir(&mut b, dir);
    }
    let watched = open_dir(&mut a, "x");
    let ask = || notify(&watched, true, 4096, EVERYTHING);
    let (mut later, _) = waits(&mut a, ask());
    let (command, body) = create("x\\y\\z\\f", ALL, SHARE, OPEN_IF, 0);
    let file = b.one(command, body).file();
    let answer = poll(&mut later).expect("it was reported");
    assert_eq!(changes(&answer), owned_changes(&[(1, "y\\z\\f")]));
    // Data are reported with CLOSE, once however many they were.
    let writes = [write(&file, 0, b"1"), write(&file, 1, b"2")];
    b.send_chain(false, &writes);
    let (mut later, _) = waits(&mut a, ask());
    b.send_chain(false, &[close(&file)]);
    let answer = poll(&mut later).expect("it was reported");
    assert_eq!(changes(&answer), owned_changes(&[(3, "y\\z\\f")]));
    // Beside it is not in it.
    let (mut later, _) = waits(&mut a, ask());
    make(&mut b, "beside", 0);
    assert!(poll(&mut later).is_none());
}

#[test]
fn what_does_not_fit_has_the_directory_listed() {
    let world = world();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let root = open_dir(&mut a, "");
    let ask = |len| notify(&root, false, len, NAMES);
    // Room for two records of one letter.
    let (later, _) = waits(&mut a, ask(30));
    drop(later);
    make(&mut b, "p", 0);
    make(&mut b, "q", 0);
    let answer = a.send_chain(false, &[ask(30)]).remove(0);
    assert_eq!(changes(&answer), owned_changes(&[(1, "p"), (1, "q")]));
    for name in ["r", "s", "t"] {
        make(&mut b, name, 0);
    }
    let answer = a.send_chain(false, &[ask(30)]).remove(0);
    assert_eq!((answer.status, answer.u32(4)), (Status::NOTIFY_ENUM_DIR, 0));
    // After that it begins anew; less than one record is never enough.
    let (mut later, _) = waits(&mut a, ask(13));
    make(&mut b, "u", 0);
    assert_eq!(poll(&mut later).unwrap().status, Status::NOTIFY_ENUM_DIR);
    let too_long = a.send_chain(false, &[ask(1 << 21)]).remove(0);
    assert_eq!(too_long.status, Status::INVALID_PARAMETER);
}

#[test]
fn a_watch_ends_with_its_open_its_directory_or_its_session() {
    let world = world();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let dir = open_dir(&mut a, "d");
    let again = open_dir(&mut a, "d");
    let (mut first, _) = waits(&mut a, notify(&dir, false, 100, NAMES));
    let (mut second, _) = waits(&mut a, notify(&again, false, 100, NAMES));
    a.send_chain(false, &[close(&dir)]);
    assert_eq!(poll(&mut first).unwrap().status, Status::NOTIFY_CLEANUP);
    assert!(poll(&mut second).is_none());
    make(&mut b, "d", DIRECTORY | DELETE_ON_CLOSE);
    assert_eq!(poll(&mut second).unwrap().status, Status::DELETE_PENDING);
    let late = a.send_chain(false, &[notify(&again, false, 100, NAMES)]);
    assert_eq!(statuses(&late), [Status::DELETE_PENDING]);

    let root = open_dir(&mut a, "");
    let (mut cancelled, _) = waits(&mut a, notify(&root, false, 100, NAMES));
    a.message -= 1;
    let cancel = a.chain(false, &[(command::CANCEL, vec![4, 0, 0, 0])]);
    assert!(matches!(world.handle(1, &cancel), Outcome::Drop));
    assert_eq!(poll(&mut cancelled).unwrap().status, Status::CANCELLED);
    let (mut last, _) = waits(&mut a, notify(&root, false, 100, NAMES));
    assert!(world.vfs.watchers.is_active());
    let over = a.send_chain(false, &[(command::LOGOFF, vec![4, 0, 0, 0])]);
    assert_eq!(statuses(&over), [Status::SUCCESS]);
    assert_eq!(poll(&mut last).unwrap().status, Status::NOTIFY_CLEANUP);
    assert!(!world.vfs.watchers.is_active());
}

#[test]
fn only_who_may_list_a_directory_watches_it() {
    let world = world();
    let mut a = Client::ready(&world, 1);
    let (command, body) = create("", 0x80, SHARE, OPEN, 0);
    let blind = a.one(command, body).file();
    let (command, body) = create("f", ALL, SHARE, OPEN_IF, 0);
    let file = a.one(command, body).file();
    let refused = a.send_chain(false, &[notify(&blind, false, 100, NAMES)]);
    assert_eq!(statuses(&refused), [Status::ACCESS_DENIED]);
    let refused = a.send_chain(false, &[notify(&file, false, 100, NAMES)]);
    assert_eq!(statuses(&refused), [Status::INVALID_PARAMETER]);
    assert!(!world.vfs.watchers.is_active());
}
