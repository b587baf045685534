//! Requests of a persistent NFSv4 session, sent again after the server was killed, stopped, and killed again.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Server, ask, record, words};

const NFS: u32 = 100_003;
const BADSESSION: u32 = 10_052;
/// Words of a reply before the results.
const HEAD: usize = 6;

/// Operations of a COMPOUND, encoded, and how many.
#[derive(Clone, Default)]
struct Ops(Vec<u8>, u32);

impl Ops {
    fn op(mut self, number: u32, args: &[u8]) -> Ops {
        self.0.extend_from_slice(&words(&[number]));
        self.0.extend_from_slice(args);
        self.1 += 1;
        self
    }

    /// PUTROOTFH, LOOKUP of the volume.
    fn root() -> Ops {
        Ops::default().op(24, &[]).op(15, &opaque(b"vol1"))
    }

    /// GETFH.
    fn handle(self) -> Ops {
        self.op(10, &[])
    }
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = words(&[bytes.len() as u32]);
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// `fattr4` with a mode.
fn mode() -> Vec<u8> {
    [words(&[2, 0, 2]), opaque(&[0, 0, 1, 0xa4])].concat()
}

struct Client {
    connection: std::net::TcpStream,
    session: Vec<u8>,
    sequence: u32,
}

impl Client {
    fn new(server: &Server) -> Client {
        let mut client = Client {
            connection: server.connect(),
            session: Vec::new(),
            sequence: 0,
        };
        let introduce = [words(&[0, 1]), opaque(b"client"), words(&[0, 0, 0])].concat();
        // Status, tag, count, operation, status; client id and sequence.
        let introduced = client.send(&compound(&Ops::default().op(42, &introduce)));
        assert_eq!(introduced[0], 0);
        let channel = [0, 1 << 20, 1 << 20, 4096, 16, 8, 0];
        let create = [
            words(&introduced[5..8]),
            words(&[1]),
            words(&channel),
            words(&channel),
            words(&[0, 0]),
        ];
        let created = client.send(&compound(&Ops::default().op(43, &create.concat())));
        assert_eq!((created[0], created[10]), (0, 1), "persistent");
        client.session = words(&created[5..9]);
        let complete = client.request(&Ops::default().op(58, &words(&[0])));
        assert_eq!(client.send(&complete)[0], 0);
        client
    }

    /// The next request of the session.
    fn request(&mut self, ops: &Ops) -> Vec<u8> {
        self.sequence += 1;
        let sequence = [&self.session[..], &words(&[self.sequence, 0, 0, 1])].concat();
        let mut all = Ops::default().op(53, &sequence);
        all.0.extend_from_slice(&ops.0);
        all.1 += ops.1;
        compound(&all)
    }

    /// The results of a request.
    fn send(&mut self, request: &[u8]) -> Vec<u32> {
        let mut reply = ask(&mut self.connection, request);
        assert_eq!(reply[1..HEAD], [1, 0, 0, 0, 0]);
        reply.split_off(HEAD)
    }

    fn run(&mut self, ops: &Ops) -> Vec<u32> {
        let request = self.request(ops);
        self.send(&request)
    }
}

/// A call of COMPOUND by root with AUTH_SYS.
fn compound(ops: &Ops) -> Vec<u8> {
    let mut body = words(&[common::unique() as u32, 0, 2, NFS, 4, 1, 1, 20]);
    body.extend_from_slice(&words(&[0, 0, 0, 0, 0, 0, 0]));
    body.extend_from_slice(&words(&[0, 2, ops.1]));
    body.extend_from_slice(&ops.0);
    record(&body)
}

/// OPEN of a name for reading and writing, which fails if it is there.
fn open(name: &str) -> Ops {
    let args = [
        words(&[0, 3, 0, 0, 0]),
        opaque(b"owner"),
        words(&[1, 1]),
        mode(),
        words(&[0]),
        opaque(name.as_bytes()),
    ];
    Ops::root().op(18, &args.concat())
}

fn mkdir(name: &str) -> Ops {
    let args = [words(&[2]), opaque(name.as_bytes()), mode()];
    Ops::root().op(6, &args.concat())
}

fn remove(name: &str) -> Ops {
    Ops::root().op(28, &opaque(name.as_bytes()))
}

fn rename(from: &str, to: &str) -> Ops {
    let args = [opaque(from.as_bytes()), opaque(to.as_bytes())];
    Ops::root().op(32, &[]).op(29, &args.concat())
}

fn lookup(name: &str) -> Ops {
    Ops::root().op(15, &opaque(name.as_bytes()))
}

#[test]
fn every_request_is_carried_out_once() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut client = Client::new(&server);
    for name in ["removed", "renamed", "replaced"] {
        assert_eq!(client.run(&open(name))[0], 0, "{name}");
    }
    let all = [
        open("guarded").handle(),
        mkdir("directory").handle(),
        remove("removed"),
        rename("renamed", "replaced"),
    ];
    let sent = all.each_ref().map(|ops| {
        let request = client.request(ops);
        let results = client.send(&request);
        assert_eq!(results[0], 0, "{results:?}");
        (request, results)
    });
    // Sent when the server is gone.
    let never = client.request(&remove("replaced"));

    let again = |server: &Server, when: &str| {
        let mut client = Client::new(server);
        for (index, (request, first)) in sent.iter().enumerate() {
            let results = client.send(request);
            assert_eq!(results[0], 0, "request {index} {when}: {results:?}");
            assert_eq!(results.len(), first.len(), "request {index} {when}");
            if index < 2 {
                // GETFH comes last.
                assert_eq!(results[results.len() - 8..], first[first.len() - 8..]);
            }
        }
        assert_eq!(client.send(&never)[0], BADSESSION, "{when}");
        for (name, status) in [("removed", 2), ("renamed", 2), ("replaced", 0)] {
            assert_eq!(client.run(&lookup(name))[0], status, "{name} {when}");
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
    // As new requests they are carried out, with the results that they have now.
    let now = all.each_ref().map(|ops| client.run(ops)[0]);
    assert_eq!(now, [17, 17, 2, 2]);
}
