//! Cost of an operation in instructions of the server, over NFSv3 and over NFSv4.1. Run it under
//! `valgrind --tool=callgrind --toggle-collect='weir_nfs::service::Service::handle*'`, which counts
//! only the work of the server for a call, and gives the same count whatever else the machine does.
//!
//! `WEIR_LOAD` is one of [`LOADS`] behind `3:` or `4:`, `WEIR_COUNT` the number of operations. With
//! `WEIR_QUOTAS` the user, the group and all others have limits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use support::callbacks::opened;
use support::compound::*;
use support::{NFS, R, Server, X, block_on};
use weir_nfs::{Arrival, ConnInfo, Outcome};
use weir_volume::{QuotaId, QuotaLimit, QuotaRules, QuotaState};

/// The loads that there are.
const LOADS: [&str; 8] = [
    "getattr", "access", "lookup", "read", "write", "create", "remove", "commit",
];

/// Attributes that Linux asks of every object, and those it asks after a change.
const ALL: [u32; 15] = [1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55];
const AFTER: [u32; 4] = [3, 4, 52, 53];
/// OPEN4_SHARE_ACCESS_BOTH, with OPEN4_SHARE_ACCESS_WANT_NO_DELEG.
const BOTH: u32 = 3 | 0x400;
const FILES: usize = 512;
/// The user, and its group.
const USER: u32 = 1000;

struct Bench<'s> {
    c: &'s Client<'s>,
    conn: ConnInfo,
}

impl Bench<'_> {
    fn send(&self, program: (u32, u32), procedure: u32, args: &X) -> R {
        let s = self.c.s;
        let record = s.encode(program, procedure, args);
        let arrival = Arrival {
            time: s.current_time(),
            monotonic: Some(1),
            reads: usize::MAX,
        };
        let handled = match s.service.handle(&self.conn, &record, arrival) {
            Outcome::Later(f) | Outcome::Held(f) | Outcome::Parked(f, ..) => block_on(f),
            now => now,
        };
        let Outcome::Reply(reply, _) = handled else {
            panic!("no reply");
        };
        let mut r = R(reply.message(), 24);
        assert_eq!(r.u(), 0, "status");
        r
    }

    fn v3(&self, procedure: u32, args: &X) -> R {
        self.send(NFS, procedure, args)
    }

    fn v4(&self, ops: &Ops, cache: bool) -> Results {
        let r = self.send(NFS4, 1, &self.c.next_args(ops, cache));
        let mut results = Results {
            status: 0,
            count: 0,
            r,
        };
        results.r.o();
        results.r.u();
        results.sequence();
        results
    }
}

fn name(n: usize) -> Vec<u8> {
    format!("f{n:015x}").into_bytes()
}

fn access(ops: Ops, bits: u32) -> Ops {
    ops.op(3, X::new().u(bits))
}

fn on(bench: &Bench<'_>, load: &str, n: usize, dir: &[u8], files: &[(Vec<u8>, Vec<u8>)]) {
    let (fh, state) = &files[n * 7 % FILES];
    // The newest.
    let newest = [&[0; 4], &state[4..]].concat();
    let (known, new) = (name(n * 7 % FILES), name(FILES + n));
    let data = [7u8; 4096];
    let ops = Ops::new();
    match load {
        "3:getattr" => drop(bench.v3(1, &X::new().o(fh))),
        "3:lookup" => drop(bench.v3(3, &X::new().o(dir).o(&known))),
        "3:access" => drop(bench.v3(4, &X::new().o(fh).u(0x3f))),
        "3:read" => drop(bench.v3(6, &X::new().o(fh).h(0).u(4096))),
        "3:write" => drop(bench.v3(7, &X::new().o(fh).h(0).u(4096).u(2).o(&data))),
        "3:commit" => drop(bench.v3(21, &X::new().o(fh).h(0).u(0))),
        "3:create" => {
            let x = X::new().o(dir).o(&new).u(1);
            bench.v3(8, &x.sattr(Some(0o644), None));
        }
        "3:remove" => drop(bench.v3(12, &X::new().o(dir).o(&known))),
        "4:getattr" => drop(bench.v4(&ops.fh(fh).getattr(&ALL), false)),
        "4:lookup" => {
            let ops = ops.fh(dir).lookup(&known).getfh().getattr(&ALL);
            bench.v4(&ops, false);
        }
        "4:access" => drop(bench.v4(&access(ops.fh(fh), 0x3f).getattr(&ALL), false)),
        "4:read" => drop(bench.v4(&ops.fh(fh).read(&newest, 0, 4096), false)),
        "4:write" => {
            let ops = ops.fh(fh).write(&newest, 0, &data);
            bench.v4(&ops.getattr(&AFTER), false);
        }
        "4:commit" => drop(bench.v4(&ops.fh(fh).op(5, X::new().h(0).u(0)), true)),
        "4:create" => {
            let ops = ops.fh(dir).open(&new, b"weir-bench", (BOTH, 0), Some(1));
            let ops = access(ops.getfh(), 0x2d).getattr(&ALL);
            let mut r = bench.v4(&ops, true);
            r.ok(22);
            let (state, fh) = (opened(&mut r).0, r.handle());
            let ops = Ops::new().fh(&fh).close(&state);
            bench.v4(&ops.getattr(&AFTER), true);
        }
        "4:remove" => drop(bench.v4(&ops.fh(dir).remove(&known), true)),
        other => panic!("no load {other}"),
    }
}

/// Sets limits that are never reached.
fn limit(s: &Server) {
    let limit = QuotaLimit {
        bytes: 1 << 40,
        ..QuotaLimit::default()
    };
    let rules = QuotaRules {
        own: [(QuotaId::user(USER), limit), (QuotaId::group(USER), limit)].into(),
        default_user: Some(limit),
        default_group: Some(limit),
        default_tree: Some(limit),
    };
    s.volume.set_quotas(rules).unwrap();
    while s.volume.quota_state() != QuotaState::On {
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "counts instructions, by a tool that runs it"]
fn path_length() {
    let load = std::env::var("WEIR_LOAD").unwrap_or("4:getattr".into());
    let count = std::env::var("WEIR_COUNT").map_or(FILES, |n| n.parse().unwrap());
    assert!(LOADS.iter().any(|l| load.ends_with(l)));
    let s = Server::new();
    let c = Client::new(&s, "10.0.0.1", b"bench");
    let dir = c.volume();
    let conn = s.conn();
    let all = X::new().o(&dir).sattr(Some(0o777), None).u(0);
    assert_eq!(s.nfs(2, &all).u(), 0);
    s.as_user(USER, USER);
    if std::env::var_os("WEIR_QUOTAS").is_some() {
        limit(&s);
    }
    let files: Vec<_> = (0..FILES)
        .map(|n| {
            let ops = Ops::new().fh(&dir);
            let ops = ops.open(name(n), b"o", (BOTH, 0), Some(1)).getfh();
            let mut r = c.run(&ops);
            r.ok(22);
            let (state, _) = opened(&mut r);
            let fh = r.handle();
            let ops = Ops::new().fh(&fh).write(&state, 0, &[7; 4096]);
            assert_eq!(c.status(&ops), OK);
            if load.ends_with("remove") {
                assert_eq!(c.status(&Ops::new().fh(&fh).close(&state)), OK);
            }
            (fh, state)
        })
        .collect();
    let bench = Bench { c: &c, conn };
    for n in 0..count {
        on(&bench, &load, n, &dir, &files);
    }
}
