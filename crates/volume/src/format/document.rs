//! Tests that docs/internals/format.md matches the code: the aggregate's tree, volumes' trees and
//! log records.

#[path = "../../../store/src/document/tables.rs"]
mod tables;

use std::collections::BTreeSet;

use weir_base::{Ino, Time, VolumeId};

use crate::format::catalog::{self, ANNOTATION_PIECE, AggregateRec, Job, MAX_ANNOTATION};
use crate::format::clients::MAX_CLIENT;
use crate::format::content::ContentHash;
use crate::format::edit::{self, Edits};
use crate::format::hash::{DISAMBIGUATOR_BITS, VARIANTS};
use crate::format::record::{
    DOS_ATTRIBUTES, FIRST_INO, InodeRec, ROOT_INO, SYMLINK_PIECE, WINDOW, flag, kind,
};
use crate::format::shared_runs;
use crate::format::usage;
use crate::types::FileKind;
use weir_base::SnapshotIdentity;

use self::tables::{check_offsets, table};

const DOC: &str = include_str!("../../../../docs/internals/format.md");

/// Returns the numbers and names of a table of kinds.
fn kinds<'a>(rows: &'a [Vec<&'a str>], name: usize) -> BTreeSet<(u8, &'a str)> {
    let one = |row: &Vec<&'a str>| {
        let name = row[name].split("**").nth(1).unwrap_or(row[name]);
        (row[0].parse().unwrap(), name)
    };
    rows.iter().map(one).collect()
}

/// Asserts that the document contains this text, lines joined.
fn says(text: &str) {
    let joined = DOC.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(text), "the document does not say {text:?}");
}

#[test]
fn the_aggregates_tree() {
    let rows = table(DOC, "## Aggregate tree", &["Kind", "Number", "Value"]);
    let want = [
        (catalog::kind::VOLUME, "Volume"),
        (catalog::kind::SNAPSHOT, "Snapshot"),
        (catalog::kind::JOB, "Job"),
        (catalog::kind::AGGREGATE, "Aggregate"),
        (catalog::kind::CALLS, "Calls"),
        (catalog::kind::ANNOTATION, "Annotation"),
        (catalog::kind::CLIENT, "Client"),
    ];
    assert_eq!(kinds(&rows, 2), BTreeSet::from(want));
    let version = |name: &str| {
        let row = rows
            .iter()
            .find(|row| row[2].contains(&format!("**{name}**")));
        let rest = row.unwrap()[2].split("version (1; ").nth(1).unwrap();
        rest.split(')').next().unwrap().parse::<u8>().unwrap()
    };
    assert_eq!(version("Volume"), catalog::RECORD_VERSION);
    assert_eq!(version("Snapshot"), catalog::RECORD_VERSION);
    let job = Job::Split {
        from: weir_store::node::Key::MIN,
    };
    assert_eq!(version("Job"), job.encode()[0]);
    assert_eq!(version("Aggregate"), AggregateRec::default().encode()[0]);
    assert_eq!(version("Calls"), crate::format::calls::VERSION);
    assert_eq!(version("Annotation"), catalog::encode_annotation("a")[0]);
    assert_eq!(version("Client"), crate::format::clients::VERSION);
    says(&format!("{} bytes: the aggregate's", SnapshotIdentity::LEN));
    says(&format!("of a snapshot, {} bytes", ContentHash::LEN));
    says(&format!("text (the rest, 1 to {ANNOTATION_PIECE} bytes"));
    says(&format!("{MAX_ANNOTATION} bytes at most in all"));
    says(&format!("(the rest, 1 to {MAX_CLIENT} bytes)"));
    let (per_shard, per_record) = (
        crate::format::calls::PER_SHARD,
        crate::format::calls::PER_RECORD,
    );
    says(&format!("modulo {per_shard}, {per_record} places a record"));
    says(&format!("rings of {} records", per_shard / per_record));
}

#[test]
fn volumes_trees() {
    let rows = table(DOC, "## Volume trees", &["Kind", "Number", "Value"]);
    let want = [
        (kind::INODE, "Inode"),
        (kind::SYMLINK, "Link target"),
        (kind::DIRENT, "Directory entry"),
        (kind::EXTENT, "Extents"),
        (kind::ORPHAN, "Orphan"),
        (kind::XATTR, "Extended attribute"),
        (kind::ACL, "Access control list"),
        (kind::STREAM, "Stream"),
        (kind::TOKEN, "Token"),
        (kind::SHARED, "Shared blocks"),
        (kind::USAGE, "Usage"),
    ];
    assert_eq!(kinds(&rows, 2), BTreeSet::from(want));
    says(&format!("root directory is inode {ROOT_INO}"));
    says(&format!("numbered from {FIRST_INO} on"));
    says(&format!("of a window of {WINDOW} file blocks"));
    says(&format!("a block div {}", shared_runs::GROUP));
    says(&format!("among these {} blocks", shared_runs::GROUP));
    says(&format!(
        "after the number: version (1; {})",
        usage::VERSION
    ));
    says(&format!("bytes {SYMLINK_PIECE} × piece and following"));
    says(&format!(
        "the upper {} bits of the 64-bit SipHash",
        63 - DISAMBIGUATOR_BITS
    ));
    says(&format!("below {VARIANTS}."));
}

#[test]
fn inodes() {
    let rows = table(DOC, "**Inode**, ", &["Offset", "Bytes", "Field"]);
    check_offsets(&rows, InodeRec::LEN);
    says(&format!("**Inode**, {} bytes:", InodeRec::LEN));
    says(&format!("of the bits 0x{DOS_ATTRIBUTES:04X}"));
    let time = |secs| Time {
        secs,
        nanos: secs as u32 + 1,
    };
    let rec = InodeRec {
        mode: 0o4321,
        nlink: 2,
        uid: 3,
        gid: 4,
        size: 5,
        blocks: 6,
        change: 7,
        verifier: Some([8; 8]),
        flags: flag::ACL | flag::XATTRS,
        dos: 0x21,
        atime: time(10),
        mtime: time(20),
        ctime: time(30),
        btime: time(40),
        ..InodeRec::new(FileKind::Regular, 0, Time::EPOCH)
    };
    let encoded = |rec: &InodeRec| {
        let mut bytes = Vec::new();
        rec.encode(&mut bytes);
        bytes
    };
    let field = |bytes: &[u8], begins: &str| {
        let row = rows.iter().find(|row| row[2].starts_with(begins)).unwrap();
        let (at, len): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        bytes[at..at + len].to_vec()
    };
    let bytes = encoded(&rec);
    let whole = |t: Time| [&t.secs.to_le_bytes()[..], &t.nanos.to_le_bytes()].concat();
    for (begins, want) in [
        ("version, 2", vec![2]),
        ("kind", vec![1]),
        ("mode", 0o4321u16.to_le_bytes().into()),
        ("links", 2u32.to_le_bytes().into()),
        ("owner", 3u32.to_le_bytes().into()),
        ("group", 4u32.to_le_bytes().into()),
        ("size", 5u64.to_le_bytes().into()),
        ("data blocks", 6u64.to_le_bytes().into()),
        ("own:", vec![8; 8]),
        ("change counter", 7u64.to_le_bytes().into()),
        (
            "flags: 1 there is a verifier, 2 there is an access",
            vec![1 + 2 + 4, 0],
        ),
        ("DOS attributes", vec![0x21, 0]),
        ("access time", whole(rec.atime)),
        ("modification time", whole(rec.mtime)),
        ("change time", whole(rec.ctime)),
        ("birth time", whole(rec.btime)),
    ] {
        assert_eq!(field(&bytes, begins), want, "{begins}");
    }
    let directory = InodeRec {
        entries: 9,
        parent: Ino(10),
        ..InodeRec::new(FileKind::Directory, 0, Time::EPOCH)
    };
    let bytes = encoded(&directory);
    assert_eq!(field(&bytes, "size"), 9u64.to_le_bytes());
    assert_eq!(field(&bytes, "own:"), 10u64.to_le_bytes());
    let device = InodeRec {
        rdev: (1, 2),
        ..InodeRec::new(FileKind::Block, 0, Time::EPOCH)
    };
    assert_eq!(field(&encoded(&device), "own:"), [1, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn inodes_in_trees() {
    says("its version is then 3, and the number of the tree (4, not 0) follows the birth time");
    let mut bytes = Vec::new();
    let plain = InodeRec::new(FileKind::Regular, 0, Time::EPOCH);
    InodeRec { tree: 11, ..plain }.encode(&mut bytes);
    assert_eq!(bytes[0], 3);
    assert_eq!(bytes[InodeRec::LEN..], 11u32.to_le_bytes());
}

/// Each edit that the document lists is decoded, and no other.
#[test]
fn log_records() {
    let rows = table(DOC, "## Log records", &["Kind", "Meaning", "Body"]);
    let listed: BTreeSet<u8> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    let head = Edits::new(VolumeId(7), 0).meta;
    says(&format!(
        "version (1; {}), volume number ({}), then",
        head[0],
        head.len() - 1
    ));
    says(&format!(
        "inode record ({}; in a tree {})",
        InodeRec::LEN,
        InodeRec::TREE_LEN
    ));
    assert_eq!(listed, edit::tags());
}
