//! Measures the time of one call in the service, without a network, in nanoseconds on one core.
//!
//! `cargo run --release -p weir-nfs --example cost`

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)] // A measurement.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;
use support::compound::{Client, NFS4, Ops};
use support::{NFS, Server, X};
use weir_nfs::Outcome;

fn measure(s: &Server, name: &str, procedure: u32, args: &X) {
    let mut record = s.encode(NFS, procedure, args);
    let (conn, now) = (s.conn(), s.now());
    let rounds = 200_000u32;
    let mut best = u128::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for xid in 0..rounds {
            record[..4].copy_from_slice(&xid.to_be_bytes());
            let Outcome::Reply(reply, _) = s.service.handle(&conn, &record, now) else {
                panic!("no reply")
            };
            std::hint::black_box(&reply);
        }
        best = best.min(start.elapsed().as_nanos() / u128::from(rounds));
    }
    println!("{name:12} {best:6} ns");
}

fn main() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    for at in 0..16 {
        s.write(&file, at << 16, &vec![7; 1 << 16]);
    }
    s.engine.cp_now().unwrap();
    measure(&s, "null", 0, &X::new());
    measure(&s, "getattr", 1, &X::new().o(&file));
    measure(&s, "lookup", 3, &X::new().o(&root).o(b"file"));
    measure(&s, "access", 4, &X::new().o(&file).u(0x3f));
    measure(&s, "read 4K", 6, &X::new().o(&file).h(8192).u(4096));
    measure(&s, "read 64K", 6, &X::new().o(&file).h(65536).u(65536));
    measure(
        &s,
        "write 4K",
        7,
        &X::new().o(&file).h(4096).u(4096).u(0).o(&[1; 4096]),
    );
    measure(
        &s,
        "readdirplus",
        17,
        &X::new().o(&root).h(0).h(0).u(4096).u(4096),
    );
    let c = Client::new(&s, "10.0.0.1", b"client");
    let (file, state) = c.open(b"file", b"owner", (3, 0));
    let at = || Ops::new().fh(&file);
    let attrs = [1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55];
    measure4(&c, "4 sequence", &Ops::new());
    measure4(&c, "4 getattr", &at().getattr(&attrs));
    let lookup = Ops::new().fh(&root).lookup(b"file").getfh();
    measure4(&c, "4 lookup", &lookup.getattr(&attrs));
    measure4(&c, "4 read 4K", &at().read(&state, 8192, 4096));
    measure4(&c, "4 read 64K", &at().read(&state, 65_536, 65_536));
    let x = X::new().raw(&state).h(4096).u(0).o(&[1; 4096]);
    measure4(&c, "4 write 4K", &at().op(38, x).getattr(&attrs));
}

/// Measures a COMPOUND. Each call takes the next sequence number of its slot.
fn measure4(c: &Client<'_>, name: &str, ops: &Ops) {
    let first = c.slots.borrow()[0];
    let args = c.compound(&c.in_slot(ops, 0, 0, false));
    let mut record = c.s.encode(NFS4, 1, &args);
    let (conn, now) = (c.s.conn(), c.s.now());
    // Behind the head with its tag of three bytes, and SEQUENCE's number and session.
    let at = record.len() - args.0.len() + 8 + 8 + 4 + 16;
    let rounds = 200_000u32;
    let mut best = u128::MAX;
    for round in 0..5 {
        let start = Instant::now();
        for n in 0..rounds {
            let number = first + 1 + round * rounds + n;
            record[at..at + 4].copy_from_slice(&number.to_be_bytes());
            let Outcome::Reply(reply, _) = c.s.service.handle(&conn, &record, now) else {
                panic!("no reply")
            };
            std::hint::black_box(&reply);
        }
        best = best.min(start.elapsed().as_nanos() / u128::from(rounds));
    }
    c.slots.borrow_mut()[0] = first + 5 * rounds;
    println!("{name:12} {best:6} ns");
}
