//! Damage: the faults that `check` finds and repair mends, and the data that stays readable.
#![allow(clippy::unwrap_used, clippy::panic)] // A failed step is a failed test.

mod common;

use common::{Machine, create, fixed_time, lookup, mkdir, names, read, run, write};
use weir_base::BlockAddr;
use weir_store::Device;
use weir_volume::check::Fault;
use weir_volume::{FsError, Stability};

/// Returns the blocks whose contents begin with `page`.
fn find_block(m: &Machine, page: &[u8]) -> Vec<BlockAddr> {
    let mut found = Vec::new();
    for addr in 0..m.device.length() {
        m.device.tamper(BlockAddr(addr), |bytes| {
            if bytes.starts_with(page) {
                found.push(BlockAddr(addr));
            }
        });
    }
    found
}

#[test]
fn a_sound_aggregate_is_clean() {
    let m = Machine::new(1);
    let (engine, vol) = m.format();
    let d = mkdir(&vol, vol.root(), "d");
    for i in 0..300 {
        let f = create(&vol, d, &format!("f{i}"));
        write(&vol, f, i * 1000, &vec![i as u8; 5000], Stability::Unstable);
    }
    vol.snapshot_create("s", fixed_time()).unwrap();
    for i in 0..100 {
        run(&vol, |cx| vol.remove(cx, d, format!("f{i}").as_bytes())).unwrap();
    }
    engine.cp_now().unwrap();
    run(&vol, |cx| {
        vol.link(cx, lookup(&vol, d, "f200").unwrap(), d, b"g")
    })
    .unwrap();
    let last = run(&vol, |cx| vol.remove(cx, d, b"f299")).unwrap();
    engine.wait_durable(last.lsn).unwrap();
    drop((vol, engine));
    let report = m.check();
    assert!(report.clean(), "{report}");
    assert_eq!((report.volumes, report.snapshots), (1, 1));
    assert_eq!((report.inodes, report.entries), (202, 201));
    assert!(report.log_records >= 2);
}

#[test]
fn a_damaged_block_costs_what_it_covers() {
    let m = Machine::new(2);
    let (engine, vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    for i in 0..40u64 {
        write(
            &vol,
            f,
            i * 4096,
            &[100 + i as u8; 4096],
            Stability::Unstable,
        );
    }
    engine.shutdown().unwrap();
    drop((vol, engine));
    let [addr] = find_block(&m, &[117; 4096])[..] else {
        panic!("one block has these contents")
    };
    m.device.tamper(addr, |bytes| bytes[77] ^= 1);
    let report = m.check();
    assert!(
        matches!(report.faults[..], [Fault::Data { ino, block: 17, .. }] if ino == f),
        "{report}"
    );
    let (engine, vol) = m.open();
    assert_eq!(
        read(&vol, f, 0, 1 << 20).len(),
        17 * 4096,
        "up to the damage"
    );
    assert_eq!(
        run(&vol, |cx| vol.read(cx, f, 17 * 4096 + 5, 100)).map(|_| ()),
        Err(FsError::Io)
    );
    assert_eq!(read(&vol, f, 18 * 4096, 4096), vec![118; 4096]);
    // Overwriting the whole block repairs it.
    write(&vol, f, 17 * 4096, &[1; 4096], Stability::FileSync);
    assert_eq!(read(&vol, f, 0, 1 << 20).len(), 40 * 4096);
    engine.shutdown().unwrap();
    drop((vol, engine));
    assert!(m.check().clean());
}

#[test]
fn a_damaged_node_is_found_and_the_rest_stays_readable() {
    let m = Machine::new(3);
    let (engine, vol) = m.format();
    let root = vol.root();
    let files: Vec<_> = (0..600)
        .map(|i| create(&vol, root, &format!("file{i}")))
        .collect();
    engine.shutdown().unwrap();
    drop((vol, engine));
    // Damages a leaf with inode records: the last one in the tree's order.
    let last = files.last().unwrap().0;
    let mut hit = None;
    for addr in 0..m.device.length() {
        m.device.tamper(BlockAddr(addr), |bytes| {
            let key = [&last.to_be_bytes()[..], &[0], &[0; 8]].concat();
            if hit.is_none() && bytes.windows(17).any(|w| *w == key[..]) {
                bytes[2000] ^= 0xFF;
                hit = Some(addr);
            }
        });
    }
    assert!(hit.is_some());
    let report = m.check();
    assert!(
        report
            .faults
            .iter()
            .any(|f| matches!(f, Fault::Node { .. })),
        "{report}"
    );
    let again = m.repair();
    assert!(
        again.repaired.is_empty(),
        "nothing is done about a lost node"
    );
    let (_engine, vol) = m.open();
    let readable = files
        .iter()
        .filter(|f| run(&vol, |cx| vol.getattr(cx, **f)).is_ok())
        .count();
    assert!((300..600).contains(&readable), "{readable}");
    assert_eq!(names(&vol, root).len(), 600);
}

#[test]
fn the_superblocks_copy_and_the_map_are_repaired() {
    let m = Machine::new(4);
    let (engine, vol) = m.format();
    let f = create(&vol, vol.root(), "f");
    write(&vol, f, 0, &[5; 50_000], Stability::FileSync);
    engine.shutdown().unwrap();
    drop((vol, engine));
    assert!(m.check().clean());
    // Damages every block that begins like a map page or an index, and one copy of a superblock.
    // They are found by trying, since only check knows them.
    let mut repaired = 0;
    for addr in 0..64 {
        let mut before = [0; 4096];
        m.device.tamper(BlockAddr(addr), |bytes| {
            before = *bytes;
            if bytes.iter().any(|b| *b != 0) {
                bytes[40] ^= 0x55;
            }
        });
        let report = m.check();
        let map = |f: &Fault| matches!(f, Fault::Superblock(_) | Fault::Map(_));
        if !report.clean() && report.faults.iter().all(map) {
            let after = m.repair();
            assert!(after.clean(), "block {addr}: {report}\n{after}");
            assert!(!after.repaired.is_empty());
            repaired += 1;
        } else {
            m.device.tamper(BlockAddr(addr), |bytes| *bytes = before);
        }
    }
    assert!(repaired >= 2, "{repaired}");
    let (_engine, vol) = m.open();
    assert_eq!(read(&vol, f, 0, 100_000), vec![5; 50_000]);
}
