//! Tests that docs/internals/format.md matches the code: superblock, nodes, map and log.

mod tables;

use weir_base::{BLOCK_SIZE, BlockAddr, Generation, Lsn, VolumeId};

use crate::block::{BlockPtr, PTR_SIZE};
use crate::log::{LogCut, LogId, LogPos};
use crate::node::{self, KEY_SIZE, Key, NODE_CAPACITY};
use weir_base::AggregateId;

use crate::superblock::{FORMAT_VERSION, IndexRef, Superblock};
use crate::tree::{ROOT_SIZE, TreeRoot};

use self::tables::{check_offsets, table};

const DOC: &str = include_str!("../../../docs/internals/format.md");
const FIELDS: [&str; 2] = ["Offset", "Bytes"];

/// Returns the bytes of the field whose description starts with `begins`.
fn field<'a>(rows: &[Vec<&str>], bytes: &'a [u8], begins: &str) -> &'a [u8] {
    let row = rows.iter().find(|row| row[2].starts_with(begins));
    let row = row.unwrap_or_else(|| unreachable!("no field {begins:?}"));
    let (at, len): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
    &bytes[at..at + len]
}

#[test]
fn the_superblock() {
    let rows = table(DOC, "## Superblock", &FIELDS);
    let fixed = &rows[..rows.len() - 1];
    check_offsets(fixed, 128);
    assert_eq!(rows[rows.len() - 1][..2], ["128", "16 × groups"]);
    let root = TreeRoot {
        ptr: Some(BlockPtr {
            addr: BlockAddr(77),
            birth: Generation(78),
            crc: 79,
        }),
        height: 2,
    };
    let superblock = Superblock {
        id: AggregateId([5; 16]),
        generation: Generation(12),
        log: LogId([6; 16]),
        cut: LogCut {
            pos: LogPos(13),
            next: Lsn(14),
        },
        length: 15,
        root,
        index: vec![IndexRef::default(); 3],
    };
    let bytes = superblock.encode().unwrap();
    let field = |begins: &str| field(fixed, &bytes, begins).to_vec();
    assert_eq!(field("magic `WEIRAGGR`"), b"WEIRAGGR");
    assert_eq!(
        field(&format!("format version, {FORMAT_VERSION}")),
        FORMAT_VERSION.to_le_bytes()
    );
    assert_eq!(field("length"), (128 + 3 * 16u32).to_le_bytes());
    assert_eq!(field("groups"), 3u32.to_le_bytes());
    assert_eq!(field("identity of the aggregate"), [5; 16]);
    assert_eq!(field("generation"), 12u64.to_le_bytes());
    assert_eq!(field("identity of the intent log"), [6; 16]);
    assert_eq!(field("log position"), 13u64.to_le_bytes());
    assert_eq!(field("LSN"), 14u64.to_le_bytes());
    assert_eq!(field("blocks of the device"), 15u64.to_le_bytes());
    assert_eq!(field("root of the aggregate tree"), root.encode());
    assert_eq!(ROOT_SIZE, 21);
}

#[test]
fn nodes() {
    let rows = table(DOC, "**Node**, one block:", &FIELDS);
    let header = BLOCK_SIZE - NODE_CAPACITY;
    check_offsets(&rows, header);
    let text = format!("at least a third of\nthe {NODE_CAPACITY} bytes behind the header");
    assert!(DOC.contains(&text), "{text:?}");
    let most = NODE_CAPACITY / (KEY_SIZE + PTR_SIZE);
    assert!(DOC.contains(&format!("an interior\nnode has at most {most} slots")));
    let mut page = [1; BLOCK_SIZE];
    let entries = [(Key::new(1, 2, 3), &b"value"[..])];
    node::encode(
        &mut page,
        0,
        VolumeId(1 << 40 | 9),
        Generation(5),
        entries.into_iter(),
    )
    .unwrap();
    let field = |begins: &str| field(&rows, &page, begins);
    assert_eq!(field("magic `WNOD`"), b"WNOD");
    assert_eq!(field("level"), [0]);
    assert_eq!(field("slots"), 1u16.to_le_bytes());
    assert_eq!(field("volume"), (1u64 << 40 | 9).to_le_bytes());
    assert_eq!(field("generation"), 5u64.to_le_bytes());
    assert_eq!(field("offset of the lowest"), (4096 - 5u16).to_le_bytes());
    assert_eq!(page[header..header + KEY_SIZE], Key::new(1, 2, 3).encode());
}

#[test]
fn the_log() {
    let rows = table(DOC, "## Intent log", &FIELDS);
    check_offsets(&rows, 60);
    let head = table(DOC, "A **batch** is a", &FIELDS);
    check_offsets(&head, 72);
    let index = table(DOC, "**Index block** of a group", &FIELDS);
    check_offsets(&index[..index.len() - 1], 96);
}
