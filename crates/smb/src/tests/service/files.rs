//! Files beyond their data: streams, attributes, descriptors, holes, copies, previous versions.

use super::*;
use crate::tests::lease::{poll, waits};
use weir_base::Time;
use weir_vfs::EngineContext;
use weir_vfs::volume::SetAttr;

const FILE: u8 = 1;
const SECURITY: u8 = 3;
const WRITE_DAC: u32 = 0x4_0000;
const READ_CONTROL: u32 = 0x2_0000;

pub(crate) fn query(file: &[u8], kind: u8, class: u8, parts: u32) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(41);
    body.put(&[kind, class]);
    body.put_u32(4096);
    body.put_u64(0);
    body.put_u32(parts);
    body.put_u32(0);
    body.put(file);
    (command::QUERY_INFO, body)
}

pub(crate) fn set(file: &[u8], kind: u8, class: u8, parts: u32, data: &[u8]) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(33);
    body.put(&[kind, class]);
    body.put_u32(data.len() as u32);
    body.put_u16(96);
    body.put_u16(0);
    body.put_u32(parts);
    body.put(file);
    body.put(data);
    (command::SET_INFO, body)
}

fn control(file: &[u8], code: u32, input: &[u8], most: u32) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    body.put_u16(57);
    body.put_u16(0);
    body.put_u32(code);
    body.put(file);
    body.put_u32(120);
    body.put_u32(input.len() as u32);
    body.put_u32(0);
    body.put_u64(0);
    body.put_u32(most);
    body.put_u32(1);
    body.put_u32(0);
    body.put(input);
    (command::IOCTL, body)
}

/// The information in a response to QUERY_INFO, and the output in one to IOCTL.
fn info(answer: &Answer) -> Vec<u8> {
    let len = answer.u32(4) as usize;
    answer.body[8..8 + len].to_vec()
}

fn output(answer: &Answer) -> Vec<u8> {
    let len = answer.u32(36) as usize;
    answer.body[48..48 + len].to_vec()
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

impl Client<'_> {
    fn open(&mut self, name: &str, access: u32, disposition: u32) -> Result<Vec<u8>, Status> {
        let answer = self
            .send_chain(false, &[create(name, access, SHARE, disposition, 0)])
            .remove(0);
        match answer.status {
            Status::SUCCESS => Ok(answer.file()),
            status => Err(status),
        }
    }

    fn send(&mut self, request: (u16, Vec<u8>)) -> Answer {
        self.one(request.0, request.1)
    }

    /// The names in a directory, which is open.
    fn list(&mut self, dir: &[u8]) -> Vec<String> {
        let mut body = Vec::new();
        body.put_u16(33);
        body.put(&[12, 1]);
        body.put_u32(0);
        body.put(dir);
        body.put_u16(96);
        body.put_u16(2);
        body.put_u32(65_536);
        body.put(&utf16("*"));
        let answer = self.one(command::QUERY_DIRECTORY, body);
        let (all, mut at, mut names) = (info(&answer), 0, Vec::new());
        loop {
            let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap()) as usize;
            let len = word(at + 8);
            names.push(weir_auth::wire::from_utf16(&all[at + 12..at + 12 + len]).unwrap());
            match word(at) {
                0 => break,
                next => at += next,
            }
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }
}

fn bob(world: &World, connection: u64) -> Client<'_> {
    let mut client = Client::new(world, connection);
    client.user = "bob";
    assert_eq!(client.log_on(Dialect::Smb311, PASSWORD), Status::SUCCESS);
    assert_eq!(client.connect("vol1"), Status::SUCCESS);
    client
}

#[test]
fn a_listing_by_access_leaves_out_what_may_not_be_read() {
    let world = world();
    let mut alice = Client::ready(&world, 1);
    for name in ["seen", "hidden"] {
        alice.open(name, ALL, CREATE).unwrap();
    }
    let volume = world.engine.volumes().remove(0);
    let mut cx = EngineContext::new(Time::EPOCH);
    let hidden = volume
        .lookup(&mut cx, volume.root(), b"hidden")
        .unwrap()
        .ino;
    let closed = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    volume.setattr(&mut cx, hidden, &closed, None).unwrap();
    let all = ["hidden", "seen"];
    for (access_based, listed) in [(false, &all[..]), (true, &all[1..])] {
        published(&world, |export| {
            export.share.as_mut().unwrap().access_based = access_based;
        });
        let mut bob = bob(&world, 2 + u64::from(access_based));
        let root = bob.open("", 0x81, OPEN).unwrap();
        assert_eq!(bob.list(&root), listed);
        // Root reads everything.
        let root = alice.open("", 0x81, OPEN).unwrap();
        assert_eq!(alice.list(&root), all);
    }
}

#[test]
fn streams_are_files_beside_a_file() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    assert_eq!(c.open("f:s", ALL, OPEN), Err(Status::OBJECT_NAME_NOT_FOUND));
    let stream = c.open("f:s", ALL, CREATE).unwrap();
    assert_eq!(
        c.open("F:S:$data", ALL, CREATE),
        Err(Status::OBJECT_NAME_COLLISION)
    );
    assert_eq!(
        c.send(write(&stream, 0, b"of the stream")).status,
        Status::SUCCESS
    );
    let file = c.open("f", ALL, OPEN).unwrap();
    assert_eq!(
        c.send(write(&file, 0, b"of the file, and longer")).status,
        Status::SUCCESS
    );
    assert_eq!(&c.send(read(&stream, 7, 100)).body[16..22], b"stream");
    // Both have one id, and each its size.
    for (open, size) in [(&stream, 13), (&file, 23)] {
        let standard = info(&c.send(query(open, FILE, 5, 0)));
        assert_eq!(words(&standard)[1], size);
    }
    let ids = [&stream, &file].map(|open| info(&c.send(query(open, FILE, 6, 0))));
    assert_eq!(ids[0], ids[1]);
    let streams = |c: &mut Client<'_>| {
        let all = info(&c.send(query(&file, FILE, 22, 0)));
        weir_auth::wire::from_utf16(&all).unwrap_or_default()
    };
    let shown = streams(&mut c);
    assert!(
        shown.contains("::$DATA") && shown.contains(":s:$DATA"),
        "{shown:?}"
    );
    // It gets another name, which no other has.
    let mut rename = Vec::new();
    rename.put_zeroes(16);
    rename.put_u32(2 * 2);
    rename.put(&utf16(":t"));
    let renamed = set(&stream, FILE, 10, 0, &rename);
    assert_eq!(c.send(renamed).status, Status::SUCCESS);
    let shown = streams(&mut c);
    assert!(
        shown.contains(":t:$DATA") && !shown.contains(":s:$DATA"),
        "{shown:?}"
    );
    // One that has the name is in the way, unless it is to be replaced.
    let other = c.open("f:u", ALL, CREATE).unwrap();
    let mut over = rename.clone();
    over.truncate(16);
    over.put_u32(2 * 2);
    over.put(&utf16(":u"));
    assert_eq!(
        c.send(set(&stream, FILE, 10, 0, &over)).status,
        Status::OBJECT_NAME_COLLISION
    );
    over[0] = 1;
    assert_eq!(
        c.send(set(&stream, FILE, 10, 0, &over)).status,
        Status::ACCESS_DENIED
    );
    c.send(close(&other));
    assert_eq!(
        c.send(set(&stream, FILE, 10, 0, &over)).status,
        Status::SUCCESS
    );
    assert_eq!(
        c.send(set(&stream, FILE, 10, 0, &rename)).status,
        Status::SUCCESS
    );
    // It goes with its last close, and the file stays.
    let again = c.open("f:T", ALL, OPEN).unwrap();
    assert_eq!(
        c.send(set(&again, FILE, 13, 0, &[1])).status,
        Status::SUCCESS
    );
    for open in [&stream, &again] {
        assert_eq!(c.send(close(open)).status, Status::SUCCESS);
    }
    assert!(!streams(&mut c).contains(":t:$DATA"));
    assert_eq!(c.open("f:t", ALL, OPEN), Err(Status::OBJECT_NAME_NOT_FOUND));
    // Directories have some too.
    let dir = c
        .send_chain(false, &[create("d", ALL, SHARE, CREATE, 1)])
        .remove(0)
        .file();
    c.open("d:s", ALL, CREATE).unwrap();
    let all = info(&c.send(query(&dir, FILE, 22, 0)));
    assert!(
        weir_auth::wire::from_utf16(&all)
            .unwrap_or_default()
            .contains(":s:$DATA")
    );
    assert_eq!(c.open("d:", ALL, CREATE), Err(Status::OBJECT_NAME_INVALID));
}

#[test]
fn extended_attributes_come_back_in_any_case() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = c.open("f", ALL, CREATE).unwrap();
    let none = c.send(query(&file, FILE, 15, 0)).status;
    assert_eq!(none, Status::NO_EAS_ON_FILE);
    let ea = |name: &[u8], value: &[u8]| {
        let mut out = vec![0, 0, 0, 0, 0, name.len() as u8];
        out.put_u16(value.len() as u16);
        [out, name.to_vec(), vec![0], value.to_vec()].concat()
    };
    for (name, value) in [
        (&b"Author"[..], &b"x"[..]),
        (b"AUTHOR", b"someone"),
        (b"other", b"1"),
    ] {
        let answer = c.send(set(&file, FILE, 15, 0, &ea(name, value)));
        assert_eq!(answer.status, Status::SUCCESS);
    }
    let all = info(&c.send(query(&file, FILE, 15, 0)));
    let has = |what: &[u8]| all.windows(what.len()).any(|part| part == what);
    assert!(has(b"Author\0someone") && has(b"other\x001"), "{all:?}");
    assert_eq!(
        info(&c.send(query(&file, FILE, 7, 0))),
        (4 + 5 + 13 + 5 + 6u32).to_le_bytes()
    );
    c.send(set(&file, FILE, 15, 0, &ea(b"OTHER", b"")));
    c.send(set(&file, FILE, 15, 0, &ea(b"author", b"")));
    assert_eq!(info(&c.send(query(&file, FILE, 7, 0))), [0; 4]);
    let reader = c.open("f", 0x80, OPEN).unwrap();
    let refused = c.send(set(&reader, FILE, 15, 0, &ea(b"a", b"b"))).status;
    assert_eq!(refused, Status::ACCESS_DENIED);
}

#[test]
fn a_descriptor_decides_and_shows_in_the_mode() {
    let world = world();
    let mut alice = Client::ready(&world, 1);
    let file = alice.open("f", ALL, CREATE).unwrap();
    let mut bob = bob(&world, 2);
    assert_eq!(bob.open("f", 0x2, OPEN), Err(Status::ACCESS_DENIED));
    let before = info(&alice.send(query(&file, SECURITY, 0, 7)));
    // An entry for S-1-22-1-7 in front of the others: read and write.
    let list = u32::from_le_bytes(before[16..20].try_into().unwrap()) as usize;
    let mut ace = vec![0, 0];
    ace.put_u16(24);
    ace.put_u32(0x12_019f);
    ace.put(&[1, 2, 0, 0, 0, 0, 0, 22]);
    ace.put_u32(1);
    ace.put_u32(7);
    let mut wanted = before.clone();
    wanted.splice(list + 8..list + 8, ace.iter().copied());
    for (at, more) in [(list + 2, 24u16), (list + 4, 1)] {
        let old = u16::from_le_bytes(wanted[at..at + 2].try_into().unwrap());
        wanted[at..at + 2].copy_from_slice(&(old + more).to_le_bytes());
    }
    let reader = alice.open("f", 0x2_0080, OPEN).unwrap();
    let refused = alice.send(set(&reader, SECURITY, 0, 4, &wanted)).status;
    assert_eq!(refused, Status::ACCESS_DENIED, "without {WRITE_DAC:x}");
    assert_eq!(
        alice.send(set(&file, SECURITY, 0, 4, &wanted)).status,
        Status::SUCCESS
    );
    let after = info(&alice.send(query(&file, SECURITY, 0, 7)));
    assert_eq!(after, wanted);
    bob.open("f", 0x2, OPEN).unwrap();
    // The owner may only be given away by root, who alice is.
    let owner = |uid: u32| {
        let mut out = vec![1, 0, 0, 0x80];
        out.put_u32(20);
        out.put_zeroes(12);
        out.put(&[1, 2, 0, 0, 0, 0, 0, 22]);
        out.put_u32(1);
        out.put_u32(uid);
        out
    };
    assert_eq!(
        alice.send(set(&file, SECURITY, 0, 1, &owner(7))).status,
        Status::SUCCESS
    );
    let shown = info(&alice.send(query(&file, SECURITY, 0, 1)));
    assert_eq!(shown[20..36], owner(7)[20..36]);
    let own = bob.open("f", 0x8_0000, OPEN);
    let given = own.map(|file| bob.send(set(&file, SECURITY, 0, 1, &owner(0))).status);
    assert!(
        matches!(
            given,
            Err(Status::ACCESS_DENIED) | Ok(Status::INVALID_OWNER)
        ),
        "{given:?}"
    );
}

#[test]
fn holes_are_made_and_found() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = c.open("f", ALL, CREATE).unwrap();
    c.send(write(&file, 0, &[7; 40_000]));
    let range = |from: u64, to: u64| [from.to_le_bytes(), to.to_le_bytes()].concat();
    let zeroed = c
        .send(control(&file, 0x9_80c8, &range(4096, 20_480), 0))
        .status;
    assert_eq!(zeroed, Status::SUCCESS);
    assert_eq!(
        c.send(read(&file, 4090, 12)).body[16..28],
        [7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0]
    );
    let ranges = |c: &mut Client<'_>, most| {
        let answer = c.send(control(&file, 0x9_40cf, &range(0, 1 << 20), most));
        (answer.status, words(&output(&answer)))
    };
    // To clients a file has holes when they have said so.
    assert_eq!(ranges(&mut c, 4096), (Status::SUCCESS, vec![0, 40_000]));
    assert_eq!(
        c.send(control(&file, 0x9_00c4, &[], 0)).status,
        Status::SUCCESS
    );
    let found = vec![0, 4096, 20_480, 40_000 - 20_480];
    assert_eq!(ranges(&mut c, 4096), (Status::SUCCESS, found.clone()));
    assert_eq!(
        ranges(&mut c, 16),
        (Status::BUFFER_OVERFLOW, found[..2].to_vec())
    );
    let attributes = info(&c.send(query(&file, FILE, 35, 0)));
    assert_eq!(attributes[1] & 2, 2, "sparse");
    let bad = c.send(control(&file, 0x9_80c8, &range(2, 1), 0)).status;
    assert_eq!(bad, Status::INVALID_PARAMETER);
}

#[test]
fn the_server_copies_chunks_and_shares_blocks() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let (from, to) = (
        c.open("from", ALL, CREATE).unwrap(),
        c.open("to", ALL, CREATE).unwrap(),
    );
    let data: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    for (at, piece) in data.chunks(50_000).enumerate() {
        c.send(write(&from, 50_000 * at as u64, piece));
    }
    let key = output(&c.send(control(&from, 0x14_0078, &[], 32)))[..24].to_vec();
    let copy = |chunks: &[(u64, u64, u32)]| {
        let mut out = key.clone();
        out.put_u32(chunks.len() as u32);
        out.put_u32(0);
        for (from, to, len) in chunks {
            out.put_u64(*from);
            out.put_u64(*to);
            out.put_u32(*len);
            out.put_u32(0);
        }
        out
    };
    // Whole blocks, and what is none.
    let chunks = [(0, 8192, 65_536), (65_537, 100, 5000)];
    let answer = c.send(control(&to, 0x14_40f2, &copy(&chunks), 12));
    let done: Vec<u32> = [0, 4, 8]
        .map(|at| u32::from_le_bytes(output(&answer)[at..at + 4].try_into().unwrap()))
        .to_vec();
    assert_eq!((answer.status, done), (Status::SUCCESS, vec![2, 0, 70_536]));
    for (from, at, len) in chunks {
        let (from, len) = (from as usize, len as usize);
        let copied = c.send(read(&to, at, len as u32)).body[16..16 + len].to_vec();
        assert_eq!(copied, data[from..from + len]);
    }
    for (chunks, status) in [
        (vec![(0, 0, (1 << 20) + 1)], Status::INVALID_PARAMETER),
        (vec![(0, 0, 1); 257], Status::INVALID_PARAMETER),
        (vec![(99_999, 0, 2)], Status::INVALID_VIEW_SIZE),
    ] {
        let answer = c.send(control(&to, 0x14_40f2, &copy(&chunks), 12));
        assert_eq!((answer.status, output(&answer).len()), (status, 12));
    }
    let mut wrong = copy(&[(0, 0, 1)]);
    wrong[0] ^= 1;
    let answer = c.send(control(&to, 0x14_40f2, &wrong, 12));
    assert_eq!(answer.status, Status::OBJECT_NAME_NOT_FOUND);
    let mut shared = from.clone();
    [4096u64, 0, 8192]
        .iter()
        .for_each(|word| shared.put_u64(*word));
    assert_eq!(
        c.send(control(&to, 0x9_8344, &shared, 0)).status,
        Status::SUCCESS
    );
    assert_eq!(
        c.send(read(&to, 0, 8192)).body[16..16 + 8192],
        data[4096..4096 + 8192]
    );
}

#[test]
fn previous_versions_are_opened_by_their_second() {
    let world = world();
    published(&world, |export| export.snapshot_directory = true);
    let mut c = Client::ready(&world, 1);
    let file = c.open("f", ALL, CREATE).unwrap();
    let volume = world.engine.volumes().remove(0);
    let second = |secs| Time { secs, nanos: 5 };
    for (name, at) in [("one", 1_000_000_000), ("two", 1_000_000_001)] {
        c.send(write(&file, 0, name.as_bytes()));
        volume.snapshot_create(name, second(at)).unwrap();
    }
    c.send(write(&file, 0, b"now"));
    let listed = output(&c.send(control(&file, 0x14_4064, &[], 4096)));
    assert_eq!(words(&listed[..8]), [2 | 2 << 32]);
    let names = weir_auth::wire::from_utf16(&listed[12..]).unwrap();
    let tokens = ["@GMT-2001.09.09-01.46.41", "@GMT-2001.09.09-01.46.40"];
    assert_eq!(names.split('\0').take(2).collect::<Vec<_>>(), tokens);
    // How much room they need.
    let size = output(&c.send(control(&file, 0x14_4064, &[], 16)));
    assert_eq!(words(&size), [2, 2 * (2 * 25 + 1)]);
    for (token, content) in [(tokens[1], b"one"), (tokens[0], b"two")] {
        let old = c.open(&format!("{token}\\F"), 0x81, OPEN).unwrap();
        assert_eq!(&c.send(read(&old, 0, 10)).body[16..19], content);
        let root = c.open(token, 0x81, OPEN).unwrap();
        assert_eq!(c.list(&root), ["f"]);
        assert_eq!(
            c.open(&format!("{token}\\f"), 0x2, OPEN),
            Err(Status::MEDIA_WRITE_PROTECTED)
        );
    }
    let missing = c.open("@GMT-2001.09.09-01.46.42\\f", 0x81, OPEN);
    assert_eq!(missing, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn a_cut_goes_through_ranges_and_a_write_does_not() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let (holder, other) = (
        c.open("f", ALL, CREATE).unwrap(),
        c.open("f", ALL, OPEN).unwrap(),
    );
    c.send(write(&holder, 0, &[1; 100]));
    let exclusive = 2 | 0x10;
    assert_eq!(
        c.send(lock(&holder, 0, 100, exclusive)).status,
        Status::SUCCESS
    );
    assert_eq!(
        c.send(write(&other, 0, b"no")).status,
        Status::FILE_LOCK_CONFLICT
    );
    let cut = set(&other, FILE, 20, 0, &10u64.to_le_bytes());
    assert_eq!(c.send(cut).status, Status::SUCCESS);
    let size = words(&info(&c.send(query(&holder, FILE, 5, 0))))[1];
    assert_eq!(size, 10);
    const OVERWRITE: u32 = 4;
    c.open("f", ALL, OVERWRITE).unwrap();
}

/// On a volume of NTFS style a new file inherits its directory's list, without a mode, or belongs
/// to its owner alone.
#[test]
fn a_volume_of_ntfs_style_is_everyone_s_until_a_descriptor_says_otherwise() {
    use weir_vfs::acl::{Acl, Entry, Principal, flags};
    let world = world();
    published(&world, |export| {
        export.style = weir_vfs::claims::Style::Ntfs
    });
    let volume = world.engine.volumes().remove(0);
    let list = |name: &[u8]| {
        let mut cx = EngineContext::new(Time::EPOCH);
        let ino = volume.lookup(&mut cx, volume.root(), name).unwrap().ino;
        Acl::decode(&volume.acl(&mut cx, ino).unwrap().unwrap()).unwrap()
    };
    let (mut alice, mut bob) = (Client::ready(&world, 1), bob(&world, 2));
    // The root's own mode does not let bob in.
    bob.open("bobs", ALL, CREATE).unwrap();
    assert_eq!(list(b"bobs"), Acl::full(Principal::Everyone, false));
    let root = bob.open("", READ_CONTROL, OPEN).unwrap();
    let shown = bob.one(command::QUERY_INFO, query(&root, SECURITY, 0, 4).1);
    // One entry: everyone, all access, passed on.
    assert_eq!(shown.body[8 + 20 + 4..][..2], [1, 0]);
    assert_eq!(
        shown.body[8 + 20 + 8..][..2],
        [0, flags::FILE | flags::DIRECTORY]
    );
    // Alice keeps the root open to all, and passes nothing on.
    let only = Acl(vec![Entry {
        flags: 0,
        ..Acl::full(Principal::Everyone, false).0[0]
    }]);
    let attr = volume.getattr(&mut EngineContext::new(Time::EPOCH), volume.root());
    let descriptor = crate::proto::security::descriptor(
        &attr.unwrap(),
        Some(&only),
        crate::proto::security::DACL,
        &weir_auth::domains::SidMap::default(),
    );
    let root = alice.open("", WRITE_DAC, OPEN).unwrap();
    let done = alice.send_chain(false, &[set(&root, SECURITY, 0, 4, &descriptor)]);
    assert_eq!(statuses(&done), [Status::SUCCESS]);
    bob.open("his", ALL, CREATE).unwrap();
    assert_eq!(list(b"his"), Acl::full(Principal::Owner, false));
}

#[test]
fn share_modes_and_locks_bind_other_opens() {
    let world = world();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    let open = |share, access| create("shared", access, share, OPEN_IF, 0);
    let first = a.send_chain(false, &[open(1, 0x3)]).remove(0).file();
    for (access, share, status) in [
        (0x1, 0x7, Status::SUCCESS),
        (0x2, 0x7, Status::SHARING_VIOLATION),
        (0x1, 0x1, Status::SHARING_VIOLATION),
        // Of attributes alone.
        (0x80, 0x0, Status::SUCCESS),
    ] {
        let opened = b.send_chain(false, &[open(share, access)]).remove(0);
        assert_eq!(opened.status, status, "{access:x} {share}");
        if status == Status::SUCCESS {
            let file = opened.file();
            assert_eq!(
                statuses(&b.send_chain(false, &[close(&file)])),
                [Status::SUCCESS]
            );
        }
    }
    a.send_chain(false, &[close(&first)]);
    let mine = a.send_chain(false, &[open(SHARE, 0x3)]).remove(0).file();
    let theirs = b.send_chain(false, &[open(SHARE, 0x3)]).remove(0).file();
    a.send_chain(false, &[write(&mine, 0, &[7; 100])]);
    let (exclusive, unlock) = (0x12, 0x4);
    assert_eq!(
        statuses(&a.send_chain(false, &[lock(&mine, 10, 10, exclusive)])),
        [Status::SUCCESS]
    );
    let refused = b.send_chain(
        false,
        &[
            lock(&theirs, 15, 1, exclusive),
            read(&theirs, 0, 11),
            write(&theirs, 19, &[1]),
            read(&theirs, 0, 10),
            lock(&theirs, 10, 10, unlock),
        ],
    );
    assert_eq!(
        statuses(&refused),
        [
            Status::LOCK_NOT_GRANTED,
            Status::FILE_LOCK_CONFLICT,
            Status::FILE_LOCK_CONFLICT,
            Status::SUCCESS,
            Status::RANGE_NOT_LOCKED,
        ]
    );
    // The end of the connection ends it all.
    world.ended(1);
    assert_eq!(
        statuses(&b.send_chain(false, &[lock(&theirs, 15, 1, exclusive)])),
        [Status::SUCCESS]
    );
    world.ended(2);
    assert_eq!(world.vfs.claims.totals().held, 0);
    assert_eq!(world.service.counts(), (0, 0, 0));
}

#[test]
fn what_is_marked_goes_with_its_last_close() {
    let world = world();
    let (mut a, mut b) = (Client::ready(&world, 1), Client::ready(&world, 2));
    const ON_CLOSE: u32 = 0x1000;
    let doomed = a
        .send_chain(false, &[create("doomed", ALL, SHARE, CREATE, ON_CLOSE)])
        .remove(0)
        .file();
    let other = b
        .send_chain(false, &[create("doomed", ALL, SHARE, OPEN, 0)])
        .remove(0)
        .file();
    a.send_chain(false, &[close(&doomed)]);
    let again = create("doomed", ALL, SHARE, OPEN, 0);
    assert_eq!(
        statuses(&a.send_chain(false, std::slice::from_ref(&again))),
        [Status::DELETE_PENDING]
    );
    b.send_chain(false, &[close(&other)]);
    assert_eq!(
        statuses(&a.send_chain(false, &[again])),
        [Status::OBJECT_NAME_NOT_FOUND]
    );
    // A directory with something in it stays.
    a.send_chain(
        false,
        &[
            create("d", ALL, SHARE, CREATE, 1),
            create("d\\x", ALL, SHARE, CREATE, 0),
        ],
    );
    let full = create("d", ALL, SHARE, OPEN, 1 | ON_CLOSE);
    assert_eq!(
        statuses(&a.send_chain(false, &[full])),
        [Status::DIRECTORY_NOT_EMPTY]
    );
    // The background task deletes the files of a lost connection. Until then an open waits, of a
    // stream as well.
    b.send_chain(false, &[create("left", ALL, SHARE, CREATE, ON_CLOSE)]);
    world.ended(2);
    let (mut later, _) = waits(&mut a, create("left", ALL, SHARE, OPEN, 0));
    let (mut stream, _) = waits(&mut a, create("left:s", ALL, SHARE, CREATE, 0));
    let mut background = Box::pin(Arc::clone(&world.service).background());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(background.as_mut().poll(&mut cx).is_pending());
    let opened = poll(&mut later).expect("the name is gone");
    assert_eq!(opened.status, Status::OBJECT_NAME_NOT_FOUND);
    let made = poll(&mut stream).expect("the name is gone");
    assert_eq!(made.status, Status::SUCCESS);
}

mod apple;
mod links;
mod moves;
mod posix;
mod quotas;
mod values;
