//! Tests of the extensions for macOS.

use super::*;
use crate::tests::durable::put_contexts;
use std::collections::BTreeMap;

const SERVER_CAPS: u64 = 1;
const FIRST: u64 = 1;
const SECOND: u64 = 0x10;

/// Opens the root of the share with a query; its file and the answer.
fn query_root(c: &mut Client<'_>, client: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let (_, mut body) = create("", 0x81, SHARE, OPEN, 1);
    let data = [1, SERVER_CAPS, client].map(u64::to_le_bytes).concat();
    put_contexts(&mut body, &[(b"AAPL", data)]);
    let opened = c.one(command::CREATE, body);
    let at = opened.body.windows(4).position(|w| w == b"AAPL");
    let answer = at.map(|at| opened.body[at + 8..].to_vec());
    (opened.file(), answer)
}

/// A listing, an entry a response or as many as it has room for: of each name what stands from
/// EaSize to FileId.
fn listed(
    c: &mut Client<'_>,
    dir: &[u8],
    pattern: &str,
    most: u32,
    single: bool,
) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut flags = 1 | u8::from(single) << 1;
    loop {
        let mut body = Vec::new();
        body.put_u16(33);
        body.put(&[37, flags]);
        body.put_u32(0);
        body.put(dir);
        let name = utf16(pattern);
        body.put_u16(96);
        body.put_u16(name.len() as u16);
        body.put_u32(most);
        body.put(&name);
        flags &= !1;
        let answer = c.one(command::QUERY_DIRECTORY, body);
        if answer.status != Status::SUCCESS {
            assert!([Status::NO_MORE_FILES, Status::NO_SUCH_FILE].contains(&answer.status));
            return all;
        }
        let (entries, mut at) = (info(&answer), 0);
        loop {
            let entry = &entries[at..];
            let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
            let name = &entry[104..104 + word(60) as usize];
            let name = weir_auth::wire::from_utf16(name).unwrap();
            let other = all.insert(name, entry[64..96].to_vec());
            assert!(other.is_none(), "an entry is returned once");
            match word(0) {
                0 => break,
                next => at += next as usize,
            }
        }
    }
}

/// A stream of 60 bytes as macOS writes it: the Finder's information is in the middle.
fn afp_info() -> Vec<u8> {
    let mut data = b"AFP\0\0\x01\0\0".to_vec();
    data.put_zeroes(8);
    data.put(b"TEXTttxt\x40\x01");
    data.put_zeroes(14);
    data.put(&[0x80, 2]);
    data.put_zeroes(18);
    assert_eq!(data.len(), 52 + 8);
    data
}

fn fill(c: &mut Client<'_>) {
    for name in ["plain", "rich", "dir"] {
        let options = u32::from(name == "dir");
        let made = c.one(command::CREATE, create(name, ALL, SHARE, CREATE, options).1);
        assert_eq!(made.status, Status::SUCCESS);
        c.send_chain(false, &[close(&made.file())]);
    }
    for (name, data) in [
        ("rich:AFP_AfpInfo", afp_info()),
        ("rich:AFP_Resource", vec![7; 300]),
        ("dir:AFP_AfpInfo", afp_info()),
    ] {
        let stream = c.open(name, ALL, CREATE).unwrap();
        let written = c.send_chain(false, &[write(&stream, 0, &data), close(&stream)]);
        assert_eq!(statuses(&written), [Status::SUCCESS; 2]);
    }
}

#[test]
fn listings_say_more_to_clients_that_ask() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    fill(&mut c);
    let root = c.open("", 0x81, OPEN).unwrap();
    let before = listed(&mut c, &root, "*", 65_536, false);
    assert_eq!(before.len(), 5);
    assert!(before.values().all(|rest| *rest == [0; 32]));

    for (client, form, with, without) in [(FIRST, 5, 24u16, 24u16), (SECOND | FIRST, 0x14, 0, 1)] {
        let (root, answer) = query_root(&mut c, client);
        let words = [1, SERVER_CAPS, form].map(u64::to_le_bytes).concat();
        assert_eq!(answer.as_deref().map(|a| &a[..24]), Some(&words[..]));
        let all = listed(&mut c, &root, "*", 65_536, false);
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(names, [".", "..", "dir", "plain", "rich"]);
        let short = |name: &str, at: usize| u16::from_le_bytes([all[name][at], all[name][at + 1]]);
        let access = |name: &str| u32::from_le_bytes(all[name][..4].try_into().unwrap());
        assert_eq!(access("rich"), ALL);
        assert_eq!([short("rich", 4), short("plain", 4)], [with, without]);
        assert_eq!(all["rich"][6..14], 300u64.to_le_bytes());
        // Type, creator, flags, more flags; a directory has no type.
        assert_eq!(all["rich"][14..26], *b"TEXTttxt\x40\x01\x80\x02");
        assert_eq!(all["dir"][14..26], *b"\0\0\0\0\0\0\0\0\x40\x01\x80\x02");
        assert_eq!(all["plain"][6..26], [0; 20]);
        assert_eq!(
            [short("rich", 30), short("dir", 30)],
            [0o100_644, 0o040_755]
        );
        // Entry by entry, and of one name.
        assert_eq!(listed(&mut c, &root, "*", 65_536, true), all);
        assert_eq!(listed(&mut c, &root, "*", 240, false), all);
        let one = listed(&mut c, &root, "RICH", 65_536, false);
        assert_eq!(one["rich"], all["rich"]);
        assert_eq!(
            (one.len(), listed(&mut c, &root, "no", 4096, false).len()),
            (1, 0)
        );
        assert_eq!(listed(&mut c, &root, "p*", 4096, false).len(), 1);
    }
    // It is so in that session alone, and until it is asked for no more.
    let mut other = Client::ready(&world, 2);
    let root = other.open("", 0x81, OPEN).unwrap();
    assert_eq!(listed(&mut other, &root, "*", 65_536, false), before);
    let (root, _) = query_root(&mut c, 4);
    assert_eq!(listed(&mut c, &root, "*", 65_536, false), before);
}

/// Contents of a file are hidden from a user who may not read it.
#[test]
fn the_finder_s_information_is_for_those_who_may_read_the_file() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    fill(&mut c);
    let volume = world.engine.volumes().remove(0);
    let cx = &mut EngineContext::new(Time::EPOCH);
    let found = volume.drive_blocking(cx, |cx| volume.lookup(cx, volume.root(), b"rich"));
    let ino = found.unwrap().ino;
    let private = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    volume
        .drive_blocking(cx, |cx| volume.setattr(cx, ino, &private, None))
        .unwrap();
    let mut bob = Client::new(&world, 2);
    bob.user = "Bob";
    assert_eq!(bob.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(bob.connect("VOL1"), Status::SUCCESS);
    let (root, _) = query_root(&mut bob, FIRST);
    let all = listed(&mut bob, &root, "rich", 4096, false);
    assert_eq!(all["rich"][14..26], [0; 12]);
    let access = u32::from_le_bytes(all["rich"][..4].try_into().unwrap());
    assert_eq!(access & 3, 0);
}

#[test]
fn another_command_is_left_without_an_answer() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let (_, mut body) = create("", 0x81, SHARE, OPEN, 1);
    put_contexts(
        &mut body,
        &[(b"AAPL", [2u64, 5].map(u64::to_le_bytes).concat())],
    );
    let opened = c.one(command::CREATE, body);
    assert_eq!((opened.status, opened.u32(84)), (Status::SUCCESS, 0));
    let (_, mut body) = create("", 0x81, SHARE, OPEN, 1);
    put_contexts(&mut body, &[(b"AAPL", vec![1, 0, 0, 0, 0])]);
    let refused = c.one(command::CREATE, body).status;
    assert_eq!(refused, Status::INVALID_PARAMETER);
}
