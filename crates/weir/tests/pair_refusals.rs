//! Partners that a node of a pair does not go on with.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;
mod pairs;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use pairs::{Client, Node, World, Writer, does, until, word};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};
use weir_mirror::wire::{self, CopyState, Decoder, Greeting, Message};

fn config(node: &Node) -> Value {
    let text = std::fs::read(node.data.join("pair.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn certificate(data: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(data.join("replication-cert.pem")).unwrap()
}

/// A connection to a node as its partner makes it.
fn connect(from: &Node, to: &Node) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&to.data)).unwrap();
    let key = PrivateKeyDer::from_pem_file(from.data.join("replication-key.pem")).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate(&from.data)], key)
        .unwrap();
    let at = config_of_partner(from);
    let stream = TcpStream::connect(at).unwrap();
    let name = "weir".try_into().unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        stream,
    )
}

fn config_of_partner(node: &Node) -> String {
    config(node)["partner_address"].as_str().unwrap().to_owned()
}

#[test]
fn a_partner_of_another_version_is_refused_by_name() {
    let world = World::with_setup(|_| {});
    let aggregate = word(&world.a.shows().unwrap(), "aggregate");
    let greeting = Greeting {
        aggregate: *uuid::Uuid::parse_str(&aggregate).unwrap().as_bytes(),
        version: wire::VERSION + 1,
        term: 0,
        sequence: 0,
        copy: CopyState::Fresh,
        memory: false,
        ahead: 0,
        marks: vec![],
    };
    let mut stream = connect(&world.b, &world.a);
    stream
        .write_all(&Message::Hello(greeting).encode())
        .unwrap();
    let mut decoder = Decoder::default();
    let why = loop {
        match decoder.pop().unwrap() {
            Some(Message::Refusal(why)) => break why,
            Some(_) => {}
            None => {
                let mut some = [0; 4096];
                let n = stream.read(&mut some).unwrap();
                assert!(n > 0, "it says nothing");
                decoder.push(&some[..n]);
            }
        }
    };
    let both = format!("{} there, {} here", wire::VERSION + 1, wire::VERSION);
    assert!(
        why.contains("different versions") && why.contains(&both),
        "{why}"
    );
    let shown = world.a.shows().unwrap();
    assert_eq!(word(&shown, "fault"), why);
    assert_eq!(word(&shown, "role"), "primary, alone");
}

#[test]
fn a_third_node_serves_nobody() {
    let mut world = World::in_sync();
    let top = tempfile::tempdir().unwrap();
    let mut third = Node::new(top.path(), "c");
    // By the lines that the second was made with.
    let second = config(&world.b);
    let words = [
        ("--partner", &second["partner_address"]),
        ("--partner-certificate", &second["partner"]),
        ("--witness", &second["witness"]["address"]),
        ("--witness-certificate", &second["witness"]["fingerprint"]),
    ];
    let aggregate = word(&world.a.shows().unwrap(), "aggregate");
    let mut join = vec![
        "pair",
        "join",
        "--data",
        third.data(),
        "--aggregate",
        &aggregate,
    ];
    join.extend(
        words
            .iter()
            .flat_map(|(name, value)| [*name, value.as_str().unwrap()]),
    );
    does(&join);
    third.start();
    until("neither the first nor the witness knows it", || {
        let log = std::fs::read_to_string(third.data.with_extension("log")).unwrap();
        let said = [
            "does not know this node's certificate",
            "does not know this node: ",
        ];
        said.iter().all(|words| log.contains(words)).then_some(())
    });
    let writer = Writer::limited(world.a.nfs, "file", 50);
    writer.has_written(50);
    // A user wants it to.
    does(&["pair", "takeover", "--data", third.data(), "--force"]);
    third.is("role", "taking over");
    world.a.is("in sync", "yes");
    writer.goes_on();
    world.a.end();
    world.b.serves();
    let (fh, blocks) = writer.ended();
    Client::connect(world.b.nfs).unwrap().holds(&fh, blocks);
    third.is("role", "taking over");
    assert!(!third.ready.exists());
}
