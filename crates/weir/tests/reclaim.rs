//! Locks over a kill of the server: the clients that held them may claim them again, and no other
//! client gets them meanwhile.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::Server;
use common::caller::Caller;
use weir_testclient::Out;
use weir_testclient::nfs3::{Call, CreateHow3, Reply, Sattr};

const NLM: (u32, u32) = (100_021, 4);

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const GRACE_PERIOD: u32 = 4;

/// A client host and its connection.
struct Host {
    name: &'static str,
    caller: Caller,
}

impl Host {
    fn both(server: &Server) -> [Host; 2] {
        [("127.0.0.1", "alpha"), ("127.0.0.2", "beta")].map(|(address, name)| Host {
            name,
            caller: Caller::connect(server.address, address),
        })
    }

    fn file(&mut self) -> Vec<u8> {
        let root = self.caller.mount("/vol1").unwrap();
        let how = CreateHow3::Unchecked(Sattr::default());
        match self
            .caller
            .request_reply(&Call::Create(root, b"file".into(), how))
        {
            Reply::Made(Some(file), ..) => file,
            other => panic!("{other:?}"),
        }
    }

    /// An exclusive lock of the first byte.
    fn lock(&mut self, file: &[u8], reclaim: bool) -> u32 {
        let name = self.name.as_bytes();
        let mut args = Out::default();
        args.opaque(b"c").bool(false).bool(true);
        args.opaque(name).opaque(file).opaque(name);
        args.u32(1).u64(0).u64(1).bool(reclaim).u32(3);
        let results = self.caller.call(NLM, 2, &args.0);
        u32::from_be_bytes(results[8..12].try_into().unwrap())
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
    let mut free = Out::default();
    free.opaque(b"alpha").u32(0);
    alpha.caller.call(NLM, 23, &free.0);
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
