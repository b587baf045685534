//! NFS over TLS (RFC 9289) against the real binary: a client of rustls's, and peers that keep to
//! nothing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::caller::{Caller, status};
use common::{Server, closed, exchange_bytes, null, record, reply, serves, words};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};
use weir_testclient::In;
use weir_testclient::nfs3::{Call, CreateHow3, FILE_SYNC, PROGRAM, Reply, Sattr, UNSTABLE};

const TOOWEAK: u32 = 5;
const BADCRED: u32 = 1;

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A key, and a certificate for it.
struct Identity {
    certificate: String,
    key: KeyPair,
}

/// An authority, with what it has issued, in files.
struct Authority {
    folder: tempfile::TempDir,
    own: Identity,
    params: CertificateParams,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let authority = Authority {
            folder: tempfile::tempdir().unwrap(),
            own: Identity { certificate, key },
            params,
        };
        authority.file("ca", &authority.own.certificate);
        let server = authority.issue("localhost");
        authority.file("cert", &server.certificate);
        authority.file("key", &server.key.serialize_pem());
        authority
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.own.key);
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Identity { certificate, key }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn serve(&self, data: &Path, more: &[&str]) -> Server {
        let files = ["cert", "key", "ca"].map(|name| self.path(name));
        let [cert, key, ca] = files.each_ref().map(|path| path.to_str().unwrap());
        let tls = [
            "--nfs-tls-cert",
            cert,
            "--nfs-tls-key",
            key,
            "--nfs-tls-ca",
            ca,
        ];
        Server::start(data, &[&tls, more].concat())
    }

    /// A client that trusts this authority, with a certificate or without.
    fn client(&self, own: Option<&Identity>, alpn: &[u8]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.own.certificate.as_bytes());
        roots.add(root.unwrap()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let chain = CertificateDer::from_pem_slice(own.certificate.as_bytes());
                let key = own.key.serialize_pem();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config
                    .with_client_auth_cert(vec![chain.unwrap()], key)
                    .unwrap()
            }
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(config)
    }
}

/// NULL with a credential of AUTH_TLS.
fn probe(xid: u32) -> Vec<u8> {
    record(&words(&[xid, 0, 2, PROGRAM, 3, 0, 7, 0, 0, 0]))
}

/// The words of a reply with the token.
fn token(xid: u32) -> Vec<u32> {
    let [starttls_a, starttls_b] = [*b"STAR", *b"TTLS"].map(u32::from_be_bytes);
    vec![xid, 1, 0, 0, 8, starttls_a, starttls_b, 0]
}

/// Goes over to TLS.
fn protect(server: &Server, config: &Arc<ClientConfig>) -> std::io::Result<Tls> {
    let mut socket = server.connect();
    assert_eq!(exchange_bytes(&mut socket, &probe(1)), token(1));
    shake_hands(socket, config)
}

/// TLS on a connection whose probe was answered; and a call, which is served.
fn shake_hands(socket: TcpStream, config: &Arc<ClientConfig>) -> std::io::Result<Tls> {
    let name = "localhost".try_into().unwrap();
    let client = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(client, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    // A server that refuses the client's certificate says so after the client is done.
    stream.write_all(&null(2))?;
    let mut first = [0; 28];
    stream.read_exact(&mut first)?;
    assert_eq!(first[4..8], words(&[2]));
    Ok(stream)
}

fn block(number: u32) -> Vec<u8> {
    (0..65_536u32)
        .map(|i| (i * 31 + number * 7 + (i >> 8)) as u8)
        .collect()
}

#[test]
fn files_are_written_and_read_over_tls() {
    let data = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let server = authority.serve(data.path(), &["--export-options", "rw,xprtsec=tls"]);
    let config = authority.client(None, b"sunrpc");
    let stream = protect(&server, &config).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"sunrpc"[..]));
    let mut caller = Caller::from_stream(Box::new(stream));
    let root = caller.mount("/vol1").unwrap();

    let how = CreateHow3::Unchecked(Sattr::default());
    let create = Call::Create(root.clone(), b"f".into(), how);
    let Reply::Made(Some(file), ..) = caller.request_reply(&create) else {
        panic!("no file");
    };
    let write = |number: u32, stable, data| Call::Write {
        fh: file.clone(),
        offset: u64::from(number) << 16,
        stable,
        data,
    };
    let read = |number: u32, count| Call::Read {
        fh: file.clone(),
        offset: u64::from(number) << 16,
        count,
    };
    // Many at a time, in both directions: the socket takes and gives parts of them.
    const BLOCKS: u32 = 64;
    for number in 0..BLOCKS {
        caller.post(&write(number, UNSTABLE, block(number)));
    }
    for _ in 0..BLOCKS {
        assert_eq!(caller.reply()[6], 0);
    }
    let first = (0..BLOCKS).map(|number| caller.post(&read(number, 1 << 16)));
    let first = first.min().unwrap();
    for _ in 0..BLOCKS {
        let reply = caller.reply();
        let number = reply[0].wrapping_sub(first);
        let results = words(&reply[6..]);
        match read(number, 1 << 16).decode(In(&results)) {
            Ok(Reply::Data { data, .. }) => assert!(data == block(number), "block {number}"),
            other => panic!("block {number}: {other:?}"),
        }
    }

    // One record of the largest size, read in pieces.
    let large: Vec<u8> = (0..16).flat_map(block).collect();
    assert_eq!(
        status(&caller.request_reply(&write(0, FILE_SYNC, large.clone()))),
        0
    );
    match caller.request_reply(&read(0, 1 << 20)) {
        Reply::Data { data, .. } => assert!(data == large),
        other => panic!("{other:?}"),
    }

    // In the clear the same handle is of no use.
    let mut clear = Caller::from_stream(Box::new(server.connect()));
    assert!(clear.mount("/vol1").is_ok(), "MOUNT shows the handle");
    let xid = clear.post(&Call::Getattr(root));
    assert_eq!(clear.reply(), [xid, 1, 1, 1, TOOWEAK]);
    drop((caller, clear));
    server.stop();
}

#[test]
fn certificates_of_clients_count_if_the_authority_issued_them() {
    let data = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.serve(data.path(), &["--export-options", "rw,xprtsec=mtls"]);
    let getattr = |own: Option<&Identity>| {
        let stream = protect(&server, &authority.client(own, b"sunrpc"))?;
        let mut caller = Caller::from_stream(Box::new(stream));
        let root = caller.mount("/vol1").unwrap();
        caller.post(&Call::Getattr(root));
        Ok::<_, std::io::Error>(caller.reply()[2..5].to_vec())
    };
    assert_eq!(getattr(None).unwrap(), [1, 1, TOOWEAK]);
    let known = authority.issue("client");
    assert_eq!(getattr(Some(&known)).unwrap(), [0, 0, 0]);
    assert!(getattr(Some(&other.issue("client"))).is_err());
    // Another protocol by ALPN.
    let http = authority.client(None, b"h2");
    assert!(protect(&server, &http).is_err());
    drop(server);

    // Rules that nobody could fulfil.
    let without = Server::try_start(data.path(), &["--export-options", "xprtsec=tls"]);
    assert!(without.err().unwrap().contains("--nfs-tls-cert"));
}

#[test]
fn what_follows_a_probe_is_tls_or_ends_the_connection() {
    let data = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let server = authority.serve(data.path(), &["--stall", "2"]);
    let config = authority.client(None, b"sunrpc");

    // A call in the clear behind the probe, which would become one of the peer that shows its
    // certificate later.
    let mut c = server.connect();
    c.write_all(&[probe(1), null(2)].concat()).unwrap();
    assert_eq!(reply(&mut c), token(1));
    assert!(shake_hands(c, &config).is_err(), "TLS in spite of it");
    // In place of the handshake.
    let mut c = server.connect();
    assert_eq!(exchange_bytes(&mut c, &probe(1)), token(1));
    c.write_all(&null(2)).unwrap();
    let mut rest = Vec::new();
    let _ = c.read_to_end(&mut rest);
    assert!(!rest.windows(4).any(|w| w == words(&[2])), "it was served");

    // Garbage in place of a handshake, and in one that has begun.
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x16, 3, 1, 0xff, 0xff],
        &[0; 5],
    ] {
        let mut c = server.connect();
        assert_eq!(exchange_bytes(&mut c, &probe(1)), token(1));
        c.write_all(garbage).unwrap();
        assert!(closed(&mut c), "{garbage:?}");
    }
    // A record that was changed on its way.
    let mut stream = protect(&server, &config).unwrap();
    stream.conn.writer().write_all(&null(3)).unwrap();
    let mut sealed = Vec::new();
    stream.conn.write_tls(&mut sealed).unwrap();
    *sealed.last_mut().unwrap() ^= 1;
    stream.sock.write_all(&sealed).unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).is_err() || closed(&mut stream.sock));
    // No second time within TLS.
    let mut stream = protect(&server, &config).unwrap();
    stream.write_all(&probe(4)).unwrap();
    assert_eq!(reply(&mut stream), [4, 1, 1, 1, BADCRED]);
    stream.write_all(&null(5)).unwrap();
    assert_eq!(reply(&mut stream), [5, 1, 0, 0, 0, 0]);
    // A peer that says that it is done gets a reply, and its connection is closed.
    stream.write_all(&null(6)).unwrap();
    stream.conn.send_close_notify();
    assert_eq!(reply(&mut stream), [6, 1, 0, 0, 0, 0]);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "close_notify");

    // Handshakes that are begun and left: they end, and hold nobody up.
    let mut left: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut c = server.connect();
            assert_eq!(exchange_bytes(&mut c, &probe(number)), token(number));
            let hello = [0x16, 3, 1, 2, 0, 1];
            c.write_all(&hello[..number as usize % hello.len()])
                .unwrap();
            c
        })
        .collect();
    serves(&mut server.connect());
    drop(protect(&server, &config).unwrap());
    assert!(left.iter_mut().all(closed));
    server.stop();
}
