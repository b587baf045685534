//! Requests of a persistent NFSv4 session, sent again after the server was killed, stopped, and
//! killed again.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::Server;
use weir_testclient::compound::{BADSESSION, GUARDED, OK, Ops, READ_WRITE};
use weir_testclient::nfs4::Client4;

fn client(server: &Server) -> Client4 {
    let client = Client4::new(server.address, "client");
    assert_eq!(client.flags & 1, 1, "persistent");
    client
}

/// Operations that begin at the volume's root.
fn at_root() -> Ops {
    Ops::new().root().lookup("vol1")
}

fn open(name: &str) -> Ops {
    at_root().open(name, "owner", READ_WRITE, Some(GUARDED))
}

#[test]
fn every_request_is_carried_out_once() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut first = client(&server);
    for name in ["removed", "renamed", "replaced"] {
        assert_eq!(first.run(&open(name)).status, OK, "{name}");
    }
    let all = [
        open("guarded").getfh(),
        at_root().mkdir("directory").getfh(),
        at_root().remove("removed"),
        at_root().rename("renamed", "replaced"),
    ];
    let sent = all.each_ref().map(|ops| {
        let request = first.request(ops);
        let results = first.sends(&request);
        assert_eq!(results.status, OK, "{results:?}");
        (request, results.r.rest().to_vec())
    });
    // Sent when the server is gone.
    let never = first.request(&at_root().remove("replaced"));

    let again = |server: &Server, when: &str| {
        let mut client = client(server);
        for (index, (request, first)) in sent.iter().enumerate() {
            let results = client.sends(request);
            assert_eq!(results.status, OK, "request {index} {when}: {results:?}");
            let (rest, length) = (results.r.rest(), first.len());
            assert_eq!(rest.len(), length, "request {index} {when}");
            if index < 2 {
                // The handle that GETFH returns comes last.
                assert_eq!(rest[length - 32..], first[length - 32..]);
            }
        }
        assert_eq!(client.sends(&never).status, BADSESSION, "{when}");
        for (name, status) in [("removed", 2), ("renamed", 2), ("replaced", 0)] {
            let looked_up = client.run(&at_root().lookup(name)).status;
            assert_eq!(looked_up, status, "{name} {when}");
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
    // As new requests they are carried out, with the results that they have now.
    let now = all.each_ref().map(|ops| client.run(ops).status);
    assert_eq!(now, [17, 17, 2, 2]);
}
