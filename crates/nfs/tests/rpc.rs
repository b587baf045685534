//! The RPC layer: calls that cannot be served, and how they are answered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use support::{MOUNT, NFS, NLM, NSM, Server, X};
use weir_nfs::Outcome;

/// A call with everything chosen.
fn call(version: u32, program: (u32, u32), procedure: u32, auth: &X, args: &X) -> Vec<u8> {
    let head = X::new()
        .u(5)
        .u(0)
        .u(version)
        .u(program.0)
        .u(program.1)
        .u(procedure);
    head.raw(&auth.0).raw(&args.0).0
}

fn none() -> X {
    X::new().u(0).u(0).u(0).u(0)
}

fn words(r: &[u8]) -> Vec<u32> {
    r.chunks(4)
        .map(|w| u32::from_be_bytes(w.try_into().unwrap()))
        .collect()
}

#[test]
fn unknown_programs_versions_and_procedures() {
    let s = Server::new();
    let answer =
        |program, procedure| words(&s.send(&call(2, program, procedure, &none(), &X::new())).0);
    for (program, last) in [(NFS, 21), (MOUNT, 5), (NLM, 23), (NSM, 6)] {
        assert_eq!(answer(program, 0), [5, 1, 0, 0, 0, 0], "NULL");
        let low = program.1;
        let high = if program == NFS { 4 } else { low };
        for other in [0, low - 1, high + 1, u32::MAX] {
            assert_eq!(
                answer((program.0, other), 0),
                [5, 1, 0, 0, 0, 2, low, high],
                "PROG_MISMATCH"
            );
        }
        for procedure in [last + 1, u32::MAX] {
            assert_eq!(
                answer(program, procedure),
                [5, 1, 0, 0, 0, 3],
                "PROC_UNAVAIL"
            );
        }
    }
    for gap in 17..20 {
        assert_eq!(answer(NLM, gap), [5, 1, 0, 0, 0, 3]);
    }
    for program in [100_000, 100_227, 0, u32::MAX] {
        assert_eq!(answer((program, 3), 0), [5, 1, 0, 0, 0, 1], "PROG_UNAVAIL");
    }
}

#[test]
fn other_rpc_versions_and_credentials() {
    let s = Server::new();
    let send = |m: Vec<u8>| words(&s.send(&m).0);
    let getattr = X::new().o(&[1; 32]);
    assert_eq!(
        send(call(3, NFS, 1, &none(), &getattr)),
        [5, 1, 1, 0, 2, 2],
        "RPC_MISMATCH"
    );
    let bad_cred = [5, 1, 1, 1, 1];
    let auth = |flavour: u32, body: &[u8]| X::new().u(flavour).o(body).u(0).u(0);
    for a in [
        auth(6, b"rpcsec_gss.."),
        auth(2, b""),
        auth(1, b""),
        auth(1, &X::new().u(0).o(b"h").u(1).u(1).u(17).raw(&[0; 68]).0),
        auth(1, &X::new().u(0).o(b"h").u(1).u(1).u(2).u(3).0),
        auth(1, &X::new().u(0).o(&[b'h'; 256]).u(1).u(1).u(0).0),
    ] {
        assert_eq!(send(call(2, NFS, 1, &a, &getattr)), bad_cred);
    }
    let long = X::new().u(1).o(&[0; 404]).u(0).u(0);
    assert_eq!(send(call(2, NFS, 1, &long, &getattr)), bad_cred);
    // NULL asks no caller for an identity.
    assert_eq!(
        send(call(2, NFS, 0, &auth(6, b"gss."), &X::new())),
        [5, 1, 0, 0, 0, 0]
    );
    let sixteen = auth(1, &X::new().u(0).o(b"h").u(1).u(1).u(16).raw(&[0; 64]).0);
    assert_eq!(
        send(call(2, NFS, 1, &sixteen, &getattr))[..7],
        [5, 1, 0, 0, 0, 0, 10_001]
    );
}

#[test]
fn undecodable_arguments() {
    let s = Server::new();
    let garbage = [5, 1, 0, 0, 0, 4];
    for procedure in 1..=21 {
        assert_eq!(
            words(&s.send(&call(2, NFS, procedure, &none(), &X::new())).0),
            garbage
        );
        let long = X::new().u(65).raw(&[0; 68]);
        assert_eq!(
            words(&s.send(&call(2, NFS, procedure, &none(), &long)).0),
            garbage
        );
    }
    for (program, procedures) in [
        (MOUNT, vec![1, 3]),
        (NLM, (1..=15).chain(20..=23).collect()),
        (NSM, vec![1, 2, 3, 4, 6]),
    ] {
        for p in procedures {
            assert_eq!(
                words(&s.send(&call(2, program, p, &none(), &X::new())).0),
                garbage,
                "{program:?} {p}"
            );
        }
    }
    // A damaged call does not keep its transaction id from being used.
    let root = s.root();
    let good = call(
        2,
        NFS,
        9,
        &none(),
        &X::new().o(&root).o(b"dir").sattr(None, None),
    );
    let r = s.send(&good[..good.len() - 4]);
    assert_eq!(words(&r.0), garbage);
    assert_eq!(
        words(&s.send(&good).0)[6],
        13,
        "run, and refused as nobody's"
    );
}

#[test]
fn what_is_no_call_ends_the_connection() {
    let s = Server::new();
    for m in [
        &b""[..],
        b"abc",
        &[0; 4],
        &[0; 7],
        &[0, 0, 0, 1, 0, 0, 0, 2],
        &[0; 11],
    ] {
        assert!(matches!(s.handle(m), Outcome::Close(_)), "{m:?}");
    }
    assert!(matches!(s.handle(&[0, 0, 0, 1, 0, 0, 0, 1]), Outcome::Drop));
}

#[test]
fn calls_cut_at_every_byte_are_answered_or_end_the_connection() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    let lock = X::new()
        .o(b"c")
        .u(1)
        .u(1)
        .o(b"host")
        .o(&file)
        .o(b"oh")
        .u(1)
        .h(0)
        .h(0)
        .u(0)
        .u(0);
    let calls = [
        s.encode(NFS, 7, &X::new().o(&file).h(0).u(4).u(2).o(b"data")),
        s.encode(
            NFS,
            8,
            &X::new().o(&root).o(b"new").u(0).sattr(Some(0o600), Some(0)),
        ),
        s.encode(NFS, 14, &X::new().o(&root).o(b"file").o(&root).o(b"file2")),
        s.encode(MOUNT, 1, &X::new().o(b"/vol1")),
        s.encode(NLM, 2, &lock),
        s.encode(
            NSM,
            2,
            &X::new().o(b"h").o(b"me").u(1).u(2).u(3).raw(&[0; 16]),
        ),
    ];
    for whole in calls {
        for cut in 0..whole.len() {
            match s.handle(&whole[..cut]) {
                Outcome::Close(_) => assert!(cut < 24, "{cut}"),
                Outcome::Reply(r, None) => {
                    let w = words(&r.message());
                    assert!(w[2] == 1 || w[5] != 0, "served what was cut at {cut}");
                }
                _ => panic!("neither answered nor closed at {cut}"),
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Valid calls with a few bytes changed: each is answered, dropped or ends
    /// the connection, and the server serves the next one.
    #[test]
    fn damaged_calls_do_no_harm(
        edits in proptest::collection::vec((0usize..28, 0usize..400, proptest::prelude::any::<u8>()), 1..200),
    ) {
        let s = Server::new();
        let root = s.root();
        let file = s.create(&root, b"file", 0o644);
        let at = |name: &[u8]| X::new().o(&root).o(name);
        let lock = X::new().o(b"c").u(1).u(1).o(b"host").o(&file).o(b"oh").u(1).h(0).h(0).u(0).u(0);
        let mut calls = vec![
            s.encode(NFS, 1, &X::new().o(&file)),
            s.encode(NFS, 2, &X::new().o(&file).sattr(Some(0o600), Some(9)).u(0)),
            s.encode(NFS, 3, &at(b"file")),
            s.encode(NFS, 4, &X::new().o(&file).u(63)),
            s.encode(NFS, 6, &X::new().o(&file).h(0).u(9000)),
            s.encode(NFS, 7, &X::new().o(&file).h(4096).u(4).u(1).o(b"data")),
            s.encode(NFS, 8, &at(b"new").u(1).sattr(Some(0o600), None)),
            s.encode(NFS, 9, &at(b"dir").sattr(Some(0o700), None)),
            s.encode(NFS, 10, &at(b"sym").sattr(None, None).o(b"to")),
            s.encode(NFS, 11, &at(b"dev").u(4).sattr(None, None).u(1).u(2)),
            s.encode(NFS, 14, &at(b"dir").o(&root).o(b"dir2")),
            s.encode(NFS, 15, &X::new().o(&file).o(&root).o(b"hard")),
            s.encode(NFS, 17, &X::new().o(&root).h(0).h(0).u(4096).u(8192)),
            s.encode(NFS, 21, &X::new().o(&file).h(0).u(0)),
            s.encode(MOUNT, 1, &X::new().o(b"/vol1")),
            s.encode(MOUNT, 2, &X::new()),
        ];
        for p in [2, 3, 4, 7, 20, 22, 23] {
            calls.push(s.encode(NLM, p, &lock));
        }
        for p in [1, 2, 3, 6] {
            calls.push(s.encode(NSM, p, &X::new().o(b"h").o(b"me").u(1).u(2).u(3).raw(&[0; 16])));
        }
        for (which, at, to) in edits {
            let which = which % calls.len();
            let call = &mut calls[which];
            let at = at % call.len();
            call[at] = to;
            if let Outcome::Reply(r, _) = s.handle(call) {
                let m = r.message();
                proptest::prop_assert!(m.len() % 4 == 0 && m[..4] == call[..4] && m[4..8] == [0, 0, 0, 1]);
            }
        }
        s.getattr(&root);
    }
}
