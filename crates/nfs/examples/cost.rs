//! Measures the time of one call in the service, without a network, in nanoseconds on one core.
//!
//! `cargo run --release -p weir-nfs --example cost`

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)] // A measurement.

#[path = "../tests/support/mod.rs"]
mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::compound::{Client, NFS4, Ops};
use support::{NFS, Server, X, block_on};
use weir_auth::gss::{AcceptOutcome, Acceptor, Peer, Protection, SecurityContext};
use weir_auth::krb5::{Context, Keys};
use weir_base::SeededRng;
use weir_nfs::{ConnInfo, Outcome};
use weir_vfs::{Flavours, Identity, Rule, Squash};

fn measure(s: &Server, name: &str, procedure: u32, args: &X) {
    let mut record = s.encode(NFS, procedure, args);
    let (conn, now) = (s.conn(), s.current_time());
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
    sealed();
}

/// One side of a context of Kerberos with AES-256 and SHA-1, the type that clients use most.
fn side(initiator: bool) -> Context {
    let keys = Keys {
        initiator,
        next: 0,
        key: (18, b"thirty-two bytes that are secret"),
        subkey: None,
    };
    Context::new(&keys, &SeededRng::new(7)).unwrap()
}

struct Kerberos;

impl Acceptor for Kerberos {
    fn accept(&self, _: Vec<u8>) -> Pin<Box<dyn Future<Output = AcceptOutcome> + Send>> {
        Box::pin(std::future::ready(AcceptOutcome {
            established: Some(SecurityContext {
                peer: Peer {
                    principal: "user@TEST".to_owned(),
                    identity: Identity::unix(0, 0, std::iter::empty().collect()),
                },
                lifetime: Duration::from_secs(100_000),
                protections: vec![Box::new(side(false))],
            }),
            ..AcceptOutcome::default()
        }))
    }
}

/// Measures calls under Kerberos.
fn sealed() {
    let flavours = Flavours::SYS.or(Flavours::KRB5);
    let rule = Rule {
        flavours,
        writers: flavours,
        ..Rule::open(Squash::None)
    };
    let s = Server::with(vec![rule]);
    let root = s.root();
    let file = s.create(&root, b"file", 0o644);
    for at in 0..16 {
        s.write(&file, at << 16, &vec![7; 1 << 16]);
    }
    for n in 0..300 {
        s.create(&root, format!("a long name of file {n}").as_bytes(), 0o644);
    }
    s.engine.cp_now().unwrap();
    s.service.accept_contexts(Arc::new(Kerberos));
    let conn = s.conn();
    let init = head(0, 1, 0, 1, &[]).u(0).u(0).o(b"token").0;
    let Outcome::Later(later) = s.service.handle(&conn, &init, s.current_time()) else {
        panic!("no context")
    };
    let Outcome::Reply(reply, _) = block_on(later) else {
        panic!("no context")
    };
    let message = reply.message();
    let mut r = support::R(message, 0);
    r.raw(16);
    r.o();
    r.u();
    let handle = r.o();
    let client = (&side(true), &handle[..]);
    let write = |bytes: usize| {
        X::new()
            .o(&file)
            .h(65_536)
            .u(bytes as u32)
            .u(0)
            .o(&vec![1; bytes])
    };
    let read = |bytes| X::new().o(&file).h(65_536).u(bytes);
    let list = X::new().o(&root).h(0).h(0).u(60_000).u(60_000);
    let mut sequence = 0;
    for (name, service) in [("krb5", 1), ("krb5i", 2), ("krb5p", 3)] {
        for (what, procedure, args) in [
            ("getattr", 1, X::new().o(&file)),
            ("read 4K", 6, read(4096)),
            ("read 64K", 6, read(65_536)),
            ("write 4K", 7, write(4096)),
            ("write 64K", 7, write(65_536)),
            ("list 48K", 17, X(list.0.clone())),
        ] {
            let name = format!("{name} {what}");
            let call = (service, procedure, &args);
            measure_sealed((&s, &conn), &name, client, call, &mut sequence);
        }
    }
}

/// The head of a call of NFSv3 up to its credential.
fn head(procedure: u32, of_gss: u32, sequence: u32, service: u32, handle: &[u8]) -> X {
    let cred = X::new().u(1).u(of_gss).u(sequence).u(service).o(handle);
    let x = X::new().u(sequence).u(0).u(2).u(NFS.0).u(3).u(procedure);
    x.u(6).o(&cred.0)
}

/// Measures a call under a context. Its records are made before.
fn measure_sealed(
    (s, conn): (&Server, &ConnInfo),
    name: &str,
    (client, handle): (&Context, &[u8]),
    (service, procedure, args): (u32, u32, &X),
    sequence: &mut u32,
) {
    let mut record = || {
        *sequence += 1;
        let x = head(procedure, 0, *sequence, service, handle);
        let mic = client.mic(&[&x.0]).unwrap();
        let x = x.u(6).o(&mic);
        let body = X::new().u(*sequence).raw(&args.0).0;
        let x = match service {
            2 => x.o(&body).o(&client.mic(&[&body]).unwrap()),
            3 => {
                let mut sealed = Vec::new();
                assert!(client.wrap(&[&body], &mut sealed));
                x.o(&sealed)
            }
            _ => x.raw(&args.0),
        };
        x.0
    };
    let mut best = u128::MAX;
    for _ in 0..40 {
        let records: Vec<Vec<u8>> = (0..200).map(|_| record()).collect();
        let start = Instant::now();
        for record in &records {
            let Outcome::Reply(reply, _) = s.service.handle(conn, record, s.current_time()) else {
                panic!("no reply")
            };
            std::hint::black_box(&reply);
        }
        best = best.min(start.elapsed().as_nanos() / records.len() as u128);
    }
    println!("{name:16} {best:6} ns");
}

/// Measures a COMPOUND. Each call takes the next sequence number of its slot.
fn measure4(c: &Client<'_>, name: &str, ops: &Ops) {
    let first = c.slots.borrow()[0];
    let args = c.compound(&c.in_slot(ops, 0, 0, false));
    let mut record = c.s.encode(NFS4, 1, &args);
    let (conn, now) = (c.s.conn(), c.s.current_time());
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
