//! Targets of what clients send: records, RPC heads, arguments.

use weir_base::limits::net::{RECORD_GROWTH, RECORD_HEAD, SMALL_RECORD};
use weir_conn::{Admit, Flow, Inbox, Receiver, RecordMarks};
use weir_nfs::rpc::{self, Message};
use weir_testclient::rpc::call;
use weir_testclient::{Caller, Out};

use super::Target;
use crate::model::{CreateMode, Data, Kind, Name, Op, Set, SetTo, Slot, Stable};
use crate::nfs::client::{call_of, readdir};

/// The targets of this module.
pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "rpc_record",
            run: record,
            seeds: record_seeds,
        },
        Target {
            name: "rpc_message",
            run: message,
            seeds: calls,
        },
        Target {
            name: "rpc_sealed",
            run: sealed,
            seeds: sealed_seeds,
        },
        Target {
            name: "arguments",
            run: arguments,
            seeds: argument_seeds,
        },
        Target {
            name: "compound",
            run: super::compound::compound,
            seeds: super::compound::seeds,
        },
        Target {
            name: "service",
            run: super::service::service,
            seeds: super::service::seeds,
        },
    ]
}

/// A call under a security context (RFC 2203): the head, the credential, and what protects the
/// arguments.
fn sealed(input: &[u8]) {
    let _ = weir_nfs::decode_sealed(input);
}

/// Calls of each purpose in each service.
fn sealed_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for procedure in 0..4 {
        for service in 1..4 {
            let mut out = Out::default();
            for v in [7, 0, 2, weir_nfs::NFS_PROGRAM, 3, 1, rpc::RPCSEC_GSS] {
                out.u32(v);
            }
            let mut credential = Out::default();
            for v in [1, procedure, 9, service] {
                credential.u32(v);
            }
            credential.opaque(&[5; 16]);
            out.opaque(&credential.0);
            out.u32(rpc::RPCSEC_GSS);
            out.opaque(&[1; 28]);
            // The number of the credential, then arguments; with integrity a checksum.
            let body = [&9u32.to_be_bytes()[..], &[3; 36]].concat();
            match (procedure, service) {
                (0 | 3, 1) => {}
                (0 | 3, 2) => {
                    out.opaque(&body);
                    out.opaque(&[1; 28]);
                }
                _ => {
                    out.opaque(&body);
                }
            }
            assert!(
                weir_nfs::decode_sealed(&out.0),
                "seed {procedure} {service}"
            );
            seeds.push(out.0);
        }
    }
    seeds
}

/// Programs by the first byte of the input, with the versions served.
const PROGRAMS: [(u32, u32); 5] = [
    (weir_nfs::NFS_PROGRAM, 3),
    (weir_nfs::MOUNT_PROGRAM, 3),
    (weir_nfs::NLM_PROGRAM, 4),
    (weir_nfs::NSM_PROGRAM, 1),
    (weir_nfs::RQUOTA_PROGRAM, 2),
];

/// The input is a byte for the program, one for the procedure, then the arguments.
fn arguments(input: &[u8]) {
    if let Some((&[program, procedure], args)) = input.split_first_chunk::<2>() {
        let (program, version) = PROGRAMS[usize::from(program) % PROGRAMS.len()];
        let _ = weir_nfs::decode_any(program, version, u32::from(procedure) % 32, args);
    }
}

fn argument_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for message in calls() {
        if let Message::Call(call) = rpc::message(&message) {
            let program = PROGRAMS
                .iter()
                .position(|(program, _)| *program == call.program);
            let decoded =
                weir_nfs::decode_any(call.program, call.version, call.procedure, call.args);
            assert_eq!(
                decoded,
                Some(true),
                "seed for program {} procedure {}",
                call.program,
                call.procedure
            );
            let mut seed = vec![program.unwrap_or(0) as u8, call.procedure as u8];
            seed.extend_from_slice(call.args);
            seeds.push(seed);
        }
    }
    seeds
}

/// Largest record that the target takes.
const LIMIT: usize = 1 << 16;

/// The first byte chooses how the stream is cut into reads; records must not depend on it.
fn record(input: &[u8]) {
    let Some((&cut, stream)) = input.split_first() else {
        return;
    };
    let whole = assemble(stream, stream.len().max(1));
    let pieces = assemble(stream, usize::from(cut) + 1);
    assert_eq!(whole, pieces, "records depend on how the stream was cut");
}

/// Takes every record that the assembler completes.
#[derive(Default, PartialEq, Eq, Debug)]
struct Records {
    whole: Vec<Vec<u8>>,
    broken: bool,
}

impl Receiver for Records {
    fn admit(&mut self, head: &[u8], bytes: usize) -> Admit {
        assert!(head.len() >= RECORD_HEAD && bytes > SMALL_RECORD && bytes <= LIMIT);
        Admit::Take
    }

    fn record(&mut self, message: &[u8]) -> Flow {
        assert!(message.len() <= LIMIT);
        self.whole.push(message.to_vec());
        Flow::Continue
    }

    fn skipped(&mut self) -> Flow {
        unreachable!("all are taken")
    }
}

/// The records of `stream`, read `step` bytes at a time.
fn assemble(stream: &[u8], step: usize) -> Records {
    let mut inbox: Inbox<RecordMarks> = Inbox::new(LIMIT);
    let mut records = Records::default();
    let mut arrived = 0;
    for piece in stream.chunks(step) {
        arrived += piece.len();
        match inbox.accept(piece, &mut records) {
            Ok(used) => assert_eq!(used, piece.len()),
            Err(_) => {
                records.broken = true;
                break;
            }
        }
        assert!(inbox.held() <= (arrived * RECORD_GROWTH).clamp(RECORD_HEAD, LIMIT));
    }
    records
}

fn record_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![
        3, 0x80, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 2, 5, 6, 0x80, 0, 0, 1, 7,
    ]];
    for message in calls().into_iter().take(6) {
        let mut stream = vec![40];
        for (index, part) in message.chunks(message.len().div_ceil(3)).enumerate() {
            let last = if index == 2 { 1 << 31 } else { 0 };
            stream.extend_from_slice(&(part.len() as u32 | last).to_be_bytes());
            stream.extend_from_slice(part);
        }
        seeds.push(stream);
    }
    seeds
}

fn message(input: &[u8]) {
    match rpc::message(input) {
        Message::Call(call) => {
            let _ = call.credential();
            let _ = call.stable_cred();
            assert!(call.args.len() <= input.len());
        }
        Message::Reply(_, body) => {
            let _ = rpc::accepted_results(body);
        }
        Message::Refuse(xid, why) => {
            let mut out = Vec::new();
            rpc::put_refusal(&mut out, xid, why);
            assert!(out.len() % 4 == 0);
        }
        Message::Nonsense => {}
    }
}

/// One operation of every kind.
#[must_use]
pub fn every_op() -> Vec<Op> {
    let set = Set {
        mode: Some(0o640),
        uid: Some(1),
        gid: Some(2),
        size: Some(7000),
        atime: SetTo::Server,
        mtime: SetTo::Client(weir_base::Time {
            secs: 1_600_000_000,
            nanos: 999_999_999,
        }),
    };
    let dir = Slot(0);
    let object = Slot(1);
    let name = |name: &str| Name::from(name);
    let mut list = vec![
        Op::Getattr { object },
        Op::Lookup {
            dir,
            name: name("file"),
        },
        Op::Readlink { object: Slot(2) },
        Op::Read {
            object,
            offset: 100,
            len: 5000,
        },
        Op::Commit {
            object,
            offset: 0,
            len: 0,
        },
        Op::Mkdir {
            dir,
            name: name("d"),
            set,
        },
        Op::Symlink {
            dir,
            name: name("s"),
            target: name("../somewhere/else"),
            set,
        },
        Op::Remove {
            dir,
            name: name("gone"),
        },
        Op::Rmdir {
            dir,
            name: name("d"),
        },
        Op::Rename {
            from_dir: dir,
            from: name("from"),
            to_dir: dir,
            to: name("to"),
        },
        Op::Link {
            object,
            dir,
            name: name("hard"),
        },
    ];
    for guard in [crate::model::Guard::None, crate::model::Guard::Right] {
        list.push(Op::Setattr { object, set, guard });
    }
    for stable in [Stable::Unstable, Stable::Data, Stable::File] {
        list.push(Op::Write {
            object,
            offset: 4000,
            data: Data {
                pattern: 5,
                len: 301,
            },
            stable,
        });
    }
    for how in [
        CreateMode::Unchecked,
        CreateMode::Guarded,
        CreateMode::Exclusive([3; 8]),
    ] {
        list.push(Op::Create {
            dir,
            name: name("new"),
            how,
            set,
        });
    }
    for kind in [Kind::Fifo, Kind::Socket, Kind::Char, Kind::Block] {
        list.push(Op::Mknod {
            dir,
            name: name("node"),
            kind,
            rdev: (8, 1),
            set,
        });
    }
    list
}

/// A valid call of every procedure of every program, with plausible handles.
#[must_use]
pub fn calls() -> Vec<Vec<u8>> {
    let handle = |slot: Slot| vec![slot.0 as u8; 24];
    calls_on(&handle)
}

/// Returns [`calls`] on objects of the caller's choice.
#[must_use]
pub fn calls_on(handle: &dyn Fn(Slot) -> Vec<u8>) -> Vec<Vec<u8>> {
    let caller = Caller {
        uid: 1000,
        gid: 100,
        gids: vec![4, 24, 27],
        ..Caller::default()
    };
    let mut list = Vec::new();
    for op in every_op() {
        list.push(call_of(&op, handle, None).message(7, &caller));
    }
    for plus in [false, true] {
        let page = readdir(handle(Slot(0)), 0, [0; 8], 100, plus);
        list.push(page.message(8, &caller));
    }
    for procedure in [18, 19, 20] {
        let mut message = call(9, weir_nfs::NFS_PROGRAM, 3, procedure, &caller);
        message.opaque(&handle(Slot(0)));
        list.push(message.0);
    }
    let mut access = call(9, weir_nfs::NFS_PROGRAM, 3, 4, &caller);
    access.opaque(&handle(Slot(1))).u32(0x3f);
    list.push(access.0);
    for procedure in 0..=5 {
        let mut message = call(10, weir_nfs::MOUNT_PROGRAM, 3, procedure, &caller);
        if procedure == 1 || procedure == 3 {
            message.opaque(b"/vol1");
        }
        list.push(message.0);
    }
    list.extend(lock_calls(handle, &caller));
    list
}

/// Calls of NLM version 4 (X/Open XNFS; RFC 1813 Appendix II) and of NSM.
fn lock_calls(handle: &dyn Fn(Slot) -> Vec<u8>, caller: &Caller) -> Vec<Vec<u8>> {
    let mut list = Vec::new();
    let lock = |out: &mut Out| {
        out.opaque(b"client.example").opaque(&handle(Slot(1)));
        out.opaque(b"owner-1").u32(42).u64(10).u64(100);
    };
    // (procedure, block and exclusive flags, reclaim and state) of the calls with a lock in them.
    for (procedure, flags, tail) in [
        (1, 1, 0),
        (2, 2, 2),
        (3, 2, 0),
        (4, 0, 0),
        (6, 1, 0),
        (7, 2, 2),
        (8, 2, 0),
        (9, 0, 0),
        (22, 2, 2),
    ] {
        let mut out = call(11, weir_nfs::NLM_PROGRAM, 4, procedure, caller);
        out.opaque(b"cookie");
        for _ in 0..flags {
            out.bool(true);
        }
        lock(&mut out);
        for _ in 0..tail {
            out.u32(0);
        }
        list.push(out.0);
    }
    for procedure in [20, 21] {
        let mut out = call(12, weir_nfs::NLM_PROGRAM, 4, procedure, caller);
        out.opaque(b"cookie")
            .opaque(b"client.example")
            .opaque(&handle(Slot(1)));
        out.opaque(b"owner-1").u32(0).u32(0).bool(false);
        list.push(out.0);
    }
    let mut free_all = call(13, weir_nfs::NLM_PROGRAM, 4, 23, caller);
    free_all.opaque(b"client.example").u32(3);
    list.push(free_all.0);
    let mut quota = call(15, weir_nfs::RQUOTA_PROGRAM, 2, 1, caller);
    quota.opaque(b"/vol1").u32(1).u32(1000);
    list.push(quota.0);
    for procedure in [1, 2, 3, 6] {
        let mut out = call(14, weir_nfs::NSM_PROGRAM, 1, procedure, caller);
        out.opaque(b"client.example");
        match procedure {
            2 | 3 => {
                out.opaque(b"localhost").u32(100_021).u32(4).u32(16);
                out.fixed(&[9; 16][..if procedure == 2 { 16 } else { 0 }]);
            }
            6 => {
                out.u32(5);
            }
            _ => {}
        }
        list.push(out.0);
    }
    list
}
