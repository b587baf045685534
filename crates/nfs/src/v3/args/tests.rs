//! Arguments of each procedure against bytes written by hand, and against
//! every way of cutting them short.

use super::*;
use proptest::prelude::*;
use weir_vfs::volume::SetTime;

/// Bytes from groups of hexadecimal digits.
fn x(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

const FH: &str = "00000004 deadbeef";
const NAME: &str = "00000005 68656c6c 6f000000";
/// mode 0644, no uid, gid 9, size 2^32 + 1, atime of the server, mtime 3.000000004.
const SATTR: &str = "00000001 000001a4 00000000 00000001 00000009 \
                     00000001 00000001 00000001 00000001 00000002 00000003 00000004";

fn sattr_value() -> SetAttr {
    SetAttr {
        mode: Some(0o644),
        uid: None,
        gid: Some(9),
        size: Some((1 << 32) + 1),
        atime: SetTime::Server,
        mtime: SetTime::Client(Time { secs: 3, nanos: 4 }),
        ..SetAttr::default()
    }
}

/// Returns each procedure's encoding and its meaning.
fn golden() -> Vec<(u32, Vec<u8>, Args<'static>)> {
    let fh: &[u8] = &[0xde, 0xad, 0xbe, 0xef];
    let at = DirOp {
        dir: fh,
        name: b"hello",
    };
    let g = |parts: &[&str]| x(&parts.concat());
    let none = "00000000 00000000 00000000 00000000 00000000 00000000";
    let dir = |dircount| ReadDirArgs {
        dir: fh,
        cookie: 5,
        verifier: *b"verifier",
        dircount,
        maxcount: 4096,
    };
    let cookie = "00000000 00000005 76657269 66696572";
    let mknod = |kind, attrs, rdev| {
        Args::Mknod(MknodArgs {
            at,
            kind,
            attrs,
            rdev,
        })
    };
    let empty = SetAttr::default();
    vec![
        (0, vec![], Args::Null),
        (1, g(&[FH]), Args::GetAttr(fh)),
        (
            2,
            g(&[FH, SATTR, "00000001 00000007 00000008"]),
            Args::SetAttr(SetAttrArgs {
                object: fh,
                new: sattr_value(),
                guard: Some(Time { secs: 7, nanos: 8 }),
            }),
        ),
        (
            2,
            g(&[FH, none, "00000000"]),
            Args::SetAttr(SetAttrArgs {
                object: fh,
                new: empty,
                guard: None,
            }),
        ),
        (3, g(&[FH, NAME]), Args::Lookup(at)),
        (4, g(&[FH, "0000003f"]), Args::Access(fh, 0x3f)),
        (5, g(&[FH]), Args::ReadLink(fh)),
        (
            6,
            g(&[FH, "00000001 00000002 00001000"]),
            Args::Read(RangeArgs {
                file: fh,
                offset: (1 << 32) + 2,
                count: 4096,
            }),
        ),
        (
            7,
            g(&[FH, "00000000 00000009 00000003 00000002 00000003 61626300"]),
            Args::Write(WriteArgs {
                file: fh,
                offset: 9,
                count: 3,
                stable: Stability::FileSync,
                data: b"abc",
            }),
        ),
        (
            8,
            g(&[FH, NAME, "00000000", SATTR]),
            Args::Create(CreateArgs {
                at,
                how: CreateHow3::Unchecked(sattr_value()),
            }),
        ),
        (
            8,
            g(&[FH, NAME, "00000001", none]),
            Args::Create(CreateArgs {
                at,
                how: CreateHow3::Guarded(empty),
            }),
        ),
        (
            8,
            g(&[FH, NAME, "00000002 76657269 66696572"]),
            Args::Create(CreateArgs {
                at,
                how: CreateHow3::Exclusive(*b"verifier"),
            }),
        ),
        (9, g(&[FH, NAME, SATTR]), Args::Mkdir(at, sattr_value())),
        (
            10,
            g(&[FH, NAME, none, "00000002 74 6f 0000"]),
            Args::Symlink(SymlinkArgs {
                at,
                attrs: empty,
                target: b"to",
            }),
        ),
        (
            11,
            g(&[FH, NAME, "00000001"]),
            mknod(FileKind::Regular, empty, (0, 0)),
        ),
        (
            11,
            g(&[FH, NAME, "00000003", none, "00000008 00000001"]),
            mknod(FileKind::Block, empty, (8, 1)),
        ),
        (
            11,
            g(&[FH, NAME, "00000004", SATTR, "00000001 00000003"]),
            mknod(FileKind::Char, sattr_value(), (1, 3)),
        ),
        (
            11,
            g(&[FH, NAME, "00000006", none]),
            mknod(FileKind::Socket, empty, (0, 0)),
        ),
        (
            11,
            g(&[FH, NAME, "00000007", SATTR]),
            mknod(FileKind::Fifo, sattr_value(), (0, 0)),
        ),
        (12, g(&[FH, NAME]), Args::Remove(at)),
        (13, g(&[FH, NAME]), Args::Rmdir(at)),
        (14, g(&[FH, NAME, FH, NAME]), Args::Rename(at, at)),
        (15, g(&[FH, FH, NAME]), Args::Link(fh, at)),
        (16, g(&[FH, cookie, "00001000"]), Args::ReadDir(dir(None))),
        (
            17,
            g(&[FH, cookie, "00000200 00001000"]),
            Args::ReadDirPlus(dir(Some(512))),
        ),
        (18, g(&[FH]), Args::FsStat(fh)),
        (19, g(&[FH]), Args::FsInfo(fh)),
        (20, g(&[FH]), Args::PathConf(fh)),
        (
            21,
            g(&[FH, "00000000 00000001 00000002"]),
            Args::Commit(RangeArgs {
                file: fh,
                offset: 1,
                count: 2,
            }),
        ),
    ]
}

#[test]
fn golden_arguments() {
    for (procedure, bytes, want) in golden() {
        assert_eq!(
            decode(procedure, &bytes),
            Some(Ok(want)),
            "procedure {procedure}"
        );
    }
    assert_eq!(decode(22, &[]), None);
    assert_eq!(decode(u32::MAX, &[]), None);
}

#[test]
fn arguments_cut_anywhere_are_refused() {
    for (procedure, bytes, _) in golden() {
        for cut in 0..bytes.len() {
            let got = decode(procedure, &bytes[..cut]);
            assert!(
                matches!(got, Some(Err(_))),
                "procedure {procedure} cut at {cut}"
            );
        }
    }
}

#[test]
fn values_outside_their_types_are_refused() {
    let bad = |procedure: u32, parts: &[&str]| {
        decode(procedure, &x(&parts.concat())).unwrap().unwrap_err()
    };
    let handle = format!("00000041 {}", "00".repeat(68));
    assert_eq!(bad(1, &[&handle]), XdrError::TooLong);
    assert_eq!(bad(2, &[FH, "00000002"]), XdrError::BadValue);
    assert_eq!(
        bad(7, &[FH, "00000000 00000000 00000000 00000003 00000000"]),
        XdrError::BadValue
    );
    assert_eq!(bad(8, &[FH, NAME, "00000003"]), XdrError::BadValue);
    assert_eq!(bad(11, &[FH, NAME, "00000000"]), XdrError::BadValue);
    assert_eq!(bad(11, &[FH, NAME, "00000008"]), XdrError::BadValue);
    assert_eq!(bad(11, &[FH, NAME, "00000101"]), XdrError::BadValue);
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(procedure in 0u32..24, bytes: Vec<u8>) {
        let _ = decode(procedure, &bytes);
    }

    #[test]
    fn damaged_arguments_decode_or_are_refused(which in 0usize..28, at: usize, to: u8) {
        let all = golden();
        let (procedure, mut bytes, _) = all[which % all.len()].clone();
        if !bytes.is_empty() {
            let at = at % bytes.len();
            bytes[at] = to;
        }
        let _ = decode(procedure, &bytes);
    }
}

/// A WRITE that is kept without its data decodes to the same but for the bytes.
#[test]
fn a_write_is_known_without_its_data() {
    let mut bytes = x(FH);
    bytes.extend(x("00000000 00001000 00000003 00000002"));
    let before = bytes.len();
    bytes.extend(x("00000003 61626300"));
    assert_eq!(before_data(&bytes), Some(before));
    let Ok(Args::Write(whole)) = decode(7, &bytes).unwrap() else {
        panic!("a WRITE")
    };
    let Ok(Args::Write(kept)) = decode_without_data(&bytes[..before]) else {
        panic!("a WRITE")
    };
    assert_eq!(kept.data.len(), 3);
    assert_eq!(
        kept,
        WriteArgs {
            data: kept.data,
            ..whole
        }
    );
    assert_eq!(before_data(&bytes[..before - 1]), None);
    assert!(decode_without_data(&bytes[..before - 1]).is_err());
}
