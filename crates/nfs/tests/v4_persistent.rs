//! Persistent sessions: requests that are sent again after the server has crashed, stopped, and
//! crashed again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;
use support::compound::*;
use support::{Server, X};

const HOST: &str = "10.0.0.1";
const BOTH: (u32, u32) = (3, 0);
/// Name and method of a restart.
type Restart = (&'static str, fn(&mut Server));
/// Bytes of a `change_info4`.
const CHANGE: usize = 20;

/// A request that was answered, and what identifies what it made.
struct AnsweredRequest {
    what: &'static str,
    args: X,
    made: Vec<Vec<u8>>,
}

/// Takes results apart to their end: the handles, and the values of attributes that do not change.
fn taken(mut results: Results) -> Vec<Vec<u8>> {
    assert_eq!(results.status, OK);
    results.sequence();
    let mut made = Vec::new();
    for _ in 1..results.count {
        let operation = results.r.u();
        let r = &mut results.r;
        assert_eq!(r.u(), OK, "operation {operation}");
        let bitmap = |r: &mut support::R| {
            let words = r.u() as usize;
            r.raw(4 * words)
        };
        match operation {
            22 | 32 => {}
            9 => {
                bitmap(r);
                made.push(r.o());
            }
            10 => made.push(r.o()),
            6 => {
                r.raw(CHANGE);
                bitmap(r);
            }
            11 | 28 | 73 | 75 => drop(r.raw(CHANGE)),
            29 => drop(r.raw(2 * CHANGE)),
            34 => drop(bitmap(r)),
            18 => {
                r.raw(16 + CHANGE);
                assert_eq!(r.u() & !0x20, 0xc, "flags of an OPEN");
                bitmap(r);
                assert_eq!(r.u(), 0, "a delegation");
            }
            other => panic!("operation {other}"),
        }
    }
    results.r.end();
    made
}

/// `fattr4` with a mode.
fn mode(x: X, mode: u32) -> X {
    bitmap(x, &[33]).o(&mode.to_be_bytes())
}

/// CREATE of a directory.
fn mkdir(ops: Ops, name: &[u8]) -> Ops {
    ops.op(6, mode(X::new().u(2).o(name), 0o755))
}

fn setattr(ops: Ops, bits: u32) -> Ops {
    ops.op(34, mode(X::new().raw(&[0; 16]), bits))
}

/// A request for each operation that must not be carried out twice.
fn requests(c: &Client<'_>) -> Vec<AnsweredRequest> {
    let root = c.volume();
    let (kept, _) = c.open(b"kept", b"o", BOTH);
    for name in ["removed", "renamed", "replaced", "cut"] {
        c.open(name.as_bytes(), b"o", BOTH);
    }
    let at = || Ops::new().fh(&root);
    let xattr = |ops: Ops| ops.op(73, X::new().u(1).o(b"new").o(b"value"));
    let symlink = X::new().u(5).o(b"target").o(b"symlink");
    let cut = X::new().u(0).u(3).u(0).h(0).o(b"o").u(1).u(0);
    let cut = bitmap(cut, &[4]).o(&[0; 8]).u(0).o(b"cut");
    let all = [
        (
            "OPEN",
            at().open(b"guarded", b"o", BOTH, Some(1))
                .getfh()
                .getattr(&[1, 20]),
        ),
        ("OPEN that cuts", at().op(18, cut).getfh().getattr(&[4])),
        ("CREATE", mkdir(at(), b"dir").getfh().getattr(&[1, 20])),
        (
            "CREATE of a link",
            at().op(6, mode(symlink, 0o777)).getfh().getattr(&[20]),
        ),
        ("REMOVE", at().remove(b"removed")),
        (
            "RENAME",
            at().save()
                .fh(&root)
                .op(29, X::new().o(b"renamed").o(b"replaced")),
        ),
        (
            "LINK",
            Ops::new()
                .fh(&kept)
                .save()
                .fh(&root)
                .op(11, X::new().o(b"linked")),
        ),
        (
            "SETATTR",
            setattr(Ops::new().fh(&kept), 0o600).getattr(&[33]),
        ),
        ("SETXATTR", xattr(Ops::new().fh(&kept))),
        (
            "two operations",
            mkdir(mkdir(at(), b"outer"), b"inner").getfh(),
        ),
    ];
    let sent = all.into_iter().map(|(what, ops)| {
        let args = c.next_args(&ops, true);
        let made = taken(c.send(&args));
        AnsweredRequest { what, args, made }
    });
    sent.collect()
}

#[test]
fn a_request_of_before_a_crash_is_not_carried_out_again() {
    let mut s = Server::new();
    let (requests, failed, never, root) = {
        let c = Client::new(&s, HOST, b"client");
        let requests = requests(&c);
        let root = c.volume();
        let failed = c.next_args(&Ops::new().fh(&root).remove(b"removed"), true);
        assert_eq!(c.send(&failed).status, NOENT);
        // Its connection is lost before it reaches the server.
        let never = c.next_args(&Ops::new().fh(&root).remove(b"kept"), true);
        (requests, failed, never, root)
    };
    s.engine.wait_durable(s.last_lsn.get()).unwrap();
    let restarts: [Restart; 3] = [
        ("after a crash", Server::crash),
        ("after a stop", Server::cold_start),
        ("after a stop and a crash", Server::crash),
    ];
    for (when, restart) in restarts {
        restart(&mut s);
        for (index, sent) in requests.iter().enumerate() {
            let again = taken(send(&s, HOST, &sent.args));
            assert_eq!(again, sent.made, "{} {when}", sent.what);
            // Another request under the same number is none of before.
            let mut other = sent.args.clone();
            let at = other.0.len() - 1;
            other.0[at] ^= 1;
            assert_eq!(send(&s, HOST, &other).status, BADSESSION, "{index} {when}");
        }
        assert_eq!(send(&s, HOST, &failed).status, BADSESSION, "{when}");
        assert_eq!(send(&s, HOST, &never).status, BADSESSION, "{when}");
    }
    // Sent again over a new session, a request is a new one.
    let c = Client::new(&s, HOST, b"client");
    let at = || Ops::new().fh(&root);
    assert_eq!(c.status(&at().remove(b"removed")), NOENT);
    assert_eq!(c.status(&at().lookup(b"renamed")), NOENT);
    assert_eq!(c.status(&mkdir(at(), b"dir")), EXIST);
    assert_eq!(c.status(&at().remove(b"kept")), OK);
    // Clients have ten minutes.
    s.clock.advance(Duration::from_secs(601));
    s.service.tick();
    assert_eq!(send(&s, HOST, &requests[0].args).status, BADSESSION);
}

#[test]
fn what_was_open_before_a_crash_is_claimed_after_a_retransmission() {
    let mut s = Server::new();
    let args = {
        let c = Client::new(&s, HOST, b"client");
        let root = c.volume();
        let open = Ops::new().fh(&root).open(b"f", b"o", BOTH, Some(1));
        let args = c.next_args(&open.getfh(), true);
        assert_eq!(c.send(&args).status, OK);
        args
    };
    s.engine.wait_durable(s.last_lsn.get()).unwrap();
    s.vfs.claims.release_all(weir_vfs::claims::ServiceId(1));
    s.crash();
    let mut r = send(&s, HOST, &args);
    let sequence = r.ok(53);
    sequence.raw(16 + 4 * 4);
    assert_eq!(sequence.u(), 0x100, "it is to claim what it had");
    r.ok(22);
    let state = r.opened();
    let file = r.handle();
    let c = Client::reclaiming(&s, HOST, b"client", 1);
    let write = |state: &[u8]| Ops::new().fh(&file).write(state, 0, b"x");
    assert_eq!(c.status(&write(&state)), BAD_STATEID);
    let again = Ops::new().fh(&file).open_again(b"o", BOTH);
    let claimed = c.run(&again).tail_open();
    assert_eq!(c.status(&Ops::new().op(58, X::new().u(0))), OK);
    assert_eq!(c.status(&write(&claimed)), OK);
}

/// As one that another client denies the file that it has just made.
#[test]
fn an_open_that_made_a_file_and_failed_fails_after_a_crash() {
    let mut s = Server::new();
    let (failed, made) = {
        let c = Client::new(&s, HOST, b"client");
        let root = c.volume();
        let open = |name: &[u8]| Ops::new().fh(&root).open(name, b"o", BOTH, Some(1));
        assert_eq!(c.status(&open(b"first")), OK, "it is recorded");
        let budget = s.vfs.claims.budget();
        let memory = budget.try_reserve(budget.available()).unwrap();
        let failed = c.next_args(&open(b"f"), false);
        assert_eq!(c.send(&failed).status, DELAY);
        assert_eq!(c.status(&Ops::new().fh(&root).lookup(b"f")), OK, "made");
        drop(memory);
        let made = c.next_args(&open(b"g"), true);
        assert_eq!(c.send(&made).status, OK);
        (failed, made)
    };
    s.engine.wait_durable(s.last_lsn.get()).unwrap();
    let restarts: [Restart; 2] = [
        ("from the log", Server::crash),
        ("from a checkpoint", Server::cold_start),
    ];
    for (when, restart) in restarts {
        restart(&mut s);
        assert_eq!(send(&s, HOST, &failed).status, DELAY, "{when}");
        assert_eq!(send(&s, HOST, &made).status, OK, "{when}");
    }
}

#[test]
fn a_session_that_is_not_persistent_ends_with_the_server() {
    let mut s = Server::new();
    let (persistent, other) = {
        let mut c = Client::new(&s, HOST, b"client");
        let root = c.volume();
        let mkdir = |name: &[u8]| mkdir(Ops::new().fh(&root), name);
        let persistent = c.next_args(&mkdir(b"a"), true);
        assert_eq!(c.send(&persistent).status, OK);
        let mut plain = creation(c.id, 2, 4);
        plain.0[15] = 2;
        let mut r = c.alone(43, plain);
        let r = r.ok(43);
        c.session = r.raw(16);
        assert_eq!((r.u(), r.u()), (2, 2), "a back channel alone");
        c.slots.borrow_mut()[0] = 0;
        let other = c.next_args(&mkdir(b"b"), true);
        assert_eq!(c.send(&other).status, OK);
        (persistent, other)
    };
    s.engine.wait_durable(s.last_lsn.get()).unwrap();
    s.crash();
    assert_eq!(send(&s, HOST, &persistent).status, OK);
    assert_eq!(send(&s, HOST, &other).status, BADSESSION);
}
