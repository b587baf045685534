//! Metrics of NFSv4's clients and sessions, and of failures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails loudly.

mod support;

use std::time::Duration;
use support::compound::{Client, Ops};
use support::{MOUNT, Server, X};
use weir_nfs::operation;
use weir_nfs::{v3, v4};

#[test]
fn clients_and_sessions_are_counted_as_they_come_and_go() {
    let s = Server::new();
    let counts = || {
        let c = s.service.nfs4_counts();
        (c.clients, c.courteous, c.sessions, c.slots)
    };
    assert_eq!(counts(), (0, 0, 0, 0));
    let one = Client::new(&s, "10.0.0.1", b"one");
    let two = Client::new(&s, "10.0.0.2", b"two");
    two.open(b"file", b"owner", (3, 0));
    assert_eq!(counts(), (2, 0, 2, 8));
    one.alone(44, X::new().raw(&one.session));
    assert_eq!(counts(), (2, 0, 1, 4));
    one.alone(57, X::new().h(one.id));
    assert_eq!(counts(), (1, 0, 1, 4));
    // The client keeps its opens beyond its lease.
    s.clock.advance(Duration::from_secs(100));
    s.service.tick();
    assert_eq!(counts(), (0, 1, 1, 4));
    two.status(&Ops::new().root());
    assert_eq!(counts(), (1, 0, 1, 4));
}

#[test]
fn what_fails_is_counted_by_operation_and_status() {
    let s = Server::new();
    let failures = || {
        let all = s.vfs.stats.as_ref().unwrap().failures().into_iter();
        let all = all.map(|((number, status), count)| {
            let (protocol, name) = operation::name(number).unwrap();
            let status = match protocol {
                "nfsv4" => v4::status::Status::name(status),
                _ => v3::status::Status::name(status),
            };
            format!("{protocol} {name} {} {count}", status.unwrap())
        });
        all.collect::<Vec<_>>()
    };
    let root = s.root();
    let missing = X::new().o(&root).o(b"missing");
    assert_eq!(s.status(3, &missing), 2);
    assert_eq!(s.status(3, &missing), 2);
    assert_eq!(s.status(1, &X::new().o(&root)), 0);
    assert_eq!(failures(), ["nfsv3 LOOKUP NOENT 2"]);
    // A handle of no volume counts as well, and a directory that may not be mounted.
    assert_eq!(s.status(1, &X::new().o(&[7; 32])), 10001);
    assert_eq!(s.call(MOUNT, 1, &X::new().o(b"/nothing")).u(), 2);
    let of_nfs3 = [
        "nfsv3 GETATTR BADHANDLE 1",
        "nfsv3 LOOKUP NOENT 2",
        "mountv3 MNT NOENT 1",
    ];
    assert_eq!(failures(), of_nfs3);
    let mut c = Client::new(&s, "10.0.0.2", b"one");
    assert_eq!(c.status(&Ops::new().root().lookup(b"missing")), 2);
    c.open(b"file", b"owner", (3, 0));
    c.minor = 0;
    assert_eq!(c.alone(58, X::new().u(0)).status, 10021);
    let all = failures();
    assert_eq!(all[..3], of_nfs3);
    let of_nfs4 = [
        "nfsv4 COMPOUND MINOR_VERS_MISMATCH 1",
        "nfsv4 LOOKUP NOENT 1",
    ];
    assert_eq!(all[3..], of_nfs4);
}
