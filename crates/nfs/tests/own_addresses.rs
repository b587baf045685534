//! Addresses of the server at which clients see a single export.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::sync::Arc;
use support::compound::{Client, OK, Ops, exchange};
use support::{MOUNT, Server, X};
use weir_base::{SeededRng, Time};
use weir_vfs::{Export, ExportTable, Rule, Squash};

const NOENT: u32 = 2;
const HOST: &str = "10.0.0.1";
const MAIN: &str = "10.0.0.99:2049";
const ONE: &str = "10.9.0.1:2049";
const TWO: &str = "10.9.0.2:2049";
const NOBODYS: &str = "10.9.0.3:2049";

/// A server with `/vol1`, which has the file `main`, and two exports with addresses of their own,
/// both at `/vol1` there, which have the files `one` and `two`.
fn server() -> Server {
    let s = Server::new();
    let rules = || vec![Rule::open(Squash::None)];
    let mut exports = vec![Export::new("/vol1", Arc::clone(&s.volume), rules())];
    let now = Time::EPOCH;
    for (name, at) in [("one", ONE), ("two", TWO)] {
        let made = s
            .engine
            .create_volume(name, (0, 0), 0o755, now, &SeededRng::new(2));
        let mut export = Export::new(format!("/{name}/vol1"), made.unwrap(), rules());
        let address = at.split(':').next().unwrap().parse().unwrap();
        export.home = Some((address, "/vol1".to_owned()));
        exports.push(export);
    }
    let table = ExportTable::with_addresses(Some("10.9.0.0/29".parse().unwrap()));
    let exports = exports.into_iter().map(Arc::new).collect();
    s.vfs.publish_table(table.with(&[], exports));
    for (at, path, file) in [
        (MAIN, "/vol1", "main"),
        (ONE, "/vol1", "one"),
        (TWO, "/vol1", "two"),
    ] {
        come_to(&s, at);
        let root = mount(&s, path).unwrap();
        s.create(&root, file.as_bytes(), 0o644);
    }
    s
}

fn come_to(s: &Server, local: &str) {
    s.local.set(local.parse().unwrap());
}

/// MNT: the handle, or the status.
fn mount(s: &Server, path: &str) -> Result<Vec<u8>, u32> {
    let mut r = s.call(MOUNT, 1, &X::new().o(path.as_bytes()));
    match r.u() {
        0 => Ok(r.o()),
        status => Err(status),
    }
}

/// The paths that EXPORT lists.
fn listed(s: &Server) -> Vec<String> {
    let mut r = s.call(MOUNT, 5, &X::new());
    let mut paths = Vec::new();
    while r.u() == 1 {
        paths.push(String::from_utf8(r.o()).unwrap());
        while r.u() == 1 {
            r.o();
        }
    }
    paths
}

#[test]
fn mount_finds_the_export_of_the_address_that_the_client_came_to() {
    let s = server();
    let lookup = |root: &[u8], name: &str| s.status(3, &X::new().o(root).o(name.as_bytes()));
    for (at, own, others) in [
        (MAIN, "main", ["one", "two"]),
        (ONE, "one", ["main", "two"]),
        (TWO, "two", ["main", "one"]),
    ] {
        come_to(&s, at);
        let root = mount(&s, "/vol1").unwrap();
        assert_eq!(lookup(&root, own), 0, "{at}");
        for other in others {
            assert_eq!(lookup(&root, other), NOENT, "{at} {other}");
        }
    }
    come_to(&s, MAIN);
    assert!(mount(&s, "/one/vol1").is_ok());
    assert_eq!(listed(&s), ["/one/vol1", "/two/vol1", "/vol1"]);
    come_to(&s, ONE);
    assert_eq!(listed(&s), ["/vol1"]);
    for path in ["/one/vol1", "/two/vol1", "/", "/vol1x", "/vol1/absent"] {
        assert_eq!(mount(&s, path), Err(NOENT), "{path}");
    }
    // An address that no export has leads nowhere, and not to the server's own /vol1.
    come_to(&s, NOBODYS);
    assert_eq!(mount(&s, "/vol1"), Err(NOENT));
    assert!(listed(&s).is_empty());
    // Mapped into IPv6 it is the same address.
    come_to(&s, "[::ffff:10.9.0.2]:2049");
    let root = mount(&s, "/vol1").unwrap();
    assert_eq!(lookup(&root, "two"), 0);
}

#[test]
fn the_root_of_version_4_leads_to_the_export_of_the_address() {
    let s = server();
    for (at, own, others) in [
        (MAIN, "main", ["one", "two"]),
        (ONE, "one", ["main", "two"]),
        (TWO, "two", ["main", "one"]),
    ] {
        come_to(&s, at);
        let c = Client::new(&s, HOST, b"client");
        let look = |name: &str| Ops::new().root().lookup(b"vol1").lookup(name.as_bytes());
        assert_eq!(c.status(&look(own)), OK, "{at}");
        for other in others {
            assert_eq!(c.status(&look(other)), NOENT, "{at} {other}");
        }
        // Up again, and down: the root of this address.
        let up = Ops::new().root().lookup(b"vol1").op(16, X::new());
        let again = up.lookup(b"vol1").lookup(own.as_bytes());
        assert_eq!(c.status(&again), OK, "{at}");
        let above = Ops::new().root().op(16, X::new());
        assert_eq!(c.status(&above), NOENT, "{at}");
    }
    come_to(&s, NOBODYS);
    let c = Client::new(&s, HOST, b"client");
    assert_eq!(c.status(&Ops::new().root().lookup(b"vol1")), NOENT);
    assert_eq!(c.status(&Ops::new().root().getattr(&[1])), OK);
}

/// A client that took the addresses for one server would use one session for all of them.
#[test]
fn to_clients_of_version_4_1_the_addresses_are_servers_of_their_own() {
    let s = server();
    let introduced = |at: &str| {
        come_to(&s, at);
        let c = Client::reclaiming(&s, HOST, b"the same client", 1);
        let mut r = c.alone(42, exchange(b"the same client", 1, 0));
        let r = r.ok(42);
        let (client, _, _, _, minor) = (r.h(), r.u(), r.u(), r.u(), r.h());
        assert_eq!(minor, 0);
        let (major, scope) = (r.o(), r.o());
        assert_eq!(major, scope);
        (client, major)
    };
    let all = [MAIN, ONE, TWO].map(introduced);
    for (n, (client, server)) in all.iter().enumerate() {
        for (other_client, other_server) in all.iter().skip(n + 1) {
            assert_ne!(client, other_client);
            assert_ne!(server, other_server);
        }
    }
    // It is known at each of them.
    assert_eq!(introduced(ONE), all[1]);
}
