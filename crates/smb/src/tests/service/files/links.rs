//! Symbolic links over SMB.

use super::*;
use crate::info::entry::TAG_SYMLINK;

const READ_ATTRIBUTES: u32 = 0x80;
const DATA: u32 = 3;
const DELETE: u32 = 0x1_0000;
const OPEN_REPARSE_POINT: u32 = 0x20_0000;
const DELETE_ON_CLOSE: u32 = 0x1000;
const REPARSE_POINT: u32 = 0x400;
const GET_REPARSE_POINT: u32 = 0x9_00a8;

/// A directory with a file, and links: to the directory, out of the share, and to where no client
/// of SMB is.
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
    world.ended(7);
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
        weir_auth::wire::from_utf16(&response[offset..offset + len]).unwrap()
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
            // They leave the share, or are no paths of this client's: it decides, and the server
            // goes nowhere.
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
        world.ended(1);
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
        weir_auth::wire::from_utf16(&buffer[20..20 + name]).unwrap(),
        "dir\\..\\dir"
    );
    let short = c.one(command::IOCTL, control(&file, GET_REPARSE_POINT, &[], 8).1);
    assert_eq!(short.status, Status::BUFFER_TOO_SMALL);
    // It has no data.
    let refused = c.one(command::CREATE, link(DATA, 0).1).status;
    assert_eq!(refused, Status::ACCESS_DENIED);
    // A plain file has no target.
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
    c.send_chain(false, &[close(&file), close(&deleted.file())]);
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
    let all = c.send_chain(
        true,
        &[
            create("relative", DATA, SHARE, OPEN, 0),
            query(&same, FILE, 4, 0),
            close(&same),
        ],
    );
    assert_eq!(statuses(&all), [Status::STOPPED_ON_SYMLINK; 3]);
}

const SET_REPARSE_POINT: u32 = 0x9_00a4;
const DELETE_REPARSE_POINT: u32 = 0x9_00ac;
const WRITE_ATTRIBUTES: u32 = 0x100;
const TAG_NFS: u32 = 0x8000_0014;
const DIRECTORY: u32 = 0x10;
const DIRECTORY_FILE: u32 = 1;

fn point(tag: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(tag);
    out.put_u16(data.len() as u16);
    out.put_u16(0);
    out.put(data);
    out
}

/// Encodes a link as Windows does, with the print name first.
fn symlink(name: &str, flags: u32) -> Vec<u8> {
    let (name, shown) = (utf16(name), utf16("shown"));
    let mut data = Vec::new();
    for (offset, len) in [(shown.len(), name.len()), (0, shown.len())] {
        data.put_u16(offset as u16);
        data.put_u16(len as u16);
    }
    data.put_u32(flags);
    data.put(&shown);
    data.put(&name);
    point(TAG_SYMLINK, &data)
}

fn nfs(kind: u64, name: &str) -> Vec<u8> {
    let mut data = kind.to_le_bytes().to_vec();
    data.put_utf16(name);
    point(TAG_NFS, &data)
}

impl Client<'_> {
    fn made(&mut self, name: &str, options: u32) -> Vec<u8> {
        let access = WRITE_ATTRIBUTES | READ_ATTRIBUTES | DELETE;
        let made = create(name, access, SHARE, CREATE, options | OPEN_REPARSE_POINT);
        self.one(command::CREATE, made.1).file()
    }

    fn set_point(&mut self, file: &[u8], point: &[u8]) -> Status {
        let request = control(file, SET_REPARSE_POINT, point, 0);
        self.one(command::IOCTL, request.1).status
    }

    fn delete_point(&mut self, file: &[u8], point: &[u8]) -> Status {
        let request = control(file, DELETE_REPARSE_POINT, point, 0);
        self.one(command::IOCTL, request.1).status
    }

    /// Attributes and tag of an open file.
    fn tag(&mut self, file: &[u8]) -> (u32, u32) {
        let answer = self.one(command::QUERY_INFO, query(file, FILE, 35, 0).1);
        let words = info(&answer);
        let word = |at: usize| u32::from_le_bytes(words[at..at + 4].try_into().unwrap());
        (word(0), word(4))
    }

    /// The target of an open link, and its flags.
    fn target(&mut self, file: &[u8]) -> (String, u32) {
        let answer = self.one(
            command::IOCTL,
            control(file, GET_REPARSE_POINT, &[], 16_384).1,
        );
        let out = output(&answer);
        let name = (out.len() - 20) / 2;
        let flags = u32::from_le_bytes(out[16..20].try_into().unwrap());
        let text = weir_auth::wire::from_utf16(&out[20..20 + name]).unwrap();
        (text, flags)
    }
}

/// The target that clients of NFS read of a name in the root, and the inode's number.
fn stored(world: &World, name: &str) -> (Vec<u8>, u64) {
    let volume = world.engine.volumes().remove(0);
    let mut cx = EngineContext::new(Time::EPOCH);
    let found = volume.drive_blocking(&mut cx, |cx| {
        volume.lookup(cx, volume.root(), name.as_bytes())
    });
    let ino = found.unwrap().ino;
    let read = volume.drive_blocking(&mut cx, |cx| volume.readlink(cx, ino));
    (read.unwrap().0, ino.0)
}

#[test]
fn a_client_makes_a_link_gives_it_another_target_and_takes_it_away() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = c.made("link", 0);
    let number = |c: &mut Client<'_>, file: &[u8]| {
        words(&info(
            &c.one(command::QUERY_INFO, query(file, FILE, 6, 0).1),
        ))[0]
    };
    let before = number(&mut c, &file);
    assert_eq!(
        c.set_point(&file, &symlink("..\\a\u{f022}b\\c", 1)),
        Status::SUCCESS
    );
    assert_eq!(stored(&world, "link"), (b"../a:b/c".to_vec(), before));
    // Through the same open, which is of a link now.
    assert_eq!(c.tag(&file), (0x20 | REPARSE_POINT, TAG_SYMLINK));
    assert_eq!(number(&mut c, &file), before);
    assert_eq!(c.target(&file), ("..\\a\u{f022}b\\c".to_owned(), 1));
    let stops = c.one(command::CREATE, create("link", DATA, SHARE, OPEN, 0).1);
    assert_eq!(stops.status, Status::STOPPED_ON_SYMLINK);
    // Another target; absolute, for clients of NFS.
    assert_eq!(c.set_point(&file, &symlink("\\etc\\x", 0)), Status::SUCCESS);
    assert_eq!(stored(&world, "link").0, b"/etc/x");
    assert_eq!(c.target(&file), ("\\etc\\x".to_owned(), 0));
    assert_eq!(
        c.set_point(&file, &nfs(0x014b_4e4c, "x")),
        Status::IO_REPARSE_TAG_MISMATCH
    );

    for (wrong, why) in [
        (point(TAG_NFS, &[]), Status::IO_REPARSE_TAG_MISMATCH),
        (point(0xa000_0003, &[]), Status::IO_REPARSE_TAG_MISMATCH),
        (point(0, &[]), Status::IO_REPARSE_TAG_INVALID),
        (point(1, &[]), Status::IO_REPARSE_TAG_INVALID),
        (point(TAG_SYMLINK, &[0; 4]), Status::IO_REPARSE_DATA_INVALID),
        (vec![], Status::IO_REPARSE_DATA_INVALID),
        (vec![0; 7], Status::IO_REPARSE_DATA_INVALID),
    ] {
        assert_eq!(c.delete_point(&file, &wrong), why, "{wrong:?}");
    }
    assert_eq!(
        c.delete_point(&file, &point(TAG_SYMLINK, &[])),
        Status::SUCCESS
    );
    assert_eq!(c.tag(&file), (0x20, 0));
    assert_eq!(
        c.delete_point(&file, &point(TAG_SYMLINK, &[])),
        Status::NOT_A_REPARSE_POINT
    );
    c.send_chain(false, &[close(&file)]);
    // A file as before, which has data.
    let again = c.open("link", DATA, OPEN).unwrap();
    assert_eq!(number(&mut c, &again), before);
    let written = c.one(command::WRITE, write(&again, 0, b"data").1);
    assert_eq!(written.status, Status::SUCCESS);
    // With data it cannot become a link.
    assert_eq!(c.set_point(&again, &symlink("x", 1)), Status::NOT_SUPPORTED);
}

#[test]
fn a_link_to_a_directory_is_made_of_one_and_is_shown_as_one() {
    let world = linked();
    let mut c = Client::ready(&world, 1);
    let dir = c.made("below", DIRECTORY_FILE);
    let inside = c.made("below\\x", DIRECTORY_FILE);
    let full = c.set_point(&dir, &symlink("dir", 1));
    assert_eq!(full, Status::DIRECTORY_NOT_EMPTY);
    // From the root of the share on, one directory above the link.
    assert_eq!(c.set_point(&inside, &symlink("\\dir", 1)), Status::SUCCESS);
    assert_eq!(c.target(&inside), ("..\\dir".to_owned(), 1));
    assert_eq!(c.tag(&inside), (DIRECTORY | REPARSE_POINT, TAG_SYMLINK));
    let standard = info(&c.one(command::QUERY_INFO, query(&inside, FILE, 5, 0).1));
    assert_eq!(
        standard[21], 1,
        "FileStandardInformation says it is a directory"
    );
    // Setting the attributes that are shown changes nothing of that.
    let mut basic = vec![0; 32];
    basic.put_u32(DIRECTORY | REPARSE_POINT | 2);
    basic.put_u32(0);
    let hidden = c.one(command::SET_INFO, set(&inside, FILE, 4, 0, &basic).1);
    assert_eq!(hidden.status, Status::SUCCESS);
    assert_eq!(c.tag(&inside).0, DIRECTORY | REPARSE_POINT | 2);
    c.send_chain(false, &[close(&inside)]);
    let open = |options: u32| {
        create(
            "below\\x",
            DELETE | WRITE_ATTRIBUTES | READ_ATTRIBUTES,
            SHARE,
            OPEN,
            options,
        )
    };
    for (options, status) in [
        (DIRECTORY_FILE, Status::STOPPED_ON_SYMLINK),
        (0x40 | OPEN_REPARSE_POINT, Status::FILE_IS_A_DIRECTORY),
    ] {
        assert_eq!(c.one(command::CREATE, open(options).1).status, status);
    }
    // As a directory again it can be listed, and has its place in the tree.
    let options = DIRECTORY_FILE | OPEN_REPARSE_POINT;
    let link = c.one(command::CREATE, open(options).1).file();
    assert_eq!(
        c.delete_point(&link, &point(TAG_SYMLINK, &[])),
        Status::SUCCESS
    );
    assert_eq!(c.tag(&link), (DIRECTORY | 2, 0));
    let child = c.made("below\\x\\y", 0);
    c.send_chain(false, &[close(&child)]);
    assert_eq!(
        c.set_point(&link, &symlink("dir", 1)),
        Status::DIRECTORY_NOT_EMPTY
    );
    let gone = create("below\\x\\y", DELETE, SHARE, OPEN, DELETE_ON_CLOSE);
    let gone = c.one(command::CREATE, gone.1).file();
    c.send_chain(false, &[close(&gone)]);
    assert_eq!(c.set_point(&link, &symlink("dir", 1)), Status::SUCCESS);
    // rmdir: with the last close, through an open that began as one of a directory too.
    let disposition = c.one(command::SET_INFO, set(&link, FILE, 13, 0, &[1]).1);
    assert_eq!(disposition.status, Status::SUCCESS);
    c.send_chain(false, &[close(&link)]);
    let options = DIRECTORY_FILE | OPEN_REPARSE_POINT;
    let gone = c.one(command::CREATE, open(options).1).status;
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
    let kept = c.one(command::CREATE, create("dir\\f", DATA, SHARE, OPEN, 0).1);
    assert_eq!(kept.status, Status::SUCCESS);
}

/// A directory marked for deletion on close is removed by its close, even as a link.
#[test]
fn a_directory_that_became_a_link_goes_with_its_last_close() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let dir = c.made("d", DIRECTORY_FILE | DELETE_ON_CLOSE);
    assert_eq!(c.set_point(&dir, &symlink("x", 1)), Status::SUCCESS);
    c.send_chain(false, &[close(&dir)]);
    let gone = create("d", READ_ATTRIBUTES, SHARE, OPEN, OPEN_REPARSE_POINT);
    let gone = c.one(command::CREATE, gone.1).status;
    assert_eq!(gone, Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn a_made_link_is_renamed_and_found_again() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let link = c.made("old", 0);
    assert_eq!(
        c.set_point(&link, &nfs(0x014b_4e4c, "../a:b/\\c. ")),
        Status::SUCCESS
    );
    // The target is stored as an NFS client would have set it, and shown to every other client.
    assert_eq!(stored(&world, "old").0, b"../a:b/\\c. ");
    assert_eq!(
        c.target(&link),
        ("..\\a\u{f022}b\\\u{f026}c.\u{f028}".to_owned(), 1)
    );
    let name = utf16("new");
    let mut rename = vec![0; 16];
    rename.put_u32(name.len() as u32);
    rename.put(&name);
    let renamed = c.one(command::SET_INFO, set(&link, FILE, 10, 0, &rename).1);
    assert_eq!(renamed.status, Status::SUCCESS);
    // By its new name it goes on being converted.
    assert_eq!(c.set_point(&link, &symlink("t", 1)), Status::SUCCESS);
    assert_eq!(stored(&world, "new").0, b"t");
}

#[test]
fn what_is_no_reparse_point_of_a_link_is_refused() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = c.made("f", 0);
    let bad = Status::IO_REPARSE_DATA_INVALID;
    let good = symlink("target", 1);
    let with = |at: usize, value: u16| {
        let mut out = good.clone();
        out[at..at + 2].copy_from_slice(&value.to_le_bytes());
        out
    };
    let lone = {
        let mut out = symlink("t\u{e000}", 1);
        let last = out.len() - 2;
        out[last..].copy_from_slice(&0xd800u16.to_le_bytes());
        out
    };
    let mut longer = good.clone();
    longer.put_zeroes(16);
    let long = "x\\".repeat(3000);
    for (input, why) in [
        (vec![], bad),
        (good[..7].to_vec(), bad),
        (good[..8].to_vec(), bad),
        (good[..good.len() - 1].to_vec(), bad),
        // A GUID is of no tag of Microsoft's.
        (longer, bad),
        (vec![0; 16_385], bad),
        (point(TAG_SYMLINK, &[0; 11]), bad),
        // Length and offset of the name, and of the one to be printed.
        (with(4, 0), bad),
        (with(10, 0), bad),
        (with(10, 11), bad),
        (with(10, 14), bad),
        (with(10, 0xfffe), bad),
        (with(8, 9), bad),
        (with(8, 0xfffe), bad),
        (with(12, 100), bad),
        (with(14, 9), bad),
        (with(16, 3), bad),
        (lone, bad),
        (symlink("", 1), bad),
        (symlink("a\0b", 1), bad),
        (symlink("a/b", 1), bad),
        (symlink("a:b", 1), bad),
        (symlink("a*", 1), bad),
        (symlink(&long, 1), Status::NAME_TOO_LONG),
        // Where they lead only Windows says.
        (symlink("\\??\\C:\\x", 0), Status::NOT_SUPPORTED),
        (
            symlink("\\??\\UNC\\weir\\vol1\\x", 0),
            Status::NOT_SUPPORTED,
        ),
        (symlink("C:\\x", 0), Status::NOT_SUPPORTED),
        (symlink("x", 0), Status::NOT_SUPPORTED),
        // FIFO, SOCK, CHR, BLK and what is none.
        (nfs(0x4f46_4946, ""), Status::NOT_SUPPORTED),
        (nfs(0x4b43_4f53, ""), Status::NOT_SUPPORTED),
        (nfs(0x0052_4843, "\u{1}\0\0\0"), Status::NOT_SUPPORTED),
        (nfs(0x004b_4c42, "\u{1}\0\0\0"), Status::NOT_SUPPORTED),
        (nfs(7, "x"), bad),
        (nfs(0x014b_4e4c, ""), bad),
        (nfs(0x014b_4e4c, "a\0"), bad),
        (
            point(TAG_NFS, &[0x4c, 0x4e, 0x4b, 1, 0, 0, 0, 0, b'x']),
            bad,
        ),
        (point(TAG_NFS, &[1; 7]), bad),
        // Mount points, and what is not Microsoft's.
        (point(0xa000_0003, &good[8..]), Status::NOT_SUPPORTED),
        (point(0x1234, &good[8..]), Status::NOT_SUPPORTED),
        (point(0, &good[8..]), Status::IO_REPARSE_TAG_INVALID),
        (point(1, &good[8..]), Status::IO_REPARSE_TAG_INVALID),
    ] {
        assert_eq!(c.set_point(&file, &input), why, "{input:x?}");
        assert_eq!(c.tag(&file), (0x20, 0), "{input:x?}");
    }
    assert_eq!(c.set_point(&file, &good), Status::SUCCESS);
}

#[test]
fn links_are_made_by_who_may_and_of_what_nobody_else_uses() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let link = symlink("x", 1);
    let none = point(TAG_SYMLINK, &[]);
    // Neither data nor attributes may be written through it.
    let reader = create("f", READ_ATTRIBUTES | 1 | 0x10, SHARE, CREATE, 0);
    let reader = c.one(command::CREATE, reader.1).file();
    assert_eq!(c.set_point(&reader, &link), Status::ACCESS_DENIED);
    assert_eq!(c.delete_point(&reader, &none), Status::ACCESS_DENIED);
    c.send_chain(false, &[close(&reader)]);
    // The root of the share has no name, and a stream is none of a file's.
    let all = READ_ATTRIBUTES | WRITE_ATTRIBUTES;
    let root = c
        .one(command::CREATE, create("", all, SHARE, OPEN, 1).1)
        .file();
    assert_eq!(c.set_point(&root, &link), Status::ACCESS_DENIED);
    let stream = c.open("f:s", DATA, CREATE).unwrap();
    assert_eq!(c.set_point(&stream, &link), Status::INVALID_PARAMETER);
    let file = c.open("f", DATA, OPEN).unwrap();
    assert_eq!(
        c.set_point(&file, &link),
        Status::NOT_SUPPORTED,
        "it has a stream"
    );
    c.send_chain(false, &[close(&stream), close(&file), close(&root)]);

    // Another client has it open for its data.
    let mut d = Client::ready(&world, 2);
    let file = c.open("g", 3 | WRITE_ATTRIBUTES, CREATE).unwrap();
    let other = d.open("g", 1, OPEN).unwrap();
    assert_eq!(c.set_point(&file, &link), Status::SHARING_VIOLATION);
    d.send_chain(false, &[close(&other)]);
    // For its attributes alone: that is in nobody's way.
    let other = d.open("g", READ_ATTRIBUTES, OPEN).unwrap();
    assert_eq!(c.set_point(&file, &link), Status::SUCCESS);
    assert_eq!(d.tag(&other).1, TAG_SYMLINK);
    // Data are neither read nor written through an open that was of a file.
    let read = c.one(command::READ, read(&file, 0, 10).1);
    assert!(read.status.is_error());
    let written = c.one(command::WRITE, write(&file, 0, b"x").1);
    assert!(written.status.is_error());
    assert_eq!(stored(&world, "g").0, b"x");
    assert_eq!(c.delete_point(&file, &none), Status::SUCCESS);

    // A user who may write to another's empty file must not turn it into a link, which would
    // mislead those who trust its directory. With a file of their own they may.
    let volume = world.engine.volumes().remove(0);
    let mut cx = EngineContext::new(Time::EPOCH);
    let mut own = |name: &[u8], mode, uid| {
        let attrs = SetAttr {
            mode: Some(mode),
            uid: Some(uid),
            ..SetAttr::default()
        };
        let root = volume.root();
        let how = weir_vfs::volume::CreateHow::Guarded;
        let made = volume.drive_blocking(&mut cx, |cx| volume.create(cx, root, name, how, &attrs));
        made.unwrap();
    };
    own(b"shared", 0o666, 0);
    own(b"bobs", 0o600, 7);
    let mut b = Client::new(&world, 3);
    b.user = "bob";
    assert_eq!(b.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(b.connect("VOL1"), Status::SUCCESS);
    let shared = b.open("shared", 3, OPEN).unwrap();
    assert_eq!(b.set_point(&shared, &link), Status::ACCESS_DENIED);
    let bobs = b.open("bobs", 3, OPEN).unwrap();
    assert_eq!(b.set_point(&bobs, &link), Status::SUCCESS);
    // A link from NFS, whose mode lets everybody write it, is still not everybody's.
    let root = volume.root();
    let attrs = SetAttr::default();
    let old = volume.drive_blocking(&mut cx, |cx| volume.symlink(cx, root, b"nfs", b"t", &attrs));
    old.unwrap();
    let nfs = create("nfs", WRITE_ATTRIBUTES, SHARE, OPEN, OPEN_REPARSE_POINT);
    let others = b.one(command::CREATE, nfs.1.clone()).file();
    assert_eq!(b.delete_point(&others, &none), Status::ACCESS_DENIED);
    assert_eq!(b.set_point(&others, &link), Status::ACCESS_DENIED);
    let owns = c.one(command::CREATE, nfs.1).file();
    assert_eq!(c.delete_point(&owns, &none), Status::SUCCESS);
    let plain = volume.drive_blocking(&mut cx, |cx| volume.lookup(cx, root, b"nfs"));
    assert_eq!(plain.unwrap().attr.mode, 0o644);

    // Nothing is changed where nothing may be.
    published(&world, |export| export.read_only = true);
    assert_eq!(c.set_point(&file, &link), Status::MEDIA_WRITE_PROTECTED);
}
