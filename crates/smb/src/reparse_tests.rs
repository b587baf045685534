//! Symbolic links over SMB.

use super::*;
use crate::info::TAG_SYMLINK;

const READ_ATTRIBUTES: u32 = 0x80;
const DATA: u32 = 3;
const DELETE: u32 = 0x1_0000;
const OPEN_REPARSE_POINT: u32 = 0x20_0000;
const DELETE_ON_CLOSE: u32 = 0x1000;
const REPARSE_POINT: u32 = 0x400;
const GET_REPARSE_POINT: u32 = 0x9_00a8;

/// A directory with a file, and links: to the directory, out of the share, and to where no client of SMB is.
fn linked() -> World {
    let world = world();
    let volume = world.engine.volumes().remove(0);
    let mut cx = EngineContext::new(Time::EPOCH);
    let root = volume.root();
    let mut made = |name: &[u8], target: &[u8]| {
        let attrs = SetAttr::default();
        let made =
            volume.drive_blocking(&mut cx, |cx| volume.symlink(cx, root, name, target, &attrs));
        made.unwrap();
    };
    made(b"relative", b"dir/../dir");
    made(b"outside", b"../../etc");
    made(b"absolute", b"/etc/pass:wd");
    let mut c = Client::ready(&world, 7);
    for (name, options) in [("dir", 1), ("dir\\f", 0)] {
        let made = create(name, DATA, SHARE, CREATE, options);
        assert_eq!(c.one(command::CREATE, made.1).status, Status::SUCCESS);
    }
    drop(c);
    world.service.connection_ended(7);
    world
}

/// The parts of a Symbolic Link Error Response: target, flags, bytes of the path behind the link.
fn stopped(response: &[u8]) -> (String, u32, usize) {
    let word = |at: usize| u32::from_le_bytes(response[at..at + 4].try_into().unwrap());
    let short =
        |at: usize| usize::from(u16::from_le_bytes(response[at..at + 2].try_into().unwrap()));
    assert_eq!(word(0) as usize, response.len() - 4);
    assert_eq!((word(4), word(8)), (0x4c4d_5953, TAG_SYMLINK));
    assert_eq!(short(12), response.len() - 16);
    let name = |at: usize| {
        let (offset, len) = (28 + short(at), short(at + 2));
        crate::wire::from_utf16(&response[offset..offset + len]).unwrap()
    };
    assert_eq!(name(16), name(20));
    (name(16), word(24), short(14))
}

#[test]
fn a_path_stops_at_a_link_and_says_where_it_leads() {
    let world = linked();
    for dialect in [Dialect::Smb210, Dialect::Smb302, Dialect::Smb311] {
        let mut c = Client::new(&world, 1);
        assert_eq!(c.log_on(dialect, PASSWORD), Status::SUCCESS);
        assert_eq!(c.connect("VOL1"), Status::SUCCESS);
        for (path, target, flags, behind) in [
            ("relative", "dir\\..\\dir", 1, ""),
            ("Relative\\f", "dir\\..\\dir", 1, "\\f"),
            ("relative\\no\\such", "dir\\..\\dir", 1, "\\no\\such"),
            ("relative\\f:stream", "dir\\..\\dir", 1, "\\f:stream"),
            // They leave the share, or are no paths of this client's: it decides, and the server goes nowhere.
            ("outside\\passwd", "..\\..\\etc", 1, "\\passwd"),
            ("absolute", "\\etc\\pass\u{f022}wd", 0, ""),
        ] {
            for access in [READ_ATTRIBUTES, DATA, DELETE] {
                let answer = c.one(command::CREATE, create(path, access, SHARE, OPEN, 0).1);
                assert_eq!(answer.status, Status::STOPPED_ON_SYMLINK, "{path}");
                let len = answer.u32(4) as usize;
                assert_eq!((answer.body[0], answer.body.len()), (9, 8 + len));
                let response = match dialect {
                    Dialect::Smb311 => {
                        assert_eq!((answer.body[2], answer.u32(12)), (1, 0));
                        assert_eq!(answer.u32(8) as usize, len - 8);
                        &answer.body[16..]
                    }
                    _ => &answer.body[8..],
                };
                let behind = 2 * behind.encode_utf16().count();
                assert_eq!(
                    stopped(response),
                    (target.to_owned(), flags, behind),
                    "{path}"
                );
            }
        }
        world.service.connection_ended(1);
    }
}

#[test]
fn a_link_itself_is_opened_read_listed_and_deleted() {
    let world = linked();
    let mut c = Client::ready(&world, 1);
    let link = |access, options| {
        create(
            "relative",
            access,
            SHARE,
            OPEN,
            options | OPEN_REPARSE_POINT,
        )
    };
    let opened = c.one(command::CREATE, link(READ_ATTRIBUTES, 0).1);
    assert_eq!(opened.status, Status::SUCCESS);
    assert_eq!(opened.u32(56), REPARSE_POINT);
    let (file, attribute_tag) = (opened.file(), 35);
    let tag = c.one(command::QUERY_INFO, query(&file, FILE, attribute_tag, 0).1);
    let expected = [REPARSE_POINT.to_le_bytes(), TAG_SYMLINK.to_le_bytes()].concat();
    assert_eq!(info(&tag), expected);
    let read = control(&file, GET_REPARSE_POINT, &[], 4096);
    let answer = c.one(command::IOCTL, read.1);
    assert_eq!(answer.status, Status::SUCCESS);
    let len = answer.u32(36) as usize;
    let buffer = &answer.body[48..48 + len];
    assert_eq!(buffer[..4], TAG_SYMLINK.to_le_bytes());
    assert_eq!(buffer[4..8], [(len - 8) as u8, 0, 0, 0]);
    assert_eq!(buffer[16..20], [1, 0, 0, 0], "it is relative");
    let name = (len - 20) / 2;
    assert_eq!(
        crate::wire::from_utf16(&buffer[20..20 + name]).unwrap(),
        "dir\\..\\dir"
    );
    let short = c.one(command::IOCTL, control(&file, GET_REPARSE_POINT, &[], 8).1);
    assert_eq!(short.status, Status::BUFFER_TOO_SMALL);
    // It has no data.
    let refused = c.one(command::CREATE, link(DATA, 0).1).status;
    assert_eq!(refused, Status::ACCESS_DENIED);
    // What is none has no target.
    let plain = c.one(
        command::CREATE,
        create("dir\\f", DATA, SHARE, OPEN, OPEN_REPARSE_POINT).1,
    );
    let none = c.one(
        command::IOCTL,
        control(&plain.file(), GET_REPARSE_POINT, &[], 4096).1,
    );
    assert_eq!(none.status, Status::NOT_A_REPARSE_POINT);

    // FileIdBothDirectoryInformation: FileAttributes, and the tag as EaSize.
    let root = c
        .one(command::CREATE, create("", 0x81, SHARE, OPEN, 1).1)
        .file();
    let mut body = Vec::new();
    body.put_u16(33);
    body.put(&[37, 0]);
    body.put_u32(0);
    body.put(&root);
    body.put_u16(96);
    body.put_u16(16);
    body.put_u32(4096);
    body.put(&utf16("relative"));
    let listed = info(&c.one(command::QUERY_DIRECTORY, body));
    let word = |at: usize| u32::from_le_bytes(listed[at..at + 4].try_into().unwrap());
    assert_eq!((word(56), word(64)), (REPARSE_POINT, TAG_SYMLINK));

    let deleted = c.one(command::CREATE, link(DELETE, DELETE_ON_CLOSE).1);
    assert_eq!(deleted.status, Status::SUCCESS);
    c.ask(false, &[close(&file), close(&deleted.file())]);
    let gone = c.one(command::CREATE, link(READ_ATTRIBUTES, 0).1).status;
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
    let there = c.one(command::CREATE, create("dir\\f", DATA, SHARE, OPEN, 0).1);
    assert_eq!(there.status, Status::SUCCESS, "what it led to stays");
}

/// A related request behind a CREATE that stopped fails as that did.
#[test]
fn what_is_related_to_a_create_that_stopped_fails_likewise() {
    let world = linked();
    let mut c = Client::ready(&world, 1);
    let same = [0xff; 16];
    let all = c.ask(
        true,
        &[
            create("relative", DATA, SHARE, OPEN, 0),
            query(&same, FILE, 4, 0),
            close(&same),
        ],
    );
    assert_eq!(statuses(&all), [Status::STOPPED_ON_SYMLINK; 3]);
}
