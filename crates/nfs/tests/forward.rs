//! Calls about another server's aggregate: carried to it with the client's identity, and served by
//! it as if the client had connected itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails loudly.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use support::Server;
use weir_nfs::forward::{self, Forward, ForwardFuture};
use weir_nfs::{ConnInfo, Outcome};
use weir_vfs::directory::{Directory, Membership, Remote, RemoteVolume};

const OTHER: [u8; 16] = [9; 16];
const SECRET: [u8; 16] = [5; 16];
const MOUNT: u32 = 100_005;
const NFS: u32 = 100_003;
const MARK: usize = 4;

fn membership(own: [u8; 16], secret: [u8; 16]) -> Membership {
    Membership { own, secret }
}

fn join(s: &Server, own: [u8; 16], remote: [u8; 16], path: &str) {
    let remote = Remote {
        aggregate: "b".to_owned(),
        identity: remote,
        nfs: Vec::new(),
        smb: Vec::new(),
        others: Vec::new(),
        transfers: Vec::new(),
        fingerprint: String::new(),
    };
    let volume = RemoteVolume {
        paths: vec![path.to_owned()],
        share: None,
        constituent: None,
        origin: None,
    };
    let membership = Some(membership(own, SECRET));
    s.vfs
        .publish_directory(Directory::new(membership, vec![(remote, vec![volume])]));
}

/// Notes what is to be carried, and never has a reply.
#[derive(Default)]
struct Carrier {
    carried: Mutex<Vec<([u8; 16], Vec<u8>)>>,
    ended: AtomicU64,
}

impl Forward for Carrier {
    fn forward(&self, _conn: &ConnInfo, owner: [u8; 16], record: Vec<u8>) -> ForwardFuture {
        self.carried.lock().push((owner, record));
        Box::pin(std::future::pending())
    }

    fn ended(&self, connection: u64) {
        self.ended.store(connection, Ordering::Relaxed);
    }
}

fn conn(number: u64) -> ConnInfo {
    let peer: SocketAddr = "192.0.2.7:700".parse().unwrap();
    ConnInfo::new(number, peer, "127.0.0.1:2049".parse().unwrap())
}

/// A call without credential.
fn call(xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let words = [xid, 0, 2, program, 3, procedure, 0, 0, 0, 0];
    let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    out.extend_from_slice(args);
    out
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A handle of another aggregate: its version, and the begin of the aggregate's identity.
fn foreign() -> Vec<u8> {
    [&[2, 9, 9, 9][..], &[0; 28]].concat()
}

fn reply(s: &Server, conn: &ConnInfo, record: &[u8]) -> Vec<u8> {
    match s.service.handle(conn, record, s.current_time()) {
        Outcome::Reply(reply, _) | Outcome::SpeaksFor(reply, _) => reply.message().to_vec(),
        _ => panic!("no reply"),
    }
}

#[test]
fn calls_about_another_aggregate_are_carried_once() {
    let s = Server::new();
    let carrier = Arc::new(Carrier::default());
    s.service.forward_by(Arc::clone(&carrier) as _);
    let conn = conn(7);
    let getattr = call(1, NFS, 1, &opaque(&foreign()));
    let is_carried = |record: &[u8]| {
        let before = carrier.carried.lock().len();
        let outcome = s.service.handle(&conn, record, s.current_time());
        let carried = carrier.carried.lock().len() > before;
        (carried, outcome)
    };
    assert!(!is_carried(&getattr).0, "there is no cluster");
    join(&s, [1; 16], OTHER, "/far");
    let (carried, first) = is_carried(&getattr);
    assert!(carried && matches!(first, Outcome::Later(_)));
    let (owner, record) = carrier.carried.lock()[0].clone();
    assert_eq!((owner, &record[MARK..]), (OTHER, &getattr[..]));
    // A copy is dropped while the first one waits.
    let (carried, copy) = is_carried(&getattr);
    assert!(!carried && matches!(copy, Outcome::Drop));
    drop(first);
    assert!(is_carried(&getattr).0);
    // Mounts go by their path, and NULL is for this server.
    assert!(is_carried(&call(2, MOUNT, 1, &opaque(b"/far/dir"))).0);
    assert!(!is_carried(&call(3, MOUNT, 1, &opaque(b"/vol1"))).0);
    assert!(!is_carried(&call(4, MOUNT, 1, &opaque(b"/nowhere"))).0);
    assert!(!is_carried(&call(5, NFS, 0, &[])).0);
    s.service.connection_ended(&conn);
    assert_eq!(carrier.ended.load(Ordering::Relaxed), 7);
}

#[test]
fn only_servers_of_the_cluster_speak_for_clients() {
    let s = Server::new();
    let own = [1; 16];
    let client: SocketAddr = "198.51.100.9:801".parse().unwrap();
    let hello = |owner| forward::hello(owner)[MARK..].to_vec();
    let speak = |secret, owner, reply: &[u8]| {
        let call = forward::speak_for(&membership([0; 16], secret), owner, reply, client);
        call.map(|call| call[MARK..].to_vec())
    };
    let accepts = |s: &Server, conn: &ConnInfo, call: &[u8]| {
        let outcome = s.service.handle(conn, call, s.current_time());
        match outcome {
            Outcome::SpeaksFor(reply, who) => {
                assert!(forward::is_accepted(&reply.message()));
                Some(who)
            }
            Outcome::Reply(reply, _) => {
                assert!(!forward::is_accepted(&reply.message()));
                None
            }
            _ => panic!("no reply"),
        }
    };
    let first = conn(1);
    let none = reply(&s, &first, &hello(own));
    assert_eq!(speak(SECRET, own, &none), None, "no cluster");
    join(&s, own, OTHER, "/far");
    let wrong = reply(&s, &first, &hello(OTHER));
    assert_eq!(speak(SECRET, OTHER, &wrong), None, "not the owner");
    let challenge = reply(&s, &first, &hello(own));
    let good = speak(SECRET, own, &challenge).unwrap();
    let bad = speak([6; 16], own, &challenge).unwrap();
    assert_eq!(accepts(&s, &first, &bad), None, "another secret");
    assert_eq!(accepts(&s, &conn(2), &good), None, "another connection");
    assert_eq!(accepts(&s, &first, &good), Some(client));
    // The last byte of the address is changed on the way.
    let mut changed = good.clone();
    let at = changed.len() - 12 - 1;
    changed[at] ^= 1;
    assert_eq!(accepts(&s, &first, &changed), None);
    // A call that another server passes on is not passed on again.
    let carrier = Arc::new(Carrier::default());
    s.service.forward_by(Arc::clone(&carrier) as _);
    let mut passed = conn(3);
    passed.forwarded = true;
    reply(&s, &passed, &call(9, NFS, 1, &opaque(&foreign())));
    assert_eq!(carrier.carried.lock().len(), 0);
}
