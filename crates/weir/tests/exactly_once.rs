//! Calls that must not be carried out twice, sent again after the server was killed, stopped, and
//! killed again.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::Server;
use common::caller::{Caller, status};
use weir_testclient::nfs3::{Call, CreateHow3, FIFO, Fh, Reply, Sattr, SetTime};

const ATTRIBUTES: Sattr = Sattr {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

fn connect(server: &Server) -> Caller {
    Caller::connect(server.address, "127.0.0.1")
}

fn lookup(client: &mut Caller, dir: &Fh, name: &str) -> Option<Fh> {
    match client.request_reply(&Call::Lookup(dir.clone(), name.into())) {
        Reply::Found(found, _) => Some(found),
        _ => None,
    }
}

fn create(dir: &Fh, name: &str) -> Call {
    Call::Create(dir.clone(), name.into(), CreateHow3::Guarded(ATTRIBUTES))
}

/// A new file by CREATE GUARDED.
fn file(client: &mut Caller, dir: &Fh, name: &str) -> Fh {
    made(&client.request_reply(&create(dir, name))).unwrap()
}

/// Calls of every changing procedure but WRITE, each with another result or another object if it
/// ran twice.
fn calls(client: &mut Caller, root: &Fh) -> Vec<Call> {
    let kept = file(client, root, "kept");
    for name in ["removed", "renamed", "replaced"] {
        file(client, root, name);
    }
    let dir = || root.clone();
    let mkdir = |name: &str| Call::Mkdir(dir(), name.into(), ATTRIBUTES);
    made(&client.request_reply(&mkdir("emptied"))).unwrap();
    let Reply::Attr(attr) = client.request_reply(&Call::Getattr(kept.clone())) else {
        panic!("no attributes");
    };
    vec![
        create(root, "guarded"),
        Call::Create(dir(), "exclusive".into(), CreateHow3::Exclusive([7; 8])),
        mkdir("directory"),
        Call::Symlink(dir(), "symlink".into(), ATTRIBUTES, "target".into()),
        Call::Mknod {
            dir: dir(),
            name: "fifo".into(),
            kind: FIFO,
            attr: ATTRIBUTES,
            rdev: (0, 0),
        },
        Call::Remove(dir(), "removed".into()),
        Call::Rmdir(dir(), "emptied".into()),
        Call::Rename {
            from: (dir(), "renamed".into()),
            to: (dir(), "replaced".into()),
        },
        Call::Setattr(kept.clone(), Sattr::mode(0o600), Some(attr.ctime)),
        Call::Link {
            fh: kept,
            to: (dir(), "linked".into()),
        },
    ]
}

/// The handle of what a call made, if it made something.
fn made(reply: &Reply) -> Option<Fh> {
    match reply {
        Reply::Made(made, ..) => Some(made.clone().unwrap()),
        _ => None,
    }
}

#[test]
fn every_call_is_carried_out_once() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut client = connect(&server);
    let root = client.mount("/vol1").unwrap();
    let calls = calls(&mut client, &root);
    let xid = |index: usize| 0x1000 + index as u32;
    let first: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(index, call)| client.send(xid(index), call))
        .collect();
    assert!(first.iter().all(|reply| status(reply) == 0), "{first:?}");

    let again = |server: &Server, when: &str| {
        let mut client = connect(server);
        for (index, call) in calls.iter().enumerate() {
            let reply = client.send(xid(index), call);
            assert_eq!(status(&reply), 0, "{call:?} {when}");
            assert_eq!(made(&reply), made(&first[index]), "{call:?} {when}");
        }
        for (name, there) in [
            ("removed", false),
            ("emptied", false),
            ("renamed", false),
            ("linked", true),
        ] {
            assert_eq!(
                lookup(&mut client, &root, name).is_some(),
                there,
                "{name} {when}"
            );
        }
        client
    };
    // From the log; then from the checkpoint with which the server stopped; then from that one
    // after a crash.
    server.kill();
    let server = Server::start(data.path(), &[]);
    again(&server, "after a crash");
    server.stop();
    let server = Server::start(data.path(), &[]);
    again(&server, "after a stop");
    server.kill();
    let server = Server::start(data.path(), &[]);
    let mut client = again(&server, "after a stop and a crash");

    // Another call with the same arguments is carried out, with the result that it has now.
    let other: Vec<u32> = calls
        .iter()
        .map(|call| status(&client.request_reply(call)))
        .collect();
    let (exist, noent, not_sync) = (17, 2, 10_002);
    let expected = [
        exist, 0, exist, exist, exist, noent, noent, noent, not_sync, exist,
    ];
    assert_eq!(other, expected);
}
