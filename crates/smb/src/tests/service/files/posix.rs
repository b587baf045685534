//! The POSIX extensions of SMB 3.1.1.

use super::*;
use crate::proto::negotiate::POSIX_TAG;
use crate::tests::durable::put_contexts;
use weir_auth::sid::Sid;
use weir_auth::wire::Reader;

const DATA: u32 = 0x83;
const DELETE: u32 = 0x1_0000;
const DIRECTORY: u32 = 1;
const DELETE_ON_CLOSE: u32 = 0x1000;
const FILESYSTEM: u8 = 2;
const RENAME: u8 = 10;
const LINK: u8 = 11;
const POSIX: u8 = 100;

/// A client that has the extensions.
fn ready(world: &World, connection: u64) -> Client<'_> {
    let mut c = Client::new(world, connection);
    c.contexts = vec![posix_context()];
    assert_eq!(c.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(c.connect("VOL1"), Status::SUCCESS);
    c
}

fn posix(name: &str, access: u32, disposition: u32, options: u32, mode: u32) -> Vec<u8> {
    let (_, mut body) = create(name, access, SHARE, disposition, options);
    put_contexts(&mut body, &[(&POSIX_TAG, mode.to_le_bytes().to_vec())]);
    body
}

/// The links, mode, owner and group of what is said of a file.
fn said(data: &[u8]) -> (u32, u32, Sid, Sid) {
    let mut r = Reader::new(data);
    let (links, tag, mode) = (r.u32().unwrap(), r.u32().unwrap(), r.u32().unwrap());
    assert_eq!(tag, 0);
    (
        links,
        mode,
        Sid::read(&mut r).unwrap(),
        Sid::read(&mut r).unwrap(),
    )
}

/// The data of the context in a response to CREATE.
fn context(answer: &Answer) -> &[u8] {
    let at = answer.u32(80) as usize - HEADER;
    let context = &answer.body[at..];
    assert_eq!(context[16..32], POSIX_TAG);
    &context[32..]
}

fn renames(file: &[u8], class: u8, to: &str, replace: u8) -> Vec<u8> {
    let name = utf16(to);
    let mut data = vec![replace, 0, 0, 0, 0, 0, 0, 0];
    data.put_u64(0);
    data.put_u32(name.len() as u32);
    data.put(&name);
    set(file, FILE, class, 0, &data).1
}

#[test]
fn files_have_the_mode_that_is_asked_for_and_show_it() {
    let world = world();
    let mut c = ready(&world, 1);
    let dir = c.one(
        command::CREATE,
        posix("d", DATA, CREATE, DIRECTORY, 0o42770),
    );
    assert_eq!(dir.status, Status::SUCCESS);
    let file = c.one(command::CREATE, posix("d/f", DATA, CREATE, 0, 0o640));
    assert_eq!(file.status, Status::SUCCESS);
    let volume = world.engine.volumes().remove(0);
    let cx = &mut EngineContext::new(Time::EPOCH);
    let d = volume
        .drive_blocking(cx, |cx| volume.lookup(cx, volume.root(), b"d"))
        .unwrap();
    let f = volume
        .drive_blocking(cx, |cx| volume.lookup(cx, d.ino, b"f"))
        .unwrap();
    assert_eq!((d.attr.mode, f.attr.mode), (0o2770, 0o640));
    let owner = (Sid::user(f.attr.uid), Sid::group(f.attr.gid));
    let expected = (1, 0o640, owner.0.clone(), owner.1.clone());
    assert_eq!(said(context(&file)), expected);

    let all = info(&c.one(command::QUERY_INFO, query(&file.file(), FILE, POSIX, 0).1));
    let word = |at: usize| u64::from_le_bytes(all[at..at + 8].try_into().unwrap());
    assert_eq!((word(32), word(52)), (0, f.ino.0));
    assert_eq!(said(&all[68..]), expected);

    let mut body = Vec::new();
    body.put_u16(33);
    body.put(&[POSIX, 0]);
    body.put_u32(0);
    body.put(&dir.file());
    body.put_u16(96);
    body.put_u16(2);
    body.put_u32(4096);
    body.put(&utf16("f"));
    let entry = info(&c.one(command::QUERY_DIRECTORY, body.clone()));
    assert_eq!(said(&entry[76..]), expected);
    assert!(entry.ends_with(&[2, 0, 0, 0, b'f', 0]));

    let room = info(&c.one(
        command::QUERY_INFO,
        query(&dir.file(), FILESYSTEM, POSIX, 0).1,
    ));
    assert_eq!(room.len(), 56);
    assert_eq!(room[4..8], 4096u32.to_le_bytes());
    assert_eq!(room[48..], f.attr.fsid.to_le_bytes());

    // A client that has not negotiated them has none of it.
    let mut other = Client::ready(&world, 2);
    let asked = other.one(command::CREATE, posix("plain", DATA, CREATE, 0, 0o600));
    assert_eq!((asked.status, asked.u32(84)), (Status::SUCCESS, 0));
    let refused = other.one(command::QUERY_INFO, query(&asked.file(), FILE, POSIX, 0).1);
    assert_eq!(refused.status, Status::INVALID_INFO_CLASS);
    let opened = other.one(command::CREATE, create("d", DATA, SHARE, OPEN, DIRECTORY).1);
    body[8..24].copy_from_slice(&opened.file());
    let refused = other.one(command::QUERY_DIRECTORY, body);
    assert_eq!(refused.status, Status::INVALID_INFO_CLASS);
}

#[test]
fn names_are_exact_and_hold_what_smb_reserves() {
    let world = world();
    let mut c = ready(&world, 1);
    for name in ["a", "A", "b:c", "\\", "q?*"] {
        let made = c.one(
            command::CREATE,
            posix(name, DATA | DELETE, CREATE, 0, 0o644),
        );
        assert_eq!(made.status, Status::SUCCESS, "{name}");
    }
    let missing = c
        .one(command::CREATE, posix("B:C", DATA, OPEN, 0, 0))
        .status;
    assert_eq!(missing, Status::OBJECT_NAME_NOT_FOUND);
    let (_, a) = create("a", DATA, SHARE, OPEN, 0);
    let folded = Client::ready(&world, 2).one(command::CREATE, a);
    assert_eq!(folded.status, Status::SUCCESS);
    let dir = c.one(
        command::CREATE,
        posix("Dir", DATA, CREATE, DIRECTORY, 0o755),
    );
    assert_eq!(dir.status, Status::SUCCESS);
    let lost = c
        .one(command::CREATE, posix("dir/x", DATA, CREATE, 0, 0o644))
        .status;
    assert_eq!(lost, Status::OBJECT_PATH_NOT_FOUND);
    let b = c
        .one(command::CREATE, posix("b:c", DATA | DELETE, OPEN, 0, 0))
        .file();
    let lost = c
        .one(command::SET_INFO, renames(&b, RENAME, "dir/b", 0))
        .status;
    assert_eq!(lost, Status::OBJECT_PATH_NOT_FOUND);
    let moved = c
        .one(command::SET_INFO, renames(&b, RENAME, "Dir/a\\b", 0))
        .status;
    assert_eq!(moved, Status::SUCCESS);
    let linked = c.one(command::SET_INFO, renames(&b, LINK, "B", 0)).status;
    assert_eq!(linked, Status::SUCCESS);
    let volume = world.engine.volumes().remove(0);
    let cx = &mut EngineContext::new(Time::EPOCH);
    let d = volume
        .drive_blocking(cx, |cx| volume.lookup(cx, volume.root(), b"Dir"))
        .unwrap();
    let moved = volume
        .drive_blocking(cx, |cx| volume.lookup(cx, d.ino, b"a\\b"))
        .unwrap();
    assert_eq!(moved.attr.nlink, 2);
}

#[test]
fn what_is_deleted_or_replaced_loses_its_name_at_once_and_stays_open() {
    let world = world();
    let mut c = ready(&world, 1);
    let gone = |c: &mut Client<'_>, name: &str| {
        let status = c.one(command::CREATE, posix(name, DATA, OPEN, 0, 0)).status;
        assert_eq!(status, Status::OBJECT_NAME_NOT_FOUND, "{name}");
    };
    let goes_on = |c: &mut Client<'_>, file: &[u8]| {
        let answers = c.send_chain(false, &[write(file, 0, b"more"), read(file, 0, 4)]);
        assert_eq!(statuses(&answers), [Status::SUCCESS; 2]);
    };
    let open = |c: &mut Client<'_>, name: &str| {
        let made = c.one(command::CREATE, posix(name, DATA, OPEN_IF, 0, 0o644));
        assert_eq!(made.status, Status::SUCCESS, "{name}");
        made.file()
    };
    // Unlink as Linux does it.
    let kept = open(&mut c, "f");
    let deletes = posix("f", DELETE, OPEN, DELETE_ON_CLOSE, 0);
    let deletes = c.one(command::CREATE, deletes).file();
    assert_eq!(
        statuses(&c.send_chain(false, &[close(&deletes)])),
        [Status::SUCCESS]
    );
    gone(&mut c, "f");
    goes_on(&mut c, &kept);
    // Another file has the name, and is not touched by the close of the old one.
    let second = open(&mut c, "f");
    c.send_chain(false, &[close(&kept)]);
    goes_on(&mut c, &second);
    assert_eq!(
        c.one(command::CREATE, posix("f", DATA, OPEN, 0, 0)).status,
        Status::SUCCESS
    );
    // rename(2) over a file that is open, and of a directory over an empty one.
    let source = c
        .one(command::CREATE, posix("g", DATA | DELETE, CREATE, 0, 0o644))
        .file();
    let moved = c
        .one(command::SET_INFO, renames(&source, RENAME, "f", 1))
        .status;
    assert_eq!(moved, Status::SUCCESS);
    gone(&mut c, "g");
    goes_on(&mut c, &second);
    for name in ["d1", "d2", "d3"] {
        let made = c.one(command::CREATE, posix(name, DATA, CREATE, DIRECTORY, 0o755));
        assert_eq!(made.status, Status::SUCCESS);
    }
    open(&mut c, "d3/x");
    let dir = c
        .one(command::CREATE, posix("d1", DELETE, OPEN, DIRECTORY, 0))
        .file();
    let full = c
        .one(command::SET_INFO, renames(&dir, RENAME, "d3", 1))
        .status;
    assert_eq!(full, Status::DIRECTORY_NOT_EMPTY);
    let moved = c
        .one(command::SET_INFO, renames(&dir, RENAME, "d2", 1))
        .status;
    assert_eq!(moved, Status::SUCCESS);
    gone(&mut c, "d1");
    // A client without the extensions asks for the same by a flag.
    let mut plain = Client::ready(&world, 2);
    let opened = plain
        .one(command::CREATE, create("f", DELETE, SHARE, OPEN, 0).1)
        .file();
    let now = set(&opened, FILE, 64, 0, &3u32.to_le_bytes());
    let kept = open(&mut c, "f");
    let answers = plain.send_chain(false, &[now, close(&opened)]);
    assert_eq!(statuses(&answers), [Status::SUCCESS; 2]);
    gone(&mut c, "f");
    goes_on(&mut c, &kept);
}
