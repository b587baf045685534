//! Export rules of each kind against the real binary, from clients of different addresses.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail loudly.

mod common;

use common::Server;
use common::caller::Caller;

const ACCES: u32 = 13;
const ROFS: u32 = 30;
const NOBODY: u32 = 65_534;

/// Mounts `/vol1` as a client, and returns the result of MKDIR in its root; `Err` if the mount is
/// refused.
fn admitted(server: &Server, from: &str, name: &str) -> Result<Result<u32, u32>, u32> {
    let mut caller = Caller::connect(server.address, from);
    let root = caller.mount("/vol1")?;
    assert!(caller.exports().contains("/vol1"), "not in its list");
    Ok(caller.mkdir(&root, name))
}

fn serve(options: &str) -> (tempfile::TempDir, Server) {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--export-options", options]);
    (data, server)
}

#[test]
fn addresses_and_networks() {
    let (_data, server) = serve("rw,clients=127.0.0.2,clients=127.1.0.0/16");
    assert_eq!(admitted(&server, "127.0.0.2", "a"), Ok(Ok(0)));
    assert_eq!(admitted(&server, "127.1.2.3", "b"), Ok(Ok(0)));
    for stranger in ["127.0.0.1", "127.2.0.1"] {
        let mut caller = Caller::connect(server.address, stranger);
        assert_eq!(caller.mount("/vol1"), Err(ACCES), "{stranger}");
        assert!(!caller.exports().contains("/vol1"));
    }
    // A handle is no way round the rules.
    let root = Caller::connect(server.address, "127.0.0.2")
        .mount("/vol1")
        .unwrap();
    let mut stranger = Caller::connect(server.address, "127.0.0.3");
    assert_eq!(stranger.getattr(&root), Err(ACCES));
    assert_eq!(stranger.mkdir(&root, "c"), Err(ACCES));
}

#[test]
fn reading_only_and_squashing() {
    let (_data, server) = serve("ro,clients=127.0.0.1");
    assert_eq!(admitted(&server, "127.0.0.1", "a"), Ok(Err(ROFS)));

    for (options, root_becomes, seven_becomes) in [
        ("rw,no_root_squash", 0, 7),
        ("rw,root_squash", NOBODY, 7),
        ("rw,all_squash,anonuid=42", 42, 42),
    ] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), &[]);
        let mut caller = Caller::connect(server.address, "127.0.0.1");
        let root = caller.mount("/vol1").unwrap();
        assert_eq!(caller.chmod(&root, 0o777), 0);
        server.stop();
        let server = Server::start(data.path(), &["--export-options", options]);
        let mut caller = Caller::connect(server.address, "127.0.0.1");
        assert_eq!(caller.mkdir(&root, "root"), Ok(root_becomes), "{options}");
        let mut caller = caller.user(7);
        assert_eq!(caller.mkdir(&root, "seven"), Ok(seven_becomes), "{options}");
    }
}

#[test]
fn host_names_and_wildcards() {
    for clients in ["localhost", "local*", "LOCALHOS?"] {
        let (_data, server) = serve(&format!("rw,clients={clients}"));
        assert_eq!(admitted(&server, "127.0.0.1", "a"), Ok(Ok(0)), "{clients}");
        // It has no name, or none that the resolver returns in time.
        let mut stranger = Caller::connect(server.address, "127.0.0.2");
        assert_eq!(stranger.mount("/vol1"), Err(ACCES), "{clients}");
    }
}
