//! Connections that are protected by TLS (RFC 9289), as far as it concerns the service: the probe,
//! and rules that ask for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use support::compound::{Client, OK, Ops, WRONGSEC};
use support::locker::Locker;
use support::{MOUNT, NFS, NLM, NSM, R, Server, X};
use weir_nfs::Outcome;
use weir_vfs::{Rule, Squash, Transport};

const TLS: u32 = 7;
const BADCRED: u32 = 1;
const TOOWEAK: u32 = 5;

/// A call of NULL, or of `procedure`, with a credential of AUTH_TLS.
fn probe((program, version): (u32, u32), procedure: u32, credential: &[u8]) -> X {
    let x = X::new().u(9).u(0).u(2).u(program).u(version).u(procedure);
    x.u(TLS).o(credential).u(0).u(0)
}

/// The `auth_stat` of a reply that refuses the credential.
fn refused(mut r: R) -> u32 {
    assert_eq!((r.u(), r.u(), r.u()), (9, 1, 1), "MSG_DENIED");
    assert_eq!(r.u(), 1, "AUTH_ERROR");
    r.u()
}

#[test]
fn a_probe_is_answered_with_the_token_if_tls_is_offered() {
    let s = Server::new();
    assert_eq!(refused(s.send(&probe(NFS, 0, b"").0)), BADCRED);
    s.service.offer_tls();
    for program in [NFS, (100_003, 4), MOUNT, NLM, NSM] {
        let Outcome::StartTls(reply) = s.handle(&probe(program, 0, b"").0) else {
            panic!("{program:?}: no TLS")
        };
        let mut r = R(reply.message(), 0);
        assert_eq!((r.u(), r.u(), r.u()), (9, 1, 0), "MSG_ACCEPTED");
        assert_eq!((r.u(), r.o()), (0, b"STARTTLS".to_vec()));
        assert_eq!(r.u(), 0, "SUCCESS");
        r.end();
    }
    // Not NULL, not empty, no such program, within TLS already.
    assert_eq!(refused(s.send(&probe(NFS, 1, b"").0)), BADCRED);
    assert_eq!(refused(s.send(&probe(NFS, 0, b"body").0)), BADCRED);
    let mut r = s.send(&probe((100_099, 1), 0, b"").0);
    assert_eq!((r.u(), r.u(), r.u()), (9, 1, 0));
    s.use_transport(Transport::Tls);
    assert_eq!(refused(s.send(&probe(NFS, 0, b"").0)), BADCRED);
}

fn wants(transport: Transport) -> Server {
    Server::with(vec![Rule {
        transport,
        ..Rule::open(Squash::None)
    }])
}

#[test]
fn an_export_that_wants_tls_is_refused_without() {
    use Transport::{Clear, MutualTls, Tls};
    for (least, over, admitted) in [
        (Clear, Clear, true),
        (Clear, MutualTls, true),
        (Tls, Clear, false),
        (Tls, Tls, true),
        (Tls, MutualTls, true),
        (MutualTls, Clear, false),
        (MutualTls, Tls, false),
        (MutualTls, MutualTls, true),
    ] {
        let at = format!("{least:?} over {over:?}");
        let s = wants(least);
        // MOUNT and NLM come in the clear from Linux clients whatever protects the mount.
        let root = s.root();
        let file = s.use_transport(least).create(&root, b"f", 0o644);
        s.use_transport(over);
        let object = X::new().o(&root);
        let record = s.encode(NFS, 1, &object);
        let mut r = s.send(&record);
        r.u();
        match admitted {
            true => assert_eq!([(); 6].map(|()| r.u()), [1, 0, 0, 0, 0, 0], "{at}"),
            false => assert_eq!([(); 4].map(|()| r.u()), [1, 1, 1, TOOWEAK], "{at}"),
        }
        // A long WRITE that is refused is not read beyond its head.
        let write = X::new().o(&file).h(0).u(1 << 20).u(0).u(1 << 20);
        let head = s.encode(NFS, 7, &write);
        let cx = std::task::Context::from_waker(std::task::Waker::noop());
        let begun = s.service.begin(&s.conn(), &head, 1 << 20, &cx);
        let goes = matches!(begun, weir_nfs::Begin::Go(_));
        assert_eq!(goes, admitted, "{at}");

        let client = Client::new(&s, "10.0.0.1", b"client");
        let path = Ops::new().root().lookup(b"vol1");
        let status = client.status(&path.clone().getattr(&[1]));
        assert_eq!(status, if admitted { OK } else { WRONGSEC }, "{at}");
        // SECINFO names what would do: over this connection, nothing does.
        let mut r = client.run(&Ops::new().root().op(33, X::new().o(b"vol1")));
        r.ok(24);
        assert_eq!(r.ok(33).u(), u32::from(admitted), "{at}");
        let owner = Locker {
            s: &s,
            addr: "10.0.0.1",
            host: "host",
            file: file.clone(),
            svid: 1,
        };
        assert_eq!(owner.lock(false, true, 0, 1), 0, "{at}");
    }
}
