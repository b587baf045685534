//! Locks over a kill of the server: the clients that held them may claim them again, and no other client
//! gets them meanwhile.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::{IpAddr, SocketAddr, TcpStream};

use common::{PATIENCE, Server, ask, record, words};

const MOUNT: (u32, u32) = (100_005, 3);
const NFS: (u32, u32) = (100_003, 3);
const NLM: (u32, u32) = (100_021, 4);

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const GRACE_PERIOD: u32 = 4;

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A client host and its connection.
struct Host {
    name: &'static str,
    connection: TcpStream,
}

impl Host {
    fn new(server: &Server, address: [u8; 4], name: &'static str) -> Host {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        let own = SocketAddr::new(IpAddr::from(address), 0);
        socket.bind(&own.into()).unwrap();
        socket.connect(&server.address.into()).unwrap();
        let connection = TcpStream::from(socket);
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        Host { name, connection }
    }

    fn both(server: &Server) -> [Host; 2] {
        [([127, 0, 0, 1], "alpha"), ([127, 0, 0, 2], "beta")]
            .map(|(address, name)| Host::new(server, address, name))
    }

    /// The results of a call as root.
    fn call(&mut self, program: (u32, u32), procedure: u32, args: &[u8]) -> Vec<u32> {
        let xid = common::unique() as u32;
        let cred = words(&[0, 0, 0, 0, 0]);
        let mut body = words(&[xid, 0, 2, program.0, program.1, procedure, 1, 20]);
        body.extend_from_slice(&cred);
        body.extend_from_slice(&words(&[0, 0]));
        body.extend_from_slice(args);
        let mut reply = ask(&mut self.connection, &record(&body));
        assert_eq!(reply[..6], [xid, 1, 0, 0, 0, 0]);
        reply.split_off(6)
    }

    fn file(&mut self) -> Vec<u8> {
        let mounted = self.call(MOUNT, 1, &opaque(b"/vol1"));
        assert_eq!(mounted[0], 0);
        let root = words(&mounted[2..10]);
        let at = [opaque(&root), opaque(b"file")].concat();
        let made = self.call(NFS, 8, &[at, words(&[0, 0, 0, 0, 0, 0, 0])].concat());
        assert_eq!(made[..3], [0, 1, 32]);
        words(&made[3..11])
    }

    fn lock_args(&self, file: &[u8]) -> Vec<u8> {
        let name = opaque(self.name.as_bytes());
        [name.clone(), opaque(file), name, words(&[1, 0, 0, 0, 1])].concat()
    }

    /// An exclusive lock of the first byte.
    fn lock(&mut self, file: &[u8], reclaim: bool) -> u32 {
        let head = [opaque(b"c"), words(&[0, 1])].concat();
        let tail = words(&[reclaim.into(), 3]);
        let args = [head, self.lock_args(file), tail].concat();
        self.call(NLM, 2, &args)[2]
    }
}

#[test]
fn a_killed_server_keeps_a_lock_for_who_held_it() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let [mut alpha, _] = Host::both(&server);
    let file = alpha.file();
    assert_eq!(alpha.lock(&file, false), GRANTED);
    // Twice: the second time from what the first recovery left.
    let mut server = server;
    for life in 1..=2 {
        server.kill();
        server = Server::start(data.path(), &[]);
        let beta;
        [alpha, beta] = Host::both(&server);
        let mut beta = beta;
        assert_eq!(beta.lock(&file, false), GRACE_PERIOD, "life {life}");
        assert_eq!(beta.lock(&file, true), DENIED, "life {life}");
        assert_eq!(alpha.lock(&file, true), GRANTED, "life {life}");
        assert_eq!(beta.lock(&file, false), GRACE_PERIOD, "life {life}");
    }
    // It gives everything up (FREE_ALL): the next start has no client to wait for.
    let free = [opaque(b"alpha"), words(&[0])].concat();
    alpha.call(NLM, 23, &free);
    server.stop();
    let server = Server::start(data.path(), &[]);
    let [_, mut beta] = Host::both(&server);
    assert_eq!(beta.lock(&file, false), GRANTED);
    server.stop();

    // What versions before the first release kept beside the aggregate is refused by name.
    std::fs::write(
        data.path().join("clients"),
        "weir client records, version 1\n",
    )
    .unwrap();
    let refused = Server::try_start(data.path(), &[]).err().unwrap();
    assert!(
        refused.contains("clients is of a version before"),
        "{refused}"
    );
}
