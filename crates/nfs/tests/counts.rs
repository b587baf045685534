//! What metrics say of clients and sessions of NFSv4.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails loudly.

mod support;

use std::time::Duration;
use support::compound::{Client, Ops};
use support::{Server, X};

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
    // It keeps what it has open beyond its lease.
    s.clock.advance(Duration::from_secs(100));
    s.service.tick();
    assert_eq!(counts(), (0, 1, 1, 4));
    two.status(&Ops::new().root());
    assert_eq!(counts(), (1, 0, 1, 4));
}
