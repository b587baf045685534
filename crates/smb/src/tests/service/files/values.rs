//! Values outside of what MS-SMB2, MS-FSA and MS-FSCC allow.

use super::*;
use crate::tests::durable::put_contexts;
use crate::tests::lease::LEASE;

const SUPERSEDE: u32 = 0;
const OVERWRITE: u32 = 4;
const OVERWRITE_IF: u32 = 5;
const DIRECTORY: u32 = 1;
const BASIC: u8 = 4;
const RENAME: u8 = 10;
const LINK: u8 = 11;
const POSITION: u8 = 14;
const MODE: u8 = 16;
const ALLOCATION: u8 = 19;
const END_OF_FILE: u8 = 20;
const RENAME_EX: u8 = 65;
const SET_ZERO_DATA: u32 = 0x0009_80c8;
const QUERY_ALLOCATED_RANGES: u32 = 0x0009_40cf;

fn set_status(c: &mut Client<'_>, file: &[u8], class: u8, data: &[u8]) -> Status {
    c.send(set(file, FILE, class, 0, data)).status
}

fn size(c: &mut Client<'_>, file: &[u8]) -> u64 {
    words(&info(&c.send(query(file, FILE, 5, 0))))[1]
}

fn with_context(name: &str, disposition: u32, tag: &[u8; 4], data: Vec<u8>) -> (u16, Vec<u8>) {
    let (command, mut body) = create(name, ALL, SHARE, disposition, 0);
    put_contexts(&mut body, &[(tag, data)]);
    (command, body)
}

#[test]
fn a_lease_context_has_one_of_two_lengths() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    for len in 0..70 {
        let mut data = vec![1; len];
        if len >= 20 {
            data[16..20].copy_from_slice(&3u32.to_le_bytes());
        }
        let mut asked = with_context("f", OPEN_IF, b"RqLs", data);
        asked.1[3] = LEASE;
        let answer = c.send(asked);
        let expected = match len {
            32 | 52 => Status::SUCCESS,
            _ => Status::INVALID_PARAMETER,
        };
        assert_eq!(answer.status, expected, "{len} bytes");
        if expected == Status::SUCCESS {
            c.send(close(&answer.file()));
        }
    }
}

#[test]
fn a_pipe_takes_any_disposition_and_delegates_nothing() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let files = c.tree;
    assert_eq!(c.connect("IPC$"), Status::SUCCESS);
    let opens = |c: &mut Client<'_>, name: &str, level: u32, share: u32, disposition: u32| {
        let (command, mut body) = create(name, 0x12_019f, share, disposition, 0);
        body[4..8].copy_from_slice(&level.to_le_bytes());
        c.one(command, body).status
    };
    for disposition in [SUPERSEDE, OPEN, 6, 77, u32::MAX] {
        let opened = opens(&mut c, "srvsvc", 2, 0xff, disposition);
        assert_eq!(opened, Status::SUCCESS, "disposition {disposition}");
    }
    for level in [3, 4, u32::MAX] {
        let refused = opens(&mut c, "srvsvc", level, SHARE, OPEN);
        assert_eq!(refused, Status::BAD_IMPERSONATION_LEVEL, "{level}");
    }
    // Of files nothing is ignored, and Delegate is a level like the others.
    c.tree = files;
    for (level, share, disposition, expected) in [
        (3, SHARE, OPEN_IF, Status::SUCCESS),
        (4, SHARE, OPEN_IF, Status::BAD_IMPERSONATION_LEVEL),
        (2, 8, OPEN_IF, Status::INVALID_PARAMETER),
        (2, SHARE, 6, Status::INVALID_PARAMETER),
        (2, SHARE, 77, Status::INVALID_PARAMETER),
    ] {
        let status = opens(&mut c, "f", level, share, disposition);
        assert_eq!(status, expected, "{level} {share} {disposition}");
    }
}

#[test]
fn a_directory_is_not_overwritten() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    c.send(create("d", ALL, SHARE, CREATE, DIRECTORY));
    for disposition in [SUPERSEDE, OVERWRITE, OVERWRITE_IF] {
        let collides = c.send(create("d", ALL, SHARE, disposition, 0)).status;
        assert_eq!(collides, Status::OBJECT_NAME_COLLISION, "{disposition}");
        let file = c.send(create("d", ALL, SHARE, disposition, 0x40)).status;
        assert_eq!(file, Status::FILE_IS_A_DIRECTORY, "{disposition}");
        // It makes no sense of any name.
        for name in ["d", "new"] {
            let refused = c.send(create(name, ALL, SHARE, disposition, DIRECTORY));
            assert_eq!(refused.status, Status::INVALID_PARAMETER, "{disposition}");
        }
    }
    assert_eq!(
        c.open("new", ALL, OPEN),
        Err(Status::OBJECT_NAME_NOT_FOUND),
        "nothing was made"
    );
}

#[test]
fn values_that_nothing_has_are_not_set() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = c.open("f", ALL, CREATE).unwrap();
    c.send(write(&file, 0, &[7; 100]));
    for time in [-3, i64::MIN] {
        for at in 0..4 {
            let mut basic = vec![0; 40];
            basic[8 * at..8 * at + 8].copy_from_slice(&time.to_le_bytes());
            let refused = set_status(&mut c, &file, BASIC, &basic);
            assert_eq!(refused, Status::INVALID_PARAMETER, "time {at}: {time}");
        }
    }
    for time in [-2, -1, 0, i64::MAX] {
        let basic = [[time; 4].map(i64::to_le_bytes).concat(), vec![0; 8]].concat();
        let taken = set_status(&mut c, &file, BASIC, &basic);
        assert_eq!(taken, Status::SUCCESS, "{time}");
    }
    for class in [POSITION, ALLOCATION, END_OF_FILE] {
        for value in [-5, -1, i64::MIN] {
            let refused = set_status(&mut c, &file, class, &value.to_le_bytes());
            assert_eq!(refused, Status::INVALID_PARAMETER, "{class}: {value}");
        }
    }
    for (mode, expected) in [
        (u32::MAX, Status::INVALID_PARAMETER),
        (0x1, Status::INVALID_PARAMETER),
        (0x40, Status::INVALID_PARAMETER),
        (0x2000, Status::INVALID_PARAMETER),
        (0x30, Status::INVALID_PARAMETER),
        (0x100e, Status::SUCCESS),
        (0x10, Status::SUCCESS),
    ] {
        let status = set_status(&mut c, &file, MODE, &mode.to_le_bytes());
        assert_eq!(status, expected, "mode {mode:x}");
    }
    assert_eq!(
        set_status(&mut c, &file, MODE, &[2, 0]),
        Status::INFO_LENGTH_MISMATCH
    );
    for class in [RENAME, RENAME_EX, LINK] {
        let mut named = vec![0; 8];
        named.put_u64(5);
        named.put_u32(2);
        named.put(&utf16("g"));
        let refused = set_status(&mut c, &file, class, &named);
        assert_eq!(refused, Status::INVALID_PARAMETER, "class {class}");
    }
    let range = |from: i64, to: i64| [from, to].map(i64::to_le_bytes).concat();
    for (code, input) in [
        (SET_ZERO_DATA, range(-1, 5)),
        (SET_ZERO_DATA, range(0, -1)),
        (SET_ZERO_DATA, range(9, 8)),
        (QUERY_ALLOCATED_RANGES, range(-1, 5)),
        (QUERY_ALLOCATED_RANGES, range(0, -1)),
        (QUERY_ALLOCATED_RANGES, range(5, i64::MAX)),
    ] {
        let refused = c.send(control(&file, code, &input, 64)).status;
        assert_eq!(refused, Status::INVALID_PARAMETER, "{code:x} {input:?}");
    }
    let beyond = control(&file, SET_ZERO_DATA, &range(1 << 40, i64::MAX), 0);
    assert_eq!(c.send(beyond).status, Status::SUCCESS);
    assert_eq!(&c.send(read(&file, 0, 200)).body[16..], [7; 100]);
    assert_eq!(size(&mut c, &file), 100);
}

#[test]
fn more_than_the_volume_has_room_for_is_not_allocated() {
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = c.open("f", ALL, CREATE).unwrap();
    c.send(write(&file, 0, &[7; 100]));
    for (bytes, expected) in [
        (1 << 62, Status::DISK_FULL),
        (1 << 40, Status::DISK_FULL),
        (1 << 20, Status::SUCCESS),
        (100, Status::SUCCESS),
    ] {
        let status = set_status(&mut c, &file, ALLOCATION, &u64::to_le_bytes(bytes));
        assert_eq!(status, expected, "{bytes}");
        assert_eq!(size(&mut c, &file), 100, "after {bytes}");
    }
    // Whole clusters are cut (MS-FSA §2.1.5.15.1).
    c.send(write(&file, 4096, &[7; 100]));
    for (bytes, left) in [(4097, 4196), (60, 4096), (1, 4096)] {
        let cut = set_status(&mut c, &file, ALLOCATION, &u64::to_le_bytes(bytes));
        assert_eq!((cut, size(&mut c, &file)), (Status::SUCCESS, left));
    }
    let sized =
        |name, disposition, bytes: &[u8]| with_context(name, disposition, b"AlSi", bytes.to_vec());
    let huge = (1u64 << 62).to_le_bytes();
    for (name, disposition, bytes, expected) in [
        ("new", CREATE, &huge[..], Status::DISK_FULL),
        ("new", OPEN_IF, &huge, Status::DISK_FULL),
        ("f:new", OPEN_IF, &huge, Status::DISK_FULL),
        ("f", OVERWRITE, &huge, Status::DISK_FULL),
        ("new", CREATE, &[0xff; 8], Status::INVALID_PARAMETER),
        ("new", CREATE, &[0; 7], Status::INVALID_PARAMETER),
        ("new", CREATE, &[0; 9], Status::INVALID_PARAMETER),
    ] {
        let status = c.send(sized(name, disposition, bytes)).status;
        assert_eq!(status, expected, "{name} {disposition} {bytes:?}");
    }
    assert_eq!(
        c.open("new", ALL, OPEN),
        Err(Status::OBJECT_NAME_NOT_FOUND),
        "nothing was made"
    );
    assert_eq!(
        c.open("f:new", ALL, OPEN),
        Err(Status::OBJECT_NAME_NOT_FOUND)
    );
    assert_eq!(size(&mut c, &file), 4096, "nothing was cut");
    let opened = c.send(sized("f", OPEN, &huge));
    assert_eq!(opened.status, Status::SUCCESS, "it is opened as it is");
    let made = c.send(sized("new", CREATE, &4096u64.to_le_bytes()));
    assert_eq!(made.status, Status::SUCCESS);
    assert_eq!(size(&mut c, &made.file()), 0);
}

/// FileAllocationInformation cuts a file, and never lets it grow: another client may cut it further
/// between its look at the size and its change.
#[test]
fn an_allocation_beside_a_cut_never_grows_the_file() {
    const ROUNDS: usize = 3000;
    let world = world();
    let mut c = Client::ready(&world, 1);
    let file = c.open("f", ALL, CREATE).unwrap();
    let volume = world.engine.volumes().remove(0);
    let mut cx = EngineContext::new(Time::EPOCH);
    let ino = volume.lookup(&mut cx, volume.root(), b"f").unwrap().ino;
    let cut = |size| {
        let mut cx = EngineContext::new(Time::EPOCH);
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        while volume.setattr(&mut cx, ino, &set, None).is_err() {
            std::thread::yield_now();
        }
    };
    let both = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            for _ in 0..ROUNDS {
                both.wait();
                cut(10);
                both.wait();
            }
        });
        let mut grown = 0;
        for _ in 0..ROUNDS {
            cut(10_000);
            both.wait();
            set_status(&mut c, &file, ALLOCATION, &4096u64.to_le_bytes());
            both.wait();
            grown += usize::from(size(&mut c, &file) != 10);
        }
        other.join().unwrap();
        assert_eq!(grown, 0, "of {ROUNDS} rounds");
    });
}
