//! Calls that must not be carried out twice, sent again after the server was killed, stopped, and killed again.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Server, ask, record, words};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// Words of a reply before the results.
const HEAD: usize = 6;

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A call by root with AUTH_SYS, of which the stamp is another each time.
fn call(xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let stamp = common::unique() as u32;
    let cred = words(&[stamp, 0, 0, 0, 0]);
    let mut body = words(&[xid, 0, 2, program, 3, procedure, 1, cred.len() as u32]);
    body.extend_from_slice(&cred);
    body.extend_from_slice(&words(&[0, 0]));
    body.extend_from_slice(args);
    record(&body)
}

/// A procedure with its arguments.
struct Call(u32, Vec<u8>);

struct Client {
    connection: std::net::TcpStream,
    xid: u32,
}

impl Client {
    fn new(server: &Server) -> Client {
        Client {
            connection: server.connect(),
            xid: common::unique() as u32 | 1,
        }
    }

    /// The results of a call with this transaction id.
    fn send(&mut self, xid: u32, Call(procedure, args): &Call) -> Vec<u32> {
        let mut reply = ask(&mut self.connection, &call(xid, NFS, *procedure, args));
        assert_eq!(reply[..HEAD], [xid, 1, 0, 0, 0, 0]);
        reply.split_off(HEAD)
    }

    fn fresh(&mut self, call: &Call) -> Vec<u32> {
        self.xid = self.xid.wrapping_add(2);
        self.send(self.xid, call)
    }

    fn root(&mut self) -> Vec<u8> {
        let reply = ask(&mut self.connection, &call(1, MOUNT, 1, &opaque(b"/vol1")));
        assert_eq!(reply[HEAD], 0);
        words(&reply[HEAD + 2..HEAD + 10])
    }

    fn lookup(&mut self, dir: &[u8], name: &str) -> Option<Vec<u8>> {
        let args = [opaque(dir), opaque(name.as_bytes())].concat();
        let results = self.fresh(&Call(3, args));
        (results[0] == 0).then(|| words(&results[2..10]))
    }

    /// A new file by CREATE GUARDED.
    fn file(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        assert_eq!(self.fresh(&create(dir, name))[0], 0, "{name}");
        self.lookup(dir, name).unwrap()
    }
}

/// Nothing is set but the mode.
fn attributes() -> Vec<u8> {
    words(&[1, 0o644, 0, 0, 0, 0, 0])
}

fn at(dir: &[u8], name: &str) -> Vec<u8> {
    [opaque(dir), opaque(name.as_bytes())].concat()
}

fn create(dir: &[u8], name: &str) -> Call {
    Call(8, [at(dir, name), words(&[1]), attributes()].concat())
}

fn mkdir(dir: &[u8], name: &str) -> Call {
    Call(9, [at(dir, name), attributes()].concat())
}

/// Every procedure that changes something and is no WRITE, each so that a second run would end otherwise, or make another
/// object.
fn calls(client: &mut Client, root: &[u8]) -> Vec<Call> {
    let kept = client.file(root, "kept");
    for name in ["removed", "renamed", "replaced"] {
        client.file(root, name);
    }
    assert_eq!(client.fresh(&mkdir(root, "emptied"))[0], 0);
    // SETATTR with the change time as it is before: its last words.
    let attr = client.fresh(&Call(1, opaque(&kept)));
    let guard = [vec![1], attr[attr.len() - 2..].to_vec()].concat();
    let set = words(&[1, 0o600, 0, 0, 0, 0, 0]);
    vec![
        create(root, "guarded"),
        Call(8, [at(root, "exclusive"), words(&[2, 7, 8])].concat()),
        mkdir(root, "directory"),
        Call(
            10,
            [at(root, "symlink"), attributes(), opaque(b"target")].concat(),
        ),
        Call(11, [at(root, "fifo"), words(&[7]), attributes()].concat()),
        Call(12, at(root, "removed")),
        Call(13, at(root, "emptied")),
        Call(14, [at(root, "renamed"), at(root, "replaced")].concat()),
        Call(2, [opaque(&kept), set, words(&guard)].concat()),
        Call(15, [opaque(&kept), at(root, "linked")].concat()),
    ]
}

/// The handle of what a call made, if it made something.
fn made(call: &Call, results: &[u32]) -> Option<Vec<u32>> {
    matches!(call.0, 8..=11).then(|| {
        assert_eq!(results[1..3], [1, 32], "the handle is there");
        results[3..11].to_vec()
    })
}

#[test]
fn every_call_is_carried_out_once() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut client = Client::new(&server);
    let root = client.root();
    let calls = calls(&mut client, &root);
    let xid = |index: usize| 0x1000 + index as u32;
    let first: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(index, call)| client.send(xid(index), call))
        .collect();
    assert!(first.iter().all(|results| results[0] == 0), "{first:?}");

    let again = |server: &Server, when: &str| {
        let mut client = Client::new(server);
        for (index, call) in calls.iter().enumerate() {
            let results = client.send(xid(index), call);
            assert_eq!(results[0], 0, "procedure {} {when}", call.0);
            let handle = made(call, &results);
            assert_eq!(
                handle,
                made(call, &first[index]),
                "procedure {} {when}",
                call.0
            );
            // To its end, attributes or not: a decoder finds what RFC 1813 says.
            assert!(results.len() >= if handle.is_some() { 14 } else { 3 });
        }
        for (name, there) in [
            ("removed", false),
            ("emptied", false),
            ("renamed", false),
            ("linked", true),
        ] {
            assert_eq!(client.lookup(&root, name).is_some(), there, "{name} {when}");
        }
        client
    };
    // From the log; then from the checkpoint with which the server stopped; then from that one after a crash.
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
    let other: Vec<u32> = calls.iter().map(|call| client.fresh(call)[0]).collect();
    let (exist, noent, not_sync) = (17, 2, 10_002);
    let expected = [
        exist, 0, exist, exist, exist, noent, noent, noent, not_sync, exist,
    ];
    assert_eq!(other, expected);
}
