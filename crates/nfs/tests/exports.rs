//! Export policies at each request: order, protocols, names, changes while clients are connected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail loudly.

mod support;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use support::compound::{Client, Ops};
use support::{MOUNT, NFS, Server, X};
use weir_nfs::{ConnInfo, Outcome};
use weir_vfs::names::{Resolver, Unavailable};
use weir_vfs::{Clients, Export, Flavours, Protocols, Rule, Squash};

const ACCES: u32 = 13;
const ROFS: u32 = 30;
const STALE: u32 = 70;
const JUKEBOX: u32 = 10_008;

fn rule(clients: &str) -> Rule {
    Rule {
        clients: Clients::parse(clients).unwrap(),
        ..Rule::open(Squash::None)
    }
}

fn publish(s: &Server, rules: Vec<Rule>) {
    let volume = Arc::clone(&s.volume);
    s.vfs.publish(vec![Export::new("/vol1", volume, rules)]);
}

/// A connection that stays open, to test what it remembers.
struct OpenConnection<'s> {
    server: &'s Server,
    conn: ConnInfo,
}

impl OpenConnection<'_> {
    fn status(&self, procedure: u32, args: &X) -> u32 {
        let record = self.server.encode(NFS, procedure, args);
        match self
            .server
            .service
            .handle(&self.conn, &record, self.server.current_time())
        {
            Outcome::Reply(reply, _) => {
                u32::from_be_bytes(reply.message()[24..28].try_into().unwrap())
            }
            _ => panic!("no reply"),
        }
    }
    fn getattr(&self, object: &[u8]) -> u32 {
        self.status(1, &X::new().o(object))
    }
    fn mkdir(&self, dir: &[u8], name: &[u8]) -> u32 {
        self.status(9, &X::new().o(dir).o(name).sattr(Some(0o755), None))
    }
}

fn connect<'s>(s: &'s Server, address: &str) -> OpenConnection<'s> {
    s.from(address);
    let conn = s.conn();
    OpenConnection { server: s, conn }
}

#[test]
fn a_policy_changes_under_connected_clients() {
    let s = Server::new();
    let root = s.root();
    let one = connect(&s, "10.0.0.1");
    let two = connect(&s, "10.0.0.2");
    for _ in 0..3 {
        assert_eq!((one.getattr(&root), two.getattr(&root)), (0, 0));
    }
    assert_eq!(one.mkdir(&root, b"a"), 0);

    let read_only = Rule {
        writers: Flavours::NONE,
        ..rule("10.0.0.1")
    };
    publish(&s, vec![read_only.clone(), rule("10.0.0.0/24")]);
    assert_eq!((one.getattr(&root), one.mkdir(&root, b"b")), (0, ROFS));
    assert_eq!((two.getattr(&root), two.mkdir(&root, b"c")), (0, 0));

    let refused = Rule {
        flavours: Flavours::NONE,
        ..rule("10.0.0.2")
    };
    publish(&s, vec![refused, rule("*")]);
    assert_eq!((one.getattr(&root), two.getattr(&root)), (0, ACCES));
    assert_eq!(one.mkdir(&root, b"d"), 0);

    publish(&s, vec![]);
    assert_eq!((one.getattr(&root), two.getattr(&root)), (ACCES, ACCES));
    s.vfs.publish(vec![]);
    assert_eq!((one.getattr(&root), two.getattr(&root)), (STALE, STALE));

    publish(&s, vec![rule("*")]);
    assert_eq!((one.getattr(&root), two.getattr(&root)), (0, 0));

    // The volume as a whole, whatever the rules say.
    let volume = Arc::clone(&s.volume);
    let mut export = Export::new("/vol1", volume, vec![rule("*")]);
    export.read_only = true;
    s.vfs.publish(vec![export]);
    assert_eq!((one.getattr(&root), one.mkdir(&root, b"e")), (0, ROFS));
    let mut r = s.nfs(4, &X::new().o(&root).u(0x3f));
    assert_eq!(r.u(), 0);
    assert!(r.post_op().is_some());
    // ACCESS3_READ and LOOKUP; not MODIFY, EXTEND, DELETE.
    assert_eq!(r.u() & 0x1f, 0x03);
}

#[test]
fn rules_for_another_protocol_do_not_count() {
    let v4 = Rule {
        protocols: Protocols {
            nfsv3: false,
            nfsv4: true,
            smb: false,
        },
        ..rule("*")
    };
    let s = Server::with(vec![v4, rule("10.0.0.1")]);
    let mount = |from: &str| s.from(from).call(MOUNT, 1, &X::new().o(b"/vol1")).u();
    assert_eq!(mount("10.0.0.1"), 0);
    assert_eq!(mount("10.0.0.2"), ACCES);
    let mut r = s.from("10.0.0.1").call(MOUNT, 5, &X::new());
    assert_eq!((r.u(), r.o()), (1, b"/vol1".to_vec()));
    assert_eq!((r.u(), r.o()), (1, b"10.0.0.1".to_vec()));
    assert_eq!((r.u(), r.u()), (0, 0));
}

#[test]
fn a_rule_that_wants_kerberos_refuses_the_clients_word() {
    let krb5 = |flavours| Rule {
        flavours,
        ..rule("10.0.0.1")
    };
    let s = Server::new();
    let root = s.root();
    let publish = |rules| {
        let volume = Arc::clone(&s.volume);
        s.vfs.publish(vec![Export::new("/vol1", volume, rules)]);
    };
    let mount = |from: &str| s.from(from).call(MOUNT, 1, &X::new().o(b"/vol1")).u();
    let getattr = |from: &str| s.from(from).status(1, &X::new().o(&root));
    publish(vec![krb5(Flavours::KRB5), rule("*")]);
    // Its rule is found, and decides.
    assert_eq!((mount("10.0.0.1"), getattr("10.0.0.1")), (ACCES, ACCES));
    assert_eq!((mount("10.0.0.2"), getattr("10.0.0.2")), (0, 0));
    publish(vec![krb5(Flavours::KRB5.or(Flavours::SYS))]);
    assert_eq!((mount("10.0.0.1"), getattr("10.0.0.1")), (0, 0));
    // Changes by Kerberos alone.
    let mkdir = |name: &[u8]| {
        let args = X::new().o(&root).o(name).sattr(Some(0o755), None);
        s.from("10.0.0.1").status(9, &args)
    };
    assert_eq!(mkdir(b"a"), 0);
    publish(vec![Rule {
        writers: Flavours::KRB5,
        ..krb5(Flavours::KRB5.or(Flavours::SYS))
    }]);
    assert_eq!((getattr("10.0.0.1"), mkdir(b"b")), (0, ROFS));
}

struct Zone;

impl Resolver for Zone {
    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unavailable> {
        match name {
            "a.example.com" => Ok(vec!["10.0.0.1".parse().unwrap()]),
            _ => Err(Unavailable),
        }
    }
    fn name(&self, address: IpAddr) -> Result<Option<String>, Unavailable> {
        // Both say so; only one is right.
        match address.to_string().as_str() {
            "10.0.0.1" | "10.0.0.2" => Ok(Some("a.example.com".into())),
            "10.0.0.3" => Ok(None),
            _ => Err(Unavailable),
        }
    }
}

/// A call that is waiting.
type OutcomeFuture = Pin<Box<dyn Future<Output = Outcome>>>;

fn begin(s: &Server, program: (u32, u32), procedure: u32, args: &X) -> OutcomeFuture {
    let record = s.encode(program, procedure, args);
    match s.service.handle(&s.conn(), &record, s.current_time()) {
        Outcome::Later(waiting) => waiting,
        _ => panic!("it was decided without the name"),
    }
}

/// The status of a waiting call, once it is answered.
fn poll(waiting: &mut OutcomeFuture) -> Option<u32> {
    match waiting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(Outcome::Reply(reply, _)) => Some(u32::from_be_bytes(
            reply.message()[24..28].try_into().unwrap(),
        )),
        Poll::Ready(_) => panic!("no reply"),
        Poll::Pending => None,
    }
}

#[test]
fn calls_wait_for_a_name_and_are_never_admitted_without() {
    for pattern in ["*.example.com", "a.example.com"] {
        let s = Server::new();
        let root = s.root();
        publish(&s, vec![rule(pattern)]);
        let path = X::new().o(b"/vol1");
        let object = X::new().o(&root);
        let dir = X::new().o(&root).o(b"dir").sattr(None, None);
        let mut calls: Vec<_> = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
            .into_iter()
            .flat_map(|from| {
                s.from(from);
                [
                    begin(&s, MOUNT, 1, &path),
                    begin(&s, NFS, 1, &object),
                    begin(&s, NFS, 9, &dir),
                ]
            })
            .collect();
        // Nobody is listed before it is known.
        assert_eq!(s.from("10.0.0.9").call(MOUNT, 5, &X::new()).u(), 0);
        assert!(calls.iter_mut().all(|c| poll(c).is_none()));
        s.vfs.names.serve_pending(&Zone);
        let outcome: Vec<_> = calls.iter_mut().map(|c| poll(c).unwrap()).collect();
        assert_eq!(outcome, [0, 0, 0, ACCES, ACCES, ACCES, ACCES, ACCES, ACCES]);
    }
}

/// Over NFSv4 the name is first needed when LOOKUP has entered the export; the request must not go
/// on from there.
#[test]
fn a_lookup_into_an_export_waits_for_a_name() {
    let s = Server::new();
    publish(&s, vec![rule("*.example.com")]);
    let client = Client::new(&s, "10.0.0.1", b"client");
    let ops = Ops::new().root().lookup(b"vol1").getfh();
    let Outcome::Later(mut lookup) = client.begin(&client.next_args(&ops, true)) else {
        panic!("it was decided without the name")
    };
    assert_eq!(poll(&mut lookup), None);
    s.vfs.names.serve_pending(&Zone);
    assert_eq!(poll(&mut lookup), Some(0));
}

#[test]
fn who_waits_too_long_is_told_to_come_back() {
    let s = Server::new();
    let root = s.root();
    let named = rule("*.example.com");
    publish(&s, vec![named, rule("*")]);
    s.from("10.0.0.77");
    let object = X::new().o(&root);
    let mut getattr = begin(&s, NFS, 1, &object);
    let mut mount = begin(&s, MOUNT, 1, &X::new().o(b"/vol1"));
    let mut seconds = 0;
    while poll(&mut getattr).is_none() {
        assert_eq!(poll(&mut mount), None);
        s.service.tick();
        seconds += 1;
        assert!(seconds < 60, "it waits for ever");
    }
    assert_eq!(poll(&mut mount), Some(ACCES));
    let mut again = begin(&s, NFS, 1, &object);
    // The resolver gives up: no use in waiting, and no reason to admit.
    s.vfs.names.serve_pending(&Zone);
    assert_eq!(poll(&mut again), Some(JUKEBOX));
    assert_eq!(connect(&s, "10.0.0.77").getattr(&root), JUKEBOX);
}
