//! Target of NFSv4's COMPOUND: a tag, a minor version, and any number of operations with their
//! arguments.

use weir_testclient::Out;

/// Whatever comes, it decodes or it does not.
pub(super) fn compound(input: &[u8]) {
    let _ = weir_nfs::decode_any(weir_nfs::NFS_PROGRAM, 4, weir_nfs::v4::COMPOUND, input);
}

/// Puts the arguments of an operation.
type Put = fn(&mut Out) -> &mut Out;

fn stateid(o: &mut Out) -> &mut Out {
    o.u32(1).fixed(&[7; 12])
}

/// The mode and the size.
fn attrs(o: &mut Out) -> &mut Out {
    let values = [&[0; 6][..], &[1, 0], &[0, 0, 1, 0xa4]].concat();
    o.u32(2).u32(1 << 4).u32(1 << 1).opaque(&values)
}

fn channels(o: &mut Out) -> &mut Out {
    for _ in 0..2 {
        for value in [0, 1 << 20, 1 << 20, 4096, 8, 64, 1, 5] {
            o.u32(value);
        }
    }
    o
}

/// `callback_sec_parms4`: none, AUTH_SYS, RPCSEC_GSS.
fn security(o: &mut Out) -> &mut Out {
    o.u32(3).u32(0);
    o.u32(1).u32(9).opaque(b"host").u32(0).u32(0).u32(1).u32(5);
    o.u32(6).u32(1).opaque(b"one").opaque(b"two")
}

fn open(o: &mut Out) -> &mut Out {
    o.u32(0).u32(3).u32(0).u64(5).opaque(b"owner")
}

fn range(o: &mut Out) -> &mut Out {
    stateid(o).u64(4096).u64(8192)
}

/// Operations by number, in all their forms.
const OPERATIONS: &[(u32, Put)] = &[
    (3, |o| o.u32(0x3f)),
    (4, |o| stateid(o.u32(0))),
    (5, |o| o.u64(0).u32(0)),
    (6, |o| attrs(o.u32(2).opaque(b"dir"))),
    (6, |o| attrs(o.u32(5).opaque(b"target").opaque(b"link"))),
    (6, |o| attrs(o.u32(3).u32(8).u32(1).opaque(b"node"))),
    (8, stateid),
    (9, |o| o.u32(2).u32(0x18).u32(0x30)),
    (10, |o| o),
    (11, |o| o.opaque(b"hard")),
    (12, |o| {
        o.u32(4).bool(false).u64(0).u64(u64::MAX).bool(true).u32(0);
        stateid(o).u32(0).u64(5).opaque(b"process")
    }),
    (12, |o| {
        o.u32(1).bool(true).u64(0).u64(10).bool(false);
        stateid(o).u32(0)
    }),
    (13, |o| o.u32(2).u64(0).u64(1).u64(5).opaque(b"process")),
    (14, |o| stateid(o.u32(2).u32(0)).u64(0).u64(1)),
    (15, |o| o.opaque(b"name")),
    (16, |o| o),
    (17, attrs),
    (18, |o| open(o).u32(0).u32(0).opaque(b"file")),
    (18, |o| attrs(open(o).u32(1).u32(0)).u32(0).opaque(b"file")),
    (18, |o| {
        open(o).u32(1).u32(2).fixed(&[1; 8]).u32(0).opaque(b"file")
    }),
    (18, |o| {
        attrs(open(o).u32(1).u32(3).fixed(&[1; 8]))
            .u32(0)
            .opaque(b"f")
    }),
    (18, |o| open(o).u32(0).u32(1).u32(2)),
    (18, |o| stateid(open(o).u32(0).u32(2)).opaque(b"file")),
    (18, |o| open(o).u32(0).u32(4)),
    (21, |o| stateid(o).u32(0).u32(1).u32(0)),
    (22, |o| o.opaque(&[2; 32])),
    (24, |o| o),
    (25, |o| stateid(o).u64(0).u32(4096)),
    (26, |o| {
        o.u64(0).fixed(&[0; 8]).u32(512).u32(4096).u32(1).u32(8)
    }),
    (27, |o| o),
    (28, |o| o.opaque(b"gone")),
    (29, |o| o.opaque(b"from").opaque(b"to")),
    (31, |o| o),
    (32, |o| o),
    (33, |o| o.opaque(b"name")),
    (34, |o| attrs(stateid(o))),
    (37, attrs),
    (38, |o| stateid(o).u64(0).u32(2).opaque(b"some data")),
    (40, |o| security(o.u32(0x4000_0000))),
    (41, |o| o.fixed(&[3; 16]).u32(3).bool(false)),
    (42, |o| {
        o.fixed(&[1; 8]).opaque(b"client").u32(0x101).u32(0).u32(1);
        o.opaque(b"kernel.org").opaque(b"Linux").u64(0).u32(0)
    }),
    (42, |o| {
        o.fixed(&[1; 8]).opaque(b"client").u32(0).u32(2);
        o.u32(1).u32(8).u32(0).u32(1).opaque(b"oid").u32(0);
        o.u32(16).u32(2).u32(0)
    }),
    (43, |o| {
        security(channels(o.u64(5).u32(1).u32(2)).u32(0x4000_0000))
    }),
    (44, |o| o.fixed(&[3; 16])),
    (45, stateid),
    (52, |o| o.u32(0)),
    (53, |o| o.fixed(&[3; 16]).u32(1).u32(0).u32(0).bool(true)),
    (55, |o| stateid(stateid(o.u32(2)))),
    (57, |o| o.u64(5)),
    (58, |o| o.bool(false)),
    (59, range),
    (60, |o| {
        stateid(stateid(o)).u64(0).u64(0).u64(100);
        o.bool(true).bool(true).u32(0)
    }),
    (62, range),
    (63, |o| range(o).u32(1).u32(4)),
    (68, |o| stateid(o).u64(0).u32(4096)),
    (69, |o| stateid(o).u64(0).u32(1)),
    (71, |o| stateid(stateid(o)).u64(0).u64(4096).u64(0)),
    (72, |o| o.opaque(b"attribute")),
    (73, |o| o.u32(0).opaque(b"attribute").opaque(b"value")),
    (74, |o| o.u64(0).u32(4096)),
    (75, |o| o.opaque(b"attribute")),
];

fn encode_compound(operations: &[(u32, Put)]) -> Vec<u8> {
    let mut out = Out::default();
    out.opaque(b"tag").u32(2).u32(operations.len() as u32);
    for (number, put) in operations {
        out.u32(*number);
        put(&mut out);
    }
    out.0
}

/// Each operation in a COMPOUND of its own, and all in one.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let one = OPERATIONS.chunks(1).map(encode_compound);
    let all: Vec<Vec<u8>> = one.chain([encode_compound(OPERATIONS)]).collect();
    for (n, seed) in all.iter().enumerate() {
        let program = weir_nfs::NFS_PROGRAM;
        let decoded = weir_nfs::decode_any(program, 4, weir_nfs::v4::COMPOUND, seed);
        assert_eq!(decoded, Some(true), "seed {n}");
    }
    all
}
