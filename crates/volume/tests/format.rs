//! Data stored for NFSv4, SMB and the pair: attributes, lists, times, client records; holes in
//! files.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use common::*;
use weir_base::limits::MAX_XATTR;
use weir_base::{Rng, SeededRng, Time};
use weir_volume::{
    DOS_ATTRIBUTES, Engine, FsError, MAX_CLIENT, SetAttr, SetHow, Stability, StreamPosition, Volume,
};

fn reopen(
    m: &Machine,
    engine: Engine,
    vol: std::sync::Arc<Volume>,
    how: u64,
) -> (Engine, std::sync::Arc<Volume>) {
    match how % 3 {
        0 => {
            engine.shutdown().unwrap();
            drop((engine, vol));
        }
        1 => {
            engine.cp_now().unwrap();
            crash(engine, vol);
        }
        _ => crash(engine, vol),
    }
    assert!(m.check().clean(), "{}", m.check());
    m.open()
}

#[test]
fn attributes_of_smb_survive_restarts() {
    let m = Machine::new(51);
    let (mut engine, mut vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    let time = |secs| Some(Time { secs, nanos: 700 });
    for round in 0..6 {
        let set = SetAttr {
            dos: Some(0xFFFF - round as u16),
            btime: time(-5 - round),
            ctime: time(77 + round),
            ..SetAttr::default()
        };
        let done = run(&vol, |cx| vol.setattr(cx, f, &set, None)).unwrap();
        let attr = done.value.after;
        assert_eq!(attr.dos, (0xFFFF - round as u16) & DOS_ATTRIBUTES);
        assert_eq!((Some(attr.btime), Some(attr.ctime)), (set.btime, set.ctime));
        assert!(attr.change > done.value.before.change);
        (engine, vol) = reopen(&m, engine, vol, round as u64);
        let again = run(&vol, |cx| vol.getattr(cx, f)).unwrap();
        assert_eq!(
            (again.dos, again.btime, again.ctime),
            (attr.dos, attr.btime, attr.ctime)
        );
        // Later changes have later times, whatever was set.
        let plain = run(&vol, |cx| vol.setattr(cx, f, &SetAttr::default(), None)).unwrap();
        assert!(plain.value.after.ctime > again.ctime);
    }
    let bad = SetAttr {
        btime: Some(Time {
            secs: 0,
            nanos: 1_000_000_000,
        }),
        ..SetAttr::default()
    };
    let refused = run(&vol, |cx| vol.setattr(cx, f, &bad, None));
    assert_eq!(refused.map(|_| ()), Err(FsError::Invalid));
}

#[test]
fn lists_and_attributes_go_with_the_file_and_with_snapshots() {
    let m = Machine::new(52);
    let (engine, vol) = m.format();
    let root = vol.root();
    let f = create(&vol, root, "f");
    let acl = |vol: &Volume| run(vol, |cx| vol.acl(cx, f)).unwrap();
    let xattr = |vol: &Volume, name: &str| run(vol, |cx| vol.xattr(cx, f, name.as_bytes()));
    let set = |name: &str, value: Option<&[u8]>| {
        run(&vol, |cx| {
            vol.set_xattr(cx, f, name.as_bytes(), value, SetHow::Either)
        })
        .map(|_| ())
    };
    assert_eq!(acl(&vol), None);
    for len in [1, 1024, MAX_XATTR, 3000] {
        let list = vec![len as u8; len];
        run(&vol, |cx| vol.set_acl(cx, f, Some(&list))).unwrap();
        assert_eq!(acl(&vol), Some(list.clone()));
        engine.cp_now().unwrap();
        assert_eq!(acl(&vol), Some(list));
    }
    set("user.a", Some(&[1; MAX_XATTR])).unwrap();
    set("user.b", Some(b"")).unwrap();
    vol.snapshot_create("then", fixed_time()).unwrap();
    run(&vol, |cx| vol.set_acl(cx, f, None)).unwrap();
    set("user.a", None).unwrap();
    set("user.c", Some(b"later")).unwrap();
    assert_eq!(set("user.a", None), Err(FsError::NotFound));
    assert_eq!(set("", Some(b"x")), Err(FsError::Invalid));
    assert_eq!(set(&"n".repeat(256), Some(b"x")), Err(FsError::NameTooLong));
    assert_eq!(set("n", Some(&[0; MAX_XATTR + 1])), Err(FsError::Invalid));
    assert_eq!(
        (acl(&vol), xattr(&vol, "user.a")),
        (None, Err(FsError::NotFound))
    );
    let view = vol.open_snapshot("then").unwrap();
    assert_eq!(acl(&view), Some(vec![(3000 % 256) as u8; 3000]));
    assert_eq!(xattr(&view, "user.a"), Ok(vec![1; MAX_XATTR]));
    assert_eq!(xattr(&view, "user.b"), Ok(Vec::new()));
    drop(view);
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
    let (engine, vol) = m.open();
    assert_eq!(xattr(&vol, "user.c"), Ok(b"later".to_vec()));
    engine.revert("vol1", "then").unwrap();
    assert_eq!(xattr(&vol, "user.c"), Err(FsError::NotFound));
    assert_eq!(xattr(&vol, "user.a"), Ok(vec![1; MAX_XATTR]));
    // Nothing of a removed file is left.
    run(&vol, |cx| vol.remove(cx, root, b"f")).unwrap();
    vol.snapshot_delete("then").unwrap();
    engine.cp_now().unwrap();
    assert_eq!(acl_error(&vol, f), FsError::Stale);
    crash(engine, vol);
    let report = m.check();
    assert!(report.clean(), "{report}");
}

fn acl_error(vol: &Volume, f: weir_base::Ino) -> FsError {
    run(vol, |cx| vol.acl(cx, f)).unwrap_err()
}

#[test]
fn records_of_clients_and_the_position_survive_restarts() {
    let m = Machine::new(53);
    let rng = SeededRng::new(53);
    let (mut engine, mut vol) = m.format();
    let mut model = std::collections::BTreeMap::new();
    let mut at = StreamPosition::default();
    assert_eq!(engine.position(), at);
    for round in 0..30 {
        for _ in 0..rng.below(20) {
            let number = rng.below(12) << rng.below(60);
            let record = vec![number as u8; 1 + rng.below(MAX_CLIENT as u64) as usize];
            let record = (rng.below(3) > 0).then_some(record);
            let lsn = run(&vol, |_| {
                engine.client_records().set(number, record.as_deref())
            })
            .unwrap();
            engine.wait_durable(Some(lsn)).unwrap();
            match record {
                Some(record) => model.insert(number, record.into_boxed_slice()),
                None => model.remove(&number),
            };
            if rng.below(4) == 0 {
                engine.cp_now().unwrap();
            }
        }
        at = StreamPosition {
            term: round / 7,
            sequence: round,
        };
        let lsn = run(&vol, |_| engine.note_position(at)).unwrap();
        engine.wait_durable(Some(lsn)).unwrap();
        (engine, vol) = reopen(&m, engine, vol, rng.below(3));
        assert!(
            engine
                .client_records()
                .list_records()
                .into_iter()
                .eq(model.clone())
        );
        assert_eq!(engine.position(), at);
    }
    let long = vec![0; MAX_CLIENT + 1];
    for bad in [&[][..], &long] {
        let refused = run(&vol, |_| engine.client_records().set(1, Some(bad)));
        assert_eq!(refused, Err(FsError::Invalid));
    }
}

fn used(vol: &Volume, f: weir_base::Ino) -> u64 {
    run(vol, |cx| vol.getattr(cx, f)).unwrap().used / 4096
}

#[test]
fn a_hole_gives_its_space_back() {
    let m = Machine::new(54);
    let (mut engine, mut vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    const BLOCKS: u64 = 300;
    let data: Vec<u8> = (0..BLOCKS * 4096).map(|i| (i / 4096) as u8 | 1).collect();
    for (at, piece) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
        write(&vol, f, at, piece, Stability::FileSync);
    }
    engine.cp_now().unwrap();
    assert_eq!(used(&vol, f), BLOCKS);
    let punch = |vol: &Volume, off: u64, len: u64| {
        let done = run(vol, |cx| vol.punch(cx, f, off, len)).unwrap();
        assert!(done.value.after.change > done.value.before.change);
        assert_eq!(done.value.after.size, done.value.before.size);
    };
    // Within one window, over several, at the edges, beyond the end.
    punch(&vol, 3 * 4096, 4096);
    punch(&vol, 20 * 4096 - 1, 70 * 4096 + 2);
    punch(&vol, 100 * 4096, 5);
    punch(&vol, 290 * 4096, 1 << 40);
    write(&vol, f, 31 * 4096, &[9; 4096], Stability::Unstable);
    let mut want = data;
    for (from, to) in [
        (3 * 4096, 4 * 4096),
        (20 * 4096 - 1, 90 * 4096 + 1),
        (100 * 4096, 100 * 4096 + 5),
        (290 * 4096, 300 * 4096),
    ] {
        want[from..to].fill(0);
    }
    want[31 * 4096..32 * 4096].fill(9);
    assert!(read_all(&vol, f) == want);
    let left = BLOCKS - 1 - 70 - 10 + 1;
    for how in 0..3 {
        engine.cp_now().unwrap();
        assert_eq!((used(&vol, f), vol.used() / 4096), (left, left));
        assert!(read_all(&vol, f) == want);
        (engine, vol) = reopen(&m, engine, vol, how);
    }
    // Blocks of a snapshot stay until it is deleted.
    vol.snapshot_create("s", fixed_time()).unwrap();
    punch(&vol, 0, BLOCKS * 4096);
    engine.cp_now().unwrap();
    assert_eq!((used(&vol, f), vol.used()), (0, 0));
    // And a few nodes.
    assert!((left..left + 4).contains(&(vol.snapshot_used() / 4096)));
    let view = vol.open_snapshot("s").unwrap();
    assert!(read_all(&view, f) == want);
    drop(view);
    (engine, vol) = reopen(&m, engine, vol, 2);
    vol.snapshot_delete("s").unwrap();
    (engine, vol) = reopen(&m, engine, vol, 1);
    drop((engine, vol));
}

fn read_all(vol: &Volume, f: weir_base::Ino) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let more = read(vol, f, out.len() as u64, 1 << 20);
        if more.is_empty() {
            return out;
        }
        out.extend(more);
    }
}

#[test]
fn names_that_differ_in_case_are_different_names() {
    let m = Machine::new(55);
    let (engine, vol) = m.format();
    let root = vol.root();
    let spelling = |n: u32| -> String {
        let letters = "abcdefghijkl".chars().enumerate();
        letters
            .map(|(i, c)| match n >> i & 1 {
                0 => c,
                _ => c.to_ascii_uppercase(),
            })
            .collect()
    };
    // As many names as one place in a directory can have.
    let made: Vec<_> = (0..1024)
        .map(|n| create(&vol, root, &spelling(n)))
        .collect();
    let one_more = run(&vol, |cx| {
        let how = weir_volume::CreateHow::Guarded;
        vol.create(
            cx,
            root,
            spelling(1024).as_bytes(),
            how,
            &SetAttr::default(),
        )
    });
    assert_eq!(one_more.map(|_| ()), Err(FsError::NoSpace));
    for round in 0..2 {
        for (n, ino) in (0..).zip(&made) {
            assert_eq!(lookup(&vol, root, &spelling(n)), Ok(*ino));
        }
        assert_eq!(lookup(&vol, root, &spelling(2000)), Err(FsError::NotFound));
        assert_eq!(names(&vol, root).len(), 1024);
        if round == 0 {
            engine.cp_now().unwrap();
        }
    }
    run(&vol, |cx| vol.remove(cx, root, spelling(5).as_bytes())).unwrap();
    create(&vol, root, &spelling(1024));
    crash(engine, vol);
    assert!(m.check().clean(), "{}", m.check());
}
